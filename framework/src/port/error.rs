//! The errors of a port: one sentence with the next step, and a kind that a caller can match.

use core::fmt;

use super::subscription::Subscription;
use crate::counters::BlockError;
use crate::device::{DeviceError, DeviceErrorKind};
use crate::pipeline::AppError;
use crate::pipeline::tcp::ListenError;
use crate::proto::SocketError;
use crate::worker::live::LiveError;
use crate::worker::{StopError, WorkerBuilderError, WorkerGroupError};

/// The result type of the port API.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// Why a port does not run. Nothing is left on the interface.
///
/// `Debug` prints the same sentence as `Display`, so that a `main` that returns it prints a message
/// for the operator.
///
/// ```
/// use wirepath::{device::DeviceErrorKind, prelude::*};
///
/// let error = Port::open("pcap:no such.pcap").err().unwrap();
/// assert_eq!(error.kind(), Some(DeviceErrorKind::NotFound));
/// ```
#[non_exhaustive]
pub enum Error {
    /// No device has this name.
    PortName(String),
    /// A device that the library was built without, and the feature that adds it.
    NotBuilt(&'static str),
    /// A PCI function has no network interface.
    NoInterface(String),
    /// The device or one of its queues cannot be opened.
    Device(DeviceError),
    /// The port of an interface cannot be opened.
    Live(LiveError),
    /// The worker of a memory wire or a capture cannot be built.
    Worker(WorkerBuilderError),
    /// The worker threads failed.
    Threads(WorkerGroupError),
    /// The counters do not fit, or a name is taken.
    Counters(BlockError),
    /// The signal handlers cannot be installed.
    Signals(StopError),
    /// A subscription is refused.
    Subscription {
        /// The subscription.
        what: String,
        /// The reason.
        why: SubscriptionError,
    },
    /// The port has ended, perhaps before it answered.
    Ended,
    /// The request queue of the [`PortHandle`](super::PortHandle) is full.
    Busy,
    /// The options of the port contradict each other or its device.
    Config(String),
    /// The app refused to start, with its reason.
    App(AppError),
}

impl Error {
    /// The kind of the problem, for programs that react to it, where the device, the interface or a
    /// limit of the machine is the problem. The inner errors have the details.
    pub fn kind(&self) -> Option<DeviceErrorKind> {
        match self {
            Self::PortName(_) | Self::Config(_) => Some(DeviceErrorKind::InvalidConfig),
            Self::NotBuilt(_) => Some(DeviceErrorKind::Unsupported),
            Self::NoInterface(_) => Some(DeviceErrorKind::NotFound),
            Self::Device(error) => Some(error.kind()),
            Self::Live(error) => Some(error.kind()),
            Self::Worker(error) => Some(error.kind()),
            Self::Threads(_)
            | Self::Counters(_)
            | Self::Signals(_)
            | Self::Subscription { .. }
            | Self::Ended
            | Self::Busy
            | Self::App(_) => None,
        }
    }
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

/// Why a subscription is refused; nothing has changed. `Display` is the problem and the next step.
///
/// ```
/// use wirepath::port::SubscriptionError;
/// use wirepath::{Error, prelude::*};
///
/// let port = Port::open("memory:refused")?.subscribe(udp([192, 0, 2, 1], 7));
/// match port.handle().subscribe(udp([192, 0, 2, 1], 7)) {
///     Err(Error::Subscription { why: SubscriptionError::Duplicate, .. }) => (),
///     other => panic!("{other:?}"),
/// }
/// # wirepath::Result::<()>::Ok(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SubscriptionError {
    /// The port has the same subscription already.
    Duplicate,
    /// There is no such subscription to cancel.
    NotSubscribed,
    /// The subscription is for a queue that the port does not have.
    NoQueue(u16),
    /// A worker's thread would wait for its own answer.
    OnWorker,
    /// A worker's sockets refuse the address or the group.
    Socket(SocketError),
    /// A worker's TCP refuses the listener.
    Listen(ListenError),
}

impl SubscriptionError {
    /// The error of a port that refuses this subscription.
    pub(super) fn of(self, subscription: &Subscription) -> Error {
        Error::Subscription { what: subscription.to_string(), why: self }
    }
}

impl fmt::Display for SubscriptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Duplicate => f.write_str("it is subscribed to already: subscribe once, or as another consumer"),
            Self::NotSubscribed => f.write_str("it is not subscribed to: cancel it as it was subscribed to"),
            Self::NoQueue(queue) => {
                write!(f, "the port has no queue {queue}: it has one for each of its cores, and an embedded port has one")
            }
            Self::OnWorker => f.write_str(
                "a worker cannot wait for itself: take the same call with try_, and look at its answer in tick or on_timer",
            ),
            Self::Socket(error) => error.fmt(f),
            Self::Listen(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for SubscriptionError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Socket(error) => Some(error),
            Self::Listen(error) => Some(error),
            Self::Duplicate | Self::NotSubscribed | Self::NoQueue(_) | Self::OnWorker => None,
        }
    }
}

impl From<SocketError> for SubscriptionError {
    fn from(error: SocketError) -> Self {
        Self::Socket(error)
    }
}

impl From<ListenError> for SubscriptionError {
    fn from(error: ListenError) -> Self {
        Self::Listen(error)
    }
}

/// As `Display`: `main` prints an error by `Debug`.
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
            Self::Subscription { why, .. } => Some(why),
            Self::PortName(_)
            | Self::NotBuilt(_)
            | Self::NoInterface(_)
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
    Counters(BlockError),
    Signals(StopError),
);

#[cfg(all(test, feature = "af-xdp", feature = "mlx5", feature = "pcap"))]
mod tests {
    use super::*;
    use crate::device::Device;
    use crate::device::af_xdp::{AfXdpConfig, AfXdpDevice};
    use crate::device::memory::{MemoryConfig, pair};
    use crate::device::mlx5::{Mlx5Config, Mlx5Device};
    use crate::device::pcap::{PcapConfig, PcapDevice};
    use crate::port::Port;
    use crate::worker::live::{LiveConfig, PortConfig};

    fn kind<T>(opened: core::result::Result<T, impl Into<Error>>) -> (Option<DeviceErrorKind>, String) {
        let error = opened.err().expect("it was opened").into();
        (error.kind(), error.to_string())
    }

    fn check(found: (Option<DeviceErrorKind>, String), expected: DeviceErrorKind, next_step: &str) {
        assert_eq!(found.0, Some(expected), "{}", found.1);
        assert!(found.1.contains(next_step), "{} lacks `{next_step}`", found.1);
    }

    #[test]
    fn each_device_that_cannot_be_opened_says_the_kind_through_the_port() {
        let absent = AfXdpConfig::new("no-such-port");
        check(kind(AfXdpDevice::open(&absent)), DeviceErrorKind::NotFound, "`ip link`");
        let live = LiveConfig::over(PortConfig::AfXdp(absent));
        let started = Port::from_config(live).start(|_, _| ());
        check(kind(started), DeviceErrorKind::NotFound, "`ip link`");

        let ring = AfXdpConfig { rx_ring_len: 7, ..AfXdpConfig::new("lo") };
        check(kind(AfXdpDevice::open(&ring)), DeviceErrorKind::InvalidConfig, "use a power of two");
        let ring = Mlx5Config { rx_ring_len: 7, ..Mlx5Config::new("mlx5_0") };
        check(kind(Mlx5Device::open(&ring)), DeviceErrorKind::InvalidConfig, "use a power of two");

        let (mut near, _far) = pair("wire", MemoryConfig::default());
        let _queue = near.take_queue(0).unwrap();
        check(kind(near.take_queue(0)), DeviceErrorKind::Busy, "give each worker a queue of its own");
        check(kind(near.take_queue(1)), DeviceErrorKind::NotFound, "numbered from 0");
    }

    #[test]
    fn files_that_are_no_captures_are_of_another_kind_than_absent_ones() {
        let replay = |path: &str| PcapConfig { replay: Some(path.into()), ..PcapConfig::default() };
        check(kind(PcapDevice::open(&replay("no such.pcap"))), DeviceErrorKind::NotFound, "check the path");
        check(kind(PcapDevice::open(&replay("Cargo.toml"))), DeviceErrorKind::InvalidFile, "not a pcap");
        check(kind(Port::open("pcap:Cargo.toml")), DeviceErrorKind::InvalidFile, "not a pcap");
    }
}
