//! The requests of a client, one after the other, and the replies.

use core::net::Ipv4Addr;
use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::time::Instant;

use super::{Broker, system};
use crate::device::broker::message::{MESSAGE_LEN_MAX, Reply, Request, VERSION};
use crate::device::broker::request::QueueRequest;
use crate::device::broker::sys::{self, Events, Peer, Sender};
use crate::worker::broker::claims::Claim;
use crate::worker::broker::error::Refusal;
use crate::worker::broker::flows::{ClientId, ROOT};
use crate::worker::broker::port::{LendingPort, refusal};
use crate::worker::broker::refusals::OF_A_CLIENT;
use crate::worker::broker::rights::ClientRights;

/// A reply, with the descriptors that go with it.
pub(super) struct Answer {
    /// Without one the client waits.
    pub(super) reply: Option<Reply>,
    pub(super) icmp_errors: Option<OwnedFd>,
    /// The descriptors of the client's queue go with the reply.
    pub(super) has_queue: bool,
}

impl Broker {
    /// Handles one request of a client, or its end.
    pub(super) fn serve_client(&mut self, id: ClientId, events: &[Events], report: &mut dyn FnMut(&str)) {
        let has_died = events[1].is_readable;
        // One that waits for the answer to its request has no other, so it says nonsense. Requests
        // sent before the client closed its end are dropped.
        let waits = self.clients.get(id).is_some_and(|client| client.waits.is_some());
        let goes_on =
            !has_died && !events[0].has_ended && (!events[0].is_readable || (!waits && self.serve_one(id, report)));
        if !goes_on {
            self.end_client(id, report);
        }
    }

    /// Receives a request and replies; returns whether the client stays.
    fn serve_one(&mut self, id: ClientId, report: &mut dyn FnMut(&str)) -> bool {
        let Some(client) = self.clients.get(id) else { return false };
        let (uid, mut bytes, mut files) = (client.peer.uid, [0; MESSAGE_LEN_MAX], Vec::new());
        let has_room = self.closer.has_room(uid);
        let received = sys::receive_from_hostile(&client.socket, &mut bytes, has_room.then_some(&mut files));
        let request = match &received {
            Ok((len, _)) => Request::decode(&bytes[..*len]),
            Err(_) => None,
        };
        let shown = files.first().and_then(|file| match request? {
            Request::Claim { protocol, .. } => sys::cookie_of(file, protocol),
            _ => None,
        });
        // It waits until earlier files of its user are closed; one with too many files never is
        // read.
        let is_held = !has_room && received.as_ref().is_err_and(sys::has_unwanted_files);
        client.is_held = is_held;
        self.closer.close(uid, files);
        match received {
            _ if is_held => return true,
            Ok((0, _)) => return false,
            Ok((_, sender)) => sender.into_iter().for_each(|sender| self.lower(id, sender)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
            Err(error) if error.kind() == io::ErrorKind::InvalidData => (),
            Err(_) => return false,
        }
        self.counters.requests.inc();
        let is_nonsense = request.is_none();
        let answer = match request {
            Some(request) => self.answer(id, request, shown),
            None => Err(Refusal::new(libc::EBADMSG, "that is no request of this release: update the program")),
        };
        let answer = answer.unwrap_or_else(|refusal| self.refuse(id, refusal, report));
        self.reply(id, &answer) && !is_nonsense
    }

    /// Takes root's rights from a client of which another user has sent a request: its process has
    /// become that user, or has a child that has. It keeps what it has got so far.
    fn lower(&mut self, id: ClientId, sender: Sender) {
        let Some(client) = self.clients.get(id) else { return };
        if client.peer.uid != ROOT || sender.uid == ROOT {
            return;
        }
        client.peer = Peer { pid: client.peer.pid, uid: sender.uid, groups: vec![sender.gid] };
        let rights = self.rights.of(&client.peer, client.program.as_deref());
        client.rights = rights.unwrap_or_else(ClientRights::OtherProgram);
        // Those are root's, who needs none.
        self.claims.end(id, &HashSet::new(), Instant::now());
    }

    /// Does what a client asks for; `shown` is the number of the socket that came with it.
    fn answer(&mut self, id: ClientId, request: Request, shown: Option<u64>) -> Result<Answer, Refusal> {
        let Some(client) = self.clients.get(id) else { return Err(Refusal::new(libc::ENOTCONN, "no such client")) };
        if !client.is_known && !matches!(request, Request::Hello { .. }) {
            return Err(Refusal::new(libc::EPROTO, "a request came before the first, hello: update the program"));
        }
        match request {
            Request::Hello { version } => self.answer_hello(id, version),
            Request::Open { umem_len, chunk_len, rx_ring_len, tx_ring_len, address } => {
                self.request_queue(id, QueueRequest { umem_len, chunk_len, rx_ring_len, tx_ring_len, address })
            }
            Request::Connect => self.connect(id),
            Request::Disconnect => {
                let queue = client.queue;
                match (&self.forwarder, queue) {
                    (Some(forwarder), Some(queue)) => forwarder.set_receiving(queue.into(), false),
                    (None, Some(queue)) => {
                        self.device.disconnect(queue);
                        if self.device.disconnects_for_good() {
                            client.has_closed = client.lent.is_some();
                            self.ended.add(queue, self.flows.remove_all(|held| held.client == id));
                        }
                    }
                    (_, None) => (),
                }
                Ok(Reply::Done.into())
            }
            Request::Steer(flow) => self.steer(id, flow),
            Request::Unsteer { id: flow } => {
                let Some(given_up) = self.flows.remove(id, flow) else {
                    return Err(Refusal::new(libc::ENOENT, format!("the client has no flow {flow}")));
                };
                if let Some(held) = given_up {
                    self.unsteer(held);
                }
                Ok(Reply::Done.into())
            }
            Request::SetListening { id: flow, listening } => {
                let Some(held) = self.flows.get(id, flow) else {
                    return Err(Refusal::new(libc::ENOENT, format!("the client has no flow {flow}")));
                };
                if let (Some(forwarder), Some(queue)) = (&self.forwarder, client.queue) {
                    forwarder.set_listening(queue.into(), held.flow, listening);
                }
                Ok(Reply::Done.into())
            }
            Request::Resolve(address) => self.resolve(id, address),
            Request::Serve { uid } => {
                if client.peer.uid != 0 {
                    return Err(Refusal::new(libc::EPERM, "only root says whom the broker serves: run this as root"));
                }
                self.rights.serve(uid, self.config.serves_added_users)?;
                Ok(Reply::Done.into())
            }
            Request::Arm { word } => {
                // Without a reply. Where it fails the client has no queue of a NIC, and no sleep.
                let _ = self.of_nic(id, |device, queue| device.arm(queue, word));
                Ok(Answer { reply: None, icmp_errors: None, has_queue: false })
            }
            Request::Reset { half } => self.of_nic(id, |device, queue| device.reset(queue, half)),
            Request::Ready { half } => self.of_nic(id, |device, queue| device.ready(queue, half)),
            Request::Claim { protocol, port } => {
                let uid = client.peer.uid;
                let Some(cookie) = shown else {
                    let sentence = "a claim came without a TCP or UDP socket: send the socket with it, or try again";
                    return Err(Refusal::new(libc::EBADF, sentence));
                };
                self.claims.add(id, uid, Claim { cookie, protocol, port })?;
                Ok(Reply::Done.into())
            }
        }
    }

    /// Something with the client's queue that only a NIC does.
    fn of_nic(
        &mut self,
        id: ClientId,
        act: impl FnOnce(&mut dyn LendingPort, u16) -> io::Result<()>,
    ) -> Result<Answer, Refusal> {
        let queue = self.clients.lent(id)?.0;
        act(&mut *self.device, queue).map_err(|error| refusal(&error))?;
        Ok(Reply::Done.into())
    }

    fn answer_hello(&mut self, id: ClientId, version: u16) -> Result<Answer, Refusal> {
        if version != VERSION {
            let sentence =
                format!("the program speaks version {version} and the broker {VERSION}: use one release of both");
            return Err(Refusal::new(libc::EPROTONOSUPPORT, sentence));
        }
        let (ours, theirs) = UnixDatagram::pair().map_err(|error| system("a pair of sockets", &error))?;
        ours.set_nonblocking(true).map_err(|error| system("a socket that does not wait", &error))?;
        let Some(client) = self.clients.get(id) else { return Err(Refusal::new(libc::ENOTCONN, "no such client")) };
        client.is_known = true;
        let (uid, earlier) = (client.peer.uid, client.icmp_errors.replace(ours));
        earlier.into_iter().for_each(|socket| self.closer.end(uid, socket.into()));
        let reply = Reply::Welcome(self.device.welcome(self.forwarder.is_some()));
        Ok(Answer { icmp_errors: Some(theirs.into()), ..reply.into() })
    }

    fn resolve(&mut self, id: ClientId, address: Ipv4Addr) -> Result<Answer, Refusal> {
        let now = Instant::now();
        if !self.clients.get(id).is_some_and(|client| client.may_resolve(now)) {
            return Err(Refusal::new(libc::EAGAIN, "the client asks for more neighbors than a network has: slow down"));
        }
        if address.is_unspecified() || address.is_loopback() || address.is_multicast() || address.is_broadcast() {
            return Err(Refusal::new(libc::EINVAL, format!("{address} is no neighbor")));
        }
        let link = self.device.interface_idx();
        self.mirror.use_neighbor(link, address).map_err(|error| system("asking the kernel for a neighbor", &error))?;
        Ok(Reply::Done.into())
    }

    /// Logs a refusal, and makes it a reply.
    pub(super) fn refuse(&mut self, id: ClientId, refusal: Refusal, report: &mut dyn FnMut(&str)) -> Answer {
        self.counters.refuse(&refusal);
        if let Some((name, uid)) = self.clients.get(id).map(|client| (client.name(), client.peer.uid)) {
            self.say_refused(uid, OF_A_CLIENT, &name, &refusal, report);
        }
        Reply::Refused { errno: refusal.errno, sentence: refusal.sentence }.into()
    }

    /// Sends a reply; returns whether it was sent. The broker does not wait for a client that reads
    /// no replies.
    pub(super) fn reply(&mut self, id: ClientId, answer: &Answer) -> bool {
        let Some(client) = self.clients.get(id) else { return false };
        let mut descriptors: Vec<BorrowedFd<'_>> = answer.icmp_errors.iter().map(AsFd::as_fd).collect();
        if answer.has_queue {
            descriptors.extend(client.lent.iter().flat_map(|lent| lent.descriptors()));
        }
        let Some(reply) = &answer.reply else { return true };
        sys::send(&client.socket, &reply.encode(), &descriptors).is_ok()
    }
}

impl From<Reply> for Answer {
    fn from(reply: Reply) -> Self {
        Self { reply: Some(reply), icmp_errors: None, has_queue: false }
    }
}
