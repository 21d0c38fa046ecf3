//! Where a fuzzer begins: inputs of the project's own emitters, a few for each target.

use std::io::Write;
use std::net::Ipv4Addr;

use exchange_sim::{Feed, Settings, write_capture};
use flate2::Compression;
use flate2::write::GzEncoder;
use market::framing::cboe_unit::{CboeUnit, UnitHeader};
use market::framing::iex_tp::{IexHeader, IexTp};
use market::framing::itch_file::{ItchFile, RunHeader};
use market::framing::mold_udp64::{MoldHeader, MoldUdp64, Request};
use market::framing::{Framing, PacketWriter};
use market::iex::{deep10, tops16};
use market::pitch;
use wirepath::counters::{Block, Capacity, Unit};
use wirepath::wire::arp::{ArpFields, ArpOperation, ArpPacket};
use wirepath::wire::icmpv4::{Echo, Icmpv4Message, TimeExceeded, Unreachable};
use wirepath::wire::igmp::{IgmpMessage, IgmpQuery, IgmpSources, IgmpVersion, RecordKind, ReportWriter};
use wirepath::wire::ipv4::{Ipv4Fields, Ipv4Header, Ipv4Option};
use wirepath::wire::tcp::{TcpFields, TcpFlags, TcpHeader, TcpOption, TcpOptionList, Timestamps};
use wirepath::wire::{EtherType, MacAddr, Protocol, VlanTag, VlanTags};

use super::pipeline::udp_stack::{CONFIG_LEN, GROUPS, PORTS, step};
use super::pipeline::{host, trunk};
use crate::frames::Frame;
use crate::mutate::Random;
use crate::rig::{OURS, PEER, PEER_STATION};

const ROOM: &str = "the buffer is large enough";

fn datagrams() -> Vec<Frame> {
    let plain = Frame::to(GROUPS[0], PORTS[0], b"a datagram");
    let tag = VlanTag::new(20).with_pcp(5);
    let service = VlanTag::from_tci(EtherType::QINQ, 7);
    vec![
        Frame { tags: VlanTags::single(tag), ..plain.clone() },
        Frame { tags: VlanTags::double([service, tag]), ..plain.clone() },
        Frame { options: Ipv4Option::ROUTER_ALERT.to_vec(), ..plain.clone() },
        Frame { options: vec![1, 1, 0x83, 7, 4, 10, 0, 0, 9, 0, 0, 0], ..plain.clone() },
        Frame::to(OURS, PORTS[0], &[]),
        plain,
    ]
}

pub(super) fn frames() -> Vec<Vec<u8>> {
    let mut frames: Vec<_> = datagrams().iter().map(Frame::emit).collect();
    frames.extend(arp().iter().map(|packet| Frame::to(Ipv4Addr::BROADCAST, 0, &[]).link(EtherType::ARP, packet)));
    frames.push(b"02:00:5e:10:00:01".to_vec());
    frames
}

pub(super) fn arp() -> Vec<Vec<u8>> {
    [ArpOperation::Request, ArpOperation::Reply]
        .map(|operation| {
            let (sender_mac, target_mac) = (PEER_STATION, MacAddr::ZERO);
            let mut bytes = vec![0; 46];
            let fields = ArpFields { operation, sender_mac, sender_ip: PEER, target_mac, target_ip: OURS };
            ArpPacket::new(&fields).emit(&mut bytes).expect(ROOM);
            bytes
        })
        .into()
}

/// Without the link header.
pub(super) fn ipv4() -> Vec<Vec<u8>> {
    let untagged = datagrams().into_iter().map(|frame| Frame { tags: VlanTags::NONE, ..frame });
    untagged
        .flat_map(|frame| [vec![frame.emit()], frame.fragments(8)].concat())
        .map(|frame| frame[14..].to_vec())
        .collect()
}

/// Without the IPv4 header.
pub(super) fn udp() -> Vec<Vec<u8>> {
    let datagrams = [&b"a datagram"[..], b"odd", b""].map(|payload| Frame::to(GROUPS[0], PORTS[0], payload));
    datagrams.map(|frame| frame.emit()[34..].to_vec()).into()
}

pub(super) fn icmpv4() -> Vec<Vec<u8>> {
    let (quoted, data) = (&Frame::to(OURS, 1, b"12345678").emit()[14..], &b"ping"[..]);
    let echo = Echo { identifier: 1, sequence: 2, data };
    let messages = [
        Icmpv4Message::EchoRequest(echo),
        Icmpv4Message::EchoReply(echo),
        Icmpv4Message::DestinationUnreachable { code: Unreachable::FragmentationNeeded { mtu: 1400 }, quoted },
        Icmpv4Message::TimeExceeded { code: TimeExceeded::Ttl, quoted },
        Icmpv4Message::ParameterProblem { code: 0, pointer: 9, quoted },
        Icmpv4Message::Other { kind: 13, code: 0, rest: [0; 4], payload: data },
    ];
    messages.map(|message| written(|bytes| message.emit(bytes).expect(ROOM))).into()
}

pub(super) fn igmp() -> Vec<Vec<u8>> {
    let sources = [[10, 0, 0, 7], [10, 0, 0, 8]];
    let query = |version, sources| {
        let (group, max_response_tenths) = (GROUPS[0], 100);
        let query =
            IgmpQuery { version, group, max_response_tenths, suppress: true, robustness: 2, interval_s: 125, sources };
        written(|bytes| IgmpMessage::Query(query).emit(bytes).expect(ROOM))
    };
    let report = written(|bytes| {
        let mut report = ReportWriter::new(bytes).expect(ROOM);
        report.push(RecordKind::ChangeToExclude, GROUPS[0], []).expect(ROOM);
        report.push(RecordKind::AllowNewSources, GROUPS[1], sources.map(Ipv4Addr::from)).expect(ROOM);
        report.finish()
    });
    vec![
        query(IgmpVersion::V1, IgmpSources::NONE),
        query(IgmpVersion::V2, IgmpSources::NONE),
        query(IgmpVersion::V3, IgmpSources::new(&sources)),
        written(|bytes| IgmpMessage::ReportV2(GROUPS[0]).emit(bytes).expect(ROOM)),
        written(|bytes| IgmpMessage::Leave(GROUPS[0]).emit(bytes).expect(ROOM)),
        report,
    ]
}

pub(super) fn tcp() -> Vec<Vec<u8>> {
    let mut syn = TcpOptionList::EMPTY;
    let timestamps = TcpOption::Timestamps(Timestamps { value: 1, echo_reply: 2 });
    for option in [TcpOption::MaximumSegmentSize(1460), TcpOption::SackPermitted, TcpOption::WindowScale(7), timestamps]
    {
        syn.push(option).expect("a SYN has room for its options");
    }
    [&[][..], syn.as_bytes()]
        .map(|options| {
            let fields = TcpFields {
                source_port: 1,
                destination_port: 2,
                seq: 3,
                ack: 4,
                flags: TcpFlags::SYN | TcpFlags::ACK,
                window: 500,
                urgent_pointer: 0,
            };
            let header = TcpHeader::new(&fields, options).expect("options of whole words");
            written(|bytes| header.emit(options, bytes).expect(ROOM))
        })
        .into()
}

fn written(emit: impl FnOnce(&mut [u8]) -> usize) -> Vec<u8> {
    let mut bytes = vec![0; 128];
    let len = emit(&mut bytes);
    bytes.truncate(len);
    bytes
}

/// The smallest day of the exchange simulator.
fn day() -> Settings {
    Settings { symbols: 1, messages: 40, ..Settings::default() }
}

pub(super) fn pcap() -> Vec<Vec<u8>> {
    let mut capture = Vec::new();
    write_capture(&day(), &mut capture).expect("memory takes every write");
    capture.truncate(2_000);
    let words = |words: &[u32], to_bytes: fn(u32) -> [u8; 4]| -> Vec<u8> {
        words.iter().flat_map(|&word| to_bytes(word)).chain(*b"abcd").collect()
    };
    // Microseconds, in the two byte orders.
    let classic = [0xa1b2_c3d4, 2 << 16 | 4, 0, 0, 65_535, 1, 1, 2, 4, 60];
    let little = [0xa1b2_c3d4, 4 << 16 | 2, 0, 0, 65_535, 1, 1, 2, 4, 60];
    vec![capture, words(&classic, u32::to_be_bytes), words(&little, u32::to_le_bytes)]
}

/// A section, an interface with a resolution of its own, an enhanced, a simple and an unknown
/// block.
pub(super) fn pcapng() -> Vec<Vec<u8>> {
    let resolution = |ns: [u8; 4]| u32::from_ne_bytes(ns);
    let file = |to_bytes: fn(u32) -> [u8; 4], option: u32| -> Vec<u8> {
        let section = [0x0a0d_0d0a, 28, 0x1a2b_3c4d, 1, u32::MAX, u32::MAX, 28];
        let interface = [1, 32, 1, 65_535, option, resolution([9, 0, 0, 0]), 0, 32];
        let enhanced = [6, 36, 0, 0, 1_000_000, 4, 60, 0x6463_6261, 36];
        let simple = [3, 20, 60, 0x6463_6261, 20];
        let unknown = [0x0bad, 16, 7, 16];
        let blocks = [&section[..], &interface, &enhanced, &unknown, &simple];
        blocks.concat().into_iter().flat_map(to_bytes).collect()
    };
    vec![file(u32::to_le_bytes, 1 << 16 | 9), file(u32::to_be_bytes, 9 << 16 | 1)]
}

pub(super) fn pcap_gzip() -> Vec<Vec<u8>> {
    let mut plain = [pcap(), pcapng()].concat();
    plain[0].truncate(400);
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(&plain[0]).expect("memory takes every write");
    plain.push(encoder.finish().expect("memory takes every write"));
    plain
}

/// The packets of the day, the end of the session among them.
pub(super) fn mold_udp64() -> Vec<Vec<u8>> {
    let feed = Feed::new(&day()).expect("the settings are sound");
    let mut payloads: Vec<_> = feed.map(|delivery| delivery.packet.payload.to_vec()).collect();
    payloads.dedup();
    payloads.truncate(4);
    let heartbeat =
        PacketWriter::<MoldUdp64>::new(MoldHeader::new(*b"SESSION001", 9), &mut [0; 20]).expect(ROOM).finish().to_vec();
    payloads.push(heartbeat);
    payloads.push(MoldHeader::emit_end_of_session(*b"SESSION001", 9).to_vec());
    payloads
}

/// Requests, one of them a byte too long.
pub(super) fn mold_request() -> Vec<Vec<u8>> {
    let whole = Request { session: *b"SESSION001", seq: 5, count: 40 }.emit().to_vec();
    let long = [&whole[..], &[0]].concat();
    vec![whole, long]
}

pub(super) fn iex_tp() -> Vec<Vec<u8>> {
    let raw =
        IexHeader { protocol: IexHeader::TOPS_1_6, channel: 1, session: 2, count: 0, offset: 0, seq: 1, sent_ns: 5 };
    let few = messages(&tops16::Message::LENGTHS[..3], 0);
    vec![packet::<IexTp>(raw, &few), packet::<IexTp>(raw, &[])]
}

pub(super) fn cboe_unit() -> Vec<Vec<u8>> {
    let raw = UnitHeader { unit: 1, count: 0, seq: 3 };
    let few = messages(&pitch::Message::LENGTHS[..3], 1);
    vec![packet::<CboeUnit>(raw, &few), packet::<CboeUnit>(raw, &[])]
}

/// The messages of the day as a file, and the same with the mark at its end.
pub(super) fn itch_file() -> Vec<Vec<u8>> {
    let payloads = mold_udp64();
    let packets = payloads.iter().filter_map(|payload| MoldUdp64::parse(payload).ok());
    let messages: Vec<_> = packets.flat_map(|packet| packet.messages()).map(<[u8]>::to_vec).collect();
    let file = packet::<ItchFile>(RunHeader::default(), &messages);
    let with_mark = [&file[..100.min(file.len())], &[0, 0]].concat();
    vec![file, with_mark]
}

pub(super) fn pitch() -> Vec<Vec<u8>> {
    vec![packet::<ItchFile>(RunHeader::default(), &messages(pitch::Message::LENGTHS, 1))]
}

pub(super) fn tops16() -> Vec<Vec<u8>> {
    vec![packet::<ItchFile>(RunHeader::default(), &messages(tops16::Message::LENGTHS, 0))]
}

pub(super) fn deep10() -> Vec<Vec<u8>> {
    vec![packet::<ItchFile>(RunHeader::default(), &messages(deep10::Message::LENGTHS, 0))]
}

/// One message of each type, zeros except for the type at `kind_at`, with the length before it if
/// that is not 0.
fn messages(lengths: &[(u8, usize)], kind_at: usize) -> Vec<Vec<u8>> {
    let message = |&(kind, len): &(u8, usize)| {
        let mut bytes = vec![0; len];
        bytes[0] = len as u8;
        bytes[kind_at] = kind;
        bytes
    };
    lengths.iter().map(message).collect()
}

fn packet<F: Framing>(raw: F::Raw, messages: &[Vec<u8>]) -> Vec<u8> {
    let mut out = vec![0; 4_096];
    let mut writer = PacketWriter::<F>::new(raw, &mut out).expect(ROOM);
    for message in messages {
        writer.push(message).expect(ROOM);
    }
    writer.finish().to_vec()
}

/// Plans for the targets that read their input as a list of operations.
pub(super) fn plans() -> Vec<Vec<u8>> {
    let mut random = Random::new(1);
    [16, 100, 400, 400].map(|len| random.bytes(len)).into()
}

/// A shared file with one value of each kind.
pub(super) fn counters() -> Vec<Vec<u8>> {
    let folder = tempfile::tempdir().expect("the temporary directory takes a folder");
    let block = Block::create_in(folder.path(), "seed", Capacity { entries: 4, values: 2400 }).expect("a fit name");
    let scope = block.scope("worker0");
    scope.counter("frames", Unit::Frames).add(5);
    scope.gauge("in_use", Unit::Mbufs).set(7);
    scope.text("device", "wire.1");
    scope.histogram("burst_ns", Unit::Nanoseconds).record(100);
    let path = block.path().expect("the block is a file");
    vec![std::fs::read(path).expect("the file was just made")]
}

/// The example of the documentation, and a libvma.conf with all that it can say.
pub(super) fn socket_rules() -> Vec<Vec<u8>> {
    let ours = include_bytes!("../../../docs/socket-rules.toml").to_vec();
    let vma =
        b"log min-level 9 destination stderr\napplication-id tcp_lat B1\nuse vma tcp_client 192.168.1.0/24:*:*:*\n\
        use os tcp_server *:5001\napplication-id * *\nuse os udp_connect *:53\nuse sdp udp_sender 239.1.1.1:7-9 # c\n";
    vec![ours, vma.to_vec()]
}

/// The example of the documentation, and one with names and lists.
pub(super) fn broker_rules() -> Vec<Vec<u8>> {
    let example = include_bytes!("../../../docs/broker-rules.toml").to_vec();
    let names = b"allow = [{ user = ['trader', 7], group = \"trading\", program = ['/bin/a', '/bin/'], queues = 128, \
        interface = ['eth0', 'eth1'], ports = ['1', 'tcp 2-3'], addresses = '0.0.0.0/0', multicast = '239.0.0.1/8' }]\n";
    vec![example, names.to_vec()]
}

pub(super) fn feed_config() -> Vec<Vec<u8>> {
    let whole = br#"[worker]
cpu = 1
burst = 32
hugepages = "require"
[device]
pace = "10x"
frame_len_max = 1522
[checksums]
udp = "verify"
[arbitration]
first = "anywhere"
window_packets = 64
window_us = 1000
[books]
orders = 1000
[[channels]]
name = "tops"
format = "iex-tops"
lines = [
    { group = "233.215.21.3", port = 10377, vlan = 20, sources = ["198.51.100.1"] },
    { name = "B", group = "233.215.21.131", port = 10377 },
]
"#;
    let live = br#"[port]
interface = "eth1"
queues = [0, 2]
mode = "native"
copying = "zero-copy"
rx_ring = 2048
tx_ring = 256
owner = "dedicated"
igmp = "off"
vlan = 20
[host]
addresses = ["10.0.0.2/24"]
gateway = "10.0.0.254"
takes = "everything"
routes = [{ network = "192.0.2.0/24", via = "10.0.0.253" }]
neighbors = [{ address = "10.0.0.254", mac = "02:00:00:00:00:fe" }]
[[channels]]
name = "itch"
format = "mold-itch50"
queue = 2
lines = [{ group = "233.54.12.111", port = 26477 }]
"#;
    let shared = b"[port]\ninterface = \"veth0\"\nigmp = \"worker\"\n[host]\naddresses = []\n";
    let wrong = b"[worker]\nbrust = 1\n[[channels]]\nlines = [{ group = \"10.0.0.1\", port = 0 }]\n";
    vec![whole.to_vec(), wrong.to_vec(), b"# nothing\n".to_vec(), live.to_vec(), shared.to_vec()]
}

pub(super) fn steering() -> Vec<Vec<u8>> {
    let frame = Frame::to(GROUPS[0], PORTS[0], b"a datagram");
    let tagged = Frame { tags: VlanTags::single(VlanTag::new(20)), ..frame.clone() };
    let port = PORTS[0].to_be_bytes();
    // EtherType, destination, protocol and destination port; then the VLAN as well.
    let by_group = [&[0b1011_0100, 0][..], &GROUPS[0].octets(), &[0], &port, &[0; 4], &frame.emit()].concat();
    let on_vlan = [&[0b0000_0110, 0, 20, 0][..], &[0; 4], &tagged.emit()].concat();
    vec![by_group, on_vlan]
}

pub(super) fn fault() -> Vec<Vec<u8>> {
    plans()
}

/// Datagrams, fragments and a frame of each other kind, with polls between them.
pub(super) fn pipeline() -> Vec<Vec<u8>> {
    let mut frames = frames();
    let large = Frame { identification: 9, ..Frame::to(GROUPS[0], PORTS[0], &[7; 100]) };
    let mut fragments = large.fragments(40);
    fragments.swap(0, 1);
    frames.extend(fragments);
    let mut scripts = Vec::new();
    // Without and with faults, and with a pool of one buffer.
    for config in [[4, 2, 1, 0, 0, 0], [4, 0, 1, 0xff, 1, 9], [0, 1, 0, 0, 0, 0]] {
        let mut script = config.to_vec();
        assert_eq!(script.len(), CONFIG_LEN);
        for (idx, frame) in frames.iter().enumerate() {
            let kind = if idx % 2 == 0 { step::FRAME } else { step::MENDED_FRAME };
            script.push(kind);
            script.extend((frame.len() as u16).to_be_bytes());
            script.extend(frame);
            script.extend([step::POLL, 10]);
        }
        script.extend([step::JOIN, 2, 1, 0, 0, 0, 0, step::LEAVE, 2, 0, 0, 0, 0, 0, step::TAKE_SENT]);
        scripts.push(script);
    }
    scripts
}

/// Every message of ARP, ICMP and IGMP as a frame to us, and one of a stranger.
fn control_frames() -> Vec<Vec<u8>> {
    let packet = |protocol, destination, options: &[u8], ttl, message: &[u8]| {
        let fields = Ipv4Fields {
            source: PEER,
            destination,
            protocol,
            ttl,
            tos: 0,
            identification: 1,
            dont_fragment: false,
            payload_len: message.len(),
        };
        let header = Ipv4Header::with_options(&fields, options).expect(ROOM);
        let mut bytes = vec![0; 60];
        let len = header.emit_with_options(options, &mut bytes).expect(ROOM);
        bytes.truncate(len);
        bytes.extend_from_slice(message);
        Frame::to(destination, 0, &[]).link(EtherType::IPV4, &bytes)
    };
    let mut frames = frames();
    frames.extend(icmpv4().iter().map(|message| packet(Protocol::ICMP, OURS, &[], 64, message)));
    let router_alert = &Ipv4Option::ROUTER_ALERT;
    for (destination, message) in [IgmpQuery::ALL_SYSTEMS, GROUPS[0]]
        .into_iter()
        .flat_map(|to| igmp().into_iter().map(move |message| (to, message)))
    {
        frames.push(packet(Protocol::IGMP, destination, router_alert, 1, &message));
    }
    let general = IgmpQuery {
        version: IgmpVersion::V3,
        group: Ipv4Addr::UNSPECIFIED,
        max_response_tenths: 10,
        suppress: false,
        robustness: 2,
        interval_s: 125,
        sources: IgmpSources::NONE,
    };
    let general = written(|bytes| IgmpMessage::Query(general).emit(bytes).expect(ROOM));
    frames.push(packet(Protocol::IGMP, IgmpQuery::ALL_SYSTEMS, router_alert, 1, &general));
    frames.push(Frame::to(OURS, PORTS[1], b"nobody listens").emit());
    frames
}

/// Frames with sends, answers and time between them.
pub(super) fn host() -> Vec<Vec<u8>> {
    let mut scripts = Vec::new();
    for (config, chunk) in [[0, 1, 0], [0, 0, 1], [3, 0, 1], [1, 2, 0]].into_iter().zip(control_frames().chunks(9)) {
        let mut script = config.to_vec();
        assert_eq!(script.len(), host::CONFIG_LEN);
        for (idx, frame) in (0..).zip(chunk) {
            let kind = if idx % 2 == 0 { host::step::FRAME } else { host::step::MENDED_FRAME };
            script.push(kind);
            script.extend((frame.len() as u16).to_be_bytes());
            script.extend(frame);
            // Sends all lengths to each of the remotes; the neighbor replies, or the network sends
            // all frames back.
            script.extend([host::step::SEND, idx, idx, idx & 3, idx, host::step::POLL, idx]);
            script.extend([if idx % 3 == 0 { host::step::REFLECT } else { host::step::ANSWER }, idx, 0]);
            script.truncate(script.len() - usize::from(idx % 3 == 0));
            script.extend([host::step::POLL, 1, host::step::JOIN, 2, idx, 0, 0, 0, 0]);
        }
        scripts.push(script);
    }
    scripts
}

/// Flows that send while the host under them changes.
pub(super) fn host_events() -> Vec<Vec<u8>> {
    use host::step::{ANSWER, EVENT, POLL, SEND};
    let events: [&[u8]; 9] = [
        // The link goes down and up; an address, the route and the MTU go and come; neighbors and
        // the station change.
        &[EVENT, 9, 1],
        &[EVENT, 9, 0],
        &[EVENT, 1, 0, 0],
        &[EVENT, 0, 0, 0],
        &[EVENT, 11, EVENT, 2, 1, 0, 0, 0, 6],
        &[EVENT, 7, 3, EVENT, 7, 6],
        &[EVENT, 4, 1, EVENT, 6, 1],
        &[EVENT, 5, 1, 0, 0, 0, 0, 255, 255, 255, 255],
        &[EVENT, 8, 1, EVENT, 1, 1, 0],
    ];
    let script = |salt: u8| {
        let mut script = vec![0, 0, 0];
        for (idx, event) in (salt..).zip(events) {
            script.extend([SEND, idx, idx, 0, idx & 3, ANSWER, 0, 0, POLL, idx]);
            script.extend(event);
            script.extend([SEND, idx / 2, idx, 0, 0, POLL, 4]);
        }
        script
    };
    vec![script(0), script(3), script(6)]
}

/// Frames in each stack of tags.
pub(super) fn trunk() -> Vec<Vec<u8>> {
    use trunk::step::{FRAME, JOIN, POLL};
    let stacks: [&[u8]; 6] = [
        &[0],
        &[1, 0, 0, 0],
        &[1, 0, 3, 1],
        &[2, 1, 0, 2, 0, 0, 3],
        &[2, 0, 0, 0, 0, 5, 1],
        &[3, 0, 0, 0, 0, 0, 1, 0, 0, 1],
    ];
    let frames = control_frames();
    let script = |number: usize| {
        let mut script = vec![0];
        assert_eq!(script.len(), trunk::CONFIG_LEN);
        for (idx, frame) in frames.iter().enumerate().skip(number).step_by(4) {
            let stack = stacks[(idx + number) % stacks.len()];
            script.extend([FRAME, stack[0], 1, 255]);
            script.extend(&stack[1..]);
            script.extend((frame.len() as u16).to_be_bytes());
            script.extend(frame);
            script.extend([POLL, idx as u8, JOIN, 2, 0, 0, 0, 0, 0]);
        }
        script
    };
    (0..4).map(script).collect()
}
