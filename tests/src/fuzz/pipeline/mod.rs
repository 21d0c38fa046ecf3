//! Whole workers: frames of any bytes, and a balance at the end.

pub(super) mod host;
pub(super) mod trunk;
pub(super) mod udp_stack;
