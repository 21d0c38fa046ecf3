//! What a peer must know to READ tables of slots, as the private data of a connection manager's
//! REP: nothing but the connection is needed.
//!
//! ```text
//!   0  u32  "WPSN"                 8  u32  what the values are
//!   4  u16  this form, 1          12  u32  bytes of a value
//!   6  u16  tables                16  of each table: u64 address, u32 key, u32 slots
//! ```
//!
//! All numbers are little-endian. Bytes behind the last table are nothing: private data has one
//! length.

use core::fmt;

use super::slot_len;

/// Where publishers listen by RDMA_CM, unless something else is configured.
pub const OFFER_PORT: u16 = 7475;
/// Tables that an offer names at most: as many as fit the private data of a REP.
pub const TABLES_MAX: usize = 11;
const MAGIC: u32 = u32::from_le_bytes(*b"WPSN");
const FORM: u16 = 1;
const HEAD_LEN: usize = 16;
const TABLE_LEN: usize = 16;

/// Tables of slots that a peer may READ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// What the values are, and in which layout: publisher and reader agree on numbers.
    pub schema: u32,
    /// Bytes of each value.
    pub value_len: u32,
    /// The tables.
    pub tables: Vec<Table>,
}

/// A table of slots in the memory of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table {
    /// Its address, as requests name it.
    pub address: u64,
    /// Its key.
    pub rkey: u32,
    /// Its slots.
    pub slots: u32,
}

impl Offer {
    /// The bytes of an offer.
    ///
    /// # Panics
    /// If there are more tables than [`TABLES_MAX`].
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.tables.len() <= TABLES_MAX, "an offer of more tables than fit");
        let mut bytes = Vec::with_capacity(HEAD_LEN + TABLE_LEN * self.tables.len());
        bytes.extend(MAGIC.to_le_bytes());
        bytes.extend(FORM.to_le_bytes());
        bytes.extend((self.tables.len() as u16).to_le_bytes());
        bytes.extend(self.schema.to_le_bytes());
        bytes.extend(self.value_len.to_le_bytes());
        for table in &self.tables {
            bytes.extend(table.address.to_le_bytes());
            bytes.extend(table.rkey.to_le_bytes());
            bytes.extend(table.slots.to_le_bytes());
        }
        bytes
    }

    /// The offer at the beginning of these bytes, which may have more behind it.
    ///
    /// # Errors
    /// [`OfferError`].
    pub fn parse(bytes: &[u8]) -> Result<Self, OfferError> {
        let (head, rest) = bytes.split_first_chunk::<HEAD_LEN>().ok_or(OfferError::Short)?;
        let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        if word(0) != MAGIC {
            return Err(OfferError::Magic);
        }
        let (form, count) = (word(4) as u16, (word(4) >> 16) as usize);
        if form != FORM {
            return Err(OfferError::Form(form));
        }
        let (tables, _) = rest.as_chunks::<TABLE_LEN>();
        let tables = tables.get(..count).ok_or(OfferError::Short)?.iter().map(Table::parse).collect();
        let offer = Self { schema: word(8), value_len: word(12), tables };
        let slot_len = slot_len(offer.value_len as usize) as u64;
        let is_within = |table: &Table| table.address.checked_add(u64::from(table.slots) * slot_len).is_some();
        if offer.tables.iter().all(is_within) { Ok(offer) } else { Err(OfferError::Range) }
    }
}

impl Table {
    fn parse(bytes: &[u8; TABLE_LEN]) -> Self {
        let [a, b, c, d, e, f, g, h, rest @ ..] = *bytes;
        let [i, j, k, l, m, n, o, p] = rest;
        Self {
            address: u64::from_le_bytes([a, b, c, d, e, f, g, h]),
            rkey: u32::from_le_bytes([i, j, k, l]),
            slots: u32::from_le_bytes([m, n, o, p]),
        }
    }

    /// Where the slot `idx` of values of `value_len` bytes is.
    pub const fn slot_address(&self, idx: u32, value_len: u32) -> u64 {
        self.address + idx as u64 * slot_len(value_len as usize) as u64
    }
}

/// Why bytes are no offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OfferError {
    /// Fewer bytes than it says.
    Short,
    /// They do not begin as an offer does.
    Magic,
    /// Another form than 1.
    Form(u16),
    /// A table that ends beyond all addresses.
    Range,
}

impl fmt::Display for OfferError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short => f.write_str("the offer of tables is cut off"),
            Self::Magic => f.write_str("the peer offers no tables of snapshots"),
            Self::Form(form) => write!(f, "the peer's offer has form {form}, and only {FORM} is known here"),
            Self::Range => f.write_str("a table of the offer ends beyond all addresses"),
        }
    }
}

impl core::error::Error for OfferError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(tables: usize) -> Offer {
        let table = |idx: usize| Table { address: idx as u64 * 0x1_0000_0001, rkey: 7 + idx as u32, slots: 3 };
        Offer { schema: 5, value_len: 368, tables: (0..tables).map(table).collect() }
    }

    #[test]
    fn offer_fits_private_data_and_is_found_at_its_beginning() {
        for tables in [0, 1, TABLES_MAX] {
            let mut bytes = offer(tables).encode();
            assert!(bytes.len() <= 196, "the private data of a REP");
            bytes.resize(196, 0);
            assert_eq!(Offer::parse(&bytes), Ok(offer(tables)));
        }
    }

    #[test]
    fn bytes_of_others_are_refused_for_a_reason() {
        let bytes = offer(2).encode();
        let changed = |at: usize, byte| {
            let mut bytes = bytes.clone();
            bytes[at] = byte;
            Offer::parse(&bytes)
        };
        assert_eq!(changed(0, 0), Err(OfferError::Magic));
        assert_eq!(changed(4, 2), Err(OfferError::Form(2)));
        assert_eq!(changed(6, 3), Err(OfferError::Short));
        assert_eq!(Offer::parse(&bytes[..15]), Err(OfferError::Short));
        let far = Offer { tables: vec![Table { address: u64::MAX - 9, rkey: 0, slots: 1 }], ..offer(0) };
        assert_eq!(Offer::parse(&far.encode()), Err(OfferError::Range));
    }

    #[test]
    fn slots_follow_each_other() {
        let table = Table { address: 0x1000, rkey: 1, slots: 4 };
        assert_eq!([0, 3].map(|idx| table.slot_address(idx, 368)), [0x1000, 0x1000 + 3 * 384]);
    }
}
