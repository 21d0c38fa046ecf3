//! A block: the fixed fields of a message's root or of a group's entry.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{SbeError, Visitor};

/// Where a field is in its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Its first byte.
    pub offset: u16,
    /// One past its last byte.
    pub end: u16,
}

/// A structure over the bytes of a block, which the generator writes.
pub trait Block: FromBytes + IntoBytes + Immutable + KnownLayout + Unaligned + Copy {
    /// Bytes of the fields of the schema's first version. A shorter block is refused.
    const LEN_MIN: usize;

    /// All fields null.
    const NULL: Self;

    /// Where its fields are.
    const FIELDS: &'static [Extent];

    /// The block's fields in order, for tools and tests.
    fn fields(&self, visitor: &mut dyn Visitor);

    /// Reads the block `wire`, whose length is the wire's. Costs a compare and the copy of the
    /// structure, which the compiler reduces to the fields in use; a block of an earlier version
    /// costs a copy of each of its fields.
    #[inline]
    fn read(wire: &[u8]) -> Result<Self, SbeError> {
        match Self::read_from_prefix(wire) {
            Ok((block, _)) => Ok(block),
            Err(_) => Self::read_short(wire),
        }
    }

    /// Reads a block of an earlier version: fields that are not wholly in it are null.
    #[cold]
    fn read_short(wire: &[u8]) -> Result<Self, SbeError> {
        if wire.len() < Self::LEN_MIN {
            return Err(SbeError::BlockShort { needed: Self::LEN_MIN, found: wire.len() });
        }
        let mut block = Self::NULL;
        for field in Self::FIELDS {
            let range = usize::from(field.offset)..usize::from(field.end);
            if let (Some(from), Some(to)) = (wire.get(range.clone()), block.as_mut_bytes().get_mut(range)) {
                to.copy_from_slice(from);
            }
        }
        Ok(block)
    }
}
