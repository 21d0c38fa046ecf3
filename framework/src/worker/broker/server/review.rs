//! What clients lose while they run: by new rules, and to another user who has bound their port in
//! the kernel.

use std::time::{Duration, Instant};

use super::super::error::Refusal;
use super::super::flows::Held;
use super::super::owners;
use super::super::rights::Rights;
use super::Broker;
use crate::wire::Protocol;

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
        for (held, reason) in lost.into_iter().zip(reasons) {
            self.take_back(&held, &reason, report);
        }
        self.say("the new rules are in force", report);
    }

    /// Takes back flows that are another user's in the kernel by now: a client may close the socket
    /// for which it got its flow.
    pub(super) fn review(&mut self, report: &mut dyn FnMut(&str)) {
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
                self.take_back(&held, &Refusal::new(libc::EADDRINUSE, "another user has bound that port"), report);
            }
        }
    }

    /// The kernel gets a flow's frames from now on, and its client is told.
    fn take_back(&mut self, held: &Held, reason: &Refusal, report: &mut dyn FnMut(&str)) {
        self.unsteer(held);
        if let Some(client) = self.clients.get(held.client) {
            client.lose(held.id, reason.errno);
        }
        self.counters.flows_taken_back.inc();
        self.say(&format!("user {} loses `{}`: {}", held.uid, held.flow.rule(), reason.sentence), report);
    }
}
