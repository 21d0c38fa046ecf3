//! Turns the crank: pins the thread, checks the machine it stands on, polls, stops.

pub mod affinity;
pub mod spsc;
pub mod stop;
pub mod topology;
