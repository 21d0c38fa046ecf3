//! The machine: all connections of a worker, and the state that they share.
//!
//! ```text
//!  segments ──receive──▶ ┌────────────────────────────┐ ──▶ data in order, returned or by `next_data`
//!  time     ──tick─────▶ │ connections, listeners     │ ──▶ events, by `next_event`
//!  app      ──connect,──▶ │ chunks, wheel, flush list  │ ──▶ segments, through the `Output` that each call brings
//!             send, …    └────────────────────────────┘
//! ```
//!
//! Segments leave only within calls: a call sends urgent segments at once (the app's data,
//! acknowledgments of data out of order, a handshake). All others, mostly acknowledgments, wait for
//! [`Tcp::tick`].

use super::config::{TcpConfig, TcpConfigError};
use super::event::{ConnectionId, TcpEvent};
use super::info::TcpInfo;
use super::listening::admission::Admission;
use super::listening::handover::Handovers;
use super::listening::listener::Listeners;
use super::listening::secret::Secret;
use super::output::challenges::ChallengeAckLimit;
use super::output::delegated::Delegations;
use super::output::interface::Output;
use super::output::resets::OwedResets;
use super::payload::Payload;
use super::route_watch::RouteWatch;
use super::state::connection::{AppFlags, Connection, OutputFlags, Pending, State};
use super::state::fifo::SlotFifo;
use super::state::list::SlotList;
use super::state::queue::Chunks;
use crate::proto::slab::{NIL, Slab};
use crate::proto::table::{Key, Table};
use crate::proto::wheel::Wheel;
use crate::proto::{ConsumerId, Flow, HashSeed, Madvise, PeerLimit, without_madvise};
use crate::time::Instant;

/// TCP without I/O and without a clock. `P` is the type of stored payloads.
pub struct Tcp<P> {
    pub(super) connections: Slab<Connection>,
    /// Connections created so far: the generation of the last.
    pub(super) generation: u32,
    pub(super) flows: Table<FlowKey, u32>,
    /// The connection that was looked up last: the next segment most often belongs to it too. `NIL`
    /// where there was none.
    pub(super) recent: u32,
    pub(super) listeners: Listeners,
    pub(super) shared: Shared<P>,
}

/// Tags by which one seed gives each table a hash of its own; [`Secret`] has others.
const FLOWS: u64 = 101;
const LISTENERS: u64 = 102;
const RESETS: u64 = 103;

/// State that connections share: a context has it beside the connection that it works on.
pub(super) struct Shared<P> {
    pub(super) config: TcpConfig,
    pub(super) chunks: Chunks<P>,
    /// Chunks that stay free: see [`chunk_reserve`].
    pub(super) chunk_reserve: usize,
    pub(super) wheel: Wheel,
    /// Whether a connection found no path.
    pub(super) route_watch: RouteWatch,
    /// Connections that have a segment to send at the end of the burst, or could not send it.
    pub(super) flush: SlotFifo,
    /// Connections with events; aside of them those in TIME-WAIT without events, the oldest first.
    pub(super) ready: SlotList,
    pub(super) secret: Secret,
    /// RFC 6056 3.3.3: counts the allocated ports.
    pub(super) next_ephemeral: u32,
    /// Number of changes of any connection's options.
    pub(super) option_changes: u64,
    /// The connection whose end was reported last, when its peer was last received from, and its
    /// state then.
    pub(super) last_closed: Option<(ConnectionId, Instant, TcpInfo)>,
    /// Numbers that another sender may use.
    pub(super) delegations: Delegations,
    /// The counts of remote clients' connections.
    pub(super) admission: Admission,
    pub(super) challenges: ChallengeAckLimit,
    pub(super) resets: PeerLimit,
    pub(super) owed_resets: OwedResets,
    pub(super) handovers: Handovers,
    pub(super) tally: TcpTally,
}

/// Statistics of the machine since its creation. Each room counts what it does itself: `input`,
/// `loss`, `output`, `timers`, `calls` and the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub struct TcpTally {
    pub segments_in: u64,
    pub segments_out: u64,
    pub segments_resent: u64,
    pub active_opens: u64,
    pub passive_opens: u64,
    pub established: u64,
    pub resets_in: u64,
    pub resets_out: u64,
    pub resets_suppressed: u64,
    pub resets_lost: u64,
    pub challenge_acks: u64,
    pub challenge_acks_suppressed: u64,
    pub syn_cookies_sent: u64,
    pub syn_cookies_accepted: u64,
    pub timeouts: u64,
    pub tail_loss_probes: u64,
    pub fast_recoveries: u64,
    pub undone_recoveries: u64,
    pub dsacks_in: u64,
    pub dsacks_out: u64,
    pub out_of_order: u64,
    pub duplicates: u64,
    pub zero_window_probes: u64,
    pub keepalive_probes: u64,
    pub output_busy: u64,
    pub time_waits_recycled: u64,
    pub unreachables_ignored: u64,
    pub negative_advice: u64,
}

/// One connection in a call that works on it.
pub(super) struct Context<'a, P, O> {
    pub(super) connection: &'a mut Connection,
    pub(super) slot: u32,
    pub(super) shared: &'a mut Shared<P>,
    pub(super) output: &'a mut O,
    pub(super) now: Instant,
}

/// Both ends in 96 bits: local address, remote address, the ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FlowKey {
    addresses: [u32; 2],
    ports: u32,
}

impl FlowKey {
    #[inline(always)]
    pub(super) fn ports(&self) -> u32 {
        self.ports
    }
}

impl From<Flow> for FlowKey {
    #[inline]
    fn from(flow: Flow) -> Self {
        Self {
            addresses: [flow.local.ip().to_bits(), flow.remote.ip().to_bits()],
            ports: u32::from(flow.local.port()) << 16 | u32::from(flow.remote.port()),
        }
    }
}

impl Key for FlowKey {
    // Port 0 is no flow's.
    const EMPTY: Self = Self { addresses: [0; 2], ports: 0 };

    #[inline]
    fn hash(self, seed: &HashSeed) -> u64 {
        seed.sip_flow(u64::from(self.addresses[0]) << 32 | u64::from(self.addresses[1]), self.ports)
    }
}

impl<P: Payload> Tcp<P> {
    /// A machine without connections. Allocates all its memory, [`TcpConfig::bytes`]; returns an
    /// error where the kernel does not grant it. `seed` must be secret, because with it sequence
    /// numbers, ports and cookies can be guessed.
    pub fn new(config: TcpConfig, seed: HashSeed) -> Result<Self, TcpConfigError> {
        Self::with_madvise(config, seed, without_madvise)
    }

    /// The same with `advise` called for the tables with random access.
    pub fn with_madvise(config: TcpConfig, seed: HashSeed, advise: Madvise) -> Result<Self, TcpConfigError> {
        config.check()?;
        config.check_memory::<P>()?;
        let capacity = config.connections_max;
        Ok(Self {
            connections: Slab::with_madvise(capacity, advise),
            generation: 0,
            flows: Table::with_madvise(capacity, seed.derive(FLOWS), advise),
            recent: NIL,
            listeners: Listeners::new(config.listeners_max, seed.derive(LISTENERS)),
            shared: Shared {
                chunks: Chunks::new(config.chunks_max),
                chunk_reserve: chunk_reserve(config.chunks_max, config.chunks_max),
                wheel: Wheel::new(capacity, advise),
                route_watch: RouteWatch::NEW,
                flush: SlotFifo::new(capacity),
                ready: SlotList::new(capacity),
                secret: Secret::new(seed),
                option_changes: 0,
                last_closed: None,
                delegations: Delegations::default(),
                next_ephemeral: 0,
                admission: Admission::new(capacity - config.active_open_reserve(), config.listeners_max, capacity),
                challenges: ChallengeAckLimit::new(config.challenge_acks_per_second),
                resets: PeerLimit::new(config.resets_per_second, seed.derive(RESETS)),
                owed_resets: OwedResets::new(),
                handovers: Handovers::default(),
                tally: TcpTally::default(),
                config,
            },
        })
    }

    /// Sets the number of buffers: no more chunks wait than that, so that some are left for
    /// received frames. By default the machine assumes one for each of `TcpConfig::chunks_max`.
    pub fn limit_buffers(&mut self, buffers: usize) {
        self.shared.chunk_reserve = chunk_reserve(self.shared.config.chunks_max, buffers);
    }

    /// Its configuration.
    pub fn config(&self) -> &TcpConfig {
        &self.shared.config
    }

    /// Chunks of data that may wait in all connections together.
    pub fn chunks_limit(&self) -> usize {
        self.shared.config.chunks_max - self.shared.chunk_reserve
    }

    /// The statistics.
    pub fn tally(&self) -> &TcpTally {
        &self.shared.tally
    }

    /// Connections, those in TIME-WAIT included.
    pub fn len(&self) -> usize {
        self.connections.len()
    }

    /// Whether there is no connection.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Chunks of data that wait in all connections together.
    pub fn chunks(&self) -> usize {
        self.shared.chunks.len()
    }

    /// Whether [`next_event`](Self::next_event) may have one. One load.
    #[inline(always)]
    pub fn has_events(&self) -> bool {
        !self.shared.ready.is_empty()
    }

    /// The consumer of a connection.
    #[inline]
    pub fn consumer(&self, id: ConnectionId) -> ConsumerId {
        let connection = self.connections.get(id.slot).filter(|connection| connection.generation == id.generation);
        connection.map_or(ConsumerId::default(), |connection| connection.consumer)
    }

    /// The next event of any connection, with its name and consumer. After `Closed` the name is
    /// invalid, except for `abort` after `LingerTimedOut`.
    pub fn next_event(&mut self) -> Option<(ConnectionId, ConsumerId, TcpEvent)> {
        loop {
            let slot = self.shared.ready.first()?;
            if self.release_if_unowned(slot) {
                continue;
            }
            let Some(event) = self.take_event(slot) else {
                self.shared.ready.remove(slot);
                self.connections[slot].clear(AppFlags::IN_READY);
                continue;
            };
            let connection = &self.connections[slot];
            let (id, consumer) = (ConnectionId { slot, generation: connection.generation }, connection.consumer);
            if let TcpEvent::Closed(_) = event {
                self.shared.last_closed = self.connections.get(slot).map(|connection| {
                    let at = connection.clock.last_received_at;
                    (id, at, connection.info(at))
                });
                self.forget_closed(slot);
            }
            return Some((id, consumer, event));
        }
    }

    /// The next data in order of a connection, after [`next_event`](Self::next_event) or by a
    /// resumed app.
    pub fn next_data(&mut self, id: ConnectionId) -> Option<P> {
        let connection =
            self.connections.get_mut(id.slot).filter(|connection| connection.generation == id.generation)?;
        if connection.has(AppFlags::PAUSED) {
            return None;
        }
        let chunk = connection.rare_rcv.in_order.pop_front(&mut self.shared.chunks)?;
        connection.set_in_order_len(connection.rcv.in_order_len - chunk.len);
        if connection.owes_window_update() {
            connection.clock.owe_ack_now();
            if !connection.has(OutputFlags::IN_FLUSH) {
                connection.set(OutputFlags::IN_FLUSH);
                self.shared.flush.push(id.slot);
            }
        }
        if connection.rare_rcv.in_order.is_empty() && !connection.pending.is_empty() {
            connection.set(AppFlags::IN_READY);
            self.shared.ready.push(id.slot);
        }
        chunk.payload
    }

    /// When it is closed, removes a connection that the app never knew of, or gets no more events
    /// from.
    fn release_if_unowned(&mut self, slot: u32) -> bool {
        let connection = &self.connections[slot];
        let is_unowned = connection.has(AppFlags::EMBRYONIC | AppFlags::ORPHANED);
        let is_gone = connection.state == State::Closed && is_unowned;
        if is_gone {
            self.release(slot);
        }
        is_gone
    }

    fn take_event(&mut self, slot: u32) -> Option<TcpEvent> {
        let connection = &mut self.connections[slot];
        let readable = !connection.rare_rcv.in_order.is_empty();
        if connection.pending.take(Pending::CONNECTED) {
            connection.clear(AppFlags::CONNECT_EVENT_PENDING);
            let listener = connection.accepted_by.listener();
            return Some(TcpEvent::Connected { listener });
        }
        if connection.pending.take(Pending::NO_ROUTE) {
            return Some(TcpEvent::NoRoute);
        }
        if readable {
            // The app's part: events after the data wait until the data is taken, and a paused app
            // gets them when it resumes.
            let is_news = connection.pending.take(Pending::READABLE) && !connection.has(AppFlags::PAUSED);
            // Room to send is reported anyway: an app that pauses until its answers are sent waits
            // for just that.
            let is_room = !is_news && connection.pending.take(Pending::WRITABLE);
            return if is_room { Some(TcpEvent::Writable) } else { is_news.then_some(TcpEvent::Readable) };
        }
        if connection.pending.take(Pending::PEER_CLOSED) {
            return Some(TcpEvent::PeerClosed);
        }
        if connection.pending.take(Pending::CLOSED) {
            return Some(TcpEvent::Closed(connection.ending.reason));
        }
        connection.pending.take(Pending::WRITABLE).then_some(TcpEvent::Writable)
    }

    /// The app knows that a connection is gone, or no longer waits for its end: frees the slot
    /// where the connection is closed. A connection in TIME-WAIT keeps its slot until slots are
    /// few, and a connection whose linger time is over goes on.
    fn forget_closed(&mut self, slot: u32) {
        let connection = &mut self.connections[slot];
        connection.set(AppFlags::ORPHANED);
        connection.clear(AppFlags::IN_READY);
        connection.pending = Pending::NONE;
        match connection.state {
            State::Closed => self.release(slot),
            State::TimeWait => self.shared.ready.defer(slot),
            _ => self.shared.ready.remove(slot),
        }
    }

    /// Removes a connection and frees everything that it held.
    pub(super) fn release(&mut self, slot: u32) {
        self.detach(slot);
        if self.connections.get(slot).is_some_and(|connection| connection.has(AppFlags::EMBRYONIC)) {
            self.count_embryonic_out(slot);
        }
        let Some(mut connection) = self.connections.remove(slot) else { return };
        self.shared.count_out(&mut connection);
        if connection.has(OutputFlags::DELEGATED) {
            self.shared.delegations.remove(slot);
        }
        let chunks = &mut self.shared.chunks;
        connection.send.queue.clear(chunks);
        connection.rare_rcv.in_order.clear(chunks);
        connection.out_of_order.queue.clear(chunks);
        self.shared.wheel.clear(slot);
        self.shared.ready.remove(slot);
    }

    /// Segments of the flow no longer find the connection.
    pub(super) fn detach(&mut self, slot: u32) {
        let Some(flow) = self.connections.get(slot).map(|connection| FlowKey::from(connection.flow)) else { return };
        if self.flows.get(flow) == Some(&slot) {
            self.flows.remove(flow);
        }
    }

    /// Whether there is room for another connection, or [`make_room`](Self::make_room) would make
    /// some. Callers that may still refuse check this first.
    pub(super) fn can_make_room(&self) -> bool {
        self.connections.free_count() > 0 || self.shared.ready.first_aside().is_some()
    }

    /// Whether there is room for another connection; the oldest in TIME-WAIT is removed for it.
    pub(super) fn make_room(&mut self) -> bool {
        if self.connections.free_count() > 0 {
            return true;
        }
        let Some(oldest) = self.shared.ready.first_aside() else { return false };
        self.shared.tally.time_waits_recycled += 1;
        self.release(oldest);
        true
    }

    /// Adds a connection; `None` where there is no room, or the flow is in use.
    pub(super) fn insert(&mut self, mut connection: Connection) -> Option<u32> {
        let flow = connection.flow;
        if self.connections.free_count() == 0 || self.flows.get(flow.into()).is_some() {
            return None;
        }
        self.generation = self.generation.wrapping_add(1);
        connection.generation = self.generation;
        let slot = self.connections.insert(connection).ok()?;
        assert!(self.flows.insert(flow.into(), slot), "the flow table has room for as many as the slab");
        Some(slot)
    }

    /// The slot of the connection of that name, where it still exists.
    #[inline]
    pub(super) fn find(&self, id: ConnectionId) -> Option<u32> {
        let connection = self.connections.get(id.slot)?;
        (connection.generation == id.generation && !connection.has(AppFlags::ORPHANED)).then_some(id.slot)
    }

    /// A context for the connection of that name, where it still exists. Clears the known room for
    /// an immediate send.
    #[inline(always)]
    pub(super) fn context_of<'a, O: Output<P>>(
        &'a mut self,
        id: ConnectionId,
        output: &'a mut O,
        now: Instant,
    ) -> Option<Context<'a, P, O>> {
        let connection = named(&mut self.connections, id)?;
        connection.send.forget_room();
        Some(Context { connection, slot: id.slot, shared: &mut self.shared, output, now })
    }

    /// A context for the connection at `slot`. Clears the known room for an immediate send.
    #[inline(always)]
    pub(super) fn context<'a, O: Output<P>>(
        &'a mut self,
        slot: u32,
        output: &'a mut O,
        now: Instant,
    ) -> Context<'a, P, O> {
        let connection = &mut self.connections[slot];
        connection.send.forget_room();
        Context { connection, slot, shared: &mut self.shared, output, now }
    }
}

impl<P: Payload, O: Output<P>> Context<'_, P, O> {
    /// A copy of this context for rare, out-of-line code. The compiler keeps this context in
    /// registers only if no such code takes its address.
    #[inline(always)]
    pub(super) fn out_of_line(&mut self) -> Context<'_, P, O> {
        let Self { connection, slot, shared, output, now } = self;
        Context { connection, slot: *slot, shared, output, now: *now }
    }

    /// Queues the connection for the end of the burst.
    #[inline]
    pub(super) fn flush_later(&mut self) {
        if !self.connection.has(OutputFlags::IN_FLUSH) {
            self.connection.set(OutputFlags::IN_FLUSH);
            self.shared.flush.push(self.slot);
        }
    }

    /// Queues an event for the app.
    #[inline]
    pub(super) fn notify(&mut self, what: Pending) {
        if self.connection.has(AppFlags::ORPHANED) {
            return;
        }
        self.connection.pending.insert(what);
        if !self.connection.has(AppFlags::IN_READY) {
            self.connection.set(AppFlags::IN_READY);
            self.shared.ready.push(self.slot);
        }
    }
}

/// Chunks that stay free. A chunk that is longer than may leave at once is split when it leaves,
/// which takes another chunk. If waiting data used all chunks, none of it could ever leave. Where
/// there are fewer buffers than chunks the buffers count instead, because unacknowledged data must
/// leave buffers for the reserve.
fn chunk_reserve(chunks: usize, buffers: usize) -> usize {
    (chunks / 16).clamp(1, 64).max(chunks.saturating_sub(buffers))
}

/// The connection of that name, where it still exists.
#[inline(always)]
pub(super) fn named(connections: &mut Slab<Connection>, id: ConnectionId) -> Option<&mut Connection> {
    let is_its =
        |connection: &&mut Connection| connection.generation == id.generation && !connection.has(AppFlags::ORPHANED);
    connections.get_mut(id.slot).filter(is_its)
}
