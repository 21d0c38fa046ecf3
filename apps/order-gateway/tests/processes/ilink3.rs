//! The same by CME iLink 3: gateways that are killed, and a line that breaks in the middle of
//! orders.

use exchange_sim::Served;
use order_entry::ilink3::Ilink3Client;

use crate::gateway::{Mode, Protocol};
use crate::kill::{Day, FAULTS, POINTS, kill_and_compare};

fn check(port: u16, faults: &[&str], points: &[u64], fills: u64) -> Served {
    let day = Day { port, mode: Mode::Trade, faults, points, fills };
    kill_and_compare(Protocol::Ilink3, Ilink3Client::rules(), &day, |exchange, path| exchange.ilink3_log(path))
}

#[test]
fn gateway_of_ilink_3_killed_at_random_points_loses_nothing_that_it_sent() {
    check(26_657, &[], &POINTS, 300);
}

#[test]
fn line_of_ilink_3_that_breaks_before_answers_loses_nothing() {
    let served = check(26_659, &FAULTS, &[3_000, 500, 2_000], 100);
    assert!(served.counts.lost_acks > 5, "{}", served.counts.lost_acks);
}
