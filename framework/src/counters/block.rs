//! A process's counters at set-up: one block of shared words, and scopes that register values in
//! it.
//!
//! A registration never fails at the call: a node's constructor always gets a counter that counts.
//! The problem (no room, a name too long or used twice) is recorded, and [`Block::check`] reports
//! it once, before the start.

use core::fmt;
use core::ops::Range;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::class::Class;
use super::counter::{Counter, Gauge};
use super::drops::{DropReason, Drops};
use super::histogram::{self, Histogram};
use super::layout::{self, BlockEntry, Kind, Meaning, header};
use super::memory::WordsHandle;
use super::printable::printable;
use super::publish::{self, Content, Publication};
use super::snapshot::Snapshot;
use super::unit::Unit;

/// The counters of one process. Owns the shared file, which is removed when the block is dropped;
/// its handles remain valid until they are dropped themselves.
pub struct Block {
    table: Arc<Mutex<Table>>,
    publication: Option<Publication>,
}

/// The capacity of a block. All memory is allocated at start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Values with a name: 128 bytes each. By default 4,096.
    pub entries: usize,
    /// Words of 8 bytes: one per counter, 2256 per histogram. By default 262,144.
    pub values: usize,
}

impl Default for Capacity {
    /// Sixteen workers with some 250 counters and seven histograms each: 512 KiB of names, 2 MiB of
    /// values.
    fn default() -> Self {
        Self { entries: 4096, values: 262_144 }
    }
}

impl Block {
    /// A block that other processes can read, with [`Capacity::default`], in the directory that the
    /// environment variable `WIREPATH_SHM` names, by default `/dev/shm/wirepath`. Files left there
    /// by dead processes of this user are removed, whatever their application, up to 64 at a start.
    ///
    /// # Errors
    /// The application's name cannot be a file name, or the file cannot be created. A program may
    /// then count in [`Block::heap`] instead, but must report that, because `wirepath stats` will
    /// not see the counters.
    pub fn create(app: &str) -> Result<Self, BlockError> {
        Self::create_in(&publish::default_directory(), app, Capacity::default())
    }

    /// [`Block::create`] with a directory and a capacity of the caller's choice.
    ///
    /// # Errors
    /// As [`Block::create`].
    pub fn create_in(directory: &Path, app: &str, capacity: Capacity) -> Result<Self, BlockError> {
        check_app(app)?;
        let (publication, words) = Publication::create(directory, app, Content::Counters, |file| {
            let words = WordsHandle::mapped(file, word_count(capacity))?;
            store_header(&words, app, publish::since_epoch_ns(), capacity);
            Ok(words)
        })?;
        Ok(Self::over(words, capacity, Some(publication)))
    }

    /// A block in the process's own memory: for tests, simulations, machines without `/dev/shm`. It
    /// makes no system call except for memory, and reads no clock: its start time is the epoch.
    pub fn heap() -> Self {
        Self::heap_of(Capacity::default())
    }

    /// [`Block::heap`] with a capacity of the caller's choice.
    pub fn heap_of(capacity: Capacity) -> Self {
        let words = WordsHandle::heap(word_count(capacity));
        store_header(&words, "heap", 0, capacity);
        Self::over(words, capacity, None)
    }

    fn over(words: WordsHandle<[AtomicU64]>, capacity: Capacity, publication: Option<Publication>) -> Self {
        let table =
            Table { words, capacity, entries: 0, values: 0, runs: Vec::new(), names: HashSet::new(), problem: None };
        Self { table: Arc::new(Mutex::new(table)), publication }
    }

    /// The scope of one writer, such as `worker0`. Its values share no cache line with those of
    /// another scope made by this call.
    pub fn scope(&self, name: &str) -> Scope {
        let mut table = lock(&self.table);
        table.runs.push(0..0);
        Scope { table: Arc::clone(&self.table), path: name.to_owned(), writer: table.runs.len() - 1 }
    }

    /// Reports whether every registration so far succeeded. Call it once, at the end of set-up.
    ///
    /// # Errors
    /// The first problem. The counters concerned count, but other processes cannot read them.
    pub fn check(&self) -> Result<(), BlockError> {
        lock(&self.table).problem.clone().map_or(Ok(()), Err)
    }

    /// All current values, as another process would read them.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::of_words(&lock(&self.table).words)
    }

    /// The shared file, if there is one.
    pub fn path(&self) -> Option<&Path> {
        self.publication.as_ref().map(Publication::path)
    }
}

/// A node in the tree of names, such as `worker0/ethernet`, for set-up only. All values below a
/// scope made by [`Block::scope`] belong to one writer and are contiguous.
#[derive(Clone)]
pub struct Scope {
    table: Arc<Mutex<Table>>,
    path: String,
    writer: usize,
}

impl Scope {
    /// The scope `name` below this one, of the same writer.
    pub fn scope(&self, name: &str) -> Self {
        Self { table: Arc::clone(&self.table), path: self.join(name), writer: self.writer }
    }

    /// A counter, at zero.
    pub fn counter(&self, name: &str, unit: Unit) -> Counter {
        Counter::new(self.register(Meaning::other(Kind::Counter, unit), name, 1).word(0))
    }

    /// A gauge, at zero.
    pub fn gauge(&self, name: &str, unit: Unit) -> Gauge {
        Gauge::new(self.register(Meaning::other(Kind::Gauge, unit), name, 1).word(0))
    }

    /// The gauge `last_poll`: the time of this writer's last poll. If it does not advance, a reader
    /// reports the writer as stalled.
    pub fn last_poll(&self) -> Gauge {
        self.gauge("last_poll", Unit::ClockNanoseconds)
    }

    /// An empty histogram of 17.6 KiB, most of which is never touched.
    pub fn histogram(&self, name: &str, unit: Unit) -> Histogram {
        Histogram::new(self.register(Meaning::other(Kind::Histogram, unit), name, histogram::WORDS).array(0))
    }

    /// Counters of received packets that are dropped, one for each reason of `R`, in the scope
    /// `drop` below this one.
    pub fn drops<R: DropReason>(&self) -> Drops<R> {
        self.drops_of(Class::RxDrop)
    }

    /// The same for packets that are not sent.
    pub fn tx_drops<R: DropReason>(&self) -> Drops<R> {
        self.drops_of(Class::TxDrop)
    }

    /// A counter of received packets that are dropped for one reason, in the scope `drop` below
    /// this one: where another part counts, and this one only shows its counts.
    pub fn drop_counter(&self, name: &str, unit: Unit) -> Counter {
        let meaning = Meaning::drops(Class::RxDrop, unit);
        Counter::new(self.scope("drop").register(meaning, name, 1).word(0))
    }

    fn drops_of<R: DropReason>(&self, class: Class) -> Drops<R> {
        let scope = self.scope("drop");
        let mut table = lock(&self.table);
        let run = table.take(self.writer, R::NAMES.len().max(1), &scope.path);
        for (idx, name) in R::NAMES.iter().enumerate() {
            let value = run.first.map(|first| first + idx);
            table.enter(Meaning::drops(class, Unit::Packets), &scope.join(name), value, 0);
        }
        Drops::new(run.words)
    }

    /// A constant text: a device's name, a worker's CPU, a file.
    pub fn text(&self, name: &str, text: &str) {
        let path = self.join(name);
        let mut table = lock(&self.table);
        if text.len() > layout::TEXT_MAX || text.contains(char::is_control) {
            return table.note(BlockError::Text { path });
        }
        let run = table.take(self.writer, layout::text_words(text.len()).max(1), &path);
        layout::store_text(&run.words, text);
        table.enter(Meaning::other(Kind::Text, Unit::Number), &path, run.first, text.len());
    }

    /// The path of this scope.
    pub fn path(&self) -> &str {
        &self.path
    }

    fn register(&self, meaning: Meaning, name: &str, len: usize) -> WordsHandle<[AtomicU64]> {
        let path = self.join(name);
        let mut table = lock(&self.table);
        let run = table.take(self.writer, len, &path);
        table.enter(meaning, &path, run.first, 0);
        run.words
    }

    fn join(&self, name: &str) -> String {
        format!("{}/{name}", self.path)
    }
}

/// The allocated parts of the block, and their writers.
struct Table {
    words: WordsHandle<[AtomicU64]>,
    capacity: Capacity,
    entries: usize,
    values: usize,
    /// For each writer its value words that are still free.
    runs: Vec<Range<usize>>,
    names: HashSet<String>,
    problem: Option<BlockError>,
}

/// Value words for one registration, and their index among the values if they are in the block.
struct Run {
    words: WordsHandle<[AtomicU64]>,
    first: Option<usize>,
}

impl Table {
    /// Words allocated to a writer at a time: pairs of cache lines, so that values of two writers
    /// are never adjacent.
    const PAIR_WORDS: usize = 16;

    /// `len` value words for `writer`. A full block returns private ones and records the problem.
    fn take(&mut self, writer: usize, len: usize, path: &str) -> Run {
        if self.runs[writer].len() < len {
            let taken = len.next_multiple_of(Self::PAIR_WORDS);
            if taken > self.capacity.values - self.values {
                self.note(BlockError::ValuesFull { path: path.to_owned(), capacity: self.capacity.values });
                return Run { words: WordsHandle::heap(len), first: None };
            }
            self.runs[writer] = self.values..self.values + taken;
            self.values += taken;
        }
        let first = self.runs[writer].start;
        self.runs[writer].start += len;
        let start = values_start(self.capacity) + first;
        Run { words: self.words.slice(start..start + len), first: Some(first) }
    }

    /// Publishes a name for the value at `value`. Without a value the problem is recorded already.
    fn enter(&mut self, meaning: Meaning, path: &str, value: Option<usize>, text_len: usize) {
        let Some(value) = value else { return };
        if let Some(problem) = self.problem_with(path) {
            return self.note(problem);
        }
        let entry = BlockEntry { meaning, name: path, value, text_len };
        let start = layout::HEADER_WORDS + self.entries * layout::ENTRY_WORDS;
        entry.store(&self.words[start..start + layout::ENTRY_WORDS]);
        self.entries += 1;
        self.names.insert(path.to_owned());
        layout::publish(&self.words, self.entries);
    }

    fn problem_with(&self, path: &str) -> Option<BlockError> {
        if path.len() > layout::NAME_MAX {
            return Some(BlockError::NameTooLong { path: path.to_owned() });
        }
        if !layout::is_path(path) {
            return Some(BlockError::Name { path: path.to_owned() });
        }
        if self.names.contains(path) {
            return Some(BlockError::NameTwice { path: path.to_owned() });
        }
        if self.entries == self.capacity.entries {
            return Some(BlockError::EntriesFull { path: path.to_owned(), capacity: self.capacity.entries });
        }
        None
    }

    fn note(&mut self, problem: BlockError) {
        self.problem.get_or_insert(problem);
    }
}

fn lock(table: &Mutex<Table>) -> MutexGuard<'_, Table> {
    // A panic in a registration leaves at worst unused value words.
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

fn values_start(capacity: Capacity) -> usize {
    layout::HEADER_WORDS + capacity.entries * layout::ENTRY_WORDS
}

fn word_count(capacity: Capacity) -> usize {
    values_start(capacity) + capacity.values
}

fn store_header(words: &[AtomicU64], app: &str, started_ns: u64, capacity: Capacity) {
    let fields = [
        (header::MAGIC, layout::MAGIC),
        (header::VERSION, layout::VERSION),
        (header::ENTRIES_CAPACITY, capacity.entries as u64),
        (header::VALUES_CAPACITY, capacity.values as u64),
        (header::PID, u64::from(std::process::id())),
        (header::STARTED, started_ns),
        (header::APP_LEN, app.len() as u64),
    ];
    for (word, value) in fields {
        words[word].store(value, Relaxed);
    }
    layout::store_text(&words[header::APP..], app);
}

/// Whether `app` can name a file and be printed.
pub(crate) fn check_app(app: &str) -> Result<(), BlockError> {
    let fits = app.len() <= layout::APP_MAX && layout::is_path(app) && !app.contains('/') && !app.starts_with('.');
    if fits { Ok(()) } else { Err(BlockError::App { app: app.to_owned() }) }
}

/// Why counters cannot be read by other processes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BlockError {
    /// The application's name cannot name a file.
    App {
        /// The name.
        app: String,
    },
    /// The shared file or its directory cannot be made.
    File {
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        error: String,
    },
    /// A path of more than 96 bytes.
    NameTooLong {
        /// The path.
        path: String,
    },
    /// A path with an empty part, a space, or anything but printable ASCII.
    Name {
        /// The path.
        path: String,
    },
    /// A duplicate path.
    NameTwice {
        /// The path.
        path: String,
    },
    /// A text of more than 256 bytes or with control characters.
    Text {
        /// The path of the value.
        path: String,
    },
    /// No room for another name.
    EntriesFull {
        /// The first path without room.
        path: String,
        /// The number of names.
        capacity: usize,
    },
    /// No room for another value.
    ValuesFull {
        /// The first path without room.
        path: String,
        /// The number of words.
        capacity: usize,
    },
    /// More connections than a roster has places for.
    RosterTooLarge {
        /// Requested capacity.
        capacity: usize,
        /// Maximum capacity.
        capacity_max: usize,
    },
}

impl BlockError {
    pub(super) fn file(path: &Path, error: &io::Error) -> Self {
        Self::File { path: path.to_owned(), error: error.to_string() }
    }
}

impl core::error::Error for BlockError {}

impl fmt::Display for BlockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::App { app } => write!(
                f,
                "\"{}\" cannot name a counter file: use 1 to {} printable ASCII characters without spaces or '/', \
                 not beginning with '.'",
                printable(app),
                layout::APP_MAX
            ),
            Self::File { path, error } => write!(
                f,
                "cannot share counters in {}: {error}; make it writable and give it room, or set WIREPATH_SHM to a \
                 directory on another tmpfs",
                printable(path.display())
            ),
            Self::NameTooLong { path } => write!(
                f,
                "counter name {} has {} bytes, {} fit: shorten the name of a scope",
                printable(path),
                path.len(),
                layout::NAME_MAX
            ),
            Self::Name { path } => {
                let path = printable(path);
                write!(f, "counter name \"{path}\" has an empty part, a space or a character outside printable ASCII")
            }
            Self::NameTwice { path } => {
                write!(f, "counter name {} is used twice: give one of the two a scope of its own", printable(path))
            }
            Self::Text { path } => write!(
                f,
                "the text of {} has more than {} bytes or control characters: shorten it",
                printable(path),
                layout::TEXT_MAX
            ),
            Self::EntriesFull { path, capacity } => {
                write!(f, "no room for counter {path}: all {capacity} names are taken; raise Capacity::entries")
            }
            Self::ValuesFull { path, capacity } => {
                write!(f, "no room for counter {path}: all {capacity} value words are taken; raise Capacity::values")
            }
            Self::RosterTooLarge { capacity, capacity_max } => {
                write!(f, "no guardian reads a roster of {capacity} connections: {capacity_max} at most")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Capacity = Capacity { entries: 2, values: 32 };

    #[test]
    fn full_directory_is_a_set_up_error_and_the_counter_counts() {
        let block = Block::heap_of(SMALL);
        let scope = block.scope("worker0");
        let counters: Vec<_> = ["a", "b", "c"].iter().map(|name| scope.counter(name, Unit::Events)).collect();
        counters[2].add(5);
        assert_eq!(counters[2].get(), 5);
        assert_eq!(block.check(), Err(BlockError::EntriesFull { path: "worker0/c".into(), capacity: 2 }));
        assert_eq!(block.snapshot().count("worker0/b"), Some(0));
        assert_eq!(block.snapshot().count("worker0/c"), None);
    }

    #[test]
    fn full_values_are_a_set_up_error_and_the_histogram_records() {
        let block = Block::heap_of(SMALL);
        let mut latency = block.scope("worker0").histogram("latency", Unit::Nanoseconds);
        latency.record(3);
        assert_eq!(latency.distribution().count(), 1);
        assert!(matches!(block.check(), Err(BlockError::ValuesFull { capacity: 32, .. })));
    }

    #[test]
    fn bad_names_are_set_up_errors() {
        let refused = |scope: &str, name: &str| {
            let block = Block::heap_of(SMALL);
            block.scope(scope).counter(name, Unit::Events).inc();
            block.check().unwrap_err()
        };
        assert!(matches!(refused("w", &"x".repeat(95)), BlockError::NameTooLong { .. }));
        for name in ["", "two words", "bell\x07", "käse", "double//slash"] {
            assert!(matches!(refused("w", name), BlockError::Name { .. }), "{name:?}");
        }
        assert!(matches!(refused("", "x"), BlockError::Name { .. }));
    }

    #[test]
    fn name_used_twice_is_a_set_up_error() {
        let block = Block::heap();
        let scope = block.scope("worker0");
        let _first = scope.counter("rx", Unit::Frames);
        let _second = scope.gauge("rx", Unit::Frames);
        assert_eq!(block.check(), Err(BlockError::NameTwice { path: "worker0/rx".into() }));
    }

    #[test]
    fn longest_name_and_text_come_back() {
        let block = Block::heap();
        let (name, text) = ("n".repeat(layout::NAME_MAX - 2), "é".repeat(layout::TEXT_MAX / 2));
        block.scope("w").text(&name, &text);
        assert_eq!(block.check(), Ok(()));
        assert_eq!(block.snapshot().text(&format!("w/{name}")), Some(text.as_str()));
    }

    #[test]
    fn writers_share_no_pair_of_cache_lines() {
        let block = Block::heap();
        let scopes = [block.scope("worker0"), block.scope("worker1")];
        let mut pairs = [HashSet::new(), HashSet::new()];
        for idx in 0..40 {
            for (scope, pairs) in scopes.iter().zip(&mut pairs) {
                let word = scope.register(Meaning::other(Kind::Counter, Unit::Events), &format!("c{idx}"), 1);
                pairs.insert(&raw const word[0] as usize / 128);
            }
        }
        assert!(pairs[0].is_disjoint(&pairs[1]));
    }

    #[test]
    fn counter_outlives_its_block() {
        let block = Block::heap();
        let counter = block.scope("worker0").counter("rx", Unit::Frames);
        drop(block);
        counter.inc();
        assert_eq!(counter.get(), 1);
    }
}
