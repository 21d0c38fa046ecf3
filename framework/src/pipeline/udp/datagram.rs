//! A datagram as an app gets it.

use core::net::SocketAddrV4;

use crate::mem::{Held, MbufRef};
use crate::proto::{ConsumerId, InterfaceId};
use crate::time::UnixTime;
use crate::wire::udp;

/// A received datagram, as `recvmsg` would return it: the payload, both ends, and the ancillary
/// data.
#[derive(Debug)]
pub struct Datagram<'a> {
    /// The app's consumer that it is for. A datagram that several joined is delivered once to each.
    pub consumer: ConsumerId,
    /// The sender.
    pub source: SocketAddrV4,
    /// The destination: the group, for multicast.
    pub destination: SocketAddrV4,
    /// Where it arrived.
    pub interface: InterfaceId,
    /// When it arrived, by the NIC's clock or the capture's.
    pub timestamp: Option<UnixTime>,
    /// The packet's remaining TTL.
    pub ttl: u8,
    /// Type of service: DSCP in the upper six bits, ECN in the lower two.
    pub tos: u8,
    /// Tag control information of the innermost VLAN tag: priority in the upper three bits.
    pub vlan: Option<u16>,
    /// The bytes, in one piece even where they came in fragments.
    pub payload: &'a [u8],
    pub(in crate::pipeline) mbuf: MbufRef<'a>,
}

impl Datagram<'_> {
    /// Keeps the payload without copying it, for longer than the call. The buffer stays out of the
    /// pool until the handle is dropped, so bound how many are kept.
    #[inline]
    pub fn hold(&self) -> Held {
        self.mbuf.hold()
    }

    /// The IPv4 header, options included, and the UDP header of the datagram, as they came: for
    /// protocols that protect them by a checksum of their own, such as RoCE. Of a datagram in
    /// fragments they are those of the first. `None` where the device delivered them as part of a
    /// larger buffer.
    #[inline]
    pub fn headers(&self) -> Option<&[u8]> {
        self.mbuf.behind(self.mbuf.l3_len() + udp::HEADER_LEN)
    }
}
