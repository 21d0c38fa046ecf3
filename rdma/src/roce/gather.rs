//! Lists of pieces of memory as one range of bytes: gathered into a packet, scattered from one.

use super::handle::PdHandle;
use super::keys::{Access, Range, Regions};
use super::work::Sge;

/// A key, a range or a right of a list is wrong.
#[derive(Debug)]
pub(super) struct ProtectionError;

impl Regions {
    /// Fills `bytes` from the list, of which the first `skip` bytes were taken before.
    #[inline]
    pub(super) fn gather(
        &self,
        pd: PdHandle,
        sges: &[Sge],
        skip: u32,
        mut bytes: &mut [u8],
    ) -> Result<(), ProtectionError> {
        if let Some((range, lkey)) = within_first(sges, skip, bytes.len()) {
            self.resolve(lkey, pd, range, Access::LOCAL_READ).ok_or(ProtectionError)?.read(bytes);
            return Ok(());
        }
        for (range, lkey) in parts(sges, skip, bytes.len() as u32) {
            let (part, rest) = bytes.split_at_mut(range.len as usize);
            self.resolve(lkey, pd, range, Access::LOCAL_READ).ok_or(ProtectionError)?.read(part);
            bytes = rest;
        }
        Ok(())
    }

    /// Writes `bytes` into the list, behind its first `skip` bytes.
    #[inline]
    pub(super) fn scatter(
        &self,
        pd: PdHandle,
        sges: &[Sge],
        skip: u32,
        mut bytes: &[u8],
    ) -> Result<(), ProtectionError> {
        if let Some((range, lkey)) = within_first(sges, skip, bytes.len()) {
            self.resolve(lkey, pd, range, Access::LOCAL_WRITE).ok_or(ProtectionError)?.write(bytes);
            return Ok(());
        }
        for (range, lkey) in parts(sges, skip, bytes.len() as u32) {
            let (part, rest) = bytes.split_at(range.len as usize);
            self.resolve(lkey, pd, range, Access::LOCAL_WRITE).ok_or(ProtectionError)?.write(part);
            bytes = rest;
        }
        Ok(())
    }
}

/// The range of bytes that are all in the first piece, as those of most messages are.
#[inline]
fn within_first(sges: &[Sge], skip: u32, len: usize) -> Option<(Range, u32)> {
    let first = sges.first()?;
    let is_within = len > 0 && u64::from(skip) + len as u64 <= u64::from(first.len);
    // An address that wraps is outside of every region.
    let address = first.address.wrapping_add(u64::from(skip));
    is_within.then_some((Range { address, len: len as u32 }, first.lkey))
}

/// The pieces of `len` bytes of a list, behind its first `skip` bytes.
#[inline]
fn parts(sges: &[Sge], mut skip: u32, mut len: u32) -> impl Iterator<Item = (Range, u32)> {
    let mut sges = sges.iter();
    core::iter::from_fn(move || {
        // What is behind the last byte is not looked at.
        while len > 0 {
            let sge = sges.next()?;
            let skipped = skip.min(sge.len);
            skip -= skipped;
            let part = len.min(sge.len - skipped);
            len -= part;
            if part > 0 {
                // An address that wraps is outside of every region.
                let range = Range { address: sge.address.wrapping_add(u64::from(skipped)), len: part };
                return Some((range, sge.lkey));
            }
        }
        None
    })
}
