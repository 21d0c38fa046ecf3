//! Kernel memberships by interface number (the standard library identifies interfaces by address
//! only, and supports no sources), copies of the kernel's ICMP errors, and a sleep until frames
//! wait.
//!
//! `unsafe`, because setsockopt(2) and ppoll(2) take addresses.
//!
//! Invariants:
//! 1. The address comes from a slice or a value that is borrowed until the call has returned, and
//!    the length passed with it is the slice's.
//! 2. A descriptor that the kernel returns is new and has no other owner.

use core::net::Ipv4Addr;
use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::ptr;
use std::time::Duration;

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
        None => set(socket, libc::IPPROTO_IP, of_any, &request[..FIRST_ADDRESS + ADDRESS_LEN]),
        Some(source) => {
            put_address(&mut request[FIRST_ADDRESS + ADDRESS_LEN..], source);
            set(socket, libc::IPPROTO_IP, of_one, &request)
        }
    }
}

/// A socket that gets a copy of each ICMP error that the kernel receives on an interface (raw(7)).
pub(in crate::worker) fn icmp_errors(interface: &str) -> io::Result<UdpSocket> {
    // SAFETY: no address is passed.
    let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::IPPROTO_ICMP) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and has no other owner (2).
    let socket = unsafe { UdpSocket::from_raw_fd(fd) };
    // A set bit filters a type out: all but unreachable, time exceeded and parameter problem.
    let unwanted: u32 = !(1 << 3 | 1 << 11 | 1 << 12);
    set(&socket, libc::SOL_RAW, ICMP_FILTER, &unwanted.to_ne_bytes())?;
    set(&socket, libc::SOL_SOCKET, libc::SO_BINDTODEVICE, interface.as_bytes())?;
    Ok(socket)
}

/// Sleeps until `fd` is readable, `timeout` is over, or a signal came. A loop calls it after a turn
/// without frames, with [`Worker::wait_fd`](crate::worker::Worker::wait_fd) and the time until
/// [`Worker::next_deadline`](crate::worker::Worker::next_deadline). One system call.
pub fn sleep_on(fd: Option<RawFd>, timeout: Option<Duration>) {
    let mut fds = fd.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
    let fds = fds.as_mut_slice();
    let timeout = timeout.map(|timeout| libc::timespec {
        tv_sec: timeout.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    });
    let until = timeout.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: both are borrowed for the call, the descriptors with their own number (1). A
    // descriptor that is closed is reported as such, and nothing is reported of the result: the
    // caller looks.
    unsafe { libc::ppoll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, until, ptr::null()) };
}

/// Writes a `struct sockaddr_in` without a port.
fn put_address(bytes: &mut [u8], address: Ipv4Addr) {
    bytes[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
    bytes[4..8].copy_from_slice(&address.octets());
}

fn set(socket: &UdpSocket, level: libc::c_int, option: libc::c_int, value: &[u8]) -> io::Result<()> {
    let len = value.len() as libc::socklen_t;
    // SAFETY: the value is borrowed for the call, with its own length (1).
    let status = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, value.as_ptr().cast(), len) };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
