//! The client of a test: requests of one kind, each from its post to its completion.

use std::collections::VecDeque;
use std::error::Error;
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use ::rdma::out_of_band::perftest::{self, PerftestAddress};
use ::rdma::out_of_band::{DONE, gid};
use ::rdma::roce::{Mtu, Path, Remote, SendOperation};
use hdrhistogram::Histogram;
use wirepath::worker::StopFlag;

use super::end::{End, PeerQp, RD_ATOMICS};
use super::exchange::Connection;
use super::latency::{self, Turns};
use super::over::Choice;
use super::pattern::{OFFERED, Pattern, mark, marked, messages, verified};
use super::{EndOptions, Operation, Service, TransferOptions};

/// The longest latency that the histogram tells from longer ones, in ns: an hour.
const LATENCY_MAX: u64 = 3_600_000_000_000;

/// Runs the client.
pub(super) fn run(
    operation: Operation,
    peer: Ipv4Addr,
    TransferOptions { end: options, latency: is_latency, service }: &TransferOptions,
    stop: &StopFlag,
) -> Result<(), Box<dyn Error>> {
    if let Some(turns) = Turns::of(operation).filter(|_| *is_latency) {
        return latency::ask(turns, peer, (options, *service), stop);
    }
    let open = |choice| -> Result<_, Box<dyn Error>> {
        let mut end = open(operation, (options, *service), choice, stop)?;
        let path = end.path(peer)?;
        let srqn = mark(operation as u8, *service, end.carrier()).into();
        let ours = PerftestAddress { srqn, ..address(&end, &path) };
        Ok((end, path, ours))
    };
    let (mut end, mut path, mut ours) = open(Choice::of_client(options, peer))?;
    let mut connection = Connection::connect(peer, options.exchange_port(), stop)?;
    let mtu = greet(&mut connection, end.mtu())?;
    let mut theirs = PerftestAddress::parse(&connection.ask(&ours.encode())?)?;
    let is_ours = marked(theirs.srqn).is_some();
    if let Some(choice) = end.instead(marked(theirs.srqn))? {
        (end, path, ours) = open(choice)?;
        theirs = PerftestAddress::parse(&connection.ask(&ours.encode())?)?;
    }
    end.connect(&peer_qp(&theirs, mtu)?, path)?;
    end.join(&mut connection)?;
    // Both wait for each other before the first request; perftest's tools of SEND once more, until
    // the receives are posted, and they tell no figures, as those of latency do not.
    let tells_figures = operation != Operation::Send && !is_latency;
    for _ in 0..if tells_figures { 2 } else { 3 } {
        connection.ask(&ours.encode())?;
    }
    let remote = Remote { address: theirs.address, rkey: theirs.rkey };
    let mut measured = measure(&mut end, (operation, remote), options, is_ours)?;
    if !service.is_reliable() {
        // What is complete has not arrived yet.
        end.linger();
    }
    if tells_figures {
        connection.ask(&ours.encode())?;
        for _ in 0..perftest::FIGURES {
            connection.ask(&[0; perftest::FIGURE_LEN])?;
        }
    }
    connection.ask(&ours.encode())?;
    connection.ask(&DONE)?;
    measured.verified = measured.verified.filter(|_| is_ours || operation == Operation::Atomic);
    report(&end, operation, options, &measured)
}

/// An end with a slot of memory for each message in a row that has bytes of its own.
fn open(
    operation: Operation,
    (options, service): (&EndOptions, Service),
    choice: Choice,
    stop: &StopFlag,
) -> Result<End, Box<dyn Error>> {
    let (len, slots) = (options.size as usize, messages(options.size as usize));
    let end = End::open(options, service, ((slots * len) as u32, options.depth), choice, stop)?;
    for slot in 0..slots {
        let (message, is_written) =
            (Pattern::of(slot as u64, len), matches!(operation, Operation::Send | Operation::Write));
        if is_written { message.fill(end.memory(), slot * len, len) } else { READ.spoil(end.memory(), slot * len, len) }
    }
    Ok(end)
}

/// What the memory of a peer of ours has.
const READ: Pattern = Pattern::named(OFFERED);

/// What a test found.
struct Measured {
    /// From post to completion, in ns.
    latencies: Histogram<u64>,
    span: Duration,
    /// Bytes that were compared, where this end gets any.
    verified: Option<u64>,
}

/// How we are named to the peer.
pub(super) fn address(end: &End, path: &Path) -> PerftestAddress {
    let Remote { address, rkey } = end.remote();
    PerftestAddress {
        lid: 0,
        rd_atomics: u16::from(RD_ATOMICS),
        qpn: end.qpn(),
        psn: end.psn(),
        rkey,
        address,
        gid: gid(End::address(path)),
        srqn: 0,
    }
}

/// The steps up to the addresses; the peer's MTU.
pub(super) fn greet(connection: &mut Connection, ours: Mtu) -> Result<Mtu, Box<dyn Error>> {
    connection.ask(&perftest::VERSION)?;
    connection.ask(&perftest::CYCLE_BUFFER.to_be_bytes())?;
    connection.ask(&perftest::CACHE_LINE.to_be_bytes())?;
    mtu_of_text(connection.ask(&mtu_text(ours))?)
}

/// What a peer's text says about its queue pair.
pub(super) fn peer_qp(theirs: &PerftestAddress, mtu: Mtu) -> Result<PeerQp, Box<dyn Error>> {
    let address = theirs.gid.to_ipv4_mapped().ok_or("the peer's GID is no IPv4 address: give it another index")?;
    let rd_atomics = u8::try_from(theirs.rd_atomics).unwrap_or(u8::MAX).max(1);
    Ok(PeerQp { qpn: theirs.qpn, psn: theirs.psn, address, mtu, rd_atomics })
}

/// The text of an MTU.
pub(super) fn mtu_text(mtu: Mtu) -> [u8; perftest::MTU_LEN] {
    [b'0' + mtu as u8, 0]
}

/// The MTU of a text.
pub(super) fn mtu_of_text(text: [u8; perftest::MTU_LEN]) -> Result<Mtu, Box<dyn Error>> {
    let found = Mtu::ALL.into_iter().find(|mtu| mtu_text(*mtu) == text);
    found.ok_or_else(|| "the peer speaks another exchange: its MTU cannot be read".into())
}

fn request(operation: Operation, remote: Remote) -> SendOperation {
    match operation {
        Operation::Send => SendOperation::Send,
        Operation::Write => SendOperation::Write(remote),
        Operation::Read => SendOperation::Read(remote),
        Operation::Atomic => SendOperation::FetchAdd { remote, add: 1 },
    }
}

/// Posts all requests, `depth` at once, and compares what READs and atomic operations bring.
fn measure(
    end: &mut End,
    (operation, remote): (Operation, Remote),
    options: &EndOptions,
    is_ours: bool,
) -> Result<Measured, Box<dyn Error>> {
    let (len, slots) = (options.size as usize, messages(options.size as usize));
    let at = |number: u32| number as usize % slots * len;
    let mut latencies = Histogram::new_with_bounds(1, LATENCY_MAX, 3)?;
    let mut posted_at = VecDeque::with_capacity(options.depth as usize);
    let (begun, mut posted, mut bytes, mut counter) = (Instant::now(), 0, 0, None);
    for number in 0..options.count {
        while posted < options.count && posted_at.len() < options.depth as usize {
            end.post_at(request(operation, remote), at(posted), options.size)?;
            posted_at.push_back(Instant::now());
            posted += 1;
        }
        end.wait()?;
        // Requests of a queue pair complete in order.
        if let Some(at) = posted_at.pop_front() {
            latencies.saturating_record(at.elapsed().as_nanos() as u64);
        }
        let (memory, at) = (end.memory(), at(number));
        match operation {
            Operation::Read if is_ours => {
                bytes += READ.compare(memory, at, len).map_err(|why| format!("READ {number}: {why}"))?;
                // With many slots the next one of this slot begins on the wire in a later turn.
                // With one, its first packets may be there already.
                if slots > 1 {
                    READ.spoil(memory, at, len);
                }
            }
            Operation::Atomic => {
                let found = memory.load_u64(at);
                if counter.is_some_and(|before: u64| found != before.wrapping_add(1)) {
                    return Err(format!("atomic operation {number} found {found}, and not one more than before").into());
                }
                (counter, bytes) = (Some(found), bytes + 8);
            }
            _ => {}
        }
    }
    let gets_bytes = matches!(operation, Operation::Read | Operation::Atomic);
    Ok(Measured { latencies, span: begun.elapsed(), verified: gets_bytes.then_some(bytes) })
}

fn report(
    end: &End,
    operation: Operation,
    options: &EndOptions,
    Measured { latencies, span, verified: bytes }: &Measured,
) -> Result<(), Box<dyn Error>> {
    let seconds = span.as_secs_f64();
    let mut out = io::stdout().lock();
    let EndOptions { count, size, depth, .. } = options;
    writeln!(out, "{operation:?} of {size} bytes, {count} times, {depth} at once; {}, MTU {}", end.by(), end.mtu())?;
    writeln!(out, "post to completion: {}", self::latencies(latencies))?;
    let rate = f64::from(*count) / seconds;
    writeln!(out, "{rate:.0} a second, {:.3} Gbit/s", rate * f64::from(*size) * 8.0 / 1e9)?;
    writeln!(out, "{}", end.losses())?;
    match operation {
        Operation::Send | Operation::Write => {}
        Operation::Read | Operation::Atomic => writeln!(out, "{}", verified(*bytes))?,
    }
    Ok(())
}

/// Latencies in words.
pub(super) fn latencies(of: &Histogram<u64>) -> String {
    let us = |ns: u64| ns as f64 / 1e3;
    let [p50, p99] = [0.5, 0.99].map(|part| us(of.value_at_quantile(part)));
    format!("min {:.1} us, p50 {p50:.1}, p99 {p99:.1}, max {:.1}", us(of.min()), us(of.max()))
}
