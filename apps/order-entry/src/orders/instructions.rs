//! What an order says besides instrument, side, quantity and limit.

use core::fmt;

/// How an order is priced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum OrderType {
    /// No worse than its price.
    #[default]
    Limit,
    /// At any price: it has none of its own.
    Market,
    /// It follows the best price of its own side, and is no worse than its price.
    PrimaryPeg,
    /// It follows the best price of the other side, and is no worse than its price.
    MarketPeg,
    /// It follows the middle of both, and is no worse than its price.
    MidpointPeg,
}

/// How long an order lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum TimeInForce {
    /// Until the market closes.
    #[default]
    Day,
    /// It trades at once what it can, and the rest is canceled.
    ImmediateOrCancel,
    /// It trades at once as a whole, or not at all.
    FillOrKill,
    /// In the opening auction.
    AtTheOpening,
    /// In the closing auction.
    AtTheClose,
}

/// How much of an order the book shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Display {
    /// All of it.
    #[default]
    All,
    /// Nothing.
    Hidden,
    /// So many shares at once; the rest is a reserve.
    Shares(u32),
}

/// All of these of one order. By default a limit order of a day, which is shown and may take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Instructions {
    /// How it is priced.
    pub order_type: OrderType,
    /// How long it lives.
    pub time_in_force: TimeInForce,
    /// It never takes liquidity.
    pub is_post_only: bool,
    /// The least shares of a fill; 0 for any.
    pub min_qty: u32,
    /// How much of it the book shows.
    pub display: Display,
    /// Of a peg: what is added to the price that it follows, four decimals, with its sign.
    pub peg_offset: i32,
}

/// A field of an order that a request or a protocol has no use for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OrderField {
    /// [`Instructions::order_type`].
    OrderType,
    /// [`Instructions::time_in_force`].
    TimeInForce,
    /// [`Instructions::is_post_only`].
    PostOnly,
    /// [`Instructions::min_qty`].
    MinQuantity,
    /// [`Instructions::display`].
    Display,
    /// [`Instructions::peg_offset`].
    PegOffset,
}

impl fmt::Display for OrderField {
    /// The name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OrderType => "order type",
            Self::TimeInForce => "time in force",
            Self::PostOnly => "post-only",
            Self::MinQuantity => "minimum quantity",
            Self::Display => "display",
            Self::PegOffset => "peg offset",
        })
    }
}

/// What a protocol can say of an order's instructions, where that follows from each field alone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Vocabulary {
    pub(crate) order_types: &'static [OrderType],
    pub(crate) times_in_force: &'static [TimeInForce],
    pub(crate) has_post_only: bool,
    pub(crate) has_min_qty: bool,
    pub(crate) has_hidden: bool,
    pub(crate) has_reserve: bool,
    pub(crate) has_peg_offset: bool,
}

impl Vocabulary {
    /// The first field that the protocol cannot say.
    #[inline]
    pub(crate) fn lacks(&self, said: &Instructions) -> Option<OrderField> {
        if said.is_plain() {
            return None;
        }
        let has_display = match said.display {
            Display::All => true,
            Display::Hidden => self.has_hidden,
            Display::Shares(_) => self.has_reserve,
        };
        let lacks = [
            (OrderField::OrderType, !self.order_types.contains(&said.order_type)),
            (OrderField::TimeInForce, !self.times_in_force.contains(&said.time_in_force)),
            (OrderField::PostOnly, said.is_post_only && !self.has_post_only),
            (OrderField::MinQuantity, said.min_qty > 0 && !self.has_min_qty),
            (OrderField::Display, !has_display),
            (OrderField::PegOffset, said.peg_offset != 0 && !self.has_peg_offset),
        ];
        lacks.into_iter().find_map(|(field, is_lacking)| is_lacking.then_some(field))
    }
}

impl Instructions {
    /// The default.
    pub const PLAIN: Self = Self {
        order_type: OrderType::Limit,
        time_in_force: TimeInForce::Day,
        is_post_only: false,
        min_qty: 0,
        display: Display::All,
        peg_offset: 0,
    };
    /// Those of a limit order that trades at once or never.
    pub const IMMEDIATE_OR_CANCEL: Self = Self { time_in_force: TimeInForce::ImmediateOrCancel, ..Self::PLAIN };

    /// Whether they are the default.
    #[inline]
    pub const fn is_plain(&self) -> bool {
        self.code() == 0 && matches!(self.quantities(), (0, 0)) && self.peg_offset == 0
    }

    /// Whether the order's price is the venue's to move, so that one that it states says nothing of
    /// the worst that the order may pay.
    pub(super) const fn moves_price(&self) -> bool {
        !matches!(self.order_type, OrderType::Limit)
    }

    /// Whether the order trades as soon as it arrives, or in part never.
    const fn is_immediate(&self) -> bool {
        matches!(self.time_in_force, TimeInForce::ImmediateOrCancel | TimeInForce::FillOrKill)
    }

    /// The first field that contradicts the others, or the order's quantity.
    pub fn contradiction(&self, qty: u32) -> Option<OrderField> {
        let takes = self.is_immediate() || self.order_type == OrderType::Market;
        let is_misfit = matches!(self.display, Display::Shares(shares) if shares == 0 || shares > qty);
        if self.is_post_only && takes {
            return Some(OrderField::PostOnly);
        }
        if self.min_qty > qty {
            return Some(OrderField::MinQuantity);
        }
        if is_misfit {
            return Some(OrderField::Display);
        }
        let is_peg = !matches!(self.order_type, OrderType::Limit | OrderType::Market);
        (self.peg_offset != 0 && !is_peg).then_some(OrderField::PegOffset)
    }

    /// All but the quantities and the offset in one byte; 0 for the default.
    pub(crate) const fn code(&self) -> u8 {
        let display = match self.display {
            Display::Hidden => HIDDEN,
            Display::All | Display::Shares(_) => 0,
        };
        let post_only = if self.is_post_only { POST_ONLY } else { 0 };
        let order_type = self.order_type as u8 + if self.peg_offset != 0 { WITH_OFFSET } else { 0 };
        order_type | (self.time_in_force as u8) << 3 | post_only | display
    }

    /// The quantities: the least of a fill, and those that are shown at once; 0 for none.
    pub(crate) const fn quantities(&self) -> (u32, u32) {
        let shown = match self.display {
            Display::Shares(shares) => shares,
            Display::All | Display::Hidden => 0,
        };
        (self.min_qty, shown)
    }

    /// Whether an offset belongs to a code.
    pub(crate) const fn has_offset(code: u8) -> bool {
        code & 7 >= ORDER_TYPES.len() as u8
    }

    /// What [`Instructions::code`], [`Instructions::quantities`] and the offset say; `None` where
    /// they say what this program does not know.
    pub(crate) fn from_code(code: u8, (min_qty, shown): (u32, u32), peg_offset: i32) -> Option<Self> {
        if Self::has_offset(code) != (peg_offset != 0) {
            return None;
        }
        let display = match (code & HIDDEN != 0, shown) {
            (true, 0) => Display::Hidden,
            (true, _) => return None,
            (false, 0) => Display::All,
            (false, shares) => Display::Shares(shares),
        };
        Some(Self {
            order_type: *ORDER_TYPES.get(usize::from((code & 7) - if peg_offset != 0 { WITH_OFFSET } else { 0 }))?,
            time_in_force: *TIMES_IN_FORCE.get(usize::from(code >> 3 & 7))?,
            is_post_only: code & POST_ONLY != 0,
            min_qty,
            display,
            peg_offset,
        })
    }
}

/// From the number of a peg to that of one with an offset: the three pegs are the last types.
const WITH_OFFSET: u8 = 3;

const POST_ONLY: u8 = 1 << 6;
const HIDDEN: u8 = 1 << 7;

/// By number.
const ORDER_TYPES: [OrderType; 5] =
    [OrderType::Limit, OrderType::Market, OrderType::PrimaryPeg, OrderType::MarketPeg, OrderType::MidpointPeg];

/// By number.
const TIMES_IN_FORCE: [TimeInForce; 5] = [
    TimeInForce::Day,
    TimeInForce::ImmediateOrCancel,
    TimeInForce::FillOrKill,
    TimeInForce::AtTheOpening,
    TimeInForce::AtTheClose,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_and_quantities_come_back_as_they_were() {
        for order_type in ORDER_TYPES {
            for time_in_force in TIMES_IN_FORCE {
                for display in [Display::All, Display::Hidden, Display::Shares(7)] {
                    for (is_post_only, min_qty) in [(false, 0), (true, 5)] {
                        let said =
                            Instructions { order_type, time_in_force, is_post_only, min_qty, display, peg_offset: 0 };
                        assert_eq!(
                            Instructions::from_code(said.code(), said.quantities(), said.peg_offset),
                            Some(said)
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn code_of_another_program_is_none() {
        assert_eq!(Instructions::from_code(5, (0, 0), 0), None);
        assert_eq!(Instructions::from_code(5 << 3, (0, 0), 0), None);
        assert_eq!(Instructions::from_code(HIDDEN, (0, 1), 0), None);
    }

    #[test]
    fn order_that_contradicts_itself_names_the_field() {
        let plain = Instructions::default();
        let post_only = Instructions { is_post_only: true, ..plain };
        let contradiction = |said: Instructions| said.contradiction(100);
        assert_eq!(contradiction(plain), None);
        assert_eq!(contradiction(post_only), None);
        for said in [
            Instructions { time_in_force: TimeInForce::ImmediateOrCancel, ..post_only },
            Instructions { time_in_force: TimeInForce::FillOrKill, ..post_only },
            Instructions { order_type: OrderType::Market, ..post_only },
        ] {
            assert_eq!(contradiction(said), Some(OrderField::PostOnly), "{said:?}");
        }
        assert_eq!(contradiction(Instructions { min_qty: 101, ..plain }), Some(OrderField::MinQuantity));
        let apart = Instructions { peg_offset: -1, ..plain };
        assert_eq!(contradiction(Instructions { order_type: OrderType::PrimaryPeg, ..apart }), None);
        for order_type in [OrderType::Limit, OrderType::Market] {
            let said = Instructions { order_type, ..apart };
            assert_eq!(contradiction(said), Some(OrderField::PegOffset), "a price of its own follows none");
        }
        for shares in [0, 101] {
            let display = Display::Shares(shares);
            assert_eq!(contradiction(Instructions { display, ..plain }), Some(OrderField::Display));
        }
    }
}
