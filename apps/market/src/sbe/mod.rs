//! Simple Binary Encoding (SBE), the FIX community's layout for messages that are fixed blocks of
//! fields and repeating groups of them.
//!
//! ```text
//!   schemas/x.xml ── schema::Schema::parse ──> tokens ──┬─ Schema::walk      any message, for tools and tests
//!                                                       └─ schema::generate ─> x/layout.rs, checked in, for the hot path
//! ```
//!
//! A schema's messages are read in two ways that share no code but this file's traits. [`schema`]
//! (feature `sbe-schema`) reads the XML at run time into a flat list of tokens and walks a message
//! by it. `schema::generate` writes a Rust file with a structure for each block; the file is
//! checked in and is all that a feed's decoder needs. A test compares the file with what the
//! generator writes, and both readings of the same bytes with each other.
//!
//! The rules of version: a wire block may be longer than ours, because later versions append
//! fields; it is stepped by its own length. It may be shorter, because earlier versions had fewer
//! fields; the fields that are not wholly in it are null. A block that does not even have the
//! fields of the schema's first version is refused. Unknown templates are the caller's to skip.

mod block;
mod emit;
mod group;
mod head;
mod value;

#[cfg(feature = "sbe-schema")]
pub mod schema;

pub use block::{Block, Extent};
pub use emit::{emit_block, emit_group};
pub(crate) use group::show_group;
pub use group::{Dimension, Group};
pub use head::MessageHead;
pub use value::{Value, Visitor, text_len};

use core::fmt;

/// Why a message is not laid out as its schema says. The message is skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SbeError {
    /// Shorter than its header.
    HeaderShort,
    /// A template that the schema does not have; later versions add some.
    UnknownTemplate(u16),
    /// The header names another schema.
    OtherSchema(u16),
    /// A block without the fields of the schema's first version, or one that the message does not
    /// hold.
    BlockShort {
        /// Bytes that are needed.
        needed: usize,
        /// Bytes that there are.
        found: usize,
    },
    /// A group whose entries exceed the message.
    GroupOverrun {
        /// Bytes that its entries have by its own numbers.
        needed: usize,
        /// Bytes that there are.
        found: usize,
    },
    /// Data of a variable length that exceeds the message.
    DataOverrun,
}

/// A template as the type of a message. Those that are decoded here are below 255; others are
/// unknown, and counted under that.
pub(crate) const fn kind_of(template: u16) -> u8 {
    if template < 0xff { template as u8 } else { 0xff }
}

impl SbeError {
    /// Bytes that were needed and found, where the error is about them.
    pub const fn lengths(self) -> (usize, usize) {
        match self {
            Self::BlockShort { needed, found } | Self::GroupOverrun { needed, found } => (needed, found),
            _ => (0, 0),
        }
    }
}

impl fmt::Display for SbeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HeaderShort => f.write_str("the message is shorter than its header"),
            Self::UnknownTemplate(id) => write!(f, "the schema has no template {id}"),
            Self::OtherSchema(id) => write!(f, "the message is of schema {id}"),
            Self::BlockShort { needed, found } => write!(f, "a block of {found} bytes, where {needed} are needed"),
            Self::GroupOverrun { needed, found } => {
                write!(f, "a group announces {needed} bytes of entries and {found} are left")
            }
            Self::DataOverrun => f.write_str("data of a variable length exceeds the message"),
        }
    }
}

impl core::error::Error for SbeError {}

#[cfg(test)]
mod tests;
