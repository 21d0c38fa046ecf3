//! Threads beside the one that trades do not inherit its real-time policy: on its core, where it
//! never sleeps, a kill would not be heard.
#![allow(clippy::unwrap_used, reason = "a panic is the report of a test")]

use std::process::Command;
use std::time::{Duration, Instant};
use std::{fs, io, thread};

use order_entry::risk::KillSwitch;
use order_gateway::control::{self, ControlConfig};
use order_gateway::kernel::{Kernel, dial};
use order_gateway::{Audit, JournalSync, Logger, SyncPolicy};

/// `SCHED_OTHER` and `SCHED_FIFO` of sched(7).
const OTHER: &str = "0";
const FIFO: &str = "1";
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn helpers_have_no_real_time_policy_of_the_thread_that_starts_them() {
    let own = fs::read_link("/proc/thread-self").unwrap();
    let own = own.file_name().unwrap().to_str().unwrap().to_owned();
    let was_set = Command::new("chrt").args(["--fifo", "--pid", "1", &own]).status();
    if !was_set.is_ok_and(|status| status.success()) {
        println!("SKIPPED helpers_have_no_real_time_policy: chrt sets no real-time policy here; root may");
        return;
    }
    assert_eq!(policy_of(&own), FIFO);
    let folder = tempfile::tempdir().unwrap();
    let _audit = Audit::start(&folder.path().join("audit")).unwrap();
    let _sync = JournalSync::start(tempfile::tempfile().unwrap(), SyncPolicy::Timed).unwrap();
    let (socket, kill_file) = (Some(folder.path().join("socket")), Some(folder.path().join("KILL")));
    let logger = Some(Logger::start("", io::sink()).unwrap());
    let config = ControlConfig { socket, kill_file, logger, ..ControlConfig::default() };
    let _heard = control::start(config, KillSwitch::new()).unwrap();
    let _dialer = dial("127.0.0.1:1".parse().unwrap()).unwrap();
    let kernel = Kernel::start();
    let _wall_clock = kernel.follow_wall_clock().unwrap();
    for name in ["audit", "sync", "signals", "kill-file", "control", "logger", "dial", "wall-clock"] {
        assert_eq!(policy_of(&thread_of(name)), OTHER, "{name}");
    }
}

/// The thread of this process that has the name. A thread names itself when it first runs, which on
/// a busy machine is some time after it was started.
fn thread_of(name: &str) -> String {
    let has_name = |thread: &String| {
        fs::read_to_string(format!("/proc/self/task/{thread}/comm")).is_ok_and(|comm| comm.trim_end() == name)
    };
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        let threads = fs::read_dir("/proc/self/task").unwrap().map(|thread| thread.unwrap().file_name());
        let mut threads = threads.map(|thread| thread.into_string().unwrap());
        if let Some(thread) = threads.find(has_name) {
            return thread;
        }
        thread::sleep(Duration::from_millis(1));
    }
    panic!("no thread is called {name}")
}

/// Field 41 of proc_pid_stat(5), behind a name that may have spaces.
fn policy_of(thread: &str) -> String {
    let stat = fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap();
    stat.rsplit(')').next().unwrap().split_whitespace().nth(41 - 3).unwrap().to_owned()
}
