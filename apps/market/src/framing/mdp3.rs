//! CME's MDP 3.0 packets, little endian: 12 bytes of header, then messages that begin with their
//! own length.
//!
//! `0:4 number of the packet, 4:8 send time`; a message is `0:2 length, itself included, 2:8 SBE
//! header`, then its block and groups. The numbers count packets, one sequence for each channel and
//! each of its feeds (incremental, definitions, snapshots), and begin anew each week. Heartbeats
//! are messages and have a number like all packets.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Framing, FramingError, Header, PacketKind, Session};

/// The framing of CME's MDP 3.0.
#[derive(Clone, Copy, Debug)]
pub struct Mdp3Packet;

/// The header in CME's terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mdp3Header {
    /// Number of the packet.
    pub seq: u32,
    /// Send time, ns since 1970.
    pub sent_ns: u64,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Wire {
    seq: U32,
    sent_ns: U64,
}

/// The length in front of a message is part of it.
const LEN_LEN: usize = 2;
/// The length and the header of a message without a block.
const BLOCK_LEN_MIN: usize = 10;

impl Framing for Mdp3Packet {
    type Raw = Mdp3Header;

    const NAME: &'static str = "MDP 3.0";
    const HEADER_LEN: usize = 12;
    const PREFIX_LEN: usize = LEN_LEN;
    const COUNT_MAX: u32 = 0xffff;
    const MESSAGE_LEN_MAX: usize = 0xffff - LEN_LEN;
    const NUMBERS_PACKETS: bool = true;

    fn parse_raw(packet: &[u8]) -> Result<(Mdp3Header, &[u8]), FramingError> {
        let Ok((wire, blocks)) = Wire::ref_from_prefix(packet) else {
            return Err(FramingError::HeaderShort { len: packet.len() });
        };
        // A packet has a message at least: without one, any twelve bytes would be a packet.
        if blocks.is_empty() {
            return Err(FramingError::MessageOverrun { idx: 0 });
        }
        Ok((Mdp3Header { seq: wire.seq.get(), sent_ns: wire.sent_ns.get() }, blocks))
    }

    fn header(raw: &Mdp3Header) -> Header {
        Header {
            channel: 0,
            session: Session::default(),
            seq: raw.seq.into(),
            count: 1,
            kind: PacketKind::Data,
            sent_ns: raw.sent_ns,
        }
    }

    #[inline]
    fn split(blocks: &[u8]) -> Option<(&[u8], &[u8])> {
        let len = usize::from(u16::from_le_bytes(*blocks.first_chunk::<LEN_LEN>()?));
        if len < BLOCK_LEN_MIN {
            return None;
        }
        let (block, rest) = blocks.split_at_checked(len)?;
        Some((&block[LEN_LEN..], rest))
    }

    fn emit_raw(raw: &Mdp3Header, _count: u32, _body_len: usize, out: &mut [u8]) {
        let wire = Wire { seq: raw.seq.into(), sent_ns: raw.sent_ns.into() };
        out[..Self::HEADER_LEN].copy_from_slice(wire.as_bytes());
    }

    fn emit_prefix(len: usize, out: &mut [u8]) {
        out.copy_from_slice(&((len + LEN_LEN) as u16).to_le_bytes());
    }
}
