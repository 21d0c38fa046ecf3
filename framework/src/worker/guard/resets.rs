//! The frames to peers, and their answers. No socket and no clock: frames in, frames out.
//!
//! A peer accepts a RST only at exactly its RCV.NXT (RFC 5961 3.2). RCV.NXT equals our SND.NXT
//! unless a segment was lost on the way, so each round sends
//!
//! - a RST at SND.NXT: accepted, or answered with a challenge ACK;
//! - a probe, an empty segment with an old sequence number: a peer with the connection open
//!   acknowledges its RCV.NXT (RFC 9293 3.10.7.4, first), one without answers with a RST. So we
//!   learn both the missing number and which peers are done.
//!
//! ARP requests of a next hop are answered ([`addresses`](super::addresses)), or no answer could
//! reach us.
//!
//! Any acknowledgment from the peer, for any reason, is answered with a RST whose sequence number
//! is the one it acknowledges.

use core::fmt;
use std::collections::HashMap;

use arrayvec::ArrayVec;
use zerocopy::{FromBytes, IntoBytes};

use super::addresses::Addresses;
use crate::pipeline::tcp::roster::{LINK_LEN_MAX, OpenConnection};
use crate::proto::Flow;
use crate::wire::checksum::{PseudoHeader, Sum};
use crate::wire::tcp::{TcpFields, TcpFlags};
use crate::wire::{EtherType, EthernetFrame, Ipv4Fields, Ipv4Header, Protocol, TcpHeader, ipv4, tcp};
use core::net::SocketAddrV4;

/// How far back a probe is: before any window (RFC 7323 2.3: 2^30 at most).
const LONG_AGO: u32 = 1 << 30;

/// The maximum, because a peer that accepts only segments of its own link (RFC 5082, `IP_MINTTL`)
/// requires it; other peers do not check it.
const TTL: u8 = u8::MAX;

/// A whole frame.
pub(super) type Frame = ArrayVec<u8, { LINK_LEN_MAX + ipv4::HEADER_LEN + tcp::HEADER_LEN }>;

/// The connections of one roster, being reset.
pub(super) struct Resets {
    peers: Vec<Peer>,
    by_flow: HashMap<Flow, usize>,
    addresses: Addresses,
    /// Peers that may still have their connection open.
    left: usize,
}

struct Peer {
    connection: OpenConnection,
    end: ResetOutcome,
}

/// A connection that was ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResetConnection {
    /// The connection.
    pub flow: Flow,
    /// The sequence number of the last RST.
    pub seq: u32,
    /// The outcome.
    pub end: ResetOutcome,
}

/// The outcome of a reset, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResetOutcome {
    /// RSTs were sent, and no answer was received.
    Sent,
    /// The peer has answered that it has no such connection, or has opened a new one.
    Confirmed,
    /// The MAC address of its next hop was never known: nothing was sent.
    NeverKnown,
    /// No frames could be sent: the peer still has the connection open.
    NotSent,
}

impl Resets {
    pub(super) fn new(connections: Vec<OpenConnection>) -> Self {
        let addresses = Addresses::new(&connections);
        let end = |connection: &OpenConnection| {
            if connection.link.is_empty() { ResetOutcome::NeverKnown } else { ResetOutcome::Sent }
        };
        let peers: Vec<_> =
            connections.into_iter().map(|connection| Peer { end: end(&connection), connection }).collect();
        let by_flow = peers.iter().enumerate().map(|(idx, peer)| (peer.connection.flow, idx)).collect();
        let left = peers.iter().filter(|peer| peer.end == ResetOutcome::Sent).count();
        Self { peers, by_flow, addresses, left }
    }

    /// Whether no peer that can still be reached may have its connection open.
    pub(super) fn is_done(&self) -> bool {
        self.left == 0
    }

    /// Two frames for each unconfirmed peer.
    pub(super) fn round(&self) -> impl Iterator<Item = [Frame; 2]> {
        self.peers.iter().filter(|peer| peer.end == ResetOutcome::Sent).map(|Peer { connection, .. }| {
            let OpenConnection { snd_nxt, rcv_nxt, .. } = *connection;
            let reset = frame(connection, snd_nxt, rcv_nxt, TcpFlags::RST | TcpFlags::ACK);
            [reset, frame(connection, snd_nxt.wrapping_sub(LONG_AGO), rcv_nxt, TcpFlags::ACK)]
        })
    }

    /// Processes a frame received on the interface, whole or truncated. Returns the answer, if one
    /// is due.
    pub(super) fn receive(&mut self, bytes: &[u8]) -> Option<Frame> {
        let ethernet = EthernetFrame::parse(bytes).ok()?;
        if ethernet.ethertype == EtherType::ARP {
            return self.addresses.receive(ethernet.payload);
        }
        let (flow, header) = read(&ethernet)?;
        let peer = &mut self.peers[*self.by_flow.get(&flow)?];
        if peer.end != ResetOutcome::Sent {
            return None;
        }
        if header.flags().intersects(TcpFlags::RST | TcpFlags::SYN) {
            // The connection is gone, or a successor has opened it again: we do not answer.
            peer.end = ResetOutcome::Confirmed;
            self.left -= 1;
            return None;
        }
        if !header.flags().contains(TcpFlags::ACK) {
            return None;
        }
        // RFC 9293 3.10.7.1: <SEQ=SEG.ACK><CTL=RST>. Later rounds use the number too, should this
        // RST be lost.
        peer.connection.snd_nxt = header.ack();
        Some(frame(&peer.connection, header.ack(), 0, TcpFlags::RST))
    }

    /// The outcomes.
    pub(super) fn ended(&self) -> impl Iterator<Item = ResetConnection> {
        let ended =
            |peer: &Peer| ResetConnection { flow: peer.connection.flow, seq: peer.connection.snd_nxt, end: peer.end };
        self.peers.iter().map(ended)
    }
}

impl fmt::Display for ResetConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} > {}: ", self.flow.local, self.flow.remote)?;
        match self.end {
            ResetOutcome::Sent => write!(f, "reset at {}, the peer says nothing", self.seq),
            ResetOutcome::Confirmed => write!(f, "reset at {}, the peer knows", self.seq),
            ResetOutcome::NeverKnown => f.write_str("not reset, its neighbor was never known"),
            ResetOutcome::NotSent => f.write_str("not reset, no frames could be sent"),
        }
    }
}

/// A segment without payload, from the dead process to its peer.
fn frame(connection: &OpenConnection, seq: u32, ack: u32, flags: TcpFlags) -> Frame {
    let Flow { local, remote } = connection.flow;
    let ipv4 = Ipv4Header::new(&Ipv4Fields {
        source: *local.ip(),
        destination: *remote.ip(),
        protocol: Protocol::TCP,
        ttl: TTL,
        tos: 0,
        // RFC 6864 4.1: an atomic datagram needs no identification.
        identification: 0,
        dont_fragment: true,
        payload_len: tcp::HEADER_LEN,
    });
    let fields = TcpFields {
        source_port: local.port(),
        destination_port: remote.port(),
        seq,
        ack,
        flags,
        window: 0,
        urgent_pointer: 0,
    };
    let mut tcp = TcpHeader::new(&fields, &[]).expect("no options are whole words");
    let pseudo = PseudoHeader {
        source: *local.ip(),
        destination: *remote.ip(),
        protocol: Protocol::TCP,
        len: tcp::HEADER_LEN as u16,
    };
    tcp.fill_checksum(pseudo.sum().combine(Sum::EMPTY));
    let mut frame = Frame::new();
    frame.extend(connection.link.iter().copied());
    frame.extend(ipv4.expect("a header fits an IPv4 packet").as_bytes().iter().copied());
    frame.extend(tcp.as_bytes().iter().copied());
    frame
}

/// The flow of a frame as its receiver sees it, and the TCP header. Does not verify the checksums:
/// on a virtual link they are not filled in yet, and a wrong one does no harm here.
fn read<'a>(ethernet: &EthernetFrame<'a>) -> Option<(Flow, &'a TcpHeader)> {
    if ethernet.ethertype != EtherType::IPV4 {
        return None;
    }
    let (ipv4, _) = Ipv4Header::ref_from_prefix(ethernet.payload).ok()?;
    if ipv4.protocol() != Protocol::TCP {
        return None;
    }
    let (tcp, _) = TcpHeader::ref_from_prefix(ethernet.payload.get(ipv4.header_len()..)?).ok()?;
    let local = SocketAddrV4::new(ipv4.destination(), tcp.destination_port());
    let remote = SocketAddrV4::new(ipv4.source(), tcp.source_port());
    Some((Flow { local, remote }, tcp))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::TcpSegment;

    fn connection() -> OpenConnection {
        let flow = Flow { local: "10.9.0.1:1000".parse().unwrap(), remote: "10.9.0.2:80".parse().unwrap() };
        // In VLAN 5.
        let link = [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1], &[0x81, 0, 0, 5, 8, 0][..]].concat();
        OpenConnection { flow, link: link.into_iter().collect(), snd_nxt: 100, rcv_nxt: 7 }
    }

    /// A frame from the peer: its link header is ours with source and destination swapped.
    fn from_peer(seq: u32, ack: u32, flags: TcpFlags) -> Frame {
        let Flow { local, remote } = connection().flow;
        frame(&OpenConnection { flow: Flow { local: remote, remote: local }, ..connection() }, seq, ack, flags)
    }

    fn said(frame: &Frame) -> (u32, u32, TcpFlags) {
        let ethernet = EthernetFrame::parse(frame).unwrap();
        assert_eq!(frame[..18], connection().link[..]);
        let (ipv4, _) = Ipv4Header::ref_from_prefix(ethernet.payload).unwrap();
        let segment = TcpSegment::parse(&ethernet.payload[20..]).unwrap();
        segment.verify_checksum(ipv4.source(), ipv4.destination()).unwrap();
        (segment.header.seq(), segment.header.ack(), segment.header.flags())
    }

    #[test]
    fn round_is_a_reset_at_snd_nxt_and_a_probe_from_long_ago() {
        let resets = Resets::new(vec![connection()]);
        let rounds: Vec<_> = resets.round().map(|frames| frames.map(|frame| said(&frame))).collect();
        let probe = (100u32.wrapping_sub(1 << 30), 7, TcpFlags::ACK);
        assert_eq!(rounds, [[(100, 7, TcpFlags::RST | TcpFlags::ACK), probe]]);
    }

    #[test]
    fn peer_that_takes_nothing_from_afar_takes_the_reset() {
        let [reset, probe] = Resets::new(vec![connection()]).round().next().unwrap();
        let ttls = [reset, probe].map(|frame| {
            let (ipv4, _) = Ipv4Header::ref_from_prefix(&frame[18..]).unwrap();
            ipv4.ttl()
        });
        assert_eq!(ttls, [255; 2]);
    }

    #[test]
    fn challenge_is_answered_at_the_number_that_it_acknowledges() {
        let mut resets = Resets::new(vec![connection()]);
        let answer = resets.receive(&from_peer(7, 60, TcpFlags::ACK)).unwrap();
        assert_eq!(said(&answer), (60, 0, TcpFlags::RST));
        // The kernel strips a tag and delivers the frame without it.
        let mut untagged = from_peer(7, 60, TcpFlags::ACK);
        untagged.drain(12..16);
        assert_eq!(resets.receive(&untagged), Some(answer));
        // Later rounds too: the answer may be lost.
        assert_eq!(said(&resets.round().next().unwrap()[0]).0, 60);
        assert!(!resets.is_done());
    }

    #[test]
    fn peer_that_knows_is_left_alone() {
        for flags in [TcpFlags::RST, TcpFlags::RST | TcpFlags::ACK, TcpFlags::SYN, TcpFlags::SYN | TcpFlags::ACK] {
            let mut resets = Resets::new(vec![connection()]);
            assert_eq!(resets.receive(&from_peer(7, 60, flags)), None);
            assert!(resets.is_done() && resets.round().next().is_none(), "{flags}");
            assert_eq!(resets.receive(&from_peer(7, 60, TcpFlags::ACK)), None);
            assert_eq!(resets.ended().next().unwrap().end, ResetOutcome::Confirmed);
        }
    }

    #[test]
    fn connection_without_a_way_is_told_and_not_waited_for() {
        let resets = Resets::new(vec![OpenConnection { link: ArrayVec::new(), ..connection() }]);
        assert!(resets.is_done() && resets.round().next().is_none());
        assert_eq!(resets.ended().next().unwrap().end, ResetOutcome::NeverKnown);
    }

    #[test]
    fn frames_of_others_and_damaged_ones_mean_nothing() {
        let mut resets = Resets::new(vec![connection()]);
        let own = frame(&connection(), 1, 2, TcpFlags::ACK);
        let whole = from_peer(7, 60, TcpFlags::ACK);
        assert_eq!(resets.receive(&own), None);
        for len in 0..whole.len() {
            assert_eq!(resets.receive(&whole[..len]), None, "{len} bytes");
        }
        assert_eq!(resets.receive(&from_peer(7, 60, TcpFlags::PSH)), None);
        assert!(!resets.is_done());
    }
}
