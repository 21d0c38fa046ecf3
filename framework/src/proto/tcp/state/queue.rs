//! Pieces of a byte stream that wait: unsent, unacknowledged, out of order, or unread by the app.
//! All connections share one store of links, allocated at the start; a queue is two ends and a
//! count.
//!
//! ```text
//!  sending    head ─ … sent, not acknowledged … ─▶ next_unsent ─ … not sent yet … ─▶ tail
//!  receiving  head ─ in order for the app ─▶ tail          out of order: sorted by number, with holes
//! ```

use crate::proto::slab::{NIL, Slab};
use crate::proto::tcp::payload::Payload;
use crate::proto::tcp::seq::Seq;
use crate::time::Instant;

/// A piece of a stream.
#[derive(Debug)]
pub(crate) struct Chunk<P> {
    pub(crate) seq: Seq,
    /// Bytes of the payload.
    pub(crate) len: u32,
    pub(crate) flags: u8,
    /// Retransmissions.
    pub(crate) resent: u8,
    /// Time of the last transmission (RFC 8985 5.1: Segment.xmit_ts).
    pub(crate) sent_at: Instant,
    /// `None` for a FIN that goes alone.
    pub(crate) payload: Option<P>,
    /// Links to the neighbors in the queue, and in its [`Lane`]. The two `next` links are adjacent
    /// because a new chunk has neither. SACKED chunks are in no lane: at both ends of a run of
    /// them, the lane's links point to the last and the first chunk of the run.
    pub(crate) next: u32,
    pub(crate) later: u32,
    pub(crate) prev: u32,
    pub(crate) earlier: u32,
}

/// The chunk ends an app's call: its segment has PSH.
pub(crate) const PUSH: u8 = 1 << 0;
/// A FIN follows the bytes and takes a number.
pub(crate) const FIN: u8 = 1 << 1;
/// It was sent.
pub(crate) const SENT: u8 = 1 << 2;
/// The peer has it, by SACK.
pub(crate) const SACKED: u8 = 1 << 3;
/// The chunk counts as lost and waits for a retransmission.
pub(crate) const LOST: u8 = 1 << 4;
/// The chunk was retransmitted since its last loss.
pub(crate) const RESENT: u8 = 1 << 5;

/// The fields of a segment that has left for the first time: it becomes a [`Chunk`] in place.
pub(crate) struct SentChunk<P> {
    pub(crate) seq: Seq,
    pub(crate) len: u32,
    pub(crate) flags: u8,
    pub(crate) sent_at: Instant,
    pub(crate) payload: P,
}

impl<P> Chunk<P> {
    pub(crate) fn new(seq: Seq, len: u32, payload: Option<P>) -> Self {
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

    /// Sequence numbers that it takes.
    #[inline]
    pub(crate) fn seq_len(&self) -> u32 {
        self.len + u32::from(self.has(FIN))
    }

    /// The number behind it.
    #[inline]
    pub(crate) fn end(&self) -> Seq {
        self.seq + self.seq_len()
    }

    #[inline]
    pub(crate) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// The chunks of all connections.
pub(crate) type Chunks<P> = Slab<Chunk<P>>;

/// A list of chunks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Queue {
    pub(in crate::proto::tcp) head: u32,
    pub(in crate::proto::tcp) tail: u32,
    pub(in crate::proto::tcp) count: u32,
}

impl Default for Queue {
    fn default() -> Self {
        Self { head: NIL, tail: NIL, count: 0 }
    }
}

impl Queue {
    #[inline]
    pub(in crate::proto::tcp) fn is_empty(&self) -> bool {
        self.head == NIL
    }

    /// Appends a chunk, and returns its index; returns the chunk where the store is full.
    #[inline(always)]
    pub(in crate::proto::tcp) fn push_back<P>(
        &mut self,
        chunks: &mut Chunks<P>,
        chunk: Chunk<P>,
    ) -> Result<u32, Chunk<P>> {
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

    /// Appends a chunk that was sent just now, also to those in flight. Panics where the store is
    /// full.
    #[inline(always)]
    pub(in crate::proto::tcp) fn push_sent<P>(
        &mut self,
        in_flight: &mut Lane,
        chunks: &mut Chunks<P>,
        sent: SentChunk<P>,
    ) {
        let (prev, earlier) = (self.tail, in_flight.tail);
        let Some(place) = chunks.vacancy() else {
            // If it could be dropped on the way, the compiler would have to keep it in memory all
            // the time.
            core::mem::forget(sent);
            panic!("room in the store was seen before");
        };
        let SentChunk { seq, len, flags, sent_at, payload } = sent;
        let idx = place.fill(Chunk {
            seq,
            len,
            flags: flags | SENT,
            resent: 0,
            sent_at,
            payload: Some(payload),
            next: NIL,
            prev,
            later: NIL,
            earlier,
        });
        if prev == earlier {
            // The last chunk of the queue was sent last, as nearly always: one access for both
            // links.
            match chunks.get_mut(prev) {
                Some(last) => (last.next, last.later) = (idx, idx),
                None => (self.head, in_flight.head) = (idx, idx),
            }
        } else {
            self.link_apart(in_flight, chunks, idx);
        }
        (self.tail, in_flight.tail) = (idx, idx);
        self.count += 1;
    }

    /// Links the new chunk after the last ones of queue and lane, which differ.
    #[cold]
    fn link_apart<P>(&mut self, in_flight: &mut Lane, chunks: &mut Chunks<P>, idx: u32) {
        match self.tail {
            NIL => self.head = idx,
            prev => chunks[prev].next = idx,
        }
        match in_flight.tail {
            NIL => in_flight.head = idx,
            earlier => chunks[earlier].later = idx,
        }
    }

    /// Inserts a chunk after the one at `prev`; in front of all where that is `NIL`.
    pub(in crate::proto::tcp) fn insert_after<P>(
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

    /// Frees the sent chunks at the front that end at `end` or before. They are in `lane`, most
    /// often at its front, so its new head is stored once for all of them.
    #[inline(always)]
    pub(in crate::proto::tcp) fn drop_up_to<P>(
        &mut self,
        chunks: &mut Chunks<P>,
        lane: &mut Lane,
        end: Seq,
    ) -> Dropped {
        let mut dropped = Dropped::default();
        let (mut idx, mut first) = (self.head, lane.head);
        while let Some(chunk) = chunks.get(idx).filter(|chunk| chunk.has(SENT) && !chunk.end().is_after(end)) {
            let (next, later) = (chunk.next, chunk.later);
            if dropped.count == 0 {
                dropped.oldest = chunk.sent_at;
            }
            (dropped.count, dropped.len, dropped.newest) = (dropped.count + 1, dropped.len + chunk.len, chunk.sent_at);
            if idx == first {
                first = later;
            } else {
                lane.begin_at(chunks, first);
                lane.remove(chunks, idx);
                first = lane.head;
            }
            chunks.drop_item(idx);
            idx = next;
        }
        lane.begin_at(chunks, first);
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
    pub(in crate::proto::tcp) fn remove<P>(&mut self, chunks: &mut Chunks<P>, idx: u32) -> Chunk<P> {
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

    /// Splits the chunk at `idx` after its first `at` bytes. The rest becomes a new chunk with the
    /// same fields, and is in no lane yet. Returns `None` and changes nothing where the store or
    /// the payload cannot do it now.
    pub(in crate::proto::tcp) fn split<P: Payload>(
        &mut self,
        chunks: &mut Chunks<P>,
        idx: u32,
        at: u32,
    ) -> Option<u32> {
        if chunks.free_count() == 0 {
            return None;
        }
        let chunk = &mut chunks[idx];
        // Behind all bytes there is still a FIN.
        let payload = if at == chunk.len { None } else { Some(chunk.payload.as_mut()?.split_off(at as usize)?) };
        let ends_call = chunk.flags & PUSH;
        let mut rest = Chunk::new(chunk.seq + at, chunk.len - at, payload);
        (rest.flags, rest.resent, rest.sent_at) = (chunk.flags, chunk.resent, chunk.sent_at);
        chunk.flags &= !(PUSH | FIN);
        if rest.len == 0 {
            (chunk.flags, rest.flags) = (chunk.flags | ends_call, rest.flags & !PUSH);
        }
        chunk.len = at;
        let rest = self.insert_after(chunks, idx, rest);
        debug_assert!(rest.is_ok(), "there was room above");
        rest.ok()
    }

    /// Merges the next chunk into the one at `idx`. Both wait in `lane`, so their flags are equal
    /// except for those of the second one's end. Returns false and changes nothing where the
    /// payload cannot do it now.
    pub(in crate::proto::tcp) fn join<P: Payload>(
        &mut self,
        chunks: &mut Chunks<P>,
        idx: u32,
        lane: &mut Lane,
    ) -> bool {
        let next = chunks[idx].next;
        let Some(mut payload) = chunks[idx].payload.take() else { return false };
        let is_joined = match &chunks[next].payload {
            Some(more) => payload.join(more),
            // A FIN alone.
            None => true,
        };
        chunks[idx].payload = Some(payload);
        if !is_joined {
            return false;
        }
        lane.remove(chunks, next);
        let next = self.remove(chunks, next);
        let chunk = &mut chunks[idx];
        chunk.len += next.len;
        chunk.flags |= next.flags & (PUSH | FIN);
        chunk.resent = chunk.resent.max(next.resent);
        chunk.sent_at = chunk.sent_at.max(next.sent_at);
        true
    }

    /// Copies `len` bytes into the last chunk. Returns false and changes nothing where there is no
    /// chunk or it has no room.
    pub(in crate::proto::tcp) fn append_to_last<P: Payload>(
        &mut self,
        chunks: &mut Chunks<P>,
        payload: &P,
        len: u32,
    ) -> bool {
        let Some(last) = chunks.get_mut(self.tail) else { return false };
        let is_joined = last.payload.as_mut().is_some_and(|bytes| bytes.join(payload));
        if is_joined {
            last.len += len;
        }
        is_joined
    }

    /// Takes the first chunk out.
    #[inline]
    pub(in crate::proto::tcp) fn pop_front<P>(&mut self, chunks: &mut Chunks<P>) -> Option<Chunk<P>> {
        (self.head != NIL).then(|| self.remove(chunks, self.head))
    }

    /// Frees all.
    pub(in crate::proto::tcp) fn clear<P>(&mut self, chunks: &mut Chunks<P>) {
        while self.pop_front(chunks).is_some() {}
    }
}

/// The result of [`Queue::drop_up_to`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Dropped {
    pub(crate) count: u32,
    /// Bytes of all payloads.
    pub(crate) len: u32,
    /// The times at which the first and the last of them were sent; the default where there was
    /// none.
    pub(crate) oldest: Instant,
    pub(crate) newest: Instant,
}

/// Whether a chunk with such flags is in a [`Lane`]: all sent chunks but SACKED ones are.
#[inline]
pub(crate) fn is_in_lane(flags: u8) -> bool {
    flags & SENT != 0 && flags & SACKED == 0
}

/// Chunks of a queue in another order than that of their numbers: a second pair of links.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lane {
    pub(crate) head: u32,
    pub(crate) tail: u32,
}

impl Default for Lane {
    fn default() -> Self {
        Self { head: NIL, tail: NIL }
    }
}

impl Lane {
    /// Appends a chunk.
    #[inline(always)]
    pub(crate) fn push_back<P>(&mut self, chunks: &mut Chunks<P>, idx: u32) {
        let earlier = self.tail;
        match earlier {
            NIL => self.head = idx,
            earlier => chunks[earlier].later = idx,
        }
        self.tail = idx;
        let chunk = &mut chunks[idx];
        (chunk.earlier, chunk.later) = (earlier, NIL);
    }

    /// Prepends a chunk.
    pub(crate) fn push_front<P>(&mut self, chunks: &mut Chunks<P>, idx: u32) {
        let later = self.head;
        match later {
            NIL => self.tail = idx,
            later => chunks[later].earlier = idx,
        }
        self.head = idx;
        let chunk = &mut chunks[idx];
        (chunk.earlier, chunk.later) = (NIL, later);
    }

    /// Inserts a chunk by its time, before others of the same time. The search begins at `near`, a
    /// member or `NIL`, so that inserting many in the order of their times reads the lane once.
    pub(crate) fn insert_by_time<P>(&mut self, chunks: &mut Chunks<P>, idx: u32, near: u32) {
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
            if next == NIL || sent_at <= chunks[next].sent_at {
                return self.insert_after(chunks, before, idx);
            }
            before = next;
        }
    }

    /// Inserts a chunk after the one at `earlier`.
    pub(crate) fn insert_after<P>(&mut self, chunks: &mut Chunks<P>, earlier: u32, idx: u32) {
        let later = core::mem::replace(&mut chunks[earlier].later, idx);
        match later {
            NIL => self.tail = idx,
            later => chunks[later].earlier = idx,
        }
        let chunk = &mut chunks[idx];
        (chunk.earlier, chunk.later) = (earlier, later);
    }

    /// Takes a chunk out.
    #[inline]
    pub(crate) fn remove<P>(&mut self, chunks: &mut Chunks<P>, idx: u32) {
        let (earlier, later) = (chunks[idx].earlier, chunks[idx].later);
        match earlier {
            NIL => self.head = later,
            earlier => chunks[earlier].later = later,
        }
        match later {
            NIL => self.tail = earlier,
            later => chunks[later].earlier = earlier,
        }
    }

    /// Makes `first` the head after the chunks before it were removed without updating links; `NIL`
    /// where no chunk is left.
    #[inline]
    fn begin_at<P>(&mut self, chunks: &mut Chunks<P>, first: u32) {
        self.head = first;
        match first {
            NIL => self.tail = NIL,
            first => chunks[first].earlier = NIL,
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
        let tail = queue.split(&mut chunks, idx, 2).unwrap();
        assert_eq!(tail, queue.tail);
        assert_eq!(
            (chunks[idx].end(), chunks[idx].flags, chunks[idx].payload.as_deref()),
            (Seq(12), SENT, Some(&b"or"[..]))
        );
        assert_eq!((chunks[tail].seq, chunks[tail].end(), chunks[tail].flags), (Seq(12), Seq(16), PUSH | FIN | SENT));
        let fin = queue.split(&mut chunks, tail, 3).expect("the FIN alone");
        assert_eq!((chunks[tail].flags, chunks[fin].flags, chunks[fin].len), (PUSH | SENT, FIN | SENT, 0));
        assert!(chunks[fin].payload.is_none() && chunks[fin].end() == Seq(16));
        assert_eq!(queue.split(&mut chunks, idx, 1), None, "the store is full");
        assert_eq!((chunks[idx].len, queue.count), (2, 3));
    }

    #[test]
    fn join_is_the_inverse_of_split() {
        let (mut queue, mut chunks, mut lane) = (Queue::default(), Chunks::new(4), Lane::default());
        let mut whole = Chunk::new(Seq(10), 5, Some(b"order".to_vec()));
        (whole.flags, whole.resent) = (PUSH | FIN | SENT | LOST, 2);
        let idx = queue.push_back(&mut chunks, whole).unwrap();
        lane.push_back(&mut chunks, idx);
        for cuts in [&[2][..], &[5], &[5, 1], &[4, 3, 1]] {
            for &at in cuts {
                let rest = queue.split(&mut chunks, idx, at).unwrap();
                lane.insert_after(&mut chunks, idx, rest);
            }
            cuts.iter().for_each(|_| assert!(queue.join(&mut chunks, idx, &mut lane)));
            let chunk = &chunks[idx];
            assert_eq!((chunk.len, chunk.end(), chunk.payload.as_deref()), (5, Seq(16), Some(&b"order"[..])));
            assert_eq!((chunk.flags, chunk.resent, queue.count, queue.tail), (PUSH | FIN | SENT | LOST, 2, 1, idx));
            assert_eq!((chunk.earlier, chunk.later, lane.head, lane.tail, chunks.len()), (NIL, NIL, idx, idx, 1));
        }
    }

    /// Numbers of the lane, walked both ways.
    fn lane_numbers(lane: Lane, chunks: &Chunks<()>) -> Vec<u32> {
        let walk = |from: u32, step: fn(&Chunk<()>) -> u32| {
            let (mut numbers, mut idx) = (Vec::new(), from);
            while let Some(chunk) = chunks.get(idx) {
                numbers.push(chunk.seq.0);
                idx = step(chunk);
            }
            numbers
        };
        let (forth, mut back) = (walk(lane.head, |chunk| chunk.later), walk(lane.tail, |chunk| chunk.earlier));
        back.reverse();
        assert_eq!(forth, back, "the links are each other's mirror");
        forth
    }

    #[test]
    fn what_is_acknowledged_leaves_queue_and_lane_in_whatever_order_it_was_sent() {
        for order in [[1, 2, 3, 4, 5], [2, 1, 3, 4, 5], [5, 4, 3, 2, 1], [3, 1, 4, 2, 5], [4, 5, 1, 2, 3]] {
            for acked in 0..5 {
                let (mut queue, mut chunks, mut lane) = (Queue::default(), Chunks::new(6), Lane::default());
                let idxs = [1, 2, 3, 4, 5].map(|number| queue.push_back(&mut chunks, chunk(number)).unwrap());
                for (at, number) in order.into_iter().enumerate() {
                    let idx = idxs[number as usize - 1];
                    (chunks[idx].flags, chunks[idx].sent_at) = (SENT, Instant::from_nanos(10 + at as u64));
                    lane.push_back(&mut chunks, idx);
                }
                let dropped = queue.drop_up_to(&mut chunks, &mut lane, Seq(1 + acked));
                let times = [0, acked.saturating_sub(1)].map(|idx| {
                    let at = order.iter().position(|&number| number == idx + 1).unwrap();
                    if acked == 0 { Instant::ZERO } else { Instant::from_nanos(10 + at as u64) }
                });
                assert_eq!(dropped, Dropped { count: acked, len: acked, oldest: times[0], newest: times[1] });
                assert_eq!(numbers(&queue, &chunks), (acked + 1..=5).collect::<Vec<_>>());
                let left: Vec<u32> = order.into_iter().filter(|&number| number > acked).collect();
                assert_eq!(
                    (lane_numbers(lane, &chunks), queue.count, chunks.len()),
                    (left, 5 - acked, 5 - acked as usize)
                );
            }
        }
    }

    #[test]
    fn nothing_that_was_not_sent_is_dropped_and_all_that_was_can_be() {
        let (mut queue, mut chunks, mut lane) = (Queue::default(), Chunks::new(3), Lane::default());
        for number in [1, 2, 3] {
            let idx = queue.push_back(&mut chunks, chunk(number)).unwrap();
            if number < 3 {
                chunks[idx].flags = SENT;
                lane.push_back(&mut chunks, idx);
            }
        }
        assert_eq!(queue.drop_up_to(&mut chunks, &mut lane, Seq(9)).count, 2);
        assert_eq!((lane.head, numbers(&queue, &chunks)), (NIL, vec![3]));
        let last = queue.head;
        chunks[last].flags = SENT;
        lane.push_back(&mut chunks, last);
        assert_eq!(queue.drop_up_to(&mut chunks, &mut lane, Seq(4)).count, 1);
        assert!(lane.head == NIL && queue.is_empty() && queue.tail == NIL && chunks.len() == 0);
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
