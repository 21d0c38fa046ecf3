//! The caller's memory: pointers become references, slices and texts for one call, or the call is
//! refused.
//!
//! Invariants, which the caller keeps (`wirepath.h`, "Your part"):
//! 1. A pointer to an address of a program's points to as many readable or writable bytes as its
//!    arguments say, for as long as the call lasts. It need not be aligned.
//! 2. No other thread writes there meanwhile.
//! 3. A text ends with a zero byte.
//!
//! Everything else is checked: null and other addresses that no program has, lengths, the family of
//! an address, the size of a structure.

use core::cell::Cell;
use core::ffi::{CStr, c_char};
use core::mem::size_of;
use core::net::{Ipv4Addr, SocketAddrV4};
use core::{ptr, slice};

use libc::{in_addr, sockaddr_in};

use crate::abi::Event;
use crate::error::{Code, Fault, Result};

/// The addresses that a program can have: behind the first page, where the members of a null
/// structure are, and below the upper half, which is the kernel's.
const FIRST: usize = 4_096;
const END: usize = if IS_TAGGED { 1 << 55 } else { 1 << 56 };

/// Whether the processor ignores the top byte of a program's pointer, where memory tagging has its
/// tags.
const IS_TAGGED: bool = cfg!(target_arch = "aarch64");
const ADDRESS: usize = if IS_TAGGED { usize::MAX >> 8 } else { usize::MAX };

/// Whether a pointer is null, or another one that no program can have. One comparison.
#[inline]
fn is_missing<T>(pointer: *const T) -> bool {
    (pointer.addr() & ADDRESS).wrapping_sub(FIRST) >= END - FIRST
}

#[cold]
fn missing<T>(pointer: *const T, what: &str) -> Fault {
    let why = if pointer.is_null() { "null".to_owned() } else { format!("{pointer:p}, which is no address") };
    Fault::because(Code::Argument, format!("{what} is {why}"))
}

/// The same of a pointer that may be null.
fn check_optional<T>(pointer: *const T, what: &str) -> Result<()> {
    if !pointer.is_null() && is_missing(pointer) { Err(missing(pointer, what)) } else { Ok(()) }
}

/// Bytes to send. Null is allowed if `len` is 0.
#[inline]
pub(crate) fn bytes<'a>(data: *const u8, len: usize) -> Result<&'a [u8]> {
    if len == 0 {
        return Ok(&[]);
    }
    if is_missing(data) {
        return Err(missing(data, "data"));
    }
    if len > isize::MAX as usize {
        return Err(Code::TooLong.into());
    }
    // SAFETY: `len` readable bytes (1) that do not change during the call (2).
    Ok(unsafe { slice::from_raw_parts(data, len) })
}

/// Writes one value to the caller's `place`.
#[inline]
pub(crate) fn write<T>(place: *mut T, value: T) -> Result<()> {
    check_place(place)?;
    // SAFETY: one writable value (1, 2); nothing is read there.
    unsafe { place.write_unaligned(value) };
    Ok(())
}

/// Refuses a place that is none before the call has an effect.
#[inline]
pub(crate) fn check_place<T>(place: *mut T) -> Result<()> {
    if is_missing(place) { Err(missing(place, "the place for the result")) } else { Ok(()) }
}

/// The caller's array for the length of one call. Its users write to the next place.
pub(crate) struct Output<T> {
    /// The next place, and the end of the array. Both are null outside [`during`](Self::during).
    next: Cell<*mut T>,
    end: Cell<*mut T>,
}

impl<T> Output<T> {
    pub(crate) const fn new() -> Self {
        Self { next: Cell::new(ptr::null_mut()), end: Cell::new(ptr::null_mut()) }
    }

    /// Lends the array while `act` runs, and takes it back even if `act` panics. Also returns the
    /// number of places written.
    #[inline]
    pub(crate) fn during<R>(&self, first: *mut T, count: usize, act: impl FnOnce() -> R) -> Result<(R, usize)> {
        struct TakeBack<'a, T>(&'a Output<T>);

        impl<T> Drop for TakeBack<'_, T> {
            fn drop(&mut self) {
                self.0.next.set(ptr::null_mut());
                self.0.end.set(ptr::null_mut());
            }
        }

        if is_missing(first) && count > 0 {
            return Err(missing(first, "the array of events"));
        }
        self.next.set(first);
        self.end.set(first.wrapping_add(count));
        let lent = TakeBack(self);
        let result = act();
        let written = (self.next.get().addr() - first.addr()) / size_of::<T>();
        drop(lent);
        Ok((result, written))
    }

    /// Whether the pointer is not null.
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        self.next.get() != self.end.get()
    }

    /// Writes to the next place. Returns false, and writes nothing, where there is none.
    #[inline(always)]
    pub(crate) fn push(&self, value: T) -> bool {
        let place = self.next.get();
        if place == self.end.get() {
            return false;
        }
        self.next.set(place.wrapping_add(1));
        // SAFETY: this runs within `during`, whose array has a writable place between `next` and
        // `end` (1, 2), and nothing is read there.
        unsafe { place.write_unaligned(value) };
        true
    }
}

/// Writes as many values as there is room for. Returns the number of values, so null without room
/// only counts them.
pub(crate) fn fill<T, I: Iterator<Item = T>>(first: *mut T, room: usize, values: impl FnOnce() -> I) -> Result<i32> {
    if is_missing(first) && room > 0 {
        return Err(missing(first, "the array of results"));
    }
    let mut count = 0;
    for (idx, value) in values().enumerate() {
        if idx < room {
            // SAFETY: the array has `room` writable places (1, 2), and nothing is read there.
            unsafe { first.wrapping_add(idx).write_unaligned(value) };
        }
        count = idx + 1;
    }
    Ok(count as i32)
}

/// A text; `None` if the pointer is null.
pub(crate) fn text<'a>(text: *const c_char, what: &str) -> Result<Option<&'a str>> {
    if text.is_null() {
        return Ok(None);
    }
    check_optional(text, what)?;
    // SAFETY: it ends with a zero byte (3), and does not change during the call (2).
    let text = unsafe { CStr::from_ptr(text) };
    let wrong = |_| Fault::because(Code::Argument, format!("{what} is not UTF-8"));
    text.to_str().map(Some).map_err(wrong)
}

/// As [`text`], but null is an error.
pub(crate) fn required<'a>(pointer: *const c_char, what: &str) -> Result<&'a str> {
    text(pointer, what)?.ok_or_else(|| missing(pointer, what))
}

/// An IPv4 address and port; `None` if the pointer is null.
#[inline]
pub(crate) fn address(address: *const sockaddr_in) -> Result<Option<SocketAddrV4>> {
    if address.is_null() {
        return Ok(None);
    }
    check_optional(address, "an address")?;
    // SAFETY: one readable value (1, 2); every bit pattern is one.
    let address = unsafe { address.read_unaligned() };
    if i32::from(address.sin_family) != libc::AF_INET {
        return Err(Fault::because(Code::Argument, "sin_family of an address is not AF_INET"));
    }
    let ip = Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr));
    Ok(Some(SocketAddrV4::new(ip, u16::from_be(address.sin_port))))
}

/// As [`address`], but null is an error.
#[inline]
pub(crate) fn required_address(pointer: *const sockaddr_in) -> Result<SocketAddrV4> {
    address(pointer)?.ok_or_else(|| missing(pointer, "an address"))
}

/// The most addresses of one array. More are a mistake: the filter of a group takes far fewer.
const ADDRESSES_MAX: usize = 1_024;

/// The addresses of an array, each read as the iterator reaches it.
pub(crate) fn addresses(first: *const sockaddr_in, count: usize) -> Result<impl Iterator<Item = Result<SocketAddrV4>>> {
    if is_missing(first) && count > 0 {
        return Err(missing(first, "the array of addresses"));
    }
    if count > ADDRESSES_MAX {
        let why = format!("{count} addresses, where one call takes {ADDRESSES_MAX}");
        return Err(Fault::because(Code::Argument, why));
    }
    Ok((0..count).map(move |idx| required_address(first.wrapping_add(idx))))
}

/// Converts an address to C.
#[inline]
pub(crate) fn socket_address(address: SocketAddrV4) -> sockaddr_in {
    sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: address.port().to_be(),
        sin_addr: in_addr { s_addr: u32::from(*address.ip()).to_be() },
        sin_zero: [0; 8],
    }
}

/// Structures whose first member is their size, in which every bit pattern is a value, and zero a
/// default.
///
/// # Safety
/// A `repr(C)` structure of integers and raw pointers without padding, with `size: u32` in front.
pub(crate) unsafe trait Sized32: Copy {}

// SAFETY: integers and raw pointers, `size` in front.
unsafe impl Sized32 for crate::abi::StackOptions {}
// SAFETY: integers, `size` in front.
unsafe impl Sized32 for crate::abi::TcpOptions {}
// SAFETY: integers, `size` in front.
unsafe impl Sized32 for crate::abi::UdpOptions {}

// SAFETY: integers, `size` in front.
unsafe impl Sized32 for crate::abi::TcpInfo {}

/// The `size` member of a structure, if this library knows as many bytes.
fn size_of_caller<T: Sized32>(structure: *const T) -> Result<usize> {
    // SAFETY: at least the size is readable (1, 2), and stands in front.
    let size = unsafe { structure.cast::<u32>().read_unaligned() } as usize;
    if (8..=size_of::<T>()).contains(&size) {
        return Ok(size);
    }
    let why =
        format!("a structure of {size} bytes, where this library knows 8 to {}: set `size` to sizeof", size_of::<T>());
    Err(Fault::because(Code::Argument, why))
}

/// A structure of options; `None` if the pointer is null. An older caller's structure is shorter:
/// its missing members are zero, the default. A newer caller's is longer, and refused, because its
/// additional members may matter.
pub(crate) fn options<T: Sized32>(options: *const T) -> Result<Option<T>> {
    if options.is_null() {
        return Ok(None);
    }
    check_optional(options, "a structure of options")?;
    let size = size_of_caller(options)?;
    // SAFETY: zero is a value of each member (`Sized32`).
    let mut read: T = unsafe { core::mem::zeroed() };
    // SAFETY: `size` readable bytes (1, 2) into a value that has at least as many, of which every
    // bit pattern is a value (`Sized32`).
    unsafe { ptr::copy_nonoverlapping(options.cast::<u8>(), ptr::from_mut(&mut read).cast(), size) };
    Ok(Some(read))
}

/// Writes the members of a structure that the caller knows, and leaves `size` as it is.
pub(crate) fn write_sized<T: Sized32>(place: *mut T, value: impl FnOnce() -> Result<T>) -> Result<()> {
    check_place(place)?;
    let size = size_of_caller(place)?;
    let value = value()?;
    let members = ptr::from_ref(&value).cast::<u8>().wrapping_add(size_of::<u32>());
    // SAFETY: `size` writable bytes (1, 2) of which those behind the size are written, from a value
    // that has at least as many, without padding (`Sized32`).
    unsafe { ptr::copy_nonoverlapping(members, place.cast::<u8>().add(size_of::<u32>()), size - size_of::<u32>()) };
    Ok(())
}

/// Has `act` called in each child that is forked from now on, by the thread that forked. A machine
/// without room for it has none for a stack either.
pub(crate) fn at_fork_in_child(act: extern "C" fn()) {
    // SAFETY: the function is a part of this library, and glibc forgets it when the library is
    // closed.
    unsafe { libc::pthread_atfork(None, None, Some(act)) };
}

/// The chunk of an event: what names its bytes.
pub(crate) fn chunk(event: *const Event) -> Result<u64> {
    if is_missing(event) {
        return Err(missing(event, "the event"));
    }
    // SAFETY: one readable value (1, 2); every bit pattern of the member is one.
    Ok(unsafe { (&raw const (*event).chunk).read_unaligned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_no_program_has_are_missing_and_a_tag_is_no_part_of_one() {
        let missing = |addr: usize| is_missing(ptr::without_provenance::<u8>(addr));
        for addr in [0, 8, FIRST - 1, 0xdead_beef_dead_beef, 0xffff_8000_0000_0000, usize::MAX] {
            assert!(missing(addr), "{addr:#x}");
        }
        for addr in [FIRST, 0x7fff_0000_1001] {
            assert!(!missing(addr), "{addr:#x}");
        }
        assert_eq!(missing(0x0a00_7fff_0000_1000), !IS_TAGGED);
    }
}
