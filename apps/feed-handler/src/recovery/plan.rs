//! What the operator configures of a channel's recovery.

use std::net::{Ipv4Addr, SocketAddrV4};

use market::RetryPolicy;
use market::image::ImagePolicy;
use market::loops::RecoveryConfig;
use market::memx::replay::LoginToken;
use market::pitch::servers::Login;
use order_entry::soupbin::Credentials;

/// The servers of one set of lines, and its loops.
#[derive(Clone, Debug, Default)]
pub struct RecoveryPlan {
    /// Where missing messages are requested again. By default nowhere: what no line brings is a
    /// gap.
    pub requests: Option<RequestPlan>,
    /// Where an image of all books is requested. By default nowhere: after a gap the books stay
    /// stale.
    pub image: Option<ImagePlan>,
    /// MDP 3.0: the groups that bring snapshots and definitions again and again. By default none:
    /// a book that lacks something is whole again when each of its levels was set anew.
    pub loops: Option<LoopPlan>,
}

/// The loops of a channel of MDP 3.0.
#[derive(Clone, Debug)]
pub struct LoopPlan {
    /// The lines of the snapshots (market recovery).
    pub snapshots: Vec<RecoveryGroup>,
    /// The lines of the definitions (replay). By default none: how many levels the venue publishes
    /// of an instrument is then known only where the live feed says it.
    pub definitions: Vec<RecoveryGroup>,
    /// The address of the interface that joins them. By default 0.0.0.0: the kernel's routes
    /// decide.
    pub interface: Ipv4Addr,
    /// Limits.
    pub limits: RecoveryConfig,
}

/// A group that brings messages again: a line of a loop, or gap responses.
#[derive(Clone, Debug)]
pub struct RecoveryGroup {
    /// Its address and port.
    pub address: SocketAddrV4,
    /// The only accepted senders; empty for any.
    pub senders: Vec<Ipv4Addr>,
}

/// A server that sends messages again.
#[derive(Clone, Debug)]
pub struct RequestPlan {
    /// Its address.
    pub server: SocketAddrV4,
    /// Where its answers arrive. By default any address of this host and a free port.
    pub bind: SocketAddrV4,
    /// Times and limits of requests.
    pub retry: RetryPolicy,
    /// A wider hole is left to the image at once. By default 10,000 messages.
    pub hole_max: u64,
    /// Cboe: the login at the gap request proxy, and the group that brings the messages. By default
    /// none: requests go over UDP, and answers come to the socket that sent them.
    pub proxy: Option<ProxyPlan>,
    /// MEMX: the login at its server of replays, which sends the messages over the same connection.
    /// By default none.
    pub replays: Option<LoginToken>,
}

/// Cboe's gap request proxy.
#[derive(Clone, Debug)]
pub struct ProxyPlan {
    /// The login.
    pub login: Login,
    /// The group of the gap responses. Each comes once and on no other line, so its messages are
    /// believed where they were requested: who can send as one of the senders can forge them.
    pub group: RecoveryGroup,
    /// The address of the interface that joins it. By default 0.0.0.0: the kernel's routes decide.
    pub interface: Ipv4Addr,
}

/// A server that sends images.
#[derive(Clone, Debug)]
pub struct ImagePlan {
    /// Its address.
    pub server: SocketAddrV4,
    /// Its protocol, and the login.
    pub source: ImageSource,
    /// Limits.
    pub policy: ImagePolicy,
}

/// The protocol of an image.
#[derive(Clone, Copy, Debug)]
pub enum ImageSource {
    /// Nasdaq's GLIMPSE over SoupBinTCP.
    Glimpse {
        /// The login.
        credentials: Credentials,
        /// Take an image whatever its session is called. Otherwise only one whose session has the
        /// name of the live feed's: the image of another day has other orders by the same numbers.
        any_session: bool,
    },
    /// Cboe's spin server.
    Spin(Login),
}

impl RequestPlan {
    /// The default of [`RequestPlan::hole_max`]: some 250 requests of 40 messages.
    pub const HOLE_MAX: u64 = 10_000;
}

impl RecoveryPlan {
    /// Whether anything is configured.
    pub const fn is_empty(&self) -> bool {
        self.requests.is_none() && self.image.is_none() && self.loops.is_none()
    }
}
