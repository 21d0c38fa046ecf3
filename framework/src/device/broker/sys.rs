//! Seqpacket sockets of a path that carry descriptors (unix(7), cmsg(3)), sealed memory, and the
//! wait for several descriptors. The standard library has no calls for these.
//!
//! `unsafe`, because libc's functions take addresses.
//!
//! Invariants:
//! 1. Every address comes from a reference or slice that is borrowed until the call has returned,
//!    and the length passed with it is the length of the same object.
//! 2. A descriptor that the kernel returns, or that arrives in a message, is new and has no other
//!    owner; one that is passed is borrowed from its owner for the call.
//! 3. The kernel writes only into plain data: any bytes are a valid value.
//! 4. The room for control messages is aligned as `cmsghdr`, and the kernel says how much of it it
//!    has written; a message is read within that alone.

use core::ffi::c_int;
use core::mem::MaybeUninit;
use core::net::SocketAddrV4;
use core::time::Duration;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use zerocopy::IntoBytes;

use crate::sys::socket::{check, get, set, socket};
use crate::wire::Protocol;

/// Descriptors of a message.
pub(crate) const DESCRIPTORS_MAX: usize = 3;
/// asm-generic/socket.h
const SO_BINDTOIFINDEX: c_int = 62;
/// asm-generic/fcntl.h
const F_SETSIG: c_int = 10;
/// The most messages without files that are read at the end of a connection.
const READ_AT_END: usize = 16;
/// Connections that wait to be accepted.
const BACKLOG: c_int = 16;

/// The user and the process at the other end of a socket, as they were when it connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) pid: u32,
    pub(crate) uid: u32,
    /// Its own group first, and then the supplementary ones.
    pub(crate) groups: Vec<u32>,
}

/// Supplementary groups of a peer that are asked for. A process of more has none here.
const GROUPS_MAX: usize = 1_024;

/// Connects to the socket at `path`. A request or a reply that takes longer than `timeout` is an
/// error.
pub(crate) fn connect(path: &Path, timeout: Duration) -> io::Result<OwnedFd> {
    let (address, socket) = (address(path)?, socket(libc::AF_UNIX, libc::SOCK_SEQPACKET, 0)?);
    set_patience(&socket, timeout)?;
    // SAFETY: the address is borrowed for the call, with its own length (1).
    check(unsafe { libc::connect(socket.as_raw_fd(), (&raw const address).cast(), address_len()) })?;
    Ok(socket)
}

/// The longest time that a send or a receive on `socket` waits.
pub(crate) fn set_patience(socket: &OwnedFd, timeout: Duration) -> io::Result<()> {
    let span = [timeout.as_secs().cast_signed(), timeout.subsec_micros().into()];
    set(socket, libc::SOL_SOCKET, libc::SO_RCVTIMEO, &span)?;
    set(socket, libc::SOL_SOCKET, libc::SO_SNDTIMEO, &span)
}

/// Ends a connection, although other processes may have its descriptor too.
pub(crate) fn hang_up(socket: &OwnedFd) {
    // SAFETY: no memory is passed.
    let _ = check(unsafe { libc::shutdown(socket.as_raw_fd(), libc::SHUT_RDWR) });
}

/// A socket at `path`, where there must be no file, that accepts connections without waiting.
pub(crate) fn listen(path: &Path) -> io::Result<OwnedFd> {
    let address = address(path)?;
    let socket = socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_NONBLOCK, 0)?;
    // SAFETY: the address is borrowed for the call, with its own length (1).
    check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), address_len()) })?;
    // Accepted sockets have it as well: each message says who has sent it.
    set(&socket, libc::SOL_SOCKET, libc::SO_PASSCRED, &1_i32)?;
    // SAFETY: no address is passed.
    check(unsafe { libc::listen(socket.as_raw_fd(), BACKLOG) })?;
    Ok(socket)
}

/// The next connection; `None` where there is none.
pub(crate) fn accept(listener: &OwnedFd) -> io::Result<Option<OwnedFd>> {
    let (fd, none) = (listener.as_raw_fd(), core::ptr::null_mut::<libc::sockaddr>());
    // SAFETY: no address is passed.
    let accepted = unsafe { libc::accept4(fd, none, none.cast(), libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK) };
    match check(accepted) {
        // SAFETY: new (2).
        Ok(fd) => Ok(Some(unsafe { OwnedFd::from_raw_fd(fd) })),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

/// The process and user at the other end, as the kernel reports them.
pub(crate) fn peer(socket: &OwnedFd) -> io::Result<Peer> {
    // `struct ucred`: process, user, group.
    let mut value = [0_u32; 3];
    let mut len = size_of_val(&value) as libc::socklen_t;
    let fd = socket.as_raw_fd();
    // SAFETY: value and length are borrowed mutably for the call (1, 3).
    check(unsafe {
        libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERCRED, value.as_mut_ptr().cast(), &raw mut len)
    })?;
    let mut groups = [0_u32; GROUPS_MAX];
    let mut len = size_of_val(&groups) as libc::socklen_t;
    // SAFETY: as above (1, 3).
    let found = check(unsafe {
        libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERGROUPS, groups.as_mut_ptr().cast(), &raw mut len)
    });
    let count = if found.is_ok() { len as usize / size_of::<u32>() } else { 0 };
    let own = [value[2]].into_iter();
    Ok(Peer { pid: value[0], uid: value[1], groups: own.chain(groups.into_iter().take(count)).collect() })
}

/// Whether no socket of the kernel has this TCP port for frames of `device`: a try to bind it
/// there, in this network namespace. A socket that neither listens nor is connected is in no table
/// that other processes can read. One that is bound to another device does not count.
pub(crate) fn is_free(local: SocketAddrV4, device: u32) -> io::Result<bool> {
    let socket = socket(libc::AF_INET, libc::SOCK_STREAM, 0)?;
    set(&socket, libc::SOL_SOCKET, SO_BINDTOIFINDEX, &device)?;
    let address = libc::sockaddr_in {
        sin_family: libc::AF_INET as u16,
        sin_port: local.port().to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(local.ip().octets()) },
        sin_zero: [0; 8],
    };
    let len = size_of::<libc::sockaddr_in>() as libc::socklen_t;
    // SAFETY: the address is borrowed for the call, with its own length (1).
    match check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) }) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Ok(false),
        Err(error) => Err(error),
    }
}

/// The number of a kernel socket of this protocol, by which the kernel's list has it
/// (`SO_COOKIE`); `None` for any other file. No call waits for the file's owner here: the kernel
/// answers without the socket's lock, and refuses other files.
pub(crate) fn cookie_of(file: &OwnedFd, protocol: Protocol) -> Option<u64> {
    let option = |name| get::<c_int>(file, libc::SOL_SOCKET, name).ok();
    let is_inet = matches!(option(libc::SO_DOMAIN)?, libc::AF_INET | libc::AF_INET6);
    let is_protocol = option(libc::SO_PROTOCOL)? == c_int::from(protocol.0);
    if is_inet && is_protocol { get(file, libc::SOL_SOCKET, libc::SO_COOKIE).ok() } else { None }
}

/// The user who has made a file of this process.
pub(crate) fn owner_of(file: BorrowedFd<'_>) -> io::Result<u32> {
    let mut found = MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: the room is borrowed mutably for the call (1, 3).
    check(unsafe { libc::fstat(file.as_raw_fd(), found.as_mut_ptr()) })?;
    // SAFETY: zeros, or what the kernel has written (3).
    Ok(unsafe { found.assume_init() }.st_uid)
}

/// Room for the control message with all descriptors of a message.
#[repr(C, align(8))]
struct Control<const LEN: usize>([u8; LEN]);

/// Room for who has sent a message, and more than [`DESCRIPTORS_MAX`].
const CONTROL_LEN: usize = 96;
/// Room for who has sent it alone: a header and a `struct ucred`.
const SENDER_LEN: usize = 32;

/// The user and group of the process that has sent a message, at that moment: not the one that has
/// connected, where that has become another user or has a child that has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sender {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// Sends one message if there is room for it now.
pub(crate) fn send_now(socket: &OwnedFd, bytes: &[u8]) -> io::Result<()> {
    let (fd, flags) = (socket.as_raw_fd(), libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT);
    // SAFETY: the bytes are borrowed for the call, with their own length (1).
    let sent = unsafe { libc::send(fd, bytes.as_ptr().cast(), bytes.len(), flags) };
    check(sent as c_int).map(drop)
}

/// Sends one message with its descriptors, of which no more than [`DESCRIPTORS_MAX`] go.
pub(crate) fn send(socket: &OwnedFd, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let count = descriptors.len().min(DESCRIPTORS_MAX);
    send_with_room::<CONTROL_LEN>(socket, bytes, &descriptors[..count])
}

/// As no program of ours does: with up to 28 descriptors.
#[cfg(test)]
pub(crate) fn send_many(socket: &OwnedFd, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    send_with_room::<128>(socket, bytes, descriptors)
}

fn send_with_room<const LEN: usize>(socket: &OwnedFd, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut control = Control([0; LEN]);
    let numbers: Vec<RawFd> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut message = header(&mut part, &mut control);
    message.msg_controllen = match numbers.as_bytes() {
        [] => 0,
        numbers => put(&mut control, numbers),
    };
    // SAFETY: header, bytes and control message are borrowed for the call, with their lengths (1);
    // the kernel copies the descriptors (2).
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) };
    check(sent as c_int).map(drop)
}

/// Receives one message, and appends its descriptors to `descriptors` where that is given;
/// otherwise the kernel closes them. Returns the message's length; 0 once the other end is closed.
/// A message that is longer than `bytes` is an error.
pub(crate) fn receive(socket: &OwnedFd, bytes: &mut [u8], descriptors: Option<&mut Vec<OwnedFd>>) -> io::Result<usize> {
    let room = if descriptors.is_some() { CONTROL_LEN } else { 0 };
    match received(socket, bytes, room, descriptors, 0)? {
        Received { is_cut: true, .. } => Err(io::Error::from(io::ErrorKind::InvalidData)),
        Received { len, .. } => Ok(len),
    }
}

/// As [`receive`], of a peer that may have a file closed for as long as it likes: no file is closed
/// here. A message with files is read by a look at it, which gives other descriptors of the same
/// files, and is removed afterwards. It stays unread where `files` is `None` or not all of them
/// have come; that is an error, [`has_unwanted_files`]. Returns as well who has sent it, if the
/// socket was accepted of [`listen`]'s.
pub(crate) fn receive_from_hostile(
    socket: &OwnedFd,
    bytes: &mut [u8],
    files: Option<&mut Vec<OwnedFd>>,
) -> io::Result<(usize, Option<Sender>)> {
    let room = if files.is_some() { CONTROL_LEN } else { SENDER_LEN };
    let seen = received(socket, bytes, room, files, libc::MSG_PEEK)?;
    if seen.misses_control {
        return Err(io::Error::from(io::ErrorKind::QuotaExceeded));
    }
    Ok((receive(socket, bytes, None)?, seen.sender))
}

/// Whether [`receive_from_hostile`] has left a message unread.
pub(crate) fn has_unwanted_files(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::QuotaExceeded
}

/// Ends a connection with a hostile peer. Returns whether there is something that it has sent with
/// files, or behind such: then the last close of the socket can take as long as the peer likes.
pub(crate) fn may_linger_after_end(socket: &OwnedFd) -> bool {
    // Nothing can be sent to it afterwards.
    hang_up(socket);
    let unread = |flags| received(socket, &mut [0; 1], 0, None, flags | libc::MSG_DONTWAIT);
    let have_sender = |is: c_int| set(socket, libc::SOL_SOCKET, libc::SO_PASSCRED, &is);
    if have_sender(0).is_err() {
        return true;
    }
    // Most have sent a few words and no file. A peer of whom these are read sees no error.
    for _ in 0..READ_AT_END {
        match unread(libc::MSG_PEEK) {
            Ok(Received { len: 1.., misses_control: false, .. }) => _ = unread(0),
            _ => break,
        }
    }
    // From now on each message says who has sent it, also an empty one: for that there is no room.
    have_sender(1).is_err() || unread(libc::MSG_PEEK).is_ok_and(|received| received.misses_control)
}

struct Received {
    /// The bytes that there was room for.
    len: usize,
    is_cut: bool,
    /// There was something beside the bytes, and no room for all of it.
    misses_control: bool,
    sender: Option<Sender>,
}

/// Receives a message with up to `room` bytes of control messages.
fn received(
    socket: &OwnedFd,
    bytes: &mut [u8],
    room: usize,
    descriptors: Option<&mut Vec<OwnedFd>>,
    flags: c_int,
) -> io::Result<Received> {
    let mut control = Control([0; CONTROL_LEN]);
    let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let mut message = header(&mut part, &mut control);
    message.msg_controllen = room.min(CONTROL_LEN);
    // SAFETY: header, room and control room are borrowed mutably for the call, with their lengths
    // (1, 3).
    let len = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC | flags) };
    if len < 0 {
        return Err(io::Error::last_os_error());
    }
    let mut others = Vec::new();
    let sender = take(&message, descriptors.unwrap_or(&mut others));
    let has = |flag| message.msg_flags & flag != 0;
    Ok(Received { len: len as usize, is_cut: has(libc::MSG_TRUNC), misses_control: has(libc::MSG_CTRUNC), sender })
}

fn header<const LEN: usize>(part: &mut libc::iovec, control: &mut Control<LEN>) -> libc::msghdr {
    // SAFETY: zeros are a header without parts (3).
    let mut message: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    (message.msg_iov, message.msg_iovlen) = (part, 1);
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = control.0.len();
    message
}

/// Writes one control message with descriptors; returns its length.
fn put<const LEN: usize>(control: &mut Control<LEN>, numbers: &[u8]) -> usize {
    // SAFETY: these compute lengths alone.
    let (len, space) =
        unsafe { (libc::CMSG_LEN(numbers.len() as u32) as usize, libc::CMSG_SPACE(numbers.len() as u32) as usize) };
    let at = len - numbers.len();
    // `struct cmsghdr`: its length, level and kind, each in the machine's order.
    control.0[..8].copy_from_slice(&len.to_ne_bytes());
    control.0[8..12].copy_from_slice(&libc::SOL_SOCKET.to_ne_bytes());
    control.0[12..16].copy_from_slice(&libc::SCM_RIGHTS.to_ne_bytes());
    control.0[at..len].copy_from_slice(numbers);
    space
}

/// Takes the descriptors of a received message. Returns who has sent it.
fn take(message: &libc::msghdr, descriptors: &mut Vec<OwnedFd>) -> Option<Sender> {
    let mut sender = None;
    // SAFETY: the header names room for control messages that the kernel has filled (4).
    let mut next = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !next.is_null() {
        // SAFETY: a whole header within the filled room (4).
        let control = unsafe { next.read() };
        if (control.cmsg_level, control.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
            // SAFETY: the data begins behind the header, and a length of nothing is the header's.
            let (data, empty) = unsafe { (libc::CMSG_DATA(next), libc::CMSG_LEN(0) as usize) };
            for idx in 0..control.cmsg_len.saturating_sub(empty) / size_of::<RawFd>() {
                // SAFETY: within the message's length (4); the descriptor is new (2).
                descriptors.push(unsafe { OwnedFd::from_raw_fd(data.cast::<RawFd>().add(idx).read_unaligned()) });
            }
        }
        if (control.cmsg_level, control.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_CREDENTIALS) {
            // SAFETY: the kernel writes the whole `struct ucred`, for which there is room: process,
            // user, group (3, 4).
            let [_, uid, gid] = unsafe { libc::CMSG_DATA(next).cast::<[u32; 3]>().read_unaligned() };
            sender = Some(Sender { uid, gid });
        }
        // SAFETY: as the first (4).
        next = unsafe { libc::CMSG_NXTHDR(message, next) };
    }
    sender
}

/// Memory of `len` bytes, zeroed, as a file whose length cannot be changed.
pub(crate) fn memory(len: usize) -> io::Result<File> {
    // SAFETY: the name is zero-terminated.
    let fd =
        check(unsafe { libc::memfd_create(c"wirepath-umem".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) })?;
    // SAFETY: new (2).
    let file = unsafe { File::from_raw_fd(fd) };
    file.set_len(len as u64)?;
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: a borrowed descriptor and no address.
    check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) })?;
    // The kernel counts a file that was opened for writing, and not the one that it has made here.
    open_again(&file, true)
}

/// Another open file of the same memory.
fn open_again(file: &File, for_writing: bool) -> io::Result<File> {
    File::options().read(true).write(for_writing).open(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// Memory that clients of a broker have got, and which a process may keep: by a descriptor or a
/// mapping, whichever process it is by now.
pub(crate) struct KeptMemory(File);

impl KeptMemory {
    /// Watches over a file of [`memory`].
    pub(crate) fn watch(memory: &File) -> io::Result<Self> {
        let watch = open_again(memory, false)?;
        // What tells of a lease that another process breaks is not to end the broker.
        // SAFETY: a borrowed descriptor and no address.
        check(unsafe { libc::fcntl(watch.as_raw_fd(), F_SETSIG, libc::SIGURG) })?;
        Ok(Self(watch))
    }

    /// Whether no process can write to it any more, by a descriptor or by a mapping: then the
    /// kernel gives a lease for reading (fcntl(2)). Its pages are the kernel's again afterwards,
    /// also where a process has kept a file that it has opened for reading.
    pub(crate) fn is_given_back(&self) -> bool {
        let lease = |kind: c_int| {
            // SAFETY: a borrowed descriptor and no address.
            check(unsafe { libc::fcntl(self.0.as_raw_fd(), libc::F_SETLEASE, kind) })
        };
        match lease(libc::F_RDLCK) {
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => return false,
            // The kernel gives no leases (`fs.leases-enable=0`). So nobody can see whether a
            // process keeps the memory, and to count it for ever would shut its user out.
            Err(_) => return true,
            Ok(_) => (),
        }
        // Before the file is opened for writing, which waits for a lease.
        let _ = lease(libc::F_UNLCK);
        if let Ok(file) = open_again(&self.0, true) {
            let (mode, len) = (libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE, self.0.metadata());
            let len = len.map_or(0, |data| data.len()) as libc::off_t;
            // SAFETY: a borrowed descriptor and no address.
            unsafe { libc::fallocate(file.as_raw_fd(), mode, 0, len) };
        }
        true
    }
}

/// Whether the other end of a socket is closed. Does not wait.
pub(crate) fn is_closed(socket: &OwnedFd) -> bool {
    matches!(wait(&[socket.as_raw_fd()], Duration::ZERO).as_deref(), Ok([events]) if events.has_ended)
}

/// The events at a descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Events {
    pub(crate) is_readable: bool,
    /// The other end is closed.
    pub(crate) has_ended: bool,
}

/// Waits until one of `fds` has something, or for `span`; a signal ends it early.
pub(crate) fn wait(fds: &[RawFd], span: Duration) -> io::Result<Vec<Events>> {
    let mut fds: Vec<_> = fds.iter().map(|&fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 }).collect();
    let span = libc::timespec { tv_sec: span.as_secs() as libc::time_t, tv_nsec: span.subsec_nanos().into() };
    let count = fds.len() as libc::nfds_t;
    // SAFETY: the entries are borrowed mutably for the call, with their own number, and the time is
    // read (1, 3); no signal mask.
    match check(unsafe { libc::ppoll(fds.as_mut_ptr(), count, &raw const span, std::ptr::null()) }) {
        Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
        Err(_) => fds.iter_mut().for_each(|fd| fd.revents = 0),
        Ok(_) => (),
    }
    let has = |fd: &libc::pollfd, events| fd.revents & events != 0;
    let ended = libc::POLLHUP | libc::POLLERR | libc::POLLNVAL;
    Ok(fds.iter().map(|fd| Events { is_readable: has(fd, libc::POLLIN), has_ended: has(fd, ended) }).collect())
}

/// The address of a path; an error where the path is too long for one.
fn address(path: &Path) -> io::Result<libc::sockaddr_un> {
    let mut address = libc::sockaddr_un { sun_family: libc::AF_UNIX as u16, sun_path: [0; 108] };
    let bytes = path.as_os_str().as_bytes();
    // The last byte remains zero; an empty path would be a name that the kernel chooses.
    if bytes.is_empty() || bytes.len() >= address.sun_path.len() || bytes.contains(&0) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a socket's path has 1 to 107 bytes"));
    }
    for (to, from) in address.sun_path.iter_mut().zip(bytes) {
        *to = *from as libc::c_char;
    }
    Ok(address)
}

fn address_len() -> libc::socklen_t {
    size_of::<libc::sockaddr_un>() as libc::socklen_t
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::AsFd;
    use std::os::unix::fs::MetadataExt;

    use super::*;
    use crate::device::af_xdp::interface::Interface;
    use crate::device::af_xdp::rings::sys::leave_namespace;

    /// The index of `lo` in every namespace.
    const LOOPBACK: u32 = 1;
    const TIMEOUT: Duration = Duration::from_secs(5);

    fn pair() -> (OwnedFd, OwnedFd) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let listener = listen(&path).unwrap();
        let client = connect(&path, TIMEOUT).unwrap();
        (client, accept(&listener).unwrap().expect("it has connected"))
    }

    #[test]
    fn descriptors_arrive_where_they_are_wanted_and_are_closed_elsewhere() {
        let (client, server) = pair();
        let memory = memory(4096).unwrap();
        send(&server, b"two", &[memory.as_fd(), memory.as_fd()]).unwrap();
        let (mut bytes, mut descriptors) = ([0; 8], Vec::new());
        assert_eq!(receive(&client, &mut bytes, Some(&mut descriptors)).unwrap(), 3);
        assert_eq!((&bytes[..3], descriptors.len()), (&b"two"[..], 2));
        let mut same = File::from(descriptors.pop().unwrap());
        assert_eq!(same.read_to_end(&mut Vec::new()).unwrap(), 4096);
        drop((same, descriptors));
        send(&client, b"one", &[memory.as_fd()]).unwrap();
        drop(client);
        assert_eq!(receive(&server, &mut bytes, None).unwrap(), 3);
        // The inode distinguishes this memory from that of other tests.
        let inode = memory.metadata().unwrap().ino();
        let open = std::fs::read_dir("/proc/self/fd").unwrap();
        let same = open.filter_map(|fd| std::fs::metadata(fd.ok()?.path()).ok()).filter(|found| found.ino() == inode);
        assert_eq!(same.count(), 1, "ours alone");
    }

    #[test]
    fn socket_of_the_kernel_has_a_number_by_its_protocol_and_no_other_file_has() {
        let bound = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let [one, same]: [OwnedFd; 2] = [bound.try_clone().unwrap().into(), bound.into()];
        let cookie = cookie_of(&one, Protocol::UDP);
        assert!(cookie.is_some() && cookie_of(&same, Protocol::UDP) == cookie);
        assert_eq!(cookie_of(&one, Protocol::TCP), None);
        let other: OwnedFd = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().into();
        assert_ne!(cookie_of(&other, Protocol::UDP), cookie);
        let (local, _) = std::os::unix::net::UnixDatagram::pair().unwrap();
        for file in [local.into(), memory(1).unwrap().into()] {
            assert_eq!(cookie_of(&file, Protocol::UDP), None);
        }
        assert_eq!(owner_of(one.as_fd()).unwrap(), crate::sys::process::effective_user());
    }

    #[test]
    fn message_that_is_too_long_is_an_error_and_the_next_one_is_whole() {
        let (client, server) = pair();
        send(&client, &[1; 100], &[]).unwrap();
        send(&client, &[2; 8], &[]).unwrap();
        let mut bytes = [0; 8];
        assert_eq!(receive(&server, &mut bytes, None).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert_eq!((receive(&server, &mut bytes, None).unwrap(), bytes), (8, [2; 8]));
        assert_eq!(receive(&server, &mut bytes, None).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn peer_is_this_process_and_its_end_is_seen() {
        let (client, server) = pair();
        let peer = peer(&server).unwrap();
        let own = std::fs::read_to_string("/proc/self/status").unwrap();
        let numbers = |name: &str| -> Vec<u32> {
            let line = own.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.split_ascii_whitespace().map(|number| number.parse().unwrap()).collect()
        };
        assert_eq!((peer.pid, peer.uid), (std::process::id(), numbers("Uid:")[1]));
        assert_eq!(peer.groups, [&numbers("Gid:")[1..2], &numbers("Groups:")].concat());
        let idle = wait(&[server.as_raw_fd()], Duration::ZERO).unwrap();
        assert_eq!((idle, is_closed(&server)), (vec![Events::default()], false));
        drop(client);
        assert!(is_closed(&server));
        assert_eq!(receive(&server, &mut [0; 8], None).unwrap(), 0);
        let alive = crate::sys::process::pidfd_open(std::process::id()).unwrap();
        assert!(!wait(&[alive.as_raw_fd()], Duration::ZERO).unwrap()[0].is_readable);
    }

    #[test]
    fn memory_is_zeroed_and_keeps_its_length() {
        let mut file = memory(8192).unwrap();
        let mut bytes = Vec::new();
        assert_eq!(file.read_to_end(&mut bytes).unwrap(), 8192);
        assert!(bytes.iter().all(|byte| *byte == 0));
        assert!(file.set_len(4096).is_err() && file.set_len(16_384).is_err());
    }

    #[test]
    fn port_of_a_listener_is_not_free() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let std::net::SocketAddr::V4(local) = listener.local_addr().unwrap() else { panic!("IPv4 was bound") };
        assert!(!is_free(local, LOOPBACK).unwrap());
        drop(listener);
        assert!(is_free(local, LOOPBACK).unwrap());
    }

    #[test]
    fn port_that_is_bound_on_another_device_is_free_on_this_one() {
        let test = "port_that_is_bound_on_another_device_is_free_on_this_one";
        let tried = std::thread::spawn(|| {
            leave_namespace()?;
            for words in ["link set lo up", "link add veth0 type veth peer name veth1"] {
                std::process::Command::new("ip").args(words.split(' ')).status()?;
            }
            let device = Interface::find("veth0").unwrap().index;
            let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
            let std::net::SocketAddr::V4(local) = listener.local_addr()? else { panic!("IPv4 was bound") };
            assert!(!is_free(local, device).unwrap(), "it has the port on all");
            set(&listener, libc::SOL_SOCKET, SO_BINDTOIFINDEX, &LOOPBACK)?;
            assert!(is_free(local, device).unwrap() && !is_free(local, LOOPBACK).unwrap());
            io::Result::Ok(())
        });
        if let Err(error) = tried.join().unwrap() {
            println!("SKIPPED {test}: {error}; run as root");
        }
    }

    #[test]
    fn path_that_no_socket_can_have_is_an_error() {
        for path in ["", &"x".repeat(108)] {
            assert_eq!(listen(Path::new(path)).unwrap_err().kind(), io::ErrorKind::InvalidInput);
            assert_eq!(connect(Path::new(path), TIMEOUT).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
    }
}
