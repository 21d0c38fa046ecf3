//! One segment more in each round trip (RFC 5681 3.1).

use crate::proto::tcp::state::connection::Connection;

impl Connection {
    /// Each window that was acknowledged adds a segment. Counting bytes needs no division.
    pub(super) fn grow_reno(&mut self, acked: u32) {
        self.congestion.acked = self.congestion.acked.saturating_add(acked);
        if self.congestion.acked >= self.congestion.cwnd {
            self.congestion.acked -= self.congestion.cwnd;
            self.congestion.cwnd += u32::from(self.snd.mss);
        }
    }
}
