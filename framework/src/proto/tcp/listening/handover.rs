//! A connection that its listener has accepted, and no app has used, leaves the machine without a
//! segment, for another machine that listens at the same port. There it begins as if its peer had
//! called it: the peer's SYN comes again, and our SYN has the number that it had.

use core::net::SocketAddrV4;

use crate::proto::Flow;
use crate::proto::tcp::event::{ConnectionId, ListenerId};
use crate::proto::tcp::machine::Tcp;
use crate::proto::tcp::payload::Payload;
use crate::proto::tcp::segment::SynOptions;
use crate::proto::tcp::seq::Seq;
use crate::proto::tcp::state::connection::{AppFlags, Connection, InputFlags, State};
use crate::time::{Duration, Instant};

/// Bytes of the timestamps option, which the segment size is less by.
const TIMESTAMPS_LEN: u16 = 12;
/// How long segments of a connection that has left are dropped in silence: some are in our ring
/// already, and a reset would end the connection. On a machine whose cores are busy the worker may
/// see its ring seconds later.
const SILENCE: Duration = Duration::from_secs(10);

/// How long data that a connection had at its last owner may come behind its beginning here. All of
/// it waits in one ring, but segments of the peer may overtake it.
const COMPLETE_WITHIN: Duration = Duration::from_secs(1);

/// The state that the next owner of a connection needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departed {
    /// Its ends.
    pub flow: Flow,
    /// The number of our SYN.
    pub iss: Seq,
    /// The number that the peer sends next; its FIN does not count.
    pub next: Seq,
    /// The peer's window, as its segments have it.
    pub wnd: u16,
    /// The peer's last timestamp, and ours now.
    pub timestamps: Option<(u32, u32)>,
    /// The options of the peer's SYN.
    pub syn: SynOptions,
    /// Both sides mark congestion (RFC 3168).
    pub ecn: bool,
    /// The peer has sent its FIN.
    pub is_peer_closed: bool,
    /// The peer has acknowledged our SYN.
    pub is_established: bool,
}

/// A connection that begins here, and was another machine's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arriving {
    pub(crate) iss: Seq,
    pub(crate) timestamp: u32,
    /// The number that the peer sends next: it has the acknowledgment of all before.
    pub(crate) next: Seq,
}

/// Flows of connections that have left, and until when their segments are dropped.
#[derive(Debug, Default)]
pub(crate) struct Handovers {
    departed: Vec<(Flow, Instant)>,
    /// Where listeners were that have handed their handshakes over, and until when SYNs to them are
    /// dropped.
    left: Vec<(SocketAddrV4, Instant)>,
    arriving: Option<Arriving>,
    /// Connections that have begun here, and the numbers that their peers send next, until they
    /// have been looked at.
    incomplete: Vec<(ConnectionId, Seq)>,
}

impl Handovers {
    pub(crate) fn is_arriving(&self) -> bool {
        self.arriving.is_some()
    }

    pub(crate) fn take_arriving(&mut self) -> Option<Arriving> {
        self.arriving.take()
    }

    /// When a connection is looked at whose data may have been lost on the way here: its peer knows
    /// that it has arrived, and does not send it again.
    pub(crate) fn complete_by(&self, id: ConnectionId, now: Instant) -> Option<Instant> {
        self.incomplete.iter().any(|(other, _)| *other == id).then_some(now + COMPLETE_WITHIN)
    }

    /// The number that the peer of such a connection sends next, once.
    pub(crate) fn take_incomplete(&mut self, id: ConnectionId) -> Option<Seq> {
        let place = self.incomplete.iter().position(|(other, _)| *other == id)?;
        Some(self.incomplete.swap_remove(place).1)
    }

    /// Whether this machine has stopped listening at a local end a moment ago, where others still
    /// do: the peer sends its SYN again, to one of them.
    pub(crate) fn listens_elsewhere(&self, local: SocketAddrV4, now: Instant) -> bool {
        let is_it =
            |at: &SocketAddrV4| at.port() == local.port() && (at.ip().is_unspecified() || at.ip() == local.ip());
        self.arriving.is_none() && self.left.iter().any(|(at, until)| is_it(at) && now < *until)
    }

    /// Whether a connection of this flow has left a moment ago, and does not come back.
    pub(crate) fn has_left(&mut self, flow: Flow, now: Instant) -> bool {
        if self.arriving.is_some() {
            self.departed.retain(|(departed, _)| *departed != flow);
        }
        self.departed.iter().any(|(departed, until)| *departed == flow && now < *until)
    }
}

impl<P: Payload> Tcp<P> {
    /// The SYN that is received next is that of a connection which was another machine's, with this
    /// number of our SYN, this timestamp of ours, and the number that the peer sends next; `None`:
    /// no longer. A connection whose data before that number is not there a second later is reset.
    pub fn expect_arriving(&mut self, numbers: Option<(Seq, u32, Seq)>) {
        self.shared.handovers.arriving = numbers.map(|(iss, timestamp, next)| Arriving { iss, timestamp, next });
    }

    /// A connection has begun here. Forgets those that have ended.
    pub(in crate::proto::tcp) fn note_incomplete(&mut self, slot: u32, next: Seq) {
        let Self { connections, shared, .. } = self;
        let incomplete = &mut shared.handovers.incomplete;
        incomplete.retain(|(id, _)| connections.get(id.slot).is_some_and(|other| other.generation == id.generation));
        incomplete.push((ConnectionId { slot, generation: connections[slot].generation }, next));
    }

    /// Removes a connection for which nothing was sent and whose data was all delivered. Its peer
    /// is sent nothing. `None` where the connection is in use: it stays.
    pub fn hand_over(&mut self, id: ConnectionId, now: Instant) -> Option<Departed> {
        let connection = self.connections.get(id.slot).filter(|connection| connection.generation == id.generation)?;
        let is_fresh = matches!(connection.state, State::Established | State::CloseWait)
            && connection.snd.una == connection.snd.nxt
            && connection.snd.nxt == connection.rare_snd.iss + 1
            && connection.send.len == 0
            && !connection.has(AppFlags::FIN_QUEUED)
            && connection.rcv.in_order_len == 0;
        is_fresh.then(|| self.depart(id.slot, now))
    }

    /// A listener is about to be closed that another process has, or will open again: SYNs that
    /// come for it yet are dropped in silence for ten seconds, because their peers send them again.
    pub fn silence_syns(&mut self, listener: ListenerId, now: Instant) {
        if let Some(local) = self.listeners.get_mut(listener).map(|listener| listener.local) {
            let left = &mut self.shared.handovers.left;
            left.retain(|(at, until)| now < *until && *at != local);
            left.push((local, now + SILENCE));
        }
    }

    /// The same, and its open handshakes leave as connections do. Scans all connections.
    pub fn hand_over_handshakes(&mut self, listener: ListenerId, now: Instant) -> Vec<Departed> {
        self.silence_syns(listener, now);
        let open = self.handshakes_of(listener);
        open.into_iter().map(|slot| self.depart(slot, now)).collect()
    }

    /// Gives the open handshakes of a listener to another one of this machine. Scans all
    /// connections.
    pub fn move_handshakes(&mut self, from: ListenerId, to: ListenerId) {
        if self.listeners.get_mut(to).is_none() {
            return;
        }
        for slot in self.handshakes_of(from) {
            self.count_embryonic_out(slot);
            self.connections[slot].accepted_by.id = to;
            if let Some(listener) = self.listeners.get_mut(to) {
                listener.embryonic += 1;
            }
        }
    }

    fn handshakes_of(&self, listener: ListenerId) -> Vec<u32> {
        let is_its =
            |connection: &Connection| connection.accepted_by.id == listener && connection.has(AppFlags::EMBRYONIC);
        let slots = 0..self.connections.capacity() as u32;
        slots.filter(|slot| self.connections.get(*slot).is_some_and(is_its)).collect()
    }

    /// Whether a segment of this flow has a connection or a listener here.
    pub fn takes(&self, flow: Flow) -> bool {
        self.flows.get(flow.into()).is_some() || self.listeners.choose(flow).is_some()
    }

    /// A connection of this flow is another machine's: its late segments are dropped in silence.
    pub fn note_departed(&mut self, flow: Flow, now: Instant) {
        let flows = &mut self.shared.handovers.departed;
        flows.retain(|(other, until)| now < *until && *other != flow);
        flows.push((flow, now + SILENCE));
    }

    fn depart(&mut self, slot: u32, now: Instant) -> Departed {
        let connection = &self.connections[slot];
        let (has_stamps, is_scaled) =
            (connection.has(InputFlags::TIMESTAMPS), connection.has(InputFlags::WINDOW_SCALE));
        let is_peer_closed = connection.state == State::CloseWait;
        let is_established = connection.state != State::SynReceived;
        // The window of a SYN is not scaled (RFC 7323 2.2).
        let shift = if is_established { connection.snd.wscale } else { 0 };
        let departed = Departed {
            flow: connection.flow,
            iss: connection.rare_snd.iss,
            next: connection.rcv.nxt - u32::from(is_peer_closed),
            wnd: (connection.snd.wnd >> shift).min(65_535) as u16,
            timestamps: has_stamps.then(|| (connection.ts.recent, connection.ts.now(now))),
            syn: SynOptions {
                mss: Some(connection.path.mss_max + if has_stamps { TIMESTAMPS_LEN } else { 0 }),
                window_scale: is_scaled.then_some(connection.snd.wscale),
                sack_permitted: connection.has(InputFlags::SACK),
            },
            ecn: connection.has(InputFlags::ECN),
            is_peer_closed,
            is_established,
        };
        self.release(slot);
        self.note_departed(departed.flow, now);
        departed
    }
}
