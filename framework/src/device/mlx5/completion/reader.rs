//! Reading the completion queue of a receiving ring, of either kind: whose turn it is, what is no
//! frame, and what is counted. What becomes of a frame is its ring's business: `cyclic.rs`,
//! `striding.rs`.

use super::super::health::recover::ErrorSource;
use super::super::setup::parts::CqParts;
use super::compressed::{Mini, Session};
use super::cq::{Cq, Next};
use super::cqe::{Format, Opcode, Syndrome};
use super::cqe_parser::CqeParser;
use crate::counters::{Counter, Drops, Scope, Unit};
use crate::mem::{Burst, Mbuf, MetaTemplate};

crate::drop_reasons! {
    /// Why a frame that a rule names does not reach the pipeline.
    pub(crate) enum Mlx5RxDrop {
        /// The NIC found no buffer in the ring: the pool was empty, or the worker too slow. The
        /// NIC's own count.
        OutOfBuffer => "out_of_buffer",
        /// The NIC tells of more bytes than the buffers have.
        LengthInvalid => "length_invalid",
        /// The CQE is not the one of the oldest buffer. The queue is reset.
        IndexUnexpected => "index_unexpected",
        /// The CQE tells of strides that its buffer does not have, or that were told of before. The
        /// queue is reset.
        StridesInvalid => "strides_invalid",
        /// The CQE tells of something that a receiving queue does not get.
        OpcodeUnexpected => "opcode_unexpected",
        /// The CQE carries data, or is compressed where that was not asked for.
        FormatUnexpected => "format_unexpected",
        /// A compressed session announces no frame, or more than there can be. The queue is reset.
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
        /// The frame was in the ring when the receiving half was dropped.
        QueueClosed => "queue_closed",
    }
}

/// Entries in one turn that are no frames: so a NIC that writes nothing else cannot hold the
/// worker.
pub(in crate::device::mlx5) const OTHERS_MAX: u32 = 64;

/// The reading side of a completion queue.
pub(in crate::device::mlx5) struct Reader {
    pub(in crate::device::mlx5) cq: Cq,
    /// Frames of a compressed session that have not been handed on yet.
    pub(in crate::device::mlx5) session: Session,
    pub(in crate::device::mlx5) parser: CqeParser,
    compresses: bool,
    /// The NIC's ring is not ours any more, or in error.
    is_broken: bool,
    /// What broke it.
    blame: ErrorSource,
    place: Place,
    counters: Counters,
    drops: Drops<Mlx5RxDrop>,
}

struct Counters {
    frames: Counter,
    bytes: Counter,
    /// Turns that found the pool empty while WQEs were vacant, or while frames waited to be copied.
    nombuf: Counter,
    /// Buffers that came back from a queue in error.
    flushed: Counter,
}

/// Whether it is known where in the CQ the NIC writes next. A session that cannot be read leaves
/// open how many entries it has, and a reset of the ring leaves the NIC's place in the CQ where it
/// is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Known,
    /// The ring has to be reset, so that the NIC writes nothing.
    Lost,
    /// All entries are nobody's: the next one that is written tells. Where that was seen at the
    /// last look, if it was.
    Sought(Option<u32>),
}

/// What became of an entry that is not one of a run of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::device::mlx5) enum Step {
    /// There is none, or it has to wait.
    Dry,
    /// A frame is in the burst.
    Frame,
    /// Something else: go on.
    Other,
}

impl Reader {
    /// Takes the queue over. `mini` is the format of compressed sessions where they were asked for,
    /// `template` any.
    pub(in crate::device::mlx5) fn new(
        cq: CqParts,
        parser: CqeParser,
        mini: Option<Mini>,
        template: MetaTemplate,
        scope: &Scope,
    ) -> Self {
        let counters = Counters {
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
            blame: ErrorSource::Ours,
            place: Place::Known,
            counters,
            drops: scope.drops(),
        }
    }

    /// What comes next; `None` where nothing does.
    #[inline(always)]
    pub(in crate::device::mlx5) fn look(&self) -> Option<Coming> {
        if self.session.left() > 0 {
            return Some(Coming::Session);
        }
        match self.cq.look() {
            Next::Nothing => None,
            Next::Title if self.compresses => Some(Coming::Session),
            Next::Title | Next::Other => Some(Coming::Entry),
        }
    }

    /// Whether the queue has to be reset.
    #[inline(always)]
    pub(in crate::device::mlx5) fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// The queue has to be reset, or is.
    pub(in crate::device::mlx5) fn set_broken(&mut self, is_broken: bool) {
        self.blame = ErrorSource::Ours;
        self.is_broken = is_broken;
        if matches!(self.place, Place::Sought(_)) {
            self.place = Place::Lost;
        }
    }

    /// Whether it is unknown where the NIC writes next.
    #[cold]
    pub(in crate::device::mlx5) fn is_lost(&self) -> bool {
        self.place != Place::Known
    }

    /// Whether the ring was reset since, and the next CQE is looked for.
    #[cold]
    pub(in crate::device::mlx5) fn is_seeking(&self) -> bool {
        matches!(self.place, Place::Sought(_))
    }

    /// Looks for the next CQE from now on: the ring was reset, and is ready again.
    #[cold]
    pub(in crate::device::mlx5) fn begin_to_seek(&mut self) {
        self.place = Place::Sought(None);
    }

    /// Looks for it once; whether it was found, and entries are read again. It has to be seen at
    /// the same place twice, as the arrays of a session are written before its title.
    #[cold]
    pub(in crate::device::mlx5) fn seek(&mut self) -> bool {
        let seen = self.cq.find();
        let Some(idx) = seen.filter(|_| self.place == Place::Sought(seen)) else {
            self.place = Place::Sought(seen);
            return false;
        };
        self.cq.go_to(idx);
        (self.place, self.is_broken) = (Place::Known, false);
        true
    }

    /// Counts frames that are in a burst.
    #[inline(always)]
    pub(in crate::device::mlx5) fn count_frames(&self, frames: usize) {
        self.counters.frames.add(frames as u64);
    }

    /// Counts the bytes of frames.
    #[inline(always)]
    pub(in crate::device::mlx5) fn count_bytes(&self, bytes: u64) {
        self.counters.bytes.add(bytes);
    }

    /// Counts a turn without a buffer where one was wanted.
    pub(in crate::device::mlx5) fn count_nombuf(&self) {
        self.counters.nombuf.inc();
    }

    /// Counts frames that are lost for `reason`.
    pub(in crate::device::mlx5) fn drop_frames(&mut self, reason: Mlx5RxDrop, count: u64) {
        self.drops.count_many(reason, count);
    }

    /// A frame, or why there is none.
    pub(in crate::device::mlx5) fn deliver(&mut self, frame: Result<Mbuf, Mlx5RxDrop>, burst: &mut Burst) -> Step {
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

    /// The NIC's ring is not ours any more: nothing is read until it was reset.
    pub(in crate::device::mlx5) fn stop(&mut self, reason: Mlx5RxDrop) -> Step {
        self.drops.count(reason);
        self.is_broken = true;
        self.blame = if reason == Mlx5RxDrop::LocalLength { ErrorSource::Wire } else { ErrorSource::Ours };
        if self.compresses && matches!(reason, Mlx5RxDrop::SessionInvalid | Mlx5RxDrop::IndexUnexpected) {
            self.place = Place::Lost;
        }
        Step::Other
    }

    /// Who broke it.
    pub(in crate::device::mlx5) fn blame(&self) -> ErrorSource {
        self.blame
    }

    /// Takes the oldest entry where it tells of no frame. `None` where it does.
    pub(in crate::device::mlx5) fn take_other(&mut self) -> Option<Step> {
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

    /// A WQE came back in error, and with it the queue.
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

    /// Reads the CQ dry; what frames there are have `reason` to be lost. The NIC writes no more.
    /// Where the place is lost, or gets lost here, what can be read is, and the rest has no name.
    /// An entry whose byte count has a bit of `no_frame` is none.
    pub(in crate::device::mlx5) fn drain(&mut self, reason: Mlx5RxDrop, no_frame: u32) {
        self.drops.count_many(reason, self.session.close() as u64);
        let first = self.cq.idx();
        for _ in 0..self.cq.count() {
            let Some(cqe) = self.cq.next() else { break };
            match (cqe.opcode(), cqe.format()) {
                (Opcode::Received, Format::Compressed) if self.compresses => {
                    let (count, possible) = (cqe.byte_count(), self.cq.count());
                    if self.session.open(&mut self.cq, count, possible).is_err() {
                        self.place = Place::Lost;
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
            self.place = Place::Lost;
            return self.cq.lose(first);
        }
        self.cq.publish_again();
    }
}

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::device::mlx5) enum Coming {
    /// A frame of a compressed session, or its title.
    Session,
    /// An entry of its own.
    Entry,
}
