//! The venue's day: orders are collected, each instrument opens by a cross, trades, and closes by
//! another.

use market::itch50::{Head, Message, StockDirectory, SystemEvent};
use market::{Locate, Price, Side};
use matching_engine::{CrossKind, CrossTerms, NewOrder, Terms, TradingState};

use super::{HOUSE, Venue};

/// How often the imbalance of an instrument that is quoted is published: Nasdaq does it each second
/// before its crosses.
const IMBALANCE_INTERVAL_NS: u64 = 1_000_000_000;

/// Where the venue is in its day.
#[derive(Debug)]
pub(super) struct Day {
    has_begun: bool,
    /// Whether each instrument had its opening cross.
    opened: Vec<bool>,
    imbalances_due_ns: u64,
}

impl Day {
    pub(super) fn before(symbols: u16) -> Self {
        Self { has_begun: false, opened: vec![false; symbols.into()], imbalances_due_ns: 0 }
    }
}

impl Venue {
    /// Publishes the directory, and takes orders for the opening crosses: nothing trades before
    /// [`Venue::open`], and imbalances are published.
    pub fn begin(&mut self, now_ns: u64) {
        self.day.has_begun = true;
        self.system(b'O', now_ns);
        for idx in 0..self.listing.len() {
            self.directory(idx, now_ns);
        }
        self.system(b'S', now_ns);
        for locate in self.locates() {
            let (engine, mut streams) = self.split();
            // What is listed has a locate, here and below.
            let _ = engine.quote(locate, now_ns, &mut streams);
        }
        self.day.imbalances_due_ns = now_ns + IMBALANCE_INTERVAL_NS;
    }

    /// Opens each instrument that is quoted by a cross: from now on orders trade. Begins the day
    /// where [`Venue::begin`] has not.
    pub fn open(&mut self, now_ns: u64) {
        if !self.day.has_begun {
            self.begin(now_ns);
        }
        self.system(b'Q', now_ns);
        for locate in self.locates() {
            if self.engine.trading_state(locate) == TradingState::Quoting {
                self.cross(locate, now_ns);
            }
        }
    }

    /// Closes each instrument by a cross, cancels what is left and ends the day. One that is quoted
    /// for the end of its halt closes by a cross instead of resuming (Nasdaq Rule 4754(b)(6)); one
    /// that is halted, or never opened, has none.
    pub fn close(&mut self, now_ns: u64) {
        self.system(b'M', now_ns);
        for locate in self.locates() {
            let has_opened = self.day.opened[usize::from(locate.0 - 1)];
            let has_cross = matches!(self.engine.trading_state(locate), TradingState::Trading | TradingState::Quoting);
            if has_opened && has_cross {
                self.hold_cross(locate, CrossKind::Closing, now_ns);
            }
            let (engine, mut streams) = self.split();
            let _ = engine.close(locate, now_ns, &mut streams);
        }
        self.system(b'E', now_ns);
        self.system(b'C', now_ns);
    }

    /// Ends orders whose time is over, and publishes the imbalances that are due. Call it now and
    /// then.
    pub fn tick(&mut self, now_ns: u64) {
        let (engine, mut streams) = self.split();
        engine.expire(now_ns, &mut streams);
        if !self.day.has_begun || now_ns < self.day.imbalances_due_ns {
            return;
        }
        self.day.imbalances_due_ns = now_ns + IMBALANCE_INTERVAL_NS;
        for locate in self.locates() {
            if self.engine.trading_state(locate) == TradingState::Quoting {
                self.imbalance(locate, now_ns);
            }
        }
    }

    /// All listed instruments.
    pub(super) fn locates(&self) -> impl Iterator<Item = Locate> + use<> {
        (1..=self.listing.len() as u16).map(Locate)
    }

    /// Holds the cross that the instrument's state asks for, and lets it trade. The house shows
    /// its orders once the instrument has opened.
    pub(super) fn cross(&mut self, locate: Locate, now_ns: u64) {
        self.hold_cross(locate, self.next_cross(locate), now_ns);
    }

    fn hold_cross(&mut self, locate: Locate, kind: CrossKind, now_ns: u64) {
        let terms = self.cross_terms(locate);
        let (engine, mut streams) = self.split();
        let _ = engine.cross(locate, kind, &terms, now_ns, &mut streams);
        if kind == CrossKind::Opening {
            self.day.opened[usize::from(locate.0 - 1)] = true;
            self.show_house(locate, now_ns);
        }
    }

    /// Publishes what the instrument's next cross would do now.
    pub(super) fn imbalance(&mut self, locate: Locate, now_ns: u64) {
        let (kind, terms) = (self.next_cross(locate), self.cross_terms(locate));
        let (engine, mut streams) = self.split();
        let _ = engine.imbalance(locate, kind, &terms, now_ns, &mut streams);
    }

    /// The opening one comes first, that of a halt while it is quoted again, and the closing one
    /// where it trades.
    fn next_cross(&self, locate: Locate) -> CrossKind {
        if !self.day.opened[usize::from(locate.0 - 1)] {
            CrossKind::Opening
        } else if self.engine.trading_state(locate) == TradingState::Trading {
            CrossKind::Closing
        } else {
            CrossKind::Halt
        }
    }

    /// Crosses are bound by a tenth of the last price, before the first by that of the listing.
    fn cross_terms(&self, locate: Locate) -> CrossTerms {
        CrossTerms::within_a_tenth(self.engine.last(locate).unwrap_or(self.reference(locate)))
    }

    pub(super) fn reference(&self, locate: Locate) -> Price {
        self.listing[usize::from(locate.0 - 1)].1
    }

    /// Bids and offers of the venue itself, so that an order finds somebody.
    fn show_house(&mut self, locate: Locate, now_ns: u64) {
        let reference = self.reference(locate);
        for step in 1..=3 {
            for side in [Side::Buy, Side::Sell] {
                let away = if side == Side::Buy { -100 * step } else { 100 * step };
                self.house(locate, side, Terms::limit(self.house_shares, Price(reference.0 + away)), now_ns);
            }
        }
    }

    pub(super) fn house(&mut self, symbol: Locate, side: Side, terms: Terms, now_ns: u64) {
        if terms.qty == 0 {
            return;
        }
        let new = NewOrder { terms, ..NewOrder::limit(HOUSE, 0, symbol, side, terms.qty, Price(0)) };
        let (engine, mut streams) = self.split();
        // A price below the lowest of a cheap instrument is refused, and then there is one less.
        let _ = engine.submit(&new, now_ns, &mut streams);
    }

    fn system(&mut self, event: u8, now_ns: u64) {
        let message = SystemEvent { head: Head::new(SystemEvent::KIND, Locate(0), now_ns), event };
        self.public.push((now_ns, Message::from(&message).as_bytes().to_vec()));
    }

    fn directory(&mut self, idx: usize, now_ns: u64) {
        let message = StockDirectory {
            head: Head::new(StockDirectory::KIND, Locate(idx as u16 + 1), now_ns),
            stock: self.listing[idx].0,
            market: b'Q',
            financial_status: b'N',
            round_lot: 100.into(),
            round_lots_only: b'N',
            class: b'C',
            subtype: *b"Z ",
            authenticity: b'P',
            short_sale_threshold: b'N',
            ipo: b'N',
            luld_tier: b'1',
            etp: b'N',
            etp_leverage: 0.into(),
            inverse: b'N',
        };
        self.public.push((now_ns, Message::from(&message).as_bytes().to_vec()));
    }
}
