//! Where the next record goes, and how it is written there.

use zerocopy::IntoBytes;
use zerocopy::little_endian::U64;

use super::entry::{Entry, Intent, side_byte};
use super::layout::{PAYLOAD_MAX, RECORD_HEADER_LEN, RecordHeader, record_len, sum};
use super::writer::{Full, Stamp};

/// Words of a new order's record: its header, and its payload with zeros behind.
const NEW_WORDS: usize = (RECORD_HEADER_LEN + NEW_LEN.next_multiple_of(8)) / 8;
/// Bytes of a new order's payload, of that of a strategy which is not the first, and of one with
/// instructions: no program that does not know these passes over them.
const NEW_LEN: usize = 33;
const NEW_OF_STRATEGY_LEN: usize = 35;
const NEW_WITH_CODE_LEN: usize = 36;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor {
    pub(super) end: usize,
    /// The next record's number; the first has 1.
    pub(super) seq: u64,
    /// The sum of the record before.
    pub(super) crc: u32,
    /// Bytes that requests leave for answers.
    pub(super) reserve: usize,
}

impl Cursor {
    /// Appends what is about to be sent. A new order is composed of words, without a copy of
    /// unknown length: a third of the instructions. One with further quantities has more words than
    /// these.
    #[inline]
    pub(crate) fn append_intent(&mut self, memory: &mut [u8], intent: &Intent, stamp: Stamp) -> Result<u64, Full> {
        let Intent::New { id, symbol, instrument, side, is_short, qty, price, strategy, instructions } = *intent else {
            return self.append_entry(memory, intent, stamp);
        };
        if instructions.quantities() != (0, 0) || instructions.peg_offset != 0 {
            return self.append_entry(memory, intent, stamp);
        }
        let (side, qty, price) = (u64::from(side_byte(side, is_short)), u64::from(qty), price.0 as u64);
        let words = [
            0,
            self.seq,
            stamp.at_ns,
            stamp.event_ns,
            u64::from(Entry::NEW),
            id,
            u64::from_le_bytes(symbol.0),
            u64::from(instrument.0) | side << 32 | qty << 40,
            qty >> 24 | price << 8,
            price >> 56 | u64::from(strategy.0) << 8 | u64::from(instructions.code()) << 24,
        ];
        let len = match (instructions.code(), strategy.0) {
            (0, 0) => NEW_LEN,
            (0, _) => NEW_OF_STRATEGY_LEN,
            _ => NEW_WITH_CODE_LEN,
        };
        self.write_words(memory, words.map(U64::new), len)
    }

    #[cold]
    fn append_entry(&mut self, memory: &mut [u8], intent: &Intent, stamp: Stamp) -> Result<u64, Full> {
        let entry = Entry::Intent(*intent);
        self.append(memory, (entry.kind(), stamp), &entry.encode(), self.reserve)
    }

    /// Writes the sum and the payload's length into the first word, and appends the record.
    #[inline(always)]
    fn write_words(&mut self, memory: &mut [u8], mut words: [U64; NEW_WORDS], len: usize) -> Result<u64, Full> {
        let needed = size_of_val(&words) + self.reserve;
        let rest = memory.get_mut(self.end..).unwrap_or_default();
        let Some(place) = rest.get_mut(..needed).and_then(|rest| rest.first_chunk_mut::<{ 8 * NEW_WORDS }>()) else {
            return Err(Full { needed, left: rest.len() });
        };
        self.crc = sum(self.crc, len as u32, words.as_bytes());
        words[0] = (u64::from(self.crc) | (len as u64) << 32).into();
        *place = zerocopy::transmute!(words);
        self.end += place.len();
        self.seq += 1;
        Ok(self.seq - 1)
    }

    /// Appends a record where `reserve` bytes are left behind it.
    pub(super) fn append(
        &mut self,
        memory: &mut [u8],
        (kind, stamp): (u16, Stamp),
        payload: &[u8],
        reserve: usize,
    ) -> Result<u64, Full> {
        assert!(payload.len() <= PAYLOAD_MAX, "a record's payload has {} bytes", payload.len());
        let total = record_len(payload.len());
        let left = memory.len() - self.end;
        if left < total + reserve {
            return Err(Full { needed: total + reserve, left });
        }
        let (seq, len) = (self.seq, payload.len() as u32);
        let record = &mut memory[self.end..self.end + total];
        let mut header = RecordHeader {
            crc: 0.into(),
            len: len.into(),
            seq: seq.into(),
            at_ns: stamp.at_ns.into(),
            event_ns: stamp.event_ns.into(),
            kind: kind.into(),
            zero: [0; 6],
        };
        // The last word before the payload, so that a shorter payload leaves zeros behind it.
        record[total - 8..].fill(0);
        record[..RECORD_HEADER_LEN].copy_from_slice(header.as_bytes());
        record[RECORD_HEADER_LEN..RECORD_HEADER_LEN + payload.len()].copy_from_slice(payload);
        self.crc = sum(self.crc, len, record);
        header.crc = self.crc.into();
        record[..4].copy_from_slice(header.crc.as_bytes());
        self.end += total;
        self.seq += 1;
        Ok(seq)
    }
}
