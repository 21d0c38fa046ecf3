use super::*;
use crate::fix::codec::{Decimal, Writer};
use crate::fix::orders::{ExecType, OrdStatus};
use crate::fix::session::Version;

const SECOND: u64 = 1_000_000_000;

/// A venue's side, and the bytes of one connection.
struct Venue {
    session: Session<MemoryStore>,
    now_ns: u64,
    /// What the client could not read.
    unread: Vec<String>,
}

fn names(role: Role, sender: &str, target: &str) -> SessionConfig {
    let (sender, target) = (sender.to_owned(), target.to_owned());
    SessionConfig { version: Version::Fix42, role, sender, target, ..SessionConfig::default() }
}

impl Venue {
    fn new() -> Self {
        let session = Session::new(names(Role::Acceptor, "VENUE", "FIRM"), MemoryStore::new(64, 1 << 16));
        Self { session, now_ns: SECOND, unread: Vec::new() }
    }

    const fn now(&self) -> Now {
        Now { steady_ns: self.now_ns, utc_ns: self.now_ns }
    }

    fn report(&mut self, report: &ExecutionReport<'_>) {
        let write = |out: &mut Writer<'_>| report.write(out);
        self.session.send(self.now(), "8", write).unwrap();
    }

    fn connect(&mut self, client: &mut FixDropCopy) -> Result<Vec<CopiedTrade>, SessionError> {
        self.session.connected(self.now());
        client.connected(self.now_ns);
        self.pump(client)
    }

    /// Lets bytes pass until there are none, and gives the trades.
    fn pump(&mut self, client: &mut FixDropCopy) -> Result<Vec<CopiedTrade>, SessionError> {
        let mut trades = Vec::new();
        loop {
            let asked = client.to_send().to_vec();
            client.sent(asked.len());
            let mut taken = self.session.receive(self.now(), &asked);
            loop {
                if self.session.poll(self.now()).is_none() {
                    if taken == asked.len() {
                        break;
                    }
                    taken += self.session.receive(self.now(), &asked[taken..]);
                }
            }
            let told = self.session.output().to_vec();
            self.session.consume(told.len());
            let mut input = &told[..];
            while let Some(event) = client.receive(self.now_ns, &mut input)? {
                match event {
                    DropCopyEvent::Trade(trade) => trades.push(trade),
                    DropCopyEvent::NumberUsed => return Ok(trades),
                    DropCopyEvent::Unread(why) => self.unread.push(why.to_string()),
                    DropCopyEvent::LoggedOn => (),
                }
            }
            if asked.is_empty() && told.is_empty() {
                return Ok(trades);
            }
        }
    }

    fn disconnect(&mut self, client: &mut FixDropCopy) {
        self.session.disconnected();
        client.disconnected();
    }
}

fn client(of: CopiedSession) -> FixDropCopy {
    FixDropCopy::new(names(Role::Initiator, "FIRM", "VENUE"), of, 0)
}

fn fill<'a>(cl_ord_id: &'a [u8], exec_id: &'a [u8], qty: i64) -> ExecutionReport<'a> {
    ExecutionReport {
        account: None,
        avg_px: None,
        cl_ord_id: Some(cl_ord_id),
        cum_qty: Decimal::whole(qty),
        exec_id,
        exec_ref_id: None,
        exec_trans_type: None,
        last_px: Some(Decimal::from_price(Price(1_000_000))),
        last_qty: Some(Decimal::whole(qty)),
        order_id: b"1",
        order_qty: None,
        ord_status: OrdStatus::Filled,
        ord_type: None,
        orig_cl_ord_id: None,
        price: None,
        side: FixSide::Buy,
        symbol: b"ZIEXT",
        text: None,
        time_in_force: None,
        transact_time: None,
        ord_rej_reason: None,
        exec_type: ExecType::Fill,
        leaves_qty: Decimal::whole(0),
        exec_restatement_reason: None,
    }
}

const fn traded(id: u64, exec: ExecId, qty: u32) -> CopiedTrade {
    let (symbol, side, terms) = (Symbol(*b"ZIEXT   "), Side::Buy, Some((qty, Price(1_000_000))));
    CopiedTrade { id, symbol, side, exec, terms, correction: None }
}

#[test]
fn day_before_the_first_connection_is_read_and_then_each_trade_as_it_happens() {
    let (mut venue, mut client) = (Venue::new(), client(CopiedSession::Fix));
    venue.report(&fill(b"7", b"A-1", 100));
    let exec = ExecId::from_text;
    assert_eq!(venue.connect(&mut client).unwrap(), [traded(7, exec(b"A-1"), 100)]);
    venue.report(&fill(b"8", b"A-2", 50));
    assert_eq!(venue.pump(&mut client).unwrap(), [traded(8, exec(b"A-2"), 50)]);
    let bust =
        ExecutionReport { exec_ref_id: Some(b"A-2"), exec_type: ExecType::TradeCancel, ..fill(b"8", b"A-3", 50) };
    venue.report(&bust);
    let taken_back = CopiedTrade { terms: None, ..traded(8, exec(b"A-2"), 50) };
    assert_eq!(venue.pump(&mut client).unwrap(), [taken_back]);
    let corrected =
        ExecutionReport { exec_ref_id: Some(b"A-1"), exec_type: ExecType::TradeCorrect, ..fill(b"7", b"A-4", 90) };
    venue.report(&corrected);
    let corrected = CopiedTrade { correction: Some(exec(b"A-4")), ..traded(7, exec(b"A-1"), 90) };
    assert_eq!(venue.pump(&mut client).unwrap(), [corrected]);
}

#[test]
fn next_connection_brings_what_is_new_and_another_process_gets_the_day() {
    let (mut venue, mut first) = (Venue::new(), client(CopiedSession::Fix));
    venue.report(&fill(b"7", b"A-1", 100));
    assert_eq!(venue.connect(&mut first).unwrap().len(), 1);
    venue.disconnect(&mut first);
    venue.report(&fill(b"8", b"A-2", 50));
    assert_eq!(venue.connect(&mut first).unwrap(), [traded(8, ExecId::from_text(b"A-2"), 50)]);
    venue.disconnect(&mut first);
    // The venue has used numbers of ours that this process does not know.
    let mut second = client(CopiedSession::Fix);
    assert_eq!(venue.connect(&mut second).unwrap(), []);
    venue.disconnect(&mut second);
    assert_eq!(venue.connect(&mut second).unwrap().len(), 2);
}

#[test]
fn venue_whose_numbers_began_anew_is_read_from_its_first_message() {
    let (mut venue, mut client) = (Venue::new(), client(CopiedSession::Fix));
    (1..=3).for_each(|_| venue.report(&fill(b"7", b"A-1", 100)));
    assert_eq!(venue.connect(&mut client).unwrap().len(), 3);
    venue.disconnect(&mut client);
    let mut anew = Venue::new();
    assert!(anew.connect(&mut client).is_err());
    anew.disconnect(&mut client);
    anew.report(&fill(b"9", b"B-1", 10));
    assert_eq!(anew.connect(&mut client).unwrap(), [traded(9, ExecId::from_text(b"B-1"), 10)]);
}

/// The examples of Cboe's specification of BOE.
#[test]
fn executions_of_boe_have_the_digits_of_base_36() {
    for (digits, number) in [(&b"A1234B567"[..], 28_294_005_440_239), (b"R248BC23H", 76_335_905_726_621)] {
        assert_eq!(CopiedSession::Boe.exec_of(digits), Some(ExecId::from_number(number)));
    }
    for digits in [&b""[..], b"a1", b"+1", b"ZZZZZZZZZZZZZZ"] {
        assert_eq!(CopiedSession::Boe.exec_of(digits), None);
    }
}

#[test]
fn orders_and_executions_have_the_names_of_their_own_session() {
    let token = b"00000000000057";
    assert_eq!((CopiedSession::Ouch42.id_of(token), CopiedSession::Ouch42.id_of(b"57")), (57, 0));
    assert_eq!(CopiedSession::Ouch42.exec_of(b"12"), Some(ExecId::from_number(12)));
    assert_eq!((CopiedSession::Boe.id_of(b"57"), CopiedSession::Boe.id_of(b"057")), (57, 0));
    assert_eq!(CopiedSession::Ilink3.exec_of(b"12"), Some(ExecId::from_text(b"12")));
}

#[test]
fn report_that_cannot_be_read_is_told_with_its_field_and_the_session_goes_on() {
    let (mut venue, mut client) = (Venue::new(), client(CopiedSession::Boe));
    venue.report(&fill(b"7", b"no number", 100));
    venue.report(&fill(b"8", b"00000000A", 50));
    assert_eq!(venue.connect(&mut client).unwrap(), [traded(8, ExecId::from_number(10), 50)]);
    let [why] = &venue.unread[..] else { panic!("{:?}", venue.unread) };
    assert!(why.contains("report 1 cannot be read") && why.contains("field 17"), "{why}");
}
