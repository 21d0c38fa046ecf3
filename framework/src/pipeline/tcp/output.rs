//! Segments become frames: headers in front of the payload, in the payload's own buffer where that
//! is ours to write.

use core::net::Ipv4Addr;

use super::bytes::{Bytes, OwnedMbuf, owned};
use super::headers::{Body, HEADERS_LEN_MAX, UsualHeaders, compose};
use super::next_hop::{self, LinkHeaderCache, NextHop, NextHopRequest};
use super::roster::{OpenConnection, Roster};
use crate::counters::{Counter, Scope, Unit};
use crate::device::{Capabilities, Offload, TxQueue};
use crate::mem::Mbuf;
use crate::pipeline::node::Cx;
use crate::proto::tcp::{Outgoing, Output, Payload, Run, Seq, Unsent};
use crate::proto::{Flow, NeighborRequest, ResolutionCause};
use crate::wire::tcp::{OPTIONS_LEN_MAX, TcpFlags, Timestamps};
use crate::wire::{ethernet, ipv4, tcp};

/// Counters of sent segments.
pub(super) struct OutCounters {
    pub(super) segments: Counter,
    pub(super) bytes: Counter,
    /// Segments that found no room in the device's ring, or no buffer; the machine sends them
    /// again.
    busy: Counter,
    /// Had no path: no route, link down, neighbor missing.
    lost: Counter,
}

impl OutCounters {
    pub(super) fn new(scope: &Scope) -> Self {
        Self {
            segments: scope.counter("segments_out", Unit::Frames),
            bytes: scope.counter("payload_bytes_out", Unit::Bytes),
            busy: scope.counter("output_busy", Unit::Events),
            lost: scope.counter("output_lost", Unit::Events),
        }
    }
}

/// The device's offloads for segments.
#[derive(Clone, Copy, Debug)]
pub(super) struct OutOffloads {
    pub(super) checksum: bool,
    segmentation_len_max: usize,
    /// Frames may be chains.
    chains: bool,
    /// Buffers of a chain behind the headers.
    pieces_max: usize,
}

/// Buffers behind the headers of one frame: 64 KiB of full segments, and some more.
const PIECES_MAX: usize = 64;
/// Bytes of the longest payload of an IPv4 packet behind the longest headers: the total length of a
/// TSO frame is a 16-bit field too.
const SEGMENTATION_LEN_MAX: usize = u16::MAX as usize - ipv4::HEADER_LEN - tcp::HEADER_LEN - OPTIONS_LEN_MAX;

impl OutOffloads {
    pub(super) fn new(capabilities: &Capabilities) -> Self {
        let checksum = capabilities.tx.l4_checksum;
        // A device that cuts segments also writes each one's checksum.
        let longest = if checksum { capabilities.tx.segmentation_len_max.min(SEGMENTATION_LEN_MAX) } else { 0 };
        let pieces_max = if longest > 0 { capabilities.tx_segments_max.saturating_sub(1).min(PIECES_MAX) } else { 1 };
        Self { checksum, segmentation_len_max: longest, chains: capabilities.tx_segments_max >= 2, pieces_max }
    }

    /// Bytes of the longest payload that one frame for the device has, where they fit in a buffer.
    /// While the NIC still reads the payload, a retransmission is sent as a copy. Where the device
    /// takes no chains, the copy and its headers need to fit in one buffer.
    fn longest(self, data_room: usize) -> usize {
        let copied_max = if self.chains { usize::MAX } else { data_room.saturating_sub(HEADERS_LEN_MAX) };
        self.segmentation_len_max.min(copied_max)
    }

    /// The NIC's offloads for a segment that is not cut.
    #[inline(always)]
    pub(super) fn usual(self) -> Offload {
        Offload::L4_CHECKSUM.when(self.checksum)
    }

    /// The NIC's offloads for a segment. The resolver posts a frame that waits for a neighbor, and
    /// does not know its offloads.
    #[inline]
    fn of(self, segment: &Outgoing, waits: bool) -> Offload {
        let checksum = self.checksum && !waits;
        let segment_len = if checksum { segment.segment_len } else { 0 };
        let checksums = Offload::L4_CHECKSUM.when(checksum) | Offload::IP_CHECKSUM.when(segment_len > 0);
        checksums.with_segment_len(segment_len)
    }
}

/// The output of one call.
pub(super) struct TcpOutput<'a, 'b> {
    pub(super) cx: &'a mut Cx<'b>,
    pub(super) link_headers: &'a mut [LinkHeaderCache],
    pub(super) counters: &'a OutCounters,
    pub(super) offloads: OutOffloads,
    /// The guardian's record of open connections.
    pub(super) roster: &'a mut Option<Roster>,
}

/// Records where the usual headers lie, for a NIC that computes checksums.
#[inline(always)]
pub(super) fn set_header_lens(frame: &mut Mbuf, offload: Offload) {
    if offload.has(Offload::L4_CHECKSUM) {
        frame.set_l2_len(ethernet::HEADER_LEN);
        frame.set_l3_len(ipv4::HEADER_LEN);
    }
}

/// A segment that leaves: its link header, its offloads, and the request for its neighbor where the
/// MAC address is not known.
struct Departure<'s> {
    link: &'s [u8],
    segment: &'s Outgoing,
    offload: Offload,
    neighbor_request: Option<NeighborRequest>,
}

impl Output<Bytes> for TcpOutput<'_, '_> {
    fn send(&mut self, slot: Option<u32>, segment: &Outgoing, payload: Option<&mut Bytes>) -> Result<(), Unsent> {
        match payload {
            None => self.send_bare(slot, segment),
            Some(payload) => self.send_data(slot, segment, payload),
        }
    }

    fn mtu(&self, remote: Ipv4Addr) -> usize {
        let path = self.cx.egress.path_mtu(remote, self.cx.now).map_or(usize::MAX, |(mtu, _)| mtu);
        path.min(self.cx.host.mtu())
    }

    fn segmentation_len_max(&self) -> usize {
        self.offloads.longest(self.cx.pool.layout().data_room())
    }

    fn buffer_len_max(&self) -> usize {
        self.cx.pool.layout().data_room()
    }

    #[cold]
    fn negative_advice(&mut self, remote: Ipv4Addr) {
        let next_hop = self.cx.host.route(remote).and_then(|route| route.gateway).unwrap_or(remote);
        self.cx.egress().negative_advice(next_hop);
    }

    fn has_buffer(&self) -> bool {
        self.cx.pool.available() > 0
    }

    /// The resolver posts a frame that waits for a neighbor, and does not know of segments.
    #[inline]
    fn pieces_max(&self, slot: u32) -> usize {
        let is_known = self.offloads.pieces_max > 1 && self.link_headers[slot as usize].current(self.cx).is_some();
        // One more is for the headers.
        if is_known { self.offloads.pieces_max.min(self.cx.pool.available().saturating_sub(1)) } else { 1 }
    }

    fn send_run(&mut self, slot: u32, segment: &Outgoing, run: &mut Run<'_, Bytes>) -> Result<(), Unsent> {
        let sent = self.send_chain(slot, segment, run);
        self.sent(Some(slot), segment, run.len(), sent)
    }

    /// Prepares the link header here, because the slot may still hold that of another connection.
    /// So the first data leaves as fast as all later data.
    #[cold]
    fn opened(&mut self, slot: u32, flow: Flow, snd_nxt: Seq, rcv_nxt: Seq) {
        let cache = &mut self.link_headers[slot as usize];
        *cache = LinkHeaderCache::NONE;
        cache.resolve_next_hop(NextHopRequest::of(flow, ResolutionCause::Connection), self.cx, |_| ());
        let Some(roster) = self.roster else { return };
        let link = cache.known().iter().copied().collect();
        roster.open(slot, &OpenConnection { flow, link, snd_nxt: snd_nxt.0, rcv_nxt: rcv_nxt.0 });
    }

    #[cold]
    fn closed(&mut self, slot: u32) {
        if let Some(roster) = self.roster {
            roster.close(slot);
        }
    }
}

impl TcpOutput<'_, '_> {
    /// Changes with every table that paths depend on.
    #[inline]
    pub(super) fn changes(&self) -> u64 {
        next_hop::changes(self.cx.host)
    }

    /// Bytes of the longest packet that the interface takes.
    pub(super) fn link_mtu(&self) -> usize {
        self.cx.host.mtu()
    }

    /// Records a segment that has left. A sender that bypasses [`send`](Output::send) calls it, or
    /// the guardian has to probe the peer for its state.
    #[inline(always)]
    pub(super) fn note(&self, slot: Option<u32>, segment: &Outgoing, payload_len: u32) {
        if let (Some(slot), Some(roster)) = (slot, &*self.roster) {
            // A FIN takes a number too (RFC 9293 3.4). A SYN has left before the roster lists the
            // connection.
            let fin_len = u32::from(segment.flags.intersects(TcpFlags::FIN));
            roster.note(slot, segment.seq + payload_len + fin_len, segment.ack);
        }
    }

    /// A segment without payload.
    #[inline]
    fn send_bare(&mut self, slot: Option<u32>, segment: &Outgoing) -> Result<(), Unsent> {
        let Some((link, timestamps)) = self.usual(slot, segment) else { return self.send_other(slot, segment, None) };
        let offload = self.offloads.usual();
        let Some(mut frame) = self.cx.pool.alloc() else { return self.sent(slot, segment, 0, Err(Unsent::Busy)) };
        let Some(headers) = frame.append(UsualHeaders::LEN).and_then(UsualHeaders::place) else {
            unreachable!("a buffer has room for headers")
        };
        headers.write(&link, segment, timestamps, Body::of(&[], offload.has(Offload::L4_CHECKSUM)));
        set_header_lens(&mut frame, offload);
        let posted = post_bare(frame, segment, offload, self.cx.tx).map_err(Mbuf::free);
        self.sent(slot, segment, 0, posted.map_err(|()| Unsent::Busy))
    }

    /// A segment with payload.
    #[inline]
    fn send_data(&mut self, slot: Option<u32>, segment: &Outgoing, payload: &mut Bytes) -> Result<(), Unsent> {
        let Some((link, timestamps)) = self.usual(slot, segment) else {
            return self.send_other(slot, segment, Some(payload));
        };
        // The payload was not sent yet, and we may write its buffer.
        let sum = payload.sum();
        let Bytes::Mbuf(OwnedMbuf { mbuf, .. }) = payload else { return self.send_other(slot, segment, Some(payload)) };
        let is_ours = mbuf.as_ref().is_some_and(|mbuf| mbuf.is_plain() && mbuf.is_writable());
        let Some(mut frame) = mbuf.take_if(|mbuf| is_ours && mbuf.headroom() >= UsualHeaders::LEN) else {
            return self.send_other(slot, segment, Some(payload));
        };
        let offload = self.offloads.usual();
        let body = Body::summed(frame.bytes(), sum, offload.has(Offload::L4_CHECKSUM));
        if let Some(headers) = frame.prepend(UsualHeaders::LEN).and_then(UsualHeaders::place) {
            headers.write(&link, segment, timestamps, body);
        }
        let held = frame.hold_part(UsualHeaders::LEN, body.len);
        let sent = match self.post(frame, offload) {
            Ok(()) => {
                payload.become_held(held);
                Ok(())
            }
            Err(mut frame) => {
                drop(held);
                frame.advance(UsualHeaders::LEN);
                payload.become_own(frame, sum);
                Err(Unsent::Busy)
            }
        };
        self.sent(slot, segment, body.len, sent)
    }

    /// Headers, and behind them views of all payloads.
    fn send_chain(&mut self, slot: u32, segment: &Outgoing, run: &mut Run<'_, Bytes>) -> Result<(), Unsent> {
        let Some(link) = self.link_headers[slot as usize].current(self.cx) else { return Err(Unsent::NoRoute) };
        let headers = compose(link, segment, Body { len: run.len(), sum: None });
        let l2_len = link.len();
        let Some(mut frame) = self.cx.pool.alloc_copy(&headers) else { return Err(Unsent::Busy) };
        let mut chain: Option<Mbuf> = None;
        let pool = self.cx.pool;
        let is_whole = run.all_from_the_last(|payload| {
            let Ok(mut view) = pool.view(payload.shared()) else { return false };
            if let Some(behind) = chain.take() {
                view.attach(behind);
            }
            chain = Some(view);
            true
        });
        if let Some(chain) = chain {
            frame.attach(chain);
        }
        if !is_whole {
            frame.free();
            return Err(Unsent::Busy);
        }
        frame.set_l2_len(l2_len);
        frame.set_l3_len(ipv4::HEADER_LEN);
        self.cx.tx.post(frame, self.offloads.of(segment, false)).map_err(|frame| {
            frame.free();
            Unsent::Busy
        })
    }

    /// The variable part of the usual headers of a connection's segment: the link header, where the
    /// path is known and has no tag, and the timestamps.
    #[inline(always)]
    fn usual(&self, slot: Option<u32>, segment: &Outgoing) -> Option<([u8; ethernet::HEADER_LEN], Timestamps)> {
        let link = *self.link_headers[slot? as usize].untagged(self.cx.host)?;
        Some((link, UsualHeaders::timestamps_of(segment)?))
    }

    #[inline(always)]
    fn post(&mut self, mut frame: Mbuf, offload: Offload) -> Result<(), Mbuf> {
        set_header_lens(&mut frame, offload);
        self.cx.tx.post(frame, offload)
    }

    /// Counts the outcome of a segment.
    #[inline(always)]
    fn sent(
        &self,
        slot: Option<u32>,
        segment: &Outgoing,
        payload_len: usize,
        sent: Result<(), Unsent>,
    ) -> Result<(), Unsent> {
        match sent {
            Ok(()) => {
                self.counters.segments.inc();
                self.counters.bytes.add(payload_len as u64);
                self.note(slot, segment, payload_len as u32);
            }
            Err(Unsent::Busy) => self.counters.busy.inc(),
            Err(Unsent::NoRoute) => self.counters.lost.inc(),
        }
        sent
    }

    /// Sends any segment, over any path.
    #[inline(never)]
    fn send_other(&mut self, slot: Option<u32>, segment: &Outgoing, payload: Option<&mut Bytes>) -> Result<(), Unsent> {
        let payload_len = payload.as_ref().map_or(0, |payload| payload.len());
        let sent = self.depart(slot, segment, payload);
        self.sent(slot, segment, payload_len, sent)
    }

    fn depart(&mut self, slot: Option<u32>, segment: &Outgoing, payload: Option<&mut Bytes>) -> Result<(), Unsent> {
        let request = NextHopRequest::of(segment.flow, cause(segment, payload.is_some()));
        let Self { cx, link_headers, offloads, roster, .. } = self;
        let mut uncached = LinkHeaderCache::NONE;
        let cache = match slot {
            Some(slot) => &mut link_headers[slot as usize],
            None => &mut uncached,
        };
        if segment.syn.is_some() {
            // The slot may still hold another connection's.
            *cache = LinkHeaderCache::NONE;
        }
        let on_change = |cache: &LinkHeaderCache| {
            if let (Some(slot), Some(roster)) = (slot, &mut **roster) {
                roster.set_link(slot, cache.known());
            }
        };
        let (link, neighbor_request) = match cache.resolve_next_hop(request, cx, on_change) {
            NextHop::Known(link) => (link, None),
            // The app learns whether its data was sent. The resolver could not report that, so data
            // does not wait there.
            NextHop::Resolving(_, neighbor_request) if payload.is_some() => {
                let _ = cx.egress().keep_neighbor(neighbor_request);
                return Err(Unsent::NoRoute);
            }
            NextHop::Resolving(link, neighbor_request) => (link, Some(neighbor_request)),
            NextHop::None if payload.is_none() => return send_back(request, segment, *offloads, cx),
            NextHop::None => return Err(Unsent::NoRoute),
        };
        let departure =
            Departure { link, segment, offload: offloads.of(segment, neighbor_request.is_some()), neighbor_request };
        match payload {
            None => departure.send_bare(cx),
            Some(payload) => departure.send_payload(payload, offloads.chains, cx),
        }
    }
}

/// The cause of a segment. A segment that carries no data and comes from no call of ours answers a
/// remote caller, whose address may be forged.
fn cause(segment: &Outgoing, has_payload: bool) -> ResolutionCause {
    let is_call = segment.syn.is_some() && !segment.flags.intersects(TcpFlags::ACK);
    match (is_call, has_payload) {
        (true, _) => ResolutionCause::App,
        (false, true) => ResolutionCause::Connection,
        (false, false) => ResolutionCause::Handshake,
    }
}

/// Posts a segment without payload. An acknowledgment is not the caller's frame: it gets no
/// transmit timestamp.
#[inline(always)]
fn post_bare(frame: Mbuf, segment: &Outgoing, offload: Offload, tx: &mut dyn TxQueue) -> Result<(), Mbuf> {
    match segment.flags.intersects(TcpFlags::SYN | TcpFlags::FIN | TcpFlags::RST) {
        true => tx.post(frame, offload),
        false => tx.post_unmarked(frame, offload),
    }
}

impl Departure<'_> {
    fn send_bare(&self, cx: &mut Cx<'_>) -> Result<(), Unsent> {
        let headers = compose(self.link, self.segment, Body::of(&[], self.offload.has(Offload::L4_CHECKSUM)));
        let Some(frame) = cx.pool.alloc_copy(&headers) else { return Err(Unsent::Busy) };
        let left = match self.neighbor_request {
            None => post_bare(self.with_lens(frame), self.segment, self.offload, cx.tx),
            Some(neighbor_request) => wait(frame, neighbor_request, cx),
        };
        left.map_err(|frame| (frame.free(), Unsent::Busy).1)
    }

    fn send_payload(&self, payload: &mut Bytes, chains: bool, cx: &mut Cx<'_>) -> Result<(), Unsent> {
        let sum = payload.sum();
        let Some(mut frame) = owned(payload) else { return self.send_copy(payload, chains, cx) };
        let body = Body::summed(frame.bytes(), sum, self.offload.has(Offload::L4_CHECKSUM));
        let headers = compose(self.link, self.segment, body);
        match frame.prepend(headers.len()) {
            Some(room) => room.copy_from_slice(&headers),
            None => {
                payload.become_held(frame.hold());
                frame.free();
                return self.send_copy(payload, chains, cx);
            }
        }
        let held = frame.hold_part(headers.len(), body.len);
        match self.leave(frame, cx) {
            Ok(()) => {
                payload.become_held(held);
                Ok(())
            }
            Err(mut frame) => {
                drop(held);
                frame.advance(headers.len());
                payload.become_own(frame, sum);
                Err(Unsent::Busy)
            }
        }
    }

    /// The payload is shared: the NIC still reads it, or it is a part of a larger buffer. It is
    /// sent as a view behind the headers where the device takes chains and a second buffer is free,
    /// otherwise as a copy.
    fn send_copy(&self, payload: &Bytes, chains: bool, cx: &mut Cx<'_>) -> Result<(), Unsent> {
        let Bytes::Held(held) = payload else { return Err(Unsent::NoRoute) };
        let Some(bytes) = held.bytes() else { return Err(Unsent::NoRoute) };
        let headers = compose(self.link, self.segment, Body::of(bytes, self.offload.has(Offload::L4_CHECKSUM)));
        let Some(mut frame) = cx.pool.alloc_copy(&headers) else { return Err(Unsent::Busy) };
        let view = if chains { cx.pool.view(held.another()).ok() } else { None };
        let is_whole = match view {
            Some(view) => {
                frame.attach(view);
                true
            }
            None => frame.append(bytes.len()).map(|room| room.copy_from_slice(bytes)).is_some(),
        };
        if !is_whole {
            frame.free();
            return Err(Unsent::Busy);
        }
        self.leave_or_free(frame, cx)
    }

    fn leave_or_free(&self, frame: Mbuf, cx: &mut Cx<'_>) -> Result<(), Unsent> {
        self.leave(frame, cx).map_err(|frame| {
            frame.free();
            Unsent::Busy
        })
    }

    /// Posts a frame, or lets it wait for its neighbor. Returns the frame where neither is
    /// possible.
    fn leave(&self, frame: Mbuf, cx: &mut Cx<'_>) -> Result<(), Mbuf> {
        match self.neighbor_request {
            None => cx.tx.post(self.with_lens(frame), self.offload),
            Some(neighbor_request) => wait(frame, neighbor_request, cx),
        }
    }

    /// Records where the headers lie, for a NIC that computes checksums.
    fn with_lens(&self, mut frame: Mbuf) -> Mbuf {
        if self.offload.has(Offload::L4_CHECKSUM) {
            frame.set_l2_len(self.link.len());
            frame.set_l3_len(ipv4::HEADER_LEN);
        }
        frame
    }
}

/// Sends an answer without a neighbor entry: to the MAC address that the segment came from, with no
/// ARP request.
#[cold]
fn send_back(
    request: NextHopRequest,
    segment: &Outgoing,
    offloads: OutOffloads,
    cx: &mut Cx<'_>,
) -> Result<(), Unsent> {
    let Some((link, link_len)) = next_hop::back(request, cx) else { return Err(Unsent::NoRoute) };
    let departure =
        Departure { link: &link[..link_len], segment, offload: offloads.of(segment, false), neighbor_request: None };
    departure.send_bare(cx)
}

/// The resolver writes the destination into a frame of its own.
#[cold]
fn wait(frame: Mbuf, neighbor_request: NeighborRequest, cx: &mut Cx<'_>) -> Result<(), Mbuf> {
    let Some(copy) = copy_of(&frame, cx) else { return Err(frame) };
    frame.free();
    cx.egress().queue(copy, neighbor_request)
}

fn copy_of(frame: &Mbuf, cx: &Cx<'_>) -> Option<Mbuf> {
    let mut copy = cx.pool.alloc()?;
    for segment in frame.segments() {
        match copy.append(segment.len()) {
            Some(room) => room.copy_from_slice(segment),
            None => {
                copy.free();
                return None;
            }
        }
    }
    Some(copy)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a panic here is the report

    use super::*;
    use crate::mem::Pool;

    fn longest(chains: bool, segmentation_len_max: usize, room: usize) -> usize {
        OutOffloads { checksum: true, segmentation_len_max, chains, pieces_max: 1 }.longest(room)
    }

    #[test]
    fn device_that_takes_no_chains_is_given_no_more_than_a_copy_has_room_for() {
        let pool = Pool::heap(1).unwrap();
        let room = pool.layout().data_room();
        let mut copy = pool.alloc_copy(&[0; HEADERS_LEN_MAX]).unwrap();
        assert!(
            copy.append(longest(false, 64 << 10, room)).is_some(),
            "it was refused for ever (seed 7754 of the simulation)"
        );
        copy.free();
        assert_eq!(
            (longest(true, 64 << 10, room), longest(false, 500, room), longest(false, 64 << 10, 10)),
            (64 << 10, 500, 0)
        );
    }
}
