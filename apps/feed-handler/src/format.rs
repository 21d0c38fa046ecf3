//! The formats and their parts: a framing, a codec and books. [`Format`] is the operator's choice
//! at run time; [`Protocol`] is the same at compile time, so that the data path has no branch on
//! it.

use std::fmt;
use std::str::FromStr;

use market::b3_umdf::B3Umdf as B3UmdfCodec;
use market::eobi::Eobi;
use market::framing::Framing;
use market::framing::b3_umdf::B3Packet;
use market::framing::cboe_unit::CboeUnit;
use market::framing::eobi::EobiPacket;
use market::framing::iex_tp::{IexHeader, IexTp};
use market::framing::mdp3::Mdp3Packet;
use market::framing::memx_udp::MemxUdp;
use market::framing::mold_udp64::MoldUdp64;
use market::framing::pillar::PillarPacket;
use market::iex::deep10::Deep10;
use market::iex::tops16::Tops16;
use market::itch50::Itch50;
use market::mdp3::Mdp3;
use market::memx::MemoirDepth;
use market::pillar::Pillar;
use market::pitch::Pitch;
use market::{Books, Capacity, Decoder, DepthBooks, LevelBooks, NumberedBooks, Numbers, OfChannel, OrderBooks, Quotes};

use crate::feed::{FeedLoops, Loops, NoLoops};
use crate::values::CapacityPlan;

/// Evaluates an expression in which `$P` is the [`Protocol`] of a [`Format`].
macro_rules! with_protocol {
    ($format:expr, $P:ident => $body:expr) => {
        with_protocol!(@ $format, $P => $body;
            MoldItch50 | Itch50File = MoldItch50, IexTops = IexTops, IexDeep = IexDeep, CboePitch = CboePitch,
            CmeMdp3 = CmeMdp3, NysePillar = NysePillar, MemxDepth = MemxDepth,
            B3Umdf = B3Umdf, EurexEobi = EurexEobi)
    };
    (@ $format:expr, $P:ident => $body:expr; $($($name:ident)|+ = $protocol:ident),+) => {
        match $format {
            $($($crate::format::Format::$name)|+ => {
                type $P = $crate::format::$protocol;
                $body
            })+
        }
    };
}

pub(crate) use with_protocol;

/// The operator's name for a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(try_from = "String")]
pub enum Format {
    /// TotalView-ITCH 5.0 in MoldUDP64.
    MoldItch50,
    /// TOPS 1.6 in IEX-TP.
    IexTops,
    /// DEEP 1.0 in IEX-TP.
    IexDeep,
    /// Multicast PITCH 2 in Cboe sequenced units.
    CboePitch,
    /// CME's MDP 3.0: incremental feeds, snapshots and definitions.
    CmeMdp3,
    /// NYSE Pillar's Integrated Feed in XDP packets.
    NysePillar,
    /// MEMX's MEMOIR Depth in MEMX-UDP packets.
    MemxDepth,
    /// B3's binary UMDF, market by order: incremental feeds, snapshots and definitions.
    B3Umdf,
    /// T7's Enhanced Order Book Interface, of Eurex and Xetra: incremental feeds and snapshots.
    EurexEobi,
    /// A plain file of ITCH 5.0 messages, two bytes of length before each.
    Itch50File,
}

impl Format {
    /// All of them, in the order of the documentation.
    pub const ALL: [Self; 10] = [
        Self::MoldItch50,
        Self::IexTops,
        Self::IexDeep,
        Self::CboePitch,
        Self::CmeMdp3,
        Self::NysePillar,
        Self::MemxDepth,
        Self::B3Umdf,
        Self::EurexEobi,
        Self::Itch50File,
    ];

    /// The word on the command line and in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::MoldItch50 => "mold-itch50",
            Self::IexTops => "iex-tops",
            Self::IexDeep => "iex-deep",
            Self::CboePitch => "cboe-pitch",
            Self::CmeMdp3 => "cme-mdp3",
            Self::NysePillar => "nyse-pillar",
            Self::MemxDepth => "memx-depth",
            Self::B3Umdf => "b3-umdf",
            Self::EurexEobi => "eurex-eobi",
            Self::Itch50File => "itch50-file",
        }
    }

    /// Bytes that the books of one channel allocate.
    pub(crate) fn memory(self, capacity: CapacityPlan) -> u128 {
        with_protocol!(self, P => <<P as Protocol>::Books as AllocatedBooks>::memory(self.capacity(capacity)))
    }

    /// The memory of one channel: the operator's limits, and the usual needs of the format.
    pub(crate) fn capacity(self, plan: CapacityPlan) -> Capacity {
        with_protocol!(self, P => plan.over(<P as Protocol>::capacity()))
    }

    /// The largest channel number that the format's packet header can hold (IEX's channel ID, the
    /// unit of Cboe, B3's channel, the product of T7); `None` where the header has no such field.
    pub(crate) const fn channel_number_max(self) -> Option<u32> {
        match self {
            Self::MoldItch50 | Self::Itch50File | Self::CmeMdp3 | Self::NysePillar | Self::MemxDepth => None,
            Self::IexTops | Self::IexDeep | Self::EurexEobi => Some(u32::MAX),
            Self::CboePitch | Self::B3Umdf => Some(u8::MAX as u32),
        }
    }

    /// A message type as the format's own specification writes it: a letter, or a number where
    /// types are numbers, with its name where the number alone says little.
    pub fn kind_name(self, kind: u8) -> String {
        match self {
            Self::CboePitch => format!("0x{kind:02x}"),
            Self::CmeMdp3 => with_name(kind, market::mdp3::name(kind)),
            Self::MemxDepth => with_name(kind, market::memx::name(kind)),
            Self::B3Umdf => with_name(kind, market::b3_umdf::name(kind)),
            Self::EurexEobi => {
                let name = market::eobi::name(kind);
                name.map_or_else(|| "other".to_owned(), |name| format!("{} {name}", market::eobi::template(kind)))
            }
            Self::NysePillar => kind.to_string(),
            _ => kind.escape_ascii().to_string(),
        }
    }
}

fn with_name(kind: u8, name: Option<&str>) -> String {
    name.map_or_else(|| kind.to_string(), |name| format!("{kind} {name}"))
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|format| format.name() == text);
        known.ok_or_else(|| format!("no such format: use {}", Self::ALL.map(Self::name).join(", ")))
    }
}

impl TryFrom<String> for Format {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// A format at compile time.
pub trait Protocol: 'static {
    /// The packets that carry messages.
    type Framing: Framing;
    /// The messages' meaning.
    type Codec: Decoder + Default + Send;
    /// The books built from them.
    type Books: AllocatedBooks + Send + 'static;
    /// What loops of multicast packets recover.
    type Loops: Loops<Self::Books>;

    /// The same at run time; that of a plain file is its messages'.
    const FORMAT: Format;

    /// Whether groups with the same session are lines of one channel. Where packets carry no
    /// session, each group is a separate channel unless the configuration says otherwise.
    const HAS_SESSIONS: bool;

    /// Whether the packet carries this format's messages, where its header says so.
    fn carries(_raw: &<Self::Framing as Framing>::Raw) -> bool {
        true
    }

    /// The default memory for the books of one channel.
    fn capacity() -> Capacity;
}

/// Books that take all their memory when they are made.
pub trait AllocatedBooks: Books {
    /// Empty books; allocates.
    fn allocate(capacity: Capacity) -> Self;

    /// Bytes that [`allocate`](Self::allocate) takes.
    fn memory(capacity: Capacity) -> u128;
}

impl AllocatedBooks for OrderBooks {
    fn allocate(capacity: Capacity) -> Self {
        Self::new(capacity)
    }

    fn memory(capacity: Capacity) -> u128 {
        Self::memory(capacity)
    }
}

impl AllocatedBooks for LevelBooks {
    fn allocate(capacity: Capacity) -> Self {
        Self::new(capacity.books, capacity.levels)
    }

    fn memory(capacity: Capacity) -> u128 {
        Self::memory(capacity.books, capacity.levels)
    }
}

impl AllocatedBooks for DepthBooks {
    fn allocate(capacity: Capacity) -> Self {
        Self::new(capacity.books)
    }

    fn memory(capacity: Capacity) -> u128 {
        Self::memory(capacity.books)
    }
}

impl<N: Numbers> AllocatedBooks for NumberedBooks<N> {
    fn allocate(capacity: Capacity) -> Self {
        Self::new(capacity)
    }

    fn memory(capacity: Capacity) -> u128 {
        Self::memory(capacity)
    }
}

impl AllocatedBooks for Quotes {
    fn allocate(capacity: Capacity) -> Self {
        Self::new(capacity.books)
    }

    fn memory(capacity: Capacity) -> u128 {
        Self::memory(capacity.books)
    }
}

/// See [`Format::MoldItch50`]. Plain files travel the same way: see
/// [`crate::device::ItchFileDevice`].
#[derive(Debug)]
pub enum MoldItch50 {}

/// See [`Format::IexTops`].
#[derive(Debug)]
pub enum IexTops {}

/// See [`Format::IexDeep`].
#[derive(Debug)]
pub enum IexDeep {}

/// See [`Format::CboePitch`].
#[derive(Debug)]
pub enum CboePitch {}

/// See [`Format::CmeMdp3`].
#[derive(Debug)]
pub enum CmeMdp3 {}

/// See [`Format::NysePillar`].
#[derive(Debug)]
pub enum NysePillar {}

/// See [`Format::MemxDepth`].
#[derive(Debug)]
pub enum MemxDepth {}

/// See [`Format::B3Umdf`].
#[derive(Debug)]
pub enum B3Umdf {}

/// See [`Format::EurexEobi`].
#[derive(Debug)]
pub enum EurexEobi {}

impl Protocol for MoldItch50 {
    type Framing = MoldUdp64;
    type Codec = Itch50;
    type Books = OrderBooks;
    type Loops = NoLoops;
    const FORMAT: Format = Format::MoldItch50;
    const HAS_SESSIONS: bool = true;

    /// A whole Nasdaq day: some 210 MB.
    fn capacity() -> Capacity {
        Capacity::default()
    }
}

impl Protocol for IexTops {
    type Framing = IexTp;
    type Codec = Tops16;
    type Books = Quotes;
    type Loops = NoLoops;
    const FORMAT: Format = Format::IexTops;
    const HAS_SESSIONS: bool = true;

    fn carries(raw: &IexHeader) -> bool {
        raw.protocol == IexHeader::TOPS_1_6
    }

    fn capacity() -> Capacity {
        Capacity { books: 16_384, orders: 0, levels: 0 }
    }
}

impl Protocol for IexDeep {
    type Framing = IexTp;
    type Codec = Deep10;
    type Books = LevelBooks;
    type Loops = NoLoops;
    const FORMAT: Format = Format::IexDeep;
    const HAS_SESSIONS: bool = true;

    fn carries(raw: &IexHeader) -> bool {
        raw.protocol == IexHeader::DEEP_1_0
    }

    fn capacity() -> Capacity {
        Capacity { books: 16_384, orders: 0, levels: 1 << 19 }
    }
}

impl Protocol for CboePitch {
    type Framing = CboeUnit;
    type Codec = Pitch;
    type Books = OrderBooks;
    type Loops = NoLoops;
    const FORMAT: Format = Format::CboePitch;
    /// A unit has the same number on its real-time group and on its gap-response group, but
    /// separate sequences.
    const HAS_SESSIONS: bool = false;

    /// One unit of some thirty: 14 MB.
    fn capacity() -> Capacity {
        Capacity { books: 2_048, orders: 1 << 18, levels: 1 << 16 }
    }
}

impl Protocol for CmeMdp3 {
    type Framing = Mdp3Packet;
    type Codec = Mdp3;
    type Books = DepthBooks;
    type Loops = FeedLoops<Mdp3>;
    const FORMAT: Format = Format::CmeMdp3;
    /// Packets carry numbers alone: the feeds of a channel (incremental, snapshots, definitions)
    /// are separate sequences on separate groups.
    const HAS_SESSIONS: bool = false;

    /// The largest channels of options define some ten thousands of instruments, and most have no
    /// book because no message is about them: 21 MB.
    fn capacity() -> Capacity {
        Capacity { books: 16_384, orders: 0, levels: 0 }
    }
}

impl Protocol for NysePillar {
    type Framing = PillarPacket;
    type Codec = Pillar;
    type Books = OrderBooks;
    type Loops = NoLoops;
    const FORMAT: Format = Format::NysePillar;
    /// A channel is a group; its packets do not name it.
    const HAS_SESSIONS: bool = false;

    /// One channel of some ten: 15 MB.
    fn capacity() -> Capacity {
        Capacity { books: 4_096, orders: 1 << 18, levels: 1 << 16 }
    }
}

impl Protocol for MemxDepth {
    type Framing = MemxUdp;
    type Codec = MemoirDepth;
    type Books = OrderBooks;
    type Loops = NoLoops;
    const FORMAT: Format = Format::MemxDepth;
    /// Channels of one day may have the same session.
    const HAS_SESSIONS: bool = false;

    /// One channel, whose directory may have all instruments: 31 MB.
    fn capacity() -> Capacity {
        Capacity { books: 16_384, orders: 1 << 19, levels: 1 << 17 }
    }
}

impl Protocol for B3Umdf {
    type Framing = B3Packet;
    type Codec = B3UmdfCodec;
    type Books = NumberedBooks;
    type Loops = FeedLoops<B3UmdfCodec>;
    const FORMAT: Format = Format::B3Umdf;
    /// Channels may have the same sequence version, and so may the feeds of one.
    const HAS_SESSIONS: bool = false;

    /// One channel of some ten, with options: 40 MB.
    fn capacity() -> Capacity {
        Capacity { books: 32_768, orders: 1 << 18, levels: 1 << 17 }
    }
}

impl Protocol for EurexEobi {
    type Framing = EobiPacket;
    type Codec = Eobi;
    type Books = NumberedBooks<OfChannel>;
    type Loops = FeedLoops<Eobi>;
    const FORMAT: Format = Format::EurexEobi;
    /// A product has the same number on its incremental group and on its snapshots'.
    const HAS_SESSIONS: bool = false;

    /// One product, which may be options on an index or on a share: 18 MB.
    fn capacity() -> Capacity {
        Capacity { books: 16_384, orders: 1 << 16, levels: 1 << 15 }
    }
}
