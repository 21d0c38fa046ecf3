//! The 23 messages of ITCH 5.0, big endian, as in the packet.
//!
//! A message is made by filling its structure and emitted by [`Message::emit`] or `as_bytes`
//! (zerocopy's `IntoBytes`). Prices have four decimals in a `U32`, unless a field's comment says
//! eight.

use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::codec::{layouts, message_set};
use crate::units::{Locate, Symbol};

/// The first 11 bytes of every message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Head {
    /// The type byte.
    pub kind: u8,
    /// Index of the stock for the day; 0 where the message is not about one.
    pub locate: U16,
    /// Nasdaq's own number.
    pub tracking: U16,
    /// Time since midnight New York.
    pub at: Ns48,
}

impl Head {
    /// The head of a message of type `kind` (`AddOrder::KIND` …) at `at_ns` since midnight.
    pub const fn new(kind: u8, locate: Locate, at_ns: u64) -> Self {
        Self { kind, locate: U16::new(locate.0), tracking: U16::new(0), at: Ns48::new(at_ns) }
    }

    /// The stock's index.
    #[inline]
    pub fn locate(&self) -> Locate {
        Locate(self.locate.get())
    }

    /// Time since midnight New York, ns.
    #[inline]
    pub fn at_ns(&self) -> u64 {
        // One load of the time and the two bytes before it, which are masked away, instead of a
        // load of four and two.
        let head: [u8; 11] = zerocopy::transmute!(*self);
        let [_, _, _, time @ ..] = head;
        u64::from_be_bytes(time) & NS48_MAX
    }
}

/// The largest value of 48 bits.
const NS48_MAX: u64 = (1 << 48) - 1;

/// Nanoseconds in six bytes, big endian: room for three days, while only one occurs.
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(transparent)]
pub struct Ns48([u8; 6]);

impl Ns48 {
    /// The low 48 bits of `ns`.
    pub const fn new(ns: u64) -> Self {
        let [_, _, a, b, c, d, e, f] = ns.to_be_bytes();
        Self([a, b, c, d, e, f])
    }

    /// The time in ns.
    #[inline]
    pub const fn get(self) -> u64 {
        let [a, b, c, d, e, f] = self.0;
        u64::from_be_bytes([0, 0, a, b, c, d, e, f])
    }
}

impl core::fmt::Debug for Ns48 {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.get().fmt(f)
    }
}

layouts! {
    head Head;

    /// The day as a whole begins, opens, closes, ends.
    b'S' SystemEvent 12 {
        /// `O` start of messages, `S` start of system, `Q` open, `M` close, `E` end of system, `C`
        /// end of messages.
        event: u8,
    }

    /// A stock of the day and its index.
    b'R' StockDirectory 39 {
        /// The stock.
        stock: Symbol,
        /// Listing market category.
        market: u8,
        /// Financial status indicator.
        financial_status: u8,
        /// Shares in a round lot.
        round_lot: U32,
        /// `Y` where only round lots are taken.
        round_lots_only: u8,
        /// Issue classification.
        class: u8,
        /// Issue subtype.
        subtype: [u8; 2],
        /// `P` production, `T` test.
        authenticity: u8,
        /// Short sale threshold indicator.
        short_sale_threshold: u8,
        /// IPO flag.
        ipo: u8,
        /// Limit up, limit down tier.
        luld_tier: u8,
        /// Exchange traded product flag.
        etp: u8,
        /// Its leverage factor.
        etp_leverage: U32,
        /// `Y` where it is inverse.
        inverse: u8,
    }

    /// A stock halts, pauses, quotes or trades.
    b'H' TradingAction 25 {
        /// The stock.
        stock: Symbol,
        /// `H` halted, `P` paused, `Q` quotes only, `T` trades.
        state: u8,
        /// Reserved.
        reserved: u8,
        /// Reason code.
        reason: [u8; 4],
    }

    /// Short sale price test restriction.
    b'Y' RegSho 20 {
        /// The stock.
        stock: Symbol,
        /// `0` none, `1` from now on, `2` still.
        action: u8,
    }

    /// A market maker's standing in a stock.
    b'L' ParticipantPosition 26 {
        /// The participant.
        mpid: [u8; 4],
        /// The stock.
        stock: Symbol,
        /// `Y` for the primary market maker.
        primary: u8,
        /// Market maker mode.
        mode: u8,
        /// Participant state.
        state: u8,
    }

    /// Market-wide circuit breaker levels, eight decimals each.
    b'V' MwcbLevels 35 {
        /// Level 1.
        level_1: U64,
        /// Level 2.
        level_2: U64,
        /// Level 3.
        level_3: U64,
    }

    /// A market-wide circuit breaker level was breached.
    b'W' MwcbStatus 12 {
        /// `1`, `2` or `3`.
        level: u8,
    }

    /// Quotation of a new issue.
    b'K' IpoQuoting 28 {
        /// The stock.
        stock: Symbol,
        /// Release time, seconds since midnight.
        release_s: U32,
        /// `A` anticipated, `C` cancelled.
        qualifier: u8,
        /// The price.
        price: U32,
    }

    /// Limits of an auction after a limit-up, limit-down pause.
    b'J' LuldCollar 35 {
        /// The stock.
        stock: Symbol,
        /// Reference price.
        reference: U32,
        /// Upper limit.
        upper: U32,
        /// Lower limit.
        lower: U32,
        /// How often the auction was extended.
        extension: U32,
    }

    /// A stock is halted on one market only.
    b'h' OperationalHalt 21 {
        /// The stock.
        stock: Symbol,
        /// The market.
        market: u8,
        /// `H` halted, `T` trades.
        action: u8,
    }

    /// An order rests on the book.
    b'A' AddOrder 36 {
        /// The order.
        order: U64,
        /// `B` or `S`.
        side: u8,
        /// Displayed shares.
        shares: U32,
        /// The stock.
        stock: Symbol,
        /// Its limit.
        price: U32,
    }

    /// An order with a name rests on the book.
    b'F' AddOrderMpid 40 {
        /// The order.
        order: U64,
        /// `B` or `S`.
        side: u8,
        /// Displayed shares.
        shares: U32,
        /// The stock.
        stock: Symbol,
        /// Its limit.
        price: U32,
        /// Its owner.
        attribution: [u8; 4],
    }

    /// A resting order traded at its own price.
    b'E' OrderExecuted 31 {
        /// The order.
        order: U64,
        /// Shares that traded.
        shares: U32,
        /// The trade's number.
        trade: U64,
    }

    /// A resting order traded at another price.
    b'C' OrderExecutedAtPrice 36 {
        /// The order.
        order: U64,
        /// Shares that traded.
        shares: U32,
        /// The trade's number.
        trade: U64,
        /// `N` where the print must not be counted as volume.
        printable: u8,
        /// The price of the print.
        price: U32,
    }

    /// A resting order became smaller.
    b'X' OrderCancel 23 {
        /// The order.
        order: U64,
        /// Shares taken off it.
        shares: U32,
    }

    /// A resting order is gone.
    b'D' OrderDelete 19 {
        /// The order.
        order: U64,
    }

    /// A resting order is gone and another comes, with the same side, stock and attribution.
    b'U' OrderReplace 35 {
        /// The order that goes.
        old: U64,
        /// The order that comes.
        new: U64,
        /// Displayed shares.
        shares: U32,
        /// Its limit.
        price: U32,
    }

    /// A trade against a hidden order.
    b'P' Trade 44 {
        /// The hidden order.
        order: U64,
        /// Its side; always `B` since 2014.
        side: u8,
        /// Shares.
        shares: U32,
        /// The stock.
        stock: Symbol,
        /// The price.
        price: U32,
        /// The trade's number.
        trade: U64,
    }

    /// The print of a whole auction.
    b'Q' CrossTrade 40 {
        /// Shares.
        shares: U64,
        /// The stock.
        stock: Symbol,
        /// The price.
        price: U32,
        /// The trade's number.
        trade: U64,
        /// `O` opening, `C` closing, `H` IPO or halt.
        cross: u8,
    }

    /// A trade that is void.
    b'B' BrokenTrade 19 {
        /// The trade's number.
        trade: U64,
    }

    /// Imbalance before an auction.
    b'I' Noii 50 {
        /// Shares that would match.
        paired: U64,
        /// Shares that would not.
        imbalance: U64,
        /// Side of the imbalance.
        direction: u8,
        /// The stock.
        stock: Symbol,
        /// Far indicative price.
        far: U32,
        /// Near indicative price.
        near: U32,
        /// Reference price.
        reference: U32,
        /// Kind of auction.
        cross: u8,
        /// Price variation.
        variation: u8,
    }

    /// Retail interest.
    b'N' RetailInterest 20 {
        /// The stock.
        stock: Symbol,
        /// Side of the interest.
        interest: u8,
    }

    /// A direct listing with capital raise.
    b'O' DirectListing 48 {
        /// The stock.
        stock: Symbol,
        /// `Y` where it may open.
        open_eligible: u8,
        /// Lowest price allowed.
        price_min: U32,
        /// Highest price allowed.
        price_max: U32,
        /// Near execution price.
        near: U32,
        /// Near execution time, ns since midnight.
        near_ns: U64,
        /// Lower range.
        lower: U32,
        /// Upper range.
        upper: U32,
    }
}

message_set! {
    kind at 0, length exact;
    SystemEvent StockDirectory TradingAction RegSho ParticipantPosition MwcbLevels MwcbStatus IpoQuoting LuldCollar
    OperationalHalt AddOrder AddOrderMpid OrderExecuted OrderExecutedAtPrice OrderCancel OrderDelete OrderReplace
    Trade CrossTrade BrokenTrade Noii RetailInterest DirectListing
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Type and length from the specification, typed in a second time on purpose.
    const SPECIFIED: &[(u8, usize)] = &[
        (b'S', 12),
        (b'R', 39),
        (b'H', 25),
        (b'Y', 20),
        (b'L', 26),
        (b'V', 35),
        (b'W', 12),
        (b'K', 28),
        (b'J', 35),
        (b'h', 21),
        (b'A', 36),
        (b'F', 40),
        (b'E', 31),
        (b'C', 36),
        (b'X', 23),
        (b'D', 19),
        (b'U', 35),
        (b'P', 44),
        (b'Q', 40),
        (b'B', 19),
        (b'I', 50),
        (b'N', 20),
        (b'O', 48),
    ];

    #[test]
    fn lengths_are_those_of_the_specification() {
        assert_eq!(Message::LENGTHS, SPECIFIED);
    }

    #[test]
    fn time_of_48_bits_drops_what_does_not_fit() {
        assert_eq!(Ns48::new(u64::MAX).get(), NS48_MAX);
        assert_eq!(Ns48::new(86_399_999_999_999).get(), 86_399_999_999_999);
        let mut head = Head::new(b'A', Locate(u16::MAX), 86_399_999_999_999);
        head.tracking = U16::MAX_VALUE;
        assert_eq!(head.at_ns(), 86_399_999_999_999);
    }

    #[test]
    fn emit_into_a_short_buffer_is_refused() {
        let message = OrderDelete { head: Head::new(OrderDelete::KIND, Locate(1), 2), order: 3.into() };
        assert_eq!(Message::from(&message).emit(&mut [0; OrderDelete::LEN - 1]), None);
    }

    proptest! {
        #[test]
        fn every_type_survives_parse_and_emit(body in proptest::collection::vec(any::<u8>(), 64)) {
            for &(kind, len) in Message::LENGTHS {
                let mut bytes = body[..len].to_vec();
                bytes[0] = kind;
                let mut out = [0; 64];
                let message = Message::parse(&bytes).unwrap();
                prop_assert_eq!(message.emit(&mut out), Some(len));
                prop_assert_eq!(&out[..len], &bytes[..]);
                prop_assert_eq!(Message::parse(&out[..len]), Ok(message));
            }
        }
    }
}
