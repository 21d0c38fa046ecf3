//! Checks the kernel's own sockets, which receive the frames that our rules leave to the kernel:
//! their buffers, and the kernel's handling of multicast.

use wirepath::worker::topology::Finding;

use super::finding::{good, note, warning};
use super::inspected::Inspected;

/// Bytes of events that the mirror of the kernel's routes requests (`EVENTS_LEN` of
/// `worker::kernel`).
const RMEM_MAX: u64 = 4 << 20;
/// Bytes of a socket that requests none: some 400 datagrams of 1400 bytes, as the kernel counts
/// them.
const RMEM_DEFAULT: u64 = 1 << 20;
/// Strict: a packet whose answer would leave by another interface is dropped
/// (Documentation/networking/ip-sysctl.rst).
const STRICT: u32 = 1;
/// The default number of groups of a socket (`IP_MAX_MEMBERSHIPS`).
const MEMBERSHIPS_DEFAULT: u32 = 20;

pub(super) fn buffers(inspected: &Inspected) -> Vec<Finding> {
    let mut findings = Vec::new();
    let rmem = |name: &str| inspected.root.number::<u64>(&format!("proc/sys/net/core/{name}"));
    if let Some(max) = rmem("rmem_max").filter(|&max| max < RMEM_MAX) {
        findings.extend(warning(
            format!("receive buffers are cut to {max} bytes: the mirror of routes, and kernel sockets, overrun sooner"),
            format!("`sysctl -w net.core.rmem_max={RMEM_MAX}`"),
        ));
    }
    if let Some(default) = rmem("rmem_default").filter(|&default| default < RMEM_DEFAULT) {
        findings.extend(note(
            format!("a kernel socket without SO_RCVBUF has {default} bytes: a burst overruns it"),
            format!("`sysctl -w net.core.rmem_default={RMEM_DEFAULT}`"),
        ));
    }
    match rmem("rmem_max") {
        Some(max) if findings.is_empty() => good(format!("receive buffers may have {max} bytes")),
        _ => findings,
    }
}

/// Busy polling of all kernel sockets: it takes CPU time of every program that waits in poll(2).
pub(super) fn busy_poll(inspected: &Inspected) -> Vec<Finding> {
    let value = |name: &str| inspected.root.number::<u32>(&format!("proc/sys/net/core/{name}"));
    let (Some(poll), Some(read)) = (value("busy_poll"), value("busy_read")) else { return Vec::new() };
    if poll == 0 && read == 0 {
        return good("kernel sockets do not poll unless they ask to");
    }
    note(
        format!("every kernel socket polls the NIC, for {} µs a call: our workers do not need it", poll.max(read)),
        "`sysctl -w net.core.busy_poll=0 net.core.busy_read=0`, and SO_BUSY_POLL for sockets that want it",
    )
}

/// Reverse path filtering applies to packets that the kernel receives; frames of our rules bypass
/// it. The larger of `all` and the interface's own counts.
pub(super) fn rp_filter(inspected: &Inspected) -> Vec<Finding> {
    let (scope, value) = effective(inspected, "rp_filter");
    match value {
        None => Vec::new(),
        Some(STRICT) => warning(
            format!(
                "rp_filter is strict ({scope}): the kernel drops multicast whose sender it would answer by another interface"
            ),
            format!("`sysctl -w net.ipv4.conf.{scope}.rp_filter=2`"),
        ),
        Some(_) => good(format!("rp_filter is not strict ({scope})")),
    }
}

/// The IGMP version of the kernel: 0 follows the querier.
pub(super) fn igmp_version(inspected: &Inspected) -> Vec<Finding> {
    let (scope, value) = effective(inspected, "force_igmp_version");
    match value {
        None => Vec::new(),
        Some(0) => good(format!("the kernel speaks the IGMP version of the querier ({scope})")),
        Some(version @ (1 | 2)) => warning(
            format!("the kernel is held to IGMPv{version} ({scope}): its source filters reach no router"),
            format!("`sysctl -w net.ipv4.conf.{scope}.force_igmp_version=0`"),
        ),
        Some(version) => note(
            format!("the kernel is held to IGMPv{version} ({scope}): a querier of an older version does not hear it"),
            format!("`sysctl -w net.ipv4.conf.{scope}.force_igmp_version=0`"),
        ),
    }
}

/// The number of groups that a kernel socket may join, where the kernel's membership is used
/// instead of ours.
pub(super) fn igmp_memberships(inspected: &Inspected) -> Vec<Finding> {
    match inspected.root.number::<u32>("proc/sys/net/ipv4/igmp_max_memberships") {
        None => Vec::new(),
        Some(max) if max > MEMBERSHIPS_DEFAULT => good(format!("a kernel socket may join {max} groups")),
        Some(max) => note(
            format!(
                "a kernel socket may join no more than {max} groups (ordinary programs; igmp = kernel takes a socket for each)"
            ),
            "`sysctl -w net.ipv4.igmp_max_memberships=1024`",
        ),
    }
}

/// The larger of the interface's value and the value of `all`, and the name of the one that has to
/// be changed.
fn effective<'a>(inspected: &'a Inspected, name: &str) -> (&'a str, Option<u32>) {
    let value = |scope: &str| inspected.root.number::<u32>(&format!("proc/sys/net/ipv4/conf/{scope}/{name}"));
    let Some(nic) = &inspected.nic else { return ("all", value("all")) };
    let own = value(nic.name());
    let all = value("all");
    // A larger (looser) filter of the interface overrides a strict one of `all`; a version does
    // not.
    if name == "force_igmp_version" && all.is_some_and(|all| all != 0) {
        ("all", all)
    } else {
        (nic.name(), own.max(all))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{finds, finds_on, nic};
    use super::*;

    #[test]
    fn small_buffers_are_told_with_the_numbers_to_set() {
        let (max, default) = ("proc/sys/net/core/rmem_max", "proc/sys/net/core/rmem_default");
        finds(buffers, &[(max, "212992"), (default, "2097152")], "warning", "212992", "net.core.rmem_max=4194304");
        finds(buffers, &[(max, "4194304"), (default, "212992")], "note", "212992", "net.core.rmem_default=1048576");
        finds(buffers, &[(max, "4194304"), (default, "4194304")], "good", "4194304", "");
    }

    #[test]
    fn polling_by_all_sockets_is_a_note() {
        let files = |poll| [("proc/sys/net/core/busy_poll", poll), ("proc/sys/net/core/busy_read", "0")];
        finds(busy_poll, &files("50"), "note", "50 µs", "busy_poll=0");
        finds(busy_poll, &files("0"), "good", "unless they ask", "");
    }

    #[test]
    fn stricter_of_all_and_one_counts_and_the_one_is_mended() {
        let (all, one) = ("proc/sys/net/ipv4/conf/all/rp_filter", "proc/sys/net/ipv4/conf/eth1/rp_filter");
        finds_on(nic(), rp_filter, &[(all, "1"), (one, "0")], "warning", "strict", "net.ipv4.conf.eth1.rp_filter=2");
        finds_on(nic(), rp_filter, &[(all, "1"), (one, "2")], "good", "not strict", "");
        finds(rp_filter, &[(all, "1")], "warning", "strict (all)", "net.ipv4.conf.all.rp_filter=2");
    }

    #[test]
    fn held_versions_of_igmp_are_told_where_they_are_held() {
        let (all, one) =
            ("proc/sys/net/ipv4/conf/all/force_igmp_version", "proc/sys/net/ipv4/conf/eth1/force_igmp_version");
        finds_on(
            nic(),
            igmp_version,
            &[(all, "0"), (one, "2")],
            "warning",
            "IGMPv2 (eth1)",
            "conf.eth1.force_igmp_version=0",
        );
        finds_on(
            nic(),
            igmp_version,
            &[(all, "3"), (one, "2")],
            "note",
            "IGMPv3 (all)",
            "conf.all.force_igmp_version=0",
        );
        finds_on(nic(), igmp_version, &[(all, "0"), (one, "0")], "good", "querier", "");
    }

    #[test]
    fn few_groups_a_socket_are_a_note() {
        let file = "proc/sys/net/ipv4/igmp_max_memberships";
        finds(igmp_memberships, &[(file, "20")], "note", "20 groups", "igmp_max_memberships=1024");
        finds(igmp_memberships, &[(file, "2048")], "good", "2048", "");
    }
}
