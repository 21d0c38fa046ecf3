//! Reasons for which the mlx5 device does not start. Each is reported in one sentence that says
//! what to do, and nothing is left in the NIC: no open descriptor, no queue, no rule, no registered
//! memory, and every buffer is in its pool. On software ConnectXs under rdma-core; each test starts
//! itself again under `softhca run`.
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;

use softhca::testing::{is_inside, is_inside_under};
use wirepath::counters::Block;
use wirepath::device::mlx5::{Feature, Mlx5Config, Mlx5Device, Pace, RssConfig, RxDistribution};
use wirepath::device::steering::{Rule, SteerError};
use wirepath::device::{Device, Queue};
use wirepath_tests::connectx::{End, config, open, pool};
use wirepath_tests::nic;

const RULE: Rule = Rule::udp(Ipv4Addr::new(239, 1, 2, 3), 9000);
/// `MODIFY_QP` (mlx5.md 3.4).
const MODIFY_QP: u32 = 26;
const REG_MR: u32 = 9;

/// Checks that the port does not open and holds nothing afterwards; returns the sentence.
fn refused(config: &Mlx5Config) -> String {
    let said = match Mlx5Device::open(config) {
        Ok(_) => panic!("it was opened"),
        Err(error) => error.to_string(),
    };
    is_one_sentence(&said);
    assert_eq!(nic::objects(), 0, "left behind after: {said}");
    said
}

/// Checks that the port is open but its queue does not open, and that only the earlier objects
/// exist; returns the sentence.
fn queue_refused(device: &mut Mlx5Device, idx: u16, buffers: usize) -> String {
    let (pool, block, before) = (pool(buffers, 1518), Block::heap(), nic::objects());
    let said = match device.take_queue(idx).unwrap().open(&pool, &block.scope("port")) {
        Ok(_) => panic!("queue {idx} was opened"),
        Err(error) => error.to_string(),
    };
    is_one_sentence(&said);
    assert_eq!((nic::objects(), pool.in_use()), (before, 0), "objects and buffers left behind after: {said}");
    said
}

fn is_one_sentence(said: &str) {
    assert!(!said.is_empty() && !said.contains('\n') && !said.contains(". "), "more than a sentence: {said}");
}

fn has(said: &str, parts: &[&str]) {
    parts.iter().for_each(|part| assert!(said.contains(part), "no {part:?} in: {said}"));
}

#[test]
fn machine_without_verbs_devices_is_told_how_to_find_them() {
    let test = "machine_without_verbs_devices_is_told_how_to_find_them";
    if !is_inside_under(test, &[], &["env", "SYSFS_PATH=/var/empty"]) {
        return;
    }
    has(&refused(&config("mlx5_0")), &["there is no mlx5_0, nor any other verbs device", "lspci", "modprobe mlx5_ib"]);
}

#[test]
fn name_of_nothing_is_told_with_the_names_of_what_there_is() {
    if !is_inside("name_of_nothing_is_told_with_the_names_of_what_there_is", &["--devices", "2"]) {
        return;
    }
    has(&refused(&config("mlx5_7")), &["\"mlx5_7\"", "mlx5_0", "mlx5_1"]);
    // An interface that is no ConnectX's.
    has(&refused(&config("lo")), &["lo is no ConnectX", "af_xdp", "mlx5_0"]);
}

#[test]
fn device_of_another_vendor_is_told() {
    if !is_inside("device_of_another_vendor_is_told", &["--devices", "2"]) {
        return;
    }
    // Amazon's EFA, by its PCI numbers: its provider has the same ABI version as mlx5's. The mount
    // is in our own namespace.
    let directory = tempfile::TempDir::new().unwrap();
    let modalias = directory.path().join("modalias");
    std::fs::write(&modalias, "pci:v00001D0Fd0000EFA0sv00001D0Fsd0000EFA0bc02sc00i00\n").unwrap();
    let shown = Path::new("/sys/class/infiniband/mlx5_0/device/modalias").canonicalize().unwrap();
    assert!(Command::new("mount").arg("--bind").arg(&modalias).arg(&shown).status().unwrap().success());
    has(&refused(&config("mlx5_0")), &["mlx5_0 is not an mlx5 device", "name a ConnectX-4 or later", "af_xdp"]);
    assert_eq!(open(&config("mlx5_1")).name(), "mlx5_1");
}

#[test]
fn infiniband_port_is_told_with_the_command_that_changes_it() {
    if !is_inside("infiniband_port_is_told_with_the_command_that_changes_it", &["--strict", "--infiniband"]) {
        return;
    }
    let said = refused(&config("mlx5_0"));
    has(&said, &["port 1 of mlx5_0 is an InfiniBand port", "mlxconfig -d 0000:5c:00.0 set LINK_TYPE_P1=2"]);
    has(&refused(&Mlx5Config { port: 2, ..config("mlx5_0") }), &["mlx5_0 has no port 2: use 1"]);
}

#[test]
fn program_without_cap_net_raw_is_told_how_to_get_it() {
    let test = "program_without_cap_net_raw_is_told_how_to_get_it";
    for abi in ["ioctl", "write"] {
        let launcher = ["setpriv", "--bounding-set", "-net_raw", "--inh-caps", "-net_raw"];
        if !is_inside_under(test, &["--strict", "--abi", abi], &launcher) {
            continue;
        }
        has(&refused(&config("mlx5_0")), &["no permission", "run as root", "setcap cap_net_raw,cap_ipc_lock+ep"]);
        return;
    }
}

#[test]
fn memory_that_may_not_be_pinned_is_told_with_the_limit_and_the_command() {
    let test = "memory_that_may_not_be_pinned_is_told_with_the_limit_and_the_command";
    let launcher = ["prlimit", "--memlock=262144", "setpriv", "--bounding-set", "-ipc_lock", "--inh-caps", "-ipc_lock"];
    if !is_inside_under(test, &["--strict"], &launcher) {
        return;
    }
    let said = queue_refused(&mut open(&config("mlx5_0")), 0, 4096);
    has(
        &said,
        &["registering the pool would pin", "262144", "RLIMIT_MEMLOCK", "`ulimit -l unlimited`", "cap_ipc_lock"],
    );
    assert_eq!(nic::objects(), 0);
}

#[test]
fn full_flow_table_is_told_with_the_rule_and_the_others_stay() {
    if !is_inside("full_flow_table_is_told_with_the_rule_and_the_others_stay", &["--strict", "--flows", "2"]) {
        return;
    }
    let mut device = open(&Mlx5Config { queues: 2, ..config("mlx5_0") });
    let rule = |port| Rule { destination_port: Some(port), ..RULE };
    device.steer(&rule(1), 0).unwrap();
    let opened = End::open(&mut device, 0);
    (2..4).for_each(|port| _ = device.steer(&rule(port), 1).unwrap());
    has(&queue_refused(&mut device, 1, 1024), &["UDP to 239.1.2.3:3", "queue 1 of mlx5_0", "holds 2 rules"]);
    // The rules of the closed queue are removed: there is room for one beside the one that stayed.
    let before = nic::objects();
    device.steer(&rule(4), 0).unwrap();
    assert_eq!(device.steer(&rule(5), 0), Err(SteerError::TableFull { rules_max: 2 }));
    assert_eq!(nic::objects(), before + 1);
    opened.close();
    drop(device);
    assert_eq!((nic::objects(), nic::diagnoses()), (0, Vec::<String>::new()));
}

#[test]
fn queue_pair_that_stays_where_it_is_is_told_with_its_states() {
    let test = "queue_pair_that_stays_where_it_is_is_told_with_its_states";
    if !is_inside(test, &["--strict", "--abi", "write"]) {
        return;
    }
    for (skip, states) in [(0, "from RESET to INIT"), (1, "from INIT to RTR"), (2, "from RTR to RTS")] {
        // The one that is tried when the port is opened, before any worker is there.
        nic::refuse(Some(MODIFY_QP), skip, libc::EINVAL);
        let said = refused(&config("mlx5_0"));
        has(&said, &["queue pair of queue 0 of mlx5_0", states, "Invalid argument", "dmesg"]);
        // The sender's, then the receiver's.
        for half in [0, 3] {
            let mut device = open(&config("mlx5_0"));
            nic::refuse(Some(MODIFY_QP), half + skip, libc::EINVAL);
            has(&queue_refused(&mut device, 0, 1024), &["queue pair of queue 0 of mlx5_0", states]);
        }
    }
    assert_eq!((nic::objects(), nic::diagnoses()), (0, Vec::<String>::new()));
}

#[test]
fn machine_out_of_memory_is_told() {
    if !is_inside("machine_out_of_memory_is_told", &["--strict", "--abi", "write"]) {
        return;
    }
    let mut device = open(&config("mlx5_0"));
    nic::refuse(Some(REG_MR), 0, libc::ENOMEM);
    has(&queue_refused(&mut device, 0, 1024), &["no memory for registering the pool", "use a smaller pool"]);
}

/// Starts a port and its queues while the kernel refuses the command after `skip` others; returns
/// whether that command was reached. Wherever the start fails, it reports the reason, and only the
/// earlier objects exist.
fn starts(config: &Mlx5Config, skip: u32, errno: i32) -> bool {
    nic::refuse(None, skip, errno);
    let mut device = match Mlx5Device::open(config) {
        Ok(device) => device,
        Err(error) => {
            is_one_sentence(&error.to_string());
            assert_eq!(nic::objects(), 0, "left behind by the port after command {skip}: {error}");
            return true;
        }
    };
    let (opened, ends) = (nic::objects(), pool(1024, 1518));
    device.steer(&RULE, 0).unwrap();
    let mut queues = Vec::new();
    let block = Block::heap();
    for idx in 0..config.queues {
        match device.take_queue(idx).unwrap().open(&ends, &block.scope(&format!("port{idx}"))) {
            Ok(halves) => queues.push(halves),
            Err(error) => is_one_sentence(&error.to_string()),
        }
    }
    // A rule more, under way.
    if let Err(error) = device.steer(&Rule::arp(), 0) {
        is_one_sentence(&error.to_string());
    }
    let came = !nic::refuse(None, 0, 0);
    drop(queues);
    assert_eq!(ends.in_use(), 0, "buffers left behind after command {skip}");
    // Rules wait with the device; with the last queue they are out of the NIC.
    assert_eq!(nic::objects(), opened, "left behind by the queues after command {skip}");
    drop(device);
    assert_eq!(nic::objects(), 0, "left behind after command {skip}");
    came
}

#[test]
fn start_that_ends_at_any_command_leaves_nothing_behind() {
    let test = "start_that_ends_at_any_command_leaves_nothing_behind";
    if !is_inside(test, &["--strict", "--abi", "write"]) {
        return;
    }
    let hash = RxDistribution::Rss(RssConfig::default());
    let on = Feature::Required;
    for config in [
        config("mlx5_0"),
        Mlx5Config { queues: 3, rx_distribution: hash, ..config("mlx5_0") },
        Mlx5Config { striding: on, compression: on, ..config("mlx5_0") },
        Mlx5Config { pace: Some(Pace { kbps: 5000, ..Pace::default() }), timestamps: on, ..config("mlx5_0") },
    ] {
        for errno in [libc::EINVAL, libc::ENOMEM, libc::EIO] {
            let commands = (0..).find(|skip| !starts(&config, *skip, errno)).unwrap();
            assert!(commands > 15, "{commands} commands are not a start");
        }
    }
    assert_eq!(nic::diagnoses(), Vec::<String>::new());
}
