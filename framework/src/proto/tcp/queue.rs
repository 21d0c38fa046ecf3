//! Pieces of a byte stream that wait: to be sent, to be acknowledged, for the bytes before them, for the app. All connections share
//! one store of links, taken at the start; a queue is two ends and a count.
//!
//! ```text
//!  sending    head ─ … sent, not acknowledged … ─▶ next_unsent ─ … not sent yet … ─▶ tail
//!  receiving  head ─ in order for the app ─▶ tail          out of order: sorted by number, with holes
//! ```

use super::payload::Payload;
use super::seq::Seq;
use crate::proto::slab::{NIL, Slab};
use crate::time::Instant;

/// A piece of a stream.
#[derive(Debug)]
pub(super) struct Chunk<P> {
    pub(super) seq: Seq,
    /// Bytes of the payload.
    pub(super) len: u32,
    pub(super) flags: u8,
    /// Times that it was sent again.
    pub(super) resent: u8,
    /// When it was sent last (RFC 8985 5.1: Segment.xmit_ts).
    pub(super) sent_at: Instant,
    /// `None` for a FIN that goes alone.
    pub(super) payload: Option<P>,
    pub(super) next: u32,
    pub(super) prev: u32,
    /// Neighbours in the [`Ring`] that it is in. At both ends of a run of SACKED chunks, which are in no ring: the last and the first of
    /// the run.
    pub(super) later: u32,
    pub(super) earlier: u32,
}

/// It ends what an app's call handed over: PSH is set with it.
pub(super) const PUSH: u8 = 1 << 0;
/// A FIN follows the bytes and takes a number.
pub(super) const FIN: u8 = 1 << 1;
/// It was sent.
pub(super) const SENT: u8 = 1 << 2;
/// The peer has it, says SACK.
pub(super) const SACKED: u8 = 1 << 3;
/// It counts as lost and is to be sent again.
pub(super) const LOST: u8 = 1 << 4;
/// It was sent again since it was lost last.
pub(super) const RESENT: u8 = 1 << 5;

impl<P> Chunk<P> {
    pub(super) fn new(seq: Seq, len: u32, payload: Option<P>) -> Self {
        Self {
            seq,
            len,
            flags: 0,
            resent: 0,
            sent_at: Instant::ZERO,
            payload,
            next: NIL,
            prev: NIL,
            later: NIL,
            earlier: NIL,
        }
    }

    /// Numbers that it takes.
    #[inline]
    pub(super) fn seq_len(&self) -> u32 {
        self.len + u32::from(self.has(FIN))
    }

    /// The number behind it.
    #[inline]
    pub(super) fn end(&self) -> Seq {
        self.seq + self.seq_len()
    }

    #[inline]
    pub(super) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// The chunks of all connections.
pub(super) type Chunks<P> = Slab<Chunk<P>>;

/// A list of chunks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queue {
    pub(super) head: u32,
    pub(super) tail: u32,
    pub(super) count: u32,
}

impl Default for Queue {
    fn default() -> Self {
        Self { head: NIL, tail: NIL, count: 0 }
    }
}

impl Queue {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.head == NIL
    }

    /// Appends a chunk, and says where it stands; it comes back where the store is full.
    #[inline(always)]
    pub(super) fn push_back<P>(&mut self, chunks: &mut Chunks<P>, chunk: Chunk<P>) -> Result<u32, Chunk<P>> {
        let tail = self.tail;
        let idx = chunks.insert(Chunk { prev: tail, next: NIL, ..chunk })?;
        match tail {
            NIL => self.head = idx,
            tail => chunks[tail].next = idx,
        }
        self.tail = idx;
        self.count += 1;
        Ok(idx)
    }

    /// Appends a chunk that was sent just now, here and to those in flight. Panics where the store is full.
    #[inline(always)]
    pub(super) fn push_sent<P>(&mut self, in_flight: &mut Ring, chunks: &mut Chunks<P>, chunk: Chunk<P>) -> u32 {
        let idx = chunks.vacancy().expect("a free chunk was seen before the segment left");
        let (earlier, later) = in_flight.enter(chunks, idx);
        match self.push_back(chunks, Chunk { earlier, later, ..chunk }) {
            Ok(idx) => idx,
            Err(_) => unreachable!("there is a vacancy"),
        }
    }

    /// Puts a chunk behind the one at `prev`; in front of all where that is `NIL`.
    pub(super) fn insert_after<P>(
        &mut self,
        chunks: &mut Chunks<P>,
        prev: u32,
        mut chunk: Chunk<P>,
    ) -> Result<u32, Chunk<P>> {
        let next = if prev == NIL { self.head } else { chunks[prev].next };
        (chunk.prev, chunk.next) = (prev, next);
        let idx = chunks.insert(chunk)?;
        match prev {
            NIL => self.head = idx,
            prev => chunks[prev].next = idx,
        }
        match next {
            NIL => self.tail = idx,
            next => chunks[next].prev = idx,
        }
        self.count += 1;
        Ok(idx)
    }

    /// Lets go of the chunks at the front that were sent, and end at `end` at the latest. They are in `ring`, whose first they most often
    /// are, so its ends are joined once for all of them.
    #[inline(always)]
    pub(super) fn drop_up_to<P>(&mut self, chunks: &mut Chunks<P>, ring: &mut Ring, end: Seq) -> Dropped {
        let mut dropped = Dropped::default();
        let mut last = ring.last(chunks);
        let mut idx = self.head;
        while let Some(chunk) = chunks.get(idx).filter(|chunk| chunk.has(SENT) && !chunk.end().is_after(end)) {
            let (next, later) = (chunk.next, chunk.later);
            if dropped.count == 0 {
                dropped.oldest = chunk.sent_at;
            }
            (dropped.count, dropped.len, dropped.newest) = (dropped.count + 1, dropped.len + chunk.len, chunk.sent_at);
            if idx == ring.head {
                ring.head = if idx == last { NIL } else { later };
            } else {
                ring.join_ends(chunks, last);
                ring.remove(chunks, idx);
                last = ring.last(chunks);
            }
            chunks.let_go(idx);
            idx = next;
        }
        ring.join_ends(chunks, last);
        self.head = idx;
        match idx {
            NIL => self.tail = NIL,
            head => chunks[head].prev = NIL,
        }
        self.count -= dropped.count;
        dropped
    }

    /// Takes the chunk at `idx` out.
    #[inline]
    pub(super) fn remove<P>(&mut self, chunks: &mut Chunks<P>, idx: u32) -> Chunk<P> {
        let Some(chunk) = chunks.remove(idx) else { panic!("a queue leads to a free slot") };
        match chunk.prev {
            NIL => self.head = chunk.next,
            prev => chunks[prev].next = chunk.next,
        }
        match chunk.next {
            NIL => self.tail = chunk.prev,
            next => chunks[next].prev = chunk.prev,
        }
        self.count -= 1;
        chunk
    }

    /// Cuts the chunk at `idx` behind its first `at` bytes: what is behind becomes a chunk of its own, with what is remembered of the
    /// whole. False, and nothing has changed, where the store or the payload cannot do it now.
    pub(super) fn split<P: Payload>(&mut self, chunks: &mut Chunks<P>, idx: u32, at: u32) -> bool {
        if chunks.free_count() == 0 {
            return false;
        }
        let chunk = &mut chunks[idx];
        // Behind all bytes there is still a FIN.
        let payload = if at == chunk.len {
            None
        } else {
            match chunk.payload.as_mut().and_then(|payload| payload.split_off(at as usize)) {
                Some(payload) => Some(payload),
                None => return false,
            }
        };
        let ends_call = chunk.flags & PUSH;
        let mut rest = Chunk::new(chunk.seq + at, chunk.len - at, payload);
        (rest.flags, rest.resent, rest.sent_at) = (chunk.flags, chunk.resent, chunk.sent_at);
        chunk.flags &= !(PUSH | FIN);
        if rest.len == 0 {
            (chunk.flags, rest.flags) = (chunk.flags | ends_call, rest.flags & !PUSH);
        }
        chunk.len = at;
        let is_ordered = is_in_ring(chunk.flags) && chunk.later != NIL;
        let Ok(rest) = self.insert_after(chunks, idx, rest) else {
            debug_assert!(false, "there was room above");
            return false;
        };
        if is_ordered {
            Ring::insert_after(chunks, idx, rest);
        }
        true
    }

    /// Takes the first chunk out.
    #[inline]
    pub(super) fn pop_front<P>(&mut self, chunks: &mut Chunks<P>) -> Option<Chunk<P>> {
        (self.head != NIL).then(|| self.remove(chunks, self.head))
    }

    /// Lets go of all.
    pub(super) fn clear<P>(&mut self, chunks: &mut Chunks<P>) {
        while self.pop_front(chunks).is_some() {}
    }
}

/// What [`Queue::drop_up_to`] has let go of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Dropped {
    pub(super) count: u32,
    /// Bytes of all payloads.
    pub(super) len: u32,
    /// When the first and the last of them were sent; nothing where there was none.
    pub(super) oldest: Instant,
    pub(super) newest: Instant,
}

/// Whether a chunk with such flags is in a [`Ring`]: all that was sent is, but what the peer is known to have.
#[inline]
pub(super) fn is_in_ring(flags: u8) -> bool {
    flags & SENT != 0 && flags & SACKED == 0
}

/// Chunks of a queue in another order than that of their numbers: a ring of links, entered at the first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ring {
    pub(super) head: u32,
}

impl Default for Ring {
    fn default() -> Self {
        Self { head: NIL }
    }
}

impl Ring {
    /// Enters a chunk as the last.
    #[inline(always)]
    pub(super) fn push_back<P>(&mut self, chunks: &mut Chunks<P>, idx: u32) {
        let (earlier, later) = self.enter(chunks, idx);
        let chunk = &mut chunks[idx];
        (chunk.earlier, chunk.later) = (earlier, later);
    }

    /// The same from the side of its neighbours, which it is told: the one before, and the first.
    #[inline(always)]
    fn enter<P>(&mut self, chunks: &mut Chunks<P>, idx: u32) -> (u32, u32) {
        let first = self.head;
        if first == NIL {
            self.head = idx;
            return (idx, idx);
        }
        let last = core::mem::replace(&mut chunks[first].earlier, idx);
        chunks[last].later = idx;
        (last, first)
    }

    /// The last chunk, or `NIL`.
    #[inline]
    fn last<P>(&self, chunks: &Chunks<P>) -> u32 {
        chunks.get(self.head).map_or(NIL, |head| head.earlier)
    }

    /// Closes the ring after its first chunks have gone without their links being looked at.
    #[inline]
    fn join_ends<P>(&self, chunks: &mut Chunks<P>, last: u32) {
        if self.head != NIL {
            chunks[self.head].earlier = last;
            chunks[last].later = self.head;
        }
    }

    /// Enters a chunk as the first.
    #[inline]
    pub(super) fn push_front<P>(&mut self, chunks: &mut Chunks<P>, idx: u32) {
        self.push_back(chunks, idx);
        self.head = idx;
    }

    /// Enters a chunk where its time belongs, before others of the same time. It is looked for from `near`, a member or `NIL`: who enters many
    /// one after the other walks over the ring once where they come in the order of their times.
    pub(super) fn insert_by_time<P>(&mut self, chunks: &mut Chunks<P>, idx: u32, near: u32) {
        let (sent_at, first) = (chunks[idx].sent_at, self.head);
        if first == NIL || sent_at <= chunks[first].sent_at {
            return self.push_front(chunks, idx);
        }
        let mut before = if near == NIL { first } else { near };
        while chunks[before].sent_at >= sent_at {
            before = chunks[before].earlier;
        }
        loop {
            let next = chunks[before].later;
            if next == first || sent_at <= chunks[next].sent_at {
                return Self::insert_after(chunks, before, idx);
            }
            before = next;
        }
    }

    /// Enters a chunk behind the one at `earlier`.
    #[inline]
    pub(super) fn insert_after<P>(chunks: &mut Chunks<P>, earlier: u32, idx: u32) {
        let later = core::mem::replace(&mut chunks[earlier].later, idx);
        chunks[later].earlier = idx;
        let chunk = &mut chunks[idx];
        (chunk.earlier, chunk.later) = (earlier, later);
    }

    /// Takes a chunk out.
    #[inline]
    pub(super) fn remove<P>(&mut self, chunks: &mut Chunks<P>, idx: u32) {
        let (earlier, later) = (chunks[idx].earlier, chunks[idx].later);
        self.close(chunks, idx, earlier, later);
    }

    /// The same for who has its neighbours at hand.
    #[inline(always)]
    pub(super) fn close<P>(&mut self, chunks: &mut Chunks<P>, idx: u32, earlier: u32, later: u32) {
        if later == idx {
            self.head = NIL;
            return;
        }
        chunks[earlier].later = later;
        chunks[later].earlier = earlier;
        if self.head == idx {
            self.head = later;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a panic here is the report

    use super::*;

    fn chunk(seq: u32) -> Chunk<()> {
        Chunk::new(Seq(seq), 1, None)
    }

    fn numbers(queue: &Queue, chunks: &Chunks<()>) -> Vec<u32> {
        let mut idx = queue.head;
        core::iter::from_fn(|| {
            let chunk = chunks.get(idx)?;
            idx = chunk.next;
            Some(chunk.seq.0)
        })
        .collect()
    }

    #[test]
    fn split_keeps_every_byte_and_leaves_the_end_at_the_end() {
        let (mut queue, mut chunks) = (Queue::default(), Chunks::new(3));
        let mut whole = Chunk::new(Seq(10), 5, Some(b"order".to_vec()));
        whole.flags = PUSH | FIN | SENT;
        let idx = queue.push_back(&mut chunks, whole).unwrap();
        assert!(queue.split(&mut chunks, idx, 2));
        let tail = queue.tail;
        assert_eq!(
            (chunks[idx].end(), chunks[idx].flags, chunks[idx].payload.as_deref()),
            (Seq(12), SENT, Some(&b"or"[..]))
        );
        assert_eq!((chunks[tail].seq, chunks[tail].end(), chunks[tail].flags), (Seq(12), Seq(16), PUSH | FIN | SENT));
        assert!(queue.split(&mut chunks, tail, 3), "the FIN alone");
        let fin = queue.tail;
        assert_eq!((chunks[tail].flags, chunks[fin].flags, chunks[fin].len), (PUSH | SENT, FIN | SENT, 0));
        assert!(chunks[fin].payload.is_none() && chunks[fin].end() == Seq(16));
        assert!(!queue.split(&mut chunks, idx, 1), "the store is full");
        assert_eq!((chunks[idx].len, queue.count), (2, 3));
    }

    /// Numbers of the ring, walked both ways.
    fn ring_numbers(ring: Ring, chunks: &Chunks<()>) -> Vec<u32> {
        let walk = |step: fn(&Chunk<()>) -> u32| {
            let mut numbers = Vec::new();
            let mut idx = ring.head;
            while idx != NIL {
                numbers.push(chunks[idx].seq.0);
                idx = step(&chunks[idx]);
                if idx == ring.head {
                    break;
                }
            }
            numbers
        };
        let (forth, mut back) = (walk(|chunk| chunk.later), walk(|chunk| chunk.earlier));
        back[1..].reverse();
        assert_eq!(forth, back, "the links are each other's mirror");
        forth
    }

    #[test]
    fn what_is_acknowledged_leaves_queue_and_ring_in_whatever_order_it_was_sent() {
        for order in [[1, 2, 3, 4, 5], [2, 1, 3, 4, 5], [5, 4, 3, 2, 1], [3, 1, 4, 2, 5], [4, 5, 1, 2, 3]] {
            for acked in 0..5 {
                let (mut queue, mut chunks, mut ring) = (Queue::default(), Chunks::new(6), Ring::default());
                let idxs = [1, 2, 3, 4, 5].map(|number| queue.push_back(&mut chunks, chunk(number)).unwrap());
                for (at, number) in order.into_iter().enumerate() {
                    let idx = idxs[number as usize - 1];
                    (chunks[idx].flags, chunks[idx].sent_at) = (SENT, Instant::from_nanos(10 + at as u64));
                    ring.push_back(&mut chunks, idx);
                }
                let dropped = queue.drop_up_to(&mut chunks, &mut ring, Seq(1 + acked));
                let times = [0, acked.saturating_sub(1)].map(|idx| {
                    let at = order.iter().position(|&number| number == idx + 1).unwrap();
                    if acked == 0 { Instant::ZERO } else { Instant::from_nanos(10 + at as u64) }
                });
                assert_eq!(dropped, Dropped { count: acked, len: acked, oldest: times[0], newest: times[1] });
                assert_eq!(numbers(&queue, &chunks), (acked + 1..=5).collect::<Vec<_>>());
                let left: Vec<u32> = order.into_iter().filter(|&number| number > acked).collect();
                assert_eq!(
                    (ring_numbers(ring, &chunks), queue.count, chunks.len()),
                    (left, 5 - acked, 5 - acked as usize)
                );
            }
        }
    }

    #[test]
    fn nothing_that_was_not_sent_is_dropped_and_all_that_was_can_be() {
        let (mut queue, mut chunks, mut ring) = (Queue::default(), Chunks::new(3), Ring::default());
        for number in [1, 2, 3] {
            let idx = queue.push_back(&mut chunks, chunk(number)).unwrap();
            if number < 3 {
                chunks[idx].flags = SENT;
                ring.push_back(&mut chunks, idx);
            }
        }
        assert_eq!(queue.drop_up_to(&mut chunks, &mut ring, Seq(9)).count, 2);
        assert_eq!((ring.head, numbers(&queue, &chunks)), (NIL, vec![3]));
        let last = queue.head;
        chunks[last].flags = SENT;
        ring.push_back(&mut chunks, last);
        assert_eq!(queue.drop_up_to(&mut chunks, &mut ring, Seq(4)).count, 1);
        assert!(ring.head == NIL && queue.is_empty() && queue.tail == NIL && chunks.len() == 0);
    }

    #[test]
    fn chunks_stand_where_they_were_put() {
        let (mut queue, mut chunks) = (Queue::default(), Chunks::new(4));
        let two = queue.push_back(&mut chunks, chunk(2)).unwrap();
        queue.push_back(&mut chunks, chunk(4)).unwrap();
        queue.insert_after(&mut chunks, two, chunk(3)).unwrap();
        queue.insert_after(&mut chunks, NIL, chunk(1)).unwrap();
        assert_eq!(numbers(&queue, &chunks), [1, 2, 3, 4]);
        assert!(queue.push_back(&mut chunks, chunk(5)).is_err(), "the store is full");
        queue.remove(&mut chunks, two);
        assert_eq!((numbers(&queue, &chunks), queue.count), (vec![1, 3, 4], 3));
        queue.clear(&mut chunks);
        assert!(queue.is_empty() && queue.tail == NIL && chunks.len() == 0);
    }
}
