//! `wirepath capture` as an operator runs it, against a worker in another process: a child that
//! sends back frames from a wire in memory, obeys lines on its standard input, and is killed.
#![allow(clippy::unwrap_used, reason = "helpers of tests panic to report")]

use std::io::{BufRead, BufReader, Lines, Write};
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, TryRecvError};
use std::time::{Duration, Instant};
use std::{fs, thread};

use tempfile::TempDir;
use wirepath::counters::Block;
use wirepath::device::memory::{MemoryConfig, MemoryDevice, MemoryRx, MemoryTx, pair};
use wirepath::device::pcap::Reader;
use wirepath::device::tap::{TapConfig, TapDevice};
use wirepath::device::{Device, Offload, Queue, RxOf, RxQueue, TxOf, TxQueue};
use wirepath::mem::{Burst, Mbuf, Pool};
use wirepath::pipeline::{Cx, EgressConfig, Node, NodeTree};
use wirepath::proto::{Host, HostConfig, InterfaceId, SocketCapacity, UdpSockets};
use wirepath::time::{Clock, MonotonicClock};
use wirepath::wire::ethernet::{EthernetFields, EthernetHeader};
use wirepath::wire::ipv4::{Ipv4Fields, Ipv4Header};
use wirepath::wire::{EtherType, MacAddr, Protocol, VlanTags};
use wirepath::worker::{Parts, Worker, random_seed};

const SOURCE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);
/// The ring of the child's tap: the smallest there is.
const RING_LEN: usize = 512 << 10;

/// Frame `n` of a stream: a UDP datagram with `n` and padding that makes its length differ from the
/// next one's.
fn frame(n: u64) -> Vec<u8> {
    let payload = [n.to_be_bytes().to_vec(), vec![n as u8; (n % 100) as usize]].concat();
    let mut bytes = vec![0; 34];
    let ethernet =
        EthernetFields { dst: MacAddr::multicast_ipv4(GROUP), src: MacAddr([2; 6]), ethertype: EtherType::IPV4 };
    EthernetHeader::new(ethernet).emit(&mut bytes).unwrap();
    let ipv4 = Ipv4Fields {
        source: SOURCE,
        destination: GROUP,
        protocol: Protocol::UDP,
        ttl: 1,
        tos: 0,
        identification: 0,
        dont_fragment: true,
        payload_len: 8 + payload.len(),
    };
    Ipv4Header::new(&ipv4).unwrap().emit(&mut bytes[14..]).unwrap();
    bytes.extend([0x13, 0x88, 0x23, 0x28, 0, 8 + payload.len() as u8, 0, 0]);
    bytes.extend(payload);
    bytes
}

/// A node that sends every frame back as it came.
struct Echo;

impl Node<()> for Echo {
    fn push(&mut self, mbuf: Mbuf, (): &mut (), cx: &mut Cx<'_>) {
        cx.tx.post(mbuf, Offload::NONE).map_err(Mbuf::free).unwrap();
    }

    fn tick(&mut self, (): &mut (), _cx: &mut Cx<'_>) {}

    fn kept(&self) -> usize {
        0
    }

    fn outline(&self, _outline: &mut NodeTree) {}
}

/// Not a separate test: the second process of the tests below, which runs this until it reads
/// `quit` or is killed.
#[test]
fn child_sends_back_what_arrives() {
    let Some(directory) = std::env::var_os("WIREPATH_TEST_CHILD") else { return };
    let wires: u32 = std::env::var("WIREPATH_TEST_WIRES").unwrap().parse().unwrap();
    let mut wires: Vec<_> = (0..wires).map(|idx| Wire::new(Path::new(&directory), idx)).collect();
    let (to_worker, orders) = mpsc::channel();
    thread::spawn(move || std::io::stdin().lines().try_for_each(|line| to_worker.send(line.unwrap())));
    println!("\nchild polls");
    loop {
        let order = match orders.try_recv() {
            Ok(order) => order,
            Err(TryRecvError::Empty) => {
                wires.iter_mut().for_each(Wire::turn);
                thread::yield_now();
                continue;
            }
            Err(TryRecvError::Disconnected) => return,
        };
        match order.split_once(' ') {
            Some(("send", count)) => (0..count.parse().unwrap()).for_each(|_| wires.iter_mut().for_each(Wire::send)),
            _ if order == "until quiet" => wires.iter_mut().for_each(Wire::wait_until_quiet),
            _ => return,
        }
        println!("\ndone {order}");
    }
}

/// The child's parts: a worker at the tapped end of a wire, and a far end.
struct Wire {
    worker: Worker<RxOf<TapDevice<MemoryDevice>>, TxOf<TapDevice<MemoryDevice>>, Echo, ()>,
    far: (MemoryRx, MemoryTx),
    pool: Pool,
    clock: MonotonicClock,
    sent: u64,
}

impl Wire {
    fn new(directory: &Path, idx: u32) -> Self {
        let (near, mut far) = pair(&format!("wire{idx}"), MemoryConfig::default());
        let config = TapConfig { directory: directory.to_owned(), ring_len: RING_LEN, ..TapConfig::new("child") };
        let mut near = TapDevice::new(near, config);
        let (block, pools) = (Block::heap(), [Pool::heap(1_024).unwrap(), Pool::heap(1_024).unwrap()]);
        let [pool, far_pool] = pools;
        let scope = block.scope("worker0");
        let (rx, tx) = near.take_queue(0).unwrap().open(&pool, &scope).unwrap();
        assert_eq!(near.problems().count(), 0);
        let host = HostConfig {
            interface: InterfaceId(0),
            mac: MacAddr([2; 6]),
            vlan: VlanTags::NONE,
            mtu: 1_500,
            addresses_max: 1,
            routes_max: 1,
            neighbors_max: 1,
        };
        let host = Host::new(host, random_seed()).unwrap();
        let sockets = UdpSockets::new(SocketCapacity::default(), random_seed());
        let egress = EgressConfig::quiet(random_seed());
        let parts = Parts { rx, tx, pipeline: Echo, app: (), pool, host, sockets, egress, burst_len: 32 };
        Self {
            worker: Worker::new(parts, &scope),
            far: far.take_queue(0).unwrap().open(&far_pool, &block.scope("far")).unwrap(),
            pool: far_pool,
            clock: MonotonicClock::start(),
            sent: 0,
        }
    }

    /// One turn of the worker; the far end takes the returned frames.
    fn turn(&mut self) {
        let now = self.clock.now();
        self.worker.poll_once(now);
        let mut burst = Burst::new();
        self.far.0.receive(&mut burst, 64, &self.pool, now);
        burst.drain(..).for_each(Mbuf::free);
    }

    /// The next frame arrives, and is sent back.
    fn send(&mut self) {
        self.far.1.post(self.pool.alloc_copy(&frame(self.sent)).unwrap(), Offload::NONE).unwrap();
        self.far.1.ring_doorbell(self.clock.now());
        self.sent += 1;
        self.turn();
        self.far.1.reap();
    }

    fn wait_until_quiet(&mut self) {
        while self.worker.rx().has_listener() {
            self.turn();
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// The child as the tests see it. It is always killed in the end.
struct Worked {
    child: Child,
    orders: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
    directory: TempDir,
}

impl Worked {
    fn start() -> Self {
        Self::start_with(1)
    }

    /// A child with so many wires, each of which gets the frames.
    fn start_with(wires: u32) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child_sends_back_what_arrives", "--nocapture"])
            .env("WIREPATH_TEST_CHILD", directory.path())
            .env("WIREPATH_TEST_WIRES", wires.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let orders = child.stdin.take().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut worked = Self { child, orders, answers, directory };
        worked.wait_for("child polls");
        worked
    }

    fn order(&mut self, order: &str) {
        writeln!(self.orders, "{order}").unwrap();
        self.wait_for(&format!("done {order}"));
    }

    fn wait_for(&mut self, answer: &str) {
        assert!(self.answers.any(|line| line.unwrap() == answer), "the child ended before \"{answer}\"");
    }

    fn path(&self, name: &str) -> String {
        self.directory.path().join(name).to_str().unwrap().to_owned()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_wirepath"));
        command.arg("capture").args(arguments).env("WIREPATH_SHM", self.directory.path());
        command
    }

    /// A running capture: from here on it sees or counts every frame.
    fn capture(&self, arguments: &[&str]) -> Capture {
        let mut child = self.command(arguments).stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
        let begin = said.next().unwrap().unwrap();
        assert!(begin.starts_with("wirepath: listening to wire0.0.0"), "{begin}");
        Capture { child, said }
    }
}

impl Drop for Worked {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Capture {
    child: Child,
    said: Lines<BufReader<ChildStderr>>,
}

impl Capture {
    fn signal(&self, signal: &str) {
        assert!(Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap().success());
    }

    /// Waits for its end: its output, and its status.
    fn end(mut self) -> (Vec<String>, ExitStatus) {
        (self.said.map(Result::unwrap).collect(), self.child.wait().unwrap())
    }
}

/// The frames of a capture.
fn frames(path: &str) -> Vec<Vec<u8>> {
    let mut reader = Reader::open(path).unwrap();
    let mut frames = Vec::new();
    while let Some(record) = reader.next().unwrap() {
        frames.push(record.bytes.to_vec());
    }
    frames
}

/// The three numbers of the last summary.
fn summary(said: &[String]) -> [u64; 3] {
    let line = said.iter().find(|line| line.contains("frames written")).unwrap();
    let numbers: Vec<_> = line.split([' ', ',']).filter_map(|word| word.parse().ok()).collect();
    numbers.try_into().unwrap()
}

#[test]
fn nobody_to_listen_to_is_one_sentence_and_exit_1() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_wirepath"));
    let output = command.arg("capture").env("WIREPATH_SHM", directory.path()).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1));
    assert!(said.starts_with("wirepath: no process can be listened to in "), "{said}");
}

#[test]
fn usage_errors_exit_2_and_say_what_is_known() {
    let worked = Worked::start();
    for wrong in [&["--rx", "--tx"][..], &["--snap", "0"], &["--filter", "sctp"], &["--seconds", "-1"], &["a", "b"]] {
        assert_eq!(worked.command(wrong).output().unwrap().status.code(), Some(2), "{wrong:?}");
    }
    for unknown in [&["nobody"][..], &["--queue", "7"], &["--device", "eth9"]] {
        let output = worked.command(unknown).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(said.contains(&format!("these can: child (pid {}) wire0.0 queue 0", worked.child.id())), "{said}");
    }
}

#[test]
fn every_frame_of_a_modest_stream_is_there_in_order() {
    let mut worked = Worked::start();
    let path = worked.path("day.pcap");
    let capture = worked.capture(&["child", "-w", &path]);
    for _ in 0..10 {
        worked.order("send 100");
        thread::sleep(Duration::from_millis(5));
    }
    capture.signal("-INT");
    let (said, status) = capture.end();
    assert!(status.success(), "{said:?}");
    assert_eq!(summary(&said), [2_000, 0, 0]);
    let expected: Vec<_> = (0..1_000).flat_map(|n| [frame(n), frame(n)]).collect();
    assert!(frames(&path) == expected);
    match Command::new("tcpdump").args(["-nr", &path]).output() {
        Err(_) => println!("SKIPPED tcpdump reads the capture: there is none; apt-get install tcpdump"),
        Ok(output) => {
            let text = String::from_utf8(output.stdout).unwrap();
            assert_eq!(text.lines().count(), 2_000);
            assert!(text.contains("IP 10.0.0.1.5000 > 239.1.2.3.9000: UDP, length 8\n"), "{text:.500}");
        }
    }
}

#[test]
fn capture_down_a_pipe_ends_with_count_and_keeps_what_it_was_told() {
    let mut worked = Worked::start();
    let capture = worked.capture(&["--rx", "--snap", "40", "--count", "7", "-w", "-"]);
    worked.order("send 10");
    let output = capture.child.wait_with_output().unwrap();
    let path = worked.path("pipe.pcap");
    fs::write(&path, output.stdout).unwrap();
    let expected: Vec<_> = (0..7).map(|n| frame(n)[..40].to_vec()).collect();
    assert_eq!(frames(&path), expected);
}

#[test]
fn seconds_end_a_capture_that_sees_nothing() {
    let worked = Worked::start();
    let output = worked.command(&["--seconds", "0.1", "-w", "-"]).output().unwrap();
    // A file header, which tcpdump reads as a capture without frames.
    assert_eq!((output.status.code(), output.stdout.len()), (Some(0), 24));
}

#[test]
fn without_a_file_each_frame_is_a_line_and_filters_are_counted() {
    let mut worked = Worked::start();
    let mut capture = worked.capture(&["--tx", "--filter", "udp group 239.1.2.3:9000", "--count", "3"]);
    let other = worked.capture(&["--filter", "tcp"]);
    worked.order("send 3");
    other.signal("-INT");
    let lines: Vec<_> = BufReader::new(capture.child.stdout.take().unwrap()).lines().map(Result::unwrap).collect();
    assert_eq!(lines.len(), 3);
    assert!(lines[2].ends_with(" wire0.0.0 Out IP 10.0.0.1.5000 > 239.1.2.3.9000: UDP, length 10"), "{lines:?}");
    assert_eq!(summary(&capture.end().0), [3, 0, 0]);
    assert_eq!(summary(&other.end().0), [0, 0, 6]);
}

#[test]
fn stopped_capture_misses_frames_and_counts_each() {
    let mut worked = Worked::start();
    let path = worked.path("day.pcap");
    let capture = worked.capture(&["-w", &path]);
    worked.order("send 500");
    thread::sleep(Duration::from_millis(50));
    capture.signal("-STOP");
    worked.order("send 20000");
    capture.signal("-CONT");
    worked.order("send 500");
    capture.signal("-INT");
    let (said, _) = capture.end();
    let [written, missed, _] = summary(&said);
    assert_eq!(written + missed, 42_000);
    assert!(missed > 30_000 && written >= 1_000, "{said:?}");
    let frames = frames(&path);
    assert_eq!(frames.len() as u64, written);
    // Its frames are complete and in order, also around the gap.
    let numbers: Vec<_> = frames.iter().map(|frame| u64::from_be_bytes(frame[42..50].try_into().unwrap())).collect();
    assert!(numbers.is_sorted() && numbers.last() == Some(&20_999));
    assert!(frames.iter().zip(&numbers).all(|(bytes, n)| *bytes == frame(*n)));
}

#[test]
fn frames_of_two_queues_come_in_the_order_of_their_times() {
    let mut worked = Worked::start_with(2);
    let path = worked.path("day.pcap");
    let capture = worked.capture(&["--rx", "--count", "200", "-w", &path]);
    // Stopped, so that it finds all frames at once.
    capture.signal("-STOP");
    worked.order("send 100");
    capture.signal("-CONT");
    assert_eq!(summary(&capture.end().0), [200, 0, 0]);
    let mut reader = Reader::open(&path).unwrap();
    let mut times = Vec::new();
    while let Some(record) = reader.next().unwrap() {
        times.push(record.timestamp_ns);
    }
    assert!(times.len() == 200 && times.is_sorted());
}

#[test]
fn killed_capture_leaves_the_tap_quiet() {
    let mut worked = Worked::start();
    let mut capture = worked.capture(&["-w", &worked.path("day.pcap")]);
    worked.order("send 10");
    capture.child.kill().unwrap();
    capture.child.wait().unwrap();
    let killed = Instant::now();
    worked.order("until quiet");
    assert!(killed.elapsed() < Duration::from_secs(10));
}

#[test]
fn killed_process_ends_the_capture_in_one_sentence_behind_its_last_frame() {
    let mut worked = Worked::start();
    let path = worked.path("day.pcap");
    let capture = worked.capture(&["-w", &path]);
    worked.order("send 10");
    worked.child.kill().unwrap();
    let (said, status) = capture.end();
    let pid = worked.child.id();
    assert!(status.success());
    assert_eq!(said[0], format!("wirepath: child (pid {pid}) has closed its queues or ended"));
    assert_eq!((summary(&said), said.len()), ([20, 0, 0], 2));
    assert_eq!(frames(&path).len(), 20);
}

#[test]
fn full_disk_ends_the_capture_in_words() {
    let worked = Worked::start();
    let output = worked.command(&["-w", "/dev/full"]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(said.lines().any(|line| line.starts_with("wirepath: ") && line.contains("/dev/full")), "{said}");
}
