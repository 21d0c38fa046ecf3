//! Messages in turn, as ib_send_lat and ib_write_lat of perftest play them: each end sends its next
//! message when it has the other's, so that a message takes half a round trip.
//!
//! By SEND the client begins. By WRITE the server begins, and the last byte of a message says that
//! it is there: the message's number.

use std::error::Error;
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::sync::mpsc::{self, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

use ::rdma::out_of_band::DONE;
use ::rdma::out_of_band::perftest::PerftestAddress;
use ::rdma::roce::{Mtu, Path, Remote, SendOperation};
use hdrhistogram::Histogram;
use wirepath::worker::StopFlag;

use super::end::{End, RECEIVES};
use super::exchange::Connection;
use super::over::Choice;
use super::pattern::{Pattern, mark, marked, verified};
use super::serve::agree;
use super::{EndOptions, Operation, Service, pingpong, transfer};

/// Times that both ends wait for each other by addresses, once they know each other.
const MEETINGS: usize = 3;
/// perftest's tools reach for a whole page.
const PAGE: usize = 4096;
/// The longest latency that the histogram tells from longer ones, in ns: an hour.
const LATENCY_MAX: u64 = 3_600_000_000_000;

/// The requests whose tests of latency take turns, by their numbers in a mark, behind those of the
/// operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Turns {
    Send = 5,
    Write,
}

impl Turns {
    /// Those of a test of latency; READs and atomic operations take none.
    pub(super) const fn of(operation: Operation) -> Option<Self> {
        match operation {
            Operation::Send => Some(Self::Send),
            Operation::Write => Some(Self::Write),
            Operation::Read | Operation::Atomic => None,
        }
    }

    /// Those that a client of ours has named in its mark.
    pub(super) fn of_mark(what: u8) -> Option<Self> {
        [Self::Send, Self::Write].into_iter().find(|turns| *turns as u8 == what)
    }
}

/// Plays as the client.
pub(super) fn ask(
    turns: Turns,
    peer: Ipv4Addr,
    (options, service): (&EndOptions, Service),
    stop: &StopFlag,
) -> Result<(), Box<dyn Error>> {
    let open = |choice| -> Result<_, Box<dyn Error>> {
        let mut game = Game::open(turns, (options, service), choice, stop)?;
        let path = game.end.path(peer)?;
        let srqn = mark(turns as u8, service, game.end.carrier()).into();
        let ours = PerftestAddress { srqn, ..game.address(&path) };
        Ok((game, path, ours))
    };
    let (mut game, mut path, mut ours) = open(Choice::of_client(options, peer))?;
    let mut connection = Connection::connect(peer, options.exchange_port(), stop)?;
    let mtu = transfer::greet(&mut connection, game.end.mtu())?;
    let mut theirs = PerftestAddress::parse(&connection.ask(&ours.encode())?)?;
    if let Some(choice) = game.end.instead(marked(theirs.srqn))? {
        (game, path, ours) = open(choice)?;
        theirs = PerftestAddress::parse(&connection.ask(&ours.encode())?)?;
    }
    game.end.connect(&transfer::peer_qp(&theirs, mtu)?, path)?;
    game.end.join(&mut connection)?;
    let ours = ours.encode();
    for _ in 0..MEETINGS {
        connection.ask(&ours)?;
    }
    game.play(&theirs)?;
    match turns {
        Turns::Send => turn_while(&mut game.end, move || {
            connection.ask(&ours)?;
            connection.ask(&DONE).map(drop)
        })?,
        Turns::Write => connection.part(|| game.end.turn())?,
    }
    game.report()
}

/// Plays as the server of a peer that is known.
pub(super) fn serve(
    turns: Turns,
    mut connection: Connection,
    (theirs, mtu): (PerftestAddress, Mtu),
    (options, service): (&EndOptions, Service),
    choice: Choice,
    stop: &StopFlag,
) -> Result<(), Box<dyn Error>> {
    let mut game = Game::open(turns, (options, service), choice, stop)?;
    let theirs = agree(&game.end, theirs, &mut connection)?;
    let peer = transfer::peer_qp(&theirs, mtu)?;
    let path = game.end.path(peer.address)?;
    game.end.connect(&peer, path)?;
    let ours = PerftestAddress { srqn: mark(0, service, game.end.carrier()).into(), ..game.address(&path) }.encode();
    connection.write(&ours)?;
    game.end.join(&mut connection)?;
    for _ in 0..MEETINGS {
        connection.read::<{ PerftestAddress::LEN }>()?;
        connection.write(&ours)?;
    }
    game.play(&theirs)?;
    match turns {
        Turns::Send => turn_while(&mut game.end, move || {
            connection.read::<{ PerftestAddress::LEN }>()?;
            connection.write(&ours)?;
            connection.read::<{ DONE.len() }>()?;
            connection.write(&DONE)
        })?,
        Turns::Write => connection.part(|| game.end.turn())?,
    }
    game.report()
}

/// Turns the worker while the ends take leave of each other: the peer may lack our last
/// acknowledgment.
fn turn_while(
    end: &mut End,
    farewell: impl FnOnce() -> Result<(), Box<dyn Error>> + Send + 'static,
) -> Result<(), Box<dyn Error>> {
    let (sender, ended) = mpsc::channel();
    thread::spawn(move || drop(sender.send(farewell().map_err(|error| error.to_string()))));
    loop {
        end.turn();
        match ended.try_recv() {
            Ok(ended) => return Ok(ended?),
            Err(TryRecvError::Disconnected) => return Err("the exchange with the peer has failed".into()),
            Err(TryRecvError::Empty) if end.is_stopping() => return Err("stopped before the end".into()),
            Err(TryRecvError::Empty) => (),
        }
    }
}

/// A test with its end, whose memory has the message that is sent, and behind it the one that
/// comes.
struct Game<'a> {
    turns: Turns,
    options: &'a EndOptions,
    end: End,
    received_at: usize,
    half_trips: HalfTrips,
    verified: Option<u64>,
}

impl<'a> Game<'a> {
    fn open(
        turns: Turns,
        (options, service): (&'a EndOptions, Service),
        choice: Choice,
        stop: &StopFlag,
    ) -> Result<Self, Box<dyn Error>> {
        let received_at = PAGE.max(service.header_len() + options.size as usize);
        let mut end = End::open(options, service, (2 * received_at as u32, 1), choice, stop)?;
        if turns == Turns::Send {
            for _ in 0..options.count.min(RECEIVES) {
                end.post_recv(received_at, options.size)?;
            }
        }
        Ok(Self { turns, options, end, received_at, half_trips: HalfTrips::new()?, verified: None })
    }

    /// How we are named to the peer: it writes to where its messages are expected.
    fn address(&self, path: &Path) -> PerftestAddress {
        let Remote { address, rkey } = self.end.remote_at(self.received_at);
        PerftestAddress { address, rkey, ..transfer::address(&self.end, path) }
    }

    fn play(&mut self, theirs: &PerftestAddress) -> Result<(), Box<dyn Error>> {
        let is_ours = marked(theirs.srqn).is_some();
        self.verified = match self.turns {
            Turns::Send => {
                pingpong::play(&mut self.end, self.options, self.received_at, is_ours, &mut self.half_trips)?
            }
            Turns::Write => self.play_writes(Remote { address: theirs.address, rkey: theirs.rkey }, is_ours)?,
        };
        Ok(())
    }

    /// Writes and is written to, `count` times; returns the bytes that were compared, of a peer of
    /// ours.
    fn play_writes(&mut self, remote: Remote, is_ours: bool) -> Result<Option<u64>, Box<dyn Error>> {
        let (is_client, count) = (self.options.peer.is_some(), self.options.count);
        let [ours, theirs] = if is_client { [1, 2] } else { [2, 1] }.map(Pattern::named);
        ours.fill(self.end.memory(), 0, self.options.size as usize);
        let mut bytes = 0;
        for number in 1..=count {
            if is_client {
                bytes += self.receive(number, theirs, is_ours)?;
            }
            self.write(number, remote)?;
            // The server goes when it has the client's last message, and may take the
            // acknowledgment with it: that it goes says as much.
            if !(is_client && number == count) {
                self.end.wait()?;
            }
            if !is_client {
                bytes += self.receive(number, theirs, is_ours)?;
            }
        }
        Ok(is_ours.then_some(bytes))
    }

    /// Writes a message, whose last byte is its number.
    fn write(&mut self, number: u32, remote: Remote) -> Result<(), Box<dyn Error>> {
        let size = self.options.size;
        self.end.memory().write(size as usize - 1, &[number as u8]);
        self.half_trips.post();
        self.end.post_at(SendOperation::Write(remote), 0, size)
    }

    /// Waits for the message with this number, and compares what is in front of the number.
    fn receive(&mut self, number: u32, theirs: Pattern, is_ours: bool) -> Result<u64, Box<dyn Error>> {
        let (at, len) = (self.received_at, self.options.size as usize - 1);
        self.end.wait_for_byte(at + len, number as u8)?;
        if !is_ours {
            return Ok(0);
        }
        let memory = self.end.memory();
        theirs.compare(memory, at, len).map_err(|why| format!("message {number}: {why}"))?;
        theirs.spoil(memory, at, len);
        Ok(len as u64 + 1)
    }

    fn report(&self) -> Result<(), Box<dyn Error>> {
        let Self { turns, options: EndOptions { count, size, .. }, end, .. } = self;
        let mut out = io::stdout().lock();
        writeln!(out, "{turns:?} of {size} bytes in turn, {count} times; {}, MTU {}", end.by(), end.mtu())?;
        writeln!(out, "half a round trip: {}", transfer::latencies(&self.half_trips.latencies))?;
        writeln!(out, "{}", end.losses())?;
        writeln!(out, "{}", verified(self.verified))?;
        Ok(())
    }
}

/// Half of the time from a post to the next, in ns: a message takes it there, as another takes it
/// back.
pub(super) struct HalfTrips {
    latencies: Histogram<u64>,
    posted_at: Option<Instant>,
}

impl HalfTrips {
    pub(super) fn new() -> Result<Self, Box<dyn Error>> {
        Ok(Self { latencies: Histogram::new_with_bounds(1, LATENCY_MAX, 3)?, posted_at: None })
    }

    /// A message is posted now.
    pub(super) fn post(&mut self) {
        let now = Instant::now();
        if let Some(before) = self.posted_at.replace(now) {
            let half: Duration = now.duration_since(before) / 2;
            self.latencies.saturating_record(half.as_nanos() as u64);
        }
    }
}
