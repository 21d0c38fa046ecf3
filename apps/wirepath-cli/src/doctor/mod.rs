//! `wirepath doctor`: checks the host, and one interface where one is named, for causes of late or
//! lost packets. Each finding has a severity and the command that is its remedy; nothing is
//! changed. For a program it reports whether its sockets can leave the kernel.
//!
//! The [`CHECKS`] are one function each. Facts come from /sys and /proc and, for an interface, from
//! the driver; with `--root` the files are of an invented machine, whose drivers cannot be queried.

mod bridge;
mod cpu;
mod finding;
mod flow_control;
mod inspected;
mod interrupts;
mod json;
mod kernel;
mod memory;
mod nic;
mod program;
mod sockets;
#[cfg(test)]
pub(crate) mod testing;
mod text;

use std::error::Error;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use wirepath::counters::printable_lines;
use wirepath::worker::topology::{CpuList, Finding, Severity};

use crate::devices::no_such_interface;
use crate::interface::Interface;
use crate::program::Program;
use crate::root::Root;
use inspected::Inspected;

/// Checks the host and one interface for causes of late or lost packets, or a program for causes
/// that keep its sockets on the kernel, and prints the remedies.
#[derive(Args)]
pub(crate) struct DoctorOptions {
    /// The interface that workers will poll, or the program that `wirepath run` will start; without
    /// it only the host is checked
    #[arg(value_name = "INTERFACE|PROGRAM")]
    subject: Option<String>,
    /// The cores for the workers, such as 2-3,6; without it the isolated cores, or else the last
    /// one
    #[arg(long, value_name = "LIST", value_parser = parse_cores)]
    cores: Option<CpuList>,
    /// One JSON object
    #[arg(long)]
    json: bool,
    /// Read /sys and /proc below this directory (a copy of another machine's, or a test's)
    #[arg(long, value_name = "DIR", hide_short_help = true)]
    root: Option<PathBuf>,
}

/// A check.
struct Check {
    name: &'static str,
    /// The check's findings; empty where there is nothing to check.
    look: fn(&Inspected) -> Vec<Finding>,
}

/// All checks, from the kernel up to the interface.
const CHECKS: [Check; 27] = [
    Check { name: "kernel", look: kernel::version },
    Check { name: "af_xdp", look: kernel::af_xdp },
    Check { name: "capabilities", look: kernel::capabilities },
    Check { name: "locked memory", look: memory::locked },
    Check { name: "hugepages", look: memory::hugepages },
    Check { name: "transparent pages", look: memory::transparent },
    Check { name: "memory limit", look: memory::limit },
    Check { name: "cores", look: cpu::cores },
    Check { name: "tsc", look: cpu::tsc },
    Check { name: "NUMA balancing", look: cpu::numa_balancing },
    Check { name: "irqbalance", look: interrupts::irqbalance },
    Check { name: "socket buffers", look: sockets::buffers },
    Check { name: "busy_poll", look: sockets::busy_poll },
    Check { name: "rp_filter", look: sockets::rp_filter },
    Check { name: "igmp version", look: sockets::igmp_version },
    Check { name: "igmp groups", look: sockets::igmp_memberships },
    Check { name: "link", look: nic::link },
    Check { name: "backend", look: nic::backend },
    Check { name: "mtu", look: nic::mtu },
    Check { name: "queues", look: nic::queues },
    Check { name: "rings", look: nic::rings },
    Check { name: "coalescing", look: nic::coalescing },
    Check { name: "offloads", look: nic::offloads },
    Check { name: "flow control", look: flow_control::pauses },
    Check { name: "napi", look: interrupts::deferral },
    Check { name: "interrupts", look: interrupts::affinity },
    Check { name: "igmp snooping", look: bridge::snooping },
];

/// A finding, and the check that made it.
struct Diagnosis {
    check: &'static str,
    finding: Finding,
}

/// Runs the subcommand.
///
/// # Errors
/// The interface does not exist, `--root` names a directory without the files of a machine, or at
/// least one finding is a fault: exit code 1.
pub(crate) fn run(options: &DoctorOptions) -> Result<(), Box<dyn Error>> {
    if let Some(directory) = &options.root {
        check_root(directory)?;
    }
    let root = Root::new(options.root.as_deref());
    if let Some(name) = options.subject.as_deref().filter(|name| Interface::find(&root, name).is_none()) {
        return match Program::find(name.as_ref(), None) {
            Ok(program) => options.look_at(&program, root),
            Err(sentence) if name.contains('/') => Err(sentence.into()),
            Err(_) => Err(no_such_interface(name).replacen(": ", ", and no program of that name in PATH: ", 1).into()),
        };
    }
    let mut inspected = Inspected::new(root, options.cores.as_ref());
    if let Some(name) = &options.subject {
        inspected = inspected.with_interface(name).ok_or_else(|| no_such_interface(name))?;
    }
    if options.root.is_none() {
        inspected = inspected.ask_driver();
    }
    let diagnoses = examine(&inspected);
    let report = match options.json {
        true => json::render(&inspected, &diagnoses),
        false => printable_lines(&text::render(&inspected, &diagnoses)),
    };
    io::stdout().lock().write_all(report.as_bytes())?;
    match count(&diagnoses, Severity::Fault) {
        0 => Ok(()),
        1 => Err("1 fault: a worker cannot start, or gets no frames, until it is mended".into()),
        faults => {
            Err(format!("{faults} faults: a worker cannot start, or gets no frames, until they are mended").into())
        }
    }
}

impl DoctorOptions {
    fn look_at(&self, program: &Program, root: Root) -> Result<(), Box<dyn Error>> {
        let inspected = Inspected::new(root, None);
        let diagnoses = program::examine(program, &inspected);
        let report = match self.json {
            true => json::render_program(&program.path, &diagnoses),
            false => printable_lines(&text::render_program(&diagnoses)),
        };
        io::stdout().lock().write_all(report.as_bytes())?;
        program::verdict(&diagnoses).map_or(Ok(()), |sentence| Err(sentence.into()))
    }
}

/// A directory with neither /sys nor /proc has nothing to check, and a report without faults would
/// look healthy.
fn check_root(directory: &Path) -> Result<(), String> {
    let shown = directory.display();
    if let Err(error) = directory.read_dir() {
        return Err(format!(
            "--root {shown} cannot be read: {error}; name a directory that has a machine's sys and proc"
        ));
    }
    if !["sys", "proc"].iter().any(|name| directory.join(name).is_dir()) {
        return Err(format!("--root {shown} has neither sys nor proc in it: copy those of the machine there"));
    }
    Ok(())
}

fn examine(inspected: &Inspected) -> Vec<Diagnosis> {
    let mut diagnoses = Vec::new();
    for Check { name, look } in CHECKS {
        diagnoses.extend(look(inspected).into_iter().map(|finding| Diagnosis { check: name, finding }));
    }
    diagnoses
}

fn count(diagnoses: &[Diagnosis], severity: Severity) -> usize {
    diagnoses.iter().filter(|diagnosis| diagnosis.finding.severity == severity).count()
}

fn parse_cores(text: &str) -> Result<CpuList, String> {
    let cores = CpuList::parse(text).map_err(|error| error.to_string())?;
    if cores.is_empty() { Err("name at least one core, such as 2-3,6".into()) } else { Ok(cores) }
}

#[cfg(test)]
mod tests {
    use super::testing::FakeSysfs;
    use super::*;

    #[test]
    fn machine_that_says_nothing_is_no_fault_of_its_own() {
        let tree = FakeSysfs::new(&[]);
        let diagnoses = examine(&Inspected::new(tree.root(), None));
        let faults: Vec<_> = diagnoses.iter().filter(|found| found.finding.severity == Severity::Fault).collect();
        // Only the facts that a file would have to supply are missing.
        assert!(
            faults.iter().all(|found| found.check == "af_xdp"),
            "{:?}",
            faults.iter().map(|f| f.check).collect::<Vec<_>>()
        );
    }

    #[test]
    fn every_finding_that_is_not_good_says_what_to_do() {
        for inspected in
            [Inspected::new(FakeSysfs::new(&[]).root(), None), Inspected::new(Root::new(None), None).ask_driver()]
        {
            for Diagnosis { check, finding } in examine(&inspected) {
                assert!(finding.severity == Severity::Good || finding.remedy.is_some(), "{check}: {finding}");
            }
        }
    }
}
