//! The trait of a node, and the context that it may touch.

use super::egress::{Egress, EgressCalls};
use super::outline::NodeTree;
use super::tcp::TcpSockets;
use crate::counters::{DropReason, Drops};
use crate::device::TxQueue;
use crate::mem::{Mbuf, Pool};
use crate::proto::{Host, NeighborRequest, TimerId, Timers, TimersFull, UdpSockets};
use crate::time::{Duration, Instant};

/// Everything that a node or an app may touch while it runs. All of it belongs to this worker.
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
///         self.flow = Some(cx.udp().connect(self.us, self.monitor, &UdpOptions::default())?);
///         cx.after(Duration::from_secs(1), 0)?;
///         Ok(())
///     }
///
///     fn on_datagram(&mut self, datagram: &Datagram<'_>, cx: &mut Cx<'_>) {
///         // Leaves with the doorbell of this turn, or is lost, as of a socket that does not block.
///         let (us, them) = (datagram.destination, datagram.source);
///         let _ = cx.udp().send_to(us, them, &UdpOptions::default(), datagram.payload);
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
    /// The present: the worker reads the clock once per poll, and no node does.
    pub now: Instant,
    /// Buffers. An empty pool is an event, not a panic.
    pub pool: &'a Pool,
    /// Addresses, routes and neighbors.
    pub host: &'a mut Host,
    /// The sockets that receive datagrams. [`Cx::udp`] gives the calls of which an app needs most,
    /// also while traffic runs.
    pub sockets: &'a mut UdpSockets,
    /// Connections; [`Cx::tcp`] gives the calls.
    pub(crate) tcp: &'a mut TcpSockets,
    /// Timers of the app; [`Cx::after`] sets one.
    pub(crate) timers: &'a mut Timers,
    /// The way out that all senders share.
    pub(crate) egress: &'a mut Egress,
    /// The transmit queue. The `dyn` costs per frame sent; the receive path has none.
    pub tx: &'a mut dyn TxQueue,
}

impl Cx<'_> {
    /// Has [`App::on_timer`](super::App::on_timer) called with `token` once, `delay` from now: not
    /// earlier, and later by 262 µs at most plus the length of a turn. Some 40 ns.
    ///
    /// # Errors
    /// All 1,024 timers of the worker are in use.
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

    /// Cancels a timer. False where it had expired or was canceled before.
    #[inline]
    pub fn cancel(&mut self, timer: TimerId) -> bool {
        self.timers.cancel(timer)
    }

    /// Keeps a neighbor resolved from now on: gateways, at start. A flow keeps its own next hop by
    /// itself. False where the table is full, or this interface resolves no neighbors.
    pub fn keep_neighbor(&mut self, request: NeighborRequest) -> bool {
        self.egress().keep_neighbor(request)
    }

    /// The calls of the way out, which take no more than they need.
    #[inline(always)]
    pub(super) fn egress(&mut self) -> EgressCalls<'_> {
        let Self { egress, host, pool, tx, now, .. } = self;
        EgressCalls { egress, host, pool, tx: &mut **tx, now: *now }
    }

    /// Timers of frames that wait for a neighbor: bounded work, once per poll; a ns where no frame
    /// waits.
    #[inline(always)]
    pub(crate) fn tick_egress(&mut self) {
        // A quiet way out has no resolver: one compare.
        if self.egress.resolver.is_some() && self.egress().tick_neighbors() {
            TcpSockets::notify_unreachable(self);
        }
    }

    /// The transmit queue, and the rest of the context, which lends itself again with another queue
    /// around this one: to see or to change each frame that a call posts. A few moves.
    ///
    /// ```
    /// use wirepath::device::{Offload, TxQueue};
    /// use wirepath::forward;
    /// use wirepath::mem::Mbuf;
    /// use wirepath::prelude::*;
    ///
    /// /// A queue that counts what is posted.
    /// struct Counted<'a> {
    ///     tx: &'a mut dyn TxQueue,
    ///     frames: usize,
    /// }
    ///
    /// impl TxQueue for Counted<'_> {
    ///     fn post(&mut self, mbuf: Mbuf, offload: Offload) -> Result<(), Mbuf> {
    ///         self.tx.post(mbuf, offload)?;
    ///         self.frames += 1;
    ///         Ok(())
    ///     }
    ///
    ///     forward!(tx: ring_doorbell, reap, room, in_flight, refresh_counters);
    /// }
    ///
    /// fn frames_of(cx: &mut Cx<'_>, send: impl FnOnce(&mut Cx<'_>)) -> usize {
    ///     let (tx, rest) = cx.split_tx();
    ///     let mut counted = Counted { tx, frames: 0 };
    ///     rest.with_tx(&mut counted, send);
    ///     counted.frames
    /// }
    /// ```
    #[inline]
    pub fn split_tx(&mut self) -> (&mut dyn TxQueue, CxWithoutTx<'_>) {
        let Self { now, pool, host, sockets, tcp, timers, egress, tx } = self;
        (&mut **tx, CxWithoutTx { now: *now, pool, host, sockets, tcp, timers, egress })
    }

    /// Rings the doorbell now for all posted frames instead of at the end of the turn: for frames
    /// that must not wait for the rest of the burst, such as several orders. Costs one doorbell
    /// ([`TxQueue`]); over AF_XDP that is a system call.
    #[inline]
    pub fn ring_doorbell(&mut self) {
        self.tx.ring_doorbell(self.now);
    }
}

/// A [`Cx`] whose transmit queue was [split](Cx::split_tx) off.
pub struct CxWithoutTx<'a> {
    now: Instant,
    pool: &'a Pool,
    host: &'a mut Host,
    sockets: &'a mut UdpSockets,
    tcp: &'a mut TcpSockets,
    timers: &'a mut Timers,
    egress: &'a mut Egress,
}

impl CxWithoutTx<'_> {
    /// Runs `act` with a context that sends by `tx`.
    #[inline]
    pub fn with_tx<T>(self, tx: &mut dyn TxQueue, act: impl FnOnce(&mut Cx<'_>) -> T) -> T {
        let Self { now, pool, host, sockets, tcp, timers, egress } = self;
        act(&mut Cx { now, pool, host, sockets, tcp, timers, egress, tx })
    }
}

/// Checks one header and hands the packet on. Owns its successors.
pub trait Node<A> {
    /// Takes a packet whose first byte is this node's header. The mbuf is handed on, kept, or
    /// discarded for a named reason.
    fn push(&mut self, mbuf: Mbuf, app: &mut A, cx: &mut Cx<'_>);

    /// Timers of the packets that the node keeps, then those of its successors: bounded work, once
    /// per poll. The trait has no default for it, nor for `kept`, because a node that forgot its
    /// successors would silently stop their timers.
    fn tick(&mut self, app: &mut A, cx: &mut Cx<'_>);

    /// The time at which [`tick`](Self::tick) of this node and its successors next has work if no
    /// frame comes before: may be early, never late, and `Instant::MAX` for never. For a loop that
    /// sleeps between two turns; it is not called per packet. By default `now`, so that a worker
    /// with such a node does not sleep.
    fn next_deadline(&self, cx: &Cx<'_>) -> Instant {
        cx.now
    }

    /// Packets that the node and its successors keep now, such as fragments.
    fn kept(&self) -> usize;

    /// Describes the node and its successors, for "show pipeline".
    fn outline(&self, outline: &mut NodeTree);
}

/// In an implementation of [`Node`] for the app `A`: the methods of a node that has no successor,
/// keeps no packet and has no timer.
macro_rules! keeps_nothing {
    ($app:ident) => {
        #[inline]
        fn tick(&mut self, _app: &mut $app, _cx: &mut $crate::pipeline::Cx<'_>) {}

        fn next_deadline(&self, _cx: &$crate::pipeline::Cx<'_>) -> $crate::time::Instant {
            $crate::time::Instant::MAX
        }

        fn kept(&self) -> usize {
            0
        }
    };
}
pub(super) use keeps_nothing;

/// Ends a packet for a reason: the only way to drop. Increments the reason's counter and frees the
/// buffers. Out of line, so that the many drop sites take no room in the code of the normal path.
#[cold]
#[inline(never)]
pub fn discard<R: DropReason>(mbuf: Mbuf, drops: &mut Drops<R>, reason: R) {
    drops.count(reason);
    mbuf.free();
}
