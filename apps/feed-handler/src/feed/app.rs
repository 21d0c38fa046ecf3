//! [`Feed`], the app: assigns each datagram to its channel and line, or drops it for a reason.
//! Lines and sets are configured, or learned from the first good packet of each group: see
//! [`Feed::place`].

use core::net::{Ipv4Addr, SocketAddrV4};

use arrayvec::ArrayVec;
use market::framing::{Framing, FramingError, Header, Packet, PacketKind, Session};
use market::image::ImageRequest;
use market::{Books, Capacity, EventSink, Line, Policy, Window};
use wirepath::counters::{Drops, Scope};
use wirepath::mem::Held;
use wirepath::pipeline::{App, Cx, Datagram};
use wirepath::proto::ConsumerId;
use wirepath::time::{Instant, UnixTime};

use crate::format::{Format, Protocol};
use crate::join::Learner;
use crate::recovery::{Answer, Command, RecoveryPlan, WorkerEnd};

use super::channel::Channel;
use super::counters::FeedCounters;
use super::deadlines::Deadlines;
use super::index::{Index, Key};
use super::latency::Sampler;
use super::loops::Loops;
use super::mixed::WorkerFeed;
use super::recovery::{ANSWERS_PER_TURN, ChannelLoops, INTERVAL_NS};
use super::tally::{FeedTally, Tops};
use super::unassigned::{UNASSIGNED_MAX, UnassignedPacket, UnassignedPackets};

/// Lines of one set: A, B, and a third such as a disaster-recovery site.
pub const LINES_MAX: usize = 4;
/// Groups that one feed listens to.
pub const GROUPS_MAX: usize = 1024;
/// Channels that a feed learns. Each has its own books, and the arriving packets decide how many
/// channels there are.
pub const CHANNELS_MAX: usize = 256;
/// Channel numbers that one set names: Cboe's largest feed has 35 units.
pub const NUMBERS_MAX: usize = 64;

wirepath::drop_reasons! {
    /// Why the feed handler drops a datagram.
    pub enum FeedDrop {
        /// Shorter than the framing's header.
        HeaderShort => "header_short",
        /// An unknown version of the framing.
        Version => "version",
        /// The header's length is not the datagram's.
        LengthMismatch => "length_mismatch",
        /// A message's length exceeds the datagram.
        MessageOverrun => "message_overrun",
        /// Bytes are left behind the last message.
        TrailingBytes => "trailing_bytes",
        /// The right framing with messages of another format.
        OtherFormat => "other_format",
        /// The packet has another VLAN than the line.
        OtherVlan => "other_vlan",
        /// A channel number that its set does not have.
        UnknownChannel => "unknown_channel",
        /// A channel beyond the [`CHANNELS_MAX`] that are learned.
        ChannelsFull => "channels_full",
        /// A channel beyond those that the machine had memory for at the start.
        NoMemory => "no_memory",
        /// A fifth group with the same session.
        LinesFull => "lines_full",
        /// The packet names a channel or a session that no second packet confirms.
        Doubtful => "doubtful",
        /// The packet has messages outside of its channel's numbers.
        Unsequenced => "unsequenced",
    }
}

impl From<FramingError> for FeedDrop {
    fn from(error: FramingError) -> Self {
        match error {
            FramingError::HeaderShort { .. } => Self::HeaderShort,
            FramingError::Version { .. } => Self::Version,
            FramingError::LengthMismatch { .. } => Self::LengthMismatch,
            FramingError::MessageOverrun { .. } => Self::MessageOverrun,
            FramingError::TrailingBytes { .. } => Self::TrailingBytes,
        }
    }
}

/// The configuration of a feed.
#[derive(Clone, Debug)]
pub struct FeedConfig {
    /// The first sequence number, and the rule for a restart.
    pub policy: Policy,
    /// How long a hole may stay open.
    pub window: Window,
    /// Memory for the books of each channel.
    pub capacity: Capacity,
    /// The clock that decides how long a hole stays open.
    pub clock: ArrivalClock,
    /// The sets that are known before the first packet.
    pub sets: Vec<SetConfig>,
    /// The place of each set among those of its worker, by which the sink knows it. Empty where
    /// they are all of the worker's.
    pub places: Vec<u16>,
    /// Groups that are known before the first packet, which then decides the set they belong to.
    pub groups: Vec<SocketAddrV4>,
    /// Channels that may be learned, [`CHANNELS_MAX`] at most. All but the first allocate when they
    /// appear. That delays everything else, which is acceptable for a file, because it waits. 0 on
    /// a live port.
    pub learned_max: usize,
}

/// Lines that carry the same messages.
#[derive(Clone, Debug)]
pub struct SetConfig {
    /// The operator's name for it.
    pub name: String,
    /// The format of its packets.
    pub format: Format,
    /// The queue of a live port that receives the line set; `None` for the first queue. All lines
    /// of a set are on one worker.
    pub queue: Option<u16>,
    /// The numbers of its channels in the packets, [`NUMBERS_MAX`] at most. Empty for a single
    /// channel, which takes the first number that arrives.
    pub numbers: Vec<u32>,
    /// Line A first.
    pub lines: Vec<LineConfig>,
    /// The servers for what no line brings. By default none.
    pub recovery: RecoveryPlan,
}

impl SetConfig {
    /// Channels that it may have.
    pub fn channels_max(&self) -> usize {
        self.numbers.len().max(1)
    }
}

/// One line of a set.
#[derive(Clone, Debug)]
pub struct LineConfig {
    /// The operator's name for it.
    pub name: String,
    /// Its group and port.
    pub group: SocketAddrV4,
    /// The only accepted VLAN; `None` for any.
    pub vlan: Option<u16>,
    /// The only accepted senders; empty for any.
    pub senders: Vec<Ipv4Addr>,
}

/// The clock that decides how long a hole stays open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArrivalClock {
    /// The time at which packets were recorded, which stands still between two packets: a replay
    /// gives the same result at any speed.
    Recorded,
    /// The worker's clock.
    Worker,
}

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
    /// Books that an image replaced, until the ring to the thread has room.
    replaced: Option<Box<P::Books>>,
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

    /// Handles a packet of an unknown channel or group, which a second agreeing packet makes known:
    /// see [`Newcomers`].
    #[cold]
    fn introduce(
        &mut self,
        source: usize,
        packet: &Packet<'_, P::Framing>,
        now_ns: u64,
        hold: impl FnOnce() -> Option<Held>,
    ) -> Result<(), FeedDrop> {
        let header = packet.header;
        let set = self.sources[source].place.map(|(set, _)| set);
        if let Some(set) = set
            && !self.sets[usize::from(set)].numbers.takes(header.channel)
        {
            return Err(FeedDrop::UnknownChannel);
        }
        // A group with the session of a known channel has that channel as its witness.
        let carries_session_of =
            set.is_none() && P::HAS_SESSIONS && self.channels.iter().any(|channel| channel.carries_session_of(&header));
        let second = UnassignedPacket { source, set, header, now_ns, held: None };
        let place = set.map_or(usize::MAX, usize::from).min(self.unassigned_packets.len() - 1);
        let unassigned_packets = &mut self.unassigned_packets[place];
        let first = unassigned_packets.take_witness(&second, P::HAS_SESSIONS);
        if first.is_none() && !carries_session_of {
            if unassigned_packets.has(&second) {
                return Err(FeedDrop::Doubtful);
            }
            if unassigned_packets.push(UnassignedPacket { held: hold(), ..second }).is_some() {
                self.drops.count(FeedDrop::Doubtful);
            }
            return Ok(());
        }
        if let Some(first) = first {
            self.admit(first);
        }
        let (channel, line) = self.open(source, &header)?;
        self.process(channel, line, packet, now_ns, hold);
        if set.is_some_and(|set| self.has_all_channels(set)) {
            self.dismiss(place);
        }
        Ok(())
    }

    /// Whether the set has all its channels.
    fn has_all_channels(&self, set: u16) -> bool {
        match &self.sets[usize::from(set)].numbers {
            Numbers::Any => false,
            Numbers::First(first) => first.is_some(),
            Numbers::Named(numbers) => numbers.iter().all(|&channel| self.index.find(Key { set, channel }).is_some()),
        }
    }

    /// Frees the buffers of packets for which no second one can come any more.
    fn dismiss(&mut self, place: usize) {
        while self.unassigned_packets[place].pop().is_some() {
            self.drops.count(FeedDrop::Doubtful);
        }
    }

    /// Passes a packet that waited to its channel, or drops it for a reason.
    fn admit(&mut self, UnassignedPacket { source, header, now_ns, held, .. }: UnassignedPacket) {
        let (channel, line) = match self.open(source, &header) {
            Ok(opened) => opened,
            Err(reason) => return self.drops.count(reason),
        };
        let Some(held) = held else { return self.drops.count(FeedDrop::Doubtful) };
        // The channel reads it in place, and needs the counters meanwhile.
        let gathered = if held.bytes().is_some() { None } else { Some(self.counters.bytes(&held).to_vec()) };
        let bytes = gathered.as_deref().or(held.bytes()).unwrap_or_default();
        if let Ok(packet) = P::Framing::parse(bytes) {
            self.process(channel, line, &packet, now_ns, || Some(held.another()));
        }
    }

    /// The channel and the line of a confirmed packet; opens them where they are not known.
    pub(super) fn open(&mut self, source: usize, header: &Header) -> Result<(usize, Line), FeedDrop> {
        let (set, line) = match self.sources[source].place {
            Some(place) => place,
            None => self.place(source, header)?,
        };
        let idx = self.find_or_open(Key { set, channel: header.channel }, header.session)?;
        Ok((idx, line))
    }

    /// Assigns a learned group: it is another line of the set with the same session and channel, or
    /// the first line of a new set.
    fn place(&mut self, source: usize, header: &Header) -> Result<(u16, Line), FeedDrop> {
        let twin =
            self.channels.iter().find(|channel| channel.carries_session_of(header)).map(|channel| channel.key.set);
        let set = match twin {
            Some(set) if P::HAS_SESSIONS => set,
            _ => {
                self.sets.push(Set { name: None, lines: ArrayVec::new(), numbers: Numbers::Any });
                (self.sets.len() - 1) as u16
            }
        };
        let lines = &mut self.sets[usize::from(set)].lines;
        lines.try_push(source as u32).map_err(|_| FeedDrop::LinesFull)?;
        let place = (set, Line(lines.len() - 1));
        self.sources[source].place = Some(place);
        Ok(place)
    }

    fn find_or_open(&mut self, key: Key, session: Session) -> Result<usize, FeedDrop> {
        if let Some(idx) = self.index.find(key) {
            return Ok(idx);
        }
        let channel = self.memory_for(key)?;
        let idx = self.channels.len();
        let place = self.config.places.get(usize::from(key.set)).copied().unwrap_or(key.set);
        self.channels.push(channel.open(key, place, session));
        self.deadlines.push();
        self.index.insert(key, idx);
        Ok(idx)
    }

    /// The memory of a channel that is not open: a configured set's was allocated at the start.
    fn memory_for(&mut self, key: Key) -> Result<Channel<P, S>, FeedDrop> {
        let numbers = &mut self.sets[usize::from(key.set)].numbers;
        match numbers {
            Numbers::Any => return self.learn(),
            Numbers::First(first @ None) => *first = Some(key.channel),
            Numbers::Named(numbers) if numbers.contains(&key.channel) => {}
            Numbers::First(_) | Numbers::Named(_) => return Err(FeedDrop::UnknownChannel),
        }
        let own = self.spare.iter().position(|(set, _)| *set == Some(key.set));
        let own = own.expect("each number of a configured set has its memory, and is opened once");
        Ok(self.spare.swap_remove(own).1)
    }

    /// Allocates memory for a channel that is not configured, while another one is allowed.
    fn learn(&mut self) -> Result<Channel<P, S>, FeedDrop> {
        match self.learned {
            CHANNELS_MAX => return Err(FeedDrop::ChannelsFull),
            learned if learned == self.config.learned_max => return Err(FeedDrop::NoMemory),
            _ => self.learned += 1,
        }
        let first = self.spare.iter().position(|(set, _)| set.is_none());
        let first = first.map(|first| self.spare.swap_remove(first).1);
        Ok(first.unwrap_or_else(|| self.new_channel(&RecoveryPlan::default())))
    }

    /// Takes the answers that have come, and asks for what is missing: bounded work, every
    /// [`INTERVAL_NS`].
    #[cold]
    pub(super) fn recover(&mut self, now_ns: u64) {
        let Some(mut link) = self.link.take() else { return };
        self.recovery_due_ns = now_ns.saturating_add(INTERVAL_NS);
        for _ in 0..ANSWERS_PER_TURN {
            // A second image waits until the books of the first are back with the thread.
            if self.replaced.is_some() {
                break;
            }
            let Some(answer) = link.answers.pop() else { break };
            // Each snapshot of it may have live messages behind it.
            let is_last = matches!(answer, Answer::LoopPacket { .. });
            self.take_answer(answer, now_ns);
            if is_last {
                break;
            }
        }
        if let Some(books) = self.replaced.take()
            && let Err(Command::Spare(books)) = link.commands.push(Command::Spare(books))
        {
            self.replaced = Some(books);
        }
        self.note_wanting();
        for idx in 0..self.channels.len() {
            self.ask(idx, now_ns, &mut link);
        }
        self.link = Some(link);
    }

    /// The channels of a set share its loops.
    fn note_wanting(&mut self) {
        self.wanting.fill(false);
        for channel in &self.channels {
            let loops = channel.recovery.as_ref().and_then(|recovery| recovery.loops.as_ref());
            if let (Some(loops), Some(wanting)) = (loops, self.wanting.get_mut(usize::from(channel.key.set))) {
                *wanting |= loops.machine.wants_snapshots();
            }
        }
    }

    fn take_answer(&mut self, answer: Answer<P::Books>, now_ns: u64) {
        match answer {
            Answer::Packet { set, bytes } => self.take_packet_again(set, &bytes, now_ns),
            Answer::LoopPacket { set, bytes } => match self.parse_answer(set, &bytes) {
                Some((packet, idx)) => self.channels[idx].take_loop_packet(&packet, now_ns, &mut self.counters),
                None => self.counters.answers_refused.inc(),
            },
            Answer::Refused { channel, seq } => {
                let channel = self.channels.get_mut(channel as usize);
                let recovery = channel.and_then(|channel| channel.recovery.as_mut());
                if let Some(requests) = recovery.and_then(|recovery| recovery.requests.as_mut()) {
                    requests.machine.refused(seq);
                }
            }
            Answer::Image { channel, id, first_live, mut books } => {
                if let Some(channel) = self.channels.get_mut(channel as usize) {
                    channel.take_image(id, first_live, &mut books, now_ns);
                }
                self.replaced = Some(books);
            }
            Answer::NoImage { channel, id } => {
                let channel = self.channels.get_mut(channel as usize);
                let recovery = channel.and_then(|channel| channel.recovery.as_mut());
                if let Some(image) = recovery.and_then(|recovery| recovery.image.as_mut()) {
                    image.failed(id, now_ns);
                }
            }
        }
    }

    /// A packet that the thread received, and the index of its channel.
    fn parse_answer<'a>(&self, set: u16, bytes: &'a [u8]) -> Option<(Packet<'a, P::Framing>, usize)> {
        let packet = P::Framing::parse(bytes).ok().filter(|packet| P::carries(&packet.raw))?;
        let idx = self.index.find(Key { set, channel: packet.header.channel })?;
        Some((packet, idx))
    }

    /// A packet of a server: it counts for messages that are known to be missing, and for nothing
    /// else.
    fn take_packet_again(&mut self, set: u16, bytes: &[u8], now_ns: u64) {
        let Some((packet, idx)) = self.parse_answer(set, bytes) else { return self.counters.answers_refused.inc() };
        self.counters.answers.inc();
        let channel = &mut self.channels[idx];
        channel.process_answer(bytes, &packet, now_ns, &mut self.counters);
        if let Some(deadline_ns) = channel.arbiter.deadline_ns() {
            self.deadlines.note(idx, deadline_ns);
        }
    }

    /// What a channel asks for now.
    fn ask(&mut self, idx: usize, now_ns: u64, link: &mut WorkerEnd<P::Books>) {
        let channel = &mut self.channels[idx];
        if channel.recovery.is_none() {
            return;
        }
        channel.catch_up();
        let Key { set, channel: number } = channel.key;
        while let Some(range) = channel.next_request(now_ns, &mut self.counters) {
            let Some(session) = channel.arbiter.session() else { continue };
            let request = Command::Request { set, channel: idx as u32, number, session, range };
            let is_sent = link.commands.push(request).is_ok();
            self.counters.requests.add(u64::from(is_sent));
            self.counters.commands_dropped.add(u64::from(!is_sent));
        }
        let Some(recovery) = &mut channel.recovery else { return };
        if let Some(loops) = &mut recovery.loops {
            let are_wanted = self.wanting.get(usize::from(set)).is_some_and(|&is_wanting| is_wanting);
            ask_for_loops((set, are_wanted), loops, link, &self.counters);
        }
        let Some(image) = &mut recovery.image else { return };
        if let Some(request) = image.poll(now_ns) {
            let ImageRequest { id, covers_from } = request;
            let session = channel.arbiter.session().unwrap_or_default();
            if link.commands.push(Command::Image { set, channel: idx as u32, session, id, covers_from }).is_err() {
                self.counters.commands_dropped.inc();
                image.failed(id, now_ns);
            }
        }
        if let Some(deadline_ns) = channel.arbiter.deadline_ns() {
            self.deadlines.note(idx, deadline_ns);
        }
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

/// Tells the thread which loops are of use, where that has changed. What the ring has no room for
/// is told in a later turn.
fn ask_for_loops<B: Books + Send, L>(
    (set, are_wanted): (u16, bool),
    loops: &mut ChannelLoops<L>,
    link: &mut WorkerEnd<B>,
    counters: &FeedCounters,
) {
    if are_wanted != loops.are_snapshots_asked_for {
        let is_told = link.commands.push(Command::Snapshots { set, are_wanted }).is_ok();
        loops.are_snapshots_asked_for ^= is_told;
        counters.commands_dropped.add(u64::from(!is_told));
    }
    if loops.are_definitions_due {
        let is_told = link.commands.push(Command::Definitions { set }).is_ok();
        loops.are_definitions_due = !is_told;
        counters.commands_dropped.add(u64::from(!is_told));
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
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use market::framing::PacketWriter;
    use market::framing::mold_udp64::{MoldHeader, MoldUdp64};
    use market::itch50::{AddOrder, Head};
    use market::{BookIdx, Books, Locate, Symbol};
    use wirepath::counters::Block;
    use wirepath::time::MonotonicClock;
    use zerocopy::IntoBytes;

    use super::*;
    use crate::format::MoldItch50;
    use crate::report::newly_met;

    const WAIT_NS: u64 = 1_000;

    fn config() -> FeedConfig {
        FeedConfig {
            policy: Policy::default(),
            window: Window { packets: 8, wait_ns: WAIT_NS },
            capacity: Capacity { books: 1, orders: 1, levels: 1 },
            clock: ArrivalClock::Worker,
            sets: Vec::new(),
            places: Vec::new(),
            groups: Vec::new(),
            learned_max: 0,
        }
    }

    /// A feed that learns up to `learned_max` channels, and receives `groups` groups.
    fn feed(learned_max: usize, groups: u8) -> Feed<MoldItch50> {
        let groups = (1..=groups).map(|idx| SocketAddrV4::new(Ipv4Addr::new(239, 1, 1, idx), 7)).collect();
        made(FeedConfig { groups, learned_max, ..config() })
    }

    fn feed_of(sets: Vec<SetConfig>) -> Feed<MoldItch50> {
        made(FeedConfig { sets, ..config() })
    }

    fn made(config: FeedConfig) -> Feed<MoldItch50> {
        made_in(&Block::heap(), config)
    }

    fn made_in(block: &Block, config: FeedConfig) -> Feed<MoldItch50> {
        Feed::new(config, Sampler::new(MonotonicClock::start(), 0), &block.scope("worker0"))
    }

    fn line() -> LineConfig {
        LineConfig { name: String::new(), group: "239.1.1.1:7".parse().unwrap(), vlan: None, senders: Vec::new() }
    }

    fn header(session: u8) -> Header {
        MoldUdp64::header(&MoldHeader::new([b'0' + session; 10], 1))
    }

    /// With one message.
    fn packet(session: u8, seq: u64) -> Vec<u8> {
        packet_of(session, seq, b"S\0\0\0\0\0\0\0\0\0\x01O")
    }

    fn packet_of(session: u8, seq: u64, message: &[u8]) -> Vec<u8> {
        let mut room = [0; 64];
        let header = MoldHeader::new([b'0' + session; 10], seq);
        let mut writer = PacketWriter::<MoldUdp64>::new(header, &mut room).unwrap();
        writer.push(message).unwrap();
        writer.finish().to_vec()
    }

    fn add(order: u64) -> Vec<u8> {
        let (head, stock) = (Head::new(AddOrder::KIND, Locate(1), 0), Symbol::new("AAPL").unwrap());
        let (order, shares, price) = (order.into(), 100.into(), 10_000.into());
        AddOrder { head, order, side: b'B', shares, stock, price }.as_bytes().to_vec()
    }

    #[test]
    fn order_that_found_no_place_makes_the_books_stale_and_is_told_while_it_runs() {
        let block = Block::heap();
        let mut feed = made_in(&block, FeedConfig { learned_max: 1, groups: vec![line().group], ..config() });
        let mut process = |seq, message: &[u8]| {
            let bytes = packet_of(0, seq, message);
            let packet = MoldUdp64::parse(&bytes).unwrap();
            let before = block.snapshot();
            let (idx, line) = feed.open(0, &packet.header).unwrap();
            feed.process(idx, line, &packet, 0, || None);
            (feed.channels[0].builder.books.is_stale(BookIdx(0)), newly_met(&before, &block.snapshot()))
        };
        assert_eq!(process(1, &add(1)), (false, vec![]), "there is room for one order");
        let (is_stale, told) = process(2, &add(2));
        assert!(is_stale && told.len() == 1 && told[0].contains("raise `orders`"), "{told:?}");
        let (is_stale, told) = process(3, b"A");
        assert!(is_stale && told.len() == 1 && told[0].contains("could not be decoded"), "{told:?}");
        assert_eq!(process(4, &add(3)), (true, vec![]), "each is told once");
    }

    /// Counts the packets that show that its channel lives.
    #[derive(Clone, Default)]
    struct Pulse(Arc<AtomicU64>);

    impl EventSink for Pulse {
        fn alive(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn packets_of_the_session_show_that_a_channel_lives_and_forged_ones_do_not() {
        let (pulse, block) = (Pulse::default(), Block::heap());
        let config = FeedConfig { learned_max: 1, groups: vec![line().group], ..config() };
        let sampler = Sampler::new(MonotonicClock::start(), 0);
        let mut feed = Feed::<MoldItch50, _>::with_sink(config, pulse.clone(), sampler, &block.scope("worker0"));
        let mut lives = |bytes: &[u8]| {
            let packet = MoldUdp64::parse(bytes).unwrap();
            let (idx, line) = feed.open(0, &header(0)).unwrap();
            let before = pulse.0.load(Ordering::Relaxed);
            feed.process(idx, line, &packet, 0, || None);
            pulse.0.load(Ordering::Relaxed) > before
        };
        assert!(lives(&packet(0, 1)) && lives(&packet(0, 1)), "a copy has nothing new");
        assert!(!lives(&packet(7, 2)), "nothing confirms its session");
        let mut room = [0; 32];
        let heartbeat = PacketWriter::<MoldUdp64>::new(MoldHeader::new(*b"0000000000", 2), &mut room).unwrap().finish();
        assert!(lives(heartbeat));
    }

    #[test]
    fn channels_are_learned_as_far_as_the_memory_reached_at_the_start() {
        let mut feed = feed(2, 3);
        let opened = [0, 1, 2].map(|source: u8| feed.open(usize::from(source), &header(source)));
        assert_eq!(opened, [Ok((0, Line(0))), Ok((1, Line(0))), Err(FeedDrop::NoMemory)]);
        assert_eq!(feed.open(1, &header(1)), Ok((1, Line(0))), "and those that are there stay");
    }

    #[test]
    fn packets_that_wait_are_given_back_when_their_set_has_all_its_channels() {
        for (numbers, opens) in [(vec![], &[1][..]), (vec![1, 2], &[2, 1][..])] {
            let mut feed = feed_of(vec![SetConfig {
                name: String::new(),
                format: Format::MoldItch50,
                queue: None,
                numbers,
                lines: vec![line()],
                recovery: RecoveryPlan::default(),
            }]);
            let introduce = |feed: &mut Feed<MoldItch50>, channel, session, seq| {
                let bytes = packet(session, seq);
                let mut packet = MoldUdp64::parse(&bytes).unwrap();
                packet.header.channel = channel;
                let _ = feed.introduce(0, &packet, 0, || None);
            };
            // Of another session, and of another channel where the first may be any.
            [7, 8].into_iter().for_each(|session| introduce(&mut feed, 1, session, 1));
            introduce(&mut feed, 9, 0, 1);
            for &channel in opens {
                [1, 2].into_iter().for_each(|seq| introduce(&mut feed, channel, 0, seq));
            }
            assert_eq!(feed.channels.len(), opens.len());
            assert!(feed.unassigned_packets[0].pop().is_none(), "{opens:?}");
        }
    }

    #[test]
    fn holes_of_several_channels_each_grow_old_in_their_time() {
        let mut feed = feed(3, 3);
        let process = |feed: &mut Feed<MoldItch50>, session: u8, seq, now_ns| {
            let bytes = packet(session, seq);
            let packet = MoldUdp64::parse(&bytes).unwrap();
            let (idx, line) = feed.open(usize::from(session), &packet.header).unwrap();
            feed.process(idx, line, &packet, now_ns, || None);
        };
        for session in 0..3 {
            process(&mut feed, session, 1, 0);
        }
        assert!(!feed.deadlines.is_due(u64::MAX - 1), "nothing is missing yet");
        // Skipped numbers are accepted when a second packet skips them too.
        for (session, now_ns) in [(2, 100), (0, 300)] {
            process(&mut feed, session, 3, now_ns);
            process(&mut feed, session, 4, now_ns);
        }
        let gaps = |feed: &Feed<MoldItch50>| [0, 1, 2].map(|idx| feed.channels[idx].arbiter.counts().gaps);
        for (now_ns, expected) in
            [(99 + WAIT_NS, [0; 3]), (100 + WAIT_NS, [0, 0, 1]), (299 + WAIT_NS, [0, 0, 1]), (300 + WAIT_NS, [1, 0, 1])]
        {
            if feed.deadlines.is_due(now_ns) {
                feed.expire(now_ns);
            }
            assert_eq!(gaps(&feed), expected, "at {now_ns} ns");
        }
        assert!(!feed.deadlines.is_due(u64::MAX - 1), "and nothing is looked at any more");
    }
}
