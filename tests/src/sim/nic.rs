//! A NIC in virtual time. Received frames wait in a ring until the worker polls. Posted frames stay
//! in their mbufs until the line is free, and only then are their bytes read. So the peer detects a
//! write into a buffer that the NIC still owns.

use std::collections::VecDeque;
use std::num::NonZeroU16;

use wirepath::device::steering::Fields;
use wirepath::device::{Capabilities, Offload, RxOffloads, RxQueue, RxState, TxOffloads, TxQueue};
use wirepath::mem::{Burst, ChecksumStatus, Mbuf, Pool, RxInfo};
use wirepath::time::Instant;

use super::packet;

/// The properties of a NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NicConfig {
    /// The most frames that wait for the worker; further ones are lost.
    pub rx_ring_len: usize,
    /// The most frames that wait for the line; further ones are refused.
    pub tx_ring_len: usize,
    /// The NIC fills in checksums, and verifies those of received frames.
    pub checksums: bool,
    /// The NIC cuts payloads into segments (TSO).
    pub segments: bool,
    /// Frames may be chains of buffers. A NIC that also verifies checksums merges segments that
    /// follow each other (LRO).
    pub chains: bool,
}

impl NicConfig {
    /// The capabilities that the worker is given.
    pub fn capabilities(&self) -> Capabilities {
        Capabilities {
            queues: 1,
            frame_len_max: 1522,
            tx_segments_max: if self.chains { 4 } else { 1 },
            rx: RxOffloads { l4_checksum: self.checksums, ..RxOffloads::default() },
            tx: TxOffloads {
                ip_checksum: self.checksums,
                l4_checksum: self.checksums,
                segmentation_len_max: if self.segments { 32 << 10 } else { 0 },
                ..TxOffloads::default()
            },
            steering: Fields::NONE,
            rules_max: 0,
        }
    }
}

/// The most frames merged into one.
const MERGED_MAX: usize = 8;

/// A packet over a chain of buffers with the lengths in `buffers`; None if the pool has too few.
fn over_buffers(pool: &Pool, bytes: &[u8], buffers: &[usize]) -> Option<Mbuf> {
    let (&len, buffers) = buffers.split_first()?;
    let mut mbuf = pool.alloc_copy(&bytes[..len])?;
    if !buffers.is_empty() {
        match over_buffers(pool, &bytes[len..], buffers) {
            Some(rest) => mbuf.attach(rest),
            None => {
                mbuf.free();
                return None;
            }
        }
    }
    Some(mbuf)
}

/// The receiving half.
pub struct SimRx {
    config: NicConfig,
    waiting: VecDeque<Vec<u8>>,
    /// Frames lost because the ring was full.
    pub lost: u64,
}

impl SimRx {
    /// An empty ring.
    pub fn new(config: NicConfig) -> Self {
        Self { config, waiting: VecDeque::new(), lost: 0 }
    }

    /// Receives a frame from the line.
    pub fn arrive(&mut self, frame: Vec<u8>) {
        if self.waiting.len() < self.config.rx_ring_len {
            self.waiting.push_back(frame);
        } else {
            self.lost += 1;
        }
    }

    /// The next frame, merged with those behind it if the NIC merges, and the number of bytes from
    /// each of them.
    fn next_merged(&self) -> (Vec<u8>, Vec<usize>) {
        let mut waiting = self.waiting.iter();
        let mut whole = waiting.next().cloned().unwrap_or_default();
        let mut added = Vec::new();
        if self.config.chains && self.config.checksums && packet::verdict(&whole) == ChecksumStatus::Good {
            let merged = waiting.take(MERGED_MAX - 1).map_while(|next| packet::merge(&mut whole, next));
            added.extend(merged);
        }
        let first = whole.len() - added.iter().sum::<usize>();
        let buffers = [&[first], &added[..]].concat();
        (whole, buffers)
    }

    /// Frames that wait for the worker.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }
}

impl RxQueue for SimRx {
    fn receive(&mut self, burst: &mut Burst, limit: usize, pool: &Pool, _now: Instant) -> usize {
        let mut count = 0;
        while count < limit && burst.remaining_capacity() > 0 {
            let Some(frame) = self.waiting.front() else { break };
            let verdict = packet::verdict(frame);
            let (whole, buffers) = self.next_merged();
            let merged = over_buffers(pool, &whole, &buffers).map(|mbuf| (mbuf, buffers.len()));
            // A frame for which there are too few buffers arrives unmerged.
            let alone = || Some((pool.alloc_copy(frame)?, 1));
            let Some((mut mbuf, frames)) = merged.or_else(alone) else { break };
            if self.config.checksums {
                mbuf.set_rx_info(&RxInfo { l4_checksum: verdict, ..RxInfo::default() });
            }
            burst.push(mbuf);
            self.waiting.drain(..frames);
            count += 1;
        }
        count
    }

    fn state(&self) -> RxState {
        RxState::Open
    }

    fn refresh_counters(&mut self) {}
}

/// The sending half.
pub struct SimTx {
    config: NicConfig,
    /// Frames that the NIC has, the oldest first; the doorbell was rung for the first `rung` of
    /// them.
    ring: VecDeque<(Mbuf, Offload)>,
    rung: usize,
    /// Frames that have left, and may be freed.
    done: Vec<Mbuf>,
    /// The ring accepts no frames.
    pub stalled: bool,
    /// The number of refused frames.
    pub refused: u64,
}

impl SimTx {
    /// An empty ring.
    pub fn new(config: NicConfig) -> Self {
        Self { config, ring: VecDeque::new(), rung: 0, done: Vec::new(), stalled: false, refused: 0 }
    }

    /// The length of the frame that leaves next.
    pub fn next_len(&self) -> Option<usize> {
        if self.rung > 0 { self.ring.front().map(|(mbuf, _)| mbuf.len()) } else { None }
    }

    /// Sends the next frame with the bytes that its mbuf has now; several frames if the NIC cuts
    /// it.
    pub fn leave(&mut self) -> Vec<Vec<u8>> {
        let Some((mbuf, offload)) = self.ring.pop_front() else { return Vec::new() };
        self.rung -= 1;
        let frame: Vec<u8> = mbuf.segments().flatten().copied().collect();
        let (l2_len, l3_len) = (mbuf.l2_len(), mbuf.l3_len());
        self.done.push(mbuf);
        if !offload.has(Offload::L4_CHECKSUM) {
            return vec![frame];
        }
        let segment_len = offload.segment_len().map_or(usize::MAX, |len: NonZeroU16| len.get().into());
        packet::cut(&frame, l2_len, l3_len, segment_len)
    }

    fn free_count(&self) -> usize {
        if self.stalled { 0 } else { self.config.tx_ring_len.saturating_sub(self.ring.len() + self.done.len()) }
    }
}

impl TxQueue for SimTx {
    fn post(&mut self, mbuf: Mbuf, offload: Offload) -> Result<(), Mbuf> {
        if self.free_count() == 0 {
            self.refused += 1;
            return Err(mbuf);
        }
        assert!(mbuf.is_linear() || self.config.chains, "a chain for a device that takes none");
        assert!(self.config.checksums || !offload.has(Offload::L4_CHECKSUM), "an offload that the device lacks");
        assert!(self.config.segments || offload.segment_len().is_none(), "segmentation that the device lacks");
        self.ring.push_back((mbuf, offload));
        if offload.has(Offload::URGENT) {
            self.rung = self.ring.len();
        }
        Ok(())
    }

    fn ring_doorbell(&mut self, _now: Instant) {
        self.rung = self.ring.len();
    }

    fn reap(&mut self) -> usize {
        let count = self.done.len();
        self.done.drain(..).for_each(Mbuf::free);
        count
    }

    fn room(&mut self) -> usize {
        self.free_count()
    }

    fn in_flight(&self) -> usize {
        self.ring.len() + self.done.len()
    }

    fn refresh_counters(&mut self) {}
}

impl Drop for SimTx {
    fn drop(&mut self) {
        self.done.drain(..).for_each(Mbuf::free);
        self.ring.drain(..).for_each(|(mbuf, _)| mbuf.free());
    }
}
