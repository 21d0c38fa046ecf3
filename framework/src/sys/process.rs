//! The user and the privileges of this process (geteuid(2), getauxval(3)), the end of another
//! (pidfd_open(2)), and the clocks of the system and of NICs (clock_gettime(2)).
//!
//! Invariants:
//! 1. clock_gettime(2) writes one timespec, or nothing and fails; it touches no other memory.
//! 2. A descriptor that the kernel returns is new and has no other owner.
//! 3. capget(2) and capset(2) of version 3 read a header of two words and have two sets of three
//!    words; any words are a valid value.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use super::socket::check;

/// The effective user of this process.
pub(crate) fn effective_user() -> u32 {
    // SAFETY: no address is passed, and the call cannot fail.
    unsafe { libc::geteuid() }
}

/// Whether the program has privileges that its user may lack: setuid, setgid or file capabilities
/// (getauxval(3), AT_SECURE). The linker then ignores `LD_PRELOAD` and similar variables.
pub(crate) fn is_privileged() -> bool {
    // SAFETY: a number from the vector that the kernel passed to the process; no address is passed.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// A descriptor that is readable once process `pid` has ended.
pub(crate) fn pidfd_open(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: no address is passed.
    let fd = check(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) } as i32)?;
    // SAFETY: new (2).
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Runs `act` without the capabilities that the calling thread has in force, and gives them back.
/// What the kernel remembers of them, as an opened file does, remembers none.
///
/// # Errors
/// The kernel does not let go of them, and `act` has not run.
#[cfg_attr(not(all(feature = "mlx5", feature = "af-xdp")), allow(dead_code))] // for queues of a NIC that are lent
pub(crate) fn without_capabilities<T>(act: impl FnOnce() -> T) -> io::Result<T> {
    struct Restore([CapabilitySet; 2]);
    impl Drop for Restore {
        fn drop(&mut self) {
            // They are permitted still, so nothing can be refused.
            let _ = capabilities(libc::SYS_capset, &mut self.0);
        }
    }
    let mut sets = [CapabilitySet::default(); 2];
    capabilities(libc::SYS_capget, &mut sets)?;
    capabilities(libc::SYS_capset, &mut sets.map(|set| CapabilitySet { effective: 0, ..set }))?;
    let _restore = Restore(sets);
    Ok(act())
}

/// `struct __user_cap_data_struct`, capget(2): 32 capabilities each.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct CapabilitySet {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Reads or writes the sets of the calling thread.
fn capabilities(call: libc::c_long, sets: &mut [CapabilitySet; 2]) -> io::Result<()> {
    // Version 3, and the calling thread.
    let header = [0x2008_0522u32, 0];
    // SAFETY: the kernel reads the header, and reads or writes two sets (3).
    check(unsafe { libc::syscall(call, &raw const header, sets.as_mut_ptr()) } as i32).map(drop)
}

/// The current time of a clock. The system's own takes no system call (vDSO); a NIC's is read over
/// PCIe by its driver.
pub(crate) fn clock_gettime(clock: libc::clockid_t) -> io::Result<libc::timespec> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: (1); the timespec is ours.
    check(unsafe { libc::clock_gettime(clock, &raw mut time) })?;
    Ok(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_gone_meanwhile_and_back_afterwards() {
        let effective = || {
            let mut sets = [CapabilitySet::default(); 2];
            capabilities(libc::SYS_capget, &mut sets).unwrap();
            sets.map(|set| set.effective)
        };
        let before = effective();
        assert_eq!(without_capabilities(effective).unwrap(), [0, 0]);
        assert_eq!(effective(), before);
        if before == [0, 0] {
            println!("SKIPPED capabilities_are_gone_meanwhile_and_back_afterwards: there are none; run as root");
        }
    }
}
