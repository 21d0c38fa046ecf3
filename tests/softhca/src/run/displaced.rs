//! Detects programs that were started without the preload library: the devices that they find would
//! be dead, without an explanation. The command may change or clear LD_PRELOAD for the programs
//! that it starts.
//!
//! Every program for verbs reads the ABI version in sysfs before it opens a device (libibverbs,
//! `init.c`). The kernel asks us before it lets a process open that file, and we refuse processes
//! without the library. A node in `/dev` would not work, because fanotify(7) reports only files and
//! directories.

use std::ffi::OsStr;
use std::path::Path;
use std::thread;

use super::sys::OpenPermissions;

/// The file that is read first.
const ABI_VERSION: &str = "/sys/class/infiniband_verbs/abi_version";

/// Starts a thread that watches until this process ends. Does nothing where the kernel does not
/// permit it (in a user namespace).
pub(super) fn watch(library: &Path) {
    let Ok(openings) = OpenPermissions::of(Path::new(ABI_VERSION)) else { return };
    let library = library.to_owned();
    // If the thread cannot be started, no process is refused once this function has returned.
    let _ = thread::Builder::new().spawn(move || {
        let mut told = None;
        while let Ok(opening) = openings.next() {
            let why = why_displaced(opening.process, &library);
            if let Some(why) = why.as_ref().filter(|_| told != Some(opening.process)) {
                eprintln!("softhca: {why}");
                told = Some(opening.process);
            }
            openings.answer(opening, why.is_none());
        }
    });
}

/// A sentence where the process runs without the library; none for a process that has ended
/// meanwhile.
fn why_displaced(process: i32, library: &Path) -> Option<String> {
    let read = |file: &str| std::fs::read(format!("/proc/{process}/{file}")).ok();
    let (maps, environment) = (read("maps")?, read("environ")?);
    let name = library.file_name().unwrap_or(OsStr::new("")).display().to_string();
    if String::from_utf8_lossy(&maps).contains(&name) {
        return None;
    }
    let command = String::from_utf8_lossy(&read("comm")?).trim().escape_debug().to_string();
    let environment = String::from_utf8_lossy(&environment);
    let preload = environment.split('\0').find_map(|variable| variable.strip_prefix("LD_PRELOAD="));
    Some(sentence(&format!("{command} ({process})"), preload.unwrap_or(""), &name))
}

fn sentence(program: &str, preload: &str, library: &str) -> String {
    let preload = preload.escape_debug();
    match preload.to_string() {
        none if none.is_empty() => format!(
            "{program} finds no device: LD_PRELOAD was taken out of its environment, and with it {library}; leave it there"
        ),
        kept if kept.contains(library) => format!(
            "{program} finds no device: the linker did not load {library} into it, as into a static program or one with \
             capabilities of its own; run one that is neither"
        ),
        other => format!(
            "{program} finds no device: LD_PRELOAD was set to {other} for it, which displaced {library}; set it to \
             {other}:$LD_PRELOAD"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentence_says_what_became_of_the_library_and_what_to_do() {
        let check = |preload: &str, expected: &str| {
            let said = sentence("ping (7)", preload, "libours.so");
            assert!(said.starts_with("ping (7) finds no device: ") && said.contains(expected), "{said}");
        };
        check("", "was taken out of its environment");
        check("libm.so.6", "set it to libm.so.6:$LD_PRELOAD");
        check("/x/libours.so", "did not load libours.so");
        check("a\u{1b}[2J", "set to a\\u{1b}[2J for it");
    }

    #[test]
    fn process_that_has_the_library_is_not_told_of() {
        let own = std::process::id() as i32;
        assert_eq!(why_displaced(own, Path::new("libc.so.6")), None);
        assert!(why_displaced(own, Path::new("libours.so")).is_some());
        // More than the kernel's PID_MAX_LIMIT.
        assert_eq!(why_displaced(4_999_999, Path::new("libours.so")), None);
    }
}
