//! The numbers of the fields that this library reads or writes, and which fields announce the
//! length of a data field.

/// Field numbers by their names in the FIX repository, in rising order.
pub mod tags {
    macro_rules! tags {
        ($($name:ident $number:literal $field:literal;)*) => { $(
            #[doc = concat!($field, " (", stringify!($number), ").")]
            pub const $name: u32 = $number;
        )* };
    }

    tags! {
        ACCOUNT 1 "Account";
        AVG_PX 6 "AvgPx";
        BEGIN_SEQ_NO 7 "BeginSeqNo";
        BEGIN_STRING 8 "BeginString";
        BODY_LENGTH 9 "BodyLength";
        CHECK_SUM 10 "CheckSum";
        CL_ORD_ID 11 "ClOrdID";
        CUM_QTY 14 "CumQty";
        END_SEQ_NO 16 "EndSeqNo";
        EXEC_ID 17 "ExecID";
        EXEC_INST 18 "ExecInst";
        EXEC_REF_ID 19 "ExecRefID";
        EXEC_TRANS_TYPE 20 "ExecTransType";
        HANDL_INST 21 "HandlInst";
        LAST_PX 31 "LastPx";
        LAST_QTY 32 "LastQty";
        MSG_SEQ_NUM 34 "MsgSeqNum";
        MSG_TYPE 35 "MsgType";
        NEW_SEQ_NO 36 "NewSeqNo";
        ORDER_ID 37 "OrderID";
        ORDER_QTY 38 "OrderQty";
        ORD_STATUS 39 "OrdStatus";
        ORD_TYPE 40 "OrdType";
        ORIG_CL_ORD_ID 41 "OrigClOrdID";
        POSS_DUP_FLAG 43 "PossDupFlag";
        PRICE 44 "Price";
        REF_SEQ_NUM 45 "RefSeqNum";
        RULE_80A 47 "Rule80A";
        SENDER_COMP_ID 49 "SenderCompID";
        SENDER_SUB_ID 50 "SenderSubID";
        SENDING_TIME 52 "SendingTime";
        SIDE 54 "Side";
        SYMBOL 55 "Symbol";
        TARGET_COMP_ID 56 "TargetCompID";
        TARGET_SUB_ID 57 "TargetSubID";
        TEXT 58 "Text";
        TIME_IN_FORCE 59 "TimeInForce";
        TRANSACT_TIME 60 "TransactTime";
        RAW_DATA_LENGTH 95 "RawDataLength";
        RAW_DATA 96 "RawData";
        POSS_RESEND 97 "PossResend";
        ENCRYPT_METHOD 98 "EncryptMethod";
        CXL_REJ_REASON 102 "CxlRejReason";
        ORD_REJ_REASON 103 "OrdRejReason";
        HEART_BT_INT 108 "HeartBtInt";
        MIN_QTY 110 "MinQty";
        TEST_REQ_ID 112 "TestReqID";
        ORIG_SENDING_TIME 122 "OrigSendingTime";
        GAP_FILL_FLAG 123 "GapFillFlag";
        EXPIRE_TIME 126 "ExpireTime";
        RESET_SEQ_NUM_FLAG 141 "ResetSeqNumFlag";
        EXEC_TYPE 150 "ExecType";
        LEAVES_QTY 151 "LeavesQty";
        REF_TAG_ID 371 "RefTagID";
        REF_MSG_TYPE 372 "RefMsgType";
        SESSION_REJECT_REASON 373 "SessionRejectReason";
        EXEC_RESTATEMENT_REASON 378 "ExecRestatementReason";
        BUSINESS_REJECT_REF_ID 379 "BusinessRejectRefID";
        BUSINESS_REJECT_REASON 380 "BusinessRejectReason";
        CXL_REJ_RESPONSE_TO 434 "CxlRejResponseTo";
        ORDER_CAPACITY 528 "OrderCapacity";
        MASS_CANCEL_REQUEST_TYPE 530 "MassCancelRequestType";
        MASS_CANCEL_RESPONSE 531 "MassCancelResponse";
        MASS_CANCEL_REJECT_REASON 532 "MassCancelRejectReason";
        TOTAL_AFFECTED_ORDERS 533 "TotalAffectedOrders";
        USERNAME 553 "Username";
        PASSWORD 554 "Password";
        NEXT_EXPECTED_MSG_SEQ_NUM 789 "NextExpectedMsgSeqNum";
        APPL_VER_ID 1128 "ApplVerID";
        DEFAULT_APPL_VER_ID 1137 "DefaultApplVerID";
        SESSION_STATUS 1409 "SessionStatus";
    }
}

/// Length fields and their data fields (FIX 5.0 SP2 repository, types Length and data). The value
/// of a data field may hold any byte, SOH too.
const DATA_FIELDS: [(u32, u32); 30] = [
    (90, 91),
    (93, 89),
    (95, 96),
    (212, 213),
    (348, 349),
    (350, 351),
    (352, 353),
    (354, 355),
    (356, 357),
    (358, 359),
    (360, 361),
    (362, 363),
    (364, 365),
    (445, 446),
    (618, 619),
    (621, 622),
    (1184, 1185),
    (1277, 1278),
    (1280, 1281),
    (1282, 1283),
    (1397, 1398),
    (1401, 1402),
    (1403, 1404),
    (1468, 1469),
    (1525, 1527),
    (1578, 1579),
    (1621, 1622),
    (1664, 1665),
    (1678, 1697),
    (1733, 1734),
];

/// One bit for each tag below 2048: whether the tag is a length field. 256 bytes, four cache lines.
const LENGTH_FIELDS: [u64; 32] = {
    let mut bits = [0_u64; 32];
    let mut idx = 0;
    while idx < DATA_FIELDS.len() {
        let tag = DATA_FIELDS[idx].0 as usize;
        bits[tag / 64] |= 1 << (tag % 64);
        idx += 1;
    }
    bits
};

/// Whether `tag` may be a length field; a few tags beyond 2047 share a bit with one.
#[inline(always)]
pub(crate) fn may_be_length(tag: u32) -> bool {
    // The least is 90, and most fields of an order are below.
    tag >= 90 && LENGTH_FIELDS[(tag / 64 % 32) as usize] >> (tag % 64) & 1 != 0
}

/// The data field whose length the field `tag` is.
pub(crate) fn data_field_of(tag: u32) -> Option<u32> {
    DATA_FIELDS.iter().find(|(length, _)| *length == tag).map(|(_, data)| *data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn length_field_names_its_data_field() {
        assert_eq!(data_field_of(95), Some(96));
        assert_eq!(data_field_of(93), Some(89));
        assert_eq!(data_field_of(96), None);
        assert_eq!(data_field_of(u32::MAX), None);
        assert!(may_be_length(95) && !may_be_length(96));
    }
}
