//! A made-up machine, and the findings of one check on it.

use std::fs;

use tempfile::TempDir;
use wirepath::worker::topology::{CpuList, Finding};

use super::inspected::{Inspected, Nic};
use crate::interface::Interface;
use crate::root::Root;

/// The kernel's files in a temporary directory.
pub(crate) struct FakeSysfs(TempDir);

impl FakeSysfs {
    pub(crate) fn new(files: &[(&str, &str)]) -> Self {
        let tree = Self(TempDir::new().unwrap());
        for (name, text) in files {
            let path = tree.0.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        tree
    }

    pub(crate) fn root(&self) -> Root {
        Root::new(Some(self.0.path()))
    }
}

/// An interface of which nothing but its name is known.
pub(super) fn nic() -> Option<Nic> {
    let interface = Interface { name: "eth1".into(), ..Interface::default() };
    Some(Nic { interface, ..Nic::default() })
}

/// Checks that a machine with these files, whose workers run on cores 2 and 3, has one finding: of
/// this severity, with these words in its text and in the remedy.
pub(super) fn finds(
    look: fn(&Inspected) -> Vec<Finding>,
    files: &[(&str, &str)],
    severity: &str,
    what: &str,
    remedy: &str,
) {
    finds_on(None, look, files, severity, what, remedy);
}

/// The same with an interface.
pub(super) fn finds_on(
    nic: Option<Nic>,
    look: fn(&Inspected) -> Vec<Finding>,
    files: &[(&str, &str)],
    severity: &str,
    what: &str,
    remedy: &str,
) {
    let tree = FakeSysfs::new(files);
    let cores = CpuList::parse("2-3").unwrap();
    let inspected = Inspected { nic, ..Inspected::new(tree.root(), Some(&cores)) };
    let findings = look(&inspected);
    let [finding] = &findings[..] else { panic!("{findings:?} is not one finding") };
    assert_eq!(finding.severity.to_string(), severity, "{finding}");
    assert!(finding.what.contains(what), "{what:?} is not in {finding}");
    assert!(finding.remedy.as_deref().unwrap_or("").contains(remedy), "{remedy:?} is not in {finding}");
}
