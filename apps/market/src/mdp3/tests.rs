use super::layout::*;
use super::*;
use crate::codec::{Decoder, MessageCounts, MessageError};
use crate::event::Event;
use crate::sbe::{Block, Dimension, emit_block, emit_group};
use crate::units::Symbol;

fn message<T: Block>(template: u16, root: &T, block_len: usize, groups: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = emit_head(template, block_len as u16).to_vec();
    emit_block(root, block_len, &mut out);
    groups(&mut out);
    out
}

fn book_root(event_end: u8) -> BookRoot {
    BookRoot { transact_time: 7.into(), event_end }
}

fn entry(entry_type: u8, action: u8, level: u8) -> BookEntry {
    BookEntry {
        price: 4_500_250_000_000.into(),
        size: 3.into(),
        security_id: 5_485.into(),
        rpt_seq: 9.into(),
        order_count: 2.into(),
        level,
        action,
        entry_type,
        ..BookEntry::NULL
    }
}

fn book(entries: &[BookEntry], orders: &[BookOrder], event_end: u8) -> Vec<u8> {
    message(Book::ID, &book_root(event_end), BookRoot::BLOCK_LEN, |out| {
        emit_group::<GroupSize, _>(entries, BookEntry::BLOCK_LEN, out);
        emit_group::<GroupSize8Byte, _>(orders, BookOrder::BLOCK_LEN, out);
    })
}

fn decode(message: &[u8]) -> Result<Vec<Event>, MessageError> {
    let mut events = Vec::new();
    Mdp3.decode_each(message, &mut MessageCounts::new(), &mut |event| events.push(*event))?;
    Ok(events)
}

fn told(message: &[u8]) -> Vec<String> {
    decode(message).unwrap().iter().map(|event| format!("{event:?}")).collect()
}

#[test]
fn bytes_of_a_book_message_are_those_of_the_fact_sheet() {
    let order = BookOrder { order_id: 1.into(), reference_id: 1, ..BookOrder::NULL };
    let bytes = book(&[entry(b'0', 1, 4)], &[order], 0x84);
    let expected = [
        // header: block 11, template 46, schema 1, version 12
        &[11, 0, 46, 0, 1, 0, 12, 0][..],
        &[7, 0, 0, 0, 0, 0, 0, 0, 0x84, 0, 0],
        // three bytes of dimension, then price, size, security, number, orders, level, action, type
        &[32, 0, 1],
        &4_500_250_000_000_i64.to_le_bytes(),
        &[3, 0, 0, 0, 0x6d, 0x15, 0, 0, 9, 0, 0, 0, 2, 0, 0, 0, 4, 1, b'0', 0xff, 0xff, 0xff, 0x7f, 0],
        // eight bytes of dimension, then order, priority, quantity, reference, action, padding
        &[24, 0, 0, 0, 0, 0, 0, 1],
        &[1, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 1, 0xff],
        &[0, 0],
    ]
    .concat();
    assert_eq!(bytes, expected);
}

#[test]
fn entry_of_a_book_is_a_level_with_its_exact_price() {
    let events = decode(&book(&[entry(b'F', 0, 2)], &[], 0)).unwrap();
    let [Event::Depth(depth)] = events[..] else { panic!("{events:?}") };
    assert_eq!(depth.symbol, Symbol::from_number(5_485));
    assert_eq!((depth.price.to_string().as_str(), depth.qty, depth.orders), ("4500.2500", 3, 2));
    assert_eq!(format!("{:?} {:?} {:?}", depth.side, depth.liquidity, depth.action), "Sell Implied New");
}

#[test]
fn orders_of_a_book_name_their_level_by_its_position() {
    let order = |reference_id| BookOrder {
        order_id: 77.into(),
        priority: 5.into(),
        display_qty: 3.into(),
        reference_id,
        order_action: 2,
    };
    let entries = [entry(b'0', 1, 1), BookEntry { security_id: 6.into(), ..entry(b'1', 1, 1) }];
    let events = decode(&book(&entries, &[order(2), order(3), order(0)], 0)).unwrap();
    let [_, _, Event::Order(order)] = events[..] else { panic!("{events:?}") };
    assert_eq!((order.symbol, order.order.0, order.priority), (Symbol::from_number(6), 77, 5));
    assert_eq!(format!("{:?} {:?}", order.side, order.action), "Sell Delete");
}

#[test]
fn end_of_the_event_comes_behind_the_last_entry() {
    let told = told(&book(&[entry(b'0', 0, 1), entry(b'1', 0, 1)], &[], 0x80));
    assert!(told[0].starts_with("Depth") && told[1].starts_with("Depth") && told[2].starts_with("EndOfEvent"));
}

#[test]
fn entry_without_a_place_still_counts_in_its_instruments_numbers() {
    let told = told(&book(&[entry(b'w', 0, 1), entry(b'0', 9, 1), entry(b'J', 0, 0)], &[], 0));
    assert!(told[0].starts_with("Numbered") && told[1].starts_with("Numbered"), "{told:?}");
    assert!(told[2].starts_with("BookReset"));
}

#[test]
fn blocks_of_version_9_and_of_a_later_one_give_the_same_level() {
    let current = told(&book(&[entry(b'0', 0, 1)], &[], 0));
    for (len, root_len) in [(27, 9), (48, 20)] {
        let stretched = message(Book::ID, &book_root(0), root_len, |out| {
            GroupSize::emit(len, 1, out);
            let mut block = zerocopy::IntoBytes::as_bytes(&entry(b'0', 0, 1)).to_vec();
            block.resize(len.into(), 0xee);
            out.extend(block);
            emit_group::<GroupSize8Byte, BookOrder>(&[], 24, out);
        });
        assert_eq!(told(&stretched), current, "entries of {len} bytes");
    }
}

#[test]
fn unknown_template_and_broken_group_are_errors_that_pass_no_event() {
    let unknown = emit_head(64, 0);
    assert_eq!(decode(&unknown), Err(MessageError::Unknown { kind: 64 }));
    let mut broken = book(&[entry(b'0', 0, 1)], &[], 0x80);
    broken[21] = 200;
    assert!(matches!(decode(&broken), Err(MessageError::Length { kind: 46, .. })));
    for len in 0..broken.len() - 1 {
        assert!(decode(&book(&[entry(b'0', 0, 1)], &[], 0)[..len]).is_err(), "{len} bytes");
    }
}

#[test]
fn statistics_of_all_kinds_are_numbered() {
    let root = DailyStatisticsRoot { transact_time: 7.into(), event_end: 0 };
    let entry = DailyStatisticsEntry { security_id: 4.into(), rpt_seq: 12.into(), ..Block::NULL };
    let bytes = message(DailyStatistics::ID, &root, DailyStatisticsRoot::BLOCK_LEN, |out| {
        emit_group::<GroupSize, _>(&[entry], DailyStatisticsEntry::BLOCK_LEN, out);
    });
    assert_eq!(told(&bytes), ["Numbered(Numbered { kind: 49, rpt_seq: 12, at_ns: 7, symbol: #4 })"]);
}

#[test]
fn definition_has_depth_tick_and_name() {
    let root = FutureDefinitionRoot {
        security_id: 5_485.into(),
        symbol: *b"ESZ6\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
        min_tick: 250_000_000.into(),
        update_action: b'A',
        reports_total: 3.into(),
        ..Block::NULL
    };
    let feeds = [(*b"GBX", 10), (*b"GBI", 2)].map(|(feed_type, depth)| FutureDefinitionFeed { feed_type, depth });
    let mut bytes = Vec::new();
    emit::future_definition(&root, &feeds, &mut bytes);
    let events = decode(&bytes).unwrap();
    let Some(Event::Instrument(instrument)) = events.first() else { panic!("{events:?}") };
    assert_eq!((instrument.depth, instrument.implied_depth, instrument.total), (10, 2, 3));
    assert_eq!((instrument.name.as_str(), instrument.tick.0), ("ESZ6", 250_000_000));
}

#[test]
fn names_are_those_of_the_schema() {
    assert_eq!((name(46), name(12), name(64)), (Some("Book"), Some("AdminHeartbeat"), None));
}

#[test]
fn states_in_which_nothing_matches_are_halts_of_an_instrument_or_of_a_group() {
    let status = |id: Option<i32>, trading_status| {
        let security_id = id.map_or(SecurityStatusRoot::NULL.security_id, Into::into);
        let (null, security_group) = (SecurityStatusRoot::NULL, *b"ES\0\0\0\0");
        let root = SecurityStatusRoot { security_id, trading_status, security_group, ..null };
        let mut out = Vec::new();
        emit::security_status(&root, &mut out);
        decode(&out).unwrap().into_iter().find_map(|event| match event {
            Event::Status(status) => Some((status.symbol, status.is_halted)),
            Event::GroupStatus(status) if status.symbol == Symbol::NONE => Some((status.group, status.is_halted)),
            _ => None,
        })
    };
    let (symbol, group) = (Symbol::from_number(7), Symbol(*b"ES      "));
    let codes =
        [(&[2, 4, 18, 26][..], Some(true)), (&[15, 17, 21, 24, 25, 201, 202], Some(false)), (&[20, 103, 99], None)];
    for (codes, is_halted) in codes {
        for &code in codes {
            assert_eq!(status(Some(7), code), Some((symbol, is_halted)), "{code}");
            assert_eq!(status(None, code), Some((group, is_halted)), "{code}");
        }
    }
    assert_eq!(status(None, u8::MAX), None, "no state");
}

#[test]
fn state_of_a_snapshot_begins_a_halt_and_ends_one() {
    let halts = [2, 4, 18, 26].map(|state| (state, Some(true)));
    for (trading_status, is_halted) in halts.into_iter().chain([(17, Some(false)), (20, None)]) {
        let root = SnapshotRoot { security_id: 7.into(), trading_status, ..SnapshotRoot::NULL };
        let mut out = Vec::new();
        emit::snapshot(&root, &[], &mut out);
        let events = decode(&out).unwrap();
        let told = events.iter().find_map(|event| match event {
            Event::Status(status) => Some((status.state, status.is_halted)),
            _ => None,
        });
        assert_eq!(told, Some((trading_status, is_halted)));
    }
}
