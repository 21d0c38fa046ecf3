//! A port under faults: interfaces and namespaces that are removed under traffic, workers that
//! panic, processes that abort, frames that are too long for every path. Afterwards no program is
//! attached, nothing hangs, and the next start works.
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};

use wirepath::counters::Block;
use wirepath::device::af_xdp::{AfXdpConfig, Mode};
use wirepath::device::{Device, Offload, Queue, RxQueue, RxState, TxQueue};
use wirepath::mem::Mbuf;
use wirepath_tests::netns::{self, Namespace};
use wirepath_tests::packet::PacketSocket;
use wirepath_tests::port::{
    EXPERIMENT, Port, TIMEOUT, Wire, config, frame, has_program, number, open, pool, sentence, wait_until, wire,
};

/// A port of a namespace that has lost its interface: buffers in flight are freed, both halves
/// close, and a new interface of the same name works.
fn ends_and_starts_again<T>(mut port: Port, again: impl FnOnce() -> T) {
    assert!(port.until(|port| (port.receive(), port.rx.state()).1 == RxState::Ended));
    port.send(&frame(1, 64));
    assert!(port.until(|port| (port.tx.reap(), port.tx.in_flight()).1 == 0));
    let Port { rx, tx, device, pool, .. } = port;
    drop((rx, tx, device));
    assert_eq!((pool.in_use(), pool.drops_without_reason()), (0, 0));
    let _peer = again();
    assert_eq!(Port::open(&config("veth1"), &[EXPERIMENT]).rx.state(), RxState::Open);
}

/// Stops the sender even where the test fails, which would otherwise wait for the sender for ever.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn interface_that_is_deleted_under_traffic_ends_the_queue() {
    let Some(Wire { near, far }) = wire("interface_that_is_deleted_under_traffic_ends_the_queue") else { return };
    let (is_open, stop) = (AtomicBool::new(false), AtomicBool::new(false));
    let peer = near.run(|| PacketSocket::open("veth0").unwrap());
    std::thread::scope(|scope| {
        // The kernel refuses frames to a removed interface; that is expected here. A port that has
        // just been opened has empty rings, which `Port::open` checks.
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                if is_open.load(Ordering::Relaxed) {
                    _ = peer.send(&frame(1, 64));
                }
            }
        });
        far.run(|| {
            let stop = StopOnDrop(&stop);
            let mut port = Port::open(&config("veth1"), &[EXPERIMENT]);
            is_open.store(true, Ordering::Relaxed);
            assert!(!port.receive_some(100).is_empty());
            far.ip(&["link", "del", "veth1"]).unwrap();
            drop(stop);
            ends_and_starts_again(port, || near.veth("veth0", &far, "veth1").unwrap());
        });
    });
}

#[test]
fn peer_whose_namespace_is_deleted_takes_the_link_along() {
    let Some(Wire { near, far }) = wire("peer_whose_namespace_is_deleted_takes_the_link_along") else { return };
    far.run(|| {
        let port = Port::open(&config("veth1"), &[EXPERIMENT]);
        near.remove();
        ends_and_starts_again(port, || {
            let near = Namespace::new().unwrap();
            near.veth("veth0", &far, "veth1").unwrap();
            near
        });
    });
}

#[test]
fn namespace_whose_name_is_deleted_lives_as_long_as_the_port() {
    let test = "namespace_whose_name_is_deleted_lives_as_long_as_the_port";
    let Some(Wire { near, far }) = wire(test) else { return };
    std::thread::scope(|scope| {
        let far = &far;
        let closed = scope.spawn(|| {
            netns::enter(far.name()).unwrap();
            let mut port = Port::open(&config("veth1"), &[EXPERIMENT]);
            far.ip(&["netns", "del", far.name()]).unwrap();
            near.run(|| assert!(Port::open(&config("veth0"), &[]).send(&frame(5, 64))));
            assert_eq!(number(&port.receive_some(1)[0]), 5);
            assert_eq!(port.rx.state(), RxState::Open);
        });
        closed.join().unwrap();
    });
    // The port was the last that had it.
    wait_until(|| near.ip(&["link", "show", "dev", "veth0"]).is_err());
}

const NAMESPACE: &str = "WIREPATH_TEST_NAMESPACE";
const END: &str = "WIREPATH_TEST_END";

/// Not a test by itself: a process whose worker ends as the environment variable says.
#[test]
fn ends_badly_in_a_process_of_its_own() {
    let (Ok(namespace), Ok(end)) = (std::env::var(NAMESPACE), std::env::var(END)) else { return };
    netns::enter(&namespace).unwrap();
    let mut device = open(&config("veth1"));
    device.steer(&EXPERIMENT, 0).unwrap();
    let queue = device.take_queue(0).unwrap();
    let worker = std::thread::spawn(move || {
        let (pool, block) = (pool(1024, 2048), Block::heap());
        let (mut rx, mut tx) = queue.open(&pool, &block.scope("port")).unwrap();
        rx.receive(&mut wirepath::mem::Burst::new(), 32, &pool, wirepath::time::Instant::from_nanos(1));
        tx.post(pool.alloc_copy(&frame(1, 64)).unwrap(), Offload::NONE).map_err(Mbuf::free).unwrap();
        eprintln!("attached");
        match end.as_str() {
            "panic" => panic!("as the test wants it"),
            _ => std::process::abort(),
        }
    });
    worker.join().unwrap();
}

fn ends_badly(namespace: &Namespace, end: &str) -> Output {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "ends_badly_in_a_process_of_its_own", "--nocapture"])
        .env(NAMESPACE, namespace.name())
        .env(END, end)
        .output()
        .unwrap()
}

#[test]
fn worker_that_panics_or_aborts_leaves_nothing_behind() {
    let Some(wire) = wire("worker_that_panics_or_aborts_leaves_nothing_behind") else { return };
    for end in ["panic", "abort"] {
        let output = ends_badly(&wire.far, end);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains("attached"), "{end}: {said}");
        wait_until(|| !has_program(&wire.far));
        wire.far.run(|| {
            let mut port = Port::open(&config("veth1"), &[EXPERIMENT]);
            wire.near.run(|| assert!(Port::open(&config("veth0"), &[]).send(&frame(4, 64))));
            assert_eq!(number(&port.receive_some(1)[0]), 4, "after a worker that ended by {end}");
        });
    }
}

#[test]
fn frames_that_no_chain_takes_are_refused_before_the_first() {
    let Some(wire) = wire("frames_that_no_chain_takes_are_refused_before_the_first") else { return };
    for end in [(&wire.near, "veth0"), (&wire.far, "veth1")] {
        end.0.ip(&["link", "set", end.1, "mtu", "65535"]).unwrap();
    }
    wire.far.run(|| {
        for (chunk_len, step) in [(2048, "Layout::umem(4096)"), (4096, "`ip link set dev veth1 mtu 63086`")] {
            let mut device = open(&config("veth1"));
            let queue = device.take_queue(0).unwrap();
            let said = sentence(queue.open(&pool(1024, chunk_len), &Block::heap().scope("port")));
            assert!(said.contains("frames of veth1 (mtu 65535) take more than 17 chunks"), "{said}");
            assert!(said.contains(step), "{said}");
            drop(device);
            assert!(!has_program(&wire.far));
        }
    });
}

#[test]
fn jumbo_frames_of_the_kernel_arrive_and_ours_arrive_there() {
    let Some(wire) = wire("jumbo_frames_of_the_kernel_arrive_and_ours_arrive_there") else { return };
    wire.near.ip(&["link", "set", "veth0", "mtu", "9000"]).unwrap();
    wire.far.ip(&["link", "set", "veth1", "mtu", "9000"]).unwrap();
    let kernel = wire.near.run(|| PacketSocket::open("veth0").unwrap());
    for (mode, chunk_len) in [(Mode::Native, 2048), (Mode::Native, 4096), (Mode::Generic, 2048), (Mode::Generic, 4096)]
    {
        wire.far.run(|| {
            let config = AfXdpConfig { mode, ..config("veth1") };
            let mut port = Port::with_pool(&config, &[EXPERIMENT], pool(1024, chunk_len));
            for len in [60, 1514, 1664, 1665, 3712, 3713, 9014] {
                let sent = frame(len as u64, len);
                kernel.send(&sent).unwrap();
                assert_eq!(port.receive_some(1), [&sent[..]], "{len} bytes, {mode:?}, chunks of {chunk_len}");
                let mut chain: Option<Mbuf> = None;
                for part in sent.chunks(1500).rev() {
                    let mut mbuf = port.pool.alloc_copy(part).unwrap();
                    chain.take().into_iter().for_each(|rest| mbuf.attach(rest));
                    chain = Some(mbuf);
                }
                port.tx.post(chain.unwrap(), Offload::NONE).map_err(Mbuf::free).unwrap();
                port.tx.ring_doorbell(port.now);
                let received = kernel.receive(TIMEOUT).unwrap();
                assert_eq!(received.frame, sent, "{len} bytes, {mode:?}, chunks of {chunk_len}");
            }
        });
    }
}
