//! The time of an exchange without our TCP: a server without connections that turns each request
//! into its answer in the same frame, of the same bytes or of given ones. The difference from
//! [`exchange`](super::tcp_round_trip::exchange) with our worker is the time of our stack. The rest
//! is the time of the client's kernel, the veth and the system call that sends, which every server
//! on AF_XDP needs.
//!
//! Its SYN-ACK has no options, so that all later segments have none and headers keep their offsets.
//! A veth between two ends that wait for each other loses no frames, so the server keeps no state.

use wirepath::counters::{Drops, Scope};
use wirepath::device::Offload;
use wirepath::device::af_xdp::AfXdpTx;
use wirepath::device::steering::Rule;
use wirepath::mem::Mbuf;
use wirepath::pipeline::{Cx, Node, NodeTree, discard};
use wirepath::wire::ethernet::{EthernetFields, EthernetHeader};
use wirepath::wire::ipv4::{Ipv4Fields, Ipv4Header, Ipv4Packet};
use wirepath::wire::tcp::{TcpFields, TcpFlags, TcpHeader, TcpSegment};

use super::pair::{FAR, NEAR};
use super::port::{Port, PortSetup};

/// Headers of a segment without options.
const HEADERS_LEN: usize = EthernetHeader::LEN + Ipv4Header::LEN + TcpHeader::LEN;
/// Our initial sequence number: any will do.
const ISS: u32 = 1_000;

wirepath::drop_reasons! {
    /// Why a frame is not answered.
    pub enum TurnaroundDrop {
        /// The segment needs no answer: it is an acknowledgment, a reset, or not TCP.
        AsksNothing => "asks_nothing",
        /// The ring to send is full.
        RingFull => "ring_full",
    }
}

/// Answers each segment that has a payload, a SYN or a FIN.
pub struct Turnaround {
    /// The answer to each request; empty: the request's own bytes.
    answer: Vec<u8>,
    drops: Drops<TurnaroundDrop>,
}

/// The server at the far end, on the calling thread, which is in its namespace.
///
/// # Errors
/// Why the port does not open.
pub fn open(place: PortSetup, port: u16, answer: &[u8]) -> Result<Port<AfXdpTx, Turnaround, ()>, String> {
    let (rule, answer) = (Rule::tcp(place.ours.address, port), answer.to_vec());
    let make = |scope: &Scope| Turnaround { answer, drops: scope.scope("turnaround").drops() };
    Port::open(place, &rule, |tx| tx, make, ())
}

impl<A> Node<A> for Turnaround {
    #[inline]
    fn push(&mut self, mut mbuf: Mbuf, _app: &mut A, cx: &mut Cx<'_>) {
        let Some(headers) = headers_of_answer(mbuf.bytes(), self.answer.len()) else {
            return discard(mbuf, &mut self.drops, TurnaroundDrop::AsksNothing);
        };
        let len = HEADERS_LEN + headers.len;
        let missing = len.saturating_sub(mbuf.len());
        if mbuf.append(missing).is_none() {
            return discard(mbuf, &mut self.drops, TurnaroundDrop::AsksNothing);
        }
        mbuf.trim_to(len);
        if headers.len > 0 && !self.answer.is_empty() {
            mbuf.bytes_mut()[HEADERS_LEN..].copy_from_slice(&self.answer);
        }
        if write(mbuf.bytes_mut(), headers).is_none() {
            return discard(mbuf, &mut self.drops, TurnaroundDrop::AsksNothing);
        }
        if let Err(mbuf) = cx.tx.post(mbuf, Offload::NONE) {
            discard(mbuf, &mut self.drops, TurnaroundDrop::RingFull);
        }
    }

    fn tick(&mut self, _app: &mut A, _cx: &mut Cx<'_>) {}

    fn kept(&self) -> usize {
        0
    }

    fn outline(&self, outline: &mut NodeTree) {
        outline.node("turnaround", "every request is its own answer", |_| ());
    }
}

/// The headers of an answer, and the length of its payload.
struct Headers {
    ipv4: Ipv4Header,
    tcp: TcpHeader,
    len: usize,
}

/// The headers of the answer to the request in `frame`, of `answer_len` bytes, or as long as the
/// request where that is 0.
fn headers_of_answer(frame: &[u8], answer_len: usize) -> Option<Headers> {
    let packet = Ipv4Packet::parse(frame.get(EthernetHeader::LEN..)?).ok()?;
    let segment = TcpSegment::parse(packet.payload).ok()?;
    let asked = segment.header.fields();
    let (is_syn, is_fin) = (asked.flags.contains(TcpFlags::SYN), asked.flags.contains(TcpFlags::FIN));
    let len = segment.payload.len();
    if asked.flags.contains(TcpFlags::RST) || len == 0 && !is_syn && !is_fin {
        return None;
    }
    let fields = TcpFields {
        source_port: asked.destination_port,
        destination_port: asked.source_port,
        seq: if is_syn { ISS } else { asked.ack },
        ack: asked.seq.wrapping_add(len as u32 + u32::from(is_syn) + u32::from(is_fin)),
        flags: TcpFlags(TcpFlags::ACK.0 | TcpFlags::PSH.0 | asked.flags.0 & (TcpFlags::SYN.0 | TcpFlags::FIN.0)),
        window: u16::MAX,
        urgent_pointer: 0,
    };
    let len = if len > 0 && answer_len > 0 { answer_len } else { len };
    let ipv4 = Ipv4Header::new(&Ipv4Fields {
        source: packet.header.destination(),
        destination: packet.header.source(),
        protocol: packet.header.protocol(),
        ttl: 64,
        tos: 0,
        identification: 0,
        dont_fragment: true,
        payload_len: TcpHeader::LEN + len,
    })
    .ok()?;
    Some(Headers { ipv4, tcp: TcpHeader::new(&fields, &[]).ok()?, len })
}

/// Writes the headers before the payload.
fn write(frame: &mut [u8], headers: Headers) -> Option<()> {
    let Headers { ipv4, mut tcp, .. } = headers;
    let (link, packet) = frame.split_at_mut(EthernetHeader::LEN);
    let link_header =
        EthernetHeader::new(EthernetFields { dst: NEAR.mac, src: FAR.mac, ethertype: wirepath::wire::EtherType::IPV4 });
    ipv4.emit(packet).ok()?;
    let pseudo = Ipv4Packet::parse(packet).ok()?.pseudo_header();
    let (headers, payload) = packet.split_at_mut(Ipv4Header::LEN + TcpHeader::LEN);
    tcp.fill_checksum(pseudo.sum().append(payload));
    tcp.emit(&[], &mut headers[Ipv4Header::LEN..]).ok()?;
    link_header.emit(link).ok().map(drop)
}
