//! Which client gets a frame, in a broker that passes frames on.
//!
//! A flow with both ends belongs to one client. Several clients may have a port without a remote
//! end, as the processes of a server share a listener. For a new connection, a hash of both ends
//! chooses among the clients that accept new ones, and its segments go on to that client
//! ([`conntrack`](super::conntrack)). A datagram to a group goes to every client that has joined
//! the group, and the source if the client named one.

use core::net::{Ipv4Addr, SocketAddrV4};
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use super::conntrack::ConnTrack;
use super::packet::{Ends, Packet};
use crate::device::broker::message::Flow;
use crate::wire::Protocol;
use crate::wire::tcp::TcpFlags;

/// A client, by its index in the broker.
pub(crate) type ClientIdx = usize;

/// How long SYNs to a port are ignored after the last client has stopped listening there. A server
/// that replaces its processes starts to listen in the new ones meanwhile, which takes seconds on a
/// busy machine, and a peer repeats its SYN.
const PAUSE: Duration = Duration::from_secs(10);
/// How long a client that has given a port up may hand connections there over: another client may
/// have handed them to it just before.
const HANDS_ON_WITHIN: Duration = Duration::from_secs(30);
/// The most ports that clients have given up so recently.
const LEFT_MAX: usize = 4_096;
/// The interval between two searches for connections to forget.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// The flows and connections of all clients.
pub(super) struct Dispatch {
    /// Flows with both ends.
    exact: HashMap<Ends, ClientIdx>,
    /// Flows to a port: from any remote end, or with a part of the remote end.
    ports: HashMap<Ends, Vec<Sharer>>,
    connections: ConnTrack,
    /// Ports that clients have given up, and when.
    left: HashMap<(ClientIdx, Ends), Instant>,
    hash: RandomState,
    swept: Instant,
}

/// A client that has a port.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Sharer {
    client: ClientIdx,
    /// The number of its flows to the port from any remote end.
    from_anyone: u32,
    /// Its other flows to the port, by their part of the remote end, and the number of equal ones.
    parts: HashMap<Part, u32>,
    /// Whether the client accepts new connections; if not, since when.
    stopped: Option<Instant>,
}

/// Address and port of a remote end, as far as a flow states them.
type Part = (Option<Ipv4Addr>, Option<u16>);

impl Sharer {
    /// Whether one of its flows receives frames from this remote end. Two look-ups, or none if a
    /// flow receives from any remote end.
    #[inline]
    fn receives_from(&self, remote: SocketAddrV4) -> bool {
        self.from_anyone > 0
            || self.parts.contains_key(&(Some(*remote.ip()), None))
            || self.parts.contains_key(&(None, Some(remote.port())))
    }

    /// The number of its flows with this remote end.
    fn count(&mut self, part: Part) -> &mut u32 {
        if part == (None, None) { &mut self.from_anyone } else { self.parts.entry(part).or_default() }
    }

    fn add(&mut self, part: Part) {
        *self.count(part) += 1;
    }

    /// Removes a flow of the client; returns whether it was the last.
    fn remove(&mut self, part: Part) -> bool {
        let count = self.count(part);
        *count = count.saturating_sub(1);
        self.parts.retain(|_, count| *count > 0);
        self.from_anyone == 0 && self.parts.is_empty()
    }
}

/// The clients that get a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Recipients {
    None,
    One(ClientIdx),
    /// Every client of the port: [`Dispatch::members`].
    All,
}

impl Dispatch {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            exact: HashMap::new(),
            ports: HashMap::new(),
            connections: ConnTrack::default(),
            left: HashMap::new(),
            hash: RandomState::new(),
            swept: now,
        }
    }

    /// Gives a flow to a client. The broker has checked that the client may have it.
    pub(super) fn add(&mut self, client: ClientIdx, flow: &Flow) {
        match exact(flow) {
            Some(ends) => _ = self.exact.insert(ends, client),
            None => {
                let sharers = self.ports.entry(port(flow)).or_default();
                let idx = sharers.iter().position(|sharer| sharer.client == client).unwrap_or_else(|| {
                    sharers.push(Sharer { client, from_anyone: 0, parts: HashMap::new(), stopped: None });
                    sharers.len() - 1
                });
                sharers[idx].stopped = None;
                sharers[idx].add(part(flow));
            }
        }
    }

    /// Takes flows from a client. Of ports that it has no more the connections as well: the next
    /// client of the port may be of another user, and this client must not get that user's frames.
    pub(super) fn remove(&mut self, client: ClientIdx, flows: &[Flow], now: Instant) {
        let left: HashSet<Ends> = flows.iter().filter_map(|flow| self.remove_one(client, flow)).collect();
        if !left.is_empty() && self.connections.count(client) > 0 {
            self.connections.orphan(client, now, |ends| left.contains(&to_port(ends)));
        }
        let room = LEFT_MAX.saturating_sub(self.left.len());
        self.left.extend(left.into_iter().take(room).map(|port| ((client, port), now)));
    }

    /// Takes a flow from a client; returns its port, if the client has that no more.
    fn remove_one(&mut self, client: ClientIdx, flow: &Flow) -> Option<Ends> {
        if let Some(ends) = exact(flow) {
            self.exact.remove(&ends);
            return None;
        }
        let port = port(flow);
        let sharers = self.ports.get_mut(&port)?;
        let idx = sharers.iter().position(|sharer| sharer.client == client)?;
        if !sharers[idx].remove(part(flow)) {
            return None;
        }
        sharers.remove(idx);
        if sharers.is_empty() {
            self.ports.remove(&port);
        }
        Some(port)
    }

    /// Sets whether new connections to the flow may go to this client.
    pub(super) fn set_listening(&mut self, client: ClientIdx, flow: &Flow, listening: bool, now: Instant) {
        let sharers = self.ports.get_mut(&port(flow)).into_iter().flatten();
        sharers
            .filter(|sharer| sharer.client == client)
            .for_each(|sharer| sharer.stopped = (!listening).then_some(now));
    }

    /// Removes a client, whose index may become another client's.
    pub(super) fn forget(&mut self, client: ClientIdx, now: Instant) {
        self.exact.retain(|_, owner| *owner != client);
        self.ports.retain(|_, sharers| {
            sharers.retain(|sharer| sharer.client != client);
            !sharers.is_empty()
        });
        self.connections.forget(client, now);
        self.left.retain(|(left_by, _), _| *left_by != client);
    }

    /// The clients that get a received frame.
    #[inline]
    pub(super) fn of(&mut self, packet: &Packet, now: Instant) -> Recipients {
        let Packet { ends, flags, .. } = packet;
        if let Some(client) = self.exact.get(ends) {
            return Recipients::One(*client);
        }
        let Some(sharers) = self.ports.get(&to_port(ends)) else { return Recipients::None };
        if ends.local.ip().is_multicast() {
            return Recipients::All;
        }
        if ends.protocol == Protocol::TCP.0
            && let Some(recipients) = self.connections.received(packet, now)
        {
            return recipients;
        }
        let pauses = |sharer: &Sharer| sharer.stopped.is_some_and(|since| now.duration_since(since) < PAUSE);
        match &sharers[..] {
            _ if *flags == TcpFlags::SYN && sharers.iter().all(pauses) => Recipients::None,
            [only] if only.receives_from(ends.remote) => Recipients::One(only.client),
            _ => self.chosen(sharers, ends).map_or(Recipients::None, Recipients::One),
        }
    }

    /// The clients of a frame's port.
    pub(super) fn members(&self, ends: &Ends) -> impl Iterator<Item = ClientIdx> + '_ {
        let (sharers, remote) = (self.ports.get(&to_port(ends)).into_iter().flatten(), ends.remote);
        sharers.filter(move |sharer| sharer.receives_from(remote)).map(|sharer| sharer.client)
    }

    /// Chooses by a hash among the clients that receive from this remote end; among those that
    /// listen, if any does.
    fn chosen(&self, sharers: &[Sharer], ends: &Ends) -> Option<ClientIdx> {
        let hearing = || sharers.iter().filter(|sharer| sharer.receives_from(ends.remote));
        let nobody_listens = hearing().all(|sharer| sharer.stopped.is_some());
        let fit = || hearing().filter(|sharer| sharer.stopped.is_none() || nobody_listens);
        let count = fit().count() as u64;
        let nth = ((self.hash.hash_one(ends) >> 32) * count) >> 32;
        fit().nth(nth as usize).map(|sharer| sharer.client)
    }

    /// Notes a frame that a client sends. From its SYN+ACK on, a connection of a shared port
    /// belongs to the client that listens there, unless it already belongs to another.
    #[inline]
    pub(super) fn sent(&mut self, client: ClientIdx, packet: &Packet, now: Instant) {
        let Packet { ends, flags, numbers } = packet;
        let is_of_interest =
            flags.intersects(TcpFlags::SYN | TcpFlags::FIN | TcpFlags::RST) || self.connections.awaits_acks();
        if ends.protocol != Protocol::TCP.0 || !is_of_interest {
            return;
        }
        if flags.contains(TcpFlags::SYN) {
            if flags.contains(TcpFlags::ACK) && self.has_port(client, ends) {
                self.connections.begin(client, *ends, numbers.ack, now);
            }
            return;
        }
        self.connections.sent(client, packet);
    }

    /// Hands a connection of a shared port over to another client that listens there. `None` if no
    /// other client listens, or if the connection is not the client's. Where the client has given
    /// the port up, the other one may be of another user.
    pub(super) fn hand_over(&mut self, from: ClientIdx, ends: &Ends, now: Instant) -> Option<ClientIdx> {
        let client = if self.may_hand_over(from, ends) { self.next_of(from, ends) } else { None }?;
        self.give(from, client, ends, now);
        Some(client)
    }

    /// The client that listens at a connection's port, other than the one that had it, and gets it.
    pub(super) fn next_of(&self, from: ClientIdx, ends: &Ends) -> Option<ClientIdx> {
        let sharers = self.ports.get(&to_port(ends))?;
        let others: Vec<Sharer> =
            sharers.iter().filter(|other| other.client != from && other.stopped.is_none()).cloned().collect();
        let client = self.chosen(&others, ends)?;
        self.connections.has_room(client).then_some(client)
    }

    /// Gives a connection to such a client.
    pub(super) fn give(&mut self, from: ClientIdx, client: ClientIdx, ends: &Ends, now: Instant) {
        self.connections.give(from, client, ends, now);
    }

    /// Whether a connection is to a port that the client has, or had a moment ago, and does not
    /// belong to another client.
    pub(super) fn may_hand_over(&self, from: ClientIdx, ends: &Ends) -> bool {
        let has_port = self.left.contains_key(&(from, to_port(ends))) || self.has_port(from, ends);
        has_port && !self.connections.is_anothers(from, ends) && ends.protocol == Protocol::TCP.0
    }

    fn has_port(&self, client: ClientIdx, ends: &Ends) -> bool {
        self.ports.get(&to_port(ends)).is_some_and(|sharers| sharers.iter().any(|one| one.client == client))
    }

    /// The client to which this client has handed a connection over.
    pub(super) fn has_handed_over(&self, from: ClientIdx, ends: &Ends) -> Option<ClientIdx> {
        self.connections.handed_over_by(from, ends)
    }

    /// Forgets connections that have ended. Runs once a second, for a millisecond at most.
    pub(super) fn sweep(&mut self, now: Instant) {
        if now.duration_since(self.swept) < SWEEP_INTERVAL {
            return;
        }
        self.swept = now;
        self.left.retain(|_, since| now.duration_since(*since) < HANDS_ON_WITHIN);
        self.connections.sweep(now);
    }
}

/// Both ends of a flow, if it states both.
fn exact(flow: &Flow) -> Option<Ends> {
    let remote = SocketAddrV4::new(flow.source?, flow.source_port?);
    Some(Ends { protocol: flow.protocol.0, local: flow.destination, remote })
}

/// The port of a flow.
fn port(flow: &Flow) -> Ends {
    Ends { protocol: flow.protocol.0, local: flow.destination, remote: ANYONE }
}

/// The part of the remote end that a flow states.
fn part(flow: &Flow) -> Part {
    (flow.source, flow.source_port)
}

fn to_port(ends: &Ends) -> Ends {
    Ends { remote: ANYONE, ..*ends }
}

const ANYONE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);

#[cfg(test)]
mod tests {

    use super::*;
    use crate::worker::broker::forward::conntrack::{CONNECTIONS_MAX, OVER};
    use crate::worker::broker::forward::packet::Numbers;

    const SYN: TcpFlags = TcpFlags::SYN;
    const ACK: TcpFlags = TcpFlags::ACK;

    fn local() -> SocketAddrV4 {
        SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), 80)
    }

    fn flow(protocol: Protocol) -> Flow {
        Flow { protocol, destination: local(), source: None, source_port: None, vlan: None }
    }

    fn packet(port: u16, flags: TcpFlags) -> Packet {
        let remote = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 9), port);
        let ends = Ends { protocol: Protocol::TCP.0, local: local(), remote };
        Packet { ends, flags, numbers: Numbers::default() }
    }

    /// A segment whose first byte has this number.
    fn numbered(flags: TcpFlags, seq: u32, len: u32) -> Packet {
        Packet { numbers: Numbers { seq, ack: 0, len }, ..packet(5, flags) }
    }

    /// Clients 0, 1 and 2 share a port.
    fn shared() -> (Dispatch, Instant) {
        let now = Instant::now();
        let mut dispatch = Dispatch::new(now);
        (0..3).for_each(|client| dispatch.add(client, &flow(Protocol::TCP)));
        (dispatch, now)
    }

    fn one(whose: Recipients) -> ClientIdx {
        let Recipients::One(client) = whose else { panic!("{whose:?}") };
        client
    }

    #[test]
    fn frame_of_no_flow_is_nobodys() {
        let now = Instant::now();
        let mut dispatch = Dispatch::new(now);
        dispatch.add(0, &flow(Protocol::UDP));
        assert_eq!(dispatch.of(&packet(1, SYN), now), Recipients::None);
        dispatch.add(0, &flow(Protocol::TCP));
        assert_eq!(dispatch.of(&packet(1, SYN), now), Recipients::One(0));
        dispatch.remove(0, &[flow(Protocol::TCP)], now);
        assert_eq!(dispatch.of(&packet(1, SYN), now), Recipients::None);
    }

    #[test]
    fn flow_with_both_ends_precedes_its_port() {
        let (mut dispatch, now) = shared();
        let peer = packet(443, ACK);
        let both = Flow { source: Some(*peer.ends.remote.ip()), source_port: Some(443), ..flow(Protocol::TCP) };
        dispatch.add(7, &both);
        assert_eq!(dispatch.of(&peer, now), Recipients::One(7));
        dispatch.remove(7, &[both], now);
        assert!(one(dispatch.of(&peer, now)) < 3);
    }

    #[test]
    fn connection_that_came_to_a_client_while_it_gave_the_port_up_goes_on_to_another() {
        let (mut dispatch, now) = shared();
        let ends = packet(1, SYN).ends;
        let second = dispatch.hand_over(0, &ends, now).unwrap();
        dispatch.remove(second, &[flow(Protocol::TCP)], now);
        let third = dispatch.hand_over(second, &ends, now).unwrap();
        assert!(third != second && dispatch.has_handed_over(second, &ends) == Some(third));
        // Not those of another client; and later none.
        assert_eq!(dispatch.hand_over(second, &ends, now), None);
        dispatch.sweep(now + HANDS_ON_WITHIN);
        assert_eq!(dispatch.hand_over(second, &packet(2, SYN).ends, now), None);
    }

    #[test]
    fn last_segments_to_a_client_that_has_ended_its_connections_and_left_reach_no_other() {
        let (mut dispatch, now) = shared();
        for port in [1, 2] {
            dispatch.sent(0, &packet(port, SYN | ACK), now);
        }
        dispatch.sent(0, &packet(1, TcpFlags::FIN | ACK), now);
        dispatch.forget(0, now);
        assert_eq!(dispatch.of(&packet(1, TcpFlags::FIN | ACK), now), Recipients::None);
        // One that it had not ended is reset by another, and a new one is another's.
        assert!(one(dispatch.of(&packet(2, ACK), now)) > 0);
        assert!(one(dispatch.of(&packet(1, SYN), now)) > 0);
        dispatch.sweep(now + OVER);
        assert!(one(dispatch.of(&packet(1, ACK), now)) > 0);
    }

    #[test]
    fn each_sharer_has_its_third_and_a_connection_always_the_same() {
        let (mut dispatch, now) = shared();
        let mut taken = [0; 3];
        for port in 1..=3_000 {
            let client = one(dispatch.of(&packet(port, SYN), now));
            assert_eq!(one(dispatch.of(&packet(port, ACK), now)), client);
            taken[client] += 1;
        }
        assert!(taken.iter().all(|&count| (850..1_150).contains(&count)), "{taken:?}");
    }

    #[test]
    fn connections_stay_where_they_are_when_sharers_come_and_go() {
        let (mut dispatch, now) = shared();
        let accept = |dispatch: &mut Dispatch, port| {
            let client = one(dispatch.of(&packet(port, SYN), now));
            dispatch.sent(client, &packet(port, SYN | ACK), now);
            client
        };
        let clients: Vec<_> = (1..=300).map(|port| accept(&mut dispatch, port)).collect();
        dispatch.add(3, &flow(Protocol::TCP));
        dispatch.set_listening(0, &flow(Protocol::TCP), false, now);
        for (port, client) in (1..).zip(&clients) {
            assert_eq!(one(dispatch.of(&packet(port, ACK), now)), *client);
        }
        assert!((1_000..1_300).all(|port| one(dispatch.of(&packet(port, SYN), now)) != 0), "0 listens no longer");
        dispatch.forget(1, now);
        for (port, client) in (1..).zip(&clients) {
            let now_at = one(dispatch.of(&packet(port, ACK), now));
            assert!(if *client == 1 { [2, 3].contains(&now_at) } else { now_at == *client });
        }
    }

    #[test]
    fn connection_that_is_over_is_forgotten_and_its_ends_may_begin_anew() {
        let (mut dispatch, now) = shared();
        let client = one(dispatch.of(&packet(5, SYN), now));
        dispatch.sent(client, &packet(5, SYN | ACK), now);
        dispatch.set_listening(client, &flow(Protocol::TCP), false, now);
        assert_eq!(one(dispatch.of(&packet(5, SYN), now)), client, "it is open");
        dispatch.sent(client, &packet(5, TcpFlags::FIN | ACK), now);
        assert_eq!(one(dispatch.of(&packet(5, TcpFlags::FIN | ACK), now)), client);
        assert_eq!(one(dispatch.of(&packet(5, ACK), now)), client, "a late one");
        assert_ne!(one(dispatch.of(&packet(5, SYN), now)), client);
        dispatch.sweep(now + OVER / 2);
        assert_eq!(dispatch.connections.len(), 1);
        dispatch.sweep(now + OVER + SWEEP_INTERVAL);
        assert_eq!(dispatch.connections.len(), 0);
    }

    /// RFC 5961 3: a reset counts where it continues what the peer has sent.
    #[test]
    fn reset_that_does_not_continue_the_connection_ends_it_for_nobody() {
        let (mut dispatch, now) = shared();
        let client = one(dispatch.of(&packet(5, SYN), now));
        let accepted = Packet { numbers: Numbers { seq: 7, ack: u32::MAX, len: 0 }, ..packet(5, SYN | ACK) };
        dispatch.sent(client, &accepted, now);
        dispatch.set_listening(client, &flow(Protocol::TCP), false, now);
        let of = |dispatch: &mut Dispatch, packet, at| one(dispatch.of(&packet, at));
        assert_eq!(of(&mut dispatch, numbered(ACK, u32::MAX, 100), now), client);
        // Neither these nor a stranger's data, after which the next reset would count.
        for seq in [0, 98, 100, 1 << 31] {
            assert_eq!(of(&mut dispatch, numbered(TcpFlags::RST, seq, 0), now), client, "its TCP judges");
        }
        of(&mut dispatch, numbered(ACK, 1 << 30, 100), now);
        of(&mut dispatch, numbered(TcpFlags::RST, (1 << 30) + 100, 0), now);
        of(&mut dispatch, numbered(TcpFlags::FIN, 1 << 30, 0), now);
        dispatch.sent(client, &packet(5, TcpFlags::FIN | ACK), now);
        let later = now + OVER + SWEEP_INTERVAL;
        dispatch.sweep(later);
        assert_eq!(of(&mut dispatch, numbered(SYN, 9, 0), later), client, "it is open");
        assert_eq!(of(&mut dispatch, numbered(TcpFlags::RST, 99, 0), later), client);
        assert_ne!(of(&mut dispatch, numbered(SYN, 9, 0), later), client, "the peer has ended it");
    }

    /// Whether a caller with the ends of the connection would reach another client: the connection
    /// is over.
    fn is_over(dispatch: &mut Dispatch, client: ClientIdx, now: Instant) -> bool {
        one(dispatch.of(&numbered(SYN, 9, 0), now)) != client
    }

    #[test]
    fn stranger_who_walks_all_numbers_ends_no_connection() {
        let (mut dispatch, now) = shared();
        let client = one(dispatch.of(&packet(5, SYN), now));
        let accepted = Packet { numbers: Numbers { seq: 7, ack: 1 << 20, len: 0 }, ..packet(5, SYN | ACK) };
        dispatch.sent(client, &accepted, now);
        dispatch.set_listening(client, &flow(Protocol::TCP), false, now);
        let mut walk = |seq: u32| {
            one(dispatch.of(&numbered(ACK, seq, 1_000), now));
            one(dispatch.of(&numbered(TcpFlags::RST, seq.wrapping_add(1_000), 0), now));
            one(dispatch.of(&numbered(TcpFlags::FIN, seq.wrapping_add(1_000), 0), now));
        };
        // One of them covers the number, and none begins with it.
        (0..1 << 16).for_each(|window: u32| walk((window << 16) + 7));
        (0..1_000).for_each(|before| walk((1 << 20) - 999 + before * 2));
        dispatch.sent(client, &packet(5, TcpFlags::FIN | ACK), now);
        assert!(!is_over(&mut dispatch, client, now));
        one(dispatch.of(&numbered(TcpFlags::RST, 1 << 20, 0), now));
        assert!(is_over(&mut dispatch, client, now));
    }

    #[test]
    fn end_of_a_peer_counts_behind_any_loss_once_the_client_has_acknowledged_it() {
        for flags in [TcpFlags::RST, TcpFlags::FIN] {
            let (mut dispatch, now) = shared();
            let client = one(dispatch.of(&packet(5, SYN), now));
            dispatch.sent(client, &packet(5, SYN | ACK), now);
            dispatch.set_listening(client, &flow(Protocol::TCP), false, now);
            // A megabyte is missing.
            one(dispatch.of(&numbered(ACK, 1 << 20, 100), now));
            let ack = |ack| Packet { numbers: Numbers { seq: 0, ack, len: 0 }, ..packet(5, ACK) };
            dispatch.sent(client, &ack((1 << 20) + 100), now);
            dispatch.sent(client, &packet(5, TcpFlags::FIN | ACK), now);
            assert!(!is_over(&mut dispatch, client, now));
            one(dispatch.of(&numbered(flags, (1 << 20) + 100, 0), now));
            assert!(is_over(&mut dispatch, client, now));
        }
    }

    #[test]
    fn fin_that_came_before_what_it_follows_counts_once_the_client_has_acknowledged_it() {
        let (mut dispatch, now) = shared();
        let client = one(dispatch.of(&packet(5, SYN), now));
        dispatch.sent(client, &packet(5, SYN | ACK), now);
        dispatch.set_listening(client, &flow(Protocol::TCP), false, now);
        one(dispatch.of(&numbered(TcpFlags::FIN, 100, 50), now));
        one(dispatch.of(&numbered(ACK, 0, 100), now));
        let last = Packet { numbers: Numbers { seq: 0, ack: 151, len: 0 }, ..packet(5, TcpFlags::FIN | ACK) };
        dispatch.sent(client, &last, now);
        assert!(is_over(&mut dispatch, client, now));
    }

    #[test]
    fn reset_of_a_connection_that_was_handed_over_counts_where_it_continues_it() {
        let (mut dispatch, now) = shared();
        let client = one(dispatch.of(&packet(5, SYN), now));
        dispatch.sent(client, &packet(5, SYN | ACK), now);
        one(dispatch.of(&numbered(ACK, 0, 100), now));
        let next = dispatch.hand_over(client, &packet(5, ACK).ends, now).unwrap();
        one(dispatch.of(&numbered(TcpFlags::RST, 7, 0), now));
        assert_eq!(one(dispatch.of(&numbered(SYN, 9, 0), now)), next, "it is open");
        one(dispatch.of(&numbered(TcpFlags::RST, 100, 0), now));
        dispatch.set_listening(next, &flow(Protocol::TCP), false, now);
        assert_ne!(one(dispatch.of(&numbered(SYN, 9, 0), now)), next);
    }

    #[test]
    fn connections_of_a_client_that_gave_its_port_back_are_of_who_has_the_port_next() {
        let now = Instant::now();
        let mut dispatch = Dispatch::new(now);
        dispatch.add(0, &flow(Protocol::TCP));
        dispatch.sent(0, &packet(5, SYN | ACK), now);
        dispatch.remove(0, &[flow(Protocol::TCP)], now);
        dispatch.add(1, &flow(Protocol::TCP));
        assert_eq!(dispatch.of(&packet(5, SYN), now), Recipients::One(1));
    }

    #[test]
    fn ports_that_a_client_loses_at_once_are_all_forgotten_and_its_others_are_not() {
        let now = Instant::now();
        let mut dispatch = Dispatch::new(now);
        let at = |port| Flow { destination: SocketAddrV4::new(*local().ip(), port), ..flow(Protocol::TCP) };
        let packet_to = |port, flags| {
            let ends = Ends { local: at(port).destination, ..packet(5, flags).ends };
            Packet { ends, ..packet(5, flags) }
        };
        for port in 80..84 {
            dispatch.add(0, &at(port));
            dispatch.sent(0, &packet_to(port, SYN | ACK), now);
        }
        let lost: Vec<Flow> = (80..83).map(at).collect();
        dispatch.remove(0, &lost, now);
        assert_eq!((dispatch.connections.count(0), dispatch.connections.len(), dispatch.left.len()), (1, 1, 3));
        dispatch.add(1, &at(80));
        assert_eq!(dispatch.of(&packet_to(80, ACK), now), Recipients::One(1));
        assert_eq!(dispatch.of(&packet_to(83, ACK), now), Recipients::One(0));
    }

    #[test]
    fn callers_of_a_port_where_nobody_listens_any_more_are_ignored_for_a_moment() {
        let (mut dispatch, now) = shared();
        (0..3).for_each(|client| dispatch.set_listening(client, &flow(Protocol::TCP), false, now));
        assert_eq!(dispatch.of(&packet(5, SYN), now), Recipients::None);
        assert!(one(dispatch.of(&packet(5, ACK), now)) < 3, "who is connected is not");
        assert!(one(dispatch.of(&packet(5, SYN), now + PAUSE)) < 3, "a reset is due");
        dispatch.set_listening(1, &flow(Protocol::TCP), true, now);
        assert_eq!(dispatch.of(&packet(5, SYN), now), Recipients::One(1));
    }

    #[test]
    fn client_cannot_take_a_connection_of_another() {
        let (mut dispatch, now) = shared();
        let client = one(dispatch.of(&packet(5, SYN), now));
        dispatch.sent(client, &packet(5, SYN | ACK), now);
        let other = (client + 1) % 3;
        dispatch.sent(other, &packet(5, SYN | ACK), now);
        dispatch.sent(other, &packet(5, TcpFlags::RST), now);
        dispatch.sent(7, &packet(6, SYN | ACK), now);
        assert_eq!(one(dispatch.of(&packet(5, ACK), now)), client);
        assert_eq!(dispatch.connections.len(), 1, "7 has no such port");
        assert!(dispatch.connections.is_anothers(other, &packet(5, ACK).ends), "it is not over");
    }

    #[test]
    fn connection_that_is_handed_over_goes_to_another_who_listens() {
        let (mut dispatch, now) = shared();
        let client = one(dispatch.of(&packet(5, SYN), now));
        dispatch.sent(client, &packet(5, SYN | ACK), now);
        let (next, other) = ((client + 1) % 3, (client + 2) % 3);
        let ends = packet(5, ACK).ends;
        dispatch.set_listening(other, &flow(Protocol::TCP), false, now);
        assert_eq!(dispatch.hand_over(next, &ends, now), None, "it is another's");
        assert_eq!(dispatch.hand_over(7, &ends, now), None, "who has no such port");
        assert_eq!(dispatch.hand_over(client, &ends, now), Some(next));
        assert_eq!(one(dispatch.of(&packet(5, ACK), now)), next);
        assert_eq!(
            (dispatch.has_handed_over(client, &ends), dispatch.has_handed_over(other, &ends)),
            (Some(next), None)
        );
        dispatch.sent(next, &packet(5, SYN | ACK), now);
        let still = dispatch.has_handed_over(client, &ends);
        assert_eq!(still, Some(next), "its data comes behind the answer to its beginning");
        assert_eq!((dispatch.connections.count(client), dispatch.connections.count(next)), (0, 1));
        dispatch.set_listening(client, &flow(Protocol::TCP), false, now);
        assert_eq!(dispatch.hand_over(next, &ends, now), None, "nobody else listens");
    }

    #[test]
    fn connection_that_was_handed_over_to_a_client_that_stops_meanwhile_is_reset_by_no_other() {
        let (mut dispatch, now) = shared();
        let ends = packet(5, ACK).ends;
        let second = dispatch.hand_over(0, &ends, now).unwrap();
        dispatch.remove(second, &[flow(Protocol::TCP)], now);
        assert_eq!(dispatch.of(&packet(5, ACK), now), Recipients::None, "it is in the ring of the second");
        assert_eq!(dispatch.has_handed_over(0, &ends), Some(second), "its data may come yet");
        dispatch.sweep(now + OVER);
        assert_eq!(dispatch.of(&packet(5, ACK), now), Recipients::None, "the second may be slow");
        let third = dispatch.hand_over(second, &ends, now).unwrap();
        assert_eq!(dispatch.of(&packet(5, ACK), now), Recipients::One(third));
        dispatch.sent(third, &packet(5, SYN | ACK), now);
        dispatch.remove(third, &[flow(Protocol::TCP)], now);
        assert_ne!(one(dispatch.of(&packet(5, ACK), now)), third, "it had taken it, and is forgotten");
    }

    #[test]
    fn client_at_the_place_of_one_that_has_ended_adds_nothing_to_what_that_handed_over() {
        let (mut dispatch, now) = shared();
        let ends = packet(5, ACK).ends;
        let next = dispatch.hand_over(0, &ends, now).unwrap();
        dispatch.forget(0, now);
        assert_eq!(dispatch.has_handed_over(0, &ends), None);
        assert_eq!(dispatch.of(&packet(5, ACK), now), Recipients::One(next));
    }

    #[test]
    fn datagram_to_a_group_goes_to_all_and_one_to_a_port_to_one() {
        let now = Instant::now();
        let mut dispatch = Dispatch::new(now);
        let group = SocketAddrV4::new(Ipv4Addr::new(239, 1, 1, 1), 9000);
        let to_group = Flow { destination: group, ..flow(Protocol::UDP) };
        (0..2).for_each(|client| dispatch.add(client, &to_group));
        let ends = Ends { protocol: Protocol::UDP.0, local: group, remote: local() };
        assert_eq!(dispatch.of(&Packet { ends, ..packet(5, TcpFlags(0)) }, now), Recipients::All);
        assert_eq!(dispatch.members(&ends).collect::<Vec<_>>(), [0, 1]);
    }

    #[test]
    fn joins_of_one_group_from_several_sources_are_each_their_own() {
        let now = Instant::now();
        let mut dispatch = Dispatch::new(now);
        let group = SocketAddrV4::new(Ipv4Addr::new(232, 1, 1, 1), 9000);
        let from =
            |host: u8| Flow { destination: group, source: Some(Ipv4Addr::new(192, 0, 2, host)), ..flow(Protocol::UDP) };
        let members = |dispatch: &Dispatch, host: u8| {
            let remote = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, host), 1);
            dispatch.members(&Ends { protocol: Protocol::UDP.0, local: group, remote }).collect::<Vec<_>>()
        };
        for (client, host) in [(0, 7), (0, 8), (1, 8), (0, 7)] {
            dispatch.add(client, &from(host));
        }
        assert_eq!([7, 8, 9].map(|host| members(&dispatch, host)), [vec![0], vec![0, 1], vec![]]);
        dispatch.remove(0, &[from(8)], now);
        dispatch.remove(0, &[from(7)], now);
        assert_eq!([7, 8].map(|host| members(&dispatch, host)), [vec![0], vec![1]], "7 was joined twice");
        dispatch.remove(0, &[from(7)], now);
        dispatch.remove(0, &[from(7)], now);
        assert_eq!([7, 8].map(|host| members(&dispatch, host)), [vec![], vec![1]]);
        dispatch.remove(1, &[from(8)], now);
        assert!(dispatch.ports.is_empty());
    }

    #[test]
    fn frame_is_of_the_client_whose_flow_names_its_source() {
        let now = Instant::now();
        let mut dispatch = Dispatch::new(now);
        let from = |host: u8| Flow { source: Some(Ipv4Addr::new(192, 0, 2, host)), ..flow(Protocol::TCP) };
        dispatch.add(0, &from(8));
        assert_eq!(dispatch.of(&packet(1, SYN), now), Recipients::None);
        dispatch.add(1, &from(9));
        assert!((1..100).all(|port| dispatch.of(&packet(port, SYN), now) == Recipients::One(1)));
    }

    #[test]
    fn flood_of_handshakes_is_remembered_up_to_a_limit() {
        let (mut dispatch, now) = shared();
        (0..=u16::MAX).for_each(|port| dispatch.sent(0, &packet(port, SYN | ACK), now));
        assert_eq!(dispatch.connections.len(), CONNECTIONS_MAX);
        dispatch.sent(1, &packet(u16::MAX, SYN | ACK), now);
        assert_eq!(dispatch.connections.len(), CONNECTIONS_MAX + 1, "another's share is his");
        dispatch.forget(0, now);
        dispatch.add(0, &flow(Protocol::TCP));
        dispatch.sent(0, &packet(1, SYN | ACK), now);
        assert_eq!(dispatch.connections.len(), 2);
    }
}
