//! Receive work queues, indirection tables over them, and the call that returns ring addresses.
//!
//! Invariants:
//! 1. A queue's handle stands before its completion queue and its domain, a table's before its
//!    queues.
//! 2. Requests are plain C data: zeroes are a valid value of each.

use core::mem::zeroed;
use core::ptr::NonNull;
use std::sync::Arc;

use super::completion::CompletionQueue;
use super::context::Element;
use super::error::VerbsError;
use super::handle::Handle;
use super::memory::ProtectionDomain;
use crate::bindings::*;
use crate::inline;
use crate::load::RdmaCore;

/// Options of a work queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WqOptions {
    /// VLAN tags are stripped and reported in the CQE.
    pub cvlan_stripping: bool,
    /// The frame check sequence is delivered.
    pub scatter_fcs: bool,
    /// Packets are delayed rather than dropped when the ring is empty.
    pub delay_drop: bool,
    /// Writes are padded to whole cache lines.
    pub pci_write_end_padding: bool,
    /// Several packets per buffer.
    pub striding: Option<StridingRequest>,
}

/// The shape of a striding (multi-packet) queue: a WQE is a buffer of strides, and a packet takes
/// as many as it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StridingRequest {
    /// Bytes of a stride, as log2.
    pub stride_len_log: u8,
    /// Strides of a WQE, as log2.
    pub stride_count_log: u8,
    /// Two zero bytes before each frame, so that IP headers are aligned.
    pub two_byte_shift: bool,
}

/// The attributes of a new work queue.
#[derive(Clone, Copy, Debug)]
pub struct WqRequest<'a> {
    /// The domain of its memory.
    pub pd: &'a ProtectionDomain,
    /// The CQ for receives.
    pub cq: &'a CompletionQueue,
    /// Buffers in the ring.
    pub wr_max: u32,
    /// Data segments of a buffer.
    pub sge_max: u32,
    /// Extended options.
    pub options: WqOptions,
}

/// States of a work queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WqState {
    /// Empty.
    Reset,
    /// Receives.
    Ready,
    /// In error: everything completes with a flush.
    Err,
}

impl WqState {
    fn raw(self) -> ibv_wq_state {
        match self {
            Self::Reset => IBV_WQS_RESET,
            Self::Ready => IBV_WQS_RDY,
            Self::Err => IBV_WQS_ERR,
        }
    }
}

/// A receive work queue. Cheap to clone.
#[derive(Clone, Debug)]
pub struct WorkQueue(Arc<WqInner>);

#[derive(Debug)]
struct WqInner {
    handle: Handle<ibv_wq>,
    _cq: CompletionQueue,
    pd: ProtectionDomain,
}

impl WorkQueue {
    /// A new queue, in state `Reset`.
    ///
    /// # Errors
    /// An option that the device lacks, too large a ring, or no more queues.
    pub fn create(request: &WqRequest<'_>) -> Result<Self, VerbsError> {
        let context = request.pd.context();
        let mut wanted = plain_request(request);
        // SAFETY: the context is open, the objects live, requests are ours (2).
        let (call, raw) = unsafe {
            if let Some(striding) = request.options.striding {
                let mut direct: mlx5dv_wq_init_attr = zeroed();
                direct.comp_mask = MLX5DV_WQ_INIT_ATTR_MASK_STRIDING_RQ.into();
                direct.striding_rq_attrs = mlx5dv_striding_rq_init_attr {
                    single_stride_log_num_of_bytes: striding.stride_len_log.into(),
                    single_wqe_log_num_of_strides: striding.stride_count_log.into(),
                    two_byte_shift_en: striding.two_byte_shift.into(),
                };
                let create = context.core().mlx5().mlx5dv_create_wq;
                ("mlx5dv_create_wq", create(context.as_ptr(), &raw mut wanted, &raw mut direct))
            } else {
                ("ibv_create_wq", inline::ibv_create_wq(context.as_ptr(), &raw mut wanted))
            }
        };
        let raw = VerbsError::check_object(call, raw)?;
        // SAFETY: new, 1.
        let (handle, number) = unsafe { (Handle::new(raw, inline::ibv_destroy_wq), (*raw.as_ptr()).wq_num) };
        let handle = handle.of(context.own_objects(), Some(Element::WorkQueue(number)));
        Ok(Self(Arc::new(WqInner { handle, _cq: request.cq.clone(), pd: request.pd.clone() })))
    }

    /// Moves it to another state.
    ///
    /// # Errors
    /// There is no such transition from the current state, or the device is gone.
    pub fn to_state(&self, state: WqState) -> Result<(), VerbsError> {
        self.step(None, state)
    }

    /// Resets it from any state in the device; `likely` is the probable one. A WQ's state cannot be
    /// queried, the kernel does not learn of an error on the data path, and the device accepts the
    /// transition only with its actual state as the current one (linux
    /// drivers/infiniband/hw/mlx5/qp.c, `mlx5_ib_modify_wq`). So this tries both possible states.
    ///
    /// # Errors
    /// The device is gone.
    pub fn reset(&self, likely: WqState) -> Result<(), VerbsError> {
        // SAFETY: a living queue. libibverbs' cached state is right about `Reset`: only this handle
        // enters or leaves it.
        if unsafe { (*self.as_ptr()).state } == IBV_WQS_RESET {
            return Ok(());
        }
        let other = if likely == WqState::Err { WqState::Ready } else { WqState::Err };
        self.step(Some(likely), WqState::Reset).or_else(|_| self.step(Some(other), WqState::Reset))
    }

    /// Moves it from a given state, or from the one that the kernel has cached.
    fn step(&self, from: Option<WqState>, to: WqState) -> Result<(), VerbsError> {
        // SAFETY: 2.
        let mut change: ibv_wq_attr = unsafe { zeroed() };
        change.attr_mask = IBV_WQ_ATTR_STATE;
        change.wq_state = to.raw();
        if let Some(from) = from {
            change.attr_mask |= IBV_WQ_ATTR_CURR_STATE;
            change.curr_wq_state = from.raw();
        }
        // SAFETY: a living queue.
        VerbsError::check("ibv_modify_wq", unsafe { inline::ibv_modify_wq(self.as_ptr(), &raw mut change) })
    }

    /// The address of the ring.
    ///
    /// # Errors
    /// The queue is not libmlx5's (`is_unsupported`).
    pub fn rings(&self) -> Result<WqRing, VerbsError> {
        // SAFETY: plain C data (2); the queue lives.
        let out = unsafe {
            let mut out: mlx5dv_rwq = zeroed();
            let mut what: mlx5dv_obj = zeroed();
            what.rwq.in_ = self.as_ptr();
            what.rwq.out = &raw mut out;
            init_obj(self.0.pd.context().core(), &mut what, MLX5DV_OBJ_RWQ)?;
            out
        };
        let (Some(start), Some(doorbell)) = (NonNull::new(out.buf), NonNull::new(out.dbrec)) else {
            return Err(VerbsError::new("mlx5dv_init_obj", libc::ENODATA));
        };
        Ok(WqRing { start: start.cast(), wqe_count: out.wqe_cnt, stride: out.stride, doorbell: doorbell.cast() })
    }

    /// The device's number for it, which identifies it in events.
    pub fn number(&self) -> u32 {
        // SAFETY: a living queue.
        unsafe { (*self.as_ptr()).wq_num }
    }

    /// The raw object, for calls of [`crate::inline`]. Valid as long as a clone of this handle is.
    pub fn as_ptr(&self) -> *mut ibv_wq {
        self.0.handle.as_ptr()
    }
}

/// The ring of a work queue (mlx5.md 1.2). Valid as long as a clone of the [`WorkQueue`] is.
#[derive(Clone, Copy, Debug)]
pub struct WqRing {
    /// The first WQE.
    pub start: NonNull<u8>,
    /// WQEs, a power of two.
    pub wqe_count: u32,
    /// Bytes of a WQE.
    pub stride: u32,
    /// The big-endian producer index.
    pub doorbell: NonNull<u32>,
}

/// An RSS indirection table. Cheap to clone.
#[derive(Clone, Debug)]
pub struct IndirectionTable(Arc<TableInner>);

#[derive(Debug)]
struct TableInner {
    handle: Handle<ibv_rwq_ind_table>,
    _queues: Vec<WorkQueue>,
}

impl IndirectionTable {
    /// A table of these entries: a power of two of them; a queue may occur several times.
    ///
    /// # Errors
    /// Not a power of two (`EINVAL`), longer than the device supports, or no more tables.
    pub fn create(entries: &[WorkQueue]) -> Result<Self, VerbsError> {
        const CALL: &str = "ibv_create_rwq_ind_table";
        let Some(first) = entries.first().filter(|_| entries.len().is_power_of_two()) else {
            return Err(VerbsError::new(CALL, libc::EINVAL));
        };
        let mut queues: Vec<_> = entries.iter().map(WorkQueue::as_ptr).collect();
        let log_ind_tbl_size = entries.len().trailing_zeros();
        let mut wanted = ibv_rwq_ind_table_init_attr { log_ind_tbl_size, ind_tbl: queues.as_mut_ptr(), comp_mask: 0 };
        let context = first.0.pd.context();
        // SAFETY: the context is open, the queues live, the request is ours.
        let raw = unsafe { inline::ibv_create_rwq_ind_table(context.as_ptr(), &raw mut wanted) };
        let raw = VerbsError::check_object(CALL, raw)?;
        // SAFETY: new, 1.
        let handle = unsafe { Handle::new(raw, inline::ibv_destroy_rwq_ind_table) };
        Ok(Self(Arc::new(TableInner { handle, _queues: entries.to_vec() })))
    }

    /// The raw object. Valid as long as a clone of this handle is.
    pub fn as_ptr(&self) -> *mut ibv_rwq_ind_table {
        self.0.handle.as_ptr()
    }
}

/// The arguments of `ibv_create_wq`.
fn plain_request(request: &WqRequest<'_>) -> ibv_wq_init_attr {
    let options = &request.options;
    // SAFETY: 2.
    let mut wanted: ibv_wq_init_attr = unsafe { zeroed() };
    wanted.wq_type = IBV_WQT_RQ;
    wanted.max_wr = request.wr_max;
    wanted.max_sge = request.sge_max;
    wanted.pd = request.pd.as_ptr();
    wanted.cq = request.cq.as_ptr();
    for (is_wanted, flag) in [
        (options.cvlan_stripping, IBV_WQ_FLAGS_CVLAN_STRIPPING),
        (options.scatter_fcs, IBV_WQ_FLAGS_SCATTER_FCS),
        (options.delay_drop, IBV_WQ_FLAGS_DELAY_DROP),
        (options.pci_write_end_padding, IBV_WQ_FLAGS_PCI_WRITE_END_PADDING),
    ] {
        wanted.create_flags |= if is_wanted { flag } else { 0 };
    }
    if wanted.create_flags != 0 {
        wanted.comp_mask = IBV_WQ_INIT_ATTR_FLAGS;
    }
    wanted
}

/// Queries libmlx5 for the ring addresses of an object.
///
/// # Safety
/// The member of `what` that `kind` selects points to a living object and to a structure to be
/// filled.
pub(super) unsafe fn init_obj(core: &RdmaCore, what: &mut mlx5dv_obj, kind: mlx5dv_obj_type) -> Result<(), VerbsError> {
    // SAFETY: the caller's.
    VerbsError::check("mlx5dv_init_obj", unsafe { (core.mlx5().mlx5dv_init_obj)(what, kind.into()) })
}
