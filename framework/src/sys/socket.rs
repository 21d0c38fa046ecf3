//! Sockets: creating one, its options, the NIC's filter; a descriptor that wakes, and the wait for
//! descriptors.
//!
//! `unsafe`, because libc's functions take addresses.
//!
//! Invariants:
//! 1. Every address comes from a reference or slice that is borrowed until the call has returned,
//!    and the length passed with it is the length of the same object.
//! 2. A descriptor that the kernel returns is new and has no other owner; one that is passed is
//!    borrowed from its owner for the call.
//! 3. The kernel writes only into plain data: any bytes are a valid value.
//! 4. A descriptor that is closed here is a copy in a child of `fork`, whose owners are neither
//!    used nor dropped there.

use core::ffi::c_int;
use core::ptr;
use core::time::Duration;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};

use super::inherited;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

/// `struct packet_mreq`: an entry for the NIC's filter, requested by a packet socket.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct PacketRequest {
    ifindex: u32,
    kind: u16,
    address_len: u16,
    address: [u8; 8],
}

impl PacketRequest {
    /// A request for an Ethernet address.
    pub(crate) fn new(ifindex: u32, kind: u16, mac: [u8; 6]) -> Self {
        let mut address = [0; 8];
        address[..6].copy_from_slice(&mac);
        Self { ifindex, kind, address_len: 6, address }
    }
}

/// A new socket that child processes do not inherit.
pub(crate) fn socket(domain: c_int, kind: c_int, protocol: c_int) -> io::Result<OwnedFd> {
    // SAFETY: no address is passed.
    let fd = check(unsafe { libc::socket(domain, kind | libc::SOCK_CLOEXEC, protocol) })?;
    // SAFETY: new (2).
    Ok(inherited::note(unsafe { OwnedFd::from_raw_fd(fd) }))
}

/// Closes a descriptor that a child of `fork` has of its parent.
pub(crate) fn close(fd: RawFd) {
    // SAFETY: (4); no address is passed.
    unsafe { libc::close(fd) };
}

/// Sets an option of a packet socket.
pub(crate) fn set_packet_option(socket: &OwnedFd, option: c_int, value: &PacketRequest) -> io::Result<()> {
    set(socket, libc::SOL_PACKET, option, value)
}

/// Sets an option to a value of plain data.
pub(crate) fn set<T: IntoBytes + Immutable>(
    socket: &impl AsFd,
    level: c_int,
    option: c_int,
    value: &T,
) -> io::Result<()> {
    set_bytes(socket, level, option, value.as_bytes())
}

/// Sets an option to a value of `bytes`. The caller keeps what an address in them points to: of
/// the options that are set here only `XDP_UMEM_REG` has one, behind an unsafe function.
pub(crate) fn set_bytes(socket: &impl AsFd, level: c_int, option: c_int, bytes: &[u8]) -> io::Result<()> {
    let (fd, len) = (socket.as_fd().as_raw_fd(), bytes.len() as libc::socklen_t);
    // SAFETY: the bytes are borrowed for the call, with their own length (1).
    check(unsafe { libc::setsockopt(fd, level, option, bytes.as_ptr().cast(), len) }).map(drop)
}

/// Has the kernel drop the packets that a filter (classic BPF) does not accept.
pub(crate) fn attach_filter(socket: &impl AsFd, filter: &mut [libc::sock_filter]) -> io::Result<()> {
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    let (fd, len) = (socket.as_fd().as_raw_fd(), size_of_val(&program) as libc::socklen_t);
    // SAFETY: program and filter are borrowed for the call, with their own lengths (1).
    check(unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, (&raw const program).cast(), len) })
        .map(drop)
}

/// The value of an option. Older kernels know fewer fields: the rest remains zero.
pub(crate) fn get<T: FromBytes + FromZeros>(socket: &impl AsFd, level: c_int, option: c_int) -> io::Result<T> {
    let (mut value, mut len) = (T::new_zeroed(), size_of::<T>() as libc::socklen_t);
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: value and length are borrowed mutably for the call (1), and any bytes are a `T` (3).
    check(unsafe { libc::getsockopt(fd, level, option, (&raw mut value).cast(), &raw mut len) })?;
    Ok(value)
}

/// A descriptor that is readable once a number was written to it (eventfd(2)).
pub(crate) fn eventfd() -> io::Result<File> {
    // SAFETY: no memory is passed.
    let fd = check(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
    // SAFETY: new (2).
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// A descriptor that is readable while one of those is that [`watch`] adds (epoll(7)).
pub(crate) fn epoll() -> io::Result<OwnedFd> {
    // SAFETY: no memory is passed.
    let set = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
    // SAFETY: new (2).
    Ok(unsafe { OwnedFd::from_raw_fd(set) })
}

/// Adds a descriptor, which stays its owner's.
pub(crate) fn watch(set: &OwnedFd, fd: RawFd) -> io::Result<()> {
    let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
    // SAFETY: the event is borrowed for the call (1); both descriptors are their owners' (2).
    check(unsafe { libc::epoll_ctl(set.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &raw mut event) }).map(drop)
}

/// Waits until one of `fds` is readable, `timeout` is over, or a signal came (an error); returns
/// whether one is readable, or has an error to read.
pub(crate) fn wait_readable<const N: usize>(fds: [Option<RawFd>; N], timeout: Option<Duration>) -> io::Result<bool> {
    // The kernel skips a negative number.
    let mut fds = fds.map(|fd| libc::pollfd { fd: fd.unwrap_or(-1), events: libc::POLLIN, revents: 0 });
    let timeout = timeout.map(|timeout| libc::timespec {
        tv_sec: timeout.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    });
    let until = timeout.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: both are borrowed for the call, the descriptors with their own number (1). The kernel
    // reports a descriptor that is closed, and accesses none.
    let ready = check(unsafe { libc::ppoll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, until, ptr::null()) })?;
    Ok(ready > 0)
}

/// Sends a message.
pub(crate) fn send(socket: &OwnedFd, bytes: &[u8]) -> io::Result<()> {
    // SAFETY: the bytes are borrowed for the call, with their own length (1).
    let sent = unsafe { libc::send(socket.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), 0) };
    check(sent as c_int).map(drop)
}

/// Receives a message; returns its length.
pub(crate) fn receive(socket: &OwnedFd, bytes: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the bytes are borrowed mutably for the call, with their own length (1, 2).
    let received = unsafe { libc::recv(socket.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    if received < 0 { Err(io::Error::last_os_error()) } else { Ok(received as usize) }
}

/// The return value of a call, or the error in errno.
pub(crate) fn check(value: c_int) -> io::Result<c_int> {
    if value < 0 { Err(io::Error::last_os_error()) } else { Ok(value) }
}
