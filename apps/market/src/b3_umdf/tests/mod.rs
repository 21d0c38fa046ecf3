use super::layout::*;
use super::*;
use crate::book::{Books, Capacity, NumberedBooks, Trust};
use crate::codec::{Decoder, MessageCounts, MessageError};
use crate::event::{DepthAction, Event, GroupStatus};
use crate::sbe::{Block, emit_block};
use crate::units::{OrderRef, Price, Price9, Side, Symbol};

mod day;

const ID: u64 = 200_000_123_456;

fn decode(message: &[u8]) -> Result<Vec<Event>, MessageError> {
    let (mut events, mut counts) = (Vec::new(), MessageCounts::new());
    B3Umdf::default().decode_each(message, &mut counts, &mut |event| events.push(*event))?;
    Ok(events)
}

fn message<T: Block>(template: u16, block_len: usize, root: &T) -> Vec<u8> {
    let mut out = emit_head(template, block_len as u16).to_vec();
    emit_block(root, block_len, &mut out);
    out
}

/// An order, written by hand from the specification: 300 at 12.34 to sell, which ends its event.
fn order() -> Vec<u8> {
    let head = [72, 0, 50, 0, 2, 0, 16, 0];
    let front = [&ID.to_le_bytes()[..], &[0x80, 0, b'1', 0]].concat();
    let price = [&123_400_i64.to_le_bytes()[..], &300_i64.to_le_bytes(), &[0; 4]].concat();
    let firm = [&[9, 0, 0, 0][..], &7_u64.to_le_bytes()].concat();
    let rest = [&42_u64.to_le_bytes()[..], &5_u32.to_le_bytes(), &99_u64.to_le_bytes(), &[0; 8]].concat();
    [&head[..], &front, &price, &firm, &rest].concat()
}

#[test]
fn order_is_its_number_then_what_it_changes() {
    let Ok([Event::Numbered(number), Event::Add(add), Event::EndOfEvent(_)]) =
        decode(&order()).as_deref().map(|events| <[Event; 3]>::try_from(events).unwrap())
    else {
        panic!("no order")
    };
    assert_eq!((number.kind, number.rpt_seq, number.symbol), (50, 5, Symbol::from_number(ID)));
    assert_eq!((add.side, add.qty, add.price, add.at_ns), (Side::Sell, 300, Price(123_400), 99));
    assert_eq!((add.order, add.symbol), (order_ref(ID, 42), Symbol::from_number(ID)));
    assert_ne!(order_ref(ID, 42), order_ref(ID + 1, 42), "numbers of orders repeat among instruments");
}

#[test]
fn order_that_changes_keeps_its_reference_and_one_without_a_price_is_in_no_book() {
    let mut changed = order();
    changed[8 + 9] = 1;
    let events = decode(&changed).unwrap();
    let Event::Modify(modify) = events[1] else { panic!("{events:?}") };
    assert_eq!((modify.order, modify.qty, modify.price), (order_ref(ID, 42), 300, Price(123_400)));
    let mut market = order();
    market[8 + 12..8 + 20].copy_from_slice(&i64::MIN.to_le_bytes());
    assert!(matches!(decode(&market).unwrap()[..], [Event::Numbered(_), Event::EndOfEvent(_)]));
}

#[test]
fn order_of_an_unknown_action_or_side_is_an_error_that_is_counted_and_its_book_is_stale() {
    for (at, value) in [(9, 2), (10, b'2')] {
        let mut unknown = order();
        unknown[8 + at] = value;
        let (mut books, mut counts) = (books(), MessageCounts::new());
        let mut decoder = B3Umdf::default();
        decoder.decode_all(&unknown, &mut counts, &mut |event| _ = books.apply(event));
        assert_eq!((counts.unknown, counts.by_type[50]), (1, 0));
        assert_eq!(books.trust(books.find(Symbol::from_number(ID)).unwrap()), Trust::Stale);
    }
}

fn books() -> NumberedBooks {
    NumberedBooks::new(Capacity { books: 4, orders: 8, levels: 8 })
}

#[test]
fn order_without_a_number_is_not_numbered_and_a_message_of_no_book_is_only_told() {
    let mut null = order();
    null[8 + 52..8 + 56].fill(0);
    let events = decode(&null).unwrap();
    assert!(matches!(events[..], [Event::Numbered(number), Event::Add(_), _] if number.rpt_seq == 0), "{events:?}");
    let root = HighPriceRoot { security_id: ID.into(), ..HighPriceRoot::NULL };
    let events = decode(&message(HighPrice::ID, HighPriceRoot::BLOCK_LEN, &root)).unwrap();
    assert!(matches!(events[0], Event::Other(_)), "{events:?}");
}

#[test]
fn snapshots_of_another_schema_are_none_to_the_loops_either() {
    use crate::loops::{LoopFeed, SnapshotPart};
    let other = |mut message: Vec<u8>| {
        message[4] = 1;
        message
    };
    for message in [header(1, 0), orders(ID, 1)] {
        assert!(!matches!(B3Umdf::default().part(1, &message, true), SnapshotPart::Other));
        assert!(B3Umdf::is_about(&message, Symbol::from_number(ID)));
        let message = other(message);
        assert!(matches!(B3Umdf::default().part(1, &message, true), SnapshotPart::Other));
        assert!(!B3Umdf::is_about(&message, Symbol::from_number(ID)));
    }
    let reset = message(ChannelReset::ID, ChannelResetRoot::BLOCK_LEN, &ChannelResetRoot::NULL);
    assert!(B3Umdf::empties_books(&reset) && !B3Umdf::empties_books(&other(reset)));
}

#[test]
fn orders_of_a_snapshot_that_has_not_begun_are_in_no_book() {
    assert!(matches!(decode(&orders(ID, 2)).unwrap()[..], [Event::Other(_)]));
}

#[test]
fn name_of_more_than_eight_bytes_is_left_out_because_another_may_begin_so_too() {
    let named = |name: &[u8]| {
        let mut symbol = [b' '; 20];
        symbol[..name.len()].copy_from_slice(name);
        let root = SecurityDefinitionRoot { security_id: ID.into(), symbol, ..SecurityDefinitionRoot::NULL };
        let events = decode(&message(SecurityDefinition::ID, SecurityDefinitionRoot::BLOCK_LEN, &root)).unwrap();
        let Event::Instrument(instrument) = events[0] else { panic!("{events:?}") };
        instrument.name
    };
    assert_eq!(named(b"PETRF300"), Symbol::new("PETRF300").unwrap());
    assert_eq!(named(b"PETRF300W1"), Symbol::NONE);
}

#[test]
fn quantity_beyond_32_bits_is_shown_as_the_most() {
    let mut large = order();
    large[8 + 20..8 + 28].copy_from_slice(&i64::MAX.to_le_bytes());
    assert!(matches!(decode(&large).unwrap()[1], Event::Add(add) if add.qty == u32::MAX));
}

fn deletion(price: Option<i64>, block_len: u16) -> Vec<u8> {
    let root = DeleteOrderRoot {
        security_id: ID.into(),
        entry_type: b'0',
        order_id: 42.into(),
        rpt_seq: 6.into(),
        price: price.unwrap_or(i64::MIN).into(),
        ..DeleteOrderRoot::NULL
    };
    let mut bytes = message(DeleteOrder::ID, DeleteOrderRoot::BLOCK_LEN, &root);
    bytes[..2].copy_from_slice(&block_len.to_le_bytes());
    bytes.truncate(8 + usize::from(block_len));
    bytes
}

#[test]
fn deletion_of_an_order_that_had_no_price_changes_no_book() {
    let is_delete = |bytes: &[u8]| matches!(decode(bytes).unwrap()[1..], [Event::Delete(delete), ..] if delete.order == order_ref(ID, 42));
    assert!(is_delete(&deletion(Some(5), 52)));
    assert!(is_delete(&deletion(None, 44)), "before version 15 none had one");
    assert!(!is_delete(&deletion(None, 52)));
}

#[test]
fn mass_deletion_empties_a_side_and_one_up_to_a_position_leaves_the_book_stale() {
    let root = MassDeleteOrdersRoot {
        security_id: ID.into(),
        action: 3,
        entry_type: b'1',
        rpt_seq: 6.into(),
        ..MassDeleteOrdersRoot::NULL
    };
    let events = decode(&message(MassDeleteOrders::ID, MassDeleteOrdersRoot::BLOCK_LEN, &root)).unwrap();
    let Event::Depth(depth) = events[1] else { panic!("{events:?}") };
    assert_eq!((depth.side, depth.action, depth.level), (Side::Sell, DepthAction::DeleteFrom, 1));
    let root = MassDeleteOrdersRoot { position: 4.into(), ..root };
    let mut old = message(MassDeleteOrders::ID, MassDeleteOrdersRoot::BLOCK_LEN, &root);
    old[6] = 15;
    assert!(matches!(decode(&old).unwrap()[1], Event::Delete(_)), "of an order that no book has");
}

#[test]
fn trade_and_its_bust_are_numbered_and_say_their_price_with_nine_decimals() {
    let root = TradeRoot {
        security_id: ID.into(),
        event_end: 0,
        price: 123_400.into(),
        size: 50.into(),
        trade_id: 8.into(),
        rpt_seq: 7.into(),
        ..TradeRoot::NULL
    };
    let events = decode(&message(Trade::ID, TradeRoot::BLOCK_LEN, &root)).unwrap();
    let [Event::TradeSummary(trade)] = events[..] else { panic!("{events:?}") };
    assert_eq!((trade.price, trade.qty, trade.trade, trade.rpt_seq), (Price9(12_340_000_000), 50, 8, 7));
    let bust = TradeBustRoot { security_id: ID.into(), trade_id: 8.into(), rpt_seq: 8.into(), ..TradeBustRoot::NULL };
    let events = decode(&message(TradeBust::ID, TradeBustRoot::BLOCK_LEN, &bust)).unwrap();
    assert!(matches!(events[0], Event::TradeSummary(bust) if (bust.action, bust.trade) == (DepthAction::Delete, 8)));
}

fn header(bids: u32, offers: u32) -> Vec<u8> {
    let root = SnapshotHeaderRoot {
        security_id: ID.into(),
        last_seq: 9.into(),
        reports_total: 3.into(),
        bids: bids.into(),
        offers: offers.into(),
        last_rpt_seq: 5.into(),
        last_sequence_version: 2.into(),
        ..SnapshotHeaderRoot::NULL
    };
    let mut out = Vec::new();
    emit::snapshot_header(&root, &mut out);
    out
}

fn orders(security_id: u64, count: u64) -> Vec<u8> {
    let entry = |order_id: u64| SnapshotOrdersEntry {
        price: 5.into(),
        size: 1.into(),
        order_id: order_id.into(),
        entry_type: b'0',
        ..SnapshotOrdersEntry::NULL
    };
    let mut out = Vec::new();
    emit::snapshot_orders(security_id, &(0..count).map(entry).collect::<Vec<_>>(), &mut out);
    out
}

#[test]
fn snapshot_ends_with_its_last_order_and_at_once_where_it_has_none() {
    let (mut decoder, mut counts) = (B3Umdf::default(), MessageCounts::new());
    let mut told = |message: &[u8]| {
        let mut is_over = false;
        decoder.decode_all(message, &mut counts, &mut |event| is_over |= matches!(event, Event::SnapshotEnd(_)));
        is_over
    };
    assert!(told(&header(0, 0)));
    let steps = [header(2, 1), orders(ID, 2), orders(ID + 1, 1), orders(ID, 1), orders(ID, 1)];
    assert_eq!(steps.map(|message| told(&message)), [false, false, false, true, false]);
}

#[test]
fn definition_has_the_number_the_name_and_the_step_of_its_price() {
    let mut symbol = [0; 20];
    symbol[..5].copy_from_slice(b"PETR4");
    let root = SecurityDefinitionRoot {
        security_id: ID.into(),
        symbol,
        update_action: b'A',
        total: 7.into(),
        min_price_increment: 1_000_000.into(),
        ..SecurityDefinitionRoot::NULL
    };
    let events = decode(&message(SecurityDefinition::ID, SecurityDefinitionRoot::BLOCK_LEN, &root));
    // A field may be behind padding, which the structure has too.
    let Ok([Event::Instrument(instrument)]) = events.as_deref().map(|events| <[Event; 1]>::try_from(events).unwrap())
    else {
        panic!("no definition")
    };
    assert_eq!((instrument.symbol, instrument.name), (Symbol::from_number(ID), Symbol::new("PETR4").unwrap()));
    assert_eq!((instrument.tick, instrument.total), (Price9(10_000_000), 7));
}

#[test]
fn each_message_of_the_schema_is_an_event_and_none_is_half_read() {
    let templates: Vec<u8> = (0..=u8::MAX).filter(|&template| name(template).is_some()).collect();
    assert_eq!(
        templates,
        [1, 2, 3, 5, 9, 10, 11, 12, 15, 16, 17, 19, 21, 22, 24, 25, 27, 28, 29, 30, 50, 51, 52, 53, 54, 55, 56, 57, 71]
    );
    for template in templates {
        // Blocks of later versions are longer. A group without entries is behind.
        let mut bytes = [&[250, 0, template, 0, 2, 0, 16, 0][..], &[0; 250], &[42, 0, 0]].concat();
        // The side of an order.
        bytes[8 + 10] = b'0';
        let events = decode(&bytes).unwrap();
        assert!(!events.is_empty() || template == 71, "{template}");
        assert!(matches!(decode(&bytes[..200]), Err(MessageError::Length { .. })), "{template}");
    }
}

#[test]
fn message_of_another_schema_or_template_is_refused_and_counted() {
    let mut other = order();
    other[4] = 1;
    assert_eq!(decode(&other), Err(MessageError::Unknown { kind: 50 }));
    let mut unknown = order();
    unknown[2] = 20;
    assert_eq!(decode(&unknown), Err(MessageError::Unknown { kind: 20 }), "a template of old, which B3 has removed");
    assert_eq!(decode(&[0; 7]), Err(MessageError::Empty));
    assert_eq!(order_ref(0, 7), OrderRef(7));
}

#[test]
fn paused_closed_and_forbidden_are_halts() {
    for (status, is_halted) in [
        (2, Some(true)),
        (4, Some(true)),
        (18, Some(true)),
        (17, Some(false)),
        (21, Some(false)),
        (101, Some(false)),
        (20, None),
    ] {
        let root = SecurityStatusRoot { security_id: ID.into(), status, ..SecurityStatusRoot::NULL };
        let events = decode(&message(SecurityStatus::ID, SecurityStatusRoot::BLOCK_LEN, &root)).unwrap();
        let told = events.iter().find_map(|event| match event {
            Event::Status(status) => Some((status.symbol, status.is_halted)),
            _ => None,
        });
        assert_eq!(told, Some((Symbol::from_number(ID), is_halted)), "{status}");
        let root = SecurityGroupPhaseRoot { group: *b"DI ", phase: status, ..SecurityGroupPhaseRoot::NULL };
        let events = decode(&message(SecurityGroupPhase::ID, SecurityGroupPhaseRoot::BLOCK_LEN, &root)).unwrap();
        let (group, symbol) = (Symbol(*b"DI      "), Symbol::NONE);
        let of_group = GroupStatus { state: status, is_halted, at_ns: 0, group, symbol };
        assert_eq!(events.first(), Some(&Event::GroupStatus(of_group)), "a phase has the codes of a status");
    }
}

#[test]
fn instrument_leaves_its_group_and_follows_it_again() {
    for (trading_event, follows) in [(101, Some(false)), (102, Some(true)), (4, None), (u8::MAX, None)] {
        let root = SecurityStatusRoot { security_id: ID.into(), status: 17, trading_event, ..SecurityStatusRoot::NULL };
        let events = decode(&message(SecurityStatus::ID, SecurityStatusRoot::BLOCK_LEN, &root)).unwrap();
        let told = |event: &Event| if let Event::Status(status) = event { Some(status.follows_group) } else { None };
        assert_eq!(events.iter().find_map(told), Some(follows), "{trading_event}");
    }
}

#[test]
fn definition_names_the_group_of_its_instrument() {
    let root = SecurityDefinitionRoot { security_id: ID.into(), group: *b"DI1", ..SecurityDefinitionRoot::NULL };
    let events = decode(&message(SecurityDefinition::ID, SecurityDefinitionRoot::BLOCK_LEN, &root)).unwrap();
    let [Event::Instrument(instrument)] = events[..] else { panic!("{events:?}") };
    assert_eq!(instrument.group, Symbol(*b"DI1     "));
}
