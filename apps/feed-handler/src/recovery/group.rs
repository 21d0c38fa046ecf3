//! Groups that recovery joins with kernel sockets.

use std::io;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};

use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use super::plan::RecoveryGroup;

/// Bytes that wait in the kernel while the worker is busy: 50 ms of a loop of 4,000 packets a
/// second. The kernel allows less where `net.core.rmem_max` is lower; what was dropped comes with
/// the next loop, or is requested again.
const SOCKET_LEN: usize = 1 << 19;

impl RecoveryGroup {
    /// A socket that is a member. Other processes of this host may be too, which the standard
    /// library does not allow (`SO_REUSEADDR`).
    pub(super) fn join(&self, interface: Ipv4Addr) -> io::Result<UdpSocket> {
        let flags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);
        let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None)?;
        sockopt::set_socket_reuseaddr(&socket, true)?;
        sockopt::set_socket_recv_buffer_size(&socket, SOCKET_LEN)?;
        rustix::net::bind(&socket, &self.address)?;
        let group = self.address.ip();
        if self.senders.is_empty() {
            sockopt::set_ip_add_membership(&socket, group, &interface)?;
        }
        for sender in &self.senders {
            sockopt::set_ip_add_source_membership(&socket, group, &interface, sender)?;
        }
        Ok(socket.into())
    }

    /// Whether a packet of this sender is taken. Another member of this host may want others, and
    /// their packets arrive here too.
    pub(super) fn takes(&self, sender: IpAddr) -> bool {
        self.senders.is_empty() || self.senders.iter().any(|&own| sender == IpAddr::V4(own))
    }
}
