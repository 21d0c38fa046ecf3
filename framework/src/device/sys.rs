//! System calls of sockets that several devices make: creating a socket, setting its options,
//! adding an entry to the NIC's filter.
//!
//! `unsafe`, because libc's functions take addresses.
//!
//! Invariants:
//! 1. Every address comes from a reference that is borrowed until the call has returned, and the
//!    length passed with it is the length of the same object.
//! 2. A descriptor that the kernel returns is new and has no other owner.

use core::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use zerocopy::{Immutable, IntoBytes};

/// `struct packet_mreq`: an entry for the NIC's filter, requested by a packet socket.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
pub(in crate::device) struct PacketRequest {
    ifindex: u32,
    kind: u16,
    address_len: u16,
    address: [u8; 8],
}

impl PacketRequest {
    /// A request for an Ethernet address.
    pub(in crate::device) fn new(ifindex: u32, kind: u16, mac: [u8; 6]) -> Self {
        let mut address = [0; 8];
        address[..6].copy_from_slice(&mac);
        Self { ifindex, kind, address_len: 6, address }
    }
}

/// A new socket that child processes do not inherit.
pub(in crate::device) fn socket(domain: c_int, kind: c_int, protocol: c_int) -> io::Result<OwnedFd> {
    // SAFETY: no address is passed.
    let fd = check(unsafe { libc::socket(domain, kind | libc::SOCK_CLOEXEC, protocol) })?;
    // SAFETY: new (2).
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sets an option of a packet socket.
pub(in crate::device) fn set_packet_option(socket: &OwnedFd, option: c_int, value: &PacketRequest) -> io::Result<()> {
    set(socket, libc::SOL_PACKET, option, value)
}

/// Sets an option to a value of plain data.
pub(in crate::device) fn set<T: IntoBytes + Immutable>(
    socket: &OwnedFd,
    level: c_int,
    option: c_int,
    value: &T,
) -> io::Result<()> {
    let len = size_of::<T>() as libc::socklen_t;
    // SAFETY: the value is borrowed for the call, with its own length (1).
    check(unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const *value).cast(), len) }).map(drop)
}

/// The return value of a call, or the error in errno.
pub(in crate::device) fn check(value: c_int) -> io::Result<c_int> {
    if value < 0 { Err(io::Error::last_os_error()) } else { Ok(value) }
}
