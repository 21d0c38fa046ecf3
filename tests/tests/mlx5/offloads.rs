//! Offloads and metadata of the mlx5 device, from one strict software ConnectX to another: VLAN
//! tags, timestamps, checksums, segmentation. Each test starts itself again under `softhca run`.
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::net::SocketAddrV4;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use softhca::testing::is_inside;
use wirepath::device::mlx5::{Feature, Mlx5Config, Pace, RssConfig, RxDistribution};
use wirepath::device::steering::Rule;
use wirepath::device::{Offload, TxQueue};
use wirepath::mem::{ChecksumStatus, Mbuf};
use wirepath::wire::{EtherType, VlanTag, VlanTags};
use wirepath_tests::connectx::{End, config};
use wirepath_tests::frames::Frame;
use wirepath_tests::nic;
use wirepath_tests::rig::{OURS, PEER};

/// Turns after which nothing more comes.
const DRY: usize = 8;

fn inside(test: &str) -> bool {
    is_inside(test, &["--strict", "--devices", "2", "--manual"])
}

fn pair(change: impl Fn(Mlx5Config) -> Mlx5Config) -> (End, End) {
    let (_, near) = End::alone(&change(config("mlx5_0")), &[]);
    let (_, far) = End::alone(&change(config("mlx5_1")), &[Rule::ALL]);
    (near, far)
}

fn datagram(payload: &[u8]) -> Frame {
    let source = SocketAddrV4::new(PEER, 7_000);
    Frame { source, ..Frame::to(OURS, 9_000, payload) }
}

/// Sends one frame with its offloads, and passes the arrived one to `look`.
fn send(near: &mut End, far: &mut End, frame: &[u8], offload: Offload, mut look: impl FnMut(&Mbuf)) -> usize {
    let mut mbuf = near.pool.alloc_copy(frame).unwrap();
    mbuf.set_l2_len(14);
    mbuf.set_l3_len(20);
    near.tx.post(mbuf, offload).map_err(Mbuf::free).unwrap();
    near.burst().drain(..).for_each(Mbuf::free);
    let (mut count, mut dry) = (0, 0);
    while dry < DRY {
        let mut burst = far.burst();
        dry = if burst.is_empty() { dry + 1 } else { 0 };
        for mbuf in burst.drain(..) {
            look(&mbuf);
            mbuf.free();
            count += 1;
        }
    }
    count
}

fn is_clean(near: End, far: End) {
    near.close();
    far.close();
    assert_eq!(nic::diagnoses(), Vec::<String>::new());
}

fn unix_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64
}

#[test]
fn tag_that_is_inserted_is_stripped_at_the_other_end() {
    if !inside("tag_that_is_inserted_is_stripped_at_the_other_end") {
        return;
    }
    let frame = datagram(&[7; 40]).emit();
    let tagged = Frame { tags: VlanTags::single(VlanTag::new(0x123)), ..datagram(&[7; 40]) }.emit();
    let offload = Offload::NONE.with_vlan(0x123);
    let (mut near, mut far) = pair(|config| config);
    let count = send(&mut near, &mut far, &frame, offload, |mbuf| {
        assert_eq!((mbuf.vlan(), mbuf.bytes()), (None, &tagged[..]));
    });
    assert_eq!(count, 1);
    is_clean(near, far);

    let hash = RxDistribution::Rss(RssConfig::default());
    for (rx_distribution, striding) in
        [(RxDistribution::Rules, Feature::Off), (hash, Feature::Off), (RxDistribution::Rules, Feature::Required)]
    {
        let (mut near, mut far) =
            pair(|config| Mlx5Config { vlan_stripping: Feature::Required, rx_distribution, striding, ..config });
        for (sent, offload) in [(&frame, offload), (&tagged, Offload::NONE)] {
            let count = send(&mut near, &mut far, sent, offload, |mbuf| {
                assert_eq!((mbuf.vlan(), mbuf.bytes()), (Some(0x123), &frame[..]));
            });
            assert_eq!(count, 1);
        }
        let count = send(&mut near, &mut far, &frame, Offload::NONE, |mbuf| assert_eq!(mbuf.vlan(), None));
        assert_eq!(count, 1);
        is_clean(near, far);
    }
}

#[test]
fn frames_tell_when_they_left_and_when_they_came() {
    if !inside("frames_tell_when_they_left_and_when_they_came") {
        return;
    }
    let (mut near, mut far) = pair(|config| Mlx5Config { timestamps: Feature::Required, ..config });
    let frame = datagram(&[1; 40]).emit();
    let (before, mut last) = (unix_ns(), 0);
    for sequence in 0..20 {
        let offload = Offload::TIMESTAMP;
        let mut arrived = 0;
        let count = send(&mut near, &mut far, &frame, offload, |mbuf| {
            arrived = mbuf.timestamp().expect("a frame without its time").as_nanos();
        });
        assert_eq!(count, 1);
        near.burst().drain(..).for_each(Mbuf::free);
        let left = near.tx.take_timestamp().expect("it does not say when it left");
        assert_eq!(left.sequence, sequence);
        assert!(last < left.at.as_nanos() && left.at.as_nanos() <= arrived, "{last}, {left:?}, {arrived}");
        last = arrived;
    }
    // Both clocks are this machine's, one by way of the NIC's cycles.
    let slack = 1_000_000_000;
    assert!(before - slack < last && last < unix_ns() + slack, "{before}, {last}, {}", unix_ns());
    is_clean(near, far);
}

#[test]
fn raw_times_are_counts_of_the_clock() {
    if !inside("raw_times_are_counts_of_the_clock") {
        return;
    }
    let raw = |config| Mlx5Config { timestamps: Feature::Required, raw_timestamps: true, ..config };
    let (mut near, mut far) = pair(raw);
    let mut last = 0;
    for _ in 0..5 {
        send(&mut near, &mut far, &datagram(&[1; 40]).emit(), Offload::NONE, |mbuf| {
            assert_eq!(mbuf.timestamp(), None);
            let ticks = mbuf.ticks().expect("a frame without its count");
            assert!(ticks > last);
            last = ticks;
        });
    }
    let asking = Offload::TIMESTAMP;
    send(&mut near, &mut far, &datagram(&[1; 40]).emit(), asking, |_| ());
    near.burst().drain(..).for_each(Mbuf::free);
    assert_eq!(near.tx.take_timestamp(), None);
    assert!(near.tx.take_ticks().is_some_and(|(sequence, ticks)| sequence == 0 && ticks > last));
    is_clean(near, far);
}

#[test]
fn checksums_are_filled_in_and_verified() {
    if !inside("checksums_are_filled_in_and_verified") {
        return;
    }
    let (mut near, mut far) = pair(|config| config);
    let right = datagram(&[5; 41]).emit();
    let mut blank = right.clone();
    blank[24..26].fill(0);
    blank[40..42].fill(0xff);
    let offload = Offload::IP_CHECKSUM | Offload::L4_CHECKSUM;
    let count = send(&mut near, &mut far, &blank, offload, |mbuf| {
        assert_eq!(mbuf.bytes(), right);
        assert_eq!((mbuf.ip_checksum(), mbuf.l4_checksum()), (ChecksumStatus::Good, ChecksumStatus::Good));
    });
    assert_eq!(count, 1);
    // A damaged frame arrives, and is not reported as correct.
    for damaged in [24, 41] {
        let mut frame = right.clone();
        frame[damaged] ^= 1;
        let count = send(&mut near, &mut far, &frame, Offload::NONE, |mbuf| {
            assert!([mbuf.ip_checksum(), mbuf.l4_checksum()].iter().any(|verdict| *verdict != ChecksumStatus::Good));
        });
        assert_eq!(count, 1);
    }
    // A frame that is not IP has no verdict.
    let other = datagram(&[]).link(EtherType(0x88b5), &[3; 46]);
    send(&mut near, &mut far, &other, Offload::NONE, |mbuf| {
        assert_eq!((mbuf.ip_checksum(), mbuf.l4_checksum()), (ChecksumStatus::Unknown, ChecksumStatus::Unknown));
    });
    is_clean(near, far);
}

#[test]
fn payload_is_cut_into_segments() {
    if !inside("payload_is_cut_into_segments") {
        return;
    }
    let (mut near, mut far) = pair(|config| config);
    // Ethernet, IPv4 and TCP without options, and a payload that is not a multiple of the segment.
    let mut frame = datagram(&[]).emit();
    frame.truncate(34);
    frame[14 + 9] = 6;
    frame.extend([0x1b, 0x58, 0x23, 0x28, 0, 0, 0, 9, 0, 0, 0, 0, 0x50, 0x18, 0xff, 0xff, 0, 0, 0, 0]);
    let payload: Vec<u8> = (0..1_300).map(|at| at as u8).collect();
    frame.extend(&payload);
    let offload = (Offload::IP_CHECKSUM | Offload::L4_CHECKSUM).with_segment_len(500);
    let mut received = Vec::new();
    let mut mbuf = near.pool.alloc_copy(&frame).unwrap();
    mbuf.set_l2_len(14);
    mbuf.set_l3_len(20);
    near.tx.post(mbuf, offload).map_err(Mbuf::free).unwrap();
    near.burst().drain(..).for_each(Mbuf::free);
    for _ in 0..DRY {
        for mbuf in far.burst().drain(..) {
            assert_eq!((mbuf.ip_checksum(), mbuf.l4_checksum()), (ChecksumStatus::Good, ChecksumStatus::Good));
            received.push(mbuf.bytes().to_vec());
            mbuf.free();
        }
    }
    assert_eq!(received.iter().map(|frame| frame.len() - 54).collect::<Vec<_>>(), [500, 500, 300]);
    let sequence = |frame: &[u8]| u32::from_be_bytes(frame[38..42].try_into().unwrap());
    assert_eq!(received.iter().map(|frame| sequence(frame)).collect::<Vec<_>>(), [9, 509, 1_009]);
    assert_eq!(received.iter().flat_map(|frame| &frame[54..]).copied().collect::<Vec<_>>(), payload);
    is_clean(near, far);
}

#[test]
fn paced_queue_sends_no_faster_also_after_an_error() {
    let test = "paced_queue_sends_no_faster_also_after_an_error";
    let hostile = "5,delay=0,loss=0,reorder=0,send=100,receive=0,link=0";
    if !is_inside(test, &["--strict", "--devices", "2", "--manual", "--hostile", hostile]) {
        return;
    }
    const KBPS: u32 = 10_000;
    let pace = Some(Pace { kbps: KBPS, ..Pace::default() });
    let (mut near, mut far) = pair(|config| Mlx5Config { pace, ..config });
    let frame = datagram(&[7; 1000]).emit();
    let start = Instant::now();
    let mut received = 0;
    for _ in 0..50 {
        assert!(near.post(&frame));
        while near.tx.in_flight() > 0 {
            near.receive();
            received += far.receive().len() as u64;
        }
    }
    received += far.receive_all(8).len() as u64;
    // Bits by kilobits a second are milliseconds. The first may go at once, and the first after
    // each reset.
    let (elapsed, resets) = (start.elapsed(), near.count("tx/resets"));
    let least_ns = (received - 1 - resets) * frame.len() as u64 * 8 * 1_000_000 / u64::from(KBPS);
    assert!(resets > 0 && received > 3 * resets, "{received} frames, {resets} resets");
    assert!(
        elapsed.as_nanos() >= u128::from(least_ns),
        "{received} frames in {elapsed:?}, which is faster than {KBPS} kbit/s"
    );
    is_clean(near, far);
}
