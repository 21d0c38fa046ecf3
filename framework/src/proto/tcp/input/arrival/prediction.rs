//! Header prediction (Van Jacobson's, in 4.4BSD's `tcp_input` and in every TCP since): nearly each
//! segment of an established connection acknowledges what is on its way, brings what is next, or
//! both, and says nothing else. One look finds out whether it is such a one. Then it is taken by
//! the very steps that the phases of RFC 9293 3.10.7.4 would take, with all their questions
//! answered; otherwise nothing has happened, and the phases ask them one by one.
//!
//! What is expected sends nothing: its acknowledgment waits for company, or for the end of the
//! burst. So its turn has no way out.

use core::net::Ipv4Addr;

use super::checks::is_older;
use crate::proto::tcp::event::ConnectionId;
use crate::proto::tcp::machine::{Context, Tcp, named};
use crate::proto::tcp::payload::{Output, Payload, Unsent};
use crate::proto::tcp::segment::{Outgoing, Plain};
use crate::proto::tcp::state::connection::{AppFlags, Connection, Flags, InputFlags, LossFlags, State};
use crate::proto::{ConsumerId, Flow};
use crate::time::Instant;

/// What has a connection look at each segment closely: an app that does not take what comes,
/// congestion marks, a FIN that came early, a probe whose acknowledgment says more than that it
/// arrived, and full segments that may not.
const WATCHFUL: Flags = Flags::of(&[
    AppFlags::HOLDS.flags(),
    InputFlags::ECN.flags(),
    InputFlags::FIN_SEEN.flags(),
    InputFlags::MSS_PROBE.flags(),
    LossFlags::PROBE_OUT.flags(),
]);

impl<P: Payload> Tcp<P> {
    /// Takes a segment that is just what its connection expects; its payload is then next in order
    /// and the caller's to hand over, to the connection and the consumer that are named. `None`,
    /// and nothing has happened, where it is anything else: [`receive_any`](Self::receive_any) has
    /// a close look.
    #[inline(always)]
    pub fn receive_expected(
        &mut self,
        flow: Flow,
        segment: &Plain,
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
        let told = (ConnectionId { slot: self.recent, generation: connection.generation }, connection.consumer);
        Context { connection, slot: self.recent, shared: &mut self.shared, output: &mut NullOutput, now }
            .take_expected(segment);
        Some(told)
    }

    /// Takes a segment that brings the next bytes, and says otherwise just what the one before it
    /// said, which was expected, and behind which no other of the connection came. So what only a
    /// segment can change need not be asked again. False, and nothing has happened, where the
    /// connection goes on otherwise: whatever the app has done meanwhile, and whenever that was.
    #[inline(always)]
    pub fn receive_more(&mut self, id: ConnectionId, segment: &Plain, now: Instant) -> bool {
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
    /// it went to and from the stack.
    #[inline(never)]
    fn take_expected(mut self, segment: &Plain) {
        self.count();
        self.note_arrival(segment);
        self.update_window(segment);
        let acked = segment.ack - self.connection.snd.una;
        if acked != 0 {
            self.fast_path_ack(segment.ack, acked);
        }
        if segment.len != 0 {
            self.take_next_in_order(segment.len);
        }
    }

    /// The same where it says nothing of acknowledgment and window but what the one before it said:
    /// the number is all that is new.
    #[inline(always)]
    fn take_more(mut self, segment: &Plain) {
        self.count();
        self.note_arrival(segment);
        self.connection.snd.wl1 = segment.seq;
        self.take_next_in_order(segment.len);
    }

    #[inline(always)]
    fn count(&mut self) {
        self.shared.tally.segments_in += 1;
        self.connection.tally.segments_in += 1;
    }
}

impl Connection {
    /// Whether the app has left it as it was, and the segment is next, brings something, and there
    /// is room for all of it. Whether something is missing on the way to the peer matters only to a
    /// segment that acknowledges.
    #[inline(always)]
    fn goes_on(&self, segment: &Plain) -> bool {
        self.state == State::Established
            && !self.has(WATCHFUL)
            && segment.seq == self.rcv.nxt
            && (segment.seq + segment.len).is_at_most(self.shown.adv)
            && segment.len != 0
    }

    /// Whether a segment is what comes next where all is well.
    #[inline(always)]
    fn expects(&self, segment: &Plain) -> bool {
        let acked = segment.ack - self.snd.una;
        self.state == State::Established
            // Nothing is missing on the way to the peer, or on the way to us, or waits for the app.
            && self.is_untroubled()
            && self.out_of_order.is_empty()
            && self.rcv.in_order_len == 0
            && !self.has(WATCHFUL)
            // First: what is next, and there is room for all of it.
            && segment.seq == self.rcv.nxt
            && (segment.seq + segment.len).is_at_most(self.shown.adv)
            // Of now, by its timestamp (RFC 7323 5.3 R1).
            && match segment.timestamps {
                Some(timestamps) => self.has(InputFlags::TIMESTAMPS) && !is_older(timestamps.value, self.ts.recent),
                None => !self.has(InputFlags::TIMESTAMPS),
            }
            // Fifth: it acknowledges what was sent and not acknowledged yet. One that neither does
            // nor brings anything is a duplicate, tells of a window, or asks whether we live.
            && acked <= self.snd.flight()
            && acked | segment.len != 0
    }
}

/// The way out of who sends nothing.
struct NullOutput;

impl<P> Output<P> for NullOutput {
    fn send(&mut self, _: Option<u32>, _: &Outgoing, _: Option<&mut P>) -> Result<(), Unsent> {
        Err(Unsent::Busy)
    }

    fn mtu(&self, _: Ipv4Addr) -> usize {
        0
    }
}
