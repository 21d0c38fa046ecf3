//! TCP (RFC 9293) as a machine without I/O and without a clock.
//!
//! What enters: segments, time, and calls of the app. What leaves: data in order, events, and segments through the [`Output`] that
//! each call brings. Payloads are of the caller's type; the machine keeps them until they are acknowledged or delivered, in a store that
//! is taken at the start.
//!
//! ```text
//!   arrival ─▶ acknowledgment ─▶ recovery, congestion        calls ─▶ transmit ◀─ timers
//!      └─────▶ assembly                                                  └─▶ Output
//! ```

mod acknowledgment;
mod admission;
mod arrival;
mod assembly;
mod audit;
mod calls;
mod challenges;
mod config;
mod congestion;
mod connection;
mod delegated;
mod event;
mod fifo;
mod icmp;
mod info;
mod list;
mod listener;
mod machine;
mod options;
mod payload;
mod ports;
mod prefetch;
mod prepared;
mod queue;
mod rack;
mod recovery;
mod resets;
mod room;
mod route_watch;
mod rtt;
mod scoreboard;
mod secret;
mod segment;
mod seq;
mod stored;
mod syn_cookie;
mod timers;
mod transmit;

pub use arrival::{Arrival, Received, TcpDrop};
pub use audit::TimerFault;
pub use config::{TcpConfig, TcpConfigError};
pub use connection::State;
pub use delegated::DelegateError;
pub use event::{
    CallError, CloseReason, ConnectError, ConnectionId, IcmpRefusal, ListenError, ListenerId, NotOurs, OptionError,
    SendError, TcpEvent,
};
pub use info::TcpInfo;
pub use listener::{Accept, ListenOptions};
pub use machine::{Tcp, TcpTally};
pub use options::{Congestion, ConnectionOptions, Keepalive, Linger};
pub use payload::{Output, Payload, Unsent};
pub use prefetch::LookupKey;
pub use prepared::{Committed, HeaderTemplate, Numbers, SendPermit};
pub use segment::{Outgoing, Plain, Range, SACK_BLOCKS_MAX, Segment, SynOptions};
pub use seq::Seq;
pub use transmit::Run;

#[cfg(test)]
mod tests;
