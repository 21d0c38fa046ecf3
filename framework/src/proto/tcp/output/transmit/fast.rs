//! Data that leaves within the call: nothing is queued before it, all windows have room, and its
//! segment has only the usual fields. Nearly every order leaves so. All other data waits in the
//! queue, if only for a moment, and leaves by `data`.
//!
//! The number of bytes that may leave this way is computed once (`find_room_at_once`) and stored
//! (`SendQueue::fast_send_room`), so that an order reads one number instead of twenty. Sent bytes
//! are subtracted from it. It stays valid for expected segments, because they only open windows,
//! except where the peer's window closes (`update_window`) or a round trip ends (`begin_round`).
//! Every other change of a connection begins with a context, whose creation clears it
//! (`Tcp::context`), or queues data (`Context::queue`). Whether our window stays the same
//! (`OutputFlags::WINDOW_STAYS`) is computed and cleared together with it.

use crate::proto::slab::NIL;
use crate::proto::tcp::machine::Context;
use crate::proto::tcp::output::interface::{Output, Unsent};
use crate::proto::tcp::payload::Payload;
use crate::proto::tcp::segment::Outgoing;
use crate::proto::tcp::seq::Seq;
use crate::proto::tcp::state::connection::{
    AppFlags, Connection, Flags, InputFlags, LossFlags, OutputFlags, Recovery, RetransmitTimer,
};
use crate::proto::tcp::state::queue::SentChunk;
use crate::proto::tcp::state::stored::switch;
use crate::time::Instant;
use crate::wire::tcp::TcpFlags;

/// States that exclude the fast send.
const NOT_PLAIN: Flags = Flags::of(&[
    InputFlags::ECE_OWED.flags(),
    OutputFlags::CWR_OWED.flags(),
    OutputFlags::DELEGATED.flags(),
    LossFlags::PROBE_DUE.flags(),
    AppFlags::ORPHANED.flags(),
]);

impl<P: Payload, O: Output<P>> Context<'_, P, O> {
    /// Whether a segment of `len` bytes may leave now, with no data before it and only the usual
    /// fields.
    #[inline(always)]
    pub(crate) fn may_send_fast(&mut self, len: usize) -> bool {
        let connection = &*self.connection;
        // Zero bytes make no segment.
        let last = len.wrapping_sub(1);
        let is_known = last < connection.send.fast_send_room as usize
            && last < usize::from(connection.snd.mss)
            && !connection.was_idle(self.now);
        debug_assert!(!is_known || connection.lost_room().is_none(), "{:?}", connection.lost_room());
        self.has_chunk() && (is_known || self.out_of_line().find_room_at_once(len))
    }

    /// Computes how much may leave at once. The last act of a call, or it is out of date.
    pub(crate) fn compute_send_room(&mut self) {
        self.out_of_line().find_room_at_once(0);
    }

    /// Computes how much may leave at once, and whether a segment of `len` bytes fits.
    #[inline(never)]
    fn find_room_at_once(&mut self, len: usize) -> bool {
        self.connection.send.forget_room();
        if !self.connection.is_plain_sender() {
            return false;
        }
        self.connection.note_window();
        let network = self.cwnd_room();
        let connection = &mut *self.connection;
        let buffer = connection.options.send_buffer.saturating_sub(connection.send.len);
        let room = connection.unused_send_window().min(buffer).min(network);
        connection.send.fast_send_room = room.min(connection.unnoted_room());
        (1..=usize::from(connection.snd.mss)).contains(&len) && len <= room as usize
    }

    /// The header of such a segment.
    #[inline(always)]
    pub(crate) fn data_header(&mut self) -> Outgoing {
        let connection = &mut *self.connection;
        let outgoing = connection.usual(connection.snd.nxt, TcpFlags::ACK | TcpFlags::PSH, self.now);
        Outgoing { ect: connection.has(InputFlags::ECN), ..outgoing }
    }

    /// Sends data that may leave at once; a chunk for it must be free. Where the output has no room
    /// the data is queued. `ends_call` is `PUSH` where the call's data ends with it.
    #[inline(always)]
    pub(crate) fn send_fast(&mut self, mut payload: P, ends_call: u8) {
        let mut outgoing = self.data_header();
        if ends_call == 0 {
            outgoing.flags = TcpFlags::ACK;
        }
        if let Err(unsent) = self.output.send(Some(self.slot), &outgoing, Some(&mut payload)) {
            return self.out_of_line().send_soon(payload, ends_call, unsent);
        }
        self.keep_sent(payload, ends_call);
    }

    #[cold]
    fn send_soon(&mut self, payload: P, ends_call: u8, unsent: Unsent) {
        let queued = self.queue(payload, ends_call).map_err(|_| ());
        queued.expect("a free chunk was seen before");
        match unsent {
            Unsent::Busy => self.try_again(),
            Unsent::NoRoute => {
                self.note_no_route();
                self.watch_silence();
                self.arm();
            }
        }
    }

    /// A segment of this kind has left: keeps its payload as sent data.
    #[inline(always)]
    pub(crate) fn keep_sent(&mut self, payload: P, flags: u8) {
        self.note_ack_sent(self.connection.rcv.nxt);
        let (connection, chunks, sent_at) = (&mut *self.connection, &mut self.shared.chunks, self.now);
        let (seq, len) = (connection.snd.nxt, payload.len() as u32);
        let before = connection.send.in_flight;
        connection.send.queue.push_sent(
            &mut connection.send.in_flight,
            chunks,
            SentChunk { seq, len, flags, sent_at, payload },
        );
        connection.pass_at_once(len);
        // Earlier segments are in flight, for which the timer is set.
        if before.head == before.tail {
            self.set_timer_at_once(seq);
        }
        if self.connection.has(OutputFlags::IN_FLUSH) {
            self.skip_flush();
        }
    }

    /// The segment from `seq` on is the first in flight, or the second.
    #[inline(always)]
    fn set_timer_at_once(&mut self, seq: Seq) {
        if self.connection.snd.una == seq {
            self.begin_to_wait();
        } else if self.connection.clock.timer == RetransmitTimer::Probe {
            self.out_of_line().reschedule_tlp();
            self.arm_for_data();
        }
    }

    /// Nothing was in flight before (RFC 6298 5.1, RFC 8985 7.2).
    #[inline(always)]
    fn begin_to_wait(&mut self) {
        self.connection.clock.wait_since(self.now);
        self.connection.run_timer(true, self.now);
        self.arm_for_data();
    }

    /// The app's answer has carried the acknowledgment that would have waited for the end of the
    /// burst. Where the connection has no other work and is the last in the list, as usual with
    /// many connections, it is removed from the list.
    #[inline(always)]
    fn skip_flush(&mut self) {
        if !self.connection.has_pending_work() && self.shared.flush.take_back(self.slot) {
            self.connection.clear(OutputFlags::IN_FLUSH);
        }
    }
}

impl Connection {
    /// SEG.WND of a segment that may leave at once.
    #[inline(always)]
    pub(crate) fn fast_window(&self) -> u16 {
        if !self.has(OutputFlags::WINDOW_STAYS) {
            return self.compute_window();
        }
        let wnd = (self.last_window() >> self.snd.rcv_wscale) as u16;
        debug_assert_eq!(wnd, self.window_to_advertise(), "the window that stays");
        wnd
    }

    #[cold]
    #[inline]
    fn compute_window(&self) -> u16 {
        self.window_to_advertise()
    }

    /// The peer is shown that window by such a segment.
    #[inline(always)]
    pub(crate) fn note_fast_advertised(&mut self) {
        if self.has(OutputFlags::WINDOW_STAYS) {
            // The right edge moves as the left one does.
            self.advertised.adv += self.rcv.nxt - self.advertised.last_ack_sent;
        } else {
            self.note_another_window();
        }
    }

    /// A segment showed the peer a different window than the last, and acknowledged all received
    /// data. Most often the window stays the same from now on, as after the first answer of a
    /// connection, because its SYN could not show the whole window.
    // Inline, with all functions that it calls: where the compiler sees that none of them panics,
    // it need not keep the payload in memory meanwhile.
    #[cold]
    #[inline]
    fn note_another_window(&mut self) {
        self.note_advertised(self.window_to_advertise());
        self.advertised.last_ack_sent = self.rcv.nxt;
        self.note_window();
    }

    /// Finds out whether the last window is shown unchanged from now on.
    #[inline]
    fn note_window(&mut self) {
        let last = self.last_window();
        let is_exact = u32::from(self.window_to_advertise()) << self.snd.rcv_wscale == last;
        self.clear(OutputFlags::WINDOW_STAYS);
        if is_exact && self.is_window_kept() {
            self.set(OutputFlags::WINDOW_STAYS);
        }
    }

    /// Moves SND.NXT past `len` bytes that have left at once. The other work for new data
    /// (`Context::pass`, `Context::on_its_way`) is not needed here: nothing is missing, no window
    /// was closed or reduced, and without Nagle's algorithm the last small segment does not matter
    /// (`Connection::change_options`).
    #[inline(always)]
    fn pass_at_once(&mut self, len: u32) {
        self.send.grow(len);
        self.snd.nxt += len;
        match self.send.fast_send_room.checked_sub(len) {
            Some(room) => self.send.fast_send_room = room,
            None => {
                // More than may go unrecorded, and less than the windows allowed: the room is
                // computed again.
                self.send.forget_room();
                self.note_use();
            }
        }
    }

    /// The first stored fact that does not hold any more, though it must.
    fn lost_room(&self) -> Option<&'static str> {
        let room = self.send.fast_send_room;
        let is_metered = !self.is_unlimited() && self.has(InputFlags::SACK);
        let holds = [
            ("it is no plain sender", self.is_plain_sender()),
            ("the peer's window is smaller", room <= self.unused_send_window()),
            ("the send buffer is smaller", room <= self.options.send_buffer.saturating_sub(self.send.len)),
            (
                "the congestion window is smaller",
                !is_metered || room <= self.congestion.cwnd.saturating_sub(self.pipe()),
            ),
            ("its use is to be noted", room <= self.unnoted_room()),
        ];
        holds.into_iter().find(|(_, holds)| !holds).map(|(what, _)| what)
    }

    /// Whether nothing was sent for so long that the path may have changed (RFC 5681 4.1). False
    /// for a connection that has never sent, because it needs no restart.
    #[inline(always)]
    pub(crate) fn was_idle(&self, now: Instant) -> bool {
        let sent_at = self.rack_segment.xmit_ts;
        self.snd.flight() == 0 && now.since(sent_at) > self.rtt.rto.span() && sent_at != Instant::ZERO
    }

    /// Whether new data of any permitted amount may leave as soon as it is queued, in a segment of
    /// the usual form. Not so in rare states, which take the general path: queued or lost data,
    /// delegated numbers, limited rates, Nagle's algorithm, reports of congestion, SACK blocks,
    /// open losses, probes, and closed windows. A connection that the app has closed sends nothing
    /// more.
    fn is_plain_sender(&self) -> bool {
        self.state.may_send()
            && self.send.next_unsent == NIL
            && self.sack.lost_len == 0
            && self.recovery == Recovery::Open
            && self.clock.timer != RetransmitTimer::Persist
            && !self.has(NOT_PLAIN)
            && !self.is_on(switch::PACING)
            && self.is_on(switch::NODELAY)
            && !self.owes_sacks()
    }
}
