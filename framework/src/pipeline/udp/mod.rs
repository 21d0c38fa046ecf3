//! UDP: the node that checks a datagram, what the app sees of it, and flows that the app sends on.

pub(super) mod datagram;
pub(super) mod flow;
pub(super) mod node;
