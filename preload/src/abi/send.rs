//! The send family.
//!
//! Invariants:
//! 1. Those of `abi`: the types are libc's, and the caller keeps the promises of libc's functions.

use core::ffi::{c_int, c_uint, c_void};
use std::io::IoSlice;

use sockets::Errno;

use super::{give, is_ours, is_ours_file, known, memory, ours, ours_or_pass};
use crate::calls::Outcome;
use crate::calls::data;
use crate::config;
use crate::engine::table::FileId;
use crate::real::{self, Count, fail};

symbols! {
    fn write(fd: c_int, bytes: *const c_void, len: usize) -> Count {
        match ours(fd).and_then(|file| send_one(file, bytes, len, None, 0)) {
            Some(sent) => give(sent),
            None => pass!(real::write(fd, bytes, len)),
        }
    }

    fn writev(fd: c_int, parts: *const libc::iovec, count: c_int) -> Count {
        let file = ours(fd);
        if file.is_some()
            && let Some(ended) = memory::end_of_vector(parts, count)
        {
            return give(ended.map(|()| 0));
        }
        match file.and_then(|file| send_parts(file, parts, count as usize, None, 0)) {
            Some(sent) => give(sent),
            None => pass!(real::writev(fd, parts, count)),
        }
    }

    fn send(fd: c_int, bytes: *const c_void, len: usize, flags: c_int) -> Count {
        match ours(fd).and_then(|file| send_one(file, bytes, len, None, flags)) {
            Some(sent) => give(sent),
            None => pass!(real::sendto(fd, bytes, len, flags, core::ptr::null(), 0)),
        }
    }

    fn sendto(fd: c_int, bytes: *const c_void, len: usize, flags: c_int, address: *const c_void, address_len: u32) -> Count {
        // A send to a destination may offload the socket.
        let is_named = !address.is_null() && address_len > 0;
        let file = if is_named { known(fd) } else { ours(fd) };
        let to = if !is_named { None } else { memory::bytes(address, address_len as usize).ok() };
        match file.and_then(|file| send_one(file, bytes, len, to, flags)) {
            Some(sent) => give(sent),
            None => pass!(real::sendto(fd, bytes, len, flags, address, address_len)),
        }
    }

    fn sendmsg(fd: c_int, message: *const libc::msghdr, flags: c_int) -> Count {
        match known(fd).and_then(|file| send_message(file, message, flags)) {
            Some(sent) => give(sent),
            None if passes_ours(message) => fail(Errno::EINVAL),
            None => pass!(real::sendmsg(fd, message, flags)),
        }
    }

    fn sendmmsg(fd: c_int, messages: *mut libc::mmsghdr, count: c_uint, flags: c_int) -> c_int {
        let file = known(fd);
        let Ok(list) = memory::array_mut(messages, count as usize) else { return fail(Errno(libc::EFAULT)) as c_int };
        let Some(file) = file else {
            if list.iter().any(|entry| passes_ours(&raw const entry.msg_hdr)) {
                return fail(Errno::EINVAL) as c_int;
            }
            return pass!(real::sendmmsg(fd, messages, count, flags));
        };
        for (idx, entry) in list.iter_mut().enumerate() {
            match send_message(file, &raw const entry.msg_hdr, flags) {
                Some(Ok(sent)) => entry.msg_len = sent as c_uint,
                Some(Err(error)) if idx == 0 => return fail(error) as c_int,
                Some(Err(_)) => return idx as c_int,
                None if idx == 0 => return pass!(real::sendmmsg(fd, messages, count, flags)),
                None => return idx as c_int,
            }
        }
        count as c_int
    }

    fn __sendmmsg(fd: c_int, messages: *mut libc::mmsghdr, count: c_uint, flags: c_int) -> c_int {
        pass!(sendmmsg(fd, messages, count, flags))
    }

    fn sendfile(fd: c_int, from: c_int, offset: *mut i64, count: usize) -> Count {
        let Some(file) = ours(fd) else { return pass!(real::sendfile(fd, from, offset, count)) };
        let at = memory::optional(offset).copied();
        match data::send_file(file, from, at, count) {
            Outcome::Ours(Ok(sent)) => {
                if let Some(at) = at {
                    memory::store(offset, at + sent as i64);
                }
                sent as Count
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

/// Whether a message passes a socket of ours to another process (`SCM_RIGHTS`). The other end would
/// get its twin, which nothing of ours reaches.
fn passes_ours(message: *const libc::msghdr) -> bool {
    if !memory::descriptors_in(message).any(is_ours) {
        return false;
    }
    config::say(
        "a socket of wirepath's stays with its process: SCM_RIGHTS of it is refused (EINVAL); have the other process make \
         a socket of its own, or keep this one on the kernel by a rule",
    );
    true
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
        Err(error) => Some(Err(error)),
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
        Ok(parts) => ours_or_pass(data::send(file, parts, to, flags)),
        Err(error) => Some(Err(error)),
    }
}

fn send_message(file: FileId, message: *const libc::msghdr, flags: c_int) -> Option<Result<usize, Errno>> {
    let Some(header) = memory::optional(message) else { return Some(Err(Errno(libc::EFAULT))) };
    if header.msg_controllen > 0 && !header.msg_control.is_null() && is_ours_file(file) {
        // The engine carries no control messages; an error is better than to lose one silently.
        return Some(Err(Errno::EINVAL));
    }
    let to = if header.msg_name.is_null() || header.msg_namelen == 0 {
        None
    } else {
        memory::bytes(header.msg_name, header.msg_namelen as usize).ok()
    };
    send_parts(file, header.msg_iov, header.msg_iovlen, to, flags)
}
