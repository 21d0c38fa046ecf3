//! Queue pairs: of raw packets, with rings of their own or with RSS over a table of work queues;
//! and of the RDMA services ([`super::service`]).
//!
//! Invariants:
//! 1. A QP's handle stands before its dependencies: its table or its completion queues, then its
//!    protection domain.
//! 2. Requests are plain C data: zeroes are a valid value of each.
//! 3. Objects that a request points to are borrowed until the call returns.

use core::mem::zeroed;
use core::ptr::{NonNull, null_mut};
use std::sync::Arc;

use super::completion::CompletionQueue;
use super::context::Element;
use super::error::VerbsError;
use super::handle::Handle;
use super::memory::ProtectionDomain;
use super::service::{Service, SharedReceiveQueue};
use super::work_queue::{IndirectionTable, init_obj};
use crate::bindings::*;
use crate::inline;

/// The ring sizes of a QP. The device may grant more; 0 means none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QpCaps {
    /// Packets in the send ring.
    pub send_wr_max: u32,
    /// Buffers in the receive ring.
    pub receive_wr_max: u32,
    /// Data segments of a packet to send. With `inline_len_max` it determines how many 64-byte
    /// blocks libmlx5 allocates per packet.
    pub send_sge_max: u32,
    /// Data segments of a receive buffer: a WQE has 16 bytes for each.
    pub receive_sge_max: u32,
    /// Maximum inline bytes of a packet.
    pub inline_len_max: u32,
}

/// Options of a QP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QpOptions {
    /// Maximum header bytes of a TSO request; 0 disables TSO.
    pub tso_header_len_max: u16,
    /// VLAN tags are stripped and reported in the CQE.
    pub cvlan_stripping: bool,
    /// The frame check sequence is delivered.
    pub scatter_fcs: bool,
    /// Writes are padded to whole cache lines.
    pub pci_write_end_padding: bool,
    /// Multicast that this QP sends is not looped back to it.
    pub block_self_multicast: bool,
    /// Unicast that is sent on this port is looped back to this QP.
    pub self_loopback_unicast: bool,
    /// As `self_loopback_unicast`, for multicast.
    pub self_loopback_multicast: bool,
    /// Headers inside tunnels are parsed.
    pub tunnel_offloads: bool,
}

/// The attributes of a new QP with rings of its own.
#[derive(Clone, Copy, Debug)]
pub struct QpRequest<'a> {
    /// The domain of its memory.
    pub pd: &'a ProtectionDomain,
    /// The CQ for sends.
    pub send_cq: &'a CompletionQueue,
    /// The CQ for receives.
    pub receive_cq: &'a CompletionQueue,
    /// The ring sizes.
    pub caps: QpCaps,
    /// Extended options.
    pub options: QpOptions,
}

impl<'a> QpRequest<'a> {
    /// A QP without rings and options, as a base.
    pub fn new(pd: &'a ProtectionDomain, send_cq: &'a CompletionQueue, receive_cq: &'a CompletionQueue) -> Self {
        Self { pd, send_cq, receive_cq, caps: QpCaps::default(), options: QpOptions::default() }
    }
}

/// The attributes of a new QP with RSS over work queues. The QP has no rings and no states.
#[derive(Clone, Copy, Debug)]
pub struct RssRequest<'a> {
    /// The work queues' domain.
    pub pd: &'a ProtectionDomain,
    /// Maps hashes to work queues.
    pub table: &'a IndirectionTable,
    /// Toeplitz key: 40 bytes.
    pub key: &'a [u8],
    /// Hash fields: `IBV_RX_HASH_*`. 0 disables hashing: all packets go to the first entry.
    pub fields: u64,
    /// Extended options. `tso_header_len_max` has no effect here.
    pub options: QpOptions,
}

/// States of a QP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QpState {
    /// Rings are empty, doorbell records are zero.
    Reset,
    /// Bound to a port.
    Init,
    /// Receives.
    Rtr,
    /// Receives and sends.
    Rts,
    /// The send side drains.
    Sqd,
    /// The send side is in error.
    Sqe,
    /// In error: everything completes with a flush.
    Err,
    /// None of the above.
    Unknown,
}

impl QpState {
    const ALL: [(Self, ibv_qp_state); 8] = [
        (Self::Reset, IBV_QPS_RESET),
        (Self::Init, IBV_QPS_INIT),
        (Self::Rtr, IBV_QPS_RTR),
        (Self::Rts, IBV_QPS_RTS),
        (Self::Sqd, IBV_QPS_SQD),
        (Self::Sqe, IBV_QPS_SQE),
        (Self::Err, IBV_QPS_ERR),
        (Self::Unknown, IBV_QPS_UNKNOWN),
    ];

    pub(super) fn of(raw: ibv_qp_state) -> Self {
        Self::ALL.iter().find(|(_, number)| *number == raw).map_or(Self::Unknown, |(state, _)| *state)
    }

    pub(super) fn raw(self) -> ibv_qp_state {
        Self::ALL.iter().find(|(state, _)| *state == self).map_or(IBV_QPS_UNKNOWN, |(_, number)| *number)
    }
}

/// The rate limit of a QP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateLimit {
    /// Kilobits per second; 0 is no limit.
    pub kbps: u32,
    /// Bytes that may leave back to back; 0 is the device's default.
    pub burst_len_max: u32,
    /// Bytes of a typical packet; 0 is the device's default.
    pub packet_len_typical: u16,
}

/// A queue pair. Cheap to clone.
#[derive(Clone, Debug)]
pub struct QueuePair(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    handle: Handle<ibv_qp>,
    caps: QpCaps,
    service: Option<Service>,
    _table: Option<IndirectionTable>,
    _srq: Option<SharedReceiveQueue>,
    _queues: Option<[CompletionQueue; 2]>,
    pd: ProtectionDomain,
}

/// What a QP is for, and what it needs beside its domain.
#[derive(Default)]
pub(super) struct Parents {
    pub(super) service: Option<Service>,
    pub(super) table: Option<IndirectionTable>,
    pub(super) srq: Option<SharedReceiveQueue>,
    pub(super) queues: Option<[CompletionQueue; 2]>,
}

impl QueuePair {
    /// A raw-packet QP with rings of its own, in state `Reset`.
    ///
    /// # Errors
    /// No permission for raw packets (`EPERM`: CAP_NET_RAW), rings that are too large (`EINVAL`,
    /// `ENOMEM`), or an option that the device lacks.
    pub fn create(request: &QpRequest<'_>) -> Result<Self, VerbsError> {
        let mut wanted = extended_request(request.pd, &request.options);
        wanted.send_cq = request.send_cq.as_ptr();
        wanted.recv_cq = request.receive_cq.as_ptr();
        wanted.cap = ibv_qp_cap {
            max_send_wr: request.caps.send_wr_max,
            max_recv_wr: request.caps.receive_wr_max,
            max_send_sge: request.caps.send_sge_max,
            max_recv_sge: request.caps.receive_sge_max,
            max_inline_data: request.caps.inline_len_max,
        };
        if request.options.tso_header_len_max != 0 {
            wanted.comp_mask |= IBV_QP_INIT_ATTR_MAX_TSO_HEADER;
            wanted.max_tso_header = request.options.tso_header_len_max;
        }
        let queues = [request.send_cq.clone(), request.receive_cq.clone()];
        let parents = Parents { queues: Some(queues), ..Parents::default() };
        Self::make(wanted, &request.options, request.pd, parents)
    }

    /// A raw-packet QP with RSS over work queues.
    ///
    /// # Errors
    /// The device does not support this hash, or has no more QPs.
    pub fn create_rss(request: &RssRequest<'_>) -> Result<Self, VerbsError> {
        let mut wanted = extended_request(request.pd, &request.options);
        // The library reads the key and does not write it.
        let mut key = request.key.to_vec();
        wanted.comp_mask |= IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH;
        wanted.rwq_ind_tbl = request.table.as_ptr();
        wanted.rx_hash_conf = ibv_rx_hash_conf {
            rx_hash_function: IBV_RX_HASH_FUNC_TOEPLITZ as u8,
            rx_hash_key_len: key.len().try_into().unwrap_or(u8::MAX),
            rx_hash_key: key.as_mut_ptr(),
            rx_hash_fields_mask: request.fields,
        };
        let parents = Parents { table: Some(request.table.clone()), ..Parents::default() };
        Self::make(wanted, &request.options, request.pd, parents)
    }

    pub(super) fn make(
        mut wanted: ibv_qp_init_attr_ex,
        options: &QpOptions,
        pd: &ProtectionDomain,
        parents: Parents,
    ) -> Result<Self, VerbsError> {
        let (core, context) = (pd.context().core(), pd.context().as_ptr());
        let flags = direct_flags(options);
        // SAFETY: the context is open, all objects live (3), requests are ours (2).
        let (call, raw) = unsafe {
            if flags == 0 {
                ("ibv_create_qp_ex", inline::ibv_create_qp_ex(core.verbs(), context, &raw mut wanted))
            } else {
                let mut direct: mlx5dv_qp_init_attr = zeroed();
                direct.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS.into();
                direct.create_flags = flags;
                let create = core.mlx5().mlx5dv_create_qp;
                ("mlx5dv_create_qp", create(context, &raw mut wanted, &raw mut direct))
            }
        };
        let raw = VerbsError::check_object(call, raw)?;
        // SAFETY: new, 1.
        let (handle, number) = unsafe { (Handle::new(raw, core.verbs().ibv_destroy_qp), (*raw.as_ptr()).qp_num) };
        let handle = handle.of(pd.context().own_objects(), Some(Element::QueuePair(number)));
        let caps = QpCaps {
            send_wr_max: wanted.cap.max_send_wr,
            receive_wr_max: wanted.cap.max_recv_wr,
            send_sge_max: wanted.cap.max_send_sge,
            receive_sge_max: wanted.cap.max_recv_sge,
            inline_len_max: wanted.cap.max_inline_data,
        };
        let Parents { service, table, srq, queues } = parents;
        let pd = pd.clone();
        Ok(Self(Arc::new(Inner { handle, caps, service, _table: table, _srq: srq, _queues: queues, pd })))
    }

    /// Moves it to another state. `Init` binds it to `port` (from 1), other states ignore it. The
    /// sequence is `Reset`, `Init`, `Rtr`, `Rts`; `Reset` and `Err` can be reached from any state.
    ///
    /// # Errors
    /// There is no such transition from the current state, no such port, or the QP has no states
    /// (RSS).
    pub fn to_state(&self, state: QpState, port: u8) -> Result<(), VerbsError> {
        // SAFETY: 2.
        let mut change: ibv_qp_attr = unsafe { zeroed() };
        change.qp_state = state.raw();
        change.port_num = port;
        let mask = if state == QpState::Init { IBV_QP_STATE | IBV_QP_PORT } else { IBV_QP_STATE };
        // SAFETY: a living QP.
        let answer = unsafe { (self.verbs().ibv_modify_qp)(self.as_ptr(), &raw mut change, mask.cast_signed()) };
        VerbsError::check("ibv_modify_qp", answer)
    }

    /// Resets it from any state in the device. The kernel derives the firmware commands for this
    /// from the states of both halves that it has cached. An error on the data path does not update
    /// the cache, but a query does, even if it fails because the states do not match (linux
    /// drivers/infiniband/hw/mlx5/qp.c, `modify_raw_packet_qp`, `query_raw_packet_qp_state`).
    ///
    /// # Errors
    /// The QP has no states (RSS), or the device is gone.
    pub fn reset(&self) -> Result<(), VerbsError> {
        let _ = self.state();
        self.to_state(QpState::Reset, 0)
    }

    /// Its state in the device.
    ///
    /// # Errors
    /// The QP has no states (RSS), or the device is gone.
    pub fn state(&self) -> Result<QpState, VerbsError> {
        // SAFETY: a living QP; 2.
        let (answer, seen) = unsafe {
            let (mut seen, mut made): (ibv_qp_attr, ibv_qp_init_attr) = (zeroed(), zeroed());
            let mask = IBV_QP_STATE.cast_signed();
            ((self.verbs().ibv_query_qp)(self.as_ptr(), &raw mut seen, mask, &raw mut made), seen)
        };
        VerbsError::check("ibv_query_qp", answer)?;
        Ok(QpState::of(seen.qp_state))
    }

    /// Sets its rate limit. In state `Rts`.
    ///
    /// # Errors
    /// The device lacks rate limits, or does not support this rate.
    pub fn set_rate_limit(&self, limit: RateLimit) -> Result<(), VerbsError> {
        let mut limit = ibv_qp_rate_limit_attr {
            rate_limit: limit.kbps,
            max_burst_sz: limit.burst_len_max,
            typical_pkt_sz: limit.packet_len_typical,
            comp_mask: 0,
        };
        // SAFETY: a living QP.
        let answer = unsafe { inline::ibv_modify_qp_rate_limit(self.as_ptr(), &raw mut limit) };
        VerbsError::check("ibv_modify_qp_rate_limit", answer)
    }

    /// The addresses of the rings.
    ///
    /// # Errors
    /// The QP is not libmlx5's (`is_unsupported`).
    pub fn rings(&self) -> Result<QpRings, VerbsError> {
        // SAFETY: plain C data (2); the QP lives.
        let out = unsafe {
            let mut out: mlx5dv_qp = zeroed();
            out.comp_mask = u64::from(MLX5DV_QP_MASK_RAW_QP_HANDLES | MLX5DV_QP_MASK_UAR_MMAP_OFFSET);
            let mut what: mlx5dv_obj = zeroed();
            what.qp.in_ = self.as_ptr();
            what.qp.out = &raw mut out;
            init_obj(self.0.pd.context().core(), &mut what, MLX5DV_OBJ_QP)?;
            out
        };
        let Some(doorbell) = NonNull::new(out.dbrec) else {
            return Err(VerbsError::new("mlx5dv_init_obj", libc::ENODATA));
        };
        let numbers_told = out.comp_mask & u64::from(MLX5DV_QP_MASK_RAW_QP_HANDLES) != 0;
        let uar_told = out.comp_mask & u64::from(MLX5DV_QP_MASK_UAR_MMAP_OFFSET) != 0;
        Ok(QpRings {
            doorbell: doorbell.cast(),
            send: QpRing::of(out.sq.buf.cast(), out.sq.wqe_cnt, out.sq.stride),
            receive: QpRing::of(out.rq.buf.cast(), out.rq.wqe_cnt, out.rq.stride),
            uar: NonNull::new(out.bf.reg).map(NonNull::cast),
            blueflame_len: out.bf.size,
            uar_offset: uar_told.then_some(out.uar_mmap_offset),
            send_number: numbers_told.then_some(out.sqn),
            receive_number: numbers_told.then_some(out.rqn),
        })
    }

    /// Its number in control segments and events.
    pub fn number(&self) -> u32 {
        // SAFETY: a living QP.
        unsafe { (*self.as_ptr()).qp_num }
    }

    /// The granted ring sizes.
    pub fn caps(&self) -> QpCaps {
        self.0.caps
    }

    /// Its RDMA service; `None` if it is of raw packets.
    pub fn service(&self) -> Option<Service> {
        self.0.service
    }

    /// Its domain.
    pub fn pd(&self) -> &ProtectionDomain {
        &self.0.pd
    }

    /// The raw object, for calls of [`crate::inline`]. Valid as long as a clone of this handle is.
    pub fn as_ptr(&self) -> *mut ibv_qp {
        self.0.handle.as_ptr()
    }

    pub(super) fn verbs(&self) -> &crate::load::Verbs {
        self.0.pd.context().core().verbs()
    }
}

/// The rings of a QP (mlx5.md 1.2). Valid as long as a clone of the [`QueuePair`] is.
#[derive(Clone, Copy, Debug)]
pub struct QpRings {
    /// Two big-endian words: the receive ring's producer index, the send ring's.
    pub doorbell: NonNull<[u32; 2]>,
    /// The send ring: its stride is the basic block of 64 bytes.
    pub send: Option<QpRing>,
    /// The receive ring.
    pub receive: Option<QpRing>,
    /// The UAR register.
    pub uar: Option<NonNull<u8>>,
    /// Bytes of a BlueFlame half, between which the doorbell toggles; 0 if only eight bytes may be
    /// written.
    pub blueflame_len: u32,
    /// Where the register's page is in [`super::Context::device_file`], for another process that
    /// maps it, if libmlx5 reports it.
    pub uar_offset: Option<libc::off_t>,
    /// The device's number for the send side, if libmlx5 reports it.
    pub send_number: Option<u32>,
    /// The device's number for the receive side, if libmlx5 reports it.
    pub receive_number: Option<u32>,
}

/// The send ring or the receive ring of a queue pair, in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpRing {
    /// The first entry.
    pub start: NonNull<u8>,
    /// Entries, a power of two.
    pub count: u32,
    /// Bytes of an entry.
    pub stride: u32,
}

impl QpRing {
    /// `None` if a QP has no such ring.
    fn of(start: *mut u8, count: u32, stride: u32) -> Option<Self> {
        NonNull::new(start).filter(|_| count != 0).map(|start| Self { start, count, stride })
    }
}

/// The arguments that both kinds of QP share.
pub(super) fn extended_request(pd: &ProtectionDomain, options: &QpOptions) -> ibv_qp_init_attr_ex {
    // SAFETY: 2.
    let mut wanted: ibv_qp_init_attr_ex = unsafe { zeroed() };
    wanted.srq = null_mut();
    wanted.qp_type = IBV_QPT_RAW_PACKET;
    wanted.pd = pd.as_ptr();
    wanted.comp_mask = IBV_QP_INIT_ATTR_PD;
    for (is_wanted, flag) in [
        (options.cvlan_stripping, IBV_QP_CREATE_CVLAN_STRIPPING),
        (options.scatter_fcs, IBV_QP_CREATE_SCATTER_FCS),
        (options.pci_write_end_padding, IBV_QP_CREATE_PCI_WRITE_END_PADDING),
        (options.block_self_multicast, IBV_QP_CREATE_BLOCK_SELF_MCAST_LB),
    ] {
        wanted.create_flags |= if is_wanted { flag } else { 0 };
    }
    if wanted.create_flags != 0 {
        wanted.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS;
    }
    wanted
}

/// The options that only `mlx5dv_create_qp` supports.
fn direct_flags(options: &QpOptions) -> u32 {
    [
        (options.self_loopback_unicast, MLX5DV_QP_CREATE_TIR_ALLOW_SELF_LOOPBACK_UC),
        (options.self_loopback_multicast, MLX5DV_QP_CREATE_TIR_ALLOW_SELF_LOOPBACK_MC),
        (options.tunnel_offloads, MLX5DV_QP_CREATE_TUNNEL_OFFLOADS),
    ]
    .into_iter()
    .filter_map(|(is_wanted, flag)| is_wanted.then_some(flag))
    .sum()
}
