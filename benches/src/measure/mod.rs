//! How something is measured: in turns with what it is compared with (`sampling`), on which cores,
//! by its allocations, by what other programs see of it (`outside`), short under criterion
//! (`parts`); and the table that the figures end in.

#[allow(unsafe_code)]
pub mod allocations;
pub mod cores;
pub mod outside;
mod parts;
pub mod sampling;
pub mod table;

pub use parts::{criterion, packets};
