//! Routers' reports about our segments (RFC 9293 3.9.2.2), accepted as far as RFC 5927 allows: the
//! quoted number must be in flight, which a host off the path does not know. A smaller MTU of a
//! path that larger segments have passed is believed only where one of them is lost. No message
//! ends a connection whose handshake is done.

use super::arrival::{HEADERS_LEN, less_options, receive_mss};
use crate::proto::Flow;
use crate::proto::slab::NIL;
use crate::proto::tcp::event::{CloseReason, ConnectionId, IcmpRefusal};
use crate::proto::tcp::machine::{Context, Tcp};
use crate::proto::tcp::output::interface::Output;
use crate::proto::tcp::payload::Payload;
use crate::proto::tcp::seq::Seq;
use crate::proto::tcp::state::connection::{Connection, InputFlags, State, coarse_seconds};
use crate::proto::tcp::state::queue::{LOST, SACKED, SENT};
use crate::time::Instant;

/// No link has less: smaller claims are raised to this (Linux: `min_pmtu`).
const MTU_MIN: u16 = 552;
/// How long a router's claim holds: ten minutes (RFC 1191 6.3), as in the host.
const MTU_AGE_S: u16 = ((600 * 1_000_000_000_u64) >> 30) as u16;

impl<P: Payload> Tcp<P> {
    /// A router reports that a segment with the number `seq` was too large, and that `mtu` bytes of
    /// packet pass. Segments in flight that are too large count as lost, without a congestion
    /// response (RFC 1191 6.4). Walks over the segments in flight where the claim is accepted.
    pub fn path_mtu<O: Output<P>>(
        &mut self,
        flow: Flow,
        mtu: u16,
        seq: Seq,
        now: Instant,
        output: &mut O,
    ) -> Result<(), IcmpRefusal> {
        let slot = self.find_quoted(flow, seq)?;
        let mut cx = self.context(slot, output, now);
        let mss = mtu.max(MTU_MIN) - HEADERS_LEN as u16;
        if less_options(mss, cx.connection) >= cx.connection.snd.mss {
            return Err(IcmpRefusal::NotSmaller);
        }
        if cx.has_carried_more(mss) && !cx.is_missed(seq) {
            (cx.connection.path.claimed_mss, cx.connection.path.claimed_seq) = (mss, seq);
            return Err(IcmpRefusal::Contradicted);
        }
        cx.lower_mss(mss);
        cx.lose_too_large();
        cx.flush_later();
        Ok(())
    }

    /// The connection that an ICMP error is about, if its quoted number is in flight.
    pub fn quoted(&self, flow: Flow, seq: Seq) -> Option<ConnectionId> {
        let slot = self.find_quoted(flow, seq).ok()?;
        Some(ConnectionId { slot, generation: self.connections[slot].generation })
    }

    /// A router, or the peer's host, reports that a segment with the number `seq` was not
    /// delivered. A connection attempt ends (RFC 5461 4.1); for an established connection the route
    /// may be converging.
    pub fn unreachable<O: Output<P>>(
        &mut self,
        flow: Flow,
        seq: Seq,
        now: Instant,
        output: &mut O,
    ) -> Result<(), IcmpRefusal> {
        self.end_call(flow, seq, CloseReason::Unreachable, now, output)
    }

    /// The next hop did not reply to ARP, so a segment with the number `seq` did not leave. A
    /// connection attempt ends, as it does on Linux, which reports an error to the sender of that
    /// segment.
    pub fn no_neighbor<O: Output<P>>(
        &mut self,
        flow: Flow,
        seq: Seq,
        now: Instant,
        output: &mut O,
    ) -> Result<(), IcmpRefusal> {
        self.end_call(flow, seq, CloseReason::NoNeighbor, now, output)
    }

    fn end_call<O: Output<P>>(
        &mut self,
        flow: Flow,
        seq: Seq,
        reason: CloseReason,
        now: Instant,
        output: &mut O,
    ) -> Result<(), IcmpRefusal> {
        let slot = self.find_quoted(flow, seq)?;
        let mut cx = self.context(slot, output, now);
        if cx.connection.state.is_synchronized() {
            let soft_errors = &mut cx.connection.path.soft_errors;
            *soft_errors = soft_errors.saturating_add(1);
            cx.shared.tally.unreachables_ignored += 1;
            return Err(IcmpRefusal::Soft);
        }
        cx.close(reason);
        Ok(())
    }

    /// RFC 5927 4.1: SND.UNA =< SEG.SEQ < SND.NXT.
    fn find_quoted(&self, flow: Flow, seq: Seq) -> Result<u32, IcmpRefusal> {
        let slot = *self.flows.get(flow.into()).ok_or(IcmpRefusal::NoConnection)?;
        let connection = &self.connections[slot];
        let is_on_its_way = seq.is_at_least(connection.snd.una) && seq.is_before(connection.snd.nxt);
        match connection.state {
            State::Closed | State::TimeWait => Err(IcmpRefusal::NoConnection),
            _ if is_on_its_way => Ok(slot),
            _ => Err(IcmpRefusal::NotInFlight),
        }
    }
}

impl<P: Payload, O: Output<P>> Context<'_, P, O> {
    /// From now on segments carry at most `mss` less their options, by the app's choice.
    pub(crate) fn limit_mss(&mut self, mss: u16) {
        let mss = less_options(mss, self.connection);
        let connection = &mut *self.connection;
        connection.path.mss_max = connection.path.mss_max.min(mss);
        connection.snd.mss = connection.snd.mss.min(mss);
    }

    /// Lowers the MSS by a router's claim, for a while.
    fn lower_mss(&mut self, mss: u16) {
        let mss = less_options(mss, self.connection);
        let connection = &mut *self.connection;
        connection.snd.mss = connection.snd.mss.min(mss);
        connection.path.lowered_at_s = mss_lowered_stamp(self.now);
        connection.path.claimed_mss = 0;
        connection.end_trial();
    }

    /// Lowers the MSS like a report would, because full segments do not arrive although no router
    /// reports it. The losses may have been chance, so full segments are tried again soon, and
    /// later after each attempt that fails.
    pub(crate) fn avoid_black_hole(&mut self, mss: u16) {
        let connection = &mut *self.connection;
        if connection.path.lowered_at_s == 0 {
            connection.path.black_holes = connection.path.black_holes.saturating_add(1);
        }
        connection.snd.mss = mss;
        connection.path.lowered_at_s = mss_lowered_stamp(self.now);
        connection.clear(InputFlags::MSS_PROBE);
        connection.congestion.make_room_for(mss);
    }

    /// The same for our own interface's MTU. Segments in flight have passed it, or are found lost
    /// and sent again in shorter ones. Whether longer ones pass again is probed as after a router's
    /// claim.
    #[cold]
    pub(crate) fn fit_link(&mut self, mss: u16) {
        if self.connection.state == State::SynSent {
            // No segment is agreed on to be longer than our own receive MSS.
            self.connection.rcv.mss = mss;
        } else {
            self.lower_mss(mss);
        }
    }

    /// The retransmission timer has expired: the claim that a segment was too large may have been
    /// true.
    pub(crate) fn accept_path_mtu(&mut self) {
        let (mss, seq) = (self.connection.path.claimed_mss, self.connection.path.claimed_seq);
        let is_on_its_way = seq.is_at_least(self.connection.snd.una) && seq.is_before(self.connection.snd.nxt);
        if mss != 0 && is_on_its_way {
            self.lower_mss(mss);
        }
        self.connection.path.claimed_mss = 0;
    }

    /// The path may have changed: the negotiated size is tried again, and a router reports if it is
    /// too large.
    #[cold]
    pub(crate) fn raise_mss(&mut self) {
        let now_s = mss_lowered_stamp(self.now);
        if now_s.wrapping_sub(self.connection.path.lowered_at_s) < self.connection.mss_age_s() {
            return;
        }
        let mtu = self.output.mtu(*self.connection.flow.remote.ip());
        let connection = &mut *self.connection;
        let mss = less_options(receive_mss(mtu, 0), connection).min(connection.path.mss_max);
        connection.path.lowered_at_s = if mss == connection.path.mss_max { 0 } else { now_s };
        connection.snd.mss = connection.snd.mss.max(mss);
        connection.congestion.make_room_for(connection.snd.mss);
        if connection.path.black_holes != 0 {
            // From now on each acknowledgment takes the slow path.
            connection.set(InputFlags::MSS_PROBE);
            (connection.path.claimed_mss, connection.path.claimed_seq) = (0, connection.snd.nxt);
        }
    }

    /// A chunk has arrived while full segments are on trial: if it was one, they pass.
    #[cold]
    pub(crate) fn confirm_mtu_probe(&mut self, seq: Seq, len: u32) {
        let connection = &mut *self.connection;
        if len >= connection.snd.mss.into() && seq.is_at_least(connection.path.claimed_seq) {
            connection.end_trial();
        }
    }

    /// Whether segments with a payload of more than `mss` have certainly arrived: the segments sent
    /// could not have carried all acknowledged bytes with less in each.
    fn has_carried_more(&self, mss: u16) -> bool {
        let tally = &self.connection.tally;
        tally.bytes_acked > tally.segments_out * u64::from(mss)
    }

    /// Whether the segment with the number `seq` was found lost, or was retransmitted. Scans the
    /// segments in flight up to it, but only where some of them are lost. The first claim about a
    /// lost segment is accepted, and the claims after it are old. So a route whose MTU shrinks
    /// under a thousand segments does not cost a scan for each of the thousand messages.
    fn is_missed(&self, seq: Seq) -> bool {
        if self.connection.sack.lost_len == 0 && self.connection.sack.resent_len == 0 {
            return false;
        }
        let mut idx = self.connection.send.queue.head;
        while let Some(chunk) = self.shared.chunks.get(idx).filter(|chunk| chunk.end().is_at_most(seq)) {
            idx = chunk.next;
        }
        self.shared.chunks.get(idx).is_some_and(|chunk| chunk.has(LOST) || chunk.resent != 0)
    }

    /// Marks data lost that was sent in too large segments. Walks over the segments in flight.
    fn lose_too_large(&mut self) {
        let mut idx = self.connection.send.queue.head;
        while idx != NIL && idx != self.connection.send.next_unsent {
            let chunk = &self.shared.chunks[idx];
            let next = chunk.next;
            let is_too_large = chunk.len > u32::from(self.connection.snd.mss);
            if is_too_large && chunk.has(SENT) && !chunk.has(SACKED) {
                self.mark_lost(idx);
            }
            idx = next;
        }
    }
}

impl Connection {
    /// How long shorter segments last until full ones are tried again: ten minutes, where a router
    /// reported the reason.
    fn mss_age_s(&self) -> u16 {
        match self.path.black_holes {
            0 => MTU_AGE_S,
            count => 1u16.checked_shl(u32::from(count) - 1).unwrap_or(MTU_AGE_S).min(MTU_AGE_S),
        }
    }

    /// Full segments arrive, or a router has reported why they do not.
    fn end_trial(&mut self) {
        self.clear(InputFlags::MSS_PROBE);
        self.path.black_holes = 0;
    }
}

/// The lower half of [`coarse_seconds`], and never 0.
fn mss_lowered_stamp(now: Instant) -> u16 {
    match coarse_seconds(now) as u16 {
        0 => u16::MAX,
        seconds => seconds,
    }
}
