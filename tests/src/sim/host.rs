//! A host of ours: a whole worker on a simulated NIC, with an app that plays its ends of the
//! sessions.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::rc::Rc;

use wirepath::counters::{self, Block};
use wirepath::mem::{Held, Mbuf, Pool};
use wirepath::pipeline::tcp::{
    CloseReason, ConnectionId, ConnectionOptions, ListenOptions, ListenerId, PreparedOrder, PreparedOrderError,
    SendError, Tcp, TcpConfig, TcpData, TcpEvent, TcpNodeConfig, TcpSockets, TcpSocketsConfig,
};
use wirepath::pipeline::{
    App, Arp, ArpConfig, Cx, Datagram, EgressConfig, Ethernet, Icmp, IcmpConfig, Ipv4, Ipv4Config, Ipv4Successors, Udp,
    UdpConfig, Unhandled, Vlans,
};
use wirepath::proto::{
    ConsumerId, HashSeed, Host, HostConfig, HostEvent, InterfaceId, Ipv4Prefix, SocketCapacity, UdpSockets,
};
use wirepath::time::{Duration, Instant};
use wirepath::wire::VlanTags;
use wirepath::worker::{Parts, Worker};

use super::end::{Action, Outcome, WriteMethod, mix};
use super::ledger::{EndKey, Ledger, Side, name};
use super::nic::{SimRx, SimTx};
use super::script::{HostPlan, Listener, Script, address, end, mac};

type Nodes = Ethernet<Ipv4<Udp, Icmp, Unhandled, Tcp>, Arp>;
type SimWorker = Worker<SimRx, SimTx, Nodes, SimApp>;

/// Connections of a host, more than any script has.
const CONNECTIONS_MAX: usize = 256;
/// The most writes of an end in one turn, as a busy app would make them.
const WRITES_PER_TURN: usize = 16;

/// A worker, and the block of its counters.
pub struct SimHost {
    worker: SimWorker,
    block: Block,
    chunks_max: usize,
    /// When the last turn was.
    polled_at: Option<Instant>,
}

impl SimHost {
    /// The host `idx` of a script.
    pub fn new(script: &Script, idx: usize, ledger: &Rc<RefCell<Ledger>>) -> Self {
        let plan = &script.hosts[idx];
        let block = Block::heap_of(counters::Capacity { entries: 512, values: 4_096 });
        let scope = block.scope("worker");
        let seed = HashSeed::new(mix(script.seed, 1_000 + idx as u64), mix(script.seed, 2_000 + idx as u64));
        let host = host(plan, idx, script.hosts.len(), seed);
        let next = Ipv4Successors {
            udp: Udp::new(UdpConfig::default(), &scope),
            icmp: Icmp::new(IcmpConfig::default(), &scope),
            igmp: Unhandled::new("igmp", &scope),
            tcp: Tcp::new(TcpNodeConfig::default(), &scope),
        };
        let ipv4 = Ipv4::new(Ipv4Config::new(seed), next, &scope);
        let arp = Arp::new(ArpConfig::new(seed), &scope);
        let pipeline = Ethernet::new(Some(host.mac()), Vlans::Untagged, ipv4, arp, &scope);
        let sockets = UdpSockets::new(SocketCapacity { locals: 1, bindings: 1, connections: 1, sources: 1 }, seed);
        let egress = if plan.uses_arp { EgressConfig::host(seed) } else { EgressConfig::quiet(seed) };
        let parts = Parts {
            rx: SimRx::new(plan.nic),
            tx: SimTx::new(plan.nic),
            pipeline,
            app: SimApp::new(script, idx, Rc::clone(ledger)),
            pool: Pool::heap(plan.buffers).expect("the heap has room"),
            host,
            sockets,
            egress,
            burst_len: plan.burst_len,
        };
        let tcp = TcpSockets::new(&config(plan, seed), &scope).expect("the script's limits are in range");
        let worker = Worker::new(parts, &scope).with_tcp(tcp);
        block.check().expect("the block has room for every counter");
        Self { worker, block, chunks_max: plan.chunks_max, polled_at: None }
    }

    /// One turn. Returns whether it received frames.
    pub fn poll(&mut self, now: u64) -> bool {
        let now = Instant::from_nanos(now);
        self.polled_at = Some(now);
        self.worker.poll_once(now) > 0
    }

    /// Receives a frame from the line.
    pub fn arrive(&mut self, frame: Vec<u8>) {
        self.worker.rx_mut().arrive(frame);
    }

    /// The NIC's sending half.
    pub fn tx_mut(&mut self) -> &mut SimTx {
        self.worker.tx_mut()
    }

    /// Frames that wait for a turn.
    pub fn waiting(&self) -> usize {
        self.worker.rx().waiting()
    }

    /// Takes all buffers except this many; `None` returns them.
    pub fn steal(&mut self, leave: Option<usize>, now: u64) {
        self.worker.with_app(Instant::from_nanos(now), |app, cx| match leave {
            None => app.stolen.drain(..).for_each(Mbuf::free),
            Some(leave) => {
                while cx.pool.available() > leave {
                    app.stolen.extend(cx.pool.alloc());
                }
            }
        });
    }

    /// Whether no connection is left.
    pub fn is_quiet(&self) -> bool {
        self.worker.tcp().is_empty()
    }

    /// Frees the buffers that the app keeps.
    pub fn let_go(&mut self, now: u64) {
        self.worker.with_app(Instant::from_nanos(now), |app, _| {
            app.held.clear();
            app.stolen.drain(..).for_each(Mbuf::free);
        });
    }

    /// Errors at the end of a run, when no connection may be left.
    pub fn check_end(&self) -> Result<(), String> {
        let (pool, tcp) = (self.worker.pool(), self.worker.tcp());
        if !tcp.is_empty() {
            return Err(format!("{} connections are left", tcp.len()));
        }
        if tcp.chunks() > 0 {
            return Err(format!("{} pieces of data are left without a connection", tcp.chunks()));
        }
        let elsewhere = self.worker.kept();
        if pool.in_use() > elsewhere {
            return Err(format!("{} buffers are lost", pool.in_use() - elsewhere));
        }
        self.check()
    }

    /// Errors that may be found at any time.
    pub fn check(&self) -> Result<(), String> {
        let (pool, tcp) = (self.worker.pool(), self.worker.tcp());
        if tcp.chunks() > self.chunks_max || tcp.len() > CONNECTIONS_MAX {
            return Err(format!("{} pieces wait in {} connections: more than there may be", tcp.chunks(), tcp.len()));
        }
        tcp.check_timers(self.polled_at).map_err(|fault| fault.to_string())?;
        match pool.drops_without_reason() {
            0 => Ok(()),
            count => Err(format!("{count} packets ended without a name")),
        }
    }

    /// Counters that are not zero.
    pub fn counters(&self) -> String {
        let snapshot = self.block.snapshot();
        let names = snapshot.samples.iter().map(|sample| sample.name.as_str());
        let rows = names.filter_map(|name| snapshot.count(name).filter(|value| *value > 0).map(|value| (name, value)));
        rows.map(|(name, value)| format!("{value:>10} {name}\n")).collect::<String>()
            + &format!("{:?}\n", self.worker.tcp().tally())
    }
}

fn config(plan: &HostPlan, seed: HashSeed) -> TcpSocketsConfig {
    let machine = TcpConfig {
        connections_max: CONNECTIONS_MAX,
        listeners_max: 8,
        chunks_max: plan.chunks_max,
        reassembly_max: plan.reassembly_max,
        time_wait: Duration::from_nanos(plan.time_wait),
        ..TcpConfig::default()
    };
    TcpSocketsConfig { machine, capabilities: plan.nic.capabilities(), seed }
}

fn host(plan: &HostPlan, idx: usize, count: usize, seed: HashSeed) -> Host {
    let config = HostConfig {
        interface: InterfaceId(0),
        mac: mac(idx),
        vlan: VlanTags::NONE,
        mtu: plan.mtu,
        addresses_max: 1,
        routes_max: 2,
        neighbors_max: 16,
    };
    let mut host = Host::new(config, seed).expect("the MTU is large enough");
    let network = Ipv4Prefix::new(address(idx), 24).expect("24 bits are a prefix");
    host.apply(HostEvent::AddressAdded(network)).expect("there is room for one");
    for other in (0..count).filter(|other| *other != idx && !plan.uses_arp) {
        let neighbor = HostEvent::NeighborSet { address: address(other), mac: mac(other) };
        host.apply(neighbor).expect("there is room for all");
    }
    host
}

/// The app: listens, connects, and executes the actions of its ends.
pub struct SimApp {
    host: usize,
    ledger: Rc<RefCell<Ledger>>,
    /// Sessions to begin, the latest first.
    to_begin: Vec<(usize, super::script::Session)>,
    listeners: Vec<(Listener, Option<ListenerId>, bool)>,
    ends: HashMap<ConnectionId, EndKey>,
    /// Connections to process in each turn: they wait for a time, or for buffers.
    awake: Vec<ConnectionId>,
    paused: Vec<(ConnectionId, u64)>,
    /// Connections that do not read until an event reports room.
    held_back: Vec<ConnectionId>,
    held: VecDeque<(Held, EndKey, u64)>,
    stolen: Vec<Mbuf>,
    orders: HashMap<ConnectionId, PreparedOrder>,
    /// Connections that a SYN cookie opened after their session had ended.
    ghosts: Vec<ConnectionId>,
}

impl SimApp {
    fn new(script: &Script, host: usize, ledger: Rc<RefCell<Ledger>>) -> Self {
        let own = script.sessions.iter().cloned().enumerate().filter(|(_, session)| session.client == host);
        let mut to_begin: Vec<_> = own.collect();
        to_begin.sort_by_key(|(idx, session)| (u64::MAX - session.begins_at, *idx));
        let listeners = script.listeners.iter().filter(|listener| listener.host == host);
        Self {
            host,
            ledger,
            to_begin,
            listeners: listeners.map(|listener| (listener.clone(), None, false)).collect(),
            ends: HashMap::new(),
            awake: Vec::new(),
            paused: Vec::new(),
            held_back: Vec::new(),
            held: VecDeque::new(),
            stolen: Vec::new(),
            orders: HashMap::new(),
            ghosts: Vec::new(),
        }
    }

    fn now(&self) -> u64 {
        self.ledger.borrow().now
    }

    fn fail(&self, what: String) {
        self.ledger.borrow_mut().fail(format!("host {}: {what}", self.host));
    }

    fn listen(&mut self, cx: &mut Cx<'_>) {
        let now = self.now();
        for (listener, id, is_closed) in &mut self.listeners {
            if id.is_none() && !*is_closed {
                let options = ListenOptions {
                    backlog: listener.backlog,
                    connection: listener.options,
                    consumer: ConsumerId(2),
                    ..ListenOptions::default()
                };
                let local = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, listener.port);
                *id = Some(cx.tcp().listen(local, &options).expect("the script's listeners are all right"));
            }
            if listener.closes_at.is_some_and(|at| at <= now) && !*is_closed {
                *is_closed = true;
                if let Some(id) = id.take() {
                    assert!(cx.tcp().close_listener(id), "a listener that was open");
                }
            }
        }
    }

    fn begin_sessions(&mut self, cx: &mut Cx<'_>) {
        let now = self.now();
        while let Some((idx, session)) = self.to_begin.pop_if(|(_, session)| session.begins_at <= now) {
            let local = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
            let remote = end(session.server, session.port);
            match cx.tcp().connect(local, remote, &session.options, ConsumerId(1)) {
                Ok(id) => {
                    let local = cx.tcp().info(id).expect("it was begun just now").local;
                    self.ledger.borrow().trace(|| format!("session {idx}: {local} connects to {remote}"));
                    self.ledger.borrow_mut().begin(idx, local, remote);
                    self.ends.insert(id, (idx, 0));
                }
                Err(why) => self.fail(format!("session {idx} cannot begin: {why}")),
            }
        }
    }

    /// Executes the next action of an end.
    fn act(&mut self, id: ConnectionId, cx: &mut Cx<'_>) {
        let Some(&key) = self.ends.get(&id) else { return };
        if self.held_back.contains(&id) {
            return self.sleep(id);
        }
        let now = self.now();
        self.change_options(id, key, cx);
        for _ in 0..WRITES_PER_TURN {
            let action = self.ledger.borrow_mut().end(key).next_action(now);
            match action {
                Action::Nothing => return self.sleep(id),
                Action::At(_) => return self.wake(id),
                Action::Write(count) => match self.write(id, key, count, cx) {
                    Ok(0) => return self.wake(id),
                    Ok(taken) if taken < count && self.holds_back(key) => return self.hold_back(id, cx),
                    Ok(_) => (),
                    // `Writable` reports room later.
                    Err(SendError::Full | SendError::PoolEmpty | SendError::NoChunk) => {
                        return if self.holds_back(key) { self.hold_back(id, cx) } else { self.sleep(id) };
                    }
                    // `Closed` is queued.
                    Err(SendError::NotFound | SendError::Closed) => return self.sleep(id),
                    Err(why) => {
                        self.fail(format!("{} cannot write {count}: {why}", name(key)));
                        return self.sleep(id);
                    }
                },
                action @ (Action::Shutdown | Action::HangUp) => {
                    let tcp = &mut cx.tcp();
                    let closed = if action == Action::Shutdown { tcp.shutdown(id) } else { tcp.close(id) };
                    if let Err(why) = closed {
                        self.ledger.borrow().trace(|| format!("{} cannot close: {why}", name(key)));
                        return self.wake(id);
                    }
                    let mut ledger = self.ledger.borrow_mut();
                    ledger.trace(|| format!("{} closes its side", name(key)));
                    ledger.end(key).is_shut = true;
                }
                Action::Abort => {
                    self.ledger.borrow().trace(|| format!("{} aborts", name(key)));
                    // The connection is gone, and `Closed` is queued.
                    let _ = cx.tcp().abort(id);
                    return self.sleep(id);
                }
            }
        }
        self.wake(id);
    }

    fn holds_back(&self, key: EndKey) -> bool {
        self.ledger.borrow_mut().end(key).plan.holds_back
    }

    /// Stops reading until the stack accepts more data of this end.
    fn hold_back(&mut self, id: ConnectionId, cx: &mut Cx<'_>) {
        if cx.tcp().pause(id).is_ok() {
            self.held_back.push(id);
        }
        self.sleep(id);
    }

    /// The stack accepts data again: ends that held back write and read again.
    fn go_on(&mut self, id: ConnectionId, cx: &mut Cx<'_>) {
        if let Some(at) = self.held_back.iter().position(|other| *other == id) {
            self.held_back.swap_remove(at);
            // The first write may fill the send buffer again.
            self.act(id, cx);
            if !self.held_back.contains(&id) {
                // The connection may have ended.
                let _ = cx.tcp().resume(id);
            }
        }
    }

    fn write(&mut self, id: ConnectionId, key: EndKey, count: usize, cx: &mut Cx<'_>) -> Result<usize, SendError> {
        let writes = self.ledger.borrow_mut().end(key).plan.writes;
        let taken = match writes {
            WriteMethod::Copies => self.copy(id, key, count, cx),
            WriteMethod::HandsOver => self.hand_over(id, key, count, cx),
            WriteMethod::Fires => self.fire(id, key, count, cx),
        }?;
        let mut ledger = self.ledger.borrow_mut();
        let now = ledger.now;
        ledger.trace(|| format!("{} wrote {taken} of {count}", name(key)));
        ledger.end(key).wrote(taken, now);
        Ok(taken)
    }

    fn hand_over(&mut self, id: ConnectionId, key: EndKey, count: usize, cx: &mut Cx<'_>) -> Result<usize, SendError> {
        // The app lacks a buffer, so TCP has not been called and reports nothing later.
        let Some(mut mbuf) = cx.pool.alloc() else { return Ok(0) };
        let count = count.min(mbuf.tailroom());
        let room = mbuf.append(count).expect("there is room for it");
        self.ledger.borrow_mut().end(key).fill(room);
        match cx.tcp().send_mbuf(id, mbuf) {
            Ok(()) => Ok(count),
            Err((why, mbuf)) => {
                mbuf.free();
                Err(why)
            }
        }
    }

    fn copy(&mut self, id: ConnectionId, key: EndKey, count: usize, cx: &mut Cx<'_>) -> Result<usize, SendError> {
        let mut bytes = vec![0; count];
        self.ledger.borrow_mut().end(key).fill(&mut bytes);
        cx.tcp().send(id, &bytes)
    }

    /// Fires a prepared order: the last one with other bytes, or a new one if the length differs.
    fn fire(&mut self, id: ConnectionId, key: EndKey, count: usize, cx: &mut Cx<'_>) -> Result<usize, SendError> {
        let mut bytes = vec![0; count];
        self.ledger.borrow_mut().end(key).fill(&mut bytes);
        let last = self.orders.remove(&id).filter(|order| order.payload().len() == count);
        let mut order = match last {
            Some(order) => order,
            None => match cx.tcp().prepare(id, &bytes) {
                Ok(order) => order,
                Err(PreparedOrderError::Send(why)) => return Err(why),
                Err(_) => return self.copy(id, key, count, cx),
            },
        };
        order.patch(0, &bytes).expect("the template has this length");
        // The result of `fire` is only that the bytes were taken. `warm` must change nothing at
        // all. An order that `try_fire` does not send is fired afterwards.
        let has_left = match count % 3 {
            0 => cx.tcp().warm(&mut order).map(|_| false)?,
            1 => cx.tcp().try_fire(&mut order)?,
            _ => false,
        };
        if !has_left {
            cx.tcp().fire(&mut order)?;
        }
        self.orders.insert(id, order);
        Ok(count)
    }

    /// Options that change while data flows. The timeout for a silent peer does not change, because
    /// it is checked.
    fn change_options(&mut self, id: ConnectionId, key: EndKey, cx: &mut Cx<'_>) {
        loop {
            let change = self.ledger.borrow_mut().end(key).change();
            let Some(options) = change else { return };
            let Some(before) = cx.tcp().options(id) else { return };
            let ConnectionOptions { keepalive, user_timeout, linger, .. } = before;
            let options = ConnectionOptions { keepalive, user_timeout, linger, ..options };
            self.ledger.borrow().trace(|| format!("{} changes its options", name(key)));
            if let Err(why) = cx.tcp().set_options(id, &options) {
                self.fail(format!("{} cannot change its options: {why}", name(key)));
            }
        }
    }

    fn wake(&mut self, id: ConnectionId) {
        if !self.awake.contains(&id) {
            self.awake.push(id);
        }
    }

    fn sleep(&mut self, id: ConnectionId) {
        self.awake.retain(|other| *other != id);
    }

    fn resume(&mut self, cx: &mut Cx<'_>) {
        let now = self.now();
        let due = self.paused.extract_if(.., |(_, until)| *until <= now);
        for (id, _) in due {
            // The connection may have ended.
            let _ = cx.tcp().resume(id);
        }
        while self.held.front().is_some_and(|(_, _, until)| *until <= now) {
            self.held.pop_front();
        }
    }

    fn took(&mut self, listener: Option<ListenerId>, id: ConnectionId, cx: &mut Cx<'_>) {
        let Some(info) = cx.tcp().info(id) else { return self.fail("a connection without a name".into()) };
        let side: Side = usize::from(listener.is_some());
        let (client, server) = if side == 0 { (info.local, info.remote) } else { (info.remote, info.local) };
        let Some(session) = self.ledger.borrow().session(client, server) else {
            return self.fail(format!("a connection from {client} that belongs to no session"));
        };
        let before = self.ledger.borrow_mut().end((session, side)).outcome;
        if before.is_some() && side == 1 {
            // A duplicated segment returned the SYN cookie a second time: a listener without state
            // cannot know that the cookie was used.
            self.ghosts.push(id);
            let _ = cx.tcp().abort(id);
            return;
        }
        self.ends.insert(id, (session, side));
        self.ledger.borrow_mut().connected((session, side));
        self.wake(id);
    }
}

impl App for SimApp {
    fn on_tcp_event(&mut self, id: ConnectionId, event: TcpEvent, cx: &mut Cx<'_>) {
        if let TcpEvent::Connected { listener } = event {
            self.took(listener, id, cx);
        }
        if self.ghosts.contains(&id) {
            return;
        }
        let Some(&key) = self.ends.get(&id) else {
            // A handshake that did not finish ends without an event.
            return self.fail(format!("{event:?} of an unknown connection"));
        };
        match event {
            TcpEvent::Connected { .. } | TcpEvent::NoRoute => (),
            TcpEvent::Writable => self.go_on(id, cx),
            TcpEvent::Readable => return self.fail("Readable reached the app".into()),
            TcpEvent::PeerClosed => self.ledger.borrow_mut().peer_closed(key),
            TcpEvent::Closed(reason) => {
                self.ends.remove(&id);
                self.orders.remove(&id);
                self.sleep(id);
                self.paused.retain(|(other, _)| *other != id);
                self.held_back.retain(|other| *other != id);
                return self.ledger.borrow_mut().closed(key, outcome(reason));
            }
            _ => return self.fail("an event that the simulator does not know".into()),
        }
        self.act(id, cx);
    }

    fn on_tcp_data(&mut self, data: &TcpData<'_>, cx: &mut Cx<'_>) {
        let id = data.connection;
        if self.ghosts.contains(&id) {
            return;
        }
        let Some(&key) = self.ends.get(&id) else { return self.fail("data of an unknown connection".into()) };
        let now = self.now();
        let (pause, holds) = {
            let mut ledger = self.ledger.borrow_mut();
            ledger.trace(|| format!("{} receives {} bytes", name(key), data.payload.len()));
            ledger.bytes_received(key, data.payload, now);
            let end = ledger.end(key);
            (end.pauses_until(now), end.plan.hold)
        };
        if self.held.iter().filter(|(_, holder, _)| *holder == key).count() < holds {
            self.held.push_back((data.hold(), key, now + 5_000_000));
        }
        if let Some(until) = pause
            && self.paused.iter().all(|(other, _)| *other != id)
            && cx.tcp().pause(id).is_ok()
        {
            self.paused.push((id, until));
        }
        self.act(id, cx);
    }

    fn tick(&mut self, cx: &mut Cx<'_>) {
        self.listen(cx);
        self.begin_sessions(cx);
        self.resume(cx);
        for id in self.awake.clone() {
            self.act(id, cx);
        }
    }

    fn on_datagram(&mut self, _: &Datagram<'_>, _: &mut Cx<'_>) {
        self.fail("a datagram, which no host sends".into());
    }
}

fn outcome(reason: CloseReason) -> Outcome {
    match reason {
        CloseReason::Finished => Outcome::Finished,
        CloseReason::Aborted => Outcome::Aborted,
        CloseReason::Reset => Outcome::Reset,
        CloseReason::Refused => Outcome::Refused,
        CloseReason::NoNeighbor => Outcome::NoNeighbor,
        _ => Outcome::TimedOut,
    }
}
