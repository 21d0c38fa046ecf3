//! [`Feed`], the app: assigns each datagram to its channel and line, or drops it for a reason.
//! Lines and sets are configured, or learned from the first good packet of each group: see
//! [`Feed::place`].

mod admission;
mod asking;
mod drops;
mod settings;

use core::net::SocketAddrV4;

use arrayvec::ArrayVec;
use market::event::Status;
use market::framing::{Framing, Header, Packet, PacketKind};
use market::{EventSink, Line};
use wirepath::counters::{Drops, Scope};
use wirepath::mem::Held;
use wirepath::pipeline::{App, Cx, Datagram};
use wirepath::proto::ConsumerId;
use wirepath::time::{Instant, UnixTime};

use super::channel::Channel;
use super::counters::FeedCounters;
use super::deadlines::Deadlines;
use super::index::{Index, Key};
use super::latency::Sampler;
use super::mixed::WorkerFeed;
use super::tally::{FeedTally, Tops};
use super::unassigned::{UNASSIGNED_MAX, UnassignedPackets};
use crate::format::Protocol;
use crate::join::Learner;
use crate::recovery::{RecoveryPlan, WorkerEnd};

pub use drops::FeedDrop;
pub use settings::{ArrivalClock, CHANNELS_MAX, FeedConfig, FeedLine, GROUPS_MAX, LINES_MAX, NUMBERS_MAX, SetConfig};

/// A group that packets arrive on. Its index is its consumer.
pub(super) struct Source {
    pub(super) name: Option<String>,
    pub(super) group: SocketAddrV4,
    vlan: Option<u16>,
    /// `None` until its first packet assigns it to a set.
    place: Option<(u16, Line)>,
    /// Number and index of the last packet's channel, because the next packet is mostly of the same
    /// channel.
    recent: Option<(u32, u32)>,
}

impl Source {
    /// A group that its first packet assigns to a set.
    fn learned(group: SocketAddrV4) -> Self {
        Self { name: None, group, vlan: None, place: None, recent: None }
    }
}

/// Lines that carry the same messages, by their sources.
pub(super) struct Set {
    pub(super) name: Option<String>,
    pub(super) lines: ArrayVec<u32, LINES_MAX>,
    numbers: Numbers,
}

/// The channel numbers that a set accepts. Any sender that reaches a group can name any.
enum Numbers {
    /// The set was learned: all.
    Any,
    /// The first that arrives, once it has.
    First(Option<u32>),
    /// These.
    Named(Vec<u32>),
}

impl Numbers {
    fn takes(&self, number: u32) -> bool {
        match self {
            Self::Any => true,
            Self::First(first) => first.is_none_or(|first| first == number),
            Self::Named(numbers) => numbers.contains(&number),
        }
    }
}

/// The feed handler's app. Each channel passes its events to a clone of `S`, by default to nobody.
pub struct Feed<P: Protocol, S = ()> {
    config: FeedConfig,
    pub(super) sources: Vec<Source>,
    pub(super) sets: Vec<Set>,
    pub(super) channels: Vec<Channel<P, S>>,
    index: Index,
    deadlines: Deadlines,
    /// Memory for channels without a packet yet: all of the configured sets, and the first that is
    /// learned, which has no set.
    spare: Vec<(Option<u16>, Channel<P, S>)>,
    sink: S,
    /// Channels that were learned.
    learned: usize,
    /// Datagrams of groups that were not accepted because there were [`GROUPS_MAX`] already.
    pub(super) groups_refused: u64,
    newest_ns: u64,
    /// For each configured set, and then one for all that is learned.
    unassigned_packets: Vec<UnassignedPackets>,
    pub(super) sampler: Sampler,
    counters: FeedCounters,
    drops: Drops<FeedDrop>,
    /// The thread that speaks with servers, where there are any.
    link: Option<WorkerEnd<P::Books>>,
    /// When the worker looks again for what to ask of it.
    recovery_due_ns: u64,
    /// By set: whether a channel of it wants snapshots.
    wanting: Vec<bool>,
    /// Books that an image replaced, and its states, until the ring to the thread has room.
    replaced: Option<(Box<P::Books>, Vec<Status>)>,
}

impl<P: Protocol> Feed<P> {
    /// A feed with the memory for the channels that are configured, and for the first that is
    /// learned. Its consumers are the places of its lines, set after set, and then of its groups:
    /// the port subscribes to them.
    pub fn new(config: FeedConfig, sampler: Sampler, scope: &Scope) -> Self {
        Self::with_sink(config, (), sampler, scope)
    }
}

impl<P: Protocol, S: EventSink + Clone> Feed<P, S> {
    /// The same; each channel passes its events to a clone of `sink`.
    pub fn with_sink(config: FeedConfig, sink: S, sampler: Sampler, scope: &Scope) -> Self {
        let scope = scope.scope("feed");
        let learned_max = config.learned_max.min(CHANNELS_MAX);
        let configured: usize = config.sets.iter().map(SetConfig::channels_max).sum();
        let channels_max = configured + learned_max;
        let mut feed = Self {
            sources: Vec::with_capacity(GROUPS_MAX),
            sets: Vec::with_capacity(GROUPS_MAX),
            channels: Vec::with_capacity(channels_max),
            index: Index::new(channels_max),
            deadlines: Deadlines::new(channels_max),
            spare: Vec::new(),
            sink,
            learned: 0,
            groups_refused: 0,
            newest_ns: 0,
            unassigned_packets: Vec::new(),
            sampler,
            counters: FeedCounters::new(&scope),
            drops: scope.drops(),
            link: None,
            recovery_due_ns: 0,
            wanting: vec![false; config.sets.len()],
            replaced: None,
            config: FeedConfig { learned_max, ..config },
        };
        for set in feed.config.sets.clone() {
            feed.add_set(&set);
        }
        for group in feed.config.groups.clone() {
            feed.sources.push(Source::learned(group));
        }
        let learned = UnassignedPackets::new(learned_max.max(UNASSIGNED_MAX));
        let configured_sets = feed.sets.iter().map(|_| UnassignedPackets::new(UNASSIGNED_MAX));
        feed.unassigned_packets = configured_sets.chain([learned]).collect();
        let learned = (learned_max > 0).then(|| (None, feed.new_channel(&RecoveryPlan::default())));
        let of_sets = (0_u16..).zip(&feed.config.sets).flat_map(|(idx, set)| {
            let feed = &feed;
            (0..set.channels_max()).map(move |_| (Some(idx), feed.new_channel(&set.recovery)))
        });
        feed.spare = of_sets.chain(learned).collect();
        feed
    }

    /// Connects the feed with the thread that speaks with its servers.
    pub(crate) fn recover_by(&mut self, link: WorkerEnd<P::Books>) {
        self.link = Some(link);
    }

    /// After the last packet: opens the channels of which one packet came and that nothing
    /// contradicts, and gives up every hole.
    fn finish(&mut self) {
        for place in 0..self.unassigned_packets.len() {
            while let Some(newcomer) = self.unassigned_packets[place].pop() {
                let has_channel = |channel: &Channel<P, S>| Some(channel.key.set) == newcomer.set;
                if self.channels.iter().any(has_channel) {
                    self.drops.count(FeedDrop::Doubtful);
                } else {
                    self.admit(newcomer);
                }
            }
        }
        for channel in &mut self.channels {
            channel.finish(&mut self.counters);
        }
    }

    fn add_set(&mut self, config: &SetConfig) {
        let numbers = match &config.numbers[..] {
            [] => Numbers::First(None),
            numbers => Numbers::Named(numbers.to_vec()),
        };
        let mut set = Set { name: Some(config.name.clone()), lines: ArrayVec::new(), numbers };
        for (idx, line) in config.lines.iter().enumerate() {
            set.lines.push(self.sources.len() as u32);
            self.sources.push(Source {
                name: Some(line.name.clone()),
                group: line.group,
                vlan: line.vlan,
                place: Some((self.sets.len() as u16, Line(idx))),
                recent: None,
            });
        }
        self.sets.push(set);
    }

    fn new_channel(&self, recovery: &RecoveryPlan) -> Channel<P, S> {
        let FeedConfig { policy, window, capacity, .. } = self.config;
        Channel::new(policy, window, capacity, self.sink.clone(), recovery)
    }

    /// Checks the datagram and gives it to its channel.
    #[inline]
    fn take(&mut self, idx: usize, datagram: &Datagram<'_>, now_ns: u64, cx: &Cx<'_>) -> Result<(), FeedDrop> {
        if let Some(vlan) = self.sources[idx].vlan
            && datagram.vlan.map(|tci| tci & 0x0fff) != Some(vlan)
        {
            return Err(FeedDrop::OtherVlan);
        }
        let packet = P::Framing::parse(datagram.payload)?;
        if !P::carries(&packet.raw) {
            return Err(FeedDrop::OtherFormat);
        }
        // Nothing shows whether such messages came before, or from whom.
        if packet.header.kind == PacketKind::Unsequenced {
            return Err(FeedDrop::Unsequenced);
        }
        // A packet that waits keeps its buffers; a pool that runs low serves receiving first.
        let hold = || (cx.pool.available() > wirepath::mem::BURST_MAX).then(|| datagram.hold());
        let Some((channel, line)) = self.route(idx, &packet.header) else {
            return self.introduce(idx, &packet, now_ns, hold);
        };
        self.process(channel, line, &packet, now_ns, hold);
        Ok(())
    }

    /// The channel and the line of a packet, where both are known: one compare where the packet is
    /// of the same channel as its group's last.
    #[inline]
    fn route(&mut self, source: usize, header: &Header) -> Option<(usize, Line)> {
        let source = &mut self.sources[source];
        let (set, line) = source.place?;
        if let Some((number, idx)) = source.recent
            && number == header.channel
        {
            return Some((idx as usize, line));
        }
        let idx = self.index.find(Key { set, channel: header.channel })?;
        source.recent = Some((header.channel, idx as u32));
        Some((idx, line))
    }

    /// Passes a packet to its channel, and records the deadline of the channel's hole.
    #[inline]
    pub(super) fn process(
        &mut self,
        idx: usize,
        line: Line,
        packet: &Packet<'_, P::Framing>,
        now_ns: u64,
        hold: impl FnOnce() -> Option<Held>,
    ) {
        self.counters.packets.inc();
        let channel = &mut self.channels[idx];
        channel.process(line, packet, now_ns, hold, &mut self.counters);
        if let Some(deadline_ns) = channel.arbiter.deadline_ns() {
            self.deadlines.note(idx, deadline_ns);
        }
    }

    /// Gives up the holes whose deadline has passed.
    #[cold]
    pub(super) fn expire(&mut self, now_ns: u64) {
        self.deadlines.expire(now_ns, |idx| {
            let channel = &mut self.channels[idx];
            channel.expire(now_ns, &mut self.counters);
            channel.arbiter.deadline_ns()
        });
    }

    /// The arrival time of a packet. Never decreases, even where a capture of two lines does.
    #[inline]
    fn arrival_ns(&mut self, timestamp: Option<UnixTime>, now: Instant) -> u64 {
        let at_ns = match self.config.clock {
            // A packet without a timestamp arrived no earlier than the one before it.
            ArrivalClock::Recorded => timestamp.map_or(self.newest_ns, UnixTime::as_nanos),
            ArrivalClock::Worker => now.as_nanos(),
        };
        self.newest_ns = self.newest_ns.max(at_ns);
        self.newest_ns
    }
}

impl<P: Protocol, S: EventSink + Clone> WorkerFeed for Feed<P, S> {
    #[inline]
    fn on_packet(&mut self, source: usize, datagram: &Datagram<'_>, cx: &mut Cx<'_>) {
        let now_ns = self.arrival_ns(datagram.timestamp, cx.now);
        if let Err(reason) = self.take(source, datagram, now_ns, cx) {
            self.drops.count(reason);
        }
        self.sampler.packet_done();
    }

    fn results(&self, tops: Tops) -> FeedTally {
        self.tally(tops)
    }
}

impl<P: Protocol, S: EventSink + Clone> App for Feed<P, S> {
    #[inline]
    fn on_datagram(&mut self, datagram: &Datagram<'_>, cx: &mut Cx<'_>) {
        self.on_packet(datagram.consumer.0 as usize, datagram, cx);
    }

    /// Holes also expire while no packets arrive. Costs one compare where none has expired.
    #[inline]
    fn tick(&mut self, cx: &mut Cx<'_>) {
        let now_ns = cx.now.as_nanos();
        if self.config.clock == ArrivalClock::Worker && self.deadlines.is_due(now_ns) {
            self.expire(now_ns);
        }
        if self.link.is_some() && now_ns >= self.recovery_due_ns {
            self.recover(now_ns);
        }
        for channel in &mut self.channels {
            channel.builder.sink.turn(&channel.builder.books, now_ns);
        }
    }

    fn on_stop(&mut self, _: &mut Cx<'_>) {
        self.finish();
    }
}

impl<P: Protocol, S: EventSink + Clone> Learner for Feed<P, S> {
    fn on_new_group(&mut self, group: SocketAddrV4) -> Option<ConsumerId> {
        if self.sources.len() == GROUPS_MAX {
            self.groups_refused += 1;
            return None;
        }
        self.sources.push(Source::learned(group));
        Some(ConsumerId(self.sources.len() as u32 - 1))
    }
}

#[cfg(test)]
mod tests;
