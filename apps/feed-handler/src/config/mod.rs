//! The configuration file: TOML, read strictly. An unknown key, an address that is not a group, a
//! number that is not a port: each is refused with its line and column, before anything starts.

#[macro_use]
mod words;
mod channel;
mod expose;
mod loops;
mod port;
mod problem;
pub mod recovery;

use std::collections::HashMap;
use std::net::SocketAddrV4;
use std::path::Path;

use market::{Policy, StartSequence, Window};
use serde::Deserialize;
use toml::Spanned;
use wirepath::device::pcap::Pace;
use wirepath::pipeline::ChecksumPolicy;
use wirepath::worker::live::LiveConfig;

use channel::{ChannelSection, LineSection, check_format, check_numbers};
use expose::ExposeSection;
use port::{HostSection, PortSection};
pub use problem::ConfigProblem;
pub use words::parse_sender;
use words::{
    Buffers, BurstLen, ChecksumWord, Count, Cpu, CpuWord, FirstWord, FrameLen, Hugepages, PaceWord, WindowPackets,
};

use crate::error::Error;
use crate::expose::ExposePlan;
use crate::feed::{GROUPS_MAX, LINES_MAX, SetConfig};
use crate::format::Format;
use crate::values::{self, CapacityPlan, Placement, WorkerPlan};

/// A whole file. Every key is optional.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    worker: WorkerSection,
    device: DeviceSection,
    port: Option<PortSection>,
    host: Option<Spanned<HostSection>>,
    checksums: ChecksumsSection,
    arbitration: ArbitrationSection,
    books: BooksSection,
    expose: ExposeSection,
    channels: Vec<Spanned<ChannelSection>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct WorkerSection {
    cpu: Option<Cpu>,
    burst: Option<BurstLen>,
    buffers: Option<Buffers>,
    hugepages: Hugepages,
    latency_every: Option<u32>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct DeviceSection {
    pace: Option<PaceWord>,
    frame_len_max: Option<FrameLen>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ChecksumsSection {
    udp: Option<ChecksumWord>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ArbitrationSection {
    window_packets: Option<Spanned<WindowPackets>>,
    window_us: Option<u64>,
    first: FirstWord,
    restart_distance: Option<u64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct BooksSection {
    instruments: Option<Count>,
    orders: Option<Count>,
    levels: Option<Count>,
}

impl Config {
    /// Reads and checks a file.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            Error::Failed(format!("cannot read the configuration {}: {error}; check the path", path.display()))
        })?;
        Self::parse(&text).map_err(|problem| problem.told(path, &text))
    }

    fn parse(text: &str) -> Result<Self, ConfigProblem> {
        let config: Self = toml::from_str(text).map_err(|error| ConfigProblem::of_parser(&error))?;
        config.check()?;
        Ok(config)
    }

    /// Finds errors that no single key shows.
    fn check(&self) -> Result<(), ConfigProblem> {
        if let Some(port) = &self.port {
            port.check(self.host.as_ref())?;
        }
        let mut names = HashMap::new();
        let mut groups: HashMap<SocketAddrV4, String> = HashMap::new();
        for channel in &self.channels {
            let section = channel.get_ref();
            let (name, lines) = (section.name.get_ref(), section.lines.get_ref());
            if names.insert(name.clone(), ()).is_some() {
                return Err(ConfigProblem::new(section.name.span(), format!("two channels are called {name:?}")));
            }
            if lines.is_empty() || lines.len() > LINES_MAX {
                let what = format!("channel {name:?} has {} lines: give it 1 to {LINES_MAX}", lines.len());
                return Err(ConfigProblem::new(section.lines.span(), what));
            }
            check_format(section)?;
            self.check_queue(section)?;
            check_numbers(section)?;
            section.recovery()?;
            lines.iter().try_for_each(|line| self.check_vlan(line))?;
            let of_loops = section.loops.iter().flat_map(|section| section.get_ref().groups());
            for (group, at) in lines.iter().map(|line| (line.address(), line.group.span())).chain(of_loops) {
                if let Some(other) = groups.insert(group, name.clone()) {
                    let what = format!("{group} is a line of channel {other:?} already: a group is one line only");
                    return Err(ConfigProblem::new(at, what));
                }
            }
        }
        self.check_window()?;
        self.check_groups()
    }

    /// A hole has to stay open for its requests.
    fn check_window(&self) -> Result<(), ConfigProblem> {
        match &self.arbitration.window_packets {
            Some(packets) if packets.get_ref().0 == 0 && self.asks() => {
                let what = "each hole is a gap at once, so no request is ever made: use 1 or more, or leave \
                            [channels.rerequest] out";
                Err(ConfigProblem::new(packets.span(), what))
            }
            _ => Ok(()),
        }
    }

    /// Whether a channel requests missing messages again.
    fn asks(&self) -> bool {
        self.channels.iter().any(|channel| channel.get_ref().rerequest.is_some())
    }

    /// A worker receives the groups of the channels of its queue. Without a port there is one
    /// worker.
    fn check_groups(&self) -> Result<(), ConfigProblem> {
        let mut groups: HashMap<Option<u16>, usize> = HashMap::new();
        let first = self.port.as_ref().and_then(|port| port.queues().first().copied());
        for channel in &self.channels {
            let section = channel.get_ref();
            let queue = first.map(|first| section.queue.as_ref().map_or(first, |queue| *queue.get_ref()));
            let count = groups.entry(queue).or_default();
            *count += section.lines.get_ref().len();
            if *count > GROUPS_MAX {
                let what = format!(
                    "with this channel a worker has {count} groups, and one receives {GROUPS_MAX} at most: give some channels \
                     another queue"
                );
                return Err(ConfigProblem::new(channel.span(), what));
            }
        }
        Ok(())
    }

    /// A port in a VLAN receives no other.
    fn check_vlan(&self, line: &LineSection) -> Result<(), ConfigProblem> {
        let port = self.port.as_ref().and_then(PortSection::vlan);
        match (&line.vlan, port) {
            (Some(vlan), Some(port)) if vlan.get_ref().0 != port => {
                let what = format!("the port is in VLAN {port} and receives no other: omit this vlan, or the port's");
                Err(ConfigProblem::new(vlan.span(), what))
            }
            _ => Ok(()),
        }
    }

    /// All lines of a channel meet on one worker, which has one queue.
    fn check_queue(&self, section: &ChannelSection) -> Result<(), ConfigProblem> {
        let (Some(queue), Some(port)) = (&section.queue, &self.port) else { return Ok(()) };
        if port.queues().contains(queue.get_ref()) {
            return Ok(());
        }
        let what = format!("queue {} is not among the port's queues: add it to [port] queues", queue.get_ref());
        Err(ConfigProblem::new(queue.span(), what))
    }

    /// The live port, without its subscriptions; `None` without `[port]`.
    pub fn live(&self) -> Option<LiveConfig> {
        let live = self.port.as_ref()?.live(self.host.as_ref().map(Spanned::get_ref));
        Some(LiveConfig { checksum: self.checksum(), ..live })
    }

    /// The formats of the channels.
    pub fn formats(&self) -> impl Iterator<Item = Format> + '_ {
        self.channels.iter().map(|channel| *channel.get_ref().format.get_ref())
    }

    /// The pace of a replay, where the file sets one.
    pub fn pace(&self) -> Option<Pace> {
        self.device.pace.map(|word| word.0)
    }

    /// Bytes of the longest frame.
    pub fn frame_len_max(&self) -> usize {
        self.device.frame_len_max.map_or(values::FRAME_LEN_MAX, |len| len.0)
    }

    /// The policy for UDP checksums, where the file sets one.
    pub fn checksum(&self) -> Option<ChecksumPolicy> {
        Some(match self.checksums.udp? {
            ChecksumWord::AcceptPartial => ChecksumPolicy::AcceptPartial,
            ChecksumWord::Verify => ChecksumPolicy::Verify,
            ChecksumWord::Ignore => ChecksumPolicy::Ignore,
        })
    }

    /// The worker's core and sizes.
    pub fn worker(&self) -> WorkerPlan {
        let usual = WorkerPlan::default();
        WorkerPlan {
            placement: match self.worker.cpu {
                None => usual.placement,
                Some(Cpu::Core(core)) => Placement::Core(core),
                Some(Cpu::Word(CpuWord::Any)) => Placement::Any,
            },
            burst_len: self.worker.burst.map_or(usual.burst_len, |burst| burst.0),
            buffers: self.worker.buffers.map(|count| count.0),
            require_hugepages: matches!(self.worker.hugepages, Hugepages::Require),
            latency_every: self.worker.latency_every.unwrap_or(usual.latency_every),
        }
    }

    /// The first sequence number, and the rule for a restart.
    pub fn policy(&self) -> Policy {
        let usual = Policy::default();
        let first = match self.arbitration.first {
            FirstWord::One => StartSequence::FromOne,
            FirstWord::Anywhere => StartSequence::Anywhere,
        };
        Policy { first, restart_distance: self.arbitration.restart_distance.unwrap_or(usual.restart_distance) }
    }

    /// How long a hole may stay open.
    pub fn window(&self) -> Window {
        // A request takes longer than the other line.
        let packets = if self.asks() { values::WINDOW_PACKETS_ASKING } else { values::WINDOW_PACKETS };
        Window {
            packets: self.arbitration.window_packets.as_ref().map_or(packets, |packets| packets.get_ref().0),
            wait_ns: self.arbitration.window_us.map_or(Window::default().wait_ns, |us| us.saturating_mul(1_000)),
        }
    }

    /// Memory for the books of a channel.
    pub fn capacity(&self) -> CapacityPlan {
        let count = |count: Option<Count>| count.map(|count| count.0);
        CapacityPlan {
            instruments: count(self.books.instruments),
            orders: count(self.books.orders),
            levels: count(self.books.levels),
        }
    }

    /// Where other machines read the books: over `via`, or the file's port.
    pub fn expose(&self, via: Option<&str>) -> Option<ExposePlan> {
        self.expose.plan(via)
    }

    /// The channels and their lines.
    pub fn sets(&self) -> Vec<SetConfig> {
        self.channels.iter().map(|channel| channel.get_ref().set()).collect()
    }
}

#[cfg(test)]
mod tests;
