//! What routers say of our segments (RFC 9293 3.9.2.2), believed as far as RFC 5927 lets us: the quoted number must be on its way, which
//! somebody off the path does not know; and no message ends a connection whose handshake is done.

use super::arrival::{HEADERS_LEN, less_options};
use super::connection::State;
use super::event::{CloseReason, IcmpRefusal};
use super::machine::{Tcp, Turn};
use super::payload::{Output, Payload};
use super::queue::{SACKED, SENT};
use super::seq::Seq;
use crate::proto::Flow;
use crate::proto::slab::NIL;
use crate::time::Instant;

/// No link has less: a claim of less is taken as this (Linux: `min_pmtu`).
const MTU_MIN: u16 = 552;

impl<P: Payload> Tcp<P> {
    /// A router says that a segment with the number `seq` was too large, and that `mtu` bytes of packet go through. What is too large and
    /// on its way counts as lost, without blame for the network (RFC 1191 6.4).
    pub fn path_mtu<O: Output<P>>(
        &mut self,
        flow: Flow,
        mtu: u16,
        seq: Seq,
        now: Instant,
        output: &mut O,
    ) -> Result<(), IcmpRefusal> {
        let slot = self.find_quoted(flow, seq)?;
        let mut turn = self.turn(slot, output, now);
        let mss = mtu.max(MTU_MIN) - HEADERS_LEN as u16;
        if !turn.lower_mss(mss) {
            return Err(IcmpRefusal::NotSmaller);
        }
        turn.lose_too_large();
        turn.flush_later();
        Ok(())
    }

    /// A router, or the peer's host, says that a segment with the number `seq` did not get there. A call that is still open ends
    /// (RFC 5461 4.1), the rest may be a route that is being mended.
    pub fn unreachable<O: Output<P>>(
        &mut self,
        flow: Flow,
        seq: Seq,
        now: Instant,
        output: &mut O,
    ) -> Result<(), IcmpRefusal> {
        self.end_call(flow, seq, CloseReason::Unreachable, now, output)
    }

    /// The next hop was asked for, and did not answer; so a segment with the number `seq` did not leave. A call that is still open ends, as
    /// the sender of that segment is told on Linux.
    pub fn no_neighbour<O: Output<P>>(
        &mut self,
        flow: Flow,
        seq: Seq,
        now: Instant,
        output: &mut O,
    ) -> Result<(), IcmpRefusal> {
        self.end_call(flow, seq, CloseReason::NoNeighbour, now, output)
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
        let mut turn = self.turn(slot, output, now);
        if turn.connection.state.is_synchronized() {
            turn.connection.tally.soft_errors += 1;
            turn.shared.tally.unreachables_ignored += 1;
            return Err(IcmpRefusal::Soft);
        }
        turn.close(reason);
        Ok(())
    }

    /// RFC 5927 4.1: SND.UNA =< SEG.SEQ < SND.NXT.
    fn find_quoted(&self, flow: Flow, seq: Seq) -> Result<u32, IcmpRefusal> {
        let slot = *self.flows.get(flow.into()).ok_or(IcmpRefusal::NoConnection)?;
        let connection = &self.connections[slot];
        let is_on_its_way = seq.is_at_least(connection.snd_una) && seq.is_before(connection.snd_nxt);
        match connection.state {
            State::Closed | State::TimeWait => Err(IcmpRefusal::NoConnection),
            _ if is_on_its_way => Ok(slot),
            _ => Err(IcmpRefusal::NotOnItsWay),
        }
    }
}

impl<P: Payload, O: Output<P>> Turn<'_, P, O> {
    /// From now on segments carry `mss` less the options of each at most; false where they do already.
    pub(super) fn lower_mss(&mut self, mss: u16) -> bool {
        let mss = less_options(mss, self.connection);
        let is_lower = mss < self.connection.snd_mss;
        if is_lower {
            self.connection.snd_mss = mss;
        }
        is_lower
    }

    /// What was sent in segments that do not get through. Walks over what is on its way.
    fn lose_too_large(&mut self) {
        let mut idx = self.connection.send.head;
        while idx != NIL && idx != self.connection.next_unsent {
            let chunk = &self.shared.chunks[idx];
            let next = chunk.next;
            let is_too_large = chunk.len > u32::from(self.connection.snd_mss);
            if is_too_large && chunk.has(SENT) && !chunk.has(SACKED) {
                self.mark_lost(idx);
            }
            idx = next;
        }
    }
}
