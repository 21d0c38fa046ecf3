//! Slices of the program's memory, made of the pointers and lengths that it passes.
//!
//! Invariants:
//! 1. The program passed each pointer that is not null, and its length, to the call that is under
//!    way: so many bytes are there until the call returns. A null pointer is refused with `EFAULT`,
//!    as by the kernel; any other wrong pointer is a fault of the program, as in libc's own
//!    `memcpy`.
//! 2. `IoSlice` and `IoSliceMut` have the layout of `struct iovec`, as the standard library
//!    documents.
//! 3. A slice lives no longer than the call.

use core::ffi::{c_int, c_void};
use core::slice;
use std::io::{IoSlice, IoSliceMut};

use sockets::Errno;

use crate::address::{self, Family};
use core::net::SocketAddrV4;

/// Buffers in one call at most (`UIO_MAXIOV`).
const PARTS_MAX: usize = 1_024;

const EFAULT: Errno = Errno(libc::EFAULT);

/// Bytes to read.
pub(crate) fn bytes<'a>(from: *const c_void, len: usize) -> Result<&'a [u8], Errno> {
    match (from.is_null(), len) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(EFAULT),
        // SAFETY: invariants 1 and 3.
        (false, len) => Ok(unsafe { slice::from_raw_parts(from.cast(), len.min(isize::MAX as usize)) }),
    }
}

/// Bytes to fill in.
pub(crate) fn bytes_mut<'a>(into: *mut c_void, len: usize) -> Result<&'a mut [u8], Errno> {
    match (into.is_null(), len) {
        (_, 0) => Ok(&mut []),
        (true, _) => Err(EFAULT),
        // SAFETY: invariants 1 and 3.
        (false, len) => Ok(unsafe { slice::from_raw_parts_mut(into.cast(), len.min(isize::MAX as usize)) }),
    }
}

/// An array of structures.
pub(crate) fn array_mut<'a, T>(into: *mut T, count: usize) -> Result<&'a mut [T], Errno> {
    match (into.is_null(), count) {
        (_, 0) => Ok(&mut []),
        (true, _) => Err(EFAULT),
        // SAFETY: invariants 1 and 3.
        (false, count) => Ok(unsafe { slice::from_raw_parts_mut(into, count) }),
    }
}

/// A structure that may be left out.
pub(crate) fn optional<'a, T>(from: *const T) -> Option<&'a T> {
    // SAFETY: invariants 1 and 3.
    unsafe { from.as_ref() }
}

/// The buffers of a send.
pub(crate) fn parts<'a>(parts: *const libc::iovec, count: usize) -> Result<&'a [IoSlice<'a>], Errno> {
    check_parts(parts, count)?;
    // SAFETY: invariants 1 to 3; `check_parts` has checked each part.
    Ok(if count == 0 { &[] } else { unsafe { slice::from_raw_parts(parts.cast(), count) } })
}

/// The buffers of a receive.
pub(crate) fn parts_mut<'a>(parts: *const libc::iovec, count: usize) -> Result<&'a mut [IoSliceMut<'a>], Errno> {
    check_parts(parts, count)?;
    // SAFETY: invariants 1 to 3; the array itself is not written to.
    Ok(if count == 0 { &mut [] } else { unsafe { slice::from_raw_parts_mut(parts.cast_mut().cast(), count) } })
}

/// The checks of `readv` and `writev` before they use the file (Linux `import_iovec`): an invalid
/// count is an error, and a count of 0 returns 0. `recvmsg` and `sendmsg` differ.
pub(crate) fn end_of_vector(parts: *const libc::iovec, count: c_int) -> Option<Result<(), Errno>> {
    let Some(count) = usize::try_from(count).ok().filter(|count| *count <= PARTS_MAX) else {
        return Some(Err(Errno::EINVAL));
    };
    match array_mut(parts.cast_mut(), count) {
        Ok(parts) => parts.iter().all(|part| part.iov_len == 0).then_some(Ok(())),
        Err(error) => Some(Err(error)),
    }
}

/// The descriptors that a message carries (`SCM_RIGHTS`).
pub(crate) fn descriptors_in<'a>(message: *const libc::msghdr) -> impl Iterator<Item = c_int> + 'a {
    let control = optional(message).filter(|message| message.msg_controllen >= CONTROL_HEADER);
    let control = control.and_then(|message| bytes(message.msg_control, message.msg_controllen).ok());
    controls(control.unwrap_or_default())
        .filter(|(level, kind, _)| (*level, *kind) == (libc::SOL_SOCKET, libc::SCM_RIGHTS))
        .flat_map(|(.., value)| value.as_chunks::<4>().0)
        .map(|fd| c_int::from_ne_bytes(*fd))
}

/// Bytes of a `struct cmsghdr`.
const CONTROL_HEADER: usize = size_of::<libc::cmsghdr>();

/// Control messages: level, type, value. The first incomplete one ends them.
pub(crate) fn controls(mut left: &[u8]) -> impl Iterator<Item = (c_int, c_int, &[u8])> {
    core::iter::from_fn(move || {
        let len = usize::from_ne_bytes(left.get(..8)?.try_into().ok()?);
        let [level, kind] = [8, 12].map(|at| left.get(at..at + 4).and_then(|word| word.try_into().ok()));
        let value = left.get(CONTROL_HEADER..len)?;
        left = left.get(len.next_multiple_of(align_of::<usize>())..).unwrap_or_default();
        Some((c_int::from_ne_bytes(level?), c_int::from_ne_bytes(kind?), value))
    })
}

/// Replaces the pointers of empty parts: they may be null, the pointer of a slice may not.
fn check_parts(parts: *const libc::iovec, count: usize) -> Result<(), Errno> {
    if count > PARTS_MAX {
        return Err(Errno::EMSGSIZE);
    }
    for part in array_mut(parts.cast_mut(), count)? {
        if part.iov_base.is_null() && part.iov_len > 0 {
            return Err(EFAULT);
        }
        if part.iov_base.is_null() {
            // Writes to the caller's array; the length of the part stays 0.
            part.iov_base = core::ptr::dangling_mut::<u8>().cast();
        }
    }
    Ok(())
}

/// Stores an address, cut to the caller's room, and its full length.
pub(crate) fn store_address(name: (SocketAddrV4, Family), into: *mut c_void, len: *mut u32) -> Result<(), Errno> {
    if into.is_null() {
        return Ok(());
    }
    let [room] = array_mut(len, 1)? else { return Err(EFAULT) };
    if *room as i32 <= -1 {
        return Err(Errno::EINVAL);
    }
    let (address, address_len) = address::format(name.0, name.1);
    let count = address_len.min(*room as usize);
    bytes_mut(into, count)?.copy_from_slice(&address[..count]);
    *room = address_len as u32;
    Ok(())
}

/// Writes one value where the caller's pointer is not null.
pub(crate) fn store<T>(into: *mut T, value: T) {
    if !into.is_null() {
        // SAFETY: invariant 1.
        unsafe { into.write(value) };
    }
}

/// Stores the control messages of a datagram that the room suffices for, and their length. Returns
/// `MSG_CTRUNC` if one was left out.
pub(crate) fn store_control(
    messages: &[(c_int, c_int, Vec<u8>)],
    into: *mut c_void,
    room: usize,
) -> Result<(usize, c_int), Errno> {
    const HEADER: usize = size_of::<libc::cmsghdr>();
    const ALIGN: usize = align_of::<usize>();
    let into = bytes_mut(into, if into.is_null() { 0 } else { room })?;
    let mut at = 0;
    for (level, kind, value) in messages {
        let len = HEADER + value.len();
        let Some(message) = into.get_mut(at..at + len) else { return Ok((at, libc::MSG_CTRUNC)) };
        message[..8].copy_from_slice(&len.to_ne_bytes());
        message[8..12].copy_from_slice(&level.to_ne_bytes());
        message[12..16].copy_from_slice(&kind.to_ne_bytes());
        message[HEADER..].copy_from_slice(value);
        at = (at + len).next_multiple_of(ALIGN).min(into.len());
    }
    Ok((at, 0))
}
