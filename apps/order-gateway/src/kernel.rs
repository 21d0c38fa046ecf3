//! The kernel's clock and sockets.

use std::cell::Cell;
use std::io;
use std::net::{Shutdown, SocketAddr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::io::Errno;
use rustix::net::sockopt::{
    set_ip_add_source_membership, set_socket_linger, set_socket_recv_buffer_size, set_socket_recv_buffer_size_force,
    set_tcp_user_timeout,
};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::error::Error;
use crate::feed_line::{FeedLine, FeedSocket};
use crate::helper::Helper;
use crate::host::{Host, Listener, Stream, Waits};
use crate::stamps;

/// A write that waits longer is given up, where a connection waits at all.
const WRITE_TIMEOUT: Duration = Duration::from_secs(1);
/// How long an attempt to connect to a mirror takes, and the time between two.
const DIAL_TIMEOUT: Duration = Duration::from_secs(1);
const DIAL_PAUSE: Duration = Duration::from_millis(20);

/// Of a line: a second of a busy feed. Without privileges the kernel gives `net.core.rmem_max`.
const FEED_BUFFER_LEN: usize = 8 << 20;

/// The wall clock is compared so often with the one that never steps.
const WALL_CLOCK_PERIOD: Duration = Duration::from_millis(100);
/// Two readings of one clock, with the other's between, are no further apart, or are read again.
const READINGS_NS: u64 = 20_000;
/// A difference that is greater is a step: readings differ by less.
const STEP_NS: u64 = 100_000;

/// This machine. Its nanoseconds never go back, whatever happens to the time of day.
#[derive(Clone, Debug)]
pub struct Kernel {
    start: Instant,
    epoch_offset_ns: Arc<AtomicU64>,
}

impl Kernel {
    /// Time begins now, at 1 s, so that no time is zero.
    pub fn start() -> Self {
        let (start, epoch_ns) = (Instant::now(), epoch_ns());
        Self { start, epoch_offset_ns: Arc::new(epoch_ns.saturating_sub(START_NS).into()) }
    }

    /// Has a thread look at the wall clock from now on, so that who polls need not: a step of it
    /// changes [`Host::epoch_offset_ns`] within a tenth of a second. The thread ends with the last
    /// clone.
    ///
    /// # Errors
    ///
    /// There is no thread.
    pub fn follow_wall_clock(&self) -> io::Result<Helper> {
        let (start, offset_ns) = (self.start, Arc::downgrade(&self.epoch_offset_ns));
        let follow = move || {
            while let Some(offset_ns) = offset_ns.upgrade() {
                let (before_ns, wall_ns, after_ns) = (since(start), epoch_ns(), since(start));
                if let Some(stepped) = step(offset_ns.load(Ordering::Relaxed), before_ns, wall_ns, after_ns) {
                    offset_ns.store(stepped, Ordering::Relaxed);
                }
                drop(offset_ns);
                thread::sleep(WALL_CLOCK_PERIOD);
            }
        };
        Helper::start("wall-clock", follow)
    }
}

/// The first time of a [`Kernel`].
const START_NS: u64 = 1_000_000_000;

fn since(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX).saturating_add(START_NS)
}

fn epoch_ns() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_epoch.as_nanos()).unwrap_or(u64::MAX)
}

/// The new offset where the wall clock, read between two readings of the other, has stepped. A
/// thread that was interrupted between them has not seen a step.
fn step(offset_ns: u64, before_ns: u64, wall_ns: u64, after_ns: u64) -> Option<u64> {
    let now_ns = wall_ns.saturating_sub(before_ns);
    let is_step = after_ns.saturating_sub(before_ns) <= READINGS_NS && now_ns.abs_diff(offset_ns) > STEP_NS;
    is_step.then_some(now_ns)
}

impl Host for Kernel {
    fn now_ns(&self) -> u64 {
        since(self.start)
    }

    fn epoch_offset_ns(&self) -> u64 {
        self.epoch_offset_ns.load(Ordering::Relaxed)
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
        // An order must not wait for the acknowledgment of the one before.
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

    fn stamp_sent(&mut self) -> bool {
        stamps::stamp_sent(self).is_ok()
    }

    fn take_sent(&mut self) -> Option<(u32, u64)> {
        stamps::take_sent(self)
    }

    fn give_up_after(&mut self, timeout: Duration) -> io::Result<()> {
        // Zero would be the kernel's own time, of a quarter of an hour.
        let ms = u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX).max(1);
        Ok(set_tcp_user_timeout(self, ms)?)
    }

    fn close_sending(&mut self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
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
            // Without the thread there is no connection, ever: its `Helper` tells.
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
pub fn dial(address: SocketAddrV4) -> io::Result<(Box<dyn Listener>, Helper)> {
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
    let helper = Helper::start("dial", dial)?;
    Ok((Box::new(Dialer { asked, streams, is_asked: Cell::new(false) }), helper))
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

/// Joins each line's group on its interface, for packets of its sources alone where it names some
/// (RFC 4607).
///
/// # Errors
///
/// The port is taken, or no interface has the address: which line, and where to look.
pub fn join(lines: impl IntoIterator<Item = FeedLine>) -> Result<Vec<FeedSocket>, Error> {
    let failed = |FeedLine { group, interface, .. }: &FeedLine, error: io::Error| {
        let way_on = match Errno::from_io_error(&error) {
            Some(Errno::NOBUFS) => "the kernel takes as many `sources` as net.ipv4.igmp_max_msf says",
            _ => "`interface` is an address of this machine, as `ip -4 address` lists them",
        };
        Error::failed(format!("cannot join the feed {group} on {interface}: {error}; {way_on}"))
    };
    let join = |line: FeedLine| {
        let socket = join_line(&line).map_err(|error| failed(&line, error))?;
        Ok(FeedSocket::new(socket, line.sources))
    };
    lines.into_iter().map(join).collect()
}

fn join_line(FeedLine { group, interface, sources }: &FeedLine) -> io::Result<UdpSocket> {
    // Bound to the group, so that other groups of the port are not received.
    let socket = UdpSocket::bind(group)?;
    if sources.is_empty() {
        socket.join_multicast_v4(group.ip(), interface)?;
    }
    for source in sources {
        set_ip_add_source_membership(&socket, group.ip(), interface, source)?;
    }
    socket.set_nonblocking(true)?;
    // As much as the machine allows: what comes while the thread has no core waits there.
    if set_socket_recv_buffer_size_force(&socket, FEED_BUFFER_LEN).is_err() {
        set_socket_recv_buffer_size(&socket, FEED_BUFFER_LEN)?;
    }
    Ok(socket)
}

/// Has the kernel stamp each packet of the lines when it comes.
///
/// # Errors
///
/// It cannot.
pub fn stamp_received(lines: &[FeedSocket]) -> io::Result<()> {
    lines.iter().try_for_each(FeedSocket::stamp_received)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use rustix::net::sockopt::tcp_user_timeout;

    use super::*;

    #[test]
    fn wall_clock_that_steps_has_another_offset_and_readings_that_differ_have_not() {
        let (offset, hour) = (1_795_727_114_000_000_000, 3_600_000_000_000);
        assert_eq!(step(offset, 5_000, offset + 5_060, 5_100), None);
        assert_eq!(step(offset, 5_000, offset + 5_000 + STEP_NS, 5_100), None, "by no more than readings differ");
        assert_eq!(step(offset, 5_000, offset + hour + 5_000, 5_100), Some(offset + hour));
        assert_eq!(step(offset, 5_000, offset - hour + 5_000, 5_100), Some(offset - hour));
        assert_eq!(step(offset, 5_000, offset + hour, 6_000 + READINGS_NS), None, "interrupted, and read again");
    }

    #[test]
    fn connection_is_given_up_after_the_time_that_was_said() {
        let venue = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut stream = TcpStream::connect(venue.local_addr().unwrap()).unwrap();
        for (timeout, ms) in [(Duration::from_millis(250), 250), (Duration::from_nanos(1), 1)] {
            stream.give_up_after(timeout).unwrap();
            assert_eq!(tcp_user_timeout(&stream).unwrap(), ms);
        }
    }

    #[test]
    fn thread_that_follows_the_wall_clock_finds_a_step_and_keeps_what_is_right() {
        let kernel = Kernel::start();
        let right_ns = kernel.epoch_offset_ns();
        // As if the wall clock had been an hour behind at the start.
        kernel.epoch_offset_ns.store(right_ns - 3_600_000_000_000, Ordering::Relaxed);
        kernel.follow_wall_clock().unwrap();
        while kernel.epoch_offset_ns().abs_diff(right_ns) > 1_000_000_000 {
            thread::yield_now();
        }
    }
}
