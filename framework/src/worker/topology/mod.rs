//! Inspects the machine under a worker for anything that costs latency.
//!
//! [`Machine`] reads facts from /sys and /proc, [`check`] compares them with the placement of the
//! workers, and the [`TopologyReport`] gives for each finding its severity, one sentence, and a
//! remedy. Nothing here changes the machine.

mod check;
mod cpu_list;
mod machine;
mod memory;
mod report;

pub use check::{Placement, check};
pub use cpu_list::{CpuList, CpuListError};
pub use machine::Machine;
pub use memory::MemoryLeft;
pub use report::{Finding, Severity, TopologyReport};
