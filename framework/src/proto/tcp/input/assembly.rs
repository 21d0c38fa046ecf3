//! Seventh phase of a segment's arrival: its data (RFC 9293 3.10.7.4).
//!
//! ```text
//!  next in order ──▶ the caller; `in_order` where the app is not ready for it
//!  beyond a hole ──▶ `out_of_order`, sorted and without overlap, until the hole is filled
//!  seen before   ──▶ dropped, and reported (RFC 2883)
//! ```
//!
//! Three limits bound the data out of order: the window, `reassembly_max`, and a share of the store
//! that shrinks as the store fills, so that no peer can take the room of the others. Data that does
//! not fit is dropped, and the peer sends it again.

use super::arrival::TcpDrop;
use crate::proto::slab::NIL;
use crate::proto::tcp::machine::{Context, Shared};
use crate::proto::tcp::output::interface::Output;
use crate::proto::tcp::payload::Payload;
use crate::proto::tcp::segment::{Range, Segment};
use crate::proto::tcp::seq::Seq;
use crate::proto::tcp::state::connection::{AckOwed, AppFlags, Connection, InputFlags, OutputFlags, Pending};
use crate::proto::tcp::state::queue::Chunk;
use crate::proto::tcp::state::stored::switch;
use crate::wire::tcp::TcpFlags;

/// The first bytes of a connection, which are acknowledged at once: a sender in slow start waits
/// for each acknowledgment. Linux does so for sixteen segments. Small segments of a peer that has
/// acknowledged data of ours are requests: their answers acknowledge them.
const QUICK_LEN: u64 = 16 * 1460;

/// Bytes of a stretch, as a power of two: after disorder, its rest and the next stretch are
/// acknowledged at once. Linux counts sixteen segments.
const STRETCH_BITS: u32 = 14;

/// Data that is new, and in the window.
struct Piece<P> {
    seq: Seq,
    len: u32,
    payload: P,
}

impl<P> Piece<P> {
    fn end(&self) -> Seq {
        self.seq + self.len
    }
}

impl<P: Payload, O: Output<P>> Context<'_, P, O> {
    /// Processes the data of an acceptable segment. Returns data that is next in order; refused
    /// data is not acknowledged, and the reason is for a counter. `acks_data`: the segment has
    /// acknowledged data of ours.
    #[inline]
    pub(crate) fn take_data(&mut self, segment: &Segment, payload: P, acks_data: bool) -> Result<Option<P>, TcpDrop> {
        let connection = &mut *self.connection;
        let end = segment.seq + segment.len;
        let is_plain = segment.seq == connection.rcv.nxt
            && end.is_at_most(connection.advertised.adv)
            && connection.out_of_order.queue.head == NIL
            && connection.rare_rcv.in_order.head == NIL
            && !connection.has(AppFlags::HOLDS | InputFlags::ECN)
            && segment.len != 0;
        if !is_plain {
            return self.slow_path_data(segment, payload);
        }
        self.take_next_in_order(segment.len, acks_data);
        Ok(Some(payload))
    }

    /// The next bytes have arrived, and are being delivered to the app.
    #[inline]
    pub(crate) fn take_next_in_order(&mut self, len: u32, acks_data: bool) {
        self.connection.rcv.nxt += len;
        self.connection.tally.bytes_received += u64::from(len);
        self.owe_ack_of_data(len, acks_data);
    }

    /// We owe an acknowledgment at the end of this burst.
    #[inline(always)]
    pub(crate) fn owe_ack_now(&mut self) {
        self.connection.clock.owe_ack_now();
        self.flush_later();
    }

    /// RFC 9293 3.8.6.3, RFC 5681 4.2: for every second full segment, and at the latest after the
    /// delay.
    #[inline(always)]
    fn owe_ack_of_data(&mut self, len: u32, acks_data: bool) {
        let connection = &mut *self.connection;
        if len > u32::from(connection.rcv.full_len) {
            connection.rcv.full_len = len.min(connection.rcv.mss.into()) as u16;
        }
        let is_due = connection.rcv.nxt - connection.advertised.last_ack_sent >= 2 * u32::from(connection.rcv.full_len)
            || connection.is_quick(len)
            || connection.options.ack_delay_10us == 0
            || connection.tally.bytes_received <= QUICK_LEN
                && (connection.tally.bytes_acked == 0 || 2 * len > u32::from(connection.rcv.mss));
        if is_due {
            self.owe_ack_now();
        } else if connection.clock.ack_owed == AckOwed::No {
            let delay = connection.options.next_ack_delay(acks_data);
            connection.clock.owe_ack(AckOwed::Delayed, self.now + delay);
            self.arm_by(self.connection.clock.ack_at);
        }
    }

    /// A segment that is refused as old: the data that it repeated is reported with the
    /// acknowledgment that answers it (RFC 2883 4).
    pub(crate) fn note_old_data(&mut self, segment: &Segment) {
        let connection = &mut *self.connection;
        let right = (segment.seq + segment.len).min(connection.rcv.nxt);
        // Numbers before the first byte do not belong to this stream.
        let age = connection.rcv.nxt - segment.seq;
        let is_ours = u64::from(age) <= connection.tally.bytes_received;
        let is_its = segment.has(TcpFlags::ACK) && connection.is_in_ack_range(segment.ack);
        if segment.len != 0 && segment.seq.is_before(right) && is_ours && is_its {
            connection.note_duplicate(Range { left: segment.seq, right });
            connection.options.switches |= switch::DISORDER;
            self.shared.tally.duplicates += 1;
        }
    }

    /// Data that is not next in order, or that the app cannot accept now.
    #[inline(never)]
    fn slow_path_data(&mut self, segment: &Segment, payload: P) -> Result<Option<P>, TcpDrop> {
        if segment.len == 0 || payload.is_empty() {
            return Ok(None);
        }
        if self.connection.has(InputFlags::ECN) {
            self.connection.note_congestion(segment);
        }
        let Some(piece) = self.trim(segment, payload) else {
            // RFC 9293 3.10.7.4: data that is old or beyond the window is answered.
            self.acknowledge_at_once(segment);
            return Err(TcpDrop::NotAcceptable);
        };
        if piece.seq == self.connection.rcv.nxt {
            return self.take_next(segment, piece);
        }
        self.shared.tally.out_of_order += 1;
        let kept = self.keep(piece);
        self.acknowledge_at_once(segment);
        kept.map(|()| None)
    }

    /// RFC 5681 4.2: acknowledge such data at once, and each segment of it, because the peer counts
    /// the acknowledgments. But "MUST NOT generate more than one ACK for every incoming segment":
    /// where the segment has a FIN, `check_fin` answers for both.
    fn acknowledge_at_once(&mut self, segment: &Segment) {
        self.connection.options.switches |= switch::DISORDER;
        if segment.has(TcpFlags::FIN) || self.connection.has(InputFlags::FIN_SEEN) {
            self.owe_ack_now();
        } else {
            self.send_ack();
        }
    }

    /// Trims data that came before or is beyond the window.
    fn trim(&mut self, segment: &Segment, mut payload: P) -> Option<Piece<P>> {
        let connection = &mut *self.connection;
        let (mut seq, mut len) = (segment.seq, segment.len);
        if seq.is_before(connection.rcv.nxt) {
            let old = (connection.rcv.nxt - seq).min(len);
            connection.note_duplicate(Range { left: seq, right: seq + old });
            self.shared.tally.duplicates += 1;
            if old == len {
                return None;
            }
            payload.advance(old as usize);
            (seq, len) = (seq + old, len - old);
        }
        let edge = connection.rcv.nxt + connection.rcv_wnd();
        if (seq + len).is_after(edge) {
            if seq.is_at_least(edge) {
                return None;
            }
            len = edge - seq;
            payload.trim_to(len as usize);
        }
        Some(Piece { seq, len, payload })
    }

    /// Data that is next in order: returned to the caller, or queued after data that waits for the
    /// app.
    fn take_next(&mut self, segment: &Segment, piece: Piece<P>) -> Result<Option<P>, TcpDrop> {
        let connection = &mut *self.connection;
        let (len, end, fills_gap) = (piece.len, piece.end(), connection.out_of_order.queue.head != NIL);
        let mut delivered = None;
        if connection.rare_rcv.in_order.head == NIL && !connection.has(AppFlags::HOLDS) {
            delivered = Some(piece.payload);
        } else if !self.keep_in_order(piece) {
            // Not acknowledged, so the peer sends it again.
            return Err(TcpDrop::NoRoom);
        }
        let connection = &mut *self.connection;
        connection.rcv.nxt = end;
        connection.tally.bytes_received += u64::from(len);
        if fills_gap {
            self.join();
        }
        if self.connection.rare_rcv.in_order.head != NIL {
            self.notify(Pending::READABLE);
        }
        if fills_gap {
            self.acknowledge_at_once(segment);
        } else {
            self.owe_ack_of_data(len, false);
        }
        Ok(delivered)
    }

    /// Queues data for the app. Where the last waiting buffer has room for it, the data is copied
    /// there. So no two adjacent chunks would fit one buffer, and a connection takes at most two
    /// chunks for each buffer's length of its window. Otherwise short segments would use up chunks
    /// and pool long before the window, which counts bytes and cannot be taken back
    /// (RFC 9293 3.8.6). False where there is no room.
    fn keep_in_order(&mut self, piece: Piece<P>) -> bool {
        let (connection, len) = (&mut *self.connection, piece.len);
        if !connection.rare_rcv.in_order.append_to_last(&mut self.shared.chunks, &piece.payload, len) {
            let has_share = self.shared.has_share(connection.rare_rcv.in_order.count);
            let chunk = Chunk::new(piece.seq, len, Some(piece.payload));
            if !has_share || connection.rare_rcv.in_order.push_back(&mut self.shared.chunks, chunk).is_err() {
                return false;
            }
        }
        connection.set_in_order_len(connection.rcv.in_order_len + len);
        true
    }

    /// Moves data that is now in order to the data that waits for the app.
    fn join(&mut self) {
        let (connection, chunks) = (&mut *self.connection, &mut self.shared.chunks);
        while let Some(head) = chunks.get(connection.out_of_order.queue.head) {
            if head.seq.is_after(connection.rcv.nxt) {
                break;
            }
            let Some(mut chunk) = connection.out_of_order.queue.pop_front(chunks) else { break };
            let old = (connection.rcv.nxt - chunk.seq).min(chunk.len);
            if old > 0 {
                connection.note_duplicate(Range { left: chunk.seq, right: chunk.seq + old });
            }
            let Some(payload) = chunk.payload.as_mut().filter(|_| old < chunk.len) else { continue };
            payload.advance(old as usize);
            (chunk.seq, chunk.len) = (chunk.seq + old, chunk.len - old);
            let (len, end) = (chunk.len, chunk.end());
            if connection.rare_rcv.in_order.push_back(chunks, chunk).is_err() {
                debug_assert!(false, "its place in the store was just given back");
                break;
            }
            connection.set_in_order_len(connection.rcv.in_order_len + len);
            connection.rcv.nxt = end;
            connection.tally.bytes_received += u64::from(len);
        }
        connection.forget_sacks();
    }

    /// Keeps data that is beyond a hole.
    fn keep(&mut self, mut piece: Piece<P>) -> Result<(), TcpDrop> {
        let mut before = self.find_before(piece.seq);
        loop {
            if !self.cut_front(before, &mut piece) {
                self.shared.tally.duplicates += 1;
                return Err(TcpDrop::Duplicate);
            }
            // The rest may begin where the next chunk does.
            let next = self.shared.chunks.get(before).map_or(NIL, |chunk| chunk.next);
            match self.shared.chunks.get(next) {
                Some(chunk) if chunk.seq == piece.seq => before = next,
                _ => break,
            }
        }
        let connection = &mut *self.connection;
        let count = connection.out_of_order.queue.count;
        // Once the hole is filled these chunks wait for the app with those that are in order
        // already.
        let kept = count + connection.rare_rcv.in_order.count;
        if count >= self.shared.config.reassembly_max || !self.shared.has_share(kept) {
            return Err(TcpDrop::NoRoom);
        }
        self.cut_back(before, &mut piece);
        let connection = &mut *self.connection;
        let range = Range { left: piece.seq, right: piece.end() };
        let chunk = Chunk::new(piece.seq, piece.len, Some(piece.payload));
        if connection.out_of_order.queue.insert_after(&mut self.shared.chunks, before, chunk).is_err() {
            return Err(TcpDrop::NoRoom);
        }
        connection.note_range(range);
        Ok(())
    }

    /// The last chunk out of order that does not begin after `seq`, or `NIL`. Nearly always it is
    /// the last of all; otherwise the search begins at the nearer end.
    fn find_before(&self, seq: Seq) -> u32 {
        let (queue, chunks) = (self.connection.out_of_order.queue, &self.shared.chunks);
        let Some(tail) = chunks.get(queue.tail) else { return NIL };
        if tail.seq.is_at_most(seq) {
            return queue.tail;
        }
        let head = chunks[queue.head].seq;
        if head.is_after(seq) {
            return NIL;
        }
        if seq - head < tail.seq - seq {
            let mut idx = queue.head;
            loop {
                let next = chunks[idx].next;
                if chunks[next].seq.is_after(seq) {
                    return idx;
                }
                idx = next;
            }
        }
        let mut idx = queue.tail;
        while chunks[idx].seq.is_after(seq) {
            idx = chunks[idx].prev;
        }
        idx
    }

    /// Trims the bytes that the previous chunk has already. False where no byte remains.
    fn cut_front(&mut self, before: u32, piece: &mut Piece<P>) -> bool {
        let Some(end) = self.shared.chunks.get(before).map(Chunk::end).filter(|end| end.is_after(piece.seq)) else {
            return true;
        };
        let old = (end - piece.seq).min(piece.len);
        let duplicate = Range { left: piece.seq, right: piece.seq + old };
        self.connection.note_duplicate(duplicate);
        if old == piece.len {
            self.connection.note_range(duplicate);
            return false;
        }
        piece.payload.advance(old as usize);
        (piece.seq, piece.len) = (piece.seq + old, piece.len - old);
        true
    }

    /// Replaces chunks that the piece covers, and trims its end where the next chunk overlaps it.
    fn cut_back(&mut self, before: u32, piece: &mut Piece<P>) {
        loop {
            let connection = &mut *self.connection;
            let next = match before {
                NIL => connection.out_of_order.queue.head,
                before => self.shared.chunks[before].next,
            };
            let Some(chunk) = self.shared.chunks.get(next) else { return };
            let (left, right) = (chunk.seq, chunk.end());
            if left.is_at_least(piece.end()) {
                return;
            }
            connection.note_duplicate(Range { left, right: right.min(piece.end()) });
            if right.is_after(piece.end()) {
                piece.len = left - piece.seq;
                return piece.payload.trim_to(piece.len as usize);
            }
            connection.out_of_order.queue.remove(&mut self.shared.chunks, next);
        }
    }
}

impl<P> Shared<P> {
    /// Whether a queue of `count` chunks, to be sent or received, may take one more. No queue may
    /// have more chunks than are free (Choudhury and Hahne 1998), so that the store is never empty
    /// and connections with few chunks get some.
    #[inline(always)]
    pub(crate) fn has_share(&self, count: u32) -> bool {
        self.chunks.free_count() > self.chunk_reserve + count as usize
    }
}

impl Connection {
    /// Whether data is acknowledged at once after `len` bytes, either because the app's option says
    /// so or because segments were missing recently. After losses acknowledgments may be lost too,
    /// and a sender with a window of few segments that gets no acknowledgment waits for its
    /// timeout.
    #[inline(always)]
    fn is_quick(&mut self, len: u32) -> bool {
        let is_quick = self.is_on(switch::ACK_AT_ONCE);
        if is_quick {
            self.end_stretch(len);
        }
        is_quick
    }

    /// Where the last `len` bytes end a stretch of the peer's bytes, the disorder of the current
    /// stretch becomes that of the previous one.
    #[cold]
    pub(crate) fn end_stretch(&mut self, len: u32) {
        let received = self.tally.bytes_received;
        if received >> STRETCH_BITS == (received - u64::from(len)) >> STRETCH_BITS {
            return;
        }
        let was_disorder = self.is_on(switch::DISORDER);
        self.options.switches &= !switch::DISORDERLY;
        // How much room is held back depends on it.
        self.clear(OutputFlags::WINDOW_STAYS);
        if was_disorder {
            self.options.switches |= switch::DISORDER_BEFORE;
        }
    }

    /// Sets the number of bytes that wait in order for the app, which changes the window.
    pub(crate) fn set_in_order_len(&mut self, len: u32) {
        self.rcv.in_order_len = len;
        self.forget_window();
    }

    /// RFC 3168 6.1.3: echo the congestion until the peer reports that it has reduced its window.
    fn note_congestion(&mut self, segment: &Segment) {
        if segment.has(TcpFlags::CWR) {
            self.clear(InputFlags::ECE_OWED);
        }
        if segment.ce {
            self.set(InputFlags::ECE_OWED);
        }
    }

    /// Notes a range that came twice, where the peer understands reports of it.
    fn note_duplicate(&mut self, range: Range) {
        if !self.has(InputFlags::SACK) {
            return;
        }
        self.dsack.note(range);
    }

    /// A range that came out of order is first, merged with those it touches (RFC 2018 4).
    fn note_range(&mut self, mut range: Range) {
        let mut kept = [Range::default(); 4];
        let mut count = 1;
        for old in self.rare_rcv.sacks.into_iter().filter(|old| !old.is_empty()) {
            if old.left.is_at_most(range.right) && range.left.is_at_most(old.right) {
                range = Range { left: old.left.min(range.left), right: old.right.max(range.right) };
            } else if count < kept.len() {
                kept[count] = old;
                count += 1;
            }
        }
        kept[0] = range;
        self.rare_rcv.sacks = kept;
    }

    /// Ranges that are in order now are acknowledged by number.
    fn forget_sacks(&mut self) {
        for range in &mut self.rare_rcv.sacks {
            if range.right.is_at_most(self.rcv.nxt) {
                *range = Range::default();
            }
        }
    }
}
