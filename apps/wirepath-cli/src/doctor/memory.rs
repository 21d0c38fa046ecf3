//! Memory: hugepages for the pools, the limit on locking, and reclaim of pages.

use std::path::Path;

use hugepages::{Limit, Machine, Roots, TWO_MIB, TransparentMode, format_size};
use wirepath::worker::topology::Finding;

use super::finding::{good, note, warning};
use super::inspected::Inspected;
use super::kernel::effective;
use crate::capabilities::IPC_LOCK;

/// Bytes that a worker's pool and its process lock: some ten thousand buffers of 4 KiB, and as much
/// again for books.
const LOCKED_MIN: u64 = 64 << 20;
/// Bytes that must be left in a control group, so that nothing is reclaimed during a run.
const ROOM_MIN: u64 = 256 << 20;
/// A version 1 group without a limit reports the largest number of pages instead.
const UNLIMITED: u64 = 1 << 60;

/// Whether the process can lock its memory, so that no page is reclaimed.
pub(super) fn locked(inspected: &Inspected) -> Vec<Finding> {
    if effective(inspected).is_some_and(|effective| effective >> IPC_LOCK & 1 != 0) {
        return good("memory can be locked without a limit, by cap_ipc_lock");
    }
    let Some(Limit { soft, .. }) = discover(inspected).map(|machine| machine.memlock) else { return Vec::new() };
    match soft.filter(|&soft| soft < LOCKED_MIN) {
        None => good("enough memory can be locked"),
        Some(soft) => warning(
            format!(
                "no more than {} of memory can be locked: beyond that the kernel may take pages away",
                format_size(soft)
            ),
            "`ulimit -l unlimited` (LimitMEMLOCK=infinity in a systemd unit), or `setcap cap_ipc_lock+ep PROGRAM`",
        ),
    }
}

/// Whether there are free pages of 2 MiB for the pools, on the interface's node where it has one.
pub(super) fn hugepages(inspected: &Inspected) -> Vec<Finding> {
    let machine = match Machine::discover(&Roots::below(&inspected.root.path(""))) {
        Ok(machine) => machine,
        Err(error) => return warning(error.to_string(), "`hugepage-setup plan` says what it can read"),
    };
    if machine.pools.is_empty() {
        return note("the kernel has no hugepages", "use a kernel that is built with CONFIG_HUGETLBFS=y");
    }
    let node = inspected.nic.as_ref().and_then(|nic| nic.interface.node).filter(|_| machine.nodes.len() > 1);
    let pool = machine.pool(TWO_MIB, node).copied().unwrap_or_default();
    let (place, option) =
        node.map_or_else(Default::default, |node| (format!(" on node {node}"), format!(" --node {node}")));
    let remedy = format!("`hugepage-setup apply --size 64M{option}`, with --persist to keep them");
    if pool.total == 0 {
        let what =
            format!("no hugepages are reserved{place}: pools fall back to small pages, which cost a TLB miss a packet");
        return warning(what, remedy);
    }
    if pool.available() == 0 {
        return warning(format!("all {} hugepages of 2 MiB{place} are in use", pool.total), remedy);
    }
    good(format!("{} of {} hugepages of 2 MiB{place} are free", pool.available(), pool.total))
}

/// Transparent hugepages: with madvise they help, otherwise they cause pauses.
pub(super) fn transparent(inspected: &Inspected) -> Vec<Finding> {
    let file = "/sys/kernel/mm/transparent_hugepage/enabled";
    match discover(inspected).map(|machine| machine.transparent) {
        Some(TransparentMode::Always) => warning(
            "transparent hugepages are made of any memory: the kernel stops threads while it moves their pages",
            format!("`echo madvise > {file}`"),
        ),
        Some(TransparentMode::Never) => note(
            "transparent hugepages are off: where no hugepages are reserved, pools stay on small pages",
            format!("`echo madvise > {file}`"),
        ),
        Some(TransparentMode::OnAdvice) => good("transparent hugepages are made on advice only"),
        Some(TransparentMode::Absent) | None => Vec::new(),
    }
}

/// The memory limit of the control group, beyond which its pages are reclaimed or its processes
/// killed.
pub(super) fn limit(inspected: &Inspected) -> Vec<Finding> {
    let Some(Granted { group, max, used }) = tightest(inspected) else {
        return good("no control group limits the memory");
    };
    let room = max.saturating_sub(used);
    let words = format!("the control group {group} has {} of memory left of {}", in_mib(room), in_mib(max));
    if room < ROOM_MIN {
        let remedy =
            "start it with `systemd-run --scope -p MemoryMax=infinity COMMAND`, or raise the limit of the group";
        return warning(format!("{words}: at the limit pages are reclaimed and processes killed"), remedy);
    }
    good(words)
}

/// A control group's memory in bytes.
struct Granted {
    group: String,
    max: u64,
    used: u64,
}

/// The group with the least room left among this process's group and its ancestors.
fn tightest(inspected: &Inspected) -> Option<Granted> {
    let cgroups = inspected.root.read("proc/self/cgroup")?;
    let mut granted = Vec::new();
    for line in cgroups.lines() {
        // "0::/path" for version 2, "4:memory:/path" for version 1 (cgroups(7), /proc/pid/cgroup).
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let (mount, max, used) = match controllers {
            "" => ("sys/fs/cgroup", "memory.max", "memory.current"),
            "memory" => ("sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
            _ => continue,
        };
        for group in Path::new(path.trim_start_matches('/')).ancestors() {
            let folder = format!("{mount}/{}", group.display());
            let number = |file: &str| inspected.root.number::<u64>(&format!("{folder}/{file}"));
            // "max" is not a number, and means no limit.
            if let Some(max) = number(max).filter(|&max| max < UNLIMITED) {
                granted.push(Granted { group: format!("/{}", group.display()), max, used: number(used).unwrap_or(0) });
            }
        }
    }
    granted.into_iter().min_by_key(|granted| granted.max.saturating_sub(granted.used))
}

fn in_mib(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}

fn discover(inspected: &Inspected) -> Option<Machine> {
    Machine::discover(&Roots::below(&inspected.root.path(""))).ok()
}

#[cfg(test)]
mod tests {
    use super::super::inspected::Nic;
    use super::super::testing::{finds, finds_on};
    use super::*;
    use crate::interface::Interface;

    const POOL: &str = "sys/kernel/mm/hugepages/hugepages-2048kB";
    const LIMITS: &str = "proc/self/limits";

    fn pool<'a>(names: &'a [String; 2], total: &'a str, free: &'a str) -> [(&'a str, &'a str); 2] {
        [(&names[0], total), (&names[1], free)]
    }

    fn names(folder: &str) -> [String; 2] {
        ["nr_hugepages", "free_hugepages"].map(|file| format!("{folder}/{file}"))
    }

    #[test]
    fn little_locked_memory_is_a_warning_unless_the_capability_is_there() {
        let limits = "Max locked memory         8388608              8388608              bytes\n";
        finds(locked, &[(LIMITS, limits)], "warning", "no more than 8 MiB", "ulimit -l unlimited");
        let able = ("proc/self/status", "CapEff:\t0000000000004000\n");
        finds(locked, &[(LIMITS, limits), able], "good", "cap_ipc_lock", "");
        let limits = "Max locked memory         unlimited            unlimited            bytes\n";
        finds(locked, &[(LIMITS, limits)], "good", "enough", "");
    }

    #[test]
    fn hugepages_are_none_used_up_or_free() {
        let names = names(POOL);
        finds(hugepages, &[], "note", "no hugepages", "CONFIG_HUGETLBFS");
        finds(hugepages, &pool(&names, "0", "0"), "warning", "no hugepages are reserved", "hugepage-setup apply");
        finds(hugepages, &pool(&names, "16", "0"), "warning", "all 16", "hugepage-setup apply");
        finds(hugepages, &pool(&names, "16", "9"), "good", "9 of 16", "");
        finds(hugepages, &pool(&names, "many", "9"), "warning", "nr_hugepages holds", "hugepage-setup plan");
    }

    #[test]
    fn hugepages_of_the_interfaces_node_are_those_that_count() {
        let (all, near) = (names(POOL), names("sys/devices/system/node/node1/hugepages/hugepages-2048kB"));
        let mut files = [pool(&all, "16", "16"), pool(&near, "0", "0")].concat();
        files.extend([
            ("sys/devices/system/node/node0/cpulist", "0-1"),
            ("sys/devices/system/node/node1/cpulist", "2-3"),
        ]);
        let interface = Interface { name: "eth1".into(), node: Some(1), ..Interface::default() };
        let nic = Nic { interface, ..Nic::default() };
        finds_on(Some(nic), hugepages, &files, "warning", "reserved on node 1", "--node 1");
    }

    #[test]
    fn transparent_pages_are_best_on_advice() {
        let file = "sys/kernel/mm/transparent_hugepage/enabled";
        finds(transparent, &[(file, "[always] madvise never")], "warning", "stops threads", "echo madvise");
        finds(transparent, &[(file, "always madvise [never]")], "note", "off", "echo madvise");
        finds(transparent, &[(file, "always [madvise] never")], "good", "on advice", "");
    }

    #[test]
    fn tightest_group_counts_in_both_versions() {
        finds(limit, &[], "good", "no control group", "");
        let second = [
            ("proc/self/cgroup", "1:name=systemd:/\n0::/a/b\n"),
            ("sys/fs/cgroup/a/b/memory.max", "max"),
            ("sys/fs/cgroup/a/memory.max", "1073741824"),
            ("sys/fs/cgroup/a/memory.current", "1000000000"),
        ];
        finds(limit, &second, "warning", "/a has 70 MiB", "MemoryMax");
        let first = [
            ("proc/self/cgroup", "4:memory:/a\n"),
            ("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "1073741824"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712"),
        ];
        finds(limit, &first, "good", "1024 MiB of memory left of 1024 MiB", "");
    }
}
