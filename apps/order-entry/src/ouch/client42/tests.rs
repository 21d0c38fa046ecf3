use market::{Price, Side as OrderSide};

use super::*;
use crate::orders::{Instructions, OrderKey, VenueEvent};
use crate::ouch::v42::{Executed, Inbound, OrderRejected};
use crate::ouch::{LiquidityFlag, RejectReason42};
use crate::risk::InstrumentIdx;
use crate::session::{OrderTerms, READ_ATTEMPTS, SECOND_NS, SendError, VenueSession, WireOrder, WireTarget};
use crate::soupbin::{Credentials, Server, ServerConfig, ServerEvent};

const STOCK: Symbol = Symbol(*b"WIRE    ");
const UTC: u64 = 1_795_727_114 * SECOND_NS;

fn client() -> Ouch42Client {
    let config = ClientConfig::new(Credentials::new("USER", "PASS").unwrap());
    Ouch42Client::new(config, Text::BLANK, Capacity::AGENCY, UTC)
}

/// A venue that accepts each login, and the client.
struct Line {
    server: Server,
    client: Ouch42Client,
    now_ns: u64,
    /// Orders that arrived.
    entered: Vec<EnterOrder>,
}

impl Line {
    /// Logged in; the probe waits for its answer.
    fn logged_in(client: Ouch42Client) -> (Self, SessionEvent) {
        let server = Server::new(ServerConfig::default());
        let mut line = Self { server, client, now_ns: 1, entered: Vec::new() };
        let event = line.log_in();
        (line, event)
    }

    /// Logged in, and open.
    fn open() -> Self {
        let (mut line, _) = Self::logged_in(client());
        line.refuse(line.entered[0].token);
        assert!(line.client.is_open());
        line
    }

    fn log_in(&mut self) -> SessionEvent {
        self.client.connected(self.now_ns).unwrap();
        self.server.connected(self.now_ns);
        self.deliver();
        let mut buffer = [0; 256];
        let mut output = crate::session::Output::new(&mut buffer);
        let session = SessionId::new("S1").unwrap();
        let next = self.client.resume.1;
        self.server.accept(self.now_ns, session, next, &mut output).unwrap();
        let mut input = output.written();
        let event = self.client.receive(self.now_ns, &mut input).unwrap().unwrap();
        self.deliver();
        event
    }

    /// What waits for the line reaches the venue.
    fn deliver(&mut self) {
        let bytes = self.client.to_send().to_vec();
        self.client.sent(bytes.len());
        let mut input = &bytes[..];
        while let Some(event) = self.server.receive(self.now_ns, &mut input).unwrap() {
            if let ServerEvent::Unsequenced(message) = event
                && let Inbound::EnterOrder(order) = Inbound::parse(message).unwrap()
            {
                self.entered.push(*order);
            }
        }
    }

    fn say(&mut self, message: &[u8]) -> Vec<SessionEvent> {
        let mut buffer = [0; 256];
        let mut output = crate::session::Output::new(&mut buffer);
        self.server.send(self.now_ns, message, &mut output).unwrap();
        let (mut input, mut events) = (output.written(), Vec::new());
        while let Some(event) = self.client.receive(self.now_ns, &mut input).unwrap() {
            events.push(event);
        }
        events
    }

    fn refuse(&mut self, token: Text<14>) -> Vec<SessionEvent> {
        let mut bytes = [0; OrderRejected::LEN];
        OrderRejected { at_ns: 1.into(), token, reason: RejectReason42::INVALID_STOCK }.emit(&mut bytes);
        self.say(&bytes)
    }

    fn fill(&mut self, token: Text<14>) -> Vec<SessionEvent> {
        let mut bytes = [0; Executed::LEN];
        let (shares, price, liquidity) = (40.into(), 100_000.into(), LiquidityFlag(b'A'));
        Executed { at_ns: 1.into(), token, shares, price, liquidity, match_number: 9.into() }.emit(&mut bytes);
        self.say(&bytes)
    }

    fn order(&mut self) -> u64 {
        let (id, instrument) = (self.client.next_id(), InstrumentIdx(0));
        let (side, qty, price) = (OrderSide::Buy, 100, Price::from_cents(1_000));
        let order = WireOrder {
            id,
            instrument,
            symbol: STOCK,
            side,
            is_short: false,
            qty,
            price,
            instructions: Instructions::PLAIN,
        };
        self.client.new_order(self.now_ns, &order).unwrap();
        id
    }
}

fn message(number: u64, message: VenueMessage) -> Vec<SessionEvent> {
    vec![SessionEvent::Message { number, message }]
}

fn target(id: u64) -> WireTarget {
    let (instrument, side) = (InstrumentIdx(0), OrderSide::Buy);
    WireTarget { id, venue_id: None, instrument, symbol: STOCK, side, is_short: false, qty: 100 }
}

#[test]
fn login_is_followed_by_a_probe_that_no_venue_can_accept() {
    let (line, event) = Line::logged_in(client());
    assert!(matches!(event, SessionEvent::LoggedIn { is_gap: false, mark } if mark.next_inbound == 1), "{event:?}");
    let [probe] = line.entered[..] else { panic!("{:?}", line.entered) };
    assert_eq!((probe.stock, probe.shares.get(), probe.price.get()), (Symbol::NONE, 1, 1));
    assert_eq!((probe.time_in_force.get(), token::is_probe(&probe.token)), (IMMEDIATE_OR_CANCEL, true));
}

#[test]
fn session_opens_with_the_answer_to_its_probe() {
    let (mut line, _) = Line::logged_in(client());
    assert_eq!(
        (line.client.is_open(), line.client.may_send(&OrderTerms::limit(1, Price(1)))),
        (false, Err(SendError::Closed))
    );
    let settled = VenueMessage::Settled { next_id: 1, is_final: true };
    assert_eq!(line.refuse(line.entered[0].token), message(1, settled));
    assert_eq!((line.client.is_open(), line.client.next_id()), (true, 1));
}

#[test]
fn order_has_its_id_as_token_and_its_answers_name_it() {
    let mut line = Line::open();
    let id = line.order();
    line.deliver();
    let order = line.entered[1];
    assert_eq!((order.token.0, order.stock, order.shares.get()), (*b"00000000000001", STOCK, 100));
    let refused = VenueMessage::Refused { id, reason: u16::from(b'S') };
    assert_eq!(line.refuse(order.token), message(2, refused));
}

#[test]
fn answer_to_a_probe_of_before_settles_nothing() {
    let (mut line, _) = Line::logged_in(client());
    let before = line.entered[0].token;
    line.client.disconnected();
    // At the same time, as a clock that has stepped back may say.
    line.log_in();
    assert_eq!((line.refuse(before), line.client.is_open()), (message(1, VenueMessage::Other), false));
    let own = line.entered[1].token;
    assert_ne!(own, before);
    line.refuse(own);
    assert!(line.client.is_open());
}

#[test]
fn probe_without_an_answer_is_sent_again_under_another_token_and_then_ends_the_connection() {
    let (mut line, _) = Line::logged_in(client());
    line.client.tick(PROBE_TIMEOUT_NS).unwrap();
    line.client.tick(1 + PROBE_TIMEOUT_NS).unwrap();
    line.deliver();
    assert_eq!(line.entered.len(), 2);
    assert_ne!(line.entered[0].token, line.entered[1].token);
    // The venue is alive.
    line.now_ns = 2 * PROBE_TIMEOUT_NS;
    line.say(b"S\0\0\0\0\0\0\0\0S");
    let error = line.client.tick(1 + 2 * PROBE_TIMEOUT_NS).unwrap_err();
    assert_eq!(error.to_string(), "the venue does not answer an order that it must refuse");
}

#[test]
fn question_covers_what_was_sent_before_it() {
    let mut line = Line::open();
    line.order();
    line.now_ns = 3;
    assert_eq!(line.client.ask_status(3, &target(1)), Ok(true));
    line.order();
    assert_eq!(line.client.ask_status(4, &target(1)), Ok(true));
    line.deliver();
    let probes: Vec<_> = line.entered.iter().filter(|order| token::is_probe(&order.token)).collect();
    assert_eq!(probes.len(), 2, "one of the login, and one for both questions");
    let answered = VenueMessage::AnsweredBelow { below: 2, asked_ns: 3 };
    assert_eq!(line.refuse(probes[1].token), message(2, answered));
}

/// A power cut took the end of the journal, or another program has used the account.
#[test]
fn answer_to_an_order_that_we_have_not_sent_is_a_gap_and_its_id_is_not_used_again() {
    let (mut line, _) = Line::logged_in(client());
    let events = line.fill(token::of_id(7));
    let SessionEvent::LoggedIn { mark, is_gap: true } = events[0] else { panic!("{events:?}") };
    // A crash between the two events repeats the answer.
    assert_eq!((mark.next_id, mark.next_inbound), (8, 1));
    let SessionEvent::Message { number: 1, message: VenueMessage::Answer { key, event, .. } } = events[1] else {
        panic!("{events:?}")
    };
    assert_eq!(key, OrderKey::Client(7));
    assert!(matches!(event, VenueEvent::Filled { qty: 40, price: Price(100_000), .. }), "{event:?}");
    assert_eq!(line.client.next_id(), 8);
}

#[test]
fn another_process_goes_on_with_the_ids_and_the_messages_of_the_journal() {
    let mut line = Line::open();
    line.order();
    let mark = VenueSession::mark(&line.client);
    let mut next = client();
    VenueSession::resume(&mut next, &mark);
    line.client = next;
    line.now_ns = 9;
    let event = line.log_in();
    assert!(matches!(event, SessionEvent::LoggedIn { is_gap: false, mark } if mark.next_inbound == 2), "{event:?}");
    assert_eq!(line.client.next_id(), 2);
}

#[test]
fn session_without_room_takes_no_order_and_still_a_cancel() {
    let mut line = Line::open();
    while line.client.may_send(&OrderTerms::limit(1, Price(1))).is_ok() {
        line.order();
    }
    assert_eq!(line.client.may_send(&OrderTerms::limit(1, Price(1))), Err(SendError::Room));
    assert_eq!(line.client.cancel_order(1, &target(1)), Ok(()));
    assert_eq!(line.client.cancel_all(1), Ok(false));
}

#[test]
fn message_that_cannot_be_read_comes_again_and_is_passed_over_in_the_end() {
    let (mut line, _) = Line::logged_in(client());
    for attempt in 1..=READ_ATTEMPTS {
        let mut input: &[u8] = b"\0\x03S?!";
        let read = line.client.receive(1, &mut input);
        if attempt == READ_ATTEMPTS {
            assert_eq!(read, Ok(Some(SessionEvent::Unread { number: 1 })));
            break;
        }
        assert_eq!(read.unwrap_err().to_string(), "the version has no message '?'");
        assert_eq!(VenueSession::mark(&line.client).next_inbound, 1, "it is lost");
        line.client.disconnected();
        line.now_ns += 1;
        line.log_in();
    }
    assert_eq!(VenueSession::unread(&line.client), b"?!");
}
