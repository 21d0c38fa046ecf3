//! `wirepath run` and `wirepath doctor PROGRAM` as a user types them. The preloaded library does
//! nothing here; another package tests it.
#![allow(clippy::unwrap_used, reason = "helpers of tests panic to report")]

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;
use wirepath_tests::netns::Namespace;

const WIREPATH: &str = env!("CARGO_BIN_EXE_wirepath");

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// A library that the loader takes, as this process has it too.
fn harmless() -> PathBuf {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let mut paths =
        maps.lines().filter_map(|line| line.split_once('/')).map(|(_, path)| PathBuf::from(format!("/{path}")));
    paths.find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("libc.so"))).unwrap()
}

/// `wirepath ARGUMENTS` with a library that is there.
fn wirepath(arguments: &[&str]) -> Command {
    let mut command = Command::new(WIREPATH);
    command.args(arguments).env("WIREPATH_PRELOAD", harmless());
    for name in ["WIREPATH_INTERFACE", "WIREPATH_RULES", "WIREPATH_POLICY", "WIREPATH_LOG", "LD_PRELOAD"] {
        command.env_remove(name);
    }
    command
}

fn write(folder: &TempDir, name: &str, bytes: &[u8], mode: u32) -> String {
    let path = folder.path().join(name);
    fs::write(&path, bytes).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    path.to_str().unwrap().to_owned()
}

/// One sentence on standard error that begins like this, exit code 1, and the program did not run.
fn refused(output: &Output, says: &str) {
    assert_eq!((output.status.code(), &*out(output)), (Some(1), ""), "{}", err(output));
    let sentence = err(output);
    assert!(sentence.starts_with("wirepath: ") && sentence.lines().count() == 1, "{sentence}");
    assert!(sentence.contains(says), "{says:?} is not in {sentence:?}");
}

#[test]
fn program_that_is_not_there_is_refused_under_every_policy() {
    for policy in ["refuse", "warn", "quiet"] {
        refused(
            &wirepath(&["run", "--policy", policy, "no-such-program-anywhere"]).output().unwrap(),
            "there is no program no-such-program-anywhere in PATH: install it",
        );
    }
    refused(&wirepath(&["run", "./nothing"]).output().unwrap(), "cannot run ./nothing: ");
}

#[test]
fn usage_errors_exit_2() {
    for wrong in [
        &["run"][..],
        &["run", "--policy", "maybe", "true"],
        &["run", "--spin", "-1", "true"],
        &["run", "--spin", "99999999", "true"],
        &["run", "--polcy", "warn", "true"],
        &["run", "--address", "192.0.2.7", "true"],
        &["run", "--gateway", "192.0.2.1", "true"],
        &["run", "--address", "192.0.2.7/24", "--broker", "socket", "true"],
    ] {
        assert_eq!(wirepath(wrong).output().unwrap().status.code(), Some(2), "{wrong:?}");
    }
}

#[test]
fn policy_decides_what_becomes_of_a_program_that_no_library_sees() {
    let folder = tempfile::tempdir().unwrap();
    // An image with neither loader nor code: the kernel would refuse it, which shows that the
    // kernel was asked to run it.
    let mut image = vec![0u8; 64];
    image[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    for (at, value) in
        [(16, 2u16), (18, if cfg!(target_arch = "x86_64") { 62 } else { 183 }), (52, 64), (54, 56), (58, 64)]
    {
        image[at..at + 2].copy_from_slice(&value.to_le_bytes());
    }
    let program = write(&folder, "static", &image, 0o755);
    // As execvp(3) does, a shell is tried next, to which 62, the machine's number, is a
    // redirection.
    let run =
        |policy: &str| wirepath(&["run", "--policy", policy, &program]).current_dir(folder.path()).output().unwrap();
    refused(&run("refuse"), "static is linked statically: no library can be put in front of it: link it dynamically");
    let warned = err(&run("warn"));
    assert!(warned.starts_with("wirepath: the program runs on the kernel, as static is linked statically"), "{warned}");
    // The kernel, and then the shell, refuse it in their own words.
    assert!(!err(&run("quiet")).contains("linked statically"));
}

#[test]
fn policy_of_the_environment_holds_where_no_option_says_another() {
    let run = |policy: &str, options: &[&str]| {
        let arguments = [&["run", "--interface", "no-such-port"], options, &["echo", "ran"]].concat();
        wirepath(&arguments).env("WIREPATH_POLICY", policy).output().unwrap()
    };
    refused(&run("refuse", &[]), "there is no interface no-such-port");
    assert_eq!(out(&run("refuse", &["--policy", "quiet"])), "ran\n");
    assert_eq!(out(&run("", &[])), "ran\n");
    refused(&run("rfuse", &[]), "WIREPATH_POLICY is \"rfuse\": set it to refuse, warn or quiet");
}

#[test]
fn rules_that_can_be_read_once_are_refused() {
    let Some(namespace) = namespace("rules_that_can_be_read_once_are_refused") else { return };
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("rules");
    assert!(Command::new("mkfifo").arg(&rules).status().unwrap().success());
    let run = || {
        let mut command = wirepath(&["run", "--interface", "port0", "--policy", "refuse", "--rules"]);
        command.arg(&rules).arg("true").output().unwrap()
    };
    refused(
        &namespace.run(run),
        "is no regular file, and each program reads its rules anew: write the rules to a file",
    );
}

#[test]
fn log_is_made_and_what_cannot_be_one_is_refused() {
    let Some(namespace) = namespace("log_is_made_and_what_cannot_be_one_is_refused") else { return };
    let folder = TempDir::new().unwrap();
    let log = folder.path().join("log");
    let run = |log: &Path| {
        namespace.run(|| {
            let mut command = wirepath(&["run", "--interface", "port0", "--policy", "refuse", "--log"]);
            let words = [log.as_os_str(), "sh".as_ref(), "-c".as_ref(), "echo $WIREPATH_LOG".as_ref()];
            command.current_dir(&folder).args(words).output().unwrap()
        })
    };
    // The program may change its directory.
    assert_eq!(out(&run(Path::new("log"))), format!("{}\n", log.display()));
    assert_eq!(fs::read(&log).unwrap(), b"");
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&log, &link).unwrap();
    for path in [folder.path(), &link] {
        refused(&run(path), "cannot be the log (");
    }
}

fn is_root(test: &str) -> bool {
    let is_root = Command::new("id").arg("-u").output().unwrap().stdout == b"0\n";
    if !is_root {
        println!("SKIPPED {test}: not root");
    }
    is_root
}

#[test]
fn user_has_the_groups_and_the_home_of_a_login() {
    if !is_root("user_has_the_groups_and_the_home_of_a_login") {
        return;
    }
    let groups = fs::read_to_string("/etc/group").unwrap();
    let members = groups.lines().filter_map(|line| line.split(':').nth(3)).flat_map(|members| members.split(','));
    for user in members.filter(|member| !member.is_empty()).take(3).chain(["nobody"]) {
        let run = |program: &[&str]| {
            let options = ["run", "--policy", "quiet", "--interface", "no-such-port", "--user", user];
            out(&wirepath(&[&options, program].concat()).output().unwrap())
        };
        let sorted = |text: &str| {
            let mut numbers: Vec<u32> = text.split_whitespace().map(|number| number.parse().unwrap()).collect();
            numbers.sort_unstable();
            numbers
        };
        let expected = out(&Command::new("id").args(["-G", user]).output().unwrap());
        assert_eq!(sorted(&run(&["id", "-G"])), sorted(&expected), "{user}");
        assert_eq!(run(&["id", "-un"]).trim(), user);
        let home = run(&["sh", "-c", "echo $HOME $USER $LOGNAME"]);
        assert!(home.ends_with(&format!(" {user} {user}\n")) && !home.starts_with("/root "), "{home}");
    }
}

#[test]
fn program_that_its_user_may_not_reach_is_told_so() {
    if !is_root("program_that_its_user_may_not_reach_is_told_so") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
    let program = folder.path().join("engine");
    wirepath_tests::programs::copy("/usr/bin/true", &program);
    let mut command = wirepath(&["run", "--policy", "quiet", "--interface", "no-such-port", "--user", "64323"]);
    let output = command.arg(&program).output().unwrap();
    refused(&output, "let this user execute it, and enter the folders above it");
}

#[test]
fn rules_with_an_error_are_told_with_their_place() {
    let Some(namespace) = namespace("rules_with_an_error_are_told_with_their_place") else { return };
    let folder = tempfile::tempdir().unwrap();
    let rules = write(&folder, "bad.toml", b"[[rules]]\nuse = \"kernel\"\n", 0o644);
    let run = |policy| {
        namespace.run(|| {
            wirepath(&["run", "--interface", "port0", "--rules", &rules, "--policy", policy, "echo", "ran"])
                .output()
                .unwrap()
        })
    };
    let sentence =
        "bad.toml line 2, column 7: expected \"offload\", \"os\", \"both\" or \"refuse\", and found \"kernel\"";
    refused(&run("refuse"), sentence);
    let warned = run("warn");
    assert_eq!((warned.status.code(), &*out(&warned)), (Some(0), "ran\n"));
    assert!(err(&warned).contains(sentence) && err(&warned).lines().count() == 1, "{}", err(&warned));
    let quiet = run("quiet");
    assert_eq!((&*out(&quiet), &*err(&quiet)), ("ran\n", ""));
}

#[test]
fn library_that_is_not_there_is_told_with_the_way_to_it() {
    let mut command = wirepath(&["run", "--policy", "refuse", "true"]);
    refused(
        &command.env("WIREPATH_PRELOAD", "/nowhere.so").output().unwrap(),
        "WIREPATH_PRELOAD names /nowhere.so, which is no file",
    );
    let folder = tempfile::tempdir().unwrap();
    let alone = folder.path().join("bin/wirepath");
    fs::create_dir(folder.path().join("bin")).unwrap();
    wirepath_tests::programs::copy(WIREPATH, &alone);
    let run = || {
        Command::new(&alone)
            .args(["run", "--policy", "refuse", "--interface", "no-such-port", "true"])
            .output()
            .unwrap()
    };
    refused(&run(), "libwirepath_preload.so is neither in ");
    // The library is found in ../lib, so the next obstacle is reported.
    fs::create_dir(folder.path().join("lib")).unwrap();
    write(&folder, "lib/libwirepath_preload.so", b"", 0o644);
    refused(&run(), "there is no interface no-such-port");
}

#[test]
fn installed_wirepath_finds_the_library_that_is_installed_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path();
    // What cargo would have built: the script is tried, not cargo.
    fs::create_dir_all(place.join("target/debug")).unwrap();
    fs::create_dir(place.join("path")).unwrap();
    write(&folder, "path/cargo", b"#!/bin/sh\n", 0o755);
    wirepath_tests::programs::copy(WIREPATH, place.join("target/debug/wirepath"));
    for other in ["feed-handler", "hugepage-setup", "libwirepath_preload.so"] {
        write(&folder, &format!("target/debug/{other}"), b"", 0o644);
    }
    let path = std::env::join_paths([place.join("path"), "/usr/bin".into(), "/bin".into()]).unwrap();
    let mut install = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/install-tools"));
    install.arg("/opt/wirepath").env("DESTDIR", place).env("PROFILE", "dev");
    let installed = install.env("CARGO_TARGET_DIR", place.join("target")).env("PATH", path).output().unwrap();
    assert!(installed.status.success(), "{}", err(&installed));

    let into = place.join("opt/wirepath");
    let mut run = Command::new(into.join("bin/wirepath"));
    run.args(["run", "--policy", "refuse", "--interface", "no-such-port", "true"]);
    refused(&run.output().unwrap(), "there is no interface no-such-port");
    for (name, port) in [("wirepath-broker@", "%i"), ("wirepath-broker-mlx5@", "mlx5:%i")] {
        let unit = fs::read_to_string(into.join(format!("lib/systemd/system/{name}.service"))).unwrap();
        let start = format!("\nExecStart=/opt/wirepath/bin/wirepath broker --interface {port} ");
        assert!(unit.contains(&start), "{unit}");
    }
    let mode = |name: &str| fs::metadata(into.join("bin").join(name)).unwrap().permissions().mode();
    assert_eq!((mode("feed-handler") & 0o777, mode("hugepage-setup") & 0o777), (0o755, 0o755));
}

/// Root's, with an interface that carries frames.
fn namespace(test: &str) -> Option<Namespace> {
    let made = Namespace::new().and_then(|here| {
        here.ip(&["link", "add", "port0", "type", "veth", "peer", "name", "port1"])?;
        here.ip(&["link", "set", "port0", "up"])?;
        here.ip(&["link", "set", "port1", "up"])?;
        Ok(here)
    });
    made.map_err(|why| println!("SKIPPED {test}: {why}")).ok()
}

#[test]
fn program_gets_the_library_and_what_it_reads() {
    let Some(namespace) = namespace("program_gets_the_library_and_what_it_reads") else { return };
    let folder = tempfile::tempdir().unwrap();
    write(&folder, "libvma.conf", b"application-id * *\nuse os udp_connect *:53\n", 0o644);
    let arguments = [
        "run",
        "--interface",
        "port0",
        "--rules",
        "libvma.conf",
        "--policy",
        "refuse",
        "--spin",
        "250",
        "--xdp-mode",
        "generic",
        "env",
    ];
    let run = || {
        wirepath(&arguments)
            .current_dir(folder.path())
            .env("LD_PRELOAD", "libm.so.6")
            .env("WIREPATH_OPENED", "1")
            .output()
            .unwrap()
    };
    let output = namespace.run(run);
    assert_eq!((output.status.code(), &*err(&output)), (Some(0), ""));
    let text = out(&output);
    let variables: HashMap<&str, &str> = text.lines().filter_map(|line| line.split_once('=')).collect();
    assert_eq!(variables["LD_PRELOAD"], format!("{}:libm.so.6", harmless().display()));
    assert_eq!(variables["WIREPATH_INTERFACE"], "port0");
    assert_eq!(Path::new(variables["WIREPATH_RULES"]), folder.path().join("libvma.conf"));
    assert_eq!((variables["WIREPATH_POLICY"], variables["WIREPATH_SPIN_US"]), ("refuse", "250"));
    assert_eq!(variables["WIREPATH_XDP_MODE"], "generic");
    // This one opens the interface first, whatever the program did that started `wirepath run`.
    assert!(!variables.contains_key("WIREPATH_OPENED"));
}

#[test]
fn program_gets_an_address_of_its_own() {
    let Some(namespace) = namespace("program_gets_an_address_of_its_own") else { return };
    let own = ["run", "--interface", "port0", "--address", "192.0.2.7/24", "--gateway", "192.0.2.1", "env"];
    let text = out(&namespace.run(|| wirepath(&own).output().unwrap()));
    assert!(
        text.contains("WIREPATH_ADDRESS=192.0.2.7/24\n") && text.contains("WIREPATH_GATEWAY=192.0.2.1\n"),
        "{text}"
    );
}

#[test]
fn program_gets_its_arguments_and_its_exit_code_is_ours() {
    let Some(namespace) = namespace("program_gets_its_arguments_and_its_exit_code_is_ours") else { return };
    let run = |arguments: &[&str]| namespace.run(|| wirepath(arguments).output().unwrap());
    let shell = ["run", "--interface", "port0", "sh", "-c", "echo $0 $1; exit 7", "--policy", "x"];
    let output = run(&shell);
    assert_eq!((output.status.code(), &*out(&output)), (Some(7), "--policy x\n"));
    let behind = run(&["run", "--interface", "port0", "--", "echo", "--", "-n"]);
    assert_eq!(out(&behind), "-- -n\n");
}

#[test]
fn several_interfaces_are_named_to_choose_from() {
    let Some(namespace) = namespace("several_interfaces_are_named_to_choose_from") else { return };
    // After `ip netns exec`, /sys shows the namespace's interfaces; a thread that only entered the
    // namespace still sees the old /sys.
    let library = format!("WIREPATH_PRELOAD={}", harmless().display());
    let run = |arguments: &[&str]| {
        namespace.command("env", &[&[&library, WIREPATH, "run", "--policy", "refuse"], arguments].concat()).unwrap()
    };
    let several = "2 interfaces carry frames, and none was chosen: choose one with --interface: port0, port1";
    refused(&run(&["true"]), several);
    refused(&namespace.run(|| wirepath(&["run", "--policy", "refuse", "true"]).output().unwrap()), several);
    refused(&run(&["--interface", "lo", "true"]), "lo carries no Ethernet frames");
    namespace.ip(&["link", "set", "port1", "down"]).unwrap();
    refused(&run(&["true"]), "no Ethernet interface carries frames");
    refused(&run(&["--interface", "port1", "true"]), "port1 is down: `ip link set port1 up`");
}

#[test]
fn fallback_leaves_the_library_out() {
    let output = wirepath(&["run", "--interface", "no-such-port", "env"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(
        err(&output).starts_with("wirepath: the program runs on the kernel, as there is no interface no-such-port")
    );
    assert!(!out(&output).contains("LD_PRELOAD=") && !out(&output).contains("WIREPATH_INTERFACE="), "{}", out(&output));
}

#[test]
fn doctor_says_whether_a_program_will_be_seen() {
    let report = |arguments: &[&str]| {
        let output = wirepath(arguments).output().unwrap();
        (output.status.success(), out(&output), err(&output))
    };
    let (_, text, _) = report(&["doctor", "env"]);
    assert!(text.lines().next().unwrap().ends_with("linked dynamically: its sockets are seen"), "{text}");
    let (_, text, _) = report(&["doctor", "--json", WIREPATH]);
    let json: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["program"], WIREPATH);
    assert_eq!((&json["findings"][0]["check"], &json["findings"][0]["severity"]), (&"program".into(), &"good".into()));

    let folder = tempfile::tempdir().unwrap();
    let words = write(&folder, "words", b"words", 0o755);
    let (done, text, error) = report(&["doctor", &words]);
    assert!(!done && text.is_empty() && error.contains("neither an ELF image nor a script"), "{error}");
    let (done, _, error) = report(&["doctor", "not-there"]);
    let sentence =
        "wirepath: there is no interface not-there in this network namespace, and no program of that name in PATH: ";
    assert!(!done && error.starts_with(sentence), "{error}");
}

#[test]
fn doctor_says_by_which_names_rules_know_a_program() {
    let folder = tempfile::tempdir().unwrap();
    let shell = fs::canonicalize("/bin/sh").unwrap();
    let link = folder.path().join("link");
    std::os::unix::fs::symlink("/bin/sh", &link).unwrap();
    let script = write(&folder, "script", format!("#!{} -e\n", link.display()).as_bytes(), 0o755);
    let line = format!("its rules know it by the name link, a broker's by {}\n", shell.display());
    for program in [link.to_str().unwrap(), &script] {
        let text = out(&wirepath(&["doctor", program]).output().unwrap());
        assert!(text.contains(&line), "{line:?} is not in {text}");
    }
}
