//! Why a worker could not be built: one sentence each.

use core::fmt;

use crate::counters::BlockError;
use crate::device::{DeviceError, DeviceErrorKind};
use crate::pipeline::tcp::TcpConfigError;
use crate::proto::HostError;
use crate::worker::PoolSetupError;

/// Why the worker could not be built. Nothing of it remains.
#[derive(Debug)]
#[non_exhaustive]
pub enum WorkerBuilderError {
    /// The queue cannot be opened.
    Device(DeviceError),
    /// The description of the host is invalid.
    Host(HostError),
    /// The TCP limits contradict each other.
    Tcp(TcpConfigError),
    /// The roster of open connections, for a guardian, cannot be created.
    Roster(BlockError),
    /// The buffer pool cannot be created.
    Pool(PoolSetupError),
    /// The worker requires hugepages, and there are too few; the text says how many are missing.
    NoHugepages(String),
}

impl WorkerBuilderError {
    /// The kind of the problem, for programs that react to it.
    pub fn kind(&self) -> DeviceErrorKind {
        match self {
            Self::Device(error) => error.kind(),
            Self::Host(_) | Self::Tcp(_) => DeviceErrorKind::InvalidConfig,
            Self::Roster(_) => DeviceErrorKind::Other,
            Self::Pool(_) | Self::NoHugepages(_) => DeviceErrorKind::ResourceLimit,
        }
    }
}

impl fmt::Display for WorkerBuilderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(error) => error.fmt(f),
            Self::Host(error) => write!(f, "the host cannot be as described: {error}"),
            Self::Tcp(error) => error.fmt(f),
            Self::Roster(error) => error.fmt(f),
            Self::Pool(error) => error.fmt(f),
            Self::NoHugepages(shortage) => write!(f, "hugepages are required and not there: {shortage}"),
        }
    }
}

impl core::error::Error for WorkerBuilderError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Device(error) => Some(error),
            Self::Host(error) => Some(error),
            Self::Tcp(error) => Some(error),
            Self::Roster(error) => Some(error),
            Self::Pool(error) => Some(error),
            Self::NoHugepages(_) => None,
        }
    }
}

impl From<DeviceError> for WorkerBuilderError {
    fn from(error: DeviceError) -> Self {
        Self::Device(error)
    }
}

impl From<HostError> for WorkerBuilderError {
    fn from(error: HostError) -> Self {
        Self::Host(error)
    }
}
