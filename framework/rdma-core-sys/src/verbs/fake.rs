//! A fake libibverbs for tests: it makes empty objects, records each call with its relevant
//! arguments, and fails on request.
//!
//! Invariants:
//! 1. Each object is a `Box` that was made here, and is freed by the call that destroys its kind. A
//!    context is the last field of a boxed `verbs_context`.
//! 2. All objects are plain C data: zeroes are a valid value of each.
//! 3. Records belong to a thread, and each test has one.

use core::cell::RefCell;
use core::ffi::{c_int, c_uint, c_void};
use core::mem::{offset_of, zeroed};
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::Ordering;
use std::collections::VecDeque;
use std::os::fd::{IntoRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;

use super::device::Device;
use super::{Context, ProtectionDomain, QueuePair, RingMemory, SendError, SendKind, SendWork};
use crate::bindings::*;
use crate::inline;
use crate::load::{Mlx5dv, RdmaCore, Verbs};

#[derive(Default)]
struct State {
    calls: Vec<String>,
    refusals: Vec<(&'static str, c_int)>,
    events: VecDeque<(ibv_event_type, u32)>,
    /// Objects that exist for an event alone.
    raised: Vec<usize>,
    /// The kernel's end of the last context's events.
    kernel: Option<UnixDatagram>,
    devices: usize,
}

thread_local! {
    static STATE: RefCell<State> = RefCell::default();
}

/// The libraries, over no device.
pub(crate) fn core_without_devices() -> RdmaCore {
    STATE.take();
    RdmaCore::of(VERBS, MLX5)
}

/// An open device with a protection domain. Earlier records are cleared.
pub(crate) fn open() -> (Context, ProtectionDomain) {
    let core = core_without_devices();
    STATE.with_borrow_mut(|state| state.devices = 1);
    let context = Device::list(&core).unwrap()[0].open().unwrap();
    let pd = ProtectionDomain::allocate(&context).unwrap();
    calls();
    (context, pd)
}

/// The calls since the last call of this.
pub(crate) fn calls() -> Vec<String> {
    STATE.with_borrow_mut(|state| core::mem::take(&mut state.calls))
}

/// From now on `call` fails.
pub(crate) fn refuse(call: &'static str, errno: c_int) {
    STATE.with_borrow_mut(|state| state.refusals.push((call, errno)));
}

/// From now on no call fails.
pub(crate) fn permit() {
    STATE.with_borrow_mut(|state| state.refusals.clear());
}

/// Makes an event pending. `number` is of the port, or of a queue that lives as long as the event.
pub(crate) fn raise(kind: ibv_event_type, number: u32) {
    STATE.with_borrow_mut(|state| state.events.push_back((kind, number)));
}

/// Has the kernel report an event whose object its maker has named by this number.
pub(crate) fn report(kind: ibv_event_type, named: u64) {
    let mut record = [0; 16];
    record[..8].copy_from_slice(&named.to_ne_bytes());
    record[8..12].copy_from_slice(&kind.to_ne_bytes());
    STATE.with_borrow(|state| state.kernel.as_ref().unwrap().send(&record)).unwrap();
}

/// Posts a send without pieces.
pub(crate) fn post(qp: &QueuePair, kind: SendKind<'_>, inline: Option<&[u8]>) -> Result<(), SendError> {
    let (signaled, solicited, fence) = (true, false, false);
    let send = SendWork { wr_id: 5, kind, sges: &[], inline, imm: None, signaled, solicited, fence };
    // SAFETY: it names no memory, and the fakes have no rings.
    unsafe { qp.post_send(&send) }
}

/// Imitates an older library, whose `verbs_context` has only the fields behind `rest_from`.
pub(crate) fn shorten(context: &Context, rest_from: usize) {
    // SAFETY: 1.
    unsafe { (*inline::verbs_get_ctx(context.as_ptr())).sz = size_of::<verbs_context>() - rest_from };
}

/// Imitates a library without `verbs_context`.
pub(crate) fn make_plain(context: &Context, is_plain: bool) {
    // SAFETY: 1.
    unsafe {
        (*context.as_ptr()).abi_compat =
            if is_plain { null_mut() } else { core::ptr::without_provenance_mut(usize::MAX) }
    };
}

const VERBS: Verbs = Verbs {
    ibv_get_device_list: get_device_list,
    ibv_free_device_list: free_device_list,
    ibv_get_device_guid: get_device_guid,
    ibv_open_device: open_device,
    ibv_close_device: close_device,
    ibv_query_device: query_device,
    ibv_query_port: query_port,
    ibv_query_gid: query_gid,
    ibv_get_async_event: get_async_event,
    ibv_ack_async_event: ack_async_event,
    ibv_alloc_pd: alloc_pd,
    ibv_dealloc_pd: dealloc_pd,
    ibv_reg_mr: reg_mr,
    ibv_reg_mr_iova2: reg_mr_iova2,
    ibv_dereg_mr: dereg_mr,
    ibv_create_comp_channel: create_comp_channel,
    ibv_destroy_comp_channel: destroy_comp_channel,
    ibv_get_cq_event: get_cq_event,
    ibv_ack_cq_events: ack_cq_events,
    ibv_create_cq: create_cq,
    ibv_destroy_cq: destroy_cq,
    ibv_create_srq: create_srq,
    ibv_modify_srq: modify_srq,
    ibv_destroy_srq: destroy_srq,
    ibv_create_ah: create_ah,
    ibv_destroy_ah: destroy_ah,
    ibv_attach_mcast: attach_mcast,
    ibv_detach_mcast: detach_mcast,
    ibv_create_qp: create_qp,
    ibv_modify_qp: modify_qp,
    ibv_query_qp: query_qp,
    ibv_destroy_qp: destroy_qp,
};

const MLX5: Mlx5dv = Mlx5dv {
    mlx5dv_is_supported: is_supported,
    mlx5dv_query_device: direct_query_device,
    mlx5dv_create_cq: direct_create_cq,
    mlx5dv_create_qp: direct_create_qp,
    mlx5dv_create_wq: direct_create_wq,
    mlx5dv_init_obj: init_obj,
    mlx5dv_set_context_attr: set_context_attr,
    mlx5dv_get_clock_info: get_clock_info,
};

/// Memory for rings that counts its uses and has one page, which nobody touches.
#[derive(Default)]
pub(crate) struct Page(core::sync::atomic::AtomicUsize, core::sync::atomic::AtomicUsize);

impl Page {
    /// How often it was taken and given back.
    pub(crate) fn uses(&self) -> (usize, usize) {
        (self.0.load(Ordering::Relaxed), self.1.load(Ordering::Relaxed))
    }
}

// SAFETY: the fakes do not touch the page.
unsafe impl RingMemory for Page {
    fn allocate(&self, _: usize) -> Option<NonNull<u8>> {
        self.0.fetch_add(1, Ordering::Relaxed);
        NonNull::new(core::ptr::without_provenance_mut(0x8000))
    }

    fn free(&self, start: NonNull<u8>) {
        assert_eq!(start.as_ptr().addr(), 0x8000);
        self.1.fetch_add(1, Ordering::Relaxed);
    }
}

/// Records a call; returns its errno, or 0.
fn note(call: &str, words: &str) -> c_int {
    STATE.with_borrow_mut(|state| {
        state.calls.push([call, words].join(" ").trim_end().to_owned());
        state.refusals.iter().find(|(refused, _)| *refused == call).map_or(0, |(_, errno)| *errno)
    })
}

/// A new object, or null and errno.
fn make<T>(call: &str, words: &str, fill: impl FnOnce(&mut T)) -> *mut T {
    let errno = note(call, words);
    if errno != 0 {
        // SAFETY: errno is this thread's own.
        unsafe { *libc::__errno_location() = errno };
        return null_mut();
    }
    // SAFETY: 2.
    let mut object = Box::new(unsafe { zeroed() });
    fill(&mut object);
    Box::into_raw(object)
}

/// Frees an object, unless the call is to fail.
unsafe fn destroy<T>(call: &str, object: *mut T) -> c_int {
    let errno = note(call, "");
    if errno == 0 {
        // SAFETY: 1.
        drop(unsafe { Box::from_raw(object) });
    }
    errno
}

fn some_descriptor() -> c_int {
    // SAFETY: a constant path.
    unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) }
}

unsafe extern "C" fn get_device_list(count: *mut c_int) -> *mut *mut ibv_device {
    let device = |device: &mut ibv_device| {
        for (place, byte) in device.name.iter_mut().zip(c"mlx5_0".to_bytes()) {
            *place = byte.cast_signed() as _;
        }
        for (place, byte) in device.dev_name.iter_mut().zip(c"uverbs0".to_bytes()) {
            *place = byte.cast_signed() as _;
        }
        for (place, byte) in device.ibdev_path.iter_mut().zip(c"/sys/class/infiniband/mlx5_0".to_bytes()) {
            *place = byte.cast_signed() as _;
        }
    };
    let devices = STATE.with_borrow(|state| state.devices);
    make("ibv_get_device_list", "", |list: &mut [*mut ibv_device; 2]| {
        list[0] = if devices == 0 { null_mut() } else { make("device", "", device) };
        // SAFETY: the caller's.
        unsafe { *count = c_int::try_from(devices).unwrap() };
    })
    .cast()
}

unsafe extern "C" fn free_device_list(list: *mut *mut ibv_device) {
    // SAFETY: 1.
    unsafe {
        if !(*list).is_null() {
            destroy("device_gone", *list);
        }
        destroy("ibv_free_device_list", list.cast::<[*mut ibv_device; 2]>());
    }
}

unsafe extern "C" fn get_device_guid(_: *mut ibv_device) -> __be64 {
    0x0011_2233_4455_6677_u64.to_be()
}

unsafe extern "C" fn open_device(device: *mut ibv_device) -> *mut ibv_context {
    let extended = make("ibv_open_device", "", |extended: &mut verbs_context| {
        extended.sz = size_of::<verbs_context>();
        extended.query_port = Some(extended_query_port);
        extended.query_device_ex = Some(query_device_ex);
        extended.query_rt_values = Some(query_rt_values);
        extended.create_cq_ex = Some(create_cq_ex);
        extended.modify_cq = Some(modify_cq);
        extended.create_qp_ex = Some(create_qp_ex);
        extended.alloc_td = Some(alloc_td);
        extended.dealloc_td = Some(dealloc_td);
        extended.alloc_parent_domain = Some(alloc_parent_domain);
        extended.modify_qp_rate_limit = Some(modify_qp_rate_limit);
        extended.create_wq = Some(create_wq);
        extended.modify_wq = Some(modify_wq);
        extended.destroy_wq = Some(destroy_wq);
        extended.create_rwq_ind_table = Some(create_rwq_ind_table);
        extended.destroy_rwq_ind_table = Some(destroy_rwq_ind_table);
        extended.ibv_create_flow = Some(create_flow);
        extended.ibv_destroy_flow = Some(destroy_flow);
        let context = &mut extended.context;
        context.device = device;
        context.abi_compat = core::ptr::without_provenance_mut(usize::MAX);
        let (ours, kernel) = UnixDatagram::pair().unwrap();
        STATE.with_borrow_mut(|state| state.kernel = Some(kernel));
        context.async_fd = OwnedFd::from(ours).into_raw_fd();
        context.num_comp_vectors = 4;
        context.ops.poll_cq = Some(poll_cq);
        context.ops.req_notify_cq = Some(req_notify_cq);
        context.ops.post_send = Some(post_send);
        context.ops.post_recv = Some(post_recv);
        context.ops.alloc_mw = Some(alloc_mw);
        context.ops.dealloc_mw = Some(dealloc_mw);
    });
    if extended.is_null() {
        return null_mut();
    }
    // SAFETY: 1.
    unsafe { &raw mut (*extended).context }
}

unsafe extern "C" fn close_device(context: *mut ibv_context) -> c_int {
    // SAFETY: 1.
    unsafe {
        libc::close((*context).async_fd);
        destroy("ibv_close_device", context.byte_sub(offset_of!(verbs_context, context)).cast::<verbs_context>())
    }
}

unsafe extern "C" fn query_device(_: *mut ibv_context, attributes: *mut ibv_device_attr) -> c_int {
    // SAFETY: the caller's.
    unsafe { (*attributes).max_qp = 7 };
    note("ibv_query_device", "")
}

unsafe extern "C" fn query_device_ex(
    _: *mut ibv_context,
    _: *const ibv_query_device_ex_input,
    attributes: *mut ibv_device_attr_ex,
    len: usize,
) -> c_int {
    // SAFETY: the caller's.
    unsafe {
        (*attributes).orig_attr.max_qp = 8;
        (*attributes).orig_attr.phys_port_cnt = 1;
        ((*attributes).orig_attr.max_qp_rd_atom, (*attributes).orig_attr.max_qp_init_rd_atom) = (16, 300);
        (*attributes).raw_packet_caps = IBV_RAW_PACKET_CAP_CVLAN_STRIPPING;
        (*attributes).tso_caps = ibv_tso_caps { max_tso: 262_144, supported_qpts: 1 << IBV_QPT_RAW_PACKET };
        (*attributes).packet_pacing_caps.supported_qpts = 1 << IBV_QPT_RC;
    }
    note("query_device_ex", &len.to_string())
}

unsafe extern "C" fn query_port(_: *mut ibv_context, port: u8, _: *mut _compat_ibv_port_attr) -> c_int {
    note("ibv_query_port", &port.to_string())
}

unsafe extern "C" fn extended_query_port(
    _: *mut ibv_context,
    port: u8,
    attributes: *mut ibv_port_attr,
    len: usize,
) -> c_int {
    // SAFETY: the caller's.
    unsafe {
        (*attributes).state = IBV_PORT_ACTIVE;
        (*attributes).link_layer = u8::try_from(IBV_LINK_LAYER_ETHERNET).unwrap();
        (*attributes).active_mtu = IBV_MTU_1024;
        (*attributes).active_width = 2;
        (*attributes).active_speed = 32;
    }
    note("query_port", &format!("{port} {len}"))
}

unsafe extern "C" fn query_gid(_: *mut ibv_context, port: u8, idx: c_int, gid: *mut ibv_gid) -> c_int {
    // SAFETY: the caller's.
    unsafe { (*gid).raw = [9; 16] };
    note("ibv_query_gid", &format!("{port} {idx}"))
}

unsafe extern "C" fn create_srq(pd: *mut ibv_pd, request: *mut ibv_srq_init_attr) -> *mut ibv_srq {
    // SAFETY: the caller's.
    let (context, attr) = unsafe { ((*pd).context, (*request).attr) };
    let words = format!("{} {} limit {}", attr.max_wr, attr.max_sge, attr.srq_limit);
    make("ibv_create_srq", &words, |srq: &mut ibv_srq| (srq.context, srq.handle) = (context, 6))
}

unsafe extern "C" fn modify_srq(_: *mut ibv_srq, change: *mut ibv_srq_attr, mask: c_int) -> c_int {
    // SAFETY: the caller's.
    let limit = unsafe { (*change).srq_limit };
    note("ibv_modify_srq", &format!("limit {limit} mask {mask:#x}"))
}

unsafe extern "C" fn destroy_srq(srq: *mut ibv_srq) -> c_int {
    // SAFETY: 1.
    unsafe { destroy("ibv_destroy_srq", srq) }
}

unsafe extern "C" fn create_ah(_: *mut ibv_pd, request: *mut ibv_ah_attr) -> *mut ibv_ah {
    // SAFETY: the caller's.
    let attr = unsafe { *request };
    let words = format!("port {} global {} hops {}", attr.port_num, attr.is_global, attr.grh.hop_limit);
    make("ibv_create_ah", &words, |_: &mut ibv_ah| {})
}

unsafe extern "C" fn destroy_ah(ah: *mut ibv_ah) -> c_int {
    // SAFETY: 1.
    unsafe { destroy("ibv_destroy_ah", ah) }
}

unsafe extern "C" fn query_rt_values(_: *mut ibv_context, values: *mut ibv_values_ex) -> c_int {
    // SAFETY: the caller's.
    unsafe { (*values).raw_clock.tv_nsec = -2 };
    note("query_rt_values", "")
}

unsafe extern "C" fn get_async_event(_: *mut ibv_context, event: *mut ibv_async_event) -> c_int {
    let Some((kind, number)) = STATE.with_borrow_mut(|state| state.events.pop_front()) else {
        // SAFETY: errno is this thread's own.
        unsafe { *libc::__errno_location() = libc::EAGAIN };
        return -1;
    };
    // SAFETY: the caller's; objects named by events are released when the events are acknowledged.
    unsafe {
        (*event).event_type = kind;
        match kind {
            IBV_EVENT_CQ_ERR => (*event).element.cq = make("cq", "", |cq: &mut ibv_cq| cq.handle = number),
            IBV_EVENT_QP_FATAL | IBV_EVENT_COMM_EST | IBV_EVENT_SQ_DRAINED | IBV_EVENT_QP_LAST_WQE_REACHED => {
                (*event).element.qp = make("qp", "", |qp: &mut ibv_qp| qp.qp_num = number);
            }
            IBV_EVENT_SRQ_LIMIT_REACHED => {
                (*event).element.srq = make("srq", "", |srq: &mut ibv_srq| srq.handle = number);
            }
            IBV_EVENT_WQ_FATAL => (*event).element.wq = make("wq", "", |wq: &mut ibv_wq| wq.wq_num = number),
            _ => (*event).element.port_num = number.cast_signed(),
        }
        STATE.with_borrow_mut(|state| state.raised.push((*event).element.cq.addr()));
    }
    note("ibv_get_async_event", "")
}

unsafe extern "C" fn ack_async_event(event: *mut ibv_async_event) {
    // SAFETY: as made above, unless it is an object of the test's.
    unsafe {
        let object = (*event).element.cq.addr();
        let is_raised = STATE.with_borrow(|state| state.raised.contains(&object));
        match (*event).event_type {
            _ if !is_raised => {}
            IBV_EVENT_CQ_ERR => drop(Box::from_raw((*event).element.cq)),
            IBV_EVENT_QP_FATAL | IBV_EVENT_COMM_EST | IBV_EVENT_SQ_DRAINED | IBV_EVENT_QP_LAST_WQE_REACHED => {
                drop(Box::from_raw((*event).element.qp));
            }
            IBV_EVENT_SRQ_LIMIT_REACHED => drop(Box::from_raw((*event).element.srq)),
            IBV_EVENT_WQ_FATAL => drop(Box::from_raw((*event).element.wq)),
            _ => {}
        }
        STATE.with_borrow_mut(|state| state.raised.retain(|raised| *raised != object));
    }
    note("ibv_ack_async_event", "");
}

unsafe extern "C" fn alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    make("ibv_alloc_pd", "", |pd: &mut ibv_pd| pd.context = context)
}

unsafe extern "C" fn alloc_td(context: *mut ibv_context, request: *mut ibv_td_init_attr) -> *mut ibv_td {
    // SAFETY: the caller's.
    let mask = unsafe { (*request).comp_mask };
    make("alloc_td", &format!("mask {mask}"), |td: &mut ibv_td| td.context = context)
}

unsafe extern "C" fn dealloc_td(td: *mut ibv_td) -> c_int {
    // SAFETY: 1.
    unsafe { destroy("dealloc_td", td) }
}

/// Marks a parent domain by its handle.
const PARENT: u32 = 1;

unsafe extern "C" fn alloc_parent_domain(
    context: *mut ibv_context,
    request: *mut ibv_parent_domain_init_attr,
) -> *mut ibv_pd {
    // SAFETY: the caller's.
    let (mask, has_thread) = unsafe { ((*request).comp_mask, !(*request).td.is_null()) };
    make("alloc_parent_domain", &format!("mask {mask} thread {has_thread}"), |pd: &mut ibv_pd| {
        (pd.context, pd.handle) = (context, PARENT);
    })
}

unsafe extern "C" fn dealloc_pd(pd: *mut ibv_pd) -> c_int {
    // SAFETY: 1.
    unsafe { destroy(if (*pd).handle == PARENT { "ibv_dealloc_pd parent" } else { "ibv_dealloc_pd" }, pd) }
}

unsafe extern "C" fn reg_mr(_: *mut ibv_pd, _: *mut c_void, len: usize, access: c_int) -> *mut ibv_mr {
    make("ibv_reg_mr", &format!("{len} access {access}"), |mr: &mut ibv_mr| mr.lkey = 0x1234)
}

unsafe extern "C" fn reg_mr_iova2(
    _: *mut ibv_pd,
    address: *mut c_void,
    len: usize,
    iova: u64,
    access: c_uint,
) -> *mut ibv_mr {
    assert_eq!(address.addr() as u64, iova);
    make("ibv_reg_mr_iova2", &format!("{len} access {access}"), |_: &mut ibv_mr| {})
}

unsafe extern "C" fn dereg_mr(mr: *mut ibv_mr) -> c_int {
    // SAFETY: 1.
    unsafe { destroy("ibv_dereg_mr", mr) }
}

unsafe extern "C" fn create_comp_channel(_: *mut ibv_context) -> *mut ibv_comp_channel {
    make("ibv_create_comp_channel", "", |channel: &mut ibv_comp_channel| channel.fd = some_descriptor())
}

unsafe extern "C" fn destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    // SAFETY: 1.
    unsafe {
        libc::close((*channel).fd);
        destroy("ibv_destroy_comp_channel", channel)
    }
}

unsafe extern "C" fn get_cq_event(_: *mut ibv_comp_channel, _: *mut *mut ibv_cq, _: *mut *mut c_void) -> c_int {
    // SAFETY: errno is this thread's own.
    unsafe { *libc::__errno_location() = libc::EAGAIN };
    -1
}

unsafe extern "C" fn ack_cq_events(_: *mut ibv_cq, _: c_uint) {}

fn new_cq(call: &str, words: &str, context: *mut ibv_context, count: u32) -> *mut ibv_cq_ex {
    // The larger type of the two, as in the library, because it is freed as that type.
    make(call, words, |cq: &mut ibv_cq_ex| {
        cq.context = context;
        cq.handle = 5;
        cq.cqe = c_int::try_from(count).unwrap();
    })
}

unsafe extern "C" fn create_cq(
    context: *mut ibv_context,
    count: c_int,
    _: *mut c_void,
    channel: *mut ibv_comp_channel,
    vector: c_int,
) -> *mut ibv_cq {
    let words = format!("{count} vector {vector}{}", if channel.is_null() { "" } else { " with channel" });
    new_cq("ibv_create_cq", &words, context, count.cast_unsigned()).cast()
}

unsafe extern "C" fn create_cq_ex(context: *mut ibv_context, request: *mut ibv_cq_init_attr_ex) -> *mut ibv_cq_ex {
    // SAFETY: the caller's.
    let request = unsafe { &*request };
    let words =
        format!("{} wc {:#x} mask {} flags {}", request.cqe, request.wc_flags, request.comp_mask, request.flags);
    new_cq("create_cq_ex", &words, context, request.cqe)
}

unsafe extern "C" fn direct_create_cq(
    context: *mut ibv_context,
    request: *mut ibv_cq_init_attr_ex,
    direct: *mut mlx5dv_cq_init_attr,
) -> *mut ibv_cq_ex {
    // SAFETY: the caller's.
    let (request, direct) = unsafe { (&*request, &*direct) };
    let words = format!(
        "{} wc {:#x} mask {} format {} flags {} len {}",
        request.cqe, request.wc_flags, direct.comp_mask, direct.cqe_comp_res_format, direct.flags, direct.cqe_size
    );
    new_cq("mlx5dv_create_cq", &words, context, request.cqe)
}

unsafe extern "C" fn modify_cq(_: *mut ibv_cq, change: *mut ibv_modify_cq_attr) -> c_int {
    // SAFETY: the caller's.
    let moderate = unsafe { (*change).moderate };
    note("modify_cq", &format!("{} {}", moderate.cq_count, moderate.cq_period))
}

unsafe extern "C" fn destroy_cq(cq: *mut ibv_cq) -> c_int {
    // SAFETY: 1.
    unsafe { destroy("ibv_destroy_cq", cq.cast::<ibv_cq_ex>()) }
}

unsafe extern "C" fn poll_cq(_: *mut ibv_cq, count: c_int, _: *mut ibv_wc) -> c_int {
    note("poll_cq", "");
    count - 1
}

unsafe extern "C" fn req_notify_cq(_: *mut ibv_cq, solicited_only: c_int) -> c_int {
    note("req_notify_cq", &solicited_only.to_string())
}

fn new_qp(call: &str, words: &str, context: *mut ibv_context, request: &mut ibv_qp_init_attr_ex) -> *mut ibv_qp {
    // The device grants a little more than was requested.
    request.cap.max_inline_data += 12;
    make(call, words, |qp: &mut ibv_qp| {
        qp.context = context;
        qp.qp_num = 0x000a_bcde;
        qp.handle = request.rx_hash_conf.rx_hash_key_len.into();
    })
}

fn words_of(request: &ibv_qp_init_attr_ex) -> String {
    let caps = &request.cap;
    format!(
        "type {} mask {:#x} flags {:#x} tso {} rings {} {} hash {} {:#x}",
        request.qp_type,
        request.comp_mask,
        request.create_flags,
        request.max_tso_header,
        caps.max_send_wr,
        caps.max_recv_wr,
        request.rx_hash_conf.rx_hash_key_len,
        request.rx_hash_conf.rx_hash_fields_mask
    )
}

unsafe extern "C" fn create_qp(pd: *mut ibv_pd, request: *mut ibv_qp_init_attr) -> *mut ibv_qp {
    // SAFETY: the caller's.
    let (context, kind) = unsafe { ((*pd).context, (*request).qp_type) };
    make("ibv_create_qp", &format!("type {kind}"), |qp: &mut ibv_qp| qp.context = context)
}

unsafe extern "C" fn create_qp_ex(context: *mut ibv_context, request: *mut ibv_qp_init_attr_ex) -> *mut ibv_qp {
    // SAFETY: the caller's.
    let request = unsafe { &mut *request };
    new_qp("create_qp_ex", &words_of(request), context, request)
}

unsafe extern "C" fn direct_create_qp(
    context: *mut ibv_context,
    request: *mut ibv_qp_init_attr_ex,
    direct: *mut mlx5dv_qp_init_attr,
) -> *mut ibv_qp {
    // SAFETY: the caller's.
    let (request, flags) = unsafe { (&mut *request, (*direct).create_flags) };
    new_qp("mlx5dv_create_qp", &format!("{} direct {flags:#x}", words_of(request)), context, request)
}

unsafe extern "C" fn modify_qp(_: *mut ibv_qp, change: *mut ibv_qp_attr, mask: c_int) -> c_int {
    // SAFETY: the caller's.
    let (state, port) = unsafe { ((*change).qp_state, (*change).port_num) };
    note("ibv_modify_qp", &format!("state {state} port {port} mask {mask:#x}"))
}

unsafe extern "C" fn modify_qp_rate_limit(_: *mut ibv_qp, limit: *mut ibv_qp_rate_limit_attr) -> c_int {
    // SAFETY: the caller's.
    let limit = unsafe { *limit };
    note("modify_qp_rate_limit", &format!("{} {} {}", limit.rate_limit, limit.max_burst_sz, limit.typical_pkt_sz))
}

unsafe extern "C" fn query_qp(_: *mut ibv_qp, seen: *mut ibv_qp_attr, mask: c_int, _: *mut ibv_qp_init_attr) -> c_int {
    // SAFETY: the caller's.
    unsafe { (*seen).qp_state = IBV_QPS_SQE };
    note("ibv_query_qp", &format!("mask {mask:#x}"))
}

unsafe extern "C" fn attach_mcast(_: *mut ibv_qp, group: *const ibv_gid, lid: u16) -> c_int {
    // SAFETY: the caller's; any bits are a GID.
    note("ibv_attach_mcast", &format!("{:x?} {lid}", unsafe { (*group).raw }))
}

unsafe extern "C" fn detach_mcast(_: *mut ibv_qp, group: *const ibv_gid, lid: u16) -> c_int {
    // SAFETY: the caller's; any bits are a GID.
    note("ibv_detach_mcast", &format!("{:x?} {lid}", unsafe { (*group).raw }))
}

unsafe extern "C" fn destroy_qp(qp: *mut ibv_qp) -> c_int {
    // SAFETY: 1.
    unsafe { destroy(if (*qp).handle == 0 { "ibv_destroy_qp" } else { "ibv_destroy_qp rss" }, qp) }
}

unsafe extern "C" fn post_send(_: *mut ibv_qp, wr: *mut ibv_send_wr, bad: *mut *mut ibv_send_wr) -> c_int {
    // SAFETY: the caller's.
    unsafe { *bad = wr };
    // SAFETY: the caller's; any bits are a number.
    let words = unsafe {
        match (*wr).opcode {
            IBV_WR_BIND_MW => {
                let bind = (*wr).__bindgen_anon_2.bind_mw;
                let info = bind.bind_info;
                format!("bind {:#x} at {} {} rights {:#x}", bind.rkey, info.addr, info.length, info.mw_access_flags)
            }
            IBV_WR_LOCAL_INV | IBV_WR_SEND_WITH_INV => format!("inv {:#x}", (*wr).__bindgen_anon_1.invalidate_rkey),
            _ => String::new(),
        }
    };
    note("post_send", &words);
    libc::ENOMEM
}

unsafe extern "C" fn alloc_mw(pd: *mut ibv_pd, kind: ibv_mw_type) -> *mut ibv_mw {
    make("alloc_mw", &format!("type {kind}"), |mw: &mut ibv_mw| {
        // SAFETY: the caller's.
        mw.context = unsafe { (*pd).context };
        mw.rkey = 0x1200;
    })
}

unsafe extern "C" fn dealloc_mw(mw: *mut ibv_mw) -> c_int {
    // SAFETY: 1.
    unsafe { destroy("dealloc_mw", mw) }
}

unsafe extern "C" fn post_recv(_: *mut ibv_qp, _: *mut ibv_recv_wr, _: *mut *mut ibv_recv_wr) -> c_int {
    note("post_recv", "")
}

fn new_wq(call: &str, words: &str, context: *mut ibv_context, request: *mut ibv_wq_init_attr) -> *mut ibv_wq {
    // SAFETY: the caller's.
    let request = unsafe { &*request };
    let words = format!("{} mask {} flags {:#x}{words}", request.max_wr, request.comp_mask, request.create_flags);
    make(call, &words, |wq: &mut ibv_wq| {
        wq.context = context;
        wq.wq_num = 0x77;
        // To be set by the inline function.
        wq.events_completed = 9;
    })
}

unsafe extern "C" fn create_wq(context: *mut ibv_context, request: *mut ibv_wq_init_attr) -> *mut ibv_wq {
    new_wq("create_wq", "", context, request)
}

unsafe extern "C" fn direct_create_wq(
    context: *mut ibv_context,
    request: *mut ibv_wq_init_attr,
    direct: *mut mlx5dv_wq_init_attr,
) -> *mut ibv_wq {
    // SAFETY: the caller's.
    let strides = unsafe { (*direct).striding_rq_attrs };
    let (len, count) = (strides.single_stride_log_num_of_bytes, strides.single_wqe_log_num_of_strides);
    new_wq("mlx5dv_create_wq", &format!(" strides {len} {count} {}", strides.two_byte_shift_en), context, request)
}

unsafe extern "C" fn modify_wq(wq: *mut ibv_wq, change: *mut ibv_wq_attr) -> c_int {
    // SAFETY: the caller's.
    let change = unsafe { *change };
    let from = if change.attr_mask & IBV_WQ_ATTR_CURR_STATE == 0 { "?" } else { &change.curr_wq_state.to_string() };
    let errno = note("modify_wq", &format!("state {from} to {} mask {}", change.wq_state, change.attr_mask));
    if errno == 0 {
        // SAFETY: the caller's.
        unsafe { (*wq).state = change.wq_state };
    }
    errno
}

unsafe extern "C" fn destroy_wq(wq: *mut ibv_wq) -> c_int {
    // SAFETY: 1.
    unsafe { destroy("destroy_wq", wq) }
}

unsafe extern "C" fn create_rwq_ind_table(
    context: *mut ibv_context,
    request: *mut ibv_rwq_ind_table_init_attr,
) -> *mut ibv_rwq_ind_table {
    // SAFETY: the caller's.
    let log = unsafe { (*request).log_ind_tbl_size };
    make("create_rwq_ind_table", &log.to_string(), |table: &mut ibv_rwq_ind_table| table.context = context)
}

unsafe extern "C" fn destroy_rwq_ind_table(table: *mut ibv_rwq_ind_table) -> c_int {
    // SAFETY: 1.
    unsafe { destroy("destroy_rwq_ind_table", table) }
}

unsafe extern "C" fn create_flow(qp: *mut ibv_qp, rule: *mut ibv_flow_attr) -> *mut ibv_flow {
    // SAFETY: the caller's.
    let (context, rule) = unsafe { ((*qp).context, &*rule) };
    let words = format!("port {} priority {} specs {} len {}", rule.port, rule.priority, rule.num_of_specs, rule.size);
    make("create_flow", &words, |flow: &mut ibv_flow| flow.context = context)
}

unsafe extern "C" fn destroy_flow(flow: *mut ibv_flow) -> c_int {
    // SAFETY: 1.
    unsafe { destroy("destroy_flow", flow) }
}

unsafe extern "C" fn is_supported(_: *mut ibv_device) -> bool {
    true
}

unsafe extern "C" fn direct_query_device(_: *mut ibv_context, attributes: *mut mlx5dv_context) -> c_int {
    // SAFETY: the caller's.
    unsafe {
        // This library supports only striding.
        (*attributes).comp_mask &= u64::from(MLX5DV_CONTEXT_MASK_STRIDING_RQ);
        (*attributes).flags = MLX5DV_CONTEXT_FLAGS_ENHANCED_MPW.into();
        (*attributes).cqe_comp_caps.max_num = 64;
        (*attributes).striding_rq_caps = mlx5dv_striding_rq_caps {
            min_single_stride_log_num_of_bytes: 6,
            max_single_stride_log_num_of_bytes: 13,
            min_single_wqe_log_num_of_strides: 3,
            max_single_wqe_log_num_of_strides: 16,
            supported_qpts: 1 << IBV_QPT_RAW_PACKET,
        };
    }
    note("mlx5dv_query_device", "")
}

unsafe extern "C" fn init_obj(what: *mut mlx5dv_obj, kind: u64) -> c_int {
    // Addresses that are never dereferenced.
    let at = core::ptr::without_provenance_mut::<c_void>;
    // SAFETY: the caller's.
    unsafe {
        let what = &*what;
        match u32::try_from(kind).unwrap() {
            MLX5DV_OBJ_QP => {
                let out = &mut *what.qp.out;
                out.dbrec = at(0x1000).cast();
                out.sq.buf = at(0x2000);
                out.sq.wqe_cnt = 512;
                out.sq.stride = 64;
                out.bf.reg = at(0x3800);
                out.bf.size = 256;
                out.uar_mmap_offset = 0x7000;
                out.sqn = 0x55;
            }
            MLX5DV_OBJ_CQ => {
                let out = &mut *what.cq.out;
                (out.buf, out.dbrec, out.cq_uar) = (at(0x4000), at(0x5000).cast(), at(0x6000));
                (out.cqe_cnt, out.cqe_size, out.cqn) = (1024, 64, 0x99);
            }
            // A queue whose ring the library does not export.
            MLX5DV_OBJ_RWQ => (*what.rwq.out).wqe_cnt = 8,
            _ => return libc::EINVAL,
        }
    }
    note("mlx5dv_init_obj", &kind.to_string())
}

/// Asks the allocator for a page and gives it back, as a queue does that is made and destroyed.
unsafe extern "C" fn set_context_attr(
    _: *mut ibv_context,
    kind: mlx5dv_set_ctx_attr_type,
    attribute: *mut c_void,
) -> c_int {
    let errno = note("mlx5dv_set_context_attr", &kind.to_string());
    if errno == 0 {
        // SAFETY: the caller's.
        unsafe {
            let allocators = &*attribute.cast::<mlx5dv_ctx_allocators>();
            let page = allocators.alloc.unwrap()(4096, allocators.data);
            if !page.is_null() {
                allocators.free.unwrap()(page, allocators.data);
            }
        }
    }
    errno
}

unsafe extern "C" fn get_clock_info(_: *mut ibv_context, clock: *mut mlx5dv_clock_info) -> c_int {
    // SAFETY: the caller's.
    unsafe { *clock = mlx5dv_clock_info { nsec: 1000, last_cycles: 50, frac: 0, mult: 2, shift: 1, mask: u64::MAX } };
    note("mlx5dv_get_clock_info", "")
}
