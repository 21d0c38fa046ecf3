//! The guardian's loop: it tracks the rosters of one process, waits for the process or one of its
//! workers to die, and resets the connections that were open.

use core::fmt;
use core::time::Duration;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Instant;

use super::resets::{ResetConnection, ResetOutcome, Resets};
use super::socket::{self, ANY_INTERFACE, PacketSocket, Pidfd};
use crate::counters::{Content, is_trusted, printable, remove_left_by, user_of_process};
use crate::pipeline::tcp::roster::{OpenConnection, Rostered, process_started};

/// Interval between two scans for new rosters, and for a worker that has ended while its process
/// lives. The end of the process is reported at once.
const LOOK_SPAN: Duration = Duration::from_millis(200);
/// The time a process takes from closing its files to its end: short.
const EXIT_TIME: Duration = Duration::from_millis(20);
/// When peers are sent RSTs. A kernel answers such segments twice a second at most
/// (`tcp_invalid_ratelimit`), and a NIC that loses its program may be down for a moment.
const ROUNDS: [Duration; 5] = [
    Duration::ZERO,
    Duration::from_millis(250),
    Duration::from_millis(900),
    Duration::from_millis(2_000),
    Duration::from_millis(4_000),
];
/// How long the guardian listens for peers, unless all have confirmed before.
const CONFIRMATION_TIMEOUT: Duration = Duration::from_secs(5);
/// Frames sent before received frames are processed.
const BATCH: usize = 64;
/// The user with all rights.
const ROOT: u32 = 0;
/// The privileges that a guardian needs.
const RIGHTS: &str =
    "the guardian needs CAP_NET_RAW, and CAP_SYS_ADMIN where the interface is in another network namespace";
/// Connections that a report lists individually.
const LINES_MAX: usize = 20;

/// The process to guard.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Target {
    /// The process with this pid. Its rosters may appear later.
    Pid(u32),
    /// The one process of this application that has a roster, and belongs to root or to our own
    /// user: any user can give a process this name.
    App(String),
    /// The one process that has a roster, and belongs to root or to our own user.
    Only,
}

/// Guards one process.
#[derive(Debug)]
pub struct Guardian {
    pid: u32,
    process_started: u64,
    pidfd: Pidfd,
    directory: PathBuf,
    /// The network namespace of the process when guarding began, for rosters of threads that have
    /// ended.
    namespace: Option<File>,
    /// The user whose rights the process has or had last, if we may read it. A process can drop
    /// rights as it runs.
    user: Option<u32>,
    watched: Vec<Watched>,
    /// The rosters that were opened, also finished ones, while their files have a name. Each stays
    /// open: a file system may give the inode of a removed file to the next one, a new roster say.
    known: Vec<((u64, u64), Arc<Rostered>)>,
}

/// A roster, and the socket on its interface, opened before the last thread leaves that namespace,
/// or the error.
#[derive(Debug)]
struct Watched {
    roster: Arc<Rostered>,
    socket: io::Result<PacketSocket>,
    /// The missing socket was reported.
    is_reported: bool,
}

/// A report about one worker, or about the process.
#[derive(Debug)]
pub struct GuardReport {
    /// The application, if known.
    pub app: String,
    /// Its pid.
    pub pid: u32,
    /// The reason of the report.
    pub cause: ReportCause,
    /// The worker's connections; none while the worker lives.
    pub connections: Vec<ResetConnection>,
    /// The error, if any.
    pub error: Option<io::Error>,
}

/// Why a worker is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReportCause {
    /// The worker has started, but the guardian could send no frames for it if it ended now.
    Unguarded,
    /// Rosters can no longer be listed: workers that start from now on are not guarded. Known ones
    /// are.
    Blind,
    /// The worker has ended, and its process lives.
    WorkerEnded,
    /// The process has ended.
    ProcessEnded,
}

impl Guardian {
    /// Finds the process and opens everything needed; from here on its end is not missed.
    ///
    /// # Errors
    /// No such process, or more than one; or this user may not inspect it, or may not send frames
    /// at all, which is an error even before there are any to send.
    pub fn new(directory: &Path, target: &Target) -> Result<Self, GuardError> {
        let pid = match target {
            Target::Pid(pid) => *pid,
            Target::App(app) => only(directory, |roster| roster.app == *app)?,
            Target::Only => only(directory, |_| true)?,
        };
        let no_process = |error| GuardError::Process { pid, error };
        let pidfd = Pidfd::open(pid).map_err(no_process)?;
        // The order matters: if the descriptor says that the process still lives, the start time
        // belongs to that process.
        let started = process_started(pid);
        let (Some(process_started), false) = (started, pidfd.wait(Duration::ZERO).map_err(no_process)?) else {
            return Err(no_process(io::ErrorKind::NotFound.into()));
        };
        let mut guardian = Self {
            pid,
            process_started,
            pidfd,
            directory: directory.to_owned(),
            namespace: File::open(format!("/proc/{pid}/ns/net")).ok(),
            user: None,
            watched: Vec::new(),
            known: Vec::new(),
        };
        guardian.may_send().map_err(GuardError::Packets)?;
        guardian.look().map_err(GuardError::Rosters)?;
        for Watched { roster, socket, .. } in &mut guardian.watched {
            if let Err(error) = socket {
                let error = core::mem::replace(error, io::ErrorKind::Other.into());
                return Err(GuardError::Socket { interface: roster.interface, error });
            }
        }
        Ok(guardian)
    }

    /// The pid of the process.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Rosters of it that are being watched: one for each worker with TCP.
    pub fn rosters(&self) -> usize {
        self.watched.len()
    }

    /// Waits for the process to end, and removes the shared files that it leaves. Reports each
    /// worker that leaves connections behind, each roster for whose connections no frames can be
    /// sent (once), and each time that new rosters can no longer be listed.
    ///
    /// # Errors
    /// The process cannot be waited for, or it has ended and some peers could not be sent a RST.
    pub fn watch(mut self, mut report: impl FnMut(GuardReport)) -> Result<(), GuardError> {
        let (reports, received) = mpsc::channel();
        let mut endings = Vec::new();
        let mut failures = 0;
        let mut report = |said: GuardReport| {
            let is_an_end = matches!(said.cause, ReportCause::WorkerEnded | ReportCause::ProcessEnded);
            failures += usize::from(is_an_end && said.error.is_some());
            report(said);
        };
        let mut was_blind = false;
        let looked = loop {
            let mut has_ended = self.has_ended(LOOK_SPAN)?;
            // A scan that fails now may succeed later, and known rosters remain known.
            let looked = self.look();
            if let (Err(error), false) = (&looked, was_blind) {
                report(self.blind_report(error));
            }
            was_blind = looked.is_err();
            self.watched.iter_mut().filter_map(Watched::problem_report).for_each(&mut report);
            if !has_ended && self.watched.iter().any(|watched| !watched.roster.has_writer()) {
                // An exiting process closes its files a moment before it has ended.
                has_ended = self.has_ended(EXIT_TIME)?;
            }
            let (over, on): (Vec<_>, Vec<_>) =
                self.watched.drain(..).partition(|watched| has_ended || !watched.roster.has_writer());
            self.watched = on;
            for watched in over {
                let cause = if has_ended { ReportCause::ProcessEnded } else { ReportCause::WorkerEnded };
                endings.push(end_in_background(watched, cause, &reports));
            }
            if has_ended {
                break looked;
            }
            received.try_iter().for_each(&mut report);
        };
        drop(reports);
        received.iter().for_each(&mut report);
        for ending in endings {
            // If such a thread panicked, it has printed the panic.
            let _ = ending.join();
        }
        // A roster that was not read, or whose peers were not reset, is all that is known of them.
        let kept = (failures > 0 || looked.is_err()).then_some(Content::Connections);
        // Where that fails, the next start of its user removes them.
        let _ = remove_left_by(&self.directory, self.pid, kept, |user| self.is_believed(user));
        match failures {
            0 => looked.map_err(GuardError::Rosters),
            workers => Err(GuardError::PeersNotReset { workers }),
        }
    }

    /// The report that new rosters cannot be listed.
    fn blind_report(&self, error: &io::Error) -> GuardReport {
        let app = self.watched.first().map_or_else(String::new, |watched| watched.roster.app.clone());
        let error = io::Error::new(error.kind(), format!("{}: {error}", printable(self.directory.display())));
        GuardReport { app, pid: self.pid, cause: ReportCause::Blind, connections: Vec::new(), error: Some(error) }
    }

    fn has_ended(&self, span: Duration) -> Result<bool, GuardError> {
        self.pidfd.wait(span).map_err(|error| GuardError::Process { pid: self.pid, error })
    }

    /// Whether we may send frames at all in the namespace of the process. We check this before
    /// there is a worker: otherwise no one would notice that the guardian lacks the right and is
    /// useless.
    fn may_send(&self) -> io::Result<()> {
        match self.namespace.as_ref().and_then(number_of) {
            Some(theirs) => self.socket(theirs, ANY_INTERFACE),
            None => PacketSocket::open(ANY_INTERFACE),
        }
        .map(drop)
    }

    /// Opens new rosters, and retries those without a socket.
    fn look(&mut self) -> io::Result<()> {
        let mut watched = core::mem::take(&mut self.watched);
        for Watched { roster, socket, .. } in watched.iter_mut().filter(|watched| watched.socket.is_err()) {
            *socket = self.socket(roster.namespace, roster.interface);
        }
        self.watched = watched;
        self.user = user_of_process(self.pid).or(self.user);
        let rosters = Rostered::list_of(&self.directory, self.pid, |user| self.is_believed(user))?;
        let listed = rosters.iter().map(Rostered::id).collect::<io::Result<Vec<_>>>()?;
        let is_watched =
            |known: &Arc<Rostered>| self.watched.iter().any(|Watched { roster, .. }| Arc::ptr_eq(roster, known));
        self.known.retain(|(id, roster)| listed.contains(id) || is_watched(roster));
        for (id, roster) in listed.into_iter().zip(rosters) {
            // Excludes another process that had this pid before.
            if self.known.iter().any(|(known, _)| *known == id) || roster.process_started != self.process_started {
                continue;
            }
            let socket = self.socket(roster.namespace, roster.interface);
            let roster = Arc::new(roster);
            self.known.push((id, Arc::clone(&roster)));
            self.watched.push(Watched { roster, socket, is_reported: false });
        }
        Ok(())
    }

    /// Whether the process itself may have written a roster with this owner: its own user, or root
    /// if it has dropped root since. Frames are sent in its name, so a roster of another user would
    /// have that user's frames sent with our rights.
    fn is_believed(&self, user: u32) -> bool {
        user == ROOT || Some(user) == self.user
    }

    /// A socket for an interface in that network namespace, opened by a thread that enters it. The
    /// process must be in that namespace: otherwise a roster that names another one, ours above
    /// all, would make us send frames where its writer cannot. We assume our own namespace only if
    /// we may not read that of the process, which is so for a process of our own user whose
    /// executable gives it privileges.
    fn socket(&self, namespace: u64, interface: u32) -> io::Result<PacketSocket> {
        let is_here = namespace_of(Path::new("/proc/thread-self/ns/net")) == Some(namespace);
        let Some(first) = &self.namespace else {
            return if is_here { PacketSocket::open(interface) } else { Err(io::ErrorKind::PermissionDenied.into()) };
        };
        let tasks = fs::read_dir(format!("/proc/{}/task", self.pid)).into_iter().flatten().flatten();
        let theirs = tasks.filter_map(|task| File::open(task.path().join("ns/net")).ok());
        let found = [first.try_clone()?].into_iter().chain(theirs).find(|file| number_of(file) == Some(namespace));
        let found = found.ok_or_else(|| io::Error::other("the process is in no such network namespace"))?;
        if is_here {
            return PacketSocket::open(interface);
        }
        std::thread::scope(|scope| {
            let opened = scope.spawn(|| socket::enter(&found).and_then(|()| PacketSocket::open(interface)));
            opened.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

impl Watched {
    /// Reports, once, that no frames can be sent for it.
    fn problem_report(&mut self) -> Option<GuardReport> {
        let error = self.socket.as_ref().err().filter(|_| !self.is_reported)?;
        self.is_reported = true;
        let Rostered { app, pid, interface, .. } = &*self.roster;
        let error = io::Error::new(error.kind(), format!("no frames on interface number {interface}: {error}"));
        Some(GuardReport {
            app: app.clone(),
            pid: *pid,
            cause: ReportCause::Unguarded,
            connections: Vec::new(),
            error: Some(error),
        })
    }
}

/// Runs on a thread of its own, so that the peers of one worker do not wait for those of another.
fn end_in_background(watched: Watched, cause: ReportCause, reports: &mpsc::Sender<GuardReport>) -> JoinHandle<()> {
    let reports = reports.clone();
    std::thread::spawn(move || {
        let Watched { roster, socket, .. } = watched;
        let (connections, error) = match roster.connections() {
            Ok(open) => end(open, socket),
            Err(error) => (Vec::new(), Some(error)),
        };
        roster.remove();
        if !connections.is_empty() || error.is_some() {
            let report = GuardReport { app: roster.app.clone(), pid: roster.pid, cause, connections, error };
            // The receiver is gone only if the guardian itself is exiting.
            let _ = reports.send(report);
        }
    })
}

/// Resets the open connections of a roster that has lost its writer. Returns their outcomes, and an
/// error if there was one.
fn end(open: Vec<OpenConnection>, socket: io::Result<PacketSocket>) -> (Vec<ResetConnection>, Option<io::Error>) {
    let mut resets = Resets::new(open);
    if resets.is_done() {
        return (resets.ended().collect(), None);
    }
    match socket {
        Ok(socket) => {
            let mut was_sent = false;
            let error = reset_peers(&socket, &mut resets, &mut was_sent).err();
            let ended = if was_sent { resets.ended().collect() } else { not_reset(&resets) };
            (ended, error)
        }
        Err(error) => (not_reset(&resets), Some(error)),
    }
}

/// The outcomes if no frame was sent.
fn not_reset(resets: &Resets) -> Vec<ResetConnection> {
    let not_reset = |ended: ResetConnection| match ended.end {
        ResetOutcome::Sent => ResetConnection { end: ResetOutcome::NotSent, ..ended },
        _ => ended,
    };
    resets.ended().map(not_reset).collect()
}

/// Sends round after round, until all peers have confirmed or the time is over. The last send error
/// is returned at the end, if a peer is left: the other frames may succeed, and a link that was
/// down at first may return.
fn reset_peers(socket: &PacketSocket, resets: &mut Resets, was_sent: &mut bool) -> io::Result<()> {
    // Listens from now on, so that no answer is missed; if that fails the rounds are still worth
    // sending.
    let mut trouble = socket.listen();
    let begin = Instant::now();
    for at in ROUNDS {
        receive_until(socket, resets, begin + at, &mut trouble);
        let frames: Vec<_> = resets.round().flatten().collect();
        for batch in frames.chunks(BATCH) {
            for frame in batch {
                let sent = socket.send(frame);
                *was_sent |= sent.is_ok();
                note(sent, &mut trouble);
            }
            receive(socket, resets, &mut trouble);
        }
    }
    receive_until(socket, resets, begin + CONFIRMATION_TIMEOUT, &mut trouble);
    if resets.is_done() { Ok(()) } else { trouble }
}

fn receive_until(socket: &PacketSocket, resets: &mut Resets, until: Instant, trouble: &mut io::Result<()>) {
    while !resets.is_done() {
        let span = until.saturating_duration_since(Instant::now());
        if span.is_zero() {
            return;
        }
        // Rounded up, so that the last millisecond is not a busy loop.
        note(socket.wait(span + Duration::from_millis(1)), trouble);
        receive(socket, resets, trouble);
    }
}

/// Answers the frames received so far.
fn receive(socket: &PacketSocket, resets: &mut Resets, trouble: &mut io::Result<()>) {
    let mut buffer = [0; 2048];
    loop {
        match socket.receive(&mut buffer) {
            Ok(Some(frame)) => {
                if let Some(answer) = resets.receive(frame) {
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

/// The process of the one matching roster that has a writer. Processes of other users can choose
/// any name, so they are guarded only by pid.
fn only(directory: &Path, is_meant: impl Fn(&Rostered) -> bool) -> Result<u32, GuardError> {
    let rosters = Rostered::list(directory).map_err(GuardError::Rosters)?;
    let living = rosters.iter().filter(|roster| is_meant(roster) && roster.has_writer());
    let (ours, others): (Vec<_>, Vec<_>) = living.partition(|roster| is_trusted(roster.user));
    let names = |rosters: &[&Rostered]| {
        let mut names: Vec<_> = rosters.iter().map(|roster| name_of(roster)).collect();
        names.dedup();
        names
    };
    let mut pids: Vec<_> = ours.iter().map(|roster| roster.pid).collect();
    pids.dedup();
    match pids[..] {
        [pid] => Ok(pid),
        [] if others.is_empty() => Err(GuardError::NoRoster(directory.to_owned())),
        [] => Err(GuardError::OfOthers(names(&others))),
        _ => Err(GuardError::Several(names(&ours))),
    }
}

fn name_of(roster: &Rostered) -> String {
    let Rostered { app, pid, user, .. } = roster;
    let whose = if is_trusted(*user) { String::new() } else { format!(" of user {user}") };
    format!("{} (pid {pid}{whose})", printable(app))
}

fn namespace_of(path: &Path) -> Option<u64> {
    fs::metadata(path).ok().map(|namespace| namespace.ino())
}

fn number_of(namespace: &File) -> Option<u64> {
    namespace.metadata().ok().map(|namespace| namespace.ino())
}

impl fmt::Display for GuardReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (app, pid) = (printable(&self.app), self.pid);
        let who = match self.cause {
            ReportCause::Unguarded => {
                write!(f, "{app} (pid {pid}) has a worker that is not guarded")?;
                return self.error.iter().try_for_each(|error| write!(f, ": {error}; {RIGHTS}"));
            }
            ReportCause::Blind => {
                write!(
                    f,
                    "workers that process {pid} begins from now on are not guarded, as their rosters cannot be read"
                )?;
                self.error.iter().try_for_each(|error| write!(f, ": {error}"))?;
                return f.write_str("; those that are known are: make the directory readable again");
            }
            ReportCause::WorkerEnded => "a worker of ",
            ReportCause::ProcessEnded => "",
        };
        let count = |end: ResetOutcome| self.connections.iter().filter(|ended| ended.end == end).count();
        let (sent, confirmed) = (count(ResetOutcome::Sent), count(ResetOutcome::Confirmed));
        let (never_known, not_sent) = (count(ResetOutcome::NeverKnown), count(ResetOutcome::NotSent));
        write!(
            f,
            "{who}{app} (pid {pid}) has ended with {} connections open: {} reset, of which {confirmed} peers say that they know",
            self.connections.len(),
            sent + confirmed,
        )?;
        if never_known > 0 {
            write!(f, "; {never_known} not, as their neighbor was never known")?;
        }
        if not_sent > 0 {
            write!(f, "; {not_sent} not, as no frames could be sent: their peers believe in them")?;
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
#[non_exhaustive]
pub enum GuardError {
    /// The process does not exist, or may not be inspected.
    Process {
        /// Its pid.
        pid: u32,
        /// The kernel's error.
        error: io::Error,
    },
    /// No running process has a roster in this directory.
    NoRoster(PathBuf),
    /// Several processes have a roster: their names.
    Several(Vec<String>),
    /// Only processes of other users match: their names.
    OfOthers(Vec<String>),
    /// The rosters cannot be read.
    Rosters(io::Error),
    /// No frames can be sent, on any interface.
    Packets(io::Error),
    /// The process has ended, and some peers could not be sent a RST. The reports name them.
    PeersNotReset {
        /// Workers with such peers.
        workers: usize,
    },
    /// No frames can be sent for this worker.
    Socket {
        /// The interface index.
        interface: u32,
        /// The kernel's error.
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
                printable(directory.display())
            ),
            Self::Several(processes) => {
                write!(f, "several processes could be meant: name one by its pid, of {}", processes.join(", "))
            }
            Self::OfOthers(processes) => write!(
                f,
                "only processes of other users say that they are meant: name one by its pid, if that user may have connections reset \
                 from here, of {}",
                processes.join(", ")
            ),
            Self::Rosters(error) => {
                write!(f, "open connections cannot be read: {error}; be the user who runs the process, or root (sudo)")
            }
            Self::Socket { interface, error } => {
                write!(f, "no frames can be sent on interface number {interface}: {error}; {RIGHTS}")
            }
            Self::Packets(error) => write!(f, "no frames can be sent: {error}; {RIGHTS}"),
            Self::PeersNotReset { workers } => write!(
                f,
                "not all peers of {workers} workers could be reset, see the reports: call the venue, its sessions may still be open"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a panic here is the report

    use std::os::unix::fs::{FileExt, chown};
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    use super::*;
    use crate::pipeline::tcp::roster::Roster;
    use crate::proto::{Flow, InterfaceId};

    /// A bound on waiting, for a machine that is busy.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// Pids are reused: a roster with this pid and another start time was written by another
    /// process.
    #[test]
    #[cfg_attr(miri, ignore = "maps a file")]
    fn roster_of_an_earlier_process_with_the_same_number_is_not_taken_up() {
        let directory = tempfile::tempdir().unwrap();
        let _roster = Roster::create_in(directory.path(), "test", InterfaceId(1), 16).unwrap();
        let Some(guardian) = guardian(directory.path(), std::process::id()) else { return };
        assert_eq!(guardian.rosters(), 1, "it is its own");
        let path = fs::read_dir(directory.path()).unwrap().next().unwrap().unwrap().path();
        let started = process_started(std::process::id()).unwrap();
        let _ = sign(&path, std::process::id(), started - 1);
        assert_eq!(Guardian::new(directory.path(), &Target::Pid(std::process::id())).unwrap().rosters(), 0);
    }

    #[test]
    #[cfg_attr(miri, ignore = "starts a process")]
    fn shared_files_of_a_killed_process_go_with_its_guardian_and_no_others() {
        let directory = tempfile::tempdir().unwrap();
        let sleeper = Sleeper::new(&mut sleep());
        let pid = sleeper.0.id();
        let left = |name: &str, word: &[u8; 8]| {
            let path = directory.path().join(name);
            fs::write(&path, word).unwrap();
            path
        };
        let its = [
            left(&format!("test.{pid}.counters"), b"wirepath"),
            left(&format!("test.{pid}-2.tap"), b"wire-tap"),
            left(&format!("test.{pid}.sockets"), b"wiresock"),
        ];
        let others = [
            left(&format!("test.{}.counters", pid + 1), b"wirepath"),
            left(&format!("notes.{pid}.counters"), b"anything"),
            left(&format!("alive.{pid}.sockets"), b"wiresock"),
        ];
        let locked = File::open(&others[2]).unwrap();
        locked.lock().unwrap();
        let Some(guardian) = guardian(directory.path(), pid) else { return };
        drop(sleeper);
        guardian.watch(|_| ()).unwrap();
        assert_eq!(its.map(|path| path.exists()), [false; 3]);
        assert_eq!(others.map(|path| path.exists()), [true; 3]);
    }

    /// None if this user may not send frames; `new` then reports that at once.
    fn guardian(directory: &Path, pid: u32) -> Option<Guardian> {
        match Guardian::new(directory, &Target::Pid(pid)) {
            Err(GuardError::Packets(error)) => {
                println!("SKIPPED: no frames can be sent: {error}");
                None
            }
            guardian => Some(guardian.unwrap()),
        }
    }

    /// Makes a roster name another process as its writer. Returns its new path.
    fn sign(path: &Path, pid: u32, started: u64) -> PathBuf {
        let ours = [u64::from(std::process::id()), process_started(std::process::id()).unwrap()];
        let mut bytes = fs::read(path).unwrap();
        let at = bytes.chunks(8).zip(bytes.chunks(8).skip(1));
        let at = at.map(|(pid, started)| [pid, started]).position(|words| words == ours.map(u64::to_ne_bytes)).unwrap();
        bytes.truncate(8 * at);
        bytes.extend([u64::from(pid), started].map(u64::to_ne_bytes).concat());
        fs::OpenOptions::new().write(true).open(path).unwrap().write_all_at(&bytes, 0).unwrap();
        let name = path.file_name().unwrap().to_str().unwrap();
        let signed = path.with_file_name(name.replacen(&std::process::id().to_string(), &pid.to_string(), 1));
        fs::rename(path, &signed).unwrap();
        signed
    }

    /// A process that does nothing, until it is dropped.
    struct Sleeper(std::process::Child);

    impl Sleeper {
        fn new(command: &mut Command) -> Self {
            Self(command.spawn().unwrap())
        }

        /// A roster with one connection, in its name.
        fn roster(&self, directory: &Path) -> (Roster, PathBuf) {
            let mut roster = Roster::create_in(directory, "test", InterfaceId(1), 16).unwrap();
            roster.open(3, &connection());
            let path = sign(roster.path(), self.0.id(), process_started(self.0.id()).unwrap());
            (roster, path)
        }
    }

    impl Drop for Sleeper {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn sleep() -> Command {
        let mut command = Command::new("sleep");
        command.arg("30");
        command
    }

    fn connection() -> OpenConnection {
        let remote = "10.9.0.2:80".parse().unwrap();
        let flow = Flow { local: "10.9.0.1:80".parse().unwrap(), remote };
        OpenConnection { flow, link: [7; 14].into_iter().collect(), snd_nxt: 5, rcv_nxt: 6 }
    }

    fn is_root() -> bool {
        let is_root = fs::metadata("/proc/self").unwrap().uid() == ROOT;
        if !is_root {
            println!("SKIPPED: only root can give files to others");
        }
        is_root
    }

    /// Any user can write a file that names a process and connections: it is accepted only from the
    /// process's own user, or root.
    #[test]
    #[cfg_attr(miri, ignore = "maps a file")]
    fn roster_that_another_user_has_written_is_not_taken_up() {
        const SOMEBODY: u32 = 4_711;
        if !is_root() {
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let check = |user_of_process: u32, user_of_roster: u32, expected: usize| {
            let sleeper = Sleeper::new(sleep().uid(user_of_process));
            let (_roster, path) = sleeper.roster(directory.path());
            chown(&path, Some(user_of_roster), None).unwrap();
            let guardian = Guardian::new(directory.path(), &Target::Pid(sleeper.0.id())).unwrap();
            assert_eq!(guardian.rosters(), expected, "user {user_of_roster} says it of user {user_of_process}");
        };
        check(ROOT, SOMEBODY, 0);
        check(SOMEBODY, SOMEBODY + 1, 0);
        check(SOMEBODY, SOMEBODY, 1);
        // The process has dropped root since.
        check(SOMEBODY, ROOT, 1);
        check(ROOT, ROOT, 1);
    }

    /// A file that another user has created under the pid, and that cannot be opened, hides no
    /// genuine roster.
    #[test]
    #[cfg_attr(miri, ignore = "maps a file")]
    fn what_another_user_puts_beside_a_roster_is_passed_over() {
        if !is_root() {
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let sleeper = Sleeper::new(&mut sleep());
        let plant = |app: &str| directory.path().join(format!("{app}.{}.connections", sleeper.0.id()));
        std::os::unix::fs::symlink("/proc/self/mem", plant("link")).unwrap();
        fs::create_dir(plant("folder")).unwrap();
        fs::write(plant("empty"), "").unwrap();
        assert!(Command::new("mkfifo").arg(plant("pipe")).status().unwrap().success());
        for app in ["link", "folder", "empty", "pipe"] {
            std::os::unix::fs::lchown(plant(app), Some(4_711), None).unwrap();
        }
        assert_eq!(Guardian::new(directory.path(), &Target::Pid(sleeper.0.id())).unwrap().rosters(), 0);
        let (_roster, _) = sleeper.roster(directory.path());
        assert_eq!(Guardian::new(directory.path(), &Target::Pid(sleeper.0.id())).unwrap().rosters(), 1);
    }

    /// ext4 gives the inode of a removed file to the next one (tmpfs does not): a program that
    /// begins anew, or executes another one, is guarded all the same.
    #[test]
    #[cfg_attr(miri, ignore = "maps a file")]
    fn roster_that_has_the_inode_of_a_finished_one_is_taken_up() {
        if !is_root() {
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let sleeper = Sleeper::new(&mut sleep());
        let (first, path) = sleeper.roster(directory.path());
        let mut guardian = Guardian::new(directory.path(), &Target::Pid(sleeper.0.id())).unwrap();
        drop(first);
        fs::remove_file(path).unwrap();
        guardian.watched.clear();
        for looks in 0..2 {
            (0..looks).for_each(|_| guardian.look().unwrap());
            let (second, path) = sleeper.roster(directory.path());
            guardian.look().unwrap();
            assert_eq!(guardian.rosters(), 1, "behind {looks} looks");
            guardian.watched.clear();
            drop(second);
            fs::remove_file(path).unwrap();
        }
    }

    /// A process in another network namespace, a container say, cannot make us send frames in our
    /// namespace, nor in a third one.
    #[test]
    #[cfg_attr(miri, ignore = "maps a file")]
    fn roster_of_a_namespace_that_its_process_is_not_in_is_not_served() {
        if !is_root() {
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let inside = Sleeper::new(Command::new("unshare").args(["--net", "sleep", "30"]));
        let outside = Sleeper::new(&mut sleep());
        let net = |sleeper: &Sleeper| namespace_of(Path::new(&format!("/proc/{}/ns/net", sleeper.0.id()))).unwrap();
        let begin = Instant::now();
        while net(&inside) == net(&outside) {
            assert!(begin.elapsed() < PATIENCE, "unshare does not come to its namespace");
            std::thread::yield_now();
        }
        let check = |sleeper: &Sleeper, namespace: u64, is_served: bool| {
            let (_roster, path) = sleeper.roster(directory.path());
            // Word 6 of its header.
            let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
            file.write_all_at(&namespace.to_ne_bytes(), 6 * 8).unwrap();
            let guardian = Guardian::new(directory.path(), &Target::Pid(sleeper.0.id()));
            fs::remove_file(path).unwrap();
            match guardian {
                Ok(guardian) => assert!(is_served && guardian.rosters() == 1),
                Err(error) => {
                    let said = error.to_string();
                    assert!(!is_served && said.contains("the process is in no such network namespace"), "{said}");
                }
            }
        };
        check(&inside, net(&inside), true);
        check(&outside, net(&outside), true);
        check(&inside, net(&outside), false);
        check(&outside, net(&inside), false);
        check(&outside, 1, false);
    }

    /// Any user can choose a name, so another user's process is never guarded by its name.
    #[test]
    #[cfg_attr(miri, ignore = "maps a file")]
    fn process_of_another_user_is_guarded_only_by_its_number() {
        if !is_root() {
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let theirs = Sleeper::new(sleep().uid(4_711));
        let (_roster, path) = theirs.roster(directory.path());
        chown(&path, Some(4_711), None).unwrap();
        for target in [Target::Only, Target::App("test".into())] {
            let refused = Guardian::new(directory.path(), &target).unwrap_err().to_string();
            assert!(refused.contains(&format!("test (pid {} of user 4711)", theirs.0.id())), "{refused}");
        }
        assert_eq!(Guardian::new(directory.path(), &Target::Pid(theirs.0.id())).unwrap().rosters(), 1);
        // The foreign roster does not block one of our own either.
        let ours = Sleeper::new(&mut sleep());
        let (_ours, _) = ours.roster(directory.path());
        assert_eq!(Guardian::new(directory.path(), &Target::App("test".into())).unwrap().pid(), ours.0.id());
    }

    #[test]
    #[cfg_attr(miri, ignore = "waits for a process")]
    fn directory_that_cannot_be_listed_any_more_is_reported_at_once_and_once() {
        let directory = tempfile::tempdir().unwrap();
        let rosters = directory.path().join("rosters");
        fs::create_dir(&rosters).unwrap();
        let mut sleeper = Command::new("sleep").arg("30").spawn().unwrap();
        let guardian = guardian(&rosters, sleeper.id());
        if let Some(guardian) = guardian {
            let (reports, received) = mpsc::channel();
            let watching = std::thread::spawn(move || guardian.watch(|report| reports.send(report).unwrap()));
            fs::remove_dir(&rosters).unwrap();
            fs::write(&rosters, "no directory").unwrap();
            let report = received.recv_timeout(PATIENCE).unwrap();
            assert_eq!((report.cause, report.pid), (ReportCause::Blind, sleeper.id()), "{report}");
            assert!(report.to_string().contains("make the directory readable again"), "{report}");
            assert!(received.recv_timeout(3 * LOOK_SPAN).is_err(), "once");
            sleeper.kill().unwrap();
            assert!(matches!(watching.join().unwrap(), Err(GuardError::Rosters(_))), "and at the end");
        }
        // The process has ended already, or is no longer needed.
        let _ = sleeper.kill();
        sleeper.wait().unwrap();
    }

    #[test]
    #[cfg_attr(miri, ignore = "maps a file")]
    fn roster_that_no_frames_can_be_sent_for_is_reported_and_hides_no_other() {
        let directory = tempfile::tempdir().unwrap();
        let mut sleeper = Command::new("sleep").arg("30").spawn().unwrap();
        let (pid, started) = (sleeper.id(), process_started(sleeper.id()).unwrap());
        let Some(guardian) = guardian(directory.path(), pid) else {
            sleeper.kill().unwrap();
            sleeper.wait().unwrap();
            return;
        };
        let (reports, received) = mpsc::channel();
        let watching = std::thread::spawn(move || guardian.watch(|report| reports.send(report).unwrap()));
        // No namespace has an interface with this number. The others are on the loopback.
        let mut rosters = ["a", "bad", "c"].map(|app| {
            let interface = InterfaceId(if app == "bad" { u32::MAX } else { 1 });
            Roster::create_in(directory.path(), app, interface, 16).unwrap()
        });
        rosters[1].open(3, &connection());
        rosters.iter().for_each(|roster| drop(sign(roster.path(), pid, started)));
        let report = received.recv_timeout(PATIENCE).unwrap();
        let [unread, counters] = ["connections", "counters"].map(|suffix| {
            let path = directory.path().join(format!("unread.{pid}.{suffix}"));
            let content = if suffix == "counters" { Content::Counters } else { Content::Connections };
            fs::write(&path, content.magic().to_ne_bytes()).unwrap();
            path
        });
        assert_eq!((&*report.app, report.cause), ("bad", ReportCause::Unguarded), "{report}");
        assert!(report.to_string().contains("number 4294967295") && report.to_string().contains(RIGHTS), "{report}");
        assert!(received.recv_timeout(3 * LOOK_SPAN).is_err(), "once, and nothing of those that are guarded");
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
        let report = received.recv_timeout(PATIENCE).unwrap();
        assert_eq!((&*report.app, report.cause), ("bad", ReportCause::ProcessEnded), "{report}");
        let ended: Vec<_> = report.connections.iter().map(|ended| (ended.flow, ended.end)).collect();
        assert_eq!(ended, [(connection().flow, ResetOutcome::NotSent)], "{report}");
        assert!(matches!(watching.join().unwrap(), Err(GuardError::PeersNotReset { workers: 1 })));
        assert_eq!(
            (unread.exists(), counters.exists()),
            (true, false),
            "what was not read stays where not all is well"
        );
        assert!(received.try_recv().is_err() && Rostered::list(directory.path()).unwrap().is_empty());
    }
}
