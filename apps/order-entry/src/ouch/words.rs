//! What an order says, in the fields of OUCH. Both versions say most of it alike, in other places.

use arrayvec::ArrayVec;

use super::port::PortOptions;
use super::v50::Field;
use super::{CrossType, Display, MARKET_PRICE, PRICE_MAX, PostOnly, PriceType, QUANTITY_MAX};
use crate::orders::{self, Instructions, OrderField, OrderType, TimeInForce, Vocabulary};
use crate::session::{OrderTerms, SendError};

/// Bytes of the options that an order of 5.0 may have: a length and a tag each, and the value.
pub(super) const OPTIONS_LEN: usize = 6 + 6 + 3 + 6 + 3 + PortOptions::LEN_MAX;

const TIMES_IN_FORCE: &[TimeInForce] =
    &[TimeInForce::Day, TimeInForce::ImmediateOrCancel, TimeInForce::AtTheOpening, TimeInForce::AtTheClose];

/// What 5.0 says.
const V50: Vocabulary = Vocabulary {
    order_types: &[
        OrderType::Limit,
        OrderType::Market,
        OrderType::PrimaryPeg,
        OrderType::MarketPeg,
        OrderType::MidpointPeg,
    ],
    times_in_force: TIMES_IN_FORCE,
    has_post_only: true,
    has_min_qty: true,
    has_hidden: true,
    has_reserve: true,
    has_peg_offset: true,
};

/// What 4.2 says.
const V42: Vocabulary = Vocabulary {
    order_types: &[OrderType::Limit, OrderType::Market, OrderType::MidpointPeg],
    has_reserve: false,
    has_peg_offset: false,
    ..V50
};

/// Whether 5.0 can say an order.
#[inline]
pub(super) fn check_50(terms: &OrderTerms) -> Result<(), SendError> {
    check(&V50, terms)
}

/// Whether 4.2 can. It says post-only in the field that says hidden.
#[inline]
pub(super) fn check_42(terms: &OrderTerms) -> Result<(), SendError> {
    check(&V42, terms)?;
    let Instructions { is_post_only, order_type, display, .. } = terms.instructions;
    let is_hidden_limit = order_type != OrderType::MidpointPeg && display == orders::Display::Hidden;
    if is_post_only && is_hidden_limit { Err(SendError::Field(OrderField::PostOnly)) } else { Ok(()) }
}

#[inline]
fn check(vocabulary: &Vocabulary, terms: &OrderTerms) -> Result<(), SendError> {
    if terms.qty == 0 || terms.qty > QUANTITY_MAX || !terms.has_price(i64::from(PRICE_MAX)) {
        return Err(SendError::Range);
    }
    let Instructions { order_type, time_in_force, .. } = terms.instructions;
    // A market order has no price in an auction alone.
    let has_price = order_type != OrderType::Market || cross_type(time_in_force) != CrossType::CONTINUOUS;
    let lacks = vocabulary.lacks(&terms.instructions).or((!has_price).then_some(OrderField::OrderType));
    lacks.map_or(Ok(()), |field| Err(SendError::Field(field)))
}

/// In which session or auction an order takes part.
pub(super) const fn cross_type(time_in_force: TimeInForce) -> CrossType {
    match time_in_force {
        TimeInForce::AtTheOpening => CrossType::OPENING,
        TimeInForce::AtTheClose => CrossType::CLOSING,
        _ => CrossType::CONTINUOUS,
    }
}

/// Whether the order does not live behind its first chance to trade. One of an auction does not,
/// because it would join the continuous market else, and with another life Nasdaq takes one that
/// comes late for an imbalance-only order (Nasdaq's quick reference guide of its crosses).
pub(super) const fn is_immediate(time_in_force: TimeInForce) -> bool {
    !matches!(time_in_force, TimeInForce::Day)
}

/// The price on the wire.
pub(super) const fn price(terms: &OrderTerms) -> u64 {
    match terms.instructions.order_type {
        OrderType::Market => MARKET_PRICE as u64,
        _ => terms.price.0 as u64,
    }
}

/// Whether 5.0 shows an order.
pub(super) const fn display_50(instructions: &Instructions) -> Display {
    match instructions.display {
        orders::Display::Hidden => Display::HIDDEN,
        orders::Display::All | orders::Display::Shares(_) => Display::VISIBLE,
    }
}

/// Whether 4.2 shows an order, and what it says there besides.
pub(super) const fn display_42(instructions: &Instructions) -> Display {
    match (instructions.order_type, instructions.is_post_only) {
        (OrderType::MidpointPeg, false) => Display::MIDPOINT,
        (OrderType::MidpointPeg, true) => Display::MIDPOINT_POST_ONLY,
        (_, true) => Display::POST_ONLY,
        (_, false) => display_50(instructions),
    }
}

/// The options of 5.0, with those of the port behind the order's. A replace says them again: what
/// it does not say, the order has no more.
pub(super) fn options(instructions: &Instructions, of_port: &[Field<'static>]) -> ArrayVec<Field<'static>, 16> {
    let mut options = ArrayVec::new();
    let (min_qty, shown) = instructions.quantities();
    if min_qty > 0 {
        options.push(Field::MinQuantity(min_qty.into()));
    }
    if shown > 0 {
        options.push(Field::MaxFloor(shown.into()));
    }
    let peg = match instructions.order_type {
        OrderType::Limit | OrderType::Market => None,
        OrderType::PrimaryPeg => Some(PriceType::PRIMARY_PEG),
        OrderType::MarketPeg => Some(PriceType::MARKET_PEG),
        OrderType::MidpointPeg => Some(PriceType::MIDPOINT_PEG),
    };
    options.extend(peg.map(Field::PriceType));
    if instructions.peg_offset != 0 {
        options.push(Field::PegOffset(instructions.peg_offset.into()));
    }
    if instructions.is_post_only {
        options.push(Field::PostOnly(PostOnly::POST_ONLY));
    }
    options.extend(of_port.iter().copied());
    options
}

#[cfg(test)]
mod tests {
    use market::Price;

    use super::*;

    const PLAIN: Instructions = Instructions::PLAIN;

    fn terms(instructions: Instructions) -> OrderTerms {
        OrderTerms { instructions, ..OrderTerms::limit(100, Price::from_cents(1_000)) }
    }

    fn refused_50(instructions: Instructions) -> Option<SendError> {
        check_50(&terms(instructions)).err()
    }

    fn refused_42(instructions: Instructions) -> Option<SendError> {
        check_42(&terms(instructions)).err()
    }

    #[test]
    fn what_a_version_cannot_say_is_refused_by_the_fields_name() {
        let fill_or_kill = Instructions { time_in_force: TimeInForce::FillOrKill, ..PLAIN };
        let market = Instructions { order_type: OrderType::Market, ..PLAIN };
        for instructions in [fill_or_kill, market] {
            let field = if instructions == market { OrderField::OrderType } else { OrderField::TimeInForce };
            assert_eq!(refused_50(instructions), Some(SendError::Field(field)));
            assert_eq!(refused_42(instructions), Some(SendError::Field(field)));
        }
        let reserve = Instructions { display: orders::Display::Shares(50), ..PLAIN };
        let primary = Instructions { order_type: OrderType::PrimaryPeg, ..PLAIN };
        let hidden = Instructions { display: orders::Display::Hidden, is_post_only: true, ..PLAIN };
        let apart = Instructions { order_type: OrderType::MidpointPeg, peg_offset: 100, ..PLAIN };
        for (instructions, field) in [
            (reserve, OrderField::Display),
            (primary, OrderField::OrderType),
            (hidden, OrderField::PostOnly),
            (apart, OrderField::PegOffset),
        ] {
            assert_eq!(refused_50(instructions), None);
            assert_eq!(refused_42(instructions), Some(SendError::Field(field)));
        }
    }

    #[test]
    fn market_order_is_one_of_an_auction() {
        let (order_type, time_in_force) = (OrderType::Market, TimeInForce::AtTheClose);
        let closing = OrderTerms { price: Price(0), ..terms(Instructions { order_type, time_in_force, ..PLAIN }) };
        assert_eq!((check_50(&closing), check_42(&closing)), (Ok(()), Ok(())));
        assert_eq!((price(&closing), cross_type(time_in_force)), (MARKET_PRICE.into(), CrossType::CLOSING));
        assert!(is_immediate(time_in_force));
    }

    #[test]
    fn options_say_what_the_fixed_part_does_not() {
        let display = orders::Display::Shares(40);
        let peg = Instructions { order_type: OrderType::MarketPeg, peg_offset: -100, ..PLAIN };
        let said = Instructions { is_post_only: true, min_qty: 30, display, ..peg };
        let of_port = [Field::GroupId(1.into())];
        let expected = [
            Field::MinQuantity(30.into()),
            Field::MaxFloor(40.into()),
            Field::PriceType(PriceType::MARKET_PEG),
            Field::PegOffset((-100).into()),
            Field::PostOnly(PostOnly::POST_ONLY),
            of_port[0],
        ];
        assert_eq!(options(&said, &of_port).as_slice(), expected);
        assert_eq!(options(&PLAIN, &[]).as_slice(), []);
    }

    #[test]
    fn display_of_4_2_says_post_only_and_midpoint() {
        let midpoint = Instructions { order_type: OrderType::MidpointPeg, ..PLAIN };
        let post_only = Instructions { is_post_only: true, ..PLAIN };
        let hidden = Instructions { display: orders::Display::Hidden, ..PLAIN };
        let said = [PLAIN, hidden, post_only, midpoint, Instructions { is_post_only: true, ..midpoint }];
        assert_eq!(said.map(|said| display_42(&said).0), *b"YNPMW");
    }
}
