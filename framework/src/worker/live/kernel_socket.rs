//! Kernel memberships by interface number (the standard library identifies interfaces by address
//! only, and supports no sources), copies of the kernel's ICMP errors, and a sleep until frames
//! wait.

use core::net::Ipv4Addr;
use std::io;
use std::net::UdpSocket;
use std::os::fd::RawFd;
use std::time::Duration;

use crate::sys::socket::{set, set_bytes, socket, wait_readable};

/// Bytes of a `struct sockaddr_storage`, and its offset in the requests: after the interface index,
/// aligned.
const ADDRESS_LEN: usize = size_of::<libc::sockaddr_storage>();
const FIRST_ADDRESS: usize = 8;
/// linux/in.h
const MCAST_JOIN_GROUP: libc::c_int = 42;
const MCAST_LEAVE_GROUP: libc::c_int = 45;
const MCAST_JOIN_SOURCE_GROUP: libc::c_int = 46;
const MCAST_LEAVE_SOURCE_GROUP: libc::c_int = 47;
/// linux/icmp.h
const ICMP_FILTER: libc::c_int = 1;

/// Joins `socket` to `group` on interface number `interface`, for one source or for all, until the
/// socket is closed.
pub(super) fn join(socket: &UdpSocket, interface: u32, group: Ipv4Addr, source: Option<Ipv4Addr>) -> io::Result<()> {
    set_membership(socket, [MCAST_JOIN_GROUP, MCAST_JOIN_SOURCE_GROUP], interface, group, source)
}

/// Leaves it. To close the socket is not enough: a child that another thread has just forked has it
/// too, until it executes its program.
pub(super) fn leave(socket: &UdpSocket, interface: u32, group: Ipv4Addr, source: Option<Ipv4Addr>) -> io::Result<()> {
    set_membership(socket, [MCAST_LEAVE_GROUP, MCAST_LEAVE_SOURCE_GROUP], interface, group, source)
}

/// Sets the first of two options for any source, the second for one.
fn set_membership(
    socket: &UdpSocket,
    [of_any, of_one]: [libc::c_int; 2],
    interface: u32,
    group: Ipv4Addr,
    source: Option<Ipv4Addr>,
) -> io::Result<()> {
    // `struct group_source_req`, which starts like `struct group_req`.
    let mut request = [0; FIRST_ADDRESS + 2 * ADDRESS_LEN];
    request[..4].copy_from_slice(&interface.to_ne_bytes());
    put_address(&mut request[FIRST_ADDRESS..], group);
    match source {
        None => set_bytes(socket, libc::IPPROTO_IP, of_any, &request[..FIRST_ADDRESS + ADDRESS_LEN]),
        Some(source) => {
            put_address(&mut request[FIRST_ADDRESS + ADDRESS_LEN..], source);
            set_bytes(socket, libc::IPPROTO_IP, of_one, &request)
        }
    }
}

/// A socket that gets a copy of each ICMP error that the kernel receives on an interface (raw(7)).
pub(crate) fn icmp_errors(interface: &str) -> io::Result<UdpSocket> {
    let socket = UdpSocket::from(socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_ICMP)?);
    // A set bit filters a type out: all but unreachable, time exceeded and parameter problem.
    let unwanted: u32 = !(1 << 3 | 1 << 11 | 1 << 12);
    set(&socket, libc::SOL_RAW, ICMP_FILTER, &unwanted)?;
    set_bytes(&socket, libc::SOL_SOCKET, libc::SO_BINDTODEVICE, interface.as_bytes())?;
    Ok(socket)
}

/// Sleeps until one of `fds` is readable, `timeout` is over, or a signal came. A loop calls it
/// after a turn without frames, with [`Worker::wait_fd`](crate::worker::Worker::wait_fd),
/// [`Worker::update_fd`](crate::worker::Worker::update_fd), and the time until
/// [`Worker::next_deadline`](crate::worker::Worker::next_deadline). One system call.
pub fn sleep_on<const N: usize>(fds: [Option<RawFd>; N], timeout: Option<Duration>) {
    // The result does not matter, because the caller polls its queue in any case.
    let _: io::Result<bool> = wait_readable(fds, timeout);
}

/// Writes a `struct sockaddr_in` without a port.
fn put_address(bytes: &mut [u8], address: Ipv4Addr) {
    bytes[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
    bytes[4..8].copy_from_slice(&address.octets());
}
