//! The measuring: in turns with the contenders (`sampling`), on which cores, by other programs
//! (`outside`), short under criterion (`parts`); and the table of the figures.

pub mod cores;
pub mod outside;
mod parts;
pub mod sampling;
pub mod table;

pub use parts::{criterion, packets};
