//! A bond of two AF_XDP ports, both over one pool and turned by one thread, against a switch that
//! floods. The kernels of the test machines have no bonding, so the legs are two ordinary cables,
//! and the test selects the active one. The tests beside `Follower::steer_bond` prove that the
//! kernel's choice is followed.
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::collections::BTreeSet;

use wirepath::counters::Block;
use wirepath::device::af_xdp::{AfXdpConfig, AfXdpDevice, Mode};
use wirepath::device::bond::{ActiveLeg, BondDevice};
use wirepath::device::{Device, Offload, Queue, RxOf, RxQueue, TxOf, TxQueue};
use wirepath::mem::{Burst, Pool};
use wirepath::time::{Duration, Instant};
use wirepath_tests::netns::Namespace;
use wirepath_tests::packet::PacketSocket;
use wirepath_tests::port::{EXPERIMENT, TIMEOUT, config, frame, number, open, pool};

const RING: usize = 256;

struct Scene {
    rx: RxOf<BondDevice<AfXdpDevice>>,
    tx: TxOf<BondDevice<AfXdpDevice>>,
    _device: BondDevice<AfXdpDevice>,
    active: ActiveLeg,
    /// The switch's ends of the legs.
    switch: Vec<PacketSocket>,
    block: Block,
    pool: Pool,
    now: Instant,
    received: Vec<u64>,
}

impl Scene {
    fn open(mode: Mode, far: &Namespace) -> Self {
        let legs = ["left0", "right0"].map(|leg| open(&AfXdpConfig { mode, ..config(leg) }));
        let mut device = BondDevice::new("bond0", legs.into()).unwrap();
        device.steer(&EXPERIMENT, 0).unwrap();
        let (pool, block) = (pool(1024, 2048), Block::heap());
        let (rx, tx) = device.take_queue(0).unwrap().open(&pool, &block.scope("port")).unwrap();
        block.check().unwrap();
        let switch = far.run(|| ["left1", "right1"].map(|leg| PacketSocket::open(leg).unwrap()).into());
        let (active, now) = (device.active_leg(), Instant::from_nanos(1));
        let mut scene = Self { rx, tx, _device: device, active, switch, block, pool, now, received: Vec::new() };
        scene.turn();
        scene
    }

    fn turn(&mut self) {
        self.now += Duration::from_millis(1);
        self.tx.reap();
        let mut burst = Burst::new();
        self.rx.receive(&mut burst, 32, &self.pool, self.now);
        self.received.extend(burst.drain(..).map(|mbuf| (number(mbuf.bytes()), mbuf.free()).0));
        self.tx.ring_doorbell(self.now);
    }

    /// Turns until all that was sent is received or dropped by name.
    fn settle(&mut self, sent: u64) {
        let start = std::time::Instant::now();
        while self.received.len() as u64 + self.standby_drops() < sent {
            assert!(start.elapsed() < TIMEOUT, "{} and {} of {sent}", self.received.len(), self.standby_drops());
            self.turn();
            std::thread::yield_now();
        }
    }

    fn standby_drops(&self) -> u64 {
        self.block.snapshot().count("port/bond/drop/standby_leg").unwrap()
    }

    /// Sends a frame by the bond; by which leg it came out.
    fn send(&mut self, number: u64) -> usize {
        let mbuf = self.pool.alloc_copy(&frame(number, 64)).unwrap();
        self.tx.post(mbuf, Offload::NONE).map_err(drop).unwrap();
        let start = std::time::Instant::now();
        while start.elapsed() < TIMEOUT {
            self.turn();
            for (leg, socket) in self.switch.iter().enumerate() {
                let patience = std::time::Duration::from_millis(1);
                if socket.receive(patience).is_ok_and(|received| received.frame == frame(number, 64)) {
                    return leg;
                }
            }
        }
        panic!("frame {number} does not come out");
    }
}

#[test]
fn standby_leg_is_dropped_by_name_and_nothing_is_lost_when_the_bond_moves() {
    let test = "standby_leg_is_dropped_by_name_and_nothing_is_lost_when_the_bond_moves";
    let (near, far) = match (Namespace::new(), Namespace::new()) {
        (Ok(near), Ok(far)) => (near, far),
        (Err(why), _) | (_, Err(why)) => {
            println!("SKIPPED {test}: {why}; run as root");
            return;
        }
    };
    near.veth("left0", &far, "left1").unwrap();
    near.veth("right0", &far, "right1").unwrap();
    for mode in [Mode::Native, Mode::Generic] {
        near.run(|| {
            let mut scene = Scene::open(mode, &far);
            for number in 0..100 {
                scene.switch.iter().for_each(|leg| leg.send(&frame(number, 64)).unwrap());
                scene.turn();
            }
            scene.settle(200);
            assert_eq!((scene.received.len(), scene.standby_drops()), (100, 100), "{mode:?}");
            assert_eq!(scene.send(1_000), 0, "{mode:?}");

            scene.active.set(1);
            scene.received.clear();
            for number in 100..600 {
                scene.switch.iter().for_each(|leg| leg.send(&frame(number, 64)).unwrap());
                scene.turn();
            }
            scene.settle(100 + 1_000);
            assert_eq!((scene.received.len(), scene.standby_drops()), (500, 600), "{mode:?}");
            assert!(BTreeSet::from_iter(scene.received.iter().copied()).into_iter().eq(100..600), "{mode:?}");
            assert_eq!(scene.send(1_001), 1, "{mode:?}");
            assert_eq!(scene.block.snapshot().count("port/bond/changes"), Some(1));
            // All buffers except those that both legs have lent to the kernel are back.
            let start = std::time::Instant::now();
            while scene.tx.in_flight() > 0 && start.elapsed() < TIMEOUT {
                scene.turn();
            }
            assert_eq!((scene.pool.in_use(), scene.pool.drops_without_reason()), (2 * RING, 0), "{mode:?}");
        });
    }
}
