//! The newest trades, so that one can be broken.

use market::{Locate, Price};

use crate::order::Owner;

/// A trade that may still be broken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trade {
    pub(crate) match_number: u64,
    pub(crate) qty: u32,
    pub(crate) price: Price,
    pub(crate) buyer: (Owner, u64),
    pub(crate) seller: (Owner, u64),
    pub(crate) symbol: Locate,
    pub(crate) is_broken: bool,
}

/// A ring: the oldest trade makes room for the newest.
#[derive(Debug)]
pub(crate) struct Trades {
    ring: Vec<Trade>,
    capacity: usize,
    /// Trades ever.
    count: usize,
    /// The number of the newest trade that made room: of a cross with this number not all are here.
    evicted: u64,
}

impl Trades {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { ring: Vec::with_capacity(capacity), capacity, count: 0, evicted: 0 }
    }

    #[inline]
    pub(crate) fn push(&mut self, trade: Trade) {
        if self.capacity == 0 {
            return;
        }
        if self.ring.len() < self.capacity {
            self.ring.push(trade);
        } else {
            let idx = self.count % self.capacity;
            self.evicted = self.ring[idx].match_number;
            self.ring[idx] = trade;
        }
        self.count += 1;
    }

    /// The trades with this number, by index from the oldest kept; they are neighbors. None where
    /// one of them has made room.
    pub(crate) fn find(&self, match_number: u64) -> core::ops::Range<usize> {
        if match_number <= self.evicted {
            return 0..0;
        }
        let begin = self.partition(|trade| trade.match_number < match_number);
        begin..self.partition(|trade| trade.match_number <= match_number)
    }

    pub(crate) fn get_mut(&mut self, idx: usize) -> &mut Trade {
        let idx = self.physical(idx);
        &mut self.ring[idx]
    }

    fn physical(&self, idx: usize) -> usize {
        (self.count - self.ring.len() + idx) % self.capacity
    }

    /// Numbers rise, so those for which `before` holds come first.
    fn partition(&self, before: impl Fn(&Trade) -> bool) -> usize {
        let (mut low, mut high) = (0, self.ring.len());
        while low < high {
            let middle = low + (high - low) / 2;
            if before(&self.ring[self.physical(middle)]) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }
}
