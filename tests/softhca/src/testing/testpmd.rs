//! DPDK's `dpdk-testpmd` on a software ConnectX, with DPDK's own driver: its start, and its
//! counters.
//!
//! Flow rules go by verbs (`dv_flow_en=0`), because there is no DevX.
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::fs;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::{Ended, Running, command};

/// DPDK takes some seconds to start, and a busy machine moves 20,000 packets a second.
pub const TIMEOUT: Duration = Duration::from_secs(180);

/// Its output as a receiver once its rules are installed; "Set rxonly packet forwarding mode" comes
/// long before that.
pub const RECEIVES: &str = "rxonly packet forwarding - ports=";

/// Starts it under `softhca run OPTIONS`; `name` is for one end of a cable, `device` for the
/// driver, `mode` begins with the forwarding mode. It uses no hugepages, and any processors.
pub fn start(options: &str, name: &str, device: &str, mode: &str) -> Running {
    let (cpus, address) = (cpus(), address(options));
    // Tests may run at once, and a second primary process of the same prefix does not start.
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let prefix = format!("softhca-{name}-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let eal = format!("--lcores=(0,1)@({cpus}) --no-huge -m 256 --iova-mode=va --no-telemetry --file-prefix={prefix}");
    let port = format!("-a {address},dv_flow_en=0,{device}");
    let command = format!("dpdk-testpmd {eal} {port} -- --stats-period=1 --total-num-mbufs=8192 --forward-mode={mode}");
    Running::start(&format!("--stats {options}"), &command)
}

/// The PCI address that the device has.
fn address(options: &str) -> String {
    let mut command = command(&options.split(' ').collect::<Vec<_>>()).unwrap();
    let output = command.args(["readlink", "-f", "/sys/class/infiniband/mlx5_0/device"]).output().unwrap();
    let path = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    path.rsplit('/').next().unwrap().to_owned()
}

/// The available processors, as a list for EAL.
pub fn cpus() -> String {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim().to_owned()
}

/// Waits until the last count of that name is as large.
pub fn await_count(running: &Running, name: &str, count: u64) {
    let begin = Instant::now();
    while begin.elapsed() < TIMEOUT {
        if counts(&running.said(), name).next_back().is_some_and(|last| last >= count) {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("{name} did not reach {count}: {}", running.said());
}

/// The count of that name that testpmd gives at its end.
pub fn total(ended: &Ended, name: &str) -> u64 {
    let end = ended.said.rsplit_once("Accumulated forward statistics").unwrap_or_else(|| panic!("{}", ended.said)).1;
    counts(end, name).next().unwrap()
}

/// Numbers that follow `name`.
pub fn counts<'a>(said: &'a str, name: &'a str) -> impl DoubleEndedIterator<Item = u64> + 'a {
    // The last line may not be whole yet.
    let lines = said.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    let number = move |line: &str| line.split_once(name)?.1.split_whitespace().next()?.parse().ok();
    lines.filter_map(number).collect::<Vec<_>>().into_iter()
}

/// A counter of the model; zero where it is not printed.
pub fn counter(ended: &Ended, name: &str) -> u64 {
    counts(&ended.said, &format!("  {name} ")).next_back().unwrap_or(0)
}
