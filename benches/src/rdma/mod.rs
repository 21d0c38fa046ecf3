//! RDMA in plain memory: two RoCE devices on one core, with nothing between them.

mod lines;
pub mod orders;
pub mod pair;
pub mod ports;

pub use lines::lines;
