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
//!
//! The smallest app that is one at both ends: whoever is connected says hello, and keeps what it hears. Two workers,
//! over a wire of plain memory.
//!
//! ```
//! # use core::net::{Ipv4Addr, SocketAddrV4};
//! # use wirepath::counters::{Block, Scope};
//! # use wirepath::device::memory::{MemoryConfig, MemoryDevice, MemoryRx, MemoryTx, pair};
//! # use wirepath::device::{Device, Queue};
//! # use wirepath::mem::Pool;
//! # use wirepath::pipeline::tcp::*;
//! # use wirepath::pipeline::{App, Cx, EgressConfig, Ethernet, Ipv4, Ipv4Config, Ipv4Successors, Unhandled, Vlans};
//! # use wirepath::proto::{ConsumerId, Host, HostConfig, HostEvent, InterfaceId, Ipv4Prefix, SocketCapacity, UdpSockets};
//! # use wirepath::time::{Clock, MonotonicClock};
//! # use wirepath::wire::{MacAddr, VlanTags};
//! # use wirepath::worker::{Parts, Worker, random_seed};
//! # type Stack = Ethernet<Ipv4<Unhandled, Unhandled, Unhandled, Tcp>, Unhandled>;
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
//! let (left, right) = pair("wire", MemoryConfig::default());
//! let (mut client, mut server) = (worker(left, 1)?, worker(right, 2)?);
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
//! # fn worker(mut port: MemoryDevice, own: u8) -> Result<Worker<MemoryRx, MemoryTx, Stack, Greeter>, Box<dyn std::error::Error>> {
//! #     let (block, seed, pool) = (Block::heap(), random_seed(), Pool::heap(1_024)?);
//! #     let scope = &block.scope("w");
//! #     let mac = |host| MacAddr([2, 0, 0, 0, 0, host]);
//! #     let address = |host| Ipv4Addr::new(192, 0, 2, host);
//! #     let machine = TcpConfig { chunks_max: 512, ..TcpConfig::default() };
//! #     machine.check_pool(pool.capacity(), 512)?;
//! #     let tcp = TcpSocketsConfig { machine, capabilities: port.capabilities(), seed };
//! #     let (rx, tx) = port.take_queue(0)?.open(&pool, scope)?;
//! #     let next = Ipv4Successors {
//! #         udp: Unhandled::new("udp", scope),
//! #         icmp: Unhandled::new("icmp", scope),
//! #         igmp: Unhandled::new("igmp", scope),
//! #         tcp: Tcp::new(TcpNodeConfig::default(), scope),
//! #     };
//! #     let ipv4 = Ipv4::new(Ipv4Config::new(seed), next, scope);
//! #     let pipeline = Ethernet::new(Some(mac(own)), Vlans::Untagged, ipv4, Unhandled::new("arp", scope), scope);
//! #     let (interface, vlan) = (InterfaceId(0), VlanTags::NONE);
//! #     let config = HostConfig { interface, mac: mac(own), vlan, mtu: 1500, addresses_max: 1, routes_max: 1, neighbours_max: 1 };
//! #     let mut host = Host::new(config, seed)?;
//! #     host.apply(HostEvent::AddressAdded(Ipv4Prefix::new(address(own), 24).ok_or("no prefix")?))?;
//! #     host.apply(HostEvent::NeighbourSet { address: address(3 - own), mac: mac(3 - own) })?;
//! #     let (sockets, egress) = (UdpSockets::new(SocketCapacity::default(), seed), EgressConfig::quiet(seed));
//! #     let parts = Parts { rx, tx, pipeline, app: Greeter::default(), pool, host, sockets, egress, burst_len: 32 };
//! #     Ok(Worker::new(parts, scope).with_tcp(TcpSockets::new(&tcp, scope)?))
//! # }
//! ```

mod ahead;
mod at_once;
mod bytes;
mod chain;
mod delegation;
mod headers;
mod node;
mod path;
pub mod roster;
mod sockets;
mod tally;
mod template;
mod train;
mod way_out;

pub use crate::proto::tcp::{
    Accept, CallError, CloseReason, Congestion, ConnectError, ConnectionId, ConnectionOptions, DelegateError,
    Keepalive, Linger, ListenError, ListenOptions, ListenerId, NotOurs, OptionError, SendError, State, TcpConfig,
    TcpConfigError, TcpEvent, TcpInfo,
};
pub use delegation::Delegation;
pub use node::{Tcp, TcpData, TcpNodeConfig, TcpNodeDrop};
pub use path::NoWay;
pub use sockets::{TcpCalls, TcpSockets, TcpSocketsConfig};
pub use template::{Sent, Template, TemplateError};
