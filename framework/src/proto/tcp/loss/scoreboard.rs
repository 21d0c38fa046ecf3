//! The scoreboard of sent chunks: SACK's marks (RFC 2018, RFC 6675), reports of duplicates (RFC
//! 2883), and the byte sums that follow from the marks.
//!
//! ```text
//!  send queue    [ sent ][ SACKED ][ SACKED ][ LOST ][ RESENT ][ sent ] … never sent …
//!                    │     └── a run ──┘        │        │         │
//!  in_flight  ───────┴──────────────────────────┼────────┴─────────┘     by the time of the last transmission
//!  lost       ──────────────────────────────────┘                        to be sent again, lowest first
//! ```
//!
//! The cost of an acknowledgment does not depend on the data in flight. Each chunk is marked once.
//! A run of SACKED chunks stores both its ends, so that a search passes a run in one step. The
//! search for a block begins at the nearest of three positions, one of them the end of the last
//! search, and all searches of an acknowledgment together take at most [`STEPS_MAX`] steps. Where
//! these do not suffice, the block is left for the next acknowledgment, whose search begins where
//! this one stopped. Chunks are cut only at borders of whole segments, so a peer cannot cause more
//! chunks than there would be segments.
//!
//! This file only marks. `rack` and `recovery` decide which chunks are lost; neither is anything
//! sent here.

use super::recovery::AckSample;
use crate::proto::slab::NIL;
use crate::proto::tcp::machine::Context;
use crate::proto::tcp::output::interface::Output;
use crate::proto::tcp::payload::Payload;
use crate::proto::tcp::segment::{Range, Segment};
use crate::proto::tcp::seq::Seq;
use crate::proto::tcp::state::connection::{Connection, InputFlags, LossFlags, Scoreboard};
use crate::proto::tcp::state::queue::{Chunks, LOST, Lane, RESENT, SACKED, SENT, is_in_lane};

/// Steps of the searches for SACK blocks, in one acknowledgment. More than the segments between two
/// acknowledgments of a correct peer.
pub(crate) const STEPS_MAX: u32 = 128;

impl<P: Payload, O: Output<P>> Context<'_, P, O> {
    /// Applies the SACK option: marks chunks that have arrived, and records them in `ack_sample`.
    /// Blocks of unsent data are ignored.
    pub(crate) fn apply_sacks(&mut self, segment: &Segment, ack_sample: &mut AckSample) {
        let mut blocks = segment.sacks();
        if let Some(duplicate) = duplicate(blocks, segment.ack) {
            self.take_dsack(duplicate, ack_sample);
            blocks = &blocks[1..];
        }
        let mut steps = STEPS_MAX;
        for &block in blocks {
            // A block that contains SND.UNA, or ends before it, is old. A block that ends beyond
            // SND.NXT, or before its own start, is forged.
            let connection = &*self.connection;
            let is_ours = block.left.is_after(connection.snd.una) && block.right.is_at_most(connection.snd.nxt);
            if is_ours && block.right.is_after(block.left) {
                self.mark_block(block, &mut steps, ack_sample);
            }
        }
    }

    /// The peer got data twice (RFC 2883 4): our retransmission was needless.
    fn take_dsack(&mut self, range: Range, ack_sample: &mut AckSample) {
        let connection = &mut *self.connection;
        let oldest = connection.snd.una - connection.rare_snd.wnd_max.max(connection.congestion.cwnd);
        if range.is_empty() || range.left.is_before(oldest) || range.right.is_after(connection.snd.nxt) {
            return;
        }
        connection.rare_tally.dsacks = connection.rare_tally.dsacks.saturating_add(1);
        self.shared.tally.dsacks_in += 1;
        ack_sample.dsack = Some(range);
        // Data from after the recovery may have been repeated by a needless probe, or by the
        // network.
        let is_of_recovery = range.left.is_at_least(connection.loss.undo.marker)
            && range.right.is_at_most(connection.loss.recovery_point);
        if connection.has(LossFlags::UNDO) && is_of_recovery && connection.loss.undo.resent != 0 {
            let count = (range.right - range.left).div_ceil(u32::from(connection.snd.mss).max(1));
            connection.loss.undo.resent = connection.loss.undo.resent.saturating_sub(count);
            ack_sample.resends_were_needless = connection.loss.undo.resent == 0;
        }
    }

    /// Marks the chunks of a block that lie within `snd_una..snd.nxt`.
    fn mark_block(&mut self, block: Range, steps: &mut u32, ack_sample: &mut AckSample) {
        let mut idx = self.find(block.left, steps);
        while idx != NIL {
            let chunk = &self.shared.chunks[idx];
            if !chunk.has(SENT) || chunk.seq.is_at_least(block.right) {
                return;
            }
            if chunk.has(SACKED) {
                idx = self.shared.chunks[chunk.later].next;
                continue;
            }
            let is_whole = chunk.seq.is_at_least(block.left) && chunk.end().is_at_most(block.right);
            let marked = if is_whole { idx } else { self.cut_out(idx, block) };
            if marked == NIL {
                idx = self.shared.chunks[idx].next;
                continue;
            }
            self.mark_sacked(marked, ack_sample);
            idx = self.shared.chunks[marked].next;
        }
    }

    /// The first chunk that ends after `left` and is not SACKED; `NIL` where there is none, or it
    /// is too far for this acknowledgment.
    fn find(&mut self, left: Seq, steps: &mut u32) -> u32 {
        let (connection, chunks) = (&mut *self.connection, &self.shared.chunks);
        let mut idx = nearest(connection, chunks, left);
        // The queue's head begins at SND.UNA, which is before any block.
        while idx != NIL && chunks[idx].seq.is_after(left) {
            if *steps == 0 {
                connection.sack.hint = idx;
                return NIL;
            }
            *steps -= 1;
            let chunk = &chunks[idx];
            idx = if chunk.has(SACKED) { chunks[chunk.earlier].prev } else { chunk.prev };
        }
        while let Some(chunk) = chunks.get(idx).filter(|chunk| chunk.has(SENT)) {
            if !chunk.has(SACKED) && chunk.end().is_after(left) {
                return idx;
            }
            if *steps == 0 {
                connection.sack.hint = idx;
                return NIL;
            }
            *steps -= 1;
            idx = if chunk.has(SACKED) { chunks[chunk.later].next } else { chunk.next };
        }
        NIL
    }

    /// Splits a chunk that is longer than a segment at the borders of a block, rounded to segments;
    /// `NIL` where nothing is left.
    #[cold]
    fn cut_out(&mut self, idx: u32, block: Range) -> u32 {
        let mss = u32::from(self.connection.snd.mss).max(1);
        let chunk = &self.shared.chunks[idx];
        let (seq, end) = (chunk.seq, chunk.end());
        let left = if block.left.is_after(seq) { (block.left - seq).div_ceil(mss) * mss } else { 0 };
        let right = if block.right.is_at_least(end) { end - seq } else { (block.right - seq) / mss * mss };
        if left >= right {
            return NIL;
        }
        let (connection, chunks) = (&mut *self.connection, &mut self.shared.chunks);
        if left > 0 && !connection.split(chunks, idx, left) {
            return NIL;
        }
        let inner = if left > 0 { chunks[idx].next } else { idx };
        if right < end - seq && !connection.split(chunks, inner, right - left) {
            return NIL;
        }
        inner
    }

    /// The peer has the chunk.
    fn mark_sacked(&mut self, idx: u32, ack_sample: &mut AckSample) {
        self.leave_lane(idx);
        let (connection, chunks) = (&mut *self.connection, &mut self.shared.chunks);
        let chunk = &mut chunks[idx];
        let len = chunk.seq_len();
        ack_sample.delivered += len;
        if chunk.has(LOST) {
            connection.sack.lost_len -= len;
        }
        if chunk.has(RESENT) {
            connection.sack.resent_len -= len;
        }
        chunk.flags = chunk.flags & !(LOST | RESENT) | SACKED;
        connection.sack.sacked_len += len;
        connection.sack.sacked_count += 1;
        let (seq, end, sent_at, resent) = (chunk.seq, chunk.end(), chunk.sent_at, chunk.resent);
        self.join_runs(idx);
        if self.connection.has(InputFlags::MSS_PROBE) {
            self.confirm_mtu_probe(seq, len);
        }
        self.note_delivered(end, sent_at, resent, ack_sample);
    }

    /// Merges the runs of a chunk and its SACKED neighbors.
    fn join_runs(&mut self, idx: u32) {
        let chunks = &mut self.shared.chunks;
        let (prev, next) = (chunks[idx].prev, chunks[idx].next);
        let first = chunks.get(prev).filter(|chunk| chunk.has(SACKED)).map_or(idx, |chunk| chunk.earlier);
        let last = chunks.get(next).filter(|chunk| chunk.has(SACKED)).map_or(idx, |chunk| chunk.later);
        set_run(chunks, first, last);
        self.connection.sack.hint = last;
    }

    /// The chunk counts as lost: it is to be sent again.
    pub(crate) fn mark_lost(&mut self, idx: u32) {
        let flags = self.shared.chunks[idx].flags;
        debug_assert!(flags & SENT != 0 && flags & SACKED == 0, "lost is what was sent and did not arrive");
        if flags & LOST != 0 && flags & RESENT == 0 {
            return;
        }
        self.leave_lane(idx);
        let (connection, chunks) = (&mut *self.connection, &mut self.shared.chunks);
        let chunk = &mut chunks[idx];
        let (seq, len) = (chunk.seq, chunk.seq_len());
        if chunk.has(RESENT) {
            connection.sack.resent_len -= len;
        }
        if !chunk.has(LOST) {
            connection.sack.lost_len += len;
        }
        chunk.flags = chunk.flags & !RESENT | LOST;
        // Chunks sent first are found lost first, so the order is that of the numbers, except for
        // retransmissions that are lost again.
        let is_first = chunks.get(connection.loss.lost.head).is_some_and(|head| seq.is_before(head.seq));
        if is_first {
            connection.loss.lost.push_front(chunks, idx);
        } else {
            connection.loss.lost.push_back(chunks, idx);
        }
    }

    /// All chunks that are not SACKED count as lost, in the order of the numbers.
    pub(crate) fn mark_all_lost(&mut self) {
        let mut idx = self.connection.send.queue.head;
        while let Some(chunk) = self.shared.chunks.get(idx).filter(|chunk| chunk.has(SENT)) {
            let (flags, next) = (chunk.flags, chunk.next);
            if flags & SACKED == 0 {
                self.mark_lost(idx);
                // Moves the chunk to its position by number; the first of the other chunks may not
                // be in order yet.
                self.connection.loss.lost.remove(&mut self.shared.chunks, idx);
                self.connection.loss.lost.push_back(&mut self.shared.chunks, idx);
            }
            idx = next;
        }
    }

    /// Chunks that wait for a retransmission were not lost after all. The work is proportional to
    /// their number, once in a recovery. They are inserted from the last to the first, because most
    /// were sent before everything in flight, and the position of each is then beside that of the
    /// previous one.
    pub(crate) fn unmark_lost(&mut self) {
        let (connection, chunks) = (&mut *self.connection, &mut self.shared.chunks);
        let mut near = NIL;
        while connection.loss.lost.head != NIL {
            let last = connection.loss.lost.tail;
            connection.loss.lost.remove(chunks, last);
            let chunk = &mut chunks[last];
            chunk.flags &= !LOST;
            connection.sack.lost_len -= chunk.seq_len();
            connection.send.in_flight.insert_by_time(chunks, last, near);
            near = last;
        }
    }

    /// Clears SACK's marks: the peer has discarded the data (RFC 2018 8).
    pub(crate) fn forget_sacks(&mut self) {
        let (connection, chunks) = (&mut *self.connection, &mut self.shared.chunks);
        let mut idx = connection.send.queue.head;
        while let Some(chunk) = chunks.get_mut(idx).filter(|chunk| chunk.has(SENT)) {
            let next = chunk.next;
            if chunk.has(SACKED) {
                chunk.flags &= !SACKED;
                connection.send.in_flight.push_back(chunks, idx);
            }
            idx = next;
        }
        (connection.sack.sacked_len, connection.sack.sacked_count, connection.sack.hint) = (0, 0, NIL);
    }

    /// A chunk has left.
    #[inline(always)]
    pub(crate) fn mark_sent(&mut self, idx: u32, is_resent: bool) {
        let now = self.now;
        if is_resent {
            return self.out_of_line().mark_resent(idx);
        }
        let chunk = &mut self.shared.chunks[idx];
        chunk.flags |= SENT;
        chunk.sent_at = now;
        self.connection.send.in_flight.push_back(&mut self.shared.chunks, idx);
    }

    #[cold]
    fn mark_resent(&mut self, idx: u32) {
        let now = self.now;
        if self.shared.chunks[idx].has(SACKED) {
            return;
        }
        self.leave_lane(idx);
        let (connection, chunks) = (&mut *self.connection, &mut self.shared.chunks);
        let chunk = &mut chunks[idx];
        chunk.sent_at = now;
        chunk.resent = chunk.resent.saturating_add(1);
        if !chunk.has(RESENT) {
            connection.sack.resent_len += chunk.seq_len();
            chunk.flags |= RESENT;
        }
        connection.send.in_flight.push_back(chunks, idx);
    }

    /// Frees chunks that SND.UNA has passed, where some may be marked.
    pub(crate) fn free_marked(&mut self, ack_sample: &mut AckSample) {
        while let Some(first) = self.shared.chunks.get(self.connection.send.queue.head) {
            if !first.has(SENT) || first.end().is_after(self.connection.snd.una) {
                break;
            }
            self.free_first(ack_sample);
        }
        if self.is_first_cut() {
            self.cut_first(ack_sample);
        }
        if self.connection.sack.sacked_len == 0 && self.connection.snd.flight() == 0 {
            self.connection.sack.hint = NIL;
        }
    }

    fn free_first(&mut self, ack_sample: &mut AckSample) {
        let idx = self.connection.send.queue.head;
        self.leave_lane(idx);
        let (connection, chunks) = (&mut *self.connection, &mut self.shared.chunks);
        let chunk = &chunks[idx];
        let (len, next, flags) = (chunk.seq_len(), chunk.next, chunk.flags);
        let (seq, end, sent_at, resent) = (chunk.seq, chunk.end(), chunk.sent_at, chunk.resent);
        if flags & SACKED != 0 {
            connection.sack.sacked_len -= len;
            connection.sack.sacked_count -= 1;
            let last = chunk.later;
            if last != idx {
                set_run(chunks, next, last);
            }
        }
        if flags & LOST != 0 {
            connection.sack.lost_len -= len;
        }
        if flags & RESENT != 0 {
            connection.sack.resent_len -= len;
        }
        if connection.sack.hint == idx {
            connection.sack.hint = if connection.sack.sacked_len == 0 { NIL } else { next };
        }
        connection.send.shrink(chunks[idx].len);
        connection.send.queue.remove(chunks, idx);
        if flags & SACKED == 0 {
            ack_sample.delivered += len;
            ack_sample.oldest_sent_at.get_or_insert(sent_at);
            ack_sample.resent |= resent != 0;
            if self.connection.has(InputFlags::MSS_PROBE) {
                self.confirm_mtu_probe(seq, len);
            }
            self.note_delivered(end, sent_at, resent, ack_sample);
        }
    }

    /// Whether SND.UNA is in the middle of the first chunk.
    #[inline(always)]
    pub(crate) fn is_first_cut(&self) -> bool {
        let first = self.shared.chunks.get(self.connection.send.queue.head);
        first.is_some_and(|first| first.has(SENT) && first.seq.is_before(self.connection.snd.una))
    }

    /// Frees the bytes before SND.UNA.
    #[cold]
    pub(crate) fn cut_first(&mut self, ack_sample: &mut AckSample) {
        let connection = &mut *self.connection;
        let chunk = &mut self.shared.chunks[connection.send.queue.head];
        let count = connection.snd.una - chunk.seq;
        chunk.seq = connection.snd.una;
        chunk.len -= count;
        if chunk.len == 0 {
            chunk.payload = None;
        } else if let Some(payload) = &mut chunk.payload {
            payload.advance(count as usize);
        }
        connection.send.shrink(count);
        let sums = [
            (SACKED, &mut connection.sack.sacked_len),
            (LOST, &mut connection.sack.lost_len),
            (RESENT, &mut connection.sack.resent_len),
        ];
        for (mark, sum) in sums {
            if chunk.has(mark) {
                *sum -= count;
            }
        }
        if !chunk.has(SACKED) {
            ack_sample.delivered += count;
        }
    }

    fn leave_lane(&mut self, idx: u32) {
        let (connection, chunks) = (&mut *self.connection, &mut self.shared.chunks);
        if let Some(lane) = connection.lane_of(chunks[idx].flags) {
            lane.remove(chunks, idx);
        }
    }
}

impl Connection {
    /// Splits a chunk in two; the second follows the first in the same lane. Returns false and
    /// changes nothing where that is not possible now.
    pub(crate) fn split<P: Payload>(&mut self, chunks: &mut Chunks<P>, idx: u32, at: u32) -> bool {
        let Some(rest) = self.send.queue.split(chunks, idx, at) else { return false };
        if let Some(lane) = self.lane_of(chunks[idx].flags) {
            lane.insert_after(chunks, idx, rest);
        }
        true
    }

    /// Merges the next chunk into the one at `idx`, where both wait to be sent again. Returns false
    /// and changes nothing where that is not possible now.
    pub(crate) fn join<P: Payload>(&mut self, chunks: &mut Chunks<P>, idx: u32) -> bool {
        let next = chunks[idx].next;
        let is_joined = self.send.queue.join(chunks, idx, &mut self.loss.lost);
        if is_joined && self.sack.hint == next {
            self.sack.hint = idx;
        }
        is_joined
    }

    /// Nothing is in flight any more.
    pub(crate) fn forget_losses(&mut self) {
        (self.sack, self.loss.lost) = (Scoreboard::CLEAR, Lane::default());
        self.clear(LossFlags::PROBE_DUE | LossFlags::PROBE_OUT);
    }

    /// The lane of a chunk with such flags.
    fn lane_of(&mut self, flags: u8) -> Option<&mut Lane> {
        let is_waiting = flags & (LOST | RESENT) == LOST;
        let lane = if is_waiting { &mut self.loss.lost } else { &mut self.send.in_flight };
        is_in_lane(flags).then_some(lane)
    }
}

/// Stores the ends of a run at both of them.
fn set_run<P>(chunks: &mut Chunks<P>, first: u32, last: u32) {
    for end in [first, last] {
        let chunk = &mut chunks[end];
        (chunk.earlier, chunk.later) = (first, last);
    }
}

/// The start of a search for `left`: the first chunk, the last that was sent, or the end of the
/// last search. All of them are ends of runs, or in none.
fn nearest<P>(connection: &Connection, chunks: &Chunks<P>, left: Seq) -> u32 {
    let last_sent = match connection.send.next_unsent {
        NIL => connection.send.queue.tail,
        next => chunks[next].prev,
    };
    let distance = |idx: u32| match chunks.get(idx) {
        Some(chunk) if chunk.seq.is_after(left) => chunk.seq - left,
        Some(chunk) => left - chunk.seq,
        None => u32::MAX,
    };
    let mut nearest = connection.send.queue.head;
    for idx in [connection.sack.hint, last_sent] {
        if distance(idx) < distance(nearest) {
            nearest = idx;
        }
    }
    nearest
}

/// The first block where it reports a duplicate: it lies before the acknowledgment, or within the
/// second (RFC 2883 4).
fn duplicate(blocks: &[Range], ack: Seq) -> Option<Range> {
    let &first = blocks.first()?;
    let is_before = first.left.is_before(ack);
    let is_within =
        blocks.get(1).is_some_and(|second| first.left.is_at_least(second.left) && first.right.is_at_most(second.right));
    (is_before || is_within).then_some(first)
}

#[cfg(test)]
impl Connection {
    /// Recomputes the sums, lanes and runs from the queue, and compares.
    pub(crate) fn check_scoreboard<P>(&self, chunks: &Chunks<P>) {
        let (mut sacked, mut lost, mut resent, mut count) = (0, 0, 0, 0);
        let (mut in_flight, mut waiting) = (Vec::new(), Vec::new());
        let (mut idx, mut seq, mut is_sent) = (self.send.queue.head, self.snd.una, true);
        while let Some(chunk) = chunks.get(idx) {
            assert_eq!(chunk.seq, seq, "chunks stand in the order of their numbers without gaps");
            assert!(is_sent || !chunk.has(SENT), "what was sent stands before what was not");
            is_sent = chunk.has(SENT);
            if !is_sent && self.send.next_unsent != NIL {
                assert!(chunks[self.send.next_unsent].seq.is_at_most(chunk.seq));
            }
            if chunk.has(SACKED) {
                (sacked, count) = (sacked + chunk.seq_len(), count + 1);
                assert!(!chunk.has(LOST) && !chunk.has(RESENT));
                let is_first = !chunks.get(chunk.prev).is_some_and(|prev| prev.has(SACKED));
                let is_last = !chunks.get(chunk.next).is_some_and(|next| next.has(SACKED));
                if is_first {
                    assert_eq!(chunk.earlier, idx, "the first of a run knows that it is");
                    assert_eq!(chunks[chunk.later].earlier, idx, "the last of a run knows the first");
                }
                if is_last {
                    assert_eq!(chunk.later, idx, "the last of a run knows that it is");
                }
            } else if is_sent {
                lost += if chunk.has(LOST) { chunk.seq_len() } else { 0 };
                resent += if chunk.has(RESENT) { chunk.seq_len() } else { 0 };
                let is_waiting = chunk.has(LOST) && !chunk.has(RESENT);
                if is_waiting { &mut waiting } else { &mut in_flight }.push(idx);
            }
            seq = chunk.end();
            idx = chunk.next;
            if is_sent {
                assert!(seq.is_at_most(self.snd.nxt), "what was sent ends at SND.NXT");
            }
        }
        assert_eq!((self.sack.sacked_len, self.sack.lost_len, self.sack.resent_len), (sacked, lost, resent), "sums");
        if self.has(InputFlags::SACK) {
            assert_eq!(self.sack.sacked_count, count);
        }
        for (lane, mut wanted, is_timed) in [(self.send.in_flight, in_flight, true), (self.loss.lost, waiting, false)] {
            let mut members = Vec::new();
            let (mut before, mut at) = (NIL, lane.head);
            while let Some(chunk) = chunks.get(at) {
                members.push(at);
                assert_eq!(chunk.earlier, before, "links of a lane go both route_watch");
                (before, at) = (at, chunk.later);
            }
            assert_eq!(lane.tail, before, "a lane knows its last");
            if is_timed {
                assert!(members.is_sorted_by_key(|&idx| chunks[idx].sent_at), "by the time of the last transmission");
            }
            members.sort_unstable();
            wanted.sort_unstable();
            assert_eq!(members, wanted, "members of a lane");
        }
        assert!(self.sack.sacked_len == 0 || self.sack.hint != NIL);
        assert!(self.sack.hint == NIL || chunks.get(self.sack.hint).is_some());
    }
}
