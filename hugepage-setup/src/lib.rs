//! Hugepages for programs that allocate all their memory at start: discover, reserve, map, bind,
//! lock.
//!
//! ```no_run
//! use hugepages::{MapRequest, Mapping};
//!
//! let mapping = Mapping::map(&MapRequest::new(64 << 20))?;
//! if let Some(fallback) = mapping.fallback() {
//!     eprintln!("{fallback}"); // says what is missing, what it costs, and the command that mends it
//! }
//! # Ok::<(), hugepages::MapError>(())
//! ```
//!
//! Everything here happens before the first packet, so it may read files and allocate. Linux only.
//! Miri cannot run
//! [`Mapping`]: it has neither hugepages nor `mbind`.
#![deny(unsafe_code)]

mod cgroup;
#[allow(unsafe_code)]
mod large_pages;
#[allow(unsafe_code)]
mod mapping;
mod numa;
mod persist;
mod plan;
mod request;
mod reserve;
mod size;
mod sysfs;
#[cfg(test)]
mod testing;

pub use cgroup::CgroupLimit;
pub use large_pages::advise_large_pages;
pub use mapping::{Mapping, lock_all};
pub use numa::{Node, node_of_cpu, node_of_interface};
pub use persist::Persistence;
pub use plan::{Bound, Step, Target, decide, memory_kept};
pub use request::{
    Fallback, LockAllError, LockWarning, MapError, MapRequest, PageChoice, Shortage, ShortageCause, Transparent,
};
pub use reserve::{Advice, Outcome, ReserveError, boot_parameters, reserve};
pub use size::{SizeError, format_size, parse_size};
pub use sysfs::{Limit, Machine, Memory, Mount, Pool, Roots, SysfsError, TransparentMode};

/// 2 MiB in bytes: the hugepage that every x86-64 has.
pub const TWO_MIB: u64 = 2 << 20;
/// 1 GiB in bytes: the hugepage size of servers; best reserved at boot, before memory is
/// fragmented.
pub const ONE_GIB: u64 = 1 << 30;
