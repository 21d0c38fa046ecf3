//! A call, from the client's bytes to the function that answers it: as a `write` (`frame`), or as
//! an `ioctl` with attributes (`attributes`). Each has a table of its calls (`command`, `method`).
//! Requests and the room for responses are in the client's memory (`memory`).

mod attributes;
pub(super) mod command;
mod frame;
pub(super) mod memory;
pub(super) mod method;

pub(super) use attributes::{Bundle, DRIVER_IN, DRIVER_OUT, Outputs, Request};
pub(super) use command::{Call, Entry, Reply};
pub(super) use frame::Frame;
