//! A message that is sent at once: it is copied after its headers, and the frame is posted before
//! the machine records it. Nearly every response to a received segment goes this way; all others go
//! through the send queue and [`output`](super::output).

use super::ConnectionId;
use super::bytes::Bytes;
use super::headers::{Body, UsualHeaders};
use super::output::{OutCounters, set_header_lens};
use super::roster::Roster;
use super::sockets::{Inner, TcpCalls, TcpSockets};
use crate::device::Offload;
use crate::mem::{Held, Mbuf};
use crate::pipeline::node::Cx;
use crate::proto::tcp::SendPermit;

/// A frame that is ready to be posted, and the range of its payload.
pub(super) struct PendingSend<'a> {
    pub(super) frame: Mbuf,
    pub(super) payload: Held,
    pub(super) permit: SendPermit<'a, Bytes>,
}

/// The counters and the roster, which a segment updates that the machine itself did not send.
pub(super) struct SendRecords<'a> {
    pub(super) counters: &'a OutCounters,
    pub(super) roster: &'a Option<Roster>,
}

impl PendingSend<'_> {
    /// Posts the frame by `post`. Returns false and changes nothing where the ring has no room.
    #[inline(always)]
    pub(super) fn leave(self, post: impl FnOnce(Mbuf) -> Result<(), Mbuf>, records: &SendRecords<'_>) -> bool {
        let Self { frame, payload, permit } = self;
        if let Err(frame) = post(frame) {
            frame.free();
            return false;
        }
        note_committed(payload, permit, records);
        true
    }

    /// Records the segment where another frame with the same bytes has left.
    #[inline(always)]
    pub(super) fn has_left(self, records: &SendRecords<'_>) {
        self.frame.free();
        note_committed(self.payload, self.permit, records);
    }
}

#[inline(always)]
fn note_committed(payload: Held, permit: SendPermit<'_, Bytes>, records: &SendRecords<'_>) {
    let (slot, payload_len) = (permit.slot(), payload.len());
    let committed = permit.commit(Bytes::Held(payload));
    records.counters.segments.inc();
    records.counters.bytes.add(payload_len as u64);
    if let Some(roster) = records.roster {
        roster.note(slot, committed.snd_nxt(), committed.rcv_nxt());
    }
}

impl TcpCalls<'_, '_> {
    /// Sends a copy of a message as a segment of its own with the usual headers. Returns false and
    /// changes nothing where the message must go through the send queue.
    #[inline(never)]
    pub(super) fn send_fast(&mut self, id: ConnectionId, message: &[u8]) -> bool {
        let Cx { tcp: TcpSockets(Some(inner)), pool, tx, host, now, .. } = &mut *self.0 else { return false };
        let Inner { machine, link_headers, counters, offloads, roster, .. } = &mut **inner;
        let Some(permit) = machine.send_permit(id, message.len(), *now) else { return false };
        if !permit.has_timestamps() {
            return false;
        }
        let Some(link) = link_headers[id.slot()].untagged(host) else { return false };
        let offload = offloads.usual();
        let Some(mut fresh) = pool.alloc_fresh(UsualHeaders::LEN + message.len()) else { return false };
        if let Some((headers, place)) = UsualHeaders::first_of(fresh.bytes_mut()) {
            // Each field is read where it is written, and the payload copied in between, so that no
            // register has to hold it meanwhile.
            headers.write_packet(link, &permit.outgoing(), place.len());
            let body = Body::copied(place, message, offload.has(Offload::L4_CHECKSUM));
            headers.write_segment(&permit.outgoing(), permit.current_timestamps(), body);
        }
        let (mut frame, payload) = fresh.keep(UsualHeaders::LEN);
        set_header_lens(&mut frame, offload);
        PendingSend { frame, payload, permit }.leave(|frame| tx.post(frame, offload), &SendRecords { counters, roster })
    }
}
