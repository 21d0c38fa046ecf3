//! The formats against an independent parser (etherparse) and against real captures.

use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use proptest::prelude::*;

use super::*;

mod peer {
    //! Random bytes and frames built by etherparse, parsed by both.

    use etherparse::{Ipv4Slice, PacketBuilder, TcpOptionElement, TcpSlice, UdpSlice, VlanId, VlanPcp};

    use super::*;
    use crate::wire::tcp::Timestamps;

    /// Bytes that begin like a header: the first byte is chosen, lengths are mostly small.
    fn headers(first: impl Strategy<Value = u8>) -> impl Strategy<Value = Vec<u8>> {
        (first, prop::collection::vec(any::<u8>(), 0..120)).prop_map(|(first, mut bytes)| {
            if let Some(byte) = bytes.first_mut() {
                *byte = first;
            }
            bytes
        })
    }

    proptest! {
        #[test]
        fn ipv4_verdicts_are_equal(mut bytes in headers(0x43u8..0x52), len: u8) {
            if bytes.len() >= 20 {
                bytes[2..4].copy_from_slice(&[0, len]);
                // etherparse also parses authentication headers.
                prop_assume!(bytes[9] != 51);
            }
            let Ok(theirs) = Ipv4Slice::from_slice(&bytes) else {
                prop_assert!(Ipv4Packet::parse(&bytes).is_err());
                return Ok(());
            };
            let ours = Ipv4Packet::parse(&bytes).unwrap();
            let header = theirs.header();
            prop_assert_eq!(ours.payload, theirs.payload().payload);
            prop_assert_eq!(ours.options, header.options());
            prop_assert_eq!(ours.header.source(), header.source_addr());
            prop_assert_eq!(ours.header.destination(), header.destination_addr());
            prop_assert_eq!(ours.header.protocol().0, header.protocol().0);
            prop_assert_eq!((ours.header.dscp(), ours.header.ecn()), (header.dcp().value(), header.ecn().value()));
            prop_assert_eq!(ours.header.identification(), header.identification());
            prop_assert_eq!(ours.header.dont_fragment(), header.dont_fragment());
            prop_assert_eq!(ours.header.more_fragments(), header.more_fragments());
            prop_assert_eq!(u32::from(ours.header.fragment_offset()), u32::from(header.fragments_offset().byte_offset()));
            prop_assert_eq!(ours.header.ttl(), header.ttl());
            prop_assert_eq!(ours.header.is_fragment(), header.is_fragmenting_payload());
            // etherparse writes the reserved flag as zero, so it cannot sum a header that has it.
            if bytes[6] & 0x80 == 0 {
                let right = header.header_checksum() == header.to_header().calc_header_checksum();
                prop_assert_eq!(ours.verify_checksum().is_ok(), right);
            }
        }

        #[test]
        fn udp_verdicts_are_equal(mut bytes: Vec<u8>, len: u8) {
            if bytes.len() >= 8 {
                // etherparse takes length 0 for a jumbogram (RFC 2675), which IPv4 does not have.
                bytes[4..6].copy_from_slice(&[0, len.max(1)]);
            }
            let Ok(theirs) = UdpSlice::from_slice(&bytes) else {
                prop_assert!(UdpHeader::parse(&bytes).is_err());
                return Ok(());
            };
            let (header, payload) = UdpHeader::parse(&bytes).unwrap();
            prop_assert_eq!(payload, theirs.payload());
            prop_assert_eq!(header.source_port(), theirs.source_port());
            prop_assert_eq!(header.destination_port(), theirs.destination_port());
            prop_assert_eq!((header.length(), header.checksum()), (theirs.length(), theirs.checksum()));
        }

        #[test]
        fn tcp_verdicts_are_equal(mut bytes: Vec<u8>, source: [u8; 4], destination: [u8; 4]) {
            if let Some(offset) = bytes.get_mut(12) {
                *offset = *offset & 0x7f | 0x40;
            }
            let Ok(theirs) = TcpSlice::from_slice(&bytes) else {
                prop_assert!(TcpSegment::parse(&bytes).is_err());
                return Ok(());
            };
            let ours = TcpSegment::parse(&bytes).unwrap();
            prop_assert_eq!((ours.payload, ours.options), (theirs.payload(), theirs.options()));
            let flags = [theirs.fin(), theirs.syn(), theirs.rst(), theirs.psh(), theirs.ack(), theirs.urg(), theirs.ece(), theirs.cwr()];
            let flags = flags.iter().rev().fold(0, |bits, &flag| bits << 1 | u8::from(flag));
            let fields = TcpFields {
                source_port: theirs.source_port(),
                destination_port: theirs.destination_port(),
                seq: theirs.sequence_number(),
                ack: theirs.acknowledgment_number(),
                flags: TcpFlags(flags),
                window: theirs.window_size(),
                urgent_pointer: theirs.urgent_pointer(),
            };
            prop_assert_eq!(ours.header.fields(), fields);
            // We accept the checksums they compute, up to the two zeros of one's complement.
            let mut fixed = bytes.clone();
            fixed[16..18].copy_from_slice(&theirs.calc_checksum_ipv4(source, destination).unwrap().to_be_bytes());
            let fixed = TcpSegment::parse(&fixed).unwrap();
            prop_assert_eq!(fixed.verify_checksum(source.into(), destination.into()), Ok(()));
        }

        #[test]
        fn frames_of_theirs_are_read(
            (src, dst) in any::<([u8; 6], [u8; 6])>(),
            vids in prop::collection::vec(0u16..4096, 0..=2),
            (source, destination, ttl) in any::<([u8; 4], [u8; 4], u8)>(),
            (source_port, destination_port) in any::<(u16, u16)>(),
            (value, echo_reply) in any::<(u32, u32)>(),
            payload: Vec<u8>,
            tcp: bool,
        ) {
            let vid = |idx: usize| VlanId::try_new(vids[idx]).unwrap();
            let link = PacketBuilder::ethernet2(src, dst);
            let ip = match vids.len() {
                0 => link.ipv4(source, destination, ttl),
                1 => link.single_vlan(vid(0)).ipv4(source, destination, ttl),
                _ => link.double_vlan(vid(0), vid(1)).ipv4(source, destination, ttl),
            };
            let mut bytes = Vec::new();
            if tcp {
                let options = [TcpOptionElement::Noop, TcpOptionElement::Noop, TcpOptionElement::Timestamp(value, echo_reply)];
                let segment = ip.tcp(source_port, destination_port, 7, 8).options(&options).unwrap();
                segment.write(&mut bytes, &payload).unwrap();
            } else {
                ip.udp(source_port, destination_port).write(&mut bytes, &payload).unwrap();
            }

            let frame = EthernetFrame::parse(&bytes).unwrap();
            prop_assert_eq!((frame.header.src(), frame.header.dst()), (MacAddr(src), MacAddr(dst)));
            let read: Vec<_> = frame.tags.as_slice().iter().map(VlanTag::vid).collect();
            prop_assert_eq!(read, vids);
            let packet = Ipv4Packet::parse(frame.payload).unwrap();
            prop_assert_eq!(packet.verify_checksum(), Ok(()));
            let (source, destination) = (packet.header.source(), packet.header.destination());
            if tcp {
                let segment = TcpSegment::parse(packet.payload).unwrap();
                prop_assert_eq!(segment.verify_checksum(source, destination), Ok(()));
                prop_assert_eq!(segment.aligned_timestamps(), Some(Timestamps { value, echo_reply }));
                prop_assert_eq!(segment.payload, payload);
            } else {
                let (header, read) = UdpHeader::parse(packet.payload).unwrap();
                prop_assert_eq!(header.verify_checksum(source, destination, read), Ok(()));
                prop_assert_eq!((header.source_port(), header.destination_port()), (source_port, destination_port));
                prop_assert_eq!(read, payload);
            }
        }

        #[test]
        fn frames_of_ours_are_read_by_them(
            tags in prop::collection::vec((any::<bool>(), 0u16..4096, 0u8..8), 0..=2),
            (source, destination) in any::<(u32, u32)>(),
            (source_port, destination_port) in any::<(u16, u16)>(),
            payload: Vec<u8>,
        ) {
            let bytes = udp_frame(&tags, [source.into(), destination.into()], [source_port, destination_port], &payload);
            let theirs = SlicedPacket::from_ethernet(&bytes).unwrap();
            let read: Vec<_> = theirs.vlan_ids().iter().map(|vid| vid.value()).collect();
            prop_assert_eq!(read, tags.iter().map(|tag| tag.1).collect::<Vec<_>>());
            if let (Some(etherparse::VlanSlice::SingleVlan(tag)), [(_, _, pcp)]) = (theirs.vlan(), &tags[..]) {
                prop_assert_eq!(tag.priority_code_point(), VlanPcp::try_new(*pcp).unwrap());
            }
            let Some(NetSlice::Ipv4(ip)) = theirs.net else { panic!("no IPv4") };
            let header = ip.header().to_header();
            prop_assert_eq!(header.header_checksum, header.calc_header_checksum());
            let Some(TransportSlice::Udp(udp)) = theirs.transport else { panic!("no UDP") };
            prop_assert_eq!(udp.payload(), payload);
            let expected = udp.to_header().calc_checksum_ipv4(&header, udp.payload()).unwrap();
            prop_assert_eq!(udp.checksum(), expected);
        }
    }

    fn udp_frame(
        tags: &[(bool, u16, u8)],
        [source, destination]: [std::net::Ipv4Addr; 2],
        ports: [u16; 2],
        payload: &[u8],
    ) -> Vec<u8> {
        let tag = |&(service, vid, pcp): &(bool, u16, u8)| {
            VlanTag::from_tci(if service { EtherType::QINQ } else { EtherType::VLAN }, vid).with_pcp(pcp)
        };
        let tags = match tags {
            [] => VlanTags::NONE,
            [one] => VlanTags::single(tag(one)),
            [outer, inner, ..] => VlanTags::double([tag(outer), tag(inner)]),
        };
        let ethernet = EthernetHeader::new(EthernetFields {
            dst: MacAddr([2, 0, 0, 0, 0, 1]),
            src: MacAddr([2, 0, 0, 0, 0, 2]),
            ethertype: EtherType::IPV4,
        });
        let [source_port, destination_port] = ports;
        let mut udp = UdpHeader::new(&UdpFields { source_port, destination_port, payload_len: payload.len() }).unwrap();
        udp.fill_checksum(source, destination, payload);
        let ip = Ipv4Header::new(&Ipv4Fields {
            source,
            destination,
            protocol: Protocol::UDP,
            ttl: 64,
            tos: 0,
            identification: 0,
            dont_fragment: true,
            payload_len: usize::from(udp.length()),
        })
        .unwrap();
        let mut bytes = vec![0; 100];
        let mut len = ethernet.emit_tagged(&tags, &mut bytes).unwrap();
        len += ip.emit(&mut bytes[len..]).unwrap();
        len += udp.emit(&mut bytes[len..]).unwrap();
        bytes.truncate(len);
        bytes.extend_from_slice(payload);
        bytes
    }
}

mod capture {
    //! Frames of real exchanges. The folder is not part of the repository, so a test prints a
    //! message if it is missing.

    use std::io::Read;
    use std::net::Ipv4Addr;

    use super::*;

    /// The frames of a little-endian classic pcap, plain or gzip; `None`, with a message, if the
    /// file is absent.
    fn frames(test: &str, name: &str) -> Option<Vec<Vec<u8>>> {
        let file = std::fs::read(wirepath_captures::find(test, name)?).unwrap();
        let mut bytes = Vec::new();
        if name.ends_with(".gz") {
            flate2::read::GzDecoder::new(&file[..]).read_to_end(&mut bytes).unwrap();
        } else {
            bytes = file;
        }
        assert_eq!(bytes[..4], [0xd4, 0xc3, 0xb2, 0xa1]);
        let mut rest = &bytes[24..];
        let mut frames = Vec::new();
        while let Some((record, behind)) = rest.split_at_checked(16) {
            let len = u32::from_le_bytes(record[8..12].try_into().unwrap());
            let (frame, behind) = behind.split_at(len as usize);
            frames.push(frame.to_vec());
            rest = behind;
        }
        Some(frames)
    }

    /// The fields of a datagram.
    struct Datagram {
        dst: MacAddr,
        destination: Ipv4Addr,
        port: u16,
        payload_len: usize,
    }

    /// Parses a frame that must be valid, except that its sender's NIC completed the UDP checksum
    /// later: both captures were made on the sending host.
    fn check(bytes: &[u8]) -> Datagram {
        let frame = EthernetFrame::parse(bytes).unwrap();
        assert_eq!((frame.ethertype, frame.tags.len()), (EtherType::IPV4, 0));
        let packet = Ipv4Packet::parse(frame.payload).unwrap();
        packet.verify_checksum().unwrap();
        assert_eq!((packet.header.protocol(), packet.header.is_fragment()), (Protocol::UDP, false));
        let (udp, payload) = UdpHeader::parse(packet.payload).unwrap();
        let (source, destination) = (packet.header.source(), packet.header.destination());
        assert!(udp.has_partial_checksum(source, destination));
        check_rewritten(bytes, &packet, udp, payload);
        Datagram { dst: frame.header.dst(), destination, port: udp.destination_port(), payload_len: payload.len() }
    }

    /// Recomputed checksums equal the recorded one for IPv4 and etherparse's for UDP.
    fn check_rewritten(bytes: &[u8], packet: &Ipv4Packet<'_>, udp: &UdpHeader, payload: &[u8]) {
        let mut header = *packet.header;
        header.fill_checksum(packet.options);
        assert_eq!(header, *packet.header);

        let theirs = SlicedPacket::from_ethernet(bytes).unwrap();
        let (Some(NetSlice::Ipv4(ip)), Some(TransportSlice::Udp(theirs))) = (theirs.net, theirs.transport) else {
            panic!("no UDP over IPv4")
        };
        assert_eq!(theirs.payload(), payload);
        let expected = theirs.to_header().calc_checksum_ipv4(&ip.header().to_header(), payload).unwrap();
        let (source, destination) = (header.source(), header.destination());
        let mut written = *udp;
        written.fill_checksum(source, destination, payload);
        assert_eq!(written.checksum(), expected);
        written.verify_checksum(source, destination, payload).unwrap();
    }

    #[test]
    fn every_iex_frame_is_right() {
        let Some(frames) = frames("every_iex_frame_is_right", "iex_tops16_20170710_uat.pcap.gz") else { return };
        let datagrams: Vec<_> = frames.iter().map(|frame| check(frame)).collect();
        assert_eq!(datagrams.len(), 13_022);
        let group = Ipv4Addr::new(224, 67, 0, 199);
        assert!(datagrams.iter().all(|datagram| datagram.destination == group && datagram.port == 16642));
        assert!(datagrams.iter().all(|datagram| datagram.dst == MacAddr::multicast_ipv4(group)));
        assert_eq!(datagrams.iter().map(|datagram| datagram.payload_len).max(), Some(1459));
    }

    #[test]
    fn every_pitch_frame_is_right() {
        let Some(frames) = frames("every_pitch_frame_is_right", "cboe_pitch_realtime_20140901.pcap") else { return };
        let datagrams: Vec<_> = frames.iter().map(|frame| check(frame)).collect();
        let to = |last| {
            let group = Ipv4Addr::new(239, 39, 62, last);
            datagrams.iter().filter(|datagram| datagram.destination == group).count()
        };
        assert_eq!((datagrams.len(), to(190), to(191)), (739, 375, 364));
    }

    #[test]
    fn every_cut_of_a_real_frame_is_refused_or_shorter() {
        let Some(frames) =
            frames("every_cut_of_a_real_frame_is_refused_or_shorter", "cboe_pitch_realtime_20140901.pcap")
        else {
            return;
        };
        for len in 0..frames[0].len() {
            let datagram = EthernetFrame::parse(&frames[0][..len])
                .ok()
                .and_then(|frame| Ipv4Packet::parse(frame.payload).ok())
                .and_then(|packet| UdpHeader::parse(packet.payload).ok());
            // Only Ethernet's padding may be missing.
            let packet_len = 14 + usize::from(u16::from_be_bytes([frames[0][16], frames[0][17]]));
            assert_eq!(datagram.is_some(), len >= packet_len, "{len} bytes");
        }
    }
}
