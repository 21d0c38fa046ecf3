//! The bytes of an option's value, in the layouts of the kernel.

use core::net::Ipv4Addr;

use wirepath::time::Duration;

use crate::errno::Errno;

/// `struct timeval`.
const TIMEVAL_LEN: usize = 16;
pub(super) const AF_INET: u16 = 2;

/// An `int`: all four bytes are required.
pub(super) fn int(value: &[u8]) -> Result<i32, Errno> {
    word(value, 0).map(|word| word as i32).ok_or(Errno::EINVAL)
}

/// An `int`; a shorter value is read as one byte, an empty one as 0.
pub(super) fn int_or_byte(value: &[u8]) -> i32 {
    int(value).unwrap_or_else(|_| value.first().map_or(0, |byte| i32::from(*byte)))
}

pub(super) fn word(value: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(value.get(at..at + 4)?.try_into().ok()?))
}

pub(super) fn words<const COUNT: usize>(value: &[u8]) -> Option<[u32; COUNT]> {
    let mut found = [0; COUNT];
    for (idx, found) in found.iter_mut().enumerate() {
        *found = word(value, idx * 4)?;
    }
    Some(found)
}

/// An address in the order of the network.
pub(super) fn address_of(word: u32) -> Ipv4Addr {
    Ipv4Addr::from(word.to_ne_bytes())
}

/// The address in the `struct sockaddr_storage` at an offset, if it is IPv4.
pub(super) fn address_in(value: &[u8], at: usize) -> Option<Ipv4Addr> {
    let family = u16::from_ne_bytes(value.get(at..at + 2)?.try_into().ok()?);
    word(value, at + 4).map(address_of).filter(|_| family == AF_INET)
}

/// Linux `sock_set_timeout`: zero means no timeout, a negative time means not to wait.
pub(super) fn timeout(value: &[u8]) -> Result<Option<Duration>, Errno> {
    let long = |at: usize| value.get(at..at + 8).and_then(|long| Some(i64::from_ne_bytes(long.try_into().ok()?)));
    let (seconds, micros) = long(0).zip(long(8)).ok_or(Errno::EINVAL)?;
    if !(0..1_000_000).contains(&micros) {
        return Err(Errno::EDOM);
    }
    if seconds < 0 {
        return Ok(Some(Duration::ZERO));
    }
    let span = (seconds as u64).checked_mul(1_000_000_000).and_then(|nanos| nanos.checked_add(micros as u64 * 1_000));
    Ok(span.filter(|nanos| *nanos > 0).map(Duration::from_nanos))
}

pub(super) fn seconds(span: Duration) -> i32 {
    (span.as_nanos() / 1_000_000_000) as i32
}

/// Copies as many bytes as there is room for, and returns their number.
pub(super) fn put(out: &mut [u8], value: &[u8]) -> usize {
    let len = value.len().min(out.len());
    out[..len].copy_from_slice(&value[..len]);
    len
}

pub(super) fn put_int(out: &mut [u8], number: i32) -> usize {
    put(out, &number.to_ne_bytes())
}

pub(super) fn put_timeval(out: &mut [u8], timeout: Option<Duration>) -> usize {
    let nanos = timeout.map_or(0, Duration::as_nanos);
    let mut value = [0; TIMEVAL_LEN];
    value[..8].copy_from_slice(&(nanos / 1_000_000_000).to_ne_bytes());
    value[8..].copy_from_slice(&(nanos % 1_000_000_000 / 1_000).to_ne_bytes());
    put(out, &value)
}
