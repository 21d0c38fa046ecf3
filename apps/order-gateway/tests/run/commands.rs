//! What commands do to orders.

use std::sync::mpsc::channel;

use order_entry::Refusal;
use order_entry::orders::{Alarm, VenueEvent};
use order_entry::risk::{KillSwitch, Limit};
use order_gateway::control::Command;

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
    assert_eq!(answers.recv().unwrap(), "armed; session open; 2 live orders, 0 in doubt; 0 alarms, 0 unread");
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
