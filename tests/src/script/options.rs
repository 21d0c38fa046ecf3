//! `option` and `config`: the options of a script's connections, and the capacities of its machine.

use wirepath::pipeline::tcp::{Congestion, ConnectionOptions, Keepalive, Linger, ListenOptions, TcpConfig};
use wirepath::proto::PortRange;
use wirepath::time::Duration;

/// Changes options of connections and listeners.
#[derive(Clone, Debug)]
pub(super) enum Setting {
    Nodelay(bool),
    Quickack(bool),
    AckDelay(Duration),
    Keepalive(Option<Keepalive>),
    UserTimeout(Option<Duration>),
    Linger(Linger),
    Congestion(Congestion),
    RtoMin(Duration),
    PacingRate(u64),
    SendBuffer(u32),
    ReceiveBuffer(u32),
    MssMax(u16),
    Timestamps(bool),
    Sack(bool),
    Ecn(bool),
    Ttl(u8),
    Tos(u8),
    Backlog(u32),
    SynsPerSecond(u32),
    ConnectionsMax(u32),
    ConnectionsPerSource(u32),
}

/// Changes a limit of the machine.
#[derive(Clone, Debug)]
pub(super) enum Limit {
    ConnectionsMax(usize),
    PlacesForCalls(usize),
    ListenersMax(usize),
    ChunksMax(usize),
    ReassemblyMax(u32),
    Ports(PortRange),
    TimeWait(Duration),
    SynRetries(u8),
    Retries(u8),
    ChallengeAcks(u32),
    Resets(u32),
    /// When the script begins: initial sequence numbers follow the clock.
    Start(Duration),
}

impl Setting {
    /// Reads a name and its values.
    pub(super) fn parse(words: &[&str]) -> Result<Self, String> {
        let (&name, values) = words.split_first().ok_or("the name of an option is missing")?;
        if name == "keepalive" {
            return parse_keepalive(values).map(Self::Keepalive);
        }
        let &[value] = values else { return Err(format!("option {name} takes one value")) };
        Ok(match name {
            "nodelay" => Self::Nodelay(switch(value)?),
            "quickack" => Self::Quickack(switch(value)?),
            "ack_delay" => Self::AckDelay(span(value)?),
            "user_timeout" => Self::UserTimeout(if value == "off" { None } else { Some(span(value)?) }),
            "linger" if value == "background" => Self::Linger(Linger::Background),
            "linger" => Self::Linger(Linger::For(span(value)?)),
            "congestion" => Self::Congestion(match value {
                "cubic" => Congestion::Cubic,
                "reno" => Congestion::Reno,
                "none" => Congestion::None,
                _ => return Err(format!("{value:?} is no congestion control: cubic, reno or none")),
            }),
            "rto_min" => Self::RtoMin(span(value)?),
            "pacing_rate" => Self::PacingRate(number(value)?),
            "send_buffer" => Self::SendBuffer(number(value)?),
            "receive_buffer" => Self::ReceiveBuffer(number(value)?),
            "mss_max" => Self::MssMax(number(value)?),
            "timestamps" => Self::Timestamps(switch(value)?),
            "sack" => Self::Sack(switch(value)?),
            "ecn" => Self::Ecn(switch(value)?),
            "ttl" => Self::Ttl(number(value)?),
            "tos" => Self::Tos(number(value)?),
            "backlog" => Self::Backlog(number(value)?),
            "syns_per_second" => Self::SynsPerSecond(number(value)?),
            "connections_max" => Self::ConnectionsMax(number(value)?),
            "connections_per_source" => Self::ConnectionsPerSource(number(value)?),
            _ => return Err(format!("there is no option {name:?}")),
        })
    }

    /// Makes the change.
    pub(super) fn apply(&self, listen: &mut ListenOptions) {
        let options: &mut ConnectionOptions = &mut listen.connection;
        match *self {
            Self::Nodelay(on) => options.nodelay = on,
            Self::Quickack(on) => options.quickack = on,
            Self::AckDelay(span) => options.ack_delay = span,
            Self::Keepalive(keepalive) => options.keepalive = keepalive,
            Self::UserTimeout(span) => options.user_timeout = span,
            Self::Linger(linger) => options.linger = linger,
            Self::Congestion(kind) => options.congestion = kind,
            Self::RtoMin(span) => options.rto_min = span,
            Self::PacingRate(rate) => options.pacing_rate = Some(rate),
            Self::SendBuffer(len) => options.send_buffer = len,
            Self::ReceiveBuffer(len) => options.receive_buffer = len,
            Self::MssMax(mss) => options.mss_max = Some(mss),
            Self::Timestamps(on) => options.timestamps = on,
            Self::Sack(on) => options.sack = on,
            Self::Ecn(on) => options.ecn = on,
            Self::Ttl(ttl) => options.ttl = ttl,
            Self::Tos(tos) => options.tos = tos,
            Self::Backlog(count) => listen.backlog = count,
            Self::SynsPerSecond(rate) => listen.syns_per_second = Some(rate),
            Self::ConnectionsMax(count) => listen.connections_max = Some(count),
            Self::ConnectionsPerSource(count) => listen.connections_per_source = Some(count),
        }
    }
}

impl Limit {
    /// Reads a name and its value.
    pub(super) fn parse(words: &[&str]) -> Result<Self, String> {
        let &[name, value] = words else { return Err("config takes a name and a value".to_owned()) };
        Ok(match name {
            "connections_max" => Self::ConnectionsMax(number(value)?),
            "active_open_reserve" => Self::PlacesForCalls(number(value)?),
            "listeners_max" => Self::ListenersMax(number(value)?),
            "chunks_max" => Self::ChunksMax(number(value)?),
            "reassembly_max" => Self::ReassemblyMax(number(value)?),
            "ports" => {
                let (first, last) = value.split_once('-').ok_or("ports are FIRST-LAST")?;
                Self::Ports(PortRange::new(number(first)?, number(last)?).ok_or("that is no range of ports")?)
            }
            "time_wait" => Self::TimeWait(span(value)?),
            "syn_retries" => Self::SynRetries(number(value)?),
            "retries" => Self::Retries(number(value)?),
            "challenge_acks_per_second" => Self::ChallengeAcks(number(value)?),
            "resets_per_second" => Self::Resets(number(value)?),
            "start" => Self::Start(span(value)?),
            _ => return Err(format!("there is no limit {name:?}")),
        })
    }

    /// Makes the change.
    pub(super) fn apply(&self, config: &mut TcpConfig) {
        match *self {
            Self::ConnectionsMax(count) => config.connections_max = count,
            Self::PlacesForCalls(count) => config.active_open_reserve = Some(count),
            Self::ListenersMax(count) => config.listeners_max = count,
            Self::ChunksMax(count) => config.chunks_max = count,
            Self::ReassemblyMax(count) => config.reassembly_max = count,
            Self::Ports(range) => config.ports = range,
            Self::TimeWait(span) => config.time_wait = span,
            Self::SynRetries(count) => config.syn_retries = count,
            Self::Retries(count) => config.retries = count,
            Self::ChallengeAcks(rate) => config.challenge_acks_per_second = rate,
            Self::Resets(rate) => config.resets_per_second = rate,
            Self::Start(_) => (),
        }
    }
}

fn parse_keepalive(values: &[&str]) -> Result<Option<Keepalive>, String> {
    match *values {
        ["off"] => Ok(None),
        [idle, interval, count] => {
            Ok(Some(Keepalive { idle: span(idle)?, interval: span(interval)?, count: number(count)? }))
        }
        _ => Err("keepalive is off, or IDLE INTERVAL COUNT".to_owned()),
    }
}

/// `on` or `off`.
fn switch(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(format!("{text:?} is neither on nor off")),
    }
}

/// A literal number.
pub(super) fn number<T: core::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{text:?} is no number here"))
}

/// A span of time: `250us`, `10ms`, `1.5s`, `2m`, `3h`, `25d`; seconds where no unit is given.
pub(super) fn span(text: &str) -> Result<Duration, String> {
    let at = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(at);
    let unit_ns: u64 = match unit {
        "us" => 1_000,
        "ms" => 1_000_000,
        "" | "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        "d" => 86_400_000_000_000,
        _ => return Err(format!("{text:?} is no time: units are us, ms, s, m, h and d")),
    };
    let value: f64 = digits.parse().map_err(|_| format!("{text:?} is no time"))?;
    if value.is_sign_negative() || !value.is_finite() {
        return Err(format!("{text:?} is no time to come"));
    }
    Ok(Duration::from_nanos((value * unit_ns as f64).round() as u64))
}
