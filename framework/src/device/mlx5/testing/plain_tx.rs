//! A send half over plain memory, and the NIC's side of it, which completes WQEs as a test, a bench
//! or a fuzzer asks. Not part of the crate's interface.

use core::sync::atomic::Ordering::Acquire;
use core::sync::atomic::{AtomicBool, fence};
use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use super::plain::{Memory, PlainCq};
use crate::counters::Scope;
use crate::device::DeviceError;
use crate::device::mlx5::completion::clock::TimestampSource;
use crate::device::mlx5::health::recover::{Objects, Recovery};
use crate::device::mlx5::health::watch::RingError;
use crate::device::mlx5::send::tx::{Mlx5Tx, TxParts};
use crate::device::mlx5::setup::parts::{MemoryOwner, SqParts, TxFeatures};
use crate::mem::Pool;

/// The number of a plain send queue.
pub(crate) const PLAIN_SQ_NUMBER: u32 = 0x00ab_cdef;
/// The key of the pool's region.
pub(crate) const PLAIN_TX_LKEY: u32 = 0x0a0b_0c0d;

const BLOCK_LEN: usize = 64;

/// The configuration of a plain send queue.
#[derive(Clone, Copy, Debug)]
pub struct PlainTxConfig {
    /// Blocks of the ring.
    pub blocks: u32,
    /// Entries of the CQ.
    pub cqes: u32,
    /// Bytes of each of the two BlueFlame buffers of the register (UAR).
    pub blueflame_len: u32,
    /// Inline bytes that each WQE needs.
    pub inline_len_min: u8,
    /// Units of the longest WQE that it accepts.
    pub wqe_units_max: u32,
    /// Bytes of the longest frame.
    pub frame_len_max: u32,
    /// Multi-packet WQEs.
    pub multi_packet: bool,
    /// Checksums.
    pub checksums: bool,
    /// Inserts VLAN tags.
    pub vlan_insert: bool,
    /// Bytes of the longest payload to be segmented.
    pub segmentation_len_max: u32,
    /// Transmit timestamps, in wall clock time.
    pub timestamps: bool,
    /// Transmit timestamps, in ticks.
    pub raw_timestamps: bool,
    /// Its rules are installed once [`PlainTxObjects::may_send`] is true.
    pub shares_rules: bool,
}

impl Default for PlainTxConfig {
    fn default() -> Self {
        Self {
            blocks: 256,
            cqes: 256,
            blueflame_len: 256,
            inline_len_min: 0,
            wqe_units_max: 63,
            frame_len_max: 1522,
            multi_packet: true,
            checksums: true,
            vlan_insert: true,
            segmentation_len_max: 65_536,
            timestamps: true,
            raw_timestamps: false,
            shares_rules: false,
        }
    }
}

/// A ConnectX with one send queue that does nothing on its own.
pub struct PlainTxNic {
    /// Its completion queue.
    pub cq: PlainCq,
    /// Its ring.
    pub sq: PlainSq,
    /// The calls that set-up's objects received, and their answers.
    pub objects: Rc<PlainTxObjects>,
    resets_seen: u32,
}

/// The NIC's side of a send ring.
pub struct PlainSq {
    blocks: u32,
    wqes: Memory,
    record: Memory,
    register: Memory,
    register_len: usize,
    /// The index of the next WQE to execute.
    done: u16,
}

/// Fake verbs objects.
#[derive(Debug, Default)]
pub struct PlainTxObjects {
    /// Calls of `reset`.
    pub resets: Cell<u32>,
    /// Calls of `ready`.
    pub readies: Cell<u32>,
    /// Calls that fail from now on.
    pub failing: Cell<u32>,
    /// Fell into error without a CQE.
    pub has_failed: Cell<bool>,
    /// Lost its completion queue.
    pub has_lost_cq: Cell<bool>,
    /// Set once answers would reach the queue.
    pub may_send: Arc<AtomicBool>,
}

impl PlainTxObjects {
    fn call(&self, calls: &Cell<u32>) -> io::Result<()> {
        calls.set(calls.get() + 1);
        if self.failing.get() == 0 {
            return Ok(());
        }
        self.failing.set(self.failing.get() - 1);
        Err(io::Error::from(io::ErrorKind::Other))
    }

    fn take_fault(&self) -> Option<RingError> {
        match (self.has_lost_cq.take(), self.has_failed.take()) {
            (true, _) => Some(RingError::Completions),
            (false, has_failed) => has_failed.then_some(RingError::Ring),
        }
    }
}

struct Fake(Rc<PlainTxObjects>);

impl Objects for Fake {
    fn reset(&mut self) -> io::Result<()> {
        self.0.call(&self.0.resets)
    }

    fn ready(&mut self) -> io::Result<()> {
        self.0.call(&self.0.readies)
    }
}

/// A send half over plain memory, and the NIC's side of it.
pub fn plain_tx(config: PlainTxConfig, pool: &Pool, scope: &Scope) -> Result<(Mlx5Tx, PlainTxNic), DeviceError> {
    let (cq, nic_cq) = PlainCq::new(config.cqes, 64);
    let register_len = 2 * (config.blueflame_len as usize).max(8);
    let sq = PlainSq {
        blocks: config.blocks,
        wqes: Memory::new(config.blocks as usize * BLOCK_LEN),
        record: Memory::new(8),
        register: Memory::new(register_len),
        register_len,
        done: 0,
    };
    let objects = Rc::new(PlainTxObjects::default());
    let faults = Rc::clone(&objects);
    let parts = TxParts {
        sq: SqParts {
            ring: sq.wqes.first(),
            wqebb_count: config.blocks,
            doorbell: sq.record.first().cast(),
            uar: sq.register.first(),
            blueflame_len: config.blueflame_len,
            number: PLAIN_SQ_NUMBER,
            inline_len_min: config.inline_len_min,
            wqe_units_max: config.wqe_units_max,
            memory_owner: MemoryOwner::of_plain(&[&sq.wqes, &sq.record, &sq.register]),
        },
        cq,
        capabilities: TxFeatures {
            frame_len_max: config.frame_len_max,
            multi_packet: config.multi_packet,
            checksums: config.checksums,
            vlan_insert: config.vlan_insert,
            segmentation_len_max: config.segmentation_len_max,
        },
        lkey: PLAIN_TX_LKEY,
        stamps: match (config.timestamps, config.raw_timestamps) {
            (_, true) => TimestampSource::Ticks,
            (true, false) => TimestampSource::RealTime,
            (false, false) => TimestampSource::Off,
        },
        relation: Box::new(|| None),
        fault: Box::new(move || faults.take_fault()),
        recovery: Recovery::new(Box::new(Fake(Rc::clone(&objects))), scope),
        may_send: config.shares_rules.then(|| Arc::clone(&objects.may_send)),
    };
    Ok((Mlx5Tx::new(parts, pool, scope)?, PlainTxNic { cq: nic_cq, sq, objects, resets_seen: 0 }))
}

impl PlainSq {
    /// The producer index in the record.
    pub fn producer_index(&self) -> u16 {
        u32::from_be_bytes(self.record.read(0)) as u16
    }

    /// The raw record.
    pub fn record(&self) -> u32 {
        u32::from_be_bytes(self.record.read(0))
    }

    /// Overwrites the record.
    pub fn set_record(&self, record: u32) {
        self.record.write(0, &record.to_be_bytes());
    }

    /// Both halves of the register, with the bytes last written.
    pub fn register(&self) -> Vec<u8> {
        (0..self.register_len / 8).flat_map(|word| self.register.read::<8>(word * 8)).collect()
    }

    /// Writes zeros over the register.
    pub fn clear_register(&self) {
        self.register.write(0, &vec![0; self.register_len]);
    }

    /// An observer on another thread.
    pub fn watch(&self) -> Watch {
        Watch { record: self.record.clone(), register: self.register.clone() }
    }

    /// The block at an index.
    pub fn block(&self, idx: u16) -> [u8; BLOCK_LEN] {
        self.wqes.read((u32::from(idx) % self.blocks) as usize * BLOCK_LEN)
    }

    /// Overwrites a block, as only a test does.
    pub fn set_block(&self, idx: u16, block: &[u8; BLOCK_LEN]) {
        self.wqes.write((u32::from(idx) % self.blocks) as usize * BLOCK_LEN, block);
    }

    /// The index of the next WQE to execute.
    pub fn done(&self) -> u16 {
        self.done
    }

    /// Continues at another index.
    pub fn set_done(&mut self, done: u16) {
        self.done = done;
    }
}

/// Observes the doorbell of a ring while it is rung.
pub struct Watch {
    record: Memory,
    register: Memory,
}

impl Watch {
    /// The index in the first half of the register, and the record a moment later. `None` if the
    /// register was never written, or is being written.
    pub fn look(&self) -> Option<(u16, u16)> {
        let register: [u8; 8] = self.register.read(0);
        if register[7] == 0 || self.register.read(0) != register {
            return None;
        }
        fence(Acquire);
        let record: [u8; 4] = self.record.read(0);
        fence(Acquire);
        if self.record.read(0) != record {
            return None;
        }
        Some((u16::from_be_bytes([register[1], register[2]]), u32::from_be_bytes(record) as u16))
    }
}

impl PlainTxNic {
    /// Executes all WQEs up to the record's index, without reading frames: writes the requested
    /// CQEs, and returns how many. After a reset it starts at index 0.
    pub fn complete_all(&mut self) -> usize {
        if self.objects.resets.get() != self.resets_seen {
            self.resets_seen = self.objects.resets.get();
            self.sq.done = 0;
        }
        let mut cqes = 0;
        for _ in 0..self.sq.blocks {
            if self.sq.done == self.sq.producer_index() {
                break;
            }
            let idx = self.sq.done;
            let control = self.sq.block(idx);
            let blocks = u16::from(control[7] & 0x3f).div_ceil(4).max(1);
            if control[11] & 0x0c == 0x08 {
                self.cq.complete(0, 0, |cqe| cqe[60..62].copy_from_slice(&idx.to_be_bytes()));
                cqes += 1;
            }
            self.sq.done = idx.wrapping_add(blocks);
        }
        cqes
    }
}
