//! TCP in the pipeline: the node that checks segments and gives them to the machine, and what an app calls.
//!
//! ```text
//!  Ipv4 ─▶ Tcp ──segment──▶ machine (proto::tcp) ──data, events──▶ app.on_tcp_data, app.on_tcp_event
//!                              │      ▲
//!             frames ◀─ way out       └── cx.tcp().send(…), connect, listen, …: from any node's callback, in the same turn
//! ```
//!
//! The machine and what it remembers belong to the worker ([`TcpSockets`], in [`Cx`](super::Cx)), so that a tick over UDP sends
//! an order over TCP on the same stack frame. Acknowledgments leave when the burst has ended, one for all its segments.

mod bytes;
mod delegation;
mod node;
mod path;
pub mod roster;
mod sockets;
mod template;
#[cfg(test)]
mod tests;
mod way_out;

pub use crate::proto::tcp::{
    Accept, CallError, CloseReason, Congestion, ConnectError, ConnectionId, ConnectionOptions, DelegateError,
    Keepalive, Linger, ListenError, ListenOptions, ListenerId, OptionError, SendError, State, TcpConfig,
    TcpConfigError, TcpEvent, TcpInfo,
};
pub use delegation::Delegation;
pub use node::{Tcp, TcpApp, TcpData, TcpNodeConfig, TcpNodeDrop};
pub use sockets::{TcpCalls, TcpSockets, TcpSocketsConfig};
pub use template::{Sent, Template, TemplateError};
