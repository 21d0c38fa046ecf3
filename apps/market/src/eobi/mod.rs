//! The Enhanced Order Book Interface (EOBI) of T7, which Eurex and Xetra trade on: the layouts of
//! its messages, generated from `schemas/eurex-eobi.xml`, the decoder to events, and what its loop
//! brings.
//!
//! Packets are [`crate::framing::eobi`]. The facts are those of the model of release 14.0 that
//! Deutsche Börse publishes, and of the manuals of T7's EOBI. Instruments are numbers here
//! ([`crate::Symbol::from_number`]); T7 has their names in files of reference data.
//!
//! *Orders* are named by instrument, side and priority time: [`order_ref`]. One that loses its
//! priority gets another name, and is deleted and added here. Market orders are in no book.
//!
//! *Prices and quantities.* EOBI has eight decimals for prices and four for quantities; an order of
//! an event has a price of four decimals and whole units up to 4,294,967,295. Nothing is rounded:
//! an order that does not fit, such as one in a future on currencies with a step of 0.00005, is
//! left out, and its book is stale until such orders are gone and a snapshot has made it anew, or
//! T7 empties it. Recovery does not wait for such a book (`snapshots_unfit`). The prices of trade
//! reports are exact ([`crate::Price9`]); their quantities are cut to whole units.
//!
//! *Numbers* are those of the product's messages, so the books are [`crate::NumberedBooks`] of
//! [`crate::OfChannel`]: behind a loss each book of the product is unconfirmed until its snapshot.
//!
//! *Auctions.* T7 publishes no orders during them: it deletes those of an instrument at once, and
//! adds the visible ones again when continuous trading begins.
//!
//! *States.* That of an instrument ([`crate::event::Status`]) is its SecurityTradingStatus (203 is
//! continuous trading), or 0 where it has none; its SecurityStatus halts it too, where it is
//! suspended, for example. That of the product ([`crate::event::System`]) is its
//! TradingSessionSubID (3 is continuous trading), or `H` where it is halted; its TradSesStatus is
//! also a status of each instrument. In the loop, both are told with an instrument's snapshot. A
//! mass change gives its state to all instruments of the product that it does not name: T7 means
//! those of one kind, which are not told apart here.
//!
//! *Many instruments.* All snapshots of a product in a loop have one number. Where more messages
//! come behind it than [`replay_max`](crate::loops::RecoveryConfig::replay_max), the instruments
//! that follow in the loop are left for the next one, and books heal once the product is less busy.
//!
//! *Not read:* statistics, auction prices, the best prices after
//! trading, requests for quotes and crosses; trades off the book (TES); the summary of a match but
//! its time, because the executions of its orders follow and are what prints; the legs and terms of
//! instruments that are created in the day, and descriptions of more than eight bytes.

mod decode;
pub mod emit;
#[rustfmt::skip]
pub mod layout;
mod loops;

pub use decode::{Eobi, name, order_ref, template};

#[cfg(test)]
mod tests;
