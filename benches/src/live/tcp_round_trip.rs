//! A request of 64 bytes and its response over TCP and a veth pair, while both ends spin: the
//! client is a kernel socket, the server one as well or a worker of ours. A third server has no TCP
//! at all ([`turnaround`]): its time is the lower bound of a server on AF_XDP.
//!
//! The client polls without blocking. SO_BUSY_POLL is not set, because a veth with a generic XDP
//! program has no NAPI to poll: the client's frames arrive within the server's system call.
//! Checksums and segmentation keep the kernel's defaults: between two kernels no checksum is
//! computed, our segments have one. The kernel's sockets use CUBIC, as on most systems, whatever
//! the default is here.

use core::net::SocketAddrV4;
use core::sync::atomic::{AtomicBool, Ordering};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use wirepath::device::af_xdp::{AfXdpTx, Mode};
use wirepath::pipeline::tcp::{ListenOptions, TcpData};
use wirepath::pipeline::{App, Cx, Datagram};

use super::pair::{FAR, NEAR};
use super::port::{self, Port, PortSetup, TcpStack};
use super::round_trip::{Times, beside, times, until};
use super::{sys, turnaround};

const PORT: u16 = 7_000;
/// Bytes of a request, and of its response.
const LEN: usize = 64;

/// Frames that may wait for our server. One request is in flight at a time, and with few buffers,
/// reused again and again, all cache lines stay close: with rings of 512 an exchange takes some 3 %
/// more.
const RING_LEN: u32 = 64;

/// The kind of server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    /// A non-blocking kernel socket.
    Kernel,
    /// A worker with the TCP stack on an AF_XDP port.
    Ours,
    /// A worker without one, on the same port.
    NoTcp,
}

/// The times of `count` exchanges with a server of this kind.
///
/// # Errors
/// Why it could not be measured.
pub fn exchange(cores: [usize; 2], server: Server, count: usize) -> Result<Times, String> {
    beside(cores, |ready, stopping| serve(server, ready, stopping), || ask(count))
}

/// The result of `ask` in the near end's namespace, while a server without TCP gives the same
/// answer to each request, or echoes the request if `answer` is empty.
///
/// # Errors
/// Why it could not be measured.
pub(super) fn without_server<T: Send>(
    cores: [usize; 2],
    port: u16,
    answer: &[u8],
    ask: impl FnOnce() -> Result<T, String> + Send,
) -> Result<T, String> {
    let serve = |ready: &AtomicBool, stopping: &AtomicBool| {
        let mut queue = turnaround::open(PortSetup { ring_len: port::RING_LEN, ..place() }, port, answer)?;
        ready.store(true, Ordering::Release);
        while !stopping.load(Ordering::Relaxed) {
            queue.turn();
        }
        Ok(())
    };
    beside(cores, serve, ask)
}

pub(super) const fn server() -> SocketAddrV4 {
    SocketAddrV4::new(FAR.address, PORT)
}

/// Answers until stopped.
fn serve(kind: Server, ready: &AtomicBool, stopping: &AtomicBool) -> Result<(), String> {
    let mut turn: Box<dyn FnMut()> = match kind {
        Server::Kernel => {
            let listener = TcpListener::bind(server()).map_err(|error| format!("{}: {error}", server()))?;
            listener.set_nonblocking(true).map_err(|error| error.to_string())?;
            let mut client = None;
            Box::new(move || match &mut client {
                None => client = listener.accept().ok().and_then(|(stream, _)| prepared(stream).ok()),
                Some(stream) => echo(stream),
            })
        }
        Server::Ours => {
            let mut port = worker()?;
            Box::new(move || {
                port.turn();
            })
        }
        Server::NoTcp => {
            let mut port = turnaround::open(place(), PORT, &[])?;
            Box::new(move || {
                port.turn();
            })
        }
    };
    ready.store(true, Ordering::Release);
    while !stopping.load(Ordering::Relaxed) {
        turn();
    }
    Ok(())
}

/// Sends received bytes back. A client that is gone gets no answer.
fn echo(stream: &mut TcpStream) {
    let mut bytes = [0; LEN];
    if let Ok(len) = stream.read(&mut bytes) {
        let _ = stream.write_all(&bytes[..len]);
    }
}

/// Sends requests and waits for the answers.
fn ask(count: usize) -> Result<Times, String> {
    let mut stream = TcpStream::connect_timeout(&server().into(), Duration::from_secs(5))
        .and_then(prepared)
        .map_err(|error| format!("no connection to {}: {error}", server()))?;
    let mut trip = || stream.write_all(&[7; LEN]).is_ok() && is_answered(&mut stream);
    Ok(Times::of(times(count, &mut trip)?))
}

/// Whether the whole answer arrives.
fn is_answered(stream: &mut TcpStream) -> bool {
    let (mut bytes, mut len) = ([0; LEN], 0);
    until(|| {
        match stream.read(&mut bytes) {
            Ok(count) => len += count,
            Err(error) => debug_assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        len == LEN
    })
}

/// A non-blocking socket without Nagle's algorithm.
fn prepared(stream: TcpStream) -> std::io::Result<TcpStream> {
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    sys::set_congestion_control(&stream, "cubic")?;
    Ok(stream)
}

const fn place() -> PortSetup {
    PortSetup { ours: FAR, peer: NEAR, mode: Mode::Generic, ring_len: RING_LEN }
}

/// A worker that sends received bytes back, in the far end's namespace.
fn worker() -> Result<Port<AfXdpTx, TcpStack, Echo>, String> {
    let mut port = port::open_tcp(place(), PORT, Echo::default())?;
    port.with_app(|_, cx| cx.tcp().listen(server(), &ListenOptions::default()))
        .map_err(|error| format!("{}: {error}", server()))?;
    Ok(port)
}

/// Sends received bytes back.
#[derive(Default)]
pub(super) struct Echo {
    /// Bytes.
    pub(super) received: usize,
}

impl App for Echo {
    fn on_datagram(&mut self, _: &Datagram<'_>, _: &mut Cx<'_>) {}

    #[inline]
    fn on_tcp_data(&mut self, data: &TcpData<'_>, cx: &mut Cx<'_>) {
        self.received += data.payload.len();
        // A failed send shows as a missing answer.
        let _ = cx.tcp().send(data.connection, data.payload);
    }
}
