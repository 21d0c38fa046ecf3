//! The hugetlb limits of this process's control groups: pages that the machine has but this process
//! may not use.
//!
//! Sources: Documentation/admin-guide/cgroup-v2.rst "HugeTLB",
//! Documentation/admin-guide/cgroup-v1/hugetlb.rst.

use std::path::{Path, PathBuf};

use crate::size::format_option;
use crate::sysfs::{self, Roots, SysfsError};

/// The tightest limit on pages of one size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CgroupLimit {
    /// Bytes of one page.
    pub page_size: u64,
    /// Bytes that the group may use.
    pub max: u64,
    /// The file with the limit.
    pub path: PathBuf,
}

/// The tightest limit of each page size, in this process's groups and all above them. No entry
/// means that no limit is visible: inside a container the groups above are hidden, and their limits
/// show only when mapping fails.
pub(crate) fn read_limits(roots: &Roots, page_sizes: &[u64]) -> Result<Vec<CgroupLimit>, SysfsError> {
    let groups = sysfs::read_if_present(&roots.proc.join("self/cgroup"))?.unwrap_or_default();
    let mut limits: Vec<CgroupLimit> = Vec::new();
    for folder in groups.lines().flat_map(|line| folders(roots, line)) {
        for &page_size in page_sizes {
            for path in files(&folder, page_size) {
                let Some(max) = read_limit(&path)? else { continue };
                match limits.iter_mut().find(|limit| limit.page_size == page_size) {
                    Some(tightest) if tightest.max <= max => {}
                    Some(tightest) => *tightest = CgroupLimit { page_size, max, path },
                    None => limits.push(CgroupLimit { page_size, max, path }),
                }
            }
        }
    }
    Ok(limits)
}

/// The folders for one line of /proc/self/cgroup, from the group up to the root: `0::/a/b` is
/// version 2, `9:hugetlb:/a/b` version 1.
fn folders(roots: &Roots, line: &str) -> Vec<PathBuf> {
    let mut fields = line.splitn(3, ':').skip(1);
    let (Some(controllers), Some(group)) = (fields.next(), fields.next()) else {
        return Vec::new();
    };
    let mounts = roots.sys.join("fs/cgroup");
    let group = Path::new(group.trim_start_matches('/'));
    let hierarchies = match controllers {
        "" => vec![mounts.clone(), mounts.join("unified")],
        names if names.split(',').any(|name| name == "hugetlb") => vec![mounts.join("hugetlb")],
        _ => Vec::new(),
    };
    hierarchies.iter().flat_map(|hierarchy| group.ancestors().map(|group| hierarchy.join(group))).collect()
}

/// The limits charged at the first touch of a page, and at the reservation by a mapping; version 2
/// and version 1 names.
fn files(folder: &Path, page_size: u64) -> [PathBuf; 4] {
    let size = format_option(page_size);
    ["max", "rsvd.max", "limit_in_bytes", "rsvd.limit_in_bytes"]
        .map(|name| folder.join(format!("hugetlb.{size}B.{name}")))
}

/// `None` if there is no file or no limit. Version 1 writes "no limit" as the largest page count in
/// bytes.
fn read_limit(path: &Path) -> Result<Option<u64>, SysfsError> {
    const VERSION_1_UNLIMITED: u64 = 1 << 62;
    let Some(text) = sysfs::read_if_present(path)? else {
        return Ok(None);
    };
    if text.trim() == "max" {
        return Ok(None);
    }
    Ok(Some(sysfs::read_number(path)?).filter(|max| *max < VERSION_1_UNLIMITED))
}
