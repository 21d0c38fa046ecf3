//! The pipeline routes: one node checks one header and hands the packet on, until an app receives
//! the packet or a node drops it and counts the reason.
//!
//! ```text
//!  burst ─▶ Ethernet ─▶ Ipv4 ─▶ Udp ─▶ app.on_datagram
//!              │          ├─▶ icmp, igmp, tcp
//!              └─▶ arp    └── fragments wait in the reassembly machine
//! ```
//!
//! A pipeline is a value that owns its successors, built by plain construction, so the compiler
//! sees the whole path and a debugger steps through it. Nodes hold counters and machines, not
//! protocol state of their own; [`Cx`] is all that an app or a node may touch while it handles a
//! packet.
//!
//! Here are the nodes, the ready-made trees of them (`stack`), and the egress that apps and nodes
//! share ([`Egress`]). A tree belongs to one worker. This floor imports `wire`, `proto`, `mem`,
//! `time`, `counters` and the traits of `device`; never a device itself.

mod answer;
mod app;
mod arp;
mod drop_lists;
mod egress;
mod either;
mod ethernet;
mod fragments;
mod icmp;
mod igmp;
mod ipv4;
mod node;
mod outline;
mod pending_timestamps;
mod several_apps;
mod stack;
pub mod tcp;
mod timestamps;
mod udp;
mod unhandled;
mod vlan_trunk;

pub use app::{App, AppError};
pub use arp::node::{Arp, ArpConfig};
pub use egress::{Egress, EgressConfig};
pub use either::Either;
pub use ethernet::{Ethernet, Vlans};
pub use icmp::echo::send_echo;
pub use icmp::error::{send_icmp_error, send_port_unreachable};
pub use icmp::error_rate::UnsentError;
pub use icmp::node::{EchoReply, Icmp, IcmpConfig, IcmpError};
pub use igmp::{Igmp, IgmpConfig};
pub use ipv4::{AcceptedDestinations, Ipv4, Ipv4Config, Ipv4Successors};
pub use node::{Cx, CxWithoutTx, Node, discard};
pub use outline::NodeTree;
pub use several_apps::{ForConsumers, for_consumers};
pub use stack::{HostStack, HostStackConfig, StackConfig, UdpStack, host_stack, udp_stack};
pub use timestamps::{NoTxTimestamps, TxTime};
pub use udp::calls::UdpCalls;
pub use udp::datagram::Datagram;
pub use udp::flow::{Checksum, UdpConnectError, UdpFlow, UdpOptions, UdpSendToError, UdpSent, send_to};
pub use udp::node::{ChecksumPolicy, Udp, UdpConfig};
pub use udp::send_error::UdpSendError;
pub use unhandled::Unhandled;
pub use vlan_trunk::{VlanInterface, VlanTrunk};

#[cfg(test)]
mod tests;
