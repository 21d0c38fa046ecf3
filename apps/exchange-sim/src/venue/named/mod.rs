//! Orders whose owners name them by a text (ClOrdID): those of FIX, BOE and iLink 3. A protocol's
//! adapter makes an [`OrderRequest`] or a [`ChangeRequest`] of a message, and a message of each
//! [`Answer`]; what happens between is here, once for all of them. The sessions, with their
//! numbers, are the caller's.

mod answer;
mod requests;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use market::Side;
use matching_engine::{CancelReason, OrderState, Report};
use order_entry::Text;
use order_entry::ouch::v50::{BrokenTrade, OrderExecuted};
use order_entry::ouch::{BrokenTradeReason, LiquidityFlag};

pub use answer::{Answer, AnswerKind, NamedOrder, OrderRefusal, OrderStatus, Refused};
pub use requests::{ChangeRequest, MassCancelRequest, OrderRequest, Target};

use super::account::Key;
use super::answers::emit;

/// Marks the engine's tokens of these orders. OUCH's have 40 bits.
const TOKEN_BIT: u64 = 1 << 63;

/// Which protocol an order came by. An account's orders of one are unknown to the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protocol {
    /// FIX, each version.
    Fix,
    /// Cboe BOE, version 2.
    Boe2,
    /// Cboe BOE, version 3.
    Boe3,
    /// CME iLink 3.
    Ilink3,
}

impl Protocol {
    pub(super) const ALL: [Self; 4] = [Self::Fix, Self::Boe2, Self::Boe3, Self::Ilink3];

    /// The drop copy, which speaks OUCH, names an order with this index and the order's number.
    const fn drop_copy_idx(self) -> u8 {
        255 - self as u8
    }

    /// The engine's token of the order at an index.
    const fn token(self, at: usize) -> u64 {
        TOKEN_BIT | (self.drop_copy_idx() as u64) << 32 | at as u32 as u64
    }

    /// Whose token it is; none where it is one of OUCH.
    pub(super) fn of(token: u64) -> Option<Self> {
        let idx = (token >> 32) as u8;
        Self::ALL.into_iter().find(|protocol| token & TOKEN_BIT != 0 && protocol.drop_copy_idx() == idx)
    }

    /// Whether an identifier that was used is refused. CME leaves that to its clients.
    const fn has_unique_ids(self) -> bool {
        !matches!(self, Self::Ilink3)
    }

    /// Whether a replacement beyond the rate cancels the order, as Cboe does.
    const fn cancels_beyond_rate(self) -> bool {
        matches!(self, Self::Boe2 | Self::Boe3)
    }
}

/// The request to cancel that is at work.
#[derive(Clone, Debug, Default)]
struct Canceling {
    cl_ord_id: Option<Vec<u8>>,
    request: Option<Arc<[u8]>>,
    is_rate: bool,
}

/// The orders that one account has entered by one protocol.
#[derive(Debug, Default)]
pub(super) struct NamedOrders {
    orders: Vec<NamedOrder>,
    /// Identifiers that were used, and the orders of those that name one.
    cl_ord_ids: BTreeMap<Vec<u8>, Option<usize>>,
    /// The newest order of a chain, by the reference of its first.
    order_ids: BTreeMap<u64, usize>,
    /// The numbers of the answers that told fills, by order and match.
    fills: BTreeMap<(usize, u64), u64>,
    canceling: Canceling,
    answers: Vec<Answer>,
}

impl NamedOrders {
    pub(super) fn answers(&self) -> &[Answer] {
        &self.answers
    }

    /// Tells a report, and gives the side of its order.
    pub(super) fn report(&mut self, at_ns: u64, report: &Report) -> Option<Side> {
        let at = report.token() as u32 as usize;
        let side = self.orders.get(at)?.side;
        match *report {
            Report::Accepted { order, .. } => {
                self.orders[at].order_id = order.reference.0;
                self.order_ids.insert(order.reference.0, at);
                self.follow(at, &order, OrderStatus::New);
                self.tell(at_ns, at, AnswerKind::Accepted);
            }
            Report::Rejected { reason, .. } => self.reject(at_ns, at, OrderRefusal::Engine(reason)),
            Report::Executed { order, qty, price, match_number, liquidity } => {
                self.orders[at].executed += qty;
                self.orders[at].paid += i64::from(qty) * price.0;
                self.follow(at, &order, OrderStatus::Filled);
                self.fills.insert((at, match_number), self.answers.len() as u64 + 1);
                self.tell(at_ns, at, AnswerKind::Executed { qty, price, match_number, liquidity });
            }
            Report::Canceled { order, reason, decrement, .. } => self.canceled(at_ns, at, &order, (reason, decrement)),
            Report::Replaced { old, new, .. } => self.replaced(at_ns, old.token as u32 as usize, at, &new),
            Report::PriorityUpdated { order, price, .. } => {
                self.follow(at, &order, OrderStatus::Filled);
                self.tell(at_ns, at, AnswerKind::Refreshed { price });
            }
            Report::Broken { match_number, qty, price, .. } => {
                let fill = self.fills.get(&(at, match_number)).copied();
                // What has taken the order's place since counts the fill, too, and is told.
                let newest = self.order_ids.get(&self.orders[at].order_id).copied().unwrap_or(at);
                let order = &mut self.orders[newest];
                order.executed = order.executed.saturating_sub(qty);
                order.paid -= i64::from(qty) * price.0;
                if order.executed == 0 && order.leaves > 0 {
                    order.status = OrderStatus::New;
                }
                self.tell(at_ns, newest, AnswerKind::Broken { qty, price, match_number, fill });
            }
            // A stop that woke is told by what it does then.
            _ => {}
        }
        Some(side)
    }

    /// Takes over what the engine says of an order; `end` is its state without leaves. What is
    /// executed is counted here: the engine counts trades that were broken, and no more than the
    /// shares of a replacement.
    fn follow(&mut self, at: usize, state: &OrderState, end: OrderStatus) {
        let order = &mut self.orders[at];
        order.id = Some(state.id);
        order.leaves = state.leaves;
        order.status = match (state.leaves, order.executed) {
            (0, _) => end,
            (_, 0) => OrderStatus::New,
            _ => OrderStatus::PartiallyFilled,
        };
    }

    fn canceled(&mut self, at_ns: u64, at: usize, order: &OrderState, (reason, decrement): (CancelReason, u32)) {
        let is_over = matches!(reason, CancelReason::Timeout);
        self.follow(at, order, if is_over { OrderStatus::Expired } else { OrderStatus::Canceled });
        if order.leaves > 0 {
            self.orders[at].qty = order.leaves + order.executed;
        }
        let Canceling { cl_ord_id, request, is_rate } = self.canceling.clone();
        self.tell(at_ns, at, AnswerKind::Canceled { reason, decrement, is_rate });
        if let Some(answer) = self.answers.last_mut() {
            answer.request = request;
            if let Some(cl_ord_id) = cl_ord_id {
                answer.orig_cl_ord_id = Some(std::mem::replace(&mut answer.cl_ord_id, cl_ord_id));
            }
        }
    }

    fn replaced(&mut self, at_ns: u64, old: usize, at: usize, state: &OrderState) {
        let Some(before) = self.orders.get_mut(old) else { return };
        (before.leaves, before.status) = (0, OrderStatus::Replaced);
        let (order_id, orig) = (before.order_id, before.cl_ord_id.clone());
        let (executed, paid) = (before.executed, before.paid);
        let order = &mut self.orders[at];
        (order.order_id, order.executed, order.paid) = (order_id, executed, paid);
        self.order_ids.insert(order_id, at);
        self.follow(at, state, OrderStatus::Filled);
        self.tell(at_ns, at, AnswerKind::Replaced);
        if let Some(answer) = self.answers.last_mut() {
            answer.orig_cl_ord_id = Some(orig);
        }
    }

    fn reject(&mut self, at_ns: u64, at: usize, reason: OrderRefusal) {
        self.orders[at].status = OrderStatus::Rejected;
        self.tell(at_ns, at, AnswerKind::Rejected(reason));
    }

    /// Adds an answer about an order as it is now.
    fn tell(&mut self, at_ns: u64, at: usize, kind: AnswerKind) {
        let order = self.orders[at].clone();
        let cl_ord_id = order.cl_ord_id.clone();
        self.push(Answer {
            at_ns,
            number: 0,
            kind,
            cl_ord_id,
            orig_cl_ord_id: None,
            order: Some(order),
            request: None,
        });
    }

    fn push(&mut self, answer: Answer) {
        let number = self.answers.len() as u64 + 1;
        self.answers.push(Answer { number, ..answer });
    }

    /// The order that a request names, live or not.
    fn of_target(&self, target: Target<'_>) -> Option<usize> {
        match target {
            Target::ClOrdId(cl_ord_id) => self.cl_ord_ids.get(cl_ord_id).copied().flatten(),
            Target::OrderId(order_id) => self.order_ids.get(&order_id).copied(),
        }
    }

    /// The order that a request names, as it is now.
    pub(super) fn get(&self, target: Target<'_>) -> Option<&NamedOrder> {
        self.of_target(target).map(|at| &self.orders[at])
    }

    fn add(&mut self, request: &OrderRequest<'_>) -> usize {
        let at = self.orders.len();
        self.orders.push(NamedOrder {
            cl_ord_id: request.cl_ord_id.to_vec(),
            id: None,
            terms: request.terms.ok(),
            order_id: 0,
            symbol: request.symbol,
            side: request.side,
            price: request.price,
            qty: request.qty,
            executed: 0,
            leaves: 0,
            paid: 0,
            status: OrderStatus::New,
            request: request.echo.into(),
        });
        at
    }
}

/// The copy of a trade, or of one that was broken.
pub(super) fn drop_copy(at_ns: u64, protocol: Protocol, report: &Report) -> Option<Vec<u8>> {
    let idx = protocol.drop_copy_idx();
    let user_ref = Key { idx, number: report.token() as u32 }.number.into();
    match *report {
        Report::Executed { qty, price, match_number, liquidity, .. } => {
            let copy = OrderExecuted {
                at_ns: at_ns.into(),
                user_ref,
                quantity: qty.into(),
                price: price.0.unsigned_abs().into(),
                liquidity: LiquidityFlag(liquidity.letter()),
                match_number: match_number.into(),
            };
            Some(emit((&copy).into(), idx))
        }
        Report::Broken { match_number, .. } => {
            let (match_number, reason) = (match_number.into(), BrokenTradeReason::ERRONEOUS);
            let copy = BrokenTrade { at_ns: at_ns.into(), user_ref, match_number, reason, cl_ord_id: Text::BLANK };
            Some(emit((&copy).into(), idx))
        }
        _ => None,
    }
}
