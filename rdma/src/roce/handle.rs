//! Tables of fixed size, and the handles that name their entries.

use core::fmt;
use core::hash::{Hash, Hasher};
use core::marker::PhantomData;
use core::sync::atomic::{AtomicU8, Ordering};
use std::collections::VecDeque;

use super::prefetch::prefetch;

/// Names an object of a device. A handle of an object that was destroyed names none, also when
/// another object has its place; on another device it names none either.
pub struct Handle<K> {
    idx: u32,
    /// In the upper eight bits the number of the device, of which one of 256 has the same.
    generation: u32,
    kind: PhantomData<fn() -> K>,
}

/// What a [`Handle`] may name.
pub mod kind {
    /// A protection domain.
    pub enum Pd {}
    /// A memory region.
    pub enum Mr {}
    /// A memory window.
    pub enum Mw {}
    /// A completion queue.
    pub enum Cq {}
    /// A queue pair.
    pub enum Qp {}
    /// A shared receive queue.
    pub enum Srq {}
    /// An address handle.
    pub enum Ah {}
}

/// Names a protection domain.
pub type PdHandle = Handle<kind::Pd>;
/// Names a memory region.
pub type MrHandle = Handle<kind::Mr>;
/// Names a memory window.
pub type MwHandle = Handle<kind::Mw>;
/// Names a completion queue.
pub type CqHandle = Handle<kind::Cq>;
/// Names a queue pair.
pub type QpHandle = Handle<kind::Qp>;
/// Names a shared receive queue.
pub type SrqHandle = Handle<kind::Srq>;
/// Names an address handle: the way to the receivers of datagrams.
pub type AhHandle = Handle<kind::Ah>;

impl<K> Handle<K> {
    /// Names nothing.
    pub(super) const NONE: Self = Self { idx: u32::MAX, generation: 0, kind: PhantomData };

    /// The place in its table.
    #[inline]
    pub(super) const fn idx(self) -> u32 {
        self.idx
    }

    /// How often the place was used before.
    #[inline]
    pub(super) const fn generation(self) -> u32 {
        self.generation & USES
    }
}

/// The bits of a generation that count how often the place was used before.
const USES: u32 = (1 << 24) - 1;

/// The number of the next device, in software or not; it wraps.
static DEVICES: AtomicU8 = AtomicU8::new(0);

/// A number for a new device, by which its handles are told from those of others.
pub(crate) fn next_device() -> u8 {
    DEVICES.fetch_add(1, Ordering::Relaxed)
}

/// Objects of one kind: as many as the device was made for.
pub(crate) struct Table<K, T> {
    slots: Vec<Slot<T>>,
    /// The place that is free for the longest time is used next: an old key or number of it means
    /// nothing for as long as possible.
    free: VecDeque<u32>,
    kind: PhantomData<fn() -> K>,
}

/// Aligned, so that the lines of an object are always the same. Whether there is an object is said
/// in the first line and never by a value inside of the object, as an `Option` may do.
#[repr(u32, align(64))]
enum Slot<T> {
    Free { generation: u32 },
    Used { generation: u32, value: T },
}

/// Bytes of a slot in front of its object, of an object whose fields need no more than this.
pub(super) const SLOT_HEADER: usize = 8;

impl<K, T> Table<K, T> {
    /// A table of no device of ours.
    #[cfg(test)]
    pub(crate) fn new(capacity: u32) -> Self {
        Self::of_device(0, capacity)
    }

    /// A table of the device with this number, whose objects no handle of others names.
    pub(crate) fn of_device(number: u8, capacity: u32) -> Self {
        Self::drawn(number, capacity, |_| 0)
    }

    /// The same, where the uses of each place are counted from a number that `first` draws.
    pub(super) fn drawn(number: u8, capacity: u32, first: impl Fn(u32) -> u32) -> Self {
        let device = u32::from(number) << USES.count_ones();
        let mut slots: Vec<Slot<T>> = Vec::with_capacity(capacity as usize);
        // Each page of 4 KiB has five queue pairs: with thousands of them each packet would wait
        // for the walk to its page too.
        hugepages::advise_large_pages(slots.as_ptr().cast(), slots.capacity() * size_of::<Slot<T>>());
        slots.extend((0..capacity).map(|idx| Slot::Free { generation: device | first(idx) & USES }));
        Self { slots, free: (0..capacity).collect(), kind: PhantomData }
    }

    /// Has free places used in an order that `draw` draws, by any number for each of them.
    pub(super) fn shuffle(&mut self, draw: impl Fn(u32) -> u32) {
        for last in (1..self.free.len()).rev() {
            self.free.swap(last, draw(last as u32) as usize % (last + 1));
        }
    }

    /// Puts in what `make` returns for its handle; `None` if the table is full.
    pub(crate) fn insert_with(&mut self, make: impl FnOnce(Handle<K>) -> T) -> Option<Handle<K>> {
        let idx = self.free.pop_front()?;
        let slot = &mut self.slots[idx as usize];
        let generation = slot.generation();
        let handle = Handle { idx, generation, kind: PhantomData };
        *slot = Slot::Used { generation, value: make(handle) };
        Some(handle)
    }

    #[inline]
    pub(crate) fn get(&self, handle: Handle<K>) -> Option<&T> {
        match self.slots.get(handle.idx as usize)? {
            Slot::Used { generation, value } if *generation == handle.generation => Some(value),
            _ => None,
        }
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, handle: Handle<K>) -> Option<&mut T> {
        match self.slots.get_mut(handle.idx as usize)? {
            Slot::Used { generation, value } if *generation == handle.generation => Some(value),
            _ => None,
        }
    }

    /// The object at a place, whatever its generation.
    #[inline]
    pub(crate) fn at(&self, idx: u32) -> Option<&T> {
        self.slots.get(idx as usize)?.value()
    }

    /// The object at a place, whatever its generation.
    #[inline]
    pub(crate) fn at_mut(&mut self, idx: u32) -> Option<&mut T> {
        match self.slots.get_mut(idx as usize)? {
            Slot::Used { value, .. } => Some(value),
            Slot::Free { .. } => None,
        }
    }

    /// The handle of the object at a place.
    pub(crate) fn handle_at(&self, idx: u32) -> Option<Handle<K>> {
        let slot = self.slots.get(idx as usize)?;
        slot.value().map(|_| Handle { idx, generation: slot.generation(), kind: PhantomData })
    }

    /// Asks the CPU for lines of the slot at a place, which is looked at soon.
    #[inline]
    pub(super) fn prefetch<const N: usize>(&self, idx: u32, lines: [usize; N]) {
        if let Some(slot) = self.slots.get(idx as usize) {
            prefetch(slot, lines);
        }
    }

    pub(crate) fn remove(&mut self, handle: Handle<K>) -> Option<T> {
        self.get(handle)?;
        match self.give_up(handle.idx) {
            Slot::Used { value, .. } => Some(value),
            Slot::Free { .. } => None,
        }
    }

    /// Has a place free for the next objects; returns what was there.
    fn give_up(&mut self, idx: u32) -> Slot<T> {
        let slot = &mut self.slots[idx as usize];
        let generation = slot.generation() & !USES | slot.generation().wrapping_add(1) & USES;
        self.free.push_back(idx);
        core::mem::replace(slot, Slot::Free { generation })
    }

    /// Removes an object if `end` ends it; one that comes back keeps its handle. `None` if there is
    /// none.
    #[cfg(feature = "rdma-core")]
    pub(crate) fn try_remove<E>(
        &mut self,
        handle: Handle<K>,
        end: impl FnOnce(T) -> Result<(), (T, E)>,
    ) -> Option<Result<(), E>> {
        self.get(handle)?;
        let slot = &mut self.slots[handle.idx as usize];
        let generation = slot.generation();
        let Slot::Used { value, .. } = core::mem::replace(slot, Slot::Free { generation }) else { return None };
        let ended = end(value).map_err(|(value, error)| {
            *slot = Slot::Used { generation, value };
            error
        });
        if ended.is_ok() {
            self.give_up(handle.idx);
        }
        Some(ended)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().filter_map(Slot::value)
    }
}

impl<T> Slot<T> {
    const fn generation(&self) -> u32 {
        match self {
            Self::Free { generation } | Self::Used { generation, .. } => *generation,
        }
    }

    #[inline]
    const fn value(&self) -> Option<&T> {
        match self {
            Self::Used { value, .. } => Some(value),
            Self::Free { .. } => None,
        }
    }
}

// Derived ones would ask the same of `K`.
impl<K> Clone for Handle<K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for Handle<K> {}

impl<K> PartialEq for Handle<K> {
    fn eq(&self, other: &Self) -> bool {
        (self.idx, self.generation) == (other.idx, other.generation)
    }
}

impl<K> Eq for Handle<K> {}

impl<K> Hash for Handle<K> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.idx, self.generation).hash(state);
    }
}

impl<K> fmt::Debug for Handle<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.idx, self.generation & USES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handle_of_a_removed_object_names_none_when_its_place_is_used_again() {
        let mut table = Table::<kind::Pd, u8>::new(1);
        let first = table.insert_with(|_| 1).unwrap();
        assert_eq!(table.insert_with(|_| 2), None, "full");
        assert_eq!(table.remove(first), Some(1));
        let second = table.insert_with(|_| 3).unwrap();
        assert_eq!(table.remove(first), None);
        assert_eq!((table.get(first), table.get(second)), (None, Some(&3)));
    }

    #[cfg(feature = "rdma-core")]
    #[test]
    fn object_that_does_not_end_keeps_its_handle() {
        let mut table = Table::<kind::Pd, u8>::new(1);
        let handle = table.insert_with(|_| 1).unwrap();
        assert_eq!(table.try_remove(handle, |value| Err((value, "busy"))), Some(Err("busy")));
        assert_eq!(table.insert_with(|_| 2), None);
        assert_eq!(table.get(handle), Some(&1));
        assert_eq!(table.try_remove(handle, |_| Ok::<_, (u8, ())>(())), Some(Ok(())));
        assert_eq!(table.try_remove(handle, |_| Ok::<_, (u8, ())>(())), None);
        assert!(table.insert_with(|_| 3).is_some_and(|next| next != handle));
    }

    #[test]
    fn place_is_used_again_when_all_others_were() {
        let mut table = Table::<kind::Pd, ()>::new(3);
        let mut next = || {
            let handle = table.insert_with(|_| ()).unwrap();
            table.remove(handle);
            handle.idx()
        };
        assert_eq!([next(), next(), next(), next()], [0, 1, 2, 0]);
    }
}
