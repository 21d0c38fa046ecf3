//! Random scripts of calls by a program in C, played at the same time on the kernel's sockets and
//! under the preload library, each in namespaces of its own with the same peer: each call returns
//! the same, reads the same bytes, and leaves each socket as ready; the peers read the same bytes.
//! A failure prints the seed of its script; `SEED=n` plays that script alone, `SCRIPTS=n` plays n.
#![allow(clippy::unwrap_used)] // a panic here is the report

#[path = "../../../../sockets/tests/common/scripts.rs"]
mod scripts;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use scripts::{Random, play_all};
use wirepath::worker::StopFlag;
use wirepath::worker::broker::{Broker, BrokerConfig};
use wirepath_tests::live::preload::{compile, segments_received, start, wire};
use wirepath_tests::live::{NEAR, OURS, Program, THEIRS, Wire, wait_until};
use wirepath_tests::netns::Namespace;

/// The number of scripts in a run, where the environment does not set it.
const SCRIPTS: u64 = 12;
/// Steps of a script.
const STEPS: usize = 100;
/// Sockets and sets that a script has at a time.
const SLOTS: usize = 12;
const SETS: usize = 3;
/// Options that the player knows, and groups.
const OPTIONS: usize = 42;
const GROUPS: usize = 3;
/// The first group's address, 239.200.1.1.
const FIRST_GROUP: u32 = 0xefc8_0101;
/// How long the two sides may take to become alike, and the peer's act to be seen. A script whose
/// sides are alike never waits as long.
const ALIKE: Duration = Duration::from_secs(20);
const SEEN: Duration = Duration::from_millis(100);

/// A line to the player (see `player.c`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Call {
    op: u8,
    a: usize,
    b: usize,
    c: usize,
    seed: u32,
}

/// An act of the peer's kernel; connections are named by the order in which they were made.
#[derive(Clone, Copy, Debug)]
enum Act {
    Connect(u16),
    Send(usize, usize),
    Read(usize),
    Finish(usize),
    Close(usize),
    Reset(usize),
    SendDatagram(u16, usize),
    /// To a group, by its number and the port.
    SendToGroup(usize, u16),
    ReadDatagram,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Call(Call),
    Act(Act),
}

/// A player and its peer.
struct Side {
    calls: UnixStream,
    answers: BufReader<UnixStream>,
    far: Peer,
    /// `None` once it has ended, which none should.
    player: Option<Program>,
}

/// The kernel at the far end.
struct Peer {
    namespace: String,
    listener: TcpListener,
    datagrams: UdpSocket,
    connections: Vec<Option<TcpStream>>,
}

impl Side {
    /// Under the library with these settings, or on the kernel.
    fn new(wire: &Wire, program: &str, folder: &std::path::Path, settings: Option<&[&str]>) -> Self {
        let is_ours = settings.is_some();
        let place = folder.join(if is_ours { "ours" } else { "kernel" });
        let _ = std::fs::remove_file(&place);
        let listener = UnixListener::bind(&place).unwrap();
        let (place, peer, own) = (place.to_str().unwrap().to_owned(), THEIRS.to_string(), OURS.to_string());
        let words = [program, &place, &peer, &own];
        let player = match settings {
            Some(settings) => start(wire, "env", &[settings, &words].concat()),
            None => Program::start(&wire.near, words[0], &words[1..]),
        };
        let (calls, _) = listener.accept().unwrap();
        calls.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Self {
            answers: BufReader::new(calls.try_clone().unwrap()),
            calls,
            far: Peer::new(&wire.far),
            player: Some(player),
        }
    }

    fn call(&mut self, Call { op, a, b, c, seed }: Call) -> String {
        let mut line = String::new();
        if writeln!(self.calls, "{op} {a} {b} {c} {seed}").is_ok() {
            self.answers.read_line(&mut line).unwrap_or_else(|error| panic!("no answer to {op} {a} {b} {c}: {error}"));
        }
        if line.ends_with('\n') {
            return line.trim_end().to_owned();
        }
        format!("ended: {}", self.player.take().map_or_else(String::new, Program::finish))
    }

    fn play(&mut self, step: Step) -> String {
        match step {
            Step::Call(call) => self.call(call),
            Step::Act(act) => self.far.act(act),
        }
    }

    /// The result of `poll` for all sockets at both ends, and the bytes that wait.
    fn state(&mut self) -> String {
        self.call(call(14, 0, 0, 0, 0)) + " |" + &self.far.state()
    }
}

impl Peer {
    fn new(namespace: &Namespace) -> Self {
        let (listener, datagrams) =
            namespace.run(|| (TcpListener::bind((THEIRS, 7_000)).unwrap(), UdpSocket::bind((THEIRS, 7_000)).unwrap()));
        listener.set_nonblocking(true).unwrap();
        datagrams.set_nonblocking(true).unwrap();
        rustix::net::sockopt::set_ip_multicast_if(&datagrams, &THEIRS).unwrap();
        Self { namespace: namespace.name().to_owned(), listener, datagrams, connections: Vec::new() }
    }

    fn act(&mut self, act: Act) -> String {
        match act {
            Act::Connect(port) => {
                let connected = wirepath_tests::netns::run_in(&self.namespace, || {
                    TcpStream::connect_timeout(&SocketAddr::from((OURS, port)), Duration::from_secs(5))
                });
                let said = said(connected.as_ref().map(|_| 0));
                self.connections.push(connected.ok().inspect(|socket| socket.set_nonblocking(true).unwrap()));
                said
            }
            Act::Send(idx, len) => self
                .with(idx, |socket| said(socket.write(&(0..len).map(|at| (at * 7 + idx) as u8).collect::<Vec<_>>()))),
            Act::Read(idx) => self.with(idx, |socket| {
                let mut bytes = Vec::new();
                let end = socket.read_to_end(&mut bytes);
                format!("{} of {} bytes {:08x}", said(end), bytes.len(), hash(&bytes))
            }),
            Act::Finish(idx) => self.with(idx, |socket| said(socket.shutdown(std::net::Shutdown::Write).map(|()| 0))),
            Act::Close(idx) => {
                self.connections[idx] = None;
                "closed".to_owned()
            }
            Act::Reset(idx) => {
                let _ = self.with(idx, |socket| {
                    lingers_not(socket);
                    String::new()
                });
                self.connections[idx] = None;
                "reset".to_owned()
            }
            Act::SendDatagram(port, len) => {
                let bytes: Vec<u8> = (0..len).map(|at| (at * 3) as u8).collect();
                said(self.datagrams.send_to(&bytes, (OURS, port)))
            }
            Act::SendToGroup(number, port) => {
                let group = Ipv4Addr::from(FIRST_GROUP + number as u32);
                said(self.datagrams.send_to(b"to the group", (group, port)))
            }
            Act::ReadDatagram => {
                let mut bytes = vec![0; 66_000];
                let got = self.datagrams.recv_from(&mut bytes).map(|(count, _)| count);
                format!("{} {:08x}", said(got.as_ref()), hash(&bytes[..got.unwrap_or(0)]))
            }
        }
    }

    fn with(&mut self, idx: usize, act: impl FnOnce(&mut TcpStream) -> String) -> String {
        self.connections[idx].as_mut().map_or_else(|| "none".to_owned(), act)
    }

    fn accept(&mut self) -> bool {
        let Ok((socket, _)) = self.listener.accept() else { return false };
        socket.set_nonblocking(true).unwrap();
        self.connections.push(Some(socket));
        true
    }

    fn state(&self) -> String {
        let sockets = self.connections.iter().map(|socket| socket.as_ref().map(AsFd::as_fd));
        let look = |fd: Option<BorrowedFd<'_>>| {
            let Some(fd) = fd else { return " -".to_owned() };
            let mut entry = [PollFd::new(&fd, PollFlags::IN | PollFlags::OUT | PollFlags::RDHUP)];
            poll(&mut entry, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap();
            format!(" {:x}:{}", entry[0].revents().bits(), rustix::io::ioctl_fionread(fd).unwrap_or(0))
        };
        sockets.chain([Some(self.datagrams.as_fd())]).map(look).collect()
    }
}

impl Random {
    fn pick(&mut self, of: &[usize]) -> usize {
        of[self.below(of.len())]
    }

    /// The next step, where some slots are in use.
    fn step(&mut self, script: &Script) -> Step {
        let used: Vec<usize> = (0..SLOTS).filter(|slot| script.slots[*slot]).collect();
        let free = (0..SLOTS).find(|slot| !script.slots[*slot]);
        let seed = self.below(1 << 30) as u32;
        let (connections, port) = (script.connections, script.port + self.below(4) as u16);
        if let Some(waits) = script.waits {
            // A thread waits in a call: its bytes come, or a signal.
            return Step::Call(call(17, waits, 1, 0, 0));
        }
        if used.len() < 3 || (free.is_some() && self.below(12) == 0) {
            // Streams, datagrams, and both of IPv6, whose addresses are mapped ones.
            return Step::Call(call(0, free.unwrap_or(0), self.pick(&[0, 0, 0, 2, 2, 2, 1, 3]), 0, 0));
        }
        let (slot, set) = (self.pick(&used), self.below(SETS));
        let len = self.pick(&[0, 1, 100, 1_400, 5_000]);
        if connections > 0 && self.below(4) == 0 {
            let idx = self.below(connections);
            return Step::Act(match self.below(12) {
                0..=4 => Act::Send(idx, len),
                5..=8 => Act::Read(idx),
                9 => Act::Finish(idx),
                10 => Act::Close(idx),
                _ => Act::Reset(idx),
            });
        }
        Step::Call(match self.below(42) {
            0 | 1 => call(1, slot, port.into(), 0, 0),
            2 | 3 => call(2, slot, 8, 0, 0),
            4 => call(3, slot, 7_002, 0, 0),
            5..=7 => call(3, slot, 7_000, 0, 0),
            8 | 9 if free.is_some() => call(4, slot, free.unwrap_or(0), 0, 0),
            // The kernel reports between two messages that the peer has refused the first one.
            10..=13 => call(5, slot, len, self.below(if script.is_refused { 5 } else { 7 }), seed),
            14..=17 => call(6, slot, len, self.below(6), self.flags()),
            18 => call(7, slot, self.pick(&[0, 1, 1, 2, 3]), 0, 0),
            19 => call(8, slot, self.below(SLOTS), self.below(4), 0),
            20 => call(self.pick(&[9, 27]) as u8, slot, 0, 0, 0),
            21 | 22 if !script.sets[set] => call(10, set, 0, 0, 0),
            21..=23 => call(11, slot, set, self.pick(&[1, 1, 2, 3]), self.events()),
            24 | 25 => call(12, set, 1 + self.below(16), 0, 0),
            26 => call(13, slot, 0, 0, 0),
            27 => call(15, slot, len.max(1), 0, 0),
            28 => call(18, slot, 0, 0, 0),
            29 => call(19, slot, 0, 0, 0),
            30 => call(self.pick(&[20, 21, 22, 28, 29, 30]) as u8, slot, 0, 0, 0),
            31 => return Step::Act(Act::Connect(port)),
            34..=37 => {
                let (option, len) = (self.below(OPTIONS), self.pick(&[4, 4, 4, 0, 1, 2, 3, 8, 16]));
                let value = self.pick(&[0, 1, 1, 2, 7, 64, 255, 256, 1_000, 65_536, 0x7fff_ffff, 0xffff_ffff]);
                call(23, slot, option, len, value as u32)
            }
            38 => call(24, slot, self.below(GROUPS), self.below(3).min(1), 0),
            39 => return Step::Act(Act::SendToGroup(self.below(GROUPS), port)),
            40 if self.sets_differ(script, set) => {
                call(25, set, (set + 1) % SETS, self.pick(&[1, 1, 2, 3]), self.events())
            }
            40 | 41 => call(26, set, 0, 0, 0),
            32 => {
                let len = self.pick(&[0, 1, 100, 1_400, 5_000]);
                // The kernel puts fragments together, so that a later datagram which is whole may
                // overtake them: half of the ports get one kind, half the other.
                let in_pieces = port % 4 >= 2;
                return Step::Act(Act::SendDatagram(port, if in_pieces { 5_000 } else { len.min(1_400) }));
            }
            _ => return Step::Act(Act::ReadDatagram),
        })
    }

    /// Whether a set may be a member of the next one.
    fn sets_differ(&self, script: &Script, set: usize) -> bool {
        script.sets[set] && script.sets[(set + 1) % SETS]
    }

    fn flags(&mut self) -> u32 {
        [0, 0, libc::MSG_PEEK, libc::MSG_TRUNC, libc::MSG_DONTWAIT, libc::MSG_WAITALL][self.below(6)] as u32
    }

    fn events(&mut self) -> u32 {
        let once = [0, 0, libc::EPOLLONESHOT][self.below(3)];
        let edge = [0, 0, libc::EPOLLET][self.below(3)];
        let exclusive = [0, 0, 0, libc::EPOLLEXCLUSIVE][self.below(4)];
        ([libc::EPOLLIN, libc::EPOLLOUT, libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP][self.below(3)]
            | once
            | edge
            | exclusive) as u32
    }
}

/// The sockets and files that a script has made so far.
struct Script {
    port: u16,
    slots: [bool; SLOTS],
    sets: [bool; SETS],
    connections: usize,
    /// A socket has sent to a port without a receiver, or the peer has closed a connection.
    is_refused: bool,
    /// A descriptor was closed.
    has_closed: bool,
    /// The slot of the socket that a thread waits on.
    waits: Option<usize>,
}

impl Script {
    fn keep(&mut self, step: Step, answer: &str) {
        let Step::Call(Call { op, a, b, c, .. }) = step else {
            self.is_refused |= matches!(step, Step::Act(Act::Close(_) | Act::Reset(_)));
            return;
        };
        let is_done = !answer.starts_with('-');
        match op {
            0 => self.slots[a] = is_done,
            3 => self.is_refused |= b != 7_000,
            4 | 8 => {
                self.slots[b] |= is_done;
                // `dup2` and `dup3` close what had the number.
                self.has_closed |= op == 8 && c >= 2;
            }
            9 | 27 => (self.slots[a], self.has_closed) = (false, true),
            10 => self.sets[a] = is_done,
            15 => self.waits = Some(a),
            17 => self.waits = None,
            _ => {}
        }
    }
}

struct Both {
    kernel: Side,
    ours: Side,
    /// Whether a thread of each waits.
    waits: bool,
}

impl Both {
    /// Waits until both are alike and nothing is on its way; `from` is the state that the last step
    /// is expected to change.
    fn settle(&mut self, from: Option<&str>) -> Result<String, [String; 2]> {
        let since = Instant::now();
        loop {
            let (kernel, ours) = (self.kernel.state(), self.ours.state());
            let is_alike = kernel == ours;
            let is_seen = !kernel.contains("moving 1") && from.is_none_or(|from| from != kernel);
            if is_alike && (is_seen || since.elapsed() > SEEN) {
                return Ok(kernel);
            }
            if since.elapsed() > ALIKE {
                return Err([kernel, ours]);
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    fn play(&mut self, seed: u64) -> Result<(), String> {
        let mut random = Random::new(seed);
        let port = 8_000 + (seed % 5_000) as u16 * 4;
        let mut script = Script {
            port,
            slots: [false; SLOTS],
            sets: [false; SETS],
            connections: 0,
            is_refused: false,
            has_closed: false,
            waits: None,
        };
        let (mut steps, mut state) = (Vec::new(), self.settle(None).unwrap_or_default());
        let parted = |steps: &[(Step, String)], kernel: &str, ours: &str| {
            let steps: String = steps.iter().map(|(step, answer)| format!("  {step:?} -> {answer}\n")).collect();
            Err(format!("SEED={seed} parts at the last of these steps:\n{steps}kernel: {kernel}\nours:   {ours}\n"))
        };
        for _ in 0..STEPS {
            let step = random.step(&script);
            let (kernel, ours) = (self.kernel.play(step), self.ours.play(step));
            steps.push((step, kernel.clone()));
            if let Step::Call(Call { op: 15 | 17, .. }) = step {
                self.waits = matches!(step, Step::Call(Call { op: 15, .. }));
            }
            if is_port_of_a_closed_connection(step, &kernel, &ours) && script.has_closed {
                return Ok(());
            }
            if kernel != ours {
                return parted(&steps, &kernel, &ours);
            }
            script.keep(step, &kernel);
            let is_seen_by_the_other = match step {
                Step::Act(act) => !matches!(act, Act::Read(_) | Act::ReadDatagram),
                Step::Call(Call { op: 3, .. }) => {
                    self.meet(&kernel);
                    true
                }
                Step::Call(Call { op, .. }) => matches!(op, 5 | 7 | 9 | 27) && !kernel.starts_with('-'),
            };
            script.connections = self.kernel.far.connections.len();
            if script.waits.is_some() {
                continue;
            }
            match self.settle(is_seen_by_the_other.then_some(&state)) {
                Ok(settled) => state = settled,
                Err([kernel, ours]) => return parted(&steps, &kernel, &ours),
            }
        }
        Ok(())
    }

    /// Has the peers accept what the players may have called.
    fn meet(&mut self, answer: &str) {
        if !answer.contains("EINPROGRESS") && answer != "0" {
            return;
        }
        let since = Instant::now();
        let (mut kernel, mut ours) = (false, false);
        while (!kernel || !ours) && (since.elapsed() < SEEN || (kernel != ours && since.elapsed() < ALIKE)) {
            kernel |= self.kernel.far.accept();
            ours |= self.ours.far.accept();
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// At the end of a script: closes all sockets. Returns how many descriptors each player has.
    fn close_all(&mut self) -> [String; 2] {
        let waits = std::mem::take(&mut self.waits);
        [&mut self.kernel, &mut self.ours].map(|side| {
            if waits {
                side.call(call(17, 0, 1, 0, 0));
            }
            let descriptors = side.call(call(16, 0, 0, 0, 0));
            while side.far.accept() {}
            side.far.connections.drain(..).flatten().for_each(|socket| lingers_not(&socket));
            let mut bytes = [0; 1];
            while side.far.datagrams.recv_from(&mut bytes).is_ok() {}
            descriptors
        })
    }
}

#[test]
fn scripts_of_calls_do_what_they_do_on_the_kernels_sockets() {
    let test = "scripts_of_calls_do_what_they_do_on_the_kernels_sockets";
    let (Some(one), Some(other)) = (wire(test, &[]), wire(test, &[])) else { return };
    play_on(test, [&one, &other], SCRIPTS, &[]);
}

#[test]
fn scripts_of_calls_do_the_same_where_a_broker_passes_frames_on_and_with_two_engines() {
    let test = "scripts_of_calls_do_the_same_where_a_broker_passes_frames_on_and_with_two_engines";
    let (Some(one), Some(other)) = (wire(test, &[]), wire(test, &[])) else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut config = BrokerConfig::new(NEAR);
    (config.path, config.forward) = (folder.path().join("socket"), true);
    let place = format!("WIREPATH_BROKER={}", config.path.display());
    let (stop, near) = (StopFlag::new(), other.near.name().to_owned());
    let stopping = stop.clone();
    let broker = std::thread::spawn(move || {
        wirepath_tests::netns::run_in(&near, || {
            Broker::open(config).unwrap().serve(&stopping, |line| eprintln!("broker: {line}")).unwrap();
        });
    });
    wait_until("the broker listens", || folder.path().join("socket").exists());
    play_on(test, [&one, &other], SCRIPTS / 3, &[&place]);
    play_on(test, [&one, &other], SCRIPTS / 3, &[&place, "WIREPATH_ENGINES=2"]);
    stop.stop();
    broker.join().unwrap();
}

/// Plays scripts on the kernel's sockets at one wire, and at the other one under the library with
/// these settings.
fn play_on(test: &str, [one, other]: [&Wire; 2], scripts: u64, settings: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compile(test, "player.c", folder.path()) else { return };
    let start = || {
        let kernel = Side::new(one, &program, folder.path(), None);
        let ours = Side::new(other, &program, folder.path(), Some(settings));
        let mut both = Both { kernel, ours, waits: false };
        let descriptors = both.close_all();
        (both, descriptors)
    };
    let mut both = None;
    let before = [one, other].map(|wire| segments_received(&wire.near));
    play_all(scripts, |seed| {
        let (sides, before) = both.get_or_insert_with(start);
        let played = sides.play(seed);
        let after = sides.close_all();
        let played = match played {
            Ok(()) if after != *before => Err(format!("SEED={seed} leaves descriptors open: {after:?} of {before:?}")),
            played => played,
        };
        if sides.kernel.player.is_none() || sides.ours.player.is_none() {
            both = None;
        }
        played
    });
    let by_kernels = [one, other].map(|wire| segments_received(&wire.near));
    let [kernels, ours] = [by_kernels[0] - before[0], by_kernels[1] - before[1]];
    // One script alone may have no connection at all.
    let is_whole = std::env::var_os("SEED").is_none();
    assert!(!is_whole || ours * 4 < kernels, "the kernel received {ours} segments of ours, and {kernels} of its own");
}

/// A limit that the manual names: the kernel keeps a port while a closed connection of it ends,
/// and gives it to sockets with `SO_REUSEADDR` alone. The script goes no further.
fn is_port_of_a_closed_connection(step: Step, kernel: &str, ours: &str) -> bool {
    matches!(step, Step::Call(Call { op: 1, .. })) && (kernel, ours) == ("-1 EADDRINUSE", "0")
}

/// Dropped, it resets its connection.
fn lingers_not(socket: &TcpStream) {
    rustix::net::sockopt::set_socket_linger(socket, Some(Duration::ZERO)).unwrap();
}

const fn call(op: u8, a: usize, b: usize, c: usize, seed: u32) -> Call {
    Call { op, a, b, c, seed }
}

fn said(result: Result<impl std::fmt::Display, impl std::borrow::Borrow<std::io::Error>>) -> String {
    match result {
        Ok(count) => count.to_string(),
        Err(error) => format!("{:?}", error.borrow().kind()),
    }
}

/// FNV-1a, as the player has it.
fn hash(bytes: &[u8]) -> u32 {
    bytes.iter().fold(2_166_136_261, |value, byte| (value ^ u32::from(*byte)).wrapping_mul(16_777_619))
}
