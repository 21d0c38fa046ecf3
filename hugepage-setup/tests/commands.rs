//! The binary on made-up machines: its output, its files, its exit codes.

#![allow(clippy::unwrap_used)] // a panic is the report
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

const BINARY: &str = env!("CARGO_BIN_EXE_hugepage-setup");
const NOBODY: u32 = 65534;

/// Two nodes, 12 pages of 2 MiB, of which `free` are free; 16 GiB of memory.
fn fake_machine(free: u64) -> TempDir {
    let machine = TempDir::new().unwrap();
    let write = |name: &str, text: &str| {
        let path = machine.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable: 8388608 kB\nHugepagesize: 2048 kB\n");
    write("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "12\n");
    write("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", &format!("{free}\n"));
    for node in ["node0", "node1"] {
        let folder = format!("sys/devices/system/node/{node}");
        write(&format!("{folder}/cpulist"), "0-3\n");
        write(&format!("{folder}/meminfo"), "Node 0 MemTotal: 8388608 kB\nNode 0 MemFree: 4194304 kB\n");
        write(&format!("{folder}/hugepages/hugepages-2048kB/nr_hugepages"), "6\n");
        write(&format!("{folder}/hugepages/hugepages-2048kB/free_hugepages"), "6\n");
    }
    machine
}

/// Exit code, standard output, standard error.
fn run(root: Option<&Path>, arguments: &str) -> (i32, String, String) {
    let mut command = Command::new(BINARY);
    command.args(arguments.split_whitespace());
    if let Some(root) = root {
        command.arg("--root").arg(root);
    }
    finish(&mut command)
}

fn finish(command: &mut Command) -> (i32, String, String) {
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

fn total(machine: &TempDir) -> String {
    fs::read_to_string(machine.path().join("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages")).unwrap()
}

fn assert_has(text: &str, part: &str) {
    assert!(text.contains(part), "\"{part}\" is not in:\n{text}");
}

#[test]
fn wrong_command_lines_exit_with_2() {
    for (arguments, part) in [
        ("", "Usage"),
        ("reserve", "unrecognized subcommand"),
        ("apply", "--pages N or --size SIZE"),
        ("apply --pages many", "invalid value 'many'"),
        ("apply --pages -1", "-1"),
        ("apply --size 0.5G", "whole number"),
        ("apply --size 12Q", "K, M, G, T"),
        ("apply --pages 4 --size 8M", "cannot be used with"),
        ("apply --pages 4 --page-size 3M", "2M or 1G"),
        ("check --pages 0", "at least one page"),
        ("check --pages 1 --root /tmp", "no --root"),
        ("check --persist", "unexpected argument"),
    ] {
        let (code, _, errors) = run(None, arguments);
        assert_eq!(code, 2, "{arguments}: {errors}");
        assert_has(&errors, part);
    }
}

#[test]
fn machine_without_hugepages_exits_with_1() {
    let nothing = TempDir::new().unwrap();
    let (code, _, errors) = run(Some(nothing.path()), "apply --pages 4");
    assert_eq!(code, 1);
    assert_has(&errors, "this kernel has no hugepages at all");
}

#[test]
fn garbage_from_the_kernel_names_the_file() {
    let machine = fake_machine(12);
    let path = machine.path().join("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages");
    fs::write(&path, "lots").unwrap();
    let (code, _, errors) = run(Some(machine.path()), "plan");
    assert_eq!(code, 1);
    assert_has(&errors, &format!("{} holds \"lots\"", path.display()));
}

#[test]
fn too_much_memory_is_refused_before_writing() {
    let machine = fake_machine(12);
    let (code, _, errors) = run(Some(machine.path()), "apply --size 12G");
    assert_eq!((code, total(&machine).as_str()), (1, "12\n"));
    assert_has(&errors, "ask for at most 3584 more pages");
}

#[test]
fn pages_in_use_are_not_given_back() {
    let machine = fake_machine(11);
    let (code, _, errors) = run(Some(machine.path()), "apply --pages 4 --shrink");
    assert_eq!((code, total(&machine).as_str()), (1, "12\n"));
    assert_has(&errors, "1 of 12 pages of 2 MiB are in use");
}

#[test]
fn unused_pages_are_given_back_only_with_shrink() {
    let machine = fake_machine(12);
    assert_eq!(run(Some(machine.path()), "apply --pages 4").0, 0);
    assert_eq!(total(&machine), "12\n");
    assert_eq!(run(Some(machine.path()), "apply --pages 4 --shrink").0, 0);
    assert_eq!(total(&machine), "4\n");
}

#[test]
fn absent_node_is_named() {
    let (code, _, errors) = run(Some(fake_machine(12).path()), "apply --pages 4 --node 7");
    assert_eq!(code, 1);
    assert_has(&errors, "NUMA node 7 does not exist; this machine has 0, 1");
}

#[test]
fn plan_and_dry_run_change_nothing() {
    for arguments in ["plan --size 64M --persist", "apply --size 64M --persist --dry-run"] {
        let machine = fake_machine(12);
        let (code, output, errors) = run(Some(machine.path()), arguments);
        assert_eq!((code, errors.as_str()), (0, ""));
        assert_has(&output, "2 MiB       all     12    12       0        0         32  reserve 20 more (40 MiB)");
        assert_has(&output, "2 MiB         1      6     6       0        0          -  takes its share");
        assert_has(&output, "vm.nr_hugepages = 32");
        assert_has(&output, "hugepage-setup apply --pages 32 --persist");
        assert_eq!(total(&machine), "12\n");
        assert!(!machine.path().join("etc").exists());
    }
}

#[test]
fn apply_on_a_node_writes_only_there() {
    let machine = fake_machine(12);
    let (code, output, _) = run(Some(machine.path()), "apply --pages 8 --node 1 --persist");
    assert_eq!((code, total(&machine).as_str()), (0, "12\n"));
    let node = machine.path().join("sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages");
    assert_eq!(fs::read_to_string(node).unwrap(), "8\n");
    assert_has(&output, "there were 6, there are 8");
    assert_has(&output, "hugepagesz=2M hugepages=1:8");
}

#[test]
fn persist_writes_the_file_also_when_nothing_is_missing() {
    let machine = fake_machine(12);
    assert_eq!(run(Some(machine.path()), "apply --pages 12 --persist").0, 0);
    let text = fs::read_to_string(machine.path().join("etc/sysctl.d/60-hugepage-setup.conf")).unwrap();
    assert_has(&text, "vm.nr_hugepages = 12\n");
}

#[test]
fn without_root_the_command_is_named() {
    let machine = fake_machine(12);
    // The made-up files belong to this user: only another user is refused.
    let binary = machine.path().join("hugepage-setup");
    // In a separate process: while we hold a file open for writing, a test that forks beside us
    // makes it "busy" to execute.
    assert!(Command::new("cp").arg(BINARY).arg(&binary).status().unwrap().success());
    fs::set_permissions(machine.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new(binary);
    command.args(["apply", "--pages", "16", "--persist", "--root"]).arg(machine.path()).uid(NOBODY).gid(NOBODY);
    if let Err(why) = command.output()
        && why.kind() == ErrorKind::PermissionDenied
    {
        println!("SKIPPED without_root_the_command_is_named: cannot become another user ({why})");
        return;
    }
    let (code, _, errors) = finish(&mut command);
    assert_eq!(code, 1);
    assert_has(&errors, "needs root; run: sudo hugepage-setup apply --pages 16 --persist");
    assert_eq!(errors.lines().count(), 1, "one sentence: {errors}");
}

#[test]
fn table_that_cannot_be_written_is_a_failure_before_anything_changes() {
    let Ok(full) = File::options().write(true).open("/dev/full") else {
        println!("SKIPPED table_that_cannot_be_written_is_a_failure: there is no /dev/full");
        return;
    };
    let machine = fake_machine(12);
    for verb in ["plan", "apply"] {
        let mut command = Command::new(BINARY);
        command.args([verb, "--pages", "16", "--root"]).arg(machine.path()).stdout(full.try_clone().unwrap());
        let (code, _, error) = finish(&mut command);
        assert_eq!(code, 1, "{verb}: {error}");
        assert_has(&error, "standard output");
        assert_eq!(total(&machine), "12\n", "{verb}");
    }
}
