//! The reader's side: the records of all processes in a directory.
//!
//! Another process wrote the file, and it may hold anything. It is read, not mapped (a mapped file
//! that shrinks would kill the reader), and its sizes are checked.

use core::sync::atomic::Ordering::Acquire;
use core::sync::atomic::fence;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{CAPACITY_MAX, HEADER_WORDS, MAGIC, RECORD_WORDS_MAX, VERSION, header};
use crate::counters::directory::Access;
use crate::counters::layout;
use crate::counters::publish::{self, Content, Shared};
use crate::counters::snapshot::{ReadError, read_text};

/// How often a record is read again that changes meanwhile. A write takes nanoseconds, so only a
/// writer that stopped within one, or that cheats, needs more.
const TRIES_MAX: usize = 64;
/// Most words of other users' files that are read for a listing: 32 MiB, however many there are.
const WORDS_OF_OTHERS_MAX: usize = 1 << 22;

/// The records of one process, as they were read.
#[derive(Clone, Debug)]
pub struct RecordedProcess {
    /// The application's name.
    pub app: String,
    /// The pid of the process, by its own claim: in its own pid namespace.
    pub pid: u32,
    /// The owner of the file, if that is neither root nor the reader: everything else in here is
    /// that user's claim.
    pub user: Option<u32>,
    /// The time at which the file was made.
    pub started: SystemTime,
    /// The records that were written at least once, by their number, each of them whole.
    pub records: Vec<(usize, Vec<u64>)>,
}

/// The records of all processes.
#[derive(Debug, Default)]
pub struct RecordedProcesses {
    /// The running processes, ordered by file name.
    pub running: Vec<RecordedProcess>,
    /// Files left by dead processes.
    pub stale: Vec<PathBuf>,
    /// Files that cannot be read.
    pub unreadable: Vec<ReadError>,
}

impl RecordedProcesses {
    /// Reads the files of all processes in `directory`. Removes nothing:
    /// [`Snapshot::clean`](crate::counters::Snapshot::clean) removes files of every content.
    ///
    /// # Errors
    /// The directory cannot be listed. A missing directory counts as empty.
    pub fn list(directory: &Path) -> Result<Self, ReadError> {
        let files = publish::shared_files(directory, Content::Sockets, Access::Read);
        let (mut listing, mut words_of_others) = (Self::default(), 0);
        for Shared { path, user, file } in files.map_err(|error| ReadError::of_io(directory, error))? {
            let user = (!publish::is_trusted(user)).then_some(user);
            match file {
                Err(error) => listing.unreadable.push(ReadError::of_io(&path, error)),
                Ok(file) if publish::is_stale(&file) => listing.stale.push(path),
                Ok(_) if words_of_others > WORDS_OF_OTHERS_MAX => {
                    let why = "files of other users hold too many records: this one is left out";
                    listing.unreadable.push(ReadError::of_io(&path, io::Error::other(why)));
                }
                Ok(file) => match read(&file) {
                    Ok((process, words)) => {
                        words_of_others += user.map_or(0, |_| words);
                        listing.running.push(RecordedProcess { user, ..process });
                    }
                    Err(error) => listing.unreadable.push(ReadError::of_io(&path, error)),
                },
            }
        }
        Ok(listing)
    }
}

impl RecordedProcess {
    /// Whether the named process may be genuine: the file belongs to root, to the reader, or to the
    /// user who runs that process.
    pub fn is_credible(&self) -> bool {
        self.user.is_none_or(|user| publish::user_of_process(self.pid) == Some(user))
    }
}

/// The records of a file, and how many words were read for them.
pub(super) fn read(file: &File) -> io::Result<(RecordedProcess, usize)> {
    let not_ours = || io::Error::other("it holds no records that this version understands: remove it");
    let len = file.metadata()?.len();
    if len < (HEADER_WORDS * 8) as u64 {
        return Err(not_ours());
    }
    let head = read_words(file, 0, HEADER_WORDS)?;
    let size = |idx: usize, most: usize| usize::try_from(head[idx]).ok().filter(|size| *size <= most);
    let (Some(record_words), Some(capacity)) =
        (size(header::RECORD_WORDS, RECORD_WORDS_MAX), size(header::CAPACITY, CAPACITY_MAX))
    else {
        return Err(not_ours());
    };
    let used = size(header::USED, capacity);
    let app = read_text(&head[header::APP..], head[header::APP_LEN], layout::APP_MAX);
    let app = app.filter(|app| layout::is_path(app));
    let pid = u32::try_from(head[header::PID]).ok();
    let started = UNIX_EPOCH.checked_add(Duration::from_nanos(head[header::STARTED]));
    let is_ours = head[header::MAGIC] == MAGIC && head[header::VERSION] == VERSION;
    let is_whole = len == ((HEADER_WORDS + capacity * (1 + record_words)) * 8) as u64;
    let (Some(used), Some(app), Some(pid), Some(started), true, true) = (used, app, pid, started, is_ours, is_whole)
    else {
        return Err(not_ours());
    };
    let table = Table { file, record_words, capacity };
    let records = table.records(used)?;
    Ok((RecordedProcess { app, pid, user: None, started, records }, used * (1 + record_words)))
}

/// A file whose sizes are checked.
struct Table<'a> {
    file: &'a File,
    record_words: usize,
    capacity: usize,
}

impl Table<'_> {
    /// The first `used` records that were ever written. A record that changes during every read is
    /// left out.
    fn records(&self, used: usize) -> io::Result<Vec<(usize, Vec<u64>)>> {
        let mut records = Vec::new();
        if used == 0 || self.record_words == 0 {
            return Ok(records);
        }
        // All at once; those that changed meanwhile again, one by one.
        let (before, words, after) = self.read(0, used)?;
        for (idx, record) in words.chunks_exact(self.record_words).enumerate() {
            match is_whole(before[idx], after[idx]) {
                true if before[idx] == 0 => {}
                true => records.push((idx, record.to_vec())),
                false => records.extend(self.again(idx)?.map(|record| (idx, record))),
            }
        }
        Ok(records)
    }

    fn again(&self, idx: usize) -> io::Result<Option<Vec<u64>>> {
        for _ in 0..TRIES_MAX {
            let (before, words, after) = self.read(idx, 1)?;
            if is_whole(before[0], after[0]) {
                return Ok(Some(words));
            }
            std::thread::yield_now();
        }
        Ok(None)
    }

    /// Sequences, records, and the sequences again.
    fn read(&self, first: usize, count: usize) -> io::Result<(Vec<u64>, Vec<u64>, Vec<u64>)> {
        let before = read_words(self.file, HEADER_WORDS + first, count)?;
        // The words must be read after the first and before the second look at the sequences.
        fence(Acquire);
        let at = HEADER_WORDS + self.capacity + first * self.record_words;
        let words = read_words(self.file, at, count * self.record_words)?;
        fence(Acquire);
        let after = read_words(self.file, HEADER_WORDS + first, count)?;
        Ok((before, words, after))
    }
}

/// Whether no write happened between two reads of a sequence.
fn is_whole(before: u64, after: u64) -> bool {
    before == after && before.is_multiple_of(2)
}

fn read_words(file: &File, first: usize, count: usize) -> io::Result<Vec<u64>> {
    let mut bytes = vec![0; count * 8];
    file.read_exact_at(&mut bytes, first as u64 * 8)?;
    let (words, _) = bytes.as_chunks();
    Ok(words.iter().map(|word| u64::from_ne_bytes(*word)).collect())
}
