//! What a segment does when it arrives.

mod arrival;
mod assembly;
mod icmp;
mod prediction;
