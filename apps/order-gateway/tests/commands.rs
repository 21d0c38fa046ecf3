//! What people say to a gateway that runs: each word of its socket, each signal, the kill file. The
//! gateway is the program, and its venue does not answer.
#![allow(clippy::unwrap_used, reason = "a panic is the report")]

mod common;
#[path = "commands/demo.rs"]
mod demo;
#[path = "commands/end.rs"]
mod end;
#[path = "commands/said.rs"]
mod said;
#[path = "commands/threads.rs"]
mod threads;

use std::fs::Permissions;
use std::io::{BufRead, BufReader};
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use market::Symbol;
use order_entry::journal::{Entry, Journal, Records, Stamp, StrategyName};
use order_entry::risk::{InstrumentIdx, StrategyIdx};
use tempfile::TempDir;

const VENUE: &str = "[venue]\nprotocol = \"ouch50\"\nprimary = \"127.0.0.1:9\"\nuser = \"TRADER\"\n\
    password = \"SECRET\"\nfirm = \"FIRM\"\ncapacity = \"principal\"\n";

const PATIENCE: Duration = Duration::from_secs(60);

/// A gateway, and what it says.
struct Running {
    child: Child,
    said: Receiver<String>,
    directory: TempDir,
}

impl Running {
    /// A gateway that can be reached.
    fn start() -> Self {
        Self::start_with(&limits(1, "ZIEXT", ""))
    }

    fn start_with(bounds: &str) -> Self {
        let running = Self::begin(tempfile::tempdir().unwrap(), bounds);
        running.wait_for("lets orders pass");
        while UnixStream::connect(running.path("socket")).is_err() {
            thread::yield_now();
        }
        running
    }

    fn begin(directory: TempDir, of_limits: &str) -> Self {
        let mut child = command(&directory, of_limits).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let said = said_by(&mut child);
        Self { child, said, directory }
    }

    /// Another program runs over the files.
    fn again(&mut self) {
        self.child = program(&self.directory).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        self.said = said_by(&mut self.child);
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn wait_for(&self, words: &str) {
        let mut all = Vec::new();
        while let Ok(line) = self.said.recv_timeout(PATIENCE) {
            if line.contains(words) {
                return;
            }
            all.push(line);
        }
        panic!("nobody said {words:?}: {all:?}");
    }

    /// Whether the word was taken, and the answer.
    fn tell(&self, word: &str) -> (bool, String) {
        let told = Command::new(env!("CARGO_BIN_EXE_order-gateway"))
            .arg("tell")
            .arg(self.path("socket"))
            .args(word.split(' '))
            .output()
            .unwrap();
        let text = if told.status.success() { told.stdout } else { told.stderr };
        (told.status.success(), String::from_utf8(text).unwrap())
    }

    fn obeys(&self, word: &str) {
        assert_eq!(self.tell(word), (true, "ok\n".to_owned()), "{word}");
    }

    fn refuses(&self, word: &str, why: &str) {
        let (is_taken, answer) = self.tell(word);
        assert!(!is_taken && answer.contains(why), "{word}: {answer}");
    }

    /// Waits until the status begins so: the hot core obeys in its next turn.
    fn becomes(&self, status: &str) {
        let (mut last, deadline) = (String::new(), Instant::now() + PATIENCE);
        while Instant::now() < deadline {
            last = self.tell("status").1;
            if last.starts_with(status) {
                return;
            }
            thread::sleep(Duration::from_millis(5));
        }
        panic!("not {status:?} but {last:?}");
    }

    /// Makes the kill file anew, and again where the gateway has not looked while there was none.
    fn is_killed_by_its_file(&self) {
        let is_killed = || self.tell("status").1.starts_with("killed by the kill file since");
        let is_killed_soon = || {
            let _ = std::fs::remove_file(self.path("KILL"));
            thread::sleep(Duration::from_millis(50));
            std::fs::write(self.path("KILL"), "").unwrap();
            let written = Instant::now();
            while !is_killed() && written.elapsed() < Duration::from_secs(2) {
                thread::sleep(Duration::from_millis(5));
            }
            is_killed()
        };
        assert!((0..10).any(|_| is_killed_soon()), "the kill file is not seen");
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
    }

    fn wait_for_entry(&self, entry: &Entry) {
        assert!(self.has_soon(|found| found == entry), "the journal has no {entry:?}");
    }

    /// Whether the journal has such an entry, or gets one.
    fn has_soon(&self, is_it: impl Fn(&Entry) -> bool) -> bool {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            let memory = std::fs::read(self.path("journal")).unwrap();
            let mut records = Records::new(&memory).unwrap();
            if records.any(|record| Entry::decode(record.kind, record.payload).as_ref().is_some_and(&is_it)) {
                return true;
            }
            thread::sleep(Duration::from_millis(5));
        }
        false
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Each line of its standard error.
fn said_by(child: &mut Child) -> Receiver<String> {
    let (sender, said) = mpsc::channel();
    let stderr = BufReader::new(child.stderr.take().unwrap());
    thread::spawn(move || stderr.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
    said
}

/// The program over files in the directory.
fn command(directory: &TempDir, of_limits: &str) -> Command {
    let path = |name: &str| directory.path().join(name);
    let [bounds, control, kill_file, journal] = ["limits", "socket", "KILL", "journal"].map(path);
    let config = format!(
        "limits = {bounds:?}\ncontrol = {control:?}\nkill_file = {kill_file:?}\n{VENUE}[journal]\n\
         path = {journal:?}\nmegabytes = 2\nreserve_megabytes = 1\n"
    );
    std::fs::write(path("config"), config).unwrap();
    std::fs::write(path("limits"), of_limits).unwrap();
    program(directory)
}

fn program(directory: &TempDir) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_order-gateway"));
    command.arg("run").arg(directory.path().join("config"));
    command
}

fn limits(version: u32, symbol: &str, more: &str) -> String {
    format!("version = {version}\n{more}[[units]]\n[[instruments]]\nsymbol = \"{symbol}\"\n")
}

/// The file is a copy that somebody had, and its limits were lowered since.
#[test]
fn gateway_with_older_limits_than_its_journal_does_not_start() {
    let mut gateway = Running::start_with(&limits(3, "ZIEXT", ""));
    gateway.becomes("disarmed");
    gateway.child.kill().unwrap();
    gateway.child.wait().unwrap();
    std::fs::write(gateway.path("limits"), limits(2, "ZIEXT", "")).unwrap();
    let ended =
        Command::new(env!("CARGO_BIN_EXE_order-gateway")).arg("run").arg(gateway.path("config")).output().unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert!(!ended.status.success(), "{said}");
    assert!(said.contains("limits of version 2 are older than those of version 3, which were in force"), "{said}");
    assert!(said.contains("raise its `version`"), "{said}");
}

#[test]
fn each_word_of_the_socket_is_obeyed() {
    let gateway = Running::start();
    gateway.becomes("disarmed; session closed; 0 live orders, 0 in doubt");
    gateway.obeys("arm");
    gateway.becomes("armed");
    gateway.obeys("disarm");
    gateway.becomes("disarmed");
    gateway.obeys("kill");
    gateway.becomes("killed by a command since");
    gateway.wait_for("the kill switch was thrown by a command");
    gateway.obeys("disarm");
    gateway.becomes("killed by a command since");
    gateway.obeys("arm");
    gateway.becomes("armed");
    gateway.obeys("cancel");
    gateway.becomes("armed");
    gateway.obeys("unblock ZIEXT");
    let (symbol, instrument) = (Symbol(*b"ZIEXT   "), InstrumentIdx(0));
    gateway.wait_for_entry(&Entry::Unblocked { symbol, instrument });
    gateway.obeys("alone");
    gateway.wait_for_entry(&Entry::Standby { id: 0 });
    gateway.obeys("handover");
    gateway.wait_for("nobody can take over, and orders go on");
    gateway.becomes("armed");
}

#[test]
fn word_that_makes_no_sense_is_refused_with_those_that_do() {
    let gateway = Running::start();
    for word in ["", "ARM", "arm now", "kill -9", "unblocks ZIEXT", "\u{1b}[2J", &"arm".repeat(200)] {
        gateway.refuses(word, "refused: the commands are status, arm, disarm");
    }
    for symbol in ["unblock", "unblock NONE", "unblock ZIEXT ZIEXT"] {
        gateway.refuses(symbol, "refused: there is no such instrument");
    }
    gateway.becomes("disarmed");
}

#[test]
fn one_strategy_is_stopped_and_armed_by_its_name() {
    let gateway = Running::start_with(&(limits(1, "ZIEXT", "") + "[[strategies]]\nname = \"my joiner\"\n"));
    gateway.obeys("arm");
    gateway.becomes("armed; session closed");
    gateway.obeys("kill strategy my joiner");
    gateway.wait_for("strategy my joiner is stopped: its orders are canceled, and others trade on");
    gateway.becomes("armed; stopped strategies my joiner; session closed");
    let name = StrategyName::zero_padded("my joiner").unwrap();
    gateway.wait_for_entry(&Entry::Strategy { name, strategy: StrategyIdx(0), is_stopped: true });
    gateway.refuses("kill strategy joiner", "refused: the limits have no such strategy");
    gateway.refuses("arm strategy", "refused: the commands are");
    gateway.obeys("arm strategy my joiner");
    gateway.becomes("armed; session closed");
}

#[test]
fn reload_takes_newer_limits_of_the_same_instruments_and_strategies_alone() {
    let gateway = Running::start();
    gateway.obeys("reload");
    gateway.wait_for("limits of version 1 are not newer than version 1");
    let write = |text: &str| std::fs::write(gateway.path("limits"), text).unwrap();
    write(&limits(2, "ZIEXT", ""));
    gateway.obeys("reload");
    gateway.wait_for("limits of version 2 are in force");
    gateway.wait_for_entry(&Entry::Limits { version: 2 });
    write(&limits(3, "OTHER", ""));
    gateway.refuses("reload", "the instruments and their units are others");
    write(&(limits(3, "ZIEXT", "") + "opening_position = 100\n"));
    gateway.refuses("reload", "the opening position of ZIEXT is another than at the start: restart instead");
    write(&(limits(3, "ZIEXT", "") + "[[strategies]]\nname = \"joiner\"\n"));
    gateway.refuses("reload", "the strategies are others");
    write(&limits(3, "ZIEXT", "[account]\nvenue_prevents_self_match = true\n"));
    gateway.refuses("reload", "needs the key `self_match`");
    write("version = 3\nheadroom = 5\n");
    gateway.refuses("reload", "line 2, column 1");
    // SIGHUP is the same word, and its refusal is a sentence.
    gateway.signal("HUP");
    gateway.wait_for("line 2, column 1");
    write(&limits(4, "ZIEXT", ""));
    gateway.signal("HUP");
    gateway.wait_for("limits of version 4 are in force");
}

#[test]
fn signal_and_file_throw_the_kill_switch_each_time() {
    let gateway = Running::start();
    for _ in 0..2 {
        gateway.obeys("arm");
        gateway.becomes("armed");
        gateway.signal("USR1");
        gateway.becomes("killed by a signal since");
        gateway.wait_for("thrown by a signal");
    }
    for _ in 0..2 {
        gateway.obeys("arm");
        gateway.becomes("armed");
        gateway.is_killed_by_its_file();
        gateway.wait_for("thrown by the kill file");
        // The file that is still there does not throw it again.
        gateway.obeys("arm");
        gateway.becomes("armed");
    }
}

#[test]
fn signal_to_end_ends_the_gateway_whole() {
    for name in ["INT", "TERM"] {
        let mut gateway = Running::start();
        gateway.signal(name);
        assert!(gateway.child.wait().unwrap().success(), "{name}");
    }
}

#[test]
fn who_says_half_a_word_does_not_keep_the_kill_file_from_being_heard() {
    let gateway = Running::start();
    gateway.obeys("arm");
    let mut stream = UnixStream::connect(gateway.path("socket")).unwrap();
    std::io::Write::write_all(&mut stream, b"ar").unwrap();
    std::fs::write(gateway.path("KILL"), "").unwrap();
    gateway.wait_for("thrown by the kill file");
    // Half a word is none.
    stream.shutdown(Shutdown::Write).unwrap();
    gateway.becomes("killed by the kill file");
}

/// As a gateway whose umask let the socket's mode be wide for a moment.
#[test]
fn user_who_does_not_run_the_gateway_is_refused_whatever_the_sockets_mode() {
    let gateway = Running::start();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&gateway.path("socket")), 0o600);
    for path in [gateway.directory.path().to_owned(), gateway.path("socket")] {
        std::fs::set_permissions(path, Permissions::from_mode(0o777)).unwrap();
    }
    let program = gateway.path("program");
    std::fs::copy(env!("CARGO_BIN_EXE_order-gateway"), &program).unwrap();
    let told = Command::new("setpriv")
        .args(["--reuid=65534", "--clear-groups"])
        .arg(program)
        .arg("tell")
        .args([gateway.path("socket").into_os_string(), "arm".into()])
        .output();
    match told {
        Ok(told) if !String::from_utf8_lossy(&told.stderr).contains("setpriv:") => {
            let said = String::from_utf8(told.stderr).unwrap();
            assert!(!told.status.success() && said.contains("refused: the user who runs the gateway"), "{said}");
            gateway.wait_for("user 65534 is refused");
            gateway.becomes("disarmed");
        }
        _ => println!("SKIPPED: another user's command needs setpriv and root"),
    }
}

#[test]
fn socket_of_a_gateway_that_runs_and_a_file_that_is_none_are_left_alone() {
    let gateway = Running::start();
    let other = tempfile::tempdir().unwrap();
    for (place, why) in
        [(gateway.path("socket"), "another gateway listens there"), (gateway.path("limits"), "no socket")]
    {
        let config = std::fs::read_to_string(gateway.path("config")).unwrap();
        let config = config
            .replace(gateway.path("socket").to_str().unwrap(), place.to_str().unwrap())
            .replace(gateway.path("journal").to_str().unwrap(), other.path().join("journal").to_str().unwrap());
        let path = other.path().join("config");
        std::fs::write(&path, config).unwrap();
        let ended = Command::new(env!("CARGO_BIN_EXE_order-gateway")).arg("run").arg(&path).output().unwrap();
        let said = String::from_utf8(ended.stderr).unwrap();
        assert!(!ended.status.success() && said.contains(why), "{said}");
        assert!(place.exists());
    }
    gateway.becomes("disarmed");
}

/// It learned that when the primary was gone, and orders lived that nobody could cancel.
#[test]
fn standby_whose_limits_lack_a_symbol_of_the_journal_says_so_while_the_primary_lives() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let [bounds, journal] = ["limits", "journal"].map(path);
    let config =
        format!("limits = {bounds:?}\n{VENUE}[journal]\npath = {journal:?}\nmegabytes = 2\nreserve_megabytes = 1\n");
    std::fs::write(path("config"), config).unwrap();
    std::fs::write(path("limits"), limits(1, "OTHER", "")).unwrap();
    // A copy with a position, as a primary has it written.
    let mut copy = Journal::create(vec![0; 2 << 20], 7, 0, 0).unwrap();
    let (symbol, instrument) = (Symbol(*b"ZIEXT   "), InstrumentIdx(0));
    let opening = Entry::Opening { symbol, instrument, position: 100 };
    copy.append(opening.kind(), Stamp::default(), &opening.encode()).unwrap();
    std::fs::write(path("journal"), copy.memory()).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_order-gateway"));
    command.arg("standby").arg(path("config")).arg("127.0.0.1:9").stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let running = Running { said: said_by(&mut child), child, directory };
    running.wait_for("this standby could not take over: ");
    std::fs::write(running.path("limits"), limits(1, "ZIEXT", "")).unwrap();
    running.wait_for("this standby could take over again");
}
