//! A segment over several buffers: what a NIC or the kernel has merged from many, a frame longer
//! than a buffer, a packet that came in fragments. It is taken apart into a segment for each
//! buffer, one behind the other, as they would have come without a merger. So the app is shown the
//! bytes where they lie, may do with the connection between two of them what it may do between two
//! segments, and the machine needs to know nothing of chains.

use crate::mem::Mbuf;
use crate::proto::tcp::Segment;
use crate::wire::TcpFlags;

/// What a segment over several buffers is made of: segments, each with its payload.
pub(super) struct Parts {
    /// What the next part says, and those behind it.
    segment: Segment,
    rest: Option<Mbuf>,
}

impl Parts {
    /// Those of a segment whose first `header_len` bytes are its header.
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
            // A SYN takes a number before its data, and so much of that never comes with one: it
            // comes again.
            rest.free();
        }
        let len = part.len() as u32;
        let mut segment = Segment { len, ..self.segment };
        if let Some(rest) = &mut self.rest {
            rest.set_rx_info(&part.rx_info());
            // They stand behind the last byte.
            segment.flags = TcpFlags(segment.flags.0 & !(TcpFlags::FIN | TcpFlags::PSH).0);
        }
        self.segment.seq += len;
        // Said once.
        self.segment.sack_count = 0;
        if len == 0 {
            part.free();
            return Some((segment, None));
        }
        Some((segment, Some(part)))
    }
}

/// The packet behind its first `len` bytes, without buffers that have nothing of it. Panics where
/// there are fewer.
fn without_front(mut mbuf: Mbuf, mut len: usize) -> Mbuf {
    while let Some(rest) = (mbuf.bytes().len() <= len).then(|| mbuf.detach()).flatten() {
        len -= mbuf.len();
        mbuf.free();
        mbuf = rest;
    }
    mbuf.advance(len);
    mbuf
}
