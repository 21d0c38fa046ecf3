//! Finds the ELF image that the kernel runs for a file: it follows the interpreters of scripts, as
//! execve(2) does.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::elf::Elf;

/// Bytes of a file's start that the kernel reads (`BINPRM_BUF_SIZE`).
const HEAD_LEN: u64 = 256;
/// The most scripts whose interpreter is a script again (`exec_binprm`, fs/exec.c).
const DEPTH_MAX: usize = 5;

/// The file that runs, and its kind.
pub(super) struct Image {
    pub(super) path: PathBuf,
    /// `None` where it cannot be read.
    pub(super) elf: Option<Elf>,
}

impl Image {
    pub(super) fn of(program: &Path) -> Result<Self, String> {
        let mut path = program.to_owned();
        for _ in 0..=DEPTH_MAX {
            let shown = path.display();
            let mut file = match File::open(&path) {
                Ok(file) => file,
                Err(error) if error.kind() == ErrorKind::PermissionDenied => return Ok(Self { path, elf: None }),
                Err(error) => return Err(format!("cannot run {shown}: {error}; check the path")),
            };
            let mut head = Vec::new();
            let read = (&mut file).take(HEAD_LEN).read_to_end(&mut head);
            read.map_err(|error| format!("cannot run {shown}: {error}; check the path"))?;
            if head.starts_with(b"\x7fELF") {
                let elf = Elf::read(file)
                    .map_err(|error| format!("cannot run {shown}: its image is damaged ({error}); install it again"))?;
                return Ok(Self { path, elf: Some(elf) });
            }
            path = interpreter(&head).ok_or_else(|| {
                format!("cannot run {shown}: it is neither an ELF image nor a script; name a program")
            })?;
        }
        Err(format!("cannot run {}: scripts call each other, {DEPTH_MAX} deep; name a program", program.display()))
    }
}

/// The interpreter of a script; for `env` the program that `env` searches.
fn interpreter(head: &[u8]) -> Option<PathBuf> {
    let line = head.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let mut words = line.split(|byte| matches!(byte, b' ' | b'\t')).filter(|word| !word.is_empty());
    let first = Path::new(OsStr::from_bytes(words.next()?));
    if first.file_name() != Some(OsStr::new("env")) {
        return Some(first.to_owned());
    }
    // The options of `env` and its variables come first.
    let mut names = words.filter(|word| !word.starts_with(b"-") && !word.contains(&b'='));
    let found = names.next().and_then(|name| super::locate(OsStr::from_bytes(name)).ok());
    Some(found.unwrap_or_else(|| first.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interpreter_is_the_first_word_or_what_env_looks_for() {
        let check = |head: &str, expected: Option<&str>| {
            assert_eq!(interpreter(head.as_bytes()).as_deref(), expected.map(Path::new), "{head:?}");
        };
        check("#!/bin/sh\n", Some("/bin/sh"));
        check("#! \t/bin/sh -e\nmore", Some("/bin/sh"));
        check("#!/bin/sh", Some("/bin/sh"));
        check("#!\n", None);
        check("words", None);
        check("#!/usr/bin/env no-such-program-anywhere\n", Some("/usr/bin/env"));
        let found = interpreter(b"#!/usr/bin/env -S A=b sh -e\n").unwrap();
        assert!(found.is_absolute() && found.ends_with("sh"), "{}", found.display());
    }
}
