//! What the tests across packages share: the fuzz targets with their corpus, a rig around a whole worker, and inputs
//! made from a seed.

pub mod corpus;
pub mod frames;
pub mod fuzz;
pub mod mutate;
pub mod rig;
