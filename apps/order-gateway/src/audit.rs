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

pub use order_entry::audit::Direction;
use order_entry::audit::{AuditEntries, AuditEntry, head};
use wirepath::worker::affinity::spawn_helper;
use wirepath::worker::spsc::lossless::{Consumer, Producer, ring};

/// Bytes of a cell's content: a cell has two cache lines.
const CELL: usize = 112;
/// Cells of the ring: 8 MiB, a burst of some 60,000 orders.
const CELLS: usize = 1 << 16;

#[derive(Clone, Copy, Debug)]
struct Cell {
    at_ns: u64,
    direction: Direction,
    /// The bytes go on in the next cell.
    has_more: bool,
    len: u16,
    bytes: [u8; CELL],
}

/// The hot core's end, and the thread. When it is dropped the thread writes what it has, with what
/// was lost, and ends.
pub struct Audit {
    cells: Option<Producer<Cell>>,
    /// Cells that were lost, and of them those that the log does not tell of yet.
    lost: u64,
    untold: u64,
    /// When the last bytes came.
    at_ns: u64,
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
        let thread = spawn_helper(thread::Builder::new().name("audit".into()), drain)?;
        Ok(Self { cells: Some(producer), lost: 0, untold: 0, at_ns: 0, thread: Some(thread), has_failed })
    }

    /// Copies `bytes` into the ring: a copy and a store for each 112 bytes.
    pub fn record(&mut self, direction: Direction, bytes: &[u8], at_ns: u64) {
        self.at_ns = at_ns;
        if self.untold > 0 {
            self.tell_lost();
        }
        let Some(cells) = &mut self.cells else { return };
        let count = bytes.len().div_ceil(CELL);
        for (idx, piece) in bytes.chunks(CELL).enumerate() {
            let mut cell =
                Cell { at_ns, direction, has_more: idx + 1 < count, len: piece.len() as u16, bytes: [0; CELL] };
            cell.bytes[..piece.len()].copy_from_slice(piece);
            if cells.push(cell).is_err() {
                // The rest without its middle would read as other bytes.
                self.lost += (count - idx) as u64;
                self.untold += (count - idx) as u64;
                return;
            }
        }
    }

    /// Writes how many cells were lost, where there is room. False where there is none.
    #[cold]
    fn tell_lost(&mut self) -> bool {
        let Some(cells) = &mut self.cells else { return false };
        let (at_ns, direction) = (self.at_ns, Direction::Lost);
        let mut cell = Cell { at_ns, direction, has_more: false, len: 8, bytes: [0; CELL] };
        cell.bytes[..8].copy_from_slice(&self.untold.to_le_bytes());
        let is_told = cells.push(cell).is_ok();
        if is_told {
            self.untold = 0;
        }
        is_told
    }

    /// Cells of at most 112 bytes that had no room and are not in the log.
    pub const fn lost(&self) -> u64 {
        self.lost
    }

    /// What is missing in the log, in words for people.
    pub fn losses(&self) -> Option<String> {
        let failed = if self.has_failed() { ", and its disk failed" } else { "" };
        (self.lost > 0 || self.has_failed()).then(|| format!("the audit log lacks {} cells{failed}", self.lost))
    }

    /// Whether the log's disk failed, or its thread: nothing is written since.
    pub fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Acquire) || self.thread.as_ref().is_some_and(JoinHandle::is_finished)
    }
}

impl Drop for Audit {
    fn drop(&mut self) {
        let is_gone = |audit: &Self| audit.thread.as_ref().is_none_or(JoinHandle::is_finished);
        while self.untold > 0 && !is_gone(self) && !self.tell_lost() {
            thread::sleep(Duration::from_millis(1));
        }
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
            out.write_all(&head(cell.at_ns, cell.direction, cell.has_more, cell.len))?;
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
    pub fn write(log: impl Read, mut out: impl Write) -> io::Result<()> {
        writeln!(out, "ns,direction,bytes,content")?;
        for entry in AuditEntries::new(log) {
            match entry? {
                AuditEntry::Call { at_ns, direction, bytes } => {
                    writeln!(out, "{at_ns},{},{},\"{}\"", direction.name(), bytes.len(), quoted(&bytes))?;
                }
                AuditEntry::Lost { at_ns, cells } => {
                    writeln!(out, "{at_ns},lost,0,\"{cells} cells of at most {CELL} bytes\"")?;
                }
            }
        }
        Ok(())
    }
}

/// The bytes with `"` doubled, as CSV wants it, and all that is not printable as `\x..`.
fn quoted(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string().replace("\\\"", "\"\"").replace("\\'", "'")
}
