//! The worker's TCP: the machine, the ways of its connections' frames, and the calls of an app.

use core::net::{Ipv4Addr, SocketAddrV4};

use super::super::arp::resolver::Resolver;
use super::super::node::Cx;
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
use super::output::{OutCounters, OutOffloads, TcpOutput};
use super::path::{Path, Unreachable};
use super::prefetch::Prefetcher;
use super::roster::Roster;
use super::tally::TallyCounters;
use crate::counters::Scope;
use crate::device::Capabilities;
use crate::mem::{Mbuf, advise_large_pages};
use crate::proto::tcp::{self as machine, IcmpRefusal, Seq, TcpTally};
use crate::proto::{ConsumerId, Flow, FlowError, FlowErrorKind, HashSeed, Resolution, allocate_table};
use crate::time::Instant;
use crate::wire::icmpv4;

/// What a worker's TCP is made of.
#[derive(Clone, Copy, Debug)]
pub struct TcpSocketsConfig {
    /// How much it holds.
    pub machine: TcpConfig,
    /// What the device can do: checksums, segmentation, chains.
    pub capabilities: Capabilities,
    /// The secret of sequence numbers, ports and tables.
    pub seed: HashSeed,
}

/// The connections and listeners of a worker; [`Cx::tcp`] gives the calls. A worker without TCP has
/// none.
#[derive(Default)]
pub struct TcpSockets(pub(in crate::pipeline) Option<Box<Inner>>);

pub(in crate::pipeline) struct Inner {
    pub(super) machine: machine::Tcp<Bytes>,
    pub(super) paths: Box<[Path]>,
    pub(super) counters: OutCounters,
    tally: TallyCounters,
    pub(super) offloads: OutOffloads,
    pub(super) roster: Option<Roster>,
    pub(super) prefetcher: Prefetcher,
    /// Buffers of the pool that others take, where that was said.
    others: Option<usize>,
    /// The connection whose event is told, and whose it is: after its last one the machine has
    /// forgotten it.
    pub(super) told: Option<(ConnectionId, ConsumerId)>,
}

impl TcpSockets {
    /// Without connections; counters in the scope `tcp` below `scope`. Takes all memory:
    /// [`TcpConfig::bytes`], and [`TcpConfig::PATH_LEN`] for each connection.
    pub fn new(config: &TcpSocketsConfig, scope: &Scope) -> Result<Self, TcpConfigError> {
        let scope = scope.scope("tcp");
        Ok(Self(Some(Box::new(Inner {
            machine: machine::Tcp::with_madvise(config.machine, config.seed, advise_large_pages)?,
            paths: allocate_table(config.machine.connections_max, advise_large_pages, |_| Path::NONE),
            counters: OutCounters::new(&scope),
            tally: TallyCounters::new(&scope),
            offloads: OutOffloads::new(&config.capabilities),
            roster: None,
            prefetcher: Prefetcher::default(),
            others: None,
            told: None,
        }))))
    }

    /// Bytes that [`new`](Self::new) takes: connections, with their ways, and chunks, without the
    /// buffers in these.
    pub fn bytes(machine: &TcpConfig) -> usize {
        machine.bytes::<Bytes>()
    }

    /// For a worker without TCP: nobody listens, and no connection can be had.
    pub const fn none() -> Self {
        Self(None)
    }

    /// Whether this is [`none`](Self::none).
    pub(crate) fn is_none(&self) -> bool {
        self.0.is_none()
    }

    /// Writes the open connections down for a [guardian](crate::worker::guard), who ends them when
    /// we have died. Once, before there are any; nothing where this worker has no TCP. Panics where
    /// the roster has fewer places than there may be connections.
    pub fn keep(&mut self, roster: Roster) {
        if let Some(inner) = &mut self.0 {
            assert!(
                roster.capacity() >= inner.paths.len(),
                "a roster has a place for each connection that there may be"
            );
            inner.roster = Some(roster);
        }
    }

    /// Says how many of the pool's buffers the device's rings, bursts and the app take at most:
    /// where the pool has as many and one for each chunk ([`TcpConfig::check_pool`]), all chunks
    /// may wait. Without being told, half of the buffers is theirs. Before
    /// [`Worker::with_tcp`](crate::worker::Worker::with_tcp).
    pub fn leave(&mut self, others: usize) {
        if let Some(inner) = &mut self.0 {
            inner.others = Some(others);
        }
    }

    /// Says how many buffers the worker's pool has, so that what waits in connections never takes
    /// those that others need.
    pub(crate) fn limit_buffers(&mut self, buffers: usize) {
        let Some(inner) = &mut self.0 else { return };
        let others = inner.others.filter(|&others| inner.machine.config().check_pool(buffers, others).is_ok());
        inner.machine.limit_buffers(others.map_or(buffers / 2, |others| buffers - others));
    }

    /// Pieces of data that may wait: `TcpConfig::chunks_max`, less what splitting takes, and less
    /// what the pool lacks.
    pub fn chunks_limit(&self) -> usize {
        self.0.as_ref().map_or(0, |inner| inner.machine.chunks_limit())
    }

    /// What the machine has done.
    pub fn tally(&self) -> TcpTally {
        self.0.as_ref().map_or(TcpTally::default(), |inner| *inner.machine.tally())
    }

    /// Brings the counters of the tally up to date; the worker does when it publishes.
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

    /// Tells the machine what an ICMP message says of a segment of ours; None where there is no
    /// TCP.
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

    /// Ends the calls whose SYNs did not leave, as nobody answered for their next hop.
    #[cold]
    pub(in crate::pipeline) fn tell_unreached(cx: &mut Cx<'_>) {
        while let Some((flow, seq)) = cx.egress.resolver.as_mut().and_then(Resolver::next_unreached) {
            let now = cx.now;
            // Of those that are gone meanwhile, or stand, nothing is to be said.
            let _ = Inner::call(cx, |machine, output| machine.no_neighbor(flow, seq, now, output));
        }
    }

    /// Whether every connection that waits for a moment will be looked at by then, and whether what
    /// was due at the last tick, at `ticked_at`, was done then. Walks over all: for tests.
    pub fn check_timers(&self, ticked_at: Option<Instant>) -> Result<(), machine::TimerFault> {
        self.0.as_ref().map_or(Ok(()), |inner| inner.machine.check_timers(ticked_at))
    }

    /// Pieces of data that wait: buffers of the pool that are not at home.
    pub fn chunks(&self) -> usize {
        self.0.as_ref().map_or(0, |inner| inner.machine.chunks())
    }
}

impl Inner {
    /// A call of the machine, with the way out. The machine is out of the context's hands
    /// meanwhile.
    #[inline(always)]
    pub(super) fn call<T>(
        cx: &mut Cx<'_>,
        call: impl FnOnce(&mut machine::Tcp<Bytes>, &mut TcpOutput<'_, '_>) -> T,
    ) -> Option<T> {
        let mut inner = cx.tcp.0.take()?;
        let Self { machine, paths, counters, offloads, roster, .. } = &mut *inner;
        let mut output = TcpOutput { cx, paths, counters, offloads: *offloads, roster };
        let result = call(machine, &mut output);
        // Nothing is there to be dropped.
        core::mem::forget(cx.tcp.0.replace(inner));
        Some(result)
    }
}

impl<'a> Cx<'a> {
    /// What an app may ask of TCP.
    #[inline]
    pub fn tcp(&mut self) -> TcpCalls<'_, 'a> {
        TcpCalls(self)
    }
}

/// The calls of an app, by the names of the socket calls. Each says at once what became of it; what
/// happens later is told by [`App::on_tcp_event`](crate::pipeline::App::on_tcp_event).
pub struct TcpCalls<'x, 'a>(pub(super) &'x mut Cx<'a>);

impl TcpCalls<'_, '_> {
    /// Listens at `local`; the unspecified address stands for all of ours.
    pub fn listen(&mut self, local: SocketAddrV4, options: &ListenOptions) -> Result<ListenerId, ListenError> {
        let is_any = local.ip().is_unspecified();
        let known = if is_any { Ok(()) } else { self.check_own(*local.ip()) };
        let Some(inner) = &mut self.0.tcp.0 else { return Err(ListenError::NoTcp) };
        known.map_err(ListenError::NotOurs)?;
        inner.machine.listen(local, options)
    }

    /// Begins a connection: the SYN leaves with this turn. An unspecified local address becomes
    /// that of the route, port 0 a free one. `Connected` or `Closed` tells what became of it. Where
    /// it cannot leave, as the link is down, `Unreachable` tells so with the next turn,
    /// [`unreachable`](Self::unreachable) at once, and it leaves by itself when it can.
    pub fn connect(
        &mut self,
        local: SocketAddrV4,
        remote: SocketAddrV4,
        options: &ConnectionOptions,
        consumer: ConsumerId,
    ) -> Result<ConnectionId, ConnectError> {
        let source = match self.0.host.resolve(*remote.ip(), self.0.now) {
            Resolution::Station { source, .. } | Resolution::NeighborMissing { source, .. } => source,
            Resolution::NoRoute => return Err(ConnectError::NoRoute(*remote.ip())),
            Resolution::Own => return Err(ConnectError::Own(remote)),
            Resolution::Group { .. } => return Err(ConnectError::BadAddress(remote)),
        };
        let ip = if local.ip().is_unspecified() { source } else { *local.ip() };
        self.check_own(ip).map_err(ConnectError::NotOurs)?;
        let flow = Flow { local: SocketAddrV4::new(ip, local.port()), remote };
        let now = self.0.now;
        Inner::call(self.0, |machine, output| machine.connect(flow, options, consumer, now, output))
            .unwrap_or(Err(ConnectError::NoTcp))
    }

    /// Whose a connection is, by [`connect`](Self::connect) or its listener's options; consumer 0
    /// of one that is gone. In [`on_tcp_event`](crate::pipeline::App::on_tcp_event) of the
    /// connection that is told of, also where it is gone with that.
    pub fn consumer(&mut self, id: ConnectionId) -> ConsumerId {
        let Some(inner) = &self.0.tcp.0 else { return ConsumerId::default() };
        let told = inner.told.filter(|(told, _)| *told == id);
        told.map_or_else(|| inner.machine.consumer(id), |(_, consumer)| consumer)
    }

    /// What is missing on the way to the peer of a connection, or of a call, where anything is now.
    /// A look at routes and neighbors.
    pub fn unreachable(&mut self, id: ConnectionId) -> Option<Unreachable> {
        let flow = self.machine()?.flow(id)?;
        Unreachable::to(*flow.remote.ip(), self.0)
    }

    /// Sends a copy of `payload`, or of as much from its front as there is room for, and says how
    /// much; `Writable` tells when there is room for the rest. What the windows allow leaves with
    /// the next doorbell, of this turn or of [`Cx::ring_doorbell`], where there is a way to the
    /// peer; where there is none, as the link is down, no route leads there or the neighbor is not
    /// known, it waits, and leaves by itself, once and in order, when there is one. Who must know
    /// at once uses [`fire`](Self::fire), which says so, or [`fire_fast`](Self::fire_fast),
    /// which takes nothing then.
    #[inline]
    pub fn send(&mut self, id: ConnectionId, payload: &[u8]) -> Result<usize, SendError> {
        if self.send_fast(id, payload) { Ok(payload.len()) } else { self.send_any(id, payload) }
    }

    /// Sends a copy of whatever there is room for, by whatever way.
    fn send_any(&mut self, id: ConnectionId, payload: &[u8]) -> Result<usize, SendError> {
        let (now, pool) = (self.0.now, self.0.pool);
        let sums = self.0.tcp.0.as_ref().is_some_and(|inner| !inner.offloads.checksum);
        let make = |bytes: &[u8]| Some(Bytes::copy(bytes, pool.alloc()?, sums));
        Inner::call(self.0, |machine, output| machine.send_copy(id, payload, make, now, output))
            .unwrap_or(Err(SendError::NotFound))
    }

    /// Sends the payload that stands in `mbuf`, without a copy: headers go into its headroom. All
    /// of it is taken, or it comes back. It must be linear, and is cut into segments where it is
    /// longer than one.
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

    /// We send no more: a FIN follows what was handed over. What the peer sends still comes.
    pub fn shutdown(&mut self, id: ConnectionId) -> Result<(), CallError> {
        let now = self.0.now;
        Inner::call(self.0, |machine, output| machine.shutdown(id, now, output)).unwrap_or(Err(CallError::NotFound))
    }

    /// We neither send nor want more; `ConnectionOptions::linger` says how long `Closed` waits for
    /// what was handed over.
    pub fn close(&mut self, id: ConnectionId) -> Result<(), CallError> {
        let now = self.0.now;
        Inner::call(self.0, |machine, output| machine.close(id, now, output)).unwrap_or(Err(CallError::NotFound))
    }

    /// Ends it at once: what waits is dropped, and the peer hears a reset. `Closed` follows; not
    /// where it was told already, with `LingerTimedOut`, as the connection went on.
    pub fn abort(&mut self, id: ConnectionId) -> Result<(), CallError> {
        let now = self.0.now;
        Inner::call(self.0, |machine, output| machine.abort(id, now, output)).unwrap_or(Err(CallError::NotFound))
    }

    /// [`abort`](Self::abort) of all connections from a place on, `limit` at most: how many, and
    /// the place to go on at, as long as a connection stands or its reset waits for a buffer or the
    /// ring.
    pub(crate) fn abort_from(&mut self, first: u32, limit: usize) -> (usize, Option<u32>) {
        let now = self.0.now;
        Inner::call(self.0, |machine, output| machine.abort_from(first, limit, now, output)).unwrap_or((0, None))
    }

    /// The app wants no data now: it waits, and the window closes when the receive buffer is full.
    /// Where the connection ends otherwise than by `Finished`, what waits comes all the same, and
    /// `Closed` behind it.
    pub fn pause(&mut self, id: ConnectionId) -> Result<(), CallError> {
        self.machine().map_or(Err(CallError::NotFound), |machine| machine.pause(id))
    }

    /// The app wants data again: what has come meanwhile follows with this turn.
    pub fn resume(&mut self, id: ConnectionId) -> Result<(), CallError> {
        self.machine().map_or(Err(CallError::NotFound), |machine| machine.resume(id))
    }

    /// The options of a connection as they were set. Whether the SYNs have agreed on them is in its
    /// [`info`](Self::info): the peer may have refused.
    pub fn options(&mut self, id: ConnectionId) -> Option<ConnectionOptions> {
        self.machine()?.options(id)
    }

    /// Sets the options of a connection; what the handshake has settled stays as it is.
    pub fn set_options(&mut self, id: ConnectionId, options: &ConnectionOptions) -> Result<(), CallError> {
        let now = self.0.now;
        Inner::call(self.0, |machine, output| machine.set_options(id, options, now, output))
            .unwrap_or(Err(CallError::NotFound))
    }

    /// What a connection is like now: what `TCP_INFO` of a socket tells.
    pub fn info(&mut self, id: ConnectionId) -> Option<TcpInfo> {
        let now = self.0.now;
        self.machine()?.info(id, now)
    }

    /// What TCP has done in this worker, all connections together: retransmissions, timeouts,
    /// resets.
    pub fn tally(&self) -> TcpTally {
        self.0.tcp.tally()
    }

    /// Listens no more. Connections that were accepted stay; false where there is no such listener.
    /// Walks over all places that there are for connections: with a million, milliseconds of this
    /// turn.
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
