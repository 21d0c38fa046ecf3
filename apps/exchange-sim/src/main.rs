//! `exchange-sim`: the day into a capture, or onto the network; an exchange that answers.
//!
//! Exit codes: 0 done, 1 it failed, 2 the command line makes no sense.

mod serve_flags;

use std::io::{self, Write};
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand};
use exchange_sim::{
    BoeVersion, Burst, Error, Exchange, GlimpseSettings, Interface, LineSettings, Mdp3Counts, Mdp3Groups, Operator,
    Publication, Published, RerequestSettings, Script, SendSockets, SessionName, Settings, Truth, TruthFile,
    parse_count, parse_duration, parse_positive, parse_server_address,
};
use market::truth::{Group, Probability};
use order_entry::soupbin::Credentials;
use serve_flags::ServeFlags;
use wirepath::counters::{printable, printable_lines};
use wirepath::worker::StopFlag;

/// A believable ITCH 5.0 day from a seed, as MoldUDP64 on an A and a B line.
#[derive(Parser)]
#[command(version = env!("VERSION_AND_COMMIT"), arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Write the day into a capture (pcap with nanoseconds), and the truth about it beside it.
    Generate {
        /// The capture; the truth is written to the same name with .truth.json appended.
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
        #[command(flatten)]
        day: Day,
    },
    /// Send the day through kernel UDP sockets, each packet at its time, until the day ends or
    /// SIGINT or SIGTERM arrives.
    Publish {
        #[command(flatten)]
        live: Live,
        #[command(flatten)]
        day: Day,
    },
    /// Be an exchange that answers: take orders (OUCH 5.0 over SoupBinTCP, and by flags OUCH 4.2,
    /// FIX, BOE and iLink 3), match them, and publish the book on both lines, until SIGINT or
    /// SIGTERM closes the market.
    Serve(Box<ServeFlags>),
}

/// The flags that only a live day has.
#[derive(Args)]
struct Live {
    /// Send from this interface, by its name or one of its addresses (lo: to this host alone).
    /// Without an interface nothing is sent.
    #[arg(long, value_name = "NAME|ADDRESS")]
    interface: Option<Interface>,
    /// Receivers on this host do not get the packets (on the loopback interface they always do).
    #[arg(long)]
    no_loopback: bool,
    /// Write the truth about the day here, once it is over or stopped.
    #[arg(long, value_name = "FILE")]
    truth: Option<PathBuf>,
    /// Begin the day after this time, so that receivers can join; until then send heartbeats.
    /// 500ms, 2s.
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = parse_duration)]
    start_after: Duration,
    /// Seconds of open market, instead of the messages of the whole day.
    #[arg(long, value_name = "SECONDS", conflicts_with = "messages")]
    seconds: Option<u32>,
    /// Answer re-requests (MoldUDP64) at this address and port.
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = parse_server_address)]
    rerequest: Option<SocketAddrV4>,
    /// Messages kept for re-requests, the newest ones; k, M and G are understood.
    #[arg(long, value_name = "MESSAGES", requires = "rerequest", value_parser = parse_positive,
          default_value_t = RerequestSettings::MESSAGES_DEFAULT)]
    rerequest_keep: u64,
    /// Send snapshots of all open orders (GLIMPSE over SoupBinTCP) at this address and port.
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = parse_server_address)]
    glimpse: Option<SocketAddrV4>,
    /// User and password for snapshots.
    #[arg(long, value_name = "USER:PASSWORD", requires = "glimpse", value_parser = parse_login,
          default_value = "user:password")]
    glimpse_login: Credentials,
}

/// Parses user and password.
fn parse_login(text: &str) -> Result<Credentials, String> {
    let login = text.split_once(':').and_then(|(user, password)| Credentials::new(user, password));
    login.ok_or_else(|| "use USER:PASSWORD of at most 6 and 10 characters".to_owned())
}

/// The flags that make a day.
#[derive(Args)]
struct Day {
    /// The same seed and flags give the same bytes.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Listed symbols.
    #[arg(long, default_value_t = 300)]
    symbols: u16,
    /// ITCH messages of the whole day; k, M and G are understood.
    #[arg(long, default_value = "1M", value_parser = parse_count)]
    messages: u64,
    /// Messages a second while the market is open, on average; k, M and G are understood.
    #[arg(long, default_value = "100k", value_parser = parse_count)]
    rate: u64,
    /// Microbursts within the rate: messages of one burst and bursts a second; or none [default: a
    /// tenth of the rate, in bursts of 200].
    #[arg(long, value_name = "SIZE@PER_SECOND")]
    burst: Option<Burst>,
    /// MoldUDP64 session, 1 to 10 characters.
    #[arg(long, default_value_t)]
    session: SessionName,
    /// Multicast group of line A.
    #[arg(long, default_value_t = Settings::default().lines[0].group)]
    group_a: Group,
    /// Multicast group of line B.
    #[arg(long, default_value_t = Settings::default().lines[1].group)]
    group_b: Group,
    /// UDP port of both groups.
    #[arg(long, default_value_t = 26477)]
    port: u16,
    /// Longest IPv4 packet in bytes.
    #[arg(long, default_value_t = 1500)]
    mtu: u16,
    /// Microseconds that a message waits for others to share its packet: more make fewer and fuller
    /// packets.
    #[arg(long, value_name = "MICROSECONDS", default_value_t = Settings::default().pack_wait_us)]
    pack_wait: u16,
    /// IPv4 time to live.
    #[arg(long, default_value_t = 1)]
    ttl: u8,
    #[command(flatten)]
    mdp3: Mdp3Flags,
    #[command(flatten)]
    injected: Injected,
}

/// The same book as CME's MDP 3.0.
#[derive(Args)]
#[command(next_help_heading = "The same book as MDP 3.0, with the faults of the lines")]
struct Mdp3Flags {
    /// Send MDP 3.0 too: incremental feed, and the loops of definitions and snapshots.
    #[arg(long)]
    mdp3: bool,
    /// Groups of the incremental feed: line A, then line B.
    #[arg(long, value_name = "A,B", requires = "mdp3", value_parser = parse_groups)]
    mdp3_incremental: Option<[Group; 2]>,
    /// Groups of the loop of definitions.
    #[arg(long, value_name = "A,B", requires = "mdp3", value_parser = parse_groups)]
    mdp3_definitions: Option<[Group; 2]>,
    /// Groups of the loop of snapshots.
    #[arg(long, value_name = "A,B", requires = "mdp3", value_parser = parse_groups)]
    mdp3_snapshots: Option<[Group; 2]>,
    /// UDP port of these groups.
    #[arg(long, value_name = "PORT", requires = "mdp3", default_value_t = Mdp3Groups::default().port)]
    mdp3_port: u16,
}

impl Mdp3Flags {
    fn groups(&self) -> Option<Mdp3Groups> {
        let usual = Mdp3Groups::default();
        self.mdp3.then(|| Mdp3Groups {
            incremental: self.mdp3_incremental.unwrap_or(usual.incremental),
            definitions: self.mdp3_definitions.unwrap_or(usual.definitions),
            snapshots: self.mdp3_snapshots.unwrap_or(usual.snapshots),
            port: self.mdp3_port,
        })
    }
}

/// Parses the groups of line A and line B.
fn parse_groups(text: &str) -> Result<[Group; 2], String> {
    let (a, b) = text.split_once(',').ok_or("use two groups, such as 233.252.0.11,233.252.0.12")?;
    Ok([a.parse()?, b.parse()?])
}

/// Faults of packets: a probability such as 0.001, or a percentage such as 0.1%.
#[derive(Args)]
#[command(next_help_heading = "Injected faults, as a probability (0.001) or a percentage (0.1%)")]
struct Injected {
    /// A packet is lost, on either line.
    #[arg(long, value_name = "P")]
    loss: Option<Probability>,
    /// A packet is lost on line A.
    #[arg(long, value_name = "P", conflicts_with = "loss")]
    loss_a: Option<Probability>,
    /// A packet is lost on line B.
    #[arg(long, value_name = "P", conflicts_with = "loss")]
    loss_b: Option<Probability>,
    /// A packet is held back for 10 to 100 us, on either line, so that later packets overtake it.
    #[arg(long, value_name = "P")]
    reorder: Option<Probability>,
    /// A packet is held back on line A.
    #[arg(long, value_name = "P", conflicts_with = "reorder")]
    reorder_a: Option<Probability>,
    /// A packet is held back on line B.
    #[arg(long, value_name = "P", conflicts_with = "reorder")]
    reorder_b: Option<Probability>,
    /// A packet is duplicated, on either line.
    #[arg(long, value_name = "P")]
    duplicate: Option<Probability>,
    /// A packet is duplicated on line A.
    #[arg(long, value_name = "P", conflicts_with = "duplicate")]
    duplicate_a: Option<Probability>,
    /// A packet is duplicated on line B.
    #[arg(long, value_name = "P", conflicts_with = "duplicate")]
    duplicate_b: Option<Probability>,
}

impl Injected {
    fn lines(&self, groups: [Group; 2]) -> [LineSettings; 2] {
        let either = |both: Option<Probability>, one: Option<Probability>| both.or(one).unwrap_or_default();
        let line_a = LineSettings {
            group: groups[0],
            loss: either(self.loss, self.loss_a),
            reorder: either(self.reorder, self.reorder_a),
            duplicate: either(self.duplicate, self.duplicate_a),
        };
        let line_b = LineSettings {
            group: groups[1],
            loss: either(self.loss, self.loss_b),
            reorder: either(self.reorder, self.reorder_b),
            duplicate: either(self.duplicate, self.duplicate_b),
        };
        [line_a, line_b]
    }
}

impl Day {
    fn settings(self) -> Settings {
        let lines = self.injected.lines([self.group_a, self.group_b]);
        Settings {
            seed: self.seed,
            symbols: self.symbols,
            messages: self.messages,
            rate: self.rate,
            burst: self.burst.unwrap_or(Burst::of_rate(self.rate)),
            session: self.session,
            port: self.port,
            mtu: self.mtu,
            pack_wait_us: self.pack_wait,
            ttl: self.ttl,
            lines,
            mdp3: self.mdp3.groups(),
        }
    }
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Generate { out, day } => generate(&out, day),
        Command::Publish { live, day } => publish(live, day),
        Command::Serve(flags) => serve(*flags),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        // Clap prints it with the usage and leaves with code 2.
        Err(Error::Settings(error)) => Cli::command().error(ErrorKind::ValueValidation, error).exit(),
        Err(error) => {
            eprintln!("exchange-sim: {}", printable(&error));
            ExitCode::FAILURE
        }
    }
}

fn generate(out: &Path, day: Day) -> Result<(), Error> {
    let started = Instant::now();
    let truth = exchange_sim::generate(&day.settings(), out)?;
    let seconds = started.elapsed().as_secs_f64();
    let beside = Truth::path_beside(out);
    print(&format!("{} and {}, in {seconds:.2} s\n{}", out.display(), beside.display(), account(&truth)));
    Ok(())
}

fn publish(live: Live, day: Day) -> Result<(), Error> {
    let mut settings = day.settings();
    if let Some(seconds) = live.seconds {
        settings.messages = settings.messages_of(seconds);
    }
    settings.check()?;
    let interface = live.interface.unwrap_or_else(|| ask_for_interface(&settings));
    let truth_file = live.truth.as_deref().map(TruthFile::create).transpose()?;
    let stop = StopFlag::on_signals().map_err(|error| Error::System(error.to_string()))?;
    let seconds = settings.messages as f64 / settings.rate as f64;
    print(&format!("publishing from {}: {seconds:.1} s of open market and some ten more\n", interface));
    let rerequest = live.rerequest.map(|address| RerequestSettings { address, messages: live.rerequest_keep });
    let send_sockets = SendSockets { interface, loopback: !live.no_loopback };
    let glimpse = live.glimpse.map(|address| GlimpseSettings { address, credentials: live.glimpse_login });
    let publication = Publication { send_sockets, start_after: live.start_after, rerequest, glimpse };
    let published = exchange_sim::publish(&settings, &publication, &stop)?;
    if let Some(file) = truth_file {
        file.write(&published.truth)?;
    }
    print(&(pace(&published) + &account(&published.truth)));
    Ok(())
}

fn serve(flags: ServeFlags) -> Result<(), Error> {
    let settings = flags.settings();
    let (fix, ouch42, ilink3) = (flags.fix, flags.ouch42, flags.ilink3);
    let boe = [(flags.boe2, BoeVersion::V2), (flags.boe3, BoeVersion::V3)];
    let (copies, flow) = (flags.fix_drop_copy.clone(), flags.flow);
    let glimpse = flags.glimpse.map(|address| GlimpseSettings { address, credentials: flags.glimpse_login });
    let (quote_for, operator) = (flags.quote_for, operator(flags.script.as_deref(), flags.control)?);
    let mut exchange = Exchange::open(&settings, &flags.serving())?;
    exchange.quote_for(quote_for);
    if let Some(own) = &glimpse {
        exchange.open_glimpse(own)?;
    }
    if let Some(per_second) = flow {
        exchange.set_flow(per_second, settings.seed);
    }
    exchange.set_operator(operator);
    for (of, address) in copies {
        print(&format!("drop copies by FIX of {of} at {}\n", exchange.open_copies(address, of)?));
    }
    if let Some(address) = fix {
        print(&format!("orders by FIX at {}\n", exchange.open_fix(address)?));
    }
    if let Some(address) = ouch42 {
        print(&format!("orders by OUCH 4.2 at {}\n", exchange.open_ouch42(address)?));
    }
    if let Some(address) = ilink3 {
        print(&format!("orders by iLink 3 at {}\n", exchange.open_ilink3(address)?));
    }
    for (address, version) in boe {
        if let Some(address) = address {
            print(&format!("orders by BOE {version:?} at {}\n", exchange.open_boe(address, version)?));
        }
    }
    let stop = StopFlag::on_signals().map_err(|error| Error::System(error.to_string()))?;
    let addresses: Vec<String> = exchange.addresses().iter().map(ToString::to_string).collect();
    let [a, b] = settings.lines.each_ref().map(|line| format!("{}:{}", line.group, settings.port));
    let listed = exchange.listing().iter().take(10).map(|(symbol, price)| format!("{symbol} at {price}"));
    print(&format!("orders (and drop copy) at {}; feed on {a} and {b}\n", addresses.join(" and ")));
    print(&format!("listed, first: {}\n", listed.collect::<Vec<_>>().join(", ")));
    print(&exchange.run(&stop)?.to_string());
    Ok(())
}

/// Who commands the exchange: a script, and who writes to the standard input. What became of each
/// command is printed.
fn operator(script: Option<&Path>, has_control: bool) -> Result<Operator, Error> {
    let script = script.map_or(Ok(Script::default()), read_script)?;
    let (sender, commands) = channel();
    if has_control {
        let hear = move || {
            for line in io::stdin().lines().map_while(Result::ok).filter(|line| !line.trim().is_empty()) {
                match line.parse() {
                    Ok(command) => drop(sender.send(command)),
                    Err(why) => print(&format!("refused: {}\n", printable(&why))),
                }
            }
        };
        let started = thread::Builder::new().name("control".into()).spawn(hear);
        started.map_err(|error| Error::System(error.to_string()))?;
    }
    Ok(Operator::new(script, commands, |command, told| match told {
        Ok(()) => print(&format!("{command}: done\n")),
        Err(why) => print(&format!("{command}: refused: {why}\n")),
    }))
}

fn read_script(path: &Path) -> Result<Script, Error> {
    let failed = |error| Error::File { verb: "read", path: path.to_owned(), error };
    let text = std::fs::read_to_string(path).map_err(failed)?;
    text.parse().map_err(|why| failed(io::Error::new(io::ErrorKind::InvalidData, why)))
}

/// Exits like clap does where a flag is missing; prints which packets would be sent where.
fn ask_for_interface(settings: &Settings) -> ! {
    let [a, b] = settings.lines.each_ref().map(|line| format!("{}:{}", line.group, settings.port));
    let sentence = format!(
        "nothing was sent: line A would go to {a} and line B to {b}; say from which interface, for example --interface lo \
         for receivers on this host alone"
    );
    Cli::command().error(ErrorKind::MissingRequiredArgument, sentence).exit()
}

/// How it went, in a few lines.
fn pace(published: &Published) -> String {
    let (elapsed, late_max) = (published.elapsed.as_secs_f64(), published.late_max.as_secs_f64() * 1e6);
    let how = if published.truth.stopped { "stopped after" } else { "published in" };
    let mut text = format!("{how} {elapsed:.2} s; the latest packet left {late_max:.0} us after its time\n");
    let asked = published.truth.settings.rate;
    text += &match published.rate {
        Some(rate) => format!("  {asked} messages/s asked, {rate:.0} achieved while the market was open\n"),
        None => format!("  {asked} messages/s asked; the market was not open for long enough to tell\n"),
    };
    if let Some(counts) = &published.rerequests {
        text += &format!("  {counts}\n");
    }
    if let Some(counts) = &published.mdp3 {
        let Mdp3Counts { packets, lost_on_both, definition_loops, snapshot_loops, without_place } = counts;
        text += &format!(
            "  MDP 3.0: {packets} incremental packets, {lost_on_both} lost on both lines; {definition_loops} loops of \
             definitions, {snapshot_loops} of snapshots\n"
        );
        if *without_place > 0 {
            text += &format!("  MDP 3.0 lacks {without_place} orders or prices that found no place\n");
        }
    }
    if let Some(counts) = &published.snapshots {
        text += &format!("  {counts}\n");
    }
    text
}

/// The account in a few lines; the truth file has all of it.
fn account(truth: &Truth) -> String {
    let by_type: Vec<String> = truth.by_type.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
    let mut text =
        format!("  {} messages on {} symbols: {}\n", truth.messages, truth.book_tops.len(), by_type.join(", "));
    for (line, settings) in truth.lines.iter().zip(&truth.settings.lines) {
        text += &format!(
            "  line {} {}:{}: {} packets = {} made - {} lost + {} duplicated; {} reordered\n",
            line.name,
            settings.group,
            truth.settings.port,
            line.sent.total,
            truth.packets.total,
            line.lost.total,
            line.duplicated.total,
            line.reordered
        );
    }
    let lost = &truth.lost_on_both;
    text += &format!(
        "  {} messages receivable = {} sent - {} lost on both lines in {} ranges\n",
        truth.receivable,
        truth.messages,
        lost.messages,
        lost.ranges.len()
    );
    text
}

/// A closed pipe (`| head`) is no failure: the work is done.
fn print(text: &str) {
    let mut stdout = io::stdout();
    // Others may have chosen the names of files.
    let _ = stdout.write_all(printable_lines(text).as_bytes()).and_then(|()| stdout.flush());
}
