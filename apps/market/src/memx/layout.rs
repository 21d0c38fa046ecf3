//! The messages of MEMX's MEMOIR Depth feed for equities.
//!
//! Written by `market::sbe::schema`; change the schema and run its test with UPDATE=1.

use crate::sbe::{Block, Extent, MessageHead, SbeError, Value, Visitor};
use zerocopy::{big_endian as wire, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The schema's number in message headers.
pub const SCHEMA_ID: u16 = 2;
/// The version of the schema.
pub const SCHEMA_VERSION: u16 = 259;
/// Bytes of a message's header.
pub const HEADER_LEN: usize = 6;

/// Splits a message into its header's numbers and what follows them.
#[inline]
pub fn split_head(message: &[u8]) -> Result<(MessageHead, &[u8]), SbeError> {
    let Some((head, body)) = message.split_first_chunk::<HEADER_LEN>() else {
        return Err(SbeError::HeaderShort);
    };
    let head = MessageHead {
        block_len: u16::from_be_bytes([head[0], head[1]]).into(),
        template: head[2].into(),
        schema: head[3].into(),
        version: u16::from_be_bytes([head[4], head[5]]),
    };
    Ok((head, body))
}

/// The header of a message of this version, for who writes messages.
pub fn emit_head(template: u16, block_len: u16) -> [u8; HEADER_LEN] {
    let mut head = [0; HEADER_LEN];
    head[0..2].copy_from_slice(&block_len.to_be_bytes());
    head[2] = template as u8;
    head[3] = SCHEMA_ID as u8;
    head[4..6].copy_from_slice(&SCHEMA_VERSION.to_be_bytes());
    head
}

/// The root of `InstrumentDirectory`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct InstrumentDirectoryRoot {
    /// `timestamp`.
    pub timestamp: wire::U64,
    /// `securityId`.
    pub security_id: wire::U16,
    /// `root`.
    pub root: [u8; 6],
    /// `suffix`.
    pub suffix: [u8; 6],
    /// `roundLot`.
    pub round_lot: wire::U32,
    /// `reserved`.
    pub reserved: u8,
    /// `isTest`.
    pub is_test: u8,
    /// `tick`.
    pub tick: wire::I64,
}

const _: () = assert!(size_of::<InstrumentDirectoryRoot>() == 36, "a field is out of its place");

impl InstrumentDirectoryRoot {
    /// Bytes of the block by the schema.
    pub const BLOCK_LEN: usize = 36;
    /// `tick.exponent`.
    pub const TICK_EXPONENT: i8 = -6;
}

impl Block for InstrumentDirectoryRoot {
    const LEN_MIN: usize = 36;
    const NULL: Self = Self {
        timestamp: wire::U64::new(u64::MAX),
        security_id: wire::U16::new(u16::MAX),
        root: [0; 6],
        suffix: [0; 6],
        round_lot: wire::U32::new(u32::MAX),
        reserved: u8::MAX,
        is_test: u8::MAX,
        tick: wire::I64::new(i64::MIN),
    };
    const FIELDS: &'static [Extent] = &[
        Extent { offset: 0, end: 8 },
        Extent { offset: 8, end: 10 },
        Extent { offset: 10, end: 16 },
        Extent { offset: 16, end: 22 },
        Extent { offset: 22, end: 26 },
        Extent { offset: 26, end: 27 },
        Extent { offset: 27, end: 28 },
        Extent { offset: 28, end: 36 },
    ];

    fn fields(&self, visitor: &mut dyn Visitor) {
        visitor.field("timestamp", Value::Uint(self.timestamp.get()));
        visitor.field("securityId", Value::Uint(self.security_id.get().into()));
        visitor.field("root", Value::Bytes(&self.root));
        visitor.field("suffix", Value::Bytes(&self.suffix));
        visitor.field("roundLot", Value::Uint(self.round_lot.get().into()));
        visitor.field("reserved", Value::Uint(self.reserved.into()));
        visitor.field("isTest", Value::Uint(self.is_test.into()));
        visitor.field("tick", Value::Int(self.tick.get()));
        visitor.field("tick.exponent", Value::Int(-6));
    }
}

/// The message `InstrumentDirectory`.
#[derive(Clone, Debug)]
pub struct InstrumentDirectory {
    /// Its fields.
    pub root: InstrumentDirectoryRoot,
}

impl InstrumentDirectory {
    /// The template's number.
    pub const ID: u16 = 1;
    /// Its name in the schema.
    pub const NAME: &'static str = "InstrumentDirectory";

    /// Checks the message's extent and reads its root. `body` follows the header.
    #[inline]
    pub fn parse(head: MessageHead, body: &[u8]) -> Result<Self, SbeError> {
        let (root, _) = head.split_root(body)?;
        let root = InstrumentDirectoryRoot::read(root)?;
        Ok(Self { root })
    }
}

/// The root of `ShortSaleRestriction`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ShortSaleRestrictionRoot {
    /// `timestamp`.
    pub timestamp: wire::U64,
    /// `securityId`.
    pub security_id: wire::U16,
    /// `isRestricted`.
    pub is_restricted: u8,
}

const _: () = assert!(size_of::<ShortSaleRestrictionRoot>() == 11, "a field is out of its place");

impl ShortSaleRestrictionRoot {
    /// Bytes of the block by the schema.
    pub const BLOCK_LEN: usize = 11;
}

impl Block for ShortSaleRestrictionRoot {
    const LEN_MIN: usize = 11;
    const NULL: Self = Self {
        timestamp: wire::U64::new(u64::MAX),
        security_id: wire::U16::new(u16::MAX),
        is_restricted: u8::MAX,
    };
    const FIELDS: &'static [Extent] = &[
        Extent { offset: 0, end: 8 },
        Extent { offset: 8, end: 10 },
        Extent { offset: 10, end: 11 },
    ];

    fn fields(&self, visitor: &mut dyn Visitor) {
        visitor.field("timestamp", Value::Uint(self.timestamp.get()));
        visitor.field("securityId", Value::Uint(self.security_id.get().into()));
        visitor.field("isRestricted", Value::Uint(self.is_restricted.into()));
    }
}

/// The message `ShortSaleRestriction`.
#[derive(Clone, Debug)]
pub struct ShortSaleRestriction {
    /// Its fields.
    pub root: ShortSaleRestrictionRoot,
}

impl ShortSaleRestriction {
    /// The template's number.
    pub const ID: u16 = 2;
    /// Its name in the schema.
    pub const NAME: &'static str = "ShortSaleRestriction";

    /// Checks the message's extent and reads its root. `body` follows the header.
    #[inline]
    pub fn parse(head: MessageHead, body: &[u8]) -> Result<Self, SbeError> {
        let (root, _) = head.split_root(body)?;
        let root = ShortSaleRestrictionRoot::read(root)?;
        Ok(Self { root })
    }
}

/// The root of `TradingStatus`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct TradingStatusRoot {
    /// `timestamp`.
    pub timestamp: wire::U64,
    /// `securityId`.
    pub security_id: wire::U16,
    /// `status`.
    pub status: u8,
    /// `reason`.
    pub reason: u8,
}

const _: () = assert!(size_of::<TradingStatusRoot>() == 12, "a field is out of its place");

impl TradingStatusRoot {
    /// Bytes of the block by the schema.
    pub const BLOCK_LEN: usize = 12;
}

impl Block for TradingStatusRoot {
    const LEN_MIN: usize = 12;
    const NULL: Self = Self {
        timestamp: wire::U64::new(u64::MAX),
        security_id: wire::U16::new(u16::MAX),
        status: u8::MAX,
        reason: u8::MAX,
    };
    const FIELDS: &'static [Extent] = &[
        Extent { offset: 0, end: 8 },
        Extent { offset: 8, end: 10 },
        Extent { offset: 10, end: 11 },
        Extent { offset: 11, end: 12 },
    ];

    fn fields(&self, visitor: &mut dyn Visitor) {
        visitor.field("timestamp", Value::Uint(self.timestamp.get()));
        visitor.field("securityId", Value::Uint(self.security_id.get().into()));
        visitor.field("status", Value::Uint(self.status.into()));
        visitor.field("reason", Value::Uint(self.reason.into()));
    }
}

/// The message `TradingStatus`.
#[derive(Clone, Debug)]
pub struct TradingStatus {
    /// Its fields.
    pub root: TradingStatusRoot,
}

impl TradingStatus {
    /// The template's number.
    pub const ID: u16 = 3;
    /// Its name in the schema.
    pub const NAME: &'static str = "TradingStatus";

    /// Checks the message's extent and reads its root. `body` follows the header.
    #[inline]
    pub fn parse(head: MessageHead, body: &[u8]) -> Result<Self, SbeError> {
        let (root, _) = head.split_root(body)?;
        let root = TradingStatusRoot::read(root)?;
        Ok(Self { root })
    }
}

/// The root of `SessionStatus`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct SessionStatusRoot {
    /// `timestamp`.
    pub timestamp: wire::U64,
    /// `session`.
    pub session: u8,
}

const _: () = assert!(size_of::<SessionStatusRoot>() == 9, "a field is out of its place");

impl SessionStatusRoot {
    /// Bytes of the block by the schema.
    pub const BLOCK_LEN: usize = 9;
}

impl Block for SessionStatusRoot {
    const LEN_MIN: usize = 9;
    const NULL: Self = Self {
        timestamp: wire::U64::new(u64::MAX),
        session: u8::MAX,
    };
    const FIELDS: &'static [Extent] = &[
        Extent { offset: 0, end: 8 },
        Extent { offset: 8, end: 9 },
    ];

    fn fields(&self, visitor: &mut dyn Visitor) {
        visitor.field("timestamp", Value::Uint(self.timestamp.get()));
        visitor.field("session", Value::Uint(self.session.into()));
    }
}

/// The message `SessionStatus`.
#[derive(Clone, Debug)]
pub struct SessionStatus {
    /// Its fields.
    pub root: SessionStatusRoot,
}

impl SessionStatus {
    /// The template's number.
    pub const ID: u16 = 5;
    /// Its name in the schema.
    pub const NAME: &'static str = "SessionStatus";

    /// Checks the message's extent and reads its root. `body` follows the header.
    #[inline]
    pub fn parse(head: MessageHead, body: &[u8]) -> Result<Self, SbeError> {
        let (root, _) = head.split_root(body)?;
        let root = SessionStatusRoot::read(root)?;
        Ok(Self { root })
    }
}

/// The root of `OrderAdded`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct OrderAddedRoot {
    /// `timestamp`.
    pub timestamp: wire::U64,
    /// `securityId`.
    pub security_id: wire::U16,
    /// `orderId`.
    pub order_id: wire::U64,
    /// `side`.
    pub side: u8,
    /// `quantity`.
    pub quantity: wire::U32,
    /// `price`.
    pub price: wire::I64,
}

const _: () = assert!(size_of::<OrderAddedRoot>() == 31, "a field is out of its place");

impl OrderAddedRoot {
    /// Bytes of the block by the schema.
    pub const BLOCK_LEN: usize = 31;
    /// `price.exponent`.
    pub const PRICE_EXPONENT: i8 = -6;
}

impl Block for OrderAddedRoot {
    const LEN_MIN: usize = 31;
    const NULL: Self = Self {
        timestamp: wire::U64::new(u64::MAX),
        security_id: wire::U16::new(u16::MAX),
        order_id: wire::U64::new(u64::MAX),
        side: u8::MAX,
        quantity: wire::U32::new(u32::MAX),
        price: wire::I64::new(i64::MIN),
    };
    const FIELDS: &'static [Extent] = &[
        Extent { offset: 0, end: 8 },
        Extent { offset: 8, end: 10 },
        Extent { offset: 10, end: 18 },
        Extent { offset: 18, end: 19 },
        Extent { offset: 19, end: 23 },
        Extent { offset: 23, end: 31 },
    ];

    fn fields(&self, visitor: &mut dyn Visitor) {
        visitor.field("timestamp", Value::Uint(self.timestamp.get()));
        visitor.field("securityId", Value::Uint(self.security_id.get().into()));
        visitor.field("orderId", Value::Uint(self.order_id.get()));
        visitor.field("side", Value::Uint(self.side.into()));
        visitor.field("quantity", Value::Uint(self.quantity.get().into()));
        visitor.field("price", Value::Int(self.price.get()));
        visitor.field("price.exponent", Value::Int(-6));
    }
}

/// The message `OrderAdded`.
#[derive(Clone, Debug)]
pub struct OrderAdded {
    /// Its fields.
    pub root: OrderAddedRoot,
}

impl OrderAdded {
    /// The template's number.
    pub const ID: u16 = 10;
    /// Its name in the schema.
    pub const NAME: &'static str = "OrderAdded";

    /// Checks the message's extent and reads its root. `body` follows the header.
    #[inline]
    pub fn parse(head: MessageHead, body: &[u8]) -> Result<Self, SbeError> {
        let (root, _) = head.split_root(body)?;
        let root = OrderAddedRoot::read(root)?;
        Ok(Self { root })
    }
}

/// The root of `OrderDeleted`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct OrderDeletedRoot {
    /// `timestamp`.
    pub timestamp: wire::U64,
    /// `securityId`.
    pub security_id: wire::U16,
    /// `orderId`.
    pub order_id: wire::U64,
}

const _: () = assert!(size_of::<OrderDeletedRoot>() == 18, "a field is out of its place");

impl OrderDeletedRoot {
    /// Bytes of the block by the schema.
    pub const BLOCK_LEN: usize = 18;
}

impl Block for OrderDeletedRoot {
    const LEN_MIN: usize = 18;
    const NULL: Self = Self {
        timestamp: wire::U64::new(u64::MAX),
        security_id: wire::U16::new(u16::MAX),
        order_id: wire::U64::new(u64::MAX),
    };
    const FIELDS: &'static [Extent] = &[
        Extent { offset: 0, end: 8 },
        Extent { offset: 8, end: 10 },
        Extent { offset: 10, end: 18 },
    ];

    fn fields(&self, visitor: &mut dyn Visitor) {
        visitor.field("timestamp", Value::Uint(self.timestamp.get()));
        visitor.field("securityId", Value::Uint(self.security_id.get().into()));
        visitor.field("orderId", Value::Uint(self.order_id.get()));
    }
}

/// The message `OrderDeleted`.
#[derive(Clone, Debug)]
pub struct OrderDeleted {
    /// Its fields.
    pub root: OrderDeletedRoot,
}

impl OrderDeleted {
    /// The template's number.
    pub const ID: u16 = 11;
    /// Its name in the schema.
    pub const NAME: &'static str = "OrderDeleted";

    /// Checks the message's extent and reads its root. `body` follows the header.
    #[inline]
    pub fn parse(head: MessageHead, body: &[u8]) -> Result<Self, SbeError> {
        let (root, _) = head.split_root(body)?;
        let root = OrderDeletedRoot::read(root)?;
        Ok(Self { root })
    }
}

/// The root of `OrderReduced`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct OrderReducedRoot {
    /// `timestamp`.
    pub timestamp: wire::U64,
    /// `securityId`.
    pub security_id: wire::U16,
    /// `orderId`.
    pub order_id: wire::U64,
    /// `quantity`.
    pub quantity: wire::U32,
}

const _: () = assert!(size_of::<OrderReducedRoot>() == 22, "a field is out of its place");

impl OrderReducedRoot {
    /// Bytes of the block by the schema.
    pub const BLOCK_LEN: usize = 22;
}

impl Block for OrderReducedRoot {
    const LEN_MIN: usize = 22;
    const NULL: Self = Self {
        timestamp: wire::U64::new(u64::MAX),
        security_id: wire::U16::new(u16::MAX),
        order_id: wire::U64::new(u64::MAX),
        quantity: wire::U32::new(u32::MAX),
    };
    const FIELDS: &'static [Extent] = &[
        Extent { offset: 0, end: 8 },
        Extent { offset: 8, end: 10 },
        Extent { offset: 10, end: 18 },
        Extent { offset: 18, end: 22 },
    ];

    fn fields(&self, visitor: &mut dyn Visitor) {
        visitor.field("timestamp", Value::Uint(self.timestamp.get()));
        visitor.field("securityId", Value::Uint(self.security_id.get().into()));
        visitor.field("orderId", Value::Uint(self.order_id.get()));
        visitor.field("quantity", Value::Uint(self.quantity.get().into()));
    }
}

/// The message `OrderReduced`.
#[derive(Clone, Debug)]
pub struct OrderReduced {
    /// Its fields.
    pub root: OrderReducedRoot,
}

impl OrderReduced {
    /// The template's number.
    pub const ID: u16 = 12;
    /// Its name in the schema.
    pub const NAME: &'static str = "OrderReduced";

    /// Checks the message's extent and reads its root. `body` follows the header.
    #[inline]
    pub fn parse(head: MessageHead, body: &[u8]) -> Result<Self, SbeError> {
        let (root, _) = head.split_root(body)?;
        let root = OrderReducedRoot::read(root)?;
        Ok(Self { root })
    }
}

/// The root of `OrderExecuted`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct OrderExecutedRoot {
    /// `timestamp`.
    pub timestamp: wire::U64,
    /// `securityId`.
    pub security_id: wire::U16,
    /// `orderId`.
    pub order_id: wire::U64,
    /// `tradeId`.
    pub trade_id: wire::U64,
    /// `quantity`.
    pub quantity: wire::U32,
    /// `price`.
    pub price: wire::I64,
}

const _: () = assert!(size_of::<OrderExecutedRoot>() == 38, "a field is out of its place");

impl OrderExecutedRoot {
    /// Bytes of the block by the schema.
    pub const BLOCK_LEN: usize = 38;
    /// `price.exponent`.
    pub const PRICE_EXPONENT: i8 = -6;
}

impl Block for OrderExecutedRoot {
    const LEN_MIN: usize = 38;
    const NULL: Self = Self {
        timestamp: wire::U64::new(u64::MAX),
        security_id: wire::U16::new(u16::MAX),
        order_id: wire::U64::new(u64::MAX),
        trade_id: wire::U64::new(u64::MAX),
        quantity: wire::U32::new(u32::MAX),
        price: wire::I64::new(i64::MIN),
    };
    const FIELDS: &'static [Extent] = &[
        Extent { offset: 0, end: 8 },
        Extent { offset: 8, end: 10 },
        Extent { offset: 10, end: 18 },
        Extent { offset: 18, end: 26 },
        Extent { offset: 26, end: 30 },
        Extent { offset: 30, end: 38 },
    ];

    fn fields(&self, visitor: &mut dyn Visitor) {
        visitor.field("timestamp", Value::Uint(self.timestamp.get()));
        visitor.field("securityId", Value::Uint(self.security_id.get().into()));
        visitor.field("orderId", Value::Uint(self.order_id.get()));
        visitor.field("tradeId", Value::Uint(self.trade_id.get()));
        visitor.field("quantity", Value::Uint(self.quantity.get().into()));
        visitor.field("price", Value::Int(self.price.get()));
        visitor.field("price.exponent", Value::Int(-6));
    }
}

/// The message `OrderExecuted`.
#[derive(Clone, Debug)]
pub struct OrderExecuted {
    /// Its fields.
    pub root: OrderExecutedRoot,
}

impl OrderExecuted {
    /// The template's number.
    pub const ID: u16 = 13;
    /// Its name in the schema.
    pub const NAME: &'static str = "OrderExecuted";

    /// Checks the message's extent and reads its root. `body` follows the header.
    #[inline]
    pub fn parse(head: MessageHead, body: &[u8]) -> Result<Self, SbeError> {
        let (root, _) = head.split_root(body)?;
        let root = OrderExecutedRoot::read(root)?;
        Ok(Self { root })
    }
}

/// The root of `Trade`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct TradeRoot {
    /// `timestamp`.
    pub timestamp: wire::U64,
    /// `securityId`.
    pub security_id: wire::U16,
    /// `tradeId`.
    pub trade_id: wire::U64,
    /// `quantity`.
    pub quantity: wire::U32,
    /// `price`.
    pub price: wire::I64,
}

const _: () = assert!(size_of::<TradeRoot>() == 30, "a field is out of its place");

impl TradeRoot {
    /// Bytes of the block by the schema.
    pub const BLOCK_LEN: usize = 30;
    /// `price.exponent`.
    pub const PRICE_EXPONENT: i8 = -6;
}

impl Block for TradeRoot {
    const LEN_MIN: usize = 30;
    const NULL: Self = Self {
        timestamp: wire::U64::new(u64::MAX),
        security_id: wire::U16::new(u16::MAX),
        trade_id: wire::U64::new(u64::MAX),
        quantity: wire::U32::new(u32::MAX),
        price: wire::I64::new(i64::MIN),
    };
    const FIELDS: &'static [Extent] = &[
        Extent { offset: 0, end: 8 },
        Extent { offset: 8, end: 10 },
        Extent { offset: 10, end: 18 },
        Extent { offset: 18, end: 22 },
        Extent { offset: 22, end: 30 },
    ];

    fn fields(&self, visitor: &mut dyn Visitor) {
        visitor.field("timestamp", Value::Uint(self.timestamp.get()));
        visitor.field("securityId", Value::Uint(self.security_id.get().into()));
        visitor.field("tradeId", Value::Uint(self.trade_id.get()));
        visitor.field("quantity", Value::Uint(self.quantity.get().into()));
        visitor.field("price", Value::Int(self.price.get()));
        visitor.field("price.exponent", Value::Int(-6));
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
    pub const ID: u16 = 14;
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

/// The root of `BrokenTrade`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct BrokenTradeRoot {
    /// `timestamp`.
    pub timestamp: wire::U64,
    /// `securityId`.
    pub security_id: wire::U16,
    /// `tradeId`.
    pub trade_id: wire::U64,
    /// `quantity`.
    pub quantity: wire::U32,
    /// `price`.
    pub price: wire::I64,
}

const _: () = assert!(size_of::<BrokenTradeRoot>() == 30, "a field is out of its place");

impl BrokenTradeRoot {
    /// Bytes of the block by the schema.
    pub const BLOCK_LEN: usize = 30;
    /// `price.exponent`.
    pub const PRICE_EXPONENT: i8 = -6;
}

impl Block for BrokenTradeRoot {
    const LEN_MIN: usize = 30;
    const NULL: Self = Self {
        timestamp: wire::U64::new(u64::MAX),
        security_id: wire::U16::new(u16::MAX),
        trade_id: wire::U64::new(u64::MAX),
        quantity: wire::U32::new(u32::MAX),
        price: wire::I64::new(i64::MIN),
    };
    const FIELDS: &'static [Extent] = &[
        Extent { offset: 0, end: 8 },
        Extent { offset: 8, end: 10 },
        Extent { offset: 10, end: 18 },
        Extent { offset: 18, end: 22 },
        Extent { offset: 22, end: 30 },
    ];

    fn fields(&self, visitor: &mut dyn Visitor) {
        visitor.field("timestamp", Value::Uint(self.timestamp.get()));
        visitor.field("securityId", Value::Uint(self.security_id.get().into()));
        visitor.field("tradeId", Value::Uint(self.trade_id.get()));
        visitor.field("quantity", Value::Uint(self.quantity.get().into()));
        visitor.field("price", Value::Int(self.price.get()));
        visitor.field("price.exponent", Value::Int(-6));
    }
}

/// The message `BrokenTrade`.
#[derive(Clone, Debug)]
pub struct BrokenTrade {
    /// Its fields.
    pub root: BrokenTradeRoot,
}

impl BrokenTrade {
    /// The template's number.
    pub const ID: u16 = 15;
    /// Its name in the schema.
    pub const NAME: &'static str = "BrokenTrade";

    /// Checks the message's extent and reads its root. `body` follows the header.
    #[inline]
    pub fn parse(head: MessageHead, body: &[u8]) -> Result<Self, SbeError> {
        let (root, _) = head.split_root(body)?;
        let root = BrokenTradeRoot::read(root)?;
        Ok(Self { root })
    }
}

/// The root of `CorrectedTrade`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct CorrectedTradeRoot {
    /// `timestamp`.
    pub timestamp: wire::U64,
    /// `securityId`.
    pub security_id: wire::U16,
    /// `tradeId`.
    pub trade_id: wire::U64,
    /// `oldQuantity`.
    pub old_quantity: wire::U32,
    /// `oldPrice`.
    pub old_price: wire::I64,
    /// `quantity`.
    pub quantity: wire::U32,
    /// `price`.
    pub price: wire::I64,
}

const _: () = assert!(size_of::<CorrectedTradeRoot>() == 42, "a field is out of its place");

impl CorrectedTradeRoot {
    /// Bytes of the block by the schema.
    pub const BLOCK_LEN: usize = 42;
    /// `oldPrice.exponent`.
    pub const OLD_PRICE_EXPONENT: i8 = -6;
    /// `price.exponent`.
    pub const PRICE_EXPONENT: i8 = -6;
}

impl Block for CorrectedTradeRoot {
    const LEN_MIN: usize = 42;
    const NULL: Self = Self {
        timestamp: wire::U64::new(u64::MAX),
        security_id: wire::U16::new(u16::MAX),
        trade_id: wire::U64::new(u64::MAX),
        old_quantity: wire::U32::new(u32::MAX),
        old_price: wire::I64::new(i64::MIN),
        quantity: wire::U32::new(u32::MAX),
        price: wire::I64::new(i64::MIN),
    };
    const FIELDS: &'static [Extent] = &[
        Extent { offset: 0, end: 8 },
        Extent { offset: 8, end: 10 },
        Extent { offset: 10, end: 18 },
        Extent { offset: 18, end: 22 },
        Extent { offset: 22, end: 30 },
        Extent { offset: 30, end: 34 },
        Extent { offset: 34, end: 42 },
    ];

    fn fields(&self, visitor: &mut dyn Visitor) {
        visitor.field("timestamp", Value::Uint(self.timestamp.get()));
        visitor.field("securityId", Value::Uint(self.security_id.get().into()));
        visitor.field("tradeId", Value::Uint(self.trade_id.get()));
        visitor.field("oldQuantity", Value::Uint(self.old_quantity.get().into()));
        visitor.field("oldPrice", Value::Int(self.old_price.get()));
        visitor.field("oldPrice.exponent", Value::Int(-6));
        visitor.field("quantity", Value::Uint(self.quantity.get().into()));
        visitor.field("price", Value::Int(self.price.get()));
        visitor.field("price.exponent", Value::Int(-6));
    }
}

/// The message `CorrectedTrade`.
#[derive(Clone, Debug)]
pub struct CorrectedTrade {
    /// Its fields.
    pub root: CorrectedTradeRoot,
}

impl CorrectedTrade {
    /// The template's number.
    pub const ID: u16 = 16;
    /// Its name in the schema.
    pub const NAME: &'static str = "CorrectedTrade";

    /// Checks the message's extent and reads its root. `body` follows the header.
    #[inline]
    pub fn parse(head: MessageHead, body: &[u8]) -> Result<Self, SbeError> {
        let (root, _) = head.split_root(body)?;
        let root = CorrectedTradeRoot::read(root)?;
        Ok(Self { root })
    }
}

/// The root of `ClearBook`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ClearBookRoot {
    /// `timestamp`.
    pub timestamp: wire::U64,
    /// `securityId`.
    pub security_id: wire::U16,
}

const _: () = assert!(size_of::<ClearBookRoot>() == 10, "a field is out of its place");

impl ClearBookRoot {
    /// Bytes of the block by the schema.
    pub const BLOCK_LEN: usize = 10;
}

impl Block for ClearBookRoot {
    const LEN_MIN: usize = 10;
    const NULL: Self = Self {
        timestamp: wire::U64::new(u64::MAX),
        security_id: wire::U16::new(u16::MAX),
    };
    const FIELDS: &'static [Extent] = &[
        Extent { offset: 0, end: 8 },
        Extent { offset: 8, end: 10 },
    ];

    fn fields(&self, visitor: &mut dyn Visitor) {
        visitor.field("timestamp", Value::Uint(self.timestamp.get()));
        visitor.field("securityId", Value::Uint(self.security_id.get().into()));
    }
}

/// The message `ClearBook`.
#[derive(Clone, Debug)]
pub struct ClearBook {
    /// Its fields.
    pub root: ClearBookRoot,
}

impl ClearBook {
    /// The template's number.
    pub const ID: u16 = 18;
    /// Its name in the schema.
    pub const NAME: &'static str = "ClearBook";

    /// Checks the message's extent and reads its root. `body` follows the header.
    #[inline]
    pub fn parse(head: MessageHead, body: &[u8]) -> Result<Self, SbeError> {
        let (root, _) = head.split_root(body)?;
        let root = ClearBookRoot::read(root)?;
        Ok(Self { root })
    }
}

/// The root of `SnapshotComplete`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct SnapshotCompleteRoot {
    /// `timestamp`.
    pub timestamp: wire::U64,
    /// `asOf`.
    pub as_of: wire::U64,
}

const _: () = assert!(size_of::<SnapshotCompleteRoot>() == 16, "a field is out of its place");

impl SnapshotCompleteRoot {
    /// Bytes of the block by the schema.
    pub const BLOCK_LEN: usize = 16;
}

impl Block for SnapshotCompleteRoot {
    const LEN_MIN: usize = 16;
    const NULL: Self = Self {
        timestamp: wire::U64::new(u64::MAX),
        as_of: wire::U64::new(u64::MAX),
    };
    const FIELDS: &'static [Extent] = &[
        Extent { offset: 0, end: 8 },
        Extent { offset: 8, end: 16 },
    ];

    fn fields(&self, visitor: &mut dyn Visitor) {
        visitor.field("timestamp", Value::Uint(self.timestamp.get()));
        visitor.field("asOf", Value::Uint(self.as_of.get()));
    }
}

/// The message `SnapshotComplete`.
#[derive(Clone, Debug)]
pub struct SnapshotComplete {
    /// Its fields.
    pub root: SnapshotCompleteRoot,
}

impl SnapshotComplete {
    /// The template's number.
    pub const ID: u16 = 100;
    /// Its name in the schema.
    pub const NAME: &'static str = "SnapshotComplete";

    /// Checks the message's extent and reads its root. `body` follows the header.
    #[inline]
    pub fn parse(head: MessageHead, body: &[u8]) -> Result<Self, SbeError> {
        let (root, _) = head.split_root(body)?;
        let root = SnapshotCompleteRoot::read(root)?;
        Ok(Self { root })
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
            let message = InstrumentDirectory::parse(head, body)?;
            visitor.message("InstrumentDirectory", head.template, head.version);
            message.root.fields(visitor);
        }
        2 => {
            let message = ShortSaleRestriction::parse(head, body)?;
            visitor.message("ShortSaleRestriction", head.template, head.version);
            message.root.fields(visitor);
        }
        3 => {
            let message = TradingStatus::parse(head, body)?;
            visitor.message("TradingStatus", head.template, head.version);
            message.root.fields(visitor);
        }
        5 => {
            let message = SessionStatus::parse(head, body)?;
            visitor.message("SessionStatus", head.template, head.version);
            message.root.fields(visitor);
        }
        10 => {
            let message = OrderAdded::parse(head, body)?;
            visitor.message("OrderAdded", head.template, head.version);
            message.root.fields(visitor);
        }
        11 => {
            let message = OrderDeleted::parse(head, body)?;
            visitor.message("OrderDeleted", head.template, head.version);
            message.root.fields(visitor);
        }
        12 => {
            let message = OrderReduced::parse(head, body)?;
            visitor.message("OrderReduced", head.template, head.version);
            message.root.fields(visitor);
        }
        13 => {
            let message = OrderExecuted::parse(head, body)?;
            visitor.message("OrderExecuted", head.template, head.version);
            message.root.fields(visitor);
        }
        14 => {
            let message = Trade::parse(head, body)?;
            visitor.message("Trade", head.template, head.version);
            message.root.fields(visitor);
        }
        15 => {
            let message = BrokenTrade::parse(head, body)?;
            visitor.message("BrokenTrade", head.template, head.version);
            message.root.fields(visitor);
        }
        16 => {
            let message = CorrectedTrade::parse(head, body)?;
            visitor.message("CorrectedTrade", head.template, head.version);
            message.root.fields(visitor);
        }
        18 => {
            let message = ClearBook::parse(head, body)?;
            visitor.message("ClearBook", head.template, head.version);
            message.root.fields(visitor);
        }
        100 => {
            let message = SnapshotComplete::parse(head, body)?;
            visitor.message("SnapshotComplete", head.template, head.version);
            message.root.fields(visitor);
        }
        other => return Err(SbeError::UnknownTemplate(other)),
    }
    Ok(())
}
