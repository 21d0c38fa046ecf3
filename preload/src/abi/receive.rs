//! The receive family.
//!
//! Invariants:
//! 1. Those of `abi`: the types are libc's, and the caller keeps the promises of libc's functions.

use core::ffi::{c_int, c_uint, c_void};
use core::time::Duration;
use std::io::IoSliceMut;
use std::time::Instant;

use sockets::{ControlMessage, Errno};

use super::polling::duration_of;
use super::{
    MSG_CMSG_COMPAT, check_room, give, is_ours, known, made, may_be_ours, memory, our_socket, ours, ours_or_pass,
    vector_flags,
};
use crate::calls::data::{self, Batch, Received};
use crate::calls::{error_queue, listener};
use crate::engine::table::{self, FileId};
use crate::engine::thread;
use crate::real::{self, Count, fail};

symbols! {
    fn read(fd: c_int, into: *mut c_void, len: usize) -> Count {
        // Unlike `recv`, a `read` of 0 bytes neither waits nor takes a datagram (Linux
        // `sock_read_iter`): the twin returns the same.
        let file = match receiver(fd, if len > 0 { 0 } else { libc::MSG_DONTWAIT }, || pass!(read(fd, into, len))) {
            Ok(file) => file,
            Err(done) => return done,
        };
        match file.filter(|_| len > 0).and_then(|file| receive_one(file, into, len, 0)) {
            Some(received) => give(received.map(|received| received.len)),
            None if len > 0 && is_ours(fd) => from_twin(|| pass!(recv(fd, into, len, 0)), |flags| {
                pass!(real::recvfrom(fd, into, len, flags, core::ptr::null_mut(), core::ptr::null_mut()))
            }),
            None => pass!(real::read(fd, into, len)),
        }
    }

    fn __read_chk(fd: c_int, into: *mut c_void, len: usize, room: usize) -> Count {
        check_room(len, room);
        pass!(read(fd, into, len))
    }

    fn __read(fd: c_int, into: *mut c_void, len: usize) -> Count {
        pass!(read(fd, into, len))
    }

    fn preadv2(fd: c_int, parts: *const libc::iovec, count: c_int, offset: i64, flags: c_int) -> Count {
        let Some(file) = our_socket(fd) else { return pass!(real::preadv2(fd, parts, count, offset, flags)) };
        match vector_flags(offset, flags, memory::end_of_vector(parts, count)) {
            Ok(None) => 0,
            Ok(Some(0)) => pass!(readv(fd, parts, count)),
            Ok(Some(flags)) => match receive_parts(file, parts, count as usize, flags) {
                Some(received) => give(received.map(|received| received.len)),
                None => pass!(real::preadv2(fd, parts, count, offset, libc::RWF_NOWAIT)),
            },
            Err(error) => fail(error),
        }
    }

    fn preadv64v2(fd: c_int, parts: *const libc::iovec, count: c_int, offset: i64, flags: c_int) -> Count {
        pass!(preadv2(fd, parts, count, offset, flags))
    }

    fn readv(fd: c_int, parts: *const libc::iovec, count: c_int) -> Count {
        let file = match receiver(fd, 0, || pass!(readv(fd, parts, count))) {
            Ok(file) => file.filter(|file| !file.is_set()),
            Err(done) => return done,
        };
        if file.is_some()
            && let Some(ended) = memory::end_of_vector(parts, count)
        {
            return give(ended.map(|()| 0));
        }
        match file.and_then(|file| receive_parts(file, parts, count as usize, 0)) {
            Some(received) => give(received.map(|received| received.len)),
            None if is_ours(fd) => from_twin(|| pass!(readv(fd, parts, count)), |flags| {
                let mut message = message_of(parts, count as usize);
                pass!(real::recvmsg(fd, &raw mut message, flags))
            }),
            None => pass!(real::readv(fd, parts, count)),
        }
    }

    fn recv(fd: c_int, into: *mut c_void, len: usize, flags: c_int) -> Count {
        let file = match receiver(fd, flags, || pass!(recv(fd, into, len, flags))) {
            Ok(file) => file,
            Err(done) => return done,
        };
        match file.and_then(|file| receive_one(file, into, len, flags)) {
            Some(received) => give(received.map(|received| received.len)),
            None if is_ours(fd) && flags & libc::MSG_DONTWAIT == 0 => from_twin(|| pass!(recv(fd, into, len, flags)), |more| {
                pass!(real::recvfrom(fd, into, len, flags | more, core::ptr::null_mut(), core::ptr::null_mut()))
            }),
            None => pass!(real::recvfrom(fd, into, len, flags, core::ptr::null_mut(), core::ptr::null_mut())),
        }
    }

    fn __recv_chk(fd: c_int, into: *mut c_void, len: usize, room: usize, flags: c_int) -> Count {
        check_room(len, room);
        pass!(recv(fd, into, len, flags))
    }

    fn recvfrom(fd: c_int, into: *mut c_void, len: usize, flags: c_int, address: *mut c_void, address_len: *mut u32) -> Count {
        let file = match receiver(fd, flags, || pass!(recvfrom(fd, into, len, flags, address, address_len))) {
            Ok(file) => file,
            Err(done) => return done,
        };
        match file.and_then(|file| receive_one(file, into, len, flags)) {
            Some(Ok(received)) => give(store_source(&received, address, address_len).map(|()| received.len)),
            Some(Err(error)) => fail(error),
            None if is_ours(fd) && flags & libc::MSG_DONTWAIT == 0 => {
                from_twin(|| pass!(recvfrom(fd, into, len, flags, address, address_len)), |more| {
                    pass!(real::recvfrom(fd, into, len, flags | more, address, address_len))
                })
            }
            None => pass!(real::recvfrom(fd, into, len, flags, address, address_len)),
        }
    }

    fn __recvfrom_chk(fd: c_int, into: *mut c_void, len: usize, room: usize, flags: c_int, address: *mut c_void, address_len: *mut u32) -> Count {
        check_room(len, room);
        pass!(recvfrom(fd, into, len, flags, address, address_len))
    }

    fn recvmsg(fd: c_int, message: *mut libc::msghdr, flags: c_int) -> Count {
        if flags & MSG_CMSG_COMPAT != 0 {
            return fail(Errno::EINVAL);
        }
        let file = match receiver(fd, flags, || pass!(recvmsg(fd, message, flags))) {
            Ok(file) => file,
            Err(done) => return done,
        };
        match file.and_then(|file| receive_message(file, message, flags)) {
            Some(received) => give(received),
            None if is_ours(fd) && flags & libc::MSG_DONTWAIT == 0 => {
                from_twin(|| pass!(recvmsg(fd, message, flags)), |more| pass!(real::recvmsg(fd, message, flags | more)))
            }
            None => {
                let received = pass!(real::recvmsg(fd, message, flags));
                if received >= 0 {
                    // Those of a broker are the engine's own, and move as those that it makes.
                    // SAFETY: the kernel has just filled in the caller's message.
                    unsafe { memory::renumber_descriptors(message, made) };
                    adopt_listeners(message);
                }
                received
            }
        }
    }

    fn recvmmsg(fd: c_int, messages: *mut libc::mmsghdr, count: c_uint, flags: c_int, timeout: *mut libc::timespec) -> c_int {
        if flags & MSG_CMSG_COMPAT != 0 {
            return fail(Errno::EINVAL) as c_int;
        }
        let file = match receiver(fd, flags, || pass!(recvmmsg(fd, messages, count, flags, timeout)) as Count) {
            Ok(file) => file,
            Err(done) => return done as c_int,
        };
        let Some(file) = file else {
            let received = pass!(real::recvmmsg(fd, messages, count, flags, timeout));
            let list = memory::array_begin(messages, usize::try_from(received).unwrap_or(0));
            list.iter().for_each(|entry| adopt_listeners(&raw const entry.msg_hdr));
            return received;
        };
        let time = memory::optional(timeout).and_then(|time| duration_of(time.as_ref()));
        let began = Instant::now();
        let waits_for_one = flags & libc::MSG_WAITFORONE != 0;
        let each = Each { fd, file, flags: flags & !libc::MSG_WAITFORONE, waits_for_one };
        match receive_messages(each, messages, count as usize, time) {
            // The kernel stores the time that is left, where it has received some.
            Some(Ok(received @ 1..)) => {
                let left = time.ok().flatten().unwrap_or_default().saturating_sub(began.elapsed());
                let (seconds, nanoseconds) = (left.as_secs() as libc::time_t, left.subsec_nanos().into());
                let left = libc::timespec { tv_sec: seconds, tv_nsec: nanoseconds };
                give(memory::store(timeout, left).map(|()| received)) as c_int
            }
            Some(received) => give(received) as c_int,
            None => pass!(real::recvmmsg(fd, messages, count, flags, timeout)),
        }
    }
}

/// How each message of `recvmmsg` is received.
#[derive(Clone, Copy)]
struct Each {
    fd: c_int,
    file: FileId,
    flags: c_int,
    /// Only for the first one (`MSG_WAITFORONE`).
    waits_for_one: bool,
}

/// Takes over listeners that another process has passed to this one (`SCM_RIGHTS`).
fn adopt_listeners(message: *const libc::msghdr) {
    if may_be_ours() {
        memory::descriptors_in(message).for_each(listener::adopt);
    }
}

/// The file of an offloaded descriptor, for a call that receives; `Err` with the result of one that
/// is over.
#[inline]
fn receiver(fd: c_int, flags: c_int, again: impl FnOnce() -> Count) -> Result<Option<FileId>, Count> {
    match ours(fd) {
        Some(file) => Ok(Some(file)),
        None => after_offload(fd, flags, again).map_or(Ok(None), Err),
    }
}

/// Where the call is the kernel's so far, and would wait in it, on a socket that another thread may
/// offload meanwhile: waits for that here, and then makes the call `again`. `Some` with the result
/// of a call that is over.
#[inline]
fn after_offload(fd: c_int, flags: c_int, again: impl FnOnce() -> Count) -> Option<Count> {
    match data::await_owner(known(fd)?, flags) {
        Ok(()) => table::find_ours(fd).map(|_| thread::resume(again)),
        Err(error) => Some(fail(error)),
    }
}

/// Receives from the twin without waiting. If another thread was faster, the call begins again, so
/// that it waits for both the engine and the kernel.
fn from_twin(again: impl FnOnce() -> Count, take: impl FnOnce(c_int) -> Count) -> Count {
    let taken = take(libc::MSG_DONTWAIT);
    if taken < 0 && real::errno() == Errno::EAGAIN { thread::resume(again) } else { taken }
}

/// The `msghdr` of a receive that has only buffers.
fn message_of(parts: *const libc::iovec, count: usize) -> libc::msghdr {
    // SAFETY: a structure of integers, and of pointers that may be null.
    let empty: libc::msghdr = unsafe { core::mem::zeroed() };
    libc::msghdr { msg_iov: parts.cast_mut(), msg_iovlen: count, ..empty }
}

fn receive_one(file: FileId, into: *mut c_void, len: usize, flags: c_int) -> Option<Result<Received, Errno>> {
    match memory::room(into, len) {
        Ok(into) => ours_or_pass(data::receive(file, &mut [IoSliceMut::new(into)], flags)),
        Err(error) => Some(Err(error)),
    }
}

fn receive_parts(
    file: FileId,
    parts: *const libc::iovec,
    count: usize,
    flags: c_int,
) -> Option<Result<Received, Errno>> {
    match memory::parts_mut(parts, count) {
        Ok(mut parts) => ours_or_pass(data::receive(file, &mut parts, flags)),
        Err(error) => Some(Err(error)),
    }
}

fn receive_message(file: FileId, message: *mut libc::msghdr, flags: c_int) -> Option<Result<usize, Errno>> {
    let Ok(mut header) = memory::array_mut(message, 1) else {
        // One that can only be read: the kernel receives, and then cannot store what came with it.
        let Ok(Some(mut header)) = memory::optional(message) else { return Some(Err(Errno(libc::EFAULT))) };
        return Some(receive_message(file, &raw mut header, flags)?.and(Err(Errno(libc::EFAULT))));
    };
    let header = &mut header[0];
    if flags & libc::MSG_ERRQUEUE != 0 {
        return receive_error(file, header);
    }
    let received = match receive_parts(file, header.msg_iov, header.msg_iovlen, flags)? {
        Ok(received) => received,
        Err(error) => return Some(Err(error)),
    };
    let control = if received.has_control { data::control(file, &received) } else { Vec::new() };
    Some(store_message(header, &received, &control).map(|()| received.len))
}

/// Stores in the program's structure what came beside the bytes.
fn store_message(header: &mut libc::msghdr, received: &Received, control: &[ControlMessage]) -> Result<(), Errno> {
    header.msg_flags = received.flags;
    match received.info {
        Some(_) => store_source(received, header.msg_name, &raw mut header.msg_namelen)?,
        None => header.msg_namelen = 0,
    }
    let (mut len, mut flags) = (0, 0);
    // The end of a stream has no control messages, and where there is no room for those of its
    // bytes they are lost.
    if !control.is_empty() && (received.info.is_some() || (received.len > 0 && header.msg_controllen > 0)) {
        (len, flags) = memory::store_control(control, header.msg_control, header.msg_controllen)?;
    }
    header.msg_flags |= flags;
    header.msg_controllen = len;
    Ok(())
}

/// Receives an entry of the error queue.
fn receive_error(file: FileId, header: &mut libc::msghdr) -> Option<Result<usize, Errno>> {
    let taken = match memory::parts_mut(header.msg_iov, header.msg_iovlen) {
        Ok(mut parts) => error_queue::receive(file, &mut parts)?,
        Err(error) => return Some(Err(error)),
    };
    let received = match taken {
        Ok(received) => received,
        Err(error) => return Some(Err(error)),
    };
    header.msg_flags = libc::MSG_ERRQUEUE | if received.is_cut { libc::MSG_TRUNC } else { 0 };
    let named = match received.destination {
        Some(name) => memory::store_address((name, received.family), header.msg_name, &raw mut header.msg_namelen),
        None => {
            header.msg_namelen = 0;
            Ok(())
        }
    };
    let stored = memory::store_control(&received.control, header.msg_control, header.msg_controllen);
    Some(named.and(stored).map(|(len, flags)| {
        header.msg_controllen = len;
        header.msg_flags |= flags;
        received.len
    }))
}

/// Receives as many datagrams as there are messages, or those that have arrived. `None` if the
/// socket is no longer ours.
fn receive_messages(
    each: Each,
    messages: *mut libc::mmsghdr,
    count: usize,
    time: Result<Option<Duration>, Errno>,
) -> Option<Result<usize, Errno>> {
    let time = match time {
        Ok(time) => time,
        Err(error) => return Some(Err(error)),
    };
    let Each { file, flags, waits_for_one, .. } = each;
    // Linux `do_recvmmsg` looks for an error before it looks for messages.
    if flags & libc::MSG_ERRQUEUE == 0
        && let Some(error) = data::take_error(file)
    {
        return Some(Err(error));
    }
    // The kernel reports a message that is not there by the number of those before it.
    let mut list = memory::array_begin(messages, count);
    if list.is_empty() && count > 0 {
        let received = receive_message(file, messages.cast(), flags)?;
        return Some(received.and(Err(Errno(libc::EFAULT))));
    }
    let deadline = time.and_then(|time| Instant::now().checked_add(time));
    let mut count = 0;
    while count < list.len() {
        match receive_of_either(each, &mut list[count]) {
            Some(Ok(())) => (),
            Some(Err(error)) if count == 0 => return Some(Err(error)),
            None if count == 0 => return None,
            Some(Err(error)) => {
                data::report_after_others(file, error);
                break;
            }
            None => break,
        }
        count += 1;
        if flags & (libc::MSG_ERRQUEUE | libc::MSG_PEEK | libc::MSG_WAITALL) == 0 {
            let (more, error) = receive_waiting(file, &mut list[count..], flags);
            count += more;
            if let Some(error) = error {
                data::report_after_others(file, error);
                break;
            }
        }
        // As on Linux, the deadline is checked after a datagram, never before.
        let is_over = deadline.is_some_and(|deadline| Instant::now() >= deadline);
        if is_over || waits_for_one || flags & libc::MSG_DONTWAIT != 0 {
            break;
        }
    }
    Some(Ok(count))
}

/// Receives one message of ours, or of the twin where that has the next one. `None` if the socket
/// is no longer ours.
fn receive_of_either(each: Each, entry: &mut libc::mmsghdr) -> Option<Result<(), Errno>> {
    let Each { fd, file, flags, .. } = each;
    let mut received = receive_message(file, &raw mut entry.msg_hdr, flags);
    loop {
        match received {
            Some(received) => return Some(received.map(|len| entry.msg_len = len as c_uint)),
            None if !is_ours(fd) => return None,
            None => (),
        }
        let at_once = flags | libc::MSG_DONTWAIT;
        match pass!(real::recvmmsg(fd, core::ptr::from_mut(entry), 1, at_once, core::ptr::null_mut())) {
            1 => return Some(Ok(())),
            _ if real::errno() != Errno::EAGAIN => return Some(Err(real::errno())),
            // Another thread was faster.
            _ => received = thread::resume(|| receive_message(file, &raw mut entry.msg_hdr, flags)),
        }
    }
}

/// Receives datagrams that have arrived, under one lock. Returns how many, and the error that ends
/// the call. What is odd about a message is left to the call for that message.
fn receive_waiting(file: FileId, list: &mut [libc::mmsghdr], flags: c_int) -> (usize, Option<Errno>) {
    if list.is_empty() {
        return (0, None);
    }
    let Some(mut batch) = Batch::begin(file) else { return (0, None) };
    for (idx, entry) in list.iter_mut().enumerate() {
        let header = &mut entry.msg_hdr;
        let Ok(mut parts) = memory::parts_mut(header.msg_iov, header.msg_iovlen) else { return (idx, None) };
        let received = match batch.receive(&mut parts, flags) {
            Ok(received) => received,
            Err(error) => return (idx, Some(error).filter(|error| *error != Errno::EAGAIN)),
        };
        let control = if received.has_control { batch.control(&received) } else { Vec::new() };
        if store_message(header, &received, &control).is_err() {
            return (idx, None);
        }
        entry.msg_len = received.len as c_uint;
    }
    (list.len(), None)
}

fn store_source(received: &Received, address: *mut c_void, len: *mut u32) -> Result<(), Errno> {
    match received.name {
        Some(name) => memory::store_address((name, received.family), address, len),
        None if address.is_null() => Ok(()),
        // A stream stores no address.
        None => memory::array_mut(len, 1).map(|mut len| len[0] = 0),
    }
}
