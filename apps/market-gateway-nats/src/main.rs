//! `market-gateway-nats`: the command line over the library.
//!
//! Exit codes: 0 the ring ended, or Ctrl-C, and all is acknowledged, 1 something failed or the
//! ring's writer was killed, 2 the command line makes no sense.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use market_fanout::{Policy, PublisherConfig, parse_word, run};
use market_gateway_nats::{JetStream, Login, NatsServer, read_secret};
use wirepath::counters::printable;

const NAME: &str = "market-gateway-nats";

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
    #[arg(long, default_value = "skip")]
    policy: Policy,
    /// When the ring ends, or its writer is killed, wait for the next writer and go on.
    #[arg(long)]
    follow: bool,
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

    fn broker(&self) -> Result<JetStream, String> {
        Ok(JetStream {
            server: NatsServer { address: self.server.clone(), login: self.login()? },
            venue: self.venue.clone(),
            stream: self.stream.clone(),
            stream_bytes_max: i64::from(self.stream_mib) << 20,
        })
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let config = PublisherConfig { policy: cli.policy, ..PublisherConfig::default() };
    match cli.broker() {
        Ok(broker) => run(NAME, &cli.ring, cli.follow, broker, config),
        Err(sentence) => {
            eprintln!("{NAME}: {}", printable(&sentence));
            ExitCode::FAILURE
        }
    }
}
