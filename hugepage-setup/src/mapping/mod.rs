//! Anonymous memory from the kernel: hugepages or small pages, bound to a node, touched, locked,
//! unmapped on drop.
//!
//! The only file of this crate with `unsafe`: std has no safe form of the memory calls. Its
//! invariants:
//!
//! 1. A `Pages` owns `start..start + len`: one range returned by `mmap`, page-aligned, readable and
//!    writable, with no other owner. It is unmapped once, on drop.
//! 2. The kernel zeroes anonymous pages, so every byte is initialized from the start.
//! 3. After [`Mapping::map`] returned, touching any byte cannot raise SIGBUS: hugepages were all
//!    faulted in, and a refusal became an error; anonymous small pages have no backing file that
//!    could be missing.
//! 4. The calls made on a range (mbind, madvise, mlock) get exactly the range of a living `Pages`
//!    and change neither its bytes nor its addresses. `MADV_DONTNEED` and similar advice are not
//!    used.
//!
//! Not for Miri, which has neither hugepages nor mbind.

use std::ptr::NonNull;
use std::{fs, io, slice};

use crate::request::{Fallback, LockAllError, LockWarning, MapError, MapRequest, PageChoice, Shortage, Transparent};
use crate::sysfs::{Machine, Roots, TransparentMode};
use crate::{ONE_GIB, TWO_MIB};

/// x86-64 and most arm64; a kernel with 16 or 64 KiB pages rounds up further by itself.
const SMALL: u64 = 4096;

/// A range of zeroed memory. It may move between threads and be shared; its owner coordinates the
/// writes.
///
/// A child process does not inherit it (`MADV_DONTFORK`): copy-on-write would otherwise replace the
/// parent's pages under a NIC that writes to them.
#[derive(Debug)]
pub struct Mapping {
    pages: Pages,
    page_size: u64,
    node: Option<u32>,
    lock: Lock,
    fallback: Option<Fallback>,
}

#[derive(Debug)]
enum Lock {
    NotAsked,
    Locked,
    Refused(LockWarning),
}

impl Mapping {
    /// Maps the pages of `request`. The kernel zeroes them, which takes 0.1 s per GiB, and seconds
    /// if a hypervisor has to find the memory first.
    ///
    /// Hugepages are always touched here, also without `populate`: on a node, in a cpuset or under
    /// a cgroup's limit the reservation that `mmap` makes does not guarantee them, and the first
    /// touch would kill the process with SIGBUS.
    ///
    /// # Errors
    /// See [`MapError`]. With [`PageChoice::Best`] a lack of hugepages is no error but a
    /// [`Fallback`] in the mapping; a refused lock is never an error but a [`LockWarning`] in the
    /// mapping.
    pub fn map(request: &MapRequest) -> Result<Self, MapError> {
        // The counters are only for explanations; if /sys is hidden (some containers) mapping works
        // without them.
        let machine = Machine::discover(&Roots::default()).unwrap_or_default();
        if request.len == 0 {
            return Err(MapError::Empty);
        }
        if let Some(node) = request.node
            && !machine.nodes.is_empty()
            && machine.node(node).is_none()
        {
            return Err(MapError::NoSuchNode { node, nodes: machine.nodes.iter().map(|node| node.id).collect() });
        }
        match request.page {
            PageChoice::Best => Self::map_best(request, &machine),
            PageChoice::TwoMiB => Self::map_huge(request, &machine, TWO_MIB),
            PageChoice::OneGiB => Self::map_huge(request, &machine, ONE_GIB),
            PageChoice::Small => Self::map_small(request, &machine, None),
        }
    }

    /// The first byte; aligned to [`Mapping::page_size`].
    pub fn as_ptr(&self) -> NonNull<u8> {
        self.pages.start
    }

    /// Length in bytes: the request, rounded up to whole pages. All of them may be used.
    #[allow(clippy::len_without_is_empty)] // an empty mapping is an error, so the question never arises
    pub fn len(&self) -> usize {
        self.pages.len
    }

    /// All bytes, initially zero, for safe code; a caller that passes [`Mapping::as_ptr`] to a
    /// device must not use it.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: invariants 1 and 2: we own the range and its bytes are initialized; 3: touching
        // it is defined; the borrow of self is exclusive.
        unsafe { slice::from_raw_parts_mut(self.pages.start.as_ptr(), self.pages.len) }
    }

    /// Bytes of one page: 1 GiB, 2 MiB or 4 KiB. Transparent hugepages count as 4 KiB: the kernel
    /// may split them any time.
    pub fn page_size(&self) -> usize {
        self.page_size as usize
    }

    /// The node that the memory is bound to, if requested.
    pub fn node(&self) -> Option<u32> {
        self.node
    }

    /// Whether the memory can never be swapped out: hugepages always, small pages if the lock was
    /// requested and granted.
    pub fn locked(&self) -> bool {
        matches!(self.lock, Lock::Locked)
    }

    /// Why the requested lock was refused.
    pub fn lock_warning(&self) -> Option<&LockWarning> {
        match &self.lock {
            Lock::Refused(warning) => Some(warning),
            Lock::NotAsked | Lock::Locked => None,
        }
    }

    /// Why these are small pages although better ones were requested. Report it to the operator.
    pub fn fallback(&self) -> Option<&Fallback> {
        self.fallback.as_ref()
    }

    fn map_best(request: &MapRequest, machine: &Machine) -> Result<Self, MapError> {
        if PageChoice::fills_one_gib(request.len as u64)
            && let Ok(mapping) = Self::map_huge(request, machine, ONE_GIB)
        {
            return Ok(mapping);
        }
        match Self::map_huge(request, machine, TWO_MIB) {
            Err(MapError::Shortage(shortage)) => Self::map_small(request, machine, Some(shortage)),
            other => other,
        }
    }

    fn map_huge(request: &MapRequest, machine: &Machine, page_size: u64) -> Result<Self, MapError> {
        let len = round_up(request.len, page_size)?;
        let shortage = |why: io::Error| {
            let wanted = len as u64 / page_size;
            MapError::Shortage(Shortage::explain(machine, page_size, request.node, wanted, &why))
        };
        let pages = Pages::map(len, huge_flags(page_size)).map_err(shortage)?;
        pages.bind(request.node, machine)?;
        // The kernel returns EFAULT if a touch would have raised SIGBUS: too few pages on the node,
        // or a cgroup's limit.
        pages.populate().map_err(shortage)?;
        // Hugepages are never swapped out, so they need no lock (mlock would only count them
        // towards its limit).
        Ok(Self { pages, page_size, node: request.node, lock: Lock::Locked, fallback: None })
    }

    /// Small pages. As a substitute for hugepages they are aligned for transparent ones, and those
    /// are requested.
    fn map_small(request: &MapRequest, machine: &Machine, shortage: Option<Shortage>) -> Result<Self, MapError> {
        let align = if shortage.is_some() { TWO_MIB } else { SMALL };
        let len = round_up(request.len, align)?;
        if request.populate || request.lock {
            check_memory(len as u64, request.node, machine)?;
        }
        let pages = Pages::map_aligned(len, align as usize).map_err(system("mmap"))?;
        pages.bind(request.node, machine)?;
        let advice = if shortage.is_some() { libc::MADV_HUGEPAGE } else { libc::MADV_NOHUGEPAGE };
        let advised = pages.advise(advice);
        if request.populate {
            pages.populate().map_err(system("madvise(MADV_POPULATE_WRITE)"))?;
        }
        let lock = match request.lock {
            false => Lock::NotAsked,
            true => match pages.lock() {
                Ok(()) => Lock::Locked,
                Err(why) => Lock::Refused(LockWarning { len: len as u64, limit: machine.memlock, why }),
            },
        };
        let fallback = shortage.map(|shortage| {
            let transparent = transparent_outcome(&pages, advised, machine.transparent);
            Fallback { shortage, transparent }
        });
        Ok(Self { pages, page_size: SMALL, node: request.node, lock, fallback })
    }
}

/// Locks all current and future memory of the process, so that no page of code or data is ever read
/// from disk.
///
/// Refused if RLIMIT_MEMLOCK binds this process: from then on every new allocation would count
/// towards it, and the first one beyond the limit (a thread's stack, a pool) would kill the process
/// instead of staying unlocked.
///
/// # Errors
/// The kernel's refusal, with the limit and the ways to raise it. Nothing is locked then.
pub fn lock_all() -> Result<(), LockAllError> {
    let limit = Machine::discover(&Roots::default()).unwrap_or_default().memlock;
    let refused = |why| LockAllError { limit, why };
    if let Some(soft) = limit.soft {
        lock_beyond(soft).map_err(refused)?;
    }
    // SAFETY: mlockall takes no pointer and changes no byte.
    check(unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE) }).map_err(refused)
}

/// Tests whether this process may lock more than `limit` bytes. It tries, because a capability
/// listed in /proc may be one of a container's user namespace, which the kernel does not accept
/// here. The addresses have no memory behind them.
fn lock_beyond(limit: u64) -> io::Result<()> {
    let len = limit.saturating_add(SMALL) as usize;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: without an address and without MAP_FIXED the kernel picks a free range, so no mapping
    // of ours is replaced.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), len, libc::PROT_NONE, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: exactly the range above; ONFAULT touches nothing.
    let result = check(unsafe { libc::mlock2(start, len, libc::MLOCK_ONFAULT) });
    // SAFETY: exactly the range above, which has no other owner; a failure would leave addresses
    // unused.
    unsafe { libc::munmap(start, len) };
    result
}

/// Refuses a mapping that would invoke the out-of-memory killer, which may kill another process
/// rather than fail ours.
fn check_memory(wanted: u64, node: Option<u32>, machine: &Machine) -> Result<(), MapError> {
    let memory = machine.memory_of(node);
    if memory.total > 0 && wanted > memory.available {
        return Err(MapError::Memory { wanted, memory, node });
    }
    Ok(())
}

fn transparent_outcome(pages: &Pages, advised: io::Result<()>, mode: TransparentMode) -> Transparent {
    match mode {
        TransparentMode::Always | TransparentMode::OnAdvice if advised.is_ok() => {
            Transparent::Advised { bytes: pages.transparent_bytes(), len: pages.len as u64 }
        }
        mode => Transparent::Off(mode),
    }
}

fn round_up(len: usize, page_size: u64) -> Result<usize, MapError> {
    let too_long = MapError::TooLong { len };
    match len.checked_next_multiple_of(page_size as usize) {
        // The kernel's own limit is lower still; this one keeps pointer arithmetic within isize.
        Some(rounded) if rounded <= isize::MAX as usize - TWO_MIB as usize => Ok(rounded),
        _ => Err(too_long),
    }
}

fn huge_flags(page_size: u64) -> libc::c_int {
    libc::MAP_HUGETLB | (page_size.trailing_zeros() as libc::c_int) << libc::MAP_HUGE_SHIFT
}

fn system(call: &'static str) -> impl Fn(io::Error) -> MapError {
    move |why| MapError::System { call, why }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// One mapped range: invariants 1 and 2.
#[derive(Debug)]
struct Pages {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: invariant 1: the range belongs to this value alone, not to a thread, and a shared
// reference gives out only its address and length.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

impl Pages {
    fn map(len: usize, extra_flags: libc::c_int) -> io::Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | extra_flags;
        // SAFETY: without an address and without MAP_FIXED the kernel picks a free range, so no
        // mapping of ours is replaced.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        let pages = Self { start, len };
        pages.advise(libc::MADV_DONTFORK)?;
        Ok(pages)
    }

    /// Maps `align` bytes more than requested and unmaps the parts before and after the aligned
    /// range.
    fn map_aligned(len: usize, align: usize) -> io::Result<Self> {
        let wide = Self::map(len + align, 0)?;
        let before = wide.start.as_ptr().align_offset(align);
        let (_, rest) = wide.split(before);
        let (pages, _) = rest.split(len);
        Ok(pages)
    }

    /// Two owners for the two halves; an empty half owns nothing.
    fn split(self, at: usize) -> (Self, Self) {
        assert!(at <= self.len, "a range is split inside itself: {at} of {}", self.len);
        let whole = std::mem::ManuallyDrop::new(self);
        // SAFETY: invariant 1: at is at most len, so the sum stays within the range or one past its
        // end.
        let middle = unsafe { whole.start.add(at) };
        (Self { start: whole.start, len: at }, Self { start: middle, len: whole.len - at })
    }

    /// Binds the range to a node before its first touch. On a machine with only that node there is
    /// nothing to bind, so a kernel without NUMA or a container without permission (seccomp forbids
    /// mbind) is no obstacle there.
    fn bind(&self, node: Option<u32>, machine: &Machine) -> Result<(), MapError> {
        const MASK_WORDS: usize = 16; // 1024 nodes, the most that Linux can be built for (CONFIG_NODES_SHIFT 10)
        let Some(node) = node else {
            return Ok(());
        };
        let mut mask = [0u64; MASK_WORDS];
        let Some(word) = mask.get_mut(node as usize / 64) else {
            return Err(MapError::NoSuchNode { node, nodes: machine.nodes.iter().map(|node| node.id).collect() });
        };
        *word = 1 << (node % 64);
        // The kernel reads maxnode - 1 bits (mm/mempolicy.c, get_nodes).
        let maxnode = MASK_WORDS * 64 + 1;
        // SAFETY: invariant 4; the mask is alive and as long as maxnode says.
        let result =
            unsafe { libc::syscall(libc::SYS_mbind, self.start, self.len, libc::MPOL_BIND, mask.as_ptr(), maxnode, 0) };
        let only_node = machine.nodes.len() <= 1 && node == machine.nodes.first().map_or(0, |node| node.id);
        match check(result as libc::c_int) {
            Err(why) if !(only_node && matches!(why.raw_os_error(), Some(libc::ENOSYS | libc::EPERM))) => {
                Err(MapError::System { call: "mbind", why })
            }
            _ => Ok(()),
        }
    }

    /// Touches every page for writing; returns an error where a touch would raise SIGBUS.
    fn populate(&self) -> io::Result<()> {
        match self.advise(libc::MADV_POPULATE_WRITE) {
            // Linux before 5.14 does not know the advice.
            Err(why) if why.raw_os_error() == Some(libc::EINVAL) => self.populate_by_lock(),
            other => other,
        }
    }

    /// mlock touches all pages as well and reports errors, but is subject to RLIMIT_MEMLOCK.
    fn populate_by_lock(&self) -> io::Result<()> {
        self.lock()?;
        // SAFETY: invariant 4.
        check(unsafe { libc::munlock(self.start.as_ptr().cast(), self.len) })
    }

    fn lock(&self) -> io::Result<()> {
        // SAFETY: invariant 4.
        check(unsafe { libc::mlock(self.start.as_ptr().cast(), self.len) })
    }

    /// Gives one advice that preserves bytes and addresses (invariant 4). If a signal interrupts a
    /// long population, it continues.
    fn advise(&self, advice: libc::c_int) -> io::Result<()> {
        let keeps = [libc::MADV_POPULATE_WRITE, libc::MADV_HUGEPAGE, libc::MADV_NOHUGEPAGE, libc::MADV_DONTFORK];
        assert!(keeps.contains(&advice), "advice {advice} is not known to keep the memory's contents");
        loop {
            // SAFETY: invariant 4.
            match check(unsafe { libc::madvise(self.start.as_ptr().cast(), self.len, advice) }) {
                Err(why) if why.raw_os_error() == Some(libc::EINTR) => {}
                other => return other,
            }
        }
    }

    /// Bytes of the range in transparent hugepages right now, by /proc/self/smaps; 0 if that is
    /// hidden.
    fn transparent_bytes(&self) -> u64 {
        let smaps = fs::read_to_string("/proc/self/smaps").unwrap_or_default();
        let (start, end) = (self.start.addr().get(), self.start.addr().get() + self.len);
        let mut inside = false;
        let mut bytes = 0;
        for line in smaps.lines() {
            if let Some((from, to)) = parse_range(line) {
                inside = from < end && start < to;
            } else if inside && line.starts_with("AnonHugePages:") {
                bytes += crate::sysfs::meminfo_bytes(line, "AnonHugePages:").unwrap_or(0);
            }
        }
        // The kernel may show this and an adjacent mapping as one range.
        bytes.min(self.len as u64)
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        if self.len == 0 {
            return;
        }
        // SAFETY: invariant 1: the range is ours and this is the only unmap.
        let result = check(unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) });
        debug_assert!(result.is_ok(), "munmap of our own range failed: {result:?}");
    }
}

/// `7f0000000000-7f0000200000 rw-p …` begins a range in smaps; other lines are `Key: value`.
fn parse_range(line: &str) -> Option<(usize, usize)> {
    let (from, to) = line.split_whitespace().next()?.split_once('-')?;
    Some((usize::from_str_radix(from, 16).ok()?, usize::from_str_radix(to, 16).ok()?))
}

#[cfg(all(test, not(miri)))]
mod tests;
