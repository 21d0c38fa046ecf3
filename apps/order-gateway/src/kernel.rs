//! The kernel's clock and sockets.

use std::cell::Cell;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::io::Errno;
use rustix::net::sockopt::set_socket_linger;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::error::Error;
use crate::host::{Host, Listener, Stream, Waits};

/// A write that waits longer is given up, where a connection waits at all.
const WRITE_TIMEOUT: Duration = Duration::from_secs(1);
/// How long an attempt to connect to a mirror takes, and the time between two.
const DIAL_TIMEOUT: Duration = Duration::from_secs(1);
const DIAL_PAUSE: Duration = Duration::from_millis(20);

/// This machine. Its nanoseconds never go back, whatever happens to the time of day.
#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    start: Instant,
    epoch_offset_ns: u64,
}

impl Kernel {
    /// Time begins now, at 1 s, so that no time is zero.
    pub fn start() -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let epoch_ns = u64::try_from(since_epoch.as_nanos()).unwrap_or(u64::MAX);
        Self { start: Instant::now(), epoch_offset_ns: epoch_ns.saturating_sub(1_000_000_000) }
    }
}

impl Host for Kernel {
    fn now_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX).saturating_add(1_000_000_000)
    }

    fn epoch_offset_ns(&self) -> u64 {
        self.epoch_offset_ns
    }

    fn connect(&self, to: SocketAddrV4, waits: Waits) -> io::Result<Box<dyn Stream>> {
        let stream = match waits.read.is_zero() {
            true => begin_to_connect(to)?,
            false => {
                let stream = TcpStream::connect_timeout(&SocketAddr::V4(to), waits.connect)?;
                stream.set_read_timeout(Some(waits.read))?;
                stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
                stream
            }
        };
        // An order must not wait for the acknowledgement of the one before.
        stream.set_nodelay(true)?;
        Ok(Box::new(stream))
    }
}

/// A socket that does not block, and whose handshake is under way.
fn begin_to_connect(to: SocketAddrV4) -> io::Result<TcpStream> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    match rustix::net::connect(&socket, &to) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(TcpStream::from(socket)),
        Err(error) => Err(error.into()),
    }
}

impl Stream for TcpStream {
    fn is_open(&self) -> io::Result<bool> {
        if let Some(error) = self.take_error()? {
            return Err(error);
        }
        match self.peer_addr() {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// A close that lingers for no time resets.
    fn reset(self: Box<Self>) -> io::Result<()> {
        Ok(set_socket_linger(&*self, Some(Duration::ZERO))?)
    }
}

impl Listener for TcpListener {
    fn accept(&self) -> Option<Box<dyn Stream>> {
        let (stream, _) = TcpListener::accept(self).ok()?;
        stream.set_nonblocking(true).and_then(|()| stream.set_nodelay(true)).ok()?;
        Some(Box::new(stream))
    }
}

/// A thread that connects when it is asked to, so that nobody waits for it.
#[derive(Debug)]
struct Dialer {
    asked: Sender<()>,
    streams: Receiver<TcpStream>,
    /// A connection is on its way.
    is_asked: Cell<bool>,
}

impl Listener for Dialer {
    /// A connection that was asked for by an earlier call.
    fn accept(&self) -> Option<Box<dyn Stream>> {
        if !self.is_asked.replace(true) {
            // Without the thread there is no connection, ever.
            let _ = self.asked.send(());
        }
        let stream = self.streams.try_recv().ok()?;
        self.is_asked.set(false);
        stream.set_nonblocking(true).and_then(|()| stream.set_nodelay(true)).ok()?;
        Some(Box::new(stream))
    }
}

/// Connects to `address` again and again until there is a connection, each time that one is asked
/// for.
///
/// # Errors
///
/// There is no thread.
pub fn dial(address: SocketAddrV4) -> io::Result<Box<dyn Listener>> {
    let (asked, asks) = mpsc::channel();
    let (found, streams) = mpsc::channel();
    let dial = move || {
        while asks.recv().is_ok() {
            let stream = loop {
                match TcpStream::connect_timeout(&address.into(), DIAL_TIMEOUT) {
                    Ok(stream) => break stream,
                    Err(_) => thread::sleep(DIAL_PAUSE),
                }
            };
            if found.send(stream).is_err() {
                return;
            }
        }
    };
    thread::Builder::new().name("dial".into()).spawn(dial)?;
    Ok(Box::new(Dialer { asked, streams, is_asked: Cell::new(false) }))
}

/// Listens at `address`.
///
/// # Errors
///
/// The address is taken.
pub fn listen(address: SocketAddrV4) -> io::Result<Box<dyn Listener>> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(Box::new(listener))
}

/// Joins each line's group on an interface.
///
/// # Errors
///
/// The port is taken, or no interface has the address: which line, and where to look.
pub fn join(lines: impl IntoIterator<Item = (SocketAddrV4, Ipv4Addr)>) -> Result<Vec<UdpSocket>, Error> {
    let join = |(group, interface): (SocketAddrV4, Ipv4Addr)| -> io::Result<UdpSocket> {
        // Bound to the group, so that other groups of the port are not received.
        let socket = UdpSocket::bind(group)?;
        socket.join_multicast_v4(group.ip(), &interface)?;
        socket.set_nonblocking(true)?;
        Ok(socket)
    };
    let failed = |(group, interface), error| {
        let way_on = "`interface` is an address of this machine, as `ip -4 address` lists them";
        Error::failed(format!("cannot join the feed {group} on {interface}: {error}; {way_on}"))
    };
    lines.into_iter().map(|line| join(line).map_err(|error| failed(line, error))).collect()
}
