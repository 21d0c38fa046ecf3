//! What the machine under a worker looks like, and what about it will cost latency.
//!
//! [`Machine`] reads facts from /sys and /proc, [`check`] compares them with where workers shall
//! run, and the [`Report`] says for each finding how bad it is, in one sentence, and what mends it.
//! Nothing here changes the machine.

mod check;
mod cpu_list;
mod machine;
mod memory;
mod report;

pub use check::{Placement, check};
pub use cpu_list::{CpuList, CpuListError};
pub use machine::Machine;
pub use memory::MemoryLeft;
pub use report::{Finding, Report, Severity};
