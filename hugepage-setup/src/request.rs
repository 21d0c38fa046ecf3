//! A program's request to [`crate::Mapping`], and the messages about the parts that were not
//! granted.

use std::{fmt, io};

use crate::plan::{Bound, Target};
use crate::sysfs::{Limit, Machine, Memory, Pool, TransparentMode};
use crate::{ONE_GIB, format_size};

/// A request for memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapRequest {
    /// Requested bytes; rounded up to whole pages.
    pub len: usize,
    /// The kind of pages.
    pub page: PageChoice,
    /// Only memory of this NUMA node; `None` leaves the choice to the kernel.
    pub node: Option<u32>,
    /// Lock the memory against swap. Hugepages are never swapped; small pages are locked with
    /// `mlock`, which has a limit.
    pub lock: bool,
    /// Touch small pages now rather than in the middle of a burst. Hugepages are always touched
    /// now: see [`crate::Mapping::map`].
    pub populate: bool,
}

impl MapRequest {
    /// `len` bytes of the best pages on any node, touched, not locked.
    pub fn new(len: usize) -> Self {
        Self { len, page: PageChoice::Best, node: None, lock: false, populate: true }
    }
}

/// The kind of pages to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PageChoice {
    /// 1 GiB pages if the request nearly fills them and they are free, else 2 MiB pages, else small
    /// ones, which the mapping then reports as a [`Fallback`].
    #[default]
    Best,
    /// 2 MiB pages or an error.
    TwoMiB,
    /// 1 GiB pages or an error.
    OneGiB,
    /// 4 KiB pages, without transparent hugepages in their place: for comparisons.
    Small,
}

impl PageChoice {
    /// Whether `len` bytes fill 1 GiB pages well enough. One sixteenth may be left over: a pool's
    /// size is a sum of many parts and never a round number, and a smaller allowance would in
    /// practice choose 2 MiB always; a larger one wastes memory (64 MiB per page is about the size
    /// of a worker's pool).
    pub(crate) fn fills_one_gib(len: u64) -> bool {
        let waste = (ONE_GIB - len % ONE_GIB) % ONE_GIB;
        waste <= len / 16
    }
}

/// Why the mapping failed.
#[derive(Debug)]
pub enum MapError {
    /// A request for zero bytes.
    Empty,
    /// Rounded up to whole pages, the length exceeds the address range.
    TooLong {
        /// Requested bytes.
        len: usize,
    },
    /// The machine has no such node.
    NoSuchNode {
        /// The requested node.
        node: u32,
        /// The existing nodes.
        nodes: Vec<u32>,
    },
    /// Too few hugepages, and the request did not permit others.
    Shortage(Shortage),
    /// Small pages beyond the free memory of machine or node. Refused before touching, because the
    /// kernel would make room by killing a process.
    Memory {
        /// Requested bytes.
        wanted: u64,
        /// The memory there is.
        memory: Memory,
        /// On this node only.
        node: Option<u32>,
    },
    /// A system call failed in a way that no other variant explains.
    System {
        /// Its name.
        call: &'static str,
        /// The kernel's error.
        why: io::Error,
    },
}

impl fmt::Display for MapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(f, "a mapping of 0 bytes was asked for; ask for at least one"),
            Self::TooLong { len } => write!(f, "a mapping of {len} bytes passes the address space; ask for less"),
            Self::NoSuchNode { node, nodes } => {
                write!(f, "NUMA node {node} does not exist here; this machine has {nodes:?}")
            }
            Self::Shortage(shortage) => shortage.fmt(f),
            Self::Memory { wanted, memory, node } => write!(
                f,
                "{} of memory were asked for and {} has {} left; ask for less or stop something",
                format_size(*wanted),
                place(*node),
                format_size(memory.available)
            ),
            Self::System { call: "mbind", why } => write!(
                f,
                "cannot bind memory to its NUMA node: mbind: {why}; in a container allow CAP_SYS_NICE, or ask for no node"
            ),
            Self::System { call, why } => {
                write!(f, "cannot map memory: {call}: {why}; `hugepage-setup plan` prints this machine's limits")
            }
        }
    }
}

impl std::error::Error for MapError {}

/// Hugepages that were requested and not granted. Counts are pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shortage {
    /// Bytes of one page.
    pub page_size: u64,
    /// On this node only.
    pub node: Option<u32>,
    /// Pages the request needed.
    pub wanted: u64,
    /// Pages that were free and not promised.
    pub available: u64,
    /// Pages in the pool.
    pub total: u64,
    /// The cause.
    pub cause: ShortageCause,
}

/// The cause of a failed hugepage mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShortageCause {
    /// Too few are reserved or free.
    TooFew,
    /// This kernel or CPU has no pages of that size.
    NoSuchSize,
    /// Enough are free, but the kernel refused with this errno: a limit of the cgroup or cpuset.
    Refused(i32),
}

impl Shortage {
    /// Looks up the counters that explain why the kernel refused with `why`.
    pub(crate) fn explain(machine: &Machine, page_size: u64, node: Option<u32>, wanted: u64, why: &io::Error) -> Self {
        let pool = machine.pool(page_size, node).copied();
        // A node also counts pages as free that are promised elsewhere on the machine.
        let anywhere = machine.pool(page_size, None).map_or(u64::MAX, Pool::available);
        let (available, total) = pool.map_or((0, 0), |pool| (pool.available().min(anywhere), pool.total));
        let cause = match pool {
            None => ShortageCause::NoSuchSize,
            Some(_) if available >= wanted => ShortageCause::Refused(why.raw_os_error().unwrap_or(0)),
            Some(_) => ShortageCause::TooFew,
        };
        Self { page_size, node, wanted, available, total, cause }
    }

    /// The remedy: a command that requests as many pages as make the wanted number free.
    pub fn command(&self) -> String {
        let pages = match self.cause {
            ShortageCause::TooFew => self.total + self.wanted.saturating_sub(self.available),
            ShortageCause::NoSuchSize | ShortageCause::Refused(_) => return "hugepage-setup plan".to_owned(),
        };
        Target { page_size: self.page_size, node: self.node, pages, bound: Bound::AtLeast }.command()
    }
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (wanted, size) = (self.wanted, format_size(self.page_size));
        let pages = if wanted == 1 { "hugepage" } else { "hugepages" };
        let (available, total, place, command) = (self.available, self.total, place(self.node), self.command());
        write!(f, "needed {wanted} {pages} of {size}, ")?;
        match self.cause {
            ShortageCause::TooFew => {
                write!(f, "{place} has {available} free of {total}; reserve them with: {command}")
            }
            ShortageCause::NoSuchSize => write!(f, "{place} has none of that size; see what it has with: {command}"),
            ShortageCause::Refused(errno) => write!(
                f,
                "{place} has {available} free of {total}, and the kernel refused all the same ({}), as it does at the \
                 limit of a cgroup or cpuset; see the limits with: {command}",
                io::Error::from_raw_os_error(errno)
            ),
        }
    }
}

fn place(node: Option<u32>) -> String {
    node.map_or_else(|| "this machine".to_owned(), |node| format!("NUMA node {node}"))
}

/// A mapping of small pages in place of hugepages: the reason, and the cost. Print it where the
/// operator looks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fallback {
    /// The missing hugepages.
    pub shortage: Shortage,
    /// Whether the kernel used transparent hugepages instead.
    pub transparent: Transparent,
}

impl Fallback {
    /// The cost in one sentence. The two figures are from a Zen 4 machine: a random cache line
    /// among 8192 pages, 17.9 ns with 2 MiB pages and 22.2 ns with 4 KiB pages; the difference is
    /// TLB misses.
    pub const COST: &str = "a random access among 8192 pages takes about 22 ns instead of 18 ns (on a Zen 4), the memory may move and \
        a NIC needs a translation entry for every 4 KiB of it instead of every 2 MiB";
}

impl fmt::Display for Fallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FALLBACK to 4 KiB pages: {}; until then {}; {}", self.shortage, Self::COST, self.transparent)
    }
}

/// The result of `MADV_HUGEPAGE` on a mapping that fell back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transparent {
    /// The kernel lacks them or has them switched off.
    Off(TransparentMode),
    /// Requested, and the kernel has put that many bytes in transparent 2 MiB pages so far; it may
    /// revert that.
    Advised {
        /// Bytes in such pages; 0 as long as the memory is not touched.
        bytes: u64,
        /// Bytes of the mapping.
        len: u64,
    },
}

impl fmt::Display for Transparent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off(TransparentMode::Absent) => write!(f, "this kernel has no transparent hugepages to soften it"),
            Self::Off(_) => write!(
                f,
                "transparent hugepages, which would soften it, are off (echo madvise > /sys/kernel/mm/transparent_hugepage/enabled)"
            ),
            Self::Advised { bytes, len } => write!(
                f,
                "transparent hugepages soften it for {} of {}, as long as the kernel leaves them",
                format_size(*bytes),
                format_size(*len)
            ),
        }
    }
}

/// Memory that should have been locked and is not: the kernel may swap it out. The mapping is valid
/// otherwise.
#[derive(Debug)]
pub struct LockWarning {
    /// Bytes to lock.
    pub len: u64,
    /// RLIMIT_MEMLOCK.
    pub limit: Limit,
    /// The kernel's error.
    pub why: io::Error,
}

impl fmt::Display for LockWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of memory are not locked: mlock: {}; {}", format_size(self.len), self.why, advice(self.limit))
    }
}

impl std::error::Error for LockWarning {}

/// [`crate::lock_all`] failed: the process's memory may be swapped out.
#[derive(Debug)]
pub struct LockAllError {
    /// RLIMIT_MEMLOCK.
    pub limit: Limit,
    /// The kernel's error, of the lock itself or of the test beyond the limit.
    pub why: io::Error,
}

impl fmt::Display for LockAllError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the process's memory is not locked: mlockall: {}; {}", self.why, advice(self.limit))
    }
}

impl std::error::Error for LockAllError {}

fn advice(limit: Limit) -> String {
    let soft = limit.soft.map_or_else(|| "unlimited".to_owned(), format_size);
    format!(
        "the limit (RLIMIT_MEMLOCK) is {soft}: raise it with `ulimit -l unlimited`, with a memlock line in \
         /etc/security/limits.conf, or with LimitMEMLOCK=infinity in the systemd unit"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TWO_MIB;
    use crate::numa::Node;

    fn machine(total: u64, free: u64) -> Machine {
        Machine { pools: vec![Pool { page_size: TWO_MIB, total, free, ..Pool::default() }], ..Machine::default() }
    }

    fn explain(machine: &Machine, page_size: u64) -> Shortage {
        Shortage::explain(machine, page_size, None, 8, &io::Error::from_raw_os_error(libc::ENOMEM))
    }

    #[test]
    fn command_asks_for_what_makes_the_wanted_pages_free() {
        // 10 in use, 2 free, 8 wanted: 18 altogether.
        assert_eq!(explain(&machine(12, 2), TWO_MIB).command(), "hugepage-setup apply --pages 18");
    }

    #[test]
    fn command_names_page_size_and_node() {
        let shortage = Shortage { page_size: ONE_GIB, node: Some(1), ..explain(&machine(0, 0), TWO_MIB) };
        assert_eq!(shortage.command(), "hugepage-setup apply --pages 8 --page-size 1G --node 1");
    }

    #[test]
    fn refusal_with_enough_free_pages_is_not_called_too_few() {
        assert_eq!(explain(&machine(12, 12), TWO_MIB).cause, ShortageCause::Refused(libc::ENOMEM));
    }

    #[test]
    fn pages_promised_elsewhere_are_not_free_on_a_node() {
        let pool = |free, reserved| Pool { page_size: TWO_MIB, total: 20, free, reserved, surplus: 0 };
        let node = Node { id: 1, cpus: vec![], memory: Memory::default(), pools: vec![pool(10, 0)] };
        let machine = Machine { pools: vec![pool(10, 10)], nodes: vec![node], ..Machine::default() };
        let shortage = Shortage::explain(&machine, TWO_MIB, Some(1), 8, &io::ErrorKind::OutOfMemory.into());
        assert_eq!((shortage.available, shortage.cause), (0, ShortageCause::TooFew));
        assert_eq!(shortage.command(), "hugepage-setup apply --pages 28 --node 1");
    }

    #[test]
    fn unknown_page_size_is_named_so() {
        assert_eq!(explain(&machine(12, 12), ONE_GIB).cause, ShortageCause::NoSuchSize);
    }

    #[test]
    fn one_gib_pages_need_to_be_nearly_filled() {
        for (len, fills) in
            [(1, false), (ONE_GIB / 2, false), (ONE_GIB, true), (ONE_GIB + 1, false), (ONE_GIB * 31 / 32, true)]
        {
            assert_eq!(PageChoice::fills_one_gib(len), fills, "{len}");
        }
    }

    #[test]
    fn fallback_says_what_is_missing_its_price_and_the_remedy() {
        let fallback = Fallback {
            shortage: explain(&machine(0, 0), TWO_MIB),
            transparent: Transparent::Off(TransparentMode::Never),
        };
        let words = fallback.to_string();
        for part in ["8 hugepages of 2 MiB", "0 free of 0", "hugepage-setup apply --pages 8", "22 ns instead of 18"] {
            assert!(words.contains(part), "{part} is not in: {words}");
        }
    }
}
