//! Transport interfaces for receive: the NIC's object for a QP with an indirection table. It hashes
//! a frame, and the hash selects the ring.

use super::parse::Headers;
use super::rss::{Fields, Toeplitz};
use crate::hca::Hca;
use crate::hca::control::{Errno, RssRequest};
use crate::hca::receive::Wqs;
use crate::hca::table::Table;

/// All transport interfaces.
#[derive(Default)]
pub(in crate::hca) struct Tirs {
    table: Table<Tir>,
}

struct Tir {
    indirection: u32,
    fields: Fields,
    toeplitz: Toeplitz,
}

/// Where a frame goes, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::hca) struct Spread {
    /// The number of the ring.
    pub(in crate::hca) rq: u32,
    pub(in crate::hca) hash: u32,
    pub(in crate::hca) hash_type: u8,
}

/// Numbers begin here: 0 means that there is none.
const NUMBER_FIRST: u32 = 1;

/// `rx_hash_function`, bit 0.
const TOEPLITZ: u8 = 1;

impl Tirs {
    /// The ring for a frame: the low bits of the hash are its place in the table.
    #[inline]
    pub(in crate::hca) fn spread(&self, number: u32, wqs: &Wqs, headers: &Headers, frame: &[u8]) -> Option<Spread> {
        let tir = self.table.get(number.wrapping_sub(NUMBER_FIRST))?;
        let rqs = &wqs.table(tir.indirection)?.rqs;
        let (hash, hash_type) = tir.toeplitz.hash_frame(tir.fields, headers, frame);
        let rq = *rqs.get(hash as usize & (rqs.len() - 1))?;
        Some(Spread { rq, hash, hash_type })
    }
}

impl Hca {
    /// Makes a TIR, which spreads frames over the rings of an indirection table, and returns its
    /// number. EINVAL for a missing table, a key whose length is not 40, fields that cannot be
    /// combined, or no fields for a table of several rings; EOPNOTSUPP for another function than
    /// Toeplitz and for fields of inner headers.
    pub(in crate::hca) fn add_tir(&mut self, request: &RssRequest) -> Result<u32, Errno> {
        if request.function != TOEPLITZ {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        let fields = Fields::new(request.fields)?;
        let toeplitz = Toeplitz::new(&request.key)?;
        let indirection = request.table;
        let rqs = self.wqs.hold_table(indirection)?;
        if fields.is_empty() && rqs > 1 {
            self.wqs.release_table(indirection);
            return Err(Errno(libc::EINVAL));
        }
        Ok(NUMBER_FIRST + self.tirs.table.insert(Tir { indirection, fields, toeplitz }))
    }

    /// Takes it away.
    pub(in crate::hca) fn remove_tir(&mut self, number: u32) {
        if let Some(tir) = self.tirs.table.remove(number.wrapping_sub(NUMBER_FIRST)) {
            self.wqs.release_table(tir.indirection);
        }
    }
}
