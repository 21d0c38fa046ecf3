//! The ends of a frame that a broker passes on. Checks only what the XDP program has matched,
//! because the client's own stack checks the rest.

use core::net::{Ipv4Addr, SocketAddrV4};

use crate::wire::Protocol;
use crate::wire::tcp::TcpFlags;

/// Both ends of a datagram or a segment, from the receiver's side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Ends {
    pub(super) protocol: u8,
    pub(super) local: SocketAddrV4,
    pub(super) remote: SocketAddrV4,
}

/// The fields that decide which client gets a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Packet {
    pub(super) ends: Ends,
    /// The flags of TCP; none for UDP.
    pub(super) flags: TcpFlags,
    /// The numbers of TCP; zeros for UDP.
    pub(super) numbers: Numbers,
}

/// Sequence numbers of a segment (RFC 9293 3.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Numbers {
    pub(super) seq: u32,
    pub(super) ack: u32,
    /// Bytes of its payload, as its headers say.
    pub(super) len: u32,
}

const ETHERNET_LEN: usize = 12;
/// The fields of a TCP header that are read: all before its window.
const TCP_FIXED_LEN: usize = 14;
const IPV4: u16 = 0x0800;
const TAGS: [u16; 2] = [0x8100, 0x88a8];
/// The flag and the offset of a fragment (RFC 791 3.1).
const MORE_FRAGMENTS: u16 = 0x2000;
const OFFSET_MASK: u16 = 0x1fff;

impl Packet {
    /// Parses a received frame. `None` if it belongs to no flow: another protocol, a fragment
    /// without ports, or a first fragment, whose datagram the kernel reassembles.
    #[inline]
    pub(super) fn received(frame: &[u8]) -> Option<Self> {
        let word = |at: usize| frame.get(at..at + 2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]));
        let mut at = ETHERNET_LEN;
        if TAGS.contains(&word(at)?) {
            at += 4;
        }
        if word(at)? != IPV4 {
            return None;
        }
        Self::of_ipv4(frame.get(at + 2..)?)
    }

    /// Parses a packet without its Ethernet header.
    #[inline]
    pub(super) fn of_ipv4(frame: &[u8]) -> Option<Self> {
        let word = |at: usize| frame.get(at..at + 2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]));
        let header = frame.get(..20)?;
        let header_len = usize::from(header[0] & 0xf) * 4;
        let fragment = u16::from_be_bytes([header[6], header[7]]);
        let (is_first, protocol) = (fragment & MORE_FRAGMENTS != 0, header[9]);
        let is_the_kernels = is_first && Protocol(protocol) == Protocol::UDP;
        if header[0] >> 4 != 4 || header_len < 20 || fragment & OFFSET_MASK != 0 || is_the_kernels {
            return None;
        }
        let address = |at: usize| Ipv4Addr::new(header[at], header[at + 1], header[at + 2], header[at + 3]);
        let ports = header_len;
        let (source, destination) = (word(ports)?, word(ports + 2)?);
        let (flags, numbers) = match Protocol(protocol) {
            Protocol::TCP => {
                let tcp = frame.get(ports..ports + TCP_FIXED_LEN)?;
                let number = |at: usize| u32::from_be_bytes([tcp[at], tcp[at + 1], tcp[at + 2], tcp[at + 3]]);
                let headers_len = header_len + usize::from(tcp[12] >> 4) * 4;
                let len = usize::from(u16::from_be_bytes([header[2], header[3]])).saturating_sub(headers_len);
                (TcpFlags(tcp[13]), Numbers { seq: number(4), ack: number(8), len: len as u32 })
            }
            Protocol::UDP => (TcpFlags(0), Numbers::default()),
            _ => return None,
        };
        let (local, remote) = (SocketAddrV4::new(address(16), destination), SocketAddrV4::new(address(12), source));
        Some(Self { ends: Ends { protocol, local, remote }, flags, numbers })
    }

    /// Parses a frame that a client sends: the frame's destination is the remote end.
    #[inline]
    pub(super) fn sent(frame: &[u8]) -> Option<Self> {
        let Self { ends: Ends { protocol, local, remote }, flags, numbers } = Self::received(frame)?;
        Some(Self { ends: Ends { protocol, local: remote, remote: local }, flags, numbers })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A segment from 192.0.2.9:443 to 192.0.2.1:80.
    fn segment(tag: bool, options: usize) -> Vec<u8> {
        let mut frame = vec![0; 12];
        if tag {
            frame.extend([0x81, 0, 0, 7]);
        }
        frame.extend([8, 0, 0x45 + options as u8, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0, 0, 192, 0, 2, 9, 192, 0, 2, 1]);
        frame.extend(vec![1; options * 4]);
        frame.extend([1, 187, 0, 80, 0, 0, 1, 2, 0, 0, 3, 4, 0x50, 2, 0, 0, 0, 0, 0, 0]);
        frame
    }

    #[test]
    fn ends_are_found_behind_a_tag_and_options() {
        let at = |host, port| SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, host), port);
        for (tag, options) in [(false, 0), (true, 0), (false, 3), (true, 10)] {
            let packet = Packet::received(&segment(tag, options)).unwrap();
            assert_eq!(packet.ends, Ends { protocol: 6, local: at(1, 80), remote: at(9, 443) });
            assert_eq!(packet.flags, TcpFlags::SYN);
            assert_eq!((packet.numbers.seq, packet.numbers.ack), (0x0102, 0x0304));
            let sent = Packet::sent(&segment(tag, options)).unwrap();
            assert_eq!((sent.ends.local, sent.ends.remote), (at(9, 443), at(1, 80)));
        }
    }

    #[test]
    fn fragment_without_ports_and_other_protocols_are_of_no_flow() {
        for (at, value) in [(20, 0x20), (21, 1), (23, 1), (12, 9), (14, 0x65), (14, 0x44)] {
            let mut frame = segment(false, 0);
            frame[at] = value;
            let is_first = at == 20;
            assert_eq!(Packet::received(&frame).is_some(), is_first, "byte {at} is {value}");
        }
    }

    #[test]
    fn first_fragment_of_a_datagram_is_of_no_flow() {
        let mut frame = segment(false, 0);
        frame[23] = Protocol::UDP.0;
        assert!(Packet::received(&frame).is_some());
        frame[20] = 0x20;
        assert_eq!(Packet::received(&frame), None);
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_a_packet_or_none(frame in proptest::collection::vec(proptest::num::u8::ANY, 0..80)) {
            Packet::received(&frame);
        }

        #[test]
        fn frame_that_is_cut_is_none(len in 0_usize..48) {
            assert_eq!(Packet::received(&segment(false, 0)[..len]), None);
        }
    }
}
