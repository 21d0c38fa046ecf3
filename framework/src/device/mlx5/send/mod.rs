//! The send half: the form of a WQE, the WQE written into the ring, the doorbell, and which mbuf is
//! still read by the NIC.

#[allow(unsafe_code)]
pub(super) mod doorbell;
pub(super) mod shape;
pub(super) mod sq;
#[allow(unsafe_code)]
pub(super) mod sq_memory;
pub(super) mod tx;
#[cfg(test)]
mod tx_tests;
pub(super) mod wqe;
