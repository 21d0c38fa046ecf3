//! Memory shared by a queue and the NIC: rings of equal entries, and doorbell records. All its
//! integers are big-endian (mlx5.md 2). This file only reads and writes them; other files interpret
//! them.
//!
//! `unsafe`, because the NIC is the other side of this memory.
//!
//! Invariants:
//! 1. The parts of a queue are correct, as the maker of their [`MemoryOwner`] promised. A ring's
//!    memory is aligned to 16 bytes and lives as long as the owner, which each ring holds.
//! 2. A ring has a power of two of entries; an index is masked before it is used, so a
//!    [`RingEntry`] is always inside.
//! 3. An access stays inside the first `LEN` bytes of its entry and is aligned; the compiler checks
//!    it, because both are constants.
//! 4. Entries are plain data, of which any bytes are a valid value. They are read and written by
//!    volatile accesses of one integer each, so that a checked value is the value that is used,
//!    even if the NIC writes meanwhile.
//! 5. A ring has one owner on our side: it is not `Clone`, and writing takes `&mut self`.

use core::any::Any;
use core::marker::PhantomData;
use core::mem::transmute;
use core::ptr::NonNull;
use std::sync::Arc;

use super::setup::parts::{CqParts, RqParts, SqParts};

/// Owns the verbs objects whose memory the rings are. They live as long as any ring may be
/// accessed.
#[derive(Clone)]
pub(super) struct MemoryOwner(#[expect(dead_code, reason = "it keeps the memory")] Arc<dyn Any + Send + Sync>);

impl MemoryOwner {
    /// # Safety
    /// The pointers, counts and lengths in the parts around this owner are correct, and stay so as
    /// long as `owner` lives. The memory is aligned to 16 bytes. In this process only one queue
    /// made of these parts touches it (and a fake NIC).
    pub(super) unsafe fn new(owner: Arc<dyn Any + Send + Sync>) -> Self {
        Self(owner)
    }

    /// Keeps plain memory, shared with a fake NIC. Each memory is given to one queue.
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn of_plain(memory: &[&super::testing::plain::Memory]) -> Self {
        let owners: Vec<_> = memory.iter().map(|memory| memory.owner()).collect();
        // SAFETY: the parts that `plain` makes are true, and only the fake NIC also touches the
        // memory.
        unsafe { Self::new(Arc::new(owners)) }
    }
}

// SAFETY: parts are addresses of memory that nothing else in the process touches (1), and its owner
// is `Send`.
unsafe impl Send for CqParts {}
// SAFETY: as above.
unsafe impl Send for RqParts {}
// SAFETY: as above.
unsafe impl Send for SqParts {}

/// A ring of entries whose first `LEN` bytes are used.
pub(super) struct DescriptorRing<const LEN: usize> {
    first: NonNull<u8>,
    mask: u32,
    /// Log2 of the bytes from one entry to the next.
    shift: u32,
    #[expect(dead_code, reason = "it keeps the memory")]
    memory_owner: MemoryOwner,
}

impl<const LEN: usize> DescriptorRing<LEN> {
    /// A ring of `count` entries that are `stride` bytes apart, as the parts around `memory_owner`
    /// state. Panics if these are not powers of two or an entry is too short.
    pub(super) fn new(first: NonNull<u8>, count: u32, stride: u32, memory_owner: MemoryOwner) -> Self {
        Self::behind(first, 0, count, stride, memory_owner)
    }

    /// A ring over the bytes at `offset` in each entry.
    pub(super) fn behind(
        first: NonNull<u8>,
        offset: usize,
        count: u32,
        stride: u32,
        memory_owner: MemoryOwner,
    ) -> Self {
        assert!(count.is_power_of_two() && stride.is_power_of_two(), "a ring of {count} entries, {stride} bytes apart");
        assert!(offset + LEN <= stride as usize, "an entry of {stride} bytes holds {LEN} behind {offset}");
        assert!(first.addr().get().is_multiple_of(16) && offset.is_multiple_of(16), "entries are aligned");
        // SAFETY: the offset is inside the first entry (1).
        let first = unsafe { first.add(offset) };
        Self { first, mask: count - 1, shift: stride.trailing_zeros(), memory_owner }
    }

    /// Entries.
    #[inline(always)]
    pub(super) fn count(&self) -> u32 {
        self.mask + 1
    }

    /// The bytes from one entry to the next, as log2.
    #[inline(always)]
    pub(super) fn shift(&self) -> u32 {
        self.shift
    }

    /// The entry at the free-running index `idx`.
    #[inline(always)]
    pub(super) fn entry(&self, idx: u32) -> RingEntry<'_, LEN> {
        RingEntry { first: self.at(idx), ring: PhantomData }
    }

    /// The same, for writing.
    #[inline(always)]
    pub(super) fn entry_mut(&mut self, idx: u32) -> EntryMut<'_, LEN> {
        EntryMut { first: self.at(idx), ring: PhantomData }
    }

    /// Entries from `idx` to the end of the ring's memory: that many can be walked without a check
    /// for the wrap.
    #[inline(always)]
    pub(super) fn until_end(&self, idx: u32) -> u32 {
        self.count() - (idx & self.mask)
    }

    /// `count` entries from `idx` on, each `1 << step_log` after the other. Panics if they cross
    /// the end of the ring's memory.
    #[inline(always)]
    pub(super) fn run(&self, idx: u32, step_log: u32, count: u32) -> Run<'_, LEN> {
        let end = u64::from(idx & self.mask) + (u64::from(count) << (step_log & 31));
        assert!(end <= u64::from(self.mask) + 1, "a run over the end of a ring");
        Run { first: self.at(idx), count: count as usize, shift: self.shift + (step_log & 31), ring: PhantomData }
    }

    /// The same, for writing.
    #[inline(always)]
    pub(super) fn run_mut(&mut self, idx: u32, step_log: u32, count: u32) -> RunMut<'_, LEN> {
        let Run { first, count, shift, .. } = self.run(idx, step_log, count);
        RunMut { run: Run { first, count, shift, ring: PhantomData }, ring: PhantomData }
    }

    #[inline(always)]
    fn at(&self, idx: u32) -> NonNull<u8> {
        // SAFETY: a masked index is an entry of the ring (1, 2).
        unsafe { self.first.add(((idx & self.mask) as usize) << self.shift) }
    }
}

/// As `SHIFT`: any distance between entries.
pub(super) const ANY: u32 = 0;

/// Entries that are consecutive in memory, so that a loop over them masks no index.
#[derive(Clone, Copy)]
pub(super) struct Run<'a, const LEN: usize> {
    first: NonNull<u8>,
    count: usize,
    shift: u32,
    ring: PhantomData<&'a ()>,
}

impl<'a, const LEN: usize> Run<'a, LEN> {
    /// Entries.
    #[inline(always)]
    pub(super) fn count(self) -> usize {
        self.count
    }

    /// The entry at `idx` of a run whose entries are `1 << SHIFT` bytes apart: a loop then adds a
    /// constant to a pointer. With [`ANY`] as `SHIFT` any distance is valid. Panics on another
    /// distance, and outside the run.
    #[inline(always)]
    pub(super) fn entry_of<const SHIFT: u32>(self, idx: usize) -> RingEntry<'a, LEN> {
        if SHIFT == ANY {
            return self.entry(idx);
        }
        assert!(self.shift == SHIFT && idx < self.count, "outside a run");
        // SAFETY: as in `entry`.
        RingEntry { first: unsafe { self.first.add(idx << SHIFT) }, ring: PhantomData }
    }

    /// The first `count` entries. Panics if there are fewer.
    #[inline(always)]
    pub(super) fn first(self, count: usize) -> Self {
        assert!(count <= self.count, "more entries than a run has");
        Self { count, ..self }
    }

    /// The entry at `idx`. Panics outside the run.
    #[inline(always)]
    pub(super) fn entry(self, idx: usize) -> RingEntry<'a, LEN> {
        assert!(idx < self.count, "outside a run");
        // SAFETY: the run is inside the ring, which was checked when it was made, and the entry
        // inside the run (2).
        RingEntry { first: unsafe { self.first.add(idx << self.shift) }, ring: PhantomData }
    }
}

/// The same, for writing.
pub(super) struct RunMut<'a, const LEN: usize> {
    run: Run<'a, LEN>,
    ring: PhantomData<&'a mut ()>,
}

impl<const LEN: usize> RunMut<'_, LEN> {
    /// Entries.
    #[inline(always)]
    pub(super) fn count(&self) -> usize {
        self.run.count
    }

    /// As [`Run::entry_of`].
    #[inline(always)]
    pub(super) fn entry_of<const SHIFT: u32>(&mut self, idx: usize) -> EntryMut<'_, LEN> {
        EntryMut { first: self.run.entry_of::<SHIFT>(idx).first, ring: PhantomData }
    }
}

/// One entry, for reading. Each access reads memory again, so a caller keeps the value that it
/// checked.
#[derive(Clone, Copy)]
pub(super) struct RingEntry<'a, const LEN: usize> {
    first: NonNull<u8>,
    ring: PhantomData<&'a ()>,
}

impl<const LEN: usize> RingEntry<'_, LEN> {
    /// The byte at `AT`.
    #[inline(always)]
    pub(super) fn byte<const AT: usize>(self) -> u8 {
        self.read::<u8, AT>()
    }

    /// The big-endian `u16` at `AT`.
    #[inline(always)]
    pub(super) fn be16<const AT: usize>(self) -> u16 {
        u16::from_be(self.read::<u16, AT>())
    }

    /// The big-endian `u32` at `AT`.
    #[inline(always)]
    pub(super) fn be32<const AT: usize>(self) -> u32 {
        u32::from_be(self.read::<u32, AT>())
    }

    /// The big-endian `u64` at `AT`.
    #[inline(always)]
    pub(super) fn be64<const AT: usize>(self) -> u64 {
        u64::from_be(self.read::<u64, AT>())
    }

    /// A copy of a whole entry of 64 bytes, for later parsing.
    #[inline(always)]
    pub(super) fn words(self) -> [u64; 8] {
        const { assert!(LEN == 64, "an entry of 64 bytes") };
        // SAFETY: inside an entry (2, 3), any bytes are a value (4), and the memory lives while the
        // ring is borrowed (1).
        let quarters: [Quarter; 4] =
            core::array::from_fn(|idx| unsafe { self.first.cast::<Quarter>().add(idx).read_volatile() });
        // SAFETY: integers without padding, on both sides.
        unsafe { transmute(quarters) }
    }

    #[inline(always)]
    fn read<T: Number, const AT: usize>(self) -> T {
        const { assert!(AT.is_multiple_of(size_of::<T>()) && AT + size_of::<T>() <= LEN, "outside the entry") };
        // SAFETY: inside an entry (2, 3), any bytes are a value (4), and the memory lives while the
        // ring is borrowed (1).
        unsafe { self.first.add(AT).cast::<T>().read_volatile() }
    }
}

/// One entry, for writing.
pub(super) struct EntryMut<'a, const LEN: usize> {
    first: NonNull<u8>,
    ring: PhantomData<&'a mut ()>,
}

impl<const LEN: usize> EntryMut<'_, LEN> {
    /// The same, for reading.
    #[inline(always)]
    pub(super) fn as_entry(&self) -> RingEntry<'_, LEN> {
        RingEntry { first: self.first, ring: PhantomData }
    }

    /// Writes the byte at `AT`.
    #[inline(always)]
    pub(super) fn set_byte<const AT: usize>(&mut self, value: u8) {
        self.write::<u8, AT>(value);
    }

    /// Writes the big-endian `u32` at `AT`.
    #[inline(always)]
    pub(super) fn set_be32<const AT: usize>(&mut self, value: u32) {
        self.write::<u32, AT>(value.to_be());
    }

    /// Writes the big-endian `u64` at `AT`.
    #[inline(always)]
    pub(super) fn set_be64<const AT: usize>(&mut self, value: u64) {
        self.write::<u64, AT>(value.to_be());
    }

    #[inline(always)]
    fn write<T: Number, const AT: usize>(&mut self, value: T) {
        const { assert!(AT.is_multiple_of(size_of::<T>()) && AT + size_of::<T>() <= LEN, "outside the entry") };
        // SAFETY: inside an entry (2, 3) that only the ring's owner writes (5), alive while the
        // ring is borrowed (1).
        unsafe { self.first.add(AT).cast::<T>().write_volatile(value) }
    }
}

/// Sixteen bytes, read at once on machines with such a register.
#[cfg(all(target_arch = "x86_64", not(miri)))]
type Quarter = core::arch::x86_64::__m128i;
/// Sixteen bytes.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
type Quarter = [u64; 2];

/// An integer of an entry: any bytes are a value.
trait Number: Copy {}
impl Number for u8 {}
impl Number for u16 {}
impl Number for u32 {}
impl Number for u64 {}

/// A doorbell record: a word in memory from which the NIC reads our index.
pub(super) struct DoorbellRecord {
    word: NonNull<u32>,
    #[expect(dead_code, reason = "it keeps the memory")]
    memory_owner: MemoryOwner,
}

impl DoorbellRecord {
    /// The record at `word`, as the parts around `memory_owner` state.
    pub(super) fn new(word: NonNull<u32>, memory_owner: MemoryOwner) -> Self {
        Self { word, memory_owner }
    }

    /// Writes `index`, which the caller has truncated to the record's width. All earlier writes to
    /// the ring are visible to the NIC before it.
    #[inline(always)]
    pub(super) fn write(&mut self, index: u32) {
        to_device_barrier();
        // SAFETY: alive (1), aligned as a word of the parts, and written by its owner only (5).
        unsafe { self.word.write_volatile(index.to_be()) }
    }
}

/// A register of eight bytes that all completion queues of a context share.
pub(super) struct ArmRegister {
    register: NonNull<u64>,
    #[expect(dead_code, reason = "it keeps the register mapped")]
    memory_owner: MemoryOwner,
}

impl ArmRegister {
    /// The register of a completion queue, if the parts name one.
    pub(super) fn of(parts: &CqParts) -> Option<Self> {
        let register = parts.arm_register.filter(|register| register.is_aligned())?;
        Some(Self { register, memory_owner: parts.memory_owner.clone() })
    }

    /// The second doorbell word of a completion queue, which says what it is armed for.
    pub(super) fn word_of(parts: &CqParts) -> DoorbellRecord {
        // SAFETY: the second word of a record of two (1).
        let word = unsafe { parts.doorbell.cast::<u32>().add(1) };
        DoorbellRecord::new(word, parts.memory_owner.clone())
    }

    /// Writes `words`, the first at the lower address, in one store as the NIC requires. All
    /// earlier writes to memory are visible to the NIC before it.
    pub(super) fn write(&mut self, words: [u32; 2]) {
        write_combining_barrier();
        let value = u64::from(words[0]) << 32 | u64::from(words[1]);
        // SAFETY: the register is mapped as long as the owner lives (1). Other queues write it too,
        // each in one indivisible store.
        unsafe { self.register.write_volatile(value.to_be()) }
        write_combining_barrier();
    }
}

/// Makes earlier writes to memory visible to the NIC before later ones (`udma_to_device_barrier`,
/// mlx5.md 2.7).
#[inline(always)]
pub(super) fn to_device_barrier() {
    // An x86 stores to write-back memory in order (Intel SDM 3A 9.2.2): only the compiler must not
    // reorder.
    #[cfg(any(target_arch = "x86_64", miri))]
    core::sync::atomic::compiler_fence(core::sync::atomic::Ordering::SeqCst);
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: a barrier changes no register and no memory.
    unsafe {
        core::arch::asm!("dsb st", options(nostack, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", miri)))]
    core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
}

/// Orders reads: memory read after this was written by the NIC before the memory read before it
/// (`udma_from_device_barrier`, mlx5.md 2.7). Used once per burst: the reader loads the owner bits
/// of all its CQEs, executes this barrier, then reads the other fields.
#[inline(always)]
pub(super) fn from_device_barrier() {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: every x86-64 has the instruction, and it changes nothing.
    unsafe {
        core::arch::x86_64::_mm_lfence();
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: a barrier changes no register and no memory.
    unsafe {
        core::arch::asm!("dsb ld", options(nostack, preserves_flags));
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
}

/// Orders earlier reads before later writes: an entry is read before it is given back to the NIC.
#[inline(always)]
pub(super) fn consumed_barrier() {
    // No x86 store passes an older load (Intel SDM 3A 9.2.2).
    #[cfg(any(target_arch = "x86_64", miri))]
    core::sync::atomic::compiler_fence(core::sync::atomic::Ordering::SeqCst);
    #[cfg(not(any(target_arch = "x86_64", miri)))]
    from_device_barrier();
}

/// Flushes write-combining buffers, and makes earlier writes to ordinary memory visible before
/// later ones (`mmio_wc_start`, `mmio_flush_writes`, mlx5.md 2.7).
#[inline(always)]
pub(super) fn write_combining_barrier() {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: every x86-64 has the instruction, and it changes nothing.
    unsafe {
        core::arch::x86_64::_mm_sfence();
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: a barrier changes no register and no memory.
    unsafe {
        core::arch::asm!("dsb st", options(nostack, preserves_flags));
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
}
