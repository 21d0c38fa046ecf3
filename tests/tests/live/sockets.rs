//! Sockets of ours on an interface that is shared with the kernel, against sockets of the kernel at
//! the other end of a wire, in namespaces of the test's own.
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::io::{Read, Write};
use std::net::{self, Ipv4Addr, SocketAddrV4};
use std::thread;

use sockets::net::{TcpListener, TcpStream, UdpSocket};
use sockets::{Errno, Stack};
use wirepath::device::af_xdp::AfXdpConfig;
use wirepath::pipeline::tcp::TcpConfig;
use wirepath::time::Duration;
use wirepath::worker::live::{LiveConfig, PortConfig};
use wirepath_tests::live::{NEAR, OURS, THEIRS, TIMEOUT, Wire};

const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);
const PORT: u16 = 5_000;

/// A wire whose near end has an address of the kernel, and sockets of ours on it. `act` runs in the
/// near namespace.
fn with_stack(test: &str, act: impl FnOnce(&Wire, &Stack) + Send) {
    let Some(wire) = Wire::new(test) else { return };
    wire.near.ip(&["addr", "add", &format!("{OURS}/24"), "dev", NEAR]).unwrap();
    wire.near.run(|| {
        let port = AfXdpConfig { rx_ring_len: 256, tx_ring_len: 256, ..AfXdpConfig::new(NEAR) };
        let tcp = TcpConfig { connections_max: 64, chunks_max: 1_024, ..TcpConfig::default() };
        let config = LiveConfig::over(PortConfig::AfXdp(port)).named("sockets-test").tcp_with(tcp);
        let stack = Stack::open_with(&config, 64).unwrap_or_else(|error| panic!("{error}"));
        act(&wire, &stack);
    });
}

fn ours(port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(OURS, port)
}

/// A call of ours waits no longer than this.
fn patience() -> Option<Duration> {
    Some(Duration::from_secs(TIMEOUT.as_secs()))
}

#[test]
fn client_of_the_kernel_is_echoed_by_a_listener_of_ours() {
    with_stack("client_of_the_kernel_is_echoed_by_a_listener_of_ours", |wire, stack| {
        let listener = TcpListener::bind(stack, ours(PORT)).unwrap();
        listener.set_options(|options| options.receive_timeout = patience()).unwrap();
        let far = &wire.far;
        let (echoed, sent) = thread::scope(|scope| {
            let client = scope.spawn(|| {
                let mut socket = far.run(|| net::TcpStream::connect(ours(PORT))).unwrap();
                socket.set_read_timeout(Some(TIMEOUT)).unwrap();
                let sent: Vec<u8> = (0..200_000_u32).map(|n| (n % 251) as u8).collect();
                let mut reader = socket.try_clone().unwrap();
                let writer = sent.clone();
                let write = thread::spawn(move || {
                    socket.write_all(&writer).unwrap();
                    socket.shutdown(net::Shutdown::Write).unwrap();
                });
                let mut echoed = Vec::new();
                reader.read_to_end(&mut echoed).unwrap();
                write.join().unwrap();
                (echoed, sent)
            });
            let (mut stream, _) = listener.accept().unwrap();
            let mut bytes = [0; 8_192];
            loop {
                match stream.read(&mut bytes).unwrap() {
                    0 => break,
                    count => stream.write_all(&bytes[..count]).unwrap(),
                }
            }
            drop(stream);
            while !client.is_finished() {
                stack.turn();
            }
            client.join().unwrap()
        });
        assert!(echoed == sent);
    });
}

#[test]
fn call_of_ours_reaches_a_listener_of_the_kernel() {
    with_stack("call_of_ours_reaches_a_listener_of_the_kernel", |wire, stack| {
        let listener = wire.far.run(|| net::TcpListener::bind((THEIRS, 0)).unwrap());
        let remote = SocketAddrV4::new(THEIRS, listener.local_addr().unwrap().port());
        let mut stream = TcpStream::connect(stack, remote).unwrap();
        let (mut theirs, from) = listener.accept().unwrap();
        theirs.write_all(b"welcome").unwrap();
        let mut word = [0; 7];
        stream.read_exact(&mut word).unwrap();
        assert_eq!((&word, from), (b"welcome", net::SocketAddr::V4(stream.local_addr().unwrap())));
    });
}

#[test]
fn port_of_the_kernel_where_nobody_listens_refuses_us() {
    with_stack("port_of_the_kernel_where_nobody_listens_refuses_us", |_, stack| {
        let refused = TcpStream::connect(stack, SocketAddrV4::new(THEIRS, 9)).err().unwrap();
        assert_eq!(refused.raw_os_error(), Some(Errno::ECONNREFUSED.0));
    });
}

#[test]
fn datagrams_cross_both_ways_and_the_closed_port_is_the_kernels_again() {
    with_stack("datagrams_cross_both_ways_and_the_closed_port_is_the_kernels_again", |wire, stack| {
        let socket = UdpSocket::bind(stack, ours(PORT)).unwrap();
        socket.set_options(|options| options.receive_timeout = patience()).unwrap();
        let peer = wire.far.run(|| net::UdpSocket::bind((THEIRS, 0)).unwrap());
        peer.set_read_timeout(Some(TIMEOUT)).unwrap();
        peer.connect(ours(PORT)).unwrap();
        peer.send(b"ping").unwrap();
        let mut word = [0; 16];
        let (count, from) = socket.recv_from(&mut word).unwrap();
        socket.send_to(&word[..count], from).unwrap();
        // The answer waits for ARP where the kernel does not know its neighbor; turns receive the
        // reply and send it.
        peer.set_nonblocking(true).unwrap();
        let mut answer = [0; 16];
        let start = std::time::Instant::now();
        let count = loop {
            stack.turn();
            match peer.recv(&mut answer) {
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => assert!(start.elapsed() < TIMEOUT),
                received => break received.unwrap(),
            }
        };
        assert_eq!(&answer[..count], b"ping");
        drop(socket);
        peer.set_nonblocking(false).unwrap();
        // No socket of the kernel has the port: the kernel reports that.
        peer.send(b"anybody?").unwrap();
        assert_eq!(peer.recv(&mut answer).unwrap_err().kind(), std::io::ErrorKind::ConnectionRefused);
    });
}

#[test]
fn group_that_is_joined_comes_to_us() {
    with_stack("group_that_is_joined_comes_to_us", |wire, stack| {
        let socket = UdpSocket::bind(stack, SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, PORT)).unwrap();
        socket.set_options(|options| options.receive_timeout = patience()).unwrap();
        socket.join_multicast_v4(GROUP).unwrap();
        let sender = wire.far.run(|| net::UdpSocket::bind((THEIRS, 0)).unwrap());
        let mut word = [0; 16];
        wire.far.run(|| sender.send_to(b"tick", (GROUP, PORT))).unwrap();
        let (count, info) = socket.recv_info(&mut word).unwrap();
        assert_eq!((&word[..count], *info.destination.ip()), (&b"tick"[..], GROUP));
    });
}
