//! Cables that are the kernel's interfaces, tested against the kernel. Each test runs in a new
//! network namespace: it starts itself again under unshare(1).
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::net::UdpSocket;
use std::process::Command;
use std::time::{Duration, Instant};

use softhca::hca::{LinkState, Wire};
use softhca::wire::{Cable, FRAME_LEN_MAX, Groups, PacketSocket, Port, Tap};

/// Whether this is the test itself: the first time it is started, it starts itself again inside,
/// and that is all.
fn is_inside(test: &str) -> bool {
    const INSIDE: &str = "SOFTHCA_TEST_IS_INSIDE";
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let mut command = Command::new("unshare");
    command.args(["--net", "--"]).arg(std::env::current_exe().unwrap()).args(["--exact", test, "--nocapture"]);
    match command.env(INSIDE, "1").output() {
        Ok(output) if String::from_utf8_lossy(&output.stderr).contains("unshare failed") => {
            println!("SKIPPED {test}: no network namespace; run as root");
        }
        Ok(output) => softhca::testing::show(test, &output),
        Err(error) => println!("SKIPPED {test}: unshare (util-linux): {error}"),
    }
    false
}

fn ip(arguments: &str) {
    let output = Command::new("ip").args(arguments.split(' ')).output().unwrap();
    assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A veth pair that is up and silent.
fn veth() {
    for scope in ["all", "default"] {
        // A kernel without IPv6 is quiet anyway.
        let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{scope}/disable_ipv6"), "1");
    }
    ip("link set lo up");
    ip("link add veth0 address 02:00:00:00:00:a0 type veth peer name veth1 address 02:00:00:00:00:a1");
    ip("link set veth0 up");
    ip("link set veth1 up");
}

/// Tends and receives until a frame comes, for as long as a busy machine may take.
fn await_frame(cable: &mut dyn Cable) -> Option<Vec<u8>> {
    let mut frame = Vec::new();
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(5) {
        cable.tend(u64::MAX);
        if cable.receive(&mut frame) {
            return Some(frame);
        }
    }
    None
}

fn is_silent(cable: &mut dyn Cable) -> bool {
    std::thread::sleep(Duration::from_millis(50));
    cable.tend(0);
    !cable.receive(&mut Vec::new())
}

/// The answer of a device that another process would need to be asked for is not enough here: link
/// states are read every 10 ms.
fn link_becomes(cable: &mut dyn Cable, link: LinkState) -> bool {
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(5) {
        cable.tend(begin.elapsed().as_nanos() as u64 + 100_000_000);
        if cable.link() == link {
            return true;
        }
    }
    false
}

/// Who has 10.9.0.2? Tell 10.9.0.1.
fn arp_request() -> Vec<u8> {
    let mut frame = vec![0xff; 6];
    frame.extend([2, 0, 0, 0, 0, 0xa1, 0x08, 0x06, 0, 1, 8, 0, 6, 4, 0, 1]);
    frame.extend([2, 0, 0, 0, 0, 0xa1, 10, 9, 0, 1]);
    frame.extend([0, 0, 0, 0, 0, 0, 10, 9, 0, 2]);
    frame.resize(60, 0);
    frame
}

#[test]
fn kernel_gets_what_is_handed_to_it_and_nothing_else() {
    if !is_inside("kernel_gets_what_is_handed_to_it_and_nothing_else") {
        return;
    }
    veth();
    ip("address add 10.9.0.2/24 dev veth0");
    let mut near = PacketSocket::open("veth0").unwrap();
    let mut far = PacketSocket::open("veth1").unwrap();
    if !near.is_gated() {
        println!("SKIPPED kernel_gets_what_is_handed_to_it_and_nothing_else: no tcx; it takes Linux 6.6");
        return;
    }
    assert!(far.send(&arp_request()));
    far.tend(0);
    let heard = await_frame(&mut near).unwrap();
    assert_eq!(heard, arp_request());
    assert!(is_silent(&mut far), "the kernel answered what it was not given");

    assert!(near.to_kernel(&heard));
    let answer = await_frame(&mut far).unwrap();
    assert_eq!((answer[..6].to_vec(), &answer[20..22]), (vec![2, 0, 0, 0, 0, 0xa1], &[0, 2][..]), "an ARP reply");
    assert!(is_silent(&mut near), "what was handed to the kernel came back to the model");

    // With the cable's end the kernel has the interface again.
    drop(near);
    assert!(far.send(&arp_request()));
    assert_eq!(await_frame(&mut far).unwrap()[20..22], [0, 2]);
}

#[test]
fn frames_of_every_length_cross_a_veth_in_order() {
    if !is_inside("frames_of_every_length_cross_a_veth_in_order") {
        return;
    }
    veth();
    for interface in ["veth0", "veth1"] {
        ip(&format!("link set {interface} mtu 9600"));
    }
    let (mut near, mut far) = (PacketSocket::open("veth0").unwrap(), PacketSocket::open("veth1").unwrap());
    let lengths = || (14..=9_614).chain([60; 2_000]);
    let frame_of = |number: usize, len: usize| {
        let mut frame: Vec<u8> = (0..len).map(|at| (at + number) as u8).collect();
        // Every third has a VLAN tag, which the kernel takes off.
        let ethertype: u32 = if number.is_multiple_of(3) && len >= 18 { 0x8100_0123 } else { 0x88b5_0000 };
        frame[12..14].copy_from_slice(&ethertype.to_be_bytes()[..2]);
        frame
    };
    let mut sent = lengths().enumerate();
    let mut waiting = sent.next();
    for (number, len) in lengths().enumerate() {
        for _ in 0..3 {
            waiting =
                waiting.and_then(
                    |(number, len)| {
                        if near.send(&frame_of(number, len)) { sent.next() } else { Some((number, len)) }
                    },
                );
        }
        near.tend(0);
        assert!(await_frame(&mut far).unwrap() == frame_of(number, len), "frame {number} of {len} bytes");
    }
    assert!(is_silent(&mut far));
    assert!(far.counters().iter().all(|counter| counter.1 == 0), "{:?}", far.counters());
}

#[test]
fn frame_that_is_too_long_for_the_interface_is_counted() {
    if !is_inside("frame_that_is_too_long_for_the_interface_is_counted") {
        return;
    }
    veth();
    let (mut near, mut far) = (PacketSocket::open("veth0").unwrap(), PacketSocket::open("veth1").unwrap());
    for len in [FRAME_LEN_MAX, 1514, FRAME_LEN_MAX, 60] {
        assert!(near.send(&vec![0x88; len]));
    }
    near.tend(0);
    assert_eq!(await_frame(&mut far).map(|frame| frame.len()), Some(1514));
    assert_eq!(await_frame(&mut far).map(|frame| frame.len()), Some(60));
    assert!(near.counters().contains(&("wire_too_long", 2)));
}

#[test]
fn interface_that_goes_down_is_a_link_that_goes_down() {
    if !is_inside("interface_that_goes_down_is_a_link_that_goes_down") {
        return;
    }
    veth();
    let mut near = PacketSocket::open("veth0").unwrap();
    assert_eq!(near.link(), LinkState::Up);
    ip("link set veth1 down");
    assert!(link_becomes(&mut near, LinkState::Down));
    ip("link set veth1 up");
    assert!(link_becomes(&mut near, LinkState::Up));
    ip("link delete veth0");
    assert!(link_becomes(&mut near, LinkState::Down));
    assert!(near.send(&[0; 60]), "a cable that is gone loses frames");
    assert!(is_silent(&mut near));
}

#[test]
fn second_owner_of_an_interface_is_mute() {
    if !is_inside("second_owner_of_an_interface_is_mute") {
        return;
    }
    veth();
    let mut near = PacketSocket::open("veth0").unwrap();
    let mut second = PacketSocket::open("veth0").unwrap();
    let mut far = PacketSocket::open("veth1").unwrap();
    assert!(second.is_mute() && !near.is_mute());
    assert!(second.send(&[0x88; 60]) && far.send(&[0x89; 60]));
    far.tend(0);
    assert_eq!(await_frame(&mut near).map(|frame| frame[0]), Some(0x89));
    assert!(is_silent(&mut second) && is_silent(&mut far));
    drop((near, second));
    assert!(!PacketSocket::open("veth0").unwrap().is_mute());
}

#[test]
fn checksum_that_the_kernel_left_to_the_nic_is_whole() {
    if !is_inside("checksum_that_the_kernel_left_to_the_nic_is_whole") {
        return;
    }
    veth();
    ip("address add 10.9.0.1/24 dev veth1");
    ip("neighbor add 10.9.0.2 lladdr 02:00:00:00:00:a0 dev veth1");
    let mut near = PacketSocket::open("veth0").unwrap();
    UdpSocket::bind("10.9.0.1:7").unwrap().send_to(b"a datagram", "10.9.0.2:9").unwrap();
    let frame = await_frame(&mut near).unwrap();
    // Pseudo header (addresses, protocol, length) and datagram sum up to ones: RFC 768.
    let words = frame[26..].chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)));
    let sum = words.sum::<u32>() + 17 + u32::from(frame[39]);
    assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff, "{frame:02x?}");
}

#[test]
fn kernels_interface_is_beside_the_model_on_the_same_cable() {
    if !is_inside("kernels_interface_is_beside_the_model_on_the_same_cable") {
        return;
    }
    veth();
    let keeper = Tap::keep("soft0", [2, 0, 0, 0, 0, 0xb0], 1500).unwrap();
    assert!(Tap::keep("soft0", [2, 0, 0, 0, 0, 0xb0], 1500).is_err(), "a TAP of that name is somebody's");
    ip("address add 10.9.0.2/24 dev soft0");
    let cable = PacketSocket::open("veth0").unwrap();
    let groups = Groups::new("soft0", [2, 0, 0, 0, 0, 0xb0]);
    let mut port = Port::new(Box::new(cable)).with_tap(Tap::open("soft0").unwrap()).with_groups(groups);
    let mut far = PacketSocket::open("veth1").unwrap();

    assert!(port.kernel_wants(&arp_request()));
    port.to_kernel(&arp_request());
    let answer = loop {
        port.tend(0);
        let mut frame = Vec::new();
        if far.receive(&mut frame) {
            break frame;
        }
    };
    assert_eq!((&answer[6..12], &answer[20..22]), (&[2, 0, 0, 0, 0, 0xb0][..], &[0, 2][..]), "an ARP reply");
    drop((keeper, port));
    assert!(Tap::keep("soft0", [2, 0, 0, 0, 0, 0xb2], 1500).is_ok(), "it went with its last queue");
}

#[test]
fn tap_is_a_cable_to_the_kernel() {
    if !is_inside("tap_is_a_cable_to_the_kernel") {
        return;
    }
    veth();
    let _keeper = Tap::keep("soft1", [2, 0, 0, 0, 0, 0xb1], 1500).unwrap();
    ip("address add 10.9.0.2/24 dev soft1");
    let mut tap = Tap::open("soft1").unwrap();
    assert!(Cable::send(&mut tap, &arp_request()));
    assert_eq!(await_frame(&mut tap).unwrap()[20..22], [0, 2]);
}
