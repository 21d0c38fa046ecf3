//! Whole workers on memory devices: an echo at one end, a client at the other.

mod tcp;

use core::net::{Ipv4Addr, SocketAddrV4};

use super::*;
use crate::counters::Block;
use crate::device::memory::{MemoryConfig, MemoryDevice, MemoryRx, MemoryTx, pair};
use crate::device::{Device, Queue};
use crate::mem::Pool;
use crate::pipeline::{
    App, Cx, Datagram, EgressConfig, Ipv4Config, StackConfig, UdpConfig, UdpFlow, UdpOptions, UdpStack, Vlans, send_to,
    udp_stack,
};
use crate::proto::{
    ConsumerId, HashSeed, Host, HostConfig, HostEvent, InterfaceId, Ipv4Prefix, Sharing, SocketCapacity, UdpSockets,
};
use crate::time::{Duration, Instant, MonotonicClock};
use crate::wire::{MacAddr, VlanTags};

const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const PORT: u16 = 7;

type Party<A> = Worker<MemoryRx, MemoryTx, UdpStack, A>;

/// Sends every datagram back.
struct Echo;

impl App for Echo {
    fn on_datagram(&mut self, datagram: &Datagram<'_>, cx: &mut Cx<'_>) {
        let sent = send_to(datagram.destination, datagram.source, &UdpOptions::default(), datagram.payload, cx);
        assert!(sent.is_ok(), "{sent:?}");
    }
}

/// Keeps the received datagrams, and counts its ticks.
#[derive(Default)]
struct Client {
    heard: Vec<Vec<u8>>,
    ticks: usize,
}

impl App for Client {
    fn tick(&mut self, _cx: &mut Cx<'_>) {
        self.ticks += 1;
    }

    fn on_datagram(&mut self, datagram: &Datagram<'_>, _cx: &mut Cx<'_>) {
        self.heard.push(datagram.payload.to_vec());
    }
}

fn mac(address: Ipv4Addr) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, address.octets()[3]])
}

fn host(own: Ipv4Addr, neighbor: Ipv4Addr) -> Host {
    let config = HostConfig {
        interface: InterfaceId(0),
        mac: mac(own),
        vlan: VlanTags::NONE,
        mtu: 1500,
        addresses_max: 1,
        routes_max: 1,
        neighbors_max: 1,
    };
    let mut host = Host::new(config, HashSeed::new(1, 2)).unwrap();
    host.apply(HostEvent::AddressAdded(Ipv4Prefix::new(own, 24).unwrap())).unwrap();
    host.apply(HostEvent::NeighborSet { address: neighbor, mac: mac(neighbor) }).unwrap();
    host
}

/// A worker with `app` at `own`, which has bound the port.
fn party<A: App>(
    queue: <MemoryDevice as Device>::Queue,
    own: Ipv4Addr,
    neighbor: Ipv4Addr,
    app: A,
    block: &Block,
) -> Party<A> {
    let scope = block.scope(&own.to_string());
    let pool = Pool::heap(256).unwrap();
    let (rx, tx) = queue.open(&pool, &scope).unwrap();
    let seed = HashSeed::new(5, 6);
    let mut sockets = UdpSockets::new(SocketCapacity::default(), seed);
    let local = SocketAddrV4::new(own, PORT);
    sockets.bind(ConsumerId(1), local, Sharing::Exclusive).unwrap();
    let stack = StackConfig {
        station: Some(mac(own)),
        vlans: Vlans::Untagged,
        ipv4: Ipv4Config::new(seed),
        udp: UdpConfig::default(),
    };
    let pipeline = udp_stack(stack, &scope);
    let host = host(own, neighbor);
    Worker::new(
        Parts { rx, tx, pipeline, app, pool, host, sockets, egress: EgressConfig::quiet(seed), burst_len: 32 },
        &scope,
    )
}

fn wire() -> (MemoryDevice, MemoryDevice) {
    pair("wire", MemoryConfig::default())
}

/// Both parties on one thread.
fn parties(block: &Block) -> (Party<Client>, Party<Echo>) {
    let (mut near, mut far) = wire();
    let client = party(near.take_queue(0).unwrap(), CLIENT, SERVER, Client::default(), block);
    (client, party(far.take_queue(0).unwrap(), SERVER, CLIENT, Echo, block))
}

fn send(client: &mut Party<Client>, payload: &[u8]) {
    client.with_app(Instant::ZERO, |_, cx| {
        let local = SocketAddrV4::new(CLIENT, PORT);
        let mut flow = UdpFlow::connect(local, SocketAddrV4::new(SERVER, PORT), &UdpOptions::default(), cx).unwrap();
        flow.send(payload, cx).unwrap();
    });
}

#[test]
fn request_and_answer_cross_in_one_poll_each() {
    let block = Block::heap();
    let (mut client, mut server) = parties(&block);
    send(&mut client, b"buy 100");
    assert_eq!((server.poll_once(Instant::from_nanos(1)), client.poll_once(Instant::from_nanos(2))), (1, 1));
    assert_eq!((client.app().heard[0].as_slice(), client.app().ticks), (&b"buy 100"[..], 1));
    assert_eq!((client.pool().in_use(), server.pool().in_use()), (0, 0));
}

#[test]
fn turn_costs_its_time_where_frames_came() {
    let block = Block::heap();
    let (mut client, mut server) = parties(&block);
    send(&mut client, b"x");
    for now in [100, 350, 900] {
        server.poll_once(Instant::from_nanos(now));
    }
    server.publish();
    let snapshot = block.snapshot();
    let count = |name: &str| snapshot.count(&format!("{SERVER}/{name}"));
    assert_eq!((count("polls"), count("bursts"), count("frames")), (Some(3), Some(1), Some(1)));
    assert_eq!(count("last_poll"), Some(900));
}

#[test]
fn run_ends_when_the_device_has_ended_and_everything_was_handled() {
    let block = Block::heap();
    let (mut client, mut server) = parties(&block);
    send(&mut client, b"last words");
    drop(client);
    let ended = server.run(&mut MonotonicClock::start(), &StopFlag::new());
    assert_eq!(ended, Ended::DeviceEnded);
    assert_eq!(block.snapshot().count(&format!("{SERVER}/udp/datagrams")), Some(1));
}

#[test]
fn run_ends_when_asked_to() {
    let (mut client, _server) = parties(&Block::heap());
    let stop = StopFlag::new();
    stop.stop();
    assert_eq!(client.run(&mut MonotonicClock::start(), &stop), Ended::Stopped);
}

#[test]
fn two_workers_of_a_crew_talk_over_a_wire_and_report_over_a_ring() {
    const REQUESTS: u32 = 1_000;
    let (mut near, mut far) = wire();
    let (near, far) = (near.take_queue(0).unwrap(), far.take_queue(0).unwrap());
    let (mut answers, mut reader) = spsc::lossless::ring::<u32>(2_048).unwrap();
    let server = WorkerSpec::new("server", move |post: &WorkerContext| {
        let mut worker = party(far, SERVER, CLIENT, Echo, &Block::heap());
        worker.run(&mut MonotonicClock::start(), &post.stop);
    });
    let client = WorkerSpec::new("client", move |post: &WorkerContext| {
        let mut worker = party(near, CLIENT, SERVER, Client::default(), &Block::heap());
        let mut now = Instant::ZERO;
        for request in 0..REQUESTS {
            send(&mut worker, &request.to_be_bytes());
            while worker.app().heard.len() as u32 <= request && !post.stop.is_stopping() {
                now += Duration::from_nanos(1);
                worker.poll_once(now);
                std::thread::yield_now();
            }
            let answer = worker.app().heard.last().and_then(|bytes| bytes.as_slice().try_into().ok());
            answers.push(u32::from_be_bytes(answer.unwrap())).unwrap();
        }
        post.stop.stop();
    });
    WorkerGroup::start(vec![server, client], &StopFlag::new()).unwrap().join().unwrap();
    let answers: Vec<u32> = core::iter::from_fn(|| reader.pop()).collect();
    assert_eq!(answers, (0..REQUESTS).collect::<Vec<_>>());
}
