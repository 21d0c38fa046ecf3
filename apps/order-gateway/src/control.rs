//! What people say while the gateway runs: by a socket, by a file, by signals. A thread hears it,
//! and the hot core takes it from a channel.

use std::io::{self, Read, Write};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use order_entry::risk::{InstrumentIdx, KillCause, KillSwitch, Limits, StrategyIdx};
use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;
use wirepath::worker::affinity::spawn_helper;

use crate::core::Instrument;
use crate::limits::LimitsFile;

/// Bytes of a command's line that are read.
const LINE_MAX: usize = 256;

/// In front of a strategy's name.
const STRATEGY: &str = "strategy ";

/// How long a command's line may take; nobody else is heard meanwhile.
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

/// What the thread hears.
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
    /// The strategies of the start, likewise. By default none.
    pub strategies: Box<[String]>,
    /// The configuration says how the venue prevents trades with oneself, so that limits may leave
    /// them to it. By default false.
    pub has_self_match: bool,
}

/// Starts the thread. SIGUSR1 throws the kill switch, SIGHUP reads the limits again.
///
/// # Errors
///
/// The socket cannot be made, or a signal cannot be had.
pub fn start(config: ControlConfig, kill: KillSwitch) -> io::Result<Receiver<Command>> {
    let kill_signal = Arc::new(AtomicBool::new(false));
    let reload_signal = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGUSR1, Arc::clone(&kill_signal))?;
    signal_hook::flag::register(signal_hook::consts::SIGHUP, Arc::clone(&reload_signal))?;
    let listener = config.socket.as_deref().map(bind).transpose()?;
    let (sender, receiver) = channel();
    let mut control = Control { config, kill, sender, was_there: false };
    let hear = move || {
        loop {
            control.turn(listener.as_ref(), &kill_signal, &reload_signal);
            thread::sleep(Duration::from_millis(5));
        }
    };
    spawn_helper(thread::Builder::new().name("control".into()), hear)?;
    Ok(receiver)
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
/// it is read, because a socket that is closed with bytes unread resets, and loses its answer. A
/// second is enough, so that nobody who sends slowly keeps the kill file and the signals from being
/// heard.
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
    /// The kill file was there at the last look.
    was_there: bool,
}

impl Control {
    /// One look at everything.
    fn turn(&mut self, listener: Option<&UnixListener>, kill: &AtomicBool, reload: &AtomicBool) {
        if kill.swap(false, Ordering::AcqRel) {
            self.kill.throw_for(KillCause::Signal);
        }
        let is_there = self.config.kill_file.as_deref().is_some_and(Path::exists);
        if is_there && !self.was_there {
            self.kill.throw_for(KillCause::File);
        }
        self.was_there = is_there;
        if reload.swap(false, Ordering::AcqRel)
            && let Err(why) = self.obey("reload")
        {
            eprintln!("order-gateway: {why}");
        }
        if let Some(listener) = listener
            && let Ok((stream, _)) = listener.accept()
            && let Err(error) = self.serve(stream)
        {
            eprintln!("order-gateway: a command was cut short: {error}");
        }
    }

    fn serve(&mut self, stream: UnixStream) -> io::Result<()> {
        stream.set_nonblocking(false)?;
        // The mode keeps others out, but for the moment between the socket's making and its mode.
        let uid = socket_peercred(&stream)?.uid;
        if !uid.is_root() && uid != geteuid() {
            eprintln!("order-gateway: user {} is refused at the control socket", uid.as_raw());
            // So that the answer arrives; what the word is does not matter.
            let _ = read_line(&stream, STRANGERS_TIME);
            return writeln!(&stream, "refused: the user who runs the gateway, and root, may command it");
        }
        let line = read_line(&stream, LINE_TIME)?;
        let answer = match self.answer(String::from_utf8_lossy(&line).trim()) {
            Ok(answer) => answer,
            Err(why) => format!("refused: {why}"),
        };
        writeln!(&stream, "{answer}")
    }

    /// Does what `line` says, and answers.
    fn answer(&self, line: &str) -> Result<String, String> {
        if line != "status" {
            return self.obey(line).map(|()| "ok".to_owned());
        }
        let (sender, receiver) = channel();
        self.tell(Command::Status(sender))?;
        receiver.recv_timeout(STATUS_MAX).map_err(|_| "the gateway gives no answer".to_owned())
    }

    fn tell(&self, command: Command) -> Result<(), String> {
        self.sender.send(command).map_err(|_| "the gateway has ended".to_owned())
    }

    /// Does what `line` says.
    fn obey(&self, line: &str) -> Result<(), String> {
        let command = match line.split_once(' ').unwrap_or((line, "")) {
            ("kill", "") => {
                self.kill.throw_for(KillCause::Command);
                return Ok(());
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

    fn limits(&self) -> Result<LimitsFile, String> {
        let file = LimitsFile::read(&self.config.limits).map_err(|error| error.to_string())?;
        if file.instruments() != self.config.instruments {
            return Err("the instruments and their units are others than at the start: restart instead".to_owned());
        }
        if file.strategies() != self.config.strategies {
            return Err("the strategies are others than at the start: restart instead".to_owned());
        }
        if file.venue_prevents_self_match() && !self.config.has_self_match {
            return Err("venue_prevents_self_match needs the key `self_match` in [venue]: restart with it".to_owned());
        }
        Ok(file)
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
