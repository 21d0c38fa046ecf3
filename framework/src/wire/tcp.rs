//! TCP (RFC 9293): the header and its options. `proto` keeps the connection state.
//!
//! `parse` checks the data offset against the available bytes; the checksum is a separate call,
//! because a NIC may have verified it. The iterator over options terminates on any content;
//! [`TcpOptionList`] writes options.

use core::fmt;
use core::net::Ipv4Addr;
use core::ops::BitOr;

use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::checksum::{PseudoHeader, Sum};
use super::field::{EmitError, Protocol};
use super::options::{BadLength, NO_OPERATION, next_option};

/// Bytes of a header without options.
pub(crate) const HEADER_LEN: usize = 20;
/// Maximum bytes of options: the data offset counts to fifteen words.
pub(crate) const OPTIONS_LEN_MAX: usize = 40;

const OPTION_MSS: u8 = 2;
const OPTION_WINDOW_SCALE: u8 = 3;
const OPTION_SACK_PERMITTED: u8 = 4;
const OPTION_SACK: u8 = 5;
const OPTION_TIMESTAMPS: u8 = 8;

/// The control bits of a header.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct TcpFlags(pub u8);

impl TcpFlags {
    /// No bit.
    pub const NONE: Self = Self(0);
    /// No more data from the sender.
    pub const FIN: Self = Self(0x01);
    /// Synchronises sequence numbers.
    pub const SYN: Self = Self(0x02);
    /// Resets the connection.
    pub const RST: Self = Self(0x04);
    /// Deliver the data received so far.
    pub const PSH: Self = Self(0x08);
    /// The acknowledgment field is valid.
    pub const ACK: Self = Self(0x10);
    /// The urgent pointer is valid.
    pub const URG: Self = Self(0x20);
    /// Congestion was experienced (RFC 3168).
    pub const ECE: Self = Self(0x40);
    /// The congestion window was reduced (RFC 3168).
    pub const CWR: Self = Self(0x80);

    /// True where all bits of `flags` are set.
    #[inline]
    pub const fn contains(self, flags: Self) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// True where at least one bit of `flags` is set.
    #[inline]
    pub const fn intersects(self, flags: Self) -> bool {
        self.0 & flags.0 != 0
    }
}

impl BitOr for TcpFlags {
    type Output = Self;

    #[inline]
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl fmt::Display for TcpFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [&str; 8] = ["FIN", "SYN", "RST", "PSH", "ACK", "URG", "ECE", "CWR"];
        let mut separator = "";
        for (bit, name) in NAMES.iter().enumerate() {
            if self.0 & (1 << bit) != 0 {
                write!(f, "{separator}{name}")?;
                separator = "|";
            }
        }
        if separator.is_empty() { f.write_str("none") } else { Ok(()) }
    }
}

impl fmt::Debug for TcpFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A parsed segment.
#[derive(Clone, Copy, Debug)]
pub struct TcpSegment<'a> {
    /// The fixed 20 bytes.
    pub header: &'a TcpHeader,
    /// The bytes between the fixed header and the payload; read them with [`TcpSegment::options`].
    pub options: &'a [u8],
    /// The payload.
    pub payload: &'a [u8],
    /// All three.
    bytes: &'a [u8],
}

impl<'a> TcpSegment<'a> {
    /// Parses the segment that fills `bytes`, an IPv4 packet's payload.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, TcpError> {
        let (header, rest) = TcpHeader::ref_from_prefix(bytes).map_err(|_| TcpError::Short)?;
        let options_len = header.header_len().checked_sub(HEADER_LEN).ok_or(TcpError::DataOffset)?;
        let (options, payload) = rest.split_at_checked(options_len).ok_or(TcpError::Truncated)?;
        Ok(Self { header, options, payload, bytes })
    }

    /// The whole segment, header and payload.
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Verifies the checksum over pseudo-header, header, options and payload. The order of the two
    /// addresses does not change a sum.
    #[inline(always)]
    pub fn verify_checksum(&self, source: Ipv4Addr, destination: Ipv4Addr) -> Result<(), TcpError> {
        let pseudo = PseudoHeader { source, destination, protocol: Protocol::TCP, len: self.bytes.len() as u16 };
        if pseudo.sum().append(self.bytes).is_valid() { Ok(()) } else { Err(TcpError::Checksum) }
    }

    /// True if the field holds only the sum of the pseudo-header, because the sender's NIC had not
    /// completed it: see `UdpHeader::has_partial_checksum`.
    #[inline]
    pub fn has_partial_checksum(&self, source: Ipv4Addr, destination: Ipv4Addr) -> bool {
        let pseudo = PseudoHeader { source, destination, protocol: Protocol::TCP, len: self.bytes.len() as u16 };
        self.header.checksum() == pseudo.sum().fold()
    }

    /// The options, one by one.
    #[inline]
    pub fn options(&self) -> TcpOptions<'a> {
        TcpOptions { rest: self.options }
    }

    /// The timestamps if they are the only option, after two no-operations: the layout of nearly
    /// every segment of a connection with timestamps (RFC 7323 appendix A). Costs one compare; on
    /// `None` the caller uses the iterator.
    #[inline]
    pub fn aligned_timestamps(&self) -> Option<Timestamps> {
        let options: &[u8; Timestamps::ALIGNED_LEN] = self.options.try_into().ok()?;
        let (layout, values) = options.split_first_chunk()?;
        if *layout != Timestamps::ALIGNED {
            return None;
        }
        Timestamps::parse(values)
    }
}

/// The fixed part of the header, as in the segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct TcpHeader {
    source_port: U16,
    destination_port: U16,
    sequence: U32,
    acknowledgment: U32,
    data_offset: u8,
    flags: u8,
    window: U16,
    checksum: U16,
    urgent_pointer: U16,
}

/// The result of [`TcpHeader::likeness`]: only for comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TcpLikeness {
    ports: u32,
    ack: u32,
    /// Data offset, flags, window.
    rest: u32,
}

/// The values of a header to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpFields {
    /// Port of the sender.
    pub source_port: u16,
    /// Port of the receiver.
    pub destination_port: u16,
    /// SEG.SEQ of RFC 9293: number of the first byte of the payload, or of the SYN.
    pub seq: u32,
    /// SEG.ACK: the next sequence number that the sender expects.
    pub ack: u32,
    /// Control bits.
    pub flags: TcpFlags,
    /// SEG.WND as sent: not scaled.
    pub window: u16,
    /// SEG.UP.
    pub urgent_pointer: u16,
}

impl TcpHeader {
    /// Bytes of a header without options.
    pub const LEN: usize = HEADER_LEN;

    /// A header before `options`, without a checksum: call [`TcpHeader::fill_checksum`] or leave it
    /// to the NIC.
    #[inline]
    pub fn new(fields: &TcpFields, options: &[u8]) -> Result<Self, EmitError> {
        if options.len() > OPTIONS_LEN_MAX || !options.len().is_multiple_of(4) {
            return Err(EmitError::Options);
        }
        Ok(Self {
            source_port: U16::new(fields.source_port),
            destination_port: U16::new(fields.destination_port),
            sequence: U32::new(fields.seq),
            acknowledgment: U32::new(fields.ack),
            data_offset: (((HEADER_LEN + options.len()) / 4) << 4) as u8,
            flags: fields.flags.0,
            window: U16::new(fields.window),
            checksum: U16::ZERO,
            urgent_pointer: U16::new(fields.urgent_pointer),
        })
    }

    /// Writes the header and the options that it was made for; returns the bytes written.
    #[inline]
    pub fn emit(&self, options: &[u8], bytes: &mut [u8]) -> Result<usize, EmitError> {
        let header_len = HEADER_LEN + options.len();
        if header_len != self.header_len() {
            return Err(EmitError::Options);
        }
        let bytes = bytes.get_mut(..header_len).ok_or(EmitError::NoRoom)?;
        bytes[..HEADER_LEN].copy_from_slice(self.as_bytes());
        bytes[HEADER_LEN..].copy_from_slice(options);
        Ok(header_len)
    }

    /// Fills in the checksum: `rest` is the sum of the pseudo-header, the options and the payload,
    /// in that order.
    #[inline(always)]
    pub fn fill_checksum(&mut self, rest: Sum) {
        self.checksum = U16::new(self.sum().combine(rest).finish());
    }

    /// The sum of the header without its checksum field.
    #[inline(always)]
    fn sum(&self) -> Sum {
        Sum::of_words([
            u32::from(self.source_port()) << 16 | u32::from(self.destination_port()),
            self.seq(),
            self.ack(),
            u32::from_be_bytes([self.data_offset, self.flags, 0, 0]) | u32::from(self.window()),
            self.urgent_pointer().into(),
        ])
    }

    /// Bytes of header and options as the header states them, 0 to 60.
    #[inline]
    pub const fn header_len(&self) -> usize {
        (self.data_offset >> 4) as usize * 4
    }

    /// All fields at once.
    #[inline]
    pub fn fields(&self) -> TcpFields {
        TcpFields {
            source_port: self.source_port(),
            destination_port: self.destination_port(),
            seq: self.seq(),
            ack: self.ack(),
            flags: self.flags(),
            window: self.window(),
            urgent_pointer: self.urgent_pointer(),
        }
    }

    /// Port of the sender.
    #[inline]
    pub fn source_port(&self) -> u16 {
        self.source_port.get()
    }

    /// Port of the receiver.
    #[inline]
    pub fn destination_port(&self) -> u16 {
        self.destination_port.get()
    }

    /// SEG.SEQ.
    #[inline]
    pub fn seq(&self) -> u32 {
        self.sequence.get()
    }

    /// SEG.ACK; valid only if the ACK bit is set.
    #[inline]
    pub fn ack(&self) -> u32 {
        self.acknowledgment.get()
    }

    /// Control bits.
    #[inline]
    pub const fn flags(&self) -> TcpFlags {
        TcpFlags(self.flags)
    }

    /// SEG.WND as sent: not scaled.
    #[inline]
    pub fn window(&self) -> u16 {
        self.window.get()
    }

    /// The header's fields beyond sequence number and checksum, as raw words, to compare two
    /// consecutive segments. PSH and the urgent pointer are left out, because PSH says nothing
    /// about the segment, and the pointer is valid only with URG.
    #[inline(always)]
    pub(crate) fn likeness(&self) -> TcpLikeness {
        const WITHOUT_PSH: u32 = !u32::from_ne_bytes([0, TcpFlags::PSH.0, 0, 0]);
        let [ports, _, ack, rest, _]: [[u8; 4]; HEADER_LEN / 4] = zerocopy::transmute!(*self);
        TcpLikeness {
            ports: u32::from_ne_bytes(ports),
            ack: u32::from_ne_bytes(ack),
            rest: u32::from_ne_bytes(rest) & WITHOUT_PSH,
        }
    }

    /// The checksum field.
    #[inline]
    pub fn checksum(&self) -> u16 {
        self.checksum.get()
    }

    /// Replaces the checksum field by the value that an offload expects there.
    #[inline]
    pub fn set_checksum(&mut self, checksum: u16) {
        self.checksum = U16::new(checksum);
    }

    /// SEG.UP; valid only if the URG bit is set.
    #[inline]
    pub fn urgent_pointer(&self) -> u16 {
        self.urgent_pointer.get()
    }
}

/// One option of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpOption<'a> {
    /// The largest payload that the sender accepts, in bytes; in a SYN.
    MaximumSegmentSize(u16),
    /// The shift of the sender's windows; in a SYN. Values over 14 mean 14 (RFC 7323 2.3).
    WindowScale(u8),
    /// The sender supports SACK; in a SYN.
    SackPermitted,
    /// The ranges received beyond the acknowledgment; one to four blocks.
    Sack(&'a [SackBlock]),
    /// The sender's clock and its last value of ours.
    Timestamps(Timestamps),
    /// Another kind, or one of the above with an invalid length, which is ignored.
    Unknown {
        /// Kind.
        kind: u8,
        /// The bytes behind the length byte.
        data: &'a [u8],
    },
}

/// The timestamps option (RFC 7323 3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timestamps {
    /// TSval: the sender's clock.
    pub value: u32,
    /// TSecr: the last value that the sender received; valid only if the ACK bit is set.
    pub echo_reply: u32,
}

impl Timestamps {
    /// Bytes of [`aligned`](Self::aligned).
    pub const ALIGNED_LEN: usize = 12;
    /// The bytes before the values there.
    const ALIGNED: [u8; 4] = [NO_OPERATION, NO_OPERATION, OPTION_TIMESTAMPS, 10];

    /// The option bytes of a segment with timestamps only, as [`TcpSegment::aligned_timestamps`]
    /// reads them.
    #[inline]
    pub fn aligned(self) -> [u8; Self::ALIGNED_LEN] {
        let mut bytes = [0; Self::ALIGNED_LEN];
        let (layout, values) = bytes.split_at_mut(Self::ALIGNED.len());
        layout.copy_from_slice(&Self::ALIGNED);
        values.copy_from_slice([U32::new(self.value), U32::new(self.echo_reply)].as_bytes());
        bytes
    }

    /// The sum of [`aligned`](Self::aligned).
    #[inline]
    pub fn aligned_sum(self) -> Sum {
        Sum::of_words([u32::from_be_bytes(Self::ALIGNED), self.value, self.echo_reply])
    }

    #[inline]
    fn parse(data: &[u8]) -> Option<Self> {
        let &[value, echo_reply] = <[U32; 2]>::ref_from_bytes(data).ok()?;
        Some(Self { value: value.get(), echo_reply: echo_reply.get() })
    }
}

/// One block of a SACK option, as in the segment (RFC 2018 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct SackBlock {
    left: U32,
    right: U32,
}

impl SackBlock {
    /// The block that begins at the first number of `edges` and ends before the second.
    pub const fn new(edges: [u32; 2]) -> Self {
        Self { left: U32::new(edges[0]), right: U32::new(edges[1]) }
    }

    /// First number of the block.
    #[inline]
    pub fn left(&self) -> u32 {
        self.left.get()
    }

    /// The sequence number behind the block.
    #[inline]
    pub fn right(&self) -> u32 {
        self.right.get()
    }
}

/// The options of a header; no-operations are skipped. Ends at the end-of-list option, at the last
/// byte, or after one error: at most forty iterations.
#[derive(Clone, Debug)]
pub struct TcpOptions<'a> {
    rest: &'a [u8],
}

impl<'a> TcpOptions<'a> {
    /// The options in `bytes`, which begin after the fixed header.
    #[inline]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }
}

impl<'a> Iterator for TcpOptions<'a> {
    type Item = Result<TcpOption<'a>, TcpError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let option = next_option(&mut self.rest)?;
        Some(option.map(|(kind, data)| TcpOption::parse(kind, data)).map_err(|BadLength| TcpError::Option))
    }
}

impl<'a> TcpOption<'a> {
    #[inline]
    fn parse(kind: u8, data: &'a [u8]) -> Self {
        match (kind, data) {
            (OPTION_MSS, &[high, low]) => Self::MaximumSegmentSize(u16::from_be_bytes([high, low])),
            (OPTION_WINDOW_SCALE, &[shift]) => Self::WindowScale(shift),
            (OPTION_SACK_PERMITTED, []) => Self::SackPermitted,
            (OPTION_SACK, [_, ..]) => match <[SackBlock]>::ref_from_bytes(data) {
                Ok(blocks) => Self::Sack(blocks),
                Err(_) => Self::Unknown { kind, data },
            },
            (OPTION_TIMESTAMPS, _) => match Timestamps::parse(data) {
                Some(timestamps) => Self::Timestamps(timestamps),
                None => Self::Unknown { kind, data },
            },
            _ => Self::Unknown { kind, data },
        }
    }
}

/// Options to be written, at most 40 bytes. No-operations before each option align its end to a
/// word, the layout that RFC 7323 appendix A recommends and that receivers expect.
#[derive(Clone, Copy, Debug)]
pub struct TcpOptionList {
    bytes: [u8; OPTIONS_LEN_MAX],
    len: usize,
}

impl TcpOptionList {
    /// No options.
    pub const EMPTY: Self = Self { bytes: [NO_OPERATION; OPTIONS_LEN_MAX], len: 0 };

    /// Appends an option. If it does not fit, the list is unchanged.
    #[inline]
    pub fn push(&mut self, option: TcpOption<'_>) -> Result<(), EmitError> {
        match option {
            TcpOption::MaximumSegmentSize(mss) => self.push_data(OPTION_MSS, &mss.to_be_bytes()),
            TcpOption::WindowScale(shift) => self.push_data(OPTION_WINDOW_SCALE, &[shift]),
            TcpOption::SackPermitted => self.push_data(OPTION_SACK_PERMITTED, &[]),
            TcpOption::Sack(blocks) => self.push_data(OPTION_SACK, blocks.as_bytes()),
            TcpOption::Timestamps(Timestamps { value, echo_reply }) => {
                self.push_data(OPTION_TIMESTAMPS, [U32::new(value), U32::new(echo_reply)].as_bytes())
            }
            TcpOption::Unknown { kind, data } => self.push_data(kind, data),
        }
    }

    /// The bytes of the list: a multiple of four.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    #[inline]
    fn push_data(&mut self, kind: u8, data: &[u8]) -> Result<(), EmitError> {
        let option_len = data.len() + 2;
        // The buffer holds no-operations, so rounding up to whole words leaves them in front.
        let end = self.len + option_len.next_multiple_of(4);
        let option = self.bytes.get_mut(end - option_len..end).ok_or(EmitError::Options)?;
        option[0] = kind;
        option[1] = option_len as u8;
        option[2..].copy_from_slice(data);
        self.len = end;
        Ok(())
    }
}

reasons! {
    /// Why bytes are not a valid TCP segment.
    TcpError {
        /// Fewer than 20 bytes.
        Short => "TCP header short of 20 bytes",
        /// The data offset states fewer than 20 bytes.
        DataOffset => "TCP data offset under 20 bytes",
        /// The data offset exceeds the available bytes.
        Truncated => "TCP segment shorter than its data offset",
        /// The checksum is wrong.
        Checksum => "TCP checksum wrong",
        /// An option's length is under 2 or leaves the header.
        Option => "TCP option length wrong",
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn bad_headers_are_refused_by_name() {
        let mut bytes = [0u8; 24];
        assert_eq!(TcpSegment::parse(&bytes[..19]).err(), Some(TcpError::Short));
        bytes[12] = 0x40;
        assert_eq!(TcpSegment::parse(&bytes).err(), Some(TcpError::DataOffset));
        bytes[12] = 0x70;
        assert_eq!(TcpSegment::parse(&bytes).err(), Some(TcpError::Truncated));
        bytes[12] = 0x60;
        assert_eq!(TcpSegment::parse(&bytes).map(|segment| segment.payload.len()), Ok(0));
    }

    #[test]
    fn option_lengths_of_zero_one_and_too_many_end_the_list() {
        for len in [0, 1, 5, 255] {
            let bytes = [1, 1, 8, len, 0, 0];
            let mut options = TcpOptions::new(&bytes);
            assert_eq!(options.next(), Some(Err(TcpError::Option)), "length {len}");
            assert_eq!(options.next(), None);
        }
        assert_eq!(TcpOptions::new(&[1, 2]).next(), Some(Err(TcpError::Option)));
        assert_eq!(TcpOptions::new(&[0, 2, 4, 5, 0xb4]).next(), None);
    }

    #[test]
    fn known_kinds_with_foreign_lengths_mean_nothing() {
        for bytes in [&[2u8, 3, 9][..], &[3, 2], &[4, 3, 0], &[5, 2], &[5, 6, 1, 2, 3, 4], &[8, 4, 0, 0]] {
            let first = TcpOptions::new(bytes).next();
            assert_eq!(first, Some(Ok(TcpOption::Unknown { kind: bytes[0], data: &bytes[2..] })));
        }
    }

    #[test]
    fn options_of_a_linux_syn_are_read() {
        let bytes = [2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0, 0, 7, 0, 0, 0, 0, 1, 3, 3, 7];
        let options: Vec<_> = TcpOptions::new(&bytes).map(|option| option.unwrap()).collect();
        let timestamps = Timestamps { value: 7, echo_reply: 0 };
        assert_eq!(
            options,
            [
                TcpOption::MaximumSegmentSize(1460),
                TcpOption::SackPermitted,
                TcpOption::Timestamps(timestamps),
                TcpOption::WindowScale(7)
            ]
        );
    }

    #[test]
    fn full_option_list_keeps_what_it_has() {
        let mut list = TcpOptionList::EMPTY;
        list.push(TcpOption::Timestamps(Timestamps { value: 1, echo_reply: 2 })).unwrap();
        assert_eq!(list.as_bytes(), [1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]);
        assert_eq!(list.push(TcpOption::Sack(&[SackBlock::new([1, 2]); 4])), Err(EmitError::Options));
        list.push(TcpOption::Sack(&[SackBlock::new([1, 2]); 3])).unwrap();
        assert_eq!(list.as_bytes().len(), 40);
        assert_eq!(list.push(TcpOption::SackPermitted), Err(EmitError::Options));
    }

    #[test]
    fn flags_are_named() {
        assert_eq!((TcpFlags::SYN | TcpFlags::ACK).to_string(), "SYN|ACK");
        assert_eq!(TcpFlags::NONE.to_string(), "none");
        assert!((TcpFlags::SYN | TcpFlags::ACK).contains(TcpFlags::SYN));
        assert!(!TcpFlags::SYN.contains(TcpFlags::SYN | TcpFlags::ACK));
        assert!(TcpFlags::SYN.intersects(TcpFlags::SYN | TcpFlags::ACK));
    }
    const SOURCE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
    const DESTINATION: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

    fn any_option(kind: u8, a: u32, b: u32, blocks: &[SackBlock]) -> TcpOption<'_> {
        match kind {
            0 => TcpOption::MaximumSegmentSize(a as u16),
            1 => TcpOption::WindowScale(a as u8),
            2 => TcpOption::SackPermitted,
            3 => TcpOption::Sack(blocks),
            _ => TcpOption::Timestamps(Timestamps { value: a, echo_reply: b }),
        }
    }

    proptest! {
        #[test]
        fn any_bytes_parse_or_are_refused(bytes: Vec<u8>) {
            if let Ok(segment) = TcpSegment::parse(&bytes) {
                let _ = segment.verify_checksum(SOURCE, DESTINATION);
                let _ = segment.aligned_timestamps();
                prop_assert!(segment.options().count() <= OPTIONS_LEN_MAX);
            }
            prop_assert!(TcpOptions::new(&bytes).count() <= bytes.len());
        }

        #[test]
        fn written_segments_read_the_same(
            (source_port, destination_port, window, urgent_pointer) in any::<(u16, u16, u16, u16)>(),
            (seq, ack, flags) in any::<(u32, u32, u8)>(),
            wanted in prop::collection::vec((0u8..5, any::<u32>(), any::<u32>()), 0..8),
            edges in prop::collection::vec(any::<[u32; 2]>(), 1..=4),
            payload: Vec<u8>,
        ) {
            let blocks: Vec<_> = edges.into_iter().map(SackBlock::new).collect();
            let mut list = TcpOptionList::EMPTY;
            let options = wanted.into_iter().map(|(kind, a, b)| any_option(kind, a, b, &blocks));
            let options: Vec<_> = options.filter(|&option| list.push(option).is_ok()).collect();

            let flags = TcpFlags(flags);
            let fields = TcpFields { source_port, destination_port, seq, ack, flags, window, urgent_pointer };
            let mut header = TcpHeader::new(&fields, list.as_bytes()).unwrap();
            let len = (header.header_len() + payload.len()) as u16;
            let pseudo = PseudoHeader { source: SOURCE, destination: DESTINATION, protocol: Protocol::TCP, len };
            header.fill_checksum(pseudo.sum().append(list.as_bytes()).append(&payload));
            let mut bytes = vec![0; header.header_len()];
            prop_assert_eq!(header.emit(list.as_bytes(), &mut bytes), Ok(header.header_len()));
            bytes.extend_from_slice(&payload);

            let segment = TcpSegment::parse(&bytes).unwrap();
            prop_assert_eq!(segment.verify_checksum(SOURCE, DESTINATION), Ok(()));
            prop_assert_eq!((segment.header.fields(), segment.payload), (fields, &payload[..]));
            let read: Vec<_> = segment.options().map(|option| option.unwrap()).collect();
            if let [TcpOption::Timestamps(timestamps)] = read[..] {
                prop_assert_eq!(segment.aligned_timestamps(), Some(timestamps));
            }
            prop_assert_eq!(read, options);
        }
    }
}
