//! The connections to shared ports, and the client of each: from the SYN+ACK that a client sends
//! until both ends have closed. The hash by which [`Dispatch`](super::dispatch::Dispatch) chose the
//! client chooses another one when clients come and go.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::dispatch::{ClientIdx, Recipients};
use super::packet::{Ends, Numbers, Packet};
use crate::wire::tcp::TcpFlags;

/// The most connections of a client: as many as the library of `wirepath run` has.
pub(super) const CONNECTIONS_MAX: usize = 16_384;
/// How long a connection is remembered after its end, because a lost last segment is repeated.
pub(super) const OVER: Duration = Duration::from_secs(5);
/// How long one is held that its client may hand on, as long as a client may do so.
const HELD: Duration = Duration::from_secs(30);
/// How long a connection without frames is remembered: longer than keepalive's two hours.
const SILENT: Duration = Duration::from_secs(3 * 3_600);
/// Stands for a client that is gone, and had sent its FIN or not taken the connection yet. Segments
/// of the peer are dropped: another client of the port would answer with a reset, and a peer that
/// has not read all data yet would lose it.
const GONE: ClientIdx = ClientIdx::MAX;
/// The most connections of clients that are gone.
const GONE_MAX: usize = 65_536;

/// All connections.
#[derive(Default)]
pub(super) struct ConnTrack {
    connections: HashMap<Ends, Connection>,
    /// The number of connections of each client.
    counts: HashMap<ClientIdx, usize>,
    /// One of them may await an acknowledgment of its client.
    awaits_ack: bool,
}

struct Connection {
    client: ClientIdx,
    last: Instant,
    ends: End,
    /// The client that had the connection before, and has handed it over.
    from: Option<ClientIdx>,
    /// The client has taken it: of one that was handed over it may not know yet.
    is_taken: bool,
    /// The client has given its port up before that. It may hand the connection on; until then the
    /// peer's segments are dropped, because another client would reset it.
    is_held: bool,
    /// The number of the byte that the peer sends next, as far as is known.
    next: Option<u32>,
    /// A segment has come that does not begin there.
    awaits_ack: bool,
    /// The end of such a one with a FIN.
    late_end: Option<u32>,
}

impl Connection {
    /// A connection that is open.
    fn open(client: ClientIdx, next: Option<u32>, now: Instant) -> Self {
        let (ends, awaits_ack) = (End::default(), next.is_none());
        Self { client, last: now, ends, from: None, is_taken: true, is_held: false, next, awaits_ack, late_end: None }
    }

    /// Notes what a received segment says. The client's TCP judges the segment; but one that does
    /// not belong to the connection must not end it here, because a connection that is over is
    /// forgotten, and then another client resets it. So what is received counts where it begins
    /// with the very byte that comes next (RFC 5961 3.2). Behind a loss the client says which one
    /// that is: it acknowledges nothing of a stranger's.
    fn hear(&mut self, flags: TcpFlags, numbers: &Numbers) {
        let Numbers { seq, len, .. } = *numbers;
        let has_fin = flags.contains(TcpFlags::FIN);
        let end = seq.wrapping_add(len).wrapping_add(has_fin.into());
        let Some(next) = self.next.filter(|next| *next == seq) else {
            let is_ahead = self.next.is_none_or(|next| (end.wrapping_sub(next) as i32) > 0);
            if is_ahead && !flags.contains(TcpFlags::RST) {
                self.awaits_ack = true;
                self.late_end = has_fin.then_some(end).or(self.late_end);
            }
            return;
        };
        if flags.contains(TcpFlags::RST) {
            self.ends = End::RESET;
            return;
        }
        self.ends.theirs |= has_fin;
        self.next = Some(next.wrapping_add(end.wrapping_sub(seq)));
    }

    /// The client acknowledges all before this number.
    fn acknowledge(&mut self, ack: u32) {
        if self.next.is_none_or(|next| (ack.wrapping_sub(next) as i32) > 0) {
            (self.next, self.awaits_ack) = (Some(ack), false);
            self.ends.theirs |= self.late_end == Some(ack);
        }
    }
}

/// Which ends have closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct End {
    ours: bool,
    theirs: bool,
}

impl End {
    const RESET: Self = Self { ours: true, theirs: true };

    fn is_over(self) -> bool {
        self == Self::RESET
    }
}

impl ConnTrack {
    /// Who gets a received segment; `None` where the port decides: of an unknown connection, and of
    /// one that begins anew.
    #[inline]
    pub(super) fn received(&mut self, packet: &Packet, now: Instant) -> Option<Recipients> {
        let connection = self.connections.get_mut(&packet.ends)?;
        if packet.flags.contains(TcpFlags::SYN) && connection.ends.is_over() {
            return None;
        }
        if connection.client == GONE || connection.is_held {
            return Some(Recipients::None);
        }
        connection.last = now;
        connection.hear(packet.flags, &packet.numbers);
        self.awaits_ack |= connection.awaits_ack;
        Some(Recipients::One(connection.client))
    }

    /// Whether segments without a flag matter that clients send.
    #[inline]
    pub(super) fn awaits_acks(&self) -> bool {
        self.awaits_ack
    }

    /// Notes what a segment that a client sends says of its connection: its end, and what has been
    /// received.
    #[inline]
    pub(super) fn sent(&mut self, client: ClientIdx, packet: &Packet) {
        let known = self.connections.get_mut(&packet.ends).filter(|connection| connection.client == client);
        let Some(connection) = known else { return };
        if packet.flags.contains(TcpFlags::ACK) {
            connection.acknowledge(packet.numbers.ack);
        }
        connection.ends.ours |= packet.flags.contains(TcpFlags::FIN);
        if packet.flags.contains(TcpFlags::RST) {
            connection.ends = End::RESET;
        }
    }

    /// A client has answered a SYN: the connection is its, unless it is another's. One that finds
    /// no room is not remembered, and the hash finds its client as long as none comes or goes.
    /// `next` is the number of the first byte that the peer sends. One that was handed over is
    /// answered anew, maybe before all of it has come from the client that had it.
    pub(super) fn begin(&mut self, client: ClientIdx, ends: Ends, next: u32, now: Instant) {
        if !self.is_anothers(client, &ends) && self.has_room(client) {
            let before = self.connections.get(&ends).filter(|before| before.client == client && !before.ends.is_over());
            let from = before.and_then(|before| before.from);
            self.insert(ends, Connection { from, ..Connection::open(client, Some(next), now) });
        }
    }

    /// A client has handed a connection over to another one.
    pub(super) fn give(&mut self, from: ClientIdx, client: ClientIdx, ends: &Ends, now: Instant) {
        let next = self.connections.get(ends).and_then(|before| before.next);
        self.awaits_ack |= next.is_none();
        let connection = Connection { from: Some(from), is_taken: false, ..Connection::open(client, next, now) };
        self.insert(*ends, connection);
    }

    fn insert(&mut self, ends: Ends, connection: Connection) {
        *self.counts.entry(connection.client).or_default() += 1;
        if let Some(before) = self.connections.insert(ends, connection) {
            self.uncount(before.client);
        }
    }

    fn uncount(&mut self, client: ClientIdx) {
        if let Some(count) = self.counts.get_mut(&client) {
            *count -= 1;
        }
    }

    /// Whether a connection that is not over belongs to another client.
    pub(super) fn is_anothers(&self, client: ClientIdx, ends: &Ends) -> bool {
        self.connections.get(ends).is_some_and(|one| one.client != client && !one.ends.is_over())
    }

    /// The client to which this one has handed a connection over.
    pub(super) fn handed_over_by(&self, from: ClientIdx, ends: &Ends) -> Option<ClientIdx> {
        self.connections
            .get(ends)
            .filter(|connection| connection.from == Some(from))
            .map(|connection| connection.client)
    }

    /// Whether a client may have another connection.
    pub(super) fn has_room(&self, client: ClientIdx) -> bool {
        self.count(client) < CONNECTIONS_MAX
    }

    /// How many a client has.
    pub(super) fn count(&self, client: ClientIdx) -> usize {
        self.counts.get(&client).copied().unwrap_or(0)
    }

    /// A client has given ports up: forgets its connections there, except that segments of those
    /// which it has ended are dropped for a while, and those that it has not taken are held.
    pub(super) fn orphan(&mut self, client: ClientIdx, now: Instant, which: impl Fn(&Ends) -> bool) {
        let (mut orphans, mut forgotten) = (self.count(GONE), 0);
        self.connections.retain(|ends, connection| {
            if connection.client != client || !which(ends) {
                return true;
            }
            if !connection.is_taken {
                (connection.is_held, connection.last) = (true, now);
                return true;
            }
            forgotten += 1;
            let is_kept = connection.ends.ours && orphans < GONE_MAX;
            if is_kept {
                orphans += 1;
                *connection = Connection { ends: End::RESET, ..Connection::open(GONE, None, now) };
            }
            is_kept
        });
        self.counts.insert(GONE, orphans);
        if let Some(count) = self.counts.get_mut(&client) {
            *count -= forgotten;
        }
    }

    /// Removes a client, whose index may become another client's. Segments of connections that it
    /// had not taken are dropped for a while.
    pub(super) fn forget(&mut self, client: ClientIdx, now: Instant) {
        self.connections.values_mut().for_each(|one| _ = one.from.take_if(|from| *from == client));
        let its = self.connections.values_mut().filter(|one| one.client == client && !one.is_taken);
        its.for_each(|one| (one.is_taken, one.ends.ours) = (true, true));
        self.orphan(client, now, |_| true);
        self.counts.remove(&client);
    }

    /// Forgets connections that have ended, and silent ones. Looks at each.
    pub(super) fn sweep(&mut self, now: Instant) {
        let counts = &mut self.counts;
        self.connections.retain(|_, connection| {
            let quiet = now.duration_since(connection.last);
            let limit = match (connection.ends.is_over(), connection.is_held) {
                (true, _) => OVER,
                (false, true) => HELD,
                (false, false) => SILENT,
            };
            let stays = quiet < limit;
            if !stays && let Some(count) = counts.get_mut(&connection.client) {
                *count -= 1;
            }
            stays
        });
        self.awaits_ack = self.connections.values().any(|connection| connection.awaits_ack);
    }

    /// How many there are.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.connections.len()
    }
}
