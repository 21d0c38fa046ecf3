#![allow(clippy::unwrap_used)] // a panic here is the report
use crate::hca::receive::frames::{Frame, TCP, slow_sum};
use crate::hca::receive::verdict::*;
use crate::hca::send::offload;
use proptest::prelude::*;

const ALL_OK: u8 = L2_OK | L3_OK | L4_OK;

fn verdict(frame: &[u8]) -> Verdict {
    Verdict::of(&Headers::parse(frame).unwrap(), frame)
}

/// Bytes 28 and 29 for this frame.
#[track_caller]
fn check(frame: Frame, verdicts: u8, types: u8) {
    let found = verdict(&frame.bytes());
    assert_eq!((found.verdicts, found.types), (verdicts, types), "{frame:?}");
}

fn v6() -> Frame {
    Frame { src: "2001:db8::1", dst: "2001:db8::2", ..Frame::default() }
}

/// A destination extension without meaning.
const DESTINATION: [u8; 8] = [17, 0, 1, 4, 0, 0, 0, 0];

#[test]
fn udp_over_both_kinds_of_ip_is_right() {
    check(Frame::default(), ALL_OK, 2 << 4 | 2 << 2);
    check(v6(), ALL_OK, 2 << 4 | 1 << 2);
}

#[test]
fn tcp_is_told_apart_by_acknowledgment_and_data() {
    for (tcp_flags, payload, l4) in [(0x10, 0, 3), (0x18, 7, 4), (0x02, 0, 1), (0x12, 0, 1), (0x11, 7, 1), (0x04, 0, 1)]
    {
        let frame = Frame { protocol: TCP, tcp_flags, payload: vec![9; payload], ..Frame::default() };
        check(frame.clone(), ALL_OK, l4 << 4 | 2 << 2);
        check(Frame { src: v6().src, dst: v6().dst, ..frame }, ALL_OK, l4 << 4 | 1 << 2);
    }
}

#[test]
fn another_protocol_has_no_l4() {
    check(Frame { protocol: 1, ..Frame::default() }, L2_OK | L3_OK, 2 << 2);
}

#[test]
fn padding_behind_the_packet_counts_for_nothing() {
    let short = Frame { payload: vec![1], ..Frame::default() };
    let padded = Frame { padding: 17, ..short.clone() };
    check(padded.clone(), ALL_OK, 2 << 4 | 2 << 2);
    assert_eq!(verdict(&padded.bytes()).checksum, verdict(&short.bytes()).checksum);
}

#[test]
fn udp_without_a_checksum_is_right_in_ipv4_only() {
    check(Frame { no_checksum: true, ..Frame::default() }, ALL_OK, 2 << 4 | 2 << 2);
    let mut frame = v6().bytes();
    frame[14 + 40 + 6..][..2].fill(0);
    assert_eq!(verdict(&frame).verdicts, L2_OK | L3_OK);
}

#[test]
fn options_and_extensions_are_told() {
    check(Frame { options: vec![1; 8], ..Frame::default() }, ALL_OK, 2 << 4 | 2 << 2 | HAS_OPTIONS);
    let extended = Frame { options: DESTINATION.to_vec(), next_header: Some(60), ..v6() };
    check(extended, ALL_OK, 2 << 4 | 1 << 2 | HAS_OPTIONS);
}

#[test]
fn a_fragment_has_no_l4_also_the_first_one() {
    for fragment in [0x2000, 0x0001, 0x1fff] {
        check(Frame { fragment, ..Frame::default() }, L2_OK | L3_OK, 2 << 2 | IS_FRAGMENT);
    }
    check(Frame { fragment: 0x4000, ..Frame::default() }, ALL_OK, 2 << 4 | 2 << 2); // "do not fragment"
    let fragment = Frame { options: vec![17, 0, 0, 1, 0, 0, 0, 9], next_header: Some(44), ..v6() };
    check(fragment, L2_OK | L3_OK, 1 << 2 | HAS_OPTIONS | IS_FRAGMENT);
}

#[test]
fn tags_are_looked_behind() {
    let tagged = Frame { vlan: Some(0x2064), ..Frame::default() };
    assert_eq!(Headers::parse(&tagged.bytes()).unwrap().vlan, Some(0x2064));
    check(tagged.clone(), ALL_OK, 2 << 4 | 2 << 2);
    let twice = Frame { service_vlan: Some(5), ..tagged };
    assert_eq!(Headers::parse(&twice.bytes()).unwrap().vlan, None, "the outer one is not a C-VLAN's");
    check(twice, ALL_OK, 2 << 4 | 2 << 2);
}

#[test]
fn any_wrong_bit_of_the_ip_header_or_the_segment_is_found() {
    let frame = Frame::default().bytes();
    for bit in 14 * 8..frame.len() * 8 {
        let mut wrong = frame.clone();
        wrong[bit / 8] ^= 0x80 >> (bit % 8);
        let found = verdict(&wrong).verdicts;
        assert_ne!(found, ALL_OK, "bit {bit}");
        // The payload is not covered by the header's checksum, and the payload's checksum does not
        // cover all header fields.
        let in_addresses = (14 + 12) * 8..(14 + 20) * 8;
        if bit >= (14 + 20) * 8 {
            assert_eq!(found, L2_OK | L3_OK, "bit {bit}");
        } else if in_addresses.contains(&bit) {
            assert_eq!(found, L2_OK, "bit {bit}");
        }
    }
}

#[test]
fn a_packet_longer_than_its_frame_is_wrong() {
    let mut frame = Frame::default().bytes();
    frame.pop();
    // The findings about its headers are reported nevertheless.
    assert_eq!((verdict(&frame).verdicts, verdict(&frame).types), (L2_OK, 2 << 4 | 2 << 2));
    let mut frame = v6().bytes();
    frame.pop();
    assert_eq!((verdict(&frame).verdicts, verdict(&frame).types), (L2_OK, 2 << 4 | 1 << 2));
}

#[test]
fn what_is_not_ip_has_only_a_sum() {
    let mut arp = vec![0xff; 12];
    arp.extend([0x08, 0x06]);
    arp.extend(0..46);
    let found = verdict(&arp);
    assert_eq!((found.verdicts, found.types, found.checksum), (L2_OK, 0, slow_sum(&arp[14..])));
}

#[test]
fn less_than_an_ethernet_header_is_no_frame() {
    assert_eq!(Headers::parse(&[0; 13]), None);
    assert_eq!(verdict(&[0; 14]), Verdict { verdicts: L2_OK, types: 0, checksum: 0 });
}

proptest! {
    /// The sum covers the bytes after L2, to the end that IP states.
    #[test]
    fn the_sum_is_the_slow_one(payload in proptest::collection::vec(any::<u8>(), 0..200), padding in 0..20_usize) {
        let frame = Frame { payload, padding, ..Frame::default() }.bytes();
        prop_assert_eq!(verdict(&frame).checksum, slow_sum(&frame[14..frame.len() - padding]));
    }

    /// Two readings of the same RFCs: the receiving side accepts the checksums that the sending
    /// side fills in.
    #[test]
    fn the_checksum_offload_fills_in_what_is_found_right(
        payload in proptest::collection::vec(any::<u8>(), 0..200),
        garbage in any::<u16>(),
        is_tcp in any::<bool>(),
        is_v6 in any::<bool>(),
        vlan in proptest::option::of(any::<u16>()),
    ) {
        let base = if is_v6 { v6() } else { Frame::default() };
        let protocol = if is_tcp { TCP } else { 17 };
        let mut bytes = Frame { payload, protocol, vlan, ..base }.bytes();
        let headers = Headers::parse(&bytes).unwrap();
        let field = headers.l4_offset + if is_tcp { 16 } else { 6 };
        bytes[field..field + 2].copy_from_slice(&garbage.to_be_bytes());
        if !is_v6 {
            bytes[headers.l3_offset + 10..][..2].copy_from_slice(&garbage.to_be_bytes());
        }
        prop_assert!(offload::fill_checksums(&mut bytes, offload::L3 | offload::L4));
        prop_assert_eq!(verdict(&bytes).verdicts, ALL_OK);
    }

    /// Whatever a frame holds, the found headers are inside it.
    #[test]
    fn any_bytes_are_survived(mut frame in proptest::collection::vec(any::<u8>(), 14..120), kind in 0..5_usize) {
        let ether_type = [[0x08, 0x00], [0x86, 0xdd], [0x81, 0x00], [0x88, 0xa8], [0, 0]][kind];
        frame[12..14].copy_from_slice(&ether_type);
        if let Some(version) = frame.get_mut(14) {
            *version = *version & 0x0f | [0x40, 0x60, 0, 0, 0][kind];
        }
        let headers = Headers::parse(&frame).unwrap();
        prop_assert!(headers.l3_offset <= headers.l4_offset);
        prop_assert!(headers.l4_offset <= headers.l3_end && headers.l3_end <= frame.len());
        let _ = Verdict::of(&headers, &frame);
    }
}
