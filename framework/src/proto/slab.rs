//! Items of one type in memory allocated at construction: insert returns an index, remove returns
//! the item.
//!
//! The most recently freed slot is reused first, because it is most likely in the cache. An item is
//! never moved.

use super::alloc::{Madvise, allocate_table, without_madvise};

/// "No item": an index that no slab reaches.
pub(super) const NIL: u32 = u32::MAX;

#[derive(Debug)]
pub(super) struct Slab<T> {
    slots: Box<[Slot<T>]>,
    free: u32,
    free_count: usize,
}

#[derive(Debug)]
pub(super) enum Slot<T> {
    Taken(T),
    Free { next: u32 },
}

/// A free slot, the next that will be used.
pub(super) struct Vacancy<'a, T> {
    idx: u32,
    next: u32,
    slot: &'a mut Slot<T>,
    free: &'a mut u32,
    free_count: &'a mut usize,
}

impl<T> Vacancy<'_, T> {
    /// Stores `item`, and returns its index.
    #[inline(always)]
    pub(super) fn fill(self, item: T) -> u32 {
        // The slot is free: there is nothing to drop.
        core::mem::forget(core::mem::replace(self.slot, Slot::Taken(item)));
        *self.free = self.next;
        *self.free_count -= 1;
        self.idx
    }
}

impl<T> Slab<T> {
    /// Room for `capacity` items, allocated here and never again.
    pub(super) fn new(capacity: usize) -> Self {
        Self::with_madvise(capacity, without_madvise)
    }

    /// A slab whose memory `advise` is called for.
    pub(super) fn with_madvise(capacity: usize, advise: Madvise) -> Self {
        assert!(capacity < NIL as usize, "a slab counts its items in 32 bits");
        let last = capacity.wrapping_sub(1);
        let link = |idx: usize| Slot::Free { next: if idx == last { NIL } else { idx as u32 + 1 } };
        Self {
            slots: allocate_table(capacity, advise, link),
            free: if capacity == 0 { NIL } else { 0 },
            free_count: capacity,
        }
    }

    /// The bytes that `new(capacity)` allocates.
    pub(super) fn bytes(capacity: usize) -> usize {
        capacity * size_of::<Slot<T>>()
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free_count
    }

    /// Its capacity: indices are below.
    pub(super) fn capacity(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn free_count(&self) -> usize {
        self.free_count
    }

    /// Stores `item`; a full slab returns it.
    #[inline(always)]
    pub(super) fn insert(&mut self, item: T) -> Result<u32, T> {
        let idx = self.free;
        let Some(slot) = self.slots.get_mut(idx as usize) else { return Err(item) };
        let Slot::Free { next } = *slot else { unreachable!("the free list holds free slots only") };
        *slot = Slot::Taken(item);
        self.free = next;
        self.free_count -= 1;
        Ok(idx)
    }

    /// The slot of the next item, so that it can be built in place; `None` where the slab is full.
    #[inline(always)]
    pub(super) fn vacancy(&mut self) -> Option<Vacancy<'_, T>> {
        let idx = self.free;
        match self.slots.get_mut(idx as usize) {
            Some(slot @ &mut Slot::Free { next }) => {
                Some(Vacancy { idx, next, slot, free: &mut self.free, free_count: &mut self.free_count })
            }
            _ => None,
        }
    }

    pub(super) fn remove(&mut self, idx: u32) -> Option<T> {
        let slot = self.slots.get_mut(idx as usize)?;
        if let Slot::Free { .. } = slot {
            return None;
        }
        let Slot::Taken(item) = core::mem::replace(slot, Slot::Free { next: self.free }) else { return None };
        self.free = idx;
        self.free_count += 1;
        Some(item)
    }

    /// Drops an item in place. Does nothing to a free slot.
    #[inline]
    pub(super) fn drop_item(&mut self, idx: u32) {
        if let Some(slot @ Slot::Taken(_)) = self.slots.get_mut(idx as usize) {
            *slot = Slot::Free { next: self.free };
            self.free = idx;
            self.free_count += 1;
        }
    }

    /// Drops an item in place, after `read` has seen it; `None` for a free slot.
    #[inline(always)]
    pub(super) fn drop_after<R>(&mut self, idx: u32, read: impl FnOnce(&T) -> R) -> Option<R> {
        let slot = self.slots.get_mut(idx as usize)?;
        let Slot::Taken(item) = slot else { return None };
        let seen = read(item);
        *slot = Slot::Free { next: self.free };
        self.free = idx;
        self.free_count += 1;
        Some(seen)
    }

    /// The address of an item, for a prefetch; beyond the capacity, one that must not be read.
    #[inline(always)]
    pub(super) fn address(&self, idx: u32) -> *const u8 {
        self.slots.as_ptr().wrapping_add(idx as usize).cast()
    }

    #[inline]
    pub(super) fn get(&self, idx: u32) -> Option<&T> {
        match self.slots.get(idx as usize) {
            Some(Slot::Taken(item)) => Some(item),
            _ => None,
        }
    }

    #[inline]
    pub(super) fn get_mut(&mut self, idx: u32) -> Option<&mut T> {
        match self.slots.get_mut(idx as usize) {
            Some(Slot::Taken(item)) => Some(item),
            _ => None,
        }
    }
}

/// For links in our own tables: a link to a free slot is our bug, not the caller's.
impl<T> core::ops::Index<u32> for Slab<T> {
    type Output = T;
    #[inline]
    fn index(&self, idx: u32) -> &T {
        match self.get(idx) {
            Some(item) => item,
            None => panic!("a link of a table leads to a free slot"),
        }
    }
}

impl<T> core::ops::IndexMut<u32> for Slab<T> {
    #[inline]
    fn index_mut(&mut self, idx: u32) -> &mut T {
        match self.get_mut(idx) {
            Some(item) => item,
            None => panic!("a link of a table leads to a free slot"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_slab_gives_the_item_back() {
        let mut slab = Slab::new(1);
        assert_eq!(slab.insert('a'), Ok(0));
        assert_eq!(slab.insert('b'), Err('b'));
        assert_eq!(slab.free_count(), 0);
    }

    #[test]
    fn slab_of_no_items_is_full() {
        assert_eq!(Slab::new(0).insert(1), Err(1));
    }

    #[test]
    fn removed_slot_is_reused_first_and_not_removed_twice() {
        let mut slab = Slab::new(3);
        let [a, b] = ['a', 'b'].map(|item| slab.insert(item).unwrap());
        assert_eq!(slab.remove(a), Some('a'));
        assert_eq!(slab.remove(a), None);
        assert_eq!(slab.insert('c'), Ok(a));
        assert_eq!((slab[a], slab[b], slab.len()), ('c', 'b', 2));
    }
}
