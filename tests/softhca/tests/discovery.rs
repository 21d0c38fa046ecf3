//! Programs that are not ours list the devices, and `softhca run` passes on their output.
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::process::{Command, Output};

use softhca::testing;

/// Runs a program on software ConnectXs; `None`, with a notice, where that is not possible.
fn run(test: &str, options: &[&str], program: &[&str]) -> Option<Output> {
    let started = testing::command(options).map(|mut command| command.args(program).output().unwrap());
    match started {
        Ok(output) if output.status.code() == Some(127) => {
            println!("SKIPPED {test}: {} is not installed", program[0]);
            None
        }
        Ok(output) => Some(output),
        Err(why) => {
            println!("SKIPPED {test}: {why}");
            None
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn ibv_devices_lists_each() {
    let Some(output) = run("ibv_devices_lists_each", &["--devices", "3"], &["ibv_devices"]) else { return };
    let listed = text(&output.stdout);
    for device in ["mlx5_0", "mlx5_1", "mlx5_2"] {
        assert!(listed.contains(device), "{listed}");
    }
}

#[test]
fn ibv_devinfo_tells_all_by_both_kernel_interfaces() {
    for abi in ["ioctl", "write"] {
        let test = "ibv_devinfo_tells_all_by_both_kernel_interfaces";
        let options = ["--abi", abi, "--mac", "02:00:00:00:12:34"];
        let Some(output) = run(test, &options, &["ibv_devinfo", "-v"]) else { return };
        let told = text(&output.stdout).replace(['\t', ' '], "");
        for line in [
            "hca_id:mlx5_0",
            "fw_ver:16.35.2000",
            "node_guid:0000:00ff:fe00:1234",
            "vendor_id:0x02c9",
            "vendor_part_id:4119",
            "RAW_IP_CSUM",
            "RAW_SCATTER_FCS",
            "MANAGED_FLOW_STEERING",
            "completiontimestamp_mask:0xffffffffffffffff",
            "hca_core_clock:1000000kHZ",
            "C-VLANstrippingoffload",
            "max_tso:262144",
            "max_rwq_indirection_table_size:512",
            "rx_hash_function:0x1",
            "rx_hash_fields_mask:0xFF",
            "SUPPORT_RAW_PACKET",
            "max_cq_count:65535",
            "state:PORT_ACTIVE(4)",
            "active_mtu:1024(3)",
            "link_layer:Ethernet",
            "phys_state:LINK_UP(5)",
            "GID[0]:fe80::ff:fe00:1234,RoCEv2",
        ] {
            assert!(told.contains(line), "{abi}: no {line} in {told}");
        }
        assert!(output.status.success(), "{abi}: {}", text(&output.stderr));
    }
}

#[test]
fn device_opens_under_valgrind() {
    let valgrind = ["valgrind", "--tool=none", "--quiet", "ibv_devinfo"];
    for abi in ["ioctl", "write"] {
        let Some(output) = run("device_opens_under_valgrind", &["--abi", abi], &valgrind) else { return };
        let told = text(&output.stdout);
        assert!(told.contains("mlx5_0") && output.status.success(), "{abi}: {told}{}", text(&output.stderr));
    }
}

#[test]
fn feature_that_it_is_made_without_is_not_told() {
    let test = "feature_that_it_is_made_without_is_not_told";
    let Some(output) = run(test, &["--without", "tso"], &["ibv_devinfo", "-v"]) else { return };
    assert!(text(&output.stdout).replace(['\t', ' '], "").contains("max_tso:0"), "{}", text(&output.stdout));
}

#[test]
fn exit_code_and_signal_of_the_command_are_passed_on() {
    let check = |script: &str, code: i32| {
        let test = "exit_code_and_signal_of_the_command_are_passed_on";
        let Some(output) = run(test, &[], &["sh", "-c", script]) else { return };
        assert_eq!(output.status.code(), Some(code), "{script}: {}", text(&output.stderr));
    };
    check("exit 7", 7);
    check("kill -TERM $$", 128 + 15);
    // The parent passes it on.
    check("trap 'exit 9' TERM; kill -TERM $PPID; sleep 5 & wait", 9);
}

#[test]
fn nothing_is_left_on_the_machine() {
    let seen = || {
        let list = |path| std::fs::read_dir(path).map_or(0, Iterator::count);
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap().lines().count();
        (mounts, list("/sys/bus/pci/devices"), list("/dev/infiniband"), list("/sys/class/infiniband"))
    };
    let before = seen();
    let Some(output) = run("nothing_is_left_on_the_machine", &["--devices", "2"], &["ibv_devices"]) else { return };
    assert!(output.status.success());
    assert_eq!(seen(), before);
}

#[test]
fn what_is_missing_is_said_in_a_sentence() {
    let check = |options: &[&str], program: &str, code: i32, expected: &str| {
        let Some(program_itself) = testing::missing().is_none().then(|| testing::program().unwrap()) else {
            return println!("SKIPPED what_is_missing_is_said_in_a_sentence: {}", testing::missing().unwrap());
        };
        let output = Command::new(program_itself).arg("run").args(options).args(["--", program]).output().unwrap();
        let said = text(&output.stderr);
        assert!(said.contains(expected) && said.lines().count() == 1, "{said}");
        assert_eq!(output.status.code(), Some(code), "{said}");
    };
    check(&[], "wirepath-no-such-program", 127, "wirepath-no-such-program: No such file");
    check(&[], "/etc", 126, "Permission denied");
    check(&["--wire", "wirepath-none"], "true", 125, "no interface wirepath-none");
    check(&["--wire", "pair"], "true", 125, "no partner");
}

#[test]
fn library_that_the_command_displaces_is_told() {
    let check = |script: &str, expected: Option<&str>| {
        let test = "library_that_the_command_displaces_is_told";
        let Some(output) = run(test, &[], &["sh", "-c", script]) else { return };
        let (listed, said) = (text(&output.stdout), text(&output.stderr));
        let ours: Vec<_> = said.lines().filter(|line| line.starts_with("softhca: ")).collect();
        match expected {
            None => {
                assert!(ours.is_empty() && listed.contains("fw_ver:\t\t\t\t16.35.2000"), "{script}: {listed}{said}")
            }
            Some(expected) => {
                assert!(ours.len() == 1 && ours[0].contains(expected), "{script}: {listed}{said}");
                assert!(!listed.contains("fw_ver"), "a device that is dead was shown: {listed}");
            }
        }
    };
    check("ibv_devinfo", None);
    check("LD_PRELOAD=libm.so.6:$LD_PRELOAD ibv_devinfo", None);
    check("LD_PRELOAD=libm.so.6 ibv_devinfo", Some("ibv_devinfo ("));
    check("LD_PRELOAD=libm.so.6 ibv_devinfo", Some("set it to libm.so.6:$LD_PRELOAD"));
    check("unset LD_PRELOAD; ibv_devinfo", Some("LD_PRELOAD was taken out of its environment"));
}

#[test]
fn test_runs_inside_of_itself() {
    if testing::is_inside("test_runs_inside_of_itself", &["--netns", "--devices", "2"]) {
        assert!(std::path::Path::new("/sys/class/net/soft1/device/infiniband/mlx5_1").exists());
    }
}
