//! The one process that writes. It never waits for a reader and does not know of them.

use core::hash::{BuildHasher, Hasher};
use core::sync::atomic::{AtomicU64, Ordering, fence};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::hash::RandomState;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use crate::error::{OpenError, OpenProblem};
use crate::layout::{
    AT_CLOSED, AT_LIFE, AT_MAGIC, AT_NEXT, AT_QUOTES, AT_RECORDS, AT_SESSION, AT_VERSION, LIVES, Layout, MAGIC, VERSION,
};
use crate::memory::WriteWords;
use crate::quote::Quote;
use crate::record::Record;

/// How large a ring is, and who may read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingConfig {
    /// Records of 128 bytes that the ring holds, rounded up to a power of two. A reader that falls
    /// behind by more is overrun. By default 65,536: 8 MiB, and at a million events a second 65 ms.
    pub records: usize,
    /// Instruments that have a quote, rounded up to a multiple of 64. By default 0.
    pub quotes: usize,
    /// Permissions of the file. By default 0o644: everyone on the machine may read, the owner alone
    /// writes.
    pub mode: u32,
}

impl Default for RingConfig {
    fn default() -> Self {
        Self { records: 65_536, quotes: 0, mode: 0o644 }
    }
}

/// The writer of a ring. The file is there as long as this value: dropping it ends the stream,
/// which readers are told, and removes the file.
pub struct RingWriter {
    words: WriteWords,
    layout: Layout,
    next: u64,
    path: PathBuf,
    /// Locked for as long as this process writes, so that a reader can ask whether it does.
    file: File,
}

impl RingWriter {
    /// Makes the file, with all its memory, and its name last, so that no reader sees a part.
    ///
    /// A file of this name that a dead writer has left behind is replaced. `/dev/shm` is the usual
    /// place, because memory there is never written to a disk.
    pub fn create(path: &Path, config: &RingConfig) -> Result<Self, OpenError> {
        let fail = |problem| OpenError::new(path, problem);
        let layout = Layout::at_least(config.records, config.quotes).ok_or_else(|| fail(OpenProblem::TooLarge))?;
        let draft = draft_of(path);
        let made = Self::make(path, &draft, layout, config.mode).and_then(|writer| {
            publish_name(&draft, path)?;
            Ok(writer)
        });
        // With its name or without one, the draft's is not needed.
        let _ = fs::remove_file(&draft);
        made.map_err(fail)
    }

    fn make(path: &Path, draft: &Path, layout: Layout, mode: u32) -> Result<Self, OpenProblem> {
        let io = |what| move |error| OpenProblem::Io(what, error);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(mode);
        let mut file = options.open(draft).map_err(io("the file cannot be made"))?;
        // Written and not only sized: a file system without room says so now, and not by SIGBUS.
        write_zeros(&mut file, layout.words() * 8).map_err(io("its memory cannot be had"))?;
        file.try_lock().map_err(|error| OpenProblem::Io("it cannot be locked", error.into()))?;
        let words = WriteWords::map(&file, layout.words()).map_err(io("it cannot be mapped"))?;
        let session = RandomState::new().build_hasher().finish();
        let header = [
            (AT_VERSION, VERSION),
            (AT_RECORDS, layout.records),
            (AT_QUOTES, layout.quotes),
            (AT_SESSION, session),
            (AT_MAGIC, MAGIC),
        ];
        header.iter().for_each(|&(at, value)| words.words()[at].store(value, Ordering::Release));
        Ok(Self { words, layout, next: 0, path: path.to_owned(), file })
    }

    /// Writes a record and returns its sequence in the ring. Copies 128 bytes; never waits.
    #[inline]
    pub fn publish(&mut self, record: &Record) -> u64 {
        let (seq, words) = (self.next, self.words.words());
        let first = self.layout.record(seq);
        if let Some([stamp, body @ ..]) = words.get(first..).and_then(|rest| rest.first_chunk::<16>()) {
            replace(stamp, body, &record.to_words(), 0, seq + 1);
        }
        self.next = seq + 1;
        words[AT_NEXT].store(self.next, Ordering::Release);
        seq
    }

    /// Replaces an instrument's quote. Copies 128 bytes; never waits. A quote past those of the
    /// configuration is not written: `false`.
    #[inline]
    pub fn update(&mut self, idx: usize, quote: &Quote) -> bool {
        if idx as u64 >= self.layout.quotes {
            return false;
        }
        let words = self.words.words();
        let first = self.layout.quote(idx);
        if let Some([version, updates, body @ ..]) = words.get(first..).and_then(|rest| rest.first_chunk::<16>()) {
            let (before, count) = (version.load(Ordering::Relaxed), updates.load(Ordering::Relaxed));
            version.store(before + 1, Ordering::Relaxed);
            fence(Ordering::Release);
            updates.store(count + 1, Ordering::Relaxed);
            store(body, &quote.to_words());
            version.store(before + 2, Ordering::Release);
        }
        let group = &words[self.layout.group(idx)];
        group.store(group.load(Ordering::Relaxed) + 1, Ordering::Release);
        true
    }

    /// Replaces an instrument's quote by what `change` makes of it; counts as an update. `false`,
    /// and nothing is changed, where it has never been updated.
    pub fn revise(&mut self, idx: usize, change: impl FnOnce(&mut Quote)) -> bool {
        if idx as u64 >= self.layout.quotes {
            return false;
        }
        let (words, first) = (self.words.words(), self.layout.quote(idx));
        let Some([_, updates, body @ ..]) = words.get(first..).and_then(|rest| rest.first_chunk::<16>()) else {
            return false;
        };
        if updates.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let mut quote = Quote::from_words(&body.each_ref().map(|word| word.load(Ordering::Relaxed)));
        change(&mut quote);
        self.update(idx, &quote)
    }

    /// Says that a channel lives, whether it has brought something new or not. Costs a store.
    /// Channels from 448 on have no place for it.
    #[inline]
    pub fn alive(&mut self, channel: u16) {
        let channel = usize::from(channel);
        if channel < LIVES {
            let word = &self.words.words()[AT_LIFE + channel];
            word.store(word.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
        }
    }

    /// Quotes that the ring has.
    pub fn quotes(&self) -> usize {
        self.layout.quotes as usize
    }

    /// The sequence that the next record gets.
    pub fn next_seq(&self) -> u64 {
        self.next
    }
}

impl Drop for RingWriter {
    fn drop(&mut self) {
        self.words.words()[AT_CLOSED].store(1, Ordering::Release);
        if is_at(&self.file, &self.path) {
            // A name that stays behind is replaced by the next writer.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Replaces a record: `during` tells readers that it is none, `after` that it is whole.
#[inline(always)]
fn replace<const N: usize>(stamp: &AtomicU64, body: &[AtomicU64; N], values: &[u64; N], during: u64, after: u64) {
    stamp.store(during, Ordering::Relaxed);
    // No word of the new record is seen before the stamp says that the old one is gone.
    fence(Ordering::Release);
    store(body, values);
    stamp.store(after, Ordering::Release);
}

#[inline(always)]
fn store<const N: usize>(words: &[AtomicU64; N], values: &[u64; N]) {
    words.iter().zip(values).for_each(|(word, value)| word.store(*value, Ordering::Relaxed));
}

/// The name of a file that is not whole yet, in the same folder.
fn draft_of(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".draft-{}", std::process::id()));
    path.with_file_name(name)
}

/// Gives a whole file its name, unless a living writer has it.
fn publish_name(draft: &Path, path: &Path) -> Result<(), OpenProblem> {
    let io = |what| move |error| OpenProblem::Io(what, error);
    loop {
        match fs::hard_link(draft, path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => (),
            linked => return linked.map_err(io("the file cannot be given its name")),
        }
        let Ok(old) = File::open(path) else { continue };
        match lock_of_dead(&old) {
            Err(TryLockError::WouldBlock) => return Err(OpenProblem::InUse),
            Err(TryLockError::Error(error)) => return Err(OpenProblem::Io("the old file cannot be locked", error)),
            // Nobody else removes the name while this process has the lock of its file.
            Ok(()) if is_at(&old, path) => fs::remove_file(path).map_err(io("the old file cannot be removed"))?,
            Ok(()) => (),
        }
    }
}

/// Locks a file unless a writer has it. A reader that asks whether there is one has the lock for a
/// moment, so a refusal is believed at the tenth.
fn lock_of_dead(file: &File) -> Result<(), TryLockError> {
    for _ in 0..9 {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => thread::sleep(Duration::from_millis(1)),
            other => return other,
        }
    }
    file.try_lock()
}

/// Whether a path names this file.
fn is_at(file: &File, path: &Path) -> bool {
    let (Ok(file), Ok(named)) = (file.metadata(), fs::symlink_metadata(path)) else { return false };
    (file.dev(), file.ino()) == (named.dev(), named.ino())
}

fn write_zeros(file: &mut File, bytes: usize) -> io::Result<()> {
    static ZEROS: [u8; 65_536] = [0; 65_536];
    let mut left = bytes;
    while left > 0 {
        let len = left.min(ZEROS.len());
        file.write_all(&ZEROS[..len])?;
        left -= len;
    }
    Ok(())
}
