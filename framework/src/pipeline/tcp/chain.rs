//! A segment over several buffers: merged by a NIC or the kernel, longer than a buffer, or
//! fragmented. It is split into a segment for each buffer, in order, as they would have come
//! without the merge. So the app sees the bytes in place, may act on the connection between two of
//! them as between two segments, and the machine does not deal with chains.

use crate::mem::Mbuf;
use crate::proto::tcp::Segment;
use crate::wire::TcpFlags;

/// The parts of a segment over several buffers: segments, each with its payload.
pub(super) struct Parts {
    /// The header of the next part and of those behind it.
    segment: Segment,
    rest: Option<Mbuf>,
}

impl Parts {
    /// The parts of a segment whose first `header_len` bytes are its header.
    pub(super) fn new(mbuf: Mbuf, header_len: usize, segment: Segment) -> Self {
        Self { segment, rest: Some(without_front(mbuf, header_len)) }
    }
}

impl Iterator for Parts {
    type Item = (Segment, Option<Mbuf>);

    fn next(&mut self) -> Option<Self::Item> {
        let mut part = self.rest.take()?;
        self.rest = part.detach();
        if let Some(rest) = self.rest.take_if(|rest| rest.is_empty() || self.segment.has(TcpFlags::SYN)) {
            // A SYN takes a sequence number before its data, and never comes with a chain of data:
            // the peer sends it again.
            rest.free();
        }
        let len = part.len() as u32;
        let mut segment = Segment { len, ..self.segment };
        if let Some(rest) = &mut self.rest {
            rest.set_rx_info(&part.rx_info());
            // FIN and PSH belong to the last byte.
            segment.flags = TcpFlags(segment.flags.0 & !(TcpFlags::FIN | TcpFlags::PSH).0);
        }
        self.segment.seq += len;
        // SACK blocks are for the first part only.
        self.segment.sack_count = 0;
        if len == 0 {
            part.free();
            return Some((segment, None));
        }
        Some((segment, Some(part)))
    }
}

/// The packet without its first `len` bytes and without the buffers that this empties. Panics where
/// the packet is shorter.
fn without_front(mut mbuf: Mbuf, mut len: usize) -> Mbuf {
    while let Some(rest) = (mbuf.bytes().len() <= len).then(|| mbuf.detach()).flatten() {
        len -= mbuf.len();
        mbuf.free();
        mbuf = rest;
    }
    mbuf.advance(len);
    mbuf
}
