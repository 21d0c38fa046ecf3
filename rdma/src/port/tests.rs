//! Two nodes on a wire of plain memory.

use core::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4};

use wirepath::device::memory::{MemoryConfig, MemoryDevice, pair};
use wirepath::pipeline::{App, AppError, Cx, Datagram, UdpOptions};
use wirepath::port::{EmbeddedPort, Port, udp};
use wirepath::proto::{ConsumerId, HostEvent, Ipv4Prefix};
use wirepath::wire::MacAddr;

use super::{Mbufs, PathError, PathState, RoceNode, V1_ETHERTYPE, group_subscription, subscription};
use crate::provider::Provider;
use crate::roce::*;
use crate::wire::opcode::Transport;
use crate::wire::qpn::Qpn;

const US: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const PEER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 1, 1);
const QKEY: u32 = 7;
const LEN: u32 = 10_000;
/// Turns that are more than enough for ARP and a message.
const TURNS: usize = 10_000;

struct End {
    port: EmbeddedPort<RoceNode, MemoryDevice>,
    memory: Buffer,
    mr: Mr,
    cq: CqHandle,
    qp: QpHandle,
}

impl End {
    fn new(device: MemoryDevice, address: Ipv4Addr) -> Self {
        Self::with(device, address, RoceNode::new(&DeviceConfig::default()))
    }

    fn with(device: MemoryDevice, address: Ipv4Addr, node: RoceNode) -> Self {
        let port = Port::over(device).address(address, 24).log(|_| ()).subscribe(subscription());
        let mut port = port.ethertype(V1_ETHERTYPE).embed(node).unwrap();
        let device = port.app_mut().device_mut();
        let pd = device.create_pd().unwrap();
        let cq = device.create_cq(16).unwrap();
        let memory = Buffer::zeroed(LEN as usize);
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let mr = device.register(pd, Region::from(&memory), access).unwrap();
        let transport = Transport::Rc;
        let options = QpOptions {
            transport,
            pd,
            send_cq: cq,
            recv_cq: cq,
            send_depth: 4,
            recv_depth: 4,
            srq: None,
            signals_all: true,
        };
        let qp = device.create_qp(&options).unwrap();
        Self { port, memory, mr, cq, qp }
    }

    fn path(&mut self, to: Ipv4Addr) -> Result<PathState, PathError> {
        self.port.with_app(|node, cx| node.path(to, cx))
    }

    fn path_v1(&mut self, to: Ipv6Addr) -> Result<PathState, PathError> {
        self.port.with_app(|node, cx| node.path_v1(to, cx))
    }

    fn connect(&mut self, path: Path, peer: &Self) {
        let device = self.port.app_mut().device_mut();
        let qpn = peer.port.app().device().qpn(peer.qp).unwrap();
        let access = Some(Access::REMOTE_WRITE);
        let connection = QpAttributes { access, ..QpAttributes::connection(path, qpn) };
        device.connect_qp(self.qp, Transport::Rc, &connection).unwrap();
    }
}

/// Two ends that know each other's MAC addresses.
fn ends() -> ([End; 2], [Path; 2]) {
    let (near, far) = pair("roce", MemoryConfig::default());
    let mut ends = [End::new(near, US), End::new(far, PEER)];
    for _ in 0..TURNS {
        let paths = [ends[0].path(PEER).unwrap(), ends[1].path(US).unwrap()];
        if let [PathState::Known(near), PathState::Known(far)] = paths {
            return (ends, [near, far]);
        }
        for end in &mut ends {
            end.port.poll();
        }
    }
    panic!("ARP has no answer");
}

#[test]
fn write_crosses_two_ports_and_completes() {
    let (ends, paths) = ends();
    check_write(ends, paths);
}

/// The GIDs of IPv4 addresses, and link-local ones, by which no neighbor is asked for.
#[test]
fn write_crosses_two_ports_by_roce_version_1() {
    for by_mac in [false, true] {
        let (near, far) = pair("v1", MemoryConfig::default());
        let node = || RoceNode::new(&DeviceConfig::default()).with_v1();
        let mut ends = [End::with(near, US, node()), End::with(far, PEER, node())];
        let macs = ends.each_mut().map(|end| end.port.with_app(|_, cx| cx.host.mac().0));
        let gids = if by_mac { macs.map(super::path::gid_of) } else { [US, PEER].map(|ip| ip.to_ipv6_mapped()) };
        let paths = (0..TURNS).find_map(|_| {
            let paths = [ends[0].path_v1(gids[1]).unwrap(), ends[1].path_v1(gids[0]).unwrap()];
            for end in &mut ends {
                end.port.poll();
            }
            if let [PathState::Known(near), PathState::Known(far)] = paths { Some([near, far]) } else { None }
        });
        let paths = paths.expect("both ways");
        assert_eq!(paths[0].addresses, Addresses::Grh { source: gids[0], destination: gids[1] });
        check_write(ends, paths);
    }
}

#[test]
fn frames_of_roce_version_1_are_counted_where_nobody_takes_them() {
    let (near, far) = pair("no v1", MemoryConfig::default());
    let mut near = End::with(near, US, RoceNode::new(&DeviceConfig::default()).with_v1());
    let mut far = End::new(far, PEER);
    let mac = far.port.with_app(|_, cx| cx.host.mac().0);
    let Ok(PathState::Known(path)) = near.path_v1(super::path::gid_of(mac)) else { panic!("a GID with the address") };
    near.connect(path, &far);
    let remote = Remote { address: far.mr.address, rkey: far.mr.key };
    let request = SendRequest::new(1, SendOperation::Write(remote), Data::Inline(b"tick"));
    near.port.app_mut().device_mut().post_send(near.qp, &request).unwrap();
    near.port.poll();
    far.port.poll();
    let dropped = |end: &End| end.port.counters().count("worker0/ethernet/drop/unknown_ethertype");
    assert_eq!((dropped(&near), dropped(&far)), (Some(0), Some(1)));
}

#[test]
fn peer_behind_a_router_or_without_a_link_local_gid_has_no_way_by_roce_version_1() {
    let (near, _far) = pair("off link", MemoryConfig::default());
    let port = Port::over(near).address(US, 24).route(Ipv4Prefix::ALL, PEER).log(|_| ());
    let mut port = port.embed(RoceNode::new(&DeviceConfig::default()).with_v1()).unwrap();
    for gid in ["::ffff:198.51.100.1", "2001:db8::1", "fe80::1"] {
        let gid = gid.parse().unwrap();
        assert_eq!(port.with_app(|node, cx| node.path_v1(gid, cx)), Err(PathError::OffLink(gid)));
    }
}

fn check_write([mut near, mut far]: [End; 2], paths: [Path; 2]) {
    near.connect(paths[0], &far);
    far.connect(paths[1], &near);
    let bytes: Vec<u8> = (0..LEN).map(|at| (at * 7) as u8).collect();
    near.memory.write(0, &bytes);
    let sge = Sge { address: near.mr.address, len: LEN, lkey: near.mr.key };
    let remote = Remote { address: far.mr.address, rkey: far.mr.key };
    let request = SendRequest::new(5, SendOperation::Write(remote), Data::Sges(core::slice::from_ref(&sge)));
    near.port.app_mut().device_mut().post_send(near.qp, &request).unwrap();
    let done = (0..TURNS).find_map(|_| {
        near.port.poll();
        far.port.poll();
        near.port.app_mut().device_mut().poll_cq(near.cq)
    });
    let done = done.expect("a completion");
    assert_eq!((done.wr_id, done.status), (5, Status::Success));
    let mut written = vec![0; LEN as usize];
    far.memory.read(0, &mut written);
    assert!(written == bytes, "other bytes than those that were sent");
    assert_eq!(far.port.app().device().counters().icrc_errors, 0);
    assert_eq!(far.port.app().counters().without_headers, 0);
}

#[test]
fn answer_leaves_in_the_turn_of_its_request() {
    let ([mut near, mut far], paths) = ends();
    near.connect(paths[0], &far);
    far.connect(paths[1], &near);
    let remote = Remote { address: far.mr.address, rkey: far.mr.key };
    let request = SendRequest::new(1, SendOperation::Write(remote), Data::Inline(b"tick"));
    near.port.app_mut().device_mut().post_send(near.qp, &request).unwrap();
    near.port.poll();
    far.port.poll();
    near.port.poll();
    assert!(near.port.app_mut().device_mut().poll_cq(near.cq).is_some(), "a turn each is enough");
}

/// A port with a queue pair of datagrams, which takes those of the group.
fn group_end(
    device: MemoryDevice,
    address: Ipv4Addr,
) -> (EmbeddedPort<RoceNode, MemoryDevice>, PdHandle, QpHandle, CqHandle) {
    let port = Port::over(device).address(address, 24).log(|_| ());
    let port = port.subscribe(subscription()).subscribe(group_subscription(GROUP));
    let mut port = port.embed(RoceNode::new(&DeviceConfig::default())).unwrap();
    let device = port.app_mut().device_mut();
    let (pd, cq) = (device.create_pd().unwrap(), device.create_cq(16).unwrap());
    let options = QpOptions {
        transport: Transport::Ud,
        pd,
        send_cq: cq,
        recv_cq: cq,
        send_depth: 4,
        recv_depth: 4,
        srq: None,
        signals_all: true,
    };
    let qp = device.create_qp(&options).unwrap();
    device.connect_qp(qp, Transport::Ud, &QpAttributes::datagrams(QKEY)).unwrap();
    device.attach_multicast(qp, GROUP.to_ipv6_mapped()).unwrap();
    (port, pd, qp, cq)
}

#[test]
fn datagram_to_a_group_reaches_the_queue_pairs_that_are_attached_to_it() {
    let (near, far) = pair("group", MemoryConfig::default());
    let ((mut near, pd, qp, _), (mut far, far_pd, far_qp, far_cq)) = (group_end(near, US), group_end(far, PEER));
    let memory = Buffer::zeroed(64);
    let device = far.app_mut().device_mut();
    let mr = device.register(far_pd, Region::from(&memory), Access::LOCAL_WRITE).unwrap();
    device.post_recv(far_qp, 6, &[Sge { address: mr.address, len: 64, lkey: mr.key }]).unwrap();
    let path = near.with_app(|node, cx| node.group_path(GROUP, cx)).unwrap();
    let device = near.app_mut().device_mut();
    let to = Destination { ah: device.create_ah(pd, &path).unwrap(), qpn: Qpn::MULTICAST, qkey: QKEY };
    device.post_send(qp, &SendRequest::new(1, SendOperation::Send, Data::Inline(b"tick")).to(to)).unwrap();
    for _ in 0..4 {
        near.poll();
        far.poll();
    }
    let done = far.app_mut().device_mut().poll_cq(far_cq).expect("a receive");
    assert_eq!((done.wr_id, done.status, done.byte_len as usize), (6, Status::Success, GRH_LEN + 4));
    let mut text = [0; 4];
    memory.read(GRH_LEN, &mut text);
    assert_eq!(&text, b"tick");
    assert_eq!(near.with_app(|node, cx| node.group_path(PEER, cx)), Err(PathError::NoRoute(PEER)));
}

/// The port of the datagrams that are sent on.
const TICKS: u16 = 9000;

/// Sends each datagram on to a peer as a message, from where it was received.
struct Forward {
    node: RoceNode,
    qp: Option<QpHandle>,
    /// Where the payloads were.
    payloads: Vec<*const u8>,
}

impl App for Forward {
    fn on_datagram(&mut self, datagram: &Datagram<'_>, cx: &mut Cx<'_>) {
        let Some(qp) = self.qp.filter(|_| datagram.consumer == ConsumerId(1)) else {
            return self.node.on_datagram(datagram, cx);
        };
        self.payloads.push(datagram.payload.as_ptr());
        let mbuf = cx.pool.view(datagram.hold()).unwrap();
        assert_eq!(mbuf.data_ptr(), datagram.payload.as_ptr(), "a copy");
        let send = SendRequest::new(1, SendOperation::Send, Data::Sges(&[]));
        let posted = self.node.device_mut().post_send_mbuf(qp, &send, mbuf);
        assert!(posted.is_ok());
    }

    fn on_start(&mut self, cx: &mut Cx<'_>) -> Result<(), AppError> {
        self.node.on_start(cx)
    }

    fn tick(&mut self, cx: &mut Cx<'_>) {
        self.node.tick(cx);
    }
}

#[test]
fn datagram_is_sent_on_as_a_message_from_its_mbuf() {
    let (near, far) = pair("forward", MemoryConfig::default());
    let mut far = End::new(far, PEER);
    let port = Port::over(near).address(US, 24).log(|_| ()).subscribe(subscription());
    let port = port.subscribe(udp(US, TICKS).consumer(1));
    let node = RoceNode::new(&DeviceConfig::default());
    let mut port = port.embed(Forward { node, qp: None, payloads: Vec::new() }).unwrap();
    let path = (0..TURNS).find_map(|_| {
        port.poll();
        far.port.poll();
        let paths = [port.with_app(|app, cx| app.node.path(PEER, cx)).unwrap(), far.path(US).unwrap()];
        if let [PathState::Known(near), PathState::Known(far)] = paths { Some([near, far]) } else { None }
    });
    let paths = path.expect("an answer by ARP");
    let far_qpn = far.port.app().device().qpn(far.qp).unwrap();
    let (cq, idle) = port.with_app(|app, cx| {
        let device = app.node.device_mut();
        let (pd, cq) = (device.create_pd().unwrap(), device.create_cq(16).unwrap());
        device.register(pd, Region::from(cx.pool), Access::LOCAL_READ).unwrap();
        let options = QpOptions {
            transport: Transport::Rc,
            pd,
            send_cq: cq,
            recv_cq: cq,
            send_depth: 4,
            recv_depth: 1,
            srq: None,
            signals_all: true,
        };
        let qp = device.create_qp(&options).unwrap();
        device.allow_mbufs(qp).unwrap();
        device.connect_qp(qp, Transport::Rc, &QpAttributes::connection(paths[0], far_qpn)).unwrap();
        app.qp = Some(qp);
        (cq, cx.pool.in_use())
    });
    let qpn = port.app().node.device().qpn(port.app().qp.unwrap()).unwrap();
    let (mr, far_qp) = (far.mr, far.qp);
    let device = far.port.app_mut().device_mut();
    device.connect_qp(far_qp, Transport::Rc, &QpAttributes::connection(paths[1], qpn)).unwrap();
    device.post_recv(far_qp, 6, &[Sge { address: mr.address, len: LEN, lkey: mr.key }]).unwrap();
    let to = SocketAddrV4::new(US, TICKS);
    let from = SocketAddrV4::new(PEER, TICKS);
    far.port.with_app(|_, cx| cx.udp().send_to(from, to, &UdpOptions::default(), b"a tick to be sent on")).unwrap();
    let sent = (0..TURNS).find_map(|_| {
        far.port.poll();
        port.poll();
        port.app_mut().node.device_mut().poll_mbuf(cq).unwrap()
    });
    let (done, mbuf) = sent.expect("a completion");
    assert_eq!(done.status, Status::Success);
    let mbuf = mbuf.expect("the mbuf that was sent");
    assert_eq!(port.app().payloads, [mbuf.data_ptr()]);
    mbuf.free();
    let done = far.port.app_mut().device_mut().poll_cq(far.cq).expect("the message");
    let mut text = [0; 20];
    far.memory.read(0, &mut text);
    assert_eq!((done.wr_id, done.byte_len, &text), (6, 20, b"a tick to be sent on"));
    // What is in the ring of the port when it is idle stays there.
    let in_use = port.with_app(|_, cx| (cx.pool.in_use(), cx.pool.drops_without_reason()));
    assert_eq!(in_use, (idle, 0));
}

/// The neighbor has another MAC address from now on, as the host knows it.
fn move_neighbor(end: &mut End, address: Ipv4Addr, mac: [u8; 6]) {
    let mac = MacAddr(mac);
    end.port.with_app(|_, cx| cx.host.apply(HostEvent::NeighborSet { address, mac })).unwrap();
}

#[test]
fn queue_pair_follows_its_peer_to_another_mac_address() {
    let ([mut near, mut far], paths) = ends();
    near.connect(paths[0], &far);
    far.connect(paths[1], &near);
    // Nobody has this one.
    move_neighbor(&mut near, PEER, [2, 9, 9, 9, 9, 9]);
    let remote = Remote { address: far.mr.address, rkey: far.mr.key };
    let request = SendRequest::new(1, SendOperation::Write(remote), Data::Inline(b"tick"));
    near.port.poll();
    near.port.app_mut().device_mut().post_send(near.qp, &request).unwrap();
    near.port.poll();
    far.port.poll();
    assert_eq!(far.port.app().device().counters().packets_rx, 0, "it went to the other");
    move_neighbor(&mut near, PEER, paths[0].link.destination);
    near.port.poll();
    near.port.app_mut().device_mut().post_send(near.qp, &request).unwrap();
    near.port.poll();
    far.port.poll();
    assert_eq!(far.port.app().device().counters().packets_rx, 1);
}

#[test]
fn link_of_the_port_is_an_event_of_its_device() {
    let ([mut near, _], _) = ends();
    let set_link = |end: &mut End, is_up| end.port.with_app(|_, cx| cx.host.apply(HostEvent::Link { is_up })).unwrap();
    for (is_up, event) in [(false, Event::PortError), (true, Event::PortActive)] {
        set_link(&mut near, is_up);
        near.port.poll();
        near.port.poll();
        let device = near.port.app_mut().device_mut();
        assert_eq!((device.next_event(), device.next_event()), (Some(event), None));
    }
}

#[test]
fn address_that_comes_or_goes_is_an_event_of_the_device() {
    let ([mut near, _], _) = ends();
    let other = Ipv4Prefix::new(Ipv4Addr::new(192, 0, 2, 9), 24).unwrap();
    let ours = Ipv4Prefix::new(US, 24).unwrap();
    let changes = [
        (HostEvent::AddressRemoved(ours), Some(Event::GidChange)),
        (HostEvent::AddressAdded(other), Some(Event::GidChange)),
        (HostEvent::Mtu(1400), None),
        (HostEvent::AddressRemoved(other), Some(Event::GidChange)),
    ];
    for (change, event) in changes {
        near.port.with_app(|_, cx| cx.host.apply(change)).unwrap();
        near.port.poll();
        near.port.poll();
        let device = near.port.app_mut().device_mut();
        assert_eq!((device.next_event(), device.next_event()), (event, None), "{change:?}");
    }
}

#[test]
fn path_to_oneself_is_refused() {
    let ([mut near, _], _) = ends();
    assert_eq!(near.path(US), Err(PathError::Local(US)));
}

#[test]
fn packets_longer_than_the_link_carries_end_the_start() {
    // Some bytes short of 80 around 2048.
    let (device, _far) = pair("long", MemoryConfig { frame_len_max: 2120, ..MemoryConfig::default() });
    let port = Port::over(device).address([192, 0, 2, 1], 24).log(|_| ());
    let node = RoceNode::new(&DeviceConfig { mtu: Mtu::B2048, ..DeviceConfig::default() });
    let error = port.embed(node).err().expect("packets of 2048 bytes on a shorter link").to_string();
    assert!(error.contains("the interface's MTU of"), "{error}");
}

#[test]
fn counters_of_each_queue_pair_are_published() {
    let ([mut near, mut far], paths) = ends();
    let scope = near.port.scope("rdma");
    near.port.app_mut().count_in(&scope, 2);
    near.connect(paths[0], &far);
    far.connect(paths[1], &near);
    // No receive is there: the second one of these is answered by an RNR NAK.
    let write = SendOperation::Write(Remote { address: far.mr.address, rkey: far.mr.key });
    for operation in [write, SendOperation::Send] {
        let request = SendRequest::new(1, operation, Data::Inline(b"tick"));
        near.port.app_mut().device_mut().post_send(near.qp, &request).unwrap();
    }
    for _ in 0..8 {
        near.port.poll();
        far.port.poll();
    }
    let number = near.port.app().device().qpn(near.qp).unwrap().get();
    let End { port, qp, .. } = &mut near;
    port.with_app(App::on_stop);
    let count =
        |port: &EmbeddedPort<RoceNode, MemoryDevice>, name: &str| port.counters().count(&format!("rdma/{name}"));
    let published = ["qp0/number", "qp0/state", "qp0/rnr_naks_rx", "qp0/naks_rx/remote_access", "qp1/number"];
    let expected = [u64::from(number), QpState::Rts as u64, 1, 0, 0];
    assert_eq!(published.map(|name| count(port, name).unwrap()), expected);
    assert!(count(port, "qp0/packets_tx") >= Some(2));
    port.app_mut().device_mut().destroy_qp(*qp).unwrap();
    let sent = count(port, "qp0/packets_tx");
    port.with_app(App::on_stop);
    assert_eq!((count(port, "qp0/number"), count(port, "qp0/packets_tx")), (Some(0), sent), "the row counts on");
}
