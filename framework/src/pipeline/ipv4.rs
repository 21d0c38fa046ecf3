//! The IPv4 node checks that a packet is valid, for us and complete, and hands it to the node of
//! its protocol. A packet enters at the IPv4 header. It leaves as the payload alone, without
//! Ethernet's padding; the header stays readable before the data. Fragments wait in the reassembly
//! machine until the datagram is complete.

use core::net::Ipv4Addr;

use arrayvec::ArrayVec;
use zerocopy::FromBytes;

use super::icmp::error::send_icmp_error;
use super::node::{Cx, Node, discard};
use super::outline::NodeTree;
use crate::counters::{Counter, Drops, Gauge, Scope, Unit};
use crate::mem::{ChecksumStatus, Mbuf};
use crate::proto::reassembly::REASSEMBLY_TIMEOUT;
use crate::proto::{
    Destination, FlowErrorKind, Fragment, FragmentKey, HashSeed, Outcome, Reassembly, ReassemblyCapacity,
    ReassemblyDrop, Released,
};
use crate::time::{Duration, Instant};
use crate::wire::icmpv4::{TimeExceeded, Unreachable};
use crate::wire::{Ipv4Error, Ipv4Header, Ipv4Packet, Protocol, ipv4};

crate::drop_reasons! {
    /// Why the IPv4 node drops a packet.
    pub(crate) enum Ipv4Drop {
        /// Fewer than 20 bytes.
        TooShort => "too_short",
        /// The version is not 4.
        BadVersion => "bad_version",
        /// The header length states fewer than 20 bytes.
        BadHeaderLength => "bad_header_length",
        /// The total length ends inside the header.
        BadTotalLength => "bad_total_length",
        /// The total length states more bytes than the frame carries.
        Truncated => "truncated",
        /// The header's checksum is wrong.
        BadChecksum => "bad_checksum",
        /// An option's length is wrong.
        BadOption => "bad_option",
        /// The options choose the route (RFC 791 3.1): refused, as hosts do since RFC 7126 4.3.
        SourceRouted => "source_routed",
        /// The source is a group, the broadcast address or, except in replays, loopback (RFC 1122
        /// 3.2.1.3).
        MartianSource => "martian_source",
        /// A unicast packet to an address that is not ours.
        OtherHost => "other_host",
        /// A protocol that no node takes.
        UnknownProtocol => "unknown_protocol",
        /// A fragment that overlaps another or disagrees about the datagram's end: the whole
        /// datagram is dropped (RFC 5722 in spirit).
        FragmentOverlap => "fragment_overlap",
        /// A duplicate of a fragment.
        FragmentDuplicate => "fragment_duplicate",
        /// Fragments of a datagram that newer ones displaced, or that found no room.
        FragmentNoRoom => "fragment_no_room",
        /// Fragments of a datagram whose rest did not arrive in time.
        FragmentTimeout => "fragment_timeout",
        /// A fragment without payload, not at a multiple of 8 bytes, or past the end of the largest
        /// datagram.
        FragmentMalformed => "fragment_malformed",
    }
}

impl From<Ipv4Error> for Ipv4Drop {
    fn from(error: Ipv4Error) -> Self {
        match error {
            Ipv4Error::Short => Self::TooShort,
            Ipv4Error::Version => Self::BadVersion,
            Ipv4Error::HeaderLength => Self::BadHeaderLength,
            Ipv4Error::TotalLength => Self::BadTotalLength,
            Ipv4Error::Truncated => Self::Truncated,
            Ipv4Error::Checksum => Self::BadChecksum,
            Ipv4Error::Option => Self::BadOption,
        }
    }
}

impl From<ReassemblyDrop> for Ipv4Drop {
    fn from(reason: ReassemblyDrop) -> Self {
        match reason {
            ReassemblyDrop::Overlap | ReassemblyDrop::LengthConflict => Self::FragmentOverlap,
            ReassemblyDrop::Duplicate => Self::FragmentDuplicate,
            ReassemblyDrop::TooManyFragments | ReassemblyDrop::Evicted => Self::FragmentNoRoom,
            ReassemblyDrop::Timeout => Self::FragmentTimeout,
            ReassemblyDrop::Oversize | ReassemblyDrop::ZeroLength | ReassemblyDrop::NotMultipleOf8 => {
                Self::FragmentMalformed
            }
        }
    }
}

/// The unicast destinations that a pipeline accepts. Groups and broadcasts always pass, because
/// later tables check them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AcceptedDestinations {
    /// Every destination: replays of other people's captures.
    Any,
    /// The host's own addresses.
    LocalAddresses,
}

/// The configuration of the IPv4 node.
#[derive(Clone, Copy, Debug)]
pub struct Ipv4Config {
    /// The unicast destinations that are accepted. By default
    /// [`AcceptedDestinations::LocalAddresses`]; with [`AcceptedDestinations::Any`] on a wire we
    /// answer for other hosts.
    pub accept: AcceptedDestinations,
    /// The most fragments that wait, and the most datagrams they belong to. The pool needs a buffer
    /// more for each. With too few, fragments are dropped as `ipv4/drop/fragment_no_room`; with
    /// more, a flood of fragments holds more of the pool. By default 64 datagrams, 256 fragments,
    /// and 128 of one datagram.
    pub reassembly: ReassemblyCapacity,
    /// Time that fragments wait for the rest, from the first on. With less, datagrams behind a long
    /// queue are lost as `ipv4/drop/fragment_timeout`; with more, a flood holds more of the pool,
    /// and identifications of 16 bits repeat (RFC 4963). By default 30 s, as in Linux.
    pub reassembly_timeout: Duration,
    /// The secret that seeds the reassembly table's hash. It has no default: with a predictable
    /// one, an attacker can fill a bucket of the table.
    /// [`random_seed`](crate::worker::random_seed) draws one.
    pub seed: HashSeed,
}

impl Ipv4Config {
    /// The host's own addresses, and room for 64 datagrams of 256 fragments together: four of the
    /// largest that UDP sends over an MTU of 1500.
    pub const fn new(seed: HashSeed) -> Self {
        Self {
            accept: AcceptedDestinations::LocalAddresses,
            reassembly: ReassemblyCapacity { datagrams: 64, pieces: 256, pieces_per_datagram: PIECES_MAX },
            reassembly_timeout: REASSEMBLY_TIMEOUT,
            seed,
        }
    }
}

/// Fragments that one datagram may have: the largest over an MTU of 576 (RFC 791 3.2) comes in 119.
const PIECES_MAX: usize = 128;

/// Checks the IPv4 header and hands UDP, ICMP, IGMP and TCP on.
pub struct Ipv4<U, C, G, T> {
    accept: AcceptedDestinations,
    udp: U,
    icmp: C,
    igmp: G,
    tcp: T,
    reassembly: Reassembly<Mbuf>,
    packets: Counter,
    /// Datagrams that were reassembled.
    reassembled: Counter,
    /// Fragments merged into another's datagram: the packets that go on are fewer by this number.
    fragments_merged: Counter,
    /// Fragments that wait.
    fragments_held: Gauge,
    drops: Drops<Ipv4Drop>,
}

/// The nodes behind IPv4.
#[derive(Debug)]
pub struct Ipv4Successors<U, C, G, T> {
    /// Takes UDP datagrams.
    pub udp: U,
    /// Takes ICMP messages.
    pub icmp: C,
    /// Takes IGMP messages.
    pub igmp: G,
    /// Takes TCP segments.
    pub tcp: T,
}

/// The fields of an accepted packet's header.
#[derive(Clone, Copy)]
struct HeaderFields {
    protocol: Protocol,
    is_fragment: bool,
    header_len: usize,
    payload_len: usize,
}

impl HeaderFields {
    /// Removes the header and the padding.
    #[inline]
    fn strip(self, mbuf: &mut Mbuf) {
        mbuf.set_l3_len(self.header_len);
        mbuf.narrow(self.header_len, self.payload_len);
    }
}

impl<U, C, G, T> Ipv4<U, C, G, T> {
    /// The node in front of `next`, with counters in the scope `ipv4` below `scope`.
    pub fn new(config: Ipv4Config, next: Ipv4Successors<U, C, G, T>, scope: &Scope) -> Self {
        let scope = scope.scope("ipv4");
        let mut capacity = config.reassembly;
        capacity.pieces_per_datagram = capacity.pieces_per_datagram.min(PIECES_MAX);
        Self {
            accept: config.accept,
            udp: next.udp,
            icmp: next.icmp,
            igmp: next.igmp,
            tcp: next.tcp,
            reassembly: Reassembly::new(capacity, config.reassembly_timeout, config.seed),
            packets: scope.counter("packets", Unit::Packets),
            reassembled: scope.counter("reassembled", Unit::Datagrams),
            fragments_merged: scope.counter("fragments_merged", Unit::Packets),
            fragments_held: scope.gauge("fragments_held", Unit::Packets),
            drops: scope.drops(),
        }
    }

    /// Checks the header.
    #[inline(always)]
    fn check(&self, mbuf: &Mbuf, cx: &Cx<'_>) -> Result<HeaderFields, Ipv4Drop> {
        let packet = match mbuf.is_linear() {
            true => Ipv4Packet::parse(mbuf.bytes())?,
            false => parse_chain(mbuf)?,
        };
        match mbuf.ip_checksum() {
            ChecksumStatus::Good => (),
            ChecksumStatus::Bad => return Err(Ipv4Drop::BadChecksum),
            ChecksumStatus::Unknown => packet.verify_checksum()?,
        }
        if !packet.options.is_empty() {
            check_options(&packet)?;
        }
        self.check_addresses(packet.header, cx)?;
        Ok(HeaderFields {
            protocol: packet.header.protocol(),
            is_fragment: packet.header.is_fragment(),
            header_len: packet.header_len(),
            payload_len: match mbuf.is_linear() {
                true => packet.payload.len(),
                // `payload` is the first buffer's part only.
                false => usize::from(packet.header.total_len()) - packet.header_len(),
            },
        })
    }

    #[inline(always)]
    fn check_addresses(&self, header: &Ipv4Header, cx: &Cx<'_>) -> Result<(), Ipv4Drop> {
        let (source, destination) = (header.source(), header.destination());
        if !is_ordinary(source) {
            self.check_source(source)?;
        }
        if !is_group(destination) && !cx.host.is_first_own(destination) {
            self.check_destination(destination, cx)?;
        }
        Ok(())
    }

    /// `cold` rather than `inline(never)`: an `inline(never)` function is taken from the crate that
    /// instantiated it first, and a compiler that does not see its body must reload everything
    /// after the call.
    #[cold]
    fn check_source(&self, source: Ipv4Addr) -> Result<(), Ipv4Drop> {
        // A replay may have been recorded on a loopback interface.
        let is_loopback = self.accept == AcceptedDestinations::LocalAddresses && source.is_loopback();
        if source.is_multicast() || source.is_broadcast() || is_loopback {
            return Err(Ipv4Drop::MartianSource);
        }
        Ok(())
    }

    /// Out of line, by `cold` too: it reads a list, and writes nothing that the compiler would have
    /// to reload.
    #[cold]
    fn check_destination(&self, destination: Ipv4Addr, cx: &Cx<'_>) -> Result<(), Ipv4Drop> {
        if self.accept == AcceptedDestinations::Any || cx.host.classify(destination) != Destination::Other {
            return Ok(());
        }
        Err(Ipv4Drop::OtherHost)
    }

    /// Keeps a fragment; returns the whole datagram where it was the last missing one.
    fn reassemble(&mut self, fragment: Fragment<Mbuf>, cx: &Cx<'_>) -> Option<(Protocol, Mbuf)> {
        let protocol = Protocol(fragment.key.protocol);
        let drops = &mut self.drops;
        let mut release = |released: Released<Mbuf>| discard(released.handle, drops, released.reason.into());
        let whole = match self.reassembly.push(fragment, cx.now, &mut release) {
            Outcome::Kept | Outcome::Dropped(_) => None,
            Outcome::Complete(pieces) => Some(pieces.collect::<ArrayVec<Mbuf, PIECES_MAX>>()),
        };
        self.fragments_held.set(self.reassembly.held() as u64);
        let mut pieces = whole?;
        self.reassembled.inc();
        self.fragments_merged.add(pieces.len() as u64 - 1);
        // The chain is built from the back, so that each link is set once.
        let mut datagram = pieces.pop()?;
        while let Some(mut front) = pieces.pop() {
            front.attach(datagram);
            datagram = front;
        }
        // The NIC's verdict was about the first fragment.
        datagram.set_l4_checksum(ChecksumStatus::Unknown);
        Some((protocol, datagram))
    }
}

impl<U, C, G, T> Ipv4<U, C, G, T> {
    /// The slow path, for packets with options, fragments or errors: checks the packet again, with
    /// every case.
    #[inline(never)]
    fn push_other<A>(&mut self, mut mbuf: Mbuf, app: &mut A, cx: &mut Cx<'_>)
    where
        U: Node<A>,
        C: Node<A>,
        G: Node<A>,
        T: Node<A>,
    {
        match self.check(&mbuf, cx) {
            Ok(passed) if passed.is_fragment => self.push_fragment(passed, mbuf, app, cx),
            Ok(passed) => {
                passed.strip(&mut mbuf);
                self.hand_on(passed.protocol, mbuf, app, cx);
            }
            Err(reason) => discard(mbuf, &mut self.drops, reason),
        }
    }

    #[inline(never)]
    fn push_fragment<A>(&mut self, passed: HeaderFields, mut mbuf: Mbuf, app: &mut A, cx: &mut Cx<'_>)
    where
        U: Node<A>,
        C: Node<A>,
        G: Node<A>,
        T: Node<A>,
    {
        let header = match Ipv4Header::ref_from_prefix(mbuf.bytes()) {
            Ok((header, _)) => *header,
            Err(_) => return discard(mbuf, &mut self.drops, Ipv4Drop::TooShort),
        };
        passed.strip(&mut mbuf);
        if let Some((protocol, datagram)) = self.reassemble(fragment(&header, mbuf), cx) {
            self.hand_on(protocol, datagram, app, cx);
        }
    }

    /// Tests for UDP first: one compare instead of a jump through a table.
    #[inline(always)]
    fn hand_on<A>(&mut self, protocol: Protocol, mbuf: Mbuf, app: &mut A, cx: &mut Cx<'_>)
    where
        U: Node<A>,
        C: Node<A>,
        G: Node<A>,
        T: Node<A>,
    {
        match protocol {
            Protocol::UDP => self.udp.push(mbuf, app, cx),
            other => self.hand_on_other(other, mbuf, app, cx),
        }
    }

    #[inline(never)]
    fn hand_on_other<A>(&mut self, protocol: Protocol, mbuf: Mbuf, app: &mut A, cx: &mut Cx<'_>)
    where
        C: Node<A>,
        G: Node<A>,
        T: Node<A>,
    {
        match protocol {
            Protocol::TCP => self.tcp.push(mbuf, app, cx),
            Protocol::ICMP => self.icmp.push(mbuf, app, cx),
            Protocol::IGMP => self.igmp.push(mbuf, app, cx),
            _ => {
                send_icmp_error(FlowErrorKind::Unreachable(Unreachable::Protocol), &mbuf, mbuf.l3_len(), cx);
                discard(mbuf, &mut self.drops, Ipv4Drop::UnknownProtocol);
            }
        }
    }
}

impl<A, U: Node<A>, C: Node<A>, G: Node<A>, T: Node<A>> Node<A> for Ipv4<U, C, G, T> {
    /// Nearly every packet has a valid header without options, and is whole and in one buffer. This
    /// case is tested first and has its own copy of the checks, in which the compiler knows the
    /// version and the header's length.
    #[inline(always)]
    fn push(&mut self, mut mbuf: Mbuf, app: &mut A, cx: &mut Cx<'_>) {
        self.packets.inc();
        if mbuf.is_plain()
            && has_no_options(mbuf.bytes())
            && let Ok(passed) = self.check(&mbuf, cx)
            && !passed.is_fragment
        {
            passed.strip(&mut mbuf);
            return self.hand_on(passed.protocol, mbuf, app, cx);
        }
        self.push_other(mbuf, app, cx);
    }

    #[inline]
    fn tick(&mut self, app: &mut A, cx: &mut Cx<'_>) {
        let (drops, now) = (&mut self.drops, cx.now);
        let mut release = |released: Released<Mbuf>| {
            if released.reason == ReassemblyDrop::Timeout {
                send_reassembly_timeout(&released.handle, cx);
            }
            discard(released.handle, drops, released.reason.into());
        };
        if self.reassembly.tick(now, &mut release) > 0 {
            self.fragments_held.set(self.reassembly.held() as u64);
        }
        self.udp.tick(app, cx);
        self.icmp.tick(app, cx);
        self.igmp.tick(app, cx);
        self.tcp.tick(app, cx);
    }

    fn next_deadline(&self, cx: &Cx<'_>) -> Instant {
        let successors = [
            self.udp.next_deadline(cx),
            self.icmp.next_deadline(cx),
            self.igmp.next_deadline(cx),
            self.tcp.next_deadline(cx),
        ];
        let reassembly = self.reassembly.deadline().unwrap_or(Instant::MAX);
        successors.into_iter().fold(reassembly, Instant::min)
    }

    fn kept(&self) -> usize {
        self.reassembly.held() + self.udp.kept() + self.icmp.kept() + self.igmp.kept() + self.tcp.kept()
    }

    fn outline(&self, outline: &mut NodeTree) {
        outline.node("ipv4", format!("destinations {:?}, fragments reassembled", self.accept), |outline| {
            self.udp.outline(outline);
            self.icmp.outline(outline);
            self.igmp.outline(outline);
            self.tcp.outline(outline);
        });
    }
}

/// Reports the timeout to the sender of a fragment; only for the first one (RFC 1122 3.3.2).
fn send_reassembly_timeout(fragment: &Mbuf, cx: &mut Cx<'_>) {
    send_icmp_error(FlowErrorKind::TimeExceeded(TimeExceeded::Reassembly), fragment, fragment.l3_len(), cx);
}

/// Whether `bytes` begin with a whole version 4 header without options.
#[inline(always)]
fn has_no_options(bytes: &[u8]) -> bool {
    const VERSION_4_NO_OPTIONS: u8 = 0x45;
    bytes.len() >= ipv4::HEADER_LEN && bytes[0] == VERSION_4_NO_OPTIONS
}

/// Parses a packet over several buffers, of which the first holds the header. `payload` shows the
/// first buffer's part only.
#[cold]
fn parse_chain(mbuf: &Mbuf) -> Result<Ipv4Packet<'_>, Ipv4Drop> {
    let packet = Ipv4Packet::parse_quoted(mbuf.bytes())?;
    if usize::from(packet.header.total_len()) > mbuf.len() {
        return Err(Ipv4Drop::Truncated);
    }
    Ok(packet)
}

/// Options are skipped, but malformed ones and source routes are refused.
#[cold]
fn check_options(packet: &Ipv4Packet<'_>) -> Result<(), Ipv4Drop> {
    const LOOSE_SOURCE_ROUTE: u8 = 131;
    const STRICT_SOURCE_ROUTE: u8 = 137;
    for option in packet.options() {
        if matches!(option?.kind, LOOSE_SOURCE_ROUTE | STRICT_SOURCE_ROUTE) {
            return Err(Ipv4Drop::SourceRouted);
        }
    }
    Ok(())
}

/// The reassembly machine's view of a fragment. The VLAN and the interface are its scope: fragments
/// of two networks are never mixed.
fn fragment(header: &Ipv4Header, payload: Mbuf) -> Fragment<Mbuf> {
    let vlan = payload.vlan().map_or(u16::MAX, |tci| tci & 0x0fff);
    let key = FragmentKey {
        source: header.source(),
        destination: header.destination(),
        protocol: header.protocol().0,
        identification: header.identification(),
        scope: u32::from(payload.interface()) << 16 | u32::from(vlan),
    };
    // Payload and offset are at most 65,535 and 65,528 by their 16-bit fields.
    let len = payload.len() as u16;
    Fragment { key, offset: header.fragment_offset(), len, more: header.more_fragments(), handle: payload }
}

/// The first byte shows that the address is no loopback, group, reserved or broadcast address: the
/// case for nearly every source.
#[inline]
fn is_ordinary(address: Ipv4Addr) -> bool {
    let [first, ..] = address.octets();
    first != 127 && first < 224
}

/// As [`Ipv4Addr::is_multicast`], on the word that is loaded already.
#[inline]
fn is_group(address: Ipv4Addr) -> bool {
    address.to_bits() >> 28 == 0b1110
}
