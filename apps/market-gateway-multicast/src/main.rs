//! `market-gateway-multicast`: the command line over the library.
//!
//! Exit codes: 0 the ring or the session ended, 1 something failed or the ring's writer was killed,
//! 2 the command line makes no sense.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use clap::{Args, Parser, Subcommand};
use market_gateway_multicast::{
    End, ListenerConfig, ListenerHandler, Receiver, ReceiverConfig, Service, ServiceConfig, Turn,
};
use market_ring::{OpenError, Read, RingReader};
use wirepath::counters::{Block, printable};
use wirepath::proto::Ipv4Prefix;
use wirepath::worker::StopFlag;

/// How long to sleep when nothing came.
const IDLE: Duration = Duration::from_micros(50);

/// A market-data ring to other machines by UDP multicast, with a re-request server.
#[derive(Parser)]
#[command(version = env!("VERSION_AND_COMMIT"), arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Send the records of a ring to a group, until the ring ends or Ctrl-C.
    Publish(PublishArgs),
    /// Receive a group, and print what comes, until the session ends or Ctrl-C.
    Listen(ListenArgs),
}

#[derive(Args)]
struct PublishArgs {
    /// The ring that market-gateway writes. Where there is none yet, says so, and waits.
    ring: PathBuf,
    /// The group and port to send to.
    #[arg(long, value_name = "GROUP:PORT", value_parser = parse_group)]
    group: SocketAddrV4,
    /// An address of the interface that sends, with the network whose re-requests are answered.
    #[arg(long, value_name = "ADDRESS/LEN")]
    from: Ipv4Prefix,
    /// Answer re-requests at this port of that address.
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    rerequest: Option<u16>,
    /// Messages kept for them, the newest ones; each costs some 150 bytes.
    #[arg(long, value_name = "N", default_value_t = ServiceConfig::KEPT)]
    keep: u64,
    /// Routers that packets may pass, plus 1.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=255))]
    ttl: u32,
    /// Send to listeners on this host too.
    #[arg(long)]
    loopback: bool,
    /// When the ring ends, or its writer is killed, wait for the next writer and go on.
    #[arg(long)]
    follow: bool,
}

#[derive(Args)]
struct ListenArgs {
    /// The group and port to receive.
    #[arg(value_name = "GROUP:PORT", value_parser = parse_group)]
    group: SocketAddrV4,
    /// The address of the interface that joins the group; by default the kernel's routes decide.
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0")]
    interface: Ipv4Addr,
    /// The publisher's re-request server. Without it what is lost is missed.
    #[arg(long, value_name = "ADDRESS:PORT")]
    rerequest: Option<SocketAddrV4>,
    /// Begin with the session's first message, as far as the server still has it.
    #[arg(long)]
    from_start: bool,
    /// Print no records, but the counts at the end.
    #[arg(long)]
    quiet: bool,
}

fn parse_group(text: &str) -> Result<SocketAddrV4, String> {
    match text.parse::<SocketAddrV4>() {
        Ok(group) if group.ip().is_multicast() && group.port() > 0 => Ok(group),
        _ => Err("use GROUP:PORT such as 239.1.1.1:30001; groups are 224.0.0.0 to 239.255.255.255".to_owned()),
    }
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Publish(args) => publish(&args),
        Command::Listen(args) => listen(&args),
    };
    outcome.unwrap_or_else(|sentence| {
        say(&sentence);
        ExitCode::FAILURE
    })
}

fn say(sentence: &str) {
    eprintln!("market-gateway-multicast: {}", printable(sentence));
}

fn publish(args: &PublishArgs) -> Result<ExitCode, String> {
    let stop = StopFlag::on_signals().map_err(|error| error.to_string())?;
    let block = Block::create("market-gateway-multicast").unwrap_or_else(|error| {
        say(&format!("`wirepath stats` will not see the counters: {error}"));
        Block::heap()
    });
    let config = ServiceConfig {
        ttl: args.ttl,
        loopback: args.loopback,
        rerequest: args.rerequest,
        kept: args.keep,
        ..ServiceConfig::new(args.group, args.from)
    };
    let started = Instant::now();
    let now_ns = || started.elapsed().as_nanos() as u64;
    let waiting = |error: &OpenError| say(&format!("{error}; waiting"));
    let open = |before| {
        let opened = RingReader::wait(&args.ring, before, || stop.is_stopping(), waiting);
        opened.map_err(|error| error.to_string())
    };
    let Some(ring) = open(None)? else { return Ok(ExitCode::SUCCESS) };
    let mut session = ring.session();
    let mut service = Service::start(&config, ring, now_ns(), &block).map_err(|error| error.to_string())?;
    block.check().map_err(|error| error.to_string())?;
    say(&format!("sending to {} from {}", config.group, config.from.address()));
    loop {
        let end = publish_ring(&mut service, now_ns, &stop);
        let counts = service.counts();
        let (records, packets, missed) = (counts.records, counts.packets, counts.missed);
        println!("{records} records in {packets} packets, {missed} missed; {}", service.requests());
        if end == Some(End::WriterGone) {
            say(&format!("the writer of {} was killed", args.ring.display()));
        }
        if !args.follow || end.is_none() {
            return Ok(if end == Some(End::WriterGone) { ExitCode::FAILURE } else { ExitCode::SUCCESS });
        }
        let Some(ring) = open(Some(session))? else { return Ok(ExitCode::SUCCESS) };
        session = ring.session();
        service.follow(ring, now_ns());
    }
}

/// Publishes a ring to its end; `None` where it was stopped before.
fn publish_ring(service: &mut Service, now_ns: impl Fn() -> u64, stop: &StopFlag) -> Option<End> {
    let mut was_unsent = false;
    while !stop.is_stopping() {
        match service.turn(now_ns()) {
            Turn::Busy => (),
            Turn::Idle => thread::sleep(IDLE),
            Turn::Ended(end) => return Some(end),
        }
        match service.why_unsent() {
            Some(why) if !was_unsent => say(&format!("packets are not sent: {why}")),
            None if was_unsent => say("packets are sent again"),
            _ => (),
        }
        was_unsent = service.why_unsent().is_some();
    }
    None
}

fn listen(args: &ListenArgs) -> Result<ExitCode, String> {
    let stop = StopFlag::on_signals().map_err(|error| error.to_string())?;
    let mut receiver = Receiver::open(&ReceiverConfig {
        group: args.group,
        interface: args.interface,
        server: args.rerequest,
        listener: ListenerConfig { from_start: args.from_start, ..ListenerConfig::default() },
    })
    .map_err(|error| format!("cannot receive {} (see `ip -4 address`): {error}", args.group))?;
    say(&format!("receiving {}", args.group));
    let mut printer = Printer { is_quiet: args.quiet, has_ended: false, is_writer_gone: false };
    let started = Instant::now();
    while !stop.is_stopping() && !printer.has_ended {
        if !receiver.turn(started.elapsed().as_nanos() as u64, &mut printer) {
            thread::sleep(IDLE);
        }
    }
    print_counts(&receiver);
    Ok(if printer.is_writer_gone { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn print_counts(receiver: &Receiver) {
    let (listener, refused) = (receiver.listener(), receiver.listener().refused());
    let (counts, sequence, (requests, answers)) = (listener.counts(), listener.sequence(), listener.requests());
    println!("{} records, {} missed, {} messages unknown", counts.records, counts.missed, counts.unknown);
    println!(
        "{} gaps of {} messages; {} requested, {} recovered",
        sequence.gaps, sequence.missing, requests.requested, answers.delivered
    );
    let malformed: u64 = refused.malformed.iter().sum();
    println!(
        "refused: {malformed} malformed packets, {} answers to no request, {} messages of doubtful packets",
        answers.unasked, sequence.doubted
    );
}

/// Prints what comes.
struct Printer {
    is_quiet: bool,
    has_ended: bool,
    is_writer_gone: bool,
}

impl ListenerHandler for Printer {
    fn on_read(&mut self, read: &Read) {
        self.has_ended |= *read == Read::Closed;
        if !self.is_quiet {
            println!("{}", printable(read));
        }
    }

    fn on_restart(&mut self) {
        if !self.is_quiet {
            println!("another session: books are void");
        }
    }

    fn on_writer_gone(&mut self) {
        self.is_writer_gone = true;
        say("the ring's writer was killed");
    }
}
