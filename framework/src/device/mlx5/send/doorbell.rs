//! The doorbell: notifies the NIC of WQEs in the send ring (mlx5.md 2.7).
//!
//! ```text
//!  WQEs ─▶ barrier ─▶ record: the producer index ─▶ barrier ─▶ register ─▶ barrier ─▶ the other half of the register
//!                                                               ├ plain: the first 8 bytes of the last control segment
//!                                                               └ BlueFlame: the whole WQE, so that the NIC need not fetch it
//! ```
//!
//! The register is a page of the NIC, mapped write-combining. Its two halves are used alternately,
//! because the write to one may still be in flight during the next. BlueFlame writes block by
//! block: on aarch64 each in one store of 64 bytes, as rdma-core does (`mmio_memcpy_x64` of
//! util/mmio.h), because a core there may combine stores of eight bytes or not. Other processors
//! write it in eight stores, in order.
//!
//! `unsafe`, because the register is memory of a device.
//!
//! Invariants:
//! 1. The parts of a queue are correct
//!    ([`MemoryOwner`](crate::device::mlx5::setup::parts::MemoryOwner)): as long as the owner
//!    lives, `register` points to twice `blueflame_len` bytes, which may be written in aligned
//!    words of eight bytes or in blocks, or to eight bytes if `blueflame_len` is zero.
//! 2. `offset` is zero or `blueflame_len`, a multiple of 64, and at most `blueflame_len` bytes are
//!    written behind it.
//! 3. If `blueflame_len` is not zero, only one queue writes to the register: set-up obtained a
//!    dedicated one. A plain doorbell may share its register with other queues: each queue writes
//!    the same eight bytes in one indivisible store, so the NIC sees one doorbell after the other.

use core::ptr::NonNull;

use super::wqe::{BLOCK_LEN, BLOCK_UNITS, UNIT_LEN, Unit};
use crate::device::mlx5::ring::{DoorbellRecord, MemoryOwner, write_combining_barrier};
use crate::device::mlx5::setup::parts::SqParts;

/// The units of a basic block.
type Block = [Unit; BLOCK_UNITS as usize];

/// The doorbell record and register of a send ring.
pub(crate) struct Doorbell {
    record: DoorbellRecord,
    register: NonNull<u64>,
    /// Offset of the BlueFlame buffer that is used next: they alternate.
    offset: usize,
    /// Bytes of each of the two BlueFlame buffers; zero if only the plain doorbell is available.
    blueflame_len: usize,
    #[expect(dead_code, reason = "it keeps the register mapped")]
    memory_owner: MemoryOwner,
}

impl Doorbell {
    /// The doorbell of the ring in `parts`. Panics if the register has a size that hardware does
    /// not have.
    pub(in crate::device::mlx5) fn new(parts: &SqParts) -> Self {
        let blueflame_len = parts.blueflame_len as usize;
        assert!(blueflame_len.is_multiple_of(BLOCK_LEN), "a BlueFlame half of {blueflame_len} bytes");
        assert!(parts.uar.addr().get().is_multiple_of(8), "a doorbell register is aligned to its eight bytes");
        Self {
            record: DoorbellRecord::new(parts.doorbell, parts.memory_owner.clone()),
            register: parts.uar.cast(),
            offset: 0,
            blueflame_len,
            memory_owner: parts.memory_owner.clone(),
        }
    }

    /// Units of the longest WQE that BlueFlame carries.
    #[inline(always)]
    pub(in crate::device::mlx5) fn blueflame_units(&self) -> u32 {
        (self.blueflame_len / UNIT_LEN) as u32
    }

    /// Notifies the NIC of all WQEs before `index`; `control` is the first unit of the last one.
    #[inline]
    pub(in crate::device::mlx5) fn ring(&mut self, index: u16, control: Unit) {
        self.record.write(index.into());
        write_combining_barrier();
        self.write(0, control.0[0]);
        self.end();
    }

    /// Notifies the NIC of the single WQE before `index`, and writes it to the register: whole
    /// blocks of units, in two pieces if they wrap around the end of the ring. Panics if they
    /// exceed the register.
    #[inline]
    pub(in crate::device::mlx5) fn ring_blueflame(&mut self, index: u16, head: &[Unit], tail: &[Unit]) {
        assert!((head.len() + tail.len()) * UNIT_LEN <= self.blueflame_len, "a WQE longer than a BlueFlame half");
        self.record.write(index.into());
        write_combining_barrier();
        let (head, tail) = (head.as_chunks().0, tail.as_chunks().0);
        for (idx, block) in head.iter().enumerate() {
            self.write_block(idx, block);
        }
        // Nearly always empty.
        for (idx, block) in tail.iter().enumerate() {
            self.write_block(head.len() + idx, block);
        }
        self.end();
    }

    /// The NIC counts from zero again, as after a reset of the queue.
    pub(in crate::device::mlx5) fn reset(&mut self) {
        self.record.write(0);
    }

    /// Writes a block of the current half.
    #[cfg(any(miri, not(target_arch = "aarch64")))]
    #[inline(always)]
    fn write_block(&mut self, idx: usize, block: &Block) {
        let first = idx * (BLOCK_LEN / 8);
        for (at, unit) in block.iter().enumerate() {
            self.write(first + 2 * at, unit.0[0]);
            self.write(first + 2 * at + 1, unit.0[1]);
        }
    }

    /// Writes a block of the current half in one store.
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    #[inline(always)]
    fn write_block(&mut self, idx: usize, block: &Block) {
        // SAFETY: the block is inside the half that begins at `offset` (1, 2), of which BlueFlame
        // writes at most `blueflame_len` bytes; the assembly reads 64 bytes of ours, and clobbers
        // four named registers. Assembly, because the compiler could split the store of an
        // intrinsic.
        unsafe {
            core::arch::asm!(
                "ld1 {{v0.16b, v1.16b, v2.16b, v3.16b}}, [{block}]",
                "st1 {{v0.16b, v1.16b, v2.16b, v3.16b}}, [{register}]",
                block = in(reg) block.as_ptr(),
                register = in(reg) self.register.byte_add(self.offset + idx * BLOCK_LEN).as_ptr(),
                out("v0") _, out("v1") _, out("v2") _, out("v3") _,
                options(nostack, preserves_flags),
            );
        }
    }

    /// Writes a word of the current half in one store, as the NIC requires.
    #[inline(always)]
    fn write(&mut self, idx: usize, word: u64) {
        // SAFETY: the word is inside the half that begins at `offset` (1, 2): a plain doorbell
        // writes word 0, BlueFlame at most `blueflame_len` bytes. Other writers in the process
        // write whole doorbells only (3).
        unsafe { self.register.byte_add(self.offset).add(idx).write_volatile(word) }
    }

    /// Flushes the write-combining buffer, and switches to the other half.
    #[inline(always)]
    fn end(&mut self) {
        write_combining_barrier();
        self.offset ^= self.blueflame_len;
    }
}
