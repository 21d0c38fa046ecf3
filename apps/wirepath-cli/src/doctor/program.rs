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
    let of_machine = [
        ("library", library()),
        ("af_xdp", kernel::af_xdp(inspected)),
        ("capabilities", rights(&inspected.root)),
        ("interfaces", interfaces(&inspected.root)),
    ];
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

/// A program leaves the kernel on one interface.
fn interfaces(root: &Root) -> Vec<Finding> {
    let candidates = run::candidates(root);
    if candidates.len() < 2 {
        return Vec::new();
    }
    let list = candidates.join(", ");
    finding::note(
        format!("{list} carry frames: the program's sockets leave the kernel on one of them, and stay on the others"),
        "choose it with --interface, and have another program use each other one",
    )
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
    fn interfaces_on_which_sockets_stay_the_kernels_are_named() {
        let of = |name: &str, flags: &str| {
            [("address", "02:00:00:00:00:01"), ("type", "1"), ("flags", flags), ("carrier", "1")]
                .map(|(file, text)| (format!("sys/class/net/{name}/{file}"), text.to_owned()))
        };
        let say = |files: &[[(String, String); 4]]| {
            let files: Vec<(&str, &str)> = files.iter().flatten().map(|(name, text)| (&**name, &**text)).collect();
            interfaces(&FakeSysfs::new(&files).root())
        };
        let [feed, orders, down] = [of("eth1", "0x1003"), of("eth2", "0x1003"), of("eth3", "0x1002")];
        assert!(say(&[feed.clone(), down.clone()]).is_empty());
        let findings = say(&[feed, orders, down]);
        let [finding] = findings.as_slice() else { panic!("{} findings", findings.len()) };
        assert!(finding.severity == Severity::Note && finding.what.starts_with("eth1, eth2 carry frames"), "{finding}");
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
