//! Two system calls that the standard library lacks: an ICMP socket, and a wait for a socket that
//! ends on time.
//!
//! Invariants:
//! 1. Descriptors are open: one is borrowed for the call, the other has just been returned by the
//!    kernel and has no other owner.
//! 2. Passed addresses are those of values on this stack that outlive the call; the kernel writes
//!    only plain data there.

use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// The form in which an ICMP socket delivers messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IcmpKind {
    /// Messages of one identifier, which the kernel chooses, without the IPv4 header
    /// (`net.ipv4.ping_group_range` permits it).
    Datagram,
    /// All messages, with the IPv4 header (CAP_NET_RAW permits it).
    Raw,
}

/// A socket for ICMP. It is not a UDP socket, but `UdpSocket` makes the same calls to bind,
/// connect, send and receive.
pub(super) fn icmp_socket(kind: IcmpKind) -> io::Result<UdpSocket> {
    let kind = match kind {
        IcmpKind::Datagram => libc::SOCK_DGRAM,
        IcmpKind::Raw => libc::SOCK_RAW,
    };
    // SAFETY: no address is passed.
    let socket = unsafe { libc::socket(libc::AF_INET, kind | libc::SOCK_CLOEXEC, libc::IPPROTO_ICMP) };
    if socket < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: (1).
    Ok(UdpSocket::from(unsafe { OwnedFd::from_raw_fd(socket) }))
}

/// Waits until there is something to receive, or for `span`, or until a signal. `SO_RCVTIMEO` would
/// round the span up to kernel ticks, up to 10 ms each.
pub(super) fn wait(socket: &UdpSocket, span: Duration) {
    let mut wanted = libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let seconds = span.as_secs().try_into().unwrap_or(libc::time_t::MAX);
    let span = libc::timespec { tv_sec: seconds, tv_nsec: span.subsec_nanos().into() };
    // The result is ignored: the following receive sees the same. SAFETY: (1), (2).
    unsafe { libc::ppoll(&raw mut wanted, 1, &raw const span, std::ptr::null()) };
}
