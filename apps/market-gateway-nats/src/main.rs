//! `market-gateway-nats`: the command line over the library.
//!
//! Exit codes: 0 the ring ended and all is acknowledged, 1 something failed or the ring's writer
//! was killed, 2 the command line makes no sense.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use market_gateway_nats::{Policy, Publisher, PublisherConfig, Turn};
use market_ring::{OpenError, OpenProblem, RingReader};

/// Publish a market-data ring to NATS with JetStream, until the ring ends, or for ever.
#[derive(Parser)]
#[command(arg_required_else_help = true)]
struct Cli {
    /// The ring that market-gateway writes. Where there is none yet, says so, and waits.
    ring: PathBuf,
    /// The server.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:4222")]
    server: String,
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

/// Opens a ring, and waits for its publisher where there is none, or only the one of `before`.
fn wait_for_ring(path: &Path, before: Option<u64>) -> Result<RingReader, OpenError> {
    let mut has_said = false;
    loop {
        match RingReader::open(path) {
            Err(error) if matches!(error.problem, OpenProblem::NoWriter) => {
                if !has_said {
                    eprintln!("market-gateway-nats: {error}; waiting");
                    has_said = true;
                }
            }
            Ok(ring) if before == Some(ring.session()) => (),
            opened => return opened,
        }
        thread::sleep(Duration::from_millis(10));
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let policy = match cli.policy {
        PolicyWord::Skip => Policy::Skip,
        PolicyWord::Conflate => Policy::Conflate,
        PolicyWord::Disconnect => Policy::Disconnect,
    };
    let Cli { server, venue, stream, .. } = cli;
    let stream_bytes_max = i64::from(cli.stream_mib) << 20;
    let ring = match wait_for_ring(&cli.ring, None) {
        Ok(ring) => ring,
        Err(error) => {
            eprintln!("market-gateway-nats: {error}");
            return ExitCode::FAILURE;
        }
    };
    let config = PublisherConfig { server, venue, stream, policy, stream_bytes_max, ..PublisherConfig::default() };
    let mut publisher = Publisher::new(config, ring);
    let mut was_down = None;
    loop {
        match publisher.turn() {
            Ok(Turn::Busy) => (),
            Ok(Turn::Idle) => thread::sleep(Duration::from_micros(100)),
            Ok(end @ (Turn::Ended | Turn::WriterGone)) => {
                println!("{:?}", publisher.counts());
                if end == Turn::WriterGone {
                    eprintln!("market-gateway-nats: the writer of {} was killed", cli.ring.display());
                }
                if !cli.follow {
                    return if end == Turn::Ended { ExitCode::SUCCESS } else { ExitCode::FAILURE };
                }
                match wait_for_ring(&cli.ring, Some(publisher.session())) {
                    Ok(ring) => publisher.follow(ring),
                    Err(error) => {
                        eprintln!("market-gateway-nats: {error}");
                        return ExitCode::FAILURE;
                    }
                }
            }
            Err(stopped) => {
                eprintln!("market-gateway-nats: {stopped}");
                return ExitCode::FAILURE;
            }
        }
        let why_down = publisher.why_down().map(|why| why.escape_debug().to_string());
        if why_down != was_down {
            let sentence = why_down.as_deref().unwrap_or("connected");
            eprintln!("market-gateway-nats: {sentence}");
            was_down = why_down;
        }
    }
}
