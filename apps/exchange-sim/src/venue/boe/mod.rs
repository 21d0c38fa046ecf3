//! Cboe BOE: messages of both versions in the venue's words, and its answers as messages. All
//! instruments are of one matching unit.

mod v2;
mod v3;

use matching_engine::{CancelReason, Liquidity, PostOnly, RejectReason, SelfTrade, SelfTradeRule};
use order_entry::Text;
use order_entry::boe::{BoeError, LoginRequest, ReasonCode, Side as BoeSide, Version};

use super::named::{Answer, OrderRefusal, Protocol};
use super::{Effect, Venue};

/// The matching unit of all instruments.
pub(crate) const UNIT: u8 = 1;
/// Bytes of the longest body of the venue.
pub(crate) const BODY_MAX: usize = 512;

/// An application message of a client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Received<'a> {
    pub(crate) kind: u16,
    pub(crate) body: &'a [u8],
    /// It came before the replay was complete.
    pub(crate) is_during_replay: bool,
}

/// When, on the venue's clock and since 1970.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) now_ns: u64,
    pub(crate) epoch_ns: u64,
}

/// What the versions say differently.
pub(crate) trait BoeWords: Version + Send {
    const PROTOCOL: Protocol;
    /// What a login asks for.
    type Returns: Default + Send;

    /// Reads what a login asks for.
    fn returns(login: &LoginRequest<'_>) -> Result<Self::Returns, BoeError>;

    /// Takes a message of a client.
    fn take(venue: &mut Venue, account: usize, message: Received<'_>, times: Times) -> Result<Effect, BoeError>;

    /// Writes the body of an answer to the front of `out`: its type and length; none where the
    /// version has no words for it.
    fn write(answer: &Answer, returns: &Self::Returns, epoch_ns: u64, out: &mut [u8]) -> Option<(u16, usize)>;
}

/// The reason of a refusal.
const fn reason_code(reason: OrderRefusal) -> ReasonCode {
    match reason {
        OrderRefusal::Duplicate => ReasonCode::DUPLICATE,
        OrderRefusal::Unknown => ReasonCode::UNKNOWN_ORDER,
        OrderRefusal::TooLate => ReasonCode::TOO_LATE,
        OrderRefusal::Rate => ReasonCode::RATE,
        OrderRefusal::DuringReplay => ReasonCode::DURING_REPLAY,
        OrderRefusal::Engine(RejectReason::Symbol) => ReasonCode::UNKNOWN_SYMBOL,
        OrderRefusal::Engine(RejectReason::Halted | RejectReason::Closed) => ReasonCode::HALTED,
        OrderRefusal::Engine(RejectReason::Quantity) => ReasonCode::SIZE,
        OrderRefusal::Engine(RejectReason::Expired) => ReasonCode::EXPIRED,
        OrderRefusal::Engine(RejectReason::Full) => ReasonCode::MAX_OPEN_ORDERS,
        OrderRefusal::Disabled | OrderRefusal::Terms(_) | OrderRefusal::Engine(_) => ReasonCode::ADMIN,
    }
}

/// The reason of a cancel.
const fn cancel_code(reason: CancelReason, is_rate: bool) -> ReasonCode {
    match reason {
        _ if is_rate => ReasonCode::RATE,
        CancelReason::User | CancelReason::Replace => ReasonCode::USER,
        CancelReason::Immediate | CancelReason::CrossOver => ReasonCode::NO_LIQUIDITY,
        CancelReason::Timeout => ReasonCode::EXPIRED,
        CancelReason::SelfMatch => ReasonCode::WOULD_WASH,
        CancelReason::Halted => ReasonCode::HALTED,
        CancelReason::Closed => ReasonCode::SESSION_END,
        _ => ReasonCode::ADMIN,
    }
}

const fn liquidity_code(liquidity: Liquidity) -> u8 {
    match liquidity {
        Liquidity::Added | Liquidity::AddedHidden => b'A',
        Liquidity::Removed => b'R',
        Liquidity::Cross(_) => b'C',
    }
}

/// Self-trade prevention within a group of the account: what, level, group.
fn prevented(modifier: u8, level: u8, group: u8) -> Result<Option<SelfTrade>, &'static str> {
    let rule = match modifier {
        _ if matches!(level, 0 | b'N') => return Ok(None),
        b'N' => SelfTradeRule::CancelNewest,
        b'O' => SelfTradeRule::CancelOldest,
        b'B' => SelfTradeRule::CancelBoth,
        b'D' | b'd' => SelfTradeRule::Decrement,
        _ => return Err("PreventMatch must be N, O, B or D"),
    };
    // The engine's groups are above 0.
    Ok(Some(SelfTrade { group: 0x100 | u32::from(group), rule }))
}

const fn side_of(side: BoeSide) -> Result<market::Side, &'static str> {
    match side {
        BoeSide::BUY => Ok(market::Side::Buy),
        BoeSide::SELL | BoeSide::SELL_SHORT | BoeSide::SELL_SHORT_EXEMPT => Ok(market::Side::Sell),
        _ => Err("Side must be 1, 2, 5 or 6"),
    }
}

/// What a purge asks for of which this venue does nothing.
const NO_LOCK_OUT: &str = "no lock-out here";
const NO_GROUPS: &str = "no risk groups here";
const NO_FIRM_FILTER: &str = "no filter by clearing firm here";

const fn boe_side(side: market::Side) -> BoeSide {
    match side {
        market::Side::Buy => BoeSide::BUY,
        market::Side::Sell => BoeSide::SELL,
    }
}

/// An identifier or a text as the wire has it.
fn text<const LEN: usize>(bytes: &[u8]) -> Text<LEN> {
    let mut padded = [0; LEN];
    let len = bytes.len().min(LEN);
    padded[..len].copy_from_slice(&bytes[..len]);
    Text(padded)
}

const fn slide(is_post_only: bool) -> PostOnly {
    if is_post_only { PostOnly::Slide } else { PostOnly::No }
}
