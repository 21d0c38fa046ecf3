//! Why a port does not run: one sentence, with what to do next, and a kind that a caller can match.

use core::fmt;

use crate::counters::SetupError;
use crate::device::DeviceError;
use crate::pipeline::AppError;
use crate::worker::live::LiveError;
use crate::worker::{StopError, WorkerBuilderError, WorkerGroupError};

/// What the front door returns.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// Why a port does not run. Nothing is left on the interface.
///
/// It prints as its sentence in both forms, so that a `main` that returns it ends with what an
/// operator can use.
#[non_exhaustive]
pub enum Error {
    /// No device is named so.
    PortName(String),
    /// A device that the library was built without: the feature that brings it.
    NotBuilt(&'static str),
    /// A PCI function has no network interface.
    NoInterface(String),
    /// A device was refused, or a queue of it.
    Device(DeviceError),
    /// The port of an interface.
    Live(LiveError),
    /// A worker over memory or a capture.
    Worker(WorkerBuilderError),
    /// The threads.
    Threads(WorkerGroupError),
    /// Counters have no room, or a name twice.
    Counters(SetupError),
    /// Signals cannot be heard.
    Signals(StopError),
    /// A worker's sockets refuse a subscription.
    Subscription {
        /// Which.
        what: String,
        /// What they say.
        why: String,
    },
    /// The port has ended, or ended before it answered.
    Ended,
    /// So many requests of a [`PortHandle`](super::PortHandle) wait as there may be.
    Busy,
    /// The options of the port do not go together, or not with its device.
    Config(String),
    /// The app does not start, as it said itself.
    App(AppError),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PortName(name) => write!(
                f,
                "`{name}` names no port: it is an interface (eth1), mlx5:eth1 or mlx5:0000:3b:00.0, pcap:day.pcap or memory:wire"
            ),
            Self::NotBuilt(feature) => write!(
                f,
                "the port needs the feature `{feature}`, without which this program was built: add it to the dependency on wirepath"
            ),
            Self::NoInterface(place) => write!(
                f,
                "the PCI function {place} has no network interface: `wirepath devices` lists those that have, \
                 `lspci -k -s {place}` says which driver it has"
            ),
            Self::Device(error) => error.fmt(f),
            Self::Live(error) => error.fmt(f),
            Self::Worker(error) => error.fmt(f),
            Self::Threads(error) => error.fmt(f),
            Self::Counters(error) => error.fmt(f),
            Self::Signals(error) => error.fmt(f),
            Self::Subscription { what, why } => write!(f, "cannot subscribe to {what}: {why}"),
            Self::Ended => f.write_str("the port has ended, so nothing can be subscribed to or taken back"),
            Self::Busy => f.write_str("64 requests wait for the port already: ask again when one of them was answered"),
            Self::Config(sentence) => f.write_str(sentence),
            Self::App(error) => error.fmt(f),
        }
    }
}

/// The sentence as well: it is what `main` prints.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl core::error::Error for Error {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Device(error) => Some(error),
            Self::Live(error) => Some(error),
            Self::Worker(error) => Some(error),
            Self::Threads(error) => Some(error),
            Self::Counters(error) => Some(error),
            Self::Signals(error) => Some(error),
            Self::App(error) => Some(&**error),
            Self::PortName(_)
            | Self::NotBuilt(_)
            | Self::NoInterface(_)
            | Self::Subscription { .. }
            | Self::Ended
            | Self::Busy
            | Self::Config(_) => None,
        }
    }
}

macro_rules! from {
    ($($variant:ident($error:ty)),+ $(,)?) => {
        $(impl From<$error> for Error {
            fn from(error: $error) -> Self {
                Self::$variant(error)
            }
        })+
    };
}

from!(
    Device(DeviceError),
    Live(LiveError),
    Worker(WorkerBuilderError),
    Threads(WorkerGroupError),
    Counters(SetupError),
    Signals(StopError),
);
