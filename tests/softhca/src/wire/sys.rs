//! System calls on packet sockets, TAPs and interfaces: raw ones, because a library that takes
//! sockets over must not see them.
//!
//! Invariants:
//! 1. Every passed address comes from a reference, slice or `CString` that is borrowed until the
//!    call has returned, and the length passed with it is that of the object.
//! 2. The kernel writes only into plain data: any bytes are a valid value.
//! 3. A descriptor that the kernel returns is new and has no other owner.
//! 4. The pointers in a batch are set anew before each call, to buffers of the batch itself, and
//!    are not followed afterwards.

use std::ffi::CString;
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use libc::{c_int, c_long, c_ulong, c_void};

use super::{FRAME_LEN_MAX, InterfaceFacts};

/// A non-blocking packet socket that receives nothing yet.
pub(super) fn packet_socket() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: no address is passed.
    let fd = check(unsafe { libc::syscall(libc::SYS_socket, libc::AF_PACKET, kind, 0) })?;
    // SAFETY: 3.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// A datagram socket that takes no privilege, as packet sockets do.
fn datagram_socket(family: c_int) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
    // SAFETY: no address is passed.
    let fd = check(unsafe { libc::syscall(libc::SYS_socket, family, kind, 0) })?;
    // SAFETY: 3.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// Binds a packet socket to an interface. With protocol 0 it only sends.
pub(super) fn bind_to_interface(fd: &OwnedFd, ifindex: u32, protocol: c_int) -> io::Result<()> {
    // SAFETY: 2: an address is plain data.
    let mut address: libc::sockaddr_ll = unsafe { zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (protocol as u16).to_be();
    address.sll_ifindex = ifindex as c_int;
    bind(fd, &address)
}

/// Binds a socket to a name that no other socket of this network namespace can have, until it is
/// closed.
pub(super) fn claim(name: &str) -> io::Result<OwnedFd> {
    let fd = datagram_socket(libc::AF_UNIX)?;
    // SAFETY: 2.
    let mut address: libc::sockaddr_un = unsafe { zeroed() };
    address.sun_family = libc::AF_UNIX as u16;
    // An abstract name begins with a zero; the zeros behind it are part of it.
    for (to, from) in address.sun_path[1..].iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    bind(&fd, &address).map(|()| fd)
}

fn bind<T>(fd: &OwnedFd, address: &T) -> io::Result<()> {
    // SAFETY: 1.
    check(unsafe { libc::syscall(libc::SYS_bind, fd.as_raw_fd(), address as *const T, size_of::<T>()) }).map(drop)
}

/// Sets a socket option of plain data.
pub(super) fn set_option<T: Copy>(fd: &OwnedFd, level: c_int, name: c_int, value: T) -> io::Result<()> {
    let (value, len) = (&raw const value, size_of::<T>());
    // SAFETY: 1.
    check(unsafe { libc::syscall(libc::SYS_setsockopt, fd.as_raw_fd(), level, name, value, len) }).map(drop)
}

/// Attaches a classic BPF program: a frame for which it returns 0 is not received.
pub(super) fn attach_filter(fd: &OwnedFd, program: &[libc::sock_filter]) -> io::Result<()> {
    // The kernel does not write to it.
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut() };
    set_option(fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, program)
}

/// Lets all frames of the interface in, for any address, as long as the socket is open.
pub(super) fn hear_everything(fd: &OwnedFd, ifindex: u32) -> io::Result<()> {
    let (kind, none) = (libc::PACKET_MR_PROMISC as u16, [0; 8]);
    let request = libc::packet_mreq { mr_ifindex: ifindex as c_int, mr_type: kind, mr_alen: 0, mr_address: none };
    set_option(fd, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, request)
}

/// The number of an interface of this network namespace.
pub(super) fn interface_index(name: &str) -> io::Result<u32> {
    let name = CString::new(name)?;
    // SAFETY: 1.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        index => Ok(index),
    }
}

/// Facts about an interface of this network namespace.
pub(super) fn interface_facts(name: &str) -> io::Result<InterfaceFacts> {
    let any = datagram_socket(libc::AF_INET)?;
    let mut request = InterfaceRequest::new(name);
    request.pass(&any, libc::SIOCGIFMTU)?;
    // SAFETY: 2: the kernel wrote it.
    let mtu = unsafe { request.0.ifr_ifru.ifru_mtu } as u32;
    let mut request = InterfaceRequest::new(name);
    request.pass(&any, libc::SIOCGIFHWADDR)?;
    // SAFETY: 2: the kernel wrote it.
    let address = unsafe { request.0.ifr_ifru.ifru_hwaddr };
    let bytes = address.sa_data.map(|byte| byte as u8);
    let is_ethernet = address.sa_family == libc::ARPHRD_ETHER;
    let mac = bytes.first_chunk().copied().filter(|_| is_ethernet);
    Ok(InterfaceFacts { mac, mtu, address: interface_address(name, &any) })
}

/// Its first IPv4 address; an interface without one is an error to the kernel.
fn interface_address(name: &str, any: &OwnedFd) -> Option<[u8; 4]> {
    let mut request = InterfaceRequest::new(name);
    request.pass(any, libc::SIOCGIFADDR).ok()?;
    // SAFETY: 2: the kernel wrote it.
    let address = unsafe { request.0.ifr_ifru.ifru_addr };
    let [_, _, a, b, c, d, ..] = address.sa_data.map(|byte| byte as u8);
    Some([a, b, c, d])
}

/// Sends an empty datagram out of an interface.
pub(super) fn send_datagram(interface: &str, to: [u8; 4], port: u16) -> io::Result<()> {
    let socket = datagram_socket(libc::AF_INET)?;
    let name = interface.as_bytes();
    let (level, option) = (libc::SOL_SOCKET, libc::SO_BINDTODEVICE);
    // SAFETY: 1.
    check(unsafe {
        libc::syscall(libc::SYS_setsockopt, socket.as_raw_fd(), level, option, name.as_ptr(), name.len())
    })?;
    let address = libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: port.to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(to) },
        sin_zero: [0; 8],
    };
    let (flags, len) = (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL, size_of::<libc::sockaddr_in>());
    // SAFETY: 1.
    check(unsafe {
        libc::syscall(libc::SYS_sendto, socket.as_raw_fd(), to.as_ptr(), 0usize, flags, &raw const address, len)
    })
    .map(drop)
}

/// A request about an interface, netdevice(7).
pub(super) struct InterfaceRequest(libc::ifreq);

impl InterfaceRequest {
    pub(super) fn new(interface: &str) -> Self {
        // SAFETY: 2.
        let mut request: libc::ifreq = unsafe { zeroed() };
        // A longer name is cut off before its final zero, and then is no interface's.
        for (to, from) in request.ifr_name.iter_mut().take(libc::IFNAMSIZ - 1).zip(interface.bytes()) {
            *to = from as libc::c_char;
        }
        Self(request)
    }

    pub(super) fn with_flags(mut self, flags: c_int) -> Self {
        self.0.ifr_ifru.ifru_flags = flags as libc::c_short;
        self
    }

    pub(super) fn with_mtu(mut self, mtu: u16) -> Self {
        self.0.ifr_ifru.ifru_mtu = c_int::from(mtu);
        self
    }

    pub(super) fn with_mac(mut self, mac: [u8; 6]) -> Self {
        let mut address = libc::sockaddr { sa_family: libc::ARPHRD_ETHER, sa_data: [0; 14] };
        for (to, from) in address.sa_data.iter_mut().zip(mac) {
            *to = from as libc::c_char;
        }
        self.0.ifr_ifru.ifru_hwaddr = address;
        self
    }

    /// Makes the request by any socket, or by a TAP's descriptor. The flags afterwards.
    pub(super) fn make(mut self, fd: &impl AsRawFd, request: c_ulong) -> io::Result<c_int> {
        self.pass(fd, request)?;
        // SAFETY: 2: every request has written these bytes of the union.
        Ok(c_int::from(unsafe { self.0.ifr_ifru.ifru_flags }))
    }

    fn pass(&mut self, fd: &impl AsRawFd, request: c_ulong) -> io::Result<()> {
        // SAFETY: 1, 2.
        check(unsafe { libc::syscall(libc::SYS_ioctl, fd.as_raw_fd(), request, &raw mut self.0) }).map(drop)
    }
}

/// Writes one frame; `None` where there is no room.
pub(super) fn write(fd: &impl AsRawFd, frame: &[u8]) -> io::Result<Option<usize>> {
    // SAFETY: 1.
    done(unsafe { libc::syscall(libc::SYS_write, fd.as_raw_fd(), frame.as_ptr(), frame.len()) })
}

/// Reads one frame to the begin of `into`: its length; `None` where there is none.
pub(super) fn read(fd: &impl AsRawFd, into: &mut [u8]) -> io::Result<Option<usize>> {
    // SAFETY: 1, 2.
    done(unsafe { libc::syscall(libc::SYS_read, fd.as_raw_fd(), into.as_mut_ptr(), into.len()) })
}

/// Frames that a packet socket has dropped since this was asked last, because too many waited.
pub(super) fn dropped(fd: &OwnedFd) -> u64 {
    // SAFETY: 2.
    let mut statistics: libc::tpacket_stats = unsafe { zeroed() };
    let mut len = size_of::<libc::tpacket_stats>() as libc::socklen_t;
    let (level, name) = (libc::SOL_PACKET, libc::PACKET_STATISTICS);
    let into = &raw mut statistics;
    // SAFETY: 1, 2.
    let result = unsafe { libc::syscall(libc::SYS_getsockopt, fd.as_raw_fd(), level, name, into, &raw mut len) };
    if result < 0 { 0 } else { u64::from(statistics.tp_drops) }
}

/// Frames that a packet socket takes or gives at once. More would only fill the caches.
pub(super) const BATCH: usize = 64;

/// Sends frames in order; returns how many were taken. An error is that of the first frame that was
/// not taken.
pub(super) fn send_batch(fd: &OwnedFd, frames: &[Vec<u8>]) -> io::Result<usize> {
    let count = frames.len().min(BATCH);
    // SAFETY: 2.
    let (mut parts, mut messages): ([libc::iovec; BATCH], [libc::mmsghdr; BATCH]) = unsafe { (zeroed(), zeroed()) };
    for ((part, message), frame) in parts.iter_mut().zip(&mut messages).zip(frames) {
        *part = libc::iovec { iov_base: frame.as_ptr() as *mut c_void, iov_len: frame.len() };
        (message.msg_hdr.msg_iov, message.msg_hdr.msg_iovlen) = (part, 1);
    }
    // SAFETY: 1: messages name parts and parts frames, all borrowed until the call is over; frames
    // are only read.
    let sent =
        unsafe { libc::syscall(libc::SYS_sendmmsg, fd.as_raw_fd(), messages.as_mut_ptr(), count, libc::MSG_DONTWAIT) };
    check(sent).map(|sent| sent as usize)
}

/// `struct virtio_net_hdr`: the work that the kernel has left to a NIC.
const VNET_LEN: usize = 10;
const SLOT_LEN: usize = VNET_LEN + FRAME_LEN_MAX;
/// Room for one control message: its header of 16 bytes and `struct tpacket_auxdata` of 20.
type Control = [u64; 5];
/// linux/if_packet.h
const STATUS_VLAN_VALID: u32 = 1 << 4;
const STATUS_VLAN_TPID_VALID: u32 = 1 << 6;

/// Frames that came in together.
pub(super) struct Batch {
    slots: Box<[u8]>,
    controls: Box<[Control]>,
    messages: Box<[libc::mmsghdr]>,
    parts: Box<[libc::iovec]>,
    count: usize,
    next: usize,
}

// SAFETY: 4: the pointers in it point into itself, and are used only within a call.
unsafe impl Send for Batch {}

/// One of them.
pub(super) struct Received<'a> {
    /// Without the tag that the kernel took off.
    pub(super) frame: &'a mut [u8],
    /// The stripped VLAN tag: its EtherType and control information.
    pub(super) tag: Option<(u16, u16)>,
    /// Where a checksum was left to the NIC: the first byte that it covers, and where from there it
    /// belongs.
    pub(super) checksum: Option<(usize, usize)>,
    /// The kernel has left it to the NIC to cut this into frames.
    pub(super) is_uncut: bool,
}

impl Batch {
    pub(super) fn new() -> Self {
        // SAFETY: 2.
        let (message, part) = unsafe { (zeroed::<libc::mmsghdr>(), zeroed::<libc::iovec>()) };
        Self {
            slots: vec![0; BATCH * SLOT_LEN].into(),
            controls: vec![[0; 5]; BATCH].into(),
            messages: vec![message; BATCH].into(),
            parts: vec![part; BATCH].into(),
            count: 0,
            next: 0,
        }
    }

    /// Fills an emptied batch: how many came.
    pub(super) fn fill(&mut self, fd: &OwnedFd) -> io::Result<usize> {
        (self.count, self.next) = (0, 0);
        let slots = self.slots.chunks_exact_mut(SLOT_LEN).zip(&mut self.controls);
        for ((slot, control), (part, message)) in slots.zip(self.parts.iter_mut().zip(&mut self.messages)) {
            *part = libc::iovec { iov_base: slot.as_mut_ptr().cast(), iov_len: slot.len() };
            let header = &mut message.msg_hdr;
            (header.msg_iov, header.msg_iovlen) = (part, 1);
            (header.msg_control, header.msg_controllen) = (control.as_mut_ptr().cast(), size_of::<Control>());
        }
        let messages = self.messages.as_mut_ptr();
        let none = std::ptr::null::<libc::timespec>();
        // SAFETY: 1, 2, 4.
        let came =
            unsafe { libc::syscall(libc::SYS_recvmmsg, fd.as_raw_fd(), messages, BATCH, libc::MSG_DONTWAIT, none) };
        self.count = done(came)?.unwrap_or(0);
        Ok(self.count)
    }

    pub(super) fn next(&mut self) -> Option<Received<'_>> {
        let idx = self.next;
        if idx >= self.count {
            return None;
        }
        self.next += 1;
        let message = &self.messages[idx];
        let slot = &mut self.slots[idx * SLOT_LEN..(idx + 1) * SLOT_LEN];
        let (vnet, frame) = slot.split_at_mut(VNET_LEN);
        let len = (message.msg_len as usize).saturating_sub(VNET_LEN).min(frame.len());
        let half = |at: usize| usize::from(u16::from_ne_bytes([vnet[at], vnet[at + 1]]));
        // linux/virtio_net.h: flags, kind of segmentation, header length, segment length, checksum
        // start and offset.
        let checksum = (vnet[0] & 1 != 0).then(|| (half(6), half(8)));
        let is_uncut = vnet[1] != 0 || message.msg_hdr.msg_flags & libc::MSG_TRUNC != 0;
        let tag = tag(&self.controls[idx], message.msg_hdr.msg_controllen);
        Some(Received { frame: &mut frame[..len], tag, checksum, is_uncut })
    }
}

/// `struct tpacket_auxdata` behind the header of its message: status, lengths, offsets, tag,
/// EtherType of the tag.
fn tag(control: &Control, len: usize) -> Option<(u16, u16)> {
    if len < 36 {
        return None;
    }
    let word = |idx: usize| (control[idx / 2] >> (32 * (idx % 2) as u32)) as u32;
    // On a big-endian machine the words of a pair change places; this code does not run there.
    let (status, tag) = (word(4), word(8));
    let ethertype = if status & STATUS_VLAN_TPID_VALID != 0 { (tag >> 16) as u16 } else { 0x8100 };
    (status & STATUS_VLAN_VALID != 0).then_some((ethertype, tag as u16))
}

/// The number that a call came to; `None` where it would have had to wait.
fn done(result: c_long) -> io::Result<Option<usize>> {
    match check(result) {
        Ok(count) => Ok(Some(count as usize)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

fn check(result: c_long) -> io::Result<c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
