//! NYSE's packets of its Exchange Data Publisher (XDP), little endian: 16 bytes of header, then
//! messages that begin with their own length.
//!
//! `0:2 length of the whole packet, 2:1 delivery flag, 3:1 count, 4:4 number of the first message,
//! 8:4 send time in seconds since 1970, 12:4 its nanoseconds`; a message is `0:2 length, itself
//! included, 2:2 type`. The numbers count the messages of a channel, which is a multicast group.
//! Retransmissions and refreshes come on groups of their own, with delivery flags of their own.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Framing, FramingError, Header, PacketKind, Session};

/// The framing of NYSE's XDP.
#[derive(Clone, Copy, Debug)]
pub struct PillarPacket;

/// The header in NYSE's terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PillarHeader {
    /// Why the packet was sent: one of the constants below, or one that is newer than they are.
    pub delivery_flag: u8,
    /// Messages in the packet.
    pub count: u8,
    /// Number of the first message.
    pub seq: u32,
    /// Send time, ns since 1970.
    pub sent_ns: u64,
}

impl PillarHeader {
    /// The channel is alive; no messages.
    pub const HEARTBEAT: u8 = 1;
    /// Messages as they happened.
    pub const ORIGINAL: u8 = 11;
    /// The numbers of the channel begin anew with this packet.
    pub const SEQUENCE_NUMBER_RESET: u8 = 12;
    /// The only packet of a refresh; from here to [`PillarHeader::MESSAGE_UNAVAILABLE`] the
    /// packets are outside of the channel's numbers.
    pub const ONE_REFRESH_PACKET: u8 = 17;
    /// What was asked for again is not to be had.
    pub const MESSAGE_UNAVAILABLE: u8 = 21;
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Wire {
    len: U16,
    delivery_flag: u8,
    count: u8,
    seq: U32,
    seconds: U32,
    nanoseconds: U32,
}

const NANOS_PER_SECOND: u64 = 1_000_000_000;
/// A message is its length and its type at least.
const MESSAGE_LEN_MIN: usize = 4;

impl Framing for PillarPacket {
    type Raw = PillarHeader;

    const NAME: &'static str = "XDP";
    const HEADER_LEN: usize = 16;
    const PREFIX_LEN: usize = 0;
    const COUNT_MAX: u32 = 0xff;
    const MESSAGE_LEN_MAX: usize = 0xffff;

    fn parse_raw(packet: &[u8]) -> Result<(PillarHeader, &[u8]), FramingError> {
        let Ok((wire, blocks)) = Wire::ref_from_prefix(packet) else {
            return Err(FramingError::HeaderShort { len: packet.len() });
        };
        let declared = usize::from(wire.len.get());
        if declared != packet.len() {
            return Err(FramingError::LengthMismatch { declared, len: packet.len() });
        }
        let sent_ns = u64::from(wire.seconds.get()) * NANOS_PER_SECOND + u64::from(wire.nanoseconds.get());
        let (delivery_flag, count, seq) = (wire.delivery_flag, wire.count, wire.seq.get());
        Ok((PillarHeader { delivery_flag, count, seq, sent_ns }, blocks))
    }

    /// A heartbeat gives no number here. Sources differ on whether it repeats the last number or
    /// announces the next, and a number that is one too low, again and again, would be taken for a
    /// restart.
    fn header(raw: &PillarHeader) -> Header {
        let kind = match (raw.delivery_flag, raw.count) {
            (PillarHeader::HEARTBEAT, _) | (_, 0) => PacketKind::Heartbeat,
            (PillarHeader::ONE_REFRESH_PACKET..=PillarHeader::MESSAGE_UNAVAILABLE, _) => PacketKind::Unsequenced,
            (PillarHeader::SEQUENCE_NUMBER_RESET, _) if raw.seq == 1 => PacketKind::SequenceReset,
            _ => PacketKind::Data,
        };
        let seq = if matches!(kind, PacketKind::Data | PacketKind::SequenceReset) { raw.seq.into() } else { 0 };
        Header { channel: 0, session: Session::default(), seq, count: raw.count.into(), kind, sent_ns: raw.sent_ns }
    }

    #[inline]
    fn split(blocks: &[u8]) -> Option<(&[u8], &[u8])> {
        let len = usize::from(u16::from_le_bytes(*blocks.first_chunk()?));
        if len < MESSAGE_LEN_MIN {
            return None;
        }
        blocks.split_at_checked(len)
    }

    fn emit_raw(raw: &PillarHeader, count: u32, body_len: usize, out: &mut [u8]) {
        let wire = Wire {
            len: ((Self::HEADER_LEN + body_len) as u16).into(),
            delivery_flag: raw.delivery_flag,
            count: count as u8,
            seq: raw.seq.into(),
            seconds: ((raw.sent_ns / NANOS_PER_SECOND) as u32).into(),
            nanoseconds: ((raw.sent_ns % NANOS_PER_SECOND) as u32).into(),
        };
        out[..Self::HEADER_LEN].copy_from_slice(wire.as_bytes());
    }

    fn emit_prefix(_len: usize, _out: &mut [u8]) {}
}
