//! The errors before the first frame, as sentences with the next step.

use core::fmt;
use std::io;

use super::config::AfXdpConfig;
use crate::device::{DeviceError, DeviceErrorKind};
use crate::mem::Layout;

/// Why the device or a queue cannot be opened.
#[derive(Debug)]
pub(crate) enum AfXdpSetupError {
    NoInterface {
        interface: String,
    },
    Asking {
        interface: String,
        error: io::Error,
    },
    NoPermission {
        doing: &'static str,
    },
    KernelTooOld {
        missing: &'static str,
        since: &'static str,
    },
    KernelWithoutXdpSockets,
    KernelWithoutBpf,
    /// Another program is on the interface.
    Attached {
        interface: String,
        holder: String,
    },
    /// Our program was detached while it ran.
    TakenOff {
        interface: String,
        why: String,
    },
    NoNativeXdp {
        interface: String,
        error: io::Error,
    },
    Attaching {
        interface: String,
        error: io::Error,
    },
    ProgramRefused {
        error: io::Error,
        log: String,
    },
    QueueBusy {
        interface: String,
        queue: u16,
        holder: String,
    },
    NoZeroCopy {
        interface: String,
        error: io::Error,
    },
    Binding {
        interface: String,
        queue: u16,
        error: io::Error,
    },
    NotAUmem {
        stride: usize,
    },
    MtuTooLarge {
        interface: String,
        mtu: usize,
        chunk_len: usize,
        data_room: usize,
        /// Maximum number of chunks of a frame.
        chunks_max: usize,
    },
    PoolTooSmall {
        buffers: usize,
        rx_ring_len: u32,
    },
    RingLen {
        name: &'static str,
        len: u32,
    },
    MemoryLock {
        len: usize,
    },
    NoMemory {
        doing: &'static str,
    },
    System {
        doing: &'static str,
        error: io::Error,
    },
    /// A broker refused to lend the queue: its sentence.
    Broker {
        errno: i32,
        sentence: String,
    },
}

impl AfXdpSetupError {
    /// A broker's refusal, or why it cannot be asked.
    pub(crate) fn broker(errno: i32, sentence: impl Into<String>) -> Self {
        Self::Broker { errno, sentence: sentence.into() }
    }

    /// Classifies the error of a system call: lack of permission and of memory have sentences of
    /// their own.
    pub(super) fn system(doing: &'static str, error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Self::NoPermission { doing },
            Some(libc::ENOMEM) => Self::NoMemory { doing },
            Some(libc::ENOSYS) => Self::KernelWithoutBpf,
            _ => Self::System { doing, error },
        }
    }

    /// The kind, for callers.
    fn kind(&self) -> DeviceErrorKind {
        match self {
            Self::NoInterface { .. } => DeviceErrorKind::NotFound,
            Self::NoPermission { .. } => DeviceErrorKind::PermissionDenied,
            Self::KernelTooOld { .. }
            | Self::KernelWithoutXdpSockets
            | Self::KernelWithoutBpf
            | Self::NoNativeXdp { .. }
            | Self::ProgramRefused { .. }
            | Self::NoZeroCopy { .. } => DeviceErrorKind::Unsupported,
            Self::Attached { .. } | Self::QueueBusy { .. } => DeviceErrorKind::Busy,
            Self::TakenOff { .. } => DeviceErrorKind::Removed,
            Self::NotAUmem { .. } | Self::MtuTooLarge { .. } | Self::PoolTooSmall { .. } | Self::RingLen { .. } => {
                DeviceErrorKind::InvalidConfig
            }
            Self::MemoryLock { .. } | Self::NoMemory { .. } => DeviceErrorKind::ResourceLimit,
            Self::Asking { error, .. }
            | Self::Attaching { error, .. }
            | Self::Binding { error, .. }
            | Self::System { error, .. } => error.into(),
            Self::Broker { errno, .. } => (&io::Error::from_raw_os_error(*errno)).into(),
        }
    }

    /// The system's error that it came from.
    fn of_system(self) -> Option<io::Error> {
        match self {
            Self::Asking { error, .. }
            | Self::NoNativeXdp { error, .. }
            | Self::Attaching { error, .. }
            | Self::ProgramRefused { error, .. }
            | Self::NoZeroCopy { error, .. }
            | Self::Binding { error, .. }
            | Self::System { error, .. } => Some(error),
            Self::Broker { errno, .. } => Some(io::Error::from_raw_os_error(errno)),
            _ => None,
        }
    }
}

impl From<AfXdpSetupError> for DeviceError {
    fn from(error: AfXdpSetupError) -> Self {
        let setup = Self::new(error.kind(), error.to_string());
        match error.of_system() {
            Some(error) => setup.because(error),
            None => setup,
        }
    }
}

impl fmt::Display for AfXdpSetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Broker { sentence, .. } => f.write_str(sentence),
            Self::NoInterface { interface } => {
                write!(f, "there is no interface {interface} in this network namespace: `ip link` lists those that are")
            }
            Self::Asking { interface, error } => {
                write!(f, "the kernel did not say what {interface} is ({error}): try `ip link show dev {interface}`")
            }
            Self::NoPermission { doing } => write!(
                f,
                "no permission for {doing}: run as root, or give the program what it needs with `setcap {}+ep PROGRAM`",
                AfXdpConfig::CAPABILITIES
            ),
            Self::KernelTooOld { missing, since } => {
                write!(f, "this kernel ({}) lacks {missing}: use Linux {since} or later", kernel_release())
            }
            Self::KernelWithoutXdpSockets => {
                write!(f, "this kernel has no AF_XDP sockets: use one that is built with CONFIG_XDP_SOCKETS=y")
            }
            Self::KernelWithoutBpf => {
                write!(f, "this kernel has no bpf(2): use one that is built with CONFIG_BPF_SYSCALL=y")
            }
            Self::Attached { interface, holder } => write!(
                f,
                "{interface} already has an XDP program, {holder}: one program receives an interface's frames, so stop the other \
                 or take another interface"
            ),
            Self::TakenOff { interface, why } => {
                write!(f, "the XDP program was taken off {interface} while it ran, and cannot be put back: {why}")
            }
            Self::NoNativeXdp { interface, error } => write!(
                f,
                "the driver of {interface} does not run XDP programs ({error}): use Mode::Generic, which any driver can, or \
                 Mode::Auto"
            ),
            Self::Attaching { interface, error } => {
                write!(f, "the XDP program cannot be put on {interface} ({error}): `dmesg` may say why")
            }
            Self::ProgramRefused { error, log } => {
                write!(f, "the kernel's verifier refuses the steering program ({error}; {log}): please report this")
            }
            Self::QueueBusy { interface, queue, holder } => write!(
                f,
                "queue {queue} of {interface} is taken by another AF_XDP socket, {holder}: stop that or take another queue"
            ),
            Self::NoZeroCopy { interface, error } => write!(
                f,
                "the driver of {interface} cannot receive without a copy ({error}): use CopyMode::Copy or CopyMode::Auto"
            ),
            Self::Binding { interface, queue, error } => {
                write!(
                    f,
                    "queue {queue} of {interface} cannot be opened ({error}): `ethtool -l {interface}` lists its queues"
                )
            }
            Self::NotAUmem { stride } => write!(
                f,
                "buffers {stride} bytes apart cannot be shared with the kernel: make the pool with Layout::umem(2048) or \
                 Layout::umem(4096)"
            ),
            Self::MtuTooLarge { interface, mtu, chunk_len, data_room, chunks_max: 1 } => write!(
                f,
                "frames of {interface} (mtu {mtu}) do not fit the {data_room} bytes of a {chunk_len}-byte chunk, and neither \
                 kernel nor driver spread them over several: {}, or use Linux 6.6 or later",
                smaller_mtu(interface, *mtu, *chunk_len, 1)
            ),
            Self::MtuTooLarge { interface, mtu, chunk_len, chunks_max, .. } => write!(
                f,
                "frames of {interface} (mtu {mtu}) take more than {chunks_max} chunks of {chunk_len} bytes, and a frame has \
                 no more: {}",
                smaller_mtu(interface, *mtu, *chunk_len, *chunks_max)
            ),
            Self::PoolTooSmall { buffers, rx_ring_len } => write!(
                f,
                "a pool of {buffers} buffers cannot feed a receive ring of {rx_ring_len} and send: make it larger, or \
                 AfXdpConfig::rx_ring_len smaller"
            ),
            Self::RingLen { name, len } => {
                write!(f, "AfXdpConfig::{name} is {len}: use a power of two from 64 to 65,536")
            }
            Self::MemoryLock { len } => write!(
                f,
                "the kernel may not lock {len} bytes for this user: raise the limit with `ulimit -l unlimited` (LimitMEMLOCK= in \
                 a systemd unit), give the program cap_ipc_lock, or use a smaller pool"
            ),
            Self::NoMemory { doing } => {
                write!(f, "no memory for {doing}: use a smaller pool or smaller rings, or free some (`free -m`)")
            }
            Self::System { doing, error } => match DeviceErrorKind::from(error) {
                DeviceErrorKind::ResourceLimit => {
                    write!(f, "{doing} failed ({error}): raise the limit, `ulimit -a` lists those of this user")
                }
                _ => write!(f, "{doing} failed ({error}): see what `dmesg` says"),
            },
        }
    }
}

/// The advice for frames that are longer than their chunks.
fn smaller_mtu(interface: &str, mtu: usize, chunk_len: usize, chunks_max: usize) -> String {
    let mtu_max = Layout::umem(4096).data_room() * chunks_max - super::config::LINK_HEADER_LEN;
    match (chunk_len < 4096, mtu <= mtu_max) {
        (true, true) => "make the pool with Layout::umem(4096)".into(),
        (true, false) => {
            format!("make the pool with Layout::umem(4096) and `ip link set dev {interface} mtu {mtu_max}`")
        }
        (false, _) => format!("`ip link set dev {interface} mtu {mtu_max}`"),
    }
}

fn kernel_release() -> String {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("Linux {}", release.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_lacks_is_told_with_what_has_it() {
        let check = |errno, expected: &str| {
            let said = AfXdpSetupError::system("making a BPF map", io::Error::from_raw_os_error(errno)).to_string();
            assert!(said.contains(expected), "{said}");
        };
        check(libc::ENOSYS, "CONFIG_BPF_SYSCALL=y");
        check(libc::EPERM, "no permission for making a BPF map: run as root, or give the program what it needs");
        check(libc::ENOMEM, "no memory for making a BPF map");
        check(libc::EINVAL, "making a BPF map failed (Invalid argument");
        check(libc::EMFILE, "raise the limit, `ulimit -a`");
    }

    #[test]
    fn each_is_one_sentence_that_ends_with_what_to_do() {
        let (interface, holder) = ("eth0".to_owned(), "kept by process 7 (other)".to_owned());
        let error = || io::Error::from_raw_os_error(libc::EOPNOTSUPP);
        for error in [
            AfXdpSetupError::NoInterface { interface: interface.clone() },
            AfXdpSetupError::NoPermission { doing: "loading an XDP program" },
            AfXdpSetupError::KernelTooOld { missing: "XDP links", since: "5.9" },
            AfXdpSetupError::KernelWithoutXdpSockets,
            AfXdpSetupError::KernelWithoutBpf,
            AfXdpSetupError::Attached { interface: interface.clone(), holder: holder.clone() },
            AfXdpSetupError::TakenOff {
                interface: interface.clone(),
                why: AfXdpSetupError::Attached { interface: interface.clone(), holder: holder.clone() }.to_string(),
            },
            AfXdpSetupError::NoNativeXdp { interface: interface.clone(), error: error() },
            AfXdpSetupError::QueueBusy { interface: interface.clone(), queue: 0, holder },
            AfXdpSetupError::NoZeroCopy { interface, error: error() },
            AfXdpSetupError::MemoryLock { len: 4096 },
            AfXdpSetupError::System { doing: "making a BPF map", error: error() },
        ] {
            let said = error.to_string();
            assert!(!said.contains('\n') && !said.contains(". "), "more than a sentence: {said}");
            let steps = ["use ", "run ", "stop ", "`ip ", "raise ", "see "];
            assert!(steps.iter().any(|step| said.contains(step)), "no next step: {said}");
        }
    }

    #[test]
    fn each_has_the_kind_that_a_caller_matches() {
        let (interface, holder) = (|| "eth0".to_owned(), || "kept by process 7 (other)".to_owned());
        let failed = io::Error::from_raw_os_error;
        for (error, kind) in [
            (AfXdpSetupError::NoInterface { interface: interface() }, DeviceErrorKind::NotFound),
            (AfXdpSetupError::NoPermission { doing: "loading a program" }, DeviceErrorKind::PermissionDenied),
            (AfXdpSetupError::KernelTooOld { missing: "XDP links", since: "5.9" }, DeviceErrorKind::Unsupported),
            (
                AfXdpSetupError::NoZeroCopy { interface: interface(), error: failed(libc::EOPNOTSUPP) },
                DeviceErrorKind::Unsupported,
            ),
            (AfXdpSetupError::Attached { interface: interface(), holder: holder() }, DeviceErrorKind::Busy),
            (AfXdpSetupError::QueueBusy { interface: interface(), queue: 0, holder: holder() }, DeviceErrorKind::Busy),
            (AfXdpSetupError::TakenOff { interface: interface(), why: String::new() }, DeviceErrorKind::Removed),
            (AfXdpSetupError::MemoryLock { len: 1 }, DeviceErrorKind::ResourceLimit),
            (AfXdpSetupError::system("opening a socket", failed(libc::EMFILE)), DeviceErrorKind::ResourceLimit),
            (AfXdpSetupError::RingLen { name: "rx_ring_len", len: 7 }, DeviceErrorKind::InvalidConfig),
            (AfXdpSetupError::system("making a BPF map", failed(libc::EINVAL)), DeviceErrorKind::Other),
        ] {
            let sentence = error.to_string();
            let error = DeviceError::from(error);
            assert_eq!(error.kind(), kind, "{sentence}");
            assert_eq!(error.to_string(), sentence);
        }
    }
}
