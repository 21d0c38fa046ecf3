//! The loop: one turn of it is [`Worker::poll_once`], which a trading engine with a loop of its own
//! calls as well; [`Worker::run`] calls it until told to stop. A reader sets one breakpoint here
//! and steps from the device to the strategy and back out without leaving the thread.

use crate::counters::{Counter, Gauge, Histogram, Scope, Unit};
use crate::device::{RxQueue, RxState, TxQueue};
use crate::mem::{BURST_MAX, Burst, Mbuf, Pool};
use crate::pipeline::tcp::TcpSockets;
use crate::pipeline::{App, Cx, Egress, EgressConfig, Node, Outline};
use crate::proto::{Host, TIMERS_MAX, Timers, UdpSockets};
use crate::time::{Clock, Instant};
use crate::wire::ethernet::{self, EthernetFields};
use crate::wire::{EtherType, EthernetHeader};
use zerocopy::IntoBytes;

use super::kernel::{Follower, ICMP_ERROR_LEN_MAX, KernelIcmpError};
use super::stop::StopFlag;

/// What a worker is made of. Everything in it was made on the worker's own thread.
pub struct Parts<Rx, Tx, N, A> {
    /// Where frames come from.
    pub rx: Rx,
    /// Where frames go.
    pub tx: Tx,
    /// What happens to them.
    pub pipeline: N,
    /// Who wants them.
    pub app: A,
    /// Buffers for frames to send, and for those that `rx` receives.
    pub pool: Pool,
    /// Addresses, routes and neighbors.
    pub host: Host,
    /// Who receives which datagrams.
    pub sockets: UdpSockets,
    /// What the way out does beyond sending.
    pub egress: EgressConfig,
    /// Frames that are received in one turn at most, 1 to [`BURST_MAX`]. 32 lets the doorbell and
    /// the refill be shared; more makes the first frame of a burst wait longer for its answer to
    /// leave.
    pub burst_len: usize,
}

/// A queue pair, a pool, a pipeline and an app, turned by one thread.
pub struct Worker<Rx, Tx, N, A> {
    // In the order in which they are dropped: who holds mbufs goes before the pool.
    burst: Burst,
    rx: Rx,
    pipeline: N,
    app: A,
    tools: Tools<Tx>,
    /// Keeps the host as the kernel has it; None where the configuration says it all.
    follower: Option<Follower>,
    burst_len: usize,
    /// When the last turn began, and how many frames it received.
    last: (Instant, usize),
    publications: u64,
    counters: Counters,
}

/// What a turn lends to the nodes and the app as [`Cx`].
struct Tools<Tx> {
    tx: Tx,
    host: Host,
    sockets: UdpSockets,
    tcp: TcpSockets,
    timers: Timers,
    egress: Egress,
    pool: Pool,
}

impl<Tx: TxQueue> Tools<Tx> {
    #[inline(always)]
    fn cx(&mut self, now: Instant) -> Cx<'_> {
        Cx {
            now,
            pool: &self.pool,
            host: &mut self.host,
            sockets: &mut self.sockets,
            tcp: &mut self.tcp,
            timers: &mut self.timers,
            egress: &mut self.egress,
            tx: &mut self.tx,
        }
    }
}

/// What the worker says of itself.
struct Counters {
    polls: Counter,
    bursts: Counter,
    frames: Counter,
    /// From the start of a turn that received frames to the start of the next: how long the last
    /// frame of the burst took from the device to its end, at most.
    burst_ns: Histogram,
    /// Packets that came to the kernel and were shown to the pipeline too; those for which no
    /// buffer was free.
    icmp_errors_from_kernel: Counter,
    icmp_errors_from_kernel_lost: Counter,
    last_poll: Gauge,
    pool_in_use: Gauge,
    pool_exhausted: Gauge,
    /// Packets that ended without a name. Anything above zero is a bug.
    pool_unnamed: Gauge,
}

/// What a worker says to connections that nobody would hear of.
const NO_TCP_NODE: &str = "the pipeline has no TCP node, so no connection would hear of its peer: set HostStackConfig::tcp, or give \
                           Ipv4Successors::tcp a pipeline::tcp::Tcp; the legs of a VlanTrunk have no TCP";

/// Turns between two looks at what changes slowly: the stop flag, the end of the device, the
/// gauges. At 20 ns a turn that is every 5 µs.
const HOUSEKEEPING_POLLS: u64 = 256;

/// Packets that came to the kernel, of which one turn takes so many.
const OVERHEARD_PER_TURN: usize = 4;

/// Turns in which nothing moves, before a worker that hangs up gives the device up.
const HANG_UP_TURNS: u32 = 1 << 16;

/// Of so many publications one asks the device for the counters that it does not keep itself, each
/// some tens of milliseconds at full speed: of AF_XDP a system call, of mlx5 none.
const REFRESH_PUBLICATIONS: u64 = 4_096;

impl<Rx: RxQueue, Tx: TxQueue, N: Node<A>, A: App> Worker<Rx, Tx, N, A> {
    /// Puts a worker together; its counters are registered in `scope`.
    pub fn new(parts: Parts<Rx, Tx, N, A>, scope: &Scope) -> Self {
        Self {
            burst: Burst::new(),
            rx: parts.rx,
            pipeline: parts.pipeline,
            app: parts.app,
            tools: Tools {
                tx: parts.tx,
                host: parts.host,
                sockets: parts.sockets,
                tcp: TcpSockets::none(),
                timers: Timers::new(TIMERS_MAX),
                egress: Egress::new(parts.egress, scope),
                pool: parts.pool,
            },
            follower: None,
            burst_len: parts.burst_len.clamp(1, BURST_MAX),
            last: (Instant::ZERO, 0),
            publications: 0,
            counters: Counters::new(scope),
        }
    }

    /// Gives the worker TCP. Data waits in half of the pool's buffers at most, where
    /// [`TcpSockets::leave`] does not say how many others take. Panics where no segment would reach
    /// it: its pipeline must have the [`tcp::Tcp`](crate::pipeline::tcp::Tcp) node, by its
    /// [`outline`](Node::outline), and not in a leg of a [`VlanTrunk`](crate::pipeline::VlanTrunk), which
    /// has no connections.
    #[must_use]
    pub fn with_tcp(mut self, mut tcp: TcpSockets) -> Self {
        assert!(tcp.is_none() || self.takes_segments(), "{NO_TCP_NODE}");
        tcp.limit_buffers(self.tools.pool.capacity());
        self.tools.tcp = tcp;
        self
    }

    /// Whether the pipeline has a node that hands segments to TCP.
    fn takes_segments(&self) -> bool {
        let mut outline = Outline::new();
        self.pipeline.outline(&mut outline);
        outline.has_tcp()
    }

    /// The worker's connections.
    pub fn tcp(&self) -> &TcpSockets {
        &self.tools.tcp
    }

    /// Keeps the host as the kernel has the interface, from the next turn on: each turn applies
    /// what is new, 16 updates at most, and costs about 1 ns where nothing is.
    pub fn follow(&mut self, follower: Follower) {
        self.follower = Some(follower);
    }

    /// Who keeps the host as the kernel has it: tells of the link, and whether the mirror still
    /// runs.
    pub fn follower(&self) -> Option<&Follower> {
        self.follower.as_ref()
    }

    /// One turn: sent mbufs come home, a burst is received and each frame of it runs to completion,
    /// timers get their share, and one doorbell tells the NIC of all that was posted. Returns the
    /// frames received.
    ///
    /// No allocation, no lock, no clock read; no system call of its own (the device may make one
    /// per burst and says so). An idle turn costs a few ns.
    #[inline]
    pub fn poll_once(&mut self, now: Instant) -> usize {
        self.counters.turn(now, self.last);
        // First, so that the refill finds the buffers.
        self.tools.tx.reap();
        let received = self.rx.receive(&mut self.burst, self.burst_len, &self.tools.pool, now);
        if received > 0 {
            self.counters.bursts.inc();
            self.counters.frames.add(received as u64);
        }
        self.run_to_completion(now);
        self.tools.tx.ring_doorbell(now);
        self.last = (now, received);
        received
    }

    /// Polls until `stop`, or until the device has ended and gave its last frame. Looks at both
    /// every few µs.
    pub fn run(&mut self, clock: &mut impl Clock, stop: &StopFlag) -> Ended {
        self.run_with(clock, stop, |_, _| ())
    }

    /// The same, and calls `between` each few µs, between two turns: for what need not be looked at
    /// in each of them.
    pub fn run_with(
        &mut self,
        clock: &mut impl Clock,
        stop: &StopFlag,
        mut between: impl FnMut(&mut Self, Instant),
    ) -> Ended {
        loop {
            for _ in 0..HOUSEKEEPING_POLLS {
                let now = clock.now();
                self.poll_once(now);
            }
            self.publish();
            between(self, clock.now());
            if stop.is_stopping() {
                return Ended::Stopped;
            }
            if self.last.1 == 0 && self.rx.state() == RxState::Ended {
                return Ended::DeviceEnded;
            }
        }
    }

    /// Each frame of the burst in order, then what time brings. The context is made once for both.
    ///
    /// Not `inline(always)`: the compiler is to simplify it for itself before it puts it where it
    /// is called. As a part of the whole turn from the start, it reads every mbuf again behind each
    /// node, thirteen instructions a packet.
    #[inline]
    fn run_to_completion(&mut self, now: Instant) {
        let Self { burst, pipeline, app, tools, follower, counters, .. } = self;
        if burst.len() > 1 {
            // All their headers are asked for at once, so that the cache misses of a burst overlap
            // instead of following each other. The connections that they are for, where there are
            // many, come in while the frames before theirs are worked on.
            burst.iter().for_each(Mbuf::prefetch);
            tools.tcp.prefetch(burst);
        }
        let mut cx = tools.cx(now);
        for mbuf in burst.drain(..) {
            pipeline.push(mbuf, app, &mut cx);
        }
        if let Some(follower) = follower {
            follower.catch_up(cx.host);
            hear_kernel(follower, pipeline, app, counters, &mut cx);
            // Those of what the burst sent, and of the ticks of the turn before.
            pass_neighbor_requests(follower, cx.egress);
        }
        // What waited for a neighbor goes before what is sent now.
        Egress::tick(&mut cx);
        pipeline.tick(app, &mut cx);
        if cx.timers.is_due(now) {
            expire_timers(app, &mut cx);
        }
        app.tick(&mut cx);
    }

    /// Brings the gauges up to date, and now and then the counters that the device's other side
    /// keeps. [`Worker::run`] does it by itself; a loop of one's own calls it every few hundred
    /// turns.
    pub fn publish(&mut self) {
        self.publications += 1;
        if self.publications.is_multiple_of(REFRESH_PUBLICATIONS) {
            self.rx.refresh_counters();
            self.tools.tx.refresh_counters();
        }
        self.tools.tcp.publish();
        self.counters.last_poll.set(self.last.0.as_nanos());
        self.counters.pool_in_use.set(self.tools.pool.in_use() as u64);
        self.counters.pool_exhausted.set(self.tools.pool.exhausted());
        self.counters.pool_unnamed.set(self.tools.pool.unnamed());
    }

    /// Lets the app act outside a turn: at start, to join and to connect; at the end, to say
    /// goodbye. What it posts leaves with a doorbell.
    pub fn with_app<T>(&mut self, now: Instant, act: impl FnOnce(&mut A, &mut Cx<'_>) -> T) -> T {
        let mut cx = self.tools.cx(now);
        let result = act(&mut self.app, &mut cx);
        self.tools.tx.ring_doorbell(now);
        result
    }

    /// At the end: resets all TCP connections that stand, so that no peer believes in them for
    /// longer, and sees them onto the wire. Returns how many those were. Who wants them to end in
    /// order closes them, and polls on until they have.
    ///
    /// Walks over all places that there are for connections, and waits for the device and for
    /// buffers, some milliseconds where nothing moves: not for a turn.
    pub fn hang_up(&mut self, now: Instant) -> usize {
        let (mut hung_up, mut next, mut idle_turns) = (0, Some(0), 0);
        while idle_turns < HANG_UP_TURNS && (next.is_some() || self.tools.tx.in_flight() > 0) {
            let mut moved = self.tools.tx.reap();
            if let Some(first) = next {
                let room = self.tools.tx.room();
                let count;
                (count, next) = self.tools.cx(now).tcp().abort_from(first, room);
                (hung_up, moved) = (hung_up + count, moved + count);
            }
            self.tools.tx.ring_doorbell(now);
            idle_turns = if moved > 0 { 0 } else { idle_turns + 1 };
        }
        hung_up
    }

    /// The app.
    pub fn app(&self) -> &A {
        &self.app
    }

    /// The pipeline.
    pub fn pipeline(&self) -> &N {
        &self.pipeline
    }

    /// The buffers.
    pub fn pool(&self) -> &Pool {
        &self.tools.pool
    }

    /// The receiving half of the queue.
    pub fn rx(&self) -> &Rx {
        &self.rx
    }

    /// The receiving half of the queue, to change what a device lets be changed while it runs.
    pub fn rx_mut(&mut self) -> &mut Rx {
        &mut self.rx
    }

    /// The sending half of the queue.
    pub fn tx_mut(&mut self) -> &mut Tx {
        &mut self.tools.tx
    }

    /// Packets that are neither delivered nor dropped yet: fragments that wait for the rest, and
    /// frames that wait for their neighbor.
    pub fn kept(&self) -> usize {
        self.pipeline.kept() + self.tools.egress.kept()
    }

    /// Takes the app out, at the end.
    pub fn into_app(mut self) -> A {
        self.publish();
        self.app
    }
}

/// Why [`Worker::run`] came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Somebody asked for it.
    Stopped,
    /// The device has ended: the end of a capture, the peer is gone.
    DeviceEnded,
}

/// ICMP errors that came to the kernel go the way of frames.
#[inline]
fn hear_kernel<N: Node<A>, A>(
    follower: &mut Follower,
    pipeline: &mut N,
    app: &mut A,
    counters: &Counters,
    cx: &mut Cx<'_>,
) {
    for _ in 0..OVERHEARD_PER_TURN {
        let Some(error) = follower.next_icmp_error() else { return };
        match frame_of(&error, cx) {
            Some(frame) => {
                counters.icmp_errors_from_kernel.inc();
                pipeline.push(frame, app, cx);
            }
            None => counters.icmp_errors_from_kernel_lost.inc(),
        }
    }
}

/// The frame that a packet may have come in.
#[cold]
fn frame_of(error: &KernelIcmpError, cx: &Cx<'_>) -> Option<Mbuf> {
    let own = cx.host.mac();
    let link = EthernetHeader::new(EthernetFields { dst: own, src: own, ethertype: EtherType::IPV4 });
    let packet = error.packet();
    let mut frame = [0; ethernet::HEADER_LEN + ICMP_ERROR_LEN_MAX];
    frame[..ethernet::HEADER_LEN].copy_from_slice(link.as_bytes());
    frame[ethernet::HEADER_LEN..][..packet.len()].copy_from_slice(packet);
    cx.pool.alloc_copy(&frame[..ethernet::HEADER_LEN + packet.len()])
}

/// Gives the app its timers that are due.
#[inline(never)]
fn expire_timers<A: App>(app: &mut A, cx: &mut Cx<'_>) {
    let mut budget = Timers::budget();
    while let Some(token) = cx.timers.take_due(cx.now, &mut budget) {
        app.on_timer(token, cx);
    }
}

/// Neighbors that the kernel is to ask for.
#[inline]
fn pass_neighbor_requests(follower: &mut Follower, egress: &mut Egress) {
    while let Some(request) = egress.next_neighbor_request() {
        // A request that finds no room is made again.
        let _ = follower.want(request.next_hop);
    }
}

impl Counters {
    fn new(scope: &Scope) -> Self {
        let pool = scope.scope("pool");
        Self {
            polls: scope.counter("polls", Unit::Polls),
            bursts: scope.counter("bursts", Unit::Bursts),
            frames: scope.counter("frames", Unit::Frames),
            burst_ns: scope.histogram("burst_ns", Unit::Nanoseconds),
            icmp_errors_from_kernel: scope.counter("icmp_errors_from_kernel", Unit::Packets),
            icmp_errors_from_kernel_lost: scope.counter("icmp_errors_from_kernel_lost", Unit::Packets),
            last_poll: scope.last_poll(),
            pool_in_use: pool.gauge("in_use", Unit::Mbufs),
            pool_exhausted: pool.gauge("exhausted", Unit::Events),
            pool_unnamed: pool.gauge("unnamed_drops", Unit::Packets),
        }
    }

    #[inline]
    fn turn(&mut self, now: Instant, (before, received): (Instant, usize)) {
        self.polls.inc();
        if received > 0 {
            self.burst_ns.record(now.since(before).as_nanos());
        }
    }
}
