//! A node between IPv4 and UDP that joins each group at its first datagram, before the datagram
//! reaches the UDP node. So a capture of unknown groups is received from its first packet on, in
//! one pass.

use core::net::SocketAddrV4;

use wirepath::counters::Scope;
use wirepath::mem::Mbuf;
use wirepath::pipeline::{Cx, Ethernet, HostStackConfig, Ipv4, Ipv4Successors, Node, NodeTree, Udp, Unhandled};
use wirepath::proto::{ConsumerId, DemuxMatch, Flow, Group};
use wirepath::wire::ipv4::Ipv4Header;
use wirepath::wire::udp::UdpHeader;
use zerocopy::FromBytes;

/// An app that accepts groups as they appear.
pub trait Learner {
    /// A datagram to a group without a member has arrived. Returns the consumer for it, or `None`
    /// where there are too many groups; the datagram is then dropped as `udp/drop/no_consumer`.
    fn on_new_group(&mut self, group: SocketAddrV4) -> Option<ConsumerId>;
}

/// The groups that are joined automatically.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Learning {
    /// None: the operator named them.
    Off,
    /// Every group but those of 224.0.0.0/24, which is reserved for routing protocols (RFC 5771 4).
    On,
}

/// Joins groups and hands every packet on.
pub struct Join<U> {
    learning: Learning,
    next: U,
}

impl<U> Join<U> {
    /// The node in front of `next`.
    pub fn new(learning: Learning, next: U) -> Self {
        Self { learning, next }
    }
}

impl<A: Learner, U: Node<A>> Node<A> for Join<U> {
    #[inline]
    fn push(&mut self, mbuf: Mbuf, app: &mut A, cx: &mut Cx<'_>) {
        if self.learning == Learning::On
            && let Some(group) = group(&mbuf)
            && is_unknown(group, cx)
        {
            join(group, app, cx);
        }
        self.next.push(mbuf, app, cx);
    }

    fn tick(&mut self, app: &mut A, cx: &mut Cx<'_>) {
        self.next.tick(app, cx);
    }

    fn next_deadline(&self, cx: &Cx<'_>) -> wirepath::time::Instant {
        self.next.next_deadline(cx)
    }

    fn kept(&self) -> usize {
        self.next.kept()
    }

    fn outline(&self, outline: &mut NodeTree) {
        let says = match self.learning {
            Learning::Off => "off: the groups are named",
            Learning::On => "joins each group at its first datagram",
        };
        outline.node("join", says, |outline| self.next.outline(outline));
    }
}

/// The nodes of a replay: they accept datagrams for every station, join groups as they appear where
/// the configuration names none, and count all other frames. A live port has a
/// [`HostStack`](wirepath::pipeline::HostStack) instead.
pub type LearningStack = Ethernet<Ipv4<Join<Udp>, Unhandled, Unhandled, Unhandled>, Unhandled>;

/// Builds the tree; the nodes' counters go below `scope`.
pub fn learning_stack(stack: &HostStackConfig, learning: Learning, scope: &Scope) -> LearningStack {
    let unhandled = |name| Unhandled::new(name, scope);
    let udp = Join::new(learning, Udp::new(stack.udp, scope));
    let next = Ipv4Successors { udp, icmp: unhandled("icmp"), igmp: unhandled("igmp"), tcp: unhandled("tcp") };
    Ethernet::new(None, stack.vlans, Ipv4::new(stack.ipv4, next, scope), unhandled("arp"), scope)
}

/// The destination of a datagram, if that is a group that may be joined. The IPv4 header lies
/// before the UDP header.
#[inline]
fn group(mbuf: &Mbuf) -> Option<SocketAddrV4> {
    let (ipv4, _) = Ipv4Header::ref_from_prefix(mbuf.behind(mbuf.l3_len())?).ok()?;
    let (udp, _) = UdpHeader::ref_from_prefix(mbuf.bytes()).ok()?;
    let destination = ipv4.destination();
    let is_local_control = destination.octets()[..3] == [224, 0, 0];
    let is_group = destination.is_multicast() && !is_local_control && udp.destination_port() != 0;
    is_group.then(|| SocketAddrV4::new(destination, udp.destination_port()))
}

#[inline]
fn is_unknown(group: SocketAddrV4, cx: &Cx<'_>) -> bool {
    // Only connected flows compare the remote end, and a group is never connected.
    matches!(cx.sockets.lookup(Flow { local: group, remote: group }), DemuxMatch::None)
}

#[cold]
fn join<A: Learner>(group: SocketAddrV4, app: &mut A, cx: &mut Cx<'_>) {
    if let Some(consumer) = app.on_new_group(group) {
        // A full table refuses; the UDP node then drops the datagram for a reason.
        let _ = cx.sockets.join(consumer, Group::new(*group.ip(), group.port()));
    }
}
