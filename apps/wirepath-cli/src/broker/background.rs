//! Starts a broker that keeps running after the tool that started it has ended. It is no child of
//! the program that the tool becomes, because a program does not expect children that it did not
//! make.

use std::env::{args_os, current_exe};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use wirepath::device::af_xdp::check_broker;
use wirepath::worker::broker::BrokerConfig;

use super::log::LINE_START;
use crate::run::is_absent;
use crate::sys;

/// How long the start may take. A broker listens within moments, or ends with a sentence.
const LISTENS_WITHIN: Duration = Duration::from_secs(20);
/// The interval between two attempts to connect.
const ASKED_EVERY: Duration = Duration::from_millis(20);

/// Starts the broker of this command line once more, without `--background`, and returns when it
/// listens. When this process ends, init adopts the broker. The broker logs into a file beside its
/// socket, because a pipe from this process stays open for its reader as long as any process can
/// write to it. For the same reason it has none of the caller's descriptors: a lock, a socket or a
/// pipe would outlast the caller. Nor has it his folder, which could not be unmounted.
pub(super) fn start(config: &BrokerConfig) -> Result<(), String> {
    // The log of a broker that is there is not ours to begin anew.
    match check_broker(&config.path, config.port.interface()) {
        Ok(()) => return Err(format!("another broker listens at {}: stop it, or use it", config.path.display())),
        Err(error) if is_absent(&error) => (),
        Err(error) => return Err(error.to_string()),
    }
    let path = config.path.with_extension("log");
    let log = open(&path).map_err(|error| format!("cannot make its log {}: {error}", path.display()))?;
    let tool = current_exe().map_err(|error| format!("cannot find this program ({error}): omit --background"))?;
    sys::keep_descriptors_from_programs()
        .map_err(|error| format!("cannot close the caller's descriptors ({error}): omit --background"))?;
    let mut command = Command::new(tool);
    command.args(args_os().skip(1).filter(|argument| argument != "--background")).arg("--bounded-log");
    command.env_remove("LD_PRELOAD");
    // A process group of its own, so that Ctrl-C at the program's terminal does not end the broker.
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).process_group(0);
    // A program that is started with a real-time policy is to keep it for itself.
    sys::leave_real_time();
    let mut broker = command.spawn().map_err(|error| format!("cannot start the broker: {error}"))?;
    let begin = Instant::now();
    while let Err(why) = check_broker(&config.path, config.port.interface()) {
        if broker.try_wait().is_ok_and(|status| status.is_some()) {
            let said = fs::read_to_string(&path).unwrap_or_default();
            return Err(said
                .lines()
                .last()
                .map_or_else(|| why.to_string(), |line| line.trim_start_matches(LINE_START).into()));
        }
        if begin.elapsed() > LISTENS_WITHIN {
            let _ = broker.kill();
            return Err(format!("the broker does not listen after {} s: {why}", LISTENS_WITHIN.as_secs()));
        }
        sleep(ASKED_EVERY);
    }
    Ok(())
}

/// Creates a new file that only root may read. Removes an old one, and follows no link. The file of
/// somebody else stays: only the socket's name was chosen, and not that of the log.
fn open(path: &Path) -> io::Result<File> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    match fs::symlink_metadata(path) {
        Ok(old) if old.is_file() && !is_log(path)? => {
            return Err(io::Error::other("there is such a file, and it is no broker's log; name another --socket"));
        }
        Ok(_) => fs::remove_file(path)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    // Each line goes to the end, also once the log has begun anew.
    OpenOptions::new().append(true).create_new(true).mode(0o600).open(path)
}

/// Whether a file is empty or begins like a broker's log.
fn is_log(path: &Path) -> io::Result<bool> {
    let mut start = Vec::new();
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
    file.take(LINE_START.len() as u64).read_to_end(&mut start)?;
    Ok(start.is_empty() || start == LINE_START.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_is_a_new_file_and_never_where_a_link_leads() {
        let folder = tempfile::tempdir().unwrap();
        let (log, other) = (folder.path().join("new/eth1.log"), folder.path().join("other"));
        drop(open(&log).unwrap());
        fs::write(&other, "precious").unwrap();
        fs::remove_file(&log).unwrap();
        std::os::unix::fs::symlink(&other, &log).unwrap();
        drop(open(&log).unwrap());
        assert_eq!(fs::read_to_string(&other).unwrap(), "precious");
        assert!(fs::symlink_metadata(&log).unwrap().is_file());
    }

    #[test]
    fn log_takes_the_place_of_an_older_one_and_of_no_other_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("engine.log");
        fs::write(&path, "wirepath: eth1, mtu 1500\n").unwrap();
        drop(open(&path).unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), "");
        fs::write(&path, "the engine's own lines\n").unwrap();
        assert!(open(&path).unwrap_err().to_string().contains("no broker's log"));
        assert_eq!(fs::read_to_string(&path).unwrap(), "the engine's own lines\n");
    }
}
