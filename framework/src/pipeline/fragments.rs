//! The fragments of a datagram that a sender cuts: planned before the first is sent, so that all
//! leave or none.

use core::net::Ipv4Addr;

use super::arp::resolver::Resolver;
use super::node::Cx;
use super::udp::send_error::UdpSendError;
use crate::proto::{FragmentPlan, FragmentRequest};
use crate::wire::ipv4;

/// The fragments of an IPv4 payload for frames with a link header of `link_len` bytes, or the one
/// packet where the payload fits `mtu`; an error where there are too few buffers for all of them.
pub(super) fn plan(
    payload_len: usize,
    link_len: usize,
    mtu: usize,
    dont_fragment: bool,
    cx: &Cx<'_>,
) -> Result<FragmentPlan, UdpSendError> {
    // A frame is no longer than a buffer holds, because each fragment is copied into one.
    let buffer_mtu = cx.pool.layout().data_room() - link_len;
    let plan = FragmentPlan::new(FragmentRequest {
        payload_len,
        header_len: ipv4::HEADER_LEN,
        later_header_len: ipv4::HEADER_LEN,
        mtu: mtu.min(buffer_mtu),
        dont_fragment,
    })?;
    if cx.pool.available() < plan.len() { Err(UdpSendError::PoolEmpty) } else { Ok(plan) }
}

/// Whether the ring has room for all of them.
pub(super) fn check_ring(plan: &FragmentPlan, cx: &mut Cx<'_>) -> Result<(), UdpSendError> {
    if cx.tx.room() < plan.len() { Err(UdpSendError::RingFull) } else { Ok(()) }
}

/// Whether all of them may wait for their neighbor: of more, the last would displace the first.
pub(super) fn check_waiting(plan: &FragmentPlan, next_hop: Ipv4Addr, cx: &Cx<'_>) -> Result<(), UdpSendError> {
    let may_wait = cx.egress.resolver.as_ref().map_or(0, Resolver::pending_per_neighbor);
    if may_wait < plan.len() { Err(UdpSendError::NeighborMissing(next_hop)) } else { Ok(()) }
}
