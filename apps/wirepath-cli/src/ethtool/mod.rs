//! A driver's report about itself: queues, rings, offloads, interrupts, clocks and its own
//! counters, as `ethtool` shows them. A driver need not support a query: EOPNOTSUPP is common, and
//! not a fault.

mod port;
#[allow(unsafe_code)]
mod sys;

pub(crate) use port::{Coalescing, Ethtool, Offload, Rings, Timestamping};
