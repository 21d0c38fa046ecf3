//! Order reference to resting order: open addressing with linear probing, 16 bytes an entry, four
//! to a cache line.
//!
//! The table is at most half full. Exchanges number orders upwards: four that follow each other
//! have a cache line together, because the next one is often added while that line is in a cache,
//! and a multiplicative hash spreads the lines evenly. A search looks at one or two lines. A
//! removal moves the following entries back into the hole, so there are no tombstones, and a day of
//! deletes leaves the table as fast as it began.

use super::lazy_table::LazyTable;
use crate::units::OrderRef;

const FREE: u32 = u32::MAX;

/// A resting order. Its price and side are its level's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Order {
    pub(super) reference: OrderRef,
    pub(super) qty: u32,
    pub(super) level: u32,
}

const EMPTY: Order = Order { reference: OrderRef(0), qty: 0, level: FREE };

/// The table.
#[derive(Clone, Debug)]
pub(super) struct Orders {
    entries: LazyTable<Order>,
    shift: u32,
    len: usize,
    capacity: usize,
}

/// The index of an order, until the table is changed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Position(usize);

/// The free entry where an order goes that is not in the table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Vacant(usize);

impl Orders {
    /// Room for `capacity` orders: 32 to 64 bytes each.
    pub(super) fn new(capacity: usize) -> Self {
        let entries = (capacity * 2).next_power_of_two().max(8);
        Self { entries: LazyTable::new(entries, EMPTY), shift: 66 - entries.trailing_zeros(), len: 0, capacity }
    }

    /// Bytes that [`Orders::new`] allocates.
    pub(super) const fn memory(capacity: u128) -> u128 {
        LazyTable::<Order>::memory((capacity * 2).next_power_of_two())
    }

    #[inline]
    pub(super) fn find(&self, reference: OrderRef) -> Option<Position> {
        self.place(reference).ok()
    }

    /// Fetches the entry where an order is, or will be, into the cache.
    #[inline]
    pub(super) fn prefetch(&self, reference: OrderRef) {
        self.entries.prefetch(self.home(reference));
    }

    /// The level of an order that is in its home slot, as nearly all are.
    #[inline]
    pub(super) fn level_at_home(&self, reference: OrderRef) -> Option<u32> {
        let entry = self.entries.get(self.home(reference));
        (entry.reference == reference && entry.level != FREE).then_some(entry.level)
    }

    #[inline]
    pub(super) fn get(&mut self, at: Position) -> &mut Order {
        self.entries.written_mut(at.0)
    }

    pub(super) fn at(&self, at: Position) -> &Order {
        self.entries.get(at.0)
    }

    pub(super) fn is_full(&self) -> bool {
        self.len == self.capacity
    }

    /// Where an order is, or where [`Orders::insert`] puts it.
    #[inline]
    pub(super) fn place(&self, reference: OrderRef) -> Result<Position, Vacant> {
        let mask = self.entries.len() - 1;
        let mut idx = self.home(reference);
        // The search ends, because half of the entries are free.
        loop {
            let entry = self.entries.get(idx);
            if entry.level == FREE {
                return Err(Vacant(idx));
            }
            if entry.reference == reference {
                return Ok(Position(idx));
            }
            idx = (idx + 1) & mask;
        }
    }

    /// Inserts an order where [`Orders::place`] found none and nothing has changed since, into a
    /// table that is not full. Fetches the line of the next four numbers into the cache: each
    /// fourth new order waited for it, 120 ns in a table of 2 MB.
    #[inline]
    pub(super) fn insert(&mut self, at: Vacant, order: Order) {
        assert!(!self.is_full(), "the caller asks is_full first");
        *self.entries.get_mut(at.0) = order;
        self.len += 1;
        self.prefetch(OrderRef(order.reference.0.wrapping_add(4)));
    }

    /// Removes the order and moves those behind it, as far as they may, towards their home slot.
    pub(super) fn remove(&mut self, at: Position) {
        let mask = self.entries.len() - 1;
        let (mut hole, mut idx) = (at.0, at.0);
        loop {
            idx = (idx + 1) & mask;
            let entry = *self.entries.get(idx);
            if entry.level == FREE {
                break;
            }
            let from_home = idx.wrapping_sub(self.home(entry.reference)) & mask;
            let from_hole = idx.wrapping_sub(hole) & mask;
            if from_home >= from_hole {
                *self.entries.written_mut(hole) = entry;
                hole = idx;
            }
        }
        *self.entries.written_mut(hole) = EMPTY;
        self.len -= 1;
    }

    /// Slots of the table, each with one order or none.
    pub(super) fn slots(&self) -> usize {
        self.entries.len()
    }

    /// The order in a slot below [`Orders::slots`].
    pub(super) fn in_slot(&self, slot: usize) -> Option<Position> {
        (self.entries.get(slot).level != FREE).then_some(Position(slot))
    }

    /// The orders whose home is this slot, wherever they are. An order's home never changes, while
    /// removals of others move it: a walk over homes meets each order that stays exactly once.
    pub(super) fn homed(&self, home: usize) -> impl Iterator<Item = Order> {
        let mask = self.entries.len() - 1;
        let slots = (0..self.entries.len()).map(move |distance| (home + distance) & mask);
        let run = slots.map(|slot| *self.entries.get(slot)).take_while(|entry| entry.level != FREE);
        run.filter(move |entry| self.home(entry.reference) == home)
    }

    /// Costs the same however many there are.
    pub(super) fn clear(&mut self) {
        self.entries.clear();
        self.len = 0;
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    fn home(&self, reference: OrderRef) -> usize {
        let line = (reference.0 >> 2).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift;
        ((line << 2) | (reference.0 & 3)) as usize
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn table_agrees_with_a_map(steps in proptest::collection::vec((any::<bool>(), 0_u64..64), 1..400)) {
            let mut orders = Orders::new(32);
            let mut map = HashMap::new();
            for (qty, (add, number)) in (0..).zip(steps) {
                // Multiples of a power of two have few home slots, which makes runs that wrap
                // around.
                let reference = OrderRef(number << 58);
                match orders.place(reference) {
                    Ok(at) if !add => {
                        orders.remove(at);
                        map.remove(&reference);
                    }
                    Err(at) if add && !orders.is_full() => {
                        orders.insert(at, Order { reference, qty, level: 1 });
                        map.insert(reference, qty);
                    }
                    _ => {}
                }
                prop_assert_eq!(orders.len(), map.len());
                let mut homed: Vec<u64> =
                    (0..orders.slots()).flat_map(|home| orders.homed(home)).map(|order| order.reference.0).collect();
                homed.sort_unstable();
                let mut known: Vec<u64> = map.keys().map(|reference| reference.0).collect();
                known.sort_unstable();
                prop_assert_eq!(homed, known);
                for (&reference, &qty) in &map {
                    let at = orders.find(reference).unwrap();
                    prop_assert_eq!(orders.get(at).qty, qty);
                }
            }
        }
    }
}
