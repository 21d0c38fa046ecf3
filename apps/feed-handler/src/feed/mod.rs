//! The app at the end of the pipeline: datagrams in, books out, everything counted.
//!
//! ```text
//!  on_datagram ─▶ framing check ─▶ which channel, which line ─▶ arbitration ─▶ codec ─▶ books
//!                    │ drop                │ drop                  │ kept until its turn
//! ```
//!
//! A *line* is a group on which packets arrive. Lines that carry the same messages make a *line
//! set*. Each channel number within a set is a channel with its own sequence, arbiter, decoder and
//! books. Lines and sets are configured, or [learned](crate::join) from the first packet of each
//! group.
//!
//! The memory of configured channels and of the first learned channel is allocated at the start. A
//! live port learns no channels: it drops packets with a channel number that the configuration does
//! not have, for a named reason. A replay allocates a further channel when the channel's second
//! packet arrives, as many channels as there was memory for at the start; the file waits meanwhile.
//! Otherwise nothing here allocates, locks or makes a system call; see [`Sampler`] for the one
//! clock read in several packets.

mod app;
mod channel;
mod counters;
mod deadlines;
mod index;
mod latency;
mod loops;
mod mixed;
mod recovery;
mod tally;
mod unassigned;

pub use app::{
    ArrivalClock, CHANNELS_MAX, Feed, FeedConfig, FeedDrop, FeedLine, GROUPS_MAX, LINES_MAX, NUMBERS_MAX, SetConfig,
};
pub use latency::{Latency, Received, Sampler};
pub use loops::{FeedLoops, LoopTally, Loops, NoLoops};
pub use mixed::{MixedFeed, WorkerFeed};
pub use recovery::RecoveryTally;
pub use tally::{BooksTally, ChannelTally, FeedTally, LineTally, Top, Tops};
