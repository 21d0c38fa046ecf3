//! Losses, and the limit of data in flight: SACK scoreboard, RACK-TLP, F-RTO, the RTT estimate,
//! congestion control.

pub(super) mod congestion;
pub(super) mod rack;
pub(super) mod recovery;
pub(super) mod rtt;
pub(super) mod scoreboard;
