//! What a run needs of its machine: time, and connections that never block. A test has its own.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::SocketAddrV4;
use std::time::Duration;

/// A connection. A read or a write that finds nothing or has no room fails with
/// [`WouldBlock`](io::ErrorKind::WouldBlock), and a read of no bytes says that the peer has closed.
pub trait Stream: Read + Write + fmt::Debug {
    /// Whether the connection stands: one that [`Host::connect`] has begun may not yet.
    ///
    /// # Errors
    ///
    /// There will be none.
    fn is_open(&self) -> io::Result<bool> {
        Ok(true)
    }

    /// Has the machine stamp the bytes that leave from now on, of which none was written yet.
    /// Whether it can.
    fn stamp_sent(&mut self) -> bool {
        false
    }

    /// The next time stamp: the number of the last byte that has left with it, from 0 on and modulo
    /// 2^32, and the time in nanoseconds since 1970.
    fn take_sent(&mut self) -> Option<(u32, u64)> {
        None
    }

    /// Has the machine end the connection where what was written stays unacknowledged for so long:
    /// it is not sent again later, when somebody else may have taken over.
    ///
    /// # Errors
    ///
    /// It is sent again as long as the machine does by itself.
    fn give_up_after(&mut self, _timeout: Duration) -> io::Result<()> {
        Ok(())
    }

    /// Nothing more is written: the peer reads an end behind what was, and what it says is still
    /// read. [`WouldBlock`](io::ErrorKind::WouldBlock) where that is to be tried again.
    ///
    /// # Errors
    ///
    /// The connection is gone.
    fn close_sending(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Ends the connection with a reset: what was written and has not left never leaves. A stream
    /// that is dropped is closed, and what waits is still sent, unless the peer says something that
    /// nobody reads: the kernel then resets too.
    ///
    /// # Errors
    ///
    /// The connection is closed only.
    fn reset(self: Box<Self>) -> io::Result<()>;
}

/// Where peers connect.
pub trait Listener: fmt::Debug {
    /// The next connection; `None` where none waits.
    fn accept(&self) -> Option<Box<dyn Stream>>;
}

/// How long to wait at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waits {
    /// For a connection; unused where reads do not wait, because a connection does not either.
    pub connect: Duration,
    /// In a read, for data; zero does not wait.
    pub read: Duration,
}

/// A machine.
pub trait Host: fmt::Debug {
    /// The time, in nanoseconds that never go back.
    fn now_ns(&self) -> u64;

    /// The same, read from a clock in this call: [`Host::now_ns`] may be that of the turn, and
    /// stand still while the turn does. For what must not happen late: whether a lease still holds.
    fn clock_ns(&self) -> u64 {
        self.now_ns()
    }

    /// What to add for the time since the epoch. It changes where the wall clock steps. One load.
    fn epoch_offset_ns(&self) -> u64;

    /// Opens a connection, or begins to where reads do not wait: a caller who has a lease to renew
    /// cannot wait for a host that does not answer.
    ///
    /// # Errors
    ///
    /// There is none.
    fn connect(&self, to: SocketAddrV4, waits: Waits) -> io::Result<Box<dyn Stream>>;
}

/// Nothing to do now, rather than a broken connection.
pub(crate) fn is_nothing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// A connection that was begun.
#[derive(Debug)]
pub(crate) struct Attempt {
    stream: Box<dyn Stream>,
    until_ns: u64,
}

/// What became of an attempt so far.
pub(crate) enum Attempted {
    Open(Box<dyn Stream>),
    Waiting(Attempt),
}

impl Attempt {
    /// Begins a connection that stands within `timeout`, or not at all. Nothing waits.
    pub(crate) fn begin(host: &dyn Host, to: SocketAddrV4, timeout: Duration) -> io::Result<Self> {
        let stream = host.connect(to, Waits { connect: timeout, read: Duration::ZERO })?;
        let timeout_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        Ok(Self { stream, until_ns: host.now_ns().saturating_add(timeout_ns) })
    }

    /// The connection once it stands.
    pub(crate) fn poll(self, now_ns: u64) -> io::Result<Attempted> {
        match self.stream.is_open()? {
            true => Ok(Attempted::Open(self.stream)),
            false if now_ns < self.until_ns => Ok(Attempted::Waiting(self)),
            false => Err(io::ErrorKind::TimedOut.into()),
        }
    }
}
