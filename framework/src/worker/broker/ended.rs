//! Flows that their clients have lost and whose rules are still in place. A client may have 16,384
//! flows, and a NIC may take a millisecond for a rule: so many rules at once would keep all other
//! clients waiting. Some are removed in each turn of the broker's loop, of one user after another.
//! Meanwhile no client gets frames by them, and they count for the user whose they were.

use std::collections::{BTreeMap, HashMap, VecDeque};

use super::flows::{Held, ROOT, is_port, take_one};
use super::leaving::LeavingCounts;

/// The most flows whose rules are removed in a turn.
pub(super) const REMOVED_A_TURN: usize = 64;

/// All such flows.
#[derive(Default)]
pub(super) struct EndedFlows {
    /// By user; the ports of servers come first.
    flows: BTreeMap<u32, VecDeque<EndedFlow>>,
    /// How many of them each queue has.
    counts: HashMap<u16, usize>,
    /// The user whose turn was last.
    last_user: u32,
}

/// A flow, and the queue that its client had.
pub(super) struct EndedFlow {
    pub(super) held: Held,
    queue: u16,
}

impl EndedFlows {
    /// Adds flows of a client that has or had this queue.
    pub(super) fn add(&mut self, queue: u16, flows: Vec<Held>) {
        for held in flows {
            let of_user = self.flows.entry(held.uid).or_default();
            *self.counts.entry(queue).or_default() += 1;
            // The next process of a server may wait for its ports, and needs no old connection.
            match is_port(&held.flow) {
                true => of_user.push_front(EndedFlow { held, queue }),
                false => of_user.push_back(EndedFlow { held, queue }),
            }
        }
    }

    /// Removes the flow whose turn is next.
    pub(super) fn take_next(&mut self) -> Option<Held> {
        let after = self.flows.range(self.last_user.saturating_add(1)..).next();
        let user = *after.or_else(|| self.flows.iter().next())?.0;
        self.last_user = user;
        self.take_of(user)
    }

    /// Removes a flow because user `uid` wants a rule: one of his, or of the user who has most.
    pub(super) fn take_for(&mut self, uid: u32) -> Option<Held> {
        let with_most = || self.flows.iter().max_by_key(|(_, flows)| flows.len()).map(|(uid, _)| *uid);
        let user = if self.flows.contains_key(&uid) { uid } else { with_most()? };
        self.take_of(user)
    }

    fn take_of(&mut self, uid: u32) -> Option<Held> {
        let flows = self.flows.get_mut(&uid)?;
        let EndedFlow { held, queue } = flows.pop_front()?;
        if flows.is_empty() {
            self.flows.remove(&uid);
        }
        take_one(&mut self.counts, queue);
        Some(held)
    }

    /// Whether a queue has rules of a client that has lost them: another client of the queue would
    /// receive by them.
    pub(super) fn has_queue(&self, queue: u16) -> bool {
        self.counts.contains_key(&queue)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.flows.is_empty()
    }

    pub(super) fn counts(&self, uid: u32) -> LeavingCounts {
        let of_user = self.flows.get(&uid).map_or(0, VecDeque::len);
        let of_users = self.flows.iter().filter(|(uid, _)| **uid != ROOT).map(|(_, flows)| flows.len()).sum();
        LeavingCounts { of_user, of_users }
    }
}

#[cfg(test)]
mod tests {
    use core::net::{Ipv4Addr, SocketAddrV4};

    use super::*;
    use crate::device::broker::message::Flow;
    use crate::wire::Protocol;
    use crate::worker::broker::flows::{ClientId, FlowTable};

    const OWN: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

    /// Connections of a user's client, and the port of a server as the last.
    fn flows(uid: u32, count: u16) -> Vec<Held> {
        let mut table = FlowTable::default();
        for port in 1..=count {
            let (destination, source_port) = (SocketAddrV4::new(OWN, port), (port < count).then_some(443));
            let flow = Flow {
                protocol: Protocol::TCP,
                destination,
                source: source_port.map(|_| OWN),
                source_port,
                vlan: None,
            };
            table.add(ClientId(uid.into()), uid, flow, vec![]);
        }
        table.remove_all(|_| true)
    }

    #[test]
    fn user_with_many_ended_flows_keeps_no_other_waiting_and_ports_are_first() {
        let mut ended = EndedFlows::default();
        ended.add(0, flows(1000, 5_000));
        ended.add(1, flows(7, 2));
        let mut next = || ended.take_next().map(|held| (held.uid, held.flow.destination.port()));
        assert_eq!([(); 4].map(|()| next()), [(7, 2), (1000, 5_000), (7, 1), (1000, 1)].map(Some));
        assert!(ended.has_queue(0) && !ended.has_queue(1));
        assert_eq!(core::iter::from_fn(|| ended.take_next()).count(), 4_998);
        assert!(ended.is_empty() && !ended.has_queue(0));
    }

    #[test]
    fn ended_flows_count_for_their_user_and_go_first_where_rules_are_wanted() {
        let mut ended = EndedFlows::default();
        [(0, 1000, 9), (1, 7, 2), (2, ROOT, 20)]
            .into_iter()
            .for_each(|(queue, uid, count)| ended.add(queue, flows(uid, count)));
        let counts = |ended: &EndedFlows, uid| (ended.counts(uid).of_user, ended.counts(uid).of_users);
        assert_eq!([1000, 7, 8].map(|uid| counts(&ended, uid)), [(9, 11), (2, 11), (0, 11)]);
        assert_eq!([7, 7, 7].map(|uid| ended.take_for(uid).map(|held| held.uid)), [Some(7), Some(7), Some(ROOT)]);
        assert_eq!(counts(&ended, 7), (0, 9));
    }
}
