//! Symbol to book index: an open addressing table that only grows, up to a capacity set at
//! construction.

use super::BookIdx;
use crate::units::Symbol;

const FREE: u32 = u32::MAX;

/// The table and the list of instruments.
#[derive(Debug)]
pub(super) struct Symbols {
    /// Indices into `names`; at most half of them are taken.
    buckets: Vec<u32>,
    shift: u32,
    names: Vec<Symbol>,
    capacity: usize,
}

impl Clone for Symbols {
    /// With the same room, so that no copy allocates when it grows.
    fn clone(&self) -> Self {
        let mut names = Vec::with_capacity(self.capacity);
        names.extend_from_slice(&self.names);
        Self { buckets: self.buckets.clone(), names, ..*self }
    }
}

impl Symbols {
    /// Room for `capacity` instruments.
    pub(super) fn new(capacity: usize) -> Self {
        let buckets = (capacity * 2).next_power_of_two().max(2);
        Self {
            buckets: vec![FREE; buckets],
            shift: 64 - buckets.trailing_zeros(),
            names: Vec::with_capacity(capacity),
            capacity,
        }
    }

    /// Bytes that [`Symbols::new`] allocates.
    pub(super) const fn memory(capacity: u128) -> u128 {
        (capacity * 2).next_power_of_two() * size_of::<u32>() as u128 + capacity * size_of::<Symbol>() as u128
    }

    /// The index of `symbol`.
    pub(super) fn find(&self, symbol: Symbol) -> Option<BookIdx> {
        let bucket = self.probe(symbol);
        (self.buckets[bucket] != FREE).then(|| BookIdx(self.buckets[bucket]))
    }

    /// The index of `symbol`, a new one where it is not known; `None` where the table is full.
    pub(super) fn find_or_insert(&mut self, symbol: Symbol) -> Option<BookIdx> {
        let bucket = self.probe(symbol);
        if self.buckets[bucket] == FREE {
            if self.names.len() == self.capacity {
                return None;
            }
            self.buckets[bucket] = self.names.len() as u32;
            self.names.push(symbol);
        }
        Some(BookIdx(self.buckets[bucket]))
    }

    pub(super) fn name(&self, idx: BookIdx) -> Symbol {
        self.names[idx.0 as usize]
    }

    pub(super) fn len(&self) -> usize {
        self.names.len()
    }

    /// The bucket that holds `symbol`, or the free one where it belongs. The search ends, because
    /// half of the buckets are free.
    fn probe(&self, symbol: Symbol) -> usize {
        // Multiplicative hashing takes the high bits, to which all bytes of the symbol contribute.
        let hash = u64::from_le_bytes(symbol.0).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mask = self.buckets.len() - 1;
        let mut bucket = ((hash ^ (hash >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> self.shift) as usize;
        while self.buckets[bucket] != FREE && self.names[self.buckets[bucket] as usize] != symbol {
            bucket = (bucket + 1) & mask;
        }
        bucket
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_table_refuses_a_new_symbol_and_finds_the_old() {
        let mut symbols = Symbols::new(2);
        let names = ["A", "B", "C"].map(|name| Symbol::new(name).unwrap());
        assert_eq!(names.map(|name| symbols.find_or_insert(name)), [Some(BookIdx(0)), Some(BookIdx(1)), None]);
        assert_eq!(names.map(|name| symbols.find(name)), [Some(BookIdx(0)), Some(BookIdx(1)), None]);
    }
}
