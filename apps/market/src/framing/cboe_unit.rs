//! The Cboe sequenced unit header, little endian: 8 bytes, then messages that begin with their own
//! length.
//!
//! `0:2 length of the whole packet, 2:1 count, 3:1 unit, 4:4 sequence of the first message`. Each
//! unit has its own sequence. A heartbeat has no messages and the next sequence; on a gap-response
//! group its sequence is 0, which has no meaning. Messages with sequence 0 are unsequenced:
//! on a group of numbered ones they are none of the unit's.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Framing, FramingError, Header, PacketKind, Session};

/// The framing of Cboe's Multicast PITCH.
#[derive(Clone, Copy, Debug)]
pub struct CboeUnit;

/// The header in Cboe's terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitHeader {
    /// The unit; each has its own sequence.
    pub unit: u8,
    /// Messages in the packet.
    pub count: u8,
    /// Number of the first message, the next expected one, or 0.
    pub seq: u32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Wire {
    len: U16,
    count: u8,
    unit: u8,
    seq: U32,
}

/// A message is its length and its type at least.
const MESSAGE_LEN_MIN: usize = 2;

impl Framing for CboeUnit {
    type Raw = UnitHeader;

    const NAME: &'static str = "Cboe sequenced unit";
    const HEADER_LEN: usize = 8;
    const PREFIX_LEN: usize = 0;
    const COUNT_MAX: u32 = 0xff;
    const MESSAGE_LEN_MAX: usize = 0xff;

    fn parse_raw(packet: &[u8]) -> Result<(UnitHeader, &[u8]), FramingError> {
        let Ok((wire, blocks)) = Wire::ref_from_prefix(packet) else {
            return Err(FramingError::HeaderShort { len: packet.len() });
        };
        let declared = usize::from(wire.len.get());
        if declared != packet.len() {
            return Err(FramingError::LengthMismatch { declared, len: packet.len() });
        }
        Ok((UnitHeader { unit: wire.unit, count: wire.count, seq: wire.seq.get() }, blocks))
    }

    fn header(raw: &UnitHeader) -> Header {
        let kind = match (raw.count, raw.seq) {
            (0, _) => PacketKind::Heartbeat,
            (_, 0) => PacketKind::Unsequenced,
            _ => PacketKind::Data,
        };
        Header {
            channel: raw.unit.into(),
            session: Session::default(),
            seq: raw.seq.into(),
            count: raw.count.into(),
            kind,
            sent_ns: 0,
        }
    }

    #[inline]
    fn split(blocks: &[u8]) -> Option<(&[u8], &[u8])> {
        let len = usize::from(*blocks.first()?);
        if len < MESSAGE_LEN_MIN {
            return None;
        }
        blocks.split_at_checked(len)
    }

    fn emit_raw(raw: &UnitHeader, count: u32, body_len: usize, out: &mut [u8]) {
        let wire = Wire {
            len: ((Self::HEADER_LEN + body_len) as u16).into(),
            count: count as u8,
            unit: raw.unit,
            seq: raw.seq.into(),
        };
        out[..Self::HEADER_LEN].copy_from_slice(wire.as_bytes());
    }

    fn emit_prefix(_len: usize, _out: &mut [u8]) {}
}
