//! Rings over plain memory, without a NIC: a fake NIC writes the entries, right or wrong, that a
//! test, a bench or a fuzzer asks for. Not part of the crate's interface.

use core::any::Any;
use core::ptr::NonNull;
use core::sync::atomic::AtomicU8;
use core::sync::atomic::Ordering::Relaxed;
use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use crate::counters::Scope;
use crate::device::RxState;
use crate::device::mlx5::completion::clock::{ClockInfo, TimestampSource};
use crate::device::mlx5::completion::compressed::Mini;
use crate::device::mlx5::completion::cqe::OP_OWN_INVALID;
use crate::device::mlx5::health::recover::{Objects, Recovery};
use crate::device::mlx5::health::watch::RingError;
use crate::device::mlx5::receive::mprq_buffer::{self, MprqBuffer};
use crate::device::mlx5::receive::packet_types::RxFeatures;
use crate::device::mlx5::receive::rx::{Mlx5Rx, QueueStatus, Refreshed, RxParts};
use crate::device::mlx5::receive::striding::StridingRq;
use crate::device::mlx5::setup::parts::{CqParts, MemoryOwner, RqParts};
use crate::mem::{Pool, Region};

/// Memory aligned like a page of the verbs library, which is all that rings depend on.
#[derive(Clone)]
pub(crate) struct Memory(Arc<[Line]>);

#[repr(C, align(64))]
struct Line([AtomicU8; 64]);

impl Memory {
    /// At least `len` bytes, all zero.
    pub(crate) fn new(len: usize) -> Self {
        Self((0..len.div_ceil(64)).map(|_| Line([const { AtomicU8::new(0) }; 64])).collect())
    }

    /// Writes `bytes` at `at`.
    pub(crate) fn write(&self, at: usize, bytes: &[u8]) {
        for (at, &byte) in (at..).zip(bytes) {
            self.0[at / 64].0[at % 64].store(byte, Relaxed);
        }
    }

    /// The `N` bytes at `at`.
    pub(crate) fn read<const N: usize>(&self, at: usize) -> [u8; N] {
        core::array::from_fn(|idx| self.0[(at + idx) / 64].0[(at + idx) % 64].load(Relaxed))
    }

    /// Its address.
    pub(crate) fn first(&self) -> NonNull<u8> {
        // A pointer to the whole, made of atomics: both sides may write through theirs.
        NonNull::from(&*self.0).cast()
    }

    /// The owner that keeps it alive.
    pub(crate) fn owner(&self) -> Arc<dyn Any + Send + Sync> {
        Arc::new(Arc::clone(&self.0))
    }
}

/// The NIC's side of a completion queue.
pub struct PlainCq {
    entries: Memory,
    records: Memory,
    count: u32,
    entry_len: u32,
    producer_idx: u32,
}

impl PlainCq {
    /// A queue of `count` entries, all of them invalid, as libmlx5 hands it to the NIC.
    pub(in crate::device::mlx5) fn new(count: u32, entry_len: u32) -> (CqParts, Self) {
        let (entries, records) = (Memory::new((count * entry_len) as usize), Memory::new(8));
        let mut nic = Self { entries, records, count, entry_len, producer_idx: 0 };
        (0..count).for_each(|slot| nic.write(slot, |cqe| cqe[63] = OP_OWN_INVALID));
        let parts = CqParts {
            ring: nic.entries.first(),
            entry_count: count,
            entry_len,
            doorbell: nic.records.first().cast(),
            arm_register: None,
            number: 0,
            memory_owner: MemoryOwner::of_plain(&[&nic.entries, &nic.records]),
        };
        (parts, nic)
    }

    /// Changes the CQE in a slot, whether software or the NIC owns it.
    pub fn write(&mut self, slot: u32, change: impl FnOnce(&mut [u8; 64])) {
        let at = (slot % self.count * self.entry_len + self.entry_len - 64) as usize;
        let mut cqe = self.entries.read(at);
        change(&mut cqe);
        self.entries.write(at, &cqe);
    }

    /// Writes the next CQE: zeros, then `fill`, then opcode, format and owner.
    pub fn complete(&mut self, opcode: u8, format: u8, fill: impl FnOnce(&mut [u8; 64])) {
        let owner = self.owner(0);
        self.write(self.producer_idx, |cqe| {
            *cqe = [0; 64];
            fill(cqe);
            cqe[63] = opcode << 4 | format << 2 | owner;
        });
        self.producer_idx = self.producer_idx.wrapping_add(1);
    }

    /// Writes a compressed session: arrays of eight entries, then the title `like`.
    pub fn compress(&mut self, minis: &[[u8; 8]], like: impl FnOnce(&mut [u8; 64])) {
        for (array, entries) in (0..).zip(minis.chunks(8)) {
            let slot = self.producer_idx.wrapping_add(if array == 0 { 1 } else { array * 8 });
            self.write(slot, |cqe| {
                cqe[..entries.len() * 8].copy_from_slice(entries.as_flattened());
            });
        }
        self.complete(2, 3, |cqe| {
            like(cqe);
            cqe[44..48].copy_from_slice(&(minis.len() as u32).to_be_bytes());
        });
        self.producer_idx = self.producer_idx.wrapping_add(minis.len() as u32 - 1);
    }

    /// The slot of the next CQE.
    pub fn slot(&self) -> u32 {
        self.producer_idx % self.count
    }

    /// The owner bit of the entry `ahead` of the next CQE.
    pub fn owner(&self, ahead: u32) -> u8 {
        u8::from(self.producer_idx.wrapping_add(ahead) & self.count != 0)
    }

    /// The consumer index that software published.
    pub fn consumer_index(&self) -> u32 {
        u32::from_be_bytes(self.records.read(0))
    }

    /// Overwrites the consumer index.
    pub fn set_consumer_index(&mut self, index: u32) {
        self.records.write(0, &index.to_be_bytes());
    }
}

/// The NIC's side of a receive ring.
pub struct PlainRq {
    wqes: Memory,
    record: Memory,
    count: u32,
    stride: u32,
}

impl PlainRq {
    fn new(count: u32, stride: u32, striding: Option<(u32, u32)>) -> (RqParts, Self) {
        let (wqes, record) = (Memory::new((count * stride) as usize), Memory::new(4));
        let nic = Self { wqes, record, count, stride };
        let parts = RqParts {
            ring: nic.wqes.first(),
            wqe_count: count,
            stride,
            lkey: PLAIN_LKEY,
            doorbell: nic.record.first().cast(),
            striding,
            memory_owner: MemoryOwner::of_plain(&[&nic.wqes, &nic.record]),
        };
        (parts, nic)
    }

    /// The producer index that software published.
    pub fn producer_index(&self) -> u32 {
        u32::from_be_bytes(self.record.read(0))
    }

    /// Length, key and address of a segment of a WQE.
    pub fn segment(&self, idx: u32, segment: u32) -> (u32, u32, u64) {
        let at = (idx % self.count * self.stride + segment * 16) as usize;
        (
            u32::from_be_bytes(self.wqes.read(at)),
            u32::from_be_bytes(self.wqes.read(at + 4)),
            u64::from_be_bytes(self.wqes.read(at + 8)),
        )
    }
}

/// The memory key of plain rings.
pub(crate) const PLAIN_LKEY: u32 = 0x1234;

/// The configuration of a plain queue.
#[derive(Clone, Copy, Debug)]
pub struct PlainConfig {
    /// Entries of the CQ.
    pub cqes: u32,
    /// Bytes of a CQE: 64 or 128.
    pub cqe_len: u32,
    /// WQEs of the ring.
    pub wqes: u32,
    /// Bytes of a WQE.
    pub stride: u32,
    /// Bytes of the longest frame.
    pub frame_len_max: usize,
    /// The handling of timestamps.
    pub stamps: PlainStamps,
    /// Whether there are hashes.
    pub has_hashes: bool,
    /// Compressed sessions.
    pub mini: Option<PlainMini>,
    /// Log2 of a stride's bytes and of a WQE's strides, for a striding ring.
    pub striding: Option<(u32, u32)>,
}

/// As `TimestampSource`.
#[derive(Clone, Copy, Debug)]
pub enum PlainStamps {
    /// None.
    Off,
    /// Raw ticks.
    Ticks,
    /// Ticks of one nanosecond since the epoch.
    Wall,
    /// Seconds and nanoseconds.
    RealTime,
}

/// As `Mini`.
#[derive(Clone, Copy, Debug)]
pub enum PlainMini {
    /// Hashes.
    Hash,
    /// Checksums.
    Checksum,
    /// Checksums and strides.
    ChecksumStride,
}

impl Default for PlainConfig {
    fn default() -> Self {
        Self {
            cqes: 64,
            cqe_len: 64,
            wqes: 64,
            stride: 16,
            frame_len_max: 1522,
            stamps: PlainStamps::Off,
            has_hashes: false,
            mini: None,
            striding: None,
        }
    }
}

/// A ConnectX with one receive queue that does nothing on its own.
pub struct PlainNic {
    /// Its completion queue.
    pub cq: PlainCq,
    /// Its ring.
    pub rq: PlainRq,
    /// The index of the next WQE to fill.
    pub wqe_idx: u32,
    /// On a striding ring the next stride to fill, and the ring's buffer.
    pub stride: u32,
    mprq_buffer: Option<(Arc<Region>, u32, u32)>,
    /// The calls that set-up's objects received, and their answers.
    pub objects: Rc<PlainObjects>,
}

/// Fake verbs objects.
#[derive(Debug, Default)]
pub struct PlainObjects {
    /// Calls of `reset`.
    pub resets: Cell<u32>,
    /// Calls of `ready`.
    pub readies: Cell<u32>,
    /// Calls of `reset` that fail from now on.
    pub failing: Cell<u32>,
    /// Calls of `ready` that fail from now on.
    pub failing_readies: Cell<u32>,
    /// Frames that found no buffer, to be reported.
    pub out_of_buffer: Cell<u64>,
    /// Fell into error without a CQE.
    pub has_failed: Cell<bool>,
    /// Lost its completion queue.
    pub has_lost_cq: Cell<bool>,
}

impl PlainObjects {
    fn call(calls: &Cell<u32>, failing: &Cell<u32>) -> io::Result<()> {
        calls.set(calls.get() + 1);
        if failing.get() == 0 {
            return Ok(());
        }
        failing.set(failing.get() - 1);
        Err(io::Error::from(io::ErrorKind::Other))
    }
}

struct Fake(Rc<PlainObjects>);

impl Objects for Fake {
    fn reset(&mut self) -> io::Result<()> {
        PlainObjects::call(&self.0.resets, &self.0.failing)
    }

    fn ready(&mut self) -> io::Result<()> {
        PlainObjects::call(&self.0.readies, &self.0.failing_readies)
    }
}

/// A clock with ticks of one nanosecond that started at the epoch.
const RELATION: ClockInfo = ClockInfo { ns: 0, ticks: 0, fraction: 0, mult: 1 << 20, shift: 20, mask: (1 << 62) - 1 };

impl QueueStatus for Fake {
    fn state(&self) -> RxState {
        RxState::Open
    }

    fn relation(&mut self) -> Option<ClockInfo> {
        Some(RELATION)
    }

    fn refresh(&mut self) -> Refreshed {
        let fault = match (self.0.has_lost_cq.take(), self.0.has_failed.take()) {
            (true, _) => Some(RingError::Completions),
            (false, has_failed) => has_failed.then_some(RingError::Ring),
        };
        Refreshed { out_of_buffer: self.0.out_of_buffer.take(), fault }
    }

    fn refresh_last(&mut self) -> Refreshed {
        self.refresh()
    }
}

/// A receive half over plain memory, and the NIC's side of it.
pub fn plain_rx(config: PlainConfig, pool: &Pool, scope: &Scope) -> (Mlx5Rx, PlainNic) {
    let (cq, nic_cq) = PlainCq::new(config.cqes, config.cqe_len);
    let (rq, nic_rq) = PlainRq::new(config.wqes, config.stride, config.striding);
    let objects = Rc::new(PlainObjects::default());
    let mprq_buffer = config.striding.map(|shape| {
        let region = Region::heap(StridingRq::mprq_buffer_len(config.wqes, shape)).expect("a plain ring is small");
        (Arc::new(region), shape.0, shape.1)
    });
    let parts = RxParts {
        cq,
        rq,
        mprq_buffer: mprq_buffer.as_ref().and_then(|(region, ..)| MprqBuffer::new(Arc::clone(region), PLAIN_LKEY)),
        recovery: Recovery::new(Box::new(Fake(Rc::clone(&objects))), scope),
        status: Box::new(Fake(Rc::clone(&objects))),
        frame_len_max: config.frame_len_max,
        features: RxFeatures {
            stamps: match config.stamps {
                PlainStamps::Off => TimestampSource::Off,
                PlainStamps::Ticks => TimestampSource::Ticks,
                PlainStamps::Wall => TimestampSource::Wall(RELATION),
                PlainStamps::RealTime => TimestampSource::RealTime,
            },
            has_hashes: config.has_hashes,
            has_checksums: true,
        },
        events: None,
        mini: config.mini.map(|mini| match mini {
            PlainMini::Hash => Mini::Hash,
            PlainMini::Checksum => Mini::Checksum,
            PlainMini::ChecksumStride => Mini::ChecksumStride,
        }),
    };
    let nic = PlainNic { cq: nic_cq, rq: nic_rq, wqe_idx: 0, stride: 0, mprq_buffer, objects };
    (Mlx5Rx::new(parts, pool, scope), nic)
}

impl PlainNic {
    /// WQEs that were posted and are not filled.
    pub fn room(&self) -> u32 {
        self.rq.producer_index().wrapping_sub(self.wqe_idx) & 0xffff
    }

    /// On a striding ring: the number of owners of its buffer.
    pub fn mprq_buffer_owners(&self) -> usize {
        self.mprq_buffer.as_ref().map_or(0, |(region, ..)| Arc::strong_count(region))
    }

    /// Completes the next WQE with a frame of `len` bytes, UDP over IPv4 with good checksums;
    /// `fill` changes its CQE.
    pub fn frame(&mut self, len: u32, fill: impl FnOnce(&mut [u8; 64])) {
        let idx = self.wqe_idx;
        self.cq.complete(2, 0, |cqe| {
            udp(cqe, idx);
            cqe[44..48].copy_from_slice(&len.to_be_bytes());
            fill(cqe);
        });
        self.wqe_idx = idx.wrapping_add(1);
    }

    /// Completes the next WQEs with frames of these lengths in one session; hashes, if its entries
    /// carry them, count from 1.
    pub fn session(&mut self, lens: &[u32], fill: impl FnOnce(&mut [u8; 64])) {
        let idx = self.wqe_idx;
        let mini = |(hash, len): (u32, &u32)| u64::to_be_bytes(u64::from(hash) << 32 | u64::from(*len));
        let minis: Vec<_> = (1..).zip(lens).map(mini).collect();
        self.cq.compress(&minis, |cqe| {
            udp(cqe, idx);
            fill(cqe);
        });
        self.wqe_idx = idx.wrapping_add(lens.len() as u32);
    }

    /// On a striding ring: writes the next frame into its strides, after a filler if the frame does
    /// not fit the rest of its WQE, and returns its mini CQE with its WQE and stride. Only the
    /// filler is completed here.
    fn land(&mut self, frame: &[u8]) -> (u32, u32, [u8; 8]) {
        let (stride_len, strides) = self.shape();
        let needed = (frame.len() as u32).div_ceil(stride_len).max(1);
        if self.stride + needed > strides {
            let (wqe, first, left) = (self.wqe_idx, self.stride, strides - self.stride);
            self.cq.complete(2, 0, |cqe| strided(cqe, wqe, first, 1 << 31 | left << 16));
            (self.wqe_idx, self.stride) = (wqe.wrapping_add(1), 0);
        }
        let (wqe, first) = (self.wqe_idx, self.stride);
        let at = (wqe % self.rq.count * strides + first) * stride_len;
        if let Some((region, ..)) = &self.mprq_buffer {
            mprq_buffer::land(region, at as usize, frame);
        }
        self.stride += needed;
        if self.stride == strides {
            (self.wqe_idx, self.stride) = (wqe.wrapping_add(1), 0);
        }
        let byte_count = needed << 16 | frame.len() as u32;
        (wqe, first, u64::to_be_bytes(u64::from(first) << 32 | u64::from(byte_count)))
    }

    /// Bytes of a stride, and strides of a WQE.
    fn shape(&self) -> (u32, u32) {
        self.mprq_buffer.as_ref().map_or((1, 1), |(_, stride_log, strides_log)| (1 << stride_log, 1 << strides_log))
    }

    /// On a striding ring: completes a frame.
    pub fn strided(&mut self, frame: &[u8], fill: impl FnOnce(&mut [u8; 64])) {
        let (wqe, first, mini) = self.land(frame);
        self.cq.complete(2, 0, |cqe| {
            strided(cqe, wqe, first, 0);
            cqe[44..48].copy_from_slice(&mini[4..]);
            fill(cqe);
        });
    }

    /// On a striding ring: completes frames in one session, which may span WQEs as they fill up.
    pub fn strided_session(&mut self, frames: &[&[u8]]) {
        let landed: Vec<_> = frames.iter().map(|frame| self.land(frame)).collect();
        let minis: Vec<_> = landed.iter().map(|(.., mini)| *mini).collect();
        let Some(&(wqe, first, _)) = landed.first() else { return };
        self.cq.compress(&minis, |cqe| strided(cqe, wqe, first, 0));
    }
}

fn strided(cqe: &mut [u8; 64], wqe: u32, first: u32, byte_count: u32) {
    udp(cqe, first);
    cqe[2..4].copy_from_slice(&(wqe as u16).to_be_bytes());
    cqe[44..48].copy_from_slice(&byte_count.to_be_bytes());
}

fn udp(cqe: &mut [u8; 64], wqe_idx: u32) {
    cqe[28] = 0b111;
    cqe[29] = 0x28;
    cqe[60..62].copy_from_slice(&(wqe_idx as u16).to_be_bytes());
}
