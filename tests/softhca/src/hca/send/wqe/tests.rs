#![allow(clippy::unwrap_used)] // a panic here is the report

use crate::hca::send::rig::{BUFFER_LEN, Rig, ethernet, ethernet_inline, frame, inline, pointer};
use crate::hca::{AccessFlags, Config, MrRequest};
use proptest::prelude::*;

const OPERATION: u8 = 0x02;
const LENGTH: u8 = 0x01;
const PROTECTION: u8 = 0x04;

/// One wrong WQE: it fails with this syndrome and vendor's number, and the sentence names the
/// mistake.
#[track_caller]
fn check(config: Config, spoil: impl FnOnce(&Rig) -> Vec<u8>, expected: (u8, u8), sentence: &str) {
    let mut rig = Rig::new(config);
    let wqe = spoil(&rig);
    rig.submit(&wqe);
    let cqe = rig.cqe().unwrap();
    let diagnosis = rig.hca.take_diagnosis().unwrap_or_default();
    assert_eq!((cqe.opcode, cqe.syndrome, cqe.vendor), (13, expected.0, expected.1), "{diagnosis}");
    assert!(diagnosis.contains(sentence), "{diagnosis}");
    assert_eq!(rig.frames().len(), 0, "nothing was sent");
}

/// A good WQE with some bytes of it changed.
#[track_caller]
fn check_bytes(changes: &[(usize, u8)], expected: (u8, u8), sentence: &str) {
    let spoil = |rig: &Rig| {
        let mut wqe = rig.send_wqe(&frame(64));
        for (at, byte) in changes {
            wqe[*at] = *byte;
        }
        wqe
    };
    check(Config::default(), spoil, expected, sentence);
}

#[test]
fn opmod_must_be_0() {
    check_bytes(&[(0, 1)], (OPERATION, 0x11), "opmod is 0x01");
}

#[test]
fn wqe_index_must_be_the_position() {
    check_bytes(&[(2, 7)], (OPERATION, 0x12), "wqe_index is 7, but the WQE lies at 0");
    check_bytes(&[(1, 1)], (OPERATION, 0x12), "wqe_index is 256");
}

#[test]
fn only_what_a_raw_packet_queue_does_is_executed() {
    for opcode in (0..=255).filter(|opcode| ![0x00, 0x0a, 0x0e, 0x29].contains(opcode)) {
        check_bytes(&[(3, opcode)], (OPERATION, 0x10), &format!("opcode {opcode:#04x}"));
    }
}

#[test]
fn what_is_not_announced_is_not_executed() {
    let without = Config { multi_packet_send: false, tso_len_max: 0, ..Config::default() };
    for opcode in [0x0e, 0x29] {
        check(
            without.clone(),
            |rig| rig.wqe(opcode, &[&ethernet(0), &rig.pointer(0, 64)]),
            (OPERATION, 0x10),
            "opcode",
        );
    }
}

#[test]
fn the_queue_number_must_be_its_own() {
    check_bytes(&[(6, 0x77)], (OPERATION, 0x13), "qpn is");
}

#[test]
fn ds_is_checked_against_what_follows() {
    check_bytes(&[(7, 64)], (OPERATION, 0x14), "ds is 64");
    check_bytes(&[(7, 255)], (OPERATION, 0x14), "ds is 255");
    check_bytes(&[(7, 1)], (OPERATION, 0x14), "ds is 1");
    check_bytes(&[(7, 2)], (LENGTH, 0x34), "the frame has 0 bytes");
    check_bytes(&[(7, 4)], (LENGTH, 0x31), "the pointer in unit 3 has byte_count 0");
    check_bytes(&[(7, 5)], (OPERATION, 0x15), "the WQE has 2 WQEBBs, but the doorbell record released only 1");
    check_bytes(&[(7, 0)], (OPERATION, 0x15), "the WQE has 16 WQEBBs");
}

#[test]
fn reserved_bits_of_the_control_segment_must_be_0() {
    check_bytes(&[(8, 0x5a)], (OPERATION, 0x16), "signature is 0x5a");
    check_bytes(&[(9, 1)], (OPERATION, 0x17), "reserved bits");
    check_bytes(&[(10, 1)], (OPERATION, 0x17), "reserved bits");
    check_bytes(&[(11, 0x09)], (OPERATION, 0x17), "reserved bits");
    check_bytes(&[(11, 0x18)], (OPERATION, 0x17), "reserved bits");
    check_bytes(&[(11, 0xa8)], (OPERATION, 0x17), "reserved bits");
    check_bytes(&[(15, 1)], (OPERATION, 0x18), "imm is 0x1");
}

#[test]
fn fence_modes_do_nothing_on_ethernet() {
    for fence in 0..=4_u8 {
        let mut rig = Rig::new(Config::default());
        let mut wqe = rig.send_wqe(&frame(64));
        wqe[11] |= fence << 5;
        rig.submit(&wqe);
        assert_eq!(rig.frames().len(), 1, "fence mode {fence}");
    }
}

#[test]
fn the_ethernet_segment_holds_nothing_unknown() {
    for at in [16, 17, 18, 19, 21] {
        check_bytes(&[(at, 1)], (OPERATION, 0x20), "software parser");
    }
    check_bytes(&[(20, 0x01)], (OPERATION, 0x21), "cs_flags is 0x01");
    check_bytes(&[(23, 1)], (OPERATION, 0x22), "mss is 1");
    check_bytes(&[(28, 0x04)], (OPERATION, 0x23), "0x0400");
    check_bytes(&[(28, 0x80), (29, 0x02)], (OPERATION, 0x23), "0x8002");
}

#[test]
fn flow_metadata_is_the_drivers_own() {
    let mut rig = Rig::new(Config::default());
    let mut wqe = rig.send_wqe(&frame(64));
    wqe[24..28].fill(0xff);
    rig.submit(&wqe);
    assert_eq!(rig.frames().len(), 1);
}

#[test]
fn inline_headers_must_fit() {
    // ds 3 leaves 18 bytes behind the first 30.
    check_bytes(&[(29, 19)], (OPERATION, 0x24), "inline_hdr_sz is 19, but ds leaves room for 18");
    let mut rig = Rig::new(Config::default());
    let wqe = rig.wqe(0x0a, &[&ethernet_inline(0, 0, &frame(18))]);
    rig.submit(&wqe);
    assert_eq!(rig.frames()[0][..18], frame(18));
}

#[test]
fn small_inline_headers_stay_in_the_first_unit() {
    for len in [0, 1, 2] {
        let mut rig = Rig::new(Config::default());
        rig.memory.put(rig.buffer, &frame(70)[len..]);
        let wqe = rig.wqe(0x0a, &[&ethernet_inline(0, 0, &frame(len)), &rig.pointer(0, 70 - len as u32)]);
        assert_eq!(wqe.len(), 48);
        rig.submit(&wqe);
        assert_eq!(rig.frames(), [frame(70)], "{len} bytes inline");
    }
}

#[test]
fn a_nic_that_wants_headers_inline_gets_them() {
    let config = Config { inline_len_min: 18, ..Config::default() };
    check(config.clone(), |rig| rig.send_wqe(&frame(64)), (OPERATION, 0x25), "needs 18 bytes of header inline");
    let vlan = |rig: &Rig| {
        let mut wqe = rig.send_wqe(&frame(64));
        wqe[28] = 0x80;
        wqe
    };
    check(config.clone(), vlan, (OPERATION, 0x25), "needs 18");
    check(config.clone(), |rig| rig.wqe(0x29, &[&ethernet(0), &rig.pointer(0, 64)]), (OPERATION, 0x48), "multi-packet");
    let mut rig = Rig::new(config);
    rig.submit(&rig.wqe(0x0a, &[&ethernet_inline(0, 0, &frame(18)), &rig.pointer(0, 46)]));
    rig.submit(&rig.wqe(0x0a, &[&ethernet_inline(0, 0, &frame(16))])); // all of a short frame
    assert_eq!(rig.frames().len(), 2);
}

#[test]
fn an_inline_segment_must_fit_and_hold_something() {
    let with_len = |len: u32| {
        move |rig: &Rig| {
            let mut wqe = rig.wqe(0x0a, &[&ethernet(0), &inline(&frame(28))]);
            wqe[32..36].copy_from_slice(&(len | 1 << 31).to_be_bytes());
            wqe
        }
    };
    check(Config::default(), with_len(0), (OPERATION, 0x30), "an inline segment of 0 bytes");
    check(
        Config::default(),
        with_len(29),
        (OPERATION, 0x30),
        "an inline segment of 29 bytes, where ds leaves room for 1 to 28",
    );
    check(Config::default(), with_len(0x7fff_ffff), (OPERATION, 0x30), "an inline segment");
}

#[test]
fn what_pads_an_inline_segment_does_not_matter() {
    let mut rig = Rig::new(Config::default());
    let mut wqe = rig.wqe(0x0a, &[&ethernet(0), &inline(&frame(70)), &rig.pointer(0, 10)]);
    wqe[32 + 4 + 70..32 + 80].fill(0xff);
    rig.submit(&wqe);
    assert_eq!(rig.frames()[0].len(), 80);
}

#[test]
fn each_byte_of_a_pointer_must_be_registered() {
    let at = |offset: u64, len: u32| move |rig: &Rig| rig.wqe(0x0a, &[&ethernet(0), &rig.pointer(offset, len)]);
    let around = |rig: &Rig| rig.wqe(0x0a, &[&ethernet(0), &pointer(64, rig.lkey, u64::MAX)]);
    check(Config::default(), at(BUFFER_LEN - 63, 64), (PROTECTION, 0x32), "not all inside the region");
    check(Config::default(), around, (PROTECTION, 0x32), "unit 2 (64 bytes at");
    check(Config::default(), at(0, 0x7fff_ffff), (PROTECTION, 0x32), "not all inside the region");
    check(Config::default(), at(0, 0), (LENGTH, 0x31), "takes for 2 GB");
    let mut rig = Rig::new(Config::default());
    rig.submit(&at(BUFFER_LEN - 64, 64)(&rig));
    assert_eq!(rig.frames().len(), 1, "the last 64 bytes");
}

#[test]
fn a_key_must_be_registered_and_of_the_domain() {
    let terminator = |rig: &Rig| rig.wqe(0x0a, &[&ethernet(0), &pointer(64, 0x100, rig.buffer)]);
    check(Config::default(), terminator, (PROTECTION, 0x32), "lkey 0x100): no region is registered");

    let mut rig = Rig::new(Config::default());
    let pd = rig.hca.alloc_pd();
    let (start, access) = (rig.buffer, AccessFlags(1));
    rig.lkey = rig.hca.register_memory(&MrRequest { pd, start, len: 64, iova: start, access }).unwrap().lkey;
    rig.submit(&rig.send_wqe(&frame(64)));
    assert_eq!(rig.cqe().unwrap().syndrome, PROTECTION);
    assert!(rig.hca.take_diagnosis().unwrap().contains("another protection domain"));
}

#[test]
fn memory_that_may_only_be_read_may_be_sent() {
    let mut rig = Rig::new(Config::default());
    let (pd, start, access) = (rig.pd, rig.buffer, AccessFlags(0));
    rig.lkey = rig.hca.register_memory(&MrRequest { pd, start, len: 64, iova: start, access }).unwrap().lkey;
    rig.submit(&rig.send_wqe(&frame(64)));
    assert_eq!(rig.frames().len(), 1);
}

#[test]
fn memory_that_was_unmapped_behind_its_registration_is_an_error() {
    let mut rig = Rig::new(Config::default());
    let (pd, access) = (rig.pd, AccessFlags(1));
    let mr = rig.hca.register_memory(&MrRequest { pd, start: 0x1000, len: 4096, iova: 0x1000, access }).unwrap();
    rig.submit(&rig.wqe(0x0a, &[&ethernet(0), &pointer(64, mr.lkey, 0x1000)]));
    let cqe = rig.cqe().unwrap();
    assert_eq!((cqe.syndrome, cqe.vendor), (PROTECTION, 0x33));
}

#[test]
fn an_address_counts_from_the_regions_iova() {
    let mut rig = Rig::new(Config::default());
    let (pd, start, access) = (rig.pd, rig.buffer, AccessFlags(1));
    let mr = rig.hca.register_memory(&MrRequest { pd, start, len: 4096, iova: 0, access }).unwrap();
    rig.memory.put(rig.buffer + 8, &frame(64));
    rig.submit(&rig.wqe(0x0a, &[&ethernet(0), &pointer(64, mr.lkey, 8)]));
    assert_eq!(rig.frames(), [frame(64)]);
}

#[test]
fn a_frame_needs_an_ethernet_header() {
    check(Config::default(), |rig| rig.send_wqe(&frame(13)), (LENGTH, 0x34), "the frame has 13 bytes");
    let two = |rig: &Rig| rig.wqe(0x29, &[&ethernet(0), &rig.pointer(0, 64), &rig.pointer(0, 13)]);
    check(Config::default(), two, (LENGTH, 0x34), "the frame has 13 bytes");
}

#[test]
fn inline_and_pointer_segments_make_one_frame_in_their_order() {
    let mut rig = Rig::new(Config::default());
    let bytes = frame(200);
    rig.memory.put(rig.buffer, &bytes);
    let wqe = rig.wqe(
        0x0a,
        &[
            &ethernet_inline(0, 0, &bytes[..18]),
            &rig.pointer(18, 30),
            &inline(&bytes[48..90]),
            &rig.pointer(90, 100),
            &inline(&bytes[190..]),
        ],
    );
    rig.submit(&wqe);
    assert_eq!(rig.frames(), [bytes]);
}

#[test]
fn a_multi_packet_wqe_is_a_frame_a_segment_and_one_cqe() {
    let mut rig = Rig::new(Config::default());
    rig.memory.put(rig.buffer, &frame(400));
    let inline = inline(&frame(61));
    let wqe = rig.wqe(0x29, &[&ethernet(0), &rig.pointer(0, 60), &inline, &rig.pointer(100, 300)]);
    rig.submit(&wqe);
    assert_eq!(rig.frames(), [frame(60), frame(61), frame(400)[100..].to_vec()]);
    let cqes = rig.cqes();
    assert_eq!((cqes.len(), cqes[0].wqe_opcode), (1, 0x29));
}

#[test]
fn sixty_two_packets_fit_into_one_wqe() {
    let mut rig = Rig::new(Config::default());
    let mut segments = vec![ethernet(0)];
    segments.extend((0..62).map(|_| rig.pointer(0, 64)));
    let wqe = rig.wqe(0x29, &[&segments.concat()]);
    rig.submit(&wqe);
    assert_eq!((wqe.len(), rig.frames().len(), rig.cqes().len()), (1024, 62, 1));
}

#[test]
fn a_wqe_is_no_longer_than_the_nic_takes_it() {
    let config = Config { wqe_len_max: 512, ..Config::default() };
    let packets = |rig: &Rig, count: usize| {
        let segments = [vec![ethernet(0)], vec![rig.pointer(0, 64); count]].concat();
        rig.wqe(0x29, &[&segments.concat()])
    };
    check(
        config.clone(),
        |rig| packets(rig, 31),
        (OPERATION, 0x19),
        "528 bytes, and the longest that this NIC takes has 512",
    );
    let mut rig = Rig::new(config);
    let wqe = packets(&rig, 30);
    rig.submit(&wqe);
    assert_eq!((wqe.len(), rig.frames().len()), (512, 30));
}

#[test]
fn a_multi_packet_wqe_has_no_headers_of_its_own() {
    check(Config::default(), |rig| rig.wqe(0x29, &[&ethernet(0)]), (OPERATION, 0x14), "ds is 2");
    let headers = |rig: &Rig| rig.wqe(0x29, &[&ethernet_inline(0, 0, &frame(18)), &rig.pointer(0, 64)]);
    check(Config::default(), headers, (OPERATION, 0x48), "multi-packet");
    let vlan = |rig: &Rig| {
        let mut wqe = rig.wqe(0x29, &[&ethernet(0), &rig.pointer(0, 64)]);
        wqe[28] = 0x80;
        wqe
    };
    check(Config::default(), vlan, (OPERATION, 0x48), "multi-packet");
}

#[test]
fn one_packet_too_long_does_not_stop_the_others() {
    let mut rig = Rig::new(Config::default());
    let wqe = rig.wqe(0x29, &[&ethernet(0), &rig.pointer(0, 64), &rig.pointer(0, 1600), &rig.pointer(0, 65)]);
    rig.submit(&wqe);
    assert_eq!(rig.frames().iter().map(Vec::len).collect::<Vec<_>>(), [64, 65]);
    assert_eq!((rig.hca.counters().tx_oversize, rig.cqes()[0].opcode), (1, 0));
}

/// Whatever bytes are in the ring, the record and the registers: no panic, no frame longer than the
/// port carries, and the queue can be recovered.
fn survives(strict: bool, bytes: impl FnOnce(&Rig) -> Vec<u8>, record: u16, register: Option<u64>) {
    let mut rig = Rig::new(Config { strict, ..Config::default() });
    let bytes = bytes(&rig);
    rig.memory.put(rig.ring, &bytes);
    rig.memory.put_be32(rig.doorbell, u32::from(record));
    match register {
        Some(register) => rig.memory.put_be64(rig.uar + 0x800, register),
        None => rig.memory.put(rig.uar + 0x800, &bytes[..8]),
    }
    for _ in 0..100 {
        if rig.step() == 0 {
            break;
        }
    }
    assert!(rig.frames().iter().all(|frame| (60..=1518).contains(&frame.len())));
    rig.cqes();
    rig.memory.put(rig.uar + 0x800, &[0; 256]);
    rig.make_ready();
    rig.submit(&rig.send_wqe(&frame(64)));
    assert_eq!(rig.cqe().unwrap().opcode, 0);
}

/// A WQE at the beginning of the ring with segments that may be good.
#[derive(Clone, Debug)]
struct Almost {
    opcode: u8,
    ds: u8,
    ethernet: [u8; 16],
    units: Vec<(u32, bool, [u8; 12])>,
}

fn almost_a_wqe() -> impl Strategy<Value = Almost> {
    let opcode = prop_oneof![4 => Just(0x0a_u8), 2 => Just(0x0e), 2 => Just(0x29), 1 => any::<u8>()];
    let good =
        (prop_oneof![Just(0_u8), Just(0xc0)], 0..100_u8, any::<[u8; 2]>()).prop_map(|(checksums, len, first)| {
            let mut segment = ethernet(checksums);
            (segment[13], segment[14], segment[15]) = (len, first[0], first[1]);
            segment
        });
    let ethernet = prop_oneof![4 => good, 1 => any::<[u8; 16]>()];
    let word = prop_oneof![(1..100_u32).prop_map(|len| len | 1 << 31), 1..2000_u32, any::<u32>()];
    let unit = (word, prop::bool::weighted(0.9), any::<[u8; 12]>());
    let units = prop::collection::vec(unit, 62);
    (opcode, 0..=63_u8, ethernet, units).prop_map(|(opcode, ds, ethernet, units)| Almost {
        opcode,
        ds,
        ethernet,
        units,
    })
}

impl Almost {
    fn bytes(&self, rig: &Rig) -> Vec<u8> {
        let mut wqe = u32::from(self.opcode).to_be_bytes().to_vec();
        wqe.extend((rig.number << 8 | u32::from(self.ds)).to_be_bytes());
        wqe.extend([0, 0, 0, 8, 0, 0, 0, 0]);
        wqe.extend(self.ethernet);
        if self.opcode == 0x0e {
            wqe[22..24].copy_from_slice(&[0, self.ds]); // an mss
        }
        for (word, is_registered, rest) in &self.units {
            if *is_registered {
                wqe.extend(pointer(*word, rig.lkey, rig.buffer + u64::from(rest[0])));
            } else {
                wqe.extend(word.to_be_bytes());
                wqe.extend(rest);
            }
        }
        wqe
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_in_the_ring_do_no_harm(
        bytes in prop::collection::vec(any::<u8>(), 64..4096),
        record in prop_oneof![0..=64_u16, any::<u16>()],
        register in any::<u64>(),
        strict in any::<bool>(),
    ) {
        survives(strict, |_| bytes, record, Some(register));
    }

    #[test]
    fn almost_good_wqes_do_no_harm(wqe in almost_a_wqe(), record in 1..=64_u16, strict in any::<bool>()) {
        survives(strict, |rig| wqe.bytes(rig), record, None);
    }
}
