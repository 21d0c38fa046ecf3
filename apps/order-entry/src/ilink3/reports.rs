//! Reports of the venue on the life of an order. Fields that end with `ns` are since 1970.

use zerocopy::little_endian::{I32, I64, U16, U32, U64};

use crate::Text;
use crate::codec::layouts;

layouts! {
    skip 0, kind u16;

    /// An order was accepted.
    522 OrderAccepted 226 {
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
        /// Priority by size.
        priority: u8,
    }

    /// An order is no more, because its time is over or it could not fill.
    524 OrderEliminated 219 {
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
        /// Contracts executed.
        cumulative: U32,
        /// Contracts.
        quantity: U32,
        /// The least contracts of a fill; all ones is none.
        min_quantity: U32,
        /// Contracts to show; all ones is all.
        display_quantity: U32,
        /// Last day, days since 1970; 65535 is none.
        expire_date: U16,
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
        /// Discretion price, nine decimals.
        discretion_price: I64,
        /// Reservation price, nine decimals.
        reservation_price: I64,
        /// Priority by size.
        priority: u8,
    }

    /// An order was changed.
    531 OrderReplaced 226 {
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
        /// Contracts executed.
        cumulative: U32,
        /// Open contracts.
        leaves: U32,
        /// The least contracts of a fill; all ones is none.
        min_quantity: U32,
        /// Contracts to show; all ones is all.
        display_quantity: U32,
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
        /// Priority by size.
        priority: u8,
    }

    /// An order was cancelled.
    534 OrderCancelled 247 {
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
        /// Contracts executed.
        cumulative: U32,
        /// The least contracts of a fill; all ones is none.
        min_quantity: U32,
        /// Contracts to show; all ones is all.
        display_quantity: U32,
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
        /// Why, where nobody asked: 100 disconnect, 103 and 107 self match, 104 credit, 106
        /// risk control.
        restate_reason: u8,
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
        /// Priority by size.
        priority: u8,
        /// For whom orders are cancelled.
        orig_user: Text<8>,
        /// Who cancelled for another.
        cancel_text: Text<8>,
    }
}
