//! The end of a branch that this pipeline does not handle: counts packets and frees them.

use super::node::{Cx, Node, discard, keeps_nothing};
use super::outline::NodeTree;
use crate::counters::{Drops, Scope};
use crate::mem::Mbuf;

crate::drop_reasons! {
    /// Why a packet ends at [`Unhandled`].
    pub(crate) enum UnhandledDrop {
        /// No node of this pipeline takes the protocol.
        NotHandled => "not_handled",
    }
}

/// A node that takes nothing: for ARP, ICMP, IGMP or TCP in a pipeline without them.
pub struct Unhandled {
    name: &'static str,
    drops: Drops<UnhandledDrop>,
}

impl Unhandled {
    /// The end of the branch `name`, which is also its scope of counters below `scope`.
    pub fn new(name: &'static str, scope: &Scope) -> Self {
        Self { name, drops: scope.scope(name).drops() }
    }
}

impl<A> Node<A> for Unhandled {
    fn push(&mut self, mbuf: Mbuf, _app: &mut A, _cx: &mut Cx<'_>) {
        discard(mbuf, &mut self.drops, UnhandledDrop::NotHandled);
    }

    keeps_nothing!(A);

    fn outline(&self, outline: &mut NodeTree) {
        outline.node(self.name, "not handled: counted and dropped", |_| ());
    }
}
