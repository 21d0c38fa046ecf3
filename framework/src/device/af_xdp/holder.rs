//! Who has the interface or the queue that we cannot have: the processes whose descriptors are XDP links on it. Only asked when
//! set-up has failed.

use std::fs;
use std::path::Path;

use super::bpf;

/// The processes that hold the XDP program with this id, in words.
pub(super) fn of_program(program: Option<u32>) -> String {
    let holders = holders(program);
    if holders.is_empty() {
        return "set without a process that keeps it, or kept where we may not look (`ip link` shows it; `ip link set dev \
                INTERFACE xdp off` removes one that nobody keeps)"
            .into();
    }
    format!("kept by {}", holders.join(" and "))
}

/// The same for a queue. Which process has the socket the kernel does not tell, so it is a guess, and says so.
pub(super) fn of_queue(program: Option<u32>) -> String {
    let holders = holders(program);
    if holders.is_empty() {
        "of a process that is not to be seen from here".into()
    } else {
        format!("probably of {}", holders.join(" or "))
    }
}

fn holders(program: Option<u32>) -> Vec<String> {
    let links: Vec<u32> =
        bpf::xdp_links().iter().filter(|link| Some(link.program) == program).map(|link| link.id).collect();
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let mut holders = Vec::new();
    for process in processes.flatten() {
        let name = process.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        if holds_one_of(&process.path(), &links) {
            holders.push(describe(pid, &process.path()));
        }
    }
    holders
}

fn describe(pid: u32, process: &Path) -> String {
    if pid == std::process::id() {
        return format!("this process ({pid})");
    }
    let command = fs::read_to_string(process.join("comm")).unwrap_or_default();
    format!("process {pid} ({})", command.trim())
}

fn holds_one_of(process: &Path, links: &[u32]) -> bool {
    let Ok(descriptors) = fs::read_dir(process.join("fdinfo")) else { return false };
    descriptors.flatten().any(|descriptor| {
        let Ok(info) = fs::read_to_string(descriptor.path()) else { return false };
        link_id(&info).is_some_and(|id| links.contains(&id))
    })
}

/// The link behind a descriptor, as /proc/PID/fdinfo tells it.
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
