//! A market-data gateway, a template that a firm copies: one feed in, many consumers out, none of
//! whom can slow the feed.
//!
//! ```text
//!   packets ─▶ feed-handler: arbitration, decoding, books ─▶ RingSink ─▶ ring in shared memory
//!                                                                         │ events, quotes
//!                                    strategies, recorders, publishers ◀──┘ other processes
//! ```
//!
//! The feed is that of the library `feed_handler`, which reads the same configuration. The ring is
//! that of [`market_ring`]: [`RingSink`] writes each event and each changed quote to it, on the
//! worker's thread, and waits for nobody.
#![forbid(unsafe_code)]

mod counts;
pub mod images;
mod sink;

pub use counts::GatewayCounts;
pub use sink::RingSink;
