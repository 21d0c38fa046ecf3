//! What the tests across packages share: the fuzz targets with their corpus, a rig around a whole worker, inputs
//! made from a seed, network namespaces, and a live host in one.

pub mod corpus;
pub mod frames;
pub mod fuzz;
pub mod live;
pub mod mutate;
#[allow(unsafe_code)]
pub mod netns;
pub mod rig;
