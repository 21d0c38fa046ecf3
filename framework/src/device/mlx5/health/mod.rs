//! The state of the port and of the queues while they run: asynchronous events, port counters, and
//! recovery from an error.

pub(super) mod port_counter;
pub(super) mod port_monitor;
pub(super) mod recover;
pub(super) mod watch;
