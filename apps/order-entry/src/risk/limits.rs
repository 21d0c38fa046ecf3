//! The limits: one block with a version, which is swapped whole.

use std::{error, fmt};

use market::Price;

use super::levels::LevelLimits;
use super::multiplier::Multiplier;
use super::order::InstrumentIdx;
use super::rate::Rate;

/// Rates of orders and, apart from them, of cancels: a burst of orders must not delay a cancel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateLimits {
    /// New orders and replaces. By default none.
    pub orders: Rate,
    /// Cancels. By default none.
    pub cancels: Rate,
}

/// The limits of one instrument. One cache line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(align(64))]
pub struct InstrumentLimits {
    /// Quantity of one order. By default 0.
    pub qty_max: u32,
    /// Distance from the reference price, in hundredths of a percent of it. By default 0.
    pub collar_bps: u16,
    /// Distance of the best offer from the best bid, in hundredths of a percent of the reference
    /// price: the middle of a wider book says nothing of what the instrument is worth, and each
    /// order is refused. By default 0.
    pub spread_max_bps: u16,
    /// Quantity times price times [`Multiplier`] of one order, in units of
    /// [`Price`](market::Price). By default 0.
    pub notional_max: i64,
    /// The greatest long position, with all open buys filled. By default 0.
    pub long_max: i64,
    /// The greatest short position, as a positive number, with all open sells filled. By default 0.
    pub short_max: i64,
    /// Messages about this instrument.
    pub rates: RateLimits,
}

/// Who prevents a trade with oneself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SelfMatch {
    /// The gate refuses an order that could meet an own one.
    #[default]
    Refuse,
    /// The venue does, by its own rules.
    Venue,
}

/// The limits of the account, over all instruments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccountLimits {
    /// Open buys and what was spent net of sales, in units of [`Price`](market::Price). By default
    /// 0.
    pub buy_credit_max: i64,
    /// Open sells and what was earned net of purchases. By default 0.
    pub sell_credit_max: i64,
    /// A second order of the same instrument, side, quantity and price is refused for so long;
    /// usual are 0.1 to 1 s. By default 0, which means that it is not set: each order is refused.
    pub duplicate_window_ns: u64,
    /// No orders when the feed has been silent for longer. By default 0: any silence is too long.
    pub silence_max_ns: u64,
    /// Who prevents a trade with oneself. By default the gate.
    pub self_match: SelfMatch,
}

/// One bit for each instrument.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bitmap(Box<[u64]>);

impl Bitmap {
    /// Clear bits for `count` instruments.
    pub fn new(count: usize) -> Self {
        Self(vec![0; count.div_ceil(64)].into_boxed_slice())
    }

    /// Sets or clears a bit. An instrument beyond the last one is ignored.
    pub fn set(&mut self, instrument: InstrumentIdx, is_set: bool) {
        let bit = 1 << (instrument.0 % 64);
        if let Some(word) = self.0.get_mut(instrument.0 as usize / 64) {
            if is_set { *word |= bit } else { *word &= !bit }
        }
    }

    /// The bit; clear beyond the last one.
    pub fn is_set(&self, instrument: InstrumentIdx) -> bool {
        self.0.get(instrument.0 as usize / 64).is_some_and(|word| word >> (instrument.0 % 64) & 1 == 1)
    }
}

/// All limits of a gate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Rises with each block: an older one is refused.
    pub version: u64,
    /// Over all instruments.
    pub account: AccountLimits,
    /// Of the firm, above those of the account. By default there is no such level.
    pub firm: Option<LevelLimits>,
    /// Of each strategy, below those of the account, by [`StrategyIdx`](super::StrategyIdx). By
    /// default none: all orders are of one strategy, which has no limits of its own.
    pub strategies: Box<[LevelLimits]>,
    /// By [`InstrumentIdx`].
    pub instruments: Box<[InstrumentLimits]>,
    /// By [`InstrumentIdx`]; 1 where there are fewer. They stay for a run.
    pub multipliers: Box<[Multiplier]>,
    /// By [`Route::port`](super::Route).
    pub ports: Box<[RateLimits]>,
    /// By [`Route::unit`](super::Route).
    pub units: Box<[RateLimits]>,
    /// Instruments that must not be traded.
    pub restricted: Bitmap,
    /// Instruments that may be sold short: located, or easy to borrow. By default none.
    pub shortable: Bitmap,
}

impl Limits {
    /// A block of version 0 for so many instruments, ports and units: all limits zero, so that no
    /// order passes.
    pub fn zero(instruments: usize, ports: usize, units: usize) -> Self {
        Self {
            version: 0,
            account: AccountLimits::default(),
            firm: None,
            strategies: Box::default(),
            instruments: vec![InstrumentLimits::default(); instruments].into_boxed_slice(),
            multipliers: vec![Multiplier::ONE; instruments].into_boxed_slice(),
            ports: vec![RateLimits::default(); ports].into_boxed_slice(),
            units: vec![RateLimits::default(); units].into_boxed_slice(),
            restricted: Bitmap::new(instruments),
            shortable: Bitmap::new(instruments),
        }
    }

    /// What one contract of an instrument is worth for each 1 of its price.
    pub fn multiplier(&self, instrument: InstrumentIdx) -> Multiplier {
        self.multipliers.get(instrument.0 as usize).copied().unwrap_or_default()
    }
}

/// The limits of who trades one instrument by one session: the others of a block follow from them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SingleLimits {
    /// Quantity of one order.
    pub qty_max: u32,
    /// The greatest long position. Nothing may be sold short.
    pub long_max: i64,
    /// Distance from the reference price, in hundredths of a percent of it. The best prices of a
    /// book are at most twice as far from each other, so that both are within it.
    pub collar_bps: u16,
    /// What all orders and all that was bought may cost; a single order, too.
    pub credit_max: Price,
    /// Orders a second, and as many cancels. A tenth of them may come at once.
    pub per_second: u32,
}

impl SingleLimits {
    /// A second order with the same terms is refused for so long.
    const DUPLICATE_WINDOW_NS: u64 = 1_000_000;
    /// A feed that is silent for longer is not trusted: twice the interval of heartbeats.
    const SILENCE_MAX_NS: u64 = 2_000_000_000;
}

impl From<SingleLimits> for Limits {
    /// A block of version 1: an order's twin is refused for a millisecond, and each order when the
    /// feed has been silent for two seconds.
    fn from(single: SingleLimits) -> Self {
        let SingleLimits { qty_max, long_max, collar_bps, credit_max, per_second } = single;
        let rate = Rate::new(per_second, per_second.div_ceil(10));
        let rates = RateLimits { orders: rate, cancels: rate };
        let notional_max = credit_max.0;
        let mut limits = Self::zero(1, 1, 1);
        limits.version = 1;
        let (spread_max_bps, short_max) = (collar_bps.saturating_mul(2), 0);
        let own = InstrumentLimits { qty_max, collar_bps, spread_max_bps, notional_max, long_max, short_max, rates };
        limits.instruments[0] = own;
        (limits.ports[0], limits.units[0]) = (rates, rates);
        limits.account = AccountLimits {
            buy_credit_max: credit_max.0,
            sell_credit_max: credit_max.0,
            duplicate_window_ns: SingleLimits::DUPLICATE_WINDOW_NS,
            silence_max_ns: SingleLimits::SILENCE_MAX_NS,
            ..AccountLimits::default()
        };
        limits
    }
}

/// A block that was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StaleLimits {
    /// Its version is not above that of the limits in force.
    Version {
        /// In force.
        current: u64,
        /// Of the block.
        offered: u64,
    },
    /// It is for other numbers of instruments, ports, units or strategies than the gate has.
    Shape,
    /// It has another multiplier of an instrument, by which the sums of the run were not made.
    Multiplier {
        /// The instrument.
        instrument: InstrumentIdx,
        /// In force.
        current: Multiplier,
        /// Of the block.
        offered: Multiplier,
    },
}

impl fmt::Display for StaleLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version { current, offered } => {
                write!(f, "limits of version {offered} are not newer than version {current}, which is in force")
            }
            Self::Multiplier { instrument, current, offered } => write!(
                f,
                "the multiplier of instrument {} is {current} and stays so for a run: restart with {offered}",
                instrument.0
            ),
            Self::Shape => f.write_str("the limits are for other numbers of instruments, ports, units or strategies"),
        }
    }
}

impl error::Error for StaleLimits {}
