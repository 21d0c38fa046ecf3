//! Orders that are in the device's ring before they are fired (TCPDirect: alternatives).
//!
//! ```text
//!  tick   prepost ─▶ the frame as a WQE where the next one goes; the NIC is not told
//!  fire   payload and numbers ─▶ into that WQE ─▶ doorbell ─▶ copy for a retransmission
//! ```
//!
//! 1. The app names the likeliest order: [`prepost`](TcpCalls::prepost), at the end of each turn. A
//!    ring holds one.
//! 2. The order is at the ring's producer index, behind all posted frames, so frames leave in the
//!    order of the calls.
//! 3. Any posted frame overwrites it. The device sees by its producer index that it is gone, at no
//!    cost.
//! 4. [`fire`](TcpCalls::fire) then uses the [order](super::prepared_order), as on devices without
//!    `prepost`. The same bytes leave.
//! 5. `fire` writes SEQ, ACK, window, timestamps and checksum, so events since the prepost cannot
//!    make the frame wrong.
//! 6. Where the host or the options change the headers, the preposted frame is discarded with them.
//! 7. The machine first grants a send permit; only an order that left is recorded, and each
//!    recorded one has a copy.
//! 8. The buffer for the copy is checked for before the doorbell and filled after it, so the order
//!    does not wait for the pool's cold cache lines.
//! 9. A connection that ends leaves a WQE that is never fired, and that the next frame overwrites.
//! 10. Rejected: a second queue for preposted frames, because the NIC keeps no order between two
//!     queues ([why, and figures](../../../../docs/decisions/0007-preposted-orders.md)).

use super::SendError;
use super::fast::{PendingSend, SendRecords};
use super::headers::HEADERS_LEN_MAX;
use super::prepared_order::PreparedOrder;
use super::sockets::{Inner, TcpCalls, TcpSockets};
use crate::mem::copy_frame;
use crate::pipeline::node::Cx;
use crate::proto::tcp::Numbers;

impl TcpCalls<'_, '_> {
    /// Writes the whole order into the device's ring, at the position of the next frame.
    /// [`fire`](Self::fire) then writes the payload and the current numbers there and rings the
    /// doorbell; it makes the copy for a retransmission after the doorbell. Returns whether the
    /// order is in the ring. Costs some 300 instructions, or 100 where the order was in the ring
    /// already.
    ///
    /// Any frame that is sent, even an acknowledgment, overwrites the order, so call this in
    /// [`App::tick`](crate::pipeline::App::tick), which runs last in a turn. A worker can have one
    /// preposted order at a time.
    ///
    /// Where the device cannot prepost at all or at the moment, `fire` sends the order in the usual
    /// way: the same bytes leave. Of the devices only `mlx5` can prepost, for frames of 930 bytes
    /// at most, and not while a process reads the port's tap.
    ///
    /// # Errors
    /// The connection is gone, or cannot send.
    pub fn prepost(&mut self, order: &mut PreparedOrder) -> Result<bool, SendError> {
        self.header_template(order.connection)?;
        if !self.is_current(order) {
            return Ok(false);
        }
        let tx = &mut *self.0.tx;
        if order.preposted.is_some_and(|which| tx.preposted(which).is_some()) {
            return Ok(true);
        }
        order.preposted = tx.prepost(order.frame());
        Ok(order.preposted.is_some())
    }

    /// Fires the preposted frame. Returns false and changes nothing where there is none, or it may
    /// not leave at once.
    #[inline(never)]
    pub(super) fn launch_preposted(&mut self, order: &mut PreparedOrder) -> bool {
        if !self.is_current(order) {
            return false;
        }
        let Some(which) = order.preposted else { return false };
        let Cx { tcp: TcpSockets(Some(inner)), pool, tx, now, .. } = &mut *self.0 else { return false };
        let Inner { machine, counters, roster, .. } = &mut **inner;
        let Some(permit) = machine.send_permit(order.connection, order.payload_len(), *now) else { return false };
        if !pool.has_buffer_of(order.bytes.len()) {
            return false;
        }
        order.preposted = None;
        let is_standing = tx.preposted(which).is_some_and(|frame| order.complete(frame, &permit.numbers()));
        if !is_standing || !tx.fire_preposted(which) {
            return false;
        }
        // The frame has left. The rest prepares its retransmission.
        let copy = pool.alloc_fresh_copy(&order.bytes).expect("a free buffer was seen before");
        let (frame, payload) = copy.keep(HEADERS_LEN_MAX);
        PendingSend { frame, payload, permit }.has_left(&SendRecords { counters, roster });
        true
    }
}

impl PreparedOrder {
    /// Writes the fields that may have changed since the prepost: the payload and the current
    /// numbers. False where the length differs.
    #[inline(always)]
    pub(super) fn complete(&self, frame: &mut [u8], numbers: &Numbers) -> bool {
        let Some((headers, payload)) = frame.split_at_mut_checked(self.headers_len) else { return false };
        if payload.len() != self.payload_len() {
            return false;
        }
        copy_frame(payload, self.payload());
        self.stamp(headers, numbers);
        true
    }
}
