//! An order gateway with its standby, and the exchange, in virtual time: what they run is the
//! product's, over our TCP and a network that loses, repeats, delays and reorders segments, breaks
//! connections and leaves them half open, while machines die with journals that are cut at any
//! byte, and disks take their time.
//!
//! ```text
//!  seed ─▶ world: gateway (Run) ── TCP ──▶ venue (each protocol, matching engine)
//!            │       └─ standby (FollowerLink, then a Run of its own)
//!            └─▶ checks: nothing twice, no limit exceeded, never both, and at the end both sides' books
//! ```

mod gateway;
mod network;
mod rates;
mod run;
mod script;
#[cfg(test)]
mod tests;
mod venue;
mod world;

pub use run::{Summary, run_seed, run_seeds};
pub use script::Protocol;
