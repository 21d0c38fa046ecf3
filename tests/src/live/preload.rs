//! Unmodified programs under the preload library.

use std::ffi::OsStr;
use std::io;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::thread;

use super::{NEAR, OURS, Program, THEIRS, TIMEOUT, Wire, has_program, wait_until};
use crate::netns::Namespace;

/// A wire whose near end has an address of its kernel's. Without one of `programs`, or without
/// rights, prints why `test` is skipped.
pub fn wire(test: &str, programs: &[&str]) -> Option<Wire> {
    if !programs.iter().all(|program| has_program(test, program)) {
        return None;
    }
    let wire = Wire::new(test)?;
    wire.near.ip(&["addr", "add", &format!("{OURS}/24"), "dev", NEAR]).expect("an interface takes an address");
    Some(wire)
}

/// Starts a program at the near end, under the library.
pub fn start(wire: &Wire, program: &str, arguments: &[&str]) -> Program {
    let line = under_library(program, arguments);
    let line: Vec<&str> = line.iter().map(String::as_str).collect();
    Program::start(&wire.near, line[0], &line[1..])
}

/// Runs a program at the near end, under the library, to its end.
///
/// # Panics
/// Where it cannot be started.
pub fn run(wire: &Wire, program: &str, arguments: &[&str]) -> Output {
    let line = under_library(program, arguments);
    // A call that never returns is the failure of its own test, and not of the whole run.
    let mut all = vec!["timeout", "--kill-after=5", "240"];
    all.extend(line.iter().map(String::as_str));
    wire.near.command(all[0], &all[1..]).expect("ip (iproute2) is there, it made the namespace")
}

/// The output of a program, without the library's lines about sockets that stay with the kernel: it
/// is the same on either side.
pub fn text(output: &Output) -> String {
    let said = said(output);
    let is_its_own = |line: &&str| !line.starts_with("wirepath: a socket stays with the kernel");
    said.split_inclusive('\n').filter(is_its_own).collect()
}

/// The output of a program and of the library.
pub fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Waits until a server at the near end takes connections.
pub fn until_it_listens(wire: &Wire, port: u16) {
    wait_until("the server listens", || call(&wire.far, port).is_ok());
}

/// Whether a socket of a namespace's kernel listens on a port. That of a program under the library
/// does once ours listens; to ask disturbs no server that serves one caller alone.
pub fn is_listening(namespace: &Namespace, port: u16) -> bool {
    let read = |table: &str| std::fs::read_to_string(format!("/proc/thread-self/net/{table}")).unwrap_or_default();
    let tables = namespace.run(|| read("tcp") + &read("tcp6"));
    tables.lines().any(|line| line.contains(&format!(":{port:04X} ")) && line.contains(" 0A "))
}

/// Whether a datagram socket of a namespace's kernel, or the twin of one of ours, has a port.
pub fn is_bound(namespace: &Namespace, port: u16) -> bool {
    let read = |table: &str| std::fs::read_to_string(format!("/proc/thread-self/net/{table}")).unwrap_or_default();
    let tables = namespace.run(|| read("udp") + &read("udp6"));
    tables.lines().any(|line| line.contains(&format!(":{port:04X} ")))
}

/// A connection of the far kernel to a server at the near end.
///
/// # Errors
/// The kernel's.
pub fn call(far: &Namespace, port: u16) -> io::Result<TcpStream> {
    let socket = far.run(|| TcpStream::connect((OURS, port)))?;
    socket.set_read_timeout(Some(TIMEOUT))?;
    Ok(socket)
}

/// Echoes at the far end until the test is over: TCP and UDP port 7000. Port 7001 closes at once.
///
/// # Panics
/// Where a port is taken.
pub fn echo(wire: &Wire) {
    let (echoes, closes, datagrams) = wire.far.run(|| {
        let listen = |port| TcpListener::bind((THEIRS, port)).expect("nobody else is in this namespace");
        (listen(7_000), listen(7_001), UdpSocket::bind((THEIRS, 7_000)).expect("nor here"))
    });
    thread::spawn(move || closes.incoming().for_each(drop));
    thread::spawn(move || {
        for mut socket in echoes.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                let mut writer = socket.try_clone()?;
                io::copy(&mut socket, &mut writer)
            });
        }
    });
    thread::spawn(move || {
        let mut bytes = [0; 65_536];
        while let Ok((count, from)) = datagrams.recv_from(&mut bytes) {
            let _ = datagrams.send_to(&bytes[..count], from);
        }
    });
}

/// TCP segments that a kernel has received: those that went by us are not among them.
///
/// # Panics
/// If the kernel's table does not have the format that it has had since Linux 2.
pub fn segments_received(namespace: &Namespace) -> u64 {
    counter_of(namespace, "Tcp:", "InSegs")
}

/// Datagrams and segments that a kernel has received and sent.
///
/// # Panics
/// If the kernel's table does not have the format that it has had since Linux 2.
pub fn carried_by_kernel(namespace: &Namespace) -> u64 {
    [("Udp:", "InDatagrams"), ("Udp:", "OutDatagrams"), ("Tcp:", "InSegs"), ("Tcp:", "OutSegs")]
        .map(|(protocol, counter)| counter_of(namespace, protocol, counter))
        .iter()
        .sum()
}

/// What a program's peer may say to the kernel once the program has ended.
pub const LAST_WORDS: u64 = 30;

/// A counter of a kernel: a line and a name of `/proc/net/snmp`.
///
/// # Panics
/// If the kernel's table does not have the format that it has had since Linux 2.
pub fn counter_of(namespace: &Namespace, protocol: &str, counter: &str) -> u64 {
    let tables = namespace.run(|| std::fs::read_to_string("/proc/thread-self/net/snmp")).expect("every kernel has it");
    let mut lines = tables.lines().filter(|line| line.starts_with(protocol)).map(str::split_whitespace);
    let (names, values) = (lines.next().expect("a line of names"), lines.next().expect("a line of values"));
    let mut both = names.zip(values);
    both.find_map(|(name, value)| (name == counter).then(|| value.parse().expect("a number"))).expect("a count")
}

/// Descriptors that a process has open.
pub fn descriptors(process: u32) -> usize {
    std::fs::read_dir(format!("/proc/{process}/fd")).map_or(0, Iterator::count)
}

/// A C program of `tests/live/preload`, compiled by the distribution's compiler into `folder`.
///
/// # Panics
/// With the compiler's words, where it does not compile.
pub fn compile(test: &str, source: &str, folder: &Path) -> Option<String> {
    compile_with(test, source, folder, &[])
}

/// The same with more words for the compiler, such as libraries.
///
/// # Panics
/// With the compiler's words, where it does not compile.
pub fn compile_with(test: &str, source: &str, folder: &Path, more: &[&str]) -> Option<String> {
    if !has_program(test, "cc") {
        return None;
    }
    let source = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/live/preload")).join(source);
    let program = folder.join(source.file_stem().expect("a file's name"));
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-w", "-pthread", "-o"]).arg(&program).arg(&source).args(more);
    let compiled = compiler.output().expect("cc was found a moment ago");
    assert!(compiled.status.success(), "{}", text(&compiled));
    Some(program.to_string_lossy().into_owned())
}

/// The library, built once a process by the cargo and with the profile that built the test.
///
/// # Panics
/// With cargo's words, where it does not compile.
pub fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(build)
}

/// A command line that runs `program` under the library: its sockets are ours on [`NEAR`].
pub fn under_library<'a>(program: &'a str, arguments: &[&'a str]) -> Vec<String> {
    let mut line = vec![
        "env".to_owned(),
        format!("LD_PRELOAD={}", library().display()),
        format!("WIREPATH_INTERFACE={NEAR}"),
        program.to_owned(),
    ];
    line.extend(arguments.iter().map(|argument| (*argument).to_owned()));
    line
}

fn build() -> PathBuf {
    let test = std::env::current_exe().expect("a process knows its program");
    let place = test.ancestors().find(|place| place.join("deps").is_dir()).expect("cargo built this test");
    let profile = place.file_name().unwrap_or(OsStr::new("debug"));
    let profile = if profile == "debug" { OsStr::new("dev") } else { profile };
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../preload/Cargo.toml");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .args(["build", "--quiet", "--features", "testing", "--manifest-path", manifest])
        .arg("--profile")
        .arg(profile);
    command.arg("--target-dir").arg(place.parent().unwrap_or(place));
    let output = command.output().expect("cargo runs: it runs this test");
    assert!(output.status.success(), "wirepath-preload was not built: {}", String::from_utf8_lossy(&output.stderr));
    place.join("libwirepath_preload.so")
}
