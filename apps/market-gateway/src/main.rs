//! `market-gateway`: the command line over the library. The feed's flags are feed-handler's.
//!
//! Exit codes: 0 all is well and adds up, 1 something failed, 2 the command line or the
//! configuration makes no sense.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use clap::{Args, Parser, Subcommand};
use feed_handler::args::{ReplayArgs, RunArgs};
use feed_handler::report::Summary;
use feed_handler::{Error, Event, SinkContext, replay_with, run_with};
use market::Capacity;
use market_gateway::images::ImageServer;
use market_gateway::{GatewayCounts, RingSink};
use market_ring::RingConfig;
use wirepath::counters::{printable, printable_lines};
use wirepath::worker::StopFlag;

/// One feed in, many consumers out by shared memory, none of whom can slow the feed.
#[derive(Parser)]
#[command(version = env!("VERSION_AND_COMMIT"), arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Hand on a capture, or a file of ITCH messages.
    Replay {
        #[command(flatten)]
        feed: Box<ReplayArgs>,
        #[command(flatten)]
        ring: RingArgs,
    },
    /// Hand on the configured channels of a live interface, until Ctrl-C.
    Run {
        #[command(flatten)]
        feed: Box<RunArgs>,
        #[command(flatten)]
        ring: RingArgs,
    },
}

#[derive(Args)]
#[command(next_help_heading = "The ring")]
struct RingArgs {
    /// Make the ring here; /dev/shm is the usual place. With several workers each has its own:
    /// PATH.QUEUE.
    #[arg(long, value_name = "PATH")]
    ring: PathBuf,
    /// Events that the ring holds: a reader that falls behind by more is told what it missed.
    #[arg(long, value_name = "N", default_value_t = RingConfig::default().records)]
    records: usize,
    /// Instruments that have a quote, shared equally by the channels. By default as many as their
    /// books have a place for.
    #[arg(long, value_name = "N")]
    quotes: Option<usize>,
    /// Give images of single instruments at this Unix socket, to consumers that join in mid-day.
    /// With several workers each has its own: PATH.QUEUE.
    #[arg(long, value_name = "PATH")]
    images: Option<PathBuf>,
}

/// The threads that give images.
type ImageServers = Arc<Mutex<Vec<ImageServer>>>;

fn main() -> ExitCode {
    match Cli::parse().command.carry_out() {
        Ok(code) => code,
        Err(error) => {
            say(&error.to_string());
            ExitCode::from(error.exit_code())
        }
    }
}

impl Command {
    fn carry_out(self) -> Result<ExitCode, Error> {
        let stop = StopFlag::on_signals().map_err(Error::failed)?;
        let counts = Arc::new(GatewayCounts::default());
        let images = ImageServers::default();
        let summary = match self {
            Self::Replay { feed, ring } => {
                let sinks = ring.sinks(false, &counts, &images);
                replay_with(&feed.plan()?, &stop, report(feed.output.quiet, Arc::clone(&counts)), sinks)?
            }
            Self::Run { feed, ring } => {
                let plan = feed.plan()?;
                let sinks = ring.sinks(plan.live.queues.len() > 1, &counts, &images);
                run_with(&plan, &stop, report(feed.output.quiet, Arc::clone(&counts)), sinks)?
            }
        };
        conclude(&summary, &counts);
        Ok(if summary.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

impl RingArgs {
    /// Makes the rings of the workers.
    fn sinks(
        self,
        has_several: bool,
        counts: &Arc<GatewayCounts>,
        images: &ImageServers,
    ) -> impl Fn(&SinkContext) -> Result<RingSink, Error> + Send + Sync + 'static {
        let (counts, images) = (Arc::clone(counts), Arc::clone(images));
        move |context| {
            let wanted = RingSink::quotes_wanted(context);
            let quotes = self.quotes.unwrap_or(wanted);
            if quotes < wanted {
                say(&format!(
                    "the ring has {quotes} quotes, and the books have places for {wanted} instruments: \
                     raise --quotes, or lower `instruments` in [books]"
                ));
            }
            if let Some((first, last)) = RingSink::lifeless_channels(context) {
                say(&format!(
                    "the ring does not tell whether channels {first} to {last} live, so that an order-gateway trades on \
                     none of their quotes: divide the channels among several gateways"
                ));
            }
            let config = RingConfig { records: self.records, quotes, ..RingConfig::default() };
            let path_of = |path: &Path| if has_several { numbered(path, context.queue) } else { path.to_owned() };
            let ring = path_of(&self.ring);
            let sink = RingSink::create(&ring, &config, context, Arc::clone(&counts))?;
            if let Some(socket) = &self.images {
                let capacity = context.plan.capacity.over(Capacity::default());
                let socket = path_of(socket);
                let server = ImageServer::start(&ring, &socket, capacity, say).map_err(|error| {
                    Error::failed(format!(
                        "no images at {}: {error}; give --images the path of a new socket",
                        socket.display()
                    ))
                })?;
                images.lock().unwrap_or_else(PoisonError::into_inner).push(server);
            }
            Ok(sink)
        }
    }
}

fn numbered(path: &Path, queue: u16) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{queue}"));
    name.into()
}

fn say(sentence: &str) {
    eprintln!("market-gateway: {}", printable(sentence));
}

/// Notices as lines on standard error.
fn report(is_quiet: bool, counts: Arc<GatewayCounts>) -> impl FnMut(Event) {
    let mut has_said = [is_quiet; 2];
    move |event| {
        match event {
            Event::Notice(sentence) | Event::Ready(sentence) if !is_quiet => say(&sentence),
            _ => (),
        }
        // Events come once a second at least.
        for (notice, has_said) in counts.notices().into_iter().zip(&mut has_said) {
            if let Some(notice) = notice.filter(|_| !*has_said) {
                say(notice);
                *has_said = true;
            }
        }
    }
}

fn conclude(summary: &Summary, counts: &GatewayCounts) {
    print!("{}", printable_lines(&summary.to_string()));
    println!("{counts}");
    for failure in &summary.failures {
        say(failure);
    }
}
