//! The loop: one turn of it is [`Worker::poll_once`], which a trading engine with a loop of its own
//! can call as well; [`Worker::run`] calls it until it is stopped. With one breakpoint here a
//! reader can step from the device to the strategy and back without leaving the thread.

use std::os::fd::RawFd;

use crate::counters::{Counter, Gauge, Histogram, Scope, Unit};
use crate::device::{RxQueue, RxState, TxQueue};
use crate::mem::{BURST_MAX, Burst, Mbuf, Pool};
use crate::pipeline::tcp::TcpSockets;
use crate::pipeline::{App, Cx, Egress, EgressConfig, Node, NodeTree};
use crate::proto::{Host, TIMERS_MAX, Timers, UdpSockets};
use crate::time::{Clock, Duration, Instant};
use crate::wire::ethernet::{self, EthernetFields};
use crate::wire::{EtherType, EthernetHeader};
use zerocopy::IntoBytes;

use super::kernel::{Follower, ICMP_ERROR_LEN_MAX, KernelIcmpError};
use super::stop::StopFlag;

/// The parts of a worker. Each was made on the worker's own thread.
pub struct Parts<Rx, Tx, N, A> {
    /// Receive queue.
    pub rx: Rx,
    /// Transmit queue.
    pub tx: Tx,
    /// Nodes that process the frames.
    pub pipeline: N,
    /// App that receives the payloads.
    pub app: A,
    /// Buffers for frames to send, and for those that `rx` receives.
    pub pool: Pool,
    /// Addresses, routes and neighbors.
    pub host: Host,
    /// Bindings of addresses and groups to consumers.
    pub sockets: UdpSockets,
    /// Options of transmit.
    pub egress: EgressConfig,
    /// Frames received per turn at most, 1 to [`BURST_MAX`]. 32 amortizes the doorbell and the
    /// refill; with more, the answer to the first frame of a burst waits longer.
    pub burst_len: usize,
}

/// A queue pair, a pool, a pipeline and an app, polled by one thread.
pub struct Worker<Rx, Tx, N, A> {
    // Dropped in this order: the owners of mbufs before the pool.
    burst: Burst,
    rx: Rx,
    pipeline: N,
    app: A,
    tools: Tools<Tx>,
    /// Follows the kernel's host state; `None` if the configuration defines it all.
    follower: Option<Follower>,
    burst_len: usize,
    last_turn: LastTurn,
    publications: u64,
    counters: WorkerCounters,
}

/// The turn before this one.
#[derive(Clone, Copy)]
struct LastTurn {
    started: Instant,
    received: usize,
}

/// The parts that a turn lends to the nodes and the app as [`Cx`].
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

/// The worker's own counters.
struct WorkerCounters {
    polls: Counter,
    bursts: Counter,
    frames: Counter,
    /// From the start of a turn that received frames to the start of the next: an upper bound of
    /// the time that the last frame of the burst took from the device to its end.
    burst_ns: Histogram,
    /// ICMP errors that reached the pipeline from the kernel's socket.
    icmp_errors_from_kernel: Counter,
    /// ICMP errors for which no buffer was free.
    icmp_errors_from_kernel_lost: Counter,
    last_poll: Gauge,
    pool_in_use: Gauge,
    pool_exhausted: Gauge,
    /// Packets that ended without a reason. Anything above zero is a bug.
    drops_without_reason: Gauge,
}

/// The panic message if the pipeline cannot deliver segments to TCP.
const NO_TCP_NODE: &str = "the pipeline has no TCP node, so no connection would hear of its peer: set HostStackConfig::tcp, or give \
                           Ipv4Successors::tcp a pipeline::tcp::Tcp; the legs of a VlanTrunk have no TCP";

/// Turns between two checks of slowly changing state: the stop flag, the end of the device, the
/// gauges. At 20 ns a turn that is every 5 µs.
const HOUSEKEEPING_POLLS: u64 = 256;

/// ICMP errors from the kernel that one turn processes at most.
const KERNEL_ICMP_ERRORS_PER_TURN: usize = 4;

/// Turns without progress after which `reset_connections` gives up on the device.
const RESET_TURNS: u32 = 1 << 16;

/// The interval at which a sleeping worker checks whether its device has sent its frames, and for
/// free buffers. A NIC is done within some µs.
const DEVICE_PERIOD: Duration = Duration::from_micros(50);
/// The interval at which it polls for the kernel's updates while it waits for an answer of the
/// kernel: the mirror takes 10 to 20 ms for one.
const URGENT_PERIOD: Duration = Duration::from_millis(1);
/// The interval while it waits for none. Each poll wakes a thread: at 100 a second an idle
/// memcached on wirepath took 1 % of a processor.
const FOLLOWER_PERIOD: Duration = Duration::from_millis(20);
/// The interval at which the link of a device that is slept on is read; the device reads it within
/// its turns.
const LINK_PERIOD: Duration = Duration::from_millis(100);

/// Once per this many publications it reads the counters that the device does not keep itself, each
/// some tens of milliseconds at full speed: a system call on AF_XDP, none on mlx5.
const REFRESH_PUBLICATIONS: u64 = 4_096;

impl<Rx: RxQueue, Tx: TxQueue, N: Node<A>, A: App> Worker<Rx, Tx, N, A> {
    /// Assembles a worker; its counters are registered in `scope`.
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
            last_turn: LastTurn { started: Instant::ZERO, received: 0 },
            publications: 0,
            counters: WorkerCounters::new(scope),
        }
    }

    /// Gives the worker TCP. Its data occupies at most half of the pool's buffers, unless
    /// [`TcpSockets::reserve_buffers`] reserves another number for the rest. Panics if no segment
    /// would reach it: the pipeline's [`outline`](Node::outline) must have the
    /// [`tcp::Tcp`](crate::pipeline::tcp::Tcp) node, and not in a leg of a
    /// [`VlanTrunk`](crate::pipeline::VlanTrunk), which has no connections.
    #[must_use]
    pub fn with_tcp(mut self, mut tcp: TcpSockets) -> Self {
        assert!(tcp.is_none() || self.takes_segments(), "{NO_TCP_NODE}");
        tcp.limit_buffers(self.tools.pool.capacity());
        self.tools.tcp = tcp;
        self
    }

    /// Whether the pipeline has a node that passes segments to TCP.
    fn takes_segments(&self) -> bool {
        let mut outline = NodeTree::new();
        self.pipeline.outline(&mut outline);
        outline.has_tcp()
    }

    /// The worker's connections.
    pub fn tcp(&self) -> &TcpSockets {
        &self.tools.tcp
    }

    /// Follows the kernel's state of the interface from the next turn on: each turn applies up to
    /// 16 updates, and costs about 1 ns if there are none.
    pub fn follow(&mut self, follower: Follower) {
        self.follower = Some(follower);
    }

    /// Follows the kernel's state: reports the link, and whether the mirror thread still runs.
    pub fn follower(&self) -> Option<&Follower> {
        self.follower.as_ref()
    }

    /// One turn: it frees sent mbufs, receives a burst and runs each frame to completion, expires
    /// timers, and rings one doorbell for all posted frames. Returns the number of frames received.
    ///
    /// No allocation, no lock, no clock read; no system call of its own (the device may make one
    /// per burst and says so). An idle turn costs a few ns.
    #[inline]
    pub fn poll_once(&mut self, now: Instant) -> usize {
        let received = self.poll_without_doorbell(now);
        self.tools.tx.ring_doorbell(now);
        received
    }

    /// As [`poll_once`](Self::poll_once), but posted frames wait for the next doorbell: that of a
    /// turn, or of the [transmit queue](Self::tx_mut). For a caller that soon posts more, where a
    /// doorbell is a system call.
    #[inline]
    pub fn poll_without_doorbell(&mut self, now: Instant) -> usize {
        self.counters.turn(now, self.last_turn);
        // Reaped first, so that the refill finds free buffers.
        self.tools.tx.reap();
        let received = self.rx.receive(&mut self.burst, self.burst_len, &self.tools.pool, now);
        if received > 0 {
            self.counters.bursts.inc();
            self.counters.frames.add(received as u64);
        }
        self.run_to_completion(now);
        self.last_turn = LastTurn { started: now, received };
        received
    }

    /// Polls until `stop`, or until the device has ended and delivered its last frame. Checks both
    /// every few µs.
    pub fn run(&mut self, clock: &mut impl Clock, stop: &StopFlag) -> Ended {
        self.run_with(clock, stop, |_, _| ())
    }

    /// As [`run`](Self::run), and calls `between` every few µs between two turns, for work that not
    /// every turn needs.
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
            if let Some(ended) = self.ended(stop) {
                return ended;
            }
        }
    }

    /// Why no further turn follows, if none does.
    pub(crate) fn ended(&self, stop: &StopFlag) -> Option<Ended> {
        if stop.is_stopping() {
            return Some(Ended::Stopped);
        }
        (self.last_turn.received == 0 && self.rx.state() == RxState::Ended).then_some(Ended::DeviceEnded)
    }

    /// A turn that receives nothing, for the end: it sends waiting frames.
    pub(crate) fn send_waiting(&mut self, now: Instant) {
        self.tools.tx.reap();
        let mut cx = self.tools.cx(now);
        cx.tick_egress();
        self.pipeline.tick(&mut self.app, &mut cx);
        self.tools.tx.ring_doorbell(now);
    }

    /// Updates all counters, those of the kernel and the NIC too: at the end, and for a loop that
    /// seldom turns and so does not wait for [`publish`](Self::publish) to do it. A system call or
    /// two.
    pub fn refresh(&mut self) {
        self.rx.refresh_counters();
        self.tools.tx.refresh_counters();
        self.publish();
    }

    /// A descriptor that is readable while frames wait, for a loop that sleeps where nothing comes
    /// ([`next_deadline`](Self::next_deadline)). `None` where the device can only be polled.
    pub fn wait_fd(&self) -> Option<RawFd> {
        self.rx.wait_fd()
    }

    /// A descriptor that is readable once the kernel's state of the interface has changed or an
    /// ICMP error has come by the kernel; `None` without a follower. Whoever asks for it sleeps on
    /// it beside [`wait_fd`](Self::wait_fd) from then on: [`next_deadline`](Self::next_deadline)
    /// counts on that, and the mirror wakes the worker instead of being asked each 20 ms. The
    /// worker's requests for neighbors then take a system call.
    pub fn update_fd(&mut self) -> Option<RawFd> {
        self.follower.as_mut().and_then(Follower::sleep_on)
    }

    /// The time at which [`poll_once`](Self::poll_once) next has work if no frame comes before:
    /// timers of TCP and of the app, frames that wait for a neighbor, fragments that wait for
    /// others, reports to routers. May be early, never late; `None` where all work waits for a
    /// frame or a call. Call it after a turn without frames, and after the last call of the app.
    /// After a turn with frames the next turn should follow at once, and this returns that.
    ///
    /// Events without a descriptor are polled at intervals: updates of the kernel's state and ICMP
    /// errors that the kernel received each 20 ms, unless the caller sleeps on
    /// [`update_fd`](Self::update_fd), each ms while a neighbor or a path is missing; a link, each
    /// 100 ms; frames that the device still sends, each 50 µs.
    ///
    /// Costs some 100 ns, and a scan of the neighbors where there is a follower: call it before a
    /// sleep, not in each turn.
    pub fn next_deadline(&mut self, now: Instant) -> Option<Instant> {
        let Self { rx, tools, follower, last_turn, .. } = self;
        if last_turn.received > 0 {
            return Some(now);
        }
        rx.arm();
        if follower.as_mut().is_some_and(Follower::arm) {
            return Some(now);
        }
        let period = period(rx, tools, follower.as_ref());
        let next = period.map_or(Instant::MAX, |period| now + period).min(self.next_work(now));
        (next != Instant::MAX).then_some(next)
    }

    /// As [`next_deadline`](Self::next_deadline), but for the work alone that a call or a turn may
    /// have added: timers, frames that wait for a neighbor, a missing path. For a thread that has
    /// made a call while another one sleeps until an earlier answer of `next_deadline`. It asks the
    /// device for nothing, so it does not arm the descriptor. Costs less than that, and a scan of
    /// the neighbors while frames wait for one.
    pub fn next_timer(&mut self, now: Instant) -> Option<Instant> {
        let is_urgent = self.follower.as_ref().is_some_and(|follower| is_urgent(&self.tools, follower));
        let next = if is_urgent { now + URGENT_PERIOD } else { Instant::MAX }.min(self.next_work(now));
        (next != Instant::MAX).then_some(next)
    }

    /// When timers and what waits for them have work next; `Instant::MAX` where nothing does.
    fn next_work(&mut self, now: Instant) -> Instant {
        let Self { pipeline, app, tools, .. } = self;
        let cx = tools.cx(now);
        let deadlines = [
            cx.egress.next_deadline(cx.host, now),
            cx.timers.next_deadline(),
            pipeline.next_deadline(&cx),
            app.next_deadline(&cx),
        ];
        deadlines.into_iter().fold(Instant::MAX, Instant::min)
    }

    /// Runs each frame of the burst in order, then the timers. Both share one context.
    ///
    /// Not `inline(always)`: the compiler then optimizes the function before it inlines it. If it
    /// were inlined into the whole turn first, the code would reload every mbuf after each node: 13
    /// instructions per packet.
    #[inline]
    fn run_to_completion(&mut self, now: Instant) {
        let Self { burst, pipeline, app, tools, follower, counters, .. } = self;
        if burst.len() > 1 {
            // Prefetches all headers at once, so that the cache misses of a burst overlap instead
            // of following each other. If there are many connections, theirs are prefetched while
            // the frames before are processed; so is what the app has of many peers.
            burst.iter().for_each(Mbuf::prefetch);
            tools.tcp.prefetch(burst);
            app.prefetch(burst);
        }
        let mut cx = tools.cx(now);
        for mbuf in burst.drain(..) {
            pipeline.push(mbuf, app, &mut cx);
        }
        if let Some(follower) = follower {
            follower.catch_up(cx.host);
            deliver_kernel_icmp_errors(follower, pipeline, app, counters, &mut cx);
            // The neighbor requests of this burst, and of the timers of the turn before.
            pass_neighbor_requests(follower, cx.egress);
        }
        // Frames that waited for a neighbor leave before the frames sent from here on.
        cx.tick_egress();
        pipeline.tick(app, &mut cx);
        if cx.timers.is_due(now) {
            expire_timers(app, &mut cx);
        }
        app.tick(&mut cx);
    }

    /// Updates the gauges and, at intervals, the counters that the kernel or the NIC keeps.
    /// [`Worker::run`] calls it; a loop of one's own calls it every few hundred turns.
    pub fn publish(&mut self) {
        self.publications += 1;
        if self.publications.is_multiple_of(REFRESH_PUBLICATIONS) {
            self.rx.refresh_counters();
            self.tools.tx.refresh_counters();
        }
        self.tools.tcp.publish();
        self.counters.last_poll.set(self.last_turn.started.as_nanos());
        self.counters.pool_in_use.set(self.tools.pool.in_use() as u64);
        self.counters.pool_exhausted.set(self.tools.pool.exhausted());
        self.counters.drops_without_reason.set(self.tools.pool.drops_without_reason());
    }

    /// Runs the app outside a turn: at start, to join and to connect; at the end, to close. Frames
    /// that it posts are followed by a doorbell.
    pub fn with_app<T>(&mut self, now: Instant, act: impl FnOnce(&mut A, &mut Cx<'_>) -> T) -> T {
        let mut cx = self.tools.cx(now);
        let result = act(&mut self.app, &mut cx);
        self.tools.tx.ring_doorbell(now);
        result
    }

    /// As [`with_app`](Self::with_app), without the doorbell: frames that it posts leave with the
    /// next turn, or by [`Cx::ring_doorbell`]. For a loop that makes several calls between two
    /// turns, on a device whose doorbell is a system call.
    pub fn with_app_batched<T>(&mut self, now: Instant, act: impl FnOnce(&mut A, &mut Cx<'_>) -> T) -> T {
        let mut cx = self.tools.cx(now);
        act(&mut self.app, &mut cx)
    }

    /// The app with its context, for a caller that keeps both over several calls: frames that they
    /// post leave as with [`with_app_batched`](Self::with_app_batched).
    #[inline]
    pub fn app_and_cx(&mut self, now: Instant) -> (&mut A, Cx<'_>) {
        (&mut self.app, self.tools.cx(now))
    }

    /// At the end: resets all open TCP connections, so that no peer keeps them open, and waits
    /// until the resets are on the wire. Returns how many there were. For an orderly end, close the
    /// connections and poll until they have ended.
    ///
    /// Walks over the whole connection table, and waits for the device and for buffers, some
    /// milliseconds if there is no progress: do not call it within a turn.
    pub fn reset_connections(&mut self, now: Instant) -> usize {
        let (mut reset, mut next, mut idle_turns) = (0, Some(0), 0);
        while idle_turns < RESET_TURNS && (next.is_some() || self.tools.tx.in_flight() > 0) {
            let mut moved = self.tools.tx.reap();
            if let Some(first) = next {
                let room = self.tools.tx.room();
                let count;
                (count, next) = self.tools.cx(now).tcp().abort_from(first, room);
                (reset, moved) = (reset + count, moved + count);
            }
            self.tools.tx.ring_doorbell(now);
            idle_turns = if moved > 0 { 0 } else { idle_turns + 1 };
        }
        reset
    }

    /// The app.
    pub fn app(&self) -> &A {
        &self.app
    }

    /// The app, for calls that need neither time nor context.
    pub fn app_mut(&mut self) -> &mut A {
        &mut self.app
    }

    /// The pipeline.
    pub fn pipeline(&self) -> &N {
        &self.pipeline
    }

    /// The buffer pool.
    pub fn pool(&self) -> &Pool {
        &self.tools.pool
    }

    /// The receive queue.
    pub fn rx(&self) -> &Rx {
        &self.rx
    }

    /// The receive queue, to change settings that the device allows to change while it runs.
    pub fn rx_mut(&mut self) -> &mut Rx {
        &mut self.rx
    }

    /// The transmit queue.
    pub fn tx_mut(&mut self) -> &mut Tx {
        &mut self.tools.tx
    }

    /// Packets that are neither delivered nor dropped yet: fragments that wait for the rest of
    /// their datagram, and frames that wait for their neighbor.
    pub fn kept(&self) -> usize {
        self.pipeline.kept() + self.tools.egress.kept()
    }

    /// Returns the app, at the end.
    pub fn into_app(mut self) -> A {
        self.publish();
        self.app
    }
}

/// Why [`Worker::run`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ended {
    /// The stop flag was set.
    Stopped,
    /// The device has ended: the capture is over, or the peer is gone.
    DeviceEnded,
}

/// The interval at which a worker polls for events that no descriptor announces; `None` where there
/// are none.
fn period<Tx: TxQueue>(rx: &impl RxQueue, tools: &Tools<Tx>, follower: Option<&Follower>) -> Option<Duration> {
    if tools.tx.in_flight() > 0 || tools.pool.available() == 0 {
        // A wakeup that the kernel refused is repeated, and buffers come back.
        return Some(DEVICE_PERIOD);
    }
    let Some(follower) = follower else { return rx.wait_fd().map(|_| LINK_PERIOD) };
    match is_urgent(tools, follower) {
        true => Some(URGENT_PERIOD),
        false => (!follower.is_slept_on()).then_some(FOLLOWER_PERIOD),
    }
}

/// Whether something waits for an answer of the kernel. The kernel takes 5 s to confirm a neighbor
/// that it knows: urgent is one that frames wait for.
fn is_urgent<Tx: TxQueue>(tools: &Tools<Tx>, follower: &Follower) -> bool {
    let awaits_neighbor = tools.egress.kept() > 0 && tools.egress.awaits_neighbor();
    follower.is_renewing() || awaits_neighbor || tools.tcp.misses_route()
}

/// Processes ICMP errors that the kernel received as if they were frames.
#[inline]
fn deliver_kernel_icmp_errors<N: Node<A>, A>(
    follower: &mut Follower,
    pipeline: &mut N,
    app: &mut A,
    counters: &WorkerCounters,
    cx: &mut Cx<'_>,
) {
    for _ in 0..KERNEL_ICMP_ERRORS_PER_TURN {
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

/// Rebuilds the frame of an ICMP error.
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

/// Calls the app for its expired timers.
#[inline(never)]
fn expire_timers<A: App>(app: &mut A, cx: &mut Cx<'_>) {
    let mut budget = Timers::budget();
    while let Some(token) = cx.timers.take_due(cx.now, &mut budget) {
        app.on_timer(token, cx);
    }
}

/// Passes neighbor requests to the kernel.
#[inline]
fn pass_neighbor_requests(follower: &mut Follower, egress: &mut Egress) {
    while let Some(request) = egress.next_neighbor_request() {
        // A request that finds the queue full is made again.
        let _ = follower.want(request.next_hop);
    }
}

impl WorkerCounters {
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
            drops_without_reason: pool.gauge("drops_without_reason", Unit::Packets),
        }
    }

    #[inline]
    fn turn(&mut self, now: Instant, last: LastTurn) {
        self.polls.inc();
        if last.received > 0 {
            self.burst_ns.record(now.since(last.started).as_nanos());
        }
    }
}
