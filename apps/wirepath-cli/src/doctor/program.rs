//! `wirepath doctor PROGRAM`: which of a program's sockets `wirepath run` will see, and whether
//! they can leave the kernel on this machine.

use wirepath::worker::topology::{Finding, Severity};

use super::inspected::Inspected;
use super::{Diagnosis, finding, kernel};
use crate::library;
use crate::program::Program;

/// All findings about a program, and about its needs on the machine.
pub(super) fn examine(program: &Program, inspected: &Inspected) -> Vec<Diagnosis> {
    let of_program = program.findings().into_iter().map(|(check, finding)| Diagnosis { check, finding });
    let of_machine = [
        ("library", library()),
        ("af_xdp", kernel::af_xdp(inspected)),
        ("capabilities", kernel::capabilities(inspected)),
    ];
    let of_machine = of_machine
        .into_iter()
        .flat_map(|(check, findings)| findings.into_iter().map(move |finding| Diagnosis { check, finding }));
    of_program.chain(of_machine).collect()
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
