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
