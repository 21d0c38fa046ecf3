//! Messages in a file: a two-byte big-endian length before each, no header (Nasdaq "BinaryFILE").
//!
//! A length of 0 ends the file; a file may also just stop. [`FileMessages`] iterates over a whole
//! file in memory and reports how it ended. For a reader that works in chunks, [`ItchFile`] is a
//! [`Framing`] without a header whose packet is any run of whole blocks, and [`whole_blocks`] finds
//! where such a run ends.

use super::{Framing, FramingError, Header, PacketKind, Session, split_u16};

/// The framing of a file; a "packet" is a run of whole blocks without sequence numbers.
#[derive(Clone, Copy, Debug)]
pub struct ItchFile;

/// The count of a run of blocks, computed as there is no header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunHeader {
    /// Whole messages in the run.
    pub count: u32,
}

impl Framing for ItchFile {
    type Raw = RunHeader;

    const NAME: &'static str = "length-prefixed file";
    const HEADER_LEN: usize = 0;
    const PREFIX_LEN: usize = 2;
    const COUNT_MAX: u32 = u32::MAX;
    const MESSAGE_LEN_MAX: usize = 0xffff;
    const PACKET_LEN_MAX: usize = usize::MAX;

    fn parse_raw(run: &[u8]) -> Result<(RunHeader, &[u8]), FramingError> {
        let mut messages = FileMessages::new(run);
        let count = messages.by_ref().count() as u32;
        match messages.end() {
            FileEnd::Truncated { .. } => Err(FramingError::MessageOverrun { idx: count }),
            FileEnd::Marker => Err(FramingError::TrailingBytes { len: messages.rest().len() }),
            FileEnd::Clean => Ok((RunHeader { count }, run)),
        }
    }

    fn header(raw: &RunHeader) -> Header {
        Header {
            channel: 0,
            session: Session::default(),
            seq: 0,
            count: raw.count,
            kind: PacketKind::Unsequenced,
            sent_ns: 0,
        }
    }

    #[inline]
    fn split(blocks: &[u8]) -> Option<(&[u8], &[u8])> {
        split_u16(blocks, u16::from_be_bytes)
    }

    fn emit_raw(_raw: &RunHeader, _count: u32, _body_len: usize, _out: &mut [u8]) {}

    fn emit_prefix(len: usize, out: &mut [u8]) {
        out.copy_from_slice(&(len as u16).to_be_bytes());
    }
}

/// Walks over the messages of a file that is in memory.
#[derive(Clone, Debug)]
pub struct FileMessages<'a> {
    rest: &'a [u8],
}

/// How a file ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileEnd {
    /// After its last message.
    Clean,
    /// With a length of 0, the mark that ends a file.
    Marker,
    /// In the middle of a message.
    Truncated {
        /// Bytes that are left of it, its length included.
        len: usize,
    },
}

impl<'a> FileMessages<'a> {
    /// Starts at the first length of `file`.
    pub const fn new(file: &'a [u8]) -> Self {
        Self { rest: file }
    }

    /// How the file ends, once the iterator has returned its last message.
    pub fn end(&self) -> FileEnd {
        match self.rest {
            [] => FileEnd::Clean,
            [0, 0, ..] => FileEnd::Marker,
            rest => FileEnd::Truncated { len: rest.len() },
        }
    }

    /// The bytes that the iterator has not reached.
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

impl<'a> Iterator for FileMessages<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let (message, behind) = ItchFile::split(self.rest)?;
        if message.is_empty() {
            return None;
        }
        self.rest = behind;
        Some(message)
    }
}

/// Bytes at the front of `buffer` that are whole blocks. A reader passes those on as one packet,
/// moves the rest to the front and reads on.
pub fn whole_blocks(buffer: &[u8]) -> usize {
    let mut messages = FileMessages::new(buffer);
    messages.by_ref().for_each(drop);
    buffer.len() - messages.rest().len()
}
