use market::{Price, Side, Symbol};
use zerocopy::{FromZeros, IntoBytes};

use super::*;
use crate::Text;
use crate::ilink3::reject::{business, mass_action};
use crate::ilink3::{
    BusinessReject, HEADER_LEN, Identity, Key, MassAction, MassActionReport, NewOrder, OrderAccepted, OrderCancelled,
    ReplaceOrder, Sequence, Server, ServerConfig, ServerEvent, Terminate, TerminateReason, TradeAddendum, emit,
};
use crate::orders::{Display, ExecId, Instructions, OrderField, OrderKey, OrderType, TimeInForce, VenueEvent};
use crate::risk::InstrumentIdx;
use crate::session::{OrderTerms, Output, SendError, SessionError, VenueSession, WireOrder, WireTarget};

fn client() -> Ilink3Client {
    let identity = Identity {
        session: Text(*b"ABC"),
        firm: Text(*b"FIRM\0"),
        access_key: Text([0; 20]),
        key: Key::from_bytes(b"SECRET"),
        system: Text([0; 30]),
        system_version: Text([0; 10]),
        system_vendor: Text([0; 10]),
    };
    let securities = [12_345].into();
    let firm = IlinkFirm { operator: Text([b'O'; 20]), location: Text(*b"US,IL"), party_details: 7, securities };
    Ilink3Client::new(ClientConfig::new(identity), firm, 5_000_000)
}

/// A venue that accepts each login, and the client.
struct Line {
    server: Server,
    client: Ilink3Client,
    /// Template and block of what arrived.
    arrived: Vec<(u16, Vec<u8>)>,
    /// The last request for messages again, if it is not answered: the first, and how many.
    asked: Option<crate::ilink3::RetransmitRequest>,
    /// Sequences of the client.
    keep_alives: usize,
}

impl Line {
    fn new(client: Ilink3Client) -> Self {
        let server = Server::new(ServerConfig::default());
        Self { server, client, arrived: Vec::new(), asked: None, keep_alives: 0 }
    }

    /// A session of this journal's process: its events until orders may be sent.
    fn open() -> Self {
        let mut line = Self::new(client());
        let events = line.log_in();
        assert!(matches!(events[0], SessionEvent::LoggedIn { is_gap: false, .. }));
        assert!(matches!(events[1], SessionEvent::Message { message: VenueMessage::Settled { next_id: 1, .. }, .. }));
        assert!(line.client.is_open());
        line
    }

    fn log_in(&mut self) -> Vec<SessionEvent> {
        VenueSession::connected(&mut self.client, 1).unwrap();
        self.server.connected(1);
        let mut events = self.deliver();
        events.extend(self.deliver());
        events
    }

    fn break_off(&mut self) {
        VenueSession::disconnected(&mut self.client);
        self.server.disconnected();
    }

    /// What waits for the line reaches the venue, which answers logins at once.
    fn deliver(&mut self) -> Vec<SessionEvent> {
        let bytes = VenueSession::to_send(&self.client).to_vec();
        VenueSession::sent(&mut self.client, bytes.len());
        let (mut input, mut events) = (&bytes[..], Vec::new());
        while let Some(event) = self.server.receive(1, &mut input).unwrap() {
            match event {
                ServerEvent::Negotiate(_) => events.extend(self.say(|it, out| it.accept_negotiation(out).unwrap())),
                ServerEvent::Establish(_) => {
                    events.extend(self.say(|it, out| it.accept_establishment(1, out).unwrap()));
                }
                ServerEvent::Message { frame, .. } => self.arrived.push((frame.template, frame.block.to_vec())),
                ServerEvent::RetransmitRequest(request) => self.asked = Some(*request),
                ServerEvent::KeepAlive { .. } => self.keep_alives += 1,
                ServerEvent::Terminated { .. } => (),
            }
        }
        events
    }

    fn say(&mut self, put: impl FnOnce(&mut Server, &mut Output<'_>)) -> Vec<SessionEvent> {
        self.try_say(put).unwrap()
    }

    fn try_say(&mut self, put: impl FnOnce(&mut Server, &mut Output<'_>)) -> Result<Vec<SessionEvent>, SessionError> {
        let mut buffer = [0; 4_096];
        let mut output = Output::new(&mut buffer);
        put(&mut self.server, &mut output);
        let (mut input, mut events) = (output.written(), Vec::new());
        while let Some(event) = VenueSession::receive(&mut self.client, 1, &mut input)? {
            events.push(event);
        }
        Ok(events)
    }

    fn report(&mut self, template: u16, block: &[u8]) -> Vec<SessionEvent> {
        self.say(|server, output| assert!(server.send(1, template, block, &[], output).unwrap() > 0))
    }

    /// The venue tells of an order of ours while nobody is connected.
    fn report_unsent(&mut self) {
        self.server.number_unsent().unwrap();
    }

    fn order(&mut self) -> u64 {
        let wire = wire(VenueSession::next_id(&self.client));
        self.client.new_order(1, &wire).unwrap();
        wire.id
    }
}

fn wire(id: u64) -> WireOrder {
    let (instrument, price, symbol) = (InstrumentIdx(0), Price::from_cents(1_000), Symbol(*b"ESZ6    "));
    WireOrder {
        id,
        instrument,
        symbol,
        side: Side::Buy,
        is_short: false,
        qty: 3,
        price,
        instructions: Instructions::PLAIN,
    }
}

fn target(id: u64, venue_id: Option<u64>) -> WireTarget {
    let (instrument, symbol) = (InstrumentIdx(0), Symbol(*b"ESZ6    "));
    WireTarget { id, venue_id, instrument, symbol, side: Side::Buy, is_short: false, qty: 3 }
}

fn accepted(id: &str) -> OrderAccepted {
    OrderAccepted {
        cl_ord_id: Text::zero_padded(id).unwrap(),
        order_id: 77.into(),
        price: 10_000_000_000.into(),
        quantity: 3.into(),
        ..OrderAccepted::new_zeroed()
    }
}

/// The messages about orders, without the session's own.
fn said(events: &[SessionEvent]) -> Vec<(u64, VenueMessage)> {
    let message = |event: &SessionEvent| match *event {
        SessionEvent::Message { number, message } => Some((number, message)),
        _ => None,
    };
    events.iter().filter_map(message).collect()
}

#[test]
fn order_has_its_number_as_id_and_nine_decimals() {
    let mut line = Line::open();
    assert_eq!(line.order(), 1);
    line.deliver();
    let order = <NewOrder as zerocopy::FromBytes>::read_from_bytes(&line.arrived[0].1).unwrap();
    assert_eq!((order.seq.get(), order.cl_ord_id.trimmed(), order.security_id.get()), (1, &b"1"[..], 12_345));
    assert_eq!((order.price.get(), order.side, order.time_in_force), (10_000_000_000, 1, 0));
    let events = line.report(OrderAccepted::KIND, accepted("1").as_bytes());
    let event = VenueEvent::Accepted { venue_id: 77 };
    assert!(
        matches!(said(&events)[0], (1, VenueMessage::Answer { key: OrderKey::Client(1), event: it, .. }) if it == event)
    );
}

/// The venue takes off what has traded, also on the way of the replace: our quantity is a total.
#[test]
fn replace_has_the_venue_take_off_what_has_traded() {
    let mut line = Line::open();
    let id = line.order();
    line.report(OrderAccepted::KIND, accepted("1").as_bytes());
    let wire = wire(VenueSession::next_id(&line.client));
    line.client.replace_order(1, &target(id, Some(77)), &wire).unwrap();
    line.deliver();
    let replace = <ReplaceOrder as zerocopy::FromBytes>::read_from_bytes(&line.arrived[1].1).unwrap();
    assert_eq!((replace.order_id.get(), replace.quantity.get(), replace.ofm_override), (77, 3, 1));
}

/// CME's largest number (9726) is 999,999,999.
#[test]
fn numbers_end_a_million_before_the_last_of_the_venue() {
    for (next_id, may_send) in [(998_999_999, Ok(())), (999_000_000, Err(SendError::Ids))] {
        let mut first = client();
        VenueSession::resume(&mut first, &SessionMark { session: *b"BOE 2     ", next_inbound: 0, next_id });
        let mut line = Line::new(first);
        line.log_in();
        assert_eq!(VenueSession::may_send(&line.client, &OrderTerms::limit(1, Price::from_cents(1_000))), may_send);
        assert_eq!(VenueSession::may_cancel(&line.client), Ok(()));
    }
}

/// It names no message of ours, so that nobody knows which order never lived.
#[test]
fn refusal_without_our_number_is_passed_over_on_the_third_connection() {
    let mut line = Line::open();
    line.order();
    line.deliver();
    let reject = BusinessReject { ref_seq: u32::MAX.into(), ..BusinessReject::new_zeroed() };
    let say = |server: &mut Server, output: &mut Output<'_>| {
        assert_eq!(server.send(1, BusinessReject::KIND, reject.as_bytes(), &[], output).unwrap(), 1);
    };
    assert!(line.try_say(say).is_err());
    for attempt in 2..=3 {
        line.break_off();
        line.log_in();
        let request = line.asked.take().unwrap();
        let events = line.try_say(|server, output| {
            server.begin_retransmission(1, &request, output).unwrap();
            server.send_again(1, 1, BusinessReject::KIND, reject.as_bytes(), &[], output).unwrap();
        });
        match (attempt, events) {
            (2, events) => assert!(events.is_err()),
            (_, events) => assert!(events.unwrap().contains(&SessionEvent::Unread { number: 1 })),
        }
    }
    assert!(line.client.is_open());
    assert_eq!(VenueSession::unread(&line.client).len(), reject.as_bytes().len());
}

#[test]
fn session_of_the_journal_goes_on_with_its_numbers() {
    let mut line = Line::open();
    line.order();
    line.deliver();
    line.report(OrderAccepted::KIND, accepted("1").as_bytes());
    let mark = VenueSession::mark(&line.client);
    assert_eq!((mark.next_inbound, mark.next_id), (2, 2));
    // Another process has the journal. Nothing was lost: the last message is asked for again.
    line.client = client();
    VenueSession::resume(&mut line.client, &mark);
    assert!(line.log_in().is_empty() && !line.client.is_open());
    let request = line.asked.take().unwrap();
    assert_eq!((request.from_seq.get(), request.count.get()), (1, 1));
    let events = line.say(|server, output| server.begin_retransmission(1, &request, output).unwrap());
    assert!(matches!(events[0], SessionEvent::LoggedIn { is_gap: false, mark: it } if it == mark));
    assert_eq!(said(&events), [(0, VenueMessage::Settled { next_id: 2, is_final: false })]);
    assert!(line.client.is_open());
}

#[test]
fn message_that_was_not_applied_is_written_down_before_it_is_skipped() {
    let mut line = Line::open();
    line.order();
    line.deliver();
    line.report(OrderAccepted::KIND, accepted("1").as_bytes());
    line.order();
    line.order();
    line.break_off();
    line.report_unsent();
    let keep_alives = line.keep_alives;
    // What is told arrives, and nothing but the request may leave: a keep-alive would skip.
    assert!(line.log_in().is_empty());
    VenueSession::tick(&mut line.client, 12 * SECOND_NS).unwrap();
    line.deliver();
    assert_eq!(line.keep_alives, keep_alives);
    let request = line.asked.take().unwrap();
    assert_eq!((request.from_seq.get(), request.count.get()), (2, 1));
    let mut buffer = [0; 512];
    let mut output = Output::new(&mut buffer);
    line.server.begin_retransmission(1, &request, &mut output).unwrap();
    let mut input = output.written();
    let mut next = |line: &mut Line| VenueSession::receive(&mut line.client, 1, &mut input).unwrap();
    let lost = SessionEvent::Message { number: 0, message: VenueMessage::NotProcessed { from: 2 } };
    assert_eq!(next(&mut line), Some(lost));
    assert!(matches!(next(&mut line), Some(SessionEvent::LoggedIn { is_gap: false, .. })));
    assert!(VenueSession::to_send(&line.client).is_empty());
    assert_eq!(next(&mut line), None);
    line.deliver();
    assert_eq!(line.keep_alives, keep_alives + 1);
    // The session settles once the messages have come.
    let again = accepted("1");
    let events =
        line.say(|it, output| it.send_again(1, 2, OrderAccepted::KIND, again.as_bytes(), &[], output).unwrap());
    assert!(matches!(said(&events)[..], [(2, _), (0, VenueMessage::Settled { next_id: 4, .. })]), "{events:?}");
}

#[test]
fn messages_that_the_venue_has_no_more_are_a_gap() {
    let mut line = Line::open();
    line.order();
    line.deliver();
    line.break_off();
    line.report_unsent();
    line.log_in();
    let request = line.asked.take().unwrap();
    let why = Text([0; 48]);
    let events = line.say(|server, output| server.reject_retransmission(1, &request, 1, &why, output).unwrap());
    assert!(matches!(events[0], SessionEvent::LoggedIn { is_gap: true, .. }), "{events:?}");
    assert!(line.client.is_open());
}

#[test]
fn live_messages_behind_a_hole_are_asked_for_with_it() {
    let mut line = Line::open();
    line.order();
    line.deliver();
    line.break_off();
    line.report_unsent();
    line.log_in();
    let request = line.asked.take().unwrap();
    assert!(line.report(OrderAccepted::KIND, accepted("1").as_bytes()).is_empty());
    let events = line.say(|server, output| {
        server.begin_retransmission(1, &request, output).unwrap();
        server.send_again(1, 1, OrderAccepted::KIND, accepted("1").as_bytes(), &[], output).unwrap();
    });
    assert!(matches!(said(&events)[..], [(1, _)]), "{events:?}");
    line.deliver();
    let request = line.asked.take().unwrap();
    assert_eq!((request.from_seq.get(), request.count.get()), (2, 1));
    let events = line.say(|server, output| {
        server.begin_retransmission(1, &request, output).unwrap();
        server.send_again(1, 2, OrderAccepted::KIND, accepted("1").as_bytes(), &[], output).unwrap();
    });
    assert!(matches!(said(&events)[..], [(2, _), (0, VenueMessage::Settled { .. })]), "{events:?}");
}

#[test]
fn numbers_that_the_venue_has_seen_and_the_journal_has_not_are_a_gap() {
    let mut line = Line::open();
    let mark = VenueSession::mark(&line.client);
    line.order();
    line.deliver();
    line.client = client();
    VenueSession::resume(&mut line.client, &mark);
    VenueSession::connected(&mut line.client, 1).unwrap();
    line.server.connected(1);
    let bytes = VenueSession::to_send(&line.client).to_vec();
    assert!(matches!(line.server.receive(1, &mut &bytes[..]), Ok(Some(ServerEvent::Establish(_)))));
    let why = Text([0; 48]);
    let error = line.try_say(|server, output| server.reject_establishment(1, &why, output).unwrap()).unwrap_err();
    assert!(error.is_gap() && error.to_string().contains("up to 1"), "{error}");
    assert_eq!(VenueSession::next_id(&line.client), 2);
}

/// The code of the last termination that the client wrote.
fn termination(client: &Ilink3Client) -> u16 {
    let bytes = VenueSession::to_send(client);
    let at = bytes.len() - (HEADER_LEN + Terminate::LEN);
    let terminate: &Terminate = Frame::parse(&bytes[at..]).unwrap().view().unwrap();
    terminate.error.get()
}

#[test]
fn venue_whose_numbers_go_back_gets_a_termination_that_says_so() {
    let mut line = Line::open();
    line.order();
    let mut bytes = [0; 100];
    let mut output = Output::new(&mut bytes);
    let low = Sequence { uuid: line.server.numbers().0.into(), next_seq: 0.into(), ..Sequence::new_zeroed() };
    emit(Sequence::KIND, low.as_bytes(), &[], &mut output).unwrap();
    let error = line.client.receive(1, &mut output.written()).unwrap_err();
    assert_eq!(error.to_string(), "numbers go up: 1 should come, not 0");
    assert_eq!(termination(&line.client), TerminateReason::NEXT_NUMBER.0);
    assert!(!line.client.is_open());
}

#[test]
fn termination_of_the_venue_is_answered_before_the_line_ends() {
    let mut line = Line::open();
    line.try_say(|server, output| server.terminate(1, TerminateReason::VOLUME_CONTROLS.0, output).unwrap())
        .unwrap_err();
    assert_eq!(termination(&line.client), TerminateReason::FINISHED.0);
}

#[test]
fn cancel_of_all_is_one_message_whose_refusal_is_told() {
    let mut line = Line::open();
    let id = VenueSession::next_id(&line.client);
    assert_eq!(line.client.cancel_all(1), Ok(true));
    line.deliver();
    assert_eq!(line.arrived[0].0, MassAction::KIND);
    let report = MassActionReport { order_request: id.into(), reject_reason: 9, ..MassActionReport::new_zeroed() };
    let events = line.report(MassActionReport::KIND, report.as_bytes());
    assert_eq!(said(&events), [(1, VenueMessage::Refused { id, reason: mass_action(9) })]);
    let report = MassActionReport { response: 1, ..report };
    let events = line.report(MassActionReport::KIND, report.as_bytes());
    assert_eq!(said(&events), [(2, VenueMessage::Other)]);
}

#[test]
fn cancel_names_the_order_in_its_refusals_too() {
    let mut line = Line::open();
    let id = line.order();
    assert_eq!(line.client.cancel_order(1, &target(id, None)), Err(SendError::Range));
    line.client.cancel_order(1, &target(id, Some(77))).unwrap();
    line.deliver();
    let key = OrderKey::Client(id);
    let reject = BusinessReject {
        ref_seq: 2.into(),
        reject_reason: 3.into(),
        ref_msg_type: Text(*b"F\0"),
        ..BusinessReject::new_zeroed()
    };
    let refused = VenueMessage::answer(key, VenueEvent::CancelRefused { reason: business(3) });
    assert_eq!(said(&line.report(BusinessReject::KIND, reject.as_bytes())), [(1, refused)]);
    let canceled = OrderCancelled {
        cl_ord_id: Text::zero_padded("1").unwrap(),
        restate_reason: 100,
        ..OrderCancelled::new_zeroed()
    };
    let canceled_event = VenueMessage::answer(key, VenueEvent::Canceled { reason: 100 });
    assert_eq!(said(&line.report(OrderCancelled::KIND, canceled.as_bytes())), [(2, canceled_event)]);
}

#[test]
fn trade_that_is_no_more_is_named_by_its_report() {
    let mut line = Line::open();
    let addendum = TradeAddendum {
        cl_ord_id: Text::zero_padded("1").unwrap(),
        exec_type: b'H',
        exec_ref_id: Text::zero_padded("E1").unwrap(),
        ..TradeAddendum::new_zeroed()
    };
    let busted = VenueEvent::Busted { exec: ExecId::from_text(b"E1") };
    let events = line.report(TradeAddendum::KIND, addendum.as_bytes());
    assert_eq!(said(&events), [(1, VenueMessage::answer(OrderKey::Client(1), busted))]);
}

/// Of products with ticks of 1/64 and less.
#[test]
fn execution_at_a_price_of_more_than_four_decimals_says_that_it_is_rounded() {
    use crate::ilink3::OrderFilled;
    use crate::orders::StatedTerms;
    let mut line = Line::open();
    for (number, (price, rounded, terms)) in (1..).zip([
        (5_000_250_000_000, Price(50_002_500), StatedTerms::None),
        (110_015_625_000, Price(1_100_156), StatedTerms::Rounded),
        (-15_625_000, Price(-156), StatedTerms::Rounded),
    ]) {
        let (cl_ord_id, exec) = (Text::zero_padded("1").unwrap(), ExecId::from_text(b"E1"));
        let (last_price, last_quantity) = (price.into(), 5.into());
        let exec_id = Text::zero_padded("E1").unwrap();
        let filled = OrderFilled { cl_ord_id, exec_id, last_price, last_quantity, ..OrderFilled::new_zeroed() };
        let of = |event| [(number, VenueMessage::Answer { key: OrderKey::Client(1), event, terms, is_dead: false })];
        let event = VenueEvent::Filled { exec, qty: 5, price: rounded };
        assert_eq!(said(&line.report(OrderFilled::KIND, filled.as_bytes())), of(event), "{price}");
    }
}

#[test]
fn report_that_is_not_read_here_is_for_a_person() {
    let mut line = Line::open();
    let events = line.report(526, &[1; 300]);
    assert_eq!(events, [SessionEvent::Unread { number: 1 }]);
    assert_eq!(VenueSession::unread(&line.client).len(), 300);
}

#[test]
fn number_that_nothing_carries_is_skipped_before_the_next_message() {
    let mut line = Line::open();
    VenueSession::skip_id(&mut line.client, 1);
    assert_eq!(line.order(), 2);
    line.deliver();
    assert_eq!((line.keep_alives, line.arrived.len(), line.server.numbers().2), (1, 1, 3));
}

#[test]
fn journal_of_another_protocol_has_ids_of_its_own() {
    let mut first = client();
    VenueSession::resume(&mut first, &SessionMark { session: *b"BOE 2     ", next_inbound: 0, next_id: 40 });
    let mut line = Line::new(first);
    line.log_in();
    assert_eq!(VenueSession::next_id(&line.client), 40);
    assert_eq!(line.order(), 40);
    line.deliver();
    assert_eq!(line.server.numbers().2, 41);
}

#[test]
fn order_says_its_instructions_and_a_market_order_has_no_price() {
    let mut line = Line::open();
    let plain = Instructions::PLAIN;
    for instructions in [
        Instructions { min_qty: 2, ..Instructions::IMMEDIATE_OR_CANCEL },
        Instructions { time_in_force: TimeInForce::FillOrKill, display: Display::Shares(1), ..plain },
        Instructions { order_type: OrderType::Market, ..plain },
    ] {
        let wire = wire(VenueSession::next_id(&line.client));
        line.client.new_order(1, &WireOrder { instructions, ..wire }).unwrap();
    }
    line.deliver();
    let order = |idx: usize| <NewOrder as zerocopy::FromBytes>::read_from_bytes(&line.arrived[idx].1).unwrap();
    assert_eq!((order(0).time_in_force, order(0).min_quantity.get(), order(0).order_type), (3, 2, b'2'));
    assert_eq!((order(1).time_in_force, order(1).display_quantity.get()), (4, 1));
    assert_eq!((order(2).order_type, order(2).price.get()), (b'1', crate::ilink3::NO_PRICE));
}

#[test]
fn what_ilink3_cannot_say_is_refused_by_the_fields_name() {
    let line = Line::open();
    let plain = Instructions::PLAIN;
    for (instructions, field) in [
        (Instructions { order_type: OrderType::MidpointPeg, ..plain }, OrderField::OrderType),
        (Instructions { time_in_force: TimeInForce::AtTheClose, ..plain }, OrderField::TimeInForce),
        (Instructions { is_post_only: true, ..plain }, OrderField::PostOnly),
        (Instructions { min_qty: 1, ..plain }, OrderField::MinQuantity),
        (Instructions { display: Display::Hidden, ..plain }, OrderField::Display),
    ] {
        let terms = OrderTerms { instructions, ..OrderTerms::limit(3, Price::from_cents(1_000)) };
        assert_eq!(VenueSession::may_send(&line.client, &terms), Err(SendError::Field(field)));
    }
}
