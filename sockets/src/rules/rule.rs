//! One rule: kind of traffic, local and remote addresses, and the decision.

use core::net::{Ipv4Addr, SocketAddrV4};
use core::ops::RangeInclusive;

use super::query::{Query, Role, Traffic};

/// A rule. An end that is `None` matches every address, and also a missing peer.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    pub(super) role: Role,
    pub(super) traffic: TrafficSet,
    pub(super) local: Option<Endpoints>,
    pub(super) remote: Option<Endpoints>,
    /// The text of [`super::Decision::why`].
    pub(super) why: String,
}

impl Rule {
    pub(super) fn fits(&self, query: &Query<'_>) -> bool {
        self.traffic.contains(query.traffic)
            && self.local.as_ref().is_none_or(|local| local.contain(query.local))
            && self.remote.as_ref().is_none_or(|remote| query.remote.is_some_and(|peer| remote.contain(peer)))
    }
}

/// Kinds of traffic, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TrafficSet(u8);

impl TrafficSet {
    pub(super) const ALL: Self = Self(0x1f);

    pub(super) fn insert(&mut self, traffic: Traffic) {
        self.0 |= 1 << traffic as u8;
    }

    pub(super) fn contains(self, traffic: Traffic) -> bool {
        self.0 & 1 << traffic as u8 != 0
    }

    pub(super) fn one(traffic: Traffic) -> Self {
        let mut set = Self::default();
        set.insert(traffic);
        set
    }
}

/// Addresses of a prefix, with ports of a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Endpoints {
    pub(super) network: Network,
    pub(super) ports: RangeInclusive<u16>,
}

impl Endpoints {
    pub(super) const ALL_PORTS: RangeInclusive<u16> = 0..=u16::MAX;

    fn contain(&self, address: SocketAddrV4) -> bool {
        self.ports.contains(&address.port()) && self.network.contains(*address.ip())
    }
}

/// An IPv4 prefix. Bits after it do not count, so that 192.0.2.7/24 is 192.0.2.0/24.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Network {
    bits: u32,
    mask: u32,
}

impl Network {
    pub(super) const ALL: Self = Self { bits: 0, mask: 0 };

    /// A prefix longer than an address is the address.
    pub(super) fn new(address: Ipv4Addr, prefix_len: u32) -> Self {
        let mask = u32::MAX.checked_shl(32 - prefix_len.min(32)).unwrap_or(0);
        Self { bits: u32::from(address) & mask, mask }
    }

    fn contains(self, address: Ipv4Addr) -> bool {
        u32::from(address) & self.mask == self.bits
    }
}
