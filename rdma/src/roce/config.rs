//! What a device is made for.

use core::fmt;
use core::hash::{BuildHasher, Hasher};
use std::hash::RandomState;

/// The limits of a device. All tables are made for them once; nothing grows later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceConfig {
    /// Protection domains. By default 16.
    pub pds: u32,
    /// Memory regions. By default 256.
    pub regions: u32,
    /// Memory windows. By default 64.
    pub windows: u32,
    /// Completion queues. By default 64.
    pub cqs: u32,
    /// Queue pairs. By default 64.
    pub qps: u32,
    /// Shared receive queues. By default 16.
    pub srqs: u32,
    /// Address handles. By default 256.
    pub ahs: u32,
    /// Attachments of queue pairs to multicast groups. By default 64.
    pub attachments: u32,
    /// The most work requests of a send queue or of a receive queue. By default 4096.
    pub wrs_per_queue: u32,
    /// The most entries of a completion queue. By default 65,536.
    pub cqes: u32,
    /// READs and atomic operations that a queue pair may have under way, in each direction. By
    /// default 16, as ConnectX NICs have.
    pub rd_atomics: u8,
    /// The largest payload of a packet. By default 1024 bytes, which fits into an Ethernet frame
    /// of 1500.
    pub mtu: Mtu,
    /// Packets that a reliable queue pair sends ahead of the acknowledgments: so many are sent
    /// again for one that is lost. By default 128, as Linux rxe does.
    pub unacknowledged_packets: u32,
    /// The link's rate in Mbit/s, from which a queue pair is slowed where its packets meet
    /// congestion; without congestion nothing is slowed. By default 10,000.
    pub link_mbps: u32,
    /// From what the keys of memory are drawn: two devices of one seed give the same keys in the
    /// same order. By default 0, with which each device draws a seed that nobody guesses. Of a
    /// key's 32 bits some name its place, which is drawn too: as many as `regions` and `windows`
    /// together need, by default nine. So a peer that knows no key finds one of `n` regions by 2³¹
    /// / `n` guesses, and one that knows the place by 2²³.
    pub key_seed: u64,
    /// Asynchronous events that wait to be taken. By default 256; where there is no room, one is
    /// counted and dropped, of a connection that was established before any other.
    pub events: u32,
}

/// A number that nobody guesses: a hash by keys that the system has drawn.
pub(crate) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

impl Default for DeviceConfig {
    fn default() -> Self {
        Self {
            pds: 16,
            regions: 256,
            windows: 64,
            cqs: 64,
            qps: 64,
            srqs: 16,
            ahs: 256,
            attachments: 64,
            wrs_per_queue: 4096,
            cqes: 65_536,
            rd_atomics: 16,
            mtu: Mtu::B1024,
            unacknowledged_packets: 128,
            link_mbps: 10_000,
            key_seed: 0,
            events: 256,
        }
    }
}

/// The largest payload of a packet: with all headers around it a frame is up to 102 bytes longer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mtu {
    /// 256 bytes.
    B256 = 1,
    /// 512 bytes.
    B512 = 2,
    /// 1024 bytes.
    #[default]
    B1024 = 3,
    /// 2048 bytes.
    B2048 = 4,
    /// 4096 bytes.
    B4096 = 5,
}

impl Mtu {
    /// All, the smallest first.
    pub const ALL: [Self; 5] = [Self::B256, Self::B512, Self::B1024, Self::B2048, Self::B4096];

    /// The MTU with this code, which verbs, RDMA_CM and perftest have for it; `None` of another.
    pub const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::B256,
            2 => Self::B512,
            3 => Self::B1024,
            4 => Self::B2048,
            5 => Self::B4096,
            _ => return None,
        })
    }

    /// Bytes of the payload.
    #[inline]
    pub const fn bytes(self) -> u32 {
        1 << self.shift()
    }

    /// The power of two.
    #[inline]
    pub(super) const fn shift(self) -> u32 {
        self as u32 + 7
    }
}

impl fmt::Display for Mtu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bytes().fmt(f)
    }
}
