//! The ephemeral port of a connection (RFC 6056 3.3.3, algorithm 3): each peer sees ports rise from
//! a different offset, and no peer can infer the ports that another one sees.

use core::net::SocketAddrV4;

use crate::proto::Flow;
use crate::proto::tcp::calls::Claim;
use crate::proto::tcp::machine::Tcp;
use crate::proto::tcp::options::ConnectionOptions;
use crate::proto::tcp::payload::Payload;
use crate::time::Instant;

impl<P: Payload> Tcp<P> {
    /// A port for a connection to `flow.remote`: a free one, otherwise one whose last connection is
    /// over. Tries each port of the range once; nearly always the first is free.
    pub(in crate::proto::tcp) fn choose_port(
        &mut self,
        flow: Flow,
        options: &ConnectionOptions,
        now: Instant,
    ) -> Option<Claim> {
        let range = self.shared.config.ports;
        let offset = self.shared.secret.port_offset(flow);
        let mut over = None;
        for _ in 0..range.count() {
            let step = offset.wrapping_add(self.shared.next_ephemeral);
            self.shared.next_ephemeral = self.shared.next_ephemeral.wrapping_add(1);
            let local = SocketAddrV4::new(*flow.local.ip(), range.nth(step));
            // A listener's port would work, but a reader of a capture would confuse the two.
            if self.listeners.find(local).is_some() {
                continue;
            }
            match self.claim_port(Flow { local, ..flow }, options, now) {
                Ok(claim) if claim.last.is_none() => return Some(claim),
                claim => over = over.or(claim.ok()),
            }
        }
        over
    }
}
