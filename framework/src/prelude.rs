//! The items that nearly every application needs: `use wirepath::prelude::*`.

pub use crate::pipeline::tcp::{
    Caller, CallerEvent, CloseReason, ConnectionId, ConnectionOptions, ListenOptions, PreparedOrder, TcpConfig,
    TcpData, TcpEvent, TcpSent,
};
pub use crate::pipeline::{App, AppError, Cx, Datagram, IcmpError, UdpFlow, UdpOptions, for_consumers, send_to};
pub use crate::port::{Pending, Port, PortHandle, Subscription, listen, multicast, tcp_from, udp};
pub use crate::proto::{ConsumerId, TimerId};
pub use crate::time::{Duration, Instant, UnixTime};
pub use crate::worker::{StopFlag, WorkerContext};
