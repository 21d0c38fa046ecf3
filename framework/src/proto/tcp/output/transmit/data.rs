//! Sends data: lost data first, then new data, within the peer's window, the congestion window and
//! the rules for small segments.

use crate::proto::slab::NIL;
use crate::proto::tcp::machine::Context;
use crate::proto::tcp::output::interface::{Output, Unsent};
use crate::proto::tcp::payload::Payload;
use crate::proto::tcp::seq::Seq;
use crate::proto::tcp::state::connection::{InputFlags, OutputFlags, RetransmitTimer};
use crate::proto::tcp::state::queue::{FIN, LOST, PUSH, RESENT};
use crate::proto::tcp::state::stored::switch;
use crate::proto::wheel::Wheel;
use crate::time::{Duration, Instant};
use crate::wire::tcp::TcpFlags;

/// The most segments of a connection that leave in one call. Further ones leave with the next tick,
/// after those of other connections.
pub(crate) const SEGMENTS_MAX: u32 = 64;

/// Chunks that are merged for a retransmission: bounds the copied bytes, and the steps.
const GATHERED_MAX: u32 = 64;

/// Override timeout for a window that is too small for a segment (RFC 9293 3.8.6.2.1 (4): 0.1 to 1
/// s).
const OVERRIDE_AFTER: Duration = Duration::from_millis(200);

/// The outcome of an attempt to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sending {
    /// A segment has left.
    Sent,
    /// The output has no room; nothing has changed.
    Busy,
    /// No path leads to the peer, and nothing has changed.
    NoRoute,
    /// No data may leave now.
    Nothing,
}

impl<P: Payload, O: Output<P>> Context<'_, P, O> {
    /// Sends all data that may leave now.
    pub(super) fn send_data(&mut self) {
        let mut left = SEGMENTS_MAX;
        while left > 0 {
            if self.connection.is_on(switch::PACING) && self.waits_for_pace() {
                return;
            }
            let (sending, count) = self.send_run(left).unwrap_or_else(|| (self.send_one(), 1));
            match sending {
                Sending::Sent => left -= count,
                Sending::Busy => return self.try_again(),
                Sending::Nothing | Sending::NoRoute => return self.watch_silence(),
            }
        }
        self.flush_later();
    }

    #[inline]
    fn send_one(&mut self) -> Sending {
        if self.connection.sack.lost_len != 0
            && let Some(idx) = self.next_lost()
        {
            return self.resend(idx);
        }
        self.send_new()
    }

    /// Retransmits a chunk. It may be longer than a segment now: the path's MTU has shrunk.
    #[inline(never)]
    pub(crate) fn resend(&mut self, idx: u32) -> Sending {
        let len = self.shared.chunks[idx].len;
        if len > u32::from(self.connection.snd.mss) {
            let longest = self.longest_resent();
            if len > longest && !self.cut(idx, longest) {
                return Sending::Busy;
            }
        } else {
            self.gather(idx);
        }
        // RFC 3168 6.1.5: a retransmission is not marked as ECN-capable.
        let sending = self.emit(idx, TcpFlags::NONE, false);
        if sending == Sending::Sent {
            self.connection.clear(OutputFlags::NO_ROUTE);
            let resent = &mut self.connection.rare_tally.resent_segments;
            *resent = resent.saturating_add(1);
            self.shared.tally.segments_resent += 1;
            self.on_sent(idx, true);
        }
        sending
    }

    /// Adjacent lost small segments are retransmitted as one segment, as on Linux, so that a burst
    /// of small segments that overflowed a queue is not repeated.
    fn gather(&mut self, idx: u32) {
        let longest = self.cwnd_room().min(self.connection.snd.mss.into());
        for _ in 0..GATHERED_MAX {
            let chunk = &self.shared.chunks[idx];
            let Some(next) = self.shared.chunks.get(chunk.next) else { return };
            let are_waiting = [chunk, next].iter().all(|chunk| chunk.flags & (LOST | RESENT) == LOST);
            if !are_waiting || chunk.has(FIN) || chunk.len + next.len > longest {
                return;
            }
            if !self.connection.join(&mut self.shared.chunks, idx) {
                return;
            }
        }
    }

    /// Sends unsent data, as much of it as may leave in one segment.
    #[inline]
    fn send_new(&mut self) -> Sending {
        let idx = self.connection.send.next_unsent;
        let Some(chunk) = self.shared.chunks.get(idx) else { return Sending::Nothing };
        let (len, seq_len, usable) = (chunk.len, chunk.seq_len(), self.connection.usable_window());
        let fits = len <= u32::from(self.connection.snd.mss) && seq_len <= usable && len <= self.cwnd_room();
        if !(fits && self.connection.is_on(switch::NODELAY)) {
            match self.part_to_send(idx, usable) {
                None => return Sending::Nothing,
                // The FIN does not fit behind it.
                Some(part) if part == len && seq_len > usable => return self.send_part(idx, part),
                Some(part) if part < len => return self.send_part(idx, part),
                Some(_) => (),
            }
        }
        self.send_chunk(idx)
    }

    /// Splits the first `part` bytes off and sends them.
    pub(crate) fn send_part(&mut self, idx: u32, part: u32) -> Sending {
        if !self.cut(idx, part) {
            return Sending::Busy;
        }
        self.send_chunk(idx)
    }

    /// Splits a chunk that may not leave as a whole, which takes another chunk. The last free chunk
    /// is reserved for splitting the first, which the peer waits for: if anything else took it,
    /// nothing could be acknowledged, and no chunk would become free. False where there is no free
    /// chunk.
    pub(crate) fn cut(&mut self, idx: u32, at: u32) -> bool {
        let is_first = idx == self.connection.send.queue.head;
        (is_first || self.shared.chunks.free_count() > 1) && self.connection.split(&mut self.shared.chunks, idx, at)
    }

    /// Sends the first chunk that was never sent.
    #[inline]
    pub(crate) fn send_chunk(&mut self, idx: u32) -> Sending {
        let mut flags = TcpFlags::NONE;
        if self.connection.has(OutputFlags::CWR_OWED) {
            flags = TcpFlags::CWR;
        }
        let is_ect = self.connection.has(InputFlags::ECN);
        let sending = self.emit(idx, flags, is_ect);
        if sending == Sending::Sent {
            self.has_left(idx);
        }
        sending
    }

    /// The first chunk that was never sent has left.
    #[inline(always)]
    pub(crate) fn has_left(&mut self, idx: u32) {
        let chunk = &self.shared.chunks[idx];
        let (len, end, next) = (chunk.len, chunk.end(), chunk.next);
        self.connection.send.next_unsent = next;
        self.pass(len, end);
        self.on_sent(idx, false);
    }

    /// SND.NXT moves to the `end` of `len` bytes that have left for the first time.
    #[inline(always)]
    pub(crate) fn pass(&mut self, len: u32, end: Seq) {
        let connection = &mut *self.connection;
        if connection.clock.timer == RetransmitTimer::Persist {
            connection.end_persist();
        }
        // RFC 3168 6.1.2: in the first new data after the window was reduced. And there is a path.
        connection.clear(OutputFlags::CWR_OWED | OutputFlags::NO_ROUTE);
        connection.snd.nxt = end;
        let mss = u32::from(connection.snd.mss);
        // The last segment of a frame that the device cuts may be small.
        if len < mss || len > mss && !len.is_multiple_of(mss) {
            connection.snd.small = end;
        }
    }

    /// Sends a chunk as a segment, with its due flags.
    #[inline(always)]
    fn emit(&mut self, idx: u32, flags: TcpFlags, is_ect: bool) -> Sending {
        let chunk = &self.shared.chunks[idx];
        let (seq, len, mss) = (chunk.seq, chunk.len, u32::from(self.connection.snd.mss));
        let mut flags = TcpFlags::ACK | flags;
        // RFC 9293 3.9.1.2: also where no data is queued after it.
        if chunk.has(PUSH) || chunk.next == NIL && len != 0 {
            flags = flags | TcpFlags::PSH;
        }
        if chunk.has(FIN) {
            flags = flags | TcpFlags::FIN;
        }
        let mut outgoing = self.header(seq, flags, mss.saturating_sub(len));
        outgoing.ect = is_ect && len != 0;
        outgoing.segment_len = if len > mss { mss as u16 } else { 0 };
        let payload = self.shared.chunks[idx].payload.as_mut();
        if let Err(unsent) = self.output.send(Some(self.slot), &outgoing, payload) {
            return self.out_of_line().not_emitted(unsent);
        }
        self.note_header_sent(&outgoing);
        if len > mss {
            // The device cuts it into this number of segments.
            let others = len.div_ceil(mss) - 1;
            self.connection.tally.segments_out += u64::from(others);
            self.shared.tally.segments_out += u64::from(others);
        }
        if self.connection.is_on(switch::PACING) {
            self.connection.pace(len, self.now);
        }
        Sending::Sent
    }

    #[cold]
    pub(super) fn not_emitted(&mut self, unsent: Unsent) -> Sending {
        match unsent {
            Unsent::Busy => Sending::Busy,
            Unsent::NoRoute => {
                self.note_no_route();
                Sending::NoRoute
            }
        }
    }

    /// Whether unsent data may leave now.
    pub(crate) fn may_send_new(&mut self) -> bool {
        let (idx, usable) = (self.connection.send.next_unsent, self.connection.usable_window());
        idx != NIL && self.part_to_send(idx, usable).is_some()
    }

    /// The part of a chunk that may leave now, where not all of it may. RFC 9293 3.8.6.2.1 has the
    /// rules, 3.7.4 Nagle's.
    #[inline(never)]
    fn part_to_send(&mut self, idx: u32, usable: u32) -> Option<u32> {
        let chunk = &self.shared.chunks[idx];
        let (len, is_fin) = (chunk.len, chunk.has(FIN));
        let mss = u32::from(self.connection.snd.mss);
        let room = usable.min(self.cwnd_room());
        if len == 0 {
            // A FIN alone: it needs room in the peer's window, not in the congestion window (RFC
            // 9293 3.4).
            return (is_fin && usable > 0).then_some(0);
        }
        let part = len.min(room).min(self.longest_segment());
        let small = part % mss;
        if small == 0 {
            return (part > 0).then_some(part);
        }
        let is_whole = part == len;
        let may_be_small = if is_whole {
            !self.nagle_holds()
        } else {
            // The peer's window ends here. Half of its maximum, or nothing (RFC 9293 3.8.6.2.1
            // (3)); where the congestion window ends, more room comes soon.
            usable == part && part >= self.connection.rare_snd.wnd_max / 2 && !self.nagle_holds()
        };
        let part = if may_be_small { part } else { part - small };
        (part > 0).then_some(part)
    }

    /// Whether a segment that is not full has to wait. In Minshall's variant of Nagle's algorithm
    /// it waits only for an earlier small segment, not for full ones, so that the end of a long
    /// message need not wait for its beginning.
    fn nagle_holds(&self) -> bool {
        let connection = &*self.connection;
        // A number after SND.NXT is so old that the ring has gone half around since.
        let is_out =
            connection.snd.small.is_after(connection.snd.una) && connection.snd.small.is_at_most(connection.snd.nxt);
        if connection.is_on(switch::NODELAY) || !is_out {
            return false;
        }
        // More than a segment's worth waits, in chunks that cannot be merged, or the app has
        // closed: no more data will fill it.
        let last = &self.shared.chunks[connection.send.queue.tail];
        !last.has(FIN) && last.end() - connection.snd.nxt < u32::from(connection.snd.mss)
    }

    /// Bytes of the longest payload that leaves at once: one MSS, or several where the device cuts
    /// the payload into segments (TSO). With pacing at most what the rate sends in a millisecond,
    /// but at least one MSS (Linux: `tcp_tso_autosize`).
    fn longest_segment(&self) -> u32 {
        let mss = u32::from(self.connection.snd.mss);
        let device = self.output.segmentation_len_max() as u32;
        let longest = match self.connection.is_on(switch::PACING) {
            true => u64::from(device).min(self.connection.rare_options.pacing_rate / 1_000) as u32,
            false => device,
        };
        if longest > mss { longest - longest % mss } else { mss }
    }

    /// The most bytes of a piece in one buffer: as many whole segments as may leave at once and fit
    /// the buffer.
    pub(crate) fn piece_len(&self) -> usize {
        let mss = usize::from(self.connection.snd.mss);
        let longest = self.output.buffer_len_max().min(self.longest_segment() as usize);
        (longest - longest % mss).max(mss)
    }

    /// The same for retransmissions: a segment, or the whole segments that fit the congestion
    /// window.
    fn longest_resent(&mut self) -> u32 {
        let mss = u32::from(self.connection.snd.mss).max(1);
        let room = self.cwnd_room();
        self.longest_segment().min(room - room % mss).max(mss)
    }

    /// Data waits, and nothing is in flight: no acknowledgment will arrive by itself that opens the
    /// window, or shows that there is a path.
    pub(crate) fn watch_silence(&mut self) {
        let connection = &mut *self.connection;
        if connection.send.next_unsent == NIL || connection.snd.flight() != 0 {
            return;
        }
        if connection.has(OutputFlags::DELEGATED) {
            // No data of ours may leave before the delegated data, but the user timeout counts, and
            // keepalive probes.
            connection.clock.wait_since(connection.clock.unacked_since.min(self.now));
            return;
        }
        if connection.clock.timer != RetransmitTimer::Persist {
            self.begin_persist();
        }
        self.await_override();
    }

    /// The window is open by less than a useful segment, and may have been closed for so long that
    /// the next probe is a minute away: so the data that fits is sent without waiting for it.
    fn await_override(&mut self) {
        let connection = &mut *self.connection;
        if connection.usable_window() > 0 && !connection.has(OutputFlags::NO_ROUTE) {
            connection.clock.lower_deadline(self.now + OVERRIDE_AFTER);
        }
    }

    /// Whether data waits for the rate. A short wait is spent in the list that is retried with each
    /// tick, because the wheel is coarser than the gap between two segments.
    #[cold]
    fn waits_for_pace(&mut self) -> bool {
        let is_any_left = self.connection.send.next_unsent != NIL || self.connection.sack.lost_len != 0;
        if self.connection.rare_clock.pace_at <= self.now || !is_any_left {
            self.connection.clear(OutputFlags::PACED);
            return false;
        }
        if self.connection.rare_clock.pace_at.since(self.now) > Duration::from_nanos(2 * Wheel::TICK_NS) {
            self.connection.set(OutputFlags::PACED);
        } else {
            self.flush_later();
        }
        true
    }
}

impl crate::proto::tcp::state::connection::Connection {
    /// Call it after `len` bytes have left: the next may leave when the rate has room for them
    /// again. The unused part of a tick of the wheel is not lost.
    #[cold]
    fn pace(&mut self, len: u32, now: Instant) {
        let earliest = Instant::from_nanos(now.as_nanos().saturating_sub(Wheel::TICK_NS));
        let span = u64::from(len) * 1_000_000_000 / self.rare_options.pacing_rate;
        self.rare_clock.pace_at = self.rare_clock.pace_at.max(earliest) + Duration::from_nanos(span);
    }
}
