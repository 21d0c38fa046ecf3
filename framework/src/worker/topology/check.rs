//! The rules: the properties of a core that a latency-critical worker needs, and the remedy if one
//! is missing.

use super::cpu_list::CpuList;
use super::machine::Machine;
use super::report::{Severity, TopologyReport};

/// The placement of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement<'a> {
    /// The core that its thread is pinned to.
    pub core: usize,
    /// The network interface whose queue it polls, if it polls one.
    pub interface: Option<&'a str>,
}

/// Checks the machine for these workers. Reads some ten small files per worker; for set-up.
pub fn check(machine: &Machine, placements: &[Placement<'_>]) -> TopologyReport {
    let mut report = TopologyReport::default();
    // Only existing cores: a boot line with a core that does not exist is no remedy.
    let online = machine.online();
    let exists = |core: &usize| online.as_ref().is_none_or(|online| online.contains(*core));
    let cores: CpuList = placements.iter().map(|placement| placement.core).filter(exists).collect();
    for (idx, placement) in placements.iter().enumerate() {
        let core = placement.core;
        if placements[..idx].iter().any(|earlier| earlier.core == core) {
            report.add(
                Severity::Fault,
                format!("two workers want core {core}: each would run half of the time"),
                "give each worker a core of its own".to_owned(),
            );
            continue;
        }
        if !check_exists(machine, core, &mut report) {
            continue;
        }
        check_isolation(machine, core, &cores, &mut report);
        check_siblings(machine, core, &cores, &mut report);
        check_governor(machine, core, &mut report);
        if let Some(interface) = placement.interface {
            check_interface(machine, core, interface, &mut report);
        }
    }
    check_clocksource(machine, &mut report);
    check_hypervisor(machine, &mut report);
    report
}

fn check_exists(machine: &Machine, core: usize, report: &mut TopologyReport) -> bool {
    if let Some(online) = machine.online().filter(|online| !online.contains(core)) {
        report.add(
            Severity::Fault,
            format!("core {core} is not on line: this machine runs cores {online}"),
            "choose one of them; `lscpu --extended` shows them".to_owned(),
        );
        return false;
    }
    if let Some(allowed) = machine.allowed().filter(|allowed| !allowed.contains(core)) {
        report.add(
            Severity::Fault,
            format!("core {core} is not allowed to this process: its cgroup or taskset grants cores {allowed}"),
            format!("choose one of them, or start it with `systemd-run --scope -p AllowedCPUs={core} COMMAND`"),
        );
        return false;
    }
    true
}

/// Checks three ways in which the kernel interrupts a core that is busy polling. One boot line
/// prevents all three, so each remedy gives that line with the cores of all workers.
fn check_isolation(machine: &Machine, core: usize, cores: &CpuList, report: &mut TopologyReport) {
    let remedy = format!(
        "boot with isolcpus=managed_irq,domain,{cores} nohz_full={cores} rcu_nocbs={cores} on the kernel command line"
    );
    if machine.isolated().contains(core) {
        report.good(format!("core {core} is isolated from the scheduler"));
    } else {
        report.add(
            Severity::Warning,
            format!("core {core} is not isolated: the kernel may schedule other tasks on it"),
            remedy.clone(),
        );
    }
    if machine.nohz_full().contains(core) {
        report.good(format!("core {core} has no timer tick while the worker runs"));
    } else {
        report.add(
            Severity::Warning,
            format!("core {core} has a timer tick: the kernel interrupts it 100 to 1000 times a second"),
            remedy.clone(),
        );
    }
    if !machine.rcu_nocbs().contains(core) {
        report.add(
            Severity::Warning,
            format!("core {core} runs RCU callbacks: the kernel does deferred work on it, milliseconds at worst"),
            remedy,
        );
    }
    if core == 0 {
        report.add(
            Severity::Note,
            "core 0 is where the kernel boots and where interrupts go that were not sent elsewhere".to_owned(),
            "leave core 0 to the kernel if another core is free".to_owned(),
        );
    }
}

fn check_siblings(machine: &Machine, core: usize, cores: &CpuList, report: &mut TopologyReport) {
    let Some(siblings) = machine.smt_siblings(core) else { return };
    for sibling in siblings.iter().filter(|sibling| *sibling != core) {
        let (what, remedy) = if cores.contains(sibling) {
            (
                format!("cores {core} and {sibling} are one physical core: their workers halve each other"),
                "choose cores with different CORE numbers in `lscpu --extended`".to_owned(),
            )
        } else {
            (
                format!("core {core} shares its execution units and caches with core {sibling}"),
                format!("take that one off line with `echo 0 > /sys/devices/system/cpu/cpu{sibling}/online`"),
            )
        };
        report.add(Severity::Warning, what, remedy);
    }
}

fn check_governor(machine: &Machine, core: usize, report: &mut TopologyReport) {
    match machine.governor(core).as_deref() {
        None => {} // The kernel does not choose the frequency here.
        Some("performance") => report.good(format!("core {core} keeps its full frequency")),
        Some(governor) => report.add(
            Severity::Warning,
            format!(
                "core {core} changes its frequency by the {governor} governor: the first packets after a lull are slow"
            ),
            format!("`cpupower --cpu {core} frequency-set --governor performance`"),
        ),
    }
}

fn check_interface(machine: &Machine, core: usize, interface: &str, report: &mut TopologyReport) {
    if !machine.has_interface(interface) {
        // Opening the interface finds out whether it exists. A /sys that was mounted in another
        // network namespace, or is missing, does not show it.
        report.add(
            Severity::Note,
            format!(
                "/sys does not show the network interface {interface:?}, so it is unknown whether it is on the NUMA node of core {core}"
            ),
            "`mount -t sysfs sysfs /sys` in its network namespace shows it; `ip -brief link` shows those that there are".to_owned(),
        );
        return;
    }
    // One node, or unknown nodes: there is no choice.
    let (Some(core_node), Some(node)) = (machine.node_of_core(core), machine.node_of_interface(interface)) else {
        return;
    };
    if core_node == node {
        report.good(format!("core {core} and {interface} are both on NUMA node {node}"));
        return;
    }
    let choice =
        machine.cores_of_node(node).map_or("a core of that node".to_owned(), |cores| format!("one of cores {cores}"));
    report.add(
        Severity::Warning,
        format!(
            "core {core} is on NUMA node {core_node} and {interface} on node {node}: each packet crosses the link \
             between them, some 100 ns each way"
        ),
        format!("choose {choice}"),
    );
}

fn check_clocksource(machine: &Machine, report: &mut TopologyReport) {
    let Some(clocksource) = machine.clocksource() else { return };
    match clocksource.as_str() {
        "tsc" | "arch_sys_counter" => report.good(format!("the clock is {clocksource}, read without a system call")),
        // These two are also read without a system call, from pages that the hypervisor writes.
        "kvm-clock" | "hyperv_clocksource_tsc_page" => report.add(
            Severity::Note,
            format!("the clock is {clocksource}, some 10 ns slower to read than the TSC"),
            use_tsc(machine),
        ),
        _ => report.add(
            Severity::Warning,
            format!("the clock is {clocksource}: each reading is a system call or a bus access, 300 ns to 2 µs"),
            use_tsc(machine),
        ),
    }
}

fn use_tsc(machine: &Machine) -> String {
    if machine.could_use_clocksource("tsc") {
        return "`echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource`".to_owned();
    }
    "see `dmesg | grep -i tsc` for why the kernel distrusts the TSC; where it is sound, boot with tsc=reliable"
        .to_owned()
}

fn check_hypervisor(machine: &Machine, report: &mut TopologyReport) {
    let Some(hypervisor) = machine.hypervisor() else { return };
    report.add(
        Severity::Note,
        format!("this is a virtual machine ({hypervisor}): its host may take a core away for milliseconds"),
        "pin its virtual CPUs on the host (`virsh vcpupin`), and do not trust tail latencies measured here".to_owned(),
    );
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;

    const CPU: &str = "sys/devices/system/cpu";
    const CLOCK: &str = "sys/devices/system/clocksource/clocksource0";

    /// Two nodes of two cores, cores 2 and 3 well configured, a NIC on node 1.
    fn machine(changes: &[(&str, &str)]) -> (TempDir, Machine) {
        let root = TempDir::new().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        for core in 0..4 {
            write(&format!("{CPU}/cpu{core}/topology/thread_siblings_list"), &format!("{core}\n"));
            write(&format!("{CPU}/cpu{core}/cpufreq/scaling_governor"), "performance\n");
            write(&format!("{CPU}/cpu{core}/node{}/cpulist", core / 2), "");
        }
        for (path, text) in [
            ("sys/devices/system/cpu/online", "0-3\n"),
            ("sys/devices/system/cpu/possible", "0-3\n"),
            ("sys/devices/system/cpu/isolated", "2-3\n"),
            ("sys/devices/system/cpu/nohz_full", "2-3\n"),
            ("sys/devices/system/node/node1/cpulist", "2-3\n"),
            ("sys/class/net/eth0/device/numa_node", "1\n"),
            ("sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc\n"),
            ("proc/cmdline", "quiet isolcpus=2-3 nohz_full=2-3\n"),
            ("proc/cpuinfo", "processor : 0\nflags\t\t: fpu tsc\n"),
        ] {
            write(path, text);
        }
        for (path, text) in changes {
            write(path, text);
        }
        let machine = Machine::at(root.path());
        (root, machine)
    }

    fn at(core: usize) -> Placement<'static> {
        Placement { core, interface: Some("eth0") }
    }

    /// Checks that a worker on core 2 of a changed machine finds exactly this, as severity, part of
    /// the sentence and part of the remedy.
    fn finds(changes: &[(&str, &str)], severity: Severity, what: &str, remedy: &str) {
        let (_root, machine) = machine(changes);
        expect(&check(&machine, &[at(2)]), severity, what, remedy);
    }

    fn expect(report: &TopologyReport, severity: Severity, what: &str, remedy: &str) {
        let found = report.findings.iter().any(|finding| {
            finding.severity == severity
                && finding.what.contains(what)
                && finding.remedy.as_ref().is_some_and(|words| words.contains(remedy))
        });
        assert!(found, "{severity} {what:?} {remedy:?} is not in\n{report}");
        assert_eq!(report.worst(), severity, "{report}");
    }

    #[test]
    fn well_kept_core_has_nothing_but_good() {
        let (_root, machine) = machine(&[]);
        let report = check(&machine, &[at(2), at(3)]);
        assert_eq!(report.worst(), Severity::Good, "{report}");
        assert_eq!(report.findings.len(), 9, "{report}");
    }

    #[test]
    fn core_that_is_not_on_line_is_a_fault() {
        let (_root, machine) = machine(&[]);
        for core in [4, 8192, usize::MAX] {
            expect(&check(&machine, &[at(core)]), Severity::Fault, "this machine runs cores 0-3", "lscpu");
        }
    }

    #[test]
    fn core_outside_the_cgroup_is_a_fault() {
        let path = "sys/fs/cgroup/user.slice/cpuset.cpus.effective";
        let changes = [("proc/self/cgroup", "0::/user.slice/session-1.scope\n"), (path, "0-1\n")];
        finds(&changes, Severity::Fault, "grants cores 0-1", "AllowedCPUs=2");
        let changes = [
            ("proc/self/cgroup", "4:memory:/a\n3:cpuset,cpu:/docker\n"),
            ("sys/fs/cgroup/cpuset/docker/cpuset.effective_cpus", "3\n"),
        ];
        finds(&changes, Severity::Fault, "grants cores 3", "AllowedCPUs=2");
        finds(&[("proc/self/status", "Name:\tx\nCpus_allowed_list:\t0-1\n")], Severity::Fault, "grants cores 0-1", "");
    }

    #[test]
    fn two_workers_on_one_core_are_a_fault() {
        let (_root, machine) = machine(&[]);
        expect(&check(&machine, &[at(2), at(3), at(2)]), Severity::Fault, "two workers want core 2", "of its own");
    }

    #[test]
    fn core_that_is_not_isolated_gets_a_boot_line_for_all_workers() {
        let (_root, machine) = machine(&[("sys/devices/system/cpu/isolated", "\n")]);
        let report = check(&machine, &[at(2), at(3)]);
        assert!(!check(&machine, &[at(2), at(7)]).to_string().contains("isolcpus=managed_irq,domain,2,7"));
        expect(&report, Severity::Warning, "core 3 is not isolated", "isolcpus=managed_irq,domain,2-3 nohz_full=2-3");
    }

    #[test]
    fn isolated_cpuset_partition_counts() {
        let (_root, machine) =
            machine(&[("sys/devices/system/cpu/isolated", ""), ("sys/fs/cgroup/cpuset.cpus.isolated", "2\n")]);
        assert_eq!(check(&machine, &[at(2)]).worst(), Severity::Good);
    }

    #[test]
    fn tick_and_rcu_callbacks_are_warned_of() {
        let no_tick = ("sys/devices/system/cpu/nohz_full", "  (null)\n");
        finds(&[no_tick], Severity::Warning, "timer tick", "nohz_full=2 ");
        finds(&[no_tick], Severity::Warning, "RCU callbacks", "rcu_nocbs=2 ");
        let (_root, machine) = machine(&[no_tick, ("proc/cmdline", "rcu_nocbs=0 rcu_nocbs=1-N\n")]);
        assert!(!check(&machine, &[at(3)]).to_string().contains("RCU"));
    }

    #[test]
    fn sibling_is_warned_of_and_more_so_if_it_works() {
        let siblings = [("sys/devices/system/cpu/cpu2/topology/thread_siblings_list", "2-3\n")];
        finds(&siblings, Severity::Warning, "with core 3", "cpu3/online");
        let (_root, machine) = machine(&siblings);
        expect(&check(&machine, &[at(2), at(3)]), Severity::Warning, "one physical core", "lscpu");
    }

    #[test]
    fn interface_of_another_node_is_warned_of() {
        let (_root, machine) = machine(&[("sys/devices/system/cpu/isolated", "0-3"), ("proc/cmdline", "")]);
        let report = check(&machine, &[at(1)]);
        expect(&report, Severity::Warning, "core 1 is on NUMA node 0 and eth0 on node 1", "one of cores 2-3");
    }

    #[test]
    fn interface_without_a_node_is_no_finding() {
        let (_root, machine) = machine(&[("sys/class/net/eth0/device/numa_node", "-1\n")]);
        let report = check(&machine, &[at(2)]);
        assert!(report.worst() == Severity::Good && !report.to_string().contains("NUMA"), "{report}");
    }

    #[test]
    fn interface_that_sys_does_not_show_is_a_note_and_leads_nowhere() {
        let (_root, machine) = machine(&[]);
        for interface in ["eth1", "", ".", "..", "../../../proc", "a name", "an-interface-with-a-name"] {
            let report = check(&machine, &[Placement { core: 2, interface: Some(interface) }]);
            expect(&report, Severity::Note, &format!("not show the network interface {interface:?}"), "ip -brief link");
            assert_eq!(report.worst(), Severity::Note, "advice stops no start");
        }
    }

    #[test]
    fn governor_that_saves_power_is_warned_of() {
        let governor = [("sys/devices/system/cpu/cpu2/cpufreq/scaling_governor", "powersave\n")];
        finds(&governor, Severity::Warning, "powersave", "cpupower --cpu 2 frequency-set");
    }

    #[test]
    fn slow_clock_is_warned_of() {
        let current = format!("{CLOCK}/current_clocksource");
        let available = format!("{CLOCK}/available_clocksource");
        finds(&[(&current, "hpet\n")], Severity::Warning, "the clock is hpet", "tsc=reliable");
        finds(&[(&current, "hpet\n"), (&available, "hpet tsc\n")], Severity::Warning, "hpet", "echo tsc");
        finds(&[(&current, "kvm-clock\n")], Severity::Note, "kvm-clock", "");
    }

    #[test]
    fn virtual_machine_is_noted() {
        let flags = ("proc/cpuinfo", "flags : fpu hypervisor tsc\n");
        finds(&[flags], Severity::Note, "unnamed hypervisor", "vcpupin");
        finds(&[flags, ("sys/class/dmi/id/sys_vendor", "QEMU\n")], Severity::Note, "(QEMU)", "vcpupin");
    }

    #[test]
    fn garbage_in_the_files_is_ignorance_and_not_a_panic() {
        let paths = ["online", "possible", "isolated", "nohz_full", "cpu2/topology/thread_siblings_list"];
        let paths: Vec<_> = paths.iter().map(|name| format!("{CPU}/{name}")).collect();
        let mut changes: Vec<_> = paths.iter().map(|path| (path.as_str(), "0-99999999999,\u{0}-x")).collect();
        changes.extend([("proc/self/cgroup", "::\n:\n\n0::/../..\n"), ("proc/cmdline", "rcu_nocbs=all:9/1")]);
        finds(&changes, Severity::Warning, "core 2 is not isolated", "isolcpus");
    }

    #[test]
    fn empty_root_and_this_machine_give_a_report() {
        let root = TempDir::new().unwrap();
        for machine in [Machine::at(root.path()), Machine::here()] {
            let report = check(&machine, &[Placement { core: 0, interface: None }]);
            assert!(report.at_least(Severity::Note).all(|finding| finding.remedy.is_some()), "{report}");
        }
    }
}
