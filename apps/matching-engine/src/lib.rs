//! A matching engine as a pure machine: orders in, events out, the same bytes for the same inputs.
//!
//! Nothing here reads a clock, opens a file or knows the framework: time is an argument in
//! nanoseconds.
#![forbid(unsafe_code)]
