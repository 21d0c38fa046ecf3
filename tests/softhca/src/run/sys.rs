//! System calls that the standard library lacks: mounts, namespaces, signals that are waited for,
//! files that others open.
//!
//! Invariants:
//! 1. Every address that is passed comes from a C string or reference that is borrowed until the
//!    call has returned.
//! 2. The kernel and libc write only into plain data: any bytes are a valid value.
//! 3. Between fork and exec only async-signal-safe functions are called.
//! 4. A descriptor that the kernel returns is new and has no other owner.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::mem::zeroed;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use libc::{c_int, c_ulong};

/// mount(2). Empty strings are not passed.
#[derive(Default)]
pub(super) struct Mount<'a> {
    pub(super) source: &'a str,
    pub(super) target: &'a str,
    pub(super) kind: &'a str,
    pub(super) flags: c_ulong,
    pub(super) options: &'a str,
}

pub(super) fn mount(mount: &Mount<'_>) -> io::Result<()> {
    let [source, target, kind, options] = [mount.source, mount.target, mount.kind, mount.options].map(CString::new);
    let (source, target, kind, options) = (source?, target?, kind?, options?);
    let [source, kind, options] =
        [&source, &kind, &options].map(|text| if text.is_empty() { std::ptr::null() } else { text.as_ptr() });
    // SAFETY: 1: the strings live until the end of this function.
    check(unsafe { libc::mount(source, target.as_ptr(), kind, mount.flags, options.cast()) })
}

/// Leaves the namespaces that are named by `CLONE_NEW…`, for new ones.
pub(super) fn unshare(flags: c_int) -> io::Result<()> {
    // SAFETY: no address is passed.
    check(unsafe { libc::unshare(flags) })
}

/// Makes a directory of an overlay's layer hide that of the layers below.
pub(super) fn make_opaque(directory: &Path) -> io::Result<()> {
    let path = CString::new(directory.as_os_str().as_bytes())?;
    let value = b"y";
    // SAFETY: 1.
    check(unsafe {
        libc::setxattr(path.as_ptr(), c"trusted.overlay.opaque".as_ptr(), value.as_ptr().cast(), value.len(), 0)
    })
}

/// A node like `/dev/zero`: libibverbs wants a character device with the numbers that sysfs shows,
/// and a shared mapping of it is memory.
pub(super) fn make_zero_node(path: &Path) -> io::Result<()> {
    let name = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: 1.
    check(unsafe { libc::mknod(name.as_ptr(), libc::S_IFCHR | 0o666, libc::makedev(1, 5)) })?;
    // Whatever the umask says.
    // SAFETY: 1.
    check(unsafe { libc::chmod(name.as_ptr(), 0o666) })
}

/// The command is killed when we are, because no one would wait for it then. It starts with the
/// signal mask from before `signals` were blocked.
pub(super) fn prepare(command: &mut Command, signals: &Signals) {
    let before = signals.before;
    // SAFETY: 1, 3: prctl(2) and sigprocmask(2) are system calls, and the closure makes no other
    // calls.
    unsafe {
        command.pre_exec(move || {
            check(libc::sigprocmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()))?;
            check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL))
        });
    }
}

/// Sends a signal to our child, which has not been waited for.
pub(super) fn kill(child: u32, signal: c_int) {
    // SAFETY: no address is passed.
    unsafe { libc::kill(child as libc::pid_t, signal) };
}

/// The meaning of a received signal.
pub(super) enum Signal {
    /// A child may have ended.
    Child,
    /// From the terminal, whose processes all got it.
    Terminal,
    /// From another process, which does not know of the child.
    ToPass(c_int),
}

/// Signals that are blocked and waited for.
pub(super) struct Signals {
    waited_for: libc::sigset_t,
    before: libc::sigset_t,
}

impl Signals {
    /// Blocks them.
    pub(super) fn block() -> io::Result<Self> {
        // SAFETY: 2: a set of signals is plain data; the functions get references.
        unsafe {
            let (mut set, mut before): (libc::sigset_t, libc::sigset_t) = (zeroed(), zeroed());
            libc::sigemptyset(&raw mut set);
            for signal in
                [libc::SIGCHLD, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP, libc::SIGUSR1, libc::SIGUSR2]
            {
                libc::sigaddset(&raw mut set, signal);
            }
            check(libc::sigprocmask(libc::SIG_BLOCK, &raw const set, &raw mut before))?;
            Ok(Self { waited_for: set, before })
        }
    }

    /// The next one.
    pub(super) fn next(&self) -> Signal {
        // SAFETY: 1, 2: set and information are borrowed for the call.
        let (signal, information) = unsafe {
            let mut information: libc::siginfo_t = zeroed();
            (libc::sigwaitinfo(&raw const self.waited_for, &raw mut information), information)
        };
        match signal {
            libc::SIGINT | libc::SIGQUIT if information.si_code == SI_KERNEL => Signal::Terminal,
            // Nothing, where another signal interrupted the wait.
            -1 | libc::SIGCHLD => Signal::Child,
            other => Signal::ToPass(other),
        }
    }
}

/// A file that processes open only with our permission (fanotify(7), FAN_OPEN_PERM).
pub(super) struct OpenPermissions(File);

/// A process opens the file, and waits for the permission.
pub(super) struct OpenRequest {
    pub(super) process: libc::pid_t,
    /// The file as the process gets it; closed after the answer.
    file: OwnedFd,
}

/// Bytes of `struct fanotify_event_metadata`: len u32, version, reserved u8, len u16, mask u64,
/// descriptor i32, process i32.
const EVENT_LEN: usize = 24;

impl OpenPermissions {
    /// Requests permission events of this file from now on. EPERM without CAP_SYS_ADMIN of the
    /// machine itself.
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        let path = CString::new(path.as_os_str().as_bytes())?;
        let (kind, flags) = (libc::FAN_CLASS_CONTENT | libc::FAN_CLOEXEC, libc::O_RDONLY | libc::O_CLOEXEC);
        // SAFETY: no address is passed.
        let descriptor = unsafe { libc::fanotify_init(kind, flags.cast_unsigned()) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: 4.
        let group = unsafe { File::from_raw_fd(descriptor) };
        // SAFETY: 1.
        check(unsafe {
            libc::fanotify_mark(
                group.as_raw_fd(),
                libc::FAN_MARK_ADD,
                libc::FAN_OPEN_PERM,
                libc::AT_FDCWD,
                path.as_ptr(),
            )
        })?;
        Ok(Self(group))
    }

    /// The next one.
    pub(super) fn next(&self) -> io::Result<OpenRequest> {
        // One event fits, and the kernel returns only whole events.
        let mut event = [0; EVENT_LEN];
        (&self.0).read_exact(&mut event)?;
        let [.., d0, d1, d2, d3, p0, p1, p2, p3] = event;
        let (descriptor, process) = (c_int::from_ne_bytes([d0, d1, d2, d3]), c_int::from_ne_bytes([p0, p1, p2, p3]));
        if descriptor < 0 {
            return Err(io::Error::other("the queue of events ran over"));
        }
        // SAFETY: 4.
        Ok(OpenRequest { process, file: unsafe { OwnedFd::from_raw_fd(descriptor) } })
    }

    /// Lets him, or refuses it with EPERM.
    pub(super) fn answer(&self, opening: OpenRequest, is_allowed: bool) {
        let response = if is_allowed { libc::FAN_ALLOW } else { libc::FAN_DENY };
        let answer = [opening.file.as_raw_fd().to_ne_bytes(), response.to_ne_bytes()].concat();
        // Where it does not come through, he is let in when we end.
        let _ = (&self.0).write_all(&answer);
    }
}

/// asm-generic/siginfo.h: the kernel itself sent it.
const SI_KERNEL: c_int = 0x80;

fn check(result: c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
