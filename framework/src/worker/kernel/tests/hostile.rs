//! Damaged rtnetlink messages, from the bytes to the worker's host: for any content, the state kept
//! is bounded by the input, and the worker ends with an interface that it can send on.

use netlink_packet_core::{NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use netlink_packet_route::neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteNextHop, RouteType};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use proptest::prelude::*;
use proptest::sample::Index;

use super::config;
use crate::proto::{HashSeed, Host};
use crate::worker::kernel::follower::Follower;
use crate::worker::kernel::host_sync::HostSync;
use crate::worker::kernel::socket::{NetlinkEvents, read};
use crate::worker::kernel::tables::Tables;
use crate::worker::kernel::view::View;
use crate::worker::spsc::lossless;

const IDX: u32 = 2;
const NAME: &str = "eth1";

/// One message of each kind, and both kinds of removal.
fn messages() -> Vec<RouteNetlinkMessage> {
    vec![
        RouteNetlinkMessage::NewLink(link()),
        RouteNetlinkMessage::NewAddress(address()),
        RouteNetlinkMessage::NewRoute(route("10.0.0.0", 24, None)),
        RouteNetlinkMessage::NewRoute(route("0.0.0.0", 0, Some("10.0.0.254"))),
        RouteNetlinkMessage::NewRoute(several_legs()),
        RouteNetlinkMessage::NewRoute(hole()),
        RouteNetlinkMessage::NewRule(rule(100, RuleAction::ToTable)),
        RouteNetlinkMessage::NewRule(rule(50, RuleAction::Goto)),
        RouteNetlinkMessage::NewNeighbour(neighbor()),
        RouteNetlinkMessage::DelNeighbour(neighbor()),
        RouteNetlinkMessage::DelRoute(route("0.0.0.0", 0, Some("10.0.0.254"))),
        RouteNetlinkMessage::DelAddress(address()),
        RouteNetlinkMessage::DelLink(link()),
    ]
}

fn link() -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.index = IDX;
    message.header.flags = LinkFlags::Up | LinkFlags::LowerUp;
    message.attributes = vec![
        LinkAttribute::IfName(NAME.into()),
        LinkAttribute::Mtu(1_500),
        LinkAttribute::Address(vec![2, 0, 0, 0, 0, 1]),
        LinkAttribute::CarrierUpCount(1),
        LinkAttribute::Controller(3),
    ];
    message
}

fn address() -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header.family = AddressFamily::Inet;
    message.header.prefix_len = 24;
    message.header.index = IDX;
    message.attributes = vec![AddressAttribute::Local([10, 0, 0, 1].into())];
    message
}

fn route(network: &str, len: u8, gateway: Option<&str>) -> RouteMessage {
    let inet = |text: &str| RouteAddress::Inet(text.parse().unwrap());
    let mut message = RouteMessage::default();
    message.header.address_family = AddressFamily::Inet;
    message.header.destination_prefix_length = len;
    message.header.table = 254;
    message.header.kind = RouteType::Unicast;
    message.attributes = vec![
        RouteAttribute::Destination(inet(network)),
        RouteAttribute::Oif(IDX),
        RouteAttribute::Priority(7),
        RouteAttribute::PrefSource(inet("10.0.0.1")),
    ];
    message.attributes.extend(gateway.map(|gateway| RouteAttribute::Gateway(inet(gateway))));
    message
}

fn several_legs() -> RouteMessage {
    let leg = |idx, gateway: [u8; 4]| {
        let mut hop = RouteNextHop::default();
        hop.interface_index = idx;
        hop.attributes = vec![RouteAttribute::Gateway(RouteAddress::Inet(gateway.into()))];
        hop
    };
    let mut message = route("192.0.2.0", 24, None);
    message.attributes.push(RouteAttribute::MultiPath(vec![leg(IDX, [10, 0, 0, 9]), leg(3, [10, 1, 0, 9])]));
    message
}

fn hole() -> RouteMessage {
    let mut message = route("198.51.100.128", 25, None);
    message.header.kind = RouteType::BlackHole;
    message
}

fn rule(priority: u32, action: RuleAction) -> RuleMessage {
    let mut message = RuleMessage::default();
    message.header.family = AddressFamily::Inet;
    message.header.table = 254;
    message.header.action = action;
    message.header.dst_len = 24;
    message.attributes = vec![
        RuleAttribute::Priority(priority),
        RuleAttribute::Goto(priority + 1),
        RuleAttribute::Destination([192, 0, 2, 0].into()),
    ];
    message
}

fn neighbor() -> NeighbourMessage {
    let mut message = NeighbourMessage::default();
    message.header.family = AddressFamily::Inet;
    message.header.ifindex = IDX;
    message.header.state = NeighbourState::Reachable;
    message.attributes = vec![
        NeighbourAttribute::Destination(NeighbourAddress::Inet([10, 0, 0, 9].into())),
        NeighbourAttribute::LinkLayerAddress(vec![2, 0, 0, 0, 0, 9]),
    ];
    message
}

fn emit(message: RouteNetlinkMessage) -> Vec<u8> {
    let mut message = NetlinkMessage::new(NetlinkHeader::default(), NetlinkPayload::InnerMessage(message));
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    bytes
}

/// A worker that follows eth1.
struct Scene {
    tables: Tables,
    host_sync: HostSync,
    follower: Follower,
    host: Host,
    reported: usize,
}

impl Scene {
    fn new() -> Self {
        let (producer, consumer) = lossless::ring(16).unwrap();
        Self {
            tables: Tables::default(),
            host_sync: HostSync::new(config(), producer).unwrap(),
            follower: Follower::new(consumer, lossless::ring(4).unwrap().0),
            host: Host::new(config(), HashSeed::new(1, 2)).unwrap(),
            reported: 0,
        }
    }

    fn hear(&mut self, datagram: &[u8]) {
        let mut undecoded = 0;
        let NetlinkEvents::Changes(changes) = read(datagram, &mut undecoded) else { return };
        // Each message has a header of 16 bytes and at most one change.
        assert!(changes.len() + undecoded as usize <= datagram.len() / 16);
        self.reported += changes.len();
        for change in changes {
            self.tables.apply(change);
        }
        assert!(self.tables.held() <= self.reported, "{} things are kept of {}", self.tables.held(), self.reported);
    }

    /// Runs the mirror and the worker until no updates are left.
    fn settle(&mut self) {
        let view = View::of(&self.tables, self.tables.link_named(NAME).map(|link| link.idx));
        for _ in 0..1_000 {
            let reported = self.host_sync.update(&view, |_| false);
            while self.follower.catch_up(&mut self.host) > 0 {}
            if reported.is_ok() {
                assert_eq!(self.follower.refused(), 0, "the worker's host refused what the model took");
                assert!(self.host.mac().is_unicast() && self.host.mtu() >= 68);
                return;
            }
        }
        panic!("there is always more to tell");
    }
}

/// The message, and the bytes that are changed in it.
type Damaged = (Index, Vec<(Index, u8)>);

fn any_damaged() -> impl Strategy<Value = Damaged> {
    (any::<Index>(), prop::collection::vec((any::<Index>(), any::<u8>()), 0..4))
}

proptest! {
    #[test]
    fn damaged_messages_leave_a_host_that_can_send(all in prop::collection::vec(any_damaged(), 1..30)) {
        let whole: Vec<_> = messages().into_iter().map(emit).collect();
        let mut scene = Scene::new();
        for (idx, changes) in all {
            let mut bytes = whole[idx.index(whole.len())].clone();
            for (at, value) in changes {
                let at = at.index(bytes.len());
                bytes[at] = value;
            }
            scene.hear(&bytes);
            scene.settle();
        }
    }

    #[test]
    fn any_bytes_are_no_more_messages_than_fit_them(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        Scene::new().hear(&bytes);
    }

    #[test]
    fn cut_datagrams_are_read_as_far_as_they_go(len in any::<Index>()) {
        let whole: Vec<_> = messages().into_iter().flat_map(emit).collect();
        let mut scene = Scene::new();
        scene.hear(&whole[..len.index(whole.len() + 1)]);
        scene.settle();
    }
}
