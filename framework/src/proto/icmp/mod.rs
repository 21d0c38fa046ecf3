//! ICMP errors in both directions (RFC 1122 3.2.2, RFC 5927): which ones we may send, and which
//! received ones are about a flow of ours.
//!
//! Offending packets and received messages enter; permissions, and errors of flows, leave. The node
//! writes messages and delivers errors; [`path_mtu`](super::path_mtu) keeps the MTU that an error
//! reports.

use core::fmt;
use core::net::{Ipv4Addr, SocketAddrV4};

use super::demux::{DemuxMatch, Flow};
use super::hash::HashSeed;
use super::host::{Destination, Host};
use super::rate_limit::{PeerShares, TokenBucket};
use super::sockets::UdpSockets;
use super::tcp::Seq;
use crate::time::Instant;
use crate::wire::icmpv4::{QuotedFlow, TimeExceeded, Unreachable};
use crate::wire::{Icmpv4Message, Ipv4Header, Ipv4Packet, MacAddr, Protocol, ipv4};

/// A packet that we refuse and may send an ICMP error about.
#[derive(Clone, Copy, Debug)]
pub struct OffendingPacket<'a> {
    /// The quoted packet from the IPv4 header on, as many bytes as are available.
    pub packet: &'a [u8],
    /// The destination MAC address of its frame.
    pub link_destination: MacAddr,
}

/// The addresses of an error about an offending packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorRoute {
    /// Our address that the packet was sent to (RFC 1122 3.2.2).
    pub source: Ipv4Addr,
    /// The sender of the packet.
    pub destination: Ipv4Addr,
}

/// Why no error is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorRefusal {
    /// The packet's header is incomplete.
    Malformed,
    /// The packet was sent to a group or broadcast address, in IP or Ethernet: all receivers would
    /// answer at once.
    NotUnicast,
    /// It was not sent to an address of ours.
    NotOurs,
    /// It is a later fragment; the error is about the first one.
    LaterFragment,
    /// Its source is not a single host.
    NoSource,
    /// It is an ICMP error itself, or of a type that might be one.
    AboutError,
    /// The rate limit is reached.
    RateLimited,
}

impl ErrorRefusal {
    /// The reason in fixed words.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Malformed => "the packet's header is not whole",
            Self::NotUnicast => "the packet was sent to many",
            Self::NotOurs => "the packet was not sent to us",
            Self::LaterFragment => "the packet is a later fragment",
            Self::NoSource => "the packet's source is no single host",
            Self::AboutError => "the packet is an error itself",
            Self::RateLimited => "too many errors were sent lately",
        }
    }
}

impl fmt::Display for ErrorRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Decides which errors may be sent, and limits their rate.
#[derive(Clone, Copy, Debug)]
pub struct ErrorLimit {
    bucket: TokenBucket,
    secret: Option<Secret>,
}

/// Keeps senders from inferring the traffic of others: see [`PeerShares`].
#[derive(Clone, Copy, Debug)]
struct Secret {
    seed: HashSeed,
    shares: PeerShares,
    asked: u64,
}

/// Errors to one sender in a second. A sender may learn its own number.
const OF_A_SENDER: u32 = 100;

impl Default for ErrorLimit {
    /// 1000 a second and 50 at once, as Linux (`icmp_msgs_per_sec`, `icmp_msgs_burst`).
    fn default() -> Self {
        Self::new(TokenBucket::new(1_000, 50))
    }
}

impl ErrorLimit {
    /// Errors at the rate of `bucket`.
    pub const fn new(bucket: TokenBucket) -> Self {
        Self { bucket, secret: None }
    }

    /// The same limit, but no sender can infer from its own errors how many others got: each sender
    /// has a share, and a decision takes zero to two tokens at random, one on average.
    pub fn keyed(self, seed: HashSeed) -> Self {
        let secret = Secret { seed, shares: PeerShares::new(seed), asked: 0 };
        Self { secret: Some(secret), ..self }
    }

    fn take(&mut self, sender: Ipv4Addr, now: Instant) -> bool {
        let Some(Secret { seed, shares, asked }) = &mut self.secret else { return self.bucket.take(now) };
        *asked += 1;
        !self.bucket.is_empty(now)
            && shares.take(sender.to_bits().into(), OF_A_SENDER, now)
            && self.bucket.take_about_one(now, seed.sip(&[*asked]))
    }

    /// Whether an error about a packet may be sent, and its addresses. All of RFC 1122 3.2.2's
    /// exceptions are checked before the rate, so that only errors that may be sent use it up.
    pub fn permit(
        &mut self,
        offending: OffendingPacket<'_>,
        host: &Host,
        now: Instant,
    ) -> Result<ErrorRoute, ErrorRefusal> {
        let packet = Ipv4Packet::parse_quoted(offending.packet).map_err(|_| ErrorRefusal::Malformed)?;
        let header = packet.header;
        match host.classify(header.destination()) {
            Destination::Local if offending.link_destination.is_multicast() => return Err(ErrorRefusal::NotUnicast),
            Destination::Local => (),
            Destination::Group | Destination::Broadcast => return Err(ErrorRefusal::NotUnicast),
            Destination::Other => return Err(ErrorRefusal::NotOurs),
        }
        if header.fragment_offset() != 0 {
            return Err(ErrorRefusal::LaterFragment);
        }
        if !is_single_host(header.source(), host) {
            return Err(ErrorRefusal::NoSource);
        }
        if header.protocol() == Protocol::ICMP && !is_query(packet.payload) {
            return Err(ErrorRefusal::AboutError);
        }
        if !self.take(header.source(), now) {
            return Err(ErrorRefusal::RateLimited);
        }
        Ok(ErrorRoute { source: header.destination(), destination: header.source() })
    }
}

/// Whether an address may be the source of a single host other than us (RFC 1122 3.2.2: not zero,
/// loopback, broadcast, multicast or class E).
pub fn is_single_host(source: Ipv4Addr, host: &Host) -> bool {
    const CLASS_E: u8 = 240;
    let [first, ..] = source.octets();
    // All of 0/8 means "this network" (RFC 1122 3.2.1.3).
    first != 0 && first < CLASS_E && !source.is_loopback() && host.classify(source) == Destination::Other
}

/// Whether an ICMP message is a query or reply and not about another packet. Unknown types may be
/// errors.
fn is_query(message: &[u8]) -> bool {
    matches!(message.first(), Some(0 | 8 | 9 | 10 | 13..=18))
}

/// An error about a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowError {
    /// Our end and the remote end, in the order of a datagram from the remote end.
    pub flow: Flow,
    /// The kind of error.
    pub kind: FlowErrorKind,
    /// Bytes of the packet that caused it.
    pub packet_len: u16,
    /// The identification of the quoted packet: `PathMtus` takes it as proof that the packet was
    /// ours.
    pub identification: u16,
}

/// The kind of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FlowErrorKind {
    /// The other end was not reached. The MTU of "fragmentation needed" is a claim: see
    /// `PathMtus`.
    Unreachable(Unreachable),
    /// The TTL expired on the path, or reassembly timed out at the remote end.
    TimeExceeded(TimeExceeded),
    /// A host or router rejected a field of our header.
    ParameterProblem {
        /// As in the message.
        code: u8,
        /// Offset of the refused byte.
        pointer: u8,
    },
}

impl FlowErrorKind {
    /// Whether the packet was too large for a link on its path.
    const fn is_too_large(self) -> bool {
        matches!(self, Self::Unreachable(Unreachable::FragmentationNeeded { .. }))
    }

    /// Whether retrying is useless until something is reconfigured: a socket would return
    /// `ECONNREFUSED` or `EMSGSIZE` (RFC 1122 4.2.3.9 for TCP; UDP does the same). The other kinds
    /// may come from a route that is converging. Anyone on the path, and an attacker that guesses
    /// ports, can send either kind, so the error alone is no reason to end a session
    /// (RFC 5927 5.2).
    pub const fn is_hard(self) -> bool {
        matches!(
            self,
            Self::Unreachable(Unreachable::Protocol | Unreachable::Port | Unreachable::FragmentationNeeded { .. })
        )
    }
}

/// Why an ICMP message is not about a flow of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum UnmatchedError {
    /// Redirects, which a host with configured routes must not follow because they let a neighbor
    /// take over a path, source quench, which must be ignored (RFC 6633), and messages that are not
    /// errors.
    IgnoredType,
    /// The quote is too short for ports, or is of a later fragment.
    NoFlow,
    /// The quoted packet is of another protocol than the caller's.
    NotUdp,
    /// We did not send the quoted packet: its source is not an address of ours, or it would not
    /// have left this host.
    NotOurs,
    /// The quoted packet went to a group or broadcast address, and no correct host reports those.
    NotUnicast,
    /// "Fragmentation needed" about a packet that may be fragmented.
    MayFragment,
    /// No socket here has the flow.
    NoSocket,
}

/// The flow that a received message is about. Anyone may send one with a forged quote, so all known
/// fields of the quoted packet must match: our address, a port in use and, for a connected socket,
/// its peer (RFC 5927 3, 4). UDP has no sequence number to check: a path MTU needs further proof
/// (`PathMtus`).
pub fn match_error(
    message: &Icmpv4Message<'_>,
    host: &Host,
    sockets: &UdpSockets,
) -> Result<FlowError, UnmatchedError> {
    let (error, length_and_checksum) = match_quote(message, Protocol::UDP, host)?;
    // A packet that was too large for a link was not a fragment, and fit our own link's MTU.
    let udp_len = usize::from((length_and_checksum >> 16) as u16);
    let is_whole = udp_len + ipv4::HEADER_LEN == usize::from(error.packet_len);
    if error.kind.is_too_large() && (!is_whole || usize::from(error.packet_len) > host.mtu()) {
        return Err(UnmatchedError::NotOurs);
    }
    if let DemuxMatch::None = sockets.lookup(error.flow) {
        return Err(UnmatchedError::NoSocket);
    }
    Ok(error)
}

/// The connection that a received message may be about, and the quoted sequence number, which the
/// caller compares with the bytes in flight (RFC 5927 4.1).
pub fn match_segment(message: &Icmpv4Message<'_>, host: &Host) -> Result<(FlowError, Seq), UnmatchedError> {
    match_quote(message, Protocol::TCP, host).map(|(error, sequence)| (error, Seq(sequence)))
}

/// The error and our quoted packet, with the first four bytes after its ports.
fn match_quote(
    message: &Icmpv4Message<'_>,
    protocol: Protocol,
    host: &Host,
) -> Result<(FlowError, u32), UnmatchedError> {
    let kind = match *message {
        Icmpv4Message::DestinationUnreachable { code, .. } => FlowErrorKind::Unreachable(code),
        Icmpv4Message::TimeExceeded { code, .. } => FlowErrorKind::TimeExceeded(code),
        Icmpv4Message::ParameterProblem { code, pointer, .. } => FlowErrorKind::ParameterProblem { code, pointer },
        _ => return Err(UnmatchedError::IgnoredType),
    };
    let quoted = message.quoted().ok_or(UnmatchedError::IgnoredType)?;
    let header = Ipv4Packet::parse_quoted(quoted).map_err(|_| UnmatchedError::NoFlow)?.header;
    if header.protocol() != protocol {
        return Err(UnmatchedError::NotUdp);
    }
    let quote = QuotedFlow::parse(quoted).ok_or(UnmatchedError::NoFlow)?;
    check_quote(&kind, header, host)?;
    let flow = Flow {
        local: SocketAddrV4::new(quote.source, quote.source_port),
        remote: SocketAddrV4::new(quote.destination, quote.destination_port),
    };
    let (packet_len, identification) = (header.total_len(), header.identification());
    Ok((FlowError { flow, kind, packet_len, identification }, quote.sequence))
}

/// Whether the quoted packet could be ours, and whether a host could send this error about it.
fn check_quote(kind: &FlowErrorKind, quoted: &Ipv4Header, host: &Host) -> Result<(), UnmatchedError> {
    if !host.is_own(quoted.source()) {
        return Err(UnmatchedError::NotOurs);
    }
    match host.classify(quoted.destination()) {
        Destination::Local => return Err(UnmatchedError::NotOurs),
        Destination::Group | Destination::Broadcast => return Err(UnmatchedError::NotUnicast),
        Destination::Other => (),
    }
    if kind.is_too_large() && !quoted.dont_fragment() {
        return Err(UnmatchedError::MayFragment);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
