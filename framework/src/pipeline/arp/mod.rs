//! ARP: the node that hears it, and the resolver that asks and keeps frames until the answer comes.

pub(super) mod node;
pub(super) mod resolver;
