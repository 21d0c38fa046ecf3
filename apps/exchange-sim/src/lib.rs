//! A believable ITCH 5.0 day from a seed, on two lines, and the truth about it.
//!
//! ```text
//!   settings ─> session ─> packetizer ─> line A, line B ─> feed ─┬─> capture (a file, or any writer)
//!                                                               ├─> publish (kernel UDP sockets, re-request and GLIMPSE servers)
//!                                                               └─> truth   (what a receiver must find)
//! ```
//!
//! An exchange that answers instead is an [`Exchange`]: a matching engine behind OUCH over TCP,
//! whose book goes onto the same two lines.
//!
//! The binary `exchange-sim` is these behind flags. The library is for tests and tools that want
//! the day or its [`Truth`]: the same settings give the same bytes on every machine.
#![forbid(unsafe_code)]

mod settings;

mod random;
mod session;

mod line;
mod packetizer;

mod feed;
mod truth;

mod mdp3;

mod capture;

mod glimpse;
mod publish;
mod rerequest;
mod resting;
mod send_sockets;

mod serve;
mod venue;

mod error;

pub use capture::{generate, write_capture};
pub use error::{Error, check_directory};
pub use feed::Feed;
pub use glimpse::{GlimpseCounts, GlimpseSettings};
pub use line::{Delivery, REORDER_DELAY_NS_MAX};
pub use mdp3::{Mdp3Counts, Mdp3Groups};
pub use packetizer::Packet;
pub use publish::{Publication, Published, publish};
pub use rerequest::{RerequestCounts, RerequestSettings, parse_server_address};
pub use send_sockets::{Interface, SendSockets};
pub use serve::{BoeVersion, Exchange, Operator, OrderServer, Script, Served, Serving};
pub use session::{Session, TimedMessage};
pub use settings::{
    Burst, LineSettings, SessionName, Settings, SettingsError, parse_count, parse_duration, parse_positive,
};
pub use truth::{Truth, TruthFile, read_truth, write_truth};
pub use venue::{
    Account, AccountSettings, Answer, AnswerKind, CancelOnDisconnect, ChangeRequest, Command, CopiesOf, Effect, Fault,
    FaultPlan, FaultRule, MassCancelRequest, MessageLog, NamedOrder, OrderRefusal, OrderRequest, OrderStatus, Protocol,
    Refused, Target, Venue, VenueCounts, VenueSettings, Which,
};
