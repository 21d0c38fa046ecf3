//! An AF_XDP socket from its creation to its bind to a queue, with its four rings. The driver's
//! capabilities are found by trial, best first: zero-copy before copy, multi-buffer before
//! single-buffer.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use zerocopy::FromBytes;

use super::ring::{ConsumerRing, Desc, Offsets, ProducerRing};
use super::sys;
use super::umem::Umem;
use crate::device::af_xdp::config::{CopyMode, Mode};
use crate::device::af_xdp::error::AfXdpSetupError;
use crate::device::af_xdp::holder;
use crate::device::af_xdp::interface::Interface;
use crate::mem::{Layout, Pool};

/// A bound socket.
pub(crate) struct Bound {
    pub(crate) umem: Umem,
    pub(crate) rings: Rings,
    pub(crate) zero_copy: bool,
    pub(crate) multi_buffer: bool,
}

/// The rings of a socket.
pub(crate) struct Rings {
    pub(crate) fill: ProducerRing<u64>,
    pub(crate) completion: ConsumerRing<u64>,
    pub(crate) rx: ConsumerRing<Desc>,
    pub(crate) tx: ProducerRing<Desc>,
}

/// The socket to bind, and its options.
pub(crate) struct Wanted<'a> {
    pub(crate) interface: &'a Interface,
    pub(crate) queue: u16,
    pub(crate) mode: Mode,
    pub(crate) copying: CopyMode,
    pub(crate) rx_ring_len: u32,
    pub(crate) tx_ring_len: u32,
    pub(crate) frame_len_max: usize,
    /// How long a queue is waited for that another socket has.
    pub(crate) patience: Duration,
}

/// The time for a queue to become free after its socket was closed: hundreds of times longer than
/// on an idle machine.
pub(crate) const RELEASE_MAX: Duration = Duration::from_millis(500);
const RELEASE_STEP: Duration = Duration::from_millis(5);

/// linux/if_xdp.h: descriptors that one sendto(2) takes in copy mode; 32 by default (Linux 6.17).
const MAX_TX_SKB_BUDGET: i32 = 9;
/// The first Linux with frames in several buffers (XDP_USE_SG).
const MULTI_BUFFER_SINCE: (u32, u32) = (6, 6);

/// A socket in the calling thread's network namespace, not bound yet.
pub(crate) fn open() -> Result<OwnedFd, AfXdpSetupError> {
    sys::socket(libc::AF_XDP, libc::SOCK_RAW, 0).map_err(|error| match error.raw_os_error() {
        Some(libc::EAFNOSUPPORT) => AfXdpSetupError::KernelWithoutXdpSockets,
        _ => AfXdpSetupError::system("opening an AF_XDP socket", error),
    })
}

/// Binds the first of `sockets` for which the kernel agrees. Each attempt needs a new socket,
/// because a socket that failed to bind keeps its rings.
pub(crate) fn bind(sockets: Vec<OwnedFd>, pool: &Pool, wanted: &Wanted<'_>) -> Result<Bound, AfXdpSetupError> {
    let ((umem, rings), flags) =
        bind_first(sockets, pool.layout(), wanted, |socket| prepare(socket, pool, wanted), |(umem, _)| umem.socket())?;
    Ok(bound(umem, rings, flags))
}

/// The first of `sockets` for which the kernel agrees, as `prepare` has made it, and the flags that
/// it is bound with.
pub(crate) fn bind_first<T>(
    mut sockets: Vec<OwnedFd>,
    layout: Layout,
    wanted: &Wanted<'_>,
    mut prepare: impl FnMut(OwnedFd) -> Result<T, AfXdpSetupError>,
    socket_of: impl Fn(&T) -> &OwnedFd,
) -> Result<(T, u16), AfXdpSetupError> {
    let tries = tries(wanted, layout.data_room(), has_multi_buffer(kernel_version()));
    let mut last = None;
    for flags in tries {
        let Some(socket) = sockets.pop() else { break };
        let prepared = prepare(socket)?;
        let flags = flags | libc::XDP_USE_NEED_WAKEUP;
        match bind_patiently(socket_of(&prepared), wanted, flags) {
            Ok(()) => return Ok((prepared, flags)),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EINVAL)) => last = Some(error),
            Err(error) => return Err(refused(wanted, error)),
        }
    }
    let name = || wanted.interface.name.clone();
    Err(match (last, wanted.copying) {
        (error, CopyMode::ZeroCopy) => {
            let error = error.unwrap_or_else(|| io::Error::from_raw_os_error(libc::EOPNOTSUPP));
            AfXdpSetupError::NoZeroCopy { interface: name(), error }
        }
        (Some(error), _) => AfXdpSetupError::Binding { interface: name(), queue: wanted.queue, error },
        (None, _) => AfXdpSetupError::MtuTooLarge {
            interface: name(),
            mtu: wanted.interface.mtu,
            chunk_len: layout.stride(),
            data_room: layout.data_room(),
            chunks_max: if has_multi_buffer(kernel_version()) { SEGMENTS_MAX } else { 1 },
        },
    })
}

/// Binds, and waits a moment if the queue is taken: the kernel frees the queue of a closed socket
/// (of a process that was killed and is started again) on a work queue, some milliseconds later.
fn bind_patiently(socket: &OwnedFd, wanted: &Wanted<'_>, flags: u16) -> io::Result<()> {
    let mut waited = Duration::ZERO;
    loop {
        match sys::bind(socket, wanted.interface.index, wanted.queue.into(), flags) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && waited < wanted.patience => {
                std::thread::sleep(RELEASE_STEP);
                waited += RELEASE_STEP;
            }
            result => return result,
        }
    }
}

/// Maximum number of attempts.
pub(crate) const TRIES_MAX: usize = 4;

/// The bind flags to try, best first.
fn tries(wanted: &Wanted<'_>, data_room: usize, kernel_has_multi_buffer: bool) -> Vec<u16> {
    let driver = wanted.interface.driver;
    let fits = |chunks: usize| wanted.frame_len_max <= data_room * chunks;
    let mut tries = Vec::with_capacity(TRIES_MAX);
    let mut add = |copying: u16, chunks_max: usize| {
        if chunks_max > 1 && kernel_has_multi_buffer && fits(chunks_max.min(SEGMENTS_MAX)) {
            tries.push(copying | libc::XDP_USE_SG);
        }
        if fits(1) {
            tries.push(copying);
        }
    };
    if wanted.mode == Mode::Native && wanted.copying != CopyMode::Copy && (driver.zero_copy || !driver.known) {
        add(libc::XDP_ZEROCOPY, if driver.known { driver.zero_copy_segments_max as usize } else { SEGMENTS_MAX });
    }
    if wanted.copying != CopyMode::ZeroCopy {
        add(libc::XDP_COPY, SEGMENTS_MAX);
    }
    tries
}

/// Buffers of a frame in copy mode, to send or to receive: the 17 parts of an skb (MAX_SKB_FRAGS).
pub(crate) const SEGMENTS_MAX: usize = 17;

/// Whether a kernel of this version has AF_XDP multi-buffer.
pub(crate) fn has_multi_buffer(version: Option<(u32, u32)>) -> bool {
    version.is_some_and(|version| version >= MULTI_BUFFER_SINCE)
}

/// Major and minor of the running kernel.
pub(crate) fn kernel_version() -> Option<(u32, u32)> {
    parse_version(&std::fs::read_to_string("/proc/sys/kernel/osrelease").ok()?)
}

fn parse_version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

fn prepare(socket: OwnedFd, pool: &Pool, wanted: &Wanted<'_>) -> Result<(Umem, Rings), AfXdpSetupError> {
    let umem = Umem::register(socket, pool).map_err(|error| match error.raw_os_error() {
        Some(libc::ENOBUFS) => AfXdpSetupError::MemoryLock { len: pool.layout().region_len(pool.capacity()) },
        _ => AfXdpSetupError::system("sharing the pool with the kernel (XDP_UMEM_REG)", error),
    })?;
    make_rings(umem.socket(), wanted)?;
    let rings = map_rings(umem.socket(), wanted.rx_ring_len, wanted.tx_ring_len)?;
    Ok((umem, rings))
}

/// Makes the rings of a socket with a umem.
pub(crate) fn make_rings(socket: &OwnedFd, wanted: &Wanted<'_>) -> Result<(), AfXdpSetupError> {
    let (rx_len, tx_len) = (wanted.rx_ring_len, wanted.tx_ring_len);
    for (ring, len) in [
        (libc::XDP_UMEM_FILL_RING, rx_len),
        (libc::XDP_UMEM_COMPLETION_RING, tx_len),
        (libc::XDP_RX_RING, rx_len),
        (libc::XDP_TX_RING, tx_len),
    ] {
        sys::set_option(socket, ring, len)
            .map_err(|error| AfXdpSetupError::system("making the rings of an AF_XDP socket", error))?;
    }
    // Kernels that do not know the option send 32 frames per call.
    let _ = sys::set_option(socket, MAX_TX_SKB_BUDGET, tx_len);
    Ok(())
}

/// `struct xdp_mmap_offsets`.
#[derive(FromBytes)]
#[repr(C)]
struct AllOffsets {
    rx: Offsets,
    tx: Offsets,
    fill: Offsets,
    completion: Offsets,
}

/// Maps the rings of a socket, which may be bound already (Linux 6.4).
pub(crate) fn map_rings(socket: &OwnedFd, rx_len: u32, tx_len: u32) -> Result<Rings, AfXdpSetupError> {
    let map = || -> io::Result<Rings> {
        let at: AllOffsets = sys::option(socket, libc::XDP_MMAP_OFFSETS)?;
        Ok(Rings {
            fill: ProducerRing::map(socket, libc::XDP_UMEM_PGOFF_FILL_RING, &at.fill, rx_len)?,
            completion: ConsumerRing::map(socket, libc::XDP_UMEM_PGOFF_COMPLETION_RING, &at.completion, tx_len)?,
            rx: ConsumerRing::map(socket, libc::XDP_PGOFF_RX_RING as u64, &at.rx, rx_len)?,
            tx: ProducerRing::map(socket, libc::XDP_PGOFF_TX_RING as u64, &at.tx, tx_len)?,
        })
    };
    map().map_err(|error| AfXdpSetupError::system("mapping the rings of an AF_XDP socket", error))
}

fn bound(umem: Umem, rings: Rings, flags: u16) -> Bound {
    let has = |flag| flags & flag != 0;
    let zero_copy = has(libc::XDP_ZEROCOPY);
    umem.set_zero_copy(zero_copy);
    Bound { umem, rings, zero_copy, multi_buffer: has(libc::XDP_USE_SG) }
}

fn refused(wanted: &Wanted<'_>, error: io::Error) -> AfXdpSetupError {
    let (interface, queue) = (wanted.interface.name.clone(), wanted.queue);
    match error.raw_os_error() {
        Some(libc::EBUSY) => {
            // Who does not wait tries again, or another queue: it costs a look at all processes.
            let holder = if wanted.patience.is_zero() { String::new() } else { holder::of_queue() };
            AfXdpSetupError::QueueBusy { interface, queue, holder }
        }
        Some(libc::ENODEV | libc::ENXIO) => AfXdpSetupError::NoInterface { interface },
        Some(libc::EPERM | libc::EACCES) => AfXdpSetupError::NoPermission { doing: "binding an AF_XDP socket" },
        _ => AfXdpSetupError::Binding { interface, queue, error },
    }
}

/// `struct xdp_statistics`: the kernel's counters of a socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes)]
#[repr(C)]
pub(crate) struct Statistics {
    /// Frames without a buffer in the fill ring, or too long.
    pub(crate) rx_dropped: u64,
    /// Invalid addresses in the fill ring.
    pub(crate) rx_invalid_descs: u64,
    pub(crate) tx_invalid_descs: u64,
    pub(crate) rx_ring_full: u64,
    /// Times that the kernel found the fill ring empty.
    pub(crate) fill_ring_empty: u64,
    /// Times that the kernel found the tx ring empty.
    pub(crate) tx_ring_empty: u64,
}

impl Statistics {
    /// Reads them: one system call. `None` if the interface is gone.
    pub(crate) fn read(umem: &Umem) -> Option<Self> {
        sys::option(umem.socket(), libc::XDP_STATISTICS).ok()
    }

    /// The increase since `earlier`. Zero for a number that fell: the kernel resets the counters of
    /// a ring that it has freed.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        Self {
            rx_dropped: self.rx_dropped.saturating_sub(earlier.rx_dropped),
            rx_invalid_descs: self.rx_invalid_descs.saturating_sub(earlier.rx_invalid_descs),
            tx_invalid_descs: self.tx_invalid_descs.saturating_sub(earlier.tx_invalid_descs),
            rx_ring_full: self.rx_ring_full.saturating_sub(earlier.rx_ring_full),
            fill_ring_empty: self.fill_ring_empty.saturating_sub(earlier.fill_ring_empty),
            tx_ring_empty: self.tx_ring_empty.saturating_sub(earlier.tx_ring_empty),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::counters::Block;
    use crate::device::af_xdp::interface::{DriverFeatures, LinkState};
    use crate::device::af_xdp::{AfXdpConfig, AfXdpDevice};
    use crate::device::{Device, Queue};
    use crate::mem::{Layout, Region};

    const ZC: u16 = libc::XDP_ZEROCOPY;
    const COPY: u16 = libc::XDP_COPY;
    const SG: u16 = libc::XDP_USE_SG;

    fn check(driver: DriverFeatures, mode: Mode, copying: CopyMode, frame_len_max: usize, expected: &[u16]) {
        let interface = Interface {
            index: 1,
            name: "eth0".into(),
            mac: crate::wire::MacAddr([2, 0, 0, 0, 0, 1]),
            mtu: 1500,
            link: LinkState::Up,
            queues: 1,
            program: None,
            strips_vlan: false,
            driver,
            is_virtual: false,
        };
        let wanted = Wanted { mode, copying, frame_len_max, ..on_lo(&interface) };
        assert_eq!(tries(&wanted, 1664, true), expected, "{driver:?} {mode:?} {copying:?} {frame_len_max}");
        assert!(expected.len() <= TRIES_MAX);
    }

    #[test]
    fn best_way_is_tried_first_and_impossible_ones_never() {
        let unknown = DriverFeatures::default();
        let plain = DriverFeatures { known: true, native: true, ..unknown };
        let zero_copy = DriverFeatures { zero_copy: true, zero_copy_segments_max: 1, ..plain };
        check(unknown, Mode::Native, CopyMode::Auto, 1518, &[ZC | SG, ZC, COPY | SG, COPY]);
        check(zero_copy, Mode::Native, CopyMode::Auto, 1518, &[ZC, COPY | SG, COPY]);
        check(zero_copy, Mode::Native, CopyMode::ZeroCopy, 9018, &[]);
        check(zero_copy, Mode::Generic, CopyMode::Auto, 1518, &[COPY | SG, COPY]);
        check(plain, Mode::Native, CopyMode::Auto, 9018, &[COPY | SG]);
        check(plain, Mode::Native, CopyMode::Auto, 17 * 1664, &[COPY | SG]);
        check(plain, Mode::Native, CopyMode::Auto, 17 * 1664 + 1, &[]);
        let five_chunks = DriverFeatures { zero_copy_segments_max: 5, ..zero_copy };
        check(five_chunks, Mode::Native, CopyMode::Auto, 9018, &[COPY | SG]);
        check(five_chunks, Mode::Native, CopyMode::ZeroCopy, 8000, &[ZC | SG]);
        check(plain, Mode::Native, CopyMode::ZeroCopy, 1518, &[]);
    }

    fn on_lo(interface: &Interface) -> Wanted<'_> {
        Wanted {
            interface,
            queue: 0,
            mode: Mode::Generic,
            copying: CopyMode::Copy,
            rx_ring_len: 64,
            tx_ring_len: 64,
            frame_len_max: 1518,
            patience: RELEASE_MAX,
        }
    }

    fn small_pool() -> Pool {
        let layout = Layout::umem(2048);
        Pool::new(Arc::new(Region::heap(layout.region_len(128)).unwrap()), layout).unwrap()
    }

    #[test]
    fn queue_that_another_socket_has_is_refused_in_words() {
        let tried = std::thread::spawn(|| {
            sys::leave_namespace()?;
            let interface = Interface::find("lo").unwrap();
            let wanted = on_lo(&interface);
            let (first_pool, second_pool) = (small_pool(), small_pool());
            let first = bind(vec![open().unwrap()], &first_pool, &wanted).unwrap();
            let refused = bind(vec![open().unwrap()], &second_pool, &wanted).err().unwrap().to_string();
            drop(first);
            // The kernel releases it a moment later, and bind waits for that.
            bind(vec![open().unwrap()], &second_pool, &wanted).unwrap();
            io::Result::Ok(refused)
        });
        match tried.join().unwrap() {
            Ok(refused) => assert!(refused.contains("queue 0 of lo is taken by another AF_XDP socket"), "{refused}"),
            Err(error) => println!("SKIPPED queue_that_another_socket_has_is_refused_in_words: {error}; run as root"),
        }
    }

    /// The variable that is set where `hold_a_queue` runs in the second process.
    const HOLD: &str = "WIREPATH_TEST_HOLD_A_QUEUE";

    /// Not a test by itself: it runs in another process.
    #[test]
    fn hold_a_queue() {
        if std::env::var_os(HOLD).is_none() {
            return;
        }
        let (interface, pool) = (Interface::find("lo").unwrap(), small_pool());
        let _bound = bind(vec![open().unwrap()], &pool, &on_lo(&interface)).unwrap();
        println!("bound");
        std::thread::sleep(Duration::from_secs(60));
    }

    #[test]
    fn process_that_has_the_queue_is_named() {
        let test = "process_that_has_the_queue_is_named";
        let tried = std::thread::spawn(|| {
            sys::leave_namespace()?;
            // Frames of 64 KiB, as on a loopback, need more chunks than are allowed.
            std::process::Command::new("ip").args(["link", "set", "lo", "mtu", "1500"]).status()?;
            let (_, here) = module_path!().split_once("::").unwrap();
            let mut other = std::process::Command::new(std::env::current_exe()?)
                .args(["--exact", &format!("{here}::hold_a_queue"), "--nocapture"])
                .env(HOLD, "1")
                .stdout(std::process::Stdio::piped())
                .spawn()?;
            let said = io::BufRead::lines(io::BufReader::new(other.stdout.take().unwrap()));
            assert!(said.map_while(Result::ok).any(|line| line.ends_with("bound")), "the other has no queue");
            let (config, pool) = (AfXdpConfig { rx_ring_len: 64, ..AfXdpConfig::new("lo") }, small_pool());
            let open = || {
                let mut device = AfXdpDevice::open(&config)?;
                device.take_queue(0)?.open(&pool, &Block::heap().scope("port")).map(drop)
            };
            let refused = open().unwrap_err().to_string();
            assert_eq!(Interface::find("lo").unwrap().program, None, "the program went with the device");
            other.kill()?;
            other.wait()?;
            // With the process's end the queue is free again.
            open().unwrap();
            io::Result::Ok((refused, other.id()))
        });
        match tried.join().unwrap() {
            Ok((said, pid)) => {
                let expected = format!("queue 0 of lo is taken by another AF_XDP socket, probably of process {pid} (");
                assert!(said.starts_with(&expected), "{said}");
            }
            Err(error) => println!("SKIPPED {test}: {error}; run as root"),
        }
    }

    #[test]
    fn frames_that_no_way_takes_are_told_with_what_would() {
        let reported = |chunks_max, chunk_len, mtu| {
            let data_room = Layout::umem(chunk_len).data_room();
            AfXdpSetupError::MtuTooLarge { interface: "eth0".into(), mtu, chunk_len, data_room, chunks_max }.to_string()
        };
        let check = |said: String, expected: &[&str]| {
            assert!(expected.iter().all(|words| said.contains(words)), "{said}\nlacks one of {expected:?}");
        };
        check(reported(1, 2048, 3000), &["do not fit the 1664 bytes", "Layout::umem(4096)"]);
        check(reported(1, 2048, 9000), &["`ip link set dev eth0 mtu 3694`", "Linux 6.6"]);
        check(
            reported(17, 2048, 40_000),
            &["more than 17 chunks of 2048 bytes", "make the pool with Layout::umem(4096)"],
        );
        check(reported(17, 4096, 65_535), &["more than 17 chunks of 4096 bytes", "`ip link set dev eth0 mtu 63086`"]);
    }

    #[test]
    fn old_kernels_have_frames_of_one_buffer_only() {
        for (version, expected) in [(None, false), (Some((5, 15)), false), (Some((6, 5)), false), (Some((6, 6)), true)]
        {
            assert_eq!(has_multi_buffer(version), expected, "{version:?}");
        }
    }

    #[test]
    fn version_is_read_from_any_release() {
        assert_eq!(parse_version("6.18.44-fc-v657\n"), Some((6, 18)));
        assert_eq!(parse_version("5.10.0"), Some((5, 10)));
        assert_eq!(parse_version("unknown"), None);
    }
}
