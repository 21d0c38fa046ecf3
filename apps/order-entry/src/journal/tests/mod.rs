//! The journal of a small trading morning, cut everywhere and damaged everywhere.

mod damage;
mod entries;
mod rebuild;

use super::*;

pub(super) const STAMP: Stamp = Stamp { at_ns: 5, event_ns: 4 };

pub(super) fn empty(len: usize) -> Journal<Vec<u8>> {
    Journal::create(vec![0; len], 77, 1, 0).unwrap()
}

/// A journal with payloads of 0 to `count` − 1 bytes, and the positions where records end.
pub(super) fn written(count: u8) -> (Vec<u8>, Vec<usize>) {
    let mut journal = empty(8_192);
    let mut ends = vec![journal.end()];
    for len in 0..count {
        journal.append(u16::from(len), STAMP, &vec![len; usize::from(len)]).unwrap();
        ends.push(journal.end());
    }
    (journal.memory().clone(), ends)
}

pub(super) fn read(memory: &[u8]) -> Vec<(u64, u16, Vec<u8>)> {
    let records = Records::new(memory).unwrap();
    records.map(|record| (record.seq, record.kind, record.payload.to_vec())).collect()
}
