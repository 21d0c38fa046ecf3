//! What a connection manager is made for, what it counts, and what goes wrong in a call.

use core::fmt;

/// The limits and times of a connection manager. Times are codes: 4.096 µs · 2ⁿ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CmConfig {
    /// Connections, those that have ended and wait included. By default 256.
    pub connections: u32,
    /// Listeners. By default 16.
    pub listeners: u32,
    /// How long either end may take for an answer, beside the way there and back; below 25. By
    /// default 17, half a second; Linux has 20. With less, a peer that is busy is asked again for
    /// nothing; with more, a lost message stops a connection for longer.
    pub response_timeout: u8,
    /// Times that a message is sent again, below 16. By default 15, as Linux has it.
    pub retries: u8,
    /// The time to an acknowledgment that queue pairs wait, and what twice the way takes at most;
    /// below 25. By default 14, 67 ms.
    pub ack_timeout: u8,
    /// How long a peer is told to wait where our program has not yet answered; below 25. By default
    /// 20, 4.3 s.
    pub service_timeout: u8,
    /// How long a request waits for our program at most, in ns; then it is rejected as timed out.
    /// By default 60 s.
    pub accept_ns: u64,
    /// The GUID of our adapter, which REJ messages of a timeout name. By default 1.
    pub ca_guid: u64,
    /// Where names of connections begin: another value after each start, so that messages to an
    /// earlier process name none of ours. By default 0.
    pub seed: u64,
    /// DSCP and ECN of all packets of our connections. Where it is 0, as by default, those of a
    /// connection that the peer asked for have what its request says.
    pub traffic_class: u8,
}

impl Default for CmConfig {
    fn default() -> Self {
        Self {
            connections: 256,
            listeners: 16,
            response_timeout: 17,
            retries: 15,
            ack_timeout: 14,
            service_timeout: 20,
            accept_ns: 60_000_000_000,
            ca_guid: 1,
            seed: 0,
            traffic_class: 0,
        }
    }
}

/// What a connection manager counted. Each datagram that arrived is in `received`, and either did
/// something or is in one of the counters from `malformed` on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CmCounters {
    /// Datagrams that arrived.
    pub received: u64,
    /// Datagrams that were handed out to be sent.
    pub sent: u64,
    /// Of these, messages that were sent again because no answer came.
    pub retries: u64,
    /// Requests that were rejected without asking our program.
    pub rejected: u64,
    /// Messages that had arrived before.
    pub duplicates: u64,
    /// Datagrams that are no message of connections, or have impossible values.
    pub malformed: u64,
    /// Messages that name no connection of ours, or not by the names of both ends.
    pub unknown: u64,
    /// Messages to a connection from another address than its peer's.
    pub wrong_address: u64,
    /// Messages that a connection's state does not expect.
    pub unexpected: u64,
    /// Messages that were not sent, because too many waited.
    pub overflows: u64,
    /// Messages that were not sent, because no way to their address was found in three seconds.
    pub unreachable: u64,
}

/// Why a call of a connection manager did nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CmError {
    /// No room: [`CmConfig`] says how much there is.
    Full(&'static str),
    /// No connection or listener has this name: it was destroyed.
    Unknown,
    /// The connection's state does not allow it: it may have ended meanwhile.
    State,
    /// More private data than the message carries.
    PrivateData,
    /// Another listener has the port.
    PortInUse,
}

impl fmt::Display for CmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full(what) => write!(f, "no room for more {what}: CmConfig says how many"),
            Self::Unknown => f.write_str("no such connection or listener: it was destroyed"),
            Self::State => f.write_str("not in this state of the connection, which may have ended meanwhile"),
            Self::PrivateData => f.write_str("more private data than the message carries"),
            Self::PortInUse => f.write_str("another listener has this port: choose another, or destroy that one"),
        }
    }
}

impl core::error::Error for CmError {}
