//! Turns the crank: pins the thread, checks the machine it stands on, polls, stops.

pub mod affinity;
mod poll;
pub mod spsc;
pub mod stop;
pub mod topology;

pub use poll::{Ended, Parts, Worker};
pub use stop::StopFlag;
