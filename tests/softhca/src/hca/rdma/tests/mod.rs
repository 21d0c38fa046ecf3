//! Two queue pairs on a cable: what each operation does, what a mistake leads to, and that loss
//! changes nothing but the time.
#![allow(clippy::unwrap_used)] // a panic here is the report

mod errors;
mod loss;
mod operations;
mod rig;
