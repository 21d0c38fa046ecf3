//! What books take, and what the machine has left for this process: by its free memory, by the control groups that the
//! process is in, by its own limit. Linux gives memory that it does not have, and ends a process when it is used; so it
//! is asked for before.

use std::fmt;
use std::fs;
use std::path::Path;

use crate::error::Error;

/// Memory that can be taken, and what sets the bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Left {
    bytes: u128,
    bound: String,
}

/// A number of bytes in words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bytes(pub(crate) u128);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bytes @ 0..1_000_000 => write!(f, "{} kB", bytes.div_ceil(1_000)),
            bytes @ 1_000_000..10_000_000_000 => write!(f, "{} MB", bytes / 1_000_000),
            bytes => write!(f, "{}.{} GB", bytes / 1_000_000_000, bytes / 100_000_000 % 10),
        }
    }
}

/// Says what the books of `channels` channels take, with `each` bytes for one, or refuses what the machine has not.
pub(crate) fn check(channels: usize, each: u128) -> Result<String, Error> {
    check_under(Path::new("/"), channels, each)
}

/// Whether one more channel of `each` bytes may be opened while the feed runs.
pub(crate) fn has_room(each: u128) -> bool {
    left(Path::new("/")).is_none_or(|left| each <= left.bytes)
}

fn check_under(root: &Path, channels: usize, each: u128) -> Result<String, Error> {
    let sum = each.saturating_mul(channels as u128);
    let plural = if channels == 1 { "" } else { "s" };
    let what = format!("the books of {channels} channel{plural} take {}, {} each", Bytes(sum), Bytes(each));
    match left(root) {
        Some(Left { bytes, bound }) if sum > bytes => Err(Error::Failed(format!(
            "{what}, and {} are left ({bound}): lower instruments, orders and levels in [books] of the configuration, or give \
             some of the channels to another machine",
            Bytes(bytes)
        ))),
        _ => Ok(what),
    }
}

/// The narrowest of all bounds; `None` where the system tells none.
fn left(root: &Path) -> Option<Left> {
    let groups = groups_left(root);
    [machine_left(root), process_left(root)].into_iter().flatten().chain(groups).min_by_key(|left| left.bytes)
}

/// What the kernel says can be taken without swapping.
fn machine_left(root: &Path) -> Option<Left> {
    let bytes = kilobytes(&read(root, "proc/meminfo")?, "MemAvailable:")?;
    Some(Left { bytes, bound: "MemAvailable of /proc/meminfo".into() })
}

/// What the limit of address space leaves.
fn process_left(root: &Path) -> Option<Left> {
    let limits = read(root, "proc/self/limits")?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max address space"))?;
    let limit: u128 = line.split_whitespace().next()?.parse().ok()?;
    let used = kilobytes(&read(root, "proc/self/status")?, "VmSize:")?;
    Some(Left { bytes: limit.saturating_sub(used), bound: "the limit of address space, ulimit -v".into() })
}

/// What each control group leaves that the process is in, up to the outermost.
fn groups_left(root: &Path) -> Vec<Left> {
    let groups = read(root, "proc/self/cgroup").unwrap_or_default();
    groups.lines().flat_map(|line| group_left(root, line)).collect()
}

/// A line is `0::/path` in version 2, `number:controllers:/path` in version 1.
fn group_left(root: &Path, line: &str) -> Vec<Left> {
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
        let file =
            |name: &str| read(root, &format!("{mount}{}/{name}", group.display().to_string().trim_end_matches('/')));
        // "max" is no number, and no limit.
        let limit = number(file(limit)?)?;
        // Pages of files go where memory is wanted.
        let stat = file("memory.stat").unwrap_or_default();
        let cached: u128 = field(&stat, "inactive_file").and_then(|text| text.parse().ok()).unwrap_or(0);
        let used = number(file(used)?)?.saturating_sub(cached);
        Some(Left { bytes: limit.saturating_sub(used), bound: format!("the control group {}", group.display()) })
    };
    Path::new(path).ancestors().filter_map(of_group).collect()
}

fn read(root: &Path, path: &str) -> Option<String> {
    fs::read_to_string(root.join(path)).ok()
}

/// What stands behind `name` in its line.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next())
}

fn kilobytes(text: &str, name: &str) -> Option<u128> {
    field(text, name)?.parse::<u128>().ok().map(|kilobytes| kilobytes * 1024)
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    const GB: u128 = 1_000_000_000;

    /// A machine that is files, 8 GB of it free.
    fn machine(files: &[(&str, &str)]) -> TempDir {
        let root = tempfile::tempdir().unwrap();
        let usual = [("proc/meminfo", "MemTotal: 16000000 kB\nMemAvailable:    7812500 kB\n")];
        for (path, text) in usual.iter().chain(files) {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    fn refused(files: &[(&str, &str)], each: u128) -> String {
        check_under(machine(files).path(), 200, each).unwrap_err().to_string()
    }

    #[test]
    fn sum_is_said_and_refused_where_the_machine_has_not_so_much() {
        let machine = machine(&[]);
        assert_eq!(
            check_under(machine.path(), 1, 4 * GB).unwrap(),
            "the books of 1 channel take 4000 MB, 4000 MB each"
        );
        let refused = check_under(machine.path(), 200, GB).unwrap_err().to_string();
        assert!(refused.contains("the books of 200 channels take 200.0 GB, 1000 MB each"), "{refused}");
        assert!(refused.contains("8000 MB are left (MemAvailable of /proc/meminfo)"), "{refused}");
        assert!(refused.contains("lower instruments, orders and levels in [books]"), "{refused}");
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
        let said = refused(&inner, GB / 100);
        assert!(said.contains("1000 MB are left (the control group /trading)"), "{said}");
        let first = [
            ("proc/self/cgroup", "4:cpu,memory:/feed\n"),
            ("sys/fs/cgroup/memory/feed/memory.limit_in_bytes", "1000000000\n"),
            ("sys/fs/cgroup/memory/feed/memory.usage_in_bytes", "1\n"),
        ];
        assert!(refused(&first, GB).contains("999 MB are left (the control group /feed)"));
    }

    #[test]
    fn limit_of_address_space_is_asked() {
        let limits = "Limit   Soft Limit Hard Limit Units\nMax address space  2000000000  unlimited  bytes\n";
        let files = [("proc/self/limits", limits), ("proc/self/status", "VmPeak: 9 kB\nVmSize:  976562 kB\n")];
        assert!(refused(&files, GB).contains("are left (the limit of address space, ulimit -v)"));
        let unlimited = [("proc/self/limits", "Max address space  unlimited unlimited bytes\n"), files[1]];
        assert!(refused(&unlimited, GB).contains("MemAvailable"));
    }

    #[test]
    fn system_that_tells_nothing_refuses_nothing() {
        let root = tempfile::tempdir().unwrap();
        assert!(check_under(root.path(), 1, u128::MAX).is_ok());
    }
}
