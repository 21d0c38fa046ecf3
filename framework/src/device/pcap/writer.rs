//! Writes captures: classic pcap with nanoseconds, little-endian, Ethernet.
//!
//! Frames are copied with their timestamps into one buffer, which is written whole when it is full.
//! A failing disk must not stop the data path: the first error is kept, later records are counted
//! as lost, and [`Writer::finish`] returns the error.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use super::{Error, Problem, RECORD_LEN_MAX};
use crate::counters::printable;

/// A write per this many bytes. A larger buffer saves nothing measurable; a smaller one costs
/// system calls.
const BUFFER_LEN: usize = 262_144;

/// Magic for nanoseconds, version 2.4, no zone, no sigfigs, snaplen, Ethernet
/// (draft-ietf-opsawg-pcap).
const FILE_HEADER: [u32; 6] = [0xa1b2_3c4d, 4 << 16 | 2, 0, 0, RECORD_LEN_MAX as u32, 1];
const RECORD_HEADER_LEN: usize = 16;

/// Destination and source, after which a tag is inserted, and the tag (IEEE 802.1Q 9.3).
pub(super) const ADDRESSES_LEN: usize = 12;
pub(super) const TAG_LEN: usize = 4;

/// A capture being written. Dropping it writes the buffer but cannot report errors: call
/// [`Writer::finish`].
pub struct Writer<W: Write = File> {
    name: String,
    sink: W,
    buffer: Vec<u8>,
    /// Offset of the last record in the buffer.
    last: usize,
    written: u64,
    records: u64,
    lost: u64,
    /// A write failed: later records would stand at the wrong offset.
    broken: bool,
    /// The error, until [`Writer::finish`] has returned it.
    failure: Option<io::Error>,
}

impl Writer {
    /// Creates the file, or truncates an existing one.
    pub fn create(path: impl AsRef<Path>) -> Result<Self, Error> {
        let name = printable(path.as_ref().display()).to_string();
        match File::create(path) {
            Ok(file) => Ok(Self::named(name, file)),
            Err(error) => Err(Error { name, offset: 0, problem: Problem::Create(error) }),
        }
    }
}

impl<W: Write> Writer<W> {
    /// Writes a capture into `sink`, by large writes.
    pub fn new(sink: W) -> Self {
        Self::named("the capture".to_string(), sink)
    }

    fn named(name: String, sink: W) -> Self {
        let mut buffer = Vec::with_capacity(BUFFER_LEN + RECORD_HEADER_LEN + RECORD_LEN_MAX);
        for word in FILE_HEADER {
            buffer.extend_from_slice(&word.to_le_bytes());
        }
        Self { name, sink, buffer, last: 0, written: 0, records: 0, lost: 0, broken: false, failure: None }
    }

    /// Adds a frame seen `timestamp_ns` nanoseconds after 1970 (times after 2106 do not fit the
    /// format and become its last second). Costs a copy, no allocation, and a system call per 256
    /// KiB.
    pub fn write(&mut self, timestamp_ns: u64, frame: &[u8]) {
        self.write_gather(timestamp_ns, &[frame]);
    }

    /// Adds a frame in several pieces. Bytes beyond [`Record::LEN_MAX`](super::Record::LEN_MAX) are
    /// cut, and the record shows it.
    pub fn write_gather(&mut self, timestamp_ns: u64, pieces: &[&[u8]]) {
        self.write_segments(timestamp_ns, None, pieces.iter().copied());
    }

    /// Adds a frame segment by segment, with the VLAN tag that a NIC stripped or will insert, if
    /// any, at its place.
    pub fn write_segments<'a>(
        &mut self,
        timestamp_ns: u64,
        vlan: Option<u16>,
        segments: impl Iterator<Item = &'a [u8]>,
    ) {
        let Some(start) = self.open_record() else { return };
        let mut original_len = 0;
        for segment in segments {
            let room = RECORD_LEN_MAX.saturating_sub(original_len);
            self.buffer.extend_from_slice(&segment[..segment.len().min(room)]);
            original_len += segment.len();
        }
        if let Some(tci) = vlan {
            original_len += self.insert_tag(start + RECORD_HEADER_LEN, tci);
        }
        self.close_record(start, timestamp_ns, original_len);
    }

    /// Adds the first bytes of a frame of `original_len`, for a caller that has no more of it.
    pub fn write_cut(&mut self, timestamp_ns: u64, bytes: &[u8], original_len: usize) {
        let Some(start) = self.open_record() else { return };
        self.buffer.extend_from_slice(&bytes[..bytes.len().min(RECORD_LEN_MAX)]);
        self.close_record(start, timestamp_ns, original_len.max(bytes.len()));
    }

    /// Starts a new record with an empty header and returns its offset in the buffer; none once a
    /// write has failed.
    fn open_record(&mut self) -> Option<usize> {
        // Before the record and not after it, so that the last record can still be retracted.
        if self.buffer.len() >= BUFFER_LEN {
            self.flush();
        }
        self.last = self.buffer.len();
        if self.broken {
            self.lost += 1;
            return None;
        }
        self.buffer.extend_from_slice(&[0; RECORD_HEADER_LEN]);
        Some(self.last)
    }

    /// Fills in the header of the last record in the buffer.
    fn close_record(&mut self, start: usize, timestamp_ns: u64, original_len: usize) {
        let kept = self.buffer.len() - start - RECORD_HEADER_LEN;
        let seconds = u32::try_from(timestamp_ns / 1_000_000_000).unwrap_or(u32::MAX);
        let header = [seconds, (timestamp_ns % 1_000_000_000) as u32, kept as u32, original_len as u32];
        for (field, word) in self.buffer[start..].chunks_exact_mut(4).zip(header) {
            field.copy_from_slice(&word.to_le_bytes());
        }
        self.records += 1;
    }

    /// Removes the last record, for a frame that was not sent after all. Must directly follow its
    /// write.
    pub(in crate::device) fn retract(&mut self) {
        if self.broken {
            self.lost -= 1;
            return;
        }
        assert!(self.last < self.buffer.len(), "a record is retracted once, right after it was written");
        self.buffer.truncate(self.last);
        self.records -= 1;
    }

    /// Inserts an 802.1Q tag after the two addresses of the last frame in the buffer. Returns the
    /// bytes added: none if the frame has no room for addresses or for the tag.
    fn insert_tag(&mut self, frame: usize, tci: u16) -> usize {
        let len = self.buffer.len() - frame;
        if !(ADDRESSES_LEN..=RECORD_LEN_MAX - TAG_LEN).contains(&len) {
            return 0;
        }
        let at = frame + ADDRESSES_LEN;
        let [high, low] = tci.to_be_bytes();
        self.buffer.splice(at..at, [0x81, 0x00, high, low]);
        TAG_LEN
    }

    /// Writes the buffer and returns the first error of the whole capture. Call it once at the end;
    /// a second call does nothing.
    pub fn finish(&mut self) -> Result<(), Error> {
        self.flush();
        match self.failure.take() {
            None => Ok(()),
            Some(error) => Err(Error { name: self.name.clone(), offset: self.written, problem: Problem::Write(error) }),
        }
    }

    /// Records accepted so far, including those in the buffer when a write failed.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Whether a write has failed, so that records are refused.
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// Records refused because an earlier write failed.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Writes the buffer, for a concurrent reader. Costs a system call unless the buffer is empty.
    pub fn flush(&mut self) {
        if self.broken || self.buffer.is_empty() {
            return;
        }
        match self.sink.write_all(&self.buffer).and_then(|()| self.sink.flush()) {
            Ok(()) => self.written += self.buffer.len() as u64,
            Err(error) => (self.broken, self.failure) = (true, Some(error)),
        }
        self.buffer.clear();
    }
}

impl<W: Write> Drop for Writer<W> {
    fn drop(&mut self) {
        self.flush();
    }
}
