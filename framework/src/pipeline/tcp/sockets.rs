//! The worker's TCP: the machine, the paths of its connections' frames, and the calls of an app.

use core::net::{Ipv4Addr, SocketAddrV4};

use super::CallError;
use super::ConnectError;
use super::ConnectionId;
use super::ConnectionOptions;
use super::ListenError;
use super::ListenOptions;
use super::ListenerId;
use super::NotOurs;
use super::SendError;
use super::TcpConfig;
use super::TcpConfigError;
use super::TcpInfo;
use super::bytes::Bytes;
use super::next_hop::{self, LinkHeaderCache, NextHopError};
use super::output::{OutCounters, OutOffloads, TcpOutput};
use super::prefetch::Prefetcher;
use super::roster::Roster;
use super::tally::TallyCounters;
use crate::counters::Scope;
use crate::device::Capabilities;
use crate::mem::{Mbuf, advise_large_pages};
use crate::pipeline::arp::resolver::Resolver;
use crate::pipeline::node::Cx;
use crate::proto::Host;
use crate::proto::tcp::{self as machine, IcmpRefusal, Seq, TcpTally};
use crate::proto::{ConsumerId, Flow, FlowError, FlowErrorKind, HashSeed, Resolution, allocate_table};
use crate::time::Instant;
use crate::wire::icmpv4;

/// The configuration of a worker's TCP.
#[derive(Clone, Copy, Debug)]
pub struct TcpSocketsConfig {
    /// The machine's capacities.
    pub machine: TcpConfig,
    /// The device's capabilities: checksums, segmentation, chains.
    pub capabilities: Capabilities,
    /// The secret that seeds sequence numbers, ports and tables.
    pub seed: HashSeed,
}

/// The connections and listeners of a worker; [`Cx::tcp`] gives the calls. A worker without TCP has
/// none.
#[derive(Default)]
pub struct TcpSockets(pub(crate) Option<Box<Inner>>);

/// Whether the segments of a flow are steered to the worker. Local port 0 means that the port is
/// not chosen yet.
type Steering = Box<dyn Fn(Flow) -> bool + Send>;

pub(crate) struct Inner {
    pub(super) machine: machine::Tcp<Bytes>,
    pub(super) link_headers: Box<[LinkHeaderCache]>,
    pub(super) counters: OutCounters,
    tally: TallyCounters,
    pub(super) offloads: OutOffloads,
    /// The open connections, which a guardian reads; `None` without a guardian.
    /// [`TcpSockets::set_roster`] sets this; [`TcpOutput`] writes the entries when connections
    /// open, send and close.
    pub(super) roster: Option<Roster>,
    pub(super) prefetcher: Prefetcher,
    /// Buffers of the pool that others take, where the caller has set it.
    reserved_buffers: Option<usize>,
    /// Whether the segments of a flow come here, where the kernel gets some; `None` where all come.
    steering: Option<Steering>,
    /// The connection of the event that is being delivered, and its consumer: after its last event
    /// the machine has removed it.
    pub(super) delivering: Option<(ConnectionId, ConsumerId)>,
}

impl TcpSockets {
    /// When the machine has something to do next, not later.
    pub(super) fn next_deadline(&self, now: Instant, host: &Host) -> Instant {
        let inner = self.0.as_ref();
        inner.map_or(Instant::MAX, |inner| inner.machine.next_deadline(now, next_hop::changes(host)))
    }

    /// Whether a connection waits for a path to its peer.
    pub(crate) fn misses_route(&self) -> bool {
        self.0.as_ref().is_some_and(|inner| inner.machine.misses_route())
    }

    /// Without connections; counters in the scope `tcp` below `scope`. Allocates all its memory
    /// here: [`TcpConfig::bytes`], and [`TcpConfig::LINK_HEADER_CACHE_LEN`] for each connection.
    pub fn new(config: &TcpSocketsConfig, scope: &Scope) -> Result<Self, TcpConfigError> {
        let scope = scope.scope("tcp");
        Ok(Self(Some(Box::new(Inner {
            machine: machine::Tcp::with_madvise(config.machine, config.seed, advise_large_pages)?,
            link_headers: allocate_table(config.machine.connections_max, advise_large_pages, |_| LinkHeaderCache::NONE),
            counters: OutCounters::new(&scope),
            tally: TallyCounters::new(&scope),
            offloads: OutOffloads::new(&config.capabilities),
            roster: None,
            prefetcher: Prefetcher::default(),
            reserved_buffers: None,
            steering: None,
            delivering: None,
        }))))
    }

    /// Bytes that [`new`](Self::new) allocates: connections with their paths, and chunks without
    /// their buffers.
    pub fn bytes(machine: &TcpConfig) -> usize {
        machine.bytes::<Bytes>()
    }

    /// The sockets of a worker without TCP: no listener and no connection is possible.
    pub const fn none() -> Self {
        Self(None)
    }

    /// Whether this was made by [`none`](Self::none).
    pub(crate) fn is_none(&self) -> bool {
        self.0.is_none()
    }

    /// Records the open connections in `roster` for a [guardian](crate::worker::guard), which
    /// resets them when we have died. Call it once, before the first connection; it does nothing
    /// where this worker has no TCP. Panics where the roster has fewer entries than there may be
    /// connections.
    pub fn set_roster(&mut self, roster: Roster) {
        if let Some(inner) = &mut self.0 {
            assert!(
                roster.capacity() >= inner.link_headers.len(),
                "a roster has a place for each connection that there may be"
            );
            inner.roster = Some(roster);
        }
    }

    /// Sets how many of the pool's buffers the device's rings, bursts and the app take at most:
    /// where the pool has these and one for each chunk ([`TcpConfig::check_pool`]), all chunks may
    /// wait. The default is half of the buffers. Call it before
    /// [`Worker::with_tcp`](crate::worker::Worker::with_tcp).
    pub fn reserve_buffers(&mut self, reserved: usize) {
        if let Some(inner) = &mut self.0 {
            inner.reserved_buffers = Some(reserved);
        }
    }

    /// Sets the flows whose segments come to this worker, where the kernel gets all others: a
    /// connect is refused where its answers would go to the kernel. By default all segments come
    /// here.
    pub(crate) fn set_steering(&mut self, comes_here: impl Fn(Flow) -> bool + Send + 'static) {
        if let Some(inner) = &mut self.0 {
            inner.steering = Some(Box::new(comes_here));
        }
    }

    /// Sets how many buffers the worker's pool has, so that data in connections never takes the
    /// buffers that others need.
    pub(crate) fn limit_buffers(&mut self, buffers: usize) {
        let Some(inner) = &mut self.0 else { return };
        let reserved = inner.reserved_buffers;
        let reserved = reserved.filter(|&reserved| inner.machine.config().check_pool(buffers, reserved).is_ok());
        inner.machine.limit_buffers(reserved.map_or(buffers / 2, |reserved| buffers - reserved));
    }

    /// Chunks that may wait: `TcpConfig::chunks_max`, less the reserve for splitting, and less the
    /// buffers that the pool lacks.
    pub fn chunks_limit(&self) -> usize {
        self.0.as_ref().map_or(0, |inner| inner.machine.chunks_limit())
    }

    /// The machine's statistics.
    pub fn tally(&self) -> TcpTally {
        self.0.as_ref().map_or(TcpTally::default(), |inner| *inner.machine.tally())
    }

    /// Updates the counters from the tally; the worker calls it when it publishes.
    pub(crate) fn publish(&self) {
        if let Some(inner) = &self.0 {
            inner.tally.publish(inner.machine.tally());
        }
    }

    /// Connections, those in TIME-WAIT included.
    pub fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |inner| inner.machine.len())
    }

    /// Whether there is no connection.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The connection that an ICMP error is about, and its consumer.
    #[cold]
    pub(in crate::pipeline) fn quoted(&self, flow: Flow, seq: Seq) -> Option<(ConnectionId, ConsumerId)> {
        let machine = &self.0.as_ref()?.machine;
        let connection = machine.quoted(flow, seq)?;
        Some((connection, machine.consumer(connection)))
    }

    /// Passes an ICMP error about a segment of ours to the machine; `None` where there is no TCP.
    #[cold]
    pub(in crate::pipeline) fn take_error(
        error: &FlowError,
        seq: Seq,
        cx: &mut Cx<'_>,
    ) -> Option<Result<(), IcmpRefusal>> {
        let (flow, now) = (error.flow, cx.now);
        Inner::call(cx, |machine, output| match error.kind {
            FlowErrorKind::Unreachable(icmpv4::Unreachable::FragmentationNeeded { mtu }) => {
                machine.path_mtu(flow, mtu, seq, now, output)
            }
            _ => machine.unreachable(flow, seq, now, output),
        })
    }

    /// Ends the connection attempts whose SYNs did not leave because the next hop did not reply to
    /// ARP.
    #[cold]
    pub(in crate::pipeline) fn notify_unreachable(cx: &mut Cx<'_>) {
        while let Some((flow, seq)) = cx.egress.resolver.as_mut().and_then(Resolver::next_unreached) {
            let now = cx.now;
            // A connection that is gone or established by now has nothing to report.
            let _ = Inner::call(cx, |machine, output| machine.no_neighbor(flow, seq, now, output));
        }
    }

    /// Checks that each connection with a deadline will be processed by then, and that the last
    /// tick, at `ticked_at`, did all that was due. Scans all connections: for tests.
    pub fn check_timers(&self, ticked_at: Option<Instant>) -> Result<(), machine::TimerFault> {
        self.0.as_ref().map_or(Ok(()), |inner| inner.machine.check_timers(ticked_at))
    }

    /// Chunks of data that wait: buffers that are out of the pool.
    pub fn chunks(&self) -> usize {
        self.0.as_ref().map_or(0, |inner| inner.machine.chunks())
    }
}

impl Inner {
    /// Calls the machine with its output. The machine is out of the context meanwhile.
    #[inline(always)]
    pub(super) fn call<T>(
        cx: &mut Cx<'_>,
        call: impl FnOnce(&mut machine::Tcp<Bytes>, &mut TcpOutput<'_, '_>) -> T,
    ) -> Option<T> {
        let mut inner = cx.tcp.0.take()?;
        let Self { machine, link_headers, counters, offloads, roster, .. } = &mut *inner;
        let mut output = TcpOutput { cx, link_headers, counters, offloads: *offloads, roster };
        let result = call(machine, &mut output);
        // The replaced value is `None`: nothing to drop.
        core::mem::forget(cx.tcp.0.replace(inner));
        Some(result)
    }
}

impl<'a> Cx<'a> {
    /// The app's calls of TCP.
    #[inline]
    pub fn tcp(&mut self) -> TcpCalls<'_, 'a> {
        TcpCalls(self)
    }
}

/// The calls of an app, named after the socket calls. Each returns its outcome at once;
/// [`App::on_tcp_event`](crate::pipeline::App::on_tcp_event) reports what happens later.
pub struct TcpCalls<'x, 'a>(pub(super) &'x mut Cx<'a>);

impl TcpCalls<'_, '_> {
    /// Listens at `local`; the unspecified address means all of our addresses.
    pub fn listen(&mut self, local: SocketAddrV4, options: &ListenOptions) -> Result<ListenerId, ListenError> {
        let is_any = local.ip().is_unspecified();
        let known = if is_any { Ok(()) } else { self.check_own(*local.ip()) };
        let Some(inner) = &mut self.0.tcp.0 else { return Err(ListenError::NoTcp) };
        known.map_err(ListenError::NotOurs)?;
        inner.machine.listen(local, options)
    }

    /// Opens a connection: the SYN leaves with this turn. An unspecified local address becomes that
    /// of the route, port 0 a free one. `Connected` or `Closed` reports the outcome. Where the SYN
    /// cannot leave, for example because the link is down, the event
    /// [`NoRoute`](super::TcpEvent::NoRoute) reports that with the next turn, and
    /// [`unreachable`](Self::unreachable) at once; the SYN leaves by itself as soon as it can.
    ///
    /// # Errors
    /// No route, no free port, no room; and [`ConnectError::NotSubscribed`] on a port that shares
    /// its interface with the kernel, where no subscription ([`tcp_from`](crate::port::tcp_from))
    /// brings the answers here.
    pub fn connect(
        &mut self,
        local: SocketAddrV4,
        remote: SocketAddrV4,
        options: &ConnectionOptions,
        consumer: ConsumerId,
    ) -> Result<ConnectionId, ConnectError> {
        let flow = self.flow_from(local, remote)?;
        let steering = self.0.tcp.0.as_ref().and_then(|inner| inner.steering.as_ref());
        if steering.is_some_and(|comes_here| !comes_here(flow)) {
            return Err(ConnectError::NotSubscribed { local: flow.local, remote });
        }
        let now = self.0.now;
        Inner::call(self.0, |machine, output| machine.connect(flow, options, consumer, now, output))
            .unwrap_or(Err(ConnectError::NoTcp))
    }

    /// Whether no connection has these two ends, or one in TIME-WAIT that
    /// [`connect`](Self::connect) would replace now. For a caller that gets its local port from
    /// elsewhere; port 0 is not free.
    pub fn is_free(&self, local: SocketAddrV4, remote: SocketAddrV4, options: &ConnectionOptions) -> bool {
        let (Ok(flow), Some(inner)) = (self.flow_from(local, remote), &self.0.tcp.0) else { return false };
        inner.machine.is_free(flow, options, self.0.now)
    }

    /// The ends of a connection. An unspecified local address becomes that of the route.
    fn flow_from(&self, local: SocketAddrV4, remote: SocketAddrV4) -> Result<Flow, ConnectError> {
        let source = match self.0.host.resolve(*remote.ip(), self.0.now) {
            Resolution::Station { source, .. } | Resolution::NeighborMissing { source, .. } => source,
            Resolution::NoRoute => return Err(ConnectError::NoRoute(*remote.ip())),
            Resolution::Local => return Err(ConnectError::LocalAddress(remote)),
            Resolution::Group { .. } => return Err(ConnectError::BadAddress(remote)),
        };
        let ip = if local.ip().is_unspecified() { source } else { *local.ip() };
        self.check_own(ip).map_err(ConnectError::NotOurs)?;
        Ok(Flow { local: SocketAddrV4::new(ip, local.port()), remote })
    }

    /// Connections, those in TIME-WAIT included.
    pub fn len(&self) -> usize {
        self.0.tcp.len()
    }

    /// Whether there is no connection.
    pub fn is_empty(&self) -> bool {
        self.0.tcp.is_empty()
    }

    /// The consumer of a connection, from [`connect`](Self::connect) or its listener's options;
    /// consumer 0 where the connection is gone. Within
    /// [`on_tcp_event`](crate::pipeline::App::on_tcp_event) it also works for the connection that
    /// the event ends.
    pub fn consumer(&mut self, id: ConnectionId) -> ConsumerId {
        let Some(inner) = &self.0.tcp.0 else { return ConsumerId::default() };
        let delivering = inner.delivering.filter(|(delivering, _)| *delivering == id);
        delivering.map_or_else(|| inner.machine.consumer(id), |(_, consumer)| consumer)
    }

    /// The reason why there is no path to a connection's peer at the moment; `None` if there is
    /// one. Looks up routes and neighbors.
    pub fn unreachable(&mut self, id: ConnectionId) -> Option<NextHopError> {
        let flow = self.machine()?.flow(id)?;
        NextHopError::check(*flow.remote.ip(), self.0)
    }

    /// Sends a copy of `payload`, or of as much from its front as fits, and returns the number of
    /// bytes; `Writable` reports room for the rest. Data within the windows leaves with the next
    /// doorbell, of this turn or of [`Cx::ring_doorbell`], where the peer is reachable. Where the
    /// link is down, no route leads there or the neighbor is not known, the data waits, and is sent
    /// once and in order as soon as there is a path. A caller that must know at once uses
    /// [`fire`](Self::fire), which reports it, or [`try_fire`](Self::try_fire), which then takes
    /// nothing.
    #[inline]
    pub fn send(&mut self, id: ConnectionId, payload: &[u8]) -> Result<usize, SendError> {
        if self.send_fast(id, payload) { Ok(payload.len()) } else { self.send_any(id, payload) }
    }

    /// Sends a copy of as much as fits, on any path.
    fn send_any(&mut self, id: ConnectionId, payload: &[u8]) -> Result<usize, SendError> {
        let (now, pool) = (self.0.now, self.0.pool);
        let sums = self.0.tcp.0.as_ref().is_some_and(|inner| !inner.offloads.checksum);
        let make = |bytes: &[u8]| Some(Bytes::copy(bytes, pool.alloc()?, sums));
        Inner::call(self.0, |machine, output| machine.send_copy(id, payload, make, now, output))
            .unwrap_or(Err(SendError::NotFound))
    }

    /// Sends the payload in `mbuf` without a copy: headers go into its headroom. Takes all of it,
    /// or returns it. The mbuf must be linear; where it is longer than a segment it is cut into
    /// several.
    #[inline]
    pub fn send_mbuf(&mut self, id: ConnectionId, payload: Mbuf) -> Result<(), (SendError, Mbuf)> {
        if !payload.is_linear() || payload.is_empty() {
            return Err((SendError::NotLinear, payload));
        }
        let now = self.0.now;
        let mut payload = Some(Bytes::of(payload));
        let sent = Inner::call(self.0, |machine, output| {
            let payload = payload.take().expect("the call is made once");
            machine.send(id, payload, now, output)
        });
        let (error, mut back) = match (sent, payload) {
            (Some(Ok(())), _) => return Ok(()),
            (Some(Err(refused)), _) => refused,
            (None, Some(payload)) => (SendError::NotFound, payload),
            (None, None) => unreachable!("either the call took it or it is here"),
        };
        Err((error, back.take_mbuf().expect("what is refused was not touched")))
    }

    /// We send no more: a FIN follows the data that was queued. The peer's data still arrives.
    pub fn shutdown(&mut self, id: ConnectionId) -> Result<(), CallError> {
        let now = self.0.now;
        Inner::call(self.0, |machine, output| machine.shutdown(id, now, output)).unwrap_or(Err(CallError::NotFound))
    }

    /// Ends both directions for the app: it sends nothing more and receives nothing more.
    /// `ConnectionOptions::linger` limits how long `Closed` waits for the queued data.
    pub fn close(&mut self, id: ConnectionId) -> Result<(), CallError> {
        let now = self.0.now;
        Inner::call(self.0, |machine, output| machine.close(id, now, output)).unwrap_or(Err(CallError::NotFound))
    }

    /// Ends the connection at once: queued data is dropped, and the peer receives a reset. `Closed`
    /// follows, unless it was reported already with `LingerTimedOut` while the connection went on.
    pub fn abort(&mut self, id: ConnectionId) -> Result<(), CallError> {
        let now = self.0.now;
        Inner::call(self.0, |machine, output| machine.abort(id, now, output)).unwrap_or(Err(CallError::NotFound))
    }

    /// [`abort`](Self::abort) of all connections from slot `first` on, `limit` at most. Returns how
    /// many were aborted, and the slot to go on at as long as a connection remains or its reset
    /// waits for a buffer or the ring.
    pub(crate) fn abort_from(&mut self, first: u32, limit: usize) -> (usize, Option<u32>) {
        let now = self.0.now;
        Inner::call(self.0, |machine, output| machine.abort_from(first, limit, now, output)).unwrap_or((0, None))
    }

    /// The app accepts no data now: data waits, and the window closes when the receive buffer is
    /// full. Where the connection ends otherwise than by `Finished`, the waiting data is still
    /// delivered, and `Closed` after it.
    pub fn pause(&mut self, id: ConnectionId) -> Result<(), CallError> {
        self.machine().map_or(Err(CallError::NotFound), |machine| machine.pause(id))
    }

    /// The app accepts data again: data that waits follows with this turn.
    pub fn resume(&mut self, id: ConnectionId) -> Result<(), CallError> {
        self.machine().map_or(Err(CallError::NotFound), |machine| machine.resume(id))
    }

    /// The options of a connection as they were set. Whether the handshake has negotiated them is
    /// in its [`info`](Self::info): the peer may have refused.
    pub fn options(&mut self, id: ConnectionId) -> Option<ConnectionOptions> {
        self.machine()?.options(id)
    }

    /// Sets the options of a connection; those that the handshake has settled do not change.
    pub fn set_options(&mut self, id: ConnectionId, options: &ConnectionOptions) -> Result<(), CallError> {
        let now = self.0.now;
        Inner::call(self.0, |machine, output| machine.set_options(id, options, now, output))
            .unwrap_or(Err(CallError::NotFound))
    }

    /// The state of a connection, like a socket's `TCP_INFO`.
    pub fn info(&mut self, id: ConnectionId) -> Option<TcpInfo> {
        let now = self.0.now;
        self.machine()?.info(id, now)
    }

    /// The state of a connection at its end, for an app that gets its `Closed` event, after which
    /// the name is invalid; `None` once another one has ended.
    pub fn info_at_end(&mut self, id: ConnectionId) -> Option<TcpInfo> {
        let now = self.0.now;
        self.machine()?.info_at_end(id, now)
    }

    /// The statistics of this worker's TCP, all connections together: retransmissions, timeouts,
    /// resets.
    pub fn tally(&self) -> TcpTally {
        self.0.tcp.tally()
    }

    /// Sets the options of the connections that a listener accepts from now on. Those whose
    /// handshake has begun keep theirs.
    pub fn set_listen_options(&mut self, id: ListenerId, options: &ConnectionOptions) -> Result<(), CallError> {
        self.machine().map_or(Err(CallError::NotFound), |machine| machine.set_listen_options(id, options))
    }

    /// Sets how many handshakes of a listener may be open at the same time; beyond, the answer is a
    /// SYN cookie.
    pub fn set_backlog(&mut self, id: ListenerId, backlog: u32) -> Result<(), CallError> {
        self.machine().map_or(Err(CallError::NotFound), |machine| machine.set_backlog(id, backlog))
    }

    /// Closes a listener. Accepted connections stay; false where there is no such listener. Walks
    /// over all connection slots: with a million, milliseconds of this turn.
    pub fn close_listener(&mut self, id: ListenerId) -> bool {
        self.machine().is_some_and(|machine| machine.close_listener(id))
    }

    fn check_own(&self, address: Ipv4Addr) -> Result<(), NotOurs> {
        let host = &*self.0.host;
        let ours = host.addresses().first().map(|first| first.address());
        if host.is_own(address) { Ok(()) } else { Err(NotOurs { address, ours }) }
    }

    pub(super) fn machine(&mut self) -> Option<&mut machine::Tcp<Bytes>> {
        self.0.tcp.0.as_mut().map(|inner| &mut inner.machine)
    }
}
