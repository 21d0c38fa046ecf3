//! Inputs and outputs of [`Neighbors`](super::Neighbors), besides packets and the time.

use core::fmt;
use core::net::Ipv4Addr;

use crate::wire::reason::drop_list;
use crate::wire::{ArpFields, MacAddr};

/// An ARP packet to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArpSend {
    /// Destination MAC address of its frame.
    pub to: MacAddr,
    /// Its fields.
    pub packet: ArpFields,
}

/// The cause of a neighbor's resolution. Where there is no room, entries of the last kind are
/// evicted first, and entries of the first kind never. So callers, whose addresses may be forged,
/// evict no entry that we use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ResolutionCause {
    /// Our app: a connection, a flow, a gateway. Kept fresh until it is removed.
    #[default]
    App,
    /// A peer with an established connection to us. Kept fresh too.
    Connection,
    /// The destination of a datagram without a flow: most likely the reply to one. Kept fresh too.
    Datagram,
    /// A peer that wants to connect and gets an answer.
    Handshake,
}

/// The address to resolve, and the cause: from
/// [`Resolution::NeighborMissing`](crate::proto::Resolution::NeighborMissing).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeighborRequest {
    /// The address whose MAC address is wanted.
    pub next_hop: Ipv4Addr,
    /// Our address to send the request from.
    pub source: Ipv4Addr,
    /// The cause.
    pub cause: ResolutionCause,
}

/// Actions of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeighborAction<H> {
    /// Send this packet.
    Send(ArpSend),
    /// The handle's neighbor is known: send it to this MAC address.
    Resolved {
        /// The handle that waited.
        handle: H,
        /// Its destination.
        mac: MacAddr,
    },
    /// The handle cannot be sent.
    Released {
        /// The handle that waited.
        handle: H,
        /// The reason.
        reason: NeighborDrop,
    },
}

drop_list! {
    /// Why a handle came back.
    pub enum NeighborDrop {
        /// The neighbor did not reply.
        Unreachable => "unreachable",
        /// Dropped for a newer handle: the neighbor's queue was full (`pending_per_neighbor`), or
        /// the queues of all neighbors together (`pending_max`), and this handle was the oldest for
        /// a remote host that wanted to connect (`ResolutionCause::Handshake`) or for the newer
        /// handle's neighbor.
        Superseded => "superseded",
        /// No room for another handle or neighbor, here or in the host.
        NoRoom => "no_room",
        /// The neighbor's entry was removed.
        Forgotten => "forgotten",
        /// No request was sent, because others of its kind have used up the rate of requests.
        RateLimited => "rate_limited",
    }
}

/// The outcome of an ARP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ArpOutcome {
    /// The packet replied to our request.
    Answered,
    /// The packet confirmed a known neighbor.
    Confirmed,
    /// A known neighbor has another MAC address now.
    Moved,
    /// The packet requested our address, and so named a new neighbor.
    Unsolicited,
    /// Nothing was learned.
    Ignored(NotLearned),
}

drop_list! {
    /// Why an ARP packet taught nothing.
    pub enum NotLearned {
        /// The packet is neither from us nor for us: a broadcast that every station of the segment
        /// receives.
        NotForUs => "not_for_us",
        /// A reply that was not requested.
        Unsolicited => "unsolicited",
        /// The sender's address cannot be a neighbor's: it is our own, unspecified, or not on the
        /// link.
        NotANeighbor => "not_a_neighbor",
        /// The packet comes from our own MAC address: the network sent our frame back.
        OwnMac => "own_mac",
        /// Another MAC address replied within the last second.
        TooSoon => "too_soon",
        /// No room for another neighbor that we never requested, or no room in the host.
        NoRoom => "no_room",
    }
}

impl fmt::Display for NeighborDrop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unreachable => "the neighbor did not answer",
            Self::Superseded => "newer packets wait for the neighbor",
            Self::NoRoom => "no room for another neighbor or waiting packet",
            Self::Forgotten => "the neighbor was forgotten",
            Self::RateLimited => "the neighbor is not asked for, because unknown hosts cause too many requests",
        })
    }
}
