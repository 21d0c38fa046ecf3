//! Messages of ITCH in, messages of MDP 3.0 out: the same book by price, the trades, those that are
//! broken, and the states of instruments.

use std::collections::{BTreeMap, HashMap};

use market::event::{Event, Status};
use market::itch50::Itch50;
use market::mdp3::emit;
use market::mdp3::layout::{
    BookEntry, BookRoot, FutureDefinitionFeed, FutureDefinitionRoot, SecurityStatusRoot, SnapshotEntry, SnapshotRoot,
    TradeSummaryEntry, TradeSummaryRoot,
};
use market::sbe::Block;
use market::{Books, Capacity, Codec, OrderBooks, Price, Side, Symbol};

use super::ladder::{DEPTH, Ladder, Level, Step};
use crate::capture::MIDNIGHT_NS;

/// The event's last message.
const END_OF_EVENT: u8 = 1 << 7;
/// The types of entries, by side.
const ENTRY_TYPES: [u8; 2] = [b'0', b'1'];
const SIDES: [Side; 2] = [Side::Buy, Side::Sell];
/// Orders and prices of an instrument that are expected at most, on average.
const ORDERS_EACH: usize = 512;
/// Trades that can still be broken, the newest ones.
const TRADES_KEPT: usize = 1 << 16;
/// A price of four decimals with nine.
const NINE_DECIMALS: i64 = 100_000;

/// One instrument as it is published.
#[derive(Debug)]
struct Instrument {
    id: i32,
    symbol: Symbol,
    /// The number of its last update.
    rpt_seq: u32,
    ladders: [Ladder; 2],
}

/// All instruments of the exchange.
#[derive(Debug)]
pub(super) struct Translator {
    books: OrderBooks,
    instruments: Vec<Instrument>,
    by_symbol: HashMap<Symbol, usize>,
    trades: u32,
    /// As they were published, by their match numbers.
    published: BTreeMap<u64, TradeSummaryEntry>,
}

impl Translator {
    /// Of instruments whose numbers are their positions from 1.
    pub(super) fn new(listing: &[Symbol]) -> Self {
        let rest = (listing.len() * ORDERS_EACH).max(1 << 16);
        let instrument = |(id, &symbol)| Instrument { id, symbol, rpt_seq: 0, ladders: SIDES.map(Ladder::new) };
        Self {
            books: OrderBooks::new(Capacity { books: listing.len(), orders: rest, levels: rest }),
            instruments: (1..).zip(listing).map(instrument).collect(),
            by_symbol: listing.iter().copied().zip(0..).collect(),
            trades: 0,
            published: BTreeMap::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.instruments.len()
    }

    /// Whether the instrument was updated since the week began: CME has snapshots of these alone.
    pub(super) fn is_active(&self, idx: usize) -> bool {
        self.instruments[idx].rpt_seq > 0
    }

    /// Orders and prices that found no place: what is published lacks them.
    pub(super) fn without_place(&self) -> u64 {
        self.books.counts().without_place()
    }

    /// Takes a message of ITCH, and passes what follows of it to `each`: at most a trade, and a
    /// change of a book, the last of which ends the event.
    pub(super) fn take(&mut self, time_ns: u64, message: &[u8], mut each: impl FnMut(&[u8])) {
        let Ok(event) = Itch50.decode(message) else { return };
        if let Event::Status(status) = event {
            return self.status(time_ns, &status, each);
        }
        let trade = self.trade(&event);
        let change = self.books.apply(&event).map(|change| self.books.symbol(change.book));
        let entries = change.map(|symbol| self.update(symbol)).unwrap_or_default();
        let transact_time = (MIDNIGHT_NS + time_ns).into();
        let mut bytes = Vec::new();
        if let Some(trade) = trade {
            let event_end = if entries.is_empty() { END_OF_EVENT } else { 0 };
            emit::trade_summary(&TradeSummaryRoot { transact_time, event_end }, &[trade], &mut bytes);
            each(&bytes);
        }
        if !entries.is_empty() {
            bytes.clear();
            emit::book(&BookRoot { transact_time, event_end: END_OF_EVENT }, &entries, &mut bytes);
            each(&bytes);
        }
    }

    /// The trade that an event is, or breaks, before the books have it. What is not printable is
    /// in the sum of its cross.
    fn trade(&mut self, event: &Event) -> Option<TradeSummaryEntry> {
        let (symbol, price, qty, number) = match event {
            Event::Execute(execute) if execute.printable => {
                let order = self.books.order(execute.order)?;
                (order.symbol, execute.price.unwrap_or(order.price), execute.qty.into(), execute.trade)
            }
            Event::Trade(trade) if trade.qty > 0 => (trade.symbol, trade.price, trade.qty, trade.trade),
            Event::TradeBreak(broken) => return self.broken(broken.trade),
            _ => return None,
        };
        let instrument = &mut self.instruments[*self.by_symbol.get(&symbol)?];
        instrument.rpt_seq += 1;
        self.trades += 1;
        let entry = TradeSummaryEntry {
            price: (price.0 * NINE_DECIMALS).into(),
            size: wire_qty(qty).into(),
            security_id: instrument.id.into(),
            rpt_seq: instrument.rpt_seq.into(),
            order_count: 1.into(),
            action: Step::New as u8,
            trade_id: self.trades.into(),
            ..TradeSummaryEntry::NULL
        };
        self.published.insert(number, entry);
        if self.published.len() > TRADES_KEPT {
            self.published.pop_first();
        }
        Some(entry)
    }

    /// A trade that is broken is deleted: the entry of the trade again, with another action.
    fn broken(&mut self, number: u64) -> Option<TradeSummaryEntry> {
        let entry = self.published.remove(&number)?;
        let instrument = &mut self.instruments[usize::try_from(entry.security_id.get() - 1).ok()?];
        instrument.rpt_seq += 1;
        Some(TradeSummaryEntry { action: Step::Delete as u8, rpt_seq: instrument.rpt_seq.into(), ..entry })
    }

    fn status(&self, time_ns: u64, status: &Status, mut each: impl FnMut(&[u8])) {
        let Some(&idx) = self.by_symbol.get(&status.symbol) else { return };
        // SecurityTradingStatus: halted, pre-open, ready to trade. Operational halts are ITCH's
        // own.
        let trading_status = match status.state {
            b'H' | b'P' if !status.operational => 2,
            b'Q' if !status.operational => 21,
            b'T' if !status.operational => 17,
            _ => return,
        };
        let root = SecurityStatusRoot {
            transact_time: (MIDNIGHT_NS + time_ns).into(),
            security_id: self.instruments[idx].id.into(),
            event_end: END_OF_EVENT,
            trading_status,
            halt_reason: 0,
            trading_event: 0,
            ..SecurityStatusRoot::NULL
        };
        let mut bytes = Vec::new();
        emit::security_status(&root, &mut bytes);
        each(&bytes);
    }

    /// The entries that make an instrument's published levels those of its book.
    fn update(&mut self, symbol: Symbol) -> Vec<BookEntry> {
        let mut entries = Vec::new();
        let (Some(&idx), Some(book)) = (self.by_symbol.get(&symbol), self.books.find(symbol)) else { return entries };
        let Instrument { id, rpt_seq, ladders, .. } = &mut self.instruments[idx];
        for ((side, entry_type), ladder) in SIDES.into_iter().zip(ENTRY_TYPES).zip(ladders) {
            let level = |(price, qty, orders): (Price, u64, u32)| Level { price: price.0 * NINE_DECIMALS, qty, orders };
            let levels = self.books.depth(book, side).take(DEPTH).map(level).collect();
            ladder.update(levels, |step, position, level| {
                *rpt_seq += 1;
                entries.push(BookEntry {
                    price: level.price.into(),
                    size: wire_qty(level.qty).into(),
                    security_id: (*id).into(),
                    rpt_seq: (*rpt_seq).into(),
                    order_count: wire_qty(level.orders.into()).into(),
                    level: position as u8,
                    action: step as u8,
                    entry_type,
                    ..BookEntry::NULL
                });
            });
        }
        entries
    }

    /// The snapshot of an instrument as of packet `last_seq`, in a loop of so many.
    pub(super) fn snapshot(&self, idx: usize, last_seq: u32, total: u32, time_ns: u64) -> Vec<u8> {
        let Instrument { id, rpt_seq, ladders, .. } = &self.instruments[idx];
        let root = SnapshotRoot {
            last_seq: last_seq.into(),
            reports_total: total.into(),
            security_id: (*id).into(),
            rpt_seq: (*rpt_seq).into(),
            transact_time: (MIDNIGHT_NS + time_ns).into(),
            ..SnapshotRoot::NULL
        };
        let mut entries = Vec::with_capacity(2 * DEPTH);
        for (ladder, entry_type) in ladders.iter().zip(ENTRY_TYPES) {
            entries.extend((1..).zip(ladder.levels()).map(|(position, level)| SnapshotEntry {
                price: level.price.into(),
                size: wire_qty(level.qty).into(),
                order_count: wire_qty(level.orders.into()).into(),
                level: position,
                entry_type,
                ..SnapshotEntry::NULL
            }));
        }
        let mut message = Vec::new();
        emit::snapshot(&root, &entries, &mut message);
        message
    }

    /// The definition of an instrument.
    pub(super) fn definition(&self, idx: usize) -> Vec<u8> {
        let Instrument { id, symbol, .. } = &self.instruments[idx];
        let mut name = [0; 20];
        let len = symbol.as_str().len();
        name[..len].copy_from_slice(symbol.as_str().as_bytes());
        let root = FutureDefinitionRoot {
            reports_total: (self.instruments.len() as u32).into(),
            update_action: b'A',
            last_update_time: MIDNIGHT_NS.into(),
            symbol: name,
            security_id: (*id).into(),
            // A cent.
            min_tick: 10_000_000.into(),
            ..FutureDefinitionRoot::NULL
        };
        let mut message = Vec::new();
        let feeds = [FutureDefinitionFeed { feed_type: *b"GBX", depth: DEPTH as i8 }];
        emit::future_definition(&root, &feeds, &mut message);
        message
    }
}

/// Quantities have 32 bits and a sign in MDP 3.0.
fn wire_qty(qty: u64) -> i32 {
    qty.try_into().unwrap_or(i32::MAX)
}
