//! The kernel's time stamps: when a datagram came (`SO_TIMESTAMPNS`), and when bytes of a
//! connection left for the device (`SO_TIMESTAMPING`, Documentation/networking/timestamping.rst).
//!
//! Invariants:
//!
//! 1. A call gets pointers into buffers of this call, which live until it returns, with their
//!    lengths.
//! 2. Control messages are found by libc's macros within the length that the kernel has written,
//!    and read without alignment, and only where the whole value is within the message.
#![allow(unsafe_code)]

use std::io;
use std::mem::{MaybeUninit, size_of, zeroed};
use std::net::{Ipv4Addr, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, RawFd};
use std::ptr::{from_mut, from_ref};

/// Room for a time stamp and the number that it is of.
const CONTROL_LEN: usize = 256;

/// Has each datagram stamped when it comes.
pub(crate) fn stamp_received(socket: &UdpSocket) -> io::Result<()> {
    set_option(socket.as_raw_fd(), libc::SO_TIMESTAMPNS, 1)
}

/// Has the last byte of each write stamped when it leaves for the device. Call it before the first
/// write, because bytes are counted from here on.
pub(crate) fn stamp_sent(stream: &TcpStream) -> io::Result<()> {
    let flags = libc::SOF_TIMESTAMPING_TX_SOFTWARE
        | libc::SOF_TIMESTAMPING_SOFTWARE
        | libc::SOF_TIMESTAMPING_OPT_ID
        | libc::SOF_TIMESTAMPING_OPT_TSONLY;
    set_option(stream.as_raw_fd(), libc::SO_TIMESTAMPING, flags as libc::c_int)
}

/// A datagram: its length, the sender where that is one of IPv4, and the time of its arrival in
/// nanoseconds since 1970.
pub(crate) type Stamped = (usize, Option<Ipv4Addr>, Option<u64>);

/// As [`UdpSocket::recv_from`], with the time of its arrival.
pub(crate) fn receive(socket: &UdpSocket, bytes: &mut [u8]) -> io::Result<Stamped> {
    let mut stamp = None;
    let (len, sender) = receive_message(socket.as_raw_fd(), bytes, 0, |level, kind, data| {
        if (level, kind) == (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) {
            stamp = read::<libc::timespec>(data).and_then(nanoseconds);
        }
    })?;
    Ok((len, sender, stamp))
}

/// The next stamp of bytes that have left: the number of the byte, modulo 2^32, and the time since
/// 1970. `None` where there is none yet.
pub(crate) fn take_sent(stream: &TcpStream) -> Option<(u32, u64)> {
    let (mut number, mut stamp) = (None, None);
    receive_message(stream.as_raw_fd(), &mut [], libc::MSG_ERRQUEUE, |level, kind, data| match (level, kind) {
        // The first of three is that of the software.
        (libc::SOL_SOCKET, libc::SCM_TIMESTAMPING) => stamp = read::<libc::timespec>(data).and_then(nanoseconds),
        (libc::SOL_IP, libc::IP_RECVERR) => number = read::<libc::sock_extended_err>(data).map(|error| error.ee_data),
        _ => (),
    })
    .ok()?;
    Some((number?, stamp?))
}

fn set_option(socket: RawFd, option: libc::c_int, value: libc::c_int) -> io::Result<()> {
    let len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: invariant 1. The standard library has no such option.
    let set = unsafe { libc::setsockopt(socket, libc::SOL_SOCKET, option, from_ref(&value).cast(), len) };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Receives without waiting, and gives each control message to `take`: its level, type and bytes.
/// Returns as well who has sent it, where that is an address of IPv4.
fn receive_message(
    socket: RawFd,
    bytes: &mut [u8],
    flags: libc::c_int,
    mut take: impl FnMut(libc::c_int, libc::c_int, &[u8]),
) -> io::Result<(usize, Option<Ipv4Addr>)> {
    // Words, because headers are aligned to them.
    let mut control = [0u64; CONTROL_LEN / size_of::<u64>()];
    let mut vector = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: a header of zeros is one without buffers, and an address of zeros one of no family.
    let (mut header, mut sender): (libc::msghdr, libc::sockaddr_in) = unsafe { (zeroed(), zeroed()) };
    (header.msg_name, header.msg_namelen) = (from_mut(&mut sender).cast(), size_of_val(&sender) as libc::socklen_t);
    (header.msg_iov, header.msg_iovlen) = (from_mut(&mut vector), 1);
    (header.msg_control, header.msg_controllen) = (control.as_mut_ptr().cast(), CONTROL_LEN as _);
    // SAFETY: invariant 1. The standard library receives no control messages.
    let len = unsafe { libc::recvmsg(socket, &mut header, flags | libc::MSG_DONTWAIT) };
    let len = usize::try_from(len).map_err(|_| io::Error::last_os_error())?;
    // SAFETY: invariant 2; `control` is alive, and the kernel has written `msg_controllen`.
    let mut message = unsafe { libc::CMSG_FIRSTHDR(&header) };
    while !message.is_null() {
        // SAFETY: invariant 2: the macros return headers that are within the control buffer whole.
        let (level, kind, data) = unsafe {
            let head = message.read_unaligned();
            let len = (head.cmsg_len as usize).saturating_sub(libc::CMSG_LEN(0) as usize);
            let data = libc::CMSG_DATA(message).cast_const();
            let room = (control.as_ptr().cast::<u8>().addr() + CONTROL_LEN).saturating_sub(data.addr());
            (head.cmsg_level, head.cmsg_type, std::slice::from_raw_parts(data, len.min(room)))
        };
        take(level, kind, data);
        // SAFETY: as the first one.
        message = unsafe { libc::CMSG_NXTHDR(&header, message) };
    }
    let is_ipv4 = i32::from(sender.sin_family) == libc::AF_INET;
    Ok((len, is_ipv4.then(|| Ipv4Addr::from(u32::from_be(sender.sin_addr.s_addr)))))
}

/// A value that the kernel has written, where it is there whole. Its types are of integers alone.
fn read<T: Copy>(data: &[u8]) -> Option<T> {
    let mut value = MaybeUninit::<T>::uninit();
    let bytes = data.get(..size_of::<T>())?;
    // SAFETY: invariant 2: as many bytes as the value has are copied into it.
    unsafe {
        value.as_mut_ptr().cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        Some(value.assume_init())
    }
}

fn nanoseconds(time: libc::timespec) -> Option<u64> {
    let (seconds, nanoseconds) = (u64::try_from(time.tv_sec).ok()?, u64::try_from(time.tv_nsec).ok()?);
    Some(seconds.checked_mul(1_000_000_000)?.checked_add(nanoseconds)?).filter(|&ns| ns > 0)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;
    use std::time::SystemTime;

    use super::*;

    fn utc_ns() -> u64 {
        SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64
    }

    #[test]
    fn datagram_has_its_sender_and_the_time_of_its_arrival() {
        let (near, far) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        stamp_received(&near).unwrap();
        let before_ns = utc_ns();
        far.send_to(b"tick", near.local_addr().unwrap()).unwrap();
        let mut bytes = [0; 16];
        let (len, sender, stamp) = receive(&near, &mut bytes).unwrap();
        assert_eq!((&bytes[..len], sender), (&b"tick"[..], Some(Ipv4Addr::LOCALHOST)));
        assert!((before_ns..=utc_ns()).contains(&stamp.unwrap()));
        assert_eq!(receive(&near, &mut bytes).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn last_byte_of_each_write_has_the_time_when_it_left() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        stream.set_nodelay(true).unwrap();
        stamp_sent(&stream).unwrap();
        let before_ns = utc_ns();
        for (bytes, number) in [(&b"order"[..], 4), (b"cancel", 10)] {
            stream.write_all(bytes).unwrap();
            let (stamped, at_ns) = loop {
                if let Some(stamp) = take_sent(&stream) {
                    break stamp;
                }
                std::thread::yield_now();
            };
            assert_eq!(stamped, number);
            assert!((before_ns..=utc_ns()).contains(&at_ns));
        }
        assert_eq!(take_sent(&stream), None);
    }
}
