use super::layout::*;
use super::*;
use crate::codec::{Decoder, MessageCounts, MessageError};
use crate::event::Event;
use crate::sbe::{Block, emit_block};
use crate::units::{Locate, OrderRef, Price, Side, Symbol};

fn message<T: Block>(template: u16, block_len: usize, root: &T) -> Vec<u8> {
    let mut out = emit_head(template, block_len as u16).to_vec();
    emit_block(root, block_len, &mut out);
    out
}

fn directory(security_id: u16, root: &[u8; 6], suffix: &[u8; 6]) -> Vec<u8> {
    let root = InstrumentDirectoryRoot {
        timestamp: 1.into(),
        security_id: security_id.into(),
        root: *root,
        suffix: *suffix,
        round_lot: 100.into(),
        reserved: 0,
        is_test: 0,
        tick: 10_000.into(),
    };
    message(InstrumentDirectory::ID, InstrumentDirectoryRoot::BLOCK_LEN, &root)
}

/// A decoder that knows instrument 513, and what it makes of a message.
fn decode(message: &[u8]) -> Result<Vec<Event>, MessageError> {
    let mut decoder = MemoirDepth::default();
    let (mut events, mut counts) = (Vec::new(), MessageCounts::new());
    decoder.decode_each(&directory(513, b"BRK   ", b"B     "), &mut counts, &mut |_| ())?;
    decoder.decode_each(message, &mut counts, &mut |event| events.push(*event))?;
    Ok(events)
}

/// An order, written by hand from the specification: 300 shares of instrument 513 at 12.34.
fn added() -> Vec<u8> {
    let head = [0, 31, 10, 2, 1, 3];
    let time = [0, 0, 0, 0, 0, 0, 0, 9];
    let rest = [&[2, 1][..], &[0, 0, 0, 0, 0, 0, 1, 0], b"S", &[0, 0, 1, 44], &12_340_000_i64.to_be_bytes()].concat();
    [&head[..], &time, &rest].concat()
}

#[test]
fn bytes_of_an_order_are_big_endian_and_its_price_has_six_decimals() {
    let Ok([Event::Add(add)]) = decode(&added()).as_deref().map(|events| <[Event; 1]>::try_from(events).unwrap())
    else {
        panic!("no order")
    };
    assert_eq!((add.at_ns, add.locate, add.order, add.side), (9, Locate(513), OrderRef(256), Side::Sell));
    assert_eq!((add.qty, add.price, add.symbol), (300, Price(123_400), Symbol::new("BRK B").unwrap()));
}

#[test]
fn decimals_that_a_price_does_not_have_are_cut_off_and_none_overflows() {
    for (mantissa, price) in
        [(12_345_678, 123_456), (-1, -1), (i64::MAX, i64::MAX / 100), (i64::MIN, i64::MIN / 100 - 1)]
    {
        let mut bytes = added();
        let at = bytes.len() - 8;
        bytes[at..].copy_from_slice(&i64::to_be_bytes(mantissa));
        assert!(matches!(decode(&bytes).unwrap()[..], [Event::Add(add)] if add.price == Price(price)), "{mantissa}");
    }
}

#[test]
fn order_is_reduced_by_its_quantity_executed_and_deleted() {
    let (timestamp, security_id, order_id) = (5.into(), 513.into(), 7.into());
    let reduced = OrderReducedRoot { timestamp, security_id, order_id, quantity: 40.into() };
    let events = decode(&message(OrderReduced::ID, OrderReducedRoot::BLOCK_LEN, &reduced)).unwrap();
    assert!(matches!(events[..], [Event::Cancel(cancel)] if (cancel.qty, cancel.order) == (40, OrderRef(7))));
    let executed = OrderExecutedRoot {
        timestamp,
        security_id,
        order_id,
        trade_id: 11.into(),
        quantity: 60.into(),
        price: 5_000_000.into(),
    };
    let events = decode(&message(OrderExecuted::ID, OrderExecutedRoot::BLOCK_LEN, &executed)).unwrap();
    let [Event::Execute(execute)] = events[..] else { panic!("{events:?}") };
    assert_eq!((execute.qty, execute.price, execute.trade, execute.printable), (60, Some(Price(50_000)), 11, true));
    let deleted = OrderDeletedRoot { timestamp, security_id, order_id };
    let events = decode(&message(OrderDeleted::ID, OrderDeletedRoot::BLOCK_LEN, &deleted)).unwrap();
    assert!(matches!(events[..], [Event::Delete(delete)] if delete.order == OrderRef(7)));
}

#[test]
fn corrected_trade_is_broken_and_then_printed_as_it_is_now() {
    let corrected = CorrectedTradeRoot {
        timestamp: 5.into(),
        security_id: 513.into(),
        trade_id: 11.into(),
        old_quantity: 100.into(),
        old_price: 1_000_000.into(),
        quantity: 90.into(),
        price: 2_000_000.into(),
    };
    let events = decode(&message(CorrectedTrade::ID, CorrectedTradeRoot::BLOCK_LEN, &corrected)).unwrap();
    let [Event::TradeBreak(broken), Event::Trade(trade)] = events[..] else { panic!("{events:?}") };
    assert_eq!((broken.trade, trade.trade, trade.qty, trade.price), (11, 11, 90, Price(20_000)));
}

#[test]
fn each_message_of_the_schema_is_an_event() {
    let templates: Vec<u8> = (0..=u8::MAX).filter(|&template| name(template).is_some()).collect();
    assert_eq!(templates, [1, 2, 3, 5, 10, 11, 12, 13, 14, 15, 16, 18, 100]);
    for template in templates {
        // Blocks of later versions are longer.
        let mut bytes = [&[0, 60, template, 2, 1, 3][..], &[0; 60]].concat();
        (bytes[14], bytes[15]) = (2, 1);
        assert!(!decode(&bytes).unwrap().is_empty(), "{template}");
        assert!(matches!(decode(&bytes[..60]), Err(MessageError::Length { .. })), "{template}");
    }
}

#[test]
fn message_of_another_schema_or_of_an_instrument_without_a_definition_is_refused_and_counted() {
    let (mut other, mut undefined) = (added(), added());
    other[3] = 9;
    undefined[15] = 2;
    assert_eq!(decode(&other), Err(MessageError::Unknown { kind: 10 }));
    assert_eq!(decode(&undefined), Err(MessageError::Undefined { kind: 10 }));
    assert_eq!(decode(&[0, 0, 4, 2, 1, 3]), Err(MessageError::Unknown { kind: 4 }));
    assert_eq!(decode(&[0, 0]), Err(MessageError::Empty));
}

#[test]
fn name_that_is_longer_than_eight_bytes_or_no_text_is_the_number() {
    let named = |root: &[u8; 6], suffix: &[u8; 6]| {
        let Ok([Event::Directory(directory)]) =
            decode(&directory(7, root, suffix)).as_deref().map(|events| <[Event; 1]>::try_from(events).unwrap())
        else {
            panic!("no definition")
        };
        directory.symbol.to_string()
    };
    assert_eq!(named(b"AAPL\0\0", b"\0\0\0\0\0\0"), "AAPL");
    assert_eq!(named(b"AAC   ", b"WS    "), "AAC WS");
    assert_eq!(named(b"ABCDEF", b"PRAB  "), "#7");
    assert_eq!(named(b"A\x1b[2J ", b"      "), "#7");
    assert_eq!(named(b"      ", b"      "), "#7");
}

#[test]
fn state_of_an_instrument_ends_the_one_before_whoever_gave_it() {
    for (status, is_halted) in
        [(b'H', Some(true)), (b'P', Some(true)), (b'Q', Some(false)), (b'T', Some(false)), (b'?', None)]
    {
        let root = TradingStatusRoot { timestamp: 1.into(), security_id: 513.into(), status, reason: b'A' };
        let events = decode(&message(TradingStatus::ID, TradingStatusRoot::BLOCK_LEN, &root)).unwrap();
        let [Event::Status(event)] = events[..] else { panic!("{events:?}") };
        assert_eq!((event.is_halted, event.operational), (is_halted, false), "{status}");
    }
}
