//! From the bytes of datagrams to books by position: CME's packets, MDP 3.0 incremental messages,
//! and the books of all instruments.

use market::framing::mdp3::{Mdp3Header, Mdp3Packet};
use market::mdp3::Mdp3;
use market::mdp3::layout::{
    Book, BookEntry, BookOrder, BookRoot, GroupSize, GroupSize8Byte, TradeSummary, TradeSummaryEntry,
    TradeSummaryOrder, TradeSummaryRoot, emit_head,
};
use market::sbe::{Block, emit_block, emit_group};
use market::{DepthBooks, HealingBooks};

use super::packed;
use super::replayed::Replayed;
use crate::frames::shuffled;

/// Instruments of the channel, as of one product group's futures and spreads.
const INSTRUMENTS: usize = 100;
/// Messages of a pass: some 10 MB.
const MESSAGES: usize = 100_000;
/// Levels of a side, as of CME's futures.
const DEPTH: usize = 10;
/// Actions of the venue.
const NEW: u8 = 0;
const CHANGE: u8 = 1;
const DELETE: u8 = 2;
/// All messages end their event, as most do.
const END_OF_EVENT: u8 = 0x84;

/// A channel's incremental messages, and the books of them. Of 100 messages 10 are trades; of the
/// others 65 of 100 change a level, 17 insert one, and 18 delete one and append the tenth.
pub type DepthFeed = Replayed<Mdp3Packet, Mdp3, DepthBooks>;

impl DepthFeed {
    /// Draws the messages: first each instrument's whole book, then the mix.
    pub fn draw() -> Self {
        let mut draw = Draw { numbers: [0; INSTRUMENTS], values: shuffled(u32::MAX, 8 * MESSAGES, 7).into_iter() };
        let mut messages: Vec<_> = (0..INSTRUMENTS).map(|instrument| draw.whole_book(instrument)).collect();
        messages.extend((messages.len()..MESSAGES).map(|_| draw.message()));
        let packets = packed::<Mdp3Packet>(messages, |idx, _| Mdp3Header { seq: idx as u32 + 1, sent_ns: 1 });
        Self::new(packets, (Mdp3, DepthBooks::new(INSTRUMENTS)), |books| {
            assert!(books.stale_count() == 0 && books.depth_counts().out_of_place == 0, "each level is in its place");
        })
    }
}

/// Draws messages. The last number of each instrument's updates is kept.
struct Draw {
    numbers: [u32; INSTRUMENTS],
    values: std::vec::IntoIter<u32>,
}

impl Draw {
    fn below(&mut self, end: usize) -> usize {
        self.values.next().unwrap_or(0) as usize % end
    }

    /// Ten levels of each side.
    fn whole_book(&mut self, instrument: usize) -> Vec<u8> {
        let places = (0..2 * DEPTH).map(|idx| (idx / DEPTH, 1 + (idx % DEPTH) as u8));
        let entries: Vec<_> = places.map(|(side, level)| self.entry(instrument, side, NEW, level)).collect();
        book(&entries)
    }

    fn message(&mut self) -> Vec<u8> {
        // A few instruments have most of the messages, and the best levels most of a book's.
        let instrument = self.below(INSTRUMENTS).min(self.below(INSTRUMENTS));
        let level = 1 + self.below(DEPTH).min(self.below(DEPTH)) as u8;
        let side = self.below(2);
        match self.below(100) {
            0..10 => self.trade(instrument),
            10..68 => book(&[self.entry(instrument, side, CHANGE, level)]),
            68..84 => book(&[self.entry(instrument, side, NEW, level)]),
            _ => book(&[self.entry(instrument, side, DELETE, level), self.entry(instrument, side, NEW, DEPTH as u8)]),
        }
    }

    fn entry(&mut self, instrument: usize, side: usize, action: u8, level: u8) -> BookEntry {
        self.numbers[instrument] += 1;
        BookEntry {
            price: (4_500_000_000_000 + i64::from(level) * 250_000_000).into(),
            size: (1 + self.below(500) as i32).into(),
            security_id: (1 + instrument as i32).into(),
            rpt_seq: self.numbers[instrument].into(),
            order_count: 3.into(),
            level,
            action,
            entry_type: [b'0', b'1'][side],
            ..BookEntry::NULL
        }
    }

    fn trade(&mut self, instrument: usize) -> Vec<u8> {
        self.numbers[instrument] += 1;
        let entry = TradeSummaryEntry {
            price: 4_500_000_000_000.into(),
            size: 2.into(),
            security_id: (1 + instrument as i32).into(),
            rpt_seq: self.numbers[instrument].into(),
            order_count: 2.into(),
            aggressor: 1,
            action: NEW,
            ..TradeSummaryEntry::NULL
        };
        let mut out = emit_head(TradeSummary::ID, TradeSummaryRoot::BLOCK_LEN as u16).to_vec();
        let root = TradeSummaryRoot { transact_time: 1.into(), event_end: END_OF_EVENT };
        emit_block(&root, TradeSummaryRoot::BLOCK_LEN, &mut out);
        emit_group::<GroupSize, _>(&[entry], TradeSummaryEntry::BLOCK_LEN, &mut out);
        emit_group::<GroupSize8Byte, TradeSummaryOrder>(&[], TradeSummaryOrder::BLOCK_LEN, &mut out);
        out
    }
}

fn book(entries: &[BookEntry]) -> Vec<u8> {
    let mut out = emit_head(Book::ID, BookRoot::BLOCK_LEN as u16).to_vec();
    emit_block(&BookRoot { transact_time: 1.into(), event_end: END_OF_EVENT }, BookRoot::BLOCK_LEN, &mut out);
    emit_group::<GroupSize, _>(entries, BookEntry::BLOCK_LEN, &mut out);
    emit_group::<GroupSize8Byte, BookOrder>(&[], BookOrder::BLOCK_LEN, &mut out);
    out
}
