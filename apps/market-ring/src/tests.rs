#![allow(clippy::unwrap_used)] // a panic here is the report

use core::sync::atomic::{AtomicBool, Ordering};
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use market::event::{
    Add, BookReset, Cancel, Clear, Clock, Delete, Depth, DepthAction, Directory, EndOfEvent, Event, Execute,
    GroupStatus, Instrument, Liquidity, Modify, Numbered, Order, OrderAction, Other, PriceLevel, Replace, Snapshot,
    SnapshotEnd, Status, System, Trade, TradeBreak, TradeSummary,
};
use market::{Locate, OrderRef, Price, Price9, Side, Symbol, event};
use tempfile::TempDir;

use crate::fields::KINDS;
use crate::{Conflated, Flags, OpenProblem, Quote, Read, Record, RingConfig, RingReader, RingWriter};

#[global_allocator]
static ALLOCATOR: allocations::Counting = allocations::Counting;

struct Rig {
    writer: RingWriter,
    reader: RingReader,
    path: PathBuf,
    _folder: TempDir,
}

fn rig(records: usize, quotes: usize) -> Rig {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ring");
    let writer = RingWriter::create(&path, &RingConfig { records, quotes, ..RingConfig::default() }).unwrap();
    let reader = RingReader::open(&path).unwrap();
    Rig { writer, reader, path, _folder: folder }
}

/// A record whose every field says its number.
fn numbered(number: u64) -> Record {
    let event = Event::Delete(Delete { locate: Locate(7), at_ns: number, order: OrderRef(number) });
    Record { receive_ns: number, publish_ns: number, ..Record::new(number, event) }
}

#[test]
fn records_are_read_in_order_and_once() {
    let mut rig = rig(8, 0);
    assert_eq!(rig.reader.read(), Read::Empty);
    for number in 0..20 {
        assert_eq!(rig.writer.publish(&numbered(number)), number);
        assert_eq!(rig.reader.behind(), 1);
        assert_eq!(rig.reader.read(), Read::Record { seq: number, record: numbered(number) });
        assert_eq!(rig.reader.read(), Read::Empty);
    }
}

#[test]
fn ring_that_is_just_full_loses_nothing() {
    let mut rig = rig(8, 0);
    (0..8).for_each(|number| _ = rig.writer.publish(&numbered(number)));
    for number in 0..8 {
        assert_eq!(rig.reader.read(), Read::Record { seq: number, record: numbered(number) });
    }
}

#[test]
fn reader_that_is_overrun_is_told_what_it_missed() {
    let mut rig = rig(8, 0);
    (0..9).for_each(|number| _ = rig.writer.publish(&numbered(number)));
    assert_eq!(rig.reader.read(), Read::Overrun { first: 0, last: 4 });
    for number in 5..9 {
        assert_eq!(rig.reader.read(), Read::Record { seq: number, record: numbered(number) });
    }
    assert_eq!(rig.reader.read(), Read::Empty);
}

#[test]
fn reader_starts_with_what_follows_and_may_go_back_half_a_ring() {
    let mut rig = rig(8, 0);
    (0..30).for_each(|number| _ = rig.writer.publish(&numbered(number)));
    let mut late = RingReader::open(&rig.path).unwrap();
    assert_eq!((late.read(), late.read()), (Read::Joined { before: 30 }, Read::Empty));
    late.rewind();
    assert_eq!(late.read(), Read::Record { seq: 26, record: numbered(26) });
}

#[test]
fn every_event_arrives_as_it_was() {
    let (locate, at_ns, order, price, symbol) =
        (Locate(65_535), u64::MAX, OrderRef(u64::MAX - 1), Price(i64::MIN), Symbol(*b"ABCDEFGH"));
    let (side, qty) = (Side::Sell, u32::MAX);
    let execute = Execute { locate, printable: true, qty, at_ns, order, trade: 9, price: None, remaining: None };
    let trade = Trade { locate, side: None, at_ns, price, trade: 3, symbol, qty: u64::MAX };
    let price9 = Price9(i64::MAX - 3);
    let depth = Depth {
        side,
        liquidity: Liquidity::Implied,
        action: DepthAction::DeleteThru,
        level: 255,
        orders: qty,
        at_ns,
        price: price9,
        symbol,
        qty: u64::MAX,
        rpt_seq: 9,
    };
    let summary = TradeSummary {
        aggressor: Some(Side::Buy),
        action: DepthAction::New,
        orders: 2,
        at_ns,
        price: price9,
        symbol,
        qty: u64::MAX,
        trade: u32::MAX,
        rpt_seq: u32::MAX,
    };
    let snapshot = Snapshot { rpt_seq: 5, at_ns, symbol, last_seq: u64::MAX, total: qty, part: 3, parts: u32::MAX };
    let instrument = Instrument {
        depth: 10,
        implied_depth: 2,
        action: b'A',
        total: 8,
        at_ns,
        symbol,
        tick: price9,
        name: Symbol(*b"ESZ6    "),
        group: Symbol(*b"ES      "),
    };
    let status =
        Status { locate, state: b'H', is_halted: Some(true), operational: true, follows_group: None, at_ns, symbol };
    let of_group =
        GroupStatus { state: 2, is_halted: Some(true), at_ns, group: instrument.group, symbol: Symbol::NONE };
    let events = [
        Event::Add(Add { locate, side, qty, at_ns, order, price, symbol }),
        Event::Execute(execute),
        Event::Execute(Execute { printable: false, price: Some(Price(0)), remaining: Some(0), ..execute }),
        Event::Cancel(Cancel { locate, qty, at_ns, order }),
        Event::Delete(Delete { locate, at_ns, order }),
        Event::Replace(Replace { locate, qty, at_ns, old: order, new: OrderRef(1), price }),
        Event::Modify(Modify { qty, at_ns, order, price }),
        Event::Trade(trade),
        Event::Trade(Trade { side: Some(Side::Buy), ..trade }),
        Event::TradeBreak(TradeBreak { at_ns, trade: 8 }),
        Event::Quote(event::Quote {
            available: true,
            bid_qty: 1,
            at_ns,
            bid_px: price,
            ask_px: Price(5),
            symbol,
            ask_qty: qty,
        }),
        Event::PriceLevel(PriceLevel { side, complete: true, qty, at_ns, price, symbol }),
        Event::Directory(Directory { locate, round_lot: qty, at_ns, symbol }),
        Event::Status(status),
        Event::Status(Status { state: b'T', is_halted: Some(false), follows_group: Some(true), ..status }),
        Event::Status(Status {
            state: b'?',
            is_halted: None,
            operational: false,
            follows_group: Some(false),
            ..status
        }),
        Event::GroupStatus(of_group),
        Event::GroupStatus(GroupStatus { is_halted: Some(false), symbol, ..of_group }),
        Event::GroupStatus(GroupStatus { is_halted: None, ..of_group }),
        Event::System(System { code: b'C', at_ns }),
        Event::Clear(Clear { at_ns }),
        Event::Clock(Clock { at_ns }),
        Event::Other(Other { kind: b'I', at_ns }),
        Event::Depth(depth),
        Event::Depth(Depth { liquidity: Liquidity::Direct, action: DepthAction::Snapshot, ..depth }),
        Event::Order(Order {
            side,
            action: OrderAction::Change,
            qty,
            at_ns,
            order,
            priority: 7,
            price: price9,
            symbol,
        }),
        Event::TradeSummary(summary),
        Event::TradeSummary(TradeSummary { aggressor: None, action: DepthAction::Delete, ..summary }),
        Event::Numbered(Numbered { kind: b'V', rpt_seq: u32::MAX, at_ns, symbol }),
        Event::BookReset(BookReset { rpt_seq: 1, at_ns, symbol }),
        Event::Snapshot(snapshot),
        Event::OrderSnapshot(snapshot),
        Event::SnapshotEnd(SnapshotEnd { at_ns, symbol }),
        Event::Instrument(instrument),
        Event::EndOfEvent(EndOfEvent { at_ns }),
    ];
    let mut rig = rig(64, 0);
    for event in events {
        let flags = Flags::SNAPSHOT.and(Flags::STALE);
        let record = Record { channel: 65_535, flags, receive_ns: 1, publish_ns: 2, ..Record::new(3, event) };
        let seq = rig.writer.publish(&record);
        assert_eq!(rig.reader.read(), Read::Record { seq, record });
    }
}

#[test]
fn record_of_a_newer_writer_is_told_and_passed_over() {
    let rig = rig(8, 0);
    let mut words = numbered(0).to_words();
    words[4] = (words[4] & !0xff) | 200;
    assert_eq!(Record::from_words(&words), None);
    drop(rig);
}

#[test]
fn reader_on_another_thread_sees_no_torn_record_and_misses_none_unseen() {
    const COUNT: u64 = 300_000;
    let Rig { mut writer, mut reader, _folder, .. } = rig(64, 0);
    let reading = std::thread::spawn(move || {
        let mut expected = 0;
        loop {
            match reader.read() {
                Read::Record { seq, record } => {
                    assert_eq!((seq, record), (expected, numbered(seq)));
                    expected += 1;
                }
                Read::Overrun { first, last } => {
                    assert!(first == expected && last >= first, "{first} to {last}, expected {expected}");
                    expected = last + 1;
                }
                Read::Empty => std::thread::yield_now(),
                Read::Closed => return expected,
                Read::Unknown { seq } => panic!("record {seq} is torn"),
                Read::Joined { before } => panic!("it has joined before record {before}"),
            }
        }
    });
    (0..COUNT).for_each(|number| _ = writer.publish(&numbered(number)));
    drop(writer);
    assert_eq!(reading.join().unwrap(), COUNT);
}

fn quote(number: u64) -> Quote {
    let px = Price(number as i64);
    Quote { venue_seq: number, bid_px: px, bid_qty: number, ask_px: px, ask_qty: number, ..Quote::default() }
}

fn changed(reader: &mut RingReader) -> Vec<(usize, Conflated)> {
    let mut found = Vec::new();
    reader.read_quotes(|idx, conflated| found.push((idx, conflated)));
    found
}

#[test]
fn quotes_that_changed_are_read_once_with_the_updates_between() {
    let mut rig = rig(8, 130);
    assert_eq!(rig.writer.quotes(), 192, "rounded up");
    assert!(rig.writer.update(3, &quote(1)) && rig.writer.update(129, &quote(2)) && rig.writer.update(3, &quote(3)));
    assert!(!rig.writer.update(192, &quote(4)), "there is no such quote");
    let of = |number, merged| Conflated { quote: quote(number), merged };
    assert_eq!(changed(&mut rig.reader), [(3, of(3, 1)), (129, of(2, 0))]);
    assert_eq!(changed(&mut rig.reader), []);
    rig.writer.update(129, &quote(5));
    assert_eq!(rig.reader.read_quote(129), Some(of(5, 0)));
    assert_eq!(rig.reader.read_quote(129), None);
    assert_eq!(rig.reader.read_quote(192), None);
    assert_eq!(changed(&mut RingReader::open(&rig.path).unwrap()), [(3, of(3, 1)), (129, of(5, 1))]);
}

#[test]
fn quote_is_never_torn_and_its_last_state_is_always_found() {
    let Rig { mut writer, mut reader, _folder, .. } = rig(8, 64);
    static DONE: AtomicBool = AtomicBool::new(false);
    let reading = std::thread::spawn(move || {
        let mut last = 0;
        loop {
            let done = DONE.load(Ordering::Acquire);
            for (_, Conflated { quote: found, .. }) in changed(&mut reader) {
                assert_eq!(found, quote(found.venue_seq));
                assert!(found.venue_seq > last);
                last = found.venue_seq;
            }
            if done {
                return last;
            }
        }
    });
    (1..=300_000).for_each(|number| _ = writer.update(5, &quote(number)));
    DONE.store(true, Ordering::Release);
    assert_eq!(reading.join().unwrap(), 300_000);
}

#[test]
fn writer_that_ends_is_told_and_its_file_goes() {
    let Rig { mut writer, mut reader, path, _folder } = rig(8, 0);
    writer.publish(&numbered(0));
    assert!(!reader.is_writer_gone().unwrap());
    drop(writer);
    assert!(!path.exists());
    assert_eq!(reader.read(), Read::Record { seq: 0, record: numbered(0) });
    assert_eq!(reader.read(), Read::Closed);
    assert!(reader.is_writer_gone().unwrap());
    let error = RingReader::open(&path).err().unwrap();
    assert!(matches!(error.problem, OpenProblem::NoWriter), "{error}");
}

#[test]
fn ring_of_a_living_writer_is_not_taken_and_that_of_a_dead_one_is() {
    let rig = rig(8, 0);
    let error = RingWriter::create(&rig.path, &RingConfig::default()).err().unwrap();
    assert!(matches!(error.problem, OpenProblem::InUse), "{error}");
    let session = rig.reader.session();
    // A writer that was killed leaves its file, without a lock.
    let left = rig.path.with_file_name("left");
    fs::copy(&rig.path, &left).unwrap();
    let next = RingWriter::create(&left, &RingConfig::default()).unwrap();
    assert_ne!(RingReader::open(&left).unwrap().session(), session);
    drop(next);
    assert_eq!(fs::read_dir(rig.path.parent().unwrap()).unwrap().count(), 1, "no draft stays behind");
}

#[test]
fn file_that_is_no_ring_is_refused_in_a_sentence() {
    let rig = rig(8, 64);
    let refused = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = fs::read(&rig.path).unwrap();
        change(&mut bytes);
        let path = rig.path.with_file_name("changed");
        fs::write(&path, bytes).unwrap();
        RingReader::open(&path).err().unwrap().to_string()
    };
    assert!(refused(&|bytes| bytes.truncate(100)).contains("this is no ring"));
    assert!(refused(&|bytes| _ = bytes.pop()).contains("this is no ring"));
    assert!(refused(&|bytes| bytes[0] = 0).contains("this is no ring"));
    assert!(refused(&|bytes| bytes[8] = 2).contains("writes version 2"));
    assert!(refused(&|bytes| bytes[16..24].fill(0xff)).contains("this is no ring"));
    assert!(refused(&|bytes| bytes[24] = 63).contains("this is no ring"));
    let large = RingWriter::create(&rig.path, &RingConfig { records: usize::MAX, ..RingConfig::default() });
    assert!(large.err().unwrap().to_string().contains("at most 2^30 records"));
}

#[test]
fn words_that_a_hostile_writer_chooses_end_no_reader() {
    let Rig { writer, mut reader, path, _folder } = rig(8, 64);
    let noise = |seed: u64| {
        let mut bytes = fs::read(&path).unwrap();
        let mut state = seed;
        for word in bytes[512 * 8..].chunks_mut(8).chain(std::iter::empty()) {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let small = if state >> 63 == 0 { state >> 60 } else { u64::MAX - (state >> 60) };
            word.copy_from_slice(&small.to_le_bytes());
        }
        bytes[16 * 8..17 * 8].copy_from_slice(&state.to_le_bytes());
        fs::write(&path, &bytes).unwrap();
    };
    for seed in 0..50 {
        noise(seed);
        (0..100).for_each(|_| _ = reader.read());
        changed(&mut reader);
        reader.rewind();
        reader.behind();
    }
    drop(writer);
}

#[test]
fn write_and_read_allocate_nothing() {
    let mut rig = rig(8, 64);
    let record = numbered(1);
    let before = allocations::count();
    for number in 0..100 {
        rig.writer.publish(&record);
        rig.writer.update(number % 64, &quote(1));
        std::hint::black_box(rig.reader.read());
        rig.reader.read_quotes(|_, found| _ = std::hint::black_box(found));
    }
    assert_eq!(allocations::count(), before);
}

#[test]
fn record_is_the_same_after_its_way_as_bytes() {
    let record = Record {
        receive_ns: 5,
        channel: 3,
        flags: Flags::STALE,
        ..Record::new(7, Event::System(System { code: b'O', at_ns: 9 }))
    };
    assert_eq!(Record::from_bytes(&record.to_bytes()), Some(record));
    assert_eq!(record.exchange_ns(), 9);
    assert_eq!(Record::from_bytes(&[0xff; Record::LEN]), None);
}

#[test]
fn revised_quote_is_an_update_and_one_that_never_was_stays_away() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ring");
    let config = RingConfig { records: 8, quotes: 64, ..RingConfig::default() };
    let mut writer = RingWriter::create(&path, &config).unwrap();
    let mut reader = RingReader::open(&path).unwrap();
    assert!(writer.update(1, &Quote { bid_qty: 5, ..Quote::default() }));
    assert!(writer.revise(1, |quote| quote.flags = Flags::STALE));
    assert!(!writer.revise(2, |quote| quote.bid_qty = 1) && !writer.revise(64, |_| ()));
    let mut found = Vec::new();
    reader.read_quotes(|idx, conflated| found.push((idx, conflated)));
    let quote = Quote { bid_qty: 5, flags: Flags::STALE, ..Quote::default() };
    assert_eq!(found, [(1, Conflated { quote, merged: 1 })]);
}

/// `Snapshot` as `MARKET_RING_SNAPSHOT`.
fn name_in_c(name: &str) -> String {
    let letters = name.char_indices().flat_map(|(at, letter)| {
        let gap = (at > 0 && letter.is_uppercase()).then_some('_');
        gap.into_iter().chain([letter.to_ascii_uppercase()])
    });
    letters.fold(String::from("MARKET_RING_"), |name, letter| name + &letter.to_string())
}

/// A macro after an enumeration hides its name, and no compiler warns of it.
#[test]
fn header_gives_each_kind_and_each_flag_a_name_of_its_own() {
    let header = include_str!("../include/market_ring.h");
    let mut numbers = BTreeMap::new();
    for line in header.lines() {
        let words: Vec<&str> = line.split([' ', ',', '(']).filter(|word| !word.is_empty()).collect();
        let named = match words[..] {
            ["#define", name, number, ..] => (name, number),
            [name, "=", number, ..] => (name, number),
            _ => continue,
        };
        if named.0.starts_with("MARKET_RING_") {
            assert_eq!(numbers.insert(named.0, named.1), None, "{} is two things", named.0);
        }
    }
    let flags = [
        (Flags::END_OF_EVENT.0, "FlagEndOfEvent"),
        (Flags::SNAPSHOT.0, "FlagSnapshot"),
        (Flags::GAP_BEFORE.0, "FlagGapBefore"),
        (Flags::STALE.0, "FlagStale"),
        (Flags::UNCONFIRMED.0, "FlagUnconfirmed"),
        (Flags::HALTED.0, "FlagHalted"),
    ];
    for (number, name) in KINDS.iter().copied().chain(flags) {
        let name = name_in_c(name);
        assert_eq!(numbers.get(name.as_str()).copied(), Some(number.to_string().as_str()), "{name}");
    }
}

#[test]
fn channel_that_lives_has_another_number_and_one_beyond_the_words_never() {
    let Rig { mut writer, reader, .. } = rig(4, 64);
    let lives = |reader: &RingReader| [0, 447, 448, u16::MAX].map(|channel| reader.life(channel));
    assert_eq!(lives(&reader), [0; 4]);
    [0, 447, 447, 448, u16::MAX].into_iter().for_each(|channel| writer.alive(channel));
    assert_eq!(lives(&reader), [1, 2, 0, 0]);
    assert_eq!((reader.next_seq(), reader.quotes()), (0, 64), "no other word is touched");
}
