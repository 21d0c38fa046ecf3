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
    let login = soup_login();
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

/// A login of SoupBinTCP.
fn soup_login() -> Vec<u8> {
    soup(PacketType::LoginRequest, &[b"TRADERSECRET    ".as_slice(), &[b' '; 30]].concat())
}

/// A message of FIX that says it has `len` bytes of body.
fn fix(body: &[u8], len: usize) -> Vec<u8> {
    let mut message = [format!("8=FIX.4.4\x019={len}\x01").as_bytes(), body].concat();
    let sum = message.iter().fold(0_u8, |sum, &byte| sum.wrapping_add(byte));
    message.extend_from_slice(format!("10={sum:03}\x01").as_bytes());
    message
}

/// What is shown of these calls, without the times.
fn shown(arguments: &[&str], calls: &[(Direction, &[u8])]) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit");
    write_log(&path, calls);
    let text = String::from_utf8(audit(arguments, &path).stdout).unwrap();
    text.lines().map(|line| line.split_once("  ").unwrap().1.to_owned()).collect()
}

#[test]
fn fields_of_fix_stand_apart_and_passwords_are_not_shown() {
    let body = b"35=A\x0149=TRADER\x0195=8\x0196=SEC\x01RET!\x01554=SECRET\x01925=SECRET\x01\
                 1401=6\x011402=SEC\x01ET\x011404=SECRET\x0158=95\x01";
    let shown = shown(&[], &[(Direction::Out, &fix(body, body.len()))]);
    let expected = "out   8=FIX.4.4|9=91|35=A|49=TRADER|95=8|96=*|554=*|925=*|1401=6|1402=*|1404=*|58=95|10=";
    assert!(shown.len() == 1 && shown[0].starts_with(expected), "{shown:#?}");
}

#[test]
fn login_that_was_cut_does_not_show_its_password() {
    let (login, cells) = (soup_login(), 3_u64.to_le_bytes());
    let (begin, end) = login.split_at(30);
    let shown = shown(
        &[],
        &[
            (Direction::Out, begin),
            (Direction::Out, &login),
            (Direction::Out, begin),
            (Direction::Lost, &cells),
            (Direction::Out, b"ET\0\0SECRET"),
            (Direction::Out, end),
            (Direction::Out, &login),
        ],
    );
    let hidden = |len: usize| format!("out   no whole message: {len} bytes, which may have a password");
    let (login, lost) = ("out   LoginRequest TRADER".to_owned(), "lost  3 cells of the gateway's ring".to_owned());
    let expected = [hidden(30), login.clone(), hidden(30), lost, hidden(10 + 19), login];
    assert_eq!(shown, expected);
}

#[test]
fn login_that_is_no_message_does_not_show_its_password() {
    let body = b"35=A\x01554=SECRET\x01";
    let of_no_type = [b"\0\x2f?", &soup_login()[3..]].concat();
    for (protocol, login) in [("boe2", soup_login()), ("ouch50", of_no_type), ("fix", fix(body, body.len() - 3))] {
        let expected = format!("out   no whole message: {} bytes, which may have a password", login.len());
        assert_eq!(shown(&["--protocol", protocol], &[(Direction::Out, &login)]), [expected], "{protocol}");
    }
}

/// The line takes a part of a message, and the rest looks like a login at a glance.
#[test]
fn rest_of_a_message_begins_no_connection() {
    let mut order = [0; 64];
    let cancel = CancelOrder { user_ref: u32::from_be_bytes(*b"\0\0L\0").into(), quantity: 0.into() };
    let len = cancel.emit(&[], &mut order).unwrap();
    let order = soup(PacketType::Unsequenced, &order[..len]);
    let (begin, end) = order.split_at(order.iter().position(|&byte| byte == b'L').unwrap() - 2);
    let calls = [(Direction::Out, &soup_login()[..]), (Direction::Out, begin), (Direction::Out, end)];
    let of_soup = shown(&[], &calls);
    assert!(of_soup.len() == 2 && of_soup[1].starts_with("out   CancelOrder("), "{of_soup:#?}");
    let body = b"35=A\x0149=TRADER\x01";
    let login = fix(body, body.len());
    let (begin, end) = login.split_at(6);
    let of_fix = shown(&[], &[(Direction::Out, begin), (Direction::Out, end)]);
    assert!(of_fix.len() == 1 && of_fix[0].starts_with("out   8=FIX.4.4|"), "{of_fix:#?}");
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
