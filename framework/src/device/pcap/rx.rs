//! The receive half: records become mbufs, in order and on pace.

use super::outcome::Outcome;
use super::pace::Pacer;
use super::reader::Found;
use super::source::Source;
use super::{End, Error};
use crate::counters::{Counter, Drops, Scope, Unit};
use crate::device::{RxQueue, RxState};
use crate::mem::{Burst, Mbuf, Pool, RxInfo};
use crate::time::{Instant, UnixTime};

crate::drop_reasons! {
    /// Why a recorded frame does not reach the pipeline.
    pub(crate) enum PcapRxDrop {
        /// Longer than the port's frames or the pool's buffers: recorded with segmentation offload,
        /// or a larger MTU.
        TooLong => "too_long",
    }
}

/// The receive half of a pcap port. A frame costs a copy; [`Loading`](super::Loading) describes the
/// cost of reading.
pub struct PcapRx {
    source: Option<Source>,
    /// A frame that is not due yet, or for which no buffer is free.
    pending: Option<Found>,
    pacer: Pacer,
    frame_len_max: usize,
    outcome: Outcome<End>,
    frames: Counter,
    bytes: Counter,
    /// Frames that the recorder truncated. They are delivered: the pipeline decides about them.
    cut_by_snaplen: Counter,
    /// One if the file ended within a packet.
    truncated: Counter,
    /// One if damage in the file ended the replay.
    damaged: Counter,
    drops: Drops<PcapRxDrop>,
}

impl PcapRx {
    pub(super) fn new(
        source: Option<Source>,
        pacer: Pacer,
        frame_len_max: usize,
        outcome: Outcome<End>,
        scope: &Scope,
    ) -> Self {
        let scope = scope.scope("rx");
        Self {
            source,
            pending: None,
            pacer,
            frame_len_max,
            outcome,
            frames: scope.counter("frames", Unit::Frames),
            bytes: scope.counter("bytes", Unit::Bytes),
            cut_by_snaplen: scope.counter("cut_by_snaplen", Unit::Frames),
            truncated: scope.counter("truncated", Unit::Events),
            damaged: scope.counter("damaged", Unit::Events),
            drops: scope.drops(),
        }
    }

    /// The frame to deliver next: the pending one, or the next of the source.
    #[inline]
    fn next_frame(&mut self) -> Option<Found> {
        if let Some(found) = self.pending.take() {
            return Some(found);
        }
        match self.source.as_mut()?.find() {
            Ok(Some(found)) => Some(found),
            Ok(None) => self.close(None),
            Err(error) => self.close(Some(error)),
        }
    }

    /// Drops the source and sets the outcome.
    #[cold]
    fn close(&mut self, error: Option<Error>) -> Option<Found> {
        let end = self.source.take().and_then(|source| source.end());
        if let Some(error) = error {
            self.damaged.inc();
            self.outcome.set(Err(error));
        } else if let Some(end) = end {
            self.truncated.add(u64::from(end.truncated.is_some()));
            self.outcome.set(Ok(end));
        }
        None
    }

    /// Copies a record into a fresh mbuf, which is returned if it is too small.
    #[inline]
    fn fill(&self, found: &Found, mut mbuf: Mbuf) -> Result<Mbuf, Mbuf> {
        let bytes = self.source.as_ref().map_or(&[][..], |source| source.bytes(found));
        let Some(room) = mbuf.append(bytes.len()) else { return Err(mbuf) };
        room.copy_from_slice(bytes);
        let timestamp = Some(UnixTime::from_nanos(found.timestamp_ns));
        mbuf.set_rx_info(&RxInfo { timestamp, ..RxInfo::default() });
        Ok(mbuf)
    }
}

impl RxQueue for PcapRx {
    /// Reads at most `limit` records, so that a run of frames that are too long remains bounded
    /// work.
    #[inline]
    fn receive(&mut self, burst: &mut Burst, limit: usize, pool: &Pool, now: Instant) -> usize {
        let (mut received, mut bytes) = (0, 0);
        for _ in 0..limit.min(burst.remaining_capacity()) {
            let Some(found) = self.next_frame() else { break };
            if !self.pacer.is_due(found.timestamp_ns, now) {
                self.pending = Some(found);
                break;
            }
            let len = found.range.len();
            if len > self.frame_len_max {
                self.drops.count(PcapRxDrop::TooLong);
                continue;
            }
            let Some(mbuf) = pool.alloc() else {
                self.pending = Some(found);
                break;
            };
            match self.fill(&found, mbuf) {
                Ok(mbuf) => burst.push(mbuf),
                Err(mbuf) => {
                    mbuf.free();
                    self.drops.count(PcapRxDrop::TooLong);
                    continue;
                }
            }
            received += 1;
            bytes += len as u64;
            self.cut_by_snaplen.add(u64::from(len < found.original_len as usize));
        }
        self.frames.add(received as u64);
        self.bytes.add(bytes);
        received
    }

    /// Ended once all records are delivered, or the file is found damaged or truncated: the poll
    /// after the last frame detects it.
    fn state(&self) -> RxState {
        if self.source.is_none() { RxState::Ended } else { RxState::Open }
    }

    fn refresh_counters(&mut self) {}
}
