//! The broker's loop: accepts connections, reads one request of each client that has sent some, and
//! replies.

use core::net::Ipv4Addr;
use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use std::{fs, io};

use super::clients::{CLIENTS_MAX, Client, Clients};
use super::error::{BrokerError, Refusal};
use super::flows::{ClientId, FlowTable, Held, RuleBudget};
use super::forward::{ClientIdx, Forwarder};
use super::leaving::{LeavingPort, LeavingPorts};
use super::listener::Listener;
use super::orders::{Lent, Turns, WaitingOrder};
use super::owners;
use super::refusals::{OF_A_CLIENT, OF_A_STRANGER, RefusalLines, Written};
use super::rights::{BrokerRule, BrokerRules, BrokerUser, Rights};
use crate::counters::{Block, Counter, Gauge, Unit};
use crate::device::af_xdp::broker::forwarded::ForwardedQueue;
use crate::device::af_xdp::broker::lend::QueueOrder;
use crate::device::af_xdp::broker::message::{Flow, MESSAGE_LEN_MAX, Reply, Request, VERSION, Welcome};
use crate::device::af_xdp::broker::sys::{self, Events, Peer};
use crate::device::af_xdp::{AfXdpConfig, AfXdpDevice, Mode, broker_of};
use crate::device::steering::{RuleId, SteerError};
use crate::device::{Device, DeviceError};
use crate::wire::icmpv4::{Icmpv4Message, QuotedFlow};
use crate::wire::{Ipv4Packet, Protocol};
use crate::worker::StopFlag;
use crate::worker::kernel::Mirror;
use crate::worker::live::icmp_errors;

/// The longest wait for a request. Between two waits the loop checks the program and the stop flag.
const TURN_INTERVAL: Duration = Duration::from_millis(100);
/// The same while a client waits for a queue, and how long it waits at most: the kernel frees the
/// queue of a process that was killed some milliseconds later.
const LEND_INTERVAL: Duration = Duration::from_millis(20);
const LENDS_WITHIN: Duration = Duration::from_millis(500);
/// How often the ports of clients are compared with the kernel's sockets.
const REVIEW_INTERVAL: Duration = Duration::from_secs(2);
/// The most connections accepted in a turn.
const ACCEPTED_A_TURN: usize = 16;
/// The most ICMP errors passed on in a turn.
const ERRORS_A_TURN: usize = 64;
/// The most log lines between two reviews.
const LINES_MAX: u32 = 20;

/// The interface, the users and programs that may have its queues, and the path of the socket.
#[derive(Clone, Debug)]
pub struct BrokerConfig {
    /// The interface and the mode of its program.
    pub port: AfXdpConfig,
    /// The path of the socket.
    pub path: PathBuf,
    /// The users that are served beside root, if there are no `rules`.
    pub users: Vec<BrokerUser>,
    /// The rules by which programs are served, beside root's. By default `None`: each of `users`
    /// may have all ports from 1024 on, all groups, all addresses, and any number of queues.
    pub rules: Option<Vec<BrokerRule>>,
    /// The most bytes of packet buffers of a client.
    pub memory_max: u64,
    /// The most bytes of packet buffers of all clients of a user together; root has no bound.
    pub user_memory_max: u64,
    /// Keeps all queues, and passes frames between them and the clients, so that more programs than
    /// queues share the interface. By default off: each client gets a queue.
    pub forward: bool,
    /// Serves further users where root's programs ask for it, as `wirepath run --user` does. By
    /// default off: it serves `users`.
    pub serves_added_users: bool,
}

impl BrokerConfig {
    /// The broker of `interface` at its usual path, for root alone, with 256 MiB of packet buffers
    /// for a client: three times what the library of `wirepath run` takes. All clients of a user
    /// have 3 GiB: as many programs under the library as a user may have connections.
    pub fn new(interface: &str) -> Self {
        let port = AfXdpConfig { rules_max: 65_536, ..AfXdpConfig::new(interface) };
        Self {
            port,
            path: broker_of(interface),
            users: Vec::new(),
            rules: None,
            memory_max: 256 << 20,
            user_memory_max: 3 << 30,
            forward: false,
            serves_added_users: false,
        }
    }
}

/// A broker. When it is dropped or its process ends, the kernel gets the frames of its clients.
pub struct Broker {
    config: BrokerConfig,
    rights: Rights,
    /// New rules, to be applied.
    replacement: BrokerRules,
    device: AfXdpDevice,
    queues: u16,
    mirror: Mirror,
    icmp_errors: UdpSocket,
    listener: Listener,
    clients: Clients,
    turns: Turns,
    flows: FlowTable,
    /// Passes frames on, if the queues are not lent.
    forwarder: Option<Forwarder>,
    /// Ports that no client has any more and whose frames are still dropped.
    leaving: LeavingPorts,
    reviewed: Instant,
    /// The number of log lines since the last review.
    lines: u32,
    refusal_lines: RefusalLines,
    counters: Counters,
    _block: Block,
}

struct Counters {
    clients: Gauge,
    requests: Counter,
    refused: Counter,
    refused_by_rights: Counter,
    refused_as_taken: Counter,
    flows_taken_back: Counter,
    errors_passed_on: Counter,
}

/// A reply, with the descriptors that go with it.
struct Answer {
    /// Without one the client waits.
    reply: Option<Reply>,
    icmp_errors: Option<OwnedFd>,
    /// The descriptors of the client's queue go with the reply.
    has_queue: bool,
}

impl Broker {
    /// Attaches the program, and listens.
    ///
    /// # Errors
    /// One sentence with the next step: no such interface, no permission, another program on the
    /// interface, another broker.
    pub fn open(config: BrokerConfig) -> Result<Self, BrokerError> {
        let failed = |error: &dyn core::fmt::Display| BrokerError(error.to_string());
        let interface = config.port.interface.clone();
        // Listens first, because another broker of the interface is then the error, and not its
        // program.
        let listener = Listener::open(&config.path)?;
        let mut device = AfXdpDevice::open(&config.port).map_err(|error| failed(&error))?;
        let block = Block::create("broker").map_err(|error| failed(&error))?;
        let scope = block.scope("broker");
        let mirror = Mirror::open(&scope).map_err(|error| failed(&error))?;
        let icmp_errors =
            icmp_errors(&interface).and_then(|socket| socket.set_nonblocking(true).map(|()| socket)).map_err(
                |error| BrokerError(format!("ICMP errors of {interface} cannot be heard ({error}): run as root")),
            )?;
        let counters = Counters {
            clients: scope.gauge("clients", Unit::Number),
            requests: scope.counter("requests", Unit::Messages),
            refused: scope.counter("refused", Unit::Messages),
            refused_by_rights: scope.counter("refused_by_rights", Unit::Messages),
            refused_as_taken: scope.counter("refused_as_taken", Unit::Messages),
            flows_taken_back: scope.counter("flows_taken_back", Unit::Number),
            errors_passed_on: scope.counter("icmp_errors", Unit::Messages),
        };
        let capabilities = device.capabilities();
        let forwarder = if config.forward {
            let queues: Result<Vec<_>, _> = (0..capabilities.queues).map(|idx| device.take_queue(idx)).collect();
            let queues = queues.map_err(|error| failed(&error))?;
            let started = Forwarder::start(queues, capabilities.frame_len_max, block.scope("forward"));
            Some(started.map_err(|why| BrokerError(format!("frames of {interface} cannot be passed on: {why}")))?)
        } else {
            None
        };
        // A client has one queue, or all where frames are passed on.
        let of_a_flow = if forwarder.is_some() { usize::from(capabilities.queues) } else { 1 };
        let budget = RuleBudget { rules_max: config.port.rules_max, of_a_flow };
        Ok(Self {
            queues: capabilities.queues,
            rights: match &config.rules {
                Some(rules) => Rights::of_rules(rules.clone()),
                None => Rights::Users(config.users.clone()),
            },
            replacement: BrokerRules::default(),
            config,
            device,
            mirror,
            icmp_errors,
            listener,
            clients: Clients::default(),
            turns: Turns::default(),
            flows: FlowTable::new(forwarder.is_some(), budget),
            forwarder,
            leaving: LeavingPorts::default(),
            reviewed: Instant::now(),
            lines: 0,
            refusal_lines: RefusalLines::new(Instant::now()),
            counters,
            _block: block,
        })
    }

    /// For the operator: the interface, the mode, the path.
    pub fn describe(&self) -> String {
        let mut words = format!("{}; at {}", self.device.describe(), self.config.path.display());
        if self.forwarder.is_some() {
            words += "; frames are passed on, so programs share the queues";
        } else if self.queues > 1 {
            let interface = &self.config.port.interface;
            words += &format!("; each program gets one of {} queues", self.queues);
            if self.device.why_unsteered().is_some() {
                words += &format!(
                    ", and only what the NIC delivers there: steer with `ethtool -N {interface}`, or have one queue \
                     (`ethtool -L {interface} combined 1`)"
                );
            }
        }
        words
    }

    /// Replaces the broker's rules while it serves.
    pub fn rules(&self) -> BrokerRules {
        self.replacement.clone()
    }

    /// Serves until `stop`. `report` gets a line for each client that comes or goes, and for each
    /// refusal.
    ///
    /// # Errors
    /// The program was taken off the interface for good, or the interface is gone.
    pub fn serve(self, stop: &StopFlag, report: impl FnMut(&str)) -> Result<(), BrokerError> {
        self.serve_while(stop, |_| true, report)
    }

    /// As [`serve`](Self::serve), and ends as well when `is_needed` returns false. It is called ten
    /// times a second or more, with the number of clients.
    ///
    /// # Errors
    /// As of `serve`.
    pub fn serve_while(
        mut self,
        stop: &StopFlag,
        mut is_needed: impl FnMut(usize) -> bool,
        mut report: impl FnMut(&str),
    ) -> Result<(), BrokerError> {
        while !stop.is_stopping() && is_needed(self.clients.iter().count()) {
            self.turn(&mut report)?;
        }
        Ok(())
    }

    fn turn(&mut self, report: &mut dyn FnMut(&str)) -> Result<(), BrokerError> {
        let ids: Vec<ClientId> = self.clients.iter().map(|client| client.id).collect();
        let fixed = [self.listener.socket.as_raw_fd(), self.icmp_errors.as_raw_fd()];
        let fds: Vec<RawFd> = fixed.into_iter().chain(self.clients.iter().flat_map(Client::descriptors)).collect();
        let events = sys::wait(&fds, self.wait_at_most())
            .map_err(|error| BrokerError(format!("waiting for requests failed ({error}): start the broker again")))?;
        self.device.look_after();
        if let Some(why) = self.device.why_ended() {
            return Err(BrokerError(why));
        }
        if self.forwarder.as_ref().is_some_and(Forwarder::has_ended) {
            return Err(BrokerError("the thread that passes frames on has failed: start the broker again".into()));
        }
        if let Some(rights) = self.replacement.take() {
            self.reassess(rights, report);
            // Some clients have gone.
            return Ok(());
        }
        let (fixed, of_clients) = events.split_at(fixed.len());
        for (id, events) in ids.into_iter().zip(of_clients.chunks_exact(2)) {
            self.serve_client(id, events, report);
        }
        self.lend_to_next(report);
        self.end_idle_clients(report);
        self.pass_errors_on();
        self.let_ports_leave();
        if fixed[0].is_readable {
            self.accept(report);
        }
        if self.reviewed.elapsed() >= REVIEW_INTERVAL {
            self.review(report);
        }
        self.counters.clients.set(self.clients.iter().count() as u64);
        Ok(())
    }

    /// How long the loop waits for requests: not at all while an order has not been tried.
    fn wait_at_most(&self) -> Duration {
        match self.clients.iter().filter_map(|client| client.waits).map(|waiting| waiting.tries).min() {
            Some(0) => Duration::ZERO,
            Some(_) => LEND_INTERVAL,
            None => TURN_INTERVAL,
        }
    }

    /// Ends connections that have long had nothing.
    fn end_idle_clients(&mut self, report: &mut dyn FnMut(&str)) {
        let now = Instant::now();
        let late: Vec<ClientId> =
            self.clients.iter().filter(|client| client.is_late(now)).map(|client| client.id).collect();
        late.into_iter().for_each(|id| self.end_client(id, report));
    }

    /// Gives ports that no client has any more to the kernel.
    fn let_ports_leave(&mut self) {
        let now = Instant::now();
        let due = self.leaving.take_due(now);
        if due.is_empty() {
            return;
        }
        // Once for all of them, because a client may give up a thousand ports at once, and the
        // kernel's list is long on a busy machine.
        let devices = self.devices();
        let sockets = owners::sockets(Protocol::TCP, &devices).unwrap_or_default();
        for mut port in due {
            match port.stays(&sockets, &devices, now) {
                true => self.leaving.keep(port),
                false => self.give_to_kernel(&port),
            }
        }
    }

    /// The kernel receives the frames of a port that has left.
    fn give_to_kernel(&mut self, port: &LeavingPort) {
        for &rule in &port.rules {
            // The rule is in place, or the interface is gone.
            let _ = self.device.unsteer(rule);
        }
    }

    /// Whether there are rules for another flow of user `uid`. Ports that leave make room for it.
    fn make_room(&mut self, uid: u32) -> Result<(), Refusal> {
        loop {
            let Err(refusal) = self.flows.check_budget(uid, self.leaving.counts(uid)) else { return Ok(()) };
            let Some(port) = self.leaving.take_for(uid) else { return Err(refusal) };
            self.give_to_kernel(&port);
        }
    }

    /// Handles one request of a client, or its end.
    fn serve_client(&mut self, id: ClientId, events: &[Events], report: &mut dyn FnMut(&str)) {
        let has_died = events[1].is_readable;
        // One that waits for the answer to its request has no other, so it says nonsense. Requests
        // sent before the client closed its end are dropped.
        let waits = self.clients.get(id).is_some_and(|client| client.waits.is_some());
        let goes_on =
            !has_died && !events[0].has_ended && (!events[0].is_readable || (!waits && self.serve_one(id, report)));
        if !goes_on {
            self.end_client(id, report);
        }
    }

    /// Receives a request and replies; returns whether the client stays.
    fn serve_one(&mut self, id: ClientId, report: &mut dyn FnMut(&str)) -> bool {
        let Some(client) = self.clients.get(id) else { return false };
        let mut bytes = [0; MESSAGE_LEN_MAX];
        let request = match sys::receive(&client.socket, &mut bytes, None) {
            Ok(0) => return false,
            Ok(len) => Request::decode(&bytes[..len]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
            Err(error) if error.kind() == io::ErrorKind::InvalidData => None,
            Err(_) => return false,
        };
        self.counters.requests.inc();
        let is_nonsense = request.is_none();
        let answer = match request {
            Some(request) => self.answer(id, request),
            None => Err(Refusal::new(libc::EBADMSG, "that is no request of this release: update the program")),
        };
        let answer = answer.unwrap_or_else(|refusal| self.refuse(id, refusal, report));
        self.reply(id, &answer) && !is_nonsense
    }

    fn answer(&mut self, id: ClientId, request: Request) -> Result<Answer, Refusal> {
        let Some(client) = self.clients.get(id) else { return Err(Refusal::new(libc::ENOTCONN, "no such client")) };
        if !client.is_known && !matches!(request, Request::Hello { .. }) {
            return Err(Refusal::new(libc::EPROTO, "a request came before the first, hello: update the program"));
        }
        match request {
            Request::Hello { version } => self.answer_hello(id, version),
            Request::Open { umem_len, chunk_len, rx_ring_len, tx_ring_len } => {
                self.order(id, QueueOrder { umem_len, chunk_len, rx_ring_len, tx_ring_len })
            }
            Request::Connect => self.connect(id),
            Request::Disconnect => {
                let queue = client.queue;
                match (&self.forwarder, queue) {
                    (Some(forwarder), Some(queue)) => forwarder.set_receiving(queue.into(), false),
                    (None, Some(queue)) => self.device.disconnect(queue),
                    (_, None) => (),
                }
                Ok(Reply::Done.into())
            }
            Request::Steer(flow) => self.steer(id, flow),
            Request::Unsteer { id: flow } => {
                let Some(given_up) = self.flows.remove(id, flow) else {
                    return Err(Refusal::new(libc::ENOENT, format!("the client has no flow {flow}")));
                };
                if let Some(held) = given_up {
                    self.unsteer(&held);
                }
                Ok(Reply::Done.into())
            }
            Request::SetListening { id: flow, listening } => {
                let Some(held) = self.flows.get(id, flow) else {
                    return Err(Refusal::new(libc::ENOENT, format!("the client has no flow {flow}")));
                };
                if let (Some(forwarder), Some(queue)) = (&self.forwarder, client.queue) {
                    forwarder.set_listening(queue.into(), held.flow, listening);
                }
                Ok(Reply::Done.into())
            }
            Request::Resolve(address) => self.resolve(id, address),
            Request::Serve { uid } => {
                if client.peer.uid != 0 {
                    return Err(Refusal::new(libc::EPERM, "only root says whom the broker serves: run this as root"));
                }
                self.rights.serve(uid, self.config.serves_added_users)?;
                Ok(Reply::Done.into())
            }
        }
    }

    fn answer_hello(&mut self, id: ClientId, version: u16) -> Result<Answer, Refusal> {
        if version != VERSION {
            let sentence =
                format!("the program speaks version {version} and the broker {VERSION}: use one release of both");
            return Err(Refusal::new(libc::EPROTONOSUPPORT, sentence));
        }
        let (ours, theirs) = UnixDatagram::pair().map_err(|error| system("a pair of sockets", &error))?;
        ours.set_nonblocking(true).map_err(|error| system("a socket that does not wait", &error))?;
        let Some(client) = self.clients.get(id) else { return Err(Refusal::new(libc::ENOTCONN, "no such client")) };
        client.is_known = true;
        client.icmp_errors = Some(ours);
        let reply = Reply::Welcome(Welcome {
            interface_idx: self.device.interface_idx(),
            native: self.device.mode() == Mode::Native,
            has_rx_hints: self.device.has_rx_hints(),
            forwards: self.forwarder.is_some(),
        });
        Ok(Answer { icmp_errors: Some(theirs.into()), ..reply.into() })
    }

    /// A client orders its queue, which it gets at once, or when the kernel has freed one.
    fn order(&mut self, id: ClientId, order: QueueOrder) -> Result<Answer, Refusal> {
        order.check(self.config.memory_max).map_err(|sentence| Refusal::new(libc::EINVAL, sentence))?;
        let Some(client) = self.clients.get(id) else { return Err(Refusal::new(libc::ENOTCONN, "no such client")) };
        client.rights.are_any()?;
        if client.lent.is_some() {
            return Err(Refusal::new(libc::EBUSY, "the client has its queue already: it gets one"));
        }
        self.clients.order(id, order, self.config.user_memory_max)?;
        Ok(Answer { reply: None, icmp_errors: None, has_queue: false })
    }

    /// Tries to lend a queue to the waiting client whose turn it is.
    fn lend_to_next(&mut self, report: &mut dyn FnMut(&str)) {
        let waiting = self.clients.iter().filter_map(|client| Some((client.id, client.peer.uid, client.waits?.tries)));
        let Some(id) = self.turns.next(waiting) else { return };
        let Some(order) = self.clients.get(id).and_then(|client| client.waits) else { return };
        let lent = self.lend(id, &order);
        if let Some(client) = self.clients.get(id) {
            client.waits = lent.is_none().then_some(WaitingOrder { tries: order.tries + 1, ..order });
        }
        let Some(lent) = lent else { return };
        if let (Err(_), Some(client)) = (&lent, self.clients.get(id)) {
            client.memory = 0;
        }
        let answer = lent.unwrap_or_else(|refusal| self.refuse(id, refusal, report));
        if !self.reply(id, &answer) {
            self.end_client(id, report);
        }
    }

    /// Lends a queue to a client that waits for one; `None` if it waits on.
    fn lend(&mut self, id: ClientId, waiting: &WaitingOrder) -> Option<Result<Answer, Refusal>> {
        let order = &waiting.order;
        let made = match &self.forwarder {
            Some(_) => self.lend_forwarded(id, order).map(Some),
            None => self.lend_queue(id, waiting),
        };
        let lent = match made {
            Ok(Some(lent)) => lent,
            Ok(None) if waiting.since.elapsed() < LENDS_WITHIN => return None,
            Ok(None) => {
                let sentence = format!(
                    "processes keep the sockets of queues of {}, which earlier clients had: end them",
                    self.config.port.interface
                );
                return Some(Err(Refusal::new(libc::EBUSY, sentence)));
            }
            Err(refusal) => return Some(Err(refusal)),
        };
        let (zero_copy, multi_buffer, forwarded) = match &lent {
            Lent::Queue(queue) => (queue.zero_copy, queue.multi_buffer, false),
            Lent::Forwarded(_) => (false, true, true),
        };
        if let Some(client) = self.clients.get(id) {
            client.lent = Some(lent);
        }
        let reply = Reply::Opened { umem_len: order.umem_len, zero_copy, multi_buffer, forwarded };
        Some(Ok(Answer { has_queue: true, ..reply.into() }))
    }

    /// A queue whose frames are passed on. Its number is the client's index.
    fn lend_forwarded(&mut self, id: ClientId, order: &QueueOrder) -> Result<Lent, Refusal> {
        let queue = self.clients.candidates(id, CLIENTS_MAX as u16, &self.config.port.interface)?[0];
        self.clients.give(id, queue);
        let user = self.clients.get(id).map_or(u32::MAX, |client| client.peer.uid);
        let (queue_of, end) = ForwardedQueue::make(order).map_err(|error| system("packet buffers", &error))?;
        if let Some(forwarder) = &self.forwarder {
            forwarder.add(queue.into(), user, queue_of);
        }
        Ok(Lent::Forwarded(end))
    }

    /// A queue of the interface; `None` if the kernel does not give the one that was tried.
    fn lend_queue(&mut self, id: ClientId, waiting: &WaitingOrder) -> Result<Option<Lent>, Refusal> {
        let candidates = self.clients.candidates(id, self.queues, &self.config.port.interface)?;
        // One that was not withheld is the first.
        let place = if self.clients.is_withheld(candidates[0]) { waiting.tries % candidates.len() } else { 0 };
        let queue = candidates[place];
        let busy = |error: DeviceError| Refusal::new(libc::EBUSY, error.to_string());
        if self.clients.is_withheld(queue) {
            if self.device.is_free(queue, &waiting.order).map_err(busy)? {
                // The kernel frees it of the socket that has asked a moment later: for the next try.
                self.clients.regain(queue);
            }
            return Ok(None);
        }
        let lent = self.device.lend(queue, &waiting.order).map_err(busy)?;
        match lent {
            Some(_) => self.clients.give(id, queue),
            None => self.clients.withhold(queue),
        }
        Ok(lent.map(Lent::Queue))
    }

    fn connect(&mut self, id: ClientId) -> Result<Answer, Refusal> {
        let (queue, lent) = self.clients.lent(id)?;
        match (lent, &self.forwarder) {
            (Lent::Queue(lent), _) => {
                self.device.connect(queue, lent).map_err(|error| system("the socket in its program's map", &error))?;
            }
            (Lent::Forwarded(_), Some(forwarder)) => forwarder.set_receiving(queue.into(), true),
            (Lent::Forwarded(_), None) => (),
        }
        Ok(Reply::Done.into())
    }

    fn steer(&mut self, id: ClientId, flow: Flow) -> Result<Answer, Refusal> {
        let queue = self.clients.lent(id)?.0;
        self.mirror.turn(Duration::ZERO);
        let addresses = self.addresses();
        let Some(client) = self.clients.get(id) else { return Err(Refusal::new(libc::ENOTCONN, "no such client")) };
        let uid = client.peer.uid;
        client.rights.check(&flow, &addresses)?;
        if let Some(flow) = self.flows.use_again(id, &flow) {
            return Ok(Reply::Steered { id: flow }.into());
        }
        self.make_room(uid)?;
        self.flows.check(id, uid, &flow)?;
        let devices = self.devices();
        let sockets = owners::sockets_of(&flow, &devices);
        let sockets = sockets.map_err(|error| system("the kernel's list of sockets", &error))?;
        let is_bound = owners::is_bound(&flow, &devices).map_err(|error| system("a look at the port", &error))?;
        owners::check(&flow, uid, &sockets, is_bound)?;
        let rules = self.install(&flow, queue)?;
        Ok(Reply::Steered { id: self.flows.add(id, uid, flow, rules) }.into())
    }

    /// Installs the rule of a flow: for the client's queue, or for all queues if frames are passed
    /// on.
    fn install(&mut self, flow: &Flow, queue: u16) -> Result<Vec<RuleId>, Refusal> {
        let queues = match &self.forwarder {
            Some(forwarder) => {
                forwarder.add_flow(queue.into(), *flow);
                0..self.queues
            }
            None => queue..queue + 1,
        };
        let mut rules = Vec::new();
        for idx in queues {
            match self.device.steer(&flow.rule(), idx) {
                Ok(rule) => rules.push(rule),
                Err(error) => {
                    self.uninstall(flow, &rules, queue);
                    let error: SteerError = error;
                    return Err(Refusal::new(libc::ENOBUFS, error.to_string()));
                }
            }
        }
        Ok(rules)
    }

    fn uninstall(&mut self, flow: &Flow, rules: &[RuleId], queue: u16) {
        for &rule in rules {
            // The rule is in place, or the interface is gone.
            let _ = self.device.unsteer(rule);
        }
        if let Some(forwarder) = &self.forwarder {
            forwarder.remove_flow(ClientIdx::from(queue), *flow);
        }
    }

    /// Takes a flow from its client.
    fn unsteer(&mut self, held: &Held) {
        let queue = self.clients.get(held.client).and_then(|client| client.queue).unwrap_or(0);
        let is_port = held.flow.protocol == Protocol::TCP && held.flow.source.is_none();
        if self.forwarder.is_some() && is_port {
            let port = LeavingPort::new(held.flow, held.uid, held.rules.clone(), Instant::now());
            if let Some(gone) = self.leaving.add(port) {
                self.give_to_kernel(&gone);
            }
            return self.uninstall(&held.flow, &[], queue);
        }
        self.uninstall(&held.flow, &held.rules, queue);
    }

    fn resolve(&mut self, id: ClientId, address: Ipv4Addr) -> Result<Answer, Refusal> {
        let now = Instant::now();
        if !self.clients.get(id).is_some_and(|client| client.may_resolve(now)) {
            return Err(Refusal::new(libc::EAGAIN, "the client asks for more neighbors than a network has: slow down"));
        }
        if address.is_unspecified() || address.is_loopback() || address.is_multicast() || address.is_broadcast() {
            return Err(Refusal::new(libc::EINVAL, format!("{address} is no neighbor")));
        }
        let link = self.device.interface_idx();
        self.mirror.use_neighbor(link, address).map_err(|error| system("asking the kernel for a neighbor", &error))?;
        Ok(Reply::Done.into())
    }

    /// The current addresses of the interface.
    fn addresses(&self) -> Vec<Ipv4Addr> {
        let Some(link) = self.mirror.link(self.device.name()) else { return Vec::new() };
        self.mirror.addresses(link).map(|prefix| prefix.address()).collect()
    }

    /// The devices whose sockets may receive the interface's frames: itself, and the VRF, bond or
    /// bridge that it is a part of.
    fn devices(&self) -> Vec<u32> {
        let controller = self.mirror.link(self.device.name()).and_then(|link| link.controller);
        [self.device.interface_idx()].into_iter().chain(controller).collect()
    }

    /// Logs a refusal, and makes it a reply.
    fn refuse(&mut self, id: ClientId, refusal: Refusal, report: &mut dyn FnMut(&str)) -> Answer {
        self.counters.refuse(&refusal);
        if let Some((name, uid)) = self.clients.get(id).map(|client| (client.name(), client.peer.uid)) {
            self.say_refused(uid, OF_A_CLIENT, &name, &refusal, report);
        }
        Reply::Refused { errno: refusal.errno, sentence: refusal.sentence }.into()
    }

    /// Sends a reply; returns whether it was sent. The broker does not wait for a client that reads
    /// no replies.
    fn reply(&mut self, id: ClientId, answer: &Answer) -> bool {
        let Some(client) = self.clients.get(id) else { return false };
        let mut descriptors: Vec<BorrowedFd<'_>> = answer.icmp_errors.iter().map(AsFd::as_fd).collect();
        if answer.has_queue {
            descriptors.extend(client.lent.iter().flat_map(|lent| lent.descriptors()));
        }
        let Some(reply) = &answer.reply else { return true };
        sys::send(&client.socket, &reply.encode(), &descriptors).is_ok()
    }

    /// Accepts connections of users that are served, and refuses others with a sentence.
    fn accept(&mut self, report: &mut dyn FnMut(&str)) {
        for _ in 0..ACCEPTED_A_TURN {
            // Without a free descriptor, the connection waits.
            let Ok(Some(socket)) = sys::accept(&self.listener.socket) else { return };
            let Ok(peer) = sys::peer(&socket) else { continue };
            let (name, uid) = (format!("process {} of user {}", peer.pid, peer.uid), peer.uid);
            let program = program_of(&peer);
            let refused = match self.rights.admit(&peer, program.as_deref()) {
                Ok(rights) => {
                    let kept = socket.try_clone().map_err(|error| system("a descriptor", &error));
                    let added = kept.and_then(|kept| self.clients.add(kept, peer, program, rights, Instant::now()));
                    added.map(|goes| goes.into_iter().for_each(|id| self.end_client(id, report))).err()
                }
                Err(refusal) => Some(refusal),
            };
            if let Some(refusal) = refused {
                self.counters.refuse(&refusal);
                self.say_refused(uid, OF_A_STRANGER, &name, &refusal, report);
                let Refusal { errno, sentence } = refusal;
                // The client may have gone already.
                let _ = sys::send(&socket, &Reply::Refused { errno, sentence }.encode(), &[]);
            }
        }
    }

    /// Gives everything that a client had to the kernel.
    fn end_client(&mut self, id: ClientId, report: &mut dyn FnMut(&str)) {
        for held in self.flows.remove_all(|held| held.client == id) {
            self.unsteer(&held);
        }
        let Some(client) = self.clients.remove(id) else { return };
        match (&self.forwarder, client.queue) {
            (Some(forwarder), Some(queue)) => forwarder.remove(queue.into()),
            // A child of the process may still hold the socket.
            (None, Some(queue)) => self.device.disconnect(queue),
            (_, None) => (),
        }
        if client.lent.is_some() {
            self.say(&format!("{} has ended, and its queue is free", client.name()), report);
        }
    }

    /// Applies new rules: clients keep what these allow, and lose the rest. The limit of queues of
    /// a rule applies to later requests.
    fn reassess(&mut self, rights: Rights, report: &mut dyn FnMut(&str)) {
        self.mirror.turn(Duration::ZERO);
        let addresses = self.addresses();
        self.rights = rights;
        let mut unserved = Vec::new();
        for client in self.clients.iter_mut() {
            match self.rights.of(&client.peer, client.program.as_deref()) {
                Ok(rights) => client.rights = rights,
                Err(refusal) => unserved.push((client.id, client.name(), refusal)),
            }
        }
        for (id, name, refusal) in unserved {
            self.counters.refuse(&refusal);
            self.say(&format!("{name} is served no longer: {}", refusal.sentence), report);
            self.end_client(id, report);
        }
        let mut why = Vec::new();
        let clients = &mut self.clients;
        let lost = self.flows.remove_all(|held| {
            let Some(client) = clients.iter().find(|client| client.id == held.client) else { return true };
            client.rights.check(&held.flow, &addresses).is_err()
        });
        for held in &lost {
            let refusal = clients.get(held.client).and_then(|client| client.rights.check(&held.flow, &addresses).err());
            why.push(refusal.map_or(String::new(), |refusal| refusal.sentence));
        }
        for (held, why) in lost.into_iter().zip(why) {
            self.unsteer(&held);
            self.counters.flows_taken_back.inc();
            self.say(&format!("user {} loses `{}`: {why}", held.uid, held.flow.rule()), report);
        }
        self.say("the new rules are in force", report);
    }

    /// Takes back flows that are another user's in the kernel by now: a client may close the socket
    /// for which it got its flow.
    fn review(&mut self, report: &mut dyn FnMut(&str)) {
        (self.reviewed, self.lines) = (Instant::now(), 0);
        let devices = self.devices();
        for protocol in [Protocol::TCP, Protocol::UDP] {
            if !self.flows.iter().any(|held| held.flow.protocol == protocol) {
                continue;
            }
            let Ok(sockets) = owners::sockets(protocol, &devices).map(owners::by_port) else { continue };
            let is_anothers = |held: &Held| {
                let Some(there) = sockets.get(&held.flow.destination.port()) else { return false };
                held.flow.protocol == protocol && owners::is_lost(&held.flow, held.uid, there)
            };
            for held in self.flows.remove_all(is_anothers) {
                self.unsteer(&held);
                self.counters.flows_taken_back.inc();
                let line = format!("user {} loses `{}`: another user has bound that port", held.uid, held.flow.rule());
                self.say(&line, report);
            }
        }
    }

    /// Passes each ICMP error that the kernel has received on to the client whose packet it quotes.
    fn pass_errors_on(&mut self) {
        let mut bytes = [0; 2048];
        for _ in 0..ERRORS_A_TURN {
            let Ok(len) = self.icmp_errors.recv(&mut bytes) else { return };
            let Some(quoted) = quoted(&bytes[..len]) else { continue };
            for id in self.flows.clients_of(&quoted) {
                if let Some(socket) = self.clients.get(id).and_then(|client| client.icmp_errors.as_ref()) {
                    // A client that does not read loses repetitions.
                    let _ = socket.send(&bytes[..len]);
                    self.counters.errors_passed_on.inc();
                }
            }
        }
    }

    /// Logs the refusal of a process, unless its user has had his lines.
    fn say_refused(&mut self, uid: u32, lines_max: u32, name: &str, refusal: &Refusal, report: &mut dyn FnMut(&str)) {
        let more = match self.refusal_lines.count(uid, lines_max, Instant::now()) {
            Written::Line => "",
            Written::LastLine => " (its user's later refusals are not written for a minute)",
            Written::Nothing => return,
        };
        self.say(&format!("{name} is refused: {}{more}", refusal.sentence), report);
    }

    fn say(&mut self, line: &str, report: &mut dyn FnMut(&str)) {
        self.lines += 1;
        match self.lines {
            ..LINES_MAX => report(line),
            LINES_MAX => report("more of this, which is not written for two seconds"),
            _ => (),
        }
    }
}

impl Counters {
    fn refuse(&self, refusal: &Refusal) {
        self.refused.inc();
        match refusal.errno {
            libc::EACCES => self.refused_by_rights.inc(),
            libc::EADDRINUSE | libc::EBUSY | libc::EUSERS => self.refused_as_taken.inc(),
            _ => (),
        }
    }
}

/// The file of a process's program, by its path in the broker's file system. `None` if the process
/// has ended, or the broker may not read it (without `CAP_SYS_PTRACE`).
fn program_of(peer: &Peer) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{}/exe", peer.pid)).ok()
}

impl From<Reply> for Answer {
    fn from(reply: Reply) -> Self {
        Self { reply: Some(reply), icmp_errors: None, has_queue: false }
    }
}

/// The flow of the packet that an ICMP error quotes.
fn quoted(packet: &[u8]) -> Option<QuotedFlow> {
    let packet = Ipv4Packet::parse(packet).ok().filter(|packet| packet.header.protocol() == Protocol::ICMP)?;
    QuotedFlow::parse(Icmpv4Message::parse(packet.payload).ok()?.quoted()?)
}

fn system(what: &str, error: &io::Error) -> Refusal {
    let errno = error.raw_os_error().unwrap_or(libc::EIO);
    Refusal::new(errno, format!("the broker cannot have {what} ({error}): see its limits and its log"))
}
