//! Two devices and the wire between them, in virtual time.

mod bounds;
mod congestion;
mod fairness;
mod faults;
mod late_acks;
mod malformed;
mod pair;
mod rc;
mod shared;
mod states;
mod unreliable;
mod windows;
