use std::collections::BTreeMap;
use std::sync::Arc;

use market::event::{Event, Liquidity};
use market::framing::mdp3::Mdp3Packet;
use market::framing::mold_udp64::MoldUdp64;
use market::framing::{Framing, PacketKind};
use market::itch50::{BrokenTrade, Head, Itch50, Trade, TradingAction};
use market::mdp3::Mdp3;
use market::mdp3::layout::{Snapshot, split_head};
use market::{Books, Codec, Decoder, DepthBooks, DepthLevel, MessageCounts, OrderBooks, Price, Side, Symbol, Trust};
use zerocopy::IntoBytes;

use super::Mdp3Groups;
use super::translator::Translator;
use crate::feed::Feed;
use crate::packetizer::Packet;
use crate::settings::Settings;
use crate::truth::Truth;

const SYMBOLS: u16 = 6;

fn settings() -> Settings {
    let mdp3 = Some(Mdp3Groups::default());
    Settings { symbols: SYMBOLS, messages: 20_000, rate: 100_000, mdp3, ..Settings::default() }
}

/// A day's packets of each line, those of MDP 3.0 from 2 on, and its truth.
fn day() -> ([Vec<Arc<Packet>>; 8], Truth) {
    let mut feed = Feed::new(&settings()).unwrap();
    let mut lines = <[Vec<Arc<Packet>>; 8]>::default();
    for delivery in &mut feed {
        lines[delivery.line_idx].push(delivery.packet);
    }
    (lines, feed.finish())
}

fn apply(packet: &Packet, books: &mut DepthBooks) {
    let mut counts = MessageCounts::new();
    for message in Mdp3Packet::parse(&packet.payload).unwrap().messages() {
        Mdp3.decode_all(message, &mut counts, &mut |event| _ = books.apply(event));
    }
    assert_eq!(counts.total(), counts.decoded());
}

/// Both sides of a book; without levels where it was never spoken of.
fn levels(books: &DepthBooks, id: i32) -> [Vec<DepthLevel>; 2] {
    let book = books.find(Symbol::from_number(id as u64));
    let side = |side| book.map(|book| books.depth(book, Liquidity::Direct, side).to_vec()).unwrap_or_default();
    [side(Side::Buy), side(Side::Sell)]
}

#[test]
fn incremental_feed_makes_the_books_of_itch_and_each_snapshot_is_the_book_as_of_its_packet() {
    let ([.., incremental, _, definitions, _, snapshots, _], truth) = day();
    let mut books = DepthBooks::new(SYMBOLS.into());
    definitions.iter().take(2).for_each(|packet| apply(packet, &mut books));
    let mut of_packet = BTreeMap::<u32, Vec<&[u8]>>::new();
    for message in snapshots.iter().flat_map(|packet| Mdp3Packet::parse(&packet.payload).unwrap().messages()) {
        let (head, body) = split_head(message).unwrap();
        if let Ok(snapshot) = Snapshot::parse(head, body) {
            of_packet.entry(snapshot.root.last_seq.get()).or_default().push(message);
        }
    }
    let mut compared = 0;
    for (seq, packet) in (1..).zip(&incremental) {
        assert_eq!(packet.sequence, u64::from(seq));
        apply(packet, &mut books);
        for message in of_packet.remove(&seq).unwrap_or_default() {
            let mut own = DepthBooks::new(1);
            Mdp3.decode_all(message, &mut MessageCounts::new(), &mut |event| _ = own.apply(event));
            let (head, body) = split_head(message).unwrap();
            let id = Snapshot::parse(head, body).unwrap().root.security_id.get();
            assert_eq!(levels(&own, id), levels(&books, id), "instrument {id} as of packet {seq}");
            compared += 1;
        }
    }
    assert!(of_packet.is_empty() && compared > 100, "{compared} snapshots");
    for top in truth.book_tops {
        let book = books.find(Symbol::from_number(top.locate.into())).unwrap();
        let own = books.top(book);
        let [bid, ask] = [top.bid, top.ask].map(|level| level.map(|level| (Price(level.price.into()), level.shares)));
        assert_eq!([bid, ask], [Some((own.bid_px, own.bid_qty)), Some((own.ask_px, own.ask_qty))], "{}", top.symbol);
        assert_eq!(books.trust(book), Trust::Sure);
    }
}

#[test]
fn loops_have_each_instrument_in_each_round_and_begin_at_one() {
    let ([.., definitions, _, snapshots, _], _) = day();
    for (line, per_round) in [(definitions, 2), (snapshots, 3)] {
        // Before anything was traded the loop of snapshots has heartbeats alone.
        let numbers: Vec<_> = line.iter().map(|packet| packet.sequence).collect();
        let last: Vec<u64> = (1..=per_round).collect();
        let end = numbers.len() - numbers.len() / 2;
        let rounds = numbers[end..].iter().skip_while(|&&number| number != 1).copied().collect::<Vec<_>>();
        assert!(rounds.chunks_exact(last.len()).all(|round| round == last), "{rounds:?}");
        assert!(rounds.len() > 100);
    }
}

#[test]
fn trades_of_both_formats_have_the_same_volume_also_in_crosses() {
    let ([itch, _, incremental, ..], _) = day();
    let mut printed = BTreeMap::<(Symbol, i64), u64>::new();
    let mut books = OrderBooks::new(market::Capacity { books: SYMBOLS.into(), orders: 1 << 16, levels: 1 << 16 });
    for message in itch.iter().filter(|it| it.kind == PacketKind::Data).flat_map(|it| messages_of(it)) {
        let event = Itch50.decode(message).unwrap();
        match event {
            Event::Execute(it) if it.printable => {
                let order = books.order(it.order).unwrap();
                let print = (order.symbol, it.price.unwrap_or(order.price).0);
                *printed.entry(print).or_default() += u64::from(it.qty);
            }
            Event::Trade(it) if it.qty > 0 => *printed.entry((it.symbol, it.price.0)).or_default() += it.qty,
            _ => {}
        }
        books.apply(&event);
    }
    let names = crate::session::listing(&settings());
    let mut traded = BTreeMap::<(Symbol, i64), u64>::new();
    for message in incremental.iter().flat_map(|packet| Mdp3Packet::parse(&packet.payload).unwrap().messages()) {
        Mdp3.decode_all(message, &mut MessageCounts::new(), &mut |event| {
            if let Event::TradeSummary(it) = event {
                let (_, (symbol, _)) = (1..).zip(&names).find(|&(id, _)| Symbol::from_number(id) == it.symbol).unwrap();
                assert!(it.qty > 0, "a cross without shares is no trade");
                *traded.entry((*symbol, it.price.0 / 100_000)).or_default() += it.qty;
            }
        });
    }
    assert!(printed.len() > 100);
    assert_eq!(traded, printed);
}

fn messages_of(packet: &Packet) -> impl Iterator<Item = &[u8]> {
    MoldUdp64::parse(&packet.payload).unwrap().messages()
}

#[test]
fn broken_trade_is_deleted_and_a_halt_is_a_state() {
    let stock = Symbol(*b"ZTEST   ");
    let head = |kind| Head::new(kind, market::Locate(1), 5);
    let (order, shares, price) = (0.into(), 300.into(), 100_000.into());
    let trade = Trade { head: head(b'P'), order, side: b'B', shares, stock, price, trade: 7.into() };
    let broken = BrokenTrade { head: head(b'B'), trade: 7.into() };
    let halt = TradingAction { head: head(b'H'), stock, state: b'H', reserved: b' ', reason: *b"    " };
    let mut translator = Translator::new(&[stock]);
    let mut told = Vec::new();
    for message in [trade.as_bytes(), broken.as_bytes(), broken.as_bytes(), halt.as_bytes()] {
        translator.take(5, message, |message| {
            Mdp3.decode_all(message, &mut MessageCounts::new(), &mut |event| match event {
                Event::TradeSummary(it) => told.push(format!("{:?} {} at {}", it.action, it.qty, it.price.0)),
                Event::Status(it) => told.push(format!("state {}", it.state)),
                _ => {}
            });
        });
    }
    assert_eq!(told, ["New 300 at 10000000000", "Delete 300 at 10000000000", "state 2"]);
}
