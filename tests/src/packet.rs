//! Packet sockets (packet(7)): unchanged frames to and from the kernel, for peers without our
//! stack. The kernel removes the outer VLAN tag of a received frame, and reports it beside the
//! frame.
//!
//! `unsafe`, because the standard library has no such sockets, and libc's functions take addresses.
//!
//! Invariants:
//! 1. Every address comes from a reference or slice that is borrowed until the call has returned,
//!    and the length passed with it is that of the object.
//! 2. The kernel writes only into plain data: any bytes are a valid value.
//! 3. A descriptor that the kernel returns is new and has no other owner.

use std::ffi::CString;
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// A VLAN tag: its EtherType and its control information.
pub type Tag = (u16, u16);

/// A packet socket on one interface.
#[derive(Debug)]
pub struct PacketSocket {
    fd: OwnedFd,
}

/// A frame that came in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// Its bytes, without the tag.
    pub frame: Vec<u8>,
    /// The tag that stood in it.
    pub tag: Option<Tag>,
}

/// linux/if_packet.h
const PACKET_OUTGOING: u8 = 4;
const STATUS_VLAN_VALID: u32 = 1 << 4;
/// Longer than any frame of a test.
const FRAME_LEN_MAX: usize = 1 << 16;

impl PacketSocket {
    /// All frames of `interface`, which is one of the calling thread's network namespace.
    ///
    /// # Errors
    /// No such interface, or no CAP_NET_RAW.
    pub fn open(interface: &str) -> io::Result<Self> {
        let name = CString::new(interface)?;
        // SAFETY: the name is borrowed for the call and ends with a zero (1).
        let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
        if index == 0 {
            return Err(io::Error::last_os_error());
        }
        let all = (libc::ETH_P_ALL as u16).to_be();
        // SAFETY: no address is passed.
        let fd = check(unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) })?;
        // SAFETY: new (3).
        let socket = Self { fd: unsafe { OwnedFd::from_raw_fd(fd) } };
        socket.set(libc::SOL_PACKET, libc::PACKET_AUXDATA, 1)?;
        // SAFETY: plain data, for which zeros are a value (2).
        let mut address: libc::sockaddr_ll = unsafe { zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = all;
        address.sll_ifindex = index as i32;
        let len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: the address is borrowed for the call, with its own length (1).
        check(unsafe { libc::bind(socket.fd.as_raw_fd(), (&raw const address).cast(), len) })?;
        Ok(socket)
    }

    /// Sends a frame unchanged: a tag in it stays in it.
    ///
    /// # Errors
    /// The kernel does not take it: too long, the link is down.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        // SAFETY: the frame is borrowed for the call, with its own length (1).
        let sent = unsafe { libc::send(self.fd.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
        check(sent as i32).map(drop)
    }

    /// The next frame that comes in (not one that goes out) within `patience`.
    ///
    /// # Errors
    /// None came, or the interface is gone.
    pub fn receive(&self, patience: Duration) -> io::Result<Received> {
        self.set_patience(patience)?;
        loop {
            if let Some(received) = self.receive_any()? {
                return Ok(received);
            }
        }
    }

    /// `None` for a frame that went out.
    fn receive_any(&self) -> io::Result<Option<Received>> {
        let mut frame = vec![0u8; FRAME_LEN_MAX];
        // Aligned as a control message wants it, with room for one.
        let mut control = [0u64; 8];
        // SAFETY: plain data, for which zeros are a value (2).
        let (mut from, mut message): (libc::sockaddr_ll, libc::msghdr) = unsafe { (zeroed(), zeroed()) };
        let mut part = libc::iovec { iov_base: frame.as_mut_ptr().cast(), iov_len: frame.len() };
        message.msg_name = (&raw mut from).cast();
        message.msg_namelen = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
        (message.msg_control, message.msg_controllen) = (control.as_mut_ptr().cast(), size_of_val(&control));
        // SAFETY: the message names frame, address and control, all borrowed mutably for the call
        // with their lengths (1, 2).
        let len = check(unsafe { libc::recvmsg(self.fd.as_raw_fd(), &raw mut message, 0) } as i32)?;
        frame.truncate(len as usize);
        if from.sll_pkttype == PACKET_OUTGOING {
            return Ok(None);
        }
        Ok(Some(Received { frame, tag: tag(&message) }))
    }

    fn set_patience(&self, patience: Duration) -> io::Result<()> {
        let value = libc::timeval {
            tv_sec: patience.as_secs() as libc::time_t,
            tv_usec: patience.subsec_micros().max(1).into(),
        };
        self.set(libc::SOL_SOCKET, libc::SO_RCVTIMEO, value)
    }

    fn set<T>(&self, level: i32, option: i32, value: T) -> io::Result<()> {
        let len = size_of::<T>() as libc::socklen_t;
        // SAFETY: the value is borrowed for the call, with its own length (1).
        check(unsafe { libc::setsockopt(self.fd.as_raw_fd(), level, option, (&raw const value).cast(), len) }).map(drop)
    }
}

/// The tag that the kernel reports beside a frame.
fn tag(message: &libc::msghdr) -> Option<Tag> {
    // SAFETY: the kernel has set length and bytes of the control buffer, which is still borrowed
    // (1); the macro checks that a header fits.
    let header = unsafe { libc::CMSG_FIRSTHDR(message).as_ref() }?;
    if (header.cmsg_level, header.cmsg_type) != (libc::SOL_PACKET, libc::PACKET_AUXDATA) {
        return None;
    }
    // SAFETY: a message of this type is a `tpacket_auxdata`, plain data (2), behind its header in
    // the buffer (1).
    let told: libc::tpacket_auxdata =
        unsafe { libc::CMSG_DATA(header).cast::<libc::tpacket_auxdata>().read_unaligned() };
    (told.tp_status & STATUS_VLAN_VALID != 0).then_some((told.tp_vlan_tpid, told.tp_vlan_tci))
}

fn check(value: i32) -> io::Result<i32> {
    if value < 0 { Err(io::Error::last_os_error()) } else { Ok(value) }
}
