//! wirepath: poll-mode packet processing for people who trade.
#![deny(unsafe_code)]

pub mod counters;
pub mod device;
pub mod mem;
pub mod pipeline;
pub mod proto;
pub mod time;
pub mod wire;
pub mod worker;
