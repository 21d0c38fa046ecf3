//! What our end takes of its core for packets that wait in its rings: one thread sends by a
//! kernel's socket at the near end, whose system call delivers them, and then receives at the far
//! end. It does so by an app of the framework, or by the calls of a program, which are ours under
//! the preload library. What the near end takes is not measured.
//!
//! Both have the same port, buffers and room for connections, because these decide which cache the
//! packets of one at a time are in: a receive ring of 2,048 buffers is as large as some cores' L2.

use core::net::SocketAddrV4;
use std::hint::spin_loop;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::Instant;

use wirepath::device::af_xdp::{AfXdpConfig, Mode};
use wirepath::pipeline::App;
use wirepath::pipeline::tcp::TcpConfig;
use wirepath::port::{EmbeddedPort, Port, Subscription, listen, udp};
use wirepath::worker::live::{LiveConfig, PortConfig};
use wirepath_tests::netns::run_in;

use super::pair::{FAR, NEAR};
use super::sys::{self, Batch};
use super::tcp_round_trip::{self, Echo};
use crate::measure::sampling::Spread;
use crate::receiver::DigestApp;

/// Bytes of a datagram, of a request and of its response.
const LEN: usize = 64;
/// Datagrams that wait in the rings.
const BURST: usize = 64;
/// Samples: bursts, and requests.
const BURSTS: usize = 2_000;
const REQUESTS: usize = 20_000;
const DATAGRAMS: SocketAddrV4 = SocketAddrV4::new(FAR.address, 7_001);

/// Nanoseconds a datagram, by an app. `near` is the namespace of the near end, and the caller's
/// that of the far one.
///
/// # Errors
/// Why the port does not open, in words.
pub fn datagrams_by_app(near: &str) -> Result<f64, String> {
    let mut port = open(udp(*DATAGRAMS.ip(), DATAGRAMS.port()), DigestApp::default())?;
    datagrams(near, || {
        let until = port.app().received + BURST as u64;
        while port.app().received < until {
            port.poll();
        }
        Ok(())
    })
}

/// The same by a call each.
///
/// # Errors
/// No socket, in words.
pub fn datagrams_by_calls(near: &str) -> Result<f64, String> {
    let socket = UdpSocket::bind(DATAGRAMS).map_err(|error| error.to_string())?;
    socket.set_nonblocking(true).map_err(|error| error.to_string())?;
    let (mut bytes, mut digest) = ([0; LEN], 0_u64);
    datagrams(near, || {
        for _ in 0..BURST {
            until_done(|| socket.recv(&mut bytes))?;
            digest = digest.wrapping_add(bytes.first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes)));
        }
        std::hint::black_box(digest);
        Ok(())
    })
}

/// The median of many bursts that are sent to the far end, and that `drain` receives.
fn datagrams(near: &str, mut drain: impl FnMut() -> io::Result<()>) -> Result<f64, String> {
    let sender = run_in(near, || {
        let sender = UdpSocket::bind((NEAR.address, 0))?;
        sender.connect(DATAGRAMS).map(|()| sender)
    });
    let (sender, mut batch) = (sender.map_err(|error| error.to_string())?, Batch::new(vec![vec![0; LEN]; BURST]));
    let mut burst = || {
        let sent = batch.send(&sender)?;
        let start = Instant::now();
        measured(&mut drain)?;
        io::Result::Ok(start.elapsed().as_nanos() as f64 / sent as f64)
    };
    median((0..BURSTS).map(|_| burst()))
}

/// Nanoseconds from a request that waits to the doorbell of its response, by an app.
///
/// # Errors
/// Why the port does not open, in words.
pub fn answers_by_app(near: &str) -> Result<f64, String> {
    let server = tcp_round_trip::server();
    let mut port = open(listen(*server.ip(), server.port()), Echo::default())?;
    let client = connect(near);
    while !client.is_finished() {
        port.poll();
    }
    answers(client, || {
        let until = port.app().received + LEN;
        while port.app().received < until {
            port.poll();
        }
        Ok(())
    })
}

/// The same by a call that receives and one that sends.
///
/// # Errors
/// No socket, in words.
pub fn answers_by_calls(near: &str) -> Result<f64, String> {
    let accept = || {
        let listener = TcpListener::bind(tcp_round_trip::server())?;
        let client = connect(near);
        let (server, _) = listener.accept()?;
        server.set_nodelay(true)?;
        server.set_nonblocking(true)?;
        io::Result::Ok((client, server))
    };
    let (client, mut server) = accept().map_err(|error| error.to_string())?;
    let mut bytes = [0; LEN];
    answers(client, || {
        until_done(|| server.read(&mut bytes))?;
        server.write_all(&bytes)
    })
}

/// A port as the library opens it.
fn open<A: App>(subscription: Subscription, app: A) -> Result<EmbeddedPort<A, LiveConfig>, String> {
    let device = AfXdpConfig { mode: Mode::Generic, ..AfXdpConfig::new(FAR.interface) };
    let tcp = TcpConfig { connections_max: 16_384, chunks_max: 32_768, listeners_max: 256, ..TcpConfig::default() };
    let port = Port::from_config(LiveConfig::over(PortConfig::AfXdp(device))).named("in-step").tcp_with(tcp);
    let port = port.held(4_096).log(|_| ()).subscribe(subscription);
    let mut port = port.embed(app).map_err(|error| error.to_string())?;
    // From the first turn on the frames come here.
    port.poll();
    Ok(port)
}

type Client = thread::JoinHandle<io::Result<TcpStream>>;

/// Connects from the near end.
fn connect(near: &str) -> Client {
    let near = near.to_owned();
    thread::spawn(move || {
        let stream = run_in(&near, || TcpStream::connect(tcp_round_trip::server()))?;
        stream.set_nodelay(true)?;
        // That of the system may pace what it sends.
        sys::set_congestion_control(&stream, "cubic")?;
        Ok(stream)
    })
}

/// The median of many requests of the client, which `answer` answers.
fn answers(client: Client, mut answer: impl FnMut() -> io::Result<()>) -> Result<f64, String> {
    let client = client.join().map_err(|_| "the client panicked".to_owned())?;
    let mut client = client.map_err(|error| format!("no connection: {error}"))?;
    let mut bytes = [7; LEN];
    let mut request = || {
        client.write_all(&bytes)?;
        let start = Instant::now();
        measured(&mut answer)?;
        let taken = start.elapsed().as_nanos() as f64;
        client.read_exact(&mut bytes).map(|()| taken)
    };
    median((0..REQUESTS).map(|_| request()))
}

/// Valgrind counts the instructions of this function.
#[inline(never)]
fn measured<T>(act: impl FnOnce() -> T) -> T {
    act()
}

fn until_done(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Err(error) if error.kind() == ErrorKind::WouldBlock => spin_loop(),
            done => return done,
        }
    }
}

fn median(samples: impl Iterator<Item = io::Result<f64>>) -> Result<f64, String> {
    let samples: io::Result<Vec<f64>> = samples.collect();
    samples.map(|samples| Spread::of(samples).median).map_err(|error| error.to_string())
}
