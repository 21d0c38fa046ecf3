//! The frames that the port steers to the worker: each socket that is bound, listens or connects
//! adds its flow, and removes it when none of its frames can arrive any more.

use core::net::{Ipv4Addr, SocketAddrV4};
use std::collections::{HashMap, VecDeque};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use wirepath::counters::Block;
use wirepath::device::steering::SteerError;
use wirepath::pipeline::Cx;
use wirepath::pipeline::tcp::{ConnectionId, State as TcpState};
use wirepath::proto::Host;
use wirepath::time::{Duration, Instant};
use wirepath::wire::Protocol;
use wirepath::worker::live::{FlowSpec, LiveError, LivePort};

use crate::errno::Errno;

/// How often a closed connection is looked for. Most are gone at the first look: their peer closed
/// first, and has acknowledged our FIN. The flow of one that is not gone stays, because the kernel
/// would answer its segments with resets.
const LOOK_SPAN: Duration = Duration::from_millis(250);
/// The time until one in TIME-WAIT is looked for: the state lasts as long (RFC 9293 3.4.1).
const TIME_WAIT: Duration = Duration::from_secs(60);

/// A port that steers flows to the worker, and all other frames elsewhere.
pub trait Steering {
    /// Steers a flow to the worker, from the next frame on. System calls; not for the data path.
    ///
    /// # Errors
    /// `ENOBUFS`: the port has no room for the rule. Where the queue is a broker's: its error.
    fn add_flow(&mut self, flow: FlowSpec) -> Result<(), Errno>;

    /// Removes a flow.
    fn remove_flow(&mut self, flow: &FlowSpec);

    /// Whether connections that begin may come by a flow that was added: not, once only connections
    /// that were accepted need it. By default without effect; it matters where other programs
    /// listen at the same port.
    fn set_listening(&mut self, flow: &FlowSpec, listening: bool) {
        let _ = (flow, listening);
    }

    /// Shows a kernel socket of this process that has a port, before a flow there is added: a
    /// broker takes it for one of this process's user from then on, whoever has made it. By default
    /// without effect.
    fn claim(&mut self, socket: BorrowedFd<'_>, protocol: Protocol, port: u16) {
        let _ = (socket, protocol, port);
    }

    /// Whether a connection that no caller has accepted can go to another process that listens at
    /// its port. By default not.
    fn hands_over(&self) -> bool {
        false
    }

    /// Whether several stacks of a process may listen at one TCP port, each for the connections
    /// whose frames come to it. By default where connections can go to another process.
    fn shares_listeners(&self) -> bool {
        self.hands_over()
    }

    /// Why no frame will come any more although the interface exists, if that is so. May be a
    /// system call. By default not.
    fn why_ended(&self) -> Option<String> {
        None
    }

    /// Set while the port has flows for [`take_lost_flows`](Self::take_lost_flows), which each turn
    /// reads. By default none is ever lost.
    fn lost_flag(&self) -> Arc<AtomicBool> {
        Arc::default()
    }

    /// The flows that someone has taken from the port since the last call, each with the reason: a
    /// broker takes a flow back that new rules do not give, or whose port another user has bound.
    fn take_lost_flows(&mut self) -> Vec<(FlowSpec, Errno)> {
        Vec::new()
    }

    /// The sentence for a port whose interface brings frames of our flows elsewhere, because it
    /// spreads them over several queues, if it does. By default none.
    fn unsteered(&self) -> Option<String> {
        None
    }

    /// The counters of the port's device, if they are kept with it. By default none.
    fn counters(&self) -> Option<Arc<Block>> {
        None
    }
}

/// A port whose frames all come to the worker.
impl Steering for () {
    fn add_flow(&mut self, _: FlowSpec) -> Result<(), Errno> {
        Ok(())
    }

    fn remove_flow(&mut self, _: &FlowSpec) {}
}

impl Steering for LivePort {
    fn add_flow(&mut self, flow: FlowSpec) -> Result<(), Errno> {
        Self::add_flow(self, flow).map_err(|error| match error {
            // The flow is another's, or the user may not have it.
            LiveError::Steering { error: SteerError::Broker { errno }, .. } => Errno(errno),
            _ => Errno::ENOBUFS,
        })
    }

    /// This fails only if the port is gone, and its rules with it.
    fn remove_flow(&mut self, flow: &FlowSpec) {
        let _ = Self::remove_flow(self, flow);
    }

    fn set_listening(&mut self, flow: &FlowSpec, listening: bool) {
        Self::set_listening(self, flow, listening);
    }

    /// Where it fails, so does the flow, if the broker does not give it without.
    fn claim(&mut self, socket: BorrowedFd<'_>, protocol: Protocol, port: u16) {
        let _ = Self::claim(self, socket, protocol, port);
    }

    fn hands_over(&self) -> bool {
        Self::hands_over(self)
    }

    fn shares_listeners(&self) -> bool {
        Self::shares_listeners(self)
    }

    fn unsteered(&self) -> Option<String> {
        Self::unsteered(self)
    }

    fn why_ended(&self) -> Option<String> {
        Self::why_ended(self)
    }

    fn lost_flag(&self) -> Arc<AtomicBool> {
        Self::lost_flag(self)
    }

    fn take_lost_flows(&mut self) -> Vec<(FlowSpec, Errno)> {
        Self::take_lost_flows(self).into_iter().map(|(flow, errno)| (flow, Errno(errno))).collect()
    }
}

/// The flows of all sockets. Several sockets may need the same flow: data of accepted connections
/// arrives by the listener's flow.
pub(crate) struct Flows {
    steering: Box<dyn Steering>,
    is_any_lost: Arc<AtomicBool>,
    held: HashMap<FlowSpec, Users>,
    /// Closed connections, the one that is looked for next first.
    closing: VecDeque<Leaving>,
    /// Those that were in TIME-WAIT at their last look, the oldest first.
    in_time_wait: VecDeque<Leaving>,
    /// Flows that were added or removed.
    changes: u64,
}

/// Who needs a flow.
struct Users {
    /// All sockets that do.
    all: usize,
    /// Listeners among them.
    listeners: usize,
}

/// A closed connection that may still receive segments.
struct Leaving {
    connection: ConnectionId,
    flows: Vec<FlowSpec>,
    next_look: Instant,
}

impl Flows {
    pub(crate) fn new(steering: Box<dyn Steering>) -> Self {
        let (closing, in_time_wait) = (VecDeque::new(), VecDeque::new());
        let is_any_lost = steering.lost_flag();
        Self { steering, is_any_lost, held: HashMap::new(), closing, in_time_wait, changes: 0 }
    }

    /// Whether flows were taken from the port.
    #[inline]
    pub(crate) fn has_lost(&self) -> bool {
        self.is_any_lost.load(Ordering::Acquire)
    }

    /// These flows, which no socket has any more.
    pub(crate) fn take_lost(&mut self) -> Vec<(FlowSpec, Errno)> {
        let lost = self.steering.take_lost_flows();
        if lost.is_empty() {
            return lost;
        }
        for (flow, _) in &lost {
            self.held.remove(flow);
        }
        // A closed connection would otherwise release the flow of its next holder.
        let is_kept = |flow: &FlowSpec| lost.iter().all(|(other, _)| other != flow);
        self.closing.iter_mut().chain(&mut self.in_time_wait).for_each(|leaving| leaving.flows.retain(is_kept));
        lost
    }

    pub(crate) fn counters(&self) -> Option<Arc<Block>> {
        self.steering.counters()
    }

    pub(crate) fn unsteered(&self) -> Option<String> {
        self.steering.unsteered()
    }

    pub(crate) fn why_ended(&self) -> Option<String> {
        self.steering.why_ended()
    }

    /// Adds the flows of a socket: all of them, or none if one fails. Where the port has no room
    /// for one, closed connections in TIME-WAIT lose theirs.
    pub(crate) fn hold(&mut self, flows: &[FlowSpec], cx: &mut Cx<'_>) -> Result<(), Errno> {
        for (idx, flow) in flows.iter().enumerate() {
            if let Err(error) = self.hold_one(flow, cx) {
                self.release(&flows[..idx]);
                return Err(error);
            }
        }
        Ok(())
    }

    fn hold_one(&mut self, flow: &FlowSpec, cx: &mut Cx<'_>) -> Result<(), Errno> {
        if let Some(users) = self.held.get_mut(flow) {
            users.all += 1;
            return Ok(());
        }
        self.changes += 1;
        while let Err(error) = self.steering.add_flow(flow.clone()) {
            if error != Errno::ENOBUFS || !self.make_room(cx) {
                return Err(error);
            }
        }
        self.held.insert(flow.clone(), Users { all: 1, listeners: 0 });
        Ok(())
    }

    /// A listener has these flows, which it holds.
    pub(crate) fn begin_to_listen(&mut self, flows: &[FlowSpec]) {
        for flow in flows {
            let Some(users) = self.held.get_mut(flow) else { continue };
            users.listeners += 1;
            // The flow of connections that an earlier listener has left.
            if users.listeners == 1 && users.all > 1 {
                self.steering.set_listening(flow, true);
            }
        }
    }

    /// A listener ends, and is about to release its flows.
    pub(crate) fn end_listening(&mut self, flows: &[FlowSpec]) {
        for flow in flows {
            let Some(users) = self.held.get_mut(flow) else { continue };
            users.listeners -= 1;
            if users.listeners == 0 && users.all > 1 {
                self.steering.set_listening(flow, false);
            }
        }
    }

    /// Releases the flows of a socket.
    pub(crate) fn release(&mut self, flows: &[FlowSpec]) {
        for flow in flows {
            let Some(users) = self.held.get_mut(flow) else { continue };
            users.all -= 1;
            if users.all == 0 {
                self.held.remove(flow);
                self.changes += 1;
                self.steering.remove_flow(flow);
            }
        }
    }

    /// Releases the flows of a closed connection once it is gone.
    pub(crate) fn release_later(&mut self, connection: ConnectionId, flows: Vec<FlowSpec>, now: Instant) {
        self.closing.push_back(Leaving { connection, flows, next_look: now + LOOK_SPAN });
    }

    /// Removes a flow of the connection that has been closed for longest and has nothing left to do
    /// but to repeat its last acknowledgment, if it is asked to (TIME-WAIT): from now on the kernel
    /// answers with a reset, at which its peer ends as well. Returns whether there was one.
    #[cold]
    fn make_room(&mut self, cx: &mut Cx<'_>) -> bool {
        let is_alone = |flow: &FlowSpec| self.held.get(flow).is_some_and(|users| users.all == 1);
        let mut frees_one = |leaving: &Leaving| {
            leaving.flows.iter().any(&is_alone)
                && matches!(leaving.state(cx), None | Some(TcpState::TimeWait | TcpState::Closed))
        };
        let mut take = |queue: &mut VecDeque<Leaving>| queue.remove(queue.iter().position(&mut frees_one)?);
        let Some(leaving) = take(&mut self.in_time_wait).or_else(|| take(&mut self.closing)) else { return false };
        self.release(&leaving.flows);
        true
    }

    /// Shows a kernel socket of this process at a port to whoever steers.
    pub(crate) fn claim(&mut self, socket: BorrowedFd<'_>, protocol: Protocol, port: u16) {
        self.steering.claim(socket, protocol, port);
    }

    /// Whether connections can go to other processes.
    pub(crate) fn hands_over(&self) -> bool {
        self.steering.hands_over()
    }

    /// Whether other stacks of the process may listen at the same port.
    pub(crate) fn shares_listeners(&self) -> bool {
        self.steering.shares_listeners()
    }

    /// Flows that were added or removed so far.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// Closed connections whose flows are not released yet.
    #[inline]
    pub(crate) fn leaving(&self) -> usize {
        self.closing.len() + self.in_time_wait.len()
    }

    /// Closed connections that were not in TIME-WAIT at their last look.
    pub(crate) fn closing(&self) -> impl Iterator<Item = ConnectionId> {
        self.closing.iter().map(|leaving| leaving.connection)
    }

    /// The time at which a closed connection is next looked for; `Instant::MAX` if there is none.
    pub(crate) fn next_deadline(&self) -> Instant {
        let next = |queue: &VecDeque<Leaving>| queue.front().map_or(Instant::MAX, |leaving| leaving.next_look);
        next(&self.closing).min(next(&self.in_time_wait))
    }

    /// Releases the flows of connections that are gone, at most [`LOOKS_PER_TICK`] of them; costs
    /// two comparisons where none is due.
    #[inline]
    pub(crate) fn tick(&mut self, cx: &mut Cx<'_>) {
        if self.next_deadline() <= cx.now {
            self.look(cx);
        }
    }

    fn look(&mut self, cx: &mut Cx<'_>) {
        for _ in 0..LOOKS_PER_TICK {
            let due = |queue: &VecDeque<Leaving>| queue.front().is_some_and(|leaving| leaving.next_look <= cx.now);
            let from = if due(&self.closing) { &mut self.closing } else { &mut self.in_time_wait };
            let Some(leaving) = from.pop_front_if(|leaving| leaving.next_look <= cx.now) else { return };
            match leaving.state(cx) {
                None | Some(TcpState::Closed) => self.release(&leaving.flows),
                Some(TcpState::TimeWait) => {
                    self.in_time_wait.push_back(Leaving { next_look: cx.now + TIME_WAIT, ..leaving });
                }
                Some(_) => self.closing.push_back(Leaving { next_look: cx.now + LOOK_SPAN, ..leaving }),
            }
        }
    }
}

impl Leaving {
    /// `None`: the connection is gone.
    fn state(&self, cx: &mut Cx<'_>) -> Option<TcpState> {
        cx.tcp().info(self.connection).map(|info| info.state)
    }
}

/// Each look that ends with a removed rule is a system call.
const LOOKS_PER_TICK: usize = 16;

/// The flows of datagrams or segments to `local`; for the unspecified address, one for each of the
/// host's.
pub(crate) fn flows_to(local: SocketAddrV4, host: &Host, flow: fn(Ipv4Addr, u16) -> FlowSpec) -> Vec<FlowSpec> {
    if !local.ip().is_unspecified() {
        return vec![flow(*local.ip(), local.port())];
    }
    host.addresses().iter().map(|prefix| flow(prefix.address(), local.port())).collect()
}

/// The flow of the segments that a connection's peer sends.
pub(crate) fn flow_from(remote: SocketAddrV4, local: SocketAddrV4) -> FlowSpec {
    FlowSpec { destination: local, ..FlowSpec::tcp_from(remote) }
}
