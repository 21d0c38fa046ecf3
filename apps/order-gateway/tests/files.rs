//! The files that come with the gateway are good, and its files survive a restart.
#![allow(clippy::unwrap_used, reason = "a panic is the report")]

mod common;

use std::path::Path;

use common::{Buyer, SECOND, Venue, book};
use order_entry::journal::{Journal, Stamp};
use order_entry::risk::KillSwitch;
use order_gateway::{
    Audit, AuditCsv, Config, Core, Direction, Gateway, LimitsFile, MappedFile, SyncPolicy, VenueClient, journal_csv,
};

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
fn order_has_the_capacity_of_the_configuration() {
    let example = std::fs::read_to_string(own("example.toml")).unwrap();
    let path = tempfile::NamedTempFile::new().unwrap();
    for (word, byte) in [("agency", b'A'), ("principal", b'P'), ("riskless-principal", b'R'), ("other", b'O')] {
        std::fs::write(&path, example.replacen("\"principal\"", &format!("\"{word}\""), 1)).unwrap();
        let core = common::config(&KillSwitch::new());
        let client = Config::read(path.path()).unwrap().client(&core.instruments, 0);
        let Some(VenueClient::Ouch(client)) = client else { panic!("the example is of OUCH") };
        let journal = Journal::create(vec![0; 1 << 16], 7, 0, common::RESERVE).unwrap();
        let mut gateway = Gateway::new(Buyer::default(), Core::new(core, client, journal));
        let mut venue = Venue::new();
        venue.connect(&mut gateway, SECOND);
        gateway.core_mut().arm(SECOND);
        gateway.on_book(&book(100, SECOND));
        venue.pump(&mut gateway, SECOND);
        assert_eq!(venue.orders[0].capacity.0, byte, "{word}");
    }
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

/// Its disk is a pipe that nobody reads, until the log ends.
#[test]
fn audit_log_that_was_too_slow_says_at_its_end_how_much_it_has_lost() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit");
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    let (begin, begun) = std::sync::mpsc::channel();
    let from = path.clone();
    let reader = std::thread::spawn(move || {
        let mut log = std::fs::File::open(from).unwrap();
        begun.recv().unwrap();
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut log, &mut bytes).unwrap();
        bytes
    });
    let mut audit = Audit::start(&path).unwrap();
    audit.record(Direction::Out, &vec![b'x'; 16 << 20], 5);
    begin.send(()).unwrap();
    drop(audit);
    let mut csv = Vec::new();
    AuditCsv::write(&reader.join().unwrap()[..], &mut csv).unwrap();
    assert!(String::from_utf8(csv).unwrap().lines().last().unwrap().contains(",lost,0,"));
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
    journal_csv(journal.memory(), None, &mut csv).unwrap().unwrap();
    assert_eq!(String::from_utf8(csv).unwrap(), "number,ns,entry\n1,7,\"Armed(true)\"\n");
}

#[test]
fn journal_command_says_that_records_lie_behind_a_bad_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    let mut journal = Journal::create(vec![0; 8_192], 1, 0, 0).unwrap();
    let mut starts = Vec::new();
    for _ in 0..9 {
        starts.push(journal.end());
        journal.append(14, Stamp::default(), b"").unwrap();
    }
    let said = |memory: &[u8]| {
        std::fs::write(&path, memory).unwrap();
        let command =
            std::process::Command::new(env!("CARGO_BIN_EXE_order-gateway")).arg("journal").arg(&path).output();
        let output = command.unwrap();
        assert!(output.status.success());
        let lines = String::from_utf8(output.stdout).unwrap().lines().count();
        (lines, String::from_utf8(output.stderr).unwrap())
    };
    assert_eq!(said(journal.memory()), (10, String::new()));
    let mut damaged = journal.memory().clone();
    damaged[starts[4]] ^= 1;
    let (lines, sentence) = said(&damaged);
    assert_eq!(lines, 5);
    assert!(sentence.contains(&format!("the journal is damaged at position {}", starts[4])), "{sentence}");
}
