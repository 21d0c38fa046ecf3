//! The clients of a broker: one for each connection, with the queue that it has.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::error::Refusal;
use super::flows::ClientId;
use super::rights::ClientRights;
use crate::device::af_xdp::broker::forwarded::ForwardedEnd;
use crate::device::af_xdp::broker::lend::LentQueue;
use crate::device::af_xdp::broker::sys::Peer;
use crate::sys::process;

/// The most connections of all users, and of one user: each takes some kilobytes and four
/// descriptors.
pub(super) const CLIENTS_MAX: usize = 128;
const CLIENTS_OF_A_USER_MAX: usize = 32;
/// The most neighbors that a client may have resolved in a second. The kernel's table has room for
/// some hundred.
const RESOLVES_A_SECOND: u32 = 64;

/// A connection.
pub(super) struct Client {
    pub(super) id: ClientId,
    pub(super) socket: OwnedFd,
    /// Readable once the process has ended, even if a child of the process still holds the socket.
    process: Option<OwnedFd>,
    pub(super) peer: Peer,
    /// The file of its program, if the broker can read the path.
    pub(super) program: Option<PathBuf>,
    pub(super) rights: ClientRights,
    /// The client has sent its hello.
    pub(super) is_known: bool,
    pub(super) queue: Option<u16>,
    pub(super) lent: Option<Lent>,
    /// The socket that carries ICMP errors to the client.
    pub(super) icmp_errors: Option<UnixDatagram>,
    /// The second in which neighbors were last resolved, and their number.
    resolves: (Instant, u32),
}

/// What a client has been given.
pub(super) enum Lent {
    /// A queue of the interface.
    Queue(LentQueue),
    /// A queue whose frames are passed on.
    Forwarded(ForwardedEnd),
}

impl Lent {
    /// The descriptors that the client gets.
    pub(super) fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        match self {
            Self::Queue(queue) => queue.descriptors().into(),
            Self::Forwarded(end) => end.descriptors().into(),
        }
    }
}

/// All clients.
#[derive(Default)]
pub(super) struct Clients {
    all: Vec<Client>,
    next: u64,
}

impl Client {
    /// The descriptors to poll: the client's socket, and its process.
    pub(super) fn descriptors(&self) -> [RawFd; 2] {
        // poll(2) skips a negative number.
        [self.socket.as_raw_fd(), self.process.as_ref().map_or(-1, AsRawFd::as_raw_fd)]
    }

    /// For the log: `process 4711 of user 1000`.
    pub(super) fn name(&self) -> String {
        format!("process {} of user {}", self.peer.pid, self.peer.uid)
    }

    /// Whether it may have another neighbor resolved at `now`.
    pub(super) fn may_resolve(&mut self, now: Instant) -> bool {
        if now.duration_since(self.resolves.0) >= Duration::from_secs(1) {
            self.resolves = (now, 0);
        }
        self.resolves.1 += 1;
        self.resolves.1 <= RESOLVES_A_SECOND
    }
}

impl Clients {
    /// Accepts a connection of a user that is served.
    pub(super) fn add(
        &mut self,
        socket: OwnedFd,
        peer: Peer,
        program: Option<PathBuf>,
        rights: ClientRights,
        now: Instant,
    ) -> Result<(), Refusal> {
        let of_user = self.all.iter().filter(|client| client.peer.uid == peer.uid).count();
        if self.all.len() >= CLIENTS_MAX || of_user >= CLIENTS_OF_A_USER_MAX {
            let sentence = format!("the broker has {of_user} connections of user {}: end some", peer.uid);
            return Err(Refusal::new(libc::EUSERS, sentence));
        }
        self.next += 1;
        let (id, process) = (ClientId(self.next), process::pidfd_open(peer.pid).ok());
        let (is_known, queue, lent, icmp_errors) = (false, None, None, None);
        self.all.push(Client {
            id,
            socket,
            process,
            peer,
            program,
            rights,
            is_known,
            queue,
            lent,
            icmp_errors,
            resolves: (now, 0),
        });
        Ok(())
    }

    /// Whether the client has a queue, or its rule still allows one.
    pub(super) fn check_queues(&mut self, id: ClientId) -> Result<(), Refusal> {
        let Some(client) = self.get(id).filter(|client| client.queue.is_none()) else { return Ok(()) };
        let rights = client.rights.clone();
        let Some((rule, queues)) = rights.queues() else { return Ok(()) };
        let is_of_rule = |client: &&Client| client.queue.is_some() && client.rights.queues() == Some((rule, queues));
        let holders: Vec<String> = self.all.iter().filter(is_of_rule).map(Client::name).collect();
        if holders.len() < queues {
            return Ok(());
        }
        let sentence = format!(
            "{} gives {queues} queues at a time, and they are lent to {}: end it, or raise `queues` there, and reload",
            rule.name,
            holders[..holders.len().min(3)].join(" and ")
        );
        Err(Refusal::new(libc::EUSERS, sentence))
    }

    /// The queue of a client: its own if it has one, else the first free one.
    pub(super) fn queue_of(&mut self, id: ClientId, queues: u16, interface: &str) -> Result<u16, Refusal> {
        let taken = |queue| self.all.iter().any(|client| client.queue == Some(queue));
        let free = (0..queues).find(|queue| !taken(*queue));
        let holders: Vec<String> =
            self.all.iter().filter(|client| client.queue.is_some()).map(Client::name).take(3).collect();
        let Some(client) = self.get(id) else { return Err(Refusal::new(libc::ENOTCONN, "there is no such client")) };
        match client.queue.or(free) {
            Some(queue) => Ok(*client.queue.insert(queue)),
            None => {
                let sentence = format!(
                    "all queues of {interface} are lent, {queues} in number, to {}: end it, start the broker with --forward, or \
                     have the NIC use more queues (`ethtool -L {interface} combined {}`)",
                    holders.join(" and "),
                    queues.saturating_add(1)
                );
                Err(Refusal::new(libc::EBUSY, sentence))
            }
        }
    }

    pub(super) fn get(&mut self, id: ClientId) -> Option<&mut Client> {
        self.all.iter_mut().find(|client| client.id == id)
    }

    pub(super) fn remove(&mut self, id: ClientId) -> Option<Client> {
        let place = self.all.iter().position(|client| client.id == id)?;
        Some(self.all.swap_remove(place))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Client> {
        self.all.iter()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Client> {
        self.all.iter_mut()
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::sync::Arc;

    use super::super::rights::{BrokerRule, BrokerUser};
    use super::*;

    fn add(clients: &mut Clients, uid: u32) -> Result<ClientId, Refusal> {
        add_with(clients, uid, ClientRights::User(BrokerUser { uid, low_ports: vec![] }))
    }

    fn add_with(clients: &mut Clients, uid: u32, rights: ClientRights) -> Result<ClientId, Refusal> {
        let (socket, peer) = (File::open("/dev/null").unwrap().into(), Peer { pid: 0, uid, groups: vec![] });
        clients.add(socket, peer, None, rights, Instant::now()).map(|()| ClientId(clients.next))
    }

    #[test]
    fn queues_of_a_rule_are_bounded_for_all_programs_that_fit_it() {
        let mut clients = Clients::default();
        let rule = |name: &str| {
            let (users, groups, programs) = (None, None, None);
            let (ports, addresses, multicast) = (vec![], vec![], vec![]);
            let name = name.to_owned();
            Arc::new(BrokerRule { name, users, groups, programs, ports, addresses, multicast, queues: Some(1) })
        };
        let (rule, other) = (rule("rule 1 of broker.toml"), rule("rule 2 of broker.toml"));
        let mut add = |uid, rule: &Arc<BrokerRule>| add_with(&mut clients, uid, ClientRights::Rule(Arc::clone(rule)));
        let [first, second] = [1000, 1001].map(|uid| add(uid, &rule).unwrap());
        let third = add(1002, &other).unwrap();
        let ask = |clients: &mut Clients, id| clients.check_queues(id).and_then(|()| clients.queue_of(id, 8, "eth1"));
        assert_eq!(ask(&mut clients, first), Ok(0));
        assert_eq!(ask(&mut clients, first), Ok(0), "the one it has");
        let refusal = ask(&mut clients, second).unwrap_err();
        let says =
            "rule 1 of broker.toml gives 1 queues at a time, and they are lent to process 0 of user 1000: end it";
        assert!(refusal.sentence.starts_with(says), "{refusal:?}");
        assert_eq!(ask(&mut clients, third), Ok(1));
        clients.remove(first).unwrap();
        assert_eq!(ask(&mut clients, second), Ok(0));
    }

    #[test]
    fn connections_of_a_user_and_in_all_are_bounded() {
        let mut clients = Clients::default();
        for _ in 0..CLIENTS_OF_A_USER_MAX {
            add(&mut clients, 1000).unwrap();
        }
        let refusal = add(&mut clients, 1000).unwrap_err();
        assert!(refusal.sentence.contains("32 connections of user 1000: end some"), "{refusal:?}");
        for uid in 0..(CLIENTS_MAX - CLIENTS_OF_A_USER_MAX) as u32 {
            add(&mut clients, 2000 + uid).unwrap();
        }
        add(&mut clients, 7).unwrap_err();
        clients.remove(ClientId(1)).unwrap();
        add(&mut clients, 7).unwrap();
    }

    #[test]
    fn each_client_has_a_queue_and_the_next_one_is_told_who_has_the_last() {
        let mut clients = Clients::default();
        let [first, second, third] = [1000, 1001, 1002].map(|uid| add(&mut clients, uid).unwrap());
        assert_eq!(clients.queue_of(first, 2, "eth1"), Ok(0));
        assert_eq!(clients.queue_of(first, 2, "eth1"), Ok(0), "the one it has");
        assert_eq!(clients.queue_of(second, 2, "eth1"), Ok(1));
        let refusal = clients.queue_of(third, 2, "eth1").unwrap_err();
        assert_eq!(refusal.errno, libc::EBUSY);
        let says =
            "all queues of eth1 are lent, 2 in number, to process 0 of user 1000 and process 0 of user 1001: end it";
        assert!(refusal.sentence.starts_with(says), "{refusal:?}");
        clients.remove(first).unwrap();
        assert_eq!(clients.queue_of(third, 2, "eth1"), Ok(0));
    }

    #[test]
    fn neighbors_are_resolved_at_a_limited_rate() {
        let mut clients = Clients::default();
        let id = add(&mut clients, 1000).unwrap();
        let client = clients.get(id).unwrap();
        let now = Instant::now();
        assert!((0..RESOLVES_A_SECOND).all(|_| client.may_resolve(now)));
        assert!(!client.may_resolve(now));
        assert!(client.may_resolve(now + Duration::from_secs(1)));
    }
}
