//! The ARP node: replies for our addresses, defends them, and learns the neighbors'.
//!
//! Its input begins with the ARP packet; it hands nothing on. The node is a shell around two
//! machines: [`Claims`], its own, and the neighbors of [`Egress`](crate::pipeline::Egress), where
//! frames wait for a reply. On an interface that the kernel owns, no ARP packet arrives here; the
//! host learns the neighbors from netlink.

use core::net::Ipv4Addr;

use zerocopy::IntoBytes;

use super::resolver::send_arp;
use crate::counters::{Counter, Drops, Scope, Unit};
use crate::device::{Offload, TxQueue};
use crate::mem::{Mbuf, Pool};
use crate::pipeline::answer::{ReplyLink, build};
use crate::pipeline::node::{Cx, Node, discard};
use crate::pipeline::outline::NodeTree;
use crate::proto::{
    ArpOutcome, ClaimAction, ClaimConfig, ClaimError, ClaimOutcome, Claims, HashSeed, Ipv4Prefix, NotLearned,
};
use crate::time::Instant;
use crate::wire::{ArpError, ArpFields, ArpOperation, ArpPacket, EtherType, VlanTags};

crate::drop_reasons! {
    /// Why the ARP node drops a packet.
    pub(crate) enum ArpDrop {
        /// Fewer than 28 bytes.
        TooShort => "too_short",
        /// The packet is not about IPv4 over Ethernet, or is neither a request nor a reply.
        OtherKind => "other_kind",
        /// The sender's MAC address is a group or zero.
        SenderMac => "sender_mac",
        /// Another host sends from an address of ours.
        AddressConflict => "address_conflict",
        /// A request that was not answered: no buffer is free.
        PoolEmpty => "pool_empty",
        /// A request that was not answered: the device's ring is full.
        RingFull => "ring_full",
        ..NotLearned(NotLearned),
    }
}

impl From<ArpError> for ArpDrop {
    fn from(error: ArpError) -> Self {
        match error {
            ArpError::Short => Self::TooShort,
            ArpError::HardwareType | ArpError::ProtocolType | ArpError::AddressLength | ArpError::Operation => {
                Self::OtherKind
            }
            ArpError::SenderMac => Self::SenderMac,
        }
    }
}

/// The capacity and behavior of the ARP node.
#[derive(Clone, Copy, Debug)]
pub struct ArpConfig {
    /// The most own addresses that are announced and defended, 56 bytes each; further ones are
    /// neither. By default 16.
    pub claims_max: usize,
    /// Whether we announce our addresses (gratuitous ARP) when one is added, when the link comes up
    /// and when our MAC address changes. When we replace a machine, other hosts have cached its MAC
    /// address, and without an announcement would not reach us for minutes. Off where the kernel
    /// owns the interface: it announces as `arp_notify` says. By default true.
    pub announces: bool,
    /// The secret that randomizes the delays. It has no default.
    pub seed: HashSeed,
}

impl ArpConfig {
    /// Room for 16 own addresses, which are announced.
    pub fn new(seed: HashSeed) -> Self {
        Self { claims_max: 16, announces: true, seed }
    }
}

/// Takes ARP packets.
pub struct Arp {
    claims: Claims,
    announces: bool,
    /// `Host::changes` when the host was last followed.
    host_changes: Option<u64>,
    packets: Counter,
    learned: Counter,
    answered: Counter,
    conflicts: Counter,
    said: AnnouncementCounters,
    drops: Drops<ArpDrop>,
}

/// Counters of the probes and announcements for our own addresses.
struct AnnouncementCounters {
    sent: Counter,
    /// Probes, announcements and defenses that found no buffer or no slot in the ring.
    unsent: Counter,
}

impl Arp {
    /// The node, with counters in the scope `arp` below `scope`. Allocates all its memory here.
    pub fn new(config: ArpConfig, scope: &Scope) -> Self {
        let scope = scope.scope("arp");
        Self {
            claims: Claims::new(ClaimConfig { claims_max: config.claims_max, seed: config.seed }),
            announces: config.announces,
            host_changes: None,
            packets: scope.counter("packets", Unit::Packets),
            learned: scope.counter("learned", Unit::Packets),
            answered: scope.counter("answered", Unit::Packets),
            conflicts: scope.counter("conflicts", Unit::Events),
            said: AnnouncementCounters {
                sent: scope.counter("announcements_sent", Unit::Packets),
                unsent: scope.counter("claims_unsent", Unit::Packets),
            },
            drops: scope.drops(),
        }
    }

    /// Begins to probe whether an address is free (RFC 5227). The host gets it when no other host
    /// has objected, which takes 4 to 7 seconds.
    pub fn claim(&mut self, prefix: Ipv4Prefix, cx: &Cx<'_>) -> Result<(), ClaimError> {
        self.claims.claim(prefix, cx.host, cx.now)
    }

    /// Announces an address of the host again, or for the first time where [`ArpConfig::announces`]
    /// is off. False where the host does not have the address, or there is no room.
    pub fn announce(&mut self, address: Ipv4Addr, cx: &Cx<'_>) -> bool {
        self.claims.announce(address, cx.host, cx.now)
    }

    /// Passes a packet to both machines, the claims first: a packet from our own address teaches
    /// nothing about neighbors.
    fn receive(&mut self, packet: &ArpPacket, cx: &mut Cx<'_>) -> Result<(), ArpDrop> {
        let Self { claims, said, .. } = self;
        let (pool, tx, tags) = (cx.pool, &mut *cx.tx, cx.host.vlan());
        let mut act = |action| said.perform(&action, &tags, pool, tx);
        if let ClaimOutcome::Conflict { .. } = claims.receive(packet, cx.host, cx.now, &mut act) {
            self.conflicts.inc();
            return Err(ArpDrop::AddressConflict);
        }
        match cx.egress().receive_arp(packet) {
            ArpOutcome::Ignored(reason) => Err(reason.into()),
            ArpOutcome::Answered | ArpOutcome::Confirmed | ArpOutcome::Moved | ArpOutcome::Unsolicited => {
                self.learned.inc();
                Ok(())
            }
        }
    }

    /// Replies to a request for an address of ours (RFC 826), in the VLAN that the request came
    /// from.
    fn answer(&mut self, packet: &ArpPacket, mbuf: &Mbuf, cx: &mut Cx<'_>) -> Result<(), ArpDrop> {
        let reply = ArpPacket::new(&ArpFields {
            operation: ArpOperation::Reply,
            sender_mac: cx.host.mac(),
            sender_ip: packet.target_ip(),
            target_mac: packet.sender_mac(),
            target_ip: packet.sender_ip(),
        });
        let link = ReplyLink::behind(mbuf, 0, cx.host).ok_or(ArpDrop::TooShort)?;
        let (header, header_len) = link.header(packet.sender_mac(), EtherType::ARP, cx.host);
        let frame = build(&[&header[..header_len], reply.as_bytes()], cx.pool).ok_or(ArpDrop::PoolEmpty)?;
        if let Err(frame) = cx.tx.post(frame, Offload::NONE) {
            frame.free();
            return Err(ArpDrop::RingFull);
        }
        self.answered.inc();
        Ok(())
    }

    /// Learns from a packet, and replies to its request.
    fn take(&mut self, mbuf: &Mbuf, cx: &mut Cx<'_>) -> Result<(), ArpDrop> {
        let (packet, _) = ArpPacket::parse(mbuf.bytes())?;
        let outcome = self.receive(packet, cx);
        let asks_for_us = packet.operation() == ArpOperation::Request && cx.host.is_own(packet.target_ip());
        match outcome {
            Err(reason @ (ArpDrop::AddressConflict | ArpDrop::NotLearned(NotLearned::OwnMac))) => Err(reason),
            // A sender that is not learned still gets a reply: a probe, or a neighbor for which the
            // table has no room.
            _ if asks_for_us => self.answer(packet, mbuf, cx),
            outcome => outcome,
        }
    }
}

impl AnnouncementCounters {
    fn perform(&self, action: &ClaimAction, tags: &VlanTags, pool: &Pool, tx: &mut dyn TxQueue) {
        if let ClaimAction::Send(send) = action {
            if send_arp(send, tags, pool, tx) { self.sent.inc() } else { self.unsent.inc() }
        }
    }
}

impl<A> Node<A> for Arp {
    fn push(&mut self, mbuf: Mbuf, _app: &mut A, cx: &mut Cx<'_>) {
        self.packets.inc();
        match self.take(&mbuf, cx) {
            Ok(()) => mbuf.free(),
            Err(reason) => discard(mbuf, &mut self.drops, reason),
        }
    }

    #[inline]
    fn tick(&mut self, _app: &mut A, cx: &mut Cx<'_>) {
        let changes = Some(cx.host.changes());
        if self.announces && self.host_changes != changes {
            self.host_changes = changes;
            self.claims.follow(cx.host, cx.now);
        }
        let Self { claims, said, .. } = self;
        let (pool, tx, tags) = (cx.pool, &mut *cx.tx, cx.host.vlan());
        claims.tick(cx.host, cx.now, &mut |action| said.perform(&action, &tags, pool, tx));
    }

    fn next_deadline(&self, cx: &Cx<'_>) -> Instant {
        let has_changed = self.announces && self.host_changes != Some(cx.host.changes());
        if has_changed { cx.now } else { self.claims.next_deadline() }
    }

    fn kept(&self) -> usize {
        0
    }

    fn outline(&self, outline: &mut NodeTree) {
        outline.node("arp", "answers for the host's addresses, learns neighbors", |_| ());
    }
}
