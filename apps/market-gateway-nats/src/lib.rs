//! A market-data ring to NATS, for consumers on other machines. It reads the ring like any other
//! process, so neither the broker nor its consumers can slow the feed.
//!
//! ```text
//!   ring ─ RingReader ─▶ Publisher: batches ─▶ nats-server: a stream ─▶ Consumer: records, each once
//!                          └ kept until acknowledged, and sent again after an outage
//! ```
//!
//! | subject | body |
//! |---|---|
//! | `md.VENUE.CHANNEL.events` | a batch: for each record its number in the ring, 8 bytes little-endian, and [`Record::to_bytes`](market_ring::Record::to_bytes) |
//! | `md.VENUE.CHANNEL.quote.SYMBOL` | the latest quote, [`Quote::to_bytes`](market_ring::Quote::to_bytes): what a late joiner begins with |
//!
//! The guarantee is at least once, and [`Consumer`] makes it once: a batch has a message id, by
//! which the broker drops a repetition, and records have numbers, by which a consumer does.
//!
//! The protocol of NATS is a few lines of text ([`wire`]), so there is no client library here: the
//! usual one would bring an asynchronous runtime and some hundred crates into the build.
#![forbid(unsafe_code)]

mod connection;
mod consumer;
mod login;
mod publisher;
mod stream;
pub mod wire;

pub use connection::{Connection, Inbox, NumberedInbox};
pub use consumer::{Consumer, latest_quotes};
pub use login::{Login, NatsServer, read_secret};
pub use publisher::{JetStream, JetStreamLink, Publisher};
