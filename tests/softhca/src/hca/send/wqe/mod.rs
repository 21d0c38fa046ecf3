//! A send WQE: fetched from the ring into one piece, then each field read and checked (mlx5.md 2.2
//! to 2.6).
//!
//! The input is a ring position; the output is the pieces of memory and inline bytes that make up
//! frames, or a [`Fault`]. No frame is read or sent yet.

use super::fault::Fault;
use crate::hca::config::Config;
use crate::hca::environment::{Dma, Unmapped};
use crate::hca::memory::{Memory, Purpose};

/// Bytes of a basic block.
pub(in crate::hca) const WQEBB_LEN: usize = 64;
/// Bytes that `ds` counts.
const UNIT: usize = 16;
/// `ds` has six bits, and 0 means 64: the longest WQE.
const WQE_LEN_MAX: usize = 64 * UNIT;
/// Where the Ethernet segment begins, where the data segments without inline headers.
const ETHERNET: usize = 16;
const DATA: usize = 32;
/// Where inline headers begin in the Ethernet segment.
const INLINE_HEADERS: usize = ETHERNET + 14;
/// A segment with this bit in its first word holds its bytes itself.
const INLINE: u32 = 1 << 31;

pub(in crate::hca) mod opcode {
    //! mlx5.md 2.2; those of RDMA: `wqe.h` of libmlx5.
    pub(crate) const NOP: u8 = 0x00;
    pub(crate) const SEND_INVALIDATE: u8 = 0x01;
    pub(crate) const WRITE: u8 = 0x08;
    pub(crate) const WRITE_IMMEDIATE: u8 = 0x09;
    pub(crate) const SEND: u8 = 0x0a;
    pub(crate) const SEND_IMMEDIATE: u8 = 0x0b;
    pub(crate) const TSO: u8 = 0x0e;
    pub(crate) const READ: u8 = 0x10;
    pub(crate) const COMPARE_SWAP: u8 = 0x11;
    pub(crate) const FETCH_ADD: u8 = 0x12;
    /// Changes a memory window.
    pub(crate) const UMR: u8 = 0x25;
    pub(crate) const MULTI_PACKET: u8 = 0x29;
}

/// One WQE in one piece: in the ring it may wrap at the end.
pub(in crate::hca) struct Scratch {
    pub(in crate::hca) bytes: [u8; WQE_LEN_MAX],
}

/// The position of a WQE, and the fields that it must have there.
#[derive(Clone, Copy, Debug)]
pub(in crate::hca) struct WqePosition {
    /// The ring.
    pub(in crate::hca) ring: u64,
    pub(in crate::hca) wqebb_count: u32,
    /// Its first WQEBB, counted without end.
    pub(in crate::hca) position: u16,
    /// WQEBBs from there on that were given to the NIC.
    pub(in crate::hca) released: u16,
    /// The queue's number.
    pub(in crate::hca) number: u32,
}

/// The control segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::hca) struct Control {
    pub(in crate::hca) opcode: u8,
    /// Bytes of the WQE.
    pub(in crate::hca) len: usize,
    /// Blocks of it.
    pub(in crate::hca) wqebbs: u16,
    pub(in crate::hca) mode: CompletionMode,
    /// The completion also raises an event. RDMA: so does the receiver's.
    pub(in crate::hca) solicited: bool,
    /// RDMA: waits for the READs and atomics before it.
    pub(in crate::hca) fence: bool,
}

/// When a WQE completes with a CQE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::hca) enum CompletionMode {
    /// Only if the WQE fails or is flushed.
    OnError,
    /// Only if the WQE is the first that fails.
    OnFirstError,
    /// Always.
    Always,
}

/// The Ethernet segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::hca) struct Ethernet {
    /// 0x40 L3, 0x80 L4, 0x10 inner L3, 0x20 inner L4.
    pub(in crate::hca) checksums: u8,
    /// TSO: payload bytes of a frame.
    pub(in crate::hca) mss: u16,
    /// EtherType and TCI to insert.
    pub(in crate::hca) vlan: Option<[u8; 4]>,
    /// Header bytes that the WQE holds.
    pub(in crate::hca) inline_len: usize,
    /// Where data segments begin.
    data: usize,
}

/// A run of bytes of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::hca) struct Piece {
    /// In the scratch, or at an address.
    pub(in crate::hca) source: Source,
    pub(in crate::hca) len: u32,
}

/// Where the bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::hca) enum Source {
    /// This far into the WQE.
    Inline(usize),
    /// Here in the process.
    Memory(u64),
}

/// The pieces of one WQE, at most one for each of its units.
pub(in crate::hca) struct Pieces {
    list: Vec<Piece>,
    /// Bytes of all together.
    pub(in crate::hca) len: u64,
}

impl Scratch {
    pub(in crate::hca) fn new() -> Self {
        Self { bytes: [0; WQE_LEN_MAX] }
    }

    /// Fetches the WQE at `place` and checks its control segment.
    pub(in crate::hca) fn fetch(&mut self, place: &WqePosition, dma: &dyn Dma) -> Result<Control, Fault> {
        let start = place.position as usize % place.wqebb_count as usize * WQEBB_LEN;
        // A block never wraps, so the control segment comes in one piece.
        dma.read(place.ring + start as u64, &mut self.bytes[..WQEBB_LEN]).map_err(|_| Fault::RingUnmapped)?;
        let control = self.control(place)?;
        if control.len > WQEBB_LEN {
            let rest = &mut self.bytes[WQEBB_LEN..control.wqebbs as usize * WQEBB_LEN];
            let ring_len = place.wqebb_count as usize * WQEBB_LEN;
            fetch_wrapped(place.ring, ring_len, start + WQEBB_LEN, rest, dma).map_err(|_| Fault::RingUnmapped)?;
        }
        Ok(control)
    }

    /// Reads and checks the first unit.
    fn control(&self, place: &WqePosition) -> Result<Control, Fault> {
        let bytes = &self.bytes;
        let index = self.be16(1);
        if index != place.position {
            return Err(Fault::Index { found: index, expected: place.position });
        }
        let number = self.be32(4) >> 8;
        if number != place.number {
            return Err(Fault::Number { found: number, expected: place.number });
        }
        let units = match bytes[7] {
            0 => 64,
            ds if ds < 64 => ds as usize,
            ds => return Err(Fault::Size { ds }),
        };
        let wqebbs = units.div_ceil(WQEBB_LEN / UNIT) as u16;
        if wqebbs > place.released {
            return Err(Fault::BeyondRecord { wqebbs, released: place.released });
        }
        if bytes[8] != 0 {
            return Err(Fault::Signature(bytes[8]));
        }
        let flags = bytes[11];
        // Fence modes 0 to 4; bits 4 and 0 are reserved.
        if self.be16(9) != 0 || flags >> 5 > 4 || flags & 0x11 != 0 {
            return Err(Fault::ControlReserved);
        }
        if bytes[0] != 0 {
            return Err(Fault::Opmod(bytes[0]));
        }
        let mode = match flags >> 2 & 3 {
            0 => CompletionMode::OnError,
            1 => CompletionMode::OnFirstError,
            _ => CompletionMode::Always,
        };
        // Mode 3 asks for an event beside the CQE, bit 1 for a solicited one.
        let solicited = flags & 0x0c == 0x0c || flags & 0x02 != 0;
        // Mode 1 is for memory windows alone.
        let fence = flags >> 5 > 1;
        Ok(Control { opcode: bytes[3], len: units * UNIT, wqebbs, mode, solicited, fence })
    }

    /// Checks that there is no immediate: nothing that goes out as Ethernet frames can carry one.
    pub(in crate::hca) fn check_immediate(&self) -> Result<(), Fault> {
        match self.be32(12) {
            0 => Ok(()),
            imm => Err(Fault::Immediate(imm)),
        }
    }

    /// Reads and checks the Ethernet segment of a WQE that carries frames.
    pub(in crate::hca) fn ethernet(&self, control: &Control, config: &Config) -> Result<Ethernet, Fault> {
        if control.len < DATA {
            return Err(Fault::Size { ds: (control.len / UNIT) as u8 });
        }
        let bytes = &self.bytes[ETHERNET..DATA];
        if bytes[..4] != [0; 4] || bytes[5] != 0 {
            return Err(Fault::SoftwareParser);
        }
        if bytes[4] & 0x0f != 0 {
            return Err(Fault::ChecksumFlags(bytes[4]));
        }
        let mss = self.be16(ETHERNET + 6);
        if (control.opcode == opcode::TSO) != (mss != 0) {
            return Err(Fault::SegmentSize { mss });
        }
        let word = self.be16(ETHERNET + 12);
        let mut segment = Ethernet { checksums: bytes[4], mss, vlan: None, inline_len: 0, data: DATA };
        if word & 0x8000 != 0 {
            segment.vlan = Some(insertion(word, [bytes[14], bytes[15]])?);
        } else {
            segment.inline_len = inline_headers(word, control.len)?;
            segment.data = DATA.max((INLINE_HEADERS + segment.inline_len).next_multiple_of(UNIT));
        }
        if control.opcode == opcode::MULTI_PACKET && (word != 0 || config.inline_len_min > 0) {
            return Err(Fault::MultiPacketInline(word));
        }
        Ok(segment)
    }

    /// The headers that the Ethernet segment carries, as the first piece.
    pub(in crate::hca) fn inline_headers(&self, ethernet: &Ethernet) -> &[u8] {
        &self.bytes[INLINE_HEADERS..INLINE_HEADERS + ethernet.inline_len]
    }

    /// Collects all data segments of a WQE that carries frames.
    pub(in crate::hca) fn data(
        &self,
        control: &Control,
        ethernet: &Ethernet,
        (memory, pd): (&Memory, u32),
        pieces: &mut Pieces,
    ) -> Result<(), Fault> {
        self.pieces(ethernet.data, control, Purpose::Read, (memory, pd), pieces)
    }

    /// Collects the data segments from `at` on, each pointer checked against the registered
    /// regions.
    pub(in crate::hca) fn pieces(
        &self,
        mut at: usize,
        control: &Control,
        purpose: Purpose,
        (memory, pd): (&Memory, u32),
        pieces: &mut Pieces,
    ) -> Result<(), Fault> {
        pieces.list.clear();
        pieces.len = 0;
        while at < control.len {
            let word = self.be32(at);
            if word & INLINE != 0 {
                let (len, room) = ((word & !INLINE) as usize, control.len - at - 4);
                if len == 0 || len > room {
                    return Err(Fault::InlineData { len, room });
                }
                pieces.add(Source::Inline(at + 4), len as u32);
                at = (at + 4 + len).next_multiple_of(UNIT);
            } else {
                pieces.add(Source::Memory(self.pointer(at, purpose, memory, pd)?), word);
                at += UNIT;
            }
        }
        Ok(())
    }

    /// Where a pointer segment leads.
    fn pointer(&self, at: usize, purpose: Purpose, memory: &Memory, pd: u32) -> Result<u64, Fault> {
        let (len, lkey, address) = (self.be32(at), self.be32(at + 4), self.be64(at + 8));
        let unit = at / UNIT;
        if len == 0 {
            return Err(Fault::EmptyPointer { unit });
        }
        let reached = memory.reach(pd, lkey, address, u64::from(len), purpose);
        reached.map_err(|why| Fault::Pointer { unit, why, lkey, address, len })
    }

    #[inline]
    pub(in crate::hca) fn be64(&self, at: usize) -> u64 {
        let mut word = [0; 8];
        word.copy_from_slice(&self.bytes[at..at + 8]);
        u64::from_be_bytes(word)
    }

    #[inline]
    pub(in crate::hca) fn be32(&self, at: usize) -> u32 {
        let mut word = [0; 4];
        word.copy_from_slice(&self.bytes[at..at + 4]);
        u32::from_be_bytes(word)
    }

    #[inline]
    fn be16(&self, at: usize) -> u16 {
        u16::from_be_bytes([self.bytes[at], self.bytes[at + 1]])
    }
}

impl Pieces {
    pub(in crate::hca) fn new() -> Self {
        Self { list: Vec::with_capacity(WQE_LEN_MAX / UNIT), len: 0 }
    }

    /// In the order of the WQE.
    #[inline]
    pub(in crate::hca) fn list(&self) -> &[Piece] {
        &self.list
    }

    #[inline]
    fn add(&mut self, source: Source, len: u32) {
        self.list.push(Piece { source, len });
        self.len += u64::from(len);
    }
}

/// Reads from a ring, from its beginning on where its end is reached.
pub(in crate::hca) fn fetch_wrapped(
    ring: u64,
    ring_len: usize,
    start: usize,
    into: &mut [u8],
    dma: &dyn Dma,
) -> Result<(), Unmapped> {
    let start = start % ring_len;
    let before_end = into.len().min(ring_len - start);
    let (first, second) = into.split_at_mut(before_end);
    dma.read(ring + start as u64, first)?;
    if second.is_empty() { Ok(()) } else { dma.read(ring, second) }
}

/// EtherType and TCI of a tag to insert. Bit 0 makes it a service tag; no other bit has a meaning.
fn insertion(word: u16, tci: [u8; 2]) -> Result<[u8; 4], Fault> {
    let ether_type: u16 = match word & 0x7fff {
        0 => 0x8100,
        1 => 0x88a8,
        _ => return Err(Fault::InlineType(word)),
    };
    let [high, low] = ether_type.to_be_bytes();
    Ok([high, low, tci[0], tci[1]])
}

/// Checks `inline_hdr_sz`, ten bits, against the length that `ds` leaves.
fn inline_headers(word: u16, wqe_len: usize) -> Result<usize, Fault> {
    if word & !0x3ff != 0 {
        return Err(Fault::InlineType(word));
    }
    let (len, room) = (word as usize, wqe_len - INLINE_HEADERS);
    if len > room { Err(Fault::InlineHeaders { len, room }) } else { Ok(len) }
}

#[cfg(test)]
mod tests;
