//! The reasons for which the sockets of a program stay with the kernel. Each is one sentence with
//! the next step, and a policy decides whether the program runs nevertheless.
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Output;

use wirepath_tests::live::preload::{
    compile_with, echo, library, run as run_under, said, segments_received, start, wire,
};
use wirepath_tests::live::{NEAR, OURS, THEIRS, Wire, has_program, wait_until};
use wirepath_tests::netns::Namespace;

/// Makes a socket that would be ours, and prints a line.
const PROGRAM: &str = "import socket\n\
                       made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
                       made.bind(('0.0.0.0', 7400))\n\
                       print('ran')\n";
/// No machine gives this user a name.
const STRANGER: &str = "64323";

/// Runs the program under the library at this path, in an environment, behind other words of the
/// command line.
fn run(wire: &Wire, library: &Path, before: &[&str], settings: &[&str]) -> Output {
    let preload = format!("LD_PRELOAD={}", library.display());
    let interface = format!("WIREPATH_INTERFACE={NEAR}");
    let words = [before, &["env", &preload, &interface], settings, &["python3", "-c", PROGRAM]].concat();
    wire.near.command(words[0], &words[1..]).unwrap()
}

/// The three policies about one obstacle.
fn decides(wire: &Wire, library: &Path, before: &[&str], settings: &[&str], sentence: &str) {
    let with = |policy: &str| {
        let policy = format!("WIREPATH_POLICY={policy}");
        run(wire, library, before, &[settings, &[&policy]].concat())
    };
    let (output, ends) = (with("refuse"), "; the policy is refuse, so the program ends\n");
    let text = said(&output);
    assert!(text.starts_with("wirepath: ") && text.contains(sentence) && text.ends_with(ends), "{text}");
    assert_eq!((output.status.code(), text.lines().count()), (Some(1), 1), "{text}");
    let (output, stays) = (with("warn"), "; the program runs on the kernel\n");
    let text = said(&output);
    let line = text.strip_prefix("ran\n").unwrap_or_else(|| panic!("it did not run: {text}"));
    let first = line.split_inclusive('\n').next().unwrap_or_default();
    assert!(first.contains(sentence) && first.ends_with(stays), "{text}");
    // Where a socket had been made, its reason follows.
    let rest: Vec<&str> = line.lines().skip(1).collect();
    assert!(rest.iter().all(|line| line.contains("a socket stays with the kernel")) && rest.len() < 2, "{text}");
    assert_eq!(said(&with("quiet")), "ran\n");
}

/// Gives number 2 to another file, in one of two ways, and makes a socket of which there is
/// something to say.
const OTHER_FILE: &str = "import os, socket, sys
file = os.open(sys.argv[2], os.O_RDWR | os.O_CREAT, 0o600)
if sys.argv[1] == 'dup2':
    os.dup2(file, 2)
else:
    os.close(2)
    assert os.open(sys.argv[2], os.O_RDWR) == 2
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).bind(('0.0.0.0', 7400))
";

#[test]
fn sentence_goes_to_a_log_that_is_made_standard_error_and_to_no_file_that_has_its_number_by_chance() {
    let test = "sentence_goes_to_a_log_that_is_made_standard_error_and_to_no_file_that_has_its_number_by_chance";
    let Some(wire) = wire(test, &["python3"]) else { return };
    let folder = tempfile::tempdir().unwrap();
    let (rules, file) = (folder.path().join("os.toml"), folder.path().join("file"));
    fs::write(&rules, "default = \"os\"\n").unwrap();
    let written = |how: &str| {
        let _ = fs::remove_file(&file);
        let settings = [
            format!("LD_PRELOAD={}", library().display()),
            format!("WIREPATH_INTERFACE={NEAR}"),
            format!("WIREPATH_RULES={}", rules.display()),
        ];
        let program = ["python3", "-c", OTHER_FILE, how, file.to_str().unwrap()];
        let words: Vec<&str> = settings.iter().map(String::as_str).chain(program).collect();
        let output = wire.near.command("env", &words).unwrap();
        assert!(output.status.success(), "{how}: {}", said(&output));
        fs::read_to_string(&file).unwrap()
    };
    assert!(written("dup2").starts_with("wirepath: a socket stays with the kernel: "));
    assert_eq!(written("close"), "");
}

/// Becomes a daemon as daemon(3) does, closes all other descriptors, gives up its rights and its
/// root folder, and makes a socket that is the kernel's.
const DAEMON: &str = "import os, socket, sys
folder = sys.argv[1]
socket.socket(socket.AF_INET, socket.SOCK_STREAM).close()
if os.fork(): os._exit(0)
os.setsid()
nothing = os.open('/dev/null', os.O_RDWR)
for number in (0, 1, 2): os.dup2(nothing, number)
os.closerange(3, 4096)
done = os.open(folder, os.O_RDONLY)
os.chroot(folder)
os.chdir('/')
os.setgid(64323)
os.setuid(64323)
made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
made.bind(('127.0.0.1', 7400))
os.open('/done', os.O_WRONLY | os.O_TRUNC)
os.write(os.open('/done', os.O_WRONLY), str(os.getpid()).encode() + b'.')
";

#[test]
fn sentences_of_a_daemon_are_in_its_log() {
    let test = "sentences_of_a_daemon_are_in_its_log";
    let Some(wire) = wire(test, &["python3"]) else { return };
    let folder = tempfile::tempdir().unwrap();
    let (log, done) = (folder.path().join("log"), folder.path().join("done"));
    fs::write(&log, "before\n").unwrap();
    fs::set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
    for policy in ["warn", "quiet"] {
        fs::write(&done, "").unwrap();
        fs::set_permissions(&done, Permissions::from_mode(0o666)).unwrap();
        let settings = [format!("WIREPATH_LOG={}", log.display()), format!("WIREPATH_POLICY={policy}")];
        let program = ["python3", "-c", DAEMON, folder.path().to_str().unwrap()];
        let words: Vec<&str> = settings.iter().map(String::as_str).chain(program).collect();
        assert_eq!(said(&run_under(&wire, "env", &words)), "");
        let pid = || fs::read_to_string(&done).unwrap().strip_suffix('.').map(str::to_owned);
        wait_until("the daemon has its socket", || pid().is_some());
        let pid = pid().unwrap();
        let text = fs::read_to_string(&log).unwrap();
        let line = text.lines().find(|line| line.contains(&format!(" {pid} wirepath: a socket stays ")));
        let line = line.unwrap_or_else(|| panic!("{policy}: no line of process {pid}: {text}"));
        assert!(
            line.ends_with("127.0.0.1:7400: loopback or broadcast; `wirepath sockets` lists all of them"),
            "{line}"
        );
        let time = line.split(' ').next().unwrap();
        assert!(time.len() == 20 && time.starts_with("20") && time.ends_with('Z'), "{line}");
        assert!(text.starts_with("before\n"), "{text}");
    }
}

/// Starts a program with a socket that is connected, which stays the kernel's: ADDRESS SETTINGS...
/// BODY.
const ACTIVATES: &str = "import os, socket, sys
made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
made.bind((sys.argv[1], 7300))
made.connect((sys.argv[1], 7301))
if made.fileno() != 3: os.dup2(made.fileno(), 3)
os.set_inheritable(3, True)
settings = dict(word.split('=', 1) for word in sys.argv[2:-1])
if 'LISTEN_PID' in settings: settings['LISTEN_PID'] = str(os.getpid())
os.execvpe('python3', ['python3', '-c', sys.argv[-1]], {**os.environ, **settings})
";

#[test]
fn socket_that_a_program_is_started_with_is_said_and_refused() {
    let test = "socket_that_a_program_is_started_with_is_said_and_refused";
    let Some(wire) = wire(test, &["python3"]) else { return };
    let (preload, interface) = (format!("LD_PRELOAD={}", library().display()), format!("WIREPATH_INTERFACE={NEAR}"));
    let body = "import os, socket, sys\n\
                given = socket.socket(fileno=3)\n\
                print('ran', flush=True)\n\
                if 'makes' in os.environ: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n";
    let run = |address: &str, settings: &[&str]| {
        let words = [&["-c", ACTIVATES, address, &preload, &interface], settings, &[body]].concat();
        said(&wire.near.command("python3", &words).unwrap())
    };
    let ours = OURS.to_string();
    let sentence = format!(
        "wirepath: a socket stays with the kernel: {ours}:7300: it was there when the program began (systemd, inetd or \
         exec); `wirepath sockets` lists all of them\n"
    );
    assert_eq!(run(&ours, &["LISTEN_PID="]), format!("ran\n{sentence}"), "given by systemd");
    assert_eq!(run(&ours, &["makes="]), format!("ran\n{sentence}"), "by another program");
    assert_eq!(run(&ours, &[]), "ran\n", "one that makes no socket may not use it");
    assert_eq!(run("127.0.0.1", &["LISTEN_PID=", "WIREPATH_POLICY=refuse"]), "ran\n", "of loopback");
    let refused = run(&ours, &["LISTEN_PID=", "WIREPATH_POLICY=refuse"]);
    let expected = format!(
        "wirepath: a socket of the program's, {ours}:7300, is the kernel's: it was there when the program began (systemd, \
         inetd or exec); the policy is refuse, so the program ends\n"
    );
    assert_eq!(refused, expected);
}

#[test]
fn multipath_tcp_is_said_to_be_the_kernels_and_refused() {
    let test = "multipath_tcp_is_said_to_be_the_kernels_and_refused";
    let Some(wire) = wire(test, &["python3"]) else { return };
    let body = "import errno, socket\n\
                try: socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262); print('made')\n\
                except OSError as error: print(errno.errorcode[error.errno])\n";
    let alone = wire.near.command("python3", &["-c", body]).unwrap();
    if said(&alone) != "made\n" {
        eprintln!("SKIPPED {test}: the kernel has no multipath TCP: {}", said(&alone));
        return;
    }
    let of = |policy: &str| said(&run_under(&wire, "env", &[policy, "python3", "-c", body]));
    let sentence = "wirepath: a socket stays with the kernel: 0.0.0.0:0: multipath TCP (IPPROTO_MPTCP), which only the \
                    kernel has; `wirepath sockets` lists all of them\n";
    assert_eq!(of("WIREPATH_POLICY=warn"), format!("made\n{sentence}"));
    assert_eq!(of("WIREPATH_POLICY=refuse"), "EPROTONOSUPPORT\n");
}

#[test]
fn log_is_a_regular_file_and_no_link() {
    let test = "log_is_a_regular_file_and_no_link";
    let Some(wire) = wire(test, &["python3", "mkfifo"]) else { return };
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let (file, link, pipe, none) = (at("file"), at("link"), at("pipe"), at("none/log"));
    fs::write(&file, "").unwrap();
    std::os::unix::fs::symlink(&file, &link).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let body =
        "import socket\nsocket.socket(socket.AF_INET, socket.SOCK_DGRAM).bind(('127.0.0.1', 7400))\nprint('ran')";
    for (path, why) in [
        (&link, "Too many levels of symbolic links"),
        (&pipe, "No such device or address"),
        (&none, "No such file or directory"),
        (&at(""), "Is a directory"),
    ] {
        let setting = format!("WIREPATH_LOG={}", path.display());
        let text = said(&run_under(&wire, "env", &[&setting, "python3", "-c", body]));
        let said: Vec<&str> = text.lines().collect();
        assert!(said.len() == 3 && said[0] == "ran" && said[2].contains("loopback"), "{text}");
        let begin = format!("wirepath: {} cannot be the log ({why}", path.display());
        assert!(said[1].starts_with(&begin) && said[1].ends_with(": standard error alone has the sentences"), "{text}");
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), "");
    // Standard error that is the log has each line once.
    let setting = format!("WIREPATH_LOG={}", file.display());
    let script = "exec \"$@\" 2>>\"$0\"";
    let words = [&setting, "sh", "-c", script, file.to_str().unwrap(), "python3", "-c", body];
    assert_eq!(said(&run_under(&wire, "env", &words)), "ran\n");
    assert_eq!(fs::read_to_string(&file).unwrap().lines().count(), 1);
}

#[test]
fn wrong_setting_is_a_sentence_and_the_policy_decides() {
    let test = "wrong_setting_is_a_sentence_and_the_policy_decides";
    let Some(wire) = wire(test, &["python3"]) else { return };
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("bad.toml");
    fs::write(&rules, "[[rules]]\nuse = \"kernel\"\n").unwrap();
    let rules = format!("WIREPATH_RULES={}", rules.display());
    for (setting, sentence) in [
        ("WIREPATH_SPIN_US=soon", "WIREPATH_SPIN_US is \"soon\": set it to microseconds, 10000000 at most"),
        ("WIREPATH_XDP_MODE=skb", "WIREPATH_XDP_MODE is \"skb\": set it to auto, native or generic"),
        ("WIREPATH_GATHER_US=-1", "WIREPATH_GATHER_US is \"-1\": set it to microseconds, 1000000 at most"),
        ("WIREPATH_SPIN_US=10000001", "set it to microseconds, 10000000 at most"),
        ("WIREPATH_RULE=trading.toml", "WIREPATH_RULE is no setting of wirepath's: unset it, or see docs/run.md"),
        (&rules, "bad.toml line 2, column 7: expected \"offload\", \"os\", \"both\" or \"refuse\""),
        ("WIREPATH_ADDRESS=192.0.2.7", "WIREPATH_ADDRESS is \"192.0.2.7\": set it to an address such as 192.0.2.7/24"),
        ("WIREPATH_GATEWAY=192.0.2.1", "WIREPATH_GATEWAY without WIREPATH_ADDRESS"),
    ] {
        decides(&wire, library(), &[], &[setting], sentence);
    }
    let text = said(&run(&wire, library(), &[], &["WIREPATH_POLICY=maybe"]));
    let sentence =
        "wirepath: WIREPATH_POLICY is \"maybe\": set it to refuse, warn or quiet; the program runs on the kernel";
    assert_eq!(text, format!("ran\n{sentence}\n"));
}

#[test]
fn interface_that_cannot_be_opened_ends_the_program_before_it_begins_or_leaves_it_on_the_kernel() {
    let test = "interface_that_cannot_be_opened_ends_the_program_before_it_begins_or_leaves_it_on_the_kernel";
    let Some(wire) = wire(test, &["python3"]) else { return };
    decides(&wire, library(), &[], &["WIREPATH_INTERFACE=nowhere0"], "nowhere0");
    decides(&wire, library(), &[], &["WIREPATH_BROKER=/nowhere.sock"], "/nowhere.sock");
}

#[test]
fn xdp_program_of_another_process_on_the_interface_is_named() {
    let test = "xdp_program_of_another_process_on_the_interface_is_named";
    let Some(wire) = wire(test, &["python3"]) else { return };
    let first = "import socket, sys\n\
                 made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
                 made.bind(('0.0.0.0', 7401))\n\
                 made.recv(1)\n";
    let _first = start(&wire, "python3", &["-c", first]);
    wait_until("the first program is on the interface", || {
        let links = wire.near.command("ip", &["-details", "link", "show", "dev", NEAR]).unwrap();
        said(&links).contains("prog/xdp")
    });
    decides(&wire, library(), &[], &[], "XDP");
}

#[test]
fn interface_that_spreads_frames_over_queues_is_said_where_the_nic_steers_none() {
    let test = "interface_that_spreads_frames_over_queues_is_said_where_the_nic_steers_none";
    let Some(wire) = wire(test, &["python3"]) else { return };
    let other = Namespace::new().unwrap();
    let queues = "numtxqueues 2 numrxqueues 2";
    let link = format!("link add many0 {queues} type veth peer name many1 netns {} {queues}", other.name());
    wire.near.ip(&link.split(' ').collect::<Vec<_>>()).unwrap();
    wire.near.ip(&["link", "set", "many0", "up"]).unwrap();
    wire.near.ip(&["addr", "add", "10.9.2.1/24", "dev", "many0"]).unwrap();
    let text = said(&run(&wire, library(), &[], &["WIREPATH_INTERFACE=many0", "WIREPATH_POLICY=warn"]));
    let sentence = "wirepath: many0 spreads frames over 2 queues, of which 1 is ours, and the NIC steers none there: its \
                    driver has no such rules";
    assert!(text.contains("ran\n") && text.contains(sentence), "{text}");
}

#[test]
fn program_without_capabilities_and_without_a_broker_is_a_sentence() {
    let test = "program_without_capabilities_and_without_a_broker_is_a_sentence";
    if !has_program(test, "setpriv") {
        return;
    }
    let Some(wire) = wire(test, &["python3"]) else { return };
    let folder = tempfile::Builder::new().permissions(Permissions::from_mode(0o755)).tempdir().unwrap();
    let copy = folder.path().join("library.so");
    fs::copy(library(), &copy).unwrap();
    fs::set_permissions(&copy, Permissions::from_mode(0o755)).unwrap();
    let before = ["setpriv", "--reuid", STRANGER, "--regid", STRANGER, "--clear-groups"];
    let shm = format!("WIREPATH_SHM={}", folder.path().join("shm").display());
    fs::create_dir(folder.path().join("shm")).unwrap();
    fs::set_permissions(folder.path().join("shm"), Permissions::from_mode(0o1777)).unwrap();
    decides(&wire, &copy, &before, &[&shm], "cap_");
}

#[test]
fn statically_linked_program_runs_on_the_kernel_unharmed() {
    let test = "statically_linked_program_runs_on_the_kernel_unharmed";
    let Some(wire) = wire(test, &[]) else { return };
    echo(&wire);
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compile_with(test, "alone.c", folder.path(), &["-static"]) else { return };
    let output = run_under(&wire, &program, &[&THEIRS.to_string()]);
    assert_eq!((output.status.code(), said(&output).as_str()), (Some(0), "hello\n"));
    assert_ne!(segments_received(&wire.near), 0, "segments that the kernel got");
}

#[test]
fn files_in_shared_memory_go_with_a_program_that_ends_and_with_the_next_after_one_that_was_killed() {
    let test = "files_in_shared_memory_go_with_a_program_that_ends_and_with_the_next_after_one_that_was_killed";
    let Some(wire) = wire(test, &["python3"]) else { return };
    echo(&wire);
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let Some(alone) = compile_with(test, "alone.c", folder.path(), &[]) else { return };
    let shm = folder.path().join("shm");
    let setting = format!("WIREPATH_SHM={}", shm.display());
    let contents = || {
        let names = fs::read_dir(&shm).into_iter().flatten().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names.iter().map(|name| name.rsplit_once('.').unwrap().1.to_owned()).collect::<Vec<_>>()
    };

    let waits = "import socket\n\
                 made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
                 made.bind(('0.0.0.0', 7401))\n\
                 made.recv(1)\n";
    let killed = start(&wire, "env", &[&setting, "python3", "-c", waits]);
    let all = ["connections", "counters", "sockets", "tap"];
    wait_until("the program has its files", || contents() == all);
    let used: u64 = fs::read_dir(&shm).unwrap().map(|entry| entry.unwrap().metadata().unwrap().blocks() * 512).sum();
    println!("{test}: a program has {} KiB in shared memory", used >> 10);
    assert!(used < 6 << 20, "{used} bytes, though nobody captures");
    drop(killed);
    assert_eq!(contents(), all);

    let output = run_under(&wire, "env", &[&setting, &alone, &THEIRS.to_string()]);
    assert_eq!((output.status.code(), said(&output).as_str()), (Some(0), "hello\n"));
    // Those of another program's connections are a guardian's to read, for a moment.
    assert_eq!(contents(), ["connections"]);
}
