//! Looks ahead over a burst, for a worker with so many connections that its caches do not hold
//! them: the first bytes of each frame give the flow, the flow gives its bucket, and the bucket the
//! connection. The buckets of the whole burst are prefetched at once, a connection while the frames
//! before its own are processed, so that DRAM and CPU overlap.
//!
//! The prefetch decides nothing: a frame that only looks like a segment costs a few loads, and the
//! nodes check it as they check every frame.

use core::net::SocketAddrV4;

use arrayvec::ArrayVec;
use zerocopy::FromBytes;

use super::sockets::{Inner, TcpSockets};
use crate::mem::{BURST_MAX, Mbuf, prefetch_line};
use crate::proto::Flow;
use crate::proto::tcp::LookupKey;
use crate::wire::{EtherType, EthernetFrame, Ipv4Header, Protocol};

/// Fewer connections are not prefetched. A lookup before the segment arrives pays from some twenty
/// connections on, even where the cache holds all of them; but with few connections most segments
/// come in a row, and find theirs where it was.
const PREFETCH_CONNECTIONS_MIN: usize = 64;

/// Segments that are processed between a connection's prefetch and its own segment. A core can have
/// some twenty cache misses outstanding, and each connection has seven lines: further ahead, the
/// prefetch itself stalls.
const PREFETCH_DISTANCE: usize = 2;

/// No connection.
const NOWHERE: u32 = u32::MAX;

/// The prefetched connections of a burst, segment by segment.
#[derive(Default)]
pub(super) struct Prefetcher {
    /// Slots of the connections of frames that look like segments, or [`NOWHERE`].
    places: ArrayVec<u32, BURST_MAX>,
    /// The next segment. Where an earlier node keeps or drops a segment, the index stays behind,
    /// and the rest of the burst gains nothing from its prefetch.
    next: usize,
}

impl TcpSockets {
    /// Prefetches the buckets of a burst's flows, and the connections of its first segments. With
    /// few connections it costs a load and a compare.
    #[inline]
    pub(crate) fn prefetch(&mut self, burst: &[Mbuf]) {
        if let Some(inner) = &mut self.0
            && inner.machine.len() >= PREFETCH_CONNECTIONS_MIN
        {
            inner.prefetch(burst);
        }
    }

    /// The next segment has arrived at the TCP node. The node calls this, not the loop over the
    /// burst, so that frames without a segment do not pay for it.
    #[inline(always)]
    pub(super) fn step(&mut self) {
        if let Some(inner) = &mut self.0
            && inner.prefetcher.next < inner.prefetcher.places.len()
        {
            inner.step();
        }
    }
}

impl Inner {
    #[inline(never)]
    fn prefetch(&mut self, burst: &[Mbuf]) {
        let mut keys = ArrayVec::<LookupKey, BURST_MAX>::new();
        for mbuf in burst {
            let Some(flow) = flow_of(mbuf.bytes()).and_then(|flow| self.machine.lookup_key(flow)) else { continue };
            prefetch_line(self.machine.bucket(&flow));
            keys.push(flow);
        }
        self.prefetcher.next = 0;
        self.prefetcher.places.clear();
        for key in &keys {
            self.prefetcher.places.push(self.machine.likely_slot(key).unwrap_or(NOWHERE));
        }
        (0..PREFETCH_DISTANCE).for_each(|idx| self.ask_for(idx));
    }

    /// Passes the connection of this segment to the machine, which saves its lookup, and prefetches
    /// that of a later one.
    #[inline(always)]
    fn step(&mut self) {
        let next = self.prefetcher.next;
        self.ask_for(next + PREFETCH_DISTANCE);
        match self.prefetcher.places.get(next) {
            Some(&NOWHERE) | None => (),
            Some(&slot) => self.machine.expect(slot),
        }
        self.prefetcher.next = next + 1;
    }

    /// Prefetches a segment's connection and the path of its frames.
    #[inline(always)]
    fn ask_for(&mut self, idx: usize) {
        if let Some(&slot) = self.prefetcher.places.get(idx) {
            self.machine.lines(slot).into_iter().for_each(prefetch_line);
            prefetch_line(self.link_headers.as_ptr().wrapping_add(slot as usize).cast());
        }
    }
}

/// The flow that a frame seems to belong to. IPv4 options and fragments are not recognized: the
/// nodes look those connections up.
#[inline]
fn flow_of(frame: &[u8]) -> Option<Flow> {
    let frame = EthernetFrame::parse(frame).ok().filter(|frame| frame.ethertype == EtherType::IPV4)?;
    let (ipv4, rest) = Ipv4Header::ref_from_prefix(frame.payload).ok()?;
    let [source_high, source_low, destination_high, destination_low] = *rest.first_chunk()?;
    (ipv4.protocol() == Protocol::TCP).then(|| Flow {
        local: SocketAddrV4::new(ipv4.destination(), u16::from_be_bytes([destination_high, destination_low])),
        remote: SocketAddrV4::new(ipv4.source(), u16::from_be_bytes([source_high, source_low])),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An IPv4 packet from 10.0.0.1:2000 to 10.0.0.2:80 behind a link header.
    fn frame(link: &[u8], protocol: u8) -> Vec<u8> {
        let mut packet = [0; 40];
        (packet[0], packet[9]) = (0x45, protocol);
        packet[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        packet[20..24].copy_from_slice(&[7, 208, 0, 80]);
        [&[0; 12], link, &packet].concat()
    }

    #[test]
    fn flow_is_that_of_the_connection_at_our_end() {
        let ends = [[10, 0, 0, 2], [10, 0, 0, 1]].map(|octets| octets.into());
        let flow = Flow { local: SocketAddrV4::new(ends[0], 80), remote: SocketAddrV4::new(ends[1], 2000) };
        for link in [&[8, 0][..], &[0x81, 0, 0, 7, 8, 0]] {
            assert_eq!(flow_of(&frame(link, 6)), Some(flow), "{link:?}");
        }
    }

    #[test]
    fn what_is_no_segment_is_not_looked_for() {
        assert_eq!(flow_of(&frame(&[8, 0], 17)), None, "UDP");
        assert_eq!(flow_of(&frame(&[8, 6], 6)), None, "ARP");
        let segment = frame(&[8, 0], 6);
        assert!((0..14 + 24).all(|len| flow_of(&segment[..len]).is_none()), "cut short");
    }
}
