//! Processing of received segments.

mod arrival;
mod assembly;
mod icmp;
mod prediction;
