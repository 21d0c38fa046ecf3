//! Segments that the caller frames itself, so that an order takes the fewest instructions: a
//! template that is complete except for the numbers, or a message that leaves as soon as it is
//! written.
//!
//! ```text
//!  send_permit ─▶ numbers ─▶ the caller writes them into the frame and posts it ─▶ commit: sent
//!   └─▶ None: the bytes go through the send queue
//! ```
//!
//! `send_permit` returns a permit where all bytes may leave now and no bytes are queued before them
//! (`transmit::fast`). It changes only state that time alone would have changed, so a caller that
//! cannot post the frame just drops the permit.

use crate::proto::slab::NIL;
use crate::proto::tcp::event::{ConnectionId, SendError};
use crate::proto::tcp::machine::{Context, Shared, Tcp};
use crate::proto::tcp::output::interface::NoOutput;
use crate::proto::tcp::payload::Payload;
use crate::proto::tcp::segment::Outgoing;
use crate::proto::tcp::seq::Seq;
use crate::proto::tcp::state::connection::{Connection, InputFlags};
use crate::proto::tcp::state::queue::{Chunk, PUSH};
use crate::time::Instant;
use crate::wire::tcp::{TcpFlags, Timestamps};

/// Permission to send one segment now. The connection is unchanged until [`commit`](Self::commit).
pub struct SendPermit<'a, P> {
    connection: &'a mut Connection,
    slot: u32,
    shared: &'a mut Shared<P>,
    now: Instant,
}

/// The header fields that are known only when a segment leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    /// SEG.SEQ.
    pub seq: Seq,
    /// SEG.ACK.
    pub ack: Seq,
    /// SEG.WND as it is sent: scaled.
    pub wnd: u16,
    /// The timestamps option, where the connection has it.
    pub timestamps: Option<Timestamps>,
}

/// A connection right after its segment has left.
pub struct Committed<'a>(&'a Connection);

/// The header of a connection's next segments, and the limits of their payload.
#[derive(Clone, Copy, Debug)]
pub struct HeaderTemplate {
    /// The header with all numbers zero. Timestamps are there where the connection has them.
    pub outgoing: Outgoing,
    /// The most bytes of payload in a segment.
    pub mss: usize,
    /// The largest window that the peer ever showed.
    pub window_max: usize,
    /// The most bytes that may wait, unsent or unacknowledged.
    pub send_buffer: usize,
}

impl<P: Payload> Tcp<P> {
    /// The header that all of a connection's next segments share. The handshake must be done.
    pub fn header_template(&self, id: ConnectionId) -> Result<HeaderTemplate, SendError> {
        let connection = &self.connections[self.find(id).ok_or(SendError::NotFound)?];
        if !connection.state.is_synchronized() {
            return Err(SendError::NotConnected);
        }
        if !connection.state.may_send() {
            return Err(SendError::Closed);
        }
        Ok(connection.header_template())
    }

    /// Whether bytes of the connection wait that were never sent.
    pub fn has_unsent(&self, id: ConnectionId) -> bool {
        self.find(id).is_some_and(|slot| self.connections[slot].send.next_unsent != NIL)
    }

    /// Permission to send a segment of `len` bytes now. `None` where it has to go through the send
    /// queue, or may not be sent at all.
    #[inline(always)]
    pub fn send_permit(&mut self, id: ConnectionId, len: usize, now: Instant) -> Option<SendPermit<'_, P>> {
        let Self { connections, shared, .. } = self;
        // A connection that the app has closed takes the general path.
        let connection = connections.get_mut(id.slot).filter(|connection| connection.generation == id.generation)?;
        let slot = id.slot;
        let mut cx = Context { connection: &mut *connection, slot, shared: &mut *shared, output: &mut NoOutput, now };
        if !cx.may_send_fast(len) {
            return None;
        }
        Some(SendPermit { connection, slot, shared, now })
    }
}

impl<'a, P: Payload> SendPermit<'a, P> {
    /// The connection's place.
    #[inline(always)]
    pub fn slot(&self) -> u32 {
        self.slot
    }

    /// The numbers for the frame. Each call computes them again. Call it where the header is
    /// written, so that no register has to hold them until then.
    #[inline(always)]
    pub fn numbers(&self) -> Numbers {
        let connection = &*self.connection;
        Numbers {
            seq: connection.snd.nxt,
            ack: connection.rcv.nxt,
            wnd: connection.fast_window(),
            timestamps: self.timestamps(),
        }
    }

    /// The timestamps alone.
    #[inline(always)]
    fn timestamps(&self) -> Option<Timestamps> {
        self.connection.timestamps(self.now)
    }

    /// Whether the segment has the timestamps option.
    #[inline(always)]
    pub fn has_timestamps(&self) -> bool {
        self.connection.has(InputFlags::TIMESTAMPS)
    }

    /// Its content, for a segment that has it.
    #[inline(always)]
    pub fn current_timestamps(&self) -> Timestamps {
        self.connection.current_timestamps(self.now)
    }

    /// The same as a whole header, for a segment that is not prepared.
    #[inline(always)]
    pub fn outgoing(&self) -> Outgoing {
        let (connection, Numbers { seq, ack, wnd, timestamps }) = (&*self.connection, self.numbers());
        let bare = connection.bare(seq, ack, TcpFlags::ACK | TcpFlags::PSH);
        Outgoing { wnd, timestamps, ect: connection.has(InputFlags::ECN), ..bare }
    }

    /// The segment has left. The machine keeps its payload until it is acknowledged.
    #[inline(always)]
    pub fn commit(self, payload: P) -> Committed<'a> {
        let Self { connection, slot, shared, now } = self;
        connection.note_fast_advertised();
        Context { connection: &mut *connection, slot, shared, output: &mut NoOutput, now }.keep_sent(payload, PUSH);
        Committed(connection)
    }

    /// Accesses every cache line that [`commit`](Self::commit) does without changing it, so that
    /// the next commit finds the lines in the cache.
    pub fn dry_run(self, payload: P) {
        let (mut send, chunks) = (self.connection.send.queue, &mut self.shared.chunks);
        let chunk = Chunk::new(self.connection.snd.nxt, payload.len() as u32, Some(payload));
        if let Ok(idx) = send.push_back(chunks, chunk) {
            send.remove(chunks, idx);
        }
    }
}

impl Committed<'_> {
    /// SND.NXT.
    #[inline(always)]
    pub fn snd_nxt(&self) -> Seq {
        self.0.snd.nxt
    }

    /// RCV.NXT, which the segment has acknowledged.
    #[inline(always)]
    pub fn rcv_nxt(&self) -> Seq {
        self.0.rcv.nxt
    }
}

impl Connection {
    pub(crate) fn header_template(&self) -> HeaderTemplate {
        let zero = Seq(0);
        let timestamps = self.has(InputFlags::TIMESTAMPS).then_some(Timestamps { value: 0, echo_reply: 0 });
        let outgoing = Outgoing {
            timestamps,
            ect: self.has(InputFlags::ECN),
            ..self.bare(zero, zero, TcpFlags::ACK | TcpFlags::PSH)
        };
        HeaderTemplate {
            outgoing,
            mss: self.snd.mss.into(),
            window_max: self.rare_snd.wnd_max as usize,
            send_buffer: self.options.send_buffer as usize,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a panic here is the report

    use super::*;
    use crate::proto::tcp::state::connection::OutputFlags;
    use crate::proto::tcp::tests::{End, connected, settle};

    /// Fires `bytes`, as an output that posts them would; returns whether they left.
    fn fire(end: &mut End, bytes: &[u8]) -> bool {
        let (id, now) = (end.id.unwrap(), end.now);
        let header_template = end.tcp.header_template(id).unwrap();
        let Some(permit) = end.tcp.send_permit(id, bytes.len(), now) else { return false };
        let Numbers { seq, ack, wnd, timestamps } = permit.numbers();
        end.sent.0.push((Outgoing { seq, ack, wnd, timestamps, ..header_template.outgoing }, bytes.to_vec()));
        permit.commit(bytes.to_vec());
        true
    }

    /// Changes a connection's field that only a context can change.
    fn change(end: &mut End, change: impl FnOnce(&mut Connection)) {
        let now = end.now;
        change(end.tcp.context(0, &mut NoOutput, now).connection);
    }

    #[test]
    fn fired_segments_arrive_in_order_between_sent_ones() {
        let (mut client, mut server) = connected();
        let (id, now) = (client.id.unwrap(), client.now);
        assert!(fire(&mut client, b"one "));
        client.tcp.send(id, b"two ".to_vec(), now, &mut client.sent).unwrap();
        assert!(fire(&mut client, b"three"));
        assert_eq!(client.tcp.chunks(), 3, "the machine keeps them until they are acknowledged");
        settle(&mut client, &mut server);
        assert_eq!((server.bytes, client.tcp.chunks()), (b"one two three".to_vec(), 0));
    }

    #[test]
    fn aim_that_is_not_fired_changes_nothing() {
        let (mut client, _) = connected();
        let (id, now) = (client.id.unwrap(), client.now);
        // Except that the room for an immediate send is known now.
        assert!(client.tcp.send_permit(id, 3, now).is_some());
        let before = format!("{:?}", client.tcp.connections[0]);
        assert!(client.tcp.send_permit(id, 3, now).is_some());
        assert_eq!((format!("{:?}", client.tcp.connections[0]), client.tcp.chunks()), (before, 0));
    }

    #[test]
    fn way_is_not_open_where_the_window_or_the_segment_is_too_small() {
        let (mut client, _) = connected();
        change(&mut client, |connection| connection.snd.wnd = 5);
        assert!(!fire(&mut client, b"123456"));
        assert!(fire(&mut client, b"12345"));
        assert!(!fire(&mut client, b"6"), "the window is used up");
        change(&mut client, |connection| connection.snd.wnd = 60_000);
        assert!(!fire(&mut client, &[0; 2000]), "longer than a segment");
        change(&mut client, |connection| connection.options.send_buffer = 5);
        assert!(!fire(&mut client, b"6"), "the buffer is full");
    }

    #[test]
    fn way_is_not_open_where_the_network_bears_no_more() {
        let (mut client, mut server) = connected();
        change(&mut client, |connection| connection.congestion.cwnd = 8);
        assert!(fire(&mut client, b"12345"));
        assert!(!fire(&mut client, b"6789"), "cwnd is full");
        assert!(fire(&mut client, b"678"));
        settle(&mut client, &mut server);
        assert!(fire(&mut client, b"9"), "acknowledgments make room");
    }

    #[test]
    fn way_is_not_open_where_something_goes_before() {
        let (mut client, _) = connected();
        let (id, now) = (client.id.unwrap(), client.now);
        change(&mut client, |connection| connection.snd.wnd = 4);
        client.tcp.send(id, b"waits".to_vec(), now, &mut client.sent).unwrap();
        change(&mut client, |connection| connection.snd.wnd = 60_000);
        assert!(!fire(&mut client, b"order"), "data waits before it");
        client.tcp.delegate(id, 3, now, &mut client.sent).unwrap_err();
        client.tcp.tick(now, &mut client.sent);
        change(&mut client, |connection| connection.set(OutputFlags::DELEGATED));
        assert!(!fire(&mut client, b"order"), "the numbers are somebody else's");
    }

    #[test]
    fn fired_segment_that_is_lost_is_sent_again() {
        let (mut client, mut server) = connected();
        assert!(fire(&mut client, b"order"));
        client.sent.0.clear();
        assert!(fire(&mut client, b" again"));
        settle(&mut client, &mut server);
        for _ in 0..10 {
            let later = client.now + crate::time::Duration::from_millis(300);
            (client.now, server.now) = (later, later);
            client.tcp.tick(later, &mut client.sent);
            settle(&mut client, &mut server);
        }
        assert_eq!((server.bytes, client.tcp.chunks()), (b"order again".to_vec(), 0));
    }

    #[test]
    fn rehearsal_leaves_everything_as_it_was() {
        let (mut client, mut server) = connected();
        let (id, now) = (client.id.unwrap(), client.now);
        assert!(client.tcp.send_permit(id, 3, now).is_some());
        let before = format!("{:?}", client.tcp.connections[0]);
        client.tcp.send_permit(id, 3, now).unwrap().dry_run(b"abc".to_vec());
        assert_eq!((format!("{:?}", client.tcp.connections[0]), client.tcp.chunks()), (before, 0));
        assert!(fire(&mut client, b"real"));
        settle(&mut client, &mut server);
        assert_eq!(server.bytes, b"real");
    }

    #[test]
    fn name_of_a_dead_connection_fires_nothing() {
        let (mut client, _) = connected();
        let stale = ConnectionId { slot: 0, generation: 77 };
        assert!(client.tcp.send_permit(stale, 1, client.now).is_none());
        assert_eq!(client.tcp.header_template(stale).err(), Some(SendError::NotFound));
    }
}
