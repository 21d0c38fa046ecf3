//! How the configuration of a live port contradicts itself or the interface: one sentence each.

use core::fmt;
use core::net::Ipv4Addr;

use super::config::FlowSpec;

/// A contradiction in a [`LiveConfig`](super::LiveConfig), or between it and the interface. Nothing
/// has been touched.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LiveConfigProblem {
    /// No queue is named.
    NoQueue,
    /// A queue is named twice.
    QueueTwice,
    /// IGMP of our own, whose queries come on one queue, on several queues.
    IgmpOfSeveralQueues,
    /// A flow is for a queue that is not opened.
    QueueNotOpened(u16),
    /// A flow of TCP on a port without TCP.
    NoTcp,
    /// A connection from a worker that may get its answers on another one's queue.
    AnswersOnAnyQueue {
        /// The peer.
        peer: Ipv4Addr,
    },
    /// A VLAN on an interface of the kernel.
    VlanOfShared,
    /// A flow of another VLAN than the port's.
    OtherVlan(u16),
    /// A host of our own without an address.
    NoAddress,
    /// Memberships of the kernel on an interface on which it gets no queries.
    NoQueriesForKernel,
    /// The interface has no MAC address.
    NoMacAddress {
        /// The interface.
        interface: String,
    },
    /// A bond in active-backup in driver mode, in which frames come to a leg's sockets.
    ActiveBackupBond {
        /// The bond.
        bond: String,
        /// Its legs.
        legs: Vec<String>,
    },
    /// A flow that was not subscribed to is to be given back.
    NotSubscribed(FlowSpec),
}

impl fmt::Display for LiveConfigProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoQueue => f.write_str("no queue is named: take at least queue 0"),
            Self::QueueTwice => f.write_str("a queue is named twice: each worker has its own"),
            Self::IgmpOfSeveralQueues => f.write_str(
                "IGMP of our own needs the queries, which come on one queue only: let the kernel keep the memberships \
                 (igmp = kernel), or take one queue",
            ),
            Self::QueueNotOpened(queue) => {
                write!(f, "queue {queue} is wanted and not taken: name it among the queues")
            }
            Self::NoTcp => f.write_str(
                "segments are wanted and there is no TCP to take them: enable it by Port::tcp(), or LiveConfig::tcp_with",
            ),
            Self::AnswersOnAnyQueue { peer } => write!(
                f,
                "the answers of {peer} may come on any of the queues, and the worker that calls has one: name it by \
                 FlowSpec::queue or Subscription::queue, or take one queue"
            ),
            Self::VlanOfShared => f.write_str(
                "a VLAN is for an interface of our own (owner = \"dedicated\"): on the kernel's its addresses are those of \
                 untagged frames. Name the VLAN of what is wanted instead",
            ),
            Self::OtherVlan(other) => {
                write!(f, "VLAN {other} is wanted on a port of another VLAN: omit it, or the port's")
            }
            Self::NoAddress => f.write_str(
                "an interface of our own needs an address that the kernel does not have, such as 10.0.0.2/24",
            ),
            Self::NoQueriesForKernel => f.write_str(
                "the kernel cannot keep memberships where it gets no queries: take only what is needed, or speak IGMP of \
                 our own",
            ),
            Self::NoMacAddress { interface } => write!(
                f,
                "{interface} has no MAC address, so no frame can be sent to us there: name an Ethernet interface"
            ),
            Self::ActiveBackupBond { bond, legs } => write!(
                f,
                "{bond} is a bond in active-backup of {}: use mode = generic, where the kernel follows its active leg, or \
                 open the legs as a BondDevice that Follower::steer_bond keeps on the active one",
                legs.join(" and ")
            ),
            Self::NotSubscribed(flow) => write!(f, "{flow} is not wanted, so it cannot be taken back"),
        }
    }
}

impl core::error::Error for LiveConfigProblem {}
