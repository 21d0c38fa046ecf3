//! The settings of a day: everything that, together with the seed, determines each byte.
//!
//! The command line fills [`Settings`], tests build them from `default()`, and the truth file
//! carries them, so that any capture can be made again. The `FromStr` of its type parses a flag;
//! [`Settings::check`] finds contradictions between two settings.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::str::FromStr;
use std::time::Duration;

use market::truth::{Group, Probability};
use serde::{Deserialize, Serialize};

use crate::mdp3::Mdp3Groups;

/// A packet of the feed may hold Ethernet's payload less the IPv4 and UDP headers.
pub(crate) const IPV4_AND_UDP_LEN: usize = 20 + 8;
/// MoldUDP64 downstream header.
pub(crate) const MOLD_HEADER_LEN: usize = 20;
/// Room for the headers and one block of the longest message that the day sends (44 bytes and their
/// length).
const MTU_MIN: u16 = (IPV4_AND_UDP_LEN + MOLD_HEADER_LEN + 2 + 44) as u16;
/// A snapshot of MDP 3.0 with ten levels a side has 524 bytes with the headers of its packet.
const MDP3_MTU_MIN: u16 = 576;
/// The largest frame that common switches carry.
const MTU_MAX: u16 = 9216;
/// A message that waits longer than this is stale.
const PACK_WAIT_US_MAX: u16 = 10_000;
/// A locate code for each symbol must fit, and the directory must be sent before the day begins.
const SYMBOLS_MAX: u16 = 10_000;
/// Per symbol: directory, trading action, opening and closing cross and the two executions of the
/// opening cross.
const FRAME_PER_SYMBOL: u64 = 6;
/// The six system events of a day.
const FRAME_FIXED: u64 = 6;
/// Orders a symbol that fill the books before the open, at most.
pub(crate) const SEEDING_PER_SYMBOL: u64 = 40;
/// The market opens at 09:30 and the clock of ITCH ends at midnight.
const SPAN_MAX_S: u64 = 14 * 3600;
/// The opening is some eight times as dense as the average, which then fills the lines' 10 Gb/s: at
/// a higher rate packets only pile up in memory.
const RATE_MAX: u64 = 4_000_000;

/// One day of one exchange on two lines.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// The same seed and settings give the same bytes.
    pub seed: u64,
    /// Listed symbols.
    pub symbols: u16,
    /// ITCH messages of the whole day, system events and directory included.
    pub messages: u64,
    /// Messages a second while the market is open, on average.
    pub rate: u64,
    /// Microbursts, inside `rate`.
    pub burst: Burst,
    /// MoldUDP64 session, 1 to 10 characters.
    pub session: SessionName,
    /// UDP destination port of both lines.
    pub port: u16,
    /// Longest IPv4 packet in bytes.
    pub mtu: u16,
    /// How long a message waits for others to share its packet, in microseconds.
    #[serde(default = "pack_wait_us_default")]
    pub pack_wait_us: u16,
    /// IPv4 time to live.
    pub ttl: u8,
    /// Line A and line B.
    pub lines: [LineSettings; 2],
    /// The same book as MDP 3.0 too, with the faults of the lines. By default not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mdp3: Option<Mdp3Groups>,
}

/// The destination of one line, and its injected faults.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LineSettings {
    /// Multicast group.
    pub group: Group,
    /// A packet does not arrive.
    pub loss: Probability,
    /// A packet is held back for up to [`crate::REORDER_DELAY_NS_MAX`], so that later ones overtake
    /// it.
    pub reorder: Probability,
    /// A packet arrives twice.
    pub duplicate: Probability,
}

impl Default for Settings {
    fn default() -> Self {
        let line = |group| LineSettings {
            group,
            loss: Probability::default(),
            reorder: Probability::default(),
            duplicate: Probability::default(),
        };
        Self {
            seed: 1,
            symbols: 300,
            messages: 1_000_000,
            rate: 100_000,
            burst: Burst::of_rate(100_000),
            session: SessionName::default(),
            port: 26477,
            mtu: 1500,
            pack_wait_us: pack_wait_us_default(),
            ttl: 1,
            // MCAST-TEST-NET (RFC 6676): never a group of a real network.
            lines: Group::EXAMPLES.map(line),
            mdp3: None,
        }
    }
}

/// Long enough for bursts to fill packets, short against the time that a receiver waits for the
/// other line.
fn pack_wait_us_default() -> u16 {
    5
}

impl Settings {
    /// Payload bytes that a packet may hold.
    pub fn payload_max(&self) -> usize {
        usize::from(self.mtu) - IPV4_AND_UDP_LEN
    }

    /// Where the lines go, in the order of [`crate::Delivery::line_idx`].
    pub(crate) fn destinations(&self) -> impl Iterator<Item = SocketAddrV4> {
        let itch = self.lines.iter().map(|line| SocketAddrV4::new(line.group.address(), self.port));
        itch.chain(self.mdp3.iter().flat_map(Mdp3Groups::destinations))
    }

    fn group_of_two_lines(&self) -> Option<Ipv4Addr> {
        let mut lines: Vec<_> = self.destinations().collect();
        lines.sort_unstable();
        lines.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| *pair[0].ip())
    }

    /// Messages of a day whose market is open for `seconds` at the rate of these settings.
    pub fn messages_of(&self, seconds: u32) -> u64 {
        let open = self.rate.saturating_mul(seconds.into());
        // The books fill with a twentieth of the following messages, and with so many orders a
        // symbol at most.
        let seeding = (open / 19).min(SEEDING_PER_SYMBOL * u64::from(self.symbols));
        FRAME_FIXED + FRAME_PER_SYMBOL * u64::from(self.symbols) + seeding + open
    }

    /// Finds errors that no single flag shows.
    pub fn check(&self) -> Result<(), SettingsError> {
        if !(1..=SYMBOLS_MAX).contains(&self.symbols) {
            return Err(SettingsError::Symbols(self.symbols));
        }
        let messages_min = FRAME_FIXED + FRAME_PER_SYMBOL * u64::from(self.symbols);
        if self.messages < messages_min {
            return Err(SettingsError::FewMessages { messages: self.messages, messages_min, symbols: self.symbols });
        }
        if !(1..=RATE_MAX).contains(&self.rate) {
            return Err(SettingsError::Rate(self.rate));
        }
        if self.messages / self.rate > SPAN_MAX_S {
            let rate_min = self.messages / SPAN_MAX_S + 1;
            return Err(SettingsError::LongDay { messages: self.messages, rate: self.rate, rate_min });
        }
        if self.burst.messages_per_second() > self.rate as f64 {
            return Err(SettingsError::Burst { burst: self.burst, rate: self.rate });
        }
        if !(MTU_MIN..=MTU_MAX).contains(&self.mtu) {
            return Err(SettingsError::Mtu(self.mtu));
        }
        if self.pack_wait_us > PACK_WAIT_US_MAX {
            return Err(SettingsError::PackWait(self.pack_wait_us));
        }
        if self.port == 0 || self.mdp3.as_ref().is_some_and(|mdp3| mdp3.port == 0) {
            return Err(SettingsError::Port);
        }
        if self.ttl == 0 {
            return Err(SettingsError::Ttl);
        }
        if let Some(twice) = self.group_of_two_lines() {
            return Err(SettingsError::SameGroup(twice));
        }
        if self.mdp3.is_some() && self.mtu < MDP3_MTU_MIN {
            return Err(SettingsError::Mdp3Mtu(self.mtu));
        }
        Ok(())
    }
}

/// Settings that do not make a day.
#[derive(Clone, Debug, PartialEq)]
pub enum SettingsError {
    /// No symbol, or more than there are locate codes.
    Symbols(u16),
    /// Fewer messages than open and close the day.
    FewMessages {
        /// Requested.
        messages: u64,
        /// Needed.
        messages_min: u64,
        /// The number of symbols.
        symbols: u16,
    },
    /// No message a second, or more than a line carries.
    Rate(u64),
    /// The day would run past midnight.
    LongDay {
        /// Requested.
        messages: u64,
        /// Requested.
        rate: u64,
        /// The slowest rate that ends in time.
        rate_min: u64,
    },
    /// More messages in bursts than in all.
    Burst {
        /// Requested.
        burst: Burst,
        /// Requested.
        rate: u64,
    },
    /// Too small for one message, or larger than a jumbo frame.
    Mtu(u16),
    /// Messages would wait too long.
    PackWait(u16),
    /// UDP port 0.
    Port,
    /// A packet with TTL 0 is never sent.
    Ttl,
    /// Two lines have the same group, so receivers could not distinguish them.
    SameGroup(Ipv4Addr),
    /// Too small for a snapshot of MDP 3.0.
    Mdp3Mtu(u16),
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Symbols(symbols) => {
                write!(f, "--symbols {symbols} is out of range: use 1 to {SYMBOLS_MAX}")
            }
            Self::FewMessages { messages, messages_min, symbols } => write!(
                f,
                "--messages {messages} cannot open and close a day of {symbols} symbols: use {messages_min} or more, \
                 or fewer --symbols"
            ),
            Self::Rate(rate) => write!(f, "--rate {rate} is out of range: use 1 to {RATE_MAX} messages a second"),
            Self::LongDay { messages, rate, rate_min } => write!(
                f,
                "--messages {messages} at --rate {rate} would run past midnight: use a rate of {rate_min} or more, \
                 or fewer messages"
            ),
            Self::Burst { burst, rate } => write!(
                f,
                "--burst {burst} alone is {} messages a second, above --rate {rate}: use smaller or fewer bursts",
                burst.messages_per_second()
            ),
            Self::Mtu(mtu) => write!(f, "--mtu {mtu} is out of range: use {MTU_MIN} to {MTU_MAX} bytes"),
            Self::PackWait(us) => {
                write!(f, "--pack-wait {us} is out of range: use 0 to {PACK_WAIT_US_MAX} microseconds")
            }
            Self::Port => write!(f, "--port 0 and --mdp3-port 0 are no ports: use 1 to 65535"),
            Self::Ttl => write!(f, "--ttl 0 never leaves the host: use 1 to 255"),
            Self::SameGroup(group) => {
                write!(f, "the groups of two lines are both {group}: give each line its own group")
            }
            Self::Mdp3Mtu(mtu) => {
                write!(f, "--mtu {mtu} is too small for MDP 3.0: use {MDP3_MTU_MIN} bytes or more")
            }
        }
    }
}

impl std::error::Error for SettingsError {}

/// Microbursts: `500@20` is 500 messages about a microsecond apart, 20 times a second on average.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Burst {
    /// Messages in one burst.
    pub size: u32,
    /// Bursts a second, on average; they come as a Poisson process.
    pub per_second: f64,
}

impl Burst {
    /// None at all.
    pub const NONE: Self = Self { size: 0, per_second: 0.0 };

    /// The default of a day of `rate` messages a second: a tenth of its messages come in bursts of
    /// 200, which fill half a dozen packets each.
    pub fn of_rate(rate: u64) -> Self {
        Self { size: 200, per_second: rate as f64 / 2000.0 }
    }

    /// Messages a second that come in bursts.
    pub fn messages_per_second(self) -> f64 {
        f64::from(self.size) * self.per_second
    }
}

impl FromStr for Burst {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const FORM: &str = "use SIZE@PER_SECOND such as 500@20, or none";
        if text == "none" {
            return Ok(Self::NONE);
        }
        let (size, per_second) = text.split_once('@').ok_or_else(|| format!("no '@' in it; {FORM}"))?;
        let size = size.parse().map_err(|_| format!("'{size}' is not a count of messages; {FORM}"))?;
        let per_second: f64 =
            per_second.parse().map_err(|_| format!("'{per_second}' is not a number of bursts a second; {FORM}"))?;
        if !(0.0..=1e6).contains(&per_second) {
            return Err(format!("{per_second} bursts a second is outside of 0 to 1000000; {FORM}"));
        }
        Ok(Self { size, per_second })
    }
}

impl fmt::Display for Burst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.size, self.per_second)
    }
}

/// A MoldUDP64 session name: 1 to 10 visible ASCII characters, padded with spaces on the wire.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SessionName(String);

impl SessionName {
    /// As it is in the header.
    pub fn bytes(&self) -> [u8; 10] {
        let mut bytes = [b' '; 10];
        bytes[..self.0.len()].copy_from_slice(self.0.as_bytes());
        bytes
    }
}

impl Default for SessionName {
    fn default() -> Self {
        Self("SIM0000001".into())
    }
}

impl FromStr for SessionName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if !(1..=10).contains(&text.len()) || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("a session is 1 to 10 visible ASCII characters, for example SIM0000001".into());
        }
        Ok(Self(text.into()))
    }
}

impl fmt::Display for SessionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A count with an optional k, M or G: `250k` is 250000.
pub fn parse_count(text: &str) -> Result<u64, String> {
    let (digits, scale) = match text.as_bytes().last() {
        Some(b'k') => (&text[..text.len() - 1], 1_000),
        Some(b'M') => (&text[..text.len() - 1], 1_000_000),
        Some(b'G') => (&text[..text.len() - 1], 1_000_000_000),
        _ => (text, 1),
    };
    let count: u64 = digits.parse().map_err(|_| "use a whole number such as 250000, 250k or 1M")?;
    count.checked_mul(scale).ok_or_else(|| "larger than 64 bits hold".into())
}

/// A count of at least one, as [`parse_count`] reads it.
pub fn parse_positive(text: &str) -> Result<u64, String> {
    match parse_count(text)? {
        0 => Err("use 1 or more".into()),
        count => Ok(count),
    }
}

/// A time with its unit: `500ms` or `2s`.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let (digits, scale_ms) = match (text.strip_suffix("ms"), text.strip_suffix('s')) {
        (Some(digits), _) => (digits, 1),
        (None, Some(digits)) => (digits, 1000),
        (None, None) => (text, 0),
    };
    let number = digits.parse::<u32>().ok().filter(|_| scale_ms > 0);
    let ms = number.ok_or("use a whole number with its unit such as 500ms or 2s")?;
    Ok(Duration::from_millis(u64::from(ms) * scale_ms))
}

/// The text form is also the form in the truth file.
macro_rules! serde_as_text {
    ($($name:ident),*) => {$(
        impl TryFrom<String> for $name {
            type Error = String;
            fn try_from(text: String) -> Result<Self, String> {
                text.parse()
            }
        }
        impl From<$name> for String {
            fn from(value: $name) -> Self {
                value.to_string()
            }
        }
    )*};
}
serde_as_text!(Burst, SessionName);

#[cfg(test)]
mod tests {
    use super::*;

    fn refused<T: FromStr<Err = String>>(text: &str, because: &str) {
        let error = text.parse::<T>().err().unwrap_or_else(|| panic!("'{text}' was accepted"));
        assert!(error.contains(because), "'{text}': {error}");
    }

    fn wrong(change: impl FnOnce(&mut Settings)) -> SettingsError {
        let mut settings = Settings::default();
        change(&mut settings);
        settings.check().unwrap_err()
    }

    #[test]
    fn burst_reads_size_and_frequency() {
        assert_eq!("500@20".parse::<Burst>().unwrap(), Burst { size: 500, per_second: 20.0 });
        assert_eq!("none".parse::<Burst>().unwrap(), Burst::NONE);
        refused::<Burst>("500", "no '@'");
        refused::<Burst>("x@2", "count of messages");
        refused::<Burst>("5@", "bursts a second");
        refused::<Burst>("5@-1", "outside");
        refused::<Burst>("5@inf", "outside");
    }

    #[test]
    fn session_is_one_to_ten_visible_characters() {
        refused::<SessionName>("", "1 to 10");
        refused::<SessionName>("ELEVENCHARS", "1 to 10");
        refused::<SessionName>("A B", "visible");
        refused::<SessionName>("é", "visible");
        assert_eq!(&"DAY1".parse::<SessionName>().unwrap().bytes(), b"DAY1      ");
    }

    #[test]
    fn count_reads_its_suffix() {
        assert_eq!(parse_count("250k"), Ok(250_000));
        assert_eq!(parse_count("1M"), Ok(1_000_000));
        assert!(parse_count("").is_err());
        assert!(parse_count("M").is_err());
        assert!(parse_count("-1").is_err());
        assert!(parse_positive("0").is_err() && parse_positive("1k") == Ok(1000));
        assert!(parse_count("99999999999G").is_err());
    }

    #[test]
    fn duration_needs_its_unit() {
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("2s"), Ok(Duration::from_secs(2)));
        for text in ["", "5", "s", "-1s", "1.5s", "5 min"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn settings_that_make_no_day_are_named() {
        assert_eq!(wrong(|s| s.symbols = 0), SettingsError::Symbols(0));
        assert_eq!(
            wrong(|s| s.messages = 1805),
            SettingsError::FewMessages { messages: 1805, messages_min: 1806, symbols: 300 }
        );
        assert_eq!(wrong(|s| s.rate = 0), SettingsError::Rate(0));
        assert_eq!(wrong(|s| s.rate = 4_000_001), SettingsError::Rate(4_000_001));
        assert!(matches!(wrong(|s| s.rate = 1), SettingsError::LongDay { rate_min: 20, .. }));
        assert!(matches!(wrong(|s| s.burst.size = 2001), SettingsError::Burst { .. }));
        assert_eq!(wrong(|s| s.mtu = 93), SettingsError::Mtu(93));
        assert_eq!(wrong(|s| s.pack_wait_us = 10_001), SettingsError::PackWait(10_001));
        assert_eq!(wrong(|s| s.port = 0), SettingsError::Port);
        assert_eq!(wrong(|s| s.ttl = 0), SettingsError::Ttl);
        assert!(matches!(wrong(|s| s.lines[1].group = s.lines[0].group), SettingsError::SameGroup(_)));
        assert_eq!(Settings::default().check(), Ok(()));
    }
}
