//! The flows of all clients. A flow belongs to one client, or to several of one user that share it;
//! one to a group, to clients of any users.

use core::hash::Hash;
use core::net::SocketAddrV4;
use std::collections::{BTreeSet, HashMap};

use super::error::Refusal;
use super::leaving::LeavingCounts;
use crate::device::broker::message::Flow;
use crate::device::steering::RuleId;
use crate::wire::Protocol;
use crate::wire::icmpv4::QuotedFlow;

/// The most flows of a client: listeners, datagram sockets, and as many outgoing connections as the
/// library of `wirepath run` has room for, those closed in the last minute among them.
pub(super) const FLOWS_MAX: usize = 16_384;
pub(super) const ROOT: u32 = 0;

/// The number of a client of the broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ClientId(pub(super) u64);

/// A flow, and the client that has it.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) client: ClientId,
    pub(super) uid: u32,
    pub(super) flow: Flow,
    /// One rule for each queue, unless the queue is lent to this client alone.
    pub(super) rules: Vec<RuleId>,
    /// The number by which the client names the flow.
    pub(super) id: u32,
    /// How often the client has asked for it, and not given it up.
    uses: u32,
    /// The last review found no socket of the user that may have it.
    pub(super) has_no_socket: bool,
}

/// The rules of the interface, of which each flow takes some.
#[derive(Clone, Copy, Debug)]
pub(super) struct RuleBudget {
    pub(super) rules_max: usize,
    pub(super) of_a_flow: usize,
}

impl Default for RuleBudget {
    /// Without a bound.
    fn default() -> Self {
        Self { rules_max: usize::MAX, of_a_flow: 1 }
    }
}

impl RuleBudget {
    /// Half of all for one user, so that there are some for others; root has no bound.
    fn of_a_user(&self) -> usize {
        self.rules_max / 2
    }

    /// All but a few for all users, which are root's.
    fn of_users(&self) -> usize {
        self.rules_max - self.rules_max / 16
    }
}

/// Flows with different ones have no frame in common.
type Destination = (Protocol, SocketAddrV4);

/// The flows of all clients.
#[derive(Debug, Default)]
pub(super) struct FlowTable {
    /// By their destinations: there may be ten thousands, and few of each.
    held: HashMap<Destination, Vec<Held>>,
    /// The destination of each flow, by its number.
    destinations: HashMap<u32, Destination>,
    /// How many flows each client has, and each user.
    counts: HashMap<ClientId, usize>,
    counts_of_users: HashMap<u32, usize>,
    budget: RuleBudget,
    next_id: u32,
    sharing: Sharing,
}

/// Which flows several clients may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sharing {
    /// None: a frame goes to one queue.
    #[default]
    Nothing,
    /// The TCP port of a server between the engines of one process: the NIC steers none, and
    /// spreads its connections over the queues of all, by a hash of both ends. Two processes do not
    /// share it, because one that stops listening would reset who calls by its queue.
    Listeners,
    /// The same flow to a group: the NIC copies its frames to the queues of all who have it. Of two
    /// different ones that overlap it would take one alone.
    Groups,
    /// All flows to groups, and those to a port between clients of one user: the broker passes
    /// frames on and tracks connections.
    Ports,
}

impl FlowTable {
    /// No flows yet.
    pub(super) fn new(sharing: Sharing, budget: RuleBudget) -> Self {
        Self { sharing, budget, ..Self::default() }
    }

    /// A client asks for a flow that it has already: returns its number, and the client has to give
    /// it up once more.
    pub(super) fn use_again(&mut self, client: ClientId, flow: &Flow) -> Option<u32> {
        let held = self.held.get_mut(&destination_of(flow))?;
        let held = held.iter_mut().find(|held| held.client == client && held.flow == *flow)?;
        held.uses = held.uses.checked_add(1)?;
        Some(held.id)
    }

    /// Whether a client of user `uid` may have another flow: it has fewer than it may have, and no
    /// other client receives the same frames, unless both may share them. `is_sibling` says whether
    /// another client is an engine of the same process.
    pub(super) fn check(
        &self,
        client: ClientId,
        uid: u32,
        flow: &Flow,
        is_sibling: impl Fn(ClientId) -> bool,
    ) -> Result<(), Refusal> {
        if self.counts.get(&client).is_some_and(|count| *count >= FLOWS_MAX) {
            let sentence =
                format!("a client has {FLOWS_MAX} flows at most: close some, or wait a minute for those closed");
            return Err(Refusal::new(libc::ENOBUFS, sentence));
        }
        let is_taken = |held: &&Held| {
            let is_group = flow.destination.ip().is_multicast();
            let may_share = match self.sharing {
                Sharing::Ports if is_group => true,
                Sharing::Ports => held.uid == uid && !(is_exact(flow) && held.flow == *flow),
                Sharing::Listeners => is_port(flow) && held.flow == *flow && is_sibling(held.client),
                Sharing::Groups => is_group && held.flow == *flow,
                Sharing::Nothing => false,
            };
            held.client != client && overlaps(&held.flow, flow) && !may_share
        };
        match self.held.get(&destination_of(flow)).into_iter().flatten().find(is_taken) {
            Some(other) => {
                let sentence =
                    format!("another client, of user {}, has `{}`: take another port", other.uid, other.flow.rule());
                Err(Refusal::new(libc::EADDRINUSE, sentence))
            }
            None => Ok(()),
        }
    }

    /// The users who have flows to groups at the port of this one, and share it: each client of a
    /// group gets its frames.
    pub(super) fn users_of_groups(&self, flow: &Flow) -> BTreeSet<u32> {
        if !matches!(self.sharing, Sharing::Groups | Sharing::Ports) || !flow.destination.ip().is_multicast() {
            return BTreeSet::new();
        }
        let is_other = |held: &&Held| {
            let destination = held.flow.destination;
            destination.ip().is_multicast() && destination.port() == flow.destination.port()
        };
        self.iter().filter(is_other).map(|held| held.uid).collect()
    }

    /// Whether there are rules left for another flow of user `uid`, beside those of ports that
    /// leave.
    pub(super) fn check_budget(&self, uid: u32, leaving: LeavingCounts) -> Result<(), Refusal> {
        let RuleBudget { rules_max, of_a_flow } = self.budget;
        let rules = |flows: usize| (flows + 1).saturating_mul(of_a_flow);
        let of_user = self.counts_of_users.get(&uid).copied().unwrap_or(0) + leaving.of_user;
        let of_root = self.counts_of_users.get(&ROOT).copied().unwrap_or(0);
        let of_users = self.destinations.len() - of_root + leaving.of_users;
        if uid == ROOT || (rules(of_user) <= self.budget.of_a_user() && rules(of_users) <= self.budget.of_users()) {
            return Ok(());
        }
        let sentence = format!(
            "the interface has {rules_max} rules for all programs, {of_a_flow} for each flow, and those of user {uid} have \
             {of_user} flows: close some"
        );
        Err(Refusal::new(libc::ENOBUFS, sentence))
    }

    /// Adds a flow whose rule is in place; returns its number.
    pub(super) fn add(&mut self, client: ClientId, uid: u32, flow: Flow, rules: Vec<RuleId>) -> u32 {
        // A number is used again only after 2^32 flows, when its first flow is gone.
        self.next_id = self.next_id.wrapping_add(1);
        let id = self.next_id;
        let destination = destination_of(&flow);
        self.destinations.insert(id, destination);
        *self.counts.entry(client).or_default() += 1;
        *self.counts_of_users.entry(uid).or_default() += 1;
        self.held.entry(destination).or_default().push(Held {
            client,
            uid,
            flow,
            rules,
            id,
            uses: 1,
            has_no_socket: false,
        });
        id
    }

    /// A client gives a flow up; `None` if it has no flow with this number. Returns the flow once
    /// the client has given it up as often as it has asked for it.
    pub(super) fn remove(&mut self, client: ClientId, id: u32) -> Option<Option<Held>> {
        let destination = *self.destinations.get(&id)?;
        let held = self.held.get_mut(&destination)?;
        let place = held.iter().position(|held| held.client == client && held.id == id)?;
        held[place].uses -= 1;
        if held[place].uses > 0 {
            return Some(None);
        }
        let removed = held.swap_remove(place);
        if held.is_empty() {
            self.held.remove(&destination);
        }
        self.forget(&removed);
        Some(Some(removed))
    }

    fn forget(&mut self, removed: &Held) {
        self.destinations.remove(&removed.id);
        take_one(&mut self.counts, removed.client);
        take_one(&mut self.counts_of_users, removed.uid);
    }

    /// The client's flow with this number.
    pub(super) fn get(&self, client: ClientId, id: u32) -> Option<&Held> {
        let held = self.held.get(self.destinations.get(&id)?)?;
        held.iter().find(|held| held.client == client && held.id == id)
    }

    /// Removes the flows for which `is_over` holds.
    pub(super) fn remove_all(&mut self, mut is_over: impl FnMut(&mut Held) -> bool) -> Vec<Held> {
        let mut removed = Vec::new();
        for held in self.held.values_mut() {
            removed.extend(held.extract_if(.., |held| is_over(held)));
        }
        self.held.retain(|_, held| !held.is_empty());
        removed.sort_by_key(|held| held.id);
        removed.iter().for_each(|held| self.forget(held));
        removed
    }

    /// All flows.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Held> {
        self.held.values().flatten()
    }

    /// The clients that get an ICMP error: those whose flow receives the answers to the quoted
    /// packet. Several clients may share that flow.
    pub(super) fn clients_of(&self, quoted: &QuotedFlow) -> Vec<ClientId> {
        let sender = SocketAddrV4::new(quoted.source, quoted.source_port);
        let answered = self.held.get(&(quoted.protocol, sender)).into_iter().flatten();
        answered.filter(|held| is_answered_by(&held.flow, quoted)).map(|held| held.client).collect()
    }
}

/// Takes one from a count, which is no longer kept at 0.
pub(super) fn take_one<K: Eq + Hash>(counts: &mut HashMap<K, usize>, key: K) {
    if let Some(count) = counts.get_mut(&key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&key);
        }
    }
}

fn destination_of(flow: &Flow) -> Destination {
    (flow.protocol, flow.destination)
}

/// Whether one frame can belong to both flows.
fn overlaps(a: &Flow, b: &Flow) -> bool {
    fn meets<T: PartialEq>(a: Option<T>, b: Option<T>) -> bool {
        a.is_none() || b.is_none() || a == b
    }
    destination_of(a) == destination_of(b)
        && meets(a.source, b.source)
        && meets(a.source_port, b.source_port)
        && meets(a.vlan, b.vlan)
}

/// Whether it is the port of a server, for all its peers.
pub(super) fn is_port(flow: &Flow) -> bool {
    flow.protocol == Protocol::TCP && flow.source.is_none()
}

/// Whether the flow states both ends.
fn is_exact(flow: &Flow) -> bool {
    flow.source.is_some() && flow.source_port.is_some()
}

/// Whether a flow to the sender of the quoted packet has the answers of its receiver.
fn is_answered_by(flow: &Flow, quoted: &QuotedFlow) -> bool {
    flow.source.is_none_or(|source| source == quoted.destination)
        && flow.source_port.is_none_or(|port| port == quoted.destination_port)
}

#[cfg(test)]
mod tests {
    use core::net::Ipv4Addr;

    use super::*;

    const OWN: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
    const PEER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 9);
    const FIRST: ClientId = ClientId(1);
    const SECOND: ClientId = ClientId(2);

    fn flow(port: u16) -> Flow {
        let destination = SocketAddrV4::new(OWN, port);
        Flow { protocol: Protocol::TCP, destination, source: None, source_port: None, vlan: None }
    }

    fn from(flow: Flow, address: Ipv4Addr, port: u16) -> Flow {
        Flow { source: Some(address), source_port: Some(port), ..flow }
    }

    /// No other client is an engine of the same process.
    fn alone(_: ClientId) -> bool {
        false
    }

    fn rule() -> RuleId {
        crate::device::broker::rule_id(7)
    }

    #[test]
    fn flow_of_another_client_is_refused_and_an_own_one_is_not() {
        let mut table = FlowTable::default();
        table.add(FIRST, 1000, flow(5000), vec![rule()]);
        for taken in [flow(5000), from(flow(5000), PEER, 443)] {
            let refusal = table.check(SECOND, 1000, &taken, alone).unwrap_err();
            assert_eq!(refusal.errno, libc::EADDRINUSE);
            assert!(refusal.sentence.contains("of user 1000, has `TCP to 192.0.2.1:5000`"), "{refusal:?}");
            table.check(FIRST, 1000, &taken, alone).unwrap();
        }
        for free in [flow(5001), Flow { protocol: Protocol::UDP, ..flow(5000) }] {
            table.check(SECOND, 1000, &free, alone).unwrap();
        }
    }

    #[test]
    fn connections_to_different_peers_are_different_flows() {
        let mut table = FlowTable::default();
        table.add(FIRST, 1000, from(flow(5000), PEER, 443), vec![rule()]);
        table.check(SECOND, 1000, &from(flow(5000), PEER, 444), alone).unwrap();
        table.check(SECOND, 1000, &from(flow(5000), OWN, 443), alone).unwrap();
        table.check(SECOND, 1000, &from(flow(5000), PEER, 443), alone).unwrap_err();
        table.check(SECOND, 1000, &flow(5000), alone).unwrap_err();
    }

    #[test]
    fn client_removes_its_own_flows_alone_and_loses_all_at_its_end() {
        let mut table = FlowTable::default();
        let id = table.add(FIRST, 1000, flow(5000), vec![rule()]);
        table.add(SECOND, 1000, flow(5001), vec![rule()]);
        assert!(table.remove(SECOND, id).is_none() && table.remove(FIRST, id + 7).is_none());
        assert!(table.remove(FIRST, id).unwrap().is_some() && table.remove(FIRST, id).is_none());
        table.check(SECOND, 1000, &flow(5000), alone).unwrap();
        assert_eq!(table.remove_all(|held| held.client == SECOND).len(), 1);
        assert_eq!(table.iter().count(), 0);
    }

    #[test]
    fn clients_flows_are_bounded() {
        let mut table = FlowTable::default();
        for port in 0..FLOWS_MAX as u16 {
            table.check(FIRST, 1000, &flow(1024 + port), alone).unwrap();
            table.add(FIRST, 1000, flow(1024 + port), vec![rule()]);
        }
        let refusal = table.check(FIRST, 1000, &flow(60_000), alone).unwrap_err();
        assert!(refusal.errno == libc::ENOBUFS && refusal.sentence.contains("16384 flows at most"), "{refusal:?}");
        table.check(SECOND, 1000, &flow(60_000), alone).unwrap();
    }

    #[test]
    fn flow_that_a_client_asks_for_again_takes_no_rule() {
        let mut table = FlowTable::default();
        let id = table.add(FIRST, 1000, flow(5000), vec![rule()]);
        assert_eq!((table.use_again(FIRST, &flow(5000)), table.use_again(SECOND, &flow(5000))), (Some(id), None));
        assert_eq!(table.use_again(FIRST, &from(flow(5000), PEER, 443)), None);
        assert!(table.remove(FIRST, id).unwrap().is_none());
        assert!(table.remove(FIRST, id).unwrap().is_some() && table.remove(FIRST, id).is_none());
    }

    #[test]
    fn greedy_user_leaves_rules_to_others_and_greedy_users_to_root() {
        let mut table = FlowTable::new(Sharing::Ports, RuleBudget { rules_max: 64, of_a_flow: 2 });
        let mut take = |client, uid, from: u16| {
            let mut count = 0;
            while table.check_budget(uid, LeavingCounts::default()).is_ok() {
                table.add(ClientId(client), uid, flow(from + count), vec![rule(), rule()]);
                count += 1;
            }
            count
        };
        // Half of 64, and all but a sixteenth.
        assert_eq!([take(1, 1000, 1_000), take(2, 1000, 2_000)], [16, 0]);
        assert_eq!([take(3, 1001, 3_000), take(4, 1002, 4_000)], [14, 0]);
        let none = LeavingCounts::default();
        let refusal = table.check_budget(1003, none).unwrap_err();
        assert!(refusal.errno == libc::ENOBUFS && refusal.sentence.contains("has 64 rules"), "{refusal:?}");
        table.check_budget(ROOT, none).unwrap();
        table.remove_all(|held| held.uid == 1000);
        table.check_budget(1003, none).unwrap();
    }

    #[test]
    fn ports_that_leave_count_for_the_user_whose_they_were() {
        let mut table = FlowTable::new(Sharing::Ports, RuleBudget { rules_max: 64, of_a_flow: 2 });
        let check = |table: &FlowTable, of_user, of_users| {
            table.check_budget(1000, LeavingCounts { of_user, of_users }).map_err(|refusal| refusal.errno)
        };
        table.add(FIRST, 1000, flow(5000), vec![rule(), rule()]);
        assert_eq!([check(&table, 14, 14), check(&table, 15, 15)], [Ok(()), Err(libc::ENOBUFS)]);
        assert_eq!([check(&table, 0, 28), check(&table, 0, 29)], [Ok(()), Err(libc::ENOBUFS)]);
    }

    #[test]
    fn errors_are_for_who_sent_what_they_quote() {
        let mut table = FlowTable::default();
        table.add(FIRST, 1000, from(flow(5000), PEER, 443), vec![rule()]);
        table.add(SECOND, 1001, flow(5001), vec![rule()]);
        let quoted = |source_port, destination_port| QuotedFlow {
            source: OWN,
            destination: PEER,
            protocol: Protocol::TCP,
            source_port,
            destination_port,
            sequence: 0,
        };
        assert_eq!(table.clients_of(&quoted(5000, 443)), [FIRST]);
        assert_eq!(table.clients_of(&quoted(5000, 444)), []);
        assert_eq!(table.clients_of(&quoted(5001, 9)), [SECOND]);
        assert_eq!(table.clients_of(&QuotedFlow { source: PEER, ..quoted(5001, 9) }), []);
    }

    #[test]
    fn port_is_shared_by_clients_of_one_user_where_frames_are_passed_on() {
        let mut table = FlowTable::new(Sharing::Ports, RuleBudget::default());
        table.add(FIRST, 1000, flow(5000), vec![rule()]);
        table.add(FIRST, 1000, from(flow(6000), PEER, 443), vec![rule()]);
        table.check(SECOND, 1000, &flow(5000), alone).unwrap();
        table.check(SECOND, 1000, &from(flow(6000), PEER, 444), alone).unwrap();
        table.check(SECOND, 1000, &from(flow(6000), PEER, 443), alone).unwrap_err();
        table.check(SECOND, 1001, &flow(5000), alone).unwrap_err();
    }

    #[test]
    fn port_of_a_server_is_shared_by_engines_of_one_process_where_the_nic_spreads_connections() {
        let mut table = FlowTable::new(Sharing::Listeners, RuleBudget::default());
        let of_datagrams = Flow { protocol: Protocol::UDP, ..flow(5000) };
        for (id, flow) in [(1, flow(5000)), (1, of_datagrams), (1, from(flow(6000), PEER, 443))] {
            table.add(ClientId(id), 1000, flow, vec![rule()]);
        }
        let is_engine_of_first = |other| other == FIRST;
        table.check(SECOND, 1000, &flow(5000), is_engine_of_first).unwrap();
        table.check(SECOND, 1000, &flow(5000), alone).unwrap_err();
        table.check(SECOND, 1000, &of_datagrams, is_engine_of_first).unwrap_err();
        table.check(SECOND, 1000, &from(flow(6000), PEER, 443), is_engine_of_first).unwrap_err();
        table.check(SECOND, 1000, &flow(6000), is_engine_of_first).unwrap_err();
    }

    #[test]
    fn group_is_shared_by_clients_of_all_users_where_frames_are_passed_on_or_the_nic_copies_them() {
        let group = |last: u8, port| Flow {
            protocol: Protocol::UDP,
            destination: SocketAddrV4::new(Ipv4Addr::new(239, 1, 1, last), port),
            ..flow(0)
        };
        for sharing in [Sharing::Ports, Sharing::Groups, Sharing::Nothing] {
            let mut table = FlowTable::new(sharing, RuleBudget::default());
            table.add(FIRST, 1000, group(1, 9000), vec![rule()]);
            let is_shared = sharing != Sharing::Nothing;
            assert_eq!(table.check(SECOND, 1001, &group(1, 9000), alone).is_ok(), is_shared);
            let from_one = Flow { source: Some(PEER), ..group(1, 9000) };
            assert_eq!(table.check(SECOND, 1001, &from_one, alone).is_ok(), sharing == Sharing::Ports);
            let users = |flow: &Flow| table.users_of_groups(flow).into_iter().collect::<Vec<_>>();
            let expected = if is_shared { vec![1000] } else { vec![] };
            assert_eq!([users(&group(1, 9000)), users(&group(2, 9000))], [expected.clone(), expected]);
            assert_eq!([users(&group(1, 9001)), users(&flow(9000))], [vec![], vec![]]);
        }
    }
}
