//! A subscription: steering, membership and socket in one.

use core::fmt;
use core::net::{Ipv4Addr, SocketAddrV4};

use crate::pipeline::tcp::ListenOptions;
use crate::proto::ConsumerId;
use crate::worker::live::FlowSpec;

/// Frames that a port receives: they are steered to the port's workers and not to the kernel, a
/// group is joined, and each worker's sockets deliver to the app.
#[derive(Clone, Debug)]
#[must_use = "a subscription does nothing before Port::subscribe takes it"]
pub struct Subscription {
    pub(super) flow: FlowSpec,
    pub(super) consumer: ConsumerId,
    pub(super) listens: Option<ListenOptions>,
}

/// Datagrams to a group, from any sender unless a [`source`](Subscription::source) is named.
///
/// ```
/// use wirepath::prelude::*;
///
/// let any_source = multicast([239, 1, 1, 1], 9000);
/// let one_source = multicast([232, 1, 1, 1], 9000).source([198, 51, 100, 1]);
/// let two_sources = one_source.source([198, 51, 100, 2]);
/// assert_eq!(any_source.to_string(), "UDP to 239.1.1.1:9000");
/// assert_eq!(two_sources.to_string(), "UDP to 232.1.1.1:9000 from 198.51.100.1 or 198.51.100.2");
/// ```
pub fn multicast(group: impl Into<Ipv4Addr>, port: u16) -> Subscription {
    Subscription::of(FlowSpec::udp(group.into(), port))
}

/// Datagrams to a local address, or with [`Ipv4Addr::UNSPECIFIED`] to any address of the interface.
///
/// ```
/// use std::net::Ipv4Addr;
/// use wirepath::prelude::*;
///
/// let answers = udp([10, 0, 0, 2], 5000);
/// let on_any_address = udp(Ipv4Addr::UNSPECIFIED, 5000).vlan(7);
/// assert_eq!(on_any_address.to_string(), "UDP to 0.0.0.0:5000 VLAN 7");
/// # drop(answers);
/// ```
pub fn udp(address: impl Into<Ipv4Addr>, port: u16) -> Subscription {
    Subscription::of(FlowSpec::udp(address.into(), port))
}

/// Connections to a local address, or with [`Ipv4Addr::UNSPECIFIED`] to any: the port's workers
/// listen there. The port needs [`tcp`](super::Port::tcp).
///
/// ```no_run
/// use wirepath::prelude::*;
///
/// struct Echo;
/// impl App for Echo {
///     fn on_tcp_data(&mut self, data: &TcpData<'_>, cx: &mut Cx<'_>) {
///         // Bytes beyond the free send buffer are lost here.
///         let _ = cx.tcp().send(data.connection, data.payload);
///     }
/// }
///
/// fn main() -> wirepath::Result<()> {
///     let few = ListenOptions { connections_per_source: Some(4), ..ListenOptions::default() };
///     let echo = listen([10, 0, 0, 2], 7).options(few);
///     Port::open("eth1")?.tcp().subscribe(echo).run(|_worker| Echo)
/// }
/// ```
pub fn listen(address: impl Into<Ipv4Addr>, port: u16) -> Subscription {
    Subscription { listens: Some(ListenOptions::default()), ..Subscription::of(FlowSpec::tcp(address.into(), port)) }
}

/// Segments from a peer that the app connects to. The port needs [`tcp`](super::Port::tcp). On an
/// interface shared with the kernel, segments of the kernel's own connections to this peer would
/// arrive here too, and be reset: set a [`local_port`](Subscription::local_port).
///
/// ```no_run
/// use std::net::{Ipv4Addr, SocketAddrV4};
/// use wirepath::prelude::*;
///
/// struct Session;
/// impl App for Session {
///     fn on_start(&mut self, cx: &mut Cx<'_>) -> Result<(), AppError> {
///         let local = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 40_000);
///         let gateway = "10.0.0.1:9100".parse()?;
///         cx.tcp().connect(local, gateway, &ConnectionOptions::default(), ConsumerId(0))?;
///         Ok(())
///     }
///     fn on_tcp_event(&mut self, connection: ConnectionId, event: TcpEvent, cx: &mut Cx<'_>) {
///         if let TcpEvent::Connected { .. } = event {
///             let _ = cx.tcp().send(connection, b"logon");
///         }
///     }
/// }
///
/// fn main() -> wirepath::Result<()> {
///     let answers = tcp_from([10, 0, 0, 1], 9100).local_port(40_000);
///     Port::open("eth1")?.tcp().subscribe(answers).run(|_worker| Session)
/// }
/// ```
pub fn tcp_from(address: impl Into<Ipv4Addr>, port: u16) -> Subscription {
    Subscription::of(FlowSpec::tcp_from(SocketAddrV4::new(address.into(), port)))
}

impl Subscription {
    fn of(flow: FlowSpec) -> Self {
        Self { flow, consumer: ConsumerId(0), listens: None }
    }

    /// From this sender only (source-specific multicast, RFC 4607); several calls name several
    /// senders. By default from any.
    pub fn source(mut self, source: impl Into<Ipv4Addr>) -> Self {
        self.flow.sources.push(source.into());
        self
    }

    /// In this VLAN only. By default tagged or untagged.
    pub fn vlan(mut self, vid: u16) -> Self {
        self.flow.vlan = Some(vid);
        self
    }

    /// On this queue only. By default on all queues of the port.
    pub fn queue(mut self, idx: u16) -> Self {
        self.flow.queue = Some(idx);
        self
    }

    /// For [`tcp_from`]: to this local port only, from which the app connects. By default to any
    /// local port.
    pub fn local_port(mut self, port: u16) -> Self {
        self.flow = self.flow.to_port(port);
        self
    }

    /// The consumer reported to the app as `datagram.consumer` and `data.consumer`. By default
    /// [`ConsumerId`] 0.
    pub fn consumer(mut self, consumer: u32) -> Self {
        self.consumer = ConsumerId(consumer);
        self
    }

    /// For [`listen`]: replaces [`ListenOptions::default`]. The consumer remains that of
    /// [`consumer`](Self::consumer).
    pub fn options(mut self, options: ListenOptions) -> Self {
        self.listens = Some(options);
        self
    }

    /// Whether the worker of this queue receives it.
    pub(super) fn is_for(&self, queue: u16) -> bool {
        self.flow.queue.is_none_or(|only| only == queue)
    }

    /// Whether flow and consumer are the same. The options of [`listen`] may differ.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.flow == other.flow && self.consumer == other.consumer && self.listens.is_some() == other.listens.is_some()
    }
}

/// For the operator: `UDP to 239.1.1.1:9000 from 10.0.0.1`.
impl fmt::Display for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.flow.fmt(f)
    }
}
