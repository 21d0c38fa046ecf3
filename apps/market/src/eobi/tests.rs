use super::layout::*;
use super::*;
use crate::book::{Books, Capacity, Halts, NumberedBooks, OfChannel, Trust};
use crate::channel::{BookBuilder, ChannelHandler};
use crate::codec::{Decoder, MessageCounts, MessageError};
use crate::event::{DepthAction, Event};
use crate::loops::{Recovery, RecoveryConfig};
use crate::sbe::Block;
use crate::sequence::Gap;
use crate::units::{Price, Price9, Side, Symbol};

mod day;

const ID: i64 = 5_578_438;

fn decode_all(messages: &[Vec<u8>]) -> Result<Vec<Event>, MessageError> {
    let (mut codec, mut events, mut counts) = (Eobi::default(), Vec::new(), MessageCounts::new());
    for message in messages {
        codec.decode_each(message, &mut counts, &mut |event| events.push(*event))?;
    }
    Ok(events)
}

fn decode(message: &[u8]) -> Result<Vec<Event>, MessageError> {
    decode_all(&[message.to_vec()])
}

/// An order, written by hand from the model: 300 at 12.34 to sell, the product's message 5.
fn order() -> Vec<u8> {
    let front = [&[56, 0, 0x2c, 0x33, 5, 0, 0, 0][..], &[0xff; 8], &ID.to_le_bytes()].concat();
    let details = [&99_u64.to_le_bytes()[..], &3_000_000_i64.to_le_bytes(), &[2, 0xff, 0x80, 0, 0, 0, 0, 0]].concat();
    [&front[..], &details, &1_234_000_000_i64.to_le_bytes()].concat()
}

/// The packet's header.
fn header(completion: u8) -> Vec<u8> {
    let mut out = Vec::new();
    let root =
        PacketHeaderRoot { completion_indicator: completion, transact_time: 77.into(), ..PacketHeaderRoot::NULL };
    emit::message(PacketHeader::ID, u32::MAX, &root, PacketHeaderRoot::BLOCK_LEN, &mut out);
    out
}

#[test]
fn order_is_its_number_then_what_it_changes_and_the_packets_header_ends_the_event() {
    let events = decode_all(&[order(), header(0), header(1)]).unwrap();
    let [Event::Numbered(number), Event::Add(add), Event::EndOfEvent(end)] = events[..] else { panic!("{events:?}") };
    assert_eq!((name(number.kind), number.rpt_seq, number.symbol.number()), (Some("OrderAdd"), 5, Some(ID as u64)));
    assert_eq!((add.side, add.qty, add.price, add.at_ns), (Side::Sell, 300, Price(123_400), 99));
    assert_eq!((add.order, end.at_ns), (order_ref(ID, Side::Sell, 99), 77));
    assert_ne!(order_ref(ID, Side::Sell, 99), order_ref(ID, Side::Buy, 99), "sides may have equal times");
}

fn books() -> NumberedBooks<OfChannel> {
    NumberedBooks::new(Capacity { books: 4, orders: 8, levels: 8 })
}

fn trust_behind(messages: &[Vec<u8>]) -> Trust {
    let mut books = books();
    decode_all(messages).unwrap().iter().for_each(|event| _ = books.apply(event));
    books.trust(books.find(Symbol::from_number(ID as u64)).unwrap())
}

#[test]
fn order_that_an_event_cannot_say_exactly_is_in_no_book_and_its_book_is_stale() {
    assert_eq!(trust_behind(&[order()]), Trust::Sure);
    // Five decimals, half a unit, more than 32 bits; then a market order.
    let price = |price: i64| [&order()[..48], &price.to_le_bytes()].concat();
    let qty = |qty: i64| [&order()[..32], &qty.to_le_bytes(), &order()[40..]].concat();
    for inexact in [price(1_234_005_000), qty(5_000), qty((1 << 32) * 10_000), qty(-10_000)] {
        assert_eq!(trust_behind(&[inexact]), Trust::Stale);
    }
    let events = decode(&price(i64::MIN)).unwrap();
    assert!(matches!(events[..], [Event::Numbered(_)]), "a market order is in no book: {events:?}");
}

#[test]
fn side_that_is_not_known_is_an_error_and_its_book_is_stale() {
    let mut other = order();
    other[40] = 3;
    let (mut books, mut counts) = (books(), MessageCounts::new());
    let decoded = Eobi::default().decode_each(&other, &mut counts, &mut |event| _ = books.apply(event));
    assert!(matches!(decoded, Err(MessageError::Unknown { .. })));
    assert_eq!(books.trust(books.find(Symbol::from_number(ID as u64)).unwrap()), Trust::Stale);
}

fn details(time_priority: u64, qty: i64) -> OrderModifyRoot {
    OrderModifyRoot {
        prev_time_priority: 99.into(),
        prev_price: 1_234_000_000.into(),
        security_id: ID.into(),
        time_priority: time_priority.into(),
        display_qty: qty.into(),
        side: 2,
        price: 1_235_000_000.into(),
        ..OrderModifyRoot::NULL
    }
}

#[test]
fn order_that_loses_its_priority_goes_and_comes_and_one_that_becomes_a_market_order_goes() {
    let mut out = Vec::new();
    emit::order_modify(6, &details(100, 10_000), &mut out);
    let events = decode(&out).unwrap();
    let [Event::Numbered(_), Event::Delete(gone), Event::Add(came)] = events[..] else { panic!("{events:?}") };
    assert_eq!((gone.order, came.order), (order_ref(ID, Side::Sell, 99), order_ref(ID, Side::Sell, 100)));
    let mut market = Vec::new();
    emit::order_modify(6, &OrderModifyRoot { price: i64::MIN.into(), ..details(100, 10_000) }, &mut market);
    assert!(matches!(decode(&market).unwrap()[..], [Event::Numbered(_), Event::Delete(_)]));
}

#[test]
fn executions_print_with_the_time_of_their_match_and_a_full_one_leaves_nothing() {
    let mut messages = vec![Vec::new(), Vec::new(), Vec::new()];
    let summary = ExecutionSummaryRoot { exec_id: 500.into(), ..ExecutionSummaryRoot::NULL };
    emit::message(ExecutionSummary::ID, 6, &summary, ExecutionSummaryRoot::BLOCK_LEN, &mut messages[0]);
    let root = PartialOrderExecutionRoot {
        side: 2,
        trd_match_id: 8.into(),
        price: 1_234_000_000.into(),
        time_priority: 99.into(),
        security_id: ID.into(),
        last_qty: 1_000_000.into(),
        last_px: 1_233_000_000.into(),
        ..PartialOrderExecutionRoot::NULL
    };
    emit::partial_order_execution(7, &root, &mut messages[1]);
    let full = FullOrderExecutionRoot {
        side: 2,
        price: 1_234_000_000.into(),
        time_priority: 99.into(),
        security_id: ID.into(),
        last_qty: 10_000.into(),
        last_px: 1_234_000_000.into(),
        ..FullOrderExecutionRoot::NULL
    };
    emit::full_order_execution(8, &full, &mut messages[2]);
    let events = decode_all(&messages).unwrap();
    let [_, _, Event::Execute(partial), _, Event::Execute(full)] = events[..] else { panic!("{events:?}") };
    assert_eq!((partial.qty, partial.price, partial.trade, partial.at_ns), (100, Some(Price(123_300)), 8, 500));
    assert_eq!((full.remaining, full.price), (Some(0), None));
    let mut books = books();
    decode(&order()).unwrap().iter().chain(&events).for_each(|event| _ = books.apply(event));
    assert_eq!((books.orders().orders_count(), books.counts().unknown_orders), (0, 0));
}

#[test]
fn trade_report_has_the_exact_price_and_changes_no_book() {
    let mut out = Vec::new();
    let root = TradeReportRoot {
        security_id: ID.into(),
        last_px: 112_345_678.into(),
        last_qty: 25_000.into(),
        trd_match_id: 3.into(),
        ..TradeReportRoot::NULL
    };
    emit::trade_report(6, &root, &mut out);
    let Ok([Event::TradeSummary(trade)]) =
        decode(&out).as_deref().map(|events| <[Event; 1]>::try_from(events).unwrap())
    else {
        panic!("no trade")
    };
    assert_eq!((trade.price, trade.qty, trade.trade), (Price9(1_123_456_780), 2, 3));
    assert_eq!((trade.action, trade.rpt_seq), (DepthAction::New, 0));
}

#[test]
fn mass_change_has_the_state_of_each_instrument_that_it_names_and_is_refused_where_it_is_cut() {
    let mut out = Vec::new();
    let root = MassInstrumentStateChangeRoot { no_related_sym: 2, ..MassInstrumentStateChangeRoot::NULL };
    let len = MassInstrumentStateChangeRoot::BLOCK_LEN;
    emit::message(MassInstrumentStateChange::ID, 6, &root, len, &mut out);
    for (id, state) in [(ID, 203), (ID + 1, 255)] {
        out.extend([&id.to_le_bytes()[..], &[0; 16], &[1, state, 0, 0, 0, 0, 0, 0]].concat());
    }
    let events = decode(&out).unwrap();
    let [Event::Status(_), Event::Status(first), Event::Status(second)] = events[..] else { panic!("{events:?}") };
    assert_eq!((first.symbol.number(), first.state, second.state), (Some(ID as u64), 203, 0));
    assert!(matches!(decode(&out[..out.len() - 1]), Err(MessageError::Length { .. })));
}

/// The halts of three instruments behind these messages.
fn halted_behind(messages: &[Vec<u8>]) -> [bool; 3] {
    let (mut codec, mut counts, mut halts) = (Eobi::default(), MessageCounts::new(), Halts::new(8));
    for message in messages {
        codec
            .decode_each(message, &mut counts, &mut |event| {
                if let Event::Status(status) = event {
                    halts.take(status);
                }
            })
            .unwrap();
    }
    [ID, ID + 1, ID + 2].map(|id| halts.is_halted(Symbol::from_number(id as u64)))
}

fn mass_change(at_ns: u64, state: u8, last_fragment: u8, named: &[(i64, u8)]) -> Vec<u8> {
    let mut out = Vec::new();
    let root = MassInstrumentStateChangeRoot {
        security_mass_status: 1,
        security_mass_trading_status: state,
        transact_time: at_ns.into(),
        last_fragment,
        no_related_sym: named.len() as u8,
        ..MassInstrumentStateChangeRoot::NULL
    };
    emit::message(MassInstrumentStateChange::ID, 6, &root, MassInstrumentStateChangeRoot::BLOCK_LEN, &mut out);
    for (id, state) in named {
        out.extend([&id.to_le_bytes()[..], &[0; 16], &[1, *state, 0, 0, 0, 0, 0, 0]].concat());
    }
    out
}

#[test]
fn mass_change_gives_its_state_to_each_instrument_that_none_of_its_parts_names() {
    let instrument = |state| {
        let root = InstrumentStateChangeRoot {
            security_id: ID.into(),
            security_status: 1,
            security_trading_status: state,
            ..InstrumentStateChangeRoot::NULL
        };
        let mut out = Vec::new();
        emit::instrument_state_change(6, &root, &mut out);
        out
    };
    let open = mass_change(2, 203, 1, &[(ID + 1, 2)]);
    assert_eq!(halted_behind(&[instrument(200), open.clone()]), [false, true, false]);
    assert_eq!(halted_behind(&[open, mass_change(3, 200, 1, &[(ID, 203)])]), [false, true, true]);
    let parts = [mass_change(4, 200, 0, &[(ID, 203)]), mass_change(4, 200, 1, &[(ID + 1, 203)])];
    assert_eq!(halted_behind(&parts), [false, false, true]);
    let lost = [parts[0].clone(), mass_change(5, 203, 1, &[])];
    assert_eq!(halted_behind(&lost), [false; 3], "the last part was lost");
}

#[test]
fn state_of_the_product_in_the_loop_ends_a_halt_whose_end_was_lost() {
    let product = |status| {
        let root = ProductStateChangeRoot { trad_ses_status: status, ..ProductStateChangeRoot::NULL };
        let mut out = Vec::new();
        emit::message(ProductStateChange::ID, 6, &root, ProductStateChangeRoot::BLOCK_LEN, &mut out);
        out
    };
    let head = |trad_ses_status| {
        let root =
            ProductSummaryRoot { last_msg_seq_num_processed: 9.into(), trad_ses_status, ..ProductSummaryRoot::NULL };
        let mut out = Vec::new();
        emit::product_summary(0, &root, &mut out);
        out
    };
    let mut instrument = Vec::new();
    let root = InstrumentSummaryRoot { security_id: ID.into(), tot_no_orders: 0.into(), ..InstrumentSummaryRoot::NULL };
    emit::instrument_summary(1, &root, &mut instrument);
    assert_eq!(halted_behind(&[product(1), head(2), instrument.clone()]), [false; 3]);
    assert_eq!(halted_behind(&[product(2), head(3), instrument.clone()]), [true; 3]);
    assert_eq!(halted_behind(&[product(1), head(u8::MAX), instrument]), [true; 3], "it says nothing");
}

/// Behind a snapshot the one instrument alone is told again, because others may have a later state.
#[test]
fn mass_change_behind_a_snapshot_ends_the_halt_that_the_snapshot_tells() {
    let books = NumberedBooks::<OfChannel>::new(Capacity { books: 4, orders: 64, levels: 64 });
    let mut builder = BookBuilder::new(Eobi::default(), books);
    let mut recovery = Recovery::<Eobi>::new(RecoveryConfig::default());
    let lost = Gap { from: 1, to: 4 };
    builder.on_gap(lost);
    recovery.gap(lost);
    for (seq, message) in [(5, order()), (6, mass_change(2, 203, 1, &[(ID + 1, 2)]))] {
        builder.on_message(seq, &message);
        recovery.live(seq, &message, &builder.books);
    }
    let (mut head, mut instrument) = (Vec::new(), Vec::new());
    let root =
        ProductSummaryRoot { last_msg_seq_num_processed: 5.into(), trad_ses_status: 2, ..ProductSummaryRoot::NULL };
    emit::product_summary(0, &root, &mut head);
    let root = InstrumentSummaryRoot {
        security_id: ID.into(),
        security_status: 1,
        security_trading_status: 200,
        tot_no_orders: 0.into(),
        ..InstrumentSummaryRoot::NULL
    };
    emit::instrument_summary(1, &root, &mut instrument);
    let (mut told, mut counts) = (Vec::new(), MessageCounts::new());
    for (packet, message) in [(1, head), (2, instrument)] {
        recovery.snapshot(packet, &message, &mut builder.books, &mut counts, |_, event, _, _| {
            if let Event::Status(status) = event {
                told.push((status.symbol.number(), status.is_halted));
            }
        });
    }
    let id = Some(ID as u64);
    assert_eq!(told, [(None, Some(false)), (id, Some(true)), (id, Some(false))]);
}

#[test]
fn types_of_messages_are_told_apart_and_named() {
    let all = (13_000..14_000_u16).filter(|&template| {
        let mut message = [8, 0, 0, 0, 0, 0, 0, 0];
        message[2..4].copy_from_slice(&template.to_le_bytes());
        let kind = Eobi::kind(&message).unwrap();
        name(kind).is_some() && super::template(kind) == template
    });
    assert_eq!(all.count(), 27);
}

#[test]
fn instrument_is_halted_by_either_of_its_states_and_all_by_that_of_the_product() {
    let told = |emit: &dyn Fn(&mut Vec<u8>)| -> Vec<_> {
        let mut out = Vec::new();
        emit(&mut out);
        let events = decode(&out).unwrap();
        events
            .iter()
            .filter_map(|event| match event {
                Event::Status(status) => Some((status.symbol.number(), status.is_halted, status.operational)),
                _ => None,
            })
            .collect()
    };
    let id = Some(ID as u64);
    for (status, trading, is_halted) in [
        (1, 203, Some(false)),
        (1, 208, Some(false)),
        (1, 217, Some(false)),
        (1, 2, Some(true)),
        (1, 200, Some(true)),
        (1, 201, Some(true)),
        (9, 203, Some(true)),
        (4, 255, Some(true)),
        (1, 255, None),
        (1, 7, None),
    ] {
        let root = InstrumentStateChangeRoot {
            security_id: ID.into(),
            security_status: status,
            security_trading_status: trading,
            ..InstrumentStateChangeRoot::NULL
        };
        let told = told(&|out| emit::instrument_state_change(6, &root, out));
        assert_eq!(told, [(id, is_halted, false)], "{status} {trading}");
    }
    for (status, is_halted) in [(1, Some(true)), (2, Some(false)), (3, Some(true)), (9, None)] {
        let root = ProductStateChangeRoot { trad_ses_status: status, ..ProductStateChangeRoot::NULL };
        let len = ProductStateChangeRoot::BLOCK_LEN;
        let told = told(&|out| emit::message(ProductStateChange::ID, 6, &root, len, out));
        assert_eq!(told, [(None, is_halted, true)], "{status}");
    }
}
