//! The format of a roster, version 1, in words of 64 bits of the machine's own byte order.
//!
//! ```text
//! word 0                   header: magic, version, who writes, how many entries, which interface
//! word 64                  an entry for each slot of the machine, 8 words: open or not, flow, link header
//! word 64 + 8 * capacity   a word for each slot: SND.NXT below, RCV.NXT above
//! ```
//!
//! The numbers are separate because each sent segment writes them: eight bytes per connection stay
//! in the cache and in the TLB, 72 would not.

use core::net::{Ipv4Addr, SocketAddrV4};
use std::fs;

use arrayvec::ArrayVec;

use crate::counters::Content;
use crate::proto::Flow;

/// The first eight bytes of the file.
pub(super) const MAGIC: u64 = Content::Connections.magic();
/// Raised with any change that an old guardian would misread.
pub(super) const VERSION: u64 = 1;

pub(super) const PID: usize = 2;
/// Start time of that process, from `/proc/PID/stat`: it distinguishes the process from a later one
/// with the same number.
pub(super) const PROCESS_STARTED: usize = 3;
pub(super) const CAPACITY: usize = 4;
/// The index of the interface.
pub(super) const INTERFACE: usize = 5;
/// The inode of the writer's network namespace.
pub(super) const NAMESPACE: usize = 6;
pub(super) const APP_LEN: usize = 7;
pub(super) const APP: usize = 8;
pub(super) const HEADER_WORDS: usize = 64;

/// Bytes of an application's name.
pub(super) const APP_LEN_MAX: usize = 64;
/// Most entries of a roster: 72 MB of file.
pub(super) const CAPACITY_MAX: u64 = 1 << 20;

/// Words of an entry: one cache line.
pub(super) const ENTRY_WORDS: usize = 8;
/// Open or not, and the length of the link header.
pub(super) const STATE: usize = 0;
pub(super) const ADDRESSES: usize = 1;
pub(super) const PORTS: usize = 2;
pub(super) const LINK: usize = 3;
/// Flag in `STATE`.
pub(super) const OPEN: u64 = 1 << 32;

/// Bytes of the longest link header: two VLAN tags.
pub const LINK_LEN_MAX: usize = 22;
const LINK_WORDS: usize = LINK_LEN_MAX.div_ceil(8);

/// An open connection, with the data that a reset to its peer needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenConnection {
    /// The connection's flow.
    pub flow: Flow,
    /// The link header of its frames, VLAN tags included, as last known; empty where the path was
    /// never known.
    pub link: ArrayVec<u8, LINK_LEN_MAX>,
    /// SND.NXT: the number after the highest one that was sent. The peer expects this number or,
    /// where a segment was lost, an earlier one.
    pub snd_nxt: u32,
    /// The last acknowledgment number that we sent.
    pub rcv_nxt: u32,
}

/// The words of an entry, `STATE` among them.
pub(super) fn entry_words(flow: Flow, link: &[u8]) -> [u64; ENTRY_WORDS] {
    let mut words = [0; ENTRY_WORDS];
    let (local, remote) = (flow.local, flow.remote);
    words[STATE] = OPEN | link.len() as u64;
    words[ADDRESSES] = u64::from(local.ip().to_bits()) << 32 | u64::from(remote.ip().to_bits());
    words[PORTS] = u64::from(local.port()) << 16 | u64::from(remote.port());
    words[LINK..LINK + LINK_WORDS].copy_from_slice(&link_words(link));
    words
}

/// A link header, eight bytes a word, padded with zeros.
pub(super) fn link_words(link: &[u8]) -> [u64; LINK_WORDS] {
    let mut words = [0; LINK_WORDS];
    for (word, bytes) in words.iter_mut().zip(link.chunks(8)) {
        let mut padded = [0; 8];
        padded[..bytes.len()].copy_from_slice(bytes);
        *word = u64::from_ne_bytes(padded);
    }
    words
}

/// The connection that an entry and its numbers describe; `None` where none is open, or the entry
/// is invalid.
pub(super) fn connection_of(entry: &[u64; ENTRY_WORDS], numbers: u64) -> Option<OpenConnection> {
    let link_len = usize::try_from(entry[STATE].checked_sub(OPEN)?).ok().filter(|len| *len <= LINK_LEN_MAX)?;
    let bytes: Vec<u8> = entry[LINK..LINK + LINK_WORDS].iter().flat_map(|word| word.to_ne_bytes()).collect();
    let end = |address: u64, port: u64| SocketAddrV4::new(Ipv4Addr::from_bits(address as u32), port as u16);
    Some(OpenConnection {
        flow: Flow {
            local: end(entry[ADDRESSES] >> 32, entry[PORTS] >> 16),
            remote: end(entry[ADDRESSES], entry[PORTS]),
        },
        link: bytes[..link_len].iter().copied().collect(),
        snd_nxt: numbers as u32,
        rcv_nxt: (numbers >> 32) as u32,
    })
}

/// The start time of a process, in the kernel's ticks since boot (proc_pid_stat(5), field 22);
/// `None` where there is no such process.
pub fn process_started(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the process name, which may contain anything; it ends at the last
    // parenthesis.
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn place_says_what_was_written_into_it() {
        let flow = Flow { local: "10.9.0.1:65535".parse().unwrap(), remote: "255.0.0.2:1".parse().unwrap() };
        for len in [0, 14, 18, LINK_LEN_MAX] {
            let link: Vec<u8> = (1..=len as u8).collect();
            let read = connection_of(&entry_words(flow, &link), 7 << 32 | 0xffff_ffff).unwrap();
            assert_eq!((read.flow, &read.link[..]), (flow, &link[..]));
            assert_eq!((read.snd_nxt, read.rcv_nxt), (u32::MAX, 7));
        }
    }

    #[test]
    fn damaged_place_is_no_connection() {
        let flow = Flow { local: "10.9.0.1:1".parse().unwrap(), remote: "10.9.0.2:2".parse().unwrap() };
        for state in [0, 14, OPEN - 1, OPEN + LINK_LEN_MAX as u64 + 1, u64::MAX] {
            let mut entry = entry_words(flow, &[0; 14]);
            entry[STATE] = state;
            assert_eq!(connection_of(&entry, 0), None, "{state:x}");
        }
    }

    #[test]
    fn process_that_runs_has_a_start() {
        assert!(process_started(std::process::id()).is_some_and(|started| started > 0));
        assert_eq!(process_started(u32::MAX), None);
    }
}
