//! The clients of a broker: one for each connection, with the queue that it has.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::error::Refusal;
use super::flows::{ClientId, FLOWS_MAX, ROOT};
use super::rights::ClientRights;
use super::waiting::{Lent, WaitingRequest};
use crate::device::broker::message::Reply;
use crate::device::broker::request::QueueRequest;
use crate::device::broker::sys::{KeptMemory, Peer};
use crate::sys::process;

/// The most connections of all users, and of one user where the operator does not say otherwise:
/// each takes some kilobytes and as many descriptors as are said below.
pub(super) const CLIENTS_MAX: usize = 128;
pub(super) const CLIENTS_OF_A_USER: usize = 32;
/// The most descriptors of a client: seven, or twelve with a queue of a ConnectX.
pub(super) const DESCRIPTORS_OF_A_CLIENT: usize = 12;
/// Connections that root alone may have.
const CLIENTS_OF_ROOT: usize = 8;
/// The most connections that have said nothing yet, or may have nothing: whoever runs programs as
/// many users could take all places with these. A connection like that ends after a while, and the
/// oldest one where there are more.
const IDLE_MAX: usize = 16;
const IDLE_AT_MOST: Duration = Duration::from_secs(2);
/// The most connections that have ended and whose packet buffers processes of a user keep: the
/// broker keeps a descriptor for each.
const KEPT_OF_A_USER_MAX: usize = 32;
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
    /// When it connected.
    since: Instant,
    /// The client has sent its hello.
    pub(super) is_known: bool,
    pub(super) queue: Option<u16>,
    pub(super) lent: Option<Lent>,
    /// It has closed that queue for good, and may have another one.
    pub(super) has_closed: bool,
    /// Its next request has files, and waits until earlier ones of its user are closed.
    pub(super) is_held: bool,
    /// What it has requested and not got yet.
    pub(super) waits: Option<WaitingRequest>,
    /// Bytes of packet buffers that it has, or waits for.
    pub(super) memory: u64,
    /// The socket that carries ICMP errors to the client, and what it has lost.
    pub(super) icmp_errors: Option<UnixDatagram>,
    /// Flows that were taken back and that the client was not told of yet, each with the reason.
    lost: VecDeque<(u32, i32)>,
    /// The second in which neighbors were last resolved, and their number.
    resolves: (Instant, u32),
}

/// All clients.
pub(super) struct Clients {
    /// The most connections of a user.
    of_user_max: usize,
    all: Vec<Client>,
    next: u64,
    /// The last client's rights, by each queue that no client has.
    left: HashMap<u16, ClientRights>,
    /// Queues that no client has and the kernel did not give when they were last wanted: a process
    /// keeps the socket of an earlier client.
    withheld: BTreeSet<u16>,
    /// Packet buffers of connections that have ended.
    kept: Vec<Kept>,
}

/// The queues that a broker lends.
#[derive(Clone, Copy)]
pub(super) struct Stock<'a> {
    pub(super) interface: &'a str,
    pub(super) queues: u16,
    /// How there would be more, behind a comma, where that is possible.
    pub(super) more: &'a str,
}

/// Packet buffers that a process may keep although its connection has ended. They count for their
/// user as long as it does.
struct Kept {
    uid: u32,
    bytes: u64,
    memory: KeptMemory,
}

impl Client {
    /// The descriptors to poll: the client's socket, and its process.
    pub(super) fn descriptors(&self) -> [RawFd; 2] {
        // poll(2) skips a negative number.
        let socket = if self.is_held { -1 } else { self.socket.as_raw_fd() };
        [socket, self.process.as_ref().map_or(-1, AsRawFd::as_raw_fd)]
    }

    /// For the log: `process 4711 of user 1000`.
    pub(super) fn name(&self) -> String {
        format!("process {} of user {}", self.peer.pid, self.peer.uid)
    }

    /// Whether it can have nothing of the broker so far.
    fn is_idle(&self) -> bool {
        self.lent.is_none() && (!self.is_known || self.rights.are_any().is_err())
    }

    /// Whether it has been like that for so long that it ends.
    pub(super) fn is_late(&self, now: Instant) -> bool {
        self.is_idle() && now.duration_since(self.since) >= IDLE_AT_MOST
    }

    /// Its flow with this number was taken back, for a reason with this error number. One that
    /// reads nothing is not told of more than it may have.
    pub(super) fn lose(&mut self, flow: u32, errno: i32) {
        if self.lost.len() < FLOWS_MAX {
            self.lost.push_back((flow, errno));
        }
        self.tell_losses();
    }

    /// Tells the client of flows that were taken back, as many as its socket has room for.
    pub(super) fn tell_losses(&mut self) {
        let Some(socket) = &self.icmp_errors else { return };
        while let Some(&(id, errno)) = self.lost.front() {
            match socket.send(&Reply::Lost { id, errno }.encode()) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // Nobody reads there any more.
                Err(_) => self.lost.clear(),
                Ok(_) => _ = self.lost.pop_front(),
            }
        }
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
    pub(super) fn new(of_user_max: usize) -> Self {
        Self {
            of_user_max,
            all: Vec::new(),
            next: 0,
            left: HashMap::new(),
            withheld: BTreeSet::new(),
            kept: Vec::new(),
        }
    }

    /// Whether a user may have another connection.
    pub(super) fn check_room(&self, uid: u32) -> Result<(), Refusal> {
        let of_user = self.all.iter().filter(|client| client.peer.uid == uid).count();
        let clients_max = if uid == 0 { CLIENTS_MAX } else { CLIENTS_MAX - CLIENTS_OF_ROOT };
        if of_user >= self.of_user_max {
            let sentence = format!(
                "the broker has {of_user} connections of user {uid}, one for each process, and a user may have no more: \
                 end some"
            );
            let more = match (2 * of_user).min(CLIENTS_MAX - CLIENTS_OF_ROOT) {
                more if more > of_user => format!(", or start it with --user-connections {more}"),
                _ => String::new(),
            };
            return Err(Refusal::new(libc::EUSERS, sentence + &more));
        }
        if self.all.len() >= clients_max {
            let all = self.all.len();
            let sentence = format!("the broker has {all} connections of all users, one for each process: end some");
            return Err(Refusal::new(libc::EUSERS, sentence));
        }
        Ok(())
    }

    /// Accepts a connection of a user that is served, for which there is room. Returns the one that
    /// has to go for it.
    pub(super) fn add(
        &mut self,
        socket: OwnedFd,
        peer: Peer,
        program: Option<PathBuf>,
        rights: ClientRights,
        now: Instant,
    ) -> Option<ClientId> {
        let idle = self.all.iter().filter(|client| client.is_idle());
        let goes = match idle.clone().count() {
            ..IDLE_MAX => None,
            _ => idle.min_by_key(|client| client.id.0).map(|client| client.id),
        };
        self.next += 1;
        let (id, process) = (ClientId(self.next), process::pidfd_open(peer.pid).ok());
        let (is_known, queue, lent, waits, icmp_errors) = (false, None, None, None, None);
        self.all.push(Client {
            id,
            socket,
            process,
            peer,
            program,
            rights,
            since: now,
            is_known,
            queue,
            lent,
            has_closed: false,
            is_held: false,
            waits,
            memory: 0,
            icmp_errors,
            lost: VecDeque::new(),
            resolves: (now, 0),
        });
        goes
    }

    /// Gives a client's request its memory, if its user may have that much beside what his other
    /// clients have and wait for. Root has no bound.
    pub(super) fn request_queue(
        &mut self,
        id: ClientId,
        request: QueueRequest,
        of_user_max: u64,
    ) -> Result<(), Refusal> {
        let Some(uid) = self.get(id).map(|client| client.peer.uid) else { return Ok(()) };
        let others = self.all.iter().filter(|client| client.peer.uid == uid && client.id != id);
        let memory = others.map(|client| client.memory).fold(request.umem_len, u64::saturating_add);
        if uid != ROOT && memory > of_user_max {
            return Err(too_much(uid, memory, of_user_max, "end programs of his"));
        }
        if let Some(client) = self.get(id) {
            client.memory = request.umem_len;
            client.waits = Some(WaitingRequest { request, since: Instant::now(), tries: 0 });
        }
        Ok(())
    }

    /// Whether a client that waits may have its memory beside what processes have kept of
    /// connections of its user that have ended.
    pub(super) fn check_kept(&mut self, id: ClientId, of_user_max: u64) -> Result<(), Refusal> {
        self.forget_given_back();
        let Some(uid) = self.get(id).map(|client| client.peer.uid) else { return Ok(()) };
        let kept = self.kept.iter().filter(|kept| kept.uid == uid);
        let count = kept.clone().count();
        if count >= KEPT_OF_A_USER_MAX {
            let sentence = format!(
                "processes of user {uid} keep the packet buffers of {count} connections that have ended: end these \
                 processes"
            );
            return Err(Refusal::new(libc::EUSERS, sentence));
        }
        let of_clients = self.all.iter().filter(|client| client.peer.uid == uid).map(|client| client.memory);
        let memory = kept.map(|kept| kept.bytes).chain(of_clients).fold(0, u64::saturating_add);
        match count > 0 && memory > of_user_max {
            true => Err(too_much(uid, memory, of_user_max, "end processes that keep those of connections of the past")),
            false => Ok(()),
        }
    }

    /// The queues that a client may try, the best first: its own if it has one, otherwise those
    /// that are free, and last those that were withheld. Where its rule has no more than withheld
    /// ones, these alone: a process that keeps a queue has it by the rule.
    ///
    /// # Errors
    /// Its rule gives it none, or all are lent.
    pub(super) fn candidates(&mut self, id: ClientId, stock: Stock<'_>) -> Result<Vec<u16>, Refusal> {
        if let Some(queue) = self.get(id).and_then(|client| client.queue) {
            return Ok(vec![queue]);
        }
        let of_rule = self.withheld_of_rule(id)?;
        let is_taken = |queue: &u16| self.all.iter().any(|client| client.queue == Some(*queue));
        let mut free: Vec<u16> = match of_rule {
            Some(withheld) => withheld,
            None => (0..stock.queues).filter(|queue| !is_taken(queue)).collect(),
        };
        free.sort_by_key(|queue| (self.withheld.contains(queue), *queue));
        match free.is_empty() {
            false => Ok(free),
            true => Err(self.all_lent(stock)),
        }
    }

    /// Whether the kernel did not give the queue when it was last wanted.
    pub(super) fn was_refused_by_kernel(&self, queue: u16) -> bool {
        self.withheld.contains(&queue)
    }

    /// The kernel has not given a queue that no client has.
    pub(super) fn withhold(&mut self, queue: u16) {
        self.withheld.insert(queue);
    }

    /// The kernel gives the queue again.
    pub(super) fn regain(&mut self, queue: u16) {
        self.withheld.remove(&queue);
    }

    /// A client has this queue from now on: the kernel gave it.
    pub(super) fn give(&mut self, id: ClientId, queue: u16) {
        self.withheld.remove(&queue);
        self.left.remove(&queue);
        if let Some(client) = self.get(id) {
            client.queue = Some(queue);
        }
    }

    /// The queue that a client has been given.
    pub(super) fn lent(&self, id: ClientId) -> Result<(u16, &Lent), Refusal> {
        let client = self.all.iter().find(|client| client.id == id);
        let lent = client.and_then(|client| Some((client.queue?, client.lent.as_ref()?)));
        lent.ok_or_else(|| Refusal::new(libc::EPROTO, "the client has no queue yet"))
    }

    /// The withheld queues of the client's rule, if the rule gives no others any more.
    fn withheld_of_rule(&mut self, id: ClientId) -> Result<Option<Vec<u16>>, Refusal> {
        let Some(client) = self.get(id) else { return Ok(None) };
        let rights = client.rights.clone();
        let Some((rule, queues)) = rights.queues() else { return Ok(None) };
        let is_of_rule = |client: &&Client| client.queue.is_some() && client.rights.queues() == Some((rule, queues));
        let holders: Vec<String> = self.all.iter().filter(is_of_rule).map(Client::name).collect();
        let had = |queue: &&u16| self.left.get(queue).and_then(ClientRights::queues) == Some((rule, queues));
        let withheld: Vec<u16> = self.withheld.iter().filter(had).copied().collect();
        if holders.len() < queues {
            return Ok((holders.len() + withheld.len() >= queues).then_some(withheld));
        }
        let sentence = format!(
            "{} gives {queues} queues at a time, and they are lent to {}: end it, or raise `queues` there, and reload",
            rule.name,
            holders[..holders.len().min(3)].join(" and ")
        );
        Err(Refusal::new(libc::EUSERS, sentence))
    }

    fn all_lent(&self, Stock { interface, queues, more }: Stock<'_>) -> Refusal {
        let holders: Vec<String> =
            self.all.iter().filter(|client| client.queue.is_some()).map(Client::name).take(3).collect();
        let sentence = format!(
            "all queues of {interface} are lent, {queues} in number, to {}: end it{more}",
            holders.join(" and ")
        );
        Refusal::new(libc::EBUSY, sentence)
    }

    pub(super) fn get(&mut self, id: ClientId) -> Option<&mut Client> {
        self.all.iter_mut().find(|client| client.id == id)
    }

    pub(super) fn remove(&mut self, id: ClientId) -> Option<Client> {
        let place = self.all.iter().position(|client| client.id == id)?;
        let removed = self.all.swap_remove(place);
        if let (Some(queue), Some(Lent::Queue(_))) = (removed.queue, &removed.lent) {
            self.left.insert(queue, removed.rights.clone());
        }
        if let Some(lent) = &removed.lent {
            self.keep(removed.peer.uid, lent, removed.memory);
        }
        Some(removed)
    }

    /// Takes the queue from a client that has closed it. Returns its number, if the client had one.
    pub(super) fn take_closed(&mut self, id: ClientId) -> Option<u16> {
        let client = self.get(id).filter(|client| client.has_closed)?;
        let (uid, bytes) = (client.peer.uid, core::mem::take(&mut client.memory));
        client.has_closed = false;
        let (lent, queue) = (client.lent.take()?, client.queue.take()?);
        self.keep(uid, &lent, bytes);
        Some(queue)
    }

    /// Counts what has been lent for its user for as long as a process has it.
    fn keep(&mut self, uid: u32, lent: &Lent, bytes: u64) {
        if uid != ROOT
            && let Ok(memory) = KeptMemory::watch(lent.memory())
        {
            self.kept.push(Kept { uid, bytes, memory });
        }
    }

    /// Packet buffers that no process has any more count for nobody. Two system calls for each of
    /// the others.
    pub(super) fn forget_given_back(&mut self) {
        self.kept.retain(|kept| !kept.memory.is_given_back());
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Client> {
        self.all.iter()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Client> {
        self.all.iter_mut()
    }
}

fn too_much(uid: u32, memory: u64, of_user_max: u64, end: &str) -> Refusal {
    let sentence = format!(
        "user {uid} would have {} MiB of packet buffers, and the broker lends a user {} MiB at most: {end}, or start \
         it with --user-memory {}",
        memory >> 20,
        of_user_max >> 20,
        (memory >> 20) + 1
    );
    Refusal::new(libc::ENOMEM, sentence)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::MetadataExt;
    use std::sync::Arc;

    use super::*;
    use crate::device::af_xdp::broker::forwarded::ForwardedQueue;
    use crate::mem::Region;
    use crate::worker::broker::rights::{BrokerRule, BrokerUser};

    fn add(clients: &mut Clients, uid: u32) -> Result<ClientId, Refusal> {
        add_with(clients, uid, ClientRights::User(BrokerUser { uid, low_ports: vec![] }))
    }

    fn add_with(clients: &mut Clients, uid: u32, rights: ClientRights) -> Result<ClientId, Refusal> {
        let id = connect(clients, uid, rights)?.0;
        clients.get(id).unwrap().is_known = true;
        Ok(id)
    }

    /// A connection without a hello, and the one that had to go for it.
    fn connect(clients: &mut Clients, uid: u32, rights: ClientRights) -> Result<(ClientId, Option<ClientId>), Refusal> {
        let (socket, peer) = (File::open("/dev/null").unwrap().into(), Peer { pid: 0, uid, groups: vec![] });
        clients.check_room(uid)?;
        let goes = clients.add(socket, peer, None, rights, Instant::now());
        Ok((ClientId(clients.next), goes))
    }

    fn stock(queues: u16) -> Stock<'static> {
        Stock { interface: "eth1", queues, more: "" }
    }

    /// A client gets the first queue that it may try.
    fn ask(clients: &mut Clients, id: ClientId, queues: u16) -> Result<u16, Refusal> {
        let queue = clients.candidates(id, stock(queues))?[0];
        clients.give(id, queue);
        Ok(queue)
    }

    /// A rule that gives one queue.
    fn rule(name: &str) -> Arc<BrokerRule> {
        let (name, users, groups, programs) = (name.to_owned(), None, None, None);
        let (ports, addresses, multicast) = (vec![], vec![], vec![]);
        Arc::new(BrokerRule { name, users, groups, programs, ports, addresses, multicast, queues: Some(1) })
    }

    #[test]
    fn queues_of_a_rule_are_bounded_for_all_programs_that_fit_it() {
        let mut clients = Clients::new(CLIENTS_OF_A_USER);
        let (rule, other) = (rule("rule 1 of broker.toml"), rule("rule 2 of broker.toml"));
        let mut add = |uid, rule: &Arc<BrokerRule>| add_with(&mut clients, uid, ClientRights::Rule(Arc::clone(rule)));
        let [first, second] = [1000, 1001].map(|uid| add(uid, &rule).unwrap());
        let third = add(1002, &other).unwrap();
        let ask = |clients: &mut Clients, id| ask(clients, id, 8);
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
        let mut clients = Clients::new(CLIENTS_OF_A_USER);
        for _ in 0..CLIENTS_OF_A_USER {
            add(&mut clients, 1000).unwrap();
        }
        let refusal = add(&mut clients, 1000).unwrap_err();
        assert!(
            refusal.sentence.starts_with("the broker has 32 connections of user 1000, one for each"),
            "{refusal:?}"
        );
        assert!(refusal.sentence.ends_with("or start it with --user-connections 64"), "{refusal:?}");
        for uid in 0..(CLIENTS_MAX - CLIENTS_OF_ROOT - CLIENTS_OF_A_USER) as u32 {
            add(&mut clients, 2000 + uid).unwrap();
        }
        add(&mut clients, 7).unwrap_err();
        clients.remove(ClientId(1)).unwrap();
        add(&mut clients, 7).unwrap();
        (0..CLIENTS_OF_ROOT).for_each(|_| _ = add(&mut clients, 0).unwrap());
        add(&mut clients, 0).unwrap_err();
    }

    #[test]
    fn operator_says_how_many_connections_a_user_may_have() {
        let mut clients = Clients::new(64);
        (0..64).for_each(|_| _ = add(&mut clients, 1000).unwrap());
        let refusal = add(&mut clients, 1000).unwrap_err();
        assert!(refusal.sentence.ends_with("or start it with --user-connections 120"), "{refusal:?}");
        // No more than that.
        let mut clients = Clients::new(120);
        (0..120).for_each(|_| _ = add(&mut clients, 1000).unwrap());
        let refusal = add(&mut clients, 1000).unwrap_err();
        assert!(refusal.sentence.ends_with("a user may have no more: end some"), "{refusal:?}");
    }

    #[test]
    fn connections_that_get_nothing_leave_room_for_others_and_end() {
        let mut clients = Clients::new(CLIENTS_OF_A_USER);
        let refusal = Refusal::new(libc::EACCES, "not this program");
        let served = add(&mut clients, 1000).unwrap();
        let mut gone = Vec::new();
        for idx in 0..100 {
            let rights = match idx % 2 {
                0 => ClientRights::OtherProgram(refusal.clone()),
                _ => ClientRights::User(BrokerUser { uid: 2000 + idx, low_ports: vec![] }),
            };
            let (id, goes) = connect(&mut clients, 2000 + idx, rights).unwrap();
            clients.get(id).unwrap().is_known = idx % 2 == 0;
            gone.extend(goes.map(|goes| clients.remove(goes).unwrap().id.0));
        }
        assert_eq!((clients.iter().count(), gone.len()), (1 + IDLE_MAX, 100 - IDLE_MAX));
        assert!(gone.is_sorted() && !gone.contains(&served.0), "the oldest first: {gone:?}");
        let late = Instant::now() + IDLE_AT_MOST;
        assert_eq!(clients.iter().filter(|client| client.is_late(late)).count(), IDLE_MAX);
        assert!(!clients.get(served).unwrap().is_late(late));
    }

    #[test]
    fn each_client_has_a_queue_and_the_next_one_is_told_who_has_the_last() {
        let mut clients = Clients::new(CLIENTS_OF_A_USER);
        let [first, second, third] = [1000, 1001, 1002].map(|uid| add(&mut clients, uid).unwrap());
        assert_eq!(ask(&mut clients, first, 2), Ok(0));
        assert_eq!(ask(&mut clients, first, 2), Ok(0), "the one it has");
        assert_eq!(ask(&mut clients, second, 2), Ok(1));
        let refusal = ask(&mut clients, third, 2).unwrap_err();
        assert_eq!(refusal.errno, libc::EBUSY);
        let says =
            "all queues of eth1 are lent, 2 in number, to process 0 of user 1000 and process 0 of user 1001: end it";
        assert!(refusal.sentence.starts_with(says), "{refusal:?}");
        clients.remove(first).unwrap();
        assert_eq!(ask(&mut clients, third, 2), Ok(0));
    }

    #[test]
    fn withheld_queue_is_tried_last_and_counts_for_the_rule_of_who_had_it() {
        let mut clients = Clients::new(CLIENTS_OF_A_USER);
        let rule = rule("rule 1 of broker.toml");
        let of_rule = |clients: &mut Clients| add_with(clients, 1000, ClientRights::Rule(Arc::clone(&rule))).unwrap();
        clients.left.insert(0, ClientRights::Rule(Arc::clone(&rule)));
        clients.withhold(0);
        let (other, greedy) = (add(&mut clients, 1001).unwrap(), of_rule(&mut clients));
        assert_eq!(clients.candidates(other, stock(3)), Ok(vec![1, 2, 0]));
        assert_eq!(clients.lent(greedy).err().unwrap().errno, libc::EPROTO, "a flow before a queue");
        assert_eq!(clients.candidates(greedy, stock(3)), Ok(vec![0]), "it is all that the rule gives");
        clients.give(other, 1);
        assert_eq!(clients.candidates(other, stock(3)), Ok(vec![1]));
        // The process that kept it has ended.
        clients.give(greedy, 0);
        let refusal = of_rule(&mut clients);
        assert_eq!(clients.candidates(refusal, stock(3)).unwrap_err().errno, libc::EUSERS);
    }

    #[test]
    fn memory_of_a_users_clients_is_bounded_in_sum() {
        let mut clients = Clients::new(CLIENTS_OF_A_USER);
        let mib = |mib: u64| QueueRequest {
            umem_len: mib << 20,
            chunk_len: 2048,
            rx_ring_len: 64,
            tx_ring_len: 64,
            address: 0,
        };
        let [first, second, other, root] = [1000, 1000, 1001, 0].map(|uid| add(&mut clients, uid).unwrap());
        clients.request_queue(first, mib(60), 100 << 20).unwrap();
        let refusal = clients.request_queue(second, mib(41), 100 << 20).unwrap_err();
        assert!(refusal.errno == libc::ENOMEM && refusal.sentence.contains("--user-memory 102"), "{refusal:?}");
        assert!(clients.get(second).unwrap().waits.is_none());
        clients.request_queue(second, mib(40), 100 << 20).unwrap();
        clients.request_queue(first, mib(60), 100 << 20).unwrap();
        clients.request_queue(other, mib(100), 100 << 20).unwrap();
        clients.request_queue(root, mib(101), 100 << 20).unwrap();
        clients.remove(second).unwrap();
        let third = add(&mut clients, 1000).unwrap();
        clients.request_queue(third, mib(40), 100 << 20).unwrap();
    }

    /// A client with packet buffers in place of a queue, and what its process has of them.
    fn with_memory(clients: &mut Clients, mib: u64, of_user_max: u64) -> Result<(ClientId, File), Refusal> {
        let request =
            QueueRequest { umem_len: mib << 20, chunk_len: 2048, rx_ring_len: 64, tx_ring_len: 64, address: 0 };
        let id = add(clients, 1000)?;
        let requested =
            clients.request_queue(id, request, of_user_max).and_then(|()| clients.check_kept(id, of_user_max));
        if let Err(refusal) = requested {
            clients.remove(id);
            return Err(refusal);
        }
        let (_, end) = ForwardedQueue::make(&request).unwrap();
        let lent = Lent::Forwarded(end);
        let theirs = lent.descriptors()[1].try_clone_to_owned().unwrap().into();
        clients.get(id).unwrap().lent = Some(lent);
        Ok((id, theirs))
    }

    #[test]
    fn packet_buffers_that_a_process_keeps_after_its_connection_count_for_its_user() {
        let mut clients = Clients::new(CLIENTS_OF_A_USER);
        let (first, kept) = with_memory(&mut clients, 3, 4 << 20).unwrap();
        clients.remove(first).unwrap();
        let refusal = with_memory(&mut clients, 2, 4 << 20).expect_err("3 MiB are kept by a descriptor");
        assert!(refusal.errno == libc::ENOMEM && refusal.sentence.contains("would have 5 MiB"), "{refusal:?}");
        let mapping = Region::shared(&kept, 3 << 20).unwrap();
        // A file for reading keeps no memory: its pages are given back.
        let to_read = File::open(format!("/proc/self/fd/{}", kept.as_raw_fd())).unwrap();
        drop(kept);
        assert!(with_memory(&mut clients, 2, 4 << 20).is_err(), "they are kept by a mapping");
        assert!(to_read.metadata().unwrap().blocks() > 0);
        drop(mapping);
        let (second, theirs) = with_memory(&mut clients, 2, 4 << 20).unwrap();
        assert_eq!(to_read.metadata().unwrap().blocks(), 0);
        // As most do: the process keeps nothing.
        drop(theirs);
        clients.remove(second).unwrap();
        with_memory(&mut clients, 4, 4 << 20).unwrap();
    }

    #[test]
    fn connections_whose_packet_buffers_are_kept_are_bounded() {
        let mut clients = Clients::new(CLIENTS_OF_A_USER);
        let mut kept = Vec::new();
        for _ in 0..KEPT_OF_A_USER_MAX {
            let (id, theirs) = with_memory(&mut clients, 1, u64::MAX).unwrap();
            clients.remove(id).unwrap();
            kept.push(theirs);
        }
        let refusal = with_memory(&mut clients, 1, u64::MAX).unwrap_err();
        assert!(refusal.errno == libc::EUSERS && refusal.sentence.contains("32 connections"), "{refusal:?}");
        kept.pop();
        with_memory(&mut clients, 1, u64::MAX).unwrap();
    }

    #[test]
    fn neighbors_are_resolved_at_a_limited_rate() {
        let mut clients = Clients::new(CLIENTS_OF_A_USER);
        let id = add(&mut clients, 1000).unwrap();
        let client = clients.get(id).unwrap();
        let now = Instant::now();
        assert!((0..RESOLVES_A_SECOND).all(|_| client.may_resolve(now)));
        assert!(!client.may_resolve(now));
        assert!(client.may_resolve(now + Duration::from_secs(1)));
    }
}
