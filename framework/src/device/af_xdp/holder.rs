//! The holder of an interface or queue that we cannot open: the processes whose descriptors are XDP
//! links on it, or AF_XDP sockets in its network namespace. It is used only after set-up has
//! failed.

use std::fs;
use std::path::Path;

use super::program::bpf;
use super::rings::sys;
use crate::counters::printable;

/// The text for a program without a known holder.
pub(super) const NO_KNOWN_HOLDER: &str = "set without a process that keeps it, or kept where we may not look (`ip link` shows it; `ip \
                                 link set dev INTERFACE xdp off` removes one that nobody keeps)";

/// The processes that hold the XDP program with this id, in words.
pub(super) fn of_program(program: Option<u32>) -> String {
    let holders = holders(program);
    if holders.is_empty() {
        return NO_KNOWN_HOLDER.into();
    }
    format!("kept by {}", holders.join(" and "))
}

/// The holder of a queue in the calling thread's network namespace: the other processes with AF_XDP
/// sockets there. The kernel reports the queue of a socket only through a module that few machines
/// have (xsk_diag), so this is a guess, and the text says so.
pub(super) fn of_queue() -> String {
    let namespace = fs::read_link("/proc/thread-self/ns/net").ok();
    let holders = processes_that(|pid, process| {
        pid != std::process::id() && is_in(process, namespace.as_deref()) && has_xdp_socket(process)
    });
    if holders.is_empty() {
        format!("of this process ({}) or of one that is not to be seen from here", std::process::id())
    } else {
        format!("probably of {}", holders.join(" or "))
    }
}

fn holders(program: Option<u32>) -> Vec<String> {
    let links: Vec<u32> =
        bpf::xdp_links().iter().filter(|link| Some(link.program) == program).map(|link| link.id).collect();
    processes_that(|_, process| holds_one_of(process, &links))
}

/// The processes for which `is_one` holds, in words.
fn processes_that(is_one: impl Fn(u32, &Path) -> bool) -> Vec<String> {
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let numbered = processes.flatten().filter_map(|process| {
        let pid = process.file_name().to_str()?.parse::<u32>().ok()?;
        is_one(pid, &process.path()).then(|| describe(pid, &process.path()))
    });
    numbered.collect()
}

/// Whether one of the process's threads is in the namespace.
fn is_in(process: &Path, namespace: Option<&Path>) -> bool {
    let Ok(threads) = fs::read_dir(process.join("task")) else { return false };
    threads.flatten().any(|thread| fs::read_link(thread.path().join("ns/net")).ok().as_deref() == namespace)
}

fn has_xdp_socket(process: &Path) -> bool {
    let Ok(descriptors) = fs::read_dir(process.join("fd")) else { return false };
    descriptors.flatten().any(|descriptor| sys::socket_protocol(&descriptor.path()).as_deref() == Some(b"XDP"))
}

fn describe(pid: u32, process: &Path) -> String {
    if pid == std::process::id() {
        return format!("this process ({pid})");
    }
    let command = fs::read_to_string(process.join("comm")).unwrap_or_default();
    // The name may come from another user, so it is escaped.
    format!("process {pid} ({})", printable(command.trim()))
}

fn holds_one_of(process: &Path, links: &[u32]) -> bool {
    let Ok(descriptors) = fs::read_dir(process.join("fdinfo")) else { return false };
    descriptors.flatten().any(|descriptor| {
        let Ok(info) = fs::read_to_string(descriptor.path()) else { return false };
        link_id(&info).is_some_and(|id| links.contains(&id))
    })
}

/// The link behind a descriptor, from /proc/PID/fdinfo.
fn link_id(info: &str) -> Option<u32> {
    info.lines().find_map(|line| line.strip_prefix("link_id:"))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_is_read_from_the_kernels_words() {
        assert_eq!(link_id("pos:\t0\nlink_type:\txdp\nlink_id:\t17\nprog_id:\t4\n"), Some(17));
        assert_eq!(link_id("pos:\t0\n"), None);
    }
}
