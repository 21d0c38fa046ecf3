//! What clients lose while they run: by new rules, to another user who has bound their port in the
//! kernel, and where their own user has it no more.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use super::Broker;
use crate::device::broker::message::Flow;
use crate::wire::Protocol;
use crate::worker::broker::claims::Claim;
use crate::worker::broker::error::Refusal;
use crate::worker::broker::flows::{ClientId, Held};
use crate::worker::broker::owners::{self, KernelSocket, User};
use crate::worker::broker::rights::Rights;

impl Broker {
    /// Applies new rules: clients keep what these allow, and lose the rest. The limit of queues of
    /// a rule applies to later requests.
    pub(super) fn reassess(&mut self, rights: Rights, report: &mut dyn FnMut(&str)) {
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
        let mut reasons = Vec::new();
        let clients = &mut self.clients;
        let lost = self.flows.remove_all(|held| {
            let Some(client) = clients.iter().find(|client| client.id == held.client) else { return true };
            client.rights.check(&held.flow, &addresses).is_err()
        });
        for held in &lost {
            let refusal = clients.get(held.client).and_then(|client| client.rights.check(&held.flow, &addresses).err());
            reasons.push(refusal.unwrap_or_else(|| Refusal::new(libc::EACCES, "")));
        }
        self.take_back(lost.into_iter().zip(reasons).collect(), report);
        self.say("the new rules are in force", report);
    }

    /// Takes back flows that are another user's in the kernel by now, and those for which their own
    /// user has no socket in two reviews: a client may close the socket for which it got its flow.
    /// One of ours has none for a moment while it closes it, or binds it anew.
    pub(super) fn review(&mut self, report: &mut dyn FnMut(&str)) {
        (self.reviewed, self.lines) = (Instant::now(), 0);
        let devices = self.devices();
        self.claims.forget_past(self.reviewed);
        // Those of the kernel's sockets, if its whole list is known.
        let mut cookies = (!self.claims.is_empty()).then(HashSet::new);
        for protocol in [Protocol::TCP, Protocol::UDP] {
            if cookies.is_none() && !self.flows.iter().any(|held| held.flow.protocol == protocol) {
                continue;
            }
            let Ok(sockets) = owners::sockets(protocol, &devices) else {
                cookies = None;
                continue;
            };
            cookies.iter_mut().for_each(|cookies| cookies.extend(sockets.iter().map(KernelSocket::cookie)));
            let (sockets, claims) = (owners::by_port(sockets), &self.claims);
            let at_port_of = |flow: &Flow| sockets.get(&flow.destination.port()).map_or(&[][..], Vec::as_slice);
            let is_over = |held: &mut Held| {
                if held.flow.protocol != protocol {
                    return false;
                }
                let (there, user) = (at_port_of(&held.flow), User { uid: held.uid, claims });
                let had_no_socket = held.has_no_socket;
                held.has_no_socket = owners::has_no_socket(&held.flow, user, there);
                (had_no_socket && held.has_no_socket) || owners::is_lost(&held.flow, user, there)
            };
            let lost = self.flows.remove_all(is_over).into_iter().map(|held| {
                let user = User { uid: held.uid, claims };
                let reason = match owners::is_lost(&held.flow, user, at_port_of(&held.flow)) {
                    true => Refusal::new(libc::EADDRINUSE, "another user has bound that port"),
                    false => Refusal::new(libc::EACCES, "no socket of the user has that port any more"),
                };
                (held, reason)
            });
            let lost: Vec<_> = lost.collect();
            self.take_back(lost, report);
        }
        if let Some(cookies) = cookies {
            self.forget_claims(&cookies);
        }
    }

    /// Forgets what clients have shown and the kernel has no more. It may list no TCP socket that
    /// is only bound: one stays for as long as its client has a flow at the port.
    fn forget_claims(&mut self, cookies: &HashSet<u64>) {
        let port_of = |held: &Held| (held.client, held.flow.protocol, held.flow.destination.port());
        let ports: HashSet<_> = self.flows.iter().map(port_of).collect();
        self.claims.retain(|client, Claim { cookie, protocol, port }| {
            cookies.contains(&cookie) || ports.contains(&(client, protocol, port))
        });
    }

    /// The clients of these flows get no more frames by them, and are told; the kernel gets the
    /// frames as the rules are removed.
    fn take_back(&mut self, lost: Vec<(Held, Refusal)>, report: &mut dyn FnMut(&str)) {
        let mut flows = HashMap::<ClientId, Vec<Flow>>::new();
        lost.iter().for_each(|(held, _)| flows.entry(held.client).or_default().push(held.flow));
        for (id, flows) in flows {
            if let Some(queue) = self.clients.get(id).and_then(|client| client.queue) {
                self.stop_passing_on(queue, flows);
            }
        }
        for (held, reason) in lost {
            self.counters.flows_taken_back.inc();
            self.say(&format!("user {} loses `{}`: {}", held.uid, held.flow.rule(), reason.sentence), report);
            let Some(client) = self.clients.get(held.client) else { continue };
            client.lose(held.id, reason.errno);
            if let Some(queue) = client.queue {
                self.ended.add(queue, vec![held]);
            }
        }
    }
}
