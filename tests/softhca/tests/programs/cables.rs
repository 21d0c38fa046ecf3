//! Cables other than a veth: a capture that is recorded by one program and replayed to another, and
//! two ports of one process back to back.

use std::time::{Duration, Instant};

use softhca::testing::testpmd;

use crate::stage::{MACS, Running, is_inside};

/// A debug build on a busy machine takes some seconds.
const TIMEOUT: Duration = Duration::from_secs(120);

/// perftest's client sends into a file; its server gets the file, and counts to the last packet.
#[test]
fn what_one_program_recorded_is_replayed_to_another() {
    if !is_inside("cables::what_one_program_recorded_is_replayed_to_another", "raw_ethernet_bw", "perftest") {
        return;
    }
    let file = std::env::temp_dir().join(format!("softhca-recorded-{}.pcap", std::process::id()));
    let file = file.to_str().unwrap();
    let [server, client] = MACS;
    let tool = "raw_ethernet_bw -d mlx5_0 -n 20000 -s 128 -J 10.0.0.2 -j 10.0.0.1 -K 6000 -k 5000";
    let record = Running::start(
        &format!("--stats --mac {client} --wire pcap:,{file}"),
        &format!("{tool} --client -B {client} -E {server}"),
    );
    let recorded = record.end(TIMEOUT);
    let len = std::fs::metadata(file).map(|file| file.len());
    let replay = Running::start(
        &format!("--stats --mac {server} --wire pcap:{file}"),
        &format!("{tool} --server -B {server} -E {client}"),
    );
    let replayed = replay.end(TIMEOUT);
    std::fs::remove_file(file).unwrap();
    assert!(recorded.said.contains("tx_frames 20000\n"), "{}", recorded.said);
    // 20,000 records with a header of 16 bytes each, behind that of the file.
    let frame_len = (len.unwrap() - 24) / 20_000 - 16;
    assert!((100..=128).contains(&frame_len), "frames of {frame_len} bytes");
    assert!(replayed.said.contains("rx_frames 20000\n"), "{}", replayed.said);
    assert_eq!((recorded.code, replayed.code), (Some(0), Some(0)));
}

/// testpmd hands a burst round and round between two ports that are joined to each other.
#[test]
fn two_ports_of_a_process_are_back_to_back() {
    if !is_inside("cables::two_ports_of_a_process_are_back_to_back", "dpdk-testpmd", "dpdk") {
        return;
    }
    let eal = "--no-huge -m 256 --iova-mode=va --no-telemetry --no-shconf";
    let ports = "-a 0000:5c:00.0,dv_flow_en=0 -a 0000:5c:00.1,dv_flow_en=0";
    let cpus = testpmd::cpus();
    let mut both = Running::start(
        "--stats --netdev --devices 2",
        &format!(
            "dpdk-testpmd --lcores=(0,1)@({cpus}) {eal} {ports} -- --stats-period=1 --total-num-mbufs=8192 --tx-first"
        ),
    );
    let begin = Instant::now();
    while testpmd::counts(&both.said(), "RX-packets:").next_back().unwrap_or(0) < 50_000 {
        assert!(begin.elapsed() < TIMEOUT && both.is_running(), "{}", both.said());
        std::thread::sleep(Duration::from_millis(50));
    }
    both.interrupt();
    let ended = both.end(TIMEOUT);
    assert_eq!(ended.code, Some(0), "{}", ended.said);
    let devices: Vec<&str> = ended.said.split("softhca: mlx5_").skip(1).collect();
    let counter =
        |device: usize, name: &str| testpmd::counts(devices[device], &format!("  {name} ")).next_back().unwrap_or(0);
    for (here, there) in [(0, 1), (1, 0)] {
        let (sent, received) = (counter(here, "tx_frames"), counter(there, "rx_frames"));
        // The frames under way at the end are at most the burst of each port.
        assert!(received > 50_000 && (received..=received + 64).contains(&sent), "{sent} sent, {received} received");
        assert_eq!(counter(here, "wire_from_kernel"), 0, "the kernel said something of its own accord");
    }
}
