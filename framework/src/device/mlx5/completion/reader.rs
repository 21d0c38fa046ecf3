//! Reads the completion queue of a receive ring, of either kind: checks ownership, handles entries
//! that are no frames, and counts. The rings handle the frames: `cyclic.rs`, `striding.rs`.

use super::compressed::{Mini, Session};
use super::cq::{Cq, Next};
use super::cqe::{Format, Opcode, Syndrome};
use super::cqe_parser::CqeParser;
use crate::counters::{Counter, Drops, Scope, Unit};
use crate::device::mlx5::health::recover::ErrorSource;
use crate::device::mlx5::setup::parts::CqParts;
use crate::mem::{Burst, Mbuf, MetaTemplate};

crate::drop_reasons! {
    /// Why a frame that matches a rule does not reach the pipeline.
    pub(crate) enum Mlx5RxDrop {
        /// The NIC found no buffer in the ring: the pool was empty, or the worker too slow. Counted
        /// by the NIC.
        OutOfBuffer => "out_of_buffer",
        /// The CQE reports more bytes than the buffers have.
        LengthInvalid => "length_invalid",
        /// The CQE is not for the oldest buffer. The queue is reset.
        IndexUnexpected => "index_unexpected",
        /// The CQE reports strides that its buffer does not have, or that were already reported.
        /// The queue is reset.
        StridesInvalid => "strides_invalid",
        /// The CQE has an opcode that is not valid on a receive queue.
        OpcodeUnexpected => "opcode_unexpected",
        /// The CQE carries inline data, or is compressed although compression is off.
        FormatUnexpected => "format_unexpected",
        /// A compressed session reports no frame, or too many. The queue is reset.
        SessionInvalid => "session_invalid",
        /// The buffer was shorter than the frame (syndrome 01). The queue is reset.
        LocalLength => "error_local_length",
        /// The NIC could not read the WQE (syndrome 02). The queue is reset.
        LocalQpOperation => "error_local_qp_operation",
        /// The buffer is not registered (syndrome 04). The queue is reset.
        LocalProtection => "error_local_protection",
        /// The buffer may not be written (syndrome 11). The queue is reset.
        LocalAccess => "error_local_access",
        /// Any other syndrome. The queue is reset.
        OtherSyndrome => "error_other_syndrome",
        /// The frame was in the ring when the queue was reset after an error.
        QueueReset => "queue_reset",
        /// The frame was in the ring when the receive half was dropped.
        QueueClosed => "queue_closed",
    }
}

/// The most entries per turn that are not frames: a NIC that writes only such entries must not hold
/// the worker.
pub(crate) const OTHERS_MAX: u32 = 64;

/// The reader of a completion queue.
pub(crate) struct CqReader {
    pub(crate) cq: Cq,
    /// Frames of a compressed session that have not been delivered yet.
    pub(crate) session: Session,
    pub(crate) parser: CqeParser,
    compresses: bool,
    /// The ring is corrupt or in error: it must be reset.
    is_broken: bool,
    /// The source of the error.
    error_source: ErrorSource,
    place: CqPosition,
    counters: RxCounters,
    drops: Drops<Mlx5RxDrop>,
}

struct RxCounters {
    frames: Counter,
    bytes: Counter,
    /// Turns that found the pool empty while WQEs were vacant, or while frames waited to be copied.
    nombuf: Counter,
    /// Buffers flushed from a queue in error.
    flushed: Counter,
}

/// Whether the NIC's next position in the CQ is known. A session that cannot be read leaves its
/// number of entries unknown, and a reset of the ring does not reset the NIC's position in the CQ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CqPosition {
    Known,
    /// The position is unknown. The ring must be reset first, so that the NIC writes nothing.
    Lost,
    /// All CQEs are invalidated: the next one written gives the position. The value is where it was
    /// seen at the last search, if it was.
    Searching(Option<u32>),
}

/// The result of processing one entry outside a run of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// There is no CQE, or it must wait.
    Dry,
    /// A frame is in the burst.
    Frame,
    /// The CQE was not of a frame: continue.
    Other,
}

impl CqReader {
    /// Takes over the queue. `mini` is the format of compressed sessions if compression is on,
    /// `template` any.
    pub(crate) fn new(
        cq: CqParts,
        parser: CqeParser,
        mini: Option<Mini>,
        template: MetaTemplate,
        scope: &Scope,
    ) -> Self {
        let counters = RxCounters {
            frames: scope.counter("frames", Unit::Frames),
            bytes: scope.counter("bytes", Unit::Bytes),
            nombuf: scope.counter("nombuf", Unit::Events),
            flushed: scope.counter("flushed", Unit::Mbufs),
        };
        Self {
            cq: Cq::new(cq),
            session: Session::new(mini.unwrap_or(Mini::Checksum), template),
            parser,
            compresses: mini.is_some(),
            is_broken: false,
            error_source: ErrorSource::Ours,
            place: CqPosition::Known,
            counters,
            drops: scope.drops(),
        }
    }

    /// The kind of the next entry; `None` if there is none.
    #[inline(always)]
    pub(crate) fn look(&self) -> Option<NextEntry> {
        if self.session.left() > 0 {
            return Some(NextEntry::Session);
        }
        match self.cq.look() {
            Next::Nothing => None,
            Next::Title if self.compresses => Some(NextEntry::Session),
            Next::Title | Next::Other => Some(NextEntry::Entry),
        }
    }

    /// Whether the queue must be reset.
    #[inline(always)]
    pub(crate) fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// Sets whether the queue must be reset.
    pub(crate) fn set_broken(&mut self, is_broken: bool) {
        self.error_source = ErrorSource::Ours;
        self.is_broken = is_broken;
        if matches!(self.place, CqPosition::Searching(_)) {
            self.place = CqPosition::Lost;
        }
    }

    /// Whether the NIC's next position is unknown.
    #[cold]
    pub(crate) fn is_lost(&self) -> bool {
        self.place != CqPosition::Known
    }

    /// Whether the ring was reset since, and the next CQE is being searched for.
    #[cold]
    pub(crate) fn is_seeking(&self) -> bool {
        matches!(self.place, CqPosition::Searching(_))
    }

    /// Starts the search for the next CQE: the ring was reset, and is ready again.
    #[cold]
    pub(crate) fn begin_to_seek(&mut self) {
        self.place = CqPosition::Searching(None);
    }

    /// Searches once; returns whether the CQE was found and entries are read again. The CQE must be
    /// seen at the same position twice, because the NIC writes the mini-CQE arrays of a compressed
    /// CQE block (a session) before its title CQE: a first look may find an array behind it.
    #[cold]
    pub(crate) fn seek(&mut self) -> bool {
        let seen = self.cq.find();
        let Some(idx) = seen.filter(|_| self.place == CqPosition::Searching(seen)) else {
            self.place = CqPosition::Searching(seen);
            return false;
        };
        self.cq.go_to(idx);
        (self.place, self.is_broken) = (CqPosition::Known, false);
        true
    }

    /// Counts frames that are in a burst.
    #[inline(always)]
    pub(crate) fn count_frames(&self, frames: usize) {
        self.counters.frames.add(frames as u64);
    }

    /// Counts the bytes of frames.
    #[inline(always)]
    pub(crate) fn count_bytes(&self, bytes: u64) {
        self.counters.bytes.add(bytes);
    }

    /// Counts a turn that needed a buffer and found none.
    pub(crate) fn count_nombuf(&self) {
        self.counters.nombuf.inc();
    }

    /// Counts frames that are dropped for `reason`.
    pub(crate) fn drop_frames(&mut self, reason: Mlx5RxDrop, count: u64) {
        self.drops.count_many(reason, count);
    }

    /// Delivers a frame, or counts the reason why there is none.
    pub(crate) fn deliver(&mut self, frame: Result<Mbuf, Mlx5RxDrop>, burst: &mut Burst) -> Step {
        match frame {
            Ok(mbuf) => {
                self.counters.bytes.add(mbuf.len() as u64);
                burst.push(mbuf);
                Step::Frame
            }
            Err(reason) => {
                self.drops.count(reason);
                Step::Other
            }
        }
    }

    /// The ring is corrupt or in error: nothing is read until it was reset.
    pub(crate) fn stop(&mut self, reason: Mlx5RxDrop) -> Step {
        self.drops.count(reason);
        self.is_broken = true;
        self.error_source = if reason == Mlx5RxDrop::LocalLength { ErrorSource::Wire } else { ErrorSource::Ours };
        if self.compresses && matches!(reason, Mlx5RxDrop::SessionInvalid | Mlx5RxDrop::IndexUnexpected) {
            self.place = CqPosition::Lost;
        }
        Step::Other
    }

    /// The source of the error.
    pub(crate) fn error_source(&self) -> ErrorSource {
        self.error_source
    }

    /// Processes the oldest entry if it is no frame. `None` if it is one.
    pub(crate) fn take_other(&mut self) -> Option<Step> {
        let Some(cqe) = self.cq.next() else { return Some(Step::Dry) };
        match cqe.opcode() {
            Opcode::Received => None,
            Opcode::ReceiveFailed => {
                let syndrome = cqe.syndrome();
                self.cq.consume();
                Some(self.fail(syndrome))
            }
            Opcode::Sent | Opcode::SendFailed | Opcode::Other(_) => {
                self.cq.consume();
                self.drops.count(Mlx5RxDrop::OpcodeUnexpected);
                Some(Step::Other)
            }
        }
    }

    /// A WQE completed in error, and the queue is in error with it.
    fn fail(&mut self, syndrome: Syndrome) -> Step {
        match syndrome {
            Syndrome::LocalLength => self.stop(Mlx5RxDrop::LocalLength),
            Syndrome::LocalQpOperation => self.stop(Mlx5RxDrop::LocalQpOperation),
            Syndrome::LocalProtection => self.stop(Mlx5RxDrop::LocalProtection),
            Syndrome::LocalAccess => self.stop(Mlx5RxDrop::LocalAccess),
            Syndrome::Other(_) => self.stop(Mlx5RxDrop::OtherSyndrome),
            Syndrome::Flushed => {
                self.counters.flushed.inc();
                self.is_broken = true;
                Step::Other
            }
        }
    }

    /// Drains the CQ and counts its frames as dropped for `reason`. The NIC writes no more CQEs. If
    /// the position is unknown, or becomes unknown here, only the readable entries are counted. An
    /// entry whose byte count has a bit of `no_frame` is not a frame.
    pub(crate) fn drain(&mut self, reason: Mlx5RxDrop, no_frame: u32) {
        self.drops.count_many(reason, self.session.close() as u64);
        let first = self.cq.idx();
        for _ in 0..self.cq.count() {
            let Some(cqe) = self.cq.next() else { break };
            match (cqe.opcode(), cqe.format()) {
                (Opcode::Received, Format::Compressed) if self.compresses => {
                    let (count, possible) = (cqe.byte_count(), self.cq.count());
                    if self.session.open(&mut self.cq, count, possible).is_err() {
                        self.place = CqPosition::Lost;
                        break;
                    }
                    self.drops.count_many(reason, self.session.close() as u64);
                    continue;
                }
                (Opcode::Received, _) if cqe.byte_count() & no_frame != 0 => {}
                (Opcode::Received, _) => self.drops.count(reason),
                (Opcode::ReceiveFailed, _) => self.counters.flushed.inc(),
                _ => self.drops.count(Mlx5RxDrop::OpcodeUnexpected),
            }
            self.cq.consume();
        }
        if self.is_lost() {
            self.place = CqPosition::Lost;
            return self.cq.lose(first);
        }
        self.cq.publish_again();
    }
}

/// The kind of the next entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextEntry {
    /// A frame of a compressed session, or its title.
    Session,
    /// An uncompressed entry.
    Entry,
}
