//! The send buffer: chunks to be acknowledged, and behind them those to be sent.
//!
//! In the second line. Written by `output`, which moves `next_unsent` and enters what leaves at
//! once, and `loss`, which sorts `in_flight`. By verbs `calls` enters what is handed over, and
//! `input` lets go of what has arrived.

use crate::proto::slab::NIL;
use crate::proto::tcp::seq::Seq;
use crate::proto::tcp::state::queue::{Chunks, Dropped, Lane, Queue};

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(in crate::proto::tcp) struct SendQueue {
    /// To be acknowledged, and behind that to be sent.
    pub(in crate::proto::tcp) queue: Queue,
    /// The first chunk that was never sent.
    pub(in crate::proto::tcp) next_unsent: u32,
    /// Bytes in `queue`.
    pub(in crate::proto::tcp) len: u32,
    /// Sent chunks that are neither SACKED nor waiting to be sent again, by the time of their last
    /// transmission.
    pub(in crate::proto::tcp) in_flight: Lane,
    /// Bytes that may leave at once, and nothing but themselves is to be written down of them, as
    /// was found out the last time; 0 where that is not known. Acknowledgments that find all well
    /// make no less of it. Whatever else may begins with a turn, and each turn forgets it: see
    /// `transmit::fast`.
    pub(in crate::proto::tcp) fast_send_room: u32,
}

impl SendQueue {
    pub(super) fn new() -> Self {
        Self { queue: Queue::default(), next_unsent: NIL, len: 0, in_flight: Lane::default(), fast_send_room: 0 }
    }

    /// So many bytes more wait, or have left at once.
    #[inline(always)]
    pub(in crate::proto::tcp) fn grow(&mut self, len: u32) {
        self.len += len;
    }

    /// So many bytes have arrived.
    #[inline(always)]
    pub(in crate::proto::tcp) fn shrink(&mut self, len: u32) {
        self.len -= len;
    }

    /// A chunk stands last that is to be sent.
    #[inline]
    pub(in crate::proto::tcp) fn note_unsent(&mut self, idx: u32) {
        if self.next_unsent == NIL {
            self.next_unsent = idx;
        }
    }

    /// Lets go of what was sent and ends at `end` at the latest, where nothing of it is marked.
    #[inline(always)]
    pub(in crate::proto::tcp) fn drop_up_to<P>(&mut self, chunks: &mut Chunks<P>, end: Seq) -> Dropped {
        let dropped = self.queue.drop_up_to(chunks, &mut self.in_flight, end);
        self.shrink(dropped.len);
        dropped
    }

    /// All chunks were sent, and are gone.
    #[inline(always)]
    pub(in crate::proto::tcp) fn forget_sent(&mut self) {
        (self.queue, self.in_flight, self.len) = (Queue::default(), Lane::default(), 0);
    }

    /// All chunks are gone, sent or not.
    pub(in crate::proto::tcp) fn forget_all(&mut self) {
        self.forget_sent();
        self.next_unsent = NIL;
    }

    /// What may leave at once is not known any more.
    #[inline(always)]
    pub(in crate::proto::tcp) fn forget_room(&mut self) {
        self.fast_send_room = 0;
    }
}
