//! Programs that nobody here wrote, over the software ConnectX: unmodified rdma-core and what was
//! built upon it.
//!
//! Each test runs in a network namespace of its own. A program that is not installed is said aloud.
#![allow(clippy::unwrap_used)] // a panic here is the report

mod cables;
mod ibverbs_utils;
mod perftest;
mod stage;
mod testpmd;
