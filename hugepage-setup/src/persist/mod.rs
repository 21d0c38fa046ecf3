//! Makes a reservation persistent across reboots: by a sysctl file if that suffices, else by
//! parameters on the kernel's command line.
//!
//! sysctl's `vm.nr_hugepages` supports only the default page size and no nodes, and runs when
//! memory may already be fragmented; so 1 GiB pages and single nodes need the command line, which
//! only the operator can change (each boot loader has its own way).

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::plan::{Bound, Target};
use crate::reserve::{ReserveError, boot_parameters};
use crate::sysfs::{self, Machine, Roots, SysfsError};
use crate::{ONE_GIB, format_size};

/// Our file below `/etc/sysctl.d`. Files are read in the order of their names, the last one wins:
/// 60 is after a distribution's (10 to 50) and before an operator's override (99).
const FILE: &str = "sysctl.d/60-hugepage-setup.conf";

/// How a reservation survives a reboot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Persistence {
    /// By this file.
    File {
        /// Its path.
        path: PathBuf,
        /// Its content.
        text: String,
        /// The pages it sets; more than the target if an earlier file set more and shrinking was
        /// not requested.
        pages: u64,
        /// Other files that set the same value; the last in the order of names wins.
        rivals: Vec<PathBuf>,
    },
    /// By these parameters on the kernel's command line.
    KernelCommandLine(String),
}

impl Persistence {
    /// Determines how to make `target` persistent. Reads, writes nothing.
    ///
    /// # Errors
    /// A file below `/etc` exists and cannot be read.
    pub fn plan(roots: &Roots, machine: &Machine, target: &Target) -> Result<Self, SysfsError> {
        let by_sysctl =
            target.node.is_none() && target.page_size < ONE_GIB && machine.default_page_size == Some(target.page_size);
        if !by_sysctl {
            return Ok(Self::KernelCommandLine(boot_parameters(target)));
        }
        let path = roots.etc.join(FILE);
        let before = sysfs::read_if_present(&path)?.and_then(|text| nr_hugepages(&text));
        let pages = match target.bound {
            Bound::Exactly => target.pages,
            Bound::AtLeast => target.pages.max(before.unwrap_or(0)),
        };
        let size = format_size(target.page_size);
        let text = format!(
            "# Hugepages of {size}, written by: hugepage-setup apply --persist\n\
             # Read at boot by systemd-sysctl or procps; now by: sysctl --system\n\
             vm.nr_hugepages = {pages}\n"
        );
        Ok(Self::File { rivals: find_conflicting(roots, &path)?, path, text, pages })
    }

    /// Writes the file, or does nothing if there is none to write. The file is replaced atomically:
    /// a reader sees the old text or the new one.
    ///
    /// # Errors
    /// Not root, a read-only `/etc`, a full disk.
    pub fn write(&self) -> Result<(), ReserveError> {
        let Self::File { path, text, .. } = self else {
            return Ok(());
        };
        let failed = |why| ReserveError::from_write(path, why);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(failed)?;
        }
        let fresh = path.with_extension("conf.new");
        let mut file = fs::File::create(&fresh).map_err(failed)?;
        file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
        fs::rename(&fresh, path).map_err(failed)
    }
}

fn find_conflicting(roots: &Roots, own: &Path) -> Result<Vec<PathBuf>, SysfsError> {
    let folder = roots.etc.join("sysctl.d");
    let mut files: Vec<PathBuf> = sysfs::list(&folder)?.iter().map(|name| folder.join(name)).collect();
    files.push(roots.etc.join("sysctl.conf"));
    files.retain(|path| path.extension().is_some_and(|extension| extension == "conf") && path != own);
    files.sort();
    let mut rivals = Vec::new();
    for path in files {
        if sysfs::read_if_present(&path)?.is_some_and(|text| nr_hugepages(&text).is_some()) {
            rivals.push(path);
        }
    }
    Ok(rivals)
}

/// The last `vm.nr_hugepages = <n>` of a sysctl file (sysctl.conf(5): `/` may stand for `.`, `-`
/// before a key ignores errors).
fn nr_hugepages(text: &str) -> Option<u64> {
    text.lines()
        .filter_map(|line| line.split_once('='))
        .filter(|(key, _)| key.trim().trim_start_matches('-').replace('/', ".") == "vm.nr_hugepages")
        .filter_map(|(_, value)| value.trim().parse().ok())
        .next_back()
}

#[cfg(test)]
mod tests;
