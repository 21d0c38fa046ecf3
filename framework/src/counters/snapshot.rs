//! The reading side: all values of one process at one time, from its shared file.
//!
//! The file belongs to another process and may hold anything. It is read, not mapped (if a mapped
//! file shrinks, the reader is killed), only as far as its published counts say, and everything in
//! it is validated. The kernel copies an aligned word in one piece, so a value is never half old
//! and half new. Two values may have been read some microseconds apart.

use core::fmt;
use core::ops::Range;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use core::sync::atomic::{AtomicU64, fence};
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::class::Class;
use super::directory::Access;
use super::histogram::{self, Distribution};
use super::layout::{self, Kind, header};
use super::printable::printable;
use super::publish::{self, Content, Shared};
use super::unit::Unit;

/// Maximum number of values of other users' processes in a listing: some 60 MB, however many there
/// are.
const SAMPLES_OF_OTHERS_MAX: usize = 1 << 18;

/// The values of one process as they were read.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The application's name.
    pub app: String,
    /// The pid of the process, by its own claim: in its own pid namespace.
    pub pid: u32,
    /// The owner of the file, if that is neither root nor the reader: everything else in here is
    /// that user's claim. `None` also for a block of this process.
    pub user: Option<u32>,
    /// The time at which it made its counters.
    pub started: SystemTime,
    /// The time at which they were read.
    pub taken: Instant,
    /// The values as a tree: values below one scope are adjacent, in order of registration.
    pub samples: Vec<Sample>,
}

/// One value with its name.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The path, such as `worker0/ethernet/rx_frames`.
    pub name: String,
    /// Its unit.
    pub unit: Unit,
    /// Whether packets end here.
    pub class: Class,
    /// The value.
    pub reading: Reading,
}

/// A value that was read.
#[derive(Clone, Debug, PartialEq)]
pub enum Reading {
    /// A number that only grows.
    Counter(u64),
    /// A number that is set.
    Gauge(u64),
    /// A constant text.
    Text(String),
    /// A distribution.
    Histogram(Box<Distribution>),
}

/// The content of a directory of shared files.
#[derive(Debug, Default)]
pub struct Listing {
    /// The running processes, ordered by file name.
    pub running: Vec<Snapshot>,
    /// Files left by dead processes.
    pub stale: Vec<PathBuf>,
    /// Files that cannot be read.
    pub unreadable: Vec<ReadError>,
}

/// The growth of a counter between two snapshots.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// The growth.
    pub count: u64,
    /// The growth divided by the time between the snapshots.
    pub per_second: f64,
}

impl Snapshot {
    /// Reads one shared file.
    ///
    /// # Errors
    /// The file cannot be read, or does not have the format of this version of wirepath.
    pub fn read(path: &Path) -> Result<Self, ReadError> {
        let read = || {
            let file = publish::open_foreign(path)?;
            let user = Some(file.metadata()?.uid()).filter(|user| !publish::is_trusted(*user));
            Ok((file, user))
        };
        let decoded =
            read().map_err(DecodeError::Io).and_then(|(file, user)| Ok(Self { user, ..Self::decode(&file)? }));
        decoded.map_err(|fault| ReadError { path: path.to_owned(), fault })
    }

    /// Reads the files of all processes in `directory`.
    ///
    /// # Errors
    /// The directory cannot be listed. A missing directory counts as empty.
    pub fn list(directory: &Path) -> Result<Listing, ReadError> {
        let fault = |path: &Path, error| ReadError { path: path.to_owned(), fault: DecodeError::Io(error) };
        let files = publish::shared_files(directory, Content::Counters, Access::Read);
        let mut listing = Listing::default();
        let mut samples_of_others = 0;
        for Shared { path, user, file } in files.map_err(|error| fault(directory, error))? {
            match file {
                Err(error) => listing.unreadable.push(fault(&path, error)),
                Ok(file) if publish::is_stale(&file) => listing.stale.push(path),
                Ok(_) if samples_of_others > SAMPLES_OF_OTHERS_MAX => {
                    let why = "files of other users hold too many values: this one is left out";
                    listing.unreadable.push(fault(&path, io::Error::other(why)));
                }
                Ok(file) => match Self::decode(&file) {
                    Ok(snapshot) => {
                        let user = (!publish::is_trusted(user)).then_some(user);
                        samples_of_others += user.map_or(0, |_| snapshot.samples.len());
                        listing.running.push(Self { user, ..snapshot });
                    }
                    Err(fault) => listing.unreadable.push(ReadError { path, fault }),
                },
            }
        }
        Ok(listing)
    }

    /// Removes the files left by dead processes in `directory` and returns their paths.
    ///
    /// # Errors
    /// The directory cannot be listed.
    pub fn clean(directory: &Path) -> Result<Vec<PathBuf>, ReadError> {
        publish::remove_stale(directory)
            .map_err(|error| ReadError { path: directory.to_owned(), fault: DecodeError::Io(error) })
    }

    /// Whether the named process may be genuine: the file belongs to root, to the reader, or to the
    /// user who runs that process. Other users can put any number into their files.
    pub fn is_credible(&self) -> bool {
        self.user.is_none_or(|user| publish::user_of_process(self.pid) == Some(user))
    }

    /// The sample of that name.
    pub fn sample(&self, name: &str) -> Option<&Sample> {
        self.samples.iter().find(|sample| sample.name == name)
    }

    /// The value of the counter or gauge of that name.
    pub fn count(&self, name: &str) -> Option<u64> {
        match self.sample(name)?.reading {
            Reading::Counter(value) | Reading::Gauge(value) => Some(value),
            Reading::Text(_) | Reading::Histogram(_) => None,
        }
    }

    /// The text of that name.
    pub fn text(&self, name: &str) -> Option<&str> {
        match &self.sample(name)?.reading {
            Reading::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The growth of the counter `name` since `earlier`, a snapshot of the same process. `None` if
    /// `name` is not a counter. A counter that is missing in the earlier snapshot was created
    /// since, and started at zero.
    pub fn change(&self, name: &str, earlier: &Self) -> Option<Change> {
        let Reading::Counter(now) = self.sample(name)?.reading else { return None };
        let before = match earlier.sample(name).map(|sample| &sample.reading) {
            Some(Reading::Counter(before)) => *before,
            Some(_) => return None,
            None => 0,
        };
        let (count, seconds) = (now.wrapping_sub(before), self.taken.duration_since(earlier.taken).as_secs_f64());
        let per_second = if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
        Some(Change { count, per_second })
    }

    /// The current values of words that a block of this process wrote.
    pub(super) fn of_words(words: &[AtomicU64]) -> Self {
        Self::decode(words).expect("a block writes what a snapshot reads")
    }

    fn decode(source: &(impl Words + ?Sized)) -> Result<Self, DecodeError> {
        let head = Header::read(source)?;
        // The directory must be read after the count that published it.
        fence(Acquire);
        let directory = read_words(source, layout::HEADER_WORDS, head.entries * layout::ENTRY_WORDS)?;
        let mut entries = Vec::with_capacity(head.entries);
        for (idx, words) in directory.chunks_exact(layout::ENTRY_WORDS).enumerate() {
            entries.push(SnapshotEntry::decode(words, head.values_capacity).ok_or(DecodeError::Entry(idx))?);
        }
        let values_end = entries.iter().map(|entry| entry.value.end).max().unwrap_or(0);
        let values = read_words(source, head.values_start, values_end)?;
        let taken = Instant::now();

        let mut samples = Vec::with_capacity(entries.len());
        for (idx, entry) in entries.into_iter().enumerate() {
            samples.push(entry.sample(&values).ok_or(DecodeError::Entry(idx))?);
        }
        sort_as_tree(&mut samples);
        Ok(Self { app: head.app, pid: head.pid, user: None, started: head.started, taken, samples })
    }
}

/// The checked header of a file.
struct Header {
    app: String,
    pid: u32,
    started: SystemTime,
    entries: usize,
    values_start: usize,
    values_capacity: usize,
}

impl Header {
    fn read(source: &(impl Words + ?Sized)) -> Result<Self, DecodeError> {
        let len = source.len().map_err(DecodeError::Io)?;
        if len < layout::HEADER_WORDS as u64 {
            return Err(DecodeError::NotOurs);
        }
        let words = read_words(source, 0, layout::HEADER_WORDS)?;
        if words[header::MAGIC] != layout::MAGIC {
            return Err(DecodeError::NotOurs);
        }
        if words[header::VERSION] != layout::VERSION {
            return Err(DecodeError::Version(words[header::VERSION]));
        }
        let (entries_capacity, values_capacity) = (words[header::ENTRIES_CAPACITY], words[header::VALUES_CAPACITY]);
        if entries_capacity > layout::ENTRIES_MAX || values_capacity > layout::VALUES_MAX {
            return Err(DecodeError::Header("sizes"));
        }
        let values_start = layout::HEADER_WORDS as u64 + entries_capacity * layout::ENTRY_WORDS as u64;
        if len != values_start + values_capacity {
            return Err(DecodeError::Header("length"));
        }
        let entries = words[header::ENTRIES];
        if entries > entries_capacity {
            return Err(DecodeError::Header("count of entries"));
        }
        let app = read_text(&words[header::APP..], words[header::APP_LEN], layout::APP_MAX);
        let app = app.filter(|app| layout::is_path(app)).ok_or(DecodeError::Header("application name"))?;
        let started = UNIX_EPOCH.checked_add(Duration::from_nanos(words[header::STARTED]));
        Ok(Self {
            app,
            pid: u32::try_from(words[header::PID]).map_err(|_| DecodeError::Header("process id"))?,
            started: started.ok_or(DecodeError::Header("start time"))?,
            entries: entries as usize,
            values_start: values_start as usize,
            values_capacity: values_capacity as usize,
        })
    }
}

/// A checked entry. Its value words are inside the file; a text may still turn out to be invalid.
struct SnapshotEntry {
    name: String,
    unit: Unit,
    class: Class,
    kind: Kind,
    value: Range<usize>,
    text_len: u64,
}

impl SnapshotEntry {
    /// The entry in `words`, or `None` if any part of it is invalid.
    fn decode(words: &[u64], values_capacity: usize) -> Option<Self> {
        let [kind, unit, name_len, class, ..] = words[0].to_le_bytes();
        let kind = Kind::from_byte(kind)?;
        let name = read_text(&words[2..], u64::from(name_len), layout::NAME_MAX)?;
        let text_len = words[0] >> 32;
        let len = match kind {
            Kind::Counter | Kind::Gauge => 1,
            Kind::Text => layout::text_words(text_len as usize),
            Kind::Histogram => histogram::WORDS,
        };
        let start = usize::try_from(words[1]).ok()?;
        let value = start..start.checked_add(len)?;
        let sound = layout::is_path(&name) && value.end <= values_capacity;
        Some(Self { name, unit: Unit::from_byte(unit)?, class: Class::from_byte(class)?, kind, value, text_len })
            .filter(|_| sound)
    }

    /// The entry with its value from `values`, which reach at least to the end of its value.
    fn sample(self, values: &[u64]) -> Option<Sample> {
        let words = values.get(self.value)?;
        let reading = match self.kind {
            Kind::Counter => Reading::Counter(*words.first()?),
            Kind::Gauge => Reading::Gauge(*words.first()?),
            Kind::Histogram => Reading::Histogram(Box::new(Distribution::new(words.first_chunk()?))),
            Kind::Text => {
                let text = read_text(words, self.text_len, layout::TEXT_MAX)?;
                // A control character could be interpreted by the operator's terminal.
                Reading::Text(Some(text).filter(|text| !text.contains(char::is_control))?)
            }
        };
        Some(Sample { name: self.name, unit: self.unit, class: self.class, reading })
    }
}

/// `len` bytes of text from the start of `words`, if they are present and valid UTF-8.
pub(crate) fn read_text(words: &[u64], len: u64, len_max: usize) -> Option<String> {
    let len = usize::try_from(len).ok().filter(|len| *len <= len_max)?;
    let words = words.get(..layout::text_words(len))?;
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    bytes.truncate(len);
    String::from_utf8(bytes).ok()
}

/// Groups the values below each scope. Scopes keep the order of their first appearance.
fn sort_as_tree(samples: &mut [Sample]) {
    let mut seen = std::collections::HashMap::new();
    for (idx, sample) in samples.iter().enumerate() {
        for prefix in prefixes(&sample.name) {
            seen.entry(prefix.to_owned()).or_insert(idx);
        }
    }
    samples.sort_by_cached_key(|sample| prefixes(&sample.name).map(|prefix| seen[prefix]).collect::<Vec<_>>());
}

/// `a`, `a/b`, `a/b/c` of `a/b/c`.
fn prefixes(path: &str) -> impl Iterator<Item = &str> {
    let ends = path.match_indices('/').map(|(end, _)| end);
    ends.chain([path.len()]).map(|end| &path[..end])
}

/// Words to decode: from a file, or our own.
trait Words {
    /// Number of words; a trailing partial word counts as one.
    fn len(&self) -> io::Result<u64>;
    /// Copies words from `first` on. They exist: the length was checked.
    fn copy(&self, first: usize, into: &mut [u64]) -> io::Result<()>;
}

impl Words for [AtomicU64] {
    fn len(&self) -> io::Result<u64> {
        Ok(self.len() as u64)
    }

    fn copy(&self, first: usize, into: &mut [u64]) -> io::Result<()> {
        for (copy, word) in into.iter_mut().zip(&self[first..]) {
            *copy = word.load(Relaxed);
        }
        Ok(())
    }
}

impl Words for File {
    fn len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len().div_ceil(8))
    }

    fn copy(&self, first: usize, into: &mut [u64]) -> io::Result<()> {
        let mut bytes = vec![0; into.len() * 8];
        self.read_exact_at(&mut bytes, first as u64 * 8)?;
        let (words, _) = bytes.as_chunks::<8>();
        for (word, bytes) in into.iter_mut().zip(words) {
            *word = u64::from_ne_bytes(*bytes);
        }
        Ok(())
    }
}

fn read_words(source: &(impl Words + ?Sized), first: usize, len: usize) -> Result<Vec<u64>, DecodeError> {
    let mut words = vec![0; len];
    source.copy(first, &mut words).map_err(DecodeError::Io)?;
    Ok(words)
}

/// Why a shared file could not be read: one sentence through `Display`.
#[derive(Debug)]
pub struct ReadError {
    path: PathBuf,
    fault: DecodeError,
}

#[derive(Debug)]
enum DecodeError {
    Io(io::Error),
    NotOurs,
    Version(u64),
    Header(&'static str),
    Entry(usize),
}

impl ReadError {
    pub(super) fn of_io(path: &Path, error: io::Error) -> Self {
        Self { path: path.to_owned(), fault: DecodeError::Io(error) }
    }

    /// The file that was not read.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl core::error::Error for ReadError {}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = printable(self.path.display());
        match &self.fault {
            DecodeError::Io(error) => write!(f, "cannot read {path}: {error}"),
            DecodeError::NotOurs => write!(f, "{path} is not a wirepath counter file: remove it"),
            DecodeError::Version(version) => write!(
                f,
                "{path} has format version {version}, this tool reads {}: use the tool that was built with the application",
                layout::VERSION
            ),
            DecodeError::Header(what) => write!(f, "{path} is damaged: its header's {what} cannot be right; remove it"),
            DecodeError::Entry(idx) => write!(f, "{path} is damaged: its entry {idx} cannot be right; remove it"),
        }
    }
}
