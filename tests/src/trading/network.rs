//! Machines with our TCP, and the segments between them.

use core::net::{Ipv4Addr, SocketAddrV4};
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::rc::Rc;

use order_gateway::host::{Host, Listener, Stream, Waits};
use wirepath::pipeline::tcp::{AcceptDecision, ConnectionId, ConnectionOptions, ListenOptions, TcpConfig, TcpEvent};
use wirepath::proto::{ConsumerId, Flow, HashSeed};
use wirepath::testing::tcp::{Arrival, Outgoing, Segment, Tcp};
use wirepath::time::Instant;

use crate::mutate::Random;
use crate::script::wire::{Bytes, Wire};

/// A machine's clock begins here, so that no time is zero.
const START_NS: u64 = 1_000_000_000;

/// A connection, as its owner has it.
#[derive(Debug, Default)]
struct Socket {
    inbox: VecDeque<u8>,
    is_connected: bool,
    is_closed_by_peer: bool,
    error: Option<ErrorKind>,
}

struct Machine {
    tcp: Tcp<Bytes>,
    wire: Wire,
    sockets: HashMap<ConnectionId, Socket>,
    accepted: VecDeque<ConnectionId>,
    /// How often it has started.
    epoch: u32,
    next_port: u16,
    /// Segments to and from it are lost.
    is_cut: bool,
}

/// All machines.
pub(super) struct Network {
    now_ns: u64,
    random: Random,
    seed: u64,
    machines: Vec<Machine>,
    way: BTreeMap<(u64, u64), (usize, Outgoing, Vec<u8>)>,
    carried: u64,
    /// Of a thousand segments, those that are lost, repeated and delayed.
    pub per_mille: [usize; 3],
    /// The machine that alone may write to the venue, once a standby has taken over.
    pub writer: Option<usize>,
    /// Another one did.
    pub both_sent: Option<String>,
    /// Of a thousand syncs of a disk, those that take their time.
    pub slow_per_mille: usize,
    /// So much later than the network's it is for the process of each machine, because a disk has
    /// kept it within its turn.
    pub ahead_ns: [u64; 3],
    /// What processes write at such later times, with when and in which order they do.
    held: BTreeMap<(u64, u64), Held>,
}

/// Bytes that a process will write.
struct Held {
    machine: usize,
    epoch: u32,
    id: ConnectionId,
    is_venue: bool,
    bytes: Vec<u8>,
}

/// The network in many hands.
pub(super) type Shared = Rc<RefCell<Network>>;

/// The address of a machine's port.
pub(super) const fn address(machine: usize, port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, machine as u8 + 1), port)
}

/// The machine that has an address.
fn machine_of(address: SocketAddrV4) -> usize {
    usize::from(address.ip().octets()[3]) - 1
}

impl Network {
    /// So many machines.
    pub(super) fn new(seed: u64, machines: usize) -> Self {
        let mut network = Self {
            now_ns: START_NS,
            random: Random::new(seed),
            seed,
            machines: Vec::new(),
            way: BTreeMap::new(),
            carried: 0,
            per_mille: [0; 3],
            writer: None,
            both_sent: None,
            slow_per_mille: 0,
            ahead_ns: [0; 3],
            held: BTreeMap::new(),
        };
        network.machines = (0..machines).map(|idx| network.machine(idx, 0)).collect();
        network
    }

    fn machine(&self, idx: usize, epoch: u32) -> Machine {
        let config = TcpConfig { connections_max: 64, ..TcpConfig::default() };
        let seed = HashSeed::new(self.seed ^ (idx as u64) << 32 ^ u64::from(epoch) << 48, 7);
        Machine {
            tcp: Tcp::new(config, seed).expect("the limits add up"),
            wire: Wire::new(self.now()),
            sockets: HashMap::new(),
            accepted: VecDeque::new(),
            epoch,
            next_port: 40_000 + (epoch as u16 % 100) * 200,
            is_cut: false,
        }
    }

    fn now(&self) -> Instant {
        Instant::from_nanos(self.now_ns)
    }

    /// The time.
    pub(super) const fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// The machine stops and starts again: its connections are forgotten, and nobody is told.
    pub(super) fn reboot(&mut self, idx: usize) {
        let epoch = self.machines[idx].epoch + 1;
        self.machines[idx] = self.machine(idx, epoch);
    }

    /// A process ends: the kernel resets its connections.
    pub(super) fn abort_all(&mut self, idx: usize) {
        let now = self.now();
        let machine = &mut self.machines[idx];
        for (id, _) in machine.sockets.drain() {
            // One that has ended meanwhile is gone.
            let _ = machine.tcp.abort(id, now, &mut machine.wire);
        }
        machine.accepted.clear();
        machine.epoch += 1;
    }

    /// Loses all segments of a machine, or no more.
    pub(super) fn cut(&mut self, idx: usize, is_cut: bool) {
        self.machines[idx].is_cut = is_cut;
    }

    /// Listens on a port, where nobody does.
    pub(super) fn listen(&mut self, idx: usize, port: u16) {
        // After a process alone has ended, its machine still listens.
        let _ = self.machines[idx].tcp.listen(address(idx, port), &ListenOptions::default());
    }

    /// Lets time pass: segments arrive, timers run, segments leave.
    pub(super) fn step(&mut self, by_ns: u64) {
        self.now_ns += by_ns;
        while let Some(entry) = self.way.first_entry()
            && entry.key().0 <= self.now_ns
        {
            let (to, segment, payload) = entry.remove();
            let now = self.now();
            self.machines[to].receive(segment, payload, now);
        }
        self.write_held();
        let now = self.now();
        for from in 0..self.machines.len() {
            let machine = &mut self.machines[from];
            machine.tcp.tick(now, &mut machine.wire);
            machine.hear();
            let sent: Vec<_> = machine.wire.sent.drain(..).collect();
            for sent in sent {
                self.carry(from, sent.segment, &sent.payload);
            }
        }
    }

    /// What is due of the bytes that processes write behind their disks. One that has ended writes
    /// none any more.
    fn write_held(&mut self) {
        let later = self.held.split_off(&(self.now_ns + 1, 0));
        for (due, held) in core::mem::replace(&mut self.held, later) {
            let machine = &self.machines[held.machine];
            if machine.epoch == held.epoch
                && machine.sockets.get(&held.id).is_some_and(|socket| socket.error.is_none())
                && !self.send(held.machine, held.id, held.is_venue, &held.bytes)
            {
                // Its buffer is full.
                self.held.insert(due, held);
            }
        }
    }

    /// Sends bytes of a process. Whether TCP has taken them.
    fn send(&mut self, idx: usize, id: ConnectionId, is_venue: bool, bytes: &[u8]) -> bool {
        let now = self.now();
        let machine = &mut self.machines[idx];
        let is_sent = machine.tcp.send(id, Bytes(bytes.to_vec()), now, &mut machine.wire).is_ok();
        if is_sent && is_venue && self.writer.is_some_and(|writer| writer != idx) {
            self.both_sent = Some(format!("both send: machine {idx}"));
        }
        is_sent
    }

    fn carry(&mut self, from: usize, segment: Outgoing, payload: &[u8]) {
        let to = machine_of(segment.flow.remote);
        let [lost, repeated, delayed] = self.per_mille.map(|of| self.random.below(1_000) < of);
        if lost || self.machines[from].is_cut || self.machines[to].is_cut {
            return;
        }
        for _ in 0..1 + usize::from(repeated) {
            let late = if delayed { self.random.below(300_000_000) } else { self.random.below(300_000) };
            self.carried += 1;
            self.way.insert((self.now_ns + 200_000 + late as u64, self.carried), (to, segment, payload.to_vec()));
        }
    }
}

impl Machine {
    fn receive(&mut self, outgoing: Outgoing, payload: Vec<u8>, now: Instant) {
        let Outgoing { flow, seq, ack, flags, wnd, timestamps, sack_count, sacks, syn, .. } = outgoing;
        let (len, syn) = (payload.len() as u32, syn.unwrap_or_default());
        let segment = Segment { seq, ack, wnd, flags, len, timestamps, sack_count, sacks, syn, ce: false };
        let arrival = Arrival { flow: Flow { local: flow.remote, remote: flow.local }, segment };
        let payload = (!payload.is_empty()).then_some(Bytes(payload));
        if let Ok(Some((id, data))) =
            self.tcp.receive(&arrival, payload, |_, _| AcceptDecision::Yes, now, &mut self.wire)
        {
            self.sockets.entry(id).or_default().inbox.extend(data.0);
        }
        self.hear();
    }

    fn hear(&mut self) {
        while let Some((id, _, event)) = self.tcp.next_event() {
            if let TcpEvent::Connected { listener: Some(_) } = event {
                self.sockets.entry(id).or_default();
                self.accepted.push_back(id);
            }
            let Some(socket) = self.sockets.get_mut(&id) else { continue };
            match event {
                TcpEvent::Connected { .. } => socket.is_connected = true,
                TcpEvent::PeerClosed => socket.is_closed_by_peer = true,
                TcpEvent::Closed(_) => socket.error = Some(ErrorKind::ConnectionReset),
                TcpEvent::Readable => {
                    while let Some(data) = self.tcp.next_data(id) {
                        socket.inbox.extend(data.0);
                    }
                }
                _ => (),
            }
        }
    }
}

/// One end of a connection.
pub(super) struct SimStream {
    network: Shared,
    machine: usize,
    epoch: u32,
    id: ConnectionId,
    /// It leads to the venue's machine.
    is_venue: bool,
}

impl SimStream {
    /// The next connection that a machine has accepted.
    pub(super) fn accept(network: &Shared, machine: usize) -> Option<Self> {
        let mut held = network.borrow_mut();
        let id = held.machines[machine].accepted.pop_front()?;
        let epoch = held.machines[machine].epoch;
        Some(Self { network: Rc::clone(network), machine, epoch, id, is_venue: false })
    }

    /// Whether the peer's process has closed the connection, or has ended: what still arrives, it
    /// wrote before.
    pub(super) fn is_given_up(&self) -> bool {
        let network = self.network.borrow();
        let Some(flow) = network.machines[self.machine].tcp.flow(self.id) else { return true };
        let peer = &network.machines[machine_of(flow.remote)];
        let theirs = Flow { local: flow.remote, remote: flow.local };
        peer.sockets.keys().all(|id| peer.tcp.flow(*id) != Some(theirs))
    }
}

impl fmt::Debug for SimStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} of machine {}", self.id, self.machine)
    }
}

impl Read for SimStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut network = self.network.borrow_mut();
        let machine = &mut network.machines[self.machine];
        let socket = machine.sockets.get_mut(&self.id).filter(|_| machine.epoch == self.epoch);
        let Some(socket) = socket else { return Err(ErrorKind::ConnectionReset.into()) };
        if socket.inbox.is_empty() {
            return match (socket.error, socket.is_closed_by_peer) {
                (_, true) => Ok(0),
                (Some(error), _) => Err(error.into()),
                _ => Err(ErrorKind::WouldBlock.into()),
            };
        }
        let len = buffer.len().min(socket.inbox.len());
        socket.inbox.drain(..len).zip(buffer).for_each(|(byte, place)| *place = byte);
        Ok(len)
    }
}

impl Write for SimStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut network = self.network.borrow_mut();
        let machine = &network.machines[self.machine];
        let socket = machine.sockets.get(&self.id).filter(|_| machine.epoch == self.epoch);
        let Some(socket) = socket else { return Err(ErrorKind::BrokenPipe.into()) };
        if let Some(error) = socket.error {
            return Err(error.into());
        }
        if !socket.is_connected {
            return Err(ErrorKind::WouldBlock.into());
        }
        let taken = &bytes[..bytes.len().min(1_400)];
        let ahead_ns = network.ahead_ns[self.machine];
        if ahead_ns > 0 {
            network.carried += 1;
            let due = (network.now_ns + ahead_ns, network.carried);
            let Self { machine, epoch, id, is_venue, .. } = *self;
            network.held.insert(due, Held { machine, epoch, id, is_venue, bytes: taken.to_vec() });
            return Ok(taken.len());
        }
        match network.send(self.machine, self.id, self.is_venue, taken) {
            true => Ok(taken.len()),
            false => Err(ErrorKind::WouldBlock.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Stream for SimStream {
    fn reset(self: Box<Self>) -> io::Result<()> {
        let mut network = self.network.borrow_mut();
        let now = network.now();
        let machine = &mut network.machines[self.machine];
        if machine.epoch == self.epoch {
            machine.sockets.remove(&self.id);
            // One that has ended sends nothing any more.
            let _ = machine.tcp.abort(self.id, now, &mut machine.wire);
        }
        Ok(())
    }
}

impl Drop for SimStream {
    fn drop(&mut self) {
        let mut network = self.network.borrow_mut();
        let now = network.now();
        let machine = &mut network.machines[self.machine];
        if machine.epoch == self.epoch {
            machine.sockets.remove(&self.id);
            // One that has ended is closed already.
            let _ = machine.tcp.close(self.id, now, &mut machine.wire);
        }
    }
}

/// A machine, as a process on it has it: its clock runs at a rate of its own.
#[derive(Clone)]
pub(super) struct SimHost {
    /// The network.
    pub network: Shared,
    /// Which machine.
    pub machine: usize,
    /// How many of 1,000 ns pass here while 1,000 ns pass.
    pub rate: u64,
}

impl fmt::Debug for SimHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "machine {}", self.machine)
    }
}

impl Host for SimHost {
    fn now_ns(&self) -> u64 {
        let network = self.network.borrow();
        (network.now_ns + network.ahead_ns[self.machine]) / 1_000 * self.rate
    }

    fn epoch_offset_ns(&self) -> u64 {
        0
    }

    fn connect(&self, to: SocketAddrV4, _waits: Waits) -> io::Result<Box<dyn Stream>> {
        let mut network = self.network.borrow_mut();
        let now = network.now();
        let machine = &mut network.machines[self.machine];
        machine.next_port += 1;
        let flow = Flow { local: address(self.machine, machine.next_port), remote: to };
        let connected = machine.tcp.connect(flow, &ConnectionOptions::default(), ConsumerId(1), now, &mut machine.wire);
        let id = connected.map_err(|_| io::Error::from(ErrorKind::AddrNotAvailable))?;
        machine.sockets.insert(id, Socket::default());
        let epoch = machine.epoch;
        Ok(Box::new(SimStream {
            network: Rc::clone(&self.network),
            machine: self.machine,
            epoch,
            id,
            is_venue: to.ip().octets()[3] == 1,
        }))
    }
}

impl Listener for SimHost {
    fn accept(&self) -> Option<Box<dyn Stream>> {
        SimStream::accept(&self.network, self.machine).map(|stream| Box::new(stream) as Box<dyn Stream>)
    }
}
