//! What a venue does against the rules, and what is lost by it.

use super::*;
use crate::fix::codec::{Precision, UtcText};
use crate::session::READ_ATTEMPTS;

#[test]
fn report_that_breaks_a_rule_ends_the_connection_and_is_not_passed_over() {
    let (mut client, mut venue) = open(Version::Fix44);
    let number = client.session.store().next_in();
    venue
        .session
        .send(Venue::now(1), "8", |out| {
            out.field(37, b"1").field(17, b"E1");
        })
        .unwrap();
    for second in 1..3 {
        let error = try_pump(&mut client, &mut venue, second * SECOND).unwrap_err();
        assert_eq!(error.to_string(), "the venue's message 8: Required tag missing, field 14");
        assert_eq!(client.session.store().next_in(), number);
        disconnect(&mut client, &mut venue);
        venue.session.connected(Venue::now(second * SECOND));
        VenueSession::connected(&mut client, second * SECOND).unwrap();
    }
}

/// Each defect is one that the session itself finds: an empty field, a tag of the header behind the
/// body, one that comes twice, and a Reject (3) of an order.
#[test]
fn report_that_the_session_refuses_ends_the_connection_and_is_not_passed_over() {
    type Body = fn(&mut Writer<'_>);
    let bodies: [(&str, Body, &str); 4] = [
        (
            "8",
            |out| {
                out.field(37, b"1").field(58, b"");
            },
            "8: Tag specified without a value, field 58",
        ),
        (
            "8",
            |out| {
                out.field(37, b"1").field(97, b"Y");
            },
            "8: Tag specified out of required order, field 97",
        ),
        (
            "9",
            |out| {
                out.field(97, b"Y").field(97, b"Y");
            },
            "9: Tag appears more than once, field 97",
        ),
        (
            "3",
            |out| {
                out.number(45, 3).field(58, b"");
            },
            "3: Tag specified without a value, field 58",
        ),
    ];
    for (msg_type, body, words) in bodies {
        let (mut client, mut venue) = open(Version::Fix44);
        let number = client.session.store().next_in();
        venue.session.send(Venue::now(1), msg_type, body).unwrap();
        for second in 1..3 {
            let error = try_pump(&mut client, &mut venue, second * SECOND).unwrap_err();
            assert_eq!(error.to_string(), format!("the venue's message {words}"));
            assert_eq!(VenueSession::mark(&client).next_inbound, number);
            disconnect(&mut client, &mut venue);
            venue.session.connected(Venue::now(second * SECOND));
            VenueSession::connected(&mut client, second * SECOND).unwrap();
        }
    }
}

#[test]
fn message_of_a_type_that_fix_has_not_is_passed_over() {
    let (mut client, mut venue) = open(Version::Fix44);
    let number = client.session.store().next_in();
    venue
        .session
        .send(Venue::now(1), "ZZ", |out| {
            out.field(58, b"text");
        })
        .unwrap();
    let events = pump(&mut client, &mut venue, 1);
    assert_eq!(events, [SessionEvent::Message { number, message: VenueMessage::Other }]);
}

/// A SequenceReset without gap fill that raises the venue's next number by three.
fn skip(venue: &mut Venue) {
    let number = venue.session.store().next_out();
    venue
        .session
        .send(Venue::now(1), "4", |out| {
            out.number(36, number + 3);
        })
        .unwrap();
    venue.session.store_mut().set_next_out(number + 3);
}

#[test]
fn reset_that_passes_over_reports_ends_the_session_and_the_next_login_tells_it() {
    let (mut client, mut venue) = open(Version::Fix44);
    let number = client.session.store().next_in();
    skip(&mut venue);
    let error = try_pump(&mut client, &mut venue, 1).unwrap_err();
    let words = format!("the venue passes over its messages from number {number} on (SequenceReset)");
    assert_eq!((error.to_string(), VenueSession::mark(&client).next_inbound), (words, number));
    disconnect(&mut client, &mut venue);
    let events = connect(&mut client, &mut venue, SECOND);
    assert!(matches!(events[0], SessionEvent::LoggedIn { is_gap: true, .. }), "{events:?}");
    assert!(VenueSession::is_open(&client));
}

#[test]
fn reset_that_passes_over_reports_before_the_session_opens_is_a_gap() {
    let (mut client, mut venue) = (client(Version::Fix44), Venue::new(Version::Fix44));
    venue.session.connected(Venue::now(0));
    VenueSession::connected(&mut client, 0).unwrap();
    venue.take(client.to_send(), 0);
    client.sent(client.to_send().len());
    skip(&mut venue);
    let next_inbound = venue.session.store().next_out();
    let told = pump(&mut client, &mut venue, 0);
    let logins = told.iter().filter_map(|event| match event {
        SessionEvent::LoggedIn { mark, is_gap } => Some((mark.next_inbound, *is_gap)),
        _ => None,
    });
    assert_eq!(logins.collect::<Vec<_>>(), [(2, false), (next_inbound, true)]);
    assert!(VenueSession::is_open(&client));
}

/// A client that is logged on, and whose question the line has lost.
fn ask_in_vain() -> (FixClient, Venue) {
    let (mut client, mut venue) = (client_of(SessionConfig::default()), Venue::new(Version::Fix44));
    venue.session.connected(Venue::now(0));
    VenueSession::connected(&mut client, 0).unwrap();
    venue.take(client.to_send(), 0);
    client.sent(client.to_send().len());
    let mut input = venue.session.output();
    while VenueSession::receive(&mut client, 0, &mut input).unwrap().is_some() {}
    venue.session.consume(venue.session.output().len());
    assert!(client.to_send().windows(6).any(|window| window == b"\x0135=1\x01"));
    // As if the question had no TestReqID: taken, and not answered.
    let lost = client.to_send().len();
    client.sent(lost);
    let number = venue.session.store().next_in();
    venue.session.store_mut().set_next_in(number + 1);
    (client, venue)
}

#[test]
fn question_is_asked_again_and_its_answer_opens_the_session() {
    let (mut client, mut venue) = ask_in_vain();
    VenueSession::tick(&mut client, 10 * SECOND - 1).unwrap();
    assert_eq!(client.to_send(), b"");
    VenueSession::tick(&mut client, 10 * SECOND).unwrap();
    let said = messages(&pump(&mut client, &mut venue, 10 * SECOND));
    assert_eq!(said, [settled(client.processed_below)]);
    assert!(VenueSession::is_open(&client));
}

#[test]
fn second_question_without_an_answer_ends_the_connection() {
    let (mut client, _) = ask_in_vain();
    for second in [10, 19] {
        VenueSession::tick(&mut client, second * SECOND).unwrap();
    }
    let error = VenueSession::tick(&mut client, 20 * SECOND).unwrap_err();
    assert_eq!(error.to_string(), "the venue does not answer the TestRequest (1) behind the Logon");
}

/// A venue may take long to send a day again: while messages are missing, each that comes begins
/// the time anew, which is that of a request for a resend.
#[test]
fn question_waits_for_the_messages_that_are_missing() {
    let (mut client, mut venue) = ask_in_vain();
    let number = venue.session.store().next_out();
    let asked = |client: &FixClient| client.to_send().windows(3).filter(|window| window == b"ASK").count();
    // The second of three is missing still.
    for (skipped, second) in [(number + 2, 1), (number, 25)] {
        venue.session.store_mut().set_next_out(skipped);
        venue.accept(1);
        let mut input = venue.session.output();
        while VenueSession::receive(&mut client, second * SECOND, &mut input).unwrap().is_some() {}
        venue.session.consume(venue.session.output().len());
    }
    VenueSession::tick(&mut client, 55 * SECOND - 1).unwrap();
    assert_eq!(asked(&client), 0);
    VenueSession::tick(&mut client, 55 * SECOND).unwrap();
    assert_eq!(asked(&client), 1);
}

/// The numbers begin anew while the connection ends, at an hour that is in the next span already.
#[test]
fn numbers_that_begin_anew_at_the_end_of_the_day_are_a_gap() {
    let midnight = (UTC / (86_400 * SECOND) + 1) * 86_400 * SECOND - UTC;
    let schedule = Some(Schedule::daily(0, 0));
    let session = SessionConfig { heartbeat_s: 0, schedule, ..SessionConfig::default() };
    let (mut client, mut venue) = (client_of(session), Venue::new(Version::Fix44));
    connect(&mut client, &mut venue, 0);
    order(&mut client, 1);
    let error = VenueSession::tick(&mut client, midnight).unwrap_err();
    assert_eq!(error.to_string(), "the session is not open now");
    disconnect(&mut client, &mut venue);
    let events = connect(&mut client, &mut Venue::new(Version::Fix44), midnight + 1);
    assert!(matches!(events[0], SessionEvent::LoggedIn { is_gap: true, .. }), "{events:?}");
}

#[test]
fn refusal_that_names_an_id_alone_is_that_of_its_request() {
    let (mut client, mut venue) = open(Version::Fix44);
    let (refused, canceled) = (order(&mut client, 1), order(&mut client, 1));
    let cancel = client.next_id();
    client.cancel_order(1, &target(canceled)).unwrap();
    pump(&mut client, &mut venue, 1);
    for id in [refused, cancel] {
        let body = |out: &mut Writer<'_>| {
            out.display(379, format_args!("{id:016}")).number(380, 8);
        };
        venue.session.send(Venue::now(1), "j", body).unwrap();
    }
    let cancel_refused = VenueMessage::answer(
        OrderKey::Client(canceled),
        VenueEvent::CancelRefused { reason: RefusedBy::Business.reason(8) },
    );
    let said = messages(&pump(&mut client, &mut venue, 1));
    assert_eq!(said, [VenueMessage::Refused { id: refused, reason: RefusedBy::Business.reason(8) }, cancel_refused]);
}

#[test]
fn longest_heartbeat_of_a_configuration_is_a_day() {
    let mut client = client_of(SessionConfig { heartbeat_s: u32::MAX, ..SessionConfig::default() });
    let mut venue = Venue::new(Version::Fix44);
    venue.session.connected(Venue::now(0));
    VenueSession::connected(&mut client, 0).unwrap();
    assert!(client.to_send().windows(11).any(|window| window == b"\x01108=86400\x01"));
    pump(&mut client, &mut venue, 0);
    VenueSession::tick(&mut client, 0).unwrap();
}

/// A power cut took the end of the journal: the numbers of its mark were used.
#[test]
fn numbers_that_the_venue_has_used_are_a_gap_and_not_climbed_over() {
    for version in VERSIONS {
        let (mut before, mut venue) = open(version);
        let mark = VenueSession::mark(&before);
        let lost: Vec<u64> = (0..5).map(|_| order(&mut before, 1)).collect();
        pump(&mut before, &mut venue, 1);
        venue.session.disconnected();
        let mut after = client(version);
        VenueSession::resume(&mut after, &mark);
        venue.session.connected(Venue::now(SECOND));
        VenueSession::connected(&mut after, SECOND).unwrap();
        let error = try_pump(&mut after, &mut venue, SECOND).unwrap_err();
        assert!(error.is_gap() && error.to_string().contains("the journal does not have"), "{error}");
        disconnect(&mut after, &mut venue);
        let events = connect(&mut after, &mut venue, 2 * SECOND);
        assert!(matches!(events[0], SessionEvent::LoggedIn { is_gap: true, .. }), "{events:?}");
        assert!(VenueSession::is_open(&after) && after.next_id() > lost[4], "a lost order's number is free");
    }
}

#[test]
fn number_of_a_logout_that_no_session_reaches_is_not_taken() {
    let (mut client, mut venue) = open(Version::Fix44);
    let next = client.session.store().next_out();
    venue.session.logout(Venue::now(1), "MsgSeqNum too low, expecting 18446744073709551615 but received 3");
    let mut input = venue.session.output();
    let error = VenueSession::receive(&mut client, 1, &mut input).unwrap_err();
    assert!(error.is_gap(), "{error}");
    VenueSession::disconnected(&mut client);
    VenueSession::connected(&mut client, SECOND).unwrap();
    assert!(client.session.store().next_out() <= next + 2);
}

#[test]
fn report_that_stays_unreadable_is_passed_over_with_its_bytes_and_the_session_opens() {
    let (mut client, mut venue) = open(Version::Fix44);
    let number = client.session.store().next_in();
    let body = |out: &mut Writer<'_>| {
        out.field(37, b"1").field(17, b"UNREADABLE");
    };
    venue.session.send(Venue::now(1), "8", body).unwrap();
    for second in 1..READ_ATTEMPTS.into() {
        try_pump(&mut client, &mut venue, second * SECOND).unwrap_err();
        disconnect(&mut client, &mut venue);
        venue.session.connected(Venue::now(second * SECOND));
        VenueSession::connected(&mut client, second * SECOND).unwrap();
    }
    let events = pump(&mut client, &mut venue, 9 * SECOND);
    assert!(events.contains(&SessionEvent::Unread { number }), "{events:?}");
    assert!(VenueSession::unread(&client).windows(10).any(|window| window == b"UNREADABLE"));
    assert!(VenueSession::is_open(&client) && VenueSession::mark(&client).next_inbound > number);
}

#[test]
fn status_of_an_order_that_the_venue_does_not_know_says_so_and_not_that_it_is_dead() {
    for version in [Version::Fix44, Version::Fix50Sp2] {
        let (mut client, mut venue) = open(version);
        let id = order(&mut client, 1);
        pump(&mut client, &mut venue, 1);
        venue.report(id, (ExecType::OrderStatus, OrdStatus::Rejected), 0, None);
        let unknown = VenueMessage::Unknown { key: OrderKey::Client(id) };
        assert_eq!(messages(&pump(&mut client, &mut venue, 2)), [unknown]);
    }
}

/// A venue whose report 3 has a wrong sum, however often it is asked for; it is asked until it
/// answers no more. The error that ends the connection.
fn hear_garbled(client: &mut FixClient, venue: &mut Venue, second: &mut u64) -> SessionError {
    loop {
        let now_ns = *second * SECOND;
        venue.take(client.to_send(), now_ns);
        client.sent(client.to_send().len());
        let mut answers = venue.session.output().to_vec();
        venue.session.consume(answers.len());
        if let Some(at) = answers.windows(7).position(|window| window == b"GARBLED") {
            answers[at] = b'X';
        }
        let mut input = &answers[..];
        let heard = loop {
            match VenueSession::receive(client, now_ns, &mut input) {
                Ok(Some(_)) => (),
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        if let Err(error) = heard.and_then(|()| VenueSession::tick(client, now_ns)) {
            return error;
        }
        if answers.is_empty() {
            *second += 1;
        }
        assert!(*second < 1_000, "the message is asked for without end");
    }
}

#[test]
fn message_whose_sum_stays_wrong_is_passed_over_as_a_gap_and_the_session_opens() {
    let session = SessionConfig { heartbeat_s: 0, ..SessionConfig::default() };
    let (mut client, mut venue) = (client_of(session), Venue::new(Version::Fix44));
    connect(&mut client, &mut venue, 0);
    let number = client.session.store().next_in();
    venue
        .session
        .send(Venue::now(1), "8", |out| {
            out.field(37, b"1").field(17, b"GARBLED");
        })
        .unwrap();
    venue.accept(1);
    let mut second = 1;
    for attempt in 1..=READ_ATTEMPTS {
        let error = hear_garbled(&mut client, &mut venue, &mut second);
        assert_eq!(error.is_gap(), attempt == READ_ATTEMPTS, "{error}");
        assert!(error.to_string().contains("a ResendRequest (2) must be answered by whole messages"), "{error}");
        disconnect(&mut client, &mut venue);
        venue.session.connected(Venue::now(second * SECOND));
        VenueSession::connected(&mut client, second * SECOND).unwrap();
    }
    assert_eq!(client.session.store().next_in(), number + 1);
    let events = pump(&mut client, &mut venue, second * SECOND);
    assert!(matches!(events[0], SessionEvent::LoggedIn { is_gap: true, .. }), "{events:?}");
    assert!(VenueSession::is_open(&client));
}

/// A client that goes on at a mark behind which five orders were sent, because a power cut took the
/// end of the journal, and its venue.
fn behind_a_power_cut() -> (FixClient, Venue) {
    let (mut before, mut venue) = open(Version::Fix44);
    let mark = VenueSession::mark(&before);
    for _ in 0..5 {
        order(&mut before, 1);
    }
    pump(&mut before, &mut venue, 1);
    venue.session.disconnected();
    let mut after = client(Version::Fix44);
    VenueSession::resume(&mut after, &mark);
    (after, venue)
}

/// It closes the connection of each Logon whose number is too low, and says nothing or other words.
#[test]
fn numbers_that_a_venue_of_few_words_has_used_are_a_gap() {
    let (mut client, mut venue) = behind_a_power_cut();
    let mut closed = 0;
    let events = loop {
        closed += 1;
        let now_ns = closed * SECOND;
        VenueSession::connected(&mut client, now_ns).unwrap();
        if client.session.store().next_out() > venue.session.store().next_in() {
            venue.session.connected(Venue::now(now_ns));
            break pump(&mut client, &mut venue, now_ns);
        }
        VenueSession::disconnected(&mut client);
    };
    assert!(closed > 5, "the first Logon had a number that was used");
    let is_gap = |event: &SessionEvent| matches!(event, SessionEvent::LoggedIn { is_gap: true, .. });
    let settled =
        |event: &SessionEvent| matches!(event, SessionEvent::Message { message: VenueMessage::Settled { .. }, .. });
    let (gap, open) = (events.iter().position(is_gap), events.iter().position(settled));
    assert!(gap.is_some() && gap < open, "{events:?}");
    assert!(VenueSession::is_open(&client));
}

/// The venue was away, and asks for the Logons that it did not see: it has all that was before.
#[test]
fn logons_that_the_venue_asks_for_were_not_too_low() {
    let (mut before, mut venue) = open(Version::Fix44);
    let mark = VenueSession::mark(&before);
    disconnect(&mut before, &mut venue);
    let mut after = client(Version::Fix44);
    VenueSession::resume(&mut after, &mark);
    for second in 1..4 {
        VenueSession::connected(&mut after, second * SECOND).unwrap();
        VenueSession::disconnected(&mut after);
    }
    let events = connect(&mut after, &mut venue, 4 * SECOND);
    assert!(!events.iter().any(|event| matches!(event, SessionEvent::LoggedIn { is_gap: true, .. })), "{events:?}");
    assert!(VenueSession::is_open(&after));
}

/// The line broke behind the venue's answers: their numbers are missing here.
#[test]
fn logons_whose_answers_were_lost_were_not_too_low() {
    let (mut before, mut venue) = open(Version::Fix44);
    let mark = VenueSession::mark(&before);
    disconnect(&mut before, &mut venue);
    let mut after = client(Version::Fix44);
    VenueSession::resume(&mut after, &mark);
    for second in 1..4 {
        venue.session.connected(Venue::now(second * SECOND));
        VenueSession::connected(&mut after, second * SECOND).unwrap();
        venue.take(after.to_send(), second * SECOND);
        disconnect(&mut after, &mut venue);
    }
    let events = connect(&mut after, &mut venue, 4 * SECOND);
    assert!(!events.iter().any(|event| matches!(event, SessionEvent::LoggedIn { is_gap: true, .. })), "{events:?}");
    assert!(VenueSession::is_open(&after));
}

/// The Logon was answered, and the line lost the question behind it.
#[test]
fn logon_that_was_answered_was_not_too_low() {
    let (mut before, mut venue) = open(Version::Fix44);
    let mark = VenueSession::mark(&before);
    disconnect(&mut before, &mut venue);
    let mut after = client(Version::Fix44);
    VenueSession::resume(&mut after, &mark);
    venue.session.connected(Venue::now(SECOND));
    VenueSession::connected(&mut after, SECOND).unwrap();
    venue.take(after.to_send(), SECOND);
    after.sent(after.to_send().len());
    let mut input = venue.session.output();
    while VenueSession::receive(&mut after, SECOND, &mut input).unwrap().is_some() {}
    disconnect(&mut after, &mut venue);
    let events = connect(&mut after, &mut venue, 2 * SECOND);
    assert!(!events.iter().any(|event| matches!(event, SessionEvent::LoggedIn { is_gap: true, .. })), "{events:?}");
    assert!(VenueSession::is_open(&after));
}

/// A Logout with other words than FIX prescribes uses a number of the venue's, as an answer does.
#[test]
fn numbers_that_a_venue_has_refused_with_other_words_are_a_gap() {
    let (mut client, mut venue) = behind_a_power_cut();
    for second in 1..9 {
        VenueSession::connected(&mut client, second * SECOND).unwrap();
        if client.session.store().next_out() > venue.session.store().next_in() {
            venue.session.connected(Venue::now(second * SECOND));
            let events = pump(&mut client, &mut venue, second * SECOND);
            let is_gap = |event: &SessionEvent| matches!(event, SessionEvent::LoggedIn { is_gap: true, .. });
            assert!(events.iter().any(is_gap) && VenueSession::is_open(&client), "{events:?}");
            return;
        }
        let number = venue.session.store().next_out();
        venue.session.store_mut().set_next_out(number + 1);
        let mut room = [0; 256];
        let (mut utc, mut writer) = (UtcText::new(Precision::Millis), Writer::new(&mut room));
        writer.field(35, b"5").number(34, number).field(49, b"VENUE").field(52, utc.write(UTC + second * SECOND));
        let logout = writer.field(56, b"TRADER").field(58, b"go away").finish(b"FIX.4.4").unwrap();
        let error = VenueSession::receive(&mut client, second * SECOND, &mut &*logout).unwrap_err();
        assert!(!error.is_gap(), "{error}");
        VenueSession::disconnected(&mut client);
    }
    panic!("the client does not reach the venue's number");
}

/// AvgPx (6) of a venue that prints a double, and other fields that change nothing of a fill.
#[test]
fn fill_counts_however_fields_are_written_that_it_does_not_need() {
    let (mut client, mut venue) = open(Version::Fix44);
    let id = order(&mut client, 1);
    pump(&mut client, &mut venue, 1);
    let send = |out: &mut Writer<'_>| {
        out.field(6, b"10.0666666666667").field(11, format!("{id:016}").as_bytes()).number(14, 100);
        out.field(17, b"E1").field(31, b"10.0666666666667").number(32, 100).field(37, b"77").field(39, b"2");
        out.field(40, b"x").field(44, b"1e1").field(54, b"1").field(55, b"WIRE").field(59, b"?").field(60, b"now");
        out.field(103, b"none").field(150, b"F").number(151, 0).field(378, b"-");
    };
    venue.session.send(Venue::now(1), "8", send).unwrap();
    let events = pump(&mut client, &mut venue, 2);
    let filled = events.iter().filter_map(|event| match event {
        SessionEvent::Message {
            message: VenueMessage::Answer { event: VenueEvent::Filled { qty, price, .. }, .. },
            ..
        } => Some((*qty, *price)),
        _ => None,
    });
    assert_eq!(filled.collect::<Vec<_>>(), [(100, Price(100_667))]);
}
