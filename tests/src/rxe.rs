//! A guest with the RoCE of Linux (rxe) as a peer: a small virtual machine, because the kernel of
//! the machine that tests run on may have no RDMA. `scripts/rxe-guest` builds it.
//!
//! ```text
//!  test ── commands, a line each ──▶ second serial port ── shell ── ibv_rc_pingpong, perftest ... ── rxe0
//!  namespace: tap ═══════════════════════════ frames ═══════════════════════════════ eth0 (virtio) ──┘
//! ```
//!
//! QEMU interprets the guest's instructions (TCG), because a test may run in a virtual machine
//! itself: rates of the guest say nothing.

use std::io::{BufRead, BufReader, Write};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;
use std::{fs, thread};

use crate::live::has_program;
use crate::netns::Namespace;

/// A command of the guest takes no longer, even where two busy cores run ten tests: then it is an
/// error.
const TIMEOUT: Duration = Duration::from_secs(180);

/// How a guest is connected.
#[derive(Clone, Copy, Debug)]
pub struct GuestConfig<'a> {
    /// The name of the tap, which the guest makes in its namespace: the other end of its `eth0`.
    pub tap: &'a str,
    /// Its address, in a network of 24 bits. The last byte is also that of its MAC address.
    pub address: Ipv4Addr,
    /// The MTU of both ends. The path MTU of rxe is the largest that fits with 80 bytes beside it.
    pub mtu: usize,
}

/// A running guest. Dropped, it is ended.
#[derive(Debug)]
pub struct Guest {
    qemu: Child,
    serial: ChildStdin,
    lines: Receiver<String>,
    console: tempfile::NamedTempFile,
}

/// What a command of the guest has left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// Its exit code.
    pub code: i32,
    /// The lines that it wrote, to either stream.
    pub output: String,
}

impl Guest {
    /// Makes the tap in `namespace` and starts a guest at its other end; returns once the guest has
    /// its rxe device. Where this machine has no QEMU, or cannot build the guest, prints why `test`
    /// is skipped.
    ///
    /// # Panics
    /// With the guest's console, where it does not start.
    pub fn start(test: &str, namespace: &Namespace, config: &GuestConfig<'_>) -> Option<Self> {
        let files = guest_files(test)?;
        let (tap, mtu) = (config.tap, config.mtu.to_string());
        let in_namespace = |arguments: &[&str]| namespace.ip(arguments).expect("a namespace takes a tap");
        in_namespace(&["tuntap", "add", "dev", tap, "mode", "tap"]);
        in_namespace(&["link", "set", tap, "mtu", &mtu, "up"]);
        let console = tempfile::NamedTempFile::new().expect("a file for the console");
        let mut qemu = command(namespace, &files, config, console.path()).spawn().expect("ip (iproute2) is there");
        let (serial, lines) = (qemu.stdin.take().expect("a pipe"), lines(&mut qemu));
        let guest = Self { qemu, serial, lines, console };
        while guest.line() != "ready" {}
        Some(guest)
    }

    /// Runs a command of its shell and waits for its end.
    ///
    /// # Panics
    /// With the guest's console, where the command does not end.
    pub fn run(&mut self, command: &str) -> Finished {
        self.begin(command);
        self.finish()
    }

    /// Begins a command, such as the server of a test. [`finish`](Self::finish) waits for its end.
    ///
    /// # Panics
    /// The guest is gone.
    pub fn begin(&mut self, command: &str) {
        writeln!(self.serial, "{command}").unwrap_or_else(|error| panic!("{error}: {}", self.console()));
    }

    /// Waits for the end of the command that was begun.
    ///
    /// # Panics
    /// With the guest's console, where the command does not end.
    pub fn finish(&mut self) -> Finished {
        let mut output = String::new();
        loop {
            let line = self.line();
            if let Some(code) = line.strip_prefix("exit ").and_then(|code| code.parse().ok()) {
                return Finished { code, output };
            }
            output.push_str(&line);
            output.push('\n');
        }
    }

    fn line(&self) -> String {
        let why = match self.lines.recv_timeout(TIMEOUT) {
            Ok(line) => return line,
            Err(RecvTimeoutError::Timeout) => "the guest is silent",
            Err(RecvTimeoutError::Disconnected) => "the guest has ended",
        };
        panic!("{why}; its console: {}", self.console());
    }

    /// What its kernel has said.
    fn console(&self) -> String {
        fs::read(self.console.path()).map(|said| String::from_utf8_lossy(&said).into_owned()).unwrap_or_default()
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
    }
}

/// `ip netns exec` becomes QEMU: the child is QEMU itself.
fn command(namespace: &Namespace, files: &Path, config: &GuestConfig<'_>, console: &Path) -> Command {
    let GuestConfig { tap, address, mtu } = *config;
    let mac = format!("52:54:00:00:00:{:02x}", address.octets()[3]);
    let mut command = Command::new("ip");
    command.args(["netns", "exec", namespace.name(), "qemu-system-x86_64"]);
    command.args(["-machine", "pc", "-accel", "tcg", "-cpu", "max", "-m", "256", "-nodefaults", "-no-reboot"]);
    command.args(["-display", "none", "-serial", &format!("file:{}", console.display()), "-serial", "stdio"]);
    command.arg("-kernel").arg(files.join("vmlinuz")).arg("-initrd").arg(files.join("initramfs"));
    // The kernel counts ticks while it boots, of which a busy machine makes too few: it hung then.
    let options = format!("console=ttyS0 quiet panic=-1 no_timer_check address={address}/24 mtu={mtu}");
    command.args(["-append", &options]);
    command.args(["-netdev", &format!("tap,id=net,ifname={tap},script=no,downscript=no")]);
    // Without a ROM to boot from. The guest hears of the MTU by the command line.
    command.args(["-device", &format!("virtio-net-pci,netdev=net,romfile=,mac={mac}")]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    command
}

/// The lines that the guest says, by a thread, because a pipe has no timeout.
fn lines(qemu: &mut Child) -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    let output = BufReader::new(qemu.stdout.take().expect("a pipe"));
    thread::spawn(move || {
        for line in output.lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

/// The folder with kernel and initramfs, built where it is not there yet.
fn guest_files(test: &str) -> Option<PathBuf> {
    if !has_program(test, "qemu-system-x86_64") {
        println!("`make soak` installs it; `make test` does not, because it is large");
        return None;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let files = target.join("rxe-guest");
    let output = Command::new(root.join("scripts/rxe-guest")).arg(&files).output().expect("the script is there");
    if output.status.success() {
        return Some(files);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(77), "scripts/rxe-guest: {said}");
    println!("SKIPPED {test}: {}", said.trim());
    None
}
