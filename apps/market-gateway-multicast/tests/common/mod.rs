//! A service on the loopback interface, and a listener of it, turned in one thread.
#![allow(dead_code, reason = "each user needs its own part")]

use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::time::{Duration, Instant};

use market::event::{Event, System};
use market_gateway_multicast::{
    ListenerConfig, ListenerHandler, Receiver, ReceiverConfig, Service, ServiceConfig, Turn,
};
use market_ring::{Read, Record, RingConfig, RingReader, RingWriter};
use tempfile::TempDir;
use wirepath::counters::Block;
use wirepath::proto::Ipv4Prefix;

/// A bound on waiting, for a machine that is busy; what is tested does not depend on it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
const HOST: Ipv4Addr = Ipv4Addr::LOCALHOST;

/// What a listener was told: `R5` is record 5 of the ring.
#[derive(Default)]
pub(crate) struct Story(pub(crate) Vec<String>);

impl ListenerHandler for Story {
    fn on_read(&mut self, read: &Read) {
        self.0.push(match read {
            Read::Record { seq, .. } => format!("R{seq}"),
            Read::Joined { before } => format!("J{before}"),
            Read::Overrun { first, last } => format!("O{first}-{last}"),
            Read::Closed => ".".to_owned(),
            other => format!("{other:?}"),
        });
    }

    fn on_restart(&mut self) {
        self.0.push("restart".to_owned());
    }

    fn on_writer_gone(&mut self) {
        self.0.push("gone".to_owned());
    }
}

/// A ring and the service that publishes it.
pub(crate) struct Published {
    pub(crate) writer: Option<RingWriter>,
    pub(crate) service: Service,
    pub(crate) block: Block,
    pub(crate) group: SocketAddrV4,
    pub(crate) server: SocketAddrV4,
    pub(crate) folder: TempDir,
    started: Instant,
}

/// A port that is free now, for each its own group.
fn free_port() -> u16 {
    UdpSocket::bind((HOST, 0)).unwrap().local_addr().unwrap().port()
}

impl Published {
    /// A ring of so many records, of which the server keeps `kept`.
    pub(crate) fn new(records: usize, kept: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ring");
        let writer = RingWriter::create(&path, &RingConfig { records, ..RingConfig::default() }).unwrap();
        let (port, server_port) = (free_port(), free_port());
        let group = SocketAddrV4::new(Ipv4Addr::new(239, 195, (port >> 8) as u8, port as u8), port);
        let config = ServiceConfig {
            loopback: true,
            rerequest: Some(server_port),
            kept,
            ..ServiceConfig::new(group, Ipv4Prefix::new(HOST, 32).unwrap())
        };
        let (block, started) = (Block::heap(), Instant::now());
        let service = Service::start(&config, RingReader::open(&path).unwrap(), 0, &block).unwrap();
        block.check().unwrap();
        let server = SocketAddrV4::new(HOST, server_port);
        Self { writer: Some(writer), service, block, group, server, folder, started }
    }

    pub(crate) fn listener(&self, from_start: bool) -> Receiver {
        let listener = ListenerConfig { from_start, ..ListenerConfig::default() };
        let (group, server) = (self.group, Some(self.server));
        Receiver::open(&ReceiverConfig { group, interface: HOST, server, listener }).unwrap()
    }

    pub(crate) fn write(&mut self, count: u64) -> &mut Self {
        let writer = self.writer.as_mut().unwrap();
        for _ in 0..count {
            writer.publish(&Record::new(0, Event::System(System { code: b'O', at_ns: 0 })));
        }
        self
    }

    pub(crate) fn now_ns(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }

    /// Sends what there is.
    pub(crate) fn send(&mut self) -> &mut Self {
        let now_ns = self.now_ns();
        while self.service.turn(now_ns) == Turn::Busy {}
        self
    }

    /// Turns both ends until the story is long enough.
    pub(crate) fn hear(&mut self, receiver: &mut Receiver, story: &mut Story, len: usize) {
        let until = Instant::now() + PATIENCE;
        while story.0.len() < len {
            assert!(Instant::now() < until, "{:?}", story.0);
            let now_ns = self.now_ns();
            self.service.turn(now_ns);
            receiver.turn(now_ns, story);
        }
    }
}
