//! The fields of a record's payload, little endian and one behind the other.

use market::Price;

use super::entry::EntryBytes;
use crate::orders::ExecId;

/// Writes the fields of a payload.
pub(super) struct Writer(pub(super) EntryBytes);

impl Writer {
    /// The longest entry has 62 bytes, so nothing is ever cut.
    pub(super) fn put<const LEN: usize>(&mut self, bytes: [u8; LEN]) {
        let written = self.0.try_extend_from_slice(&bytes);
        debug_assert!(written.is_ok(), "an entry is longer than its bytes");
    }

    pub(super) fn number(&mut self, tag: u8, number: u64) {
        self.put([tag]);
        self.put(number.to_le_bytes());
    }

    pub(super) fn terms(&mut self, qty: u32, price: Price) {
        self.put(qty.to_le_bytes());
        self.put(price.0.to_le_bytes());
    }

    pub(super) fn execution(&mut self, tag: u8, exec: ExecId, qty: u32, price: Price) {
        self.put([tag]);
        self.put(exec.0.to_le_bytes());
        self.terms(qty, price);
    }
}

/// Reads them; `None` where the payload ends before.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl Reader<'_> {
    pub(super) fn take<const LEN: usize>(&mut self) -> Option<[u8; LEN]> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*bytes)
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.take().map(|[byte]| byte)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    pub(super) fn i64(&mut self) -> Option<i64> {
        self.take().map(i64::from_le_bytes)
    }

    pub(super) fn price(&mut self) -> Option<Price> {
        self.i64().map(Price)
    }
}
