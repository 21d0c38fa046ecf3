//! What goes wrong at a ConnectX whose queues are lent: the broker ends, rings fail.

use super::*;

/// Receives until that fails, says how, and goes on until its input ends.
const RECEIVER: &str = "\
import errno, socket, sys
own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
own.bind(('', int(sys.argv[1])))
print('ready', flush=True)
try: own.recv(2048)
except OSError as error: print(errno.errorcode[error.errno], flush=True)
sys.stdin.read()
";

#[test]
fn program_lets_go_of_the_connectx_when_its_broker_ends_and_the_next_broker_lends_it() {
    let test = "program_lets_go_of_the_connectx_when_its_broker_ends_and_the_next_broker_lends_it";
    let Some(mut rig) = connectx(test) else { return };
    let (child, mut said) = started(&rig, rig.command(SERVED, &["python3", "-c", RECEIVER, "7005"]), "ready\n");
    let mappings = || fs::read_to_string(format!("/proc/{}/maps", child.id())).unwrap();
    let file = "infiniband/uverbs";
    assert!(mappings().contains(file), "the register of its queue");
    rig.kill_broker();
    assert_eq!(next_line(&mut said), "ENETDOWN\n");
    // The NIC has a client's queue and flows for as long as a process has the file.
    let left = mappings();
    assert!(left.contains("libwirepath") && !left.contains(file), "{left}");
    (rig.broker, rig.log) = start_broker(&rig.wire, &rig.folder, &rig.port, &[]);
    let _next = server(&rig, "udp", 7_006);
    datagram(&rig, 7_006);
    let told = String::from_utf8(end(child).stderr).unwrap();
    assert!(told.contains(&format!("the broker of {NEAR} has ended, and its program with it")), "{told}");
}

#[test]
fn rings_that_fail_are_reset_by_the_broker_and_no_byte_is_lost() {
    let test = "rings_that_fail_are_reset_by_the_broker_and_no_byte_is_lost";
    // Of a thousand WQEs, so many fail: each puts its ring into error. An echo is seventy receives,
    // but on a busy machine a handful of sends, because one has many segments and one ACK is for
    // many: with as few of these failing, none did in 64 rounds.
    let hostile = "7,delay=8,loss=0,reorder=0,send=50,receive=5,link=0";
    let Some(rig) = connectx_of(test, &["--strict", "--hostile", hostile], &[]) else { return };
    let _server = server(&rig, "tcp", 7_005);
    let mut stream = call(&rig, 7_005, 9);
    let resets = |half: &str| counter(&rig, half, "resets");
    let mut rounds = 0;
    while (resets("rx") == 0 || resets("tx") == 0) && rounds < 64 {
        again(&mut stream, 100_000);
        rounds += 1;
    }
    assert!(resets("rx") > 0 && resets("tx") > 0, "after {rounds} rounds");
    again(&mut stream, 100_000);
}

/// For each line that it reads, waits a moment for a datagram, and says what has come.
const LOOKS: &str = "\
import socket, sys
own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
own.bind(('', int(sys.argv[1])))
own.settimeout(0.3)
print('ready', flush=True)
for line in sys.stdin:
    try: print(own.recv(2048).decode(), flush=True)
    except TimeoutError: print('nothing', flush=True)
";

fn signal(process: u32, name: &str) {
    let sent = Command::new("kill").args([name, &process.to_string()]).status();
    assert!(sent.unwrap().success(), "{name} {process}");
}

#[test]
fn program_goes_to_sleep_and_wakes_by_its_timer_while_the_broker_of_its_connectx_stands_still() {
    let test = "program_goes_to_sleep_and_wakes_by_its_timer_while_the_broker_of_its_connectx_stands_still";
    let Some(rig) = connectx(test) else { return };
    let (mut child, mut said) = started(&rig, rig.command(SERVED, &["python3", "-c", LOOKS, "7005"]), "ready\n");
    let mut look = || {
        writeln!(child.stdin.as_mut().unwrap()).unwrap();
        next_line(&mut said)
    };
    assert_eq!(look(), "nothing\n");
    // The broker is the child of the process that has the NIC.
    let parent = rig.broker.id();
    let broker = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap();
    let broker = broker.trim().parse().unwrap_or(parent);
    signal(broker, "-STOP");
    let words = [look(), look()];
    signal(broker, "-CONT");
    assert_eq!(words, ["nothing\n", "nothing\n"]);
    rig.wire.socket((THEIRS, 0)).send_to(b"a tick", (OURS, 7_005)).unwrap();
    wait_until("the datagram arrives", || look() == "a tick\n");
    end(child);
}

#[test]
fn program_that_is_stopped_keeps_no_frames_from_the_others_of_its_connectx() {
    let test = "program_that_is_stopped_keeps_no_frames_from_the_others_of_its_connectx";
    let Some(rig) = connectx(test) else { return };
    let (stopped, _other) = (server(&rig, "udp", 7_005), server(&rig, "udp", 7_006));
    [7_005, 7_006].iter().for_each(|port| datagram(&rig, *port));
    // The broker writes its counters in its turns.
    wait_until("two queues are counted", || counter(&rig, "broker", "queues_lent") == 2);
    assert!(counter(&rig, "broker", "packet_buffers") > 0);
    signal(stopped.0.id(), "-STOP");
    // More than its ring has buffers.
    let sender = rig.wire.socket((THEIRS, 0));
    (0..3_000).for_each(|_| _ = sender.send_to(b"nobody reads it", (OURS, 7_005)).unwrap());
    datagram(&rig, 7_006);
    signal(stopped.0.id(), "-CONT");
    datagram(&rig, 7_005);
    datagram(&rig, 7_006);
}

#[test]
fn broker_of_a_connectx_that_may_not_resolve_neighbors_does_not_start_and_says_why() {
    let test = "broker_of_a_connectx_that_may_not_resolve_neighbors_does_not_start_and_says_why";
    if !has_program(test, "setpriv") {
        return;
    }
    let Some(rig) = connectx(test) else { return };
    let mut command = softhca::testing::command(&["--wire", NEAR]).unwrap();
    command.args(["setpriv", "--bounding-set", "-net_admin", "--inh-caps", "-net_admin"]);
    command.arg(rig.folder.path().join("wirepath")).args(["broker", "--interface", &rig.port, "--socket"]);
    command.arg(rig.folder.path().join("another")).env("WIREPATH_SHM", rig.folder.path().join("shm"));
    let output = rig.wire.near.run(|| command.output()).unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("give the process CAP_NET_ADMIN"), "{said}");
}

/// The sum of the counters of all programs whose names end so.
fn counter(rig: &Rig, half: &str, name: &str) -> u64 {
    let report = report(rig, "stats");
    let processes = report["processes"].as_array().unwrap();
    let values = processes.iter().flat_map(|process| process["values"].as_array().unwrap());
    let end = format!("{half}/{name}");
    values
        .filter(|value| value["name"].as_str().unwrap().ends_with(&end))
        .filter_map(|value| value["value"].as_u64())
        .sum()
}
