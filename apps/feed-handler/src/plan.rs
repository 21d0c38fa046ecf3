//! A user's request, complete and checked before anything starts: flags take precedence over the
//! configuration, and that over defaults.

use std::collections::HashMap;
use std::net::SocketAddrV4;
use std::path::PathBuf;
use std::time::Duration;

use market::{Policy, Window};
use wirepath::device::fault::FaultConfig;
use wirepath::device::pcap::Pace;
use wirepath::pipeline::ChecksumPolicy;
use wirepath::port::{Subscription, multicast};
use wirepath::worker::live::LiveConfig;

use crate::args::{OutputArgs, ReplayArgs, RunArgs, WorkerArgs};
use crate::config::Config;
use crate::error::Error;
use crate::expose::ExposePlan;
use crate::feed::{GROUPS_MAX, SetConfig, Tops};
use crate::format::Format;
use crate::values::{CapacityPlan, WorkerPlan};

/// The common part of a replay and a live run: the feeds to decode, and their lines.
#[derive(Clone, Debug)]
pub struct FeedPlan {
    /// The format of the packets of groups that belong to no channel of the configuration. Each
    /// channel has its own.
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
    /// How other machines read the books; `None` if they cannot.
    pub expose: Option<ExposePlan>,
}

impl FeedPlan {
    /// Channels that the configuration names.
    pub fn channels_max(&self) -> usize {
        self.sets.iter().map(SetConfig::channels_max).sum()
    }

    /// The formats of its channels, each once; the plan's where it has none.
    pub fn formats(&self) -> Vec<Format> {
        let mut formats = Vec::new();
        for set in &self.sets {
            if !formats.contains(&set.format) {
                formats.push(set.format);
            }
        }
        if formats.is_empty() { vec![self.format] } else { formats }
    }

    /// Their names in a sentence.
    pub(crate) fn format_names(&self) -> String {
        self.formats().into_iter().map(Format::name).collect::<Vec<_>>().join(", ")
    }

    /// The channels of one format, and the place of each set in this plan.
    pub(crate) fn of_format(&self, format: Format) -> (Self, Vec<u16>) {
        let sets = (0_u16..).zip(&self.sets).filter(|(_, set)| set.format == format);
        let (places, sets) = sets.map(|(place, set)| (place, set.clone())).unzip();
        (Self { format, sets, ..self.clone() }, places)
    }

    /// For each line, in the order of consumers, its format's place in [`formats`](Self::formats)
    /// and its own among the lines of that format.
    pub(crate) fn lines_by_format(&self) -> Vec<(usize, usize)> {
        let formats = self.formats();
        let mut counts = vec![0; formats.len()];
        let lines = self.sets.iter().flat_map(|set| set.lines.iter().map(|_| set.format));
        let place = |format| {
            let feed = formats.iter().position(|one| *one == format).expect("the format of a set is among all");
            counts[feed] += 1;
            (feed, counts[feed] - 1)
        };
        lines.map(place).collect()
    }

    /// For each format: channels, and the bytes of the books of one.
    pub(crate) fn books(&self) -> Vec<(usize, u128)> {
        let books = |format: Format| {
            let channels = self.sets.iter().filter(|set| set.format == format).map(SetConfig::channels_max);
            (channels.sum::<usize>().max(1), format.memory(self.capacity))
        };
        self.formats().into_iter().map(books).collect()
    }

    /// Instruments that the books of one channel have a place for, at most.
    pub fn instruments_max(&self) -> usize {
        let capacities = self.formats().into_iter().map(|format| format.capacity(self.capacity).books);
        capacities.max().unwrap_or_default()
    }

    /// The number of the first channel of each set of `part`, which is of this plan.
    pub(crate) fn first_channels(&self, part: &Self) -> Vec<usize> {
        let mut first = 0;
        let mut all = self.sets.iter().map(|set| {
            let own = first;
            first += set.channels_max();
            (set, own)
        });
        // They are in the same order, and channels of one name may be on several queues.
        let is_it = |one: &SetConfig, other: &SetConfig| (&one.name, one.queue) == (&other.name, other.queue);
        part.sets.iter().filter_map(|set| all.find(|(one, _)| is_it(one, set)).map(|(_, first)| first)).collect()
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

impl ReplayArgs {
    /// Flags take precedence over the configuration, and that over defaults.
    pub fn plan(&self) -> Result<ReplayPlan, Error> {
        let config = match &self.config {
            Some(path) => Config::read(path)?,
            None => Config::default(),
        };
        let format = self.chosen_format(&config)?;
        let faults = self.faults.config();
        let feed = FeedPlan { groups: self.chosen_groups(), ..feed_plan(format, &config, &self.worker, &self.output) };
        self.check_truth(&feed, faults.is_some())?;
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
        let other = |flag| config.formats().find(|format| Some(*format) != flag);
        match (self.format, config.formats().next()) {
            (None, None) => Err(Error::Usage(format!(
                "what is in {}? add --format with one of {}",
                self.file.display(),
                Format::ALL.map(Format::name).join(", ")
            ))),
            (None, Some(format)) => Ok(format),
            (Some(flag), _) => match other(Some(flag)) {
                None => Ok(flag),
                Some(channels) => Err(Error::Usage(format!(
                    "--format {flag} and the configuration's channels of {channels} do not agree: leave one of them out"
                ))),
            },
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
    fn check_truth(&self, feed: &FeedPlan, has_faults: bool) -> Result<(), Error> {
        let problem = match self.output.truth {
            None => return Ok(()),
            Some(_) if feed.formats() != [Format::MoldItch50] => ONLY_MOLD_ITCH50,
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
        let Some(format) = config.formats().next() else {
            return Err(Error::Usage(format!(
                "{file} has no [[channels]]: a live run joins the groups that are named, and no others"
            )));
        };
        if let Some(interface) = &self.interface {
            live.port.set_interface(interface);
        }
        let feed = feed_plan(format, &config, &self.worker, &self.output);
        if feed.truth.is_some() && feed.formats() != [Format::MoldItch50] {
            return Err(Error::Usage(ONLY_MOLD_ITCH50.into()));
        }
        Ok(RunPlan { feed, live, duration: self.seconds, expose: config.expose(self.expose.as_deref()) })
    }
}

const ONLY_MOLD_ITCH50: &str = "--truth is about days of exchange-sim, which are mold-itch50";

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
    fn channels_are_numbered_over_all_workers() {
        let set = |name: &str, queue, numbers: &[u32]| SetConfig {
            name: name.into(),
            format: Format::IexDeep,
            queue,
            numbers: numbers.to_vec(),
            lines: Vec::new(),
            recovery: Default::default(),
        };
        let sets =
            vec![set("a", None, &[1, 2]), set("b", Some(1), &[]), set("c", Some(0), &[4]), set("b", Some(1), &[7, 8])];
        let plan = FeedPlan { sets, ..feed_plan() };
        let numbers = |queue| plan.first_channels(&plan.on_queue(queue, 0));
        assert_eq!([0, 1].map(numbers), [vec![0, 3], vec![2, 4]]);
    }
}
