//! The bytes before the payload of a frame: link header, IPv4, TCP and its options.
//!
//! Nearly all segments of a connection have the same layout; their headers are written straight
//! into the frame, by stores of constant length ([`UsualHeaders`]). All others are composed in a
//! separate buffer ([`compose`]).

use arrayvec::ArrayVec;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::pipeline::answer::LINK_LEN_MAX;
use crate::proto::tcp::{Outgoing, SynOptions};
use crate::wire::checksum::{PseudoHeader, Sum};
use crate::wire::tcp::{OPTIONS_LEN_MAX, SackBlock, TcpFields, Timestamps};
use crate::wire::{Ipv4Fields, Ipv4Header, Protocol, TcpHeader, TcpOption, TcpOptionList, ethernet, ipv4, tcp};

/// Bytes of the longest headers.
pub(super) const HEADERS_LEN_MAX: usize = LINK_LEN_MAX + ipv4::HEADER_LEN + tcp::HEADER_LEN + OPTIONS_LEN_MAX;

/// The header's fields that depend on the payload.
#[derive(Clone, Copy)]
pub(super) struct Body {
    pub(super) len: usize,
    /// `None` where the NIC computes the checksum: the field then holds the sum of the pseudo
    /// header.
    pub(super) sum: Option<Sum>,
}

impl Body {
    /// For a payload that is summed here, or by the NIC.
    #[inline(always)]
    pub(super) fn of(payload: &[u8], by_nic: bool) -> Self {
        Self::summed(payload, None, by_nic)
    }

    /// For a payload whose sum may be known.
    #[inline(always)]
    pub(super) fn summed(payload: &[u8], sum: Option<Sum>, by_nic: bool) -> Self {
        let sum = if by_nic { None } else { Some(sum.unwrap_or_else(|| Sum::of(payload))) };
        Self { len: payload.len(), sum }
    }

    /// Copies a payload into its frame, which has the same length, and sums it during the copy
    /// where the NIC does not.
    #[inline(always)]
    pub(super) fn copied(place: &mut [u8], payload: &[u8], by_nic: bool) -> Self {
        if by_nic {
            place.copy_from_slice(payload);
            return Self { len: payload.len(), sum: None };
        }
        Self { len: payload.len(), sum: Some(Sum::of_copy(place, payload)) }
    }
}

/// The headers of nearly all segments, as in the frame: no tag, and timestamps as the only option.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct UsualHeaders {
    link: [u8; ethernet::HEADER_LEN],
    ipv4: Ipv4Header,
    tcp: TcpHeader,
    timestamps: [u8; Timestamps::ALIGNED_LEN],
}

impl UsualHeaders {
    pub(super) const LEN: usize = size_of::<Self>();

    /// The room for them: [`LEN`](Self::LEN) bytes.
    #[inline(always)]
    pub(super) fn place(bytes: &mut [u8]) -> Option<&mut Self> {
        Self::mut_from_bytes(bytes).ok()
    }

    /// The room for them at the beginning of a frame, and the rest.
    #[inline(always)]
    pub(super) fn first_of(frame: &mut [u8]) -> Option<(&mut Self, &mut [u8])> {
        Self::mut_from_prefix(frame).ok()
    }

    /// The timestamps of a segment that has these headers behind a link header without a tag.
    #[inline(always)]
    pub(super) fn timestamps_of(segment: &Outgoing) -> Option<Timestamps> {
        let is_usual = segment.syn.is_none() && segment.sack_count == 0 && segment.segment_len == 0;
        segment.timestamps.filter(|_| is_usual)
    }

    /// Writes them.
    #[inline(always)]
    pub(super) fn write(
        &mut self,
        link: &[u8; ethernet::HEADER_LEN],
        segment: &Outgoing,
        timestamps: Timestamps,
        body: Body,
    ) {
        self.write_packet(link, segment, body.len);
        self.write_segment(segment, timestamps, body);
    }

    /// Writes the headers before TCP's, for a payload of `body_len` bytes.
    #[inline(always)]
    pub(super) fn write_packet(&mut self, link: &[u8; ethernet::HEADER_LEN], segment: &Outgoing, body_len: usize) {
        self.link = *link;
        self.ipv4 = ipv4_header(segment, tcp_len(Timestamps::ALIGNED_LEN, body_len));
    }

    /// Writes TCP's header, and the timestamps.
    #[inline(always)]
    pub(super) fn write_segment(&mut self, segment: &Outgoing, timestamps: Timestamps, body: Body) {
        let options = timestamps.aligned();
        self.tcp = tcp_header(segment, &options, timestamps.aligned_sum(), body);
        self.timestamps = options;
    }
}

/// The headers of any segment.
#[inline(never)]
pub(super) fn compose(link: &[u8], segment: &Outgoing, body: Body) -> ArrayVec<u8, HEADERS_LEN_MAX> {
    let list = options(segment);
    let options = list.as_bytes();
    let ipv4 = ipv4_header(segment, tcp_len(options.len(), body.len));
    let tcp = tcp_header(segment, options, Sum::of(options), body);
    let mut headers = ArrayVec::new();
    for part in [link, ipv4.as_bytes(), tcp.as_bytes(), options] {
        headers.try_extend_from_slice(part).expect("there is room for the longest");
    }
    headers
}

/// Bytes of a segment.
#[inline(always)]
fn tcp_len(options_len: usize, body_len: usize) -> usize {
    tcp::HEADER_LEN + options_len + body_len
}

/// The header of a packet with a segment of `tcp_len` bytes.
#[inline(always)]
fn ipv4_header(segment: &Outgoing, tcp_len: usize) -> Ipv4Header {
    let fields = Ipv4Fields {
        source: *segment.flow.local.ip(),
        destination: *segment.flow.remote.ip(),
        protocol: Protocol::TCP,
        ttl: segment.ttl,
        // RFC 3168 5: ECT(0) is 10 in the lower two bits.
        tos: (segment.tos & !3) | if segment.ect { 2 } else { 0 },
        // RFC 6864 4.1: an atomic datagram needs no identification.
        identification: 0,
        dont_fragment: true,
        payload_len: tcp_len,
    };
    Ipv4Header::new(&fields).expect("a segment fits an IPv4 packet")
}

/// The header of a segment before its options.
#[inline(always)]
fn tcp_header(segment: &Outgoing, options: &[u8], options_sum: Sum, body: Body) -> TcpHeader {
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
    let pseudo = PseudoHeader {
        source: *segment.flow.local.ip(),
        destination: *segment.flow.remote.ip(),
        protocol: Protocol::TCP,
        len: tcp_len(options.len(), body.len) as u16,
    };
    match body.sum {
        Some(payload) => tcp.fill_checksum(pseudo.sum().combine(options_sum).combine(payload)),
        None => tcp.set_checksum(pseudo.sum().fold()),
    }
    tcp
}

/// The options of a segment.
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

/// The machine requests no more than fits; a block too many is left out.
fn push(list: &mut TcpOptionList, option: TcpOption<'_>) {
    let _ = list.push(option);
}
