//! The broker's loop: accepts, reads a request of each client that has sent one, replies.

use core::net::Ipv4Addr;
use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::clients::{Client, Clients};
use super::error::{BrokerError, Refusal};
use super::flows::{ClientId, FlowTable};
use super::listener::Listener;
use super::owners;
use super::rights::{self, BrokerUser};
use crate::counters::{Block, Counter, Gauge, Unit};
use crate::device::af_xdp::broker::lend::QueueOrder;
use crate::device::af_xdp::broker::message::{Flow, MESSAGE_LEN_MAX, Reply, Request, VERSION, Welcome};
use crate::device::af_xdp::broker::sys::{self, Events};
use crate::device::af_xdp::{AfXdpConfig, AfXdpDevice, Mode, broker_of};
use crate::device::steering::SteerError;
use crate::device::{Device, DeviceError};
use crate::wire::icmpv4::{Icmpv4Message, QuotedFlow};
use crate::wire::{Ipv4Packet, Protocol};
use crate::worker::StopFlag;
use crate::worker::kernel::Mirror;
use crate::worker::live::icmp_errors;

/// The longest wait for a request: between two of them the loop looks after its program, and
/// whether it is to stop.
const TURN_INTERVAL: Duration = Duration::from_millis(100);
/// How often ports of clients are compared with the kernel's sockets.
const REVIEW_INTERVAL: Duration = Duration::from_secs(2);
/// Connections that are taken up in a turn.
const ACCEPTED_A_TURN: usize = 16;
/// ICMP errors that are passed on in a turn.
const ERRORS_A_TURN: usize = 64;
/// Lines of the log in a turn of a review: a client that is refused all day fills no disk.
const LINES_MAX: u32 = 20;

/// An interface, who may have its queues, and where they ask.
#[derive(Clone, Debug)]
pub struct BrokerConfig {
    /// The interface and the mode of its program.
    pub port: AfXdpConfig,
    /// The path of the socket.
    pub path: PathBuf,
    /// The users that are served, beside root.
    pub users: Vec<BrokerUser>,
    /// Bytes of packet buffers for a client, at most.
    pub memory_max: u64,
}

impl BrokerConfig {
    /// The broker of `interface` at its usual path, for root alone; 256 MiB of packet buffers for a
    /// client, three times what the library of `wirepath run` takes.
    pub fn new(interface: &str) -> Self {
        let port = AfXdpConfig { rules_max: 16_384, ..AfXdpConfig::new(interface) };
        Self { port, path: broker_of(interface), users: Vec::new(), memory_max: 256 << 20 }
    }
}

/// A broker. Clients lose their frames to the kernel when it is dropped, or its process ends.
pub struct Broker {
    config: BrokerConfig,
    device: AfXdpDevice,
    queues: u16,
    mirror: Mirror,
    icmp_errors: UdpSocket,
    listener: Listener,
    clients: Clients,
    flows: FlowTable,
    reviewed: Instant,
    /// Lines of the log since then.
    lines: u32,
    counters: Counters,
    _block: Block,
}

struct Counters {
    clients: Gauge,
    requests: Counter,
    refused: Counter,
    errors_passed_on: Counter,
}

/// A reply, with the descriptors that go with it.
struct Answer {
    reply: Reply,
    icmp_errors: Option<OwnedFd>,
    /// The queue of the client goes with it.
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
        // The path first: another broker has the interface, too, and is the better thing to name.
        let listener = Listener::open(&config.path)?;
        let device = AfXdpDevice::open(&config.port).map_err(|error| failed(&error))?;
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
            errors_passed_on: scope.counter("icmp_errors", Unit::Messages),
        };
        Ok(Self {
            queues: device.capabilities().queues,
            config,
            device,
            mirror,
            icmp_errors,
            listener,
            clients: Clients::default(),
            flows: FlowTable::default(),
            reviewed: Instant::now(),
            lines: 0,
            counters,
            _block: block,
        })
    }

    /// For the operator: the interface, the mode, the path.
    pub fn describe(&self) -> String {
        let mut words = format!("{}; at {}", self.device.describe(), self.config.path.display());
        if self.queues > 1 {
            let interface = &self.config.port.interface;
            words += &format!(
                "; each program gets one of {} queues, and only what the NIC delivers there: steer with `ethtool -N {interface}`, \
                 or have one queue (`ethtool -L {interface} combined 1`)",
                self.queues
            );
        }
        words
    }

    /// Serves until `stop`. `report` gets a line for each client that comes or goes, and for each
    /// refusal.
    ///
    /// # Errors
    /// The program was taken off the interface for good, or the interface is gone.
    pub fn serve(mut self, stop: &StopFlag, mut report: impl FnMut(&str)) -> Result<(), BrokerError> {
        while !stop.is_stopping() {
            self.turn(&mut report)?;
        }
        Ok(())
    }

    fn turn(&mut self, report: &mut dyn FnMut(&str)) -> Result<(), BrokerError> {
        let ids: Vec<ClientId> = self.clients.iter().map(|client| client.id).collect();
        let fixed = [self.listener.socket.as_raw_fd(), self.icmp_errors.as_raw_fd()];
        let fds: Vec<RawFd> = fixed.into_iter().chain(self.clients.iter().flat_map(Client::descriptors)).collect();
        let events = sys::wait(&fds, TURN_INTERVAL)
            .map_err(|error| BrokerError(format!("waiting for requests failed ({error}): start the broker again")))?;
        self.device.look_after();
        if let Some(why) = self.device.why_ended() {
            return Err(BrokerError(why));
        }
        let (fixed, of_clients) = events.split_at(fixed.len());
        for (id, events) in ids.into_iter().zip(of_clients.chunks_exact(2)) {
            self.attend(id, events, report);
        }
        self.pass_errors_on();
        if fixed[0].is_readable {
            self.accept(report);
        }
        if self.reviewed.elapsed() >= REVIEW_INTERVAL {
            self.review(report);
        }
        self.counters.clients.set(self.clients.iter().count() as u64);
        Ok(())
    }

    /// One request of a client, or its end.
    fn attend(&mut self, id: ClientId, events: &[Events], report: &mut dyn FnMut(&str)) {
        let has_died = events[1].is_readable;
        // What it sent before it closed its end is of no use any more.
        let goes_on = !has_died && !events[0].has_ended && (!events[0].is_readable || self.serve_one(id, report));
        if !goes_on {
            self.dismiss(id, report);
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
            Request::Hello { version } => self.greet(id, version),
            Request::Open { umem_len, chunk_len, rx_ring_len, tx_ring_len } => {
                self.lend(id, &QueueOrder { umem_len, chunk_len, rx_ring_len, tx_ring_len })
            }
            Request::Connect => self.connect(id),
            Request::Disconnect => {
                if let Some(queue) = client.queue {
                    self.device.disconnect(queue);
                }
                Ok(Reply::Done.into())
            }
            Request::Steer(flow) => self.steer(id, flow),
            Request::Unsteer { id: flow } => {
                let Some(rule) = self.flows.remove(id, flow) else {
                    return Err(Refusal::new(libc::ENOENT, format!("the client has no flow {flow}")));
                };
                // It is in place, or the interface is gone.
                let _ = self.device.unsteer(rule);
                Ok(Reply::Done.into())
            }
            Request::Resolve(address) => self.resolve(id, address),
        }
    }

    fn greet(&mut self, id: ClientId, version: u16) -> Result<Answer, Refusal> {
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
        });
        Ok(Answer { icmp_errors: Some(theirs.into()), ..reply.into() })
    }

    fn lend(&mut self, id: ClientId, order: &QueueOrder) -> Result<Answer, Refusal> {
        order.check(self.config.memory_max).map_err(|sentence| Refusal::new(libc::EINVAL, sentence))?;
        let queue = self.queue_of(id)?;
        if self.clients.get(id).is_some_and(|client| client.lent.is_some()) {
            return Err(Refusal::new(libc::EBUSY, "the client has its queue already: it gets one"));
        }
        let lent = self
            .device
            .lend(queue, order)
            .map_err(|error: DeviceError| Refusal::new(libc::EBUSY, error.to_string()))?;
        let (zero_copy, multi_buffer) = (lent.zero_copy, lent.multi_buffer);
        if let Some(client) = self.clients.get(id) {
            client.lent = Some(lent);
        }
        let reply = Reply::Opened { umem_len: order.umem_len, zero_copy, multi_buffer };
        Ok(Answer { has_queue: true, ..reply.into() })
    }

    fn connect(&mut self, id: ClientId) -> Result<Answer, Refusal> {
        let client = self.clients.get(id);
        let Some((queue, lent)) = client.as_ref().and_then(|client| Some((client.queue?, client.lent.as_ref()?)))
        else {
            return Err(Refusal::new(libc::EPROTO, "the client has no queue yet"));
        };
        self.device.connect(queue, lent).map_err(|error| system("the socket in its program's map", &error))?;
        Ok(Reply::Done.into())
    }

    fn steer(&mut self, id: ClientId, flow: Flow) -> Result<Answer, Refusal> {
        self.mirror.turn(Duration::ZERO);
        let addresses = self.addresses();
        let Some(client) = self.clients.get(id) else { return Err(Refusal::new(libc::ENOTCONN, "no such client")) };
        let uid = client.peer.uid;
        client.user.check(&flow, &addresses)?;
        self.flows.check(id, &flow)?;
        let sockets = owners::sockets(flow.protocol).map_err(|error| system("the kernel's list of sockets", &error))?;
        let is_bound = owners::is_bound(&flow).map_err(|error| system("a look at the port", &error))?;
        owners::check(&flow, uid, &sockets, is_bound)?;
        let queue = self.queue_of(id)?;
        let rule = self
            .device
            .steer(&flow.rule(), queue)
            .map_err(|error: SteerError| Refusal::new(libc::ENOBUFS, error.to_string()))?;
        Ok(Reply::Steered { id: self.flows.add(id, uid, flow, rule) }.into())
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

    fn queue_of(&mut self, id: ClientId) -> Result<u16, Refusal> {
        self.clients.queue_of(id, self.queues, &self.config.port.interface)
    }

    /// The kernel's addresses on the interface, now.
    fn addresses(&self) -> Vec<Ipv4Addr> {
        let Some(link) = self.mirror.link(self.device.name()) else { return Vec::new() };
        self.mirror.addresses(link).map(|prefix| prefix.address()).collect()
    }

    /// Notes a refusal, and makes it a reply.
    fn refuse(&mut self, id: ClientId, refusal: Refusal, report: &mut dyn FnMut(&str)) -> Answer {
        self.counters.refused.inc();
        let name = self.clients.get(id).map_or(String::new(), |client| client.name());
        self.say(&format!("{name} is refused: {}", refusal.sentence), report);
        Reply::Refused { errno: refusal.errno, sentence: refusal.sentence }.into()
    }

    /// Sends a reply; returns whether it left. A client that reads no replies is not waited for.
    fn reply(&mut self, id: ClientId, answer: &Answer) -> bool {
        let Some(client) = self.clients.get(id) else { return false };
        let mut descriptors: Vec<BorrowedFd<'_>> = answer.icmp_errors.iter().map(AsFd::as_fd).collect();
        if answer.has_queue {
            descriptors.extend(client.lent.iter().flat_map(|lent| lent.descriptors()));
        }
        sys::send(&client.socket, &answer.reply.encode(), &descriptors).is_ok()
    }

    /// Takes up connections of users that are served, and tells others that they are not.
    fn accept(&mut self, report: &mut dyn FnMut(&str)) {
        for _ in 0..ACCEPTED_A_TURN {
            // Without a descriptor left for it, a connection waits.
            let Ok(Some(socket)) = sys::accept(&self.listener.socket) else { return };
            let Ok(peer) = sys::peer(&socket) else { continue };
            let refused = match rights::of(peer.uid, &self.config.users) {
                Ok(user) => {
                    let kept = socket.try_clone().map_err(|error| system("a descriptor", &error));
                    kept.and_then(|kept| self.clients.add(kept, peer, user, Instant::now())).err()
                }
                Err(refusal) => Some(refusal),
            };
            if let Some(Refusal { errno, sentence }) = refused {
                self.counters.refused.inc();
                self.say(&format!("process {} of user {} is refused: {sentence}", peer.pid, peer.uid), report);
                // It may be gone already.
                let _ = sys::send(&socket, &Reply::Refused { errno, sentence }.encode(), &[]);
            }
        }
    }

    /// All that a client had is the kernel's again.
    fn dismiss(&mut self, id: ClientId, report: &mut dyn FnMut(&str)) {
        for held in self.flows.remove_all(|held| held.client == id) {
            // It is in place, or the interface is gone.
            let _ = self.device.unsteer(held.rule);
        }
        let Some(client) = self.clients.remove(id) else { return };
        if let Some(queue) = client.queue {
            // A child of the process may hold the socket still.
            self.device.disconnect(queue);
        }
        if client.lent.is_some() {
            self.say(&format!("{} has ended, and its queue is free", client.name()), report);
        }
    }

    /// Takes flows back whose port another user has bound in the kernel, as a client may close the
    /// socket that it had its flow for.
    fn review(&mut self, report: &mut dyn FnMut(&str)) {
        (self.reviewed, self.lines) = (Instant::now(), 0);
        for protocol in [Protocol::TCP, Protocol::UDP] {
            if !self.flows.iter().any(|held| held.flow.protocol == protocol) {
                continue;
            }
            let Ok(sockets) = owners::sockets(protocol) else { continue };
            let is_anothers = |held: &super::flows::Held| {
                held.flow.protocol == protocol && owners::stranger(&held.flow, held.uid, &sockets).is_some()
            };
            for held in self.flows.remove_all(is_anothers) {
                let _ = self.device.unsteer(held.rule);
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
            let Some(id) = self.flows.client_of(&quoted) else { continue };
            if let Some(socket) = self.clients.get(id).and_then(|client| client.icmp_errors.as_ref()) {
                // One that does not read misses repetitions.
                let _ = socket.send(&bytes[..len]);
                self.counters.errors_passed_on.inc();
            }
        }
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

impl From<Reply> for Answer {
    fn from(reply: Reply) -> Self {
        Self { reply, icmp_errors: None, has_queue: false }
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
