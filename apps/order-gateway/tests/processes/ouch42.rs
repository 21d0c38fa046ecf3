//! The same by OUCH 4.2: gateways that are killed, and a line that breaks in the middle of orders.

use exchange_sim::Served;
use order_entry::ouch::Ouch42Client;

use crate::gateway::{Mode, Protocol};
use crate::kill::{Day, FAULTS, POINTS, kill_and_compare};

fn check(port: u16, faults: &[&str], points: &[u64], fills: u64) -> Served {
    let day = Day { port, mode: Mode::Trade, faults, points, fills };
    kill_and_compare(Protocol::Ouch42, Ouch42Client::rules(), &day, |exchange, _| exchange.ouch42_log())
}

#[test]
fn gateway_of_ouch_42_killed_at_random_points_loses_nothing_that_it_sent() {
    check(26_645, &[], &POINTS, 300);
}

#[test]
fn line_of_ouch_42_that_breaks_before_answers_loses_nothing() {
    let served = check(26_647, &FAULTS, &[3_000, 500, 2_000], 100);
    assert!(served.counts.lost_acks > 5, "{}", served.counts.lost_acks);
}
