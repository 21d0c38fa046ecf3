//! Looks ahead over a burst, for a worker with so many connections that its caches do not hold them: the first bytes of each frame name
//! the flow, the flow its bucket, the bucket the connection. The buckets of the whole burst are asked for at once; a connection while
//! the frames before its own are worked on, so that DRAM and CPU do not wait for each other.
//!
//! Nothing is decided here: a frame that only looks like a segment costs a few loads, and is checked by the nodes as all are.

use core::net::SocketAddrV4;

use arrayvec::ArrayVec;
use zerocopy::FromBytes;

use super::sockets::{Inner, TcpSockets};
use crate::mem::{BURST_MAX, Mbuf, prefetch_line};
use crate::proto::Flow;
use crate::proto::tcp::Sought;
use crate::wire::{EtherType, EthernetFrame, Ipv4Header, Protocol};

/// With fewer connections all of them are in the second cache, and looking ahead costs more than it brings. Each takes 600 bytes there.
const CROWD: usize = 512;

/// Connections are asked for so many at a time, while as many before them are worked on: the work is what their
/// misses hide behind. Fewer hide less, more take turns for the few misses that a core can have at once.
const AT_ONCE: usize = 4;

/// No connection's place.
const NOWHERE: u32 = u32::MAX;

/// What was foreseen of a burst, segment by segment.
#[derive(Default)]
pub(super) struct Foresight {
    /// The flows that frames seem to be of which look like segments.
    sought: ArrayVec<Sought, BURST_MAX>,
    /// Of the first of them: the connection's place, or [`NOWHERE`].
    places: ArrayVec<u32, BURST_MAX>,
    /// The segment that comes next. Where a node before ours keeps or drops one, it is one that came already, and what is foreseen from
    /// there to the end of the burst is worth nothing.
    next: usize,
}

impl TcpSockets {
    /// Asks the CPU for the buckets of a burst's flows, and for the connections of its first segments. Where there is no crowd it costs a
    /// load and a compare.
    #[inline]
    pub(crate) fn look_ahead(&mut self, burst: &[Mbuf]) {
        if let Some(inner) = &mut self.0
            && inner.machine.len() >= CROWD
        {
            inner.look_ahead(burst);
        }
    }

    /// The next segment has come to the TCP node. Asked there, and not by whoever walks over the burst: frames that are no segments do not
    /// pay for it.
    #[inline(always)]
    pub(super) fn step(&mut self) {
        if let Some(inner) = &mut self.0
            && inner.foresight.next < inner.foresight.places.len()
        {
            inner.step();
        }
    }
}

impl Inner {
    #[inline(never)]
    fn look_ahead(&mut self, burst: &[Mbuf]) {
        let Self { machine, foresight: Foresight { sought, places, next }, .. } = self;
        sought.clear();
        places.clear();
        *next = 0;
        for mbuf in burst {
            let Some(flow) = flow_of(mbuf.bytes()).and_then(|flow| machine.seek(flow)) else { continue };
            prefetch_line(machine.bucket(&flow));
            sought.push(flow);
        }
        self.ask_for_more();
    }

    /// Tells the machine whose segment comes now, so that it does not look for the connection once more. Those that
    /// come later are asked for now and then.
    #[inline(always)]
    fn step(&mut self) {
        let next = self.foresight.next;
        if next.is_multiple_of(AT_ONCE) {
            self.ask_for_more();
        }
        match self.foresight.places.get(next) {
            Some(&NOWHERE) | None => (),
            Some(&slot) => self.machine.expect(slot),
        }
        self.foresight.next = next + 1;
    }

    /// Asks the CPU for the next connections, and for the ways of their frames.
    #[inline(never)]
    fn ask_for_more(&mut self) {
        let Self { machine, paths, foresight: Foresight { sought, places, .. }, .. } = self;
        let mut before = places.last().copied().unwrap_or(NOWHERE);
        for sought in sought.iter().skip(places.len()).take(AT_ONCE) {
            let slot = machine.foresee(sought).unwrap_or(NOWHERE);
            // Segments in a row are most often of one connection.
            if slot != before {
                machine.lines(slot).into_iter().for_each(prefetch_line);
                prefetch_line(paths.as_ptr().wrapping_add(slot as usize).cast());
                before = slot;
            }
            places.push(slot);
        }
    }
}

/// Whose segment a frame looks like. One with IPv4 options or in fragments is not looked at: it is found without our help.
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
