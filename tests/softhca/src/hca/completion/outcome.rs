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
    /// A message was received, or an immediate.
    ReceivedMessage(RxMessage),
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

/// An RDMA message that completed a receive WQE; mlx5.md 2.9.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RxMessage {
    /// Bytes of the message; of a datagram with the room for its GRH.
    pub byte_count: u32,
    /// What came.
    pub kind: RxMessageKind,
    /// The sender asked for an event.
    pub solicited: bool,
    /// UD: the sender's number.
    pub source_qp: u32,
    /// UD: what lies in front of the payload. 0 nothing, 1 an IPv6 header, 2 an IPv4 header.
    pub grh: u8,
}

/// The kinds of messages that complete a receive WQE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RxMessageKind {
    /// SEND.
    #[default]
    Send,
    /// SEND with an immediate.
    SendImmediate(u32),
    /// SEND that invalidated a key.
    SendInvalidate(u32),
    /// WRITE with an immediate.
    WriteImmediate(u32),
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
    /// A memory window that cannot be bound or invalidated.
    MwBind = 0x06,
    /// The peer answered what was not asked.
    BadResponse = 0x10,
    /// A region that may not be written.
    LocalAccess = 0x11,
    /// The peer refused the request as impossible.
    RemoteInvalidRequest = 0x12,
    /// The peer refused the access to its memory.
    RemoteAccess = 0x13,
    /// The peer failed to execute the request.
    RemoteOperation = 0x14,
    /// The peer did not answer, however often it was asked.
    TransportRetry = 0x15,
    /// The peer was not ready, however often it was asked.
    RnrRetry = 0x16,
}
