//! One channel: a sequence of messages with its arbiter, decoder and books.

use market::framing::{Framing, Header, Packet, Session};
use market::{Arbiter, BookBuilder, Capacity, ChannelHandler, EventSink, Gap, Line, Output, Policy, Verdict, Window};
use wirepath::mem::Held;

use super::app::LINES_MAX;
use super::counters::FeedCounters;
use super::index::Key;
use crate::format::Protocol;

pub(super) struct Channel<P: Protocol, S> {
    pub(super) key: Key,
    /// Session of the packet that opened it, until the arbiter has one.
    session: Session,
    pub(super) arbiter: Arbiter<Held>,
    pub(super) builder: BookBuilder<P::Codec, P::Books, S>,
    pub(super) gaps: GapLog,
    /// Messages in packets that should have waited, but no buffer was free for them.
    pub(super) not_kept: u64,
    /// Messages that the decoder was given. More than were delivered where the sequence numbers
    /// packets.
    built: u64,
}

/// The first gaps of a channel. Later ones are in the counters only.
pub(super) struct GapLog {
    pub(super) gaps: Vec<Gap>,
}

impl GapLog {
    /// More than a day on a good network has; 16 KiB a channel.
    pub(super) const GAPS_MAX: usize = 1024;

    fn push(&mut self, gap: Gap) {
        if self.gaps.len() < Self::GAPS_MAX {
            self.gaps.push(gap);
        }
    }
}

impl<P: Protocol, S: EventSink> Channel<P, S> {
    /// Memory for a channel that is not open yet.
    pub(super) fn new(policy: Policy, window: Window, capacity: Capacity, sink: S) -> Self {
        Self {
            key: Key { set: 0, channel: 0 },
            session: Session::default(),
            arbiter: Arbiter::new(LINES_MAX, policy, window),
            builder: BookBuilder::with_sink(P::Codec::default(), P::books(capacity), sink),
            gaps: GapLog { gaps: Vec::with_capacity(GapLog::GAPS_MAX) },
            not_kept: 0,
            built: 0,
        }
    }

    /// Opens the channel `key` with its first packet.
    pub(super) fn open(mut self, key: Key, session: Session) -> Self {
        self.key = key;
        self.session = session;
        self.builder.sink.opened(key.set, key.channel);
        self
    }

    /// Whether `header` belongs to the session that this channel carries.
    pub(super) fn carries_session_of(&self, header: &Header) -> bool {
        self.key.channel == header.channel && self.arbiter.session().unwrap_or(self.session) == header.session
    }

    /// Gives up every open hole: no packet will fill it.
    pub(super) fn finish(&mut self, counters: &mut FeedCounters) {
        self.arbiter.close();
        self.drain(u64::MAX, counters);
    }

    /// Handles a packet from `line`. `hold` keeps its bytes where it has to wait.
    #[inline]
    pub(super) fn process(
        &mut self,
        line: Line,
        packet: &Packet<'_, P::Framing>,
        now_ns: u64,
        hold: impl FnOnce() -> Option<Held>,
        counters: &mut FeedCounters,
    ) {
        self.expire(now_ns, counters);
        self.builder.sink.packet(now_ns);
        match self.arbiter.offer(line, &packet.header, now_ns) {
            Verdict::Deliver { skip } => self.build(packet, skip, counters),
            Verdict::Keep => self.keep(packet, hold()),
            Verdict::Discard => {}
        }
        self.drain(now_ns, counters);
    }

    /// Messages by the numbers of the decoder: those that it was given of what was delivered.
    pub(super) fn delivered(&self) -> u64 {
        if P::Framing::NUMBERS_PACKETS { self.built } else { self.arbiter.counts().delivered }
    }

    #[inline]
    fn build(&mut self, packet: &Packet<'_, P::Framing>, skip: u32, counters: &FeedCounters) {
        let built = build(packet, skip, &mut self.builder);
        self.built += built;
        counters.messages.add(built);
    }

    /// Gives up a hole whose deadline has passed.
    #[inline]
    pub(super) fn expire(&mut self, now_ns: u64, counters: &mut FeedCounters) {
        if self.arbiter.deadline_ns().is_some_and(|deadline_ns| deadline_ns <= now_ns) {
            self.builder.sink.packet(now_ns);
            self.drain(now_ns, counters);
        }
    }

    /// Executes the arbiter's outputs until there are none.
    #[inline]
    pub(super) fn drain(&mut self, now_ns: u64, counters: &mut FeedCounters) {
        while let Some(output) = self.arbiter.poll(now_ns) {
            self.act(output, counters);
        }
    }

    #[cold]
    fn act(&mut self, output: Output<Held>, counters: &mut FeedCounters) {
        match output {
            Output::Deliver { handle, skip } => {
                // The packet was checked when it was kept, and held bytes do not change.
                if let Ok(packet) = P::Framing::parse(counters.bytes(&handle)) {
                    let built = build(&packet, skip, &mut self.builder);
                    self.built += built;
                    counters.messages.add(built);
                }
            }
            Output::Discard { handle } => drop(handle),
            Output::Gap(gap) => {
                counters.gaps.inc();
                counters.missing.add(gap.len());
                self.gaps.push(gap);
                self.builder.on_gap(gap);
            }
            Output::Restart => self.builder.on_restart(),
            Output::EndOfSession => self.builder.on_end_of_session(),
        }
    }

    #[cold]
    fn keep(&mut self, packet: &Packet<'_, P::Framing>, held: Option<Held>) {
        let kept = held.is_some_and(|held| self.arbiter.keep(held).is_ok());
        if !kept {
            self.not_kept += u64::from(packet.header.count);
        }
    }
}

/// Passes all messages but the first `skip` to the builder, with their numbers. Returns how many.
#[inline]
fn build<F: Framing>(packet: &Packet<'_, F>, skip: u32, builder: &mut impl ChannelHandler) -> u64 {
    let mut built = 0;
    let is_numbered = packet.header.seq > 0;
    for (idx, message) in (0..).zip(packet.messages()).skip(skip as usize) {
        built += 1;
        // Where packets have the numbers, all messages of one have its number.
        let idx = if F::NUMBERS_PACKETS { 0 } else { idx };
        builder.on_message(if is_numbered { packet.header.seq + idx } else { 0 }, message);
    }
    built
}
