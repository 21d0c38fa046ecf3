//! `market-gateway-nats`: the command line over the library.
//!
//! Exit codes: 0 the ring ended, or Ctrl-C, and all is acknowledged, 1 something failed or the
//! ring's writer was killed, 2 the command line makes no sense.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use market_gateway_nats::{Login, NatsServer, Policy, Publisher, PublisherConfig, Turn, read_secret};
use market_ring::{OpenError, RingReader};
use wirepath::counters::printable;
use wirepath::worker::StopFlag;

/// How long to sleep when nothing came.
const IDLE: Duration = Duration::from_micros(100);
/// How long the broker may take to acknowledge the last batches after Ctrl-C.
const FLUSH_MAX: Duration = Duration::from_secs(5);

/// Publish a market-data ring to NATS with JetStream, until the ring ends or Ctrl-C.
#[derive(Parser)]
#[command(version = env!("VERSION_AND_COMMIT"), arg_required_else_help = true)]
struct Cli {
    /// The ring that market-gateway writes. Where there is none yet, says so, and waits.
    ring: PathBuf,
    /// The server.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:4222")]
    server: String,
    /// The user that the server knows, with --password-file. User, password and token are not
    /// encrypted on their way: there is no TLS here.
    #[arg(long, value_name = "NAME", requires = "password_file")]
    user: Option<String>,
    /// A file with the password in its first line, which nobody else can read.
    #[arg(long, value_name = "FILE", requires = "user")]
    password_file: Option<PathBuf>,
    /// Instead, a file with a token in its first line.
    #[arg(long, value_name = "FILE", conflicts_with = "user")]
    token_file: Option<PathBuf>,
    /// The word for the venue in subjects: md.VENUE.CHANNEL.events.
    #[arg(long, default_value = "venue", value_parser = parse_word)]
    venue: String,
    /// The stream of events; that of quotes has -quotes appended.
    #[arg(long, default_value = "MD", value_parser = parse_word)]
    stream: String,
    /// Mebibytes that each of the two streams keeps, the oldest go first. The server sets them
    /// aside when a stream is made, and refuses where its disk has less room.
    #[arg(long, value_name = "MIB", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..))]
    stream_mib: u32,
    /// When the ring overtakes the publisher: skip and tell, conflate (quotes alone), or
    /// disconnect.
    #[arg(long, value_enum, default_value_t = PolicyWord::Skip)]
    policy: PolicyWord,
    /// When the ring ends, or its writer is killed, wait for the next writer and go on.
    #[arg(long)]
    follow: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum PolicyWord {
    Skip,
    Conflate,
    Disconnect,
}

/// A token of a subject.
fn parse_word(text: &str) -> Result<String, String> {
    let is_word = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    if is_word { Ok(text.to_owned()) } else { Err("use letters, digits, - and _".to_owned()) }
}

impl Cli {
    fn login(&self) -> Result<Login, String> {
        let secret = |path: &Path| {
            read_secret(path).map_err(|error| format!("cannot read the secret of {}: {error}", path.display()))
        };
        Ok(match (&self.user, &self.password_file, &self.token_file) {
            (Some(name), Some(path), _) => Login::User { name: name.clone(), password: secret(path)? },
            (_, _, Some(path)) => Login::Token(secret(path)?),
            _ => Login::None,
        })
    }

    fn config(&self) -> Result<PublisherConfig, String> {
        let policy = match self.policy {
            PolicyWord::Skip => Policy::Skip,
            PolicyWord::Conflate => Policy::Conflate,
            PolicyWord::Disconnect => Policy::Disconnect,
        };
        Ok(PublisherConfig {
            server: NatsServer { address: self.server.clone(), login: self.login()? },
            venue: self.venue.clone(),
            stream: self.stream.clone(),
            policy,
            stream_bytes_max: i64::from(self.stream_mib) << 20,
            ..PublisherConfig::default()
        })
    }
}

fn main() -> ExitCode {
    run(&Cli::parse()).unwrap_or_else(|sentence| {
        say(&sentence);
        ExitCode::FAILURE
    })
}

fn say(sentence: &str) {
    eprintln!("market-gateway-nats: {}", printable(sentence));
}

fn run(cli: &Cli) -> Result<ExitCode, String> {
    let config = cli.config()?;
    let stop = StopFlag::on_signals().map_err(|error| error.to_string())?;
    let waiting = |error: &OpenError| say(&format!("{error}; waiting"));
    let open = |before| {
        let opened = RingReader::wait(&cli.ring, before, || stop.is_stopping(), waiting);
        opened.map_err(|error| error.to_string())
    };
    let Some(ring) = open(None)? else { return Ok(ExitCode::SUCCESS) };
    let (mut publisher, mut outages) = (Publisher::new(config, ring), Outages::default());
    loop {
        let end = publish_ring(&mut publisher, &mut outages, &stop)?;
        if end.is_none() {
            flush(&mut publisher, &mut outages);
        }
        println!("{}", publisher.counts());
        if end == Some(Turn::WriterGone) {
            say(&format!("the writer of {} was killed", cli.ring.display()));
        }
        let is_well = match end {
            None => publisher.waiting() == 0,
            Some(end) => end == Turn::Ended,
        };
        if !cli.follow || end.is_none() {
            return Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        let Some(ring) = open(Some(publisher.session()))? else { return Ok(ExitCode::SUCCESS) };
        publisher.follow(ring);
    }
}

/// Publishes a ring to its end; `None` where it was stopped before.
fn publish_ring(publisher: &mut Publisher, outages: &mut Outages, stop: &StopFlag) -> Result<Option<Turn>, String> {
    while !stop.is_stopping() {
        match publisher.turn().map_err(|stopped| stopped.to_string())? {
            Turn::Busy => (),
            Turn::Idle => thread::sleep(IDLE),
            end @ (Turn::Ended | Turn::WriterGone) => return Ok(Some(end)),
        }
        outages.tell(publisher);
    }
    Ok(None)
}

/// What was read is sent and acknowledged before the program ends, as far as the broker is there.
fn flush(publisher: &mut Publisher, outages: &mut Outages) {
    let until = Instant::now() + FLUSH_MAX;
    while !publisher.flush() && publisher.why_down().is_none() && Instant::now() < until {
        thread::sleep(IDLE);
    }
    outages.tell(publisher);
    if publisher.waiting() > 0 {
        say(&format!("{} batches are not acknowledged; the ring keeps them while it lasts", publisher.waiting()));
    }
}

/// What an operator was told of the connection last.
#[derive(Default)]
struct Outages {
    /// Why there was none, where there was none; `None` before the first word.
    told: Option<Option<String>>,
}

impl Outages {
    fn tell(&mut self, publisher: &Publisher) {
        let why = publisher.why_down();
        let is_first_attempt = why.is_none() && publisher.counts().connections == 0;
        if !is_first_attempt && self.told.as_ref().is_none_or(|told| told.as_deref() != why) {
            say(why.unwrap_or("connected"));
            self.told = Some(why.map(str::to_owned));
        }
    }
}
