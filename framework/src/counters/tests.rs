//! Shared files as another process finds them: live, stale, damaged, and foreign. Not under Miri:
//! they are mapped.
#![cfg(not(miri))]

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::layout::{ENTRY_WORDS, HEADER_WORDS, header};
use super::*;
use crate::sys::process;

const CAPACITY: Capacity = Capacity { entries: 8, values: 4096 };

fn directory() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn block_in(directory: &Path) -> Block {
    let block = Block::create_in(directory, "app", CAPACITY).unwrap();
    block.scope("worker0").text("device", "mlx5_0");
    block
}

/// The file of a block with a text, a counter at 7 and a histogram, after `damage` changed a copy
/// of its words.
fn damaged(damage: impl FnOnce(&mut Vec<u64>)) -> (TempDir, PathBuf) {
    let directory = directory();
    let block = block_in(directory.path());
    let scope = block.scope("worker1");
    let rx_frames = scope.counter("rx_frames", Unit::Frames);
    let _latency = scope.histogram("latency", Unit::Nanoseconds);
    rx_frames.add(7);

    let bytes = fs::read(block.path().unwrap()).unwrap();
    let mut words = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word)).collect();
    damage(&mut words);
    let path = directory.path().join("copy.1.counters");
    fs::write(&path, words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<u8>>()).unwrap();
    (directory, path)
}

fn refused(damage: impl FnOnce(&mut Vec<u64>)) -> String {
    let (_directory, path) = damaged(damage);
    let sentence = Snapshot::read(&path).unwrap_err().to_string();
    sentence.replace(&path.display().to_string(), "FILE")
}

#[test]
fn untouched_copy_is_read() {
    let (_directory, path) = damaged(|_| {});
    let snapshot = Snapshot::read(&path).unwrap();
    assert_eq!((snapshot.app.as_str(), snapshot.pid), ("app", std::process::id()));
    assert_eq!(snapshot.count("worker1/rx_frames"), Some(7));
    assert_eq!(snapshot.text("worker0/device"), Some("mlx5_0"));
    assert!(matches!(snapshot.sample("worker1/latency").unwrap().reading, Reading::Histogram(_)));
}

#[test]
fn garbage_is_not_ours() {
    assert_eq!(refused(|words| words.clear()), "FILE is not a wirepath counter file: remove it");
    assert_eq!(refused(|words| words.fill(0x5555)), "FILE is not a wirepath counter file: remove it");
}

#[test]
fn other_format_version_names_both() {
    let sentence = refused(|words| words[header::VERSION] = 1);
    assert!(sentence.starts_with("FILE has format version 1, this tool reads 3"), "{sentence}");
}

#[test]
fn short_file_is_damaged() {
    assert_eq!(
        refused(|words| words.truncate(HEADER_WORDS + 3)),
        "FILE is damaged: its header's length cannot be right; remove it"
    );
}

#[test]
fn torn_directory_names_the_entry() {
    assert_eq!(refused(|words| words[header::ENTRIES] = 4), "FILE is damaged: its entry 3 cannot be right; remove it");
    assert!(refused(|words| words[header::ENTRIES] = 9).contains("count of entries"));
}

#[test]
fn value_outside_the_file_names_the_entry() {
    for value in [4096, 4095 - 2254, u64::MAX] {
        let sentence = refused(|words| words[HEADER_WORDS + 2 * ENTRY_WORDS + 1] = value);
        assert!(sentence.contains("entry 2"), "{sentence}");
    }
}

#[test]
fn terminal_escapes_are_refused() {
    let escape = u64::from_ne_bytes(*b"\x1b]0;hi\x07.");
    assert!(refused(|words| words[header::APP] = escape).contains("application name"));
    assert!(refused(|words| words[HEADER_WORDS + 2] = escape).contains("entry 0"));
    let values = HEADER_WORDS + CAPACITY.entries * ENTRY_WORDS;
    assert!(refused(|words| words[values] = escape).contains("entry 0"));
}

#[test]
fn any_damaged_word_is_an_error_or_another_value_but_never_a_panic() {
    let (directory, path) = damaged(|_| {});
    let whole = fs::read(&path).unwrap();
    for word in 0..HEADER_WORDS + 4 * ENTRY_WORDS {
        for hostile in [0, 1, 0xff, 1 << 32, 1 << 63, u64::MAX, 0x6060_6060_6060_6060] {
            let mut bytes = whole.clone();
            bytes[word * 8..][..8].copy_from_slice(&u64::to_ne_bytes(hostile));
            fs::write(&path, bytes).unwrap();
            if let Ok(snapshot) = Snapshot::read(&path) {
                assert!(snapshot.samples.len() <= CAPACITY.entries);
            }
        }
    }
    drop(directory);
}

#[test]
fn pipe_and_link_are_not_opened() {
    let directory = directory();
    let block = block_in(directory.path());
    let link = directory.path().join("link.1.counters");
    std::os::unix::fs::symlink(block.path().unwrap(), &link).unwrap();
    let folder = directory.path().join("folder.1.counters");
    fs::create_dir(&folder).unwrap();

    let listing = Snapshot::list(directory.path()).unwrap();
    let unreadable: Vec<_> = listing.unreadable.iter().map(ReadError::path).collect();
    assert_eq!(unreadable, [&folder, &link]);
    assert_eq!(listing.running.len(), 1);
    // Such a file is not read even if it is named directly.
    assert!([folder, link].iter().all(|path| Snapshot::read(path).is_err()));
}

#[test]
fn file_goes_with_its_block_and_the_counter_counts_on() {
    let directory = directory();
    let block = block_in(directory.path());
    let counter = block.scope("worker1").counter("rx", Unit::Frames);
    let path = block.path().unwrap().to_owned();
    drop(block);
    counter.inc();
    assert!(!path.exists());
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn second_block_of_the_same_name_stands_beside_the_first() {
    let directory = directory();
    let (first, second) = (block_in(directory.path()), block_in(directory.path()));
    assert_ne!(first.path(), second.path());
    assert_eq!(Snapshot::list(directory.path()).unwrap().running.len(), 2);
}

#[test]
fn unfit_application_names_are_refused() {
    let directory = directory();
    for app in ["", ".hidden", "a/b", "..", "two words", &"x".repeat(65)] {
        let refused = Block::create_in(directory.path(), app, CAPACITY).map(|_| ());
        assert_eq!(refused, Err(BlockError::App { app: app.to_owned() }));
    }
}

#[test]
fn file_of_a_dead_process_goes_when_any_application_of_its_user_starts() {
    let (directory, stale) = damaged(|_| {});
    let listing = Snapshot::list(directory.path()).unwrap();
    assert_eq!((listing.running.len(), listing.stale), (0, vec![stale.clone()]));
    // One that a process had been making for a minute or more when it died, too.
    let unfinished = directory.path().join(".other.1.2.new");
    fs::write(&unfinished, "").unwrap();

    let _block = block_in(directory.path());
    assert!(!stale.exists() && !unfinished.exists());
}

/// The kernel has the lock of a live file: its name may have the pid of a dead process.
#[test]
fn start_removes_no_file_of_a_live_process_whatever_its_name() {
    let directory = directory();
    let block = block_in(directory.path());
    let renamed = directory.path().join("other.1.counters");
    fs::rename(block.path().unwrap(), &renamed).unwrap();
    let _other = Block::create_in(directory.path(), "other", CAPACITY).unwrap();
    assert!(renamed.exists());
}

#[test]
fn start_removes_no_file_of_another_user() {
    if process::effective_user() != 0 {
        return println!("SKIPPED: only root can give files to others");
    }
    let (directory, theirs) = damaged(|_| {});
    std::os::unix::fs::chown(&theirs, Some(4_711), None).unwrap();
    let _block = block_in(directory.path());
    assert!(theirs.exists());
}

/// A guardian opens the roster of a process that has just started within 200 ms, and reads it when
/// the process dies.
#[test]
fn connections_of_another_application_stay_until_a_guardian_has_found_them() {
    let directory = directory();
    let left = |app: &str| directory.path().join(format!("{app}.1.connections"));
    for app in ["other", "app"] {
        fs::write(left(app), Content::Connections.magic().to_ne_bytes()).unwrap();
    }
    let _block = block_in(directory.path());
    assert_eq!((left("other").exists(), left("app").exists()), (true, false));
}

#[test]
fn many_files_of_dead_processes_go_in_a_few_starts_of_bounded_work() {
    let directory = directory();
    let count = || fs::read_dir(directory.path()).unwrap().count();
    for pid in 1..=200 {
        fs::write(directory.path().join(format!("dead.{pid}.tap")), Content::Frames.magic().to_ne_bytes()).unwrap();
    }
    let counts = [136, 72, 8, 0];
    for left in counts {
        let block = block_in(directory.path());
        assert_eq!(count(), left + 1);
        drop(block);
    }
}

#[test]
fn processes_that_start_at_once_keep_their_own_files() {
    let (directory, stale) = damaged(|_| {});
    let start = || block_in(directory.path());
    let blocks: Vec<_> =
        std::thread::scope(|scope| [(); 8].map(|()| scope.spawn(start)).map(|thread| thread.join().unwrap()).into());
    assert!(blocks.iter().all(|block: &Block| block.path().unwrap().exists()) && !stale.exists());
}

#[test]
fn clean_removes_stale_files_and_no_live_one() {
    let (directory, stale) = damaged(|_| {});
    let bytes = fs::read(&stale).unwrap();
    let live = block_in(directory.path());
    fs::write(&stale, bytes).unwrap();
    let unfinished = directory.path().join(".app.1.2.new");
    fs::write(&unfinished, "").unwrap();
    assert_eq!(Snapshot::clean(directory.path()).unwrap(), [unfinished, stale]);
    assert!(live.path().unwrap().exists());
}

/// If an operator names the wrong directory, or another user plants files, only our files are
/// removed.
#[test]
fn clean_removes_nothing_that_is_not_ours() {
    let directory = directory();
    let making = format!(".app.1.{}.new", since_epoch_ns());
    let foreign = [
        ("notes.counters", "not even a number in its name"),
        ("oms.4711.counters", "somebody's letters"),
        ("oms.4711.tap", "wirepath"),
        ("oms.4711.connections", ""),
        ("oms.4711-x.counters", "wirepath"),
        (".vimrc.new", ""),
        (".app.1.2.new", "somebody's letters"),
        (".app.1.two.new", ""),
        // A process is about to take the lock.
        (&making, ""),
    ];
    for (name, text) in foreign {
        fs::write(directory.path().join(name), text).unwrap();
    }
    let (_elsewhere, theirs) = damaged(|_| {});
    std::os::unix::fs::symlink(&theirs, directory.path().join("oms.1.counters")).unwrap();
    assert_eq!(Snapshot::clean(directory.path()).unwrap(), [""; 0].map(PathBuf::from));
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), foreign.len() + 1);
    assert!(theirs.exists());
    // The start of a process does not remove them either.
    let _block = Block::create_in(directory.path(), "oms", CAPACITY).unwrap();
    assert!(foreign.iter().all(|(name, _)| directory.path().join(name).exists()));
}

/// A second link to a file, which other users may make if the kernel permits it
/// (`fs.protected_hardlinks`), is removed like the first; a link elsewhere keeps the file.
#[test]
fn hard_link_costs_the_file_nothing() {
    let (directory, stale) = damaged(|_| {});
    let other = directory.path().join("other.1.counters");
    fs::hard_link(&stale, &other).unwrap();
    let elsewhere = tempfile::tempdir_in(directory.path()).unwrap();
    let kept = elsewhere.path().join("kept");
    fs::hard_link(&stale, &kept).unwrap();
    assert_eq!(Snapshot::clean(directory.path()).unwrap(), [stale, other]);
    assert_eq!(Snapshot::read(&kept).unwrap().count("worker1/rx_frames"), Some(7));
}

/// Pids are easily guessed, so another user could take all the names that a process would give its
/// files.
#[test]
fn names_that_are_all_taken_do_not_keep_a_process_from_starting() {
    let directory = directory();
    let pid = std::process::id();
    fs::write(directory.path().join(format!("app.{pid}.counters")), "").unwrap();
    for number in 2..=64 {
        fs::write(directory.path().join(format!("app.{pid}-{number}.counters")), "").unwrap();
    }
    let before = since_epoch_ns();
    let block = block_in(directory.path());
    assert_eq!(Snapshot::read(block.path().unwrap()).unwrap().app, "app");
    assert_eq!(Snapshot::list(directory.path()).unwrap().running.len(), 1);
    // No one can take the names of all times.
    let name = block.path().unwrap().file_name().unwrap().to_str().unwrap();
    let number = name.strip_prefix(&format!("app.{pid}-")).and_then(|rest| rest.strip_suffix(".counters")).unwrap();
    assert!(number.parse::<u64>().unwrap() >= before, "{name}");
}

/// A process that opens the file before it is locked could lock it and block the start for ever.
#[test]
fn file_that_is_being_made_is_for_nobody_else_to_open() {
    let directory = directory();
    let made = Publication::create(directory.path(), "app", Content::Counters, |file| {
        assert_eq!(file.metadata()?.permissions().mode() & 0o777, 0o600);
        Ok(file.try_clone()?.try_lock_shared().is_ok())
    });
    let (publication, _) = made.unwrap();
    let mode = fs::metadata(publication.path()).unwrap().permissions().mode();
    assert_eq!(mode & 0o722, 0o600, "for everybody to read, as far as the umask lets them");
}

/// The length stated in a file is compared with the file's actual length before anything is read.
#[test]
fn sparse_file_of_a_terabyte_is_refused_unread() {
    let (_directory, path) = damaged(|_| {});
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(1 << 40).unwrap();
    let said = Snapshot::read(&path).unwrap_err().to_string();
    assert!(said.contains("header's length cannot be right"), "{said}");
}

/// Files are read and not mapped: one that shrinks during the read is an error and no SIGBUS.
#[test]
fn file_that_shrinks_while_it_is_read_is_an_error_at_worst() {
    let (_directory, path) = damaged(|_| {});
    let whole = fs::read(&path).unwrap();
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    let shrinking = std::thread::spawn(move || {
        for _ in 0..2_000 {
            file.set_len(600).unwrap();
            file.write_all_at(&whole, 0).unwrap();
        }
    });
    let (mut read, mut refused) = (0, 0);
    while !shrinking.is_finished() {
        match Snapshot::read(&path) {
            Ok(_) => read += 1,
            Err(_) => refused += 1,
        }
    }
    shrinking.join().unwrap();
    assert!(read + refused > 0);
}

/// The files of another user can neither hide our processes nor make us read endlessly.
#[test]
fn files_of_one_other_user_are_looked_at_up_to_a_limit() {
    use std::os::unix::fs::chown;
    const SOMEBODY: u32 = 4_711;
    let directory = directory();
    if fs::metadata(directory.path()).unwrap().uid() != 0 {
        return println!("SKIPPED: only root can give files to others");
    }
    for number in 0..300 {
        let path = directory.path().join(format!("a{number:03}.1.counters"));
        fs::write(&path, "").unwrap();
        chown(&path, Some(SOMEBODY), None).unwrap();
    }
    let block = block_in(directory.path());
    let listing = Snapshot::list(directory.path()).unwrap();
    assert_eq!((listing.running.len(), listing.stale.len(), listing.unreadable.len()), (1, 256, 1));
    let said = listing.unreadable[0].to_string();
    assert!(said.contains("user 4711 has more than 256 files there"), "{said}");
    // And the owner of a file comes from the kernel.
    assert_eq!(listing.running[0].user, None);
    chown(block.path().unwrap(), Some(SOMEBODY + 1), None).unwrap();
    assert_eq!(Snapshot::list(directory.path()).unwrap().running[0].user, Some(SOMEBODY + 1));
}

#[test]
fn file_name_with_escapes_is_told_without_them() {
    let directory = directory();
    fs::create_dir(directory.path().join("\x1b[2J.1.counters")).unwrap();
    let said = Snapshot::list(directory.path()).unwrap().unreadable[0].to_string();
    assert!(said.contains(r"\x1b[2J.1.counters") && !said.contains('\x1b'), "{said}");
}

#[test]
fn directory_that_is_not_there_has_nobody() {
    let listing = Snapshot::list(Path::new("/nonexistent/wirepath")).unwrap();
    assert!(listing.running.is_empty() && listing.stale.is_empty() && listing.unreadable.is_empty());
}

#[test]
fn directory_that_cannot_be_made_is_one_sentence() {
    let error = Block::create_in(Path::new("/proc/wirepath"), "app", CAPACITY).map(|_| ()).unwrap_err().to_string();
    assert!(error.starts_with("cannot share counters in /proc/wirepath: "), "{error}");
    assert!(error.ends_with("set WIREPATH_SHM to a directory on another tmpfs"), "{error}");
}

#[test]
fn growth_between_two_snapshots_is_a_rate() {
    let block = Block::heap();
    let (early, counter) = (block.snapshot(), block.scope("worker0").counter("rx", Unit::Frames));
    counter.add(10);
    let middle = block.snapshot();
    counter.add(5);
    let late = block.snapshot();

    let change = late.change("worker0/rx", &middle).unwrap();
    assert_eq!(change.count, 5);
    assert!(change.per_second > 5.0);
    assert_eq!(middle.change("worker0/rx", &early).unwrap().count, 10);
    assert_eq!(late.change("worker0/none", &early), None);
}

#[test]
fn samples_stand_as_a_tree_in_order_of_registration() {
    let block = Block::heap();
    let (worker0, worker1) = (block.scope("worker0"), block.scope("worker1"));
    let ethernet = worker0.scope("ethernet");
    ethernet.counter("rx", Unit::Frames);
    worker1.counter("polls", Unit::Polls);
    worker0.scope("arp").counter("rx", Unit::Frames);
    ethernet.counter("tx", Unit::Frames);

    let names: Vec<_> = block.snapshot().samples.into_iter().map(|sample| sample.name).collect();
    assert_eq!(names, ["worker0/ethernet/rx", "worker0/ethernet/tx", "worker0/arp/rx", "worker1/polls"]);
}

#[test]
fn reader_sees_a_writer_on_another_thread_go_on() {
    let directory = directory();
    let block = block_in(directory.path());
    let counter = block.scope("worker1").counter("rx", Unit::Frames);
    let writer = std::thread::spawn(move || (0..200_000).for_each(|_| counter.inc()));
    let mut last = 0;
    while !writer.is_finished() {
        let now = Snapshot::read(block.path().unwrap()).unwrap().count("worker1/rx").unwrap();
        assert!(now >= last);
        last = now;
    }
    assert_eq!(Snapshot::read(block.path().unwrap()).unwrap().count("worker1/rx"), Some(200_000));
}
