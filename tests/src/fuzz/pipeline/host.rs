//! A whole host and its network: frames of any bytes to ARP, ICMP, IGMP and UDP, its own frames
//! reflected to it, neighbors that reply too late or for others, sends to stations that may not
//! exist, groups joined and left, and time. The other target also changes the host: addresses,
//! routes, neighbors, MTU, MAC address, link.
//!
//! In every run each packet ends for a named reason, each buffer has an owner, the frames on the
//! wire are the sum of what each sender has counted, and no peer makes the host send more than its
//! limits allow.

use std::net::{Ipv4Addr, SocketAddrV4};

use wirepath::device::Device;
use wirepath::device::memory::MemoryDevice;
use wirepath::pipeline::{
    ArpConfig, EgressConfig, HostStack, HostStackConfig, UdpFlow, UdpOptions, UdpSent, host_stack,
};
use wirepath::proto::{Group, HostEvent, Ipv4Prefix, Route, Sharing};
use wirepath::time::Duration;
use wirepath::wire::arp::{ArpFields, ArpOperation, ArpPacket};
use wirepath::wire::ethernet::EthernetFrame;
use wirepath::wire::{EtherType, MacAddr};

use super::udp_stack::{GROUPS, PORTS, join, leave};
use crate::frames::{Frame, mend};
use crate::fuzz::Input;
use crate::rig::{OURS, PEER, PEER_STATION, Rig, RigConfig, SEED, STATION, consumer, drops, ipv4, sum, table};

/// The kind of a step: its first byte, by the remainder.
pub(in crate::fuzz) mod step {
    pub(crate) const FRAME: u8 = 0;
    pub(crate) const MENDED_FRAME: u8 = 1;
    pub(crate) const POLL: u8 = 2;
    pub(crate) const JOIN: u8 = 3;
    pub(crate) const LEAVE: u8 = 4;
    pub(crate) const SEND: u8 = 5;
    pub(crate) const ANSWER: u8 = 6;
    pub(crate) const REFLECT: u8 = 7;
    pub(crate) const EVENT: u8 = 8;
    /// Without events, and with them.
    pub(crate) const COUNT: u8 = EVENT;
    pub(crate) const COUNT_WITH_EVENTS: u8 = EVENT + 1;
}

/// Bytes that configure the rig, before the first step.
pub(in crate::fuzz) const CONFIG_LEN: usize = 3;
/// The possible durations of a step: none, a burst, fragments, an ARP request, an IGMP report, a
/// learned neighbor, all of them.
pub(in crate::fuzz) const SPANS_MS: [u64; 8] = [0, 0, 1, 20, 1_100, 3_000, 31_000, 700_000];
/// A station that is on the link and configured nowhere, our router, and a host behind it.
pub(in crate::fuzz) const STRANGER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 9);
const ROUTER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 254);
const FAR: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);
const REMOTES: [Ipv4Addr; 8] =
    [PEER, STRANGER, FAR, GROUPS[0], ROUTER, Ipv4Addr::new(10, 0, 0, 10), Ipv4Addr::new(10, 0, 0, 255), OURS];
const PAYLOAD_LENS: [usize; 8] = [0, 1, 1_472, 1_473, 3_000, 20_000, 65_507, 65_508];
/// Flows that are open at once.
const FLOWS_MAX: usize = 8;
/// The host's limits, which are the defaults: errors at once and a second, echoes at once.
const ERRORS_BURST: u64 = 50;
const ERRORS_PER_SECOND: u64 = 1_000;
const ECHOES_BURST: u64 = 1_000;

type HostRig = Rig<<MemoryDevice as Device>::Queue, HostStack>;

/// Steps without changes of the host.
pub(in crate::fuzz) fn host(data: &[u8]) {
    let mut input = Input::new(data);
    let mut scene = Scene::new(&mut input, &[128, 64, 16, 4, 2, 1], &[32, 256, 2]);
    while !input.is_empty() {
        let step = input.below(step::COUNT);
        scene.play(step, &mut input);
    }
    scene.end();
}

/// Steps with changes of the host. In the end the host is as before, and every flow has a path
/// again.
pub(in crate::fuzz) fn host_events(data: &[u8]) {
    let mut input = Input::new(data);
    // With fewer buffers than frames that may wait, the waiting frames leave no buffer for the
    // reply that they wait for.
    let mut scene = Scene::new(&mut input, &[256, 128], &[64, 256]);
    while !input.is_empty() {
        let step = input.below(step::COUNT_WITH_EVENTS);
        scene.play(step, &mut input);
    }
    scene.restore();
    scene.assert_flows_recover();
    scene.end();
}

/// The nodes of a host, with the rig's settings for IPv4.
pub(in crate::fuzz) fn config(config: RigConfig) -> HostStackConfig {
    HostStackConfig { ipv4: ipv4(config.reassembly), arp: ArpConfig::new(SEED), ..HostStackConfig::new(SEED) }
}

struct Scene {
    rig: HostRig,
    flows: Vec<UdpFlow>,
    /// The last frames that the host has sent, to be reflected to it.
    sent: Vec<Vec<u8>>,
    passed_ms: u64,
    slots: u64,
}

impl Scene {
    fn new(input: &mut Input<'_>, buffers: &[usize], slots: &[u32]) -> Self {
        let rig_config = RigConfig {
            buffers: input.pick(buffers),
            slots: input.pick(slots),
            answers: input.u8() & 1 == 1,
            ..RigConfig::default()
        };
        let mut rig = Rig::with_nodes(
            rig_config,
            |wire| wire,
            EgressConfig::host(SEED),
            |host, scope| host_stack(config(rig_config), host, scope),
        );
        rig.with_app(|_, cx| {
            let by_router = Route { network: Ipv4Prefix::ALL, gateway: Some(ROUTER), source: OURS, metric: 0 };
            cx.host.apply(HostEvent::RouteAdded(by_router)).expect("there is room");
            cx.sockets.join(consumer(0), Group::new(GROUPS[0], PORTS[0])).expect("there is room");
            cx.sockets.bind(consumer(1), SocketAddrV4::new(OURS, PORTS[0]), Sharing::Shared).expect("there is room");
        });
        Self { rig, flows: Vec::new(), sent: Vec::new(), passed_ms: 0, slots: rig_config.slots.into() }
    }

    fn play(&mut self, step: u8, input: &mut Input<'_>) {
        match step {
            step::FRAME => drop(self.rig.inject(input.block())),
            step::MENDED_FRAME => {
                let mut frame = input.block().to_vec();
                mend(&mut frame);
                self.rig.inject(&frame);
            }
            step::POLL => {
                let kind = input.u8();
                self.pass(Duration::from_millis(SPANS_MS[usize::from(kind) % SPANS_MS.len()]));
                // Reading all counters costs hundreds of polls.
                if kind.is_multiple_of(3) {
                    self.check();
                }
            }
            step::JOIN => join(input, &mut self.rig),
            step::LEAVE => leave(input, &mut self.rig),
            step::SEND => self.send(input),
            step::ANSWER => self.answer(input),
            step::REFLECT => self.reflect(input),
            _ => self.change(input),
        }
    }

    fn pass(&mut self, span: Duration) {
        self.passed_ms += span.as_nanos() / 1_000_000;
        self.rig.poll(span);
    }

    fn check(&self) {
        self.rig.assert_conserved();
        self.assert_bounded();
    }

    /// Sends by a flow, new or old. Whatever comes of it, it is posted, waits, or an error.
    fn send(&mut self, input: &mut Input<'_>) {
        let (place, remote, kind) = (usize::from(input.below(FLOWS_MAX as u8)), input.pick(&REMOTES), input.u8());
        let options = UdpOptions { dont_fragment: kind & 1 == 1, ..UdpOptions::default() };
        let payload = vec![7; input.pick(&PAYLOAD_LENS)];
        let local = SocketAddrV4::new(if kind & 2 == 0 { Ipv4Addr::UNSPECIFIED } else { OURS }, 5_000);
        let flows = &mut self.flows;
        let outcome = self.rig.with_app(|_, cx| {
            if place >= flows.len() {
                flows.push(UdpFlow::connect(local, SocketAddrV4::new(remote, 5_001), &options, cx).ok()?);
            }
            flows.get_mut(place).map(|flow| flow.send(&payload, cx))
        });
        if let Some(Ok(_)) = outcome {
            assert!(payload.len() <= 65_507, "nobody takes a datagram of {} bytes", payload.len());
        }
    }

    /// Takes the sent frames off the wire, and answers the requests among them, correctly or nearly
    /// so.
    fn answer(&mut self, input: &mut Input<'_>) {
        let (twist, value) = (input.u8(), input.u8());
        let mut answers = Vec::new();
        self.sent.clear();
        let sent = &mut self.sent;
        self.rig.take_sent(|frame| {
            sent.push(frame.to_vec());
            answers.extend(arp_answer(frame, twist, value));
        });
        for answer in answers {
            self.rig.inject(&answer);
        }
    }

    /// The network returns a frame that the host sent, from the host's MAC address or another one.
    fn reflect(&mut self, input: &mut Input<'_>) {
        let turns = input.u8();
        self.sent.clear();
        let sent = &mut self.sent;
        self.rig.take_sent(|frame| sent.push(frame.to_vec()));
        for frame in &mut self.sent {
            if turns & 1 == 1 {
                frame[..6].copy_from_slice(&STATION.0);
                frame[6..12].copy_from_slice(&PEER_STATION.0);
            }
            if turns & 2 == 2 && frame.len() >= 34 {
                let (source, destination) =
                    ([frame[26], frame[27], frame[28], frame[29]], [frame[30], frame[31], frame[32], frame[33]]);
                frame[26..30].copy_from_slice(&destination);
                frame[30..34].copy_from_slice(&source);
            }
            self.rig.inject(frame);
        }
    }

    /// Changes the interface. The host refuses changes that it has no room for or that are invalid.
    fn change(&mut self, input: &mut Input<'_>) {
        let event = event(input);
        self.rig.with_app(|_, cx| {
            let before = cx.host.changes();
            let is_refused = cx.host.apply(event).is_err();
            let is_moved = cx.host.changes() != before;
            // One that is learned again, or is configured, is no news.
            let may_stay = is_refused || matches!(event, HostEvent::NeighborLearned { .. });
            assert!(if is_moved { !is_refused } else { may_stay }, "{event:?}");
            assert!(cx.host.mtu() >= 68 && cx.host.mac().is_unicast());
            assert!(cx.host.routes().iter().all(|route| cx.host.is_own(route.source)), "{:?}", cx.host.routes());
        });
    }

    /// Restores the host's former state.
    fn restore(&mut self) {
        self.rig.with_app(|_, cx| {
            while let Some(own) = cx.host.addresses().first() {
                cx.host.apply(HostEvent::AddressRemoved(*own)).expect("whatever is there can go");
            }
            assert!(cx.host.routes().is_empty(), "a route sends from no address of ours: {:?}", cx.host.routes());
            let network = Ipv4Prefix::new(OURS, 24).expect("24 bits are a prefix");
            let by_router = Route { network: Ipv4Prefix::ALL, gateway: Some(ROUTER), source: OURS, metric: 0 };
            for address in REMOTES {
                cx.host.apply(HostEvent::NeighborRemoved(address)).expect("a neighbor can always go");
            }
            for event in [
                HostEvent::Link { is_up: true },
                HostEvent::Mtu(1_500),
                HostEvent::Mac(STATION),
                HostEvent::AddressAdded(network),
                HostEvent::RouteAdded(by_router),
            ] {
                cx.host.apply(event).expect("there is room, as there was before");
            }
        });
    }

    /// With the way back and neighbors that answer, every flow sends again within seconds.
    fn assert_flows_recover(&mut self) {
        for round in 0..80 {
            // A path's MTU and groups' reports have other deadlines; frames that wait for neighbors
            // end within seconds.
            self.pass(Duration::from_millis(500));
            for _ in 0..4 {
                self.answer(&mut Input::new(&[]));
                self.pass(Duration::ZERO);
            }
            let flows = &mut self.flows;
            let lost = self.rig.with_app(|_, cx| {
                let send = |flow: &mut UdpFlow| match flow.send(&[], cx) {
                    Ok(UdpSent::Posted) => None,
                    _ if cx.host.is_own(*flow.remote().ip()) => None,
                    other => Some(format!("{} to {}: {other:?}", flow.local(), flow.remote())),
                };
                flows.iter_mut().find_map(send)
            });
            match lost {
                None => return,
                Some(lost) if round == 79 => panic!("a flow has not found its way back: {lost}"),
                Some(_) => {}
            }
        }
    }

    /// All that waits runs out of time; then the books are closed.
    fn end(&mut self) {
        self.flows.clear();
        for _ in 0..30 {
            self.rig.take_sent(|_| ());
            self.pass(Duration::from_secs(1));
        }
        self.check();
        self.rig.settle();
        self.rig.assert_rx_settled(0);
        self.assert_bounded();
        assert_eq!(self.rig.worker.pool().in_use(), self.rig.worker.kept(), "the wire is empty");
    }

    /// No peer makes the host send more than its limits allow.
    fn assert_bounded(&self) {
        let snapshot = self.rig.snapshot();
        let sum = |suffix: &str| sum(&snapshot, suffix);
        let errors_max = ERRORS_BURST + self.passed_ms * ERRORS_PER_SECOND / 1_000 + 1;
        assert!(sum("/icmp_errors/sent") <= errors_max, "{}", table(&snapshot));
        assert!(sum("/icmp/echoes_answered") <= sum("/icmp/messages").min(ECHOES_BURST + self.passed_ms * 100 + 1));
        assert!(sum("/arp/answered") <= sum("/arp/packets"));
        let igmp = sum("/igmp/reports_sent") + sum("/igmp/leaves_sent");
        assert!(igmp <= 4 * sum("worker0/polls"), "{}", table(&snapshot));
        // Long frames on the wire are still the worker's buffers.
        assert!(self.rig.worker.pool().in_use() >= self.rig.worker.kept(), "{}", table(&snapshot));

        // The frames on the wire are those that each sender has counted; only a long echo takes
        // several frames.
        let waited = drops(&snapshot, |drop| drop.name.contains("/neighbors/")) + sum("/neighbors/waiting");
        let others = sum("/egress/frames") - waited
            + sum("/neighbors/requests")
            + sum("/arp/answered")
            + sum("/arp/announcements_sent")
            + sum("/icmp_errors/sent")
            + igmp;
        let posted = sum("/device/tx/frames") + drops(&snapshot, |drop| drop.name.contains("/device/tx/"));
        let echoes = sum("/icmp/echoes_answered");
        let echo_frames = posted.checked_sub(others).unwrap_or_else(|| panic!("{}", table(&snapshot)));
        assert!((echoes..=echoes * self.slots).contains(&echo_frames), "{echo_frames} {}", table(&snapshot));
    }
}

/// The reply to an ARP request among our frames, correct or with one field changed.
fn arp_answer(frame: &[u8], twist: u8, value: u8) -> Option<Vec<u8>> {
    let asked = EthernetFrame::parse(frame).ok().filter(|frame| frame.ethertype == EtherType::ARP)?;
    let (question, _) = ArpPacket::parse(frame.get(asked.header_len()..)?).ok()?;
    // A station that announces itself requests no other one.
    if question.operation() != ArpOperation::Request || question.target_ip() == question.sender_ip() {
        return None;
    }
    let mut fields = ArpFields {
        operation: ArpOperation::Reply,
        sender_mac: MacAddr([2, 0, 0, 0, 1, question.target_ip().octets()[3]]),
        sender_ip: question.target_ip(),
        target_mac: question.sender_mac(),
        target_ip: question.sender_ip(),
    };
    match twist % 8 {
        0..4 => {}
        4 => fields.sender_mac = MacAddr([value, 0, 0, 0, 0, 3]),
        5 => fields.sender_ip = REMOTES[usize::from(value) % REMOTES.len()],
        6 => fields.operation = ArpOperation::Request,
        _ => return None,
    }
    let mut packet = [0; 28];
    ArpPacket::new(&fields).emit(&mut packet).ok()?;
    Some(Frame::to(OURS, 0, &[]).link(EtherType::ARP, &packet))
}

fn event(input: &mut Input<'_>) -> HostEvent {
    const ADDRESSES: [Ipv4Addr; 6] =
        [OURS, Ipv4Addr::new(10, 0, 0, 3), Ipv4Addr::new(10, 0, 1, 1), PEER, FAR, Ipv4Addr::UNSPECIFIED];
    let prefix = |input: &mut Input<'_>| {
        let (address, len) = (input.pick(&ADDRESSES), input.pick(&[24, 24, 16, 32, 31, 8, 0]));
        Ipv4Prefix::new(address, len).expect("at most 32 bits")
    };
    let mac = MacAddr([2, 0, 0, 0, 0, 4]);
    match input.below(12) {
        0 => HostEvent::AddressAdded(prefix(input)),
        1 => HostEvent::AddressRemoved(prefix(input)),
        2 => {
            let gateway = input.pick(&[None, Some(ROUTER), Some(PEER), Some(FAR), Some(OURS)]);
            let (source, metric) = (input.pick(&ADDRESSES), input.below(3).into());
            HostEvent::RouteAdded(Route { network: prefix(input), gateway, source, metric })
        }
        3 => HostEvent::RouteRemoved { network: prefix(input), metric: input.below(3).into() },
        4 => HostEvent::NeighborSet { address: input.pick(&REMOTES), mac },
        5 => {
            let until = wirepath::time::Instant::from_nanos(input.u64());
            HostEvent::NeighborLearned { address: input.pick(&REMOTES), mac, until }
        }
        6 => HostEvent::NeighborRemoved(input.pick(&REMOTES)),
        7 => HostEvent::Mtu(input.pick(&[1_500, 68, 67, 552, 576, 1_280, 9_000, 65_535, 0, usize::MAX])),
        8 => HostEvent::Mac(input.pick(&[STATION, mac, PEER_STATION, MacAddr::BROADCAST, MacAddr::ZERO])),
        9 | 10 => HostEvent::Link { is_up: input.u8() & 1 == 0 },
        _ => HostEvent::RouteRemoved { network: Ipv4Prefix::ALL, metric: 0 },
    }
}
