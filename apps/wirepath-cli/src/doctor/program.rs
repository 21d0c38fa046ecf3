//! `wirepath doctor PROGRAM`: which of a program's sockets `wirepath run` will see, and whether
//! they can leave the kernel on this machine.

use wirepath::worker::topology::{Finding, Severity};

use super::inspected::Inspected;
use super::{Diagnosis, finding, kernel};
use crate::program::Program;
use crate::root::Root;
use crate::{library, run};

/// All findings about a program, and about its needs on the machine.
pub(super) fn examine(program: &Program, inspected: &Inspected) -> Vec<Diagnosis> {
    let of_program = program.findings().into_iter().map(|(check, finding)| Diagnosis { check, finding });
    let of_machine =
        [("library", library()), ("af_xdp", kernel::af_xdp(inspected)), ("capabilities", rights(&inspected.root))];
    let of_machine = of_machine
        .into_iter()
        .flat_map(|(check, findings)| findings.into_iter().map(move |finding| Diagnosis { check, finding }));
    of_program.chain(of_machine).collect()
}

/// Whether the program may open a port, or a broker lends it a queue. It has the capabilities that
/// outlast exec, and not those of this tool's file.
fn rights(root: &Root) -> Vec<Finding> {
    let Err(obstacle) = run::check_rights(root) else { return finding::good("the program may open AF_XDP ports") };
    match run::broker_that_serves(root) {
        Some(path) => finding::good(format!("the broker at {} serves this user", path.display())),
        None => finding::fault(
            format!("{}, and no broker serves this user", obstacle.what),
            format!("start `wirepath broker --interface IF --uid USER` as root, or {}", obstacle.remedy),
        ),
    }
}

fn library() -> Vec<Finding> {
    match library::find() {
        Ok(path) => finding::good(path.display().to_string()),
        Err(obstacle) => finding::fault(obstacle.what, obstacle.remedy),
    }
}

/// The last line, where there is a fault.
pub(super) fn verdict(diagnoses: &[Diagnosis]) -> Option<&'static str> {
    let is_fault = |diagnosis: &Diagnosis| diagnosis.finding.severity == Severity::Fault;
    diagnoses.iter().any(is_fault).then_some("its sockets stay the kernel's until each fault is mended")
}

#[cfg(test)]
mod tests {
    use super::super::testing::FakeSysfs;
    use super::*;

    /// The finding about the rights of a user with these ambient capabilities.
    fn check(ambient: &str, severity: Severity, what: &str, remedy: &str) {
        let all = "000001ffffffffff";
        let status = format!("Uid:\t7\t7\t7\t7\nCapEff:\t{all}\nCapAmb:\t{ambient}\nCapBnd:\t{all}\n");
        let findings = rights(&FakeSysfs::new(&[("proc/self/status", &status)]).root());
        let [finding] = findings.as_slice() else { panic!("{} findings", findings.len()) };
        let said = finding.remedy.clone().unwrap_or_default();
        assert!(finding.severity == severity && finding.what.contains(what), "{finding}");
        // Capabilities of its file would have the loader drop the library.
        assert!(said.contains(remedy) && !said.contains("setcap"), "{finding}");
    }

    #[test]
    fn rights_that_outlast_exec_count_and_the_way_to_them_keeps_the_library() {
        check(
            "0000000000000000",
            Severity::Fault,
            "no broker serves this user",
            "--uid USER` as root, or run this as root",
        );
        check("000000c000003000", Severity::Good, "may open AF_XDP ports", "");
    }
}
