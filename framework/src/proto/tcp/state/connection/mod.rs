//! The state of a connection: the variables of RFC 9293 3.3.1 under their names, and those of
//! related RFCs, in parts. The head of each part says which rooms write it; the other rooms read
//! it, or call a verb of it. The fields that a segment of an established connection needs come
//! first, so that they are in the first cache lines; the rarely needed fields of each part come
//! last, as `rare_`.
//!
//! ```text
//!  line 1   flow, state   rcv        receive sequence     advertised  receive window last sent
//!           pending       ts         timestamps           rtt         round trip, RTO
//!           recovery
//!       2   consumer      snd        send sequence        send        data to send
//!       3   rack_segment  clock      deadlines            sack        scoreboard of data sent
//!       4   out_of_order  options    set by the app       tally       counts
//!       5   dsack         round      the round trip, of acknowledgments only
//!                         rack       RACK's last delivery congestion  window, slow start
//!  behind   accepted_by   loss, reordering                path        MSS, path MTU
//!           counted       ending     reason for the app
//! ```
//!
//! The field `dsack` is a `Duplicate`, which is in `rcv`.

mod admission;
mod advertised;
mod clock;
mod congestion;
mod flags;
mod life;
mod loss;
mod path;
mod pending;
mod rcv;
mod rtt;
mod send_queue;
mod snd;
mod tally;
mod ts;

use admission::AcceptedBy;
pub(crate) use admission::Counted;
use advertised::AdvertisedWindow;
pub(crate) use clock::{AckOwed, RetransmitTimer};
use clock::{Clock, RareClock};
use congestion::CongestionState;
pub(crate) use flags::{AppFlags, Flags, InputFlags, LossFlags, OutputFlags};
use life::Ending;
pub use life::State;
use loss::{Loss, Rack, RackSegment, Reordering};
pub(crate) use loss::{Prr, Recovery, Scoreboard, Undo};
use path::PathMtu;
pub(crate) use pending::Pending;
use rcv::{Duplicate, OutOfOrder, RareReceive, ReceiveVariables};
use rtt::{Round, Rtt};
use send_queue::SendQueue;
use snd::{RareSend, SendVariables};
use tally::{ConnectionTally, RareTally};
use ts::TimestampState;

use super::stored::{RareOptions, StoredOptions};
use crate::proto::slab::NIL;
use crate::proto::tcp::options::ConnectionOptions;
use crate::proto::{ConsumerId, Flow};
use crate::time::{Duration, Instant};

/// A connection. The order of the fields is that of the memory: the fields that a segment of an
/// established connection needs, data or acknowledgment, are in the first
/// [`HOT_LINES`](Connection::HOT_LINES) cache lines, so that one of a million connections costs at
/// most that number of cache misses. Data and its answer stay within the first four.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(crate) struct Connection {
    // First line: the flow, and received data.
    /// Of the whole connection, because it is found by its flow: written once, at its beginning.
    pub(crate) flow: Flow,
    /// Of the whole connection, because the app's identifier contains it: written once, when the
    /// connection gets its slot.
    pub(crate) generation: u32,
    pub(crate) flags: Flags,
    pub(crate) state: State,
    pub(crate) recovery: Recovery,
    /// Of the whole connection: marks the slot as taken.
    taken: Taken,
    pub(crate) pending: Pending,
    pub(crate) rcv: ReceiveVariables,
    pub(crate) advertised: AdvertisedWindow,
    pub(crate) ts: TimestampState,
    pub(crate) rtt: Rtt,

    // Second line: the send sequence space (RFC 9293 3.3.1), and unsent and unacknowledged data.
    pub(crate) snd: SendVariables,
    pub(crate) send: SendQueue,
    /// Of the whole connection, because it names the owner: written once, at its beginning.
    pub(crate) consumer: ConsumerId,

    // Third line: deadlines; whether anything is missing.
    pub(crate) clock: Clock,
    pub(crate) rack_segment: RackSegment,
    pub(crate) sack: Scoreboard,

    // Fourth line: the last field of the scoreboard, the queue out of order, options, and counts,
    // except for the acknowledged bytes, which begin the fifth line.
    pub(crate) out_of_order: OutOfOrder,
    pub(crate) options: StoredOptions,
    pub(crate) tally: ConnectionTally,

    // Fifth line: fields that an acknowledgment updates, and those for computing how much may leave
    // at once.
    pub(crate) round: Round,
    pub(crate) rack: Rack,
    pub(crate) dsack: Duplicate,
    /// Its last half is in a later line, because few acknowledgments need it.
    pub(crate) congestion: CongestionState,

    // Behind: fields for a pause, a loss, and the beginning and the end of a connection.
    pub(crate) rare_clock: RareClock,
    pub(crate) rare_options: RareOptions,
    pub(crate) rare_tally: RareTally,
    pub(crate) rare_rcv: RareReceive,
    pub(crate) rare_snd: RareSend,
    pub(crate) loss: Loss,
    pub(crate) accepted_by: AcceptedBy,
    pub(crate) reordering: Reordering,
    pub(crate) ending: Ending,
    pub(crate) counted: Counted,
    pub(crate) path: PathMtu,
}

/// A byte with one valid value of 256. The slab marks a free slot by an invalid value of some
/// field, and this field has the most to spare. It is in the first cache line, so the test reads no
/// line that would not be needed anyway.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
enum Taken {
    Yes,
}

/// A span of time in half the size: microseconds, 71 minutes at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Micros(pub(crate) u32);

impl Micros {
    pub(crate) const ZERO: Self = Self(0);

    /// The span, rounded up, and capped at the longest.
    #[inline]
    pub(crate) fn of(span: Duration) -> Self {
        Self(span.as_nanos().div_ceil(1_000).min(u64::from(u32::MAX)) as u32)
    }

    /// The span, rounded down: all data sent in one burst has the same age.
    #[inline]
    pub(crate) fn floor(span: Duration) -> Self {
        Self((span.as_nanos() / 1_000).min(u64::from(u32::MAX)) as u32)
    }

    #[inline]
    pub(crate) fn span(self) -> Duration {
        Duration::from_micros(self.0.into())
    }
}

/// Units of 2^30 ns, a little more than a second: one shift.
#[inline]
pub(crate) fn coarse_seconds(now: Instant) -> u32 {
    (now.as_nanos() >> 30) as u32
}

impl Connection {
    /// A connection of `flow` before its handshake.
    pub(crate) fn new(
        flow: Flow,
        state: State,
        options: &ConnectionOptions,
        consumer: ConsumerId,
        now: Instant,
    ) -> Self {
        Self {
            flow,
            generation: 0,
            state,
            recovery: Recovery::Open,
            taken: Taken::Yes,
            flags: Flags::NONE,
            pending: Pending::NONE,
            snd: SendVariables::NEW,
            send: SendQueue::new(),
            rare_snd: RareSend::default(),
            rcv: ReceiveVariables::NEW,
            advertised: AdvertisedWindow::default(),
            ts: TimestampState::new(now),
            rare_rcv: RareReceive::default(),
            out_of_order: OutOfOrder::default(),
            rtt: Rtt::new(),
            clock: Clock::new(now),
            rare_clock: RareClock::NEW,
            sack: Scoreboard::CLEAR,
            round: Round::new(now),
            reordering: Reordering::NEW,
            rack_segment: RackSegment::NONE,
            rack: Rack::default(),
            loss: Loss::default(),
            rare_tally: RareTally::default(),
            congestion: CongestionState::new(options.congestion),
            dsack: Duplicate::default(),
            options: StoredOptions::new(options),
            rare_options: RareOptions::new(options),
            accepted_by: AcceptedBy::NOBODY,
            consumer,
            ending: Ending::NEW,
            path: PathMtu::NEW,
            counted: Counted::NOT,
            tally: ConnectionTally::default(),
        }
    }

    /// Whether any of `flags` is set.
    #[inline]
    pub(crate) fn has(&self, flags: impl Into<Flags>) -> bool {
        self.flags.intersects(flags.into())
    }

    #[inline]
    pub(crate) fn set(&mut self, flags: impl Into<Flags>) {
        self.flags.insert(flags.into());
    }

    #[inline]
    pub(crate) fn clear(&mut self, flags: impl Into<Flags>) {
        self.flags.remove(flags.into());
    }

    #[inline]
    pub(crate) fn is_on(&self, switch: u8) -> bool {
        self.options.switches & switch != 0
    }

    /// RFC 6675 2, pipe: the estimate of data in the network.
    #[inline]
    pub(crate) fn pipe(&self) -> u32 {
        (self.snd.flight() + self.sack.resent_len).saturating_sub(self.sack.sacked_len + self.sack.lost_len)
    }

    /// Bytes sent for the first time: numbers sent, less those of SYN and FIN.
    pub(crate) fn bytes_sent(&self) -> u64 {
        let is_syn_out = self.tally.bytes_acked == 0 && self.snd.una == self.rare_snd.iss;
        let others = u64::from(is_syn_out) + u64::from(self.has_sent_fin());
        (self.tally.bytes_acked + u64::from(self.snd.flight())).saturating_sub(others)
    }

    /// The number of these bytes that the peer has acknowledged.
    pub(crate) fn bytes_acked(&self) -> u64 {
        let is_fin_acknowledged = self.has_sent_fin() && self.snd.flight() == 0;
        self.tally.bytes_acked - u64::from(is_fin_acknowledged)
    }

    /// Whether the app has closed its side, and no chunk was free yet for the FIN.
    pub(crate) fn owes_fin(&self) -> bool {
        !self.has(AppFlags::FIN_QUEUED) && matches!(self.state, State::FinWait1 | State::Closing | State::LastAck)
    }

    fn has_sent_fin(&self) -> bool {
        self.has(AppFlags::FIN_QUEUED) && self.send.next_unsent == NIL
    }

    /// RCV.WND: the current window, and never less than was shown.
    #[inline]
    pub(crate) fn rcv_wnd(&self) -> u32 {
        // A buffer that has grown since our SYN may exceed its scale.
        let shown_max = u32::from(u16::MAX) << self.snd.rcv_wscale;
        let room = self.options.receive_buffer.saturating_sub(self.rcv.in_order_len).min(shown_max);
        room.max(if self.advertised.adv.is_after(self.rcv.nxt) { self.advertised.adv - self.rcv.nxt } else { 0 })
    }
}

impl Connection {
    /// The first cache lines, which a segment of an established connection touches.
    pub(crate) const HOT_LINES: usize = 5;
}

/// [`TcpConfig::connection_len`](crate::proto::tcp::TcpConfig::connection_len) has the sum that
/// this is a part of.
const _: () = assert!(size_of::<Connection>() == 512);

#[cfg(test)]
mod tests {
    use core::mem::offset_of;

    use super::*;
    use crate::proto::slab::Slot;

    const LINE: usize = 64;

    /// Where a field ends.
    macro_rules! end {
        ($field:ident) => {
            offset_of!(Connection, $field) + size_of_val(&fresh().$field)
        };
    }

    fn fresh() -> Connection {
        let at = core::net::SocketAddrV4::new(core::net::Ipv4Addr::LOCALHOST, 80);
        let flow = Flow { local: at, remote: at };
        Connection::new(flow, State::Established, &ConnectionOptions::default(), ConsumerId(0), Instant::ZERO)
    }

    #[test]
    fn lines_hold_what_belongs_together() {
        let ends = [end!(rtt), end!(consumer), offset_of!(Connection, sack) + offset_of!(Scoreboard, resent_len)];
        assert_eq!(ends, [LINE, 2 * LINE, 3 * LINE]);
        let counts = offset_of!(Connection, tally) + offset_of!(ConnectionTally, bytes_acked);
        let congestion = offset_of!(Connection, congestion) + offset_of!(CongestionState, w_max);
        assert_eq!((counts, congestion), (4 * LINE, Connection::HOT_LINES * LINE));
    }

    #[test]
    fn place_in_the_slab_takes_no_more_than_the_connection() {
        assert_eq!((size_of::<Slot<Connection>>(), align_of::<Slot<Connection>>()), (8 * LINE, LINE));
    }
}
