//! A connection by RDMA_CM: asked for or awaited, used, and ended.

use std::error::Error;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use ::rdma::cm::{CmEvent, CmId, ConnectOptions, ListenOptions, LocalQp, PortSpace, RejectReason};
use ::rdma::roce::{CompletionKind, Status};
use ::rdma::wire::opcode::Transport;

use super::end::{End, RD_ATOMICS, failure};

/// The longest time between two steps of a peer: it may be a slow machine.
const STEP_MAX: Duration = Duration::from_secs(120);
/// How long the last word to a peer may take to leave.
const FAREWELL_MAX: Duration = Duration::from_secs(1);
/// Times that a packet, and a message without a receive, is sent again.
const RETRIES: u8 = 7;

/// Times that a peer may take us for an earlier connection of ours: it ends that one, and is asked
/// again.
const STALE_MAX: u32 = 3;

/// A connected end, and what has completed on it.
pub(super) struct Connected {
    id: CmId,
    pub(super) peer: Ipv4Addr,
    /// Receives and requests that have completed, and nobody has asked for yet.
    received: u32,
    sent: u32,
    has_ended: bool,
    /// The peer may have all that it waits for.
    may_end: bool,
}

impl Connected {
    /// Connects to a peer that listens at `port`, and asks again where it takes us for a process
    /// before ours that ended without a word. `post` posts the receives, before each request.
    /// `other` is how the other end is started.
    pub(super) fn connect(
        end: &mut End,
        (peer, port): (Ipv4Addr, u16),
        other: &str,
        post: impl Fn(&mut End) -> Result<(), Box<dyn Error>>,
    ) -> Result<Self, Box<dyn Error>> {
        let mut stale = 0;
        loop {
            post(end)?;
            match Self::ask(end, peer, port)? {
                (id, CmEvent::Established(_)) => return Ok(Self::new(id, peer)),
                (id, CmEvent::Rejected(_, RejectReason::StaleConnection)) if stale < STALE_MAX => {
                    stale += 1;
                    end.with_manager(|now, manager, device| manager.destroy(now, device, id))?;
                    end.renew()?;
                }
                (_, CmEvent::Rejected(_, reason)) => {
                    let start = format!("start the other end there first, with {other}");
                    return Err(format!("{peer}, port {port} of RDMA_CM: {reason}; {start}").into());
                }
                (_, CmEvent::Unreachable(_)) => {
                    return Err(format!("{peer} does not answer by RDMA_CM: is RDMA up there?").into());
                }
                (_, other) => return Err(format!("{peer}: not connected: {other:?}").into()),
            }
        }
    }

    /// Asks once; what became of it.
    fn ask(end: &mut End, peer: Ipv4Addr, port: u16) -> Result<(CmId, CmEvent), Box<dyn Error>> {
        let addresses = end.path(peer)?.addresses;
        let (qp, local, mtu) = (end.qp(), local(end), end.mtu());
        let options = ConnectOptions {
            addresses,
            port,
            qp: local,
            transport: Transport::Rc,
            mtu,
            retry_cnt: RETRIES,
            private_data: &[],
        };
        let id = end.with_manager(|now, manager, _| manager.connect(now, qp, &options))?;
        event(end).map(|event| (id, event)).inspect_err(|_| give_up(end, id))
    }

    /// Waits for one peer, and grants what it asks for; receives are posted.
    pub(super) fn accept(end: &mut End, port: u16) -> Result<Self, Box<dyn Error>> {
        let listen = ListenOptions { space: PortSpace::Tcp, port, backlog: 1 };
        end.with_manager(|_, manager, _| manager.cm_mut().listen(&listen))?;
        let request = loop {
            end.turn();
            match end.with_manager(|_, manager, _| manager.next_event()) {
                Some(CmEvent::ConnectRequest(request)) => break request,
                Some(other) => return Err(format!("no connection: {other:?}").into()),
                None if end.is_stopping() => return Err("stopped before a peer came".into()),
                None => (),
            }
        };
        let peer = request.addresses.peer().to_ipv4_mapped().ok_or("the peer has no IPv4 address")?;
        let (qp, local) = (end.qp(), local(end));
        end.with_manager(|_, manager, _| manager.accept(request.id, qp, &local, &[]))?;
        let why = match event(end) {
            Ok(CmEvent::Established(_)) => return Ok(Self::new(request.id, peer)),
            Ok(CmEvent::ConnectError(_, error)) => format!("{peer}: {error}").into(),
            Ok(other) => format!("{peer} asked, and was not connected: {other:?}").into(),
            Err(error) => error,
        };
        give_up(end, request.id);
        Err(why)
    }

    /// What the peer's program said when it granted the connection.
    pub(super) fn private_data(&self, end: &mut End) -> Vec<u8> {
        end.with_manager(|_, manager, _| manager.cm().private_data(self.id).map(<[u8]>::to_vec)).unwrap_or_default()
    }

    const fn new(id: CmId, peer: Ipv4Addr) -> Self {
        Self { id, peer, received: 0, sent: 0, has_ended: false, may_end: false }
    }

    /// Waits for a message; false where the peer has ended the connection instead.
    pub(super) fn receive(&mut self, end: &mut End) -> Result<bool, Box<dyn Error>> {
        self.wait(end, |connected| connected.received.checked_sub(1).map(|rest| connected.received = rest))
    }

    /// Waits for the completion of a request.
    pub(super) fn sent(&mut self, end: &mut End) -> Result<(), Box<dyn Error>> {
        match self.wait(end, |connected| connected.sent.checked_sub(1).map(|rest| connected.sent = rest))? {
            true => Ok(()),
            false => Err("the peer has ended the connection before a request was complete".into()),
        }
    }

    /// Waits for the completion of a request that may be the last. A peer that has its message may
    /// end the connection, and take the acknowledgment with it: that it ends says as much.
    pub(super) fn last_sent(&mut self, end: &mut End) -> Result<(), Box<dyn Error>> {
        self.may_end = true;
        self.wait(end, |connected| connected.sent.checked_sub(1).map(|rest| connected.sent = rest))?;
        self.may_end = false;
        Ok(())
    }

    fn wait(&mut self, end: &mut End, mut take: impl FnMut(&mut Self) -> Option<()>) -> Result<bool, Box<dyn Error>> {
        let begun = Instant::now();
        loop {
            if take(self).is_some() {
                return Ok(true);
            }
            if self.has_ended {
                return Ok(false);
            }
            if end.is_stopping() {
                return Err("stopped before the end".into());
            }
            if begun.elapsed() > STEP_MAX {
                return Err(format!("nothing happened for {} s: the peer is silent", STEP_MAX.as_secs()).into());
            }
            end.turn();
            self.has_ended |= matches!(next_event(end), Some(CmEvent::Disconnected(_)));
            // Those of the last turn may be in front of the end, behind which all are flushed.
            while let Some(done) = end.next_completion() {
                match (done.status, done.kind) {
                    (Status::Success, CompletionKind::Receive) => self.received += 1,
                    (Status::Success, _) => self.sent += 1,
                    (Status::Flushed, _) if self.has_ended || self.may_end => (),
                    // That it ends is told again until it is heard, for longer than a request is.
                    (Status::RetryExceeded, _) if self.may_end => (),
                    _ => return Err(failure(done).into()),
                }
            }
        }
    }

    /// Plays a game, and ends the connection. Behind a game that has failed the peer is told at
    /// least: it may wait for a message, without a timeout of its own.
    pub(super) fn play<T>(
        mut self,
        end: &mut End,
        game: impl FnOnce(&mut End, &mut Self) -> Result<T, Box<dyn Error>>,
    ) -> Result<T, Box<dyn Error>> {
        match game(end, &mut self) {
            Ok(played) => self.end(end).map(|()| played),
            Err(error) => {
                self.give_up(end);
                Err(error)
            }
        }
    }

    /// Tells the peer at least that this end goes.
    pub(super) fn give_up(self, end: &mut End) {
        give_up(end, self.id);
    }

    /// Ends the connection, unless the peer has, and waits until nothing late can come: a peer that
    /// has not heard the answer asks again. Where that is stopped, the peer has been told at least.
    pub(super) fn end(self, end: &mut End) -> Result<(), Box<dyn Error>> {
        let id = self.id;
        self.wait_for_timewait_exit(end).inspect_err(|_| give_up(end, id))
    }

    fn wait_for_timewait_exit(self, end: &mut End) -> Result<(), Box<dyn Error>> {
        if !self.has_ended {
            // The peer may have ended it just now.
            let _ = end.with_manager(|now, manager, device| manager.disconnect(now, device, self.id));
        }
        loop {
            if let CmEvent::TimewaitExit(_) = event(end)? {
                return Ok(());
            }
        }
    }

    /// Waits for the peer to end the connection.
    pub(super) fn wait_for_end(&mut self, end: &mut End) -> Result<(), Box<dyn Error>> {
        while self.receive(end)? {}
        Ok(())
    }
}

/// Takes back what was asked for, or ends the connection, by one message, as Linux does where a
/// program ends.
pub(super) fn give_up(end: &mut End, id: CmId) {
    let begun = Instant::now();
    // The peer may have ended it just now.
    let _ = end.with_manager(|now, manager, device| manager.destroy(now, device, id));
    while end.with_manager(|_, manager, _| manager.is_waiting()) && begun.elapsed() < FAREWELL_MAX {
        end.turn();
    }
    // The frame is handed to the port's queue in a turn, and leaves with its doorbell.
    end.turn();
}

/// What the peer is told of our queue pair.
fn local(end: &End) -> LocalQp {
    LocalQp {
        qpn: end.qpn(),
        psn: end.psn(),
        responder_resources: RD_ATOMICS,
        initiator_depth: RD_ATOMICS,
        rnr_retry: RETRIES,
        srq: false,
    }
}

/// The next event of a connection. Who asks for another one is refused: an end has one queue pair.
fn next_event(end: &mut End) -> Option<CmEvent> {
    end.with_manager(|now, manager, device| {
        while let Some(event) = manager.next_event() {
            let CmEvent::ConnectRequest(request) = event else { return Some(event) };
            // The peer may have given up just now.
            let _ = manager.cm_mut().reject(now, request.id, RejectReason::NoResources, &[]);
            let _ = manager.destroy(now, device, request.id);
        }
        None
    })
}

/// Turns the worker until something happens to a connection.
pub(super) fn event(end: &mut End) -> Result<CmEvent, Box<dyn Error>> {
    let begun = Instant::now();
    while begun.elapsed() < STEP_MAX {
        end.turn();
        if let Some(event) = next_event(end) {
            return Ok(event);
        }
        if end.is_stopping() {
            return Err("stopped before the end".into());
        }
    }
    Err("the connection manager of the peer is silent".into())
}
