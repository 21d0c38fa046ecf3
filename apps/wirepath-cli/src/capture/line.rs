//! A frame in one line, in the words of tcpdump: `09:30:00.000000001 eth1.0 In  IP 10.0.0.1.5000 >
//! 239.1.2.3.9000: UDP, length 40`. The time is UTC. Truncated and damaged frames are shown as far
//! as they can be parsed.

use std::fmt::{self, Write};

use rdma::wire::packet::Packet;
use rdma::wire::{GRH_ETHERTYPE, ROCE_PORT};
use wirepath::device::tap::Direction;
use wirepath::wire::arp::{ArpOperation, ArpPacket};
use wirepath::wire::ethernet::EthernetFrame;
use wirepath::wire::ipv4::Ipv4Packet;
use wirepath::wire::tcp::{TcpFlags, TcpSegment};
use wirepath::wire::{EtherType, Protocol};

use super::queue::CapturedFrame;

/// Adds the frame's line to `text`.
pub(super) fn render(frame: &CapturedFrame<'_>, text: &mut String) {
    let direction = match frame.direction {
        Direction::Rx => "In ",
        Direction::Tx => "Out",
    };
    // Writing to a String does not fail.
    let _ = write!(text, "{} {} {direction} ", TimeOfDay(frame.timestamp_ns), frame.queue)
        .and_then(|()| ethernet(frame.bytes, frame.original_len, text))
        .and_then(|()| text.write_char('\n'));
}

fn ethernet(bytes: &[u8], len: usize, text: &mut String) -> fmt::Result {
    let Ok(frame) = EthernetFrame::parse(bytes) else { return write!(text, "not Ethernet II, length {len}") };
    for tag in frame.tags.as_slice() {
        write!(text, "vlan {}, ", tag.vid())?;
    }
    match frame.ethertype {
        EtherType::IPV4 => ipv4(frame.payload, text),
        EtherType::ARP => arp(frame.payload, text),
        EtherType(GRH_ETHERTYPE) => match frame.payload.split_first_chunk::<40>() {
            Some((_grh, packet)) => {
                write!(text, "RoCEv1 {} > {}: ", frame.header.src(), frame.header.dst())?;
                roce(packet, text)
            }
            None => write!(text, "RoCEv1 header short of 40 bytes"),
        },
        other => write!(text, "{} > {}, ethertype {other}, length {len}", frame.header.src(), frame.header.dst()),
    }
}

fn arp(bytes: &[u8], text: &mut String) -> fmt::Result {
    match ArpPacket::parse(bytes) {
        Err(error) => write!(text, "{error}"),
        Ok((packet, _)) if packet.operation() == ArpOperation::Request => {
            write!(text, "ARP, who-has {} tell {}", packet.target_ip(), packet.sender_ip())
        }
        Ok((packet, _)) => write!(text, "ARP, reply {} is-at {}", packet.sender_ip(), packet.sender_mac()),
    }
}

fn ipv4(bytes: &[u8], text: &mut String) -> fmt::Result {
    let packet = match Ipv4Packet::parse(bytes) {
        Ok(packet) => packet,
        Err(error) => return write!(text, "{error}"),
    };
    let (header, payload) = (packet.header, packet.payload);
    let (source, destination, protocol) = (header.source(), header.destination(), header.protocol());
    if header.fragment_offset() != 0 {
        let (offset, len) = (header.fragment_offset(), payload.len());
        return write!(text, "IP {source} > {destination}: {protocol}, fragment at {offset}, length {len}");
    }
    match (protocol, payload) {
        (Protocol::UDP, [a, b, c, d, _, _, _, _, data @ ..]) => {
            let (from, to) = (u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d]));
            write!(text, "IP {source}.{from} > {destination}.{to}: ")?;
            match to {
                ROCE_PORT => {
                    roce(data, text)?;
                    // A switch was congested (RFC 3168), which RoCE answers.
                    text.push_str(if header.ecn() == 3 { ", CE" } else { "" });
                    Ok(())
                }
                _ => write!(text, "UDP, length {}", data.len()),
            }
        }
        (Protocol::TCP, _) => match TcpSegment::parse(payload) {
            Err(error) => write!(text, "IP {source} > {destination}: {error}"),
            Ok(segment) => {
                write!(text, "IP {source}.{} > ", segment.header.source_port())?;
                write!(text, "{destination}.{}: ", segment.header.destination_port())?;
                tcp(&segment, text)
            }
        },
        (Protocol::ICMP, [kind, code, ..]) => {
            write!(text, "IP {source} > {destination}: ICMP type {kind} code {code}, length {}", payload.len())
        }
        _ => write!(text, "IP {source} > {destination}: {protocol}, length {}", payload.len()),
    }
}

fn roce(bytes: &[u8], text: &mut String) -> fmt::Result {
    match Packet::parse(bytes) {
        Ok(packet) => write!(text, "{packet}"),
        Err(error) => write!(text, "{error}, length {}", bytes.len()),
    }
}

fn tcp(segment: &TcpSegment<'_>, text: &mut String) -> fmt::Result {
    let fields = segment.header.fields();
    // tcpdump's letters; the acknowledgment is a dot.
    let letters = [
        (TcpFlags::FIN, 'F'),
        (TcpFlags::SYN, 'S'),
        (TcpFlags::RST, 'R'),
        (TcpFlags::PSH, 'P'),
        (TcpFlags::ACK, '.'),
        (TcpFlags::URG, 'U'),
    ];
    text.push_str("Flags [");
    text.extend(letters.iter().filter(|(flag, _)| fields.flags.contains(*flag)).map(|(_, letter)| letter));
    write!(text, "], seq {}", segment.header.seq())?;
    if fields.flags.contains(TcpFlags::ACK) {
        write!(text, ", ack {}", segment.header.ack())?;
    }
    write!(text, ", win {}, length {}", segment.header.window(), segment.payload.len())
}

/// The time of day of a Unix time in nanoseconds.
struct TimeOfDay(u64);

impl fmt::Display for TimeOfDay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, ns) = (self.0 / 1_000_000_000, self.0 % 1_000_000_000);
        write!(f, "{:02}:{:02}:{:02}.{ns:09}", seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bytes: &[u8], expected: &str) {
        let frame = CapturedFrame {
            queue: "eth1.0",
            direction: Direction::Rx,
            timestamp_ns: 86_400_000_000_000 + 34_200_000_000_001,
            original_len: bytes.len(),
            bytes,
        };
        let mut text = String::new();
        render(&frame, &mut text);
        assert_eq!(text, format!("09:30:00.000000001 eth1.0 In  {expected}\n"));
    }

    fn ethernet_of(ethertype: [u8; 2], payload: &[u8]) -> Vec<u8> {
        [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2][..], &ethertype, payload].concat()
    }

    fn ipv4_of(protocol: u8, payload: &[u8]) -> Vec<u8> {
        let total_len = [0, 20 + payload.len() as u8];
        let header = [0x45, 0, total_len[0], total_len[1], 0, 0, 0, 0, 1, protocol, 0, 0, 10, 0, 0, 1, 239, 1, 2, 3];
        ethernet_of([8, 0], &[&header[..], payload].concat())
    }

    #[test]
    fn what_cannot_be_read_is_said() {
        check(&[1; 10], "not Ethernet II, length 10");
        check(&ethernet_of([8, 0], &[0x45; 10]), "IPv4 header short of 20 bytes");
        check(&ethernet_of([0x88, 0xb5], &[]), "02:00:00:00:00:02 > 02:00:00:00:00:01, ethertype 0x88b5, length 14");
        let roce = [0xc0, 0, 0x12, 0xb7, 0, 11, 0, 0, 4, 0, 0];
        let short = "RoCE packet shorter than its headers, length 3";
        check(&ipv4_of(17, &roce), &format!("IP 10.0.0.1.49152 > 239.1.2.3.4791: {short}"));
        check(&ipv4_of(17, &[0; 7]), "IP 10.0.0.1 > 239.1.2.3: UDP, length 7");
    }

    #[test]
    fn frames_read_as_in_tcpdump() {
        let udp = [0x13, 0x88, 0x23, 0x28, 0, 10, 0, 0, 1, 2];
        check(&ipv4_of(17, &udp), "IP 10.0.0.1.5000 > 239.1.2.3.9000: UDP, length 2");
        let tagged = [&[0x20, 0x07, 8, 0][..], &ipv4_of(2, &[0; 8])[14..]].concat();
        check(&ethernet_of([0x81, 0], &tagged), "vlan 7, IP 10.0.0.1 > 239.1.2.3: IGMP, length 8");
        let acknowledge = [0x11, 0x40, 0xff, 0xff, 0, 0, 0, 18, 0, 0, 0, 5, 0x60, 0, 0, 4, 0, 0, 0, 0];
        let words = "RC Acknowledge, QP 0x000012, PSN 5, NAK: PSN sequence error, MSN 4";
        let roce = [&[0xc0, 0, 0x12, 0xb7, 0, 28, 0, 0][..], &acknowledge].concat();
        check(&ipv4_of(17, &roce), &format!("IP 10.0.0.1.49152 > 239.1.2.3.4791: {words}"));
        let mut marked = ipv4_of(17, &roce);
        marked[15] = 3;
        check(&marked, &format!("IP 10.0.0.1.49152 > 239.1.2.3.4791: {words}, CE"));
        let grh = [&[0; 40][..], &acknowledge].concat();
        check(&ethernet_of([0x89, 0x15], &grh), &format!("RoCEv1 02:00:00:00:00:02 > 02:00:00:00:00:01: {words}"));
        let tcp = [0x13, 0x88, 0x23, 0x28, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x18, 0, 9, 0, 0, 0, 0, 7];
        let expected = "IP 10.0.0.1.5000 > 239.1.2.3.9000: Flags [P.], seq 1, ack 2, win 9, length 1";
        check(&ipv4_of(6, &tcp), expected);
    }
}
