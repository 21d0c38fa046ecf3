//! A bounded queue of live messages, for books that are to be rebuilt: memory that is allocated
//! once. A full queue drops its oldest messages.

use std::collections::VecDeque;

#[derive(Debug)]
pub(crate) struct LiveQueue {
    /// Used as a ring; a message is in one piece, so the end of the ring may stay unused.
    bytes: Vec<u8>,
    messages: VecDeque<Queued>,
    messages_max: usize,
}

#[derive(Clone, Copy, Debug)]
struct Queued {
    seq: u64,
    begin: usize,
    len: usize,
}

impl Queued {
    /// The bytes that it takes. One that is empty takes one, so that no two begin at one place and
    /// the order of places shows whether the ring has wrapped around.
    fn room(&self) -> usize {
        self.len.max(1)
    }
}

impl LiveQueue {
    pub(crate) fn new(len_max: usize, messages_max: usize) -> Self {
        Self { bytes: vec![0; len_max], messages: VecDeque::with_capacity(messages_max), messages_max }
    }

    pub(crate) const fn memory(len_max: usize, messages_max: usize) -> u128 {
        len_max as u128 + messages_max as u128 * size_of::<Queued>() as u128
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.messages.len()
    }

    pub(crate) fn clear(&mut self) {
        self.messages.clear();
    }

    /// Queues a message. Returns the number from which on all messages are in the queue; 0 where
    /// none was dropped for it.
    pub(crate) fn push(&mut self, seq: u64, message: &[u8], overflowed: &mut u64) -> u64 {
        let mut lost_to = 0;
        let mut new = Queued { seq, begin: 0, len: message.len() };
        if new.room() > self.bytes.len() || self.messages_max == 0 {
            *overflowed += 1 + self.messages.len() as u64;
            self.messages.clear();
            return seq + 1;
        }
        new.begin = loop {
            if self.messages.len() < self.messages_max
                && let Some(begin) = self.room(new.room())
            {
                break begin;
            }
            let Some(oldest) = self.messages.pop_front() else { break 0 };
            *overflowed += 1;
            lost_to = oldest.seq + 1;
        };
        self.bytes[new.begin..new.begin + new.len].copy_from_slice(message);
        self.messages.push_back(new);
        lost_to
    }

    /// Where `len` bytes fit in one piece behind the newest message.
    fn room(&self, len: usize) -> Option<usize> {
        let (Some(oldest), Some(newest)) = (self.messages.front(), self.messages.back()) else { return Some(0) };
        let end = newest.begin + newest.room();
        // A newest message before the oldest one in memory: the ring has wrapped around.
        if newest.begin < oldest.begin {
            return (end + len <= oldest.begin).then_some(end);
        }
        if end + len <= self.bytes.len() {
            return Some(end);
        }
        (len <= oldest.begin).then_some(0)
    }

    /// Passes the oldest message to `take`. False where there is none.
    pub(crate) fn pop(&mut self, take: impl FnOnce(u64, &[u8])) -> bool {
        let Some(Queued { seq, begin, len }) = self.messages.pop_front() else { return false };
        take(seq, &self.bytes[begin..begin + len]);
        true
    }

    /// The messages behind number `seq`, the oldest first, each with its number. Finding the first
    /// is a binary search.
    pub(crate) fn behind(&self, seq: u64) -> impl ExactSizeIterator<Item = (u64, &[u8])> {
        let first = self.messages.partition_point(|queued| queued.seq <= seq);
        let bytes = &self.bytes;
        self.messages.range(first..).map(|queued| (queued.seq, &bytes[queued.begin..queued.begin + queued.len]))
    }

    /// Drops messages before `seq`: all at once, without a look at each byte.
    pub(crate) fn drop_before(&mut self, seq: u64) {
        let count = self.messages.partition_point(|queued| queued.seq < seq);
        self.messages.drain(..count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A queue of eight bytes, and its messages as they come out.
    fn queued(messages: &[&[u8]]) -> (Vec<Vec<u8>>, u64) {
        let (mut queue, mut overflowed) = (LiveQueue::new(8, 16), 0);
        for (seq, message) in (1..).zip(messages) {
            queue.push(seq, message, &mut overflowed);
        }
        let mut out = Vec::new();
        while queue.pop(|_, message| out.push(message.to_vec())) {}
        (out, overflowed)
    }

    #[test]
    fn message_without_bytes_in_a_full_queue_overwrites_none() {
        let messages: [&[u8]; 6] = [b"aaaa", b"bbbb", b"cccc", b"", b"dd", b"ee"];
        let (out, overflowed) = queued(&messages);
        let kept = &messages[overflowed as usize..];
        assert_eq!(out, kept, "what is in the queue is as it came");
    }

    #[test]
    fn message_longer_than_the_queue_empties_it() {
        assert_eq!(queued(&[b"a", b"", &[0; 9]]), (vec![], 3));
    }
}
