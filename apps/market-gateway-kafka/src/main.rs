//! `market-gateway-kafka`: the command line over the library.
//!
//! Exit codes: 0 the ring ended, or Ctrl-C, and all is acknowledged, 1 something failed or the
//! ring's writer was killed, 2 the command line makes no sense.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use market_fanout::{Policy, PublisherConfig, parse_word, run};
use market_gateway_kafka::Kafka;

/// Publish a market-data ring to Kafka, until the ring ends or Ctrl-C.
#[derive(Parser)]
#[command(version = env!("VERSION_AND_COMMIT"), arg_required_else_help = true)]
struct Cli {
    /// The ring that market-gateway writes. Where there is none yet, says so, and waits.
    ring: PathBuf,
    /// Brokers of the cluster to ask first.
    #[arg(long, value_name = "HOST:PORT,…", value_delimiter = ',', default_value = "127.0.0.1:9092", value_parser = parse_server)]
    servers: Vec<String>,
    /// The word for the venue in topics: md.VENUE.events and md.VENUE.quotes.
    #[arg(long, default_value = "venue", value_parser = parse_word)]
    venue: String,
    /// When the ring overtakes the publisher: skip and tell, conflate (quotes alone), or
    /// disconnect.
    #[arg(long, default_value = "skip")]
    policy: Policy,
    /// When the ring ends, or its writer is killed, wait for the next writer and go on.
    #[arg(long)]
    follow: bool,
}

fn parse_server(text: &str) -> Result<String, String> {
    let port = text.rsplit_once(':').filter(|(host, _)| !host.is_empty()).map(|(_, port)| port.parse::<u16>());
    if let Some(Ok(1..)) = port { Ok(text.to_owned()) } else { Err("use HOST:PORT, as kafka1:9092".to_owned()) }
}

fn main() -> ExitCode {
    let Cli { ring, servers, venue, policy, follow } = Cli::parse();
    // All in-sync replicas have what is acknowledged: it is not sent again.
    let config = PublisherConfig { policy, kept: 0, ..PublisherConfig::default() };
    run("market-gateway-kafka", &ring, follow, Kafka::new(servers, &venue), config)
}
