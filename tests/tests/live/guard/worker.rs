//! Our TCP over AF_XDP, connected to a kernel, dies: the kernel's ends learn it by the guardian
//! that the process has spawned.
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use wirepath::worker::guard::{Guardian, Target};
use wirepath_tests::live::{FAR, THEIRS, TIMEOUT, Wire};
use wirepath_tests::packet::PacketSocket;

struct Guarded {
    wire: Wire,
    directory: TempDir,
    child: Child,
    said: BufReader<ChildStdout>,
    peers: Vec<TcpStream>,
}

impl Guarded {
    fn start(test: &str, count: usize, bytes: usize) -> Option<Self> {
        let wire = Wire::new(test)?;
        let listener = wire.far.run(|| TcpListener::bind((THEIRS, 5000)).unwrap());
        let directory = tempfile::tempdir().unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_guarded_worker"))
            .args([wire.near.name(), &count.to_string(), &bytes.to_string()])
            .env("WIREPATH_SHM", directory.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        let peers = (0..count).map(|_| listener.accept().unwrap().0).collect();
        let mut guarded = Self { wire, directory, child, said, peers };
        guarded.says("open");
        Some(guarded)
    }

    fn says(&mut self, what: &str) {
        let mut line = String::new();
        self.said.read_line(&mut line).unwrap();
        assert_eq!(line.trim_end(), what);
    }

    fn tell(&mut self, what: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{what}").unwrap();
    }

    /// All of the kernel's ends read the sent data, and then that the connection was reset; returns
    /// how long after `begin`.
    fn peers_are_reset(&mut self, begin: Instant) {
        for peer in &mut self.peers {
            peer.set_read_timeout(Some(TIMEOUT)).unwrap();
            loop {
                match peer.read(&mut [0; 4096]) {
                    Ok(1..) => {}
                    Ok(0) => panic!("a FIN, of a process that has died"),
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => break assert_eq!(error.kind(), ErrorKind::ConnectionReset),
                }
            }
        }
        println!("they learned it after {:?}", begin.elapsed());
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn killed_worker_is_told(test: &str, count: usize, bytes: usize) {
    let Some(mut guarded) = Guarded::start(test, count, bytes) else { return };
    let begin = Instant::now();
    guarded.child.kill().unwrap();
    guarded.peers_are_reset(begin);
}

#[test]
fn peers_of_a_killed_worker_are_reset_within_a_second() {
    killed_worker_is_told("peers_of_a_killed_worker_are_reset_within_a_second", 200, 0);
}

#[test]
fn peers_that_have_got_data_are_reset_behind_it() {
    killed_worker_is_told("peers_that_have_got_data_are_reset_behind_it", 10, 5_000);
}

#[test]
fn data_on_its_way_does_not_hide_the_reset() {
    // More than the kernel's window: the peer does not read, so the worker dies with data in flight
    // and data unsent.
    killed_worker_is_told("data_on_its_way_does_not_hide_the_reset", 3, 200_000);
}

/// The kernel forgets the MAC addresses of hosts behind a lost link. With the process dead, a peer
/// that lacks data cannot report its sequence number, unless the guardian replies to ARP for the
/// dead process.
#[test]
fn peers_that_lack_data_behind_a_link_that_comes_back_are_reset() {
    let test = "peers_that_lack_data_behind_a_link_that_comes_back_are_reset";
    let Some(mut guarded) = Guarded::start(test, 5, 0) else { return };
    // Data sent now is lost.
    guarded.wire.far.ip(&["link", "set", FAR, "down"]).unwrap();
    guarded.tell("send");
    guarded.says("sent");
    let begin = Instant::now();
    guarded.child.kill().unwrap();
    std::thread::sleep(Duration::from_millis(500));
    guarded.wire.far.ip(&["link", "set", FAR, "up"]).unwrap();
    guarded.peers_are_reset(begin);
}

#[test]
fn peers_of_a_worker_that_panics_are_reset() {
    let Some(mut guarded) = Guarded::start("peers_of_a_worker_that_panics_are_reset", 5, 100) else { return };
    let begin = Instant::now();
    guarded.tell("panic");
    guarded.peers_are_reset(begin);
}

#[test]
fn worker_that_exits_with_open_connections_is_told() {
    let Some(mut guarded) = Guarded::start("worker_that_exits_with_open_connections_is_told", 5, 100) else { return };
    let begin = Instant::now();
    guarded.tell("exit");
    guarded.peers_are_reset(begin);
}

#[test]
fn closed_connections_end_without_a_reset() {
    let Some(mut guarded) = Guarded::start("closed_connections_end_without_a_reset", 5, 100) else { return };
    guarded.tell("close");
    for peer in &mut guarded.peers {
        let mut data = Vec::new();
        peer.set_read_timeout(Some(TIMEOUT)).unwrap();
        peer.read_to_end(&mut data).unwrap();
        assert_eq!(data.len(), 100);
    }
    // The kernel's FINs.
    guarded.peers.clear();
    guarded.says("closed");
    let directory = guarded.directory.path().to_owned();
    let told = Guardian::new(&directory, &Target::Pid(guarded.child.id())).unwrap();
    let wire = guarded.wire.far.run(|| PacketSocket::open(FAR).unwrap());
    guarded.child.kill().unwrap();
    told.watch(|report| panic!("{report}")).unwrap();
    if let Ok(received) = wire.receive(Duration::from_millis(700)) {
        panic!("this was sent: {:02x?}", received.frame);
    }
}
