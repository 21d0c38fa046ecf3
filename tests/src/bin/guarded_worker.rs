//! A worker to be guarded: our TCP over AF_XDP, connected to a kernel, until it is killed, or a
//! command on standard input says how to end.
//!
//! `guarded_worker NAMESPACE COUNT BYTES`: COUNT connections to [`THEIRS`] port 5000, over each of
//! which it sends BYTES; then it says `open` and turns on.
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::io::BufRead;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::mpsc::{self, Receiver};

use wirepath::counters::{Block, Scope};
use wirepath::device::af_xdp::AfXdpConfig;
use wirepath::device::steering::Rule;
use wirepath::device::{Device, Queue};
use wirepath::pipeline::tcp::roster::Roster;
use wirepath::pipeline::tcp::{
    ConnectionId, ConnectionOptions, Tcp, TcpConfig, TcpData, TcpEvent, TcpNodeConfig, TcpSockets, TcpSocketsConfig,
};
use wirepath::pipeline::{
    App, Arp, ArpConfig, ChecksumPolicy, Cx, Datagram, EgressConfig, Ethernet, Ipv4, Ipv4Config, Ipv4Successors, Udp,
    UdpConfig, Unhandled, Vlans,
};
use wirepath::proto::{ConsumerId, HashSeed, Host, HostConfig, HostEvent, InterfaceId, SocketCapacity, UdpSockets};
use wirepath::time::{Clock, MonotonicClock};
use wirepath::wire::VlanTags;
use wirepath::worker::kernel::Mirror;
use wirepath::worker::{Parts, Worker, guard};
use wirepath_tests::live::{NEAR, OURS, THEIRS, network};
use wirepath_tests::{netns, port};

type Stack = Ethernet<Ipv4<Udp, Unhandled, Unhandled, Tcp>, Arp>;

#[derive(Default)]
struct Caller {
    open: Vec<ConnectionId>,
    closed: usize,
}

impl App for Caller {
    fn on_datagram(&mut self, _: &Datagram<'_>, _: &mut Cx<'_>) {}

    fn on_tcp_event(&mut self, connection: ConnectionId, event: TcpEvent, _: &mut Cx<'_>) {
        match event {
            TcpEvent::Connected { .. } => self.open.push(connection),
            TcpEvent::Closed(_) => self.closed += 1,
            _ => {}
        }
    }

    fn on_tcp_data(&mut self, _: &TcpData<'_>, _: &mut Cx<'_>) {}
}

fn main() {
    guard::serve_if_spawned();
    let arguments: Vec<String> = std::env::args().collect();
    let (count, bytes): (usize, usize) = (arguments[2].parse().unwrap(), arguments[3].parse().unwrap());
    netns::enter(&arguments[1]).unwrap();
    let _guard = guard::spawn().unwrap();
    let (tell, told) = mpsc::channel();
    let worker = std::thread::spawn(move || run(count, bytes, &told));
    for line in std::io::stdin().lock().lines() {
        if tell.send(line.unwrap()).is_err() {
            break;
        }
    }
    drop(tell);
    // The worker's panic has been printed.
    let _ = worker.join();
    std::thread::sleep(std::time::Duration::from_secs(10));
}

fn run(count: usize, bytes: usize, told: &Receiver<String>) {
    let block = Block::heap();
    let mut worker = worker(count, &block.scope("host"));
    let mut clock = MonotonicClock::start();
    worker.poll_once(clock.now());
    let remote = SocketAddrV4::new(THEIRS, 5000);
    let any = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
    let mut begun = 0;
    while worker.app().open.len() < count {
        if begun < count && begun < worker.app().open.len() + 16 {
            let options = ConnectionOptions::default();
            worker.with_app(clock.now(), |_, cx| cx.tcp().connect(any, remote, &options, ConsumerId(0)).unwrap());
            begun += 1;
        }
        worker.poll_once(clock.now());
        std::thread::yield_now();
    }
    let data = vec![7; bytes];
    worker.with_app(clock.now(), |app, cx| {
        for connection in &app.open {
            assert!(bytes == 0 || cx.tcp().send(*connection, &data).unwrap() == bytes);
        }
    });
    println!("open");
    loop {
        worker.poll_once(clock.now());
        std::thread::yield_now();
        match told.try_recv().as_deref() {
            Ok("panic") => panic!("as the test wants it"),
            Ok("close") => worker.with_app(clock.now(), |app, cx| {
                app.open.iter().for_each(|connection| cx.tcp().close(*connection).unwrap());
            }),
            Ok("exit") => std::process::exit(0),
            Ok("send") => {
                worker.with_app(clock.now(), |app, cx| {
                    app.open.iter().for_each(|connection| _ = cx.tcp().send(*connection, &[7; 1_000]).unwrap());
                });
                println!("sent");
            }
            _ => {}
        }
        if worker.app().closed == count {
            println!("closed");
            worker.with_app(clock.now(), |app, _| app.closed = 0);
        }
    }
}

fn worker(
    count: usize,
    scope: &Scope,
) -> Worker<wirepath::device::af_xdp::AfXdpRx, wirepath::device::af_xdp::AfXdpTx, Stack, Caller> {
    let mirror = Mirror::open(&Block::heap().scope("link")).unwrap();
    let link = mirror.link(NEAR).unwrap().clone();
    let mut device = port::open(&AfXdpConfig { rx_ring_len: 2048, tx_ring_len: 2048, ..AfXdpConfig::new(NEAR) });
    device.steer(&Rule::ALL, 0).unwrap();
    let capabilities = device.capabilities();
    let pool = port::pool(16_384, 2048);
    let (rx, tx) = device.take_queue(0).unwrap().open(&pool, scope).unwrap();
    let seed = HashSeed::new(23, 29);
    let mut host = Host::new(
        HostConfig {
            interface: InterfaceId(link.idx),
            mac: link.mac,
            vlan: VlanTags::NONE,
            mtu: link.mtu,
            addresses_max: 2,
            routes_max: 2,
            neighbors_max: 8,
        },
        seed,
    )
    .unwrap();
    host.apply(HostEvent::AddressAdded(network(OURS))).unwrap();
    let next = Ipv4Successors {
        udp: Udp::new(UdpConfig::default(), scope),
        icmp: Unhandled::new("icmp", scope),
        igmp: Unhandled::new("igmp", scope),
        tcp: Tcp::new(TcpNodeConfig { checksum: ChecksumPolicy::AcceptPartial }, scope),
    };
    let ipv4 = Ipv4::new(Ipv4Config::new(seed), next, scope);
    let pipeline = Ethernet::new(Some(link.mac), Vlans::Untagged, ipv4, Arp::new(ArpConfig::new(seed), scope), scope);
    let machine = TcpConfig { connections_max: count, ..TcpConfig::default() };
    let mut tcp = TcpSockets::new(&TcpSocketsConfig { machine, capabilities, seed }, scope).unwrap();
    tcp.set_roster(Roster::create("guarded-worker", InterfaceId(link.idx), count).unwrap());
    let sockets = UdpSockets::new(SocketCapacity::default(), seed);
    let (app, egress) = (Caller::default(), EgressConfig::host(seed));
    Worker::new(Parts { rx, tx, pipeline, app, pool, host, sockets, egress, burst_len: 32 }, scope).with_tcp(tcp)
}
