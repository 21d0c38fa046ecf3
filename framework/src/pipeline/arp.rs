//! The ARP node: answers for our addresses, learns the others', and keeps datagrams until their neighbour is known.
//!
//! What enters begins with the ARP packet; nothing is handed on. The node is a shell around two machines,
//! [`Neighbours`] and [`Claims`]: it reads and writes packets and counts. For interfaces that the kernel owns it is
//! left out of the pipeline, and the host learns from netlink.

use core::net::{Ipv4Addr, SocketAddrV4};

use zerocopy::IntoBytes;

use super::answer::{LINK_LEN_MAX, Link, build, link_header};
use super::egress::{Checksum, ConnectError, SendError, SendToError, UdpFlow, UdpOptions};
use super::node::{Cx, Node, discard};
use super::outline::Outline;
use crate::counters::{Counter, Drops, Gauge, Scope, Unit};
use crate::device::{Offload, TxQueue};
use crate::mem::{Mbuf, Pool};
use crate::proto::{
    ArpSend, ClaimAction, ClaimConfig, ClaimError, ClaimHeard, Claims, HashSeed, Heard, Ipv4Prefix, NeighbourAction,
    NeighbourConfig, NeighbourDrop, NeighbourWish, Neighbours, NotLearned, Resolution,
};
use crate::wire::{
    ArpError, ArpFields, ArpOperation, ArpPacket, EtherType, EthernetFields, EthernetHeader, Ipv4Fields, Ipv4Header,
    MacAddr, Protocol, UdpFields, UdpHeader, VlanTag, VlanTags, arp, ethernet, ipv4, udp,
};

crate::drop_reasons! {
    /// Why the ARP node drops a packet.
    pub enum ArpDrop {
        /// Fewer than 28 bytes.
        TooShort => "too_short",
        /// Not about IPv4 over Ethernet, or neither request nor reply.
        OtherKind => "other_kind",
        /// The sender's MAC address is a group or zero.
        SenderMac => "sender_mac",
        /// Between others.
        NotForUs => "not_for_us",
        /// An answer that nobody asked for.
        Unsolicited => "unsolicited",
        /// The sender's address cannot be a neighbour's.
        NotANeighbour => "not_a_neighbour",
        /// Our own frame, given back by the network.
        OwnStation => "own_station",
        /// Another MAC address answered a moment ago.
        TooSoon => "too_soon",
        /// No room for another neighbour.
        NoRoom => "no_room",
        /// Somebody else sends from an address of ours.
        AddressConflict => "address_conflict",
        /// A question that was not answered: no buffer is free.
        PoolEmpty => "pool_empty",
        /// A question that was not answered: the device's ring is full.
        RingFull => "ring_full",
    }
}

crate::drop_reasons! {
    /// Why a datagram that waited for its neighbour was not sent.
    pub enum WaitingDrop {
        /// The neighbour did not answer.
        Unreachable => "unreachable",
        /// Newer ones wait for the same neighbour, as many as may.
        Superseded => "superseded",
        /// No room for another datagram or neighbour.
        NoRoom => "no_room",
        /// The neighbour was forgotten.
        Forgotten => "forgotten",
        /// The device's ring was full when the answer came.
        RingFull => "ring_full",
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

impl From<NotLearned> for ArpDrop {
    fn from(reason: NotLearned) -> Self {
        match reason {
            NotLearned::NotForUs => Self::NotForUs,
            NotLearned::Unsolicited => Self::Unsolicited,
            NotLearned::NotANeighbour => Self::NotANeighbour,
            NotLearned::OwnStation => Self::OwnStation,
            NotLearned::TooSoon => Self::TooSoon,
            NotLearned::NoRoom => Self::NoRoom,
        }
    }
}

impl From<NeighbourDrop> for WaitingDrop {
    fn from(reason: NeighbourDrop) -> Self {
        match reason {
            NeighbourDrop::Unreachable => Self::Unreachable,
            NeighbourDrop::Superseded => Self::Superseded,
            NeighbourDrop::NoRoom => Self::NoRoom,
            NeighbourDrop::Forgotten => Self::Forgotten,
        }
    }
}

/// What the ARP node holds. The pool needs `neighbours.pending_max` buffers more.
#[derive(Clone, Copy, Debug)]
pub struct ArpConfig {
    /// The others.
    pub neighbours: NeighbourConfig,
    /// Our own addresses, as many as the host may have.
    pub claims_max: usize,
    /// The secret of the table and of the random waits.
    pub seed: HashSeed,
}

impl ArpConfig {
    /// The defaults of [`NeighbourConfig`], and room for 16 own addresses.
    pub fn new(seed: HashSeed) -> Self {
        Self { neighbours: NeighbourConfig::default(), claims_max: 16, seed }
    }
}

/// What became of a datagram that was to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// It was posted.
    Posted,
    /// It waits until its neighbour answers. What becomes of it then is counted as `egress/waiting/…`.
    Waiting,
}

/// Takes ARP packets; keeps datagrams that wait.
pub struct Arp {
    neighbours: Neighbours<Mbuf>,
    claims: Claims,
    /// Identification of the next datagram that waits. It counts down while that of [`Egress`](super::Egress) counts up,
    /// so that the two stay apart for as long as 16 bits allow (RFC 6864 4.3).
    identification: u16,
    waiting: Gauge,
    wire: Wire,
    packets: Counter,
    learned: Counter,
    answered: Counter,
    conflicts: Counter,
    drops: Drops<ArpDrop>,
}

/// What leaves: counted apart from what arrives.
struct Wire {
    questions: Counter,
    /// Questions and defences that found no buffer or no slot; the machines ask again.
    unsent: Counter,
    resolved: Counter,
    drops: Drops<WaitingDrop>,
}

impl Arp {
    /// The node, with counters in the scopes `arp` and `egress/waiting` below `scope`. Takes all memory.
    pub fn new(config: ArpConfig, scope: &Scope) -> Self {
        let waiting = scope.scope("egress").scope("waiting");
        let scope = scope.scope("arp");
        Self {
            neighbours: Neighbours::new(config.neighbours, config.seed),
            claims: Claims::new(ClaimConfig { claims_max: config.claims_max, seed: config.seed }),
            identification: u16::MAX,
            waiting: waiting.gauge("held", Unit::Datagrams),
            wire: Wire {
                questions: scope.counter("questions", Unit::Packets),
                unsent: scope.counter("unsent", Unit::Packets),
                resolved: waiting.counter("resolved", Unit::Datagrams),
                drops: waiting.drops(),
            },
            packets: scope.counter("packets", Unit::Packets),
            learned: scope.counter("learned", Unit::Packets),
            answered: scope.counter("answered", Unit::Packets),
            conflicts: scope.counter("conflicts", Unit::Events),
            drops: scope.drops(),
        }
    }

    /// Sends a datagram also where its neighbour is not known: then it waits, and the neighbour is asked for. One that
    /// waits has to fit one frame, and its checksum is computed here also where the NIC could.
    pub fn send_to(
        &mut self,
        local: SocketAddrV4,
        remote: SocketAddrV4,
        options: &UdpOptions,
        payload: &[u8],
        cx: &mut Cx<'_>,
    ) -> Result<Sent, SendToError> {
        match UdpFlow::connect(local, remote, options, cx) {
            Ok(flow) => flow.send(payload, cx).map(|()| Sent::Posted).map_err(SendToError::Send),
            Err(ConnectError::NeighbourMissing(_)) => self.send_later(local, remote, options, payload, cx),
            Err(error) => Err(SendToError::Connect(error)),
        }
    }

    /// Sends a whole frame, whose destination is still to be written, as soon as the neighbour is known. Panics where
    /// the frame's front is shared with somebody.
    pub fn send_frame(&mut self, frame: Mbuf, wish: NeighbourWish, cx: &mut Cx<'_>) {
        assert!(frame.is_writable() && frame.bytes().len() >= ethernet::HEADER_LEN, "a frame with a header of its own");
        let Self { neighbours, wire, .. } = self;
        let (pool, tx, tags) = (cx.pool, &mut *cx.tx, cx.host.vlan());
        neighbours.queue(wish, frame, cx.host, cx.now, &mut |action| wire.perform(action, &tags, pool, tx));
        self.waiting.set(self.neighbours.pending() as u64);
    }

    /// Wants a neighbour to be known from now on: gateways, at start. False where there is no room.
    pub fn keep(&mut self, wish: NeighbourWish, cx: &mut Cx<'_>) -> bool {
        let Self { neighbours, wire, .. } = self;
        let (pool, tx, tags) = (cx.pool, &mut *cx.tx, cx.host.vlan());
        neighbours.keep(wish, cx.host, cx.now, &mut |action| wire.perform(action, &tags, pool, tx))
    }

    /// Begins to ask whether an address is free. It is the host's as soon as nobody has objected, which takes 4 to 7
    /// seconds.
    pub fn claim(&mut self, prefix: Ipv4Prefix, cx: &Cx<'_>) -> Result<(), ClaimError> {
        self.claims.claim(prefix, cx.host, cx.now)
    }

    /// Tells the others about an address that the host has: after it was configured, and after the link came up or the
    /// MAC address changed. False where the host does not have it or there is no room.
    pub fn announce(&mut self, address: Ipv4Addr, cx: &Cx<'_>) -> bool {
        self.claims.announce(address, cx.host, cx.now)
    }

    fn send_later(
        &mut self,
        local: SocketAddrV4,
        remote: SocketAddrV4,
        options: &UdpOptions,
        payload: &[u8],
        cx: &mut Cx<'_>,
    ) -> Result<Sent, SendToError> {
        let Resolution::NeighbourMissing { next_hop, source } = cx.host.resolve(*remote.ip(), cx.now) else {
            return Err(SendToError::Connect(ConnectError::NoRoute(*remote.ip())));
        };
        let mtu = cx.host.mtu();
        if payload.len() + udp::HEADER_LEN + ipv4::HEADER_LEN > mtu {
            return Err(SendToError::Send(SendError::DontFragment { mtu }));
        }
        let address = if local.ip().is_unspecified() { source } else { *local.ip() };
        let local = SocketAddrV4::new(address, local.port());
        let frame =
            self.datagram(local, remote, options, payload, cx).ok_or(SendToError::Send(SendError::PoolEmpty))?;
        self.send_frame(frame, NeighbourWish { next_hop, source }, cx);
        Ok(Sent::Waiting)
    }

    /// A datagram as a frame without a destination.
    fn datagram(
        &mut self,
        local: SocketAddrV4,
        remote: SocketAddrV4,
        options: &UdpOptions,
        payload: &[u8],
        cx: &Cx<'_>,
    ) -> Option<Mbuf> {
        let tags = match options.vlan {
            Some(tci) => VlanTags::single(VlanTag::from_tci(EtherType::VLAN, tci)),
            None => cx.host.vlan(),
        };
        let (link, link_len) = link_header(MacAddr::ZERO, EtherType::IPV4, &tags, cx.host);
        self.identification = self.identification.wrapping_sub(1);
        let fields = Ipv4Fields {
            source: *local.ip(),
            destination: *remote.ip(),
            protocol: Protocol::UDP,
            ttl: options.ttl.unwrap_or(64),
            tos: options.tos,
            identification: if options.dont_fragment { 0 } else { self.identification },
            dont_fragment: options.dont_fragment,
            payload_len: udp::HEADER_LEN + payload.len(),
        };
        let ports =
            UdpFields { source_port: local.port(), destination_port: remote.port(), payload_len: payload.len() };
        let (ipv4, mut udp) = (Ipv4Header::new(&fields).ok()?, UdpHeader::new(&ports).ok()?);
        if options.checksum != Checksum::Zero {
            udp.fill_checksum(*local.ip(), *remote.ip(), payload);
        }
        build(&[&link[..link_len], ipv4.as_bytes(), udp.as_bytes(), payload], cx)
    }

    /// Shows a packet to both machines. Ours speaks first: what comes from our own address teaches nothing else.
    fn hear(&mut self, packet: &ArpPacket, cx: &mut Cx<'_>) -> Result<(), ArpDrop> {
        let Self { neighbours, claims, wire, .. } = self;
        let (pool, tx, tags) = (cx.pool, &mut *cx.tx, cx.host.vlan());
        let claim = claims.hear(packet, cx.host, cx.now, &mut |action| wire.perform_claim(action, &tags, pool, tx));
        if let ClaimHeard::Conflict { .. } = claim {
            self.conflicts.inc();
            return Err(ArpDrop::AddressConflict);
        }
        let heard = neighbours.hear(packet, cx.host, cx.now, &mut |action| wire.perform(action, &tags, pool, tx));
        self.waiting.set(neighbours.pending() as u64);
        match heard {
            Heard::Ignored(reason) => Err(reason.into()),
            Heard::Answered | Heard::Confirmed | Heard::Moved | Heard::Stranger => {
                self.learned.inc();
                Ok(())
            }
        }
    }

    /// Tells who asks for an address of ours (RFC 826), in the VLAN that the question came from.
    fn answer(&mut self, packet: &ArpPacket, mbuf: &Mbuf, cx: &mut Cx<'_>) -> Result<(), ArpDrop> {
        let reply = ArpPacket::new(&ArpFields {
            operation: ArpOperation::Reply,
            sender_mac: cx.host.mac(),
            sender_ip: packet.target_ip(),
            target_mac: packet.sender_mac(),
            target_ip: packet.sender_ip(),
        });
        let link = Link::behind(mbuf, 0, cx.host).ok_or(ArpDrop::TooShort)?;
        let (header, header_len) = link.header(packet.sender_mac(), EtherType::ARP, cx.host);
        let frame = build(&[&header[..header_len], reply.as_bytes()], cx).ok_or(ArpDrop::PoolEmpty)?;
        if let Err(frame) = cx.tx.post(frame, Offload::default()) {
            frame.free();
            return Err(ArpDrop::RingFull);
        }
        self.answered.inc();
        Ok(())
    }

    /// What a packet says, and what it asks.
    fn take(&mut self, mbuf: &Mbuf, cx: &mut Cx<'_>) -> Result<(), ArpDrop> {
        let (packet, _) = ArpPacket::parse(mbuf.bytes())?;
        let heard = self.hear(packet, cx);
        let asks_for_us = packet.operation() == ArpOperation::Request && cx.host.is_own(packet.target_ip());
        match heard {
            Err(reason @ (ArpDrop::AddressConflict | ArpDrop::OwnStation)) => Err(reason),
            // Also who is not learned gets an answer: a probe, or a stranger too many.
            _ if asks_for_us => self.answer(packet, mbuf, cx),
            heard => heard,
        }
    }
}

impl Wire {
    fn perform(&mut self, action: NeighbourAction<Mbuf>, tags: &VlanTags, pool: &Pool, tx: &mut dyn TxQueue) {
        match action {
            NeighbourAction::Send(send) => self.ask(send, tags, pool, tx),
            NeighbourAction::Released { handle, reason } => discard(handle, &mut self.drops, reason.into()),
            NeighbourAction::Resolved { handle: mut frame, mac } => {
                frame.bytes_mut()[..6].copy_from_slice(&mac.0);
                match tx.post(frame, Offload::default()) {
                    Ok(()) => self.resolved.inc(),
                    Err(frame) => discard(frame, &mut self.drops, WaitingDrop::RingFull),
                }
            }
        }
    }

    fn perform_claim(&mut self, action: ClaimAction, tags: &VlanTags, pool: &Pool, tx: &mut dyn TxQueue) {
        if let ClaimAction::Send(send) = action {
            self.ask(send, tags, pool, tx);
        }
    }

    fn ask(&mut self, send: ArpSend, tags: &VlanTags, pool: &Pool, tx: &mut dyn TxQueue) {
        let fields = EthernetFields { dst: send.to, src: send.packet.sender_mac, ethertype: EtherType::ARP };
        let header = EthernetHeader::new(fields);
        let mut bytes = [0; LINK_LEN_MAX + arp::PACKET_LEN];
        let len = header.emit_tagged(tags, &mut bytes).expect("the array holds two tags");
        let packet_len = ArpPacket::new(&send.packet).emit(&mut bytes[len..]).expect("and a packet");
        let posted = pool.alloc_copy(&bytes[..len + packet_len]).map(|frame| tx.post(frame, Offload::default()));
        match posted {
            Some(Ok(())) => self.questions.inc(),
            Some(Err(frame)) => {
                frame.free();
                self.unsent.inc();
            }
            None => self.unsent.inc(),
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
        let Self { neighbours, claims, wire, .. } = self;
        let (pool, tx, tags) = (cx.pool, &mut *cx.tx, cx.host.vlan());
        claims.tick(cx.host, cx.now, &mut |action| wire.perform_claim(action, &tags, pool, tx));
        let before = neighbours.pending();
        neighbours.tick(cx.host, cx.now, &mut |action| wire.perform(action, &tags, pool, tx));
        if neighbours.pending() != before {
            self.waiting.set(neighbours.pending() as u64);
        }
    }

    fn kept(&self) -> usize {
        self.neighbours.pending()
    }

    fn outline(&self, outline: &mut Outline) {
        let says = format!("{} neighbours, answers for the host's addresses", self.neighbours.len());
        outline.node("arp", says, |_| ());
    }
}
