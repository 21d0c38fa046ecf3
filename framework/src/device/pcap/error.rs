//! The outcome of reading or writing a capture: success, a truncation, or an error in words for the
//! operator.

use std::fmt;
use std::io;

use crate::device::{DeviceError, DeviceErrorKind};

/// The end of a capture whose records have all been delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// The truncation of the file; `None` if it ended between two records.
    pub truncated: Option<Truncation>,
}

/// The place where a capture was cut: the recorder was killed, the disk was full, the download
/// stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Truncation {
    /// Offset of the truncated piece, in bytes from the start of the file after decompression.
    pub offset: u64,
    /// The piece that is not whole.
    pub what: Cut,
}

/// The kind of the truncated piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cut {
    /// The header of a classic file or the first section header: there is no record yet.
    FileHeader,
    /// The header of a classic record.
    RecordHeader,
    /// The bytes of a classic record.
    Packet,
    /// The type and length that begin a pcapng block.
    BlockHeader,
    /// The body of a pcapng block.
    Block,
    /// The gzip stream, between two records.
    Gzip,
}

impl fmt::Display for Truncation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.what {
            Cut::FileHeader => "file header",
            Cut::RecordHeader => "record header",
            Cut::Packet => "packet",
            Cut::BlockHeader => "block header",
            Cut::Block => "block",
            Cut::Gzip => "gzip stream",
        };
        write!(f, "cut in the middle of the {what} at byte {}", self.offset)
    }
}

/// Why a capture could not be opened, read further, or written. Its `Display` is one sentence: the
/// problem, the place, and the next step.
#[derive(Debug)]
pub struct Error {
    pub(super) name: String,
    pub(super) offset: u64,
    pub(super) problem: Problem,
}

/// The cause in an [`Error`].
#[derive(Debug)]
pub enum Problem {
    /// The file could not be opened.
    Open(io::Error),
    /// The file could not be created.
    Create(io::Error),
    /// The operating system or the decompressor failed to read.
    Read(io::Error),
    /// The operating system failed to write; nothing more was written afterwards.
    Write(io::Error),
    /// The first bytes (up to 16) match no capture format that we read.
    NotACapture(Vec<u8>),
    /// An unknown version of the format: major, minor.
    Version(u16, u16),
    /// Packets that do not begin with an Ethernet header; the number is from the tcpdump.org
    /// registry.
    LinkType(u32),
    /// A record that claims more than [`Record::LEN_MAX`](super::Record::LEN_MAX) bytes.
    RecordLength(u32),
    /// A pcapng block with an impossible length: too short for its type, no multiple of four, or
    /// too long.
    BlockLength(u32),
    /// A pcapng block whose length at the end differs from the one at its beginning: first, second.
    BlockLengthsDiffer(u32, u32),
    /// A packet that claims more bytes than the block around it has: claimed, available.
    PacketOverBlock(u32, u32),
    /// A pcapng option that exceeds its block, or whose length is wrong for its code.
    OptionLength(u16),
    /// A section header whose byte-order magic is wrong in both byte orders.
    ByteOrder(u32),
    /// A packet of an interface that the section did not describe.
    UnknownInterface(u32),
    /// More interfaces in one section than any machine has.
    TooManyInterfaces,
    /// More bytes of frames than the memory limit allows.
    TooLarge(usize),
}

impl Error {
    /// The cause, for programs that distinguish them.
    pub fn problem(&self) -> &Problem {
        &self.problem
    }

    /// Offset of the offending piece in the file (after decompression), in bytes.
    pub fn offset(&self) -> u64 {
        self.offset
    }
}

impl std::error::Error for Error {}

impl From<Error> for DeviceError {
    fn from(error: Error) -> Self {
        let kind = match &error.problem {
            Problem::Open(error) | Problem::Create(error) | Problem::Write(error) => error.into(),
            // The decompressor's errors have no error number.
            Problem::Read(error) if error.raw_os_error().is_some() => error.into(),
            Problem::TooLarge(_) => DeviceErrorKind::ResourceLimit,
            _ => DeviceErrorKind::InvalidFile,
        };
        Self::new(kind, error.to_string()).because(error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.name;
        match &self.problem {
            Problem::Open(error) => {
                write!(f, "cannot open the capture {name}: {error}; check the path and its permissions")
            }
            Problem::Create(error) => {
                write!(f, "cannot create the capture {name}: {error}; check the folder and its permissions")
            }
            Problem::Read(error) => {
                write!(
                    f,
                    "{name} cannot be read beyond byte {}: {error}; check that it is a whole file and not a folder",
                    self.offset
                )
            }
            Problem::Write(error) => {
                write!(f, "{name} could not be written beyond byte {}: {error}; what is before is whole", self.offset)
            }
            Problem::NotACapture(begin) => {
                write!(f, "{name} is not a pcap or pcapng capture: {}", Beginning(begin))
            }
            Problem::LinkType(number) => {
                write!(
                    f,
                    "{name} holds packets of link type {number}{}; only Ethernet (1) can be read, \
                     so record on one Ethernet interface",
                    link_type_name(*number)
                )
            }
            Problem::TooLarge(len_max) => {
                write!(
                    f,
                    "{name} holds more than the {len_max} bytes that may be preloaded; stream it, or allow more memory"
                )
            }
            damaged => {
                write!(f, "{name} is damaged at byte {}: {}; what is before was read", self.offset, Damage(damaged))
            }
        }
    }
}

/// The message for a damaged place, as a clause.
struct Damage<'a>(&'a Problem);

impl fmt::Display for Damage<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Problem::Version(major, minor) => write!(f, "format version {major}.{minor} is not known"),
            Problem::RecordLength(len) => {
                write!(f, "a record claims {len} bytes where {} are the most", super::RECORD_LEN_MAX)
            }
            Problem::BlockLength(len) => write!(f, "a block claims a length of {len} bytes, which cannot be"),
            Problem::BlockLengthsDiffer(first, last) => {
                write!(f, "a block begins with length {first} and ends with length {last}")
            }
            Problem::PacketOverBlock(claimed, available) => {
                write!(f, "a packet claims {claimed} bytes in a block with room for {available}")
            }
            Problem::OptionLength(code) => write!(f, "the length of option {code} cannot be"),
            Problem::ByteOrder(magic) => write!(f, "a section has the byte-order magic {magic:#010x}"),
            Problem::UnknownInterface(id) => write!(f, "a packet names interface {id}, which was not described"),
            Problem::TooManyInterfaces => write!(f, "a section describes thousands of interfaces"),
            other => write!(f, "{other:?}"),
        }
    }
}

/// The first bytes of a file that is no capture, with a guess at its format and a remedy.
struct Beginning<'a>(&'a [u8]);

impl fmt::Display for Beginning<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let begin = self.0;
        if begin.is_empty() {
            return write!(f, "it is empty; give a file that tcpdump -w or Wireshark wrote");
        }
        let advice = match begin {
            [0x28, 0xb5, 0x2f, 0xfd, ..] => {
                "it is compressed with zstd, so decompress it first (gzip is read as it is)"
            }
            [0xfd, b'7', b'z', b'X', ..] => "it is compressed with xz, so decompress it first (gzip is read as it is)",
            [b'B', b'Z', b'h', ..] => "it is compressed with bzip2, so decompress it first (gzip is read as it is)",
            // The patched libpcap of the 1990s, with longer record headers.
            [0xa1, 0xb2, 0xcd, 0x34, ..] | [0x34, 0xcd, 0xb2, 0xa1, ..] => {
                "it is the modified pcap of the 1990s, so convert it with editcap -F nsecpcap"
            }
            [b's', b'n', b'o', b'o', b'p', ..] => "it is a snoop capture, so convert it with editcap -F nsecpcap",
            [0x7f, b'E', b'L', b'F', ..] => "it is a program; give a file that tcpdump -w or Wireshark wrote",
            _ => "give a file that tcpdump -w or Wireshark wrote",
        };
        write!(f, "it begins with ")?;
        if begin.iter().all(|byte| matches!(byte, b' '..=b'~' | b'\n' | b'\r' | b'\t')) {
            return write!(f, "the text \"{}\"; {advice}", begin.escape_ascii());
        }
        for (idx, byte) in begin.iter().take(8).enumerate() {
            write!(f, "{}{byte:02x}", if idx == 0 { "" } else { " " })?;
        }
        write!(f, "; {advice}")
    }
}

/// The names of common link types, with a leading space; the registry is at
/// tcpdump.org/linktypes.html.
fn link_type_name(number: u32) -> &'static str {
    match number {
        0 => " (BSD loopback)",
        12 | 14 | 101 => " (raw IP)",
        105 => " (IEEE 802.11)",
        113 => " (Linux cooked, as recorded on \"any\")",
        127 => " (IEEE 802.11 with radiotap)",
        220 => " (Linux USB)",
        228 => " (raw IPv4)",
        229 => " (raw IPv6)",
        239 => " (NFLOG)",
        276 => " (Linux cooked v2, as recorded on \"any\")",
        _ => "",
    }
}
