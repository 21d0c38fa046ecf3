//! Sending: new data, retransmissions, control segments and resets; segments that the caller or an
//! FPGA frames itself.

pub(super) mod challenges;
pub(super) mod delegated;
pub(super) mod interface;
pub(super) mod prepared;
pub(super) mod resets;
pub(super) mod run;
pub(super) mod transmit;
