//! The guardian's system calls: frames to and from an interface (packet(7)), and another network
//! namespace (setns(2)). The standard library has no calls for these.
//!
//! Invariants:
//! 1. Every address comes from a reference or slice that is borrowed until the call has returned,
//!    and the length passed with it is the length of the same object.
//! 2. The kernel writes only into plain data: any bytes are a valid value.
//! 3. A descriptor that is passed is borrowed from its owner for the call.

use core::time::Duration;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use crate::sys::process::pidfd_open;
use crate::sys::socket::{attach_filter, check, get, set, socket, wait_readable};

/// Bytes captured of a frame: all possible headers.
const SNAP_LEN: u32 = 256;
/// Bytes of received frames that may queue during sends: some 10,000 short frames.
const RECEIVE_BUFFER_LEN: libc::c_int = 16 << 20;
/// The total time to wait for space in a full interface queue: beyond it the next round tries
/// again.
const SEND_SPAN: Duration = Duration::from_millis(5);
const SEND_TRIES: u32 = 100;

/// No particular interface: enough to test whether sockets are permitted.
pub(super) const ANY_INTERFACE: u32 = 0;
/// The socket option for the cookie of its network namespace (Linux 5.14); libc lacks it.
const SO_NETNS_COOKIE: libc::c_int = 71;

/// A packet socket. It receives nothing before `listen`, so an idle one costs nothing.
#[derive(Debug)]
pub(super) struct PacketSocket {
    fd: OwnedFd,
    interface: i32,
}

impl PacketSocket {
    /// A socket for interface number `interface` of the calling thread's network namespace, to
    /// which it stays bound.
    pub(super) fn open(interface: u32) -> io::Result<Self> {
        let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK;
        let fd = socket(libc::AF_PACKET, kind, 0)?;
        let interface = i32::try_from(interface).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        Ok(Self { fd, interface })
    }

    /// The descriptor, to be inherited by a spawned process.
    pub(super) fn into_fd(self) -> OwnedFd {
        self.fd
    }

    /// Receives the TCP segments and ARP packets of the interface from now on.
    pub(super) fn listen(&self) -> io::Result<()> {
        attach_filter(&self.fd, &mut tcp_and_arp())?;
        // Without CAP_NET_ADMIN the size is limited to `rmem_max`.
        if set(&self.fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &RECEIVE_BUFFER_LEN).is_err() {
            set(&self.fd, libc::SOL_SOCKET, libc::SO_RCVBUF, &RECEIVE_BUFFER_LEN)?;
        }
        let address = self.address(libc::ETH_P_ALL as u16);
        // SAFETY: the address is borrowed for the call, with its own length (1).
        check(unsafe { libc::bind(self.fd.as_raw_fd(), (&raw const address).cast(), address_len()) }).map(drop)
    }

    /// Sends a frame; waits a short while if the interface's queue is full.
    pub(super) fn send(&self, frame: &[u8]) -> io::Result<()> {
        let ethertype = frame.get(12..14).map_or(0, |bytes| u16::from_be_bytes([bytes[0], bytes[1]]));
        let address = self.address(ethertype);
        for _ in 0..SEND_TRIES {
            let (fd, bytes, len) = (self.fd.as_raw_fd(), frame.as_ptr().cast(), frame.len());
            // SAFETY: frame and address are borrowed for the call, with their own lengths (1).
            let sent = unsafe { libc::sendto(fd, bytes, len, 0, (&raw const address).cast(), address_len()) };
            match check(sent as i32) {
                Ok(_) => return Ok(()),
                Err(error) if is_full(&error) => std::thread::sleep(SEND_SPAN),
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::TimedOut.into())
    }

    /// The front of the next received frame; `None` if there is none now.
    pub(super) fn receive<'a>(&self, buffer: &'a mut [u8]) -> io::Result<Option<&'a [u8]>> {
        // SAFETY: the buffer is borrowed mutably for the call, with its own length (1, 2).
        let len = unsafe { libc::recv(self.fd.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0) };
        match check(len as i32) {
            Ok(len) => Ok(Some(&buffer[..len as usize])),
            // The interface may have gone down for a moment with its program; the error appears
            // once.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EINTR | libc::ENETDOWN)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Waits until a frame arrives, or for `span`.
    pub(super) fn wait(&self, span: Duration) -> io::Result<()> {
        wait_for(&self.fd, span).map(drop)
    }

    fn address(&self, ethertype: u16) -> libc::sockaddr_ll {
        libc::sockaddr_ll {
            sll_family: libc::AF_PACKET as u16,
            sll_protocol: ethertype.to_be(),
            sll_ifindex: self.interface,
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 0,
            sll_addr: [0; 8],
        }
    }
}

/// Whether a descriptor is a packet socket of this thread's network namespace. Only a process with
/// the right to send any frame here can have made it.
pub(super) fn is_right_to_send(fd: BorrowedFd<'_>) -> io::Result<bool> {
    let own = PacketSocket::open(ANY_INTERFACE)?;
    let is_packet_socket = option::<libc::c_int>(fd, libc::SO_DOMAIN).is_ok_and(|domain| domain == libc::AF_PACKET);
    Ok(is_packet_socket && option::<u64>(fd, SO_NETNS_COOKIE)? == option::<u64>(own.fd.as_fd(), SO_NETNS_COOKIE)?)
}

fn option<T: zerocopy::FromBytes>(fd: BorrowedFd<'_>, name: libc::c_int) -> io::Result<T> {
    get(&fd, libc::SOL_SOCKET, name)
}

/// A process whose end can be waited for.
#[derive(Debug)]
pub(super) struct Pidfd(OwnedFd);

impl Pidfd {
    pub(super) fn open(pid: u32) -> io::Result<Self> {
        pidfd_open(pid).map(Self)
    }

    /// Waits for the end of the process, for `span` at most; returns whether it has ended.
    pub(super) fn wait(&self, span: Duration) -> io::Result<bool> {
        wait_for(&self.0, span)
    }
}

/// Moves the calling thread into a network namespace, permanently.
pub(super) fn enter(namespace: &File) -> io::Result<()> {
    // SAFETY: a borrowed descriptor (3) and no address.
    check(unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) }).map(drop)
}

/// Waits until `fd` is readable, for `span` at most; a signal ends the wait early.
fn wait_for(fd: &OwnedFd, span: Duration) -> io::Result<bool> {
    match wait_readable([Some(fd.as_raw_fd())], Some(span)) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(false),
        waited => waited,
    }
}

/// Accepts TCP over IPv4, and ARP, with or without a second tag after the one that the kernel
/// strips. Other traffic of the interface, market data above all, would fill the buffer.
fn tcp_and_arp() -> [libc::sock_filter; 14] {
    let (load_u16, load_u8) = (libc::BPF_LD | libc::BPF_H | libc::BPF_ABS, libc::BPF_LD | libc::BPF_B | libc::BPF_ABS);
    let (equals, jump, give) = (libc::BPF_JMP | libc::BPF_JEQ, libc::BPF_JMP | libc::BPF_JA, libc::BPF_RET);
    let op = |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter { code: code as u16, jt, jf, k };
    [
        op(load_u16, 0, 0, 12),
        op(equals, 10, 0, 0x0806),
        op(equals, 7, 0, 0x0800),
        op(equals, 1, 0, 0x8100),
        op(equals, 0, 8, 0x88a8),
        op(load_u16, 0, 0, 14 + 2),
        op(equals, 5, 0, 0x0806),
        op(equals, 0, 5, 0x0800),
        op(load_u8, 0, 0, 14 + 4 + 9),
        op(jump, 0, 0, 1),
        op(load_u8, 0, 0, 14 + 9),
        op(equals, 0, 1, 6),
        op(give, 0, 0, SNAP_LEN),
        op(give, 0, 0, 0),
    ]
}

/// Whether a retry a moment later may succeed: the queue is full, or the link is coming up again
/// without the program.
fn is_full(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::ENOBUFS | libc::EINTR))
}

fn address_len() -> libc::socklen_t {
    size_of::<libc::sockaddr_ll>() as libc::socklen_t
}
