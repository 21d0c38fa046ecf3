//! Bonds of memory links.

use super::*;
use crate::counters::Block;
use crate::device::memory::{MemoryDevice, MemoryRx, MemoryTx};
use crate::device::steering::Rule;
use crate::device::testing::conformance::assert_conforms;
use crate::device::testing::wire_rig::{self, WireRig};
use crate::device::{Device, Offload, Queue, RxQueue, TxQueue};
use crate::mem::{Burst, Pool};
use crate::time::Instant;

/// Two bonds, whose legs are connected each with its like.
struct Wire {
    pool: Pool,
    block: Block,
    near: (BondRx<MemoryRx>, BondTx<MemoryTx>),
    far: (BondRx<MemoryRx>, BondTx<MemoryTx>),
    near_leg: ActiveLeg,
    far_leg: ActiveLeg,
}

fn devices() -> (BondDevice<MemoryDevice>, BondDevice<MemoryDevice>) {
    let (near, far) = [wire_rig::wire(), wire_rig::wire()].into_iter().unzip();
    (BondDevice::new("near", near).unwrap(), BondDevice::new("far", far).unwrap())
}

fn wire(buffers: usize) -> Wire {
    let (pool, block) = (Pool::heap(buffers).unwrap(), Block::heap());
    let (mut near, mut far) = devices();
    let open = |device: &mut BondDevice<MemoryDevice>, scope| {
        device.take_queue(0).unwrap().open(&pool, &block.scope(scope)).unwrap()
    };
    let (near_leg, far_leg) = (near.active_leg(), far.active_leg());
    let (near, far) = (open(&mut near, "near"), open(&mut far, "far"));
    Wire { pool, block, near, far, near_leg, far_leg }
}

impl Wire {
    fn send(&mut self, byte: u8) {
        let mbuf = self.pool.alloc_copy(&[byte; 60]).unwrap();
        self.near.1.post(mbuf, Offload::NONE).map_err(drop).unwrap();
        self.near.1.ring_doorbell(Instant::ZERO);
    }

    fn receive(&mut self) -> Vec<u8> {
        let mut burst = Burst::new();
        self.far.0.receive(&mut burst, 32, &self.pool, Instant::ZERO);
        self.near.1.reap();
        burst.drain(..).map(|mbuf| (mbuf.bytes()[0], mbuf.free()).0).collect()
    }

    fn standby_drops(&self) -> u64 {
        self.block.snapshot().count("far/bond/drop/standby_leg").unwrap()
    }
}

#[test]
fn frames_of_the_standby_leg_are_dropped_by_name() {
    let mut wire = wire(64);
    wire.send(1);
    wire.near_leg.set(1);
    wire.send(2);
    assert_eq!((wire.receive(), wire.standby_drops()), (vec![1], 1));
    wire.far_leg.set(1);
    wire.send(3);
    assert_eq!((wire.receive(), wire.standby_drops()), (vec![3], 1));
    assert_eq!(wire.block.snapshot().count("far/bond/changes"), Some(1));
    assert_eq!((wire.pool.in_use(), wire.pool.drops_without_reason()), (0, 0));
}

#[test]
fn without_an_active_leg_nothing_is_sent_and_nothing_received() {
    let mut wire = wire(64);
    wire.send(1);
    [&wire.near_leg, &wire.far_leg].into_iter().for_each(|leg| leg.set(usize::MAX));
    let mbuf = wire.pool.alloc_copy(&[2; 60]).unwrap();
    wire.near.1.post(mbuf, Offload::NONE).unwrap_err().free();
    assert_eq!((wire.near.1.room(), wire.receive(), wire.standby_drops()), (0, vec![], 1));
}

#[test]
fn bond_without_legs_is_refused() {
    assert!(BondDevice::<MemoryDevice>::new("bond0", Vec::new()).is_err());
}

#[test]
fn rule_that_a_leg_refuses_is_on_none() {
    let (mut near, _far) = devices();
    let is_refused = near.steer(&Rule::ALL, 7).is_err();
    assert!(is_refused && near.unsteer(crate::device::steering::RuleId(0)).is_err());
}

#[test]
fn bond_conforms() {
    assert_conforms(&mut WireRig::new(devices));
}
