//! ICMP: the node that answers echo requests and reports errors, errors that we send, and echo
//! requests of the app.

pub(super) mod echo;
pub(super) mod error;
pub(super) mod error_rate;
pub(super) mod node;
