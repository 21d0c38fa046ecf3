//! What commands do to orders.

use std::sync::mpsc::channel;

use order_entry::Refusal;
use order_entry::orders::{Alarm, VenueEvent};
use order_entry::risk::{KillSwitch, Limit};
use order_gateway::control::Command;
use order_gateway::{Audit, Direction};

use super::common::{Buyer, SECOND, STOCK, book, limits};
use super::{TestRun, run, turn};

/// An armed run with the live orders 1 and 2, that obeys `command` in its next turn.
fn told(command: Command) -> TestRun<Buyer> {
    let ((mut run, _), (sender, receiver)) = (run(&KillSwitch::new(), Buyer::default()), channel());
    run.gateway.core_mut().arm(SECOND);
    for id in 1..=2 {
        run.gateway.on_book(&book(10 * id as u32, SECOND));
        run.gateway.core_mut().session_mut().say(id, VenueEvent::Accepted { venue_id: 900 + id });
        run.gateway.received(&[], SECOND).unwrap();
    }
    run.commands = Some(receiver);
    sender.send(command).unwrap();
    turn(&mut run);
    run
}

/// The limit that refuses the next order.
fn refusal(run: &mut TestRun<Buyer>) -> Option<Limit> {
    run.gateway.on_book(&book(77, SECOND));
    match run.gateway.strategy().refusals.last() {
        Some(Refusal::Risk(reject)) => Some(reject.limit),
        _ => None,
    }
}

#[test]
fn cancel_cancels_each_order_and_lets_new_ones_pass() {
    let mut run = told(Command::CancelAll);
    assert_eq!(run.gateway.core().session().canceled, [1, 2]);
    assert_eq!(refusal(&mut run), None);
}

#[test]
fn disarm_refuses_new_orders_and_leaves_live_ones() {
    let mut run = told(Command::Disarm);
    assert_eq!((refusal(&mut run), run.gateway.core().orders().live_count()), (Some(Limit::Disarmed), 2));
    assert!(run.gateway.core().session().canceled.is_empty());
}

#[test]
fn status_counts_live_orders() {
    let (answer, answers) = channel();
    told(Command::Status(answer));
    assert_eq!(
        answers.recv().unwrap(),
        "armed; session open; 2 live orders, 0 in doubt; 0 alarms, 0 unread; requests have used 0 % of the journal"
    );
}

/// Nobody reads the pipe that the log is written to.
#[test]
fn status_says_what_the_audit_log_lacks() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit");
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    let from = path.clone();
    let (begin, begun) = channel::<()>();
    let reader = std::thread::spawn(move || {
        let mut log = std::fs::File::open(from).unwrap();
        begun.recv().unwrap();
        std::io::copy(&mut log, &mut std::io::sink()).unwrap();
    });
    let mut audit = Audit::start(&path).unwrap();
    audit.record(Direction::Out, &vec![b'x'; 16 << 20], 5);
    let lost = audit.lost();
    let ((mut run, _), (sender, receiver)) = (run(&KillSwitch::new(), Buyer::default()), channel());
    (run.audit, run.commands) = (Some(audit), Some(receiver));
    let (answer, answers) = channel();
    sender.send(Command::Status(answer)).unwrap();
    turn(&mut run);
    let status = answers.recv().unwrap();
    assert!(lost > 0 && status.ends_with(&format!("; the audit log lacks {lost} cells")), "{status}");
    begin.send(()).unwrap();
    drop(run);
    reader.join().unwrap();
}

#[test]
fn journal_that_fills_is_told_once_and_is_in_the_status() {
    let ((mut run, _), (sender, receiver)) = (run(&KillSwitch::new(), Buyer::default()), channel());
    run.commands = Some(receiver);
    assert!(turn(&mut run).is_empty());
    while run.gateway.core().journal().percent_used() < 80 {
        run.gateway.core_mut().disarm(SECOND);
    }
    let said = turn(&mut run);
    assert!(said[0].starts_with("requests have used 80 % of the journal's room"), "{said:?}");
    assert!(turn(&mut run).is_empty());
    let (answer, answers) = channel();
    sender.send(Command::Status(answer)).unwrap();
    turn(&mut run);
    assert!(answers.recv().unwrap().ends_with("requests have used 80 % of the journal"));
}

#[test]
fn limits_are_in_force_with_the_next_order() {
    let mut lower = limits();
    (lower.version, lower.instruments[0].qty_max) = (9, 5);
    let mut run = told(Command::Limits(lower));
    assert_eq!(refusal(&mut run), Some(Limit::Quantity));
}

#[test]
fn unblock_lets_orders_of_a_blocked_instrument_pass() {
    let (sender, receiver) = channel();
    let mut run = told(Command::Disarm);
    run.commands = Some(receiver);
    // A trade taken back that nobody knows blocks its instrument.
    let exec = order_entry::orders::ExecId::from_number(5);
    run.gateway.core_mut().session_mut().say(1, VenueEvent::Busted { exec });
    run.gateway.received(&[], SECOND).unwrap();
    assert_eq!(run.gateway.core().last_alarm(), Some(Alarm::UnknownExecution));
    run.gateway.core_mut().arm(SECOND);
    run.gateway.on_book(&book(77, SECOND));
    assert!(
        matches!(run.gateway.strategy().refusals[..], [Refusal::State(_)]),
        "{:?}",
        run.gateway.strategy().refusals
    );
    sender.send(Command::Unblock(STOCK)).unwrap();
    turn(&mut run);
    run.gateway.on_book(&book(78, SECOND));
    assert_eq!((run.gateway.strategy().refusals.len(), run.gateway.strategy().ids.len()), (1, 3));
}
