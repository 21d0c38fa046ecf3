//! The mlx5 device under faults, on a hostile software ConnectX: errors of descriptors, a link that
//! goes down and up. Each lost frame has a named reason, every buffer is freed, and the queue goes
//! on. Each test starts itself again under `softhca run`.
#![allow(clippy::unwrap_used)] // a panic here is the report

use softhca::testing::is_inside;
use wirepath::device::mlx5::{Feature, Mlx5Config};
use wirepath::device::steering::Rule;
use wirepath::device::{Device, RxQueue, RxState, TxQueue};
use wirepath::mem::Mbuf;
use wirepath::wire::EtherType;
use wirepath_tests::connectx::{End, config, open, pool};
use wirepath_tests::nic;

const EXPERIMENT: Rule = Rule { ethertype: Some(EtherType(0x88b5)), ..Rule::ALL };
/// Turns after which no more frames come, with any delay of a hostile NIC: 8 steps for a
/// completion, 64 for a link.
const DRY: usize = 200;

/// Whether this process runs under `softhca run`, with two NICs that move only when they are polled
/// and have these chances of faults, in thousandths.
fn inside(test: &str, chances: &str) -> bool {
    let hostile = format!("11,delay=8,loss=0,reorder=0,{chances}");
    is_inside(test, &["--strict", "--devices", "2", "--manual", "--hostile", &hostile])
}

fn frame(seed: usize) -> Vec<u8> {
    let mut frame = vec![0x02, 0, 0, 0, 0, 1, 0x02, 0, 0, 0, 0, 2, 0x88, 0xb5];
    frame.extend((0..46 + seed % 200).map(|at| (at * 7 + seed * 13) as u8));
    frame
}

/// Sends `count` frames from `near` to `far` in portions; returns the arrived frames in their
/// order.
fn transfer(near: &mut End, far: &mut End, count: usize) -> Vec<Vec<u8>> {
    let frames: Vec<_> = (0..count).map(frame).collect();
    let mut received = Vec::new();
    for portion in frames.chunks(24) {
        near.send(portion);
        received.extend(far.receive());
    }
    // A queue that comes back may be the sender's, which then has still to be turned.
    for _ in 0..4 {
        near.receive_all(DRY);
        received.extend(far.receive_all(DRY));
    }
    received
}

/// Frames are those that were sent, in order; some may be missing.
fn in_order(received: &[Vec<u8>], count: usize) {
    let mut sent = (0..count).map(frame);
    for (idx, frame) in received.iter().enumerate() {
        assert!(sent.any(|sent| sent == *frame), "frame {idx} was not sent, or not in this order");
    }
}

#[test]
fn failed_sends_are_counted_and_the_queue_goes_on() {
    if !inside("failed_sends_are_counted_and_the_queue_goes_on", "send=20,receive=0,link=0") {
        return;
    }
    for multi_packet_send in [Feature::Off, Feature::Required] {
        let config = |device| Mlx5Config { multi_packet_send, ..config(device) };
        let (_far_device, mut far) = End::alone(&config("mlx5_1"), &[EXPERIMENT]);
        let (_near_device, mut near) = End::alone(&config("mlx5_0"), &[]);
        let received = transfer(&mut near, &mut far, 5_000);
        in_order(&received, 5_000);
        let dropped = near.dropped("tx");
        let counted = (near.counted(), far.counted());
        assert_eq!(received.len() as u64 + dropped, 5_000, "sent = received + dropped by name: {counted:?}");
        assert!(dropped > 0 && near.count("tx/resets") > 1, "nothing failed: {dropped} dropped");
        assert_eq!((near.count("tx/failed_resets"), near.tx.in_flight()), (0, 0));
        // The receiver has noticed nothing.
        assert_eq!(far.count("rx/resets") + near.count("rx/resets"), 0);
        near.close();
        far.close();
    }
}

#[test]
fn failed_receptions_are_counted_and_the_queue_goes_on() {
    if !inside("failed_receptions_are_counted_and_the_queue_goes_on", "send=0,receive=20,link=0") {
        return;
    }
    let (_far_device, mut far) = End::alone(&config("mlx5_1"), &[EXPERIMENT]);
    let (_near_device, mut near) = End::alone(&config("mlx5_0"), &[]);
    let received = transfer(&mut near, &mut far, 5_000);
    in_order(&received, 5_000);
    // Only the NIC can count frames that arrive while the ring is in error.
    let unseen = nic::counter("mlx5_1.rx_not_ready").unwrap();
    let dropped = far.dropped("rx");
    assert_eq!(
        received.len() as u64 + dropped + unseen,
        5_000,
        "sent = received + {dropped} by name + {unseen} by the NIC"
    );
    assert!(dropped > 0 && far.count("rx/resets") > 1, "nothing failed: {dropped} dropped");
    assert_eq!(far.count("rx/failed_resets"), 0);
    assert_eq!(near.dropped("tx") + near.count("tx/resets"), 0, "whoever sends has noticed nothing");
    near.close();
    far.close();
}

#[test]
fn link_that_comes_and_goes_is_a_state_and_frames_flow_again() {
    if !inside("link_that_comes_and_goes_is_a_state_and_frames_flow_again", "send=0,receive=0,link=20") {
        return;
    }
    let (far_device, mut far) = End::alone(&config("mlx5_1"), &[EXPERIMENT]);
    let (_near_device, mut near) = End::alone(&config("mlx5_0"), &[]);
    let mut states = Vec::new();
    for _ in 0..2_000 {
        far.receive();
        // The port's thread does this ten times a second.
        far_device.state();
        if states.last() != Some(&far.rx.state()) {
            states.push(far.rx.state());
        }
    }
    assert!(states.len() > 4 && !states.contains(&RxState::Ended), "{states:?}");
    let received = transfer(&mut near, &mut far, 2_000);
    in_order(&received, 2_000);
    let lost = nic::counter("tx_link_down").unwrap();
    assert!(!received.is_empty(), "nothing came");
    assert_eq!(received.len() as u64 + lost + near.dropped("tx") + far.dropped("rx"), 2_000);
    near.close();
    far.close();
}

#[test]
fn removed_device_ends_its_queues_and_every_buffer_comes_home() {
    if !inside("removed_device_ends_its_queues_and_every_buffer_comes_home", "send=0,receive=0,link=0") {
        return;
    }
    let (far_device, mut far) = End::alone(&config("mlx5_1"), &[EXPERIMENT]);
    let (_near_device, mut near) = End::alone(&config("mlx5_0"), &[]);
    near.send(&(0..24).map(frame).collect::<Vec<_>>());
    far.receive();
    (0..8).for_each(|seed| assert!(far.post(&frame(seed))));
    assert!(nic::remove("mlx5_1"));
    far.receive_all(DRY);
    assert_eq!((far_device.state(), far.rx.state()), (RxState::Ended, RxState::Ended));
    assert!(!far_device.describe().is_empty());
    // A ring that is not emptied takes as many frames as fit, and no more.
    (0..1_000).for_each(|seed| _ = far.post(&frame(seed)));
    far.receive_all(DRY);
    far.close();
    // The other one goes on, into the void.
    near.send(&(0..24).map(frame).collect::<Vec<_>>());
    near.receive_all(DRY);
    assert_eq!(near.rx.state(), RxState::Open);
    near.close();
}

#[test]
fn everything_at_once_loses_no_buffer() {
    if !inside("everything_at_once_loses_no_buffer", "send=10,receive=10,link=5") {
        return;
    }
    let compression = Feature::Required;
    for config in [config("mlx5_0"), Mlx5Config { compression, ..config("mlx5_0") }] {
        let far_config = Mlx5Config { device: "mlx5_1".into(), ..config.clone() };
        let (_far_device, mut far) = End::alone(&far_config, &[EXPERIMENT]);
        let (_near_device, mut near) = End::alone(&config, &[]);
        let received = transfer(&mut near, &mut far, 5_000);
        in_order(&received, 5_000);
        assert!(received.len() > 1_000, "{} of 5000 came", received.len());
        near.close();
        far.close();
    }
}

#[test]
fn empty_ring_loses_what_the_nic_counts_and_frames_flow_again() {
    let test = "empty_ring_loses_what_the_nic_counts_and_frames_flow_again";
    if !is_inside(test, &["--strict", "--devices", "2", "--manual", "--lossy"]) {
        return;
    }
    let mut far_device = open(&config("mlx5_1"));
    far_device.steer(&EXPERIMENT, 0).unwrap();
    // The ring has 64 of its 96 buffers, and the reader keeps them.
    let mut far = End::with_pool(&mut far_device, 0, pool(96, 1518)).unwrap();
    let (_near_device, mut near) = End::alone(&config("mlx5_0"), &[]);
    let mut kept = Vec::new();
    for portion in (0..200).map(frame).collect::<Vec<_>>().chunks(16) {
        near.send(portion);
        kept.extend(far.burst().drain(..));
    }
    let lost_before = far.count("rx/drop/out_of_buffer");
    // The port's thread does this ten times a second.
    far_device.state();
    let lost = far.count("rx/drop/out_of_buffer");
    assert_eq!(
        (kept.len() as u64 + lost, kept.len()),
        (200, 96),
        "each buffer carried a frame, and the others were counted; {lost_before} before anybody looked"
    );
    assert_eq!(nic::counter("mlx5_1.rx_out_of_buffer"), Some(lost), "the NIC's own count");
    assert!(far.count("rx/nombuf") > 0, "{:?}", far.counted());
    assert_eq!((far.rx.state(), far.count("rx/resets")), (RxState::Open, 0), "to have no buffer is no error");
    kept.into_iter().for_each(Mbuf::free);
    far.receive();
    let received = transfer(&mut near, &mut far, 1_000);
    assert_eq!(received, (0..1_000).map(frame).collect::<Vec<_>>());
    far_device.state();
    assert_eq!(far.count("rx/drop/out_of_buffer"), lost);
    assert!(!far_device.describe().contains("out_of_buffer"), "it is counted: {}", far_device.describe());
    near.close();
    far.close();
}

#[test]
fn frames_that_were_lost_last_are_counted_when_the_queue_closes() {
    let test = "frames_that_were_lost_last_are_counted_when_the_queue_closes";
    if !is_inside(test, &["--strict", "--devices", "2", "--manual", "--lossy"]) {
        return;
    }
    let (_far_device, far) = End::alone(&config("mlx5_1"), &[EXPERIMENT]);
    let (_near_device, mut near) = End::alone(&config("mlx5_0"), &[]);
    // The ring has 64 buffers, and no one reads it.
    near.send(&(0..100).map(frame).collect::<Vec<_>>());
    near.receive_all(DRY);
    let End { rx, tx, block, pool, .. } = far;
    drop((rx, tx));
    let count = |name: &str| block.snapshot().count(&format!("port/rx/drop/{name}"));
    assert_eq!((count("queue_closed"), count("out_of_buffer")), (Some(64), Some(36)));
    assert_eq!(pool.in_use(), 0);
    near.close();
}

#[test]
fn kernel_without_the_count_is_told_of() {
    let test = "kernel_without_the_count_is_told_of";
    if !is_inside(test, &["--strict", "--devices", "2", "--manual"]) {
        return;
    }
    // In the test's own mount namespace, and its file system.
    let file = "/sys/class/infiniband/mlx5_0/ports/1/hw_counters/out_of_buffer";
    assert_eq!(std::fs::read_to_string(file).unwrap(), "0\n");
    std::fs::remove_file(file).unwrap();
    let words = open(&config("mlx5_0")).describe();
    assert!(words.contains("frames that find no buffer are not counted"), "{words}");
}
