//! The errors before the first frame, as sentences with the next step.

use core::fmt;
use std::fs;
use std::io;

use crate::device::steering::{Rule, SteerError};
use crate::device::{DeviceError, DeviceErrorKind};

/// The capabilities that a process without root needs, for setcap(8): cap_net_raw for raw-packet
/// queue pairs and flow rules, cap_ipc_lock to lock the memory of pool and rings regardless of the
/// limit.
pub(super) const CAPABILITIES: &str = "cap_net_raw,cap_ipc_lock";

/// Why the device or a queue cannot be opened.
#[derive(Debug)]
pub(super) enum Mlx5SetupError {
    /// The libraries cannot be loaded; a sentence.
    NoRdmaCore {
        reason: String,
    },
    /// There are no verbs devices at all.
    NoDevices {
        wanted: String,
    },
    /// Other devices exist.
    NoSuchDevice {
        wanted: String,
        there: String,
    },
    /// The interface of another NIC.
    NoConnectX {
        interface: String,
        driver: Option<String>,
        there: String,
    },
    /// A verbs device that libmlx5 does not drive.
    OtherVendor {
        device: String,
        driver: Option<String>,
    },
    /// The kernel refuses access to the device.
    Opening {
        device: String,
        error: io::Error,
    },
    NoPort {
        device: String,
        port: u8,
        ports: u8,
    },
    InfiniBand {
        device: String,
        pci: Option<String>,
        port: u8,
    },
    NoPermission {
        doing: &'static str,
    },
    /// The memory exceeds the limit of locked memory.
    MemoryLock {
        doing: &'static str,
        len: usize,
        limit: u64,
    },
    NoMemory {
        doing: &'static str,
    },
    /// The device has no more objects of this kind.
    Exhausted {
        device: String,
        doing: &'static str,
    },
    /// The thread that monitors the port did not start.
    Thread {
        device: String,
        error: io::Error,
    },
    /// A queue pair that does not change its state.
    QueuePair {
        device: String,
        queue: u16,
        from: &'static str,
        to: &'static str,
        error: io::Error,
    },
    /// The configuration requires a feature that the device lacks.
    Lacking {
        device: String,
        firmware: String,
        feature: &'static str,
        reason: String,
        instead: &'static str,
    },
    RingLen {
        name: &'static str,
        len: u32,
    },
    Config {
        sentence: String,
    },
    PoolTooSmall {
        buffers: usize,
        ring_len: u32,
    },
    FrameTooLong {
        device: String,
        frame_len_max: usize,
        data_room: usize,
        segments_max: usize,
    },
    /// A rule that was set before the queue was open.
    Steering {
        device: String,
        queue: u16,
        rule: Rule,
        error: SteerError,
    },
    /// The kernel no longer relates the device's clock to the time of day.
    NoClock {
        device: String,
    },
    Removed {
        device: String,
    },
    System {
        device: String,
        doing: &'static str,
        error: io::Error,
    },
}

impl Mlx5SetupError {
    /// Classifies the error of a verbs call on `device` while it was `doing` an operation that pins
    /// `len` bytes.
    pub(super) fn verbs(device: &str, doing: &'static str, len: usize, error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Self::NoPermission { doing },
            Some(libc::ENOMEM) => Self::out_of_memory(doing, len, memory_lock_limit().filter(|_| !may_lock_all())),
            Some(libc::EIO | libc::ENODEV) => Self::Removed { device: device.into() },
            Some(libc::ENOSPC | libc::EBUSY | libc::EAGAIN) => Self::Exhausted { device: device.into(), doing },
            _ => Self::System { device: device.into(), doing, error },
        }
    }
}

impl Mlx5SetupError {
    /// The kind, for callers.
    fn kind(&self) -> DeviceErrorKind {
        match self {
            Self::NoDevices { .. } | Self::NoSuchDevice { .. } | Self::NoPort { .. } => DeviceErrorKind::NotFound,
            Self::NoRdmaCore { .. }
            | Self::NoConnectX { .. }
            | Self::OtherVendor { .. }
            | Self::InfiniBand { .. }
            | Self::Lacking { .. } => DeviceErrorKind::Unsupported,
            Self::NoPermission { .. } => DeviceErrorKind::PermissionDenied,
            Self::MemoryLock { .. } | Self::NoMemory { .. } | Self::Exhausted { .. } | Self::Thread { .. } => {
                DeviceErrorKind::ResourceLimit
            }
            Self::RingLen { .. } | Self::Config { .. } | Self::PoolTooSmall { .. } | Self::FrameTooLong { .. } => {
                DeviceErrorKind::InvalidConfig
            }
            Self::Removed { .. } => DeviceErrorKind::Removed,
            Self::Opening { error, .. } | Self::QueuePair { error, .. } | Self::System { error, .. } => error.into(),
            Self::Steering { error, .. } => error.into(),
            Self::NoClock { .. } => DeviceErrorKind::Other,
        }
    }

    /// Distinguishes a lack of memory from the limit of locked memory. The kernel counts the memory
    /// locked by all processes of the user, so the limit may be the reason even if `len` alone does
    /// not reach it.
    fn out_of_memory(doing: &'static str, len: usize, limit: Option<u64>) -> Self {
        match limit {
            Some(limit) => Self::MemoryLock { doing, len, limit },
            None => Self::NoMemory { doing },
        }
    }
}

/// Bytes that this user may lock; `None` without a limit.
fn memory_lock_limit() -> Option<u64> {
    limit_in(&fs::read_to_string("/proc/self/limits").ok()?)
}

fn limit_in(limits: &str) -> Option<u64> {
    limits.lines().find_map(|line| line.strip_prefix("Max locked memory"))?.split_whitespace().next()?.parse().ok()
}

/// linux/capability.h: CAP_IPC_LOCK
const CAP_IPC_LOCK: u32 = 14;

/// Whether the limit does not apply to this thread.
fn may_lock_all() -> bool {
    fs::read_to_string("/proc/thread-self/status").is_ok_and(|status| has_capability(&status, CAP_IPC_LOCK))
}

fn has_capability(status: &str, capability: u32) -> bool {
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    effective.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask >> capability & 1 == 1)
}

impl From<Mlx5SetupError> for DeviceError {
    fn from(error: Mlx5SetupError) -> Self {
        let setup = Self::new(error.kind(), error.to_string());
        match error {
            Mlx5SetupError::Opening { error, .. }
            | Mlx5SetupError::Thread { error, .. }
            | Mlx5SetupError::QueuePair { error, .. }
            | Mlx5SetupError::System { error, .. } => setup.because(error),
            Mlx5SetupError::Steering { error, .. } => setup.because(error),
            _ => setup,
        }
    }
}

impl fmt::Display for Mlx5SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRdmaCore { reason } => f.write_str(reason),
            Self::NoDevices { wanted } => write!(
                f,
                "there is no {wanted}, nor any other verbs device: `lspci -d 15b3:` lists the ConnectX NICs, and `modprobe mlx5_ib` \
                 makes their verbs devices"
            ),
            Self::NoSuchDevice { wanted, there } => write!(
                f,
                "no verbs device, PCI function or interface of one is called {wanted:?}: use one of those that are there, {there}"
            ),
            Self::NoConnectX { interface, driver, there } => write_no_connectx(f, interface, driver.as_deref(), there),
            Self::OtherVendor { device, driver } => write_other_vendor(f, device, driver.as_deref()),
            Self::Opening { device, error } => write_opening(f, device, error),
            Self::NoPort { device, port, ports } => write_no_port(f, device, *port, *ports),
            Self::InfiniBand { device, pci, port } => write!(
                f,
                "port {port} of {device} is an InfiniBand port: make it an Ethernet one with `mlxconfig -d {} set LINK_TYPE_P{port}=2` \
                 and reboot",
                pci.as_deref().unwrap_or(device)
            ),
            Self::NoPermission { doing } => write!(
                f,
                "no permission for {doing}: run as root, or give the program what it needs with `setcap {CAPABILITIES}+ep PROGRAM`"
            ),
            Self::MemoryLock { doing, len, limit } => write!(
                f,
                "{doing} would pin {len} bytes, and this user may pin {limit} (RLIMIT_MEMLOCK): raise the limit with `ulimit -l \
                 unlimited` (LimitMEMLOCK=infinity in a systemd unit), give the program cap_ipc_lock, or use a smaller pool"
            ),
            Self::NoMemory { doing } => {
                write!(f, "no memory for {doing}: use a smaller pool or smaller rings, or free some (`free -m`)")
            }
            Self::Exhausted { device, doing } => write!(
                f,
                "{device} has no room left for {doing}: stop other programs that use it (`rdma resource show` lists them), or use fewer \
                 queues"
            ),
            Self::Thread { device, error } => write!(
                f,
                "the thread that looks at the port of {device} does not start ({error}): raise the limit on threads (`ulimit -u`, TasksMax= \
                 in a systemd unit)"
            ),
            Self::QueuePair { device, queue, from, to, error } => write!(
                f,
                "the queue pair of queue {queue} of {device} does not go from {from} to {to} ({error}): see what `dmesg | grep mlx5` \
                 says, and update the firmware where it is old"
            ),
            Self::Lacking { device, firmware, feature, reason, instead } => write!(
                f,
                "{device} with firmware {firmware} has no {feature} ({reason}), which the configuration demands: {instead}, or use \
                 another NIC or firmware"
            ),
            Self::RingLen { name, len } => write!(f, "Mlx5Config::{name} is {len}: use a power of two from 8 to 8192"),
            Self::Config { sentence } => f.write_str(sentence),
            Self::PoolTooSmall { buffers, ring_len } => write!(
                f,
                "a pool of {buffers} buffers cannot feed a receive ring of {ring_len} and send: make it larger, or \
                 Mlx5Config::rx_ring_len smaller"
            ),
            Self::FrameTooLong { device, frame_len_max, data_room, segments_max } => write!(
                f,
                "frames of {device} have up to {frame_len_max} bytes, more than {segments_max} buffers of {data_room}: make the pool \
                 with Layout::for_frames({frame_len_max})"
            ),
            Self::Steering { device, queue, rule, error } => {
                write!(f, "`{rule}` cannot be steered to queue {queue} of {device}: {error}")
            }
            Self::NoClock { device } => write!(
                f,
                "the kernel does not relate the clock of {device} to the time of day any more, which time stamps need: see what \
                 `dmesg | grep mlx5` says, or use Mlx5Config::raw_timestamps"
            ),
            Self::Removed { device } => {
                write!(
                    f,
                    "{device} does not answer any more, it was removed or reset: see what `dmesg | grep mlx5` says"
                )
            }
            Self::System { device, doing, error } => {
                write!(f, "{doing} failed on {device} ({error}): see what `dmesg | grep mlx5` says")
            }
        }
    }
}

fn write_no_connectx(
    f: &mut fmt::Formatter<'_>,
    interface: &str,
    driver: Option<&str>,
    there: &impl fmt::Display,
) -> fmt::Result {
    let driver = driver.map_or("made up by the kernel".into(), |driver| format!("driven by {driver}"));
    write!(
        f,
        "{interface} is no ConnectX but {driver}: use device = \"af_xdp\" for it, or one of those with verbs, {there}"
    )
}

fn write_other_vendor(f: &mut fmt::Formatter<'_>, device: &str, driver: Option<&str>) -> fmt::Result {
    let driver = driver.map_or(String::new(), |driver| format!(" (its driver is {driver})"));
    write!(
        f,
        "{device} is not an mlx5 device{driver}: name a ConnectX-4 or later, or use device = \"af_xdp\" for its interface"
    )
}

fn write_no_port(f: &mut fmt::Formatter<'_>, device: &str, port: u8, ports: u8) -> fmt::Result {
    write!(f, "{device} has no port {port}: use 1")?;
    if ports > 1 { write!(f, " to {ports}") } else { Ok(()) }
}

fn write_opening(f: &mut fmt::Formatter<'_>, device: &str, error: &io::Error) -> fmt::Result {
    write!(f, "{device} cannot be opened ({error}): ")?;
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => {
            write!(f, "run as root, or as a user who may read and write /dev/infiniband/uverbs*")
        }
        Some(libc::ENOENT | libc::ENXIO) => write!(f, "`modprobe ib_uverbs` makes /dev/infiniband/uverbs*"),
        Some(libc::EBUSY) => write!(f, "stop the program that has it for itself"),
        _ => write!(f, "see what `dmesg | grep mlx5` says, and whether `ibv_devinfo -d {device}` can"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(errno: i32) -> io::Error {
        io::Error::from_raw_os_error(errno)
    }

    #[test]
    fn what_a_verbs_call_says_is_sorted() {
        let check = |errno, expected: &str| {
            let said = Mlx5SetupError::verbs("mlx5_0", "making a queue pair", 4096, error(errno)).to_string();
            assert!(said.contains(expected), "{said}");
        };
        check(libc::EPERM, "setcap cap_net_raw,cap_ipc_lock+ep");
        check(libc::EIO, "mlx5_0 does not answer any more");
        check(libc::ENOSPC, "mlx5_0 has no room left for making a queue pair");
        check(libc::EINVAL, "making a queue pair failed on mlx5_0 (Invalid argument");
    }

    #[test]
    fn limit_of_pinned_memory_is_read_as_the_kernel_writes_it() {
        let limits = "Limit                     Soft Limit           Hard Limit           SqMemory     \n\
                      Max processes             31508                31508                processes \n\
                      Max locked memory         8388608              8388608              bytes     \n";
        assert_eq!(limit_in(limits), Some(8_388_608));
        assert_eq!(limit_in(&limits.replace("8388608", "unlimited")), None);
        assert_eq!(limit_in(""), None);
        assert!(has_capability("Name:\tx\nCapEff:\t000001ffffffffff\n", CAP_IPC_LOCK));
        assert!(!has_capability("CapEff:\t0000000000002000\n", CAP_IPC_LOCK));
        assert!(!has_capability("", CAP_IPC_LOCK));
    }

    #[test]
    fn limit_is_told_with_its_name_and_the_command() {
        let unlimited = Mlx5SetupError::out_of_memory("registering the pool", 1 << 30, None).to_string();
        assert!(unlimited.contains("no memory for registering the pool"), "{unlimited}");
        let said = Mlx5SetupError::out_of_memory("registering the pool", 1 << 30, Some(65_536)).to_string();
        for part in ["1073741824", "65536", "RLIMIT_MEMLOCK", "`ulimit -l unlimited`", "cap_ipc_lock"] {
            assert!(said.contains(part), "{said}");
        }
    }

    #[test]
    fn each_is_one_sentence_that_ends_with_what_to_do() {
        let (device, there) = (|| "mlx5_0".to_owned(), || "mlx5_0 (0000:3b:00.0, eth1)".to_owned());
        let doing = "making a queue pair";
        for error in [
            Mlx5SetupError::NoDevices { wanted: device() },
            Mlx5SetupError::NoSuchDevice { wanted: "eth9".into(), there: there() },
            Mlx5SetupError::NoConnectX { interface: "eth0".into(), driver: None, there: there() },
            Mlx5SetupError::OtherVendor { device: "rxe0".into(), driver: Some("rdma_rxe".into()) },
            Mlx5SetupError::Opening { device: device(), error: error(libc::EACCES) },
            Mlx5SetupError::Opening { device: device(), error: error(libc::ENOENT) },
            Mlx5SetupError::Opening { device: device(), error: error(libc::EIO) },
            Mlx5SetupError::NoPort { device: device(), port: 2, ports: 1 },
            Mlx5SetupError::InfiniBand { device: device(), pci: Some("0000:3b:00.0".into()), port: 1 },
            Mlx5SetupError::NoPermission { doing },
            Mlx5SetupError::MemoryLock { doing, len: 1, limit: 0 },
            Mlx5SetupError::NoMemory { doing },
            Mlx5SetupError::Thread { device: device(), error: error(libc::EAGAIN) },
            Mlx5SetupError::Exhausted { device: device(), doing },
            Mlx5SetupError::QueuePair {
                device: device(),
                queue: 0,
                from: "INIT",
                to: "RTR",
                error: error(libc::EINVAL),
            },
            Mlx5SetupError::Lacking {
                device: device(),
                firmware: "16.28.1002".into(),
                feature: "striding receive queue",
                reason: "its strides are of 64 to 64 bytes".into(),
                instead: "leave Mlx5Config::striding out",
            },
            Mlx5SetupError::RingLen { name: "rx_ring_len", len: 7 },
            Mlx5SetupError::PoolTooSmall { buffers: 8, ring_len: 8 },
            Mlx5SetupError::FrameTooLong { device: device(), frame_len_max: 9018, data_room: 64, segments_max: 4 },
            Mlx5SetupError::Removed { device: device() },
            Mlx5SetupError::System { device: device(), doing, error: error(libc::EINVAL) },
        ] {
            let said = error.to_string();
            assert!(!said.contains('\n') && !said.contains(". "), "more than a sentence: {said}");
            let steps = ["use ", "run ", "stop ", "raise ", "make ", "name ", "see ", "leave ", "`"];
            assert!(steps.iter().any(|step| said.contains(step)), "no next step: {said}");
        }
    }

    #[test]
    fn each_has_the_kind_that_a_caller_matches() {
        let (device, doing) = (|| "mlx5_0".to_owned(), "making a queue pair");
        let no_group = SteerError::Refused { errno: libc::ENOMEM };
        let lacking = Mlx5SetupError::Lacking {
            device: device(),
            firmware: "16.28.1002".into(),
            feature: "striding receive queue",
            reason: "its strides are of 64 to 64 bytes".into(),
            instead: "leave Mlx5Config::striding out",
        };
        for (error, kind) in [
            (Mlx5SetupError::NoDevices { wanted: device() }, DeviceErrorKind::NotFound),
            (Mlx5SetupError::NoRdmaCore { reason: "no library".into() }, DeviceErrorKind::Unsupported),
            (lacking, DeviceErrorKind::Unsupported),
            (
                Mlx5SetupError::Opening { device: device(), error: error(libc::EACCES) },
                DeviceErrorKind::PermissionDenied,
            ),
            (Mlx5SetupError::Opening { device: device(), error: error(libc::EBUSY) }, DeviceErrorKind::Busy),
            (Mlx5SetupError::verbs("mlx5_0", doing, 0, error(libc::EPERM)), DeviceErrorKind::PermissionDenied),
            (Mlx5SetupError::verbs("mlx5_0", doing, 0, error(libc::ENOSPC)), DeviceErrorKind::ResourceLimit),
            (Mlx5SetupError::verbs("mlx5_0", doing, 0, error(libc::EIO)), DeviceErrorKind::Removed),
            (Mlx5SetupError::verbs("mlx5_0", doing, 0, error(libc::EINVAL)), DeviceErrorKind::Other),
            (Mlx5SetupError::RingLen { name: "rx_ring_len", len: 7 }, DeviceErrorKind::InvalidConfig),
            (
                Mlx5SetupError::Steering { device: device(), queue: 0, rule: Rule::default(), error: no_group },
                DeviceErrorKind::ResourceLimit,
            ),
        ] {
            let sentence = error.to_string();
            let error = DeviceError::from(error);
            assert_eq!(error.kind(), kind, "{sentence}");
            assert_eq!(error.to_string(), sentence);
        }
    }
}
