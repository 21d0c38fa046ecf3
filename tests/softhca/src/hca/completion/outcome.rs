//! The results that the sending and the receiving side pass to a completion queue, before they have
//! the layout of a CQE.

/// One completion for a CQ, which stamps it with the time in the CQ's format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The user index of the queue (cqe_version 1), 24 bits.
    pub user_index: u32,
    /// The number of the queue, 24 bits.
    pub queue_number: u32,
    /// Send: the wqe_index of the control segment. Receive: the WQE's index (cyclic) or the
    /// stride's (striding).
    pub wqe_counter: u16,
    /// The result.
    pub kind: CompletionKind,
}

/// The results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompletionKind {
    /// A send WQE is done.
    Sent {
        /// The WQE's opcode.
        opcode: u8,
        /// Bytes on the wire.
        byte_count: u32,
        /// The completion mode asked for an event as well (3), or for a solicited one.
        solicited: bool,
    },
    /// A frame was received.
    Received(RxHeaders),
    /// A send WQE failed.
    SendError {
        /// Why.
        syndrome: Syndrome,
        /// The vendor's own number, for people.
        vendor: u8,
        /// The WQE's opcode.
        opcode: u8,
    },
    /// A receive WQE failed.
    ReceiveError {
        /// Why.
        syndrome: Syndrome,
        /// The vendor's own number, for people.
        vendor: u8,
    },
}

/// The NIC's findings about a received frame; mlx5.md 2.9.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RxHeaders {
    /// `byte_cnt` as the CQE carries it (striding: filler bit, consumed strides, length).
    pub byte_count: u32,
    /// Striding: index of the WQE.
    pub wqe_id: u16,
    /// Toeplitz hash and its type.
    pub hash: u32,
    /// Which fields were hashed.
    pub hash_type: u8,
    /// Raw ones-complement sum from the end of L2.
    pub checksum: u16,
    /// Byte 0: tunnelled, outer L3 is IPv6.
    pub outer: u8,
    /// Byte 28: L2 ok, L3 checksum ok, L4 checksum ok.
    pub verdicts: u8,
    /// Byte 29: L4 type, L3 type, options, VLAN stripped, fragment.
    pub types: u8,
    /// The tag that was stripped.
    pub vlan: u16,
    /// The tag of the flow that matched, 24 bits.
    pub flow_tag: u32,
}

/// Why a WQE failed; mlx5.md 2.9, error CQE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Syndrome {
    /// A frame longer than its buffers, or a WQE longer than it may be.
    LocalLength = 0x01,
    /// A WQE that makes no sense.
    LocalQpOperation = 0x02,
    /// A key that is not valid, or a range outside its region.
    LocalProtection = 0x04,
    /// Thrown away because the queue is in error.
    Flushed = 0x05,
    /// A region that may not be written.
    LocalAccess = 0x11,
}
