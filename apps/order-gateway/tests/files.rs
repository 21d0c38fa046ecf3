//! The files that come with the gateway are good, and its files survive a restart.
#![allow(clippy::unwrap_used, reason = "a panic is the report")]

use std::path::Path;

use order_entry::journal::{Journal, Stamp};
use order_gateway::{Audit, AuditCsv, Config, Direction, LimitsFile, MappedFile, SyncPolicy, journal_csv};

fn own(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

#[test]
fn example_files_are_read() {
    let config = Config::read(&own("example.toml")).unwrap();
    let limits = LimitsFile::read(&own(config.limits.to_str().unwrap())).unwrap();
    assert_eq!(limits.instruments().len(), 1);
}

#[test]
fn journal_of_one_process_is_refused_to_another_and_kept() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    let (memory, existed) = MappedFile::open(&path, 8_192, SyncPolicy::BeforeSend).unwrap();
    assert!(!existed);
    let mut journal = Journal::create(memory, 1, 0, 0).unwrap();
    journal.append(1, Stamp::default(), b"kept").unwrap();
    assert!(MappedFile::open(&path, 8_192, SyncPolicy::Off).is_err(), "the file is locked");
    drop(journal);
    let (memory, existed) = MappedFile::open(&path, 8_192, SyncPolicy::Off).unwrap();
    let mut payloads = Vec::new();
    Journal::recover(memory, 0, |record| payloads.push(record.payload.to_vec())).unwrap();
    assert_eq!((existed, payloads), (true, vec![b"kept".to_vec()]));
}

#[test]
fn audit_log_has_each_call_whole_and_escaped() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit");
    let mut audit = Audit::start(&path).unwrap();
    audit.record(Direction::Out, b"say \"O\"\x1b[2J", 5);
    audit.record(Direction::In, &[b'x'; 300], 6);
    drop(audit);
    let mut csv = Vec::new();
    AuditCsv::write(std::fs::File::open(&path).unwrap(), &mut csv).unwrap();
    let expected =
        format!("ns,direction,bytes,content\n5,out,11,\"say \"\"O\"\"\\x1b[2J\"\n6,in,300,\"{}\"\n", "x".repeat(300));
    assert_eq!(String::from_utf8(csv).unwrap(), expected);
}

#[test]
fn audit_log_that_is_cut_ends_before_the_cut() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit");
    let mut audit = Audit::start(&path).unwrap();
    audit.record(Direction::Out, b"one", 5);
    drop(audit);
    let bytes = std::fs::read(&path).unwrap();
    for cut in 0..bytes.len() {
        let mut csv = Vec::new();
        AuditCsv::write(&bytes[..cut], &mut csv).unwrap();
        assert_eq!(csv, b"ns,direction,bytes,content\n");
    }
}

#[test]
fn audit_log_on_a_full_disk_says_so_and_takes_what_comes() {
    let mut audit = Audit::start(Path::new("/dev/full")).unwrap();
    while !audit.has_failed() {
        audit.record(Direction::Out, b"an order", 5);
        std::thread::yield_now();
    }
    audit.record(Direction::Out, b"the next", 6);
}

#[test]
fn journal_prints_as_csv() {
    let mut journal = Journal::create(vec![0; 1_024], 1, 0, 0).unwrap();
    let entry = order_entry::journal::Entry::Armed(true);
    journal.append(entry.kind(), Stamp { at_ns: 7, event_ns: 7 }, &entry.encode()).unwrap();
    let mut csv = Vec::new();
    journal_csv(journal.memory(), &mut csv).unwrap().unwrap();
    assert_eq!(String::from_utf8(csv).unwrap(), "number,ns,entry\n1,7,\"Armed(true)\"\n");
}
