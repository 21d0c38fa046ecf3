//! Sending what stands prepared: a segment of which everything is known but its numbers, so that an order leaves with the fewest
//! instructions.
//!
//! What enters: how many bytes, and who puts the numbers in and posts the frame. What leaves: the frame, and its payload as data that was
//! sent and is ours until it is acknowledged. The way is open where all of it may leave at once and nothing goes before it; that is
//! looked at in one place. Where it is not, nothing has happened, and the caller sends the bytes the usual way.

use super::connection::{Connection, flag, switch};
use super::event::{ConnectionId, SendError};
use super::machine::{Tcp, Turn};
use super::payload::{Output, Payload};
use super::queue::{Chunk, PUSH};
use super::segment::Outgoing;
use super::seq::Seq;
use crate::proto::slab::NIL;
use crate::time::Instant;
use crate::wire::tcp::{TcpFlags, Timestamps};

/// What became of a prepared segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fired {
    /// It has left.
    Posted,
    /// It cannot leave at once: data waits before it, a window has no room, or the way out has none. Nothing has happened.
    NotOpen,
}

/// Whether a prepared segment is to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// It is.
    Live,
    /// Everything is done but that: the next one finds its way warm.
    Rehearsal,
}

/// What is known of a connection's next segments before there is one.
#[derive(Clone, Copy, Debug)]
pub struct Prospect {
    /// The header with all numbers zero. Timestamps are there where the connection has them.
    pub outgoing: Outgoing,
    /// Bytes of payload that a segment carries at most.
    pub mss: usize,
    /// The largest window that the peer ever showed.
    pub window_max: usize,
    /// Bytes that may wait to be sent or acknowledged at most.
    pub send_buffer: usize,
}

impl<P: Payload> Tcp<P> {
    /// What can be prepared of a connection's segments; its handshake must be done.
    pub fn prospect(&self, id: ConnectionId) -> Result<Prospect, SendError> {
        let connection = &self.connections[self.find(id).ok_or(SendError::NotFound)?];
        if !connection.state.is_synchronized() {
            return Err(SendError::NotConnected);
        }
        if !connection.state.may_send() {
            return Err(SendError::Closed);
        }
        Ok(connection.prospect())
    }

    /// Whether bytes of the connection wait that were never sent.
    pub fn has_unsent(&self, id: ConnectionId) -> bool {
        self.find(id).is_some_and(|slot| self.connections[slot].next_unsent != NIL)
    }

    /// Sends a segment of `len` bytes that stands prepared. `post` puts the numbers into the frame and posts it, and keeps the payload
    /// for us; where it cannot, it gives `None` and has done nothing. In a rehearsal it must not let the frame leave, and everything is as
    /// it was afterwards.
    #[inline]
    pub fn fire<O: Output<P>>(
        &mut self,
        (id, len): (ConnectionId, u32),
        mode: Mode,
        now: Instant,
        output: &mut O,
        post: impl FnOnce(&mut O, u32, &Outgoing) -> Option<P>,
    ) -> Result<Fired, SendError> {
        let slot = self.find(id).ok_or(SendError::NotFound)?;
        let mut turn = self.turn(slot, output, now);
        if !turn.may_leave_at_once(len) {
            return Ok(Fired::NotOpen);
        }
        let shown = turn.connection.rcv_adv;
        let outgoing = turn.prepared_header();
        let Some(payload) = post(turn.output, slot, &outgoing) else { return Ok(Fired::NotOpen) };
        if mode == Mode::Rehearsal {
            // What the peer was not shown is not to be believed shown.
            turn.connection.rcv_adv = shown;
            turn.rehearse_keeping(outgoing.seq, len, payload);
        } else {
            turn.keep_sent(&outgoing, len, payload);
            turn.arm();
        }
        Ok(Fired::Posted)
    }
}

impl<P: Payload, O: Output<P>> Turn<'_, P, O> {
    /// Whether a segment of `len` bytes may leave now, with nothing before it and nothing to say beside it.
    #[inline]
    fn may_leave_at_once(&mut self, len: u32) -> bool {
        let connection = &*self.connection;
        connection.is_plain_sender()
            && len <= u32::from(connection.snd_mss)
            && len <= connection.usable_window()
            && connection.send_len + len <= connection.options.send_buffer
            && self.shared.chunks.free_count() > self.shared.chunks_without_buffer
            && len <= self.cwnd_room()
    }

    #[inline]
    fn prepared_header(&mut self) -> Outgoing {
        let mut outgoing = self.header(self.connection.snd_nxt, TcpFlags::ACK | TcpFlags::PSH, 0);
        outgoing.ect = self.connection.has(flag::ECN);
        outgoing
    }

    /// A segment has left: its payload is data that was sent.
    #[inline]
    fn keep_sent(&mut self, outgoing: &Outgoing, len: u32, payload: P) {
        self.told(outgoing);
        let mut chunk = Chunk::new(outgoing.seq, len, Some(payload));
        chunk.flags = PUSH;
        let idx = self.connection.send.push_back(&mut self.shared.chunks, chunk);
        let idx = idx.map_err(|_| ()).expect("a free chunk was seen before the segment left");
        self.connection.send_len += len;
        self.has_left(idx);
    }

    /// A place in the store is taken and given back.
    fn rehearse_keeping(&mut self, seq: Seq, len: u32, payload: P) {
        let mut send = self.connection.send;
        if let Ok(idx) = send.push_back(&mut self.shared.chunks, Chunk::new(seq, len, Some(payload))) {
            send.remove(&mut self.shared.chunks, idx);
        }
    }
}

impl Connection {
    /// Whether new data may leave as soon as it is there, as far as that does not depend on how much it is, and in a segment of
    /// the usual form. What is rare goes the usual way, which knows of it: lost data, limited rates, Nagle's algorithm, reports of
    /// congestion, SACK blocks.
    #[inline]
    fn is_plain_sender(&self) -> bool {
        self.state.may_send()
            && self.next_unsent == NIL
            && self.lost_len == 0
            && self.flags & (flag::ECE_OWED | flag::CWR_OWED) == 0
            && self.options.pacing_rate == 0
            && self.is_on(switch::NODELAY)
            && self.out_of_order.head == NIL
            && self.dsack.is_empty()
    }

    pub(super) fn prospect(&self) -> Prospect {
        let zero = Seq(0);
        let timestamps = self.has(flag::TIMESTAMPS).then_some(Timestamps { value: 0, echo_reply: 0 });
        let outgoing =
            Outgoing { timestamps, ect: self.has(flag::ECN), ..self.bare(zero, zero, TcpFlags::ACK | TcpFlags::PSH) };
        Prospect {
            outgoing,
            mss: self.snd_mss.into(),
            window_max: self.snd_wnd_max as usize,
            send_buffer: self.options.send_buffer as usize,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a panic here is the report

    use super::super::tests::{End, connected, settle};
    use super::*;

    /// Fires `bytes`, as a way out that posts them would.
    fn fire(end: &mut End, bytes: &[u8]) -> Fired {
        let (id, now) = (end.id.unwrap(), end.now);
        let post = |sent: &mut super::super::tests::Sent, _, outgoing: &Outgoing| {
            sent.0.push((*outgoing, bytes.to_vec()));
            Some(bytes.to_vec())
        };
        end.tcp.fire((id, bytes.len() as u32), Mode::Live, now, &mut end.sent, post).unwrap()
    }

    #[test]
    fn fired_segments_arrive_in_order_between_sent_ones() {
        let (mut client, mut server) = connected();
        let (id, now) = (client.id.unwrap(), client.now);
        assert_eq!(fire(&mut client, b"one "), Fired::Posted);
        client.tcp.send(id, b"two ".to_vec(), now, &mut client.sent).unwrap();
        assert_eq!(fire(&mut client, b"three"), Fired::Posted);
        assert_eq!(client.tcp.chunks(), 3, "the machine keeps them until they are acknowledged");
        settle(&mut client, &mut server);
        assert_eq!((server.bytes, client.tcp.chunks()), (b"one two three".to_vec(), 0));
    }

    #[test]
    fn way_out_without_room_changes_nothing() {
        let (mut client, _) = connected();
        let (id, now, next) = (client.id.unwrap(), client.now, client.tcp.connections[0].snd_nxt);
        assert_eq!(client.tcp.fire((id, 3), Mode::Live, now, &mut client.sent, |_, _, _| None), Ok(Fired::NotOpen));
        assert_eq!((client.tcp.connections[0].snd_nxt, client.tcp.chunks()), (next, 0));
    }

    #[test]
    fn way_is_not_open_where_the_window_or_the_segment_is_too_small() {
        let (mut client, _) = connected();
        client.tcp.connections[0].snd_wnd = 5;
        assert_eq!(fire(&mut client, b"123456"), Fired::NotOpen);
        assert_eq!(fire(&mut client, b"12345"), Fired::Posted);
        client.tcp.connections[0].snd_wnd = 60_000;
        assert_eq!(fire(&mut client, &[0; 2000]), Fired::NotOpen, "longer than a segment");
        client.tcp.connections[0].options.send_buffer = 5;
        assert_eq!(fire(&mut client, b"6"), Fired::NotOpen, "the buffer is full");
    }

    #[test]
    fn rehearsal_leaves_everything_as_it_was() {
        let (mut client, mut server) = connected();
        let (id, now) = (client.id.unwrap(), client.now);
        let before = format!("{:?}", client.tcp.connections[0]);
        let rehearsed =
            client.tcp.fire((id, 3), Mode::Rehearsal, now, &mut client.sent, |_, _, _| Some(b"abc".to_vec()));
        assert_eq!((rehearsed, client.tcp.chunks()), (Ok(Fired::Posted), 0));
        assert_eq!(format!("{:?}", client.tcp.connections[0]), before);
        assert_eq!(fire(&mut client, b"real"), Fired::Posted);
        settle(&mut client, &mut server);
        assert_eq!(server.bytes, b"real");
    }

    #[test]
    fn name_of_a_dead_connection_fires_nothing() {
        let (mut client, _) = connected();
        let stale = ConnectionId { slot: 0, generation: 77 };
        let fired = client.tcp.fire((stale, 1), Mode::Live, client.now, &mut client.sent, |_, _, _| unreachable!());
        assert_eq!(fired, Err(SendError::NotFound));
        assert_eq!(client.tcp.prospect(stale).err(), Some(SendError::NotFound));
    }
}
