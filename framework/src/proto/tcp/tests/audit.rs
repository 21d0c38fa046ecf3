//! The findings of the timer audit: each kind of fault is made by hand.

use super::*;
use crate::proto::tcp::state::connection::{AckOwed, OutputFlags, RetransmitTimer};

/// The audit's finding about a connection with data in flight, after a fault was made.
fn check(harm: impl FnOnce(&mut Tcp<Vec<u8>>, u32)) -> &'static str {
    let (mut client, _) = connected();
    let (id, now) = (client.id.unwrap(), client.now);
    client.tcp.send(id, b"order".to_vec(), now, &mut client.sent).unwrap();
    assert_eq!(client.tcp.check_timers(Some(now)), Ok(()));
    harm(&mut client.tcp, id.slot() as u32);
    client.tcp.check_timers(Some(now)).map_or_else(|fault| fault.what, |()| "nothing")
}

#[test]
fn deadline_without_an_entry_is_found() {
    assert_eq!(check(|tcp, slot| tcp.shared.wheel.clear(slot)), "a deadline stands, and the wheel knows of none");
}

#[test]
fn entry_behind_its_deadline_is_found() {
    let late = |tcp: &mut Tcp<Vec<u8>>, slot: u32| {
        let at = tcp.connections[slot].clock.timer_at + Duration::from_millis(1);
        tcp.shared.wheel.set(slot, at);
        tcp.connections[slot].clock.wheel_tick += 4;
    };
    assert_eq!(check(late), "the wheel comes by behind its deadline");
}

#[test]
fn entry_of_one_that_is_gone_is_found() {
    let gone = |tcp: &mut Tcp<Vec<u8>>, slot: u32| {
        tcp.release(slot);
        tcp.shared.wheel.set(slot, Instant::ZERO + Duration::from_secs(90));
    };
    assert_eq!(check(gone), "the wheel has one that is gone");
}

#[test]
fn entry_that_nobody_knows_of_is_found() {
    let forget = |tcp: &mut Tcp<Vec<u8>>, slot: u32| tcp.connections[slot].clock.wheel_tick = crate::proto::slab::NIL;
    assert_eq!(check(forget), "the wheel comes by, and it does not know");
}

#[test]
fn data_on_its_way_without_a_timer_is_found() {
    let stop = |tcp: &mut Tcp<Vec<u8>>, slot: u32| {
        let connection = &mut tcp.connections[slot];
        (connection.clock.timer, connection.clock.timer_at) = (RetransmitTimer::Off, Instant::MAX);
    };
    assert_eq!(check(stop), "data is on its way, and nothing would send it again");
}

#[test]
fn acknowledgment_that_nobody_sends_is_found() {
    let owe = |tcp: &mut Tcp<Vec<u8>>, slot: u32| tcp.connections[slot].clock.ack_owed = AckOwed::Now;
    assert_eq!(check(owe), "an acknowledgment is owed, and nobody sends it");
}

#[test]
fn flag_without_a_place_in_the_list_is_found() {
    let lie = |tcp: &mut Tcp<Vec<u8>>, slot: u32| tcp.connections[slot].set(OutputFlags::IN_FLUSH);
    assert_eq!(check(lie), "its flag says that it is in the list of the burst, and it is not");
}

#[test]
fn keepalive_that_asks_nobody_is_found() {
    let silence = |tcp: &mut Tcp<Vec<u8>>, slot: u32| tcp.connections[slot].options.keepalive_count = 3;
    assert_eq!(check(silence), "keepalive asks nobody");
}

#[test]
fn rate_that_holds_back_for_ever_is_found() {
    let hold = |tcp: &mut Tcp<Vec<u8>>, slot: u32| {
        let at = Instant::ZERO + Duration::from_millis(500);
        tcp.connections[slot].rare_clock.pace_at = at;
        tcp.connections[slot].set(OutputFlags::PACED);
        tcp.shared.wheel.set(slot, at);
    };
    assert_eq!(check(hold), "its rate holds back, and the moment is over");
}

#[test]
fn wheel_that_stands_still_is_found() {
    let (client, _) = connected();
    let fault = client.tcp.check_timers(Some(client.now + Duration::from_secs(1))).unwrap_err();
    assert_eq!(fault.what, "the wheel stands still");
}
