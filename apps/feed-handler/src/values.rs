//! Values that a flag or the configuration gives: cores, sizes, paces, groups.

use std::net::SocketAddrV4;
use std::str::FromStr;
use std::time::Duration;

use market::Capacity;
use wirepath::device::pcap::Pace;
use wirepath::mem::BURST_MAX;

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
/// The same where a server is asked for what is missing: 60 ms of the packets of a busy feed, which
/// is longer than an answer takes.
pub const WINDOW_PACKETS_ASKING: usize = 2_048;

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
mod tests {
    use super::*;

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
