//! Numbers that must not be guessed: initial sequence numbers, ports, the origin of timestamps.

use core::net::{Ipv4Addr, SocketAddrV4};

use crate::proto::{Flow, HashSeed};
use crate::time::Instant;

use crate::proto::tcp::seq::Seq;

/// The machine's secrets, a key for each use: the numbers of one use reveal nothing about another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Secret {
    isn: HashSeed,
    port: HashSeed,
    timestamp: HashSeed,
    cookie: HashSeed,
    noise: HashSeed,
    source: HashSeed,
}

impl Secret {
    pub(crate) fn new(seed: HashSeed) -> Self {
        let [isn, port, timestamp, cookie, noise, source] = [1, 2, 3, 4, 5, 6].map(|purpose| seed.derive(purpose));
        Self { isn, port, timestamp, cookie, noise, source }
    }

    /// RFC 6528 3: ISN = M + F(localip, localport, remoteip, remoteport, secretkey), where M ticks
    /// every 4 µs.
    pub(crate) fn isn(&self, flow: Flow, now: Instant) -> Seq {
        Seq((now.as_nanos() / 4_096) as u32) + hash(&self.isn, flow) as u32
    }

    /// The offset of the search for a port (RFC 6056 3.3.3): F(localip, remoteip, remoteport,
    /// secretkey).
    pub(crate) fn port_offset(&self, flow: Flow) -> u32 {
        hash(&self.port, flow) as u32
    }

    /// The offset of our clock in timestamps (RFC 7323 7.1).
    pub(crate) fn timestamp_offset(&self, flow: Flow) -> u32 {
        hash(&self.timestamp, flow) as u32
    }

    /// The authentication of a SYN cookie: `said` contains all encoded fields (RFC 4987 3.6).
    pub(crate) fn cookie(&self, flow: Flow, said: u64) -> u64 {
        self.cookie.sip(&[word(flow.local), word(flow.remote), said])
    }

    /// A number that is unpredictable before its second.
    pub(crate) fn noise(&self, second: u32) -> u32 {
        self.noise.sip(&[second.into()]) as u32
    }

    /// The counters of an address's connections.
    pub(crate) fn source(&self, address: Ipv4Addr) -> u64 {
        self.source.sip(&[address.to_bits().into()])
    }
}

fn hash(key: &HashSeed, flow: Flow) -> u64 {
    key.sip(&[word(flow.local), word(flow.remote)])
}

fn word(end: SocketAddrV4) -> u64 {
    u64::from(end.ip().to_bits()) << 16 | u64::from(end.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLOW: Flow = Flow {
        local: SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), 80),
        remote: SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 50_000),
    };

    /// The numbers that a peer sees reveal nothing about other numbers or about its flow's bucket.
    #[test]
    fn each_use_has_a_key_of_its_own() {
        let secret = Secret::new(HashSeed::new(1, 2));
        let Secret { isn, port, timestamp, cookie, noise, source } = secret;
        let hashes = [isn, port, timestamp, cookie, noise, source, HashSeed::new(1, 2)].map(|key| hash(&key, FLOW));
        let all: std::collections::HashSet<_> = hashes.into_iter().collect();
        assert_eq!(all.len(), 7);
    }
}
