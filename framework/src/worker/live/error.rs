//! The errors before the first frame: one sentence each, including the next step.

use core::fmt;
use core::net::Ipv4Addr;
use std::io;

use super::config_problem::LiveConfigProblem;
use crate::device::steering::{Rule, SteerError};
use crate::device::{DeviceError, DeviceErrorKind};
use crate::pipeline::tcp::{TcpConfig, TcpConfigError};
use crate::proto::{HostError, Ipv4Prefix};
use crate::worker::kernel::MirrorError;
use crate::worker::topology::MemoryLeft;

/// Why a port does not go live. Nothing is left on the interface.
#[derive(Debug)]
#[non_exhaustive]
pub enum LiveError {
    /// The configuration contradicts itself, or the interface.
    Config(LiveConfigProblem),
    /// The kernel's state of the interface cannot be read.
    Mirror(MirrorError),
    /// The device or a queue cannot be opened.
    Device(DeviceError),
    /// The device refused a rule.
    Steering {
        /// The rule.
        rule: Rule,
        /// The reason.
        error: SteerError,
    },
    /// The configured host is invalid.
    Host(HostError),
    /// The kernel has an address on the interface that was to be our own.
    KernelHasAddress {
        /// The interface.
        interface: String,
        /// The kernel's address.
        address: Ipv4Prefix,
    },
    /// The kernel refused a membership.
    Membership {
        /// The interface.
        interface: String,
        /// The group.
        group: Ipv4Addr,
        /// The kernel's error.
        error: io::Error,
    },
    /// ICMP errors about our flows that the kernel receives cannot be listened for.
    IcmpErrors {
        /// The interface.
        interface: String,
        /// The kernel's error.
        error: io::Error,
    },
    /// The TCP limits contradict each other.
    Tcp(TcpConfigError),
    /// The machine has too little memory for TCP.
    TcpMemory {
        /// The limits in each worker.
        tcp: Box<TcpConfig>,
        /// The number of workers.
        workers: usize,
        /// Bytes needed in each.
        each: usize,
        /// Memory the machine has left.
        left: MemoryLeft,
    },
}

impl fmt::Display for LiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(problem) => problem.fmt(f),
            Self::Mirror(error) => error.fmt(f),
            Self::Device(error) => error.fmt(f),
            Self::Steering { rule, error } => write!(f, "`{rule}` cannot be steered to us: {error}"),
            Self::Host(error) => write!(f, "the host cannot be as configured: {error}"),
            Self::KernelHasAddress { interface, address } => write!(
                f,
                "{interface} is the kernel's, which has {address} on it: share it (owner = shared), or take the address away with \
                 `ip address del {address} dev {interface}`"
            ),
            Self::Membership { interface, group, error } => write_membership(f, interface, *group, error),
            Self::IcmpErrors { interface, error } => write_icmp_errors(f, interface, error),
            Self::Tcp(error) => error.fmt(f),
            Self::TcpMemory { tcp, workers, each, left } => write!(
                f,
                "TCP of {workers} worker{} takes {} MiB, for {} connections and {} chunks each, and {} MiB are left ({}): lower \
                 TcpConfig::connections_max or chunks_max",
                if *workers == 1 { "" } else { "s" },
                (*each as u128 * *workers as u128) >> 20,
                tcp.connections_max,
                tcp.chunks_max,
                left.bytes >> 20,
                left.bound
            ),
        }
    }
}

fn write_icmp_errors(f: &mut fmt::Formatter<'_>, interface: &str, error: &io::Error) -> fmt::Result {
    write!(f, "the ICMP errors that come to the kernel on {interface} cannot be received ({error}): ")?;
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => f.write_str("run as root, or give the program cap_net_raw"),
        // pthread_create(3): a limit on threads, of the user or of the cgroup.
        Some(libc::EAGAIN) => f.write_str(
            "the thread that would hear them does not start: raise the limit on threads (`ulimit -u`, TasksMax= in a systemd unit)",
        ),
        Some(libc::EMFILE) => f.write_str("raise the limit on open files with `ulimit -n 4096`"),
        Some(libc::ENOMEM | libc::ENOBUFS) => f.write_str("there is no memory for it: free some (`free -m`)"),
        _ => write!(f, "see whether `ip link show dev {interface}` shows it"),
    }
}

fn write_membership(f: &mut fmt::Formatter<'_>, interface: &str, group: Ipv4Addr, error: &io::Error) -> fmt::Result {
    write!(f, "the kernel does not join {group} on {interface} for us ({error}): ")?;
    match error.raw_os_error() {
        Some(libc::ENOBUFS | libc::ENOMEM) => f.write_str("it has no memory for another membership"),
        Some(libc::EMFILE) => f.write_str("raise the limit on open files with `ulimit -n 4096`"),
        Some(libc::ENODEV | libc::EADDRNOTAVAIL) => {
            write!(f, "`ip link set dev {interface} up multicast on`, or speak IGMP of our own (igmp = worker)")
        }
        _ => f.write_str("speak IGMP of our own (igmp = worker), or none (igmp = off)"),
    }
}

impl LiveError {
    /// The kind of the problem, for programs that react to it.
    pub fn kind(&self) -> DeviceErrorKind {
        match self {
            Self::Config(_) | Self::Host(_) | Self::Tcp(_) => DeviceErrorKind::InvalidConfig,
            Self::Mirror(error) => error.kind(),
            Self::Device(error) => error.kind(),
            Self::Steering { error, .. } => error.into(),
            Self::KernelHasAddress { .. } => DeviceErrorKind::Busy,
            Self::Membership { error, .. } | Self::IcmpErrors { error, .. } => error.into(),
            Self::TcpMemory { .. } => DeviceErrorKind::ResourceLimit,
        }
    }
}

impl core::error::Error for LiveError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Mirror(error) => Some(error),
            Self::Device(error) => Some(error),
            Self::Steering { error, .. } => Some(error),
            Self::Host(error) => Some(error),
            Self::Membership { error, .. } | Self::IcmpErrors { error, .. } => Some(error),
            Self::Tcp(error) => Some(error),
            Self::Config(problem) => Some(problem),
            Self::KernelHasAddress { .. } | Self::TcpMemory { .. } => None,
        }
    }
}

impl From<LiveConfigProblem> for LiveError {
    fn from(problem: LiveConfigProblem) -> Self {
        Self::Config(problem)
    }
}

impl From<MirrorError> for LiveError {
    fn from(error: MirrorError) -> Self {
        Self::Mirror(error)
    }
}

impl From<DeviceError> for LiveError {
    fn from(error: DeviceError) -> Self {
        Self::Device(error)
    }
}

impl From<HostError> for LiveError {
    fn from(error: HostError) -> Self {
        Self::Host(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ear_that_cannot_be_had_is_told_with_what_is_missing() {
        let said = |errno| {
            let error = io::Error::from_raw_os_error(errno);
            LiveError::IcmpErrors { interface: "eth1".into(), error }.to_string()
        };
        assert!(said(libc::EPERM).contains("give the program cap_net_raw"), "{}", said(libc::EPERM));
        for errno in [libc::EAGAIN, libc::EMFILE, libc::ENOMEM, libc::ENODEV] {
            assert!(!said(errno).contains("cap_net_raw"), "rights are not what is missing: {}", said(errno));
        }
        assert!(said(libc::EAGAIN).contains("raise the limit on threads (`ulimit -u`"), "{}", said(libc::EAGAIN));
    }
}
