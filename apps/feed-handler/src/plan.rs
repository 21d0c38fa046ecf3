//! A user's request, complete and checked before anything starts: flags take precedence over the
//! configuration, and that over defaults.

use std::collections::HashMap;
use std::net::SocketAddrV4;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use market::{Capacity, Policy, Window};
use wirepath::device::fault::FaultConfig;
use wirepath::device::pcap::Pace;
use wirepath::mem::BURST_MAX;
use wirepath::pipeline::ChecksumPolicy;
use wirepath::port::{Subscription, multicast};
use wirepath::worker::live::LiveConfig;

use crate::args::{OutputArgs, ReplayArgs, RunArgs, WorkerArgs};
use crate::config::Config;
use crate::error::Error;
use crate::feed::{GROUPS_MAX, SetConfig, Tops};
use crate::format::Format;

/// The common part of a replay and a live run: the feeds to decode, and their lines.
#[derive(Clone, Debug)]
pub struct FeedPlan {
    /// The format of the packets.
    pub format: Format,
    /// The worker.
    pub worker: WorkerPlan,
    /// Where numbers begin.
    pub policy: Policy,
    /// How long a hole may stay open.
    pub window: Window,
    /// Memory for the books of one channel; `None` for the usual needs of the format.
    pub capacity: CapacityPlan,
    /// The channels that the configuration names; empty for all groups.
    pub sets: Vec<SetConfig>,
    /// The groups that flags name; empty for all.
    pub groups: Vec<SocketAddrV4>,
    /// The truth file of exchange-sim to be compared with.
    pub truth: Option<PathBuf>,
    /// The instruments whose top of book is in the summary.
    pub tops: Tops,
}

/// The plan of a replay.
#[derive(Clone, Debug)]
pub struct ReplayPlan {
    /// The feeds to decode, and their lines.
    pub feed: FeedPlan,
    /// The capture, or the file of messages.
    pub input: PathBuf,
    /// How fast it is replayed.
    pub pace: Pace,
    /// The most frames to receive.
    pub packets_max: Option<u64>,
    /// Bytes of the longest frame: longer ones are counted and dropped.
    pub frame_len_max: usize,
    /// The policy for UDP checksums.
    pub checksum: ChecksumPolicy,
    /// Faults on the way from the capture to the worker; `None` for no fault device at all.
    pub faults: Option<FaultConfig>,
    /// The capture into which the worker's received frames are written.
    pub capture: Option<PathBuf>,
}

/// The plan of a live run.
#[derive(Clone, Debug)]
pub struct RunPlan {
    /// The feeds to decode, and their lines.
    pub feed: FeedPlan,
    /// The interface and its owner.
    pub live: LiveConfig,
    /// Its length; `None` until a signal.
    pub duration: Option<Duration>,
}

impl FeedPlan {
    /// Channels that the configuration names.
    pub fn channels_max(&self) -> usize {
        self.sets.iter().map(SetConfig::channels_max).sum()
    }

    /// A subscription for each line and each group: on a live port to the queue of its set, the
    /// `first` where the set names none. Its consumer is its place in its worker's feed.
    pub(crate) fn subscriptions(&self, first: Option<u16>) -> Vec<Subscription> {
        let mut consumers = HashMap::<u16, u32>::new();
        let lines = self.sets.iter().flat_map(|set| set.lines.iter().map(|line| (set.queue, line)));
        let lines = lines.map(|(queue, line)| {
            let subscription = multicast(*line.group.ip(), line.group.port());
            let subscription = line.senders.iter().copied().fold(subscription, Subscription::source);
            let Some(first) = first else { return (0, subscription) };
            let queue = queue.unwrap_or(first);
            (queue, line.vlan.into_iter().fold(subscription, Subscription::vlan).queue(queue))
        });
        let groups = self.groups.iter().map(|group| (0, multicast(*group.ip(), group.port())));
        let number = |(queue, subscription): (u16, Subscription)| {
            let consumer = consumers.entry(queue).or_default();
            *consumer += 1;
            subscription.consumer(*consumer - 1)
        };
        lines.chain(groups).map(number).collect()
    }

    /// The channels of one queue. Those without a queue belong to the first.
    pub(crate) fn on_queue(&self, idx: u16, first: u16) -> Self {
        let sets = self.sets.iter().filter(|set| set.queue.unwrap_or(first) == idx).cloned().collect();
        Self { sets, ..self.clone() }
    }
}

/// The worker's core and sizes.
#[derive(Clone, Debug)]
pub struct WorkerPlan {
    /// Its core.
    pub placement: Placement,
    /// The most frames in a turn, up to [`BURST_MAX`].
    pub burst_len: usize,
    /// Buffers of the pool; `None` for the sum over its users.
    pub buffers: Option<usize>,
    /// A start without hugepages fails.
    pub require_hugepages: bool,
    /// Times one packet in this many; 0 for none.
    pub latency_every: u32,
}

/// The core that a worker is pinned to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// The last core that the process may use, because a system does most of its own work on the
    /// first.
    #[default]
    Last,
    /// This one.
    Core(usize),
    /// None: the scheduler moves it.
    Any,
}

/// The operator's limits for the memory of books.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CapacityPlan {
    /// Instruments.
    pub instruments: Option<usize>,
    /// Orders that rest at one time.
    pub orders: Option<usize>,
    /// Prices at one time.
    pub levels: Option<usize>,
}

/// A jumbo frame of 9,216 bytes with two VLAN tags. Untouched buffers cost address space only.
pub const FRAME_LEN_MAX: usize = 9_216 + 14 + 8;
/// See [`WorkerPlan::latency_every`].
pub const LATENCY_EVERY: u32 = 7;
/// Packets that may wait behind a hole. At 10 Gb/s some 80 full packets of a line pass in 100 µs,
/// the usual difference between lines of one site; too few turn a burst into false gaps.
pub const WINDOW_PACKETS: usize = 256;

impl ReplayArgs {
    /// Flags take precedence over the configuration, and that over defaults.
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

    /// The flag's or the configuration's format; an error where they differ.
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
    /// Flags take precedence over the configuration, and that over defaults.
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

/// The plan that both commands share.
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
        // The truth has every book's top, so all of them are compared.
        tops: if output.truth.is_some() { Tops::All } else { output.tops },
    }
}

impl Default for WorkerPlan {
    fn default() -> Self {
        Self {
            placement: Placement::default(),
            burst_len: BURST_MAX / 2,
            buffers: None,
            require_hugepages: false,
            latency_every: LATENCY_EVERY,
        }
    }
}

impl CapacityPlan {
    /// The operator's limits, and `usual` where there are none.
    pub fn over(self, usual: Capacity) -> Capacity {
        Capacity {
            books: self.instruments.unwrap_or(usual.books),
            orders: self.orders.unwrap_or(usual.orders),
            levels: self.levels.unwrap_or(usual.levels),
        }
    }
}

impl FromStr for Placement {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "any" => Ok(Self::Any),
            number => number.parse().map(Self::Core).map_err(|_| "use the number of a core, or any".to_owned()),
        }
    }
}

/// Reads `full`, `recorded` or a factor such as `10x`.
pub fn parse_pace(text: &str) -> Result<Pace, String> {
    let factor = match text {
        "full" => return Ok(Pace::FullSpeed),
        "recorded" => return Ok(Pace::Recorded),
        _ => text.strip_suffix('x').and_then(|number| number.parse::<f64>().ok()),
    };
    match factor {
        Some(factor) if factor.is_finite() && factor > 0.0 => Ok(Pace::Times(factor)),
        _ => Err("use full, recorded, or how many times as fast as recorded, such as 10x".to_owned()),
    }
}

/// Reads a number of seconds, which may have a fraction.
pub fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds: &f64| *seconds > 0.0);
    let duration = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    duration.ok_or_else(|| "use a number of seconds above 0, such as 5 or 0.5".to_owned())
}

/// Reads `GROUP:PORT`.
pub fn parse_group(text: &str) -> Result<SocketAddrV4, String> {
    const FORM: &str = "use GROUP:PORT, for example 233.54.12.111:26477";
    let (group, port) = text.split_once(':').ok_or(FORM)?;
    let group: market::truth::Group = group.parse()?;
    match port.parse() {
        Ok(port) if port > 0 => Ok(SocketAddrV4::new(group.address(), port)),
        _ => Err(format!("not a port from 1 to 65535; {FORM}")),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Everything by default, and no channels.
    pub(crate) fn feed_plan() -> FeedPlan {
        FeedPlan {
            format: Format::IexDeep,
            worker: WorkerPlan::default(),
            policy: Policy::default(),
            window: Window::default(),
            capacity: CapacityPlan::default(),
            sets: Vec::new(),
            groups: Vec::new(),
            truth: None,
            tops: Tops::All,
        }
    }

    #[test]
    fn pace_that_is_none_is_refused() {
        for text in ["", "x", "0x", "-1x", "nanx", "infx", "fast", "10"] {
            assert!(parse_pace(text).is_err(), "{text}");
        }
        assert_eq!(parse_pace("full"), Ok(Pace::FullSpeed));
        assert_eq!(parse_pace("recorded"), Ok(Pace::Recorded));
        assert_eq!(parse_pace("2.5x"), Ok(Pace::Times(2.5)));
    }

    #[test]
    fn time_that_is_none_is_refused() {
        for text in ["", "0", "-1", "nan", "inf", "1e30", "5s"] {
            assert!(parse_seconds(text).is_err(), "{text}");
        }
        assert_eq!(parse_seconds("0.5"), Ok(Duration::from_millis(500)));
    }

    #[test]
    fn group_that_is_none_is_refused_with_an_example() {
        for text in ["239.1.1.1", "239.1.1.1:0", "239.1.1.1:70000", "10.0.0.1:1", "224.0.0.5:1", "feed:1", ""] {
            let refused = parse_group(text).unwrap_err();
            assert!(refused.contains("example"), "{text}: {refused}");
        }
        assert_eq!(parse_group("239.1.1.1:5"), Ok("239.1.1.1:5".parse().unwrap()));
    }

    #[test]
    fn placement_is_a_core_or_any() {
        assert_eq!("3".parse(), Ok(Placement::Core(3)));
        assert_eq!("any".parse(), Ok(Placement::Any));
        assert!("-1".parse::<Placement>().is_err());
    }
}
