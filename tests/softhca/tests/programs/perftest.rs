//! perftest's raw Ethernet tools, client and server, each a process at one end of a veth: every
//! packet arrives.
//!
//! Both get the same packet, IPv4 and UDP; the server makes a flow rule of it. The server counts
//! packets, and after one loss would wait for ever.

use std::time::Duration;

use crate::stage::{ABIS, Ended, MACS, Running, is_inside, veth};

const PACKETS: usize = 20_000;

/// A debug build on a busy machine takes some seconds.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Runs a tool at both ends, each of which posts `packets` packets; returns the output of the
/// client and of the server.
fn run(tool: &str, options: &str, packets: usize) -> [Ended; 2] {
    let [server_mac, client_mac] = MACS;
    let packet = "-J 10.0.0.2 -j 10.0.0.1 -K 6000 -k 5000";
    let command = |side: &str, own: &str, other: &str| {
        format!("{tool} -d mlx5_0 --{side} -n {packets} -s 256 -B {own} -E {other} {packet}")
    };
    let mut server =
        Running::start(&format!("{options} --stats --wire veth0"), &command("server", server_mac, client_mac));
    // Before its rule is there, packets are the kernel's.
    assert!(server.says("#bytes", TIMEOUT), "{tool} with {options}: {}", server.end(TIMEOUT).said);
    let client = Running::start(&format!("{options} --stats --wire veth1"), &command("client", client_mac, server_mac));
    [client.end(TIMEOUT), server.end(TIMEOUT)]
}

/// A tool that has moved all packets ends with 1 where it cannot make out the speed of the
/// processor's clock for its report, as on a busy machine.
fn ended_well(ended: &Ended) -> bool {
    ended.code == Some(0) || ended.code == Some(1) && ended.said.contains("Can't produce a report")
}

fn check(tool: &str, options: &str, client_counts: &[&str], server_counts: &[&str]) {
    let [client, server] = run(tool, options, PACKETS);
    for (ended, counts) in [(client, client_counts), (server, server_counts)] {
        assert!(ended_well(&ended), "{tool} with {options}: {:?}, said\n{}", ended.code, ended.said);
        for count in counts {
            assert!(ended.said.contains(&format!("{count} {PACKETS}\n")), "{tool}: {count} in\n{}", ended.said);
        }
    }
}

#[test]
fn all_packets_arrive_one_way() {
    if is_inside("perftest::all_packets_arrive_one_way", "raw_ethernet_bw", "perftest") {
        veth();
        for abi in ABIS {
            check("raw_ethernet_bw", &format!("--abi {abi}"), &["tx_frames", "tx_wqes"], &["rx_frames"]);
        }
        check("raw_ethernet_bw", "--strict", &["tx_frames", "tx_wqes"], &["rx_frames"]);
    }
}

/// The rules of all queues are the same, and so one entry in the NIC: each packet comes to each
/// queue, and the server counts them all.
#[test]
fn each_of_several_queues_with_the_same_rule_gets_the_packets() {
    let test = "perftest::each_of_several_queues_with_the_same_rule_gets_the_packets";
    if !is_inside(test, "raw_ethernet_bw", "perftest") {
        return;
    }
    veth();
    let [client, server] = run("raw_ethernet_bw -q 4", "--strict", PACKETS / 4);
    let counts = |said: &str, count: &str, more_than: usize| {
        let number = said.split(&format!("  {count} ")).nth(1).and_then(|rest| rest.split_whitespace().next());
        assert!(number.is_some_and(|number| number.parse::<usize>().unwrap() >= more_than), "{count} in\n{said}");
    };
    assert!(ended_well(&client) && ended_well(&server), "{}\n{}", client.said, server.said);
    counts(&client.said, "tx_frames", PACKETS);
    counts(&server.said, "rx_frames", PACKETS / 4);
}

#[test]
fn all_packets_go_there_and_back() {
    if is_inside("perftest::all_packets_go_there_and_back", "raw_ethernet_lat", "perftest") {
        veth();
        let counts = ["tx_frames", "rx_frames"];
        for abi in ABIS {
            check("raw_ethernet_lat", &format!("--abi {abi}"), &counts, &counts);
        }
        check("raw_ethernet_lat", "--strict", &counts, &counts);
    }
}
