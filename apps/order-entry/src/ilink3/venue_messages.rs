//! Messages of the venue. Fields that end with `ns` are since 1970.

use zerocopy::little_endian::{I32, I64, U16, U32, U64};

use crate::Text;
use crate::codec::layouts;

layouts! {
    skip 0, kind u16;

    /// A message was refused as a whole.
    521 BusinessReject 330 {
        /// The message's number.
        seq: U32,
        /// The session's identifier.
        uuid: U64,
        /// More about the reason.
        text: Text<256>,
        /// The operator.
        sender: Text<20>,
        /// The party details that were registered under this number.
        party_details: U64,
        /// When the message was sent, ns since 1970.
        sending_ns: U64,
        /// The identifier of the refused message.
        ref_id: U64,
        /// Where the operator is.
        location: Text<5>,
        /// The number of the refused message.
        ref_seq: U32,
        /// The field that was wrong.
        ref_tag: U16,
        /// Why.
        reject_reason: U16,
        /// Type of the refused message.
        ref_msg_type: Text<2>,
        /// 1: the message may be a repetition.
        poss_retrans: u8,
        /// 1 by hand, 0 by a machine.
        manual: u8,
        /// Whether and how the message was delayed by its segments; 255 is not.
        split: u8,
    }

    /// An order was refused.
    523 OrderRejected 483 {
        /// The message's number.
        seq: U32,
        /// The session's identifier.
        uuid: U64,
        /// More about the reason.
        text: Text<256>,
        /// The report, unique for the day.
        exec_id: Text<40>,
        /// The operator.
        sender: Text<20>,
        /// The client's identifier of the order.
        cl_ord_id: Text<20>,
        /// The party details that were registered under this number.
        party_details: U64,
        /// The venue's number of the order.
        order_id: U64,
        /// Limit, nine decimals; all but the top bit set is none.
        price: I64,
        /// Stop price, nine decimals.
        stop_price: I64,
        /// When it happened, ns since 1970.
        transact_ns: U64,
        /// When the message was sent, ns since 1970.
        sending_ns: U64,
        /// Number of the request, echoed.
        order_request: U64,
        /// The cross.
        cross_id: U64,
        /// The venue's number of the cross.
        host_cross_id: U64,
        /// Where the operator is.
        location: Text<5>,
        /// The instrument.
        security_id: I32,
        /// Contracts.
        quantity: U32,
        /// The least contracts of a fill; all ones is none.
        min_quantity: U32,
        /// Contracts to show; all ones is all.
        display_quantity: U32,
        /// Why.
        reject_reason: U16,
        /// Last day, days since 1970; 65535 is none.
        expire_date: U16,
        /// Unused.
        delay_duration: U16,
        /// `1` market with protection, `2` limit, `3` stop with protection, `4` stop limit,
        /// `K` market to limit.
        order_type: u8,
        /// 1 buy, 2 sell.
        side: u8,
        /// 0 day, 1 until cancelled, 3 fill and kill, 4 fill or kill, 6 until a date.
        time_in_force: u8,
        /// 1 by hand, 0 by a machine.
        manual: u8,
        /// 1: the message may be a repetition.
        poss_retrans: u8,
        /// Whether and how the message was delayed by its segments; 255 is not.
        split: u8,
        /// Kind of cross.
        cross_type: u8,
        /// Instructions, a bit each.
        exec_inst: u8,
        /// `A` aggressive, `P` passive.
        execution_mode: u8,
        /// Market making obligation.
        liquidity_flag: u8,
        /// Managed order.
        managed: u8,
        /// Kind of short sale.
        short_sale: u8,
        /// Until when the message was delayed.
        delay_to_ns: U64,
        /// Discretion price, nine decimals.
        discretion_price: I64,
        /// Reservation price, nine decimals.
        reservation_price: I64,
    }

    /// Contracts of an outright order traded. Groups about the fill follow.
    525 OrderFilled 293 {
        /// The message's number.
        seq: U32,
        /// The session's identifier.
        uuid: U64,
        /// The report, unique for the day.
        exec_id: Text<40>,
        /// The operator.
        sender: Text<20>,
        /// The client's identifier of the order.
        cl_ord_id: Text<20>,
        /// The party details that were registered under this number.
        party_details: U64,
        /// Price of the fill, nine decimals.
        last_price: I64,
        /// The venue's number of the order.
        order_id: U64,
        /// Limit, nine decimals; all but the top bit set is none.
        price: I64,
        /// Stop price, nine decimals.
        stop_price: I64,
        /// When it happened, ns since 1970.
        transact_ns: U64,
        /// When the message was sent, ns since 1970.
        sending_ns: U64,
        /// Number of the request, echoed.
        order_request: U64,
        /// Links the fill to its legs.
        sec_exec_id: U64,
        /// The cross.
        cross_id: U64,
        /// The venue's number of the cross.
        host_cross_id: U64,
        /// Where the operator is.
        location: Text<5>,
        /// The instrument.
        security_id: I32,
        /// Contracts.
        quantity: U32,
        /// Contracts of the fill.
        last_quantity: U32,
        /// Contracts executed.
        cumulative: U32,
        /// The trade in the market data.
        md_trade: U32,
        /// The trade of this side.
        side_trade: U32,
        /// The work-up.
        trade_link: U32,
        /// Open contracts.
        leaves: U32,
        /// Day of the trade, days since 1970.
        trade_date: U16,
        /// Last day, days since 1970; 65535 is none.
        expire_date: U16,
        /// 1 partially filled, 2 filled.
        order_status: u8,
        /// `1` market with protection, `2` limit, `3` stop with protection, `4` stop limit,
        /// `K` market to limit.
        order_type: u8,
        /// 1 buy, 2 sell.
        side: u8,
        /// 0 day, 1 until cancelled, 3 fill and kill, 4 fill or kill, 6 until a date.
        time_in_force: u8,
        /// 1 by hand, 0 by a machine.
        manual: u8,
        /// 1: the message may be a repetition.
        poss_retrans: u8,
        /// 1: the order came in, 0: it rested.
        aggressor: u8,
        /// Kind of cross.
        cross_type: u8,
        /// Instructions, a bit each.
        exec_inst: u8,
        /// `A` aggressive, `P` passive.
        execution_mode: u8,
        /// Market making obligation.
        liquidity_flag: u8,
        /// Managed order.
        managed: u8,
        /// Kind of short sale.
        short_sale: u8,
        /// Owner of a private phase.
        ownership: u8,
        /// Discretion price, nine decimals.
        discretion_price: I64,
        /// Trade at fixing.
        trade_type: U16,
        /// Why, where nobody asked: 100 disconnect, 103 and 107 self match, 104 credit, 106
        /// risk control.
        restate_reason: u8,
        /// Settlement, days since 1970.
        settle_date: U16,
        /// Maturity, days since 1970.
        maturity_date: U16,
        /// Amount in the counter currency, mantissa and exponent.
        counter_amount: [u8; 9],
        /// Amount in the base currency, mantissa and exponent.
        base_amount: [u8; 9],
        /// Fixing price, nine decimals.
        benchmark_price: I64,
        /// Reservation price, nine decimals.
        reservation_price: I64,
        /// Priority by size.
        priority: u8,
        /// Price at which the other side is listed, nine decimals.
        display_limit_price: I64,
    }

    /// A cancel was refused.
    535 CancelRejected 409 {
        /// The message's number.
        seq: U32,
        /// The session's identifier.
        uuid: U64,
        /// More about the reason.
        text: Text<256>,
        /// The report, unique for the day.
        exec_id: Text<40>,
        /// The operator.
        sender: Text<20>,
        /// The client's identifier of the order.
        cl_ord_id: Text<20>,
        /// The party details that were registered under this number.
        party_details: U64,
        /// The venue's number of the order.
        order_id: U64,
        /// When it happened, ns since 1970.
        transact_ns: U64,
        /// When the message was sent, ns since 1970.
        sending_ns: U64,
        /// Number of the request, echoed.
        order_request: U64,
        /// Where the operator is.
        location: Text<5>,
        /// Why.
        reject_reason: U16,
        /// Unused.
        delay_duration: U16,
        /// 1 by hand, 0 by a machine.
        manual: u8,
        /// 1: the message may be a repetition.
        poss_retrans: u8,
        /// Whether and how the message was delayed by its segments; 255 is not.
        split: u8,
        /// Market making obligation.
        liquidity_flag: u8,
        /// Until when the message was delayed.
        delay_to_ns: U64,
    }

    /// A change was refused.
    536 ReplaceRejected 409 {
        /// The message's number.
        seq: U32,
        /// The session's identifier.
        uuid: U64,
        /// More about the reason.
        text: Text<256>,
        /// The report, unique for the day.
        exec_id: Text<40>,
        /// The operator.
        sender: Text<20>,
        /// The client's identifier of the order.
        cl_ord_id: Text<20>,
        /// The party details that were registered under this number.
        party_details: U64,
        /// The venue's number of the order.
        order_id: U64,
        /// When it happened, ns since 1970.
        transact_ns: U64,
        /// When the message was sent, ns since 1970.
        sending_ns: U64,
        /// Number of the request, echoed.
        order_request: U64,
        /// Where the operator is.
        location: Text<5>,
        /// Why.
        reject_reason: U16,
        /// Unused.
        delay_duration: U16,
        /// 1 by hand, 0 by a machine.
        manual: u8,
        /// 1: the message may be a repetition.
        poss_retrans: u8,
        /// Whether and how the message was delayed by its segments; 255 is not.
        split: u8,
        /// Market making obligation.
        liquidity_flag: u8,
        /// Until when the message was delayed.
        delay_to_ns: U64,
    }
}
