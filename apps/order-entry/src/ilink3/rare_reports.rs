//! Reports of the venue that a day has few of: an order's state, what a mass cancel did, trades
//! that are no more or were corrected. Fields that end with `ns` are since 1970.

use zerocopy::little_endian::{I32, I64, U16, U32, U64};

use crate::Text;
use crate::codec::layouts;

layouts! {
    skip 0, kind u16;

    /// What an order is, on request.
    532 OrderStatus 513 {
        /// The message's number.
        seq: U32,
        /// The session's identifier.
        uuid: U64,
        /// More about it.
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
        /// Number of the order's request.
        order_request: U64,
        /// Number of the question, echoed.
        status_request: U64,
        /// Number of a question about many orders, echoed.
        mass_status_request: U64,
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
        /// `0` new, `1` partially filled, `2` filled, `4` canceled, `5` replaced, `8` rejected, `C`
        /// expired, `U` not known.
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
        /// 1: the last report of a question about many orders.
        last_report: u8,
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
        /// For whom orders are cancelled.
        orig_user: Text<8>,
        /// Who cancelled for another.
        cancel_text: Text<8>,
    }

    /// A trade of an outright order is no more, or had other terms. Groups about it follow.
    548 TradeAddendum 266 {
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
        /// When it happened, ns since 1970.
        transact_ns: U64,
        /// When the message was sent, ns since 1970.
        sending_ns: U64,
        /// Links the fill to its legs.
        sec_exec_id: U64,
        /// The same of the trade before.
        orig_sec_exec_id: U64,
        /// Where the operator is.
        location: Text<5>,
        /// The instrument.
        security_id: I32,
        /// Contracts of the fill.
        last_quantity: U32,
        /// The trade of this side.
        side_trade: U32,
        /// The same of the trade before.
        orig_side_trade: U32,
        /// Day of the trade, days since 1970.
        trade_date: U16,
        /// State of the order.
        order_status: u8,
        /// `H` the trade is no more, `G` it has these terms.
        exec_type: u8,
        /// 1 buy, 2 sell.
        side: u8,
        /// 1 by hand, 0 by a machine.
        manual: u8,
        /// 1: the message may be a repetition.
        poss_retrans: u8,
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
        /// Trade at fixing.
        trade_type: U16,
        /// Why, where nobody asked.
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
        /// The trade in the market data.
        md_trade: U32,
        /// The report of the trade.
        exec_ref_id: Text<40>,
    }

    /// What a cancel of many orders did. A group of the orders follows.
    562 MassActionReport 130 {
        /// The message's number.
        seq: U32,
        /// The session's identifier.
        uuid: U64,
        /// The operator.
        sender: Text<20>,
        /// The party details that were registered under this number.
        party_details: U64,
        /// When it happened, ns since 1970.
        transact_ns: U64,
        /// When the message was sent, ns since 1970.
        sending_ns: U64,
        /// Number of the request, echoed.
        order_request: U64,
        /// Number of the report.
        report_id: U64,
        /// The product group.
        group: Text<6>,
        /// Where the operator is.
        location: Text<5>,
        /// The instrument.
        security_id: I32,
        /// Unused.
        delay_duration: U16,
        /// 0 refused, 1 accepted, as a number or a digit.
        response: u8,
        /// 1 by hand, 0 by a machine.
        manual: u8,
        /// 1 instrument, 7 all, 9 market segment, 10 product group.
        scope: u8,
        /// Orders that were canceled.
        affected: U32,
        /// 1: the last message of the report.
        last_fragment: u8,
        /// Why it was refused.
        reject_reason: u8,
        /// The market segment; 255 none.
        segment: u8,
        /// 100 operator, 101 account; 255 all.
        request_type: u8,
        /// 1 buy, 2 sell.
        side: u8,
        /// Type of the orders.
        order_type: u8,
        /// Time in force of the orders.
        time_in_force: u8,
        /// Whether and how the message was delayed by its segments; 255 is not.
        split: u8,
        /// Market making obligation.
        liquidity_flag: u8,
        /// 1: the message may be a repetition.
        poss_retrans: u8,
        /// Until when the message was delayed.
        delay_to_ns: U64,
        /// For whom orders are cancelled.
        orig_user: Text<8>,
        /// Who cancelled for another.
        cancel_text: Text<8>,
    }
}
