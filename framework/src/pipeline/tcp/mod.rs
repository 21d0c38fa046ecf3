//! TCP in the pipeline: the node that checks segments and gives them to the machine, and the calls
//! of an app.
//!
//! ```text
//!  Ipv4 ─▶ Tcp ──segment──▶ machine (proto::tcp) ──data, events──▶ app.on_tcp_data, app.on_tcp_event
//!                              │      ▲
//!             frames ◀─ way out       └── cx.tcp().send(…), connect, listen, …: from any node's callback, in the same turn
//! ```
//!
//! The machine and its state belong to the worker ([`TcpSockets`], in [`Cx`](super::Cx)), so that a
//! tick over UDP sends an order over TCP on the same stack frame. Acknowledgments leave at the end
//! of the burst, one for all its segments.
//!
//! The smallest app, which serves as client and server: each side sends hello and keeps what it
//! receives. Two workers, over a wire of plain memory.
//!
//! ```
//! # use core::net::{Ipv4Addr, SocketAddrV4};
//! # use wirepath::counters::Block;
//! # use wirepath::device::memory::{MemoryConfig, pair};
//! # use wirepath::pipeline::tcp::*;
//! # use wirepath::pipeline::{App, Cx};
//! # use wirepath::proto::ConsumerId;
//! # use wirepath::time::{Clock, MonotonicClock};
//! # use wirepath::worker::Worker;
//! #[derive(Default)]
//! struct Greeter { heard: Vec<u8> }
//!
//! impl App for Greeter {
//!     fn on_tcp_event(&mut self, id: ConnectionId, event: TcpEvent, cx: &mut Cx<'_>) {
//!         match event {
//!             TcpEvent::Connected { .. } => assert_eq!(cx.tcp().send(id, b"hello"), Ok(5)),
//!             TcpEvent::Closed(reason) => println!("{reason}"),
//!             _ => (),
//!         }
//!     }
//!
//!     fn on_tcp_data(&mut self, data: &TcpData<'_>, _: &mut Cx<'_>) {
//!         self.heard.extend_from_slice(data.payload);
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (mut left, mut right) = pair("wire", MemoryConfig::default());
//! let block = Block::heap();
//! let client = Worker::builder(&mut left)?.address("192.0.2.1/24".parse()?).tcp(TcpConfig::default());
//! let mut client = client.build(Greeter::default(), &block.scope("client"))?;
//! let server = Worker::builder(&mut right)?.address("192.0.2.2/24".parse()?).tcp(TcpConfig::default());
//! let mut server = server.build(Greeter::default(), &block.scope("server"))?;
//! let mut clock = MonotonicClock::start();
//!
//! let at = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 2), 80);
//! server.with_app(clock.now(), |_, cx| cx.tcp().listen(at, &ListenOptions::default()))?;
//! let (any, options) = (SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0), ConnectionOptions::default());
//! client.with_app(clock.now(), |_, cx| cx.tcp().connect(any, at, &options, ConsumerId(1)))?;
//! while client.app().heard.len() + server.app().heard.len() < 10 {
//!     client.poll_once(clock.now());
//!     server.poll_once(clock.now());
//! }
//! assert_eq!((&client.app().heard[..], &server.app().heard[..]), (&b"hello"[..], &b"hello"[..]));
//! # Ok(())
//! # }
//! ```

mod bytes;
mod caller;
mod chain;
mod delegation;
mod fast;
mod handover;
mod headers;
mod next_hop;
mod node;
mod output;
mod prefetch;
mod prepared_order;
mod prepost;
pub mod roster;
mod sockets;
mod tally;
mod train;

pub use crate::proto::tcp::{
    AcceptDecision, CallError, CloseReason, Congestion, ConnectError, ConnectionId, ConnectionOptions, DelegateError,
    Keepalive, Linger, ListenError, ListenOptions, ListenerId, NotOurs, OptionError, SendError, Seq, State, TcpConfig,
    TcpConfigError, TcpDrop, TcpEvent, TcpInfo, TcpTally,
};
pub use caller::{Caller, CallerEvent};
pub use delegation::Delegation;
pub use next_hop::NextHopError;
pub use node::{Tcp, TcpData, TcpNodeConfig};
pub use prepared_order::{PreparedOrder, PreparedOrderError, TcpSent};
pub use sockets::{TcpCalls, TcpSockets, TcpSocketsConfig};
