//! Sockets between ours and the kernel's: bound to an address of another interface, connected
//! elsewhere after they were ours, accepted by the kernel.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use wirepath_tests::live::preload::{compile, counter_of, echo, is_listening, run, text, wire};
use wirepath_tests::live::{FAR, NEAR, OURS, Program, THEIRS, Wire, wait_until};

/// Plays a part of the program on the kernel's sockets and under the library, which print the same,
/// and returns it.
fn part(test: &str, name: &str, prepare: impl FnOnce(&Wire)) -> Option<String> {
    let folder = tempfile::tempdir().unwrap();
    let program = compile(test, "places.c", folder.path())?;
    let wire = wire(test, &[])?;
    prepare(&wire);
    Some(play(&wire, &program, name))
}

fn play(wire: &Wire, program: &str, name: &str) -> String {
    let arguments = [&THEIRS.to_string(), name];
    let kernel = text(&wire.near.command("timeout", &[&["60", program], &arguments[..]].concat()).unwrap());
    let ours = text(&run(wire, program, &arguments));
    assert_eq!(kernel, ours, "the kernel's (left) and ours (right)");
    ours
}

/// An interface with an address of its own, to which the far end answers by ours.
fn add_another_interface(wire: &Wire) {
    echo(wire);
    wire.near.ip(&["link", "add", "other", "type", "veth", "peer", "name", "another"]).unwrap();
    wire.near.ip(&["addr", "add", "10.7.0.1/24", "dev", "other"]).unwrap();
    for link in ["other", "another"] {
        wire.near.ip(&["link", "set", link, "up"]).unwrap();
    }
    wire.far.ip(&["route", "add", "10.7.0.0/24", "via", &OURS.to_string()]).unwrap();
}

/// What is done at the far end a thousand times a second, until it is dropped.
struct Repeated(Arc<AtomicBool>);

impl Repeated {
    fn new(mut act: impl FnMut() + Send + 'static) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&is_over);
        thread::spawn(move || {
            while !seen.load(Ordering::Relaxed) {
                act();
                thread::sleep(Duration::from_millis(1));
            }
        });
        Self(is_over)
    }
}

impl Drop for Repeated {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn stream_bound_to_an_address_of_another_interface_connects_by_the_kernel() {
    let test = "stream_bound_to_an_address_of_another_interface_connects_by_the_kernel";
    let Some(said) = part(test, "stream of another address", add_another_interface) else { return };
    assert!(said.ends_with("bind: 0\nconnect: 0\nsend: 4\npoll: 1\nrecv: 4\n"), "{said}");
}

#[test]
fn datagrams_of_an_address_of_another_interface_leave_by_the_kernel() {
    let test = "datagrams_of_an_address_of_another_interface_leave_by_the_kernel";
    let Some(said) = part(test, "datagrams of another address", add_another_interface) else { return };
    assert!(said.ends_with("bind: 0\nconnect: 0\nsend: 4\npoll: 1\nrecv: 4\n"), "{said}");
}

#[test]
fn bound_datagram_socket_connects_to_an_ipv6_peer() {
    let test = "bound_datagram_socket_connects_to_an_ipv6_peer";
    // Namespaces of tests have no IPv6.
    let on = |wire: &Wire| wire.near.run(|| std::fs::write("/proc/sys/net/ipv6/conf/lo/disable_ipv6", "0")).unwrap();
    let Some(said) = part(test, "peer of IPv6", on) else { return };
    assert!(said.ends_with("poll: 1\nrecv: 4\ngetpeername: 0\n"), "{said}");
}

#[test]
fn socket_given_back_stays_in_its_epoll_set() {
    let test = "socket_given_back_stays_in_its_epoll_set";
    let Some(said) = part(test, "in a set", |_| ()) else { return };
    assert!(said.ends_with("epoll_wait: 1\nevents 4, data 5\ndelete: 0\n"), "{said}");
}

#[test]
fn listener_added_before_listen_is_heard_after_a_fork() {
    let test = "listener_added_before_listen_is_heard_after_a_fork";
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compile(test, "places.c", folder.path()) else { return };
    let Some(wire) = wire(test, &[]) else { return };
    let _caller = Program::start(&wire.far, &program, &[&OURS.to_string(), "calls"]);
    let said = play(&wire, &program, "forks");
    assert!(said.ends_with(&"epoll_wait: 1\nevents 1, data 6\nwrite: 1\n".repeat(2)), "{said}");
}

#[test]
fn accept_names_a_loopback_caller_that_has_reset() {
    let test = "accept_names_a_loopback_caller_that_has_reset";
    let Some(said) = part(test, "caller that resets", |_| ()) else { return };
    assert!(said.ends_with("accept 1, length 16, family 2, address 127.0.0.1\n"), "{said}");
}

#[test]
fn packet_info_of_a_group_has_the_interfaces_address() {
    let test = "packet_info_of_a_group_has_the_interfaces_address";
    let mut sends = None;
    let said = part(test, "group", |wire| {
        wire.far.ip(&["route", "add", "239.0.0.0/8", "dev", FAR]).unwrap();
        let socket = wire.far.run(|| UdpSocket::bind((THEIRS, 0)).unwrap());
        sends = Some(Repeated::new(move || _ = socket.send_to(b"group", ("239.7.7.7", 7_313))));
    });
    let Some(said) = said else { return };
    assert!(said.ends_with(&format!("interface 1, own {OURS}, to 239.7.7.7\n")), "{said}");
}

/// Plays a part whose listener is called by the far end when it asks for it, and counts the packets
/// of IPv4 that the near kernel had in the run under the library.
fn called_part(test: &str, name: &str) -> Option<(String, u64)> {
    let folder = tempfile::tempdir().unwrap();
    let program = compile(test, "places.c", folder.path())?;
    let wire = wire(test, &[])?;
    for (place, interface, address) in [(&wire.near, NEAR, "fd00:98::1/64"), (&wire.far, FAR, "fd00:98::2/64")] {
        // Namespaces of tests have no IPv6.
        let disabled = format!("/proc/sys/net/ipv6/conf/{interface}/disable_ipv6");
        place.run(|| std::fs::write(disabled, "0")).unwrap();
        place.ip(&["addr", "add", address, "dev", interface, "nodad"]).unwrap();
    }
    let _caller = Program::start(&wire.far, &program, &[&OURS.to_string(), "calls on request"]);
    wait_until("the far end can be asked", || is_listening(&wire.far, 7_003));
    let arguments = [&THEIRS.to_string(), name];
    let kernel = text(&wire.near.command("timeout", &[&["60", &program], &arguments[..]].concat()).unwrap());
    let before = counter_of(&wire.near, "Ip:", "InDelivers");
    let said = text(&run(&wire, &program, &arguments));
    let is_the_programs = |line: &&str| !line.starts_with("wirepath: no descriptor is left (EMFILE)");
    let ours: String = said.split_inclusive('\n').filter(is_the_programs).collect();
    assert_eq!(kernel, ours, "the kernel's (left) and ours (right)");
    Some((ours, counter_of(&wire.near, "Ip:", "InDelivers") - before))
}

#[test]
fn listener_of_both_families_has_a_caller_of_ipv6_beside_one_of_ipv4() {
    let test = "listener_of_both_families_has_a_caller_of_ipv6_beside_one_of_ipv4";
    let Some((said, by_the_kernel)) = called_part(test, "listener of both") else { return };
    let names =
        ["getpeername: 0, family 10, length 28, ::ffff:10.9.0.2", "getpeername: 0, family 10, length 28, fd00:98::2"];
    assert_eq!(names.map(|name| said.matches(name).count()), [3, 3], "{said}");
    // The far end may close what it was asked by once the program has ended; three callers by the
    // kernel would be a dozen packets and more.
    assert!(by_the_kernel < 10, "{by_the_kernel} packets of IPv4 that the kernel had: {said}");
}

#[test]
fn caller_waits_in_the_queue_while_accept_has_no_descriptor() {
    let test = "caller_waits_in_the_queue_while_accept_has_no_descriptor";
    let Some((said, _)) = called_part(test, "no descriptor") else { return };
    assert_eq!(said.matches("accept: -1 EMFILE\n").count(), 6, "{said}");
    assert_eq!(said.matches("accept: 0\nrecv: 4\nsend: 4\n").count(), 2, "{said}");
}
