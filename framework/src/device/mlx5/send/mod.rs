//! The send half: the layout of a WQE, the WQE in the ring, the doorbell, and the mbufs that the
//! NIC still reads.

#[allow(unsafe_code)]
pub(super) mod doorbell;
pub(super) mod shape;
pub(super) mod sq;
#[allow(unsafe_code)]
pub(super) mod sq_memory;
#[cfg(test)]
mod tests;
pub(super) mod tx;
pub(super) mod wqe;
