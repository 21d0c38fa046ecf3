//! How a connection goes from one process to another that listens at the same port, where a broker
//! passes frames on: a frame of a type for local experiments (IEEE 802 9.2.3), whose payload is the
//! segment that the peer would have sent. It never leaves the host. One from the wire is ignored,
//! because the broker alone marks a frame as its own ([`MARK`]).
//!
//! ```text
//!  MAC addresses │ type │ flags │ ─ │ number of our SYN │ our timestamp │ next │ IPv4 packet
//!        12         2       1     3           4                 4           4     of a segment
//! ```

use super::EtherType;

/// The type of the frames.
pub(crate) const ETHERTYPE: EtherType = EtherType(0x88b5);
/// The tag of such a frame that the broker has delivered: no rule has one of more than 24 bits.
pub(crate) const MARK: u32 = 0x4841_4e44;
/// Bytes behind the Ethernet header and before the packet.
pub(crate) const HEADER_LEN: usize = 16;
/// Bytes before the packet.
pub(crate) const PACKET_AT: usize = ETHERNET_LEN + HEADER_LEN;

const ETHERNET_LEN: usize = 14;
const BEGINS: u8 = 1;
const LAST: u8 = 2;

/// Sets the flag in a frame that no other process has taken the connection.
pub(crate) fn mark_last(frame: &mut [u8]) {
    if let Some(flags) = frame.get_mut(ETHERNET_LEN) {
        *flags |= LAST;
    }
}

/// The state that the next owner of a connection cannot learn from the peer's segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handover {
    /// The segment is the peer's SYN, with which the connection begins for its next owner.
    pub(crate) begins: bool,
    /// No other process has taken the connection: the one that gets this resets it, unless it
    /// listens again.
    pub(crate) is_last: bool,
    /// The number of our SYN.
    pub(crate) iss: u32,
    /// Our timestamp now, from which the next ones must rise.
    pub(crate) timestamp: u32,
    /// The number that the peer sends next, its FIN included: it has the acknowledgment of all
    /// before, and never sends them again.
    pub(crate) next: u32,
}

impl Handover {
    /// The header behind that of Ethernet, and the packet.
    pub(crate) fn parse(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (header, packet) = bytes.split_at_checked(HEADER_LEN)?;
        let word = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        Some((
            Self {
                begins: header[0] & BEGINS != 0,
                is_last: header[0] & LAST != 0,
                iss: word(4),
                timestamp: word(8),
                next: word(12),
            },
            packet,
        ))
    }

    /// A frame from a station to itself.
    pub(crate) fn emit(self, station: [u8; 6], packet: &[u8]) -> Vec<u8> {
        let mut frame = Vec::with_capacity(PACKET_AT + packet.len());
        frame.extend_from_slice(&station);
        frame.extend_from_slice(&station);
        frame.extend_from_slice(&ETHERTYPE.0.to_be_bytes());
        frame.extend_from_slice(&[self.flags(), 0, 0, 0]);
        frame.extend_from_slice(&self.iss.to_be_bytes());
        frame.extend_from_slice(&self.timestamp.to_be_bytes());
        frame.extend_from_slice(&self.next.to_be_bytes());
        frame.extend_from_slice(packet);
        frame
    }

    fn flags(self) -> u8 {
        let flag = |is_set: bool, flag| if is_set { flag } else { 0 };
        flag(self.begins, BEGINS) | flag(self.is_last, LAST)
    }

    /// The handover in a whole frame; `None` in a frame of another type.
    pub(crate) fn of_frame(frame: &[u8]) -> Option<(Self, &[u8])> {
        let kind = frame.get(12..ETHERNET_LEN)?;
        if kind != ETHERTYPE.0.to_be_bytes() { None } else { Self::parse(&frame[ETHERNET_LEN..]) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_emitted_is_parsed() {
        let (iss, timestamp, next) = (0x0102_0304, 0xffff_fffe, 0x0506_0708);
        let handover = Handover { begins: true, is_last: false, iss, timestamp, next };
        let mut frame = handover.emit([2, 0, 0, 0, 0, 1], b"packet");
        assert_eq!(Handover::of_frame(&frame), Some((handover, &b"packet"[..])));
        assert_eq!(Handover::of_frame(&frame[..29]), None, "cut");
        mark_last(&mut frame);
        assert_eq!(Handover::of_frame(&frame), Some((Handover { is_last: true, ..handover }, &b"packet"[..])));
        let mut other = frame;
        other[12] = 8;
        assert_eq!(Handover::of_frame(&other), None);
    }
}
