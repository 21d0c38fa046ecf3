//! The venue's answers as messages of iLink 3. The session writes their numbers.

use market::{Price, Side};
use matching_engine::{CancelReason, Liquidity, RejectReason};
use order_entry::Text;
use order_entry::ilink3::{
    CancelRejected, MassActionReport, NO_PRICE, OrderAccepted, OrderCancelled, OrderEliminated, OrderFilled,
    OrderRejected, OrderReplaced, OrderStatus, ReplaceRejected, TradeAddendum,
};
use zerocopy::little_endian::{I64, U64};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::super::named::{Answer, AnswerKind, NamedOrder, OrderRefusal, OrderStatus as Status, Refused};
use super::{Echo, NONE, UNIT};

/// An empty group, two times or one: bytes of an entry, and how many.
const TWO_GROUPS: [u8; 6] = [0; 6];
const ORDERS_GROUP: [u8; 3] = [32, 0, 0];
/// Of orders that were canceled because their connection is gone, or traded with their own group.
const DISCONNECT: u8 = 100;
const SELF_MATCH: u8 = 103;

/// A message without its number.
pub(crate) struct Written {
    pub(crate) template: u16,
    pub(crate) block: Vec<u8>,
    pub(crate) tail: &'static [u8],
}

/// What the messages about an answer have in common.
struct Common {
    exec_id: Text<40>,
    cl_ord_id: Text<20>,
    at_ns: U64,
    echo: Echo,
    poss_retrans: u8,
}

/// Writes an answer, again where `is_again`; none where the protocol has no words for it.
pub(crate) fn write_answer(answer: &Answer, epoch_ns: u64, is_again: bool) -> Option<Written> {
    let order = answer.order.as_ref();
    let request = answer.request.as_deref().or(order.map(|order| &*order.request)).unwrap_or_default();
    let common = Common {
        exec_id: padded(answer.number.to_string().as_bytes()),
        cl_ord_id: padded(&answer.cl_ord_id),
        at_ns: (epoch_ns + answer.at_ns).into(),
        echo: Echo::read_from_bytes(request).unwrap_or(Echo::new_zeroed()),
        poss_retrans: is_again.into(),
    };
    match (answer.kind, order) {
        (AnswerKind::Accepted, Some(order)) => Some(accepted(&common, order)),
        (AnswerKind::Replaced, Some(order)) => Some(replaced(&common, order)),
        (AnswerKind::Executed { qty, price, liquidity, match_number }, Some(order)) => {
            Some(executed(&common, order, (qty, price, match_number), liquidity))
        }
        (AnswerKind::Canceled { reason, .. }, Some(order)) if order.leaves == 0 => Some(match reason {
            CancelReason::Immediate | CancelReason::Timeout => eliminated(&common, order),
            _ => canceled(&common, order, reason),
        }),
        (AnswerKind::Broken { qty, price, fill, .. }, Some(order)) => {
            Some(broken(&common, order, (qty, price, fill.unwrap_or(0))))
        }
        (AnswerKind::Status, Some(order)) => Some(status(&common, order)),
        (AnswerKind::Rejected(why), Some(order)) => Some(rejected(&common, order, why)),
        (AnswerKind::Refused(Refused::MassCancel, _), _) => Some(mass_canceled(&common, answer.number, None)),
        (AnswerKind::MassCanceled { count }, _) => Some(mass_canceled(&common, answer.number, Some(count))),
        (AnswerKind::Refused(what, why), order) => Some(refused(&common, order, what, why)),
        // No order here has a reserve, or loses a part to its own group.
        _ => None,
    }
}

macro_rules! written {
    ($common:ident, $tail:expr, $name:ident { $($fields:tt)* }) => {{
        let Common { at_ns, echo, .. } = *$common;
        let block = $name {
            sender: echo.sender,
            party_details: echo.party_details,
            location: echo.location,
            transact_ns: at_ns,
            sending_ns: at_ns,
            poss_retrans: $common.poss_retrans,
            $($fields)*
            ..$name::new_zeroed()
        };
        Written { template: $name::KIND, block: block.as_bytes().to_vec(), tail: $tail }
    }};
}

fn accepted(common: &Common, order: &NamedOrder) -> Written {
    written!(
        common,
        &[],
        OrderAccepted {
            exec_id: common.exec_id,
            cl_ord_id: common.cl_ord_id,
            order_id: order.order_id.into(),
            price: nine_decimals(order.price),
            stop_price: common.echo.stop_price,
            order_request: common.echo.order_request,
            security_id: common.echo.security_id,
            quantity: order.qty.into(),
            min_quantity: common.echo.min_quantity,
            display_quantity: common.echo.display_quantity,
            expire_date: u16::MAX.into(),
            order_type: common.echo.order_type,
            side: side(order.side),
            time_in_force: common.echo.time_in_force,
            split: NONE,
        }
    )
}

fn replaced(common: &Common, order: &NamedOrder) -> Written {
    written!(
        common,
        &[],
        OrderReplaced {
            exec_id: common.exec_id,
            cl_ord_id: common.cl_ord_id,
            order_id: order.order_id.into(),
            price: nine_decimals(order.price),
            stop_price: common.echo.stop_price,
            order_request: common.echo.order_request,
            security_id: common.echo.security_id,
            quantity: order.qty.into(),
            cumulative: order.executed.into(),
            leaves: order.leaves.into(),
            min_quantity: common.echo.min_quantity,
            display_quantity: common.echo.display_quantity,
            expire_date: u16::MAX.into(),
            order_type: common.echo.order_type,
            side: side(order.side),
            time_in_force: common.echo.time_in_force,
            split: NONE,
        }
    )
}

/// A fill: shares, price, and the number of the match.
fn executed(
    common: &Common,
    order: &NamedOrder,
    (qty, price, match_number): (u32, Price, u64),
    liquidity: Liquidity,
) -> Written {
    written!(
        common,
        &TWO_GROUPS,
        OrderFilled {
            exec_id: common.exec_id,
            cl_ord_id: common.cl_ord_id,
            last_price: nine_decimals(Some(price)),
            order_id: order.order_id.into(),
            price: nine_decimals(order.price),
            stop_price: common.echo.stop_price,
            order_request: common.echo.order_request,
            sec_exec_id: match_number.into(),
            security_id: common.echo.security_id,
            quantity: order.qty.into(),
            last_quantity: qty.into(),
            cumulative: order.executed.into(),
            md_trade: (match_number as u32).into(),
            side_trade: (match_number as u32).into(),
            leaves: order.leaves.into(),
            expire_date: u16::MAX.into(),
            order_status: if order.leaves == 0 { b'2' } else { b'1' },
            order_type: common.echo.order_type,
            side: side(order.side),
            time_in_force: common.echo.time_in_force,
            aggressor: u8::from(matches!(liquidity, Liquidity::Removed)),
        }
    )
}

fn canceled(common: &Common, order: &NamedOrder, reason: CancelReason) -> Written {
    written!(
        common,
        &[],
        OrderCancelled {
            exec_id: common.exec_id,
            cl_ord_id: common.cl_ord_id,
            order_id: order.order_id.into(),
            price: nine_decimals(order.price),
            stop_price: common.echo.stop_price,
            order_request: common.echo.order_request,
            security_id: common.echo.security_id,
            quantity: order.qty.into(),
            cumulative: order.executed.into(),
            min_quantity: common.echo.min_quantity,
            display_quantity: common.echo.display_quantity,
            expire_date: u16::MAX.into(),
            order_type: common.echo.order_type,
            side: side(order.side),
            time_in_force: common.echo.time_in_force,
            split: NONE,
            restate_reason: match reason {
                CancelReason::Supervisory => DISCONNECT,
                CancelReason::SelfMatch => SELF_MATCH,
                _ => NONE,
            },
        }
    )
}

fn eliminated(common: &Common, order: &NamedOrder) -> Written {
    written!(
        common,
        &[],
        OrderEliminated {
            exec_id: common.exec_id,
            cl_ord_id: common.cl_ord_id,
            order_id: order.order_id.into(),
            price: nine_decimals(order.price),
            stop_price: common.echo.stop_price,
            order_request: common.echo.order_request,
            security_id: common.echo.security_id,
            quantity: order.qty.into(),
            cumulative: order.executed.into(),
            min_quantity: common.echo.min_quantity,
            display_quantity: common.echo.display_quantity,
            expire_date: u16::MAX.into(),
            order_type: common.echo.order_type,
            side: side(order.side),
            time_in_force: common.echo.time_in_force,
        }
    )
}

/// A bust: shares and price of the fill, and the number of its report.
fn broken(common: &Common, order: &NamedOrder, (qty, price, fill): (u32, Price, u64)) -> Written {
    written!(
        common,
        &TWO_GROUPS,
        TradeAddendum {
            exec_id: common.exec_id,
            cl_ord_id: common.cl_ord_id,
            last_price: nine_decimals(Some(price)),
            order_id: order.order_id.into(),
            security_id: common.echo.security_id,
            last_quantity: qty.into(),
            order_status: b'H',
            exec_type: b'H',
            side: side(order.side),
            exec_ref_id: padded(fill.to_string().as_bytes()),
        }
    )
}

fn status(common: &Common, order: &NamedOrder) -> Written {
    written!(
        common,
        &[],
        OrderStatus {
            exec_id: common.exec_id,
            cl_ord_id: common.cl_ord_id,
            order_id: order.order_id.into(),
            price: nine_decimals(order.price),
            stop_price: common.echo.stop_price,
            order_request: common.echo.order_request,
            security_id: common.echo.security_id,
            quantity: order.qty.into(),
            cumulative: order.executed.into(),
            leaves: order.leaves.into(),
            order_status: match order.status {
                Status::New => b'0',
                Status::PartiallyFilled => b'1',
                Status::Filled => b'2',
                Status::Canceled => b'4',
                Status::Expired => b'C',
                Status::Replaced => b'5',
                // It has no number of the venue's, so nobody asked for this one.
                Status::Rejected => b'U',
            },
            order_type: common.echo.order_type,
            side: side(order.side),
            time_in_force: common.echo.time_in_force,
            last_report: NONE,
        }
    )
}

fn rejected(common: &Common, order: &NamedOrder, why: OrderRefusal) -> Written {
    written!(
        common,
        &[],
        OrderRejected {
            text: padded(why.text().as_bytes()),
            exec_id: common.exec_id,
            cl_ord_id: common.cl_ord_id,
            price: nine_decimals(order.price),
            stop_price: common.echo.stop_price,
            order_request: common.echo.order_request,
            security_id: common.echo.security_id,
            quantity: order.qty.into(),
            reject_reason: reason_code(why).into(),
            order_type: common.echo.order_type,
            side: side(order.side),
            time_in_force: common.echo.time_in_force,
            split: NONE,
        }
    )
}

/// A cancel or a replace that was refused; `order` where there is one.
fn refused(common: &Common, order: Option<&NamedOrder>, what: Refused, why: OrderRefusal) -> Written {
    let order_id: U64 = order.map_or(0, |order| order.order_id).into();
    if what == Refused::Replace {
        return written!(
            common,
            &[],
            ReplaceRejected {
                text: padded(why.text().as_bytes()),
                exec_id: common.exec_id,
                cl_ord_id: common.cl_ord_id,
                order_id,
                order_request: common.echo.order_request,
                reject_reason: reason_code(why).into(),
                split: NONE,
            }
        );
    }
    written!(
        common,
        &[],
        CancelRejected {
            text: padded(why.text().as_bytes()),
            exec_id: common.exec_id,
            cl_ord_id: common.cl_ord_id,
            order_id,
            order_request: common.echo.order_request,
            reject_reason: reason_code(why).into(),
            split: NONE,
        }
    )
}

/// How many orders were canceled; none where the cancel was refused.
fn mass_canceled(common: &Common, number: u64, count: Option<u32>) -> Written {
    written!(
        common,
        &ORDERS_GROUP,
        MassActionReport {
            order_request: common.echo.order_request,
            report_id: number.into(),
            security_id: common.echo.security_id,
            response: u8::from(count.is_some()),
            scope: common.echo.scope,
            affected: count.unwrap_or(0).into(),
            last_fragment: 1,
            reject_reason: if count.is_some() { NONE } else { 99 },
            segment: NONE,
            request_type: NONE,
            side: NONE,
            split: NONE,
        }
    )
}

/// Our own numbers of the reasons, by those of FIX where it has one (OrdRejReason, CxlRejReason).
const fn reason_code(why: OrderRefusal) -> u16 {
    match why {
        OrderRefusal::TooLate => 0,
        OrderRefusal::Unknown | OrderRefusal::Engine(RejectReason::Symbol) => 1,
        OrderRefusal::Engine(RejectReason::Halted | RejectReason::Closed) => 2,
        OrderRefusal::Duplicate => 6,
        OrderRefusal::Terms(_) => 11,
        OrderRefusal::Engine(RejectReason::Quantity) => 13,
        _ => 99,
    }
}

fn nine_decimals(price: Option<Price>) -> I64 {
    price.and_then(|price| price.0.checked_mul(UNIT)).unwrap_or(NO_PRICE).into()
}

const fn side(side: Side) -> u8 {
    match side {
        Side::Buy => 1,
        Side::Sell => 2,
    }
}

/// A text as the wire has it.
fn padded<const LEN: usize>(bytes: &[u8]) -> Text<LEN> {
    let mut padded = [0; LEN];
    let len = bytes.len().min(LEN);
    padded[..len].copy_from_slice(&bytes[..len]);
    Text(padded)
}
