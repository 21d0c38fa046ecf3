//! The writer's side: creates the file, and replaces one record at a time.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Relaxed, Release};
use core::sync::atomic::fence;
use std::path::Path;

use super::{CAPACITY_MAX, HEADER_WORDS, MAGIC, RECORD_WORDS_MAX, VERSION, header};
use crate::counters::block::{BlockError, check_app};
use crate::counters::layout::store_text;
use crate::counters::memory::WordsHandle;
use crate::counters::publish::{Content, Publication, since_epoch_ns};

/// The records of this process about its sockets. The file goes when this is dropped.
///
/// A process that forked has a copy of this, too: dropped there, it leaves the file alone, which
/// remains its parent's.
pub struct Records {
    words: WordsHandle<[AtomicU64]>,
    record_words: usize,
    capacity: usize,
    pub(super) publication: Publication,
}

impl Records {
    /// A file with room for `capacity` records of `record_words` words each, in `directory`, which
    /// other users may read. `app` names it, together with the process.
    ///
    /// # Errors
    /// The name cannot name a file, or the file cannot be created.
    ///
    /// # Panics
    /// No record, or larger ones than readers accept: 64 words, 65,536 records.
    pub fn create(directory: &Path, app: &str, record_words: usize, capacity: usize) -> Result<Self, BlockError> {
        assert!((1..=RECORD_WORDS_MAX).contains(&record_words), "a record has 1 to 64 words");
        assert!((1..=CAPACITY_MAX).contains(&capacity), "there are 1 to 65,536 records");
        check_app(app)?;
        let len = HEADER_WORDS + capacity * (1 + record_words);
        let (publication, words) = Publication::create(directory, app, Content::Sockets, |file| {
            let words = WordsHandle::mapped(file, len)?;
            store_header(&words, app, record_words, capacity);
            Ok(words)
        })?;
        Ok(Self { words, record_words, capacity, publication })
    }

    /// Most records that fit.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// The shared file.
    pub fn path(&self) -> &Path {
        self.publication.path()
    }

    /// Replaces the record `idx`; words that `record` has not are zero. No system call and no lock:
    /// a store for each word, and three more.
    ///
    /// # Panics
    /// There is no such record, or it has fewer words.
    pub fn store(&mut self, idx: usize, record: &[u64]) {
        assert!(idx < self.capacity && record.len() <= self.record_words, "a record of the file");
        let sequence = &self.words[HEADER_WORDS + idx];
        let first = HEADER_WORDS + self.capacity + idx * self.record_words;
        let before = sequence.load(Relaxed);
        sequence.store(before.wrapping_add(1), Relaxed);
        // A reader that sees a new word also sees the odd sequence.
        fence(Release);
        let words = record.iter().copied().chain(core::iter::repeat(0));
        for (word, value) in self.words[first..first + self.record_words].iter().zip(words) {
            word.store(value, Relaxed);
        }
        sequence.store(before.wrapping_add(2), Release);
        let used = &self.words[header::USED];
        if used.load(Relaxed) <= idx as u64 {
            used.store(idx as u64 + 1, Release);
        }
    }
}

fn store_header(words: &[AtomicU64], app: &str, record_words: usize, capacity: usize) {
    let store = |idx: usize, value: u64| words[idx].store(value, Relaxed);
    store(header::MAGIC, MAGIC);
    store(header::VERSION, VERSION);
    store(header::RECORD_WORDS, record_words as u64);
    store(header::CAPACITY, capacity as u64);
    store(header::PID, std::process::id().into());
    store(header::STARTED, since_epoch_ns());
    store(header::APP_LEN, app.len() as u64);
    store_text(&words[header::APP..HEADER_WORDS], app);
}
