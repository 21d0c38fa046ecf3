//! XDP metadata: the bytes before a frame in which the program passes the rule's flow tag and the
//! driver's RX metadata to the worker.
//!
//! ```text
//!  ├────────────────────── RX_HINTS_LEN ──────────────────────┤
//!  | arrival 8 | hash 4 | vlan 2 | 0 2 | magic 4 | word 4 | frame ...
//!                                      ├──── TAG_LEN ─────┤
//! ```
//!
//! The word says which values are present, so a program with only a tag writes the last eight
//! bytes. Integers are in host order.

use crate::mem::{Mbuf, RxInfo};
use crate::time::UnixTime;

/// A number that no header begins with, so that bytes left in a headroom are not mistaken for
/// metadata.
pub(crate) const MAGIC: u32 = 0x57e1_9a7f;
/// Bytes before a frame with a flow tag only.
pub(crate) const TAG_LEN: usize = 8;
/// Bytes before a frame with the driver's metadata. Older kernels allow up to 32.
pub(crate) const RX_HINTS_LEN: usize = 24;

/// Bits of the word, above the 24 of the flow tag.
pub(crate) const HAS_FLOW_TAG: u32 = 1 << 31;
pub(crate) const HAS_TIMESTAMP: u32 = 1 << 30;
pub(crate) const HAS_HASH: u32 = 1 << 29;
pub(crate) const HAS_VLAN: u32 = 1 << 28;
const PRESENT_FLAGS: u32 = HAS_TIMESTAMP | HAS_HASH | HAS_VLAN;
const FLOW_TAG: u32 = (1 << 24) - 1;

/// Offsets of the values, from the first of the `RX_HINTS_LEN` bytes.
pub(crate) const AT_TIMESTAMP: usize = 0;
pub(crate) const AT_HASH: usize = 8;
pub(crate) const AT_VLAN: usize = 12;
/// Offsets of magic and word, from the first of the `TAG_LEN` bytes.
pub(crate) const AT_MAGIC: usize = 0;
pub(crate) const AT_WORD: usize = 4;

/// Reads the program's metadata before the frame, and clears it, so that the buffer's next frame
/// does not inherit it. A frame without metadata (nearly every frame if only VLAN tags are enabled)
/// costs a load of eight bytes.
#[inline]
pub(crate) fn read(mbuf: Mbuf) -> Mbuf {
    match mbuf.behind(TAG_LEN).map(|near| (u32_at(near, AT_MAGIC), u32_at(near, AT_WORD))) {
        Some((MAGIC, word)) if word != 0 => read_hints(mbuf, word),
        _ => mbuf,
    }
}

#[inline(never)]
fn read_hints(mut mbuf: Mbuf, word: u32) -> Mbuf {
    let Some(near) = mbuf.prepend(TAG_LEN) else { return mbuf };
    near.fill(0);
    mbuf.advance(TAG_LEN);
    let mut info = RxInfo { flow_tag: (word & HAS_FLOW_TAG != 0).then_some(word & FLOW_TAG), ..RxInfo::default() };
    if word & PRESENT_FLAGS != 0
        && let Some(hints) = mbuf.behind(RX_HINTS_LEN)
    {
        let has = |bit| word & bit != 0;
        info.timestamp = has(HAS_TIMESTAMP).then(|| UnixTime::from_nanos(u64_at(hints, AT_TIMESTAMP)));
        info.hash = has(HAS_HASH).then(|| u32_at(hints, AT_HASH));
        info.vlan = has(HAS_VLAN).then(|| u16_at(hints, AT_VLAN));
    }
    mbuf.set_rx_info(&info);
    mbuf
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes[at..].first_chunk().map_or(0, |&bytes| u16::from_ne_bytes(bytes))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes[at..].first_chunk().map_or(0, |&bytes| u32::from_ne_bytes(bytes))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes[at..].first_chunk().map_or(0, |&bytes| u64::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mem::Pool;

    /// Checks the metadata of a frame with these bytes before it. A second read finds nothing.
    fn check(before: &[u8], expected: &RxInfo) {
        let pool = Pool::heap(1).unwrap();
        let mut mbuf = pool.alloc_copy(&[7; 60]).unwrap();
        mbuf.prepend(before.len()).unwrap().copy_from_slice(before);
        mbuf.advance(before.len());
        let mbuf = read(mbuf);
        assert_eq!((&mbuf.rx_info(), mbuf.bytes()), (expected, &[7; 60][..]), "{before:?}");
        mbuf.free();
        let again = read(pool.alloc_copy(&[7; 60]).unwrap());
        assert_eq!(again.rx_info(), RxInfo::default(), "the next frame inherits nothing");
        again.free();
    }

    fn bytes(magic: u32, word: u32) -> Vec<u8> {
        let (timestamp, hash, vlan) = (1_700_000_000_123_456_789u64, 0xdead_beefu32, 0x6007u16);
        [
            &timestamp.to_ne_bytes()[..],
            &hash.to_ne_bytes(),
            &vlan.to_ne_bytes(),
            &[0; 2],
            &magic.to_ne_bytes(),
            &word.to_ne_bytes(),
        ]
        .concat()
    }

    #[test]
    fn only_what_the_word_names_is_read() {
        let timestamp = Some(UnixTime::from_nanos(1_700_000_000_123_456_789));
        let (hash, vlan, flow_tag) = (Some(0xdead_beef), Some(0x6007), Some(0xabcdef));
        check(&bytes(MAGIC, 0), &RxInfo::default());
        check(&bytes(MAGIC, HAS_TIMESTAMP), &RxInfo { timestamp, ..RxInfo::default() });
        check(&bytes(MAGIC, HAS_HASH), &RxInfo { hash, ..RxInfo::default() });
        check(&bytes(MAGIC, HAS_VLAN), &RxInfo { vlan, ..RxInfo::default() });
        check(&bytes(MAGIC, HAS_FLOW_TAG | 0xabcdef), &RxInfo { flow_tag, ..RxInfo::default() });
        let all = HAS_FLOW_TAG | HAS_TIMESTAMP | HAS_HASH | HAS_VLAN | 0xabcdef;
        check(&bytes(MAGIC, all), &RxInfo { timestamp, hash, vlan, flow_tag, ..RxInfo::default() });
    }

    #[test]
    fn bytes_without_the_magic_are_nothing() {
        check(&bytes(MAGIC + 1, u32::MAX), &RxInfo::default());
        check(&bytes(0, u32::MAX), &RxInfo::default());
    }

    #[test]
    fn tag_alone_needs_eight_bytes() {
        let flow_tag = Some(5);
        check(&bytes(MAGIC, HAS_FLOW_TAG | 5)[RX_HINTS_LEN - TAG_LEN..], &RxInfo { flow_tag, ..RxInfo::default() });
    }

    #[test]
    fn word_that_promises_more_than_the_buffer_has_is_not_followed() {
        let pool = Pool::heap(1).unwrap();
        let mut mbuf = pool.alloc().unwrap();
        let whole = mbuf.headroom();
        mbuf.prepend(whole).unwrap().fill(9);
        mbuf.bytes_mut()[..TAG_LEN].copy_from_slice(&bytes(MAGIC, HAS_TIMESTAMP)[RX_HINTS_LEN - TAG_LEN..]);
        mbuf.advance(TAG_LEN);
        let mbuf = read(mbuf);
        assert_eq!(mbuf.rx_info(), RxInfo::default());
        mbuf.free();
    }
}
