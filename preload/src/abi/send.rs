//! The send family.
//!
//! Invariants:
//! 1. Those of `abi`: the types are libc's, and the caller keeps the promises of libc's functions.

use core::ffi::{c_int, c_uint, c_void};
use std::io::IoSlice;

use sockets::Errno;

use super::{
    MSG_CMSG_COMPAT, give, is_ours_file, is_refused, known, may_be_ours, memory, our_socket, ours, ours_or_pass,
    vector_flags,
};
use crate::calls::offload::PeerCall;
use crate::calls::{self, Outcome, data, listener};
use crate::config;
use crate::engine::table::FileId;
use crate::real::{self, Count, fail};

/// Messages of one call at most (`UIO_MAXIOV`).
const MESSAGES_MAX: c_uint = 1_024;

symbols! {
    fn write(fd: c_int, bytes: *const c_void, len: usize) -> Count {
        match ours(fd).and_then(|file| send_one(file, bytes, len, None, 0)) {
            Some(sent) => give(sent),
            None => by_kernel(fd, pass!(real::write(fd, bytes, len))),
        }
    }

    fn __write(fd: c_int, bytes: *const c_void, len: usize) -> Count {
        pass!(write(fd, bytes, len))
    }

    fn __send(fd: c_int, bytes: *const c_void, len: usize, flags: c_int) -> Count {
        pass!(send(fd, bytes, len, flags))
    }

    fn pwritev2(fd: c_int, parts: *const libc::iovec, count: c_int, offset: i64, flags: c_int) -> Count {
        let Some(file) = our_socket(fd) else { return pass!(real::pwritev2(fd, parts, count, offset, flags)) };
        match vector_flags(offset, flags, memory::end_of_vector(parts, count)) {
            Ok(None) => 0,
            Ok(Some(flags)) => match send_parts(file, parts, count as usize, None, flags) {
                Some(sent) => give(sent),
                None => by_kernel(fd, pass!(real::pwritev2(fd, parts, count, offset, 0))),
            },
            Err(error) => fail(error),
        }
    }

    fn pwritev64v2(fd: c_int, parts: *const libc::iovec, count: c_int, offset: i64, flags: c_int) -> Count {
        pass!(pwritev2(fd, parts, count, offset, flags))
    }

    fn writev(fd: c_int, parts: *const libc::iovec, count: c_int) -> Count {
        let file = our_socket(fd);
        if file.is_some()
            && let Some(ended) = memory::end_of_vector(parts, count)
        {
            return give(ended.map(|()| 0));
        }
        match file.and_then(|file| send_parts(file, parts, count as usize, None, 0)) {
            Some(sent) => give(sent),
            None => by_kernel(fd, pass!(real::writev(fd, parts, count))),
        }
    }

    fn send(fd: c_int, bytes: *const c_void, len: usize, flags: c_int) -> Count {
        match ours(fd).and_then(|file| send_one(file, bytes, len, None, flags)) {
            Some(sent) => give(sent),
            None => by_kernel(fd, pass!(real::sendto(fd, bytes, len, flags, core::ptr::null(), 0))),
        }
    }

    fn sendto(fd: c_int, bytes: *const c_void, len: usize, flags: c_int, address: *const c_void, address_len: u32) -> Count {
        // A send to a destination may offload the socket.
        let is_named = !address.is_null() && address_len > 0;
        let file = if is_named { sender(fd) } else { ours(fd) };
        let Some(file) = file else {
            if is_named && is_refused(fd, (address, address_len), PeerCall::of_send(flags)) {
                return fail(Errno::EACCES);
            }
            return pass!(real::sendto(fd, bytes, len, flags, address, address_len));
        };
        let to = match is_named.then(|| memory::address_of(address, address_len)).transpose() {
            Ok(to) => to,
            // The kernel refuses it.
            Err(_) => return pass!(real::sendto(fd, bytes, len, flags, address, address_len)),
        };
        match send_one(file, bytes, len, to, flags) {
            Some(sent) => give(sent),
            None => by_kernel(fd, pass!(real::sendto(fd, bytes, len, flags, address, address_len))),
        }
    }

    fn sendmsg(fd: c_int, message: *const libc::msghdr, flags: c_int) -> Count {
        if flags & MSG_CMSG_COMPAT != 0 {
            return fail(Errno::EINVAL);
        }
        let file = sender(fd);
        match file.and_then(|file| send_message(file, message, flags)) {
            Some(sent) => give(sent),
            None if passes_ours(message) => fail(Errno::EINVAL),
            None if file.is_none() && is_refused_message(fd, message, flags) => fail(Errno::EACCES),
            None => {
                let sent = pass!(real::sendmsg(fd, message, flags));
                if sent >= 0 {
                    keep_passed(message);
                }
                by_kernel(fd, sent)
            }
        }
    }

    fn sendmmsg(fd: c_int, messages: *mut libc::mmsghdr, count: c_uint, flags: c_int) -> c_int {
        if flags & MSG_CMSG_COMPAT != 0 {
            return fail(Errno::EINVAL) as c_int;
        }
        let file = sender(fd);
        // As on Linux, what is beyond `MESSAGES_MAX` is for the next call, and a message that is
        // not there is reported by the number of those before it.
        let count = count.min(MESSAGES_MAX);
        let mut list = memory::array_begin(messages, count as usize);
        let Some(file) = file else {
            if list.iter().any(|entry| passes_ours(&raw const entry.msg_hdr)) {
                return fail(Errno::EINVAL) as c_int;
            }
            // Those before the one that a rule refuses are sent.
            let refused = match &*list {
                [] => (count > 0 && is_refused_message(fd, messages.cast(), flags)).then_some(0),
                list => list.iter().position(|entry| is_refused_message(fd, &raw const entry.msg_hdr, flags)),
            };
            // The kernel writes to the program's array, so a copy must not be stored behind it.
            drop(list);
            let count = match refused {
                Some(0) => return fail(Errno::EACCES) as c_int,
                Some(before) => before as c_uint,
                None => count,
            };
            let sent = pass!(real::sendmmsg(fd, messages, count, flags));
            let list = memory::array_begin(messages, usize::try_from(sent).unwrap_or(0));
            list.iter().for_each(|entry| keep_passed(&raw const entry.msg_hdr));
            return sent;
        };
        for (idx, entry) in list.iter_mut().enumerate() {
            match send_message(file, &raw const entry.msg_hdr, flags) {
                Some(Ok(sent)) => entry.msg_len = sent as c_uint,
                Some(Err(error)) if idx == 0 => return fail(error) as c_int,
                Some(Err(_)) => return idx as c_int,
                // This one is the kernel's. The next one may go to a destination of ours, or to one
                // that a rule refuses.
                None => match by_kernel(fd, pass!(real::sendmmsg(fd, core::ptr::from_mut(entry), 1, flags)) as Count) as c_int {
                    1 => (),
                    error if idx == 0 => return error,
                    _ => return idx as c_int,
                },
            }
        }
        if list.is_empty() && count > 0 {
            // One that can only be read is sent all the same.
            return match send_message(file, messages.cast(), flags) {
                Some(sent) => give(sent.and(Err(Errno(libc::EFAULT)))) as c_int,
                None => pass!(real::sendmmsg(fd, messages, count, flags)),
            };
        }
        list.len() as c_int
    }

    fn __sendmmsg(fd: c_int, messages: *mut libc::mmsghdr, count: c_uint, flags: c_int) -> c_int {
        pass!(sendmmsg(fd, messages, count, flags))
    }

    fn sendfile(fd: c_int, from: c_int, offset: *mut i64, count: usize) -> Count {
        let Some(file) = ours(fd) else { return pass!(real::sendfile(fd, from, offset, count)) };
        let at = match memory::optional(offset) {
            Ok(at) => at,
            Err(error) => return fail(error),
        };
        match data::send_file(file, from, at, count) {
            Outcome::Ours(Ok(sent)) => {
                give(at.map_or(Ok(()), |at| memory::store(offset, at + sent as i64)).map(|()| sent))
            }
            Outcome::Ours(Err(error)) => fail(error),
            Outcome::Pass => pass!(real::sendfile(fd, from, offset, count)),
        }
    }

    fn sendfile64(fd: c_int, from: c_int, offset: *mut i64, count: usize) -> Count {
        pass!(sendfile(fd, from, offset, count))
    }

    fn splice(from: c_int, from_offset: *mut i64, to: c_int, to_offset: *mut i64, len: usize, flags: c_uint) -> Count {
        if ours(from).is_some() || ours(to).is_some() {
            return fail(Errno::EINVAL);
        }
        pass!(real::splice(from, from_offset, to, to_offset, len, flags))
    }
}

/// The file of a descriptor that sends to a destination, and may be offloaded by it. One of the
/// parent of this process sends by the kernel, and a sentence says so.
fn sender(fd: c_int) -> Option<FileId> {
    known(fd).or_else(|| ours(fd))
}

/// Whether a rule refuses the destination of a message of a socket of the kernel.
fn is_refused_message(fd: c_int, message: *const libc::msghdr, flags: c_int) -> bool {
    if !config::get().is_some_and(|config| config.may_refuse) {
        return false;
    }
    let Ok(Some(header)) = memory::optional(message) else { return false };
    if header.msg_name.is_null() {
        return false;
    }
    is_refused(fd, (header.msg_name, header.msg_namelen.min(128)), PeerCall::of_send(flags))
}

/// Whether a message passes a socket of ours to another process (`SCM_RIGHTS`) that cannot be one
/// there: the other end would get its twin, which nothing of ours reaches.
fn passes_ours(message: *const libc::msghdr) -> bool {
    let stays = |fd| ours(fd).is_some_and(|file| is_ours_file(file) && !listener::may_be_passed(file));
    if !may_be_ours() || !memory::descriptors_in(message).any(stays) {
        return false;
    }
    config::say(
        "a socket of wirepath's stays with its process: SCM_RIGHTS of it is refused (EINVAL); have the other process make \
         a socket of its own, or keep this one on the kernel by a rule; a listener can be passed where a broker passes \
         frames on (--forward)",
    );
    true
}

/// A message has passed descriptors to another process, which from now on has the same sockets:
/// those whose owner is not decided stay the kernel's.
fn keep_passed(message: *const libc::msghdr) {
    if may_be_ours() {
        memory::descriptors_in(message).filter_map(known).for_each(calls::keep_passed);
    }
}

/// The result of a send that the kernel has made. Of one on a socket of ours that has failed, the
/// library forgets that the kernel has begun a datagram.
#[inline]
fn by_kernel(fd: c_int, sent: Count) -> Count {
    if sent < 0
        && let Some(file) = known(fd)
    {
        let error = real::errno();
        data::note_refusal_of_twin(file);
        return fail(error);
    }
    sent
}

fn send_one(
    file: FileId,
    bytes: *const c_void,
    len: usize,
    to: Option<&[u8]>,
    flags: c_int,
) -> Option<Result<usize, Errno>> {
    match memory::bytes(bytes, len) {
        Ok(bytes) => ours_or_pass(data::send(file, &[IoSlice::new(bytes)], to, flags)),
        Err(error) => ours_or_pass(data::send_what_is_not_there(file, to, flags, error)),
    }
}

fn send_parts(
    file: FileId,
    parts: *const libc::iovec,
    count: usize,
    to: Option<&[u8]>,
    flags: c_int,
) -> Option<Result<usize, Errno>> {
    match memory::parts(parts, count) {
        Ok(parts) => ours_or_pass(data::send(file, &parts, to, flags)),
        Err(error) => ours_or_pass(data::send_what_is_not_there(file, to, flags, error)),
    }
}

fn send_message(file: FileId, message: *const libc::msghdr, flags: c_int) -> Option<Result<usize, Errno>> {
    let Ok(Some(header)) = memory::optional(message) else { return Some(Err(Errno(libc::EFAULT))) };
    if header.msg_controllen > i32::MAX as usize {
        return Some(Err(Errno::ENOBUFS));
    }
    let control = match memory::bytes(header.msg_control, header.msg_controllen) {
        Ok(control) => control,
        Err(error) => return Some(Err(error)),
    };
    let to = if header.msg_name.is_null() || header.msg_namelen == 0 {
        None
    } else {
        // A longer length is cut (Linux `__copy_msghdr`).
        let name = usize::try_from(header.msg_namelen as i32).map_err(|_| Errno::EINVAL);
        match name.and_then(|len| memory::address_of(header.msg_name, len.min(128) as u32)) {
            Ok(to) => Some(to),
            Err(error) => return Some(Err(error)),
        }
    };
    match memory::parts(header.msg_iov, header.msg_iovlen) {
        Ok(parts) => ours_or_pass(data::send_controlled(file, &parts, to, flags, control)),
        // The array of buffers is read before the socket is looked at, and the buffers afterwards.
        Err(error) if memory::is_vector(header.msg_iov, header.msg_iovlen) => {
            ours_or_pass(data::send_what_is_not_there(file, to, flags, error))
        }
        Err(error) => Some(Err(error)),
    }
}
