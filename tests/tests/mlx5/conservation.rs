//! No frame is lost without a named reason. The software ConnectX is hostile: it loses frames,
//! reorders them, delays completions, fails descriptors and drops the link. Each sent frame was
//! received once, or is in a count of ours, or in a count of the NIC for losses that only the NIC
//! sees. Each seed gives another sequence of events; a failure prints its seed.
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::collections::HashSet;

use softhca::testing::is_inside;
use wirepath::device::TxQueue;
use wirepath::device::mlx5::{Feature, Mlx5Config};
use wirepath::device::steering::Rule;
use wirepath::wire::EtherType;
use wirepath_tests::connectx::{End, config};
use wirepath_tests::nic;

const EXPERIMENT: Rule = Rule { ethertype: Some(EtherType(0x88b5)), ..Rule::ALL };
const SEEDS: [u64; 6] = [1, 2, 3, 5, 8, 13];
/// Descriptors of thousand that fail, where each carries several frames.
const FAILED_SENDS: u32 = 40;
const FRAMES: u64 = 3_000;
/// Turns after which no more frames come, with any delay: 8 steps for a completion, 64 for a link.
const DRY: usize = 200;
/// Losses that only the NIC sees: on the wire, while its port was down, while its ring was in
/// error.
const UNSEEN: [&str; 3] = ["mlx5_1.rx_lost", "tx_link_down", "mlx5_1.rx_not_ready"];

fn frame(number: u64) -> Vec<u8> {
    let mut frame = vec![0x02, 0, 0, 0, 0, 1, 0x02, 0, 0, 0, 0, 2, 0x88, 0xb5];
    frame.extend(number.to_be_bytes());
    frame.extend((0..46 + number % 900).map(|at| (at * 7 + number * 13) as u8));
    frame
}

/// Sends under all misfortunes at once, of which `send` of thousand descriptors are to fail, and
/// draws the balance.
fn balances(test: &str, send: u32, change: impl Fn(Mlx5Config) -> Mlx5Config) {
    for seed in SEEDS {
        let hostile = format!("{seed},delay=8,loss=10,reorder=20,send={send},receive=5,link=3");
        if !std::env::var("LD_PRELOAD").is_ok_and(|list| list.contains("softhca")) {
            println!("{test}: --hostile {hostile}");
        }
        if is_inside(test, &["--strict", "--devices", "2", "--manual", "--lossy", "--hostile", &hostile]) {
            return balance(&change);
        }
    }
}

fn balance(change: impl Fn(Mlx5Config) -> Mlx5Config) {
    let (far_device, mut far) = End::alone(&change(config("mlx5_1")), &[EXPERIMENT]);
    let (_near_device, mut near) = End::alone(&change(config("mlx5_0")), &[]);
    let mut received = Vec::new();
    for portion in (0..FRAMES).map(frame).collect::<Vec<_>>().chunks(24) {
        near.send(portion);
        received.extend(far.receive());
    }
    // A queue that comes back may be the sender's, which then has still to be turned.
    for _ in 0..4 {
        near.receive_all(DRY);
        received.extend(far.receive_all(DRY));
    }
    assert_eq!(near.tx.in_flight(), 0);

    let numbers: Vec<_> = received.iter().map(|frame| u64::from_be_bytes(frame[14..22].try_into().unwrap())).collect();
    for (number, bytes) in numbers.iter().zip(&received) {
        assert_eq!(*bytes, frame(*number), "frame {number} has changed on its way");
    }
    assert_eq!(numbers.iter().collect::<HashSet<_>>().len(), numbers.len(), "a frame came twice");
    // The port's thread does this ten times a second, to count frames that found no buffer.
    far_device.state();
    let unseen = UNSEEN.map(|name| nic::counter(name).unwrap());
    let (sent, arrived) = (near.dropped("tx"), far.dropped("rx"));
    assert_eq!(
        received.len() as u64 + sent + arrived + unseen.iter().sum::<u64>(),
        FRAMES,
        "{} received, {sent} dropped by the sender and {arrived} by the receiver, by the NIC {UNSEEN:?} {unseen:?}: {:?}, {:?}",
        received.len(),
        near.counted(),
        far.counted(),
    );
    let account = [received.len() as u64, sent, arrived, unseen[0]];
    println!("received, dropped by the sender and by the receiver, lost on the wire: {account:?}, unseen {unseen:?}");
    assert!(account.iter().all(|count| *count > 0) && received.len() > 200, "too little happened: {account:?}");
    near.close();
    far.close();
    assert_eq!(nic::diagnoses(), Vec::<String>::new());
}

#[test]
fn every_frame_has_a_fate() {
    balances("every_frame_has_a_fate", FAILED_SENDS, |config| config);
}

#[test]
fn every_frame_has_a_fate_with_a_descriptor_each() {
    balances("every_frame_has_a_fate_with_a_descriptor_each", FAILED_SENDS / 10, |config| Mlx5Config {
        multi_packet_send: Feature::Off,
        ..config
    });
}

#[test]
fn every_frame_has_a_fate_with_strides() {
    balances("every_frame_has_a_fate_with_strides", FAILED_SENDS, |config| Mlx5Config {
        striding: Feature::Required,
        ..config
    });
}
