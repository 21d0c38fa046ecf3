//! Segments become frames: options, TCP, IPv4 and link header in front of the payload, in one go and in the payload's own buffer where
//! that is ours to write.

use core::net::Ipv4Addr;

use zerocopy::IntoBytes;

use super::super::answer::LINK_LEN_MAX;
use super::super::node::Cx;
use super::super::resolver;
use super::bytes::Bytes;
use super::path::{Path, Way};
use super::roster::{OpenConnection, Roster};
use crate::counters::{Counter, Scope, Unit};
use crate::device::{Capabilities, Offload};
use crate::mem::Mbuf;
use crate::proto::tcp::{Outgoing, Output, Payload, Seq, SynOptions, Unsent};
use crate::proto::{Flow, NeighbourWish};
use crate::wire::checksum::{PseudoHeader, Sum};
use crate::wire::tcp::{OPTIONS_LEN_MAX, SackBlock, TcpFields, Timestamps};
use crate::wire::{Ipv4Fields, Ipv4Header, Protocol, TcpHeader, TcpOption, TcpOptionList, ethernet, ipv4, tcp};

/// Bytes of the longest headers.
pub(super) const HEADERS_LEN_MAX: usize = LINK_LEN_MAX + ipv4::HEADER_LEN + tcp::HEADER_LEN + OPTIONS_LEN_MAX;

/// What leaves, counted.
pub(super) struct OutCounters {
    pub(super) segments: Counter,
    pub(super) bytes: Counter,
    /// Found no room in the device's ring, or no buffer; the machine tries again.
    busy: Counter,
    /// Had no way: no route, link down, neighbour missing.
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

/// What the device can do for segments.
#[derive(Clone, Copy, Debug)]
pub(super) struct OutOffloads {
    pub(super) checksum: bool,
    segmentation_len_max: usize,
    /// Frames may be chains.
    chains: bool,
}

impl OutOffloads {
    pub(super) fn new(capabilities: &Capabilities) -> Self {
        let checksum = capabilities.tx.l4_checksum;
        Self {
            checksum,
            // Whoever cuts segments writes each one's checksum.
            segmentation_len_max: if checksum { capabilities.tx.segmentation_len_max } else { 0 },
            chains: capabilities.tx_segments_max >= 2,
        }
    }
}

/// The way out of one call.
pub(super) struct WayOut<'a, 'b> {
    pub(super) cx: &'a mut Cx<'b>,
    pub(super) paths: &'a mut [Path],
    pub(super) counters: &'a OutCounters,
    pub(super) offloads: OutOffloads,
    /// Where open connections are written down for the guardian.
    pub(super) roster: &'a mut Option<Roster>,
}

/// The headers of a frame, back to front as they are long.
pub(super) struct Headers {
    bytes: [u8; HEADERS_LEN_MAX],
    len: usize,
    pub(super) link_len: usize,
}

impl Output<Bytes> for WayOut<'_, '_> {
    fn send(&mut self, slot: Option<u32>, segment: &Outgoing, payload: Option<&mut Bytes>) -> Result<(), Unsent> {
        let payload_len = payload.as_ref().map_or(0, |payload| payload.len());
        let sent = self.send_frame(slot, segment, payload);
        match sent {
            Ok(()) => {
                self.counters.segments.inc();
                self.counters.bytes.add(payload_len as u64);
                self.note(slot, segment, payload_len as u32);
            }
            Err(Unsent::Busy) => self.counters.busy.inc(),
            Err(Unsent::Lost) => self.counters.lost.inc(),
        }
        sent
    }

    fn mtu(&self, remote: Ipv4Addr) -> usize {
        let path = self.cx.egress.path_mtu(remote, self.cx.now).map_or(usize::MAX, |(mtu, _)| mtu);
        path.min(self.cx.host.mtu())
    }

    fn segmentation_len_max(&self) -> usize {
        self.offloads.segmentation_len_max
    }

    /// The place may have been another connection's before, with another way.
    #[cold]
    fn opened(&mut self, slot: u32, flow: Flow, snd_nxt: Seq, rcv_nxt: Seq) {
        let path = &mut self.paths[slot as usize];
        *path = Path::NONE;
        let Some(roster) = self.roster else { return };
        path.way(*flow.local.ip(), *flow.remote.ip(), self.cx, |_| ());
        let link = path.known().iter().copied().collect();
        roster.open(slot, &OpenConnection { flow, link, snd_nxt: snd_nxt.0, rcv_nxt: rcv_nxt.0 });
    }

    #[cold]
    fn closed(&mut self, slot: u32) {
        if let Some(roster) = self.roster {
            roster.close(slot);
        }
    }
}

impl WayOut<'_, '_> {
    /// A segment has left. Who sends past [`send`](Output::send) says so here, or the guardian has to ask the peer what it got.
    #[inline(always)]
    pub(super) fn note(&self, slot: Option<u32>, segment: &Outgoing, payload_len: u32) {
        if let (Some(slot), Some(roster)) = (slot, &*self.roster) {
            roster.note(slot, segment.seq + payload_len, segment.ack);
        }
    }

    #[inline]
    fn send_frame(&mut self, slot: Option<u32>, segment: &Outgoing, payload: Option<&mut Bytes>) -> Result<(), Unsent> {
        let (source, destination) = (*segment.flow.local.ip(), *segment.flow.remote.ip());
        let mut stranger = Path::NONE;
        let path = match slot {
            Some(slot) => &mut self.paths[slot as usize],
            None => &mut stranger,
        };
        if segment.syn.is_some() {
            // The place may have been another connection's before, with another way.
            *path = Path::NONE;
        }
        let roster = &mut *self.roster;
        let news = |path: &Path| {
            if let (Some(slot), Some(roster)) = (slot, roster) {
                roster.set_link(slot, path.known());
            }
        };
        let (link, wish) = match path.way(source, destination, self.cx, news) {
            Way::Known(link) => (link, None),
            Way::Asked(link, wish) => (link, Some(wish)),
            Way::Lost => return Err(Unsent::Lost),
        };
        let mut headers = Headers::new(link);
        let offload = self.offload(segment, wish.is_some());
        match payload {
            None => {
                headers.write(segment, Sum::EMPTY, 0, offload);
                let Some(mut frame) = self.cx.pool.alloc() else { return Err(Unsent::Busy) };
                headers.copy_to(frame.append(headers.len).expect("a buffer has room for headers"));
                self.leave(frame, &headers, offload, wish).map_err(|frame| {
                    frame.free();
                    Unsent::Busy
                })
            }
            Some(payload) => self.send_payload(segment, payload, headers, offload, wish),
        }
    }

    /// What the NIC is to do. What waits for a neighbour is posted by somebody else, who does not know.
    #[inline]
    fn offload(&self, segment: &Outgoing, waits: bool) -> Offload {
        let checksum = self.offloads.checksum && !waits;
        let segment_len = if checksum { core::num::NonZeroU16::new(segment.segment_len) } else { None };
        Offload { l4_checksum: checksum, ip_checksum: segment_len.is_some(), segment_len, ..Offload::default() }
    }

    #[inline]
    fn send_payload(
        &mut self,
        segment: &Outgoing,
        payload: &mut Bytes,
        mut headers: Headers,
        offload: Offload,
        wish: Option<NeighbourWish>,
    ) -> Result<(), Unsent> {
        let sum = payload.sum();
        let Some(mut frame) = self.owned(payload) else {
            return self.send_copy(segment, payload, headers, offload, wish);
        };
        let payload_len = frame.len();
        let payload_sum = match sum {
            Some(sum) => sum,
            None => sum_where(!offload.l4_checksum, frame.bytes()),
        };
        headers.write(segment, payload_sum, payload_len, offload);
        match frame.prepend(headers.len) {
            Some(room) => headers.copy_to(room),
            None => {
                *payload = Bytes::Held(frame.hold());
                frame.free();
                return self.send_copy(segment, payload, headers, offload, wish);
            }
        }
        let held = frame.hold_part(headers.len, payload_len);
        match self.leave(frame, &headers, offload, wish) {
            Ok(()) => {
                // What stood there was taken above: nothing is dropped.
                core::mem::forget(core::mem::replace(payload, Bytes::Held(held)));
                Ok(())
            }
            Err(mut frame) => {
                drop(held);
                frame.advance(headers.len);
                *payload = Bytes::summed(frame, sum);
                Err(Unsent::Busy)
            }
        }
    }

    /// The payload as an mbuf that is ours to write: one that was not sent yet, or one that was and that nobody else holds any more.
    #[inline]
    fn owned(&self, payload: &mut Bytes) -> Option<Mbuf> {
        if let Bytes::Held(_) = payload {
            return reclaim(payload);
        }
        let mbuf = payload.take_mbuf()?;
        if mbuf.is_plain() && mbuf.is_writable() {
            return Some(mbuf);
        }
        *payload = Bytes::Held(mbuf.hold());
        mbuf.free();
        None
    }

    /// The payload is somebody else's too: the NIC still reads it, or it is a part of something larger. It goes as a view behind the headers
    /// where the device takes chains, else as a copy.
    #[inline(never)]
    fn send_copy(
        &mut self,
        segment: &Outgoing,
        payload: &Bytes,
        mut headers: Headers,
        offload: Offload,
        wish: Option<NeighbourWish>,
    ) -> Result<(), Unsent> {
        let Bytes::Held(held) = payload else { return Err(Unsent::Lost) };
        let Some(bytes) = held.bytes() else { return Err(Unsent::Lost) };
        headers.write(segment, sum_where(!offload.l4_checksum, bytes), bytes.len(), offload);
        let Some(mut frame) = self.cx.pool.alloc_copy(headers.as_bytes()) else { return Err(Unsent::Busy) };
        let is_whole = if self.offloads.chains && wish.is_none() {
            match self.cx.pool.view(held.another()) {
                Ok(view) => {
                    frame.attach(view);
                    true
                }
                Err(_) => false,
            }
        } else {
            frame.append(bytes.len()).map(|room| room.copy_from_slice(bytes)).is_some()
        };
        if !is_whole {
            frame.free();
            return Err(Unsent::Busy);
        }
        self.leave(frame, &headers, offload, wish).map_err(|frame| {
            frame.free();
            Unsent::Busy
        })
    }

    /// Posts a frame, or lets it wait for its neighbour. It comes back where neither can be.
    #[inline]
    fn leave(
        &mut self,
        mut frame: Mbuf,
        headers: &Headers,
        offload: Offload,
        wish: Option<NeighbourWish>,
    ) -> Result<(), Mbuf> {
        if offload.l4_checksum {
            frame.set_l2_len(headers.link_len);
            frame.set_l3_len(ipv4::HEADER_LEN);
        }
        match wish {
            None => self.cx.tx.post(frame, offload),
            // The resolver writes the destination into a frame of its own.
            Some(wish) => {
                let Some(copy) = copy_of(&frame, self.cx) else { return Err(frame) };
                frame.free();
                resolver::queue(copy, wish, self.cx)
            }
        }
    }
}

/// The buffer that held bytes stand in, cut down to them, where nobody else holds it any more.
fn reclaim(payload: &mut Bytes) -> Option<Mbuf> {
    let Bytes::Held(held) = core::mem::replace(payload, Bytes::NONE) else { return None };
    let (start, len) = (held.bytes()?.as_ptr() as usize, held.len());
    match held.into_mbuf() {
        Err(held) => {
            *payload = Bytes::Held(held);
            None
        }
        Ok(mut mbuf) => {
            assert!(mbuf.is_plain(), "only linear buffers are sent");
            let offset = start - mbuf.bytes().as_ptr() as usize;
            mbuf.narrow(offset, len);
            Some(mbuf)
        }
    }
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

#[inline]
fn sum_where(computed: bool, payload: &[u8]) -> Sum {
    if computed { Sum::of(payload) } else { Sum::EMPTY }
}

impl Headers {
    #[inline]
    pub(super) fn new(link: &[u8]) -> Self {
        let mut bytes = [0; HEADERS_LEN_MAX];
        match <&[u8; ethernet::HEADER_LEN]>::try_from(link) {
            // Without a tag, as nearly all are: a few instructions, where a copy of any length is a call.
            Ok(untagged) => bytes[..ethernet::HEADER_LEN].copy_from_slice(untagged),
            Err(_) => bytes[..link.len()].copy_from_slice(link),
        }
        Self { bytes, len: link.len(), link_len: link.len() }
    }

    #[inline]
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Writes IPv4, TCP and options behind the link header; `payload` is the payload's sum.
    #[inline]
    pub(super) fn write(&mut self, segment: &Outgoing, payload: Sum, payload_len: usize, offload: Offload) {
        match segment.timestamps {
            // Nearly all segments. Their length is known here, so that no copy is a call.
            Some(timestamps) if segment.syn.is_none() && segment.sack_count == 0 => {
                self.write_before(segment, &timestamps.aligned(), payload, payload_len, offload);
            }
            _ => self.write_others(segment, payload, payload_len, offload),
        }
    }

    #[inline(never)]
    fn write_others(&mut self, segment: &Outgoing, payload: Sum, payload_len: usize, offload: Offload) {
        self.write_before(segment, options(segment).as_bytes(), payload, payload_len, offload);
    }

    #[inline(always)]
    fn write_before(&mut self, segment: &Outgoing, options: &[u8], payload: Sum, payload_len: usize, offload: Offload) {
        let tcp_len = tcp::HEADER_LEN + options.len() + payload_len;
        let (source, destination) = (*segment.flow.local.ip(), *segment.flow.remote.ip());
        let fields = Ipv4Fields {
            source,
            destination,
            protocol: Protocol::TCP,
            ttl: segment.ttl,
            // RFC 3168 5: ECT(0) is 10 in the lower two bits.
            tos: (segment.tos & !3) | if segment.ect { 2 } else { 0 },
            // RFC 6864 4.1: what is never cut needs no identification.
            identification: 0,
            dont_fragment: true,
            payload_len: tcp_len,
        };
        let ipv4 = Ipv4Header::new(&fields).expect("a segment fits an IPv4 packet");
        let fields = TcpFields {
            source_port: segment.flow.local.port(),
            destination_port: segment.flow.remote.port(),
            seq: segment.seq.0,
            ack: segment.ack.0,
            flags: segment.flags,
            window: segment.wnd,
            urgent_pointer: 0,
        };
        let mut tcp = TcpHeader::new(&fields, options).expect("the list keeps to whole words");
        let pseudo = PseudoHeader { source, destination, protocol: Protocol::TCP, len: tcp_len as u16 };
        if offload.l4_checksum {
            tcp.set_checksum(pseudo.sum().fold());
        } else {
            tcp.fill_checksum(pseudo.sum().append(options).combine(payload));
        }
        self.len = self.link_len + ipv4::HEADER_LEN + tcp::HEADER_LEN + options.len();
        let (fixed, behind) = self.bytes[self.link_len..self.len].split_at_mut(ipv4::HEADER_LEN + tcp::HEADER_LEN);
        fixed[..ipv4::HEADER_LEN].copy_from_slice(ipv4.as_bytes());
        fixed[ipv4::HEADER_LEN..].copy_from_slice(tcp.as_bytes());
        behind.copy_from_slice(options);
    }

    /// Copies the headers into `room`, which is as long as they are.
    #[inline]
    fn copy_to(&self, room: &mut [u8]) {
        const USUAL_LEN: usize = ethernet::HEADER_LEN + ipv4::HEADER_LEN + tcp::HEADER_LEN + Timestamps::ALIGNED_LEN;
        match room.first_chunk_mut::<USUAL_LEN>() {
            Some(usual) if self.len == USUAL_LEN => usual.copy_from_slice(&self.bytes[..USUAL_LEN]),
            _ => room.copy_from_slice(self.as_bytes()),
        }
    }
}

/// The options of a segment.
#[inline]
fn options(segment: &Outgoing) -> TcpOptionList {
    let mut list = TcpOptionList::EMPTY;
    if let Some(syn) = &segment.syn {
        push_syn(&mut list, syn);
    }
    if let Some(timestamps) = segment.timestamps {
        push(&mut list, TcpOption::Timestamps(timestamps));
    }
    if segment.sack_count > 0 {
        let mut blocks = [SackBlock::new([0; 2]); 4];
        for (block, range) in blocks.iter_mut().zip(segment.sacks()) {
            *block = SackBlock::new([range.left.0, range.right.0]);
        }
        push(&mut list, TcpOption::Sack(&blocks[..segment.sacks().len()]));
    }
    list
}

#[cold]
fn push_syn(list: &mut TcpOptionList, syn: &SynOptions) {
    if let Some(mss) = syn.mss {
        push(list, TcpOption::MaximumSegmentSize(mss));
    }
    if let Some(shift) = syn.window_scale {
        push(list, TcpOption::WindowScale(shift));
    }
    if syn.sack_permitted {
        push(list, TcpOption::SackPermitted);
    }
}

/// The machine asks for no more than fits; a block too many is left out.
#[inline]
fn push(list: &mut TcpOptionList, option: TcpOption<'_>) {
    let _ = list.push(option);
}
