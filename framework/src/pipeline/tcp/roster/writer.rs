//! The worker's side: writes an entry when a connection opens, changes its path, or closes, and the
//! numbers with each sent segment.

use core::fmt;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Relaxed, Release};
use core::sync::atomic::fence;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::layout::{self, ENTRY_WORDS, OPEN, OpenConnection, STATE};
use crate::counters::{BlockError, Content, Publication, WordsHandle, check_app, default_directory, store_text};
use crate::proto::InterfaceId;
use crate::proto::tcp::Seq;

/// The roster of one worker. When it is dropped with no connection open, it removes its file.
/// Otherwise the file stays, so that the guardian finds the connections that the peers still have.
pub struct Roster {
    /// Entries.
    entries: WordsHandle<[AtomicU64]>,
    /// SND.NXT and RCV.NXT of each slot.
    numbers: WordsHandle<[AtomicU64]>,
    open: usize,
    publication: Publication,
}

impl Roster {
    /// A roster with room for `capacity` connections over an interface of the calling thread's
    /// network namespace, in the directory that `WIREPATH_SHM` names, by default
    /// `/dev/shm/wirepath`. Allocates 72 bytes for each connection.
    ///
    /// # Errors
    /// The application's name is no valid file name, the file cannot be created, or it is larger
    /// than a guardian reads.
    pub fn create(app: &str, interface: InterfaceId, capacity: usize) -> Result<Self, BlockError> {
        Self::create_in(&default_directory(), app, interface, capacity)
    }

    /// The same, with a directory of the caller's choice.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn create_in(directory: &Path, app: &str, interface: InterfaceId, capacity: usize) -> Result<Self, BlockError> {
        check_app(app)?;
        if capacity as u64 > layout::CAPACITY_MAX {
            return Err(BlockError::RosterTooLarge { capacity, capacity_max: layout::CAPACITY_MAX as usize });
        }
        let (entries, numbers) = (capacity * ENTRY_WORDS, capacity.max(1));
        let entries = layout::HEADER_WORDS..layout::HEADER_WORDS + entries;
        let (publication, words) = Publication::create(directory, app, Content::Connections, |file| {
            let words = WordsHandle::mapped(file, entries.end + numbers)?;
            store_header(&words, app, interface, capacity);
            Ok(words)
        })?;
        let numbers = words.slice(entries.end..entries.end + numbers);
        Ok(Self { entries: words.slice(entries), numbers, open: 0, publication })
    }

    /// Most connections that fit.
    pub fn capacity(&self) -> usize {
        self.entries.len() / ENTRY_WORDS
    }

    /// The shared file.
    pub fn path(&self) -> &Path {
        self.publication.path()
    }

    /// A connection opened at `slot`: from now on the guardian resets it when we die.
    #[cold]
    pub fn open(&mut self, slot: u32, connection: &OpenConnection) {
        let numbers = u64::from(connection.snd_nxt) | u64::from(connection.rcv_nxt) << 32;
        self.numbers[slot as usize].store(numbers, Relaxed);
        self.count(self.open + usize::from(!self.is_open(slot)));
        self.write(slot, &layout::entry_words(connection.flow, &connection.link));
    }

    /// The connection at `slot` has ended, and its peer knows. Does nothing where no connection was
    /// open.
    #[cold]
    pub fn close(&mut self, slot: u32) {
        if self.is_open(slot) {
            self.entry(slot)[STATE].store(0, Relaxed);
            self.count(self.open - 1);
        }
    }

    fn count(&mut self, open: usize) {
        self.open = open;
        self.publication.set_stays(open > 0);
    }

    /// Records a changed link header for the frames of `slot`. An empty `link` means that there is
    /// none at present, and the last one is kept: if we die while a peer's link is down, the peer
    /// may be back while the guardian tries, most likely at the same MAC address.
    #[cold]
    pub fn set_link(&mut self, slot: u32, link: &[u8]) {
        if self.is_open(slot) && !link.is_empty() {
            let mut words: [u64; ENTRY_WORDS] = core::array::from_fn(|idx| self.entry(slot)[idx].load(Relaxed));
            words[STATE] = OPEN | link.len() as u64;
            let link = layout::link_words(link);
            words[layout::LINK..layout::LINK + link.len()].copy_from_slice(&link);
            self.write(slot, &words);
        }
    }

    /// Records a segment that ends before `end` and acknowledges `ack`. Retransmissions and probes
    /// do not lower SND.NXT. A load, a compare and a store; no branch but the bounds check.
    #[inline(always)]
    pub fn note(&self, slot: u32, end: Seq, ack: Seq) {
        if let Some(numbers) = self.numbers.get(slot as usize) {
            let snd_nxt = Seq(numbers.load(Relaxed) as u32).max(end);
            numbers.store(u64::from(snd_nxt.0) | u64::from(ack.0) << 32, Relaxed);
        }
    }

    /// Writes an entry in an order in which a half-written one is not open. The stores of a process
    /// remain in the file after its death, in this order, and no one reads the file before.
    fn write(&self, slot: u32, words: &[u64; ENTRY_WORDS]) {
        let entry = self.entry(slot);
        entry[STATE].store(0, Relaxed);
        fence(Release);
        for (word, value) in entry.iter().zip(words).skip(1) {
            word.store(*value, Relaxed);
        }
        entry[STATE].store(words[STATE], Release);
    }

    fn is_open(&self, slot: u32) -> bool {
        self.entry(slot)[STATE].load(Relaxed) != 0
    }

    fn entry(&self, slot: u32) -> &[AtomicU64] {
        let first = slot as usize * ENTRY_WORDS;
        &self.entries[first..first + ENTRY_WORDS]
    }
}

impl fmt::Debug for Roster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Roster({}, {} open)", self.path().display(), self.open)
    }
}

fn store_header(words: &[AtomicU64], app: &str, interface: InterfaceId, capacity: usize) {
    let pid = std::process::id();
    let fields = [
        (0, layout::MAGIC),
        (1, layout::VERSION),
        (layout::PID, pid.into()),
        (layout::PROCESS_STARTED, layout::process_started(pid).unwrap_or(0)),
        (layout::CAPACITY, capacity as u64),
        (layout::INTERFACE, interface.0.into()),
        (layout::NAMESPACE, fs::metadata("/proc/thread-self/ns/net").map_or(0, |namespace| namespace.ino())),
        (layout::APP_LEN, app.len() as u64),
    ];
    for (word, value) in fields {
        words[word].store(value, Relaxed);
    }
    store_text(&words[layout::APP..], app);
}
