//! What enters [`Neighbors`](super::Neighbors) and what leaves it, besides packets and the time.

use core::fmt;
use core::net::Ipv4Addr;

use crate::wire::{ArpFields, MacAddr};

/// An ARP packet to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArpSend {
    /// Destination of its frame.
    pub to: MacAddr,
    /// What it says.
    pub packet: ArpFields,
}

/// Who is the reason to ask for a neighbor. Where there is no room, those of the last give up their
/// places first, and those of the first never: so strangers who call, and who may be nobody, take
/// no place from those whom we call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Asker {
    /// Our app: a call of ours, a flow, a gateway. It is kept fresh until it is forgotten.
    #[default]
    App,
    /// Somebody whose connection to us stands. Kept fresh as well.
    Peer,
    /// Somebody to whom a datagram goes without a flow: most likely whoever sent us one. Kept fresh
    /// as well.
    Unsolicited,
    /// Somebody has called, and is to be answered.
    Caller,
}

/// Whom to ask for, and why: what
/// [`Resolution::NeighborMissing`](crate::proto::Resolution::NeighborMissing) says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeighborRequest {
    /// Whose MAC address is wanted.
    pub next_hop: Ipv4Addr,
    /// Our address to ask from.
    pub source: Ipv4Addr,
    /// Who is the reason.
    pub asker: Asker,
}

/// What the machine wants done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeighborAction<H> {
    /// Send this.
    Send(ArpSend),
    /// The handle's neighbor is known: it may go to this station.
    Resolved {
        /// What waited.
        handle: H,
        /// Where it goes.
        mac: MacAddr,
    },
    /// The handle cannot go.
    Released {
        /// What waited.
        handle: H,
        /// Why.
        reason: NeighborDrop,
    },
}

/// Why a handle came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NeighborDrop {
    /// The neighbor did not answer.
    Unreachable,
    /// Newer ones wait for the same neighbor, as many as may; or it answers a stranger, and newer
    /// ones need the room.
    Superseded,
    /// No room for another handle or neighbor, here or in the host.
    NoRoom,
    /// The neighbor was forgotten.
    Forgotten,
    /// It is not asked for, as others of its kind have caused as many requests as they may.
    RateLimited,
}

/// What became of an ARP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ArpOutcome {
    /// It answered our request.
    Answered,
    /// It confirmed what we believed.
    Confirmed,
    /// A known neighbor has another MAC address now.
    Moved,
    /// It told of a neighbor who asked for us.
    Unsolicited,
    /// Nothing was learned.
    Ignored(NotLearned),
}

/// Why an ARP packet taught nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NotLearned {
    /// Between others: what every station of the segment hears.
    NotForUs,
    /// An answer that nobody asked for.
    Unsolicited,
    /// The sender's address cannot be that of a neighbor: ours, none, or not on the link.
    NotANeighbor,
    /// It comes from our own MAC address: the network gave our frame back.
    OwnStation,
    /// Another MAC address answered a moment ago; see [`LOCK_TIME`](super::LOCK_TIME).
    TooSoon,
    /// No room for another stranger, or no room in the host.
    NoRoom,
}

impl fmt::Display for NeighborDrop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unreachable => "the neighbor did not answer",
            Self::Superseded => "newer packets wait for the neighbor",
            Self::NoRoom => "no room for another neighbor or waiting packet",
            Self::Forgotten => "the neighbor was forgotten",
            Self::RateLimited => "the neighbor is not asked for, as strangers cause too many requests",
        })
    }
}
