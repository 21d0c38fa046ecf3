//! UDP: the node that checks a datagram, the datagram as the app sees it, flows that the app sends
//! on, and its calls.

pub(super) mod calls;
pub(super) mod datagram;
pub(super) mod flow;
pub(super) mod node;
pub(super) mod send_error;
