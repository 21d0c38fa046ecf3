//! The pipeline routes: one node checks one header and hands the packet on, until an app has it or a reason is
//! counted.
//!
//! ```text
//!  burst ─▶ Ethernet ─▶ Ipv4 ─▶ Udp ─▶ app.on_datagram
//!              │          ├─▶ icmp, igmp, tcp
//!              └─▶ arp    └── fragments wait in the reassembly machine
//! ```
//!
//! A pipeline is a value that owns its successors, built by plain construction, so the compiler sees the whole path and
//! a debugger steps through it. Nodes hold counters and machines, not protocol state of their own; what an app or a
//! node may touch while a packet is in its hands is in [`Cx`].

mod answer;
mod arp;
mod datagram;
mod egress;
mod ethernet;
mod icmp;
mod icmp_error;
mod igmp;
mod ipv4;
mod node;
mod outline;
mod stack;
mod udp;
mod unhandled;

pub use arp::{Arp, ArpConfig, ArpDrop, Sent, WaitingDrop};
pub use datagram::Datagram;
pub use egress::{Checksum, ConnectError, Egress, EgressDrop, SendError, SendToError, UdpFlow, UdpOptions, send_to};
pub use ethernet::{Ethernet, EthernetDrop, Vlans};
pub use icmp::{EchoAnswer, Icmp, IcmpApp, IcmpConfig, IcmpDrop, IcmpError};
pub use icmp_error::{IcmpErrors, UnsentError};
pub use igmp::{Igmp, IgmpConfig, IgmpDrop};
pub use ipv4::{Accept, Ipv4, Ipv4Config, Ipv4Drop, Ipv4Successors};
pub use node::{App, Cx, Node, discard};
pub use outline::Outline;
pub use stack::{StackConfig, UdpStack, udp_stack};
pub use udp::{ChecksumPolicy, Udp, UdpApp, UdpConfig, UdpDrop};
pub use unhandled::{Unhandled, UnhandledDrop};

#[cfg(test)]
mod control_tests;
#[cfg(test)]
mod tests;
