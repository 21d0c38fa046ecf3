//! `order-gateway`: the command line over the library, with a strategy to replace by one's own.
//!
//! Exit codes: 0 all is well, 1 something failed, 2 the command line or a file makes no sense.

mod cli;
mod dry_run;
mod readiness;
mod samples;

use std::backtrace::Backtrace;
use std::fs;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::net::SocketAddrV4;
use std::os::unix::net::UnixStream;
use std::panic::{self, PanicHookInfo};
use std::path::Path;
use std::process::ExitCode;
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use clap::Parser;
use cli::{Cli, Command, MirrorArgs};
use dry_run::DryRun;
use market::{SequenceCounts, Symbol};
use order_entry::ManagerConfig;
use order_entry::ReasonCodes;
use order_entry::journal::{Journal, JournalError, JournalMemory, Rebuild, RebuildCounts};
use order_entry::risk::KillSwitch;
use order_entry::session::VenueSession;
use order_gateway::control::{self, ControlConfig, ControlHandle};
use order_gateway::drop_copy::DropCopyLine;
use order_gateway::host::Host;
use order_gateway::kernel::{Kernel, dial, join, listen, stamp_received};
use order_gateway::latency::{Latency, Stage};
use order_gateway::remains::{put_aside, remains_of, sentence_of};
use order_gateway::standby::{Followed, MirrorPolicy, Role, StandbyLink, follow, hold, mirror_address, proven};
use order_gateway::wire::{WireHost, WirePort};
use order_gateway::{
    Audit, AuditCsv, Config, Core, CoreConfig, Error, Feed, FeedConfig, FeedRecovery, FeedSocket, Gateway, Helper,
    JournalSync, LatencyConfig, LimitsFile, LineConfig, Logger, MappedFile, MirrorConfig, Quotes, RdmaPort, Run,
    StandbyConfig, Strategy, VenueClient, journal_csv,
};
use samples::SampleStrategy;
use wirepath::worker::StopFlag;

const NAMED: &str = "the journal names a standby that may have taken over: keep [standby] in the configuration, or say \
                     `alone` with it when the standby does not run";
const VIA: &str = "a mirror needs the port that RDMA goes by: `via` in [mirror], or --via eth1";
const GO_ON: &str = "the journal names a mirror that may have taken over, and with policy `go-on` nobody asks it: start \
                     with policy `stop`, say `alone` when the mirror does not run, and then start with `go-on`";
const OWN_PORT: &str = "stamps of a port are by its NIC's clock, which is not compared with ours; AF_XDP has none";
const NO_STAMPS: &str = "the kernel stamps no datagram of these sockets";
const NO_FEED: &str = "orders are measured that packets of a [[feed]] or [quotes] cause, and there are none";
const LONG_NAME: &str = "a name in [venue] is longer than its protocol takes: `check` says which";
const CHECK: &str = "check the path";
const PATH: &str = "check `path` and `megabytes` of [journal]";
const ANOTHER: &str = "give [journal] another `path`, or delete the file if no order in it matters";
const NEWER: &str = "start the version of order-gateway that wrote it, or a newer one";
const MISSING: &str = "give the symbol an [[instruments]] in the file of limits";
const MISSING_STRATEGY: &str =
    "give it its [[strategies]] in the file of limits again, under this name; it may go when none of its orders lives";
const OLDER: &str = "read the file of limits: raise its `version` above the journal's where it is the one to trade by";
const OLDER_TAKEN: &str = "the file of limits is older than the limits that were in force: this gateway takes over \
                           disarmed, and cancels; compare, raise the file's `version`, `reload`, and arm";
const STOPPED: &str =
    "give it its [[strategies]] in the file of limits again; it may go once `arm strategy` has named it";

/// Who writes to standard error.
static LOGGER: OnceLock<Logger> = OnceLock::new();
/// Before that.
const PREFIX: &str = "order-gateway: ";
/// Whoever reads what a gateway says does not keep it from ending for longer.
const LAST_WORDS: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    let command = Cli::parse().command;
    let ended = start_logger().and_then(|logger| {
        let _last_words = LastWords(logger);
        carry_out(command).inspect_err(|error| logger.say(&error.to_string()))
    });
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => ExitCode::from(error.exit_code()),
    }
}

/// Waits for them also where the process ends by a panic.
struct LastWords(&'static Logger);

impl Drop for LastWords {
    fn drop(&mut self) {
        self.0.flush(LAST_WORDS);
    }
}

/// From here on a panic is told as anything else: Rust's own hook writes to standard error before
/// the thread unwinds, and while nobody reads that, what a thread does at its end (it throws the
/// kill switch) would not be done.
fn start_logger() -> Result<&'static Logger, Error> {
    let logger = Logger::start(PREFIX, io::stderr()).map_err(Error::failed)?;
    let logger = LOGGER.get_or_init(|| logger);
    panic::set_hook(Box::new(say_panic));
    Ok(logger)
}

fn say_panic(info: &PanicHookInfo<'_>) {
    let thread = thread::current();
    say(&format!("a defect of the thread `{}`: {info}", thread.name().unwrap_or("without a name")));
    // To find the names of the callers takes longer than a kill switch may wait.
    let backtrace = Backtrace::force_capture();
    LOGGER.get().inspect(|logger| logger.write_late(move || lines_of(&backtrace)));
}

/// The callers, one a line.
fn lines_of(backtrace: &Backtrace) -> String {
    backtrace.to_string().lines().map(|line| format!("{PREFIX}{line}\n")).collect()
}

/// Tells people, and waits for nobody who reads it.
fn say(sentence: &str) {
    // `main` has started it.
    LOGGER.get().inspect(|logger| logger.say(sentence));
}

fn carry_out(command: Command) -> Result<(), Error> {
    match command {
        Command::Run { config, mirror, mirror_policy, by } => run(&config, mirror, mirror_policy, by),
        Command::Mirror { config, address, by } => hold_mirror(&config, &address, by),
        Command::Standby { config, primary } => stand_by(&config, primary),
        Command::Check { config } => Config::read_with_limits(&config).map(drop),
        Command::Tell { socket, command } => tell(&socket, &command.join(" ")),
        Command::Journal { file, reasons } => show_journal(&file, reasons),
        Command::Audit { file } => show_audit(&file),
    }
}

fn run(path: &Path, mirror: Option<String>, policy: Option<String>, by: MirrorArgs) -> Result<(), Error> {
    let (mut config, limits) = Config::read_with_limits(path)?;
    let is_asked_for = mirror.is_some() || policy.is_some();
    config.mirror = mirror_by(config.mirror, by, is_asked_for)?;
    if let Some(section) = &mut config.mirror {
        if let Some(url) = mirror {
            section.address = Some(mirror_address(&url).map_err(Error::Usage)?);
        }
        if let Some(word) = policy {
            section.set_policy(&word).map_err(Error::Usage)?;
        }
    }
    config.check_mirror()?;
    let stop = StopFlag::on_signals().map_err(Error::failed)?;
    trade(&config, &limits, &stop, None)
}

/// Follows a primary, and goes on in its place.
fn stand_by(path: &Path, primary: SocketAddrV4) -> Result<(), Error> {
    let (mut config, limits) = Config::read_with_limits(path)?;
    let stop = StopFlag::on_signals().map_err(Error::failed)?;
    let journal = &config.journal;
    let (memory, _) = MappedFile::open(&journal.path, journal.len(), journal.sync())
        .map_err(|error| Error::at("journal", &journal.path, error, PATH))?;
    let secret = config.standby.as_ref().map_or(Ok(None), StandbyConfig::secret)?;
    let dry_run = DryRun::start(path, say).map_err(Error::failed)?;
    let followed = follow(primary, memory, secret, || stop.is_stopping(), say)
        .map_err(|why| Error::at("copy", &journal.path, why, "nothing was taken over"))?;
    if followed == Followed::Ended {
        say("the primary or a person has ended this standby: nothing was taken over");
        return Ok(());
    }
    drop(dry_run);
    say("takes over");
    let limits = newest(path, limits);
    config.mirror = None;
    trade(&config, &limits, &stop, Some(config.standby.as_ref().is_some_and(|standby| standby.arms)))
}

/// Holds the mirror of a primary's journal, and goes on in its place.
fn hold_mirror(path: &Path, address: &str, by: MirrorArgs) -> Result<(), Error> {
    let (mut config, limits) = Config::read_with_limits(path)?;
    let address = mirror_address(&format!("rdma://{address}")).map_err(Error::Usage)?;
    // Its section says how it is a mirror, and it has none itself when it has taken over: the first
    // one comes back as the mirror, and is named to the next start.
    let Some(mirror) = mirror_by(config.mirror.take(), by, true)? else {
        return Err(Error::Usage(VIA.to_owned()));
    };
    let stop = StopFlag::on_signals().map_err(Error::failed)?;
    let journal = &config.journal;
    let (memory, _) = MappedFile::open(&journal.path, journal.len(), journal.sync())
        .map_err(|error| Error::at("journal", &journal.path, error, PATH))?;
    let dry_run = DryRun::start(path, say).map_err(Error::failed)?;
    let followed = hold(address, &mirror, memory, || stop.is_stopping(), say)
        .map_err(|why| Error::at("mirror", &journal.path, why, "nothing was taken over"))?;
    if followed == Followed::Ended {
        say("the primary or a person has ended this mirror: nothing was taken over");
        return Ok(());
    }
    drop(dry_run);
    say("takes over from its mirror");
    let limits = newest(path, limits);
    trade(&config, &limits, &stop, Some(mirror.arms))
}

/// The limits of the file as it is now: they may have changed since this standby was started. Where
/// it cannot be read, those of then.
fn newest(path: &Path, before: LimitsFile) -> LimitsFile {
    match Config::read_with_limits(path) {
        Ok((_, limits)) => limits,
        Err(error) => {
            say(&format!("{error}: the limits are those of this standby's start"));
            before
        }
    }
}

/// The section of the configuration, with what the command line says.
fn mirror_by(section: Option<MirrorConfig>, by: MirrorArgs, is_asked_for: bool) -> Result<Option<MirrorConfig>, Error> {
    let MirrorArgs { via, secret_file } = by;
    let mut section = match (section, via) {
        (Some(section), None) => section,
        (Some(mut section), Some(via)) => {
            section.via = via;
            section
        }
        (None, Some(via)) => MirrorConfig::new(&via),
        (None, None) if !is_asked_for && secret_file.is_none() => return Ok(None),
        (None, None) => return Err(Error::Usage(VIA.to_owned())),
    };
    section.secret_file = secret_file.or(section.secret_file);
    Ok(Some(section))
}

/// Trades. In a standby's place it is said whether orders pass at once, if they did.
fn trade(config: &Config, limits: &LimitsFile, stop: &StopFlag, taken_over: Option<bool>) -> Result<(), Error> {
    let kernel = Kernel::start();
    match config.client(&limits.instruments(), kernel.epoch_offset_ns()) {
        Some(VenueClient::Ouch(client)) => trade_by(client, (config, limits), kernel, stop, taken_over),
        Some(VenueClient::Ouch42(client)) => trade_by(client, (config, limits), kernel, stop, taken_over),
        Some(VenueClient::Fix(client)) => trade_by(client, (config, limits), kernel, stop, taken_over),
        Some(VenueClient::Boe2(client)) => trade_by(client, (config, limits), kernel, stop, taken_over),
        Some(VenueClient::Boe3(client)) => trade_by(client, (config, limits), kernel, stop, taken_over),
        Some(VenueClient::Ilink3(client)) => trade_by(client, (config, limits), kernel, stop, taken_over),
        None => Err(Error::failed(LONG_NAME)),
    }
}

fn trade_by<S: VenueSession>(
    session: S,
    (config, limits): (&Config, &LimitsFile),
    kernel: Kernel,
    stop: &StopFlag,
    taken_over: Option<bool>,
) -> Result<(), Error> {
    let kill = KillSwitch::new();
    let (mut core, file, replayed, is_damaged) =
        core(session, (config, limits), (&kill, taken_over.is_some()), &kernel)?;
    core.note_limits(kernel.now_ns());
    for (instrument, position) in limits.opening_positions() {
        core.set_opening_position(instrument, position, kernel.now_ns());
    }
    let mut standby = replayed.standby();
    if let Some(arms) = taken_over {
        standby = 0;
        core.set_standby(0, kernel.now_ns())
            .map_err(|error| Error::at("journal", &config.journal.path, error, "nothing was sent"))?;
        // What stopped the primary's orders stops ours.
        let is_older = limits.limits().version < replayed.limits_version();
        if is_older {
            say(OLDER_TAKEN);
        }
        if arms && replayed.is_armed() && !is_older && !is_damaged {
            core.arm(kernel.now_ns());
        }
    }
    let mut helpers = vec![kernel.follow_wall_clock().map_err(Error::failed)?];
    let standby = standby_link(config, standby, &mut helpers)?;
    let instruments = limits.instruments();
    let symbols: Vec<_> = instruments.iter().map(|instrument| instrument.symbol).collect();
    let wire = config.wire();
    let sockets = if wire.is_some() { Vec::new() } else { join(config.feed_lines())? };
    let line = LineConfig { secondary: config.venue.secondary, ..LineConfig::new(config.venue.primary) };
    let mut gateway =
        Gateway::new(SampleStrategy::new(config.strategy, symbols.len(), config.taker_orders_per_second), core);
    if let Some(section) = &config.latency {
        let has_quotes = config.quotes(&symbols).is_some();
        let mut latency = measurements(section, wire.is_none().then_some(&sockets), has_quotes);
        if !has_quotes && config.feed().next().is_none() {
            Stage::ALL.iter().for_each(|stage| latency.set_missing(*stage, NO_FEED));
        }
        gateway.measure(latency);
    }
    let machine = WireHost::new(kernel.clone(), [Some(config.venue.primary), config.venue.secondary]);
    let handle = machine.handle();
    let host: Box<dyn Host> = if wire.is_some() { Box::new(machine) } else { Box::new(kernel.clone()) };
    let mut run = Run::new(gateway, line, host);
    run.sync = Some(JournalSync::start(file, config.journal.sync()).map_err(Error::failed)?);
    let has_feed = config.feed().next().is_some();
    if has_feed {
        run.feed = Some((feed(config, &symbols, &mut helpers)?, sockets));
    }
    let quotes = config.quotes(&symbols).map(|(ring, names)| Quotes::new(&ring, &names));
    run.quotes = quotes.map(|quotes| quotes.with_channels(&config.quote_channels(&symbols)));
    run.audit = config.audit.as_deref().map(start_audit).transpose()?;
    let heard = start_control(config, limits, kill)?;
    (run.commands, run.kill_signal) = (Some(heard.commands), Some(heard.kill_signal));
    run.standby = standby;
    if let Some(config) = config.drop_copy() {
        run.compare_with(DropCopyLine::new(config, kernel.now_ns(), kernel.epoch_offset_ns()));
    }
    run.logger = LOGGER.get().cloned();
    run.helpers = helpers;
    let Some(wire) = wire else {
        run.run(|_| stop.is_stopping(), say);
        return tell_end(&run, String::new(), config);
    };
    let mut port = WirePort::open(&wire, (run, handle), say)?;
    let counts = port.run(|| stop.is_stopping());
    tell_end(port.gateway(), format!("  requests: {counts}\n"), config)
}

/// The feed, with its servers where there are some.
fn feed(config: &Config, symbols: &[Symbol], helpers: &mut Vec<Helper>) -> Result<Feed, Error> {
    let sizes = FeedConfig::default();
    Ok(match FeedRecovery::start(&config.recovery(), sizes.books).map_err(Error::failed)? {
        Some(mut recovery) => {
            helpers.extend(recovery.take_thread());
            Feed::with_recovery(symbols, &sizes, recovery)
        }
        None => Feed::new(symbols, &sizes),
    })
}

/// Measurements of requests whose feed is read from `sockets`, or comes by a port of ours. Quotes
/// have the time of their packet with them.
fn measurements(section: &LatencyConfig, sockets: Option<&[FeedSocket]>, has_quotes: bool) -> Latency {
    let mut latency = section.start();
    let (why, stages) = match sockets.map(stamp_received) {
        None if has_quotes => (OWN_PORT, &[Stage::PostedToWire, Stage::WireToWire][..]),
        None => (OWN_PORT, &[Stage::WireToPoll, Stage::PostedToWire, Stage::WireToWire][..]),
        Some(Err(_)) => (NO_STAMPS, &[Stage::WireToPoll, Stage::WireToWire][..]),
        Some(Ok(())) => return latency,
    };
    stages.iter().for_each(|stage| latency.set_missing(*stage, why));
    latency
}

/// Prints what was counted and measured, and draws it. Nobody waits long for who reads it.
fn tell_end<T: Strategy, S: VenueSession, M: JournalMemory>(
    run: &Run<T, S, M>,
    requests: String,
    config: &Config,
) -> Result<(), Error> {
    let out = Logger::start("", io::stdout()).map_err(Error::failed)?;
    out.write(counts(run) + &requests);
    let latency = run.gateway.latency();
    latency.into_iter().for_each(|latency| out.write(format!("{latency}\n")));
    out.flush(LAST_WORDS);
    let picture = config.latency.as_ref().and_then(LatencyConfig::picture);
    if let (Some(latency), Some(path)) = (latency, picture) {
        fs::write(path, latency.picture())
            .map_err(|error| Error::at("picture", path, error, "check `picture` of [latency]"))?;
    }
    match run.left_behind() {
        Some(left) if !left.end_with_the_connection => Err(Error::failed(left)),
        left => {
            left.iter().for_each(|left| say(&left.to_string()));
            Ok(())
        }
    }
}

/// What was counted, in lines.
fn counts<T: Strategy, S: VenueSession, M: JournalMemory>(run: &Run<T, S, M>) -> String {
    let mut lines = vec![run.gateway.core().counts().to_string()];
    if let Some(lifeless) = run.quotes.as_ref().map(Quotes::lifeless).filter(|count| *count > 0) {
        lines.push(format!(
            "  quotes: {lifeless} times an instrument stayed stale because the ring does not tell that its channel lives"
        ));
    }
    if let Some((feed, _)) = &run.feed {
        let SequenceCounts { delivered, missing, gaps, .. } = feed.counts();
        lines.push(format!("  feed: {delivered} messages, {missing} missing in {gaps} gaps"));
        lines.extend(run.feed_refused().map(|refused| format!("  feed: {refused} packets of other senders refused")));
        lines.extend(feed.recovery_counts().map(|counts| format!("  recovery: {counts}")));
    }
    lines.extend(run.audit.as_ref().and_then(Audit::losses).map(|losses| format!("  {losses}")));
    if let Some((writes, losses)) = run.standby.as_ref().and_then(StandbyLink::mirror_counts) {
        let (waits, writes) = (writes.waits, writes.writes);
        lines.push(format!("  mirror: {writes} WRITEs, {waits} waits for room, {losses} connections lost"));
    }
    lines.join("\n") + "\n"
}

/// The listener for a standby; `standby` is the one that the journal names.
fn standby_link(config: &Config, standby: u64, helpers: &mut Vec<Helper>) -> Result<Option<StandbyLink>, Error> {
    if let Some((section, address)) = config.mirror.as_ref().and_then(|section| Some((section, section.address?))) {
        return mirror_link(section, address, standby, helpers).map(Some);
    }
    let Some(section) = &config.standby else {
        return if standby == 0 { Ok(None) } else { Err(Error::Failed(NAMED.to_owned())) };
    };
    if standby != 0 {
        say("waits for the grants of its standby; where that one has taken over, run this one as the standby");
    }
    let failed = |error| Error::failed(format!("cannot listen at {} for a standby: {error}", section.listen));
    let listener = proven(listen(section.listen).map_err(failed)?, section.secret()?, Role::Primary);
    Ok(Some(StandbyLink::new(listener, section.lease(), standby)))
}

/// The connection to a mirror; `standby` is the one that the journal names.
fn mirror_link(
    section: &MirrorConfig,
    address: SocketAddrV4,
    standby: u64,
    helpers: &mut Vec<Helper>,
) -> Result<StandbyLink, Error> {
    if standby != 0 {
        if section.policy() == MirrorPolicy::GoOn {
            return Err(Error::failed(GO_ON));
        }
        say("waits for the grants of its mirror; where that one has taken over, run this one as the mirror");
    }
    let port = RdmaPort::open(&section.via, section.traffic_class)?;
    let (dialer, helper) = dial(address).map_err(Error::failed)?;
    helpers.push(helper);
    let dialer = proven(dialer, section.secret()?, Role::MirroredPrimary);
    StandbyLink::mirrored(dialer, (port, section.policy()), section.lease(), standby)
}

/// The core with its journal, the journal's file, what its replay found, and whether the journal
/// lacks records.
fn core<S: VenueSession>(
    session: S,
    (config, limits): (&Config, &LimitsFile),
    (kill, is_take_over): (&KillSwitch, bool),
    kernel: &Kernel,
) -> Result<(Core<S, MappedFile>, fs::File, Rebuild, bool), Error> {
    let journal = &config.journal;
    let (mut memory, existed) = MappedFile::open(&journal.path, journal.len(), journal.sync())
        .map_err(|error| Error::at("journal", &config.journal.path, error, PATH))?;
    let is_damaged = existed && put_remains_aside(&mut memory, &journal.path);
    let file = memory.file().map_err(|error| Error::at("journal", &config.journal.path, error, PATH))?;
    let core_config = core_config((config, limits), (kill, is_take_over), kernel);
    if existed {
        let recovered = Core::recover(core_config, session, memory, journal.reserve());
        let (core, rebuild) = recovered.map_err(|error| not_recovered(error, config))?;
        let RebuildCounts { applied, refused, .. } = rebuild.counts();
        say(&format!("replayed the journal {}: {applied} records applied, {refused} refused", journal.path.display()));
        return Ok((core, file, rebuild, is_damaged));
    }
    let id = kernel.epoch_offset_ns() ^ u64::from(std::process::id()) << 40;
    let journal = Journal::create(memory, id, kernel.epoch_offset_ns(), journal.reserve())
        .map_err(|error| Error::at("journal", &config.journal.path, error, PATH))?;
    // A power cut must not leave a file that is no journal.
    journal.memory().sync(journal.end()).map_err(|error| Error::at("journal", &config.journal.path, error, PATH))?;
    Ok((Core::new(core_config, session, journal), file, Rebuild::new(), false))
}

/// What a core of this configuration is made of.
fn core_config(
    (config, limits): (&Config, &LimitsFile),
    (kill, is_take_over): (&KillSwitch, bool),
    kernel: &Kernel,
) -> CoreConfig {
    CoreConfig {
        instruments: limits.instruments(),
        manager: ManagerConfig {
            kill: kill.clone(),
            strategies: limits.strategy_names(),
            in_flight_max: config.venue.in_flight_max(),
            epoch_offset_ns: kernel.epoch_offset_ns(),
            takes_older_limits: is_take_over,
            ..ManagerConfig::new(*limits.limits())
        },
        answer_timeout_ns: CoreConfig::ANSWER_TIMEOUT_NS,
        kill_line: config.kill_line(),
    }
}

/// Why the journal cannot be gone on with, and what helps.
fn not_recovered(error: JournalError, config: &Config) -> Error {
    let way_on = match error {
        JournalError::Missing(_) => MISSING,
        JournalError::MissingStrategy(_) => MISSING_STRATEGY,
        JournalError::StoppedStrategy(_) => STOPPED,
        JournalError::StaleLimits { .. } => OLDER,
        JournalError::Unknown(_) | JournalError::Version(_) => NEWER,
        _ => ANOTHER,
    };
    Error::at("journal", &config.journal.path, error, way_on)
}

/// Says what lies behind the journal's last good record, and keeps it. Whether records are missing:
/// the process goes on, because orders may live and somebody must be able to cancel them, and a
/// person arms.
fn put_remains_aside(memory: &mut MappedFile, path: &Path) -> bool {
    match put_aside(memory, path) {
        Ok(None) => false,
        Ok(Some((remains, aside))) => {
            say(&format!("{}; they are in {}", sentence_of(&remains), aside.display()));
            remains.is_damage
        }
        Err(error) => {
            let remains = remains_of(memory.as_ref());
            let sentence = remains.as_ref().map_or_else(String::new, sentence_of);
            say(&format!("{sentence}; they could not be kept in a file beside it: {error}"));
            remains.is_some_and(|remains| remains.is_damage)
        }
    }
}

fn start_audit(path: &Path) -> Result<Audit, Error> {
    Audit::start(path).map_err(|error| Error::at("audit log", path, error, "check the path of `audit`"))
}

/// The threads that hear people, and the sentence that says how they reach them.
fn start_control(config: &Config, limits: &LimitsFile, kill: KillSwitch) -> Result<ControlHandle, Error> {
    let (socket, kill_file) = (config.control.clone(), config.kill_file.clone());
    match &socket {
        Some(path) => say(&format!("disarmed: `order-gateway tell {} arm` lets orders pass", path.display())),
        None => say("disarmed, and nobody can arm it: set `control` in the configuration"),
    }
    let path = socket.clone().unwrap_or_default();
    let failed = |error| Error::at("control socket", &path, error, "check the path of `control`");
    let config = ControlConfig {
        socket,
        kill_file,
        limits: config.limits.clone(),
        instruments: limits.instruments(),
        opening_positions: limits.opening_positions().collect(),
        strategies: limits.strategies(),
        venue: config.venue_needs(),
        logger: LOGGER.get().cloned(),
    };
    control::start(config, kill).map_err(failed)
}

/// Gives a running gateway a command by its control socket, and prints the answer.
fn tell(socket: &Path, command: &str) -> Result<(), Error> {
    let failed = |error: io::Error| Error::failed(format!("{}: {error}; is the gateway running?", socket.display()));
    let mut stream = UnixStream::connect(socket).map_err(failed)?;
    writeln!(stream, "{command}").map_err(failed)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).map_err(failed)?;
    if answer.is_empty() || answer.starts_with("refused") {
        return Err(Error::failed(if answer.is_empty() { "the gateway gave no answer" } else { answer.trim_end() }));
    }
    io::stdout().write_all(answer.as_bytes()).map_err(|error| Error::failed(format!("the output: {error}")))
}

fn show_journal(path: &Path, reasons: Option<ReasonCodes>) -> Result<(), Error> {
    let memory = fs::read(path).map_err(|error| Error::at("journal", path, error, CHECK))?;
    let written = journal_csv(&memory, reasons, BufWriter::new(io::stdout().lock()))
        .map_err(|error| Error::at("journal", path, error, CHECK))?;
    written.map_err(|error| Error::failed(format!("the output: {error}")))?;
    if let Some(remains) = remains_of(&memory) {
        say(&sentence_of(&remains));
    }
    Ok(())
}

fn show_audit(path: &Path) -> Result<(), Error> {
    let failed = |error: io::Error| Error::at("audit log", path, error, CHECK);
    let log = fs::File::open(path).map_err(failed)?;
    AuditCsv::write(BufReader::new(log), BufWriter::new(io::stdout().lock())).map_err(failed)
}

#[cfg(test)]
mod tests {
    use std::env;
    use std::io::{PipeWriter, pipe};
    use std::process::{self, Stdio};
    use std::time::Instant;

    use rustix::fs::{OFlags, fcntl_setfl};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);
    /// The test below runs itself as a process with this, whose standard error is another one.
    const IS_CHILD: &str = "ORDER_GATEWAY_TEST_IS_CHILD";
    const NAME: &str = "tests::thread_that_panics_throws_the_kill_switch_while_nobody_reads_standard_error";

    /// Throws when its thread ends, as each thread that hears people has one.
    struct Throws(KillSwitch);

    impl Drop for Throws {
        fn drop(&mut self) {
            self.0.throw();
        }
    }

    fn panic_in_a_thread() {
        let logger = start_logger().unwrap();
        let kill = KillSwitch::new();
        let (before, throws) = (kill.throws(), Throws(kill.clone()));
        let _helper = Helper::start("signals", move || {
            let _throws = throws;
            panic!("a defect of a test")
        })
        .unwrap();
        while kill.throws() == before {
            thread::yield_now();
        }
        logger.flush(LAST_WORDS);
    }

    /// Nobody reads the pipe, and it is full.
    fn fill(pipe: &PipeWriter) {
        fcntl_setfl(pipe, OFlags::NONBLOCK).unwrap();
        while rustix::io::write(pipe, b".").is_ok() {}
        fcntl_setfl(pipe, OFlags::empty()).unwrap();
    }

    fn child(stderr: Stdio) -> process::Command {
        let mut command = process::Command::new(env::current_exe().unwrap());
        command.args(["--exact", NAME, "--nocapture"]).env(IS_CHILD, "").stdout(Stdio::null()).stderr(stderr);
        command
    }

    #[test]
    fn thread_that_panics_throws_the_kill_switch_while_nobody_reads_standard_error() {
        if env::var_os(IS_CHILD).is_some() {
            return panic_in_a_thread();
        }
        let (_reader, writer) = pipe().unwrap();
        fill(&writer);
        let mut full = child(writer.into()).spawn().unwrap();
        let deadline = Instant::now() + PATIENCE;
        while full.try_wait().unwrap().is_none() {
            if Instant::now() > deadline {
                full.kill().unwrap();
            }
            thread::yield_now();
        }
        assert!(full.wait().unwrap().success(), "the thread waits for who reads");
        let said = child(Stdio::piped()).output().unwrap().stderr;
        let said = String::from_utf8_lossy(&said);
        assert!(said.contains("order-gateway: a defect of the thread `signals`: panicked at"), "{said}");
        assert!(said.contains("a defect of a test"), "{said}");
        assert!(said.contains("panic_in_a_thread::{{closure}}"), "its callers: {said}");
    }
}
