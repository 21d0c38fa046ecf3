//! The guardian's loop: knows the rosters of one process, waits for the process or a worker of it to die, and has what was open
//! ended.

use core::fmt;
use core::time::Duration;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Instant;

use super::resets::{End, Ended, Resets};
use super::socket::{self, PacketSocket, Pidfd};
use crate::pipeline::tcp::roster::{Rostered, process_started};

/// How often to look for new rosters, and for a worker that has ended while its process has not. The end of the process is heard
/// at once.
const LOOK_SPAN: Duration = Duration::from_millis(200);
/// How long a process takes from closing its files to its end: not long.
const LAST_BREATH: Duration = Duration::from_millis(20);
/// When peers are told. A kernel answers such segments twice a second at most (`tcp_invalid_ratelimit`), and a NIC that loses
/// its program may be down for a moment.
const ROUNDS: [Duration; 5] = [
    Duration::ZERO,
    Duration::from_millis(250),
    Duration::from_millis(900),
    Duration::from_millis(2_000),
    Duration::from_millis(4_000),
];
/// How long peers are listened to, if they do not all say before that they know.
const PATIENCE: Duration = Duration::from_secs(5);
/// Frames that are sent before those that came meanwhile are looked at.
const BATCH: usize = 64;
/// Connections that a report names one by one.
const LINES_MAX: usize = 20;

/// Whom to guard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The process with this number. Its rosters may come later.
    Pid(u32),
    /// The one process of this application that has a roster.
    App(String),
    /// The one process that has a roster.
    Only,
}

/// Guards one process.
#[derive(Debug)]
pub struct Guardian {
    pid: u32,
    process_started: u64,
    pidfd: Pidfd,
    directory: PathBuf,
    /// The network namespace of the process when we came, for rosters of threads that are gone.
    namespace: Option<File>,
    watched: Vec<Watched>,
    /// The files of rosters that were taken up, also of those that are done with.
    known: Vec<(u64, u64)>,
}

/// A roster, and the socket on its interface that will be needed when nobody is left in that namespace.
#[derive(Debug)]
struct Watched {
    roster: Rostered,
    socket: Option<PacketSocket>,
}

/// What was done about the connections of one worker.
#[derive(Debug)]
pub struct Report {
    /// The application.
    pub app: String,
    /// Its process.
    pub pid: u32,
    /// Whether the process still lives, and only a worker of it has ended.
    pub process_lives: bool,
    /// Its connections.
    pub connections: Vec<Ended>,
    /// What went wrong.
    pub error: Option<io::Error>,
}

impl Guardian {
    /// Finds the process and opens what will be needed; from here on its end is not missed.
    ///
    /// # Errors
    /// No such process, or more than one; or this user may not look at it, or send frames for it.
    pub fn new(directory: &Path, target: &Target) -> Result<Self, GuardError> {
        let pid = match target {
            Target::Pid(pid) => *pid,
            Target::App(app) => only(directory, |roster| roster.app == *app)?,
            Target::Only => only(directory, |_| true)?,
        };
        let no_process = |error| GuardError::Process { pid, error };
        let pidfd = Pidfd::open(pid).map_err(no_process)?;
        // Asked in this order: where the descriptor says that the process lives, the start is that process's.
        let started = process_started(pid);
        let (Some(process_started), false) = (started, pidfd.wait(Duration::ZERO).map_err(no_process)?) else {
            return Err(no_process(io::ErrorKind::NotFound.into()));
        };
        let namespace = File::open(format!("/proc/{pid}/ns/net")).ok();
        let directory = directory.to_owned();
        let mut guardian =
            Self { pid, process_started, pidfd, directory, namespace, watched: Vec::new(), known: Vec::new() };
        guardian.look()?;
        Ok(guardian)
    }

    /// The process.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Rosters of it that are watched now: one for each worker with TCP.
    pub fn rosters(&self) -> usize {
        self.watched.len()
    }

    /// Waits for the process to end, and reports each worker that leaves connections behind.
    ///
    /// # Errors
    /// The process cannot be waited for.
    pub fn watch(mut self, mut report: impl FnMut(Report)) -> Result<(), GuardError> {
        let (tell, told) = mpsc::channel();
        let mut endings = Vec::new();
        loop {
            let mut has_ended = self.has_ended(LOOK_SPAN)?;
            // What cannot be looked at now may be later, and what is known stays known.
            let _ = self.look();
            if !has_ended && self.watched.iter().any(|watched| !watched.roster.has_writer()) {
                // A process that is on its way out lets go of its files a moment before it has ended.
                has_ended = self.has_ended(LAST_BREATH)?;
            }
            let (over, on): (Vec<_>, Vec<_>) =
                self.watched.drain(..).partition(|watched| has_ended || !watched.roster.has_writer());
            self.watched = on;
            for watched in over {
                endings.push(end_in_background(watched, !has_ended, &tell));
            }
            if has_ended {
                break;
            }
            told.try_iter().for_each(&mut report);
        }
        drop(tell);
        told.iter().for_each(report);
        for ending in endings {
            // A panic of such a thread has said its own.
            let _ = ending.join();
        }
        Ok(())
    }

    fn has_ended(&self, span: Duration) -> Result<bool, GuardError> {
        self.pidfd.wait(span).map_err(|error| GuardError::Process { pid: self.pid, error })
    }

    /// Takes up the rosters that are new.
    fn look(&mut self) -> Result<(), GuardError> {
        let rosters = Rostered::list(&self.directory).map_err(GuardError::Rosters)?;
        for roster in rosters {
            let id = roster.id().map_err(GuardError::Rosters)?;
            if self.known.contains(&id) || !self.is_ours(&roster) {
                continue;
            }
            let socket =
                self.socket(&roster).map_err(|error| GuardError::Socket { interface: roster.interface, error })?;
            self.known.push(id);
            self.watched.push(Watched { roster, socket: Some(socket) });
        }
        Ok(())
    }

    /// Whether the process that we guard wrote it: not another that had its number before.
    fn is_ours(&self, roster: &Rostered) -> bool {
        roster.pid == self.pid && roster.process_started == self.process_started
    }

    /// A socket in the network namespace of the roster's interface, by a thread that goes there.
    fn socket(&self, roster: &Rostered) -> io::Result<PacketSocket> {
        if namespace_of(Path::new("/proc/thread-self/ns/net")) == Some(roster.namespace) {
            return PacketSocket::open(roster.interface);
        }
        let tasks = fs::read_dir(format!("/proc/{}/task", self.pid)).into_iter().flatten().flatten();
        let mut namespaces = tasks.map(|task| task.path().join("ns/net"));
        let theirs = match namespaces.find(|path| namespace_of(path) == Some(roster.namespace)) {
            Some(path) => &File::open(path)?,
            None => self.namespace.as_ref().ok_or(io::ErrorKind::NotFound)?,
        };
        std::thread::scope(|scope| {
            let opened = scope.spawn(|| socket::enter(theirs).and_then(|()| PacketSocket::open(roster.interface)));
            opened.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

/// Peers of one worker do not wait for those of another.
fn end_in_background(mut watched: Watched, process_lives: bool, tell: &mpsc::Sender<Report>) -> JoinHandle<()> {
    let tell = tell.clone();
    std::thread::spawn(move || {
        let (connections, error) = match end(&mut watched) {
            Ok(resets) => resets,
            Err(error) => (Vec::new(), Some(error)),
        };
        watched.roster.remove();
        if !connections.is_empty() || error.is_some() {
            let app = watched.roster.app.clone();
            let report = Report { app, pid: watched.roster.pid, process_lives, connections, error };
            // Nobody listens only where the guardian itself is on its way out.
            let _ = tell.send(report);
        }
    })
}

/// Ends what is open in a roster that has lost its writer.
fn end(watched: &mut Watched) -> io::Result<(Vec<Ended>, Option<io::Error>)> {
    let mut resets = Resets::new(watched.roster.connections()?);
    if resets.is_done() {
        return Ok((resets.ended().collect(), None));
    }
    let Some(socket) = watched.socket.take() else { return Err(io::ErrorKind::NotConnected.into()) };
    let error = tell_peers(&socket, &mut resets).err();
    Ok((resets.ended().collect(), error))
}

/// Round for round, until all peers know or the time is over. The last error that sending had is told at the end: others may go.
fn tell_peers(socket: &PacketSocket, resets: &mut Resets) -> io::Result<()> {
    // Heard from now on, so that no answer is missed; deaf it is worth doing too.
    let mut trouble = socket.listen();
    let begin = Instant::now();
    for at in ROUNDS {
        hear_until(socket, resets, begin + at, &mut trouble);
        let frames: Vec<_> = resets.round().flatten().collect();
        for batch in frames.chunks(BATCH) {
            for frame in batch {
                note(socket.send(frame), &mut trouble);
            }
            hear(socket, resets, &mut trouble);
        }
    }
    hear_until(socket, resets, begin + PATIENCE, &mut trouble);
    trouble
}

fn hear_until(socket: &PacketSocket, resets: &mut Resets, until: Instant, trouble: &mut io::Result<()>) {
    while !resets.is_done() {
        let span = until.saturating_duration_since(Instant::now());
        if span.is_zero() {
            return;
        }
        // Rounded up, so that the last millisecond is not spun through.
        note(socket.wait(span + Duration::from_millis(1)), trouble);
        hear(socket, resets, trouble);
    }
}

/// Answers what has come so far.
fn hear(socket: &PacketSocket, resets: &mut Resets, trouble: &mut io::Result<()>) {
    let mut buffer = [0; 2048];
    loop {
        match socket.receive(&mut buffer) {
            Ok(Some(frame)) => {
                if let Some(answer) = resets.hear(frame) {
                    note(socket.send(&answer), trouble);
                }
            }
            Ok(None) => return,
            Err(error) => return note(Err(error), trouble),
        }
    }
}

fn note(result: io::Result<()>, trouble: &mut io::Result<()>) {
    if result.is_err() {
        *trouble = result;
    }
}

/// The process of the one roster that is meant and has a writer.
fn only(directory: &Path, is_meant: impl Fn(&Rostered) -> bool) -> Result<u32, GuardError> {
    let rosters = Rostered::list(directory).map_err(GuardError::Rosters)?;
    let mut living: Vec<_> = rosters
        .iter()
        .filter(|roster| is_meant(roster) && roster.has_writer())
        .map(|roster| (&roster.app, roster.pid))
        .collect();
    living.dedup();
    match living[..] {
        [(_, pid)] => Ok(pid),
        [] => Err(GuardError::NoRoster(directory.to_owned())),
        _ => Err(GuardError::Several(living.iter().map(|(app, pid)| format!("{app} (pid {pid})")).collect())),
    }
}

fn namespace_of(path: &Path) -> Option<u64> {
    fs::metadata(path).ok().map(|namespace| namespace.ino())
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { app, pid, .. } = self;
        let who = if self.process_lives { "a worker of " } else { "" };
        let count = |end: End| self.connections.iter().filter(|ended| ended.end == end).count();
        let (sent, confirmed, no_way) = (count(End::Sent), count(End::Confirmed), count(End::NoWay));
        write!(
            f,
            "{who}{app} (pid {pid}) has ended with {} connections open: {} reset, of which {confirmed} peers say that they know",
            self.connections.len(),
            sent + confirmed,
        )?;
        if no_way > 0 {
            write!(f, "; {no_way} not, as their neighbour was not known")?;
        }
        if let Some(error) = &self.error {
            write!(f, "; not all went well: {error}")?;
        }
        match self.connections.len() {
            ..=LINES_MAX => self.connections.iter().try_for_each(|ended| write!(f, "\n  {ended}")),
            _ => Ok(()),
        }
    }
}

/// Why a process cannot be guarded.
#[derive(Debug)]
pub enum GuardError {
    /// It is not there, or may not be looked at.
    Process {
        /// Its number.
        pid: u32,
        /// What the kernel says.
        error: io::Error,
    },
    /// No running process has a roster there.
    NoRoster(PathBuf),
    /// More than one has: which.
    Several(Vec<String>),
    /// The rosters cannot be read.
    Rosters(io::Error),
    /// No frames can be sent for it.
    Socket {
        /// The number of the interface.
        interface: u32,
        /// What the kernel says.
        error: io::Error,
    },
}

impl core::error::Error for GuardError {}

impl fmt::Display for GuardError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process { pid, error } => write!(
                f,
                "process {pid} cannot be guarded: {error}; it must run before its guardian starts, `wirepath stats` shows who does"
            ),
            Self::NoRoster(directory) => write!(
                f,
                "no running process has open connections to be guarded in {}: name one by its pid, or another directory with --dir or \
                 WIREPATH_SHM",
                directory.display()
            ),
            Self::Several(processes) => {
                write!(f, "several processes could be meant: name one by its pid, of {}", processes.join(", "))
            }
            Self::Rosters(error) => {
                write!(f, "open connections cannot be read: {error}; be the user who runs the process, or root (sudo)")
            }
            Self::Socket { interface, error } => write!(
                f,
                "no frames can be sent on interface number {interface}: {error}; the guardian needs CAP_NET_RAW, and CAP_SYS_ADMIN where \
                 the interface is in another network namespace"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a panic here is the report

    use super::*;
    use crate::pipeline::tcp::roster::Roster;
    use crate::proto::InterfaceId;

    /// Numbers of processes are used again: a roster that says our number, and another start, was another's.
    #[test]
    #[cfg_attr(miri, ignore = "maps a file")]
    fn roster_of_an_earlier_process_with_the_same_number_is_not_taken_up() {
        let directory = tempfile::tempdir().unwrap();
        let _roster = Roster::create_in(directory.path(), "test", InterfaceId(1), 16).unwrap();
        let target = Target::Pid(std::process::id());
        let taken_up = Guardian::new(directory.path(), &target);
        // Who may not open such sockets says so, which is as good.
        assert!(!matches!(&taken_up, Ok(guardian) if guardian.rosters() == 0), "it is its own: {taken_up:?}");
        let path = fs::read_dir(directory.path()).unwrap().next().unwrap().unwrap().path();
        let (mut bytes, started) = (fs::read(&path).unwrap(), process_started(std::process::id()).unwrap());
        let at = bytes.chunks(8).position(|word| word == started.to_ne_bytes()).unwrap() * 8;
        bytes[at..at + 8].copy_from_slice(&(started - 1).to_ne_bytes());
        fs::write(&path, bytes).unwrap();
        assert_eq!(Guardian::new(directory.path(), &target).unwrap().rosters(), 0);
    }
}
