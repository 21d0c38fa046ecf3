//! The other end of a test: its memory is written and read, and messages find receives, while a
//! thread answers in the exchange.

use std::error::Error;
use std::io::{self, Write};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use ::rdma::out_of_band::DONE;
use ::rdma::out_of_band::perftest::{self, PerftestAddress};
use ::rdma::port::mtu_of;
use ::rdma::roce::{Buffer, CompletionKind, Mtu};
use wirepath::worker::StopFlag;

use super::carried::cable_path;
use super::end::{End, RECEIVES, open_nic};
use super::exchange::{Connection, FAREWELL_MAX};
use super::latency::{self, Turns};
use super::over::Choice;
use super::pattern::{OFFERED, Pattern, mark, marked, verified};
use super::transfer::{address, mtu_of_text, mtu_text, peer_qp};
use super::{EndOptions, Operation, Service, TransferOptions, via};

/// Serves one peer, whatever of SEND, WRITE, READ and atomics it does. Only for a test of latency
/// the operation matters.
pub(super) fn run(
    operation: Operation,
    TransferOptions { end: options, latency: is_latency, service }: &TransferOptions,
    stop: &StopFlag,
) -> Result<(), Box<dyn Error>> {
    let mut connection = Connection::accept(options.exchange_port(), stop)?;
    let mtu = mtu_to_offer(options, &connection)?;
    let (theirs, their_mtu) = greet(&mut connection, mtu)?;
    let marked = marked(theirs.srqn);
    let (choice, options) = Choice::of_server(options, marked.map(|mark| mark.carrier), &connection)?;
    let service = marked.map_or(Ok(*service), |mark| service.of_client(mark.service))?;
    let turns = match marked {
        Some(mark) => Turns::of_mark(mark.what),
        None => Turns::of(operation).filter(|_| *is_latency),
    };
    if let Some(turns) = turns {
        return latency::serve(turns, connection, (theirs, their_mtu.min(mtu)), (&options, service), choice, stop);
    }
    let receives = Receives::new(options.size as usize, service.header_len());
    let mut end = End::open(&options, service, (receives.end() as u32, 1), choice, stop)?;
    let theirs = agree(&end, theirs, &mut connection)?;
    let peer = peer_qp(&theirs, their_mtu.min(mtu))?;
    Pattern::named(OFFERED).fill(end.memory(), 0, receives.offered);
    for number in 0..receives.count {
        end.post_recv(receives.at(number), options.size)?;
    }
    let path = end.path(peer.address)?;
    end.connect(&peer, path)?;
    let ours = PerftestAddress { srqn: mark(0, service, end.carrier()).into(), ..address(&end, &path) }.encode();
    let what = marked.map(|mark| mark.what);
    connection.write(&ours)?;
    end.join(&mut connection)?;
    let (sender, ended) = mpsc::channel();
    thread::spawn(move || answer(connection, &ours, &sender));
    let (received, mut bytes) = serve(&mut end, (&options, service), &receives, what.is_some(), &ended)?;
    if what == Some(Operation::Write as u8) {
        bytes = Pattern::compare_written(end.memory(), receives.offered)?;
    }
    let compared = match what {
        Some(what) if what == Operation::Send as u8 || what == Operation::Write as u8 => verified(Some(bytes)),
        Some(_) => "the peer verifies what it gets".to_owned(),
        None => verified(None),
    };
    let arrivals = end.arrivals();
    writeln!(
        io::stdout().lock(),
        "served {}: {received} messages received; {arrivals}; MTU {}; {compared}",
        peer.address,
        end.mtu(),
    )?;
    Ok(())
}

/// The largest payload of a packet that this end takes, before it is known what carries them.
fn mtu_to_offer(options: &EndOptions, connection: &Connection) -> Result<Mtu, String> {
    let local = connection.local()?;
    let link = match (&options.device, &options.via) {
        (Some(device), _) => open_nic(device).and_then(|nic| nic.mtu().map_err(|error| error.to_string()))?,
        (None, Some(via)) => mtu_of(via)?,
        // No link is between two ends on one host.
        (None, None) if via::is_local(connection.peer()?) => Mtu::B4096,
        (None, None) => via::with(local).and_then(|via| mtu_of(&via)).unwrap_or(Mtu::B4096),
    };
    options.mtu_on(link)
}

/// The client's address; where this end has not what the client chose, the client opens another,
/// which has another address.
pub(super) fn agree(
    end: &End,
    theirs: PerftestAddress,
    connection: &mut Connection,
) -> Result<PerftestAddress, Box<dyn Error>> {
    if marked(theirs.srqn).is_none_or(|mark| mark.carrier == end.carrier()) {
        return Ok(theirs);
    }
    let refusal = PerftestAddress { srqn: mark(0, Service::Rc, end.carrier()).into(), ..address(end, &cable_path()) };
    let again = connection.ask(&refusal.encode()).map_err(|error| end.refused(&error))?;
    Ok(PerftestAddress::parse(&again)?)
}

/// The steps up to the peer's address, which is not answered yet.
fn greet(connection: &mut Connection, mtu: Mtu) -> Result<(PerftestAddress, Mtu), Box<dyn Error>> {
    let version = connection.read::<{ perftest::VERSION_LEN }>()?;
    connection.write(&version)?;
    for value in [perftest::CYCLE_BUFFER, perftest::CACHE_LINE] {
        connection.read::<4>()?;
        connection.write(&value.to_be_bytes())?;
    }
    let theirs = mtu_of_text(connection.read()?)?;
    connection.write(&mtu_text(mtu))?;
    Ok((PerftestAddress::parse(&connection.read()?)?, theirs))
}

/// Answers the client in kind until it is done: it waits for us by addresses, and tells figures.
fn answer(connection: Connection, ours: &[u8; PerftestAddress::LEN], ended: &Sender<Result<(), String>>) {
    let answered = answer_all(connection, ours).map_err(|error| error.to_string());
    // Where nobody waits any more, the end has failed, and says so.
    let _ = ended.send(answered);
}

fn answer_all(mut connection: Connection, ours: &[u8; PerftestAddress::LEN]) -> Result<(), Box<dyn Error>> {
    const TEXT_REST: usize = PerftestAddress::LEN - DONE.len();
    const FIGURE_REST: usize = perftest::FIGURE_LEN - DONE.len();
    loop {
        let begin = connection.read::<{ DONE.len() }>()?;
        if begin == DONE {
            return connection.write(&DONE);
        }
        // An address begins with a LID and a colon, which no figure does.
        if begin[4] == b':' && begin[..4].iter().all(u8::is_ascii_hexdigit) {
            connection.read::<TEXT_REST>()?;
            connection.write(ours)?;
        } else {
            connection.read::<FIGURE_REST>()?;
            connection.write(&[0; perftest::FIGURE_LEN])?;
        }
    }
}

/// The receives, each with memory of its own, behind the memory that the peer may reach.
struct Receives {
    /// Bytes that the peer may reach, of perftest's tools a page and more.
    offered: usize,
    /// Bytes of a receive, with the header of a datagram.
    len: usize,
    header_len: usize,
    count: u64,
}

impl Receives {
    /// Of messages of so many bytes; fewer, where they would take more than 64 MiB.
    fn new(message_len: usize, header_len: usize) -> Self {
        const MEMORY_MAX: usize = 64 << 20;
        let len = header_len + message_len;
        Self {
            offered: message_len.max(4096),
            len,
            header_len,
            count: (MEMORY_MAX / len).clamp(1, RECEIVES as usize) as u64,
        }
    }

    /// Where the receive of a message is.
    const fn at(&self, number: u64) -> usize {
        self.offered + (number % self.count) as usize * self.len
    }

    const fn end(&self) -> usize {
        self.offered + self.count as usize * self.len
    }
}

/// How long nothing comes behind the last message of a peer that does not wait for its arrival.
const QUIET_SPAN: Duration = Duration::from_millis(100);

/// Compares a message, and spoils the memory for the next one; returns how many bytes it has.
fn compare(service: Service, number: u64, memory: &Buffer, (at, len): (usize, usize)) -> Result<u64, String> {
    let message = if service.is_reliable() { Pattern::of(number, len) } else { Pattern::found(memory, at)? };
    let bytes = message.compare(memory, at, len)?;
    message.spoil(memory, at, len);
    Ok(bytes)
}

/// Turns the worker until the exchange has ended; returns how many messages were received, and the
/// bytes that were compared.
fn serve(
    end: &mut End,
    (options, service): (&EndOptions, Service),
    receives: &Receives,
    is_ours: bool,
    ended: &Receiver<Result<(), String>>,
) -> Result<(u64, u64), Box<dyn Error>> {
    let (mut received, mut bytes, mut quiet_since) = (0, 0, None::<Instant>);
    loop {
        end.turn();
        if quiet_since.is_some_and(|since| since.elapsed() >= QUIET_SPAN) {
            return Ok((received, bytes));
        }
        while let Some(done) = end.poll()? {
            if done.kind == CompletionKind::Receive {
                let at = receives.at(received);
                if is_ours {
                    let (memory, len) = (end.memory(), (done.byte_len as usize).saturating_sub(receives.header_len));
                    let compared = compare(service, received, memory, (at + receives.header_len, len));
                    bytes += compared.map_err(|why| format!("message {received}: {why}"))?;
                }
                end.post_recv(at, options.size)?;
                received += 1;
                quiet_since = quiet_since.map(|_| Instant::now());
            }
        }
        if quiet_since.is_some() && end.gone().is_some() {
            return Ok((received, bytes));
        }
        if let Some(why) = end.gone() {
            // A client that is done leaves too.
            let answered = ended.recv_timeout(FAREWELL_MAX).map_err(|_| why.to_owned())?;
            return answered.map(|()| (received, bytes)).map_err(Into::into);
        }
        match ended.try_recv() {
            Ok(Err(error)) => return Err(error.into()),
            Ok(Ok(())) if service.is_reliable() => return Ok((received, bytes)),
            // The exchange may overtake the last messages, which nobody waits for.
            Ok(Ok(())) => quiet_since = Some(Instant::now()),
            Err(_) if quiet_since.is_some() => (),
            Err(_) if end.is_stopping() => return Err("stopped before the end".into()),
            Err(_) => (),
        }
    }
}
