//! A request of 64 bytes and its response over TCP and a veth pair, while both ends spin: the
//! client is a kernel's socket, the server one as well or a worker of ours. A third one has no TCP
//! at all ([`turnaround`]): what it takes is the least that a server on AF_XDP can.
//!
//! The client asks without blocking, again and again. SO_BUSY_POLL is left alone: a veth whose
//! program runs behind the driver has no NAPI that could be polled, as the client's frames arrive
//! within the server's system call. Checksums and segmentation are as the kernel sets them: what
//! one kernel sends the other nobody sums, what we send is summed. The kernel's sockets have CUBIC,
//! as most systems have it, whatever the default is here.

use core::net::SocketAddrV4;
use core::sync::atomic::{AtomicBool, Ordering};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use wirepath::device::af_xdp::{AfXdpTx, Mode};
use wirepath::pipeline::tcp::{ListenOptions, TcpData};
use wirepath::pipeline::{App, Cx, Datagram};

use super::pair::{FAR, NEAR};
use super::port::{self, Place, Port, TcpStack};
use super::round_trip::{beside, times, until};
use super::{sys, turnaround};

const PORT: u16 = 7_000;
/// Bytes of a request, and of its response.
const LEN: usize = 64;

/// Frames that may wait for our server. One request is on its way at a time, and of few buffers,
/// used again and again, all lines stay near: with rings of 512 an exchange takes some 3 % more.
const RING_LEN: u32 = 64;

/// Who answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    /// A kernel's socket that does not block.
    Kernel,
    /// A worker with the TCP stack on an AF_XDP port.
    Ours,
    /// A worker without one, on the same port.
    NoTcp,
}

/// How long exchanges took, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Exchange {
    /// Half of them were as fast.
    pub p50: f64,
    /// All but one of a hundred were.
    pub p99: f64,
}

/// What `count` exchanges with a server of this kind took.
///
/// # Errors
/// Why it could not be measured.
pub fn exchange(cores: [usize; 2], server: Server, count: usize) -> Result<Exchange, String> {
    beside(cores, |ready, stopping| serve(server, ready, stopping), || ask(count))
}

const fn server() -> SocketAddrV4 {
    SocketAddrV4::new(FAR.address, PORT)
}

/// Answers until told to stop.
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
            let mut port = turnaround::open(place(), PORT)?;
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

/// What came goes back. A client that is gone is not answered.
fn echo(stream: &mut TcpStream) {
    let mut bytes = [0; LEN];
    if let Ok(len) = stream.read(&mut bytes) {
        let _ = stream.write_all(&bytes[..len]);
    }
}

/// Asks and waits for the answer, again and again.
fn ask(count: usize) -> Result<Exchange, String> {
    let mut stream = TcpStream::connect_timeout(&server().into(), Duration::from_secs(5))
        .and_then(prepared)
        .map_err(|error| format!("no connection to {}: {error}", server()))?;
    let mut trip = || stream.write_all(&[7; LEN]).is_ok() && is_answered(&mut stream);
    let mut times = times(count, &mut trip)?;
    times.sort_unstable();
    let at = |per_cent: usize| times[times.len() * per_cent / 100].as_nanos() as f64;
    Ok(Exchange { p50: at(50), p99: at(99) })
}

/// Whether the whole answer comes.
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

/// A socket that neither blocks nor waits for company.
fn prepared(stream: TcpStream) -> std::io::Result<TcpStream> {
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    sys::set_congestion_control(&stream, "cubic")?;
    Ok(stream)
}

const fn place() -> Place {
    Place { ours: FAR, peer: NEAR, mode: Mode::Generic, ring_len: RING_LEN }
}

fn worker() -> Result<Port<AfXdpTx, TcpStack, Echo>, String> {
    let mut port = port::open_tcp(place(), PORT, Echo)?;
    port.with_app(|_, cx| cx.tcp().listen(server(), &ListenOptions::default()))
        .map_err(|error| format!("{}: {error}", server()))?;
    Ok(port)
}

/// Sends back what comes.
struct Echo;

impl App for Echo {
    fn on_datagram(&mut self, _: &Datagram<'_>, _: &mut Cx<'_>) {}

    #[inline]
    fn on_tcp_data(&mut self, data: &TcpData<'_>, cx: &mut Cx<'_>) {
        // What could not be sent is missed by who waits for it.
        let _ = cx.tcp().send(data.connection, data.payload);
    }
}
