//! The composites that hold a message together: header, group dimension, data's length.

use super::primitive::{ByteOrder, Primitive};

/// A number in a composite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumberAt {
    /// Its place.
    pub offset: usize,
    /// Its type.
    pub primitive: Primitive,
}

impl NumberAt {
    /// Reads it; `None` where `bytes` are too short.
    pub fn read(&self, bytes: &[u8], order: ByteOrder) -> Option<usize> {
        let bytes = bytes.get(self.offset..self.offset + self.primitive.len())?;
        usize::try_from(self.primitive.read(bytes, order)).ok()
    }
}

/// The header of all messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderLayout {
    /// Its bytes.
    pub len: usize,
    /// The root block's length; without it the whole rest of the message is the block.
    pub block_len: Option<NumberAt>,
    /// The template number.
    pub template: NumberAt,
    /// The schema's number; without it all messages are of this schema.
    pub schema: Option<NumberAt>,
    /// The schema's version; without it all messages are of this version.
    pub version: Option<NumberAt>,
}

/// The dimension of groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DimensionLayout {
    /// The composite's name.
    pub name: String,
    /// Its bytes.
    pub len: usize,
    /// The length of an entry's block.
    pub block_len: NumberAt,
    /// The number of entries.
    pub count: NumberAt,
}

/// Data of a variable length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataLayout {
    /// Its length.
    pub length: NumberAt,
    /// Where it begins.
    pub offset: usize,
}
