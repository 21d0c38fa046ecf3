//! Changes the kernel's reservation, and verifies it by reading it back.
//!
//! A write to `nr_hugepages` always succeeds, with as many pages as the kernel could find; so only
//! the number read afterwards shows success
//! (Documentation/admin-guide/mm/hugetlbpage.rst).

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::{fmt, io};

use crate::plan::{self, Step, Target};
use crate::size::format_option;
use crate::sysfs::{self, Machine, Roots, SysfsError};
use crate::{ONE_GIB, TWO_MIB, format_size};

/// The outcome of an attempted reservation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The target was reached already; nothing was written.
    Unchanged {
        /// Pages in the pool.
        total: u64,
    },
    /// The target is reached.
    Done {
        /// Pages before.
        before: u64,
        /// Pages now.
        now: u64,
    },
    /// The kernel found only some of the pages. It keeps those; nothing was released.
    Partial {
        /// Total pages requested.
        asked: u64,
        /// Pages before.
        before: u64,
        /// Total pages granted.
        granted: u64,
        /// Remedies that may find the others, most promising first.
        advice: Vec<Advice>,
    },
    /// Pages were to be released, and another process took some of them in the meantime: those
    /// stay.
    Kept {
        /// Total pages that were to remain.
        asked: u64,
        /// Pages before.
        before: u64,
        /// Pages now.
        now: u64,
    },
}

/// Remedies for a kernel that does not find enough contiguous memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Advice {
    /// Drop the page cache, which is scattered over memory.
    DropCaches,
    /// Compact memory in use.
    Compact,
    /// Reserve at boot, before memory is fragmented, with these parameters on the kernel's command
    /// line.
    Boot(String),
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DropCaches => {
                write!(f, "drop the page cache and apply again: sync; echo 3 > /proc/sys/vm/drop_caches")
            }
            Self::Compact => write!(f, "compact memory and apply again: echo 1 > /proc/sys/vm/compact_memory"),
            Self::Boot(words) => write!(f, "reserve at boot, before memory is in pieces: kernel command line {words}"),
        }
    }
}

/// Brings the reservation to `target`: reads, decides ([`plan::decide`]), writes and reads back,
/// while other users of this library wait. Takes up to seconds if the kernel has to move memory.
///
/// # Errors
/// See [`ReserveError`]. Fewer pages than requested are no error but [`Outcome::Partial`].
pub fn reserve(roots: &Roots, target: &Target) -> Result<Outcome, ReserveError> {
    reserve_through(roots, target, write_count)
}

/// As [`reserve`], with the write to the kernel's file as an argument, so that a test decides which
/// pages the kernel grants.
fn reserve_through(
    roots: &Roots,
    target: &Target,
    write: impl Fn(&Path, u64) -> io::Result<()>,
) -> Result<Outcome, ReserveError> {
    let step = plan::decide(&Machine::discover(roots)?, target)?;
    if step == Step::Nothing {
        return Ok(Outcome::Unchanged { total: read_persistent(roots, target)? });
    }
    let path = pool_folder(roots, target).join("nr_hugepages");
    let failed = |why| ReserveError::from_write(&path, why);
    let guard = File::options().write(true).open(&path).map_err(failed)?;
    // Two processes that both read 0 and then write 8 and 4 would together shrink. The lock ends
    // with the guard.
    guard.lock().map_err(failed)?;
    let step = plan::decide(&Machine::discover(roots)?, target)?;
    let before = read_persistent(roots, target)?;
    if step == Step::Nothing {
        return Ok(Outcome::Unchanged { total: before });
    }
    write(&path, target.pages).map_err(failed)?;
    let now = read_persistent(roots, target)?;
    match step {
        Step::Raise(_) if now < target.pages => {
            Ok(Outcome::Partial { asked: target.pages, before, granted: now, advice: advise(target) })
        }
        Step::Lower(_) if now > target.pages => Ok(Outcome::Kept { asked: target.pages, before, now }),
        _ => Ok(Outcome::Done { before, now }),
    }
}

/// The parameters on the kernel's command line that reserve `target` at boot
/// (Documentation/admin-guide/kernel-parameters.txt, hugepagesz= and hugepages=; by node since
/// Linux 5.16).
pub fn boot_parameters(target: &Target) -> String {
    let size = format_option(target.page_size);
    match target.node {
        None => format!("hugepagesz={size} hugepages={}", target.pages),
        Some(node) => format!("hugepagesz={size} hugepages={node}:{}", target.pages),
    }
}

fn advise(target: &Target) -> Vec<Advice> {
    let boot = Advice::Boot(boot_parameters(target));
    // A contiguous free gibibyte is rare on a machine that has run for a day, even after caches are
    // dropped and memory is compacted.
    match target.page_size >= ONE_GIB {
        true => vec![boot, Advice::Compact, Advice::DropCaches],
        false => vec![Advice::DropCaches, Advice::Compact, boot],
    }
}

fn write_count(path: &Path, pages: u64) -> io::Result<()> {
    fs::write(path, format!("{pages}\n"))
}

fn read_persistent(roots: &Roots, target: &Target) -> Result<u64, SysfsError> {
    Ok(sysfs::read_pool(&pool_folder(roots, target), target.page_size)?.persistent())
}

/// The folder of one page size's counters: of the whole machine, or of one node.
fn pool_folder(roots: &Roots, target: &Target) -> PathBuf {
    let parent = match target.node {
        None => roots.sys.join("kernel/mm/hugepages"),
        Some(node) => roots.sys.join(format!("devices/system/node/node{node}/hugepages")),
    };
    parent.join(format!("hugepages-{}kB", target.page_size >> 10))
}

/// Why no reservation was attempted, or no page was granted. Nothing has changed.
#[derive(Debug)]
pub enum ReserveError {
    /// The kernel has no pages of that size.
    NoSuchPageSize {
        /// Requested page size in bytes.
        page_size: u64,
        /// The supported sizes.
        page_sizes: Vec<u64>,
    },
    /// The machine has no such node.
    NoSuchNode {
        /// The requested node.
        node: u32,
        /// The existing nodes.
        nodes: Vec<u32>,
    },
    /// Too little would be left for everything else.
    Memory {
        /// The request.
        target: Target,
        /// Bytes that it needs beyond the reserved ones.
        wanted: u64,
        /// Bytes that are available there.
        available: u64,
        /// Bytes that must remain.
        kept: u64,
    },
    /// Pages should be released while the pool is in use.
    InUse {
        /// The request.
        target: Target,
        /// Pages in the pool.
        total: u64,
        /// Pages that are held or promised.
        in_use: u64,
    },
    /// Only root may write this file.
    NotRoot(PathBuf),
    /// The file system is mounted read-only, as in a container.
    ReadOnly(PathBuf),
    /// The write failed otherwise.
    Write(PathBuf, io::Error),
    /// The kernel's files could not be read.
    Sysfs(SysfsError),
}

impl ReserveError {
    /// Classifies a failed write by its remedy.
    pub(crate) fn from_write(path: &Path, why: io::Error) -> Self {
        match why.kind() {
            io::ErrorKind::PermissionDenied => Self::NotRoot(path.to_owned()),
            io::ErrorKind::ReadOnlyFilesystem => Self::ReadOnly(path.to_owned()),
            _ => Self::Write(path.to_owned(), why),
        }
    }
}

impl From<SysfsError> for ReserveError {
    fn from(error: SysfsError) -> Self {
        Self::Sysfs(error)
    }
}

impl fmt::Display for ReserveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchPageSize { page_size, page_sizes } if page_sizes.is_empty() => write!(
                f,
                "this kernel has no hugepages at all, so none of {} either; it needs CONFIG_HUGETLBFS, and /sys mounted",
                format_size(*page_size)
            ),
            Self::NoSuchPageSize { page_size, page_sizes } => {
                let sizes: Vec<String> = page_sizes.iter().map(|size| format_size(*size)).collect();
                let hint = if *page_size == TWO_MIB { "" } else { " (1 GiB pages need pdpe1gb in /proc/cpuinfo)" };
                write!(f, "no hugepages of {} here; there are {}{hint}", format_size(*page_size), sizes.join(" and "))
            }
            Self::NoSuchNode { node, nodes } if nodes.is_empty() => {
                write!(f, "NUMA node {node} does not exist: this kernel has no NUMA; leave --node out")
            }
            Self::NoSuchNode { node, nodes } => {
                let nodes: Vec<String> = nodes.iter().map(u32::to_string).collect();
                write!(f, "NUMA node {node} does not exist; this machine has {}", nodes.join(", "))
            }
            Self::Memory { target, wanted, available, kept } => write!(
                f,
                "{target} take {} more, and of the {} available {} must stay for everything else; ask for at most {} more pages",
                format_size(*wanted),
                format_size(*available),
                format_size(*kept),
                available.saturating_sub(*kept) / target.page_size
            ),
            Self::InUse { target, total, in_use } => write!(
                f,
                "{in_use} of {total} pages of {} are in use, so none is released; stop their user first (grep -l huge /proc/*/numa_maps)",
                format_size(target.page_size)
            ),
            Self::NotRoot(path) => write!(f, "writing {} needs root", path.display()),
            Self::ReadOnly(path) => write!(
                f,
                "{} is read-only here, as in a container: reserve on the host, or run the container privileged",
                path.display()
            ),
            Self::Write(path, why) => {
                write!(f, "cannot write {}: {why}; the kernel's reasons are in `dmesg`", path.display())
            }
            Self::Sysfs(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ReserveError {}

#[cfg(test)]
mod tests;
