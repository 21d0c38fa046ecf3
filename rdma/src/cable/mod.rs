//! Frames between two devices without a network interface: by shared memory within a host, or by a
//! TCP connection. Neither needs a privilege.
//!
//! ```text
//!  Device ◀─▶ CabledDevice ◀─▶ Cable: SharedMemory · FramedTcp ◀─▶ CabledDevice ◀─▶ Device
//! ```
//!
//! The frames are those of a port, with all their headers and the ICRC, so that the device is the
//! same over each; addresses in them say which end is which, and no network reads them.

mod carrier;
mod device;
#[cfg(any(test, feature = "testing"))]
mod hostile_end;
mod shared_memory;
mod tcp;

pub use carrier::Carrier;
pub use device::CabledDevice;
#[cfg(any(test, feature = "testing"))]
pub(crate) use hostile_end::HostileEnd;
pub use shared_memory::{SharedMemory, SharedMemoryListener, Ticket};
pub use tcp::FramedTcp;

use core::fmt;
use std::io;

/// The longest frame of any device: a payload of 4096 bytes and the longest headers.
pub const FRAME_LEN_MAX: usize = crate::roce::frame_len_max(4096);

/// The code of the time to an acknowledgment over a cable ([`QpAttributes::timeout`]): 4.3 s, and
/// with seven retries half a minute. A cable loses nothing, so a peer that does not answer is slow,
/// and what is sent again is sent in vain; one that has ended closes its cable at once.
///
/// [`QpAttributes::timeout`]: crate::roce::QpAttributes::timeout
pub const ACK_TIMEOUT: u8 = 20;

/// One end of a cable. Frames arrive in the order in which they were sent, and none is lost.
pub trait Cable {
    /// Whether a frame of [`FRAME_LEN_MAX`] bytes may be sent now. A full cable has room again when
    /// the other end has received.
    ///
    /// # Errors
    /// [`CableError`].
    fn has_room(&mut self) -> Result<bool, CableError>;

    /// Sends a frame, where there is room for it. It may wait for [`flush`](Self::flush).
    ///
    /// # Errors
    /// [`CableError`].
    fn send(&mut self, frame: &[u8]) -> Result<(), CableError>;

    /// Lets what was sent leave.
    ///
    /// # Errors
    /// [`CableError`].
    fn flush(&mut self) -> Result<(), CableError>;

    /// Writes the next frame into `frame`, which has room for [`FRAME_LEN_MAX`] bytes, and returns
    /// its length; `None` while there is none.
    ///
    /// # Errors
    /// [`CableError`].
    fn receive(&mut self, frame: &mut [u8]) -> Result<Option<usize>, CableError>;
}

/// Why a cable carries nothing more.
#[derive(Debug)]
#[non_exhaustive]
pub enum CableError {
    /// The other end is gone.
    Closed,
    /// The other end wrote what no device sends: this.
    Broken(&'static str),
    /// The kernel refused.
    Call(io::Error),
}

impl fmt::Display for CableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("the other end of the cable is gone"),
            Self::Broken(what) => write!(f, "the other end of the cable wrote {what}: is it of another version?"),
            Self::Call(error) => write!(f, "the cable to the peer: {error}"),
        }
    }
}

impl core::error::Error for CableError {}

impl From<io::Error> for CableError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe | io::ErrorKind::UnexpectedEof => Self::Closed,
            _ => Self::Call(error),
        }
    }
}

#[cfg(test)]
mod tests;
