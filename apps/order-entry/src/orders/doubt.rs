//! Orders of which nothing is known for sure: an answer is overdue, the session restarted, or what
//! the venue said is lost.

use super::order::Order;
use super::table::OrderTable;
use crate::risk::InstrumentIdx;

/// An order whose status the venue should be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query {
    /// The order's slot.
    pub slot: usize,
    /// The client id that the venue knows it by, as far as we know.
    pub id: u64,
}

/// Orders that one [`OrderTable::poll_unanswered`] looks at: the bound on its work.
const LOOKS: usize = 8;

impl OrderTable {
    /// An order whose answer is overdue by `timeout_ns`: the venue should be asked for its status.
    /// The order is in doubt from now on, and nothing else changes. Each call looks at 8 slots, so
    /// call it in each turn, or in a timer until it has gone round.
    pub fn poll_unanswered(&mut self, now_ns: u64, timeout_ns: u64) -> Option<Query> {
        for _ in 0..LOOKS.min(self.used) {
            let slot = self.look;
            self.look = if slot + 1 < self.used { slot + 1 } else { 0 };
            let order = &mut self.orders[slot];
            let since_ns = match order.is_unconfirmed && self.rules.has_status {
                true => Some(0),
                false => order.unanswered_since_ns(),
            };
            let Some(since_ns) = since_ns.filter(|_| order.is_live()) else { continue };
            if now_ns.saturating_sub(since_ns.max(order.queried_ns)) >= timeout_ns {
                order.is_in_doubt = true;
                order.queried_ns = now_ns;
                return Some(Query { slot, id: order.accepted });
            }
        }
        None
    }

    /// The session restarted: every live order is in doubt until the venue has told its status.
    pub fn restart(&mut self) {
        for order in self.orders[..self.used].iter_mut().filter(|order| order.is_live()) {
            order.is_in_doubt = true;
            order.queried_ns = 0;
        }
    }

    /// What the venue said may be lost: each live order is in doubt until the venue has told its
    /// status, or a person has compared ([`OrderTable::unblock`]).
    pub fn gap(&mut self) {
        for order in self.orders[..self.used].iter_mut().filter(|order| order.is_live()) {
            (order.is_in_doubt, order.is_unconfirmed, order.queried_ns) = (true, true, 0);
        }
    }

    /// The venue has processed what was sent of the order in `slot`.
    pub(crate) fn settled(&mut self, slot: usize) {
        self.orders[slot].is_settled = true;
    }

    /// Orders of `instrument` are refused until a person has compared: no sum of it is right.
    pub(crate) fn block(&mut self, instrument: InstrumentIdx) {
        self.blocked.set(instrument, true);
    }

    /// A person has compared the instrument's orders with the venue's: orders may be sent again.
    pub fn unblock(&mut self, instrument: InstrumentIdx) {
        self.blocked.set(instrument, false);
        let is_of = |order: &&mut Order| order.instrument == instrument && order.is_unconfirmed;
        for order in self.orders[..self.used].iter_mut().filter(is_of) {
            order.is_unconfirmed = false;
            order.is_in_doubt = order.unanswered_since_ns().is_some();
        }
    }

    /// Whether orders of `instrument` are refused because the venue's numbers were not ours.
    pub fn is_blocked(&self, instrument: InstrumentIdx) -> bool {
        self.blocked.is_set(instrument)
    }
}
