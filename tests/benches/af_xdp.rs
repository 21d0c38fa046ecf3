//! Figures of AF_XDP over veth: what is received, what is forwarded, and how many system calls a frame costs. They say more
//! about veth and this machine than about us; compare them in one run only.
//!
//! `cargo bench -p wirepath-tests --bench af_xdp`, as root.
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use wirepath::counters::Block;
use wirepath::device::af_xdp::{AfXdpConfig, AfXdpDevice, AfXdpRx, AfXdpTx, Mode};
use wirepath::device::steering::Rule;
use wirepath::device::{Device, Offload, Queue, RxQueue, TxQueue};
use wirepath::mem::{Burst, Layout, Mbuf, Pool, Region};
use wirepath::time::Instant;
use wirepath::wire::EtherType;
use wirepath_tests::netns::Namespace;

fn main() {
    if let Err(why) = Namespace::new() {
        return println!("SKIPPED af_xdp: {why}; run as root");
    }
    receive();
    receive_from_kernel_sockets();
    share();
    forward();
}

const EXPERIMENT: Rule = Rule { ethertype: Some(EtherType(0x88b5)), ..Rule::ALL };

fn seconds() -> Duration {
    let seconds = std::env::var("WIREPATH_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    Duration::from_secs_f64(seconds.unwrap_or(2.0))
}

struct Port {
    rx: AfXdpRx,
    tx: AfXdpTx,
    block: Block,
    _device: AfXdpDevice,
}

fn open(interface: &str, mode: Mode, rules: &[Rule], pool: &Pool) -> Port {
    let config = AfXdpConfig { mode, rx_ring_len: 512, tx_ring_len: 512, ..AfXdpConfig::new(interface) };
    let mut device = AfXdpDevice::open(&config).unwrap();
    for rule in rules {
        device.steer(rule, 0).unwrap();
    }
    let block = Block::heap();
    let (mut rx, tx) = device.take_queue(0).unwrap().open(pool, &block.scope("port")).unwrap();
    rx.receive(&mut Burst::new(), 1, pool, now());
    Port { rx, tx, block, _device: device }
}

fn pool() -> Pool {
    let layout = Layout::umem(2048);
    Pool::new(Arc::new(Region::heap(layout.region_len(4096)).unwrap()), layout).unwrap()
}

fn now() -> Instant {
    static START: std::sync::LazyLock<std::time::Instant> = std::sync::LazyLock::new(std::time::Instant::now);
    Instant::from_nanos(START.elapsed().as_nanos() as u64 + 1)
}

impl Port {
    fn count(&self, name: &str) -> u64 {
        self.block.snapshot().count(&format!("port/{name}")).unwrap()
    }
}

/// Sends bursts of 32 frames of 60 bytes for as long as the others run.
fn generate(interface: &str, mode: Mode, running: &AtomicBool) -> String {
    let pool = pool();
    let mut port = open(interface, mode, &[], &pool);
    let frame = [&[0xff; 6][..], &[2, 0, 0, 0, 0, 1, 0x88, 0xb5], &[0; 46]].concat();
    while running.load(Ordering::Relaxed) {
        port.tx.reap();
        for _ in 0..32 {
            let Some(mbuf) = pool.alloc_copy(&frame) else { break };
            if let Err(mbuf) = port.tx.post(mbuf, Offload::default()) {
                mbuf.free();
                break;
            }
        }
        port.tx.ring_doorbell(now());
    }
    let frames = port.count("tx/frames");
    format!("{frames} sent, {:.3} kicks a frame", port.count("tx/kicks") as f64 / frames as f64)
}

fn receive() {
    for mode in [Mode::Native, Mode::Generic] {
        let (near, far) = (Namespace::new().unwrap(), Namespace::new().unwrap());
        near.veth("veth0", &far, "veth1").unwrap();
        let running = AtomicBool::new(true);
        std::thread::scope(|scope| {
            let sender = scope.spawn(|| near.run(|| generate("veth0", mode, &running)));
            far.run(|| {
                let pool = pool();
                let mut port = open("veth1", mode, &[EXPERIMENT], &pool);
                let (start, mut frames) = (std::time::Instant::now(), 0);
                while start.elapsed() < seconds() {
                    let mut burst = Burst::new();
                    frames += port.rx.receive(&mut burst, 32, &pool, now());
                    burst.drain(..).for_each(Mbuf::free);
                }
                let rate = frames as f64 / start.elapsed().as_secs_f64() / 1e6;
                running.store(false, Ordering::Relaxed);
                port.rx.refresh_counters();
                let lost = port.count("rx/drop/rx_ring_full") + port.count("rx/drop/kernel_dropped");
                println!("receive, {mode:?}: {rate:.2} Mpps from AF_XDP, {lost} dropped in the ring");
            });
            println!("  sender: {}", sender.join().unwrap());
        });
    }
}

fn receive_from_kernel_sockets() {
    let (near, far) = (Namespace::new().unwrap(), Namespace::new().unwrap());
    near.veth("veth0", &far, "veth1").unwrap();
    near.ip(&["addr", "add", "10.9.0.1/24", "dev", "veth0"]).unwrap();
    near.ip(&["route", "add", "239.0.0.0/8", "dev", "veth0"]).unwrap();
    let running = AtomicBool::new(true);
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| {
            near.run(|| {
                let socket = UdpSocket::bind("10.9.0.1:0").unwrap();
                let mut sent = 0u64;
                while running.load(Ordering::Relaxed) {
                    sent += u64::from(socket.send_to(&[0; 64], "239.1.2.3:9000").is_ok());
                }
                sent
            })
        });
        far.run(|| {
            let pool = pool();
            let mut port = open("veth1", Mode::Native, &[Rule::udp([239, 1, 2, 3].into(), 9000)], &pool);
            let (start, mut frames) = (std::time::Instant::now(), 0);
            while start.elapsed() < seconds() {
                let mut burst = Burst::new();
                frames += port.rx.receive(&mut burst, 32, &pool, now());
                burst.drain(..).for_each(Mbuf::free);
            }
            let rate = frames as f64 / start.elapsed().as_secs_f64() / 1e6;
            running.store(false, Ordering::Relaxed);
            println!("receive: {rate:.2} Mpps of multicast from a kernel socket, {frames} frames");
        });
        println!("  sender: {} sent", sender.join().unwrap());
    });
}

/// One turn of a forwarder up to its doorbell, which is the kernel's share: what it posted, and what did not fit.
#[inline(never)]
fn turn(from: &mut Port, to: &mut Port, pool: &Pool, now: Instant) -> (u64, u64) {
    let (mut posted, mut refused) = (0, 0);
    to.tx.reap();
    let mut burst = Burst::new();
    from.rx.receive(&mut burst, 32, pool, now);
    for mut mbuf in burst.drain(..) {
        mbuf.bytes_mut()[..6].fill(2);
        match to.tx.post(mbuf, Offload::default()) {
            Ok(()) => posted += 1,
            Err(mbuf) => (refused, _) = (refused + 1, mbuf.free()),
        }
    }
    (posted, refused)
}

/// Sends a burst, forwards it, and so on, on one thread: each turn has 32 frames. Instructions of a frame:
/// `WIREPATH_ROUNDS=2000 valgrind --tool=callgrind --toggle-collect='*turn*' TEST share --ignored`, over 64,000.
fn share() {
    let rounds = std::env::var("WIREPATH_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(20_000);
    let namespace = Namespace::new().unwrap();
    namespace.veth("veth0", &namespace, "in").unwrap();
    namespace.veth("out", &namespace, "veth1").unwrap();
    namespace.run(|| {
        let (near_pool, pool) = (pool(), pool());
        let mut near = open("veth0", Mode::Native, &[], &near_pool);
        let mut from = open("in", Mode::Native, &[EXPERIMENT], &pool);
        let mut to = open("out", Mode::Native, &[], &pool);
        let frame = [&[0xff; 6][..], &[2, 0, 0, 0, 0, 1, 0x88, 0xb5], &[0; 46]].concat();
        let (mut ours, mut kernel, mut frames) = (Duration::ZERO, Duration::ZERO, 0);
        for _ in 0..rounds {
            near.tx.reap();
            for _ in 0..32 {
                near.tx.post(near_pool.alloc_copy(&frame).unwrap(), Offload::default()).unwrap();
            }
            near.tx.ring_doorbell(now());
            let start = std::time::Instant::now();
            frames += turn(&mut from, &mut to, &pool, now()).0;
            let posted = std::time::Instant::now();
            to.tx.ring_doorbell(now());
            (ours, kernel) = (ours + (posted - start), kernel + posted.elapsed());
        }
        let each = |time: Duration| time.as_nanos() as f64 / frames as f64;
        let kicks = to.count("tx/kicks") as f64 / frames as f64;
        println!(
            "forward: {:.1} ns a frame are ours, {:.0} ns the kernel's doorbell; {frames} frames in {rounds} bursts, {kicks:.3} \
             system calls a frame",
            each(ours),
            each(kernel)
        );
    });
}

fn forward() {
    for mode in [Mode::Native, Mode::Generic] {
        let (near, middle, far) = (Namespace::new().unwrap(), Namespace::new().unwrap(), Namespace::new().unwrap());
        near.veth("veth0", &middle, "in").unwrap();
        middle.veth("out", &far, "veth1").unwrap();
        let running = AtomicBool::new(true);
        std::thread::scope(|scope| {
            let sender = scope.spawn(|| near.run(|| generate("veth0", mode, &running)));
            middle.run(|| {
                let pool = pool();
                let mut from = open("in", mode, &[EXPERIMENT], &pool);
                let mut to = open("out", mode, &[], &pool);
                let start = std::time::Instant::now();
                let (mut posted, mut refused) = (0u64, 0u64);
                while start.elapsed() < seconds() {
                    let (sent, back) = turn(&mut from, &mut to, &pool, now());
                    to.tx.ring_doorbell(now());
                    (posted, refused) = (posted + sent, refused + back);
                }
                let rate = posted as f64 / start.elapsed().as_secs_f64() / 1e6;
                running.store(false, Ordering::Relaxed);
                let kicks = to.count("tx/kicks") as f64 / posted as f64;
                println!("forward, {mode:?}: {rate:.2} Mpps, {posted} frames, {refused} refused, {kicks:.3} system calls a frame");
            });
            println!("  sender: {}", sender.join().unwrap());
        });
    }
}
