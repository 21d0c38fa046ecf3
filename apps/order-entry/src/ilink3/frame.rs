//! The frame of a message: framing header, SBE header, block and tail.

use zerocopy::{FromBytes, Immutable, KnownLayout};

use super::{HEADER_LEN, IlinkError, MESSAGE_LEN_MAX};
use crate::session::{Output, OutputFull};

const ENCODING: u16 = 0xcafe;
const SCHEMA: u16 = 8;
const VERSION: u16 = 9;

/// A whole message, viewed in the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Which message.
    pub template: u16,
    /// Version of the schema of its sender.
    pub version: u16,
    /// The fixed fields.
    pub block: &'a [u8],
    /// Groups and data.
    pub tail: &'a [u8],
}

impl<'a> Frame<'a> {
    /// The length of the message that begins with `bytes`, or `None` where the header is
    /// incomplete.
    ///
    /// # Errors
    ///
    /// Another encoding, or a length below the headers'.
    #[inline]
    pub fn len(bytes: &[u8]) -> Result<Option<usize>, IlinkError> {
        let Some(&[a, b, c, d]) = bytes.first_chunk::<4>() else { return Ok(None) };
        let (len, encoding) = (usize::from(u16::from_le_bytes([a, b])), u16::from_le_bytes([c, d]));
        if encoding != ENCODING {
            return Err(IlinkError::Encoding { found: encoding });
        }
        if len < HEADER_LEN {
            return Err(IlinkError::TooShort { len });
        }
        Ok(Some(len))
    }

    /// Reads a whole message.
    ///
    /// # Errors
    ///
    /// Another schema, or a message shorter than its block.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, IlinkError> {
        let too_short = IlinkError::TooShort { len: bytes.len() };
        let (header, rest) = bytes.split_first_chunk::<HEADER_LEN>().ok_or(too_short)?;
        let &[_, _, _, _, a, b, c, d, e, f, g, h] = header;
        let (schema, version) = (u16::from_le_bytes([e, f]), u16::from_le_bytes([g, h]));
        if schema != SCHEMA {
            return Err(IlinkError::Schema { found: schema });
        }
        let (block, tail) = rest.split_at_checked(usize::from(u16::from_le_bytes([a, b]))).ok_or(too_short)?;
        Ok(Self { template: u16::from_le_bytes([c, d]), version, block, tail })
    }

    /// Lays the structure of a message over the block. Check [`template`](Self::template) first:
    /// `frame.view::<OrderAccepted>()` where it is `OrderAccepted::KIND`.
    ///
    /// # Errors
    ///
    /// The block is shorter than the structure.
    #[inline]
    pub fn view<T: FromBytes + KnownLayout + Immutable + zerocopy::Unaligned>(&self) -> Result<&'a T, IlinkError> {
        let short = IlinkError::Length { template: self.template, expected: size_of::<T>(), found: self.block.len() };
        T::ref_from_prefix(self.block).map(|(view, _)| view).map_err(|_| short)
    }
}

/// Writes a message of `template` with `block` and `tail`, and returns the block, to be patched.
///
/// # Errors
///
/// The output is too small, or the message longer than its length field can say.
#[inline]
pub fn emit<'o>(
    template: u16,
    block: &[u8],
    tail: &[u8],
    output: &'o mut Output<'_>,
) -> Result<&'o mut [u8], OutputFull> {
    let needed = HEADER_LEN + block.len() + tail.len();
    let full = OutputFull { needed, room: MESSAGE_LEN_MAX };
    let (len, block_len) = (u16::try_from(needed).map_err(|_| full)?, u16::try_from(block.len()).map_err(|_| full)?);
    let room = output.take(needed)?;
    let (header, rest) = room.split_at_mut(HEADER_LEN);
    for (slot, field) in
        header.as_chunks_mut::<2>().0.iter_mut().zip([len, ENCODING, block_len, template, SCHEMA, VERSION])
    {
        *slot = field.to_le_bytes();
    }
    let (front, back) = rest.split_at_mut(block.len());
    front.copy_from_slice(block);
    back.copy_from_slice(tail);
    Ok(front)
}
