//! Why a device or one of its queues cannot be opened: a kind that a caller can match, and a
//! sentence for the operator.

use core::error::Error;
use core::fmt;
use std::io;

use super::steering::SteerError;

/// Why a device or queue cannot be opened. `Display` is one sentence: the problem, the place, and
/// the next step.
///
/// ```
/// use wirepath::device::{DeviceError, DeviceErrorKind, pcap::{PcapConfig, PcapDevice}};
///
/// let config = PcapConfig { replay: Some("no such.pcap".into()), ..PcapConfig::default() };
/// let error: DeviceError = PcapDevice::open(&config).err().unwrap();
/// match error.kind() {
///     DeviceErrorKind::NotFound => eprintln!("nothing to replay: {error}"),
///     DeviceErrorKind::PermissionDenied => eprintln!("start me as root: {error}"),
///     _ => panic!("{error}"),
/// }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum DeviceError {
    /// There is no such queue.
    NoQueue {
        /// The device.
        device: String,
        /// The requested queue.
        idx: u16,
        /// The number of queues.
        queues: u16,
    },
    /// Another worker has the queue.
    QueueTaken {
        /// The device.
        device: String,
        /// The requested queue.
        idx: u16,
    },
    /// The pool's buffers are too small for the device's frames.
    BuffersTooSmall {
        /// The device.
        device: String,
        /// Bytes that a frame may have.
        frame_len_max: usize,
        /// Bytes that a buffer has.
        data_room: usize,
    },
    /// The device refuses to be set up. Devices of other crates make it by [`DeviceError::new`].
    #[non_exhaustive]
    SetUp {
        /// The kind of the problem.
        kind: DeviceErrorKind,
        /// The problem, the place and the next step.
        sentence: String,
        /// The error that it came from: of the system ([`io::Error`]), of steering ([`SteerError`])
        /// or of the device.
        source: Option<Box<dyn Error + Send + Sync>>,
    },
}

/// The kind of a [`DeviceError`], for programs that react to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DeviceErrorKind {
    /// The process lacks a privilege: root, a capability, access to a file.
    PermissionDenied,
    /// There is no such device, interface, port, queue or file.
    NotFound,
    /// Another program, or another worker, has the device, its queue or its place on the interface.
    Busy,
    /// The kernel, the driver, the firmware or a library cannot do what the configuration needs.
    Unsupported,
    /// A limit is reached: of memory, locked memory, threads, open files, or objects of the device.
    ResourceLimit,
    /// An option has an impossible value, or contradicts another one, the pool or the interface.
    InvalidConfig,
    /// The file is not in a format that the device reads.
    InvalidFile,
    /// The device was removed or reset, or our program was taken off the interface.
    Removed,
    /// None of the above; the sentence has the error of the system.
    Other,
}

impl DeviceError {
    /// A device of this kind of problem, for devices of other crates. The sentence says what the
    /// problem is, where, and what the operator does next.
    pub fn new(kind: DeviceErrorKind, sentence: impl Into<String>) -> Self {
        Self::SetUp { kind, sentence: sentence.into(), source: None }
    }

    /// This error with the error that it came from, which `source` returns. Of other variants
    /// nothing changes.
    #[must_use]
    pub fn because(mut self, error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        if let Self::SetUp { source, .. } = &mut self {
            *source = Some(error.into());
        }
        self
    }

    /// The number of the system's error that this came from, if it is known: see errno(3).
    pub fn errno(&self) -> Option<i32> {
        self.source()?.downcast_ref::<io::Error>()?.raw_os_error()
    }

    /// The kind of the problem.
    pub fn kind(&self) -> DeviceErrorKind {
        match self {
            Self::NoQueue { .. } => DeviceErrorKind::NotFound,
            Self::QueueTaken { .. } => DeviceErrorKind::Busy,
            Self::BuffersTooSmall { .. } => DeviceErrorKind::InvalidConfig,
            Self::SetUp { kind, .. } => *kind,
        }
    }
}

impl From<&io::Error> for DeviceErrorKind {
    /// The kind of a system call's error.
    fn from(error: &io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Self::PermissionDenied,
            Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => Self::NotFound,
            Some(libc::EBUSY | libc::EADDRINUSE) => Self::Busy,
            Some(libc::EOPNOTSUPP | libc::ENOSYS | libc::EPROTONOSUPPORT | libc::EAFNOSUPPORT) => Self::Unsupported,
            Some(
                libc::ENOMEM | libc::ENOBUFS | libc::ENOSPC | libc::EMFILE | libc::ENFILE | libc::EAGAIN | libc::EDQUOT,
            ) => Self::ResourceLimit,
            _ => Self::Other,
        }
    }
}

impl From<&SteerError> for DeviceErrorKind {
    /// The kind of a refusal of a rule that was set before its queue was open.
    fn from(error: &SteerError) -> Self {
        match error {
            SteerError::NeedsIpv4 | SteerError::NeedsPorts | SteerError::Vlan(_) | SteerError::FlowTag(_) => {
                Self::InvalidConfig
            }
            SteerError::Unsupported { .. } => Self::Unsupported,
            SteerError::TableFull { .. } => Self::ResourceLimit,
            SteerError::Overlaps { .. } => Self::Busy,
            SteerError::NoQueue { .. } | SteerError::NoRule { .. } => Self::NotFound,
            SteerError::NoPermission { .. } => Self::PermissionDenied,
            SteerError::Refused { errno } | SteerError::Broker { errno } => {
                Self::from(&io::Error::from_raw_os_error(*errno))
            }
        }
    }
}

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoQueue { device, idx, queues } => {
                write!(f, "{device} has no queue {idx}: it has {queues}, numbered from 0")
            }
            Self::QueueTaken { device, idx } => {
                write!(f, "queue {idx} of {device} is taken: give each worker a queue of its own")
            }
            Self::BuffersTooSmall { device, frame_len_max, data_room } => write!(
                f,
                "frames of {device} have up to {frame_len_max} bytes, but the pool's buffers hold {data_room}: \
                 make the pool with Layout::for_frames({frame_len_max})"
            ),
            Self::SetUp { sentence, .. } => f.write_str(sentence),
        }
    }
}

impl Error for DeviceError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::SetUp { source, .. } => source.as_deref().map(|error| error as _),
            Self::NoQueue { .. } | Self::QueueTaken { .. } | Self::BuffersTooSmall { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_system_calls_have_the_kind_that_a_caller_expects() {
        for (errno, kind) in [
            (libc::EPERM, DeviceErrorKind::PermissionDenied),
            (libc::EACCES, DeviceErrorKind::PermissionDenied),
            (libc::ENODEV, DeviceErrorKind::NotFound),
            (libc::EBUSY, DeviceErrorKind::Busy),
            (libc::EOPNOTSUPP, DeviceErrorKind::Unsupported),
            (libc::EMFILE, DeviceErrorKind::ResourceLimit),
            (libc::EINVAL, DeviceErrorKind::Other),
        ] {
            assert_eq!(DeviceErrorKind::from(&io::Error::from_raw_os_error(errno)), kind, "errno {errno}");
        }
    }

    #[test]
    fn errors_of_every_device_have_kinds_too() {
        let device = || "memory".to_owned();
        assert_eq!(DeviceError::NoQueue { device: device(), idx: 1, queues: 1 }.kind(), DeviceErrorKind::NotFound);
        assert_eq!(DeviceError::QueueTaken { device: device(), idx: 0 }.kind(), DeviceErrorKind::Busy);
        let small = DeviceError::BuffersTooSmall { device: device(), frame_len_max: 9000, data_room: 2048 };
        assert_eq!(small.kind(), DeviceErrorKind::InvalidConfig);
        let own = DeviceError::new(DeviceErrorKind::Removed, "the FPGA was reset: load its image again");
        assert_eq!(
            (own.kind(), &*own.to_string()),
            (DeviceErrorKind::Removed, "the FPGA was reset: load its image again")
        );
    }

    #[test]
    fn error_of_the_system_is_found_behind_the_sentence() {
        let own = || DeviceError::new(DeviceErrorKind::Busy, "the FPGA is taken: stop its program");
        assert_eq!(own().errno(), None);
        assert_eq!(own().because(io::Error::from_raw_os_error(libc::EBUSY)).errno(), Some(libc::EBUSY));
        let refused = own().because(SteerError::Refused { errno: libc::ENOMEM });
        let steering = refused.source().and_then(|source| source.downcast_ref());
        assert_eq!(steering, Some(&SteerError::Refused { errno: libc::ENOMEM }));
    }
}
