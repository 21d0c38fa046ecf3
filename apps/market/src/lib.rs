//! Market data as pure functions and machines: bytes in, normalized events and books out.
//!
//! ```text
//!  datagram ─ framing ─ arbitration / sequence ─ codec (itch50 iex mdp3 …) ─ event ─ book
//!                            ├ rerequest: asks for what is missing
//!                            ├ image: all books anew, and the messages behind them
//!                            └ loops: books anew one by one, and the messages behind each
//! ```
//!
//! Nothing here reads a clock, opens a file or knows the framework: time is an argument in
//! nanoseconds, a machine allocates when it is constructed, and bad input from the network is
//! counted and never causes a panic.
//!
//! The feature `sbe-schema` adds the reader of schemas to [`sbe`], for tools and tests. The feature
//! `truth` adds the module of that name: the account of a generated day, to compare a handler's
//! results with.
//!
//! Lines A and B of one channel behind sockets are an [`AbChannel`]: packets in, messages in order
//! and gaps out, and a [`BookBuilder`] where books are wanted. Its parts are public for other uses,
//! such as a handler for one line, generic over the feed:
//!
//! ```
//! use market::{Action, Books, Codec, MessageCounts, Sequence};
//! use market::framing::{Framing, FramingError};
//!
//! fn hear<F: Framing>(
//!     datagram: &[u8],
//!     sequence: &mut Sequence,
//!     codec: &mut impl Codec,
//!     counts: &mut MessageCounts,
//!     books: &mut impl Books,
//! ) -> Result<(), FramingError> {
//!     let packet = F::parse(datagram)?;
//!     let verdict = sequence.offer(&packet.header);
//!     if verdict.restart {
//!         books.clear();
//!     }
//!     if verdict.gap.is_some() {
//!         books.mark_stale();
//!     }
//!     let Action::Deliver { skip } = verdict.action else { return Ok(()) };
//!     for message in packet.messages().skip(skip as usize) {
//!         if let Some(event) = codec.decode_counted(message, counts) {
//!             books.apply(&event);
//!         }
//!     }
//!     Ok(())
//! }
//! ```
#![forbid(unsafe_code)]

mod units;

mod arbitration;
mod channel;
pub mod framing;
pub mod image;
mod live_queue;
pub mod loops;
mod rerequest;
pub mod rerequest_server;
pub mod sbe;
mod sequence;

pub mod b3_umdf;
mod codec;
pub mod eobi;
pub mod event;
pub mod iex;
pub mod itch50;
pub mod mdp3;
pub mod memx;
pub mod pillar;
pub mod pitch;

mod book;
mod sink;

#[cfg(feature = "truth")]
pub mod truth;

pub use arbitration::{
    AnswerCounts, Arbiter, HoleCounts, Line, LineCounts, Missing, Output, Slot, Slots, Verdict, Window,
};
pub use book::levels;
pub use book::{
    BookCounts, BookIdx, BookSnapshot, Books, Capacity, Change, DEPTH_MAX, DepthBooks, DepthCounts, DepthLevel,
    DepthTop, Halts, HealingBooks, LastEvent, LevelBooks, NumberedBooks, NumberedCounts, Numbers, OfChannel,
    OfInstrument, OrderBooks, Quotes, SNAPSHOT_LEVELS, SnapshotError, TopOfBook, Trust, prefetch,
};
pub use channel::{AbChannel, AbConfig, AbCounts, BookBuilder, ChannelHandler};
pub use codec::{Codec, Decoder, MessageCounts, MessageError};
pub use rerequest::{RerequestCounts, RerequestRange, RerequestStep, Rerequester, RetryPolicy};
pub use sequence::{
    Action, ChannelKey, Channels, DOUBTS_MAX, Gap, Policy, Sequence, SequenceCounts, SequenceVerdict, StartSequence,
};
pub use sink::EventSink;
pub use units::{Locate, OrderRef, Price, Price9, Side, Symbol};
