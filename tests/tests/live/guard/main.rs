//! When a process dies, the kernel at the other end of its TCP connections learns of it, by a
//! guardian that reads the open connections from shared memory. The process opens its connections
//! by hand (`guarded`), so that the roster's numbers for them can be wrong.
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::fs::Permissions;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use wirepath::worker::guard::{GuardError, GuardReport, Guardian, ReportCause, ResetOutcome, Target};
use wirepath_tests::live::{FAR, NEAR, OURS, THEIRS, TIMEOUT, Wire, wait_until};
use wirepath_tests::packet::PacketSocket;

/// Long enough for a guardian that fires wrongly to have done so: it looks five times a second.
const WHILE: Duration = Duration::from_millis(900);

/// A process with connections to the kernel of `far`.
struct Guarded {
    wire: Wire,
    directory: TempDir,
    child: Child,
    said: BufReader<ChildStdout>,
    /// The kernel's ends.
    peers: Vec<TcpStream>,
    /// The guardian that it has spawned, or 0.
    guardian: u32,
}

/// The differences between test processes.
#[derive(Clone, Copy)]
struct Case {
    count: u16,
    vlan: u16,
    skew: i64,
    spawns: bool,
    /// The user `nobody` starts it; its file makes it root.
    is_setuid: bool,
}

const ONE: Case = Case { count: 1, vlan: 0, skew: 0, spawns: false, is_setuid: false };
/// A user without rights.
const NOBODY: u32 = 65_534;

impl Guarded {
    fn start(test: &str, case: Case) -> Option<Self> {
        let wire = Wire::new(test)?;
        wire.near.ip(&["link", "set", NEAR, "address", "02:00:00:00:00:01"]).unwrap();
        wire.far.ip(&["link", "set", FAR, "address", "02:00:00:00:00:02"]).unwrap();
        let Some(device) = lay_vlan(&wire, case.vlan) else {
            println!("SKIPPED {test}: the kernel has no VLANs (8021q)");
            return None;
        };
        let ours = OURS.to_string();
        wire.far
            .ip(&["neigh", "replace", &ours, "lladdr", "02:00:00:00:00:01", "dev", &device, "nud", "permanent"])
            .unwrap();
        let listener = wire.far.run(|| TcpListener::bind((THEIRS, 5000)).unwrap());
        let directory = tempfile::tempdir().unwrap();
        let mut command =
            if case.is_setuid { setuid(directory.path()) } else { Command::new(env!("CARGO_BIN_EXE_guarded")) };
        let mut child = command
            .args([wire.near.name(), &case.count.to_string(), &case.vlan.to_string(), &case.skew.to_string()])
            .arg(if case.spawns { "spawn" } else { "-" })
            .env("WIREPATH_SHM", directory.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        let peers = (0..case.count).map(|_| listener.accept().unwrap().0).collect();
        let mut guarded = Self { wire, directory, child, said, peers, guardian: 0 };
        let line = guarded.line();
        guarded.guardian = line.strip_prefix("open ").unwrap().parse().unwrap();
        Some(guarded)
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.said.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn guard(&self) -> Receiver<GuardReport> {
        guard(self.directory.path(), &Target::Pid(self.child.id()))
    }

    fn tell(&mut self, what: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{what}").unwrap();
    }

    fn signal(&self, signal: &str) {
        assert!(Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap().success());
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
    }

    /// The link of our end, `up` or `down`.
    fn link(&self, state: &str) {
        self.wire.near.ip(&["link", "set", NEAR, state]).unwrap();
    }

    /// Checks that each of the kernel's ends reads that its connection was reset, and returns when.
    fn peers_are_reset(&mut self) {
        let begin = Instant::now();
        for peer in &mut self.peers {
            peer.set_read_timeout(Some(TIMEOUT)).unwrap();
            assert_eq!(heard(peer), ErrorKind::ConnectionReset);
        }
        println!("they learned it after {:?}", begin.elapsed());
    }

    /// Checks that `act` puts no frame of ours on the wire, and no peer reads a reset.
    fn nothing_is_sent(&mut self, act: impl FnOnce(&mut Self)) {
        let wire = self.wire.far.run(|| PacketSocket::open(FAR).unwrap());
        act(self);
        if let Ok(received) = wire.receive(WHILE) {
            panic!("this was sent: {:02x?}", received.frame);
        }
        for peer in &mut self.peers {
            peer.set_nonblocking(true).unwrap();
            assert_eq!(heard(peer), ErrorKind::WouldBlock);
            peer.set_nonblocking(false).unwrap();
        }
    }
}

/// The error with which `peer`, which gets no bytes, stops reading.
fn heard(mut peer: &TcpStream) -> ErrorKind {
    loop {
        match peer.read(&mut [0]).unwrap_err().kind() {
            // A child has ended meanwhile.
            ErrorKind::Interrupted => {}
            kind => return kind,
        }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The program, in a file that makes it root, started by the user `nobody`.
fn setuid(directory: &Path) -> Command {
    let program = directory.join("setuid");
    wirepath_tests::programs::copy(env!("CARGO_BIN_EXE_guarded"), &program);
    std::fs::set_permissions(&program, Permissions::from_mode(0o4755)).unwrap();
    std::fs::set_permissions(directory, Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new(program);
    command.uid(NOBODY).gid(NOBODY);
    command
}

/// A guardian on a thread; its reports come here, and the end of them when it goes.
fn guard(directory: &Path, target: &Target) -> Receiver<GuardReport> {
    let guardian = Guardian::new(directory, target).unwrap();
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || guardian.watch(|report| tell.send(report).unwrap()).unwrap());
    told
}

/// The far end, in a VLAN if one is wanted. Returns its interface; none where the kernel has no
/// VLANs.
fn lay_vlan(wire: &Wire, vlan: u16) -> Option<String> {
    if vlan == 0 {
        return Some(FAR.into());
    }
    let (device, id, network) = (format!("{FAR}.{vlan}"), vlan.to_string(), format!("{THEIRS}/24"));
    wire.far.ip(&["link", "add", "link", FAR, "name", &device, "type", "vlan", "id", &id]).ok()?;
    wire.far.ip(&["addr", "flush", "dev", FAR]).unwrap();
    wire.far.ip(&["addr", "add", &network, "dev", &device]).unwrap();
    wire.far.ip(&["link", "set", &device, "up"]).unwrap();
    Some(device)
}

fn killed_process_is_told(test: &str, case: Case) {
    let Some(mut guarded) = Guarded::start(test, case) else { return };
    let told = guarded.guard();
    guarded.kill();
    guarded.peers_are_reset();
    let report = told.recv_timeout(TIMEOUT).unwrap();
    assert_eq!(report.connections.len(), usize::from(case.count), "{report}");
    assert!(report.connections.iter().all(|ended| ended.end == ResetOutcome::Confirmed), "{report}");
    assert!(report.error.is_none() && report.cause == ReportCause::ProcessEnded, "{report}");
    assert!(told.recv_timeout(TIMEOUT).is_err(), "one report, and the guardian goes");
    assert_eq!(std::fs::read_dir(guarded.directory.path()).unwrap().count(), 0, "the roster is gone");
}

#[test]
fn peers_of_a_killed_process_are_reset_within_a_second() {
    killed_process_is_told("peers_of_a_killed_process_are_reset_within_a_second", Case { count: 50, ..ONE });
}

#[test]
fn peer_in_a_vlan_is_reset() {
    killed_process_is_told("peer_in_a_vlan_is_reset", Case { vlan: 5, ..ONE });
}

#[test]
fn peer_that_has_not_got_all_is_reset_at_what_it_acknowledges() {
    let test = "peer_that_has_not_got_all_is_reset_at_what_it_acknowledges";
    killed_process_is_told(test, Case { skew: 20_000, ..ONE });
}

#[test]
fn peer_that_has_got_more_than_was_written_down_is_found_by_the_probe() {
    let test = "peer_that_has_got_more_than_was_written_down_is_found_by_the_probe";
    killed_process_is_told(test, Case { skew: -3, ..ONE });
}

#[test]
fn peers_of_a_worker_that_panics_are_reset_though_its_process_lives() {
    let test = "peers_of_a_worker_that_panics_are_reset_though_its_process_lives";
    let Some(mut guarded) = Guarded::start(test, Case { count: 2, ..ONE }) else { return };
    let told = guarded.guard();
    guarded.tell("panic");
    guarded.peers_are_reset();
    let report = told.recv_timeout(TIMEOUT).unwrap();
    assert!(report.cause == ReportCause::WorkerEnded && report.connections.len() == 2, "{report}");
    guarded.kill();
    assert!(told.recv_timeout(TIMEOUT).is_err(), "the process has left nothing more");
}

#[test]
fn process_that_leaves_without_closing_is_told_too() {
    let Some(mut guarded) = Guarded::start("process_that_leaves_without_closing_is_told_too", ONE) else { return };
    let told = guarded.guard();
    guarded.tell("exit");
    guarded.peers_are_reset();
    assert_eq!(told.recv_timeout(TIMEOUT).unwrap().connections.len(), 1);
}

/// A process is killed while its link is down; `back` has it come back. Within the guardian's
/// patience, all peers learn it.
fn link_is_down_at_the_end(test: &str, case: Case, back: impl FnOnce(&Guarded)) {
    let Some(mut guarded) = Guarded::start(test, case) else { return };
    let told = guarded.guard();
    guarded.link("down");
    guarded.kill();
    back(&guarded);
    guarded.peers_are_reset();
    let report = told.recv_timeout(TIMEOUT).unwrap();
    assert!(report.connections.iter().all(|ended| ended.end == ResetOutcome::Confirmed), "{report}");
    assert!(report.connections.len() == usize::from(case.count) && report.error.is_none(), "{report}");
}

#[test]
fn peers_behind_a_link_that_comes_back_are_reset() {
    let test = "peers_behind_a_link_that_comes_back_are_reset";
    // Two rounds find no link.
    link_is_down_at_the_end(test, Case { count: 20, ..ONE }, |guarded| {
        std::thread::sleep(Duration::from_millis(700));
        guarded.link("up");
    });
}

#[test]
fn peers_behind_a_link_that_comes_and_goes_are_reset() {
    let test = "peers_behind_a_link_that_comes_and_goes_are_reset";
    link_is_down_at_the_end(test, Case { count: 20, skew: 20_000, ..ONE }, |guarded| {
        for _ in 0..8 {
            for state in ["up", "down"] {
                std::thread::sleep(Duration::from_millis(70));
                guarded.link(state);
            }
        }
        guarded.link("up");
    });
}

#[test]
fn link_that_stays_down_leaves_peers_in_their_belief_and_the_report_says_so() {
    let test = "link_that_stays_down_leaves_peers_in_their_belief_and_the_report_says_so";
    let Some(mut guarded) = Guarded::start(test, Case { count: 2, ..ONE }) else { return };
    let guardian = Guardian::new(guarded.directory.path(), &Target::Pid(guarded.child.id())).unwrap();
    let (tell, told) = mpsc::channel();
    let watching = std::thread::spawn(move || guardian.watch(|report| tell.send(report).unwrap()));
    guarded.link("down");
    guarded.kill();
    let report = told.recv_timeout(TIMEOUT).unwrap();
    let ends: Vec<_> = report.connections.iter().map(|ended| ended.end).collect();
    assert_eq!(ends, [ResetOutcome::NotSent; 2], "{report}");
    assert!(report.error.as_ref().is_some_and(|error| error.kind() == ErrorKind::NetworkDown), "{report}");
    assert!(matches!(watching.join().unwrap(), Err(GuardError::PeersNotReset { workers: 1 })));
    // Its patience is over.
    guarded.nothing_is_sent(|guarded| guarded.link("up"));
}

#[test]
fn connections_that_were_closed_are_left_alone() {
    let Some(mut guarded) = Guarded::start("connections_that_were_closed_are_left_alone", ONE) else { return };
    let told = guarded.guard();
    guarded.nothing_is_sent(|guarded| {
        guarded.tell("close");
        guarded.tell("exit");
        assert!(told.recv_timeout(TIMEOUT).is_err(), "nothing to report");
    });
}

#[test]
fn process_that_is_stopped_is_not_dead() {
    let Some(mut guarded) = Guarded::start("process_that_is_stopped_is_not_dead", ONE) else { return };
    let told = guarded.guard();
    guarded.nothing_is_sent(|guarded| guarded.signal("-STOP"));
    guarded.signal("-CONT");
    assert!(told.try_recv().is_err());
    guarded.kill();
    guarded.peers_are_reset();
}

#[test]
fn roster_of_a_dead_process_is_nobodys_business() {
    let Some(mut guarded) = Guarded::start("roster_of_a_dead_process_is_nobodys_business", ONE) else { return };
    let (directory, pid) = (guarded.directory.path().to_owned(), guarded.child.id());
    guarded.nothing_is_sent(|guarded| {
        guarded.kill();
        guarded.child.wait().unwrap();
        for target in [Target::Pid(pid), Target::Only, Target::App("guarded".into())] {
            let refused = Guardian::new(&directory, &target).unwrap_err().to_string();
            assert!(refused.contains("guarded"), "{refused}");
        }
    });
}

#[test]
fn process_guards_itself() {
    let case = Case { count: 3, spawns: true, ..ONE };
    let Some(mut guarded) = Guarded::start("process_guards_itself", case) else { return };
    // A signal that asks the process to end does not end its guardian first.
    for signal in ["-TERM", "-INT", "-HUP"] {
        assert!(Command::new("kill").args([signal, &guarded.guardian.to_string()]).status().unwrap().success());
    }
    guarded.tell("guardian?");
    assert_eq!(guarded.line(), "true");
    guarded.kill();
    guarded.peers_are_reset();
}

/// Neither the environment nor the program's name determines which process is guarded, because
/// whoever starts the program chooses both.
#[test]
fn process_whose_file_gives_it_rights_guards_itself() {
    let case = Case { count: 2, spawns: true, is_setuid: true, ..ONE };
    let Some(mut guarded) = Guarded::start("process_whose_file_gives_it_rights_guards_itself", case) else { return };
    let named = std::fs::read_dir(guarded.directory.path()).unwrap().count();
    assert_eq!(named, 1, "nothing but the program: the directory that the environment names is not its");
    guarded.tell("guardian?");
    assert_eq!(guarded.line(), "true");
    guarded.kill();
    guarded.peers_are_reset();
}

#[test]
fn program_whose_file_gives_it_rights_guards_nobody_at_the_word_of_a_stranger() {
    let directory = tempfile::tempdir().unwrap();
    if std::fs::metadata(directory.path()).unwrap().uid() != 0 {
        return println!("SKIPPED: only root can make a file that makes root");
    }
    let said = |command: &mut Command, pid: u32| {
        let command = command.arg0(format!("wirepath-guardian {pid}")).stdin(Stdio::null());
        let output = command.env("WIREPATH_SHM", directory.path()).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    };
    let own = std::process::id();
    let refused = said(&mut setuid(directory.path()), own);
    assert!(refused.contains("who has started this guardian may not send frames"), "{refused}");
    // Nor does it guard another process than the one that has started it, whichever that is.
    for mut command in [setuid(directory.path()), Command::new(env!("CARGO_BIN_EXE_guarded"))] {
        let refused = said(&mut command, 1);
        assert!(refused.contains("is not the one that started this guardian"), "{refused}");
    }
}

#[test]
fn guardian_that_is_killed_first_is_missed_by_nobody() {
    let case = Case { spawns: true, ..ONE };
    let Some(mut guarded) = Guarded::start("guardian_that_is_killed_first_is_missed_by_nobody", case) else { return };
    guarded.nothing_is_sent(|guarded| {
        assert!(Command::new("kill").args(["-KILL", &guarded.guardian.to_string()]).status().unwrap().success());
        wait_until("the process misses its guardian", || {
            guarded.tell("guardian?");
            guarded.line() == "false"
        });
    });
    // Another can take its place.
    let told = guarded.guard();
    guarded.kill();
    guarded.peers_are_reset();
    assert_eq!(told.recv_timeout(TIMEOUT).unwrap().connections.len(), 1);
}
