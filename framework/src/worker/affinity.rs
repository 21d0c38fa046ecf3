//! Pins the calling thread to one core, and verifies it.
//!
//! A pin that silently has no effect is the worst failure: everything works, but the scheduler
//! determines the tail of the latency. So we read the mask back from the kernel, and an error names
//! the available cores and the limit that excludes others.
//!
//! The threads that the framework starts beside the workers are its helpers: the mirror of the
//! kernel's tables, the listener to ICMP errors, the monitor of a port, the clocks. They have no
//! real-time policy, and run where [`place_helpers`] says.

use core::fmt;
use std::io;
use std::thread::{Builder, JoinHandle};

use core_affinity::CoreId;

use super::topology::{CpuList, Machine};
use crate::sys::helper;

/// Pins the calling thread to `core` and reads the mask back. Set-up only: several system calls.
///
/// The kernel moves the thread before its call returns, so from here on it runs only on `core`.
pub fn pin(core: usize) -> Result<(), PinError> {
    let machine = Machine::here();
    let online = machine.online();
    if core >= MASK_CORES || online.as_ref().is_some_and(|online| !online.contains(core)) {
        return Err(PinError::NoSuchCore { core, online });
    }
    if !core_affinity::set_for_current(CoreId { id: core }) {
        let source = io::Error::last_os_error();
        return Err(PinError::Refused { core, allowed: machine.allowed(), source });
    }
    match current() {
        Some(cores) if cores.count() == 1 && cores.contains(core) => Ok(()),
        cores => Err(PinError::NoEffect { core, cores }),
    }
}

/// The cores on which the calling thread may run; `None` if the kernel does not report them (more
/// than 1024 CPUs).
pub fn current() -> Option<CpuList> {
    let cores = core_affinity::get_core_ids()?;
    Some(cores.into_iter().map(|core| core.id).collect())
}

/// Has the helpers that start from now on run on these cores. Without it they run where the thread
/// may that starts them: on its one core, if it is pinned. Set-up only: several system calls.
///
/// # Errors
/// A core that is offline, or the kernel does not let this process run on any of them.
pub fn place_helpers(cores: &CpuList) -> Result<(), PinError> {
    let machine = Machine::here();
    let own = current();
    if cores.iter().any(|core| own.as_ref().is_none_or(|own| !own.contains(core))) {
        let online = machine.online();
        let is_there = |core| core < MASK_CORES && online.as_ref().is_none_or(|online| online.contains(core));
        if let Some(core) = cores.iter().find(|core| !is_there(*core)) {
            return Err(PinError::NoSuchCore { core, online });
        }
    }
    let refused = |source| PinError::Refused { core: cores.last().unwrap_or(0), allowed: machine.allowed(), source };
    helper::place(cores.iter()).map_err(refused)
}

/// Starts a helper of the caller's own: without a real-time policy, where
/// [`place_helpers`] says. The calling thread places it before it begins, so that it does not wait
/// on a core that the caller keeps busy.
///
/// # Errors
/// The kernel has no room for a thread.
pub fn spawn_helper<T: Send + 'static>(
    thread: Builder,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    helper::spawn(thread, work)
}

/// Bits of the C library's `cpu_set_t`. core_affinity indexes it without a check.
const MASK_CORES: usize = 1024;

/// Why a thread could not be pinned.
#[derive(Debug)]
#[non_exhaustive]
pub enum PinError {
    /// The machine has no such core, or it is offline.
    NoSuchCore {
        /// The requested core.
        core: usize,
        /// The online cores, if /sys lists them.
        online: Option<CpuList>,
    },
    /// The kernel refused: the cgroup of this process does not include the core, or a sandbox
    /// forbids the call.
    Refused {
        /// The requested core.
        core: usize,
        /// The cores that the cgroup and the affinity of this process allow, if /proc lists them.
        allowed: Option<CpuList>,
        /// The kernel's error.
        source: io::Error,
    },
    /// The kernel reported success, but the thread may still run elsewhere.
    NoEffect {
        /// The requested core.
        core: usize,
        /// Where the thread may run, if the kernel reported it.
        cores: Option<CpuList>,
    },
}

impl fmt::Display for PinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchCore { core, online } => write!(
                f,
                "cannot pin to core {core}: this machine has cores {} on line; choose one of them (`lscpu --extended` \
                 shows them) or bring it up with `echo 1 > /sys/devices/system/cpu/cpu{core}/online`",
                Known(online)
            ),
            Self::Refused { core, allowed, source } => write!(
                f,
                "cannot pin to core {core}: {source}; this process is allowed cores {} by its cgroup or taskset; choose \
                 one of them, or start it with `systemd-run --scope -p AllowedCPUs={core} COMMAND` (in a container: \
                 `docker run --cpuset-cpus={core}`)",
                Known(allowed)
            ),
            Self::NoEffect { core, cores } => write!(
                f,
                "pinning to core {core} had no effect: the thread may still run on cores {}; look for a program that \
                 changes affinities (`ps -e | grep -E 'numad|tuned|cpuset'`) and for a sandbox that fakes the call",
                Known(cores)
            ),
        }
    }
}

impl std::error::Error for PinError {}

/// A list, or words that it is unknown.
struct Known<'a>(&'a Option<CpuList>);

impl fmt::Display for Known<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(list) => list.fmt(f),
            None => f.write_str("(unknown)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn core_that_does_not_exist_is_refused_with_those_that_do() {
        for core in [1023, 1024, 8192, usize::MAX] {
            let message = pin(core).unwrap_err().to_string();
            assert!(message.starts_with(&format!("cannot pin to core {core}: this machine has cores ")), "{message}");
            assert!(message.contains("lscpu"), "{message}");
        }
    }

    #[test]
    fn helper_runs_where_helpers_do_and_not_where_its_starter_is_pinned() {
        let Some(all) = current().filter(|cores| cores.count() > 1) else {
            return eprintln!("SKIPPED helper_runs_where_helpers_do_and_not_where_its_starter_is_pinned: one core");
        };
        place_helpers(&all).unwrap();
        let core = all.last().unwrap();
        let starter = thread::spawn(move || {
            pin(core).unwrap();
            spawn_helper(Builder::new(), || current().unwrap()).unwrap().join().unwrap()
        });
        assert_eq!(starter.join().unwrap(), all);
        assert_eq!(current().unwrap(), all, "the caller's own are as before");
    }

    #[test]
    fn helpers_are_placed_on_no_core_that_is_not_there() {
        let cores = CpuList::parse("0,1023").unwrap();
        let message = place_helpers(&cores).unwrap_err().to_string();
        assert!(message.starts_with("cannot pin to core 1023: this machine has cores "), "{message}");
    }

    #[test]
    fn refusal_names_core_allowed_cores_and_command() {
        let allowed = Some(CpuList::parse("0-1").unwrap());
        let message = PinError::Refused { core: 3, allowed, source: io::Error::from_raw_os_error(22) }.to_string();
        for part in ["core 3", "cores 0-1", "AllowedCPUs=3", "Invalid argument"] {
            assert!(message.contains(part), "{message}");
        }
    }

    #[test]
    fn pinned_thread_runs_on_its_core_only() {
        let allowed = current().unwrap();
        for core in allowed.iter() {
            thread::spawn(move || {
                pin(core).unwrap();
                assert_eq!(current().unwrap().iter().collect::<Vec<_>>(), [core]);
                assert_eq!(core_of_this_thread(), Some(core));
            })
            .join()
            .unwrap();
        }
    }

    #[test]
    fn thread_may_be_pinned_again() {
        thread::spawn(|| {
            for core in current().unwrap().iter() {
                pin(core).unwrap();
            }
        })
        .join()
        .unwrap();
    }

    /// Field 39 of /proc/thread-self/stat, proc_pid_stat(5): the CPU the thread last ran on. The
    /// command's name, field 2, is in parentheses and may contain spaces.
    fn core_of_this_thread() -> Option<usize> {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").ok()?;
        let (_, after_name) = stat.rsplit_once(')')?;
        after_name.split_whitespace().nth(39 - 3)?.parse().ok()
    }
}
