//! Fifth phase of a segment's arrival: what the peer acknowledges (RFC 9293 3.10.7.4).

use super::arrival::TcpDrop;
use super::connection::State;
use super::machine::Turn;
use super::payload::{Output, Payload};
use super::segment::Segment;
use crate::wire::tcp::TcpFlags;

impl<P: Payload, O: Output<P>> Turn<'_, P, O> {
    /// Takes the acknowledgment and the window of a segment.
    #[inline]
    pub(super) fn process_ack(&mut self, segment: &Segment) -> Result<(), TcpDrop> {
        if !segment.has(TcpFlags::ACK) {
            return Err(TcpDrop::BadFlags);
        }
        if self.connection.state == State::SynReceived {
            self.establish();
        }
        if segment.ack.is_after(self.connection.snd_una) && segment.ack.is_at_most(self.connection.snd_nxt) {
            self.connection.snd_una = segment.ack;
            self.free_acknowledged();
        }
        self.connection.snd_wnd = u32::from(segment.wnd) << self.connection.snd_wscale;
        Ok(())
    }

    /// Lets go of the data before SND.UNA.
    fn free_acknowledged(&mut self) {
        let connection = &mut *self.connection;
        while let Some(first) = self.shared.chunks.get(connection.send.head) {
            if first.end().is_after(connection.snd_una) {
                return;
            }
            let chunk = connection.send.remove(&mut self.shared.chunks, connection.send.head);
            connection.send_len -= chunk.len;
        }
    }
}
