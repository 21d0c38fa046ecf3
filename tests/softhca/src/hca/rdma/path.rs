//! Where an endpoint's packets go: its peer, or a datagram's address.

use super::frame::{self, Route};
use super::packet::Headers;
use super::request::DatagramAddress;
use crate::hca::control::{AddressVector, Gid};
use crate::hca::send::Transmitter;
use crate::hca::work::Work;

/// The way from an endpoint to its peer.
pub(super) struct Path<'a> {
    /// The endpoint's own number.
    pub(super) number: u32,
    /// RC, UC: the peer's number.
    pub(super) destination: u32,
    /// RC, UC: the peer's address.
    pub(super) address: AddressVector,
    /// UD: the endpoint's own key.
    pub(super) qkey: u32,
    pub(super) mac: [u8; 6],
    pub(super) gids: &'a [Gid],
}

/// The bit of a WQE's Q_Key that stands for the endpoint's own.
const OWN_QKEY: u32 = 1 << 31;

/// Hops where an address names none.
const HOP_LIMIT: u8 = 64;

impl Path<'_> {
    /// The Q_Key that a datagram carries.
    pub(super) fn qkey_for(&self, qkey: u32) -> u32 {
        if qkey & OWN_QKEY != 0 { self.qkey } else { qkey }
    }

    /// Which of the port's GIDs a packet comes from.
    pub(super) fn source_index(&self, datagram: Option<&DatagramAddress>) -> u8 {
        datagram.map_or(self.address, |datagram| datagram.address).source_index
    }

    /// The headers in front of a packet to the peer, or to a datagram's address. `None` where the
    /// port has no such GID.
    pub(super) fn route(&self, datagram: Option<&DatagramAddress>) -> Option<Route> {
        let address = datagram.map_or(self.address, |datagram| datagram.address);
        let destination = datagram.map_or(self.destination, |datagram| datagram.destination);
        Some(Route {
            source_mac: self.mac,
            destination_mac: address.mac,
            source: *self.gids.get(usize::from(address.source_index))?,
            destination: address.gid,
            traffic_class: address.traffic_class,
            flow_label: address.flow_label,
            hop_limit: if address.hop_limit == 0 { HOP_LIMIT } else { address.hop_limit },
            source_port: frame::source_port(self.number, destination),
        })
    }

    /// Puts a packet onto the wire.
    pub(super) fn send(
        &self,
        route: &Route,
        headers: &Headers,
        payload: &[u8],
        transmitter: &mut Transmitter,
        work: &mut Work<'_, '_>,
    ) {
        let mut bytes = Vec::new();
        frame::emit(route, headers, payload, &mut bytes);
        work.counters.rdma_tx_packets += 1;
        transmitter.outbox.send(&mut bytes, work);
    }
}
