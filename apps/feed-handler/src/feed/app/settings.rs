//! What a feed is told at its start: sets of lines, limits, clock.

use core::net::{Ipv4Addr, SocketAddrV4};

use market::{Capacity, Policy, Window};

use crate::format::Format;
use crate::recovery::RecoveryPlan;

/// Lines of one set: A, B, and a third such as a disaster-recovery site.
pub const LINES_MAX: usize = 4;
/// Groups that one feed listens to.
pub const GROUPS_MAX: usize = 1024;
/// Channels that a feed learns. Each has its own books, and the arriving packets decide how many
/// channels there are.
pub const CHANNELS_MAX: usize = 256;
/// Channel numbers that one set names: Cboe's largest feed has 35 units.
pub const NUMBERS_MAX: usize = 64;

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
    pub lines: Vec<FeedLine>,
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
pub struct FeedLine {
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
