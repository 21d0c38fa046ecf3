//! Programs at the ends of a pair: on the kernel, or under the preload library.

use std::net::TcpStream;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use wirepath_tests::live::Program;
use wirepath_tests::live::preload::library;
use wirepath_tests::netns::Namespace;

use super::super::pair::{End, FAR, NEAR, Pair};

/// The owner of a program's sockets: the kernel, or wirepath.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// Ours: it runs under the preload library.
    Ours,
    /// Ours, over the queues of a software ConnectX on the interface.
    OnConnectx,
    /// The kernel's.
    Kernel,
}

/// The words of a command line that runs `words` on a side, at an end of the pair, before all that
/// is not real-time. A program under the library that cannot have its interface ends, so that no
/// figure is the kernel's by mistake.
fn on(side: Side, end: End, words: &[&str]) -> Vec<String> {
    if side == Side::OnConnectx {
        return on_connectx(end, words);
    }
    let mut line: Vec<String> = ["chrt", "--rr", "1"].map(str::to_owned).into();
    if side == Side::Ours {
        let (library, interface) = (library().display(), end.interface);
        let variables = [
            format!("LD_PRELOAD={library}"),
            format!("WIREPATH_INTERFACE={interface}"),
            "WIREPATH_POLICY=refuse".to_owned(),
            // The faster one on a veth, as in the other figures.
            "WIREPATH_XDP_MODE=generic".to_owned(),
        ];
        line.extend(["env".to_owned()].into_iter().chain(variables));
    }
    line.extend(words.iter().map(|&word| word.to_owned()));
    line
}

/// The same over a ConnectX, which is simulated by a thread of the program. The launcher preloads a
/// library too: ours stands in front of it.
fn on_connectx(end: End, words: &[&str]) -> Vec<String> {
    let softhca = softhca::testing::command(&["--wire", end.interface]);
    let launcher = softhca.map_or_else(
        |why| vec![why],
        |softhca| {
            let words = [softhca.get_program()].into_iter().chain(softhca.get_args());
            words.map(|word| word.to_string_lossy().into_owned()).collect()
        },
    );
    let shell = format!(
        "LD_PRELOAD={}:$LD_PRELOAD WIREPATH_INTERFACE=mlx5:{} WIREPATH_POLICY=refuse exec \"$@\"",
        library().display(),
        end.interface
    );
    let words = ["sh", "-c", &shell, "sh"].into_iter().chain(words.iter().copied());
    launcher.into_iter().chain(words.map(str::to_owned)).collect()
}

/// The same on one core.
pub(super) fn pinned<'a>(core: &'a str, words: &[&'a str]) -> Vec<&'a str> {
    [&["taskset", "-c", core], words].concat()
}

/// Which of these programs are not installed.
///
/// # Errors
/// Their names, and what to do.
pub(super) fn installed(programs: &[&str]) -> Result<(), String> {
    let is_missing =
        |program: &&&str| !Command::new("which").arg(program).output().is_ok_and(|out| out.status.success());
    match programs.iter().find(is_missing) {
        Some(program) => Err(format!("{program} is not installed: `make bench` as root installs it")),
        None => Ok(()),
    }
}

/// Runs a program to its end, and returns what it printed.
///
/// # Errors
/// Its last words, where it fails or takes longer than a minute.
pub(super) fn run(namespace: &Namespace, end: End, side: Side, words: &[&str]) -> Result<String, String> {
    let line = on(side, end, words);
    let line: Vec<&str> = ["-k", "5", "60"].into_iter().chain(line.iter().map(String::as_str)).collect();
    let output = namespace.command("timeout", &line).map_err(|error| format!("ip (iproute2): {error}"))?;
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).join("\n");
    if output.status.success() {
        return Ok(text);
    }
    let last = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
    Err(format!("{}: {}: {last}", words.join(" "), output.status))
}

/// A server at the far end. Dropped, it is terminated, and killed where that is not enough.
pub(super) struct Server(Program);

impl Server {
    /// Starts it, and waits until it takes connections of the near end at `port`.
    ///
    /// # Errors
    /// It does not.
    pub(super) fn start(pair: &Pair, side: Side, port: u16, words: &[&str]) -> Result<Self, String> {
        let server = Self::begin(pair, side, words);
        let can_connect = || pair.near.run(|| TcpStream::connect((FAR.address, port))).is_ok();
        until(can_connect).then_some(server).ok_or_else(|| format!("{} takes no connection", words.join(" ")))
    }

    /// The same for a server of datagrams: waits until its port is bound.
    ///
    /// # Errors
    /// It does not.
    pub(super) fn start_udp(pair: &Pair, side: Side, port: u16, words: &[&str]) -> Result<Self, String> {
        let server = Self::begin(pair, side, words);
        let place = format!(":{port:04X} ");
        let is_bound = || {
            let table = pair.far.run(|| std::fs::read_to_string("/proc/thread-self/net/udp"));
            table.is_ok_and(|table| table.contains(&place))
        };
        until(is_bound).then_some(server).ok_or_else(|| format!("{} binds no port", words.join(" ")))
    }

    fn begin(pair: &Pair, side: Side, words: &[&str]) -> Self {
        let line = on(side, FAR, words);
        let line: Vec<&str> = line.iter().map(String::as_str).collect();
        Self(Program::start(&pair.far, line[0], &line[1..]))
    }

    /// Its process.
    pub(super) fn id(&self) -> u32 {
        self.0.id()
    }

    /// The process that a launcher has started, which waits for it.
    ///
    /// # Errors
    /// It has none.
    pub(super) fn child(&self) -> Result<u32, String> {
        let path = format!("/proc/{id}/task/{id}/children", id = self.id());
        let children = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
        let first = children.split_whitespace().next().and_then(|child| child.parse().ok());
        first.ok_or_else(|| format!("{path} names no process"))
    }

    /// CPU time that all threads of its process have used.
    ///
    /// # Errors
    /// It has ended.
    pub(super) fn cpu_time(&self) -> Result<Duration, String> {
        let folder = format!("/proc/{}/task", self.id());
        let threads = std::fs::read_dir(&folder).map_err(|error| format!("{folder}: {error}"))?;
        let times = threads.flatten().filter_map(|thread| {
            let text = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
            text.split_whitespace().next()?.parse::<u64>().ok()
        });
        Ok(Duration::from_nanos(times.sum()))
    }

    /// Bytes of its memory that are resident.
    ///
    /// # Errors
    /// It has ended.
    pub(super) fn resident(&self) -> Result<f64, String> {
        let path = format!("/proc/{}/status", self.id());
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or(path)?;
        let kib: f64 = line.trim().trim_end_matches(" kB").parse().map_err(|error| format!("{line}: {error}"))?;
        Ok(kib * 1024.0)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(self.id().to_string()).status();
        let state = format!("/proc/{}/stat", self.id());
        // A zombie is a child whose status the parent has not read.
        until(|| std::fs::read_to_string(&state).map_or(true, |text| text.contains(") Z ")));
    }
}

/// The near end's address with a port, for programs that want one word.
pub(super) fn near(port: u16) -> String {
    format!("{}:{port}", NEAR.address)
}

/// The far end's.
pub(super) fn far(port: u16) -> String {
    format!("{}:{port}", FAR.address)
}

/// Waits until something holds, for ten seconds; returns whether it does.
pub(super) fn until(mut holds: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while !holds() {
        if start.elapsed() > Duration::from_secs(10) {
            return false;
        }
        thread::sleep(Duration::from_millis(10));
    }
    true
}
