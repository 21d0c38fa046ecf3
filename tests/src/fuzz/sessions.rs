//! Sessions whose peer sends any bytes, and what a gateway reads of another process: the venue's
//! side of FIX, orders by iLink 3, OUCH 4.2 and BOE, drop copies, both ends of the standby's link,
//! a journal. What they say is the same however the bytes are cut.

use market::Symbol;
use order_entry::Text;
use order_entry::boe::{self, Boe2Client, Boe3Client, BoeFirm, V2, V3, v2, v3};
use order_entry::fix::session::{Event, MemoryStore, Now, Role, Session, SessionConfig};
use order_entry::fix::{CopiedSession, FixDropCopy};
use order_entry::ilink3::{self, Ilink3Client, IlinkFirm};
use order_entry::journal::{Entry, Journal, Rebuild, Records, SessionMark, Stamp};
use order_entry::orders::{OrderCapacity, OrderRules, OrderTable};
use order_entry::ouch::{Capacity, Ouch42Client};
use order_entry::risk::{KillSwitch, Limits, RiskCapacity, RiskGate};
use order_entry::session::VenueSession;
use order_entry::soupbin::{ClientConfig, Credentials};
use order_gateway::standby::{Follower, Primary, PrimaryEvent};

use super::Input;
use super::orders::{FIX_UTC_NS, boe_login, boe_message, fix_message, ilink3_message, story, tells_the_same};

/// Bytes of a journal, and of a copy of one.
const JOURNAL_LEN: usize = 4_096;
const LEASE_NS: u64 = 1_000_000_000;

fn names() -> SessionConfig {
    SessionConfig { sender: "A".to_owned(), target: "B".to_owned(), ..SessionConfig::default() }
}

/// FIX as a venue, which is called.
pub(super) fn fix_acceptor(data: &[u8]) {
    let now = Now { steady_ns: 0, utc_ns: FIX_UTC_NS };
    tells_the_same(data, |stream, cut| {
        let config = SessionConfig { role: Role::Acceptor, ..names() };
        let mut session = Session::new(config, MemoryStore::new(8, 4_096));
        session.connected(now);
        story(stream, cut, |input| {
            loop {
                if let Some(event) = session.poll(now) {
                    let is_over = matches!(event, Event::Disconnect(_));
                    let said = format!("{event:?}");
                    return if is_over { Err(said) } else { Ok(Some(said)) };
                }
                let taken = session.receive(now, input);
                *input = &input[taken..];
                if taken == 0 {
                    return Ok(None);
                }
            }
        })
    });
}

/// A client of a venue, and what it says of the bytes.
fn client(data: &[u8], now_ns: u64, open: impl Fn() -> Box<dyn VenueSession>) {
    tells_the_same(data, |stream, cut| {
        let mut session = open();
        session.resume(&SessionMark::default());
        session.connected(now_ns).expect("there is room for a login");
        story(stream, cut, |input| session.receive(now_ns, input))
    });
}

/// The time at which [`ilink3_client`] logs in, and so the identifier of its session.
const ILINK3_NOW_NS: u64 = 5_000;
const ILINK3_UUID: u64 = ILINK3_NOW_NS / 1_000;

/// Orders by CME iLink 3: the login first, and behind a login that was accepted.
pub(super) fn ilink3_client(data: &[u8]) {
    let open = || -> Box<dyn VenueSession> {
        let config = ilink3::ClientConfig::new(ilink3::Identity {
            session: Text(*b"ABC"),
            firm: Text(*b"FIRM\0"),
            access_key: Text([0; 20]),
            key: ilink3::Key::from_bytes(b"SECRET"),
            system: Text([0; 30]),
            system_version: Text([0; 10]),
            system_vendor: Text([0; 10]),
        });
        let (operator, location) = (Text([b'O'; 20]), Text(*b"US,IL"));
        let firm = IlinkFirm { operator, location, party_details: 1, securities: [1].into() };
        Box::new(Ilink3Client::new(config, firm, 0))
    };
    client(data, ILINK3_NOW_NS, open);
    let Some((cut, stream)) = data.split_first() else { return };
    client(&[&[*cut][..], &ilink3_login(), stream].concat(), ILINK3_NOW_NS, open);
}

/// The venue's answers to Negotiate and Establish.
fn ilink3_login() -> Vec<u8> {
    let echo = [ILINK3_UUID.to_le_bytes(), ILINK3_NOW_NS.to_le_bytes()].concat();
    let negotiated = [&echo[..], &[0; 17]].concat();
    let established = [&echo[..], &1_u32.to_le_bytes(), &[0; 19]].concat();
    [ilink3_message(501, &negotiated), ilink3_message(504, &established)].concat()
}

/// Orders by OUCH 4.2.
pub(super) fn ouch42_client(data: &[u8]) {
    client(data, 0, || {
        let credentials = Credentials::new("USER", "PASS").expect("6 and 10 letters at most");
        let firm = Text::new("FIRM").expect("four letters");
        Box::new(Ouch42Client::new(ClientConfig::new(credentials), firm, Capacity::AGENCY, 0))
    });
}

fn boe_port() -> boe::ClientConfig {
    boe::ClientConfig::new(boe::Credentials::new("USER", "0001", "PASS").expect("they fit"))
}

/// Orders by version 2 of BOE: the login first, and behind one that was accepted.
pub(super) fn boe2_orders(data: &[u8]) {
    boe_orders::<V2>(data, || Box::new(Boe2Client::new(boe_port(), BoeFirm::new(boe::Capacity::AGENCY))));
}

/// The same by version 3.
pub(super) fn boe3_orders(data: &[u8]) {
    boe_orders::<V3>(data, || Box::new(Boe3Client::new(boe_port(), BoeFirm::new(boe::Capacity::CUSTOMER))));
}

fn boe_orders<V: boe::Version>(data: &[u8], open: impl Fn() -> Box<dyn VenueSession>) {
    client(data, 0, &open);
    let Some((cut, stream)) = data.split_first() else { return };
    client(&[&[*cut][..], &boe_login::<V>(), stream].concat(), 0, open);
}

/// Copies by FIX, of each session.
pub(super) fn drop_copy(data: &[u8]) {
    for of in [CopiedSession::Fix, CopiedSession::Boe, CopiedSession::Ilink3, CopiedSession::Ouch42] {
        tells_the_same(data, |stream, cut| {
            let mut copies = FixDropCopy::new(names(), of, FIX_UTC_NS);
            copies.connected(0);
            story(stream, cut, |input| copies.receive(0, input))
        });
    }
}

/// A standby, to which anybody may pretend to be its primary.
pub(super) fn standby(data: &[u8]) {
    tells_the_same(data, |stream, cut| {
        let mut follower = Follower::new(7, vec![0; JOURNAL_LEN]).expect("zeros are an empty journal");
        follower.connected();
        let mut story = Vec::new();
        for piece in stream.chunks(cut) {
            if let Err(why) = follower.receive(piece, 5) {
                story.push(why);
                break;
            }
        }
        assert!(follower.journal().is_none_or(|journal| journal.end() <= JOURNAL_LEN));
        story.push(format!("{:?} {:?}", follower.has_promised(), follower.poll(u64::MAX)));
        story.push(format!("{:?}", follower.to_send()));
        story
    });
}

/// When a primary asks for its first grant.
const ASKED_NS: u64 = LEASE_NS;

/// A primary, to which anybody may pretend to be its standby: before it has asked for a grant, and
/// behind that.
pub(super) fn primary(data: &[u8]) {
    for has_asked in [false, true] {
        primary_that(has_asked, data);
    }
}

/// Without a grant it sends only where the standby has left, and with one no longer than a lease
/// from when it asked.
fn primary_that(has_asked: bool, data: &[u8]) {
    let journal = Journal::create(vec![0; JOURNAL_LEN], 3, 0, 0).expect("there is room for a header");
    tells_the_same(data, |stream, cut| {
        let mut primary = Primary::new(LEASE_NS, 7);
        primary.connected();
        if has_asked {
            let follow = frame(b'F', &words(&[7, 0, 0]));
            assert_eq!(primary.receive(&follow, &journal), Ok(None));
            assert_eq!(primary.poll(ASKED_NS, &journal), None);
        }
        let (mut story, mut has_left) = (Vec::new(), false);
        for piece in stream.chunks(cut) {
            match primary.receive(piece, &journal) {
                // What comes behind that is nobody's.
                Ok(Some(PrimaryEvent::Left)) => {
                    has_left = true;
                    break;
                }
                Ok(_) => (),
                Err(why) => {
                    story.push(why);
                    break;
                }
            }
        }
        let may_have_grant = has_asked && stream.windows(5).any(|head| head == [16, 0, 0, 0, b'G']);
        assert!(has_left || may_have_grant || !primary.may_send(1), "it has no grant, and may send");
        assert!(has_left || !primary.may_send(ASKED_NS + LEASE_NS), "it asked for one lease, and may send behind it");
        story.push(if has_left { "it has left".to_owned() } else { format!("{:?}", primary.to_send()) });
        story
    });
}

/// A journal: its file of any bytes, and records of any payload whose sums are right.
pub(super) fn journal(data: &[u8]) {
    if let Ok(mut records) = Records::new(data) {
        let count = records.by_ref().count() as u64;
        assert!(records.end() <= data.len() && records.next_seq() == count + 1);
        let _ = records.tail();
    }
    let mut journal = Journal::create(vec![0; JOURNAL_LEN], 3, 0, 0).expect("there is room for a header");
    let mut input = Input::new(data);
    let mut appended = 0;
    while !input.is_empty() {
        let kind = u16::from(input.below(20));
        let len = input.u8();
        let payload = input.take(len.into());
        appended += u64::from(journal.append(kind, Stamp::default(), payload).is_ok());
        if let Some(entry) = Entry::decode(kind, payload) {
            let again = Entry::decode(entry.kind(), &entry.encode());
            assert_eq!(again, Some(entry), "written and read again");
        }
    }
    let capacity = OrderCapacity { orders: 4, executions: 8, instruments: 1 };
    let mut table = OrderTable::new(capacity, OrderRules::default());
    let limits = Box::new(Limits::zero(1, 1, 1));
    let mut gate = RiskGate::new(limits, KillSwitch::new(), RiskCapacity { orders: 4, recent: 4 });
    let mut rebuild = Rebuild::of(&[Symbol(*b"A       ")], &[]);
    let recovered = Journal::recover(journal.memory().clone(), 0, |record| {
        rebuild.apply(record, &mut table, &mut gate);
    });
    let (_, recovery) = recovered.expect("the header is right");
    let counts = rebuild.counts();
    assert_eq!((recovery.records, counts.applied + counts.unknown + counts.refused), (appended, appended));
}

pub(super) fn fix_acceptor_seeds() -> Vec<Vec<u8>> {
    let head = |kind: &str, seq: u32| format!("35={kind}|34={seq}|49=B|52=20261126-21:05:14.000|56=A|");
    let logon = fix_message(&format!("{}98=0|108=30|", head("A", 1)));
    let order = format!("{}11=1|21=1|38=9|40=2|44=1.5|54=1|55=X|60=20261126-21:05:14.000|", head("D", 2));
    let bodies = [
        order,
        format!("{}112=T|", head("1", 2)),
        format!("{}7=1|16=0|", head("2", 2)),
        format!("{}123=Y|36=9|", head("4", 2)),
        format!("{}36=9|", head("4", 2)),
        format!("{}43=Y|122=20261126-21:05:14.000|", head("0", 1)),
        format!("{}58=over|", head("5", 5)),
    ];
    bodies.iter().map(|body| [&[9][..], &logon, &fix_message(body)].concat()).collect()
}

pub(super) fn ilink3_client_seeds() -> Vec<Vec<u8>> {
    let blocks = [(502_u16, 68_u16), (505, 73), (506, 14), (507, 67), (509, 31), (510, 75), (513, 17), (521, 467)];
    let reports = [(522_u16, 226_u16), (523, 483), (524, 219), (531, 226), (534, 247)];
    let mut seeds: Vec<_> = blocks
        .iter()
        .chain(&reports)
        .map(|&(template, block)| [&[7][..], &ilink3_message(template, &vec![0; block.into()])].concat())
        .collect();
    seeds.push([&[11][..], &ilink3_login()].concat());
    seeds
}

pub(super) fn ouch42_client_seeds() -> Vec<Vec<u8>> {
    let accepted = b"\x05\0\x1fA    SESS01                   1";
    let messages = super::orders::ouch42_seeds();
    let framed = |message: &Vec<u8>| [&(message.len() as u16 + 1).to_be_bytes()[..], b"S", message].concat();
    let stream = |message: &Vec<u8>| [&accepted[..], &framed(message)].concat();
    messages.iter().map(stream).collect()
}

pub(super) fn drop_copy_seeds() -> Vec<Vec<u8>> {
    super::orders::fix_seeds().iter().map(|stream| [&[9][..], stream].concat()).collect()
}

pub(super) fn boe2_orders_seeds() -> Vec<Vec<u8>> {
    boe_orders_seeds::<V2>(v2::Outbound::LENGTHS.iter().map(|&(kind, len)| (u16::from(kind), len)))
}

pub(super) fn boe3_orders_seeds() -> Vec<Vec<u8>> {
    boe_orders_seeds::<V3>(v3::Outbound::LENGTHS.iter().copied())
}

/// Empty messages of all types, behind the login and before it.
fn boe_orders_seeds<V: boe::Version>(lengths: impl Iterator<Item = (u16, usize)>) -> Vec<Vec<u8>> {
    let message = |(kind, len)| [&[9][..], &boe_message::<V>(kind, &vec![0; len])].concat();
    lengths.map(message).chain([[&[9][..], &boe_login::<V>()].concat()]).collect()
}

fn words(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// A frame of the standby's link.
fn frame(kind: u8, content: &[u8]) -> Vec<u8> {
    [&(content.len() as u32).to_le_bytes()[..], &[kind], content].concat()
}

pub(super) fn standby_seeds() -> Vec<Vec<u8>> {
    let mut journal = Journal::create(vec![0; JOURNAL_LEN], 3, 0, 0).expect("there is room for a header");
    let from = journal.end();
    let entry = Entry::Armed(true);
    journal.append(entry.kind(), Stamp::default(), &entry.encode()).expect("there is room");
    let (header, records) = (frame(b'H', journal.header()), frame(b'J', journal.written(from)));
    let renew = frame(b'R', &[1_u64.to_le_bytes(), LEASE_NS.to_le_bytes()].concat());
    let begun = [&[9][..], &header, &records].concat();
    [&renew, &frame(b'T', &[]), &frame(b'L', &[]), &records].map(|last| [&begun[..], last].concat()).into()
}

pub(super) fn primary_seeds() -> Vec<Vec<u8>> {
    let follow = |journal: u64, end: u64| frame(b'F', &words(&[7, journal, end]));
    let grant = |asked_ns: u64| frame(b'G', &words(&[asked_ns, 64]));
    let grants = [0, 1, ASKED_NS, ASKED_NS + 1, u64::MAX].map(grant);
    let lasts = [&grants[..], &[frame(b'A', &words(&[64])), frame(b'L', &[]), follow(3, 64)]].concat();
    let anew = |last: &Vec<u8>| [&[9][..], &follow(0, 0), last].concat();
    let behind_a_question = |last: &Vec<u8>| [&[9][..], last].concat();
    lasts.iter().flat_map(|last| [anew(last), behind_a_question(last)]).collect()
}

pub(super) fn journal_seeds() -> Vec<Vec<u8>> {
    let record = |kind: u8, len: u8| [&[kind, len][..], &vec![0; len.into()]].concat();
    let all: Vec<_> = (1..18).flat_map(|kind| [8, 18, 26, 28, 64].map(|len| record(kind, len)).concat()).collect();
    let mut journal = Journal::create(vec![0; 512], 3, 0, 0).expect("there is room for a header");
    let entry = Entry::Armed(true);
    journal.append(entry.kind(), Stamp::default(), &entry.encode()).expect("there is room");
    vec![all, journal.memory().clone()]
}
