//! The connections of a live host: the data that each sends, and the comparison of received data
//! with the peer's.
//!
//! Both ends send the same endless [`stream`], so that each end compares the received bytes one by
//! one, however they are cut.

use std::collections::HashMap;
use std::fmt;
use std::sync::LazyLock;

use wirepath::pipeline::tcp::{CloseReason, ConnectionId, ListenerId, SendError, TcpData, TcpEvent, TcpInfo};
use wirepath::pipeline::{App, Cx};

/// A prime, so that no other length fits into it: bytes that come a segment or a buffer too early
/// or too late differ.
const PERIOD: usize = 1_048_573;
/// No piece of the stream is longer.
pub const PIECE_LEN_MAX: usize = 1 << 16;

static STREAM: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let words = (1..=(PERIOD + PIECE_LEN_MAX).div_ceil(8) as u64).map(|word| word.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut bytes: Vec<u8> = words.flat_map(|word| (word ^ word >> 29).to_le_bytes()).collect();
    bytes.copy_within(..PIECE_LEN_MAX, PERIOD);
    bytes.truncate(PERIOD + PIECE_LEN_MAX);
    bytes
});

/// `len` bytes of the stream that both ends send, from `position` on; [`PIECE_LEN_MAX`] at most.
pub fn stream(position: u64, len: usize) -> &'static [u8] {
    let start = (position % PERIOD as u64) as usize;
    &STREAM[start..start + len]
}

/// Whether `bytes` are those of the stream at `position`.
pub fn is_stream(position: u64, bytes: &[u8]) -> bool {
    let pieces = bytes.chunks(PIECE_LEN_MAX);
    let starts = (position..).step_by(PIECE_LEN_MAX);
    pieces.zip(starts).all(|(piece, start)| piece == stream(start, piece.len()))
}

/// The behavior of our end of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Bytes of the stream to send.
    pub send: u64,
    /// Whether our side stays open when they are sent.
    pub stays: bool,
    /// Whether no data is read until the test says so.
    pub paused: bool,
}

impl Plan {
    /// Sends so many bytes, and then no more.
    pub const fn send(send: u64) -> Self {
        Self { send, stays: false, paused: false }
    }

    /// Sends no data, and closes only at the end of the test.
    pub const STAY: Self = Self { send: 0, stays: true, paused: false };
}

/// One connection and its outcome.
#[derive(Clone, Debug, Default)]
pub struct End {
    /// Its intended behavior.
    pub plan: Plan,
    /// Bytes handed over.
    pub sent: u64,
    /// Bytes that came.
    pub received: u64,
    /// The first of them that is not of the stream.
    pub wrong_at: Option<u64>,
    /// The handshake is done.
    pub is_connected: bool,
    /// The peer sends no more.
    pub peer_closed: bool,
    /// How it ended.
    pub closed: Option<CloseReason>,
    /// Its state when the peer had sent all data, or when it was last read.
    pub info: Option<TcpInfo>,
    is_shut: bool,
}

/// A server of the test: called with each piece of data; returns how much more of the stream to
/// send, if any.
pub type Server = Box<dyn FnMut(ConnectionId, &[u8], &mut Cx<'_>) -> Option<Plan> + Send>;

/// All connections of a host, also those that are gone.
#[derive(Default)]
pub struct Traffic {
    /// By name.
    pub ends: HashMap<ConnectionId, End>,
    /// The connections that a listener accepted, in order.
    pub accepted: Vec<ConnectionId>,
    /// The behavior of accepted connections.
    pub plan: Plan,
    /// Takes the data instead.
    pub server: Option<Server>,
    /// To be asked again: their end found no place.
    starved: Vec<ConnectionId>,
}

impl Traffic {
    /// Follows a connection that was begun.
    pub fn begin(&mut self, id: ConnectionId, plan: Plan) {
        self.ends.insert(id, End { plan, ..End::default() });
    }

    /// Passes as much data to the connection as there is room for.
    pub fn pump(&mut self, id: ConnectionId, cx: &mut Cx<'_>) {
        let Some(end) = self.ends.get_mut(&id) else { return };
        while end.sent < end.plan.send {
            let len = (end.plan.send - end.sent).min(PIECE_LEN_MAX as u64) as usize;
            match cx.tcp().send(id, stream(end.sent, len)) {
                Ok(count) => end.sent += count as u64,
                // `Writable` or `Connected` says when.
                Err(SendError::Full | SendError::PoolEmpty | SendError::NoChunk | SendError::NotConnected) => return,
                // The connection has ended, and an event reports why.
                Err(_) => return,
            }
        }
        if !end.plan.stays && !end.is_shut {
            match cx.tcp().shutdown(id) {
                Ok(()) => end.is_shut = true,
                Err(_) => self.starved.push(id),
            }
        }
    }

    /// Connections that could not close try again.
    pub fn tick(&mut self, cx: &mut Cx<'_>) {
        for id in std::mem::take(&mut self.starved) {
            self.pump(id, cx);
        }
    }

    fn is_served(&self) -> bool {
        self.server.is_some()
    }
}

impl App for Traffic {
    fn on_tcp_event(&mut self, id: ConnectionId, event: TcpEvent, cx: &mut Cx<'_>) {
        match event {
            TcpEvent::Connected { listener } => self.connected(id, listener, cx),
            TcpEvent::Writable => self.pump(id, cx),
            TcpEvent::PeerClosed => {
                let info = cx.tcp().info(id);
                if let Some(end) = self.ends.get_mut(&id) {
                    (end.peer_closed, end.info) = (true, info);
                }
                if self.is_served() {
                    // One that is gone already needs no end.
                    let _ = cx.tcp().shutdown(id);
                }
            }
            TcpEvent::Closed(reason) => {
                self.ends.entry(id).or_default().closed = Some(reason);
            }
            _ => (),
        }
    }

    fn on_tcp_data(&mut self, data: &TcpData<'_>, cx: &mut Cx<'_>) {
        if let Some(server) = &mut self.server {
            if let Some(plan) = server(data.connection, data.payload, cx) {
                self.begin(data.connection, plan);
                self.pump(data.connection, cx);
            }
            return;
        }
        let end = self.ends.entry(data.connection).or_default();
        if end.wrong_at.is_none() && !is_stream(end.received, data.payload) {
            end.wrong_at = Some(end.received);
        }
        end.received += data.payload.len() as u64;
    }
}

impl Traffic {
    fn connected(&mut self, id: ConnectionId, listener: Option<ListenerId>, cx: &mut Cx<'_>) {
        if listener.is_some() {
            self.accepted.push(id);
            if !self.is_served() {
                self.begin(id, self.plan);
            }
        }
        let Some(end) = self.ends.get_mut(&id) else { return };
        end.is_connected = true;
        if end.plan.paused {
            cx.tcp().pause(id).expect("it is connected");
        }
        self.pump(id, cx);
    }
}

impl fmt::Debug for Traffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Traffic").field("ends", &self.ends).field("starved", &self.starved).finish_non_exhaustive()
    }
}
