//! The kernel driver's requests to the NIC, after the uverbs front end has parsed them, and the
//! replies before it writes them. Handles are small numbers, each kind with its own sequence.

mod rdma;

pub use rdma::{AddressVector, Gid, QpAttributes, Service, SrqCreated, SrqRequest};

/// A refusal, as the kernel would return it: a positive errno.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

/// A memory region to register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MrRequest {
    /// The protection domain.
    pub pd: u32,
    /// Where it begins in the process.
    pub start: u64,
    /// Bytes.
    pub len: u64,
    /// The address by which WQEs name its begin.
    pub iova: u64,
    /// Rights.
    pub access: AccessFlags,
}

/// `IBV_ACCESS_*`: LOCAL_WRITE 1<<0, REMOTE_WRITE 1<<1, REMOTE_READ 1<<2, REMOTE_ATOMIC 1<<3.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccessFlags(pub u32);

/// A registered region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MrCreated {
    /// For deregistration.
    pub handle: u32,
    /// For WQEs.
    pub lkey: u32,
    /// For peers.
    pub rkey: u32,
}

/// A completion queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CqRequest {
    /// Entries of the ring: a power of two. (The command asks for one less; the front end rounds
    /// up.)
    pub entries: u32,
    /// Where the ring lies.
    pub ring: u64,
    /// Where its two doorbell words lie: consumer index, arm.
    pub doorbell: u64,
    /// 64 or 128 bytes an entry.
    pub entry_len: u32,
    /// Written compressed where that is possible.
    pub compression: Option<Compression>,
    /// 64-byte CQEs padded to 128 in host memory.
    pub pad_128: bool,
    /// Real-time timestamps instead of cycles.
    pub real_time: bool,
    /// Written on where the driver has not read yet (`IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN`), instead
    /// of failing.
    pub ignore_overrun: bool,
    /// The descriptor of the client's completion channel.
    pub channel: Option<i32>,
    /// The value in events of this CQ.
    pub user_handle: u64,
}

/// The field of the mini CQEs beside the byte count; mlx5.md 2.10.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// The receive hash.
    Hash,
    /// The checksum.
    Checksum,
    /// Checksum and stride index.
    ChecksumStride,
}

/// A CQ that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CqCreated {
    /// For later commands.
    pub handle: u32,
    /// Its number, 24 bits.
    pub number: u32,
}

/// Events that a CQ has raised in its life: its destruction waits until the client has acknowledged
/// as many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CqEvents {
    /// On its channel.
    pub completion: u32,
    /// Asynchronous.
    pub asynchronous: u32,
}

/// A queue pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QpRequest {
    /// The protection domain.
    pub pd: u32,
    /// Raw packets with rings of its own, or RSS over an indirection table.
    pub kind: QpKind,
    /// The value in its asynchronous events.
    pub user_handle: u64,
    /// Its user index, 24 bits, by which CQEs name it.
    pub user_index: u32,
    /// Limits that the client asked for; returned unchanged.
    pub capabilities: QpCapabilities,
    /// `IBV_QP_CREATE_*`: scatter FCS 1<<8, VLAN stripping 1<<9, block self multicast loopback
    /// 1<<1.
    pub create_flags: u32,
    /// Every WQE completes, even if it does not ask for it.
    pub signal_all: bool,
}

/// Which kind of QP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QpKind {
    /// `IBV_QPT_RAW_PACKET` with its own rings: the sending one, the receiving one, or both.
    RawPacket {
        /// The sending ring, if it has one.
        send: Option<SqRing>,
        /// The receiving ring, if it has one.
        receive: Option<RqRing>,
    },
    /// Receives by hash into the WQs of a table. Has no other state.
    Rss(RssRequest),
    /// `IBV_QPT_RC`, `IBV_QPT_UC` or `IBV_QPT_UD`.
    Rdma {
        /// Which of them.
        service: Service,
        /// The sending ring, of which there may be none: then it has no WQEBBs.
        send: SqRing,
        /// The receiving ring, if it has one.
        receive: Option<RqRing>,
        /// The handle of the shared receive queue that it receives from instead.
        srq: Option<u32>,
        /// The handle of the CQ that receives complete to.
        receive_cq: u32,
    },
}

/// A sending ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SqRing {
    /// Where it lies.
    pub ring: u64,
    /// Basic blocks of 64 bytes: a power of two.
    pub wqebb_count: u32,
    /// Where its doorbell word lies.
    pub doorbell: u64,
    /// The handle of the CQ that completions go to.
    pub cq: u32,
    /// The index of the UAR page that its doorbell lies on.
    pub uar: u32,
}

/// A receiving ring, of a QP or of a WQ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RqRing {
    /// Where it lies.
    pub ring: u64,
    /// WQEs: a power of two.
    pub wqe_count: u32,
    /// Log2 of a WQE's bytes.
    pub wqe_shift: u32,
    /// Where its doorbell word lies.
    pub doorbell: u64,
    /// The handle of the CQ that completions go to.
    pub cq: u32,
    /// Several frames a WQE.
    pub striding: Option<Striding>,
}

/// How a striding WQE is cut; mlx5.md 2.8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Striding {
    /// Log2 of a stride's bytes.
    pub stride_len_log: u32,
    /// Log2 of the strides of a WQE.
    pub strides_log: u32,
    /// Two bytes of padding before each frame.
    pub shift_two_bytes: bool,
}

/// Limits of a QP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QpCapabilities {
    /// Send requests.
    pub send_wr_max: u32,
    /// Receive requests.
    pub receive_wr_max: u32,
    /// Segments of a send request.
    pub send_sge_max: u32,
    /// Segments of a receive request.
    pub receive_sge_max: u32,
    /// Inline bytes.
    pub inline_len_max: u32,
}

/// Receive-side scaling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RssRequest {
    /// The handle of the indirection table.
    pub table: u32,
    /// `IBV_RX_HASH_*`: source and destination IPv4 1, 2, IPv6 4, 8, TCP 0x10, 0x20, UDP 0x40,
    /// 0x80.
    pub fields: u64,
    /// Bit 0: Toeplitz.
    pub function: u8,
    /// The key, 40 bytes.
    pub key: Vec<u8>,
}

/// A QP that exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QpCreated {
    /// For later commands.
    pub handle: u32,
    /// The number that the client sees: the SQ's where there is one, else the RQ's.
    pub number: u32,
    /// Number of the receiving ring, 0 where there is none.
    pub rq_number: u32,
    /// Number of the sending ring, 0 where there is none.
    pub sq_number: u32,
    /// Number of the transport interface receive object.
    pub tir_number: u32,
    /// Number of the transport interface send object.
    pub tis_number: u32,
}

/// `enum ibv_qp_state`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum QpState {
    /// Does nothing.
    #[default]
    Reset = 0,
    /// Knows its port.
    Init = 1,
    /// Receives.
    ReadyToReceive = 2,
    /// Receives and sends.
    ReadyToSend = 3,
    /// Drains.
    SendQueueDrained = 4,
    /// Sending failed; receives on.
    SendQueueError = 5,
    /// Everything posted comes back flushed.
    Error = 6,
}

/// `ibv_modify_qp` after the mask was applied: `None` where a field is not changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QpChange {
    /// The state to go to.
    pub state: Option<QpState>,
    /// The state that the client believes in.
    pub current_state: Option<QpState>,
    /// The port, from 1.
    pub port: Option<u8>,
    /// Pacing, kbit/s; 0 takes it off.
    pub rate_limit: Option<u32>,
    /// `IBV_QP_*`: all fields that the client named, those above included.
    pub mask: u32,
    /// RDMA: their values.
    pub attributes: QpAttributes,
}

/// `enum ibv_wq_state`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum WqState {
    /// Does nothing.
    #[default]
    Reset = 0,
    /// Receives.
    Ready = 1,
    /// Everything posted comes back flushed.
    Error = 2,
}

/// A work queue: a receiving ring for RSS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WqRequest {
    /// The protection domain.
    pub pd: u32,
    /// Its ring.
    pub ring: RqRing,
    /// Its user index.
    pub user_index: u32,
    /// The value in its asynchronous events.
    pub user_handle: u64,
    /// Requests that the client asked for.
    pub wr_max: u32,
    /// Segments of a request.
    pub sge_max: u32,
    /// `IBV_WQ_FLAGS_*`: VLAN stripping 1<<0, scatter FCS 1<<1.
    pub create_flags: u32,
}

/// A WQ that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WqCreated {
    /// For later commands.
    pub handle: u32,
    /// Its number, 24 bits.
    pub number: u32,
}

/// `ibv_modify_wq` after the mask was applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WqChange {
    /// The state to go to.
    pub state: Option<WqState>,
    /// The state that the client believes in.
    pub current_state: Option<WqState>,
    /// Whether VLAN tags are stripped from now on.
    pub vlan_stripping: Option<bool>,
}

/// A flow rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowRequest {
    /// The handle of the QP that frames go to.
    pub qp: u32,
    /// Which kind.
    pub kind: FlowKind,
    /// Lower wins.
    pub priority: u16,
    /// `IBV_FLOW_ATTR_FLAGS_*`: DONT_TRAP 1<<1, EGRESS 1<<2.
    pub flags: u32,
    /// All must match.
    pub specs: Vec<FlowSpec>,
    /// The actions besides delivery.
    pub actions: Vec<FlowAction>,
}

/// `enum ibv_flow_attr_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowKind {
    /// By its specs.
    Normal,
    /// All frames that no other rule takes.
    AllDefault,
    /// All multicast frames that no other rule takes.
    MulticastDefault,
    /// A copy of everything.
    Sniffer,
}

/// A header with the bits that count. Values and masks are as they lie in the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowSpec {
    /// dst, src, EtherType, VLAN TCI: 16 bytes.
    Ethernet {
        /// Values.
        value: [u8; 16],
        /// Bits that count.
        mask: [u8; 16],
    },
    /// src, dst, then, where the spec was the extended one, proto, tos, ttl, flags: 12 bytes.
    Ipv4 {
        /// Values.
        value: [u8; 12],
        /// Bits that count.
        mask: [u8; 12],
    },
    /// src 16, dst 16, flow label 4, next header, traffic class, hop limit, pad: 40 bytes.
    Ipv6 {
        /// Values.
        value: [u8; 40],
        /// Bits that count.
        mask: [u8; 40],
    },
    /// dst port, src port.
    Tcp {
        /// Values.
        value: [u8; 4],
        /// Bits that count.
        mask: [u8; 4],
    },
    /// dst port, src port.
    Udp {
        /// Values.
        value: [u8; 4],
        /// Bits that count.
        mask: [u8; 4],
    },
}

/// Beside delivering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowAction {
    /// Mark the CQE.
    Tag(u32),
    /// Deliver to no queue.
    Drop,
}

/// An event for the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Where: the descriptor of the completion channel, or `None` for the asynchronous one.
    pub channel: Option<i32>,
    /// The user handle of the CQ or QP, or the port's number.
    pub element: u64,
    /// The kind of event.
    pub kind: EventKind,
}

/// The kinds of events; the numbers of `enum ibv_event_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// A completion on an armed CQ.
    Completion,
    /// `IBV_EVENT_CQ_ERR`: the CQ overran.
    CqError,
    /// `IBV_EVENT_QP_FATAL`.
    QpFatal,
    /// `IBV_EVENT_QP_REQ_ERR`: the peer's request makes no sense.
    QpRequestError,
    /// `IBV_EVENT_QP_ACCESS_ERR`: the peer may not access what it named.
    QpAccessError,
    /// `IBV_EVENT_COMM_EST`: the peer has sent before this side was ready to send.
    CommunicationEstablished,
    /// `IBV_EVENT_SRQ_LIMIT_REACHED`.
    SrqLimit,
    /// `IBV_EVENT_QP_LAST_WQE_REACHED`: a QP in error takes no more from its SRQ.
    LastWqe,
    /// `IBV_EVENT_PORT_ACTIVE`.
    PortActive,
    /// `IBV_EVENT_PORT_ERR`.
    PortError,
    /// `IBV_EVENT_DEVICE_FATAL`.
    DeviceFatal,
    /// `IBV_EVENT_WQ_FATAL`.
    WqFatal,
}
