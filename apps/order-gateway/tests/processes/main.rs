//! Gateways in processes of their own, which are killed while they trade with an exchange over
//! loopback.
#![allow(unreachable_pub, reason = "each module is used by the others")]
#![allow(clippy::unwrap_used, reason = "a panic is the report")]

mod boe;
mod boe_truth;
mod exchange;
mod fix;
mod fix_truth;
mod gateway;
mod ilink3;
mod ilink3_truth;
mod journal;
mod kill;
#[path = "../common/limits.rs"]
mod limits;
mod mirror;
mod ouch42;
mod ouch42_truth;
mod takeover;
mod trader;
mod truth;
