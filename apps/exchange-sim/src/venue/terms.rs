//! The fields and options of an OUCH order in the engine's words.

use market::Price;
use matching_engine::{
    CrossKind, Display, Life, Owner, Peg, PegTo, PostOnly, Pricing, SelfTrade, SelfTradeRule, Terms,
};
use order_entry::ouch::v50::{Appendage, Field};
use order_entry::ouch::{self, AiqStrategy, CrossType, MARKET_PRICE, PriceType, RejectReason, TimeInForce};

/// Nanoseconds of a second.
const SECOND_NS: u64 = 1_000_000_000;

/// The fields that enter and replace have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields {
    pub(super) quantity: u32,
    pub(super) price: u64,
    pub(super) time_in_force: TimeInForce,
    pub(super) display: ouch::Display,
    pub(super) cross_type: CrossType,
}

/// The options that change what an order does; others are recorded nowhere.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Options {
    min_quantity: u32,
    max_floor: u32,
    price_type: Option<PriceType>,
    peg_offset: i32,
    is_post_only: bool,
    expire_seconds: u32,
    aiq_group: u16,
    pub(super) aiq_strategy: Option<AiqStrategy>,
}

impl Options {
    pub(super) fn of(appendage: Appendage<'_>) -> Self {
        let mut options = Self::default();
        for field in appendage.fields() {
            match field {
                Field::MinQuantity(shares) => options.min_quantity = shares.get(),
                Field::MaxFloor(shares) => options.max_floor = shares.get(),
                Field::PriceType(kind) => options.price_type = Some(kind),
                Field::PegOffset(offset) => options.peg_offset = offset.get(),
                Field::PostOnly(post_only) => options.is_post_only = post_only == ouch::PostOnly::POST_ONLY,
                Field::ExpireSeconds(seconds) => options.expire_seconds = seconds.get(),
                Field::AiqGroup(group) => options.aiq_group = group.get(),
                Field::AiqStrategy(strategy) => options.aiq_strategy = Some(strategy),
                _ => {}
            }
        }
        options
    }

    /// Self-trade prevention within the group of the option. The letters of the rule are this
    /// venue's own: `O` cancels the oldest, `B` both, `D` decrements, each other the newest.
    pub(super) fn self_trade(&self, owner: Owner) -> Option<SelfTrade> {
        let rule = match self.aiq_strategy {
            Some(AiqStrategy(b'O')) => SelfTradeRule::CancelOldest,
            Some(AiqStrategy(b'B')) => SelfTradeRule::CancelBoth,
            Some(AiqStrategy(b'D')) => SelfTradeRule::Decrement,
            _ => SelfTradeRule::CancelNewest,
        };
        let group = super::self_trade_group(owner, false, self.aiq_group.into());
        (self.aiq_group > 0).then_some(SelfTrade { group, rule })
    }
}

/// The terms of an order.
pub(super) fn terms(fields: &Fields, options: &Options, now_ns: u64) -> Result<Terms, RejectReason> {
    let life = life(fields, options, now_ns)?;
    let pricing = pricing(fields, options, life)?;
    let is_hidden = fields.display == ouch::Display::HIDDEN || matches!(pricing, Pricing::Peg(_));
    let display = match (is_hidden, options.max_floor) {
        (true, _) => Display::Hidden,
        (false, 0) => Display::Full,
        (false, shares) => Display::Reserve(shares),
    };
    let post_only = if options.is_post_only { PostOnly::Slide } else { PostOnly::No };
    Ok(Terms { qty: fields.quantity, pricing, display, life, post_only, min_qty: options.min_quantity })
}

fn life(fields: &Fields, options: &Options, now_ns: u64) -> Result<Life, RejectReason> {
    match fields.cross_type {
        CrossType::OPENING => return Ok(Life::Cross(CrossKind::Opening)),
        CrossType::CLOSING => return Ok(Life::Cross(CrossKind::Closing)),
        CrossType::HALT => return Ok(Life::Cross(CrossKind::Halt)),
        CrossType::CONTINUOUS => {}
        _ => return Err(RejectReason::INVALID_CROSS_ORDER),
    }
    match fields.time_in_force {
        TimeInForce::DAY | TimeInForce::EXTENDED_HOURS | TimeInForce::AFTER_HOURS => Ok(Life::Day),
        TimeInForce::IMMEDIATE_OR_CANCEL => Ok(Life::ImmediateOrCancel),
        TimeInForce::GOOD_TILL_TIME if options.expire_seconds > 0 => {
            Ok(Life::Until(now_ns + u64::from(options.expire_seconds) * SECOND_NS))
        }
        _ => Err(RejectReason::OTHER),
    }
}

fn pricing(fields: &Fields, options: &Options, life: Life) -> Result<Pricing, RejectReason> {
    // A price beyond 63 bits is beyond the highest one too.
    let price = Price(i64::try_from(fields.price).unwrap_or(i64::MAX));
    let to = match options.price_type {
        None | Some(PriceType::LIMIT) if price.0 == i64::from(MARKET_PRICE) && matches!(life, Life::Cross(_)) => {
            return Ok(Pricing::Market);
        }
        None | Some(PriceType::LIMIT) => return Ok(Pricing::Limit(price)),
        Some(PriceType::MARKET_PEG) => PegTo::Market,
        Some(PriceType::PRIMARY_PEG) => PegTo::Primary,
        Some(PriceType::MIDPOINT_PEG | PriceType::MIDPOINT) => PegTo::Midpoint,
        Some(_) => return Err(RejectReason::INVALID_PEG_TYPE),
    };
    let limit = (price.0 > 0 && price.0 != i64::from(MARKET_PRICE)).then_some(price);
    Ok(Pricing::Peg(Peg { to, offset: options.peg_offset, limit }))
}
