//! A market-data ring to Kafka, or to a broker that speaks its protocol. It reads the ring like any
//! other process, so neither the broker nor its consumers can slow the feed.
//!
//! | topic | key | value |
//! |---|---|---|
//! | `md.VENUE.events` | the channel | a batch: for each record its number in the ring, 8 bytes little-endian, and [`Record::to_bytes`](market_ring::Record::to_bytes) |
//! | `md.VENUE.quotes` | `CHANNEL.SYMBOL` | the latest quote, [`Quote::to_bytes`](market_ring::Quote::to_bytes) |
//!
//! The guarantee is at least once: all in-sync replicas have what is acknowledged, and what is not
//! is sent again. [`Consumer`] makes it once, by the numbers in the headers.
//!
//! The client library has an asynchronous runtime. It runs on one thread of the gateway, which
//! nothing else waits for, and in a consumer's own calls.
#![forbid(unsafe_code)]

mod broker;
mod consumer;

pub use broker::{Kafka, KafkaLink};
pub use consumer::{Consumer, latest_quotes};
