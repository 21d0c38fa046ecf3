//! Tapped wires in memory: without listeners, with listeners that keep up, that are slow, and that
//! die.

use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::rc::Rc;

use tempfile::TempDir;

use super::*;
use crate::counters::Block;
use crate::device::memory::{MemoryRx, MemoryTx};
use crate::device::testing::conformance::assert_conforms;
use crate::device::testing::wire_rig::{SLOTS, WireRig, wire};
use crate::device::{Device, Offload, Queue, RxQueue, TxQueue};
use crate::mem::{Burst, Mbuf, Pool};
use crate::time::{Duration, Instant};

fn config(directory: &TempDir) -> TapConfig {
    TapConfig { directory: directory.path().to_owned(), ring_len: 0, ..TapConfig::new("app") }
}

/// A tapped port, and the far end of its wire.
struct Port {
    rx: TapRx<MemoryRx>,
    tx: TapTx<MemoryTx>,
    far: (MemoryRx, MemoryTx),
    pool: Pool,
    now: Instant,
    directory: TempDir,
}

impl Port {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (near, mut far) = wire();
        let (pool, block) = (Pool::heap(512).unwrap(), Block::heap());
        let queue = TapDevice::new(near, config(&directory)).take_queue(0).unwrap();
        let (rx, tx) = queue.open(&pool, &block.scope("near")).unwrap();
        let far = far.take_queue(0).unwrap().open(&pool, &block.scope("far")).unwrap();
        Self { rx, tx, far, pool, now: Instant::from_nanos(1_000), directory }
    }

    fn tapped(&self) -> Tapped {
        let mut taps = Tapped::list(self.directory.path()).unwrap();
        assert!(taps.closed.is_empty());
        taps.running.pop().unwrap()
    }

    /// A listener that the worker has noticed.
    fn listen(&mut self, snap_len: usize) -> Listener {
        let mut listener = self.tapped().listen(snap_len).unwrap();
        self.receive();
        assert_eq!(listener.heartbeat().unwrap(), ListenerState::Listening);
        listener
    }

    /// Runs one receive of the worker; returns the number of frames.
    fn receive(&mut self) -> usize {
        let mut burst = Burst::new();
        let received = self.rx.receive(&mut burst, 32, &self.pool, self.now);
        burst.drain(..).for_each(Mbuf::free);
        received
    }

    /// The peer sends a frame, and the worker receives it.
    fn arrive(&mut self, frame: &[u8]) {
        self.far.1.post(self.pool.alloc_copy(frame).unwrap(), Offload::NONE).unwrap();
        self.far.1.ring_doorbell(self.now);
        assert_eq!(self.receive(), 1);
    }

    /// The worker sends a frame, and the peer receives it.
    fn send(&mut self, mbuf: Mbuf, offload: Offload) {
        self.tx.post(mbuf, offload).unwrap();
        self.tx.ring_doorbell(self.now);
        let mut burst = Burst::new();
        assert_eq!(self.far.0.receive(&mut burst, 32, &self.pool, self.now), 1);
        burst.drain(..).for_each(Mbuf::free);
        self.tx.reap();
    }

    fn send_copy(&mut self, frame: &[u8]) {
        let mbuf = self.pool.alloc_copy(frame).unwrap();
        self.send(mbuf, Offload::NONE);
    }
}

/// Direction, length on the wire, and recorded bytes.
type Seen = (Direction, usize, Vec<u8>);

fn read_all(listener: &mut Listener) -> Vec<Seen> {
    let mut seen = Vec::new();
    while let Some(frame) = listener.read().unwrap() {
        seen.push((frame.direction, frame.original_len, frame.bytes.to_vec()));
    }
    seen
}

#[test]
fn tapped_device_conforms_whether_somebody_listens_or_not() {
    for listens in [false, true] {
        let directory = Rc::new(tempfile::tempdir().unwrap());
        let folder = Rc::clone(&directory);
        let rig = WireRig::new(move || {
            let (near, far) = wire();
            (TapDevice::new(near, config(&folder)), TapDevice::new(far, config(&folder)))
        });
        assert_conforms(&mut rig.once_open(move |near_rx, pool| {
            let taps = Tapped::list(directory.path()).unwrap().running;
            let listeners: Vec<_> = taps.into_iter().take_while(|_| listens).map(|tap| tap.listen(64)).collect();
            // The send half learns of its listener when the receive half is polled, which the suite
            // does not do.
            near_rx.receive(&mut Burst::new(), 32, pool, Instant::ZERO);
            Box::new(listeners)
        }));
    }
}

#[test]
fn listener_waits_for_the_worker_to_poll() {
    let mut port = Port::new();
    let mut listener = port.tapped().listen(64).unwrap();
    assert_eq!((listener.heartbeat().unwrap(), read_all(&mut listener).len()), (ListenerState::Waiting, 0));
    port.receive();
    assert_eq!(listener.heartbeat().unwrap(), ListenerState::Listening);
}

#[test]
fn nothing_is_recorded_while_nobody_listens() {
    let mut port = Port::new();
    let before = std::fs::read(port.tapped().path()).unwrap();
    port.arrive(&[1; 60]);
    port.send_copy(&[2; 60]);
    assert!(before == std::fs::read(port.tapped().path()).unwrap());
}

#[test]
fn listener_gets_every_frame_in_order_with_direction_and_tag() {
    let mut port = Port::new();
    let mut listener = port.listen(1_500);
    for len in 14..200 {
        port.arrive(&vec![len as u8; len]);
        let mbuf = port.pool.alloc_copy(&vec![!(len as u8); len]).unwrap();
        port.send(mbuf, Offload::NONE.with_vlan(0x2007));
        let received = listener.read().unwrap().unwrap();
        assert_eq!((received.direction, received.vlan, received.original_len), (Direction::Rx, None, len));
        assert_eq!(received.bytes, vec![len as u8; len]);
        let sent = listener.read().unwrap().unwrap();
        assert_eq!((sent.direction, sent.vlan, sent.original_len), (Direction::Tx, Some(0x2007), len));
        let mut on_the_wire = Vec::new();
        assert_eq!(sent.copy_to(&mut on_the_wire), len + 4);
        assert_eq!(on_the_wire[12..16], [0x81, 0x00, 0x20, 0x07]);
        assert_eq!(on_the_wire.len(), len + 4);
    }
    assert_eq!(listener.read().unwrap(), None);
    assert_eq!(listener.missed(), FrameCounts::default());
}

#[test]
fn frame_in_segments_is_one_and_cut_where_the_listener_wants() {
    let mut port = Port::new();
    let mut listener = port.listen(70);
    let whole: Vec<u8> = (0..90).collect();
    let mut head = port.pool.alloc_copy(&whole[..17]).unwrap();
    head.attach(port.pool.alloc_copy(&whole[17..41]).unwrap());
    head.attach(port.pool.alloc_copy(&whole[41..]).unwrap());
    port.send(head, Offload::NONE);
    assert_eq!(read_all(&mut listener), [(Direction::Tx, 90, whole[..70].to_vec())]);
}

#[test]
fn refused_frame_is_not_shown() {
    let mut port = Port::new();
    let mut listener = port.listen(64);
    for _ in 0..SLOTS + 100 {
        let mbuf = port.pool.alloc_copy(&[7; 60]).unwrap();
        if let Err(mbuf) = port.tx.post(mbuf, Offload::NONE) {
            mbuf.free();
        }
    }
    assert_eq!(read_all(&mut listener).len(), SLOTS as usize);
    assert_eq!(listener.missed(), FrameCounts::default());
}

#[test]
fn slow_listener_counts_what_it_missed_to_the_frame() {
    let mut port = Port::new();
    let mut listener = port.listen(1_500);
    let (mut received, mut sent) = (0, 0);
    for round in 0..6_000_u64 {
        port.arrive(&[1; 400]);
        if round % 3 == 0 {
            port.send_copy(&[2; 100]);
        }
        if round % 2_500 == 0 || round == 5_999 {
            for (direction, ..) in read_all(&mut listener) {
                let count = if direction == Direction::Rx { &mut received } else { &mut sent };
                *count += 1;
            }
        }
    }
    let missed = listener.missed();
    assert!(missed.rx > 0 && missed.tx > 0 && received > 0 && sent > 0, "{missed:?} {received} {sent}");
    assert_eq!((received + missed.rx, sent + missed.tx), (6_000, 2_000));
}

#[test]
fn tap_goes_quiet_as_its_listener_leaves() {
    let mut port = Port::new();
    drop(port.listen(64));
    port.receive();
    port.arrive(&[1; 60]);
    let mut later = port.listen(64);
    assert_eq!((read_all(&mut later), later.missed()), (Vec::new(), FrameCounts::default()));
}

#[test]
fn tap_goes_quiet_by_itself_when_its_listener_is_killed() {
    let mut port = Port::new();
    let killed = core::mem::ManuallyDrop::new(port.listen(64));
    port.receive(); // Sees its last heartbeat.
    port.now += Duration::from_secs(4);
    port.receive();
    assert!(!port.rx.has_listener());
    let beat = std::fs::read(killed.path()).unwrap()[layout::HEARTBEAT * 8..][..8].to_vec();
    assert_eq!(beat, [0; 8]);
}

#[test]
fn listener_that_was_taken_for_dead_is_heard_again_and_counts_what_passed() {
    let mut port = Port::new();
    let mut listener = port.listen(64);
    port.arrive(&[1; 60]);
    port.now += Duration::from_secs(4);
    for _ in 0..5 {
        port.arrive(&[2; 60]);
    }
    listener.heartbeat().unwrap();
    port.arrive(&[3; 60]);
    let seen: Vec<_> = read_all(&mut listener).into_iter().map(|(_, _, bytes)| bytes[0]).collect();
    assert_eq!((seen, listener.missed().rx), (vec![1, 3], 5));
}

#[test]
fn two_listeners_get_everything_and_the_longer_cut() {
    let mut port = Port::new();
    let mut short = port.listen(20);
    let mut long = port.tapped().listen(50).unwrap();
    port.receive();
    assert_eq!(
        (short.heartbeat().unwrap(), long.heartbeat().unwrap()),
        (ListenerState::Listening, ListenerState::Listening)
    );
    port.arrive(&[1; 60]);
    assert_eq!(read_all(&mut short), [(Direction::Rx, 60, vec![1; 50])]);
    assert_eq!(read_all(&mut long).len(), 1);
    // It saw the beats of both, so it leaves the tap on.
    drop(short);
    port.arrive(&[2; 60]);
    assert_eq!(read_all(&mut long).len(), 1);
}

#[test]
fn frames_carry_the_listeners_wall_time() {
    let mut port = Port::new();
    let before = crate::counters::since_epoch_ns();
    let mut listener = port.listen(64);
    let after = crate::counters::since_epoch_ns();
    port.now += Duration::from_millis(1);
    port.arrive(&[1; 60]);
    let timestamp = listener.read().unwrap().unwrap().timestamp.as_nanos();
    assert!((before + 1_000_000..=after + 1_000_000).contains(&timestamp), "{before} {timestamp} {after}");
}

#[test]
fn closed_queue_ends_the_listener_behind_its_last_frame() {
    let mut port = Port::new();
    let mut listener = port.listen(64);
    port.arrive(&[1; 60]);
    let Port { rx, tx, directory, .. } = port;
    drop((rx, tx));
    while listener.heartbeat().unwrap() != ListenerState::Ended {
        std::thread::yield_now();
    }
    assert_eq!(read_all(&mut listener).len(), 1);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn ring_has_no_memory_until_a_listener_comes() {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let (near, _far) = wire();
    let ring_len = 1 << 20;
    let config = TapConfig { ring_len, ..config(&directory) };
    let queue = TapDevice::new(near, config).take_queue(0).unwrap();
    let used = || std::fs::metadata(queue.path().unwrap()).unwrap().blocks() * 512;
    assert!(used() <= 8_192, "{}", used());
    let tapped = Tapped::list(directory.path()).unwrap().running.pop().unwrap();
    let _listener = tapped.listen(64).unwrap();
    assert!(used() >= ring_len as u64, "{}", used());
}

#[test]
fn only_root_and_the_user_may_listen() {
    let port = Port::new();
    let listener = port.tapped().listen(64).unwrap();
    assert_eq!(std::fs::metadata(listener.path()).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn queue_without_room_for_its_ring_runs_and_says_so() {
    let (near, _far) = wire();
    let config = TapConfig { directory: "/proc/no/such".into(), ..TapConfig::new("app") };
    let mut device = TapDevice::new(near, config);
    let queue = device.take_queue(0).unwrap();
    assert_eq!(queue.path(), None);
    let problem = device.problems().next().unwrap().to_string();
    assert!(problem.starts_with("`wirepath capture` will not see wire.0 queue 0"), "{problem}");
    let (pool, block) = (Pool::heap(16).unwrap(), Block::heap());
    let (mut rx, mut tx) = queue.open(&pool, &block.scope("near")).unwrap();
    assert_eq!(rx.receive(&mut Burst::new(), 32, &pool, Instant::ZERO), 0);
    tx.post(pool.alloc_copy(&[0; 60]).unwrap(), Offload::NONE).unwrap();
}

#[test]
fn file_that_shrank_or_was_scribbled_on_ends_the_listener_in_words() {
    let mut port = Port::new();
    let mut listener = port.listen(64);
    (0..10).for_each(|_| port.arrive(&[1; 60]));
    let file = std::fs::OpenOptions::new().write(true).open(listener.path()).unwrap();
    file.write_all_at(&[0xff; 64], layout::RING as u64 * 8 + 40).unwrap();
    let error = listener.read().err().unwrap().to_string();
    assert!(error.contains("is damaged"), "{error}");
    let mut other = port.listen(64);
    // The worker's mapping would not survive a truncation of the file, and neither would this test.
    drop(port);
    file.set_len(8).unwrap();
    assert!(other.heartbeat().is_err());
}
