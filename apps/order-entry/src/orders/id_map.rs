//! Ids of orders and executions to positions: an open addressing table without allocation.

use core::hash::Hasher;
use std::hash::DefaultHasher;
use std::hint::black_box;

/// The venue's id of an execution.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExecId(pub u128);

impl ExecId {
    /// A match number, as OUCH has them.
    pub const fn from_number(number: u64) -> Self {
        Self(number as u128)
    }

    /// A text, as FIX has them: up to 15 bytes exactly, longer ones by 128 bits of their hash.
    pub fn from_text(text: &[u8]) -> Self {
        let mut bytes = [0; 16];
        if let Some(place) = bytes.get_mut(..text.len()).filter(|place| place.len() < 16) {
            place.copy_from_slice(text);
            // The last byte tells texts from numbers, and short ones from those with zeros behind.
            bytes[15] = 0x80 | text.len() as u8;
            return Self(u128::from_le_bytes(bytes));
        }
        let hash = |seed: u8| {
            let mut hasher = DefaultHasher::new();
            hasher.write_u8(seed);
            hasher.write(text);
            u128::from(hasher.finish())
        };
        Self(hash(0) << 64 | hash(1) | 1 << 127)
    }
}

/// What a table is searched by.
pub(super) trait Key: Copy + Eq + Default {
    /// Bits that are well mixed in the upper half.
    fn hash(self) -> u64;
}

fn mix(value: u64) -> u64 {
    let product = u128::from(value ^ 0x9e37_79b9_7f4a_7c15) * 0xd6e8_feb8_6659_fd93;
    (product >> 64) as u64 ^ product as u64
}

impl Key for u64 {
    fn hash(self) -> u64 {
        mix(self)
    }
}

/// An execution of one order: both orders of a trade with oneself have the same match number.
impl Key for (ExecId, u32) {
    fn hash(self) -> u64 {
        mix(mix(self.0.0 as u64) ^ (self.0.0 >> 64) as u64 ^ u64::from(self.1) << 32)
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry<K> {
    key: K,
    /// The position and 1; 0 where the entry is free.
    taken: u32,
}

#[derive(Clone, Debug)]
pub(super) struct IdMap<K> {
    entries: Box<[Entry<K>]>,
    shift: u32,
    count: usize,
    capacity: usize,
}

impl<K: Key> IdMap<K> {
    /// Room for `capacity` ids, in a table of which two thirds are taken at most.
    pub(super) fn new(capacity: usize) -> Self {
        let len = (capacity + capacity / 2).next_power_of_two().max(2);
        let entries = vec![Entry::default(); len].into_boxed_slice();
        Self { entries, shift: 64 - len.trailing_zeros(), count: 0, capacity }
    }

    /// Reads the place of `key`, so that the next call finds it in the cache.
    pub(super) fn warm(&self, key: K) {
        black_box(self.entries[self.home(key)].taken);
    }

    /// The position of `key`.
    pub(super) fn find(&self, key: K) -> Option<u32> {
        self.entries[self.probe(key)].taken.checked_sub(1)
    }

    /// Makes `key` point to `position`. Whether there was room for it.
    pub(super) fn insert(&mut self, key: K, position: u32) -> bool {
        let place = self.probe(key);
        if self.entries[place].taken == 0 {
            if self.count == self.capacity {
                return false;
            }
            self.count += 1;
        }
        self.entries[place] = Entry { key, taken: position + 1 };
        true
    }

    /// Takes `key` out, and closes the hole that it leaves.
    pub(super) fn remove(&mut self, key: K) {
        let mut hole = self.probe(key);
        if self.entries[hole].taken == 0 {
            return;
        }
        self.count -= 1;
        let mask = self.entries.len() - 1;
        let mut place = hole;
        loop {
            place = (place + 1) & mask;
            let entry = self.entries[place];
            if entry.taken == 0 {
                break;
            }
            // An entry may move back to the hole where its probe passes it.
            let home = self.home(entry.key);
            if (place.wrapping_sub(home) & mask) >= (place.wrapping_sub(hole) & mask) {
                self.entries[hole] = entry;
                hole = place;
            }
        }
        self.entries[hole] = Entry::default();
    }

    /// The place of `key`, or the free one that ends its probe.
    fn probe(&self, key: K) -> usize {
        let mask = self.entries.len() - 1;
        let mut place = self.home(key);
        while self.entries[place].taken != 0 && self.entries[place].key != key {
            place = (place + 1) & mask;
        }
        place
    }

    fn home(&self, key: K) -> usize {
        (key.hash() >> self.shift) as usize
    }
}
