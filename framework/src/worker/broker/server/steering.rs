//! The rules of flows: whether a client may have one, its installation, and its end. The port of a
//! server that replaces its processes leaves later.

use core::net::Ipv4Addr;
use std::time::{Duration, Instant};

use super::requests::Answer;
use super::{Broker, system};
use crate::device::broker::message::{Flow, Reply};
use crate::device::steering::{RuleId, SteerError};
use crate::wire::Protocol;
use crate::worker::broker::clients::Client;
use crate::worker::broker::ended::REMOVED_A_TURN;
use crate::worker::broker::error::Refusal;
use crate::worker::broker::flows::{ClientId, Held, is_port};
use crate::worker::broker::forward::ClientIdx;
use crate::worker::broker::leaving::LeavingPort;
use crate::worker::broker::owners::{self, User};

impl Broker {
    pub(super) fn steer(&mut self, id: ClientId, flow: Flow) -> Result<Answer, Refusal> {
        let queue = self.clients.lent(id)?.0;
        self.mirror.turn(Duration::ZERO);
        let addresses = self.addresses();
        let Some(client) = self.clients.get(id) else { return Err(Refusal::new(libc::ENOTCONN, "no such client")) };
        let (uid, process) = (client.peer.uid, client.peer.pid);
        client.rights.check(&flow, &addresses)?;
        if let Some(flow) = self.flows.use_again(id, &flow) {
            return Ok(Reply::Steered { id: flow }.into());
        }
        self.make_room(uid)?;
        // A process of another PID namespace has the number 0 here, and may be any.
        let clients = &self.clients;
        let is_of_process = |client: &Client| client.peer.pid == process && client.peer.uid == uid;
        let is_sibling =
            |other| process != 0 && clients.iter().any(|client| client.id == other && is_of_process(client));
        self.flows.check(id, uid, &flow, is_sibling)?;
        let devices = self.devices();
        let sockets = owners::sockets_of(&flow, &devices);
        let sockets = sockets.map_err(|error| system("the kernel's list of sockets", &error))?;
        let is_bound = owners::is_bound(&flow, &devices).map_err(|error| system("a look at the port", &error))?;
        let user = User { uid, claims: &self.claims };
        owners::check(&flow, user, &self.flows.users_of_groups(&flow), &sockets, is_bound)?;
        let rules = self.install(&flow, queue)?;
        Ok(Reply::Steered { id: self.flows.add(id, uid, flow, rules) }.into())
    }

    /// Whether there are rules for another flow of user `uid`. Flows that were lost make room for
    /// it, and ports that leave.
    fn make_room(&mut self, uid: u32) -> Result<(), Refusal> {
        loop {
            let counts = self.leaving.counts(uid).plus(self.ended.counts(uid));
            let Err(refusal) = self.flows.check_budget(uid, counts) else { return Ok(()) };
            if let Some(held) = self.ended.take_for(uid) {
                self.remove_rules(&held.rules);
                continue;
            }
            let Some(port) = self.leaving.take_for(uid) else { return Err(refusal) };
            self.remove_rules(&port.rules);
        }
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
                    self.remove_rules(&rules);
                    self.stop_passing_on(queue, vec![*flow]);
                    let error: SteerError = error;
                    return Err(Refusal::new(libc::ENOBUFS, error.to_string()));
                }
            }
        }
        Ok(rules)
    }

    /// Takes a flow that a client has given up from it.
    pub(super) fn unsteer(&mut self, held: Held) {
        let queue = self.clients.get(held.client).and_then(|client| client.queue).unwrap_or(0);
        self.stop_passing_on(queue, vec![held.flow]);
        self.release(held);
    }

    /// No frames of these flows are passed on to their client any more.
    pub(super) fn stop_passing_on(&self, queue: u16, flows: Vec<Flow>) {
        if let Some(forwarder) = &self.forwarder {
            forwarder.remove_flows(ClientIdx::from(queue), flows);
        }
    }

    /// Removes the rules of flows whose clients have lost them, some in a turn.
    pub(super) fn release_ended(&mut self) {
        for _ in 0..REMOVED_A_TURN {
            let Some(held) = self.ended.take_next() else { return };
            self.release(held);
        }
    }

    /// Removes the rules of a flow that no client has any more; those of a server's port later.
    fn release(&mut self, held: Held) {
        if self.forwarder.is_none() || !is_port(&held.flow) {
            return self.remove_rules(&held.rules);
        }
        let port = LeavingPort::new(held.flow, held.uid, held.rules, Instant::now());
        if let Some(gone) = self.leaving.add(port) {
            self.remove_rules(&gone.rules);
        }
    }

    /// The kernel receives the frames of these rules from now on.
    fn remove_rules(&mut self, rules: &[RuleId]) {
        for &rule in rules {
            // The rule is in place, or the interface is gone.
            let _ = self.device.unsteer(rule);
        }
    }

    /// Gives ports that no client has any more to the kernel, some in a turn.
    pub(super) fn let_ports_leave(&mut self) {
        let now = Instant::now();
        if self.leaving.has_due(now) {
            // Once for all of them, because a client may give up a thousand ports at once, and the
            // kernel's list is long on a busy machine.
            let devices = self.devices();
            let sockets = owners::sockets(Protocol::TCP, &devices).unwrap_or_default();
            self.leaving.look(&sockets, &self.claims, &devices, now);
        }
        for port in self.leaving.take_left() {
            self.remove_rules(&port.rules);
        }
    }

    /// The current addresses of the interface.
    pub(super) fn addresses(&self) -> Vec<Ipv4Addr> {
        let Some(link) = self.mirror.link(self.device.interface()) else { return Vec::new() };
        self.mirror.addresses(link).map(|prefix| prefix.address()).collect()
    }

    /// The devices whose sockets may receive the interface's frames: itself, and the VRF, bond or
    /// bridge that it is a part of.
    pub(super) fn devices(&self) -> Vec<u32> {
        let controller = self.mirror.link(self.device.interface()).and_then(|link| link.controller);
        [self.device.interface_idx()].into_iter().chain(controller).collect()
    }
}
