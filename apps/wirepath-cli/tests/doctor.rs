//! `wirepath doctor` as an operator runs it: on this machine, and on made-up ones.
#![allow(clippy::unwrap_used, reason = "helpers of tests panic to report")]

use std::fs;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;
use wirepath_tests::netns::Namespace;

fn doctor(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_wirepath")).arg("doctor").args(arguments).output().unwrap()
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// A machine with these files.
fn machine(files: &[(&str, &str)]) -> TempDir {
    let root = TempDir::new().unwrap();
    for (name, text) in files {
        let path = root.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    root
}

#[test]
fn interface_that_is_not_there_is_exit_1_and_one_sentence() {
    let output = doctor(&["not-there"]);
    assert_eq!((output.status.code(), &*out(&output)), (Some(1), ""));
    assert!(err(&output).starts_with("wirepath: there is no interface not-there"), "{}", err(&output));
}

#[test]
fn cores_that_are_no_list_are_a_usage_error() {
    for wrong in ["", "two", "3-1"] {
        assert_eq!(doctor(&["--cores", wrong]).status.code(), Some(2), "{wrong:?}");
    }
}

#[test]
fn fault_is_exit_1_after_the_report() {
    let root = machine(&[("proc/sys/kernel/osrelease", "4.19.0")]);
    let output = doctor(&["--root", root.path().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(out(&output).contains("fault    kernel             Linux 4.19.0 has no XDP links"), "{}", out(&output));
    assert!(err(&output).starts_with("wirepath: 1 fault: "), "{}", err(&output));
}

#[test]
fn root_without_a_machine_is_exit_1_and_no_report() {
    let (empty, file) = (machine(&[]), machine(&[("proc", "no folder")]));
    let a_file = file.path().join("proc");
    for (root, why) in [
        ("/nonexistent", "--root /nonexistent cannot be read: No such file"),
        (a_file.to_str().unwrap(), "cannot be read: Not a directory"),
        (empty.path().to_str().unwrap(), "has neither sys nor proc in it"),
        (file.path().to_str().unwrap(), "has neither sys nor proc in it"),
    ] {
        let output = doctor(&["--root", root]);
        assert_eq!((output.status.code(), &*out(&output)), (Some(1), ""), "{root}");
        assert!(err(&output).contains(why), "{root}: {}", err(&output));
    }
}

#[test]
fn warnings_are_exit_0_and_say_what_mends_them() {
    let root = machine(&[
        ("sys/class/net/eth1/address", "02:00:00:00:00:01"),
        ("sys/class/net/eth1/flags", "0x1002"),
        ("proc/sys/net/ipv4/conf/eth1/rp_filter", "1"),
    ]);
    let output = doctor(&["eth1", "--root", root.path().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let report = out(&output);
    assert!(report.contains("warning  link               eth1 is down\n"), "{report}");
    assert!(report.contains("-> `sysctl -w net.ipv4.conf.eth1.rp_filter=2`\n"), "{report}");
    assert!(report.contains("\n0 faults, "), "{report}");
}

#[test]
fn this_machine_gets_a_report_of_its_loopback() {
    let output = doctor(&["lo", "--json", "--cores", "0"]);
    let report: Value = serde_json::from_str(&out(&output)).unwrap();
    let faults = report["faults"].as_u64().unwrap();
    assert_eq!(output.status.code(), Some(i32::from(faults > 0)));
    assert_eq!((report["interface"].as_str(), report["cores"].as_str()), (Some("lo"), Some("0")));
    let findings = report["findings"].as_array().unwrap();
    let of = |check: &str| findings.iter().filter(|finding| finding["check"] == check).collect::<Vec<_>>();
    // Facts that every Linux shows to any user.
    for check in ["kernel", "capabilities", "locked memory", "cores", "irqbalance", "link", "backend", "offloads"] {
        assert!(!of(check).is_empty(), "nothing about {check} in {report:#}");
    }
    let counted = ["fault", "warning", "note"]
        .map(|word| findings.iter().filter(|finding| finding["severity"] == word).count() as u64);
    assert_eq!(counted, ["faults", "warnings", "notes"].map(|sum| report[sum].as_u64().unwrap()));
    let mendable = |finding: &&Value| finding["severity"] == "good" || finding["remedy"].is_string();
    assert!(findings.iter().all(|finding| mendable(&finding)), "{report:#}");
}

/// The severity and the remedy of each finding of one check.
fn findings(report: &Value, check: &str) -> Vec<(String, Option<String>)> {
    let findings = report["findings"].as_array().unwrap().iter().filter(|finding| finding["check"] == check);
    let text = |value: &Value| value.as_str().map(str::to_owned);
    findings.map(|finding| (text(&finding["severity"]).unwrap(), text(&finding["remedy"]))).collect()
}

#[test]
fn remedies_mend_what_they_were_named_for() {
    let namespace = match Namespace::new() {
        Ok(namespace) => namespace,
        Err(why) => return println!("SKIPPED remedies_mend_what_they_were_named_for: {why}"),
    };
    let shell = |command: &str| {
        let output = namespace.command("sh", &["-c", command]).unwrap();
        assert!(output.status.success(), "{command}: {}", err(&output));
        out(&output)
    };
    let examine = || -> Value {
        let report = namespace.command(env!("CARGO_BIN_EXE_wirepath"), &["doctor", "port0", "--json"]).unwrap();
        serde_json::from_slice(&report.stdout).unwrap()
    };
    namespace.veth("port0", &namespace, "port1").unwrap();
    for ailment in [
        "ip link add switch type bridge mcast_snooping 1 mcast_querier 0",
        "ip link set port0 master switch",
        "ip link set port0 down",
        "echo 1 > /proc/sys/net/ipv4/conf/all/rp_filter",
        "echo 1 > /proc/sys/net/ipv4/conf/port0/rp_filter",
        "echo 2 > /proc/sys/net/ipv4/conf/port0/force_igmp_version",
        "echo 20 > /proc/sys/net/ipv4/igmp_max_memberships",
        "echo 200000 > /sys/class/net/port0/gro_flush_timeout",
    ] {
        shell(ailment);
    }

    let checks = ["link", "rp_filter", "igmp version", "igmp groups", "napi", "igmp snooping"];
    let before = examine();
    for check in checks {
        let [(severity, Some(remedy))] = &findings(&before, check)[..] else { panic!("{check}: {before:#}") };
        assert_ne!(severity, "good", "{check}");
        // The command is between the first two backticks.
        shell(remedy.split('`').nth(1).unwrap());
    }
    let after = examine();
    for check in checks {
        assert_eq!(findings(&after, check), [("good".to_owned(), None)], "{check}");
    }
}
