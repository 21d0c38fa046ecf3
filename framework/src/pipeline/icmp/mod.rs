//! ICMP: the node that answers and reports, errors that we send, and echo requests of the app.

pub(super) mod echo;
pub(super) mod error;
pub(super) mod node;
