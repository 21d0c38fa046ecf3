//! What a node is, and what it may touch.

use super::egress::Egress;
use super::outline::Outline;
use super::tcp::TcpSockets;
use crate::counters::{DropReason, Drops};
use crate::device::TxQueue;
use crate::mem::{Mbuf, Pool};
use crate::proto::{Host, TimerId, Timers, TimersFull, UdpSockets};
use crate::time::{Duration, Instant};

/// What a node or an app may touch while it runs. All of it belongs to this worker.
///
/// ```
/// use std::net::SocketAddrV4;
/// use wirepath::prelude::*;
///
/// /// Answers each datagram, and says once a second that it is there.
/// struct Answering {
///     us: SocketAddrV4,
///     monitor: SocketAddrV4,
///     flow: Option<UdpFlow>,
/// }
///
/// impl App for Answering {
///     fn on_start(&mut self, cx: &mut Cx<'_>) -> Result<(), AppError> {
///         // The headers are prepared once; each send copies them.
///         self.flow = Some(UdpFlow::connect(self.us, self.monitor, &UdpOptions::default(), cx)?);
///         cx.after(Duration::from_secs(1), 0)?;
///         Ok(())
///     }
///
///     fn on_datagram(&mut self, datagram: &Datagram<'_>, cx: &mut Cx<'_>) {
///         // Leaves with the doorbell of this turn, or is lost, as of a socket that does not block.
///         let (us, them) = (datagram.destination, datagram.source);
///         let _ = send_to(us, them, &UdpOptions::default(), datagram.payload, cx);
///     }
///
///     fn on_timer(&mut self, token: u64, cx: &mut Cx<'_>) {
///         if let Some(flow) = &mut self.flow {
///             let _ = flow.send(b"alive", cx);
///             cx.ring_doorbell(); // now, and not at the end of the turn
///         }
///         let _ = cx.after(Duration::from_secs(1), token);
///     }
/// }
/// ```
pub struct Cx<'a> {
    /// The present: read once per poll, by the worker. Nobody below reads a clock.
    pub now: Instant,
    /// Buffers. An empty pool is an event, not a panic.
    pub pool: &'a Pool,
    /// Addresses, routes and neighbors.
    pub host: &'a mut Host,
    /// Who receives which datagrams: apps bind, join and leave here, also while it runs.
    pub sockets: &'a mut UdpSockets,
    /// Connections; [`Cx::tcp`] gives the calls.
    pub tcp: &'a mut TcpSockets,
    /// Timers of the app; [`Cx::after`] sets one.
    pub timers: &'a mut Timers,
    /// The way out: what everybody who sends shares.
    pub egress: &'a mut Egress,
    /// Where frames leave. The `dyn` is paid per frame sent; the receive path has none.
    pub tx: &'a mut dyn TxQueue,
}

impl Cx<'_> {
    /// Has [`App::on_timer`](super::App::on_timer) called with `token` once, `delay` from now: not
    /// before, and late by 262 µs at most and by what turns are apart. Some 40 ns.
    ///
    /// # Errors
    /// As many timers run as the worker has, 1,024.
    ///
    /// ```
    /// use wirepath::prelude::*;
    ///
    /// /// Notices that nothing came for a while.
    /// #[derive(Default)]
    /// struct Watch {
    ///     silence: Option<TimerId>,
    /// }
    ///
    /// impl App for Watch {
    ///     fn on_datagram(&mut self, _: &Datagram<'_>, cx: &mut Cx<'_>) {
    ///         if let Some(timer) = self.silence.take() {
    ///             cx.cancel(timer);
    ///         }
    ///         self.silence = cx.after(Duration::from_millis(250), 1).ok();
    ///     }
    ///
    ///     fn on_timer(&mut self, _token: u64, _cx: &mut Cx<'_>) {
    ///         self.silence = None;
    ///     }
    /// }
    /// ```
    #[inline]
    pub fn after(&mut self, delay: Duration, token: u64) -> Result<TimerId, TimersFull> {
        self.timers.after(self.now, delay, token)
    }

    /// Takes a timer back. False where it was due or cancelled before.
    #[inline]
    pub fn cancel(&mut self, timer: TimerId) -> bool {
        self.timers.cancel(timer)
    }

    /// Tells the device now of all that was posted, and not at the end of the turn: for what must
    /// not wait for the rest of the burst, such as some orders at once. Costs what ringing costs
    /// ([`TxQueue`]), of AF_XDP a system call.
    #[inline]
    pub fn ring_doorbell(&mut self) {
        self.tx.ring_doorbell(self.now);
    }
}

/// Checks one header and hands the packet on. Owns its successors.
pub trait Node<A> {
    /// Takes a packet whose first byte is this node's header. The mbuf is handed on, kept, or
    /// discarded for a named reason.
    fn push(&mut self, mbuf: Mbuf, app: &mut A, cx: &mut Cx<'_>);

    /// Timers of what the node keeps, then those of its successors: bounded work, once per poll. It
    /// has no default here, because a node that forgets its successors stops their clocks without a
    /// word; the same goes for `kept`.
    fn tick(&mut self, app: &mut A, cx: &mut Cx<'_>);

    /// Packets that the node and its successors keep now: fragments that wait for the rest.
    fn kept(&self) -> usize;

    /// Writes the node and its successors down, for "show pipeline".
    fn outline(&self, outline: &mut Outline);
}

/// Ends a packet for a reason. The one way to drop: the reason's counter goes up and the buffers go
/// home. Out of line, so that the many places where a packet may end take no room between those
/// where it goes on.
#[cold]
#[inline(never)]
pub fn discard<R: DropReason>(mbuf: Mbuf, drops: &mut Drops<R>, reason: R) {
    drops.count(reason);
    mbuf.free();
}
