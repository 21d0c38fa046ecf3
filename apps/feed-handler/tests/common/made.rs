//! Captures made by hand, frame by frame.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;

use market::framing::PacketWriter;
use market::framing::mold_udp64::{MoldHeader, MoldUdp64};
use serde_json::Value;
use tempfile::tempdir;
use wirepath::device::pcap::Writer;
use wirepath::wire::ethernet::{EthernetFields, EthernetHeader};
use wirepath::wire::ipv4::{Ipv4Fields, Ipv4Header};
use wirepath::wire::udp::{UdpFields, UdpHeader};
use wirepath::wire::{EtherType, MacAddr, Protocol};

use super::replay;

pub(crate) const A: Ipv4Addr = Ipv4Addr::new(239, 1, 1, 1);
pub(crate) const B: Ipv4Addr = Ipv4Addr::new(239, 1, 1, 2);
pub(crate) const SENDER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
/// A system event, the shortest message of ITCH.
pub(crate) const MESSAGE: &[u8] = b"S\0\0\0\0\0\0\0\0\0\x01O";

/// Frames with their times in µs.
#[derive(Default)]
pub(crate) struct Capture(pub(crate) Vec<(u64, Vec<u8>)>);

impl Capture {
    pub(crate) fn frame(mut self, at_us: u64, frame: Vec<u8>) -> Self {
        self.0.push((at_us, frame));
        self
    }

    /// A MoldUDP64 packet with `count` messages from number `seq` on.
    pub(crate) fn packet(self, at_us: u64, group: Ipv4Addr, session: &[u8; 10], seq: u64, count: u32) -> Self {
        self.frame(at_us, udp_frame(group, &mold(session, seq, count)))
    }

    pub(crate) fn replay(self, flags: &[&str]) -> Value {
        self.replay_with("", flags)
    }

    /// Replays as another format.
    pub(crate) fn replay_as(self, format: &str) -> Value {
        self.replay_of(format, "", &[])
    }

    pub(crate) fn write(&self, file: &Path) {
        let mut writer = Writer::create(file).unwrap();
        for (at_us, frame) in &self.0 {
            writer.write(1_000_000_000 + at_us * 1_000, frame);
        }
        writer.finish().unwrap();
    }

    /// Replays with a configuration.
    pub(crate) fn replay_with(self, config: &str, flags: &[&str]) -> Value {
        self.replay_of("mold-itch50", config, flags)
    }

    pub(crate) fn replay_of(self, format: &str, config: &str, flags: &[&str]) -> Value {
        let directory = tempdir().unwrap();
        let (file, config_file) = (directory.path().join("made.pcap"), directory.path().join("made.toml"));
        fs::write(&config_file, config).unwrap();
        self.write(&file);
        replay(&file, format, &[flags, &["--config", config_file.to_str().unwrap()]].concat())
    }
}

pub(crate) fn mold(session: &[u8; 10], seq: u64, count: u32) -> Vec<u8> {
    mold_of(session, seq, &vec![MESSAGE; count as usize])
}

pub(crate) fn mold_of(session: &[u8; 10], seq: u64, messages: &[&[u8]]) -> Vec<u8> {
    let mut room = [0; 1400];
    let mut writer = PacketWriter::<MoldUdp64>::new(MoldHeader::new(*session, seq), &mut room).unwrap();
    messages.iter().for_each(|message| writer.push(message).unwrap());
    writer.finish().to_vec()
}

pub(crate) fn udp_frame(group: Ipv4Addr, payload: &[u8]) -> Vec<u8> {
    ethernet(EtherType::IPV4, &ipv4(group, Protocol::UDP, &udp(group, payload)))
}

pub(crate) fn udp(group: Ipv4Addr, payload: &[u8]) -> Vec<u8> {
    let fields = UdpFields { source_port: 7, destination_port: 7, payload_len: payload.len() };
    let mut header = UdpHeader::new(&fields).unwrap();
    header.fill_checksum(SENDER, group, payload);
    let mut bytes = vec![0; 8];
    header.emit(&mut bytes).unwrap();
    [&bytes, payload].concat()
}

pub(crate) fn ipv4_header(destination: Ipv4Addr, protocol: Protocol, payload_len: usize) -> Ipv4Header {
    let fields = Ipv4Fields {
        source: SENDER,
        destination,
        protocol,
        ttl: 1,
        tos: 0,
        identification: 9,
        dont_fragment: false,
        payload_len,
    };
    Ipv4Header::new(&fields).unwrap()
}

pub(crate) fn ipv4(destination: Ipv4Addr, protocol: Protocol, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 20];
    ipv4_header(destination, protocol, payload.len()).emit(&mut bytes).unwrap();
    [&bytes, payload].concat()
}

pub(crate) fn ethernet(ethertype: EtherType, payload: &[u8]) -> Vec<u8> {
    let dst = MacAddr([1, 0, 0x5e, 1, 1, 1]);
    let header = EthernetHeader::new(EthernetFields { dst, src: MacAddr([2, 0, 0, 0, 0, 9]), ethertype });
    let mut bytes = vec![0; 14];
    header.emit(&mut bytes).unwrap();
    [&bytes, payload].concat()
}

pub(crate) fn tagged(vlan: u16, frame: &[u8]) -> Vec<u8> {
    [&frame[..12], &[0x81, 0x00], &vlan.to_be_bytes(), &frame[12..]].concat()
}

/// An IEX-TP packet of DEEP 1.0, written by hand from the specification.
pub(crate) fn deep(seq: u64, messages: &[Vec<u8>]) -> Vec<u8> {
    deep_of(1, seq, messages)
}

pub(crate) fn deep_of(channel: u32, seq: u64, messages: &[Vec<u8>]) -> Vec<u8> {
    let blocks: Vec<u8> =
        messages.iter().flat_map(|message| [&(message.len() as u16).to_le_bytes()[..], message].concat()).collect();
    let counts = [(blocks.len() as u16).to_le_bytes(), (messages.len() as u16).to_le_bytes()].concat();
    let (channel, session) = (channel.to_le_bytes(), 77u32.to_le_bytes());
    let header = [&[1, 0, 0x04, 0x80][..], &channel, &session, &counts, &[0; 8], &seq.to_le_bytes(), &[0; 8]].concat();
    [header, blocks].concat()
}

/// A price level (`8` bids, `5` offers) or, with an identifier behind it, a trade.
pub(crate) fn deep_message(kind: u8, size: u32, price: i64) -> Vec<u8> {
    let identifier: &[u8] = if kind == b'T' { &[9; 8] } else { &[] };
    let time = 1_500_000_000_000_000_000u64.to_le_bytes();
    [&[kind, 1], &time[..], b"ZIEXT   ", &size.to_le_bytes(), &price.to_le_bytes(), identifier].concat()
}
