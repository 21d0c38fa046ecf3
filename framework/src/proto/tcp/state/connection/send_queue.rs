//! The send buffer: chunks to be acknowledged, followed by those to be sent.
//!
//! In the second cache line. Written by `output`, which moves `next_unsent` and adds data that
//! leaves at once, and by `loss`, which sorts `in_flight`. By verbs `calls` adds the app's data,
//! and `input` removes acknowledged data, and all data when the connection closes (`forget_all`).

use crate::proto::slab::NIL;
use crate::proto::tcp::seq::Seq;
use crate::proto::tcp::state::queue::{Chunks, Dropped, Lane, Queue};

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct SendQueue {
    /// Unacknowledged chunks, followed by unsent ones.
    pub(crate) queue: Queue,
    /// The first chunk that was never sent.
    pub(crate) next_unsent: u32,
    /// Bytes in `queue`.
    pub(crate) len: u32,
    /// Sent chunks that are neither SACKED nor waiting for a retransmission, by the time of their
    /// last transmission.
    pub(crate) in_flight: Lane,
    /// Bytes that may leave at once on the fast path, as last computed; 0 where the number is not
    /// known. Acknowledgments without loss do not reduce it. Every other change begins with a
    /// context, whose creation clears it: see `transmit::fast`.
    pub(crate) fast_send_room: u32,
}

impl SendQueue {
    pub(super) fn new() -> Self {
        Self { queue: Queue::default(), next_unsent: NIL, len: 0, in_flight: Lane::default(), fast_send_room: 0 }
    }

    /// Counts bytes that were queued or have left at once.
    #[inline(always)]
    pub(crate) fn grow(&mut self, len: u32) {
        self.len += len;
    }

    /// Counts bytes that the peer has acknowledged.
    #[inline(always)]
    pub(crate) fn shrink(&mut self, len: u32) {
        self.len -= len;
    }

    /// An unsent chunk was appended.
    #[inline]
    pub(crate) fn note_unsent(&mut self, idx: u32) {
        if self.next_unsent == NIL {
            self.next_unsent = idx;
        }
    }

    /// Frees sent chunks that end at `end` or before, where none is marked.
    #[inline(always)]
    pub(crate) fn drop_up_to<P>(&mut self, chunks: &mut Chunks<P>, end: Seq) -> Dropped {
        let dropped = self.queue.drop_up_to(chunks, &mut self.in_flight, end);
        self.shrink(dropped.len);
        dropped
    }

    /// All chunks were sent, and are freed.
    #[inline(always)]
    pub(crate) fn forget_sent(&mut self) {
        (self.queue, self.in_flight, self.len) = (Queue::default(), Lane::default(), 0);
    }

    /// All chunks are freed, sent or not.
    pub(crate) fn forget_all(&mut self) {
        self.forget_sent();
        self.next_unsent = NIL;
    }

    /// Clears the known room for an immediate send.
    #[inline(always)]
    pub(crate) fn forget_room(&mut self) {
        self.fast_send_room = 0;
    }
}
