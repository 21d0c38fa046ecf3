//! The send half: frames wait for the doorbell, which carries the time, and are then written.

use arrayvec::ArrayVec;

use super::outcome::{Outcome, Recorded};
use super::writer::{ADDRESSES_LEN, TAG_LEN, Writer};
use crate::counters::{Counter, Drops, Scope, Unit};
use crate::device::{Offload, TxQueue};
use crate::mem::Mbuf;
use crate::time::Instant;

crate::drop_reasons! {
    /// Why a posted frame is not recorded.
    pub(crate) enum PcapTxDrop {
        /// Longer than the port's frames.
        TooLong => "too_long",
        /// Asks for a checksum or for segmentation, which this device does not support, or for a
        /// tag in a frame that is shorter than the tag's offset.
        OffloadUnsupported => "offload_unsupported",
        /// An earlier write failed, for example on a full disk:
        /// [`PcapDevice::recorded`](super::PcapDevice::recorded) returns the error.
        WriteFailed => "write_failed",
    }
}

/// Maximum number of frames that wait for a doorbell. A further frame is written at once, with the
/// time of the previous doorbell; so are urgent frames.
const POSTED_MAX: usize = 256;

/// The send half of a pcap port. A frame costs a copy, and 256 KiB of frames a write(2) in the
/// doorbell. Its ring is never full. Dropping it closes the file.
pub struct PcapTx {
    writer: Option<Writer>,
    epoch_ns: u64,
    frame_len_max: usize,
    posted: ArrayVec<(Mbuf, Option<u16>), POSTED_MAX>,
    /// Frames written since the last reap; their mbufs are already freed.
    written: usize,
    /// Time of the last doorbell.
    now: Instant,
    outcome: Outcome<Recorded>,
    frames: Counter,
    bytes: Counter,
    drops: Drops<PcapTxDrop>,
}

impl PcapTx {
    pub(super) fn new(
        writer: Option<Writer>,
        epoch_ns: u64,
        frame_len_max: usize,
        outcome: Outcome<Recorded>,
        scope: &Scope,
    ) -> Self {
        let scope = scope.scope("tx");
        Self {
            writer,
            epoch_ns,
            frame_len_max,
            posted: ArrayVec::new(),
            written: 0,
            now: Instant::ZERO,
            outcome,
            frames: scope.counter("frames", Unit::Frames),
            bytes: scope.counter("bytes", Unit::Bytes),
            drops: scope.tx_drops(),
        }
    }

    /// Writes the posted frames and frees their mbufs.
    fn write_posted(&mut self) {
        let timestamp_ns = self.now.as_nanos().saturating_add(self.epoch_ns);
        self.written += self.posted.len();
        for (mbuf, vlan) in self.posted.drain(..) {
            let len = mbuf.len() + vlan.map_or(0, |_| TAG_LEN);
            match &mut self.writer {
                Some(writer) if writer.is_broken() => self.drops.count(PcapTxDrop::WriteFailed),
                writer => {
                    if let Some(writer) = writer {
                        writer.write_segments(timestamp_ns, vlan, mbuf.segments());
                    }
                    self.frames.inc();
                    self.bytes.add(len as u64);
                }
            }
            mbuf.free();
        }
    }

    /// Drops a frame that can never be sent.
    fn refuse(&mut self, mbuf: Mbuf, reason: PcapTxDrop) {
        self.drops.count(reason);
        mbuf.free();
    }
}

impl TxQueue for PcapTx {
    fn post(&mut self, mbuf: Mbuf, offload: Offload) -> Result<(), Mbuf> {
        if mbuf.len() + offload.vlan().map_or(0, |_| TAG_LEN) > self.frame_len_max {
            self.refuse(mbuf, PcapTxDrop::TooLong);
            return Ok(());
        }
        let tag_fits = offload.vlan().is_none() || mbuf.len() >= ADDRESSES_LEN;
        let checksums = offload.has(Offload::IP_CHECKSUM) || offload.has(Offload::L4_CHECKSUM);
        if !tag_fits || checksums || offload.segment_len().is_some() {
            self.refuse(mbuf, PcapTxDrop::OffloadUnsupported);
            return Ok(());
        }
        if self.posted.is_full() {
            self.write_posted();
        }
        self.posted.push((mbuf, offload.vlan()));
        if offload.has(Offload::URGENT) {
            self.write_posted();
        }
        Ok(())
    }

    fn ring_doorbell(&mut self, now: Instant) {
        self.now = now;
        self.write_posted();
    }

    fn reap(&mut self) -> usize {
        core::mem::take(&mut self.written)
    }

    fn room(&mut self) -> usize {
        POSTED_MAX
    }

    fn in_flight(&self) -> usize {
        self.posted.len() + self.written
    }

    fn refresh_counters(&mut self) {}
}

impl Drop for PcapTx {
    fn drop(&mut self) {
        self.write_posted();
        if let Some(mut writer) = self.writer.take() {
            self.outcome.set(writer.finish().map(|()| Recorded { frames: writer.records() }));
        }
    }
}
