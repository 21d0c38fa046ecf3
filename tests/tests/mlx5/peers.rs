//! The mlx5 device at one end of a veth, and independent software at the other: DPDK's own mlx5
//! driver, or the Linux kernel's sockets. Both count the same.
//!
//! Each test is two processes, each with a separate software ConnectX: the test starts itself again
//! under `softhca run`, and the two exchange files in a directory. A notice is printed for a test
//! that cannot run here.
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::path::Path;
use std::process::Child;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use softhca::testing::testpmd::{self, RECEIVES, TIMEOUT, await_count, counter, counts, total};
use softhca::testing::{command, not_installed};
use tempfile::TempDir;
use wirepath::device::mlx5::{Feature, Mlx5Config};
use wirepath::device::steering::Rule;
use wirepath::device::{Offload, TxQueue};
use wirepath::mem::{ChecksumStatus, Mbuf};
use wirepath_tests::connectx::{End, config};
use wirepath_tests::frames::Frame;
use wirepath_tests::netns::Namespace;
use wirepath_tests::nic;

/// Frames that DPDK sends, at least.
const RECEIVED_MIN: u64 = 200_000;
/// Frames sent to it. There is no flow control, so there are no more than fit the socket of a model
/// that has not begun to read.
const SENT: u64 = 100_000;
/// Datagrams that the kernel sends back.
const DATAGRAMS: u64 = 20_000;
/// Datagrams on the way at once: fewer than any buffer on it holds.
const WINDOW: u64 = 32;

const OURS: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 77, 0, 2), 7_000);
const THEIRS: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 77, 0, 1), 9_000);
/// The MAC addresses of our end and theirs.
const MACS: [&str; 2] = ["02:00:00:00:00:a0", "02:00:00:00:00:a1"];
const MAC_BYTES: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 0xa0], [2, 0, 0, 0, 0, 0xa1]];

/// Programs that poll leave no processor for those of another test.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Where both processes meet.
const MEETING: &str = "WIREPATH_TEST_MEETING";

/// A veth between us, in `near`, and the others.
struct Wire {
    near: Namespace,
    far: Namespace,
    meeting: TempDir,
    _turn: MutexGuard<'static, ()>,
}

impl Wire {
    /// `None` where there is no such thing, after saying why.
    fn new(test: &str, missing: Option<String>) -> Option<Self> {
        let namespaces =
            missing.or_else(softhca::testing::missing).map_or_else(|| Ok((Namespace::new()?, Namespace::new()?)), Err);
        let (near, far) = namespaces.map_err(|why| println!("SKIPPED {test}: {why}")).ok()?;
        let turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        near.veth("veth0", &far, "veth1").unwrap();
        for (namespace, interface, mac) in [(&near, "veth0", MACS[0]), (&far, "veth1", MACS[1])] {
            namespace.ip(&["link", "set", interface, "address", mac]).unwrap();
        }
        Some(Self { near, far, meeting: TempDir::new().unwrap(), _turn: turn })
    }

    /// Starts the test again at our end. The model moves when we poll, and checks everything that
    /// we do.
    fn start(&self, test: &str) -> Ours {
        let mut ours = command(&["--strict", "--manual", "--wire", "veth0"]).unwrap();
        ours.arg(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture"])
            .env(MEETING, self.meeting.path());
        Ours(self.near.run(|| ours.spawn()).unwrap())
    }

    /// Waits until our end has said something.
    fn await_word(&self, ours: &mut Ours, word: &str) {
        while !self.meeting.path().join(word).exists() {
            assert_eq!(ours.0.try_wait().unwrap(), None, "it ended before it said {word}");
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn say(&self, word: &str, text: &str) {
        say(self.meeting.path(), word, text);
    }
}

/// The process at our end.
struct Ours(Child);

/// A failed test leaves no polling process behind.
impl Drop for Ours {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The reader of the file gets all of it or nothing.
fn say(meeting: &Path, word: &str, text: &str) {
    std::fs::write(meeting.join("draft"), text).unwrap();
    std::fs::rename(meeting.join("draft"), meeting.join(word)).unwrap();
}

/// The directory of the other process, if this is the process at our end.
fn meeting() -> Option<std::path::PathBuf> {
    std::env::var_os(MEETING).map(Into::into)
}

fn is_clean(end: End) {
    end.close();
    assert_eq!(nic::diagnoses(), Vec::<String>::new());
}

// DPDK sends, and we receive.

/// The frames that testpmd sends by default: 64 bytes from 198.18.0.1 to 198.18.0.2, port 9.
const TESTPMD: Rule = Rule::udp(Ipv4Addr::new(198, 18, 0, 2), 9);

fn receives(test: &str, change: impl Fn(Mlx5Config) -> Mlx5Config) {
    if let Some(meeting) = meeting() {
        let config = Mlx5Config { rx_ring_len: 512, ..config("mlx5_0") };
        return count_what_comes(&meeting, &change(config));
    }
    let Some(wire) = Wire::new(test, not_installed("dpdk-testpmd", "dpdk-dev")) else { return };
    let mut ours = wire.start(test);
    wire.await_word(&mut ours, "ready");
    let theirs = wire.far.run(|| testpmd::start("--wire veth1", "sender", "rxq_cqe_comp_en=0", "txonly"));
    await_count(&theirs, "TX-packets:", RECEIVED_MIN);
    theirs.interrupt();
    let sent = theirs.end(TIMEOUT);
    assert_eq!(sent.code, Some(0), "{}", sent.said);
    let count = total(&sent, "TX-packets:");
    assert_eq!((counter(&sent, "tx_frames"), counter(&sent, "tx_errors")), (count, 0), "{}", sent.said);
    wire.say("sent", &count.to_string());
    assert!(ours.0.wait().unwrap().success(), "{count} were sent, and see above");
}

/// Our end: every frame is one of testpmd's, and in the end there are as many as testpmd has
/// counted.
fn count_what_comes(meeting: &Path, config: &Mlx5Config) {
    let (_device, mut end) = End::alone(config, &[TESTPMD]);
    say(meeting, "ready", "");
    let (mut received, mut sent, mut last) = (0u64, None, Instant::now());
    while sent != Some(received) {
        let mut burst = end.burst();
        if burst.is_empty() {
            sent = std::fs::read_to_string(meeting.join("sent")).ok().map(|count| count.parse().unwrap());
            let waited = last.elapsed();
            assert!(waited < TIMEOUT, "{received} received of {sent:?}, and no more comes: {:?}", end.counted());
            thread::yield_now();
            continue;
        }
        last = Instant::now();
        for mbuf in burst.drain(..) {
            assert_eq!((mbuf.len(), mbuf.rx_info().ip_checksum), (64, ChecksumStatus::Good));
            assert_eq!(mbuf.bytes()[26..38], [198, 18, 0, 1, 198, 18, 0, 2, 0, 9, 0, 9]);
            mbuf.free();
            received += 1;
        }
    }
    assert_eq!((end.receive_all(50).len(), end.dropped("rx")), (0, 0), "{:?}", end.counted());
    assert_eq!((end.count("rx/frames"), nic::counter("rx_frames")), (received, Some(received)));
    println!("{received} frames of DPDK's were received");
    is_clean(end);
}

#[test]
fn what_dpdk_sends_is_received_to_the_frame() {
    receives("what_dpdk_sends_is_received_to_the_frame", |config| config);
}

#[test]
fn what_dpdk_sends_is_received_with_compressed_completions() {
    let change = |config| Mlx5Config { compression: Feature::Required, ..config };
    receives("what_dpdk_sends_is_received_with_compressed_completions", change);
}

#[test]
fn what_dpdk_sends_is_received_in_strides() {
    let change = |config| Mlx5Config { striding: Feature::Required, ..config };
    receives("what_dpdk_sends_is_received_in_strides", change);
}

// We send, and DPDK receives.

/// Frames of all lengths that fit.
fn frame(number: u64) -> Vec<u8> {
    let mut payload = vec![number as u8; 18 + (number * 37 % 1_400) as usize];
    payload[..8].copy_from_slice(&number.to_be_bytes());
    emit(&payload)
}

/// A datagram to the other end.
fn emit(payload: &[u8]) -> Vec<u8> {
    let mut bytes = Frame { source: OURS, ..Frame::to(*THEIRS.ip(), THEIRS.port(), payload) }.emit();
    let [ours, theirs] = MAC_BYTES;
    bytes[..6].copy_from_slice(&theirs);
    bytes[6..12].copy_from_slice(&ours);
    bytes
}

fn sends(test: &str, change: impl Fn(Mlx5Config) -> Mlx5Config) {
    if meeting().is_some() {
        return send_all(&change(Mlx5Config { tx_ring_len: 256, ..config("mlx5_0") }));
    }
    let Some(wire) = Wire::new(test, not_installed("dpdk-testpmd", "dpdk-dev")) else { return };
    let mut theirs =
        wire.far.run(|| testpmd::start("--strict --wire veth1", "receiver", "rxq_cqe_comp_en=0", "rxonly"));
    if !theirs.says(RECEIVES, TIMEOUT) {
        panic!("{}", theirs.end(Duration::ZERO).said);
    }
    assert!(wire.start(test).0.wait().unwrap().success(), "see above");
    let bytes = (0..SENT).map(|number| frame(number).len() as u64).sum();
    await_count(&theirs, "RX-bytes:", bytes);
    theirs.interrupt();
    let received = theirs.end(TIMEOUT);
    assert_eq!(received.code, Some(0), "{}", received.said);
    assert_eq!(total(&received, "RX-packets:"), SENT);
    assert_eq!(counts(&received.said, "RX-bytes:").next_back(), Some(bytes));
    assert_eq!(
        (counter(&received, "rx_frames"), counter(&received, "rx_out_of_buffer")),
        (SENT, 0),
        "{}",
        received.said
    );
}

/// Our end: sends, and waits until everything is on the wire.
fn send_all(config: &Mlx5Config) {
    let (_device, mut end) = End::alone(config, &[]);
    let frames = (0..SENT).map(frame);
    for portion in (0..SENT.div_ceil(64)).scan(frames, |frames, _| Some(frames.take(64).collect::<Vec<_>>())) {
        end.send(&portion);
    }
    let begin = Instant::now();
    while end.tx.in_flight() > 0 {
        assert!(begin.elapsed() < TIMEOUT, "frames that never leave: {:?}", end.counted());
        end.receive();
    }
    // The cable may still have some that the interface did not take at once.
    end.receive_all(1_000);
    assert_eq!((end.dropped("tx"), end.count("tx/frames")), (0, SENT), "{:?}", end.counted());
    assert_eq!((nic::counter("tx_frames"), nic::counter("tx_errors")), (Some(SENT), Some(0)));
    is_clean(end);
}

#[test]
fn what_we_send_is_received_by_dpdk_to_the_byte() {
    let change = |config| Mlx5Config { multi_packet_send: Feature::Required, ..config };
    sends("what_we_send_is_received_by_dpdk_to_the_byte", change);
}

#[test]
fn what_we_send_one_frame_a_descriptor_is_received_by_dpdk() {
    let change = |config| Mlx5Config { multi_packet_send: Feature::Off, ..config };
    sends("what_we_send_one_frame_a_descriptor_is_received_by_dpdk", change);
}

// The kernel sends back the data that it gets.

/// Checksums are the device's, both ways: the kernel looks at ours, and hands its own on
/// unfinished.
#[test]
fn kernels_socket_sends_back_every_datagram() {
    let test = "kernels_socket_sends_back_every_datagram";
    if meeting().is_some() {
        return converse();
    }
    let Some(wire) = Wire::new(test, None) else { return };
    wire.far.ip(&["address", "add", "10.77.0.1/24", "dev", "veth1"]).unwrap();
    wire.far.ip(&["neighbor", "add", "10.77.0.2", "lladdr", MACS[0], "dev", "veth1", "nud", "permanent"]).unwrap();
    let socket = wire.far.run(|| UdpSocket::bind(THEIRS)).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let mut ours = wire.start(test);
    let (mut bytes, mut count) = ([0; 2048], 0);
    let status = loop {
        if let Ok((len, from)) = socket.recv_from(&mut bytes) {
            socket.send_to(&bytes[..len], from).unwrap();
            count += 1;
        } else if let Some(status) = ours.0.try_wait().unwrap() {
            break status;
        }
    };
    assert!(status.success(), "see above");
    assert_eq!(count, DATAGRAMS);
}

/// Our end: each datagram is sent back unchanged, in order.
fn converse() {
    let (_device, mut end) = End::alone(&config("mlx5_0"), &[Rule::udp(*OURS.ip(), OURS.port())]);
    let offload = Offload::IP_CHECKSUM | Offload::L4_CHECKSUM;
    let (mut sent, mut received, mut last) = (0, 0, Instant::now());
    while received < DATAGRAMS {
        while sent < DATAGRAMS.min(received + WINDOW) {
            let mut bytes = frame(sent);
            // The field that the device computes.
            bytes[24..26].fill(0);
            bytes[40..42].fill(0);
            let mut mbuf = end.pool.alloc_copy(&bytes).unwrap();
            mbuf.set_l2_len(14);
            mbuf.set_l3_len(20);
            if end.tx.post(mbuf, offload).map_err(Mbuf::free).is_err() {
                break;
            }
            sent += 1;
        }
        for mbuf in end.burst().drain(..) {
            let info = mbuf.rx_info();
            assert_eq!((info.ip_checksum, info.l4_checksum), (ChecksumStatus::Good, ChecksumStatus::Good));
            assert_eq!(mbuf.bytes()[42..], frame(received)[42..], "datagram {received}");
            mbuf.free();
            (received, last) = (received + 1, Instant::now());
        }
        assert!(last.elapsed() < TIMEOUT, "{sent} sent, {received} came back: {:?}", end.counted());
    }
    assert_eq!((end.dropped("tx"), end.dropped("rx")), (0, 0), "{:?}", end.counted());
    is_clean(end);
}
