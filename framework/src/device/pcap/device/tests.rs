//! The port made of files: pace, ends, refusals, and the conformance suite over a file that is
//! written and then read.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use tempfile::TempDir;

use crate::counters::Block;
use crate::device::pcap::rx::PcapRx;
use crate::device::pcap::tx::PcapTx;
use crate::device::pcap::*;
use crate::device::steering::{Rule, SteerError};
use crate::device::testing::conformance::{LinkUnderTest, Rig, assert_conforms};
use crate::device::{Device, DeviceError, Offload, Queue, RxQueue, RxState, TxQueue};
use crate::mem::{Burst, Mbuf, Pool};
use crate::time::Instant;

const PRELOAD: Loading = Loading::Preload { len_max: 1 << 20 };

/// A device with its queue opened on this thread.
struct Port {
    device: PcapDevice,
    rx: PcapRx,
    tx: PcapTx,
    pool: Pool,
    block: Block,
}

fn open(config: &PcapConfig) -> Port {
    let mut device = PcapDevice::open(config).unwrap();
    let (pool, block) = (Pool::heap(128).unwrap(), Block::heap());
    let (rx, tx) = device.take_queue(0).unwrap().open(&pool, &block.scope("port")).unwrap();
    Port { device, rx, tx, pool, block }
}

impl Port {
    /// One poll: returns the received frames with their timestamps.
    fn receive_at(&mut self, now: u64, limit: usize) -> Vec<(u64, Vec<u8>)> {
        let mut burst = Burst::new();
        let count = self.rx.receive(&mut burst, limit, &self.pool, Instant::from_nanos(now));
        assert_eq!(count, burst.len());
        let take = |mbuf: Mbuf| {
            let frame = (mbuf.timestamp().unwrap().as_nanos(), mbuf.bytes().to_vec());
            mbuf.free();
            frame
        };
        burst.drain(..).map(take).collect()
    }

    fn receive_all(&mut self) -> Vec<(u64, Vec<u8>)> {
        let mut frames = Vec::new();
        while self.rx.state() == RxState::Open {
            frames.extend(self.receive_at(0, 32));
        }
        frames
    }

    fn send_at(&mut self, now: u64, frame: &[u8], offload: Offload) {
        self.tx.post(self.pool.alloc_copy(frame).unwrap(), offload).unwrap();
        self.tx.ring_doorbell(Instant::from_nanos(now));
        self.tx.reap();
    }

    fn count(&self, name: &str) -> u64 {
        self.block.snapshot().count(&format!("port/{name}")).unwrap()
    }
}

/// A capture of `frames`, in a folder that lives until the test drops it.
fn capture(frames: &[(u64, &[u8])]) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("test.pcap");
    let mut writer = Writer::create(&path).unwrap();
    for (timestamp_ns, frame) in frames {
        writer.write(*timestamp_ns, frame);
    }
    writer.finish().unwrap();
    (folder, path)
}

fn replay(path: &Path, pace: Pace, loading: Loading) -> Port {
    open(&PcapConfig { replay: Some(path.to_owned()), pace, loading, ..PcapConfig::default() })
}

const THREE: [(u64, &[u8]); 3] = [(5_000, b"one"), (5_100, b"two"), (5_300, b"three")];

/// Receives from a file as soon as the sender has closed it.
struct FileRx {
    path: PathBuf,
    tx: Rc<RefCell<Option<PcapTx>>>,
    opened: Option<PcapRx>,
}

/// Sends into the file until the other side receives.
struct FileTx(Rc<RefCell<Option<PcapTx>>>);

impl RxQueue for FileRx {
    fn receive(&mut self, burst: &mut Burst, limit: usize, pool: &Pool, now: Instant) -> usize {
        let rx = self.opened.get_or_insert_with(|| {
            drop(self.tx.borrow_mut().take());
            let config = PcapConfig { replay: Some(self.path.clone()), ..PcapConfig::default() };
            let queue = PcapDevice::open(&config).unwrap().take_queue(0).unwrap();
            queue.open(pool, &Block::heap().scope("far")).unwrap().0
        });
        rx.receive(burst, limit, pool, now)
    }

    fn state(&self) -> RxState {
        RxState::Open
    }

    fn refresh_counters(&mut self) {}
}

impl TxQueue for FileTx {
    fn post(&mut self, mbuf: Mbuf, offload: Offload) -> Result<(), Mbuf> {
        self.0.borrow_mut().as_mut().expect("nobody received yet").post(mbuf, offload)
    }

    fn ring_doorbell(&mut self, now: Instant) {
        self.0.borrow_mut().as_mut().expect("nobody received yet").ring_doorbell(now);
    }

    fn reap(&mut self) -> usize {
        self.0.borrow_mut().as_mut().map_or(0, TxQueue::reap)
    }

    fn room(&mut self) -> usize {
        self.0.borrow_mut().as_mut().map_or(0, TxQueue::room)
    }

    fn in_flight(&self) -> usize {
        self.0.borrow().as_ref().map_or(0, TxQueue::in_flight)
    }

    fn refresh_counters(&mut self) {}
}

struct FileRig(TempDir, usize);

impl Rig for FileRig {
    fn link(&mut self, buffers: usize) -> LinkUnderTest {
        self.1 += 1;
        let path = self.0.path().join(format!("{}.pcap", self.1));
        let config = PcapConfig { record: Some(path.clone()), ..PcapConfig::default() };
        let (tx_pool, rx_pool) = (Pool::heap(buffers).unwrap(), Pool::heap(buffers).unwrap());
        let block = Block::heap();
        let queue = PcapDevice::open(&config).unwrap().take_queue(0).unwrap();
        let (_, tx) = queue.open(&tx_pool, &block.scope("near")).unwrap();
        let tx = Rc::new(RefCell::new(Some(tx)));
        let dropped = Box::new(move || block.snapshot().count("near/tx/drop/too_long").unwrap());
        let rx = FileRx { path, tx: Rc::clone(&tx), opened: None };
        LinkUnderTest { tx: Box::new(FileTx(tx)), tx_pool, rx: Box::new(rx), rx_pool, dropped }
    }

    fn frame_len_max(&self) -> usize {
        PcapConfig::default().frame_len_max
    }

    fn ring_len(&self) -> Option<usize> {
        None
    }

    fn tx_segments_max(&self) -> usize {
        usize::MAX
    }

    fn inserts_vlan(&self) -> bool {
        true
    }
}

#[test]
fn pcap_device_conforms() {
    assert_conforms(&mut FileRig(tempfile::tempdir().unwrap(), 0));
}

#[test]
fn missing_capture_is_told_at_open() {
    let config = PcapConfig { replay: Some("/no/such.pcap".into()), ..PcapConfig::default() };
    let error = PcapDevice::open(&config).err().unwrap().to_string();
    assert!(error.contains("/no/such.pcap"), "{error}");
}

#[test]
fn pace_of_zero_is_refused() {
    for factor in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let config = PcapConfig { pace: Pace::Times(factor), ..PcapConfig::default() };
        assert!(PcapDevice::open(&config).is_err());
    }
}

#[test]
fn queue_is_taken_once() {
    let mut device = PcapDevice::open(&PcapConfig::default()).unwrap();
    assert!(matches!(device.take_queue(1), Err(DeviceError::NoQueue { .. })));
    assert!(device.take_queue(0).is_ok());
    assert!(matches!(device.take_queue(0), Err(DeviceError::QueueTaken { .. })));
}

#[test]
fn steering_is_refused_by_name() {
    let mut device = PcapDevice::open(&PcapConfig::default()).unwrap();
    assert!(matches!(device.steer(&Rule::arp(), 0), Err(SteerError::Unsupported { .. })));
}

#[test]
fn buffers_that_are_too_small_are_refused() {
    let config = PcapConfig { frame_len_max: 9_000, ..PcapConfig::default() };
    let queue = PcapDevice::open(&config).unwrap().take_queue(0).unwrap();
    let result = queue.open(&Pool::heap(1).unwrap(), &Block::heap().scope("port"));
    assert!(matches!(result, Err(DeviceError::BuffersTooSmall { .. })));
}

#[test]
fn port_without_a_capture_has_ended() {
    let mut port = open(&PcapConfig::default());
    assert_eq!(port.rx.state(), RxState::Ended);
    assert!(port.receive_at(0, 32).is_empty());
}

#[test]
fn frames_come_with_their_recorded_times() {
    let (_folder, path) = capture(&THREE);
    for loading in [Loading::Stream, PRELOAD] {
        let mut port = replay(&path, Pace::FullSpeed, loading);
        let expected = THREE.map(|(timestamp_ns, frame)| (timestamp_ns, frame.to_vec()));
        assert_eq!(port.receive_all(), expected);
        assert_eq!(port.device.replayed().get().unwrap().as_ref().unwrap().truncated, None);
        assert_eq!((port.count("rx/frames"), port.count("rx/bytes")), (3, 11));
    }
}

#[test]
fn recorded_pace_follows_now() {
    let (_folder, path) = capture(&THREE);
    for (pace, times) in [(Pace::Recorded, [0, 99, 100, 299, 300]), (Pace::Times(0.5), [0, 199, 200, 599, 600])] {
        let mut port = replay(&path, pace, PRELOAD);
        let counts = times.map(|elapsed| port.receive_at(1_000_000 + elapsed, 32).len());
        assert_eq!(counts, [1, 0, 1, 0, 1], "{pace:?}");
    }
}

#[test]
fn burst_limit_is_kept() {
    let (_folder, path) = capture(&THREE);
    let mut port = replay(&path, Pace::FullSpeed, Loading::Stream);
    assert_eq!([2, 2, 2].map(|limit| port.receive_at(0, limit).len()), [2, 1, 0]);
    assert_eq!(port.rx.state(), RxState::Ended);
}

#[test]
fn empty_pool_keeps_the_frame_for_later() {
    let (_folder, path) = capture(&THREE);
    let mut port = replay(&path, Pace::FullSpeed, Loading::Stream);
    let hoard: Vec<_> = std::iter::from_fn(|| port.pool.alloc()).collect();
    assert!(port.receive_at(0, 32).is_empty());
    assert_eq!(port.rx.state(), RxState::Open);
    hoard.into_iter().for_each(Mbuf::free);
    assert_eq!(port.receive_all().len(), 3);
}

#[test]
fn oversize_is_counted_and_passed_over() {
    let (_folder, path) = capture(&[(1, &[0; 1_523]), (2, b"fits")]);
    let mut port = replay(&path, Pace::FullSpeed, Loading::Stream);
    assert_eq!(port.receive_all(), [(2, b"fits".to_vec())]);
    assert_eq!(port.count("rx/drop/too_long"), 1);
}

#[test]
fn truncated_capture_gives_what_it_has_and_counts() {
    let (_folder, path) = capture(&THREE);
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, &whole[..whole.len() - 1]).unwrap();
    for loading in [Loading::Stream, PRELOAD] {
        let mut port = replay(&path, Pace::FullSpeed, loading);
        let outcome = port.device.replayed();
        assert!(outcome.get().is_none());
        assert_eq!(port.receive_all().len(), 2);
        assert_eq!(port.count("rx/truncated"), 1);
        assert_eq!(outcome.get().unwrap().as_ref().unwrap().truncated.unwrap().what, Cut::Packet);
    }
}

#[test]
fn damaged_capture_gives_what_is_before_and_tells() {
    let (_folder, path) = capture(&THREE);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes.extend([0xff; 16]);
    std::fs::write(&path, bytes).unwrap();
    for loading in [Loading::Stream, PRELOAD] {
        let mut port = replay(&path, Pace::FullSpeed, loading);
        assert_eq!(port.receive_all().len(), 3);
        assert_eq!(port.count("rx/damaged"), 1);
        assert!(port.device.replayed().get().unwrap().is_err());
    }
}

#[test]
fn preload_over_its_limit_is_refused() {
    let (_folder, path) = capture(&THREE);
    let loading = Loading::Preload { len_max: 40 };
    let config = PcapConfig { replay: Some(path), loading, ..PcapConfig::default() };
    let error = PcapDevice::open(&config).err().unwrap().to_string();
    assert!(error.contains("more than the 40 bytes"), "{error}");
}

#[test]
fn sent_frames_bear_the_time_of_their_doorbell() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sent.pcap");
    let mut port = open(&PcapConfig { record: Some(path.clone()), epoch_ns: 1_000_000, ..PcapConfig::default() });
    port.send_at(7, b"first", Offload::NONE);
    port.send_at(9, b"second", Offload::NONE);
    let outcome = port.device.recorded();
    assert!(outcome.get().is_none());
    drop(port.tx);
    assert_eq!(*outcome.get().unwrap().as_ref().unwrap(), Recorded { frames: 2 });
    let mut back = replay(&path, Pace::FullSpeed, Loading::Stream);
    assert_eq!(back.receive_all(), [(1_000_007, b"first".to_vec()), (1_000_009, b"second".to_vec())]);
}

#[test]
fn urgent_frame_is_written_without_a_doorbell_with_those_before_it() {
    let mut port = open(&PcapConfig::default());
    let written = [Offload::NONE, Offload::URGENT].map(|offload| {
        port.tx.post(port.pool.alloc_copy(&[0; 60]).unwrap(), offload).unwrap();
        port.tx.reap()
    });
    assert_eq!(written, [0, 2]);
}

#[test]
fn unsupported_offload_is_refused_by_name() {
    let mut port = open(&PcapConfig::default());
    port.send_at(0, &[0; 60], Offload::L4_CHECKSUM);
    assert_eq!((port.count("tx/drop/offload_unsupported"), port.count("tx/frames")), (1, 0));
    assert_eq!((port.pool.in_use(), port.pool.drops_without_reason()), (0, 0));
}

#[test]
fn full_disk_is_counted_and_told() {
    let mut port = open(&PcapConfig { record: Some("/dev/full".into()), ..PcapConfig::default() });
    for _ in 0..300 {
        port.send_at(0, &[0; 1_500], Offload::NONE);
    }
    assert_eq!(port.count("tx/frames") + port.count("tx/drop/write_failed"), 300);
    assert!(port.count("tx/drop/write_failed") > 0);
    drop(port.tx);
    assert!(port.device.recorded().get().unwrap().is_err());
    assert_eq!(port.pool.in_use(), 0);
}

#[test]
fn dropped_sender_loses_no_mbuf() {
    let mut port = open(&PcapConfig::default());
    port.tx.post(port.pool.alloc_copy(b"posted, never rung").unwrap(), Offload::NONE).unwrap();
    drop(port.tx);
    assert_eq!((port.pool.in_use(), port.pool.drops_without_reason()), (0, 0));
}

#[test]
fn exchange_capture_replays_whole() {
    let name = "exchange_capture_replays_whole";
    let Some(path) = wirepath_captures::find(name, "iex_tops16_20170710_uat.pcap.gz") else { return };
    for loading in [Loading::Stream, Loading::Preload { len_max: 64 << 20 }] {
        let mut port = replay(&path, Pace::FullSpeed, loading);
        assert_eq!(port.receive_all().len(), 13_022);
    }
}
