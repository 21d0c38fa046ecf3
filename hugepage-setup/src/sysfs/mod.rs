//! The kernel's hugepage state, read once into plain values.
//!
//! Sources: Documentation/admin-guide/mm/hugetlbpage.rst (the counters),
//! Documentation/ABI/testing/sysfs-kernel-mm-hugepages, proc(5) (meminfo, limits, mounts). Nothing
//! here writes; a tree in a temporary directory serves the tests as well as `/sys` and `/proc` do.

use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

use crate::cgroup::{self, CgroupLimit};
use crate::numa::{self, Node};

/// The root folders of the machine's files. [`Roots::default`] is this machine; tests put a made-up
/// one below a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Roots {
    /// `/sys`
    pub sys: PathBuf,
    /// `/proc`
    pub proc: PathBuf,
    /// `/etc`
    pub etc: PathBuf,
}

impl Roots {
    /// The three trees below `directory`: a copy of another machine's files, or a test's.
    pub fn below(directory: &Path) -> Self {
        Self { sys: directory.join("sys"), proc: directory.join("proc"), etc: directory.join("etc") }
    }
}

impl Default for Roots {
    fn default() -> Self {
        Self::below(Path::new("/"))
    }
}

/// The hugepage state of one machine at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Machine {
    /// One pool for each page size the kernel offers, smallest first. Empty when it offers none.
    pub pools: Vec<Pool>,
    /// NUMA nodes in order. Empty when the kernel was built without NUMA.
    pub nodes: Vec<Node>,
    /// The page size that `vm.nr_hugepages` refers to, in bytes.
    pub default_page_size: Option<u64>,
    /// Memory of the whole machine.
    pub memory: Memory,
    /// RLIMIT_MEMLOCK of this process.
    pub memlock: Limit,
    /// Mounted hugetlbfs file systems. Anonymous mappings, as made by [`crate::Mapping`], need
    /// none.
    pub mounts: Vec<Mount>,
    /// Limits on hugepages by the control groups of this process.
    pub cgroup: Vec<CgroupLimit>,
    /// The kernel's handling of `MADV_HUGEPAGE`.
    pub transparent: TransparentMode,
}

impl Machine {
    /// Reads the trees. An absent file or folder means that this kernel lacks the feature; a
    /// present one must be valid.
    ///
    /// # Errors
    /// A file is present but unreadable, or does not hold a number.
    pub fn discover(roots: &Roots) -> Result<Self, SysfsError> {
        let meminfo = read_if_present(&roots.proc.join("meminfo"))?.unwrap_or_default();
        let limits = read_if_present(&roots.proc.join("self/limits"))?.unwrap_or_default();
        let mounts = read_if_present(&roots.proc.join("self/mounts"))?.unwrap_or_default();
        let transparent = read_if_present(&roots.sys.join("kernel/mm/transparent_hugepage/enabled"))?;
        let pools = read_pools(&roots.sys.join("kernel/mm/hugepages"))?;
        let page_sizes: Vec<u64> = pools.iter().map(|pool| pool.page_size).collect();
        Ok(Self {
            pools,
            nodes: numa::read_nodes(&roots.sys.join("devices/system/node"))?,
            default_page_size: meminfo_bytes(&meminfo, "Hugepagesize:"),
            memory: Memory {
                total: meminfo_bytes(&meminfo, "MemTotal:").unwrap_or(0),
                available: meminfo_bytes(&meminfo, "MemAvailable:").unwrap_or(0),
            },
            memlock: parse_memlock(&limits),
            mounts: mounts.lines().filter_map(parse_mount).collect(),
            cgroup: cgroup::read_limits(roots, &page_sizes)?,
            transparent: parse_transparent(transparent.as_deref()),
        })
    }

    /// The pool of `page_size` bytes: of one node, or of the whole machine.
    pub fn pool(&self, page_size: u64, node: Option<u32>) -> Option<&Pool> {
        let pools = match node {
            None => &self.pools,
            Some(id) => &self.node(id)?.pools,
        };
        pools.iter().find(|pool| pool.page_size == page_size)
    }

    /// The node numbered `id`.
    pub fn node(&self, id: u32) -> Option<&Node> {
        self.nodes.iter().find(|node| node.id == id)
    }

    /// The memory of one node, or of the whole machine. If one node is the whole machine, the
    /// kernel's own estimate of available memory applies to both; it is the better one, and
    /// hypervisors that add memory late update only that one.
    pub fn memory_of(&self, node: Option<u32>) -> Memory {
        match node.and_then(|id| self.node(id)) {
            Some(node) if self.nodes.len() > 1 => node.memory,
            _ => self.memory,
        }
    }
}

/// The kernel's counters of one page size. Counts are pages, not bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pool {
    /// Bytes of one page.
    pub page_size: u64,
    /// Pages the pool holds, surplus included (`nr_hugepages`).
    pub total: u64,
    /// Pages not touched by any process yet (`free_hugepages`).
    pub free: u64,
    /// Free pages promised to a mapping (`resv_hugepages`). The kernel does not count these per
    /// node: 0 there.
    pub reserved: u64,
    /// Pages beyond the reservation, which return to the system when they become free
    /// (`surplus_hugepages`).
    pub surplus: u64,
}

impl Pool {
    /// Pages that a new mapping can have.
    pub fn available(&self) -> u64 {
        self.free.saturating_sub(self.reserved)
    }

    /// Pages that are held or promised.
    pub fn in_use(&self) -> u64 {
        self.total.saturating_sub(self.available())
    }

    /// Pages that remain when their user exits: a write to `nr_hugepages` sets this number.
    pub fn persistent(&self) -> u64 {
        self.total.saturating_sub(self.surplus)
    }
}

/// Bytes of memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Memory {
    /// All of it; 0 if the kernel does not report it.
    pub total: u64,
    /// Memory available without swapping: free, and caches that can be dropped.
    pub available: u64,
}

/// A resource limit in bytes; `None` is unlimited, and the default without `/proc`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limit {
    /// The limit that the kernel enforces.
    pub soft: Option<u64>,
    /// The limit up to which the process itself may raise it.
    pub hard: Option<u64>,
}

/// A mounted hugetlbfs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Its mount point.
    pub path: PathBuf,
    /// Bytes of its pages; `None` is the kernel's default size.
    pub page_size: Option<u64>,
}

/// The kernel's setting for transparent hugepages (`/sys/kernel/mm/transparent_hugepage/enabled`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TransparentMode {
    /// Wherever they fit.
    Always,
    /// On request by `MADV_HUGEPAGE`.
    OnAdvice,
    /// Switched off.
    Never,
    /// The kernel was built without them.
    #[default]
    Absent,
}

/// A file of the kernel that could not be read or parsed.
#[derive(Debug)]
pub enum SysfsError {
    /// Present, but reading it failed.
    Unreadable(PathBuf, io::Error),
    /// Read, but its content is invalid.
    Garbage(PathBuf, String),
}

impl fmt::Display for SysfsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(path, why) => {
                write!(f, "cannot read {}: {why}; is this sysfs/procfs, and mounted?", path.display())
            }
            Self::Garbage(path, text) => write!(
                f,
                "{} holds \"{}\", which is not what the kernel writes there; is something else mounted over it?",
                path.display(),
                text.escape_debug()
            ),
        }
    }
}

impl std::error::Error for SysfsError {}

/// The pools in one `hugepages` folder. Entries that are not called `hugepages-<n>kB` are ignored.
pub(crate) fn read_pools(folder: &Path) -> Result<Vec<Pool>, SysfsError> {
    let mut pools = Vec::new();
    for name in list(folder)? {
        let kilobytes = name.strip_prefix("hugepages-").and_then(|rest| rest.strip_suffix("kB"));
        if let Some(page_size) = kilobytes.and_then(|n| n.parse::<u64>().ok()).and_then(|n| n.checked_mul(1 << 10)) {
            pools.push(read_pool(&folder.join(&name), page_size)?);
        }
    }
    pools.sort_by_key(|pool| pool.page_size);
    Ok(pools)
}

/// One pool. The first two counters must exist; the kernel omits the others in a node's folder or
/// in old versions.
pub(crate) fn read_pool(folder: &Path, page_size: u64) -> Result<Pool, SysfsError> {
    let optional = |name: &str| match folder.join(name) {
        path if path.exists() => read_number(&path),
        _ => Ok(0),
    };
    Ok(Pool {
        page_size,
        total: read_number(&folder.join("nr_hugepages"))?,
        free: read_number(&folder.join("free_hugepages"))?,
        reserved: optional("resv_hugepages")?,
        surplus: optional("surplus_hugepages")?,
    })
}

pub(crate) fn read_number(path: &Path) -> Result<u64, SysfsError> {
    let text = read(path)?;
    text.trim().parse().map_err(|_| SysfsError::Garbage(path.to_owned(), text.trim().to_owned()))
}

pub(crate) fn read(path: &Path) -> Result<String, SysfsError> {
    fs::read_to_string(path).map_err(|why| SysfsError::Unreadable(path.to_owned(), why))
}

pub(crate) fn read_if_present(path: &Path) -> Result<Option<String>, SysfsError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(why) => Err(SysfsError::Unreadable(path.to_owned(), why)),
    }
}

/// The names in a folder; an absent folder has none.
pub(crate) fn list(folder: &Path) -> Result<Vec<String>, SysfsError> {
    let unreadable = |why| SysfsError::Unreadable(folder.to_owned(), why);
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(why) => return Err(unreadable(why)),
    };
    let mut names = Vec::new();
    for entry in entries {
        names.extend(entry.map_err(unreadable)?.file_name().into_string());
    }
    Ok(names)
}

/// The value of `MemTotal:       24684092 kB` in bytes. `key` may stand after words (`Node 0 MemTotal:`).
pub(crate) fn meminfo_bytes(meminfo: &str, key: &str) -> Option<u64> {
    let mut words = meminfo.lines().find(|line| line.split_whitespace().any(|word| word == key))?.split_whitespace();
    words.find(|word| *word == key)?;
    words.next()?.parse::<u64>().ok()?.checked_mul(1 << 10)
}

/// `Max locked memory         8388608              8388608              bytes`
fn parse_memlock(limits: &str) -> Limit {
    let Some(rest) = limits.lines().find_map(|line| line.strip_prefix("Max locked memory")) else {
        return Limit::default();
    };
    let mut words = rest.split_whitespace().map(|word| word.parse().ok());
    Limit { soft: words.next().flatten(), hard: words.next().flatten() }
}

/// `none /dev/hugepages hugetlbfs rw,relatime,pagesize=2M 0 0`
fn parse_mount(line: &str) -> Option<Mount> {
    let mut words = line.split_whitespace().skip(1);
    let (path, kind, options) = (words.next()?, words.next()?, words.next()?);
    if kind != "hugetlbfs" {
        return None;
    }
    let page_size = options.split(',').find_map(|option| option.strip_prefix("pagesize="));
    Some(Mount { path: path.into(), page_size: page_size.and_then(|text| crate::parse_size(text).ok()) })
}

/// `always [madvise] never`: the word in brackets is the current setting.
fn parse_transparent(enabled: Option<&str>) -> TransparentMode {
    match enabled {
        None => TransparentMode::Absent,
        Some(text) if text.contains("[always]") => TransparentMode::Always,
        Some(text) if text.contains("[madvise]") => TransparentMode::OnAdvice,
        Some(_) => TransparentMode::Never,
    }
}

#[cfg(test)]
mod tests;
