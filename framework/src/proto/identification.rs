//! Identifications of packets that routers may fragment (RFC 6864 4.3): unique for the same
//! addresses and protocol for the lifetime of fragments, and none reveals to a remote host how many
//! packets go to others.
//!
//! A single sequence for all packets would leak information: a host that gets two packets sees by
//! the difference how many others got a packet in between (idle scans). So each pair of addresses
//! uses one of many counters with a separate offset (RFC 7739 5.3), and a counter that was idle
//! jumps by a random number, as on Linux (`ip_idents_reserve`): of two pairs that share a counter,
//! neither can count the other's packets. Packets that are never fragmented may have any
//! identification (RFC 6864 4.1), and are not counted here.

use core::net::Ipv4Addr;

use super::hash::HashSeed;
use crate::time::Instant;
use crate::wire::Protocol;

/// 8 KiB. Pairs that share a counter, as half of a thousand pairs do, repeat an identification
/// after fewer than 65,536 packets.
const COUNTERS: usize = 1024;
/// The length of a time step, as a power of two of nanoseconds: 4 ms, as of Linux's clock. An idle
/// counter jumps by at most the number of steps.
const STEP_SHIFT: u32 = 22;

/// The identifications of all packets that one worker sends.
#[derive(Debug)]
pub struct Identifications {
    seed: HashSeed,
    counters: Box<[Counter; COUNTERS]>,
    /// Jumps so far; each draws from another number.
    leaps: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counter {
    next: u16,
    /// Time of the last use, in steps.
    used: u32,
}

/// The counter of a pair of addresses, and the pair's offset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IdentificationKey {
    counter: u16,
    offset: u16,
}

impl Identifications {
    /// Allocates all its memory here.
    pub fn new(seed: HashSeed) -> Self {
        Self { seed, counters: Box::new([Counter::default(); COUNTERS]), leaps: 0 }
    }

    /// The key of packets between two addresses: a keyed hash, some 10 ns. Frequent senders cache
    /// it.
    pub fn key(&self, source: Ipv4Addr, destination: Ipv4Addr, protocol: Protocol) -> IdentificationKey {
        let addresses = u64::from(source.to_bits()) << 32 | u64::from(destination.to_bits());
        let hash = self.seed.sip(&[addresses, protocol.0.into()]);
        IdentificationKey { counter: (hash % COUNTERS as u64) as u16, offset: (hash >> 48) as u16 }
    }

    /// The next identification. An addition and a compare, where the counter was used within the
    /// last 4 ms.
    #[inline]
    pub fn next(&mut self, key: IdentificationKey, now: Instant) -> u16 {
        let counter = &mut self.counters[usize::from(key.counter) % COUNTERS];
        let step = (now.as_nanos() >> STEP_SHIFT) as u32;
        if counter.used != step {
            self.leaps += 1;
            counter.leap(step, self.seed.sip(&[self.leaps]));
        }
        counter.next = counter.next.wrapping_add(1);
        counter.next.wrapping_add(key.offset)
    }
}

impl Counter {
    /// The counter was idle for some steps: skips a random number of identifications.
    #[cold]
    fn leap(&mut self, step: u32, noise: u64) {
        let idle = u64::from(step.wrapping_sub(self.used)).min(u64::from(u16::MAX));
        self.next = self.next.wrapping_add((noise % (idle + 1)) as u16);
        self.used = step;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Duration;

    const OURS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);

    fn peer(idx: u32) -> Ipv4Addr {
        Ipv4Addr::from_bits(0x0a01_0000 + idx)
    }

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn pair_of_ends_sees_none_twice_in_65536_packets_of_a_burst() {
        let mut identifications = Identifications::new(HashSeed::new(1, 2));
        let key = identifications.key(OURS, peer(1), Protocol::UDP);
        let mut seen: Vec<_> = (0..65_536).map(|_| identifications.next(key, at(100_000))).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 65_536);
    }

    /// An idle scan: a host that probes before and after a packet to another learns whether it was
    /// sent.
    #[test]
    fn identifications_to_one_peer_do_not_reveal_packets_to_others() {
        let seen = |others: u32| -> Vec<u16> {
            let mut identifications = Identifications::new(HashSeed::new(1, 2));
            let stranger = identifications.key(OURS, peer(0), Protocol::ICMP);
            let all: Vec<_> = (1..=others).map(|idx| identifications.key(OURS, peer(idx), Protocol::UDP)).collect();
            let count = all.len();
            let others: Vec<_> = all.into_iter().filter(|other| other.counter != stranger.counter).collect();
            assert!(others.len() * 10 >= count * 9, "{} of {count} have other counters", others.len());
            let mut ask = |_| {
                others.iter().for_each(|other| _ = identifications.next(*other, at(100_000)));
                identifications.next(stranger, at(100_000))
            };
            (0..100).map(&mut ask).collect()
        };
        for seen in [seen(0), seen(50)] {
            assert!(seen.windows(2).all(|pair| pair[1].wrapping_sub(pair[0]) == 1), "{seen:?}");
        }
    }

    /// A host that shares another's counter sees it jump by itself.
    #[test]
    fn counter_that_was_idle_leaps_by_chance() {
        let mut identifications = Identifications::new(HashSeed::new(1, 2));
        let key = identifications.key(OURS, peer(1), Protocol::UDP);
        let mut last = identifications.next(key, at(0));
        let steps: std::collections::HashSet<_> = (1..=100)
            .map(|round| {
                let next = identifications.next(key, at(round * 1_000));
                next.wrapping_sub(core::mem::replace(&mut last, next))
            })
            .collect();
        assert!(steps.len() > 50 && steps.iter().all(|step| (1..=240).contains(step)), "{steps:?}");
    }

    #[test]
    fn ends_begin_at_places_of_their_own() {
        let mut identifications = Identifications::new(HashSeed::new(1, 2));
        let mut first: Vec<_> = (0..100)
            .map(|idx| {
                let key = identifications.key(OURS, peer(idx), Protocol::UDP);
                identifications.next(key, at(0))
            })
            .collect();
        first.sort_unstable();
        first.dedup();
        assert!(first.len() > 95, "{} of a hundred", first.len());
    }
}
