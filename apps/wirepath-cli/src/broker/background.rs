//! Starts a broker that keeps running after the tool that started it has ended. It is no child of
//! the program that the tool becomes, because a program does not expect children that it did not
//! make.

use std::env::{args_os, current_exe};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use wirepath::device::af_xdp::check_broker;
use wirepath::worker::broker::BrokerConfig;

/// How long the start may take. A broker listens within moments, or ends with a sentence.
const LISTENS_WITHIN: Duration = Duration::from_secs(20);
/// The interval between two attempts to connect.
const ASKED_EVERY: Duration = Duration::from_millis(20);

/// Starts the broker of this command line once more, without `--background`, and returns when it
/// listens. When this process ends, init adopts the broker. The broker logs into a file beside its
/// socket, because a pipe from this process stays open for its reader as long as any process can
/// write to it.
pub(super) fn start(config: &BrokerConfig) -> Result<(), String> {
    let path = config.path.with_extension("log");
    let log = open(&path).map_err(|error| format!("cannot make its log {}: {error}", path.display()))?;
    let tool = current_exe().map_err(|error| format!("cannot find this program ({error}): omit --background"))?;
    let mut command = Command::new(tool);
    command.args(args_os().skip(1).filter(|argument| argument != "--background")).arg("--bounded-log");
    // A process group of its own, so that Ctrl-C at the program's terminal does not end the broker.
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).process_group(0);
    let mut broker = command.spawn().map_err(|error| format!("cannot start the broker: {error}"))?;
    let begin = Instant::now();
    while let Err(why) = check_broker(&config.path, &config.port.interface) {
        if broker.try_wait().is_ok_and(|status| status.is_some()) {
            let said = fs::read_to_string(&path).unwrap_or_default();
            return Err(said
                .lines()
                .last()
                .map_or_else(|| why.to_string(), |line| line.trim_start_matches("wirepath: ").into()));
        }
        if begin.elapsed() > LISTENS_WITHIN {
            let _ = broker.kill();
            return Err(format!("the broker does not listen after {} s: {why}", LISTENS_WITHIN.as_secs()));
        }
        sleep(ASKED_EVERY);
    }
    Ok(())
}

/// Creates a new file that only root may read. Removes an old one, and follows no link.
fn open(path: &Path) -> io::Result<File> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // Each line goes to the end, also once the log has begun anew.
    OpenOptions::new().append(true).create_new(true).mode(0o600).open(path)
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
}
