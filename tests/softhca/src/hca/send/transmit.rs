//! Executes a fetched WQE: builds its frames, does the work that was left to the NIC, and puts the
//! frames onto the wire.
//!
//! A WQE is executed as a whole. Frames that the wire does not take at the moment wait in the
//! outbox, and no other WQE is begun before the outbox is empty. The driver's memory is free as
//! soon as the WQE completes, as with hardware, which has read it by then.

use super::fault::Fault;
use super::offload;
use super::outbox::Outbox;
use super::wqe::{Control, Ethernet, Piece, Pieces, Scratch, Source, opcode};
use crate::hca::environment::{Dma, Unmapped};
use crate::hca::work::Work;

/// The part of the NIC behind all sending queues: the WQE and the frame in work.
pub(in crate::hca) struct Transmitter {
    pub(super) scratch: Scratch,
    pieces: Pieces,
    frame: Vec<u8>,
    payload: Vec<u8>,
    pub(in crate::hca) outbox: Outbox,
}

/// The frames that a WQE has put onto the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::hca) struct SentFrames {
    pub(in crate::hca) frames: usize,
    pub(in crate::hca) bytes: u32,
}

/// Destination, source, EtherType.
const ETHERNET_LEN: u64 = 14;
/// The bytes of a frame beyond an IP packet of MTU length: Ethernet header and a VLAN tag, as
/// Linux' mlx5e sets up the port.
const MTU_OVERHEAD: u64 = 18;

impl Transmitter {
    pub(in crate::hca) fn new() -> Self {
        Self {
            scratch: Scratch::new(),
            pieces: Pieces::new(),
            frame: Vec::with_capacity(16 * 1024),
            payload: Vec::new(),
            outbox: Outbox::default(),
        }
    }

    /// Whether frames of an earlier WQE still wait for the wire.
    #[inline]
    pub(in crate::hca) fn is_busy(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// Offers the waiting frames to the wire. Returns how many left.
    pub(in crate::hca) fn resume(&mut self, work: &mut Work<'_, '_>) -> usize {
        self.outbox.resume(work)
    }

    /// Executes the WQE in the scratch.
    #[inline]
    pub(super) fn execute(&mut self, control: &Control, pd: u32, work: &mut Work<'_, '_>) -> Result<SentFrames, Fault> {
        if control.len > work.config.wqe_len_max.into() {
            return Err(Fault::TooLong { len: control.len, max: work.config.wqe_len_max });
        }
        match control.opcode {
            opcode::NOP => return Ok(SentFrames::default()),
            opcode::SEND => {}
            opcode::TSO if work.config.tso_len_max > 0 => {}
            opcode::MULTI_PACKET if work.config.multi_packet_send => {}
            unknown => return Err(Fault::Opcode(unknown)),
        }
        self.scratch.check_immediate()?;
        let ethernet = self.scratch.ethernet(control, work.config)?;
        self.scratch.data(control, &ethernet, (work.memory, pd), &mut self.pieces)?;
        match control.opcode {
            opcode::TSO => self.segment(&ethernet, work),
            opcode::MULTI_PACKET => self.send_each(control, &ethernet, work),
            _ => self.send_one(&ethernet, work),
        }
    }

    /// All pieces are one frame.
    fn send_one(&mut self, ethernet: &Ethernet, work: &mut Work<'_, '_>) -> Result<SentFrames, Fault> {
        let len = ethernet.inline_len as u64 + self.pieces.len;
        check_frame_len(len)?;
        check_inline(ethernet, len, work)?;
        if is_too_long(len, ethernet, work) {
            return Ok(SentFrames { frames: 1, bytes: 0 });
        }
        self.frame.clear();
        self.frame.extend_from_slice(self.scratch.inline_headers(ethernet));
        for piece in self.pieces.list() {
            append(&mut self.frame, &self.scratch, piece, work.environment.dma)?;
        }
        Ok(self.finish(ethernet, work))
    }

    /// Each piece is a frame; mlx5.md 2.6.
    fn send_each(
        &mut self,
        control: &Control,
        ethernet: &Ethernet,
        work: &mut Work<'_, '_>,
    ) -> Result<SentFrames, Fault> {
        if self.pieces.list().is_empty() {
            return Err(Fault::Size { ds: (control.len / 16) as u8 });
        }
        for piece in self.pieces.list() {
            check_frame_len(u64::from(piece.len))?;
        }
        let mut sent = SentFrames::default();
        for at in 0..self.pieces.list().len() {
            let piece = self.pieces.list()[at];
            if is_too_long(u64::from(piece.len), ethernet, work) {
                sent.frames += 1;
                continue;
            }
            self.frame.clear();
            append(&mut self.frame, &self.scratch, &piece, work.environment.dma)?;
            let one = self.finish(ethernet, work);
            sent.frames += one.frames;
            sent.bytes += one.bytes;
        }
        Ok(sent)
    }

    /// The pieces are the payload of a TCP stream that is cut into frames; mlx5.md 2.5.
    fn segment(&mut self, ethernet: &Ethernet, work: &mut Work<'_, '_>) -> Result<SentFrames, Fault> {
        let max = work.config.tso_len_max;
        let len = self.pieces.len;
        if len == 0 || len > u64::from(max) {
            return Err(Fault::TsoPayload { len, max });
        }
        let headers = offload::TsoHeaders::parse(self.scratch.inline_headers(ethernet));
        let headers = headers.ok_or(Fault::TsoHeaders { len: ethernet.inline_len })?;
        self.payload.clear();
        for piece in self.pieces.list() {
            append(&mut self.payload, &self.scratch, piece, work.environment.dma)?;
        }
        let mut sent = SentFrames::default();
        let count = self.payload.len().div_ceil(ethernet.mss as usize);
        for (nth, chunk) in self.payload.chunks(ethernet.mss as usize).enumerate() {
            self.frame.clear();
            self.frame.extend_from_slice(self.scratch.inline_headers(ethernet));
            self.frame.extend_from_slice(chunk);
            headers.fix(&mut self.frame, nth as u32, nth + 1 == count, ethernet.mss);
            offload::fill_checksums(&mut self.frame, offload::L3 | offload::L4);
            if !is_too_long(self.frame.len() as u64, ethernet, work) {
                sent.bytes += self.frame.len() as u32;
                self.outbox.send(&mut self.frame, work);
            }
            sent.frames += 1;
        }
        Ok(sent)
    }

    /// Fills in checksums and tag, and lets the frame go.
    fn finish(&mut self, ethernet: &Ethernet, work: &mut Work<'_, '_>) -> SentFrames {
        if ethernet.checksums != 0 && !offload::fill_checksums(&mut self.frame, ethernet.checksums) {
            work.counters.tx_checksum_not_filled += 1;
        }
        if let Some(tag) = ethernet.vlan {
            offload::insert_tag(&mut self.frame, tag);
        }
        let bytes = self.frame.len() as u32;
        self.outbox.send(&mut self.frame, work);
        SentFrames { frames: 1, bytes }
    }
}

fn check_frame_len(len: u64) -> Result<(), Fault> {
    if len < ETHERNET_LEN { Err(Fault::FrameShort { len }) } else { Ok(()) }
}

/// A NIC that parses headers in the WQE needs as many of them inline as the frame has.
fn check_inline(ethernet: &Ethernet, frame_len: u64, work: &Work<'_, '_>) -> Result<(), Fault> {
    let min = u64::from(work.config.inline_len_min).min(frame_len) as usize;
    match ethernet.inline_len {
        len if len < min => Err(Fault::InlineHeadersMissing { len, min }),
        _ => Ok(()),
    }
}

/// A frame that is too long for the port is counted and dropped; its WQE completes as if the frame
/// had left.
fn is_too_long(len: u64, ethernet: &Ethernet, work: &mut Work<'_, '_>) -> bool {
    let tag = if ethernet.vlan.is_some() { 4 } else { 0 };
    let max = u64::from(work.config.mtu) + MTU_OVERHEAD;
    if len + tag <= max {
        return false;
    }
    work.counters.tx_oversize += 1;
    work.diagnoses.add(|| format!("a frame of {} bytes was thrown away: the port carries {max}", len + tag));
    true
}

/// Appends a piece's bytes.
#[inline]
fn append(frame: &mut Vec<u8>, scratch: &Scratch, piece: &Piece, dma: &dyn Dma) -> Result<(), Fault> {
    let len = piece.len as usize;
    match piece.source {
        Source::Inline(at) => frame.extend_from_slice(&scratch.bytes[at..at + len]),
        Source::Memory(address) => {
            let at = frame.len();
            frame.resize(at + len, 0);
            let read = dma.read(address, &mut frame[at..]);
            read.map_err(|Unmapped| Fault::PointerUnmapped { address, len: piece.len })?;
        }
    }
    Ok(())
}
