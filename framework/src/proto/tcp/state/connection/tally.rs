//! Counts, as TCP_INFO has them.
//!
//! [`ConnectionTally`] ends the fourth cache line, except for the acknowledged bytes, which begin
//! the fifth; [`RareTally`] is after all fields that every segment needs. Written by `input`,
//! `loss`, `output` and `timers`, each of which counts its own events.

/// The fields that segments update.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct ConnectionTally {
    pub(crate) segments_out: u64,
    pub(crate) segments_in: u64,
    pub(crate) bytes_received: u64,
    /// Includes the number of our FIN. Sent bytes are not counted but derived: see
    /// [`bytes_sent`](super::Connection::bytes_sent).
    pub(crate) bytes_acked: u64,
}

/// Rarely updated fields.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct RareTally {
    pub(crate) resent_segments: u32,
    pub(crate) dsacks: u32,
    pub(crate) timeouts: u16,
    /// The second of the last challenge ACKs, and their number.
    pub(crate) challenges: u16,
}
