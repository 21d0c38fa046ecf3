//! Queues that start to receive one after the other, on a veth with two of them in a namespace of
//! the test's own.
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::process::Command;
use std::sync::Arc;

use crate::counters::Block;
use crate::device::af_xdp::AfXdpConfig;
use crate::device::af_xdp::AfXdpDevice;
use crate::device::af_xdp::Mode;
use crate::device::af_xdp::rx::AfXdpRx;
use crate::device::af_xdp::setup::device::AfXdpQueue;
use crate::device::af_xdp::setup::tests::alone;
use crate::device::af_xdp::tx::AfXdpTx;
use crate::device::{Device, Offload, Queue, RxQueue, TxQueue};
use crate::mem::{Burst, Layout, Mbuf, Pool, Region};
use crate::time::{Duration, Instant};

/// A port on one end of the veth.
fn port() -> AfXdpDevice {
    let veth = "link add veth0 numtxqueues 2 numrxqueues 2 type veth peer name veth1 numtxqueues 2 numrxqueues 2";
    for arguments in [veth, "link set veth0 up", "link set veth1 up"] {
        assert!(Command::new("ip").args(arguments.split(' ')).status().unwrap().success());
    }
    let config = AfXdpConfig { rx_ring_len: 64, tx_ring_len: 64, mode: Mode::Generic, ..AfXdpConfig::new("veth1") };
    AfXdpDevice::open(&config).unwrap()
}

/// An open queue of a worker.
struct Open {
    rx: AfXdpRx,
    tx: AfXdpTx,
    pool: Pool,
    block: Block,
    now: Instant,
}

impl Open {
    fn of(queue: AfXdpQueue) -> Self {
        let layout = Layout::umem(2048);
        let pool = Pool::new(Arc::new(Region::heap(layout.region_len(256)).unwrap()), layout).unwrap();
        let block = Block::heap();
        let (rx, tx) = queue.open(&pool, &block.scope("q")).unwrap();
        Self { rx, tx, pool, block, now: Instant::ZERO }
    }

    /// Receives, a second after the last time.
    fn poll(&mut self) {
        self.now += Duration::from_secs(1);
        let mut burst = Burst::new();
        self.rx.receive(&mut burst, 32, &self.pool, self.now);
        burst.drain(..).for_each(Mbuf::free);
    }

    /// Whether an urgent frame is accepted.
    fn sends(&mut self) -> bool {
        let has_room = self.tx.room() > 0;
        let mbuf = self.pool.alloc_copy(&[0xff; 64]).unwrap();
        let is_taken = self.tx.post(mbuf, Offload::URGENT).map_err(Mbuf::free).is_ok();
        assert_eq!(is_taken, has_room);
        is_taken
    }

    fn count(&self, name: &str) -> u64 {
        self.block.snapshot().count(name).unwrap()
    }
}

#[test]
fn nothing_leaves_a_queue_before_the_others_hear() {
    alone("nothing_leaves_a_queue_before_the_others_hear", || {
        let mut device = port();
        let queues = [0, 1].map(|idx| device.take_queue(idx).unwrap());
        let [mut first, mut second] = queues.map(Open::of);
        assert!(!first.sends(), "what is answered to the other queue would come to the kernel");
        first.poll();
        assert!(!first.sends());
        assert_eq!((first.count("q/tx/refused_before_ready"), first.count("q/tx/wakeups")), (2, 0));
        second.poll();
        assert!(first.sends() && second.sends());
        assert_eq!((first.count("q/tx/refused_before_ready"), first.count("q/tx/frames")), (2, 1));
    });
}

#[test]
fn queue_that_wants_to_send_hears_without_a_poll() {
    alone("queue_that_wants_to_send_hears_without_a_poll", || {
        let mut device = port();
        let queues = [0, 1].map(|idx| device.take_queue(idx).unwrap());
        let [mut first, mut second] = queues.map(Open::of);
        assert!(!first.sends());
        assert!(second.sends() && first.sends());
    });
}

#[test]
fn queue_that_is_given_up_is_not_waited_for() {
    alone("queue_that_is_given_up_is_not_waited_for", || {
        let mut device = port();
        let [first, second] = [0, 1].map(|idx| device.take_queue(idx).unwrap());
        let mut first = Open::of(first);
        assert!(!first.sends());
        drop(second);
        assert!(first.sends());
    });
}

#[test]
fn queue_that_was_opened_and_is_given_up_is_not_waited_for() {
    alone("queue_that_was_opened_and_is_given_up_is_not_waited_for", || {
        let mut device = port();
        let queues = [0, 1].map(|idx| device.take_queue(idx).unwrap());
        let [mut first, second] = queues.map(Open::of);
        assert!(!first.sends());
        drop(second);
        assert!(first.sends());
    });
}

#[test]
fn queue_that_is_taken_later_stops_nobody() {
    alone("queue_that_is_taken_later_stops_nobody", || {
        let mut device = port();
        let mut first = Open::of(device.take_queue(0).unwrap());
        assert!(first.sends());
        let _second = device.take_queue(1).unwrap();
        assert!(first.sends());
    });
}

/// As if a program had dropped its capabilities since.
#[test]
fn nothing_leaves_a_queue_that_the_kernel_does_not_let_hear() {
    alone("nothing_leaves_a_queue_that_the_kernel_does_not_let_hear", || {
        let mut device = port();
        let mut queue = Open::of(device.take_queue(0).unwrap());
        device.port().freeze().unwrap();
        queue.poll();
        assert!(!queue.sends());
        assert_eq!((queue.count("q/tx/refused_before_ready"), queue.count("q/tx/frames")), (1, 0));
        assert_eq!(queue.count("q/rx/connects_refused"), 3, "the poll, the question for room, and the frame");
    });
}
