//! What `wirepath run`, `wirepath broker` and `wirepath doctor` check and leave alone before a
//! program of another user starts.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::{Command, Output};

use wirepath_tests::live::preload::library;
use wirepath_tests::live::{NEAR, has_program, wait_until};

use super::{Ended, Rig, SERVED, command_of_root, without_the_operators_broker};

/// One sentence on standard error that has these words, exit code 1.
fn refused(output: &Output, says: &str) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.starts_with("wirepath: ") && said.lines().count() == 1 && said.contains(says), "{said}");
}

/// Runs as root in the near namespace.
fn output(rig: &Rig, mut command: Command) -> Output {
    rig.wire.near.run(|| command.output()).unwrap()
}

#[test]
fn user_who_may_not_read_library_or_rules_is_refused() {
    let Some(rig) = Rig::new("user_who_may_not_read_library_or_rules_is_refused") else { return };
    // Root's alone: the loader would drop the library, and the program would run on the kernel.
    let hidden = tempfile::Builder::new().permissions(Permissions::from_mode(0o700)).tempdir().unwrap();
    let path = |name: &str| hidden.path().join(name);
    fs::copy(library(), path("ours.so")).unwrap();
    fs::write(path("rules.toml"), "").unwrap();
    let rules = path("rules.toml");
    let says = |path: &Path| format!("user {SERVED} may not read {} (Permission denied", path.display());

    let user = ["--user", &SERVED.to_string()];
    let mut by_library = command_of_root(&rig.folder, &user, &["true"]);
    by_library.env("WIREPATH_PRELOAD", path("ours.so"));
    refused(&output(&rig, by_library), &says(&path("ours.so")));
    let options = [&user[..], &["--rules", rules.to_str().unwrap()]].concat();
    refused(&output(&rig, command_of_root(&rig.folder, &options, &["true"])), &says(&rules));
}

#[test]
fn rights_of_a_file_are_judged_for_the_user_who_is_to_run_it() {
    let test = "rights_of_a_file_are_judged_for_the_user_who_is_to_run_it";
    if !has_program(test, "setcap") {
        return;
    }
    let Some(rig) = Rig::new(test) else { return };
    let program = |name: &str| {
        let path = rig.folder.path().join(name);
        assert!(Command::new("cp").arg("/usr/bin/true").arg(&path).status().unwrap().success());
        path
    };
    let run = |program: &Path| {
        let user = ["--user", &SERVED.to_string()];
        output(&rig, command_of_root(&rig.folder, &user, &[program.to_str().unwrap()]))
    };
    let able = program("able");
    assert!(Command::new("setcap").arg("cap_net_raw+ep").arg(&able).status().unwrap().success());
    refused(&run(&able), "able gets rights from its file (capabilities), so the loader ignores LD_PRELOAD");
    // It is the user's own, who gains nothing.
    let own = program("own");
    chown(&own, Some(SERVED), Some(SERVED)).unwrap();
    fs::set_permissions(&own, Permissions::from_mode(0o4755)).unwrap();
    let ran = run(&own);
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
}

#[test]
fn broker_that_lends_queues_is_none_to_share() {
    let Some(rig) = Rig::new("broker_that_lends_queues_is_none_to_share") else { return };
    let run = output(&rig, command_of_root(&rig.folder, &["--share"], &["true"]));
    refused(&run, "lends queues, of which each is one program's: start the broker with --forward");
}

#[test]
fn own_address_where_a_broker_listens_is_told_to_stop_it() {
    let Some(rig) = Rig::new("own_address_where_a_broker_listens_is_told_to_stop_it") else { return };
    let socket = rig.folder.path().join("socket");
    let mut command = Command::new(rig.folder.path().join("wirepath"));
    command.args(["run", "--interface", NEAR, "--policy", "refuse", "--address", "192.0.2.77/24", "true"]);
    command.env("WIREPATH_BROKER", &socket);
    refused(&output(&rig, command), &format!("stop the broker at {}, or omit --address", socket.display()));
}

#[test]
fn second_broker_in_the_background_fails_and_leaves_the_log_of_the_first() {
    let Some(rig) = Rig::new("second_broker_in_the_background_fails_and_leaves_the_log_of_the_first") else { return };
    let log = rig.folder.path().join("socket.log");
    fs::write(&log, "wirepath: words of the first\n").unwrap();
    let number = fs::metadata(&log).unwrap().ino();
    let mut second = Command::new(rig.folder.path().join("wirepath"));
    second.args(["broker", "--background", "--interface", NEAR, "--socket"]).arg(rig.folder.path().join("socket"));
    refused(&output(&rig, second), "another broker listens at ");
    assert_eq!(fs::metadata(&log).unwrap().ino(), number);
    assert_eq!(fs::read_to_string(&log).unwrap(), "wirepath: words of the first\n");
}

#[test]
fn broker_that_run_has_started_keeps_neither_descriptors_nor_folder_of_its_caller() {
    let test = "broker_that_run_has_started_keeps_neither_descriptors_nor_folder_of_its_caller";
    if !has_program(test, "flock") {
        return;
    }
    let Some(mut rig) = Rig::new(test) else { return };
    without_the_operators_broker(&mut rig);
    let path = |name: &str| rig.folder.path().join(name);
    let run = command_of_root(&rig.folder, &["--share"], &["true"]);
    // A job that is not to run twice at a time.
    let mut job = Command::new("sh");
    job.args(["-c", "exec 9>lock; flock -n 9 || exit 7; exec \"$@\"", "sh"]).arg(run.get_program());
    job.args(run.get_args()).current_dir(rig.folder.path()).env("WIREPATH_SHM", path("shm"));
    job.env("LD_PRELOAD", "libm.so.6");
    let ran = output(&rig, job);
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    // The broker goes on for ten seconds.
    assert!(path("socket").exists());
    assert!(Command::new("flock").arg("-n").arg(path("lock")).arg("true").status().unwrap().success());
    let broker = broker_of(&path("socket"));
    let broker = broker.expect("the broker runs");
    assert_eq!(fs::read_link(broker.join("cwd")).unwrap(), Path::new("/"));
    let variables = fs::read(broker.join("environ")).unwrap();
    assert!(!String::from_utf8_lossy(&variables).contains("LD_PRELOAD="));
}

#[test]
fn doctor_of_a_program_finds_the_broker_that_serves_its_user() {
    let Some(rig) = Rig::new("doctor_of_a_program_finds_the_broker_that_serves_its_user") else { return };
    let doctor = |uid: u32| {
        let mut command = rig.command(uid, &[]);
        let program = command.get_program().to_owned();
        command = Command::new("setpriv");
        let (user, group) = (format!("--reuid={uid}"), format!("--regid={uid}"));
        command.args([&*user, &*group, "--clear-groups", "env", "-C", "/"]).arg(program).args(["doctor", "env"]);
        command.env("WIREPATH_INTERFACE", NEAR).env("WIREPATH_BROKER", rig.folder.path().join("socket"));
        let output = output(&rig, command);
        (output.status.success(), String::from_utf8(output.stdout).unwrap())
    };
    let (is_well, said) = doctor(SERVED);
    assert!(is_well && said.contains("serves this user"), "{said}");
    let (is_well, said) = doctor(super::STRANGER);
    assert!(!is_well && said.contains("no broker serves this user") && !said.contains("setcap"), "{said}");
}

/// The capabilities of the unit that docs/ has, for setpriv(1).
fn capabilities_of_the_unit() -> String {
    let unit = include_str!("../../../../docs/wirepath-broker@.service");
    let lines = unit.lines().filter_map(|line| line.strip_prefix("CapabilityBoundingSet="));
    let names = lines.flat_map(str::split_whitespace);
    let names = names.map(|name| format!(",+{}", name.trim_start_matches("CAP_").to_lowercase()));
    format!("-all{}", names.collect::<String>())
}

#[test]
fn broker_of_the_unit_takes_over_the_folder_of_another() {
    let test = "broker_of_the_unit_takes_over_the_folder_of_another";
    if !has_program(test, "setpriv") {
        return;
    }
    let Some(mut rig) = Rig::new(test) else { return };
    without_the_operators_broker(&mut rig);
    let folder = "mount -t tmpfs shm /dev/shm && mkdir -m 700 /dev/shm/wirepath && chown 64323 /dev/shm/wirepath";
    let broker = "exec setpriv --bounding-set=\"$1\" \"$2\" broker --interface \"$3\" --socket \"$4\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &format!("{folder} && {broker}"), "sh", &capabilities_of_the_unit()]);
    command.arg(rig.folder.path().join("wirepath")).arg(NEAR).arg(rig.folder.path().join("socket"));
    let mut broker = Ended(rig.wire.near.run(|| command.spawn()).unwrap());
    wait_until("the broker listens, or has ended", || {
        rig.folder.path().join("socket").exists() || broker.0.try_wait().unwrap().is_some()
    });
    let ran = output(&rig, command_of_root(&rig.folder, &[], &["true"]));
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
}

#[test]
fn broker_that_run_has_started_has_the_cores_of_helpers_and_not_the_policy_of_its_caller() {
    let test = "broker_that_run_has_started_has_the_cores_of_helpers_and_not_the_policy_of_its_caller";
    let Some(cores) = wirepath::worker::affinity::current().filter(|cores| cores.count() > 1) else {
        return eprintln!("SKIPPED {test}: one core");
    };
    if !has_program(test, "chrt") || !has_program(test, "taskset") {
        return;
    }
    let Some(mut rig) = Rig::new(test) else { return };
    without_the_operators_broker(&mut rig);
    let [first, last] = [cores.iter().next(), cores.last()].map(|core| core.unwrap().to_string());
    let run = command_of_root(&rig.folder, &["--share", "--helper-cpus", &last], &["true"]);
    let mut job = Command::new("taskset");
    job.args(["-c", &first, "chrt", "-f", "1"]).arg(run.get_program()).args(run.get_args());
    job.envs(run.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let ran = output(&rig, job);
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let broker = broker_of(&rig.folder.path().join("socket")).unwrap();
    let threads: Vec<_> = fs::read_dir(broker.join("task")).unwrap().flatten().map(|entry| entry.path()).collect();
    assert!(threads.len() > 1, "one of them passes frames on");
    for thread in threads {
        let status = fs::read_to_string(thread.join("status")).unwrap();
        let cores = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:\t"));
        // The policy is the 41st word (proc(5)); the name, the second one, may have blanks.
        let stat = fs::read_to_string(thread.join("stat")).unwrap();
        let policy = stat.rsplit(") ").next().and_then(|words| words.split(' ').nth(38));
        assert_eq!((cores, policy), (Some(&*last), Some("0")), "{status}");
    }
}

/// The process of the broker that listens at a socket.
fn broker_of(socket: &Path) -> Option<std::path::PathBuf> {
    let words = format!("--socket\0{}", socket.display());
    fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path()).find(|process| {
        fs::read(process.join("cmdline")).is_ok_and(|line| String::from_utf8_lossy(&line).contains(&words))
    })
}
