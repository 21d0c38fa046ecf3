//! IEX: the messages that its feeds share, and one codec for each feed.
//!
//! TOPS carries the best bid and offer, DEEP the total at each price; the administrative messages
//! and the trades are the same in both.

pub mod deep10;
pub mod messages;
pub mod tops16;
