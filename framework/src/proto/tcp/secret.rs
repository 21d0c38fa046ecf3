//! Numbers that nobody may guess: initial sequence numbers, ports, the origin of timestamps.

use crate::proto::{Flow, HashSeed};
use crate::time::Instant;

use super::seq::Seq;

/// The machine's secret. Each use hashes with a word of its own, so that one number tells nothing of another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Secret(HashSeed);

const ISN: u64 = 1;
const PORT: u64 = 2;
const TIMESTAMP: u64 = 3;
const COOKIE: u64 = 4;
const NOISE: u64 = 5;
const SOURCE: u64 = 6;

impl Secret {
    pub(super) fn new(seed: HashSeed) -> Self {
        Self(seed)
    }

    /// RFC 6528 3: ISN = M + F(localip, localport, remoteip, remoteport, secretkey), where M ticks every 4 µs.
    pub(super) fn isn(&self, flow: Flow, now: Instant) -> Seq {
        Seq((now.as_nanos() / 4_096) as u32) + self.hash(ISN, flow) as u32
    }

    /// Where the search for a port begins (RFC 6056 3.3.3): F(localip, remoteip, remoteport, secretkey).
    pub(super) fn port_offset(&self, flow: Flow) -> u32 {
        self.hash(PORT, flow) as u32
    }

    /// What is added to our clock in timestamps (RFC 7323 7.1).
    pub(super) fn timestamp_offset(&self, flow: Flow) -> u32 {
        self.hash(TIMESTAMP, flow) as u32
    }

    /// What authenticates a SYN cookie: `said` is all that it stands for (RFC 4987 3.6).
    pub(super) fn cookie(&self, flow: Flow, said: u64) -> u64 {
        let end = |end: core::net::SocketAddrV4| u64::from(end.ip().to_bits()) << 16 | u64::from(end.port());
        self.0.sip(&[COOKIE, end(flow.local), end(flow.remote), said])
    }

    /// A number that nobody knows before its time.
    pub(super) fn noise(&self, second: u32) -> u32 {
        self.0.sip(&[NOISE, second.into()]) as u32
    }

    /// Where the connections of an address are counted.
    pub(super) fn source(&self, address: core::net::Ipv4Addr) -> u64 {
        self.0.sip(&[SOURCE, address.to_bits().into()])
    }

    fn hash(&self, purpose: u64, flow: Flow) -> u64 {
        let end = |end: core::net::SocketAddrV4| u64::from(end.ip().to_bits()) << 16 | u64::from(end.port());
        self.0.sip(&[purpose, end(flow.local), end(flow.remote)])
    }
}
