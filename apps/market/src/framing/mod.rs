//! Framing: packets with a channel, a session and sequence numbers, and blocks with a length.
//!
//! ```text
//!   packet bytes ── parse ──> Packet { raw, header, messages() }      the whole packet is checked first
//!   raw header ──── PacketWriter::new, push, finish ──> packet bytes
//! ```
//!
//! [`Framing`] is the common trait of all: MoldUDP64, IEX-TP, the Cboe sequenced unit, CME's MDP
//! 3.0 packet, NYSE's XDP packet, MEMX-UDP, B3's UMDF packet, T7's EOBI packet, and the
//! length-prefixed file. A packet whose counts and lengths disagree with its size is refused whole
//! with a [`FramingError`], so a consumer never sees the first half of a bad packet. Nothing is
//! copied or allocated.

use core::fmt;
use core::marker::PhantomData;

pub mod b3_umdf;
pub mod cboe_unit;
pub mod eobi;
pub mod iex_tp;
pub mod itch_file;
pub mod mdp3;
pub mod memx_udp;
pub mod mold_udp64;
pub mod pillar;

/// One way of putting messages into packets.
pub trait Framing: Sized {
    /// The header in this framing's own terms.
    type Raw: Copy + fmt::Debug;

    /// Its name in configurations and reports.
    const NAME: &'static str;
    /// Bytes before the first message block.
    const HEADER_LEN: usize;
    /// Bytes of length in front of each message that are not part of the message.
    const PREFIX_LEN: usize;
    /// Most messages in one packet.
    const COUNT_MAX: u32;
    /// Longest message that a block can carry, in bytes.
    const MESSAGE_LEN_MAX: usize;
    /// Whether the sequence numbers packets and not messages: then the header's count is 1, and the
    /// packet has as many messages as its bytes hold.
    const NUMBERS_PACKETS: bool = false;
    /// Whether the header is a message too. It comes behind the others, with the number of the
    /// last, because it says whether the venue's event is over.
    const HEADER_IS_MESSAGE: bool = false;
    /// Longest packet in bytes: the largest UDP datagram over IPv4 without options.
    const PACKET_LEN_MAX: usize = 65_507;

    /// Parses the header and returns it with the message blocks after it. Checks only the version
    /// and the packet's length.
    fn parse_raw(packet: &[u8]) -> Result<(Self::Raw, &[u8]), FramingError>;

    /// The header in the terms that all framings share.
    fn header(raw: &Self::Raw) -> Header;

    /// The header of a packet of a loop (snapshots, definitions), where other numbers count there.
    fn loop_header(raw: &Self::Raw) -> Header {
        Self::header(raw)
    }

    /// Splits the first message off `blocks`: the message and the rest. `None` where the length
    /// does not fit.
    fn split(blocks: &[u8]) -> Option<(&[u8], &[u8])>;

    /// Writes the header of a packet with `count` messages in `body_len` bytes to the front of
    /// `out`, which holds at least [`Framing::HEADER_LEN`] bytes.
    fn emit_raw(raw: &Self::Raw, count: u32, body_len: usize, out: &mut [u8]);

    /// Writes the length of a message of `len` bytes to `out`. Framings whose messages carry their
    /// own length write nothing.
    fn emit_prefix(len: usize, out: &mut [u8]);

    /// Checks the whole packet. Costs one step per message: the lengths are added up and compared
    /// with the packet.
    fn parse(packet: &[u8]) -> Result<Packet<'_, Self>, FramingError> {
        let (raw, blocks) = Self::parse_raw(packet)?;
        let header = Self::header(&raw);
        let (mut rest, mut idx) = (blocks, 0);
        let takes_all = Self::NUMBERS_PACKETS || Self::HEADER_IS_MESSAGE;
        while if takes_all { !rest.is_empty() } else { idx < header.count } {
            let Some((_, behind)) = Self::split(rest) else { return Err(FramingError::MessageOverrun { idx }) };
            rest = behind;
            idx += 1;
        }
        if !rest.is_empty() {
            return Err(FramingError::TrailingBytes { len: rest.len() });
        }
        let trailer = if Self::HEADER_IS_MESSAGE { &packet[..Self::HEADER_LEN] } else { &[] };
        Ok(Packet { raw, header, blocks, count: idx, trailer })
    }
}

/// The fields that every framing has for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The sequence space within the feed: IEX channel, Cboe unit, 0 where the framing has one
    /// only.
    pub channel: u32,
    /// The publisher's session; a new one restarts the numbers.
    pub session: Session,
    /// Number of the first message, or the next expected number where there is none. 0 has no
    /// meaning.
    pub seq: u64,
    /// Messages in the packet.
    pub count: u32,
    /// The kind of packet.
    pub kind: PacketKind,
    /// The publisher's send time, ns since 1970; 0 where the framing has none.
    pub sent_ns: u64,
}

impl Header {
    /// One past the last message's number.
    pub const fn end(&self) -> u64 {
        self.seq.saturating_add(self.count as u64)
    }
}

/// A session's name: its bytes packed into one word, because it is only compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Session(pub u128);

/// The kind of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PacketKind {
    /// Messages with sequence numbers.
    Data,
    /// The same, of a publisher that says so: its numbers begin anew with this packet (NYSE).
    SequenceReset,
    /// No messages; the sequence number is the next expected one, or 0 where the group has none.
    Heartbeat,
    /// No more messages will follow in this session; the sequence number is the next expected one.
    EndOfSession,
    /// Messages without sequence numbers: of a file, or outside of the numbers of a channel, where
    /// no machine of `sequence` delivers them.
    Unsequenced,
}

/// A packet that has been checked as a whole.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a, F: Framing> {
    /// The header in the framing's own terms.
    pub raw: F::Raw,
    /// The header in shared terms.
    pub header: Header,
    blocks: &'a [u8],
    count: u32,
    /// The header, where it is a message.
    trailer: &'a [u8],
}

impl<'a, F: Framing> Packet<'a, F> {
    /// The messages in order: where the sequence numbers messages, `header.count` of them, and then
    /// the header where that is one.
    pub fn messages(&self) -> Messages<'a, F> {
        let Self { blocks, count, trailer, .. } = *self;
        Messages { blocks, count, trailer, framing: PhantomData }
    }

    /// The messages but the first `skip`, each with its number: 0 where they have none, and that of
    /// the packet where the sequence numbers packets.
    #[inline]
    pub fn numbered(&self, skip: u32) -> impl Iterator<Item = (u64, &'a [u8])> + use<'a, F> {
        let first = self.header.seq;
        let step = u64::from(first > 0 && !F::NUMBERS_PACKETS);
        let last = u64::from(self.count.saturating_sub(1));
        let place = move |idx: u64| if F::HEADER_IS_MESSAGE { idx.min(last) } else { idx };
        (0..).zip(self.messages()).skip(skip as usize).map(move |(idx, message)| (first + step * place(idx), message))
    }
}

/// Walks over the messages of a checked packet.
#[derive(Clone, Debug)]
pub struct Messages<'a, F> {
    blocks: &'a [u8],
    count: u32,
    /// What is still to come behind them.
    trailer: &'a [u8],
    framing: PhantomData<F>,
}

impl<'a, F: Framing> Iterator for Messages<'a, F> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        if self.count == 0 {
            let trailer = if F::HEADER_IS_MESSAGE { core::mem::take(&mut self.trailer) } else { &[] };
            return (!trailer.is_empty()).then_some(trailer);
        }
        let (message, behind) = F::split(self.blocks)?;
        self.blocks = behind;
        self.count -= 1;
        Some(message)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let count = self.count as usize + usize::from(!self.trailer.is_empty());
        (count, Some(count))
    }
}

/// Builds one packet in memory that the caller owns.
#[derive(Debug)]
pub struct PacketWriter<'a, F: Framing> {
    raw: F::Raw,
    out: &'a mut [u8],
    len: usize,
    count: u32,
}

impl<'a, F: Framing> PacketWriter<'a, F> {
    /// Starts a packet at the front of `out`; its size is the largest packet. `None` where not even
    /// the header fits.
    pub fn new(raw: F::Raw, out: &'a mut [u8]) -> Option<Self> {
        let len = out.len().min(F::PACKET_LEN_MAX);
        let out = &mut out[..len];
        if out.len() < F::HEADER_LEN {
            return None;
        }
        Some(Self { raw, out, len: F::HEADER_LEN, count: 0 })
    }

    /// Adds a message. A full packet returns an error and stays unchanged: finish it and start the
    /// next one.
    pub fn push(&mut self, message: &[u8]) -> Result<(), PacketFull> {
        let start = self.len + F::PREFIX_LEN;
        let end = start + message.len();
        if end > self.out.len() || message.len() > F::MESSAGE_LEN_MAX || self.count == F::COUNT_MAX {
            return Err(PacketFull);
        }
        F::emit_prefix(message.len(), &mut self.out[self.len..start]);
        self.out[start..end].copy_from_slice(message);
        self.len = end;
        self.count += 1;
        Ok(())
    }

    /// Messages so far.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Writes the header and returns the packet. Without a message it is a heartbeat.
    pub fn finish(self) -> &'a [u8] {
        F::emit_raw(&self.raw, self.count, self.len - F::HEADER_LEN, self.out);
        &self.out[..self.len]
    }
}

/// The message does not fit into the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketFull;

impl fmt::Display for PacketFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the message does not fit into the packet")
    }
}

impl core::error::Error for PacketFull {}

/// Why a packet was refused. The packet is dropped whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FramingError {
    /// Shorter than the header.
    HeaderShort {
        /// Bytes that arrived.
        len: usize,
    },
    /// A version this decoder does not know.
    Version {
        /// The version on the wire.
        found: u8,
    },
    /// The header's length is not the packet's.
    LengthMismatch {
        /// Bytes that the header announces.
        declared: usize,
        /// Bytes that arrived.
        len: usize,
    },
    /// A message's length exceeds the packet, or is one that its framing forbids.
    MessageOverrun {
        /// Position of the message in the packet, from 0.
        idx: u32,
    },
    /// A message's number is not the one behind the number of the message before.
    MessageNumber {
        /// Position of the message in the packet, from 0.
        idx: u32,
    },
    /// Bytes are left behind the last message.
    TrailingBytes {
        /// How many.
        len: usize,
    },
}

impl FramingError {
    /// The names of the errors, by [`FramingError::idx`]: a table of drop counters has one row
    /// each.
    pub const NAMES: [&'static str; 6] =
        ["header_short", "version", "length_mismatch", "message_overrun", "trailing_bytes", "message_number"];

    /// Position of this error in [`FramingError::NAMES`].
    pub const fn idx(self) -> usize {
        match self {
            Self::HeaderShort { .. } => 0,
            Self::Version { .. } => 1,
            Self::LengthMismatch { .. } => 2,
            Self::MessageOverrun { .. } => 3,
            Self::TrailingBytes { .. } => 4,
            Self::MessageNumber { .. } => 5,
        }
    }

    /// The error's name in counters and reports.
    pub const fn name(self) -> &'static str {
        Self::NAMES[self.idx()]
    }
}

impl fmt::Display for FramingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HeaderShort { len } => write!(f, "a packet of {len} bytes is shorter than its header"),
            Self::Version { found } => write!(f, "framing version {found} is not known"),
            Self::LengthMismatch { declared, len } => {
                write!(f, "the header announces {declared} bytes, the packet has {len}")
            }
            Self::MessageOverrun { idx } => write!(f, "message {idx} does not fit into its packet"),
            Self::TrailingBytes { len } => write!(f, "{len} bytes behind the last message"),
            Self::MessageNumber { idx } => write!(f, "message {idx} has another number than the next"),
        }
    }
}

impl core::error::Error for FramingError {}

/// Splits a block with a two-byte length in front, read with `to_len`.
#[inline]
fn split_u16(blocks: &[u8], to_len: fn([u8; 2]) -> u16) -> Option<(&[u8], &[u8])> {
    let (prefix, rest) = blocks.split_first_chunk::<2>()?;
    rest.split_at_checked(usize::from(to_len(*prefix)))
}

#[cfg(test)]
mod tests;
