//! How long a request takes from the tick that it answers to the wire, stage by stage.
//!
//! ```text
//!  wire ─▶ poll ─▶ decoded ─▶ decided ─▶ posted ─▶ wire
//!           │         │          │          └ the line has the bytes, past risk and journal
//!           │         │          └ the strategy has called `Orders`
//!           │         └ the books have the packet
//!           └ the packet was read from its socket, or the burst that it came in was polled
//! ```
//!
//! A gateway without a [`Latency`] reads no clock for it. One that has it reads the processor's
//! counter once for a packet and three times for a request. Values are recorded when the request
//! has left, into memory of the start. Requests that answer no packet, because an answer of the
//! venue or a timer caused them, are not measured.

mod picture;
mod report;

use std::time::{SystemTime, UNIX_EPOCH};

use arrayvec::ArrayVec;
use hdrhistogram::Histogram;
use wirepath::time::{Clock, MonotonicClock, TscClock};

/// A packet after so long a silence comes after idle, where the configuration does not say it.
pub const IDLE_NS: u64 = 1_000_000;
/// A value that is greater counts as this one.
const LATENCY_NS_MAX: u64 = 60_000_000_000;
/// Values are exact to two digits: 30 KiB for a histogram.
const DIGITS: u8 = 2;
/// Requests that the line has not taken yet, or whose time stamp is to come. Others are not
/// measured there.
const WAITING_MAX: usize = 128;

/// A part of the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Until the packet is ours, by the time stamp of its arrival.
    WireToPoll,
    /// Until the books have it. Packets of the same poll that are before it count.
    PollToDecoded,
    /// Until the strategy wants the request.
    DecodedToDecided,
    /// Through risk checks, journal and session. Ends where a line that stamps is given the bytes,
    /// because a write to it sends; of others where it has taken them.
    DecidedToPosted,
    /// Until the request leaves, by its time stamp.
    PostedToWire,
    /// From the packet to the posted request.
    PollToPosted,
    /// The whole way, where both ends of it are stamped.
    WireToWire,
}

impl Stage {
    /// In the order of the report.
    pub const ALL: [Self; 7] = [
        Self::WireToPoll,
        Self::PollToDecoded,
        Self::DecodedToDecided,
        Self::DecidedToPosted,
        Self::PostedToWire,
        Self::PollToPosted,
        Self::WireToWire,
    ];

    /// Its name in a report.
    pub const fn name(self) -> &'static str {
        match self {
            Self::WireToPoll => "wire → poll",
            Self::PollToDecoded => "poll → decoded",
            Self::DecodedToDecided => "decoded → decided",
            Self::DecidedToPosted => "decided → posted",
            Self::PostedToWire => "posted → wire",
            Self::PollToPosted => "poll → posted",
            Self::WireToWire => "wire → wire",
        }
    }
}

/// How the request's tick came: caches are cold after a silence, and a burst has to be waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// The first request of a poll, behind a silence.
    AfterIdle,
    /// The first request of a poll.
    First,
    /// Another request of the same poll.
    Later,
}

impl Arrival {
    /// In the order of the report.
    pub const ALL: [Self; 3] = [Self::AfterIdle, Self::First, Self::Later];

    /// Its name in a report.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AfterIdle => "after idle",
            Self::First => "first in burst",
            Self::Later => "later in burst",
        }
    }
}

/// The measurements of one gateway.
#[derive(Debug)]
pub struct Latency {
    clock: StampClock,
    idle_ns: u64,
    /// Why stages have no time stamps, by [`Stage::ALL`].
    missing: [Option<&'static str>; Stage::ALL.len()],
    /// The packet whose books are published now.
    tick: Option<Tick>,
    /// When the present poll found its first packet.
    polled_ns: Option<u64>,
    last_packet_ns: u64,
    /// How the next request of this poll arrives.
    arrival: Arrival,
    unposted: ArrayVec<Decided, WAITING_MAX>,
    /// Bytes that the line has taken, modulo 2^32, where it stamps what leaves.
    stamped_bytes: Option<u32>,
    /// As many of them have left, by their time stamps.
    left_bytes: u32,
    /// When that line was given bytes last, with the time since 1970.
    given: (u64, u64),
    unstamped: ArrayVec<Posted, WAITING_MAX>,
    /// By [`Stage::ALL`], then by [`Arrival::ALL`].
    histograms: Box<[[Histogram<u64>; Arrival::ALL.len()]]>,
}

#[derive(Clone, Copy, Debug)]
struct Tick {
    /// When it arrived, and when it was read: since 1970.
    arrived: Option<(u64, u64)>,
    poll_ns: u64,
    decoded_ns: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Decided {
    tick: Tick,
    arrival: Arrival,
    decided_ns: u64,
}

/// A request whose time stamp is to come.
#[derive(Clone, Copy, Debug)]
struct Posted {
    arrival: Arrival,
    arrived_ns: Option<u64>,
    last_byte: u32,
    utc_ns: u64,
}

impl Latency {
    /// Without values. A packet behind a silence of `idle_ns` comes after idle. Takes 20 ms to find
    /// the rate of the processor's counter, and half a mebibyte.
    pub fn start(idle_ns: u64) -> Self {
        let empty =
            || Histogram::new_with_bounds(1, LATENCY_NS_MAX, DIGITS).expect("the bounds are constants that fit");
        Self {
            clock: StampClock::start(),
            idle_ns,
            missing: [None; Stage::ALL.len()],
            tick: None,
            polled_ns: None,
            last_packet_ns: 0,
            arrival: Arrival::AfterIdle,
            unposted: ArrayVec::new(),
            stamped_bytes: None,
            left_bytes: 0,
            given: (0, 0),
            unstamped: ArrayVec::new(),
            histograms: Stage::ALL.iter().map(|_| Arrival::ALL.map(|_| empty())).collect(),
        }
    }

    /// The transport has no time stamps for `stage`: the report says `why`.
    pub const fn set_missing(&mut self, stage: Stage, why: &'static str) {
        self.missing[stage as usize] = Some(why);
    }

    /// The values of a stage.
    pub fn histogram(&self, stage: Stage, arrival: Arrival) -> &Histogram<u64> {
        &self.histograms[stage as usize][arrival as usize]
    }

    /// Requests that were measured.
    pub fn measured(&self) -> u64 {
        Arrival::ALL.iter().map(|arrival| self.histogram(Stage::PollToPosted, *arrival).len()).sum()
    }

    /// The next packet is the first of another poll.
    #[inline]
    pub(crate) const fn begin_poll(&mut self) {
        self.polled_ns = None;
    }

    /// A packet was read by itself, and arrived at this time since 1970, where that is known.
    #[inline]
    pub(crate) fn packet_read(&mut self, arrived_ns: Option<u64>) {
        let now_ns = self.clock.now_ns();
        self.packet(now_ns, arrived_ns.map(|arrived_ns| (arrived_ns, utc_ns())), now_ns);
    }

    /// A packet of a burst that was polled as a whole.
    #[inline]
    pub(crate) fn packet_of_burst(&mut self) {
        match self.polled_ns {
            Some(polled_ns) => self.packet(polled_ns, None, polled_ns),
            None => {
                let now_ns = self.clock.now_ns();
                self.packet(now_ns, None, now_ns);
            }
        }
    }

    fn packet(&mut self, poll_ns: u64, arrived: Option<(u64, u64)>, now_ns: u64) {
        if self.polled_ns.is_none() {
            let is_idle = now_ns.saturating_sub(self.last_packet_ns) >= self.idle_ns;
            self.arrival = if is_idle { Arrival::AfterIdle } else { Arrival::First };
            self.polled_ns = Some(now_ns);
        }
        self.last_packet_ns = now_ns;
        self.tick = Some(Tick { arrived, poll_ns, decoded_ns: None });
    }

    /// The books have the packet, and one of ours has changed: the strategy is asked.
    #[inline]
    pub(crate) fn decoded(&mut self) {
        if let Some(tick) = &mut self.tick
            && tick.decoded_ns.is_none()
        {
            tick.decoded_ns = Some(self.clock.now_ns());
        }
    }

    /// The strategy wants a request. `None` where no packet is its cause.
    #[inline]
    pub(crate) fn decide(&mut self) -> Option<u64> {
        self.tick.is_some().then(|| self.clock.now_ns())
    }

    /// The request that was wanted then stands in the session.
    #[inline]
    pub(crate) fn written(&mut self, decided_ns: Option<u64>) {
        let (Some(tick), Some(decided_ns)) = (self.tick, decided_ns) else { return };
        // One for which there is no room is not measured.
        let _ = self.unposted.try_push(Decided { tick, arrival: self.arrival, decided_ns });
        self.arrival = Arrival::Later;
    }

    /// The strategy has been asked about all that the packet changed.
    #[inline]
    pub(crate) const fn packet_over(&mut self) {
        self.tick = None;
    }

    /// There is another line, which stamps the bytes that leave, or does not.
    pub(crate) fn line_opened(&mut self, is_stamped: bool) {
        self.unposted.clear();
        self.unstamped.clear();
        (self.stamped_bytes, self.left_bytes) = (is_stamped.then_some(0), 0);
    }

    /// The line is given what the session has written.
    #[inline]
    pub(crate) fn line_is_given(&mut self) {
        if self.stamped_bytes.is_some() && !self.unposted.is_empty() {
            self.given = (self.clock.now_ns(), utc_ns());
        }
    }

    /// The line has taken `len` bytes, and more are left where it `has_more`.
    #[inline]
    pub(crate) fn line_took(&mut self, len: usize, has_more: bool) {
        // A line that takes 4 GiB at once is none.
        let bytes = self.stamped_bytes.map(|bytes| bytes.wrapping_add(len as u32));
        self.stamped_bytes = bytes;
        if has_more || self.unposted.is_empty() {
            return;
        }
        let (posted_ns, utc_ns) = match bytes {
            Some(_) => self.given,
            None => (self.clock.now_ns(), 0),
        };
        for decided in self.unposted.take() {
            self.record_posted(&decided, posted_ns);
            if let Some(bytes) = bytes {
                let _ = self.unstamped.try_push(Posted {
                    arrival: decided.arrival,
                    arrived_ns: decided.tick.arrived.map(|(arrived_ns, _)| arrived_ns),
                    last_byte: bytes.wrapping_sub(1),
                    utc_ns,
                });
            }
        }
    }

    /// Whether a time stamp of the line is to come. Each write has one, also where no packet is its
    /// cause: stamps that nobody takes fill the memory for what the venue says.
    #[inline]
    pub(crate) fn awaits_stamp(&self) -> bool {
        self.stamped_bytes.is_some_and(|bytes| bytes != self.left_bytes)
    }

    /// The bytes up to `last_byte` have left at this time since 1970.
    pub(crate) fn left(&mut self, last_byte: u32, at_ns: u64) {
        let left = last_byte.wrapping_add(1);
        // Bytes that were sent again are stamped again.
        if left.wrapping_sub(self.left_bytes) < u32::MAX / 2 {
            self.left_bytes = left;
        }
        while let Some(posted) = self.unstamped.first().copied()
            && last_byte.wrapping_sub(posted.last_byte) < u32::MAX / 2
        {
            self.unstamped.remove(0);
            // Its own stamp was lost where this one is of later bytes.
            if posted.last_byte == last_byte {
                self.record(Stage::PostedToWire, posted.arrival, at_ns.saturating_sub(posted.utc_ns));
                if let Some(arrived_ns) = posted.arrived_ns {
                    self.record(Stage::WireToWire, posted.arrival, at_ns.saturating_sub(arrived_ns));
                }
            }
        }
    }

    fn record_posted(&mut self, decided: &Decided, posted_ns: u64) {
        let Decided { tick: Tick { arrived, poll_ns, decoded_ns }, arrival, decided_ns } = *decided;
        let decoded_ns = decoded_ns.unwrap_or(decided_ns);
        if let Some((arrived_ns, read_ns)) = arrived {
            self.record(Stage::WireToPoll, arrival, read_ns.saturating_sub(arrived_ns));
        }
        self.record(Stage::PollToDecoded, arrival, decoded_ns.saturating_sub(poll_ns));
        self.record(Stage::DecodedToDecided, arrival, decided_ns.saturating_sub(decoded_ns));
        self.record(Stage::DecidedToPosted, arrival, posted_ns.saturating_sub(decided_ns));
        self.record(Stage::PollToPosted, arrival, posted_ns.saturating_sub(poll_ns));
    }

    fn record(&mut self, stage: Stage, arrival: Arrival, ns: u64) {
        self.histograms[stage as usize][arrival as usize].saturating_record(ns);
    }
}

/// The time since 1970.
fn utc_ns() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_epoch.as_nanos()).unwrap_or(u64::MAX)
}

/// The processor's counter where it runs evenly, else the system's clock.
#[derive(Debug)]
enum StampClock {
    Tsc(TscClock),
    System(MonotonicClock),
    #[cfg(test)]
    Manual(std::rc::Rc<std::cell::Cell<u64>>),
}

impl StampClock {
    fn start() -> Self {
        TscClock::start().map_or_else(|| Self::System(MonotonicClock::start()), Self::Tsc)
    }

    #[inline]
    fn now_ns(&mut self) -> u64 {
        match self {
            Self::Tsc(clock) => clock.now().as_nanos(),
            Self::System(clock) => clock.now().as_nanos(),
            #[cfg(test)]
            Self::Manual(now_ns) => now_ns.get(),
        }
    }
}

#[cfg(test)]
mod tests;
