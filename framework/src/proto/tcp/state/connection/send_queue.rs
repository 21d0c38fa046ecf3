//! The send buffer: chunks to be acknowledged, and behind them those to be sent.
//!
//! In the second line. What is handed over is entered by `calls`, `output` moves `next_unsent` and
//! enters what leaves at once, `input` and `loss` let go of what has arrived, and `loss` sorts
//! `in_flight`.

use crate::proto::slab::NIL;
use crate::proto::tcp::state::queue::{Lane, Queue};

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

    /// What may leave at once is not known any more.
    #[inline(always)]
    pub(in crate::proto::tcp) fn forget_room(&mut self) {
        self.fast_send_room = 0;
    }
}
