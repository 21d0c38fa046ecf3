//! Address conflict detection for our own addresses (RFC 5227): probes whether an address is free
//! before the host takes it, announces it, and defends it when another host uses it.
//!
//! ```text
//!   claim ──▶ Probing, 3 requests ──nobody──▶ taken: the host has it ──▶ Announcing, twice ──▶ Held
//!                │ somebody                                                    ▲                  │ conflict
//!                ▼                                                             │                  ▼
//!              refused                                          announce (it is the host's already)   defended once in 10 s
//! ```
//! Its input is claims, ARP packets and the time; its output is packets to send, an address for the
//! [`Host`], and refusals. An address in use is never given up (RFC 5227 2.4 (c)), because a feed
//! handler that drops its address loses more than one that shares it for a while: the machine
//! counts the conflict and defends the address, and the operator decides.

use core::fmt;
use core::net::Ipv4Addr;

use super::hash::HashSeed;
use super::host::{Host, HostError, HostEvent};
use super::neighbor::ArpSend;
use super::prefix::Ipv4Prefix;
use crate::time::{Duration, Instant};
use crate::wire::{ArpFields, ArpOperation, ArpPacket, MacAddr};

/// The longest delay before the first probe (RFC 5227 1.1, PROBE_WAIT): hosts that start together
/// do not probe together.
pub const PROBE_WAIT: Duration = Duration::from_secs(1);
/// Probes before an address is ours (PROBE_NUM).
pub const PROBE_NUM: u32 = 3;
/// Between two probes (PROBE_MIN); the longest interval is twice that (PROBE_MAX).
pub const PROBE_MIN: Duration = Duration::from_secs(1);
/// After the last probe (ANNOUNCE_WAIT).
pub const ANNOUNCE_WAIT: Duration = Duration::from_secs(2);
/// Announcements of an address (ANNOUNCE_NUM).
pub const ANNOUNCE_NUM: u32 = 2;
/// Between two announcements (ANNOUNCE_INTERVAL).
pub const ANNOUNCE_INTERVAL: Duration = Duration::from_secs(2);
/// Between two defenses of one address (DEFEND_INTERVAL): two hosts that both never give up would
/// otherwise flood the network.
pub const DEFEND_INTERVAL: Duration = Duration::from_secs(10);

/// Capacity and seed of the claims.
#[derive(Clone, Copy, Debug)]
pub struct ClaimConfig {
    /// Own addresses, 56 bytes each: as many as the host may have.
    pub claims_max: usize,
    /// The secret that randomizes the delays.
    pub seed: HashSeed,
}

/// Why an address was not claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClaimError {
    /// All entries are taken.
    Full,
    /// It is claimed already.
    AlreadyClaimed,
    /// The host has it already: announce it instead.
    AlreadyOwn,
}

impl fmt::Display for ClaimError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "no room for another claim: raise claims_max",
            Self::AlreadyClaimed => "the address is claimed already: wait for the answer",
            Self::AlreadyOwn => "the host has the address already: announce it instead",
        })
    }
}

impl core::error::Error for ClaimError {}

/// Actions and results of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimAction {
    /// Send this packet.
    Send(ArpSend),
    /// No other host has the address: the host has it from now on.
    Taken(Ipv4Prefix),
    /// Another host has the address, or probes for it at the same moment. The claim is over.
    Refused {
        /// The address.
        address: Ipv4Addr,
        /// The other host.
        by: MacAddr,
    },
    /// No other host has the address, but ours refuses it. The claim is over.
    IgnoredType {
        /// The address.
        address: Ipv4Addr,
        /// The reason.
        error: HostError,
    },
}

/// The effect of an ARP packet on our addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClaimOutcome {
    /// None.
    Nothing,
    /// Another host sends from an address of ours. Its packet changes nothing else.
    Conflict {
        /// Whether we defended it, which happens once in [`DEFEND_INTERVAL`].
        defended: bool,
    },
    /// An address that we were probing is not free.
    Refused,
}

/// The own addresses of one interface. A handful, so a list is enough.
#[derive(Debug)]
pub struct Claims {
    config: ClaimConfig,
    claims: Vec<Claim>,
    /// No deadline is earlier.
    due: Instant,
    /// Random numbers drawn so far.
    draws: u64,
    conflicts: u64,
    /// Our MAC address and the link state when we last [followed](Self::follow) the host.
    reported: Option<(MacAddr, bool)>,
}

#[derive(Clone, Copy, Debug)]
struct Claim {
    prefix: Ipv4Prefix,
    state: ClaimState,
    deadline: Instant,
    /// When the address may be defended again.
    defend_from: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClaimState {
    /// Number of probes sent.
    Probing(u32),
    /// Number of announcements sent.
    Announcing(u32),
    Held,
}

impl Claims {
    /// Without claims. Allocates all its memory here.
    pub fn new(config: ClaimConfig) -> Self {
        let claims = Vec::with_capacity(config.claims_max);
        Self { config, claims, due: Instant::MAX, draws: 0, conflicts: 0, reported: None }
    }

    /// Begins to probe whether an address is free, which takes 4 to 7 seconds. RFC 5227 2.1.1 wants
    /// a minute between claims after ten refusals: the caller chooses the next address, and must
    /// wait for that minute.
    pub fn claim(&mut self, prefix: Ipv4Prefix, host: &Host, now: Instant) -> Result<(), ClaimError> {
        if host.is_own(prefix.address()) {
            return Err(ClaimError::AlreadyOwn);
        }
        if self.find(prefix.address()).is_some() {
            return Err(ClaimError::AlreadyClaimed);
        }
        let first = now + self.random(PROBE_WAIT);
        if self.watch(prefix, ClaimState::Probing(0), first) { Ok(()) } else { Err(ClaimError::Full) }
    }

    /// Announces an address of the host twice: after it was configured, and after the link or the
    /// MAC address changed. False where the host does not have the address or there is no room for
    /// it.
    pub fn announce(&mut self, address: Ipv4Addr, host: &Host, now: Instant) -> bool {
        let Some(prefix) = host.addresses().iter().find(|own| own.address() == address) else { return false };
        match self.find(address) {
            Some(idx) => {
                self.set(idx, ClaimState::Announcing(0), now);
                true
            }
            None => self.watch(*prefix, ClaimState::Announcing(0), now),
        }
    }

    /// Call it after the host has changed. Announces new addresses, or all addresses after the MAC
    /// address changed or the link came up. An address without room is not announced.
    pub fn follow(&mut self, host: &Host, now: Instant) {
        self.claims
            .retain(|claim| matches!(claim.state, ClaimState::Probing(_)) || host.is_own(claim.prefix.address()));
        let reported = self.reported.replace((host.mac(), host.is_up()));
        let is_known = reported == Some((host.mac(), true));
        for own in host.addresses() {
            if host.is_up() && !(is_known && self.find(own.address()).is_some()) {
                self.announce(own.address(), host, now);
            }
        }
    }

    /// Stops watching an address that the host gave up, or cancels its claim.
    pub fn release(&mut self, address: Ipv4Addr) -> bool {
        let before = self.claims.len();
        self.claims.retain(|claim| claim.prefix.address() != address);
        self.claims.len() < before
    }

    /// Receives a packet that [`ArpPacket::parse`] has accepted.
    pub fn receive(
        &mut self,
        packet: &ArpPacket,
        host: &Host,
        now: Instant,
        act: &mut impl FnMut(ClaimAction),
    ) -> ClaimOutcome {
        let by = packet.sender_mac();
        if by == host.mac() {
            return ClaimOutcome::Nothing;
        }
        // RFC 5227 2.1.1: the sender of a packet uses the address, and the sender of a probe wants
        // it as we do. Both conflict with our claim.
        let wanted = if packet.is_probe() { packet.target_ip() } else { packet.sender_ip() };
        let claim = self.find(wanted);
        if let Some(idx) = claim
            && matches!(self.claims[idx].state, ClaimState::Probing(_))
        {
            self.claims.swap_remove(idx);
            act(ClaimAction::Refused { address: wanted, by });
            return ClaimOutcome::Refused;
        }
        if packet.is_probe() || !host.is_own(wanted) {
            return ClaimOutcome::Nothing;
        }
        self.conflicts += 1;
        ClaimOutcome::Conflict { defended: self.defend(wanted, host, now, act) }
    }

    /// Sends due packets. One compare while none is due.
    #[inline]
    pub fn tick(&mut self, host: &mut Host, now: Instant, act: &mut impl FnMut(ClaimAction)) {
        if now >= self.due {
            self.step_all(host, now, act);
        }
    }

    /// When [`tick`](Self::tick) has something to do next, not later.
    pub fn next_deadline(&self) -> Instant {
        self.due
    }

    /// How many packets showed another host using an address of ours.
    pub fn conflicts(&self) -> u64 {
        self.conflicts
    }

    fn find(&self, address: Ipv4Addr) -> Option<usize> {
        self.claims.iter().position(|claim| claim.prefix.address() == address)
    }

    fn watch(&mut self, prefix: Ipv4Prefix, state: ClaimState, deadline: Instant) -> bool {
        if self.claims.len() == self.config.claims_max {
            return false;
        }
        self.claims.push(Claim { prefix, state, deadline, defend_from: Instant::ZERO });
        self.due = self.due.min(deadline);
        true
    }

    fn set(&mut self, idx: usize, state: ClaimState, deadline: Instant) {
        let claim = &mut self.claims[idx];
        (claim.state, claim.deadline) = (state, deadline);
        self.due = self.due.min(deadline);
    }

    /// Announces an address again, so that neighbors map it to us again, unless that was done
    /// within [`DEFEND_INTERVAL`]. From now on, also watches an address that was never announced.
    #[cold]
    fn defend(&mut self, address: Ipv4Addr, host: &Host, now: Instant, act: &mut impl FnMut(ClaimAction)) -> bool {
        if self.find(address).is_none()
            && let Some(prefix) = host.addresses().iter().find(|own| own.address() == address)
        {
            self.watch(*prefix, ClaimState::Held, Instant::MAX);
        }
        let Some(idx) = self.find(address) else { return false };
        if now < self.claims[idx].defend_from {
            return false;
        }
        self.claims[idx].defend_from = now + DEFEND_INTERVAL;
        act(ClaimAction::Send(announcement(address, host)));
        true
    }

    #[cold]
    fn step_all(&mut self, host: &mut Host, now: Instant, act: &mut impl FnMut(ClaimAction)) {
        self.due = Instant::MAX;
        // Backwards, because the last claim moves into the entry of one that ends.
        for idx in (0..self.claims.len()).rev() {
            let Claim { state, deadline, .. } = self.claims[idx];
            if deadline > now {
                self.due = self.due.min(deadline);
            } else if let ClaimState::Probing(sent) = state {
                self.step_probing(idx, sent, host, now, act);
            } else if let ClaimState::Announcing(sent) = state {
                self.step_announcing(idx, sent, host, now, act);
            }
        }
    }

    fn step_probing(
        &mut self,
        idx: usize,
        sent: u32,
        host: &mut Host,
        now: Instant,
        act: &mut impl FnMut(ClaimAction),
    ) {
        let prefix = self.claims[idx].prefix;
        let address = prefix.address();
        if sent < PROBE_NUM {
            act(ClaimAction::Send(probe(address, host)));
            let wait = if sent + 1 == PROBE_NUM { ANNOUNCE_WAIT } else { PROBE_MIN + self.random(PROBE_MIN) };
            return self.set(idx, ClaimState::Probing(sent + 1), now + wait);
        }
        match host.apply(HostEvent::AddressAdded(prefix)) {
            Ok(()) => {
                act(ClaimAction::Taken(prefix));
                self.step_announcing(idx, 0, host, now, act);
            }
            Err(error) => {
                self.claims.swap_remove(idx);
                act(ClaimAction::IgnoredType { address, error });
            }
        }
    }

    fn step_announcing(&mut self, idx: usize, sent: u32, host: &Host, now: Instant, act: &mut impl FnMut(ClaimAction)) {
        let address = self.claims[idx].prefix.address();
        if !host.is_own(address) {
            // The host has given the address up meanwhile: there is nothing to announce and nothing
            // to watch.
            self.claims.swap_remove(idx);
            return;
        }
        act(ClaimAction::Send(announcement(address, host)));
        match sent + 1 {
            ANNOUNCE_NUM => self.set(idx, ClaimState::Held, Instant::MAX),
            sent => self.set(idx, ClaimState::Announcing(sent), now + ANNOUNCE_INTERVAL),
        }
    }

    /// Up to `most`, by a keyed hash of the number of draws.
    fn random(&mut self, most: Duration) -> Duration {
        self.draws += 1;
        let word = u128::from(self.config.seed.sip(&[self.draws]));
        Duration::from_nanos(((word * u128::from(most.as_nanos())) >> 64) as u64)
    }
}

/// An ARP probe (RFC 5227 2.1.1): its sender address is zero, so that no host learns from it.
fn probe(address: Ipv4Addr, host: &Host) -> ArpSend {
    request(Ipv4Addr::UNSPECIFIED, address, host)
}

/// An ARP announcement (RFC 5227 2.3): a request, which more stacks learn from than from a reply.
fn announcement(address: Ipv4Addr, host: &Host) -> ArpSend {
    request(address, address, host)
}

fn request(sender_ip: Ipv4Addr, target_ip: Ipv4Addr, host: &Host) -> ArpSend {
    let packet = ArpFields {
        operation: ArpOperation::Request,
        sender_mac: host.mac(),
        sender_ip,
        target_mac: MacAddr::ZERO,
        target_ip,
    };
    ArpSend { to: MacAddr::BROADCAST, packet }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::host::HostConfig;
    use crate::proto::ids::InterfaceId;
    use crate::wire::VlanTags;

    const OURS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
    const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
    const OTHER: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);

    struct Script {
        claims: Claims,
        host: Host,
        now: Instant,
        actions: Vec<ClaimAction>,
    }

    fn script() -> Script {
        let config = HostConfig {
            interface: InterfaceId(0),
            mac: MAC,
            vlan: VlanTags::NONE,
            mtu: 1500,
            addresses_max: 2,
            routes_max: 2,
            neighbors_max: 2,
        };
        Script {
            claims: Claims::new(ClaimConfig { claims_max: 2, seed: HashSeed::new(5, 6) }),
            host: Host::new(config, HashSeed::new(1, 2)).unwrap(),
            now: Instant::from_nanos(77),
            actions: Vec::new(),
        }
    }

    impl Script {
        fn claim(&mut self) {
            self.claims.claim(prefix(), &self.host, self.now).unwrap();
        }

        fn own(&mut self) {
            self.host.apply(HostEvent::AddressAdded(prefix())).unwrap();
        }

        /// Advances time in steps of 100 ms; returns when packets were sent, in seconds since the
        /// call, and their sender addresses.
        fn run(&mut self, span: Duration) -> Vec<(f64, Ipv4Addr)> {
            let (start, mut sent) = (self.now, Vec::new());
            while self.now.since(start) < span {
                self.now += Duration::from_millis(100);
                let at = self.now.since(start).as_secs_f64();
                self.claims.tick(&mut self.host, self.now, &mut |action| match action {
                    ClaimAction::Send(send) => {
                        assert_eq!(
                            (send.to, send.packet.sender_mac, send.packet.target_ip),
                            (MacAddr::BROADCAST, MAC, OURS)
                        );
                        sent.push((at, send.packet.sender_ip));
                    }
                    other => self.actions.push(other),
                });
            }
            sent
        }

        fn receive(
            &mut self,
            operation: ArpOperation,
            mac: MacAddr,
            sender_ip: Ipv4Addr,
            target_ip: Ipv4Addr,
        ) -> ClaimOutcome {
            let fields = ArpFields { operation, sender_mac: mac, sender_ip, target_mac: MacAddr::ZERO, target_ip };
            let packet = ArpPacket::new(&fields);
            self.claims.receive(&packet, &self.host, self.now, &mut |action| self.actions.push(action))
        }
    }

    fn prefix() -> Ipv4Prefix {
        Ipv4Prefix::new(OURS, 24).unwrap()
    }

    #[test]
    fn free_address_is_probed_three_times_taken_and_announced_twice() {
        let mut script = script();
        script.claim();
        let sent = script.run(Duration::from_secs(20));
        let from: Vec<_> = sent.iter().map(|(_, from)| *from).collect();
        let nobody = Ipv4Addr::UNSPECIFIED;
        assert_eq!(from, [nobody, nobody, nobody, OURS, OURS]);
        let gaps: Vec<_> = sent.windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
        assert!(sent[0].0 <= 1.2 && gaps[..2].iter().all(|gap| (0.9..2.2).contains(gap)), "{sent:?}");
        assert!(gaps[2..].iter().all(|gap| (1.9..2.2).contains(gap)), "{sent:?}");
        assert_eq!(script.actions, [ClaimAction::Taken(prefix())]);
        assert!(script.host.is_own(OURS));
    }

    #[test]
    fn address_in_use_is_refused_and_never_announced() {
        let elsewhere = Ipv4Addr::new(10, 0, 0, 7);
        for (operation, sender, target) in [
            (ArpOperation::Reply, OURS, Ipv4Addr::UNSPECIFIED),
            (ArpOperation::Request, OURS, elsewhere),
            (ArpOperation::Request, Ipv4Addr::UNSPECIFIED, OURS),
        ] {
            let mut script = script();
            script.claim();
            script.run(Duration::from_secs(2));
            assert_eq!(script.receive(operation, OTHER, sender, target), ClaimOutcome::Refused);
            assert_eq!(script.actions, [ClaimAction::Refused { address: OURS, by: OTHER }]);
            assert!(script.run(Duration::from_secs(20)).is_empty() && !script.host.is_own(OURS));
        }
    }

    #[test]
    fn own_probe_that_comes_back_is_not_a_conflict() {
        let mut script = script();
        script.claim();
        assert_eq!(script.receive(ArpOperation::Request, MAC, Ipv4Addr::UNSPECIFIED, OURS), ClaimOutcome::Nothing);
        script.own();
        assert_eq!(script.receive(ArpOperation::Request, MAC, OURS, OURS), ClaimOutcome::Nothing);
    }

    #[test]
    fn conflict_is_counted_each_time_and_defended_once_in_ten_seconds() {
        let mut script = script();
        script.own();
        let defended: Vec<_> = (0..25)
            .map(|_| {
                script.now += Duration::from_secs(1);
                script.receive(ArpOperation::Reply, OTHER, OURS, Ipv4Addr::UNSPECIFIED)
            })
            .collect();
        let count = defended.iter().filter(|heard| **heard == ClaimOutcome::Conflict { defended: true }).count();
        assert_eq!((count, script.claims.conflicts(), script.actions.len()), (3, 25, 3));
        assert!(script.host.is_own(OURS));
    }

    #[test]
    fn probe_for_an_address_that_we_have_is_no_conflict() {
        let mut script = script();
        script.own();
        assert_eq!(script.receive(ArpOperation::Request, OTHER, Ipv4Addr::UNSPECIFIED, OURS), ClaimOutcome::Nothing);
    }

    #[test]
    fn address_that_was_given_up_is_not_announced() {
        let mut script = script();
        script.own();
        assert!(script.claims.announce(OURS, &script.host, script.now));
        script.host.apply(HostEvent::AddressRemoved(prefix())).unwrap();
        assert!(script.run(Duration::from_secs(10)).is_empty());
        assert!(!script.claims.announce(OURS, &script.host, script.now));
    }

    #[test]
    fn addresses_are_announced_when_they_come_move_or_their_link_comes_up() {
        let mut script = script();
        let mut follow = |event: Option<HostEvent>| {
            event.into_iter().for_each(|event| script.host.apply(event).unwrap());
            script.claims.follow(&script.host, script.now);
            script.run(Duration::from_secs(10)).len()
        };
        let (none, twice) = (0, 2);
        assert_eq!(follow(None), none, "there is no address yet");
        assert_eq!(follow(Some(HostEvent::AddressAdded(prefix()))), twice);
        assert_eq!(follow(Some(HostEvent::Mtu(9000))), none, "nobody else wants to know");
        assert_eq!(follow(Some(HostEvent::Link { is_up: false })), none);
        assert_eq!(follow(Some(HostEvent::Link { is_up: true })), twice);
        assert_eq!(follow(Some(HostEvent::AddressRemoved(prefix()))), none);
        assert_eq!(follow(Some(HostEvent::AddressAdded(prefix()))), twice);
    }

    #[test]
    fn address_that_was_claimed_is_announced_twice_and_no_more() {
        let mut script = script();
        script.claims.follow(&script.host, script.now);
        script.claim();
        let mut sent = script.run(Duration::from_secs(8));
        script.claims.follow(&script.host, script.now);
        sent.extend(script.run(Duration::from_secs(10)));
        assert_eq!(sent.iter().filter(|(_, from)| *from == OURS).count(), 2);
    }

    #[test]
    fn claims_beyond_the_room_are_refused() {
        let mut script = script();
        script.claim();
        assert_eq!(script.claims.claim(prefix(), &script.host, script.now), Err(ClaimError::AlreadyClaimed));
        let with = |last| Ipv4Prefix::new(Ipv4Addr::new(10, 0, 0, last), 24).unwrap();
        script.claims.claim(with(2), &script.host, script.now).unwrap();
        assert_eq!(script.claims.claim(with(3), &script.host, script.now), Err(ClaimError::Full));
    }

    #[test]
    fn host_without_room_ends_the_claim_with_its_reason() {
        let mut script = script();
        for last in [5, 6] {
            let prefix = Ipv4Prefix::new(Ipv4Addr::new(10, 0, last, 1), 24).unwrap();
            script.host.apply(HostEvent::AddressAdded(prefix)).unwrap();
        }
        script.claim();
        script.run(Duration::from_secs(10));
        assert_eq!(script.actions, [ClaimAction::IgnoredType { address: OURS, error: HostError::AddressesFull }]);
    }
}
