//! The latest quote of an instrument: sixteen words that the writer replaces in place.
//!
//! ```text
//!    0 version, odd while it is written   4 receive ns    8 bid price    12 flags
//!    1 updates so far                     5 publish ns    9 bid shares   13 .. 15 zero
//!    2 venue seq                          6 symbol       10 ask price
//!    3 exchange ns                        7 channel      11 ask shares
//! ```

use market::{Price, Symbol};

use crate::layout::RECORD_WORDS;
use crate::record::Flags;

/// Words of a quote after its version and its count of updates.
pub(crate) const QUOTE_WORDS: usize = RECORD_WORDS - 2;

/// The best bid and offer of an instrument. Trades are never conflated: they are in the ring alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quote {
    /// The sequence number of the venue's message that changed it last.
    pub venue_seq: u64,
    /// The exchange's time of that message, ns, in the feed's own epoch.
    pub exchange_ns: u64,
    /// As [`Record::receive_ns`](crate::Record::receive_ns).
    pub receive_ns: u64,
    /// As [`Record::publish_ns`](crate::Record::publish_ns).
    pub publish_ns: u64,
    /// The instrument.
    pub symbol: Symbol,
    /// The feed's channel, as the publisher numbers them.
    pub channel: u16,
    /// The best bid.
    pub bid_px: Price,
    /// Shares there; 0 where there is no bid.
    pub bid_qty: u64,
    /// The best offer.
    pub ask_px: Price,
    /// Shares there; 0 where there is no offer.
    pub ask_qty: u64,
    /// See [`Flags`].
    pub flags: Flags,
}

/// A quote as a reader finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conflated {
    /// The quote.
    pub quote: Quote,
    /// Updates between the one that this reader saw last and this one, which it did not see.
    pub merged: u64,
}

impl Quote {
    /// Bytes of a quote without its version and count, as it travels to other machines.
    pub const LEN: usize = QUOTE_WORDS * 8;

    /// The quote for other machines: its words, little-endian, with the meaning that they have in
    /// shared memory.
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        let (chunks, _) = bytes.as_chunks_mut();
        chunks.iter_mut().zip(self.to_words()).for_each(|(chunk, word)| *chunk = word.to_le_bytes());
        bytes
    }

    /// The quote of such bytes.
    pub fn from_bytes(bytes: &[u8; Self::LEN]) -> Self {
        let (chunks, _) = bytes.as_chunks();
        let mut words = [0; QUOTE_WORDS];
        words.iter_mut().zip(chunks).for_each(|(word, chunk)| *word = u64::from_le_bytes(*chunk));
        Self::from_words(&words)
    }

    pub(crate) fn to_words(self) -> [u64; QUOTE_WORDS] {
        [
            self.venue_seq,
            self.exchange_ns,
            self.receive_ns,
            self.publish_ns,
            u64::from_le_bytes(self.symbol.0),
            self.channel.into(),
            self.bid_px.0 as u64,
            self.bid_qty,
            self.ask_px.0 as u64,
            self.ask_qty,
            self.flags.0.into(),
            0,
            0,
            0,
        ]
    }

    pub(crate) fn from_words(words: &[u64; QUOTE_WORDS]) -> Self {
        let [
            venue_seq,
            exchange_ns,
            receive_ns,
            publish_ns,
            symbol,
            channel,
            bid_px,
            bid_qty,
            ask_px,
            ask_qty,
            flags,
            ..,
        ] = *words;
        Self {
            venue_seq,
            exchange_ns,
            receive_ns,
            publish_ns,
            symbol: Symbol(symbol.to_le_bytes()),
            channel: channel as u16,
            bid_px: Price(bid_px as i64),
            bid_qty,
            ask_px: Price(ask_px as i64),
            ask_qty,
            flags: Flags(flags as u8),
        }
    }
}
