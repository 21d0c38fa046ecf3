//! Both ends are ours, over AF_XDP.

use std::path::Path;
use std::process::Output;

use wirepath::counters::{Reading, Snapshot};
use wirepath_tests::live::{FAR, NEAR, THEIRS, Wire, wait_until};

use crate::ends::{UNDAMAGED, check, start, start_under, wait_for_listener};

/// Both ends are ours, agree on an MTU, and one has compared `bytes`; no packet was damaged.
fn plays_with_itself(wire: &Wire, verb: &str, options: &str, mtu: &str, bytes: u32) {
    let server = start(&wire.far, &format!("{verb} --serve --via {FAR} {options}"));
    wait_for_listener(&wire.far);
    let client = start(&wire.near, &format!("{verb} {THEIRS} --via {NEAR} {options}"));
    let outputs = [client, server].map(|end| end.wait_with_output().unwrap());
    for output in &outputs {
        check(output, mtu);
        check(output, UNDAMAGED);
    }
    let verified = format!("{bytes} bytes verified");
    let has_it = |output: &Output| String::from_utf8_lossy(&output.stdout).contains(&verified);
    assert!(outputs.iter().any(has_it), "{verb} {options}: {verified} of {outputs:?}");
}

#[test]
fn each_verb_plays_with_itself() {
    let Some(wire) = Wire::new("each_verb_plays_with_itself") else { return };
    wire.near.ip(&["addr", "add", "10.9.0.1/24", "dev", NEAR]).unwrap();
    // Of a WRITE the memory is compared when all is done.
    for (verb, bytes) in [("send", 50 * 3000), ("write", 3000), ("read", 50 * 3000)] {
        plays_with_itself(&wire, verb, "--size 3000 --count 50 --depth 4", "MTU 1024", bytes);
    }
    plays_with_itself(&wire, "atomic", "--count 50", "MTU 1024", 50 * 8);
    for service in ["rc", "uc", "srq"] {
        plays_with_itself(
            &wire,
            "pingpong",
            &format!("--size 3000 --count 50 --service {service}"),
            "MTU 1024",
            50 * 3000,
        );
    }
    plays_with_itself(&wire, "pingpong", "--size 1000 --count 50 --service ud", "MTU 1024", 50 * 1000);
}

#[test]
fn packets_longer_than_a_buffer_are_exchanged_where_the_interface_carries_them() {
    let test = "packets_longer_than_a_buffer_are_exchanged_where_the_interface_carries_them";
    let Some(wire) = Wire::new(test) else { return };
    wire.near.ip(&["addr", "add", "10.9.0.1/24", "dev", NEAR]).unwrap();
    for (end, interface) in [(&wire.near, NEAR), (&wire.far, FAR)] {
        end.ip(&["link", "set", "dev", interface, "mtu", "9000"]).unwrap();
    }
    plays_with_itself(&wire, "write", "--size 10000 --count 10", "MTU 4096", 10_000);
    plays_with_itself(&wire, "read", "--size 10000 --count 10 --depth 4", "MTU 4096", 100_000);
    plays_with_itself(&wire, "pingpong", "--size 4096 --count 10 --service ud", "MTU 4096", 40_960);
    plays_with_itself(&wire, "write", "--size 10000 --count 10 --mtu 512", "MTU 512", 10_000);
}

#[test]
fn mtu_that_the_link_does_not_carry_is_refused_with_what_it_carries() {
    let Some(wire) = Wire::new("mtu_that_the_link_does_not_carry_is_refused_with_what_it_carries") else { return };
    wire.near.ip(&["addr", "add", "10.9.0.1/24", "dev", NEAR]).unwrap();
    let arguments = format!("write {THEIRS} --via {NEAR} --mtu 2048");
    let output = start(&wire.near, &arguments).wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && said.contains("payloads of up to 1024 bytes"), "{said}");
}

#[test]
fn messages_in_turn_are_half_a_round_trip_each() {
    let Some(wire) = Wire::new("messages_in_turn_are_half_a_round_trip_each") else { return };
    wire.near.ip(&["addr", "add", "10.9.0.1/24", "dev", NEAR]).unwrap();
    for (verb, size, bytes) in [("send", 3000, 150_000), ("write", 3000, 150_000), ("write", 1, 50), ("read", 8, 400)] {
        let options = format!("--latency --size {size} --count 50");
        plays_with_itself(&wire, verb, &options, "MTU 1024", bytes);
    }
}

#[test]
fn devices_of_a_namespace_are_its_interfaces_with_their_addresses() {
    let Some(wire) = Wire::new("devices_of_a_namespace_are_its_interfaces_with_their_addresses") else { return };
    wire.near.ip(&["addr", "add", "10.9.0.1/24", "dev", NEAR]).unwrap();
    let output = start(&wire.near, &format!("devices {NEAR}")).wait_with_output().unwrap();
    check(&output, &format!("{NEAR}  wirepath  software  active  1024"));
    check(&output, "GID 0   ::ffff:10.9.0.1, RoCE v2");
    let nothing = start(&wire.near, "devices nothing").wait_with_output().unwrap();
    assert_eq!(nothing.status.code(), Some(1));
}

#[test]
fn port_is_that_of_the_route_to_the_peer_unless_it_is_named() {
    let Some(wire) = Wire::new("port_is_that_of_the_route_to_the_peer_unless_it_is_named") else { return };
    wire.near.ip(&["addr", "add", "10.9.0.1/24", "dev", NEAR]).unwrap();
    let server = start(&wire.far, &format!("write --serve --via {FAR}"));
    wait_for_listener(&wire.far);
    let client = start(&wire.near, &format!("write {THEIRS} --count 5")).wait_with_output().unwrap();
    check(&client, &format!("{THEIRS} is reached over {NEAR}, as the kernel routes to it"));
    check(&server.wait_with_output().unwrap(), "64 bytes verified");
    let refused = [("192.0.2.1", "the kernel has no route to"), ("10.9.0.1 --over roce", "is an address of this host")];
    for (peer, why) in refused {
        let output = start(&wire.near, &format!("write {peer}")).wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(1) && said.contains(why) && said.contains("--via"), "{said}");
    }
}

#[test]
fn peer_that_does_not_listen_is_named() {
    let Some(wire) = Wire::new("peer_that_does_not_listen_is_named") else { return };
    wire.near.ip(&["addr", "add", "10.9.0.1/24", "dev", NEAR]).unwrap();
    let output = start(&wire.near, &format!("write {THEIRS} --via {NEAR}")).wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("start the other end there first, with --serve"), "{said}");
}

/// Packets that the ends with their counters in a folder have received so far.
fn packets_received(shm: &Path) -> u64 {
    let programs = Snapshot::list(shm).map(|list| list.running).unwrap_or_default();
    let samples = programs.iter().flat_map(|program| &program.samples);
    let counts = samples.filter(|sample| sample.name.ends_with("packets_rx"));
    counts.map(|sample| if let Reading::Counter(count) = sample.reading { count } else { 0 }).sum()
}

/// A peer by RDMA_CM may wait for a message without a timeout: it must hear that we have ended.
#[test]
fn end_by_rdma_cm_that_is_stopped_tells_its_peer() {
    let Some(wire) = Wire::new("end_by_rdma_cm_that_is_stopped_tells_its_peer") else { return };
    wire.near.ip(&["addr", "add", "10.9.0.1/24", "dev", NEAR]).unwrap();
    let options = "--cm --count 100000000";
    let folder = tempfile::tempdir().unwrap();
    let shm = format!("WIREPATH_SHM={}", folder.path().display());
    let start = |namespace, arguments: &str| start_under(namespace, &["env", &shm], arguments);
    let server = start(&wire.far, &format!("pingpong --serve --via {FAR} {options}"));
    let ask = || start(&wire.near, &format!("pingpong {THEIRS} --via {NEAR} {options}"));
    // A listener of RDMA_CM is not to be seen: who asks too early ends at once. A connection takes
    // a few packets.
    let client = (0..100).find_map(|_| {
        let mut client = ask();
        wait_until("messages come, or the client ends", || {
            packets_received(folder.path()) > 100 || client.try_wait().unwrap().is_some()
        });
        client.try_wait().unwrap().is_none().then_some(client)
    });
    let client = client.expect("the other end listens");
    let killed = std::process::Command::new("kill").args(["-INT", &server.id().to_string()]).status().unwrap();
    assert!(killed.success());
    let [server, client] = [server, client].map(|end| end.wait_with_output().unwrap());
    let said = [&server, &client].map(|output| String::from_utf8_lossy(&output.stderr).into_owned());
    assert!(said[0].contains("stopped before the end"), "{said:?}");
    assert!(said[1].contains("the peer has ended the connection"), "{said:?}");
}

#[test]
fn both_ends_by_rdma_cm_are_ours() {
    let Some(wire) = Wire::new("both_ends_by_rdma_cm_are_ours") else { return };
    wire.near.ip(&["addr", "add", "10.9.0.1/24", "dev", NEAR]).unwrap();
    for (verb, options) in [
        ("pingpong", "--cm --size 3000 --count 20"),
        ("send", "--cm --size 3000 --count 20"),
        ("pingpong", "--cm --service ud --size 1000 --count 20"),
    ] {
        let server = start(&wire.far, &format!("{verb} --serve --via {FAR} {options}"));
        let ask = || start(&wire.near, &format!("{verb} {THEIRS} --via {NEAR} {options}")).wait_with_output().unwrap();
        // A listener of RDMA_CM is not to be seen: who asks too early is told so.
        let early = |output: &Output| String::from_utf8_lossy(&output.stderr).contains("start the other end there");
        let output = (0..100).map(|_| ask()).find(|output| !early(output));
        check(&output.expect("the other end listens"), "MTU 1024");
        check(&server.wait_with_output().unwrap(), "MTU 1024");
    }
}
