//! The state of a connection: its variables (RFC 9293 3.3.1), and the chunks of its queues in the
//! store that all connections share.

pub(super) mod connection;
pub(super) mod fifo;
pub(super) mod list;
pub(super) mod queue;
pub(super) mod room;
pub(super) mod stored;
