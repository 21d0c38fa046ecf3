//! UAR pages: the registers that a driver writes to say that something was posted (mlx5.md 2.7).
//!
//! A page is 4 KiB of ordinary memory that the driver takes for a register file. At 0x800 + k * 512
//! is BlueFlame register k, with two halves of 256 bytes that drivers use alternately; at 0x20 is
//! the CQ doorbell, which the receiving side reads. Memory keeps only the last write: of two writes
//! to one half between two reads the NIC sees one ([`strict`](crate::hca::send::strict) allows for
//! it).
//!
//! Only strict mode reads them; otherwise the doorbell records are enough.

use crate::hca::environment::{Dma, Unmapped};
use crate::hca::table::Table;
use crate::hca::{Errno, Hca};

/// Where the CQ doorbell lies.
const CQ_DOORBELL: u64 = 0x20;
/// Where the first BlueFlame register begins.
const REGISTERS: u64 = 0x800;
/// Bytes of half a register.
pub(in crate::hca) const HALF_LEN: usize = 256;
/// Halves between 0x800 and the page's end.
pub(in crate::hca) const HALVES: usize = 8;

/// All pages that the driver mapped or a queue names.
#[derive(Default)]
pub(in crate::hca) struct Uars {
    pages: Table<Page>,
    /// Indices that were given out.
    given: Table<()>,
}

/// One page.
struct Page {
    /// The index by which the driver and its queues name the page.
    index: u32,
    /// Where the driver sees it; `None` while only a queue names it.
    address: Option<u64>,
    /// The number of sending queues whose doorbells are on it.
    users: u32,
    /// The WQEs for which each half was last rung: some of their bytes may arrive later.
    posted: Box<[[u8; HALF_LEN]; HALVES]>,
}

/// A driver's write to half a register.
pub(in crate::hca) struct Ring {
    /// The first 8 bytes: those of the control segment of the last WQE posted.
    pub(in crate::hca) control: u64,
    /// All bytes of the half. Beyond the first 8 bytes: a WQE, zeros, or bytes of an earlier write.
    pub(in crate::hca) bytes: [u8; HALF_LEN],
    /// The WQE that this half rang for before: bytes of it may be left over, if it was taken half
    /// written.
    pub(in crate::hca) before: [u8; HALF_LEN],
    /// The WQE that the doorbell is for, as much of it as a register can carry; filled in by the
    /// code that examines the ring.
    pub(in crate::hca) posted: [u8; HALF_LEN],
    /// The driver has begun to write the next one: the bytes may be a mixture of both.
    pub(in crate::hca) moved: bool,
}

impl Ring {
    /// Whether more than the first 8 bytes were written.
    pub(in crate::hca) fn is_blueflame(&self) -> bool {
        self.bytes[8..].iter().any(|byte| *byte != 0)
    }
}

impl Uars {
    /// A sending queue begins to ring on this page: the page's slot.
    pub(in crate::hca) fn hold(&mut self, index: u32) -> u32 {
        let slot = self.slot(index);
        if let Some(page) = self.pages.get_mut(slot) {
            page.users += 1;
        }
        slot
    }

    /// A sending queue that rang on it went.
    pub(in crate::hca) fn release(&mut self, slot: u32) {
        if let Some(page) = self.pages.get_mut(slot) {
            page.users = page.users.saturating_sub(1);
            self.forget_unused(slot);
        }
    }

    /// Slots that there may be, for loops.
    pub(in crate::hca) fn slots(&self) -> std::ops::Range<u32> {
        0..self.pages.end()
    }

    /// How many sending queues ring on a page.
    pub(in crate::hca) fn users(&self, slot: u32) -> u32 {
        self.pages.get(slot).map_or(0, |page| page.users)
    }

    /// Takes the value written to a page's CQ doorbell; `None` where none was written.
    pub(in crate::hca) fn take_arm(&self, slot: u32, dma: &dyn Dma) -> Option<u64> {
        let register = self.pages.get(slot)?.address? + CQ_DOORBELL;
        let mut word = [0; 8];
        dma.read(register, &mut word).ok()?;
        if word == [0; 8] { None } else { dma.swap_be64(register, 0).ok() }
    }

    /// Takes the bytes written to half a register, and clears it; `None` where none were written.
    pub(in crate::hca) fn take(&mut self, slot: u32, half: usize, dma: &dyn Dma) -> Option<Ring> {
        let page = self.pages.get(slot)?;
        let register = page.address? + REGISTERS + (half * HALF_LEN) as u64;
        take_half(register, page.posted[half], dma).ok().flatten()
    }

    /// Records the WQE for which a half was rung.
    pub(in crate::hca) fn remember(&mut self, slot: u32, half: usize, ring: &Ring) {
        if let Some(page) = self.pages.get_mut(slot) {
            page.posted[half] = ring.posted;
        }
    }

    /// Clears the bytes of a page's registers after the first 8: they are left over from doorbells
    /// that were not seen.
    pub(in crate::hca) fn wipe(&mut self, slot: u32, dma: &dyn Dma) {
        let Some(Page { address: Some(address), .. }) = self.pages.get(slot) else { return };
        for half in 0..HALVES {
            // The page was mapped a moment ago. Where it no longer is, no doorbell can be written
            // either.
            let _ = dma.write(address + REGISTERS + (half * HALF_LEN) as u64 + 8, &[0; HALF_LEN - 8]);
        }
    }

    fn slot(&mut self, index: u32) -> u32 {
        let known = self.pages.iter().find(|(_, page)| page.index == index).map(|(slot, _)| slot);
        known.unwrap_or_else(|| {
            let posted = Box::new([[0; HALF_LEN]; HALVES]);
            self.pages.insert(Page { index, address: None, users: 0, posted })
        })
    }

    fn forget_unused(&mut self, slot: u32) {
        if self.pages.get(slot).is_some_and(|page| page.users == 0 && page.address.is_none()) {
            self.pages.remove(slot);
        }
    }
}

/// See [`Uars::take`].
fn take_half(register: u64, before: [u8; HALF_LEN], dma: &dyn Dma) -> Result<Option<Ring>, Unmapped> {
    let mut first = [0; 8];
    dma.read(register, &mut first)?;
    if first == [0; 8] {
        return Ok(None);
    }
    let control = dma.swap_be64(register, 0)?;
    let mut bytes = [0; HALF_LEN];
    dma.read(register + 8, &mut bytes[8..])?;
    // Drivers write the first 8 bytes first, so a driver that has written some of the others
    // meanwhile is noticed here.
    dma.read(register, &mut first)?;
    let moved = first != [0; 8];
    if bytes[8..].iter().any(|byte| *byte != 0) {
        dma.write(register + 8, &[0; HALF_LEN - 8])?;
    }
    bytes[..8].copy_from_slice(&control.to_be_bytes());
    Ok(Some(Ring { control, bytes, before, posted: [0; HALF_LEN], moved }))
}

impl Hca {
    /// Allocates the index of a page that no one else has.
    pub fn alloc_uar(&mut self) -> u32 {
        self.uars.given.insert(())
    }

    /// Takes it back: the page is not looked at again.
    pub fn free_uar(&mut self, index: u32) {
        self.unmap_uar(index);
        self.uars.given.remove(index);
    }

    /// The driver mapped the UAR page of this index at this address: from now on the NIC reads
    /// doorbells there. EINVAL for an address that is not page-aligned.
    pub fn map_uar(&mut self, index: u32, address: u64) -> Result<(), Errno> {
        if !address.is_multiple_of(4096) || address == 0 {
            return Err(Errno(libc::EINVAL));
        }
        let slot = self.uars.slot(index);
        if let Some(page) = self.uars.pages.get_mut(slot) {
            page.address = Some(address);
        }
        Ok(())
    }

    /// The page of this index is no longer mapped: it is not looked at again.
    pub fn unmap_uar(&mut self, index: u32) {
        let slot = self.uars.slot(index);
        if let Some(page) = self.uars.pages.get_mut(slot) {
            page.address = None;
        }
        self.uars.forget_unused(slot);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a panic here is the report
    use super::*;
    use crate::hca::testing::PlainMemory;

    const PAGE: u64 = 0x1_0000;

    fn page() -> (PlainMemory, Uars, u32) {
        let mut uars = Uars::default();
        let slot = uars.hold(3);
        uars.pages.get_mut(slot).unwrap().address = Some(PAGE);
        (PlainMemory::new(PAGE, 4096), uars, slot)
    }

    #[test]
    fn what_was_not_rung_is_not_taken() {
        let (memory, mut uars, slot) = page();
        memory.put(PAGE + 0x20, &[0xff; 8]); // the CQ doorbell
        assert!((0..HALVES).all(|half| uars.take(slot, half, &memory).is_none()));
    }

    #[test]
    fn each_half_of_each_register_rings_once() {
        for half in 0..HALVES {
            let (memory, mut uars, slot) = page();
            memory.put_be64(PAGE + 0x800 + 256 * half as u64, 0x1234);
            for other in (0..HALVES).filter(|other| *other != half) {
                assert!(uars.take(slot, other, &memory).is_none(), "half {other} while {half} was rung");
            }
            assert_eq!(uars.take(slot, half, &memory).unwrap().control, 0x1234);
            assert!(uars.take(slot, half, &memory).is_none(), "half {half} a second time");
        }
    }

    #[test]
    fn what_blueflame_carried_is_taken_whole_and_cleared() {
        let (memory, mut uars, slot) = page();
        memory.put(PAGE + 0x900, &[7; 64]);
        let ring = uars.take(slot, 1, &memory).unwrap();
        assert_eq!(ring.bytes[..65], [&[7; 64][..], &[0]].concat());
        assert!(!ring.moved);
        assert_eq!(memory.get(PAGE + 0x900, 64), [0; 64]);

        memory.put(PAGE + 0x900, &[9; 8]);
        let next = uars.take(slot, 1, &memory).unwrap();
        assert_eq!(next.bytes[8], 0);
    }

    #[test]
    fn a_page_that_is_not_mapped_is_silent() {
        let (memory, mut uars, slot) = page();
        uars.pages.get_mut(slot).unwrap().address = None;
        assert!(uars.take(slot, 0, &memory).is_none());
        uars.pages.get_mut(slot).unwrap().address = Some(0x50_0000);
        assert!(uars.take(slot, 0, &memory).is_none(), "no memory there");
        uars.wipe(slot, &memory);
    }

    #[test]
    fn a_page_is_forgotten_when_neither_driver_nor_queue_has_it() {
        let mut hca = Hca::new(crate::hca::Config::default());
        hca.map_uar(5, 0x2000).unwrap();
        let slot = hca.uars.hold(5);
        hca.unmap_uar(5);
        assert_eq!(hca.uars.users(slot), 1);
        hca.uars.release(slot);
        assert_eq!(hca.uars.pages.iter().count(), 0);
        assert_eq!(hca.map_uar(5, 0x2008), Err(Errno(libc::EINVAL)), "not a page's address");
    }
}
