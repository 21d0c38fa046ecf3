//! What nearly every application names: `use wirepath::prelude::*`.

pub use crate::pipeline::tcp::{
    CloseReason, ConnectionId, ConnectionOptions, ListenOptions, Sent, TcpData, TcpEvent, Template,
};
pub use crate::pipeline::{App, AppError, Cx, Datagram, IcmpError, UdpFlow, UdpOptions, for_consumers, send_to};
pub use crate::port::{Port, PortHandle, Subscription, listen, multicast, tcp_from, udp};
pub use crate::proto::ConsumerId;
pub use crate::time::{Duration, Instant, UnixTime};
