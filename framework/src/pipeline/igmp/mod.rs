//! The IGMP node: keeps the network sending us the groups that consumers have joined. IGMP messages
//! enter behind the IPv4 header, and no packet goes on from here. Reports leave, with TTL 1 and the
//! router alert option.
//!
//! The node owns the [`Reporter`], the machine that decides what to report and when. The node
//! learns of joins and leaves in `tick`: each poll reads the count
//! [`UdpSockets::membership_changes`](crate::proto::UdpSockets::membership_changes), one load. When
//! the count has changed, the node scans the memberships, some per poll, and gives the machine the
//! merged filter of each changed group. So apps join at their sockets and need no access to a node
//! deep in the tree. A group that was left and joined again between two scans counts as unchanged.
//!
//! A pipeline has no such node where the kernel holds the memberships or the network floods the
//! groups; it then sends no reports.

use core::net::Ipv4Addr;

use super::node::{Cx, Node, discard};
use super::outline::NodeTree;
use crate::counters::{Counter, Drops, Gauge, Scope, Unit};
use crate::device::Offload;
use crate::mem::Mbuf;
use crate::proto::membership::{Announcement, Reporter, ReporterConfig, ReporterError};
use crate::proto::{FilterMode, HashSeed, Host, Resolution};
use crate::time::Instant;
use crate::wire::ethernet::{self, EthernetFields};
use crate::wire::igmp::{ALL_SYSTEMS, ReportWriter};
use crate::wire::ipv4::{self, ROUTER_ALERT};
use crate::wire::{
    EmitError, EtherType, EthernetHeader, IgmpError, IgmpMessage, IgmpQuery, IgmpVersion, Ipv4Fields, Ipv4Header,
    Ipv4Packet, MacAddr, Protocol,
};

crate::drop_reasons! {
    /// Why the IGMP node drops a message.
    pub(crate) enum IgmpDrop {
        /// Fewer than 8 bytes.
        TooShort => "too_short",
        /// The checksum is wrong.
        BadChecksum => "bad_checksum",
        /// A type that concerns routers only, such as DVMRP.
        UnknownType => "unknown_type",
        /// A query of a length that no version has, or with fewer sources than it states.
        BadQuery => "bad_query",
        /// Fragmented or over several buffers: no router sends one so.
        Fragmented => "fragmented",
        /// A router forwarded the message, or it only claims to be from this link: the TTL is not 1
        /// (RFC 3376 4).
        NotLocal => "not_local",
        /// A query or report of version 2 or 3 without the router alert option (RFC 3376 9.1 and
        /// 9.2).
        NoRouterAlert => "no_router_alert",
        /// A general query to an address other than all-systems (RFC 3376 9.1).
        MisdirectedQuery => "misdirected_query",
        /// A query for, or report of, an address that is no group.
        NotAGroup => "not_a_group",
        /// A report from outside of our networks: it must not suppress ours (RFC 2236 10).
        ForeignReport => "foreign_report",
    }
}

impl From<IgmpError> for IgmpDrop {
    fn from(error: IgmpError) -> Self {
        match error {
            IgmpError::Short => Self::TooShort,
            IgmpError::Checksum => Self::BadChecksum,
            IgmpError::Type => Self::UnknownType,
            IgmpError::QueryLength | IgmpError::SourceCount => Self::BadQuery,
            IgmpError::RecordTruncated => Self::BadQuery,
        }
    }
}

/// The configuration of the IGMP node.
#[derive(Clone, Copy, Debug)]
pub struct IgmpConfig {
    /// The most groups and sources, and the newest version. The interface's MTU bounds the length
    /// of a report. By default [`ReporterConfig::default`].
    pub reporter: ReporterConfig,
    /// Whether queries of version 2 and 3 without router alert are refused, as RFC 3376 9.1 wants
    /// it. Some switches omit router alert: where `drop/no_router_alert` counts and groups stop
    /// after minutes, turn this option off. By default true.
    pub require_router_alert: bool,
    /// The secret that seeds its tables and randomizes its delays. It has no default.
    pub seed: HashSeed,
}

impl IgmpConfig {
    /// The RFCs' behavior, with room for the default number of groups.
    pub fn new(seed: HashSeed) -> Self {
        Self { reporter: ReporterConfig::default(), require_router_alert: true, seed }
    }
}

/// Messages sent in one tick. A report of 183 groups takes 4 µs and a whole frame, and the orders
/// of this poll wait behind it. A thousand joins still leave within two ticks, and in version 2
/// within 250.
const MESSAGES_PER_TICK: usize = 4;
/// Memberships and groups checked in one tick while a change is being followed: 2 to 20 ns each.
const SLOTS_PER_TICK: usize = 256;
/// Changed groups given to the machine in one tick: 100 ns each, and 20 for each source.
const CHANGES_PER_TICK: usize = 32;
/// Internetwork control (RFC 3376 4).
const TOS: u8 = 0xc0;
/// Bytes of the IPv4 header of every message.
const IPV4_LEN: usize = ipv4::HEADER_LEN + ROUTER_ALERT.len();

/// The host's side of IGMP.
pub struct Igmp {
    config: IgmpConfig,
    reporter: Reporter,
    walk: Walk,
    /// Our identity on the link when it was last read.
    identity: Identity,
    is_up: bool,
    host_changes: u64,
    messages: Counter,
    queries: Counter,
    /// Queries from outside of our networks. The node answers them, but they set neither version
    /// nor timers.
    foreign_queries: Counter,
    reports_sent: Counter,
    leaves_sent: Counter,
    /// Messages that the device refused or that fit no buffer of the pool.
    not_sent: Counter,
    /// Filters that found no room in the reporter.
    refused: Counter,
    groups: Gauge,
    version: Gauge,
    drops: Drops<IgmpDrop>,
}

/// The scan of the sockets' memberships, then of the reporter's groups, to find groups that no
/// consumer has joined any more.
#[derive(Clone, Copy, Default)]
struct Walk {
    /// Changes that have been followed.
    seen: u64,
    /// The count of changes when the present scan began.
    target: u64,
    place: usize,
}

/// Our identity for the network: when it changes, everything is reported again.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Identity {
    address: Ipv4Addr,
    mac: MacAddr,
}

impl Identity {
    fn of(host: &Host) -> Self {
        let address = host.addresses().first().map_or(Ipv4Addr::UNSPECIFIED, |own| own.address());
        Self { address, mac: host.mac() }
    }
}

/// The fields of a message's IPv4 header.
#[derive(Clone, Copy)]
struct Envelope {
    source: Ipv4Addr,
    destination: Ipv4Addr,
    has_router_alert: bool,
}

impl Igmp {
    /// The node, with counters in the scope `igmp` below `scope`, on the interface of `host`.
    pub fn new(config: IgmpConfig, host: &Host, scope: &Scope) -> Self {
        let scope = scope.scope("igmp");
        let reporter = Reporter::new(config.reporter, config.seed);
        Self {
            config,
            reporter,
            walk: Walk::default(),
            identity: Identity::of(host),
            is_up: true,
            host_changes: host.changes().wrapping_sub(1),
            messages: scope.counter("messages", Unit::Packets),
            queries: scope.counter("queries", Unit::Packets),
            foreign_queries: scope.counter("foreign_queries", Unit::Packets),
            reports_sent: scope.counter("reports_sent", Unit::Packets),
            leaves_sent: scope.counter("leaves_sent", Unit::Packets),
            not_sent: scope.counter("not_sent", Unit::Packets),
            refused: scope.counter("refused", Unit::Events),
            groups: scope.gauge("groups", Unit::Number),
            version: scope.gauge("version", Unit::Number),
            drops: scope.drops(),
        }
    }

    /// The link went up or down. Down: nothing is sent. Up: everything is reported again, because
    /// the port may now be at another switch.
    fn set_link(&mut self, is_up: bool, now: Instant) {
        match is_up {
            true => self.reporter.link_up(now),
            false => self.reporter.link_down(),
        }
    }

    /// The version in use.
    pub fn version(&self) -> IgmpVersion {
        self.reporter.version()
    }

    /// Checks a message and gives it to the machine.
    fn take(&mut self, mbuf: &Mbuf, cx: &Cx<'_>) -> Result<(), IgmpDrop> {
        if !mbuf.is_linear() {
            return Err(IgmpDrop::Fragmented);
        }
        let message = IgmpMessage::parse(mbuf.bytes())?;
        let envelope = check_envelope(mbuf)?;
        match message {
            IgmpMessage::Query(query) => {
                self.check_query(&query, &envelope)?;
                self.queries.inc();
                self.receive_query(&query, envelope.source, cx);
            }
            IgmpMessage::ReportV1(group) => self.receive_report(group, &envelope, cx)?,
            IgmpMessage::ReportV2(group) => {
                self.check_router_alert(&envelope)?;
                self.receive_report(group, &envelope, cx)?;
            }
            // Messages for routers and switches; a host ignores them.
            IgmpMessage::ReportV3(_) | IgmpMessage::Leave(_) => {}
        }
        Ok(())
    }

    /// A query from a router of this link sets the version and the timers; every query is answered.
    /// A query from 0.0.0.0 counts as one of this link, because switches without an address send it
    /// (RFC 4541 2.1.1); so does any query to a host without an address, which does not know its
    /// subnet.
    fn receive_query(&mut self, query: &IgmpQuery<'_>, source: Ipv4Addr, cx: &Cx<'_>) {
        let addresses = cx.host.addresses();
        let is_of_link = source.is_unspecified() || addresses.iter().any(|own| own.contains(source));
        if (is_of_link && !cx.host.is_own(source)) || addresses.is_empty() {
            self.reporter.query(query, cx.now);
        } else {
            self.foreign_queries.inc();
            self.reporter.answer(query, cx.now);
        }
    }

    fn check_query(&self, query: &IgmpQuery<'_>, envelope: &Envelope) -> Result<(), IgmpDrop> {
        if query.version != IgmpVersion::V1 {
            self.check_router_alert(envelope)?;
        }
        match query.is_general() {
            true if envelope.destination != ALL_SYSTEMS => Err(IgmpDrop::MisdirectedQuery),
            false if !query.group.is_multicast() => Err(IgmpDrop::NotAGroup),
            _ => Ok(()),
        }
    }

    fn check_router_alert(&self, envelope: &Envelope) -> Result<(), IgmpDrop> {
        if envelope.has_router_alert || !self.config.require_router_alert {
            return Ok(());
        }
        Err(IgmpDrop::NoRouterAlert)
    }

    /// Processes the report of another host.
    fn receive_report(&mut self, group: Ipv4Addr, envelope: &Envelope, cx: &Cx<'_>) -> Result<(), IgmpDrop> {
        if !group.is_multicast() {
            return Err(IgmpDrop::NotAGroup);
        }
        let is_near = cx.host.addresses().iter().any(|own| own.contains(envelope.source));
        // Our own report, which a switch has flooded back, must not suppress ours either.
        if !is_near || cx.host.is_own(envelope.source) {
            return Err(IgmpDrop::ForeignReport);
        }
        self.reporter.report_heard(group, cx.now);
        Ok(())
    }

    /// Follows the host: its address, its MAC address, its link.
    #[cold]
    fn follow_host(&mut self, cx: &Cx<'_>) {
        self.host_changes = cx.host.changes();
        if core::mem::replace(&mut self.is_up, cx.host.is_up()) != self.is_up {
            self.set_link(self.is_up, cx.now);
        }
        let identity = Identity::of(cx.host);
        if identity == self.identity {
            return;
        }
        self.identity = identity;
        self.reporter.announce(cx.now);
    }

    /// Follows the sockets' memberships for some steps of the walk.
    #[cold]
    fn follow_sockets(&mut self, cx: &Cx<'_>) {
        if self.walk.place == 0 {
            self.walk.target = cx.sockets.membership_changes();
        }
        let memberships = cx.sockets.membership_places();
        let end = memberships + self.reporter.places();
        let stop = end.min(self.walk.place + SLOTS_PER_TICK);
        let mut changes = 0;
        while self.walk.place < stop && changes < CHANGES_PER_TICK {
            let place = self.walk.place;
            self.walk.place += 1;
            let group = match place.checked_sub(memberships) {
                None => cx.sockets.changed_group_at(place, self.walk.seen),
                Some(place) => self.reporter.group_at(place).filter(|group| is_unwanted(*group, cx)),
            };
            if let Some(group) = group {
                self.follow_group(group, cx);
                changes += 1;
            }
        }
        if self.walk.place == end {
            self.walk = Walk { seen: self.walk.target, ..Walk::default() };
        }
    }

    fn follow_group(&mut self, group: Ipv4Addr, cx: &Cx<'_>) {
        let filter = match cx.sockets.reception_state(group, cx.host.interface()) {
            Some(reception_state) => {
                self.reporter.set_filter(group, reception_state.mode(), reception_state.sources(), cx.now)
            }
            None => self.reporter.set_filter(group, FilterMode::Include, [], cx.now),
        };
        match filter {
            Ok(()) => {}
            Err(ReporterError::GroupsFull | ReporterError::SourcesFull) => self.refused.inc(),
        }
    }

    /// Sends due messages, in frames that fit the link and a buffer. The machine is asked for a
    /// message only where one can leave, so none is lost.
    #[cold]
    fn send_due(&mut self, cx: &mut Cx<'_>) {
        let packet_len_max = cx.host.mtu().min(cx.pool.layout().data_room().saturating_sub(link_len(cx)));
        self.reporter.set_report_len_max(packet_len_max.saturating_sub(IPV4_LEN));
        for _ in 0..MESSAGES_PER_TICK {
            if cx.tx.room() == 0 {
                break;
            }
            let Some(mbuf) = cx.pool.alloc() else { break };
            let Some(message) = self.reporter.next(cx.now) else {
                mbuf.free();
                break;
            };
            let is_leave = matches!(message, Announcement::Leave(_));
            match frame(mbuf, &message, cx).map(|frame| cx.tx.post(frame, Offload::NONE)) {
                Ok(Ok(())) if is_leave => self.leaves_sent.inc(),
                Ok(Ok(())) => self.reports_sent.inc(),
                Ok(Err(unsent)) | Err(unsent) => {
                    self.not_sent.inc();
                    unsent.free();
                }
            }
        }
        self.groups.set(self.reporter.groups() as u64);
        self.version.set(match self.reporter.version() {
            IgmpVersion::V1 => 1,
            IgmpVersion::V2 => 2,
            IgmpVersion::V3 => 3,
        });
    }
}

impl<A> Node<A> for Igmp {
    fn push(&mut self, mbuf: Mbuf, _app: &mut A, cx: &mut Cx<'_>) {
        match self.take(&mbuf, cx) {
            Ok(()) => {
                self.messages.inc();
                mbuf.free();
            }
            Err(reason) => discard(mbuf, &mut self.drops, reason),
        }
    }

    #[inline]
    fn tick(&mut self, _app: &mut A, cx: &mut Cx<'_>) {
        if cx.host.changes() != self.host_changes {
            self.follow_host(cx);
        }
        if cx.sockets.membership_changes() != self.walk.seen {
            self.follow_sockets(cx);
        }
        // A scan in progress may find more changes: they go into the same reports.
        if self.walk.place == 0 && self.reporter.is_due(cx.now) {
            self.send_due(cx);
        }
    }

    fn next_deadline(&self, cx: &Cx<'_>) -> Instant {
        let has_changed = cx.host.changes() != self.host_changes || cx.sockets.membership_changes() != self.walk.seen;
        if has_changed { cx.now } else { self.reporter.next_deadline(cx.now) }
    }

    fn kept(&self) -> usize {
        0
    }

    fn outline(&self, outline: &mut NodeTree) {
        let says = format!("reports memberships, {:?} at most", self.config.reporter.version);
        outline.node("igmp", says, |_| ());
    }
}

/// Bytes of our Ethernet header with its tags.
fn link_len(cx: &Cx<'_>) -> usize {
    ethernet::HEADER_LEN + cx.host.vlan().len()
}

fn is_unwanted(group: Ipv4Addr, cx: &Cx<'_>) -> bool {
    cx.sockets.reception_state(group, cx.host.interface()).is_none()
}

/// Reads the header that was advanced over, and refuses messages that were not sent on this link.
fn check_envelope(mbuf: &Mbuf) -> Result<Envelope, IgmpDrop> {
    let packet = mbuf.behind(mbuf.l3_len()).ok_or(IgmpDrop::TooShort)?;
    let packet = Ipv4Packet::parse_quoted(packet).map_err(|_| IgmpDrop::TooShort)?;
    if packet.header.ttl() != 1 {
        return Err(IgmpDrop::NotLocal);
    }
    Ok(Envelope {
        source: packet.header.source(),
        destination: packet.header.destination(),
        has_router_alert: packet.has_router_alert(),
    })
}

/// Puts headers and message into an empty buffer. Returns the buffer where it is shorter than the
/// frame.
fn frame(mut mbuf: Mbuf, message: &Announcement<'_>, cx: &Cx<'_>) -> Result<Mbuf, Mbuf> {
    let destination = message.destination();
    // Without an address, a host reports from 0.0.0.0 (RFC 3376 4.2.13).
    let source = match cx.host.resolve(destination, cx.now) {
        Resolution::Group { source, .. } => source,
        _ => Ipv4Addr::UNSPECIFIED,
    };
    let mac = MacAddr::multicast_ipv4(destination);
    let link = EthernetHeader::new(EthernetFields { dst: mac, src: cx.host.mac(), ethertype: EtherType::IPV4 });
    let fields = Ipv4Fields {
        source,
        destination,
        protocol: Protocol::IGMP,
        ttl: 1,
        tos: TOS,
        identification: 0,
        // A single frame by its size: its identification has no meaning (RFC 6864 4.1).
        dont_fragment: true,
        payload_len: message.len(),
    };
    match emit(&mut mbuf, &link, &fields, message, cx) {
        Ok(()) => Ok(mbuf),
        Err(_) => Err(mbuf),
    }
}

fn emit(
    mbuf: &mut Mbuf,
    link: &EthernetHeader,
    fields: &Ipv4Fields,
    message: &Announcement<'_>,
    cx: &Cx<'_>,
) -> Result<(), EmitError> {
    let len = link_len(cx) + IPV4_LEN + message.len();
    let bytes = mbuf.append(len).ok_or(EmitError::NoRoom)?;
    let link_len = link.emit_tagged(&cx.host.vlan(), bytes)?;
    let header = Ipv4Header::with_options(fields, &ROUTER_ALERT)?;
    header.emit_with_options(&ROUTER_ALERT, &mut bytes[link_len..])?;
    emit_message(message, &mut bytes[link_len + IPV4_LEN..])
}

fn emit_message(message: &Announcement<'_>, bytes: &mut [u8]) -> Result<(), EmitError> {
    let message = match *message {
        Announcement::ReportV1(group) => IgmpMessage::ReportV1(group),
        Announcement::ReportV2(group) => IgmpMessage::ReportV2(group),
        Announcement::Leave(group) => IgmpMessage::Leave(group),
        Announcement::ReportV3(records) => {
            let mut report = ReportWriter::new(bytes)?;
            for record in records.iter() {
                report.push(record.kind, record.group, record.sources.iter().copied())?;
            }
            report.finish();
            return Ok(());
        }
    };
    message.emit(bytes).map(|_| ())
}

#[cfg(test)]
mod tests;
