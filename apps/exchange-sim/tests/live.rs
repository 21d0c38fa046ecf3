//! A day on real kernel sockets: which packets receivers on this host get, which they re-request,
//! and how the day ends.
#![allow(clippy::unwrap_used, reason = "a panic is the report of a test")]

use std::collections::BTreeMap;
use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use exchange_sim::read_truth;
use market::framing::mold_udp64::{MoldUdp64, Request};
use market::framing::{Framing, PacketKind};
use tempfile::tempdir;

const SESSION: [u8; 10] = *b"LIVE      ";
/// A bound on waiting, for a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// Both groups of a day, joined on the loopback interface, and the address of its re-request
/// server.
struct Receiver {
    name: &'static str,
    port: u16,
    lines: [UdpSocket; 2],
    asker: UdpSocket,
    messages: BTreeMap<u64, Vec<u8>>,
    end: Option<u64>,
    heartbeats: u64,
}

impl Receiver {
    /// Joins the group; `None`, with a printed reason, where this machine has no multicast on
    /// loopback. Each test has its own port, and the next port for re-requests.
    fn join(name: &'static str, port: u16) -> Option<Self> {
        let join = |group: Ipv4Addr| {
            let socket = UdpSocket::bind((group, port))?;
            socket.join_multicast_v4(&group, &Ipv4Addr::LOCALHOST)?;
            socket.set_nonblocking(true)?;
            Ok::<_, std::io::Error>(socket)
        };
        let lines = match (join(group(port, 0)), join(group(port, 1))) {
            (Ok(a), Ok(b)) => [a, b],
            (Err(error), _) | (_, Err(error)) => {
                println!("SKIPPED {name}: cannot join a group on loopback: {error}");
                return None;
            }
        };
        let asker = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        asker.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        asker.connect((Ipv4Addr::LOCALHOST, port + 1)).unwrap();
        Some(Self { name, port, lines, asker, messages: BTreeMap::new(), end: None, heartbeats: 0 })
    }

    /// Starts the day.
    fn publish(&self, truth: &Path, flags: &[&str]) -> Child {
        let [a, b] = [0, 1].map(|line| group(self.port, line).to_string());
        let (port, server) = (self.port.to_string(), format!("127.0.0.1:{}", self.port + 1));
        let lines = ["--group-a", &a, "--group-b", &b, "--port", &port, "--session", "LIVE", "--rerequest", &server];
        Command::new(env!("CARGO_BIN_EXE_exchange-sim"))
            .args(["publish", "--interface", "lo", "--symbols", "10", "--truth", truth.to_str().unwrap()])
            .args(lines)
            .args(flags)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    /// Receives from both lines until `enough`, or fails after a minute.
    fn hear_until(&mut self, enough: impl Fn(&Self) -> bool) {
        let begun = Instant::now();
        let mut buffer = [0; 2048];
        while !enough(self) {
            assert!(begun.elapsed() < PATIENCE, "{}: {} messages heard", self.name, self.messages.len());
            let heard = self.lines.iter().find_map(|line| line.recv(&mut buffer).ok());
            match heard {
                Some(len) => self.take(&buffer[..len]),
                None => std::thread::sleep(Duration::from_micros(500)),
            }
        }
    }

    fn take(&mut self, packet: &[u8]) {
        let packet = MoldUdp64::parse(packet).unwrap();
        assert_eq!(packet.raw.session, SESSION);
        match packet.header.kind {
            PacketKind::EndOfSession => self.end = Some(packet.header.seq),
            PacketKind::Heartbeat => self.heartbeats += 1,
            _ => self.messages.extend((packet.header.seq..).zip(packet.messages().map(<[u8]>::to_vec))),
        }
    }

    /// Requests until nothing is missing below `end`. Returns the number of messages that came.
    fn recover(&mut self, end: u64) -> u64 {
        let (mut asked, mut got) = (0, 0);
        while let Some(seq) = (1..end).find(|seq| !self.messages.contains_key(seq)) {
            let count = (seq..end).take_while(|seq| !self.messages.contains_key(seq)).count() as u16;
            asked += 1;
            assert!(asked < 1000, "recovery does not end");
            // On a busy machine an answer may come later than our timeout.
            let Some(answer) = self.ask(&Request { session: SESSION, seq, count }.emit()) else { continue };
            let packet = MoldUdp64::parse(&answer).unwrap();
            if packet.header.seq != seq {
                continue;
            }
            assert!((1..=u32::from(count)).contains(&packet.header.count));
            got += u64::from(packet.header.count);
            self.take(&answer);
        }
        got
    }

    /// Asks for an available message until the server refuses: in bursts that fit its socket, each
    /// after the server has read the one before.
    fn flood_until_refused(&mut self, request: &[u8]) {
        let (begun, mut sent, mut answered) = (Instant::now(), 0, 0);
        self.asker.set_nonblocking(true).unwrap();
        loop {
            assert!(begun.elapsed() < PATIENCE, "{}: {answered} of {sent} answered", self.name);
            for _ in 0..200 {
                sent += 1;
                self.asker.send(request).unwrap();
            }
            while udp_socket(self.port + 1).0 > 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            while self.asker.recv(&mut [0; 2048]).is_ok() {
                answered += 1;
            }
            let lost = udp_socket(self.port + 1).1 + udp_socket(self.asker.local_addr().unwrap().port()).1;
            // The server may not have answered the last one yet.
            if sent > answered + lost + 1 {
                return;
            }
        }
    }

    /// Sends a request and waits a moment for its answer.
    fn ask(&self, request: &[u8]) -> Option<Vec<u8>> {
        let mut buffer = [0; 2048];
        self.asker.send(request).unwrap();
        self.asker.recv(&mut buffer).ok().map(|len| buffer[..len].to_vec())
    }
}

/// A group that no other test uses.
fn group(port: u16, line: u8) -> Ipv4Addr {
    Ipv4Addr::new(233, 252, port as u8, 77 + line)
}

/// The receive queue of the UDP socket at a port, in bytes, and how many datagrams found no room
/// in it.
fn udp_socket(port: u16) -> (u64, u64) {
    let table = std::fs::read_to_string("/proc/net/udp").unwrap();
    let at_port = format!(":{port:04X}");
    let row = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let row = row.into_iter().find(|row| row[1].ends_with(&at_port)).unwrap();
    let (_, waiting) = row[4].split_once(':').unwrap();
    (u64::from_str_radix(waiting, 16).unwrap(), row.last().unwrap().parse().unwrap())
}

fn interrupt(child: &Child) {
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
}

/// Waits for the end of the process and returns its output.
fn finish(mut child: Child) -> String {
    let status = child.wait().unwrap();
    let (mut text, mut error) = (String::new(), String::new());
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    child.stderr.take().unwrap().read_to_string(&mut error).unwrap();
    assert!(status.success(), "{status}: {error}");
    text
}

#[test]
fn what_both_lines_lost_is_recovered_and_a_stop_keeps_the_account_whole() {
    let Some(mut receiver) = Receiver::join("what_both_lines_lost_is_recovered", 26520) else { return };
    let directory = tempdir().unwrap();
    let truth = directory.path().join("live.truth.json");
    let day = receiver.publish(&truth, &["--messages", "10k", "--loss", "40%", "--start-after", "300ms"]);
    receiver.hear_until(|heard| heard.heartbeats >= 2);
    // The file exists before the day, and no reader accepts it as a truth yet.
    assert!(read_truth(&truth).is_err());

    // The directory is 22 messages, the books are filled two seconds later.
    receiver.hear_until(|heard| heard.messages.len() > 150);
    let recovered = receiver.recover(100);
    assert!(recovered > 5, "{recovered} messages recovered while the day goes on");

    interrupt(&day);
    receiver.hear_until(|heard| heard.end.is_some());
    let end = receiver.end.unwrap();
    // The session has ended; missing messages can still be requested.
    receiver.recover(end);
    let text = finish(day);
    let truth = read_truth(&truth).unwrap();
    assert!(truth.stopped && truth.heartbeats_before == 1, "{text}");
    assert_eq!((truth.messages, truth.messages), (end - 1, receiver.messages.len() as u64));
    assert!(truth.lost_on_both.messages > 5 && truth.messages < 10_000);
    let kinds = receiver.messages.values().filter(|message| message[0] == b'A').count() as u64;
    assert_eq!(truth.by_type[&'A'], kinds);
    assert!(text.contains("stopped after") && text.contains("requests answered"), "{text}");
}

#[test]
fn hostile_requests_get_no_answer_and_are_counted() {
    let Some(mut receiver) = Receiver::join("hostile_requests_get_no_answer", 26530) else { return };
    let directory = tempdir().unwrap();
    // Slow, with a large archive: the requested message stays available for as long as this takes.
    let flags = ["--messages", "10k", "--rate", "10", "--rerequest-keep", "400"];
    let day = receiver.publish(&directory.path().join("truth"), &flags);
    // The directory and the orders before the open; no message follows until the open, two seconds
    // later.
    receiver.hear_until(|heard| heard.messages.len() == 422);
    let request = |seq, count| Request { session: SESSION, seq, count };
    let hostile = [
        b"".to_vec(),
        b"hello".to_vec(),
        vec![0xff; 1400],
        Request { session: *b"OTHER     ", ..request(420, 1) }.emit().to_vec(),
        request(0, 5).emit().to_vec(),
        request(1, 5).emit().to_vec(),
        request(u64::MAX, 5).emit().to_vec(),
        request(420, 0).emit().to_vec(),
        request(420, u16::MAX).emit().to_vec(),
    ];
    for datagram in &hostile {
        assert_eq!(receiver.ask(datagram), None);
    }
    // A flood is answered at the limited rate, and does not disturb the publisher.
    receiver.flood_until_refused(&request(422, 1).emit());
    interrupt(&day);
    let text = finish(day);
    let reasons = ["short 2", "long 1", "other_session 1", "sequence_zero 1", "too_old 1", "future 1", "count_zero 1"];
    for reason in reasons.iter().chain(&["count_large 1", "too_often "]) {
        assert!(text.contains(reason), "'{reason}': {text}");
    }
}

#[test]
fn what_cannot_be_set_up_is_told_before_the_first_packet() {
    let Some(receiver) = Receiver::join("what_cannot_be_set_up_is_told", 26540) else { return };
    let taken = UdpSocket::bind(SocketAddr::from(([127, 0, 0, 1], 26541))).unwrap();
    let check = |truth: &str, flags: &[&str], words: &[&str]| {
        let output = receiver.publish(Path::new(truth), flags).wait_with_output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success());
        assert!(words.iter().all(|word| error.contains(word)), "{words:?}: {error}");
    };
    let directory = tempdir().unwrap();
    let truth = directory.path().join("truth");
    let truth = truth.to_str().unwrap();
    check(truth, &[], &["127.0.0.1:26541", "free port"]);
    drop(taken);
    check("/nowhere/truth", &[], &["/nowhere", "create it"]);
    check(directory.path().to_str().unwrap(), &[], &["cannot write", "check the folder"]);
    check(truth, &["--rerequest-keep", "some"], &["whole number"]);
    check(truth, &["--start-after", "5"], &["500ms"]);
    check(truth, &["--seconds", "5", "--messages", "5k"], &["cannot be used with"]);
    let mut buffer = [0; 64];
    assert!(receiver.lines.iter().all(|line| line.recv(&mut buffer).is_err()), "a packet was sent");
}
