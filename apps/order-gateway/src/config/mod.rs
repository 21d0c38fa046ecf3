//! The configuration file: TOML, read strictly. Each error names line and column.

mod drop_copy;
mod ilink3;
mod latency;
mod mirror;
mod ouch;
mod quotes;
mod recovery;
mod venue;

use std::fmt;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use feed_handler::config::parse_sender;
use feed_handler::config::recovery::{ImageSection, RerequestSection};
use feed_handler::recovery::RecoveryPlan;
use market::Symbol;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use toml::Spanned;

use self::drop_copy::DropCopySection;
use self::quotes::QuotesSection;
use crate::core::{Instrument, KillLine};
use crate::drop_copy::DropCopyConfig;
use crate::error::Error;
use crate::feed_line::FeedLine;
use crate::limits::LimitsFile;
use crate::memory::SyncPolicy;
use crate::standby::{LEASE_MAX, LEASE_MIN, Secret};
use crate::wire::WirePortConfig;

pub use latency::LatencyConfig;
pub use mirror::MirrorConfig;
pub use venue::{VenueClient, VenueConfig, VenueNeeds};

/// A whole file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Where orders go.
    pub venue: VenueConfig,
    /// Where they are written down.
    pub journal: JournalConfig,
    /// Where the limits are: a file of its own, which is read again on command.
    pub limits: PathBuf,
    /// Which sample the program runs: `joiner` or `taker`. By default the joiner.
    #[serde(default)]
    pub strategy: Sample,
    /// The taker sends no more. By default as many as books and answers let it.
    #[serde(default)]
    pub taker_orders_per_second: Option<u32>,
    /// The log of raw bytes. By default none.
    #[serde(default)]
    pub audit: Option<PathBuf>,
    /// The socket for commands. By default none.
    #[serde(default)]
    pub control: Option<PathBuf>,
    /// The kill switch is thrown when this file appears. By default none.
    #[serde(default)]
    pub kill_file: Option<PathBuf>,
    /// A thrown switch ends the session after so many milliseconds. By default never.
    #[serde(default)]
    pub kill_disconnect_ms: Option<u32>,
    /// A standby that takes over. By default none.
    #[serde(default, deserialize_with = "standby")]
    pub standby: Option<StandbyConfig>,
    /// A standby whose copy is written by RDMA. By default none.
    #[serde(default, deserialize_with = "mirror::section")]
    pub mirror: Option<MirrorConfig>,
    /// The drop copy, with which each trade is compared. By default none.
    #[serde(default)]
    drop_copy: Option<Spanned<DropCopySection>>,
    /// The feed's lines, one or two multicast groups. By default none: the strategy hears nothing.
    #[serde(default)]
    feed: Vec<Spanned<FeedSection>>,
    /// The server that sends the feed's missing messages again. By default none.
    #[serde(default)]
    rerequest: Option<Spanned<RerequestSection>>,
    /// The server that sends images of all books. By default none: what is missing for good leaves
    /// them stale for the day.
    #[serde(default)]
    image: Option<Spanned<ImageSection>>,
    /// How long requests take, stage by stage. By default nothing is measured.
    #[serde(default)]
    pub latency: Option<LatencyConfig>,
    /// The quotes of a market-gateway, instead of a feed. By default none.
    #[serde(default)]
    quotes: Option<Spanned<QuotesSection>>,
    /// Where it was read from.
    #[serde(skip)]
    file: SourceFile,
}

/// The strategies that the program has before a firm writes its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sample {
    /// Rests one bid at the best bid.
    #[default]
    Joiner,
    /// Buys at the offer and sells at the bid, in turn: for demonstrations, because it loses the
    /// spread.
    Taker,
}

/// The journal.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JournalConfig {
    /// The file, which is made if it does not exist.
    pub path: PathBuf,
    /// Its size when it is made. By default 256 MiB: some 2.5 million records.
    #[serde(default)]
    megabytes: Option<Spanned<u32>>,
    /// What requests leave for answers. By default 8 MiB.
    #[serde(default)]
    reserve_megabytes: Option<Spanned<u32>>,
    /// When it goes to the disk. By default timed.
    #[serde(default)]
    sync: SyncWord,
}

/// The standby.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StandbyConfig {
    /// Where the primary listens for it.
    #[serde(deserialize_with = "endpoint")]
    pub listen: SocketAddrV4,
    /// How long a grant holds. The standby takes over an eighth later. By default 1000.
    #[serde(default)]
    lease_ms: Option<Spanned<u32>>,
    /// Orders pass at once after a take-over. By default false: a person arms.
    #[serde(default)]
    pub arms: bool,
    /// A secret that both ends prove to have before anything else. By default none: who reaches
    /// the port may be the standby.
    #[serde(default)]
    pub secret_file: Option<PathBuf>,
    /// Where its section is in the file.
    #[serde(skip)]
    at: Range<usize>,
}

fn standby<'de, D: Deserializer<'de>>(from: D) -> Result<Option<StandbyConfig>, D::Error> {
    let section = Spanned::<StandbyConfig>::deserialize(from)?;
    let at = section.span();
    Ok(Some(StandbyConfig { at, ..section.into_inner() }))
}

impl StandbyConfig {
    fn check(&self) -> Result<(), Problem> {
        check_lease(self.lease_ms.as_ref())
    }

    /// The secret of its file.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or has none.
    pub fn secret(&self) -> Result<Option<Secret>, Error> {
        secret(self.secret_file.as_deref())
    }

    /// How long a grant holds.
    pub fn lease(&self) -> Duration {
        lease(self.lease_ms.as_ref())
    }
}

/// The secret of a file, where one is named.
fn secret(path: Option<&Path>) -> Result<Option<Secret>, Error> {
    let read = |path: &Path| Secret::read(path).map_err(|why| Error::at("secret", path, why, SECRET));
    path.map(read).transpose()
}

fn check_lease(lease_ms: Option<&Spanned<u32>>) -> Result<(), Problem> {
    match lease_ms {
        Some(ms) if u128::from(*ms.get_ref()) < LEASE_MIN.as_millis() => {
            let least = LEASE_MIN.as_millis();
            let what = format!("a lease has {least} ms at least, so that a busy machine does not end it");
            Err(Problem::new(ms.span(), what))
        }
        Some(ms) if u128::from(*ms.get_ref()) > LEASE_MAX.as_millis() => {
            let most = LEASE_MAX.as_millis();
            let what = format!("a lease has {most} ms at most: nobody trades for so long when the primary dies");
            Err(Problem::new(ms.span(), what))
        }
        _ => Ok(()),
    }
}

fn lease(lease_ms: Option<&Spanned<u32>>) -> Duration {
    Duration::from_millis(lease_ms.map_or(LEASE_MS, |ms| *ms.get_ref()).into())
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum SyncWord {
    Off,
    #[default]
    Timed,
    BeforeSend,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FeedSection {
    group: Ipv4Addr,
    port: u16,
    #[serde(deserialize_with = "interface")]
    interface: Ipv4Addr,
    /// The only senders. By default any: who sends to the group may write the books.
    #[serde(default)]
    sources: Option<Spanned<Vec<Source>>>,
}

impl FeedSection {
    /// A list that is empty would take every sender's packets, and the kernel takes no source
    /// twice.
    fn check_sources(&self) -> Result<(), Problem> {
        let Some(list) = &self.sources else { return Ok(()) };
        let sources = list.get_ref();
        if sources.is_empty() {
            return Err(Problem::new(list.span(), "no source: omit the key to take packets of any sender"));
        }
        let mut later = sources.iter().enumerate().skip(1);
        match later.find(|&(idx, source)| sources[..idx].contains(source)) {
            Some((_, Source(twice))) => Err(Problem::new(list.span(), format!("{twice} is named twice"))),
            None => Ok(()),
        }
    }
}

/// A sender of a feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
struct Source(Ipv4Addr);

impl TryFrom<String> for Source {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        parse_sender(&text).map(Self)
    }
}

const MEGABYTES: u32 = 256;
const RESERVE_MEGABYTES: u32 = 8;
const ADDRESS: &str = "a mirror needs an address: `address` in [mirror], or --mirror rdma://192.0.2.11";
const BOTH: &str = "a gateway has a [standby] or a mirror, and not both";
const LEASE_MS: u32 = 1_000;
const SECRET: &str = "both ends have the same file, and nobody else reads it";

fn endpoint<'de, D: Deserializer<'de>>(from: D) -> Result<SocketAddrV4, D::Error> {
    parsed(from, "an IPv4 address and a port, such as 192.0.2.1:9100")
}

fn optional_endpoint<'de, D: Deserializer<'de>>(from: D) -> Result<Option<SocketAddrV4>, D::Error> {
    endpoint(from).map(Some)
}

fn interface<'de, D: Deserializer<'de>>(from: D) -> Result<Ipv4Addr, D::Error> {
    parsed(from, "the IPv4 address of the interface, such as 192.0.2.10")
}

/// A value of a text; where the text is none, the error says what it should be.
fn parsed<'de, D: Deserializer<'de>, T: FromStr>(from: D, wanted: &str) -> Result<T, D::Error> {
    let text = String::deserialize(from)?;
    text.parse().map_err(|_| D::Error::custom(format!("{text:?} should be {wanted}")))
}

/// The position and description of an error in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) at: Range<usize>,
    pub(crate) what: String,
}

impl Problem {
    pub(crate) fn new(at: Range<usize>, what: impl fmt::Display) -> Self {
        Self { at, what: what.to_string() }
    }
}

/// Where a file was read from, and what was in it, so that an error names line and column.
#[derive(Clone, Debug, Default)]
pub(crate) struct SourceFile {
    path: PathBuf,
    text: String,
}

impl SourceFile {
    fn read(path: &Path) -> Result<Self, Error> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| Error::Failed(format!("cannot read {}: {error}; check the path", path.display())))?;
        Ok(Self { path: path.to_owned(), text })
    }

    fn error(&self, problem: &Problem) -> Error {
        let (line, column) = line_and_column(&self.text, problem.at.start);
        Error::Usage(format!("{} line {line}, column {column}: {}", self.path.display(), problem.what))
    }
}

/// Reads a file and has it checked. An error names line and column.
pub(crate) fn read<T: DeserializeOwned>(
    path: &Path,
    check: impl FnOnce(&T) -> Result<(), Problem>,
) -> Result<(T, SourceFile), Error> {
    let file = SourceFile::read(path)?;
    let value = parse(&file.text, check).map_err(|problem| file.error(&problem))?;
    Ok((value, file))
}

/// Parses a file's text and has it checked.
pub(crate) fn parse<T: DeserializeOwned>(
    text: &str,
    check: impl FnOnce(&T) -> Result<(), Problem>,
) -> Result<T, Problem> {
    let value: T =
        toml::from_str(text).map_err(|error| Problem::new(error.span().unwrap_or(0..0), error.message().trim_end()))?;
    check(&value)?;
    Ok(value)
}

/// The line and the column of a byte, both from 1 on.
fn line_and_column(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (line, before[start..].chars().count() + 1)
}

impl Config {
    /// Reads and checks a file.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or something in it makes no sense: where, and what.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let (config, file) = read(path, Self::check)?;
        Ok(Self { file, ..config })
    }

    /// Reads and checks a file and the limits that it names, and whether they agree.
    ///
    /// # Errors
    ///
    /// As [`Config::read`], of both files.
    pub fn read_with_limits(path: &Path) -> Result<(Self, LimitsFile), Error> {
        let config = Self::read(path)?;
        let limits = LimitsFile::read_for(&config.limits, config.venue_needs())?;
        config.check_names(&limits).map_err(|problem| config.file.error(&problem))?;
        Ok((config, limits))
    }

    fn check(&self) -> Result<(), Problem> {
        self.venue.check()?;
        if let Some(section) = &self.drop_copy {
            section.get_ref().check(section.span(), &self.venue)?;
        }
        self.journal.check()?;
        self.standby.as_ref().map_or(Ok(()), StandbyConfig::check)?;
        self.mirror.as_ref().map_or(Ok(()), MirrorConfig::check)?;
        if let Some(section) = &self.quotes {
            section.get_ref().check()?;
            if !self.feed.is_empty() {
                return Err(Problem::new(
                    section.span(),
                    "prices come from [quotes] or from [[feed]]: omit one of them",
                ));
            }
        }
        recovery::check(self)?;
        for line in &self.feed {
            let group = line.get_ref().group;
            if !group.is_multicast() {
                return Err(Problem::new(line.span(), format!("{group} is no multicast group")));
            }
            line.get_ref().check_sources()?;
        }
        match self.feed.get(2) {
            Some(third) => Err(Problem::new(third.span(), "a feed has two lines at most")),
            None => Ok(()),
        }
    }

    /// The venue's session. `instruments` are those of the limits by position, `epoch_offset_ns` is
    /// what is added to the run's clock for UTC. `None` for a configuration that was not read by
    /// [`Config::read`].
    pub fn client(&self, instruments: &[Instrument], epoch_offset_ns: u64) -> Option<VenueClient> {
        self.venue.client(instruments.iter().map(|instrument| instrument.symbol).collect(), epoch_offset_ns)
    }

    /// What the venue's section asks of the file of limits.
    pub fn venue_needs(&self) -> VenueNeeds {
        self.venue.needs_of_limits()
    }

    /// Each instrument of the limits has its name at the venue, and each name in [quotes] is that
    /// of one instrument.
    fn check_names(&self, limits: &LimitsFile) -> Result<(), Problem> {
        let symbols: Vec<_> = limits.instruments().iter().map(|instrument| instrument.symbol).collect();
        self.venue.check_names(&symbols)?;
        self.quotes.as_ref().map_or(Ok(()), |section| section.get_ref().check_names(&symbols))
    }

    /// A mirror that is called needs its address, and is instead of a standby.
    ///
    /// # Errors
    ///
    /// Where it has none, or is beside one: at its section, where it has one.
    pub fn check_mirror(&self) -> Result<(), Error> {
        let Some(mirror) = &self.mirror else { return Ok(()) };
        let problem = match &self.standby {
            Some(standby) => Problem::new(standby.at.clone(), BOTH),
            None if mirror.address.is_some() => return Ok(()),
            None if mirror.at.is_empty() => return Err(Error::Usage(ADDRESS.to_owned())),
            None => Problem::new(mirror.at.clone(), ADDRESS),
        };
        Err(self.file.error(&problem))
    }

    /// The port by which the venue is called and the feed comes, where it is ours; `None` over the
    /// kernel's sockets.
    pub fn wire(&self) -> Option<WirePortConfig> {
        let (via, local_ports) = self.venue.port()?;
        let venue = [Some(self.venue.primary), self.venue.secondary].into_iter().flatten().collect();
        Some(WirePortConfig { via: via.to_owned(), local_ports, venue, feed: self.feed_lines().collect() })
    }

    /// When a thrown kill switch ends the session.
    pub fn kill_line(&self) -> KillLine {
        let after_ns = self.kill_disconnect_ms.map(|ms| u64::from(ms) * 1_000_000);
        KillLine { after_ns, cancels_on_disconnect: self.venue.cancel_on_disconnect }
    }

    /// The drop copy.
    pub fn drop_copy(&self) -> Option<DropCopyConfig> {
        self.drop_copy.as_ref()?.get_ref().config(&self.venue)
    }

    /// The ring of a market-gateway, and what its feed calls each of these instruments.
    pub fn quotes(&self, symbols: &[Symbol]) -> Option<(PathBuf, Vec<Symbol>)> {
        self.quotes.as_ref().map(|section| section.get_ref().names(symbols))
    }

    /// The servers of the feed, which has none where the plan is empty.
    pub fn recovery(&self) -> RecoveryPlan {
        recovery::plan(self).unwrap_or_default()
    }

    /// The channel of the ring that each of these instruments comes by, where one is said.
    pub fn quote_channels(&self, symbols: &[Symbol]) -> Vec<Option<u16>> {
        self.quotes.as_ref().map(|section| section.get_ref().channels(symbols)).unwrap_or_default()
    }

    /// Group and port of each line, and the address of the interface that joins it.
    pub fn feed(&self) -> impl Iterator<Item = (SocketAddrV4, Ipv4Addr)> {
        self.feed_lines().map(|line| (line.group, line.interface))
    }

    /// The feed's lines, with their sources.
    pub fn feed_lines(&self) -> impl Iterator<Item = FeedLine> {
        self.feed.iter().map(|line| {
            let FeedSection { group, port, interface, sources } = line.get_ref();
            let sources = sources.iter().flat_map(|list| list.get_ref()).map(|source| source.0).collect();
            FeedLine { group: SocketAddrV4::new(*group, *port), interface: *interface, sources }
        })
    }
}

impl JournalConfig {
    /// A journal that is not larger than its reserve refuses each order.
    fn check(&self) -> Result<(), Problem> {
        let (len, reserve) = (self.len() >> 20, self.reserve() >> 20);
        match self.reserve_megabytes.as_ref().or(self.megabytes.as_ref()) {
            Some(key) if len <= reserve => {
                let what = format!("a journal of {len} MB has no room for orders beside a reserve of {reserve} MB");
                Err(Problem::new(key.span(), what))
            }
            _ => Ok(()),
        }
    }

    /// Bytes of a new journal: more than [`JournalConfig::reserve`].
    #[expect(clippy::len_without_is_empty, reason = "a journal is never empty")]
    pub fn len(&self) -> usize {
        let megabytes = self.megabytes.as_ref().map_or(MEGABYTES, |megabytes| *megabytes.get_ref());
        (megabytes as usize) << 20
    }

    /// Bytes that requests leave for answers.
    pub fn reserve(&self) -> usize {
        let megabytes = self.reserve_megabytes.as_ref().map_or(RESERVE_MEGABYTES, |megabytes| *megabytes.get_ref());
        (megabytes as usize) << 20
    }

    /// When it goes to the disk.
    pub const fn sync(&self) -> SyncPolicy {
        match self.sync {
            SyncWord::Off => SyncPolicy::Off,
            SyncWord::Timed => SyncPolicy::Timed,
            SyncWord::BeforeSend => SyncPolicy::BeforeSend,
        }
    }
}

#[cfg(test)]
mod tests;
