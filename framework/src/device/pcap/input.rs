//! The window through which a capture is read: one buffer, refilled in large reads.
//!
//! Bytes enter from any [`Read`]; parsers ask for so many bytes in a row, look at them in place,
//! and step over them. What has been stepped over stays where it is until the next [`Input::want`],
//! which is why a record can be lent out of the buffer. The buffer never grows: a request over
//! [`WINDOW_LEN`] is a bug of the caller, not of the file.

use std::io::{self, ErrorKind, Read};
use std::ops::Range;

use super::RECORD_LEN_MAX;

/// The most bytes a parser may ask for in a row: a packet of full length with as much again for the
/// headers and options (comments, hashes) around it. At half of this the reads would still be
/// large; much more leaves the cache.
pub(super) const WINDOW_LEN: usize = 2 * RECORD_LEN_MAX;

pub(super) struct Input<R> {
    source: R,
    buffer: Box<[u8]>,
    /// The bytes that were read and not yet stepped over.
    filled: Range<usize>,
    /// Where `filled.start` lies in the file, after decompression.
    offset: u64,
    /// The offset at which the piece that is being parsed begins, for the report when it is cut or
    /// damaged.
    mark: u64,
    ended: bool,
    cut_short: bool,
}

impl<R: Read> Input<R> {
    pub(super) fn new(source: R) -> Self {
        let buffer = vec![0; WINDOW_LEN].into_boxed_slice();
        Self { source, buffer, filled: 0..0, offset: 0, mark: 0, ended: false, cut_short: false }
    }

    /// Brings `len` bytes into the window; false where the file ends before.
    #[inline]
    pub(super) fn want(&mut self, len: usize) -> io::Result<bool> {
        if self.filled.len() >= len { Ok(true) } else { self.refill(len) }
    }

    #[cold]
    fn refill(&mut self, len: usize) -> io::Result<bool> {
        assert!(len <= WINDOW_LEN, "a parser asked for more than the window holds");
        self.buffer.copy_within(self.filled.clone(), 0);
        self.filled = 0..self.filled.len();
        while self.filled.len() < len && !self.ended {
            match self.source.read(&mut self.buffer[self.filled.end..]) {
                Ok(0) => self.ended = true,
                Ok(count) => self.filled.end += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // How a decompressor says that its own input stopped in the middle.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => (self.ended, self.cut_short) = (true, true),
                Err(error) => return Err(error),
            }
        }
        Ok(self.filled.len() >= len)
    }

    /// What is in the window: at least as much as the last successful [`Input::want`] asked for.
    #[inline]
    pub(super) fn window(&self) -> &[u8] {
        &self.buffer[self.filled.clone()]
    }

    /// Steps over `len` bytes that are in the window.
    #[inline]
    pub(super) fn advance(&mut self, len: usize) {
        debug_assert!(len <= self.filled.len(), "stepped over bytes that were never read");
        self.filled.start += len;
        self.offset += len as u64;
    }

    /// Steps over the next `header` bytes and hands out where the `len` after them lie; all are in
    /// the window.
    #[inline]
    pub(super) fn take(&mut self, header: usize, len: usize, trailer: usize) -> Range<usize> {
        let start = self.filled.start + header;
        self.advance(header + len + trailer);
        start..start + len
    }

    /// Steps over `len` bytes, however many; false where the file ends before.
    pub(super) fn skip(&mut self, mut len: u64) -> io::Result<bool> {
        while len > 0 {
            if !self.want(1)? {
                return Ok(false);
            }
            let step = len.min(self.filled.len() as u64) as usize;
            self.advance(step);
            len -= step as u64;
        }
        Ok(true)
    }

    /// Bytes handed out by [`Input::take`] and not overwritten since: valid until the next `want`
    /// or `skip`.
    #[inline]
    pub(super) fn bytes(&self, range: Range<usize>) -> &[u8] {
        &self.buffer[range]
    }

    /// Bytes stepped over so far.
    #[inline]
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Here begins the next record or block.
    #[inline]
    pub(super) fn mark(&mut self) {
        self.mark = self.offset;
    }

    /// Where the last record or block begins, in bytes from the start of the file.
    pub(super) fn marked(&self) -> u64 {
        self.mark
    }

    /// Nothing is left, neither in the window nor, as far as has been seen, in the file.
    pub(super) fn is_empty(&self) -> bool {
        self.filled.is_empty()
    }

    /// The compressed stream around the capture stopped in the middle.
    pub(super) fn cut_short(&self) -> bool {
        self.cut_short
    }
}

/// The byte order in which a file (a section, in pcapng) was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ByteOrder {
    Little,
    Big,
}

impl ByteOrder {
    /// The 16-bit number at `at`, which the caller knows to be inside.
    #[inline]
    pub(super) fn u16(self, bytes: &[u8], at: usize) -> u16 {
        let raw = [bytes[at], bytes[at + 1]];
        match self {
            Self::Little => u16::from_le_bytes(raw),
            Self::Big => u16::from_be_bytes(raw),
        }
    }

    /// The 32-bit number at `at`, which the caller knows to be inside.
    #[inline]
    pub(super) fn u32(self, bytes: &[u8], at: usize) -> u32 {
        let raw = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        match self {
            Self::Little => u32::from_le_bytes(raw),
            Self::Big => u32::from_be_bytes(raw),
        }
    }

    /// The 64-bit number at `at`, which the caller knows to be inside.
    pub(super) fn u64(self, bytes: &[u8], at: usize) -> u64 {
        let (first, second) = (u64::from(self.u32(bytes, at)), u64::from(self.u32(bytes, at + 4)));
        match self {
            Self::Little => second << 32 | first,
            Self::Big => first << 32 | second,
        }
    }
}
