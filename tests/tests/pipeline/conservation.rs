//! received = delivered + Σ named drops + still held, to the frame, from the device to the app: for
//! any frames, over any bad network, with hardly a spare buffer, by the public counters alone. When
//! all timeouts are over, no packet is held and every buffer is free.
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::net::{Ipv4Addr, SocketAddrV4};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use wirepath::device::Queue;
use wirepath::device::capture::{CaptureConfig, CaptureDevice, Directions};
use wirepath::device::fault::{FaultConfig, FaultDevice, Faults};
use wirepath::proto::{Group, Sharing};
use wirepath::time::Duration;
use wirepath::wire::{EtherType, VlanTag, VlanTags};
use wirepath_tests::frames::{Frame, mend};
use wirepath_tests::rig::{OURS, Rig, RigConfig, consumer};

const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);
const NOBODYS_GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 4);
const OTHER_HOST: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 77);
const PORT: u16 = 1_000;
/// Spare buffers that the sending half of a faulty device keeps for duplicates.
const STOCK_MAX: usize = 16;

/// The next step.
#[derive(Clone, Debug)]
enum Step {
    Frame(Vec<u8>),
    /// A frame with some bytes changed, and with its header checksum corrected or not.
    Damaged(Vec<u8>, Vec<(Index, u8)>, bool),
    /// The fragments of a datagram in another order, one of them perhaps missing and one of them
    /// perhaps twice.
    Fragments(Frame, usize, Index, Option<Index>, Option<Index>),
    Poll(u32),
    /// The other side takes the answers off the wire.
    TakeSent,
}

fn tags() -> impl Strategy<Value = VlanTags> {
    let tag = |vid: u16| VlanTag::new(vid).with_pcp(5);
    prop_oneof![
        4 => Just(VlanTags::NONE),
        1 => (0u16..4_096).prop_map(move |vid| VlanTags::single(tag(vid))),
        1 => (0u16..4_096).prop_map(move |vid| VlanTags::double([VlanTag::from_tci(EtherType::QINQ, vid), tag(vid)])),
    ]
}

fn frame() -> impl Strategy<Value = Frame> {
    let destination = prop_oneof![6 => Just(GROUP), 2 => Just(OURS), 1 => Just(NOBODYS_GROUP), 1 => Just(OTHER_HOST)];
    let options = select(vec![vec![], vec![], vec![0x94, 4, 0, 0], vec![0x83, 3, 4, 0], vec![1, 7, 0, 0]]);
    let payload = prop_oneof![4 => vec(any::<u8>(), 0..64), 1 => vec(any::<u8>(), 1_000..1_400)];
    (tags(), destination, PORT..PORT + 2, 0u16..4, options, payload).prop_map(
        |(tags, destination, port, identification, options, payload)| Frame {
            tags,
            identification,
            options,
            ..Frame::to(destination, port, &payload)
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    let changes = vec((any::<Index>(), any::<u8>()), 1..4);
    prop_oneof![
        1 => vec(any::<u8>(), 0..1_600).prop_map(Step::Frame),
        4 => frame().prop_map(|frame| Step::Frame(frame.emit())),
        3 => (frame(), changes, any::<bool>()).prop_map(|(frame, changes, mend)| Step::Damaged(frame.emit(), changes, mend)),
        3 => (frame(), 1usize..8, any::<Index>(), any::<Option<Index>>(), any::<Option<Index>>())
            .prop_map(|(frame, words, turn, missing, twice)| Step::Fragments(frame, words * 8, turn, missing, twice)),
        4 => (0u32..200).prop_map(Step::Poll),
        1 => Just(Step::TakeSent),
    ]
}

fn config() -> impl Strategy<Value = RigConfig> {
    (select(vec![1usize, 2, 5, 17, 64]), select(vec![2u32, 8, 64]), 0usize..4, any::<bool>()).prop_map(
        |(buffers, slots, held_max, answers)| RigConfig { buffers, slots, held_max, answers, ..RigConfig::default() },
    )
}

fn faults() -> impl Strategy<Value = Faults> {
    let often = || prop_oneof![Just(0.0), 0.0..0.5];
    (often(), often(), often(), often(), often(), 0.0..0.1, 0u64..300).prop_map(
        |(loss, duplication, corruption, reordering, delay, ring_full, delay_max)| Faults {
            loss,
            duplication,
            corruption,
            reordering,
            delay,
            ring_full,
            delay_max: Duration::from_micros(delay_max),
            ..Faults::NONE
        },
    )
}

/// Plays the steps and checks the books after each turn, and at the end.
fn play<Q: Queue>(rig: &mut Rig<Q>, steps: &[Step]) {
    rig.with_app(|_, cx| {
        cx.sockets.join(consumer(0), Group::new(GROUP, PORT)).unwrap();
        cx.sockets.join(consumer(1), Group::new(GROUP, PORT)).unwrap();
        cx.sockets.join_source(consumer(2), Group::new(GROUP, PORT + 1), OTHER_HOST).unwrap();
        cx.sockets.bind(consumer(0), SocketAddrV4::new(OURS, PORT), Sharing::Exclusive).unwrap();
    });
    for step in steps {
        match step {
            Step::Frame(frame) => _ = rig.inject(frame),
            Step::Damaged(frame, changes, is_mended) => {
                let mut frame = frame.clone();
                for (at, byte) in changes {
                    let at = at.index(frame.len());
                    frame[at] ^= byte;
                }
                if *is_mended {
                    mend(&mut frame);
                }
                rig.inject(&frame);
            }
            Step::Fragments(frame, len, turn, missing, twice) => {
                let mut fragments = frame.fragments(*len);
                let count = fragments.len();
                fragments.rotate_left(turn.index(count));
                if let Some(twice) = twice {
                    fragments.push(fragments[twice.index(count)].clone());
                }
                if let Some(missing) = missing {
                    fragments.remove(missing.index(count));
                }
                fragments.iter().for_each(|fragment| _ = rig.inject(fragment));
            }
            Step::Poll(micros) => {
                rig.poll(Duration::from_micros((*micros).into()));
                rig.assert_conserved();
            }
            Step::TakeSent => _ = rig.take_sent(|_| ()),
        }
    }
    rig.settle();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn every_frame_is_delivered_or_dropped_by_name(config in config(), steps in vec(step(), 0..60)) {
        let mut rig = Rig::new(config, |wire| wire);
        play(&mut rig, &steps);
        rig.assert_settled(0);
    }

    #[test]
    fn bad_network_loses_no_frame_without_a_name(
        config in config(),
        seed: u64,
        rx in faults(),
        tx in faults(),
        steps in vec(step(), 0..60),
    ) {
        let faults = FaultConfig { seed, rx, tx };
        let mut rig = Rig::new(config, |wire| FaultDevice::new(wire, faults).unwrap());
        play(&mut rig, &steps);
        let stock = rig.worker.pool().in_use();
        prop_assert!(stock == 0 || tx.duplication > 0.0 && stock <= STOCK_MAX);
        rig.assert_settled(stock);
    }

    #[test]
    fn capture_in_the_way_changes_no_count(config in config(), seed: u64, rx in faults(), steps in vec(step(), 0..30)) {
        let folder = tempfile::tempdir().unwrap();
        let faults = FaultConfig { seed, rx, tx: Faults::NONE };
        let mut plain = Rig::new(config, |wire| FaultDevice::new(wire, faults).unwrap());
        let mut tapped = Rig::new(config, |wire| {
            let (path, directions) = (folder.path().join("tap.pcap"), Directions::Both);
            CaptureDevice::new(FaultDevice::new(wire, faults).unwrap(), CaptureConfig { path, directions, epoch_ns: 0 })
        });
        play(&mut plain, &steps);
        play(&mut tapped, &steps);
        tapped.assert_settled(0);
        let count = |name: &str| (plain.snapshot().count(name).unwrap(), tapped.snapshot().count(name).unwrap());
        for name in ["worker0/ethernet/frames", "worker0/udp/datagrams", "worker0/udp/copies", "worker0/egress/frames"] {
            let (plain, tapped) = count(name);
            prop_assert_eq!(plain, tapped, "{}", name);
        }
    }
}
