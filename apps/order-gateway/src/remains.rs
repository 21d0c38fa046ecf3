//! What lies behind a journal's last good record: kept for people, and then gone, so that no later
//! start takes it for damage of its own day.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use order_entry::journal::{JournalMemory, Records, Remains};

use crate::memory::sync_directory;

/// Bytes behind the last good record of the journal in `memory` that are no zeros. `None` of memory
/// that is no journal.
pub fn remains_of(memory: &[u8]) -> Option<Remains> {
    let mut records = Records::new(memory).ok()?;
    records.by_ref().for_each(drop);
    records.remains()
}

/// What a person must know of them.
pub fn sentence_of(remains: &Remains) -> String {
    let Remains { start, len, is_damage } = remains;
    if *is_damage {
        format!(
            "the journal is damaged at position {start}: {len} bytes from there on, which held records, are left out. What \
             they said of orders, positions and stops is not known: compare all with the venue before you arm"
        )
    } else {
        format!("the journal ends in a record that was cut short: {len} bytes from position {start} on are left out")
    }
}

/// Copies the remains of the journal at `path` into a file beside it, and puts zeros in their place
/// when the copy is on the disk. Returns what there was, and the copy.
///
/// # Errors
///
/// The copy cannot be written, and the journal is as it was; or the journal's disk failed.
pub fn put_aside<M: JournalMemory>(memory: &mut M, path: &Path) -> io::Result<Option<(Remains, PathBuf)>> {
    let Some(remains) = remains_of(memory.as_ref()) else { return Ok(None) };
    let (start, end) = (remains.start, remains.start + remains.len);
    let aside = beside(path, start);
    let mut file = File::create(&aside)?;
    file.write_all(&memory.as_ref()[start..end])?;
    file.sync_all()?;
    sync_directory(&aside)?;
    memory.as_mut()[start..end].fill(0);
    memory.sync(end)?;
    Ok(Some((remains, aside)))
}

/// `PATH.behind-POSITION`.
fn beside(path: &Path, position: usize) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(format!(".behind-{position}"));
    name.into()
}

#[cfg(test)]
mod tests {
    use order_entry::journal::{Journal, Stamp};

    use super::*;
    use crate::memory::{MappedFile, SyncPolicy};

    const LEN: usize = 1 << 16;

    /// A journal of ten records at `path`, and where each of them begins.
    fn written(path: &Path) -> (Journal<MappedFile>, Vec<usize>) {
        let (memory, _) = MappedFile::open(path, LEN, SyncPolicy::Off).unwrap();
        let mut journal = Journal::create(memory, 7, 0, 0).unwrap();
        let mut starts = Vec::new();
        for _ in 0..10 {
            starts.push(journal.end());
            journal.append(11, Stamp::default(), b"a record").unwrap();
        }
        (journal, starts)
    }

    fn reopened(path: &Path) -> MappedFile {
        MappedFile::open(path, LEN, SyncPolicy::Off).unwrap().0
    }

    fn records(memory: &MappedFile) -> usize {
        Records::new(memory.as_ref()).unwrap().count()
    }

    #[test]
    fn journal_that_ends_as_it_should_has_nothing_put_aside() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        drop(written(&path));
        assert!(put_aside(&mut reopened(&path), &path).unwrap().is_none());
        assert_eq!(directory.path().read_dir().unwrap().count(), 1);
    }

    #[test]
    fn records_behind_a_lost_page_are_put_aside_and_the_next_start_finds_none() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        let (journal, starts) = written(&path);
        let end = journal.end();
        let behind = journal.memory().as_ref()[starts[5]..end].to_vec();
        drop(journal);
        // A power cut took one record, and kept those behind it.
        let mut memory = reopened(&path);
        memory.as_mut()[starts[4]..starts[5]].fill(0);
        let (remains, aside) = put_aside(&mut memory, &path).unwrap().unwrap();
        assert!(remains.is_damage && sentence_of(&remains).contains("damaged at position"));
        assert_eq!(aside, directory.path().join(format!("journal.behind-{}", starts[4])));
        let kept = std::fs::read(aside).unwrap();
        assert!(behind.starts_with(&kept[starts[5] - starts[4]..]), "as far as the last byte that is no zero");
        assert!(memory.as_ref()[starts[4]..].iter().all(|byte| *byte == 0));
        assert_eq!((records(&memory), remains_of(memory.as_ref())), (4, None));
    }

    #[test]
    fn record_that_was_cut_short_is_put_aside_as_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        let (journal, starts) = written(&path);
        let end = journal.end();
        drop(journal);
        let mut memory = reopened(&path);
        memory.as_mut()[starts[9] + 20..end].fill(0);
        let (remains, _) = put_aside(&mut memory, &path).unwrap().unwrap();
        assert!(!remains.is_damage && sentence_of(&remains).contains("cut short"));
        assert_eq!(records(&memory), 9);
    }
}
