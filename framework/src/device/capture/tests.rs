//! Captures on a wire in memory, on a replay, and with faults on either side.

use std::path::{Path, PathBuf};

use super::*;
use crate::counters::Block;
use crate::device::fault::{FaultConfig, FaultDevice, Faults};
use crate::device::pcap::{PcapConfig, PcapDevice, Reader, Writer};
use crate::device::testing::conformance::assert_conforms;
use crate::device::testing::wire_rig::{SLOTS, WireRig, wire};
use crate::device::{Device, Offload, Queue, RxQueue, RxState, TxQueue};
use crate::mem::{Burst, Mbuf, Pool};
use crate::time::{Instant, UnixTime};

fn tapped<D: Device>(inner: D, path: PathBuf, directions: Directions) -> CaptureDevice<D> {
    CaptureDevice::new(inner, CaptureConfig { path, directions, epoch_ns: 1_000_000 })
}

/// Timestamps and frames of a capture.
fn read(path: &Path) -> Vec<(u64, Vec<u8>)> {
    let mut reader = Reader::open(path).unwrap();
    let mut records = Vec::new();
    while let Some(record) = reader.next().unwrap() {
        records.push((record.timestamp_ns, record.bytes.to_vec()));
    }
    records
}

/// All frames of a receive half, with timestamps.
fn drain(rx: &mut impl RxQueue, pool: &Pool, now: Instant) -> Vec<(Option<u64>, Vec<u8>)> {
    let (mut frames, mut burst, mut quiet) = (Vec::new(), Burst::new(), 0);
    while quiet < 10 && rx.state() != RxState::Ended {
        quiet = if rx.receive(&mut burst, 32, pool, now) == 0 { quiet + 1 } else { 0 };
        for mbuf in burst.drain(..) {
            frames.push((mbuf.timestamp().map(UnixTime::as_nanos), mbuf.bytes().to_vec()));
            mbuf.free();
        }
    }
    frames
}

#[test]
fn tapped_device_conforms() {
    let (folder, mut links) = (tempfile::tempdir().unwrap(), 0);
    assert_conforms(&mut WireRig::new(move || {
        links += 1;
        let path = |end| folder.path().join(format!("{links}.{end}"));
        let (near, far) = wire();
        (tapped(near, path("near"), Directions::Both), tapped(far, path("far"), Directions::Both))
    }));
}

#[test]
fn folder_that_is_missing_is_told_as_the_queue_is_taken() {
    let error = tapped(wire().0, "/no/such/folder/x.pcap".into(), Directions::Both).take_queue(0).err().unwrap();
    assert!(error.to_string().contains("/no/such/folder/x.pcap"), "{error}");
}

#[test]
fn sent_frames_are_recorded_once_and_refused_ones_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tx.pcap");
    let (near, _far) = wire();
    let mut device = tapped(near, path.clone(), Directions::Both);
    let (pool, block) = (Pool::heap(16).unwrap(), Block::heap());
    let (mut rx, mut tx) = device.take_queue(0).unwrap().open(&pool, &block.scope("near")).unwrap();
    drain(&mut rx, &pool, Instant::from_nanos(5));
    let mut refused = 0;
    for _ in 0..SLOTS + 3 {
        let mbuf = pool.alloc_copy(&[7; 60]).unwrap();
        if let Err(mbuf) = tx.post(mbuf, Offload::NONE.with_vlan(0x0203)) {
            mbuf.free();
            refused += 1;
        }
    }
    assert_eq!(refused, 3);
    assert_eq!(block.snapshot().count("near/capture/frames"), Some(SLOTS.into()));
    let outcome = device.recorded(0).unwrap();
    drop((rx, tx));
    assert_eq!(outcome.get().unwrap().as_ref().unwrap().frames, u64::from(SLOTS));
    let tagged = [&[7; 12][..], &[0x81, 0x00, 0x02, 0x03], &[7; 48]].concat();
    assert_eq!(read(&path), vec![(1_000_005, tagged); SLOTS as usize]);
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn tap_on_a_replay_writes_the_same_capture() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("from.pcap"), folder.path().join("to.pcap"));
    let mut writer = Writer::create(&from).unwrap();
    (0..500_u64).for_each(|idx| writer.write(idx * 1_000, &idx.to_be_bytes().repeat(20)));
    writer.finish().unwrap();
    let replay = PcapDevice::open(&PcapConfig { replay: Some(from.clone()), ..PcapConfig::default() }).unwrap();
    let (pool, block) = (Pool::heap(64).unwrap(), Block::heap());
    let queue = tapped(replay, to.clone(), Directions::Rx).take_queue(0).unwrap();
    let (mut rx, tx) = queue.open(&pool, &block.scope("port")).unwrap();
    assert_eq!(drain(&mut rx, &pool, Instant::ZERO).len(), 500);
    drop((rx, tx));
    assert_eq!(std::fs::read(from).unwrap(), std::fs::read(to).unwrap());
}

#[test]
fn tap_outside_faults_sees_what_the_worker_sees() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("from.pcap"), folder.path().join("to.pcap"));
    let mut writer = Writer::create(&from).unwrap();
    (0..500_u64).for_each(|idx| writer.write(idx * 1_000, &idx.to_be_bytes().repeat(20)));
    writer.finish().unwrap();
    let replay = PcapDevice::open(&PcapConfig { replay: Some(from), ..PcapConfig::default() }).unwrap();
    let rx = Faults { loss: 0.1, duplication: 0.1, reordering: 0.1, corruption: 0.1, ..Faults::NONE };
    let faulty = FaultDevice::new(replay, FaultConfig { seed: 6, rx, tx: Faults::NONE }).unwrap();
    let (pool, block) = (Pool::heap(64).unwrap(), Block::heap());
    let queue = tapped(faulty, to.clone(), Directions::Both).take_queue(0).unwrap();
    let (mut rx, tx) = queue.open(&pool, &block.scope("port")).unwrap();
    let seen = drain(&mut rx, &pool, Instant::ZERO);
    assert_eq!(rx.state(), RxState::Ended);
    drop((rx, tx));
    let seen: Vec<_> = seen.into_iter().map(|(timestamp, frame)| (timestamp.unwrap(), frame)).collect();
    assert_eq!(read(&to), seen);
    let count = |name: &str| block.snapshot().count(name).unwrap() as usize;
    assert_eq!(seen.len(), 500 + count("port/fault/rx/duplicated") - count("port/fault/rx/drop/loss"));
    assert_eq!((pool.in_use(), pool.drops_without_reason()), (0, 0));
}

#[test]
fn full_disk_does_not_stop_the_worker() {
    let (near, far) = wire();
    let mut device = tapped(near, "/dev/full".into(), Directions::Tx);
    let (pool, block) = (Pool::heap(16).unwrap(), Block::heap());
    let (rx, mut tx) = device.take_queue(0).unwrap().open(&pool, &block.scope("near")).unwrap();
    let mut far = { far }.take_queue(0).unwrap().open(&pool, &block.scope("far")).unwrap();
    for _ in 0..400 {
        tx.reap();
        tx.post(pool.alloc_copy(&[0; 1_500]).unwrap(), Offload::NONE).unwrap();
        tx.ring_doorbell(Instant::ZERO);
        let mut burst = Burst::new();
        assert_eq!(far.0.receive(&mut burst, 32, &pool, Instant::ZERO), 1);
        burst.drain(..).for_each(Mbuf::free);
    }
    let count = |name: &str| block.snapshot().count(name).unwrap();
    assert_eq!(count("near/capture/frames") + count("near/capture/lost"), 400);
    assert!(count("near/capture/lost") > 0);
    drop((rx, tx));
    assert!(device.recorded(0).unwrap().get().unwrap().is_err());
}

#[test]
fn exchange_capture_passes_both_wrappers_whole() {
    let name = "exchange_capture_passes_both_wrappers_whole";
    let Some(shared) = wirepath_captures::find(name, "iex_tops16_20170710_uat.pcap.gz") else { return };
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("copy.pcap");
    let replay = PcapDevice::open(&PcapConfig { replay: Some(shared.clone()), ..PcapConfig::default() }).unwrap();
    let quiet = FaultDevice::new(replay, FaultConfig::default()).unwrap();
    let (pool, block) = (Pool::heap(64).unwrap(), Block::heap());
    let queue = tapped(quiet, copy.clone(), Directions::Both).take_queue(0).unwrap();
    let (mut rx, tx) = queue.open(&pool, &block.scope("port")).unwrap();
    assert_eq!(drain(&mut rx, &pool, Instant::ZERO).len(), 13_022);
    drop((rx, tx));
    assert_eq!(block.check(), Ok(()));
    assert_eq!(read(&copy), read(&shared));
}
