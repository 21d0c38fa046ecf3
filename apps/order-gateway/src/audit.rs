//! The audit log: the raw bytes of both directions with their times, written by another thread.
//!
//! The hot core copies bytes into cells of a ring. Where the ring is full, bytes are lost for the
//! log, which is counted and written: an audit must not stop a cancel.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use wirepath::worker::spsc::lossless::{Consumer, Producer, ring};

/// Bytes of a cell's content: a cell has two cache lines.
const CELL: usize = 112;
/// Cells of the ring: 8 MiB, a burst of some 60,000 orders.
const CELLS: usize = 1 << 16;
/// Bytes before the content of a record in the file: time, direction, whether more follows, length.
const HEAD: usize = 12;

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

    const fn name(self) -> &'static str {
        match self {
            Self::Out => "out",
            Self::In => "in",
            Self::Lost => "lost",
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Cell {
    at_ns: u64,
    direction: Direction,
    /// The bytes go on in the next cell.
    has_more: bool,
    len: u16,
    bytes: [u8; CELL],
}

/// The hot core's end, and the thread. When it is dropped the thread writes what it has, and ends.
pub struct Audit {
    cells: Option<Producer<Cell>>,
    lost: u64,
    thread: Option<JoinHandle<()>>,
    has_failed: Arc<AtomicBool>,
}

impl Audit {
    /// Appends to the log at `path`.
    pub fn start(path: &Path) -> io::Result<Self> {
        let file = File::options().create(true).append(true).open(path)?;
        let (producer, consumer) = ring(CELLS).map_err(io::Error::other)?;
        let has_failed = Arc::new(AtomicBool::new(false));
        let failed = Arc::clone(&has_failed);
        let drain = move || failed.store(write_cells(consumer, file).is_err(), Ordering::Release);
        let thread = thread::Builder::new().name("audit".into()).spawn(drain)?;
        Ok(Self { cells: Some(producer), lost: 0, thread: Some(thread), has_failed })
    }

    /// Copies `bytes` into the ring: a copy and a store for each 112 bytes.
    pub fn record(&mut self, direction: Direction, bytes: &[u8], at_ns: u64) {
        let Some(cells) = &mut self.cells else { return };
        if self.lost > 0 {
            let mut cell = Cell { at_ns, direction: Direction::Lost, has_more: false, len: 8, bytes: [0; CELL] };
            cell.bytes[..8].copy_from_slice(&self.lost.to_le_bytes());
            if cells.push(cell).is_ok() {
                self.lost = 0;
            }
        }
        let count = bytes.len().div_ceil(CELL);
        for (idx, piece) in bytes.chunks(CELL).enumerate() {
            let mut cell =
                Cell { at_ns, direction, has_more: idx + 1 < count, len: piece.len() as u16, bytes: [0; CELL] };
            cell.bytes[..piece.len()].copy_from_slice(piece);
            if cells.push(cell).is_err() {
                // The rest without its middle would read as other bytes.
                self.lost += (count - idx) as u64;
                return;
            }
        }
    }

    /// Whether the log's disk failed: nothing is written since.
    pub fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Acquire)
    }
}

impl Drop for Audit {
    fn drop(&mut self) {
        drop(self.cells.take());
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has said so itself.
            let _ = thread.join();
        }
    }
}

fn write_cells(mut cells: Consumer<Cell>, file: File) -> io::Result<()> {
    let mut out = BufWriter::new(file);
    loop {
        let is_last = cells.is_closed();
        let mut wrote = false;
        while let Some(cell) = cells.pop() {
            out.write_all(&cell.at_ns.to_le_bytes())?;
            out.write_all(&[cell.direction.to_byte(), u8::from(cell.has_more)])?;
            out.write_all(&cell.len.to_le_bytes())?;
            out.write_all(&cell.bytes[..usize::from(cell.len)])?;
            wrote = true;
        }
        if wrote {
            out.flush()?;
        } else if is_last {
            return Ok(());
        } else {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// An audit log as lines of CSV.
#[derive(Clone, Copy, Debug)]
pub struct AuditCsv;

impl AuditCsv {
    /// Reads `log` to its end, and writes a line for each call of the line: time in nanoseconds
    /// since the epoch, direction, length, and the bytes, escaped so that no terminal obeys them.
    /// Where cells were lost, a line says how many, behind what was kept of the call. A last record
    /// that was cut short is left out.
    pub fn write(mut log: impl Read, mut out: impl Write) -> io::Result<()> {
        writeln!(out, "ns,direction,bytes,content")?;
        let mut message = Vec::new();
        // Time and direction of `message`, while its last cell is still to come.
        let mut begun = None;
        loop {
            let mut head = [0; HEAD];
            if !read_all(&mut log, &mut head)? {
                return Ok(());
            }
            let [time @ .., direction, more, low, high] = head;
            let direction = Direction::from_byte(direction)
                .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the file is no audit log"))?;
            let mut bytes = vec![0; usize::from(u16::from_le_bytes([low, high]))];
            if !read_all(&mut log, &mut bytes)? {
                return Ok(());
            }
            let ns = u64::from_le_bytes(time);
            if direction == Direction::Lost {
                if let Some((ns, direction)) = begun.take() {
                    write_row(&mut out, ns, direction, &message)?;
                    message.clear();
                }
                let cells = bytes.first_chunk().map_or(0, |count| u64::from_le_bytes(*count));
                writeln!(out, "{ns},lost,0,\"{cells} cells of at most {CELL} bytes\"")?;
                continue;
            }
            message.extend_from_slice(&bytes);
            begun = Some((ns, direction));
            if more == 0 {
                write_row(&mut out, ns, direction, &message)?;
                message.clear();
                begun = None;
            }
        }
    }
}

fn write_row(out: &mut impl Write, ns: u64, direction: Direction, message: &[u8]) -> io::Result<()> {
    writeln!(out, "{ns},{},{},\"{}\"", direction.name(), message.len(), quoted(message))
}

/// The bytes with `"` doubled, as CSV wants it, and all that is not printable as `\x..`.
fn quoted(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string().replace("\\\"", "\"\"").replace("\\'", "'")
}

/// Fills `into`; `false` where the log ends before.
fn read_all(log: &mut impl Read, into: &mut [u8]) -> io::Result<bool> {
    match log.read_exact(into) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}
