//! The messages in an audit log, as a person reads them.
#![allow(clippy::unwrap_used, reason = "a panic is the report")]

use std::path::Path;
use std::process::{Command, Output};

use order_entry::audit::{Direction, head};
use order_entry::ouch::CancelReason;
use order_entry::ouch::v50::{CancelOrder, OrderCanceled};
use order_entry::session::Output as Bytes;
use order_entry::soupbin::{PacketType, emit};

const START_NS: u64 = 1_795_727_114_000_000_000;

/// A log of these calls, a microsecond apart.
fn write_log(path: &Path, calls: &[(Direction, &[u8])]) {
    let mut log = Vec::new();
    for (number, (direction, bytes)) in (0..).zip(calls) {
        log.extend(head(START_NS + 1_000 * number, *direction, false, bytes.len() as u16));
        log.extend(*bytes);
    }
    std::fs::write(path, log).unwrap();
}

fn audit(arguments: &[&str], log: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_wirepath")).arg("audit").args(arguments).arg(log).output().unwrap()
}

fn soup(kind: PacketType, payload: &[u8]) -> Vec<u8> {
    let mut room = [0; 128];
    let mut output = Bytes::new(&mut room);
    emit(kind, payload, &mut output).unwrap();
    output.written().to_vec()
}

#[test]
fn messages_are_shown_whole_wherever_calls_cut_them_and_without_the_password() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit");
    let (mut order, mut answer) = ([0; 64], [0; 64]);
    let len = CancelOrder { user_ref: 7.into(), quantity: 100.into() }.emit(&[], &mut order).unwrap();
    let order = soup(PacketType::Unsequenced, &order[..len]);
    let reason = CancelReason(b'U');
    let canceled = OrderCanceled { at_ns: 5.into(), user_ref: 7.into(), quantity: 300.into(), reason };
    let len = canceled.emit(&[], &mut answer).unwrap();
    let answer = soup(PacketType::Sequenced, &answer[..len]);
    let login = soup(PacketType::LoginRequest, &[b"TRADERSECRET    ".as_slice(), &[b' '; 30]].concat());
    let (begin, end) = answer.split_at(9);
    write_log(
        &path,
        &[
            (Direction::Out, &login),
            (Direction::Out, &order),
            (Direction::In, begin),
            (Direction::In, end),
            (Direction::Lost, &3_u64.to_le_bytes()),
            (Direction::In, b"\0\0?\x1b"),
        ],
    );
    let output = audit(&[], &path);
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<_> = text.lines().map(|line| line.split_once("  ").unwrap()).collect();
    assert!(
        output.status.success() && lines[0].0.ends_with(".000000000") && lines[3].0.ends_with(".000004000"),
        "{text}"
    );
    let said: Vec<_> = lines.into_iter().map(|(_, said)| said).collect();
    let expected = [
        "out   LoginRequest TRADER",
        "out   CancelOrder(CancelOrder { user_ref: 7, quantity: 100 })",
        "in    OrderCanceled(OrderCanceled { at_ns: 5, user_ref: 7, quantity: 300, reason: ",
        "lost  3 cells of the gateway's ring",
        "in    no whole message: \\x00\\x00?\\x1b",
    ];
    assert!(said.len() == expected.len() && said.iter().zip(expected).all(|(said, it)| said.starts_with(it)), "{text}");
}

#[test]
fn fields_of_fix_stand_apart_and_the_password_is_not_shown() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit");
    let body = b"35=A\x0149=TRADER\x01554=SECRET\x01";
    let mut message = [format!("8=FIX.4.4\x019={}\x01", body.len()).as_bytes(), body].concat();
    let sum = message.iter().fold(0_u8, |sum, &byte| sum.wrapping_add(byte));
    message.extend_from_slice(format!("10={sum:03}\x01").as_bytes());
    write_log(&path, &[(Direction::Out, &message)]);
    let text = String::from_utf8(audit(&[], &path).stdout).unwrap();
    assert!(text.contains("  out   8=FIX.4.4|9=26|35=A|49=TRADER|554=*|10="), "{text}");
}

#[test]
fn file_that_is_no_log_is_told_by_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notes");
    std::fs::write(&path, "this is a text, and no log").unwrap();
    let output = audit(&["--protocol", "fix"], &path);
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && error.contains("notes: the file is no audit log"), "{error}");
}
