use std::collections::BTreeMap;
use std::sync::Arc;

use market::event::Liquidity;
use market::framing::Framing;
use market::framing::mdp3::Mdp3Packet;
use market::mdp3::Mdp3;
use market::mdp3::layout::{Snapshot, split_head};
use market::{Books, Decoder, DepthBooks, DepthLevel, MessageCounts, Price, Side, Symbol, Trust};

use super::Mdp3Groups;
use crate::feed::Feed;
use crate::packetizer::Packet;
use crate::settings::Settings;
use crate::truth::Truth;

const SYMBOLS: u16 = 6;

/// A day's packets of each line, those of MDP 3.0 from 2 on, and its truth.
fn day() -> ([Vec<Arc<Packet>>; 8], Truth) {
    let mdp3 = Some(Mdp3Groups::default());
    let settings = Settings { symbols: SYMBOLS, messages: 20_000, rate: 100_000, mdp3, ..Settings::default() };
    let mut feed = Feed::new(&settings).unwrap();
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
