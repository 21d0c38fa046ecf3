//! A host with another stack, so that two of our own mistakes do not cancel out: smoltcp, which
//! plays its ends of the sessions.

use std::cell::RefCell;
use std::net::SocketAddrV4;
use std::rc::Rc;

use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::socket::tcp::{Socket, SocketBuffer, State};
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::{EthernetAddress, HardwareAddress, IpAddress, IpCidr, IpEndpoint};

use super::end::{Outcome, Wish, mix};
use super::ledger::{EndKey, Ledger};
use super::script::{Script, Session, address, end, station};
use crate::lists::Lists;

/// First port of the sessions that it begins.
const PORTS: u16 = 49_152;

/// It sends a probe after this time without a segment.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// smoltcp with its sockets.
pub struct SmoltcpHost {
    host: usize,
    ledger: Rc<RefCell<Ledger>>,
    interface: Interface,
    sockets: SocketSet<'static>,
    /// It takes every frame. smoltcp 0.14 forgets a fast retransmission that finds no room,
    /// together with its timer, and sends nothing from then on (`tests/tests/tcp/differential.rs`
    /// shows that alone). So only our own hosts have full rings.
    nic: Lists,
    rx_ring_len: usize,
    /// Sessions to begin, the latest first.
    to_begin: Vec<(usize, Session)>,
    /// The sessions that it listens for: one for each port.
    listens: Vec<Listens>,
    entries: Vec<Entry>,
}

/// A port that it listens at.
struct Listens {
    /// One of the sessions that call here; its sockets have this session's buffers.
    session: Session,
    /// Its sockets ask whether their peers are still there.
    asks: bool,
}

/// A socket and its purpose.
struct Entry {
    handle: SocketHandle,
    /// `None` while it listens.
    key: Option<EndKey>,
    has_aborted: bool,
    /// A FIN has come; the app learns of it when it has read all data.
    has_fin: bool,
    is_over: bool,
}

impl SmoltcpHost {
    /// The host `idx` of a script.
    pub fn new(script: &Script, idx: usize, ledger: &Rc<RefCell<Ledger>>) -> Self {
        let plan = &script.hosts[idx];
        let mut nic = Lists::new(plan.mtu);
        let mut config = Config::new(HardwareAddress::Ethernet(EthernetAddress(station(idx).0)));
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

    /// One turn. Says whether frames came.
    pub fn poll(&mut self, now: u64) -> bool {
        let had = !self.nic.rx.is_empty();
        let now = Instant::from_micros((now / 1_000) as i64);
        self.begin_sessions();
        self.interface.poll(now, &mut self.nic, &mut self.sockets);
        self.listen_again();
        for entry in 0..self.entries.len() {
            self.look(entry);
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

    /// Examines the state of a socket, and executes the next action of its end.
    fn look(&mut self, idx: usize) {
        let entry = &mut self.entries[idx];
        if entry.is_over {
            return;
        }
        let socket = self.sockets.get_mut::<Socket<'_>>(entry.handle);
        let mut ledger = self.ledger.borrow_mut();
        let now = ledger.now;
        let state = socket.state();
        let is_open = !matches!(state, State::Closed | State::Listen | State::SynSent | State::SynReceived);
        if entry.key.is_none() {
            if !is_open {
                return;
            }
            let (Some(local), Some(remote)) = (socket.local_endpoint(), socket.remote_endpoint()) else { return };
            let Some(session) = ledger.session(ends(remote), ends(local)) else {
                return ledger.fail(format!("host {}: a connection from {remote} that nobody began", self.host));
            };
            entry.key = Some((session, 1));
        }
        let Some(key) = entry.key else { return };
        if is_open && !ledger.end(key).is_connected {
            ledger.connected(key);
        }
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
        entry.has_fin |= matches!(state, State::CloseWait | State::LastAck | State::Closing | State::TimeWait);
        if entry.has_fin && socket.recv_queue() == 0 && !ledger.end(key).saw_close {
            ledger.peer_closed(key);
        }
        for _ in 0..16 {
            match ledger.end(key).wish(now) {
                Wish::Nothing | Wish::At(_) => break,
                Wish::Write(count) => {
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
                Wish::Shutdown | Wish::HangUp => {
                    socket.close();
                    ledger.end(key).is_shut = true;
                }
                Wish::Abort => {
                    socket.abort();
                    entry.has_aborted = true;
                    break;
                }
            }
        }
        let outcome = match socket.state() {
            State::TimeWait if socket.recv_queue() == 0 && ledger.end(key).saw_close => Outcome::Finished,
            State::Closed if socket.recv_queue() > 0 => return,
            State::Closed if entry.has_aborted => Outcome::Aborted,
            State::Closed if ledger.end(key).is_shut && ledger.end(key).saw_close => Outcome::Finished,
            State::Closed if ledger.end(key).is_connected => Outcome::Reset,
            State::Closed => Outcome::Refused,
            _ => return,
        };
        entry.is_over = true;
        ledger.closed(key, outcome);
    }

    /// A frame comes off the line.
    pub fn arrive(&mut self, frame: Vec<u8>) {
        if self.nic.rx.len() < self.rx_ring_len {
            self.nic.rx.push_back(frame);
        }
    }

    /// Frames that wait for a turn.
    pub fn waiting(&self) -> usize {
        self.nic.rx.len()
    }

    /// Bytes of the frame that is next on the line.
    pub fn next_len(&self) -> Option<usize> {
        self.nic.tx.front().map(Vec::len)
    }

    /// The next frame leaves.
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
