//! Messages of a client.

use zerocopy::little_endian::{I32, I64, U16, U32, U64};

use crate::Text;
use crate::codec::layouts;

layouts! {
    skip 0, kind u16;

    /// Enter a new order.
    514 NewOrder 132 {
        /// Limit, nine decimals; all but the top bit set is none.
        price: I64,
        /// Contracts.
        quantity: U32,
        /// The instrument.
        security_id: I32,
        /// 1 buy, 2 sell.
        side: u8,
        /// The message's number.
        seq: U32,
        /// The operator.
        sender: Text<20>,
        /// The client's identifier of the order.
        cl_ord_id: Text<20>,
        /// The party details that were registered under this number.
        party_details: U64,
        /// Number of the request, echoed.
        order_request: U64,
        /// When the message was sent, ns since 1970.
        sending_ns: U64,
        /// Stop price, nine decimals.
        stop_price: I64,
        /// Where the operator is.
        location: Text<5>,
        /// The least contracts of a fill; all ones is none.
        min_quantity: U32,
        /// Contracts to show; all ones is all.
        display_quantity: U32,
        /// Last day, days since 1970; 65535 is none.
        expire_date: U16,
        /// `1` market with protection, `2` limit, `3` stop with protection, `4` stop limit,
        /// `K` market to limit.
        order_type: u8,
        /// 0 day, 1 until cancelled, 3 fill and kill, 4 fill or kill, 6 until a date.
        time_in_force: u8,
        /// 1 by hand, 0 by a machine.
        manual: u8,
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
    }

    /// Change an order. The quantity is the total, with the contracts executed before, unless
    /// the override says otherwise.
    515 ReplaceOrder 133 {
        /// Limit, nine decimals; all but the top bit set is none.
        price: I64,
        /// Contracts.
        quantity: U32,
        /// The instrument.
        security_id: I32,
        /// 1 buy, 2 sell.
        side: u8,
        /// The message's number.
        seq: U32,
        /// The operator.
        sender: Text<20>,
        /// The client's identifier of the order.
        cl_ord_id: Text<20>,
        /// The party details that were registered under this number.
        party_details: U64,
        /// The venue's number of the order.
        order_id: U64,
        /// Stop price, nine decimals.
        stop_price: I64,
        /// Number of the request, echoed.
        order_request: U64,
        /// When the message was sent, ns since 1970.
        sending_ns: U64,
        /// Where the operator is.
        location: Text<5>,
        /// The least contracts of a fill; all ones is none.
        min_quantity: U32,
        /// Contracts to show; all ones is all.
        display_quantity: U32,
        /// Last day, days since 1970; 65535 is none.
        expire_date: U16,
        /// `1` market with protection, `2` limit, `3` stop with protection, `4` stop limit,
        /// `K` market to limit.
        order_type: u8,
        /// 0 day, 1 until cancelled, 3 fill and kill, 4 fill or kill, 6 until a date.
        time_in_force: u8,
        /// 1 by hand, 0 by a machine.
        manual: u8,
        /// In-flight mitigation. 1: the quantity is a total, of which fills are taken off. 0: all
        /// of it is open. The first replace says so for the life of its order.
        ofm_override: u8,
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
    }

    /// Cancel an order.
    516 CancelOrder 96 {
        /// The venue's number of the order.
        order_id: U64,
        /// The party details that were registered under this number.
        party_details: U64,
        /// 1 by hand, 0 by a machine.
        manual: u8,
        /// The message's number.
        seq: U32,
        /// The operator.
        sender: Text<20>,
        /// The client's identifier of the order.
        cl_ord_id: Text<20>,
        /// Number of the request, echoed.
        order_request: U64,
        /// When the message was sent, ns since 1970.
        sending_ns: U64,
        /// Where the operator is.
        location: Text<5>,
        /// The instrument.
        security_id: I32,
        /// 1 buy, 2 sell.
        side: u8,
        /// Market making obligation.
        liquidity_flag: u8,
        /// For whom orders are cancelled.
        orig_user: Text<8>,
    }

    /// Cancel many orders.
    529 MassAction 79 {
        /// The party details that were registered under this number.
        party_details: U64,
        /// Number of the request, echoed.
        order_request: U64,
        /// 1 by hand, 0 by a machine.
        manual: u8,
        /// The message's number.
        seq: U32,
        /// The operator.
        sender: Text<20>,
        /// When the message was sent, ns since 1970.
        sending_ns: U64,
        /// The product group.
        group: Text<6>,
        /// Where the operator is.
        location: Text<5>,
        /// The instrument.
        security_id: I32,
        /// 1 instrument, 7 all, 9 market segment, 10 product group.
        scope: u8,
        /// The market segment; 255 none.
        segment: u8,
        /// 100 operator, 101 account; 255 all.
        request_type: u8,
        /// 1 buy, 2 sell.
        side: u8,
        /// `1` market with protection, `2` limit, `3` stop with protection, `4` stop limit,
        /// `K` market to limit.
        order_type: u8,
        /// 0 day, 1 until cancelled, 3 fill and kill, 4 fill or kill, 6 until a date.
        time_in_force: u8,
        /// Market making obligation.
        liquidity_flag: u8,
        /// For whom orders are cancelled.
        orig_user: Text<8>,
    }

    /// Ask what an order is.
    533 StatusRequest 62 {
        /// The party details that were registered under this number.
        party_details: U64,
        /// Number of the request, echoed.
        status_request: U64,
        /// 1 by hand, 0 by a machine.
        manual: u8,
        /// The message's number.
        seq: U32,
        /// The operator.
        sender: Text<20>,
        /// The venue's number of the order.
        order_id: U64,
        /// When the message was sent, ns since 1970.
        sending_ns: U64,
        /// Where the operator is.
        location: Text<5>,
    }
}
