//! All orders in one block of memory. A place is used again as soon as its order has ended, the
//! last one first, because it is still in the cache.

use market::Side;

use crate::book::lane;
use crate::order::{Display, Life, OnHalt, OrderId, PostOnly, Pricing, SelfTradeRule, Terms};

/// No order.
pub(crate) const NONE: u32 = u32::MAX;

/// An order's place in the arena.
pub(crate) type Slot = u32;

/// Where a live order is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Nowhere: the slot is free.
    Free,
    /// It is arriving, or it is pegged and has no price.
    Loose,
    /// At a level of its side, displayed.
    Shown,
    /// At a level of this ladder of its book, not displayed.
    Hidden(u8),
}

/// An order. The first cache line is all that a trade at the order's price touches.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(crate) struct Order {
    pub(crate) reference: u64,
    pub(crate) token: u64,
    pub(crate) owner: u32,
    pub(crate) leaves: u32,
    pub(crate) executed: u32,
    /// Displayed shares; 0 for a hidden order.
    pub(crate) shown: u32,
    pub(crate) level: u32,
    pub(crate) prev: Slot,
    /// Of a free slot the next free one.
    pub(crate) next: Slot,
    /// Group for self-trade prevention, or 0.
    pub(crate) group: u32,
    /// Set by the arena.
    pub(crate) generation: u32,
    pub(crate) symbol: u16,
    pub(crate) place: Place,
    pub(crate) side: Side,
    pub(crate) rule: SelfTradeRule,
    pub(crate) on_halt: OnHalt,
    /// Its price follows others: here too, so that the end of an order need not read the rest.
    pub(crate) is_pegged: bool,
    /// Only while it arrives, is hidden, or is refilled.
    pub(crate) terms: Kept,
}

/// What is kept of an order's terms: its quantity is counted apart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept {
    pub(crate) pricing: Pricing,
    pub(crate) life: Life,
    pub(crate) display: Display,
    pub(crate) min_qty: u32,
    pub(crate) post_only: PostOnly,
}

const _: () = assert!(size_of::<Order>() == 128 && core::mem::offset_of!(Order, terms) <= 64);

impl Order {
    /// The ladder that it is in.
    #[inline]
    pub(crate) const fn lane(&self) -> Option<u8> {
        match self.place {
            Place::Free | Place::Loose => None,
            Place::Shown => Some(lane::resting(self.side)),
            Place::Hidden(lane) => Some(lane),
        }
    }

    /// It needs so many shares of each contra order while it rests.
    pub(crate) fn min_qty(&self) -> u32 {
        self.terms.min_qty.min(self.leaves)
    }
}

/// The arena.
#[derive(Debug)]
pub(crate) struct Arena {
    slots: Vec<Order>,
    /// The owner of each slot's order, or of the last that was there: sixteen in a cache line, so
    /// that a search for all orders of an owner reads little. A list for each owner would cost
    /// every order that ends the cache misses of two neighbors.
    owners: Vec<u32>,
    capacity: usize,
    free: Slot,
    len: usize,
}

impl Arena {
    pub(crate) fn new(capacity: usize) -> Self {
        let (slots, owners) = (Vec::with_capacity(capacity), Vec::with_capacity(capacity));
        Self { slots, owners, capacity, free: NONE, len: 0 }
    }

    #[inline]
    pub(crate) fn get(&self, slot: Slot) -> &Order {
        &self.slots[slot as usize]
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, slot: Slot) -> &mut Order {
        &mut self.slots[slot as usize]
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    pub(crate) const fn is_full(&self) -> bool {
        self.len == self.capacity
    }

    /// Stores an order where there is room.
    #[inline]
    pub(crate) fn insert(&mut self, order: Order) -> Option<Slot> {
        if self.free != NONE {
            let slot = self.free;
            let place = &mut self.slots[slot as usize];
            self.free = place.next;
            let generation = place.generation;
            self.owners[slot as usize] = order.owner;
            *place = Order { generation, ..order };
            self.len += 1;
            return Some(slot);
        }
        if self.slots.len() == self.capacity {
            return None;
        }
        self.owners.push(order.owner);
        self.slots.push(Order { generation: 0, ..order });
        self.len += 1;
        Some((self.slots.len() - 1) as Slot)
    }

    /// Frees the place of an order; its id finds nothing from now on.
    #[inline]
    pub(crate) fn remove(&mut self, slot: Slot) {
        let free = self.free;
        let order = self.get_mut(slot);
        order.place = Place::Free;
        order.generation = order.generation.wrapping_add(1);
        order.next = free;
        self.free = slot;
        self.len -= 1;
    }

    /// The first live order of an owner at `from` or behind, or [`NONE`]. Costs four bytes for each
    /// slot that it passes.
    pub(crate) fn next_of(&self, owner: u32, from: Slot) -> Slot {
        let rest = self.owners.get(from as usize..).unwrap_or_default();
        let mut own = (from..).zip(rest).filter(|&(_, of)| *of == owner).map(|(slot, _)| slot);
        own.find(|&slot| self.get(slot).place != Place::Free).unwrap_or(NONE)
    }

    #[inline]
    pub(crate) fn id(&self, slot: Slot) -> OrderId {
        OrderId(u64::from(self.get(slot).generation) << 32 | u64::from(slot))
    }

    /// The place of a live order.
    #[inline]
    pub(crate) fn find(&self, id: OrderId) -> Option<Slot> {
        let slot = id.0 as u32;
        let order = self.slots.get(slot as usize)?;
        (order.place != Place::Free && order.generation == (id.0 >> 32) as u32).then_some(slot)
    }
}

/// An order as it is before it is filled in: of no generation, in no queue.
pub(crate) const fn loose(terms: Terms) -> Order {
    let Terms { pricing, life, display, min_qty, post_only, .. } = terms;
    Order {
        reference: 0,
        token: 0,
        owner: 0,
        leaves: 0,
        executed: 0,
        shown: 0,
        level: NONE,
        prev: NONE,
        next: NONE,
        group: 0,
        generation: 0,
        symbol: 0,
        place: Place::Loose,
        side: Side::Buy,
        rule: SelfTradeRule::CancelNewest,
        on_halt: OnHalt::Keep,
        is_pegged: matches!(pricing, Pricing::Peg(_)),
        terms: Kept { pricing, life, display, min_qty, post_only },
    }
}
