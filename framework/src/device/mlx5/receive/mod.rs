//! The receive half: a cyclic ring with a pool buffer for each frame, or a striding ring that the
//! NIC packs frames into (MPRQ); and the parsing of CQEs into metadata.

pub(super) mod cyclic;
#[allow(unsafe_code)]
pub(super) mod mprq_buffer;
pub(super) mod packet_types;
pub(super) mod rq;
pub(super) mod rx;
pub(super) mod striding;
#[cfg(test)]
mod tests;
