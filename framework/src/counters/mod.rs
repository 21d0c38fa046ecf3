//! Counters in shared memory: one worker writes them with plain stores, another process reads them
//! live.
//!
//! At set-up a program makes one [`Block`] and passes a [`Scope`] of it to each worker, and the
//! worker's devices and nodes register [`Counter`]s, [`Gauge`]s, [`Histogram`]s and [`Drops`] under
//! their own names. From then on counting takes a load, an addition and a store: no locked
//! instruction, no system call, no interference from readers. [`Snapshot`] is the other side: it
//! reads the files of running processes and validates all of their content.
//!
//! A block belongs to the program that made it, and each of its words to the one worker that writes
//! it. This floor imports nothing else of wirepath.
//!
//! ```
//! use wirepath::counters::{Block, Unit};
//!
//! let block = Block::heap();
//! let ethernet = block.scope("worker0").scope("ethernet");
//! let rx_frames = ethernet.counter("rx_frames", Unit::Frames);
//! block.check()?; // once, at the end of set-up
//!
//! rx_frames.add(32);
//! assert_eq!(block.snapshot().count("worker0/ethernet/rx_frames"), Some(32));
//! # Ok::<(), wirepath::counters::BlockError>(())
//! ```

mod block;
mod class;
mod counter;
mod directory;
mod drops;
mod environment;
mod histogram;
mod layout;
#[allow(unsafe_code)]
mod memory;
mod printable;
mod publish;
mod records;
mod snapshot;
mod unit;

#[cfg(test)]
mod tests;

pub use block::{Block, BlockError, Capacity, Scope};
pub use class::Class;
pub use counter::{Counter, Gauge};
pub use drops::{DropReason, Drops};
pub use environment::environment;
pub(crate) use environment::is_privileged;
pub use histogram::{Distribution, Histogram};
pub use printable::{Printable, printable, printable_lines};
pub(crate) use publish::user_of_process;
pub use publish::{default_directory, unpublish};
pub use records::{RecordedProcess, RecordedProcesses, Records};
pub use snapshot::{Change, Listing, ReadError, Reading, Sample, Snapshot};
pub use unit::Unit;

// Other content of shared files: the frames of a tapped queue, and open connections.
pub(crate) use block::check_app;
pub(crate) use directory::Access;
pub(crate) use layout::store_text;
pub(crate) use memory::WordsHandle;
pub(crate) use publish::{
    Content, FOUND_BY_GUARDIAN, Publication, Shared, is_stale, is_trusted, open_foreign, remove_foreign,
    remove_left_by, shared_files, shared_files_of, since_epoch_ns,
};
pub(crate) use snapshot::read_text;
