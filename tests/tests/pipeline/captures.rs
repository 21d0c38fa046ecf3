//! Real captures through a whole worker on the pcap device compared with an independent decoder
//! (etherparse), frame by frame: the same datagrams in the same order with the same bytes, and the
//! nodes' counters equal the decoder's.
//!
//! The captures are not part of the repository (docs/captures.md); a test that misses its file says
//! so.
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::fs;
use std::io::{BufReader, Read};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::PathBuf;

use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use flate2::read::MultiGzDecoder;
use wirepath::counters::{Block, Scope, Snapshot};
use wirepath::device::capture::{CaptureConfig, CaptureDevice, Directions};
use wirepath::device::fault::{FaultConfig, FaultDevice};
use wirepath::device::pcap::{PcapConfig, PcapDevice, Reader};
use wirepath::device::{Device, Queue};
use wirepath::mem::Pool;
use wirepath::pipeline::{
    AcceptedDestinations, App, ChecksumPolicy, Cx, Datagram, EgressConfig, Ipv4Config, StackConfig, UdpConfig,
    UdpStack, Vlans, udp_stack,
};
use wirepath::proto::{Group, HashSeed, Host, HostConfig, InterfaceId, SocketCapacity, UdpSockets};
use wirepath::time::{ManualClock, UnixTime};
use wirepath::wire::{MacAddr, VlanTags};
use wirepath::worker::{Ended, Parts, StopFlag, Worker};
use wirepath_tests::rig::consumer;

/// A capture, and its counts in docs/captures.md.
struct Capture {
    name: &'static str,
    frames: u64,
    datagrams_to: &'static [(Ipv4Addr, u16, u64)],
    is_truncated: bool,
}

const IEX: Capture = Capture {
    name: "iex_tops16_20170710_uat.pcap.gz",
    frames: 13_022,
    datagrams_to: &[(Ipv4Addr::new(224, 67, 0, 199), 16_642, 13_022)],
    is_truncated: false,
};
const PITCH: Capture = Capture {
    name: "cboe_pitch_realtime_20140901.pcap",
    frames: 739,
    datagrams_to: &[(Ipv4Addr::new(239, 39, 62, 190), 32_001, 375), (Ipv4Addr::new(239, 39, 62, 191), 32_001, 364)],
    is_truncated: false,
};
const IEX_TRUNCATED: Capture = Capture {
    name: "iex_tops_prod_20180103_truncated.pcapng",
    frames: 2,
    datagrams_to: &[(Ipv4Addr::new(233, 215, 21, 3), 10_377, 2)],
    is_truncated: true,
};

impl Capture {
    /// Where it is, or a word that it is not.
    fn path(&self, test: &str) -> Option<PathBuf> {
        wirepath_captures::find(test, self.name)
    }
}

/// A datagram as either side sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    timestamp_ns: u64,
    source: SocketAddrV4,
    destination: SocketAddrV4,
    ttl: u8,
    tos: u8,
    payload: Vec<u8>,
}

/// The frames as etherparse decodes them.
#[derive(Debug, Default, PartialEq, Eq)]
struct Decoded {
    frames: u64,
    vlan_tags: u64,
    fragments: u64,
    bad_header_checksums: u64,
    datagrams: Vec<Seen>,
}

/// The frames of a file, read without our reader: classic little-endian pcap in microseconds, or
/// enhanced packet blocks of a little-endian pcapng in microseconds, plain or gzip.
fn frames(path: &PathBuf) -> Vec<(u64, Vec<u8>)> {
    let file = BufReader::new(fs::File::open(path).unwrap());
    let mut bytes = Vec::new();
    match path.extension().unwrap() == "gz" {
        true => MultiGzDecoder::new(file).read_to_end(&mut bytes).unwrap(),
        false => { file }.read_to_end(&mut bytes).unwrap(),
    };
    let word = |at: usize| u64::from(u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()));
    let mut frames = Vec::new();
    if word(0) == 0xa1b2_c3d4 {
        let mut at = 24;
        while at < bytes.len() {
            let end = at + 16 + word(at + 8) as usize;
            frames.push((word(at) * 1_000_000_000 + word(at + 4) * 1_000, bytes[at + 16..end].to_vec()));
            at = end;
        }
        return frames;
    }
    assert_eq!(word(0), 0x0a0d_0d0a);
    let mut at = 0;
    while at + 12 < bytes.len() && at + word(at + 4) as usize <= bytes.len() {
        if word(at) == 6 {
            let micros = word(at + 12) << 32 | word(at + 16);
            frames.push((micros * 1_000, bytes[at + 28..at + 28 + word(at + 20) as usize].to_vec()));
        }
        at += word(at + 4) as usize;
    }
    frames
}

fn decode(frames: &[(u64, Vec<u8>)]) -> Decoded {
    let mut decoded = Decoded { frames: frames.len() as u64, ..Decoded::default() };
    for (timestamp_ns, frame) in frames {
        let packet = SlicedPacket::from_ethernet(frame).unwrap();
        decoded.vlan_tags += packet.vlan_ids().len() as u64;
        let Some(NetSlice::Ipv4(ip)) = &packet.net else { continue };
        let header = ip.header().to_header();
        decoded.fragments += u64::from(header.is_fragmenting_payload());
        decoded.bad_header_checksums += u64::from(header.header_checksum != header.calc_header_checksum());
        let Some(TransportSlice::Udp(udp)) = &packet.transport else { continue };
        decoded.datagrams.push(Seen {
            timestamp_ns: *timestamp_ns,
            source: SocketAddrV4::new(header.source.into(), udp.source_port()),
            destination: SocketAddrV4::new(header.destination.into(), udp.destination_port()),
            ttl: header.time_to_live,
            tos: header.dscp.value() << 2 | header.ecn.value(),
            payload: udp.payload().to_vec(),
        });
    }
    decoded
}

#[derive(Default)]
struct Recorder(Vec<Seen>);

impl App for Recorder {
    fn on_datagram(&mut self, datagram: &Datagram<'_>, _cx: &mut Cx<'_>) {
        self.0.push(Seen {
            timestamp_ns: datagram.timestamp.map_or(0, UnixTime::as_nanos),
            source: datagram.source,
            destination: datagram.destination,
            ttl: datagram.ttl,
            tos: datagram.tos,
            payload: datagram.payload.to_vec(),
        });
    }
}

/// Replays the device to its end; returns the datagrams that the app got, and the counters.
fn replay<D: Device>(mut device: D, capture: &Capture) -> (Vec<Seen>, Snapshot) {
    let block = Block::heap();
    let scope = block.scope("worker0");
    let pool = Pool::heap(256).unwrap();
    let (rx, tx) = device.take_queue(0).unwrap().open(&pool, &scope.scope("device")).unwrap();
    let egress = EgressConfig::quiet(HashSeed::new(1, 2));
    let mut sockets = UdpSockets::new(SocketCapacity::default(), HashSeed::new(1, 2));
    for &(group, port, _) in capture.datagrams_to {
        sockets.join(consumer(0), Group::new(group, port)).unwrap();
    }
    let parts = Parts {
        rx,
        tx,
        pipeline: stack(&scope),
        app: Recorder::default(),
        pool,
        host: host(),
        sockets,
        egress,
        burst_len: 32,
    };
    let mut worker = Worker::new(parts, &scope);
    let ended = worker.run(&mut ManualClock::default(), &StopFlag::new());
    assert_eq!(ended, Ended::DeviceEnded);
    assert_eq!((worker.kept(), worker.pool().in_use(), worker.pool().drops_without_reason()), (0, 0, 0));
    (worker.into_app().0, block.snapshot())
}

/// Any station, any destination; two of the captures were made on the sending host, before its NIC
/// finished the checksums.
fn stack(scope: &Scope) -> UdpStack {
    let ipv4 = Ipv4Config { accept: AcceptedDestinations::Any, ..Ipv4Config::new(HashSeed::new(3, 4)) };
    let udp = UdpConfig { checksum: ChecksumPolicy::AcceptPartial };
    udp_stack(StackConfig { station: None, vlans: Vlans::Any, ipv4, udp }, scope)
}

fn host() -> Host {
    let config = HostConfig {
        interface: InterfaceId(0),
        mac: MacAddr([2, 0, 0, 0, 0, 1]),
        vlan: VlanTags::NONE,
        mtu: 1500,
        addresses_max: 1,
        routes_max: 1,
        neighbors_max: 1,
    };
    Host::new(config, HashSeed::new(5, 6)).unwrap()
}

/// Plain, then with a wrapper for faults that has none and a tap around it.
fn check(capture: &Capture, test: &str) {
    let Some(path) = capture.path(test) else { return };
    let decoded = decode(&frames(&path));
    assert_eq!((decoded.frames, decoded.datagrams.len() as u64), (capture.frames, capture.frames));
    assert_eq!((decoded.vlan_tags, decoded.fragments, decoded.bad_header_checksums), (0, 0, 0));

    let config = PcapConfig { replay: Some(path.clone()), ..PcapConfig::default() };
    let device = PcapDevice::open(&config).unwrap();
    let outcome = device.replayed();
    compare(&decoded, capture, replay(device, capture));
    let end = outcome.get().unwrap().as_ref().unwrap();
    assert_eq!(end.truncated.is_some(), capture.is_truncated);

    let folder = tempfile::tempdir().unwrap();
    let tap = folder.path().join("tap.pcap");
    let harmless = FaultDevice::new(PcapDevice::open(&config).unwrap(), FaultConfig::default()).unwrap();
    let tapped =
        CaptureDevice::new(harmless, CaptureConfig { path: tap.clone(), directions: Directions::Rx, epoch_ns: 0 });
    compare(&decoded, capture, replay(tapped, capture));
    assert_eq!(records(&tap), frames(&path));
}

fn compare(decoded: &Decoded, capture: &Capture, (seen, snapshot): (Vec<Seen>, Snapshot)) {
    assert_eq!(seen.len(), decoded.datagrams.len());
    for (idx, (ours, theirs)) in seen.iter().zip(&decoded.datagrams).enumerate() {
        assert_eq!(ours, theirs, "datagram {idx} of {}", capture.name);
    }
    for &(group, port, expected) in capture.datagrams_to {
        let to = SocketAddrV4::new(group, port);
        assert_eq!(seen.iter().filter(|seen| seen.destination == to).count() as u64, expected, "to {to}");
    }
    let count = |name: &str| snapshot.count(&format!("worker0/{name}")).unwrap();
    let bytes: usize = seen.iter().map(|seen| seen.payload.len()).sum();
    assert_eq!((count("ethernet/frames"), count("ipv4/packets")), (decoded.frames, decoded.frames));
    assert_eq!((count("udp/datagrams"), count("udp/payload_bytes")), (decoded.frames, bytes as u64));
    assert_eq!((count("ipv4/reassembled"), count("ipv4/fragments_held")), (0, 0));
    let drops = snapshot.samples.iter().filter(|sample| sample.class.is_drop());
    assert!(drops.clone().count() > 0 && drops.clone().all(|drop| snapshot.count(&drop.name) == Some(0)));
}

/// The records that our reader finds in a capture.
fn records(path: &PathBuf) -> Vec<(u64, Vec<u8>)> {
    let mut reader = Reader::open(path).unwrap();
    let mut records = Vec::new();
    while let Some(record) = reader.next().unwrap() {
        records.push((record.timestamp_ns, record.bytes.to_vec()));
    }
    records
}

#[test]
fn iex_capture_is_what_an_independent_decoder_sees() {
    check(&IEX, "iex_capture_is_what_an_independent_decoder_sees");
}

#[test]
fn pitch_capture_is_what_an_independent_decoder_sees() {
    check(&PITCH, "pitch_capture_is_what_an_independent_decoder_sees");
}

#[test]
fn truncated_capture_is_what_an_independent_decoder_sees() {
    check(&IEX_TRUNCATED, "truncated_capture_is_what_an_independent_decoder_sees");
}
