//! Several VLANs on one queue: each is an interface of its own, with its host, its egress and its
//! nodes. The trunk reads a frame's tags and gives it to the interface that they name, in a [`Cx`]
//! with that interface's host.
//!
//! ```text
//!            ┌─ no tag, or priority only ─▶ interface 0: Ethernet ─▶ …     10.0.0.1
//!  frames ─▶ ├─ VLAN 20 ─────────────────▶ interface 1: Ethernet ─▶ …     10.0.20.1
//!            └─ VLAN 5 in VLAN 100 ──────▶ interface 2: Ethernet ─▶ …     10.5.0.1
//! ```
//! Sockets, buffers and the device are shared: a consumer joins a group on one VLAN's interface, or
//! on any. An app that receives a tick on one interface may send an order by a flow of another one
//! in the same call; [`refresh`](super::UdpFlow::refresh), in the `tick` of its own interface,
//! updates the flow's headers.

use super::app::App;
use super::egress::Egress;
use super::node::{Cx, Node, discard};
use super::outline::NodeTree;
use super::tcp::TcpSockets;
use crate::counters::{Drops, Scope};
use crate::mem::Mbuf;
use crate::proto::Host;
use crate::wire::{EthernetError, EthernetFrame, VlanTags};

crate::drop_reasons! {
    /// Why the trunk drops a frame.
    pub(crate) enum VlanTrunkDrop {
        /// Fewer bytes than an Ethernet header, a tag that is cut off, or more than two tags.
        Malformed => "malformed",
        /// An IEEE 802.3 length where the EtherType should be: spanning tree, CDP and their like.
        NotEthernetII => "not_ethernet_ii",
        /// No interface has these tags.
        UnknownVlan => "unknown_vlan",
    }
}

/// Identifiers of two tags, the outer one first; 0 for none.
type Vids = [u16; 2];

/// One VLAN.
pub struct VlanInterface<N> {
    /// The interface's addresses, routes and neighbors. Its tags select the frames of the
    /// interface.
    pub host: Host,
    /// Its egress.
    pub egress: Egress,
    /// The interface's nodes, from Ethernet on. They need not check the tags again:
    /// [`Vlans::Any`](super::Vlans::Any).
    pub nodes: N,
}

/// Gives each frame to the interface of its VLAN.
pub struct VlanTrunk<N> {
    /// A short list, searched from the front: the busiest first.
    interfaces: Vec<(Vids, VlanInterface<N>)>,
    drops: Drops<VlanTrunkDrop>,
}

impl<N> VlanTrunk<N> {
    /// A trunk of `interfaces`, the busiest first, with counters in the scope `trunk` below
    /// `scope`. Panics where two interfaces share their tags or their interface number.
    pub fn new(interfaces: Vec<VlanInterface<N>>, scope: &Scope) -> Self {
        let interfaces: Vec<_> = interfaces
            .into_iter()
            .map(|interface| (vids(interface.host.vlan().as_slice().iter()), interface))
            .collect();
        for (idx, (vids, interface)) in interfaces.iter().enumerate() {
            let clash = interfaces[..idx]
                .iter()
                .find(|(other, before)| other == vids || before.host.interface() == interface.host.interface());
            assert!(clash.is_none(), "each interface has tags and an interface number of its own");
        }
        Self { interfaces, drops: scope.scope("trunk").drops() }
    }

    /// An interface, by its index in the list: to apply updates to its host.
    pub fn interface_mut(&mut self, idx: usize) -> Option<&mut VlanInterface<N>> {
        self.interfaces.get_mut(idx).map(|(_, interface)| interface)
    }

    /// The interface that a frame belongs to.
    fn find(&mut self, mbuf: &Mbuf) -> Result<&mut VlanInterface<N>, VlanTrunkDrop> {
        let frame = EthernetFrame::parse(mbuf.bytes()).map_err(|error| match error {
            EthernetError::NotEthernetII => VlanTrunkDrop::NotEthernetII,
            EthernetError::Short | EthernetError::TagTruncated | EthernetError::TooManyTags => VlanTrunkDrop::Malformed,
        })?;
        // The NIC strips the outer tag.
        let stripped = mbuf.vlan().map(|tci| VlanTags::single(crate::wire::VlanTag::new(tci & 0x0fff)));
        let tags = stripped.iter().flat_map(|tags| tags.as_slice()).chain(frame.tags.as_slice());
        let wanted = vids(tags);
        let interface = self.interfaces.iter_mut().find(|(vids, _)| *vids == wanted);
        interface.map(|(_, interface)| interface).ok_or(VlanTrunkDrop::UnknownVlan)
    }
}

/// The identifiers of tags. A tag with identifier 0 carries a priority and names no VLAN (IEEE
/// 802.1Q 9.6).
fn vids<'a>(tags: impl Iterator<Item = &'a crate::wire::VlanTag>) -> Vids {
    let mut vids = tags.map(|tag| tag.vid()).filter(|vid| *vid != 0);
    [vids.next().unwrap_or(0), vids.next().unwrap_or(0)]
}

impl<N> VlanInterface<N> {
    /// The context of an interface's nodes: its own host and egress, and everything else of the
    /// worker's.
    fn with<A>(&mut self, app: &mut A, cx: &mut Cx<'_>, act: impl FnOnce(&mut N, &mut A, &mut Cx<'_>)) {
        // Segments of this interface would need connections that belong to it.
        let mut tcp = TcpSockets::none();
        let mut cx = Cx {
            tcp: &mut tcp,
            now: cx.now,
            pool: cx.pool,
            host: &mut self.host,
            sockets: cx.sockets,
            timers: cx.timers,
            egress: &mut self.egress,
            tx: cx.tx,
        };
        act(&mut self.nodes, app, &mut cx);
    }
}

impl<A: App, N: Node<A>> Node<A> for VlanTrunk<N> {
    fn push(&mut self, mbuf: Mbuf, app: &mut A, cx: &mut Cx<'_>) {
        match self.find(&mbuf) {
            Ok(interface) => interface.with(app, cx, |nodes, app, cx| nodes.push(mbuf, app, cx)),
            Err(reason) => discard(mbuf, &mut self.drops, reason),
        }
    }

    /// The app's `tick` is also called for each interface: there it acts on that interface.
    #[inline]
    fn tick(&mut self, app: &mut A, cx: &mut Cx<'_>) {
        for (_, interface) in &mut self.interfaces {
            interface.with(app, cx, |nodes, app, cx| {
                cx.tick_egress();
                nodes.tick(app, cx);
                app.tick(cx);
            });
        }
    }

    fn kept(&self) -> usize {
        self.interfaces.iter().map(|(_, interface)| interface.nodes.kept() + interface.egress.kept()).sum()
    }

    fn outline(&self, outline: &mut NodeTree) {
        outline.node("trunk", format!("{} VLANs", self.interfaces.len()), |outline| {
            outline.apart_from_tcp(|outline| {
                self.interfaces.iter().for_each(|(_, interface)| interface.nodes.outline(outline))
            });
        });
    }
}

#[cfg(test)]
mod tests {
    use core::net::{Ipv4Addr, SocketAddrV4};

    use super::*;
    use crate::counters::Block;
    use crate::mem::Pool;
    use crate::pipeline::tests::ANNE;
    use crate::pipeline::tests::bench::Outbox;
    use crate::pipeline::*;
    use crate::proto::{
        Group, HashSeed, HostConfig, HostEvent, InterfaceId, Ipv4Prefix, SocketCapacity, Timers, UdpSockets,
    };
    use crate::time::Instant;
    use crate::wire::{
        ArpFields, ArpOperation, ArpPacket, EtherType, EthernetFields, EthernetHeader, MacAddr, VlanTag,
    };

    const OWN_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
    const GROUP: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(239, 1, 1, 1), 9_000);

    /// An app that forwards each datagram by a flow of another interface, and records where it
    /// received it.
    #[derive(Default)]
    struct Relay {
        heard: Vec<(InterfaceId, Vec<u8>)>,
        onward: Option<UdpFlow>,
    }

    impl App for Relay {
        fn tick(&mut self, cx: &mut Cx<'_>) {
            self.onward.iter_mut().for_each(|flow| flow.refresh(cx));
        }

        fn on_datagram(&mut self, datagram: &Datagram<'_>, cx: &mut Cx<'_>) {
            self.heard.push((datagram.interface, datagram.payload.to_vec()));
            if let Some(flow) = &mut self.onward {
                flow.send(datagram.payload, cx).unwrap();
            }
        }
    }

    struct Rig {
        trunk: VlanTrunk<HostStack>,
        app: Relay,
        host: Host,
        egress: Egress,
        sockets: UdpSockets,
        outbox: Outbox,
        pool: Pool,
        block: Block,
    }

    fn tags(vids: &[u16]) -> VlanTags {
        match vids {
            [] => VlanTags::NONE,
            [vid] => VlanTags::single(VlanTag::new(*vid)),
            [outer, inner, ..] => VlanTags::double([VlanTag::from_tci(EtherType::QINQ, *outer), VlanTag::new(*inner)]),
        }
    }

    fn host(interface: u16, vlan: VlanTags) -> Host {
        let config = HostConfig {
            interface: InterfaceId(interface.into()),
            mac: OWN_MAC,
            vlan,
            mtu: 1_500,
            addresses_max: 1,
            routes_max: 1,
            neighbors_max: 2,
        };
        let mut host = Host::new(config, HashSeed::new(1, 2)).unwrap();
        let address = Ipv4Prefix::new([10, 0, interface as u8, 1].into(), 24).unwrap();
        host.apply(HostEvent::AddressAdded(address)).unwrap();
        host
    }

    fn rig() -> Rig {
        let seed = HashSeed::new(3, 4);
        let block = Block::heap();
        let scope = block.scope("worker0");
        let interfaces = [vec![], vec![20], vec![100, 5]].into_iter().zip(0u16..).map(|(vids, interface)| {
            let scope = block.scope(&format!("vlan{interface}"));
            let host = host(interface, tags(&vids));
            let arp = ArpConfig { announces: false, ..ArpConfig::new(seed) };
            let config = HostStackConfig { vlans: Vlans::Any, igmp: None, arp, ..HostStackConfig::new(seed) };
            VlanInterface {
                nodes: host_stack(config, &host, &scope),
                egress: Egress::new(EgressConfig::host(seed), &scope),
                host,
            }
        });
        Rig {
            trunk: VlanTrunk::new(interfaces.collect(), &scope),
            app: Relay::default(),
            host: host(99, VlanTags::NONE),
            egress: Egress::new(EgressConfig::quiet(seed), &scope),
            sockets: UdpSockets::new(SocketCapacity::default(), seed),
            outbox: Outbox::default(),
            pool: Pool::heap(32).unwrap(),
            block,
        }
    }

    impl Rig {
        fn cx<T>(&mut self, act: impl FnOnce(&mut VlanTrunk<HostStack>, &mut Relay, &mut Cx<'_>) -> T) -> T {
            let mut cx = Cx {
                now: Instant::from_nanos(1),
                pool: &self.pool,
                host: &mut self.host,
                sockets: &mut self.sockets,
                tcp: &mut TcpSockets::none(),
                timers: &mut Timers::new(1),
                egress: &mut self.egress,
                tx: &mut self.outbox,
            };
            act(&mut self.trunk, &mut self.app, &mut cx)
        }

        /// A datagram to the group in frames with these tags.
        fn receive(&mut self, vids: &[u16]) {
            let options = UdpOptions::default();
            let mut peer = host(7, tags(vids));
            let sent = self.cx(|_, _, cx| {
                let mut cx = Cx {
                    host: &mut peer,
                    now: cx.now,
                    pool: cx.pool,
                    sockets: cx.sockets,
                    tcp: cx.tcp,
                    timers: cx.timers,
                    egress: cx.egress,
                    tx: cx.tx,
                };
                send_to(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 1), GROUP, &options, b"tick", &mut cx)
            });
            sent.unwrap();
            let frame = self.outbox.frames.pop().unwrap();
            self.cx(|trunk, app, cx| trunk.push(frame, app, cx));
        }

        fn sent(&mut self) -> Vec<Vec<u8>> {
            self.outbox.frames.drain(..).map(|mbuf| (mbuf.bytes().to_vec(), mbuf.free()).0).collect()
        }
    }

    #[test]
    fn frames_reach_the_interface_of_their_tags_and_no_other() {
        let mut rig = rig();
        rig.sockets.join(ANNE, Group::new(*GROUP.ip(), GROUP.port())).unwrap();
        for vids in [&[][..], &[0], &[20], &[100, 5], &[0, 20]] {
            rig.receive(vids);
        }
        let heard: Vec<_> = rig.app.heard.iter().map(|(interface, _)| interface.0).collect();
        assert_eq!(heard, [0, 0, 1, 2, 1]);
        for vids in [&[21][..], &[5, 100], &[100], &[5]] {
            rig.receive(vids);
        }
        let dropped = rig.block.snapshot().count("worker0/trunk/drop/unknown_vlan");
        assert_eq!((rig.app.heard.len(), dropped, rig.pool.drops_without_reason()), (5, Some(4), 0));
    }

    #[test]
    fn membership_of_one_vlan_hears_nothing_of_another() {
        let mut rig = rig();
        let group = Group { interface: InterfaceId(1), ..Group::new(*GROUP.ip(), GROUP.port()) };
        rig.sockets.join(ANNE, group).unwrap();
        rig.receive(&[20]);
        rig.receive(&[]);
        assert_eq!(rig.app.heard.len(), 1);
    }

    #[test]
    fn tick_of_one_vlan_sends_an_order_on_another_in_the_same_call() {
        let mut rig = rig();
        rig.sockets.join(ANNE, Group::new(*GROUP.ip(), GROUP.port())).unwrap();
        let broker = SocketAddrV4::new([10, 0, 1, 9].into(), 7);
        let mac = MacAddr([2, 0, 0, 0, 0, 9]);
        let interface = rig.trunk.interface_mut(1).unwrap();
        interface.host.apply(HostEvent::NeighborSet { address: *broker.ip(), mac }).unwrap();
        rig.cx(|trunk, app, cx| {
            trunk.interface_mut(1).unwrap().with(app, cx, |_, app, cx| {
                let any = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 5_000);
                app.onward = Some(UdpFlow::connect(any, broker, &UdpOptions::default(), cx).unwrap());
            });
        });
        rig.receive(&[100, 5]);
        let frames = rig.sent();
        let frame = EthernetFrame::parse(&frames[0]).unwrap();
        assert_eq!((frames.len(), frame.header.dst(), frame.tags), (1, mac, tags(&[20])));

        // The neighbor moves: the flow is updated in the tick of its own interface.
        let moved = MacAddr([2, 0, 0, 0, 0, 10]);
        let interface = rig.trunk.interface_mut(1).unwrap();
        interface.host.apply(HostEvent::NeighborSet { address: *broker.ip(), mac: moved }).unwrap();
        rig.cx(|trunk, app, cx| trunk.tick(app, cx));
        rig.receive(&[]);
        assert_eq!(EthernetFrame::parse(&rig.sent()[0]).unwrap().header.dst(), moved);
    }

    #[test]
    fn answer_has_both_tags_where_the_nic_took_the_outer_one_off() {
        let mut rig = rig();
        let (mac, target) = (MacAddr([2, 0, 0, 0, 0, 9]), Ipv4Addr::new(10, 0, 2, 1));
        let question = ArpFields {
            operation: ArpOperation::Request,
            sender_mac: mac,
            sender_ip: Ipv4Addr::new(10, 0, 2, 9),
            target_mac: MacAddr([0; 6]),
            target_ip: target,
        };
        let header = EthernetFields { dst: MacAddr([0xff; 6]), src: mac, ethertype: EtherType::ARP };
        let mut frame = [0; 18 + 28];
        let len = EthernetHeader::new(header).emit_tagged(&tags(&[5]), &mut frame).unwrap();
        ArpPacket::new(&question).emit(&mut frame[len..]).unwrap();
        let mut mbuf = rig.pool.alloc_copy(&frame).unwrap();
        mbuf.set_vlan(100);
        rig.cx(|trunk, app, cx| trunk.push(mbuf, app, cx));
        let sent = rig.sent();
        assert_eq!(EthernetFrame::parse(&sent[0]).unwrap().tags, tags(&[100, 5]));
    }

    #[test]
    fn malformed_frames_are_named_drops() {
        let mut rig = rig();
        for bytes in [&[0; 13][..], &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x81, 0, 0, 20]] {
            let mbuf = rig.pool.alloc_copy(bytes).unwrap();
            rig.cx(|trunk, app, cx| trunk.push(mbuf, app, cx));
        }
        assert_eq!(rig.block.snapshot().count("worker0/trunk/drop/malformed"), Some(2));
    }
}
