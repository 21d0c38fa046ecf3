//! How long a broker that was started for a process is needed: until the process has ended, and no
//! program has been served for a while. The first process of a daemon ends at once, and its child
//! connects to the broker a moment later.

use std::time::{Duration, Instant};

use crate::root::Root;

/// How long a broker without clients waits for further programs.
const UNUSED_MAX: Duration = Duration::from_secs(10);

/// The process that needs the broker.
pub(super) struct Lifetime {
    process: Option<Process>,
    unused_since: Option<Instant>,
}

/// A process, by its number and its start time, because numbers are used again.
struct Process {
    pid: u32,
    started: String,
}

impl Lifetime {
    /// For the process `pid`. Without one, the broker is needed until the operator stops it.
    pub(super) fn new(root: &Root, pid: Option<u32>) -> Self {
        let process = pid.map(|pid| Process { pid, started: started(root, pid).unwrap_or_default() });
        Self { process, unused_since: None }
    }

    /// Whether the broker is needed while it serves `clients` programs.
    pub(super) fn is_needed(&mut self, root: &Root, clients: usize, now: Instant) -> bool {
        let Some(process) = &self.process else { return true };
        if clients > 0 || started(root, process.pid).is_some_and(|started| started == process.started) {
            self.unused_since = None;
            return true;
        }
        now.duration_since(*self.unused_since.get_or_insert(now)) < UNUSED_MAX
    }
}

/// When a process started, in ticks since boot (proc(5), field 22 of `stat`). `None` if it has
/// ended, even if its parent has not waited for it yet.
fn started(root: &Root, pid: u32) -> Option<String> {
    let stat = root.read(&format!("proc/{pid}/stat"))?;
    // The second field is the name in parentheses, which may hold any bytes.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let is_zombie = fields.next()? == "Z";
    fields.nth(18).filter(|_| !is_zombie).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn broker_outlives_its_process_by_its_clients_and_ten_seconds() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("proc/7")).unwrap();
        let becomes = |state: &str, started: u32| {
            let zeros = "0 ".repeat(18);
            fs::write(folder.path().join("proc/7/stat"), format!("7 (a) b) {state} {zeros}{started} 0\n")).unwrap();
        };
        becomes("S", 100);
        let root = Root::new(Some(folder.path()));
        let (mut lifetime, begin) = (Lifetime::new(&root, Some(7)), Instant::now());
        let mut at = |seconds, clients| lifetime.is_needed(&root, clients, begin + Duration::from_secs(seconds));
        assert!(at(0, 0) && at(100, 0), "the process runs");
        becomes("Z", 100);
        assert!(at(101, 0) && at(110, 0), "it has just ended");
        assert!(at(111, 1) && at(200, 1), "it left a program behind");
        // Another process has the same number.
        becomes("R", 200);
        assert!(at(201, 0) && at(210, 0));
        assert!(!at(211, 0));
        assert!(Lifetime::new(&root, None).is_needed(&root, 0, begin), "a broker of the operator's stays");
    }
}
