//! The messages of CME MDP 3.0 that are decoded here.
//!
//! Written by `market::sbe::schema`; change the schema and run its test with UPDATE=1.

use crate::sbe::{Block, Dimension, Extent, Group, MessageHead, SbeError, Value, Visitor};
use zerocopy::{little_endian as wire, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The schema's number in message headers.
pub const SCHEMA_ID: u16 = 1;
/// The version of the schema.
pub const SCHEMA_VERSION: u16 = 12;
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

/// The dimension `groupSize8Byte` of groups.
#[derive(Clone, Copy, Debug)]
pub enum GroupSize8Byte {}

impl Dimension for GroupSize8Byte {
    const LEN: usize = 8;

    #[inline]
    fn read(bytes: &[u8]) -> Option<(usize, usize)> {
        let head = bytes.first_chunk::<8>()?;
        Some((u16::from_le_bytes([head[0], head[1]]).into(), head[7].into()))
    }

    fn emit(block_len: u16, count: u16, out: &mut Vec<u8>) {
    let mut head = [0; 8];
    head[0..2].copy_from_slice(&block_len.to_le_bytes());
    head[7] = count as u8;
    out.extend(head);
    }
}

/// The root of `ChannelReset`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ChannelResetRoot {
    /// `transactTime`.
    pub transact_time: wire::U64,
    /// `eventEnd`.
    pub event_end: u8,
}

const _: () = assert!(size_of::<ChannelResetRoot>() == 9, "a field is out of its place");

impl ChannelResetRoot {
    /// Bytes of the block by the schema.
    pub const BLOCK_LEN: usize = 9;
}

impl Block for ChannelResetRoot {
    const LEN_MIN: usize = 9;
    const NULL: Self = Self {
        transact_time: wire::U64::new(u64::MAX),
        event_end: u8::MAX,
    };
    const FIELDS: &'static [Extent] = &[
        Extent { offset: 0, end: 8 },
        Extent { offset: 8, end: 9 },
    ];

    fn fields(&self, visitor: &mut dyn Visitor) {
        visitor.field("transactTime", Value::Uint(self.transact_time.get()));
        visitor.field("eventEnd", Value::Uint(self.event_end.into()));
    }
}

/// An entry of `channels` in `ChannelReset`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ChannelResetChannel {
    /// `channelId`.
    pub channel_id: wire::I16,
}

const _: () = assert!(size_of::<ChannelResetChannel>() == 2, "a field is out of its place");

impl ChannelResetChannel {
    /// Bytes of the block by the schema.
    pub const BLOCK_LEN: usize = 2;
    /// `entryType`.
    pub const ENTRY_TYPE: &'static [u8] = b"J";
}

impl Block for ChannelResetChannel {
    const LEN_MIN: usize = 2;
    const NULL: Self = Self {
        channel_id: wire::I16::new(i16::MIN),
    };
    const FIELDS: &'static [Extent] = &[
        Extent { offset: 0, end: 2 },
    ];

    fn fields(&self, visitor: &mut dyn Visitor) {
        visitor.field("entryType", Value::Bytes(b"J"));
        visitor.field("channelId", Value::Int(self.channel_id.get().into()));
    }
}

/// The message `ChannelReset`.
#[derive(Clone, Debug)]
pub struct ChannelReset<'a> {
    /// Its fields.
    pub root: ChannelResetRoot,
    /// Its group `channels`.
    pub channels: Group<'a, ChannelResetChannel>,
}

impl<'a> ChannelReset<'a> {
    /// The template's number.
    pub const ID: u16 = 4;
    /// Its name in the schema.
    pub const NAME: &'static str = "ChannelReset";

    /// Checks the message's extent and reads its root. `body` follows the header.
    #[inline]
    pub fn parse(head: MessageHead, body: &'a [u8]) -> Result<Self, SbeError> {
        let (root, rest) = head.split_root(body)?;
        let root = ChannelResetRoot::read(root)?;
        let (channels, _) = Group::split::<GroupSize>(rest)?;
        Ok(Self { root, channels })
    }
}

/// The root of `AdminHeartbeat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct AdminHeartbeatRoot {
}

const _: () = assert!(size_of::<AdminHeartbeatRoot>() == 0, "a field is out of its place");

impl AdminHeartbeatRoot {
    /// Bytes of the block by the schema.
    pub const BLOCK_LEN: usize = 0;
}

impl Block for AdminHeartbeatRoot {
    const LEN_MIN: usize = 0;
    const NULL: Self = Self {
    };
    const FIELDS: &'static [Extent] = &[
    ];

    fn fields(&self, _visitor: &mut dyn Visitor) {
    }
}

/// The message `AdminHeartbeat`.
#[derive(Clone, Debug)]
pub struct AdminHeartbeat {
    /// Its fields.
    pub root: AdminHeartbeatRoot,
}

impl AdminHeartbeat {
    /// The template's number.
    pub const ID: u16 = 12;
    /// Its name in the schema.
    pub const NAME: &'static str = "AdminHeartbeat";

    /// Checks the message's extent and reads its root. `body` follows the header.
    #[inline]
    pub fn parse(head: MessageHead, body: &[u8]) -> Result<Self, SbeError> {
        let (root, _) = head.split_root(body)?;
        let root = AdminHeartbeatRoot::read(root)?;
        Ok(Self { root })
    }
}

/// The root of `AdminLogin`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct AdminLoginRoot {
    /// `heartbeatSeconds`.
    pub heartbeat_seconds: i8,
}

const _: () = assert!(size_of::<AdminLoginRoot>() == 1, "a field is out of its place");

impl AdminLoginRoot {
    /// Bytes of the block by the schema.
    pub const BLOCK_LEN: usize = 1;
}

impl Block for AdminLoginRoot {
    const LEN_MIN: usize = 1;
    const NULL: Self = Self {
        heartbeat_seconds: i8::MIN,
    };
    const FIELDS: &'static [Extent] = &[
        Extent { offset: 0, end: 1 },
    ];

    fn fields(&self, visitor: &mut dyn Visitor) {
        visitor.field("heartbeatSeconds", Value::Int(self.heartbeat_seconds.into()));
    }
}

/// The message `AdminLogin`.
#[derive(Clone, Debug)]
pub struct AdminLogin {
    /// Its fields.
    pub root: AdminLoginRoot,
}

impl AdminLogin {
    /// The template's number.
    pub const ID: u16 = 15;
    /// Its name in the schema.
    pub const NAME: &'static str = "AdminLogin";

    /// Checks the message's extent and reads its root. `body` follows the header.
    #[inline]
    pub fn parse(head: MessageHead, body: &[u8]) -> Result<Self, SbeError> {
        let (root, _) = head.split_root(body)?;
        let root = AdminLoginRoot::read(root)?;
        Ok(Self { root })
    }
}

/// The root of `AdminLogout`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct AdminLogoutRoot {
    /// `text`.
    pub text: [u8; 180],
}

const _: () = assert!(size_of::<AdminLogoutRoot>() == 180, "a field is out of its place");

impl AdminLogoutRoot {
    /// Bytes of the block by the schema.
    pub const BLOCK_LEN: usize = 180;
}

impl Block for AdminLogoutRoot {
    const LEN_MIN: usize = 180;
    const NULL: Self = Self {
        text: [0; 180],
    };
    const FIELDS: &'static [Extent] = &[
        Extent { offset: 0, end: 180 },
    ];

    fn fields(&self, visitor: &mut dyn Visitor) {
        visitor.field("text", Value::Bytes(&self.text));
    }
}

/// The message `AdminLogout`.
#[derive(Clone, Debug)]
pub struct AdminLogout {
    /// Its fields.
    pub root: AdminLogoutRoot,
}

impl AdminLogout {
    /// The template's number.
    pub const ID: u16 = 16;
    /// Its name in the schema.
    pub const NAME: &'static str = "AdminLogout";

    /// Checks the message's extent and reads its root. `body` follows the header.
    #[inline]
    pub fn parse(head: MessageHead, body: &[u8]) -> Result<Self, SbeError> {
        let (root, _) = head.split_root(body)?;
        let root = AdminLogoutRoot::read(root)?;
        Ok(Self { root })
    }
}

/// The root of `SecurityStatus`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct SecurityStatusRoot {
    /// `transactTime`.
    pub transact_time: wire::U64,
    /// `securityGroup`.
    pub security_group: [u8; 6],
    /// `asset`.
    pub asset: [u8; 6],
    /// `securityId`.
    pub security_id: wire::I32,
    /// `tradeDate`.
    pub trade_date: wire::U16,
    /// `eventEnd`.
    pub event_end: u8,
    /// `tradingStatus`.
    pub trading_status: u8,
    /// `haltReason`.
    pub halt_reason: u8,
    /// `tradingEvent`.
    pub trading_event: u8,
}

const _: () = assert!(size_of::<SecurityStatusRoot>() == 30, "a field is out of its place");

impl SecurityStatusRoot {
    /// Bytes of the block by the schema.
    pub const BLOCK_LEN: usize = 30;

    /// `securityId`, where it is not null.
    #[inline]
    pub fn security_id(&self) -> Option<i32> {
        let value = self.security_id.get();
        (value != i32::MAX).then_some(value)
    }

    /// `tradeDate`, where it is not null.
    #[inline]
    pub fn trade_date(&self) -> Option<u16> {
        let value = self.trade_date.get();
        (value != u16::MAX).then_some(value)
    }

    /// `tradingStatus`, where it is not null.
    #[inline]
    pub fn trading_status(&self) -> Option<u8> {
        let value = self.trading_status;
        (value != u8::MAX).then_some(value)
    }
}

impl Block for SecurityStatusRoot {
    const LEN_MIN: usize = 30;
    const NULL: Self = Self {
        transact_time: wire::U64::new(u64::MAX),
        security_group: [0; 6],
        asset: [0; 6],
        security_id: wire::I32::new(i32::MAX),
        trade_date: wire::U16::new(u16::MAX),
        event_end: u8::MAX,
        trading_status: u8::MAX,
        halt_reason: u8::MAX,
        trading_event: u8::MAX,
    };
    const FIELDS: &'static [Extent] = &[
        Extent { offset: 0, end: 8 },
        Extent { offset: 8, end: 14 },
        Extent { offset: 14, end: 20 },
        Extent { offset: 20, end: 24 },
        Extent { offset: 24, end: 26 },
        Extent { offset: 26, end: 27 },
        Extent { offset: 27, end: 28 },
        Extent { offset: 28, end: 29 },
        Extent { offset: 29, end: 30 },
    ];

    fn fields(&self, visitor: &mut dyn Visitor) {
        visitor.field("transactTime", Value::Uint(self.transact_time.get()));
        visitor.field("securityGroup", Value::Bytes(&self.security_group));
        visitor.field("asset", Value::Bytes(&self.asset));
        visitor.field("securityId", self.security_id().map_or(Value::Null, |value| Value::Int(value.into())));
        visitor.field("tradeDate", self.trade_date().map_or(Value::Null, |value| Value::Uint(value.into())));
        visitor.field("eventEnd", Value::Uint(self.event_end.into()));
        visitor.field("tradingStatus", self.trading_status().map_or(Value::Null, |value| Value::Uint(value.into())));
        visitor.field("haltReason", Value::Uint(self.halt_reason.into()));
        visitor.field("tradingEvent", Value::Uint(self.trading_event.into()));
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
    pub const ID: u16 = 30;
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

/// The root of `Volume`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct VolumeRoot {
    /// `transactTime`.
    pub transact_time: wire::U64,
    /// `eventEnd`.
    pub event_end: u8,
}

const _: () = assert!(size_of::<VolumeRoot>() == 9, "a field is out of its place");

impl VolumeRoot {
    /// Bytes of the block by the schema.
    pub const BLOCK_LEN: usize = 11;
}

impl Block for VolumeRoot {
    const LEN_MIN: usize = 9;
    const NULL: Self = Self {
        transact_time: wire::U64::new(u64::MAX),
        event_end: u8::MAX,
    };
    const FIELDS: &'static [Extent] = &[
        Extent { offset: 0, end: 8 },
        Extent { offset: 8, end: 9 },
    ];

    fn fields(&self, visitor: &mut dyn Visitor) {
        visitor.field("transactTime", Value::Uint(self.transact_time.get()));
        visitor.field("eventEnd", Value::Uint(self.event_end.into()));
    }
}

/// An entry of `entries` in `Volume`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct VolumeEntry {
    /// `size`.
    pub size: wire::I32,
    /// `securityId`.
    pub security_id: wire::I32,
    /// `rptSeq`.
    pub rpt_seq: wire::U32,
    /// `action`.
    pub action: u8,
}

const _: () = assert!(size_of::<VolumeEntry>() == 13, "a field is out of its place");

impl VolumeEntry {
    /// Bytes of the block by the schema.
    pub const BLOCK_LEN: usize = 16;
}

impl Block for VolumeEntry {
    const LEN_MIN: usize = 13;
    const NULL: Self = Self {
        size: wire::I32::new(i32::MIN),
        security_id: wire::I32::new(i32::MIN),
        rpt_seq: wire::U32::new(u32::MAX),
        action: u8::MAX,
    };
    const FIELDS: &'static [Extent] = &[
        Extent { offset: 0, end: 4 },
        Extent { offset: 4, end: 8 },
        Extent { offset: 8, end: 12 },
        Extent { offset: 12, end: 13 },
    ];

    fn fields(&self, visitor: &mut dyn Visitor) {
        visitor.field("size", Value::Int(self.size.get().into()));
        visitor.field("securityId", Value::Int(self.security_id.get().into()));
        visitor.field("rptSeq", Value::Uint(self.rpt_seq.get().into()));
        visitor.field("action", Value::Uint(self.action.into()));
    }
}

/// The message `Volume`.
#[derive(Clone, Debug)]
pub struct Volume<'a> {
    /// Its fields.
    pub root: VolumeRoot,
    /// Its group `entries`.
    pub entries: Group<'a, VolumeEntry>,
}

impl<'a> Volume<'a> {
    /// The template's number.
    pub const ID: u16 = 37;
    /// Its name in the schema.
    pub const NAME: &'static str = "Volume";

    /// Checks the message's extent and reads its root. `body` follows the header.
    #[inline]
    pub fn parse(head: MessageHead, body: &'a [u8]) -> Result<Self, SbeError> {
        let (root, rest) = head.split_root(body)?;
        let root = VolumeRoot::read(root)?;
        let (entries, _) = Group::split::<GroupSize>(rest)?;
        Ok(Self { root, entries })
    }
}

/// The root of `QuoteRequest`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct QuoteRequestRoot {
    /// `transactTime`.
    pub transact_time: wire::U64,
    /// Not used.
    pub pad_8: [u8; 23],
    /// `eventEnd`.
    pub event_end: u8,
}

const _: () = assert!(size_of::<QuoteRequestRoot>() == 32, "a field is out of its place");

impl QuoteRequestRoot {
    /// Bytes of the block by the schema.
    pub const BLOCK_LEN: usize = 35;
}

impl Block for QuoteRequestRoot {
    const LEN_MIN: usize = 32;
    const NULL: Self = Self {
        transact_time: wire::U64::new(u64::MAX),
        pad_8: [0; 23],
        event_end: u8::MAX,
    };
    const FIELDS: &'static [Extent] = &[
        Extent { offset: 0, end: 8 },
        Extent { offset: 31, end: 32 },
    ];

    fn fields(&self, visitor: &mut dyn Visitor) {
        visitor.field("transactTime", Value::Uint(self.transact_time.get()));
        visitor.field("eventEnd", Value::Uint(self.event_end.into()));
    }
}

/// An entry of `entries` in `QuoteRequest`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct QuoteRequestEntry {
    /// `symbol`.
    pub symbol: [u8; 20],
    /// `securityId`.
    pub security_id: wire::I32,
    /// `quantity`.
    pub quantity: wire::I32,
}

const _: () = assert!(size_of::<QuoteRequestEntry>() == 28, "a field is out of its place");

impl QuoteRequestEntry {
    /// Bytes of the block by the schema.
    pub const BLOCK_LEN: usize = 32;

    /// `quantity`, where it is not null.
    #[inline]
    pub fn quantity(&self) -> Option<i32> {
        let value = self.quantity.get();
        (value != i32::MAX).then_some(value)
    }
}

impl Block for QuoteRequestEntry {
    const LEN_MIN: usize = 28;
    const NULL: Self = Self {
        symbol: [0; 20],
        security_id: wire::I32::new(i32::MIN),
        quantity: wire::I32::new(i32::MAX),
    };
    const FIELDS: &'static [Extent] = &[
        Extent { offset: 0, end: 20 },
        Extent { offset: 20, end: 24 },
        Extent { offset: 24, end: 28 },
    ];

    fn fields(&self, visitor: &mut dyn Visitor) {
        visitor.field("symbol", Value::Bytes(&self.symbol));
        visitor.field("securityId", Value::Int(self.security_id.get().into()));
        visitor.field("quantity", self.quantity().map_or(Value::Null, |value| Value::Int(value.into())));
    }
}

/// The message `QuoteRequest`.
#[derive(Clone, Debug)]
pub struct QuoteRequest<'a> {
    /// Its fields.
    pub root: QuoteRequestRoot,
    /// Its group `entries`.
    pub entries: Group<'a, QuoteRequestEntry>,
}

impl<'a> QuoteRequest<'a> {
    /// The template's number.
    pub const ID: u16 = 39;
    /// Its name in the schema.
    pub const NAME: &'static str = "QuoteRequest";

    /// Checks the message's extent and reads its root. `body` follows the header.
    #[inline]
    pub fn parse(head: MessageHead, body: &'a [u8]) -> Result<Self, SbeError> {
        let (root, rest) = head.split_root(body)?;
        let root = QuoteRequestRoot::read(root)?;
        let (entries, _) = Group::split::<GroupSize>(rest)?;
        Ok(Self { root, entries })
    }
}

/// The root of `Book`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct BookRoot {
    /// `transactTime`.
    pub transact_time: wire::U64,
    /// `eventEnd`.
    pub event_end: u8,
}

const _: () = assert!(size_of::<BookRoot>() == 9, "a field is out of its place");

impl BookRoot {
    /// Bytes of the block by the schema.
    pub const BLOCK_LEN: usize = 11;
}

impl Block for BookRoot {
    const LEN_MIN: usize = 9;
    const NULL: Self = Self {
        transact_time: wire::U64::new(u64::MAX),
        event_end: u8::MAX,
    };
    const FIELDS: &'static [Extent] = &[
        Extent { offset: 0, end: 8 },
        Extent { offset: 8, end: 9 },
    ];

    fn fields(&self, visitor: &mut dyn Visitor) {
        visitor.field("transactTime", Value::Uint(self.transact_time.get()));
        visitor.field("eventEnd", Value::Uint(self.event_end.into()));
    }
}

/// An entry of `entries` in `Book`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct BookEntry {
    /// `price`.
    pub price: wire::I64,
    /// `size`.
    pub size: wire::I32,
    /// `securityId`.
    pub security_id: wire::I32,
    /// `rptSeq`.
    pub rpt_seq: wire::U32,
    /// `orderCount`.
    pub order_count: wire::I32,
    /// `level`.
    pub level: u8,
    /// `action`.
    pub action: u8,
    /// `entryType`.
    pub entry_type: u8,
    /// `tradeableSize`.
    pub tradeable_size: wire::I32,
}

const _: () = assert!(size_of::<BookEntry>() == 31, "a field is out of its place");

impl BookEntry {
    /// Bytes of the block by the schema.
    pub const BLOCK_LEN: usize = 32;
    /// `price.exponent`.
    pub const PRICE_EXPONENT: i8 = -9;

    /// `price`, where it is not null.
    #[inline]
    pub fn price(&self) -> Option<i64> {
        let value = self.price.get();
        (value != i64::MAX).then_some(value)
    }

    /// `size`, where it is not null.
    #[inline]
    pub fn size(&self) -> Option<i32> {
        let value = self.size.get();
        (value != i32::MAX).then_some(value)
    }

    /// `orderCount`, where it is not null.
    #[inline]
    pub fn order_count(&self) -> Option<i32> {
        let value = self.order_count.get();
        (value != i32::MAX).then_some(value)
    }

    /// `tradeableSize`, where it is not null.
    #[inline]
    pub fn tradeable_size(&self) -> Option<i32> {
        let value = self.tradeable_size.get();
        (value != i32::MAX).then_some(value)
    }
}

impl Block for BookEntry {
    const LEN_MIN: usize = 27;
    const NULL: Self = Self {
        price: wire::I64::new(i64::MAX),
        size: wire::I32::new(i32::MAX),
        security_id: wire::I32::new(i32::MIN),
        rpt_seq: wire::U32::new(u32::MAX),
        order_count: wire::I32::new(i32::MAX),
        level: u8::MAX,
        action: u8::MAX,
        entry_type: 0,
        tradeable_size: wire::I32::new(i32::MAX),
    };
    const FIELDS: &'static [Extent] = &[
        Extent { offset: 0, end: 8 },
        Extent { offset: 8, end: 12 },
        Extent { offset: 12, end: 16 },
        Extent { offset: 16, end: 20 },
        Extent { offset: 20, end: 24 },
        Extent { offset: 24, end: 25 },
        Extent { offset: 25, end: 26 },
        Extent { offset: 26, end: 27 },
        Extent { offset: 27, end: 31 },
    ];

    fn fields(&self, visitor: &mut dyn Visitor) {
        visitor.field("price", self.price().map_or(Value::Null, Value::Int));
        visitor.field("price.exponent", Value::Int(-9));
        visitor.field("size", self.size().map_or(Value::Null, |value| Value::Int(value.into())));
        visitor.field("securityId", Value::Int(self.security_id.get().into()));
        visitor.field("rptSeq", Value::Uint(self.rpt_seq.get().into()));
        visitor.field("orderCount", self.order_count().map_or(Value::Null, |value| Value::Int(value.into())));
        visitor.field("level", Value::Uint(self.level.into()));
        visitor.field("action", Value::Uint(self.action.into()));
        visitor.field("entryType", Value::Bytes(core::slice::from_ref(&self.entry_type)));
        visitor.field("tradeableSize", self.tradeable_size().map_or(Value::Null, |value| Value::Int(value.into())));
    }
}

/// An entry of `orders` in `Book`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct BookOrder {
    /// `orderId`.
    pub order_id: wire::U64,
    /// `priority`.
    pub priority: wire::U64,
    /// `displayQty`.
    pub display_qty: wire::I32,
    /// `referenceId`.
    pub reference_id: u8,
    /// `orderAction`.
    pub order_action: u8,
}

const _: () = assert!(size_of::<BookOrder>() == 22, "a field is out of its place");

impl BookOrder {
    /// Bytes of the block by the schema.
    pub const BLOCK_LEN: usize = 24;

    /// `priority`, where it is not null.
    #[inline]
    pub fn priority(&self) -> Option<u64> {
        let value = self.priority.get();
        (value != u64::MAX).then_some(value)
    }

    /// `displayQty`, where it is not null.
    #[inline]
    pub fn display_qty(&self) -> Option<i32> {
        let value = self.display_qty.get();
        (value != i32::MAX).then_some(value)
    }

    /// `referenceId`, where it is not null.
    #[inline]
    pub fn reference_id(&self) -> Option<u8> {
        let value = self.reference_id;
        (value != u8::MAX).then_some(value)
    }
}

impl Block for BookOrder {
    const LEN_MIN: usize = 22;
    const NULL: Self = Self {
        order_id: wire::U64::new(u64::MAX),
        priority: wire::U64::new(u64::MAX),
        display_qty: wire::I32::new(i32::MAX),
        reference_id: u8::MAX,
        order_action: u8::MAX,
    };
    const FIELDS: &'static [Extent] = &[
        Extent { offset: 0, end: 8 },
        Extent { offset: 8, end: 16 },
        Extent { offset: 16, end: 20 },
        Extent { offset: 20, end: 21 },
        Extent { offset: 21, end: 22 },
    ];

    fn fields(&self, visitor: &mut dyn Visitor) {
        visitor.field("orderId", Value::Uint(self.order_id.get()));
        visitor.field("priority", self.priority().map_or(Value::Null, Value::Uint));
        visitor.field("displayQty", self.display_qty().map_or(Value::Null, |value| Value::Int(value.into())));
        visitor.field("referenceId", self.reference_id().map_or(Value::Null, |value| Value::Uint(value.into())));
        visitor.field("orderAction", Value::Uint(self.order_action.into()));
    }
}

/// The message `Book`.
#[derive(Clone, Debug)]
pub struct Book<'a> {
    /// Its fields.
    pub root: BookRoot,
    /// Its group `entries`.
    pub entries: Group<'a, BookEntry>,
    /// Its group `orders`.
    pub orders: Group<'a, BookOrder>,
}

impl<'a> Book<'a> {
    /// The template's number.
    pub const ID: u16 = 46;
    /// Its name in the schema.
    pub const NAME: &'static str = "Book";

    /// Checks the message's extent and reads its root. `body` follows the header.
    #[inline]
    pub fn parse(head: MessageHead, body: &'a [u8]) -> Result<Self, SbeError> {
        let (root, rest) = head.split_root(body)?;
        let root = BookRoot::read(root)?;
        let (entries, rest) = Group::split::<GroupSize>(rest)?;
        let (orders, _) = Group::split::<GroupSize8Byte>(rest)?;
        Ok(Self { root, entries, orders })
    }
}

/// The root of `OrderBook`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct OrderBookRoot {
    /// `transactTime`.
    pub transact_time: wire::U64,
    /// `eventEnd`.
    pub event_end: u8,
}

const _: () = assert!(size_of::<OrderBookRoot>() == 9, "a field is out of its place");

impl OrderBookRoot {
    /// Bytes of the block by the schema.
    pub const BLOCK_LEN: usize = 11;
}

impl Block for OrderBookRoot {
    const LEN_MIN: usize = 9;
    const NULL: Self = Self {
        transact_time: wire::U64::new(u64::MAX),
        event_end: u8::MAX,
    };
    const FIELDS: &'static [Extent] = &[
        Extent { offset: 0, end: 8 },
        Extent { offset: 8, end: 9 },
    ];

    fn fields(&self, visitor: &mut dyn Visitor) {
        visitor.field("transactTime", Value::Uint(self.transact_time.get()));
        visitor.field("eventEnd", Value::Uint(self.event_end.into()));
    }
}

/// An entry of `entries` in `OrderBook`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct OrderBookEntry {
    /// `orderId`.
    pub order_id: wire::U64,
    /// `priority`.
    pub priority: wire::U64,
    /// `price`.
    pub price: wire::I64,
    /// `displayQty`.
    pub display_qty: wire::I32,
    /// `securityId`.
    pub security_id: wire::I32,
    /// `action`.
    pub action: u8,
    /// `entryType`.
    pub entry_type: u8,
}

const _: () = assert!(size_of::<OrderBookEntry>() == 34, "a field is out of its place");

impl OrderBookEntry {
    /// Bytes of the block by the schema.
    pub const BLOCK_LEN: usize = 40;
    /// `price.exponent`.
    pub const PRICE_EXPONENT: i8 = -9;

    /// `orderId`, where it is not null.
    #[inline]
    pub fn order_id(&self) -> Option<u64> {
        let value = self.order_id.get();
        (value != u64::MAX).then_some(value)
    }

    /// `priority`, where it is not null.
    #[inline]
    pub fn priority(&self) -> Option<u64> {
        let value = self.priority.get();
        (value != u64::MAX).then_some(value)
    }

    /// `price`, where it is not null.
    #[inline]
    pub fn price(&self) -> Option<i64> {
        let value = self.price.get();
        (value != i64::MAX).then_some(value)
    }

    /// `displayQty`, where it is not null.
    #[inline]
    pub fn display_qty(&self) -> Option<i32> {
        let value = self.display_qty.get();
        (value != i32::MAX).then_some(value)
    }
}

impl Block for OrderBookEntry {
    const LEN_MIN: usize = 34;
    const NULL: Self = Self {
        order_id: wire::U64::new(u64::MAX),
        priority: wire::U64::new(u64::MAX),
        price: wire::I64::new(i64::MAX),
        display_qty: wire::I32::new(i32::MAX),
        security_id: wire::I32::new(i32::MIN),
        action: u8::MAX,
        entry_type: 0,
    };
    const FIELDS: &'static [Extent] = &[
        Extent { offset: 0, end: 8 },
        Extent { offset: 8, end: 16 },
        Extent { offset: 16, end: 24 },
        Extent { offset: 24, end: 28 },
        Extent { offset: 28, end: 32 },
        Extent { offset: 32, end: 33 },
        Extent { offset: 33, end: 34 },
    ];

    fn fields(&self, visitor: &mut dyn Visitor) {
        visitor.field("orderId", self.order_id().map_or(Value::Null, Value::Uint));
        visitor.field("priority", self.priority().map_or(Value::Null, Value::Uint));
        visitor.field("price", self.price().map_or(Value::Null, Value::Int));
        visitor.field("price.exponent", Value::Int(-9));
        visitor.field("displayQty", self.display_qty().map_or(Value::Null, |value| Value::Int(value.into())));
        visitor.field("securityId", Value::Int(self.security_id.get().into()));
        visitor.field("action", Value::Uint(self.action.into()));
        visitor.field("entryType", Value::Bytes(core::slice::from_ref(&self.entry_type)));
    }
}

/// The message `OrderBook`.
#[derive(Clone, Debug)]
pub struct OrderBook<'a> {
    /// Its fields.
    pub root: OrderBookRoot,
    /// Its group `entries`.
    pub entries: Group<'a, OrderBookEntry>,
}

impl<'a> OrderBook<'a> {
    /// The template's number.
    pub const ID: u16 = 47;
    /// Its name in the schema.
    pub const NAME: &'static str = "OrderBook";

    /// Checks the message's extent and reads its root. `body` follows the header.
    #[inline]
    pub fn parse(head: MessageHead, body: &'a [u8]) -> Result<Self, SbeError> {
        let (root, rest) = head.split_root(body)?;
        let root = OrderBookRoot::read(root)?;
        let (entries, _) = Group::split::<GroupSize>(rest)?;
        Ok(Self { root, entries })
    }
}

/// The root of `TradeSummary`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct TradeSummaryRoot {
    /// `transactTime`.
    pub transact_time: wire::U64,
    /// `eventEnd`.
    pub event_end: u8,
}

const _: () = assert!(size_of::<TradeSummaryRoot>() == 9, "a field is out of its place");

impl TradeSummaryRoot {
    /// Bytes of the block by the schema.
    pub const BLOCK_LEN: usize = 11;
}

impl Block for TradeSummaryRoot {
    const LEN_MIN: usize = 9;
    const NULL: Self = Self {
        transact_time: wire::U64::new(u64::MAX),
        event_end: u8::MAX,
    };
    const FIELDS: &'static [Extent] = &[
        Extent { offset: 0, end: 8 },
        Extent { offset: 8, end: 9 },
    ];

    fn fields(&self, visitor: &mut dyn Visitor) {
        visitor.field("transactTime", Value::Uint(self.transact_time.get()));
        visitor.field("eventEnd", Value::Uint(self.event_end.into()));
    }
}

/// An entry of `entries` in `TradeSummary`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct TradeSummaryEntry {
    /// `price`.
    pub price: wire::I64,
    /// `size`.
    pub size: wire::I32,
    /// `securityId`.
    pub security_id: wire::I32,
    /// `rptSeq`.
    pub rpt_seq: wire::U32,
    /// `orderCount`.
    pub order_count: wire::I32,
    /// `aggressor`.
    pub aggressor: u8,
    /// `action`.
    pub action: u8,
    /// `tradeId`.
    pub trade_id: wire::U32,
}

const _: () = assert!(size_of::<TradeSummaryEntry>() == 30, "a field is out of its place");

impl TradeSummaryEntry {
    /// Bytes of the block by the schema.
    pub const BLOCK_LEN: usize = 32;
    /// `price.exponent`.
    pub const PRICE_EXPONENT: i8 = -9;

    /// `aggressor`, where it is not null.
    #[inline]
    pub fn aggressor(&self) -> Option<u8> {
        let value = self.aggressor;
        (value != u8::MAX).then_some(value)
    }

    /// `tradeId`, where it is not null.
    #[inline]
    pub fn trade_id(&self) -> Option<u32> {
        let value = self.trade_id.get();
        (value != u32::MAX).then_some(value)
    }
}

impl Block for TradeSummaryEntry {
    const LEN_MIN: usize = 30;
    const NULL: Self = Self {
        price: wire::I64::new(i64::MIN),
        size: wire::I32::new(i32::MIN),
        security_id: wire::I32::new(i32::MIN),
        rpt_seq: wire::U32::new(u32::MAX),
        order_count: wire::I32::new(i32::MIN),
        aggressor: u8::MAX,
        action: u8::MAX,
        trade_id: wire::U32::new(u32::MAX),
    };
    const FIELDS: &'static [Extent] = &[
        Extent { offset: 0, end: 8 },
        Extent { offset: 8, end: 12 },
        Extent { offset: 12, end: 16 },
        Extent { offset: 16, end: 20 },
        Extent { offset: 20, end: 24 },
        Extent { offset: 24, end: 25 },
        Extent { offset: 25, end: 26 },
        Extent { offset: 26, end: 30 },
    ];

    fn fields(&self, visitor: &mut dyn Visitor) {
        visitor.field("price", Value::Int(self.price.get()));
        visitor.field("price.exponent", Value::Int(-9));
        visitor.field("size", Value::Int(self.size.get().into()));
        visitor.field("securityId", Value::Int(self.security_id.get().into()));
        visitor.field("rptSeq", Value::Uint(self.rpt_seq.get().into()));
        visitor.field("orderCount", Value::Int(self.order_count.get().into()));
        visitor.field("aggressor", self.aggressor().map_or(Value::Null, |value| Value::Uint(value.into())));
        visitor.field("action", Value::Uint(self.action.into()));
        visitor.field("tradeId", self.trade_id().map_or(Value::Null, |value| Value::Uint(value.into())));
    }
}

/// An entry of `orders` in `TradeSummary`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct TradeSummaryOrder {
    /// `orderId`.
    pub order_id: wire::U64,
    /// `lastQty`.
    pub last_qty: wire::I32,
}

const _: () = assert!(size_of::<TradeSummaryOrder>() == 12, "a field is out of its place");

impl TradeSummaryOrder {
    /// Bytes of the block by the schema.
    pub const BLOCK_LEN: usize = 16;
}

impl Block for TradeSummaryOrder {
    const LEN_MIN: usize = 12;
    const NULL: Self = Self {
        order_id: wire::U64::new(u64::MAX),
        last_qty: wire::I32::new(i32::MIN),
    };
    const FIELDS: &'static [Extent] = &[
        Extent { offset: 0, end: 8 },
        Extent { offset: 8, end: 12 },
    ];

    fn fields(&self, visitor: &mut dyn Visitor) {
        visitor.field("orderId", Value::Uint(self.order_id.get()));
        visitor.field("lastQty", Value::Int(self.last_qty.get().into()));
    }
}

/// The message `TradeSummary`.
#[derive(Clone, Debug)]
pub struct TradeSummary<'a> {
    /// Its fields.
    pub root: TradeSummaryRoot,
    /// Its group `entries`.
    pub entries: Group<'a, TradeSummaryEntry>,
    /// Its group `orders`.
    pub orders: Group<'a, TradeSummaryOrder>,
}

impl<'a> TradeSummary<'a> {
    /// The template's number.
    pub const ID: u16 = 48;
    /// Its name in the schema.
    pub const NAME: &'static str = "TradeSummary";

    /// Checks the message's extent and reads its root. `body` follows the header.
    #[inline]
    pub fn parse(head: MessageHead, body: &'a [u8]) -> Result<Self, SbeError> {
        let (root, rest) = head.split_root(body)?;
        let root = TradeSummaryRoot::read(root)?;
        let (entries, rest) = Group::split::<GroupSize>(rest)?;
        let (orders, _) = Group::split::<GroupSize8Byte>(rest)?;
        Ok(Self { root, entries, orders })
    }
}

/// The root of `DailyStatistics`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct DailyStatisticsRoot {
    /// `transactTime`.
    pub transact_time: wire::U64,
    /// `eventEnd`.
    pub event_end: u8,
}

const _: () = assert!(size_of::<DailyStatisticsRoot>() == 9, "a field is out of its place");

impl DailyStatisticsRoot {
    /// Bytes of the block by the schema.
    pub const BLOCK_LEN: usize = 11;
}

impl Block for DailyStatisticsRoot {
    const LEN_MIN: usize = 9;
    const NULL: Self = Self {
        transact_time: wire::U64::new(u64::MAX),
        event_end: u8::MAX,
    };
    const FIELDS: &'static [Extent] = &[
        Extent { offset: 0, end: 8 },
        Extent { offset: 8, end: 9 },
    ];

    fn fields(&self, visitor: &mut dyn Visitor) {
        visitor.field("transactTime", Value::Uint(self.transact_time.get()));
        visitor.field("eventEnd", Value::Uint(self.event_end.into()));
    }
}

/// An entry of `entries` in `DailyStatistics`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct DailyStatisticsEntry {
    /// `price`.
    pub price: wire::I64,
    /// `size`.
    pub size: wire::I32,
    /// `securityId`.
    pub security_id: wire::I32,
    /// `rptSeq`.
    pub rpt_seq: wire::U32,
}

const _: () = assert!(size_of::<DailyStatisticsEntry>() == 20, "a field is out of its place");

impl DailyStatisticsEntry {
    /// Bytes of the block by the schema.
    pub const BLOCK_LEN: usize = 32;
    /// `price.exponent`.
    pub const PRICE_EXPONENT: i8 = -9;

    /// `price`, where it is not null.
    #[inline]
    pub fn price(&self) -> Option<i64> {
        let value = self.price.get();
        (value != i64::MAX).then_some(value)
    }

    /// `size`, where it is not null.
    #[inline]
    pub fn size(&self) -> Option<i32> {
        let value = self.size.get();
        (value != i32::MAX).then_some(value)
    }
}

impl Block for DailyStatisticsEntry {
    const LEN_MIN: usize = 20;
    const NULL: Self = Self {
        price: wire::I64::new(i64::MAX),
        size: wire::I32::new(i32::MAX),
        security_id: wire::I32::new(i32::MIN),
        rpt_seq: wire::U32::new(u32::MAX),
    };
    const FIELDS: &'static [Extent] = &[
        Extent { offset: 0, end: 8 },
        Extent { offset: 8, end: 12 },
        Extent { offset: 12, end: 16 },
        Extent { offset: 16, end: 20 },
    ];

    fn fields(&self, visitor: &mut dyn Visitor) {
        visitor.field("price", self.price().map_or(Value::Null, Value::Int));
        visitor.field("price.exponent", Value::Int(-9));
        visitor.field("size", self.size().map_or(Value::Null, |value| Value::Int(value.into())));
        visitor.field("securityId", Value::Int(self.security_id.get().into()));
        visitor.field("rptSeq", Value::Uint(self.rpt_seq.get().into()));
    }
}

/// The message `DailyStatistics`.
#[derive(Clone, Debug)]
pub struct DailyStatistics<'a> {
    /// Its fields.
    pub root: DailyStatisticsRoot,
    /// Its group `entries`.
    pub entries: Group<'a, DailyStatisticsEntry>,
}

impl<'a> DailyStatistics<'a> {
    /// The template's number.
    pub const ID: u16 = 49;
    /// Its name in the schema.
    pub const NAME: &'static str = "DailyStatistics";

    /// Checks the message's extent and reads its root. `body` follows the header.
    #[inline]
    pub fn parse(head: MessageHead, body: &'a [u8]) -> Result<Self, SbeError> {
        let (root, rest) = head.split_root(body)?;
        let root = DailyStatisticsRoot::read(root)?;
        let (entries, _) = Group::split::<GroupSize>(rest)?;
        Ok(Self { root, entries })
    }
}

/// The root of `LimitsBanding`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct LimitsBandingRoot {
    /// `transactTime`.
    pub transact_time: wire::U64,
    /// `eventEnd`.
    pub event_end: u8,
}

const _: () = assert!(size_of::<LimitsBandingRoot>() == 9, "a field is out of its place");

impl LimitsBandingRoot {
    /// Bytes of the block by the schema.
    pub const BLOCK_LEN: usize = 11;
}

impl Block for LimitsBandingRoot {
    const LEN_MIN: usize = 9;
    const NULL: Self = Self {
        transact_time: wire::U64::new(u64::MAX),
        event_end: u8::MAX,
    };
    const FIELDS: &'static [Extent] = &[
        Extent { offset: 0, end: 8 },
        Extent { offset: 8, end: 9 },
    ];

    fn fields(&self, visitor: &mut dyn Visitor) {
        visitor.field("transactTime", Value::Uint(self.transact_time.get()));
        visitor.field("eventEnd", Value::Uint(self.event_end.into()));
    }
}

/// An entry of `entries` in `LimitsBanding`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct LimitsBandingEntry {
    /// `highLimit`.
    pub high_limit: wire::I64,
    /// `lowLimit`.
    pub low_limit: wire::I64,
    /// `maxVariation`.
    pub max_variation: wire::I64,
    /// `securityId`.
    pub security_id: wire::I32,
    /// `rptSeq`.
    pub rpt_seq: wire::U32,
}

const _: () = assert!(size_of::<LimitsBandingEntry>() == 32, "a field is out of its place");

impl LimitsBandingEntry {
    /// Bytes of the block by the schema.
    pub const BLOCK_LEN: usize = 32;
    /// `highLimit.exponent`.
    pub const HIGH_LIMIT_EXPONENT: i8 = -9;
    /// `lowLimit.exponent`.
    pub const LOW_LIMIT_EXPONENT: i8 = -9;
    /// `maxVariation.exponent`.
    pub const MAX_VARIATION_EXPONENT: i8 = -9;

    /// `highLimit`, where it is not null.
    #[inline]
    pub fn high_limit(&self) -> Option<i64> {
        let value = self.high_limit.get();
        (value != i64::MAX).then_some(value)
    }

    /// `lowLimit`, where it is not null.
    #[inline]
    pub fn low_limit(&self) -> Option<i64> {
        let value = self.low_limit.get();
        (value != i64::MAX).then_some(value)
    }

    /// `maxVariation`, where it is not null.
    #[inline]
    pub fn max_variation(&self) -> Option<i64> {
        let value = self.max_variation.get();
        (value != i64::MAX).then_some(value)
    }
}

impl Block for LimitsBandingEntry {
    const LEN_MIN: usize = 32;
    const NULL: Self = Self {
        high_limit: wire::I64::new(i64::MAX),
        low_limit: wire::I64::new(i64::MAX),
        max_variation: wire::I64::new(i64::MAX),
        security_id: wire::I32::new(i32::MIN),
        rpt_seq: wire::U32::new(u32::MAX),
    };
    const FIELDS: &'static [Extent] = &[
        Extent { offset: 0, end: 8 },
        Extent { offset: 8, end: 16 },
        Extent { offset: 16, end: 24 },
        Extent { offset: 24, end: 28 },
        Extent { offset: 28, end: 32 },
    ];

    fn fields(&self, visitor: &mut dyn Visitor) {
        visitor.field("highLimit", self.high_limit().map_or(Value::Null, Value::Int));
        visitor.field("highLimit.exponent", Value::Int(-9));
        visitor.field("lowLimit", self.low_limit().map_or(Value::Null, Value::Int));
        visitor.field("lowLimit.exponent", Value::Int(-9));
        visitor.field("maxVariation", self.max_variation().map_or(Value::Null, Value::Int));
        visitor.field("maxVariation.exponent", Value::Int(-9));
        visitor.field("securityId", Value::Int(self.security_id.get().into()));
        visitor.field("rptSeq", Value::Uint(self.rpt_seq.get().into()));
    }
}

/// The message `LimitsBanding`.
#[derive(Clone, Debug)]
pub struct LimitsBanding<'a> {
    /// Its fields.
    pub root: LimitsBandingRoot,
    /// Its group `entries`.
    pub entries: Group<'a, LimitsBandingEntry>,
}

impl<'a> LimitsBanding<'a> {
    /// The template's number.
    pub const ID: u16 = 50;
    /// Its name in the schema.
    pub const NAME: &'static str = "LimitsBanding";

    /// Checks the message's extent and reads its root. `body` follows the header.
    #[inline]
    pub fn parse(head: MessageHead, body: &'a [u8]) -> Result<Self, SbeError> {
        let (root, rest) = head.split_root(body)?;
        let root = LimitsBandingRoot::read(root)?;
        let (entries, _) = Group::split::<GroupSize>(rest)?;
        Ok(Self { root, entries })
    }
}

/// The root of `SessionStatistics`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct SessionStatisticsRoot {
    /// `transactTime`.
    pub transact_time: wire::U64,
    /// `eventEnd`.
    pub event_end: u8,
}

const _: () = assert!(size_of::<SessionStatisticsRoot>() == 9, "a field is out of its place");

impl SessionStatisticsRoot {
    /// Bytes of the block by the schema.
    pub const BLOCK_LEN: usize = 11;
}

impl Block for SessionStatisticsRoot {
    const LEN_MIN: usize = 9;
    const NULL: Self = Self {
        transact_time: wire::U64::new(u64::MAX),
        event_end: u8::MAX,
    };
    const FIELDS: &'static [Extent] = &[
        Extent { offset: 0, end: 8 },
        Extent { offset: 8, end: 9 },
    ];

    fn fields(&self, visitor: &mut dyn Visitor) {
        visitor.field("transactTime", Value::Uint(self.transact_time.get()));
        visitor.field("eventEnd", Value::Uint(self.event_end.into()));
    }
}

/// An entry of `entries` in `SessionStatistics`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct SessionStatisticsEntry {
    /// `price`.
    pub price: wire::I64,
    /// `securityId`.
    pub security_id: wire::I32,
    /// `rptSeq`.
    pub rpt_seq: wire::U32,
}

const _: () = assert!(size_of::<SessionStatisticsEntry>() == 16, "a field is out of its place");

impl SessionStatisticsEntry {
    /// Bytes of the block by the schema.
    pub const BLOCK_LEN: usize = 24;
    /// `price.exponent`.
    pub const PRICE_EXPONENT: i8 = -9;
}

impl Block for SessionStatisticsEntry {
    const LEN_MIN: usize = 16;
    const NULL: Self = Self {
        price: wire::I64::new(i64::MIN),
        security_id: wire::I32::new(i32::MIN),
        rpt_seq: wire::U32::new(u32::MAX),
    };
    const FIELDS: &'static [Extent] = &[
        Extent { offset: 0, end: 8 },
        Extent { offset: 8, end: 12 },
        Extent { offset: 12, end: 16 },
    ];

    fn fields(&self, visitor: &mut dyn Visitor) {
        visitor.field("price", Value::Int(self.price.get()));
        visitor.field("price.exponent", Value::Int(-9));
        visitor.field("securityId", Value::Int(self.security_id.get().into()));
        visitor.field("rptSeq", Value::Uint(self.rpt_seq.get().into()));
    }
}

/// The message `SessionStatistics`.
#[derive(Clone, Debug)]
pub struct SessionStatistics<'a> {
    /// Its fields.
    pub root: SessionStatisticsRoot,
    /// Its group `entries`.
    pub entries: Group<'a, SessionStatisticsEntry>,
}

impl<'a> SessionStatistics<'a> {
    /// The template's number.
    pub const ID: u16 = 51;
    /// Its name in the schema.
    pub const NAME: &'static str = "SessionStatistics";

    /// Checks the message's extent and reads its root. `body` follows the header.
    #[inline]
    pub fn parse(head: MessageHead, body: &'a [u8]) -> Result<Self, SbeError> {
        let (root, rest) = head.split_root(body)?;
        let root = SessionStatisticsRoot::read(root)?;
        let (entries, _) = Group::split::<GroupSize>(rest)?;
        Ok(Self { root, entries })
    }
}

/// The root of `Snapshot`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct SnapshotRoot {
    /// `lastSeq`.
    pub last_seq: wire::U32,
    /// `reportsTotal`.
    pub reports_total: wire::U32,
    /// `securityId`.
    pub security_id: wire::I32,
    /// `rptSeq`.
    pub rpt_seq: wire::U32,
    /// `transactTime`.
    pub transact_time: wire::U64,
    /// `lastUpdateTime`.
    pub last_update_time: wire::U64,
    /// `tradeDate`.
    pub trade_date: wire::U16,
    /// `tradingStatus`.
    pub trading_status: u8,
    /// `highLimit`.
    pub high_limit: wire::I64,
    /// `lowLimit`.
    pub low_limit: wire::I64,
    /// `maxVariation`.
    pub max_variation: wire::I64,
}

const _: () = assert!(size_of::<SnapshotRoot>() == 59, "a field is out of its place");

impl SnapshotRoot {
    /// Bytes of the block by the schema.
    pub const BLOCK_LEN: usize = 59;
    /// `highLimit.exponent`.
    pub const HIGH_LIMIT_EXPONENT: i8 = -9;
    /// `lowLimit.exponent`.
    pub const LOW_LIMIT_EXPONENT: i8 = -9;
    /// `maxVariation.exponent`.
    pub const MAX_VARIATION_EXPONENT: i8 = -9;

    /// `tradeDate`, where it is not null.
    #[inline]
    pub fn trade_date(&self) -> Option<u16> {
        let value = self.trade_date.get();
        (value != u16::MAX).then_some(value)
    }

    /// `tradingStatus`, where it is not null.
    #[inline]
    pub fn trading_status(&self) -> Option<u8> {
        let value = self.trading_status;
        (value != u8::MAX).then_some(value)
    }

    /// `highLimit`, where it is not null.
    #[inline]
    pub fn high_limit(&self) -> Option<i64> {
        let value = self.high_limit.get();
        (value != i64::MAX).then_some(value)
    }

    /// `lowLimit`, where it is not null.
    #[inline]
    pub fn low_limit(&self) -> Option<i64> {
        let value = self.low_limit.get();
        (value != i64::MAX).then_some(value)
    }

    /// `maxVariation`, where it is not null.
    #[inline]
    pub fn max_variation(&self) -> Option<i64> {
        let value = self.max_variation.get();
        (value != i64::MAX).then_some(value)
    }
}

impl Block for SnapshotRoot {
    const LEN_MIN: usize = 59;
    const NULL: Self = Self {
        last_seq: wire::U32::new(u32::MAX),
        reports_total: wire::U32::new(u32::MAX),
        security_id: wire::I32::new(i32::MIN),
        rpt_seq: wire::U32::new(u32::MAX),
        transact_time: wire::U64::new(u64::MAX),
        last_update_time: wire::U64::new(u64::MAX),
        trade_date: wire::U16::new(u16::MAX),
        trading_status: u8::MAX,
        high_limit: wire::I64::new(i64::MAX),
        low_limit: wire::I64::new(i64::MAX),
        max_variation: wire::I64::new(i64::MAX),
    };
    const FIELDS: &'static [Extent] = &[
        Extent { offset: 0, end: 4 },
        Extent { offset: 4, end: 8 },
        Extent { offset: 8, end: 12 },
        Extent { offset: 12, end: 16 },
        Extent { offset: 16, end: 24 },
        Extent { offset: 24, end: 32 },
        Extent { offset: 32, end: 34 },
        Extent { offset: 34, end: 35 },
        Extent { offset: 35, end: 43 },
        Extent { offset: 43, end: 51 },
        Extent { offset: 51, end: 59 },
    ];

    fn fields(&self, visitor: &mut dyn Visitor) {
        visitor.field("lastSeq", Value::Uint(self.last_seq.get().into()));
        visitor.field("reportsTotal", Value::Uint(self.reports_total.get().into()));
        visitor.field("securityId", Value::Int(self.security_id.get().into()));
        visitor.field("rptSeq", Value::Uint(self.rpt_seq.get().into()));
        visitor.field("transactTime", Value::Uint(self.transact_time.get()));
        visitor.field("lastUpdateTime", Value::Uint(self.last_update_time.get()));
        visitor.field("tradeDate", self.trade_date().map_or(Value::Null, |value| Value::Uint(value.into())));
        visitor.field("tradingStatus", self.trading_status().map_or(Value::Null, |value| Value::Uint(value.into())));
        visitor.field("highLimit", self.high_limit().map_or(Value::Null, Value::Int));
        visitor.field("highLimit.exponent", Value::Int(-9));
        visitor.field("lowLimit", self.low_limit().map_or(Value::Null, Value::Int));
        visitor.field("lowLimit.exponent", Value::Int(-9));
        visitor.field("maxVariation", self.max_variation().map_or(Value::Null, Value::Int));
        visitor.field("maxVariation.exponent", Value::Int(-9));
    }
}

/// An entry of `entries` in `Snapshot`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct SnapshotEntry {
    /// `price`.
    pub price: wire::I64,
    /// `size`.
    pub size: wire::I32,
    /// `orderCount`.
    pub order_count: wire::I32,
    /// `level`.
    pub level: i8,
    /// `referenceDate`.
    pub reference_date: wire::U16,
    /// Not used.
    pub pad_19: [u8; 2],
    /// `entryType`.
    pub entry_type: u8,
}

const _: () = assert!(size_of::<SnapshotEntry>() == 22, "a field is out of its place");

impl SnapshotEntry {
    /// Bytes of the block by the schema.
    pub const BLOCK_LEN: usize = 22;
    /// `price.exponent`.
    pub const PRICE_EXPONENT: i8 = -9;

    /// `price`, where it is not null.
    #[inline]
    pub fn price(&self) -> Option<i64> {
        let value = self.price.get();
        (value != i64::MAX).then_some(value)
    }

    /// `size`, where it is not null.
    #[inline]
    pub fn size(&self) -> Option<i32> {
        let value = self.size.get();
        (value != i32::MAX).then_some(value)
    }

    /// `orderCount`, where it is not null.
    #[inline]
    pub fn order_count(&self) -> Option<i32> {
        let value = self.order_count.get();
        (value != i32::MAX).then_some(value)
    }

    /// `level`, where it is not null.
    #[inline]
    pub fn level(&self) -> Option<i8> {
        let value = self.level;
        (value != i8::MAX).then_some(value)
    }

    /// `referenceDate`, where it is not null.
    #[inline]
    pub fn reference_date(&self) -> Option<u16> {
        let value = self.reference_date.get();
        (value != u16::MAX).then_some(value)
    }
}

impl Block for SnapshotEntry {
    const LEN_MIN: usize = 22;
    const NULL: Self = Self {
        price: wire::I64::new(i64::MAX),
        size: wire::I32::new(i32::MAX),
        order_count: wire::I32::new(i32::MAX),
        level: i8::MAX,
        reference_date: wire::U16::new(u16::MAX),
        pad_19: [0; 2],
        entry_type: 0,
    };
    const FIELDS: &'static [Extent] = &[
        Extent { offset: 0, end: 8 },
        Extent { offset: 8, end: 12 },
        Extent { offset: 12, end: 16 },
        Extent { offset: 16, end: 17 },
        Extent { offset: 17, end: 19 },
        Extent { offset: 21, end: 22 },
    ];

    fn fields(&self, visitor: &mut dyn Visitor) {
        visitor.field("price", self.price().map_or(Value::Null, Value::Int));
        visitor.field("price.exponent", Value::Int(-9));
        visitor.field("size", self.size().map_or(Value::Null, |value| Value::Int(value.into())));
        visitor.field("orderCount", self.order_count().map_or(Value::Null, |value| Value::Int(value.into())));
        visitor.field("level", self.level().map_or(Value::Null, |value| Value::Int(value.into())));
        visitor.field("referenceDate", self.reference_date().map_or(Value::Null, |value| Value::Uint(value.into())));
        visitor.field("entryType", Value::Bytes(core::slice::from_ref(&self.entry_type)));
    }
}

/// The message `Snapshot`.
#[derive(Clone, Debug)]
pub struct Snapshot<'a> {
    /// Its fields.
    pub root: SnapshotRoot,
    /// Its group `entries`.
    pub entries: Group<'a, SnapshotEntry>,
}

impl<'a> Snapshot<'a> {
    /// The template's number.
    pub const ID: u16 = 52;
    /// Its name in the schema.
    pub const NAME: &'static str = "Snapshot";

    /// Checks the message's extent and reads its root. `body` follows the header.
    #[inline]
    pub fn parse(head: MessageHead, body: &'a [u8]) -> Result<Self, SbeError> {
        let (root, rest) = head.split_root(body)?;
        let root = SnapshotRoot::read(root)?;
        let (entries, _) = Group::split::<GroupSize>(rest)?;
        Ok(Self { root, entries })
    }
}

/// The root of `OrderSnapshot`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct OrderSnapshotRoot {
    /// `lastSeq`.
    pub last_seq: wire::U32,
    /// `reportsTotal`.
    pub reports_total: wire::U32,
    /// `securityId`.
    pub security_id: wire::I32,
    /// `chunks`.
    pub chunks: wire::U32,
    /// `chunk`.
    pub chunk: wire::U32,
    /// `transactTime`.
    pub transact_time: wire::U64,
}

const _: () = assert!(size_of::<OrderSnapshotRoot>() == 28, "a field is out of its place");

impl OrderSnapshotRoot {
    /// Bytes of the block by the schema.
    pub const BLOCK_LEN: usize = 28;
}

impl Block for OrderSnapshotRoot {
    const LEN_MIN: usize = 28;
    const NULL: Self = Self {
        last_seq: wire::U32::new(u32::MAX),
        reports_total: wire::U32::new(u32::MAX),
        security_id: wire::I32::new(i32::MIN),
        chunks: wire::U32::new(u32::MAX),
        chunk: wire::U32::new(u32::MAX),
        transact_time: wire::U64::new(u64::MAX),
    };
    const FIELDS: &'static [Extent] = &[
        Extent { offset: 0, end: 4 },
        Extent { offset: 4, end: 8 },
        Extent { offset: 8, end: 12 },
        Extent { offset: 12, end: 16 },
        Extent { offset: 16, end: 20 },
        Extent { offset: 20, end: 28 },
    ];

    fn fields(&self, visitor: &mut dyn Visitor) {
        visitor.field("lastSeq", Value::Uint(self.last_seq.get().into()));
        visitor.field("reportsTotal", Value::Uint(self.reports_total.get().into()));
        visitor.field("securityId", Value::Int(self.security_id.get().into()));
        visitor.field("chunks", Value::Uint(self.chunks.get().into()));
        visitor.field("chunk", Value::Uint(self.chunk.get().into()));
        visitor.field("transactTime", Value::Uint(self.transact_time.get()));
    }
}

/// An entry of `entries` in `OrderSnapshot`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct OrderSnapshotEntry {
    /// `orderId`.
    pub order_id: wire::U64,
    /// `priority`.
    pub priority: wire::U64,
    /// `price`.
    pub price: wire::I64,
    /// `displayQty`.
    pub display_qty: wire::I32,
    /// `entryType`.
    pub entry_type: u8,
}

const _: () = assert!(size_of::<OrderSnapshotEntry>() == 29, "a field is out of its place");

impl OrderSnapshotEntry {
    /// Bytes of the block by the schema.
    pub const BLOCK_LEN: usize = 29;
    /// `price.exponent`.
    pub const PRICE_EXPONENT: i8 = -9;

    /// `priority`, where it is not null.
    #[inline]
    pub fn priority(&self) -> Option<u64> {
        let value = self.priority.get();
        (value != u64::MAX).then_some(value)
    }
}

impl Block for OrderSnapshotEntry {
    const LEN_MIN: usize = 29;
    const NULL: Self = Self {
        order_id: wire::U64::new(u64::MAX),
        priority: wire::U64::new(u64::MAX),
        price: wire::I64::new(i64::MIN),
        display_qty: wire::I32::new(i32::MIN),
        entry_type: 0,
    };
    const FIELDS: &'static [Extent] = &[
        Extent { offset: 0, end: 8 },
        Extent { offset: 8, end: 16 },
        Extent { offset: 16, end: 24 },
        Extent { offset: 24, end: 28 },
        Extent { offset: 28, end: 29 },
    ];

    fn fields(&self, visitor: &mut dyn Visitor) {
        visitor.field("orderId", Value::Uint(self.order_id.get()));
        visitor.field("priority", self.priority().map_or(Value::Null, Value::Uint));
        visitor.field("price", Value::Int(self.price.get()));
        visitor.field("price.exponent", Value::Int(-9));
        visitor.field("displayQty", Value::Int(self.display_qty.get().into()));
        visitor.field("entryType", Value::Bytes(core::slice::from_ref(&self.entry_type)));
    }
}

/// The message `OrderSnapshot`.
#[derive(Clone, Debug)]
pub struct OrderSnapshot<'a> {
    /// Its fields.
    pub root: OrderSnapshotRoot,
    /// Its group `entries`.
    pub entries: Group<'a, OrderSnapshotEntry>,
}

impl<'a> OrderSnapshot<'a> {
    /// The template's number.
    pub const ID: u16 = 53;
    /// Its name in the schema.
    pub const NAME: &'static str = "OrderSnapshot";

    /// Checks the message's extent and reads its root. `body` follows the header.
    #[inline]
    pub fn parse(head: MessageHead, body: &'a [u8]) -> Result<Self, SbeError> {
        let (root, rest) = head.split_root(body)?;
        let root = OrderSnapshotRoot::read(root)?;
        let (entries, _) = Group::split::<GroupSize>(rest)?;
        Ok(Self { root, entries })
    }
}

/// The root of `FutureDefinition`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct FutureDefinitionRoot {
    /// `eventEnd`.
    pub event_end: u8,
    /// `reportsTotal`.
    pub reports_total: wire::U32,
    /// `updateAction`.
    pub update_action: u8,
    /// `lastUpdateTime`.
    pub last_update_time: wire::U64,
    /// `tradingStatus`.
    pub trading_status: u8,
    /// `channelId`.
    pub channel_id: wire::I16,
    /// `marketSegment`.
    pub market_segment: u8,
    /// Not used.
    pub pad_18: [u8; 5],
    /// `securityGroup`.
    pub security_group: [u8; 6],
    /// `asset`.
    pub asset: [u8; 6],
    /// `symbol`.
    pub symbol: [u8; 20],
    /// `securityId`.
    pub security_id: wire::I32,
    /// `securityType`.
    pub security_type: [u8; 6],
    /// Not used.
    pub pad_65: [u8; 26],
    /// `minTick`.
    pub min_tick: wire::I64,
    /// `displayFactor`.
    pub display_factor: wire::I64,
}

const _: () = assert!(size_of::<FutureDefinitionRoot>() == 107, "a field is out of its place");

impl FutureDefinitionRoot {
    /// Bytes of the block by the schema.
    pub const BLOCK_LEN: usize = 224;
    /// `minTick.exponent`.
    pub const MIN_TICK_EXPONENT: i8 = -9;
    /// `displayFactor.exponent`.
    pub const DISPLAY_FACTOR_EXPONENT: i8 = -9;

    /// `reportsTotal`, where it is not null.
    #[inline]
    pub fn reports_total(&self) -> Option<u32> {
        let value = self.reports_total.get();
        (value != u32::MAX).then_some(value)
    }

    /// `tradingStatus`, where it is not null.
    #[inline]
    pub fn trading_status(&self) -> Option<u8> {
        let value = self.trading_status;
        (value != u8::MAX).then_some(value)
    }
}

impl Block for FutureDefinitionRoot {
    const LEN_MIN: usize = 107;
    const NULL: Self = Self {
        event_end: u8::MAX,
        reports_total: wire::U32::new(u32::MAX),
        update_action: 0,
        last_update_time: wire::U64::new(u64::MAX),
        trading_status: u8::MAX,
        channel_id: wire::I16::new(i16::MIN),
        market_segment: u8::MAX,
        pad_18: [0; 5],
        security_group: [0; 6],
        asset: [0; 6],
        symbol: [0; 20],
        security_id: wire::I32::new(i32::MIN),
        security_type: [0; 6],
        pad_65: [0; 26],
        min_tick: wire::I64::new(i64::MIN),
        display_factor: wire::I64::new(i64::MIN),
    };
    const FIELDS: &'static [Extent] = &[
        Extent { offset: 0, end: 1 },
        Extent { offset: 1, end: 5 },
        Extent { offset: 5, end: 6 },
        Extent { offset: 6, end: 14 },
        Extent { offset: 14, end: 15 },
        Extent { offset: 15, end: 17 },
        Extent { offset: 17, end: 18 },
        Extent { offset: 23, end: 29 },
        Extent { offset: 29, end: 35 },
        Extent { offset: 35, end: 55 },
        Extent { offset: 55, end: 59 },
        Extent { offset: 59, end: 65 },
        Extent { offset: 91, end: 99 },
        Extent { offset: 99, end: 107 },
    ];

    fn fields(&self, visitor: &mut dyn Visitor) {
        visitor.field("eventEnd", Value::Uint(self.event_end.into()));
        visitor.field("reportsTotal", self.reports_total().map_or(Value::Null, |value| Value::Uint(value.into())));
        visitor.field("updateAction", Value::Bytes(core::slice::from_ref(&self.update_action)));
        visitor.field("lastUpdateTime", Value::Uint(self.last_update_time.get()));
        visitor.field("tradingStatus", self.trading_status().map_or(Value::Null, |value| Value::Uint(value.into())));
        visitor.field("channelId", Value::Int(self.channel_id.get().into()));
        visitor.field("marketSegment", Value::Uint(self.market_segment.into()));
        visitor.field("securityGroup", Value::Bytes(&self.security_group));
        visitor.field("asset", Value::Bytes(&self.asset));
        visitor.field("symbol", Value::Bytes(&self.symbol));
        visitor.field("securityId", Value::Int(self.security_id.get().into()));
        visitor.field("securityType", Value::Bytes(&self.security_type));
        visitor.field("minTick", Value::Int(self.min_tick.get()));
        visitor.field("minTick.exponent", Value::Int(-9));
        visitor.field("displayFactor", Value::Int(self.display_factor.get()));
        visitor.field("displayFactor.exponent", Value::Int(-9));
    }
}

/// An entry of `events` in `FutureDefinition`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct FutureDefinitionEvent {
    /// `eventType`.
    pub event_type: u8,
    /// `eventTime`.
    pub event_time: wire::U64,
}

const _: () = assert!(size_of::<FutureDefinitionEvent>() == 9, "a field is out of its place");

impl FutureDefinitionEvent {
    /// Bytes of the block by the schema.
    pub const BLOCK_LEN: usize = 9;
}

impl Block for FutureDefinitionEvent {
    const LEN_MIN: usize = 9;
    const NULL: Self = Self {
        event_type: u8::MAX,
        event_time: wire::U64::new(u64::MAX),
    };
    const FIELDS: &'static [Extent] = &[
        Extent { offset: 0, end: 1 },
        Extent { offset: 1, end: 9 },
    ];

    fn fields(&self, visitor: &mut dyn Visitor) {
        visitor.field("eventType", Value::Uint(self.event_type.into()));
        visitor.field("eventTime", Value::Uint(self.event_time.get()));
    }
}

/// An entry of `feeds` in `FutureDefinition`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct FutureDefinitionFeed {
    /// `feedType`.
    pub feed_type: [u8; 3],
    /// `depth`.
    pub depth: i8,
}

const _: () = assert!(size_of::<FutureDefinitionFeed>() == 4, "a field is out of its place");

impl FutureDefinitionFeed {
    /// Bytes of the block by the schema.
    pub const BLOCK_LEN: usize = 4;
}

impl Block for FutureDefinitionFeed {
    const LEN_MIN: usize = 4;
    const NULL: Self = Self {
        feed_type: [0; 3],
        depth: i8::MIN,
    };
    const FIELDS: &'static [Extent] = &[
        Extent { offset: 0, end: 3 },
        Extent { offset: 3, end: 4 },
    ];

    fn fields(&self, visitor: &mut dyn Visitor) {
        visitor.field("feedType", Value::Bytes(&self.feed_type));
        visitor.field("depth", Value::Int(self.depth.into()));
    }
}

/// The message `FutureDefinition`.
#[derive(Clone, Debug)]
pub struct FutureDefinition<'a> {
    /// Its fields.
    pub root: FutureDefinitionRoot,
    /// Its group `events`.
    pub events: Group<'a, FutureDefinitionEvent>,
    /// Its group `feeds`.
    pub feeds: Group<'a, FutureDefinitionFeed>,
}

impl<'a> FutureDefinition<'a> {
    /// The template's number.
    pub const ID: u16 = 54;
    /// Its name in the schema.
    pub const NAME: &'static str = "FutureDefinition";

    /// Checks the message's extent and reads its root. `body` follows the header.
    #[inline]
    pub fn parse(head: MessageHead, body: &'a [u8]) -> Result<Self, SbeError> {
        let (root, rest) = head.split_root(body)?;
        let root = FutureDefinitionRoot::read(root)?;
        let (events, rest) = Group::split::<GroupSize>(rest)?;
        let (feeds, _) = Group::split::<GroupSize>(rest)?;
        Ok(Self { root, events, feeds })
    }
}

/// The root of `OptionDefinition`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct OptionDefinitionRoot {
    /// `eventEnd`.
    pub event_end: u8,
    /// `reportsTotal`.
    pub reports_total: wire::U32,
    /// `updateAction`.
    pub update_action: u8,
    /// `lastUpdateTime`.
    pub last_update_time: wire::U64,
    /// `tradingStatus`.
    pub trading_status: u8,
    /// `channelId`.
    pub channel_id: wire::I16,
    /// `marketSegment`.
    pub market_segment: u8,
    /// Not used.
    pub pad_18: [u8; 5],
    /// `securityGroup`.
    pub security_group: [u8; 6],
    /// `asset`.
    pub asset: [u8; 6],
    /// `symbol`.
    pub symbol: [u8; 20],
    /// `securityId`.
    pub security_id: wire::I32,
    /// `securityType`.
    pub security_type: [u8; 6],
    /// Not used.
    pub pad_65: [u8; 15],
    /// `strike`.
    pub strike: wire::I64,
    /// Not used.
    pub pad_88: [u8; 23],
    /// `minTick`.
    pub min_tick: wire::I64,
    /// Not used.
    pub pad_119: [u8; 8],
    /// `displayFactor`.
    pub display_factor: wire::I64,
}

const _: () = assert!(size_of::<OptionDefinitionRoot>() == 135, "a field is out of its place");

impl OptionDefinitionRoot {
    /// Bytes of the block by the schema.
    pub const BLOCK_LEN: usize = 221;
    /// `strike.exponent`.
    pub const STRIKE_EXPONENT: i8 = -9;
    /// `minTick.exponent`.
    pub const MIN_TICK_EXPONENT: i8 = -9;
    /// `displayFactor.exponent`.
    pub const DISPLAY_FACTOR_EXPONENT: i8 = -9;

    /// `reportsTotal`, where it is not null.
    #[inline]
    pub fn reports_total(&self) -> Option<u32> {
        let value = self.reports_total.get();
        (value != u32::MAX).then_some(value)
    }

    /// `tradingStatus`, where it is not null.
    #[inline]
    pub fn trading_status(&self) -> Option<u8> {
        let value = self.trading_status;
        (value != u8::MAX).then_some(value)
    }

    /// `strike`, where it is not null.
    #[inline]
    pub fn strike(&self) -> Option<i64> {
        let value = self.strike.get();
        (value != i64::MAX).then_some(value)
    }

    /// `minTick`, where it is not null.
    #[inline]
    pub fn min_tick(&self) -> Option<i64> {
        let value = self.min_tick.get();
        (value != i64::MAX).then_some(value)
    }
}

impl Block for OptionDefinitionRoot {
    const LEN_MIN: usize = 135;
    const NULL: Self = Self {
        event_end: u8::MAX,
        reports_total: wire::U32::new(u32::MAX),
        update_action: 0,
        last_update_time: wire::U64::new(u64::MAX),
        trading_status: u8::MAX,
        channel_id: wire::I16::new(i16::MIN),
        market_segment: u8::MAX,
        pad_18: [0; 5],
        security_group: [0; 6],
        asset: [0; 6],
        symbol: [0; 20],
        security_id: wire::I32::new(i32::MIN),
        security_type: [0; 6],
        pad_65: [0; 15],
        strike: wire::I64::new(i64::MAX),
        pad_88: [0; 23],
        min_tick: wire::I64::new(i64::MAX),
        pad_119: [0; 8],
        display_factor: wire::I64::new(i64::MIN),
    };
    const FIELDS: &'static [Extent] = &[
        Extent { offset: 0, end: 1 },
        Extent { offset: 1, end: 5 },
        Extent { offset: 5, end: 6 },
        Extent { offset: 6, end: 14 },
        Extent { offset: 14, end: 15 },
        Extent { offset: 15, end: 17 },
        Extent { offset: 17, end: 18 },
        Extent { offset: 23, end: 29 },
        Extent { offset: 29, end: 35 },
        Extent { offset: 35, end: 55 },
        Extent { offset: 55, end: 59 },
        Extent { offset: 59, end: 65 },
        Extent { offset: 80, end: 88 },
        Extent { offset: 111, end: 119 },
        Extent { offset: 127, end: 135 },
    ];

    fn fields(&self, visitor: &mut dyn Visitor) {
        visitor.field("eventEnd", Value::Uint(self.event_end.into()));
        visitor.field("reportsTotal", self.reports_total().map_or(Value::Null, |value| Value::Uint(value.into())));
        visitor.field("updateAction", Value::Bytes(core::slice::from_ref(&self.update_action)));
        visitor.field("lastUpdateTime", Value::Uint(self.last_update_time.get()));
        visitor.field("tradingStatus", self.trading_status().map_or(Value::Null, |value| Value::Uint(value.into())));
        visitor.field("channelId", Value::Int(self.channel_id.get().into()));
        visitor.field("marketSegment", Value::Uint(self.market_segment.into()));
        visitor.field("securityGroup", Value::Bytes(&self.security_group));
        visitor.field("asset", Value::Bytes(&self.asset));
        visitor.field("symbol", Value::Bytes(&self.symbol));
        visitor.field("securityId", Value::Int(self.security_id.get().into()));
        visitor.field("securityType", Value::Bytes(&self.security_type));
        visitor.field("strike", self.strike().map_or(Value::Null, Value::Int));
        visitor.field("strike.exponent", Value::Int(-9));
        visitor.field("minTick", self.min_tick().map_or(Value::Null, Value::Int));
        visitor.field("minTick.exponent", Value::Int(-9));
        visitor.field("displayFactor", Value::Int(self.display_factor.get()));
        visitor.field("displayFactor.exponent", Value::Int(-9));
    }
}

/// An entry of `events` in `OptionDefinition`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct OptionDefinitionEvent {
    /// `eventType`.
    pub event_type: u8,
    /// `eventTime`.
    pub event_time: wire::U64,
}

const _: () = assert!(size_of::<OptionDefinitionEvent>() == 9, "a field is out of its place");

impl OptionDefinitionEvent {
    /// Bytes of the block by the schema.
    pub const BLOCK_LEN: usize = 9;
}

impl Block for OptionDefinitionEvent {
    const LEN_MIN: usize = 9;
    const NULL: Self = Self {
        event_type: u8::MAX,
        event_time: wire::U64::new(u64::MAX),
    };
    const FIELDS: &'static [Extent] = &[
        Extent { offset: 0, end: 1 },
        Extent { offset: 1, end: 9 },
    ];

    fn fields(&self, visitor: &mut dyn Visitor) {
        visitor.field("eventType", Value::Uint(self.event_type.into()));
        visitor.field("eventTime", Value::Uint(self.event_time.get()));
    }
}

/// An entry of `feeds` in `OptionDefinition`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct OptionDefinitionFeed {
    /// `feedType`.
    pub feed_type: [u8; 3],
    /// `depth`.
    pub depth: i8,
}

const _: () = assert!(size_of::<OptionDefinitionFeed>() == 4, "a field is out of its place");

impl OptionDefinitionFeed {
    /// Bytes of the block by the schema.
    pub const BLOCK_LEN: usize = 4;
}

impl Block for OptionDefinitionFeed {
    const LEN_MIN: usize = 4;
    const NULL: Self = Self {
        feed_type: [0; 3],
        depth: i8::MIN,
    };
    const FIELDS: &'static [Extent] = &[
        Extent { offset: 0, end: 3 },
        Extent { offset: 3, end: 4 },
    ];

    fn fields(&self, visitor: &mut dyn Visitor) {
        visitor.field("feedType", Value::Bytes(&self.feed_type));
        visitor.field("depth", Value::Int(self.depth.into()));
    }
}

/// The message `OptionDefinition`.
#[derive(Clone, Debug)]
pub struct OptionDefinition<'a> {
    /// Its fields.
    pub root: OptionDefinitionRoot,
    /// Its group `events`.
    pub events: Group<'a, OptionDefinitionEvent>,
    /// Its group `feeds`.
    pub feeds: Group<'a, OptionDefinitionFeed>,
}

impl<'a> OptionDefinition<'a> {
    /// The template's number.
    pub const ID: u16 = 55;
    /// Its name in the schema.
    pub const NAME: &'static str = "OptionDefinition";

    /// Checks the message's extent and reads its root. `body` follows the header.
    #[inline]
    pub fn parse(head: MessageHead, body: &'a [u8]) -> Result<Self, SbeError> {
        let (root, rest) = head.split_root(body)?;
        let root = OptionDefinitionRoot::read(root)?;
        let (events, rest) = Group::split::<GroupSize>(rest)?;
        let (feeds, _) = Group::split::<GroupSize>(rest)?;
        Ok(Self { root, events, feeds })
    }
}

/// The root of `SpreadDefinition`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct SpreadDefinitionRoot {
    /// `eventEnd`.
    pub event_end: u8,
    /// `reportsTotal`.
    pub reports_total: wire::U32,
    /// `updateAction`.
    pub update_action: u8,
    /// `lastUpdateTime`.
    pub last_update_time: wire::U64,
    /// `tradingStatus`.
    pub trading_status: u8,
    /// `channelId`.
    pub channel_id: wire::I16,
    /// `marketSegment`.
    pub market_segment: u8,
    /// Not used.
    pub pad_18: [u8; 5],
    /// `securityGroup`.
    pub security_group: [u8; 6],
    /// `asset`.
    pub asset: [u8; 6],
    /// `symbol`.
    pub symbol: [u8; 20],
    /// `securityId`.
    pub security_id: wire::I32,
    /// `securityType`.
    pub security_type: [u8; 6],
    /// Not used.
    pub pad_65: [u8; 29],
    /// `minTick`.
    pub min_tick: wire::I64,
    /// `displayFactor`.
    pub display_factor: wire::I64,
}

const _: () = assert!(size_of::<SpreadDefinitionRoot>() == 110, "a field is out of its place");

impl SpreadDefinitionRoot {
    /// Bytes of the block by the schema.
    pub const BLOCK_LEN: usize = 255;
    /// `minTick.exponent`.
    pub const MIN_TICK_EXPONENT: i8 = -9;
    /// `displayFactor.exponent`.
    pub const DISPLAY_FACTOR_EXPONENT: i8 = -9;

    /// `reportsTotal`, where it is not null.
    #[inline]
    pub fn reports_total(&self) -> Option<u32> {
        let value = self.reports_total.get();
        (value != u32::MAX).then_some(value)
    }

    /// `tradingStatus`, where it is not null.
    #[inline]
    pub fn trading_status(&self) -> Option<u8> {
        let value = self.trading_status;
        (value != u8::MAX).then_some(value)
    }

    /// `minTick`, where it is not null.
    #[inline]
    pub fn min_tick(&self) -> Option<i64> {
        let value = self.min_tick.get();
        (value != i64::MAX).then_some(value)
    }
}

impl Block for SpreadDefinitionRoot {
    const LEN_MIN: usize = 110;
    const NULL: Self = Self {
        event_end: u8::MAX,
        reports_total: wire::U32::new(u32::MAX),
        update_action: 0,
        last_update_time: wire::U64::new(u64::MAX),
        trading_status: u8::MAX,
        channel_id: wire::I16::new(i16::MIN),
        market_segment: u8::MAX,
        pad_18: [0; 5],
        security_group: [0; 6],
        asset: [0; 6],
        symbol: [0; 20],
        security_id: wire::I32::new(i32::MIN),
        security_type: [0; 6],
        pad_65: [0; 29],
        min_tick: wire::I64::new(i64::MAX),
        display_factor: wire::I64::new(i64::MIN),
    };
    const FIELDS: &'static [Extent] = &[
        Extent { offset: 0, end: 1 },
        Extent { offset: 1, end: 5 },
        Extent { offset: 5, end: 6 },
        Extent { offset: 6, end: 14 },
        Extent { offset: 14, end: 15 },
        Extent { offset: 15, end: 17 },
        Extent { offset: 17, end: 18 },
        Extent { offset: 23, end: 29 },
        Extent { offset: 29, end: 35 },
        Extent { offset: 35, end: 55 },
        Extent { offset: 55, end: 59 },
        Extent { offset: 59, end: 65 },
        Extent { offset: 94, end: 102 },
        Extent { offset: 102, end: 110 },
    ];

    fn fields(&self, visitor: &mut dyn Visitor) {
        visitor.field("eventEnd", Value::Uint(self.event_end.into()));
        visitor.field("reportsTotal", self.reports_total().map_or(Value::Null, |value| Value::Uint(value.into())));
        visitor.field("updateAction", Value::Bytes(core::slice::from_ref(&self.update_action)));
        visitor.field("lastUpdateTime", Value::Uint(self.last_update_time.get()));
        visitor.field("tradingStatus", self.trading_status().map_or(Value::Null, |value| Value::Uint(value.into())));
        visitor.field("channelId", Value::Int(self.channel_id.get().into()));
        visitor.field("marketSegment", Value::Uint(self.market_segment.into()));
        visitor.field("securityGroup", Value::Bytes(&self.security_group));
        visitor.field("asset", Value::Bytes(&self.asset));
        visitor.field("symbol", Value::Bytes(&self.symbol));
        visitor.field("securityId", Value::Int(self.security_id.get().into()));
        visitor.field("securityType", Value::Bytes(&self.security_type));
        visitor.field("minTick", self.min_tick().map_or(Value::Null, Value::Int));
        visitor.field("minTick.exponent", Value::Int(-9));
        visitor.field("displayFactor", Value::Int(self.display_factor.get()));
        visitor.field("displayFactor.exponent", Value::Int(-9));
    }
}

/// An entry of `events` in `SpreadDefinition`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct SpreadDefinitionEvent {
    /// `eventType`.
    pub event_type: u8,
    /// `eventTime`.
    pub event_time: wire::U64,
}

const _: () = assert!(size_of::<SpreadDefinitionEvent>() == 9, "a field is out of its place");

impl SpreadDefinitionEvent {
    /// Bytes of the block by the schema.
    pub const BLOCK_LEN: usize = 9;
}

impl Block for SpreadDefinitionEvent {
    const LEN_MIN: usize = 9;
    const NULL: Self = Self {
        event_type: u8::MAX,
        event_time: wire::U64::new(u64::MAX),
    };
    const FIELDS: &'static [Extent] = &[
        Extent { offset: 0, end: 1 },
        Extent { offset: 1, end: 9 },
    ];

    fn fields(&self, visitor: &mut dyn Visitor) {
        visitor.field("eventType", Value::Uint(self.event_type.into()));
        visitor.field("eventTime", Value::Uint(self.event_time.get()));
    }
}

/// An entry of `feeds` in `SpreadDefinition`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct SpreadDefinitionFeed {
    /// `feedType`.
    pub feed_type: [u8; 3],
    /// `depth`.
    pub depth: i8,
}

const _: () = assert!(size_of::<SpreadDefinitionFeed>() == 4, "a field is out of its place");

impl SpreadDefinitionFeed {
    /// Bytes of the block by the schema.
    pub const BLOCK_LEN: usize = 4;
}

impl Block for SpreadDefinitionFeed {
    const LEN_MIN: usize = 4;
    const NULL: Self = Self {
        feed_type: [0; 3],
        depth: i8::MIN,
    };
    const FIELDS: &'static [Extent] = &[
        Extent { offset: 0, end: 3 },
        Extent { offset: 3, end: 4 },
    ];

    fn fields(&self, visitor: &mut dyn Visitor) {
        visitor.field("feedType", Value::Bytes(&self.feed_type));
        visitor.field("depth", Value::Int(self.depth.into()));
    }
}

/// The message `SpreadDefinition`.
#[derive(Clone, Debug)]
pub struct SpreadDefinition<'a> {
    /// Its fields.
    pub root: SpreadDefinitionRoot,
    /// Its group `events`.
    pub events: Group<'a, SpreadDefinitionEvent>,
    /// Its group `feeds`.
    pub feeds: Group<'a, SpreadDefinitionFeed>,
}

impl<'a> SpreadDefinition<'a> {
    /// The template's number.
    pub const ID: u16 = 56;
    /// Its name in the schema.
    pub const NAME: &'static str = "SpreadDefinition";

    /// Checks the message's extent and reads its root. `body` follows the header.
    #[inline]
    pub fn parse(head: MessageHead, body: &'a [u8]) -> Result<Self, SbeError> {
        let (root, rest) = head.split_root(body)?;
        let root = SpreadDefinitionRoot::read(root)?;
        let (events, rest) = Group::split::<GroupSize>(rest)?;
        let (feeds, _) = Group::split::<GroupSize>(rest)?;
        Ok(Self { root, events, feeds })
    }
}

/// Shows a message to `visitor`, as the runtime reader of the schema does.
pub fn walk(message: &[u8], visitor: &mut dyn Visitor) -> Result<(), SbeError> {
    let (head, body) = split_head(message)?;
    if head.schema != SCHEMA_ID {
        return Err(SbeError::OtherSchema(head.schema));
    }
    match head.template {
        4 => {
            let message = ChannelReset::parse(head, body)?;
            visitor.message("ChannelReset", head.template, head.version);
            message.root.fields(visitor);
            crate::sbe::show_group("channels", message.channels, visitor);
        }
        12 => {
            let message = AdminHeartbeat::parse(head, body)?;
            visitor.message("AdminHeartbeat", head.template, head.version);
            message.root.fields(visitor);
        }
        15 => {
            let message = AdminLogin::parse(head, body)?;
            visitor.message("AdminLogin", head.template, head.version);
            message.root.fields(visitor);
        }
        16 => {
            let message = AdminLogout::parse(head, body)?;
            visitor.message("AdminLogout", head.template, head.version);
            message.root.fields(visitor);
        }
        30 => {
            let message = SecurityStatus::parse(head, body)?;
            visitor.message("SecurityStatus", head.template, head.version);
            message.root.fields(visitor);
        }
        37 => {
            let message = Volume::parse(head, body)?;
            visitor.message("Volume", head.template, head.version);
            message.root.fields(visitor);
            crate::sbe::show_group("entries", message.entries, visitor);
        }
        39 => {
            let message = QuoteRequest::parse(head, body)?;
            visitor.message("QuoteRequest", head.template, head.version);
            message.root.fields(visitor);
            crate::sbe::show_group("entries", message.entries, visitor);
        }
        46 => {
            let message = Book::parse(head, body)?;
            visitor.message("Book", head.template, head.version);
            message.root.fields(visitor);
            crate::sbe::show_group("entries", message.entries, visitor);
            crate::sbe::show_group("orders", message.orders, visitor);
        }
        47 => {
            let message = OrderBook::parse(head, body)?;
            visitor.message("OrderBook", head.template, head.version);
            message.root.fields(visitor);
            crate::sbe::show_group("entries", message.entries, visitor);
        }
        48 => {
            let message = TradeSummary::parse(head, body)?;
            visitor.message("TradeSummary", head.template, head.version);
            message.root.fields(visitor);
            crate::sbe::show_group("entries", message.entries, visitor);
            crate::sbe::show_group("orders", message.orders, visitor);
        }
        49 => {
            let message = DailyStatistics::parse(head, body)?;
            visitor.message("DailyStatistics", head.template, head.version);
            message.root.fields(visitor);
            crate::sbe::show_group("entries", message.entries, visitor);
        }
        50 => {
            let message = LimitsBanding::parse(head, body)?;
            visitor.message("LimitsBanding", head.template, head.version);
            message.root.fields(visitor);
            crate::sbe::show_group("entries", message.entries, visitor);
        }
        51 => {
            let message = SessionStatistics::parse(head, body)?;
            visitor.message("SessionStatistics", head.template, head.version);
            message.root.fields(visitor);
            crate::sbe::show_group("entries", message.entries, visitor);
        }
        52 => {
            let message = Snapshot::parse(head, body)?;
            visitor.message("Snapshot", head.template, head.version);
            message.root.fields(visitor);
            crate::sbe::show_group("entries", message.entries, visitor);
        }
        53 => {
            let message = OrderSnapshot::parse(head, body)?;
            visitor.message("OrderSnapshot", head.template, head.version);
            message.root.fields(visitor);
            crate::sbe::show_group("entries", message.entries, visitor);
        }
        54 => {
            let message = FutureDefinition::parse(head, body)?;
            visitor.message("FutureDefinition", head.template, head.version);
            message.root.fields(visitor);
            crate::sbe::show_group("events", message.events, visitor);
            crate::sbe::show_group("feeds", message.feeds, visitor);
        }
        55 => {
            let message = OptionDefinition::parse(head, body)?;
            visitor.message("OptionDefinition", head.template, head.version);
            message.root.fields(visitor);
            crate::sbe::show_group("events", message.events, visitor);
            crate::sbe::show_group("feeds", message.feeds, visitor);
        }
        56 => {
            let message = SpreadDefinition::parse(head, body)?;
            visitor.message("SpreadDefinition", head.template, head.version);
            message.root.fields(visitor);
            crate::sbe::show_group("events", message.events, visitor);
            crate::sbe::show_group("feeds", message.feeds, visitor);
        }
        other => return Err(SbeError::UnknownTemplate(other)),
    }
    Ok(())
}
