//! What the gateways from a market-data ring to brokers share: all but the broker.
//!
//! ```text
//!   ring ─ RingReader ─▶ Source: batches ─▶ Publisher ─▶ Link to a broker ─▶ GapDetector: records, each once
//!                        Quotes: the latest    └ keeps batches until acknowledged, and sends them again
//! ```
//!
//! A gateway adds a [`Broker`], which connects, and a [`Link`], which carries messages; its
//! consumer gives what it receives to [`GapDetector`]. A batch says by its headers which numbers of
//! the ring it covers, so a consumer knows what it has had and what it has missed, whatever the
//! broker did.
#![forbid(unsafe_code)]

mod batch;
mod gap_detector;
mod program;
mod publisher;
mod quotes;
mod source;

pub use batch::{Batch, COVERS, END, FLAGS, MERGED, PUBLISHED, SEQ, SESSION, TIMES, VENUE_SEQ};
pub use gap_detector::{ConsumerEvent, GapDetector};
pub use program::{parse_word, run};
pub use publisher::{Acknowledged, Broker, Link, LinkError, Publisher, PublisherConfig, PublisherCounts};
pub use quotes::LatestQuote;
pub use source::{Policy, Stopped, Turn};
