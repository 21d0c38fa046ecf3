//! Our FIX session against QuickFIX over loopback TCP, as initiator and as acceptor.
//!
//! The peer is `quickfix/peer.cpp`, built here with the distribution's library
//! (`libquickfix-dev`). Without the library or a compiler of C++ each test says SKIPPED.
#![allow(clippy::unwrap_used, reason = "a test may unwrap: a panic is the report")]
#![cfg(target_os = "linux")]

#[path = "quickfix/driver.rs"]
mod driver;

use std::thread;

use order_entry::fix::codec::Writer;
use order_entry::fix::session::{MessageStore, Role, Schedule, SessionConfig, Version};

use driver::{Driver, Peer, config};

/// Runs a test where QuickFIX is installed.
fn with_quickfix(test: &str, run: impl FnOnce()) {
    match driver::peer_program() {
        Ok(_) => run(),
        Err(why) => println!("SKIPPED {test}: {why}"),
    }
}

/// Runs a test in both roles at once, so that the second costs no time.
fn in_both_roles(test: &str, run: impl Fn(SessionConfig) + Sync) {
    with_quickfix(test, || {
        thread::scope(|scope| {
            for role in [Role::Initiator, Role::Acceptor] {
                let run = &run;
                scope.spawn(move || run(SessionConfig { role, ..config() }));
            }
        });
    });
}

/// Both sides logged on.
fn logged_on(config: SessionConfig, settings: &[&str]) -> (Driver, Peer) {
    let mut driver = Driver::new(config);
    let mut peer = Peer::start(&mut driver, settings);
    driver.log_on(&mut peer);
    (driver, peer)
}

#[test]
fn all_versions_log_on_talk_and_log_out_in_both_roles() {
    with_quickfix("all_versions_log_on_talk_and_log_out_in_both_roles", || {
        for role in [Role::Initiator, Role::Acceptor] {
            for version in [Version::Fix42, Version::Fix44, Version::Fix50Sp2] {
                let (mut driver, mut peer) = logged_on(SessionConfig { role, version, ..config() }, &[]);
                driver.send("B", "from us");
                driver.wait_for_line(&mut peer, &["in ", "|35=B|", "|148=from us|"]);
                peer.tell("send B 148=from them");
                driver.wait("their message", |driver| driver.texts() == ["from them"]);
                driver.logout();
                driver.wait("the end", |driver| driver.ends == ["logged out"]);
                driver.wait_for_line(&mut peer, &["logout"]);
            }
        }
    });
}

#[test]
fn peer_logs_out_and_is_answered() {
    in_both_roles("peer_logs_out_and_is_answered", |config| {
        let (mut driver, mut peer) = logged_on(config, &[]);
        peer.tell("logout");
        driver.wait("the end", |driver| driver.ends == ["the peer logged out"]);
        driver.wait_for_line(&mut peer, &["in ", "|35=5|"]);
    });
}

#[test]
fn what_we_missed_is_requested_once_and_comes_in_order() {
    in_both_roles("what_we_missed_is_requested_once_and_comes_in_order", |config| {
        let (mut driver, mut peer) = logged_on(config, &[]);
        driver.hang_up();
        driver.wait_for_line(&mut peer, &["logout"]);
        for text in ["one", "two", "three"] {
            peer.tell(&format!("send B 148={text}"));
            driver.wait_for_line(&mut peer, &["out ", &format!("|148={text}|")]);
        }
        driver.log_on(&mut peer);
        driver.wait("the resend", |driver| driver.texts() == ["one", "two", "three"]);
        peer.tell("send B 148=four");
        driver.wait("the next", |driver| driver.texts().len() == 4);
        assert_eq!(driver.session.counts().resends_requested, 1);
        assert_eq!(driver.again, 3);
    });
}

#[test]
fn what_the_peer_missed_is_resent_but_orders_are_filled() {
    in_both_roles("what_the_peer_missed_is_resent_but_orders_are_filled", |config| {
        let (mut driver, mut peer) = logged_on(config, &[]);
        driver.lose_output();
        for (msg_type, text) in [("B", "one"), ("D", "order"), ("F", "cancel"), ("B", "two")] {
            driver.send(msg_type, text);
        }
        driver.hang_up();
        driver.wait_for_line(&mut peer, &["logout"]);
        driver.log_on(&mut peer);
        driver.wait_for_line(&mut peer, &["in ", "|35=B|34=2|43=Y|", "|148=one|"]);
        driver.wait_for_line(&mut peer, &["in ", "|35=4|34=3|", "|36=5|", "|123=Y|"]);
        driver.wait_for_line(&mut peer, &["in ", "|35=B|34=5|43=Y|", "|148=two|"]);
        assert_eq!(driver.not_resent, [3, 4]);
        driver.send("B", "three");
        driver.wait_for_line(&mut peer, &["in ", "|148=three|"]);
    });
}

#[test]
fn both_sides_miss_messages_and_both_recover() {
    in_both_roles("both_sides_miss_messages_and_both_recover", |config| {
        let (mut driver, mut peer) = logged_on(config, &[]);
        driver.lose_output();
        driver.send("B", "ours");
        driver.hang_up();
        driver.wait_for_line(&mut peer, &["logout"]);
        peer.tell("send B 148=theirs");
        driver.wait_for_line(&mut peer, &["out ", "|148=theirs|"]);
        driver.log_on(&mut peer);
        driver.wait_for_line(&mut peer, &["in ", "|43=Y|", "|148=ours|"]);
        driver.wait("theirs", |driver| driver.texts() == ["theirs"]);
        driver.send("B", "next");
        driver.wait_for_line(&mut peer, &["in ", "|148=next|"]);
        peer.tell("send B 148=next of theirs");
        driver.wait("the next", |driver| driver.texts().len() == 2);
    });
}

#[test]
fn duplicates_of_the_peer_are_left_out() {
    in_both_roles("duplicates_of_the_peer_are_left_out", |config| {
        let (mut driver, mut peer) = logged_on(config, &[]);
        for text in ["one", "two"] {
            peer.tell(&format!("send B 148={text}"));
        }
        driver.wait("both", |driver| driver.texts().len() == 2);
        driver.send_fields("2", &[(7, "1"), (16, "0")]);
        driver.wait("the resend", |driver| driver.session.counts().duplicates >= 3);
        assert_eq!(driver.texts(), ["one", "two"]);
    });
}

#[test]
fn possible_duplicate_without_its_first_time_is_rejected_by_the_peer() {
    in_both_roles("possible_duplicate_without_its_first_time_is_rejected_by_the_peer", |config| {
        let (mut driver, _peer) = logged_on(config, &[]);
        driver.send("B", "one");
        driver.inject(|out: &mut Writer<'_>, time| {
            out.field(35, b"B").number(34, 2).field(43, b"Y").field(49, b"US").field(52, time).field(56, b"THEM");
            out.field(148, b"one");
        });
        driver.wait("the reject", |driver| driver.rejected == [2]);
    });
}

#[test]
fn reset_of_the_peers_numbers_is_followed() {
    in_both_roles("reset_of_the_peers_numbers_is_followed", |config| {
        let (mut driver, mut peer) = logged_on(config, &[]);
        peer.tell("send 4 36=20|123=N");
        driver.wait_for_line(&mut peer, &["out ", "|35=4|"]);
        peer.tell("next_out 20");
        peer.tell("send B 148=twenty");
        driver.wait("number 20", |driver| driver.received == [(20, "twenty".to_owned())]);
        assert_eq!(driver.session.counts().resends_requested, 0);
    });
}

#[test]
fn logon_that_resets_begins_both_numbers_anew() {
    with_quickfix("logon_that_resets_begins_both_numbers_anew", || {
        let (mut driver, mut peer) = logged_on(SessionConfig { reset_on_logon: true, ..config() }, &[]);
        driver.send("B", "one");
        driver.wait_for_line(&mut peer, &["in ", "|35=B|34=2|"]);
        driver.hang_up();
        driver.wait_for_line(&mut peer, &["logout"]);
        driver.log_on(&mut peer);
        driver.send("B", "again");
        driver.wait_for_line(&mut peer, &["in ", "|35=B|34=2|", "|148=again|"]);
        peer.tell("send B 148=theirs");
        driver.wait("theirs", |driver| driver.received == [(2, "theirs".to_owned())]);
    });
}

#[test]
fn reset_by_the_peers_logon_is_answered() {
    with_quickfix("reset_by_the_peers_logon_is_answered", || {
        let config = SessionConfig { role: Role::Acceptor, ..config() };
        let (mut driver, mut peer) = logged_on(config, &["ResetOnLogon=Y"]);
        driver.send("B", "one");
        driver.wait_for_line(&mut peer, &["in ", "|35=B|34=2|"]);
        driver.hang_up();
        driver.wait_for_line(&mut peer, &["logout"]);
        driver.log_on(&mut peer);
        assert!(driver.wrote("|98=0|108=30|141=Y|"));
        driver.send("B", "again");
        driver.wait_for_line(&mut peer, &["in ", "|35=B|34=2|", "|148=again|"]);
    });
}

#[test]
fn heartbeats_and_questions_are_answered_by_both() {
    in_both_roles("heartbeats_and_questions_are_answered_by_both", |config| {
        let config = SessionConfig { heartbeat_s: 2, ..config };
        let (mut driver, mut peer) = logged_on(config, &[]);
        driver.wait_for_line(&mut peer, &["in ", "|35=0|"]);
        driver.wait_for_line(&mut peer, &["out ", "|35=0|"]);
        // We are silent until the peer asks, and then answer.
        peer.wait_for_line(&["out ", "|35=1|"]);
        driver.wait_for_line(&mut peer, &["in ", "|35=0|", "|112="]);
        // The peer is silent until we ask, and then answers.
        peer.pause();
        driver.wait("our question", |driver| driver.wrote("|35=1|"));
        peer.go_on();
        driver.wait_for_line(&mut peer, &["out ", "|35=0|", "|112=TEST1|"]);
        driver.send("B", "alive");
        driver.wait_for_line(&mut peer, &["in ", "|148=alive|"]);
        assert!(driver.ends.is_empty(), "{:?}", driver.ends);
    });
}

#[test]
fn peer_that_says_nothing_more_is_dead() {
    in_both_roles("peer_that_says_nothing_more_is_dead", |config| {
        let (mut driver, mut peer) = logged_on(SessionConfig { heartbeat_s: 1, ..config }, &[]);
        peer.pause();
        driver.wait("the end", |driver| driver.ends == ["nothing from the peer for 2.4 heartbeat intervals"]);
        peer.go_on();
    });
}

#[test]
fn rejects_reach_the_peer_and_the_session_goes_on() {
    in_both_roles("rejects_reach_the_peer_and_the_session_goes_on", |config| {
        let config = SessionConfig { supported_types: vec!["B".into()], ..config };
        let (mut driver, mut peer) = logged_on(config, &[]);
        peer.tell("send ZZ 58=text");
        driver.wait_for_line(&mut peer, &["in ", "|35=3|", "|373=11|"]);
        peer.tell("send AE 571=x");
        driver.wait_for_line(&mut peer, &["in ", "|35=j|", "|380=3|"]);
        peer.tell("send B 97=x|148=text");
        driver.wait_for_line(&mut peer, &["in ", "|35=3|", "|371=97|", "|373=6|"]);
        peer.tell("send B 148=fine");
        driver.wait("the good one", |driver| driver.texts() == ["fine"]);
    });
}

#[test]
fn number_of_ours_that_is_too_low_ends_the_session() {
    in_both_roles("number_of_ours_that_is_too_low_ends_the_session", |config| {
        let (mut driver, mut peer) = logged_on(config, &[]);
        driver.hang_up();
        driver.wait_for_line(&mut peer, &["logout"]);
        driver.forget();
        driver.connect();
        driver.wait("the end", |driver| driver.ends == ["the peer logged out"]);
    });
}

#[test]
fn number_of_the_peer_that_is_too_low_ends_the_session() {
    in_both_roles("number_of_the_peer_that_is_too_low_ends_the_session", |config| {
        let (mut driver, mut peer) = logged_on(config, &[]);
        peer.tell("send B 148=one");
        driver.wait("one", |driver| driver.texts().len() == 1);
        peer.tell("next_out 1");
        peer.tell("send B 148=low");
        driver.wait("the end", |driver| driver.ends.len() == 1);
        assert!(driver.ends[0].starts_with("MsgSeqNum (34) must not be lower"), "{:?}", driver.ends);
        driver.wait_for_line(&mut peer, &["in ", "|35=5|", "MsgSeqNum too low, expecting 3 but received 1"]);
    });
}

#[test]
fn end_of_the_peers_day_logs_out_and_resets() {
    with_quickfix("end_of_the_peers_day_logs_out_and_resets", || {
        let end = driver::time_of_day_in(4);
        let settings = [format!("StartTime={}", driver::time_of_day_in(-3_600)), format!("EndTime={end}")];
        let (mut driver, mut peer) = logged_on(config(), &[&settings[0], &settings[1]]);
        driver.send("B", "one");
        driver.wait_for_line(&mut peer, &["in ", "|35=B|34=2|"]);
        driver.wait("the end", |driver| driver.ends == ["the peer logged out"]);
    });
}

#[test]
fn end_of_our_day_logs_out_and_begins_both_numbers_anew() {
    with_quickfix("end_of_our_day_logs_out_and_begins_both_numbers_anew", || {
        let day = Schedule::daily(driver::second_of_day_in(-3_600), driver::second_of_day_in(4));
        let (mut driver, mut peer) = logged_on(SessionConfig { schedule: Some(day), ..config() }, &[]);
        driver.send("B", "one");
        driver.wait_for_line(&mut peer, &["in ", "|35=B|34=2|"]);
        driver.wait("the end", |driver| driver.ends == ["the session is not open now"]);
        driver.wait_for_line(&mut peer, &["in ", "|35=5|34=3|", "|58=end of the session|"]);
        let store = driver.session.store();
        assert_eq!((store.next_out(), store.next_in()), (1, 1));
    });
}
