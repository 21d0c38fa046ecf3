//! Header prediction (Van Jacobson's, in 4.4BSD's `tcp_input` and in every TCP since): nearly every
//! segment of an established connection acknowledges data in flight, brings the next data, or does
//! both, and does nothing else. One test decides whether a segment is of this kind. If it is, we
//! take the same steps as in the phases of RFC 9293 3.10.7.4, without their tests. Otherwise
//! nothing has changed, and the segment goes through the phases one by one.
//!
//! An expected segment causes no immediate send: its acknowledgment is delayed, or waits for the
//! end of the burst. So its context has no output.

use core::net::Ipv4Addr;

use super::checks::is_older;
use crate::proto::tcp::event::ConnectionId;
use crate::proto::tcp::machine::{Context, Tcp, named};
use crate::proto::tcp::output::interface::{Output, Unsent};
use crate::proto::tcp::payload::Payload;
use crate::proto::tcp::segment::{Outgoing, PredictedFields};
use crate::proto::tcp::state::connection::{AppFlags, Connection, Flags, InputFlags, LossFlags, State};
use crate::proto::{ConsumerId, Flow};
use crate::time::Instant;

/// States in which each segment takes the slow path: an app that does not accept data, congestion
/// marks, an early FIN, a probe whose acknowledgment means more than arrival, and full segments on
/// trial.
const SLOW_PATH_FLAGS: Flags = Flags::of(&[
    AppFlags::HOLDS.flags(),
    InputFlags::ECN.flags(),
    InputFlags::FIN_SEEN.flags(),
    InputFlags::MSS_PROBE.flags(),
    LossFlags::PROBE_OUT.flags(),
]);

impl<P: Payload> Tcp<P> {
    /// Takes a segment that is exactly what its connection expects; returns the connection, its
    /// consumer, and the payload, which is next in order and which the caller delivers. For any
    /// other segment returns `None` and changes nothing: [`receive_any`](Self::receive_any)
    /// processes it in full.
    #[inline(always)]
    pub fn receive_expected(
        &mut self,
        flow: Flow,
        segment: &PredictedFields,
        now: Instant,
    ) -> Option<(ConnectionId, ConsumerId)> {
        let connection = match self.connections.get_mut(self.recent) {
            Some(recent) if recent.flow == flow && recent.state == State::Established => recent,
            _ => {
                self.recent = *self.flows.get(flow.into())?;
                &mut self.connections[self.recent]
            }
        };
        if !connection.expects(segment) {
            return None;
        }
        let expected = (ConnectionId { slot: self.recent, generation: connection.generation }, connection.consumer);
        Context { connection, slot: self.recent, shared: &mut self.shared, output: &mut NullOutput, now }
            .take_expected(segment);
        Some(expected)
    }

    /// Takes a segment with the next bytes and otherwise the same fields as the expected segment
    /// before it, with no other segment of the connection in between. So state that only segments
    /// can change needs no test. Returns false and changes nothing where the connection cannot take
    /// it, because of a call of the app in between.
    #[inline(always)]
    pub fn receive_more(&mut self, id: ConnectionId, segment: &PredictedFields, now: Instant) -> bool {
        match named(&mut self.connections, id) {
            Some(connection) if connection.goes_on(segment) => {
                Context { connection, slot: id.slot, shared: &mut self.shared, output: &mut NullOutput, now }
                    .take_more(segment);
                true
            }
            _ => false,
        }
    }
}

impl<P: Payload> Context<'_, P, NullOutput> {
    /// Out of line, so that it has the registers to itself: between the node and the app, half of
    /// them were spilled to the stack.
    #[inline(never)]
    fn take_expected(mut self, segment: &PredictedFields) {
        self.count();
        self.note_arrival(segment);
        self.update_window(segment);
        let acked = segment.ack - self.connection.snd.una;
        if acked != 0 {
            self.fast_path_ack(segment.ack, acked);
        }
        if segment.len != 0 {
            self.take_next_in_order(segment.len, acked != 0);
        }
    }

    /// The same for a segment whose acknowledgment and window equal those of the segment before it:
    /// only the sequence number is new.
    #[inline(always)]
    fn take_more(mut self, segment: &PredictedFields) {
        self.count();
        self.note_arrival(segment);
        self.connection.snd.wl1 = segment.seq;
        self.take_next_in_order(segment.len, false);
    }

    #[inline(always)]
    fn count(&mut self) {
        self.shared.tally.segments_in += 1;
        self.connection.tally.segments_in += 1;
    }
}

impl Connection {
    /// Whether the app has not changed the connection, and the segment is next, has data, and fits.
    /// Losses of our own data matter only to a segment that acknowledges.
    #[inline(always)]
    fn goes_on(&self, segment: &PredictedFields) -> bool {
        self.state == State::Established
            && !self.has(SLOW_PATH_FLAGS)
            && segment.seq == self.rcv.nxt
            && (segment.seq + segment.len).is_at_most(self.advertised.adv)
            && segment.len != 0
    }

    /// Whether a segment is the next one of a connection without loss.
    #[inline(always)]
    fn expects(&self, segment: &PredictedFields) -> bool {
        let acked = segment.ack - self.snd.una;
        self.state == State::Established
            // No data is missing in either direction, and none waits for the app.
            && self.has_no_loss()
            && self.out_of_order.queue.is_empty()
            && self.rcv.in_order_len == 0
            && !self.has(SLOW_PATH_FLAGS)
            // First: it is next, and all of it fits.
            && segment.seq == self.rcv.nxt
            && (segment.seq + segment.len).is_at_most(self.advertised.adv)
            // Current, by its timestamp (RFC 7323 5.3 R1).
            && match segment.timestamps {
                Some(timestamps) => self.has(InputFlags::TIMESTAMPS) && !is_older(timestamps.value, self.ts.recent),
                None => !self.has(InputFlags::TIMESTAMPS),
            }
            // Fifth: the segment acknowledges data in flight. A segment without data that
            // acknowledges nothing new is a duplicate, a window update, or a keepalive probe.
            && acked <= self.snd.flight()
            && acked | segment.len != 0
    }
}

/// The output of a call that sends nothing.
struct NullOutput;

impl<P> Output<P> for NullOutput {
    fn send(&mut self, _: Option<u32>, _: &Outgoing, _: Option<&mut P>) -> Result<(), Unsent> {
        Err(Unsent::Busy)
    }

    fn mtu(&self, _: Ipv4Addr) -> usize {
        0
    }
}
