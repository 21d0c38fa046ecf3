//! Clients on our own network, whose MAC addresses must be resolved first: genuine clients are
//! accepted, however many SYNs arrive from unused addresses.

use super::frames::{SegmentEnds, frame};
use super::silence::resolving_worker_with;
use super::*;
use crate::device::{Offload, RxQueue, TxQueue};
use crate::mem::Burst;
use crate::wire::{TcpFields, TcpFlags};

/// Genuine clients: 10.0.1.1 and the next.
const GENUINE_CLIENTS: u8 = 8;
/// Turns from an ARP request on the wire to its reply.
const ANSWER_TURNS: usize = 4;
/// The clients.
#[derive(Clone, Copy)]
struct Crowd {
    /// Time between two turns of the worker.
    turn: Duration,
    turns: usize,
    /// SYNs per second from unused addresses.
    flood_per_second: u64,
    /// The number of such addresses.
    silent: u64,
    /// ARP requests per second from made-up senders.
    questions_per_second: u64,
    /// Whether genuine clients request our MAC address before they call; otherwise they have it
    /// already.
    asks_first: bool,
}

/// Four seconds.
const SLOW: Crowd = Crowd {
    turn: Duration::from_micros(500),
    turns: 8_000,
    flood_per_second: 0,
    silent: 250,
    questions_per_second: 0,
    asks_first: false,
};
/// A quarter of a second.
const FAST: Crowd = Crowd { turn: Duration::from_micros(50), turns: 5_000, ..SLOW };

fn silent(idx: u64) -> Ipv4Addr {
    Ipv4Addr::from_bits(Ipv4Addr::new(10, 0, 2, 0).to_bits() + idx as u32)
}

fn client(idx: u8) -> (Ipv4Addr, MacAddr) {
    (Ipv4Addr::new(10, 0, 1, idx), MacAddr([2, 0, 0, 0, 1, idx]))
}

/// An ARP packet of `from` to us: 1 requests, 2 replies.
fn arp(operation: u8, from: (Ipv4Addr, MacAddr)) -> Vec<u8> {
    let kind = [0, 1, 8, 0, 6, 4, 0, operation];
    let (us, them) = (address(1).octets(), from.0.octets());
    let to = if operation == 1 { MacAddr::BROADCAST } else { mac(1) };
    [&to.0[..], &from.1.0, &[8, 6], &kind, &from.1.0, &them, &mac(1).0, &us].concat()
}

fn segment(from: (Ipv4Addr, MacAddr), port: u16, flags: TcpFlags, ack: u32) -> Vec<u8> {
    let seq = if flags == TcpFlags::SYN { 0 } else { 1 };
    let fields =
        TcpFields { source_port: port, destination_port: 80, seq, ack, flags, window: 65_535, urgent_pointer: 0 };
    frame(&SegmentEnds { from, to: (address(1), mac(1)) }, &fields, &[], &[])
}

/// The outcome of a run with genuine clients and attackers.
#[derive(Clone, Copy, Debug)]
struct Outcome {
    /// Genuine clients that were accepted.
    let_in: u64,
    /// ARP requests that all stations of the network received.
    questions: u64,
}

/// Runs a crowd in which each genuine client calls after half of the time, and again after a
/// second.
fn run(crowd: Crowd) -> Outcome {
    let (left, mut right) = pair("tcp", MemoryConfig { slots: 1024, ..MemoryConfig::default() });
    let block = Block::heap();
    let machine = TcpConfig { chunks_max: 64, ..TcpConfig::default() };
    let mut end = resolving_worker_with(left, machine, crowded_host(), &block);
    let pool = Pool::heap(1024).unwrap();
    let (mut rx, mut tx) = right.take_queue(0).unwrap().open(&pool, &block.scope("peer")).unwrap();
    let begin = Instant::ZERO + Duration::from_secs(1);
    let server = SocketAddrV4::new(address(1), 80);
    end.with_app(begin, |_, cx| _ = cx.tcp().listen(server, &ListenOptions::default()).unwrap());
    let second = (1_000_000_000 / crowd.turn.as_nanos()) as usize;
    let call_at = |idx: u8| crowd.turns * 5 / 8 + usize::from(idx) * 97;
    let mut later: std::collections::VecDeque<(usize, Vec<u8>)> = Default::default();
    let (mut flood, mut questions, mut asked) = (0, 0, 0);
    for turn in 0..crowd.turns {
        let now = begin + Duration::from_nanos(crowd.turn.as_nanos() * turn as u64);
        let mut frames = Vec::new();
        while flood * 1_000_000_000 < crowd.flood_per_second * now.since(begin).as_nanos() {
            let from = (silent(flood % crowd.silent), MacAddr([2, 0, 0, 0, 9, 9]));
            frames.push(segment(from, 1_024 + (flood / crowd.silent % 60_000) as u16, TcpFlags::SYN, 0));
            flood += 1;
        }
        while questions * 1_000_000_000 < crowd.questions_per_second * now.since(begin).as_nanos() {
            frames.push(arp(1, (silent(10_000 + questions % 20_000), MacAddr([2, 0, 0, 0, 9, 8]))));
            questions += 1;
        }
        for idx in 1..=GENUINE_CLIENTS {
            if crowd.asks_first && turn == call_at(idx) {
                frames.push(arp(1, client(idx)));
            }
            if turn == call_at(idx) + 2 * ANSWER_TURNS || turn == call_at(idx) + second {
                frames.push(segment(client(idx), 5_000, TcpFlags::SYN, 0));
            }
        }
        while later.front().is_some_and(|(at, _)| *at <= turn) {
            frames.extend(later.pop_front().map(|(_, frame)| frame));
        }
        frames.into_iter().for_each(|frame| tx.post(pool.alloc_copy(&frame).unwrap(), Offload::NONE).unwrap());
        tx.ring_doorbell(now);
        end.poll_once(now);
        let mut burst = Burst::new();
        while rx.receive(&mut burst, 32, &pool, now) > 0 {
            for mbuf in burst.drain(..) {
                asked += u64::from(is_question(mbuf.bytes()));
                later.extend(answer(mbuf.bytes()).map(|answer| (turn + ANSWER_TURNS, answer)));
                mbuf.free();
            }
        }
        tx.reap();
    }
    Outcome { let_in: end.tcp().tally().established, questions: asked }
}

/// The number of genuine clients accepted in two runs: in the second one they send an ARP request
/// first.
fn let_in(crowd: Crowd) -> [u64; 2] {
    [false, true].map(|asks_first| run(Crowd { asks_first, ..crowd }).let_in)
}

/// A broadcast ARP request.
fn is_question(frame: &[u8]) -> bool {
    frame[..6] == MacAddr::BROADCAST.0 && frame[12..14] == [8, 6] && frame[21] == 1
}

/// A host on a network of 65,534 addresses with an empty neighbor table.
fn crowded_host() -> Host {
    let config = HostConfig {
        interface: InterfaceId(0),
        mac: mac(1),
        vlan: VlanTags::NONE,
        mtu: 1500,
        addresses_max: 1,
        routes_max: 1,
        neighbors_max: 512,
    };
    let mut host = Host::new(config, HashSeed::new(1, 7)).unwrap();
    host.apply(HostEvent::AddressAdded(Ipv4Prefix::new(address(1), 16).unwrap())).unwrap();
    host
}

/// A genuine client's answer to a frame of ours.
fn answer(frame: &[u8]) -> Option<Vec<u8>> {
    let clients = || (1..=GENUINE_CLIENTS).map(client);
    match &frame[12..14] {
        [8, 6] => {
            let asked = clients().find(|(address, _)| frame[38..42] == address.octets())?;
            (frame[21] == 1).then(|| arp(2, asked))
        }
        _ => {
            let called = clients().find(|(address, mac)| frame[..6] == mac.0 && frame[30..34] == address.octets())?;
            let word = |at: usize| u32::from_be_bytes(frame[at..at + 4].try_into().unwrap());
            let is_syn_ack = frame[47] == (TcpFlags::SYN | TcpFlags::ACK).0;
            is_syn_ack.then(|| segment(called, 5_000, TcpFlags::ACK, word(38).wrapping_add(1)))
        }
    }
}

#[test]
fn callers_who_are_there_get_in_while_nobody_else_calls() {
    assert_eq!(let_in(SLOW), [8, 8]);
}

/// A hundred SYNs per second were enough to lock out all clients, because pending requests kept
/// their entries for seven seconds.
#[test]
fn slow_flood_from_250_silent_addresses_locks_nobody_out() {
    assert_eq!(let_in(Crowd { flood_per_second: 100, ..SLOW }), [8, 8]);
}

#[test]
fn fast_flood_from_a_whole_network_locks_nobody_out() {
    for (flood_per_second, silent) in [(90_000, 250), (90_000, 60_000)] {
        assert_eq!(let_in(Crowd { flood_per_second, silent, ..FAST }), [8, 8], "{silent}");
    }
}

/// Neighbors learned from incoming requests do not take entries from those being resolved.
#[test]
fn flood_of_questions_with_made_up_senders_locks_nobody_out() {
    assert_eq!(let_in(Crowd { flood_per_second: 30_000, questions_per_second: 30_000, ..FAST }), [8, 8]);
}

/// Each SYN from another address made us broadcast an ARP request.
#[test]
fn flood_from_a_whole_network_has_us_ask_at_a_limited_rate() {
    let crowd = Crowd { flood_per_second: 90_000, silent: 60_000, ..FAST };
    for asks_first in [false, true] {
        let Outcome { let_in, questions } = run(Crowd { asks_first, ..crowd });
        // 300 at once, 1,000 per second for a quarter of one, and those for the genuine clients'
        // connections.
        assert!(let_in == 8 && (250..=300 + 250 + 8).contains(&questions), "{questions} questions, {let_in} let in");
    }
}
