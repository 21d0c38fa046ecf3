//! Each exception of RFC 1122 3.2.2 and each check of a quote, one changed field at a time.

use proptest::prelude::*;
use zerocopy::IntoBytes;

use super::*;
use crate::proto::demux::Sharing;
use crate::proto::hash::HashSeed;
use crate::proto::host::{HostConfig, HostEvent};
use crate::proto::ids::{ConsumerId, InterfaceId};
use crate::proto::prefix::Ipv4Prefix;
use crate::proto::sockets::SocketCapacity;
use crate::time::Duration;
use crate::wire::{Ipv4Fields, UdpFields, UdpHeader, VlanTags};

const OURS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const PEER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 5);

fn host() -> Host {
    let config = HostConfig {
        interface: InterfaceId(0),
        mac: MAC,
        vlan: VlanTags::NONE,
        mtu: 1500,
        addresses_max: 2,
        routes_max: 4,
        neighbors_max: 4,
    };
    let mut host = Host::new(config, HashSeed::new(1, 2)).unwrap();
    host.apply(HostEvent::AddressAdded(Ipv4Prefix::new(OURS, 24).unwrap())).unwrap();
    host
}

fn packet(source: Ipv4Addr, destination: Ipv4Addr, protocol: Protocol, payload: &[u8]) -> Vec<u8> {
    let fields = Ipv4Fields {
        source,
        destination,
        protocol,
        ttl: 64,
        tos: 0,
        identification: 0,
        dont_fragment: true,
        payload_len: payload.len(),
    };
    [Ipv4Header::new(&fields).unwrap().as_bytes(), payload].concat()
}

fn datagram(source: Ipv4Addr, destination: Ipv4Addr) -> Vec<u8> {
    let ports = UdpFields { source_port: 5_000, destination_port: 7, payload_len: 4 };
    let udp = UdpHeader::new(&ports).unwrap();
    packet(source, destination, Protocol::UDP, &[udp.as_bytes(), b"tick"].concat())
}

fn permit(packet: &[u8], link_destination: MacAddr) -> Result<ErrorRoute, ErrorRefusal> {
    ErrorLimit::default().permit(OffendingPacket { packet, link_destination }, &host(), Instant::ZERO)
}

/// A sender that gets all errors up to the limit learns by the next one whether another sender got
/// one.
#[test]
fn one_sender_has_a_share_of_the_errors_where_the_limit_is_keyed() {
    let mut limit = ErrorLimit::new(TokenBucket::new(10_000, 10_000)).keyed(HashSeed::new(1, 2));
    let mut answered = |source: Ipv4Addr| {
        let packet = datagram(source, OURS);
        let is_answered = |_: &u32| {
            limit.permit(OffendingPacket { packet: &packet, link_destination: MAC }, &host(), Instant::ZERO).is_ok()
        };
        (0..1_000).filter(is_answered).count()
    };
    assert_eq!([PEER, Ipv4Addr::new(192, 0, 2, 6)].map(&mut answered), [100, 100]);
}

#[test]
fn error_about_a_datagram_to_us_goes_to_its_sender() {
    assert_eq!(permit(&datagram(PEER, OURS), MAC), Ok(ErrorRoute { source: OURS, destination: PEER }));
}

#[test]
fn nothing_is_said_about_what_went_to_many() {
    for destination in [[239, 1, 2, 3], [255, 255, 255, 255], [10, 0, 0, 255]] {
        assert_eq!(permit(&datagram(PEER, destination.into()), MAC), Err(ErrorRefusal::NotUnicast));
    }
    for link in [MacAddr::BROADCAST, MacAddr([1, 0, 0x5e, 1, 2, 3])] {
        assert_eq!(permit(&datagram(PEER, OURS), link), Err(ErrorRefusal::NotUnicast));
    }
    assert_eq!(permit(&datagram(PEER, [10, 0, 0, 9].into()), MAC), Err(ErrorRefusal::NotOurs));
}

#[test]
fn nothing_is_said_to_who_is_no_single_host() {
    for source in [
        [0, 0, 0, 0],
        [0, 1, 2, 3],
        [127, 0, 0, 1],
        [224, 0, 0, 1],
        [240, 0, 0, 1],
        [255, 255, 255, 255],
        [10, 0, 0, 255],
        [10, 0, 0, 1],
    ] {
        assert_eq!(permit(&datagram(source.into(), OURS), MAC), Err(ErrorRefusal::NoSource), "{source:?}");
    }
}

#[test]
fn nothing_is_said_about_later_fragments_and_errors() {
    let mut fragment = datagram(PEER, OURS);
    fragment[7] = 1;
    assert_eq!(permit(&fragment, MAC), Err(ErrorRefusal::LaterFragment));
    for kind in 0..=255u8 {
        let allowed = matches!(kind, 0 | 8 | 9 | 10 | 13..=18);
        let message = packet(PEER, OURS, Protocol::ICMP, &[kind, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(permit(&message, MAC).is_ok(), allowed, "type {kind}");
    }
    assert_eq!(permit(&packet(PEER, OURS, Protocol::ICMP, &[]), MAC), Err(ErrorRefusal::AboutError));
    assert_eq!(permit(&datagram(PEER, OURS)[..19], MAC), Err(ErrorRefusal::Malformed));
}

#[test]
fn rate_is_limited_and_refusals_cost_nothing() {
    let (host, mut now) = (host(), Instant::ZERO);
    let mut limit = ErrorLimit::new(TokenBucket::new(10, 3));
    let (good, group) = (datagram(PEER, OURS), datagram(PEER, [239, 1, 2, 3].into()));
    let mut permitted = |packet: &[u8], now: Instant| {
        (0..100).filter(|_| limit.permit(OffendingPacket { packet, link_destination: MAC }, &host, now).is_ok()).count()
    };
    assert_eq!((permitted(&group, now), permitted(&good, now)), (0, 3));
    now += Duration::from_secs(1);
    assert_eq!(permitted(&good, now), 3);
}

/// A consumer bound port 5000; is `message` about it?
fn matched(message: &Icmpv4Message<'_>) -> Result<FlowError, UnmatchedError> {
    let mut sockets = UdpSockets::new(SocketCapacity::default(), HashSeed::new(1, 2));
    sockets.bind(ConsumerId(1), SocketAddrV4::new(OURS, 5_000), Sharing::Exclusive).unwrap();
    match_error(message, &host(), &sockets)
}

fn unreachable(code: Unreachable, quoted: &[u8]) -> Result<FlowError, UnmatchedError> {
    matched(&Icmpv4Message::DestinationUnreachable { code, quoted })
}

fn port(quoted: &[u8]) -> Result<FlowError, UnmatchedError> {
    unreachable(Unreachable::Port, quoted)
}

#[test]
fn error_is_matched_to_the_flow_that_it_quotes() {
    let quoted = datagram(OURS, PEER);
    let flow = Flow { local: SocketAddrV4::new(OURS, 5_000), remote: SocketAddrV4::new(PEER, 7) };
    let kind = FlowErrorKind::Unreachable(Unreachable::Port);
    assert_eq!(port(&quoted[..28]), Ok(FlowError { flow, kind, packet_len: 32, identification: 0 }));
    let expired = matched(&Icmpv4Message::TimeExceeded { code: TimeExceeded::Ttl, quoted: &quoted }).unwrap();
    assert!(kind.is_hard() && !expired.kind.is_hard());
}

#[test]
fn made_up_quotes_are_refused() {
    let good = datagram(OURS, PEER);
    let with = |at: usize, byte: u8| {
        let mut quoted = good.clone();
        quoted[at] = byte;
        quoted
    };
    assert_eq!(port(&good[..27]), Err(UnmatchedError::NoFlow));
    assert_eq!(port(&good[..10]), Err(UnmatchedError::NoFlow));
    assert_eq!(port(&with(0, 0x65)), Err(UnmatchedError::NoFlow));
    assert_eq!(port(&with(7, 1)), Err(UnmatchedError::NoFlow));
    assert_eq!(port(&with(9, 6)), Err(UnmatchedError::NotUdp));
    assert_eq!(port(&with(15, 77)), Err(UnmatchedError::NotOurs));
    assert_eq!(port(&with(21, 77)), Err(UnmatchedError::NoSocket));
    assert_eq!(port(&datagram(OURS, [239, 1, 2, 3].into())), Err(UnmatchedError::NotUnicast));
    assert_eq!(port(&datagram(OURS, OURS)), Err(UnmatchedError::NotOurs));
    let needed = Unreachable::FragmentationNeeded { mtu: 576 };
    assert!(unreachable(needed, &good).is_ok());
    assert_eq!(unreachable(needed, &with(6, 0)), Err(UnmatchedError::MayFragment));
}

#[test]
fn redirects_and_source_quench_are_not_taken() {
    let payload = &datagram(OURS, PEER)[..];
    for kind in [4, 5, 40] {
        let message = Icmpv4Message::Other { kind, code: 0, rest: [0; 4], payload };
        assert_eq!(matched(&message), Err(UnmatchedError::IgnoredType));
    }
}

#[test]
fn connected_socket_hears_of_its_own_peer_only() {
    let mut sockets = UdpSockets::new(SocketCapacity::default(), HashSeed::new(1, 2));
    let flow = Flow { local: SocketAddrV4::new(OURS, 5_000), remote: SocketAddrV4::new(PEER, 7) };
    sockets.connect(ConsumerId(1), flow).unwrap();
    for (destination, expected) in [(PEER, true), ([192, 0, 2, 6].into(), false)] {
        let quoted = datagram(OURS, destination);
        let message = Icmpv4Message::DestinationUnreachable { code: Unreachable::Port, quoted: &quoted };
        assert_eq!(match_error(&message, &host(), &sockets).is_ok(), expected);
    }
}

proptest! {
    #[test]
    fn any_bytes_are_permitted_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..80), good: bool) {
        let mut bytes = bytes;
        if good && bytes.len() >= 20 {
            bytes[..20].copy_from_slice(&datagram(PEER, OURS)[..20]);
        }
        let _ = permit(&bytes, MAC);
        let _ = port(&bytes);
    }
}
