//! The venue's connection as a run has it: bytes that came, bytes that are to leave, and what is to
//! be done with TCP when the call is over.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddrV4;
use std::rc::Rc;

use arrayvec::ArrayVec;

use crate::host::Stream;

/// Bytes that wait for the run, of which the connection is paused: the run reads 64 KiB a turn.
pub(super) const INBOX_MAX: usize = 1 << 20;

/// What is to be done with TCP, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    /// Call this address.
    Call(SocketAddrV4),
    /// Send no more behind what was written, and go on receiving.
    CloseSending,
    /// Close, behind what was written.
    Close,
    /// Reset: what has not left never does.
    Reset,
}

#[derive(Debug, Default)]
pub(super) enum Phase {
    /// There is none.
    #[default]
    Idle,
    /// It was called.
    Calling,
    Open,
    /// The venue sends no more.
    PeerClosed,
    /// It is gone, or was never made.
    Failed(String),
}

/// Both sides of the connection share one.
#[derive(Debug, Default)]
pub(super) struct Shared {
    pub(super) phase: Phase,
    pub(super) inbox: VecDeque<u8>,
    /// Written by the run and not taken by TCP. The run writes nothing more before it is empty.
    pub(super) outbox: Vec<u8>,
    /// At most both steps of one connection's end and the next call.
    pub(super) requests: ArrayVec<Request, 8>,
}

impl Shared {
    fn request(&mut self, request: Request) {
        let pushed = self.requests.try_push(request);
        debug_assert!(pushed.is_ok(), "requests of several turns wait");
    }
}

/// One hand on it; clones are of the same connection.
#[derive(Clone, Debug, Default)]
pub struct Endpoint(pub(super) Rc<RefCell<Shared>>);

impl Endpoint {
    /// Calls `to` when the run's turn is over.
    pub(super) fn call(&self, to: SocketAddrV4) -> Box<dyn Stream> {
        let mut shared = self.0.borrow_mut();
        shared.phase = Phase::Calling;
        shared.inbox.clear();
        shared.outbox.clear();
        shared.request(Request::Call(to));
        Box::new(Connection { endpoint: self.clone(), is_reset: false })
    }
}

/// One connection.
#[derive(Debug)]
struct Connection {
    endpoint: Endpoint,
    is_reset: bool,
}

impl Read for Connection {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let mut shared = self.endpoint.0.borrow_mut();
        if !shared.inbox.is_empty() {
            return shared.inbox.read(bytes);
        }
        match &shared.phase {
            Phase::PeerClosed => Ok(0),
            Phase::Failed(why) => Err(io::Error::other(why.clone())),
            Phase::Idle | Phase::Calling | Phase::Open => Err(ErrorKind::WouldBlock.into()),
        }
    }
}

impl Write for Connection {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut shared = self.endpoint.0.borrow_mut();
        match &shared.phase {
            Phase::Failed(why) => return Err(io::Error::other(why.clone())),
            Phase::Open | Phase::PeerClosed if shared.outbox.is_empty() => (),
            _ => return Err(ErrorKind::WouldBlock.into()),
        }
        shared.outbox.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Stream for Connection {
    fn is_open(&self) -> io::Result<bool> {
        match &self.endpoint.0.borrow().phase {
            Phase::Open | Phase::PeerClosed => Ok(true),
            Phase::Idle | Phase::Calling => Ok(false),
            Phase::Failed(why) => Err(io::Error::other(why.clone())),
        }
    }

    fn close_sending(&mut self) -> io::Result<()> {
        let mut shared = self.endpoint.0.borrow_mut();
        if !shared.outbox.is_empty() {
            return Err(ErrorKind::WouldBlock.into());
        }
        shared.request(Request::CloseSending);
        Ok(())
    }

    fn reset(mut self: Box<Self>) -> io::Result<()> {
        self.is_reset = true;
        Ok(())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let mut shared = self.endpoint.0.borrow_mut();
        if self.is_reset {
            // What the run wrote and TCP has not is of a connection that is over.
            shared.outbox.clear();
        }
        shared.inbox.clear();
        shared.phase = Phase::Idle;
        shared.request(if self.is_reset { Request::Reset } else { Request::Close });
    }
}
