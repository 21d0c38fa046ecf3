//! What only RDMA has: services, addresses, attributes of queue pairs, shared receive queues.

use super::AccessFlags;

/// A transport service of InfiniBand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
}

/// An address of a port: an IPv6 address, or an IPv4 address as `::ffff:a.b.c.d`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// In front of an IPv4 address.
    const IPV4: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];

    /// `::ffff:a.b.c.d`.
    pub fn from_ipv4(address: [u8; 4]) -> Self {
        let mut gid = [0; 16];
        gid[..12].copy_from_slice(&Self::IPV4);
        gid[12..].copy_from_slice(&address);
        Self(gid)
    }

    /// The link-local address that a MAC address leads to.
    pub fn link_local([a, b, c, d, e, f]: [u8; 6]) -> Self {
        Self([0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f])
    }

    /// The IPv4 address, if it is one.
    pub fn ipv4(self) -> Option<[u8; 4]> {
        let address = self.0.strip_prefix(&Self::IPV4)?;
        address.try_into().ok()
    }

    /// The MAC address of which a link-local address was made.
    pub fn link_local_mac(self) -> Option<[u8; 6]> {
        match self.0 {
            [0xfe, 0x80, 0, 0, 0, 0, 0, 0, a, b, c, 0xff, 0xfe, d, e, f] => Some([a ^ 2, b, c, d, e, f]),
            _ => None,
        }
    }

    /// The MAC address of a multicast group; RFC 1112 6.4, RFC 2464 7.
    pub fn multicast_mac(self) -> Option<[u8; 6]> {
        match (self.ipv4(), self.0) {
            (Some([224..=239, b, c, d]), _) => Some([0x01, 0, 0x5e, b & 0x7f, c, d]),
            (None, [0xff, .., a, b, c, d]) => Some([0x33, 0x33, a, b, c, d]),
            _ => None,
        }
    }
}

/// Where a QP or an address handle sends to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AddressVector {
    /// The peer.
    pub gid: Gid,
    /// The MAC address that leads there.
    pub mac: [u8; 6],
    /// Which of the port's own GIDs is the source.
    pub source_index: u8,
    /// Traffic class, or type of service.
    pub traffic_class: u8,
    /// Flow label of IPv6.
    pub flow_label: u32,
    /// Hop limit, or time to live.
    pub hop_limit: u8,
    /// Service level.
    pub service_level: u8,
}

/// The values of `struct ibv_qp_attr` that only RDMA has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QpAttributes {
    /// Of the partition, 0.
    pub pkey_index: u16,
    /// Rights of the peer.
    pub access: AccessFlags,
    /// UD: a datagram must carry it.
    pub qkey: u32,
    /// RC, UC: the peer.
    pub address: AddressVector,
    /// `enum ibv_mtu`: 1 for 256 bytes to 5 for 4096.
    pub path_mtu: u8,
    /// RC, UC: the peer's number.
    pub destination_qp: u32,
    /// The first number that the peer sends with.
    pub receive_psn: u32,
    /// The first number to send with.
    pub send_psn: u32,
    /// READs and atomics that may be outstanding here.
    pub read_max: u8,
    /// READs and atomics of the peer that are remembered.
    pub peer_read_max: u8,
    /// RNR timer code for the peer.
    pub rnr_timer: u8,
    /// Code of the local ACK timeout.
    pub timeout: u8,
    /// Retries after timeouts and sequence errors.
    pub retry_count: u8,
    /// Retries where the peer is not ready; 7 is for ever.
    pub rnr_retry: u8,
}

/// A shared receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SrqRequest {
    /// The protection domain.
    pub pd: u32,
    /// Where its ring lies.
    pub ring: u64,
    /// Where its doorbell word lies.
    pub doorbell: u64,
    /// Requests that the client asked for.
    pub wr_max: u32,
    /// Segments of a request.
    pub sge_max: u32,
    /// An event is raised once fewer requests are left; 0 for none.
    pub limit: u32,
    /// The value in its asynchronous events.
    pub user_handle: u64,
}

/// An SRQ that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SrqCreated {
    /// For later commands.
    pub handle: u32,
    /// Its number, 24 bits.
    pub number: u32,
}
