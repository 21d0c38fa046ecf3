//! Messages back and forth, as `ibv_rc_pingpong` plays: the client sends first, and each end sends
//! when it has received.

use std::error::Error;
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::time::Instant;

use ::rdma::out_of_band::pingpong::{PingpongAddress, SRQ_ADDRESSES};
use ::rdma::out_of_band::{DONE, gid};
use ::rdma::roce::{CompletionKind, GRH_LEN, Mtu, Path, SendOperation};
use ::rdma::wire::qpn::Qpn;
use wirepath::worker::StopFlag;

use super::carried::cable_path;
use super::end::{End, PeerQp, RD_ATOMICS, RECEIVES};
use super::exchange::Connection;
use super::latency::HalfTrips;
use super::over::Choice;
use super::pattern::{Pattern, mark, marked, verified};
use super::{EndOptions, PingpongOptions, Service};

/// Plays one game.
pub(super) fn run(options: &PingpongOptions, stop: &StopFlag) -> Result<(), Box<dyn Error>> {
    let PingpongOptions { end: options, service } = options;
    if options.cm {
        return match service {
            Service::Rc => super::rping::run(options, stop),
            Service::Ud => super::udaddy::run(options, stop),
            _ => Err("with --cm, --service is rc, as of rping, or ud, as of udaddy".into()),
        };
    }
    let (received_at, game) = (GRH_LEN + options.size as usize, Game { options, service: *service, stop });
    let (mut end, connection, is_ours) = match options.peer {
        Some(peer) => game.ask(peer)?,
        None => game.serve()?,
    };
    let begun = Instant::now();
    let verified = verified(play(&mut end, options, received_at, is_ours, &mut HalfTrips::new()?)?);
    let span = begun.elapsed();
    match is_ours {
        true => connection.part(|| end.turn())?,
        // Other programs have closed it before the first message.
        false => end.linger(),
    }
    writeln!(
        io::stdout().lock(),
        "{} messages of {} bytes each way in {:.3} s, {:.1} us a round trip; MTU {}; {}; {verified}",
        options.count,
        options.size,
        span.as_secs_f64(),
        span.as_secs_f64() * 1e6 / f64::from(options.count),
        end.mtu(),
        end.losses(),
    )?;
    Ok(())
}

/// A game before it is played.
struct Game<'a> {
    options: &'a EndOptions,
    service: Service,
    stop: &'a StopFlag,
}

impl Game<'_> {
    /// An end with receives. What is sent and what is received have each its memory: a message may
    /// have to be sent again.
    fn open(&self, options: &EndOptions, choice: Choice) -> Result<End, Box<dyn Error>> {
        let size = 2 * options.size + GRH_LEN as u32;
        let mut end = End::open(options, self.service, (size, 1), choice, self.stop)?;
        for _ in 0..options.count.min(RECEIVES) {
            end.post_recv(GRH_LEN + options.size as usize, options.size)?;
        }
        Ok(end)
    }

    /// Connects as the client; says too whether the peer is one of ours.
    fn ask(&self, peer: Ipv4Addr) -> Result<(End, Connection, bool), Box<dyn Error>> {
        let mut end = self.open(self.options, Choice::of_client(self.options, peer))?;
        let mut path = end.path(peer)?;
        let mut connection = Connection::connect(peer, self.options.exchange_port(), self.stop)?;
        tell(&mut connection, &address(&end, &path), self.service)?;
        let mut theirs = hear(&mut connection, self.service)?;
        let is_ours = marked(theirs.lid.into()).is_some();
        if let Some(choice) = end.instead(marked(theirs.lid.into()))? {
            end = self.open(self.options, choice)?;
            path = end.path(peer)?;
            tell(&mut connection, &address(&end, &path), self.service)?;
            theirs = hear(&mut connection, self.service)?;
        }
        connect(&mut end, &theirs, path, self.options.mtu.is_some())?;
        end.join(&mut connection)?;
        connection.write(&DONE)?;
        Ok((end, connection, is_ours))
    }

    /// The same as the server.
    fn serve(&self) -> Result<(End, Connection, bool), Box<dyn Error>> {
        let mut connection = Connection::accept(self.options.exchange_port(), self.stop)?;
        let mut theirs = hear(&mut connection, self.service)?;
        let marked = marked(theirs.lid.into());
        let (choice, options) = Choice::of_server(self.options, marked.map(|mark| mark.carrier), &connection)?;
        let mut end = self.open(&options, choice)?;
        if marked.is_some_and(|mark| mark.carrier != end.carrier()) {
            // The client opens another end, which has another address.
            tell(&mut connection, &address(&end, &cable_path()), self.service)?;
            theirs = hear(&mut connection, self.service).map_err(|error| end.refused(&error))?;
        }
        let peer = theirs.gid.to_ipv4_mapped().ok_or("the peer's GID is no IPv4 address: give it another index")?;
        let path = end.path(peer)?;
        connect(&mut end, &theirs, path, self.options.mtu.is_some())?;
        tell(&mut connection, &address(&end, &path), self.service)?;
        end.join(&mut connection)?;
        connection.read::<{ DONE.len() }>()?;
        Ok((end, connection, marked.is_some()))
    }
}

fn address(end: &End, path: &Path) -> PingpongAddress {
    PingpongAddress {
        lid: mark(0, Service::Rc, end.carrier()),
        qpn: end.qpn(),
        psn: end.psn(),
        gid: gid(End::address(path)),
    }
}

/// Tells the peer our queue pair, as often as its program reads one.
fn tell(connection: &mut Connection, ours: &PingpongAddress, service: Service) -> Result<(), Box<dyn Error>> {
    connection.write(&ours.encode().repeat(addresses(service)))
}

/// Reads the peer's addresses, and takes the first: we have one queue pair, and so must the peer.
fn hear(connection: &mut Connection, service: Service) -> Result<PingpongAddress, Box<dyn Error>> {
    let theirs = PingpongAddress::parse(&connection.read()?)?;
    for _ in 1..addresses(service) {
        refuse_further(&theirs, &PingpongAddress::parse(&connection.read()?)?)?;
    }
    Ok(theirs)
}

/// Places behind the last queue pair are zeros, and those of a peer of ours are its only one again.
fn refuse_further(first: &PingpongAddress, other: &PingpongAddress) -> Result<(), &'static str> {
    if other.qpn == Qpn::new(0) || other == first { Ok(()) } else { Err(FURTHER) }
}

const FURTHER: &str = "the peer has several queue pairs, and this end has one: give ibv_srq_pingpong `-q 1`";

/// The addresses that each end of a game names.
const fn addresses(service: Service) -> usize {
    match service {
        Service::Srq => SRQ_ADDRESSES,
        Service::Rc | Service::Uc | Service::Ud => 1,
    }
}

/// Leads the queue pair to RTS; `is_named` says that the user has named the MTU.
fn connect(end: &mut End, theirs: &PingpongAddress, path: Path, is_named: bool) -> Result<(), Box<dyn Error>> {
    let address = theirs.gid.to_ipv4_mapped().ok_or("the peer's GID is no IPv4 address: give it another index")?;
    // The exchange names no MTU: ibv_rc_pingpong takes 1024 by default.
    let mtu = if end.is_datagram() || end.is_cabled() || is_named { end.mtu() } else { end.mtu().min(Mtu::B1024) };
    end.connect(&PeerQp { qpn: theirs.qpn, psn: theirs.psn, address, mtu, rd_atomics: RD_ATOMICS }, path)
}

/// Sends and receives `count` messages; returns the bytes that were compared, of a peer of ours.
pub(super) fn play(
    end: &mut End,
    options: &EndOptions,
    at: usize,
    is_ours: bool,
    half_trips: &mut HalfTrips,
) -> Result<Option<u64>, Box<dyn Error>> {
    let (is_client, size, header_len) = (options.peer.is_some(), options.size as usize, end.header_len());
    let [ours, theirs] = if is_client { [1, 2] } else { [2, 1] }.map(Pattern::named);
    // ibv_rc_pingpong -c finds zeros in each page, and nothing else.
    if is_ours {
        ours.fill(end.memory(), header_len, size);
    }
    let mut bytes = 0;
    let (mut sent, mut completed, mut received) = (0, 0, 0);
    let mut posted = options.count.min(RECEIVES);
    // The server's message answers the client's: with the last one the client knows that its own
    // has arrived, and a server that is done may take the acknowledgment with it.
    while received < options.count || completed < options.count && !is_client {
        // The client is one message ahead of the server.
        let may_send = if is_client { received >= sent } else { received > sent };
        if sent < options.count && completed == sent && may_send {
            half_trips.post();
            end.post(SendOperation::Send, options.size)?;
            sent += 1;
        }
        let counts = (options.count, completed, received);
        match end.wait().map_err(|error| interrupted(&*error, counts))?.kind {
            CompletionKind::Receive => {
                if is_ours {
                    let (at, memory) = (at + header_len, end.memory());
                    bytes += theirs.compare(memory, at, size).map_err(|why| format!("message {received}: {why}"))?;
                    theirs.spoil(memory, at, size);
                }
                received += 1;
                if posted < options.count {
                    end.post_recv(at, options.size)?;
                    posted += 1;
                }
            }
            _ => completed += 1,
        }
    }
    Ok(is_ours.then_some(bytes))
}

/// Why a game ended early, and where: messages that were to be sent each way, that were
/// acknowledged, and that were received.
fn interrupted(error: &dyn Error, (count, acknowledged, received): (u32, u32, u32)) -> String {
    if received == count && acknowledged + 1 == count {
        let why = "all messages but our last are acknowledged: the peer has left, or did not get that one";
        return format!("{error}; {why}");
    }
    format!("{error}; of {count} messages each way {acknowledged} were acknowledged, and {received} received")
}

#[cfg(test)]
mod tests {
    use ::rdma::wire::psn::Psn;

    use super::*;

    fn named(qpn: u32) -> PingpongAddress {
        let gid = gid(Ipv4Addr::new(10, 9, 0, 1));
        PingpongAddress { lid: 0, qpn: Qpn::new(qpn), psn: Psn::new(5), gid }
    }

    #[test]
    fn peer_with_several_queue_pairs_is_told_to_have_one() {
        assert_eq!(refuse_further(&named(17), &named(18)), Err(FURTHER));
        for behind_the_last in [named(0), named(17)] {
            assert_eq!(refuse_further(&named(17), &behind_the_last), Ok(()));
        }
    }
}
