//! The capacities of the machine. All of it is allocated at the start.

use core::fmt;

use super::listening::admission::Sources;
use super::options::ConnectionOptions;
use super::state::connection::Connection;
use super::state::fifo::SlotFifo;
use super::state::list::SlotList;
use super::state::queue::Chunk;
use crate::proto::slab::Slot;
use crate::proto::wheel::Wheel;
use crate::proto::{PortRange, is_allocatable};
use crate::time::Duration;

/// The longest time between two retransmissions, or probes of a closed window (RFC 6298 2.5).
pub(super) const RTO_MAX: Duration = Duration::from_secs(60);

/// Limits and rates of the machine.
#[derive(Clone, Copy, Debug)]
pub struct TcpConfig {
    /// Connections at the same time, those in TIME-WAIT included. By default 1,024.
    pub connections_max: usize,
    /// Connection slots that remote clients may not use, so that an order session can be opened
    /// again even when clients have filled the table. Connections in TIME-WAIT do not count against
    /// the clients' slots, because new connections displace them. None: a sixteenth of all slots.
    /// By default `None`.
    pub active_open_reserve: Option<usize>,
    /// Listeners at the same time. By default 16.
    pub listeners_max: usize,
    /// The most chunks of data that wait in all connections together, unacknowledged or out of
    /// order. Each holds a buffer of the pool. At least two, because a payload that is longer than
    /// a segment is split when it leaves. By default 16,384.
    pub chunks_max: usize,
    /// Chunks out of order that one connection may hold. By default 1,024.
    pub reassembly_max: u32,
    /// Ephemeral ports of `connect`. By default 49152 to 65535 (RFC 6335).
    pub ports: PortRange,
    /// How long a closed connection is kept, so that late segments do not reach the next connection
    /// with the same ends (RFC 9293 3.4.1 says four minutes, Linux one). By default one minute.
    pub time_wait: Duration,
    /// Retransmissions of a SYN, and of a SYN-ACK, before the connection is given up.
    /// RFC 9293 3.8.3 wants three minutes of them, which are seven. By default 7.
    pub syn_retries: u8,
    /// Retransmissions of data before the connection is given up (RFC 9293 3.8.3, R2), which is no
    /// sooner than they would take with a timeout of 200 ms: nine minutes. By default 15.
    pub retries: u8,
    /// The most challenge ACKs a second over all connections (RFC 5961 7). The limit of each second
    /// is drawn between half of this number and all of it, so that no one can count the remaining
    /// ones. One connection may send ten. By default 1,000.
    pub challenge_acks_per_second: u32,
    /// The most resets a second that answer segments of no connection. The limit of each second is
    /// drawn between half of this number and all of it, and one address gets at most a quarter, so
    /// that no host can infer others' resets from its own (CVE-2016-5696). By default 1,000.
    pub resets_per_second: u32,
}

impl Default for TcpConfig {
    fn default() -> Self {
        Self {
            connections_max: 1024,
            active_open_reserve: None,
            listeners_max: 16,
            chunks_max: 16 * 1024,
            reassembly_max: 1024,
            ports: PortRange::DYNAMIC,
            time_wait: Duration::from_secs(60),
            syn_retries: 7,
            retries: 15,
            challenge_acks_per_second: 1000,
            resets_per_second: 1000,
        }
    }
}

impl TcpConfig {
    /// Bytes that the machine allocates for payloads of type `P`: the sum of its parts.
    pub fn bytes<P>(&self) -> usize {
        let sources = Sources::bytes(self.connections_max) - self.connections_max * Sources::ENTRY_LEN;
        self.connections_max * Self::connection_len() + self.chunks_max * size_of::<Chunk<P>>() + sources
    }

    /// Connections that remote clients may not use.
    pub fn active_open_reserve(&self) -> usize {
        self.active_open_reserve.unwrap_or(self.connections_max / 16)
    }

    /// Bytes that an established, idle connection takes, those of the output included. We promise
    /// at most 640.
    pub const fn connection_len() -> usize {
        let variables = size_of::<Slot<Connection>>();
        // A bucket of the flow table holds four keys of 12 bytes and four slots of 4, and is a
        // quarter full at most.
        let flow = 64;
        let lists = Wheel::ENTRY_LEN + SlotList::ENTRY_LEN + SlotFifo::ENTRY_LEN;
        variables + flow + lists + Sources::ENTRY_LEN + Self::LINK_HEADER_CACHE_LEN
    }

    /// Bytes of a connection's entry in the link header cache: the Ethernet header to its next hop,
    /// ready to be copied in front of each segment, and the change count of the host's routes that
    /// it was made for. The output stores the entries, beside the machine.
    pub const LINK_HEADER_CACHE_LEN: usize = 32;

    /// How long `retries` take with the usual minimum timeout of 200 ms, which is the least: nine
    /// minutes where they are 15. Linux computes it so, too (`retransmits_timed_out`).
    pub(super) fn retries_timeout(&self) -> Duration {
        let span = |retry: u8| Duration::from_millis(200 << retry.min(20)).min(RTO_MAX);
        (0..=self.retries).fold(Duration::ZERO, |sum, retry| sum + span(retry))
    }

    /// Whether the kernel grants the memory: checked before anything is allocated.
    pub(super) fn check_memory<P>(&self) -> Result<(), TcpConfigError> {
        let (connections, chunks, bytes) = (self.connections_max, self.chunks_max, self.bytes::<P>());
        if is_allocatable(bytes) { Ok(()) } else { Err(TcpConfigError::NoMemory { connections, chunks, bytes }) }
    }

    /// RFC 9293 3.4.1's two maximum segment lifetimes.
    pub const TIME_WAIT_MAX: Duration = Duration::from_secs(240);

    /// Whether a pool of `buffers` has one buffer for each chunk and `others` more, the number that
    /// the device and a burst take. A smaller pool is safe, and so is one for which no number of
    /// `others` was given (`TcpSockets::reserve_buffers`): at most half of it waits in connections.
    /// Received data beyond that is refused, so that the peer sends it again, and `send` returns
    /// `NoChunk`. An app that must be sure of its memory calls this.
    pub fn check_pool(&self, buffers: usize, others: usize) -> Result<(), TcpConfigError> {
        let needed = self.chunks_max + others;
        if buffers < needed { Err(TcpConfigError::PoolTooSmall { buffers, needed }) } else { Ok(()) }
    }

    /// Whether the limits are consistent.
    pub fn check(&self) -> Result<(), TcpConfigError> {
        const LIMIT: usize = 1 << 28;
        let counts = [
            ("connections_max", self.connections_max, 1, LIMIT),
            ("listeners_max", self.listeners_max, 1, 1 << 16),
            ("chunks_max", self.chunks_max, 2, LIMIT),
        ];
        let limits = [
            ("challenge_acks_per_second", self.challenge_acks_per_second),
            ("resets_per_second", self.resets_per_second),
            ("reassembly_max", self.reassembly_max),
        ];
        if self.active_open_reserve() > self.connections_max {
            let (name, value) = ("active_open_reserve", self.active_open_reserve());
            return Err(TcpConfigError::OutOfRange { name, value, min: 0, max: self.connections_max });
        }
        let tries = [("syn_retries", self.syn_retries), ("retries", self.retries)];
        let limits = limits.map(|(name, value)| (name, value as usize, 1, LIMIT));
        let tries = tries.map(|(name, value)| (name, value.into(), 1, u8::MAX.into()));
        for (name, value, min, max) in counts.into_iter().chain(limits).chain(tries) {
            if !(min..=max).contains(&value) {
                return Err(TcpConfigError::OutOfRange { name, value, min, max });
            }
        }
        if self.time_wait < ConnectionOptions::TIMER_MIN || self.time_wait > Self::TIME_WAIT_MAX {
            return Err(TcpConfigError::TimeWait(self.time_wait));
        }
        Ok(())
    }
}

const _: () = assert!(TcpConfig::connection_len() <= 640);

/// Why a configuration is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TcpConfigError {
    /// A number out of range.
    OutOfRange {
        /// The field.
        name: &'static str,
        /// Its value.
        value: usize,
        /// The minimum.
        min: usize,
        /// The maximum.
        max: usize,
    },
    /// Too short to be useful, or longer than the standard's.
    TimeWait(Duration),
    /// More memory than the kernel grants.
    NoMemory {
        /// `TcpConfig::connections_max`.
        connections: usize,
        /// `TcpConfig::chunks_max`.
        chunks: usize,
        /// The memory for these: [`TcpConfig::bytes`].
        bytes: usize,
    },
    /// Fewer buffers than may be kept.
    PoolTooSmall {
        /// The pool's buffers.
        buffers: usize,
        /// The required buffers.
        needed: usize,
    },
}

impl fmt::Display for TcpConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfRange { name, value, min, .. } if value < min => {
                write!(f, "TcpConfig::{name} is {value}: raise it to {min} at least")
            }
            Self::OutOfRange { name, value, max, .. } => {
                write!(f, "TcpConfig::{name} is {value}: lower it to {max} at most")
            }
            Self::TimeWait(span) => write!(f, "TcpConfig::time_wait is {span}: it must be 1 ms to 240 s"),
            Self::NoMemory { connections, chunks, bytes } => write!(
                f,
                "TCP takes {} MiB for {connections} connections and {chunks} chunks, and the machine does not give so much: \
                 lower TcpConfig::connections_max or chunks_max",
                bytes >> 20
            ),
            Self::PoolTooSmall { buffers, needed } => write!(
                f,
                "the pool has {buffers} buffers and TCP may keep so many that it needs {needed}: \
                 make the pool larger, or lower TcpConfig::chunks_max"
            ),
        }
    }
}

impl std::error::Error for TcpConfigError {}

impl ConnectionOptions {
    /// Whether each option is in its range.
    pub fn check(&self) -> Result<(), super::event::OptionError> {
        let error = |option, range| Err(super::event::OptionError { option, range });
        let buffers = 1..=Self::BUFFER_LEN_MAX;
        if !buffers.contains(&self.send_buffer) {
            return error("send_buffer", "1 byte to 1 GiB");
        }
        if !buffers.contains(&self.receive_buffer) {
            return error("receive_buffer", "1 byte to 1 GiB");
        }
        if self.mss_max.is_some_and(|mss| mss < 64) {
            return error("mss_max", "64 bytes at least");
        }
        if self.rto_min < Self::TIMER_MIN || self.rto_min > Duration::from_secs(60) {
            return error("rto_min", "1 ms to 60 s");
        }
        if self.ack_delay >= Duration::from_millis(500) {
            return error("ack_delay", "less than 500 ms (RFC 9293 3.8.6.3)");
        }
        let is_in_range = |delay: Duration| (1..256).contains(&(delay.as_nanos() / 1_000_000));
        if !self.interactive_ack_delay.is_none_or(is_in_range) {
            return error("interactive_ack_delay", "1 to 255 ms");
        }
        if self.pacing_rate == Some(0) {
            return error("pacing_rate", "more than no byte a second");
        }
        if self.ttl == 0 {
            return error("ttl", "1 to 255");
        }
        if let Some(keepalive) = self.keepalive {
            for (name, span) in [("keepalive.idle", keepalive.idle), ("keepalive.interval", keepalive.interval)] {
                if span < Self::TIMER_MIN {
                    return error(name, "1 ms at least");
                }
            }
            if keepalive.count == 0 {
                return error("keepalive.count", "1 probe at least");
            }
        }
        if self.syn_retries == Some(0) {
            return error("syn_retries", "1 at least");
        }
        if self.fin_wait > Self::FIN_WAIT_MAX {
            return error("fin_wait", "120 s at most");
        }
        if self.user_timeout.is_some_and(|timeout| timeout < Self::TIMER_MIN) {
            return error("user_timeout", "1 ms at least");
        }
        Ok(())
    }
}
