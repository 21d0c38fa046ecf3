//! Channels and groups that are not known yet: which packets make them known, and the memory that
//! they get.

use arrayvec::ArrayVec;
use market::framing::{Framing, Header, Packet, Session};
use market::{EventSink, Line};
use wirepath::mem::Held;

use super::{CHANNELS_MAX, Feed, FeedDrop, Numbers, Set};
use crate::feed::channel::Channel;
use crate::feed::index::Key;
use crate::feed::unassigned::UnassignedPacket;
use crate::format::Protocol;
use crate::recovery::RecoveryPlan;

impl<P: Protocol, S: EventSink + Clone> Feed<P, S> {
    /// Handles a packet of an unknown channel or group, which a second agreeing packet makes known:
    /// see [`UnassignedPackets`](crate::feed::unassigned::UnassignedPackets).
    #[cold]
    pub(super) fn introduce(
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
    pub(super) fn admit(&mut self, UnassignedPacket { source, header, now_ns, held, .. }: UnassignedPacket) {
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
    pub(in crate::feed) fn open(&mut self, source: usize, header: &Header) -> Result<(usize, Line), FeedDrop> {
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
}
