//! The send ring: places WQEs, tracks which of them the NIC was notified of, and owns the mbufs
//! that are freed when they complete.
//!
//! ```text
//!   done            rung                           posted
//!   ──▶ [the NIC's] ──▶ [written, no doorbell yet] ──▶ [free] ──▶ done + blocks        positions count blocks of 64 bytes
//!                                                    └ the open multi-packet WQE, or run of WQEs
//! ```
//!
//! The caller decides the content of a WQE: it writes the units after the control segment, then
//! posts the WQE. A WQE begins at a block and may wrap around the end of the ring. WQEs are
//! signaled at a fixed interval of blocks, and before a doorbell if mbufs wait for the last WQE, so
//! that no mbuf stays in a ring to which no more frames are posted.

mod dry_run;
mod ledger;
mod multi;
mod prepost;

use core::num::NonZeroU16;

pub use dry_run::WarmUp;
pub(crate) use ledger::{Completed, Failed, Flushed, Load};

use super::doorbell::Doorbell;
use super::sq_memory::SqMemory;
use super::wqe::{self, BLOCK_UNITS, HEADER_DS, MULTI_FRAMES_MAX, MemoryKey, Number, Opcode, Unit, WQE_UNITS_MAX};
use crate::device::mlx5::setup::parts::SqParts;
use crate::mem::{Fifo, Mbuf, Pool};
use dry_run::DryRun;
use ledger::Ledger;
use multi::Multi;
use prepost::PrepostedWqe;

/// Fewest blocks of a ring: room for a frame with a long header while others complete.
pub(crate) const BLOCKS_MIN: u32 = 8;
/// Most blocks of a ring: a WQE index has 16 bits, and `posted - done` must be less than that.
pub(crate) const BLOCKS_MAX: u32 = 32_768;
/// A WQE is signaled at least every quarter of the ring, and every 64 blocks: a CQE costs the NIC a
/// write over PCIe, and mbufs that are freed late are cold.
const SIGNAL_BLOCKS_MAX: u32 = 64;

/// Blocks between two signaled WQEs, in a ring of `blocks`.
fn signal_every(blocks: u32) -> u32 {
    (blocks / 4).min(SIGNAL_BLOCKS_MAX)
}

/// A ring of WQEs.
pub(crate) struct Sq {
    units: SqMemory,
    doorbell: Doorbell,
    number: Number,
    key: MemoryKey,
    /// Blocks of the ring.
    blocks: u32,
    posted: u32,
    rung: u32,
    /// First block of the last posted WQE.
    last: u32,
    /// Units of the longest WQE that the device accepts, and of the longest with several frames.
    device_units_max: u32,
    multi_units_max: u32,
    multi: Multi,
    ledger: Ledger,
    /// Blocks and mbufs that were posted at the last signaled WQE.
    signaled: u32,
    signaled_mbufs: u32,
    signal_every: u32,
    dry_run: Option<DryRun>,
    standing: PrepostedWqe,
    sent: SentTally,
    /// Last, so that the ring and its objects in the NIC are dropped before the buffers are freed.
    in_flight: Fifo,
}

/// Counts of posted frames and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SentTally {
    pub(crate) frames: u64,
    pub(crate) bytes: u64,
}

/// The range of valid frame lengths: from an Ethernet header on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LenRange {
    span: u32,
}

impl LenRange {
    const MIN: u32 = 14;

    /// Up to `max`.
    pub(crate) fn up_to(max: u32) -> Self {
        Self { span: max.saturating_sub(Self::MIN) }
    }

    /// Whether `len` is in the range.
    #[inline(always)]
    pub(crate) fn contains(self, len: u32) -> bool {
        len.wrapping_sub(Self::MIN) <= self.span
    }
}

impl Sq {
    /// Takes over the ring. Panics on a size that no ring has. `key` is that of the region of
    /// `pool`.
    pub(crate) fn new(parts: &SqParts, pool: &Pool, key: MemoryKey) -> Self {
        let blocks = parts.wqebb_count;
        assert!((BLOCKS_MIN..=BLOCKS_MAX).contains(&blocks), "a sending ring of {blocks} blocks");
        Self {
            units: SqMemory::new(parts),
            doorbell: Doorbell::new(parts),
            number: Number::new(parts.number),
            key,
            blocks,
            posted: 0,
            rung: 0,
            last: 0,
            device_units_max: parts.wqe_units_max,
            multi_units_max: parts.wqe_units_max.min(HEADER_DS + MULTI_FRAMES_MAX),
            multi: Multi::CLOSED,
            ledger: Ledger::new(blocks),
            signaled: 0,
            signaled_mbufs: 0,
            signal_every: signal_every(blocks),
            dry_run: None,
            standing: PrepostedWqe::NONE,
            sent: SentTally::default(),
            in_flight: Fifo::new(pool, (blocks * BLOCK_UNITS) as usize),
        }
    }

    /// Units that a WQE may have so that it still finds room once all signaled WQEs have completed:
    /// unsignaled blocks remain taken.
    pub(crate) fn wqe_units_max(&self) -> u32 {
        Self::wqe_units_max_of(self.blocks, self.device_units_max)
    }

    /// The same for a ring of `blocks` on a device that accepts WQEs of `device_units_max`, before
    /// there is one.
    pub(crate) fn wqe_units_max_of(blocks: u32, device_units_max: u32) -> u32 {
        ((blocks - signal_every(blocks)) * BLOCK_UNITS).min(WQE_UNITS_MAX).min(device_units_max)
    }

    /// Free blocks, including those of the open multi-packet WQE or run.
    #[inline(always)]
    pub(crate) fn free_blocks(&self) -> u32 {
        self.blocks - self.posted.wrapping_sub(self.ledger.done())
    }

    /// Blocks of the open multi-packet WQE or run so far.
    #[inline(always)]
    pub(crate) fn open_blocks(&self) -> u32 {
        wqe::blocks(self.multi.used)
    }

    /// Whether no WQE was posted since the last doorbell.
    #[inline(always)]
    pub(crate) fn is_rung(&self) -> bool {
        self.posted == self.rung && self.multi.used == 0
    }

    /// Whether the NIC has finished all WQEs in the ring.
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.posted == self.ledger.done()
    }

    /// Mbufs in flight.
    #[inline(always)]
    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight.len()
    }

    /// The counts since the last call, without frames in the open multi-packet WQE or run.
    #[inline(always)]
    pub(crate) fn take_sent(&mut self) -> SentTally {
        core::mem::take(&mut self.sent)
    }
}

/// Posting.
impl Sq {
    /// Writes unit `idx` of the next WQE. No multi-packet WQE or run is open.
    #[inline(always)]
    pub(crate) fn write(&mut self, idx: u32, unit: Unit) {
        self.units.write(at(self.posted).wrapping_add(idx), unit);
    }

    /// Writes a pointer segment as unit `idx` of the next WQE.
    #[inline(always)]
    pub(crate) fn write_pointer(&mut self, idx: u32, bytes: &[u8]) {
        // The NIC reads there: the address is exposed outside of this program.
        let addr = bytes.as_ptr().expose_provenance() as u64;
        self.write(idx, wqe::pointer(bytes.len() as u32, self.key, addr));
    }

    /// Writes the Ethernet segment of the next WQE, with `bytes`, at least two, inline. Returns the
    /// unit behind it.
    #[inline(always)]
    pub(crate) fn write_inline(&mut self, checksums: u8, segment_len: Option<NonZeroU16>, bytes: &[u8]) -> u32 {
        let first = at(self.posted).wrapping_add(1);
        let count = wqe::ethernet_units(bytes.len());
        if count <= self.units.until_end(first) {
            wqe::write_inline(self.units.run(first, count), checksums, segment_len, bytes);
        } else {
            self.write_inline_around(first, checksums, segment_len, bytes);
        }
        1 + count
    }

    /// The same across the end of the ring.
    #[cold]
    #[inline(never)]
    fn write_inline_around(&mut self, first: u32, checksums: u8, segment_len: Option<NonZeroU16>, bytes: &[u8]) {
        let mut segment = [Unit::default(); WQE_UNITS_MAX as usize];
        let segment = &mut segment[..wqe::ethernet_units(bytes.len()) as usize];
        wqe::write_inline(segment, checksums, segment_len, bytes);
        for (unit, idx) in segment.iter().zip(0..) {
            self.units.write(first.wrapping_add(idx), *unit);
        }
    }

    /// Appends an mbuf to those in flight. It is freed with the next WQE posted.
    #[inline(always)]
    pub(crate) fn keep(&mut self, mbuf: Mbuf) {
        self.in_flight.push(mbuf);
    }

    /// Posts a WQE of `units` units, of which all but the control segment are written; the caller
    /// has checked that there is room. `bytes` is the sum of its frames. `stamp`: its frame asked
    /// for a timestamp.
    #[inline(always)]
    pub(crate) fn post(&mut self, opcode: Opcode, units: u32, load: Load, bytes: u32, stamp: Option<u64>) {
        let end = self.posted.wrapping_add(wqe::blocks(units));
        let is_signaled = stamp.is_some() || end.wrapping_sub(self.signaled) >= self.signal_every;
        self.finish(opcode, units, load, bytes, is_signaled);
        if is_signaled {
            self.ask(stamp);
        }
    }

    /// Writes the control segment, and records the WQE.
    #[inline(always)]
    fn finish(&mut self, opcode: Opcode, units: u32, load: Load, bytes: u32, is_signaled: bool) {
        self.write(0, wqe::control(opcode, self.posted as u16, self.number, units, is_signaled));
        self.book(units, load, bytes);
    }

    /// Records the WQE in the next free blocks.
    #[inline(always)]
    fn book(&mut self, units: u32, load: Load, bytes: u32) {
        let first = self.posted;
        self.ledger.note(first, wqe::blocks(units), load);
        self.sent.frames += u64::from(load.frames);
        self.sent.bytes += u64::from(bytes);
        (self.last, self.posted) = (first, first.wrapping_add(wqe::blocks(units)));
    }

    /// Records that the last posted WQE is signaled.
    #[inline(always)]
    fn ask(&mut self, stamp: Option<u64>) {
        (self.signaled, self.signaled_mbufs) = (self.posted, self.in_flight.head());
        self.ledger.ask(self.last, self.posted, self.signaled_mbufs, stamp);
    }

    /// Turns the last posted WQE into a signaled one.
    #[inline]
    fn signal_last(&mut self) {
        let control = self.units.read(at(self.last));
        self.units.write(at(self.last), wqe::signaled(control));
        self.ask(None);
    }

    /// Posts a WQE of one block with a pointer to the mbuf, which is linear and in the pool's
    /// region. The caller has checked that there is room.
    #[inline(always)]
    pub(crate) fn post_pointer(&mut self, mbuf: Mbuf, checksums: u8, stamp: Option<u64>) {
        let bytes = mbuf.bytes();
        let len = bytes.len() as u32;
        let block = self.units.run(at(self.posted), BLOCK_UNITS);
        block[1] = wqe::ethernet(checksums);
        // The NIC reads there: the address is exposed outside of this program.
        block[2] = wqe::pointer(len, self.key, bytes.as_ptr().expose_provenance() as u64);
        self.in_flight.push(mbuf);
        self.post(Opcode::Send, HEADER_DS + 1, Load { frames: 1, mbufs: 1 }, len, stamp);
    }

    /// Ensures a completion for all WQEs in the ring, even without mbufs: signals the last WQE or,
    /// if the NIC was already notified of it, posts a signaled NOP after it. Does nothing if the
    /// ring is full.
    #[cold]
    pub(crate) fn ask_for_rest(&mut self) {
        self.close_multi();
        if self.signaled == self.posted {
            return;
        }
        if self.posted != self.rung {
            self.signal_last();
        } else if self.free_blocks() > 0 {
            self.finish(Opcode::Nop, 1, Load::default(), 0, true);
            self.ask(None);
        }
    }

    /// Notifies the NIC of all posted WQEs: by BlueFlame if it is a single WQE that fits, otherwise
    /// by the plain doorbell. Returns whether there was any.
    #[inline(always)]
    pub(crate) fn ring_doorbell(&mut self) -> bool {
        self.close_run();
        if let Some((units, load, bytes)) = self.take_multi() {
            self.finish(Opcode::MultiPacket, units, load, bytes, true);
            self.ask(None);
        } else if self.posted == self.rung {
            return false;
        } else if self.in_flight.head() != self.signaled_mbufs {
            self.signal_last();
        }
        if self.dry_run.is_some() && !self.dry_run_doorbell() {
            return false;
        }
        let units = (self.posted.wrapping_sub(self.last)) * BLOCK_UNITS;
        let (ring, first, index) = (&self.units, at(self.last), self.posted as u16);
        if self.last == self.rung && units <= self.doorbell.blueflame_units() {
            let (head, tail) = ring.runs(first, units);
            self.doorbell.ring_blueflame(index, head, tail);
        } else {
            self.doorbell.ring(index, ring.read(first));
        }
        self.rung = self.posted;
        true
    }
}

/// Completions.
impl Sq {
    /// A CQE reports that the WQE with index `counter`, and all before it, are done.
    /// [`free_completed`](Self::free_completed) frees their mbufs.
    #[inline(always)]
    pub(crate) fn complete(&mut self, counter: u16) -> Completed {
        self.ledger.complete(counter, self.rung)
    }

    /// A CQE reports that the WQE with index `counter` failed; those before it are done.
    pub(crate) fn fail(&mut self, counter: u16) -> Option<Failed> {
        self.ledger.fail(counter, self.rung)
    }

    /// Frees the mbufs of all WQEs that are done; returns how many.
    #[inline(always)]
    pub(crate) fn free_completed(&mut self) -> u32 {
        let count = self.ledger.reapable().wrapping_sub(self.in_flight.tail());
        self.in_flight.free_front(count);
        count
    }

    /// Ends a ring that the NIC does not release: its mbufs are leaked. Returns the incomplete
    /// frames, and the number of those mbufs.
    #[cold]
    pub(crate) fn leak(&mut self) -> (Flushed, u32) {
        self.end_dry_run();
        self.close_multi();
        (self.ledger.reset(self.posted), self.in_flight.leak())
    }

    /// Starts again from index 0, as the NIC does after a reset of the queue: no WQE is in flight,
    /// and all mbufs are freed. Returns the incomplete frames.
    #[cold]
    pub(crate) fn reset(&mut self) -> Flushed {
        self.end_dry_run();
        self.close_multi();
        let flushed = self.ledger.reset(self.posted);
        self.free_completed();
        (self.posted, self.rung, self.last, self.signaled) = (0, 0, 0, 0);
        self.signaled_mbufs = self.in_flight.head();
        self.overwrite();
        self.doorbell.reset();
        flushed
    }
}

/// The first unit of the block at `position`.
#[inline(always)]
fn at(position: u32) -> u32 {
    position.wrapping_mul(BLOCK_UNITS)
}
