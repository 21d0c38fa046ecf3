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
    /// Says when the numbers began, where the clock was wrong as they did.
    fn set_begun_utc_ns(&mut self, utc_ns: u64);
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
    drops_oldest: bool,
}

impl MemoryStore {
    /// Room for `count` messages of together `len` bytes; no more is taken than that.
    pub fn new(count: usize, len: usize) -> Self {
        let (kept, bytes) = (Vec::with_capacity(count), Vec::with_capacity(len));
        Self { next_out: 1, next_in: 1, begun_utc_ns: 0, kept, bytes, drops_oldest: false }
    }

    /// The same, which forgets the older half of what it keeps where it is full: a resend passes
    /// over what is gone (SequenceReset), as a venue does that keeps a part of its day.
    pub fn dropping_oldest(count: usize, len: usize) -> Self {
        Self { drops_oldest: true, ..Self::new(count, len) }
    }

    fn has_room(&self, len: usize) -> bool {
        self.kept.len() < self.kept.capacity() && len <= self.bytes.capacity() - self.bytes.len()
    }

    #[cold]
    fn drop_oldest(&mut self) {
        let count = self.kept.len().div_ceil(2);
        let end = self.kept.get(count).map_or(self.bytes.len(), |&(_, at, _)| at);
        self.kept.drain(..count);
        self.bytes.drain(..end);
        self.kept.iter_mut().for_each(|(_, at, _)| *at -= end);
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
        while self.drops_oldest && !self.has_room(message.len()) && !self.kept.is_empty() {
            self.drop_oldest();
        }
        if !self.has_room(message.len()) {
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

    fn set_begun_utc_ns(&mut self, utc_ns: u64) {
        self.begun_utc_ns = utc_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_store_refuses_or_forgets_its_older_half() {
        let mut full = MemoryStore::new(4, 100);
        let mut dropping = MemoryStore::dropping_oldest(4, 100);
        for seq in 1..=4 {
            full.put(seq, &[seq as u8; 3]).unwrap();
            dropping.put(seq, &[seq as u8; 3]).unwrap();
        }
        assert_eq!(full.put(5, b"five"), Err(StoreFull));
        dropping.put(5, b"five").unwrap();
        assert_eq!((dropping.next_kept(1), dropping.get(2), dropping.get(3)), (Some(3), None, Some(&[3; 3][..])));
        assert_eq!((dropping.get(5), dropping.next_out()), (Some(&b"five"[..]), 6));
        // Bytes run out, too, and a message that never fits is refused.
        dropping.put(6, &[6; 95]).unwrap();
        assert_eq!((dropping.next_kept(1), dropping.get(6)), (Some(5), Some(&[6; 95][..])));
        assert_eq!(dropping.put(7, &[7; 101]), Err(StoreFull));
    }
}
