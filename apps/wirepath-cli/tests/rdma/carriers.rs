//! Both ends are ours, and what carries their packets is chosen: by themselves, or by `--over`.

use wirepath_tests::live::{FAR, NEAR, THEIRS, Wire};
use wirepath_tests::netns::Namespace;

use crate::ends::{UNDAMAGED, check, start, start_under, wait_for_listener};

/// Takes each capability from a program.
const UNPRIVILEGED: [&str; 5] = ["setpriv", "--bounding-set", "-all", "--inh-caps", "-all"];

/// The server of a game in one namespace, its client in another, each started by its launcher; both
/// end well, and say a word.
fn play(namespaces: [&Namespace; 2], launchers: [&[&str]; 2], server: &str, client: &str, word: &str) -> String {
    let server = start_under(namespaces[0], launchers[0], server);
    wait_for_listener(namespaces[0]);
    let client = start_under(namespaces[1], launchers[1], client);
    let [client, server] = [client, server].map(|end| end.wait_with_output().unwrap());
    for output in [&client, &server] {
        check(output, word);
        check(output, UNDAMAGED);
    }
    let said = [client, server].map(|output| [output.stdout, output.stderr].concat()).concat();
    String::from_utf8_lossy(&said).into_owned()
}

#[test]
fn ends_on_one_host_share_memory_without_a_privilege() {
    let test = "ends_on_one_host_share_memory_without_a_privilege";
    let Ok(host) = Namespace::new() else { return println!("SKIPPED {test}: run as root") };
    let (both, launchers) = ([&host, &host], [&UNPRIVILEGED[..]; 2]);
    let games = [
        ("send", "--size 3000 --count 50 --depth 4", "150000 bytes verified"),
        ("write", "--size 100000 --count 50 --depth 4", "100000 bytes verified"),
        ("read", "--size 100000 --count 20 --depth 4", "2000000 bytes verified"),
        ("atomic", "--count 50", "400 bytes verified"),
        ("pingpong", "--size 3000 --count 50", "150000 bytes verified"),
        ("pingpong", "--size 3000 --count 50 --service uc", "150000 bytes verified"),
        ("pingpong", "--size 4000 --count 50 --service ud", "200000 bytes verified"),
        ("pingpong", "--size 3000 --count 50 --service srq", "150000 bytes verified"),
    ];
    for (verb, options, verified) in games {
        let server = format!("{verb} --serve {options}");
        let said = play(both, launchers, &server, &format!("{verb} 127.0.0.1 {options}"), "shared memory, because");
        assert!(said.contains("127.0.0.1 is an address of this host") && said.contains(verified), "{said}");
    }
}

#[test]
fn frames_go_over_tcp_where_no_port_can_be_opened_and_both_ends_say_so() {
    let test = "frames_go_over_tcp_where_no_port_can_be_opened_and_both_ends_say_so";
    let Some(wire) = Wire::new(test) else { return };
    wire.near.ip(&["addr", "add", "10.9.0.1/24", "dev", NEAR]).unwrap();
    for verb in ["send", "write", "read", "pingpong"] {
        let options = "--size 3000 --count 50";
        let server = format!("{verb} --serve --via {FAR} {options}");
        let client = format!("{verb} {THEIRS} {options}");
        let said = play([&wire.far, &wire.near], [&[], &UNPRIVILEGED], &server, &client, "frames over TCP, because");
        assert!(said.contains(&format!("{NEAR} was not opened: ")) && said.contains("the peer asks for it"), "{said}");
        assert!(said.contains("bytes verified") && !said.contains("no bytes verified"), "{said}");
    }
}

#[test]
fn server_without_a_port_takes_that_of_the_address_to_which_its_client_came() {
    let test = "server_without_a_port_takes_that_of_the_address_to_which_its_client_came";
    let Some(wire) = Wire::new(test) else { return };
    wire.near.ip(&["addr", "add", "10.9.0.1/24", "dev", NEAR]).unwrap();
    let client = format!("write {THEIRS} --count 5");
    play([&wire.far, &wire.near], [&[], &[]], "write --serve", &client, "RoCEv2 in software, because");
}

#[test]
fn ends_that_want_different_carriers_are_told_so() {
    let Some(wire) = Wire::new("ends_that_want_different_carriers_are_told_so") else { return };
    wire.near.ip(&["addr", "add", "10.9.0.1/24", "dev", NEAR]).unwrap();
    let server = start(&wire.far, "write --serve --over roce");
    wait_for_listener(&wire.far);
    let client = start(&wire.near, &format!("write {THEIRS} --over tcp")).wait_with_output().unwrap();
    let server = server.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&server.stderr).into_owned();
    assert_eq!((client.status.code(), server.status.code()), (Some(1), Some(1)), "{said}");
    assert!(said.contains("the peer wants frames over TCP, and --over says RoCEv2 in software"), "{said}");
}
