//! Whether the program may open an AF_XDP port. The library opens it inside the program, with the
//! program's own rights, or borrows a queue of a broker, which needs none.

use std::error::Error;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use wirepath::device::DeviceError;
use wirepath::device::af_xdp::{AfXdpConfig, ask_broker_to_serve, broker_of, check_broker, does_broker_forward};
use wirepath::worker::topology::CpuList;

use crate::capabilities::{CONNECTX_CAPABILITIES, may_open_connectx, missing_capabilities};
use crate::obstacle::Obstacle;
use crate::root::Root;

/// How long another `wirepath run` may take to start a broker: as long as `wirepath broker
/// --background` waits for it, and a little more.
const STARTS_WITHIN: Duration = Duration::from_secs(30);
/// The interval between two attempts to get its lock.
const LOCK_ASKED_EVERY: Duration = Duration::from_millis(20);

/// The broker to ask, from the root as the program may change its directory: the one that is
/// `wanted`; none where the program may open the port itself and no broker has it, unless a `new`
/// one is to be started; otherwise that of the interface.
pub(super) fn broker(
    root: &Root,
    interface: &str,
    wanted: Option<PathBuf>,
    new: Option<&NewBroker>,
) -> Result<Option<PathBuf>, Obstacle> {
    let wanted = wanted.map(|path| std::path::absolute(&path).unwrap_or(path));
    let (port, connectx) = (interface, interface.strip_prefix("mlx5:"));
    let interface = connectx.unwrap_or(interface);
    if connectx.is_some() && new.is_some_and(|new| new.forward) {
        return Err(Obstacle::new(
            format!("a broker of {port} lends a queue to each program, and passes no frames on"),
            format!("name the interface {interface}, or omit --share"),
        ));
    }
    let may_open = if connectx.is_some() { check_connectx(root, port) } else { check(root) };
    let path = match (wanted, may_open) {
        (wanted, Ok(())) if new.is_some() => {
            let path = wanted.unwrap_or_else(|| broker_of(interface));
            if let Some(new) = new {
                if check_broker(&path, interface).is_err() {
                    new.start(port, interface, &path)?;
                }
                // It may have been started for another program, of another user.
                new.uid.map_or(Ok(()), |uid| ask_broker_to_serve(&path, interface, uid)).map_err(Obstacle::said)?;
            }
            path
        }
        (Some(path), _) => path,
        // Beside the queues of a broker's clients there is room for one of its own.
        (None, Ok(())) if connectx.is_some() => return Ok(None),
        (None, Ok(())) => {
            // A broker has its program there, so a second one would be refused.
            let path = broker_of(interface);
            return match check_broker(&path, interface) {
                Ok(()) => Ok(Some(path)),
                Err(error) if is_absent(&error) => Ok(None),
                Err(error) => Err(Obstacle::said(error)),
            };
        }
        (None, Err(obstacle)) => {
            let path = broker_of(interface);
            if !path.exists() {
                return Err(Obstacle {
                    what: format!("{}, and no broker listens at {}", obstacle.what, path.display()),
                    remedy: format!(
                        "start `wirepath broker --interface {port} --uid USER{}` as root, or {}",
                        if new.is_some_and(|new| new.forward) { " --forward" } else { "" },
                        obstacle.remedy
                    ),
                });
            }
            path
        }
    };
    match does_broker_forward(&path, interface) {
        Ok(false) if new.is_some_and(|new| new.needs_forward) => Err(Obstacle::new(
            format!("the broker at {} lends queues, of which each is one program's", path.display()),
            "start the broker with --forward, or omit --share",
        )),
        Ok(_) => Ok(Some(path)),
        Err(error) => Err(Obstacle::said(error)),
    }
}

/// Whether nobody listens there: the path does not exist, or is that of a broker that has ended.
pub(crate) fn is_absent(error: &DeviceError) -> bool {
    let of_system = error.source().and_then(|source| source.downcast_ref::<io::Error>());
    of_system.is_some_and(|error| matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused))
}

/// A broker that is started for a program, and ends after it.
#[derive(Clone, Debug)]
pub(super) struct NewBroker {
    /// It passes frames on, so that further programs share the interface.
    pub(super) forward: bool,
    /// One that listens already is refused unless it passes frames on.
    pub(super) needs_forward: bool,
    /// The user that it serves beside root.
    pub(super) uid: Option<u32>,
    /// The cores of its threads.
    pub(super) cpus: Option<CpuList>,
}

impl NewBroker {
    /// Starts it at `path`, in the background, until this process has ended, which becomes the
    /// program.
    fn start(&self, port: &str, interface: &str, path: &Path) -> Result<(), Obstacle> {
        // Of two programs that start at the same time, one starts the broker, and both use it.
        let _lock = lock(&path.with_extension("lock"), STARTS_WITHIN).map_err(|error| {
            Obstacle::new(
                format!("no broker can be started at {} ({error})", path.display()),
                "name another path with --broker",
            )
        })?;
        if check_broker(path, interface).is_ok() {
            return Ok(());
        }
        let mut command = Command::new("/proc/self/exe");
        command.args(["broker", "--background", "--interface", port, "--socket"]).arg(path);
        command.args(["--until-exit", &std::process::id().to_string()]);
        command.args(self.forward.then_some("--forward"));
        command.args(self.uid.map(|uid| format!("--uid={uid}")));
        command.args(self.cpus.as_ref().map(|cores| format!("--cpus={cores}")));
        let started = command.stdin(Stdio::null()).stdout(Stdio::null()).status();
        if started.is_ok_and(|status| status.success()) {
            return Ok(());
        }
        Err(Obstacle::new(
            format!("no broker could be started for {interface}, as the lines before say"),
            "start `wirepath broker` by hand, or omit --share, --engines and --user",
        ))
    }
}

/// A lock among all who start a broker at one path; the kernel gives it back with the file. Another
/// user may have put something else at its path, and may hold it for ever.
fn lock(path: &Path, patience: Duration) -> io::Result<File> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let mut options = OpenOptions::new();
    // Neither a link is followed, nor a pipe waited for.
    options.create(true).append(true).mode(0o600).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let file = options.open(path)?;
    let begin = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) if begin.elapsed() > patience => {
                return Err(io::Error::other(format!("another process keeps the lock {}", path.display())));
            }
            Err(TryLockError::WouldBlock) => sleep(LOCK_ASKED_EVERY),
        }
    }
}

/// Whether the program may open an AF_XDP port itself.
pub(crate) fn check(root: &Root) -> Result<(), Obstacle> {
    // If the kernel does not report this, the open of the port reports the missing right.
    let missing = kept(root).map(missing_capabilities).unwrap_or_default();
    if missing.is_empty() {
        return Ok(());
    }
    Err(Obstacle::new(
        format!("the program may not open an AF_XDP port, for lack of {}", missing.join(", ")),
        way_to(AfXdpConfig::CAPABILITIES),
    ))
}

/// Whether the program may drive a ConnectX itself.
fn check_connectx(root: &Root, interface: &str) -> Result<(), Obstacle> {
    if kept(root).is_none_or(may_open_connectx) {
        return Ok(());
    }
    Err(Obstacle::new(
        format!("the program may not open {interface}, for lack of cap_net_raw"),
        way_to(CONNECTX_CAPABILITIES),
    ))
}

fn way_to(capabilities: &str) -> String {
    format!("run this as root, or with those capabilities ambient: AmbientCapabilities= of systemd with {capabilities}")
}

/// The capabilities that execve(2) keeps, as a mask: for root the bounding set, for other users
/// their ambient set (capabilities(7)). `None` where the kernel does not report them.
fn kept(root: &Root) -> Option<u64> {
    let status = root.read("proc/self/status")?;
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    // Effective user: the second of four.
    let user = field("Uid:").and_then(|users| users.split_ascii_whitespace().nth(1));
    let mask = field(if user == Some("0") { "CapBnd:" } else { "CapAmb:" })?;
    u64::from_str_radix(mask, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(status: &str) -> Result<(), Obstacle> {
        by(status, check)
    }

    fn by<T>(status: &str, act: impl FnOnce(&Root) -> T) -> T {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("proc/self")).unwrap();
        fs::write(folder.path().join("proc/self/status"), status).unwrap();
        act(&Root::new(Some(folder.path())))
    }

    const ALL: &str = "000001ffffffffff";
    const NONE: &str = "0000000000000000";

    #[test]
    fn rights_that_outlast_exec_count() {
        assert_eq!(with(&format!("Uid:\t0\t0\t0\t0\nCapAmb:\t{NONE}\nCapEff:\t{ALL}\nCapBnd:\t{ALL}\n")), Ok(()));
        assert_eq!(with(&format!("Uid:\t7\t7\t7\t7\nCapAmb:\t{ALL}\nCapEff:\t{ALL}\nCapBnd:\t{ALL}\n")), Ok(()));
        // File capabilities of this tool do not pass on.
        let missing =
            with(&format!("Uid:\t7\t7\t7\t7\nCapAmb:\t{NONE}\nCapEff:\t{ALL}\nCapBnd:\t{ALL}\n")).unwrap_err();
        assert!(missing.what.contains("cap_net_admin, cap_net_raw, cap_bpf, cap_perfmon"), "{missing:?}");
        // A container's root.
        let missing = with(&format!("Uid:\t0\t0\t0\t0\nCapBnd:\t00000000a80425fb\nCapAmb:\t{NONE}\n")).unwrap_err();
        assert!(missing.what.ends_with("for lack of cap_net_admin, cap_bpf, cap_perfmon"), "{missing:?}");
        assert_eq!(with(""), Ok(()));
    }

    #[test]
    fn frames_of_a_connectx_are_not_passed_on() {
        let new = NewBroker { forward: true, needs_forward: true, uid: None, cpus: None };
        let all = format!("Uid:\t0\t0\t0\t0\nCapBnd:\t{ALL}\n");
        let refused = by(&all, |root| broker(root, "mlx5:eth1", None, Some(&new))).unwrap_err();
        assert!(refused.remedy.starts_with("name the interface eth1, or omit"), "{refused:?}");
    }

    #[test]
    fn program_that_drives_a_connectx_itself_needs_the_right_to_raw_sockets_alone() {
        let with = |mask: &str| {
            let status = format!("Uid:\t7\t7\t7\t7\nCapAmb:\t{mask}\nCapBnd:\t{ALL}\n");
            by(&status, |root| broker(root, "mlx5:eth1", None, None))
        };
        // cap_net_raw and cap_ipc_lock.
        assert_eq!(with("0000000000006000"), Ok(None));
        let refused = with(NONE).unwrap_err();
        assert!(refused.what.contains("may not open mlx5:eth1, for lack of cap_net_raw, and no broker"), "{refused:?}");
        assert!(refused.remedy.starts_with("start `wirepath broker --interface mlx5:eth1 --uid USER`"), "{refused:?}");
        assert!(refused.remedy.ends_with("with cap_net_raw,cap_ipc_lock"), "{refused:?}");
    }

    #[test]
    fn broker_that_answers_otherwise_is_not_absent() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        assert!(is_absent(&check_broker(&path("none.sock"), "lo").unwrap_err()));
        let other = std::os::unix::net::UnixListener::bind(path("other.sock")).unwrap();
        assert!(!is_absent(&check_broker(&path("other.sock"), "lo").unwrap_err()));
        drop(other);
    }

    #[test]
    fn lock_follows_no_link_and_waits_for_no_one_for_ever() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::os::unix::fs::symlink(path("other"), path("link.lock")).unwrap();
        assert!(lock(&path("link.lock"), Duration::ZERO).is_err() && !path("other").exists());
        let held = lock(&path("eth1.lock"), Duration::ZERO).unwrap();
        let refused = lock(&path("eth1.lock"), Duration::ZERO).unwrap_err();
        assert!(refused.to_string().contains("another process keeps the lock"), "{refused}");
        drop(held);
        lock(&path("eth1.lock"), Duration::ZERO).unwrap();
    }

    #[test]
    fn way_on_without_rights_is_a_broker_that_passes_frames_on_where_the_program_needs_one() {
        let none = format!("Uid:\t7\t7\t7\t7\nCapAmb:\t{NONE}\n");
        for (forward, way_on) in [(false, "--uid USER` as root"), (true, "--uid USER --forward` as root")] {
            let new = Some(NewBroker { forward, needs_forward: forward, uid: None, cpus: None });
            let refused = by(&none, |root| broker(root, "no-such-eth1", None, new.as_ref())).unwrap_err();
            assert!(refused.remedy.contains(way_on), "{refused:?}");
        }
    }
}
