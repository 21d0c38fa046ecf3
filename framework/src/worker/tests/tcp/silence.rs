//! Tests of a peer that stops replying and whose MAC address may have changed: the worker resolves
//! the neighbor again, with a unicast request to the former MAC address.

use super::frames::{SegmentEnds, frame};
use super::*;
use crate::device::{Offload, RxQueue, TxQueue};
use crate::mem::Burst;
use crate::pipeline::{Arp, ArpConfig};
use crate::wire::{TcpFields, TcpFlags};

pub(super) type ResolvingWorker =
    Worker<MemoryRx, MemoryTx, Ethernet<Ipv4<Unhandled, Unhandled, Unhandled, Tcp>, Arp>, Talker>;

/// A worker with an empty neighbor table that receives replies.
fn resolving_worker(port: MemoryDevice, block: &Block) -> ResolvingWorker {
    let machine = TcpConfig { connections_max: 4, chunks_max: 64, ..TcpConfig::default() };
    let mut host = host(1, HashSeed::new(1, 7));
    host.apply(HostEvent::NeighborRemoved(address(2))).unwrap();
    resolving_worker_with(port, machine, host, block)
}

/// As [`resolving_worker`], with this TCP configuration and host.
pub(super) fn resolving_worker_with(
    mut port: MemoryDevice,
    machine: TcpConfig,
    host: Host,
    block: &Block,
) -> ResolvingWorker {
    let (scope, seed) = (block.scope("1"), HashSeed::new(1, 7));
    let pool = Pool::heap(1024).unwrap();
    let sockets = TcpSocketsConfig { machine, capabilities: port.capabilities(), seed };
    let (rx, tx) = port.take_queue(0).unwrap().open(&pool, &scope).unwrap();
    let next = Ipv4Successors {
        udp: Unhandled::new("udp", &scope),
        icmp: Unhandled::new("icmp", &scope),
        igmp: Unhandled::new("igmp", &scope),
        tcp: Tcp::new(TcpNodeConfig::default(), &scope),
    };
    let ipv4 = Ipv4::new(Ipv4Config::new(seed), next, &scope);
    let arp = Arp::new(ArpConfig::new(seed), &scope);
    let parts = Parts {
        rx,
        tx,
        pipeline: Ethernet::new(Some(mac(1)), Vlans::Untagged, ipv4, arp, &scope),
        app: Talker::default(),
        pool,
        host,
        sockets: UdpSockets::new(SocketCapacity::default(), seed),
        egress: EgressConfig::host(seed),
        burst_len: 32,
    };
    Worker::new(parts, &scope).with_tcp(TcpSockets::new(&sockets, &scope).unwrap())
}

/// The ARP reply of `mac(2)` for `address(2)`.
fn arp_reply() -> Vec<u8> {
    let kind = [0, 1, 8, 0, 6, 4, 0, 2];
    let (us, them) = (address(1).octets(), address(2).octets());
    [&mac(1).0[..], &mac(2).0, &[8, 6], &kind, &mac(2).0, &them, &mac(1).0, &us].concat()
}

/// The answer to a SYN in a frame.
fn syn_ack(syn: &[u8]) -> Vec<u8> {
    let word = |at: usize| u16::from_be_bytes([syn[at], syn[at + 1]]);
    let seq = u32::from(word(38)) << 16 | u32::from(word(40));
    let fields = TcpFields {
        source_port: word(36),
        destination_port: word(34),
        seq: 7,
        ack: seq.wrapping_add(1),
        flags: TcpFlags::SYN | TcpFlags::ACK,
        window: 65_535,
        urgent_pointer: 0,
    };
    frame(&SegmentEnds { from: (address(2), mac(2)), to: (address(1), mac(1)) }, &fields, &[], &[])
}

/// RFC 9293 3.8.3 (MUST-20 a): the IP layer is notified, and resolves the neighbor again.
#[test]
fn neighbor_is_asked_anew_after_three_retransmissions_to_it() {
    let (left, mut right) = pair("tcp", MemoryConfig::default());
    let block = Block::heap();
    let mut end = resolving_worker(left, &block);
    let pool = Pool::heap(64).unwrap();
    let (mut rx, mut tx) = right.take_queue(0).unwrap().open(&pool, &block.scope("peer")).unwrap();
    let begin = Instant::ZERO + Duration::from_secs(1);
    let any = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
    end.with_app(begin, |_, cx| {
        cx.tcp().connect(any, SERVER, &ConnectionOptions::default(), ConsumerId(1)).unwrap();
    });
    let (mut asked, mut data, mut has_sent) = (Vec::new(), 0, false);
    for ms in 0..20_000 {
        let now = begin + Duration::from_millis(ms);
        end.poll_once(now);
        let mut burst = Burst::new();
        rx.receive(&mut burst, 32, &pool, now);
        for mbuf in burst.drain(..) {
            let bytes = mbuf.bytes().to_vec();
            mbuf.free();
            let answer = match (&bytes[12..14], bytes.get(47)) {
                // It announces its own address as well.
                ([8, 6], _) if bytes[38..42] != address(2).octets() => None,
                ([8, 6], _) => {
                    asked.push((bytes[..6].to_vec(), data));
                    (asked.len() == 1).then(arp_reply)
                }
                (_, Some(flags)) if flags & TcpFlags::SYN.0 != 0 => Some(syn_ack(&bytes)),
                _ => {
                    // From here on the peer is silent.
                    data += usize::from(bytes.ends_with(b"order"));
                    None
                }
            };
            if let Some(answer) = answer {
                tx.post(pool.alloc_copy(&answer).unwrap(), Offload::NONE).unwrap();
            }
        }
        tx.ring_doorbell(now);
        if !has_sent && let Some(id) = end.app().id {
            has_sent = true;
            end.with_app(now, |_, cx| assert_eq!(cx.tcp().send(id, b"order"), Ok(5)));
        }
        if asked.len() == 2 {
            break;
        }
    }
    let [(first, 0), (second, sent)] = &asked[..] else { panic!("{asked:?}, {data} times sent") };
    assert_eq!(
        (&first[..], &second[..]),
        (&MacAddr::BROADCAST.0[..], &mac(2).0[..]),
        "all at first, then who was believed in"
    );
    assert!(*sent >= 3, "once, twice again, and a third time behind the question: {sent}");
    assert_eq!(end.tcp().tally().negative_advice, 1);
}
