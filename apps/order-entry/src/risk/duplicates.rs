//! Recent orders by the hash of their terms, so that a loop that repeats itself is stopped.
//!
//! The table has sets of four, a cache line each. A set that is full loses its oldest entry, which
//! is counted where the entry was still inside the window: the table is then too small.

use market::{Price, Side};

use super::order::InstrumentIdx;

const WAYS: usize = 4;

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// 0 where the entry is free: the lowest bit of a key is set.
    key: u64,
    at_ns: u64,
}

#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
struct Set([Entry; WAYS]);

/// What [`Duplicates::find`] found, and where [`Duplicates::insert`] writes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    key: u64,
    set: usize,
    /// The entry with the key, else a free one, else the oldest one.
    way: usize,
}

impl Found {
    /// What no search has found.
    pub(super) const NONE: Self = Self { key: 0, set: 0, way: 0 };
}

#[derive(Clone, Debug)]
pub(super) struct Duplicates {
    sets: Box<[Set]>,
    evicted: u64,
}

impl Duplicates {
    /// Room for `orders` in the window.
    pub(super) fn new(orders: usize) -> Self {
        // Twice the room, because the hash fills some sets before others.
        let sets = (orders * 2).div_ceil(WAYS).next_power_of_two();
        Self { sets: vec![Set::default(); sets].into_boxed_slice(), evicted: 0 }
    }

    /// Where an order is with the terms of `key`, or will be.
    #[inline]
    pub(super) fn find(&self, key: u64) -> Found {
        let set = (key >> 32) as usize & (self.sets.len() - 1);
        let entries = &self.sets[set].0;
        // Ways are filled in order, so nothing is behind a free one.
        let way = entries.iter().position(|entry| entry.key == key || entry.key == 0);
        Found { key, set, way: way.unwrap_or_else(|| oldest(entries)) }
    }

    /// The age of an equal order, where it is younger than `window_ns`.
    #[inline]
    pub(super) fn age_ns(&self, found: &Found, now_ns: u64, window_ns: u64) -> Option<u64> {
        let entry = &self.sets[found.set].0[found.way];
        // A clock that stepped back makes an entry of the future, whose age is 0.
        let age_ns = now_ns.saturating_sub(entry.at_ns);
        (entry.key == found.key && age_ns < window_ns).then_some(age_ns)
    }

    /// Remembers the order of `found`.
    #[inline]
    pub(super) fn insert(&mut self, found: &Found, now_ns: u64, window_ns: u64) {
        let entry = &mut self.sets[found.set].0[found.way];
        if entry.key != 0 && entry.key != found.key && now_ns.saturating_sub(entry.at_ns) < window_ns {
            self.evicted += 1;
        }
        *entry = Entry { key: found.key, at_ns: now_ns };
    }

    /// Entries that were dropped inside the window.
    pub(super) const fn evicted(&self) -> u64 {
        self.evicted
    }
}

/// The way of the entry that was made first.
fn oldest(entries: &[Entry; WAYS]) -> usize {
    let oldest = entries.iter().enumerate().min_by_key(|(_, entry)| entry.at_ns);
    oldest.map_or(0, |(way, _)| way)
}

/// Stands for an order's terms. Two rounds of multiply and fold, as in wyhash: the terms of orders
/// are few and near each other.
#[inline]
pub(super) fn key(instrument: InstrumentIdx, side: Side, qty: u32, price: Price) -> u64 {
    let side = u64::from(side == Side::Sell) << 63;
    let first = (u64::from(instrument.0) << 32 | u64::from(qty)) ^ side;
    fold(fold(first ^ 0xa076_1d64_78bd_642f, 0xe703_7ed1_a0b4_28db) ^ price.0 as u64, 0x8ebc_6af0_9c88_c6e3) | 1
}

fn fold(left: u64, right: u64) -> u64 {
    let product = u128::from(left) * u128::from(right);
    (product >> 64) as u64 ^ product as u64
}
