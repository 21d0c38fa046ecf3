//! Both ends are ours, and what carries their packets is chosen: by themselves, or by `--over`.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::Duration;

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
        assert!(said.contains("MTU 4096"), "no link is in the way: {said}");
    }
}

#[test]
fn server_speaks_the_service_that_its_client_names() {
    let test = "server_speaks_the_service_that_its_client_names";
    let Ok(host) = Namespace::new() else { return println!("SKIPPED {test}: run as root") };
    let (both, launchers) = ([&host, &host], [&UNPRIVILEGED[..]; 2]);
    let tests = [
        ("send", "--size 9000", "--size 9000 --depth 4 --service uc", "450000 bytes verified"),
        ("send", "--size 4096", "--size 4096 --depth 4 --service ud", "204800 bytes verified"),
        ("send", "--size 4096 --service srq", "--size 4096 --depth 4", "204800 bytes verified"),
        ("write", "--size 4096", "--size 4096 --service uc", "4096 bytes verified"),
        ("send", "--size 4096", "--size 4096 --latency --service ud", "204800 bytes verified"),
        ("write", "--size 4096", "--size 4096 --latency --service uc", "204800 bytes verified"),
    ];
    for (verb, server, client, verified) in tests {
        let server = format!("{verb} --serve --count 50 {server}");
        let client = format!("{verb} 127.0.0.1 --count 50 {client}");
        let said = play(both, launchers, &server, &client, "shared memory, because");
        assert!(said.contains(verified), "{client}: {said}");
    }
}

#[test]
fn ends_of_two_services_and_services_without_a_verb_are_refused() {
    let test = "ends_of_two_services_and_services_without_a_verb_are_refused";
    let Ok(host) = Namespace::new() else { return println!("SKIPPED {test}: run as root") };
    let server = start(&host, "send --serve --service ud");
    wait_for_listener(&host);
    let client = start(&host, "send 127.0.0.1 --service uc").wait_with_output().unwrap();
    let server = server.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&server.stderr).into_owned();
    assert_eq!((client.status.code(), server.status.code()), (Some(1), Some(1)), "{said}");
    assert!(said.contains("the peer speaks uc, and --service says ud"), "{said}");
    for verb in ["read --service uc", "atomic --service srq", "write --service ud", "write --service srq"] {
        let output = start(&host, &format!("{verb} --serve")).wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(1) && said.contains("ud and srq are of send alone"), "{verb}: {said}");
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

#[test]
fn secondary_address_and_all_of_127_are_of_this_host() {
    let Some(wire) = Wire::new("secondary_address_and_all_of_127_are_of_this_host") else { return };
    for address in ["10.9.0.1/24", "10.9.0.3/24"] {
        wire.near.ip(&["addr", "add", address, "dev", NEAR]).unwrap();
    }
    for address in ["10.9.0.3", "127.0.0.2"] {
        let client = format!("write {address} --count 5");
        play([&wire.near; 2], [&[], &[]], "write --serve", &client, "shared memory, because");
    }
}

/// Of another user than root, without capabilities.
const USER: [&str; 8] = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--inh-caps", "-all"];

#[test]
fn frames_go_over_tcp_where_the_ends_on_a_host_are_of_two_users() {
    let test = "frames_go_over_tcp_where_the_ends_on_a_host_are_of_two_users";
    let Ok(host) = Namespace::new() else { return println!("SKIPPED {test}: run as root") };
    for verb in ["write", "pingpong"] {
        let (server, client) = (format!("{verb} --serve --count 5"), format!("{verb} 127.0.0.1 --count 5"));
        let said = play([&host; 2], [&[], &USER], &server, &client, "frames over TCP, because");
        assert!(said.contains("the other end is of another user"), "{said}");
    }
}

#[test]
fn frames_go_over_tcp_where_the_server_can_open_no_port() {
    let test = "frames_go_over_tcp_where_the_server_can_open_no_port";
    let Some(wire) = Wire::new(test) else { return };
    wire.near.ip(&["addr", "add", "10.9.0.1/24", "dev", NEAR]).unwrap();
    for verb in ["write", "pingpong"] {
        let (server, client) = (format!("{verb} --serve --count 5"), format!("{verb} {THEIRS} --count 5"));
        let both = [&wire.far, &wire.near];
        let said = play(both, [&UNPRIVILEGED, &[]], &server, &client, "frames over TCP, because");
        assert!(said.contains("the peer opened no port") && said.contains("was not opened: "), "{said}");
    }
}

#[test]
fn way_that_was_asked_for_by_name_is_not_replaced() {
    let Some(wire) = Wire::new("way_that_was_asked_for_by_name_is_not_replaced") else { return };
    wire.near.ip(&["addr", "add", "10.9.0.1/24", "dev", NEAR]).unwrap();
    let server = start_under(&wire.far, &UNPRIVILEGED, "write --serve");
    wait_for_listener(&wire.far);
    let client = start(&wire.near, &format!("write {THEIRS} --via {NEAR}")).wait_with_output().unwrap();
    let (client_said, server) = (String::from_utf8_lossy(&client.stderr), server.wait_with_output().unwrap());
    assert_eq!((client.status.code(), server.status.code()), (Some(1), Some(1)), "{client_said}");
    assert!(client_said.contains("the peer has frames over TCP, and here RoCEv2 in software was chosen"));
}

/// The peer plays the server of ibv_rc_pingpong, whose address has no mark of wirepath.
#[test]
fn client_that_chose_a_cable_is_told_that_its_peer_is_another_program() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut tool = std::process::Command::new(env!("CARGO_BIN_EXE_wirepath"));
    let client = tool.args(["rdma", "pingpong", "127.0.0.1", "--port", &port.to_string()]);
    let client = client.stderr(std::process::Stdio::piped()).spawn().unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.read_exact(&mut [0; 52]).unwrap();
    stream.write_all(b"0000:000011:000000:00000000000000000000ffff7f000001\0").unwrap();
    // Nothing more comes: no ticket is waited for.
    assert_eq!(stream.read(&mut [0; 64]).unwrap(), 0);
    let output = client.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("the peer is another program, which speaks RoCE alone"), "{said}");
}
