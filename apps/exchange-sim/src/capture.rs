//! The day as a capture: each departure as an Ethernet frame in a pcap with nanoseconds.
//!
//! The frames are as a tap in front of the receiver sees them: multicast MAC addresses, IPv4 with
//! DF and correct checksums, UDP with a checksum, no VLAN tag. No frame is fragmented, because the
//! packetizer keeps packets within the MTU.

use std::fs;
use std::io::{ErrorKind, Write};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;

use wirepath::device::pcap::Writer;
use wirepath::wire::ethernet::{EthernetFields, EthernetHeader};
use wirepath::wire::ipv4::{Ipv4Fields, Ipv4Header};
use wirepath::wire::udp::{UdpFields, UdpHeader};
use wirepath::wire::{EtherType, MacAddr, Protocol};

use crate::error::{Error, check_directory};
use crate::feed::Feed;
use crate::line::Delivery;
use crate::settings::Settings;
use crate::truth::{Truth, write_truth};

const HEADERS_LEN: usize = EthernetHeader::LEN + Ipv4Header::LEN + UdpHeader::LEN;

/// Midnight in New York of Monday, 2026-01-05, in nanoseconds since 1970: a day with a session and
/// no clock change.
pub(crate) const MIDNIGHT_NS: u64 = 1_767_589_200 * 1_000_000_000;
/// The exchange's two servers, from blocks kept for documentation (RFC 5737), for receivers that
/// filter by source.
const SOURCES: [Ipv4Addr; 2] = [Ipv4Addr::new(198, 51, 100, 1), Ipv4Addr::new(203, 0, 113, 1)];
/// Their locally administered addresses.
const SOURCE_MACS: [MacAddr; 2] = [MacAddr([2, 0, 0, 0, 0, 0x0a]), MacAddr([2, 0, 0, 0, 0, 0x0b])];

/// Writes the capture and, beside it, its truth. One million messages take some 0.3 s.
pub fn generate(settings: &Settings, path: &Path) -> Result<Truth, Error> {
    settings.check()?;
    check_directory(path)?;
    let truth_path = Truth::path_beside(path);
    // If this run fails half-way, the truth of an older capture must not be beside the new capture.
    match fs::remove_file(&truth_path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(Error::io("replace", &truth_path, error)),
        _ => {}
    }
    let truth = write(settings, Writer::create(path).map_err(Error::Capture)?)?;
    write_truth(&truth, &truth_path)?;
    Ok(truth)
}

/// Writes the capture into anything.
pub fn write_capture(settings: &Settings, sink: impl Write) -> Result<Truth, Error> {
    write(settings, Writer::new(sink))
}

fn write<W: Write>(settings: &Settings, writer: Writer<W>) -> Result<Truth, Error> {
    let mut feed = Feed::new(settings)?;
    let mut capture = Capture::new(settings, writer);
    for delivery in &mut feed {
        capture.write(&delivery);
    }
    capture.writer.finish().map_err(Error::Capture)?;
    Ok(feed.finish())
}

/// Departures in, records out.
struct Capture<W: Write> {
    writer: Writer<W>,
    lines: Vec<LineHeaders>,
}

/// The headers that all frames of a line share.
struct LineHeaders {
    ethernet: EthernetHeader,
    source: Ipv4Addr,
    destination: SocketAddrV4,
    ttl: u8,
}

impl<W: Write> Capture<W> {
    fn new(settings: &Settings, writer: Writer<W>) -> Self {
        let headers = |(idx, destination): (usize, SocketAddrV4)| {
            let fields = EthernetFields {
                dst: MacAddr::multicast_ipv4(*destination.ip()),
                src: SOURCE_MACS[idx % 2],
                ethertype: EtherType::IPV4,
            };
            let ethernet = EthernetHeader::new(fields);
            LineHeaders { ethernet, source: SOURCES[idx % 2], destination, ttl: settings.ttl }
        };
        Self { writer, lines: settings.destinations().enumerate().map(headers).collect() }
    }

    fn write(&mut self, delivery: &Delivery) {
        let payload = &delivery.packet.payload;
        let headers = self.lines[delivery.line_idx].emit(delivery.packet.idx as u16, payload);
        self.writer.write_gather(MIDNIGHT_NS + delivery.time_ns, &[&headers, payload]);
    }
}

impl LineHeaders {
    /// The three headers in front of a payload.
    fn emit(&self, identification: u16, payload: &[u8]) -> [u8; HEADERS_LEN] {
        const ROOM: &str = "the settings bound the payload by the MTU, and the headers have room for themselves";
        let (group, port) = (*self.destination.ip(), self.destination.port());
        let fields = UdpFields { source_port: port, destination_port: port, payload_len: payload.len() };
        let mut udp = UdpHeader::new(&fields).expect(ROOM);
        udp.fill_checksum(self.source, group, payload);
        let ipv4 = Ipv4Header::new(&Ipv4Fields {
            source: self.source,
            destination: group,
            protocol: Protocol::UDP,
            ttl: self.ttl,
            tos: 0,
            identification,
            dont_fragment: true,
            payload_len: UdpHeader::LEN + payload.len(),
        });
        let mut headers = [0; HEADERS_LEN];
        let mut len = self.ethernet.emit(&mut headers).expect(ROOM);
        len += ipv4.and_then(|ipv4| ipv4.emit(&mut headers[len..])).expect(ROOM);
        udp.emit(&mut headers[len..]).expect(ROOM);
        headers
    }
}
