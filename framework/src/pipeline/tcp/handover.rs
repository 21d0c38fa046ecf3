//! Connections that go to another process which listens at the same port: each as the frames that
//! its peer would have sent, in the wrapping of [`wire::handover`](crate::wire::handover).

use core::net::SocketAddrV4;

use super::headers::{Body, compose};
use super::sockets::TcpCalls;
use crate::device::Offload;
use crate::mem::Mbuf;
use crate::proto::Flow;
use crate::proto::tcp::{ConnectionId, Departed, ListenerId, Outgoing, Seq, SynOptions};
use crate::wire::Ipv4Packet;
use crate::wire::handover::Handover;
use crate::wire::tcp::{TcpFlags, Timestamps};

/// Bytes of received data in a frame: with all headers it fits any buffer.
const PIECE_LEN: usize = 1_200;

impl TcpCalls<'_, '_> {
    /// Hands a connection that no caller has used on to another process that listens at its port,
    /// with the bytes that its peer has sent: only where a broker passes frames on. Returns whether
    /// it is gone: then its peer is sent nothing, and no event follows.
    pub fn hand_over(&mut self, id: ConnectionId, received: &[u8]) -> bool {
        let now = self.0.now;
        let frames = received.len().div_ceil(PIECE_LEN) + 3;
        if self.0.tx.room() < frames || self.0.pool.available() < frames {
            return false;
        }
        let Some(inner) = &mut self.0.tcp.0 else { return false };
        let Some(departed) = inner.machine.hand_over(id, now) else { return false };
        self.post_departed(&departed, received);
        true
    }

    /// The same with all handshakes of a listener that is about to be closed.
    pub fn hand_over_handshakes(&mut self, listener: ListenerId) {
        let now = self.0.now;
        let Some(inner) = &mut self.0.tcp.0 else { return };
        for departed in inner.machine.hand_over_handshakes(listener, now) {
            self.post_departed(&departed, &[]);
        }
    }

    /// Has SYNs for a listener that is about to be closed dropped in silence for ten seconds: their
    /// peers send them again, when another process has opened it.
    pub fn silence_syns(&mut self, listener: ListenerId) {
        let now = self.0.now;
        if let Some(inner) = &mut self.0.tcp.0 {
            inner.machine.silence_syns(listener, now);
        }
    }

    /// Gives the open handshakes of a listener that is about to be closed to another one.
    pub fn move_handshakes(&mut self, from: ListenerId, to: ListenerId) {
        if let Some(inner) = &mut self.0.tcp.0 {
            inner.machine.move_handshakes(from, to);
        }
    }

    /// Passes on a connection that another process has handed over, if no listener here takes it.
    pub(in crate::pipeline) fn pass_on(&mut self, handover: Handover, packet: &[u8]) -> bool {
        let (Some(inner), Some(flow)) = (&mut self.0.tcp.0, flow_of(packet)) else { return false };
        if handover.is_last || inner.machine.takes(flow) {
            return false;
        }
        inner.machine.note_departed(flow, self.0.now);
        self.post_handover(&handover.emit(self.0.host.mac().0, packet));
        true
    }

    /// The next SYN that is received begins a connection which was another process's.
    pub(in crate::pipeline) fn expect_arriving(&mut self, handover: Option<Handover>) {
        if let Some(inner) = &mut self.0.tcp.0 {
            let numbers = |handover: Handover| (Seq(handover.iss), handover.timestamp, Seq(handover.next));
            inner.machine.expect_arriving(handover.map(numbers));
        }
    }

    fn post_departed(&mut self, departed: &Departed, received: &[u8]) {
        let station = self.0.host.mac().0;
        frames(departed, received, station).iter().for_each(|frame| self.post_handover(frame));
        self.0.tx.ring_doorbell(self.0.now);
    }

    /// A frame that finds no room is lost: the next owner resets the connection, because the peer
    /// does not send again what was acknowledged.
    fn post_handover(&mut self, frame: &[u8]) {
        if let Some(mbuf) = self.0.pool.alloc_copy(frame) {
            let _ = self.0.tx.post(mbuf, Offload::NONE).map_err(Mbuf::free);
        }
    }
}

/// The ends of a received segment.
fn flow_of(packet: &[u8]) -> Option<Flow> {
    let packet = Ipv4Packet::parse(packet).ok()?;
    let &[a, b, c, d] = packet.payload.first_chunk()?;
    let end = |ip, port| SocketAddrV4::new(ip, u16::from_be_bytes(port));
    Some(Flow { local: end(packet.header.destination(), [c, d]), remote: end(packet.header.source(), [a, b]) })
}

/// The frames: a SYN; of a connection whose handshake is done an acknowledgment, with the data and
/// the FIN if there are any.
fn frames(departed: &Departed, received: &[u8], station: [u8; 6]) -> Vec<Vec<u8>> {
    let Departed { flow, iss, next, wnd, timestamps, syn, ecn, is_peer_closed, is_established } = *departed;
    let (from_peer, ours) = (Flow { local: flow.remote, remote: flow.local }, timestamps.map_or(0, |(_, ours)| ours));
    let end = next + u32::from(is_peer_closed);
    let stamps = |echo_reply| timestamps.map(|(value, _)| Timestamps { value, echo_reply });
    let wrap = |begins: bool, segment: &Outgoing, payload: &[u8]| {
        let mut packet = compose(&[], segment, Body::of(payload, false)).to_vec();
        packet.extend_from_slice(payload);
        Handover { begins, is_last: false, iss: iss.0, timestamp: ours, next: end.0 }.emit(station, &packet)
    };
    let first = next - received.len() as u32;
    let flags = if ecn { TcpFlags::SYN | TcpFlags::ECE | TcpFlags::CWR } else { TcpFlags::SYN };
    let begin = Outgoing { wnd, timestamps: stamps(0), ..with_options(from_peer, first - 1, flags, syn) };
    let mut frames = vec![wrap(true, &begin, &[])];
    if !is_established {
        return frames;
    }
    let segment = |seq: Seq, flags: TcpFlags| Outgoing {
        wnd,
        timestamps: stamps(ours),
        ..Outgoing::bare(from_peer, seq, iss + 1, flags | TcpFlags::ACK)
    };
    frames.push(wrap(false, &segment(first, TcpFlags::ACK), &[]));
    let mut seq = first;
    for piece in received.chunks(PIECE_LEN) {
        frames.push(wrap(false, &segment(seq, TcpFlags::PSH), piece));
        seq += piece.len() as u32;
    }
    if is_peer_closed {
        frames.push(wrap(false, &segment(seq, TcpFlags::FIN), &[]));
    }
    frames
}

fn with_options(flow: Flow, seq: Seq, flags: TcpFlags, syn: SynOptions) -> Outgoing {
    Outgoing { syn: Some(syn), ..Outgoing::bare(flow, seq, Seq(0), flags) }
}
