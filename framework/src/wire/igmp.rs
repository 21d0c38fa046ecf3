//! IGMP versions 1, 2 and 3 (RFC 1112, RFC 2236, RFC 3376): reports of a host's multicast
//! memberships.
//!
//! `parse` checks the checksum and determines the version; all three share the first eight bytes:
//! `0:1 type, 1:1 maximum response code, 2:2 checksum, 4:4 group`. The membership machine decides
//! when to report, and which messages to ignore. Messages have TTL 1 and, from version 2 on, the
//! router alert option of `ipv4`.

use core::net::Ipv4Addr;

use zerocopy::big_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::checksum::Sum;
use super::field::EmitError;

/// All systems: the destination of general queries.
pub(crate) const ALL_SYSTEMS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 1);
/// All routers: the destination of version 2 leaves (RFC 2236 6).
pub(crate) const ALL_ROUTERS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 2);
/// The destination of version 3 reports (RFC 3376 4.2.14).
pub(crate) const REPORT_V3_DESTINATION: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 22);
/// Bytes of version 1 and 2 messages, and of a version 3 report without records.
pub(crate) const MESSAGE_LEN: usize = 8;
/// Bytes of a version 3 query without sources.
pub(crate) const QUERY_V3_LEN: usize = 12;
/// Bytes of a group record without sources.
pub(crate) const RECORD_LEN: usize = 8;

const QUERY: u8 = 0x11;
const REPORT_V1: u8 = 0x12;
const REPORT_V2: u8 = 0x16;
const LEAVE: u8 = 0x17;
const REPORT_V3: u8 = 0x22;

/// A message whose lists are borrowed from the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IgmpMessage<'a> {
    /// A router queries memberships.
    Query(IgmpQuery<'a>),
    /// A version 1 host is a member of the group.
    ReportV1(Ipv4Addr),
    /// A version 2 host is a member of the group.
    ReportV2(Ipv4Addr),
    /// A version 2 host leaves the group.
    Leave(Ipv4Addr),
    /// A version 3 host reports its state or a change; write one with [`ReportWriter`].
    ReportV3(IgmpRecords<'a>),
}

impl<'a> IgmpMessage<'a> {
    /// Parses the message that fills `bytes`, an IPv4 packet's payload, and checks its checksum.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, IgmpError> {
        let (header, rest) = IgmpHeader::ref_from_prefix(bytes).map_err(|_| IgmpError::Short)?;
        if !Sum::of(bytes).is_valid() {
            return Err(IgmpError::Checksum);
        }
        let group = Ipv4Addr::from(header.group);
        match header.kind {
            QUERY => Ok(Self::Query(IgmpQuery::parse(header, rest)?)),
            REPORT_V1 => Ok(Self::ReportV1(group)),
            REPORT_V2 => Ok(Self::ReportV2(group)),
            LEAVE => Ok(Self::Leave(group)),
            REPORT_V3 => {
                let [_, _, high, low] = header.group;
                Ok(Self::ReportV3(IgmpRecords { count: u16::from_be_bytes([high, low]), rest }))
            }
            _ => Err(IgmpError::Type),
        }
    }

    /// Writes the message with its checksum and returns the bytes written.
    pub fn emit(&self, bytes: &mut [u8]) -> Result<usize, EmitError> {
        let (kind, group) = match *self {
            Self::Query(query) => return query.emit(bytes),
            Self::ReportV3(records) => return records.emit(bytes),
            Self::ReportV1(group) => (REPORT_V1, group),
            Self::ReportV2(group) => (REPORT_V2, group),
            Self::Leave(group) => (LEAVE, group),
        };
        let bytes = bytes.get_mut(..MESSAGE_LEN).ok_or(EmitError::NoRoom)?;
        bytes.copy_from_slice(IgmpHeader::new(kind, 0, group).as_bytes());
        Ok(fill_checksum(bytes))
    }
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct IgmpHeader {
    kind: u8,
    code: u8,
    checksum: U16,
    /// The group; in a version 3 report two reserved bytes and the number of records.
    group: [u8; 4],
}

impl IgmpHeader {
    fn new(kind: u8, code: u8, group: Ipv4Addr) -> Self {
        Self { kind, code, checksum: U16::ZERO, group: group.octets() }
    }
}

/// The version of a router's queries; the host answers in the same (RFC 3376 7.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IgmpVersion {
    /// RFC 1112.
    V1,
    /// RFC 2236.
    V2,
    /// RFC 3376.
    V3,
}

/// A query. The fields below `max_response_tenths` are version 3's and zero in older ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IgmpQuery<'a> {
    /// Determined by length and response code (RFC 3376 7.1).
    pub version: IgmpVersion,
    /// The queried group; unspecified in a general query.
    pub group: Ipv4Addr,
    /// Maximum response time, in tenths of a second; 100 in version 1, which has no field for it.
    pub max_response_tenths: u16,
    /// Other routers must not restart their timers (the S flag).
    pub suppress: bool,
    /// The querier's robustness variable (QRV), 0 to 7; 0 means unspecified.
    pub robustness: u8,
    /// The querier's interval in seconds (from QQIC).
    pub interval_s: u16,
    /// The queried sources; none in a general or group query.
    pub sources: IgmpSources<'a>,
}

/// The maximum response time of version 1, in tenths of a second (RFC 2236 4).
const MAX_RESPONSE_V1: u16 = 100;

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct QueryV3 {
    flags: u8,
    qqic: u8,
    source_count: U16,
}

impl<'a> IgmpQuery<'a> {
    /// All systems: the destination of general queries.
    pub const ALL_SYSTEMS: Ipv4Addr = ALL_SYSTEMS;

    /// True for a general query.
    pub const fn is_general(&self) -> bool {
        self.group.is_unspecified()
    }

    /// Lengths between 8 and 12 belong to no version and must be ignored (RFC 3376 7.1).
    fn parse(header: &IgmpHeader, rest: &'a [u8]) -> Result<Self, IgmpError> {
        let group = Ipv4Addr::from(header.group);
        if rest.is_empty() {
            let (version, max_response_tenths) = match header.code {
                0 => (IgmpVersion::V1, MAX_RESPONSE_V1),
                code => (IgmpVersion::V2, u16::from(code)),
            };
            let sources = IgmpSources::NONE;
            let (suppress, robustness, interval_s) = (false, 0, 0);
            return Ok(Self { version, group, max_response_tenths, suppress, robustness, interval_s, sources });
        }
        let (query, rest) = QueryV3::ref_from_prefix(rest).map_err(|_| IgmpError::QueryLength)?;
        let sources = IgmpSources::parse(rest, query.source_count.get()).ok_or(IgmpError::SourceCount)?.0;
        Ok(Self {
            version: IgmpVersion::V3,
            group,
            max_response_tenths: decode_float(header.code),
            suppress: query.flags & 8 != 0,
            robustness: query.flags & 7,
            interval_s: decode_float(query.qqic),
            sources,
        })
    }

    /// Times that a code cannot express are rounded down. A version 2 query with no time becomes
    /// 0.1 s, because zero would make it version 1.
    fn emit(&self, bytes: &mut [u8]) -> Result<usize, EmitError> {
        let code = match self.version {
            IgmpVersion::V1 => 0,
            IgmpVersion::V2 => self.max_response_tenths.clamp(1, 255) as u8,
            IgmpVersion::V3 => encode_float(self.max_response_tenths),
        };
        let header = IgmpHeader::new(QUERY, code, self.group);
        if self.version != IgmpVersion::V3 {
            let bytes = bytes.get_mut(..MESSAGE_LEN).ok_or(EmitError::NoRoom)?;
            bytes.copy_from_slice(header.as_bytes());
            return Ok(fill_checksum(bytes));
        }
        let source_count = u16::try_from(self.sources.count()).map_err(|_| EmitError::TooLong)?;
        let query = QueryV3 {
            flags: u8::from(self.suppress) << 3 | self.robustness & 7,
            qqic: encode_float(self.interval_s),
            source_count: U16::new(source_count),
        };
        let sources = self.sources.0.as_bytes();
        let bytes = bytes.get_mut(..QUERY_V3_LEN + sources.len()).ok_or(EmitError::NoRoom)?;
        bytes[..MESSAGE_LEN].copy_from_slice(header.as_bytes());
        bytes[MESSAGE_LEN..QUERY_V3_LEN].copy_from_slice(query.as_bytes());
        bytes[QUERY_V3_LEN..].copy_from_slice(sources);
        Ok(fill_checksum(bytes))
    }
}

/// The value of a response code or QQIC: itself below 128, above a mantissa of four bits and an
/// exponent of three (RFC 3376 4.1.1 and 4.1.7).
fn decode_float(code: u8) -> u16 {
    if code < 128 {
        return u16::from(code);
    }
    let exponent = (code >> 4) & 7;
    u16::from(code & 0x0f | 0x10) << (exponent + 3)
}

/// The code of the largest value that is at most `value`.
fn encode_float(value: u16) -> u8 {
    if value < 128 {
        return value as u8;
    }
    // 128 has its highest bit at 7, where the exponent is 0; the largest value has it at 14.
    let exponent = value.ilog2() - 7;
    if exponent > 7 {
        return 0xff;
    }
    let mantissa = (value >> (exponent + 3)) & 0x0f;
    0x80 | (exponent as u8) << 4 | mantissa as u8
}

/// A list of source addresses, borrowed from a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IgmpSources<'a>(&'a [[u8; 4]]);

impl<'a> IgmpSources<'a> {
    /// No sources.
    pub const NONE: Self = Self(&[]);

    /// A list of addresses in the order in which they are sent.
    pub const fn new(addresses: &'a [[u8; 4]]) -> Self {
        Self(addresses)
    }

    /// The addresses.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Ipv4Addr> + 'a {
        self.0.iter().map(|&address| Ipv4Addr::from(address))
    }

    /// Number of addresses.
    pub const fn count(&self) -> usize {
        self.0.len()
    }

    /// `count` sources from the front of `bytes`, and the bytes after them; `None` if there are
    /// fewer.
    fn parse(bytes: &'a [u8], count: u16) -> Option<(Self, &'a [u8])> {
        let (addresses, rest) = <[[u8; 4]]>::ref_from_prefix_with_elems(bytes, usize::from(count)).ok()?;
        Some((Self(addresses), rest))
    }
}

/// The kind of a record (RFC 3376 4.2.12).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecordKind {
    /// Current state: receives the listed sources.
    ModeIsInclude,
    /// Current state: receives all but the listed sources.
    ModeIsExclude,
    /// Change: receives the listed sources from now on; with none, this leaves the group.
    ChangeToInclude,
    /// Change: receives all but the listed sources from now on; with none, this joins the group.
    ChangeToExclude,
    /// Receives these sources in addition.
    AllowNewSources,
    /// Does not receive these sources any more.
    BlockOldSources,
    /// A kind that must be ignored.
    Other(u8),
}

impl RecordKind {
    fn parse(kind: u8) -> Self {
        match kind {
            1 => Self::ModeIsInclude,
            2 => Self::ModeIsExclude,
            3 => Self::ChangeToInclude,
            4 => Self::ChangeToExclude,
            5 => Self::AllowNewSources,
            6 => Self::BlockOldSources,
            other => Self::Other(other),
        }
    }

    /// The kind as a number.
    pub const fn number(self) -> u8 {
        match self {
            Self::ModeIsInclude => 1,
            Self::ModeIsExclude => 2,
            Self::ChangeToInclude => 3,
            Self::ChangeToExclude => 4,
            Self::AllowNewSources => 5,
            Self::BlockOldSources => 6,
            Self::Other(kind) => kind,
        }
    }
}

/// A version 3 report's record of one group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IgmpRecord<'a> {
    /// State or change.
    pub kind: RecordKind,
    /// The group.
    pub group: Ipv4Addr,
    /// The sources listed.
    pub sources: IgmpSources<'a>,
}

impl IgmpRecord<'_> {
    /// Bytes of a record without sources.
    pub const LEN_MIN: usize = RECORD_LEN;
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RecordHeader {
    kind: u8,
    /// Words of auxiliary data after the sources; no version defines any, so it is skipped.
    auxiliary_words: u8,
    source_count: U16,
    group: [u8; 4],
}

/// The records of a version 3 report. Ends at the stated count, at the last byte, or after one
/// error: each record takes at least eight bytes, so a false count costs nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IgmpRecords<'a> {
    count: u16,
    rest: &'a [u8],
}

impl<'a> Iterator for IgmpRecords<'a> {
    type Item = Result<IgmpRecord<'a>, IgmpError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.count = self.count.checked_sub(1)?;
        let record = self.take_record();
        if record.is_none() {
            self.count = 0;
        }
        Some(record.ok_or(IgmpError::RecordTruncated))
    }
}

impl<'a> IgmpRecords<'a> {
    /// The number of records in the header. The actual number is known only after iteration.
    pub const fn stated_count(&self) -> u16 {
        self.count
    }

    fn take_record(&mut self) -> Option<IgmpRecord<'a>> {
        let (header, rest) = RecordHeader::ref_from_prefix(self.rest).ok()?;
        let (sources, rest) = IgmpSources::parse(rest, header.source_count.get())?;
        self.rest = rest.get(usize::from(header.auxiliary_words) * 4..)?;
        Some(IgmpRecord { kind: RecordKind::parse(header.kind), group: header.group.into(), sources })
    }

    fn emit(&self, bytes: &mut [u8]) -> Result<usize, EmitError> {
        let len = MESSAGE_LEN + self.rest.len();
        let bytes = bytes.get_mut(..len).ok_or(EmitError::NoRoom)?;
        bytes[MESSAGE_LEN..].copy_from_slice(self.rest);
        Ok(emit_report_header(self.count, bytes))
    }
}

/// Writes the header of a report before its records and fills in the checksum; returns the length.
fn emit_report_header(count: u16, bytes: &mut [u8]) -> usize {
    let header = IgmpHeader::new(REPORT_V3, 0, Ipv4Addr::from_bits(u32::from(count)));
    bytes[..MESSAGE_LEN].copy_from_slice(header.as_bytes());
    fill_checksum(bytes)
}

/// Fills a version 3 report record by record, until the buffer is full; the caller sizes it by the
/// MTU.
#[derive(Debug)]
pub struct ReportWriter<'a> {
    bytes: &'a mut [u8],
    len: usize,
    count: u16,
}

impl<'a> ReportWriter<'a> {
    /// An empty report in `bytes`.
    pub fn new(bytes: &'a mut [u8]) -> Result<Self, EmitError> {
        if bytes.len() < MESSAGE_LEN {
            return Err(EmitError::NoRoom);
        }
        Ok(Self { bytes, len: MESSAGE_LEN, count: 0 })
    }

    /// Appends a record. If it does not fit, the report is unchanged: finish it and start the next.
    pub fn push<S>(&mut self, kind: RecordKind, group: Ipv4Addr, sources: S) -> Result<(), EmitError>
    where
        S: IntoIterator<Item = Ipv4Addr>,
    {
        let mut end = self.len + RECORD_LEN;
        let mut source_count = 0u16;
        for source in sources {
            let bytes = self.bytes.get_mut(end..end + 4).ok_or(EmitError::NoRoom)?;
            bytes.copy_from_slice(&source.octets());
            source_count = source_count.checked_add(1).ok_or(EmitError::TooLong)?;
            end += 4;
        }
        let count = self.count.checked_add(1).ok_or(EmitError::TooLong)?;
        let header = RecordHeader {
            kind: kind.number(),
            auxiliary_words: 0,
            source_count: U16::new(source_count),
            group: group.octets(),
        };
        let bytes = self.bytes.get_mut(self.len..self.len + RECORD_LEN).ok_or(EmitError::NoRoom)?;
        bytes.copy_from_slice(header.as_bytes());
        self.len = end;
        self.count = count;
        Ok(())
    }

    /// Number of records so far.
    pub const fn count(&self) -> u16 {
        self.count
    }

    /// Writes header and checksum and returns the length of the report.
    pub fn finish(self) -> usize {
        emit_report_header(self.count, &mut self.bytes[..self.len])
    }
}

/// Fills in the checksum of the message in `bytes`, whose checksum field is zero, and returns its
/// length.
fn fill_checksum(bytes: &mut [u8]) -> usize {
    let checksum = Sum::of(bytes).finish();
    bytes[2..4].copy_from_slice(&checksum.to_be_bytes());
    bytes.len()
}

reasons! {
    /// Why bytes are not a valid IGMP message.
    IgmpError {
        /// Fewer than 8 bytes.
        Short => "IGMP message short of 8 bytes",
        /// The checksum is wrong.
        Checksum => "IGMP checksum wrong",
        /// A type that a host has no use for, such as DVMRP or PIM version 1.
        Type => "IGMP type unknown",
        /// A query of 9 to 11 bytes.
        QueryLength => "IGMP query length belongs to no version",
        /// A query states more sources than it has.
        SourceCount => "IGMP query has fewer sources than stated",
        /// A report states more records, sources or auxiliary data than it has.
        RecordTruncated => "IGMP report record truncated",
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GROUP: Ipv4Addr = Ipv4Addr::new(233, 54, 12, 111);
    const SOURCES: [[u8; 4]; 3] = [[206, 200, 31, 1], [206, 200, 31, 2], [206, 200, 31, 3]];
    const QUERY_V3_EXAMPLE: IgmpQuery<'_> = IgmpQuery {
        version: IgmpVersion::V3,
        group: GROUP,
        max_response_tenths: 100,
        suppress: true,
        robustness: 2,
        interval_s: 125,
        sources: IgmpSources::new(&SOURCES),
    };

    fn emit(message: &IgmpMessage<'_>) -> Vec<u8> {
        let mut bytes = [0xee; 2000];
        let len = message.emit(&mut bytes).unwrap();
        assert_eq!(message.emit(&mut bytes[..len - 1]), Err(EmitError::NoRoom));
        message.emit(&mut bytes).unwrap();
        bytes[..len].to_vec()
    }

    /// Corrects the checksum of altered bytes.
    fn fixed(mut bytes: Vec<u8>) -> Vec<u8> {
        if bytes.len() >= 4 {
            bytes[2..4].fill(0);
            fill_checksum(&mut bytes);
        }
        bytes
    }

    fn check(bytes: Vec<u8>, expected: IgmpError) {
        assert_eq!(IgmpMessage::parse(&fixed(bytes)), Err(expected));
    }

    #[test]
    fn bad_messages_are_refused_by_name() {
        let query = emit(&IgmpMessage::Query(QUERY_V3_EXAMPLE));
        check(query[..7].to_vec(), IgmpError::Short);
        for len in 9..12 {
            check(query[..len].to_vec(), IgmpError::QueryLength);
        }
        check(query[..23].to_vec(), IgmpError::SourceCount);
        check(vec![0x13, 0, 0, 0, 0, 0, 0, 0], IgmpError::Type);
        let mut damaged = query;
        damaged[8] ^= 1;
        assert_eq!(IgmpMessage::parse(&damaged), Err(IgmpError::Checksum));
    }

    #[test]
    fn report_that_promises_too_much_ends_with_one_error() {
        let mut bytes = [0; 100];
        let mut writer = ReportWriter::new(&mut bytes).unwrap();
        writer.push(RecordKind::ModeIsExclude, GROUP, []).unwrap();
        writer.push(RecordKind::ModeIsInclude, GROUP, [ALL_SYSTEMS]).unwrap();
        let len = writer.finish();
        // Records, sources of the second record, auxiliary words of the second record.
        for idx in [6, 7, 18, 17] {
            let mut bytes = bytes[..len].to_vec();
            bytes[idx] = 0xff;
            let bytes = fixed(bytes);
            let Ok(IgmpMessage::ReportV3(mut records)) = IgmpMessage::parse(&bytes) else { panic!("no report") };
            assert!(records.by_ref().take(3).any(|record| record == Err(IgmpError::RecordTruncated)), "byte {idx}");
            assert_eq!(records.next(), None);
        }
    }

    #[test]
    fn auxiliary_data_is_skipped() {
        let record = [1, 2, 0, 1, 233, 54, 12, 111, 10, 0, 0, 1, 9, 9, 9, 9, 9, 9, 9, 9];
        let bytes = fixed([&[0x22, 0, 0, 0, 0, 0, 0, 2], &record[..], &record[..]].concat());
        let Ok(IgmpMessage::ReportV3(records)) = IgmpMessage::parse(&bytes) else { panic!("no report") };
        let groups: Vec<_> =
            records.map(|record| record.map(|record| (record.group, record.sources.count()))).collect();
        assert_eq!(groups, [Ok((GROUP, 1)), Ok((GROUP, 1))]);
    }

    #[test]
    fn query_version_is_told_by_length_and_code() {
        for (code, version, tenths) in [(0, IgmpVersion::V1, 100), (1, IgmpVersion::V2, 1), (200, IgmpVersion::V2, 200)]
        {
            let bytes = fixed(vec![0x11, code, 0, 0, 0, 0, 0, 0]);
            let Ok(IgmpMessage::Query(query)) = IgmpMessage::parse(&bytes) else { panic!("no query") };
            assert_eq!((query.version, query.max_response_tenths, query.is_general()), (version, tenths, true));
        }
        let bytes = fixed(vec![0x11, 0, 0, 0, 0, 0, 0, 0, 2, 125, 0, 0]);
        let Ok(IgmpMessage::Query(query)) = IgmpMessage::parse(&bytes) else { panic!("no query") };
        assert_eq!((query.version, query.max_response_tenths), (IgmpVersion::V3, 0));
    }

    #[test]
    fn floating_codes_decode_as_in_rfc_3376() {
        assert_eq!([127, 128, 0x8f, 0x90, 0xff].map(decode_float), [127, 128, 248, 256, 31744]);
        for code in 0..=255 {
            assert_eq!(encode_float(decode_float(code)), code);
        }
        assert_eq!(
            [129, 255, 31743, 40000, 65535].map(encode_float).map(decode_float),
            [128, 248, 30720, 31744, 31744]
        );
    }

    #[test]
    fn version_2_report_has_the_bytes_of_rfc_2236() {
        let bytes = emit(&IgmpMessage::ReportV2(Ipv4Addr::new(239, 1, 1, 1)));
        // By hand: 0x1600 + 0xef01 + 0x0101 = 0x1_0602, folded 0x0603, complemented 0xf9fc.
        assert_eq!(bytes, [0x16, 0x00, 0xf9, 0xfc, 239, 1, 1, 1]);
    }

    #[test]
    fn full_report_keeps_what_fits() {
        let mut bytes = [0; 28];
        let mut writer = ReportWriter::new(&mut bytes).unwrap();
        writer.push(RecordKind::AllowNewSources, GROUP, [ALL_SYSTEMS]).unwrap();
        assert_eq!(writer.push(RecordKind::BlockOldSources, GROUP, [ALL_ROUTERS]), Err(EmitError::NoRoom));
        writer.push(RecordKind::ChangeToInclude, GROUP, []).unwrap();
        assert_eq!(writer.push(RecordKind::ChangeToInclude, GROUP, []), Err(EmitError::NoRoom));
        assert_eq!((writer.count(), writer.finish()), (2, 28));
        let Ok(IgmpMessage::ReportV3(records)) = IgmpMessage::parse(&bytes) else { panic!("no report") };
        let kinds: Vec<_> = records.map(|record| record.unwrap().kind).collect();
        assert_eq!(kinds, [RecordKind::AllowNewSources, RecordKind::ChangeToInclude]);
    }

    proptest! {
        #[test]
        fn any_bytes_end_in_bounded_records(bytes: Vec<u8>, kind in prop::sample::select(&[0x11, 0x12, 0x16, 0x17, 0x22][..])) {
            let mut bytes = bytes;
            if let Some(first) = bytes.first_mut() {
                *first = kind;
            }
            let bytes = fixed(bytes);
            let Ok(message) = IgmpMessage::parse(&bytes) else { return Ok(()) };
            let written = emit(&message);
            prop_assert_eq!(IgmpMessage::parse(&written), Ok(message));
            if let IgmpMessage::ReportV3(records) = message {
                prop_assert!(records.count() <= bytes.len() / RECORD_LEN + 1);
            }
        }

        #[test]
        fn written_queries_read_the_same(code: u8, qqic: u8, group: u32, suppress: bool, robustness in 0u8..8, sources: Vec<[u8; 4]>) {
            let query = IgmpMessage::Query(IgmpQuery {
                version: IgmpVersion::V3,
                group: group.into(),
                max_response_tenths: decode_float(code),
                suppress,
                robustness,
                interval_s: decode_float(qqic),
                sources: IgmpSources::new(&sources),
            });
            let bytes = emit(&query);
            prop_assert_eq!(IgmpMessage::parse(&bytes), Ok(query));
        }

        #[test]
        fn written_records_read_the_same(
            records in prop::collection::vec((1u8..8, any::<u32>(), prop::collection::vec(any::<u32>(), 0..9)), 0..9),
        ) {
            let mut bytes = [0; 1000];
            let mut writer = ReportWriter::new(&mut bytes).unwrap();
            for (kind, group, sources) in &records {
                writer.push(RecordKind::parse(*kind), (*group).into(), sources.iter().map(|&source| source.into())).unwrap();
            }
            let len = writer.finish();
            let Ok(IgmpMessage::ReportV3(read)) = IgmpMessage::parse(&bytes[..len]) else { panic!("no report") };
            let read: Vec<_> = read
                .map(|record| record.unwrap())
                .map(|record| (record.kind.number(), record.group.to_bits(), record.sources.iter().map(Ipv4Addr::to_bits).collect()))
                .collect();
            prop_assert_eq!(read, records);
        }
    }
}
