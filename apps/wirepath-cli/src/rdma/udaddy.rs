//! The game of udaddy: the client finds the server's queue pair of datagrams by its port (SIDR) and
//! sends all its messages, each with the number of its own queue pair; then the server sends its
//! own there.

use std::error::Error;
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::time::Instant;

use ::rdma::cm::{CmEvent, ConnectRequest, ListenOptions, PortSpace, SidrStatus};
use ::rdma::roce::{CompletionKind, GRH_LEN, SendOperation, WorkCompletion};
use ::rdma::wire::qpn::Qpn;
use wirepath::worker::StopFlag;

use super::cm::{event, give_up};
use super::end::{End, RECEIVES};
use super::over::Choice;
use super::{EndOptions, Service};

/// The port that udaddy listens at, of datagrams.
const PORT: u16 = 7174;
/// The key of all queue pairs of datagrams that rdmacm makes (`RDMA_UDP_QKEY`).
const QKEY: u32 = 0x0123_4567;

/// Plays one game.
pub(super) fn run(options: &EndOptions, stop: &StopFlag) -> Result<(), Box<dyn Error>> {
    let EndOptions { size, count, .. } = *options;
    if count > RECEIVES {
        return Err(
            format!("udaddy has all messages under way at once, and here {RECEIVES} can: choose --count").into()
        );
    }
    let mut end = End::open(options, Service::Ud, (2 * size + GRH_LEN as u32, count), Choice::port(), stop)?;
    end.take_qkey(QKEY)?;
    for _ in 0..count {
        end.post_recv(GRH_LEN + size as usize, size)?;
    }
    let port = options.port.unwrap_or(PORT);
    let begun = Instant::now();
    let peer = match options.peer {
        Some(peer) => {
            resolve(&mut end, peer, port)?;
            send_all(&mut end, options)?;
            receive_all(&mut end, None, options)?;
            peer
        }
        None => {
            let peer = listen(&mut end, port)?;
            receive_all(&mut end, Some(peer), options)?;
            send_all(&mut end, options)?;
            // The last frame is handed to the port's queue, and leaves with its doorbell.
            end.turn();
            peer
        }
    };
    writeln!(
        io::stdout().lock(),
        "{count} datagrams of {size} bytes each way, with {peer} by RDMA_CM, in {:.3} s; MTU {}; {}",
        begun.elapsed().as_secs_f64(),
        end.mtu(),
        end.arrivals(),
    )?;
    Ok(())
}

/// Asks the peer which queue pair takes the datagrams of its port.
fn resolve(end: &mut End, peer: Ipv4Addr, port: u16) -> Result<(), Box<dyn Error>> {
    let path = end.path(peer)?;
    let id = end.with_manager(|now, manager, _| manager.cm_mut().resolve(now, path.addresses, port, &[]))?;
    match event(end).inspect_err(|_| give_up(end, id))? {
        CmEvent::Resolved(_, qpn, qkey) => end.open_datagrams(path, (qpn, qkey)),
        CmEvent::NotResolved(_, status) => {
            let start = "start the other end there first, with --serve";
            Err(format!("{peer}, port {port} of RDMA_CM's datagrams: {status:?}; {start}").into())
        }
        CmEvent::Unreachable(_) => Err(format!("{peer} does not answer by RDMA_CM: is RDMA up there?").into()),
        other => Err(format!("{peer}: not resolved: {other:?}").into()),
    }
}

/// Waits for one peer, and tells it our queue pair.
fn listen(end: &mut End, port: u16) -> Result<Ipv4Addr, Box<dyn Error>> {
    let listen = ListenOptions { space: PortSpace::Udp, port, backlog: 1 };
    end.with_manager(|_, manager, _| manager.cm_mut().listen(&listen))?;
    let request = loop {
        end.turn();
        match end.with_manager(|_, manager, _| manager.next_event()) {
            Some(CmEvent::ConnectRequest(request)) => break request,
            Some(other) => return Err(format!("nobody asked: {other:?}").into()),
            None if end.is_stopping() => return Err("stopped before a peer came".into()),
            None => (),
        }
    };
    let peer = request.addresses.peer().to_ipv4_mapped().ok_or("the peer has no IPv4 address")?;
    // Its queue pair it names with its messages.
    let path = end.path(peer)?;
    end.open_datagrams(path, (Qpn::new(0), QKEY))?;
    let ours = (end.qpn(), QKEY);
    answer(end, &request, Ok(ours))?;
    Ok(peer)
}

/// Answers, and again where the peer has not heard it, until the request's place is free.
fn answer(
    end: &mut End,
    request: &ConnectRequest,
    answer: Result<(Qpn, u32), SidrStatus>,
) -> Result<(), Box<dyn Error>> {
    end.with_manager(|now, manager, device| {
        manager.cm_mut().answer_datagrams(now, request.id, answer, &[])?;
        Ok(manager.destroy(now, device, request.id)?)
    })
}

/// Sends all messages, and waits until they have left.
fn send_all(end: &mut End, options: &EndOptions) -> Result<(), Box<dyn Error>> {
    let qpn = end.qpn().get().to_be_bytes();
    for _ in 0..options.count {
        end.post(SendOperation::SendImm(qpn), options.size)?;
    }
    // A datagram is complete when it has left, so before the first answer to all of them.
    let mut sent = 0;
    while sent < options.count {
        match end.wait()?.kind {
            CompletionKind::Send => sent += 1,
            kind => give_back(end, kind, options.size)?,
        }
    }
    Ok(())
}

/// Receives all messages. Of a server, who also answers on a peer whose answer was lost: it asks
/// again. Others are told that there is no queue pair for them.
fn receive_all(end: &mut End, asks: Option<Ipv4Addr>, options: &EndOptions) -> Result<(), Box<dyn Error>> {
    let mut received = 0;
    while received < options.count {
        let done = end.wait_beside(|end| {
            let event = end.with_manager(|_, manager, _| manager.next_event());
            let Some(CmEvent::ConnectRequest(request)) = event else { return Ok(()) };
            let is_peer = asks.is_some() && request.addresses.peer().to_ipv4_mapped() == asks;
            let ours = (end.qpn(), QKEY);
            answer(end, &request, if is_peer { Ok(ours) } else { Err(SidrStatus::NoQp) })
        })?;
        match named_by(&done) {
            Some(qpn) => {
                end.name_peer(qpn);
                received += 1;
            }
            None => give_back(end, done.kind, options.size)?,
        }
    }
    Ok(())
}

/// The receive that a stranger's datagram took is for one of the peer's.
fn give_back(end: &mut End, kind: CompletionKind, size: u32) -> Result<(), Box<dyn Error>> {
    if kind == CompletionKind::Receive { end.post_recv(GRH_LEN + size as usize, size) } else { Ok(()) }
}

/// The queue pair that a message of the game names, which is the one that has sent it: nobody sends
/// the answers to another's.
fn named_by(done: &WorkCompletion) -> Option<Qpn> {
    let named = Qpn::new(u32::from_be_bytes(done.imm?) & 0xff_ffff);
    (done.kind == CompletionKind::Receive && done.source == Some(named)).then_some(named)
}
