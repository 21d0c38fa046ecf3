//! The messages of a reporter, as values: the caller writes the bytes.

use core::net::Ipv4Addr;

use crate::wire::igmp::{ALL_ROUTERS, MESSAGE_LEN, RECORD_LEN, REPORT_V3_DESTINATION, RecordKind};

/// Bytes of a source in a record.
const SOURCE_LEN: usize = 4;

/// A message to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Announcement<'a> {
    /// Version 1: the group is wanted.
    ReportV1(Ipv4Addr),
    /// Version 2: the group is wanted.
    ReportV2(Ipv4Addr),
    /// Version 2: the group is not wanted any more.
    Leave(Ipv4Addr),
    /// Version 3: states and changes of one or more groups.
    ReportV3(Records<'a>),
}

impl Announcement<'_> {
    /// Its destination (RFC 2236 6, RFC 3376 4.2.14).
    pub fn destination(&self) -> Ipv4Addr {
        match self {
            Self::ReportV1(group) | Self::ReportV2(group) => *group,
            Self::Leave(_) => ALL_ROUTERS,
            Self::ReportV3(_) => REPORT_V3_DESTINATION,
        }
    }

    /// Bytes of the message after the IPv4 header.
    pub fn len(&self) -> usize {
        match self {
            Self::ReportV3(records) => records.report_len(),
            _ => MESSAGE_LEN,
        }
    }

    /// Always false: every message has eight bytes.
    pub fn is_empty(&self) -> bool {
        false
    }
}

/// The records of one report, which fits the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Records<'a> {
    headers: &'a [Header],
    sources: &'a [Ipv4Addr],
}

/// A report's record of one group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// State or change.
    pub kind: RecordKind,
    /// The group.
    pub group: Ipv4Addr,
    /// The sources of the record.
    pub sources: &'a [Ipv4Addr],
}

impl<'a> Records<'a> {
    /// The records in the order in which they are sent.
    pub fn iter(self) -> impl Iterator<Item = Record<'a>> {
        let mut rest = self.sources;
        self.headers.iter().map(move |header| {
            let (sources, behind) = rest.split_at(header.source_count);
            rest = behind;
            Record { kind: header.kind, group: header.group, sources }
        })
    }

    fn report_len(&self) -> usize {
        MESSAGE_LEN + self.headers.len() * RECORD_LEN + self.sources.len() * SOURCE_LEN
    }
}

/// A record without its sources, which follow those of earlier records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Header {
    kind: RecordKind,
    group: Ipv4Addr,
    source_count: usize,
}

/// A report being filled. Has room for the longest one from the start.
#[derive(Debug)]
pub(super) struct Report {
    headers: Vec<Header>,
    sources: Vec<Ipv4Addr>,
    len_max: usize,
}

impl Report {
    pub(super) fn new(len_max: usize) -> Self {
        let room = len_max - MESSAGE_LEN;
        Self { headers: Vec::with_capacity(room / RECORD_LEN), sources: Vec::with_capacity(room / SOURCE_LEN), len_max }
    }

    /// The bytes that `new(len_max)` allocates.
    pub(super) fn bytes(len_max: usize) -> usize {
        let room = len_max - MESSAGE_LEN;
        room / RECORD_LEN * size_of::<Header>() + room / SOURCE_LEN * size_of::<Ipv4Addr>()
    }

    pub(super) fn set_len_max(&mut self, len_max: usize) {
        self.len_max = len_max;
    }

    pub(super) fn clear(&mut self) {
        self.headers.clear();
        self.sources.clear();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.headers.is_empty()
    }

    /// The number of sources that another record may have; `None` where no record fits.
    pub(super) fn sources_room(&self) -> Option<usize> {
        let room = self.len_max.checked_sub(self.records().report_len() + RECORD_LEN)?;
        Some(room / SOURCE_LEN)
    }

    pub(super) fn push(&mut self, kind: RecordKind, group: Ipv4Addr, sources: impl Iterator<Item = Ipv4Addr>) {
        debug_assert!(self.headers.len() < self.headers.capacity(), "the longest report fits what was taken for it");
        let before = self.sources.len();
        self.sources.extend(sources);
        self.headers.push(Header { kind, group, source_count: self.sources.len() - before });
    }

    /// The report, unless it is empty.
    pub(super) fn announcement(&self) -> Option<Announcement<'_>> {
        (!self.is_empty()).then(|| Announcement::ReportV3(self.records()))
    }

    fn records(&self) -> Records<'_> {
        Records { headers: &self.headers, sources: &self.sources }
    }
}
