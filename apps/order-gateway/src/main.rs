//! `order-gateway`: the command line over the library, with a strategy to replace by one's own.
//!
//! Exit codes: 0 all is well, 1 something failed, 2 the command line or a file makes no sense.

mod samples;

use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use std::{env, fs, thread};

use order_entry::journal::Journal;
use order_entry::orders::OrderCapacity;
use order_entry::risk::{KillSwitch, RiskCapacity};
use order_gateway::control::{self, ControlConfig};
use order_gateway::kernel::{Clock, LineConfig, Run, join};
use order_gateway::session::Ouch50;
use order_gateway::{
    Audit, AuditCsv, Config, Core, CoreConfig, Error, Feed, FeedConfig, Gateway, LimitsFile, MappedFile, SyncPolicy,
    journal_csv,
};
use samples::SampleStrategy;
use wirepath::worker::StopFlag;

const USAGE: &str = "use one of:\n  order-gateway run CONFIG      until SIGINT; starts disarmed\n  \
    order-gateway check CONFIG    reads the configuration and the limits\n  \
    order-gateway tell SOCKET COMMAND   arm, disarm, kill, reload or unblock SYMBOL\n  \
    order-gateway journal FILE    a journal as CSV\n  order-gateway audit FILE      a log of raw bytes as CSV";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words[..] {
        ["run", path] => run(Path::new(path)),
        ["check", path] => read(Path::new(path)).map(drop),
        ["tell", socket, ref command @ ..] if !command.is_empty() => tell(Path::new(socket), &command.join(" ")),
        ["journal", path] => show_journal(Path::new(path)),
        ["audit", path] => show_audit(Path::new(path)),
        _ => Err(Error::Usage(USAGE.to_owned())),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("order-gateway: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

fn read(path: &Path) -> Result<(Config, LimitsFile), Error> {
    let config = Config::read(path)?;
    let limits = LimitsFile::read(&config.limits)?;
    Ok((config, limits))
}

fn run(path: &Path) -> Result<(), Error> {
    let (config, limits) = read(path)?;
    let (clock, kill) = (Clock::start(), KillSwitch::new());
    let stop = StopFlag::on_signals().map_err(Error::failed)?;
    let (core, memory) = core(&config, &limits, &kill, &clock)?;
    sync_in_time(&config, memory)?;
    let instruments = limits.instruments();
    let symbols: Vec<_> = instruments.iter().map(|instrument| instrument.symbol).collect();
    let sockets = join(config.feed()).map_err(|error| Error::failed(format!("cannot join the feed: {error}")))?;
    let feed = (!sockets.is_empty()).then(|| (Feed::new(&symbols, &FeedConfig::default()), sockets));
    let audit = config.audit.as_deref().map(Audit::start).transpose().map_err(Error::failed)?;
    let (socket, kill_file) = (config.control.clone(), config.kill_file.clone());
    let control = ControlConfig { socket, kill_file, limits: config.limits.clone(), instruments };
    let commands = Some(control::start(control, kill).map_err(Error::failed)?);
    let line = LineConfig { secondary: config.venue.secondary, ..LineConfig::new(config.venue.primary) };
    let gateway = Gateway::new(SampleStrategy::new(config.strategy), core);
    let mut run = Run { gateway, line, feed, audit, commands, clock };
    run.run(|_| stop.is_stopping(), |sentence| eprintln!("order-gateway: {sentence}"));
    println!("{}", run.gateway.core().counts());
    Ok(())
}

/// The core with its journal, and the journal's file.
fn core(
    config: &Config,
    limits: &LimitsFile,
    kill: &KillSwitch,
    clock: &Clock,
) -> Result<(Core<Ouch50, MappedFile>, fs::File), Error> {
    let journal = &config.journal;
    let failed = |error: io::Error| Error::failed(format!("the journal {}: {error}", journal.path.display()));
    let (memory, existed) = MappedFile::open(&journal.path, journal.len(), journal.sync()).map_err(failed)?;
    let file = memory.file().map_err(failed)?;
    let session = config.session().ok_or_else(|| Error::failed("the venue's names are too long"))?;
    let core_config = CoreConfig {
        instruments: limits.instruments(),
        limits: limits.limits(),
        orders: OrderCapacity::default(),
        risk: RiskCapacity::default(),
        epoch_offset_ns: clock.epoch_offset_ns(),
    };
    let session = Ouch50::new(session);
    if existed {
        let recovered = Core::recover(core_config, session, memory, kill.clone(), journal.reserve());
        let (core, rebuild) = recovered.map_err(Error::failed)?;
        eprintln!("order-gateway: replayed the journal: {:?}", rebuild.counts());
        return Ok((core, file));
    }
    let id = clock.epoch_offset_ns() ^ u64::from(std::process::id()) << 40;
    let journal = Journal::create(memory, id, clock.epoch_offset_ns(), journal.reserve()).map_err(Error::failed)?;
    Ok((Core::new(core_config, session, journal, kill.clone()), file))
}

/// A thread that writes the journal's pages to the disk, again and again.
fn sync_in_time(config: &Config, file: fs::File) -> Result<(), Error> {
    if config.journal.sync() != SyncPolicy::Timed {
        return Ok(());
    }
    let sync = move || {
        while file.sync_data().is_ok() {
            thread::sleep(Duration::from_millis(100));
        }
        eprintln!("order-gateway: the journal's disk failed; stop, and compare with the venue");
    };
    thread::Builder::new().name("sync".into()).spawn(sync).map(drop).map_err(Error::failed)
}

/// Gives a running gateway a command by its control socket, and prints the answer.
fn tell(socket: &Path, command: &str) -> Result<(), Error> {
    let failed = |error: io::Error| Error::failed(format!("{}: {error}; is the gateway running?", socket.display()));
    let mut stream = UnixStream::connect(socket).map_err(failed)?;
    writeln!(stream, "{command}").map_err(failed)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).map_err(failed)?;
    print!("{answer}");
    Ok(())
}

fn show_journal(path: &Path) -> Result<(), Error> {
    let memory = fs::read(path).map_err(Error::failed)?;
    let written = journal_csv(&memory, BufWriter::new(io::stdout().lock())).map_err(Error::failed)?;
    written.map_err(Error::failed)
}

fn show_audit(path: &Path) -> Result<(), Error> {
    let log = fs::File::open(path).map_err(Error::failed)?;
    AuditCsv::write(BufReader::new(log), BufWriter::new(io::stdout().lock())).map_err(Error::failed)
}
