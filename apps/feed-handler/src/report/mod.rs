//! The summary: what arrived, the outcome of each packet and each message, and whether the sums are
//! consistent.
//!
//! ```text
//!   packets   read + copied by faults = delivered to the feed + dropped by name + merged from fragments + held
//!   messages  received on all lines   = delivered in order + duplicates + late + past + doubted + not kept
//!   truth     sent by the exchange    = received + injected losses, for each line and for both together
//! ```
//!
//! [`Summary`] is plain values; its `Display` prints it for people, and serde as one JSON object.
//! Each inconsistent sum and each other failure is a sentence in [`Summary::failures`], and
//! determines the exit code.

mod account;
mod channel;
mod limits;
mod silence;
mod summary;
mod text;
mod truth;

pub(crate) use account::count as worker_count;
pub use account::{MessageAccount, PacketAccount};
pub use channel::{BooksSummary, ChannelSummary, LatencySummary, LineSummary, RecoverySummary, TopSummary};
pub(crate) use limits::newly_met;
pub(crate) use silence::silence;
pub use summary::{Core, Ending, PacketSource, Run, Summary, Undecoded};
pub use text::Table;
pub(crate) use text::{grouped, rate};
pub use truth::{DaySettings, Truth, TruthCheck, TruthLine, read_truth};
