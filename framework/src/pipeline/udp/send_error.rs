//! Why a datagram was not sent.

use core::fmt;
use core::net::Ipv4Addr;

use crate::proto::FragmentationError;

/// Why a datagram was not sent. No part of it has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UdpSendError {
    /// No buffer is free: the pool is too small, or the app holds too many.
    PoolEmpty,
    /// The device's ring is full: poll, then try again.
    RingFull,
    /// Over 65,507 bytes.
    TooLong,
    /// Longer than one frame, where fragments are forbidden or the payload is an mbuf.
    DontFragment {
        /// Bytes of an IPv4 packet that fit.
        mtu: usize,
    },
    /// No route leads there any more.
    NoRoute(Ipv4Addr),
    /// The link is down.
    LinkDown,
    /// The MAC address of the next hop is not known. If it is being resolved, the datagram has more
    /// fragments than may wait: send it again later.
    NeighborMissing(Ipv4Addr),
}

impl fmt::Display for UdpSendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PoolEmpty => write!(f, "no packet buffer is free: make the pool larger, or hold fewer packets"),
            Self::RingFull => write!(f, "the transmit ring is full: send again after the next poll"),
            Self::TooLong => write!(f, "a UDP datagram carries at most 65,507 bytes"),
            Self::DontFragment { mtu } => {
                write!(f, "the datagram does not fit an MTU of {mtu} bytes and must not be fragmented")
            }
            Self::NoRoute(destination) => write!(f, "no route leads to {destination} any more: it may come back"),
            Self::LinkDown => write!(f, "the link is down: send again when it is up"),
            Self::NeighborMissing(next_hop) => {
                write!(f, "the MAC address of {next_hop} is not known: send again when it has answered")
            }
        }
    }
}

impl core::error::Error for UdpSendError {}

impl From<FragmentationError> for UdpSendError {
    fn from(error: FragmentationError) -> Self {
        match error {
            FragmentationError::DontFragment { mtu } | FragmentationError::MtuTooSmall { mtu } => {
                Self::DontFragment { mtu }
            }
            FragmentationError::Oversize => Self::TooLong,
        }
    }
}
