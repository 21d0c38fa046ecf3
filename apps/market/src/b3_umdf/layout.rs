//! The messages of B3's binary UMDF that are decoded here.
//!
//! Written by `market::sbe::schema`; change the schema and run its test with UPDATE=1.

use crate::sbe::{Block, Dimension, Extent, Group, MessageHead, SbeError, Value, Visitor};
use zerocopy::{little_endian as wire, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The schema's number in message headers.
pub const SCHEMA_ID: u16 = 2;
/// The version of the schema.
pub const SCHEMA_VERSION: u16 = 16;
/// Bytes of a message's header.
pub const HEADER_LEN: usize = 8;

/// Splits a message into its header's numbers and what follows them.
#[inline]
pub fn split_head(message: &[u8]) -> Result<(MessageHead, &[u8]), SbeError> {
    let Some((head, body)) = message.split_first_chunk::<HEADER_LEN>() else {
        return Err(SbeError::HeaderShort);
    };
    let head = MessageHead {
        block_len: u16::from_le_bytes([head[0], head[1]]).into(),
        template: u16::from_le_bytes([head[2], head[3]]),
        schema: u16::from_le_bytes([head[4], head[5]]),
        version: u16::from_le_bytes([head[6], head[7]]),
    };
    Ok((head, body))
}

/// The header of a message of this version, for who writes messages.
pub fn emit_head(template: u16, block_len: u16) -> [u8; HEADER_LEN] {
    let mut head = [0; HEADER_LEN];
    head[0..2].copy_from_slice(&block_len.to_le_bytes());
    head[2..4].copy_from_slice(&template.to_le_bytes());
    head[4..6].copy_from_slice(&SCHEMA_ID.to_le_bytes());
    head[6..8].copy_from_slice(&SCHEMA_VERSION.to_le_bytes());
    head
}

/// The dimension `groupSize` of groups.
#[derive(Clone, Copy, Debug)]
pub enum GroupSize {}

impl Dimension for GroupSize {
    const LEN: usize = 3;

    #[inline]
    fn read(bytes: &[u8]) -> Option<(usize, usize)> {
        let head = bytes.first_chunk::<3>()?;
        Some((u16::from_le_bytes([head[0], head[1]]).into(), head[2].into()))
    }

    fn emit(block_len: u16, count: u16, out: &mut Vec<u8>) {
    let mut head = [0; 3];
    head[0..2].copy_from_slice(&block_len.to_le_bytes());
    head[2] = count as u8;
    out.extend(head);
    }
}

/// The root of `SequenceReset`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct SequenceResetRoot {
}

const _: () = assert!(size_of::<SequenceResetRoot>() == 0, "a field is out of its place");

impl SequenceResetRoot {
    /// Bytes of the block by the schema.
    pub const BLOCK_LEN: usize = 0;
}

impl Block for SequenceResetRoot {
    const LEN_MIN: usize = 0;
    const NULL: Self = Self {
    };
    const FIELDS: &'static [Extent] = &[
    ];

    fn fields(&self, _visitor: &mut dyn Visitor) {
    }
}

/// The message `SequenceReset`.
#[derive(Clone, Debug)]
pub struct SequenceReset {
    /// Its fields.
    pub root: SequenceResetRoot,
}

impl SequenceReset {
    /// The template's number.
    pub const ID: u16 = 1;
    /// Its name in the schema.
    pub const NAME: &'static str = "SequenceReset";

    /// Checks the message's extent and reads its root. `body` follows the header.
    #[inline]
    pub fn parse(head: MessageHead, body: &[u8]) -> Result<Self, SbeError> {
        let (root, _) = head.split_root(body)?;
        let root = SequenceResetRoot::read(root)?;
        Ok(Self { root })
    }
}

/// The root of `Sequence`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct SequenceRoot {
    /// `nextSeqNo`.
    pub next_seq_no: wire::U32,
}

const _: () = assert!(size_of::<SequenceRoot>() == 4, "a field is out of its place");

impl SequenceRoot {
    /// Bytes of the block by the schema.
    pub const BLOCK_LEN: usize = 4;
}

impl Block for SequenceRoot {
    const LEN_MIN: usize = 4;
    const NULL: Self = Self {
        next_seq_no: wire::U32::new(u32::MAX),
    };
    const FIELDS: &'static [Extent] = &[
        Extent { offset: 0, end: 4 },
    ];

    fn fields(&self, visitor: &mut dyn Visitor) {
        visitor.field("nextSeqNo", Value::Uint(self.next_seq_no.get().into()));
    }
}

/// The message `Sequence`.
#[derive(Clone, Debug)]
pub struct Sequence {
    /// Its fields.
    pub root: SequenceRoot,
}

impl Sequence {
    /// The template's number.
    pub const ID: u16 = 2;
    /// Its name in the schema.
    pub const NAME: &'static str = "Sequence";

    /// Checks the message's extent and reads its root. `body` follows the header.
    #[inline]
    pub fn parse(head: MessageHead, body: &[u8]) -> Result<Self, SbeError> {
        let (root, _) = head.split_root(body)?;
        let root = SequenceRoot::read(root)?;
        Ok(Self { root })
    }
}

/// The root of `SecurityStatus`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct SecurityStatusRoot {
    /// `securityId`.
    pub security_id: wire::U64,
    /// `eventEnd`.
    pub event_end: u8,
    /// Not used.
    pub pad_9: [u8; 1],
    /// `status`.
    pub status: u8,
    /// Not used.
    pub pad_11: [u8; 13],
    /// `transactTime`.
    pub transact_time: wire::U64,
    /// `rptSeq`.
    pub rpt_seq: wire::U32,
}

const _: () = assert!(size_of::<SecurityStatusRoot>() == 36, "a field is out of its place");

impl SecurityStatusRoot {
    /// Bytes of the block by the schema.
    pub const BLOCK_LEN: usize = 36;

    /// `transactTime`, where it is not null.
    #[inline]
    pub fn transact_time(&self) -> Option<u64> {
        let value = self.transact_time.get();
        (value != 0).then_some(value)
    }

    /// `rptSeq`, where it is not null.
    #[inline]
    pub fn rpt_seq(&self) -> Option<u32> {
        let value = self.rpt_seq.get();
        (value != 0).then_some(value)
    }
}

impl Block for SecurityStatusRoot {
    const LEN_MIN: usize = 36;
    const NULL: Self = Self {
        security_id: wire::U64::new(u64::MAX),
        event_end: u8::MAX,
        pad_9: [0; 1],
        status: u8::MAX,
        pad_11: [0; 13],
        transact_time: wire::U64::new(0),
        rpt_seq: wire::U32::new(0),
    };
    const FIELDS: &'static [Extent] = &[
        Extent { offset: 0, end: 8 },
        Extent { offset: 8, end: 9 },
        Extent { offset: 10, end: 11 },
        Extent { offset: 24, end: 32 },
        Extent { offset: 32, end: 36 },
    ];

    fn fields(&self, visitor: &mut dyn Visitor) {
        visitor.field("securityId", Value::Uint(self.security_id.get()));
        visitor.field("eventEnd", Value::Uint(self.event_end.into()));
        visitor.field("status", Value::Uint(self.status.into()));
        visitor.field("transactTime", self.transact_time().map_or(Value::Null, Value::Uint));
        visitor.field("rptSeq", self.rpt_seq().map_or(Value::Null, |value| Value::Uint(value.into())));
    }
}

/// The message `SecurityStatus`.
#[derive(Clone, Debug)]
pub struct SecurityStatus {
    /// Its fields.
    pub root: SecurityStatusRoot,
}

impl SecurityStatus {
    /// The template's number.
    pub const ID: u16 = 3;
    /// Its name in the schema.
    pub const NAME: &'static str = "SecurityStatus";

    /// Checks the message's extent and reads its root. `body` follows the header.
    #[inline]
    pub fn parse(head: MessageHead, body: &[u8]) -> Result<Self, SbeError> {
        let (root, _) = head.split_root(body)?;
        let root = SecurityStatusRoot::read(root)?;
        Ok(Self { root })
    }
}

/// The root of `News`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct NewsRoot {
    /// `securityId`.
    pub security_id: wire::U64,
    /// `eventEnd`.
    pub event_end: u8,
    /// Not used.
    pub pad_9: [u8; 15],
    /// `origTime`.
    pub orig_time: wire::U64,
}

const _: () = assert!(size_of::<NewsRoot>() == 32, "a field is out of its place");

impl NewsRoot {
    /// Bytes of the block by the schema.
    pub const BLOCK_LEN: usize = 36;

    /// `origTime`, where it is not null.
    #[inline]
    pub fn orig_time(&self) -> Option<u64> {
        let value = self.orig_time.get();
        (value != 0).then_some(value)
    }
}

impl Block for NewsRoot {
    const LEN_MIN: usize = 32;
    const NULL: Self = Self {
        security_id: wire::U64::new(u64::MAX),
        event_end: u8::MAX,
        pad_9: [0; 15],
        orig_time: wire::U64::new(0),
    };
    const FIELDS: &'static [Extent] = &[
        Extent { offset: 0, end: 8 },
        Extent { offset: 8, end: 9 },
        Extent { offset: 24, end: 32 },
    ];

    fn fields(&self, visitor: &mut dyn Visitor) {
        visitor.field("securityId", Value::Uint(self.security_id.get()));
        visitor.field("eventEnd", Value::Uint(self.event_end.into()));
        visitor.field("origTime", self.orig_time().map_or(Value::Null, Value::Uint));
    }
}

/// The message `News`.
#[derive(Clone, Debug)]
pub struct News {
    /// Its fields.
    pub root: NewsRoot,
}

impl News {
    /// The template's number.
    pub const ID: u16 = 5;
    /// Its name in the schema.
    pub const NAME: &'static str = "News";

    /// Checks the message's extent and reads its root. `body` follows the header.
    #[inline]
    pub fn parse(head: MessageHead, body: &[u8]) -> Result<Self, SbeError> {
        let (root, _) = head.split_root(body)?;
        let root = NewsRoot::read(root)?;
        Ok(Self { root })
    }
}

/// The root of `EmptyBook`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct EmptyBookRoot {
    /// `securityId`.
    pub security_id: wire::U64,
    /// `eventEnd`.
    pub event_end: u8,
    /// Not used.
    pub pad_9: [u8; 3],
    /// `entryTime`.
    pub entry_time: wire::U64,
}

const _: () = assert!(size_of::<EmptyBookRoot>() == 20, "a field is out of its place");

impl EmptyBookRoot {
    /// Bytes of the block by the schema.
    pub const BLOCK_LEN: usize = 20;

    /// `entryTime`, where it is not null.
    #[inline]
    pub fn entry_time(&self) -> Option<u64> {
        let value = self.entry_time.get();
        (value != 0).then_some(value)
    }
}

impl Block for EmptyBookRoot {
    const LEN_MIN: usize = 20;
    const NULL: Self = Self {
        security_id: wire::U64::new(u64::MAX),
        event_end: u8::MAX,
        pad_9: [0; 3],
        entry_time: wire::U64::new(0),
    };
    const FIELDS: &'static [Extent] = &[
        Extent { offset: 0, end: 8 },
        Extent { offset: 8, end: 9 },
        Extent { offset: 12, end: 20 },
    ];

    fn fields(&self, visitor: &mut dyn Visitor) {
        visitor.field("securityId", Value::Uint(self.security_id.get()));
        visitor.field("eventEnd", Value::Uint(self.event_end.into()));
        visitor.field("entryTime", self.entry_time().map_or(Value::Null, Value::Uint));
    }
}

/// The message `EmptyBook`.
#[derive(Clone, Debug)]
pub struct EmptyBook {
    /// Its fields.
    pub root: EmptyBookRoot,
}

impl EmptyBook {
    /// The template's number.
    pub const ID: u16 = 9;
    /// Its name in the schema.
    pub const NAME: &'static str = "EmptyBook";

    /// Checks the message's extent and reads its root. `body` follows the header.
    #[inline]
    pub fn parse(head: MessageHead, body: &[u8]) -> Result<Self, SbeError> {
        let (root, _) = head.split_root(body)?;
        let root = EmptyBookRoot::read(root)?;
        Ok(Self { root })
    }
}

/// The root of `SecurityGroupPhase`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct SecurityGroupPhaseRoot {
    /// `group`.
    pub group: [u8; 3],
    /// Not used.
    pub pad_3: [u8; 5],
    /// `eventEnd`.
    pub event_end: u8,
    /// Not used.
    pub pad_9: [u8; 1],
    /// `phase`.
    pub phase: u8,
    /// Not used.
    pub pad_11: [u8; 13],
    /// `transactTime`.
    pub transact_time: wire::U64,
}

const _: () = assert!(size_of::<SecurityGroupPhaseRoot>() == 32, "a field is out of its place");

impl SecurityGroupPhaseRoot {
    /// Bytes of the block by the schema.
    pub const BLOCK_LEN: usize = 32;

    /// `transactTime`, where it is not null.
    #[inline]
    pub fn transact_time(&self) -> Option<u64> {
        let value = self.transact_time.get();
        (value != 0).then_some(value)
    }
}

impl Block for SecurityGroupPhaseRoot {
    const LEN_MIN: usize = 32;
    const NULL: Self = Self {
        group: [0; 3],
        pad_3: [0; 5],
        event_end: u8::MAX,
        pad_9: [0; 1],
        phase: u8::MAX,
        pad_11: [0; 13],
        transact_time: wire::U64::new(0),
    };
    const FIELDS: &'static [Extent] = &[
        Extent { offset: 0, end: 3 },
        Extent { offset: 8, end: 9 },
        Extent { offset: 10, end: 11 },
        Extent { offset: 24, end: 32 },
    ];

    fn fields(&self, visitor: &mut dyn Visitor) {
        visitor.field("group", Value::Bytes(&self.group));
        visitor.field("eventEnd", Value::Uint(self.event_end.into()));
        visitor.field("phase", Value::Uint(self.phase.into()));
        visitor.field("transactTime", self.transact_time().map_or(Value::Null, Value::Uint));
    }
}

/// The message `SecurityGroupPhase`.
#[derive(Clone, Debug)]
pub struct SecurityGroupPhase {
    /// Its fields.
    pub root: SecurityGroupPhaseRoot,
}

impl SecurityGroupPhase {
    /// The template's number.
    pub const ID: u16 = 10;
    /// Its name in the schema.
    pub const NAME: &'static str = "SecurityGroupPhase";

    /// Checks the message's extent and reads its root. `body` follows the header.
    #[inline]
    pub fn parse(head: MessageHead, body: &[u8]) -> Result<Self, SbeError> {
        let (root, _) = head.split_root(body)?;
        let root = SecurityGroupPhaseRoot::read(root)?;
        Ok(Self { root })
    }
}

/// The root of `ChannelReset`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ChannelResetRoot {
    /// `eventEnd`.
    pub event_end: u8,
    /// Not used.
    pub pad_1: [u8; 3],
    /// `entryTime`.
    pub entry_time: wire::U64,
}

const _: () = assert!(size_of::<ChannelResetRoot>() == 12, "a field is out of its place");

impl ChannelResetRoot {
    /// Bytes of the block by the schema.
    pub const BLOCK_LEN: usize = 12;

    /// `entryTime`, where it is not null.
    #[inline]
    pub fn entry_time(&self) -> Option<u64> {
        let value = self.entry_time.get();
        (value != 0).then_some(value)
    }
}

impl Block for ChannelResetRoot {
    const LEN_MIN: usize = 12;
    const NULL: Self = Self {
        event_end: u8::MAX,
        pad_1: [0; 3],
        entry_time: wire::U64::new(0),
    };
    const FIELDS: &'static [Extent] = &[
        Extent { offset: 0, end: 1 },
        Extent { offset: 4, end: 12 },
    ];

    fn fields(&self, visitor: &mut dyn Visitor) {
        visitor.field("eventEnd", Value::Uint(self.event_end.into()));
        visitor.field("entryTime", self.entry_time().map_or(Value::Null, Value::Uint));
    }
}

/// The message `ChannelReset`.
#[derive(Clone, Debug)]
pub struct ChannelReset {
    /// Its fields.
    pub root: ChannelResetRoot,
}

impl ChannelReset {
    /// The template's number.
    pub const ID: u16 = 11;
    /// Its name in the schema.
    pub const NAME: &'static str = "ChannelReset";

    /// Checks the message's extent and reads its root. `body` follows the header.
    #[inline]
    pub fn parse(head: MessageHead, body: &[u8]) -> Result<Self, SbeError> {
        let (root, _) = head.split_root(body)?;
        let root = ChannelResetRoot::read(root)?;
        Ok(Self { root })
    }
}

/// The root of `SecurityDefinition`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct SecurityDefinitionRoot {
    /// `securityId`.
    pub security_id: wire::U64,
    /// Not used.
    pub pad_8: [u8; 8],
    /// `symbol`.
    pub symbol: [u8; 20],
    /// `updateAction`.
    pub update_action: u8,
    /// Not used.
    pub pad_37: [u8; 3],
    /// `total`.
    pub total: wire::U32,
    /// `minPriceIncrement`.
    pub min_price_increment: wire::I64,
}

const _: () = assert!(size_of::<SecurityDefinitionRoot>() == 52, "a field is out of its place");

impl SecurityDefinitionRoot {
    /// Bytes of the block by the schema.
    pub const BLOCK_LEN: usize = 232;
    /// `minPriceIncrement.exponent`.
    pub const MIN_PRICE_INCREMENT_EXPONENT: i8 = -8;

    /// `minPriceIncrement`, where it is not null.
    #[inline]
    pub fn min_price_increment(&self) -> Option<i64> {
        let value = self.min_price_increment.get();
        (value != i64::MIN).then_some(value)
    }
}

impl Block for SecurityDefinitionRoot {
    const LEN_MIN: usize = 52;
    const NULL: Self = Self {
        security_id: wire::U64::new(u64::MAX),
        pad_8: [0; 8],
        symbol: [0; 20],
        update_action: 0,
        pad_37: [0; 3],
        total: wire::U32::new(u32::MAX),
        min_price_increment: wire::I64::new(i64::MIN),
    };
    const FIELDS: &'static [Extent] = &[
        Extent { offset: 0, end: 8 },
        Extent { offset: 16, end: 36 },
        Extent { offset: 36, end: 37 },
        Extent { offset: 40, end: 44 },
        Extent { offset: 44, end: 52 },
    ];

    fn fields(&self, visitor: &mut dyn Visitor) {
        visitor.field("securityId", Value::Uint(self.security_id.get()));
        visitor.field("symbol", Value::Bytes(&self.symbol));
        visitor.field("updateAction", Value::Bytes(core::slice::from_ref(&self.update_action)));
        visitor.field("total", Value::Uint(self.total.get().into()));
        visitor.field("minPriceIncrement", self.min_price_increment().map_or(Value::Null, Value::Int));
        visitor.field("minPriceIncrement.exponent", Value::Int(-8));
    }
}

/// The message `SecurityDefinition`.
#[derive(Clone, Debug)]
pub struct SecurityDefinition {
    /// Its fields.
    pub root: SecurityDefinitionRoot,
}

impl SecurityDefinition {
    /// The template's number.
    pub const ID: u16 = 12;
    /// Its name in the schema.
    pub const NAME: &'static str = "SecurityDefinition";

    /// Checks the message's extent and reads its root. `body` follows the header.
    #[inline]
    pub fn parse(head: MessageHead, body: &[u8]) -> Result<Self, SbeError> {
        let (root, _) = head.split_root(body)?;
        let root = SecurityDefinitionRoot::read(root)?;
        Ok(Self { root })
    }
}

/// The root of `OpeningPrice`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct OpeningPriceRoot {
    /// `securityId`.
    pub security_id: wire::U64,
    /// `eventEnd`.
    pub event_end: u8,
    /// Not used.
    pub pad_9: [u8; 21],
    /// `entryTime`.
    pub entry_time: wire::U64,
    /// `rptSeq`.
    pub rpt_seq: wire::U32,
}

const _: () = assert!(size_of::<OpeningPriceRoot>() == 42, "a field is out of its place");

impl OpeningPriceRoot {
    /// Bytes of the block by the schema.
    pub const BLOCK_LEN: usize = 44;

    /// `entryTime`, where it is not null.
    #[inline]
    pub fn entry_time(&self) -> Option<u64> {
        let value = self.entry_time.get();
        (value != 0).then_some(value)
    }

    /// `rptSeq`, where it is not null.
    #[inline]
    pub fn rpt_seq(&self) -> Option<u32> {
        let value = self.rpt_seq.get();
        (value != 0).then_some(value)
    }
}

impl Block for OpeningPriceRoot {
    const LEN_MIN: usize = 42;
    const NULL: Self = Self {
        security_id: wire::U64::new(u64::MAX),
        event_end: u8::MAX,
        pad_9: [0; 21],
        entry_time: wire::U64::new(0),
        rpt_seq: wire::U32::new(0),
    };
    const FIELDS: &'static [Extent] = &[
        Extent { offset: 0, end: 8 },
        Extent { offset: 8, end: 9 },
        Extent { offset: 30, end: 38 },
        Extent { offset: 38, end: 42 },
    ];

    fn fields(&self, visitor: &mut dyn Visitor) {
        visitor.field("securityId", Value::Uint(self.security_id.get()));
        visitor.field("eventEnd", Value::Uint(self.event_end.into()));
        visitor.field("entryTime", self.entry_time().map_or(Value::Null, Value::Uint));
        visitor.field("rptSeq", self.rpt_seq().map_or(Value::Null, |value| Value::Uint(value.into())));
    }
}

/// The message `OpeningPrice`.
#[derive(Clone, Debug)]
pub struct OpeningPrice {
    /// Its fields.
    pub root: OpeningPriceRoot,
}

impl OpeningPrice {
    /// The template's number.
    pub const ID: u16 = 15;
    /// Its name in the schema.
    pub const NAME: &'static str = "OpeningPrice";

    /// Checks the message's extent and reads its root. `body` follows the header.
    #[inline]
    pub fn parse(head: MessageHead, body: &[u8]) -> Result<Self, SbeError> {
        let (root, _) = head.split_root(body)?;
        let root = OpeningPriceRoot::read(root)?;
        Ok(Self { root })
    }
}

/// The root of `TheoreticalOpeningPrice`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct TheoreticalOpeningPriceRoot {
    /// `securityId`.
    pub security_id: wire::U64,
    /// `eventEnd`.
    pub event_end: u8,
    /// Not used.
    pub pad_9: [u8; 19],
    /// `entryTime`.
    pub entry_time: wire::U64,
    /// `rptSeq`.
    pub rpt_seq: wire::U32,
}

const _: () = assert!(size_of::<TheoreticalOpeningPriceRoot>() == 40, "a field is out of its place");

impl TheoreticalOpeningPriceRoot {
    /// Bytes of the block by the schema.
    pub const BLOCK_LEN: usize = 40;

    /// `entryTime`, where it is not null.
    #[inline]
    pub fn entry_time(&self) -> Option<u64> {
        let value = self.entry_time.get();
        (value != 0).then_some(value)
    }

    /// `rptSeq`, where it is not null.
    #[inline]
    pub fn rpt_seq(&self) -> Option<u32> {
        let value = self.rpt_seq.get();
        (value != 0).then_some(value)
    }
}

impl Block for TheoreticalOpeningPriceRoot {
    const LEN_MIN: usize = 40;
    const NULL: Self = Self {
        security_id: wire::U64::new(u64::MAX),
        event_end: u8::MAX,
        pad_9: [0; 19],
        entry_time: wire::U64::new(0),
        rpt_seq: wire::U32::new(0),
    };
    const FIELDS: &'static [Extent] = &[
        Extent { offset: 0, end: 8 },
        Extent { offset: 8, end: 9 },
        Extent { offset: 28, end: 36 },
        Extent { offset: 36, end: 40 },
    ];

    fn fields(&self, visitor: &mut dyn Visitor) {
        visitor.field("securityId", Value::Uint(self.security_id.get()));
        visitor.field("eventEnd", Value::Uint(self.event_end.into()));
        visitor.field("entryTime", self.entry_time().map_or(Value::Null, Value::Uint));
        visitor.field("rptSeq", self.rpt_seq().map_or(Value::Null, |value| Value::Uint(value.into())));
    }
}

/// The message `TheoreticalOpeningPrice`.
#[derive(Clone, Debug)]
pub struct TheoreticalOpeningPrice {
    /// Its fields.
    pub root: TheoreticalOpeningPriceRoot,
}

impl TheoreticalOpeningPrice {
    /// The template's number.
    pub const ID: u16 = 16;
    /// Its name in the schema.
    pub const NAME: &'static str = "TheoreticalOpeningPrice";

    /// Checks the message's extent and reads its root. `body` follows the header.
    #[inline]
    pub fn parse(head: MessageHead, body: &[u8]) -> Result<Self, SbeError> {
        let (root, _) = head.split_root(body)?;
        let root = TheoreticalOpeningPriceRoot::read(root)?;
        Ok(Self { root })
    }
}

/// The root of `ClosingPrice`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ClosingPriceRoot {
    /// `securityId`.
    pub security_id: wire::U64,
    /// `eventEnd`.
    pub event_end: u8,
    /// Not used.
    pub pad_9: [u8; 15],
    /// `entryTime`.
    pub entry_time: wire::U64,
    /// `rptSeq`.
    pub rpt_seq: wire::U32,
}

const _: () = assert!(size_of::<ClosingPriceRoot>() == 36, "a field is out of its place");

impl ClosingPriceRoot {
    /// Bytes of the block by the schema.
    pub const BLOCK_LEN: usize = 36;

    /// `entryTime`, where it is not null.
    #[inline]
    pub fn entry_time(&self) -> Option<u64> {
        let value = self.entry_time.get();
        (value != 0).then_some(value)
    }

    /// `rptSeq`, where it is not null.
    #[inline]
    pub fn rpt_seq(&self) -> Option<u32> {
        let value = self.rpt_seq.get();
        (value != 0).then_some(value)
    }
}

impl Block for ClosingPriceRoot {
    const LEN_MIN: usize = 36;
    const NULL: Self = Self {
        security_id: wire::U64::new(u64::MAX),
        event_end: u8::MAX,
        pad_9: [0; 15],
        entry_time: wire::U64::new(0),
        rpt_seq: wire::U32::new(0),
    };
    const FIELDS: &'static [Extent] = &[
        Extent { offset: 0, end: 8 },
        Extent { offset: 8, end: 9 },
        Extent { offset: 24, end: 32 },
        Extent { offset: 32, end: 36 },
    ];

    fn fields(&self, visitor: &mut dyn Visitor) {
        visitor.field("securityId", Value::Uint(self.security_id.get()));
        visitor.field("eventEnd", Value::Uint(self.event_end.into()));
        visitor.field("entryTime", self.entry_time().map_or(Value::Null, Value::Uint));
        visitor.field("rptSeq", self.rpt_seq().map_or(Value::Null, |value| Value::Uint(value.into())));
    }
}

/// The message `ClosingPrice`.
#[derive(Clone, Debug)]
pub struct ClosingPrice {
    /// Its fields.
    pub root: ClosingPriceRoot,
}

impl ClosingPrice {
    /// The template's number.
    pub const ID: u16 = 17;
    /// Its name in the schema.
    pub const NAME: &'static str = "ClosingPrice";

    /// Checks the message's extent and reads its root. `body` follows the header.
    #[inline]
    pub fn parse(head: MessageHead, body: &[u8]) -> Result<Self, SbeError> {
        let (root, _) = head.split_root(body)?;
        let root = ClosingPriceRoot::read(root)?;
        Ok(Self { root })
    }
}

/// The root of `AuctionImbalance`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct AuctionImbalanceRoot {
    /// `securityId`.
    pub security_id: wire::U64,
    /// `eventEnd`.
    pub event_end: u8,
    /// Not used.
    pub pad_9: [u8; 11],
    /// `entryTime`.
    pub entry_time: wire::U64,
    /// `rptSeq`.
    pub rpt_seq: wire::U32,
}

const _: () = assert!(size_of::<AuctionImbalanceRoot>() == 32, "a field is out of its place");

impl AuctionImbalanceRoot {
    /// Bytes of the block by the schema.
    pub const BLOCK_LEN: usize = 32;

    /// `entryTime`, where it is not null.
    #[inline]
    pub fn entry_time(&self) -> Option<u64> {
        let value = self.entry_time.get();
        (value != 0).then_some(value)
    }

    /// `rptSeq`, where it is not null.
    #[inline]
    pub fn rpt_seq(&self) -> Option<u32> {
        let value = self.rpt_seq.get();
        (value != 0).then_some(value)
    }
}

impl Block for AuctionImbalanceRoot {
    const LEN_MIN: usize = 32;
    const NULL: Self = Self {
        security_id: wire::U64::new(u64::MAX),
        event_end: u8::MAX,
        pad_9: [0; 11],
        entry_time: wire::U64::new(0),
        rpt_seq: wire::U32::new(0),
    };
    const FIELDS: &'static [Extent] = &[
        Extent { offset: 0, end: 8 },
        Extent { offset: 8, end: 9 },
        Extent { offset: 20, end: 28 },
        Extent { offset: 28, end: 32 },
    ];

    fn fields(&self, visitor: &mut dyn Visitor) {
        visitor.field("securityId", Value::Uint(self.security_id.get()));
        visitor.field("eventEnd", Value::Uint(self.event_end.into()));
        visitor.field("entryTime", self.entry_time().map_or(Value::Null, Value::Uint));
        visitor.field("rptSeq", self.rpt_seq().map_or(Value::Null, |value| Value::Uint(value.into())));
    }
}

/// The message `AuctionImbalance`.
#[derive(Clone, Debug)]
pub struct AuctionImbalance {
    /// Its fields.
    pub root: AuctionImbalanceRoot,
}

impl AuctionImbalance {
    /// The template's number.
    pub const ID: u16 = 19;
    /// Its name in the schema.
    pub const NAME: &'static str = "AuctionImbalance";

    /// Checks the message's extent and reads its root. `body` follows the header.
    #[inline]
    pub fn parse(head: MessageHead, body: &[u8]) -> Result<Self, SbeError> {
        let (root, _) = head.split_root(body)?;
        let root = AuctionImbalanceRoot::read(root)?;
        Ok(Self { root })
    }
}

/// The root of `QuantityBand`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct QuantityBandRoot {
    /// `securityId`.
    pub security_id: wire::U64,
    /// `eventEnd`.
    pub event_end: u8,
    /// Not used.
    pub pad_9: [u8; 19],
    /// `entryTime`.
    pub entry_time: wire::U64,
    /// `rptSeq`.
    pub rpt_seq: wire::U32,
}

const _: () = assert!(size_of::<QuantityBandRoot>() == 40, "a field is out of its place");

impl QuantityBandRoot {
    /// Bytes of the block by the schema.
    pub const BLOCK_LEN: usize = 40;

    /// `entryTime`, where it is not null.
    #[inline]
    pub fn entry_time(&self) -> Option<u64> {
        let value = self.entry_time.get();
        (value != 0).then_some(value)
    }

    /// `rptSeq`, where it is not null.
    #[inline]
    pub fn rpt_seq(&self) -> Option<u32> {
        let value = self.rpt_seq.get();
        (value != 0).then_some(value)
    }
}

impl Block for QuantityBandRoot {
    const LEN_MIN: usize = 40;
    const NULL: Self = Self {
        security_id: wire::U64::new(u64::MAX),
        event_end: u8::MAX,
        pad_9: [0; 19],
        entry_time: wire::U64::new(0),
        rpt_seq: wire::U32::new(0),
    };
    const FIELDS: &'static [Extent] = &[
        Extent { offset: 0, end: 8 },
        Extent { offset: 8, end: 9 },
        Extent { offset: 28, end: 36 },
        Extent { offset: 36, end: 40 },
    ];

    fn fields(&self, visitor: &mut dyn Visitor) {
        visitor.field("securityId", Value::Uint(self.security_id.get()));
        visitor.field("eventEnd", Value::Uint(self.event_end.into()));
        visitor.field("entryTime", self.entry_time().map_or(Value::Null, Value::Uint));
        visitor.field("rptSeq", self.rpt_seq().map_or(Value::Null, |value| Value::Uint(value.into())));
    }
}

/// The message `QuantityBand`.
#[derive(Clone, Debug)]
pub struct QuantityBand {
    /// Its fields.
    pub root: QuantityBandRoot,
}

impl QuantityBand {
    /// The template's number.
    pub const ID: u16 = 21;
    /// Its name in the schema.
    pub const NAME: &'static str = "QuantityBand";

    /// Checks the message's extent and reads its root. `body` follows the header.
    #[inline]
    pub fn parse(head: MessageHead, body: &[u8]) -> Result<Self, SbeError> {
        let (root, _) = head.split_root(body)?;
        let root = QuantityBandRoot::read(root)?;
        Ok(Self { root })
    }
}

/// The root of `PriceBand`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct PriceBandRoot {
    /// `securityId`.
    pub security_id: wire::U64,
    /// `eventEnd`.
    pub event_end: u8,
    /// Not used.
    pub pad_9: [u8; 27],
    /// `entryTime`.
    pub entry_time: wire::U64,
    /// `rptSeq`.
    pub rpt_seq: wire::U32,
}

const _: () = assert!(size_of::<PriceBandRoot>() == 48, "a field is out of its place");

impl PriceBandRoot {
    /// Bytes of the block by the schema.
    pub const BLOCK_LEN: usize = 48;

    /// `entryTime`, where it is not null.
    #[inline]
    pub fn entry_time(&self) -> Option<u64> {
        let value = self.entry_time.get();
        (value != 0).then_some(value)
    }

    /// `rptSeq`, where it is not null.
    #[inline]
    pub fn rpt_seq(&self) -> Option<u32> {
        let value = self.rpt_seq.get();
        (value != 0).then_some(value)
    }
}

impl Block for PriceBandRoot {
    const LEN_MIN: usize = 48;
    const NULL: Self = Self {
        security_id: wire::U64::new(u64::MAX),
        event_end: u8::MAX,
        pad_9: [0; 27],
        entry_time: wire::U64::new(0),
        rpt_seq: wire::U32::new(0),
    };
    const FIELDS: &'static [Extent] = &[
        Extent { offset: 0, end: 8 },
        Extent { offset: 8, end: 9 },
        Extent { offset: 36, end: 44 },
        Extent { offset: 44, end: 48 },
    ];

    fn fields(&self, visitor: &mut dyn Visitor) {
        visitor.field("securityId", Value::Uint(self.security_id.get()));
        visitor.field("eventEnd", Value::Uint(self.event_end.into()));
        visitor.field("entryTime", self.entry_time().map_or(Value::Null, Value::Uint));
        visitor.field("rptSeq", self.rpt_seq().map_or(Value::Null, |value| Value::Uint(value.into())));
    }
}

/// The message `PriceBand`.
#[derive(Clone, Debug)]
pub struct PriceBand {
    /// Its fields.
    pub root: PriceBandRoot,
}

impl PriceBand {
    /// The template's number.
    pub const ID: u16 = 22;
    /// Its name in the schema.
    pub const NAME: &'static str = "PriceBand";

    /// Checks the message's extent and reads its root. `body` follows the header.
    #[inline]
    pub fn parse(head: MessageHead, body: &[u8]) -> Result<Self, SbeError> {
        let (root, _) = head.split_root(body)?;
        let root = PriceBandRoot::read(root)?;
        Ok(Self { root })
    }
}

/// The root of `HighPrice`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct HighPriceRoot {
    /// `securityId`.
    pub security_id: wire::U64,
    /// `eventEnd`.
    pub event_end: u8,
    /// Not used.
    pub pad_9: [u8; 11],
    /// `entryTime`.
    pub entry_time: wire::U64,
    /// `rptSeq`.
    pub rpt_seq: wire::U32,
}

const _: () = assert!(size_of::<HighPriceRoot>() == 32, "a field is out of its place");

impl HighPriceRoot {
    /// Bytes of the block by the schema.
    pub const BLOCK_LEN: usize = 32;

    /// `entryTime`, where it is not null.
    #[inline]
    pub fn entry_time(&self) -> Option<u64> {
        let value = self.entry_time.get();
        (value != 0).then_some(value)
    }

    /// `rptSeq`, where it is not null.
    #[inline]
    pub fn rpt_seq(&self) -> Option<u32> {
        let value = self.rpt_seq.get();
        (value != 0).then_some(value)
    }
}

impl Block for HighPriceRoot {
    const LEN_MIN: usize = 32;
    const NULL: Self = Self {
        security_id: wire::U64::new(u64::MAX),
        event_end: u8::MAX,
        pad_9: [0; 11],
        entry_time: wire::U64::new(0),
        rpt_seq: wire::U32::new(0),
    };
    const FIELDS: &'static [Extent] = &[
        Extent { offset: 0, end: 8 },
        Extent { offset: 8, end: 9 },
        Extent { offset: 20, end: 28 },
        Extent { offset: 28, end: 32 },
    ];

    fn fields(&self, visitor: &mut dyn Visitor) {
        visitor.field("securityId", Value::Uint(self.security_id.get()));
        visitor.field("eventEnd", Value::Uint(self.event_end.into()));
        visitor.field("entryTime", self.entry_time().map_or(Value::Null, Value::Uint));
        visitor.field("rptSeq", self.rpt_seq().map_or(Value::Null, |value| Value::Uint(value.into())));
    }
}

/// The message `HighPrice`.
#[derive(Clone, Debug)]
pub struct HighPrice {
    /// Its fields.
    pub root: HighPriceRoot,
}

impl HighPrice {
    /// The template's number.
    pub const ID: u16 = 24;
    /// Its name in the schema.
    pub const NAME: &'static str = "HighPrice";

    /// Checks the message's extent and reads its root. `body` follows the header.
    #[inline]
    pub fn parse(head: MessageHead, body: &[u8]) -> Result<Self, SbeError> {
        let (root, _) = head.split_root(body)?;
        let root = HighPriceRoot::read(root)?;
        Ok(Self { root })
    }
}

/// The root of `LowPrice`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct LowPriceRoot {
    /// `securityId`.
    pub security_id: wire::U64,
    /// `eventEnd`.
    pub event_end: u8,
    /// Not used.
    pub pad_9: [u8; 11],
    /// `entryTime`.
    pub entry_time: wire::U64,
    /// `rptSeq`.
    pub rpt_seq: wire::U32,
}

const _: () = assert!(size_of::<LowPriceRoot>() == 32, "a field is out of its place");

impl LowPriceRoot {
    /// Bytes of the block by the schema.
    pub const BLOCK_LEN: usize = 32;

    /// `entryTime`, where it is not null.
    #[inline]
    pub fn entry_time(&self) -> Option<u64> {
        let value = self.entry_time.get();
        (value != 0).then_some(value)
    }

    /// `rptSeq`, where it is not null.
    #[inline]
    pub fn rpt_seq(&self) -> Option<u32> {
        let value = self.rpt_seq.get();
        (value != 0).then_some(value)
    }
}

impl Block for LowPriceRoot {
    const LEN_MIN: usize = 32;
    const NULL: Self = Self {
        security_id: wire::U64::new(u64::MAX),
        event_end: u8::MAX,
        pad_9: [0; 11],
        entry_time: wire::U64::new(0),
        rpt_seq: wire::U32::new(0),
    };
    const FIELDS: &'static [Extent] = &[
        Extent { offset: 0, end: 8 },
        Extent { offset: 8, end: 9 },
        Extent { offset: 20, end: 28 },
        Extent { offset: 28, end: 32 },
    ];

    fn fields(&self, visitor: &mut dyn Visitor) {
        visitor.field("securityId", Value::Uint(self.security_id.get()));
        visitor.field("eventEnd", Value::Uint(self.event_end.into()));
        visitor.field("entryTime", self.entry_time().map_or(Value::Null, Value::Uint));
        visitor.field("rptSeq", self.rpt_seq().map_or(Value::Null, |value| Value::Uint(value.into())));
    }
}

/// The message `LowPrice`.
#[derive(Clone, Debug)]
pub struct LowPrice {
    /// Its fields.
    pub root: LowPriceRoot,
}

impl LowPrice {
    /// The template's number.
    pub const ID: u16 = 25;
    /// Its name in the schema.
    pub const NAME: &'static str = "LowPrice";

    /// Checks the message's extent and reads its root. `body` follows the header.
    #[inline]
    pub fn parse(head: MessageHead, body: &[u8]) -> Result<Self, SbeError> {
        let (root, _) = head.split_root(body)?;
        let root = LowPriceRoot::read(root)?;
        Ok(Self { root })
    }
}

/// The root of `LastTradePrice`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct LastTradePriceRoot {
    /// `securityId`.
    pub security_id: wire::U64,
    /// `eventEnd`.
    pub event_end: u8,
    /// Not used.
    pub pad_9: [u8; 33],
    /// `entryTime`.
    pub entry_time: wire::U64,
    /// `rptSeq`.
    pub rpt_seq: wire::U32,
}

const _: () = assert!(size_of::<LastTradePriceRoot>() == 54, "a field is out of its place");

impl LastTradePriceRoot {
    /// Bytes of the block by the schema.
    pub const BLOCK_LEN: usize = 68;

    /// `entryTime`, where it is not null.
    #[inline]
    pub fn entry_time(&self) -> Option<u64> {
        let value = self.entry_time.get();
        (value != 0).then_some(value)
    }

    /// `rptSeq`, where it is not null.
    #[inline]
    pub fn rpt_seq(&self) -> Option<u32> {
        let value = self.rpt_seq.get();
        (value != 0).then_some(value)
    }
}

impl Block for LastTradePriceRoot {
    const LEN_MIN: usize = 54;
    const NULL: Self = Self {
        security_id: wire::U64::new(u64::MAX),
        event_end: u8::MAX,
        pad_9: [0; 33],
        entry_time: wire::U64::new(0),
        rpt_seq: wire::U32::new(0),
    };
    const FIELDS: &'static [Extent] = &[
        Extent { offset: 0, end: 8 },
        Extent { offset: 8, end: 9 },
        Extent { offset: 42, end: 50 },
        Extent { offset: 50, end: 54 },
    ];

    fn fields(&self, visitor: &mut dyn Visitor) {
        visitor.field("securityId", Value::Uint(self.security_id.get()));
        visitor.field("eventEnd", Value::Uint(self.event_end.into()));
        visitor.field("entryTime", self.entry_time().map_or(Value::Null, Value::Uint));
        visitor.field("rptSeq", self.rpt_seq().map_or(Value::Null, |value| Value::Uint(value.into())));
    }
}

/// The message `LastTradePrice`.
#[derive(Clone, Debug)]
pub struct LastTradePrice {
    /// Its fields.
    pub root: LastTradePriceRoot,
}

impl LastTradePrice {
    /// The template's number.
    pub const ID: u16 = 27;
    /// Its name in the schema.
    pub const NAME: &'static str = "LastTradePrice";

    /// Checks the message's extent and reads its root. `body` follows the header.
    #[inline]
    pub fn parse(head: MessageHead, body: &[u8]) -> Result<Self, SbeError> {
        let (root, _) = head.split_root(body)?;
        let root = LastTradePriceRoot::read(root)?;
        Ok(Self { root })
    }
}

/// The root of `SettlementPrice`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct SettlementPriceRoot {
    /// `securityId`.
    pub security_id: wire::U64,
    /// `eventEnd`.
    pub event_end: u8,
    /// Not used.
    pub pad_9: [u8; 11],
    /// `entryTime`.
    pub entry_time: wire::U64,
    /// Not used.
    pub pad_28: [u8; 3],
    /// `rptSeq`.
    pub rpt_seq: wire::U32,
}

const _: () = assert!(size_of::<SettlementPriceRoot>() == 35, "a field is out of its place");

impl SettlementPriceRoot {
    /// Bytes of the block by the schema.
    pub const BLOCK_LEN: usize = 36;

    /// `entryTime`, where it is not null.
    #[inline]
    pub fn entry_time(&self) -> Option<u64> {
        let value = self.entry_time.get();
        (value != 0).then_some(value)
    }

    /// `rptSeq`, where it is not null.
    #[inline]
    pub fn rpt_seq(&self) -> Option<u32> {
        let value = self.rpt_seq.get();
        (value != 0).then_some(value)
    }
}

impl Block for SettlementPriceRoot {
    const LEN_MIN: usize = 35;
    const NULL: Self = Self {
        security_id: wire::U64::new(u64::MAX),
        event_end: u8::MAX,
        pad_9: [0; 11],
        entry_time: wire::U64::new(0),
        pad_28: [0; 3],
        rpt_seq: wire::U32::new(0),
    };
    const FIELDS: &'static [Extent] = &[
        Extent { offset: 0, end: 8 },
        Extent { offset: 8, end: 9 },
        Extent { offset: 20, end: 28 },
        Extent { offset: 31, end: 35 },
    ];

    fn fields(&self, visitor: &mut dyn Visitor) {
        visitor.field("securityId", Value::Uint(self.security_id.get()));
        visitor.field("eventEnd", Value::Uint(self.event_end.into()));
        visitor.field("entryTime", self.entry_time().map_or(Value::Null, Value::Uint));
        visitor.field("rptSeq", self.rpt_seq().map_or(Value::Null, |value| Value::Uint(value.into())));
    }
}

/// The message `SettlementPrice`.
#[derive(Clone, Debug)]
pub struct SettlementPrice {
    /// Its fields.
    pub root: SettlementPriceRoot,
}

impl SettlementPrice {
    /// The template's number.
    pub const ID: u16 = 28;
    /// Its name in the schema.
    pub const NAME: &'static str = "SettlementPrice";

    /// Checks the message's extent and reads its root. `body` follows the header.
    #[inline]
    pub fn parse(head: MessageHead, body: &[u8]) -> Result<Self, SbeError> {
        let (root, _) = head.split_root(body)?;
        let root = SettlementPriceRoot::read(root)?;
        Ok(Self { root })
    }
}

/// The root of `OpenInterest`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct OpenInterestRoot {
    /// `securityId`.
    pub security_id: wire::U64,
    /// `eventEnd`.
    pub event_end: u8,
    /// Not used.
    pub pad_9: [u8; 11],
    /// `entryTime`.
    pub entry_time: wire::U64,
    /// `rptSeq`.
    pub rpt_seq: wire::U32,
}

const _: () = assert!(size_of::<OpenInterestRoot>() == 32, "a field is out of its place");

impl OpenInterestRoot {
    /// Bytes of the block by the schema.
    pub const BLOCK_LEN: usize = 32;

    /// `entryTime`, where it is not null.
    #[inline]
    pub fn entry_time(&self) -> Option<u64> {
        let value = self.entry_time.get();
        (value != 0).then_some(value)
    }

    /// `rptSeq`, where it is not null.
    #[inline]
    pub fn rpt_seq(&self) -> Option<u32> {
        let value = self.rpt_seq.get();
        (value != 0).then_some(value)
    }
}

impl Block for OpenInterestRoot {
    const LEN_MIN: usize = 32;
    const NULL: Self = Self {
        security_id: wire::U64::new(u64::MAX),
        event_end: u8::MAX,
        pad_9: [0; 11],
        entry_time: wire::U64::new(0),
        rpt_seq: wire::U32::new(0),
    };
    const FIELDS: &'static [Extent] = &[
        Extent { offset: 0, end: 8 },
        Extent { offset: 8, end: 9 },
        Extent { offset: 20, end: 28 },
        Extent { offset: 28, end: 32 },
    ];

    fn fields(&self, visitor: &mut dyn Visitor) {
        visitor.field("securityId", Value::Uint(self.security_id.get()));
        visitor.field("eventEnd", Value::Uint(self.event_end.into()));
        visitor.field("entryTime", self.entry_time().map_or(Value::Null, Value::Uint));
        visitor.field("rptSeq", self.rpt_seq().map_or(Value::Null, |value| Value::Uint(value.into())));
    }
}

/// The message `OpenInterest`.
#[derive(Clone, Debug)]
pub struct OpenInterest {
    /// Its fields.
    pub root: OpenInterestRoot,
}

impl OpenInterest {
    /// The template's number.
    pub const ID: u16 = 29;
    /// Its name in the schema.
    pub const NAME: &'static str = "OpenInterest";

    /// Checks the message's extent and reads its root. `body` follows the header.
    #[inline]
    pub fn parse(head: MessageHead, body: &[u8]) -> Result<Self, SbeError> {
        let (root, _) = head.split_root(body)?;
        let root = OpenInterestRoot::read(root)?;
        Ok(Self { root })
    }
}

/// The root of `SnapshotHeader`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct SnapshotHeaderRoot {
    /// `securityId`.
    pub security_id: wire::U64,
    /// `lastSeq`.
    pub last_seq: wire::U32,
    /// `reportsTotal`.
    pub reports_total: wire::U32,
    /// `bids`.
    pub bids: wire::U32,
    /// `offers`.
    pub offers: wire::U32,
    /// Not used.
    pub pad_24: [u8; 4],
    /// `lastRptSeq`.
    pub last_rpt_seq: wire::U32,
    /// `lastSequenceVersion`.
    pub last_sequence_version: wire::U16,
}

const _: () = assert!(size_of::<SnapshotHeaderRoot>() == 34, "a field is out of its place");

impl SnapshotHeaderRoot {
    /// Bytes of the block by the schema.
    pub const BLOCK_LEN: usize = 34;

    /// `lastRptSeq`, where it is not null.
    #[inline]
    pub fn last_rpt_seq(&self) -> Option<u32> {
        let value = self.last_rpt_seq.get();
        (value != 0).then_some(value)
    }

    /// `lastSequenceVersion`, where it is not null.
    #[inline]
    pub fn last_sequence_version(&self) -> Option<u16> {
        let value = self.last_sequence_version.get();
        (value != 0).then_some(value)
    }
}

impl Block for SnapshotHeaderRoot {
    const LEN_MIN: usize = 32;
    const NULL: Self = Self {
        security_id: wire::U64::new(u64::MAX),
        last_seq: wire::U32::new(u32::MAX),
        reports_total: wire::U32::new(u32::MAX),
        bids: wire::U32::new(u32::MAX),
        offers: wire::U32::new(u32::MAX),
        pad_24: [0; 4],
        last_rpt_seq: wire::U32::new(0),
        last_sequence_version: wire::U16::new(0),
    };
    const FIELDS: &'static [Extent] = &[
        Extent { offset: 0, end: 8 },
        Extent { offset: 8, end: 12 },
        Extent { offset: 12, end: 16 },
        Extent { offset: 16, end: 20 },
        Extent { offset: 20, end: 24 },
        Extent { offset: 28, end: 32 },
        Extent { offset: 32, end: 34 },
    ];

    fn fields(&self, visitor: &mut dyn Visitor) {
        visitor.field("securityId", Value::Uint(self.security_id.get()));
        visitor.field("lastSeq", Value::Uint(self.last_seq.get().into()));
        visitor.field("reportsTotal", Value::Uint(self.reports_total.get().into()));
        visitor.field("bids", Value::Uint(self.bids.get().into()));
        visitor.field("offers", Value::Uint(self.offers.get().into()));
        visitor.field("lastRptSeq", self.last_rpt_seq().map_or(Value::Null, |value| Value::Uint(value.into())));
        visitor.field("lastSequenceVersion", self.last_sequence_version().map_or(Value::Null, |value| Value::Uint(value.into())));
    }
}

/// The message `SnapshotHeader`.
#[derive(Clone, Debug)]
pub struct SnapshotHeader {
    /// Its fields.
    pub root: SnapshotHeaderRoot,
}

impl SnapshotHeader {
    /// The template's number.
    pub const ID: u16 = 30;
    /// Its name in the schema.
    pub const NAME: &'static str = "SnapshotHeader";

    /// Checks the message's extent and reads its root. `body` follows the header.
    #[inline]
    pub fn parse(head: MessageHead, body: &[u8]) -> Result<Self, SbeError> {
        let (root, _) = head.split_root(body)?;
        let root = SnapshotHeaderRoot::read(root)?;
        Ok(Self { root })
    }
}

/// The root of `Order`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct OrderRoot {
    /// `securityId`.
    pub security_id: wire::U64,
    /// `eventEnd`.
    pub event_end: u8,
    /// `action`.
    pub action: u8,
    /// `entryType`.
    pub entry_type: u8,
    /// Not used.
    pub pad_11: [u8; 1],
    /// `price`.
    pub price: wire::I64,
    /// `size`.
    pub size: wire::I64,
    /// Not used.
    pub pad_28: [u8; 16],
    /// `orderId`.
    pub order_id: wire::U64,
    /// `rptSeq`.
    pub rpt_seq: wire::U32,
    /// `transactTime`.
    pub transact_time: wire::U64,
}

const _: () = assert!(size_of::<OrderRoot>() == 64, "a field is out of its place");

impl OrderRoot {
    /// Bytes of the block by the schema.
    pub const BLOCK_LEN: usize = 72;
    /// `price.exponent`.
    pub const PRICE_EXPONENT: i8 = -4;

    /// `price`, where it is not null.
    #[inline]
    pub fn price(&self) -> Option<i64> {
        let value = self.price.get();
        (value != i64::MIN).then_some(value)
    }

    /// `rptSeq`, where it is not null.
    #[inline]
    pub fn rpt_seq(&self) -> Option<u32> {
        let value = self.rpt_seq.get();
        (value != 0).then_some(value)
    }

    /// `transactTime`, where it is not null.
    #[inline]
    pub fn transact_time(&self) -> Option<u64> {
        let value = self.transact_time.get();
        (value != 0).then_some(value)
    }
}

impl Block for OrderRoot {
    const LEN_MIN: usize = 56;
    const NULL: Self = Self {
        security_id: wire::U64::new(u64::MAX),
        event_end: u8::MAX,
        action: u8::MAX,
        entry_type: 0,
        pad_11: [0; 1],
        price: wire::I64::new(i64::MIN),
        size: wire::I64::new(i64::MIN),
        pad_28: [0; 16],
        order_id: wire::U64::new(u64::MAX),
        rpt_seq: wire::U32::new(0),
        transact_time: wire::U64::new(0),
    };
    const FIELDS: &'static [Extent] = &[
        Extent { offset: 0, end: 8 },
        Extent { offset: 8, end: 9 },
        Extent { offset: 9, end: 10 },
        Extent { offset: 10, end: 11 },
        Extent { offset: 12, end: 20 },
        Extent { offset: 20, end: 28 },
        Extent { offset: 44, end: 52 },
        Extent { offset: 52, end: 56 },
        Extent { offset: 56, end: 64 },
    ];

    fn fields(&self, visitor: &mut dyn Visitor) {
        visitor.field("securityId", Value::Uint(self.security_id.get()));
        visitor.field("eventEnd", Value::Uint(self.event_end.into()));
        visitor.field("action", Value::Uint(self.action.into()));
        visitor.field("entryType", Value::Bytes(core::slice::from_ref(&self.entry_type)));
        visitor.field("price", self.price().map_or(Value::Null, Value::Int));
        visitor.field("price.exponent", Value::Int(-4));
        visitor.field("size", Value::Int(self.size.get()));
        visitor.field("orderId", Value::Uint(self.order_id.get()));
        visitor.field("rptSeq", self.rpt_seq().map_or(Value::Null, |value| Value::Uint(value.into())));
        visitor.field("transactTime", self.transact_time().map_or(Value::Null, Value::Uint));
    }
}

/// The message `Order`.
#[derive(Clone, Debug)]
pub struct Order {
    /// Its fields.
    pub root: OrderRoot,
}

impl Order {
    /// The template's number.
    pub const ID: u16 = 50;
    /// Its name in the schema.
    pub const NAME: &'static str = "Order";

    /// Checks the message's extent and reads its root. `body` follows the header.
    #[inline]
    pub fn parse(head: MessageHead, body: &[u8]) -> Result<Self, SbeError> {
        let (root, _) = head.split_root(body)?;
        let root = OrderRoot::read(root)?;
        Ok(Self { root })
    }
}

/// The root of `DeleteOrder`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct DeleteOrderRoot {
    /// `securityId`.
    pub security_id: wire::U64,
    /// `eventEnd`.
    pub event_end: u8,
    /// Not used.
    pub pad_9: [u8; 1],
    /// `entryType`.
    pub entry_type: u8,
    /// Not used.
    pub pad_11: [u8; 5],
    /// `size`.
    pub size: wire::I64,
    /// `orderId`.
    pub order_id: wire::U64,
    /// `transactTime`.
    pub transact_time: wire::U64,
    /// `rptSeq`.
    pub rpt_seq: wire::U32,
    /// `price`.
    pub price: wire::I64,
}

const _: () = assert!(size_of::<DeleteOrderRoot>() == 52, "a field is out of its place");

impl DeleteOrderRoot {
    /// Bytes of the block by the schema.
    pub const BLOCK_LEN: usize = 52;
    /// `price.exponent`.
    pub const PRICE_EXPONENT: i8 = -4;

    /// `transactTime`, where it is not null.
    #[inline]
    pub fn transact_time(&self) -> Option<u64> {
        let value = self.transact_time.get();
        (value != 0).then_some(value)
    }

    /// `rptSeq`, where it is not null.
    #[inline]
    pub fn rpt_seq(&self) -> Option<u32> {
        let value = self.rpt_seq.get();
        (value != 0).then_some(value)
    }

    /// `price`, where it is not null.
    #[inline]
    pub fn price(&self) -> Option<i64> {
        let value = self.price.get();
        (value != i64::MIN).then_some(value)
    }
}

impl Block for DeleteOrderRoot {
    const LEN_MIN: usize = 44;
    const NULL: Self = Self {
        security_id: wire::U64::new(u64::MAX),
        event_end: u8::MAX,
        pad_9: [0; 1],
        entry_type: 0,
        pad_11: [0; 5],
        size: wire::I64::new(i64::MIN),
        order_id: wire::U64::new(u64::MAX),
        transact_time: wire::U64::new(0),
        rpt_seq: wire::U32::new(0),
        price: wire::I64::new(i64::MIN),
    };
    const FIELDS: &'static [Extent] = &[
        Extent { offset: 0, end: 8 },
        Extent { offset: 8, end: 9 },
        Extent { offset: 10, end: 11 },
        Extent { offset: 16, end: 24 },
        Extent { offset: 24, end: 32 },
        Extent { offset: 32, end: 40 },
        Extent { offset: 40, end: 44 },
        Extent { offset: 44, end: 52 },
    ];

    fn fields(&self, visitor: &mut dyn Visitor) {
        visitor.field("securityId", Value::Uint(self.security_id.get()));
        visitor.field("eventEnd", Value::Uint(self.event_end.into()));
        visitor.field("entryType", Value::Bytes(core::slice::from_ref(&self.entry_type)));
        visitor.field("size", Value::Int(self.size.get()));
        visitor.field("orderId", Value::Uint(self.order_id.get()));
        visitor.field("transactTime", self.transact_time().map_or(Value::Null, Value::Uint));
        visitor.field("rptSeq", self.rpt_seq().map_or(Value::Null, |value| Value::Uint(value.into())));
        visitor.field("price", self.price().map_or(Value::Null, Value::Int));
        visitor.field("price.exponent", Value::Int(-4));
    }
}

/// The message `DeleteOrder`.
#[derive(Clone, Debug)]
pub struct DeleteOrder {
    /// Its fields.
    pub root: DeleteOrderRoot,
}

impl DeleteOrder {
    /// The template's number.
    pub const ID: u16 = 51;
    /// Its name in the schema.
    pub const NAME: &'static str = "DeleteOrder";

    /// Checks the message's extent and reads its root. `body` follows the header.
    #[inline]
    pub fn parse(head: MessageHead, body: &[u8]) -> Result<Self, SbeError> {
        let (root, _) = head.split_root(body)?;
        let root = DeleteOrderRoot::read(root)?;
        Ok(Self { root })
    }
}

/// The root of `MassDeleteOrders`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct MassDeleteOrdersRoot {
    /// `securityId`.
    pub security_id: wire::U64,
    /// `eventEnd`.
    pub event_end: u8,
    /// `action`.
    pub action: u8,
    /// `entryType`.
    pub entry_type: u8,
    /// Not used.
    pub pad_11: [u8; 1],
    /// `position`.
    pub position: wire::U32,
    /// `transactTime`.
    pub transact_time: wire::U64,
    /// `rptSeq`.
    pub rpt_seq: wire::U32,
}

const _: () = assert!(size_of::<MassDeleteOrdersRoot>() == 28, "a field is out of its place");

impl MassDeleteOrdersRoot {
    /// Bytes of the block by the schema.
    pub const BLOCK_LEN: usize = 28;

    /// `position`, where it is not null.
    #[inline]
    pub fn position(&self) -> Option<u32> {
        let value = self.position.get();
        (value != 0).then_some(value)
    }

    /// `transactTime`, where it is not null.
    #[inline]
    pub fn transact_time(&self) -> Option<u64> {
        let value = self.transact_time.get();
        (value != 0).then_some(value)
    }

    /// `rptSeq`, where it is not null.
    #[inline]
    pub fn rpt_seq(&self) -> Option<u32> {
        let value = self.rpt_seq.get();
        (value != 0).then_some(value)
    }
}

impl Block for MassDeleteOrdersRoot {
    const LEN_MIN: usize = 28;
    const NULL: Self = Self {
        security_id: wire::U64::new(u64::MAX),
        event_end: u8::MAX,
        action: u8::MAX,
        entry_type: 0,
        pad_11: [0; 1],
        position: wire::U32::new(0),
        transact_time: wire::U64::new(0),
        rpt_seq: wire::U32::new(0),
    };
    const FIELDS: &'static [Extent] = &[
        Extent { offset: 0, end: 8 },
        Extent { offset: 8, end: 9 },
        Extent { offset: 9, end: 10 },
        Extent { offset: 10, end: 11 },
        Extent { offset: 12, end: 16 },
        Extent { offset: 16, end: 24 },
        Extent { offset: 24, end: 28 },
    ];

    fn fields(&self, visitor: &mut dyn Visitor) {
        visitor.field("securityId", Value::Uint(self.security_id.get()));
        visitor.field("eventEnd", Value::Uint(self.event_end.into()));
        visitor.field("action", Value::Uint(self.action.into()));
        visitor.field("entryType", Value::Bytes(core::slice::from_ref(&self.entry_type)));
        visitor.field("position", self.position().map_or(Value::Null, |value| Value::Uint(value.into())));
        visitor.field("transactTime", self.transact_time().map_or(Value::Null, Value::Uint));
        visitor.field("rptSeq", self.rpt_seq().map_or(Value::Null, |value| Value::Uint(value.into())));
    }
}

/// The message `MassDeleteOrders`.
#[derive(Clone, Debug)]
pub struct MassDeleteOrders {
    /// Its fields.
    pub root: MassDeleteOrdersRoot,
}

impl MassDeleteOrders {
    /// The template's number.
    pub const ID: u16 = 52;
    /// Its name in the schema.
    pub const NAME: &'static str = "MassDeleteOrders";

    /// Checks the message's extent and reads its root. `body` follows the header.
    #[inline]
    pub fn parse(head: MessageHead, body: &[u8]) -> Result<Self, SbeError> {
        let (root, _) = head.split_root(body)?;
        let root = MassDeleteOrdersRoot::read(root)?;
        Ok(Self { root })
    }
}

/// The root of `Trade`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct TradeRoot {
    /// `securityId`.
    pub security_id: wire::U64,
    /// `eventEnd`.
    pub event_end: u8,
    /// Not used.
    pub pad_9: [u8; 3],
    /// `price`.
    pub price: wire::I64,
    /// `size`.
    pub size: wire::I64,
    /// `tradeId`.
    pub trade_id: wire::U32,
    /// Not used.
    pub pad_32: [u8; 12],
    /// `transactTime`.
    pub transact_time: wire::U64,
    /// `rptSeq`.
    pub rpt_seq: wire::U32,
}

const _: () = assert!(size_of::<TradeRoot>() == 56, "a field is out of its place");

impl TradeRoot {
    /// Bytes of the block by the schema.
    pub const BLOCK_LEN: usize = 56;
    /// `price.exponent`.
    pub const PRICE_EXPONENT: i8 = -4;

    /// `transactTime`, where it is not null.
    #[inline]
    pub fn transact_time(&self) -> Option<u64> {
        let value = self.transact_time.get();
        (value != 0).then_some(value)
    }

    /// `rptSeq`, where it is not null.
    #[inline]
    pub fn rpt_seq(&self) -> Option<u32> {
        let value = self.rpt_seq.get();
        (value != 0).then_some(value)
    }
}

impl Block for TradeRoot {
    const LEN_MIN: usize = 56;
    const NULL: Self = Self {
        security_id: wire::U64::new(u64::MAX),
        event_end: u8::MAX,
        pad_9: [0; 3],
        price: wire::I64::new(i64::MIN),
        size: wire::I64::new(i64::MIN),
        trade_id: wire::U32::new(u32::MAX),
        pad_32: [0; 12],
        transact_time: wire::U64::new(0),
        rpt_seq: wire::U32::new(0),
    };
    const FIELDS: &'static [Extent] = &[
        Extent { offset: 0, end: 8 },
        Extent { offset: 8, end: 9 },
        Extent { offset: 12, end: 20 },
        Extent { offset: 20, end: 28 },
        Extent { offset: 28, end: 32 },
        Extent { offset: 44, end: 52 },
        Extent { offset: 52, end: 56 },
    ];

    fn fields(&self, visitor: &mut dyn Visitor) {
        visitor.field("securityId", Value::Uint(self.security_id.get()));
        visitor.field("eventEnd", Value::Uint(self.event_end.into()));
        visitor.field("price", Value::Int(self.price.get()));
        visitor.field("price.exponent", Value::Int(-4));
        visitor.field("size", Value::Int(self.size.get()));
        visitor.field("tradeId", Value::Uint(self.trade_id.get().into()));
        visitor.field("transactTime", self.transact_time().map_or(Value::Null, Value::Uint));
        visitor.field("rptSeq", self.rpt_seq().map_or(Value::Null, |value| Value::Uint(value.into())));
    }
}

/// The message `Trade`.
#[derive(Clone, Debug)]
pub struct Trade {
    /// Its fields.
    pub root: TradeRoot,
}

impl Trade {
    /// The template's number.
    pub const ID: u16 = 53;
    /// Its name in the schema.
    pub const NAME: &'static str = "Trade";

    /// Checks the message's extent and reads its root. `body` follows the header.
    #[inline]
    pub fn parse(head: MessageHead, body: &[u8]) -> Result<Self, SbeError> {
        let (root, _) = head.split_root(body)?;
        let root = TradeRoot::read(root)?;
        Ok(Self { root })
    }
}

/// The root of `ForwardTrade`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ForwardTradeRoot {
    /// `securityId`.
    pub security_id: wire::U64,
    /// `eventEnd`.
    pub event_end: u8,
    /// Not used.
    pub pad_9: [u8; 3],
    /// `price`.
    pub price: wire::I64,
    /// `size`.
    pub size: wire::I64,
    /// `tradeId`.
    pub trade_id: wire::U32,
    /// Not used.
    pub pad_32: [u8; 10],
    /// `transactTime`.
    pub transact_time: wire::U64,
    /// `rptSeq`.
    pub rpt_seq: wire::U32,
}

const _: () = assert!(size_of::<ForwardTradeRoot>() == 54, "a field is out of its place");

impl ForwardTradeRoot {
    /// Bytes of the block by the schema.
    pub const BLOCK_LEN: usize = 68;
    /// `price.exponent`.
    pub const PRICE_EXPONENT: i8 = -4;

    /// `transactTime`, where it is not null.
    #[inline]
    pub fn transact_time(&self) -> Option<u64> {
        let value = self.transact_time.get();
        (value != 0).then_some(value)
    }

    /// `rptSeq`, where it is not null.
    #[inline]
    pub fn rpt_seq(&self) -> Option<u32> {
        let value = self.rpt_seq.get();
        (value != 0).then_some(value)
    }
}

impl Block for ForwardTradeRoot {
    const LEN_MIN: usize = 54;
    const NULL: Self = Self {
        security_id: wire::U64::new(u64::MAX),
        event_end: u8::MAX,
        pad_9: [0; 3],
        price: wire::I64::new(i64::MIN),
        size: wire::I64::new(i64::MIN),
        trade_id: wire::U32::new(u32::MAX),
        pad_32: [0; 10],
        transact_time: wire::U64::new(0),
        rpt_seq: wire::U32::new(0),
    };
    const FIELDS: &'static [Extent] = &[
        Extent { offset: 0, end: 8 },
        Extent { offset: 8, end: 9 },
        Extent { offset: 12, end: 20 },
        Extent { offset: 20, end: 28 },
        Extent { offset: 28, end: 32 },
        Extent { offset: 42, end: 50 },
        Extent { offset: 50, end: 54 },
    ];

    fn fields(&self, visitor: &mut dyn Visitor) {
        visitor.field("securityId", Value::Uint(self.security_id.get()));
        visitor.field("eventEnd", Value::Uint(self.event_end.into()));
        visitor.field("price", Value::Int(self.price.get()));
        visitor.field("price.exponent", Value::Int(-4));
        visitor.field("size", Value::Int(self.size.get()));
        visitor.field("tradeId", Value::Uint(self.trade_id.get().into()));
        visitor.field("transactTime", self.transact_time().map_or(Value::Null, Value::Uint));
        visitor.field("rptSeq", self.rpt_seq().map_or(Value::Null, |value| Value::Uint(value.into())));
    }
}

/// The message `ForwardTrade`.
#[derive(Clone, Debug)]
pub struct ForwardTrade {
    /// Its fields.
    pub root: ForwardTradeRoot,
}

impl ForwardTrade {
    /// The template's number.
    pub const ID: u16 = 54;
    /// Its name in the schema.
    pub const NAME: &'static str = "ForwardTrade";

    /// Checks the message's extent and reads its root. `body` follows the header.
    #[inline]
    pub fn parse(head: MessageHead, body: &[u8]) -> Result<Self, SbeError> {
        let (root, _) = head.split_root(body)?;
        let root = ForwardTradeRoot::read(root)?;
        Ok(Self { root })
    }
}

/// The root of `ExecutionSummary`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ExecutionSummaryRoot {
    /// `securityId`.
    pub security_id: wire::U64,
    /// Not used.
    pub pad_8: [u8; 2],
    /// `aggressor`.
    pub aggressor: u8,
    /// Not used.
    pub pad_11: [u8; 1],
    /// `lastPrice`.
    pub last_price: wire::I64,
    /// `fillQty`.
    pub fill_qty: wire::I64,
    /// Not used.
    pub pad_28: [u8; 24],
    /// `rptSeq`.
    pub rpt_seq: wire::U32,
    /// `transactTime`.
    pub transact_time: wire::U64,
}

const _: () = assert!(size_of::<ExecutionSummaryRoot>() == 64, "a field is out of its place");

impl ExecutionSummaryRoot {
    /// Bytes of the block by the schema.
    pub const BLOCK_LEN: usize = 64;
    /// `lastPrice.exponent`.
    pub const LAST_PRICE_EXPONENT: i8 = -4;

    /// `rptSeq`, where it is not null.
    #[inline]
    pub fn rpt_seq(&self) -> Option<u32> {
        let value = self.rpt_seq.get();
        (value != 0).then_some(value)
    }

    /// `transactTime`, where it is not null.
    #[inline]
    pub fn transact_time(&self) -> Option<u64> {
        let value = self.transact_time.get();
        (value != 0).then_some(value)
    }
}

impl Block for ExecutionSummaryRoot {
    const LEN_MIN: usize = 56;
    const NULL: Self = Self {
        security_id: wire::U64::new(u64::MAX),
        pad_8: [0; 2],
        aggressor: u8::MAX,
        pad_11: [0; 1],
        last_price: wire::I64::new(i64::MIN),
        fill_qty: wire::I64::new(i64::MIN),
        pad_28: [0; 24],
        rpt_seq: wire::U32::new(0),
        transact_time: wire::U64::new(0),
    };
    const FIELDS: &'static [Extent] = &[
        Extent { offset: 0, end: 8 },
        Extent { offset: 10, end: 11 },
        Extent { offset: 12, end: 20 },
        Extent { offset: 20, end: 28 },
        Extent { offset: 52, end: 56 },
        Extent { offset: 56, end: 64 },
    ];

    fn fields(&self, visitor: &mut dyn Visitor) {
        visitor.field("securityId", Value::Uint(self.security_id.get()));
        visitor.field("aggressor", Value::Uint(self.aggressor.into()));
        visitor.field("lastPrice", Value::Int(self.last_price.get()));
        visitor.field("lastPrice.exponent", Value::Int(-4));
        visitor.field("fillQty", Value::Int(self.fill_qty.get()));
        visitor.field("rptSeq", self.rpt_seq().map_or(Value::Null, |value| Value::Uint(value.into())));
        visitor.field("transactTime", self.transact_time().map_or(Value::Null, Value::Uint));
    }
}

/// The message `ExecutionSummary`.
#[derive(Clone, Debug)]
pub struct ExecutionSummary {
    /// Its fields.
    pub root: ExecutionSummaryRoot,
}

impl ExecutionSummary {
    /// The template's number.
    pub const ID: u16 = 55;
    /// Its name in the schema.
    pub const NAME: &'static str = "ExecutionSummary";

    /// Checks the message's extent and reads its root. `body` follows the header.
    #[inline]
    pub fn parse(head: MessageHead, body: &[u8]) -> Result<Self, SbeError> {
        let (root, _) = head.split_root(body)?;
        let root = ExecutionSummaryRoot::read(root)?;
        Ok(Self { root })
    }
}

/// The root of `ExecutionStatistics`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ExecutionStatisticsRoot {
    /// `securityId`.
    pub security_id: wire::U64,
    /// `eventEnd`.
    pub event_end: u8,
    /// Not used.
    pub pad_9: [u8; 31],
    /// `entryTime`.
    pub entry_time: wire::U64,
    /// `rptSeq`.
    pub rpt_seq: wire::U32,
}

const _: () = assert!(size_of::<ExecutionStatisticsRoot>() == 52, "a field is out of its place");

impl ExecutionStatisticsRoot {
    /// Bytes of the block by the schema.
    pub const BLOCK_LEN: usize = 52;

    /// `entryTime`, where it is not null.
    #[inline]
    pub fn entry_time(&self) -> Option<u64> {
        let value = self.entry_time.get();
        (value != 0).then_some(value)
    }

    /// `rptSeq`, where it is not null.
    #[inline]
    pub fn rpt_seq(&self) -> Option<u32> {
        let value = self.rpt_seq.get();
        (value != 0).then_some(value)
    }
}

impl Block for ExecutionStatisticsRoot {
    const LEN_MIN: usize = 52;
    const NULL: Self = Self {
        security_id: wire::U64::new(u64::MAX),
        event_end: u8::MAX,
        pad_9: [0; 31],
        entry_time: wire::U64::new(0),
        rpt_seq: wire::U32::new(0),
    };
    const FIELDS: &'static [Extent] = &[
        Extent { offset: 0, end: 8 },
        Extent { offset: 8, end: 9 },
        Extent { offset: 40, end: 48 },
        Extent { offset: 48, end: 52 },
    ];

    fn fields(&self, visitor: &mut dyn Visitor) {
        visitor.field("securityId", Value::Uint(self.security_id.get()));
        visitor.field("eventEnd", Value::Uint(self.event_end.into()));
        visitor.field("entryTime", self.entry_time().map_or(Value::Null, Value::Uint));
        visitor.field("rptSeq", self.rpt_seq().map_or(Value::Null, |value| Value::Uint(value.into())));
    }
}

/// The message `ExecutionStatistics`.
#[derive(Clone, Debug)]
pub struct ExecutionStatistics {
    /// Its fields.
    pub root: ExecutionStatisticsRoot,
}

impl ExecutionStatistics {
    /// The template's number.
    pub const ID: u16 = 56;
    /// Its name in the schema.
    pub const NAME: &'static str = "ExecutionStatistics";

    /// Checks the message's extent and reads its root. `body` follows the header.
    #[inline]
    pub fn parse(head: MessageHead, body: &[u8]) -> Result<Self, SbeError> {
        let (root, _) = head.split_root(body)?;
        let root = ExecutionStatisticsRoot::read(root)?;
        Ok(Self { root })
    }
}

/// The root of `TradeBust`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct TradeBustRoot {
    /// `securityId`.
    pub security_id: wire::U64,
    /// `eventEnd`.
    pub event_end: u8,
    /// Not used.
    pub pad_9: [u8; 3],
    /// `price`.
    pub price: wire::I64,
    /// `size`.
    pub size: wire::I64,
    /// `tradeId`.
    pub trade_id: wire::U32,
    /// Not used.
    pub pad_32: [u8; 4],
    /// `transactTime`.
    pub transact_time: wire::U64,
    /// `rptSeq`.
    pub rpt_seq: wire::U32,
}

const _: () = assert!(size_of::<TradeBustRoot>() == 48, "a field is out of its place");

impl TradeBustRoot {
    /// Bytes of the block by the schema.
    pub const BLOCK_LEN: usize = 48;
    /// `price.exponent`.
    pub const PRICE_EXPONENT: i8 = -4;

    /// `transactTime`, where it is not null.
    #[inline]
    pub fn transact_time(&self) -> Option<u64> {
        let value = self.transact_time.get();
        (value != 0).then_some(value)
    }

    /// `rptSeq`, where it is not null.
    #[inline]
    pub fn rpt_seq(&self) -> Option<u32> {
        let value = self.rpt_seq.get();
        (value != 0).then_some(value)
    }
}

impl Block for TradeBustRoot {
    const LEN_MIN: usize = 48;
    const NULL: Self = Self {
        security_id: wire::U64::new(u64::MAX),
        event_end: u8::MAX,
        pad_9: [0; 3],
        price: wire::I64::new(i64::MIN),
        size: wire::I64::new(i64::MIN),
        trade_id: wire::U32::new(u32::MAX),
        pad_32: [0; 4],
        transact_time: wire::U64::new(0),
        rpt_seq: wire::U32::new(0),
    };
    const FIELDS: &'static [Extent] = &[
        Extent { offset: 0, end: 8 },
        Extent { offset: 8, end: 9 },
        Extent { offset: 12, end: 20 },
        Extent { offset: 20, end: 28 },
        Extent { offset: 28, end: 32 },
        Extent { offset: 36, end: 44 },
        Extent { offset: 44, end: 48 },
    ];

    fn fields(&self, visitor: &mut dyn Visitor) {
        visitor.field("securityId", Value::Uint(self.security_id.get()));
        visitor.field("eventEnd", Value::Uint(self.event_end.into()));
        visitor.field("price", Value::Int(self.price.get()));
        visitor.field("price.exponent", Value::Int(-4));
        visitor.field("size", Value::Int(self.size.get()));
        visitor.field("tradeId", Value::Uint(self.trade_id.get().into()));
        visitor.field("transactTime", self.transact_time().map_or(Value::Null, Value::Uint));
        visitor.field("rptSeq", self.rpt_seq().map_or(Value::Null, |value| Value::Uint(value.into())));
    }
}

/// The message `TradeBust`.
#[derive(Clone, Debug)]
pub struct TradeBust {
    /// Its fields.
    pub root: TradeBustRoot,
}

impl TradeBust {
    /// The template's number.
    pub const ID: u16 = 57;
    /// Its name in the schema.
    pub const NAME: &'static str = "TradeBust";

    /// Checks the message's extent and reads its root. `body` follows the header.
    #[inline]
    pub fn parse(head: MessageHead, body: &[u8]) -> Result<Self, SbeError> {
        let (root, _) = head.split_root(body)?;
        let root = TradeBustRoot::read(root)?;
        Ok(Self { root })
    }
}

/// The root of `SnapshotOrders`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct SnapshotOrdersRoot {
    /// `securityId`.
    pub security_id: wire::U64,
}

const _: () = assert!(size_of::<SnapshotOrdersRoot>() == 8, "a field is out of its place");

impl SnapshotOrdersRoot {
    /// Bytes of the block by the schema.
    pub const BLOCK_LEN: usize = 8;
}

impl Block for SnapshotOrdersRoot {
    const LEN_MIN: usize = 8;
    const NULL: Self = Self {
        security_id: wire::U64::new(u64::MAX),
    };
    const FIELDS: &'static [Extent] = &[
        Extent { offset: 0, end: 8 },
    ];

    fn fields(&self, visitor: &mut dyn Visitor) {
        visitor.field("securityId", Value::Uint(self.security_id.get()));
    }
}

/// An entry of `entries` in `SnapshotOrders`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct SnapshotOrdersEntry {
    /// `price`.
    pub price: wire::I64,
    /// `size`.
    pub size: wire::I64,
    /// Not used.
    pub pad_16: [u8; 16],
    /// `orderId`.
    pub order_id: wire::U64,
    /// `entryType`.
    pub entry_type: u8,
    /// `eventEnd`.
    pub event_end: u8,
}

const _: () = assert!(size_of::<SnapshotOrdersEntry>() == 42, "a field is out of its place");

impl SnapshotOrdersEntry {
    /// Bytes of the block by the schema.
    pub const BLOCK_LEN: usize = 42;
    /// `price.exponent`.
    pub const PRICE_EXPONENT: i8 = -4;

    /// `price`, where it is not null.
    #[inline]
    pub fn price(&self) -> Option<i64> {
        let value = self.price.get();
        (value != i64::MIN).then_some(value)
    }

    /// `eventEnd`, where it is not null.
    #[inline]
    pub fn event_end(&self) -> Option<u8> {
        let value = self.event_end;
        (value != u8::MAX).then_some(value)
    }
}

impl Block for SnapshotOrdersEntry {
    const LEN_MIN: usize = 41;
    const NULL: Self = Self {
        price: wire::I64::new(i64::MIN),
        size: wire::I64::new(i64::MIN),
        pad_16: [0; 16],
        order_id: wire::U64::new(u64::MAX),
        entry_type: 0,
        event_end: u8::MAX,
    };
    const FIELDS: &'static [Extent] = &[
        Extent { offset: 0, end: 8 },
        Extent { offset: 8, end: 16 },
        Extent { offset: 32, end: 40 },
        Extent { offset: 40, end: 41 },
        Extent { offset: 41, end: 42 },
    ];

    fn fields(&self, visitor: &mut dyn Visitor) {
        visitor.field("price", self.price().map_or(Value::Null, Value::Int));
        visitor.field("price.exponent", Value::Int(-4));
        visitor.field("size", Value::Int(self.size.get()));
        visitor.field("orderId", Value::Uint(self.order_id.get()));
        visitor.field("entryType", Value::Bytes(core::slice::from_ref(&self.entry_type)));
        visitor.field("eventEnd", self.event_end().map_or(Value::Null, |value| Value::Uint(value.into())));
    }
}

/// The message `SnapshotOrders`.
#[derive(Clone, Debug)]
pub struct SnapshotOrders<'a> {
    /// Its fields.
    pub root: SnapshotOrdersRoot,
    /// Its group `entries`.
    pub entries: Group<'a, SnapshotOrdersEntry>,
}

impl<'a> SnapshotOrders<'a> {
    /// The template's number.
    pub const ID: u16 = 71;
    /// Its name in the schema.
    pub const NAME: &'static str = "SnapshotOrders";

    /// Checks the message's extent and reads its root. `body` follows the header.
    #[inline]
    pub fn parse(head: MessageHead, body: &'a [u8]) -> Result<Self, SbeError> {
        let (root, rest) = head.split_root(body)?;
        let root = SnapshotOrdersRoot::read(root)?;
        let (entries, _) = Group::split::<GroupSize>(rest)?;
        Ok(Self { root, entries })
    }
}

/// Shows a message to `visitor`, as the runtime reader of the schema does.
pub fn walk(message: &[u8], visitor: &mut dyn Visitor) -> Result<(), SbeError> {
    let (head, body) = split_head(message)?;
    if head.schema != SCHEMA_ID {
        return Err(SbeError::OtherSchema(head.schema));
    }
    match head.template {
        1 => {
            let message = SequenceReset::parse(head, body)?;
            visitor.message("SequenceReset", head.template, head.version);
            message.root.fields(visitor);
        }
        2 => {
            let message = Sequence::parse(head, body)?;
            visitor.message("Sequence", head.template, head.version);
            message.root.fields(visitor);
        }
        3 => {
            let message = SecurityStatus::parse(head, body)?;
            visitor.message("SecurityStatus", head.template, head.version);
            message.root.fields(visitor);
        }
        5 => {
            let message = News::parse(head, body)?;
            visitor.message("News", head.template, head.version);
            message.root.fields(visitor);
        }
        9 => {
            let message = EmptyBook::parse(head, body)?;
            visitor.message("EmptyBook", head.template, head.version);
            message.root.fields(visitor);
        }
        10 => {
            let message = SecurityGroupPhase::parse(head, body)?;
            visitor.message("SecurityGroupPhase", head.template, head.version);
            message.root.fields(visitor);
        }
        11 => {
            let message = ChannelReset::parse(head, body)?;
            visitor.message("ChannelReset", head.template, head.version);
            message.root.fields(visitor);
        }
        12 => {
            let message = SecurityDefinition::parse(head, body)?;
            visitor.message("SecurityDefinition", head.template, head.version);
            message.root.fields(visitor);
        }
        15 => {
            let message = OpeningPrice::parse(head, body)?;
            visitor.message("OpeningPrice", head.template, head.version);
            message.root.fields(visitor);
        }
        16 => {
            let message = TheoreticalOpeningPrice::parse(head, body)?;
            visitor.message("TheoreticalOpeningPrice", head.template, head.version);
            message.root.fields(visitor);
        }
        17 => {
            let message = ClosingPrice::parse(head, body)?;
            visitor.message("ClosingPrice", head.template, head.version);
            message.root.fields(visitor);
        }
        19 => {
            let message = AuctionImbalance::parse(head, body)?;
            visitor.message("AuctionImbalance", head.template, head.version);
            message.root.fields(visitor);
        }
        21 => {
            let message = QuantityBand::parse(head, body)?;
            visitor.message("QuantityBand", head.template, head.version);
            message.root.fields(visitor);
        }
        22 => {
            let message = PriceBand::parse(head, body)?;
            visitor.message("PriceBand", head.template, head.version);
            message.root.fields(visitor);
        }
        24 => {
            let message = HighPrice::parse(head, body)?;
            visitor.message("HighPrice", head.template, head.version);
            message.root.fields(visitor);
        }
        25 => {
            let message = LowPrice::parse(head, body)?;
            visitor.message("LowPrice", head.template, head.version);
            message.root.fields(visitor);
        }
        27 => {
            let message = LastTradePrice::parse(head, body)?;
            visitor.message("LastTradePrice", head.template, head.version);
            message.root.fields(visitor);
        }
        28 => {
            let message = SettlementPrice::parse(head, body)?;
            visitor.message("SettlementPrice", head.template, head.version);
            message.root.fields(visitor);
        }
        29 => {
            let message = OpenInterest::parse(head, body)?;
            visitor.message("OpenInterest", head.template, head.version);
            message.root.fields(visitor);
        }
        30 => {
            let message = SnapshotHeader::parse(head, body)?;
            visitor.message("SnapshotHeader", head.template, head.version);
            message.root.fields(visitor);
        }
        50 => {
            let message = Order::parse(head, body)?;
            visitor.message("Order", head.template, head.version);
            message.root.fields(visitor);
        }
        51 => {
            let message = DeleteOrder::parse(head, body)?;
            visitor.message("DeleteOrder", head.template, head.version);
            message.root.fields(visitor);
        }
        52 => {
            let message = MassDeleteOrders::parse(head, body)?;
            visitor.message("MassDeleteOrders", head.template, head.version);
            message.root.fields(visitor);
        }
        53 => {
            let message = Trade::parse(head, body)?;
            visitor.message("Trade", head.template, head.version);
            message.root.fields(visitor);
        }
        54 => {
            let message = ForwardTrade::parse(head, body)?;
            visitor.message("ForwardTrade", head.template, head.version);
            message.root.fields(visitor);
        }
        55 => {
            let message = ExecutionSummary::parse(head, body)?;
            visitor.message("ExecutionSummary", head.template, head.version);
            message.root.fields(visitor);
        }
        56 => {
            let message = ExecutionStatistics::parse(head, body)?;
            visitor.message("ExecutionStatistics", head.template, head.version);
            message.root.fields(visitor);
        }
        57 => {
            let message = TradeBust::parse(head, body)?;
            visitor.message("TradeBust", head.template, head.version);
            message.root.fields(visitor);
        }
        71 => {
            let message = SnapshotOrders::parse(head, body)?;
            visitor.message("SnapshotOrders", head.template, head.version);
            message.root.fields(visitor);
            crate::sbe::show_group("entries", message.entries, visitor);
        }
        other => return Err(SbeError::UnknownTemplate(other)),
    }
    Ok(())
}
