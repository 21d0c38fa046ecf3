//! Rings over plain memory, without a NIC: what stands in for one writes what a test tells it to, right or wrong.

use core::any::Any;
use core::ptr::NonNull;
use core::sync::atomic::AtomicU8;
use core::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;

use super::cqe::OP_OWN_INVALID;
use super::parts::{CqParts, Keeper};

/// Memory that is aligned as a page of the verbs library would be, as far as rings can tell.
#[derive(Clone)]
pub(super) struct Memory(Arc<[Line]>);

#[repr(C, align(64))]
struct Line([AtomicU8; 64]);

impl Memory {
    /// At least `len` bytes, all zero.
    pub(super) fn new(len: usize) -> Self {
        Self((0..len.div_ceil(64)).map(|_| Line([const { AtomicU8::new(0) }; 64])).collect())
    }

    /// Writes `bytes` at `at`.
    pub(super) fn write(&self, at: usize, bytes: &[u8]) {
        for (at, &byte) in (at..).zip(bytes) {
            self.0[at / 64].0[at % 64].store(byte, Relaxed);
        }
    }

    /// The `N` bytes at `at`.
    pub(super) fn read<const N: usize>(&self, at: usize) -> [u8; N] {
        core::array::from_fn(|idx| self.0[(at + idx) / 64].0[(at + idx) % 64].load(Relaxed))
    }

    /// Where it begins.
    pub(super) fn first(&self) -> NonNull<u8> {
        // A pointer to the whole, made of atomics: both sides may write through theirs.
        NonNull::from(&*self.0).cast()
    }

    /// What keeps it.
    pub(super) fn owner(&self) -> Arc<dyn Any + Send + Sync> {
        Arc::new(Arc::clone(&self.0))
    }
}

/// The NIC's side of a completion queue in plain memory.
pub(super) struct PlainCq {
    entries: Memory,
    records: Memory,
    count: u32,
    entry_len: u32,
    producer_idx: u32,
}

impl PlainCq {
    /// A queue of `count` entries, all of them invalid, as libmlx5 hands it to the NIC.
    pub(super) fn new(count: u32, entry_len: u32) -> (CqParts, Self) {
        let (entries, records) = (Memory::new((count * entry_len) as usize), Memory::new(8));
        let mut nic = Self { entries, records, count, entry_len, producer_idx: 0 };
        (0..count).for_each(|slot| nic.write(slot, |cqe| cqe[63] = OP_OWN_INVALID));
        let parts = CqParts {
            ring: nic.entries.first(),
            entry_count: count,
            entry_len,
            doorbell: nic.records.first().cast(),
            keeper: Keeper::of_plain(&[&nic.entries, &nic.records]),
        };
        (parts, nic)
    }

    /// Changes the CQE in a slot, whatever the other side may think of that.
    pub(super) fn write(&mut self, slot: u32, change: impl FnOnce(&mut [u8; 64])) {
        let at = (slot * self.entry_len + self.entry_len - 64) as usize;
        let mut cqe = self.entries.read(at);
        change(&mut cqe);
        self.entries.write(at, &cqe);
    }

    /// Writes the next CQE: zeros, then `fill`, then opcode, format and owner.
    pub(super) fn complete(&mut self, opcode: u8, format: u8, fill: impl FnOnce(&mut [u8; 64])) {
        let owner = u8::from(self.producer_idx & self.count != 0);
        self.write(self.producer_idx % self.count, |cqe| {
            *cqe = [0; 64];
            fill(cqe);
            cqe[63] = opcode << 4 | format << 2 | owner;
        });
        self.producer_idx += 1;
    }

    /// The consumer index as the other side told it.
    pub(super) fn consumer_index(&self) -> u32 {
        u32::from_be_bytes(self.records.read(0))
    }

    /// Overwrites the consumer index.
    pub(super) fn set_consumer_index(&mut self, index: u32) {
        self.records.write(0, &index.to_be_bytes());
    }
}
