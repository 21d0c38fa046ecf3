//! Why an order was refused: the limit's name, its value and the order's.

use std::{error, fmt};

use market::Price;

use super::levels::Level;

/// A limit, or a condition, that an order must keep. The first one that it breaks is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u8)]
pub enum Limit {
    /// The kill switch is thrown.
    KillSwitch,
    /// The gate is not armed.
    Disarmed,
    /// The block has no limits for the instrument.
    UnknownInstrument,
    /// The block has no limits for the port.
    UnknownPort,
    /// The block has no limits for the matching unit.
    UnknownUnit,
    /// The order table has no such slot, or the slot has an order already.
    OrderSlot,
    /// The instrument is on the restricted list.
    Restricted,
    /// The book has a gap.
    StaleBook,
    /// The feed has been silent for too long.
    SilentFeed,
    /// Quantity of one order.
    Quantity,
    /// There is no reference price to judge by.
    NoReference,
    /// Distance from the reference price.
    Collar,
    /// Quantity times price of one order.
    Notional,
    /// A short sale without a locate, or by a replace of an order that is not marked short.
    ShortSale,
    /// The long position with all open buys.
    LongPosition,
    /// The short position with all open sells.
    ShortPosition,
    /// The account's credit for buys.
    BuyCredit,
    /// The account's credit for sells.
    SellCredit,
    /// The order could trade with an own one.
    SelfMatch,
    /// Own orders rest at too many prices of one side.
    OwnLevels,
    /// Replaces of one order that the venue has not answered.
    PendingReplaces,
    /// The same order was sent a moment ago, or a replace changes nothing.
    Duplicate,
    /// Messages of the instrument.
    InstrumentRate,
    /// Messages of the port.
    PortRate,
    /// Messages of the matching unit.
    UnitRate,
    /// The block has no limits for the strategy.
    UnknownStrategy,
    /// Messages of the strategy.
    StrategyRate,
    /// Messages of the firm.
    FirmRate,
    /// The strategy is stopped.
    StrategyStopped,
    /// Requests that the venue has not answered.
    InFlight,
    /// The distance between the best prices, whose middle would be the reference price.
    Spread,
    /// The venue has halted or paused the instrument.
    Halted,
}

impl Limit {
    /// All of them, for counters and tables.
    pub const ALL: [Self; 32] = [
        Self::KillSwitch,
        Self::Disarmed,
        Self::UnknownInstrument,
        Self::UnknownPort,
        Self::UnknownUnit,
        Self::OrderSlot,
        Self::Restricted,
        Self::StaleBook,
        Self::SilentFeed,
        Self::Quantity,
        Self::NoReference,
        Self::Collar,
        Self::Notional,
        Self::ShortSale,
        Self::LongPosition,
        Self::ShortPosition,
        Self::BuyCredit,
        Self::SellCredit,
        Self::SelfMatch,
        Self::OwnLevels,
        Self::PendingReplaces,
        Self::Duplicate,
        Self::InstrumentRate,
        Self::PortRate,
        Self::UnitRate,
        Self::UnknownStrategy,
        Self::StrategyRate,
        Self::FirmRate,
        Self::StrategyStopped,
        Self::InFlight,
        Self::Spread,
        Self::Halted,
    ];

    /// The name in reports and in the journal.
    pub const fn name(self) -> &'static str {
        match self {
            Self::KillSwitch => "kill switch",
            Self::Disarmed => "disarmed",
            Self::UnknownInstrument => "unknown instrument",
            Self::UnknownPort => "unknown port",
            Self::UnknownUnit => "unknown unit",
            Self::OrderSlot => "order slot",
            Self::Restricted => "restricted instrument",
            Self::StaleBook => "stale book",
            Self::SilentFeed => "silent feed",
            Self::Quantity => "quantity",
            Self::NoReference => "no reference price",
            Self::Collar => "price collar",
            Self::Notional => "notional",
            Self::ShortSale => "short sale",
            Self::LongPosition => "long position",
            Self::ShortPosition => "short position",
            Self::BuyCredit => "buy credit",
            Self::SellCredit => "sell credit",
            Self::SelfMatch => "self match",
            Self::OwnLevels => "own price levels",
            Self::PendingReplaces => "pending replaces",
            Self::Duplicate => "duplicate",
            Self::InstrumentRate => "rate of the instrument",
            Self::PortRate => "rate of the port",
            Self::UnitRate => "rate of the unit",
            Self::UnknownStrategy => "unknown strategy",
            Self::StrategyRate => "rate of the strategy",
            Self::FirmRate => "rate of the firm",
            Self::StrategyStopped => "stopped",
            Self::InFlight => "requests in flight",
            Self::Spread => "spread of the book",
            Self::Halted => "halted instrument",
        }
    }

    /// What the two values of a reject count.
    const fn unit(self) -> Unit {
        match self {
            Self::Collar | Self::Notional | Self::BuyCredit | Self::SellCredit | Self::SelfMatch | Self::Spread => {
                Unit::Money
            }
            Self::SilentFeed | Self::Duplicate => Unit::Nanoseconds,
            Self::InstrumentRate | Self::PortRate | Self::UnitRate | Self::StrategyRate | Self::FirmRate => {
                Unit::Messages
            }
            Self::KillSwitch
            | Self::Disarmed
            | Self::Restricted
            | Self::StaleBook
            | Self::Halted
            | Self::NoReference
            | Self::StrategyStopped => Unit::None,
            _ => Unit::Count,
        }
    }
}

#[derive(Clone, Copy)]
enum Unit {
    None,
    Count,
    Money,
    Nanoseconds,
    Messages,
}

/// An order was refused, and nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RiskReject {
    /// Which limit.
    pub limit: Limit,
    /// Its value, in the limit's own unit: shares, units of [`Price`], nanoseconds, messages.
    pub allowed: i64,
    /// What the order would have made of it.
    pub value: i64,
    /// Whose limit, where several have one; `None` for the instrument's, and for conditions.
    pub level: Option<Level>,
}

impl fmt::Display for RiskReject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { limit, allowed, value, level } = *self;
        let name = limit.name();
        if let Some(level) = level {
            write!(f, "{level}: ")?;
        }
        match limit.unit() {
            Unit::None => f.write_str(name),
            Unit::Count => write!(f, "{name}: the limit is {allowed}, the order's value {value}"),
            Unit::Money => write!(f, "{name}: the limit is {}, the order's value {}", Price(allowed), Price(value)),
            Unit::Nanoseconds => write!(f, "{name}: the limit is {allowed} ns, the order's value {value} ns"),
            Unit::Messages => write!(f, "{name}: the limit is {allowed} messages at once, this would be {value}"),
        }
    }
}

impl error::Error for RiskReject {}
