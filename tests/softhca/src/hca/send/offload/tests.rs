#![allow(clippy::unwrap_used)] // a panic here is the report

use crate::hca::Config;
use crate::hca::send::rig::{Rig, ethernet, ethernet_inline, inline};
use etherparse::{PacketBuilder, SlicedPacket, TransportSlice};

const MACS: ([u8; 6], [u8; 6]) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
const TCP_FLAGS: usize = 13;

fn payload(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + 3) as u8).collect()
}

fn udp4(len: usize) -> Vec<u8> {
    let mut frame = Vec::new();
    let builder = PacketBuilder::ethernet2(MACS.0, MACS.1).ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64).udp(5000, 6000);
    builder.write(&mut frame, &payload(len)).unwrap();
    frame
}

fn tcp4(len: usize) -> Vec<u8> {
    let mut frame = Vec::new();
    let builder = PacketBuilder::ethernet2(MACS.0, MACS.1).ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64);
    builder.tcp(5000, 6000, 0xffff_f000, 512).psh().fin().write(&mut frame, &payload(len)).unwrap();
    frame
}

fn udp6(len: usize) -> Vec<u8> {
    let mut frame = Vec::new();
    let builder = PacketBuilder::ethernet2(MACS.0, MACS.1).ipv6([1; 16], [2; 16], 64).udp(5000, 6000);
    builder.write(&mut frame, &payload(len)).unwrap();
    frame
}

fn tagged(len: usize) -> Vec<u8> {
    let mut frame = Vec::new();
    let vlan = etherparse::VlanId::try_new(7).unwrap();
    let builder = PacketBuilder::ethernet2(MACS.0, MACS.1).single_vlan(vlan).ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64);
    builder.udp(5000, 6000).write(&mut frame, &payload(len)).unwrap();
    frame
}

/// Sends `frame` with these flags and returns the received frame.
#[track_caller]
fn send(frame: &[u8], flags: u8) -> (Vec<u8>, Rig) {
    let mut rig = Rig::new(Config::default());
    rig.memory.put(rig.buffer, frame);
    let wqe = rig.wqe(0x0a, &[&ethernet(flags), &rig.pointer(0, frame.len() as u32)]);
    rig.submit(&wqe);
    let frames = rig.frames();
    assert_eq!(frames.len(), 1, "{:?}", rig.hca.take_diagnosis());
    (frames[0].clone(), rig)
}

/// `good` with other bytes in its checksum fields comes out as `good`.
#[track_caller]
fn check(good: &[u8], l3: Option<usize>, l4: usize) {
    let mut spoilt = good.to_vec();
    let mut flags = 0x80;
    if let Some(l3) = l3 {
        spoilt[l3..l3 + 2].fill(0x55);
        flags |= 0x40;
    }
    spoilt[l4..l4 + 2].fill(0xaa);
    let (sent, rig) = send(&spoilt, flags);
    assert_eq!(sent, good);
    assert_eq!(rig.hca.counters().tx_checksum_not_filled, 0);
}

#[test]
fn checksums_are_whole_whatever_the_field_held() {
    for len in [18, 19, 64, 1400] {
        check(&udp4(len), Some(14 + 10), 14 + 20 + 6);
        check(&tcp4(len), Some(14 + 10), 14 + 20 + 16);
        check(&udp6(len), None, 14 + 40 + 6);
        check(&tagged(len), Some(18 + 10), 18 + 20 + 6);
    }
}

#[test]
fn without_flags_the_frame_goes_as_it_is() {
    let mut frame = udp4(30);
    frame[24..26].fill(0x55);
    frame[40..42].fill(0x55);
    assert_eq!(send(&frame, 0).0, frame);
}

#[test]
fn each_flag_fills_in_its_own_checksum() {
    let good = udp4(30);
    let mut spoilt = good.clone();
    spoilt[24..26].fill(0x55);
    spoilt[40..42].fill(0x55);
    let (l3, _) = send(&spoilt, 0x40);
    assert_eq!((&l3[24..26], &l3[40..42]), (&good[24..26], &[0x55, 0x55][..]));
    let (l4, _) = send(&spoilt, 0x80);
    assert_eq!((&l4[24..26], &l4[40..42]), (&[0x55, 0x55][..], &good[40..42]));
}

#[test]
fn padding_behind_the_packet_is_not_summed() {
    let good = [udp4(4), vec![0xee; 20]].concat();
    let mut spoilt = good.clone();
    spoilt[40..42].fill(0);
    assert_eq!(send(&spoilt, 0xc0).0, good);
}

#[test]
fn a_udp_checksum_of_0_goes_out_as_ffff() {
    // The payload is chosen so that the sum is 0xffff, and its complement 0.
    let mut frame = udp4(20);
    frame[40..42].fill(0);
    frame[42..44].fill(0);
    let (first, _) = send(&frame, 0x80);
    frame[42..44].copy_from_slice(&first[40..42]);
    let (second, _) = send(&frame, 0x80);
    assert_eq!(second[40..42], [0xff, 0xff]);
}

#[test]
fn what_has_no_such_checksum_is_counted_and_sent_as_it_is() {
    let arp = [&[0xff; 6][..], &[2, 0, 0, 0, 0, 1, 0x08, 0x06], &[0; 46]].concat();
    let mut fragment = udp4(30);
    fragment[20] = 0x20; // more fragments
    let mut short = udp4(30);
    short[16..18].copy_from_slice(&2000_u16.to_be_bytes());
    for frame in [arp, fragment, short] {
        let (sent, rig) = send(&frame, 0x80);
        assert_eq!(sent, frame);
        assert_eq!(rig.hca.counters().tx_checksum_not_filled, 1);
    }
}

#[test]
fn a_tag_goes_behind_the_addresses_and_checksums_stay_right() {
    for (word, ether_type) in [([0x80, 0x00], [0x81, 0x00]), ([0x80, 0x01], [0x88, 0xa8])] {
        let good = udp4(64);
        let mut spoilt = good.clone();
        spoilt[40..42].fill(0);
        let mut rig = Rig::new(Config::default());
        rig.memory.put(rig.buffer, &spoilt);
        let mut segment = ethernet(0xc0);
        segment[12..14].copy_from_slice(&word);
        segment[14..16].copy_from_slice(&[0x60, 0x07]);
        let wqe = rig.wqe(0x0a, &[&segment, &rig.pointer(0, spoilt.len() as u32)]);
        rig.submit(&wqe);
        let expected = [&good[..12], &ether_type, &[0x60, 0x07], &good[12..]].concat();
        assert_eq!(rig.frames(), [expected]);
    }
}

#[test]
fn a_tag_must_fit_into_the_mtu_as_well() {
    let mut rig = Rig::new(Config::default());
    let mut segment = ethernet(0);
    segment[12] = 0x80;
    rig.submit(&rig.wqe(0x0a, &[&segment, &rig.pointer(0, 1515)]));
    assert_eq!((rig.frames().len(), rig.hca.counters().tx_oversize), (0, 1));
    rig.submit(&rig.wqe(0x0a, &[&segment, &rig.pointer(0, 1514)]));
    assert_eq!(rig.frames()[0].len(), 1518);
}

/// Sends `len` bytes of payload after the headers of `template`, and returns the frames.
fn tso(template: &[u8], header_len: usize, len: usize, mss: u16) -> (Vec<Vec<u8>>, Rig) {
    let mut rig = Rig::new(Config::default());
    rig.memory.put(rig.buffer, &payload(len));
    let half = len as u32 / 2;
    let segments = ethernet_inline(0xc0, mss, &template[..header_len]);
    let wqe = rig.wqe(0x0e, &[&segments, &rig.pointer(0, half), &rig.pointer(u64::from(half), len as u32 - half)]);
    rig.submit(&wqe);
    (rig.frames(), rig)
}

#[test]
fn a_stream_is_cut_at_the_mss_and_each_frame_is_whole() {
    let (frames, mut rig) = tso(&tcp4(0), 54, 20_000, 1460);
    assert_eq!(frames.len(), 14, "mlx5.md 2.5");
    let mut stream = Vec::new();
    for (nth, frame) in frames.iter().enumerate() {
        let packet = SlicedPacket::from_ethernet(frame).unwrap();
        let Some(etherparse::NetSlice::Ipv4(ip)) = &packet.net else { panic!("frame {nth} is not IPv4") };
        let Some(TransportSlice::Tcp(tcp)) = &packet.transport else { panic!("frame {nth} is not TCP") };
        assert_eq!(ip.header().total_len() as usize, frame.len() - 14);
        assert_eq!(ip.header().header_checksum(), ip.header().to_header().calc_header_checksum(), "frame {nth}");
        assert_eq!(ip.header().identification(), nth as u16);
        let header = tcp.to_header();
        assert_eq!(header.sequence_number, 0xffff_f000_u32.wrapping_add(stream.len() as u32));
        assert_eq!(header.checksum, header.calc_checksum_ipv4(&ip.header().to_header(), tcp.payload()).unwrap());
        assert_eq!((header.fin, header.psh), (nth == 13, nth == 13), "only the last one ends the stream");
        stream.extend_from_slice(tcp.payload());
    }
    assert_eq!(stream, payload(20_000));
    let cqes = rig.cqes();
    assert_eq!((cqes.len(), cqes[0].wqe_opcode, cqes[0].opcode), (1, 0x0e, 0));
}

#[test]
fn over_ipv6_the_payload_len_is_that_of_each_frame() {
    let mut template = Vec::new();
    let builder = PacketBuilder::ethernet2(MACS.0, MACS.1).ipv6([1; 16], [2; 16], 64);
    builder.tcp(5000, 6000, 7, 512).write(&mut template, &[]).unwrap();
    let (frames, _) = tso(&template, 74, 3_000, 1440);
    let lens: Vec<_> = frames.iter().map(Vec::len).collect();
    assert_eq!(lens, [74 + 1440, 74 + 1440, 74 + 120]);
    for frame in &frames {
        let packet = SlicedPacket::from_ethernet(frame).unwrap();
        let Some(etherparse::NetSlice::Ipv6(ip)) = &packet.net else { panic!("not IPv6") };
        let Some(TransportSlice::Tcp(tcp)) = &packet.transport else { panic!("not TCP") };
        assert_eq!(ip.header().payload_length() as usize, frame.len() - 54);
        let header = tcp.to_header();
        assert_eq!(header.checksum, header.calc_checksum_ipv6(&ip.header().to_header(), tcp.payload()).unwrap());
    }
}

#[test]
fn congestion_window_reduced_is_said_once() {
    let mut template = tcp4(0);
    template[34 + TCP_FLAGS] |= 0x80;
    let (frames, _) = tso(&template, 54, 3_000, 1460);
    let reduced: Vec<_> = frames.iter().map(|frame| frame[34 + TCP_FLAGS] & 0x80 != 0).collect();
    assert_eq!(reduced, [true, false, false]);
}

#[track_caller]
fn check_refused(template: &[u8], header_len: usize, len: usize, mss: u16, vendor: u8) {
    let (frames, mut rig) = tso(template, header_len, len, mss);
    let cqe = rig.cqe().unwrap();
    assert_eq!((frames.len(), cqe.opcode, cqe.vendor), (0, 13, vendor), "{:?}", rig.hca.take_diagnosis());
}

#[test]
fn headers_that_tso_cannot_use_are_refused() {
    check_refused(&tcp4(8), 55, 3_000, 1460, 0x40); // one byte too many
    check_refused(&tcp4(8), 53, 3_000, 1460, 0x40); // one too few
    check_refused(&udp4(8), 42, 3_000, 1460, 0x40); // not TCP
    check_refused(&tcp4(8), 0, 3_000, 1460, 0x40);
    check_refused(&tcp4(8), 54, 3_000, 0, 0x22); // no mss
}

#[test]
fn a_payload_beyond_what_is_announced_is_refused() {
    let (frames, _) = tso(&tcp4(0), 54, 262_144, 1460);
    assert_eq!(frames.len(), 180);
    check_refused(&tcp4(0), 54, 262_145, 1460, 0x41);
    let mut rig = Rig::new(Config::default());
    rig.submit(&rig.wqe(0x0e, &[&ethernet_inline(0xc0, 1460, &tcp4(0)[..54])]));
    assert_eq!(rig.cqe().unwrap().vendor, 0x41, "no payload at all");
}

#[test]
fn an_mss_beyond_the_mtu_loses_its_frames() {
    let (frames, rig) = tso(&tcp4(0), 54, 4_000, 2_000);
    assert_eq!((frames.len(), rig.hca.counters().tx_oversize), (0, 2));
}

#[test]
fn a_busy_wire_keeps_the_order_of_a_burst() {
    let mut rig = Rig::new(Config::default());
    rig.here.frames_max = 3;
    rig.memory.put(rig.buffer, &payload(20_000));
    rig.post(&rig.wqe(0x0e, &[&ethernet_inline(0xc0, 1460, &tcp4(0)[..54]), &rig.pointer(0, 20_000)]));
    rig.post(&rig.wqe(0x0a, &[&ethernet(0), &inline(&[9; 64])]));
    rig.record();
    let mut frames = Vec::new();
    for _ in 0..10 {
        rig.step();
        frames.extend(rig.frames());
    }
    let ids: Vec<_> = frames[..14].iter().map(|frame| u16::from_be_bytes([frame[18], frame[19]])).collect();
    assert_eq!(ids, (0..14).collect::<Vec<_>>());
    assert_eq!(frames[14], [9; 64]);
    assert_eq!(rig.cqes().len(), 2);
}
