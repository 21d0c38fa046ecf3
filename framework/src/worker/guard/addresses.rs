//! The addresses of the dead process: routers and peers whose ARP entry expires send requests
//! (RFC 826) that only the guardian can answer. A peer that lacks data must be able to report that,
//! and after a link loss the kernels on both ends have forgotten their neighbors.
//!
//! It answers only the next hops of the dead process, and stops as soon as another host, such as a
//! spare machine, announces the address or probes for it.

use core::net::Ipv4Addr;
use std::collections::HashMap;

use arrayvec::ArrayVec;
use zerocopy::IntoBytes;

use super::resets::Frame;
use crate::pipeline::tcp::roster::{LINK_LEN_MAX, OpenConnection};
use crate::wire::arp::{ArpFields, ArpOperation, ArpPacket};
use crate::wire::{EtherType, MacAddr};

/// A link header as a worker wrote it last: destination next hop, our source, tags, EtherType.
type LinkHeader = ArrayVec<u8, LINK_LEN_MAX>;

/// The addresses of the open connections.
#[derive(Debug)]
pub(super) struct Addresses {
    /// Keyed by local address and next hop.
    links: HashMap<(Ipv4Addr, MacAddr), LinkHeader>,
}

impl Addresses {
    pub(super) fn new(connections: &[OpenConnection]) -> Self {
        let known = connections.iter().filter_map(|connection| {
            let (next_hop, _) = ends(&connection.link)?;
            Some(((*connection.flow.local.ip(), next_hop), connection.link.clone()))
        });
        Self { links: known.collect() }
    }

    /// Processes a received ARP packet and returns the reply, if it requires one.
    pub(super) fn receive(&mut self, bytes: &[u8]) -> Option<Frame> {
        let (packet, _) = ArpPacket::parse(bytes).ok()?;
        let claimed = if packet.is_probe() { packet.target_ip() } else { packet.sender_ip() };
        self.links.retain(|(address, _), link| {
            *address != claimed || ends(link).is_some_and(|(_, own)| own == packet.sender_mac())
        });
        if packet.operation() != ArpOperation::Request {
            return None;
        }
        let link = self.links.get(&(packet.target_ip(), packet.sender_mac()))?;
        answer(link, packet)
    }
}

/// The MAC addresses of the next hop and of the dead process.
fn ends(link: &[u8]) -> Option<(MacAddr, MacAddr)> {
    let mac = |at: usize| Some(MacAddr(link.get(at..at + 6)?.try_into().ok()?));
    Some((mac(0)?, mac(6)?))
}

fn answer(link: &LinkHeader, asked: &ArpPacket) -> Option<Frame> {
    let (_, own) = ends(link)?;
    let packet = ArpPacket::new(&ArpFields {
        operation: ArpOperation::Reply,
        sender_mac: own,
        sender_ip: asked.target_ip(),
        target_mac: asked.sender_mac(),
        target_ip: asked.sender_ip(),
    });
    let mut frame = Frame::new();
    frame.extend(link[..link.len() - 2].iter().copied());
    frame.extend(EtherType::ARP.0.to_be_bytes());
    frame.extend(packet.as_bytes().iter().copied());
    Some(frame)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a panic here is the report

    use super::*;
    use crate::proto::Flow;
    use crate::wire::EthernetFrame;

    const OURS: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
    const ROUTER: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 254);
    const OWN_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
    const ROUTER_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
    const OTHER_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 3]);

    /// One connection behind the router, in VLAN 5.
    fn addresses() -> Addresses {
        let flow = Flow { local: "10.9.0.1:1000".parse().unwrap(), remote: "10.7.0.2:80".parse().unwrap() };
        let link = [&ROUTER_MAC.0[..], &OWN_MAC.0, &[0x81, 0, 0, 5, 8, 0]].concat();
        Addresses::new(&[OpenConnection { flow, link: link.into_iter().collect(), snd_nxt: 100, rcv_nxt: 7 }])
    }

    fn said(operation: ArpOperation, mac: MacAddr, sender_ip: Ipv4Addr, target_ip: Ipv4Addr) -> [u8; 28] {
        let fields = ArpFields { operation, sender_mac: mac, sender_ip, target_mac: MacAddr([0; 6]), target_ip };
        ArpPacket::new(&fields).as_bytes().try_into().unwrap()
    }

    fn question() -> [u8; 28] {
        said(ArpOperation::Request, ROUTER_MAC, ROUTER, OURS)
    }

    #[test]
    fn next_hop_that_asks_for_the_dead_is_answered_in_their_vlan() {
        let frame = addresses().receive(&question()).unwrap();
        assert_eq!(frame[12..18], [0x81, 0, 0, 5, 8, 6]);
        let ethernet = EthernetFrame::parse(&frame).unwrap();
        let (packet, padding) = ArpPacket::parse(ethernet.payload).unwrap();
        assert_eq!((packet.operation(), padding.len()), (ArpOperation::Reply, 0));
        assert_eq!((packet.sender_mac(), packet.sender_ip()), (OWN_MAC, OURS));
        assert_eq!((packet.target_mac(), packet.target_ip()), (ROUTER_MAC, ROUTER));
        assert_eq!(frame[..12], [ROUTER_MAC.0, OWN_MAC.0].concat());
    }

    #[test]
    fn others_and_other_questions_are_not_answered() {
        for unanswered in [
            said(ArpOperation::Request, OTHER_MAC, ROUTER, OURS),
            said(ArpOperation::Request, ROUTER_MAC, ROUTER, Ipv4Addr::new(10, 9, 0, 9)),
            said(ArpOperation::Reply, ROUTER_MAC, ROUTER, OURS),
            [0; 28],
        ] {
            let mut addresses = addresses();
            assert_eq!(addresses.receive(&unanswered), None);
            assert!(addresses.receive(&question()).is_some());
        }
        assert_eq!(addresses().receive(&question()[..27]), None);
    }

    #[test]
    fn address_that_somebody_else_takes_is_theirs() {
        let any = Ipv4Addr::UNSPECIFIED;
        for claim in [
            said(ArpOperation::Request, OTHER_MAC, any, OURS),
            said(ArpOperation::Request, OTHER_MAC, OURS, OURS),
            said(ArpOperation::Reply, OTHER_MAC, OURS, ROUTER),
        ] {
            let mut addresses = addresses();
            assert_eq!(addresses.receive(&claim), None);
            assert_eq!(addresses.receive(&question()), None);
        }
    }

    #[test]
    fn what_the_dead_said_themselves_is_no_claim_of_another() {
        let mut addresses = addresses();
        assert_eq!(addresses.receive(&said(ArpOperation::Request, OWN_MAC, OURS, ROUTER)), None);
        assert!(addresses.receive(&question()).is_some());
    }
}
