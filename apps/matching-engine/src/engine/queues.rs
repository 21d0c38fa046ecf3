//! An order in its queue: into it, out of it, smaller, and from its reserve again.

use market::levels::NONE;
use market::{Price, Side};

use super::{Cx, Engine};
use crate::arena::{Place, Slot};
use crate::book::{lane, opposite};
use crate::event::{Body, Canceled, Displayed, Removed, Sink};
use crate::order::Display;
use crate::queue::Queue;
use crate::reason::CancelReason;

impl Engine {
    /// Appends a loose order to the queue at `price` of a ladder: to the displayed ones if it has
    /// `shown` shares. `false` where there is no level left.
    #[inline(always)]
    pub(super) fn enqueue(&mut self, slot: Slot, lane: u8, price: Price) -> bool {
        let order = self.orders.get(slot);
        // The stop that wakes first is the best: for buys the lowest trigger.
        let side = if lane == lane::stop(order.side) { opposite(order.side) } else { order.side };
        let symbol = order.symbol;
        let Some(level) = self.level_at(symbol, lane, side, price) else { return false };
        self.levels.get_mut(level).push(&mut self.orders, slot);
        let order = self.orders.get_mut(slot);
        order.level = level;
        order.place = if order.shown > 0 { Place::Shown } else { Place::Hidden(lane) };
        true
    }

    /// The level at `price` of a ladder, perhaps a new one; none where there is no room for it.
    #[inline]
    fn level_at(&mut self, symbol: u16, lane: u8, side: Side, price: Price) -> Option<u32> {
        let ladder = &mut self.books[usize::from(symbol)].ladders[usize::from(lane)];
        let found = self.levels.find(ladder, side, price);
        found.or_else(|| self.levels.insert(ladder, side, price, Queue::default()))
    }

    /// Takes an order out of its queue, if it is in one; the level stays, perhaps empty.
    #[inline(always)]
    pub(super) fn unlink(&mut self, slot: Slot) {
        let order = self.orders.get(slot);
        let (side, symbol, level) = (order.side, order.symbol, order.level);
        let Some(lane) = order.lane() else { return };
        if lane == lane::stop(side) {
            self.book_mut(symbol).stops -= 1;
        }
        self.levels.get_mut(level).unlink(&mut self.orders, slot);
        self.orders.get_mut(slot).place = Place::Loose;
    }

    /// Removes a level that has no order.
    #[inline(always)]
    pub(super) fn prune(&mut self, symbol: u16, lane: u8, level: u32) {
        if level != NONE && self.levels.get(level).is_empty() {
            let book = &mut self.books[usize::from(symbol)];
            self.levels.remove(&mut book.ladders[usize::from(lane)], level);
        }
    }

    /// Takes an order out of the book with all its shares: it is loose, and shows nothing. True
    /// where it was displayed.
    pub(super) fn detach(&mut self, slot: Slot) -> bool {
        let order = self.orders.get_mut(slot);
        let (lane, shown, symbol, level) = (order.lane(), order.shown, order.symbol, order.level);
        order.shown = 0;
        if let Some(lane) = lane {
            self.levels.get_mut(level).shown -= u64::from(shown);
            self.unlink(slot);
            self.prune(symbol, lane, level);
        }
        shown > 0
    }

    /// Rests an order at `price`, and tells where it is displayed; `is_quiet` where the event of a
    /// replacement has told.
    #[inline(always)]
    pub(super) fn rest<S: Sink>(
        &mut self,
        slot: Slot,
        display: Display,
        price: Price,
        is_quiet: bool,
        cx: &mut Cx<'_, S>,
    ) {
        let order = self.orders.get_mut(slot);
        order.shown = shown_of(display, order.leaves);
        let (symbol, side, shares) = (order.symbol, order.side, order.shown);
        if !self.enqueue(slot, lane::resting(side), price) {
            self.orders.get_mut(slot).shown = 0;
            self.withdraw(slot, u32::MAX, CancelReason::System, None, cx);
            return;
        }
        if shares > 0 && !is_quiet {
            let displayed = Displayed { order: self.state(slot), shares, price, is_new: true };
            cx.emit(symbol, Body::Displayed(displayed));
        }
    }

    /// Shows the next part of a reserve whose displayed part has traded: with a new reference, last
    /// at its price.
    pub(super) fn refill<S: Sink>(&mut self, slot: Slot, price: Price, cx: &mut Cx<'_, S>) {
        let reference = self.new_reference();
        let (level, display) = (self.orders.get(slot).level, self.orders.terms(slot).display);
        self.levels.get_mut(level).unlink(&mut self.orders, slot);
        let order = self.orders.get_mut(slot);
        order.reference = reference;
        order.shown = shown_of(display, order.leaves);
        let (symbol, shares) = (order.symbol, order.shown);
        self.levels.get_mut(level).push(&mut self.orders, slot);
        let displayed = Displayed { order: self.state(slot), shares, price, is_new: false };
        cx.emit(symbol, Body::Displayed(displayed));
    }

    /// Takes shares off an order, all at most, without a trade, and tells. The order ends with its
    /// last share. Its level stays, perhaps empty: the caller prunes it.
    #[inline(always)]
    pub(super) fn shrink<S: Sink>(
        &mut self,
        slot: Slot,
        decrement: u32,
        reason: CancelReason,
        prevented_at: Option<Price>,
        cx: &mut Cx<'_, S>,
    ) {
        let order = self.orders.get_mut(slot);
        let decrement = decrement.min(order.leaves);
        order.leaves -= decrement;
        // The reserve goes first.
        let hidden = order.shown.saturating_sub(order.leaves);
        order.shown -= hidden;
        let public = match (hidden, order.leaves) {
            (0, _) => Removed::Nothing,
            (_, 0) => Removed::All,
            (part, _) => Removed::Part(part),
        };
        let (symbol, leaves, level) = (order.symbol, order.leaves, order.level);
        if hidden > 0 {
            self.levels.get_mut(level).shown -= u64::from(hidden);
        }
        let canceled = Canceled { order: self.state(slot), decrement, reason, public, prevented_at };
        cx.emit(symbol, Body::Canceled(canceled));
        if leaves == 0 {
            self.end(slot);
        }
    }

    /// As [`Engine::shrink`], and removes the level with its last order.
    #[inline(never)]
    pub(super) fn withdraw<S: Sink>(
        &mut self,
        slot: Slot,
        decrement: u32,
        reason: CancelReason,
        prevented_at: Option<Price>,
        cx: &mut Cx<'_, S>,
    ) {
        let order = self.orders.get(slot);
        let (symbol, lane, level) = (order.symbol, order.lane(), order.level);
        self.shrink(slot, decrement, reason, prevented_at, cx);
        if let Some(lane) = lane {
            self.prune(symbol, lane, level);
        }
    }

    /// Forgets an order without shares. Its level stays, perhaps empty.
    #[inline(always)]
    pub(super) fn end(&mut self, slot: Slot) {
        let order = self.orders.get(slot);
        if order.is_pegged {
            self.forget_peg(slot);
        }
        self.unlink(slot);
        self.orders.remove(slot);
    }
}

/// Shares that an order with `leaves` shows.
pub(super) const fn shown_of(display: Display, leaves: u32) -> u32 {
    match display {
        Display::Full => leaves,
        Display::Hidden => 0,
        Display::Reserve(shares) if shares < leaves => shares,
        Display::Reserve(_) => leaves,
    }
}
