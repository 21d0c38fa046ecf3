//! Order entry as pure functions and machines: sessions and codecs of venues, order states, risk
//! checks, the order journal's records.
//!
//! Nothing here reads a clock, opens a file or knows the framework: time is an argument in
//! nanoseconds, a machine allocates when it is constructed, and bad input from the network ends the
//! session with the name of the rule that it broke.
#![forbid(unsafe_code)]

pub mod audit;
pub mod boe;
mod cl_ord_id;
mod codec;
pub mod fix;
pub mod ilink3;
pub mod journal;
mod manager;
pub mod orders;
pub mod ouch;
mod reasons;
pub mod risk;
pub mod session;
pub mod soupbin;
mod text;

pub use manager::{ManagerConfig, OrderEvents, OrderManager, Refusal};
pub use reasons::ReasonCodes;
pub use text::Text;
