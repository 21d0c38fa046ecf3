//! The same by Cboe BOE: gateways that are killed, and a line that breaks in the middle of orders.

use exchange_sim::Served;
use order_entry::boe::Boe2Client;

use crate::gateway::{Mode, Protocol};
use crate::kill::{Day, FAULTS, POINTS, kill_and_compare};

fn check(protocol: Protocol, port: u16, faults: &[&str], points: &[u64], fills: u64) -> Served {
    let day = Day { port, mode: Mode::Trade, faults, points, fills };
    kill_and_compare(protocol, Boe2Client::rules(), &day, |exchange, _| exchange.boe_log(protocol))
}

#[test]
fn gateway_of_boe_2_killed_at_random_points_loses_nothing_that_it_sent() {
    check(Protocol::Boe2, 26_649, &[], &POINTS, 300);
}

#[test]
fn gateway_of_boe_3_killed_at_random_points_loses_nothing_that_it_sent() {
    check(Protocol::Boe3, 26_651, &[], &POINTS, 300);
}

#[test]
fn line_of_boe_2_that_breaks_before_answers_loses_nothing() {
    let served = check(Protocol::Boe2, 26_653, &FAULTS, &[3_000, 500, 2_000], 100);
    assert!(served.counts.lost_acks > 5, "{}", served.counts.lost_acks);
}

#[test]
fn line_of_boe_3_that_breaks_before_answers_loses_nothing() {
    let served = check(Protocol::Boe3, 26_655, &FAULTS, &[3_000, 500, 2_000], 100);
    assert!(served.counts.lost_acks > 5, "{}", served.counts.lost_acks);
}
