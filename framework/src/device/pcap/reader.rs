//! Reads captures of any format: bytes enter, records are lent out one after the other.
//!
//! The reader owns one buffer as long as it lives; a [`Record`] borrows from it until the next
//! call. After the start it makes no allocation, and one read of the file per half mebibyte. It
//! does not parse the packets.

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;

use flate2::read::MultiGzDecoder;

use super::classic::Classic;
use super::input::Input;
use super::pcapng::{PcapNg, SECTION_HEADER};
use super::{Cut, End, Error, Problem, RECORD_LEN_MAX, Truncation};
use crate::counters::printable;

/// LINKTYPE_ETHERNET in the registry at tcpdump.org.
pub(super) const ETHERNET: u32 = 1;

/// One frame of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// The timestamp of the recorder: nanoseconds since 1970-01-01 UTC. A pcapng simple packet
    /// block has none and takes that of the packet before it.
    pub timestamp_ns: u64,
    /// Length of the frame on the wire.
    pub original_len: u32,
    /// The recorded bytes, from the Ethernet header on.
    pub bytes: &'a [u8],
}

impl Record<'_> {
    /// The longest recording of a frame, in bytes: the snaplen of tcpdump and Wireshark, and the
    /// limit that libpcap puts on Ethernet captures. A longer one in a file is a damaged or hostile
    /// length.
    pub const LEN_MAX: usize = RECORD_LEN_MAX;

    /// Whether the recording is shorter than the frame (the snaplen was too small).
    pub fn is_cut(&self) -> bool {
        self.bytes.len() < self.original_len as usize
    }
}

/// A capture being read.
///
/// ```no_run
/// # use wirepath::device::pcap::Reader;
/// let mut reader = Reader::open("day.pcap.gz")?;
/// while let Some(record) = reader.next()? {
///     println!("{} {}", record.timestamp_ns, record.bytes.len());
/// }
/// if let Some(truncation) = reader.end().and_then(|end| end.truncated) {
///     eprintln!("day.pcap.gz is {truncation}");
/// }
/// # Ok::<(), wirepath::device::pcap::Error>(())
/// ```
pub struct Reader<R = Box<dyn Read + Send>> {
    name: String,
    input: Input<R>,
    format: Format,
    state: ReaderState,
}

enum Format {
    Classic(Classic),
    PcapNg(PcapNg),
}

#[derive(Clone, Copy)]
enum ReaderState {
    Reading,
    Ended(End),
    Failed,
}

/// The place of a record in the buffer, before it is lent out.
pub(super) struct Found {
    pub(super) timestamp_ns: u64,
    pub(super) original_len: u32,
    pub(super) range: Range<usize>,
}

/// Why a format parser returns no record.
pub(super) enum Stop {
    Cut(Cut),
    Bad(Problem),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Bad(Problem::Read(error))
    }
}

impl Reader {
    /// Opens a capture file; gzip (several members too) is recognized by its first bytes, not by
    /// its name.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let name = printable(path.display()).to_string();
        let fail = |problem| Error { name: printable(path.display()).to_string(), offset: 0, problem };
        let mut file = File::open(path).map_err(|error| fail(Problem::Open(error)))?;
        let mut magic = Vec::with_capacity(2);
        file.by_ref().take(2).read_to_end(&mut magic).map_err(|error| fail(Problem::Read(error)))?;
        let gzip = magic == [0x1f, 0x8b];
        let whole = io::Cursor::new(magic).chain(file);
        if !gzip {
            return Self::start(name, Box::new(whole));
        }
        Self::start(
            format!("{name} (decompressed)"),
            Box::new(MultiGzDecoder::new(io::BufReader::with_capacity(65_536, whole))),
        )
    }
}

impl<R: Read> Reader<R> {
    /// Reads a capture from `source`, which need not be buffered because the reads are large. Not
    /// for gzip.
    pub fn new(source: R) -> Result<Self, Error> {
        Self::start("the capture".to_string(), source)
    }

    /// Detects the format and skips its header.
    fn start(name: String, source: R) -> Result<Self, Error> {
        let mut input = Input::new(source);
        let detected = input.want(16).map(|_| detect(input.window()));
        let mut format = match detected {
            Ok(Some(format)) => format,
            Ok(None) => {
                let begin = input.window()[..input.window().len().min(16)].to_vec();
                return Err(Error { name, offset: 0, problem: Problem::NotACapture(begin) });
            }
            Err(error) => return Err(Error { name, offset: 0, problem: Problem::Read(error) }),
        };
        let started = match &mut format {
            Format::Classic(classic) => classic.start(&mut input),
            Format::PcapNg(pcapng) => pcapng.start(&mut input),
        };
        let mut reader = Self { name, input, format, state: ReaderState::Reading };
        match started {
            Ok(()) => Ok(reader),
            Err(stop) => reader.stop(stop).map(|()| reader),
        }
    }

    /// The next record; `None` once all are delivered, or after an error. [`Reader::end`] then
    /// returns how the capture ended.
    ///
    /// Costs some nanoseconds and no allocation, and every half mebibyte a read of the source. An
    /// error (damaged lengths, a failing disk) ends the reading; the records before it are valid.
    #[expect(
        clippy::should_implement_trait,
        reason = "the record is lent from the buffer, which an Iterator cannot do"
    )]
    #[inline]
    pub fn next(&mut self) -> Result<Option<Record<'_>>, Error> {
        let found = self.find()?;
        Ok(found.map(|found| Record {
            timestamp_ns: found.timestamp_ns,
            original_len: found.original_len,
            bytes: self.bytes(&found),
        }))
    }

    /// The place of the next record, valid until the next call.
    #[inline]
    pub(super) fn find(&mut self) -> Result<Option<Found>, Error> {
        if !matches!(self.state, ReaderState::Reading) {
            return Ok(None);
        }
        let found = match &mut self.format {
            Format::Classic(classic) => classic.next(&mut self.input),
            Format::PcapNg(pcapng) => pcapng.next(&mut self.input),
        };
        match found {
            Ok(Some(found)) => Ok(Some(found)),
            Ok(None) => {
                let cut = self.input.cut_short().then(|| Truncation { offset: self.input.offset(), what: Cut::Gzip });
                self.state = ReaderState::Ended(End { truncated: cut });
                Ok(None)
            }
            Err(stop) => self.stop(stop).map(|()| None),
        }
    }

    /// The bytes of the record that [`Reader::find`] found last.
    #[inline]
    pub(super) fn bytes(&self, found: &Found) -> &[u8] {
        self.input.bytes(found.range.clone())
    }

    /// How the capture ended: `None` while records may follow, and after an error.
    pub fn end(&self) -> Option<End> {
        match self.state {
            ReaderState::Ended(end) => Some(end),
            ReaderState::Reading | ReaderState::Failed => None,
        }
    }

    /// The path of the file, for messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Bytes of the file, after decompression, that have been delivered: for a progress line.
    pub fn offset(&self) -> u64 {
        self.input.offset()
    }

    /// Ends the reading: a truncation is a normal end, everything else an error.
    #[cold]
    fn stop(&mut self, stop: Stop) -> Result<(), Error> {
        let offset = self.input.marked();
        match stop {
            Stop::Cut(what) => {
                self.state = ReaderState::Ended(End { truncated: Some(Truncation { offset, what }) });
                Ok(())
            }
            Stop::Bad(problem) => {
                self.state = ReaderState::Failed;
                Err(Error { name: self.name.clone(), offset, problem })
            }
        }
    }
}

/// The format, by the first bytes of a file.
fn detect(begin: &[u8]) -> Option<Format> {
    let magic = *begin.first_chunk::<4>()?;
    if u32::from_be_bytes(magic) == SECTION_HEADER {
        return Some(Format::PcapNg(PcapNg::new()));
    }
    Classic::detect(magic).map(Format::Classic)
}
