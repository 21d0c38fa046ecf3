//! Interrupts of the NIC: off the workers' cores, and without delay.

use wirepath::worker::topology::{CpuList, Finding};

use super::finding::{good, note, warning};
use super::inspected::Inspected;

/// A program that moves interrupts between cores.
pub(super) fn irqbalance(inspected: &Inspected) -> Vec<Finding> {
    let is_process = |name: &&String| name.bytes().all(|byte| byte.is_ascii_digit());
    let names = inspected.root.list("proc");
    let running = names.iter().filter(is_process).find(|process| {
        inspected.root.read(&format!("proc/{process}/comm")).is_some_and(|command| command == "irqbalance")
    });
    match running {
        None => good("irqbalance does not run"),
        Some(process) => warning(
            format!("irqbalance runs (process {process}) and moves interrupts, also onto cores of workers"),
            format!(
                "`systemctl disable --now irqbalance`, or IRQBALANCE_BANNED_CPULIST={} in /etc/default/irqbalance",
                inspected.cores
            ),
        ),
    }
}

/// Whether interrupts of the interface's device hit a core that belongs to a worker.
pub(super) fn affinity(inspected: &Inspected) -> Vec<Finding> {
    let Some(nic) = &inspected.nic else { return Vec::new() };
    // A virtio device's interrupts belong to the PCI slot above it.
    let folders = ["device/msi_irqs", "device/../msi_irqs"];
    let interrupts = folders.iter().map(|folder| inspected.root.list(&nic.file(folder))).find(|list| !list.is_empty());
    let Some(interrupts) = interrupts else { return Vec::new() };
    let comes_to_worker = |irq: &&String| target(inspected, irq).iter().any(|core| inspected.cores.contains(core));
    let disturbing: Vec<&str> = interrupts.iter().filter(comes_to_worker).map(String::as_str).collect();
    if disturbing.is_empty() {
        return good(format!("the interrupts of {} leave cores {} alone", nic.name(), inspected.cores));
    }
    warning(
        format!(
            "interrupts {} of {} come to cores {}, where workers run",
            disturbing.join(", "),
            nic.name(),
            inspected.cores
        ),
        format!(
            "`for irq in {}; do echo {} > /proc/irq/$irq/smp_affinity_list; done`",
            disturbing.join(" "),
            inspected.other_cores()
        ),
    )
}

/// The target of an interrupt: its effective core, or the allowed ones.
fn target(inspected: &Inspected, irq: &str) -> CpuList {
    let files = ["effective_affinity_list", "smp_affinity_list"];
    let list = files
        .iter()
        .find_map(|file| inspected.root.read(&format!("proc/irq/{irq}/{file}")).filter(|list| !list.is_empty()));
    list.and_then(|list| CpuList::parse(&list).ok()).unwrap_or_default()
}

/// Interrupts that the kernel defers after a poll, in the expectation of another poll: our sockets
/// do not poll that way.
pub(super) fn deferral(inspected: &Inspected) -> Vec<Finding> {
    let Some(nic) = &inspected.nic else { return Vec::new() };
    let value = |file: &str| inspected.root.number::<u64>(&nic.file(file));
    let (Some(polls), Some(timeout_ns)) = (value("napi_defer_hard_irqs"), value("gro_flush_timeout")) else {
        return Vec::new();
    };
    let name = nic.name();
    if timeout_ns > 0 {
        return warning(
            format!(
                "interrupts of {name} are delayed by up to {timeout_ns} ns after a poll (gro_flush_timeout, napi_defer_hard_irqs {polls})"
            ),
            format!(
                "`for file in gro_flush_timeout napi_defer_hard_irqs; do echo 0 > /sys/class/net/{name}/$file; done`"
            ),
        );
    }
    if value("threaded").is_some_and(|threaded| threaded != 0) {
        return note(
            format!("{name} is polled by kernel threads (napi/{name}-*): where they wait for a core, frames wait"),
            format!("`echo 0 > /sys/class/net/{name}/threaded`, or give each thread a core with `taskset -p`"),
        );
    }
    good(format!("interrupts of {name} are handled at once"))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{finds, finds_on, nic};
    use super::*;

    #[test]
    fn irqbalance_is_found_among_the_processes() {
        let files = [("proc/1/comm", "init\n"), ("proc/77/comm", "irqbalance\n"), ("proc/sys/comm", "irqbalance\n")];
        finds(irqbalance, &files, "warning", "process 77", "IRQBALANCE_BANNED_CPULIST=2-3");
        finds(irqbalance, &files[..1], "good", "does not run", "");
    }

    #[test]
    fn interrupts_on_a_workers_core_are_sent_to_the_others() {
        let files = |first, second| {
            [
                ("sys/devices/system/cpu/online", "0-3"),
                ("sys/class/net/eth1/device/uevent", ""),
                ("sys/class/net/eth1/msi_irqs/38", "msix"),
                ("sys/class/net/eth1/msi_irqs/39", "msix"),
                ("proc/irq/38/effective_affinity_list", first),
                ("proc/irq/38/smp_affinity_list", "0-3"),
                ("proc/irq/39/smp_affinity_list", second),
            ]
        };
        let remedy = "for irq in 38; do echo 0-1 > /proc/irq/$irq/smp_affinity_list; done";
        finds_on(nic(), affinity, &files("3", "0-1"), "warning", "interrupts 38 of eth1 come to cores 2-3", remedy);
        finds_on(nic(), affinity, &files("0", "0-2"), "warning", "interrupts 39 of", "for irq in 39");
        finds_on(nic(), affinity, &files("0", "1"), "good", "leave cores 2-3 alone", "");
    }

    #[test]
    fn deferred_interrupts_are_a_warning() {
        let files = |timeout, threaded| {
            [
                ("sys/class/net/eth1/napi_defer_hard_irqs", "2"),
                ("sys/class/net/eth1/gro_flush_timeout", timeout),
                ("sys/class/net/eth1/threaded", threaded),
            ]
        };
        finds_on(nic(), deferral, &files("200000", "0"), "warning", "200000 ns", "gro_flush_timeout");
        finds_on(nic(), deferral, &files("0", "1"), "note", "kernel threads", "threaded");
        finds_on(nic(), deferral, &files("0", "0"), "good", "at once", "");
    }
}
