//! The app of a stack's worker: it writes each callback as an event into the caller's array, and
//! holds the buffer of its bytes, until the caller polls again. Events for which the array has no
//! room wait for the next poll.

use core::ffi::CStr;
use core::net::SocketAddrV4;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use arrayvec::ArrayVec;
use wirepath::mem::Held;
use wirepath::pipeline::tcp::{CloseReason, ConnectionId, State, TcpData, TcpEvent, TcpInfo};
use wirepath::pipeline::{App, Cx, Datagram};
use wirepath::time::Instant;

use crate::abi::{self, Event, Handle};
use crate::error::{Code, Result};
use crate::foreign::{Output, socket_address};
use crate::handles::StackNumber;

/// Buffers that one poll lends by the fast path: a turn of 32 frames causes some 40, and several
/// hundred where a paused connection resumes. Further ones take the path of unusual bytes.
const BUFFERS_MAX: usize = 1_024;
/// Events that wait before their queue grows, and before [`Collector::begin_poll`] refuses a turn.
const QUEUE_LEN: usize = 1_024;

/// Marks the chunks of unusual bytes: in a chain of buffers, copied, or of an event that waited.
const IS_UNUSUAL: u64 = 1 << 63;

/// An event that had no room in the caller's array, and its bytes.
struct Waiting {
    event: Event,
    kept: Option<Bytes>,
}

/// The owner of an event's bytes.
pub(crate) enum Bytes {
    /// The buffer that the NIC wrote.
    Held(Held),
    /// A copy of a datagram that was reassembled from fragments.
    Copy(Rc<[u8]>),
}

impl Bytes {
    /// Another reference to them.
    fn another(&self) -> Self {
        match self {
            Self::Held(held) => Self::Held(held.another()),
            Self::Copy(copy) => Self::Copy(Rc::clone(copy)),
        }
    }
}

/// What a stack knows of its connections on an interface that is shared with the kernel, where the
/// segments of each are steered here.
pub(crate) struct Shared {
    /// The connections that have ended since the stack looked, by their ids, and whether segments
    /// of their peers may still come, as in TIME-WAIT.
    pub(crate) ended: Vec<(u64, bool)>,
    /// The connections that come here by the rule of a listener: their ends, ours first.
    accepted: HashMap<u64, (SocketAddrV4, SocketAddrV4)>,
}

impl Shared {
    /// With memory for that many connections.
    pub(crate) fn with_capacity(connections: usize) -> Self {
        Self { ended: Vec::new(), accepted: HashMap::with_capacity(connections) }
    }

    fn note(&mut self, connection: u64, event: TcpEvent, info: Option<&TcpInfo>) {
        match (event, info) {
            (TcpEvent::Connected { listener: Some(_) }, Some(info)) => {
                self.accepted.insert(connection, (info.local, info.remote));
            }
            (TcpEvent::Closed(_), info) => {
                self.accepted.remove(&connection);
                self.ended.push((connection, info.is_some_and(|info| info.state != State::Closed)));
            }
            _ => (),
        }
    }

    /// Takes the accepted connections whose local end is one of these: their ids and ends.
    pub(crate) fn take_accepted(
        &mut self,
        is_local: impl Fn(SocketAddrV4) -> bool,
    ) -> Vec<(u64, SocketAddrV4, SocketAddrV4)> {
        let taken = self.accepted.extract_if(|_, (local, _)| is_local(*local));
        taken.map(|(connection, (local, remote))| (connection, local, remote)).collect()
    }

    /// Some of them stay with their listener.
    pub(crate) fn give_back(&mut self, accepted: impl Iterator<Item = (u64, SocketAddrV4, SocketAddrV4)>) {
        self.accepted.extend(accepted.map(|(connection, local, remote)| (connection, (local, remote))));
    }
}

/// The app.
pub(crate) struct Collector {
    /// The caller's array, during a poll.
    output: Rc<Output<Event>>,
    /// The bytes of the last poll's events, which lie in one buffer each.
    buffers: ArrayVec<Held, BUFFERS_MAX>,
    /// The unusual events.
    unusual: Vec<Bytes>,
    /// The chunk of the first entry of either. Chunks are never used again, so that the chunk of an
    /// older event is refused; 0 is the chunk of no bytes.
    first_chunk: u64,
    queue: VecDeque<Waiting>,
    /// Of an interface that is shared with the kernel.
    pub(crate) shared: Option<Shared>,
    /// Flips the upper bits of the framework's ids.
    mark: u64,
    has_tx_timestamps: bool,
}

impl Collector {
    pub(crate) fn new(output: Rc<Output<Event>>, stack: StackNumber) -> Self {
        Self {
            output,
            buffers: ArrayVec::new(),
            unusual: Vec::new(),
            first_chunk: (stack.mark() >> 1) + 1,
            queue: VecDeque::with_capacity(QUEUE_LEN),
            shared: None,
            mark: stack.mark(),
            has_tx_timestamps: false,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// From now on, events say when frames left for which that was asked.
    pub(crate) fn take_tx_timestamps(&mut self) {
        self.has_tx_timestamps = true;
    }

    pub(crate) fn has_tx_timestamps(&self) -> bool {
        self.has_tx_timestamps
    }

    /// Returns the buffers of the last poll's events to the pool, and writes the waiting events.
    /// Returns whether there is no turn to be made, because there were any: a turn adds to those
    /// that wait only if the array has no places at all, and then up to a bound.
    #[inline]
    pub(crate) fn begin_poll(&mut self) -> bool {
        self.first_chunk += self.buffers.len().max(self.unusual.len()) as u64;
        if !self.buffers.is_empty() {
            Held::drop_all(self.buffers.drain(..));
        }
        self.unusual.clear();
        !self.queue.is_empty() && self.write_waiting()
    }

    #[cold]
    fn write_waiting(&mut self) -> bool {
        if !self.output.has_room() {
            return self.queue.len() >= QUEUE_LEN;
        }
        while self.output.has_room()
            && let Some(Waiting { mut event, kept }) = self.queue.pop_front()
        {
            if let Some(kept) = kept {
                event.chunk = self.lend(kept);
            }
            self.output.push(event); // there is room
        }
        true
    }

    /// Another reference to the bytes of an event of the last poll.
    pub(crate) fn keep(&self, chunk: u64) -> Result<Bytes> {
        let place = (chunk & !IS_UNUSUAL).checked_sub(self.first_chunk).ok_or(Code::Stale)? as usize;
        let kept = match chunk & IS_UNUSUAL {
            0 => self.buffers.get(place).map(|held| Bytes::Held(held.another())),
            _ => self.unusual.get(place).map(Bytes::another),
        };
        kept.ok_or_else(|| Code::Stale.into())
    }

    /// Writes an event with its bytes, which `held` keeps where they lie in its buffer.
    ///
    /// The event is made only where it is written, and no table grows here, so that the compiler
    /// keeps the members in registers.
    #[inline(always)]
    fn with_bytes(&mut self, payload: &[u8], held: Held, event: impl Fn() -> Event) {
        if self.buffers.is_full() || !held.bytes().is_some_and(|bytes| is_inside(payload, bytes)) {
            return self.with_unusual_bytes(payload, held, event());
        }
        let chunk = self.first_chunk + self.buffers.len() as u64;
        self.buffers.push(held);
        if !self.output.push(Event { data: payload.as_ptr(), len: payload.len(), chunk, ..event() })
            && let Some(held) = self.buffers.pop()
        {
            self.with_unusual_bytes(payload, held, event());
        }
    }

    /// The same where the array or the table is full, and for bytes in a chain of buffers. Bytes
    /// outside the buffers were reassembled elsewhere, and are copied.
    #[cold]
    #[inline(never)]
    fn with_unusual_bytes(&mut self, payload: &[u8], held: Held, event: Event) {
        let is_held = held.segments().any(|bytes| is_inside(payload, bytes));
        let kept = if is_held { Bytes::Held(held) } else { Bytes::Copy(payload.into()) };
        let data = match &kept {
            Bytes::Held(_) => payload.as_ptr(),
            Bytes::Copy(copy) => copy.as_ptr(),
        };
        let event = Event { data, len: payload.len(), ..event };
        if !self.output.has_room() {
            return self.queue.push_back(Waiting { event, kept: Some(kept) });
        }
        let chunk = self.lend(kept);
        self.output.push(Event { chunk, ..event });
    }

    /// Keeps bytes until the next poll. Returns the chunk that names them.
    fn lend(&mut self, bytes: Bytes) -> u64 {
        self.unusual.push(bytes);
        (self.first_chunk + self.unusual.len() as u64 - 1) | IS_UNUSUAL
    }

    fn push(&mut self, event: Event) {
        if !self.output.push(event) {
            self.queue.push_back(Waiting { event, kept: None });
        }
    }

    /// Writes when frames left. A device keeps a few hundred times, so this is bounded.
    #[cold]
    pub(crate) fn write_tx_timestamps(&mut self, cx: &mut Cx<'_>) {
        while let Some(time) = cx.take_timestamp() {
            let timestamp_ns = time.at.as_nanos();
            self.push(Event { kind: abi::WP_EVENT_SENT, token: time.token, timestamp_ns, ..Event::EMPTY });
        }
    }
}

/// Whether the bytes lie within others.
#[inline(always)]
fn is_inside(bytes: &[u8], others: &[u8]) -> bool {
    let (bytes, others) = (bytes.as_ptr_range(), others.as_ptr_range());
    others.start <= bytes.start && bytes.end <= others.end
}

impl App for Collector {
    #[inline(always)]
    fn on_datagram(&mut self, datagram: &Datagram<'_>, _: &mut Cx<'_>) {
        self.with_bytes(datagram.payload, datagram.hold(), || Event {
            kind: abi::WP_EVENT_DATAGRAM,
            tag: datagram.consumer.0,
            timestamp_ns: datagram.timestamp.map_or(0, |time| time.as_nanos()),
            source: socket_address(datagram.source),
            destination: socket_address(datagram.destination),
            ttl: datagram.ttl,
            tos: datagram.tos,
            vlan: datagram.vlan.unwrap_or(0),
            ..Event::EMPTY
        });
    }

    #[inline]
    fn on_tcp_data(&mut self, data: &TcpData<'_>, _: &mut Cx<'_>) {
        let connection = Handle { id: data.connection.to_bits() ^ self.mark };
        self.with_bytes(data.payload, data.hold(), || Event {
            kind: abi::WP_EVENT_DATA,
            tag: data.consumer.0,
            connection,
            timestamp_ns: data.timestamp.map_or(0, |time| time.as_nanos()),
            ..Event::EMPTY
        });
    }

    fn on_tcp_event(&mut self, connection: ConnectionId, event: TcpEvent, cx: &mut Cx<'_>) {
        let (kind, reason) = match event {
            TcpEvent::Connected { listener: None } => (abi::WP_EVENT_CONNECTED, 0),
            TcpEvent::Connected { listener: Some(_) } => (abi::WP_EVENT_ACCEPTED, 0),
            TcpEvent::Writable => (abi::WP_EVENT_WRITABLE, 0),
            TcpEvent::PeerClosed => (abi::WP_EVENT_PEER_CLOSED, 0),
            TcpEvent::Closed(reason) => (abi::WP_EVENT_CLOSED, closed(reason)),
            TcpEvent::NoRoute => (abi::WP_EVENT_NO_ROUTE, 0),
            // Data comes by its own callback; events of a later version have no number here yet.
            _ => return,
        };
        let tag = cx.tcp().consumer(connection).0;
        let handle = Handle { id: connection.to_bits() ^ self.mark };
        let info = cx.tcp().info(connection);
        if let Some(shared) = &mut self.shared {
            shared.note(handle.id, event, info.as_ref());
        }
        let mut event = Event { kind, tag, connection: handle, reason, ..Event::EMPTY };
        if let Some(info) = info {
            event.source = socket_address(info.remote);
            event.destination = socket_address(info.local);
        }
        self.push(event);
    }

    fn on_timer(&mut self, token: u64, _: &mut Cx<'_>) {
        self.push(Event { kind: abi::WP_EVENT_TIMER, token, ..Event::EMPTY });
    }

    #[inline]
    fn tick(&mut self, cx: &mut Cx<'_>) {
        if self.has_tx_timestamps {
            self.write_tx_timestamps(cx);
        }
    }

    /// Its tick depends on no time.
    fn next_deadline(&self, _: &Cx<'_>) -> Instant {
        Instant::MAX
    }
}

fn closed(reason: CloseReason) -> i32 {
    match reason {
        CloseReason::Finished => abi::WP_CLOSED_FINISHED,
        CloseReason::Aborted => abi::WP_CLOSED_ABORTED,
        CloseReason::Reset => abi::WP_CLOSED_RESET,
        CloseReason::Refused => abi::WP_CLOSED_REFUSED,
        CloseReason::NoRoute => abi::WP_CLOSED_NO_ROUTE,
        CloseReason::NoAnswer => abi::WP_CLOSED_NO_ANSWER,
        CloseReason::TimedOut => abi::WP_CLOSED_TIMED_OUT,
        CloseReason::KeepaliveTimedOut => abi::WP_CLOSED_KEEPALIVE,
        CloseReason::Unreachable => abi::WP_CLOSED_UNREACHABLE,
        CloseReason::NoNeighbor => abi::WP_CLOSED_NO_NEIGHBOR,
        _ => abi::WP_CLOSED_OTHER,
    }
}

/// The sentence of a reason.
pub(crate) fn reason(reason: i32) -> &'static CStr {
    match reason {
        abi::WP_CLOSED_FINISHED => c"both sides finished",
        abi::WP_CLOSED_ABORTED => c"aborted by us",
        abi::WP_CLOSED_RESET => c"reset by the peer: its log may say why",
        abi::WP_CLOSED_REFUSED => c"refused, no program listens there: check address and port",
        abi::WP_CLOSED_NO_ROUTE => c"no way out: the link is down, or no route leads there",
        abi::WP_CLOSED_NO_ANSWER => c"no answer: check address, port, and filters on the path",
        abi::WP_CLOSED_TIMED_OUT => c"the peer stopped acknowledging: it is gone, or the way to it is",
        abi::WP_CLOSED_KEEPALIVE => c"the peer answered no keepalive probe: it is gone, or the way to it is",
        abi::WP_CLOSED_UNREACHABLE => c"the network says that the peer cannot be reached: check address and routes",
        abi::WP_CLOSED_NO_NEIGHBOR => c"no answer to ARP for the peer, or the router to it",
        _ => c"a reason that this library has no name for",
    }
}
