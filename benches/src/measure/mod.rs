//! The measuring: in turns with the contenders (`sampling`), on which cores, by allocations, by
//! other programs (`outside`), short under criterion (`parts`); and the table of the figures.

#[allow(unsafe_code)]
pub mod allocations;
pub mod cores;
pub mod outside;
mod parts;
pub mod sampling;
pub mod table;

pub use parts::{criterion, packets};
