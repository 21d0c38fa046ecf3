//! The RoCE of Linux (rxe) in a guest is the other end.

use std::net::Ipv4Addr;
use std::process::{Child, Command};
use std::time::Duration;

use wirepath_tests::live::{FAR, NEAR, Wire, has_program};
use wirepath_tests::rxe::{Finished, Guest, GuestConfig};

use crate::ends::{UNDAMAGED, check, start, wait_for_listener};

const GUEST: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 9);
/// For the tools of perftest that measure a rate. Without it they end by code 1 instead of a report
/// where two clocks of the guest disagree, as they may when a busy machine takes its CPU away.
const WITHOUT_FREQUENCY: &str = "-F";
/// The packets of RoCE that a lossy wire drops: each 13th of both directions together.
const LOSS: &str = "table bridge loss {\n chain forward {\n type filter hook forward priority 0;\n \
    ether type ip udp dport 4791 numgen inc mod 13 0 drop\n }\n}\n";

/// A guest behind a bridge at the far end of the cable.
fn guest(test: &str, wire: &Wire) -> Option<Guest> {
    wire.near.ip(&["addr", "add", "10.9.0.1/24", "dev", NEAR]).unwrap();
    wire.far.ip(&["link", "add", "br0", "type", "bridge"]).unwrap();
    let guest = Guest::start(test, &wire.far, &GuestConfig { tap: "tap0", address: GUEST, mtu: 1500 })?;
    for interface in [FAR, "tap0"] {
        wire.far.ip(&["link", "set", interface, "master", "br0"]).unwrap();
    }
    wire.far.ip(&["link", "set", "br0", "up"]).unwrap();
    Some(guest)
}

/// The guest listens, and we ask.
fn ask_guest(wire: &Wire, guest: &mut Guest, program: &str, arguments: &str) {
    guest.begin(program);
    // The guest's listener is not to be seen from here: the tool says when there is none yet.
    let asks = || {
        let output = start(&wire.near, arguments).wait_with_output().unwrap();
        let is_early = String::from_utf8_lossy(&output.stderr).contains("start the other end there first");
        (!is_early).then_some(output)
    };
    let output = (0..100).find_map(|_| {
        let asked = asks();
        if asked.is_none() {
            std::thread::sleep(Duration::from_millis(100));
        }
        asked
    });
    let output = output.expect("the guest listens");
    check(&output, "MTU 1024");
    if program.starts_with("ib") {
        check(&output, UNDAMAGED);
    }
    let finished = guest.finish();
    assert_eq!(finished.code, 0, "{program}: {finished:?}");
}

/// We listen, and the guest asks.
fn serve_guest(wire: &Wire, guest: &mut Guest, arguments: &str, program: &str) {
    let server = start(&wire.near, arguments);
    wait_for_listener(&wire.near);
    let finished = guest.run(&format!("{program} 10.9.0.1"));
    check_both(program, &finished, server, UNDAMAGED);
}

/// Both ends have succeeded, and ours has said `word`. Otherwise both are shown: either may be the
/// reason that the other failed.
fn check_both(program: &str, finished: &Finished, server: Child, word: &str) {
    if finished.code != 0 {
        // The server may wait for this client still.
        Command::new("kill").args(["-INT", &server.id().to_string()]).status().unwrap();
    }
    let output = server.wait_with_output().unwrap();
    let ours = [&output.stdout[..], &output.stderr].concat();
    let ours = String::from_utf8_lossy(&ours);
    let (code, theirs) = (finished.code, &finished.output);
    assert_eq!(code, 0, "our server ended by {} and said:\n{ours}\n{program} said:\n{theirs}", output.status);
    check(&output, word);
}

/// All tools of Linux that the verbs speak with, in both roles.
fn play_all(wire: &Wire, guest: &mut Guest) {
    let ping_pong = "ibv_rc_pingpong -d rxe0 -g 1 -n 50";
    ask_guest(wire, guest, ping_pong, &format!("pingpong {GUEST} --via {NEAR} --size 4096 --count 50"));
    serve_guest(wire, guest, &format!("pingpong --serve --via {NEAR} --size 4096 --count 50"), ping_pong);
    for (verb, size) in [("send", " -s 4096"), ("write", " -s 4096"), ("read", " -s 4096"), ("atomic", "")] {
        let program = format!("ib_{verb}_bw {WITHOUT_FREQUENCY} -d rxe0 -x 1 -n 50{size}");
        ask_guest(wire, guest, &program, &format!("{verb} {GUEST} --via {NEAR} --size 4096 --count 50 --depth 4"));
        serve_guest(wire, guest, &format!("{verb} --serve --via {NEAR} --size 4096"), &program);
    }
}

/// The short case: both roles.
#[test]
fn ping_pong_and_write_with_linux() {
    let test = "ping_pong_and_write_with_linux";
    let Some(wire) = Wire::new(test) else { return };
    let Some(mut guest) = guest(test, &wire) else { return };
    let ping_pong = "ibv_rc_pingpong -d rxe0 -g 1 -n 20";
    ask_guest(&wire, &mut guest, ping_pong, &format!("pingpong {GUEST} --via {NEAR} --size 4096 --count 20"));
    let write = format!("ib_write_bw {WITHOUT_FREQUENCY} -d rxe0 -x 1 -n 20 -s 4096");
    serve_guest(&wire, &mut guest, &format!("write --serve --via {NEAR} --size 4096"), &write);
}

/// The programs of rdmacm-utils, in both roles: `rounds` of messages of up to 4000 bytes.
fn play_by_rdma_cm(wire: &Wire, guest: &mut Guest, rounds: u32) {
    for size in [64, 4000] {
        let rping = format!("rping -C {rounds} -S {size} -V");
        let ours = format!("pingpong --via {NEAR} --cm --size {size} --count {rounds}");
        ask_guest(wire, guest, &format!("{rping} -s"), &format!("{ours} {GUEST}"));
        serve_by_rdma_cm(wire, guest, &format!("{ours} --serve"), &format!("{rping} -c -a 10.9.0.1"));
        let ucmatose = format!("ucmatose -C {rounds} -S {size}");
        let ours = format!("send --via {NEAR} --cm --size {size} --count {rounds}");
        ask_guest(wire, guest, &ucmatose, &format!("{ours} {GUEST}"));
        serve_by_rdma_cm(wire, guest, &format!("{ours} --serve"), &format!("{ucmatose} -s 10.9.0.1"));
    }
}

/// We listen by RDMA_CM, and the guest asks until we do.
fn serve_by_rdma_cm(wire: &Wire, guest: &mut Guest, arguments: &str, program: &str) {
    let server = start(&wire.near, arguments);
    let finished = guest.run(&format!("for i in 1 2 3 4 5 6 7 8 9; do {program} && exit 0; sleep 1; done; exit 1"));
    check_both(program, &finished, server, "MTU 1024");
}

#[test]
fn programs_of_rdmacm_connect_in_both_roles() {
    let test = "programs_of_rdmacm_connect_in_both_roles";
    let Some(wire) = Wire::new(test) else { return };
    let Some(mut guest) = guest(test, &wire) else { return };
    play_by_rdma_cm(&wire, &mut guest, 5);
}

#[test]
#[ignore = "a minute and more: make soak"]
fn each_verb_with_linux_loses_nothing_over_a_lossy_wire() {
    let test = "each_verb_with_linux_loses_nothing_over_a_lossy_wire";
    let Some(wire) = Wire::new(test).filter(|_| has_program(test, "nft")) else { return };
    let Some(mut guest) = guest(test, &wire) else { return };
    play_all(&wire, &mut guest);
    let lossy = wire.far.command("nft", &[LOSS]).unwrap();
    assert!(lossy.status.success(), "{}", String::from_utf8_lossy(&lossy.stderr));
    play_all(&wire, &mut guest);
}
