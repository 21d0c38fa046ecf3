//! Processing of received segments (RFC 9293 3.10.7): checks, acknowledgment, reassembly of their
//! data, and ICMP errors about a connection.

pub(super) mod acknowledgment;
pub(super) mod arrival;
pub(super) mod assembly;
pub(super) mod icmp;
pub(super) mod prefetch;
