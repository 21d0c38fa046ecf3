//! A program that is about to be started: its place, the kind of image that the kernel will run,
//! and whether a preloaded library sees its sockets.

mod elf;
mod image;
#[cfg(test)]
pub(crate) mod testing;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use wirepath::counters::environment;
use wirepath::worker::topology::{Finding, Severity};

use elf::Elf;
use image::Image;

use crate::sys;
use crate::user::User;

/// A program that was found and inspected.
#[derive(Debug)]
pub(crate) struct Program {
    /// The path passed to exec(2).
    pub(crate) path: PathBuf,
    /// Why the loader would ignore `LD_PRELOAD`; `None` if it does not.
    rights: Option<&'static str>,
    /// The ELF file that the kernel runs: the program itself or, of a script, its interpreter.
    runs: PathBuf,
    /// `None` where it may be run, but not read.
    elf: Option<Elf>,
}

impl Program {
    /// Finds a program as execvp(3) does: a name with a slash is a path, another name is searched
    /// in `PATH`. It is to run as `user`; without one, as the user of this process.
    ///
    /// # Errors
    /// One sentence: there is no such program, or the kernel cannot run it.
    pub(crate) fn find(name: &OsStr, user: Option<&User>) -> Result<Self, String> {
        let path = locate(name)?;
        let Image { path: runs, elf } = Image::of(&path)?;
        let user = user.map_or_else(sys::user_and_group, |user| (user.uid, user.gid));
        // For a script the kernel considers only the interpreter's rights.
        Ok(Self { rights: rights(&runs, user), path, runs, elf })
    }

    /// The checks of a program, each with its name.
    pub(crate) fn findings(&self) -> Vec<(&'static str, Finding)> {
        let mut findings = vec![("program", self.kind()), ("rules", self.names())];
        if let Some(rights) = self.rights {
            let what =
                format!("{} gets rights from its file ({rights}), so the loader ignores LD_PRELOAD", self.name());
            let remedy = match rights {
                CAPABILITIES => format!("`setcap -r {}`, and start it as a user who has them", self.runs.display()),
                _ => format!("start it as the user whose rights it takes, or `chmod ug-s {}`", self.runs.display()),
            };
            findings.push(("rights", fault(what, remedy)));
        }
        if let Some(library) = self.elf.as_ref().and_then(Elf::io_uring) {
            findings.push((
                "io_uring",
                Finding {
                    severity: Severity::Warning,
                    what: format!("{} uses io_uring ({library}), which the library refuses (ENOSYS)", self.name()),
                    remedy: Some(
                        "set its option to use epoll, or leave all its sockets to the kernel (default = \"os\")".into(),
                    ),
                },
            ));
        }
        findings
    }

    /// Whether the loader loads the library, and the program's calls reach it.
    fn kind(&self) -> Finding {
        let name = self.name();
        let Some(elf) = &self.elf else {
            return Finding {
                severity: Severity::Note,
                what: format!("{name} is executable but not readable, so its kind is unknown"),
                remedy: Some("run this as root".into()),
            };
        };
        if elf.is_go {
            return fault(
                format!(
                    "{name} is a Go program, which makes its system calls without libc: no library sees its sockets"
                ),
                "leave it on the kernel, or build it upon the sockets of the package wirepath-sockets",
            );
        }
        if elf.machine != elf::OURS {
            return fault(
                format!("{name} is a program for {}, and the library for {}", elf.machine, elf::OURS),
                format!("use a build of it for {}", elf::OURS),
            );
        }
        let Some(loader) = &elf.interpreter else {
            return fault(
                format!("{name} is linked statically: no library can be put in front of it"),
                "link it dynamically, or leave it on the kernel",
            );
        };
        if loader.contains("ld-musl") {
            return fault(
                format!("{name} is linked with musl, and the library with glibc"),
                "use a build of it for glibc, or leave it on the kernel",
            );
        }
        let script =
            if self.path == self.runs { String::new() } else { format!("{} is a script for ", self.path.display()) };
        Finding {
            severity: Severity::Good,
            what: format!("{script}{}, linked dynamically: its sockets are seen", self.runs.display()),
            remedy: None,
        }
    }

    /// The names by which rules will know the process: the library asks them by the last part of
    /// `argv[0]`, as VMA does, and a broker by the file behind `/proc/PID/exe`, which is no link.
    fn names(&self) -> Finding {
        let path = fs::canonicalize(&self.runs).unwrap_or_else(|_| self.runs.clone());
        Finding {
            severity: Severity::Good,
            what: format!("its rules know it by the name {}, a broker's by {}", self.name(), path.display()),
            remedy: None,
        }
    }

    /// The program's name in sentences: of a script, that of its interpreter.
    fn name(&self) -> String {
        self.runs.file_name().unwrap_or(self.runs.as_os_str()).to_string_lossy().into_owned()
    }
}

fn fault(what: String, remedy: impl Into<String>) -> Finding {
    Finding { severity: Severity::Fault, what, remedy: Some(remedy.into()) }
}

fn locate(name: &OsStr) -> Result<PathBuf, String> {
    let shown = name.to_string_lossy();
    if shown.contains('/') {
        let path = PathBuf::from(name);
        return match fs::metadata(&path) {
            Err(error) => Err(format!("cannot run {shown}: {error}; check the path")),
            Ok(facts) if facts.is_dir() => {
                Err(format!("cannot run {shown}: it is a directory; name the program in it"))
            }
            Ok(_) if !is_executable(&path) => {
                Err(format!("cannot run {shown}: its file may not be executed; `chmod +x {shown}` lets it"))
            }
            Ok(_) => Ok(path),
        };
    }
    let folders = environment("PATH").unwrap_or_default();
    let mut found = std::env::split_paths(&folders).map(|folder| folder.join(name)).filter(|path| is_executable(path));
    match found.next() {
        Some(path) if !name.is_empty() => Ok(path),
        _ => Err(format!("there is no program {shown} in PATH: install it, or give its path, such as ./{shown}")),
    }
}

/// Whether any user may execute the file; the kernel decides whether this user may.
fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|facts| facts.is_file() && facts.permissions().mode() & 0o111 != 0)
}

const CAPABILITIES: &str = "capabilities";

/// The property of the file that makes the kernel set AT_SECURE (`cap_bprm_creds_from_file`,
/// security/commoncap.c): privileges that the user and the group who start the program lack.
fn rights(path: &Path, (user, group): (u32, u32)) -> Option<&'static str> {
    let facts = fs::metadata(path).ok()?;
    let mode = facts.permissions().mode();
    match () {
        () if mode & 0o4000 != 0 && facts.uid() != user => Some("setuid"),
        // Without the group's right to execute, the setgid bit means mandatory locking.
        () if mode & 0o2010 == 0o2010 && facts.gid() != group => Some("setgid"),
        // Root has all capabilities already.
        () if user != 0 && sys::has_capabilities(path) => Some(CAPABILITIES),
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{ElfFile, write_program};
    use super::*;

    /// The first of the worst findings about a program with this image, in words.
    fn check(image: &[u8], severity: Severity, what: &str) {
        let folder = tempfile::tempdir().unwrap();
        let path = write_program(&folder, "engine", image);
        let program = Program::find(path.as_os_str(), None).unwrap();
        let findings = program.findings();
        let worst = findings.iter().map(|(_, finding)| finding.severity as u8).max();
        let (_, finding) = findings.iter().find(|(_, finding)| Some(finding.severity as u8) == worst).unwrap();
        assert!(finding.severity == severity && finding.what.contains(what), "{finding}");
        assert_eq!(finding.remedy.is_some(), severity != Severity::Good, "{finding}");
    }

    #[test]
    fn dynamic_program_is_seen() {
        check(&ElfFile::default().bytes(), Severity::Good, "engine, linked dynamically");
        // Not this test, which has the name of liburing in it.
        let shell = Program::find(OsStr::new("sh"), None).unwrap();
        assert!(shell.findings().iter().all(|(_, finding)| finding.severity == Severity::Good), "{shell:?}");
    }

    #[test]
    fn programs_that_no_library_sees_are_told() {
        check(&ElfFile { interpreter: None, ..ElfFile::default() }.bytes(), Severity::Fault, "linked statically");
        let musl = ElfFile { interpreter: Some("/lib/ld-musl-x86_64.so.1"), ..ElfFile::default() };
        check(&musl.bytes(), Severity::Fault, "engine is linked with musl");
        // Linked dynamically or not.
        for interpreter in [None, ElfFile::default().interpreter] {
            let go = ElfFile { interpreter, section: ".go.buildinfo", ..ElfFile::default() };
            check(&go.bytes(), Severity::Fault, "engine is a Go program");
        }
        let other = ElfFile { machine: object::elf::EM_S390, ..ElfFile::default() };
        check(&other.bytes(), Severity::Fault, "a program for");
    }

    #[test]
    fn image_whose_sections_were_damaged_on_purpose_runs_as_the_kernel_runs_it() {
        let mut image = ElfFile { needed: Some("liburing.so.2"), ..ElfFile::default() }.bytes();
        // e_shoff, far behind the end.
        image[40..48].copy_from_slice(&(1u64 << 40).to_le_bytes());
        check(&image, Severity::Good, "engine, linked dynamically");
    }

    #[test]
    fn interpreter_of_any_length_takes_no_memory_of_that_length() {
        let folder = tempfile::tempdir().unwrap();
        let mut image = ElfFile::default().bytes();
        // p_filesz of PT_INTERP: 1 TiB of a sparse file.
        image[64 + 32..64 + 40].copy_from_slice(&(1u64 << 40).to_le_bytes());
        let path = write_program(&folder, "engine", &image);
        let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        if file.set_len((1 << 40) + 4096).is_err() {
            println!("SKIPPED interpreter_of_any_length_takes_no_memory_of_that_length: no sparse files");
            return;
        }
        assert!(Program::find(path.as_os_str(), None).unwrap_err().contains("damaged"));
    }

    #[test]
    fn liburing_is_a_warning() {
        check(
            &ElfFile { needed: Some("liburing.so.2"), ..ElfFile::default() }.bytes(),
            Severity::Warning,
            "liburing.so.2",
        );
        check(&ElfFile { needed: Some("libc.so.6"), ..ElfFile::default() }.bytes(), Severity::Good, "");
    }

    #[test]
    fn liburing_that_is_linked_into_a_program_or_opened_by_it_is_a_warning() {
        let with = |section, content: &[u8]| ElfFile { section, content: content.into(), ..ElfFile::default() }.bytes();
        // Behind the first piece that is searched, and across its end.
        for before in [0, 65_530, 100_000] {
            let among = |name: &[u8]| [&vec![b'x'; before], name, b"\0more"].concat();
            check(&with(".strtab", &among(b"\0io_uring_queue_init")), Severity::Warning, "liburing, which is linked");
            check(&with(".rodata", &among(b"liburing.so.2")), Severity::Warning, "liburing.so, whose name is in it");
        }
        check(&with(".rodata", b"io_uring"), Severity::Good, "");
    }

    #[test]
    fn script_is_judged_by_its_interpreter() {
        let folder = tempfile::tempdir().unwrap();
        let runs = write_program(&folder, "runs", &ElfFile { interpreter: None, ..ElfFile::default() }.bytes());
        let script = write_program(&folder, "script", format!("#! {} -x\n", runs.display()).as_bytes());
        let program = Program::find(script.as_os_str(), None).unwrap();
        assert_eq!((&program.path, &program.runs), (&script, &runs));
        assert!(program.findings()[0].1.what.starts_with("runs is linked statically"));
    }

    #[test]
    fn setuid_program_is_a_fault_for_whoever_is_to_run_it_and_is_not_its_owner() {
        let folder = tempfile::tempdir().unwrap();
        let path = write_program(&folder, "engine", &ElfFile::default().bytes());
        let facts = fs::metadata(&path).unwrap();
        let (owner, other) = ((facts.uid(), facts.gid()), (12_345, 12_345));
        for (mode, rights_of_another) in [(0o4755, Some("setuid")), (0o2755, Some("setgid")), (0o2745, None)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(rights(&path, owner), None, "its owner gains nothing");
            assert_eq!(rights(&path, other), rights_of_another);
        }
    }

    #[test]
    fn capabilities_of_a_file_are_a_fault_for_all_but_root() {
        let folder = tempfile::tempdir().unwrap();
        let path = write_program(&folder, "engine", &ElfFile::default().bytes());
        let set = std::process::Command::new("setcap").arg("cap_net_raw+ep").arg(&path).status();
        if !set.is_ok_and(|status| status.success()) {
            println!("SKIPPED capabilities_of_a_file_are_a_fault_for_all_but_root: setcap is refused");
            return;
        }
        assert_eq!(rights(&path, (0, 0)), None);
        assert_eq!(rights(&path, (12_345, 12_345)), Some(CAPABILITIES));
    }

    #[test]
    fn what_cannot_be_run_is_one_sentence() {
        let folder = tempfile::tempdir().unwrap();
        let refused = |path: &Path, says: &str| {
            let error = Program::find(path.as_os_str(), None).map(drop).unwrap_err();
            assert!(error.contains(says), "{error}");
        };
        refused(&folder.path().join("nothing"), "check the path");
        refused(folder.path(), "it is a directory");
        let text = folder.path().join("text");
        fs::write(&text, "words").unwrap();
        refused(&text, "chmod +x");
        refused(Path::new("no-such-program-anywhere"), "no program no-such-program-anywhere in PATH");
        refused(Path::new(""), "there is no program");
        refused(&write_program(&folder, "words", b"words"), "neither");
        refused(&write_program(&folder, "empty", b""), "neither");
        refused(&write_program(&folder, "short", b"\x7fELF"), "damaged");
        refused(&write_program(&folder, "cut", &ElfFile::default().bytes()[..100]), "damaged");
        let itself = folder.path().join("itself");
        refused(&write_program(&folder, "itself", format!("#!{}\n", itself.display()).as_bytes()), "scripts");
        refused(&write_program(&folder, "orphan", b"#!/nowhere/sh\n"), "/nowhere/sh");
    }
}
