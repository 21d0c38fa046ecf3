//! Slices of the program's memory, made of the pointers and lengths that it passes.
//!
//! A wrong pointer is refused with `EFAULT`, as by the kernel: each range is probed before it is
//! used. The buffers of a receive are probed once the bytes for them are there (`calls::data`),
//! because only so many are written. Memory that another thread unmaps during the call is a fault
//! of the program, and so is a wrong pointer while the thread blocks `SIGSEGV`.
//!
//! Invariants:
//! 1. A slice is made of a range that was probed, or is probed before it is written to. The program
//!    leaves it in place until the call returns.
//! 2. `IoSlice` and `IoSliceMut` have the layout of `struct iovec`, as the standard library
//!    documents.
//! 3. A slice lives no longer than the call.

use core::ffi::{c_int, c_void};
use core::ops::{Deref, DerefMut};
use core::slice;
use std::borrow::Cow;
use std::io::{IoSlice, IoSliceMut};

use sockets::Errno;

use crate::address::{self, Family};
use crate::probe;
use core::net::SocketAddrV4;

/// Buffers in one call at most (`UIO_MAXIOV`).
const PARTS_MAX: usize = 1_024;

/// Bytes of one call at most (Linux `MAX_RW_COUNT`).
const CALL_MAX: usize = 0x7fff_f000;

/// Bytes of a `struct sockaddr_storage`.
const ADDRESS_MAX: usize = 128;

const EFAULT: Errno = Errno(libc::EFAULT);

/// Bytes to read.
pub(crate) fn bytes<'a>(from: *const c_void, len: usize) -> Result<&'a [u8], Errno> {
    let len = len.min(CALL_MAX);
    match probe::readable_len(from, len) {
        _ if len == 0 => Ok(&[]),
        // SAFETY: invariants 1 and 3.
        count if count == len => Ok(unsafe { slice::from_raw_parts(from.cast(), len) }),
        _ => Err(EFAULT),
    }
}

/// Bytes to fill in.
pub(crate) fn bytes_mut<'a>(into: *mut c_void, len: usize) -> Result<&'a mut [u8], Errno> {
    match probe::writable_len(into, len) {
        _ if len == 0 => Ok(&mut []),
        // SAFETY: invariants 1 and 3.
        count if count == len => Ok(unsafe { slice::from_raw_parts_mut(into.cast(), len) }),
        _ => Err(EFAULT),
    }
}

/// The buffer of a receive, not probed yet.
pub(crate) fn room<'a>(into: *mut c_void, len: usize) -> Result<&'a mut [u8], Errno> {
    let len = len.min(CALL_MAX);
    if !probe::is_of_programs(into, len) {
        return Err(EFAULT);
    }
    let into = if into.is_null() { core::ptr::dangling_mut::<u8>() } else { into.cast() };
    // SAFETY: invariants 1 and 3; a dangling pointer fails the probe.
    Ok(unsafe { slice::from_raw_parts_mut(into, len) })
}

/// An address that is passed to a call.
pub(crate) fn address_of<'a>(from: *const c_void, len: u32) -> Result<&'a [u8], Errno> {
    match len as usize {
        ..=ADDRESS_MAX => bytes(from, len as usize),
        _ => Err(Errno::EINVAL),
    }
}

/// The value of an option. It may name more room than it has, as the kernel reads no more than it
/// needs.
pub(crate) fn value_of<'a>(from: *const c_void, len: u32) -> Result<&'a [u8], Errno> {
    const NEEDED: usize = 128;
    const LONGEST: usize = 64 << 10;
    let len = usize::try_from(len as i32).map_err(|_| Errno::EINVAL)?.min(LONGEST);
    match probe::readable_len(from, len) {
        _ if len == 0 => Ok(&[]),
        // SAFETY: invariants 1 and 3.
        count if count >= len.min(NEEDED) => Ok(unsafe { slice::from_raw_parts(from.cast(), count) }),
        _ => Err(EFAULT),
    }
}

/// The bytes that are there to read, from the begin of a range.
pub(crate) fn begin_of<'a>(from: *const c_void, len: usize) -> &'a [u8] {
    match probe::readable_len(from, len) {
        0 => &[],
        // SAFETY: invariants 1 and 3.
        count => unsafe { slice::from_raw_parts(from.cast(), count) },
    }
}

/// Structures of a call: the program's own, or a copy of them. Of an array that is not aligned,
/// which is no error of the kernel's, the results are stored when the copy is dropped.
pub(crate) enum Array<'a, T> {
    Given(&'a mut [T]),
    /// The copy, and what it is of, unless that is only read.
    Copied(Vec<T>, Option<Original<T>>),
}

/// An array that is not aligned, as it was when it was copied. Only what the call has changed is
/// stored: another thread may have written the rest meanwhile.
pub(crate) struct Original<T> {
    at: *mut T,
    before: Vec<T>,
    store: unsafe fn(&T, &T, *mut T),
}

/// A structure in which the kernel writes some fields.
pub(crate) trait Results: Copy {
    /// Stores those that are not as before.
    ///
    /// # Safety
    /// There is one at `into`, which need not be aligned.
    unsafe fn store(&self, before: &Self, into: *mut Self);
}

macro_rules! results {
    ($($of:ty: $($($field:ident).+),+;)+) => {$(
        impl Results for $of {
            unsafe fn store(&self, before: &Self, into: *mut Self) {
                $(
                    let (now, then) = (self.$($field).+, before.$($field).+);
                    if now != then {
                        // SAFETY: the caller's promise; a field of what is there.
                        unsafe { (&raw mut (*into).$($field).+).write_unaligned(now) };
                    }
                )+
            }
        }
    )+};
}

results! {
    libc::pollfd: revents;
    libc::epoll_event: events, u64;
    libc::msghdr: msg_namelen, msg_controllen, msg_flags;
    libc::mmsghdr: msg_hdr.msg_namelen, msg_hdr.msg_controllen, msg_hdr.msg_flags, msg_len;
}

macro_rules! numbers {
    ($($of:ty),+) => {$(
        impl Results for $of {
            unsafe fn store(&self, before: &Self, into: *mut Self) {
                if self != before {
                    // SAFETY: the caller's promise.
                    unsafe { into.write_unaligned(*self) };
                }
            }
        }
    )+};
}

numbers!(c_int, u32, u64);

impl<T> Deref for Array<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match self {
            Self::Given(list) => list,
            Self::Copied(list, _) => list,
        }
    }
}

impl<T> DerefMut for Array<'_, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match self {
            Self::Given(list) => list,
            Self::Copied(list, _) => list,
        }
    }
}

impl<T> Drop for Array<'_, T> {
    fn drop(&mut self) {
        let Self::Copied(list, Some(Original { at, before, store })) = self else { return };
        for (idx, (now, before)) in list.iter().zip(before).enumerate() {
            // SAFETY: invariants 1 and 3; there are as many as were copied.
            unsafe { store(now, before, at.add(idx)) };
        }
    }
}

/// An array of structures.
pub(crate) fn array_mut<'a, T: Results>(into: *mut T, count: usize) -> Result<Array<'a, T>, Errno> {
    match array_begin(into, count) {
        list if list.len() == count => Ok(list),
        _ => Err(EFAULT),
    }
}

/// The structures of an array that are there, from its begin.
pub(crate) fn array_begin<'a, T: Results>(into: *mut T, count: usize) -> Array<'a, T> {
    match probe::writable_len(into.cast(), count.saturating_mul(size_of::<T>())) / size_of::<T>() {
        0 => Array::Given(&mut []),
        // SAFETY: invariants 1 and 3; the pointer is aligned.
        count if into.is_aligned() => Array::Given(unsafe { slice::from_raw_parts_mut(into, count) }),
        count => {
            // SAFETY: invariants 1 and 3.
            let list = unsafe { copy_of(into, count) };
            Array::Copied(list.clone(), Some(Original { at: into, before: list, store: T::store }))
        }
    }
}

/// A copy of structures that need not be aligned.
///
/// # Safety
/// So many are there.
unsafe fn copy_of<T: Copy>(from: *const T, count: usize) -> Vec<T> {
    // SAFETY: each index is below the count.
    (0..count).map(|idx| unsafe { from.add(idx).read_unaligned() }).collect()
}

/// A structure that may be left out.
pub(crate) fn optional<T: Copy>(from: *const T) -> Result<Option<T>, Errno> {
    if from.is_null() {
        return Ok(None);
    }
    bytes(from.cast(), size_of::<T>())?;
    // SAFETY: invariants 1 and 3.
    Ok(Some(unsafe { from.read_unaligned() }))
}

/// The buffers of a send.
pub(crate) fn parts<'a>(parts: *const libc::iovec, count: usize) -> Result<Array<'a, IoSlice<'a>>, Errno> {
    let list = check_parts(parts, count)?;
    for part in &*list {
        bytes(part.iov_base, part.iov_len)?;
    }
    // SAFETY: `check_parts` has checked each part.
    Ok(unsafe { slices(list) })
}

/// The buffers of a receive, not probed yet.
pub(crate) fn parts_mut<'a>(parts: *const libc::iovec, count: usize) -> Result<Array<'a, IoSliceMut<'a>>, Errno> {
    // SAFETY: `check_parts` has checked each part.
    check_parts(parts, count).map(|list| unsafe { slices(list) })
}

/// Whether an array of buffers is there, whose buffers may not be.
pub(crate) fn is_vector(parts: *const libc::iovec, count: usize) -> bool {
    check_parts(parts, count).is_ok()
}

/// The slices of an array of buffers. A null pointer becomes a dangling one in a copy, because the
/// pointer of a slice is never null.
///
/// # Safety
/// `T` is `IoSlice` or `IoSliceMut`, and no part is longer than a slice may be.
unsafe fn slices<'a, T>(list: Cow<'a, [libc::iovec]>) -> Array<'a, T> {
    const { assert!(size_of::<T>() == size_of::<libc::iovec>()) };
    if list.is_empty() {
        return Array::Given(&mut []);
    }
    if let Cow::Borrowed(list) = list
        && list.iter().all(|part| !part.iov_base.is_null())
    {
        // SAFETY: invariants 1 to 3; the array itself is not written to.
        return Array::Given(unsafe { slice::from_raw_parts_mut(list.as_ptr().cast_mut().cast(), list.len()) });
    }
    let whole = |part: &libc::iovec| {
        let iov_base = if part.iov_base.is_null() { core::ptr::dangling_mut::<u8>().cast() } else { part.iov_base };
        let part = libc::iovec { iov_base, ..*part };
        // SAFETY: invariants 1 to 3; a dangling pointer of a longer part fails the probe.
        unsafe { (&raw const part).cast::<T>().read() }
    };
    Array::Copied(list.iter().map(whole).collect(), None)
}

/// The checks of `readv` and `writev` before they use the file (Linux `import_iovec`): an invalid
/// count is an error, and a count of 0 returns 0. `recvmsg` and `sendmsg` differ.
pub(crate) fn end_of_vector(parts: *const libc::iovec, count: c_int) -> Option<Result<(), Errno>> {
    let Some(count) = usize::try_from(count).ok().filter(|count| *count <= PARTS_MAX) else {
        return Some(Err(Errno::EINVAL));
    };
    match vector(parts, count) {
        Ok(parts) => parts.iter().all(|part| part.iov_len == 0).then_some(Ok(())),
        Err(error) => Some(Err(error)),
    }
}

/// The descriptors that a message carries (`SCM_RIGHTS`).
pub(crate) fn descriptors_in<'a>(message: *const libc::msghdr) -> impl Iterator<Item = c_int> + 'a {
    numbers_in(message).map(|number| c_int::from_ne_bytes(*number))
}

/// Gives the descriptors that a message has just brought the numbers that `change` returns.
///
/// # Safety
/// The kernel has filled in the message, whose memory for control messages is the caller's.
pub(crate) unsafe fn renumber_descriptors(message: *const libc::msghdr, change: impl Fn(c_int) -> c_int) {
    let places: Vec<usize> = numbers_in(message).map(|number| number.as_ptr().addr()).collect();
    let Some(message) = optional(message).ok().flatten() else { return };
    for place in places {
        // SAFETY: the place is one of four bytes within the control messages, which the kernel has
        // written; no reference to them is left.
        unsafe {
            let number = message.msg_control.with_addr(place).cast::<c_int>();
            number.write_unaligned(change(number.read_unaligned()));
        }
    }
}

fn numbers_in<'a>(message: *const libc::msghdr) -> impl Iterator<Item = &'a [u8; 4]> + 'a {
    let control = optional(message).ok().flatten().filter(|message| message.msg_controllen >= CONTROL_HEADER);
    let control = control.and_then(|message| bytes(message.msg_control, message.msg_controllen).ok());
    controls(control.unwrap_or_default())
        .filter(|(level, kind, _)| (*level, *kind) == (libc::SOL_SOCKET, libc::SCM_RIGHTS))
        .flat_map(|(.., value)| value.as_chunks::<4>().0)
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

/// The array of buffers, whose lengths and addresses a program can have (Linux `import_iovec`).
fn check_parts<'a>(parts: *const libc::iovec, count: usize) -> Result<Cow<'a, [libc::iovec]>, Errno> {
    if count > PARTS_MAX {
        return Err(Errno::EMSGSIZE);
    }
    let list = vector(parts, count)?;
    for part in &*list {
        if part.iov_len > isize::MAX as usize {
            return Err(Errno::EINVAL);
        }
        if !probe::is_of_programs(part.iov_base, part.iov_len) {
            return Err(EFAULT);
        }
    }
    Ok(list)
}

/// An array of buffers; a copy of one that is not aligned.
fn vector<'a>(from: *const libc::iovec, count: usize) -> Result<Cow<'a, [libc::iovec]>, Errno> {
    bytes(from.cast(), count * size_of::<libc::iovec>())?;
    match count {
        0 => Ok(Cow::Borrowed(&[])),
        // SAFETY: invariants 1 and 3; the pointer is aligned.
        _ if from.is_aligned() => Ok(Cow::Borrowed(unsafe { slice::from_raw_parts(from, count) })),
        // SAFETY: invariants 1 and 3.
        _ => Ok(Cow::Owned(unsafe { copy_of(from, count) })),
    }
}

/// Stores an address that the caller may not want.
pub(crate) fn store_address(name: (SocketAddrV4, Family), into: *mut c_void, len: *mut u32) -> Result<(), Errno> {
    if into.is_null() { Ok(()) } else { store_name(name, into, len) }
}

/// The same of an address of any family, as the kernel has told it.
pub(crate) fn store_bytes_of_address(name: &[u8], into: *mut c_void, len: *mut u32) -> Result<(), Errno> {
    if into.is_null() { Ok(()) } else { store_cut(name, into, len) }
}

/// Stores an address, cut to the caller's room, and its full length.
pub(crate) fn store_name(name: (SocketAddrV4, Family), into: *mut c_void, len: *mut u32) -> Result<(), Errno> {
    let (address, address_len) = address::format(name.0, name.1);
    store_cut(&address[..address_len], into, len)
}

fn store_cut(name: &[u8], into: *mut c_void, len: *mut u32) -> Result<(), Errno> {
    let mut room = array_mut(len, 1)?;
    if room[0] as i32 <= -1 {
        return Err(Errno::EINVAL);
    }
    let count = name.len().min(room[0] as usize);
    bytes_mut(into, count)?.copy_from_slice(&name[..count]);
    room[0] = name.len() as u32;
    Ok(())
}

/// Writes one value where the caller's pointer is not null.
pub(crate) fn store<T>(into: *mut T, value: T) -> Result<(), Errno> {
    if !into.is_null() {
        bytes_mut(into.cast(), size_of::<T>())?;
        // SAFETY: invariant 1.
        unsafe { into.write_unaligned(value) };
    }
    Ok(())
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
