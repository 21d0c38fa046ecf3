//! Orders that stand in the device's ring before they are fired (TCPDirect: alternatives).
//!
//! ```text
//!  tick   prepost ─▶ the frame as a WQE where the next one goes; the NIC is not told
//!  fire   payload and numbers ─▶ into that WQE ─▶ doorbell ─▶ copy for a retransmission
//! ```
//!
//! 1. The app says which order is likeliest: [`prepost`](TcpCalls::prepost), at the end of each
//!    turn. One stands in a ring.
//! 2. It stands at the ring's producer index. So it is behind all that was posted, and the order of
//!    frames is that of the calls.
//! 3. Whatever is posted takes its place. The device knows by its index that it stands no more, and
//!    pays nothing for that knowledge.
//! 4. Then [`fire`](TcpCalls::fire) goes by the [template](super::template), as on devices that
//!    cannot. The same bytes leave.
//! 5. SEQ, ACK, window, timestamps and checksum are those of the moment of `fire`, so nothing that
//!    happens meanwhile makes it wrong.
//! 6. Where the headers change, by the host or by options, what stands is given up with the old
//!    ones.
//! 7. The machine is asked first whether the order may leave; only an order that left is booked,
//!    and what is booked has a copy.
//! 8. A buffer for the copy is looked for before the doorbell, and filled behind it: so the pool's
//!    cold lines are not waited for.
//! 9. A connection that ends leaves a WQE that nobody fires, and that the next frame overwrites.
//! 10. Rejected: a second queue for what stands, as the NIC keeps no order between two ([why, and
//!     figures](../../../../docs/decisions/0007-preposted-orders.md)).

use super::super::node::Cx;
use super::SendError;
use super::fast::{PendingSend, SendRecords};
use super::headers::HEADERS_LEN_MAX;
use super::sockets::{Inner, TcpCalls, TcpSockets};
use super::template::Template;
use crate::mem::copy_frame;
use crate::proto::tcp::Numbers;

impl TcpCalls<'_, '_> {
    /// Has the order stand in the device's ring, whole, where the next frame goes:
    /// [`fire`](Self::fire) is then to write the payload and the numbers of the moment there and to
    /// ring, and the copy that may have to be sent again is made behind the doorbell. Says whether
    /// it stands. Some 300 instructions; 100 where it stands already.
    ///
    /// Whatever is sent takes its place, an acknowledgment too, so call it in
    /// [`App::tick`](super::super::App::tick), the last of a turn. One order of a worker stands at
    /// a time.
    ///
    /// Where the device cannot, or not now, the order is fired as it is without: the same bytes
    /// leave. Of the devices `mlx5` can, frames of 930 bytes at most, and none while somebody
    /// listens to the port's tap.
    ///
    /// # Errors
    /// The connection is gone, or cannot send.
    pub fn prepost(&mut self, template: &mut Template) -> Result<bool, SendError> {
        self.header_template(template.connection)?;
        if !self.is_current(template) {
            return Ok(false);
        }
        let tx = &mut *self.0.tx;
        if template.preposted.is_some_and(|which| tx.preposted(which).is_some()) {
            return Ok(true);
        }
        template.preposted = tx.prepost(template.frame());
        Ok(template.preposted.is_some())
    }

    /// Fires the frame that stands; false, and nothing has happened, where it does not or may not
    /// leave at once.
    #[inline(never)]
    pub(super) fn launch_preposted(&mut self, template: &mut Template) -> bool {
        if !self.is_current(template) {
            return false;
        }
        let Some(which) = template.preposted else { return false };
        let Cx { tcp: TcpSockets(Some(inner)), pool, tx, now, .. } = &mut *self.0 else { return false };
        let Inner { machine, counters, roster, .. } = &mut **inner;
        let Some(permit) = machine.send_permit(template.connection, template.payload_len(), *now) else { return false };
        if !pool.has_buffer_of(template.bytes.len()) {
            return false;
        }
        template.preposted = None;
        let is_standing = tx.preposted(which).is_some_and(|frame| template.complete(frame, &permit.numbers()));
        if !is_standing || !tx.fire_preposted(which) {
            return false;
        }
        // It is on its way. What follows is for its being sent again.
        let copy = pool.alloc_fresh_copy(&template.bytes).expect("a free buffer was seen before");
        let (frame, payload) = copy.keep(HEADERS_LEN_MAX);
        PendingSend { frame, payload, permit }.has_left(&SendRecords { counters, roster });
        true
    }
}

impl Template {
    /// Writes what may have changed since the frame stands: its payload and the numbers of the
    /// moment. False where it is not as long.
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
