//! The header in front of each message. Its composite is part of the schema: most have four
//! numbers of 16 bits, some smaller ones, and formats that are not quite SBE have no length of the
//! block or no version.

use super::SbeError;

/// The header's numbers, whatever their composite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageHead {
    /// Bytes of the root block on the wire.
    pub block_len: usize,
    /// Which message it is.
    pub template: u16,
    /// Which schema it is of.
    pub schema: u16,
    /// The version of the schema that it was written by.
    pub version: u16,
}

impl MessageHead {
    /// Splits the root block off `body`, which is what follows the header.
    #[inline]
    pub fn split_root(self, body: &[u8]) -> Result<(&[u8], &[u8]), SbeError> {
        let short = SbeError::BlockShort { needed: self.block_len, found: body.len() };
        body.split_at_checked(self.block_len).ok_or(short)
    }
}
