//! Cores and clocks: the library's checks of the workers' cores, and further ones.

use wirepath::worker::topology::{self, Finding, Placement};

use super::finding::{good, note, warning};
use super::inspected::Inspected;

/// Isolation, siblings, frequency, NUMA distance to the interface, the kernel's clock, the
/// hypervisor.
pub(super) fn cores(inspected: &Inspected) -> Vec<Finding> {
    let interface = inspected.nic.as_ref().map(|nic| nic.name());
    let placements: Vec<_> = inspected.cores.iter().map(|core| Placement { core, interface }).collect();
    let mut findings = topology::check(&inspected.machine, &placements).findings;
    if !inspected.cores_chosen && inspected.machine.isolated().is_empty() {
        let what = format!("no core is isolated; looked at is core {}, as the last one", inspected.cores);
        findings.extend(note(what, "name those that workers shall run on with --cores"));
    }
    findings
}

/// Whether the processor's counter can be our clock: it must count at a constant rate in all power
/// states of the core.
pub(super) fn tsc(inspected: &Inspected) -> Vec<Finding> {
    let Some(cpuinfo) = inspected.root.read("proc/cpuinfo") else { return Vec::new() };
    // Other architectures have no line of this name, and other counters.
    let Some(flags) = cpuinfo.lines().find(|line| line.starts_with("flags")) else { return Vec::new() };
    let has = |flag: &str| flags.split_whitespace().any(|word| word == flag);
    if has("constant_tsc") && has("nonstop_tsc") {
        return good("the TSC counts at one rate and never stops: workers read time in some 10 ns");
    }
    warning(
        "the TSC changes its rate or stops: workers read time from the kernel, twice as slow",
        "expose an invariant TSC to this machine (`-cpu host,+invtsc` with QEMU), or use a newer processor",
    )
}

/// The kernel's NUMA balancing unmaps pages to see which core touches them: each is a page fault in
/// a worker.
pub(super) fn numa_balancing(inspected: &Inspected) -> Vec<Finding> {
    match inspected.root.number::<u32>("proc/sys/kernel/numa_balancing") {
        None => Vec::new(),
        Some(0) => good("the kernel does not move memory between nodes"),
        Some(_) => warning(
            "automatic NUMA balancing is on: the kernel unmaps pages of workers to see who uses them",
            "`sysctl -w kernel.numa_balancing=0`",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{FakeSysfs, finds};
    use super::*;

    #[test]
    fn counter_must_be_constant_and_never_stop() {
        let flags = |flags: &'static str| [("proc/cpuinfo", flags)];
        finds(tsc, &flags("processor : 0\nflags : fpu tsc constant_tsc\n"), "warning", "changes its rate", "invtsc");
        finds(tsc, &flags("flags : constant_tsc nonstop_tsc\n"), "good", "one rate", "");
    }

    #[test]
    fn balancing_is_a_warning() {
        let file = "proc/sys/kernel/numa_balancing";
        finds(numa_balancing, &[(file, "1")], "warning", "is on", "sysctl -w kernel.numa_balancing=0");
        finds(numa_balancing, &[(file, "0")], "good", "does not move", "");
    }

    #[test]
    fn cores_that_nobody_chose_are_the_isolated_ones_or_the_last() {
        let cpu = "sys/devices/system/cpu";
        let (online, isolated) = (format!("{cpu}/online"), format!("{cpu}/isolated"));
        for (files, core, is_told) in
            [(vec![(&*online, "0-3")], "3", true), (vec![(&*online, "0-3"), (&*isolated, "1-2")], "1-2", false)]
        {
            let tree = FakeSysfs::new(&files);
            let inspected = Inspected::new(tree.root(), None);
            assert_eq!(inspected.cores.to_string(), core);
            let reported = cores(&inspected).iter().any(|finding| finding.what.starts_with("no core is isolated"));
            assert_eq!(reported, is_told);
        }
    }
}
