//! What the memory that the WRITEs of a flow reach must hold.

use super::end::{DEPTH, SLOT};

/// What memory holds before anything is written into it, in front of a message and behind it.
pub(super) const GUARD: u8 = 0xa5;

/// The slots of the WRITEs of a reliable connection, as they are behind those that are done.
pub(super) struct WriteModel {
    bytes: Vec<u8>,
}

impl Default for WriteModel {
    fn default() -> Self {
        Self { bytes: vec![0; DEPTH * SLOT] }
    }
}

/// True if nothing was written here.
pub(super) fn is_untouched(bytes: &[u8]) -> bool {
    *bytes == [GUARD; SLOT][..bytes.len()]
}

impl WriteModel {
    /// A WRITE into a slot is done; true if the slot holds it now, and behind it what it held
    /// before.
    pub(super) fn apply(&mut self, slot: usize, written: &[u8], found: &[u8]) -> bool {
        self.bytes[slot..slot + written.len()].copy_from_slice(written);
        self.bytes[slot..slot + SLOT] == *found
    }

    /// True if `found` is what was written, where each of `others`, a slot and bytes, may have been
    /// written too, whole or in part.
    pub(super) fn is_like(&self, found: &[u8], others: &[(usize, Vec<u8>)]) -> bool {
        let is_other = |at: usize, byte: u8| {
            let has_it = |(slot, bytes): &(usize, Vec<u8>)| {
                at.checked_sub(*slot).and_then(|at| bytes.get(at)).is_some_and(|other| *other == byte)
            };
            others.iter().any(has_it)
        };
        let mut bytes = self.bytes.iter().zip(found).enumerate();
        self.bytes == *found || bytes.all(|(at, (expected, found))| expected == found || is_other(at, *found))
    }

    /// Nothing of before is under way any more: what is there stays there.
    pub(super) fn settle(&mut self, found: Vec<u8>) {
        self.bytes = found;
    }
}
