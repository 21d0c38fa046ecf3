//! Programs that are not ours, over the software ConnectX: unmodified rdma-core and programs that
//! use it.
//!
//! Each test runs in a new network namespace. A notice is printed for a program that is not
//! installed.
#![allow(clippy::unwrap_used)] // a panic here is the report

mod cables;
mod ibverbs_utils;
mod perftest;
mod pyverbs;
mod rdma;
mod stage;
mod testpmd;
