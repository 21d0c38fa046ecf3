//! What people say while the gateway runs: by a socket, by a file, by signals. Each has a thread of
//! its own, so that none waits for another, and the hot core takes commands from a channel.
//!
//! ```text
//!  SIGUSR1, SIGHUP ─▶ signals ───┐             a reading of the limits has a thread too:
//!  the kill file ───▶ kill-file ─┼─▶ KillSwitch, Command     it may never end
//!  the socket ──────▶ control ─▶ talk, one for each connection
//! ```

use std::io::{self, Read, Write};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use market::Symbol;
use order_entry::risk::{InstrumentIdx, KillCause, KillSwitch, Limits, StrategyIdx};
use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;
use wirepath::worker::affinity::spawn_helper;

use crate::config::VenueNeeds;
use crate::core::Instrument;
use crate::limits::LimitsFile;
use crate::logger::Logger;

/// Bytes of a command's line that are read.
const LINE_MAX: usize = 256;

/// In front of a strategy's name.
const STRATEGY: &str = "strategy ";

/// Connections that are served at once; others wait for the end of one.
const TALKERS: usize = 16;

/// The pauses between two looks: at the flags of signals, and at a file or a socket.
const SIGNALS_PAUSE: Duration = Duration::from_millis(1);
const LOOK_PAUSE: Duration = Duration::from_millis(5);

/// How long the file of limits may take: its disk may hang, or a pipe be in its place.
const LIMITS_MAX: Duration = Duration::from_secs(2);
const LIMITS_HANG: &str = "the file of limits does not answer: no other limits are in force";

/// The kill file is looked at so often at least: the disk of its directory may hang.
const KILL_FILE_MAX: Duration = Duration::from_secs(2);
const KILL_FILE_HANGS: &str = "the kill file's disk does not answer: that it appears is not heard while it does not; `kill` \
                               and SIGUSR1 are";

/// How long a command's line may take.
const LINE_TIME: Duration = Duration::from_secs(1);
/// The same of who may not command.
const STRANGERS_TIME: Duration = Duration::from_millis(20);

/// How long the hot core may take to say how it is; it looks once a turn.
const STATUS_MAX: Duration = Duration::from_secs(2);

const COMMANDS: &str = "the commands are status, arm, disarm, cancel, kill, reload, unblock SYMBOL, alone, handover, \
                        kill strategy NAME, arm strategy NAME";

/// A command for the hot core.
#[derive(Debug)]
pub enum Command {
    /// Let orders pass, unless the kill switch was thrown since its
    /// [`throws`](KillSwitch::throws) had this value.
    Arm(u64),
    /// Say whether orders pass, and what stops them.
    Status(Sender<String>),
    /// The kill switch was thrown. There is nothing to do, because each turn looks at it; who says
    /// it hears whether there is a next turn.
    Kill,
    /// Refuse orders.
    Disarm,
    /// Cancel all orders; new ones pass as before.
    CancelAll,
    /// The standby does not run: go on without it.
    Alone,
    /// Send nothing any more, and have the standby take over.
    HandOver,
    /// Put these limits in force.
    Limits(Box<Limits>),
    /// A person has compared this instrument with the venue.
    Unblock(InstrumentIdx),
    /// Stop one strategy and cancel its orders; others trade on.
    KillStrategy(StrategyIdx),
    /// Let a strategy that was stopped trade again.
    ArmStrategy(StrategyIdx),
}

/// What the threads hear.
#[derive(Clone, Debug, Default)]
pub struct ControlConfig {
    /// A socket that takes one command a line: `status`, `arm`, `disarm`, `cancel`, `kill`,
    /// `reload`, `unblock SYMBOL`, `alone`, `handover`, `kill strategy NAME`, `arm strategy NAME`.
    /// By default none.
    pub socket: Option<PathBuf>,
    /// The kill switch is thrown when this file appears. By default none.
    pub kill_file: Option<PathBuf>,
    /// The limits that `reload` reads.
    pub limits: PathBuf,
    /// The instruments of the start: other limits must be for the same, in the same order.
    pub instruments: Box<[Instrument]>,
    /// The opening positions of the start: other limits have the same. By default none.
    pub opening_positions: Box<[(InstrumentIdx, i64)]>,
    /// The strategies of the start, likewise. By default none.
    pub strategies: Box<[String]>,
    /// What other limits must have for the venue. By default nothing, but that trades with oneself
    /// are not left to it.
    pub venue: VenueNeeds,
    /// Who is told what had no other answer. By default nobody.
    pub logger: Option<Logger>,
}

/// What a run has of it.
#[derive(Debug)]
pub struct ControlHandle {
    /// The commands.
    pub commands: Receiver<Command>,
    /// The signal that is a kill.
    pub kill_signal: KillSignal,
}

/// SIGUSR1, which throws a kill switch. Who looks first throws it; clones are of the same signal.
#[derive(Clone, Debug)]
pub struct KillSignal {
    has_come: Arc<AtomicBool>,
    kill: KillSwitch,
}

impl KillSignal {
    fn register(kill: KillSwitch) -> io::Result<Self> {
        let has_come = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(signal_hook::consts::SIGUSR1, Arc::clone(&has_come))?;
        Ok(Self { has_come, kill })
    }

    /// Throws the switch where the signal has come since the last look. One load where not.
    pub fn look(&self) {
        if self.has_come.load(Ordering::Relaxed) && self.has_come.swap(false, Ordering::AcqRel) {
            self.kill.throw_for(KillCause::Signal);
        }
    }
}

/// Starts the threads. SIGUSR1 throws the kill switch, SIGHUP reads the limits again. A thread that
/// ends throws it too: what it heard is heard no more.
///
/// # Errors
///
/// The socket cannot be made, or a signal cannot be had.
pub fn start(config: ControlConfig, kill: KillSwitch) -> io::Result<ControlHandle> {
    let kill_signal = KillSignal::register(kill.clone())?;
    let reload_signal = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGHUP, Arc::clone(&reload_signal))?;
    let listener = config.socket.as_deref().map(bind).transpose()?;
    let kill_file = config.kill_file.clone();
    let (sender, commands) = channel();
    let (is_reading, talkers) = (AtomicBool::new(false), AtomicUsize::new(0));
    let control = Arc::new(Control { config, kill, sender, is_reading, talkers });
    let (signal, looks) = (kill_signal.clone(), Arc::new(AtomicU64::new(0)));
    let (counted, mut watch) = (Arc::clone(&looks), kill_file.is_some().then(|| LookWatch::new(Instant::now())));
    control.hear("signals", SIGNALS_PAUSE, move |control| {
        signal.look();
        if watch.as_mut().is_some_and(|watch| watch.is_late(counted.load(Ordering::Relaxed), Instant::now())) {
            control.say(KILL_FILE_HANGS);
        }
        if reload_signal.swap(false, Ordering::AcqRel) {
            control.reload();
        }
    })?;
    if let Some(path) = kill_file {
        let mut was_there = false;
        control.hear("kill-file", LOOK_PAUSE, move |control| {
            let is_there = path.exists();
            looks.fetch_add(1, Ordering::Relaxed);
            if is_there && !was_there {
                control.kill.throw_for(KillCause::File);
            }
            was_there = is_there;
        })?;
    }
    if let Some(listener) = listener {
        control.hear("control", LOOK_PAUSE, move |control| {
            while let Ok((stream, _)) = listener.accept() {
                control.talk(stream);
            }
        })?;
    }
    Ok(ControlHandle { commands, kill_signal })
}

/// Watches whether somebody goes on looking.
struct LookWatch {
    looks: u64,
    since: Instant,
    is_told: bool,
}

impl LookWatch {
    const fn new(now: Instant) -> Self {
        Self { looks: 0, since: now, is_told: false }
    }

    /// Whether there was no other look for too long, once until there is one.
    fn is_late(&mut self, looks: u64, now: Instant) -> bool {
        if looks != self.looks {
            *self = Self { looks, since: now, is_told: false };
        }
        let is_late = now.saturating_duration_since(self.since) >= KILL_FILE_MAX;
        is_late && !core::mem::replace(&mut self.is_told, is_late)
    }
}

/// A socket that only the user who runs the gateway can reach, because its mode says so. The socket
/// of a gateway that has ended is replaced; that of one that runs, and any other file, is not.
fn bind(path: &Path) -> io::Result<UnixListener> {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => (),
        Err(error) => return Err(error),
        Ok(found) if !found.file_type().is_socket() => {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "a file that is no socket has this name"));
        }
        Ok(_) if UnixStream::connect(path).is_ok() => {
            return Err(io::Error::new(io::ErrorKind::AddrInUse, "another gateway listens there"));
        }
        Ok(_) => std::fs::remove_file(path)?,
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// The bytes up to the end of the line; of a longer one than any command's, its beginning. All of
/// it is read, because a socket that is closed with bytes unread resets, and loses its answer.
fn read_line(mut stream: &UnixStream, within: Duration) -> io::Result<Vec<u8>> {
    let end = Instant::now() + within;
    let mut line = Vec::new();
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        let mut bytes = [0; LINE_MAX];
        let len = stream.read(&mut bytes)?;
        let room = LINE_MAX - line.len();
        line.extend_from_slice(&bytes[..len.min(room)]);
        if len == 0 || bytes[..len].contains(&b'\n') {
            return Ok(line);
        }
    }
}

struct Control {
    config: ControlConfig,
    kill: KillSwitch,
    sender: Sender<Command>,
    /// The file of limits is being read.
    is_reading: AtomicBool,
    /// Connections that are served.
    talkers: AtomicUsize,
}

/// One connection that is served.
struct Talker(Arc<Control>);

impl Drop for Talker {
    fn drop(&mut self) {
        self.0.talkers.fetch_sub(1, Ordering::AcqRel);
    }
}

/// One reading of the limits.
struct Reading(Arc<Control>);

impl Drop for Reading {
    fn drop(&mut self) {
        self.0.is_reading.store(false, Ordering::Release);
    }
}

/// A thread without which somebody is not heard. It ends by a defect alone.
struct Watched {
    control: Arc<Control>,
    name: &'static str,
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.control.kill.throw();
        self.control.say(&format!(
            "the thread `{}` has ended, and what it heard is heard no more: the kill switch is thrown; start the gateway \
             again before it is armed",
            self.name
        ));
    }
}

impl Control {
    /// Starts a thread that does `turn` again and again.
    fn hear(
        self: &Arc<Self>,
        name: &'static str,
        pause: Duration,
        mut turn: impl FnMut(&Arc<Self>) + Send + 'static,
    ) -> io::Result<()> {
        let watched = Watched { control: Arc::clone(self), name };
        let hear = move || {
            loop {
                turn(&watched.control);
                thread::sleep(pause);
            }
        };
        spawn_helper(thread::Builder::new().name(name.into()), hear).map(drop)
    }

    /// Serves a connection, beside others.
    fn talk(self: &Arc<Self>, stream: UnixStream) {
        while self.talkers.load(Ordering::Acquire) >= TALKERS {
            thread::sleep(LOOK_PAUSE);
        }
        self.talkers.fetch_add(1, Ordering::AcqRel);
        let (talker, stream) = (Talker(Arc::clone(self)), Arc::new(stream));
        let theirs = Arc::clone(&stream);
        let talk = move || talker.0.serve(&theirs);
        if spawn_helper(thread::Builder::new().name("talk".into()), talk).is_err() {
            self.serve(&stream);
        }
    }

    fn serve(self: &Arc<Self>, stream: &UnixStream) {
        if let Err(error) = self.try_serve(stream) {
            self.say(&format!("a command was cut short: {error}"));
        }
    }

    fn try_serve(self: &Arc<Self>, mut stream: &UnixStream) -> io::Result<()> {
        stream.set_nonblocking(false)?;
        // The mode keeps others out, but for the moment between the socket's making and its mode.
        let uid = socket_peercred(stream)?.uid;
        if !uid.is_root() && uid != geteuid() {
            self.say(&format!("user {} is refused at the control socket", uid.as_raw()));
            // So that the answer arrives; what the word is does not matter.
            let _ = read_line(stream, STRANGERS_TIME);
            return writeln!(stream, "refused: the user who runs the gateway, and root, may command it");
        }
        let line = read_line(stream, LINE_TIME)?;
        let answer = match self.answer(String::from_utf8_lossy(&line).trim()) {
            Ok(answer) => answer,
            Err(why) => format!("refused: {why}"),
        };
        writeln!(stream, "{answer}")
    }

    /// Reads the limits again, and waits for nothing.
    fn reload(self: &Arc<Self>) {
        let control = Arc::clone(self);
        let reload = move || _ = control.obey("reload").inspect_err(|why| control.say(why));
        if let Err(error) = spawn_helper(thread::Builder::new().name("reload".into()), reload) {
            self.say(&format!("no other limits are in force: there is no thread to read them: {error}"));
        }
    }

    /// Does what `line` says, and answers.
    fn answer(self: &Arc<Self>, line: &str) -> Result<String, String> {
        if line != "status" {
            return self.obey(line).map(|()| "ok".to_owned());
        }
        let (sender, receiver) = channel();
        self.tell(Command::Status(sender))?;
        receiver.recv_timeout(STATUS_MAX).map_err(|_| "the gateway gives no answer".to_owned())
    }

    fn say(&self, sentence: &str) {
        self.config.logger.iter().for_each(|logger| logger.say(sentence));
    }

    fn tell(&self, command: Command) -> Result<(), String> {
        self.sender.send(command).map_err(|_| "the gateway has ended".to_owned())
    }

    /// Does what `line` says.
    fn obey(self: &Arc<Self>, line: &str) -> Result<(), String> {
        let command = match line.split_once(' ').unwrap_or((line, "")) {
            ("kill", "") => {
                self.kill.throw_for(KillCause::Command);
                Command::Kill
            }
            ("arm", "") => Command::Arm(self.kill.throws()),
            ("disarm", "") => Command::Disarm,
            ("cancel", "") => Command::CancelAll,
            ("alone", "") => Command::Alone,
            ("handover", "") => Command::HandOver,
            ("reload", "") => Command::Limits(self.limits()?.limits()),
            ("kill", of) if of.starts_with(STRATEGY) => Command::KillStrategy(self.strategy(of)?),
            ("arm", of) if of.starts_with(STRATEGY) => Command::ArmStrategy(self.strategy(of)?),
            ("unblock", symbol) => Command::Unblock(self.instrument(symbol)?),
            _ => return Err(COMMANDS.to_owned()),
        };
        self.tell(command)
    }

    fn limits(self: &Arc<Self>) -> Result<LimitsFile, String> {
        let file = self.read_limits()?;
        if file.instruments() != self.config.instruments {
            return Err("the instruments and their units are others than at the start: restart instead".to_owned());
        }
        let positions: Box<[_]> = file.opening_positions().collect();
        if let Some(symbol) = self.other_position(&positions) {
            return Err(format!("the opening position of {symbol} is another than at the start: restart instead"));
        }
        if file.strategies() != self.config.strategies {
            return Err("the strategies are others than at the start: restart instead".to_owned());
        }
        Ok(file)
    }

    /// Reads the file on a thread that is left behind where it hangs. There is one at most.
    fn read_limits(self: &Arc<Self>) -> Result<LimitsFile, String> {
        if self.is_reading.swap(true, Ordering::AcqRel) {
            return Err(LIMITS_HANG.to_owned());
        }
        let (reading, (sender, receiver)) = (Reading(Arc::clone(self)), channel());
        let read = move || {
            let ControlConfig { limits, venue, .. } = &reading.0.config;
            let file = LimitsFile::read_for(limits, *venue).map_err(|error| error.to_string());
            drop(reading);
            // Nobody waits any more for one that has hung.
            drop(sender.send(file));
        };
        spawn_helper(thread::Builder::new().name("limits".into()), read).map_err(|error| error.to_string())?;
        receiver.recv_timeout(LIMITS_MAX).map_err(|_| LIMITS_HANG.to_owned())?
    }

    /// The first instrument whose opening position is not that of the start.
    fn other_position(&self, positions: &[(InstrumentIdx, i64)]) -> Option<Symbol> {
        let before = &self.config.opening_positions;
        let other = positions.iter().find(|position| !before.contains(position));
        let (instrument, _) = other.or_else(|| before.iter().find(|position| !positions.contains(position)))?;
        self.config.instruments.get(instrument.0 as usize).map(|instrument| instrument.symbol)
    }

    /// The strategy that `of` names, behind the word for it.
    fn strategy(&self, of: &str) -> Result<StrategyIdx, String> {
        let name = of.strip_prefix(STRATEGY).unwrap_or(of);
        let place = self.config.strategies.iter().position(|strategy| strategy == name);
        place.map(|idx| StrategyIdx(idx as u16)).ok_or_else(|| "the limits have no such strategy".to_owned())
    }

    fn instrument(&self, symbol: &str) -> Result<InstrumentIdx, String> {
        let place = self.config.instruments.iter().position(|instrument| instrument.symbol.as_str() == symbol);
        place.map(|idx| InstrumentIdx(idx as u32)).ok_or_else(|| "there is no such instrument".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, PipeReader, pipe};

    use super::*;

    fn control(logger: Option<Logger>) -> (Arc<Control>, KillSwitch) {
        let (config, kill) = (ControlConfig { logger, ..ControlConfig::default() }, KillSwitch::new());
        let (is_reading, talkers) = (AtomicBool::new(false), AtomicUsize::new(0));
        let control = Control { config, kill: kill.clone(), sender: channel().0, is_reading, talkers };
        (Arc::new(control), kill)
    }

    fn line(reader: PipeReader) -> String {
        let mut line = String::new();
        io::BufReader::new(reader).read_line(&mut line).unwrap();
        line
    }

    #[test]
    fn thread_that_hears_and_ends_throws_the_kill_switch_and_says_which_it_is() {
        let (reader, writer) = pipe().unwrap();
        let (control, kill) = control(Some(Logger::start("", writer).unwrap()));
        let throws = kill.throws();
        control.hear("signals", LOOK_PAUSE, |_| panic!("a defect of a test")).unwrap();
        assert!(line(reader).contains("the thread `signals` has ended"));
        assert_ne!(kill.throws(), throws);
        assert_eq!(kill.cause(), KillCause::Program);
    }

    #[test]
    fn kill_of_a_gateway_that_has_ended_is_told_so() {
        let (control, kill) = control(None);
        assert_eq!(control.answer("kill"), Err("the gateway has ended".to_owned()));
        assert_eq!(kill.cause(), KillCause::Command);
    }

    #[test]
    fn kill_file_that_cannot_be_looked_at_is_told_once_each_time() {
        let start = Instant::now();
        let mut watch = LookWatch::new(start);
        let mut at = |looks: u64, ms: u64| watch.is_late(looks, start + Duration::from_millis(ms));
        assert_eq!([at(1, 0), at(2, 1_000), at(2, 2_999)], [false; 3]);
        assert_eq!([at(2, 3_000), at(2, 9_000)], [true, false], "once");
        assert_eq!([at(3, 9_001), at(3, 11_000), at(3, 11_001)], [false, false, true]);
    }

    #[test]
    fn signal_throws_the_switch_once_whoever_looks() {
        let kill = KillSwitch::new();
        let signal = KillSignal { has_come: Arc::new(AtomicBool::new(true)), kill: kill.clone() };
        signal.clone().look();
        let throws = kill.throws();
        assert_eq!(kill.cause(), KillCause::Signal);
        signal.look();
        assert_eq!(kill.throws(), throws);
    }
}
