//! The requests of one end on one connection, in order, and what must become of each.

use super::end::{ADD_AT, CONSTANT_AT, RECEIVE_AT, SWAP_AT, WRITE_AT};
use super::end::{Connection, DEPTH, SLOT, Shared, constant, pieces};
use super::memory::{GUARD, WriteModel, is_untouched};
use super::random::Random;
use crate::roce::{CompletionKind, INLINE_MAX, Status, WorkCompletion};
use crate::roce::{Data, Destination, Device, GRH_LEN, Remote, SendOperation, SendRequest, Sge};
use crate::wire::opcode::Transport;

/// The longest datagram: a packet.
const DATAGRAM_LEN: usize = 1024;
/// The header of IPv4 in front of a datagram begins with this.
const IPV4: u8 = 0x45;

#[derive(Default)]
pub(super) struct Flow {
    requests: Vec<Request>,
    completed: usize,
    /// Of these, the ones that did what they are for.
    succeeded: usize,
    /// Requests that only keep a failed queue pair busy.
    fillers: usize,
    /// How the first that failed did.
    pub(super) failure: Option<Status>,
    /// Requests whose receive has completed at the peer, since the connection was made.
    received: usize,
    /// The same of connections before.
    received_before: usize,
    /// Receives that the peer posted, and that are complete.
    receives: (usize, usize),
    /// The first request of this connection, and what the words for atomic operations held then.
    first: usize,
    words: [u64; 2],
    written: WriteModel,
    /// Windows of the peer that were invalidated.
    pub(super) invalidated: u64,
}

#[derive(Clone, Copy)]
struct Request {
    kind: Kind,
    len: usize,
    /// For an atomic operation: the value that it must find.
    finds: u64,
    /// A datagram with another key than the receiver's.
    is_stray: bool,
    has_imm: bool,
    /// It has a completion also if it succeeds.
    is_signaled: bool,
    /// The key of a window that it invalidates.
    invalidates: Option<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Send,
    Write,
    WriteImm,
    Read,
    Add,
    Swap,
}

impl Request {
    /// What only keeps a failed queue pair busy: it takes no receive.
    const FILLER: Self = Self {
        kind: Kind::Send,
        len: 0,
        finds: 0,
        is_stray: true,
        has_imm: false,
        is_signaled: true,
        invalidates: None,
    };

    fn takes_receive(&self) -> bool {
        matches!(self.kind, Kind::Send | Kind::WriteImm) && !self.is_stray
    }

    fn is_write(&self) -> bool {
        matches!(self.kind, Kind::Write | Kind::WriteImm)
    }
}

impl Kind {
    /// Where the word of an atomic operation is, and which of [`Flow::words`] it is.
    const ATOMICS: [(Self, usize); 2] = [(Self::Add, ADD_AT), (Self::Swap, SWAP_AT)];
}

/// What a service has.
const fn kinds(transport: Transport) -> &'static [Kind] {
    use Kind::{Add, Read, Send, Swap, Write, WriteImm};
    match transport {
        Transport::Rc => &[Send, Write, WriteImm, Read, Add, Swap],
        Transport::Uc => &[Send, Write, WriteImm],
        Transport::Ud => &[Send],
    }
}

/// The bytes that request `idx` sends.
fn bytes(idx: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (idx * 31 + at * 7 + at / 256 + 5) as u8).collect()
}

fn read(memory: &crate::roce::Buffer, at: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    memory.read(at, &mut bytes);
    bytes
}

impl Flow {
    pub(super) fn posted(&self) -> usize {
        self.requests.len() - self.fillers
    }

    /// True if each request has a completion.
    pub(super) fn is_complete(&self) -> bool {
        self.completed == self.requests.len()
    }

    /// Posts a request, if there is room; the last of `count` invalidates the peer's window, if it
    /// has one.
    pub(super) fn post(
        &mut self,
        random: &mut Random,
        device: &mut Device,
        (own, peer): (&Connection, &Connection),
        count: usize,
    ) {
        let idx = self.requests.len();
        if idx - self.completed == DEPTH || own.is_destroyed {
            return;
        }
        let is_last = self.posted() + 1 == count;
        let invalidates = peer.window.map(|_| peer.remote_key).filter(|_| is_last);
        let request = Request {
            // Each fourth has a completion, so that the queue gets room.
            is_signaled: own.signals_all || is_last || idx % 4 == 3 || random.happens(500),
            invalidates,
            ..self.draw(random, own)
        };
        let request =
            if invalidates.is_some() { Request { kind: Kind::Send, has_imm: false, ..request } } else { request };
        let Request { kind, len, is_stray, is_signaled, .. } = request;
        let slot = idx % DEPTH * SLOT;
        let bytes = if kind == Kind::Read { vec![GUARD; SLOT] } else { bytes(idx, len) };
        own.local.write(slot, &bytes);
        let sge = Sge { address: own.local_mr.address + slot as u64, len: len as u32, lkey: own.local_mr.key };
        let (sges, is_inline) = (pieces(sge, random.below(3) as u32), random.below(4) == 0);
        let has_payload = matches!(kind, Kind::Send | Kind::Write | Kind::WriteImm);
        let data = match is_inline && has_payload && len <= INLINE_MAX {
            true => Data::Inline(&bytes),
            false => Data::Sges(if has_payload || kind == Kind::Read { &sges } else { core::slice::from_ref(&sge) }),
        };
        let with_key = |to: Destination| Destination { qkey: to.qkey + u32::from(is_stray), ..to };
        let posted = SendRequest {
            // A READ that has to be answered again needs the window still.
            fence: random.happens(100) || invalidates.is_some(),
            destination: own.destination.map(with_key),
            signaled: is_signaled,
            ..SendRequest::new(idx as u64, operation(&request, idx, peer), data)
        };
        // The queue pair takes it: it is in RTS, or flushes it in ERR.
        if device.post_send(own.qp, &posted).is_ok() {
            self.requests.push(request);
        }
    }

    /// A request of any kind and length.
    fn draw(&self, random: &mut Random, own: &Connection) -> Request {
        let kinds = kinds(own.transport);
        let kind = kinds[random.below(kinds.len() as u64) as usize];
        let longest = if own.transport == Transport::Ud { DATAGRAM_LEN } else { SLOT };
        let len = match (kind, random.below(3)) {
            (Kind::Add | Kind::Swap, _) => 8,
            (_, 0) => random.below(65) as usize,
            _ => random.below(longest as u64 + 1) as usize,
        };
        let before = Kind::ATOMICS.iter().position(|(other, _)| *other == kind).map_or(0, |at| self.words[at]);
        Request {
            kind,
            len,
            finds: before + self.count(kind, self.requests.len()),
            is_stray: own.destination.is_some() && random.happens(50),
            // Without one nobody knows which message of a service without acknowledgments it is.
            has_imm: own.transport != Transport::Rc || kind == Kind::WriteImm || random.happens(500),
            ..Request::FILLER
        }
    }

    /// Requests of a kind in this connection, of the first `end` in all.
    fn count(&self, kind: Kind, end: usize) -> u64 {
        let requests = self.requests.get(self.first..end).unwrap_or_default();
        requests.iter().filter(|request| request.kind == kind).count() as u64
    }

    /// Posts to a queue pair that has failed until its queue is full, as programs do that keep it
    /// busy.
    pub(super) fn fill(&mut self, device: &mut Device, own: &Connection) -> Result<(), String> {
        while self.requests.len() - self.completed <= DEPTH {
            let request = SendRequest {
                destination: own.destination,
                ..SendRequest::new(self.requests.len() as u64, SendOperation::Send, Data::Inline(b""))
            };
            if device.post_send(own.qp, &request).is_err() {
                return Ok(());
            }
            self.requests.push(Request::FILLER);
            self.fillers += 1;
        }
        Err(format!("a failed queue pair takes more than {DEPTH} requests"))
    }

    /// Posts a receive at the peer, if there is room.
    pub(super) fn post_receive(&mut self, device: &mut Device, peer: &Connection) {
        let (posted, done) = self.receives;
        if posted - done == DEPTH || peer.is_destroyed {
            return;
        }
        let at = RECEIVE_AT + posted % DEPTH * SLOT;
        peer.local.write(at, &[GUARD; SLOT]);
        let sge = Sge { address: peer.local_mr.address + at as u64, len: SLOT as u32, lkey: peer.local_mr.key };
        if device.post_recv(peer.qp, 1 << 32 | posted as u64, &pieces(sge, posted as u32)).is_ok() {
            self.receives.0 += 1;
        }
    }

    /// A request of ours is complete, and with it those before that have no completion.
    pub(super) fn complete(
        &mut self,
        done: &WorkCompletion,
        own: &Connection,
        peer: &Connection,
    ) -> Result<(), String> {
        let idx = done.wr_id as usize;
        let has_none = |request: &Request| !request.is_signaled;
        while self.completed < idx && self.failure.is_none() && self.requests.get(self.completed).is_some_and(has_none)
        {
            self.succeed(own, peer)?;
        }
        if idx != self.completed || idx >= self.requests.len() {
            return Err(format!("request {} is to complete, not {done:?}", self.completed));
        }
        match (self.failure, done.status) {
            (None, Status::Success) if !self.requests[idx].is_signaled => {
                return Err(format!("request {idx} has a completion that it does not want"));
            }
            (None, Status::Success) => return self.succeed(own, peer),
            (Some(_), Status::Flushed) => {}
            (None, status) => self.failure = Some(status),
            (Some(failure), status) => return Err(format!("request {idx}: {status} behind {failure}")),
        }
        self.completed += 1;
        Ok(())
    }

    /// The next request has done what it is for.
    fn succeed(&mut self, own: &Connection, peer: &Connection) -> Result<(), String> {
        let idx = self.completed;
        let (request, slot) = (self.requests[idx], idx % DEPTH * SLOT);
        (self.completed, self.succeeded) = (idx + 1, idx + 1);
        let is_right = match request.kind {
            // Nobody says that it has arrived.
            _ if own.transport != Transport::Rc => true,
            Kind::Send => true,
            Kind::Write | Kind::WriteImm => {
                let found = read(&peer.remote, WRITE_AT + slot, SLOT);
                self.written.apply(slot, &bytes(idx, request.len), &found)
            }
            Kind::Read => {
                let found = read(&own.local, slot, SLOT);
                let (answer, behind) = found.split_at(request.len);
                (0..request.len).map(constant).eq(answer.iter().copied()) && is_untouched(behind)
            }
            Kind::Add | Kind::Swap => own.local.load_u64(slot) == request.finds,
        };
        if is_right { Ok(()) } else { Err(format!("request {idx}: memory is not what it was sent to be")) }
    }

    /// A receive of the peer is complete, of its own queue or of the shared one.
    pub(super) fn receive(
        &mut self,
        done: &WorkCompletion,
        peer: &Connection,
        shared: Option<&mut Shared>,
    ) -> Result<(), String> {
        // What an unreliable connection has dropped leaves its bytes in a receive.
        let (at, memory, is_clean) = match shared {
            Some(shared) => (shared.complete(done.wr_id), &shared.memory, shared.is_clean),
            None => (self.complete_receive(done.wr_id), &peer.local, peer.transport != Transport::Uc),
        };
        let Some(at) = at else { return Err(format!("no such receive is to complete: {done:?}")) };
        if done.status != Status::Success {
            return Ok(());
        }
        let Some((idx, request)) = self.received_request(done, peer.transport) else {
            return Err(format!("never sent: {done:?}"));
        };
        self.received += 1;
        self.invalidated += u64::from(request.invalidates.is_some());
        let header_len = if peer.transport == Transport::Ud { GRH_LEN } else { 0 };
        let (kind, filled) = match request.kind {
            Kind::Send => (CompletionKind::Receive, header_len + request.len),
            _ => (CompletionKind::ReceiveWriteImm, 0),
        };
        if is_clean && !is_untouched(&read(memory, at + filled, SLOT - filled)) {
            return Err(format!("the receive of request {idx}: bytes behind it"));
        }
        let (at, memory) = match request.kind {
            Kind::Send => (at + header_len, memory),
            _ => (WRITE_AT + idx % DEPTH * SLOT, &peer.remote),
        };
        let byte_len = (header_len + request.len) as u32;
        let imm = request.has_imm.then_some((idx as u32).to_be_bytes());
        let expected = (kind, byte_len, imm, request.invalidates);
        if (done.kind, done.byte_len, done.imm, done.invalidated) != expected {
            return Err(format!("a receive is to be {expected:?}, not {done:?}"));
        }
        if header_len > 0 && (done.source.is_none() || read(memory, at - 20, 1) != [IPV4]) {
            return Err(format!("request {idx}: a datagram without its header: {done:?}"));
        }
        if read(memory, at, request.len) != bytes(idx, request.len) {
            return Err(format!("the receive of request {idx}: other bytes"));
        }
        Ok(())
    }

    /// The first receive of the queue is complete; where its memory begins, if it is that.
    fn complete_receive(&mut self, wr_id: u64) -> Option<usize> {
        let receive = self.receives.1;
        self.receives.1 += 1;
        let is_first = wr_id == 1 << 32 | receive as u64;
        is_first.then_some(RECEIVE_AT + receive % DEPTH * SLOT)
    }

    /// The request that a receive is of: over a reliable connection the next; else any that was
    /// sent, for some are lost, and a frame that comes twice is received twice.
    fn received_request(&self, done: &WorkCompletion, by: Transport) -> Option<(usize, Request)> {
        let takes_receive = |(_, request): &(usize, &Request)| request.takes_receive();
        let mut requests = self.requests.iter().enumerate().filter(takes_receive);
        let found = if by == Transport::Rc {
            requests.filter(|(idx, _)| *idx >= self.first).nth(self.received)
        } else {
            let named = u32::from_be_bytes(done.imm?) as usize;
            requests.find(|(idx, _)| *idx == named)
        };
        found.map(|(idx, request)| (idx, *request))
    }

    /// Messages that the peer has received.
    pub(super) const fn received(&self) -> u64 {
        (self.received_before + self.received) as u64
    }

    /// True if the peer has flushed, or used, all receives that it posted for us.
    pub(super) const fn has_all_receives(&self) -> bool {
        self.receives.0 == self.receives.1
    }

    /// Both queue pairs begin anew. What was under way is done or is not, and nobody says which;
    /// but it is not done later.
    pub(super) fn restart(&mut self, own: &Connection, peer: &Connection) -> Result<(), String> {
        self.check_memory(own, peer)?;
        self.written.settle(read(&peer.remote, WRITE_AT, DEPTH * SLOT));
        self.words = Kind::ATOMICS.map(|(_, at)| peer.remote.load_u64(at));
        self.first = self.requests.len();
        (self.completed, self.succeeded, self.failure) = (self.first, self.first, None);
        self.received_before += core::mem::take(&mut self.received);
        self.receives.1 = self.receives.0;
        Ok(())
    }

    /// After the last packet: what [`check_memory`](Self::check_memory) says, and each message has
    /// completed a receive.
    pub(super) fn check_end(&self, own: &Connection, peer: &Connection) -> Result<(), String> {
        let sent = self.requests.iter().skip(self.first).filter(|request| request.takes_receive()).count();
        if own.transport == Transport::Rc && self.failure.is_none() && !own.is_destroyed && sent != self.received {
            return Err(format!("{} receives are complete of {sent} messages", self.received));
        }
        self.check_memory(own, peer)
    }

    /// Each word says how many operations were executed, and each slot has what was last written to
    /// it, and nothing else.
    fn check_memory(&self, own: &Connection, peer: &Connection) -> Result<(), String> {
        for ((kind, at), before) in Kind::ATOMICS.into_iter().zip(self.words) {
            let least = before + self.count(kind, self.succeeded);
            let most = before + self.count(kind, self.requests.len());
            let found = peer.remote.load_u64(at);
            if !(least..=most).contains(&found) {
                return Err(format!("{found} atomic operations were executed of {least} to {most}"));
            }
        }
        // Nobody knows what of an unreliable connection has arrived.
        let known = if own.transport == Transport::Rc { self.succeeded } else { 0 };
        let unknown = self.requests.iter().enumerate().skip(known).filter(|(_, request)| request.is_write());
        let unknown: Vec<_> = unknown.map(|(idx, request)| (idx % DEPTH * SLOT, bytes(idx, request.len))).collect();
        let found = read(&peer.remote, WRITE_AT, DEPTH * SLOT);
        if self.written.is_like(&found, &unknown) { Ok(()) } else { Err("a slot has other bytes".into()) }
    }
}

/// What is posted for it.
fn operation(request: &Request, idx: usize, peer: &Connection) -> SendOperation {
    let at = |at: usize| Remote { address: peer.remote_mr.address + at as u64, rkey: peer.remote_key };
    let (slot, imm) = (WRITE_AT + idx % DEPTH * SLOT, (idx as u32).to_be_bytes());
    match request.kind {
        Kind::Send if request.has_imm => SendOperation::SendImm(imm),
        Kind::Send => request.invalidates.map_or(SendOperation::Send, SendOperation::SendInvalidate),
        Kind::Write => SendOperation::Write(at(slot)),
        Kind::WriteImm => SendOperation::WriteImm(at(slot), imm),
        Kind::Read => SendOperation::Read(at(CONSTANT_AT)),
        Kind::Add => SendOperation::FetchAdd { remote: at(ADD_AT), add: 1 },
        Kind::Swap => {
            SendOperation::CompareSwap { remote: at(SWAP_AT), compare: request.finds, swap: request.finds + 1 }
        }
    }
}
