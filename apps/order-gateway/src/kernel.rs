//! The kernel's clock and sockets.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::error::Error;
use crate::host::{Host, Listener, Stream, Waits};

/// A write that waits longer is given up, where a connection waits at all.
const WRITE_TIMEOUT: Duration = Duration::from_secs(1);

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

    /// The thread waits for the connection: a gateway without a session has nothing else to do that
    /// is urgent.
    fn connect(&self, to: SocketAddrV4, waits: Waits) -> io::Result<Box<dyn Stream>> {
        let stream = TcpStream::connect_timeout(&SocketAddr::V4(to), waits.connect)?;
        // An order must not wait for the acknowledgement of the one before.
        stream.set_nodelay(true)?;
        if waits.read.is_zero() {
            stream.set_nonblocking(true)?;
        } else {
            stream.set_read_timeout(Some(waits.read))?;
            stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
        }
        Ok(Box::new(stream))
    }
}

impl Listener for TcpListener {
    fn accept(&self) -> Option<Box<dyn Stream>> {
        let (stream, _) = TcpListener::accept(self).ok()?;
        stream.set_nonblocking(true).and_then(|()| stream.set_nodelay(true)).ok()?;
        Some(Box::new(stream))
    }
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
