use market::{Price, Side, Symbol};

use super::*;
use crate::fix::codec::{Decimal, Writer};
use crate::fix::orders::RefusedBy;
use crate::fix::orders::{
    BusinessReason, ExecTransType, ExecType, ExecutionReport, MassCancelReport, OrdStatus, Side as FixSide,
};
use crate::fix::session::{Event, MemoryStore, Schedule};
use crate::orders::{Instructions, OrderKey, StatedTerms, VenueEvent};
use crate::risk::InstrumentIdx;
use crate::session::{OrderTerms, SendError, VenueSession, WireOrder, WireTarget};

mod capacity;
mod faults;
mod instructions;
mod trades;

const SECOND: u64 = 1_000_000_000;
const UTC: u64 = 1_795_727_114 * SECOND;
const SYMBOL: Symbol = Symbol(*b"WIRE    ");
const VERSIONS: [Version; 3] = [Version::Fix42, Version::Fix44, Version::Fix50Sp2];

/// The other side of the client's session, and the requests that reached its application.
struct Venue {
    session: Session<MemoryStore>,
    requests: Vec<(String, u64)>,
    reports: u64,
}

impl Venue {
    fn new(version: Version) -> Self {
        let (sender, target) = ("VENUE".to_owned(), "TRADER".to_owned());
        let config = SessionConfig { version, role: Role::Acceptor, sender, target, ..SessionConfig::default() };
        Self { session: Session::new(config, MemoryStore::new(1_000, 1 << 20)), requests: Vec::new(), reports: 0 }
    }

    fn now(now_ns: u64) -> Now {
        Now { steady_ns: now_ns, utc_ns: UTC + now_ns }
    }

    fn take(&mut self, bytes: &[u8], now_ns: u64) {
        assert_eq!(self.session.receive(Self::now(now_ns), bytes), bytes.len());
        while let Some(event) = self.session.poll(Self::now(now_ns)) {
            if let Event::Message { message, .. } = event {
                let id = message.number(11).unwrap();
                self.requests.push((String::from_utf8(message.msg_type().to_vec()).unwrap(), id));
            }
        }
    }

    fn report(&mut self, id: u64, (exec_type, ord_status): (ExecType, OrdStatus), leaves: i64, last: Option<i64>) {
        self.reports += 1;
        let (exec_id, cl_ord_id) = (format!("E{}", self.reports), format!("{id:016}"));
        self.report_of(&ExecutionReport {
            cum_qty: Decimal::whole(last.unwrap_or(0)),
            exec_id: exec_id.as_bytes(),
            last_px: last.map(|_| Decimal::whole(10)),
            last_qty: last.map(Decimal::whole),
            ord_status,
            exec_type,
            leaves_qty: Decimal::whole(leaves),
            ..report(cl_ord_id.as_bytes())
        });
    }

    fn report_of(&mut self, report: &ExecutionReport<'_>) {
        self.session.send(Self::now(0), "8", |out| report.write(out)).unwrap();
    }

    fn accept(&mut self, id: u64) {
        self.report(id, (ExecType::New, OrdStatus::New), 100, None);
    }
}

/// A report of a new order for 100 shares at 10.
fn report(cl_ord_id: &[u8]) -> ExecutionReport<'_> {
    ExecutionReport {
        account: None,
        avg_px: None,
        cl_ord_id: Some(cl_ord_id),
        cum_qty: Decimal::whole(0),
        exec_id: b"E",
        exec_ref_id: None,
        exec_trans_type: Some(ExecTransType::New),
        last_px: None,
        last_qty: None,
        order_id: b"77",
        order_qty: Some(Decimal::whole(100)),
        ord_status: OrdStatus::New,
        ord_type: None,
        orig_cl_ord_id: None,
        price: Some(Decimal::whole(10)),
        side: FixSide::Buy,
        symbol: b"WIRE",
        text: None,
        time_in_force: None,
        transact_time: None,
        ord_rej_reason: None,
        exec_type: ExecType::New,
        leaves_qty: Decimal::whole(100),
        exec_restatement_reason: None,
    }
}

fn client(version: Version) -> FixClient {
    client_of(SessionConfig { version, heartbeat_s: 1, ..SessionConfig::default() })
}

fn client_of(session: SessionConfig) -> FixClient {
    let (sender, target) = ("TRADER".to_owned(), "VENUE".to_owned());
    let session = SessionConfig { sender, target, ..session };
    let config = FixClientConfig { instruments: vec![SYMBOL], epoch_offset_ns: UTC, ..FixClientConfig::new(session) };
    FixClient::new(config)
}

/// Lets bytes pass both ways until there are none.
fn try_pump(client: &mut FixClient, venue: &mut Venue, now_ns: u64) -> Result<Vec<SessionEvent>, SessionError> {
    let mut events = Vec::new();
    loop {
        let bytes = client.to_send().to_vec();
        client.sent(bytes.len());
        venue.take(&bytes, now_ns);
        let answers = venue.session.output().to_vec();
        venue.session.consume(answers.len());
        if bytes.is_empty() && answers.is_empty() {
            return Ok(events);
        }
        let mut input = &answers[..];
        while let Some(event) = VenueSession::receive(client, now_ns, &mut input)? {
            events.push(event);
        }
    }
}

fn pump(client: &mut FixClient, venue: &mut Venue, now_ns: u64) -> Vec<SessionEvent> {
    try_pump(client, venue, now_ns).unwrap()
}

fn connect(client: &mut FixClient, venue: &mut Venue, now_ns: u64) -> Vec<SessionEvent> {
    venue.session.connected(Venue::now(now_ns));
    VenueSession::connected(client, now_ns).unwrap();
    pump(client, venue, now_ns)
}

fn disconnect(client: &mut FixClient, venue: &mut Venue) {
    VenueSession::disconnected(client);
    venue.session.disconnected();
}

fn open(version: Version) -> (FixClient, Venue) {
    let (mut client, mut venue) = (client(version), Venue::new(version));
    connect(&mut client, &mut venue, 0);
    assert!(VenueSession::is_open(&client));
    (client, venue)
}

fn order(client: &mut FixClient, now_ns: u64) -> u64 {
    let (id, instrument) = (client.next_id(), InstrumentIdx(0));
    let (side, qty, price) = (Side::Buy, 100, Price::from_cents(1_000));
    let order = WireOrder {
        id,
        instrument,
        symbol: SYMBOL,
        side,
        is_short: false,
        qty,
        price,
        instructions: Instructions::PLAIN,
    };
    client.new_order(now_ns, &order).unwrap();
    id
}

fn target(id: u64) -> WireTarget {
    let (side, instrument) = (Side::Buy, InstrumentIdx(0));
    WireTarget { id, venue_id: None, instrument, symbol: SYMBOL, side, is_short: false, qty: 100 }
}

fn messages(events: &[SessionEvent]) -> Vec<VenueMessage> {
    let message = |event: &SessionEvent| match event {
        SessionEvent::Message { message, .. } => Some(*message),
        _ => None,
    };
    events.iter().filter_map(message).collect()
}

fn settled(next_id: u64) -> VenueMessage {
    VenueMessage::Settled { next_id, is_final: false }
}

fn accepted(id: u64) -> VenueMessage {
    VenueMessage::Answer {
        key: OrderKey::Client(id),
        event: VenueEvent::Accepted { venue_id: 77 },
        terms: StatedTerms::Total(100, Price::from_cents(1_000)),
        is_dead: false,
    }
}

#[test]
fn first_logon_settles_all_before_it_in_each_version() {
    for version in VERSIONS {
        let (mut client, mut venue) = (client(version), Venue::new(version));
        assert_eq!(client.may_send(&OrderTerms::limit(1, Price(1))), Err(SendError::Closed));
        let events = connect(&mut client, &mut venue, 0);
        assert!(matches!(events[0], SessionEvent::LoggedIn { is_gap: false, .. }), "{events:?}");
        let logon = client.session.store().id_of(1);
        assert_eq!(messages(&events), [settled(logon)]);
    }
}

#[test]
fn order_names_itself_by_its_number_in_each_version() {
    for version in VERSIONS {
        let (mut client, mut venue) = open(version);
        let id = order(&mut client, 1);
        let seq = id - client.session.store().id_of(0);
        assert_eq!(client.session.store().next_out(), seq + 1);
        pump(&mut client, &mut venue, 1);
        assert_eq!(venue.requests, [("D".to_owned(), id)]);
        venue.accept(id);
        assert_eq!(messages(&pump(&mut client, &mut venue, 1)), [accepted(id)]);
    }
}

#[test]
fn order_that_the_line_lost_is_never_sent_again_and_the_venue_says_so() {
    let (mut client, mut venue) = open(Version::Fix44);
    let arrived = order(&mut client, 1);
    pump(&mut client, &mut venue, 1);
    let lost = order(&mut client, 2);
    disconnect(&mut client, &mut venue);
    let events = connect(&mut client, &mut venue, SECOND);
    let logon = lost + 1;
    assert_eq!(messages(&events), [VenueMessage::NotProcessed { from: lost }, settled(logon)]);
    assert!(VenueSession::is_open(&client));
    let next = order(&mut client, SECOND);
    pump(&mut client, &mut venue, SECOND);
    assert_eq!(venue.requests, [("D".to_owned(), arrived), ("D".to_owned(), next)]);
}

/// The gap may be filled, and the line break before the Heartbeat: the next logon finds no gap.
#[test]
fn order_is_told_to_be_lost_before_the_gap_is_filled() {
    let (mut client, mut venue) = open(Version::Fix44);
    let lost = order(&mut client, 1);
    disconnect(&mut client, &mut venue);
    venue.session.connected(Venue::now(2));
    VenueSession::connected(&mut client, 2).unwrap();
    venue.take(client.to_send(), 2);
    client.sent(client.to_send().len());
    let answers = venue.session.output().to_vec();
    let (mut input, mut said) = (&answers[..], Vec::new());
    while let Some(event) = VenueSession::receive(&mut client, 2, &mut input).unwrap() {
        let is_filled = client.to_send().windows(5).any(|window| window == b"\x0135=4");
        said.push((event, is_filled));
    }
    let not_processed = SessionEvent::Message { number: 0, message: VenueMessage::NotProcessed { from: lost } };
    assert!(said.contains(&(not_processed, false)), "{said:?}");
    venue.take(client.to_send(), 2);
    disconnect(&mut client, &mut venue);
    let events = connect(&mut client, &mut venue, SECOND);
    assert_eq!(messages(&events), [settled(client.processed_below)]);
    assert!(venue.requests.is_empty());
}

#[test]
fn answers_while_nobody_listened_come_before_the_session_opens() {
    let (mut client, mut venue) = open(Version::Fix42);
    let id = order(&mut client, 1);
    pump(&mut client, &mut venue, 1);
    disconnect(&mut client, &mut venue);
    // A venue numbers what it has for a client that is away.
    venue.accept(id);
    venue.report(id, (ExecType::PartialFill, OrdStatus::PartiallyFilled), 60, Some(40));
    let said = messages(&connect(&mut client, &mut venue, SECOND));
    assert_eq!((said[0], said.len()), (accepted(id), 3));
    let VenueMessage::Answer { event: VenueEvent::Filled { qty: 40, price, .. }, .. } = said[1] else {
        panic!("{said:?}")
    };
    assert_eq!((price, said[2]), (Price::from_cents(1_000), settled(client.processed_below)));
}

#[test]
fn execution_at_a_price_of_more_than_four_decimals_says_that_it_is_rounded() {
    let (mut client, mut venue) = open(Version::Fix42);
    let id = order(&mut client, 1);
    pump(&mut client, &mut venue, 1);
    venue.accept(id);
    let cl_ord_id = format!("{id:016}");
    venue.report_of(&ExecutionReport {
        cum_qty: Decimal::whole(40),
        last_px: Decimal::parse(b"10.000075"),
        last_qty: Some(Decimal::whole(40)),
        ord_status: OrdStatus::PartiallyFilled,
        exec_type: ExecType::PartialFill,
        leaves_qty: Decimal::whole(60),
        ..report(cl_ord_id.as_bytes())
    });
    let said = messages(&pump(&mut client, &mut venue, 1));
    let VenueMessage::Answer { event: VenueEvent::Filled { price, .. }, terms, .. } = said[1] else {
        panic!("{said:?}")
    };
    assert_eq!((price, terms), (Price(100_001), StatedTerms::Rounded));
}

#[test]
fn another_process_goes_on_with_the_numbers_of_the_journal() {
    let (mut client, mut venue) = open(Version::Fix50Sp2);
    let id = order(&mut client, 1);
    pump(&mut client, &mut venue, 1);
    venue.accept(id);
    let lost = order(&mut client, 1);
    let (mark, mut next) = (VenueSession::mark(&client), self::client(Version::Fix50Sp2));
    disconnect(&mut client, &mut venue);
    VenueSession::resume(&mut next, &mark);
    assert_eq!(next.next_id(), lost + 1);
    let said = messages(&connect(&mut next, &mut venue, SECOND));
    // What a process heard and did not write down comes again, and so do heartbeats as gaps.
    assert_eq!(said, [VenueMessage::NotProcessed { from: lost }, accepted(id), settled(lost + 1)]);
}

#[test]
fn cancel_takes_a_number_of_its_own_and_its_refusal_names_the_order() {
    let (mut client, mut venue) = open(Version::Fix44);
    let id = order(&mut client, 1);
    client.cancel_order(1, &target(id)).unwrap();
    pump(&mut client, &mut venue, 1);
    assert_eq!(venue.requests, [("D".to_owned(), id), ("F".to_owned(), id + 1)]);
    let seq = id + 1 - client.session.store().id_of(0);
    let body = |out: &mut Writer<'_>| {
        out.number(45, seq).number(372, 1).number(380, 8);
    };
    venue.session.send(Venue::now(1), "j", body).unwrap();
    let refused =
        VenueMessage::answer(OrderKey::Client(id), VenueEvent::CancelRefused { reason: RefusedBy::Business.reason(8) });
    assert_eq!(messages(&pump(&mut client, &mut venue, 1)), [refused]);
}

#[test]
fn skipped_number_leaves_no_gap() {
    let (mut client, mut venue) = open(Version::Fix44);
    let skipped = client.next_id();
    client.skip_id(1);
    let id = order(&mut client, 1);
    assert_eq!(id, skipped + 1);
    assert_eq!(messages(&pump(&mut client, &mut venue, 1)), []);
    assert_eq!(venue.requests, [("D".to_owned(), id)]);
}

#[test]
fn request_for_a_resend_within_the_session_ends_the_connection() {
    let (mut client, mut venue) = open(Version::Fix44);
    order(&mut client, 1);
    client.sent(client.to_send().len());
    order(&mut client, 1);
    venue.take(client.to_send(), 1);
    let mut input = venue.session.output();
    let error = VenueSession::receive(&mut client, 1, &mut input).unwrap_err();
    assert!(error.to_string().contains("the next logon says which it has"), "{error}");
}

#[test]
fn venue_that_begins_its_numbers_anew_is_a_gap() {
    let (mut client, mut venue) = open(Version::Fix44);
    let lost = order(&mut client, 1);
    disconnect(&mut client, &mut venue);
    let mut other = Venue::new(Version::Fix44);
    VenueSession::connected(&mut client, SECOND).unwrap();
    client.sent(client.to_send().len());
    other.session = Session::new(
        SessionConfig {
            role: Role::Initiator,
            reset_on_logon: true,
            sender: "VENUE".into(),
            target: "TRADER".into(),
            ..SessionConfig::default()
        },
        MemoryStore::new(8, 1 << 10),
    );
    other.session.connected(Venue::now(SECOND));
    let mut input = other.session.output();
    let event = VenueSession::receive(&mut client, SECOND, &mut input).unwrap();
    assert!(matches!(event, Some(SessionEvent::LoggedIn { is_gap: true, .. })), "{event:?}");
    assert!(client.processed_below > lost, "nothing says that the order was lost");
}

#[test]
fn logout_of_the_venue_ends_with_its_words_escaped() {
    let (mut client, mut venue) = open(Version::Fix44);
    venue.session.logout(Venue::now(1), "closed\u{1b}[2J");
    let mut input = venue.session.output();
    let error = VenueSession::receive(&mut client, 1, &mut input).unwrap_err();
    assert_eq!(error.to_string(), "the venue logged out: closed\\x1b[2J");
}

#[test]
fn silent_venue_ends_the_session() {
    let (mut client, _) = open(Version::Fix44);
    let ended = (1..60).find_map(|tenth| VenueSession::tick(&mut client, tenth * SECOND / 10).err());
    assert!(ended.is_some_and(|error| error.to_string().contains("nothing from the peer")));
}

#[test]
fn cancel_that_may_be_sent_is_written() {
    let (mut client, _) = open(Version::Fix50Sp2);
    let id = order(&mut client, SECOND);
    while client.may_cancel().is_ok() {
        client.cancel_order(SECOND, &target(id)).unwrap();
    }
    assert_eq!(client.may_cancel(), Err(SendError::Room));
    client.sent(client.to_send().len());
    assert_eq!(client.may_cancel(), Ok(()));
}

#[test]
fn replace_cancel_and_question_of_a_short_sale_have_its_side() {
    let (mut client, _) = open(Version::Fix50Sp2);
    let (id, side, is_short) = (client.next_id(), Side::Sell, true);
    let (instrument, symbol) = (InstrumentIdx(0), SYMBOL);
    let short = WireTarget { side, is_short, ..target(id) };
    let (qty, price, instructions) = (100, Price::from_cents(1_000), Instructions::PLAIN);
    let wire = WireOrder { id, instrument, symbol, side, is_short, qty, price, instructions };
    client.new_order(SECOND, &wire).unwrap();
    client.replace_order(SECOND, &short, &WireOrder { id: client.next_id(), ..wire }).unwrap();
    client.cancel_order(SECOND, &short).unwrap();
    client.ask_status(SECOND, &short).unwrap();
    let text = String::from_utf8(client.to_send().to_vec()).unwrap();
    assert_eq!((text.matches("\x0154=5\x01").count(), text.matches("\x0154=").count()), (4, 4));
}

#[test]
fn mass_cancel_is_one_message_and_a_report_of_its_refusal_names_it() {
    for version in [Version::Fix44, Version::Fix50Sp2] {
        let (mut client, mut venue) = open(version);
        let id = client.next_id();
        assert_eq!(client.cancel_all(1), Ok(true));
        pump(&mut client, &mut venue, 1);
        assert_eq!(venue.requests, [("q".to_owned(), id)]);
        let cl_ord_id = format!("{id:016}");
        for (response, said) in
            [(7, VenueMessage::Other), (0, VenueMessage::Refused { id, reason: RefusedBy::MassCancel.reason(1) })]
        {
            let report = MassCancelReport {
                cl_ord_id: Some(cl_ord_id.as_bytes()),
                order_id: b"NONE",
                text: None,
                request_type: 7,
                response,
                reject_reason: (response == 0).then_some(1),
                total_affected: None,
            };
            venue.session.send(Venue::now(1), "r", |out| report.write(out)).unwrap();
            assert_eq!(messages(&pump(&mut client, &mut venue, 1)), [said]);
        }
    }
}

#[test]
fn venue_of_fix_that_knows_no_mass_cancel_refuses_it_by_its_number_and_fix_42_has_none() {
    let (mut client, mut venue) = open(Version::Fix44);
    let id = client.next_id();
    assert_eq!(client.cancel_all(1), Ok(true));
    pump(&mut client, &mut venue, 1);
    let seq = id - client.session.store().id_of(0);
    venue.session.business_reject(Venue::now(1), b"q", seq, BusinessReason::UnsupportedMsgType).unwrap();
    let said = messages(&pump(&mut client, &mut venue, 1));
    assert!(matches!(said[..], [VenueMessage::Refused { id: of, .. }] if of == id), "{said:?}");
    let (mut client, _) = open(Version::Fix42);
    assert_eq!(client.cancel_all(1), Ok(false));
}

/// The clock is set back over the beginning of the numbers: they are those of the venue all the
/// same. At the real end of the day they begin anew.
#[test]
fn wall_clock_that_steps_back_over_the_days_beginning_keeps_the_numbers() {
    let (hour_ns, day_s) = (3_600_000_000_000, 86_400);
    let begin_s = (UTC / 1_000_000_000 % day_s) as u32;
    // The day begins a second before.
    let schedule = Some(Schedule::daily(begin_s - 1, begin_s - 61));
    let mut client = client_of(SessionConfig { heartbeat_s: 1, schedule, ..SessionConfig::default() });
    let mut venue = Venue::new(Version::Fix44);
    connect(&mut client, &mut venue, 0);
    let next_id = client.next_id();
    client.set_epoch_offset_ns(UTC - hour_ns);
    assert_eq!(VenueSession::tick(&mut client, 1).map_err(|error| error.to_string()), Ok(()));
    VenueSession::disconnected(&mut client);
    VenueSession::connected(&mut client, 2).unwrap();
    let sent = String::from_utf8(client.to_send().to_vec()).unwrap();
    assert!(!sent.contains("\u{1}34=1\u{1}"), "{sent}");
    assert!(client.next_id() > next_id, "{} {next_id}", client.next_id());
}
