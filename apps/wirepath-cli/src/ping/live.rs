//! Echoes by our own queue, over AF_XDP: frames that the kernel does not see.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};

use wirepath::counters::Block;
use wirepath::pipeline::{App, Cx, Datagram, EchoReply, IcmpError, UdpConnectError, UdpFlow, UdpOptions, send_echo};
use wirepath::proto::{ConsumerId, Flow, FlowErrorKind, Ipv4Prefix, NeighborRequest, Resolution, ResolutionCause};
use wirepath::time::{Clock, Duration, Instant};
use wirepath::wire::icmpv4::{Echo, Unreachable};
use wirepath::worker::StopFlag;
use wirepath::worker::live::{
    DedicatedHost, FlowSpec, IgmpMode, LiveConfig, LiveError, LivePort, LiveWorker, StaticRoute,
};

use super::clock::PingClock;
use super::path::{EchoPayload, Path, Received, Refusal, Target};

/// The only consumer of the worker's sockets.
const PING: ConsumerId = ConsumerId(0);
/// How long the first echo waits for its neighbor, so that its round trip does not include ARP: the
/// three ARP requests, a second apart.
const NEIGHBOR_SPAN: Duration = Duration::from_secs(3);
/// Turns between two publications of the counters.
const PUBLISH_TURNS: u32 = 4_096;
/// Interval of polling the kernel's socket, which is a system call.
const ERROR_SPAN: Duration = Duration::from_millis(5);
/// The ephemeral ports (RFC 6335 6).
const DYNAMIC_PORTS: u16 = 49_152;

/// The queue, and our address on it.
#[derive(Clone, Debug)]
pub(super) struct LocalEnd {
    pub(super) interface: String,
    pub(super) queue: u16,
    /// An address that the kernel does not have; `None` shares the interface with the kernel.
    pub(super) local: Option<Ipv4Prefix>,
    /// The gateway to other networks, for an address of our own.
    pub(super) gateway: Option<Ipv4Addr>,
}

impl LocalEnd {
    /// The configuration of the port, so that it receives datagrams to `port`.
    fn config(&self, port: Option<u16>) -> LiveConfig {
        let mut config = LiveConfig::new(&self.interface).named("ping");
        config.queues = vec![self.queue];
        config.flows.extend(port.map(|port| FlowSpec::udp(Ipv4Addr::UNSPECIFIED, port)));
        let Some(local) = self.local else { return LiveConfig { igmp: IgmpMode::Off, ..config } };
        let routes = self.gateway.map(|via| StaticRoute { network: Ipv4Prefix::ALL, via });
        let host =
            DedicatedHost { addresses: vec![local], routes: routes.into_iter().collect(), ..DedicatedHost::default() };
        LiveConfig { igmp: IgmpMode::Off, ..config.dedicated(host) }
    }
}

/// A port with a worker that this thread polls.
pub(super) struct OpenPort<A> {
    // The worker's queue is dropped before its port.
    pub(super) worker: LiveWorker<A>,
    pub(super) port: LivePort,
    /// Reserves a port that is shared with the kernel against its other programs. Connected, it
    /// receives ICMP errors, which go to the kernel there.
    pub(super) reserved: Option<UdpSocket>,
    _block: Block,
    turns: u32,
}

impl<A: App> OpenPort<A> {
    /// Opens the queue for datagrams to `port`, 0 for any free port, and builds its worker around
    /// `app`. Returns the port.
    pub(super) fn new(place: &LocalEnd, port: Option<u16>, app: A, stop: &StopFlag) -> Result<(Self, u16), String> {
        let (reserved, port) = match (port, place.local) {
            (Some(port), None) => {
                let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port)).map_err(|error| {
                    format!("UDP port {port} cannot be had of the kernel, whose interface it is: {error}; `ss -lunp` says who has it")
                })?;
                let port = socket.local_addr().map_err(|error| error.to_string())?.port();
                (Some(socket), Some(port))
            }
            (Some(0), Some(_)) => (None, Some(DYNAMIC_PORTS | std::process::id() as u16)),
            (port, _) => (None, port),
        };
        let block = Block::create("ping").map_err(|error| error.to_string())?;
        let live = LivePort::open(&place.config(port), &block.scope("port"), stop);
        let mut live = live.map_err(|error| in_words(&error))?;
        let queue = live.take_queue().map_err(|error| error.to_string())?.ok_or("the queue has been taken already")?;
        let worker = queue.builder().build(app, &block.scope("worker0")).map_err(|error| error.to_string())?;
        block.check().map_err(|error| error.to_string())?;
        Ok((Self { worker, port: live, reserved, _block: block, turns: 0 }, port.unwrap_or(0)))
    }

    /// One turn of the worker. True where frames arrived.
    pub(super) fn turn(&mut self, now: Instant) -> bool {
        self.turns += 1;
        if self.turns.is_multiple_of(PUBLISH_TURNS) {
            self.worker.publish();
        }
        self.worker.poll_once(now) > 0
    }
}

/// Echoes by a queue.
pub(super) struct LivePath {
    open: OpenPort<Ping>,
    interface: String,
    /// Whether to keep the core while nothing arrives.
    spins: bool,
    /// When to poll for errors that the kernel received.
    errors_due: Instant,
}

/// The application: replies since the last query.
struct Ping {
    remote: Ipv4Addr,
    /// The flow of UDP echoes; `None` for ICMP.
    flow: Option<UdpFlow>,
    identifier: u16,
    payload: EchoPayload,
    received: Vec<Received>,
}

impl App for Ping {
    fn on_datagram(&mut self, datagram: &Datagram<'_>, _cx: &mut Cx<'_>) {
        self.received.push(self.payload.read(datagram.payload, Some(datagram.ttl)));
    }

    fn on_echo_reply(&mut self, answer: &EchoReply<'_>, _cx: &mut Cx<'_>) -> bool {
        let is_ours = answer.identifier == self.identifier && answer.source == self.remote && self.flow.is_none();
        if is_ours {
            self.received.push(self.payload.read(answer.data, Some(answer.ttl)));
        }
        is_ours
    }

    fn on_icmp_error(&mut self, error: &IcmpError<'_>, _cx: &mut Cx<'_>) {
        self.received.push(Received::Refused(Refusal { reporter: error.reporter, why: why(error.kind) }));
    }
}

impl Ping {
    fn send_request(&mut self, sequence: u64, data: &[u8], cx: &mut Cx<'_>) -> Result<(), String> {
        let sent = match &mut self.flow {
            Some(flow) => flow.send(data, cx).map_err(|error| error.to_string()),
            None => {
                let echo = Echo { identifier: self.identifier, sequence: sequence as u16, data };
                send_echo(self.remote, &echo, cx).map_err(|error| error.to_string())
            }
        };
        sent.map(drop)
    }

    /// Prepares the flow to `remote` from `local_port`, and subscribes to its replies.
    fn connect(&mut self, local_port: u16, remote: SocketAddrV4, cx: &mut Cx<'_>) -> Result<(), String> {
        let local = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, local_port);
        let flow = UdpFlow::connect(local, remote, &UdpOptions::default(), cx).map_err(|error| error.to_string())?;
        let ends = Flow { local: flow.local(), remote };
        cx.sockets.connect(PING, ends).map_err(|error| error.to_string())?;
        self.flow = Some(flow);
        Ok(())
    }
}

impl LivePath {
    /// Opens the queue and resolves the neighbor. Without a port the echoes are ICMP, which needs
    /// an address of our own.
    pub(super) fn open(
        place: &LocalEnd,
        target: &Target,
        clock: &mut PingClock,
        stop: &StopFlag,
    ) -> Result<Self, String> {
        let identifier = std::process::id() as u16;
        let app = Ping {
            remote: target.address,
            flow: None,
            identifier,
            payload: target.payload.clone(),
            received: Vec::new(),
        };
        let (mut open, local_port) = OpenPort::new(place, target.udp.map(|_| 0), app, stop)?;
        find_neighbor(&mut open, target.address, clock, stop)?;
        if let Some(port) = target.udp {
            let remote = SocketAddrV4::new(target.address, port);
            open.worker.with_app(clock.now(), |app, cx| app.connect(local_port, remote, cx))?;
            if let Some(reserved) = &open.reserved {
                // If it is refused, only the errors are missed.
                let _ = reserved.connect(remote);
            }
        }
        open.check_len(target)?;
        Ok(Self { open, interface: place.interface.clone(), spins: target.spins, errors_due: Instant::ZERO })
    }
}

/// Polls the worker until the neighbor on the way to `remote` is known. A neighbor that does not
/// reply is no error yet: echoes wait for it, and are lost.
fn find_neighbor(
    open: &mut OpenPort<Ping>,
    remote: Ipv4Addr,
    clock: &mut PingClock,
    stop: &StopFlag,
) -> Result<(), String> {
    let begun = clock.now();
    let mut now = begun;
    while now.since(begun) < NEIGHBOR_SPAN && !stop.is_stopping() {
        open.turn(now);
        let missing = match open.worker.with_app(now, |_, cx| cx.host.resolve(remote, cx.now)) {
            Resolution::Station { .. } | Resolution::Group { .. } => return Ok(()),
            Resolution::Local => {
                return Err(format!("{remote} is this host itself: ask another one, or ask it by the kernel"));
            }
            Resolution::NoRoute => return Err(UdpConnectError::NoRoute(remote).to_string()),
            Resolution::NeighborMissing { next_hop, source } => {
                NeighborRequest { next_hop, source, cause: ResolutionCause::App }
            }
        };
        open.worker.with_app(now, |_, cx| cx.keep_neighbor(missing));
        std::thread::yield_now();
        now = clock.now();
    }
    Ok(())
}

impl OpenPort<Ping> {
    /// Refuses echoes whose replies could not be received: of a fragmented datagram only the first
    /// fragment has the port.
    fn check_len(&self, target: &Target) -> Result<(), String> {
        let Some(flow) = &self.worker.app().flow else { return Ok(()) };
        let (len, len_max) = (target.payload.len(), flow.payload_len_max());
        if self.reserved.is_none() || len <= len_max {
            return Ok(());
        }
        Err(format!(
            "an echo of {len} bytes comes back in fragments, most of which name no port and go to the kernel, whose interface \
             it is: take --size {len_max} or less, or an address of your own with --local ADDRESS/LEN"
        ))
    }

    /// An ICMP error that the kernel received instead of us.
    fn error_of_kernel(&self) -> Option<Refusal> {
        let error = self.reserved.as_ref()?.take_error().ok()??;
        let why = match error.kind() {
            ErrorKind::ConnectionRefused => "no program listens on the port",
            ErrorKind::HostUnreachable => "the host does not answer",
            _ => "unreachable",
        };
        Some(Refusal { reporter: self.worker.app().remote, why })
    }
}

impl Path for LivePath {
    fn name(&self) -> &str {
        &self.interface
    }

    fn describe(&self) -> String {
        let waits = if self.spins { "polled" } else { "polled, yielding the core" };
        format!("{}, {waits}", self.open.port.describe())
    }

    fn notices(&self) -> Vec<String> {
        self.open.port.notices()
    }

    fn send_request(&mut self, sequence: u64, data: &[u8], now: Instant) -> Result<(), String> {
        self.open.worker.with_app(now, |app, cx| app.send_request(sequence, data, cx))
    }

    fn listen(&mut self, now: Instant, _until: Instant, received: &mut Vec<Received>) {
        let is_idle = !self.open.turn(now);
        self.open.worker.with_app(now, |app, _| received.append(&mut app.received));
        if now >= self.errors_due {
            self.errors_due = now + ERROR_SPAN;
            received.extend(self.open.error_of_kernel().map(Received::Refused));
        }
        if is_idle && !self.spins {
            std::thread::yield_now();
        }
    }
}

/// An error's text in terms of this program's options.
fn in_words(error: &LiveError) -> String {
    match error {
        LiveError::KernelHasAddress { interface, address } => format!(
            "{interface} is the kernel's, which has {address} on it: leave --local away and send UDP echoes with --udp PORT, or \
             take the address away with `ip address del {address} dev {interface}`"
        ),
        error => error.to_string(),
    }
}

fn why(kind: FlowErrorKind) -> &'static str {
    match kind {
        FlowErrorKind::Unreachable(Unreachable::Port) => "no program listens on the port",
        FlowErrorKind::Unreachable(Unreachable::Host | Unreachable::HostUnknown) => "the host does not answer",
        FlowErrorKind::Unreachable(Unreachable::FragmentationNeeded { .. }) => "too long for the path",
        FlowErrorKind::Unreachable(_) => "unreachable",
        FlowErrorKind::TimeExceeded(_) => "it took too many hops",
        _ => "refused",
    }
}
