//! Limits above and below the account's: those of the firm, and those of each strategy.
//!
//! ```text
//!  firm          credit, quantity and notional of an order, messages
//!   └ account    credit; positions by instrument; messages by instrument, port and unit
//!      └ strategy   as the firm, for its own orders
//! ```
//!
//! An order passes all three, and each holds what it reserves. The gate has one account, so that
//! the firm's sums are the account's; its limits are those that nobody may raise for one account.

use core::fmt;

use market::Side;

use super::checks::{reject, take_token};
use super::exposure::Account;
use super::limits::Limits;
use super::order::StrategyIdx;
use super::rate::{Bucket, Rate};
use super::reject::{Limit, RiskReject};
use super::reservation::Held;

/// Who has a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Level {
    /// The strategy whose order it is.
    Strategy(StrategyIdx),
    /// The account.
    Account,
    /// The firm.
    Firm,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Strategy(StrategyIdx(idx)) => write!(f, "strategy {idx}"),
            Self::Account => f.write_str("account"),
            Self::Firm => f.write_str("firm"),
        }
    }
}

/// The limits of a strategy, or of the firm. What is not set is zero, and refuses orders.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LevelLimits {
    /// Quantity of one order. By default 0.
    pub qty_max: u32,
    /// Quantity times price times [`Multiplier`](super::Multiplier) of one order. By default 0.
    pub notional_max: i64,
    /// Open buys and what was spent net of sales. By default 0.
    pub buy_credit_max: i64,
    /// Open sells and what was earned net of purchases. By default 0.
    pub sell_credit_max: i64,
    /// New orders and replaces. Cancels have no rate here. By default none.
    pub orders: Rate,
}

/// What an order or a replace asks of its levels.
pub(super) struct Ask {
    pub(super) strategy: StrategyIdx,
    pub(super) side: Side,
    pub(super) qty: u32,
    pub(super) notional: i64,
    /// Notional that is not reserved yet.
    pub(super) notional_more: i64,
}

/// What one strategy has traded and has open, and how full its bucket is.
#[derive(Clone, Debug, Default)]
struct OfStrategy {
    sums: Account,
    orders: Bucket,
    is_stopped: bool,
}

/// The buckets of both levels with one message more.
#[derive(Clone, Copy, Debug)]
pub(super) struct LevelTokens {
    strategy: Bucket,
    firm: Bucket,
}

impl LevelTokens {
    pub(super) const EMPTY: Self = Self { strategy: Bucket::EMPTY, firm: Bucket::EMPTY };
}

/// The sums of the strategies, and the buckets of both levels.
#[derive(Debug)]
pub(super) struct Levels {
    strategies: Box<[OfStrategy]>,
    firm_orders: Bucket,
}

impl Levels {
    pub(super) fn new(limits: &Limits) -> Self {
        let strategies = vec![OfStrategy::default(); limits.strategies.len()].into_boxed_slice();
        Self { strategies, firm_orders: Bucket::EMPTY }
    }

    /// Stops a strategy, or lets it go on. Whether there is one with limits.
    pub(super) fn set_stopped(&mut self, strategy: StrategyIdx, is_stopped: bool) -> bool {
        let of = self.strategies.get_mut(usize::from(strategy.0));
        of.map(|of| of.is_stopped = is_stopped).is_some()
    }

    pub(super) fn is_stopped(&self, strategy: StrategyIdx) -> bool {
        self.strategies.get(usize::from(strategy.0)).is_some_and(|of| of.is_stopped)
    }

    /// The limits of the strategy, then those of the firm, whose sums are those of `account`.
    #[inline]
    pub(super) fn check(&self, limits: &Limits, account: &Account, ask: &Ask) -> Result<(), RiskReject> {
        let idx = usize::from(ask.strategy.0);
        match (limits.strategies.get(idx), self.strategies.get(idx)) {
            (Some(_), Some(OfStrategy { is_stopped: true, .. })) => {
                let level = Some(Level::Strategy(ask.strategy));
                return Err(RiskReject { level, ..reject(Limit::StrategyStopped, 0, 0) });
            }
            (Some(of), Some(strategy)) => of.check(&strategy.sums, ask, Level::Strategy(ask.strategy))?,
            _ if idx > 0 || !limits.strategies.is_empty() => {
                return Err(reject(Limit::UnknownStrategy, limits.strategies.len() as i64, idx as i64));
            }
            _ => (),
        }
        limits.firm.as_ref().map_or(Ok(()), |of| of.check(account, ask, Level::Firm))
    }

    /// The buckets with one message more, for [`Levels::commit`].
    #[inline]
    pub(super) fn take_tokens(
        &mut self,
        limits: &Limits,
        strategy: StrategyIdx,
        now_ns: u64,
    ) -> Result<LevelTokens, RiskReject> {
        let mut tokens = LevelTokens::EMPTY;
        let idx = usize::from(strategy.0);
        if let (Some(of), Some(strategy)) = (limits.strategies.get(idx), self.strategies.get_mut(idx)) {
            tokens.strategy = take_token(&mut strategy.orders, of.orders, now_ns, Limit::StrategyRate)?;
        }
        if let Some(firm) = &limits.firm {
            tokens.firm = take_token(&mut self.firm_orders, firm.orders, now_ns, Limit::FirmRate)?;
        }
        Ok(tokens)
    }

    /// Takes the rates of both levels for used up at `now_ns`.
    pub(super) fn fill_rates(&mut self, limits: &Limits, now_ns: u64) {
        for (strategy, of) in self.strategies.iter_mut().zip(&limits.strategies) {
            strategy.orders = Bucket::full(of.orders, now_ns);
        }
        if let Some(firm) = &limits.firm {
            self.firm_orders = Bucket::full(firm.orders, now_ns);
        }
    }

    #[inline]
    pub(super) fn commit(&mut self, strategy: StrategyIdx, tokens: &LevelTokens) {
        if let Some(of) = self.strategies.get_mut(usize::from(strategy.0)) {
            of.orders.commit(tokens.strategy);
        }
        self.firm_orders.commit(tokens.firm);
    }

    /// Moves what an order of the strategy holds from `held` to `needed`.
    #[inline]
    pub(super) fn hold(&mut self, strategy: StrategyIdx, side: Side, held: Held, needed: Held) {
        if let Some(of) = self.strategies.get_mut(usize::from(strategy.0)) {
            of.sums.hold(side, held, needed);
        }
    }

    /// Books a trade of the strategy; `sign` −1 reverses one.
    pub(super) fn trade(&mut self, strategy: StrategyIdx, side: Side, money: i64, sign: i64) {
        if let Some(of) = self.strategies.get_mut(usize::from(strategy.0)) {
            of.sums.trade(money, if side == Side::Buy { sign } else { -sign });
        }
    }
}

impl LevelLimits {
    fn check(&self, sums: &Account, ask: &Ask, level: Level) -> Result<(), RiskReject> {
        let credit = sums.used(ask.side, ask.notional_more, (self.buy_credit_max, self.sell_credit_max));
        let limits = [
            (Limit::Quantity, i64::from(self.qty_max), i64::from(ask.qty)),
            (Limit::Notional, self.notional_max, ask.notional),
            credit,
        ];
        match limits.into_iter().find(|(_, allowed, value)| value > allowed) {
            Some((limit, allowed, value)) => Err(RiskReject { level: Some(level), ..reject(limit, allowed, value) }),
            None => Ok(()),
        }
    }
}
