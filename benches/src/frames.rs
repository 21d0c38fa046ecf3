//! Frames to measure with: Ethernet, IPv4, UDP, and a payload of a chosen length.

use core::net::{Ipv4Addr, SocketAddrV4};

use wirepath::wire::ethernet::{EthernetFields, EthernetHeader};
use wirepath::wire::ipv4::{Ipv4Fields, Ipv4Header};
use wirepath::wire::udp::{UdpFields, UdpHeader};
use wirepath::wire::{EtherType, MacAddr, Protocol};

/// Bytes before the payload.
pub const HEADERS_LEN: usize = EthernetHeader::LEN + Ipv4Header::LEN + UdpHeader::LEN;
/// Bytes of the table's standard frame: one cache line, as a NIC delivers it (without its check
/// sequence).
pub const FRAME_LEN: usize = 64;
/// Payload of that frame.
pub const PAYLOAD_LEN: usize = FRAME_LEN - HEADERS_LEN;
/// The sender.
pub const SENDER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), 4_000);
/// The sender's MAC address.
pub const SENDER_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
/// Our address.
pub const OURS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
/// Our MAC address.
pub const OUR_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);

/// The contents of a frame's UDP checksum field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UdpChecksum {
    /// Zero: the sender computed no checksum, and the receiver has nothing to verify.
    Zero,
    /// The correct one, which the receiver verifies.
    Right,
}

/// Group number `idx` of many: neighboring groups, as exchanges number them, on eight ports in
/// turn.
pub fn group(idx: u32) -> SocketAddrV4 {
    let address = Ipv4Addr::from_bits(Ipv4Addr::new(233, 54, 0, 0).to_bits() + idx);
    SocketAddrV4::new(address, 26_400 + (idx % 8) as u16)
}

/// A datagram to `destination` as a frame.
pub fn frame(destination: SocketAddrV4, payload_len: usize, checksum: UdpChecksum) -> Vec<u8> {
    let payload: Vec<u8> = (0..payload_len).map(|at| at as u8).collect();
    frame_of(destination, &payload, checksum)
}

/// The same with a given payload.
pub fn frame_of(destination: SocketAddrV4, payload: &[u8], checksum: UdpChecksum) -> Vec<u8> {
    let payload_len = payload.len();
    let dst = if destination.ip().is_multicast() { MacAddr::multicast_ipv4(*destination.ip()) } else { OUR_MAC };
    let ethernet = EthernetHeader::new(EthernetFields { dst, src: SENDER_MAC, ethertype: EtherType::IPV4 });
    let ipv4 = Ipv4Header::new(&Ipv4Fields {
        source: *SENDER.ip(),
        destination: *destination.ip(),
        protocol: Protocol::UDP,
        ttl: 16,
        tos: 0,
        identification: 7,
        dont_fragment: true,
        payload_len: UdpHeader::LEN + payload_len,
    });
    let ports = UdpFields { source_port: SENDER.port(), destination_port: destination.port(), payload_len };
    let mut udp = UdpHeader::new(&ports).expect("a bench's payload is short");
    if checksum == UdpChecksum::Right {
        udp.fill_checksum(*SENDER.ip(), *destination.ip(), payload);
    }
    let mut bytes = vec![0; HEADERS_LEN];
    let at = ethernet.emit(&mut bytes).expect("the vector holds the headers");
    let at = at + ipv4.expect("as above").emit(&mut bytes[at..]).expect("the vector holds the headers");
    udp.emit(&mut bytes[at..]).expect("the vector holds the headers");
    bytes.extend_from_slice(payload);
    bytes
}

/// Numbers below `bound` in an order without a pattern that a branch predictor or a prefetcher
/// could learn. The same `seed` gives the same order.
pub fn shuffled(bound: u32, count: usize, seed: u64) -> Vec<u32> {
    let mut state = seed;
    core::iter::repeat_with(|| {
        // Knuth's MMIX constants; the upper half is the random one.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (((state >> 32) * u64::from(bound)) >> 32) as u32
    })
    .take(count)
    .collect()
}
