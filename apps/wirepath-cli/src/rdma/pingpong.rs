//! Messages back and forth, as `ibv_rc_pingpong` plays: the client sends first, and each end sends
//! when it has received.

use std::error::Error;
use std::io::{self, Write};
use std::time::Instant;

use ::rdma::exchange::pingpong::PingpongAddress;
use ::rdma::exchange::{DONE, gid};
use ::rdma::roce::{CompletionKind, Path, SendOperation};
use wirepath::worker::StopFlag;

use super::end::{End, PeerQp, RD_ATOMICS, RECEIVES};
use super::exchange::Connection;
use super::{EndOptions, PingpongOptions, Service};

/// Plays one game.
pub(super) fn run(options: &PingpongOptions, stop: &StopFlag) -> Result<(), Box<dyn Error>> {
    let PingpongOptions { end: options, service } = options;
    if options.cm {
        return match service {
            Service::Rc => super::rping::run(options, stop),
            _ => Err("rping speaks over reliable connections: leave out --service".into()),
        };
    }
    let mut end = End::open(options, *service, options.size, 1, stop)?;
    for _ in 0..options.count.min(RECEIVES) {
        end.post_recv(options.size)?;
    }
    let connection = match options.peer {
        Some(peer) => {
            let path = end.path(peer)?;
            let mut connection = Connection::connect(peer, options.exchange_port(), stop)?;
            let theirs = connection.ask(&address(&end, &path).encode())?;
            let theirs = PingpongAddress::parse(&theirs)?;
            connect(&mut end, &theirs, path)?;
            connection.write(&DONE)?;
            connection
        }
        None => {
            let mut connection = Connection::accept(options.exchange_port(), stop)?;
            let theirs = PingpongAddress::parse(&connection.read()?)?;
            let peer = theirs.gid.to_ipv4_mapped().ok_or("the peer's GID is no IPv4 address: give it another index")?;
            let path = end.path(peer)?;
            connect(&mut end, &theirs, path)?;
            connection.write(&address(&end, &path).encode())?;
            connection.read::<{ DONE.len() }>()?;
            connection
        }
    };
    let begun = Instant::now();
    play(&mut end, options)?;
    let span = begun.elapsed();
    connection.part(|| end.turn())?;
    let counters = end.counters();
    writeln!(
        io::stdout().lock(),
        "{} messages of {} bytes each way in {:.3} s, {:.1} us a round trip; MTU {}, {} sent again, {} timeouts",
        options.count,
        options.size,
        span.as_secs_f64(),
        span.as_secs_f64() * 1e6 / f64::from(options.count),
        end.mtu(),
        counters.retransmits,
        counters.timeouts,
    )?;
    Ok(())
}

fn address(end: &End, path: &Path) -> PingpongAddress {
    PingpongAddress { lid: 0, qpn: end.qpn(), psn: end.psn(), gid: gid(End::address(path)) }
}

fn connect(end: &mut End, theirs: &PingpongAddress, path: Path) -> Result<(), Box<dyn Error>> {
    let address = theirs.gid.to_ipv4_mapped().ok_or("the peer's GID is no IPv4 address: give it another index")?;
    // The exchange names no MTU: ibv_rc_pingpong takes 1024 by default.
    let mtu = end.mtu().min(::rdma::roce::Mtu::B1024);
    let mtu = if end.is_datagram() { end.mtu() } else { mtu };
    end.connect(&PeerQp { qpn: theirs.qpn, psn: theirs.psn, address, mtu, rd_atomics: RD_ATOMICS }, path)
}

/// Sends and receives `count` messages.
fn play(end: &mut End, options: &EndOptions) -> Result<(), Box<dyn Error>> {
    let is_client = options.peer.is_some();
    let (mut sent, mut completed, mut received) = (0, 0, 0);
    let mut posted = options.count.min(RECEIVES);
    while received < options.count || completed < options.count {
        // The client is one message ahead of the server.
        let may_send = if is_client { received >= sent } else { received > sent };
        if sent < options.count && completed == sent && may_send {
            end.post(SendOperation::Send, options.size)?;
            sent += 1;
        }
        match end.wait()?.kind {
            CompletionKind::Receive => {
                received += 1;
                if posted < options.count {
                    end.post_recv(options.size)?;
                    posted += 1;
                }
            }
            _ => completed += 1,
        }
    }
    Ok(())
}
