//! Path MTUs (RFC 1191): the largest packet to a destination, as routers reported it, for a limited
//! time.
//!
//! Claims enter, from "fragmentation needed" messages that
//! [`match_error`](super::icmp::match_error) has accepted; a number of bytes leaves. A claim only
//! lowers it, and expires after ten minutes; then the interface's own MTU is tried again.
//!
//! Anyone can forge a quote with our address and a port of ours. A TCP segment has a sequence
//! number that only hosts on the path know (RFC 5927 4.1); a UDP datagram has none. So a flow that
//! forbids fragments gives its datagrams an [identification](PathMtus::identification) that is a
//! keyed hash of the flow: RFC 6864 4.1 lets the sender of an atomic datagram choose the field, and
//! routers quote it. RFC 8899 4.6.1 wants such a check before a claim is accepted.

use core::net::Ipv4Addr;

use super::demux::Flow;
use super::hash::HashSeed;
use super::rate_limit::Shares;
use super::table::{AddressKey, Table};
use crate::time::{Duration, Instant};

/// Purpose of the derived key for identifications.
const IDENTIFICATION_KEY: u64 = u64::from_be_bytes(*b"path mtu");
/// Purpose of the derived key for the guess counters.
const GUESS_COUNTER_KEY: u64 = u64::from_be_bytes(*b"mtuclaim");
/// The most wrong guesses about a flow in one second; after them no claim about the flow is checked
/// until the next second. So a forger needs four and a half hours for 65,536 identifications.
const GUESSES_MAX: u32 = 4;
/// Counters of guesses: an attacker that wants to block the claims of all flows has to use up each
/// counter. They take 4 KiB.
const GUESS_COUNTERS: usize = 1_024;

/// Capacity and times. All memory is allocated at construction.
#[derive(Clone, Copy, Debug)]
pub struct PathMtuConfig {
    /// Destinations with an MTU of their own, 24 bytes each and 64 to 128 of table. A new one
    /// displaces the one that expires first. With too few, routers report the same MTU again and
    /// again, and each report costs a packet. By default 64.
    pub destinations_max: usize,
    /// Bytes; smaller claims are raised to this. Linux uses 552 (`min_pmtu`): with it a forger
    /// cannot make us send tiny packets, and no link of today has a smaller MTU. With a minimum
    /// above the MTU of a link on the path, that link loses all full packets. By default 552.
    pub mtu_min: u16,
    /// How long a claim is valid. RFC 1191 6.3 recommends ten minutes, and forbids trying a larger
    /// one before five; longer keeps packets small after the path has changed. By default ten
    /// minutes.
    pub age_max: Duration,
}

impl Default for PathMtuConfig {
    /// 64 destinations, not below 552 bytes, for ten minutes.
    fn default() -> Self {
        Self { destinations_max: 64, mtu_min: 552, age_max: Duration::from_secs(600) }
    }
}

/// A router's claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathMtuClaim {
    /// The destination of the packet.
    pub destination: Ipv4Addr,
    /// The MTU of the next link in bytes; 0 from routers older than RFC 1191.
    pub mtu: u16,
    /// Bytes of the packet that was too large.
    pub packet_len: u16,
}

/// Why a claim changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PathMtuRefusal {
    /// The packet that is said to have been too large would have fitted (RFC 5927 7.2).
    WouldHaveFitted,
    /// A smaller or equal one is known.
    NotSmaller,
    /// There is no room at all.
    NoRoom,
    /// The quoted datagram has another identification than the flow's: a guess.
    Unproven,
    /// Wrong guesses about this flow, or about one that shares its counter, have reached the limit
    /// for this second.
    TooMany,
}

/// The MTUs of paths that are below the interface's.
#[derive(Debug)]
pub struct PathMtus {
    config: PathMtuConfig,
    /// Indices into `paths`.
    by_destination: Table<AddressKey, u32>,
    paths: Vec<Path>,
    /// The key of identifications: not the table's seed, whose use may be observed elsewhere.
    proof: HashSeed,
    /// Boxed, because otherwise 4 KiB would be between the fields that every send reads.
    guesses: Box<Shares<GUESS_COUNTERS>>,
}

#[derive(Clone, Copy, Debug)]
struct Path {
    destination: Ipv4Addr,
    mtu: u16,
    until: Instant,
}

impl PathMtus {
    /// Without paths. Allocates all its memory here.
    pub fn new(config: PathMtuConfig, seed: HashSeed) -> Self {
        let capacity = config.destinations_max;
        let (proof, guesses) = (seed.derive(IDENTIFICATION_KEY), Box::new(Shares::new(seed.derive(GUESS_COUNTER_KEY))));
        let (by_destination, paths) = (Table::new(capacity, seed), Vec::with_capacity(capacity));
        Self { config, by_destination, paths, proof, guesses }
    }

    /// The identification of the datagrams of a flow that forbids fragments. One SipHash.
    pub fn identification(&self, flow: Flow) -> u16 {
        self.hash(flow) as u16
    }

    /// Whether the flow has sent the quoted datagram, judged by the identification. Only wrong
    /// guesses are counted, separately for each flow, so that an attacker's guesses about one flow
    /// do not block true claims about another.
    pub fn prove(&mut self, flow: Flow, identification: u16, now: Instant) -> Result<(), PathMtuRefusal> {
        let hash = self.hash(flow);
        if self.guesses.is_used_up(hash, GUESSES_MAX, now) {
            return Err(PathMtuRefusal::TooMany);
        }
        if identification == hash as u16 {
            return Ok(());
        }
        self.guesses.take(hash, GUESSES_MAX, now);
        Err(PathMtuRefusal::Unproven)
    }

    fn hash(&self, flow: Flow) -> u64 {
        let ends = [flow.local, flow.remote];
        self.proof.sip(&ends.map(|end| u64::from(end.ip().to_bits()) << 16 | u64::from(end.port())))
    }

    /// Bytes of the largest packet to a destination, where a claim is known. One probe of a table.
    #[inline]
    pub fn get(&self, destination: Ipv4Addr, now: Instant) -> Option<usize> {
        self.lookup(destination, now).map(|(mtu, _)| mtu)
    }

    /// As [`get`](Self::get), with its expiry.
    #[inline]
    pub fn lookup(&self, destination: Ipv4Addr, now: Instant) -> Option<(usize, Instant)> {
        let path = &self.paths[*self.by_destination.get(AddressKey::of(destination))? as usize];
        (now < path.until).then_some((usize::from(path.mtu), path.until))
    }

    /// Applies a claim and returns the MTU that holds now. Scans all paths where there is no room.
    pub fn lower(&mut self, claim: PathMtuClaim, now: Instant) -> Result<usize, PathMtuRefusal> {
        if claim.mtu >= claim.packet_len {
            return Err(PathMtuRefusal::WouldHaveFitted);
        }
        let reported = if claim.mtu == 0 { plateau_below(claim.packet_len) } else { claim.mtu };
        let mtu = reported.max(self.config.mtu_min);
        // Our minimum is not below the size that was sent: the claim does not help.
        if mtu >= claim.packet_len {
            return Err(PathMtuRefusal::WouldHaveFitted);
        }
        if self.get(claim.destination, now).is_some_and(|held| held <= usize::from(mtu)) {
            return Err(PathMtuRefusal::NotSmaller);
        }
        let path = Path { destination: claim.destination, mtu, until: now + self.config.age_max };
        let idx = self.place(claim.destination).ok_or(PathMtuRefusal::NoRoom)?;
        self.paths[idx] = path;
        Ok(usize::from(mtu))
    }

    /// Removes all claims: the interface or the routes changed.
    pub fn clear(&mut self) {
        while let Some(path) = self.paths.pop() {
            self.by_destination.remove(AddressKey::of(path.destination));
        }
    }

    /// The entry of a destination: its own, a new one, or that of the path which expires first.
    fn place(&mut self, destination: Ipv4Addr) -> Option<usize> {
        if let Some(idx) = self.by_destination.get(AddressKey::of(destination)) {
            return Some(*idx as usize);
        }
        let idx = if self.paths.len() < self.config.destinations_max {
            self.paths.push(Path { destination, mtu: u16::MAX, until: Instant::ZERO });
            self.paths.len() - 1
        } else {
            let oldest = (0..self.paths.len()).min_by_key(|idx| self.paths[*idx].until)?;
            self.by_destination.remove(AddressKey::of(self.paths[oldest].destination));
            oldest
        };
        let inserted = self.by_destination.insert(AddressKey::of(destination), idx as u32);
        assert!(inserted, "the table has a place for each path, and the destination was not there");
        Some(idx)
    }
}

/// The next smaller MTU among the links of the time (RFC 1191 7.1), for routers that do not report
/// theirs.
fn plateau_below(packet_len: u16) -> u16 {
    const PLATEAUS: [u16; 10] = [32_000, 17_914, 8_166, 4_352, 2_002, 1_492, 1_006, 508, 296, 68];
    PLATEAUS.into_iter().find(|plateau| *plateau < packet_len).unwrap_or(68)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(destinations_max: usize) -> PathMtus {
        PathMtus::new(PathMtuConfig { destinations_max, ..PathMtuConfig::default() }, HashSeed::new(1, 2))
    }

    fn claim(last: u8, mtu: u16) -> PathMtuClaim {
        PathMtuClaim { destination: [192, 0, 2, last].into(), mtu, packet_len: 1500 }
    }

    #[test]
    fn claim_that_the_packet_did_not_exceed_is_refused() {
        let mut paths = paths(4);
        for mtu in [1500, 1501, 9000] {
            assert_eq!(paths.lower(claim(1, mtu), Instant::ZERO), Err(PathMtuRefusal::WouldHaveFitted));
        }
        let small = PathMtuClaim { packet_len: 100, ..claim(1, 60) };
        assert_eq!(paths.lower(small, Instant::ZERO), Err(PathMtuRefusal::WouldHaveFitted));
        assert_eq!(paths.get(small.destination, Instant::ZERO), None);
    }

    #[test]
    fn claim_lowers_and_never_raises_nor_lasts_longer() {
        let mut paths = paths(4);
        assert_eq!(paths.lower(claim(1, 1400), Instant::ZERO), Ok(1400));
        let later = Instant::ZERO + Duration::from_secs(300);
        assert_eq!(paths.lower(claim(1, 1450), later), Err(PathMtuRefusal::NotSmaller));
        assert_eq!(paths.lower(claim(1, 1400), later), Err(PathMtuRefusal::NotSmaller));
        assert_eq!(paths.get([192, 0, 2, 1].into(), later), Some(1400));
        assert_eq!(paths.get([192, 0, 2, 1].into(), Instant::ZERO + Duration::from_secs(600)), None);
    }

    fn flow(port: u16) -> Flow {
        let remote = core::net::SocketAddrV4::new([192, 0, 2, 1].into(), 7_000);
        Flow { local: core::net::SocketAddrV4::new([10, 0, 0, 1].into(), port), remote }
    }

    #[test]
    fn identification_is_a_flows_own_and_a_secret() {
        let (one, other) = (paths(4), PathMtus::new(PathMtuConfig::default(), HashSeed::new(1, 3)));
        let of = |paths: &PathMtus| (0..1_000).map(|port| paths.identification(flow(port))).collect::<Vec<_>>();
        assert_eq!(of(&one), of(&one));
        let same = of(&one).iter().zip(of(&other)).filter(|(one, other)| **one == *other).count();
        assert!(same < 5, "{same} of 1,000 are what another secret gives");
        let mut all = of(&one);
        all.sort_unstable();
        all.dedup();
        assert!(all.len() > 950, "{} different ones of 1,000", all.len());
    }

    #[test]
    fn guesses_are_refused_and_few_are_looked_at() {
        let mut paths = paths(4);
        let right = paths.identification(flow(1));
        let mut try_all = |now: Instant| {
            let refused = |guess: &u16| paths.prove(flow(1), *guess, now) == Err(PathMtuRefusal::Unproven);
            (0..u16::MAX).filter(|guess| *guess != right).filter(refused).count()
        };
        let later = Instant::ZERO + Duration::from_secs(2);
        assert_eq!((try_all(Instant::ZERO), try_all(later)), (4, 4));
        assert_eq!(paths.prove(flow(1), right, later), Err(PathMtuRefusal::TooMany));
        let later = later + Duration::from_secs(2);
        assert_eq!(paths.prove(flow(1), right, later), Ok(()));
        assert_eq!(paths.prove(flow(2), right, later), Err(PathMtuRefusal::Unproven));
    }

    /// Four guesses a second used to block the true claims of all flows.
    #[test]
    fn guesses_about_one_flow_cost_no_other_its_claims() {
        let mut paths = paths(4);
        for second in 0..10 {
            let now = Instant::ZERO + Duration::from_secs(2 * second);
            let wrong = !paths.identification(flow(1));
            (0..1_000).for_each(|_| _ = paths.prove(flow(1), wrong, now));
            let refused = |paths: &mut PathMtus, port| {
                let right = paths.identification(flow(port));
                paths.prove(flow(port), right, now).is_err()
            };
            assert!(refused(&mut paths, 1), "his own are used up");
            let count = (2..1_002).filter(|port| refused(&mut paths, *port)).count();
            assert!(count < 10, "{count} of 1,000 true claims refused in second {second}");
        }
    }

    #[test]
    fn tiny_claims_are_raised_to_the_least() {
        assert_eq!(paths(4).lower(claim(1, 68), Instant::ZERO), Ok(552));
    }

    #[test]
    fn router_that_does_not_tell_means_the_next_plateau() {
        let mut paths = paths(4);
        assert_eq!(paths.lower(claim(1, 0), Instant::ZERO), Ok(1492));
        assert_eq!(paths.lower(PathMtuClaim { packet_len: 1492, ..claim(1, 0) }, Instant::ZERO), Ok(1006));
    }

    #[test]
    fn oldest_makes_way_and_the_table_stays_bounded() {
        let mut paths = paths(2);
        for last in 0..200 {
            let now = Instant::from_nanos(last.into());
            assert_eq!(paths.lower(claim(last, 1400), now), Ok(1400));
        }
        let now = Instant::from_nanos(200);
        let known: Vec<u8> = (0..200).filter(|last| paths.get([192, 0, 2, *last].into(), now).is_some()).collect();
        assert_eq!(known, [198, 199]);
        paths.clear();
        assert_eq!(paths.get([192, 0, 2, 199].into(), now), None);
        assert_eq!(self::paths(0).lower(claim(1, 1400), now), Err(PathMtuRefusal::NoRoom));
    }
}
