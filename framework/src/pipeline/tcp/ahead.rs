//! Looks ahead over a burst, for a worker with so many connections that its caches do not hold them: the first bytes of each frame name
//! the flow, the flow its bucket, the bucket the connection. Each step is made for the whole burst before the next begins, so that what is
//! waited for at DRAM is waited for at once, and not segment by segment.
//!
//! Nothing is decided here: a frame that only looks like a segment costs a few loads, and is checked by the nodes as all are.

use core::net::SocketAddrV4;

use arrayvec::ArrayVec;
use zerocopy::FromBytes;

use super::sockets::{Inner, TcpSockets};
use crate::mem::{BURST_MAX, Mbuf, prefetch_line};
use crate::proto::Flow;
use crate::wire::{EtherType, EthernetFrame, Ipv4Header, Protocol};

/// With fewer connections all of them are in the second cache, and looking ahead costs more than it brings. Each takes 600 bytes there.
const CROWD: usize = 512;

impl TcpSockets {
    /// Asks the CPU for what the segments of a burst will need. A load and a compare where that is in the caches anyway.
    #[inline]
    pub(crate) fn look_ahead(&self, burst: &[Mbuf]) {
        if let Some(inner) = &self.0
            && inner.machine.len() >= CROWD
        {
            inner.look_ahead(burst);
        }
    }
}

impl Inner {
    #[inline(never)]
    fn look_ahead(&self, burst: &[Mbuf]) {
        let mut sought = ArrayVec::<_, BURST_MAX>::new();
        for flow in burst.iter().filter_map(|mbuf| flow_of(mbuf.bytes())) {
            if let Some(flow) = self.machine.seek(flow) {
                prefetch_line(self.machine.bucket(&flow));
                sought.push(flow);
            }
        }
        for slot in sought.iter().filter_map(|flow| self.machine.foresee(flow)) {
            self.machine.lines(slot).into_iter().for_each(prefetch_line);
            prefetch_line((&raw const self.paths[slot as usize]).cast());
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
