//! The app at the end of the pipeline: datagrams in, books out, everything counted.
//!
//! ```text
//!  on_datagram ─▶ framing check ─▶ which channel, which line ─▶ arbitration ─▶ codec ─▶ books
//!                    │ drop                │ drop                  │ kept until its turn
//! ```
//!
//! A *line* is a group that packets come in by; lines that carry the same messages make a *line set*, and each channel
//! number within a set is a channel with a sequence, an arbiter, a decoder and books of its own. Lines and sets are
//! configured, or [learned](crate::join) from the first packet of each group.
//!
//! A channel that is learned takes its memory when its first packet comes, the first of them at the start. From then on
//! nothing here allocates, locks or makes a system call; see [`Sampler`] for the one clock read in several packets.

mod app;
mod channel;
mod desk;
mod latency;
mod newcomers;
mod tally;

pub use app::{ArrivalClock, CHANNELS_MAX, Feed, FeedConfig, FeedDrop, GROUPS_MAX, LINES_MAX, LineConfig, SetConfig};
pub use latency::{Latency, Received, Sampler};
pub use tally::{BooksTally, ChannelTally, FeedTally, LineTally, Top, Tops};
