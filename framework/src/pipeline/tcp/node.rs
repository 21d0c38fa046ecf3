//! The TCP node: verifies the segment, gives it to the machine, and reports the result to the app.
//! A segment enters at the TCP header, with the IPv4 header before it in the buffer.

use zerocopy::FromBytes;

use super::ConnectionId;
use super::TcpEvent;
use super::bytes::{Bytes, OwnedMbuf};
use super::chain::Parts;
use super::sockets::Inner;
use super::train::Train;
use crate::counters::{Counter, Drops, Scope, Unit};
use crate::mem::{ChecksumStatus, Held, Mbuf, MbufRef, gather};
use crate::pipeline::answer::Sender;
use crate::pipeline::app::App;
use crate::pipeline::node::{Cx, Node, discard};
use crate::pipeline::outline::NodeTree;
use crate::pipeline::udp::node::ChecksumPolicy;
use crate::proto::icmp::is_single_host;
use crate::proto::tcp::{Arrival, PredictedFields, Received, Segment, TcpDrop};
use crate::proto::{ConsumerId, Destination, Flow};
use crate::time::{Instant, UnixTime};
use crate::wire::tcp::TcpFlags;
use crate::wire::{Ipv4Header, TcpError, TcpHeader, TcpSegment};
use core::net::SocketAddrV4;

crate::drop_reasons! {
    /// Why the TCP node drops a segment.
    pub(crate) enum TcpNodeDrop {
        /// Fewer than 20 bytes.
        TooShort => "too_short",
        /// The data offset states fewer than 20 bytes, or more than there are.
        BadHeader => "bad_header",
        /// The checksum is wrong.
        BadChecksum => "bad_checksum",
        /// Sent to or from a group or broadcast address (RFC 9293 3.9.2.3).
        NotUnicast => "not_unicast",
        /// This worker has no TCP.
        Disabled => "disabled",
        ..Machine(TcpDrop),
    }
}

/// Bytes of a stream, in the buffer where the NIC put them.
#[derive(Debug)]
pub struct TcpData<'a> {
    /// The app's connection.
    pub connection: ConnectionId,
    /// Its consumer, from `connect` or the listener's options.
    pub consumer: ConsumerId,
    /// When the segment arrived, by the NIC's clock or the capture's. Where short segments were
    /// merged into one buffer for a paused app, the time of the first.
    pub timestamp: Option<UnixTime>,
    /// The bytes: in order, each once. A segment that came in fragments is delivered in pieces.
    pub payload: &'a [u8],
    held: Source<'a>,
}

#[derive(Debug)]
enum Source<'a> {
    Mbuf(MbufRef<'a>),
    Held(&'a Held),
}

impl TcpData<'_> {
    /// Keeps the bytes without copying them, for longer than the call. The buffer stays out of the
    /// pool until the handle is dropped, so bound how many are kept.
    #[inline]
    pub fn hold(&self) -> Held {
        match &self.held {
            Source::Mbuf(mbuf) => mbuf.hold(),
            Source::Held(held) => held.another(),
        }
    }
}

/// The node's part of the configuration, beside the machine's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpNodeConfig {
    /// Policy for checksums that the NIC has not verified. By default [`ChecksumPolicy::Verify`].
    pub checksum: ChecksumPolicy,
}

/// Takes segments.
pub struct Tcp {
    config: TcpNodeConfig,
    /// Linear buffer for segments that came in fragments.
    scratch: Box<[u8]>,
    segments: Counter,
    bytes: Counter,
    partial_checksums: Counter,
    drops: Drops<TcpNodeDrop>,
    /// The train that the last segment belongs to, where more of it may follow.
    train: Option<Train>,
}

impl Tcp {
    /// The node, with counters in the scope `tcp` below `scope`.
    pub fn new(config: TcpNodeConfig, scope: &Scope) -> Self {
        let scope = scope.scope("tcp");
        Self {
            config,
            scratch: vec![0; usize::from(u16::MAX)].into_boxed_slice(),
            segments: scope.counter("segments_in", Unit::Frames),
            bytes: scope.counter("payload_bytes_in", Unit::Bytes),
            partial_checksums: scope.counter("partial_checksums", Unit::Frames),
            drops: scope.drops(),
            train: None,
        }
    }

    /// Gives the machine a segment that continues the train, or one that its connection expects,
    /// and the app its payload. Returns any other segment unchanged, malformed ones and those
    /// without a connection included.
    ///
    /// Source and destination need no check for unicast: only such have connections.
    #[inline(always)]
    fn push_expected<A: App>(&mut self, mut mbuf: Mbuf, app: &mut A, cx: &mut Cx<'_>) -> Result<(), Mbuf> {
        let expected = match self.go_on(&mbuf, cx) {
            Some(expected) => expected,
            None => match self.expect(&mut mbuf, cx) {
                Some(expected) => expected,
                None => return Err(mbuf),
            },
        };
        let Expected { connection, consumer, header_len, len } = expected;
        self.segments.inc();
        if len != 0 {
            self.bytes.add(len as u64);
            mbuf.advance(header_len);
            deliver_mbuf(connection, consumer, &mbuf, app, cx);
        }
        mbuf.free();
        Ok(())
    }

    /// One load and a compare where there is no train. A segment that does not continue the train
    /// ends it.
    #[inline(always)]
    fn go_on(&mut self, mbuf: &Mbuf, cx: &mut Cx<'_>) -> Option<Expected> {
        self.train.as_ref()?;
        let expected = self.take_of_train(mbuf.lend(), cx);
        if expected.is_none() {
            self.train = None;
        }
        expected
    }

    #[inline(never)]
    fn take_of_train(&self, mbuf: MbufRef<'_>, cx: &mut Cx<'_>) -> Option<Expected> {
        if !mbuf.is_plain() {
            return None;
        }
        let (parsed, ipv4) = (TcpSegment::parse(mbuf.bytes()).ok()?, ipv4_header(&mbuf)?);
        let train = self.train.as_ref().filter(|train| train.has(&parsed, ipv4))?;
        if !self.is_intact(&parsed, &mbuf, ipv4) {
            return None;
        }
        let Train { connection, consumer, .. } = *train;
        if !cx.tcp.0.as_mut()?.machine.receive_more(connection, &train.next(&parsed), cx.now) {
            return None;
        }
        let (header_len, len) = (parsed.header.header_len(), parsed.payload.len());
        Some(Expected { connection, consumer, header_len, len })
    }

    /// The verdict on the checksum is recorded, so that it is computed once.
    #[inline(always)]
    fn expect(&mut self, mbuf: &mut Mbuf, cx: &mut Cx<'_>) -> Option<Expected> {
        if !mbuf.is_plain() {
            return None;
        }
        let parsed = TcpSegment::parse(mbuf.bytes()).ok()?;
        let segment = PredictedFields::of(&parsed)?;
        let ipv4 = ipv4_header(mbuf)?;
        if !self.is_intact(&parsed, mbuf, ipv4) {
            return None;
        }
        let (flow, header_len) = (flow(ipv4, parsed.header), parsed.header.header_len());
        let is_begin = Train::may_begin(&parsed);
        mbuf.set_l4_checksum(ChecksumStatus::Good);
        let (connection, consumer) = cx.tcp.0.as_mut()?.machine.receive_expected(flow, &segment, cx.now)?;
        if is_begin {
            self.train = Train::begin(mbuf, &segment, connection, consumer);
        }
        Some(Expected { connection, consumer, header_len, len: segment.len as usize })
    }

    /// Any other segment. A SYN beyond the listener's rate ends here before any other check, so
    /// that a flood costs as little as possible.
    #[inline(never)]
    fn push_other<A: App>(&mut self, mbuf: Mbuf, app: &mut A, cx: &mut Cx<'_>) {
        match is_flood(&mbuf, cx) {
            true => discard(mbuf, &mut self.drops, TcpDrop::SynRateExceeded.into()),
            false => self.push_any(mbuf, app, cx),
        }
    }

    #[inline(never)]
    fn push_any<A: App>(&mut self, mbuf: Mbuf, app: &mut A, cx: &mut Cx<'_>) {
        if !mbuf.is_plain() {
            return self.push_chain(mbuf, app, cx);
        }
        match self.check(&mbuf, mbuf.bytes(), cx) {
            Ok((arrival, header_len)) => {
                cx.egress.sender = Sender::of(&mbuf, mbuf.l3_len(), *arrival.flow.remote.ip(), cx.host);
                self.take(&arrival, payload(mbuf, header_len), app, cx);
            }
            Err(reason) => discard(mbuf, &mut self.drops, reason),
        }
    }

    /// Gives the machine the parts of a segment over several buffers, one by one.
    #[cold]
    #[inline(never)]
    fn push_chain<A: App>(&mut self, mbuf: Mbuf, app: &mut A, cx: &mut Cx<'_>) {
        match self.check_chain(&mbuf, cx) {
            Ok((Arrival { flow, segment }, header_len)) => {
                for (segment, payload) in Parts::new(mbuf, header_len, segment) {
                    self.take(&Arrival { flow, segment }, payload, app, cx);
                }
            }
            Err(reason) => discard(mbuf, &mut self.drops, reason),
        }
    }

    /// As [`check`](Self::check). Bytes are linearized only where the checksum is not verified yet:
    /// a NIC or kernel that merges has verified it.
    fn check_chain(&mut self, mbuf: &Mbuf, cx: &Cx<'_>) -> Result<(Arrival, usize), TcpNodeDrop> {
        if mbuf.l4_checksum() != ChecksumStatus::Unknown {
            return self.check(mbuf, mbuf.bytes(), cx);
        }
        let mut scratch = core::mem::take(&mut self.scratch);
        let checked = self.check(mbuf, gather(mbuf, &mut scratch), cx);
        self.scratch = scratch;
        checked
    }

    /// Checks a segment, `bytes` in one piece; returns its description and the length of its
    /// header.
    #[inline]
    fn check(&self, mbuf: &Mbuf, bytes: &[u8], cx: &Cx<'_>) -> Result<(Arrival, usize), TcpNodeDrop> {
        let parsed = TcpSegment::parse(bytes).map_err(|error| match error {
            TcpError::Short => TcpNodeDrop::TooShort,
            _ => TcpNodeDrop::BadHeader,
        })?;
        let Some(ipv4) = ipv4_header(mbuf) else { return Err(TcpNodeDrop::TooShort) };
        if !self.is_intact(&parsed, mbuf, ipv4) {
            return Err(TcpNodeDrop::BadChecksum);
        }
        let (source, destination) = (ipv4.source(), ipv4.destination());
        if cx.host.classify(destination) != Destination::Local || !is_single_host(source, cx.host) {
            return Err(TcpNodeDrop::NotUnicast);
        }
        // RFC 3168 5: CE is 11.
        let segment = Segment::new(&parsed, ipv4.ecn() == 3);
        Ok((Arrival { flow: flow(ipv4, parsed.header), segment }, parsed.header.header_len()))
    }

    #[inline(always)]
    fn is_intact(&self, parsed: &TcpSegment<'_>, mbuf: &Mbuf, ipv4: &Ipv4Header) -> bool {
        match mbuf.l4_checksum() {
            ChecksumStatus::Unknown => self.verify(parsed, ipv4),
            verdict => verdict == ChecksumStatus::Good,
        }
    }

    /// A partial checksum is tested before all bytes are summed: where the policy accepts one,
    /// nearly every segment has it.
    #[inline(always)]
    fn verify(&self, parsed: &TcpSegment<'_>, ipv4: &Ipv4Header) -> bool {
        match self.config.checksum {
            ChecksumPolicy::Ignore => true,
            ChecksumPolicy::AcceptPartial if self.accepts_partial(*parsed, ipv4) => true,
            _ => parsed.verify_checksum(ipv4.source(), ipv4.destination()).is_ok(),
        }
    }

    /// Takes a copy: this is a call, and for a reference each segment would be written to memory,
    /// under the other policies too. Nine instructions a segment.
    #[inline]
    fn accepts_partial(&self, parsed: TcpSegment<'_>, ipv4: &Ipv4Header) -> bool {
        let is_partial = parsed.has_partial_checksum(ipv4.source(), ipv4.destination());
        self.partial_checksums.add(u64::from(is_partial));
        is_partial
    }

    /// Gives a segment to the machine.
    #[inline]
    fn receive<A: App>(
        &mut self,
        arrival: &Arrival,
        payload: Option<Bytes>,
        app: &mut A,
        cx: &mut Cx<'_>,
    ) -> Option<Received<Bytes>> {
        let now = cx.now;
        let received = Inner::call(cx, |machine, output| {
            let accept = |listener, consumer| app.on_tcp_accept(listener, consumer, arrival.flow);
            machine.receive_any(arrival, payload, accept, now, output)
        });
        cx.egress.sender = None;
        received
    }

    /// Handles a segment that passed, and its payload.
    #[inline]
    fn take<A: App>(&mut self, arrival: &Arrival, payload: Option<Mbuf>, app: &mut A, cx: &mut Cx<'_>) {
        self.segments.inc();
        self.bytes.add(arrival.segment.len.into());
        match self.receive(arrival, payload.map(Bytes::of), app, cx) {
            Some(Ok(None)) => (),
            Some(Ok(Some((connection, data)))) => deliver(connection, &data, app, cx),
            Some(Err(reason)) => self.drops.count(reason.into()),
            None => self.drops.count(TcpNodeDrop::Disabled),
        }
    }
}

impl<A: App> Node<A> for Tcp {
    #[inline]
    fn push(&mut self, mbuf: Mbuf, app: &mut A, cx: &mut Cx<'_>) {
        cx.tcp.step();
        if let Err(other) = self.push_expected(mbuf, app, cx) {
            self.push_other(other, app, cx);
        }
        deliver_events(app, cx);
    }

    /// The burst has ended: acknowledgments leave, and timers run out.
    #[inline]
    fn tick(&mut self, app: &mut A, cx: &mut Cx<'_>) {
        let now = cx.now;
        if cx.tcp.0.as_ref().is_some_and(|inner| inner.machine.is_due(now)) {
            Inner::call(cx, |machine, output| {
                machine.follow_routes(output.changes(), || output.link_mtu());
                machine.tick(now, output);
            });
        }
        deliver_events(app, cx);
    }

    fn next_deadline(&self, cx: &Cx<'_>) -> Instant {
        cx.tcp.next_deadline(cx.now, cx.host)
    }

    /// Data that waits in connections is counted by the machine.
    fn kept(&self) -> usize {
        0
    }

    fn outline(&self, outline: &mut NodeTree) {
        let says = format!("checksums {:?} where the NIC has not verified them", self.config.checksum);
        outline.node("tcp", says, NodeTree::note_tcp);
    }
}

/// A segment that was expected, and its connection.
struct Expected {
    connection: ConnectionId,
    consumer: ConsumerId,
    header_len: usize,
    /// Bytes of its payload.
    len: usize,
}

/// The IPv4 header in front of a segment.
#[inline(always)]
pub(super) fn ipv4_header(mbuf: &Mbuf) -> Option<&Ipv4Header> {
    let (header, _) = Ipv4Header::ref_from_prefix(mbuf.behind(mbuf.l3_len())?).ok()?;
    Some(header)
}

#[inline(always)]
fn flow(ipv4: &Ipv4Header, tcp: &TcpHeader) -> Flow {
    Flow {
        local: SocketAddrV4::new(ipv4.destination(), tcp.destination_port()),
        remote: SocketAddrV4::new(ipv4.source(), tcp.source_port()),
    }
}

/// The payload behind the header, where there is any.
#[inline]
fn payload(mut mbuf: Mbuf, header_len: usize) -> Option<Mbuf> {
    mbuf.advance(header_len);
    if mbuf.is_empty() {
        mbuf.free();
        return None;
    }
    Some(mbuf)
}

/// Delivers data to the app in the buffer where the NIC put it.
#[inline(always)]
fn deliver_mbuf<A: App>(connection: ConnectionId, consumer: ConsumerId, mbuf: &Mbuf, app: &mut A, cx: &mut Cx<'_>) {
    let (timestamp, held) = (mbuf.timestamp(), Source::Mbuf(mbuf.lend()));
    app.on_tcp_data(&TcpData { connection, consumer, timestamp, payload: mbuf.bytes(), held }, cx);
}

/// Delivers data to the app.
fn deliver<A: App>(connection: ConnectionId, data: &Bytes, app: &mut A, cx: &mut Cx<'_>) {
    let consumer = cx.tcp.0.as_ref().map_or(ConsumerId::default(), |inner| inner.machine.consumer(connection));
    match data {
        Bytes::Mbuf(OwnedMbuf { mbuf: Some(mbuf), .. }) => deliver_mbuf(connection, consumer, mbuf, app, cx),
        Bytes::Held(held) => {
            for payload in held.segments() {
                let data = TcpData { connection, consumer, timestamp: None, payload, held: Source::Held(held) };
                app.on_tcp_data(&data, cx);
            }
        }
        Bytes::Mbuf(OwnedMbuf { mbuf: None, .. }) => (),
    }
}

/// The most events that one call delivers. Without a limit the turn would never end where an app
/// answers each event by a call that causes the next: for example where it connects again whenever
/// its connection closes while the link is down. The remaining events stay in order for the next
/// frame or tick.
const EVENTS_MAX: u32 = 256;

/// Delivers events to the app. The app's calls meanwhile may cause more.
#[inline(always)]
fn deliver_events<A: App>(app: &mut A, cx: &mut Cx<'_>) {
    if cx.tcp.0.as_ref().is_some_and(|inner| inner.machine.has_events()) {
        deliver_some(app, cx);
    }
}

#[cold]
#[inline(never)]
fn deliver_some<A: App>(app: &mut A, cx: &mut Cx<'_>) {
    for _ in 0..EVENTS_MAX {
        let Some(inner) = &mut cx.tcp.0 else { return };
        let Some((connection, consumer, event)) = inner.machine.next_event() else { return };
        inner.delivering = Some((connection, consumer));
        match event {
            TcpEvent::Readable => deliver_data(connection, app, cx),
            _ => app.on_tcp_event(connection, event, cx),
        }
    }
}

/// Delivers all data that waits, or until the app pauses: at most the receive buffer.
fn deliver_data<A: App>(connection: ConnectionId, app: &mut A, cx: &mut Cx<'_>) {
    while let Some(data) = cx.tcp.0.as_mut().and_then(|inner| inner.machine.next_data(connection)) {
        deliver(connection, &data, app, cx);
    }
}

/// Whether a segment is a SYN beyond its listener's rate.
#[inline]
fn is_flood(mbuf: &Mbuf, cx: &mut Cx<'_>) -> bool {
    let Some(flow) = flow_of_syn(mbuf) else { return false };
    cx.tcp.0.as_mut().is_some_and(|inner| inner.machine.refuses_syn(flow, cx.now))
}

/// The ends of a SYN without an ACK.
#[inline]
fn flow_of_syn(mbuf: &Mbuf) -> Option<Flow> {
    let (tcp, _) = TcpHeader::ref_from_prefix(mbuf.bytes()).ok()?;
    let is_call = tcp.flags().contains(TcpFlags::SYN) && !tcp.flags().contains(TcpFlags::ACK);
    Some(flow(ipv4_header(mbuf)?, tcp)).filter(|_| is_call)
}
