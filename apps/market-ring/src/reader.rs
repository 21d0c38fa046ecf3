//! A process that reads. It maps the file read-only and trusts no word in it.

use core::sync::atomic::{Ordering, fence};
use std::fs::{File, TryLockError};
use std::io::{self, ErrorKind};
use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::error::{OpenError, OpenProblem};
use crate::layout::{
    AT_CLOSED, AT_LIFE, AT_MAGIC, AT_NEXT, AT_QUOTES, AT_RECORDS, AT_SESSION, AT_VERSION, GROUP, HEADER_WORDS, LIVES,
    Layout, MAGIC, RECORD_WORDS, VERSION,
};
use crate::memory::ReadWords;
use crate::quote::{Conflated, Quote};
use crate::record::Record;

/// Times that a quote is read again which the writer is just replacing, before the reader goes on
/// and looks at it in the next call.
const RETRIES: usize = 4;
/// Time between two looks for a ring that is not there yet.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// What a reader found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// The next record.
    Record {
        /// Its sequence in the ring, which counts from 0.
        seq: u64,
        /// The record.
        record: Record,
    },
    /// The first answer to a reader that came when records had been written which it will not read:
    /// books that it builds lack orders, although no record is stale, until the next `Clear` of
    /// their channel. See [`crate::WholeChannels`].
    Joined {
        /// So many: the sequence of the record that is read next.
        before: u64,
    },
    /// The writer has overwritten records before this reader came to them. The next call returns
    /// one that follows.
    Overrun {
        /// The first that was missed.
        first: u64,
        /// The last.
        last: u64,
    },
    /// A record whose kind of event this version does not know: the writer is newer.
    Unknown {
        /// Its sequence in the ring.
        seq: u64,
    },
    /// Nothing new.
    Empty,
    /// Nothing new, and nothing will come: the writer has ended. Open the file again for the next
    /// stream.
    Closed,
}

/// A reader of a ring.
pub struct RingReader {
    words: ReadWords,
    layout: Layout,
    next: u64,
    has_begun: bool,
    groups: Vec<u64>,
    updates: Vec<u64>,
    file: File,
}

impl RingReader {
    /// Maps a ring. Its records are read from now on, and each of its quotes is news.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        Self::map(path).map_err(|problem| OpenError::new(path, problem))
    }

    /// The same, and waits where there is no ring yet, or only the one of session `before`:
    /// `waiting` is told so once. `None` where `is_stopping` ends the wait.
    pub fn wait(
        path: &Path,
        before: Option<u64>,
        is_stopping: impl Fn() -> bool,
        waiting: impl FnOnce(&OpenError),
    ) -> Result<Option<Self>, OpenError> {
        let mut waiting = Some(waiting);
        while !is_stopping() {
            match Self::open(path) {
                Err(error) if matches!(error.problem, OpenProblem::NoWriter) => {
                    if let Some(waiting) = waiting.take() {
                        waiting(&error);
                    }
                }
                Ok(ring) if before == Some(ring.session()) => (),
                opened => return opened.map(Some),
            }
            thread::sleep(LOOK_EVERY);
        }
        Ok(None)
    }

    fn map(path: &Path) -> Result<Self, OpenProblem> {
        let io = |what| move |error| OpenProblem::Io(what, error);
        let file = File::open(path).map_err(|error| match error.kind() {
            ErrorKind::NotFound => OpenProblem::NoWriter,
            _ => OpenProblem::Io("the file cannot be opened", error),
        })?;
        let metadata = file.metadata().map_err(io("its length cannot be read"))?;
        if !metadata.is_file() || metadata.len() < HEADER_WORDS as u64 * 8 {
            return Err(OpenProblem::NotARing);
        }
        let header = ReadWords::map(&file, HEADER_WORDS).map_err(io("it cannot be mapped"))?;
        let word = |at| header.load(at, Ordering::Acquire);
        if word(AT_MAGIC) != MAGIC {
            return Err(OpenProblem::NotARing);
        }
        if word(AT_VERSION) != VERSION {
            return Err(OpenProblem::Version(word(AT_VERSION)));
        }
        let layout = Layout::exactly(word(AT_RECORDS), word(AT_QUOTES)).ok_or(OpenProblem::NotARing)?;
        if metadata.len() != layout.words() as u64 * 8 {
            return Err(OpenProblem::NotARing);
        }
        let words = ReadWords::map(&file, layout.words()).map_err(io("it cannot be mapped"))?;
        let (next, quotes) = (words.load(AT_NEXT, Ordering::Acquire), layout.quotes as usize);
        let (groups, updates) = (vec![0; quotes / GROUP], vec![0; quotes]);
        Ok(Self { words, layout, next, has_begun: false, groups, updates, file })
    }

    /// Continues with the oldest record that is safely in the ring: up to half a ring back.
    pub fn rewind(&mut self) {
        self.next = self.oldest();
    }

    /// The next record, or what happened instead. Copies 128 bytes; never waits.
    #[inline]
    pub fn read(&mut self) -> Read {
        if !self.has_begun {
            return self.begin();
        }
        let (seq, first) = (self.next, self.layout.record(self.next));
        let stamp = self.words.load(first, Ordering::Acquire);
        if stamp != seq.wrapping_add(1) {
            return self.without_record(stamp);
        }
        let body = self.words.copy(first + 1);
        // The stamp is read again after all words.
        fence(Ordering::Acquire);
        if self.words.load(first, Ordering::Relaxed) != stamp {
            return self.overrun();
        }
        self.next = seq.wrapping_add(1);
        match Record::from_words(&body) {
            Some(record) => Read::Record { seq, record },
            None => Read::Unknown { seq },
        }
    }

    /// A reader that begins behind the first record is told so once.
    #[cold]
    fn begin(&mut self) -> Read {
        self.has_begun = true;
        if self.next > 0 { Read::Joined { before: self.next } } else { self.read() }
    }

    #[inline(never)]
    fn without_record(&mut self, stamp: u64) -> Read {
        if stamp > self.next {
            return self.overrun();
        }
        // The end is looked at before the sequence: a writer that has ended writes no more.
        let is_closed = self.words.load(AT_CLOSED, Ordering::Acquire) != 0;
        match is_closed && self.words.load(AT_NEXT, Ordering::Acquire) == self.next {
            true => Read::Closed,
            false => Read::Empty,
        }
    }

    /// Goes on half a ring behind the writer, so that it is not overrun again at once.
    #[cold]
    fn overrun(&mut self) -> Read {
        let first = self.next;
        self.next = self.oldest().max(first.saturating_add(1));
        Read::Overrun { first, last: self.next - 1 }
    }

    fn oldest(&self) -> u64 {
        self.words.load(AT_NEXT, Ordering::Acquire).saturating_sub(self.layout.records / 2)
    }

    /// The sequence of the record that is read next, if it is still there.
    pub fn next_seq(&self) -> u64 {
        self.next
    }

    /// Records that the writer has written and this reader has not read.
    pub fn behind(&self) -> u64 {
        self.words.load(AT_NEXT, Ordering::Acquire).saturating_sub(self.next)
    }

    /// Shows each quote that has changed since the last call, by its position. Costs a load for
    /// each 64 quotes, and one for each quote of a group in which any has changed.
    pub fn read_quotes(&mut self, mut found: impl FnMut(usize, Conflated)) {
        for group in 0..self.groups.len() {
            // Read before the quotes: what changes during the walk is news for the next one.
            let changes = self.words.load(self.layout.group(group * GROUP), Ordering::Acquire);
            if changes == self.groups[group] {
                continue;
            }
            self.groups[group] = changes;
            for idx in group * GROUP..(group + 1) * GROUP {
                match self.quote(idx) {
                    Ok(Some(conflated)) => found(idx, conflated),
                    Ok(None) => (),
                    Err(Torn) => self.groups[group] = changes.wrapping_sub(1),
                }
            }
        }
    }

    /// One quote, if it has changed since this reader saw it last; `None` also for a position that
    /// the ring does not have, and while the writer replaces it again and again.
    pub fn read_quote(&mut self, idx: usize) -> Option<Conflated> {
        if idx < self.updates.len() { self.quote(idx).ok().flatten() } else { None }
    }

    fn quote(&mut self, idx: usize) -> Result<Option<Conflated>, Torn> {
        let first = self.layout.quote(idx);
        for _ in 0..RETRIES {
            let version = self.words.load(first, Ordering::Acquire);
            let [updates, body @ ..] = self.words.copy::<{ RECORD_WORDS - 1 }>(first + 1);
            fence(Ordering::Acquire);
            if version % 2 == 1 || self.words.load(first, Ordering::Relaxed) != version {
                core::hint::spin_loop();
                continue;
            }
            let seen = core::mem::replace(&mut self.updates[idx], updates);
            let news = updates.wrapping_sub(seen);
            return Ok((news > 0).then(|| Conflated { quote: Quote::from_words(&body), merged: news - 1 }));
        }
        Err(Torn)
    }

    /// Channels whose life a ring tells: those with lower numbers.
    pub const LIVES: usize = LIVES;

    /// A number that changes while a channel lives, with events or without. It stays where its feed
    /// is silent and where the writer has ended. It is 0 for channels from [`RingReader::LIVES`]
    /// on, and for each channel of a writer of an older version.
    #[inline]
    pub fn life(&self, channel: u16) -> u64 {
        let channel = usize::from(channel);
        if channel < LIVES { self.words.load(AT_LIFE + channel, Ordering::Acquire) } else { 0 }
    }

    /// Quotes that the ring has.
    pub fn quotes(&self) -> usize {
        self.updates.len()
    }

    /// The number of this stream, which its writer drew: another after a restart.
    pub fn session(&self) -> u64 {
        self.words.load(AT_SESSION, Ordering::Relaxed)
    }

    /// Whether the process that writes has ended, in order or not. A system call: for a reader that
    /// has been idle for a while.
    pub fn is_writer_gone(&self) -> io::Result<bool> {
        match self.file.try_lock_shared() {
            Ok(()) => self.file.unlock().map(|()| true),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

/// The writer was replacing the quote each time.
struct Torn;
