//! State that all channels of a feed share: the counters that another process reads while it runs,
//! and the buffer in which a packet from several mbufs is linearized.

use wirepath::counters::{Counter, Scope, Unit};
use wirepath::mem::Held;

use super::loops::LoopTally;

/// The longest payload of a UDP datagram over IPv4 (RFC 768, RFC 791: 65,535 bytes with both
/// headers).
const PAYLOAD_LEN_MAX: usize = 65_535 - 20 - 8;

pub(super) struct FeedCounters {
    pub(super) packets: Counter,
    pub(super) messages: Counter,
    pub(super) gaps: Counter,
    pub(super) missing: Counter,
    /// Orders, price levels and instruments that found no place in the books.
    pub(super) without_place: Counter,
    /// Messages of the books that could not be decoded.
    pub(super) lost_to_books: Counter,
    /// Requests for messages that were passed to the recovery thread.
    pub(super) requests: Counter,
    /// Packets that a server sent again.
    pub(super) answers: Counter,
    /// Packets of a server that are none of the feed's.
    pub(super) answers_refused: Counter,
    /// Requests that the ring to the thread had no room for.
    pub(super) commands_dropped: Counter,
    /// Snapshots of loops that were applied, or confirmed a book.
    snapshots: Counter,
    /// Snapshots that were too old, too far behind the live feed, or doubtful.
    snapshots_refused: Counter,
    /// Definitions of instruments of loops.
    definitions: Counter,
    /// Live messages that left the queue for snapshots because it was full.
    queue_overflowed: Counter,
    /// Packets that arrived in fragments and waited for their turn.
    gathered: Counter,
    room: Box<[u8]>,
}

impl FeedCounters {
    pub(super) fn new(scope: &Scope) -> Self {
        Self {
            packets: scope.counter("packets", Unit::Datagrams),
            messages: scope.counter("messages", Unit::Messages),
            gaps: scope.counter("gaps", Unit::Events),
            missing: scope.counter("missing", Unit::Messages),
            without_place: scope.counter("without_place", Unit::Events),
            lost_to_books: scope.counter("lost_to_books", Unit::Messages),
            requests: scope.counter("requests", Unit::Events),
            answers: scope.counter("answers", Unit::Datagrams),
            answers_refused: scope.counter("answers_refused", Unit::Datagrams),
            commands_dropped: scope.counter("commands_dropped", Unit::Events),
            snapshots: scope.counter("snapshots", Unit::Messages),
            snapshots_refused: scope.counter("snapshots_refused", Unit::Messages),
            definitions: scope.counter("definitions", Unit::Messages),
            queue_overflowed: scope.counter("queue_overflowed", Unit::Messages),
            gathered: scope.counter("gathered", Unit::Datagrams),
            room: vec![0; PAYLOAD_LEN_MAX].into_boxed_slice(),
        }
    }

    /// Adds what the loops of a channel brought since `before`.
    pub(super) fn count_loops(&self, before: &LoopTally, now: &LoopTally) {
        self.snapshots.add(now.snapshots.applied - before.snapshots.applied);
        self.snapshots_refused.add(now.snapshots.refused() - before.snapshots.refused());
        self.definitions.add(now.definitions - before.definitions);
        self.queue_overflowed.add(now.snapshots.overflowed - before.snapshots.overflowed);
    }

    /// The bytes of a packet that waited. A packet that arrived in fragments is copied into one
    /// piece.
    pub(super) fn bytes<'a>(&'a mut self, held: &'a Held) -> &'a [u8] {
        if let Some(bytes) = held.bytes() {
            return bytes;
        }
        self.gathered.inc();
        let mut len = 0;
        for segment in held.segments() {
            // A datagram is no longer than the buffer; a truncated one would not parse.
            let end = (len + segment.len()).min(self.room.len());
            self.room[len..end].copy_from_slice(&segment[..end - len]);
            len = end;
        }
        &self.room[..len]
    }
}
