use super::*;
use crate::orders::{OrderKey, VenueEvent};
use crate::ouch::v50::{AccountQueryResponse, OrderCanceled};
use crate::session::Output;
use crate::soupbin::{Credentials, Server, ServerConfig, ServerEvent};

/// A venue that accepts each login, and the client.
struct Line {
    server: Server,
    client: OuchClient,
}

impl Line {
    /// Connected, and logged in; the account query waits for its answer.
    fn logged_in() -> (Self, SessionEvent) {
        let credentials = Credentials::new("USER", "PASS").unwrap();
        let mut client = OuchClient::new(ClientConfig::new(credentials));
        client.connected(1).unwrap();
        let mut line = Self { server: Server::new(ServerConfig::default()), client };
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
        self.client.receive(1, &mut input).unwrap().unwrap()
    }

    fn say(&mut self, message: &[u8]) -> SessionEvent {
        let mut buffer = [0; 256];
        let mut output = Output::new(&mut buffer);
        self.server.send(1, message, &mut output).unwrap();
        let mut input = output.written();
        self.client.receive(1, &mut input).unwrap().unwrap()
    }

    fn settle(&mut self, next: u32) -> SessionEvent {
        let mut bytes = [0; 16];
        let answer = AccountQueryResponse { at_ns: 1.into(), next_user_ref: next.into() };
        let len = answer.emit(&[], &mut bytes).unwrap();
        self.say(&bytes[..len])
    }
}

#[test]
fn login_is_followed_by_the_account_query() {
    let (line, event) = Line::logged_in();
    assert!(matches!(event, SessionEvent::LoggedIn { is_gap: false, mark } if mark.next_inbound == 1), "{event:?}");
    assert_eq!(line.client.to_send(), b"\0\x02UQ");
}

#[test]
fn session_takes_no_order_before_the_query_is_answered() {
    let (mut line, _) = Line::logged_in();
    assert_eq!((line.client.is_open(), line.client.take_id(1)), (false, None));
    let event = line.settle(7);
    assert_eq!(
        event,
        SessionEvent::Message { number: 1, message: VenueMessage::Settled { next_id: 7, is_final: true } }
    );
    assert_eq!((line.client.is_open(), line.client.take_id(1), line.client.take_id(1)), (true, Some(7), Some(8)));
}

#[test]
fn late_answer_to_the_query_of_an_earlier_connection_settles_no_order_behind_it() {
    let (mut line, _) = Line::logged_in();
    line.client.disconnected();
    line.client.connected(2).unwrap();
    line.accept();
    // The first connection's answer, which had not arrived.
    assert_eq!(
        line.settle(1),
        SessionEvent::Message { number: 1, message: VenueMessage::Settled { next_id: 1, is_final: true } }
    );
    assert_eq!(line.client.take_id(3), Some(1));
    assert_eq!(line.settle(1), SessionEvent::Message { number: 2, message: VenueMessage::AnsweredBelow { below: 1 } });
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
    assert_eq!(line.say(&bytes[..len]), SessionEvent::Message { number: 2, message });
}

#[test]
fn bytes_that_are_no_ouch_end_the_session_with_the_rule() {
    let (mut line, _) = Line::logged_in();
    let mut input: &[u8] = b"\0\x03S?!";
    let error = line.client.receive(1, &mut input).unwrap_err();
    assert_eq!(error.to_string(), "the version has no message '?'");
}
