//! The instruments of a journal by their symbols: positions in the limits change between runs.

use core::fmt;
use std::collections::HashMap;

use market::{Side, Symbol};

use crate::orders::{Effect, OrderTable, Outcome};
use crate::risk::InstrumentIdx;

/// An instrument of which a journal has shares or live orders, and of which nothing can be booked,
/// because it is not among those of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissingInstrument {
    /// The venue's name for it.
    pub symbol: Symbol,
    /// Bought less sold.
    pub position: i64,
    /// Orders that live.
    pub orders: usize,
}

impl fmt::Display for MissingInstrument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { symbol, position, orders } = self;
        write!(
            f,
            "there are no limits for {symbol}, of which the journal has {position} shares and {orders} live orders"
        )
    }
}

/// The run's instruments, and those of the journal that are not among them: these are numbered
/// behind, and their positions are kept here.
#[derive(Clone, Debug, Default)]
pub(super) struct Instruments {
    /// By position; none where the journal's positions hold.
    symbols: Box<[Symbol]>,
    places: HashMap<Symbol, u32>,
    others: Vec<(Symbol, i64)>,
    /// The opening positions.
    openings: HashMap<InstrumentIdx, i64>,
}

impl Instruments {
    pub(super) fn new(symbols: &[Symbol]) -> Self {
        let places = (0..).zip(symbols).map(|(place, symbol)| (*symbol, place)).collect();
        Self { symbols: symbols.into(), places, ..Self::default() }
    }

    /// The instrument that the journal's process had at `at`. Where it wrote no symbol, nothing
    /// else is known of it.
    pub(super) fn find(&mut self, symbol: Symbol, at: InstrumentIdx) -> InstrumentIdx {
        if self.symbols.is_empty() || symbol == Symbol::NONE || self.symbols.get(at.0 as usize) == Some(&symbol) {
            return at;
        }
        let Self { symbols, places, others, .. } = self;
        let place = places.entry(symbol).or_insert_with(|| {
            others.push((symbol, 0));
            (symbols.len() + others.len() - 1) as u32
        });
        InstrumentIdx(*place)
    }

    /// What an event did to the position of an instrument that the run does not have.
    pub(super) fn follow(&mut self, outcome: &Outcome) {
        let shares = match outcome.effect {
            Effect::Traded { qty, .. } => i64::from(qty),
            Effect::Reversed { qty, .. } => -i64::from(qty),
            Effect::Corrected { old, new } => i64::from(new.0) - i64::from(old.0),
            _ => return,
        };
        self.book(outcome.instrument, if outcome.side == Side::Buy { shares } else { -shares });
    }

    /// The opening position is another one. Returns the shares by which the position moves.
    pub(super) fn open(&mut self, instrument: InstrumentIdx, position: i64) -> i64 {
        let before = self.openings.insert(instrument, position).unwrap_or(0);
        let shares = position.saturating_sub(before);
        self.book(instrument, shares);
        shares
    }

    /// The opening position.
    pub(super) fn opening(&self, instrument: InstrumentIdx) -> i64 {
        self.openings.get(&instrument).copied().unwrap_or(0)
    }

    /// Books `shares` where the run does not have the instrument.
    fn book(&mut self, instrument: InstrumentIdx, shares: i64) {
        let place = (instrument.0 as usize).checked_sub(self.symbols.len());
        if let Some((_, position)) = place.and_then(|place| self.others.get_mut(place)) {
            *position = position.saturating_add(shares);
        }
    }

    /// The first instrument that the run lacks although it has shares or live orders of it.
    pub(super) fn missing(&self, table: &OrderTable) -> Option<MissingInstrument> {
        let others = (self.symbols.len() as u32..).zip(&self.others);
        let mut found = others.map(|(place, &(symbol, position))| {
            let orders = table.live().filter(|(_, order)| order.instrument == InstrumentIdx(place)).count();
            MissingInstrument { symbol, position, orders }
        });
        found.find(|missing| missing.position != 0 || missing.orders > 0)
    }
}
