use market::{Price, Side, Symbol};
use zerocopy::IntoBytes;

use super::*;
use crate::Text;
use crate::boe::v2::{Field, Inbound, OrderAcknowledgment, OrderCancelled, OrderExecution, OrderRejected};
use crate::boe::{
    Capacity, Credentials, LoginStatus, ReasonCode, Server, ServerConfig, ServerEvent, UnitSequence, Version, v3,
};
use crate::orders::{Display, Instructions, OrderField, OrderKey, OrderType, TimeInForce, VenueEvent};
use crate::risk::InstrumentIdx;
use crate::session::{OrderTerms, Output, READ_ATTEMPTS, SendError, VenueSession, WireOrder, WireTarget};

const PLAIN: Instructions = Instructions::PLAIN;
const STOCK: Symbol = Symbol(*b"WIRE    ");

fn client<W: OrderWords>() -> BoeOrderClient<W> {
    let config = ClientConfig::new(Credentials::new("USER", "1", "PASS").unwrap());
    BoeOrderClient::new(config, BoeFirm::new(Capacity::AGENCY))
}

/// A venue that accepts each login, and the client.
struct Line<W> {
    server: Server<W>,
    client: BoeOrderClient<W>,
    /// Units of the last login.
    asked: Vec<(u8, u32)>,
    /// Kind and body of what arrived.
    arrived: Vec<(u16, Vec<u8>)>,
}

impl<W: OrderWords> Line<W> {
    /// Logged in; the replay is not over.
    fn logged_in(client: BoeOrderClient<W>) -> Self {
        let server = Server::new(ServerConfig::default());
        let mut line = Self { server, client, asked: Vec::new(), arrived: Vec::new() };
        line.log_in();
        line
    }

    /// Logged in, and open.
    fn open() -> Self {
        let mut line = Self::logged_in(client());
        line.complete();
        assert!(line.client.is_open());
        line
    }

    fn log_in(&mut self) {
        VenueSession::connected(&mut self.client, 1).unwrap();
        self.server.connected(1);
        self.deliver();
        self.say(|server, output| server.accept(1, &[], output).unwrap());
    }

    fn complete(&mut self) -> Vec<SessionEvent> {
        self.say(|server, output| server.complete_replay(1, output).unwrap())
    }

    /// The line breaks: what waited for it is gone.
    fn break_off(&mut self) {
        VenueSession::disconnected(&mut self.client);
        self.server.disconnected();
    }

    /// What waits for the line reaches the venue.
    fn deliver(&mut self) {
        let bytes = VenueSession::to_send(&self.client).to_vec();
        VenueSession::sent(&mut self.client, bytes.len());
        let mut input = &bytes[..];
        while let Some(event) = self.server.receive(1, &mut input).unwrap() {
            match event {
                ServerEvent::Login(login) => {
                    self.asked = login.units.iter().map(|it| (it.unit, it.sequence.get())).collect();
                }
                ServerEvent::Message { message, .. } => self.arrived.push((message.kind, message.body.to_vec())),
                _ => (),
            }
        }
    }

    fn say(&mut self, put: impl FnOnce(&mut Server<W>, &mut Output<'_>)) -> Vec<SessionEvent> {
        self.try_say(put).unwrap()
    }

    fn try_say(
        &mut self,
        put: impl FnOnce(&mut Server<W>, &mut Output<'_>),
    ) -> Result<Vec<SessionEvent>, crate::session::SessionError> {
        let mut buffer = [0; 512];
        let mut output = Output::new(&mut buffer);
        put(&mut self.server, &mut output);
        let (mut input, mut events) = (output.written(), Vec::new());
        while let Some(event) = VenueSession::receive(&mut self.client, 1, &mut input)? {
            events.push(event);
        }
        Ok(events)
    }

    fn order(&mut self) -> u64 {
        let wire = wire(VenueSession::next_id(&self.client));
        self.client.new_order(1, &wire).unwrap();
        self.deliver();
        wire.id
    }
}

fn wire(id: u64) -> WireOrder {
    let (instrument, price) = (InstrumentIdx(0), Price::from_cents(1_000));
    WireOrder {
        id,
        instrument,
        symbol: STOCK,
        side: Side::Sell,
        is_short: true,
        qty: 100,
        price,
        instructions: Instructions::PLAIN,
    }
}

fn target(id: u64) -> WireTarget {
    let instrument = InstrumentIdx(0);
    WireTarget { id, venue_id: None, instrument, symbol: STOCK, side: Side::Sell, is_short: true, qty: 100 }
}

impl Line<V2> {
    /// Unit `unit` accepts the order.
    fn accept(&mut self, unit: u8, id: &str) -> Vec<SessionEvent> {
        let (at_ns, cl_ord_id) = (1.into(), Text::zero_padded(id).unwrap());
        let message = OrderAcknowledgment { at_ns, cl_ord_id, order_id: 77.into(), reserved: 0 };
        let mut body = [0; 64];
        let len = message.emit(&[Field::LeavesQuantity(100.into())], &mut body).unwrap();
        let kind = OrderAcknowledgment::KIND.into();
        self.say(|server, output| {
            server.send(1, kind, unit, &body[..len], output).unwrap();
        })
    }

    fn reject(&mut self, id: &str) -> Vec<SessionEvent> {
        let (at_ns, cl_ord_id) = (1.into(), Text::zero_padded(id).unwrap());
        let message = OrderRejected { at_ns, cl_ord_id, reason: ReasonCode::HALTED, text: Text([0; 60]), reserved: 0 };
        let mut body = [0; 128];
        let len = message.emit(&[], &mut body).unwrap();
        self.say(|server, output| {
            server.send(1, OrderRejected::KIND.into(), 0, &body[..len], output).unwrap();
        })
    }
}

fn of(events: &[SessionEvent]) -> Vec<(Option<(u8, u32)>, VenueMessage)> {
    let of = |event: &SessionEvent| match *event {
        SessionEvent::Message { number, message } => (UnitNumbers::split(number), message),
        other => panic!("{other:?}"),
    };
    events.iter().map(of).collect()
}

const SETTLED: VenueMessage = VenueMessage::Settled { next_id: 1, is_final: true };

#[test]
fn session_takes_orders_from_the_end_of_the_replay_on() {
    let mut line = Line::<V2>::logged_in(client());
    assert_eq!(line.client.may_send(&OrderTerms::limit(1, Price(1))), Err(SendError::Closed));
    assert_eq!(of(&line.complete()), [(None, SETTLED)]);
    assert_eq!(line.client.may_send(&OrderTerms::limit(1, Price(1))), Ok(()));
}

#[test]
fn answers_have_the_number_of_their_unit_and_rejects_have_none() {
    let mut line = Line::<V2>::open();
    let ids = [line.order(), line.order(), line.order()];
    assert_eq!(ids, [1, 2, 3]);
    let of_unit = |events: Vec<SessionEvent>| of(&events)[0].0;
    assert_eq!(of_unit(line.accept(3, "1")), Some((3, 1)));
    assert_eq!(of_unit(line.accept(200, "2")), Some((200, 1)));
    let rejected = of(&line.reject("3"));
    assert_eq!(rejected, [(None, VenueMessage::Refused { id: 3, reason: u16::from(b'H') })]);
}

#[test]
fn login_after_a_restart_asks_each_unit_for_what_the_journal_lacks() {
    let mut line = Line::<V2>::open();
    let mark = VenueSession::mark(&line.client);
    let mut next = client::<V2>();
    VenueSession::resume(&mut next, &mark);
    VenueSession::resume_unit(&mut next, 3, 17);
    VenueSession::resume_unit(&mut next, 9, 2);
    line.client = next;
    line.log_in();
    assert_eq!(line.asked, [(3, 17), (9, 2)]);
}

#[test]
fn units_of_another_protocols_journal_are_not_asked_for() {
    let mut line = Line::<V3>::open();
    let mut next = client::<V3>();
    VenueSession::resume(&mut next, &VenueSession::mark(&client::<V2>()));
    VenueSession::resume_unit(&mut next, 3, 17);
    line.client = next;
    line.log_in();
    assert_eq!(line.asked, []);
}

#[test]
fn order_of_version_2_has_its_terms() {
    let mut line = Line::<V2>::open();
    line.order();
    let (kind, body) = &line.arrived[0];
    let (message, optional) = Inbound::parse(u8::try_from(*kind).unwrap(), body).unwrap();
    let Inbound::NewOrder(order) = message else { panic!("{message:?}") };
    assert_eq!((order.cl_ord_id.trimmed(), order.quantity.get()), (&b"1"[..], 100));
    assert_eq!(order.side, crate::boe::Side::SELL_SHORT);
    let fields: Vec<_> = optional.fields().collect();
    assert!(fields.contains(&Field::Price(100_000.into())), "{fields:?}");
    assert!(fields.contains(&Field::Symbol(Text(*b"WIRE\0\0\0\0"))), "{fields:?}");
}

#[test]
fn replace_and_cancel_of_version_3_name_the_order() {
    let mut line = Line::<V3>::open();
    line.order();
    line.client.replace_order(1, &target(1), &wire(2)).unwrap();
    line.client.cancel_order(1, &target(2)).unwrap();
    line.deliver();
    let [_, (modify_kind, modify), (cancel_kind, cancel)] = &line.arrived[..] else { panic!("three messages") };
    let v3::Inbound::ModifyOrder(modify) = v3::Inbound::parse(*modify_kind, modify).unwrap().0 else {
        panic!("no modify")
    };
    assert_eq!((modify.orig_cl_ord_id.trimmed(), modify.cl_ord_id.trimmed()), (&b"1"[..], &b"2"[..]));
    let v3::Inbound::CancelOrder(cancel) = v3::Inbound::parse(*cancel_kind, cancel).unwrap().0 else {
        panic!("no cancel")
    };
    assert_eq!(cancel.orig_cl_ord_id.trimmed(), b"2");
}

#[test]
fn fill_and_cancel_are_told_of_their_order() {
    let mut line = Line::<V2>::open();
    let id = line.order();
    line.accept(1, "1");
    let cl_ord_id = Text::zero_padded("1").unwrap();
    let fill = OrderExecution {
        at_ns: 1.into(),
        cl_ord_id,
        exec_id: 5.into(),
        last_shares: 40.into(),
        last_price: 100_000.into(),
        leaves: 60.into(),
        base_liquidity: b'A',
        sub_liquidity: 0,
        contra_broker: Text([0; 4]),
        reserved: 0,
    };
    let canceled = OrderCancelled { at_ns: 1.into(), cl_ord_id, reason: ReasonCode::USER, reserved: 0 };
    let mut bodies = [[0; 128]; 2];
    let lens = [fill.emit(&[], &mut bodies[0]).unwrap(), canceled.emit(&[], &mut bodies[1]).unwrap()];
    let events = line.say(|server, output| {
        server.send(1, OrderExecution::KIND.into(), 1, &bodies[0][..lens[0]], output).unwrap();
        server.send(1, OrderCancelled::KIND.into(), 1, &bodies[1][..lens[1]], output).unwrap();
    });
    let events: Vec<_> = of(&events).into_iter().map(|(_, message)| message).collect();
    let exec = crate::orders::ExecId::from_number(5);
    let filled = VenueEvent::Filled { exec, qty: 40, price: Price(100_000) };
    let canceled = VenueEvent::Canceled { reason: u16::from(b'U') };
    let key = OrderKey::Client(id);
    assert_eq!(events, [VenueMessage::answer(key, filled), VenueMessage::answer(key, canceled)]);
}

#[test]
fn answer_to_an_id_that_was_not_used_tells_a_gap_and_ids_go_on_behind_it() {
    let mut line = Line::<V2>::open();
    let events = line.accept(1, "41");
    assert!(matches!(events[0], SessionEvent::LoggedIn { is_gap: true, .. }), "{events:?}");
    assert!(matches!(events[1], SessionEvent::Message { .. }), "{events:?}");
    assert_eq!(VenueSession::next_id(&line.client), 42);
}

#[test]
fn message_that_stays_unreadable_is_asked_for_again_and_then_passed_over() {
    let mut line = Line::<V2>::open();
    line.order();
    let message = Message { kind: OrderAcknowledgment::KIND.into(), unit: 1, sequence: 1, body: &[1, 2, 3] };
    for attempt in 1..READ_ATTEMPTS {
        let error = line.try_say(|_, output| V2::emit(&message, output).unwrap());
        assert!(error.is_err(), "attempt {attempt}");
        line.break_off();
        line.log_in();
        assert_eq!(line.asked, [], "attempt {attempt}");
    }
    let events = line.say(|_, output| V2::emit(&message, output).unwrap());
    assert_eq!(events, [SessionEvent::Unread { number: UnitNumbers::number(1, 1) }]);
    assert_eq!(VenueSession::unread(&line.client), [1, 2, 3]);
    line.break_off();
    line.log_in();
    assert_eq!(line.asked, [(1, 1)]);
}

#[test]
fn venue_that_has_not_sent_what_was_received_is_a_gap() {
    let mut line = Line::<V2>::open();
    line.accept(1, "1");
    line.break_off();
    VenueSession::connected(&mut line.client, 1).unwrap();
    line.server.connected(1);
    line.deliver();
    let refused = line
        .try_say(|server, output| server.reject(1, LoginStatus::SEQUENCE_AHEAD, &Text([0; 60]), output).unwrap())
        .unwrap_err();
    assert!(refused.is_gap(), "{refused}");
}

#[test]
fn units_number_anew_after_the_end_of_the_day() {
    let mut line = Line::<V2>::open();
    line.order();
    line.accept(1, "1");
    let units = [UnitSequence::new(1, 1)];
    let events = line.say(|server, output| {
        server.logout(LogoutReason::END_OF_DAY, &Text([0; 60]), &units, output).unwrap();
    });
    assert_eq!(events, [SessionEvent::Ended]);
    line.break_off();
    line.server = Server::new(ServerConfig::default());
    line.log_in();
    assert_eq!(line.asked, []);
}

#[test]
fn all_orders_are_canceled_by_one_message_of_version_3_whose_refusal_names_its_id() {
    let mut line = Line::<V3>::open();
    line.order();
    assert_eq!(line.client.cancel_all(1), Ok(true));
    assert_eq!(VenueSession::next_id(&line.client), 3, "it takes an id");
    line.deliver();
    let (kind, body) = line.arrived.last().unwrap();
    let (v3::Inbound::MassCancelOrder(cancel), _) = v3::Inbound::parse(*kind, body).unwrap() else { panic!() };
    let v3::MassCancelInst { firm_filter, acknowledgment, lockout, .. } = cancel.instruction;
    assert_eq!((cancel.mass_cancel_id.trimmed(), cancel.product), (&b"2"[..], Text([0; 6])));
    assert_eq!([firm_filter, acknowledgment, lockout], *b"ABN");
    let refused = v3::MassCancelRejected {
        at_ns: 1.into(),
        mass_cancel_id: cancel.mass_cancel_id,
        reason: ReasonCode(b'A'),
        text: Text([0; 60]),
    };
    let events = line.say(|server, output| {
        server.send(1, v3::MassCancelRejected::KIND, 0, refused.as_bytes(), output).unwrap();
    });
    let message = VenueMessage::Refused { id: 2, reason: b'A'.into() };
    assert_eq!(events, [SessionEvent::Message { number: UnitNumbers::number(0, 0), message }]);
}

#[test]
fn acknowledgment_of_a_mass_cancel_says_how_many_orders_it_has_canceled() {
    let mut line = Line::<V3>::open();
    line.order();
    assert_eq!(line.client.cancel_all(1), Ok(true));
    line.deliver();
    let done = v3::MassCancelAcknowledgment {
        at_ns: 1.into(),
        mass_cancel_id: Text::zero_padded("2").unwrap(),
        cancelled_count: 7.into(),
        received_ns: 1.into(),
    };
    let events = line.say(|server, output| {
        server.send(1, v3::MassCancelAcknowledgment::KIND, 0, done.as_bytes(), output).unwrap();
    });
    let message = VenueMessage::MassCanceled { id: 2, count: 7 };
    assert_eq!(events, [SessionEvent::Message { number: UnitNumbers::number(0, 0), message }]);
}

#[test]
fn each_order_is_canceled_by_itself_by_version_2() {
    let mut line = Line::<V2>::open();
    line.order();
    assert_eq!(line.client.cancel_all(1), Ok(false));
    assert_eq!(VenueSession::next_id(&line.client), 2);
}

#[test]
fn lengths_of_orders_fit_the_body() {
    let firm = BoeFirm {
        clearing_firm: Text::zero_padded("FIRM").unwrap(),
        account: Text::zero_padded("ACCOUNT").unwrap(),
        self_match: Some(SelfMatchRule::CancelNewest),
        ..BoeFirm::new(Capacity::AGENCY)
    };
    let order = wire(u64::MAX);
    for write in [V2::new_order, V3::new_order] {
        assert!(write(&firm, &order, &mut [0; BODY_LEN]).is_some());
    }
    for write in [V2::modify, V3::modify] {
        assert!(write(&firm, &target(1), &order, &mut [0; BODY_LEN]).is_some());
    }
}

#[test]
fn replay_that_ends_too_early_is_a_gap_and_leaves_what_has_no_answer_in_doubt() {
    let mut line = Line::<V2>::open();
    line.order();
    line.break_off();
    VenueSession::connected(&mut line.client, 1).unwrap();
    line.server.connected(1);
    line.deliver();
    line.say(|server, output| server.accept(1, &[UnitSequence::new(1, 9)], output).unwrap());
    let events = line.complete();
    let settled = VenueMessage::Settled { next_id: 2, is_final: false };
    assert!(matches!(events[0], SessionEvent::LoggedIn { is_gap: true, .. }), "{events:?}");
    assert_eq!(events[1..], [SessionEvent::Message { number: 0, message: settled }]);
}

#[test]
fn orders_say_what_the_venue_does_where_two_of_the_firm_meet() {
    let firm = |self_match| BoeFirm { self_match, ..BoeFirm::new(Capacity::AGENCY) };
    for (rule, modifier) in
        [(SelfMatchRule::CancelNewest, b'N'), (SelfMatchRule::CancelOldest, b'O'), (SelfMatchRule::CancelBoth, b'B')]
    {
        let mut body = [0; BODY_LEN];
        let (_, len) = V2::new_order(&firm(Some(rule)), &wire(1), &mut body).unwrap();
        let (_, optional) = Inbound::parse(0x38, &body[..len]).unwrap();
        assert!(optional.fields().any(|field| field == Field::PreventMatch(Text([modifier, b'F', 0]))));
        let (kind, len) = V3::new_order(&firm(Some(rule)), &wire(1), &mut body).unwrap();
        let (v3::Inbound::NewOrder(order), _) = v3::Inbound::parse(kind, &body[..len]).unwrap() else { panic!() };
        assert_eq!(order.prevent_match, v3::PreventMatch { modifier, level: b'F', group: 0 });
    }
    let mut body = [0; BODY_LEN];
    let (_, len) = V2::new_order(&firm(None), &wire(1), &mut body).unwrap();
    let (_, optional) = Inbound::parse(0x38, &body[..len]).unwrap();
    assert!(!optional.fields().any(|field| matches!(field, Field::PreventMatch(_))));
}

#[test]
fn order_of_version_2_says_its_instructions_in_optional_fields() {
    let mut line = Line::<V2>::open();
    let instructions = Instructions {
        order_type: OrderType::MidpointPeg,
        time_in_force: TimeInForce::AtTheClose,
        is_post_only: true,
        min_qty: 20,
        display: Display::Shares(30),
        ..PLAIN
    };
    let wire = WireOrder { instructions, ..wire(1) };
    line.client.new_order(1, &wire).unwrap();
    line.client.replace_order(1, &target(1), &WireOrder { id: 2, ..wire }).unwrap();
    line.deliver();
    let fields = |(kind, body): &(u16, Vec<u8>)| -> Vec<Field> {
        Inbound::parse(*kind as u8, body).unwrap().1.fields().collect()
    };
    let (new, modify) = (fields(&line.arrived[0]), fields(&line.arrived[1]));
    for field in [
        Field::OrderType(crate::boe::OrderType::PEG),
        Field::ExecInst(b'M'),
        Field::TimeInForce(crate::boe::TimeInForce::AT_THE_CLOSE),
        Field::RoutingInst(Text([b'P', 0, 0, 0])),
        Field::MinQuantity(20.into()),
        Field::MaxFloor(30.into()),
    ] {
        assert!(new.contains(&field), "{field:?} is not in {new:?}");
        let is_modified = matches!(field, Field::OrderType(_) | Field::ExecInst(_) | Field::MaxFloor(_));
        assert_eq!(modify.contains(&field), is_modified, "{field:?}: {modify:?}");
    }
}

#[test]
fn market_order_has_no_price_and_hidden_one_an_indicator() {
    let mut line = Line::<V2>::open();
    let order_type = OrderType::Market;
    line.client.new_order(1, &WireOrder { instructions: Instructions { order_type, ..PLAIN }, ..wire(1) }).unwrap();
    let display = Display::Hidden;
    line.client.new_order(1, &WireOrder { instructions: Instructions { display, ..PLAIN }, ..wire(2) }).unwrap();
    line.deliver();
    let fields = |idx: usize| -> Vec<Field> {
        Inbound::parse(line.arrived[idx].0 as u8, &line.arrived[idx].1).unwrap().1.fields().collect()
    };
    assert!(!fields(0).iter().any(|field| matches!(field, Field::Price(_))));
    assert!(fields(1).contains(&Field::DisplayIndicator(b'I')));
}

#[test]
fn version_3_refuses_what_futures_do_not_have_by_its_name() {
    let line = Line::<V3>::open();
    let refused = |instructions: Instructions| {
        line.client.may_send(&OrderTerms { instructions, ..OrderTerms::limit(100, Price(1)) })
    };
    for (instructions, field) in [
        (Instructions { order_type: OrderType::PrimaryPeg, ..PLAIN }, OrderField::OrderType),
        (Instructions { time_in_force: TimeInForce::AtTheOpening, ..PLAIN }, OrderField::TimeInForce),
        (Instructions { is_post_only: true, ..PLAIN }, OrderField::PostOnly),
        (Instructions { display: Display::Hidden, ..PLAIN }, OrderField::Display),
        (Instructions { display: Display::Shares(5), ..PLAIN }, OrderField::Display),
    ] {
        assert_eq!(refused(instructions), Err(SendError::Field(field)));
    }
    assert_eq!(refused(Instructions { min_qty: 5, ..Instructions::IMMEDIATE_OR_CANCEL }), Ok(()));
}
