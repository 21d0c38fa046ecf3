//! What a run needs of its machine: time, and connections that never block. A test has its own.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::SocketAddrV4;
use std::time::Duration;

/// A connection. A read or a write that finds nothing or has no room fails with
/// [`WouldBlock`](io::ErrorKind::WouldBlock), and a read of no bytes says that the peer has closed.
pub trait Stream: Read + Write + fmt::Debug {
    /// Ends the connection with a reset: what was written and has not left never leaves. A stream
    /// that is dropped is closed, and what waits is still sent.
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
    /// For a connection.
    pub connect: Duration,
    /// In a read, for data; zero does not wait.
    pub read: Duration,
}

/// A machine.
pub trait Host: fmt::Debug {
    /// The time, in nanoseconds that never go back.
    fn now_ns(&self) -> u64;

    /// What to add for the time since the epoch.
    fn epoch_offset_ns(&self) -> u64;

    /// Opens a connection, or begins to.
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
