//! The completion queue entry of 64 bytes, which is the upper half of the 128-byte form
//! (mlx5.md 2.9): offsets and values of its fields. Nothing here is validated; the user of a field
//! checks it.

use crate::device::mlx5::ring::RingEntry;

/// Bytes of a CQE.
pub(crate) const CQE_LEN: usize = 64;

/// The value of `op_own` in an invalid entry: opcode 15 (mlx5.md 2.9, 2.10).
pub(crate) const OP_OWN_INVALID: u8 = 0xf0;
/// `op_own` of a frame in the plain format (`RESP_SEND`), without the owner bit.
pub(crate) const OP_OWN_RECEIVED: u8 = 0x20;
/// `op_own` of the title of a compressed session.
pub(crate) const OP_OWN_TITLE: u8 = 0x2c;
/// The solicited event bit, which is ignored here.
pub(crate) const OP_OWN_SOLICITED: u8 = 0x02;
/// Offset of `op_own`: opcode in bits 7:4, format in 3:2, solicited event in 1, owner in 0.
pub(crate) const AT_OP_OWN: usize = 63;

/// The encoding of a rule's tag for the device; `None` if the tag is too large.
pub(crate) fn flow_tag_on_wire(tag: u32) -> Option<u32> {
    (tag < 0x00ff_ffff).then(|| tag + 1)
}

/// A CQE in the ring. Each access reads memory again, so a caller keeps the value that it checked.
#[derive(Clone, Copy)]
pub(crate) struct Cqe<'a>(pub(crate) RingEntry<'a, CQE_LEN>);

/// The opcode of a CQE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opcode {
    /// The send ring's WQEs up to the WQE counter are done (`REQ`).
    Sent,
    /// A frame was received (`RESP_SEND`, also with immediate data, which Ethernet has not).
    Received,
    /// A WQE of the send ring failed (`REQ_ERR`).
    SendFailed,
    /// A WQE of the receive ring failed (`RESP_ERR`).
    ReceiveFailed,
    /// Not valid on an Ethernet queue.
    Other(u8),
}

/// The format of the rest of the CQE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// A plain CQE.
    Plain,
    /// Data in the CQE: 32 or 64 bytes of it.
    Inline,
    /// The title of a compressed session (mlx5.md 2.10).
    Compressed,
}

/// Why a WQE failed (mlx5.md 2.9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Syndrome {
    /// 01: the buffers are shorter than the frame, or the lengths of a WQE are inconsistent.
    LocalLength,
    /// 02: the NIC cannot parse the WQE.
    LocalQpOperation,
    /// 04: an lkey or an address that is not registered.
    LocalProtection,
    /// 05: posted to a queue that was already in error.
    Flushed,
    /// 11: no write permission.
    LocalAccess,
    /// Any other; they are specific to RDMA.
    Other(u8),
}

impl Cqe<'_> {
    /// Opcode, format and owner in one byte.
    #[inline(always)]
    pub(crate) fn op_own(self) -> u8 {
        self.0.byte::<AT_OP_OWN>()
    }

    /// The opcode.
    #[inline]
    pub(crate) fn opcode(self) -> Opcode {
        match self.op_own() >> 4 {
            0 => Opcode::Sent,
            2 | 3 => Opcode::Received,
            13 => Opcode::SendFailed,
            14 => Opcode::ReceiveFailed,
            other => Opcode::Other(other),
        }
    }

    /// The format.
    #[inline]
    pub(crate) fn format(self) -> Format {
        match (self.op_own() >> 2) & 3 {
            0 => Format::Plain,
            3 => Format::Compressed,
            _ => Format::Inline,
        }
    }

    /// Send: the index of the WQE's first basic block. Receive: the index of the WQE, or with
    /// several frames per WQE that of the frame's first stride.
    #[inline(always)]
    pub(crate) fn wqe_counter(self) -> u16 {
        self.0.be16::<60>()
    }

    /// The last word: the WQE counter, the signature, and `op_own`.
    #[inline(always)]
    pub(crate) fn tail(self) -> u32 {
        self.0.be32::<60>()
    }

    /// The index of the WQE, with several frames per WQE.
    #[inline(always)]
    pub(crate) fn wqe_id(self) -> u16 {
        self.0.be16::<2>()
    }

    /// Whether the checksum bits describe headers inside a tunnel.
    #[inline(always)]
    pub(crate) fn is_tunneled(self) -> bool {
        self.0.byte::<0>() & 1 != 0
    }

    /// The Toeplitz hash; zero for a frame without a hash, such as a frame that is not IP.
    #[inline(always)]
    pub(crate) fn rx_hash(self) -> u32 {
        self.0.be32::<12>()
    }

    /// `hds_ip_ext`, header types and the stripped VLAN tag: bytes 28 to 31.
    #[inline(always)]
    pub(crate) fn headers(self) -> u32 {
        self.0.be32::<28>()
    }

    /// Bytes of the frame; with several frames per WQE also strides and a filler bit; in a title
    /// the number of frames of the session.
    #[inline(always)]
    pub(crate) fn byte_count(self) -> u32 {
        self.0.be32::<44>()
    }

    /// The timestamp, in the format that the queue was created with.
    #[inline(always)]
    pub(crate) fn timestamp(self) -> u64 {
        self.0.be64::<48>()
    }

    /// The tag of the flow rule, or all ones for none. Without a rule the 24 bits are zero, so a
    /// rule's tag plus one is installed: [`flow_tag_on_wire`].
    #[inline(always)]
    pub(crate) fn flow_tag(self) -> u32 {
        (self.0.be32::<56>() & 0x00ff_ffff).wrapping_sub(1)
    }

    /// The syndrome of an error CQE.
    #[inline]
    pub(crate) fn syndrome(self) -> Syndrome {
        match self.0.byte::<55>() {
            0x01 => Syndrome::LocalLength,
            0x02 => Syndrome::LocalQpOperation,
            0x04 => Syndrome::LocalProtection,
            0x05 => Syndrome::Flushed,
            0x11 => Syndrome::LocalAccess,
            other => Syndrome::Other(other),
        }
    }
}
