//! smoltcp's TCP: two interfaces with a socket each.

use core::net::Ipv4Addr;
use std::time;

use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{ChecksumCapabilities, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp::{Socket, SocketBuffer};
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, HardwareAddress, IpCidr, IpEndpoint};
use wirepath::counters::Block;
use wirepath::device::memory::{MemoryDevice, MemoryRx, MemoryTx, pair};
use wirepath::device::{Device, Offload, Queue, RxQueue, TxQueue};
use wirepath::mem::{Burst, Mbuf, Pool};

use super::{BUFFER_LEN, Checksums, MESSAGE_LEN, PEER_CHUNK_LEN, wire};

const PORT: u16 = 80;
/// Frames of a turn.
const BURST: usize = 32;

/// Two ends, connected.
pub struct SmoltcpPair {
    client: End,
    server: End,
    clock: i64,
    chunk: Vec<u8>,
}

struct End {
    interface: Interface,
    wire: Wire,
    sockets: SocketSet<'static>,
    handle: SocketHandle,
}

impl SmoltcpPair {
    /// Connected, and nothing sent.
    pub fn new(checksums: Checksums) -> Self {
        let (left, right) = pair("smoltcp", wire(checksums));
        let (client, server) = (End::new(left, 1, checksums), End::new(right, 2, checksums));
        let mut pair = Self { client, server, clock: 0, chunk: vec![7; PEER_CHUNK_LEN] };
        pair.server.socket().listen(PORT).expect("the port is not zero");
        let remote = IpEndpoint::new(address(2).into(), PORT);
        let End { interface, sockets, handle, .. } = &mut pair.client;
        let socket = sockets.get_mut::<Socket<'_>>(*handle);
        socket.connect(interface.context(), remote, 50_000).expect("a fresh socket connects");
        for _ in 0..100 {
            pair.turn();
        }
        assert!(pair.client.socket().may_send() && pair.server.socket().may_send(), "the handshake is done");
        pair
    }

    /// Gbit/s from one app to the other.
    pub fn bulk(&mut self, bytes: usize) -> f64 {
        let start = time::Instant::now();
        let mut received = 0;
        while received < bytes {
            let socket = self.client.socket();
            while matches!(socket.send_slice(&self.chunk), Ok(1..)) {}
            self.turn();
            received += self.server.take();
        }
        8.0 * received as f64 / start.elapsed().as_nanos() as f64
    }

    /// Nanoseconds for a request and its response, both ends.
    pub fn round_trip(&mut self, count: usize) -> f64 {
        let start = time::Instant::now();
        for _ in 0..count {
            self.exchange();
        }
        start.elapsed().as_nanos() as f64 / count as f64
    }

    /// A request and its response.
    #[inline(never)]
    pub fn exchange(&mut self) {
        let message = [7; MESSAGE_LEN];
        self.client.socket().send_slice(&message).expect("the socket is open");
        self.poll_client();
        self.poll_server();
        let request = self.server.take();
        self.server.socket().send_slice(&message[..request]).expect("the socket is open");
        self.poll_server();
        self.poll_client();
        assert_eq!((request, self.client.take()), (MESSAGE_LEN, MESSAGE_LEN), "the response is there at once");
    }

    fn turn(&mut self) {
        self.poll_client();
        self.poll_server();
    }

    fn poll_client(&mut self) {
        self.clock += 1;
        self.client.poll(Instant::from_micros(self.clock));
    }

    fn poll_server(&mut self) {
        self.clock += 1;
        self.server.poll(Instant::from_micros(self.clock));
    }
}

fn address(host: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, host)
}

impl End {
    fn new(mut port: MemoryDevice, host: u8, checksums: Checksums) -> Self {
        let block = Block::heap();
        let pool = Pool::heap(2048).expect("2048 buffers are 4 MB");
        let queue = port.take_queue(0).expect("a fresh port has its queue");
        let (rx, tx) = queue.open(&pool, &block.scope("smoltcp")).expect("the default pool holds the port's frames");
        let mut wire = Wire { waiting: Burst::new().into_iter(), rx, tx, checksums, pool };
        let mac = HardwareAddress::Ethernet(EthernetAddress([2, 0, 0, 0, 0, host]));
        let mut interface = Interface::new(Config::new(mac), &mut wire, Instant::ZERO);
        interface.update_ip_addrs(|addresses| {
            addresses.push(IpCidr::new(address(host).into(), 24)).expect("there is room for one address");
        });
        let buffer = || SocketBuffer::new(vec![0; BUFFER_LEN]);
        let mut socket = Socket::new(buffer(), buffer());
        socket.set_nagle_enabled(false);
        let mut sockets = SocketSet::new(Vec::new());
        let handle = sockets.add(socket);
        Self { interface, wire, sockets, handle }
    }

    fn socket(&mut self) -> &mut Socket<'static> {
        self.sockets.get_mut(self.handle)
    }

    fn poll(&mut self, now: Instant) {
        self.wire.tx.reap();
        self.interface.poll(now, &mut self.wire, &mut self.sockets);
        self.wire.tx.ring_doorbell(wirepath::time::Instant::ZERO);
    }

    /// Reads the received bytes; returns their number.
    fn take(&mut self) -> usize {
        let mut count = 0;
        let socket = self.socket();
        while socket.can_recv() {
            count += socket.recv(|bytes| (bytes.len(), std::hint::black_box(bytes.len()))).expect("the socket is open");
        }
        count
    }
}

/// The memory device as a smoltcp device.
struct Wire {
    // Before the pool: mbufs must be dropped first.
    waiting: <Burst as IntoIterator>::IntoIter,
    rx: MemoryRx,
    tx: MemoryTx,
    checksums: Checksums,
    pool: Pool,
}

struct Arrived(Mbuf);
struct Leaving<'a>(&'a mut MemoryTx, &'a Pool);

impl smoltcp::phy::Device for Wire {
    type RxToken<'a> = Arrived;
    type TxToken<'a> = Leaving<'a>;

    fn receive(&mut self, _: Instant) -> Option<(Arrived, Leaving<'_>)> {
        if self.waiting.len() == 0 {
            let mut burst = Burst::new();
            self.rx.receive(&mut burst, BURST, &self.pool, wirepath::time::Instant::ZERO);
            self.waiting = burst.into_iter();
        }
        let mbuf = self.waiting.next()?;
        Some((Arrived(mbuf), Leaving(&mut self.tx, &self.pool)))
    }

    fn transmit(&mut self, _: Instant) -> Option<Leaving<'_>> {
        (self.tx.room() > 0).then_some(Leaving(&mut self.tx, &self.pool))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = 1514;
        if self.checksums == Checksums::Off {
            capabilities.checksum = ChecksumCapabilities::ignored();
        }
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

impl TxToken for Leaving<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, fill: F) -> R {
        let mut mbuf = self.1.alloc().expect("2048 buffers are more than are on their way");
        let result = fill(mbuf.append(len).expect("a frame fits a buffer"));
        if let Err(mbuf) = self.0.post(mbuf, Offload::NONE) {
            mbuf.free();
        }
        result
    }
}
