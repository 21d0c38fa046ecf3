//! The reasons why a send WQE fails: the syndrome for the error CQE, and a sentence for people.

use crate::hca::Syndrome;
use crate::hca::memory::Unreachable;
use std::fmt;

/// One reason. The vendor's number in the error CQE is [`Fault::vendor`], so a driver's log leads
/// here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::hca) enum Fault {
    /// The ring or the doorbell record is not mapped.
    RingUnmapped,
    /// The CQ overran, so that nothing can be completed.
    CqDead,
    /// The doorbell record names more than the ring holds.
    RecordBeyondRing { ahead: u16, wqebb_count: u32 },
    /// An opcode that the queue does not have, or that is not announced.
    Opcode(u8),
    /// An opcode modifier where there is none.
    Opmod(u8),
    /// `wqe_index` is not the position of the WQE.
    Index { found: u16, expected: u16 },
    /// The number of another queue.
    Number { found: u32, expected: u32 },
    /// `ds` is beyond its six bits, or too small for the segments that must follow.
    Size { ds: u8 },
    /// Longer than this NIC's firmware takes them.
    TooLong { len: usize, max: u16 },
    /// The WQE is longer than the part that the doorbell record has released.
    BeyondRecord { wqebbs: u16, released: u16 },
    /// A signature, on a queue without signatures.
    Signature(u8),
    /// Reserved bits of the control segment.
    ControlReserved,
    /// An immediate, which Ethernet cannot carry.
    Immediate(u32),
    /// Parser offsets or flags, which are not announced.
    SoftwareParser,
    /// Unknown checksum flags.
    ChecksumFlags(u8),
    /// `mss` without TSO, or TSO without it.
    SegmentSize { mss: u16 },
    /// `inline_hdr_sz` or insert type with reserved bits.
    InlineType(u16),
    /// More inline headers than the WQE holds.
    InlineHeaders { len: usize, room: usize },
    /// Fewer inline headers than this NIC needs.
    InlineHeadersMissing { len: usize, min: usize },
    /// An inline segment that is empty or longer than the WQE.
    InlineData { len: usize, room: usize },
    /// A pointer to no bytes: hardware takes it for 2 GB.
    EmptyPointer { unit: usize },
    /// A pointer that leads nowhere.
    Pointer { unit: usize, why: Unreachable, lkey: u32, address: u64, len: u32 },
    /// The region is registered, but its memory is no longer mapped.
    PointerUnmapped { address: u64, len: u32 },
    /// A frame that does not hold an Ethernet header.
    FrameShort { len: u64 },
    /// TSO headers that are not Ethernet, IP and TCP, or whose length differs from `inline_hdr_sz`.
    TsoHeaders { len: usize },
    /// A TSO payload that is empty or longer than announced.
    TsoPayload { len: u64, max: u32 },
    /// Inline headers or VLAN insertion in a multi-packet WQE.
    MultiPacketInline(u16),
    /// RDMA: a message longer than the port or, of a datagram, its MTU allows.
    MessageLong { len: u64, max: u32 },
    /// RDMA: an atomic of a length other than 8 bytes.
    AtomicLength { len: u64 },
    /// RDMA: a window that is not free, or not bound, or a region that it cannot be bound to.
    Window,
    /// RDMA: a datagram from a GID that the port does not have.
    SourceGid { index: u8 },
    /// RDMA: the peer refused, or did not answer.
    Peer(Syndrome),
    /// Nothing but bad luck, in hostile mode.
    BadLuck,
    /// Strict mode: a register was written before the doorbell record.
    RecordLate { record: u16, rung: u16 },
    /// Strict mode: a register was written with bytes that are not the control segment of the WQE
    /// that it names.
    RegisterWrong { register: u64, ring: u64 },
    /// Strict mode: BlueFlame carried other bytes than the ring holds.
    BlueFlameDiffers { offset: usize },
}

impl Fault {
    /// Byte 55 of the error CQE.
    pub(in crate::hca) fn syndrome(self) -> Syndrome {
        match self {
            Self::Pointer { why, .. } => why.syndrome(),
            Self::PointerUnmapped { .. } => Syndrome::LocalProtection,
            Self::EmptyPointer { .. } | Self::FrameShort { .. } | Self::TsoPayload { .. } => Syndrome::LocalLength,
            Self::MessageLong { .. } | Self::AtomicLength { .. } => Syndrome::LocalLength,
            Self::Peer(syndrome) => syndrome,
            Self::Window => Syndrome::MwBind,
            _ => Syndrome::LocalQpOperation,
        }
    }

    /// Byte 54 of the error CQE. Real vendors do not publish their values; these are our own, and
    /// must not change.
    pub(in crate::hca) fn vendor(self) -> u8 {
        match self {
            Self::RingUnmapped => 0x01,
            Self::RecordBeyondRing { .. } => 0x02,
            Self::CqDead => 0x03,
            Self::Opcode(_) => 0x10,
            Self::Opmod(_) => 0x11,
            Self::Index { .. } => 0x12,
            Self::Number { .. } => 0x13,
            Self::Size { .. } => 0x14,
            Self::BeyondRecord { .. } => 0x15,
            Self::Signature(_) => 0x16,
            Self::ControlReserved => 0x17,
            Self::TooLong { .. } => 0x19,
            Self::Immediate(_) => 0x18,
            Self::SoftwareParser => 0x20,
            Self::ChecksumFlags(_) => 0x21,
            Self::SegmentSize { .. } => 0x22,
            Self::InlineType(_) => 0x23,
            Self::InlineHeaders { .. } => 0x24,
            Self::InlineHeadersMissing { .. } => 0x25,
            Self::InlineData { .. } => 0x30,
            Self::EmptyPointer { .. } => 0x31,
            Self::Pointer { .. } => 0x32,
            Self::PointerUnmapped { .. } => 0x33,
            Self::FrameShort { .. } => 0x34,
            Self::TsoHeaders { .. } => 0x40,
            Self::TsoPayload { .. } => 0x41,
            Self::MultiPacketInline(_) => 0x48,
            Self::MessageLong { .. } => 0x50,
            Self::AtomicLength { .. } => 0x51,
            Self::SourceGid { .. } => 0x52,
            Self::Window => 0x53,
            Self::Peer(_) => 0x58,
            Self::BadLuck => 0xbd,
            Self::RecordLate { .. } => 0x80,
            Self::RegisterWrong { .. } => 0x81,
            Self::BlueFlameDiffers { .. } => 0x82,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::RingUnmapped => write!(f, "the ring or its doorbell record is not mapped"),
            Self::CqDead => write!(f, "its completion queue overran: nothing can be completed any more"),
            Self::RecordBeyondRing { ahead, wqebb_count } => {
                write!(f, "the doorbell record is {ahead} WQEBBs ahead, but the ring holds {wqebb_count}")
            }
            Self::Opcode(opcode) => write!(f, "opcode {opcode:#04x} is not one that this queue executes"),
            Self::Opmod(opmod) => write!(f, "opmod is {opmod:#04x}, not 0"),
            Self::Index { found, expected } => write!(f, "wqe_index is {found}, but the WQE lies at {expected}"),
            Self::Number { found, expected } => write!(f, "qpn is {found:#x}, but the queue is {expected:#x}"),
            Self::Size { ds } => {
                write!(f, "ds is {ds}, which is reserved or too little for the segments that must follow")
            }
            Self::TooLong { len, max } => {
                write!(f, "the WQE has {len} bytes, and the longest that this NIC takes has {max}")
            }
            Self::BeyondRecord { wqebbs, released } => {
                write!(f, "the WQE has {wqebbs} WQEBBs, but the doorbell record released only {released}")
            }
            Self::Signature(signature) => write!(f, "signature is {signature:#04x} on a queue without signatures"),
            Self::ControlReserved => write!(f, "reserved bits of the control segment are set"),
            Self::Immediate(imm) => write!(f, "imm is {imm:#x}, which an Ethernet frame cannot carry"),
            Self::SoftwareParser => write!(f, "software parser offsets or flags are set, which are not announced"),
            Self::ChecksumFlags(flags) => {
                write!(f, "cs_flags is {flags:#04x}; only 0x10, 0x20, 0x40 and 0x80 are known")
            }
            Self::SegmentSize { mss } => write!(f, "mss is {mss}: TSO needs one, nothing else may have one"),
            Self::InlineType(word) => write!(f, "inline_hdr_sz or insert type is {word:#06x}: reserved bits are set"),
            Self::InlineHeaders { len, room } => write!(f, "inline_hdr_sz is {len}, but ds leaves room for {room}"),
            Self::InlineHeadersMissing { len, min } => {
                write!(f, "inline_hdr_sz is {len}, but this NIC needs {min} bytes of header inline")
            }
            Self::InlineData { len, room } => {
                write!(f, "an inline segment of {len} bytes, where ds leaves room for 1 to {room}")
            }
            Self::EmptyPointer { unit } => {
                write!(f, "the pointer in unit {unit} has byte_count 0, which hardware takes for 2 GB")
            }
            Self::Pointer { unit, why, lkey, address, len } => {
                let why = why.words();
                write!(f, "the pointer in unit {unit} ({len} bytes at {address:#x}, lkey {lkey:#x}): {why}")
            }
            Self::PointerUnmapped { address, len } => {
                write!(f, "{len} bytes at {address:#x} are registered, but no longer mapped")
            }
            Self::FrameShort { len } => write!(f, "the frame has {len} bytes: not even an Ethernet header"),
            Self::TsoHeaders { len } => {
                write!(f, "the {len} bytes inline are not exactly the Ethernet, IP and TCP headers that TSO needs")
            }
            Self::TsoPayload { len, max } => write!(f, "a TSO payload of {len} bytes, where 1 to {max} are possible"),
            Self::MultiPacketInline(word) => {
                write!(f, "inline_hdr_sz or insert type is {word:#06x} in a multi-packet WQE, which has none")
            }
            Self::MessageLong { len, max } => write!(f, "a message of {len} bytes, where {max} are possible"),
            Self::AtomicLength { len } => write!(f, "an atomic into {len} bytes, where it has 8"),
            Self::Window => f.write_str(
                "a window that is not free to be bound, or not bound to be invalidated, or a region that it cannot be \
                 bound to",
            ),
            Self::SourceGid { index } => write!(f, "the port has no GID {index} to send from"),
            Self::Peer(syndrome) => f.write_str(match syndrome {
                Syndrome::RemoteInvalidRequest => "the peer refused the request as impossible",
                Syndrome::RemoteAccess => "the peer refused the access to its memory",
                Syndrome::RemoteOperation => "the peer failed to execute the request",
                Syndrome::TransportRetry => "the peer did not answer, however often it was asked",
                Syndrome::RnrRetry => "the peer was not ready to receive, however often it was asked",
                _ => "the peer answered what was not asked",
            }),
            Self::BadLuck => write!(f, "bad luck: hostile mode"),
            Self::RecordLate { record, rung } => {
                write!(f, "the register was written for all before {rung}, but the doorbell record still said {record}")
            }
            Self::RegisterWrong { register, ring } => {
                write!(f, "the register was written with {register:#018x}, but the WQE begins with {ring:#018x}")
            }
            Self::BlueFlameDiffers { offset } => {
                write!(
                    f,
                    "BlueFlame carried other bytes than the ring, the first of them at offset {offset} of the WQE"
                )
            }
        }
    }
}
