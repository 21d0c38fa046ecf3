//! Consumers of a shared address that want the datagrams of one peer alone, as a connected UDP
//! socket does. Such a consumer has its flow to itself, and takes no part in the choice of who gets
//! the other datagrams (Linux `compute_score`). Set-up work, which scans the bindings.

use core::net::SocketAddrV4;

use super::{Binding, BindingKind, SocketError, UdpSockets};
use crate::proto::demux::{Flow, Sharing, Subscriber};
use crate::proto::ids::{ConsumerId, FilterId};

impl UdpSockets {
    /// Narrows a consumer's binding of `local` to the datagrams of `flow`: the consumer gets all of
    /// them, before others that have narrowed theirs to the same flow, and the others that share
    /// the address get the rest. A binding whose port nobody shares still gets all datagrams, which
    /// its consumer has to check, because a sole consumer is found sooner. After an error the
    /// binding is as wide as after [`bind`](Self::bind).
    pub fn narrow(&mut self, consumer: ConsumerId, local: SocketAddrV4, flow: Flow) -> Result<(), SocketError> {
        self.widen(consumer, local)?;
        if let Some(place) = self.place_of(consumer, local) {
            self.set_peer(place, Some(flow));
            self.settle_peers(local.port()).inspect_err(|_| self.set_peer(place, None))?;
        }
        Ok(())
    }

    /// Ends what [`narrow`](Self::narrow) has done. The consumer then counts as the last that bound
    /// the address.
    pub fn widen(&mut self, consumer: ConsumerId, local: SocketAddrV4) -> Result<(), SocketError> {
        let Some(place) = self.place_of(consumer, local) else { return Ok(()) };
        let BindingKind::Unicast { peer: Some(flow), .. } = self.bindings[place].kind else { return Ok(()) };
        if let Some(connected) = self.connected(consumer, flow) {
            self.demux.bind(local, Subscriber { consumer, filter: FilterId::ANY })?;
            self.set_peer(place, None);
            self.remove(connected);
            self.settle_sharing(local);
        } else {
            self.set_peer(place, None);
        }
        Ok(())
    }

    /// Connects the narrowed consumers of a port that several share.
    pub(super) fn settle_peers(&mut self, port: u16) -> Result<(), SocketError> {
        let shares = |binding: &Binding| {
            let is_shared =
                matches!(binding.kind, BindingKind::Unicast { sharing, .. } if sharing != Sharing::Exclusive);
            is_shared && binding.local.port() == port
        };
        if self.bindings.iter().filter(|binding| shares(binding)).count() < 2 {
            return Ok(());
        }
        for place in 0..self.bindings.len() {
            let Binding { local, consumer, kind } = self.bindings[place];
            if let BindingKind::Unicast { peer: Some(flow), .. } = kind
                && local.port() == port
                && self.connected(consumer, flow).is_none()
            {
                self.check_room()?;
                self.release_flow(flow);
                self.claim_flow(consumer, flow)?;
                self.bindings.push(Binding { local: flow.local, consumer, kind: BindingKind::Connected(flow.remote) });
                self.demux.unbind(local, Subscriber { consumer, filter: FilterId::ANY });
                self.settle_sharing(local);
            }
        }
        Ok(())
    }

    /// Gives a flow to a consumer, where no other has it.
    pub(super) fn claim_flow(&mut self, consumer: ConsumerId, flow: Flow) -> Result<Flow, SocketError> {
        let flow = self.ports.connect(flow, consumer)?;
        if let Err(error) = self.demux.connect(flow, consumer) {
            self.ports.disconnect(flow);
            return Err(error.into());
        }
        Ok(flow)
    }

    /// A consumer no longer wants a flow: another one that does gets it.
    pub(super) fn hand_flow_on(&mut self, consumer: ConsumerId, flow: Flow) {
        if self.ports.connection(flow) != Some(consumer) {
            return;
        }
        self.release_flow(flow);
        let wants =
            |binding: &&Binding| (binding.local, binding.kind) == (flow.local, BindingKind::Connected(flow.remote));
        if let Some(other) = self.bindings.iter().rev().find(wants).map(|binding| binding.consumer) {
            let claimed = self.claim_flow(other, flow);
            assert!(claimed.is_ok(), "there is room for a flow that was there");
        }
    }

    /// Takes a flow from its consumer, if it has one.
    fn release_flow(&mut self, flow: Flow) {
        self.demux.disconnect(flow);
        self.ports.disconnect(flow);
    }

    /// The place of a consumer's binding of a unicast address.
    pub(super) fn place_of(&self, consumer: ConsumerId, local: SocketAddrV4) -> Option<usize> {
        self.bindings.iter().position(|binding| {
            let is_unicast = matches!(binding.kind, BindingKind::Unicast { .. });
            is_unicast && (binding.local, binding.consumer) == (local, consumer)
        })
    }

    /// The place of a consumer's connected flow.
    pub(super) fn connected(&self, consumer: ConsumerId, flow: Flow) -> Option<usize> {
        let wanted = Binding { local: flow.local, consumer, kind: BindingKind::Connected(flow.remote) };
        self.bindings.iter().position(|binding| *binding == wanted)
    }

    fn set_peer(&mut self, place: usize, to: Option<Flow>) {
        if let BindingKind::Unicast { peer, .. } = &mut self.bindings[place].kind {
            *peer = to;
        }
    }
}
