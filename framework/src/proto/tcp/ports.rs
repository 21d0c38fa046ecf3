//! Which local port a connection gets that does not ask for one (RFC 6056 3.3.3, algorithm 3): each peer sees ports rise from a place of
//! its own, and none can tell from its ports which ones another peer sees.

use core::net::SocketAddrV4;

use super::machine::Tcp;
use crate::proto::Flow;

impl<P> Tcp<P> {
    /// A free port for a connection to `flow.remote`. Tries each of the range once; nearly always the first is free.
    pub(super) fn choose_port(&mut self, flow: Flow) -> Option<Flow> {
        let range = self.shared.config.ports;
        let offset = self.shared.secret.port_offset(flow);
        for _ in 0..range.count() {
            let step = offset.wrapping_add(self.shared.next_ephemeral);
            self.shared.next_ephemeral = self.shared.next_ephemeral.wrapping_add(1);
            let local = SocketAddrV4::new(*flow.local.ip(), range.nth(step));
            let flow = Flow { local, ..flow };
            // A listener's port would do, but whoever looks at a capture would take one for the other.
            if self.flows.get(flow.into()).is_none() && self.listeners.find(local).is_none() {
                return Some(flow);
            }
        }
        None
    }
}
