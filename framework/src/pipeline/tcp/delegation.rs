//! Headers for another sender, such as an FPGA that sends the moment it sees the tick, or a program
//! on the NIC. The app gets the headers of the next bytes, passes them to that sender, and reports
//! which bytes it has sent; the machine then treats it as data that it sent itself.

use arrayvec::ArrayVec;

use super::ConnectionId;
use super::DelegateError;
use super::SendError;
use super::bytes::Bytes;
use super::headers::{Body, HEADERS_LEN_MAX, compose};
use super::next_hop::{LinkHeaderCache, NextHop, NextHopRequest};
use super::sockets::{Inner, TcpCalls};
use crate::mem::Mbuf;
use crate::pipeline::answer::LINK_LEN_MAX;
use crate::proto::ResolutionCause;
use crate::proto::tcp::Outgoing;
use crate::wire::checksum::Sum;
use crate::wire::ipv4;

/// Where the checksum stands in a TCP header.
const CHECKSUM_AT: usize = 16;

/// The headers of a connection's next bytes, for another sender.
///
/// Acknowledgment, window and timestamp are those of the moment of this call. Where the connection
/// has timestamps and has sent anything since, acknowledgments included, the peer may refuse
/// segments with older ones (RFC 7323 5): request new headers whenever the connection was in use,
/// or connect without timestamps.
#[derive(Clone, Copy, Debug)]
pub struct Delegation {
    outgoing: Outgoing,
    link: [u8; LINK_LEN_MAX],
    link_len: usize,
    len: usize,
    segment_len_max: usize,
}

impl Delegation {
    /// Bytes that may be sent.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Always false: a delegation has at least one byte.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of payload that one frame may carry.
    pub fn segment_len_max(&self) -> usize {
        self.segment_len_max
    }

    /// The sequence number of the first byte.
    pub fn seq(&self) -> u32 {
        self.outgoing.seq.0
    }

    /// The acknowledgment number in the headers.
    pub fn ack(&self) -> u32 {
        self.outgoing.ack.0
    }

    /// Writes the link, IPv4 and TCP headers of a frame into `headers`, for a payload of
    /// `payload_len` bytes that begins at byte `offset` of the delegated bytes. The checksum field
    /// holds the sum of all but the payload, not complemented: add the payload and complement it.
    /// Returns the bytes written; `None` where the payload is out of range or longer than a
    /// segment, or `headers` is too short.
    pub fn write_headers(&self, offset: usize, payload_len: usize, headers: &mut [u8]) -> Option<usize> {
        let written = self.write(offset, Body { len: payload_len, sum: Some(Sum::EMPTY) })?;
        let bytes = headers.get_mut(..written.len())?;
        bytes.copy_from_slice(&written);
        let field = &mut bytes[self.link_len + ipv4::HEADER_LEN + CHECKSUM_AT..][..2];
        field.iter_mut().for_each(|byte| *byte = !*byte);
        Some(bytes.len())
    }

    /// Writes the whole frame that carries `payload` from `offset` on into `frame`, for senders
    /// that are CPUs. Returns the bytes written; `None` as [`write_headers`](Self::write_headers).
    pub fn write_frame(&self, offset: usize, payload: &[u8], frame: &mut [u8]) -> Option<usize> {
        let headers = self.write(offset, Body::of(payload, false))?;
        let frame = frame.get_mut(..headers.len() + payload.len())?;
        let (front, back) = frame.split_at_mut(headers.len());
        front.copy_from_slice(&headers);
        back.copy_from_slice(payload);
        Some(frame.len())
    }

    fn write(&self, offset: usize, body: Body) -> Option<ArrayVec<u8, HEADERS_LEN_MAX>> {
        if body.len > self.segment_len_max || offset.checked_add(body.len)? > self.len {
            return None;
        }
        let mut outgoing = self.outgoing;
        outgoing.seq += offset as u32;
        Some(compose(&self.link[..self.link_len], &outgoing, body))
    }
}

/// Delegated headers.
impl TcpCalls<'_, '_> {
    /// Delegates the next `len` bytes of a connection to another sender. Until they are reported or
    /// withdrawn, new data of ours waits. A second call returns the same sequence numbers with the
    /// current acknowledgment; `len` may differ.
    pub fn delegate(&mut self, id: ConnectionId, len: usize) -> Result<Delegation, DelegateError> {
        let now = self.0.now;
        Inner::call(self.0, |machine, output| {
            let (outgoing, segment_len_max) = machine.delegate(id, len, now, output)?;
            let request = NextHopRequest::of(outgoing.flow, ResolutionCause::Connection);
            let roster = &mut *output.roster;
            let on_change = |cache: &LinkHeaderCache| {
                if let Some(roster) = roster {
                    roster.set_link(id.slot() as u32, cache.known());
                }
            };
            let NextHop::Known(known) = output.link_headers[id.slot()].resolve_next_hop(request, output.cx, on_change)
            else {
                // Bytes that the peer has acknowledged stay delegated: they were sent.
                let _ = machine.withdraw(id, now, output);
                return Err(DelegateError::NoRoute);
            };
            let mut link = [0; LINK_LEN_MAX];
            link[..known.len()].copy_from_slice(known);
            Ok(Delegation { outgoing, link, link_len: known.len(), len, segment_len_max })
        })
        .unwrap_or(Err(DelegateError::Send(SendError::NotFound)))
    }

    /// Reports that the other sender has sent the next delegated bytes. `payload` holds those bytes
    /// and must be linear; a retransmission sends this buffer. Returns the part that was not
    /// delegated or for which there is no room; in the second case report it again. Once all
    /// delegated bytes are reported, data that waited is sent.
    pub fn delegated(&mut self, id: ConnectionId, payload: Mbuf) -> Result<(), (DelegateError, Mbuf)> {
        if !payload.is_linear() || payload.is_empty() {
            return Err((DelegateError::Send(SendError::NotLinear), payload));
        }
        let now = self.0.now;
        let mut payload = Some(Bytes::of(payload));
        let reported = Inner::call(self.0, |machine, output| {
            let payload = payload.take().expect("the call is made once");
            machine.report(id, payload, now, output)
        });
        let (error, mut back) = match (reported, payload) {
            (Some(Ok(())), _) => return Ok(()),
            (Some(Err(refused)), _) => refused,
            (None, Some(payload)) => (DelegateError::Send(SendError::NotFound), payload),
            (None, None) => unreachable!("either the call took it or it is here"),
        };
        Err((error, back.take_mbuf().expect("what is refused was not touched")))
    }

    /// Bytes that the other sender may still send.
    pub fn delegated_len(&mut self, id: ConnectionId) -> usize {
        self.machine().map_or(0, |machine| machine.delegated_len(id))
    }

    /// Ends the delegation. Bytes that were not reported count as not sent, so first make sure that
    /// the other sender has not sent them. Data that waited leaves with this turn.
    pub fn withdraw(&mut self, id: ConnectionId) -> Result<(), DelegateError> {
        let now = self.0.now;
        Inner::call(self.0, |machine, output| machine.withdraw(id, now, output))
            .unwrap_or(Err(DelegateError::Send(SendError::NotFound)))
    }
}
