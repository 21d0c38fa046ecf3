//! Repeating groups: a dimension with the entries' length and number, then the entries.

use core::marker::PhantomData;

use super::{Block, SbeError, Visitor};

/// The composite in front of a group's entries, which the generator writes: most schemas have one
/// of 3 or 4 bytes, CME also one of 8.
pub trait Dimension {
    /// Its bytes.
    const LEN: usize;

    /// The length of an entry's block, and the number of entries; `None` where `bytes` are fewer
    /// than the composite.
    fn read(bytes: &[u8]) -> Option<(usize, usize)>;

    /// Writes it behind `out`. A count beyond its type is cut.
    fn emit(block_len: u16, count: u16, out: &mut Vec<u8>);
}

/// The entries of a group whose extent was checked against the message. An iterator over them.
#[derive(Clone, Debug)]
pub struct Group<'a, T> {
    entries: &'a [u8],
    block_len: usize,
    count: usize,
    entry: PhantomData<T>,
}

impl<'a, T: Block> Group<'a, T> {
    /// Splits a group off the front of `bytes`: the group, and what follows it. Costs a
    /// multiplication and a few compares.
    #[inline]
    pub fn split<D: Dimension>(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), SbeError> {
        let Some((block_len, count)) = D::read(bytes) else {
            return Err(SbeError::BlockShort { needed: D::LEN, found: bytes.len() });
        };
        let rest = &bytes[D::LEN..];
        let needed = block_len * count;
        let Some((entries, rest)) = rest.split_at_checked(needed) else {
            return Err(SbeError::GroupOverrun { needed, found: rest.len() });
        };
        if block_len < T::LEN_MIN && count > 0 {
            return Err(SbeError::BlockShort { needed: T::LEN_MIN, found: block_len });
        }
        Ok((Self { entries, block_len, count, entry: PhantomData }, rest))
    }

    /// A group without entries: that of a message from before the group's version.
    pub const fn empty() -> Self {
        Self { entries: &[], block_len: 0, count: 0, entry: PhantomData }
    }

    /// The entry at `idx`, from 0.
    #[inline]
    pub fn get(&self, idx: usize) -> Option<T> {
        if idx >= self.count {
            return None;
        }
        let at = idx * self.block_len;
        T::read(self.entries.get(at..at + self.block_len)?).ok()
    }
}

impl<T: Block> Iterator for Group<'_, T> {
    type Item = T;

    #[inline]
    fn next(&mut self) -> Option<T> {
        if self.count == 0 {
            return None;
        }
        let (entry, rest) = self.entries.split_at_checked(self.block_len)?;
        self.entries = rest;
        self.count -= 1;
        // `split` has checked the length, so that each entry reads.
        T::read(entry).ok()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.count, Some(self.count))
    }
}

impl<T: Block> ExactSizeIterator for Group<'_, T> {}

/// Shows a group entry by entry: of the generated functions that walk a message.
pub(crate) fn show_group<T: Block>(name: &str, group: Group<'_, T>, visitor: &mut dyn Visitor) {
    visitor.group(name, group.len());
    for entry in group {
        visitor.entry();
        entry.fields(visitor);
    }
    visitor.end_group();
}
