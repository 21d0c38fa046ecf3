//! The rate of the ICMP errors that we send, and their counters.

use crate::counters::{Counter, Drops, Scope, Unit};
use crate::proto::{ErrorLimit, ErrorRefusal};

crate::drop_reasons! {
    /// Why no error was sent about a packet. The packet itself is counted where it is dropped.
    pub enum UnsentError {
        /// Its headers are not in the buffer.
        Malformed => "malformed",
        /// It was sent to a group or a broadcast address.
        NotUnicast => "not_unicast",
        /// It was not sent to us.
        NotOurs => "not_ours",
        /// It is a later fragment.
        LaterFragment => "later_fragment",
        /// Its source is not a single host.
        NoSource => "no_source",
        /// It is itself an ICMP error.
        AboutError => "about_error",
        /// Too many were sent lately.
        RateLimited => "rate_limited",
        /// No route leads to its sender.
        NoRoute => "no_route",
        /// No buffer is free.
        PoolEmpty => "pool_empty",
        /// The device's ring is full.
        RingFull => "ring_full",
    }
}

impl From<ErrorRefusal> for UnsentError {
    fn from(refusal: ErrorRefusal) -> Self {
        match refusal {
            ErrorRefusal::Malformed => Self::Malformed,
            ErrorRefusal::NotUnicast => Self::NotUnicast,
            ErrorRefusal::NotOurs => Self::NotOurs,
            ErrorRefusal::LaterFragment => Self::LaterFragment,
            ErrorRefusal::NoSource => Self::NoSource,
            ErrorRefusal::AboutError => Self::AboutError,
            ErrorRefusal::RateLimited => Self::RateLimited,
        }
    }
}

/// The rate of errors and their counters. Owned by [`Egress`](crate::pipeline::Egress): one rate
/// for the whole host.
pub(crate) struct IcmpErrors {
    pub(super) limit: ErrorLimit,
    pub(super) sent: Counter,
    pub(super) drops: Drops<UnsentError>,
}

impl IcmpErrors {
    /// Errors at the rate of `limit`, with counters in the scope `icmp_errors` below `scope`.
    pub(crate) fn new(limit: ErrorLimit, scope: &Scope) -> Self {
        let scope = scope.scope("icmp_errors");
        Self { limit, sent: scope.counter("sent", Unit::Packets), drops: scope.tx_drops() }
    }
}
