//! Memberships of the kernel's, by the number of an interface: the standard library knows interfaces by their address only, and
//! no sources.
//!
//! `unsafe`, because setsockopt(2) takes an address.
//!
//! Invariants:
//! 1. The address comes from a slice that is borrowed until the call has returned, and the length beside it is the slice's.

use core::net::Ipv4Addr;
use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

/// Bytes of a `struct sockaddr_storage`, and where it begins in the requests: behind the interface's number, aligned.
const ADDRESS_LEN: usize = size_of::<libc::sockaddr_storage>();
const FIRST_ADDRESS: usize = 8;
/// linux/in.h
const MCAST_JOIN_GROUP: libc::c_int = 42;
const MCAST_JOIN_SOURCE_GROUP: libc::c_int = 46;

/// Makes `socket` a member of `group` on interface number `interface`, for one source or for all. It is one until it is closed.
pub(super) fn join(socket: &UdpSocket, interface: u32, group: Ipv4Addr, source: Option<Ipv4Addr>) -> io::Result<()> {
    // `struct group_source_req`, of which `struct group_req` is the front.
    let mut request = [0; FIRST_ADDRESS + 2 * ADDRESS_LEN];
    request[..4].copy_from_slice(&interface.to_ne_bytes());
    put_address(&mut request[FIRST_ADDRESS..], group);
    match source {
        None => set(socket, MCAST_JOIN_GROUP, &request[..FIRST_ADDRESS + ADDRESS_LEN]),
        Some(source) => {
            put_address(&mut request[FIRST_ADDRESS + ADDRESS_LEN..], source);
            set(socket, MCAST_JOIN_SOURCE_GROUP, &request)
        }
    }
}

/// Writes a `struct sockaddr_in` without a port.
fn put_address(bytes: &mut [u8], address: Ipv4Addr) {
    bytes[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
    bytes[4..8].copy_from_slice(&address.octets());
}

fn set(socket: &UdpSocket, option: libc::c_int, value: &[u8]) -> io::Result<()> {
    let len = value.len() as libc::socklen_t;
    // SAFETY: the value is borrowed for the call, with its own length (1).
    let status = unsafe { libc::setsockopt(socket.as_raw_fd(), libc::IPPROTO_IP, option, value.as_ptr().cast(), len) };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
