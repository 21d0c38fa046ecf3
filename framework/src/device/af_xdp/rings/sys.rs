//! The system calls of sockets of AF_XDP. Calls that others make as well are in
//! [`sys`](crate::sys).
//!
//! `unsafe`, because libc's functions take addresses.
//!
//! Invariants:
//! 1. Every address comes from a reference or slice that is borrowed until the call has returned,
//!    and the length passed with it is the length of the same object.
//! 2. The kernel writes only into plain data: any bytes are a valid value.

use core::ffi::c_int;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

use crate::mem::Region;
pub(crate) use crate::sys::socket::socket;
use crate::sys::socket::{check, get, set};

/// `struct xdp_umem_reg`.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct UmemReg {
    addr: u64,
    len: u64,
    chunk_len: u32,
    headroom: u32,
    flags: u32,
    tx_metadata_len: u32,
}

/// `struct sockaddr_xdp`.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct XdpAddress {
    family: u16,
    flags: u16,
    ifindex: u32,
    queue: u32,
    shared_umem_fd: u32,
}

/// Sets an option of an AF_XDP socket.
pub(crate) fn set_option(socket: &OwnedFd, option: c_int, value: u32) -> io::Result<()> {
    set(socket, libc::SOL_XDP, option, &value)
}

/// Reads an option of an AF_XDP socket. Older kernels know fewer fields: the rest remains zero.
pub(crate) fn option<T: FromBytes + FromZeros>(socket: &OwnedFd, option: c_int) -> io::Result<T> {
    get(socket, libc::SOL_XDP, option)
}

/// Makes `len` bytes of `region` the umem of an AF_XDP socket.
///
/// # Safety
/// From now on the kernel writes into chunks in the fill ring. The region outlives the socket, and
/// nothing else reads or writes a chunk while the kernel owns it.
pub(crate) unsafe fn register_umem(
    socket: &OwnedFd,
    region: &Region,
    len: usize,
    chunk_len: usize,
    headroom: usize,
) -> io::Result<()> {
    assert!(len <= region.len(), "a umem lies inside its region");
    let request = UmemReg {
        addr: region.base().as_ptr() as u64,
        len: len as u64,
        chunk_len: chunk_len as u32,
        headroom: headroom as u32,
        flags: 0,
        tx_metadata_len: 0,
    };
    set(socket, libc::SOL_XDP, libc::XDP_UMEM_REG, &request)
}

/// Binds an AF_XDP socket to a queue.
pub(crate) fn bind(socket: &OwnedFd, ifindex: u32, queue: u32, flags: u16) -> io::Result<()> {
    let address = XdpAddress { family: libc::AF_XDP as u16, flags, ifindex, queue, shared_umem_fd: 0 };
    let len = size_of::<XdpAddress>() as libc::socklen_t;
    // SAFETY: the address is borrowed for the call, with its own length (1).
    check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) }).map(drop)
}

/// Makes the kernel process the tx ring of a socket, by its number. Does not block.
pub(crate) fn kick_tx(socket: RawFd) -> io::Result<()> {
    // SAFETY: no bytes and no address are passed.
    let sent = unsafe { libc::sendto(socket, core::ptr::null(), 0, libc::MSG_DONTWAIT, core::ptr::null(), 0) };
    check(sent as c_int).map(drop)
}

/// Makes the kernel process the fill ring. Does not block.
pub(crate) fn kick_rx(socket: &OwnedFd) -> io::Result<()> {
    let none = core::ptr::null_mut();
    // SAFETY: no room for bytes and no address are passed.
    let received = unsafe { libc::recvfrom(socket.as_raw_fd(), none, 0, libc::MSG_DONTWAIT, none.cast(), none.cast()) };
    check(received as c_int).map(drop)
}

/// The protocol of the socket behind a descriptor of any process, given as /proc/PID/fd/N. `None`
/// if it is no socket, or access is denied.
pub(crate) fn socket_protocol(descriptor: &Path) -> Option<Vec<u8>> {
    let path = CString::new(descriptor.as_os_str().as_bytes()).ok()?;
    let mut name = [0u8; 32];
    // SAFETY: path and attribute are zero-terminated, and the name is borrowed mutably for the
    // call, with its own length (1, 2).
    let len = unsafe {
        libc::getxattr(path.as_ptr(), c"system.sockprotoname".as_ptr(), name.as_mut_ptr().cast(), name.len())
    };
    let bytes = name.get(..usize::try_from(len).ok()?)?;
    Some(bytes.split(|&byte| byte == 0).next().unwrap_or_default().to_vec())
}

/// Moves the calling thread into a fresh network namespace that contains only a loopback that is
/// down.
#[cfg(test)]
pub(crate) fn leave_namespace() -> io::Result<()> {
    // SAFETY: no address is passed.
    check(unsafe { libc::unshare(libc::CLONE_NEWNET) }).map(drop)
}
