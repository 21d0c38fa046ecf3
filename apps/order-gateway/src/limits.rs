//! The file of limits, which is read at the start and again on command, and makes one block.

use std::ops::Range;
use std::path::Path;

use market::{Price, Symbol};
use order_entry::journal::{NO_NAME, StrategyName};
use order_entry::risk::{
    AccountLimits, InstrumentIdx, InstrumentLimits, LevelLimits, Limits, Multiplier, Rate, RateLimits, Route, SelfMatch,
};
use serde::Deserialize;
use toml::Spanned;

use crate::config::{Problem, VenueNeeds, read};
use crate::core::Instrument;
use crate::error::Error;

/// A whole file. What it leaves out is zero, and refuses orders.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitsFile {
    /// Rises with each change.
    version: u64,
    /// The part of each rate that is left unused, in percent. By default 10.
    #[serde(default = "headroom")]
    headroom_percent: u32,
    /// Limits above those of the account. By default there is no such level.
    #[serde(default)]
    firm: Option<Spanned<LevelSection>>,
    #[serde(default)]
    account: AccountSection,
    /// Limits of each strategy. By default all orders are of one, which has none of its own.
    #[serde(default)]
    strategies: Vec<Spanned<LevelSection>>,
    #[serde(default)]
    port: Option<Spanned<RateSection>>,
    #[serde(default)]
    units: Vec<Spanned<RateSection>>,
    instruments: Vec<Spanned<InstrumentSection>>,
}

const fn headroom() -> u32 {
    10
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct AccountSection {
    buy_credit: u32,
    sell_credit: u32,
    duplicate_window_us: u64,
    silence_max_us: u64,
    venue_prevents_self_match: Option<Spanned<bool>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct LevelSection {
    /// Of a strategy.
    name: Option<Spanned<String>>,
    qty_max: u32,
    notional_max: u32,
    buy_credit: u32,
    sell_credit: u32,
    orders_per_second: u32,
    orders_at_once: u32,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RateSection {
    orders_per_second: u32,
    orders_at_once: u32,
    cancels_per_second: u32,
    cancels_at_once: u32,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct InstrumentSection {
    symbol: Spanned<String>,
    #[serde(default)]
    unit: u16,
    #[serde(default)]
    qty_max: u32,
    #[serde(default)]
    notional_max: u32,
    #[serde(default)]
    collar_bps: Option<Spanned<u32>>,
    /// By default twice the collar: the best prices themselves are then within it.
    #[serde(default)]
    spread_max_bps: Option<Spanned<u32>>,
    #[serde(default)]
    long_max: u32,
    #[serde(default)]
    short_max: u32,
    #[serde(default)]
    multiplier: Option<Spanned<f64>>,
    /// The least step of its price. By default not known.
    #[serde(default)]
    tick: Option<Spanned<f64>>,
    #[serde(default)]
    restricted: bool,
    #[serde(default)]
    shortable: bool,
    #[serde(default)]
    opening_position: Option<Spanned<i64>>,
    #[serde(default)]
    rates: Option<Spanned<RateSection>>,
}

const SELF_MATCH: &str = "this needs the key `self_match` in [venue], which is read at the start alone: \"cancel-newest\" \
                          and others, which orders of BOE say, or \"port\", where the venue is set to prevent it";

/// Shares of 32 bits, as orders have them: an opening position of more is a mistake.
const OPENING_MAX: i64 = u32::MAX as i64;

/// Less than the whole price.
const COLLAR_MAX: u32 = 9_999;
/// Of a book whose best prices are within the widest collar.
const SPREAD_MAX: u32 = 2 * COLLAR_MAX;

/// The multiplier of a number in a file.
fn multiplier_of(number: f64) -> Option<Multiplier> {
    let scaled = number * Price::SCALE as f64;
    // What a file says in decimals is not quite a binary number.
    let is_whole = (scaled - scaled.round()).abs() < 1e-3;
    // A number beyond the range, or none, becomes an end of it, which is refused.
    Multiplier::from_ten_thousandths(scaled.round() as u64).filter(|_| is_whole)
}

/// Whether each price of this step is one of ours.
fn is_tick(number: f64) -> bool {
    let scaled = number * Price::SCALE as f64;
    // What a file says in decimals is not quite a binary number.
    scaled > 0.5 && (scaled - scaled.round()).abs() < 1e-6
}

/// Whole units of the currency as a sum of prices.
fn money(units: u32) -> i64 {
    i64::from(units) * Price::SCALE
}

/// A number of basis points, of which the file has allowed no more than a word holds.
fn bps(of: Option<&Spanned<u32>>) -> Option<u16> {
    of.map(|bps| u16::try_from(*bps.get_ref()).unwrap_or(u16::MAX))
}

impl InstrumentSection {
    fn collar_bps(&self) -> u16 {
        bps(self.collar_bps.as_ref()).unwrap_or(0)
    }

    fn spread_max_bps(&self) -> u16 {
        bps(self.spread_max_bps.as_ref()).unwrap_or(self.collar_bps().saturating_mul(2))
    }

    fn multiplier(&self) -> Option<Multiplier> {
        multiplier_of(*self.multiplier.as_ref()?.get_ref())
    }
}

impl LimitsFile {
    /// Reads and checks a file.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or something in it makes no sense: where, and what.
    pub fn read(path: &Path) -> Result<Self, Error> {
        read(path, Self::check).map(|(limits, _)| limits)
    }

    /// The same, with what the venue needs of it.
    ///
    /// # Errors
    ///
    /// As [`LimitsFile::read`].
    pub fn read_for(path: &Path, venue: VenueNeeds) -> Result<Self, Error> {
        let check = |file: &Self| file.check().and_then(|()| file.check_for(venue));
        read(path, check).map(|(limits, _)| limits)
    }

    pub(crate) fn check(&self) -> Result<(), Problem> {
        self.check_levels()?;
        self.check_rates()?;
        for (idx, section) in self.instruments.iter().enumerate() {
            let symbol = &section.get_ref().symbol;
            if Symbol::new(symbol.get_ref()).is_none_or(|symbol| symbol == Symbol::NONE) {
                return Err(Problem::new(symbol.span(), "a symbol has 1 to 8 bytes"));
            }
            let is_same = |other: &Spanned<InstrumentSection>| other.get_ref().symbol.get_ref() == symbol.get_ref();
            if self.instruments[..idx].iter().any(is_same) {
                return Err(Problem::new(symbol.span(), "this symbol has limits already"));
            }
            if usize::from(section.get_ref().unit) >= self.units.len() {
                let what = format!("there are limits for {} units, counted from 0", self.units.len());
                return Err(Problem::new(section.span(), what));
            }
            if let Some(multiplier) = &section.get_ref().multiplier
                && multiplier_of(*multiplier.get_ref()).is_none()
            {
                let what = "a multiplier is above 0, at most a billion, and has four decimals at most";
                return Err(Problem::new(multiplier.span(), what));
            }
            if let Some(tick) = &section.get_ref().tick
                && !is_tick(*tick.get_ref())
            {
                let what = "a tick is above 0 and has four decimals at most, as prices here have: orders and fills \
                            between them would be at other prices than the venue's; omit the instrument, and have orders that \
                            live in it canceled at the venue";
                return Err(Problem::new(tick.span(), what));
            }
            if let Some(bps) = &section.get_ref().collar_bps
                && *bps.get_ref() > COLLAR_MAX
            {
                let what = format!("a collar has {COLLAR_MAX} basis points at most: a wider one reaches a price of 0");
                return Err(Problem::new(bps.span(), what));
            }
            if let Some(bps) = &section.get_ref().spread_max_bps
                && *bps.get_ref() > SPREAD_MAX
            {
                let what = format!("a spread has {SPREAD_MAX} basis points at most: that of the widest collar's edges");
                return Err(Problem::new(bps.span(), what));
            }
            if let Some(position) = &section.get_ref().opening_position
                && !(-OPENING_MAX..=OPENING_MAX).contains(position.get_ref())
            {
                let what = format!("a position has {OPENING_MAX} shares at most, long or short");
                return Err(Problem::new(position.span(), what));
            }
        }
        Ok(())
    }

    /// A rate that is nothing without the headroom would refuse all, and nobody wanted that.
    fn check_rates(&self) -> Result<(), Problem> {
        let instruments = self.instruments.iter().map(|section| section.get_ref().rates.as_ref());
        for section in self.port.iter().chain(&self.units).chain(instruments.flatten()) {
            let RateSection { orders_per_second, orders_at_once, cancels_per_second, cancels_at_once } =
                *section.get_ref();
            self.check_rate("orders", section.span(), [orders_per_second, orders_at_once])?;
            self.check_rate("cancels", section.span(), [cancels_per_second, cancels_at_once])?;
        }
        self.firm.iter().chain(&self.strategies).try_for_each(|section| {
            let LevelSection { orders_per_second, orders_at_once, .. } = *section.get_ref();
            self.check_rate("orders", section.span(), [orders_per_second, orders_at_once])
        })
    }

    fn check_rate(&self, of: &str, at: Range<usize>, rates: [u32; 2]) -> Result<(), Problem> {
        let percent = self.headroom_percent;
        let is_none = |rate: u32| rate > 0 && Rate::with_headroom(rate, rate, percent) == Rate::ZERO;
        match ["per_second", "at_once"].into_iter().zip(rates).find(|(_, rate)| is_none(*rate)) {
            Some((key, rate)) => Err(Problem::new(
                at,
                format!(
                    "`{of}_{key} = {rate}` less a headroom of {percent} % is none: a greater one, or a smaller \
                     headroom_percent"
                ),
            )),
            None => Ok(()),
        }
    }

    /// An order has a strategy by its position, which the journal has in 16 bits.
    fn check_levels(&self) -> Result<(), Problem> {
        if let Some(name) = self.firm.as_ref().and_then(|firm| firm.get_ref().name.as_ref()) {
            return Err(Problem::new(name.span(), "the firm has no name: there is one"));
        }
        let name_of = |section: &Spanned<LevelSection>| section.get_ref().name.as_ref().map(Spanned::get_ref).cloned();
        for (idx, section) in self.strategies.iter().enumerate() {
            let Some(name) = section.get_ref().name.as_ref().filter(|name| !name.get_ref().is_empty()) else {
                return Err(Problem::new(section.span(), "a strategy has a name"));
            };
            if StrategyName::zero_padded(name.get_ref()).is_none() {
                return Err(Problem::new(name.span(), "the name of a strategy has 32 bytes at most"));
            }
            if self.strategies[..idx].iter().any(|other| name_of(other).as_ref() == Some(name.get_ref())) {
                return Err(Problem::new(name.span(), "this strategy has limits already"));
            }
            if idx > usize::from(u16::MAX) {
                return Err(Problem::new(name.span(), "there are 65,536 strategies at most"));
            }
        }
        Ok(())
    }

    /// The names of the strategies, in the file's order.
    pub fn strategies(&self) -> Box<[String]> {
        let name = |section: &Spanned<LevelSection>| section.get_ref().name.as_ref().map(|name| name.get_ref().clone());
        self.strategies.iter().map(|section| name(section).unwrap_or_default()).collect()
    }

    /// The same as the journal has them.
    pub fn strategy_names(&self) -> Box<[StrategyName]> {
        self.strategies().iter().map(|name| StrategyName::zero_padded(name).unwrap_or(NO_NAME)).collect()
    }

    /// The instruments, in the file's order.
    pub fn instruments(&self) -> Box<[Instrument]> {
        let instrument = |section: &Spanned<InstrumentSection>| {
            let section = section.get_ref();
            let symbol = Symbol::new(section.symbol.get_ref()).unwrap_or_default();
            Instrument { symbol, route: Route { port: 0, unit: section.unit } }
        };
        self.instruments.iter().map(instrument).collect()
    }

    /// The key that leaves trades with oneself to the venue, where it does.
    fn venue_prevents_self_match(&self) -> Option<&Spanned<bool>> {
        self.account.venue_prevents_self_match.as_ref().filter(|prevents| *prevents.get_ref())
    }

    /// The file has what the venue needs of it.
    pub(crate) fn check_for(&self, venue: VenueNeeds) -> Result<(), Problem> {
        if let Some(prevents) = self.venue_prevents_self_match()
            && !venue.has_self_match
        {
            return Err(Problem::new(prevents.span(), SELF_MATCH));
        }
        let without = |lacks: fn(&InstrumentSection) -> bool| {
            let mut sections = self.instruments.iter().map(Spanned::get_ref);
            sections.find(|section| lacks(section)).map(|section| &section.symbol)
        };
        let lacks = |symbol: &Spanned<String>, what: &str| {
            let needs = format!("{} needs the key {what}", symbol.get_ref());
            Err(Problem::new(symbol.span(), needs))
        };
        if let Some(symbol) = without(|section| section.multiplier.is_none()).filter(|_| venue.is_of_futures) {
            let why = "the money of a contract for each 1 of its price, such as 50";
            return lacks(symbol, &format!("`multiplier`, because {} trades futures: {why}", venue.protocol));
        }
        if let Some(symbol) = without(|section| section.tick.is_none()).filter(|_| venue.has_finer_prices) {
            let why = "the least step of its price, such as 0.25: prices here have four decimals";
            return lacks(symbol, &format!("`tick`, because prices of {} have nine decimals: {why}", venue.protocol));
        }
        Ok(())
    }

    /// What the account held before the journal's first order, of the instruments for which the
    /// file says it; below zero where it was short.
    pub fn opening_positions(&self) -> impl Iterator<Item = (InstrumentIdx, i64)> {
        let position = |section: &Spanned<InstrumentSection>| {
            section.get_ref().opening_position.as_ref().map(|position| *position.get_ref())
        };
        (0..)
            .map(InstrumentIdx)
            .zip(&self.instruments)
            .filter_map(move |(idx, section)| Some((idx, position(section)?)))
    }

    /// The block of limits.
    pub fn limits(&self) -> Box<Limits> {
        let mut limits = Limits::zero(self.instruments.len(), 1, self.units.len());
        limits.version = self.version;
        let account = &self.account;
        limits.account = AccountLimits {
            buy_credit_max: money(account.buy_credit),
            sell_credit_max: money(account.sell_credit),
            duplicate_window_ns: account.duplicate_window_us.saturating_mul(1_000),
            silence_max_ns: account.silence_max_us.saturating_mul(1_000),
            self_match: if self.venue_prevents_self_match().is_some() { SelfMatch::Venue } else { SelfMatch::Refuse },
        };
        limits.firm = self.firm.as_ref().map(|firm| self.level(firm.get_ref()));
        limits.strategies = self.strategies.iter().map(|section| self.level(section.get_ref())).collect();
        limits.ports[0] = self.rates(self.port.as_ref());
        for (unit, section) in limits.units.iter_mut().zip(&self.units) {
            *unit = self.rates(Some(section));
        }
        for (idx, section) in self.instruments.iter().enumerate() {
            let section = section.get_ref();
            limits.instruments[idx] = InstrumentLimits {
                qty_max: section.qty_max,
                collar_bps: section.collar_bps(),
                spread_max_bps: section.spread_max_bps(),
                notional_max: money(section.notional_max),
                long_max: section.long_max.into(),
                short_max: section.short_max.into(),
                rates: self.rates(section.rates.as_ref()),
            };
            limits.multipliers[idx] = section.multiplier().unwrap_or_default();
            limits.restricted.set(InstrumentIdx(idx as u32), section.restricted);
            limits.shortable.set(InstrumentIdx(idx as u32), section.shortable);
        }
        Box::new(limits)
    }

    fn level(&self, section: &LevelSection) -> LevelLimits {
        LevelLimits {
            qty_max: section.qty_max,
            notional_max: money(section.notional_max),
            buy_credit_max: money(section.buy_credit),
            sell_credit_max: money(section.sell_credit),
            orders: Rate::with_headroom(section.orders_per_second, section.orders_at_once, self.headroom_percent),
        }
    }

    fn rates(&self, section: Option<&Spanned<RateSection>>) -> RateLimits {
        let section = section.map_or_else(RateSection::default, |section| *section.get_ref());
        let rate = |per_second, at_once| Rate::with_headroom(per_second, at_once, self.headroom_percent);
        RateLimits {
            orders: rate(section.orders_per_second, section.orders_at_once),
            cancels: rate(section.cancels_per_second, section.cancels_at_once),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse;

    const TEXT: &str = "version = 3\n[[units]]\norders_per_second = 100\norders_at_once = 20\n\
        [[instruments]]\nsymbol = \"ZIEXT\"\nqty_max = 500\nnotional_max = 1000000\n";

    #[test]
    fn what_a_file_leaves_out_is_zero() {
        let limits = parse::<LimitsFile>(TEXT, LimitsFile::check).unwrap().limits();
        assert_eq!((limits.version, limits.instruments[0].qty_max), (3, 500));
        assert_eq!(limits.instruments[0].notional_max, 10_000_000_000);
        assert_eq!((limits.instruments[0].long_max, limits.ports[0]), (0, RateLimits::default()));
        assert_eq!(limits.units[0].orders, Rate::new(90, 18), "ten percent are left unused");
    }

    #[test]
    fn rate_that_is_none_without_the_headroom_is_refused_where_it_stands() {
        let of = |rates: &str| parse::<LimitsFile>(&format!("{TEXT}{rates}"), LimitsFile::check).map_err(|it| it.what);
        let at_once = of("[instruments.rates]\norders_per_second = 2\norders_at_once = 1\n").unwrap_err();
        assert_eq!(
            at_once,
            "`orders_at_once = 1` less a headroom of 10 % is none: a greater one, or a smaller headroom_percent"
        );
        assert!(of("[port]\ncancels_per_second = 1\n").unwrap_err().contains("`cancels_per_second = 1`"));
        assert!(of("[firm]\norders_per_second = 1\n").unwrap_err().contains("`orders_per_second = 1`"));
        assert!(of("[port]\norders_per_second = 2\norders_at_once = 2\n").is_ok());
        assert!(
            parse::<LimitsFile>(
                &format!("headroom_percent = 0\n{TEXT}[port]\norders_per_second = 1\n"),
                LimitsFile::check
            )
            .is_ok()
        );
    }

    #[test]
    fn second_limits_of_a_symbol_are_refused() {
        let text = format!("{TEXT}[[instruments]]\nsymbol = \"ZIEXT\"\n");
        assert_eq!(parse::<LimitsFile>(&text, LimitsFile::check).unwrap_err().what, "this symbol has limits already");
    }

    #[test]
    fn opening_position_is_of_its_instrument_and_has_a_greatest_value() {
        let of = |position: &str| format!("{TEXT}[[instruments]]\nsymbol = \"B\"\nopening_position = {position}\n");
        let limits = parse::<LimitsFile>(&of("-300"), LimitsFile::check).unwrap();
        assert_eq!(limits.opening_positions().collect::<Vec<_>>(), [(InstrumentIdx(1), -300)]);
        let text = of("4_294_967_296");
        let problem = parse::<LimitsFile>(&text, LimitsFile::check).unwrap_err();
        assert_eq!((&text[problem.at], problem.what.contains("shares at most")), ("4_294_967_296", true));
    }

    #[test]
    fn collar_as_wide_as_the_price_is_refused_where_it_stands() {
        let of = |bps: &str| format!("{TEXT}collar_bps = {bps}\n");
        let limits = parse::<LimitsFile>(&of("9_999"), LimitsFile::check).unwrap().limits();
        assert_eq!(limits.instruments[0].collar_bps, 9_999);
        for bps in ["10_000", "4294967295"] {
            let text = of(bps);
            let problem = parse::<LimitsFile>(&text, LimitsFile::check).unwrap_err();
            assert_eq!((&text[problem.at], problem.what.contains("9999 basis points at most")), (bps, true));
        }
    }

    #[test]
    fn spread_of_a_book_is_twice_the_collar_unless_the_file_says_it() {
        let of = |bps: &str| parse::<LimitsFile>(&format!("{TEXT}{bps}"), LimitsFile::check);
        for (text, bps) in [("", 0), ("collar_bps = 300\n", 600), ("collar_bps = 300\nspread_max_bps = 50\n", 50)] {
            assert_eq!(of(text).unwrap().limits().instruments[0].spread_max_bps, bps, "{text}");
        }
        let problem = of("spread_max_bps = 19_999\n").unwrap_err();
        assert!(problem.what.contains("19998 basis points at most") && problem.at.start > TEXT.len());
    }

    #[test]
    fn multiplier_of_an_instrument_is_that_of_its_contract_and_a_share_has_one() {
        let of = |text: &str| format!("{TEXT}[[instruments]]\nsymbol = \"ESZ6\"\nmultiplier = {text}\n");
        for (text, count) in [("50", 50_0000), ("0.1", 1_000), ("12.5", 12_5000), ("12_500_000", 125_000_000_000)] {
            let file = parse::<LimitsFile>(&of(text), LimitsFile::check).unwrap();
            assert_eq!(file.limits().multiplier(InstrumentIdx(1)), Multiplier::from_ten_thousandths(count).unwrap());
            assert_eq!(file.limits().multiplier(InstrumentIdx(0)), Multiplier::ONE);
        }
        for text in ["0", "-5", "0.00001", "1e12", "nan"] {
            let problem = parse::<LimitsFile>(&of(text), LimitsFile::check).unwrap_err();
            assert!(problem.what.contains("a multiplier is above 0"), "{text}: {}", problem.what);
        }
    }

    #[test]
    fn tick_that_four_decimals_do_not_hold_is_refused_where_it_stands() {
        let of = |tick: &str| format!("{TEXT}tick = {tick}\n");
        for tick in ["0.25", "0.01", "0.0001", "5", "12.5"] {
            assert!(parse::<LimitsFile>(&of(tick), LimitsFile::check).is_ok(), "{tick}");
        }
        for tick in ["0.015625", "0.0078125", "0.00005", "0.0000005", "0", "-0.25", "nan", "inf"] {
            let text = of(tick);
            let problem = parse::<LimitsFile>(&text, LimitsFile::check).unwrap_err();
            assert_eq!((&text[problem.at], problem.what.contains("four decimals at most")), (tick, true));
        }
    }

    #[test]
    fn strategies_and_the_firm_have_limits_where_the_file_says_them() {
        let limits = parse::<LimitsFile>(TEXT, LimitsFile::check).unwrap().limits();
        assert_eq!((limits.firm, limits.strategies.len()), (None, 0));
        let levels = "[firm]\nbuy_credit = 5\n[[strategies]]\nname = \"joiner\"\nqty_max = 7\norders_per_second = 10\n\
            orders_at_once = 10\n[[strategies]]\nname = \"taker\"\n";
        let file = parse::<LimitsFile>(&format!("{TEXT}{levels}"), LimitsFile::check).unwrap();
        let limits = file.limits();
        assert_eq!(*file.strategies(), ["joiner".to_owned(), "taker".to_owned()]);
        assert_eq!(limits.firm, Some(LevelLimits { buy_credit_max: 50_000, ..LevelLimits::default() }));
        let joiner = LevelLimits { qty_max: 7, orders: Rate::new(9, 9), ..LevelLimits::default() };
        assert_eq!(*limits.strategies, [joiner, LevelLimits::default()]);
        for (wrong, why) in [
            ("joiner", "this strategy has limits already"),
            ("", "a strategy has a name"),
            (&"x".repeat(33), "the name of a strategy has 32 bytes at most"),
        ] {
            let text = format!("{TEXT}{levels}[[strategies]]\nname = {wrong:?}\n");
            assert_eq!(parse::<LimitsFile>(&text, LimitsFile::check).unwrap_err().what, why);
        }
        let text = format!("{TEXT}{levels}qty_min = 3\n");
        assert!(parse::<LimitsFile>(&text, LimitsFile::check).is_err(), "an unknown key");
    }

    #[test]
    fn unit_without_limits_is_refused() {
        let text = TEXT.replace("qty_max", "unit = 1\nqty_max");
        let problem = parse::<LimitsFile>(&text, LimitsFile::check).unwrap_err();
        assert_eq!(problem.what, "there are limits for 1 units, counted from 0");
    }
}
