//! The system calls of sockets: AF_XDP for frames, netlink and ioctl(2) for facts about an
//! interface. Calls that others make as well are in [`sys`](crate::sys).
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
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use arrayvec::ArrayVec;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

use crate::mem::Region;
pub(in crate::device::af_xdp) use crate::sys::socket::socket;
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
pub(in crate::device::af_xdp) fn set_option(socket: &OwnedFd, option: c_int, value: u32) -> io::Result<()> {
    set(socket, libc::SOL_XDP, option, &value)
}

/// Reads an option of an AF_XDP socket. Older kernels know fewer fields: the rest remains zero.
pub(in crate::device::af_xdp) fn option<T: FromBytes + FromZeros>(socket: &OwnedFd, option: c_int) -> io::Result<T> {
    get(socket, libc::SOL_XDP, option)
}

/// Makes `len` bytes of `region` the umem of an AF_XDP socket.
///
/// # Safety
/// From now on the kernel writes into chunks in the fill ring. The region outlives the socket, and
/// nothing else reads or writes a chunk while the kernel owns it.
pub(in crate::device::af_xdp) unsafe fn register_umem(
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
pub(in crate::device::af_xdp) fn bind(socket: &OwnedFd, ifindex: u32, queue: u32, flags: u16) -> io::Result<()> {
    let address = XdpAddress { family: libc::AF_XDP as u16, flags, ifindex, queue, shared_umem_fd: 0 };
    let len = size_of::<XdpAddress>() as libc::socklen_t;
    // SAFETY: the address is borrowed for the call, with its own length (1).
    check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) }).map(drop)
}

/// Makes the kernel process the tx ring. Does not block.
pub(in crate::device::af_xdp) fn kick_tx(socket: &OwnedFd) -> io::Result<()> {
    // SAFETY: no bytes and no address are passed.
    let sent =
        unsafe { libc::sendto(socket.as_raw_fd(), core::ptr::null(), 0, libc::MSG_DONTWAIT, core::ptr::null(), 0) };
    check(sent as c_int).map(drop)
}

/// Makes the kernel process the fill ring. Does not block.
pub(in crate::device::af_xdp) fn kick_rx(socket: &OwnedFd) -> io::Result<()> {
    let none = core::ptr::null_mut();
    // SAFETY: no room for bytes and no address are passed.
    let received = unsafe { libc::recvfrom(socket.as_raw_fd(), none, 0, libc::MSG_DONTWAIT, none.cast(), none.cast()) };
    check(received as c_int).map(drop)
}

/// Sends a message.
pub(in crate::device::af_xdp) fn send(socket: &OwnedFd, bytes: &[u8]) -> io::Result<()> {
    // SAFETY: the bytes are borrowed for the call, with their own length (1).
    let sent = unsafe { libc::send(socket.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), 0) };
    check(sent as c_int).map(drop)
}

/// Receives a message; returns its length.
pub(in crate::device::af_xdp) fn receive(socket: &OwnedFd, bytes: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the bytes are borrowed mutably for the call, with their own length (1, 2).
    let received = unsafe { libc::recv(socket.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    if received < 0 { Err(io::Error::last_os_error()) } else { Ok(received as usize) }
}

/// `struct ethtool_channels`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes)]
#[repr(C)]
pub(in crate::device::af_xdp) struct Channels {
    command: u32,
    max: [u32; 4],
    pub(in crate::device::af_xdp) rx: u32,
    pub(in crate::device::af_xdp) tx: u32,
    pub(in crate::device::af_xdp) other: u32,
    pub(in crate::device::af_xdp) combined: u32,
}

/// `struct ethtool_value`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes)]
#[repr(C)]
struct EthtoolValue {
    command: u32,
    value: u32,
}

/// `struct hwtstamp_config`: which frames the NIC stamps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes)]
#[repr(C)]
pub(in crate::device::af_xdp) struct Stamping {
    flags: u32,
    tx_kind: u32,
    pub(in crate::device::af_xdp) rx_filter: u32,
}

/// `struct ifreq` with a pointer in it.
#[repr(C)]
struct InterfaceRequest {
    name: [u8; libc::IFNAMSIZ],
    data: *mut libc::c_void,
    rest: [u64; 2],
}

const SIOCGIFNAME: libc::Ioctl = 0x8910;
const SIOCGIFFLAGS: libc::Ioctl = 0x8913;
const SIOCETHTOOL: libc::Ioctl = 0x8946;
const ETHTOOL_GCHANNELS: u32 = 0x3c;
const ETHTOOL_GFLAGS: u32 = 0x25;
const SIOCSHWTSTAMP: libc::Ioctl = 0x89b0;
const SIOCGHWTSTAMP: libc::Ioctl = 0x89b1;

/// The number of queues in use on an interface, as in `ethtool -l`. `socket` is any socket of the
/// network namespace.
pub(in crate::device::af_xdp) fn channels(socket: &OwnedFd, interface: &str) -> io::Result<Channels> {
    let mut channels = Channels::new_zeroed();
    channels.command = ETHTOOL_GCHANNELS;
    ask_interface(socket, interface, SIOCETHTOOL, &mut channels)?;
    Ok(channels)
}

/// The five oldest offloads of an interface, as in `ethtool -k`.
pub(in crate::device::af_xdp) fn ethtool_flags(socket: &OwnedFd, interface: &str) -> io::Result<u32> {
    let mut flags = EthtoolValue { command: ETHTOOL_GFLAGS, value: 0 };
    ask_interface(socket, interface, SIOCETHTOOL, &mut flags)?;
    Ok(flags.value)
}

/// The current timestamp filter of the NIC.
pub(in crate::device::af_xdp) fn stamping(socket: &OwnedFd, interface: &str) -> io::Result<Stamping> {
    let mut stamping = Stamping::default();
    ask_interface(socket, interface, SIOCGHWTSTAMP, &mut stamping)?;
    Ok(stamping)
}

/// Sets which frames the NIC stamps; returns the filter that it applies, which may stamp more.
pub(in crate::device::af_xdp) fn set_stamping(
    socket: &OwnedFd,
    interface: &str,
    mut wanted: Stamping,
) -> io::Result<Stamping> {
    ask_interface(socket, interface, SIOCSHWTSTAMP, &mut wanted)?;
    Ok(wanted)
}

/// An ioctl(2) about an interface, with a structure that the kernel reads and writes.
fn ask_interface<T: FromBytes + IntoBytes>(
    socket: &OwnedFd,
    interface: &str,
    command: libc::Ioctl,
    value: &mut T,
) -> io::Result<()> {
    let data = (&raw mut *value).cast();
    let mut request = InterfaceRequest { name: [0; libc::IFNAMSIZ], data, rest: [0; 2] };
    // The last byte remains zero.
    let len = interface.len().min(libc::IFNAMSIZ - 1);
    request.name[..len].copy_from_slice(&interface.as_bytes()[..len]);
    // SAFETY: request and value are borrowed mutably for the call (1), which writes only plain data
    // (2); each command here is called with its own structure.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), command, &raw mut request) }).map(drop)
}

/// The protocol of the socket behind a descriptor of any process, given as /proc/PID/fd/N. `None`
/// if it is no socket, or access is denied.
pub(in crate::device::af_xdp) fn socket_protocol(descriptor: &Path) -> Option<Vec<u8>> {
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

/// The bytes of an interface's name, on the stack because a running queue requests it.
pub(in crate::device::af_xdp) type InterfaceName = ArrayVec<u8, { libc::IFNAMSIZ }>;

/// The current name of the interface `index`, in the network namespace of `socket`.
pub(in crate::device::af_xdp) fn interface_name(socket: &OwnedFd, index: u32) -> io::Result<InterfaceName> {
    // `struct ifreq` with an integer in it.
    let mut request = [0u32; 10];
    request[libc::IFNAMSIZ / 4] = index;
    // SAFETY: the request is borrowed mutably for the call (1), as long as `struct ifreq`, and
    // plain data (2).
    check(unsafe { libc::ioctl(socket.as_raw_fd(), SIOCGIFNAME, request.as_mut_ptr()) })?;
    let name = request[..libc::IFNAMSIZ / 4].as_bytes().split(|&byte| byte == 0).next().unwrap_or_default();
    Ok(name.iter().copied().collect())
}

/// The flags of the interface `name`, of the network namespace of `socket`. Takes no lock in the
/// kernel.
pub(in crate::device::af_xdp) fn interface_flags(socket: &OwnedFd, name: &[u8]) -> io::Result<i32> {
    // `struct ifreq`, with the flags as a short behind the name.
    let mut request = [0u8; 40];
    // The last byte of the name remains zero.
    let len = name.len().min(libc::IFNAMSIZ - 1);
    request[..len].copy_from_slice(&name[..len]);
    // SAFETY: the request is borrowed mutably for the call (1), as long as `struct ifreq`, and
    // plain data (2).
    check(unsafe { libc::ioctl(socket.as_raw_fd(), SIOCGIFFLAGS, request.as_mut_ptr()) })?;
    Ok(i16::from_ne_bytes([request[libc::IFNAMSIZ], request[libc::IFNAMSIZ + 1]]).into())
}

/// Moves the calling thread into a fresh network namespace that contains only a loopback that is
/// down.
#[cfg(test)]
pub(in crate::device::af_xdp) fn leave_namespace() -> io::Result<()> {
    // SAFETY: no address is passed.
    check(unsafe { libc::unshare(libc::CLONE_NEWNET) }).map(drop)
}
