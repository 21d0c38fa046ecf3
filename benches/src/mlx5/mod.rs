//! The mlx5 device's own rings over plain memory, without a NIC: receiving and sending.

mod rx;
mod tx;

pub use rx::{Cqes, Rings};
pub use tx::{Posting, SendRings};
