//! RDMA programs, a process at each end of a veth: ibverbs-utils' pingpongs, and perftest's tools
//! for SEND, WRITE, READ and atomics. They agree on their queue pairs by TCP, over the loopback.

use std::process::Command;
use std::time::{Duration, Instant};

use softhca::testing::testpmd::counter;

use crate::stage::{ABIS, Ended, MACS, Running, ip, is_inside, veth};

/// A debug build on a busy machine takes some seconds.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Where the programs agree, 18515, as /proc/net/tcp shows a socket that listens there.
const LISTENS: &str = ":4853 00000000:0000 0A";

/// A veth whose ends have IPv4 addresses, and know each other's MAC addresses: both are in one
/// namespace, where the kernel would not ask for them.
fn addressed_veth() {
    veth();
    for (here, there, mac) in [("1 veth0", "2", MACS[1]), ("2 veth1", "1", MACS[0])] {
        let (number, device) = here.split_once(' ').unwrap();
        ip(&format!("addr add 10.0.0.{number}/24 dev {device}"));
        ip(&format!("neigh add 10.0.0.{there} lladdr {mac} dev {device} nud permanent"));
    }
}

/// Runs a program as server at one end, and as client at the other.
fn run(options: &str, program: &str) -> [Ended; 2] {
    let (name, rest) = program.split_once(' ').unwrap();
    let command = |more: &str| format!("{name} -d mlx5_0 {rest}{more}");
    let mut server = Running::start(&format!("{options} --stats --wire veth0"), &command(""));
    await_listener(&mut server);
    let client = Running::start(&format!("{options} --stats --wire veth1"), &command(" 127.0.0.1"));
    [server, client].map(|end| end.end(TIMEOUT))
}

/// Waits until a server listens.
#[track_caller]
fn await_listener(server: &mut Running) {
    let begin = Instant::now();
    while !std::fs::read_to_string("/proc/net/tcp").unwrap().contains(LISTENS) {
        assert!(begin.elapsed() < TIMEOUT && server.is_running(), "{}", server.said());
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Both ends are content. perftest ends with 1 where it cannot make out the speed of the
/// processor's clock for its report, as on a busy machine.
#[track_caller]
fn check(options: &str, program: &str) -> [Ended; 2] {
    let ends = run(options, program);
    for ended in &ends {
        let is_well = ended.code == Some(0) || ended.said.contains("Can't produce a report");
        assert!(is_well, "{program} with {options}: {:?}, said\n{}", ended.code, ended.said);
    }
    ends
}

const PINGPONGS: [&str; 4] = ["ibv_rc_pingpong", "ibv_uc_pingpong", "ibv_ud_pingpong", "ibv_srq_pingpong"];

/// By polling and by events, over IPv6 (GID 0, link-local) and IPv4 (GID 1).
#[test]
fn pingpong_of_each_service_comes_to_its_end() {
    if !is_inside("rdma::pingpong_of_each_service_comes_to_its_end", "ibv_rc_pingpong", "ibverbs-utils") {
        return;
    }
    addressed_veth();
    for (program, waits) in PINGPONGS.into_iter().zip(["", " -e", " -e", ""]) {
        for (abi, gid) in ABIS.into_iter().zip([0, 1]) {
            let options = format!("--strict --abi {abi}");
            for ended in check(&options, &format!("{program} -g {gid} -n 200{waits}")) {
                assert!(counter(&ended, "rdma_rx_messages") >= 200, "{program}: {}", ended.said);
            }
        }
    }
}

/// With perftest, whose ends wait for each other at the end: a pingpong's end that is done goes,
/// and cannot repeat its last acknowledgment where that was lost.
#[test]
fn reliable_messages_arrive_once_though_the_wire_loses_them() {
    let test = "rdma::reliable_messages_arrive_once_though_the_wire_loses_them";
    if !is_inside(test, "ib_send_bw", "perftest") {
        return;
    }
    addressed_veth();
    let hostile = |seed: u32| format!("--hostile {seed},loss=60,reorder=20,send=0,receive=0");
    let programs = [("ib_send_bw", 100), ("ib_write_bw", 0), ("ib_read_bw", 0), ("ib_atomic_bw", 0)];
    for (seed, (program, messages)) in programs.into_iter().enumerate() {
        let size = if program == "ib_atomic_bw" { "" } else { "-s 5000 " };
        let [server, client] = check(&hostile(seed as u32), &format!("{program} {size}-n 100 -x 1 -F"));
        assert_eq!(counter(&server, "rdma_rx_messages"), messages, "{program}: {}", server.said);
        let lost = counter(&server, "rx_lost") + counter(&client, "rx_lost");
        assert!(lost > 0 && counter(&client, "rdma_retransmitted") > 0, "{program}: {}", client.said);
    }
}

#[test]
fn perftest_moves_every_message() {
    if !is_inside("rdma::perftest_moves_every_message", "ib_send_bw", "perftest") {
        return;
    }
    addressed_veth();
    for program in [
        "ib_send_bw -s 65536 -n 100",
        "ib_send_bw -c UC -s 4096 -n 100",
        "ib_send_bw -c UD -s 1024 -n 200",
        "ib_send_bw -r 64 -n 200 --use-srq",
        "ib_send_lat -n 100",
        "ib_write_bw -s 65536 -n 100",
        "ib_write_bw -c UC -s 4096 -n 100",
        "ib_write_bw -q 4 -s 1000 -n 100",
        "ib_write_lat -n 100",
        "ib_read_bw -s 65536 -n 100",
        "ib_read_lat -n 100",
        "ib_atomic_bw -n 100",
        "ib_atomic_lat -A CMP_AND_SWAP -n 100",
    ] {
        let ends = check("--strict", &format!("{program} -x 1 -F"));
        let moved: u64 = ends.iter().map(|ended| counter(ended, "rdma_rx_packets")).sum();
        assert!(moved >= 100, "{program}: {}", ends[0].said);
    }
}

/// The ends are in two namespaces, and agree over another veth: so on this one nobody has asked for
/// the other's MAC address before the queue pairs want it.
#[test]
fn neighbor_that_the_kernel_does_not_know_is_asked_for() {
    let test = "rdma::neighbor_that_the_kernel_does_not_know_is_asked_for";
    if !is_inside(test, "ibv_rc_pingpong", "ibverbs-utils") {
        return;
    }
    let there = Namespace::new();
    let name = &there.0;
    ip("link set lo up");
    for (idx, veth) in ["veth", "out"].into_iter().enumerate() {
        ip(&format!("link add {veth}0 type veth peer name {veth}1 netns {name}"));
        ip(&format!("addr add 10.{idx}.0.1/24 dev {veth}0"));
        ip(&format!("-n {name} addr add 10.{idx}.0.2/24 dev {veth}1"));
        ip(&format!("link set {veth}0 up"));
        ip(&format!("-n {name} link set {veth}1 up"));
    }
    let command = "ibv_rc_pingpong -d mlx5_0 -g 1 -n 20";
    let mut server = Running::start("--wire veth0", command);
    await_listener(&mut server);
    let softhca = softhca::testing::program().unwrap();
    let mut client = Command::new("ip");
    client.args(["netns", "exec", name]).arg(softhca).args(["run", "--wire", "veth1", "--"]);
    let client = client.args(command.split(' ')).arg("10.1.0.1").output().unwrap();
    let server = server.end(TIMEOUT);
    let said = String::from_utf8_lossy(&client.stdout).into_owned() + &String::from_utf8_lossy(&client.stderr);
    assert!(client.status.success() && server.code == Some(0), "{said}\n{}", server.said);
}

/// A network namespace with a name, as long as this lives.
struct Namespace(String);

impl Namespace {
    fn new() -> Self {
        let name = format!("softhca-{}", std::process::id());
        ip(&format!("netns add {name}"));
        Self(name)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).status();
    }
}

#[test]
fn what_this_device_lacks_is_refused() {
    if !is_inside("rdma::what_this_device_lacks_is_refused", "ibv_xsrq_pingpong", "ibverbs-utils") {
        return;
    }
    for abi in ABIS {
        let ended = Running::start(&format!("--abi {abi}"), "ibv_xsrq_pingpong -d mlx5_0 -g 0").end(TIMEOUT);
        assert_eq!(ended.code, Some(1), "{abi}: {}", ended.said);
        assert!(ended.said.contains("XRC"), "{abi}: {}", ended.said);
    }
}
