//! A session of ours over a socket of the kernel, and QuickFIX as a process beside it.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use order_entry::fix::codec::{Precision, UtcText, Writer};
use order_entry::fix::session::{Event, MemoryStore, Now, Role, Session, SessionConfig};

/// How long anything may take; QuickFIX looks at its timers and its reconnections once a second.
const PATIENCE: Duration = Duration::from_secs(40);

pub(crate) fn config() -> SessionConfig {
    SessionConfig { sender: "US".into(), target: "THEM".into(), ..SessionConfig::default() }
}

/// The peer's program, built once; why there is none.
pub(crate) fn peer_program() -> &'static Result<PathBuf, String> {
    static PROGRAM: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        if !Path::new("/usr/include/quickfix/Session.h").exists() {
            return Err("no QuickFIX here: apt-get install libquickfix-dev".into());
        }
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/quickfix/peer.cpp");
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("quickfix-peer");
        let mut compiler = Command::new("c++");
        // Its headers have exception specifications, which C++17 no longer has.
        compiler
            .args(["-std=c++14", "-w", "-O0"])
            .arg(source)
            .arg("-o")
            .arg(&program)
            .args(["-lquickfix", "-lpthread"]);
        match compiler.output() {
            Err(_) => Err("no C++ compiler here: apt-get install g++".into()),
            Ok(output) if !output.status.success() => panic!("{}", String::from_utf8_lossy(&output.stderr)),
            Ok(_) => Ok(program),
        }
    })
}

/// `HH:MM:SS` in UTC, so many seconds from now.
pub(crate) fn time_of_day_in(seconds: i64) -> String {
    let utc_ns = now().utc_ns.checked_add_signed(seconds * 1_000_000_000).unwrap();
    String::from_utf8(UtcText::new(Precision::Millis).write(utc_ns)[9..17].to_vec()).unwrap()
}

/// The second of the UTC day, so many seconds from now.
pub(crate) fn second_of_day_in(seconds: i64) -> u32 {
    let utc_ns = now().utc_ns.checked_add_signed(seconds * 1_000_000_000).unwrap();
    (utc_ns / 1_000_000_000 % 86_400) as u32
}

fn now() -> Now {
    static START: OnceLock<Instant> = OnceLock::new();
    let steady_ns = START.get_or_init(Instant::now).elapsed().as_nanos() as u64;
    Now { steady_ns, utc_ns: SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64 }
}

pub(crate) struct Peer {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
    /// All lines, and how many of them were waited for.
    seen: Vec<String>,
    passed: usize,
}

impl Peer {
    /// QuickFIX in the other role, with these settings.
    pub(crate) fn start(driver: &mut Driver, settings: &[&str]) -> Self {
        let program = peer_program().as_ref().unwrap();
        let role = if driver.config.role == Role::Initiator { "acceptor" } else { "initiator" };
        let mut command = Command::new(program);
        command.args([role, &driver.port.to_string()]).args(settings);
        command.arg(format!("BeginString={}", driver.config.version.begin_string()));
        command.arg(format!("HeartBtInt={}", driver.config.heartbeat_s));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
                if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                    return;
                }
            }
        });
        Self { child, input, lines, seen: Vec::new(), passed: 0 }
    }

    pub(crate) fn tell(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
        self.input.flush().unwrap();
    }

    /// The next line with all these parts, behind the one that was waited for last.
    fn finds(&mut self, parts: &[&str]) -> bool {
        self.seen.extend(self.lines.try_iter());
        let rest = &self.seen[self.passed..];
        let found =
            rest.iter().position(|line| line.starts_with(parts[0]) && parts.iter().all(|part| line.contains(part)));
        self.passed += found.map_or(0, |idx| idx + 1);
        found.is_some()
    }

    /// Waits for a line while our side does nothing.
    pub(crate) fn wait_for_line(&mut self, parts: &[&str]) {
        let end = Instant::now() + PATIENCE;
        while !self.finds(parts) {
            assert!(Instant::now() < end, "no line with {parts:?}: {:#?}", self.seen);
            thread::sleep(Duration::from_millis(2));
        }
    }

    pub(crate) fn pause(&mut self) {
        self.signal("-STOP");
    }

    pub(crate) fn go_on(&mut self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        let status = Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap();
        assert!(status.success());
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) struct Driver {
    pub(crate) session: Session<MemoryStore>,
    config: SessionConfig,
    port: u16,
    listener: Option<TcpListener>,
    stream: Option<TcpStream>,
    is_output_lost: bool,
    written: Vec<u8>,
    pub(crate) received: Vec<(u64, String)>,
    /// How many of them were possible duplicates.
    pub(crate) again: usize,
    pub(crate) not_resent: Vec<u64>,
    pub(crate) rejected: Vec<u64>,
    pub(crate) ends: Vec<String>,
}

impl Driver {
    pub(crate) fn new(config: SessionConfig) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        listener.set_nonblocking(true).unwrap();
        // An initiator only wanted a free port.
        let listener = Some(listener).filter(|_| config.role == Role::Acceptor);
        Self {
            session: Session::new(config.clone(), MemoryStore::new(1_000, 1 << 20)),
            config,
            port,
            listener,
            stream: None,
            is_output_lost: false,
            written: Vec::new(),
            received: Vec::new(),
            again: 0,
            not_resent: Vec::new(),
            rejected: Vec::new(),
            ends: Vec::new(),
        }
    }

    /// A session that has forgotten its numbers.
    pub(crate) fn forget(&mut self) {
        self.session = Session::new(self.config.clone(), MemoryStore::new(1_000, 1 << 20));
    }

    pub(crate) fn connect(&mut self) {
        let end = Instant::now() + PATIENCE;
        let stream = loop {
            assert!(Instant::now() < end, "no connection");
            let stream = match &self.listener {
                Some(listener) => listener.accept().map(|(stream, _)| stream),
                None => TcpStream::connect(("127.0.0.1", self.port)),
            };
            match stream {
                Ok(stream) => break stream,
                Err(_) => thread::sleep(Duration::from_millis(5)),
            }
        };
        stream.set_nonblocking(true).unwrap();
        stream.set_nodelay(true).unwrap();
        self.stream = Some(stream);
        self.is_output_lost = false;
        self.session.connected(now());
    }

    /// Connects until both sides are logged on.
    pub(crate) fn log_on(&mut self, peer: &mut Peer) {
        self.connect();
        self.wait("the logon", |driver| driver.session.is_logged_on());
        self.wait_for_line(peer, &["logon"]);
    }

    pub(crate) fn hang_up(&mut self) {
        self.stream = None;
        self.session.disconnected();
    }

    /// From now on our bytes do not arrive.
    pub(crate) fn lose_output(&mut self) {
        self.is_output_lost = true;
    }

    pub(crate) fn send(&mut self, msg_type: &str, text: &str) {
        self.send_fields(msg_type, &[(148, text)]);
    }

    pub(crate) fn send_fields(&mut self, msg_type: &str, fields: &[(u32, &str)]) {
        let sent = self.session.send(now(), msg_type, |out| {
            for (tag, value) in fields {
                out.field(*tag, value.as_bytes());
            }
        });
        sent.unwrap();
        self.turn();
    }

    pub(crate) fn logout(&mut self) {
        self.session.logout(now(), "");
        self.turn();
    }

    /// Writes a message past the session.
    pub(crate) fn inject(&mut self, body: impl FnOnce(&mut Writer<'_>, &[u8])) {
        let mut out = [0; 1_024];
        let mut writer = Writer::new(&mut out);
        body(&mut writer, UtcText::new(Precision::Millis).write(now().utc_ns));
        let begin_string = self.config.version.begin_string();
        let message = writer.finish(begin_string.as_bytes()).unwrap();
        self.stream.as_mut().unwrap().write_all(message).unwrap();
    }

    pub(crate) fn texts(&self) -> Vec<&str> {
        self.received.iter().map(|(_, text)| &text[..]).collect()
    }

    /// Whether what was written has this, with `|` for SOH.
    pub(crate) fn wrote(&self, text: &str) -> bool {
        String::from_utf8_lossy(&self.written).replace('\x01', "|").contains(text)
    }

    pub(crate) fn wait(&mut self, what: &str, is_done: impl Fn(&Self) -> bool) {
        self.wait_until(&mut |driver| is_done(driver), what);
    }

    pub(crate) fn wait_for_line(&mut self, peer: &mut Peer, parts: &[&str]) {
        self.wait_until(&mut |_| peer.finds(parts), &format!("{parts:?}"));
    }

    fn wait_until(&mut self, is_done: &mut dyn FnMut(&Self) -> bool, what: &str) {
        let end = Instant::now() + PATIENCE;
        while !is_done(self) {
            let (received, ends, counts) = (&self.received, &self.ends, self.session.counts());
            assert!(Instant::now() < end, "{what} did not come: received {received:?}, ends {ends:?}, {counts:?}");
            if !self.turn() {
                thread::sleep(Duration::from_millis(1));
            }
        }
    }

    /// Reads, polls, writes. Whether anything happened.
    fn turn(&mut self) -> bool {
        let mut bytes = [0; 4_096];
        let read = self.stream.as_mut().map(|stream| stream.read(&mut bytes));
        let len = match read {
            Some(Ok(0)) => {
                self.hang_up();
                0
            }
            Some(Ok(len)) => len,
            Some(Err(error)) if error.kind() != ErrorKind::WouldBlock => {
                self.hang_up();
                0
            }
            _ => 0,
        };
        let mut rest = &bytes[..len];
        loop {
            let taken = self.session.receive(now(), rest);
            rest = &rest[taken..];
            self.poll();
            self.write();
            if rest.is_empty() {
                return len > 0;
            }
        }
    }

    fn poll(&mut self) {
        let mut is_over = false;
        while let Some(event) = self.session.poll(now()) {
            match event {
                Event::Message { message, seq, poss_dup } => {
                    self.again += usize::from(poss_dup);
                    let text = message.get(148).unwrap_or(b"");
                    self.received.push((seq, String::from_utf8_lossy(text).into_owned()));
                }
                Event::Rejected(message) => self.rejected.push(message.number(45).unwrap()),
                Event::NotResent { seq } => self.not_resent.push(seq),
                Event::Disconnect(end) => {
                    self.ends.push(end.to_string());
                    is_over = true;
                }
                _ => {}
            }
        }
        if is_over {
            self.write();
            self.hang_up();
        }
    }

    fn write(&mut self) {
        let output = self.session.output();
        let len = match &mut self.stream {
            Some(stream) if !self.is_output_lost => stream.write(output).unwrap_or(0),
            _ => output.len(),
        };
        self.written.extend_from_slice(&output[..len]);
        self.session.consume(len);
    }
}
