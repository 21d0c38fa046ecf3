//! A hash table for lookups on the hot path: open addressing in buckets of one cache line, memory
//! allocated at construction.
//!
//! ```text
//!   bucket (64 bytes)   | key key key key | value value value value |     packed to the left, at most half full on average
//! ```
//! A lookup reads one cache line and compares its four keys without a branch between them, because
//! an entry's slot in its bucket is random, and a mispredicted branch costs more than three
//! compares. An entry whose home bucket is full is in the next bucket with room, so a bucket with
//! room ends every search. Removal moves such entries back, so there are no tombstones, and a table
//! is as fast after a million changes as when it was new.
//!
//! Each key type has its hash: a fast one where we insert the keys, one that resists an adversary
//! where packets insert them.

use super::alloc::{Madvise, allocate_table, without_madvise};
use super::hash::HashSeed;

const SLOTS: usize = 4;

/// A key of a [`Table`].
pub(super) trait Key: Copy + Eq {
    /// Marks a free slot: never inserted or looked up.
    const EMPTY: Self;
    /// The hash whose low bits choose the home bucket.
    fn hash(self, seed: &HashSeed) -> u64;
}

#[derive(Debug)]
pub(super) struct Table<K, V> {
    buckets: Box<[Bucket<K, V>]>,
    len: usize,
    capacity: usize,
    seed: HashSeed,
}

#[derive(Clone, Debug)]
#[repr(C, align(64))]
struct Bucket<K, V> {
    keys: [K; SLOTS],
    values: [V; SLOTS],
}

impl<K: Key, V: Copy + Default> Table<K, V> {
    /// Room for `capacity` entries in `2 * capacity` slots (rounded up to a power of two of
    /// buckets), allocated here and never again.
    pub(super) fn new(capacity: usize, seed: HashSeed) -> Self {
        Self::with_madvise(capacity, seed, without_madvise)
    }

    /// A table whose memory `advise` is called for.
    pub(super) fn with_madvise(capacity: usize, seed: HashSeed, advise: Madvise) -> Self {
        let buckets = allocate_table(Self::buckets(capacity), advise, |_| Bucket::empty());
        Self { buckets, len: 0, capacity, seed }
    }

    /// The bytes that `new(capacity, …)` allocates.
    pub(super) fn bytes(capacity: usize) -> usize {
        Self::buckets(capacity) * size_of::<Bucket<K, V>>()
    }

    fn buckets(capacity: usize) -> usize {
        // A quarter full at most: fewer than one bucket in a hundred overflows into its neighbor.
        // Half full, one in twenty does, and a thousand groups in a table made for a thousand cost
        // 14 ns a datagram instead of 10.5.
        (4 * capacity).div_ceil(SLOTS).next_power_of_two().max(2)
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_full(&self) -> bool {
        self.len == self.capacity
    }

    #[inline]
    pub(super) fn hash(&self, key: K) -> u64 {
        key.hash(&self.seed)
    }

    /// The address of `hash`'s home bucket, for a prefetch.
    #[inline(always)]
    pub(super) fn address(&self, hash: u64) -> *const u8 {
        self.buckets.as_ptr().wrapping_add(self.home(hash)).cast()
    }

    #[inline]
    pub(super) fn get(&self, key: K) -> Option<&V> {
        self.get_hashed(self.hash(key), key)
    }

    /// The value of `key`, whose hash the caller has.
    #[inline]
    pub(super) fn get_hashed(&self, hash: u64, key: K) -> Option<&V> {
        let (idx, slot) = self.locate_hashed(hash, key)?;
        Some(&self.buckets[idx].values[slot])
    }

    /// The value of `key`, whose hash the caller passes, if the key is in its home bucket, as 99 of
    /// 100 are. If not, [`get`](Self::get) may still find it.
    #[inline(always)]
    pub(super) fn get_at_home(&self, hash: u64, key: K) -> Option<&V> {
        debug_assert!(key != K::EMPTY && hash == self.hash(key));
        let bucket = &self.buckets[self.home(hash)];
        bucket.position(key).map(|slot| &bucket.values[slot])
    }

    /// The value of the first key in the home bucket of `hash` whose `part` equals the given part.
    /// For prefetches only: comparing parts that distinguish nearly all keys is faster than
    /// comparing whole keys. No free slot may have that `part`.
    #[inline(always)]
    pub(super) fn probe_home_bucket<T: Eq>(&self, hash: u64, expected: T, part: impl Fn(&K) -> T) -> Option<&V> {
        let bucket = &self.buckets[self.home(hash)];
        let is_expected = |key: &K| part(key) == expected;
        let [_, k1, k2, k3] = &bucket.keys;
        let slot =
            usize::from(is_expected(k1)) | (usize::from(is_expected(k2)) << 1) | (usize::from(is_expected(k3)) * 3);
        is_expected(&bucket.keys[slot]).then_some(&bucket.values[slot])
    }

    pub(super) fn get_mut(&mut self, key: K) -> Option<&mut V> {
        let (idx, slot) = self.locate(key)?;
        Some(&mut self.buckets[idx].values[slot])
    }

    /// Adds an entry. False where the table is full or the key is there already; nothing has
    /// changed then.
    #[must_use]
    pub(super) fn insert(&mut self, key: K, value: V) -> bool {
        assert!(key != K::EMPTY, "the empty key marks free slots");
        if self.is_full() || self.locate(key).is_some() {
            return false;
        }
        let mut idx = self.home(self.hash(key));
        while self.buckets[idx].is_full() {
            idx = self.after(idx);
        }
        self.buckets[idx].append(key, value);
        self.len += 1;
        true
    }

    pub(super) fn remove(&mut self, key: K) -> Option<V> {
        let (mut idx, mut slot) = self.locate(key)?;
        let value = self.buckets[idx].values[slot];
        self.len -= 1;
        loop {
            let was_full = self.buckets[idx].is_full();
            self.buckets[idx].close(slot);
            if !was_full {
                return Some(value);
            }
            // Searches went past this bucket while it was full; now they stop here. Move one of the
            // displaced entries back.
            let Some((from, from_slot)) = self.find_displaced(idx) else { return Some(value) };
            let (key, moved) = (self.buckets[from].keys[from_slot], self.buckets[from].values[from_slot]);
            self.buckets[idx].append(key, moved);
            (idx, slot) = (from, from_slot);
        }
    }

    /// The first entry after `gap` whose search passes it.
    fn find_displaced(&self, gap: usize) -> Option<(usize, usize)> {
        let mut idx = self.after(gap);
        loop {
            let bucket = &self.buckets[idx];
            for slot in 0..bucket.count() {
                let home = self.home(self.hash(bucket.keys[slot]));
                if self.distance(home, idx) >= self.distance(gap, idx) {
                    return Some((idx, slot));
                }
            }
            if !bucket.is_full() {
                return None;
            }
            idx = self.after(idx);
        }
    }

    fn locate(&self, key: K) -> Option<(usize, usize)> {
        self.locate_hashed(self.hash(key), key)
    }

    #[inline]
    fn locate_hashed(&self, hash: u64, key: K) -> Option<(usize, usize)> {
        debug_assert!(key != K::EMPTY && hash == self.hash(key));
        let mut idx = self.home(hash);
        loop {
            let bucket = &self.buckets[idx];
            if let Some(slot) = bucket.position(key) {
                return Some((idx, slot));
            }
            if !bucket.is_full() {
                return None;
            }
            idx = self.after(idx);
        }
    }

    #[inline]
    fn home(&self, hash: u64) -> usize {
        hash as usize & (self.buckets.len() - 1)
    }

    #[inline]
    fn after(&self, idx: usize) -> usize {
        (idx + 1) & (self.buckets.len() - 1)
    }

    fn distance(&self, from: usize, to: usize) -> usize {
        to.wrapping_sub(from) & (self.buckets.len() - 1)
    }
}

impl<K: Key, V: Copy + Default> Bucket<K, V> {
    fn empty() -> Self {
        Self { keys: [K::EMPTY; SLOTS], values: [V::default(); SLOTS] }
    }

    /// The slot of `key`, found without a branch on its position.
    #[inline(always)]
    fn position(&self, key: K) -> Option<usize> {
        let [_, k1, k2, k3] = self.keys;
        let slot = usize::from(k1 == key) | (usize::from(k2 == key) << 1) | (usize::from(k3 == key) * 3);
        (self.keys[slot] == key).then_some(slot)
    }

    #[inline]
    fn is_full(&self) -> bool {
        self.keys[SLOTS - 1] != K::EMPTY
    }

    fn count(&self) -> usize {
        self.keys.iter().filter(|key| **key != K::EMPTY).count()
    }

    fn append(&mut self, key: K, value: V) {
        let slot = self.count();
        self.keys[slot] = key;
        self.values[slot] = value;
    }

    /// Frees `slot` and keeps the others packed to the left.
    fn close(&mut self, slot: usize) {
        let last = self.count() - 1;
        self.keys[slot] = self.keys[last];
        self.values[slot] = self.values[last];
        self.keys[last] = K::EMPTY;
    }
}

impl Key for u64 {
    const EMPTY: Self = 0;
    #[inline]
    fn hash(self, seed: &HashSeed) -> u64 {
        seed.fold(self)
    }
}

/// An address that senders may choose: its hash resists chosen collisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AddressKey(u64);

impl AddressKey {
    pub(super) fn of(address: core::net::Ipv4Addr) -> Self {
        // Not zero, which marks a free slot.
        Self(1 << 32 | u64::from(address.to_bits()))
    }
}

impl Key for AddressKey {
    const EMPTY: Self = Self(0);

    fn hash(self, seed: &HashSeed) -> u64 {
        seed.sip(&[self.0])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    /// A key whose hash is itself: the test chooses the collisions.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    struct Chosen(u64);

    impl Key for Chosen {
        const EMPTY: Self = Self(u64::MAX);
        fn hash(self, _: &HashSeed) -> u64 {
            self.0 >> 8
        }
    }

    fn table<K: Key>(capacity: usize) -> Table<K, u32> {
        Table::new(capacity, HashSeed::new(1, 2))
    }

    #[test]
    fn full_table_refuses_and_keeps_what_it_has() {
        let mut table = table(2);
        assert!(table.insert(10u64, 1) && table.insert(20, 2));
        assert!(!table.insert(30, 3));
        assert_eq!([10, 20, 30].map(|key| table.get(key).copied()), [Some(1), Some(2), None]);
    }

    #[test]
    fn second_insert_of_a_key_is_refused() {
        let mut table = table(2);
        assert!(table.insert(10u64, 1));
        assert!(!table.insert(10, 2));
        assert_eq!(table.get(10), Some(&1));
    }

    #[test]
    fn bucket_is_one_cache_line() {
        assert_eq!(size_of::<Bucket<u64, [u32; 2]>>(), 64);
        assert_eq!(size_of::<Bucket<[u32; 3], u32>>(), 64);
    }

    #[test]
    fn entries_that_overflowed_move_home_when_room_appears() {
        let mut table = table(8);
        // All six want bucket 7, the last; two overflow around the end into bucket 0.
        let keys: [_; 6] = core::array::from_fn(|idx| Chosen(7 << 8 | idx as u64));
        for key in keys {
            assert!(table.insert(key, key.0 as u32));
        }
        assert_eq!(table.buckets[0].count(), 2);
        table.remove(keys[0]);
        table.remove(keys[1]);
        assert_eq!((table.buckets[7].count(), table.buckets[0].count()), (4, 0));
        assert!(keys[2..].iter().all(|key| table.get(*key) == Some(&(key.0 as u32))));
    }

    proptest! {
        #[test]
        fn table_agrees_with_a_hash_map(changes in prop::collection::vec((any::<bool>(), 0u64..4, 0u64..12), 1..400)) {
            let mut table = table(16);
            let mut model = HashMap::new();
            for (step, (add, home, low)) in changes.into_iter().enumerate() {
                let key = Chosen(home << 8 | low);
                if add {
                    let fits = model.len() < 16 && !model.contains_key(&key);
                    prop_assert_eq!(table.insert(key, step as u32), fits);
                    if fits { model.insert(key, step as u32); }
                } else {
                    prop_assert_eq!(table.remove(key), model.remove(&key));
                }
                prop_assert_eq!(table.len(), model.len());
                for home in 0..4 { for low in 0..12 {
                    let key = Chosen(home << 8 | low);
                    prop_assert_eq!(table.get(key), model.get(&key));
                }}
            }
        }
    }
}
