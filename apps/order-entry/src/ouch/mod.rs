//! OUCH, Nasdaq's order entry: [version 5.0](v50) and [version 4.2](v42), layouts of both
//! directions without I/O. It travels over [`soupbin`](crate::soupbin): messages to the venue
//! unnumbered, those of the venue numbered.
//!
//! # What the numbers mean
//!
//! - The quantity of a cancel (`X`) and of a modify (`M`) is the **new intended total** of the
//!   order, with what was executed already, and not the shares to take off or to leave. Of an order
//!   of 500 shares with 200 executed, `X` with 300 leaves 100 open; with 200 or less, none. In 5.0
//!   a replace (`U`) counts alike: the chain's total. Who reads it as open shares doubles his
//!   exposure.
//! - `X` and `M` keep the order's priority, `U` loses it. `M` changes the side only from sell to
//!   sell short or sell short exempt, and from short exempt to short.
//! - There is no "too late to cancel": a superfluous `X` is ignored in silence. Its answer is the
//!   cancel (`C`), or the fill that came first.
//! - A replace has four outcomes. The original is dead, or the new number used: silence, and the
//!   number stays free. The original is live but the new details are invalid: the original is
//!   **cancelled**, and the number stays free. The original cannot be cancelled (a late cross):
//!   rejected (`J`), the number is used up, the original stays. Else: replaced, and perhaps dead at
//!   once.
//! - Prices have four decimals: 1.2345 is 12345.
//!
//! # After a break
//!
//! Every message may be sent again: the venue ignores a UserRefNum (5.0) or token (4.2) that it has
//! seen. In 5.0 an account query (`Q`) tells the next free number: [`Account`] makes of it the
//! answer of the common [`Recovery`](crate::session::Recovery). 4.2 has no query; [`Ouch42Client`]
//! sends an order that must be refused, behind which all is answered.

mod account;
mod client;
mod client42;
mod codes;
mod error;
mod orders;
mod port;
mod reject;
mod template;
pub mod v42;
pub mod v50;
mod words;

pub use account::{Account, FENCE_LEN};
pub use client::{OuchClient, OuchClientError};
pub use client42::Ouch42Client;
pub(crate) use client42::id_of_token;
pub use codes::{
    AiqStrategy, BboWeight, BrokenTradeReason, CancelReason, Capacity, CrossType, CustomerType, DiscretionPriceType,
    Display, HandleInstruction, LiquidityFlag, OrderState, PostOnly, PriceType, RestateReason, Side, SystemEventCode,
    TimeInForce, YesNo,
};
pub use error::OuchError;
pub use orders::OuchOrders;
pub use port::PortOptions;
pub use reject::{RejectReason, RejectReason42};
pub use template::OrderTemplate;

/// The price that makes an order for a cross a market order, in 5.0 and 4.2.
pub const MARKET_PRICE: u32 = 0x7fff_ffff;

/// The highest limit price, $199,999.9900.
pub const PRICE_MAX: u32 = 1_999_999_900;

/// The largest quantity of an order and of a chain of replaces.
pub const QUANTITY_MAX: u32 = 999_999;
