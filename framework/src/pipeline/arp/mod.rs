//! ARP: the node that receives it, and the resolver that sends requests and keeps frames until the
//! reply arrives.

mod calls;
pub(super) mod node;
pub(super) mod resolver;
