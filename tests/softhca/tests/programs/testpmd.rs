//! DPDK's own mlx5 driver at both ends of a veth: `dpdk-testpmd` sends as fast as it can, and receives with each kind of ring that the
//! driver has. Both sides count the same, and so does the model under each.
//!
//! The sender's driver uses multi-packet WQEs, as it does by default. Flow rules go by verbs (`dv_flow_en=0`), because there is no DevX.

use std::fs;
use std::time::{Duration, Instant};

use softhca::testing;

use crate::stage::{Ended, Running, is_inside, veth};

const PACKETS: u64 = 500_000;

/// DPDK takes some seconds to start, and a busy machine moves 20,000 packets a second.
const PATIENCE: Duration = Duration::from_secs(180);

/// A receiving side.
struct Receiver {
    /// What the driver is told.
    device: &'static str,
    /// What testpmd is told.
    options: &'static str,
    /// What the model is told.
    model: &'static str,
    /// Whether its completions are compressed then, and its ring one of several frames a WQE, as the model counts it.
    compressed: bool,
    striding: bool,
}

const PLAIN: Receiver =
    Receiver { device: "rxq_cqe_comp_en=0", options: "", model: "", compressed: false, striding: false };

#[test]
fn plain_receive_has_what_was_sent() {
    check("plain_receive_has_what_was_sent", &Receiver { model: "--strict ", ..PLAIN });
}

#[test]
fn compressed_completions_are_read_by_the_vector_code() {
    let device = "rxq_cqe_comp_en=1,rx_vec_en=1";
    check("compressed_completions_are_read_by_the_vector_code", &Receiver { device, compressed: true, ..PLAIN });
}

#[test]
fn compressed_completions_are_read_by_the_scalar_code() {
    let device = "rxq_cqe_comp_en=1,rx_vec_en=0";
    check("compressed_completions_are_read_by_the_scalar_code", &Receiver { device, compressed: true, ..PLAIN });
}

/// The driver wants more descriptors than by default for it.
#[test]
fn striding_ring_has_what_was_sent() {
    let (device, options) = ("mprq_en=1,rxqs_min_mprq=1,rxq_cqe_comp_en=0", " --rxd=1024");
    check("striding_ring_has_what_was_sent", &Receiver { device, options, striding: true, ..PLAIN });
}

fn check(test: &str, receiver: &Receiver) {
    if !is_inside(&format!("testpmd::{test}"), "dpdk-testpmd", "dpdk-dev") {
        return;
    }
    veth();
    let (model, mode) = (format!("{}--wire veth0", receiver.model), format!("rxonly{}", receiver.options));
    let mut there = start(&model, "receiver", receiver.device, &mode);
    assert!(there.says("rxonly packet forwarding", PATIENCE), "{}", there.end(Duration::ZERO).said);
    // The sender's model drops nothing either: frames wait where the cable is busy.
    let here = start("--wire veth1", "sender", "rxq_cqe_comp_en=0", "txonly");
    await_count(&here, "TX-packets:", PACKETS);
    here.interrupt();
    let sent = here.end(PATIENCE);
    let count = total(&sent, "TX-packets:");
    await_count(&there, "RX-packets:", count);
    there.interrupt();
    let received = there.end(PATIENCE);

    assert_eq!(total(&received, "RX-packets:"), count, "received and sent");
    assert!(count >= PACKETS, "{count}");
    assert_eq!(counter(&sent, "tx_frames"), count, "{}", sent.said);
    assert_eq!(counter(&received, "rx_frames"), count, "{}", received.said);
    assert!(counter(&sent, "tx_wqes") < count / 8, "multi-packet WQEs: {}", counter(&sent, "tx_wqes"));
    let compressed = counter(&received, "cqes_compressed");
    let is_as_told = if receiver.compressed { compressed > count / 2 } else { compressed == 0 };
    assert!(is_as_told, "{compressed} compressed completions");
    assert_eq!(counter(&received, "striding_rings"), u64::from(receiver.striding));
    for name in ["tx_errors", "rx_errors", "rx_out_of_buffer", "strict_record_late", "strict_register_wrong"] {
        assert_eq!((counter(&sent, name), counter(&received, name)), (0, 0), "{name}");
    }
    assert_eq!((sent.code, received.code), (Some(0), Some(0)));
}

/// Without hugepages, and on whichever processors there are.
fn start(options: &str, name: &str, device: &str, mode: &str) -> Running {
    let (cpus, address) = (cpus(), address(options));
    let eal =
        format!("--lcores=(0,1)@({cpus}) --no-huge -m 256 --iova-mode=va --no-telemetry --file-prefix=softhca-{name}");
    let port = format!("-a {address},dv_flow_en=0,{device}");
    let command = format!("dpdk-testpmd {eal} {port} -- --stats-period=1 --total-num-mbufs=8192 --forward-mode={mode}");
    Running::start(&format!("--stats {options}"), &command)
}

/// The PCI address that the device has.
fn address(options: &str) -> String {
    let mut command = testing::command(&options.split(' ').collect::<Vec<_>>()).unwrap();
    let output = command.args(["readlink", "-f", "/sys/class/infiniband/mlx5_0/device"]).output().unwrap();
    let path = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    path.rsplit('/').next().unwrap().to_owned()
}

/// The processors that there are, as a list for EAL.
pub(crate) fn cpus() -> String {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim().to_owned()
}

/// Waits until the last count of that name is as large.
fn await_count(running: &Running, name: &str, count: u64) {
    let begin = Instant::now();
    while begin.elapsed() < PATIENCE {
        if counts(&running.said(), name).next_back().is_some_and(|last| last >= count) {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("{name} did not reach {count}: {}", running.said());
}

/// The count of that name that testpmd gives at its end.
fn total(ended: &Ended, name: &str) -> u64 {
    let end = ended.said.rsplit_once("Accumulated forward statistics").unwrap_or_else(|| panic!("{}", ended.said)).1;
    counts(end, name).next().unwrap()
}

/// Numbers that follow `name`.
pub(crate) fn counts<'a>(said: &'a str, name: &'a str) -> impl DoubleEndedIterator<Item = u64> + 'a {
    // The last line may not be whole yet.
    let lines = said.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    let number = move |line: &str| line.split_once(name)?.1.split_whitespace().next()?.parse().ok();
    lines.filter_map(number).collect::<Vec<_>>().into_iter()
}

/// A counter of the model; one that is not told is zero.
fn counter(ended: &Ended, name: &str) -> u64 {
    counts(&ended.said, &format!("  {name} ")).next_back().unwrap_or(0)
}
