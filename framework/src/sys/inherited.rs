//! Descriptors that a child of `fork` inherits from its parent's ports. A copy keeps a queue, the
//! program on an interface and the locks of files as well as the parent's own does, also where the
//! parent has ended.

use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{fs, process};

use super::socket;

/// Entries from which those that no longer exist are looked for; twice as many after each look.
const ENTRIES_MIN: usize = 64;

/// The descriptors that are noted, each with the file that it names: the number alone may be
/// another file's by now. `None`: none are noted.
static NOTED: Mutex<Option<Noted>> = Mutex::new(None);

/// Whether any are noted in this program: the others take no lock, which a `fork` of another thread
/// would leave locked in the child.
static NOTES: AtomicBool = AtomicBool::new(false);

struct Noted {
    process: u32,
    entries: Vec<(RawFd, FileName)>,
    looked_at: usize,
}

/// What tells a file from all others: device and inode; of a BPF object, which shares both with all
/// others, its id.
#[derive(PartialEq, Eq)]
struct FileName(u64, u64, String);

impl FileName {
    fn of(fd: RawFd) -> Option<Self> {
        let file = fs::metadata(format!("/proc/self/fd/{fd}")).ok()?;
        let info = fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).unwrap_or_default();
        // The first is the object's own; a link then names its program, which may change.
        let id = info.lines().find(|line| line.contains("_id:"));
        Some(Self(file.dev(), file.ino(), id.unwrap_or_default().to_owned()))
    }
}

/// Notes the descriptors of queues, programs and files that ports make from now on in this process,
/// for [`close_inherited`].
pub fn note_descriptors() {
    NOTES.store(true, Ordering::Relaxed);
    if let Ok(mut noted) = NOTED.lock() {
        let process = process::id();
        // In a child of `fork` they are the parent's, if they have not been closed.
        noted.take_if(|noted| noted.process != process);
        noted.get_or_insert(Noted { process, entries: Vec::new(), looked_at: 0 });
    }
}

/// Closes what is noted, in a child of `fork` that uses and drops none of its parent's ports: then
/// the queue, the program and the locks end with the parent. Does nothing in the process that made
/// them, and where another thread of the parent was making a descriptor as it forked.
pub fn close_inherited() {
    let Ok(mut noted) = NOTED.try_lock() else { return };
    let Some(noted) = noted.take_if(|noted| noted.process != process::id()) else { return };
    for (fd, name) in noted.entries {
        if FileName::of(fd) == Some(name) {
            socket::close(fd);
        }
    }
}

/// Notes a new descriptor, where they are noted.
pub(crate) fn note<T: AsRawFd>(file: T) -> T {
    if !NOTES.load(Ordering::Relaxed) {
        return file;
    }
    let fd = file.as_raw_fd();
    if let Ok(mut noted) = NOTED.lock()
        && let Some(noted) = &mut *noted
        && let Some(name) = FileName::of(fd)
    {
        if noted.entries.len() >= (2 * noted.looked_at).max(ENTRIES_MIN) {
            noted.entries.retain(|(fd, name)| FileName::of(*fd).as_ref() == Some(name));
            noted.looked_at = noted.entries.len();
        }
        noted.entries.push((fd, name));
    }
    file
}
