//! A train: consecutive segments of one connection, each with the header fields of the one before
//! it, and with the next bytes. A kernel's GRO recognizes them by the same fields. Here nothing is
//! merged or held back: the app gets the bytes in place, and the machine only checks that the
//! segment continues the train ([`receive_more`](crate::proto::tcp::Tcp::receive_more)), without a
//! lookup or a full parse.
//!
//! The headers that enter are verified. A train is a cache, not a part of TCP's state: without it,
//! or after its end, a segment is processed in full, with the same result. Any other segment ends
//! the train. So between two of its segments only the app can have changed the connection.

use core::net::Ipv4Addr;

use super::node::ipv4_header;
use crate::mem::Mbuf;
use crate::proto::ConsumerId;
use crate::proto::tcp::{ConnectionId, PredictedFields, Seq};
use crate::wire::tcp::{TcpLikeness, Timestamps};
use crate::wire::{Ipv4Header, TcpFlags, TcpSegment};

/// The required header fields of a train's next segment.
pub(super) struct Train {
    addresses: (Ipv4Addr, Ipv4Addr),
    likeness: TcpLikeness,
    /// The timestamps option of the train, where there is one: another timestamp begins another
    /// train, as with a kernel's GRO.
    options: [u8; Timestamps::ALIGNED_LEN],
    /// The fields of its first segment.
    first: PredictedFields,
    pub(super) connection: ConnectionId,
    pub(super) consumer: ConsumerId,
}

impl Train {
    /// Whether more may follow a segment: it has data, and PSH does not mark it as the sender's
    /// last. A single message does not begin a train.
    #[inline(always)]
    pub(super) fn may_begin(parsed: &TcpSegment<'_>) -> bool {
        !parsed.payload.is_empty() && !parsed.header.flags().contains(TcpFlags::PSH)
    }

    /// The train that an expected segment begins.
    #[inline(never)]
    pub(super) fn begin(
        mbuf: &Mbuf,
        segment: &PredictedFields,
        connection: ConnectionId,
        consumer: ConsumerId,
    ) -> Option<Self> {
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

    /// Whether a segment belongs to the train by its header. The connection checks its sequence
    /// number, and whether it still accepts data.
    #[inline(always)]
    pub(super) fn has(&self, parsed: &TcpSegment<'_>, ipv4: &Ipv4Header) -> bool {
        parsed.header.likeness() == self.likeness
            && addresses(ipv4) == self.addresses
            && self.has_options(parsed.options)
    }

    /// The fields of such a segment.
    #[inline(always)]
    pub(super) fn next(&self, parsed: &TcpSegment<'_>) -> PredictedFields {
        PredictedFields { seq: Seq(parsed.header.seq()), len: parsed.payload.len() as u32, ..self.first }
    }

    /// Whether these are the options, in a header of the same length: timestamps equal to the
    /// train's, or none.
    #[inline(always)]
    fn has_options(&self, options: &[u8]) -> bool {
        <&[u8; Timestamps::ALIGNED_LEN]>::try_from(options).map_or(true, |options| *options == self.options)
    }
}

#[inline(always)]
fn addresses(ipv4: &Ipv4Header) -> (Ipv4Addr, Ipv4Addr) {
    (ipv4.source(), ipv4.destination())
}
