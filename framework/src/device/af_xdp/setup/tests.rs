//! A program that someone detaches while its queues run, on the loopback of a namespace of the
//! test's own.
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::io;
use std::process::Command;
use std::sync::Arc;

use super::port::Port;
use crate::counters::Block;
use crate::device::af_xdp::AfXdpConfig;
use crate::device::af_xdp::AfXdpDevice;
use crate::device::af_xdp::Mode;
use crate::device::af_xdp::interface::Interface;
use crate::device::af_xdp::program::assembler::{Assembler, Reg};
use crate::device::af_xdp::program::bpf::Program;
use crate::device::af_xdp::rings::sys;
use crate::device::af_xdp::rx::AfXdpRx;
use crate::device::af_xdp::tx::AfXdpTx;
use crate::device::steering::Rule;
use crate::device::{Device, Offload, Queue, RxQueue, RxState, TxQueue};
use crate::mem::{Burst, Layout, Mbuf, Pool, Region};
use crate::time::{Duration, Instant};
use crate::wire::EtherType;

const EXPERIMENT: Rule = Rule { ethertype: Some(EtherType(0x88b5)), ..Rule::ALL };

/// A port on `lo` with a running queue.
struct Looped {
    device: AfXdpDevice,
    rx: AfXdpRx,
    tx: AfXdpTx,
    pool: Pool,
    block: Block,
    now: Instant,
}

impl Looped {
    fn open() -> Self {
        // Frames of 64 KiB, as on a loopback, need more chunks than are allowed.
        assert!(Command::new("ip").args(["link", "set", "lo", "mtu", "1500"]).status().unwrap().success());
        set_link("up");
        let layout = Layout::umem(2048);
        let pool = Pool::new(Arc::new(Region::heap(layout.region_len(256)).unwrap()), layout).unwrap();
        let mut device = AfXdpDevice::open(&config()).unwrap();
        device.steer(&EXPERIMENT, 0).unwrap();
        let block = Block::heap();
        let (rx, tx) = device.take_queue(0).unwrap().open(&pool, &block.scope("q")).unwrap();
        let mut looped = Self { device, rx, tx, pool, block, now: Instant::from_nanos(1) };
        looped.receive();
        looped
    }

    fn port(&self) -> &Port {
        self.device.port()
    }

    /// Receives pending frames, a second after the last time, so that link and program are checked.
    fn receive(&mut self) -> usize {
        self.now += Duration::from_secs(1);
        let mut burst = Burst::new();
        self.tx.reap();
        let count = self.rx.receive(&mut burst, 32, &self.pool, self.now);
        burst.drain(..).for_each(Mbuf::free);
        count
    }

    /// Whether we receive a frame that we send: it arrives before the sending call returns.
    fn hears_itself(&mut self) -> bool {
        let frame = [&[0xff; 12][..], &[0x88, 0xb5], &[7; 50]].concat();
        let mbuf = self.pool.alloc_copy(&frame).unwrap();
        self.tx.post(mbuf, Offload::URGENT).map_err(Mbuf::free).unwrap();
        (0..100).any(|_| self.receive() == 1)
    }

    fn reattached_count(&self) -> u64 {
        self.block.snapshot().count("q/rx/program_put_back").unwrap()
    }
}

fn config() -> AfXdpConfig {
    AfXdpConfig { rx_ring_len: 64, tx_ring_len: 64, mode: Mode::Generic, ..AfXdpConfig::new("lo") }
}

fn set_link(state: &str) {
    assert!(Command::new("ip").args(["link", "set", "lo", state]).status().unwrap().success());
}

fn program() -> Option<u32> {
    Interface::find("lo").unwrap().program
}

/// Runs `check` in a new network namespace; prints a message if none can be made.
pub(crate) fn alone(test: &str, check: fn()) {
    let tried = std::thread::spawn(move || {
        sys::leave_namespace()?;
        check();
        io::Result::Ok(())
    });
    if let Err(error) = tried.join().unwrap() {
        println!("SKIPPED {test}: {error}; run as root");
    }
}

/// The device owns posted frames, even if the kernel does not accept them yet.
#[test]
fn frame_that_the_kernel_does_not_take_at_once_is_counted_and_leaves_later() {
    alone("frame_that_the_kernel_does_not_take_at_once_is_counted_and_leaves_later", || {
        let mut looped = Looped::open();
        let refused = |looped: &Looped| looped.block.snapshot().count("q/tx/wakeups_refused").unwrap();
        set_link("down");
        assert!(!looped.hears_itself(), "and its post said that it was taken");
        assert_eq!((refused(&looped), looped.tx.in_flight()), (1, 1));
        set_link("up");
        looped.tx.ring_doorbell(looped.now);
        assert!((0..100).any(|_| looped.receive() == 1));
        assert_eq!((refused(&looped), looped.tx.in_flight()), (1, 0));
    });
}

#[test]
fn program_that_is_taken_off_is_put_back_with_its_rules() {
    alone("program_that_is_taken_off_is_put_back_with_its_rules", || {
        let mut looped = Looped::open();
        assert!(looped.hears_itself());
        looped.port().detach().unwrap();
        assert_eq!(program(), None, "the kernel gets every frame, and says nothing");
        looped.receive();
        assert!(program().is_some());
        assert_eq!((looped.reattached_count(), looped.rx.state()), (1, RxState::Open));
        assert!(looped.hears_itself());
        assert_eq!(looped.device.why_ended(), None);
    });
}

#[test]
fn rule_that_comes_while_the_program_is_off_puts_it_back() {
    alone("rule_that_comes_while_the_program_is_off_puts_it_back", || {
        let mut looped = Looped::open();
        looped.port().detach().unwrap();
        looped.device.steer(&Rule::igmp(), 0).unwrap();
        assert!(program().is_some());
        looped.receive();
        assert_eq!(looped.reattached_count(), 1);
        assert!(looped.hears_itself());
    });
}

#[test]
fn queue_has_ended_where_another_program_took_the_interface() {
    alone("queue_has_ended_where_another_program_took_the_interface", || {
        let mut looped = Looped::open();
        looped.port().detach().unwrap();
        let other = AfXdpDevice::open(&config()).unwrap();
        looped.receive();
        assert_eq!((looped.reattached_count(), looped.rx.state()), (0, RxState::Ended));
        let said = looped.device.why_ended().unwrap();
        assert!(
            said.starts_with("the XDP program was taken off lo while it ran, and cannot be put back: lo already has"),
            "{said}"
        );
        assert!(said.contains("kept by this process"), "{said}");
        drop(other);
        looped.receive();
        assert_eq!(looped.rx.state(), RxState::Ended, "for good: whoever runs it has been told");
    });
}

/// The kernel returns EINVAL for a missing interface. This one exists.
#[test]
fn queue_has_ended_where_the_interface_refuses_the_program() {
    alone("queue_has_ended_where_the_interface_refuses_the_program", || {
        let mut looped = Looped::open();
        // An egress program, which nothing accepts as one for XDP.
        let mut asm = Assembler::default();
        asm.mov(Reg::R0, 0);
        asm.exit();
        let (other, link) = Program::on_the_way_out(&asm.finish(), Interface::find("lo").unwrap().index).unwrap();
        drop(link);
        looped.port().detach_for(other).unwrap();
        looped.receive();
        assert_eq!((looped.reattached_count(), looped.rx.state()), (0, RxState::Ended));
        let said = looped.device.why_ended().unwrap();
        assert!(said.contains("taken off lo while it ran, and cannot be put back: "), "{said}");
        assert!(said.contains("Invalid argument"), "{said}");
        assert!(looped.device.steer(&Rule::igmp(), 0).is_err(), "nor does a rule that is added say that all is well");
    });
}
