//! The memory this process may still allocate: bounded by the machine's free memory, by the
//! process's control groups and by its own limit. Linux grants more memory than it has, and kills a
//! process once the memory is used; so callers check this before a large allocation.

use std::path::Path;

use super::machine::Machine;

/// Memory that can be allocated, and its bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryLeft {
    /// Bytes that can be allocated.
    pub bytes: u128,
    /// The source of the bound, in words.
    pub bound: String,
}

impl Machine {
    /// The narrowest of all bounds; `None` if the system reports none.
    pub fn memory_left(&self) -> Option<MemoryLeft> {
        let bounds = [self.free_memory(), self.address_space_left()];
        bounds.into_iter().flatten().chain(self.groups_left()).min_by_key(|left| left.bytes)
    }

    /// The memory that is available without swapping, by the kernel's estimate.
    fn free_memory(&self) -> Option<MemoryLeft> {
        let bytes = kilobytes(&self.read("proc/meminfo")?, "MemAvailable:")?;
        Some(MemoryLeft { bytes, bound: "MemAvailable of /proc/meminfo".into() })
    }

    /// The memory left by the limit of the address space.
    fn address_space_left(&self) -> Option<MemoryLeft> {
        let limits = self.read("proc/self/limits")?;
        let line = limits.lines().find_map(|line| line.strip_prefix("Max address space"))?;
        let limit: u128 = line.split_whitespace().next()?.parse().ok()?;
        let used = kilobytes(&self.read("proc/self/status")?, "VmSize:")?;
        let bound = "the limit of address space, ulimit -v".into();
        Some(MemoryLeft { bytes: limit.saturating_sub(used), bound })
    }

    /// The memory left by each control group of the process, up to the outermost.
    fn groups_left(&self) -> Vec<MemoryLeft> {
        let groups = self.read("proc/self/cgroup").unwrap_or_default();
        groups.lines().flat_map(|line| self.group_left(line)).collect()
    }

    /// A line is `0::/path` in version 2, `number:controllers:/path` in version 1.
    fn group_left(&self, line: &str) -> Vec<MemoryLeft> {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { return Vec::new() };
        let (mount, limit, used) = match controllers {
            "" => ("sys/fs/cgroup", "memory.max", "memory.current"),
            _ if controllers.split(',').any(|controller| controller == "memory") => {
                ("sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes")
            }
            _ => return Vec::new(),
        };
        let number = |text: String| text.trim().parse::<u128>().ok();
        let of_group = |group: &Path| {
            let folder = format!("{mount}{}", group.display().to_string().trim_end_matches('/'));
            let file = |name: &str| self.read(&format!("{folder}/{name}"));
            // "max" is not a number, and means no limit.
            let limit = number(file(limit)?)?;
            // The kernel reclaims page cache when memory is needed.
            let stat = file("memory.stat").unwrap_or_default();
            let cached: u128 = field(&stat, "inactive_file").and_then(|text| text.parse().ok()).unwrap_or(0);
            let used = number(file(used)?)?.saturating_sub(cached);
            let bound = format!("the control group {}", group.display());
            Some(MemoryLeft { bytes: limit.saturating_sub(used), bound })
        };
        Path::new(path).ancestors().filter_map(of_group).collect()
    }
}

/// The value after `name` on its line.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next())
}

fn kilobytes(text: &str, name: &str) -> Option<u128> {
    field(text, name)?.parse::<u128>().ok().map(|kilobytes| kilobytes * 1024)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a panic here is the report

    use std::fs;

    use super::*;

    const GB: u128 = 1_000_000_000;

    /// The memory left on a machine made of files, 8 GB of it free.
    fn left(files: &[(&str, &str)]) -> (u128, String) {
        let root = tempfile::tempdir().unwrap();
        let usual = [("proc/meminfo", "MemTotal: 16000000 kB\nMemAvailable:    7812500 kB\n")];
        for (path, text) in usual.iter().chain(files) {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let MemoryLeft { bytes, bound } = Machine::at(root.path()).memory_left().unwrap();
        (bytes, bound)
    }

    #[test]
    fn what_can_be_taken_without_swapping_is_left() {
        assert_eq!(left(&[]), (8 * GB, "MemAvailable of /proc/meminfo".into()));
    }

    #[test]
    fn control_group_is_asked_and_the_ones_around_it() {
        let inner = [
            ("proc/self/cgroup", "0::/trading/feed\n"),
            ("sys/fs/cgroup/trading/feed/memory.max", "max\n"),
            ("sys/fs/cgroup/trading/memory.max", "3000000000\n"),
            ("sys/fs/cgroup/trading/memory.current", "2500000000\n"),
            ("sys/fs/cgroup/trading/memory.stat", "anon 5\ninactive_file 500000000\n"),
        ];
        assert_eq!(left(&inner), (GB, "the control group /trading".into()));
        let first = [
            ("proc/self/cgroup", "4:cpu,memory:/feed\n"),
            ("sys/fs/cgroup/memory/feed/memory.limit_in_bytes", "1000000000\n"),
            ("sys/fs/cgroup/memory/feed/memory.usage_in_bytes", "1\n"),
        ];
        assert_eq!(left(&first), (GB - 1, "the control group /feed".into()));
    }

    #[test]
    fn limit_of_address_space_is_asked() {
        let limits = "Limit   Soft Limit Hard Limit Units\nMax address space  2000000000  unlimited  bytes\n";
        let files = [("proc/self/limits", limits), ("proc/self/status", "VmPeak: 9 kB\nVmSize:  976562 kB\n")];
        assert!(left(&files).1.contains("the limit of address space, ulimit -v"));
        let unlimited = [("proc/self/limits", "Max address space  unlimited unlimited bytes\n"), files[1]];
        assert!(left(&unlimited).1.contains("MemAvailable"));
    }

    #[test]
    fn system_that_tells_nothing_names_no_bound() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(Machine::at(root.path()).memory_left(), None);
    }
}
