//! The orders at one price: those that are displayed, in the order of their time, and those that
//! are hidden.

use crate::arena::{Arena, NONE, Place, Slot};

/// What a price level of the engine holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Queue {
    /// Displayed shares.
    pub(crate) shown: u64,
    shown_ends: [Slot; 2],
    hidden_ends: [Slot; 2],
}

impl Default for Queue {
    fn default() -> Self {
        Self { shown: 0, shown_ends: [NONE; 2], hidden_ends: [NONE; 2] }
    }
}

impl Queue {
    /// The first displayed order, or [`NONE`].
    #[inline]
    pub(crate) const fn shown_head(&self) -> Slot {
        self.shown_ends[0]
    }

    /// The first hidden order, or [`NONE`].
    #[inline]
    pub(crate) const fn hidden_head(&self) -> Slot {
        self.hidden_ends[0]
    }

    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.shown_ends[0] == NONE && self.hidden_ends[0] == NONE
    }

    fn ends(&mut self, is_shown: bool) -> &mut [Slot; 2] {
        if is_shown { &mut self.shown_ends } else { &mut self.hidden_ends }
    }

    /// Appends an order: to the displayed ones where it shows shares.
    #[inline]
    pub(crate) fn push(&mut self, orders: &mut Arena, slot: Slot) {
        let shown = orders.get(slot).shown;
        self.shown += u64::from(shown);
        let ends = self.ends(shown > 0);
        let tail = ends[1];
        ends[1] = slot;
        match tail {
            NONE => ends[0] = slot,
            tail => orders.get_mut(tail).next = slot,
        }
        let order = orders.get_mut(slot);
        (order.prev, order.next) = (tail, NONE);
    }

    /// Takes an order out. Its shares are no longer counted when it leaves: the caller has
    /// subtracted them.
    #[inline]
    pub(crate) fn unlink(&mut self, orders: &mut Arena, slot: Slot) {
        let order = orders.get(slot);
        let (prev, next) = (order.prev, order.next);
        let ends = self.ends(order.place == Place::Shown);
        match prev {
            NONE => ends[0] = next,
            prev => orders.get_mut(prev).next = next,
        }
        match next {
            NONE => ends[1] = prev,
            next => orders.get_mut(next).prev = prev,
        }
    }
}
