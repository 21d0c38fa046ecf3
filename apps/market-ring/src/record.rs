//! A record of the ring: an event with its times and flags, as sixteen words.
//!
//! The words have one meaning for all events, so that a program in C reads a record as one struct:
//!
//! ```text
//!    0 seq + 1      4 publish ns                   8 order, or the old one   12 price of the offer
//!    1 venue seq    5 kind, flags, channel, locate 9 trade, or the new order 13 shares of the offer
//!    2 exchange ns  6 side, letter, bits          10 price, or of the bid    14 update number
//!    3 receive ns   7 symbol                      11 shares, or of the bid   15 zero
//! ```

use market::event::Event;

use crate::fields::Fields;
use crate::layout::RECORD_WORDS;

/// Words of a record after its sequence.
pub(crate) const BODY_WORDS: usize = RECORD_WORDS - 1;

/// What a consumer should know of a record beyond its event. A set of bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub u8);

impl Flags {
    /// No more records belong to this event of the exchange: books are consistent now.
    pub const END_OF_EVENT: Self = Self(1);
    /// The record is a part of an image, and nothing happened at the exchange.
    pub const SNAPSHOT: Self = Self(2);
    /// Messages of the venue are missing before this record.
    pub const GAP_BEFORE: Self = Self(4);
    /// The instrument's book misses something and is not to be traded on.
    pub const STALE: Self = Self(8);
    /// Of a quote: messages are missing that may have been about the instrument, and nothing shows
    /// it yet. It is of use to who takes that risk. Only venues that number the updates of each
    /// instrument (CME) have such quotes; those of others are [`Flags::STALE`] at once.
    pub const UNCONFIRMED: Self = Self(16);
    /// Of a quote: the venue does not trade the instrument, as far as its messages have told. A
    /// publisher of an older version does not set it.
    pub const HALTED: Self = Self(32);

    /// Both sets.
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all bits of `other` are in this set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// An event on its way to consumers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The sequence number that the venue gave to the message.
    pub venue_seq: u64,
    /// When the packet arrived, ns since 1970 or of the NIC's clock, as the publisher's
    /// documentation says; 0 where unknown.
    pub receive_ns: u64,
    /// When the publisher wrote the record, ns of the same clock; 0 where unknown.
    pub publish_ns: u64,
    /// The feed's channel, as the publisher numbers them.
    pub channel: u16,
    /// See [`Flags`].
    pub flags: Flags,
    /// The event; its own time is the exchange's.
    pub event: Event,
}

impl Record {
    /// A record of channel 0 that is an event of its own, without times.
    pub const fn new(venue_seq: u64, event: Event) -> Self {
        Self { venue_seq, receive_ns: 0, publish_ns: 0, channel: 0, flags: Flags::END_OF_EVENT, event }
    }

    /// Bytes of a record without its sequence, as it travels to other machines.
    pub const LEN: usize = BODY_WORDS * 8;

    /// The exchange's time of the event, ns, in the feed's own epoch; 0 where it has none.
    pub fn exchange_ns(&self) -> u64 {
        Fields::of(&self.event).at_ns
    }

    /// The record for other machines: its words after the sequence, little-endian, with the meaning
    /// that they have in the ring.
    #[inline]
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        let (chunks, _) = bytes.as_chunks_mut();
        chunks.iter_mut().zip(self.to_words()).for_each(|(chunk, word)| *chunk = word.to_le_bytes());
        bytes
    }

    /// The record of such bytes; `None` where they are none that is known here.
    #[inline]
    pub fn from_bytes(bytes: &[u8; Self::LEN]) -> Option<Self> {
        let (chunks, _) = bytes.as_chunks();
        let words: &[[u8; 8]; BODY_WORDS] = chunks.try_into().ok()?;
        Self::from_words(&words.map(u64::from_le_bytes))
    }

    /// The words after the sequence.
    #[inline]
    pub(crate) fn to_words(self) -> [u64; BODY_WORDS] {
        let fields = Fields::of(&self.event);
        let head = u64::from(fields.kind) | u64::from(self.flags.0) << 8 | u64::from(self.channel) << 16;
        [
            self.venue_seq,
            fields.at_ns,
            self.receive_ns,
            self.publish_ns,
            head | u64::from(fields.locate) << 32,
            u64::from(fields.side) | u64::from(fields.letter) << 8 | u64::from(fields.bits) << 16,
            fields.symbol,
            fields.order,
            fields.other,
            fields.price as u64,
            fields.qty,
            fields.ask_px as u64,
            fields.ask_qty,
            fields.rpt_seq.into(),
            0,
        ]
    }

    /// The record of such words; `None` where the kind of event, or a letter in it, is none that is
    /// known here.
    #[inline]
    pub(crate) fn from_words(words: &[u64; BODY_WORDS]) -> Option<Self> {
        let [venue_seq, at_ns, receive_ns, publish_ns, head, small, ..] = *words;
        let [.., symbol, order, other, price, qty, ask_px, ask_qty, rpt_seq, _] = *words;
        let fields = Fields {
            kind: head as u8,
            at_ns,
            locate: (head >> 32) as u32,
            side: small as u8,
            letter: (small >> 8) as u8,
            bits: (small >> 16) as u8,
            symbol,
            order,
            other,
            price: price as i64,
            qty,
            ask_px: ask_px as i64,
            ask_qty,
            rpt_seq: rpt_seq as u32,
        };
        let (channel, flags) = ((head >> 16) as u16, Flags((head >> 8) as u8));
        Some(Self { venue_seq, receive_ns, publish_ns, channel, flags, event: fields.event()? })
    }
}
