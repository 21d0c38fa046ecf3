//! The order model: one believable day of one exchange, message by message, from a seed.
//!
//! ```text
//!  09:29:55   first heartbeat          nothing has happened yet
//!  +0.2 s     O, R and H per stock     the directory; all stocks trade
//!  +2 s       S, adds                  the books fill for a second, then two quiet ones
//!  09:30:00   Q, crosses               the opening auction takes the best orders (C, not printable)
//!  …          A F E C X D U P H        the market is open as long as the rate says
//!  close      M, crosses, E, C         quiet seconds between them; the books stay as they are
//! ```
//!
//! Each stock has a mid that walks at random and a bounded book around it; a mid that walks into
//! resting orders executes them, so that the book never crosses. The activity of stocks follows a
//! Zipf law, and a microburst is mostly about one stock. The output is ITCH 5.0 with the times of
//! the exchange; other modules make packets and lines of it.

mod book;
mod clock;
mod listing;
mod trading;

use std::collections::VecDeque;

use market::itch50::{CrossTrade, Head, Message, StockDirectory, SystemEvent, Trade, TradingAction};
use market::truth::{BookTop, PriceLevel};
use market::{Price, Side, Symbol};

use crate::random::Random;
use crate::settings::{SEEDING_PER_SYMBOL, Settings};
use clock::{BurstPart, Clock};
use listing::{Popularity, Stock};
use trading::Fill;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;

/// Times in nanoseconds since midnight New York.
const OPEN_NS: u64 = (9 * 60 + 30) * 60 * SECOND;
/// When the lines send their first heartbeat.
pub(crate) const START_NS: u64 = OPEN_NS - 5 * SECOND;
const DIRECTORY_NS: u64 = START_NS + 200 * MS;
const SYSTEM_NS: u64 = START_NS + 2 * SECOND;
const SEEDING_SPAN_NS: u64 = SECOND;
const CLOSING_PAUSE_NS: u64 = 1_500 * MS;
/// Between messages of the directory: 10,000 stocks are through within a fifth of a second.
const DIRECTORY_GAP_NS: u64 = 10_000;
/// Between messages of an auction.
const CROSS_GAP_NS: u64 = 2_000;

/// Longest message of the day, a hidden trade.
const MESSAGE_LEN_MAX: usize = Trade::LEN;
/// One message in this many halts a stock, which resumes after this time.
const HALT_ONE_IN: u64 = 100_000;
const HALT_SPAN_NS: u64 = 200 * MS;
/// One ITCH message and the time at which the exchange sends it.
#[derive(Clone, Copy, Debug)]
pub struct TimedMessage {
    /// Nanoseconds since midnight New York.
    pub time_ns: u64,
    len: u8,
    bytes: [u8; MESSAGE_LEN_MAX],
}

impl TimedMessage {
    /// The message as a MoldUDP64 block carries it.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// The exchange's day; an iterator over exactly `settings.messages` messages whose times never run
/// backwards.
#[derive(Debug)]
pub struct Session {
    stocks: Vec<Stock>,
    popularity: Popularity,
    random: Random,
    outbox: Outbox,
    phase: Phase,
    /// Position of the stock of the current microburst.
    hot: usize,
    halt: Option<Halt>,
    order_reference: u64,
    match_number: u64,
    hours: Hours,
}

#[derive(Debug)]
enum Phase {
    /// The books fill before the open.
    Seeding {
        left: u64,
        gap_ns: u64,
    },
    Open {
        left: u64,
        clock: Box<Clock>,
    },
    Closed,
}

/// The hours of the market, as far as they are known.
#[derive(Clone, Copy, Debug, Default)]
struct Hours {
    from_ns: Option<u64>,
    to_ns: Option<u64>,
}

/// Messages made and not yet taken.
#[derive(Debug)]
struct Outbox {
    queue: VecDeque<TimedMessage>,
    /// Messages of the day that are still to be made.
    left: u64,
    last_ns: u64,
    settings: Settings,
}

#[derive(Clone, Copy, Debug)]
struct Halt {
    stock_idx: usize,
    until_ns: u64,
}

/// The instruments of a seed, and the price at which each opens: those of a generated day.
pub(crate) fn listing(settings: &Settings) -> Vec<(Symbol, Price)> {
    let stocks = listing::list(settings.symbols, &mut Random::new(settings.seed, 0));
    stocks.iter().map(|stock| (stock.symbol, Price::from_cents(stock.reference_price.into()))).collect()
}

impl Iterator for Session {
    type Item = TimedMessage;

    fn next(&mut self) -> Option<TimedMessage> {
        while self.outbox.queue.is_empty() {
            if matches!(self.phase, Phase::Closed) {
                return None;
            }
            self.advance();
        }
        self.outbox.queue.pop_front()
    }
}

impl Session {
    /// Lists the stocks and begins the day. The settings must have passed [`Settings::check`].
    pub fn new(settings: &Settings) -> Self {
        let mut random = Random::new(settings.seed, 0);
        let stocks = listing::list(settings.symbols, &mut random);
        let popularity = Popularity::new(stocks.len(), &mut random);
        let queue = VecDeque::new();
        let outbox = Outbox { queue, left: settings.messages, last_ns: START_NS, settings: settings.clone() };
        let phase = Phase::Closed;
        let (order_reference, match_number) = (0, 0);
        let (hot, halt, hours) = (0, None, Hours::default());
        let mut session =
            Self { stocks, popularity, random, outbox, phase, hot, halt, order_reference, match_number, hours };
        session.send_directory();
        session
    }

    /// Ends the day here. Messages that were made already are still returned.
    pub fn stop(&mut self) {
        self.phase = Phase::Closed;
    }

    /// Whether the market trades continuously at a time up to that of the last message.
    pub fn is_open(&self, time_ns: u64) -> bool {
        let Hours { from_ns, to_ns } = self.hours;
        from_ns.is_some_and(|from_ns| from_ns <= time_ns) && to_ns.is_none_or(|to_ns| time_ns < to_ns)
    }

    /// The present best bid and offer of each stock, in the order of the directory.
    pub fn book_tops(&self) -> Vec<BookTop> {
        let level = |stock: &Stock, side| {
            stock.book.top(side).map(|level| PriceLevel { price: itch_price(level.price), shares: level.shares })
        };
        self.stocks
            .iter()
            .map(|stock| BookTop {
                symbol: stock.symbol.to_string(),
                locate: stock.locate.0,
                bid: level(stock, Side::Buy),
                ask: level(stock, Side::Sell),
            })
            .collect()
    }

    /// Orders that rest in all books now.
    pub fn orders_resting(&self) -> u64 {
        let sides = self
            .stocks
            .iter()
            .map(|stock| (stock.book.orders(Side::Buy).len() + stock.book.orders(Side::Sell).len()) as u64);
        sides.sum()
    }

    /// Makes the next message, or ends the phase and makes all that belongs to its end.
    fn advance(&mut self) {
        match &mut self.phase {
            Phase::Seeding { left: 0, .. } => self.open(),
            Phase::Seeding { left, gap_ns } => {
                *left -= 1;
                let time_ns = self.outbox.last_ns + *gap_ns;
                let stock_idx = self.popularity.draw(&mut self.random);
                self.add(stock_idx, time_ns);
            }
            Phase::Open { left: 0, .. } => self.close(),
            Phase::Open { left, clock } => {
                *left -= 1;
                let (last, arrival) = (*left == 0, clock.next());
                if arrival.burst == BurstPart::First {
                    self.hot = self.popularity.draw(&mut self.random);
                }
                let burst = arrival.burst != BurstPart::None;
                if !self.halt_or_resume(arrival.time_ns, last) {
                    self.trade(arrival.time_ns, burst);
                }
            }
            Phase::Closed => {}
        }
    }

    fn send_directory(&mut self) {
        self.system_event(DIRECTORY_NS, b'O');
        for idx in 0..self.stocks.len() {
            let time_ns = self.outbox.last_ns + DIRECTORY_GAP_NS;
            self.directory(idx, time_ns);
        }
        for idx in 0..self.stocks.len() {
            let time_ns = self.outbox.last_ns + DIRECTORY_GAP_NS;
            self.trading_action(idx, time_ns, b'T');
        }
        self.system_event(SYSTEM_NS, b'S');
        // Both crosses, the executions of the first one, and four system events are still to come.
        let free = self.outbox.left - 4 - 4 * self.stocks.len() as u64;
        let left = (free / 20).min(SEEDING_PER_SYMBOL * self.stocks.len() as u64);
        self.phase = Phase::Seeding { left, gap_ns: SEEDING_SPAN_NS / (left + 1) };
    }

    fn open(&mut self) {
        self.system_event(OPEN_NS, b'Q');
        for idx in 0..self.stocks.len() {
            self.opening_cross(idx);
        }
        // The close, one cross per stock, end of system and end of messages.
        let left = self.outbox.left - 3 - self.stocks.len() as u64;
        let random = Random::new(self.outbox.settings.seed, 1);
        self.hours.from_ns = Some(self.outbox.last_ns);
        let clock = Clock::new(&self.outbox.settings, left, self.outbox.last_ns, random);
        self.phase = Phase::Open { left, clock: Box::new(clock) };
    }

    fn close(&mut self) {
        self.system_event(self.outbox.last_ns + MS, b'M');
        self.hours.to_ns = Some(self.outbox.last_ns);
        for idx in 0..self.stocks.len() {
            let shares = 100 * (1 + self.random.below(500));
            let price = self.stocks[idx].mid;
            self.match_number += 1;
            self.cross(idx, Cross { shares, price, kind: b'C' });
        }
        self.system_event(self.outbox.last_ns + CLOSING_PAUSE_NS, b'E');
        self.system_event(self.outbox.last_ns + CLOSING_PAUSE_NS, b'C');
        self.phase = Phase::Closed;
    }

    /// The auction matches the best bid with the best offer at the mid. Its executions are not
    /// printable, because the cross message prints all of them.
    fn opening_cross(&mut self, idx: usize) {
        self.match_number += 1;
        let stock = &self.stocks[idx];
        let price = stock.mid;
        let best = |side| stock.book.orders(side).last().map(|order| order.shares);
        let shares = best(Side::Buy).zip(best(Side::Sell)).map_or(0, |(bid, ask)| bid.min(ask));
        if shares > 0 {
            for side in [Side::Buy, Side::Sell] {
                let time_ns = self.outbox.last_ns + CROSS_GAP_NS;
                self.execute_at_price(Fill { stock_idx: idx, side, shares }, time_ns, b'N');
            }
        }
        let price = if shares > 0 { price } else { 0 };
        self.cross(idx, Cross { shares: shares.into(), price, kind: b'O' });
    }

    /// Halts a stock now and then, and lets it trade again. False where neither is due.
    fn halt_or_resume(&mut self, time_ns: u64, last: bool) -> bool {
        match self.halt {
            Some(halt) if last || time_ns >= halt.until_ns => {
                self.halt = None;
                self.trading_action(halt.stock_idx, time_ns, b'T');
                true
            }
            None if !last && self.random.below(HALT_ONE_IN) == 0 => {
                let stock_idx = self.popularity.draw(&mut self.random);
                self.halt = Some(Halt { stock_idx, until_ns: time_ns + HALT_SPAN_NS });
                self.trading_action(stock_idx, time_ns, b'H');
                true
            }
            _ => false,
        }
    }

    fn cross(&mut self, idx: usize, cross: Cross) {
        let time_ns = self.outbox.last_ns + CROSS_GAP_NS;
        let head = self.head(CrossTrade::KIND, idx, time_ns);
        let message = CrossTrade {
            head,
            shares: cross.shares.into(),
            stock: self.stocks[idx].symbol,
            price: itch_price(cross.price).into(),
            trade: self.match_number.into(),
            cross: cross.kind,
        };
        self.outbox.push(time_ns, Message::from(&message));
    }

    fn directory(&mut self, idx: usize, time_ns: u64) {
        let message = StockDirectory {
            head: self.head(StockDirectory::KIND, idx, time_ns),
            stock: self.stocks[idx].symbol,
            market: b'Q',
            financial_status: b'N',
            round_lot: 100.into(),
            round_lots_only: b'N',
            class: b'C',
            subtype: *b"Z ",
            // Test: no receiver shall mistake these symbols for a real market.
            authenticity: b'T',
            short_sale_threshold: b'N',
            ipo: b'N',
            luld_tier: b'1',
            etp: b'N',
            etp_leverage: 0.into(),
            inverse: b'N',
        };
        self.outbox.push(time_ns, Message::from(&message));
    }

    fn trading_action(&mut self, idx: usize, time_ns: u64, state: u8) {
        let message = TradingAction {
            head: self.head(TradingAction::KIND, idx, time_ns),
            stock: self.stocks[idx].symbol,
            state,
            reserved: b' ',
            reason: if state == b'H' { *b"T1  " } else { *b"    " },
        };
        self.outbox.push(time_ns, Message::from(&message));
    }

    fn system_event(&mut self, time_ns: u64, event: u8) {
        let head = Head::new(SystemEvent::KIND, market::Locate(0), time_ns);
        self.outbox.push(time_ns, Message::from(&SystemEvent { head, event }));
    }

    fn head(&self, kind: u8, idx: usize, time_ns: u64) -> Head {
        Head::new(kind, self.stocks[idx].locate, time_ns)
    }
}

struct Cross {
    shares: u64,
    /// In cents.
    price: u32,
    kind: u8,
}

impl Outbox {
    fn push(&mut self, time_ns: u64, message: Message<'_>) {
        let source = message.as_bytes();
        let mut bytes = [0; MESSAGE_LEN_MAX];
        bytes[..source.len()].copy_from_slice(source);
        debug_assert!(time_ns >= self.last_ns, "messages are made in the order of their times");
        self.last_ns = time_ns;
        self.left -= 1;
        self.queue.push_back(TimedMessage { time_ns, len: source.len() as u8, bytes });
    }
}

/// Cents as ITCH's four decimals.
const fn itch_price(cents: u32) -> u32 {
    cents * 100
}

#[cfg(test)]
mod tests;
