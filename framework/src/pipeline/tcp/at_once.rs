//! A message that leaves the moment it is handed over: it is copied behind its headers, and the frame is posted before anything is written
//! down of it. So goes nearly every answer to what has just come. All others go by the machine and the [way out](super::way_out).

use super::super::node::Cx;
use super::ConnectionId;
use super::bytes::Bytes;
use super::headers::{Body, UsualHeaders};
use super::roster::Roster;
use super::sockets::{Inner, TcpCalls, TcpSockets};
use super::way_out::{OutCounters, note_lens};
use crate::device::Offload;
use crate::mem::{Held, Mbuf};
use crate::proto::tcp::Aim;

/// A frame that may leave now, and the part of it that is payload.
pub(super) struct Shot<'a> {
    pub(super) frame: Mbuf,
    pub(super) payload: Held,
    pub(super) aim: Aim<'a, Bytes>,
}

/// Where segments that leave past the machine's way out are written down.
pub(super) struct Books<'a> {
    pub(super) counters: &'a OutCounters,
    pub(super) roster: &'a Option<Roster>,
}

impl Shot<'_> {
    /// Posts the frame by `post`; false, and nothing has happened, where there is no room for it.
    #[inline(always)]
    pub(super) fn leave(self, post: impl FnOnce(Mbuf) -> Result<(), Mbuf>, books: &Books<'_>) -> bool {
        let Self { frame, payload, aim } = self;
        if let Err(frame) = post(frame) {
            frame.free();
            return false;
        }
        let (slot, payload_len) = (aim.slot(), payload.len());
        let fired = aim.fired(Bytes::Held(payload));
        books.counters.segments.inc();
        books.counters.bytes.add(payload_len as u64);
        if let Some(roster) = books.roster {
            roster.note(slot, fired.snd_nxt(), fired.rcv_nxt());
        }
        true
    }
}

impl TcpCalls<'_, '_> {
    /// Sends a copy of a message as a segment of its own, with the usual headers; false, and nothing has happened, where it has to go
    /// another way.
    #[inline(never)]
    pub(super) fn send_at_once(&mut self, id: ConnectionId, message: &[u8]) -> bool {
        let Cx { tcp: TcpSockets(Some(inner)), pool, tx, host, now, .. } = &mut *self.0 else { return false };
        let Inner { machine, paths, counters, offloads, roster, .. } = &mut **inner;
        let Some(aim) = machine.aim(id, message.len(), *now) else { return false };
        let Some(timestamps) = aim.timestamps() else { return false };
        let Some(link) = paths[id.slot()].untagged(host) else { return false };
        let offload = offloads.usual();
        let Some(mut fresh) = pool.alloc_fresh(UsualHeaders::LEN + message.len()) else { return false };
        if let Some((headers, place)) = UsualHeaders::first_of(fresh.bytes_mut()) {
            let body = Body::copied(place, message, offload.has(Offload::L4_CHECKSUM));
            headers.write(link, &aim.outgoing(), timestamps, body);
        }
        let (mut frame, payload) = fresh.keep(UsualHeaders::LEN);
        note_lens(&mut frame, offload);
        Shot { frame, payload, aim }.leave(|frame| tx.post(frame, offload), &Books { counters, roster })
    }
}
