//! The file of an audit log: the raw bytes of a connection, both ways, with their times.
//!
//! ```text
//!   record: time since 1970 in ns, u64 │ direction │ whether more follows │ length, u16 │ bytes
//! ```
//!
//! Numbers are little endian. The writer is a gateway's ring of cells, so that one call of the
//! connection may have several records; it knows no connections and no messages.

use std::io::{self, Read};

/// Bytes of a record before its content.
pub const HEAD_LEN: usize = 12;

/// Which way the bytes went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To the venue.
    Out,
    /// From the venue.
    In,
    /// Neither: so many cells were lost before.
    Lost,
}

impl Direction {
    const fn to_byte(self) -> u8 {
        match self {
            Self::Out => b'>',
            Self::In => b'<',
            Self::Lost => b'!',
        }
    }

    const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            b'>' => Some(Self::Out),
            b'<' => Some(Self::In),
            b'!' => Some(Self::Lost),
            _ => None,
        }
    }

    /// Its word in a table.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Out => "out",
            Self::In => "in",
            Self::Lost => "lost",
        }
    }
}

/// The bytes of a record before its content, which has `len` bytes.
pub fn head(at_ns: u64, direction: Direction, has_more: bool, len: u16) -> [u8; HEAD_LEN] {
    let mut head = [0; HEAD_LEN];
    head[..8].copy_from_slice(&at_ns.to_le_bytes());
    (head[8], head[9]) = (direction.to_byte(), u8::from(has_more));
    head[10..].copy_from_slice(&len.to_le_bytes());
    head
}

/// One entry of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuditEntry {
    /// One call of the connection. Where cells were lost in it, what was kept of it.
    Call {
        /// When, in nanoseconds since 1970.
        at_ns: u64,
        /// [`Direction::Out`] or [`Direction::In`].
        direction: Direction,
        /// What was read or written.
        bytes: Vec<u8>,
    },
    /// Bytes are missing, because the ring was full.
    Lost {
        /// When that was written.
        at_ns: u64,
        /// Cells that are missing.
        cells: u64,
    },
}

/// Reads a log to its end. A last record that was cut short is left out.
#[derive(Debug)]
pub struct AuditEntries<R> {
    log: R,
    /// A call whose last record is still to come.
    begun: Option<(u64, Direction, Vec<u8>)>,
    /// What was lost behind the call that was returned.
    lost: Option<AuditEntry>,
}

impl<R: Read> AuditEntries<R> {
    /// From the first record on.
    pub const fn new(log: R) -> Self {
        Self { log, begun: None, lost: None }
    }

    fn read(&mut self) -> io::Result<Option<AuditEntry>> {
        if let Some(lost) = self.lost.take() {
            return Ok(Some(lost));
        }
        loop {
            let mut head = [0; HEAD_LEN];
            if !read_all(&mut self.log, &mut head)? {
                return Ok(None);
            }
            let [time @ .., direction, more, low, high] = head;
            let at_ns = u64::from_le_bytes(time);
            let direction = Direction::from_byte(direction)
                .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the file is no audit log"))?;
            let mut bytes = vec![0; usize::from(u16::from_le_bytes([low, high]))];
            if !read_all(&mut self.log, &mut bytes)? {
                return Ok(None);
            }
            if direction == Direction::Lost {
                let cells = bytes.first_chunk().map_or(0, |count| u64::from_le_bytes(*count));
                let lost = AuditEntry::Lost { at_ns, cells };
                let Some((at_ns, direction, bytes)) = self.begun.take() else { return Ok(Some(lost)) };
                self.lost = Some(lost);
                return Ok(Some(AuditEntry::Call { at_ns, direction, bytes }));
            }
            let mut call = self.begun.take().map_or_else(Vec::new, |(.., begun)| begun);
            call.append(&mut bytes);
            if more == 0 {
                return Ok(Some(AuditEntry::Call { at_ns, direction, bytes: call }));
            }
            self.begun = Some((at_ns, direction, call));
        }
    }
}

impl<R: Read> Iterator for AuditEntries<R> {
    type Item = io::Result<AuditEntry>;

    /// # Errors
    ///
    /// The file cannot be read, or is no audit log.
    fn next(&mut self) -> Option<Self::Item> {
        self.read().transpose()
    }
}

/// Fills `into`; `false` where the log ends before.
fn read_all(log: &mut impl Read, into: &mut [u8]) -> io::Result<bool> {
    match log.read_exact(into) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}
