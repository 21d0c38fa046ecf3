//! The RoCE of Linux (rxe) in a guest is the other end.

use std::net::Ipv4Addr;
use std::process::{Child, Command};
use std::time::Duration;

use wirepath_tests::live::{FAR, NEAR, Wire, has_program};
use wirepath_tests::roce_wire::{RoceWire, WireCounts, WireFaults};
use wirepath_tests::rxe::{Finished, Guest, GuestConfig};

use crate::ends::{UNCERTAIN, UNDAMAGED, check, start, wait_for_listener};

const GUEST: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 9);
/// The guest's end of its cable.
const TAP: &str = "tap0";
/// Of an interface whose packets have up to 4096 bytes.
const JUMBO_MTU: usize = 9000;

/// A guest behind a bridge at the far end of the cable, and how large packets are.
struct Lab {
    wire: Wire,
    guest: Guest,
    /// Of the packets that both ends agree on, unless a test names another.
    mtu: u32,
    /// The wire loses packets.
    is_lossy: bool,
}

impl Lab {
    /// Interfaces of this MTU; `None`, with the reason, where nothing can be tested.
    fn new(test: &str, link_mtu: usize) -> Option<Self> {
        let wire = Wire::new(test)?;
        let guest = Guest::start(test, &wire.far, &GuestConfig { tap: TAP, address: GUEST, mtu: link_mtu })?;
        wire.near.ip(&["addr", "add", "10.9.0.1/24", "dev", NEAR]).unwrap();
        wire.far.ip(&["link", "add", "br0", "type", "bridge"]).unwrap();
        for interface in [FAR, TAP] {
            wire.far.ip(&["link", "set", interface, "master", "br0"]).unwrap();
        }
        for (end, interface) in [(&wire.near, NEAR), (&wire.far, FAR), (&wire.far, "br0")] {
            end.ip(&["link", "set", interface, "mtu", &link_mtu.to_string(), "up"]).unwrap();
        }
        let mtu = if link_mtu == JUMBO_MTU { 4096 } else { 1024 };
        Some(Self { wire, guest, mtu, is_lossy: false })
    }

    /// The guest listens, and we ask.
    fn ask(&mut self, program: &str, arguments: &str) {
        self.guest.begin(program);
        // The guest's listener is not to be seen from here: the tool says when there is none yet.
        let asks = || {
            let output = start(&self.wire.near, arguments).wait_with_output().unwrap();
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
        check(&output, &format!("MTU {}", self.mtu));
        if program.starts_with("ib") {
            check(&output, UNDAMAGED);
        }
        let finished = self.guest.finish();
        assert_eq!(finished.code, 0, "{program}: {finished:?}");
    }

    /// We listen, and the guest asks.
    fn serve(&mut self, program: &str, arguments: &str) {
        let server = start(&self.wire.near, arguments);
        wait_for_listener(&self.wire.near);
        let finished = self.guest.run(&format!("{program} 10.9.0.1"));
        // A client that has all messages leaves at once, and may take our last acknowledgment with
        // it. That it has ended well says as much.
        let certain = if self.is_lossy { &[UNDAMAGED, UNCERTAIN][..] } else { &[UNDAMAGED] };
        check_both(program, &finished, server, certain);
    }

    /// A program in both roles: `verb` and its options are ours.
    fn play(&mut self, program: &str, verb: &str, options: &str) {
        self.ask(program, &format!("{verb} {GUEST} --via {NEAR} {options}"));
        self.serve(program, &format!("{verb} --serve --via {NEAR} {options}"));
    }

    /// We listen by RDMA_CM, and the guest asks until we do.
    fn serve_by_rdma_cm(&mut self, program: &str, arguments: &str) {
        let server = start(&self.wire.near, arguments);
        // It waits for a message without a timeout, and a server that has ended asks nothing more.
        let asks = format!(
            "for i in 1 2 3 4 5 6 7 8 9; do timeout 110 {program} && exit 0; [ $? != 143 ] || exit 143; sleep 1; \
             done; exit 1"
        );
        let finished = self.guest.run(&asks);
        check_both(program, &finished, server, &[&format!("MTU {}", self.mtu)]);
    }
}

/// Both ends have succeeded, and ours has said one of `words`; with [`UNCERTAIN`] among them it may
/// have failed so. Otherwise both are shown: either may be the reason that the other failed.
fn check_both(program: &str, finished: &Finished, server: Child, words: &[&str]) {
    if finished.code != 0 {
        // The server may wait for this client still.
        Command::new("kill").args(["-INT", &server.id().to_string()]).status().unwrap();
    }
    let output = server.wait_with_output().unwrap();
    let ours = [&output.stdout[..], &output.stderr].concat();
    let ours = String::from_utf8_lossy(&ours);
    let (code, theirs) = (finished.code, &finished.output);
    assert_eq!(code, 0, "our server ended by {} and said:\n{ours}\n{program} said:\n{theirs}", output.status);
    // The uncertain end is a failure.
    let says = |word: &&str| ours.contains(*word) && output.status.success() == (*word != UNCERTAIN);
    let is_well = words.iter().any(says);
    assert!(is_well, "{program} has ended well, our server by {}, which said:\n{ours}", output.status);
}

/// A tool of perftest. Without -F those that measure a rate end by code 1 instead of a report where
/// two clocks of the guest disagree, as they may when a busy machine takes its CPU away.
fn perftest(tool: &str, options: &str) -> String {
    format!("ib_{tool} -F -d rxe0 -x 1 {options}").trim_end().to_owned()
}

/// A pingpong of rdma-core, by its service.
fn ping_pong(service: &str, options: &str) -> String {
    let queues = if service == "srq" { " -q 1" } else { "" };
    format!("ibv_{service}_pingpong -d rxe0 -g 1{queues} {options}")
}

/// The verbs of perftest.
const VERBS: [&str; 4] = ["send", "write", "read", "atomic"];

/// The size of messages, for perftest: atomic operations have none.
fn size_of(verb: &str, size: u32) -> String {
    if verb == "atomic" { String::new() } else { format!("-s {size}") }
}

/// All tools of reliable connections, in both roles: `count` messages of `size` bytes.
fn play_reliable(lab: &mut Lab, count: u32, size: u32) {
    let options = format!("--size {size} --count {count}");
    for service in ["rc", "srq"] {
        let program = ping_pong(service, &format!("-n {count} -s {size}"));
        lab.play(&program, "pingpong", &format!("--service {service} {options}"));
    }
    for verb in VERBS {
        let size = size_of(verb, size);
        lab.play(
            &perftest(&format!("{verb}_bw"), &format!("-n {count} {size}")),
            verb,
            &format!("{options} --depth 4"),
        );
    }
    play_latencies(lab, count, size);
}

/// The tools that measure latencies, in both roles.
fn play_latencies(lab: &mut Lab, count: u32, size: u32) {
    for verb in VERBS {
        let program = perftest(&format!("{verb}_lat"), &format!("-n {count} {}", size_of(verb, size)));
        lab.play(&program, verb, &format!("--latency --size {size} --count {count}"));
    }
}

/// Linux READs our messages and WRITEs them back, and we compare them; packets of `lab.mtu`.
fn ask_rping(lab: &mut Lab, rounds: u32, size: u32) {
    let mtu = lab.mtu;
    let ours = format!("pingpong {GUEST} --via {NEAR} --cm --mtu {mtu} --size {size} --count {rounds}");
    lab.ask(&format!("rping -C {rounds} -S {size} -V -s"), &ours);
}

/// We READ its messages and WRITE them back, and rping compares them; packets of its link's MTU.
fn serve_rping(lab: &mut Lab, rounds: u32, size: u32) {
    let ours = format!("pingpong --serve --via {NEAR} --cm --size {size} --count {rounds}");
    lab.serve_by_rdma_cm(&format!("rping -C {rounds} -S {size} -V -c -a 10.9.0.1"), &ours);
}

/// The programs of rdmacm-utils, in both roles: `rounds` of messages of up to 4000 bytes.
fn play_by_rdma_cm(lab: &mut Lab, rounds: u32) {
    for size in [64, 4000] {
        ask_rping(lab, rounds, size);
        serve_rping(lab, rounds, size);
        let ucmatose = format!("ucmatose -C {rounds} -S {size}");
        let ours = format!("send --via {NEAR} --cm --size {size} --count {rounds}");
        lab.ask(&ucmatose, &format!("{ours} {GUEST}"));
        lab.serve_by_rdma_cm(&format!("{ucmatose} -s 10.9.0.1"), &format!("{ours} --serve"));
    }
}

/// The short case: both roles.
#[test]
fn ping_pong_and_write_with_linux() {
    let Some(mut lab) = Lab::new("ping_pong_and_write_with_linux", 1500) else { return };
    lab.ask(&ping_pong("rc", "-n 20"), &format!("pingpong {GUEST} --via {NEAR} --size 4096 --count 20"));
    lab.serve(&perftest("write_bw", "-n 20 -s 4096"), &format!("write --serve --via {NEAR} --size 4096"));
}

#[test]
#[ignore = "half a minute and more: make soak"]
fn programs_of_rdmacm_connect_in_both_roles() {
    let Some(mut lab) = Lab::new("programs_of_rdmacm_connect_in_both_roles", 1500) else { return };
    play_by_rdma_cm(&mut lab, 5);
    let (program, ours) =
        ("udaddy -C 5 -S 500", format!("pingpong --via {NEAR} --cm --service ud --size 500 --count 5"));
    lab.ask(program, &format!("{ours} {GUEST}"));
    lab.serve_by_rdma_cm(&format!("{program} -s 10.9.0.1"), &format!("{ours} --serve"));
}

#[test]
#[ignore = "a minute and more: make soak"]
fn each_verb_and_service_plays_with_linux_in_both_roles() {
    let Some(mut lab) = Lab::new("each_verb_and_service_plays_with_linux_in_both_roles", 1500) else { return };
    play_reliable(&mut lab, 50, 4096);
    lab.play(&ping_pong("uc", "-n 50"), "pingpong", "--service uc --size 4096 --count 50");
    lab.play(&ping_pong("ud", "-n 50 -s 1000"), "pingpong", "--service ud --size 1000 --count 50");
}

#[test]
#[ignore = "a minute and more: make soak"]
fn packets_of_each_mtu_are_exchanged_with_linux() {
    let Some(mut lab) = Lab::new("packets_of_each_mtu_are_exchanged_with_linux", JUMBO_MTU) else { return };
    for mtu in [256, 512, 1024, 2048, 4096] {
        lab.mtu = mtu;
        let options = format!("--mtu {mtu} --size 10000 --count 10");
        for service in ["rc", "uc"] {
            let program = ping_pong(service, &format!("-m {mtu} -n 10 -s 10000"));
            lab.play(&program, "pingpong", &format!("--service {service} {options}"));
        }
        for verb in ["send", "write", "read"] {
            let program = perftest(&format!("{verb}_bw"), &format!("-m {mtu} -n 10 -s 10000"));
            lab.play(&program, verb, &options);
        }
    }
    lab.play(&ping_pong("ud", "-n 20 -s 4000"), "pingpong", "--service ud --size 4000 --count 20");
}

#[test]
#[ignore = "a minute and more: make soak"]
fn messages_from_a_byte_to_a_mebibyte_are_exchanged_with_linux() {
    let Some(mut lab) = Lab::new("messages_from_a_byte_to_a_mebibyte_are_exchanged_with_linux", 1500) else { return };
    // Around a word, and around a packet.
    for size in [1, 2, 3, 7, 1023, 1024, 1025, 65_536, 1 << 20] {
        let options = format!("--size {size} --count 5");
        for verb in ["send", "write", "read"] {
            lab.play(&perftest(&format!("{verb}_bw"), &format!("-n 5 -s {size}")), verb, &options);
        }
    }
    play_latencies(&mut lab, 5, 1);
}

/// The other programs of Linux compare no byte: perftest sends what it finds, and the pingpongs of
/// rdma-core send zeros, with -c too.
#[test]
#[ignore = "a minute and more: make soak"]
fn bytes_of_each_mtu_and_length_are_those_that_were_sent_with_linux() {
    let test = "bytes_of_each_mtu_and_length_are_those_that_were_sent_with_linux";
    let Some(mut lab) = Lab::new(test, JUMBO_MTU) else { return };
    for mtu in [256, 512, 1024, 2048, 4096] {
        lab.mtu = mtu;
        for size in [mtu - 1, mtu, mtu + 1, 65_535] {
            ask_rping(&mut lab, 5, size);
        }
    }
    // Each number of bytes that fill a word, around a packet, and the longest of rping.
    for size in [29, 30, 31, 32, 4095, 4096, 4097, 65_535] {
        serve_rping(&mut lab, 5, size);
    }
}

/// All reliable programs over a wire with these faults, which must have met some packets.
fn play_over(test: &str, faults: WireFaults) {
    // What stands still for all of its tries fails, and where one of five packets is lost a packet
    // and its answer come through with 0.64 a try.
    let (count, size) = (if faults.lose_one_of == 5 { 20 } else { 50 }, 4096);
    let Some(mut lab) = Lab::new(test, 1500).filter(|_| has_program(test, "nft")) else { return };
    let far = lab.wire.far.name().to_owned();
    let wire = RoceWire::new(&far, [FAR, TAP], faults);
    lab.is_lossy = faults.lose_one_of > 0;
    play_reliable(&mut lab, count, size);
    // Linux gives both ends two seconds to an acknowledgment, and where one of five packets is lost
    // a round of rping waits for three of them: 20 rounds are as long as our end may take.
    play_by_rdma_cm(&mut lab, if faults.lose_one_of == 5 { 5 } else { 20 });
    let WireCounts { lost, doubled, delayed } = wire.counts();
    println!("{test}: {lost} packets lost, {doubled} doubled, {delayed} overtaken");
    for (one_of, met) in [(faults.lose_one_of, lost), (faults.double_one_of, doubled), (faults.delay_one_of, delayed)] {
        assert_eq!(one_of > 0, met > 0, "{faults:?}, and {lost}, {doubled}, {delayed}");
    }
}

#[test]
#[ignore = "minutes: make soak"]
fn nothing_is_lost_with_linux_where_one_of_thirteen_packets_is() {
    let test = "nothing_is_lost_with_linux_where_one_of_thirteen_packets_is";
    play_over(test, WireFaults { lose_one_of: 13, ..WireFaults::default() });
}

#[test]
#[ignore = "minutes: make soak"]
fn nothing_is_lost_with_linux_where_one_of_five_packets_is() {
    let test = "nothing_is_lost_with_linux_where_one_of_five_packets_is";
    play_over(test, WireFaults { lose_one_of: 5, ..WireFaults::default() });
}

#[test]
#[ignore = "minutes: make soak"]
fn packets_that_come_twice_do_nothing_twice_with_linux() {
    let test = "packets_that_come_twice_do_nothing_twice_with_linux";
    play_over(test, WireFaults { double_one_of: 3, ..WireFaults::default() });
}

#[test]
#[ignore = "minutes: make soak"]
fn packets_that_overtake_each_other_disorder_nothing_with_linux() {
    let test = "packets_that_overtake_each_other_disorder_nothing_with_linux";
    play_over(test, WireFaults { delay_one_of: 7, ..WireFaults::default() });
}
