//! A train: segments of one connection in a row, each of which says what the one before it said,
//! and brings the next bytes. What a kernel's GRO merges before TCP sees it is known here by the
//! same marks, and nothing is merged or held back: the bytes go to the app where they are, and the
//! machine is only asked whether it goes on
//! ([`receive_more`](crate::proto::tcp::Tcp::receive_more)), not whose the segment is and what it
//! means.
//!
//! What enters are headers that were found intact. A train is a note about what passed, and no
//! state of TCP: without it, or with one that is over, a segment is looked at in full, and the same
//! comes of it. Any other segment ends it, so that nothing but the app can have changed the
//! connection meanwhile.

use core::net::Ipv4Addr;

use super::node::ipv4_header;
use crate::mem::Mbuf;
use crate::proto::ConsumerId;
use crate::proto::tcp::{ConnectionId, Plain, Seq};
use crate::wire::tcp::{TcpLikeness, Timestamps};
use crate::wire::{Ipv4Header, TcpFlags, TcpSegment};

/// What the next segment of a train must look like.
pub(super) struct Train {
    addresses: (Ipv4Addr, Ipv4Addr),
    likeness: TcpLikeness,
    /// Timestamps as they came, where there are any: with another time another train begins, as
    /// with a kernel's GRO.
    options: [u8; Timestamps::ALIGNED_LEN],
    /// What its first segment said.
    first: Plain,
    pub(super) connection: ConnectionId,
    pub(super) consumer: ConsumerId,
}

impl Train {
    /// Whether more may follow a segment: it brings something, and is not the last of what its
    /// sender had, by PSH. A message is not worth a note.
    #[inline(always)]
    pub(super) fn may_begin(parsed: &TcpSegment<'_>) -> bool {
        !parsed.payload.is_empty() && !parsed.header.flags().contains(TcpFlags::PSH)
    }

    /// The train that a segment begins which its connection expected.
    #[inline(never)]
    pub(super) fn begin(mbuf: &Mbuf, segment: &Plain, connection: ConnectionId, consumer: ConsumerId) -> Option<Self> {
        let (parsed, ipv4) = (TcpSegment::parse(mbuf.bytes()).ok()?, ipv4_header(mbuf)?);
        Some(Self {
            addresses: addresses(ipv4),
            likeness: parsed.header.likeness(),
            options: parsed.options.try_into().unwrap_or_default(),
            first: *segment,
            connection,
            consumer,
        })
    }

    /// Whether a segment is of the train, as far as its header tells. Whether its number is the
    /// next, and whether the connection still takes what comes, its connection knows.
    #[inline(always)]
    pub(super) fn has(&self, parsed: &TcpSegment<'_>, ipv4: &Ipv4Header) -> bool {
        parsed.header.likeness() == self.likeness
            && addresses(ipv4) == self.addresses
            && self.has_options(parsed.options)
    }

    /// What such a segment says.
    #[inline(always)]
    pub(super) fn next(&self, parsed: &TcpSegment<'_>) -> Plain {
        Plain { seq: Seq(parsed.header.seq()), len: parsed.payload.len() as u32, ..self.first }
    }

    /// Whether these are the options, of a header that is as long as the others': it has timestamps
    /// as they have, or none.
    #[inline(always)]
    fn has_options(&self, options: &[u8]) -> bool {
        <&[u8; Timestamps::ALIGNED_LEN]>::try_from(options).map_or(true, |options| *options == self.options)
    }
}

#[inline(always)]
fn addresses(ipv4: &Ipv4Header) -> (Ipv4Addr, Ipv4Addr) {
    (ipv4.source(), ipv4.destination())
}
