//! The requests of one end on one connection, in order, and what must become of each.

use super::end::{ADD_AT, CONSTANT_AT, RECEIVE_AT, SWAP_AT, WRITE_AT};
use super::end::{Connection, DEPTH, SLOT, Shared, constant};
use super::random::Random;
use crate::roce::{CompletionKind, Status, WorkCompletion};
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
    /// How the first that failed did.
    pub(super) failure: Option<Status>,
    /// Requests whose receive has completed at the peer.
    received: usize,
    /// Receives that the peer posted, and that are complete.
    receives: (usize, usize),
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
    fn takes_receive(&self) -> bool {
        matches!(self.kind, Kind::Send | Kind::WriteImm) && !self.is_stray
    }
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
        self.requests.len()
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
        let kinds = kinds(own.transport);
        let kind = kinds[random.below(kinds.len() as u64) as usize];
        let invalidates = peer.window.map(|_| peer.remote_key).filter(|_| idx + 1 == count);
        let kind = if invalidates.is_some() { Kind::Send } else { kind };
        let longest = if own.transport == Transport::Ud { DATAGRAM_LEN } else { SLOT };
        let len = match (kind, random.below(3)) {
            (Kind::Add | Kind::Swap, _) => 8,
            (_, 0) => random.below(65) as usize,
            _ => random.below(longest as u64 + 1) as usize,
        };
        let finds = self.requests.iter().filter(|request| request.kind == kind).count() as u64;
        let slot = idx % DEPTH * SLOT;
        if !matches!(kind, Kind::Read | Kind::Add | Kind::Swap) {
            own.local.write(slot, &bytes(idx, len));
        }
        let at = |at: usize| Remote { address: peer.remote_mr.address + at as u64, rkey: peer.remote_key };
        let imm = (idx as u32).to_be_bytes();
        let operation = match kind {
            Kind::Send => invalidates.map_or(SendOperation::SendImm(imm), SendOperation::SendInvalidate),
            Kind::Write => SendOperation::Write(at(WRITE_AT + slot)),
            Kind::WriteImm => SendOperation::WriteImm(at(WRITE_AT + slot), imm),
            Kind::Read => SendOperation::Read(at(CONSTANT_AT)),
            Kind::Add => SendOperation::FetchAdd { remote: at(ADD_AT), add: 1 },
            Kind::Swap => SendOperation::CompareSwap { remote: at(SWAP_AT), compare: finds, swap: finds + 1 },
        };
        let sge = Sge { address: own.local_mr.address + slot as u64, len: len as u32, lkey: own.local_mr.key };
        let fence = random.happens(100);
        let data = [sge];
        let is_stray = own.destination.is_some() && random.happens(50);
        let with_key = |to: Destination| Destination { qkey: to.qkey + u32::from(is_stray), ..to };
        let request = SendRequest {
            // A READ that has to be answered again needs the window still.
            fence: fence || invalidates.is_some(),
            destination: own.destination.map(with_key),
            ..SendRequest::new(idx as u64, operation, Data::Sges(&data))
        };
        // The queue pair takes it: it is in RTS, or flushes it in ERR.
        if device.post_send(own.qp, &request).is_ok() {
            self.requests.push(Request { kind, len, finds, is_stray, invalidates });
        }
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
            // It takes no receive.
            self.requests.push(Request { kind: Kind::Send, len: 0, finds: 0, is_stray: true, invalidates: None });
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
        let sge = Sge { address: peer.local_mr.address + at as u64, len: SLOT as u32, lkey: peer.local_mr.key };
        if device.post_recv(peer.qp, 1 << 32 | posted as u64, &[sge]).is_ok() {
            self.receives.0 += 1;
        }
    }

    /// A request of ours is complete.
    pub(super) fn complete(
        &mut self,
        done: &WorkCompletion,
        own: &Connection,
        peer: &Connection,
    ) -> Result<(), String> {
        let idx = self.completed;
        let Some(request) = self.requests.get(idx).copied() else { return Err(format!("never posted: {done:?}")) };
        if done.wr_id != idx as u64 {
            return Err(format!("request {idx} is to complete, not {done:?}"));
        }
        self.completed += 1;
        match (self.failure, done.status) {
            (None, Status::Success) => {}
            (Some(_), Status::Flushed) => return Ok(()),
            (None, status) => {
                self.failure = Some(status);
                return Ok(());
            }
            (Some(failure), status) => return Err(format!("request {idx}: {status} behind {failure}")),
        }
        let slot = idx % DEPTH * SLOT;
        let is_right = match request.kind {
            // Nobody says that it has arrived.
            _ if own.transport != Transport::Rc => true,
            Kind::Send => true,
            // Its slot belongs to a later one if that is posted.
            Kind::Write | Kind::WriteImm => {
                idx + DEPTH < self.requests.len()
                    || read(&peer.remote, WRITE_AT + slot, request.len) == bytes(idx, request.len)
            }
            Kind::Read => (0..request.len).map(constant).eq(read(&own.local, slot, request.len)),
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
        let (at, memory) = match shared {
            Some(shared) => (shared.complete(done.wr_id), &shared.memory),
            None => (self.complete_receive(done.wr_id), &peer.local),
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
        let (kind, at, memory) = if request.kind == Kind::Send {
            (CompletionKind::Receive, at + header_len, memory)
        } else {
            (CompletionKind::ReceiveWriteImm, WRITE_AT + idx % DEPTH * SLOT, &peer.remote)
        };
        let byte_len = (header_len + request.len) as u32;
        let imm = request.invalidates.is_none().then_some((idx as u32).to_be_bytes());
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
            requests.nth(self.received)
        } else {
            let named = u32::from_be_bytes(done.imm?) as usize;
            requests.find(|(idx, _)| *idx == named)
        };
        found.map(|(idx, request)| (idx, *request))
    }

    /// Messages that the peer has received.
    pub(super) const fn received(&self) -> u64 {
        self.received as u64
    }

    /// After the last packet: each word says how many operations were executed, and each slot has
    /// what was last written to it.
    pub(super) fn check_end(&self, peer: &Connection) -> Result<(), String> {
        for (kind, at) in [(Kind::Add, ADD_AT), (Kind::Swap, SWAP_AT)] {
            let count = |requests: &[Request]| requests.iter().filter(|request| request.kind == kind).count() as u64;
            let succeeded = if self.failure.is_some() { 0 } else { self.completed };
            let (least, most) = (count(&self.requests[..succeeded]), count(&self.requests));
            let found = peer.remote.load_u64(at);
            if !(least..=most).contains(&found) {
                return Err(format!("{found} atomic operations were executed of {least} to {most}"));
            }
        }
        Ok(())
    }
}
