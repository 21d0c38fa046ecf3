//! The app of a stack's worker: it queues an event for each callback, and holds the buffer of its
//! bytes until the caller polls again.

use core::ffi::CStr;
use std::collections::VecDeque;
use std::rc::Rc;

use wirepath::mem::Held;
use wirepath::pipeline::tcp::{CloseReason, ConnectionId, TcpData, TcpEvent};
use wirepath::pipeline::{App, Cx, Datagram};
use wirepath::time::Instant;

use crate::abi::{self, Event, Handle};
use crate::error::{Code, Result};
use crate::foreign::socket_address;

/// Events for which there is room from the start: a turn of 32 frames causes some 40, and several
/// hundred where a paused connection resumes. Beyond it the queue grows.
const QUEUE_LEN: usize = 1_024;

/// An event that the caller has not taken, and its bytes.
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

/// The app.
pub(crate) struct Collector {
    queue: VecDeque<Waiting>,
    /// The bytes of the events that the last poll returned.
    lent: Vec<Bytes>,
    /// The number of that poll, by which the chunk of an older event is refused.
    poll: u32,
}

impl Collector {
    pub(crate) fn new() -> Self {
        Self { queue: VecDeque::with_capacity(QUEUE_LEN), lent: Vec::with_capacity(QUEUE_LEN), poll: 0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Ends the loan of the last poll's bytes. Returns whether events of an earlier turn wait.
    #[inline]
    pub(crate) fn begin_poll(&mut self) -> bool {
        self.lent.clear();
        self.poll = self.poll.wrapping_add(1);
        !self.queue.is_empty()
    }

    /// The next event, lent until the next poll.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<Event> {
        let Waiting { mut event, kept } = self.queue.pop_front()?;
        if let Some(kept) = kept {
            self.lent.push(kept);
            event.chunk = (u64::from(self.poll) << 32) | self.lent.len() as u64;
        }
        Some(event)
    }

    /// Another reference to the bytes of an event of the last poll.
    pub(crate) fn keep(&self, chunk: u64) -> Result<Bytes> {
        let place = (chunk as u32).checked_sub(1).ok_or(Code::Stale)?;
        match self.lent.get(place as usize) {
            Some(bytes) if (chunk >> 32) as u32 == self.poll => Ok(match bytes {
                Bytes::Held(held) => Bytes::Held(held.another()),
                Bytes::Copy(copy) => Bytes::Copy(Rc::clone(copy)),
            }),
            _ => Err(Code::Stale.into()),
        }
    }

    /// Queues an event with its bytes: held if they lie in the buffers of `held`, copied if they
    /// were reassembled elsewhere.
    #[inline]
    fn with_bytes(&mut self, mut event: Event, payload: &[u8], held: Held) {
        event.len = payload.len();
        let kept = if is_inside(payload, &held) { Bytes::Held(held) } else { Bytes::Copy(payload.into()) };
        event.data = match &kept {
            Bytes::Held(_) => payload.as_ptr(),
            Bytes::Copy(copy) => copy.as_ptr(),
        };
        self.queue.push_back(Waiting { event, kept: Some(kept) });
    }

    fn push(&mut self, event: Event) {
        self.queue.push_back(Waiting { event, kept: None });
    }
}

/// Whether the bytes lie in one of the held buffers.
#[inline]
fn is_inside(payload: &[u8], held: &Held) -> bool {
    let range = payload.as_ptr_range();
    let holds = |bytes: &[u8]| bytes.as_ptr() <= range.start && range.end <= bytes.as_ptr_range().end;
    match held.bytes() {
        Some(bytes) => holds(bytes),
        None => held.segments().any(holds),
    }
}

impl App for Collector {
    #[inline]
    fn on_datagram(&mut self, datagram: &Datagram<'_>, _: &mut Cx<'_>) {
        let event = Event {
            kind: abi::WP_EVENT_DATAGRAM,
            tag: datagram.consumer.0,
            timestamp_ns: datagram.timestamp.map_or(0, |time| time.as_nanos()),
            source: socket_address(datagram.source),
            destination: socket_address(datagram.destination),
            ttl: datagram.ttl,
            tos: datagram.tos,
            vlan: datagram.vlan.unwrap_or(0),
            ..Event::EMPTY
        };
        self.with_bytes(event, datagram.payload, datagram.hold());
    }

    #[inline]
    fn on_tcp_data(&mut self, data: &TcpData<'_>, _: &mut Cx<'_>) {
        let event = Event {
            kind: abi::WP_EVENT_DATA,
            tag: data.consumer.0,
            connection: Handle { id: data.connection.to_bits() },
            timestamp_ns: data.timestamp.map_or(0, |time| time.as_nanos()),
            ..Event::EMPTY
        };
        self.with_bytes(event, data.payload, data.hold());
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
        let mut event = Event { kind, tag, connection: Handle { id: connection.to_bits() }, reason, ..Event::EMPTY };
        if let Some(info) = cx.tcp().info(connection) {
            event.source = socket_address(info.remote);
            event.destination = socket_address(info.local);
        }
        self.push(event);
    }

    fn on_timer(&mut self, token: u64, _: &mut Cx<'_>) {
        self.push(Event { kind: abi::WP_EVENT_TIMER, token, ..Event::EMPTY });
    }

    /// The app has no tick.
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
