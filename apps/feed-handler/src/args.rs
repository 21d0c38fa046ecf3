//! The command line. It is turned into a [plan](crate::plan).

use std::net::SocketAddrV4;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use market::truth::Probability;
use wirepath::device::fault::{FaultConfig, Faults};
use wirepath::device::pcap::Pace;

use crate::feed::Tops;
use crate::format::Format;
use crate::values::{Placement, parse_group, parse_pace, parse_seconds};

/// Market data through a poll-mode pipeline: each packet validated, arbitrated, decoded, and
/// accounted for.
#[derive(Debug, Parser)]
#[command(version = env!("VERSION_AND_COMMIT"), arg_required_else_help = true)]
pub struct Cli {
    /// The command to run.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a capture (pcap or pcapng, plain or gzip) or a file of ITCH messages through the whole
    /// pipeline.
    Replay(ReplayArgs),
    /// Receive the configured channels from a live interface through the whole pipeline, until
    /// Ctrl-C.
    Run(RunArgs),
}

/// The options of a live run.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// The file with the interface, its owner, channels, sizes and policies; flags override it.
    pub(crate) config: PathBuf,
    /// Use this interface instead of the configuration's.
    #[arg(long, value_name = "NAME")]
    pub(crate) interface: Option<String>,
    /// Stop after this many seconds.
    #[arg(long, value_name = "S", value_parser = parse_seconds)]
    pub(crate) seconds: Option<Duration>,
    /// Let other machines read the books by RDMA, with `wirepath rdma books`: over this port of the
    /// machine, which is another one than the feed's.
    #[arg(long, value_name = "PORT")]
    pub(crate) expose: Option<String>,
    #[command(flatten)]
    pub(crate) worker: WorkerArgs,
    /// The options of the output.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Where the worker runs.
#[derive(Debug, Args)]
pub(crate) struct WorkerArgs {
    /// Pin the worker to this core, or to none with any [default: the last core that it may use].
    #[arg(long, value_name = "N|any")]
    pub(crate) cpu: Option<Placement>,
    /// Fail if there are no hugepages, instead of using small pages.
    #[arg(long)]
    pub(crate) require_hugepages: bool,
}

/// The form and the detail of the output.
#[derive(Debug, Args)]
pub struct OutputArgs {
    /// The summary as a table for people, or as one JSON object on standard output.
    #[arg(long, value_enum, default_value_t = SummaryFormat::Text)]
    pub summary: SummaryFormat,
    /// The number of instruments whose best bid and offer the summary shows, or all.
    #[arg(long = "top-of-book", value_name = "N|all", default_value = "5", value_parser = parse_tops)]
    pub tops: Tops,
    /// Compare the results with the truth file of exchange-sim, and fail if they differ.
    #[arg(long, value_name = "FILE")]
    pub(crate) truth: Option<PathBuf>,
    /// No progress and no notices; only the summary and errors.
    #[arg(long, short)]
    pub quiet: bool,
    /// Print the parts of the pipeline, the use of its buffers, and possible improvements of this
    /// machine.
    #[arg(long, short)]
    pub verbose: bool,
}

/// The options of a replay.
#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// The capture; with --format itch50-file a file of messages.
    pub(crate) file: PathBuf,
    /// The format of the file: mold-itch50, iex-tops, iex-deep, cboe-pitch, cme-mdp3,
    /// nyse-pillar, memx-depth, b3-umdf, eurex-eobi or itch50-file.
    #[arg(long, value_name = "FORMAT")]
    pub(crate) format: Option<Format>,
    /// A file with channels, sizes and policies; flags override it.
    #[arg(long, value_name = "FILE.toml")]
    pub(crate) config: Option<PathBuf>,
    /// Listen to this group only; may be repeated [default: every group of the capture].
    #[arg(long = "group", value_name = "GROUP:PORT", value_parser = parse_group)]
    pub(crate) groups: Vec<SocketAddrV4>,
    /// full, recorded, or a multiple of the recorded speed such as 10x [default: full].
    #[arg(long, value_parser = parse_pace)]
    pub(crate) pace: Option<Pace>,
    /// Stop after this many packets.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_packets: Option<u64>,
    #[command(flatten)]
    pub(crate) worker: WorkerArgs,
    /// Write the frames that the worker receives into a capture.
    #[arg(long, value_name = "OUT.pcap")]
    pub(crate) capture: Option<PathBuf>,
    /// The options of the output.
    #[command(flatten)]
    pub output: OutputArgs,
    #[command(flatten)]
    pub(crate) faults: FaultArgs,
}

/// How the summary is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SummaryFormat {
    /// A table for people.
    Text,
    /// One object on one line.
    Json,
}

#[derive(Debug, Args)]
#[command(
    next_help_heading = "Faults between the capture and the worker, as a probability (0.001) or a percentage (0.1%)"
)]
pub(crate) struct FaultArgs {
    /// A packet is lost.
    #[arg(long, value_name = "P")]
    fault_loss: Option<Probability>,
    /// A packet is duplicated.
    #[arg(long, value_name = "P")]
    fault_duplicate: Option<Probability>,
    /// A packet is overtaken by up to four others.
    #[arg(long, value_name = "P")]
    fault_reorder: Option<Probability>,
    /// One bit of a packet is flipped.
    #[arg(long, value_name = "P")]
    fault_corrupt: Option<Probability>,
    /// The same seed gives the same faults.
    #[arg(long, value_name = "N")]
    fault_seed: Option<u64>,
}

impl FaultArgs {
    /// A fault device is created as soon as one flag is given, also where all probabilities are
    /// zero.
    pub(crate) fn config(&self) -> Option<FaultConfig> {
        let chances = [self.fault_loss, self.fault_duplicate, self.fault_reorder, self.fault_corrupt];
        if chances.iter().all(Option::is_none) {
            return None;
        }
        let [loss, duplication, reordering, corruption] = chances.map(|chance| chance.map_or(0.0, Probability::get));
        let rx = Faults { loss, duplication, reordering, corruption, ..Faults::NONE };
        Some(FaultConfig { seed: self.fault_seed.unwrap_or(1), rx, tx: Faults::NONE })
    }
}

fn parse_tops(text: &str) -> Result<Tops, String> {
    match text {
        "all" => Ok(Tops::All),
        number => number.parse().map(Tops::First).map_err(|_| "use a number, or all".to_owned()),
    }
}
