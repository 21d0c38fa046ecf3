//! The other end: sends every datagram back to its source (RFC 862). The owner of the interface,
//! the kernel or the pipeline, answers ICMP echoes anyway.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::time::Duration;

use wirepath::counters::printable;
use wirepath::pipeline::{App, Cx, Datagram, UdpOptions, send_to};
use wirepath::proto::{ConsumerId, Sharing};
use wirepath::time::Clock;
use wirepath::worker::StopFlag;

use super::clock::PingClock;
use super::live::{LocalEnd, OpenPort};
use super::path::DATA_LEN_MAX;
use super::sys;

/// A kernel socket's server that sleeps wakes up at this interval, to check for a stop.
const SLEEP_MAX: Duration = Duration::from_millis(100);

/// Counts of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Served {
    pub(super) answered: u64,
    /// Datagrams that were received and not sent back, because they came from the same port or
    /// there is no path back.
    pub(super) unanswered: u64,
}

/// A datagram from another echo server would loop for ever (CERT CA-1996-01), and most of them have
/// our port.
fn is_an_echo_server(source: u16, own: u16) -> bool {
    source == own || source == 7
}

/// Serves on a kernel socket until `stop`.
pub(super) fn by_kernel(port: u16, spins: bool, stop: &StopFlag) -> Result<Served, String> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port))
        .and_then(|socket| socket.set_nonblocking(true).map(|()| socket))
        .map_err(|error| format!("UDP port {port} cannot be had: {error}; `ss -lunp` says who has it"))?;
    eprintln!("wirepath: sending back what comes to UDP port {port}, by a socket of the kernel");
    let (mut served, mut buffer) = (Served::default(), vec![0; DATA_LEN_MAX]);
    while !stop.is_stopping() {
        if !spins {
            sys::wait(&socket, SLEEP_MAX);
        }
        match socket.recv_from(&mut buffer) {
            Ok((_, source)) if is_an_echo_server(source.port(), port) => served.unanswered += 1,
            Ok((len, source)) => match socket.send_to(&buffer[..len], source) {
                Ok(_) => served.answered += 1,
                Err(_) => served.unanswered += 1,
            },
            // No request yet, or an error about a reply that we sent.
            Err(error) if error.kind() == ErrorKind::WouldBlock || error.kind() == ErrorKind::ConnectionRefused => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(format!("the kernel's socket of UDP port {port} has failed: {error}")),
        }
    }
    Ok(served)
}

/// Serves on a queue until `stop`.
pub(super) fn by_queue(
    place: &LocalEnd,
    port: u16,
    spins: bool,
    clock: &mut PingClock,
    stop: &StopFlag,
) -> Result<Served, String> {
    let (mut open, port) = OpenPort::new(place, Some(port), Server { port, served: Served::default() }, stop)?;
    let local = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port);
    let bound = open.worker.with_app(clock.now(), |_, cx| cx.sockets.bind(ConsumerId(0), local, Sharing::Exclusive));
    bound.map_err(|error| error.to_string())?;
    open.turn(clock.now());
    eprintln!("wirepath: sending back what comes to UDP port {port}, by {}", printable(open.port.describe()));
    open.port.notices().iter().for_each(|notice| eprintln!("wirepath: {}", printable(notice)));
    while !stop.is_stopping() {
        if !open.turn(clock.now()) && !spins {
            std::thread::yield_now();
        }
    }
    Ok(open.worker.app().served)
}

/// The application: sends datagrams back.
struct Server {
    port: u16,
    served: Served,
}

impl App for Server {
    fn on_datagram(&mut self, datagram: &Datagram<'_>, cx: &mut Cx<'_>) {
        let (own, source) = (datagram.destination, datagram.source);
        let is_refused = is_an_echo_server(source.port(), self.port);
        if !is_refused && send_to(own, source, &UdpOptions::default(), datagram.payload, cx).is_ok() {
            self.served.answered += 1;
        } else {
            self.served.unanswered += 1;
        }
    }
}
