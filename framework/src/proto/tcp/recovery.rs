//! What is lost, and how much may be on its way.

use super::connection::RetransmitTimer;
use super::machine::Turn;
use super::payload::{Output, Payload};
use super::queue::{RESENT, SENT};

impl<P: Payload, O: Output<P>> Turn<'_, P, O> {
    /// The next chunk to send again, where the congestion window has room for it.
    pub(super) fn next_lost(&mut self) -> Option<u32> {
        None
    }

    /// Bytes of new data that the congestion window has room for.
    #[inline]
    pub(super) fn cwnd_room(&self) -> u32 {
        u32::MAX
    }

    /// A chunk has left.
    #[inline]
    pub(super) fn on_sent(&mut self, idx: u32, is_resent: bool) {
        let chunk = &mut self.shared.chunks[idx];
        chunk.flags |= SENT;
        chunk.sent_at = self.now;
        if is_resent {
            chunk.flags |= RESENT;
        }
        if self.connection.timer == RetransmitTimer::Off {
            self.connection.timer = RetransmitTimer::Timeout;
            self.connection.timer_at = self.now + self.connection.rto.span();
        }
    }

    /// RFC 6298 5.4 to 5.6.
    pub(super) fn on_timeout(&mut self) {}

    /// RFC 8985 7.3.
    pub(super) fn on_probe(&mut self) {}

    /// RFC 8985 6.3.
    pub(super) fn on_reordering(&mut self) {}
}
