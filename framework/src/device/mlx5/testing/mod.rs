//! Rings over plain memory in place of a NIC, and a decoder of WQEs that shares no code with the
//! encoder.

pub(crate) mod plain;
pub(crate) mod plain_tx;
#[cfg(test)]
pub(super) mod tx_decoder;
