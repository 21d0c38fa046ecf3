//! Seventh phase of a segment's arrival: its data (RFC 9293 3.10.7.4), in order to the app, out of order kept with a bound.

use super::connection::AckOwed;
use super::machine::Turn;
use super::payload::{Output, Payload};
use super::segment::Segment;

impl<P: Payload, O: Output<P>> Turn<'_, P, O> {
    /// Takes the data of a segment that was found acceptable. What is next in order comes back.
    #[inline]
    pub(super) fn take_data(&mut self, segment: &Segment, payload: P) -> Option<P> {
        if segment.seq != self.connection.rcv_nxt || payload.is_empty() {
            return None;
        }
        self.connection.rcv_nxt += segment.len;
        self.owe_ack(AckOwed::Now);
        Some(payload)
    }

    /// We owe an acknowledgment, by then.
    #[inline]
    pub(super) fn owe_ack(&mut self, by: AckOwed) {
        self.connection.ack_owed = self.connection.ack_owed.max(by);
        self.flush_later();
    }
}
