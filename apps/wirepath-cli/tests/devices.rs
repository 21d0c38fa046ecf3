//! `wirepath devices` as an operator runs it: on this machine, and on a veth pair in a namespace of
//! its own.
#![allow(clippy::unwrap_used, reason = "helpers of tests panic to report")]

use std::process::{Command, Output};

use serde_json::Value;
use wirepath_tests::netns::Namespace;

const WIREPATH: &str = env!("CARGO_BIN_EXE_wirepath");

fn devices(arguments: &[&str]) -> Output {
    Command::new(WIREPATH).arg("devices").args(arguments).output().unwrap()
}

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn unknown_interface_is_one_sentence_and_exit_1() {
    let output = devices(&["not-there"]);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0));
    let expected =
        "wirepath: there is no interface not-there in this network namespace: `ip -brief link` lists those that are\n";
    assert_eq!(String::from_utf8_lossy(&output.stderr), expected);
}

#[test]
fn this_machine_has_a_loopback_without_a_driver() {
    let report = json(&devices(&["lo", "--json"]));
    let lo = &report["devices"][0];
    assert_eq!((lo["name"].as_str(), lo["driver"].as_str(), lo["queues"].as_u64()), (Some("lo"), None, Some(1)));
    assert_eq!(lo["backends"][3]["name"], "mlx5");
    let table = devices(&[]);
    assert!(table.status.success() && String::from_utf8_lossy(&table.stdout).contains("af_xdp generic    yes"));
}

#[test]
fn veth_runs_programs_and_copies_and_a_program_on_it_is_told() {
    let namespace = match Namespace::new() {
        Ok(namespace) => namespace,
        Err(why) => return println!("SKIPPED veth_runs_programs_and_copies_and_a_program_on_it_is_told: {why}"),
    };
    namespace.veth("port0", &namespace, "port1").unwrap();
    let ask = || json(&namespace.command(WIREPATH, &["devices", "port0", "--json"]).unwrap())["devices"][0].clone();
    let verdicts = |device: &Value| {
        let backends = device["backends"].as_array().unwrap();
        backends.iter().map(|backend| backend["verdict"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };

    let free = ask();
    assert_eq!((free["driver"].as_str(), free["link"].as_str()), (Some("veth"), Some("up")));
    // A kernel before 6.3 does not report it.
    if free["backends"][0]["verdict"] != "unknown" {
        assert_eq!(verdicts(&free), ["yes", "no", "yes", "no"]);
    }

    let held = namespace.run(|| {
        use wirepath::device::af_xdp::{AfXdpConfig, AfXdpDevice};
        let _device = AfXdpDevice::open(&AfXdpConfig::new("port0")).unwrap();
        ask()
    });
    assert_eq!(verdicts(&held), ["no", "no", "no", "no"]);
    let holder = format!("process {}", std::process::id());
    assert!(held["xdp_program"].as_str().unwrap().contains(&holder), "{held}");
}

#[test]
fn verbs_devices_are_told_with_what_each_can_do() {
    let options = ["--devices", "2", "--without", "pacing"];
    let mut command = match softhca::testing::command(&options) {
        Ok(command) => command,
        Err(why) => return println!("SKIPPED verbs_devices_are_told_with_what_each_can_do: {why}"),
    };
    let report = json(&command.args([WIREPATH, "devices", "--json"]).output().unwrap());
    assert_eq!(report["no_verbs"], Value::Null);
    let devices = report["verbs_devices"].as_array().unwrap();
    assert_eq!(devices.iter().map(|device| &device["name"]).collect::<Vec<_>>(), ["mlx5_0", "mlx5_1"]);
    let features = devices[0]["features"].as_array().unwrap();
    let feature = |name| features.iter().find(|feature| feature["name"] == name).unwrap();
    assert_eq!(feature("checksums")["there"], true);
    assert_eq!(feature("packet pacing")["why_not"], "the firmware does not offer it to raw packets");
}

#[test]
fn rdma_core_that_is_absent_is_told_with_what_installs_it() {
    let output = Command::new(WIREPATH).arg("devices").env("RDMA_CORE_LIB_DIR", "/nonexistent").output().unwrap();
    let reported = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && reported.contains("no verbs devices: rdma-core is not installed: apt install"),
        "{reported}"
    );
}
