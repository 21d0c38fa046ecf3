use super::*;
use crate::orders::{OrderKey, VenueEvent};
use crate::ouch::FENCE_LEN;
use crate::ouch::v50::{AccountQueryResponse, Field, Inbound, OrderCanceled};
use crate::session::{Output, READ_ATTEMPTS, SendError, VenueSession};
use crate::soupbin::{Credentials, Server, ServerConfig, ServerEvent};

/// A venue that accepts each login, and the client.
struct Line {
    server: Server,
    client: OuchClient,
    /// The indices of the account queries of the last login.
    asked: Vec<u8>,
}

impl Line {
    /// Connected, and logged in; the account query waits for its answer.
    fn logged_in() -> (Self, SessionEvent) {
        let credentials = Credentials::new("USER", "PASS").unwrap();
        let mut client = OuchClient::new(ClientConfig::new(credentials));
        client.connected(1).unwrap();
        let mut line = Self { server: Server::new(ServerConfig::default()), client, asked: Vec::new() };
        let event = line.accept();
        (line, event)
    }

    fn accept(&mut self) -> SessionEvent {
        let mut buffer = [0; 256];
        let mut output = Output::new(&mut buffer);
        let mut input = self.client.to_send();
        self.server.connected(1);
        let login = self.server.receive(1, &mut input).unwrap();
        assert!(matches!(login, Some(ServerEvent::Login(_))), "{login:?}");
        let (len, session) = (self.client.to_send().len(), SessionId::new("S1").unwrap());
        self.client.sent(len);
        self.server.accept(1, session, 1, &mut output).unwrap();
        let mut input = output.written();
        let event = self.client.receive(1, &mut input).unwrap().unwrap();
        self.asked = self.queries();
        event
    }

    /// The indices of the account queries that wait for the line.
    fn queries(&mut self) -> Vec<u8> {
        let (mut input, mut asked) = (self.client.to_send(), Vec::new());
        while let Some(event) = self.server.receive(1, &mut input).unwrap() {
            let ServerEvent::Unsequenced(message) = event else { panic!("{event:?}") };
            let (Inbound::AccountQuery(_), options) = Inbound::parse(message).unwrap() else { panic!("{message:?}") };
            asked.push(options.user_ref_idx());
        }
        let len = self.client.to_send().len();
        self.client.sent(len);
        asked
    }

    fn say(&mut self, message: &[u8]) -> SessionEvent {
        let mut buffer = [0; 256];
        let mut output = Output::new(&mut buffer);
        self.server.send(1, message, &mut output).unwrap();
        let mut input = output.written();
        let mut events = Vec::new();
        while let Some(event) = self.client.receive(1, &mut input).unwrap() {
            events.push(event);
        }
        events.pop().unwrap()
    }

    /// The answers to the account queries of the last login; the event of the last.
    fn settle(&mut self, next: u32) -> SessionEvent {
        let asked = self.asked.clone();
        self.answers(&asked, next)
    }

    fn answers(&mut self, asked: &[u8], next: u32) -> SessionEvent {
        let events = asked.iter().map(|&idx| {
            let mut bytes = [0; 32];
            let next = if idx == 0 { next } else { 1 };
            let answer = AccountQueryResponse { at_ns: 1.into(), next_user_ref: next.into() };
            let option = [Field::UserRefIdx(idx)];
            let len = answer.emit(if idx == 0 { &[] } else { &option }, &mut bytes).unwrap();
            self.say(&bytes[..len])
        });
        events.last().unwrap()
    }
}

#[test]
fn login_is_followed_by_the_account_query_behind_a_fence() {
    let (line, event) = Line::logged_in();
    assert!(matches!(event, SessionEvent::LoggedIn { is_gap: false, mark } if mark.next_inbound == 1), "{event:?}");
    let (own, fence) = line.asked.split_last().unwrap();
    assert!(*own == 0 && fence.len() == FENCE_LEN && !fence.contains(&0), "{fence:?}");
}

#[test]
fn session_takes_no_order_before_the_query_is_answered() {
    let (mut line, _) = Line::logged_in();
    assert_eq!((line.client.is_open(), line.client.take_id(1)), (false, None));
    let event = line.settle(7);
    assert_eq!(
        event,
        SessionEvent::Message { number: 5, message: VenueMessage::Settled { next_id: 7, is_final: true } }
    );
    assert_eq!((line.client.is_open(), line.client.take_id(1), line.client.take_id(1)), (true, Some(7), Some(8)));
}

#[test]
fn answers_to_the_queries_of_earlier_connections_settle_nothing() {
    let (mut line, _) = Line::logged_in();
    let earlier = line.asked.clone();
    line.client.disconnected();
    line.client.connected(2).unwrap();
    line.accept();
    for number in [5, 10, 15] {
        let other = SessionEvent::Message { number, message: VenueMessage::Other };
        assert_eq!((line.answers(&earlier, 1), line.client.is_open()), (other, false));
    }
    let settled = VenueMessage::Settled { next_id: 1, is_final: true };
    assert_eq!(line.settle(1), SessionEvent::Message { number: 20, message: settled });
    assert_eq!(line.client.take_id(3), Some(1));
}

#[test]
fn answer_to_a_question_covers_what_was_sent_before_it_also_where_the_venue_used_no_number() {
    let (mut line, _) = Line::logged_in();
    line.settle(7);
    assert_eq!(line.client.take_id(2), Some(7));
    line.client.ask(3).unwrap();
    assert_eq!(line.client.take_id(4), Some(8));
    line.client.ask(5).unwrap();
    // Number 7 was a replace that the venue has ignored.
    let first = VenueMessage::AnsweredBelow { below: 8, asked_ns: 3 };
    assert_eq!(line.answers(&[0], 7), SessionEvent::Message { number: 6, message: first });
    line.answers(&[0], 9);
    line.client.ask(6).unwrap();
    let next = VenueMessage::AnsweredBelow { below: 9, asked_ns: 6 };
    assert_eq!(line.answers(&[0], 9), SessionEvent::Message { number: 8, message: next });
}

#[test]
fn order_of_another_index_is_another_sessions() {
    let (mut line, _) = Line::logged_in();
    line.settle(1);
    let reason = crate::ouch::CancelReason(b'U');
    let canceled = OrderCanceled { at_ns: 1.into(), user_ref: 3.into(), quantity: 40.into(), reason };
    let mut bytes = [0; 32];
    let len = canceled.emit(&[Field::UserRefIdx(255)], &mut bytes).unwrap();
    assert_eq!(line.say(&bytes[..len]), SessionEvent::Message { number: 6, message: VenueMessage::Other });
}

#[test]
fn connection_that_is_gone_closes_the_session_and_forgets_what_waited() {
    let (mut line, _) = Line::logged_in();
    line.settle(1);
    line.client.cancel(1, 5).unwrap();
    line.client.disconnected();
    assert_eq!((line.client.take_id(2), line.client.to_send()), (None, &b""[..]));
}

#[test]
fn answer_names_its_order_and_its_number() {
    let (mut line, _) = Line::logged_in();
    line.settle(1);
    let canceled = OrderCanceled {
        at_ns: 1.into(),
        user_ref: 3.into(),
        quantity: 40.into(),
        reason: crate::ouch::CancelReason(b'U'),
    };
    let mut bytes = [0; 32];
    let len = canceled.emit(&[], &mut bytes).unwrap();
    let message = VenueMessage::answer(OrderKey::Client(3), VenueEvent::Reduced { by: 40, reason: u16::from(b'U') });
    assert_eq!(line.say(&bytes[..len]), SessionEvent::Message { number: 6, message });
}

#[test]
fn bytes_that_are_no_ouch_end_the_session_with_the_rule() {
    let (mut line, _) = Line::logged_in();
    let mut input: &[u8] = b"\0\x03S?!";
    let error = line.client.receive(1, &mut input).unwrap_err();
    assert_eq!(error.to_string(), "the version has no message '?'");
}

#[test]
fn mass_cancel_without_room_uses_no_number() {
    let (mut line, _) = Line::logged_in();
    line.settle(7);
    while line.client.ask(1).is_ok() {}
    assert_eq!(VenueSession::may_cancel(&line.client), Err(SendError::Room));
    assert_eq!(VenueSession::cancel_all(&mut line.client, 1), Err(SendError::Room));
    assert_eq!(line.client.next_id(), 7);
    line.queries();
    assert_eq!(VenueSession::may_cancel(&line.client), Ok(()));
    assert_eq!(VenueSession::cancel_all(&mut line.client, 1), Ok(true));
}

/// A power cut took the end of the journal, or another program has used the account.
#[test]
fn numbers_that_the_venue_has_seen_and_we_have_not_are_a_gap() {
    let (mut line, _) = Line::logged_in();
    let fence = line.asked.split_last().unwrap().1.to_vec();
    line.answers(&fence, 1);
    let mut bytes = [0; 32];
    let answer = AccountQueryResponse { at_ns: 1.into(), next_user_ref: 9.into() };
    let len = answer.emit(&[], &mut bytes).unwrap();
    let mut buffer = [0; 64];
    let mut output = Output::new(&mut buffer);
    line.server.send(1, &bytes[..len], &mut output).unwrap();
    let mut input = output.written();
    let event = line.client.receive(1, &mut input).unwrap().unwrap();
    let SessionEvent::LoggedIn { mark, is_gap: true } = event else { panic!("{event:?}") };
    // A crash between the two events repeats the answer.
    assert_eq!((mark.next_id, mark.next_inbound), (9, 5));
    let settled = VenueMessage::Settled { next_id: 9, is_final: true };
    let event = line.client.receive(1, &mut input).unwrap();
    assert_eq!(event, Some(SessionEvent::Message { number: 5, message: settled }));
    assert_eq!(line.client.take_id(1), Some(9));
}

#[test]
fn message_that_cannot_be_read_comes_again_and_is_passed_over_in_the_end() {
    let (mut line, _) = Line::logged_in();
    for attempt in 1..=READ_ATTEMPTS {
        let mut input: &[u8] = b"\0\x03S?!";
        let read = line.client.receive(1, &mut input);
        if attempt == READ_ATTEMPTS {
            assert_eq!(read, Ok(Some(SessionEvent::Unread { number: 1 })));
            break;
        }
        assert_eq!(read.unwrap_err().to_string(), "the version has no message '?'");
        assert_eq!(line.client.mark().next_inbound, 1, "it is lost");
        line.client.disconnected();
        line.client.connected(2).unwrap();
        line.accept();
    }
    assert_eq!((line.client.unread_bytes(), line.client.mark().next_inbound), (&b"?!"[..], 2));
}
