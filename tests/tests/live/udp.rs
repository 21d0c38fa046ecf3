//! Datagrams of every size between a host of ours and sockets of the Linux kernel: to one, to a
//! group and to all, in both directions, in as many fragments as they need.
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::net::{self as kernel, AddressFamily, SendFlags, SocketType};
use wirepath::pipeline::{Checksum, HostStackConfig, Ipv4Config, UdpOptions};
use wirepath::time::Duration;
use wirepath_tests::live::{FAR, Live, LiveConfig, NEAR, OURS, THEIRS, Wire};

/// Over IPv4: 65,535 bytes less both headers.
const SIZE_MAX: usize = 65_507;
/// Where the kernel sends, and where we do.
const TO_US: Ipv4Addr = Ipv4Addr::new(239, 1, 1, 1);
const TO_THEM: Ipv4Addr = Ipv4Addr::new(239, 1, 1, 2);
const ALL: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 255);
const OUR_PORT: u16 = 7_000;
const THEIR_PORT: u16 = 7_001;

/// Bytes that identify their datagram and their position in it.
struct Contents(Vec<u8>);

impl Contents {
    fn new() -> Self {
        let words = (0u64..9_000).map(|word| (word + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        Self(words.flat_map(u64::to_le_bytes).collect())
    }

    fn of(&self, size: usize) -> &[u8] {
        let start = size % 1_999;
        &self.0[start..start + size]
    }
}

/// The sizes at the borders (no payload, one fragment more, the largest), and samples of the
/// others.
fn borders() -> BTreeSet<usize> {
    let fragments = (1..=44).flat_map(|count| count * 1_480 - 16..=count * 1_480);
    let largest = SIZE_MAX - 7..=SIZE_MAX;
    (0..=64).chain(fragments).chain(largest).chain((64..SIZE_MAX).step_by(97)).collect()
}

/// The kernel sends each size to `to_us`, we send the same back to `to_them`, and both compare
/// every byte. One at a time, so that none may be lost.
fn exchange(test: &str, to_us: Ipv4Addr, to_them: Ipv4Addr, sizes: impl IntoIterator<Item = usize>) {
    if let Some(wire) = Wire::new(test) {
        exchange_over(wire, to_us, to_them, sizes);
    }
}

fn exchange_over(wire: Wire, to_us: Ipv4Addr, to_them: Ipv4Addr, sizes: impl IntoIterator<Item = usize>) {
    let live = Live::start(&wire.near, &LiveConfig::own(NEAR)).unwrap();
    let socket = kernel_socket(&wire, to_them);
    live.bind(OUR_PORT);
    live.join(TO_US, OUR_PORT);
    let (contents, failures) = (Contents::new(), Arc::new(AtomicU64::new(0)));
    let mut flow = live.connect(OUR_PORT + 2, (to_them, THEIR_PORT), UdpOptions::default());
    let failed = Arc::clone(&failures);
    live.handle(move |datagram, cx| {
        let is_whole = datagram.payload == contents.of(datagram.payload.len());
        let is_sent = flow.send(datagram.payload, cx).is_ok();
        failed.fetch_add(u64::from(!is_whole || !is_sent), Ordering::Relaxed);
    });
    let (contents, mut bytes, mut count) = (Contents::new(), vec![0; 70_000], 0);
    for size in sizes {
        socket.send_to(contents.of(size), (to_us, OUR_PORT)).unwrap();
        // A signal for another connection is not an answer.
        let back = std::iter::repeat_with(|| socket.recv(&mut bytes))
            .find(|back| back.as_ref().err().is_none_or(|error| error.kind() != ErrorKind::Interrupted))
            .expect("the iterator has no end");
        let len =
            back.unwrap_or_else(|error| panic!("{size} bytes did not come back ({error}): {:?}", live.snapshot()));
        assert!(bytes[..len] == *contents.of(size), "{size} bytes came back as {len} others");
        count += 1;
    }
    assert_eq!(failures.load(Ordering::Relaxed), 0, "datagrams that were not whole or not sent");
    let counters = live.stop();
    assert_eq!(counters.count("host/udp/datagrams"), Some(count));
    assert_eq!(counters.count("host/egress/datagrams"), Some(count));
    println!("{count} datagrams each way, {} of ours in fragments", counters.count("host/egress/fragments").unwrap());
}

fn kernel_socket(wire: &Wire, to_them: Ipv4Addr) -> UdpSocket {
    let socket = wire.socket((Ipv4Addr::UNSPECIFIED, THEIR_PORT));
    socket.set_broadcast(true).unwrap();
    if to_them.is_multicast() {
        wire.far.run(|| socket.join_multicast_v4(&to_them, &THEIRS).unwrap());
    }
    socket
}

#[test]
fn unicast_of_all_border_sizes_comes_back_whole() {
    exchange("unicast_of_all_border_sizes_comes_back_whole", OURS, THEIRS, borders());
}

#[test]
fn multicast_of_all_border_sizes_comes_back_whole() {
    exchange("multicast_of_all_border_sizes_comes_back_whole", TO_US, TO_THEM, borders());
}

#[test]
fn broadcast_comes_back_whole() {
    exchange("broadcast_comes_back_whole", ALL, ALL, borders());
}

#[test]
#[ignore = "all 65,508 sizes take a minute"]
fn unicast_of_every_size_comes_back_whole() {
    exchange("unicast_of_every_size_comes_back_whole", OURS, THEIRS, 0..=SIZE_MAX);
}

#[test]
#[ignore = "all 65,508 sizes take a minute"]
fn multicast_of_every_size_comes_back_whole() {
    exchange("multicast_of_every_size_comes_back_whole", TO_US, TO_THEM, 0..=SIZE_MAX);
}

/// A wire with frames of another length.
fn wire_with_mtu(test: &str, mtu: &str) -> Option<Wire> {
    let wire = Wire::new(test)?;
    wire.near.ip(&["link", "set", NEAR, "mtu", mtu]).unwrap();
    wire.far.ip(&["link", "set", FAR, "mtu", mtu]).unwrap();
    Some(wire)
}

#[test]
fn small_mtu_on_the_cable_is_taken_into_account() {
    let Some(wire) = wire_with_mtu("small_mtu_on_the_cable_is_taken_into_account", "576") else { return };
    let live = Live::start(&wire.near, &LiveConfig::own(NEAR)).unwrap();
    let socket = wire.socket((THEIRS, THEIR_PORT));
    live.bind(OUR_PORT);
    let mut flow = live.connect(OUR_PORT + 2, (THEIRS, THEIR_PORT), UdpOptions::default());
    assert_eq!(flow.payload_len_max(), 548);
    let contents = Contents::new();
    socket.send_to(contents.of(60_000), (OURS, OUR_PORT)).unwrap();
    assert!(live.receive(1)[0].payload == contents.of(60_000));
    live.send(&mut flow, contents.of(60_000)).unwrap();
    let mut bytes = vec![0; 70_000];
    let len = socket.recv(&mut bytes).unwrap();
    assert!(bytes[..len] == *contents.of(60_000));
    live.stop();
}

#[test]
fn jumbo_frames_come_in_several_buffers_and_leave_in_fragments() {
    let test = "jumbo_frames_come_in_several_buffers_and_leave_in_fragments";
    let Some(wire) = wire_with_mtu(test, "9000") else { return };
    // A buffer of 2 KiB holds 1,664 bytes of a frame, and a fragment goes into one.
    exchange_over(wire, OURS, THEIRS, (0..20_000).step_by(71).chain([1_622, 1_623, 8_972, 8_973, SIZE_MAX]));
}

#[test]
fn kernel_takes_datagrams_without_a_checksum() {
    let Some(wire) = Wire::new("kernel_takes_datagrams_without_a_checksum") else { return };
    let live = Live::start(&wire.near, &LiveConfig::own(NEAR)).unwrap();
    let socket = wire.socket((THEIRS, THEIR_PORT));
    let options = UdpOptions { checksum: Checksum::Zero, ..UdpOptions::default() };
    let mut flow = live.connect(OUR_PORT, (THEIRS, THEIR_PORT), options);
    let contents = Contents::new();
    for size in [0, 1, 1_472, 5_000] {
        live.send(&mut flow, contents.of(size)).unwrap();
        let mut bytes = [0; 5_001];
        let len = socket.recv(&mut bytes).unwrap();
        assert!(bytes[..len] == *contents.of(size), "{size} bytes came as {len} others");
    }
    live.stop();
}

#[test]
fn datagram_that_lacks_a_fragment_is_a_named_drop_and_told() {
    let Some(wire) = Wire::new("datagram_that_lacks_a_fragment_is_a_named_drop_and_told") else { return };
    let own = LiveConfig::own(NEAR);
    let ipv4 = Ipv4Config { reassembly_timeout: Duration::from_millis(50), ..own.stack.ipv4 };
    let stack = HostStackConfig { ipv4, ..own.stack };
    let live = Live::start(&wire.near, &LiveConfig { stack, ..own }).unwrap();
    live.bind(OUR_PORT);
    wire.far.run(|| send_first_fragment(OURS, OUR_PORT));
    live.until_count("ipv4/drop/fragment_timeout", 1);
    live.until_count("egress/icmp_errors/sent", 1);
    assert_eq!(live.take_datagrams(), []);
    live.stop();
}

/// Sends the first fragment of a datagram, and no other, by a raw socket of the kernel.
fn send_first_fragment(to: Ipv4Addr, port: u16) {
    let mut packet = [0; 28 + 1_400];
    let [high, low] = port.to_be_bytes();
    // Version and length, time to live, UDP; the kernel fills in the rest (ip(7), IP_HDRINCL).
    (packet[0], packet[8], packet[9]) = (0x45, 64, 17);
    packet[4..6].copy_from_slice(&[0, 7]);
    // "More fragments".
    packet[6] = 0x20;
    packet[16..20].copy_from_slice(&to.octets());
    packet[20..26].copy_from_slice(&[high, low, high, low, 15, 168]);
    let socket = kernel::socket(AddressFamily::INET, SocketType::RAW, Some(kernel::ipproto::RAW)).unwrap();
    let sent = kernel::sendto(&socket, &packet, SendFlags::empty(), &SocketAddrV4::new(to, 0)).unwrap();
    assert_eq!(sent, packet.len());
}
