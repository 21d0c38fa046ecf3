//! Machines beside models of them that are slow and obvious.

pub(super) mod reassembly;
pub(super) mod sockets;
pub(super) mod tcp_machine;
