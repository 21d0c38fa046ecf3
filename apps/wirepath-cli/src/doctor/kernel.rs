//! Checks the kernel: which parts of AF_XDP its version supports, and whether it permits us to use
//! them.

use wirepath::device::af_xdp::AfXdpConfig;
use wirepath::worker::topology::Finding;

use super::finding::{fault, good, note, warning};
use super::inspected::Inspected;
use crate::capabilities::missing_capabilities;

/// The first Linux with multi-buffer frames.
pub(super) const MULTI_BUFFER_SINCE: (u32, u32) = (6, 6);
/// Features of AF_XDP that versions before this lack, oldest first.
const MILESTONES: [(u32, u32, &str); 3] = [
    (5, 9, "has no XDP links, which remove our program when the process ends"),
    (6, 3, "does not tell what drivers can do"),
    (6, 6, "has no frames in several buffers, so that the MTU must fit one"),
];
/// The first of them is required.
const OLDEST: (u32, u32) = (5, 9);

pub(super) fn version(inspected: &Inspected) -> Vec<Finding> {
    let Some(release) = inspected.root.read("proc/sys/kernel/osrelease") else { return Vec::new() };
    let Some(version) = parse_version(&release) else {
        return note(format!("the kernel calls itself {release:?}"), "AF_XDP in full needs Linux 6.6 or later");
    };
    let Some((_, _, lacks)) = MILESTONES.iter().find(|(major, minor, _)| version < (*major, *minor)) else {
        return good(format!("Linux {release} has all of AF_XDP that is used"));
    };
    let what = format!("Linux {release} {lacks}");
    if version < OLDEST {
        fault(what, "use Linux 5.9 or later, best 6.6")
    } else {
        warning(what, "use Linux 6.6 or later")
    }
}

/// AF_XDP's line in the list of protocols, which any user may read.
pub(super) fn af_xdp(inspected: &Inspected) -> Vec<Finding> {
    let Some(protocols) = inspected.root.read("proc/net/protocols") else { return Vec::new() };
    if protocols.lines().any(|line| line.split_whitespace().next() == Some("XDP")) {
        return good("the kernel has AF_XDP sockets");
    }
    fault("the kernel has no AF_XDP sockets", "use one that is built with CONFIG_XDP_SOCKETS=y")
}

/// The capabilities of this process; a program that the same user starts in the same way has them
/// too.
pub(super) fn capabilities(inspected: &Inspected) -> Vec<Finding> {
    let Some(effective) = effective(inspected) else { return Vec::new() };
    let missing = missing_capabilities(effective);
    if missing.is_empty() {
        return good("this user may open AF_XDP ports");
    }
    fault(
        format!("this user may not open AF_XDP ports, for lack of {}", missing.join(", ")),
        format!("run programs as root, or once `setcap {}+ep PROGRAM`", AfXdpConfig::CAPABILITIES),
    )
}

/// The effective capabilities as a mask; `None` where the kernel does not report them.
pub(super) fn effective(inspected: &Inspected) -> Option<u64> {
    let status = inspected.root.read("proc/self/status")?;
    let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(mask.trim(), 16).ok()
}

/// Major and minor version of the kernel; `None` where it does not report them.
pub(super) fn running(inspected: &Inspected) -> Option<(u32, u32)> {
    parse_version(&inspected.root.read("proc/sys/kernel/osrelease")?)
}

/// Major and minor of `6.18.44-something`.
fn parse_version(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|letter: char| !letter.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::super::testing::finds;
    use super::*;

    const RELEASE: &str = "proc/sys/kernel/osrelease";
    const STATUS: &str = "proc/self/status";

    #[test]
    fn kernel_without_links_is_a_fault_and_an_older_than_best_a_warning() {
        finds(version, &[(RELEASE, "5.4.0-150-generic\n")], "fault", "no XDP links", "5.9 or later");
        finds(version, &[(RELEASE, "5.15.0\n")], "warning", "does not tell", "6.6");
        finds(version, &[(RELEASE, "6.5.9\n")], "warning", "several buffers", "6.6");
        finds(version, &[(RELEASE, "6.6\n")], "good", "all of AF_XDP", "");
        finds(version, &[(RELEASE, "mine\n")], "note", "mine", "6.6");
    }

    #[test]
    fn kernel_without_af_xdp_is_a_fault() {
        let protocols = "protocol  size sockets\nUDP 1 2\n";
        finds(af_xdp, &[("proc/net/protocols", protocols)], "fault", "no AF_XDP", "CONFIG_XDP_SOCKETS");
        finds(af_xdp, &[("proc/net/protocols", "XDP  1088 0\n")], "good", "AF_XDP", "");
    }

    #[test]
    fn missing_capabilities_are_named() {
        let words = "lack of cap_net_admin, cap_net_raw, cap_bpf, cap_perfmon";
        finds(capabilities, &[(STATUS, "CapEff:\t0000000000000000\n")], "fault", words, "setcap");
        finds(capabilities, &[(STATUS, "CapEff:\t0000008000001000\n")], "fault", "lack of cap_net_raw", "setcap");
        // CAP_SYS_ADMIN includes CAP_BPF and CAP_PERFMON.
        finds(capabilities, &[(STATUS, "CapEff:\t0000000000203000\n")], "good", "may open", "");
    }
}
