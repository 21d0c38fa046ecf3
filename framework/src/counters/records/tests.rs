//! Both sides over one file, files that lie, and a writer that never rests.

use std::fs::{self, OpenOptions};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use super::*;
use crate::counters::Snapshot;

fn only(directory: &Path) -> RecordedProcess {
    let mut found = RecordedProcesses::list(directory).unwrap();
    assert!(found.unreadable.is_empty() && found.stale.is_empty(), "{found:?}");
    assert_eq!(found.running.len(), 1);
    found.running.remove(0)
}

#[test]
#[cfg_attr(miri, ignore = "maps a file")]
fn records_are_read_as_they_were_written() {
    let directory = tempfile::tempdir().unwrap();
    let mut records = Records::create(directory.path(), "app", 3, 8).unwrap();
    assert!(only(directory.path()).records.is_empty());
    records.store(5, &[1, 2, 3]);
    records.store(0, &[7]);
    records.store(5, &[4, 5]);
    let read = only(directory.path());
    assert_eq!((read.app.as_str(), read.pid, read.user), ("app", std::process::id(), None));
    assert_eq!(read.records, [(0, vec![7, 0, 0]), (5, vec![4, 5, 0])]);
    assert!(read.is_credible());
    drop(records);
    assert!(RecordedProcesses::list(directory.path()).unwrap().running.is_empty());
}

#[test]
#[cfg_attr(miri, ignore = "maps a file")]
fn copy_that_a_child_of_fork_drops_leaves_the_file_to_its_parent() {
    let directory = tempfile::tempdir().unwrap();
    let mut records = Records::create(directory.path(), "app", 1, 1).unwrap();
    let path = records.path().to_owned();
    // As if another process had made it, and this one had it by fork(2).
    records.publication.pid += 1;
    drop(records);
    assert!(path.exists());
}

#[test]
#[cfg_attr(miri, ignore = "maps a file")]
fn every_reader_may_read_and_only_the_owner_write() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let records = Records::create(directory.path(), "app", 1, 1).unwrap();
    assert_eq!(fs::metadata(records.path()).unwrap().permissions().mode() & 0o022, 0);
}

#[test]
#[cfg_attr(miri, ignore = "maps a file")]
fn record_that_changes_all_the_time_is_never_read_in_parts() {
    let directory = tempfile::tempdir().unwrap();
    let mut records = Records::create(directory.path(), "app", 64, 2).unwrap();
    let file = fs::File::open(records.path()).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let mut count = 1;
            while !stop.load(Relaxed) {
                records.store(count as usize % 2, &[count; 64]);
                count += 1;
            }
        });
        // Also where an assertion fails, as the scope waits for the writer.
        let _stop = StopOnDrop(&stop);
        let mut last = [0; 2];
        // So many reads that some coincide with a write, on any machine.
        for _ in 0..20_000 {
            for (idx, words) in reader::read(&file).unwrap().0.records {
                assert!(words.iter().all(|word| *word == words[0]), "{words:?}");
                assert!(words[0] >= last[idx], "{} came after {}", words[0], last[idx]);
                last[idx] = words[0];
            }
        }
    });
}

struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

#[test]
#[cfg_attr(miri, ignore = "maps a file")]
fn files_that_lie_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let mut records = Records::create(directory.path(), "app", 2, 4).unwrap();
    records.store(1, &[1, 2]);
    let file = OpenOptions::new().write(true).open(records.path()).unwrap();
    let write = |word: usize, value: u64| {
        std::os::unix::fs::FileExt::write_all_at(&file, &value.to_ne_bytes(), word as u64 * 8).unwrap();
    };
    let words = [
        (header::MAGIC, MAGIC),
        (header::VERSION, VERSION),
        (header::RECORD_WORDS, 2),
        (header::CAPACITY, 4),
        (header::USED, 2),
        (header::PID, 1),
        (header::APP_LEN, 3),
    ];
    for (word, right) in words {
        for wrong in [u64::MAX, right + 65_536 * 65_536] {
            write(word, wrong);
            let found = RecordedProcesses::list(directory.path()).unwrap();
            assert_eq!((found.running.len(), found.unreadable.len()), (0, 1), "word {word} is {wrong}");
        }
        write(word, right);
    }
    assert_eq!(only(directory.path()).records, [(1, vec![1, 2])]);
    // A writer that stopped within a record.
    write(HEADER_WORDS + 1, 3);
    assert!(only(directory.path()).records.is_empty());
    file.set_len(200).unwrap();
    assert_eq!(RecordedProcesses::list(directory.path()).unwrap().unreadable.len(), 1);
}

#[test]
#[cfg_attr(miri, ignore = "makes files")]
fn file_of_a_dead_process_is_stale_and_is_cleaned_like_the_others() {
    let directory = tempfile::tempdir().unwrap();
    let left = directory.path().join("app.1.sockets");
    fs::write(&left, MAGIC.to_ne_bytes()).unwrap();
    let found = RecordedProcesses::list(directory.path()).unwrap();
    assert_eq!((found.running.len(), &found.stale), (0, &vec![left.clone()]));
    assert_eq!(Snapshot::clean(directory.path()).unwrap(), [left]);
}

#[test]
#[cfg_attr(miri, ignore = "makes files")]
fn link_in_place_of_a_file_is_not_followed() {
    let directory = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("/etc/passwd", directory.path().join("app.1.sockets")).unwrap();
    let found = RecordedProcesses::list(directory.path()).unwrap();
    assert_eq!((found.running.len(), found.unreadable.len()), (0, 1));
}
