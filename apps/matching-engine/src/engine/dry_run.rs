//! What an order would do, without doing it.

use market::levels::NONE;
use market::{Price, Side};

use super::Engine;
use crate::arena::Slot;
use crate::book::{lane, opposite, reaches};
use crate::order::SelfTradeRule;

impl Engine {
    /// Shares that a loose order would trade up to `limit`, counted until `need` are found. Walks
    /// over the orders that it would meet, twice where it is of a group.
    pub(super) fn available(&self, taker: Slot, limit: Price, need: u32) -> u32 {
        let order = self.orders.get(taker);
        let mut walk = Walk { leaves: order.leaves, need, found: 0, group: order.group, rule: order.rule };
        let mut at = self.book(order.symbol).ladders[usize::from(lane::resting(opposite(order.side)))].best();
        while at != NONE && reaches(order.side, limit, self.levels.get(at).price()) {
            let level = self.levels.get(at);
            for head in [level.shown_head(), level.hidden_head()] {
                if !self.walk_queue(head, &mut walk) {
                    return walk.found;
                }
            }
            at = level.worse();
        }
        walk.found
    }

    /// False where the walk is over. A reserve shows its next part last in the queue: behind an
    /// order that ends the walk nothing of it is met.
    fn walk_queue(&self, head: Slot, walk: &mut Walk) -> bool {
        let ends_at_own = walk.group != 0 && walk.rule != SelfTradeRule::CancelOldest && self.has_own(head, walk.group);
        let mut at = head;
        while at != NONE {
            let order = self.orders.get(at);
            let too_many = order.shown == 0 && self.orders.min_qty(at) > walk.leaves;
            at = order.next;
            if too_many {
                continue;
            }
            if walk.group != 0 && walk.group == order.group {
                match walk.rule {
                    SelfTradeRule::CancelOldest => continue,
                    SelfTradeRule::CancelNewest | SelfTradeRule::CancelBoth | SelfTradeRule::Decrement => return false,
                }
            }
            let met = if ends_at_own && order.shown > 0 { order.shown } else { order.leaves };
            let qty = met.min(walk.leaves);
            walk.leaves -= qty;
            walk.found += qty;
            if walk.found >= walk.need {
                return false;
            }
        }
        true
    }

    /// Whether an order of the queue is of the group.
    fn has_own(&self, head: Slot, group: u32) -> bool {
        let mut at = head;
        while at != NONE {
            let order = self.orders.get(at);
            if order.group == group {
                return true;
            }
            at = order.next;
        }
        false
    }

    /// The price of the first trade that an order of `qty` shares would make up to `limit`.
    pub(super) fn would_trade_at(&self, symbol: u16, side: Side, limit: Price, qty: u32) -> Option<Price> {
        let mut at = self.book(symbol).ladders[usize::from(lane::resting(opposite(side)))].best();
        while at != NONE && reaches(side, limit, self.levels.get(at).price()) {
            let level = self.levels.get(at);
            if level.shown_head() != NONE {
                return Some(level.price());
            }
            let mut hidden = level.hidden_head();
            while hidden != NONE {
                if self.orders.min_qty(hidden) <= qty {
                    return Some(level.price());
                }
                hidden = self.orders.get(hidden).next;
            }
            at = level.worse();
        }
        None
    }
}

/// How far a dry run is.
struct Walk {
    leaves: u32,
    need: u32,
    found: u32,
    group: u32,
    rule: SelfTradeRule,
}
