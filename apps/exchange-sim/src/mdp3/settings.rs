//! Where the feeds of MDP 3.0 go.

use std::net::SocketAddrV4;

use market::truth::Group;
use serde::{Deserialize, Serialize};

/// The groups of a channel of MDP 3.0: for each feed line A and line B, with the faults of the
/// lines of ITCH.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mdp3Groups {
    /// The incremental feed. By default 233.252.0.11 and 233.252.0.12.
    pub incremental: [Group; 2],
    /// The loop of definitions. By default 233.252.0.13 and 233.252.0.14.
    pub definitions: [Group; 2],
    /// The loop of snapshots. By default 233.252.0.15 and 233.252.0.16.
    pub snapshots: [Group; 2],
    /// UDP destination port of all. By default 14310.
    pub port: u16,
}

impl Default for Mdp3Groups {
    fn default() -> Self {
        // MCAST-TEST-NET (RFC 6676), as the lines of ITCH.
        let pair = |first: u8| {
            [first, first + 1].map(|last| format!("233.252.0.{last}").parse().expect("an address of multicast"))
        };
        Self { incremental: pair(11), definitions: pair(13), snapshots: pair(15), port: 14310 }
    }
}

impl Mdp3Groups {
    /// All lines, in the order of [`crate::Delivery::line_idx`].
    pub(crate) fn destinations(&self) -> impl Iterator<Item = SocketAddrV4> {
        let feeds = [self.incremental, self.definitions, self.snapshots];
        let port = self.port;
        feeds.into_iter().flatten().map(move |group| SocketAddrV4::new(group.address(), port))
    }
}
