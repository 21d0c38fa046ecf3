//! Queue pairs of the RDMA services: made, led to their peers, posted to and polled through
//! libibverbs; shared receive queues and address handles.
//!
//! Invariants:
//! 1. A handle stands before its parents. A request that names an object borrows it.
//! 2. Requests are plain C data: zeroes are a valid value of each, and what they point to lives
//!    until the call returns.
//! 3. What is posted is a send of the QP's service. libmlx5 does not check: over a QP of datagrams
//!    it follows the pointer to an address handle, also where a send has the peer's address there.
//! 4. Who posts or polls here does not drive the rings of the same queue by their addresses.

use core::fmt;
use core::mem::zeroed;
use core::ptr::null_mut;
use std::sync::Arc;

use super::completion::CompletionQueue;
use super::error::VerbsError;
use super::handle::Handle;
use super::memory::{MemoryRegion, MemoryWindow, ProtectionDomain, RemoteAccess};
use super::queue_pair::{Parents, QpCaps, QpOptions, QpState, QueuePair, extended_request};
use crate::bindings::*;
use crate::inline;

/// The service of a QP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// A reliable connection.
    Rc,
    /// A connection without acknowledgments.
    Uc,
    /// Datagrams.
    Ud,
}

/// The attributes of a new QP of a service.
#[derive(Clone, Copy, Debug)]
pub struct ServiceRequest<'a> {
    /// The service.
    pub service: Service,
    /// The domain of its memory.
    pub pd: &'a ProtectionDomain,
    /// The CQ for sends.
    pub send_cq: &'a CompletionQueue,
    /// The CQ for receives.
    pub receive_cq: &'a CompletionQueue,
    /// Where its receives come from, instead of a ring of its own.
    pub srq: Option<&'a SharedReceiveQueue>,
    /// The ring sizes.
    pub caps: QpCaps,
    /// Each send has a completion, whatever it says.
    pub signals_all: bool,
}

/// What changes of a QP, or what it has: what is `Some` is in the mask of `ibv_modify_qp`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QpChange {
    /// The next state.
    pub state: Option<QpState>,
    /// The place of the partition in the port's table.
    pub pkey_index: Option<u16>,
    /// The port, from 1.
    pub port: Option<u8>,
    /// The key that datagrams must have.
    pub qkey: Option<u32>,
    /// What the peer may do.
    pub access: Option<RemoteAccess>,
    /// The way to the peer.
    pub address: Option<Address>,
    /// The largest payload of a packet: 256, 512, 1024, 2048 or 4096 bytes.
    pub mtu: Option<u32>,
    /// The peer's QP.
    pub destination: Option<u32>,
    /// The number of the first packet that arrives.
    pub rq_psn: Option<u32>,
    /// READs and atomic operations that the peer may have under way.
    pub max_dest_rd_atomic: Option<u8>,
    /// The code of the time that the peer waits when it finds no receive.
    pub min_rnr_timer: Option<u8>,
    /// The number of the first packet that is sent.
    pub sq_psn: Option<u32>,
    /// READs and atomic operations that may be under way.
    pub max_rd_atomic: Option<u8>,
    /// Times that a packet is sent again.
    pub retry_cnt: Option<u8>,
    /// Times that a message is sent again to a peer without a receive; 7 is for ever.
    pub rnr_retry: Option<u8>,
    /// The time to an acknowledgment, 4.096 µs · 2ⁿ.
    pub timeout: Option<u8>,
}

/// The way to a peer, over RoCE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// The peer's GID.
    pub gid: [u8; 16],
    /// The place of our own GID in the port's table, which also says the version of RoCE.
    pub gid_index: u8,
    /// Our port, from 1.
    pub port: u8,
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// Routers that a packet may pass.
    pub hop_limit: u8,
}

impl Address {
    fn raw(&self) -> ibv_ah_attr {
        // SAFETY: 2.
        let mut raw: ibv_ah_attr = unsafe { zeroed() };
        raw.is_global = 1;
        raw.port_num = self.port;
        raw.grh.dgid.raw = self.gid;
        raw.grh.sgid_index = self.gid_index;
        raw.grh.traffic_class = self.traffic_class;
        raw.grh.hop_limit = self.hop_limit;
        raw
    }

    /// `None` where none was set.
    fn of(raw: &ibv_ah_attr) -> Option<Self> {
        (raw.is_global != 0).then_some(Self {
            // SAFETY: all members of the union are 16 bytes, and any bytes are a GID.
            gid: unsafe { raw.grh.dgid.raw },
            gid_index: raw.grh.sgid_index,
            port: raw.port_num,
            traffic_class: raw.grh.traffic_class,
            hop_limit: raw.grh.hop_limit,
        })
    }
}

/// An address handle: the way to the receivers of datagrams. Cheap to clone.
#[derive(Clone, Debug)]
pub struct AddressHandle(Arc<AhInner>);

#[derive(Debug)]
struct AhInner {
    handle: Handle<ibv_ah>,
    _pd: ProtectionDomain,
}

impl AddressHandle {
    /// A new handle.
    ///
    /// # Errors
    /// The address has no way from this port, or the device is gone.
    pub fn create(pd: &ProtectionDomain, address: &Address) -> Result<Self, VerbsError> {
        let verbs = pd.context().core().verbs();
        let mut raw = address.raw();
        // SAFETY: a living domain; 2.
        let raw = unsafe { (verbs.ibv_create_ah)(pd.as_ptr(), &raw mut raw) };
        let raw = VerbsError::check_object("ibv_create_ah", raw)?;
        // SAFETY: new, 1.
        let handle = unsafe { Handle::new(raw, verbs.ibv_destroy_ah) };
        Ok(Self(Arc::new(AhInner { handle, _pd: pd.clone() })))
    }
}

/// Receives for several QPs. Cheap to clone.
#[derive(Clone, Debug)]
pub struct SharedReceiveQueue(Arc<SrqInner>);

#[derive(Debug)]
struct SrqInner {
    handle: Handle<ibv_srq>,
    pd: ProtectionDomain,
}

impl SharedReceiveQueue {
    /// A new queue for `wr_max` receives of up to `sge_max` pieces.
    ///
    /// # Errors
    /// It is too large, or the device has no more.
    pub fn create(pd: &ProtectionDomain, wr_max: u32, sge_max: u32) -> Result<Self, VerbsError> {
        let verbs = pd.context().core().verbs();
        // SAFETY: a living domain; 2.
        let raw = unsafe {
            let mut wanted: ibv_srq_init_attr = zeroed();
            (wanted.attr.max_wr, wanted.attr.max_sge) = (wr_max, sge_max);
            (verbs.ibv_create_srq)(pd.as_ptr(), &raw mut wanted)
        };
        let raw = VerbsError::check_object("ibv_create_srq", raw)?;
        // SAFETY: new, 1.
        let handle = unsafe { Handle::new(raw, verbs.ibv_destroy_srq) };
        Ok(Self(Arc::new(SrqInner { handle, pd: pd.clone() })))
    }

    /// Its number in events.
    pub fn handle(&self) -> u32 {
        // SAFETY: a living queue.
        unsafe { (*self.as_ptr()).handle }
    }

    /// Asks for one event when fewer than `limit` receives are left.
    ///
    /// # Errors
    /// The limit is more than the queue has, or the device is gone.
    pub fn set_limit(&self, limit: u32) -> Result<(), VerbsError> {
        let mut change = ibv_srq_attr { max_wr: 0, max_sge: 0, srq_limit: limit };
        let modify = self.0.pd.context().core().verbs().ibv_modify_srq;
        // SAFETY: a living queue; 2.
        let answer = unsafe { modify(self.as_ptr(), &raw mut change, IBV_SRQ_LIMIT.cast_signed()) };
        VerbsError::check("ibv_modify_srq", answer)
    }

    /// Posts a receive.
    ///
    /// # Errors
    /// The queue is full (`ENOMEM`).
    ///
    /// # Safety
    /// As of [`QueuePair::post_receive`].
    pub unsafe fn post_receive(&self, receive: &ReceiveWork<'_>) -> Result<(), VerbsError> {
        let mut bad = null_mut();
        let mut sges = RawSges::new(receive.sges)?;
        let mut raw = sges.receive(receive.wr_id);
        // SAFETY: a living queue; 2, 4; the caller's promise.
        let answer = unsafe { inline::ibv_post_srq_recv(self.as_ptr(), &raw mut raw, &raw mut bad) };
        VerbsError::check("ibv_post_srq_recv", answer)
    }

    fn as_ptr(&self) -> *mut ibv_srq {
        self.0.handle.as_ptr()
    }
}

/// A piece of registered memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sge {
    /// The first byte.
    pub address: u64,
    /// Bytes.
    pub len: u32,
    /// The key of the region.
    pub lkey: u32,
}

/// A receive.
#[derive(Clone, Copy, Debug)]
pub struct ReceiveWork<'a> {
    /// Comes back in the completion.
    pub wr_id: u64,
    /// Where the message goes.
    pub sges: &'a [Sge],
}

/// What a send does.
#[derive(Clone, Copy, Debug)]
pub enum SendKind<'a> {
    /// Sends a message.
    Send,
    /// Writes memory of the peer: its address and key.
    Write(u64, u32),
    /// Reads memory of the peer: its address and key.
    Read(u64, u32),
    /// Writes the last number to the word of the peer at this address and key if it was the first.
    CompareSwap(u64, u32, u64, u64),
    /// Adds the number to the word of the peer at this address and key.
    FetchAdd(u64, u32, u64),
    /// Sends a datagram to a QP, with a key.
    Datagram(&'a AddressHandle, u32, u32),
    /// Sends a message, and invalidates this key of the peer's window.
    SendInvalidate(u32),
    /// Binds a window. Without pieces.
    Bind(&'a Bind<'a>),
    /// Invalidates this key of a window of ours. Without pieces.
    Invalidate(u32),
}

/// What a window is bound to.
#[derive(Clone, Debug)]
pub struct Bind<'a> {
    /// The window.
    pub window: &'a MemoryWindow,
    /// The key that it has from now on: that of the window in the upper 24 bits.
    pub key: u32,
    /// The region, to which windows may be bound.
    pub region: &'a MemoryRegion,
    /// The first byte.
    pub address: u64,
    /// Bytes, up to 2 GiB.
    pub len: u64,
    /// What the peer may do.
    pub access: RemoteAccess,
}

/// A send.
#[derive(Clone, Copy, Debug)]
pub struct SendWork<'a> {
    /// Comes back in the completion.
    pub wr_id: u64,
    /// What it does.
    pub kind: SendKind<'a>,
    /// What it sends, or where its answer goes.
    pub sges: &'a [Sge],
    /// The bytes themselves, copied by the call, instead of `sges`: of a SEND, a WRITE or a
    /// datagram, as many as [`QueuePair::caps`] has of them.
    pub inline: Option<&'a [u8]>,
    /// Immediate data, of a SEND, a WRITE or a datagram.
    pub imm: Option<[u8; 4]>,
    /// It has a completion also if it succeeds.
    pub signaled: bool,
    /// The peer's completion is solicited.
    pub solicited: bool,
    /// It begins when all READs and atomic operations before it are complete.
    pub fence: bool,
}

/// Why a send was not posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendError {
    /// A QP of datagrams posts something else, or a connection a datagram.
    Destination,
    /// The QP is of no service, or its service has no such operation, or that takes no inline data.
    Operation,
    /// `ibv_post_send` failed: the ring is full, or has no room for so many inline bytes
    /// (`ENOMEM`).
    Call(VerbsError),
}

impl From<VerbsError> for SendError {
    fn from(error: VerbsError) -> Self {
        Self::Call(error)
    }
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Destination => f.write_str("a datagram over a connection, or something else over a QP of datagrams"),
            Self::Operation => f.write_str("a send that the QP has not, or that takes no inline data"),
            Self::Call(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for SendError {}

/// A completion. If `status` is not 0, only it, `wr_id`, `qp` and `vendor_error` mean something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// That of the request.
    pub wr_id: u64,
    /// `enum ibv_wc_status`; 0 is success.
    pub status: u32,
    /// `enum ibv_wc_opcode`.
    pub opcode: u32,
    /// What the device says beside the status.
    pub vendor_error: u32,
    /// Bytes that were received, or read.
    pub byte_len: u32,
    /// The QP.
    pub qp: u32,
    /// The sender of a datagram.
    pub source: u32,
    /// The receive begins with the 40 bytes of a global route header: it is of a datagram.
    pub has_grh: bool,
    /// Immediate data.
    pub imm: Option<[u8; 4]>,
    /// The key that the peer has invalidated.
    pub invalidated: Option<u32>,
}

/// The most pieces of a request here.
const SGES_MAX: usize = 4;

/// The pieces of a request, as C has them.
struct RawSges {
    sges: [ibv_sge; SGES_MAX],
    count: usize,
}

impl RawSges {
    fn new(list: &[Sge]) -> Result<Self, VerbsError> {
        let mut sges = [ibv_sge { addr: 0, length: 0, lkey: 0 }; SGES_MAX];
        if list.len() > SGES_MAX {
            return Err(VerbsError::new("ibv_post_send", libc::EINVAL));
        }
        for (raw, sge) in sges.iter_mut().zip(list) {
            *raw = ibv_sge { addr: sge.address, length: sge.len, lkey: sge.lkey };
        }
        Ok(Self { sges, count: list.len() })
    }

    const fn one(sge: ibv_sge) -> Self {
        let rest = ibv_sge { addr: 0, length: 0, lkey: 0 };
        Self { sges: [sge, rest, rest, rest], count: 1 }
    }

    fn receive(&mut self, wr_id: u64) -> ibv_recv_wr {
        ibv_recv_wr { wr_id, next: null_mut(), sg_list: self.sges.as_mut_ptr(), num_sge: self.count as i32 }
    }
}

impl QueuePair {
    /// A QP of an RDMA service, in state `Reset`.
    ///
    /// # Errors
    /// Rings that are too large (`EINVAL`, `ENOMEM`), or a service that the device lacks.
    pub fn create_service(request: &ServiceRequest<'_>) -> Result<Self, VerbsError> {
        let options = QpOptions::default();
        let mut wanted = extended_request(request.pd, &options);
        wanted.qp_type = match request.service {
            Service::Rc => IBV_QPT_RC,
            Service::Uc => IBV_QPT_UC,
            Service::Ud => IBV_QPT_UD,
        };
        wanted.send_cq = request.send_cq.as_ptr();
        wanted.recv_cq = request.receive_cq.as_ptr();
        wanted.srq = request.srq.map_or(null_mut(), SharedReceiveQueue::as_ptr);
        wanted.sq_sig_all = request.signals_all.into();
        wanted.cap = request.caps.raw();
        let queues = Some([request.send_cq.clone(), request.receive_cq.clone()]);
        let parents =
            Parents { service: Some(request.service), queues, srq: request.srq.cloned(), ..Parents::default() };
        Self::make(wanted, &options, request.pd, parents)
    }

    /// Changes attributes, and the state.
    ///
    /// # Errors
    /// The step lacks an attribute, or does not take one (`ibv_modify_qp(3)`); a value that the
    /// device does not have, or an address that has no way (`EINVAL`, `ETIMEDOUT`).
    pub fn modify(&self, change: &QpChange) -> Result<(), VerbsError> {
        let (mut raw, mask) = change.raw();
        // SAFETY: a living QP; 2.
        let answer = unsafe { (self.verbs().ibv_modify_qp)(self.as_ptr(), &raw mut raw, mask.cast_signed()) };
        VerbsError::check("ibv_modify_qp", answer)
    }

    /// The attributes that it has now. Those that its service or its state has not are zeroes, or
    /// what the device says of them. The packet numbers are those of the next packets, where the
    /// device knows them.
    ///
    /// # Errors
    /// The device is gone.
    pub fn attributes(&self) -> Result<QpChange, VerbsError> {
        // SAFETY: a living QP; 2.
        let (answer, raw) = unsafe {
            let (mut raw, mut made): (ibv_qp_attr, ibv_qp_init_attr) = (zeroed(), zeroed());
            let mask = ALL_ATTRIBUTES.cast_signed();
            ((self.verbs().ibv_query_qp)(self.as_ptr(), &raw mut raw, mask, &raw mut made), raw)
        };
        VerbsError::check("ibv_query_qp", answer)?;
        Ok(QpChange::of(&raw))
    }

    /// Has a QP of datagrams receive what is sent to a multicast group, by its GID.
    ///
    /// # Errors
    /// It is not one of datagrams, or the GID no group (`EINVAL`); the device has no more.
    pub fn attach_multicast(&self, group: [u8; 16]) -> Result<(), VerbsError> {
        let group = ibv_gid { raw: group };
        // SAFETY: a living QP; the call reads the GID. RoCE has no local identifiers.
        let answer = unsafe { (self.verbs().ibv_attach_mcast)(self.as_ptr(), &raw const group, 0) };
        VerbsError::check("ibv_attach_mcast", answer)
    }

    /// Ends that.
    ///
    /// # Errors
    /// It was not attached (`EINVAL`).
    pub fn detach_multicast(&self, group: [u8; 16]) -> Result<(), VerbsError> {
        let group = ibv_gid { raw: group };
        // SAFETY: as above.
        let answer = unsafe { (self.verbs().ibv_detach_mcast)(self.as_ptr(), &raw const group, 0) };
        VerbsError::check("ibv_detach_mcast", answer)
    }

    /// Posts a send.
    ///
    /// # Errors
    /// [`SendError`].
    ///
    /// # Safety
    /// Invariant 4. The memory of the pieces is registered and stays valid, and nobody writes what
    /// is sent, or reaches where an answer goes, other than by atomics, until the send completes.
    pub unsafe fn post_send(&self, send: &SendWork<'_>) -> Result<(), SendError> {
        send.check(self.service())?;
        let mut sges = RawSges::new(send.sges)?;
        // SAFETY: 2.
        let mut raw: ibv_send_wr = unsafe { zeroed() };
        raw.wr_id = send.wr_id;
        if let Some(bytes) = send.inline {
            // The call reads the bytes, and knows no region of them.
            let length = bytes.len().try_into().map_err(|_| VerbsError::new("ibv_post_send", libc::EINVAL))?;
            sges = RawSges::one(ibv_sge { addr: bytes.as_ptr() as u64, length, lkey: 0 });
        }
        (raw.sg_list, raw.num_sge) = (sges.sges.as_mut_ptr(), sges.count as i32);
        send.fill(&mut raw);
        let mut bad = null_mut();
        // SAFETY: a living QP; 2, 3, 4; the caller's promise.
        let answer = unsafe { inline::ibv_post_send(self.as_ptr(), &raw mut raw, &raw mut bad) };
        Ok(VerbsError::check("ibv_post_send", answer)?)
    }

    /// Posts a receive.
    ///
    /// # Errors
    /// The ring is full (`ENOMEM`), or the state takes no receives.
    ///
    /// # Safety
    /// Invariant 4. The memory of the pieces is registered and stays valid, and nobody reaches it
    /// other than by atomics until the receive completes.
    pub unsafe fn post_receive(&self, receive: &ReceiveWork<'_>) -> Result<(), VerbsError> {
        let mut bad = null_mut();
        let mut sges = RawSges::new(receive.sges)?;
        let mut raw = sges.receive(receive.wr_id);
        // SAFETY: a living QP; 2, 4; the caller's promise.
        let answer = unsafe { inline::ibv_post_recv(self.as_ptr(), &raw mut raw, &raw mut bad) };
        VerbsError::check("ibv_post_recv", answer)
    }
}

impl CompletionQueue {
    /// The next completion, if there is one.
    ///
    /// # Errors
    /// The queue has failed.
    ///
    /// # Safety
    /// Invariant 4.
    pub unsafe fn poll(&self) -> Result<Option<Completion>, VerbsError> {
        // SAFETY: a living queue; 2, 4.
        let (count, raw) = unsafe {
            let mut raw: ibv_wc = zeroed();
            (inline::ibv_poll_cq(self.as_ptr(), 1, &raw mut raw), raw)
        };
        match count {
            0 => Ok(None),
            1 => Ok(Some(Completion::of(&raw))),
            error => Err(VerbsError::new("ibv_poll_cq", error.saturating_abs())),
        }
    }

    /// Asks for an event at the next completion, or the next solicited one.
    ///
    /// # Errors
    /// The device is gone.
    ///
    /// # Safety
    /// Invariant 4.
    pub unsafe fn arm(&self, solicited_only: bool) -> Result<(), VerbsError> {
        // SAFETY: a living queue; 4.
        let answer = unsafe { inline::ibv_req_notify_cq(self.as_ptr(), solicited_only.into()) };
        VerbsError::check("ibv_req_notify_cq", answer)
    }
}

impl Completion {
    fn of(raw: &ibv_wc) -> Self {
        let has = |flag| raw.wc_flags & flag != 0;
        // SAFETY: both members are a number of 32 bits, and any bits are one.
        let (imm, key) = unsafe { (raw.__bindgen_anon_1.imm_data, raw.__bindgen_anon_1.invalidated_rkey) };
        Self {
            wr_id: raw.wr_id,
            status: raw.status,
            opcode: raw.opcode,
            vendor_error: raw.vendor_err,
            byte_len: raw.byte_len,
            qp: raw.qp_num,
            source: raw.src_qp,
            has_grh: has(IBV_WC_GRH),
            imm: has(IBV_WC_WITH_IMM).then_some(imm.to_ne_bytes()),
            invalidated: has(IBV_WC_WITH_INV).then_some(key),
        }
    }
}

impl SendWork<'_> {
    /// Checks that a QP of this service has such sends (3).
    const fn check(&self, service: Option<Service>) -> Result<(), SendError> {
        let Some(service) = service else { return Err(SendError::Operation) };
        let is_datagram = matches!(self.kind, SendKind::Datagram(..));
        let is_local = matches!(self.kind, SendKind::Bind(_) | SendKind::Invalidate(_));
        if is_datagram != matches!(service, Service::Ud) {
            return Err(SendError::Destination);
        }
        // All others have an answer, which an unreliable connection does not carry.
        let goes_one_way = is_datagram || matches!(self.kind, SendKind::Send | SendKind::Write(..));
        match service {
            _ if goes_one_way => Ok(()),
            // UC has no opcode for it.
            Service::Rc if matches!(self.kind, SendKind::SendInvalidate(_)) => Ok(()),
            Service::Uc if is_local && self.inline.is_none() => Ok(()),
            Service::Rc if self.inline.is_none() => Ok(()),
            _ => Err(SendError::Operation),
        }
    }

    /// All but the pieces.
    fn fill(&self, raw: &mut ibv_send_wr) {
        let flag = |is_there, flag| if is_there { flag } else { 0 };
        raw.send_flags = flag(self.signaled, IBV_SEND_SIGNALED)
            | flag(self.solicited, IBV_SEND_SOLICITED)
            | flag(self.fence, IBV_SEND_FENCE)
            | flag(self.inline.is_some(), IBV_SEND_INLINE);
        if let Some(imm) = self.imm {
            raw.__bindgen_anon_1.imm_data = u32::from_ne_bytes(imm);
        }
        let has_imm = self.imm.is_some();
        raw.opcode = match self.kind {
            SendKind::Send | SendKind::Datagram(..) if has_imm => IBV_WR_SEND_WITH_IMM,
            SendKind::Send | SendKind::Datagram(..) => IBV_WR_SEND,
            SendKind::Write(..) if has_imm => IBV_WR_RDMA_WRITE_WITH_IMM,
            SendKind::Write(..) => IBV_WR_RDMA_WRITE,
            SendKind::Read(..) => IBV_WR_RDMA_READ,
            SendKind::CompareSwap(..) => IBV_WR_ATOMIC_CMP_AND_SWP,
            SendKind::FetchAdd(..) => IBV_WR_ATOMIC_FETCH_AND_ADD,
            SendKind::SendInvalidate(_) => IBV_WR_SEND_WITH_INV,
            SendKind::Bind(_) => IBV_WR_BIND_MW,
            SendKind::Invalidate(_) => IBV_WR_LOCAL_INV,
        };
        let atomic = |remote_addr, rkey, compare_add, swap| ibv_send_wr__bindgen_ty_2__bindgen_ty_2 {
            remote_addr,
            compare_add,
            swap,
            rkey,
        };
        match self.kind {
            SendKind::Send => {}
            SendKind::Write(remote_addr, rkey) | SendKind::Read(remote_addr, rkey) => {
                raw.wr.rdma = ibv_send_wr__bindgen_ty_2__bindgen_ty_1 { remote_addr, rkey };
            }
            SendKind::CompareSwap(address, rkey, compare, swap) => {
                raw.wr.atomic = atomic(address, rkey, compare, swap);
            }
            SendKind::FetchAdd(address, rkey, add) => raw.wr.atomic = atomic(address, rkey, add, 0),
            SendKind::SendInvalidate(key) | SendKind::Invalidate(key) => raw.__bindgen_anon_1.invalidate_rkey = key,
            SendKind::Bind(bind) => {
                raw.__bindgen_anon_2.bind_mw = ibv_send_wr__bindgen_ty_4__bindgen_ty_1 {
                    mw: bind.window.as_ptr(),
                    rkey: bind.key,
                    bind_info: ibv_mw_bind_info {
                        mr: bind.region.as_ptr(),
                        addr: bind.address,
                        length: bind.len,
                        mw_access_flags: bind.access.flags(),
                    },
                };
            }
            SendKind::Datagram(ah, remote_qpn, remote_qkey) => {
                let ah = ah.0.handle.as_ptr();
                raw.wr.ud = ibv_send_wr__bindgen_ty_2__bindgen_ty_3 { ah, remote_qpn, remote_qkey };
            }
        }
    }
}

impl QpCaps {
    fn raw(&self) -> ibv_qp_cap {
        ibv_qp_cap {
            max_send_wr: self.send_wr_max,
            max_recv_wr: self.receive_wr_max,
            max_send_sge: self.send_sge_max,
            max_recv_sge: self.receive_sge_max,
            max_inline_data: self.inline_len_max,
        }
    }
}

/// All of [`QpChange`].
const ALL_ATTRIBUTES: u32 = IBV_QP_STATE
    | IBV_QP_PKEY_INDEX
    | IBV_QP_PORT
    | IBV_QP_QKEY
    | IBV_QP_ACCESS_FLAGS
    | IBV_QP_AV
    | IBV_QP_PATH_MTU
    | IBV_QP_DEST_QPN
    | IBV_QP_RQ_PSN
    | IBV_QP_MAX_DEST_RD_ATOMIC
    | IBV_QP_MIN_RNR_TIMER
    | IBV_QP_SQ_PSN
    | IBV_QP_MAX_QP_RD_ATOMIC
    | IBV_QP_RETRY_CNT
    | IBV_QP_RNR_RETRY
    | IBV_QP_TIMEOUT;

impl QpChange {
    /// What a structure says, all of it.
    fn of(raw: &ibv_qp_attr) -> Self {
        Self {
            state: Some(QpState::of(raw.qp_state)),
            pkey_index: Some(raw.pkey_index),
            port: Some(raw.port_num),
            qkey: Some(raw.qkey),
            access: Some(RemoteAccess::of(raw.qp_access_flags)),
            address: Address::of(&raw.ah_attr),
            // 256 is 1, and each step twice as much.
            mtu: (1..=5).contains(&raw.path_mtu).then(|| 128 << raw.path_mtu),
            destination: Some(raw.dest_qp_num),
            rq_psn: Some(raw.rq_psn),
            max_dest_rd_atomic: Some(raw.max_dest_rd_atomic),
            min_rnr_timer: Some(raw.min_rnr_timer),
            sq_psn: Some(raw.sq_psn),
            max_rd_atomic: Some(raw.max_rd_atomic),
            retry_cnt: Some(raw.retry_cnt),
            rnr_retry: Some(raw.rnr_retry),
            timeout: Some(raw.timeout),
        }
    }

    /// The structure, and the mask of what is set in it.
    fn raw(&self) -> (ibv_qp_attr, u32) {
        fn set<T>(mask: &mut u32, flag: u32, place: &mut T, value: Option<T>) {
            if let Some(value) = value {
                (*place, *mask) = (value, *mask | flag);
            }
        }
        // SAFETY: 2.
        let mut raw: ibv_qp_attr = unsafe { zeroed() };
        let mut mask = 0;
        let mut put = |flag, place: &mut u32, value| set(&mut mask, flag, place, value);
        put(IBV_QP_STATE, &mut raw.qp_state, self.state.map(QpState::raw));
        put(IBV_QP_QKEY, &mut raw.qkey, self.qkey);
        put(
            IBV_QP_ACCESS_FLAGS,
            &mut raw.qp_access_flags,
            self.access.map(|access| access.flags() & !IBV_ACCESS_MW_BIND),
        );
        // 256 is 1, and each step twice as much.
        let code = self.mtu.map(|bytes| bytes.max(1).ilog2().saturating_sub(7));
        put(IBV_QP_PATH_MTU, &mut raw.path_mtu, code);
        put(IBV_QP_DEST_QPN, &mut raw.dest_qp_num, self.destination);
        put(IBV_QP_RQ_PSN, &mut raw.rq_psn, self.rq_psn);
        put(IBV_QP_SQ_PSN, &mut raw.sq_psn, self.sq_psn);
        let mut put = |flag, place: &mut u8, value| set(&mut mask, flag, place, value);
        put(IBV_QP_PORT, &mut raw.port_num, self.port);
        put(IBV_QP_MAX_DEST_RD_ATOMIC, &mut raw.max_dest_rd_atomic, self.max_dest_rd_atomic);
        put(IBV_QP_MIN_RNR_TIMER, &mut raw.min_rnr_timer, self.min_rnr_timer);
        put(IBV_QP_MAX_QP_RD_ATOMIC, &mut raw.max_rd_atomic, self.max_rd_atomic);
        put(IBV_QP_RETRY_CNT, &mut raw.retry_cnt, self.retry_cnt);
        put(IBV_QP_RNR_RETRY, &mut raw.rnr_retry, self.rnr_retry);
        put(IBV_QP_TIMEOUT, &mut raw.timeout, self.timeout);
        set(&mut mask, IBV_QP_PKEY_INDEX, &mut raw.pkey_index, self.pkey_index);
        let address = self.address.map(|address| address.raw());
        set(&mut mask, IBV_QP_AV, &mut raw.ah_attr, address);
        (raw, mask)
    }
}
