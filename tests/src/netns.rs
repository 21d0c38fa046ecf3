//! Network namespaces for tests that need live ports: their names contain the process that made
//! them; single threads enter them; they are removed when the test ends. The next run removes those
//! that a killed run left behind.
//!
//! Entering a namespace is `setns(2)`, for which the standard library has no call.
//!
//! Invariants:
//! 1. Descriptors passed to system calls are open: they are borrowed from a `File` for the call. No
//!    addresses are passed.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

/// Where iproute2 keeps the names.
const DIRECTORY: &str = "/run/netns";
/// The prefix of our names; the process id, a dash and a number follow.
const PREFIX: &str = "wirepath-";

/// A network namespace of this test. Dropping it removes it, and with it the interfaces in it.
#[derive(Debug)]
pub struct Namespace {
    name: String,
}

impl Namespace {
    /// Makes a namespace whose loopback is up and that has no IPv6, so that it contains only frames
    /// that a test sent.
    ///
    /// # Errors
    /// A sentence, if the machine does not permit it: no root, no iproute2.
    pub fn new() -> Result<Self, String> {
        static CLEANED: Once = Once::new();
        static COUNT: AtomicU32 = AtomicU32::new(0);
        CLEANED.call_once(remove_those_of_the_dead);
        let name = format!("{PREFIX}{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        ip(&["netns", "add", &name])?;
        let namespace = Self { name };
        namespace.ip(&["link", "set", "lo", "up"])?;
        namespace.run(|| {
            for scope in ["all", "default"] {
                // A kernel without IPv6 is quiet anyway.
                let _ = fs::write(format!("/proc/sys/net/ipv6/conf/{scope}/disable_ipv6"), "1");
            }
        });
        Ok(namespace)
    }

    /// Its name, as `ip netns` shows it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs `ip` in the namespace.
    ///
    /// # Errors
    /// The output of `ip`.
    pub fn ip(&self, arguments: &[&str]) -> Result<String, String> {
        ip(&[&["-n", self.name.as_str()], arguments].concat())
    }

    /// Runs a program in the namespace and waits for it.
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn command(&self, program: &str, arguments: &[&str]) -> io::Result<Output> {
        let inside = ["netns", "exec", self.name.as_str(), program];
        Command::new("ip").args(inside).args(arguments).output()
    }

    /// Ends the processes that run in the namespace: programs that a test started, and what these
    /// have left behind.
    pub fn end_processes(&self) {
        let pids = ip(&["netns", "pids", &self.name]).unwrap_or_default();
        if !pids.is_empty() {
            // One that has ended meanwhile is as good.
            let _ = Command::new("kill").arg("-KILL").args(pids.split_whitespace()).output();
        }
    }

    /// Makes a veth pair: `here` in this namespace, `there` in `other`, which may be the same. Both
    /// are up.
    ///
    /// # Errors
    /// The output of `ip`.
    pub fn veth(&self, here: &str, other: &Self, there: &str) -> Result<(), String> {
        self.ip(&["link", "add", here, "type", "veth", "peer", "name", there, "netns", &other.name])?;
        self.ip(&["link", "set", here, "up"])?;
        other.ip(&["link", "set", there, "up"])?;
        Ok(())
    }

    /// Runs `act` on a new thread inside the namespace, and returns its result. A panic in it is
    /// passed to the caller.
    pub fn run<T: Send>(&self, act: impl FnOnce() -> T + Send) -> T {
        run_in(&self.name, act)
    }

    /// Moves the calling thread into the namespace, for good.
    ///
    /// # Errors
    /// The namespace is gone, or we are not root.
    pub fn enter(&self) -> io::Result<()> {
        enter(&self.name)
    }

    /// Removes the namespace now, interfaces included.
    pub fn remove(self) {}
}

impl Drop for Namespace {
    /// Also ends what a failed test has left behind, such as the workers of a killed server.
    fn drop(&mut self) {
        self.end_processes();
        // A namespace that a test has removed itself counts as removed.
        let _ = ip(&["netns", "del", &self.name]);
    }
}

/// As [`Namespace::run`], in a namespace that another process may have made.
pub fn run_in<T: Send>(name: &str, act: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let entered = scope.spawn(|| {
            enter(name).expect("the namespace of this test can be entered");
            act()
        });
        match entered.join() {
            Ok(value) => value,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// Moves the calling thread into the namespace `name`, which another process may have made.
///
/// # Errors
/// The namespace does not exist, or we are not root.
pub fn enter(name: &str) -> io::Result<()> {
    let file = File::open(Path::new(DIRECTORY).join(name))?;
    // SAFETY: an open descriptor and no address (1).
    if unsafe { libc::setns(file.as_raw_fd(), libc::CLONE_NEWNET) } == 0 {
        return Ok(());
    }
    Err(io::Error::last_os_error())
}

fn ip(arguments: &[&str]) -> Result<String, String> {
    let output = Command::new("ip").args(arguments).output().map_err(|error| format!("ip (iproute2): {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(format!("ip {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim()))
}

/// Removes the namespaces of processes that are no more.
fn remove_those_of_the_dead() {
    let Ok(entries) = fs::read_dir(DIRECTORY) else { return };
    for name in entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()) {
        if owner(&name).is_some_and(is_dead) {
            let _ = ip(&["netns", "del", &name]);
        }
    }
}

/// The process that made a namespace, if a test did: others have names of other forms.
fn owner(name: &str) -> Option<&str> {
    let (process, _) = name.strip_prefix(PREFIX)?.split_once('-')?;
    process.bytes().all(|byte| byte.is_ascii_digit()).then_some(process)
}

/// Whether the process has ended. A process that was killed but not yet waited for is still listed,
/// but runs no program.
fn is_dead(pid: &str) -> bool {
    fs::read_link(Path::new("/proc").join(pid).join("exe")).is_err()
}

#[cfg(test)]
mod tests {
    use super::owner;

    #[test]
    fn namespace_that_no_test_made_has_no_owner() {
        assert_eq!(owner("wirepath-4711-0"), Some("4711"));
        for name in ["wirepath-demo-ours-4711", "wirepath-4711", "demo-ours-4711", "4711-0"] {
            assert_eq!(owner(name), None, "{name}");
        }
    }
}
