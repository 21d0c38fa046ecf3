//! A host that runs smoltcp, because two hosts with our stack may share a mistake that neither
//! detects.

use std::cell::RefCell;
use std::net::SocketAddrV4;
use std::rc::Rc;

use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::socket::tcp::{Socket, SocketBuffer, State};
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::{EthernetAddress, HardwareAddress, IpAddress, IpCidr, IpEndpoint};

use super::end::{Action, Outcome, mix};
use super::ledger::{EndKey, Ledger};
use super::script::{Script, Session, address, end, mac};
use crate::lists::Lists;

/// The local port of session 0; each session has the next one.
const PORTS: u16 = 49_152;

/// The time without a segment after which a socket sends a probe.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// The most actions of an end in one turn, as of our own hosts.
const ACTIONS_PER_TURN: usize = 16;

/// smoltcp with its sockets.
pub struct SmoltcpHost {
    host: usize,
    ledger: Rc<RefCell<Ledger>>,
    interface: Interface,
    sockets: SocketSet<'static>,
    /// Its transmit list is never full: smoltcp 0.14 forgets a fast retransmission that the device
    /// refuses, together with its timer, and sends nothing from then on
    /// (`tests/tests/tcp/differential.rs` shows that alone). So only our own hosts have full rings.
    nic: Lists,
    rx_ring_len: usize,
    /// Sessions to begin, the latest first.
    to_begin: Vec<(usize, Session)>,
    /// The ports that it listens at.
    listens: Vec<Listens>,
    entries: Vec<Entry>,
}

/// A port that it listens at.
struct Listens {
    /// One of the sessions to this port; its sockets have this session's buffers.
    session: Session,
    /// Its sockets send keepalive probes.
    asks: bool,
}

/// A socket and its purpose.
struct Entry {
    handle: SocketHandle,
    /// `None` while it listens.
    key: Option<EndKey>,
    has_aborted: bool,
    /// A FIN has come; it is reported when all data has been read.
    has_fin: bool,
    is_over: bool,
}

impl SmoltcpHost {
    /// The host `idx` of a script.
    pub fn new(script: &Script, idx: usize, ledger: &Rc<RefCell<Ledger>>) -> Self {
        let plan = &script.hosts[idx];
        let mut nic = Lists::new(plan.mtu);
        let mut config = Config::new(HardwareAddress::Ethernet(EthernetAddress(mac(idx).0)));
        config.random_seed = mix(script.seed, 3_000 + idx as u64);
        let mut interface = Interface::new(config, &mut nic, Instant::ZERO);
        interface.update_ip_addrs(|addresses| {
            addresses.push(IpCidr::new(IpAddress::Ipv4(address(idx)), 24)).expect("there is room for one address");
        });
        let mut to_begin: Vec<_> =
            script.sessions.iter().cloned().enumerate().filter(|(_, session)| session.client == idx).collect();
        to_begin.sort_by_key(|(idx, session)| (u64::MAX - session.begins_at, *idx));
        let mut host = Self {
            host: idx,
            ledger: Rc::clone(ledger),
            interface,
            sockets: SocketSet::new(Vec::new()),
            nic,
            rx_ring_len: plan.nic.rx_ring_len,
            to_begin,
            listens: Vec::new(),
            entries: Vec::new(),
        };
        for session in script.sessions.iter().filter(|session| session.server == idx) {
            // The client whose SYN comes first takes the first socket of the port. So if one
            // session needs keepalive, all sockets of the port have it, because there is no other
            // way to learn of a lost reset (seed 9503).
            let asks = script
                .sessions
                .iter()
                .any(|other| (other.server, other.port) == (idx, session.port) && other.options.keepalive.is_some());
            let listens = Listens { session: session.clone(), asks };
            host.listen(&listens);
            if host.listens.iter().all(|known| known.session.port != session.port) {
                host.listens.push(listens);
            }
        }
        host
    }

    fn listen(&mut self, listens: &Listens) {
        let mut socket = socket(&listens.session);
        if listens.asks {
            socket.set_keep_alive(Some(KEEP_ALIVE));
        }
        socket.listen(listens.session.port).expect("the port is not zero");
        self.add(socket, None);
    }

    /// A listening socket of smoltcp becomes the connection that it accepts. A copy of a SYN whose
    /// session is over takes a socket too, so a port without sockets gets another one (seed 2335).
    fn listen_again(&mut self) {
        let listens = core::mem::take(&mut self.listens);
        for port in &listens {
            let has_listener = self.entries.iter().any(|entry| {
                let socket = self.sockets.get::<Socket<'_>>(entry.handle);
                socket.state() == State::Listen && socket.listen_endpoint().port == port.session.port
            });
            if !has_listener {
                self.listen(port);
            }
        }
        self.listens = listens;
    }

    fn add(&mut self, socket: Socket<'static>, key: Option<EndKey>) {
        let handle = self.sockets.add(socket);
        self.entries.push(Entry { handle, key, has_aborted: false, has_fin: false, is_over: false });
    }

    /// One turn. Returns whether it received frames.
    pub fn poll(&mut self, now: u64) -> bool {
        let had = !self.nic.rx.is_empty();
        let now = Instant::from_micros((now / 1_000) as i64);
        self.begin_sessions();
        self.interface.poll(now, &mut self.nic, &mut self.sockets);
        self.listen_again();
        for entry in 0..self.entries.len() {
            self.serve(entry);
        }
        self.interface.poll(now, &mut self.nic, &mut self.sockets);
        had
    }

    fn begin_sessions(&mut self) {
        let now = self.ledger.borrow().now;
        while let Some((idx, session)) = self.to_begin.pop_if(|(_, session)| session.begins_at <= now) {
            let (local, remote) = (end(self.host, PORTS + idx as u16), end(session.server, session.port));
            let mut socket = socket(&session);
            let far = IpEndpoint::new(IpAddress::Ipv4(*remote.ip()), remote.port());
            let begun = socket.connect(self.interface.context(), far, local.port());
            let mut ledger = self.ledger.borrow_mut();
            ledger.trace(|| format!("session {idx}: smoltcp at {local} connects to {remote}"));
            ledger.begin(idx, local, remote);
            if let Err(why) = begun {
                ledger.fail(format!("session {idx} cannot begin: {why}"));
            }
            drop(ledger);
            self.add(socket, Some((idx, 0)));
        }
    }

    /// Reports the state of a socket, and executes the next actions of its end.
    fn serve(&mut self, idx: usize) {
        let entry = &mut self.entries[idx];
        if entry.is_over {
            return;
        }
        let socket = self.sockets.get_mut::<Socket<'_>>(entry.handle);
        let mut ledger = self.ledger.borrow_mut();
        let state = socket.state();
        let is_open = !matches!(state, State::Closed | State::Listen | State::SynSent | State::SynReceived);
        if entry.key.is_none() {
            if !is_open {
                return;
            }
            let (Some(local), Some(remote)) = (socket.local_endpoint(), socket.remote_endpoint()) else { return };
            let Some(session) = ledger.session(ends(remote), ends(local)) else {
                let host = self.host;
                return ledger.fail(format!("host {host}: a connection from {remote} that belongs to no session"));
            };
            entry.key = Some((session, 1));
        }
        let Some(key) = entry.key else { return };
        if is_open && !ledger.end(key).is_connected {
            ledger.connected(key);
        }
        read(socket, key, &mut ledger);
        entry.has_fin |= matches!(state, State::CloseWait | State::LastAck | State::Closing | State::TimeWait);
        if entry.has_fin && socket.recv_queue() == 0 && !ledger.end(key).saw_close {
            ledger.peer_closed(key);
        }
        entry.has_aborted |= act(socket, key, &mut ledger);
        if let Some(outcome) = outcome(socket, key, entry.has_aborted, &mut ledger) {
            entry.is_over = true;
            ledger.closed(key, outcome);
        }
    }

    /// Receives a frame from the line.
    pub fn arrive(&mut self, frame: Vec<u8>) {
        if self.nic.rx.len() < self.rx_ring_len {
            self.nic.rx.push_back(frame);
        }
    }

    /// Frames that wait for a turn.
    pub fn waiting(&self) -> usize {
        self.nic.rx.len()
    }

    /// The length of the frame that leaves next.
    pub fn next_len(&self) -> Option<usize> {
        self.nic.tx.front().map(Vec::len)
    }

    /// Sends the next frame.
    pub fn leave(&mut self) -> Vec<Vec<u8>> {
        self.nic.tx.pop_front().into_iter().collect()
    }

    /// Whether no connection is left. A connection in TIME-WAIT does not count.
    pub fn is_quiet(&self) -> bool {
        self.entries.iter().all(|entry| {
            let state = self.sockets.get::<Socket<'_>>(entry.handle).state();
            matches!(state, State::Closed | State::Listen | State::TimeWait)
        })
    }
}

/// Reads received data, unless the end pauses.
fn read(socket: &mut Socket<'_>, key: EndKey, ledger: &mut Ledger) {
    let now = ledger.now;
    while socket.can_recv() && ledger.end(key).pauses_until(now).is_none() {
        let bytes_received = socket.recv(|bytes| {
            // Reads in parts, like an app with a small buffer.
            let count = bytes.len().min(2_000);
            ledger.bytes_received(key, &bytes[..count], now);
            (count, ())
        });
        if bytes_received.is_err() {
            break;
        }
    }
}

/// Executes the next actions of an end. Returns whether it has aborted.
fn act(socket: &mut Socket<'_>, key: EndKey, ledger: &mut Ledger) -> bool {
    let now = ledger.now;
    for _ in 0..ACTIONS_PER_TURN {
        match ledger.end(key).next_action(now) {
            Action::Nothing | Action::At(_) => break,
            Action::Write(count) => {
                let count = count.min(socket.send_capacity() - socket.send_queue());
                if count == 0 || !socket.can_send() {
                    break;
                }
                let mut bytes = vec![0; count];
                ledger.end(key).fill(&mut bytes);
                let taken = socket.send_slice(&bytes).unwrap_or(0);
                ledger.end(key).wrote(taken, now);
            }
            // smoltcp has no other way to end a connection.
            Action::Shutdown | Action::HangUp => {
                socket.close();
                ledger.end(key).is_shut = true;
            }
            Action::Abort => {
                socket.abort();
                return true;
            }
        }
    }
    false
}

/// The outcome of an end, once it has ended and all its data has been read.
fn outcome(socket: &Socket<'_>, key: EndKey, has_aborted: bool, ledger: &mut Ledger) -> Option<Outcome> {
    let end = ledger.end(key);
    let has_unread = socket.recv_queue() > 0;
    match socket.state() {
        State::TimeWait if !has_unread && end.saw_close => Some(Outcome::Finished),
        State::Closed if has_unread => None,
        State::Closed if has_aborted => Some(Outcome::Aborted),
        State::Closed if end.is_shut && end.saw_close => Some(Outcome::Finished),
        State::Closed if end.is_connected => Some(Outcome::Reset),
        State::Closed => Some(Outcome::Refused),
        _ => None,
    }
}

fn ends(end: IpEndpoint) -> SocketAddrV4 {
    let IpAddress::Ipv4(address) = end.addr;
    SocketAddrV4::new(address, end.port)
}

fn socket(session: &Session) -> Socket<'static> {
    let options = &session.options;
    let buffer = |len: u32| SocketBuffer::new(vec![0; (len as usize).min(64 << 10)]);
    let mut socket = Socket::new(buffer(options.receive_buffer), buffer(options.send_buffer));
    socket.set_nagle_enabled(!options.nodelay);
    if options.quickack {
        socket.set_ack_delay(None);
    }
    if options.keepalive.is_some() {
        socket.set_keep_alive(Some(KEEP_ALIVE));
    }
    socket
}
