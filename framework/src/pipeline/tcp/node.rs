//! The TCP node: verifies the segment, gives it to the machine, and tells the app what came of it.
//! What enters begins with the TCP header and has the IPv4 header behind it (towards the headroom).

use zerocopy::FromBytes;

use super::super::answer::Sender;
use super::super::app::App;
use super::super::node::{Cx, Node, discard};
use super::super::outline::Outline;
use super::super::udp::node::ChecksumPolicy;
use super::ConnectionId;
use super::TcpEvent;
use super::bytes::{Bytes, Own};
use super::chain::Parts;
use super::sockets::Inner;
use super::train::Train;
use crate::counters::{Counter, Drops, Scope, Unit};
use crate::mem::{ChecksumStatus, Held, Mbuf, MbufRef};
use crate::proto::icmp::is_single_host;
use crate::proto::tcp::{Arrival, Plain, Received, Segment, TcpDrop};
use crate::proto::{ConsumerId, Destination, Flow};
use crate::time::UnixTime;
use crate::wire::tcp::TcpFlags;
use crate::wire::{Ipv4Header, TcpError, TcpHeader, TcpSegment};
use core::net::SocketAddrV4;

crate::drop_reasons! {
    /// Why the TCP node drops a segment.
    pub enum TcpNodeDrop {
        /// Fewer than 20 bytes.
        TooShort => "too_short",
        /// The data offset states fewer than 20 bytes, or more than there are.
        BadHeader => "bad_header",
        /// The checksum is wrong.
        BadChecksum => "bad_checksum",
        /// Sent to a group or to all, or by no single host (RFC 9293 3.9.2.3).
        NotUnicast => "not_unicast",
        /// This worker has no TCP.
        Disabled => "disabled",
        /// Nobody listens, and no connection is there: answered with a reset.
        NoConnection => "no_connection",
        /// Outside of the window: a duplicate, or a stranger's; answered with an acknowledgment.
        NotAcceptable => "not_acceptable",
        /// Acknowledges what was not sent, or too long ago.
        BadAck => "bad_ack",
        /// Flags that make no sense here.
        BadFlags => "bad_flags",
        /// From no host's address, or from port 0.
        BadAddress => "bad_address",
        /// Its timestamp is older than the last (RFC 7323 5).
        PawsReject => "paws_reject",
        /// A reset that does not know the next number (RFC 5961 3).
        BlindReset => "blind_reset",
        /// A SYN inside a connection (RFC 5961 4).
        BlindSyn => "blind_syn",
        /// More SYNs than the listener takes.
        SynRateExceeded => "syn_rate_exceeded",
        /// No place for one more connection of a caller: `TcpConfig::connections_max`, less
        /// `active_open_reserve`.
        TableFull => "table_full",
        /// As many connections as the listener takes: `ListenOptions::connections_max`.
        ListenerFull => "listener_full",
        /// As many connections as the listener takes from one address:
        /// `ListenOptions::connections_per_source`.
        SourceFull => "source_full",
        /// No place for data that is out of order or that a paused app has not taken: it comes
        /// again.
        NoRoom => "no_room",
        /// All of it waits already, out of order.
        Duplicate => "duplicate",
        /// Data behind the peer's own FIN.
        AfterFin => "after_fin",
        /// The app did not accept it.
        Refused => "refused",
        /// For a connection that is closed.
        AfterClose => "after_close",
        /// For a connection in TIME-WAIT.
        TimeWait => "time_wait",
    }
}

impl From<TcpDrop> for TcpNodeDrop {
    fn from(reason: TcpDrop) -> Self {
        match reason {
            TcpDrop::NoConnection => Self::NoConnection,
            TcpDrop::NotAcceptable => Self::NotAcceptable,
            TcpDrop::BadAck => Self::BadAck,
            TcpDrop::BadFlags => Self::BadFlags,
            TcpDrop::BadAddress => Self::BadAddress,
            TcpDrop::PawsReject => Self::PawsReject,
            TcpDrop::BlindReset => Self::BlindReset,
            TcpDrop::BlindSyn => Self::BlindSyn,
            TcpDrop::SynRateExceeded => Self::SynRateExceeded,
            TcpDrop::TableFull => Self::TableFull,
            TcpDrop::ListenerFull => Self::ListenerFull,
            TcpDrop::SourceFull => Self::SourceFull,
            TcpDrop::NoRoom => Self::NoRoom,
            TcpDrop::Duplicate => Self::Duplicate,
            TcpDrop::AfterFin => Self::AfterFin,
            TcpDrop::Refused => Self::Refused,
            TcpDrop::AfterClose => Self::AfterClose,
            TcpDrop::TimeWait => Self::TimeWait,
        }
    }
}

/// Bytes of a stream, where the NIC put them.
#[derive(Debug)]
pub struct TcpData<'a> {
    /// Which of the app's connections.
    pub connection: ConnectionId,
    /// Whose it is, by `connect` or the listener's options.
    pub consumer: ConsumerId,
    /// When the segment arrived, by the NIC's clock or the capture's. Of short ones that waited in
    /// one buffer for a paused app, that of the first.
    pub timestamp: Option<UnixTime>,
    /// The bytes: in order, each once. A segment that came in fragments is shown in pieces.
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

/// What the TCP node does beyond the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpNodeConfig {
    /// What to do about checksums that the NIC has not verified.
    pub checksum: ChecksumPolicy,
}

/// Takes segments.
pub struct Tcp {
    config: TcpNodeConfig,
    /// Where segments that came in fragments are put together.
    scratch: Box<[u8]>,
    segments: Counter,
    bytes: Counter,
    partial_checksums: Counter,
    drops: Drops<TcpNodeDrop>,
    /// What the last segment was of, where more of it may come.
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

    /// Gives the machine a segment that goes on with the train, and the app its payload; or else
    /// one that is what its connection expects. It comes back, and nothing has happened, where it
    /// is any other, as all segments are that are not sound, or of no connection.
    ///
    /// That it is from a host and to us alone need not be asked: only such have connections.
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

    /// One load and a compare where there is no train. Whatever does not go on with it ends it.
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

    /// What is found out of the checksum is written down, so that nobody computes it again.
    #[inline(always)]
    fn expect(&mut self, mbuf: &mut Mbuf, cx: &mut Cx<'_>) -> Option<Expected> {
        if !mbuf.is_plain() {
            return None;
        }
        let parsed = TcpSegment::parse(mbuf.bytes()).ok()?;
        let segment = Plain::of(&parsed)?;
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

    /// Any other segment. A SYN that is one too many ends here, as a flood of them is to cost as
    /// little as can be: nothing else of it is looked at.
    #[inline(never)]
    fn push_other<A: App>(&mut self, mbuf: Mbuf, app: &mut A, cx: &mut Cx<'_>) {
        match is_flood(&mbuf, cx) {
            true => discard(mbuf, &mut self.drops, TcpNodeDrop::SynRateExceeded),
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

    /// As [`check`](Self::check). Bytes are brought into one piece only for a checksum that nobody
    /// has verified: who merges has.
    fn check_chain(&mut self, mbuf: &Mbuf, cx: &Cx<'_>) -> Result<(Arrival, usize), TcpNodeDrop> {
        if mbuf.l4_checksum() != ChecksumStatus::Unknown {
            return self.check(mbuf, mbuf.bytes(), cx);
        }
        let mut scratch = core::mem::take(&mut self.scratch);
        let checked = self.check(mbuf, gather(mbuf, &mut scratch), cx);
        self.scratch = scratch;
        checked
    }

    /// Checks a segment, `bytes` in one piece; says what it is and how long its header is.
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
        if cx.host.classify(destination) != Destination::Own || !is_single_host(source, cx.host) {
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

    /// A partial checksum is looked for before all bytes are summed: where the policy accepts one,
    /// nearly all that comes has it.
    #[inline(always)]
    fn verify(&self, parsed: &TcpSegment<'_>, ipv4: &Ipv4Header) -> bool {
        match self.config.checksum {
            ChecksumPolicy::Ignore => true,
            ChecksumPolicy::AcceptPartial if self.accepts_partial(parsed, ipv4) => true,
            _ => parsed.verify_checksum(ipv4.source(), ipv4.destination()).is_ok(),
        }
    }

    #[inline]
    fn accepts_partial(&self, parsed: &TcpSegment<'_>, ipv4: &Ipv4Header) -> bool {
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
            let accept = |listener| app.on_tcp_accept(listener, arrival.flow);
            machine.receive_any(arrival, payload, accept, now, output)
        });
        cx.egress.sender = None;
        received
    }

    /// A segment that passed, and its payload.
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
        tell_events(app, cx);
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
        tell_events(app, cx);
    }

    /// What waits in connections is the machine's.
    fn kept(&self) -> usize {
        0
    }

    fn outline(&self, outline: &mut Outline) {
        let says = format!("checksums {:?} where the NIC has not verified them", self.config.checksum);
        outline.node("tcp", says, Outline::note_tcp);
    }
}

/// A segment that was expected, and whose it is.
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

/// What is behind the header, where there is anything.
#[inline]
fn payload(mut mbuf: Mbuf, header_len: usize) -> Option<Mbuf> {
    mbuf.advance(header_len);
    if mbuf.is_empty() {
        mbuf.free();
        return None;
    }
    Some(mbuf)
}

/// Gives data to the app where the NIC put it.
#[inline(always)]
fn deliver_mbuf<A: App>(connection: ConnectionId, consumer: ConsumerId, mbuf: &Mbuf, app: &mut A, cx: &mut Cx<'_>) {
    let (timestamp, held) = (mbuf.timestamp(), Source::Mbuf(mbuf.lend()));
    app.on_tcp_data(&TcpData { connection, consumer, timestamp, payload: mbuf.bytes(), held }, cx);
}

/// Gives data to the app.
fn deliver<A: App>(connection: ConnectionId, data: &Bytes, app: &mut A, cx: &mut Cx<'_>) {
    let consumer = cx.tcp.0.as_ref().map_or(ConsumerId::default(), |inner| inner.machine.consumer(connection));
    match data {
        Bytes::Mbuf(Own { mbuf: Some(mbuf), .. }) => deliver_mbuf(connection, consumer, mbuf, app, cx),
        Bytes::Held(held) => {
            for payload in held.segments() {
                let data = TcpData { connection, consumer, timestamp: None, payload, held: Source::Held(held) };
                app.on_tcp_data(&data, cx);
            }
        }
        Bytes::Mbuf(Own { mbuf: None, .. }) => (),
    }
}

/// Events that one call tells. An app that answers each by a call that makes the next would keep
/// the turn for ever: one that calls again whenever its call is closed does, while the link is
/// down. The rest stays in order for the next frame or tick.
const EVENTS_MAX: u32 = 256;

/// Tells the app what happened. What it does meanwhile may make more happen.
#[inline(always)]
fn tell_events<A: App>(app: &mut A, cx: &mut Cx<'_>) {
    if cx.tcp.0.as_ref().is_some_and(|inner| inner.machine.has_events()) {
        tell_some(app, cx);
    }
}

#[cold]
#[inline(never)]
fn tell_some<A: App>(app: &mut A, cx: &mut Cx<'_>) {
    for _ in 0..EVENTS_MAX {
        let Some(inner) = &mut cx.tcp.0 else { return };
        let Some((connection, consumer, event)) = inner.machine.next_event() else { return };
        inner.told = Some((connection, consumer));
        match event {
            TcpEvent::Readable => tell_data(connection, app, cx),
            _ => app.on_tcp_event(connection, event, cx),
        }
    }
}

/// All that waits, or until the app pauses: no more than the receive buffer.
fn tell_data<A: App>(connection: ConnectionId, app: &mut A, cx: &mut Cx<'_>) {
    while let Some(data) = cx.tcp.0.as_mut().and_then(|inner| inner.machine.next_data(connection)) {
        deliver(connection, &data, app, cx);
    }
}

/// Whether a segment is a SYN that is one too many for its listener.
#[inline]
fn is_flood(mbuf: &Mbuf, cx: &mut Cx<'_>) -> bool {
    let Some(local) = called_by_syn(mbuf) else { return false };
    cx.tcp.0.as_mut().is_some_and(|inner| inner.machine.refuses_syn(local, cx.now))
}

/// Whom a SYN without an ACK is sent to.
#[inline]
fn called_by_syn(mbuf: &Mbuf) -> Option<SocketAddrV4> {
    let (tcp, _) = TcpHeader::ref_from_prefix(mbuf.bytes()).ok()?;
    let is_call = tcp.flags().contains(TcpFlags::SYN) && !tcp.flags().contains(TcpFlags::ACK);
    Some(flow(ipv4_header(mbuf)?, tcp).local).filter(|_| is_call)
}

fn gather<'a>(mbuf: &Mbuf, scratch: &'a mut [u8]) -> &'a [u8] {
    let mut len = 0;
    for segment in mbuf.segments() {
        let Some(room) = scratch.get_mut(len..len + segment.len()) else { break };
        room.copy_from_slice(segment);
        len += segment.len();
    }
    &scratch[..len]
}
