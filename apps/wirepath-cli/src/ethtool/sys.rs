//! SIOCETHTOOL: the one system call behind `ethtool`, on a buffer of words that is long enough for
//! its answer.
//!
//! `unsafe`, because ioctl(2) takes addresses, and because how many bytes the kernel writes depends
//! on the command.
//!
//! Invariants:
//! 1. The request and the words are borrowed mutably until the call has returned; the kernel writes
//!    only plain data.
//! 2. The words have room for all that the kernel writes. Of the commands here, those with a fixed
//!    answer write at most 49 words (`struct ethtool_drvinfo`, the longest of them in
//!    linux/ethtool.h) into [`FIXED_WORDS`]. GFEATURES writes no more blocks than it is asked for.
//!    GSTRINGS and GSTATS write as many items as the driver has at that moment, whatever number was
//!    requested (until Linux 6.18). We request the number that the driver stated just before, and
//!    have room for four times as many and [`SPARE_ITEMS`], more than a change of the NIC's queues
//!    in between can add.

use core::ffi::c_int;
use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

/// linux/sockios.h
const SIOCETHTOOL: libc::Ioctl = 0x8946;
/// Words of a fixed answer.
const FIXED_WORDS: usize = 64;
/// Items of room beyond four times a list's length.
const SPARE_ITEMS: usize = 16_384;
/// A driver that states more items is refused: a large NIC has some ten thousand.
const ITEMS_MAX: usize = 1 << 20;

/// linux/ethtool.h
const GSSET_INFO: u32 = 0x37;
const GSTRINGS: u32 = 0x1b;
const GSTATS: u32 = 0x1d;
const GFEATURES: u32 = 0x3a;
const STRING_WORDS: usize = 8;
const STAT_WORDS: usize = 2;
const FEATURE_WORDS: usize = 4;

/// Commands with a fixed answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Command {
    Driver = 0x03,
    Coalescing = 0x0e,
    Rings = 0x10,
    Timestamping = 0x41,
}

/// Sets of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Set {
    Counters = 1,
    Features = 4,
}

/// `struct ifreq` with an address in it.
#[repr(C)]
struct Request {
    name: [u8; libc::IFNAMSIZ],
    data: *mut u32,
    rest: [u64; 2],
}

/// The answer's words; the first one is the command.
pub(super) fn ask(socket: &UdpSocket, interface: &str, command: Command) -> io::Result<[u32; FIXED_WORDS]> {
    let mut words = [0; FIXED_WORDS];
    words[0] = command as u32;
    call(socket, interface, &mut words)?;
    Ok(words)
}

/// The number of names in a set.
pub(super) fn count(socket: &UdpSocket, interface: &str, set: Set) -> io::Result<usize> {
    let mut words = [0; FIXED_WORDS];
    // Command, a reserved word, 64 bits of requested sets; then the answers.
    (words[0], words[2]) = (GSSET_INFO, 1 << set as u32);
    call(socket, interface, &mut words)?;
    let count = if words[2] == 0 { 0 } else { words[4] as usize };
    if count > ITEMS_MAX {
        return Err(io::Error::other(format!("the driver states {count} names, which cannot be")));
    }
    Ok(count)
}

/// The names of a set that has `count` of them, 32 bytes each.
pub(super) fn strings(socket: &UdpSocket, interface: &str, set: Set, count: usize) -> io::Result<Vec<u32>> {
    const HEAD: usize = 3;
    let mut words = vec![0; HEAD + (4 * count + SPARE_ITEMS) * STRING_WORDS];
    words[..HEAD].copy_from_slice(&[GSTRINGS, set as u32, count as u32]);
    call(socket, interface, &mut words)?;
    unchanged(words[2], count)?;
    words.drain(..HEAD);
    words.truncate(count * STRING_WORDS);
    Ok(words)
}

/// The values of the driver's `count` counters, two words each.
pub(super) fn counters(socket: &UdpSocket, interface: &str, count: usize) -> io::Result<Vec<u32>> {
    const HEAD: usize = 2;
    let mut words = vec![0; HEAD + (4 * count + SPARE_ITEMS) * STAT_WORDS];
    words[..HEAD].copy_from_slice(&[GSTATS, count as u32]);
    call(socket, interface, &mut words)?;
    unchanged(words[1], count)?;
    words.drain(..HEAD);
    words.truncate(count * STAT_WORDS);
    Ok(words)
}

/// The states of `count` features, four words for each 32 of them: available, requested, active,
/// never changed.
pub(super) fn features(socket: &UdpSocket, interface: &str, count: usize) -> io::Result<Vec<u32>> {
    const HEAD: usize = 2;
    let blocks = count.div_ceil(32);
    let mut words = vec![0; HEAD + blocks * FEATURE_WORDS];
    words[..HEAD].copy_from_slice(&[GFEATURES, blocks as u32]);
    call(socket, interface, &mut words)?;
    words.drain(..HEAD);
    Ok(words)
}

fn unchanged(answered: u32, asked: usize) -> io::Result<()> {
    if answered as usize == asked {
        return Ok(());
    }
    Err(io::Error::other("the driver changed its list while it was read"))
}

/// `words` has room for the answer of the command in its first word (2): every caller above ensures
/// it.
fn call(socket: &UdpSocket, interface: &str, words: &mut [u32]) -> io::Result<()> {
    let mut request = Request { name: [0; libc::IFNAMSIZ], data: words.as_mut_ptr(), rest: [0; 2] };
    // The last byte stays zero.
    let len = interface.len().min(libc::IFNAMSIZ - 1);
    request.name[..len].copy_from_slice(&interface.as_bytes()[..len]);
    // SAFETY: request and words are borrowed mutably for the call (1), and the words have room for
    // the answer (2).
    let result: c_int = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &raw mut request) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
