//! The command line.

use std::net::SocketAddrV4;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use exchange_sim::Probability;
use wirepath::device::pcap::Pace;
use wirepath::pipeline::ChecksumPolicy;
use wirepath::testing::fault::{FaultConfig, Faults};

use crate::config::Config;
use crate::error::Error;
use crate::feed::{GROUPS_MAX, Tops};
use crate::format::Format;
use crate::plan::{FeedPlan, Placement, ReplayPlan, RunPlan, parse_group, parse_pace, parse_seconds};

/// Market data through a poll-mode pipeline: each packet validated, arbitrated, decoded, and
/// accounted for.
#[derive(Debug, Parser)]
#[command(version = env!("VERSION_AND_COMMIT"), arg_required_else_help = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a capture (pcap or pcapng, plain or gzip) or a file of ITCH messages through the whole
    /// pipeline.
    Replay(ReplayArgs),
    /// Receive from a live interface through the whole pipeline, until Ctrl-C: what the port and
    /// channels of the configuration name, nothing else.
    Run(RunArgs),
}

/// What a live run can be told.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// The interface, whose it is, channels, sizes and policies; flags go before it.
    config: PathBuf,
    /// Another interface than the configuration's.
    #[arg(long, value_name = "NAME")]
    interface: Option<String>,
    /// Stop by itself after so many seconds.
    #[arg(long, value_name = "S", value_parser = parse_seconds)]
    seconds: Option<Duration>,
    #[command(flatten)]
    worker: WorkerArgs,
    /// How the outcome is told.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Where the worker runs.
#[derive(Debug, Args)]
struct WorkerArgs {
    /// Pin the worker to this core, or to none with any [default: the last core that it may use].
    #[arg(long, value_name = "N|any")]
    cpu: Option<Placement>,
    /// Fail where there are no hugepages, instead of going on with small pages.
    #[arg(long)]
    require_hugepages: bool,
}

/// What is told, and how.
#[derive(Debug, Args)]
pub struct OutputArgs {
    /// The summary as a table for people, or as one JSON object on standard output.
    #[arg(long, value_enum, default_value_t = SummaryFormat::Text)]
    pub summary: SummaryFormat,
    /// How many instruments' best bid and offer the summary shows: a number, or all.
    #[arg(long, value_name = "N|all", default_value = "5", value_parser = parse_tops)]
    pub tops: Tops,
    /// Compare with the truth file of exchange-sim, at the end; fail where they differ.
    #[arg(long, value_name = "FILE")]
    truth: Option<PathBuf>,
    /// No progress and no notices; only the summary, and what failed.
    #[arg(long, short)]
    pub quiet: bool,
    /// Say how the pipeline was built, what its buffers are for, and what this machine could do
    /// better.
    #[arg(long, short)]
    pub verbose: bool,
}

/// What a replay can be told.
#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// The capture; with --format itch50-file a file of messages.
    file: PathBuf,
    /// What is in it: mold-itch50, iex-tops, iex-deep, cboe-pitch or itch50-file.
    #[arg(long, value_name = "FORMAT")]
    format: Option<Format>,
    /// Channels, sizes and policies from a file; flags go before it.
    #[arg(long, value_name = "FILE.toml")]
    config: Option<PathBuf>,
    /// Listen to this group only; may be repeated [default: every group of the capture].
    #[arg(long = "group", value_name = "GROUP:PORT", value_parser = parse_group)]
    groups: Vec<SocketAddrV4>,
    /// full, recorded, or so many times as fast as recorded, such as 10x [default: full].
    #[arg(long, value_parser = parse_pace)]
    pace: Option<Pace>,
    /// Stop after so many packets.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    max_packets: Option<u64>,
    #[command(flatten)]
    worker: WorkerArgs,
    /// Write what the worker receives into a capture.
    #[arg(long, value_name = "OUT.pcap")]
    capture: Option<PathBuf>,
    /// How the outcome is told.
    #[command(flatten)]
    pub output: OutputArgs,
    #[command(flatten)]
    faults: FaultArgs,
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
struct FaultArgs {
    /// A packet is lost.
    #[arg(long, value_name = "P")]
    fault_loss: Option<Probability>,
    /// A packet comes twice.
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

impl ReplayArgs {
    /// Flags over the configuration over defaults.
    pub fn plan(&self) -> Result<ReplayPlan, Error> {
        let config = match &self.config {
            Some(path) => Config::read(path)?,
            None => Config::default(),
        };
        let format = self.chosen_format(&config)?;
        let faults = self.faults.config();
        self.check_truth(format, faults.is_some())?;
        let feed = FeedPlan { groups: self.chosen_groups(), ..feed_plan(format, &config, &self.worker, &self.output) };
        if !feed.sets.is_empty() && !self.groups.is_empty() {
            return Err(Error::Usage("--group is for a replay without channels: the configuration names them".into()));
        }
        let groups = feed.groups.len() + feed.sets.iter().map(|set| set.lines.len()).sum::<usize>();
        if groups > GROUPS_MAX {
            return Err(Error::Usage(format!(
                "{groups} groups are more than the {GROUPS_MAX} of a replay, which has one worker: name fewer, and replay the file \
                 again for the rest"
            )));
        }
        Ok(ReplayPlan {
            feed,
            input: self.file.clone(),
            pace: self.pace.or(config.pace()).unwrap_or_default(),
            packets_max: self.max_packets,
            frame_len_max: config.frame_len_max(),
            checksum: config.checksum().unwrap_or(ChecksumPolicy::AcceptPartial),
            faults,
            capture: self.capture.clone(),
        })
    }

    /// The flag's, or the configuration's; both where they agree.
    fn chosen_format(&self, config: &Config) -> Result<Format, Error> {
        match (self.format, config.format()) {
            (Some(flag), Some(channels)) if flag != channels => Err(Error::Usage(format!(
                "--format {flag} and the configuration's channels of {channels} do not agree: leave one of them out"
            ))),
            (Some(format), _) | (None, Some(format)) => Ok(format),
            (None, None) => Err(Error::Usage(format!(
                "what is in {}? add --format with one of {}",
                self.file.display(),
                Format::ALL.map(Format::name).join(", ")
            ))),
        }
    }

    /// Each group once, however often it was named.
    fn chosen_groups(&self) -> Vec<SocketAddrV4> {
        let mut groups = self.groups.clone();
        groups.sort_unstable();
        groups.dedup();
        groups
    }

    /// The truth is about a whole day as exchange-sim sent it.
    fn check_truth(&self, format: Format, has_faults: bool) -> Result<(), Error> {
        let problem = match self.output.truth {
            None => return Ok(()),
            Some(_) if format != Format::MoldItch50 => "--truth is about days of exchange-sim, which are mold-itch50",
            Some(_) if has_faults => {
                "--truth does not know of --fault flags: let exchange-sim inject the faults (--loss, --duplicate, \
                 --reorder), which writes them into the truth"
            }
            Some(_) if self.max_packets.is_some() => "--truth is about a whole day: leave --max-packets out",
            Some(_) => return Ok(()),
        };
        Err(Error::Usage(problem.to_owned()))
    }
}

impl RunArgs {
    /// Flags over the configuration over defaults.
    pub fn plan(&self) -> Result<RunPlan, Error> {
        let config = Config::read(&self.config)?;
        let file = self.config.display();
        let Some(mut live) = config.live() else {
            return Err(Error::Usage(format!("{file} names no interface: add [port] with interface = \"eth1\"")));
        };
        let Some(format) = config.format() else {
            return Err(Error::Usage(format!(
                "{file} has no [[channels]]: a live run joins the groups that are named, and no others"
            )));
        };
        if self.output.truth.is_some() && format != Format::MoldItch50 {
            return Err(Error::Usage("--truth is about days of exchange-sim, which are mold-itch50".into()));
        }
        if let Some(interface) = &self.interface {
            live.port.set_interface(interface);
        }
        Ok(RunPlan { feed: feed_plan(format, &config, &self.worker, &self.output), live, duration: self.seconds })
    }
}

/// What both commands ask for.
fn feed_plan(format: Format, config: &Config, flags: &WorkerArgs, output: &OutputArgs) -> FeedPlan {
    let mut worker = config.worker();
    worker.placement = flags.cpu.unwrap_or(worker.placement);
    worker.require_hugepages |= flags.require_hugepages;
    FeedPlan {
        format,
        worker,
        policy: config.policy(),
        window: config.window(),
        capacity: config.capacity(),
        sets: config.sets(),
        groups: Vec::new(),
        truth: output.truth.clone(),
        // The truth tells every book's top, so all of them are compared.
        tops: if output.truth.is_some() { Tops::All } else { output.tops },
    }
}

impl FaultArgs {
    /// A fault device is there as soon as one flag is, also where all chances are zero.
    fn config(&self) -> Option<FaultConfig> {
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
