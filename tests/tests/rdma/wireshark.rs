//! Wireshark's dissector reads the headers of each kind of packet as `rdma::wire` does, which
//! `wirepath capture` shows, the frames of a device over each version of RoCE, and the messages of
//! connections as `rdma::cm` does. Left out is what Wireshark 4.0 does not know: FLUSH and ATOMIC
//! WRITE, MRA, SIDR_REQ and SIDR_REP.

use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::process::Command;

use rdma::cm::{
    About, Drep, Dreq, IpHeader, Message, PortSpace, Rej, RejFields, RejectReason, Rep, RepFields, Req, ReqFields, Rtu,
};
use rdma::provider::Provider;
use rdma::roce::{
    Access, Addresses, Buffer, CqHandle, Data, Device, DeviceConfig, Link, Mr, Path, QpAttributes, QpHandle, QpOptions,
    Region, Remote, RoceFrame, SendOperation, SendRequest, Sge,
};
use rdma::wire::aeth::{Aeth, Nak, Syndrome};
use rdma::wire::bth::{Bth, BthFields};
use rdma::wire::extended::{AtomicEth, Deth, Reth};
use rdma::wire::icrc::{Network, icrc};
use rdma::wire::opcode::{Opcode, Operation, Transport};
use rdma::wire::packet::{Body, Packet};
use rdma::wire::psn::Psn;
use rdma::wire::qpn::Qpn;
use wirepath_tests::live::has_program;
use zerocopy::IntoBytes;

/// What is asked of the dissector, and by which names.
const FIELDS: [&str; 20] = [
    "infiniband.bth.opcode",
    "infiniband.bth.se",
    "infiniband.bth.m",
    "infiniband.bth.padcnt",
    "infiniband.bth.p_key",
    "infiniband.bth.destqp",
    "infiniband.bth.a",
    "infiniband.bth.psn",
    "infiniband.deth.q_key",
    "infiniband.deth.srcqp",
    "infiniband.reth.va",
    "infiniband.reth.r_key",
    "infiniband.reth.dmalen",
    "infiniband.atomiceth.swapdt",
    "infiniband.atomiceth.cmpdt",
    "infiniband.atomicacketh.origremdt",
    "infiniband.aeth.syndrome",
    "infiniband.aeth.msn",
    "infiniband.immdt",
    "infiniband.ieth",
];

/// A packet of this opcode with all headers that it has, in the order of the specification.
fn packet(opcode: Opcode, number: u32) -> Vec<u8> {
    let fields = BthFields {
        opcode,
        solicited: number.is_multiple_of(2),
        pad: 3,
        pkey: 0xffff,
        destination: Qpn::new(0x1234),
        ack_request: number.is_multiple_of(3),
        psn: Psn::new(0xff_ff00 + number),
    };
    let Some((transport, operation)) = opcode.operation() else {
        let bth = Bth::congestion_notification(0xffff, Qpn::new(0x1234));
        return [bth.as_bytes(), &[0; 16]].concat();
    };
    let mut bytes = Bth::new(&fields).as_bytes().to_vec();
    if transport == Transport::Ud {
        bytes.extend(Deth::new(0x1111_1111, Qpn::new(0x4321)).as_bytes());
    }
    if operation.has_reth() {
        bytes.extend(Reth::new(0x7f00_1234_5678, 0x0012_0001, 5).as_bytes());
    }
    if operation.has_atomic_eth() {
        bytes.extend(AtomicEth::new(0x7f00_1234_5678, 0x0012_0001, 1, 2).as_bytes());
    }
    if operation.has_aeth() {
        bytes.extend(Aeth::new(Syndrome::Nak(Nak::RemoteAccess), 0x123).as_bytes());
    }
    if operation == Operation::AtomicAcknowledge {
        bytes.extend([9; 8]);
    }
    if operation.has_imm() {
        bytes.extend([0, 0, 1, 2]);
    }
    if operation.has_ieth() {
        bytes.extend([0, 0, 0x12, 0]);
    }
    // Five bytes and their pad.
    bytes.extend([b'5', b'b', b'y', b't', b'e', 0, 0, 0]);
    bytes
}

/// A frame of RoCEv2 over IPv4.
fn frame(roce: &[u8]) -> Vec<u8> {
    let udp_len = (8 + roce.len() + 4) as u16;
    let ([a, b], [c, d]) = ((20 + udp_len).to_be_bytes(), udp_len.to_be_bytes());
    let ip = [0x45, 0, a, b, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    let udp = [0xc0, 0, 0x12, 0xb7, c, d, 0, 0];
    let sum = icrc(Network::Ipv4(&ip, &udp), roce).to_le_bytes();
    [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0][..], &ip, &udp, roce, &sum].concat()
}

/// The frames as a capture file.
fn capture(frames: &[Vec<u8>]) -> Vec<u8> {
    let word = |value: usize| (value as u32).to_le_bytes();
    // Magic, version 2.4, no zone, no accuracy, the longest frame, Ethernet.
    let mut file = [&0xa1b2_c3d4_u32.to_le_bytes()[..], &[2, 0, 4, 0], &[0; 8], &word(65_535), &word(1)].concat();
    for frame in frames {
        file.extend([[0; 4], [0; 4], word(frame.len()), word(frame.len())].concat());
        file.extend(frame);
    }
    file
}

/// What our parser finds, in the words of the dissector's fields.
fn ours(frame: &[u8]) -> Vec<String> {
    let packet = Packet::parse(RoceFrame::parse(frame).expect("RoCE").roce).expect("a packet");
    let bth = packet.bth;
    let flag = |is: bool| u8::from(is).to_string();
    let mut fields = vec![
        bth.opcode().0.to_string(),
        flag(bth.is_solicited()),
        flag(true),
        bth.pad().to_string(),
        bth.pkey().to_string(),
        format!("{:#08x}", bth.destination().get()),
        flag(bth.ack_request()),
        bth.psn().to_string(),
    ];
    let message = match packet.body {
        Body::Message(message) => Some(message),
        Body::CongestionNotification => None,
    };
    let or_none = |field: Option<String>| field.unwrap_or_default();
    let deth = message.and_then(|message| message.deth);
    let (reth, atomic) = (message.and_then(|message| message.reth), message.and_then(|message| message.atomic));
    let aeth = message.and_then(|message| message.aeth);
    // The dissector has one name for the address and the key of both.
    let place = reth.map(|reth| (reth.address(), reth.rkey()));
    let place = place.or_else(|| atomic.map(|atomic| (atomic.address(), atomic.rkey())));
    fields.push(or_none(deth.map(|deth| format!("{:#018x}", deth.qkey()))));
    fields.push(or_none(deth.map(|deth| format!("{:#010x}", deth.source().get()))));
    fields.push(or_none(place.map(|(address, _)| format!("{address:#018x}"))));
    fields.push(or_none(place.map(|(_, rkey)| format!("{rkey:#010x}"))));
    fields.push(or_none(reth.map(|reth| reth.len().to_string())));
    fields.push(or_none(atomic.map(|atomic| atomic.swap_or_add().to_string())));
    fields.push(or_none(atomic.map(|atomic| atomic.compare().to_string())));
    fields.push(or_none(message.and_then(|message| message.original).map(|value| value.to_string())));
    fields.push(or_none(aeth.map(|aeth| aeth.as_bytes()[0].to_string())));
    fields.push(or_none(aeth.map(|aeth| aeth.msn().to_string())));
    fields.push(or_none(message.and_then(|message| message.imm).map(|imm| format!("{:08x}", u32::from_be_bytes(imm)))));
    fields.push(or_none(message.and_then(|message| message.invalidated_rkey).map(|rkey| format!("{rkey:08x}"))));
    fields
}

/// Later versions of the dissector write a flag as a word.
fn number(value: &str) -> &str {
    match value {
        "True" => "1",
        "False" => "0",
        value => value,
    }
}

/// A line for each frame, with the values of the fields between bars.
fn dissect(frames: &[Vec<u8>], fields: &[&str]) -> String {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("roce.pcap");
    fs::write(&path, capture(frames)).expect("a capture");
    let fields = fields.iter().flat_map(|field| ["-e", field]);
    let options = ["-n", "-T", "fields", "-E", "separator=|", "-E", "occurrence=f", "-r"];
    let output = Command::new("tshark").args(options).arg(&path).args(fields).output().expect("tshark runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(text.lines().count(), frames.len(), "{}", String::from_utf8_lossy(&output.stderr));
    text
}

#[test]
fn dissector_agrees_on_each_kind_of_packet() {
    let test = "dissector_agrees_on_each_kind_of_packet";
    if !has_program(test, "tshark") {
        return;
    }
    let is_known = |opcode: &Opcode| {
        let operation = opcode.operation().map(|(_, operation)| operation);
        let unknown = [Operation::Flush, Operation::AtomicWrite];
        *opcode == Opcode::CNP || operation.is_some_and(|operation| !unknown.contains(&operation))
    };
    let opcodes: Vec<Opcode> = (0..=255).map(Opcode).filter(is_known).collect();
    let frames: Vec<Vec<u8>> = (0..).zip(&opcodes).map(|(number, opcode)| frame(&packet(*opcode, number))).collect();
    let text = dissect(&frames, &FIELDS);
    for ((opcode, frame), theirs) in opcodes.iter().zip(&frames).zip(text.lines()) {
        expect_same(frame, theirs, &opcode.to_string());
    }
}

/// The dissector's line about a frame has the fields that our parser finds.
fn expect_same(frame: &[u8], theirs: &str, name: &str) {
    let named: Vec<String> = FIELDS.iter().zip(ours(frame)).map(|(name, value)| format!("{name} {value}")).collect();
    let dissected: Vec<String> =
        FIELDS.iter().zip(theirs.split('|')).map(|(name, value)| format!("{name} {}", number(value))).collect();
    assert_eq!(dissected, named, "{name}");
}

/// What of a frame depends on the version of RoCE, and the ICRC.
const NETWORK: [&str; 8] = [
    "eth.type",
    "ip.src",
    "ip.dst",
    "ipv6.src",
    "ipv6.dst",
    "infiniband.grh.sgid",
    "infiniband.grh.dgid",
    "infiniband.invariant.crc",
];

/// The same in our words.
fn network(frame: &[u8], addresses: &Addresses) -> [String; 8] {
    let crc = format!("0x{:08x}", u32::from_be_bytes(*frame.last_chunk().expect("an ICRC")));
    let of = |ethertype: &str, at: usize, ends: [String; 2]| {
        let mut fields = [const { String::new() }; 8];
        fields[0] = ethertype.into();
        [fields[at], fields[at + 1]] = ends;
        fields[7] = crc;
        fields
    };
    match addresses {
        Addresses::Ipv4 { source, destination } => of("0x0800", 1, [source.to_string(), destination.to_string()]),
        Addresses::Ipv6 { source, destination } => of("0x86dd", 3, [source.to_string(), destination.to_string()]),
        Addresses::Grh { source, destination } => of("0x8915", 5, [source.to_string(), destination.to_string()]),
    }
}

/// A device with memory and a queue pair.
struct End {
    device: Device,
    cq: CqHandle,
    qp: QpHandle,
    mr: Mr,
    addresses: Addresses,
}

impl End {
    fn new(addresses: Addresses) -> Self {
        let mut device = Device::new(&DeviceConfig::default());
        let pd = device.create_pd().expect("a domain");
        let cq = device.create_cq(64).expect("a completion queue");
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let mr = device.register(pd, Region::from(&Buffer::zeroed(4096)), access).expect("a region");
        let options = QpOptions {
            transport: Transport::Rc,
            pd,
            send_cq: cq,
            recv_cq: cq,
            send_depth: 16,
            recv_depth: 16,
            srq: None,
            signals_all: true,
        };
        let qp = device.create_qp(&options).expect("a queue pair");
        Self { device, cq, qp, mr, addresses }
    }

    fn connect(&mut self, peer: Qpn) {
        let link = Link { destination: [2, 0, 0, 0, 0, 2], source: [2, 0, 0, 0, 0, 1], vlan: None };
        let path = Path::new(link, self.addresses);
        let access = Some(Access::REMOTE_WRITE | Access::REMOTE_READ);
        let attributes = QpAttributes { access, ..QpAttributes::connection(path, peer) };
        self.device.connect_qp(self.qp, Transport::Rc, &attributes).expect("the steps to RTS");
    }

    fn post(&mut self, operation: SendOperation, len: u32) {
        let sge = Sge { address: self.mr.address, len, lkey: self.mr.key };
        self.device.post_send(self.qp, &SendRequest::new(0, operation, Data::Sges(&[sge]))).expect("room");
    }

    fn frame(&mut self, now: u64) -> Option<Vec<u8>> {
        let mut frame = vec![0; self.device.frame_len_max()];
        let len = self.device.transmit(now, &mut frame)?;
        frame.truncate(len);
        Some(frame)
    }
}

/// The frames of a connection, each with the addresses that it must have: WRITEs and READs with
/// pads of each length, acknowledgments, a notification of congestion, and a SEND without a receive
/// with what it is answered by.
fn device_frames(there: Addresses, back: Addresses) -> Vec<(Vec<u8>, Addresses)> {
    let mut ends = [End::new(there), End::new(back)];
    let qpns = ends.each_ref().map(|end| end.device.qpn(end.qp).expect("a number"));
    ends[0].connect(qpns[1]);
    ends[1].connect(qpns[0]);
    let remote = Remote { address: ends[1].mr.address, rkey: ends[1].mr.key };
    for len in 8..12 {
        ends[0].post(SendOperation::Write(remote), len);
        ends[0].post(SendOperation::Read(remote), len);
    }
    ends[0].post(SendOperation::Send, 5);
    let (mut frames, mut now) = (Vec::new(), 0);
    // Each request is answered before the next. The SEND is asked for again after 640 µs.
    while now < 600_000 {
        let Some((from, mut frame)) = [1, 0].into_iter().find_map(|from| Some((from, ends[from].frame(now)?))) else {
            now += 1_000;
            ends.iter_mut().for_each(|end| end.device.on_timer(now));
            continue;
        };
        frames.push((frame.clone(), ends[from].addresses));
        if frames.len() == 1 {
            // CE, where the traffic class of IPv4 is, or of IPv6 and the GRH.
            frame[15] |= if matches!(there, Addresses::Ipv4 { .. }) { 0x03 } else { 0x30 };
        }
        let read = RoceFrame::parse(&frame).expect("RoCE");
        ends[1 - from].device.receive(now, read.network, read.roce);
    }
    let done = core::iter::from_fn(|| ends[0].device.poll_cq(ends[0].cq)).count();
    assert_eq!(done, 8, "all but the SEND");
    frames
}

#[test]
fn dissector_agrees_on_the_frames_of_a_device_over_each_version_of_roce() {
    let test = "dissector_agrees_on_the_frames_of_a_device_over_each_version_of_roce";
    if !has_program(test, "tshark") {
        return;
    }
    let gid = |last| Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, last);
    let ways: [fn(Ipv6Addr, Ipv6Addr) -> Addresses; 3] = [
        |source, _| if source.octets()[15] == 1 { there() } else { back() },
        |source, destination| Addresses::Ipv6 { source, destination },
        |source, destination| Addresses::Grh { source, destination },
    ];
    for way in ways {
        let frames = device_frames(way(gid(1), gid(2)), way(gid(2), gid(1)));
        let bytes: Vec<_> = frames.iter().map(|(frame, _)| frame.clone()).collect();
        let fields: Vec<&str> = FIELDS.into_iter().chain(NETWORK).collect();
        let text = dissect(&bytes, &fields);
        let (mut seen, mut icrcs) = (Vec::new(), 0);
        for ((frame, addresses), theirs) in frames.iter().zip(text.lines()) {
            let words = Packet::parse(RoceFrame::parse(frame).expect("RoCE").roce).expect("a packet").to_string();
            expect_same(frame, theirs, &words);
            let dissected: Vec<&str> = theirs.split('|').skip(FIELDS.len()).collect();
            let mut expected = network(frame, addresses);
            // Wireshark 4.0 names it of some kinds of packets alone.
            if dissected[7].is_empty() {
                expected[7].clear();
            } else {
                icrcs += 1;
            }
            assert_eq!(dissected, expected, "{words}");
            seen.push((ours(frame)[0].clone(), ours(frame)[3].clone(), ours(frame)[16].clone()));
        }
        assert!(icrcs >= 4, "{icrcs} ICRCs are named");
        let has = |opcode: &str, pad: &str, syndrome: fn(u8) -> bool| {
            seen.iter().any(|(a, b, c)| a == opcode && b == pad && c.parse().map_or(syndrome(0xff), syndrome))
        };
        let any = |_| true;
        for pad in ["0", "1", "2", "3"] {
            assert!(has("10", pad, any) && has("16", pad, any), "a WRITE and a READ's answer, pad {pad}: {seen:?}");
        }
        assert!(has("17", "0", |syndrome| syndrome < 32), "an acknowledgment: {seen:?}");
        assert!(has("17", "0", |syndrome| syndrome == 0x2c), "an RNR NAK: {seen:?}");
        assert!(has(CNP, "0", any), "a notification of congestion: {seen:?}");
    }
}

/// The opcode of a notification of congestion.
const CNP: &str = "129";

fn there() -> Addresses {
    Addresses::Ipv4 { source: NEAR, destination: FAR }
}

fn back() -> Addresses {
    Addresses::Ipv4 { source: FAR, destination: NEAR }
}

const NEAR: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const FAR: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

/// A datagram to queue pair 1.
fn mad_frame(mad: &[u8]) -> Vec<u8> {
    let fields = BthFields {
        opcode: Opcode::new(Transport::Ud, Operation::SendOnly),
        solicited: false,
        pad: 0,
        pkey: 0xffff,
        destination: Qpn::new(1),
        ack_request: false,
        psn: Psn::new(7),
    };
    let deth = Deth::new(0x8001_0000, Qpn::new(1));
    frame(&[Bth::new(&fields).as_bytes(), deth.as_bytes(), mad].concat())
}

/// The messages, each with values that differ.
fn mads() -> Vec<Vec<u8>> {
    let ([local_gid, remote_gid], psn) = ([NEAR, FAR].map(|address| address.to_ipv6_mapped()), Psn::new(0x12_3456));
    let transaction = 0x1122_3344_5566_7788;
    let req = ReqFields {
        transaction,
        local_comm_id: 0x0102_0304,
        service_id: PortSpace::Tcp.service_id(7174),
        ca_guid: 0x0203_0405_0607_0809,
        qpn: Qpn::new(0x11),
        responder_resources: 3,
        initiator_depth: 5,
        remote_response_timeout: 17,
        transport: 1,
        psn,
        local_response_timeout: 18,
        retry_cnt: 6,
        pkey: 0xffff,
        mtu: 3,
        rnr_retry: 5,
        cm_retries: 15,
        srq: true,
        local_gid,
        remote_gid,
        traffic_class: 0x2a,
        hop_limit: 64,
        ack_timeout: 14,
    };
    let rep = RepFields {
        transaction,
        local_comm_id: 0x0a0b_0c0d,
        remote_comm_id: 0x0102_0304,
        qpn: Qpn::new(0x22),
        psn,
        responder_resources: 4,
        initiator_depth: 2,
        ack_delay: 9,
        rnr_retry: 7,
        srq: true,
        ca_guid: 0x0908_0706_0504_0302,
    };
    let rej = RejFields {
        transaction,
        local_comm_id: 0x0a0b_0c0d,
        remote_comm_id: 0x0102_0304,
        about: About::Rep,
        reason: RejectReason::StaleConnection,
    };
    let addresses = IpHeader::new(49_152, local_gid, remote_gid);
    let (ours, theirs) = (0x0102_0304, 0x0a0b_0c0d);
    vec![
        Req::new(&req, addresses.as_bytes()).as_bytes().to_vec(),
        Rep::new(&rep, b"granted").as_bytes().to_vec(),
        Rtu::new(transaction, ours, theirs).as_bytes().to_vec(),
        Rej::new(&rej, b"info", b"refused").as_bytes().to_vec(),
        Dreq::new(transaction, ours, theirs, Qpn::new(0x22)).as_bytes().to_vec(),
        Drep::new(transaction, theirs, ours).as_bytes().to_vec(),
    ]
}

/// What our parser finds in a message, by the names of the dissector's fields.
fn parsed(mad: &[u8]) -> Vec<(&'static str, u64)> {
    match Message::parse(mad).expect("a message") {
        Message::Req(req) => parsed_req(&req.fields(), IpHeader::parse(req.private_data()).expect("addresses").port()),
        Message::Rep(rep) => {
            let fields = rep.fields();
            vec![
                ("mad.transactionid", fields.transaction),
                ("cm.rep", fields.local_comm_id.into()),
                ("cm.rep.remotecommid", fields.remote_comm_id.into()),
                ("cm.rep.localqpn", fields.qpn.get().into()),
                ("cm.rep.startpsn", fields.psn.get().into()),
                ("cm.rep.respres", fields.responder_resources.into()),
                ("cm.rep.initdepth", fields.initiator_depth.into()),
                ("cm.rep.tgtackdelay", fields.ack_delay.into()),
                ("cm.rep.failoveracc", 1),
                ("cm.rep.rnrretrcount", fields.rnr_retry.into()),
                ("cm.rep.srq", fields.srq.into()),
                ("cm.rep.localcaguid", fields.ca_guid),
            ]
        }
        Message::Rtu(rtu) => vec![
            ("mad.transactionid", rtu.transaction()),
            ("cm.rtu.localcommid", rtu.local_comm_id().into()),
            ("cm.rtu.remotecommid", rtu.remote_comm_id().into()),
        ],
        Message::Rej(rej) => {
            let fields = rej.fields();
            vec![
                ("mad.transactionid", fields.transaction),
                ("cm.rej.localcommid", fields.local_comm_id.into()),
                ("cm.rej.remotecommid", fields.remote_comm_id.into()),
                ("cm.rej.msgrej", fields.about as u64),
                ("cm.rej.rejinfolen", rej.info().len() as u64),
                ("cm.rej.reason", fields.reason.code().into()),
            ]
        }
        Message::Dreq(dreq) => vec![
            ("mad.transactionid", dreq.transaction()),
            ("cm.dreq.localcommid", dreq.local_comm_id().into()),
            ("cm.dreq.remotecommid", dreq.remote_comm_id().into()),
            ("cm.req.remoteqpneecn", dreq.remote_qpn().get().into()),
        ],
        Message::Drep(drep) => vec![
            ("mad.transactionid", drep.transaction()),
            ("cm.drsp.localcommid", drep.local_comm_id().into()),
            ("cm.drsp.remotecommid", drep.remote_comm_id().into()),
        ],
        other => panic!("{other:?} is not known to the dissector"),
    }
}

fn parsed_req(fields: &ReqFields, port: u16) -> Vec<(&'static str, u64)> {
    vec![
        ("mad.transactionid", fields.transaction),
        ("cm.req", fields.local_comm_id.into()),
        ("cm.req.serviceid", fields.service_id),
        ("cm.req.localcaguid", fields.ca_guid),
        ("cm.req.localqpn", fields.qpn.get().into()),
        ("cm.req.responderres", fields.responder_resources.into()),
        ("cm.req.initdepth", fields.initiator_depth.into()),
        ("cm.req.remoteresptout", fields.remote_response_timeout.into()),
        ("cm.req.transpsvctype", fields.transport.into()),
        ("cm.req.startpsn", fields.psn.get().into()),
        ("cm.req.localresptout", fields.local_response_timeout.into()),
        ("cm.req.retrcount", fields.retry_cnt.into()),
        ("cm.req.pkey", fields.pkey.into()),
        ("cm.req.pppmtu", fields.mtu.into()),
        ("cm.req.rnrretrcount", fields.rnr_retry.into()),
        ("cm.req.maxcmretr", fields.cm_retries.into()),
        ("cm.req.srq", fields.srq.into()),
        ("cm.req.prim_localgid_ipv4", four(fields.local_gid)),
        ("cm.req.prim_remotegid_ipv4", four(fields.remote_gid)),
        ("cm.req.prim_tfcclass", fields.traffic_class.into()),
        ("cm.req.prim_hoplim", fields.hop_limit.into()),
        ("cm.req.prim_localacktout", fields.ack_timeout.into()),
        ("cm.req.ip_cm.sport", port.into()),
        ("cm.req.ip_cm.sip4", four(fields.local_gid)),
        ("cm.req.ip_cm.dip4", four(fields.remote_gid)),
    ]
}

fn four(gid: Ipv6Addr) -> u64 {
    gid.to_ipv4_mapped().expect("an address of IPv4").to_bits().into()
}

/// The number that a value of the dissector is, in whatever way it is written.
fn read_number(value: &str) -> Option<u64> {
    let value = number(value);
    let hex = value.strip_prefix("0x").map(|hex| u64::from_str_radix(hex, 16).ok());
    let address = || value.parse::<Ipv4Addr>().ok().map(|address| address.to_bits().into());
    hex.unwrap_or_else(|| value.parse().ok().or_else(address))
}

#[test]
fn dissector_agrees_on_the_messages_of_connections() {
    let test = "dissector_agrees_on_the_messages_of_connections";
    if !has_program(test, "tshark") {
        return;
    }
    for mad in mads() {
        let ours = parsed(&mad);
        let names: Vec<String> = ours.iter().map(|(name, _)| format!("infiniband.{name}")).collect();
        let text = dissect(&[mad_frame(&mad)], &names.iter().map(String::as_str).collect::<Vec<_>>());
        let theirs: Vec<_> = text.trim_end_matches('\n').split('|').map(read_number).collect();
        let theirs: Vec<_> = ours.iter().map(|(name, _)| *name).zip(theirs).collect();
        let ours: Vec<_> = ours.into_iter().map(|(name, value)| (name, Some(value))).collect();
        assert_eq!(theirs, ours);
    }
}
