//! The app at the end of the pipeline: datagrams in, books out, everything counted.
//!
//! ```text
//!  on_datagram ─▶ framing check ─▶ which channel, which line ─▶ arbitration ─▶ codec ─▶ books
//!                    │ drop                │ drop                  │ kept until its turn
//! ```
//!
//! A *line* is a group that packets arrive on; lines that carry the same messages make a *line
//! set*, and each channel number within a set is a channel with a sequence, an arbiter, a decoder
//! and books of its own. Lines and sets are configured, or [learned](crate::join) from the first
//! packet of each group.
//!
//! The memory of configured channels and of the first that is learned is allocated at the start,
//! and on a live port nothing is learned: a channel number that the configuration does not have is
//! dropped for a reason. A replay allocates further channels when the second packet of each
//! arrives, as many as there was memory for at the start; its file waits. Otherwise nothing here
//! allocates, locks or makes a system call; see [`Sampler`] for the one clock read in several
//! packets.

mod app;
mod channel;
mod counters;
mod deadlines;
mod index;
mod latency;
mod tally;
mod unassigned;

pub use app::{
    ArrivalClock, CHANNELS_MAX, Feed, FeedConfig, FeedDrop, GROUPS_MAX, LINES_MAX, LineConfig, NUMBERS_MAX, SetConfig,
};
pub use latency::{Latency, Received, Sampler};
pub use tally::{BooksTally, ChannelTally, FeedTally, LineTally, Top, Tops};
