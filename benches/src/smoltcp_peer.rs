//! smoltcp on the same wire: its device reads bursts of 32 from the same memory device into the
//! same kind of buffers, and lends the bytes without a further copy.

use core::net::SocketAddrV4;
use std::time;

use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::udp::{PacketBuffer, PacketMetadata, Socket};
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, HardwareAddress, IpCidr, IpListenEndpoint};
use wirepath::counters::Block;
use wirepath::device::memory::{MemoryConfig, MemoryRx, pair};
use wirepath::device::{Device, Queue, RxQueue};
use wirepath::mem::{Burst, Mbuf, Pool};

use crate::feeder::Feeder;
use crate::frames::{OUR_MAC, OURS, PAYLOAD_LEN, UdpChecksum, frame, group, shuffled};
use crate::receiver::ROUND;

/// Frames that a turn takes from the device.
const BURST: usize = 32;

/// How the application finds its datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// As smoltcp's documentation shows: poll the interface, then ask each socket.
    AskEach,
    /// The best case: after each frame, the bench names the socket that has it.
    KnownSocket,
}

/// An interface with sockets, each bound to a separate port at one group.
pub struct SmoltcpPeer {
    interface: Interface,
    wire: Wire,
    sockets: SocketSet<'static>,
    handles: Vec<SocketHandle>,
    order: Vec<u32>,
    next: usize,
    feeder: Feeder,
    reading: Reading,
    heard: u64,
    digest: u64,
}

impl SmoltcpPeer {
    /// `sockets` sockets; frames come for all of them without a pattern.
    pub fn new(sockets: u32, reading: Reading) -> Self {
        let block = Block::heap();
        let (mut port, far_port) = pair("smoltcp", MemoryConfig::default());
        let pool = Pool::heap(BURST).expect("32 buffers are 60 KB");
        let queue = port.take_queue(0).expect("a fresh port has its queue");
        let (rx, _) = queue.open(&pool, &block.scope("smoltcp")).expect("the default pool holds the port's frames");
        let mut wire = Wire { waiting: Burst::new().into_iter(), rx, allowance: 0, pool };
        let config = Config::new(HardwareAddress::Ethernet(EthernetAddress(OUR_MAC.0)));
        let mut interface = Interface::new(config, &mut wire, Instant::ZERO);
        interface.update_ip_addrs(|addresses| {
            addresses.push(IpCidr::new(OURS.into(), 24)).expect("there is room for one address");
        });
        interface.join_multicast_group(*group(0).ip()).expect("there is room for one group");
        let mut set = SocketSet::new(Vec::new());
        let handles = (0..sockets).map(|idx| set.add(socket(idx))).collect();
        let frames = (0..sockets).map(|idx| frame(end(idx), PAYLOAD_LEN, UdpChecksum::Zero)).collect();
        let order = shuffled(sockets, 4096, 1);
        let feeder = Feeder::new(far_port, frames, order.clone(), &block.scope("feeder"));
        Self { interface, wire, sockets: set, handles, order, next: 0, feeder, reading, heard: 0, digest: 0 }
    }

    /// Nanoseconds a packet, from the device until the caller has its payload.
    pub fn time(&mut self, rounds: usize) -> f64 {
        let mut spent = time::Duration::ZERO;
        let before = self.heard;
        for _ in 0..rounds {
            self.feeder.feed(ROUND);
            let start = time::Instant::now();
            for _ in 0..ROUND / BURST {
                self.wire.allowance = BURST;
                match self.reading {
                    Reading::AskEach => self.poll_and_ask(),
                    Reading::KnownSocket => self.poll_known_socket(),
                }
            }
            spent += start.elapsed();
        }
        assert_eq!(self.heard - before, (rounds * ROUND) as u64, "a datagram was not heard");
        spent.as_nanos() as f64 / (rounds * ROUND) as f64
    }

    fn poll_and_ask(&mut self) {
        self.interface.poll(Instant::ZERO, &mut self.wire, &mut self.sockets);
        for handle in &self.handles {
            let socket = self.sockets.get_mut::<Socket<'_>>(*handle);
            while let Ok((payload, _)) = socket.recv() {
                self.heard += 1;
                self.digest = self.digest.wrapping_add(first_word(payload));
            }
        }
    }

    fn poll_known_socket(&mut self) {
        for _ in 0..BURST {
            self.interface.poll_ingress_single(Instant::ZERO, &mut self.wire, &mut self.sockets);
            let idx = self.order[self.next] as usize;
            self.next = (self.next + 1) % self.order.len();
            let socket = self.sockets.get_mut::<Socket<'_>>(self.handles[idx]);
            if let Ok((payload, _)) = socket.recv() {
                self.heard += 1;
                self.digest = self.digest.wrapping_add(first_word(payload));
            }
        }
    }
}

fn first_word(payload: &[u8]) -> u64 {
    payload.first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes))
}

/// One group, because smoltcp's table holds four, and a port for each socket.
fn end(idx: u32) -> SocketAddrV4 {
    SocketAddrV4::new(*group(0).ip(), 10_000 + idx as u16)
}

fn socket(idx: u32) -> Socket<'static> {
    let rx = PacketBuffer::new(vec![PacketMetadata::EMPTY; 2 * BURST], vec![0; 2 * BURST * PAYLOAD_LEN]);
    let tx = PacketBuffer::new(vec![PacketMetadata::EMPTY; 1], vec![0; 64]);
    let mut socket = Socket::new(rx, tx);
    let end = end(idx);
    let listen = IpListenEndpoint { addr: Some((*end.ip()).into()), port: end.port() };
    socket.bind(listen).expect("the port is not zero");
    socket
}

/// The memory device as a smoltcp device.
struct Wire {
    // Before the pool: mbufs must be dropped first.
    waiting: <Burst as IntoIterator>::IntoIter,
    rx: MemoryRx,
    /// Frames that may still be taken in this turn.
    allowance: usize,
    pool: Pool,
}

struct Arrived(Mbuf);
struct Nowhere;

impl smoltcp::phy::Device for Wire {
    type RxToken<'a> = Arrived;
    type TxToken<'a> = Nowhere;

    fn receive(&mut self, _: Instant) -> Option<(Arrived, Nowhere)> {
        if self.waiting.len() == 0 && self.allowance > 0 {
            let mut burst = Burst::new();
            let now = wirepath::time::Instant::ZERO;
            self.allowance -= self.rx.receive(&mut burst, self.allowance, &self.pool, now);
            self.waiting = burst.into_iter();
        }
        self.waiting.next().map(|mbuf| (Arrived(mbuf), Nowhere))
    }

    fn transmit(&mut self, _: Instant) -> Option<Nowhere> {
        Some(Nowhere)
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = 1514;
        capabilities
    }
}

impl RxToken for Arrived {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, take: F) -> R {
        let result = take(self.0.bytes());
        self.0.free();
        result
    }
}

impl TxToken for Nowhere {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, fill: F) -> R {
        fill(&mut vec![0; len])
    }
}
