//! Data that leaves the moment it is handed over: nothing waits before it, all windows have room, and its segment says nothing beside the
//! usual. So goes nearly every order. All other data waits in the queue, if only for a moment, and leaves by `data`.

use super::super::connection::{Connection, flag, switch};
use super::super::machine::Turn;
use super::super::payload::{Output, Payload, Unsent};
use super::super::queue::{Chunk, SENT};
use super::super::segment::Outgoing;
use crate::proto::slab::NIL;
use crate::wire::tcp::TcpFlags;

impl<P: Payload, O: Output<P>> Turn<'_, P, O> {
    /// Whether a segment of `len` bytes may leave now, with nothing before it and nothing to say beside it.
    #[inline(always)]
    pub(crate) fn may_leave_at_once(&mut self, len: usize) -> bool {
        let connection = &*self.connection;
        (1..=usize::from(connection.snd_mss)).contains(&len)
            && self.has_chunk()
            && connection.is_plain_sender()
            && len as u32 <= connection.open_window()
            && connection.send_len + len as u32 <= connection.options.send_buffer
            && len as u32 <= self.cwnd_room()
    }

    /// The header of such a segment.
    #[inline(always)]
    pub(crate) fn data_header(&mut self) -> Outgoing {
        let connection = &mut *self.connection;
        let outgoing = connection.usual(connection.snd_nxt, TcpFlags::ACK | TcpFlags::PSH, self.now);
        Outgoing { ect: connection.has(flag::ECN), ..outgoing }
    }

    /// Sends data that may leave at once; a chunk for it must be free. Where the way out has no room it waits. `ends_call` is `PUSH` where
    /// what the app handed over ends with it.
    #[inline(always)]
    pub(crate) fn send_at_once(&mut self, mut payload: P, ends_call: u8) {
        let mut outgoing = self.data_header();
        if ends_call == 0 {
            outgoing.flags = TcpFlags::ACK;
        }
        if let Err(unsent) = self.output.send(Some(self.slot), &outgoing, Some(&mut payload)) {
            return self.aside().send_soon(payload, ends_call, unsent);
        }
        self.keep_sent(payload, ends_call);
    }

    #[cold]
    fn send_soon(&mut self, payload: P, ends_call: u8, unsent: Unsent) {
        let queued = self.queue(payload, ends_call).map_err(|_| ());
        queued.expect("a free chunk was seen before");
        match unsent {
            Unsent::Busy => self.try_again(),
            Unsent::NoWay => {
                self.miss_way();
                self.watch_silence();
                self.arm();
            }
        }
    }

    /// Such a segment has left: its payload is data that was sent.
    #[inline(always)]
    pub(crate) fn keep_sent(&mut self, payload: P, ends_call: u8) {
        self.told_ack(self.connection.rcv_nxt);
        let (connection, chunks) = (&mut *self.connection, &mut self.shared.chunks);
        let (seq, len, sent_at) = (connection.snd_nxt, payload.len() as u32, self.now);
        let chunk = Chunk { flags: ends_call | SENT, sent_at, ..Chunk::new(seq, len, Some(payload)) };
        connection.send.push_sent(&mut connection.in_flight, chunks, chunk);
        connection.send_len += len;
        self.pass(len, seq + len);
        self.on_its_way(len, false);
        self.arm_for_data();
        if self.connection.has(flag::IN_FLUSH) {
            self.aside().skip_flush();
        }
    }

    /// The app's answer has carried the acknowledgment that would have waited for the end of the burst. Where nothing else waits, and the
    /// connection is the last in the list, as it is with many of them, it needs not be looked at once more.
    #[cold]
    fn skip_flush(&mut self) {
        if !self.has_business() && self.shared.flush.take_back(self.slot) {
            self.connection.clear(flag::IN_FLUSH);
        }
    }
}

impl Connection {
    /// Whether new data may leave as soon as it is there, as far as that does not depend on how much it is, and in a segment of
    /// the usual form. What is rare goes the usual way, which knows of it: data that waits or is lost, numbers that are somebody else's,
    /// limited rates, Nagle's algorithm, reports of congestion, SACK blocks.
    #[inline(always)]
    fn is_plain_sender(&self) -> bool {
        self.state.may_send()
            && self.next_unsent == NIL
            && self.lost_len == 0
            && self.flags & (flag::ECE_OWED | flag::CWR_OWED | flag::DELEGATED) == 0
            && self.options.pacing_rate == 0
            && self.is_on(switch::NODELAY)
            && !self.owes_sacks()
    }
}
