//! The NIC's counters in `wirepath stats`, of a process that polls a veth in a network namespace of
//! its own.
#![allow(clippy::unwrap_used, reason = "helpers of tests panic to report")]

use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use serde_json::Value;
use wirepath::counters::{Block, Capacity};
use wirepath::device::af_xdp::{AfXdpConfig, AfXdpDevice};
use wirepath::device::{Device, Queue};
use wirepath::mem::{Layout, Pool, Region};
use wirepath_tests::netns::Namespace;

const CHILD: &str = "WIREPATH_TEST_CHILD";

/// Not a separate test: the process that owns a queue of `port0` until it is killed.
#[test]
fn child_has_a_queue_until_killed() {
    let Some(directory) = std::env::var_os(CHILD) else { return };
    let block = Block::create_in(Path::new(&directory), "child", Capacity { entries: 64, values: 512 }).unwrap();
    let layout = Layout::umem(2048);
    let pool = Pool::new(Arc::new(Region::heap(layout.region_len(512)).unwrap()), layout).unwrap();
    let config = AfXdpConfig { rx_ring_len: 64, tx_ring_len: 64, ..AfXdpConfig::new("port0") };
    let mut device = AfXdpDevice::open(&config).unwrap();
    let _halves = device.take_queue(0).unwrap().open(&pool, &block.scope("worker0")).unwrap();
    println!("\nchild polls");
    loop {
        std::thread::park();
    }
}

/// The second process; it does not outlive its test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn start_child(namespace: &Namespace, directory: &Path) -> Running {
    let mut child = Command::new("ip")
        .args(["netns", "exec", namespace.name()])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "child_has_a_queue_until_killed", "--nocapture"])
        .env(CHILD, directory)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let running = Running(child);
    assert!(lines.any(|line| line.unwrap() == "child polls"));
    running
}

/// The values that the tool shows of the only process, from outside its network namespace.
fn values(directory: &Path) -> Vec<Value> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wirepath"));
    let output = command.args(["stats", "--json"]).env("WIREPATH_SHM", directory).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    report["processes"][0]["values"].as_array().unwrap().clone()
}

#[test]
fn nic_of_another_namespace_is_counted_beside_the_process_also_after_it_was_renamed() {
    let near = match Namespace::new() {
        Ok(near) => near,
        Err(why) => return println!("SKIPPED nic_of_another_namespace_is_counted_beside_the_process: {why}"),
    };
    let far = Namespace::new().unwrap();
    near.veth("port0", &far, "port1").unwrap();
    far.ip(&["addr", "add", "10.9.0.2/24", "dev", "port1"]).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let child = start_child(&near, directory.path());
    // A broadcast needs no answer of a neighbor.
    far.run(|| {
        let socket = UdpSocket::bind("10.9.0.2:0").unwrap();
        socket.set_broadcast(true).unwrap();
        socket.send_to(b"one", "10.9.0.255:9").unwrap();
    });

    let shown = values(directory.path());
    let doctor = Command::new("ip")
        .args(["netns", "exec", near.name(), env!("CARGO_BIN_EXE_wirepath"), "doctor", "port0"])
        .env("WIREPATH_SHM", directory.path())
        .output()
        .unwrap();
    near.ip(&["link", "set", "port0", "down"]).unwrap();
    near.ip(&["link", "set", "port0", "name", "renamed"]).unwrap();
    let renamed = values(directory.path());
    drop(child);

    let report = String::from_utf8_lossy(&doctor.stdout);
    assert!(report.contains("port0 is polled by child (process "), "{report}");
    let value = |values: &[Value], name: &str| values.iter().find(|value| value["name"] == name).cloned();
    assert_eq!(value(&shown, "worker0/interface").unwrap()["value"], "port0");
    let frames = value(&shown, "nic/port0/rx_frames").unwrap();
    assert_eq!((frames["kind"].as_str(), frames["unit"].as_str()), (Some("counter"), Some("frames")));
    assert!(frames["value"].as_u64().unwrap() > 0, "{frames}");
    assert!(value(&shown, "nic/port0/driver/rx_queue_0_drops").is_some(), "{shown:?}");
    assert!(value(&renamed, "nic/renamed/rx_frames").is_some(), "{renamed:?}");
}
