//! All orders in one block of memory. A place is used again as soon as its order has ended, the
//! last one first, because it is still in the cache.

use market::{Side, prefetch};

use crate::book::lane;
use crate::order::{OnHalt, OrderId, SelfTradeRule, Terms};

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

/// An order, in one cache line.
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
    /// A displayed limit order for the day: [`Arena::terms`] has nothing of it, and its limit is
    /// its level's price.
    pub(crate) is_plain: bool,
    /// Its price follows others: here too, so that the end of an order need not read its terms.
    pub(crate) is_pegged: bool,
}

const _: () = assert!(size_of::<Order>() == 64);

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
}

/// The arena.
#[derive(Debug)]
pub(crate) struct Arena {
    slots: Vec<Order>,
    /// The terms of each slot's order, unless it is a plain one.
    terms: Vec<Terms>,
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
        let (slots, terms) = (Vec::with_capacity(capacity), Vec::with_capacity(capacity));
        Self { slots, terms, owners: Vec::with_capacity(capacity), capacity, free: NONE, len: 0 }
    }

    #[inline]
    pub(crate) fn get(&self, slot: Slot) -> &Order {
        &self.slots[slot as usize]
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, slot: Slot) -> &mut Order {
        &mut self.slots[slot as usize]
    }

    /// Fetches an order into the cache. Nothing where there is none.
    #[inline]
    pub(crate) fn prefetch(&self, slot: Slot) {
        if let Some(order) = self.slots.get(slot as usize) {
            prefetch(order);
        }
    }

    /// The terms of an order that is not plain.
    #[inline]
    pub(crate) fn terms(&self, slot: Slot) -> &Terms {
        debug_assert!(!self.get(slot).is_plain, "the terms of a plain order are not kept");
        &self.terms[slot as usize]
    }

    /// The order needs so many shares of each contra order while it rests.
    #[inline]
    pub(crate) fn min_qty(&self, slot: Slot) -> u32 {
        let order = self.get(slot);
        if order.is_plain { 0 } else { self.terms(slot).min_qty.min(order.leaves) }
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    pub(crate) const fn is_full(&self) -> bool {
        self.len == self.capacity
    }

    /// Stores an order where there is room.
    #[inline(always)]
    pub(crate) fn insert(&mut self, order: Order, terms: &Terms) -> Option<Slot> {
        if self.free == NONE {
            return self.insert_first(order, terms);
        }
        let slot = self.free;
        let place = &mut self.slots[slot as usize];
        self.free = place.next;
        let generation = place.generation;
        *place = Order { generation, ..order };
        self.owners[slot as usize] = order.owner;
        if !order.is_plain {
            self.terms[slot as usize] = *terms;
        }
        self.len += 1;
        Some(slot)
    }

    /// Stores an order in a place that none had before.
    #[cold]
    fn insert_first(&mut self, order: Order, terms: &Terms) -> Option<Slot> {
        if self.slots.len() == self.capacity {
            return None;
        }
        self.slots.push(Order { generation: 0, ..order });
        self.terms.push(*terms);
        self.owners.push(order.owner);
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
