//! The application at the end of a pipeline.

use core::ops::Range;

use super::icmp::node::{EchoReply, IcmpError};
use super::node::Cx;
use super::tcp::{AcceptDecision, ConnectionId, ListenerId, TcpData, TcpEvent};
use super::udp::datagram::Datagram;

use crate::mem::Mbuf;
use crate::proto::{ConsumerId, Flow};
use crate::time::Instant;
use crate::wire::EtherType;

/// The reason why an app cannot start: a sentence for the operator.
pub type AppError = Box<dyn core::error::Error + Send + Sync>;

/// The application: one value, owned by its worker and passed down the call, so that it needs no
/// lock and no cell. Each method has a default that does nothing. The methods run on the worker's
/// core, and the next packet waits until they return. Several apps share a worker as a tuple
/// ([`for_consumers`](super::for_consumers)). An app that ends its port by itself keeps a clone of
/// [`worker.stop`](crate::worker::WorkerContext::stop), and calls its `stop`.
///
/// ```
/// use wirepath::pipeline::{App, Cx, Datagram};
///
/// #[derive(Default)]
/// struct Ticks {
///     bytes: u64,
/// }
///
/// impl App for Ticks {
///     fn on_datagram(&mut self, datagram: &Datagram<'_>, _cx: &mut Cx<'_>) {
///         self.bytes += datagram.payload.len() as u64;
///     }
/// }
/// ```
pub trait App {
    /// A burst of several frames is processed next: an app with state of thousands of peers asks
    /// the CPU here for what it will need. Nothing of the frames is checked, and some are for
    /// others. Not called for a single frame, whose misses nothing overlaps with.
    #[inline]
    fn prefetch(&mut self, frames: &[Mbuf]) {
        let _ = frames;
    }

    /// A datagram for `datagram.consumer`. To keep its bytes, [`hold`](Datagram::hold) it.
    fn on_datagram(&mut self, datagram: &Datagram<'_>, cx: &mut Cx<'_>) {
        let _ = (datagram, cx);
    }

    /// A peer wants to connect to a listener of `consumer`. Called for its SYN, before any state is
    /// kept; called again for a repeated SYN and when a SYN cookie comes back. So decide by the
    /// flow, and count connections by `Connected`.
    fn on_tcp_accept(&mut self, listener: ListenerId, consumer: ConsumerId, flow: Flow) -> AcceptDecision {
        let _ = (listener, consumer, flow);
        AcceptDecision::Yes
    }

    /// Something happened to a connection.
    fn on_tcp_event(&mut self, connection: ConnectionId, event: TcpEvent, cx: &mut Cx<'_>) {
        let _ = (connection, event, cx);
    }

    /// The next bytes of a connection. To keep them, [`hold`](TcpData::hold) them; data sent from
    /// here carries the acknowledgment.
    fn on_tcp_data(&mut self, data: &TcpData<'_>, cx: &mut Cx<'_>) {
        let _ = (data, cx);
    }

    /// An ICMP error reports a problem with a datagram that a consumer sent. Called once for each
    /// consumer that has the flow.
    fn on_icmp_error(&mut self, error: &IcmpError<'_>, cx: &mut Cx<'_>) {
        let _ = (error, cx);
    }

    /// An ICMP error reports a problem with a segment of a connection, whose quoted number is in
    /// flight; not for a path MTU. An attempt to connect ends, which
    /// [`on_tcp_event`](Self::on_tcp_event) reports next; a connection goes on.
    fn on_tcp_icmp_error(&mut self, connection: ConnectionId, error: &IcmpError<'_>, cx: &mut Cx<'_>) {
        let _ = (connection, error, cx);
    }

    /// An echo reply arrived. Returns true where the app had sent the request.
    fn on_echo_reply(&mut self, reply: &EchoReply<'_>, cx: &mut Cx<'_>) -> bool {
        let _ = (reply, cx);
        false
    }

    /// A frame to us of a protocol that the pipeline does not know, as
    /// [`Port::ethertype`](crate::port::Port::ethertype) has steered it here: its data begins
    /// behind the last VLAN tag, and may end with padding. Returns true where the app takes it; it
    /// is counted as `ethernet/drop/unknown_ethertype` where none does.
    fn on_frame(&mut self, ethertype: EtherType, frame: &Mbuf, cx: &mut Cx<'_>) -> bool {
        let _ = (ethertype, frame, cx);
        false
    }

    /// Whether the app gets the events of this consumer, so that a tuple asks it about the peers of
    /// its listeners. By default of each; [`for_consumers`](super::for_consumers) restricts it. An
    /// app around another one hands it on.
    fn is_for(&self, consumer: ConsumerId) -> bool {
        let _ = consumer;
        true
    }

    /// Adds the consumers of [`for_consumers`](super::for_consumers) to `ranges`, by which a tuple
    /// finds at its start that two of its apps share one. An app around another one hands it on.
    fn list_consumers(&self, ranges: &mut Vec<Range<u32>>) {
        let _ = ranges;
    }

    /// Called once on the worker's thread before its first turn, by a [`Port`](crate::port::Port):
    /// connect, arm timers. The port ends with the error as its message. Code that polls a
    /// [`Worker`](crate::worker::Worker) itself does the same with
    /// [`with_app`](crate::worker::Worker::with_app).
    fn on_start(&mut self, cx: &mut Cx<'_>) -> Result<(), AppError> {
        let _ = cx;
        Ok(())
    }

    /// Called once after the last turn, by a [`Port`](crate::port::Port): log out, print totals.
    /// Connections that are still open are reset afterwards.
    fn on_stop(&mut self, cx: &mut Cx<'_>) {
        let _ = cx;
    }

    /// A timer that [`Cx::after`] set has expired; it does not repeat. At most 64 expire in a turn;
    /// the rest follow in the next.
    fn on_timer(&mut self, token: u64, cx: &mut Cx<'_>) {
        let _ = (token, cx);
    }

    /// Called once per poll, after the burst: orders, housekeeping. Keep its work bounded. In a
    /// [trunk](super::VlanTrunk) it is also called once for each VLAN; `cx.host.interface()` says
    /// which one.
    fn tick(&mut self, cx: &mut Cx<'_>) {
        let _ = cx;
    }

    /// The time at which [`tick`](Self::tick) next has work if no frame arrives before, for a loop
    /// that sleeps between two turns
    /// ([`Worker::next_deadline`](crate::worker::Worker::next_deadline)). May be early, never late;
    /// `Instant::MAX` for an app without a tick, or whose tick depends on no time. By default
    /// `now`, so that no tick is missed: a worker with such an app does not sleep. Timers of
    /// [`Cx::after`] need not be considered here.
    fn next_deadline(&self, cx: &Cx<'_>) -> Instant {
        cx.now
    }
}

/// An application that does nothing: forwarding pipelines, benches.
impl App for () {
    fn next_deadline(&self, _: &Cx<'_>) -> Instant {
        Instant::MAX
    }
}
