//! The window through which a capture is read: one buffer, refilled in large reads.
//!
//! Input is any [`Read`]; parsers request a number of contiguous bytes, read them in place, and
//! skip them. Skipped bytes stay in place until the next [`Input::want`], which is why a record can
//! be lent out of the buffer. The buffer never grows: a request over [`WINDOW_LEN`] is a bug of the
//! caller, not of the file.

use std::io::{self, ErrorKind, Read};
use std::ops::Range;

use super::RECORD_LEN_MAX;

/// The most bytes a parser may request at once: a packet of maximum length with as much again for
/// the headers and options (comments, hashes) around it. At half of this the reads would still be
/// large; much more would not fit the cache.
pub(super) const WINDOW_LEN: usize = 2 * RECORD_LEN_MAX;

pub(super) struct Input<R> {
    source: R,
    buffer: Box<[u8]>,
    /// The bytes that were read and not yet skipped.
    filled: Range<usize>,
    /// Offset of `filled.start` in the file, after decompression.
    offset: u64,
    /// Offset of the piece being parsed, for the report if it is truncated or damaged.
    mark: u64,
    ended: bool,
    cut_short: bool,
}

impl<R: Read> Input<R> {
    pub(super) fn new(source: R) -> Self {
        let buffer = vec![0; WINDOW_LEN].into_boxed_slice();
        Self { source, buffer, filled: 0..0, offset: 0, mark: 0, ended: false, cut_short: false }
    }

    /// Brings `len` bytes into the window; false if the file ends before.
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
                // A decompressor reports this if its own input is truncated.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => (self.ended, self.cut_short) = (true, true),
                Err(error) => return Err(error),
            }
        }
        Ok(self.filled.len() >= len)
    }

    /// The content of the window: at least as much as the last successful [`Input::want`]
    /// requested.
    #[inline]
    pub(super) fn window(&self) -> &[u8] {
        &self.buffer[self.filled.clone()]
    }

    /// Skips `len` bytes of the window.
    #[inline]
    pub(super) fn advance(&mut self, len: usize) {
        debug_assert!(len <= self.filled.len(), "stepped over bytes that were never read");
        self.filled.start += len;
        self.offset += len as u64;
    }

    /// Skips the next `header` bytes, and returns the range of the `len` bytes after them; all are
    /// in the window.
    #[inline]
    pub(super) fn take(&mut self, header: usize, len: usize, trailer: usize) -> Range<usize> {
        let start = self.filled.start + header;
        self.advance(header + len + trailer);
        start..start + len
    }

    /// Skips any number of bytes; false if the file ends before.
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

    /// Bytes of a range from [`Input::take`]: valid until the next `want` or `skip`.
    #[inline]
    pub(super) fn bytes(&self, range: Range<usize>) -> &[u8] {
        &self.buffer[range]
    }

    /// Bytes skipped so far.
    #[inline]
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Marks the start of the next record or block.
    #[inline]
    pub(super) fn mark(&mut self) {
        self.mark = self.offset;
    }

    /// Offset of the last record or block, in bytes from the start of the file.
    pub(super) fn marked(&self) -> u64 {
        self.mark
    }

    /// Whether no bytes are left, neither in the window nor, as far as read, in the file.
    pub(super) fn is_empty(&self) -> bool {
        self.filled.is_empty()
    }

    /// Whether the compressed stream around the capture is truncated.
    pub(super) fn cut_short(&self) -> bool {
        self.cut_short
    }
}

/// The byte order of a file (in pcapng, of a section).
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
