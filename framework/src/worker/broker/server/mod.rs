//! The broker's loop: accepts connections, has one request of each client that has sent some
//! answered, and looks after what is due by time. Its files are what a client can ask for
//! (`requests`, `lending`, `steering`), what it loses (`review`), the ICMP errors that it gets, and
//! the log.

use std::net::UdpSocket;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use std::{fs, io};

use super::claims::Claims;
use super::clients::{Client, Clients, DESCRIPTORS_OF_A_CLIENT};
use super::closer::{Closer, STRANGERS};
use super::config::BrokerConfig;
use super::ended::EndedFlows;
use super::error::{BrokerError, Refusal};
use super::flows::{ClientId, FlowTable, RuleBudget, Sharing, is_port};
use super::forward::Forwarder;
use super::leaving::LeavingPorts;
use super::leftovers::Leftovers;
use super::listener::Listener;
use super::port::{self, LendingPort, OpenPort};
use super::refusals::{OF_A_STRANGER, RefusalLines};
use super::rights::{BrokerRules, Rights};
use super::waiting::{Lent, Turns};
use crate::counters::{Block, Counter, Gauge, Scope, Unit};
use crate::device::broker::message::Reply;
use crate::device::broker::sys::{self, Peer};
use crate::worker::StopFlag;
use crate::worker::kernel::Mirror;
use crate::worker::live::icmp_errors;

mod icmp;
mod lending;
mod log;
mod requests;
mod review;
mod steering;
#[cfg(test)]
mod tests;

/// The longest wait for a request. Between two waits the loop checks the program and the stop flag.
const TURN_INTERVAL: Duration = Duration::from_millis(100);
/// The same while a client waits for a queue.
const LEND_INTERVAL: Duration = Duration::from_millis(20);
/// How often the ports of clients are compared with the kernel's sockets.
const REVIEW_INTERVAL: Duration = Duration::from_secs(2);
/// The most connections accepted in a turn.
const ACCEPTED_A_TURN: usize = 16;

/// A broker. When it is dropped or its process ends, the kernel gets the frames of its clients.
pub struct Broker {
    config: BrokerConfig,
    rights: Rights,
    /// New rules, to be applied.
    replacement: BrokerRules,
    device: Box<dyn LendingPort>,
    queues: u16,
    mirror: Mirror,
    icmp_errors: UdpSocket,
    listener: Listener,
    /// Until then no connection is accepted: there was no descriptor for one.
    accepts_from: Instant,
    clients: Clients,
    turns: Turns,
    flows: FlowTable,
    /// Sockets that clients have shown.
    claims: Claims,
    closer: Closer,
    leftovers: Leftovers,
    /// Passes frames on, if the queues are not lent.
    forwarder: Option<Forwarder>,
    /// Flows whose clients have lost them, and whose rules are to be removed.
    ended: EndedFlows,
    /// Ports that no client has any more and whose frames are still dropped.
    leaving: LeavingPorts,
    reviewed: Instant,
    /// The number of log lines since the last review.
    lines: u32,
    refusal_lines: RefusalLines,
    counters: Counters,
    /// Why its counters are in no file.
    uncounted: Option<String>,
    _block: Block,
}

/// What a broker has beside its port.
struct OpenParts {
    listener: Listener,
    mirror: Mirror,
    icmp_errors: UdpSocket,
    forwarder: Option<Forwarder>,
    block: Block,
    uncounted: Option<String>,
}

struct Counters {
    clients: Gauge,
    queues_lent: Gauge,
    queues_ending: Gauge,
    packet_buffers: Gauge,
    ring_errors: Gauge,
    requests: Counter,
    refused: Counter,
    refused_by_rights: Counter,
    refused_as_taken: Counter,
    flows_taken_back: Counter,
    errors_passed_on: Counter,
}

impl Broker {
    /// Attaches the program, and listens.
    ///
    /// # Errors
    /// One sentence with the next step: no such interface, no permission, another program on the
    /// interface, another broker.
    pub fn open(config: BrokerConfig) -> Result<Self, BrokerError> {
        let failed = |error: &dyn core::fmt::Display| BrokerError(error.to_string());
        let interface = config.port.interface().to_owned();
        // Listens first, because another broker of the interface is then the error, and not its
        // program.
        let listener = Listener::open(&config.path)?;
        let OpenPort { port: device, queues, frame_len_max } = port::open(&config.port, config.forward)?;
        // Programs need the broker more than the operator needs its counters.
        let (block, uncounted) = match Block::create("broker") {
            Ok(block) => (block, None),
            Err(error) => (Block::heap(), Some(error.to_string())),
        };
        let scope = block.scope("broker");
        let mut mirror = Mirror::open(&scope).map_err(|error| failed(&error))?;
        // Without it no program reaches a peer that the kernel has not reached before.
        mirror.may_resolve().map_err(|error| failed(&error))?;
        let icmp_errors =
            icmp_errors(&interface).and_then(|socket| socket.set_nonblocking(true).map(|()| socket)).map_err(
                |error| BrokerError(format!("ICMP errors of {interface} cannot be heard ({error}): run as root")),
            )?;
        let forwarder = if config.forward {
            let started = Forwarder::start(queues, frame_len_max, block.scope("forward"));
            Some(started.map_err(|why| BrokerError(format!("frames of {interface} cannot be passed on: {why}")))?)
        } else {
            None
        };
        Ok(Self::over(config, device, OpenParts { listener, mirror, icmp_errors, forwarder, block, uncounted }))
    }

    /// A broker of a port that is open.
    fn over(config: BrokerConfig, device: Box<dyn LendingPort>, parts: OpenParts) -> Self {
        let OpenParts { listener, mirror, icmp_errors, forwarder, block, uncounted } = parts;
        // A client has one queue, or all where frames are passed on.
        let of_a_flow = if forwarder.is_some() { usize::from(device.queues()) } else { 1 };
        let budget = RuleBudget { rules_max: device.rules_max(), of_a_flow };
        let clients = Clients::new(config.user_connections_max);
        let sharing = match forwarder {
            Some(_) => Sharing::Ports,
            None if device.copies_groups() => Sharing::Groups,
            // A NIC with rules has one for a port, which a second listener would take out.
            None if device.spreads_by_connection() && device.why_unsteered().is_some() => Sharing::Listeners,
            None => Sharing::Nothing,
        };
        Self {
            queues: device.queues(),
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
            accepts_from: Instant::now(),
            clients,
            turns: Turns::default(),
            flows: FlowTable::new(sharing, budget),
            claims: Claims::default(),
            closer: Closer::default(),
            leftovers: Leftovers::new(),
            forwarder,
            ended: EndedFlows::default(),
            leaving: LeavingPorts::default(),
            reviewed: Instant::now(),
            lines: 0,
            refusal_lines: RefusalLines::new(Instant::now()),
            counters: Counters::new(&block.scope("broker")),
            uncounted,
            _block: block,
        }
    }

    /// For the operator: the interface, the mode, the path.
    pub fn describe(&self) -> String {
        let mut words = format!("{}; at {}", self.device.describe(), self.config.path.display());
        if let Some(why) = &self.uncounted {
            words += &format!("; `wirepath stats` does not show its counters ({why})");
        }
        if self.forwarder.is_some() {
            words += "; frames are passed on, so programs share the queues";
        } else if self.queues > 1 {
            let interface = self.config.port.interface();
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
        let closer = &self.closer;
        self.clients.iter_mut().for_each(|client| client.is_held &= !closer.has_room(client.peer.uid));
        let ids: Vec<ClientId> = self.clients.iter().map(|client| client.id).collect();
        // poll(2) skips a negative number.
        let listener = if Instant::now() < self.accepts_from { -1 } else { self.listener.socket.as_raw_fd() };
        let fixed = [listener, self.icmp_errors.as_raw_fd()];
        let of_clients = self.clients.iter().flat_map(Client::descriptors);
        let fds: Vec<RawFd> = fixed.into_iter().chain(of_clients).chain(self.device.descriptors()).collect();
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
        self.release_ended();
        self.lend_to_next(report);
        self.end_idle_clients(report);
        // Their descriptors keep the memory of processes that have ended.
        self.clients.forget_given_back();
        self.pass_errors_on();
        self.clients.iter_mut().for_each(Client::tell_losses);
        self.let_ports_leave();
        if fixed[0].is_readable {
            self.accept(report);
        }
        if self.reviewed.elapsed() >= REVIEW_INTERVAL {
            self.review(report);
        }
        self.count();
        Ok(())
    }

    fn count(&self) {
        let Self { counters, clients, device, .. } = self;
        let lent = || clients.iter().filter(|client| client.lent.is_some());
        counters.clients.set(clients.iter().count() as u64);
        counters.queues_lent.set(lent().count() as u64);
        counters.packet_buffers.set(lent().map(|client| client.memory).sum());
        counters.queues_ending.set(device.ending() as u64);
        counters.ring_errors.set(device.ring_errors());
    }

    /// How long the loop waits for requests: not at all while a request has not been tried, or
    /// rules are to be removed.
    fn wait_at_most(&self) -> Duration {
        if !self.ended.is_empty() || self.leaving.has_left() {
            return Duration::ZERO;
        }
        match self.clients.iter().filter_map(|client| client.waits).map(|waiting| waiting.tries).min() {
            Some(0) => Duration::ZERO,
            Some(_) => LEND_INTERVAL,
            None if self.clients.iter().any(|client| client.is_held) => LEND_INTERVAL,
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

    /// Accepts connections of users that are served, and refuses others with a sentence.
    fn accept(&mut self, report: &mut dyn FnMut(&str)) {
        for accepted in 0..ACCEPTED_A_TURN {
            // One that gets a part of them would be refused later, or be lost when its process
            // ends.
            if let Err(error) = self.spare_descriptors() {
                self.accepts_from = Instant::now() + TURN_INTERVAL;
                // Behind the first there may be none that waits; otherwise the next turn says it.
                if accepted == 0 {
                    let sentence = "connections wait for descriptors: raise the broker's limit of open files";
                    self.say(&format!("{sentence} ({error})"), report);
                }
                return;
            }
            let socket = match sys::accept(&self.listener.socket) {
                Ok(Some(socket)) => socket,
                Ok(None) => return,
                // The connection waits, and the listener stays readable.
                Err(error) => {
                    self.accepts_from = Instant::now() + TURN_INTERVAL;
                    return self.say(&format!("connections wait ({error}): see the kernel's log"), report);
                }
            };
            let Ok(peer) = sys::peer(&socket) else {
                self.closer.end(STRANGERS, socket);
                continue;
            };
            let (name, uid) = (format!("process {} of user {}", peer.pid, peer.uid), peer.uid);
            let program = program_of(&peer);
            let admitted = self.rights.admit(&peer, program.as_deref());
            match admitted.and_then(|rights| self.clients.check_room(uid).map(|()| rights)) {
                Ok(rights) => {
                    let goes = self.clients.add(socket, peer, program, rights, Instant::now());
                    goes.into_iter().for_each(|id| self.end_client(id, report));
                }
                Err(refusal) => {
                    self.counters.refuse(&refusal);
                    self.say_refused(uid, OF_A_STRANGER, &name, &refusal, report);
                    let Refusal { errno, sentence } = refusal;
                    // The client may have gone already.
                    let _ = sys::send(&socket, &Reply::Refused { errno, sentence }.encode(), &[]);
                    self.closer.end(STRANGERS, socket);
                }
            }
        }
    }

    /// Whether there are descriptors for another client and for all that it gets, beside those that
    /// clients without a queue may still get: a try to have as many.
    fn spare_descriptors(&self) -> io::Result<()> {
        let promised = self.clients.iter().filter(|client| client.lent.is_none()).count();
        let tries = (0..DESCRIPTORS_OF_A_CLIENT * (1 + promised)).map(|_| self.listener.socket.try_clone());
        tries.collect::<io::Result<Vec<_>>>().map(drop)
    }

    /// Gives everything that a client had to the kernel: its frames at once, its rules by turns.
    fn end_client(&mut self, id: ClientId, report: &mut dyn FnMut(&str)) {
        let Some(mut client) = self.clients.remove(id) else { return };
        match (&self.forwarder, client.queue) {
            (Some(forwarder), Some(queue)) => forwarder.remove(queue.into()),
            // A child of the process may still hold the socket.
            (None, Some(queue)) => self.device.end(queue),
            (_, None) => (),
        }
        let lost = self.flows.remove_all(|held| held.client == id);
        let ports = lost.iter().filter(|held| is_port(&held.flow)).map(|held| held.flow.destination.port()).collect();
        self.claims.end(id, &ports, Instant::now());
        if let Some(queue) = client.queue {
            self.ended.add(queue, lost);
        }
        if client.lent.is_some() {
            self.leftovers.remove_later(client.peer.pid, client.peer.uid);
            self.say(&format!("{} has ended, and its queue is free", client.name()), report);
        }
        let sockets = [client.icmp_errors.map(OwnedFd::from), client.lent.as_mut().and_then(Lent::take_socket)];
        let sockets = sockets.into_iter().flatten().chain([client.socket]);
        sockets.for_each(|socket| self.closer.end(client.peer.uid, socket));
    }
}

impl Counters {
    fn new(scope: &Scope) -> Self {
        Self {
            clients: scope.gauge("clients", Unit::Number),
            queues_lent: scope.gauge("queues_lent", Unit::Number),
            queues_ending: scope.gauge("queues_ending", Unit::Number),
            packet_buffers: scope.gauge("packet_buffers", Unit::Bytes),
            ring_errors: scope.gauge("ring_errors", Unit::Events),
            requests: scope.counter("requests", Unit::Messages),
            refused: scope.counter("refused", Unit::Messages),
            refused_by_rights: scope.counter("refused_by_rights", Unit::Messages),
            refused_as_taken: scope.counter("refused_as_taken", Unit::Messages),
            flows_taken_back: scope.counter("flows_taken_back", Unit::Number),
            errors_passed_on: scope.counter("icmp_errors", Unit::Messages),
        }
    }

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

fn system(what: &str, error: &io::Error) -> Refusal {
    let errno = error.raw_os_error().unwrap_or(libc::EIO);
    let more = match errno {
        libc::EMFILE | libc::ENFILE => "raise its limit of open files",
        _ => "see its limits and its log",
    };
    Refusal::new(errno, format!("the broker cannot have {what} ({error}): {more}"))
}
