//! The fields of each segment besides its data: window, timestamps, SACK blocks, ECN.

use crate::proto::slab::NIL;
use crate::proto::tcp::machine::Context;
use crate::proto::tcp::output::interface::Output;
use crate::proto::tcp::payload::Payload;
use crate::proto::tcp::segment::{Outgoing, Range, SACK_BLOCKS_MAX};
use crate::proto::tcp::seq::Seq;
use crate::proto::tcp::state::connection::{AckOwed, Connection, InputFlags, OutputFlags};
use crate::time::Instant;
use crate::wire::tcp::{OPTIONS_LEN_MAX, TcpFlags, Timestamps};

/// Bytes of the timestamps option and of the two no-operations before it (RFC 7323 appendix A).
pub(crate) const TIMESTAMPS_LEN: u32 = 12;
/// Bytes of a SACK option without blocks, and of the two no-operations before it (RFC 2018 3).
const SACK_LEN: u32 = 4;
/// Bytes of a block in a SACK option: its two edges (RFC 2018 3).
const BLOCK_LEN: u32 = 8;

impl<P: Payload, O: Output<P>> Context<'_, P, O> {
    /// The header of a segment of a synchronized connection. SACK blocks take part of the `spare`
    /// bytes that the payload leaves.
    #[inline(always)]
    pub(crate) fn header(&mut self, seq: Seq, mut flags: TcpFlags, spare: u32) -> Outgoing {
        let connection = &mut *self.connection;
        if connection.has(InputFlags::ECE_OWED) {
            // RFC 3168 6.1.3: in all acknowledgments, until the peer's CWR.
            flags = flags | TcpFlags::ECE;
        }
        let mut outgoing = connection.usual(seq, flags, self.now);
        if connection.owes_sacks() {
            (outgoing.sack_count, outgoing.sacks) = connection.take_sacks(spare);
        }
        outgoing
    }

    /// Records the fields of a sent segment that the peer will rely on.
    #[inline]
    pub(crate) fn note_header_sent(&mut self, outgoing: &Outgoing) {
        let again_at = self.connection.sacks_again_at(outgoing);
        self.note_ack_sent(outgoing.ack);
        let connection = &mut *self.connection;
        if let Some(at) = again_at {
            connection.clock.owe_ack(AckOwed::Delayed, at);
        }
        if outgoing.sack_count != 0 && connection.dsack.is_due() {
            connection.dsack.settle();
            self.shared.tally.dsacks_out += 1;
        }
    }

    /// A segment without SACK blocks has acknowledged the data up to `ack`.
    #[inline(always)]
    pub(crate) fn note_ack_sent(&mut self, ack: Seq) {
        let connection = &mut *self.connection;
        connection.clock.settle_ack();
        connection.advertised.last_ack_sent = ack;
        connection.tally.segments_out += 1;
        self.shared.tally.segments_out += 1;
    }
}

impl Connection {
    /// A segment with the usual fields: window and timestamps.
    #[inline(always)]
    pub(crate) fn usual(&mut self, seq: Seq, flags: TcpFlags, now: Instant) -> Outgoing {
        let wnd = self.window_to_advertise();
        self.note_advertised(wnd);
        Outgoing { wnd, timestamps: self.timestamps(now), ..self.bare(seq, self.rcv.nxt, flags) }
    }

    /// A segment of the connection without options.
    #[inline]
    pub(crate) fn bare(&self, seq: Seq, ack: Seq, flags: TcpFlags) -> Outgoing {
        Outgoing { ttl: self.options.ttl, tos: self.options.tos, ..Outgoing::bare(self.flow, seq, ack, flags) }
    }

    /// SND.UNA + SND.WND - SND.NXT: the room in the peer's window.
    #[inline]
    pub(crate) fn usable_window(&self) -> u32 {
        if self.has(OutputFlags::DELEGATED) { 0 } else { self.unused_send_window() }
    }

    #[inline]
    pub(crate) fn unused_send_window(&self) -> u32 {
        let edge = self.snd.una + self.snd.wnd;
        if edge.is_after(self.snd.nxt) { edge - self.snd.nxt } else { 0 }
    }

    /// RFC 7323 3.2: in all segments of a connection whose SYNs had them.
    #[inline]
    pub(crate) fn timestamps(&self, now: Instant) -> Option<Timestamps> {
        self.has(InputFlags::TIMESTAMPS).then(|| self.current_timestamps(now))
    }

    /// The same for a connection that has them.
    #[inline(always)]
    pub(crate) fn current_timestamps(&self, now: Instant) -> Timestamps {
        Timestamps { value: self.ts.now(now), echo_reply: self.ts.recent }
    }

    /// Room that was shown to the peer and is unused.
    #[inline]
    pub(super) fn advertised_window(&self) -> u32 {
        if self.advertised.adv.is_after(self.rcv.nxt) { self.advertised.adv - self.rcv.nxt } else { 0 }
    }

    /// The whole room for data.
    #[inline]
    pub(super) fn receive_buffer_room(&self) -> u32 {
        self.options.receive_buffer.saturating_sub(self.rcv.in_order_len)
    }

    /// The part of it that may be shown to the peer.
    #[inline]
    fn room(&self) -> u32 {
        self.receive_buffer_room().saturating_sub(self.held_back())
    }

    /// The room for data has changed, and so may the next window.
    pub(crate) fn forget_window(&mut self) {
        self.clear(OutputFlags::WINDOW_STAYS);
    }

    /// The smallest step of the right edge (RFC 9293 3.8.6.2.2).
    #[inline]
    pub(super) fn window_step(&self) -> u32 {
        u32::from(self.rcv.mss).min(self.options.receive_buffer / 2)
    }

    /// SEG.WND of a segment that leaves now.
    ///
    /// While the app keeps up, the field stays the same, as on Linux: a peer with header prediction
    /// (Linux, and RFC 7323's authors) has its fast path only for segments with an unchanged
    /// window. That does not cause the silly window syndrome, because there is room for a full
    /// segment.
    #[inline(always)]
    pub(crate) fn window_to_advertise(&self) -> u16 {
        let (room, step) = (self.room(), self.window_step());
        let wnd = if self.is_window_kept() {
            self.last_window() >> self.snd.rcv_wscale
        } else {
            self.next_window(room, step)
        };
        wnd.min(u16::MAX.into()) as u16
    }

    /// The window that was shown last.
    #[inline(always)]
    pub(crate) fn last_window(&self) -> u32 {
        self.advertised.adv - self.advertised.last_ack_sent
    }

    /// Whether the last window is shown unchanged.
    #[inline(always)]
    pub(crate) fn is_window_kept(&self) -> bool {
        let (room, step, last) = (self.room(), self.window_step(), self.last_window());
        // Where the last was larger than the room is now, the difference is larger than any step.
        last >= step && room.wrapping_sub(last) < step
    }

    /// Records the window that was shown.
    #[inline(always)]
    pub(crate) fn note_advertised(&mut self, wnd: u16) {
        self.advertised.adv = self.advertised.adv.max(self.rcv.nxt + (u32::from(wnd) << self.snd.rcv_wscale));
    }

    /// The right edge stays until it can move by a full segment (RFC 9293 3.8.6.2.2). It never
    /// moves left, except by the bytes that the scale rounds off where there is no room. Numbers
    /// that were shown once are accepted nevertheless (RFC 7323 2.4).
    #[inline]
    fn next_window(&self, room: u32, step: u32) -> u32 {
        let (advertised, scale) = (self.advertised_window(), self.snd.rcv_wscale);
        if room >= advertised.saturating_add(step) {
            return room >> scale;
        }
        let rounded_up = (advertised + ((1 << scale) - 1)) >> scale;
        if rounded_up << scale <= room { rounded_up } else { advertised >> scale }
    }

    /// Whether a window update is due: where the window has grown by half the buffer, or where the
    /// peer may be waiting for it.
    pub(crate) fn owes_window_update(&self) -> bool {
        // Growth beyond the field's range does not count: without a scale a large buffer would
        // cause an update for each read.
        let room = self.room().min(u32::from(u16::MAX) << self.snd.rcv_wscale);
        let (advertised, step) = (self.advertised_window(), self.window_step());
        let growth = room.saturating_sub(advertised);
        growth >= (self.options.receive_buffer / 2).max(1) || (advertised < 2 * step && growth >= step.max(1))
    }

    /// Whether the SACK option has blocks to report.
    #[inline]
    pub(crate) fn owes_sacks(&self) -> bool {
        self.out_of_order.queue.head != NIL || self.dsack.is_due()
    }

    /// The SACK option: the number of blocks, and the blocks. RFC 2018 4: the latest first, and as
    /// many as fit; before them the duplicate (RFC 2883 4).
    #[cold]
    fn take_sacks(&mut self, spare: u32) -> (u8, [Range; SACK_BLOCKS_MAX]) {
        let (mut count, mut sacks) = (0, [Range::default(); SACK_BLOCKS_MAX]);
        let taken = if self.has(InputFlags::TIMESTAMPS) { TIMESTAMPS_LEN } else { 0 };
        let spare = spare.min(OPTIONS_LEN_MAX as u32 - taken);
        if !self.has(InputFlags::SACK) {
            self.dsack.settle();
            return (count, sacks);
        }
        // A full segment has no room: the report waits for one that has.
        let count_max = (spare.saturating_sub(SACK_LEN) / BLOCK_LEN) as usize;
        let blocks = core::iter::once(self.dsack.range).chain(self.rare_rcv.sacks).filter(|range| !range.is_empty());
        for block in blocks.take(count_max.min(SACK_BLOCKS_MAX)) {
            sacks[usize::from(count)] = block;
            count += 1;
        }
        (count, sacks)
    }
}
