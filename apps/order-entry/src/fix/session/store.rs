//! What a session keeps across connections: both next numbers, and the application messages that
//! were sent.

use core::fmt;

/// The message cannot be kept, so it must not be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StoreFull;

impl fmt::Display for StoreFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the store of sent messages is full")
    }
}

impl core::error::Error for StoreFull {}

/// Keeps a session's numbers and sent messages. A message is kept before it is sent; a store on a
/// disk returns once the message is as safe as its owner wants.
pub trait MessageStore {
    /// The number of the next message that we send; 1 at the beginning.
    fn next_out(&self) -> u64;
    /// The number of the next message that we expect; 1 at the beginning.
    fn next_in(&self) -> u64;
    /// Sets the number of the next message that we send: behind a message that is not kept.
    fn set_next_out(&mut self, seq: u64);
    /// Sets the number of the next message that we expect.
    fn set_next_in(&mut self, seq: u64);
    /// Keeps the message `seq`, which is [`MessageStore::next_out`], and makes the next number the
    /// one behind it.
    fn put(&mut self, seq: u64, message: &[u8]) -> Result<(), StoreFull>;
    /// The kept message with this number.
    fn get(&self, seq: u64) -> Option<&[u8]>;
    /// The number of the first kept message at or behind `seq`.
    fn next_kept(&self, seq: u64) -> Option<u64>;
    /// Forgets all messages; both numbers are 1. `utc_ns` is when the new numbers begin.
    fn reset(&mut self, utc_ns: u64);
    /// When the numbers began; 0 where nothing was said.
    fn begun_utc_ns(&self) -> u64;
}

/// A store in memory, which is allocated when it is constructed: for tests, and for sessions whose
/// numbers begin with each connection anew.
#[derive(Clone, Debug)]
pub struct MemoryStore {
    next_out: u64,
    next_in: u64,
    begun_utc_ns: u64,
    /// Number, place and length, in rising order.
    kept: Vec<(u64, usize, usize)>,
    bytes: Vec<u8>,
}

impl MemoryStore {
    /// Room for `count` messages of together `len` bytes.
    pub fn new(count: usize, len: usize) -> Self {
        let (kept, bytes) = (Vec::with_capacity(count), Vec::with_capacity(len));
        Self { next_out: 1, next_in: 1, begun_utc_ns: 0, kept, bytes }
    }
}

impl MessageStore for MemoryStore {
    fn next_out(&self) -> u64 {
        self.next_out
    }

    fn next_in(&self) -> u64 {
        self.next_in
    }

    fn set_next_out(&mut self, seq: u64) {
        self.next_out = seq;
    }

    fn set_next_in(&mut self, seq: u64) {
        self.next_in = seq;
    }

    fn put(&mut self, seq: u64, message: &[u8]) -> Result<(), StoreFull> {
        let is_room = self.kept.len() < self.kept.capacity();
        if !is_room || message.len() > self.bytes.capacity() - self.bytes.len() {
            return Err(StoreFull);
        }
        self.kept.push((seq, self.bytes.len(), message.len()));
        self.bytes.extend_from_slice(message);
        self.next_out = seq + 1;
        Ok(())
    }

    fn get(&self, seq: u64) -> Option<&[u8]> {
        let idx = self.kept.binary_search_by_key(&seq, |kept| kept.0).ok()?;
        let (_, at, len) = self.kept[idx];
        self.bytes.get(at..at + len)
    }

    fn next_kept(&self, seq: u64) -> Option<u64> {
        let idx = self.kept.partition_point(|kept| kept.0 < seq);
        self.kept.get(idx).map(|kept| kept.0)
    }

    fn reset(&mut self, utc_ns: u64) {
        self.kept.clear();
        self.bytes.clear();
        (self.next_out, self.next_in, self.begun_utc_ns) = (1, 1, utc_ns);
    }

    fn begun_utc_ns(&self) -> u64 {
        self.begun_utc_ns
    }
}
