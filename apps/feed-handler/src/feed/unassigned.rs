//! First packets of channels and groups that are not known yet. One packet alone opens no channel,
//! because its number or its session may be damaged, and a channel costs books and stays to the
//! end. The packet waits here for a second one. When an exchange opens, many channels begin at
//! once, so each configured set has separate entries and no set blocks another.

use market::framing::Header;
use wirepath::mem::Held;

/// First packets of a configured set that wait at once: a feed's own besides forged or damaged
/// ones.
pub(super) const UNASSIGNED_MAX: usize = 8;

/// A packet without a channel yet.
pub(super) struct UnassignedPacket {
    /// The group that it arrived on.
    pub(super) source: usize,
    /// The set that its group belongs to, where that is known.
    pub(super) set: Option<u16>,
    pub(super) header: Header,
    pub(super) now_ns: u64,
    /// `None` where no buffer was free: then it only confirms another one.
    pub(super) held: Option<Held>,
}

pub(super) struct UnassignedPackets {
    waiting: Vec<UnassignedPacket>,
}

impl UnassignedPackets {
    /// Room for `newcomers_max` packets.
    pub(super) fn new(newcomers_max: usize) -> Self {
        Self { waiting: Vec::with_capacity(newcomers_max) }
    }

    /// Takes the packet that `second` confirms: a packet of the same channel and session, over a
    /// line of the same set. Where sets are learned it must be over the same group; another group
    /// counts as a line of the same set if packets name a session. A heartbeat may be repeated
    /// verbatim.
    pub(super) fn take_witness(&mut self, second: &UnassignedPacket, has_sessions: bool) -> Option<UnassignedPacket> {
        let idx = self.waiting.iter().position(|first| first.agrees(second, has_sessions))?;
        Some(self.waiting.remove(idx))
    }

    /// Whether the group brought this very packet before, as networks duplicate packets.
    pub(super) fn has(&self, packet: &UnassignedPacket) -> bool {
        self.waiting.iter().any(|waiting| waiting.source == packet.source && waiting.header == packet.header)
    }

    /// Adds one, and returns the oldest where that had to make room.
    pub(super) fn push(&mut self, newcomer: UnassignedPacket) -> Option<UnassignedPacket> {
        let is_full = self.waiting.len() == self.waiting.capacity();
        let oldest = if is_full { Some(self.waiting.remove(0)) } else { None };
        self.waiting.push(newcomer);
        oldest
    }

    /// The oldest, at the end.
    pub(super) fn pop(&mut self) -> Option<UnassignedPacket> {
        if self.waiting.is_empty() { None } else { Some(self.waiting.remove(0)) }
    }
}

impl UnassignedPacket {
    fn agrees(&self, second: &Self, has_sessions: bool) -> bool {
        let is_line = match (self.set, second.set) {
            (Some(set), Some(other)) => set == other,
            (None, None) => has_sessions || self.source == second.source,
            _ => false,
        };
        let is_copy = self.source == second.source && self.header == second.header && self.header.count > 0;
        is_line
            && !is_copy
            && (self.header.channel, self.header.session) == (second.header.channel, second.header.session)
    }
}
