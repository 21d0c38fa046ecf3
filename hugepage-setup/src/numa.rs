//! NUMA nodes: the CPUs and memory of each, and the node of a CPU or a NIC.

use std::path::Path;

use crate::sysfs::{self, Machine, Memory, Pool, Roots, SysfsError};

/// One node of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its number, as in `numactl` and `/sys/devices/system/node/node<id>`.
    pub id: u32,
    /// Its CPUs in order. A node may have memory only.
    pub cpus: Vec<u32>,
    /// Its memory. A node may have CPUs only.
    pub memory: Memory,
    /// Its share of each hugepage pool, smallest page first.
    pub pools: Vec<Pool>,
}

/// The node that CPU `cpu` belongs to.
pub fn node_of_cpu(machine: &Machine, cpu: u32) -> Option<u32> {
    machine.nodes.iter().find(|node| node.cpus.contains(&cpu)).map(|node| node.id)
}

/// The node of network interface `name`. `None` for a virtual one, or if the firmware does not
/// report it (the kernel then writes -1).
///
/// # Errors
/// The kernel's file exists but is unreadable, or holds no number.
pub fn node_of_interface(roots: &Roots, name: &str) -> Result<Option<u32>, SysfsError> {
    let path = roots.sys.join("class/net").join(name).join("device/numa_node");
    let Some(text) = sysfs::read_if_present(&path)? else {
        return Ok(None);
    };
    match text.trim().parse::<i64>() {
        Ok(node) => Ok(u32::try_from(node).ok()),
        Err(_) => Err(SysfsError::Garbage(path, text)),
    }
}

/// All nodes below `/sys/devices/system/node`.
pub(crate) fn read_nodes(folder: &Path) -> Result<Vec<Node>, SysfsError> {
    let mut nodes = Vec::new();
    for name in sysfs::list(folder)? {
        if let Some(id) = name.strip_prefix("node").and_then(|id| id.parse().ok()) {
            nodes.push(read_node(&folder.join(&name), id)?);
        }
    }
    nodes.sort_by_key(|node| node.id);
    Ok(nodes)
}

fn read_node(folder: &Path, id: u32) -> Result<Node, SysfsError> {
    let cpulist = folder.join("cpulist");
    let text = sysfs::read_if_present(&cpulist)?.unwrap_or_default();
    let cpus = parse_cpulist(text.trim()).ok_or(SysfsError::Garbage(cpulist, text))?;
    let meminfo = sysfs::read_if_present(&folder.join("meminfo"))?.unwrap_or_default();
    let bytes = |key| sysfs::meminfo_bytes(&meminfo, key).unwrap_or(0);
    Ok(Node {
        id,
        cpus,
        // The kernel has no MemAvailable per node. Page cache and reclaimable slab can be dropped,
        // as in its own estimate.
        memory: Memory {
            total: bytes("MemTotal:"),
            available: bytes("MemFree:") + bytes("Active(file):") + bytes("Inactive(file):") + bytes("SReclaimable:"),
        },
        pools: sysfs::read_pools(&folder.join("hugepages"))?,
    })
}

/// `0-3,8,10-11`. An empty list is a node without CPUs.
fn parse_cpulist(text: &str) -> Option<Vec<u32>> {
    // More CPUs than Linux supports (NR_CPUS is 8192 at most): a range beyond it is not a CPU list.
    const CPUS_MAX: u32 = 8192;
    let mut cpus = Vec::new();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse::<u32>().ok()?, last.parse::<u32>().ok()?);
        if first > last || last >= CPUS_MAX {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_cpu_lists_are_none() {
        for text in ["a", "3-1", "1-", "0-99999999", "-"] {
            assert_eq!(parse_cpulist(text), None, "{text}");
        }
    }

    #[test]
    fn cpu_lists_have_ranges_and_single_cpus() {
        assert_eq!(parse_cpulist(""), Some(vec![]));
        assert_eq!(parse_cpulist("0-2,8,10-11"), Some(vec![0, 1, 2, 8, 10, 11]));
    }
}
