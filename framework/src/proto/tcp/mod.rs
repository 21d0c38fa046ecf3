//! TCP (RFC 9293) as a machine without I/O and without a clock.
//!
//! Segments, time, and calls of the app enter; data in order, events, and segments leave, the
//! latter through the [`Output`] of each call. Payloads are of the caller's type; the machine keeps
//! them until they are acknowledged or delivered, in a store that is allocated at the start.
//!
//! ```text
//!   arrival ─▶ acknowledgment ─▶ recovery, congestion        calls ─▶ transmit ◀─ timers
//!      └─────▶ assembly                                                  └─▶ Output
//! ```

mod audit;
mod calls;
mod config;
mod event;
mod info;
mod input;
mod listening;
mod loss;
mod machine;
mod options;
mod output;
mod payload;
mod route_watch;
mod segment;
mod seq;
mod state;
mod timers;

pub use audit::TimerFault;
pub use config::{TcpConfig, TcpConfigError};
pub use event::{
    CallError, CloseReason, ConnectError, ConnectionId, IcmpRefusal, ListenError, ListenerId, NotOurs, OptionError,
    SendError, TcpEvent,
};
pub use info::TcpInfo;
pub use input::arrival::{Arrival, Received, TcpDrop};
pub use input::prefetch::LookupKey;
pub use listening::handover::Departed;
pub use listening::listener::{AcceptDecision, ListenOptions};
pub use machine::{Tcp, TcpTally};
pub use options::{Congestion, ConnectionOptions, Keepalive, Linger};
pub use output::delegated::DelegateError;
pub use output::interface::{Output, Unsent};
pub use output::prepared::{Committed, HeaderTemplate, Numbers, SendPermit};
pub use output::run::Run;
pub use payload::Payload;
pub use segment::{Outgoing, PredictedFields, Range, SACK_BLOCKS_MAX, Segment, SynOptions};
pub use seq::Seq;
pub use state::connection::State;

#[cfg(test)]
mod tests;
