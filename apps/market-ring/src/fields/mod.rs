//! The fields that all events share, and which of them each event has.

mod by_order;
mod by_position;
mod instruments;

use market::event::Event;
use market::{Side, Symbol};

/// The fields of all events; an event leaves the others zero.
#[derive(Default)]
pub(crate) struct Fields {
    pub(crate) kind: u8,
    pub(crate) at_ns: u64,
    pub(crate) locate: u32,
    /// A letter, or [`NO_SIDE`].
    pub(crate) side: u8,
    pub(crate) letter: u8,
    /// [`FLAG`], [`HAS_PRICE`], [`HAS_REMAINING`], [`NINE_DECIMALS`], [`HALTED`], [`TRADED`],
    /// [`FOLLOWS_GROUP`], [`APART`].
    pub(crate) bits: u8,
    pub(crate) symbol: u64,
    pub(crate) order: u64,
    pub(crate) other: u64,
    pub(crate) price: i64,
    pub(crate) qty: u64,
    pub(crate) ask_px: i64,
    pub(crate) ask_qty: u64,
    /// The update's number among those of its instrument.
    pub(crate) rpt_seq: u32,
}

/// The execution counts as volume, the status is this venue's alone, the quote can be traded, the
/// level leaves a consistent book, the level is implied: each event has one such bit at most.
const FLAG: u8 = 1;
/// The price is there.
pub(crate) const HAS_PRICE: u8 = 2;
/// The remaining shares are there.
const HAS_REMAINING: u8 = 4;
/// The price has nine decimals, and not four.
pub(crate) const NINE_DECIMALS: u8 = 8;
/// No order trades in the state.
const HALTED: u8 = 16;
/// Orders trade in the state, or in an auction that it prepares.
const TRADED: u8 = 32;
/// The instrument follows its group from now on.
const FOLLOWS_GROUP: u8 = 64;
/// Its state is its own from now on.
const APART: u8 = 128;
/// No side.
const NO_SIDE: u8 = 0;

/// An event as fields, and back.
trait Coded: Sized {
    fn encode(&self) -> Fields;

    /// `None` where a letter is none that is known here.
    fn decode(fields: &Fields) -> Option<Self>;
}

/// The name of a kind.
pub(crate) fn name(kind: u8) -> &'static str {
    KINDS.iter().find(|(number, _)| *number == kind).map_or("?", |(_, name)| name)
}

/// The kinds, as `include/market_ring.h` numbers them; a number is never used again for another.
macro_rules! kinds {
    ($($number:literal $name:ident,)*) => {
        pub(crate) const KINDS: &[(u8, &str)] = &[$(($number, stringify!($name)),)*];

        impl Fields {
            #[inline]
            pub(crate) fn of(event: &Event) -> Self {
                match event {
                    $(Event::$name(event) => Self { kind: $number, ..event.encode() },)*
                }
            }

            /// `None` where the kind or a letter is none that is known here.
            #[inline]
            pub(crate) fn event(&self) -> Option<Event> {
                match self.kind {
                    $($number => Some(Event::$name(Coded::decode(self)?)),)*
                    _ => None,
                }
            }
        }
    };
}

kinds! {
    1 Add,
    2 Execute,
    3 Cancel,
    4 Delete,
    5 Replace,
    6 Modify,
    7 Trade,
    8 TradeBreak,
    9 Quote,
    10 PriceLevel,
    11 Directory,
    12 Status,
    13 System,
    14 Clear,
    15 Clock,
    16 Other,
    17 Depth,
    18 Order,
    19 TradeSummary,
    20 Numbered,
    21 BookReset,
    22 Snapshot,
    23 OrderSnapshot,
    24 SnapshotEnd,
    25 Instrument,
    26 EndOfEvent,
    27 GroupStatus,
}

impl Fields {
    /// Only a time.
    fn at(at_ns: u64) -> Self {
        Self { at_ns, ..Self::default() }
    }

    fn side(&self) -> Side {
        Side::from_wire(self.side)
    }

    fn side_or_none(&self) -> Option<Side> {
        (self.side != NO_SIDE).then(|| self.side())
    }

    fn symbol(&self) -> Symbol {
        Symbol(self.symbol.to_le_bytes())
    }

    fn has(&self, bit: u8) -> bool {
        self.bits & bit != 0
    }

    /// What [`either`] has said.
    fn has_either(&self, yes: u8, no: u8) -> Option<bool> {
        self.has(yes | no).then(|| self.has(yes))
    }
}

fn bit(is_set: bool, bit: u8) -> u8 {
    if is_set { bit } else { 0 }
}

/// `yes` or `no` where it is known.
fn either(is_so: Option<bool>, yes: u8, no: u8) -> u8 {
    is_so.map_or(0, |is_so| if is_so { yes } else { no })
}

fn word(symbol: Symbol) -> u64 {
    u64::from_le_bytes(symbol.0)
}
