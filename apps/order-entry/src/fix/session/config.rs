//! What a session is told once.

use crate::fix::codec::Precision;

/// The longest HeartBtInt (108) in seconds, a day.
pub(super) const HEARTBEAT_S_MAX: u32 = 86_400;

/// Which FIX.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Version {
    /// FIX 4.2.
    Fix42,
    /// FIX 4.4.
    #[default]
    Fix44,
    /// FIX 5.0 SP2 over FIXT 1.1: Logon says the version of all messages (1137).
    Fix50Sp2,
}

impl Version {
    /// BeginString (8).
    pub const fn begin_string(self) -> &'static str {
        match self {
            Self::Fix42 => "FIX.4.2",
            Self::Fix44 => "FIX.4.4",
            Self::Fix50Sp2 => "FIXT.1.1",
        }
    }

    /// DefaultApplVerID (1137), where Logon has one: 9 is FIX 5.0 SP2.
    pub(super) const fn appl_ver_id(self) -> Option<&'static str> {
        match self {
            Self::Fix50Sp2 => Some("9"),
            Self::Fix42 | Self::Fix44 => None,
        }
    }
}

/// Who opens the connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Role {
    /// We connect, and send the first Logon.
    #[default]
    Initiator,
    /// The peer connects, and sends the first Logon.
    Acceptor,
}

/// One session's names, rules and limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionConfig {
    /// By default 4.4.
    pub version: Version,
    /// By default initiator.
    pub role: Role,
    /// Our SenderCompID (49), the peer's TargetCompID (56). By default empty.
    pub sender: String,
    /// Our TargetCompID (56), the peer's SenderCompID (49). By default empty.
    pub target: String,
    /// Username (553) of our Logon. By default none.
    pub username: Option<String>,
    /// Password (554) of our Logon. By default none.
    pub password: Option<String>,
    /// HeartBtInt (108) of our Logon in seconds, at most a day; 0 is none. An acceptor takes the
    /// initiator's. By default 30.
    pub heartbeat_s: u32,
    /// Both numbers begin anew with our Logon (141=Y). By default no.
    pub reset_on_logon: bool,
    /// Logons say which number is expected next (789), and the peer sends what is missing without a
    /// request. Both sides have it or neither. By default no.
    pub next_expected: bool,
    /// Digits of our timestamps. By default milliseconds.
    pub precision: Precision,
    /// How far SendingTime (52) may be from our clock. By default 120 s.
    pub latency_ns_max: u64,
    /// How long the first Logon, or its answer, is waited for. By default 10 s.
    pub logon_timeout_ns: u64,
    /// How long the answer to our Logout is waited for. By default 2 s.
    pub logout_timeout_ns: u64,
    /// A resend that makes no progress for so long is requested again. By default 30 s.
    pub resend_timeout_ns: u64,
    /// Messages in one request for a resend; 0 asks for all (16=0), as most venues expect. A peer
    /// that fills stale orders as a gap then fills those too that are kept behind the hole already;
    /// an acceptor that would rather have them asks for the hole alone, by any other number. By
    /// default 0.
    pub resend_request_max: u64,
    /// Messages of these types are not sent again but filled as a gap, because the market has moved
    /// since: the peer is told to go on behind them, and the caller gets
    /// [`Event::NotResent`](super::Event::NotResent). By default D, F and G.
    pub stale_types: Vec<String>,
    /// A message of those types that is younger is sent again all the same. By default 0: none is.
    pub fresh_ns: u64,
    /// Types of application messages that are handed over; another that FIX knows is answered with
    /// a BusinessMessageReject (380=3). By default empty, which hands over all that FIX knows.
    pub supported_types: Vec<String>,
    /// Bytes of the longest message, at most 65,535. By default 16 KiB.
    pub message_len_max: usize,
    /// Fields of the longest message. By default 512.
    pub fields_max: usize,
    /// Bytes of the messages that are kept behind a hole; what does not fit is requested again. By
    /// default 256 KiB.
    pub queue_len_max: usize,
    /// Messages that are kept behind a hole. By default 1,024.
    pub queue_count_max: usize,
    /// Bytes that may wait to be written. By default 1 MiB.
    pub output_len_max: usize,
    /// A resend goes on while fewer bytes wait to be written, so that heartbeats and new messages
    /// never wait behind more. By default 16 KiB.
    pub resend_output_len: usize,
    /// When the session is open. By default always.
    pub schedule: Option<super::Schedule>,
}

impl Default for SessionConfig {
    fn default() -> Self {
        Self {
            version: Version::default(),
            role: Role::default(),
            sender: String::new(),
            target: String::new(),
            username: None,
            password: None,
            heartbeat_s: 30,
            reset_on_logon: false,
            next_expected: false,
            precision: Precision::Millis,
            latency_ns_max: 120_000_000_000,
            logon_timeout_ns: 10_000_000_000,
            logout_timeout_ns: 2_000_000_000,
            resend_timeout_ns: 30_000_000_000,
            resend_request_max: 0,
            stale_types: ["D", "F", "G"].map(str::to_owned).into(),
            fresh_ns: 0,
            supported_types: Vec::new(),
            message_len_max: 16 << 10,
            fields_max: 512,
            queue_len_max: 256 << 10,
            queue_count_max: 1_024,
            output_len_max: 1 << 20,
            resend_output_len: 16 << 10,
            schedule: None,
        }
    }
}
