//! The inline functions of <infiniband/verbs.h> and <infiniband/mlx5dv.h>: they have no symbol, so
//! they are reimplemented here, under their names and with their conventions (null and errno, or
//! the errno itself).
//!
//! Each goes through a table of function pointers that the provider filled. The one in
//! `ibv_context` has a fixed layout; the one in `verbs_context`, which precedes the `ibv_context`
//! in memory, grows at its front, and `sz` gives its size.
//!
//! Invariants, which the callers of all functions here keep:
//! 1. Objects come from libibverbs and have not been destroyed; everything that a request points to
//!    is valid until the call returns.
//! 2. For objects whose rings the caller drives, the data path's functions (`ibv_poll_cq`,
//!    `ibv_post_send`, `ibv_post_recv`, `ibv_req_notify_cq`) are not called.
//! 3. An `ibv_context` whose `abi_compat` is all ones is the last field of a `verbs_context`, of
//!    which `sz` bytes exist.
//! 4. No reference to an object or table is formed: each field is read individually.

use core::ffi::c_int;
use core::mem::offset_of;
use core::ptr::null_mut;

use crate::bindings::*;
use crate::load::Verbs;

/// The provider's function `$op` of a context, or `None` if the library or the provider lacks it:
/// `verbs_get_ctx_op`.
macro_rules! extended_op {
    ($context:expr, $op:ident) => {{
        let extended = verbs_get_ctx($context);
        let len_needed = size_of::<verbs_context>() - offset_of!(verbs_context, $op);
        if extended.is_null() || (*extended).sz < len_needed { None } else { (*extended).$op }
    }};
}

/// The extended context around `context`, or null if there is none.
///
/// # Safety
/// `context` satisfies invariant 1.
pub unsafe fn verbs_get_ctx(context: *mut ibv_context) -> *mut verbs_context {
    // SAFETY: 1, 3: with the mark, the structure around it exists.
    unsafe {
        if (*context).abi_compat.addr() != usize::MAX {
            return null_mut();
        }
        context.byte_sub(offset_of!(verbs_context, context)).cast()
    }
}

/// Polls completions: returns how many, or a negative number.
///
/// # Safety
/// Invariants 1 and 2; `completions` has room for `count`.
#[inline]
pub unsafe fn ibv_poll_cq(cq: *mut ibv_cq, count: c_int, completions: *mut ibv_wc) -> c_int {
    // SAFETY: 1, 2.
    unsafe {
        match (*(*cq).context).ops.poll_cq {
            Some(poll_cq) => poll_cq(cq, count, completions),
            None => -libc::EOPNOTSUPP,
        }
    }
}

/// Requests an event at the next completion.
///
/// # Safety
/// Invariants 1 and 2.
pub unsafe fn ibv_req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    // SAFETY: 1, 2.
    unsafe {
        match (*(*cq).context).ops.req_notify_cq {
            Some(req_notify_cq) => req_notify_cq(cq, solicited_only),
            None => libc::EOPNOTSUPP,
        }
    }
}

/// Posts a list of packets to send.
///
/// # Safety
/// Invariants 1 and 2; the NIC may read the memory of the requests until they complete.
#[inline]
pub unsafe fn ibv_post_send(qp: *mut ibv_qp, first: *mut ibv_send_wr, bad: *mut *mut ibv_send_wr) -> c_int {
    // SAFETY: 1, 2.
    unsafe {
        match (*(*qp).context).ops.post_send {
            Some(post_send) => post_send(qp, first, bad),
            None => libc::EOPNOTSUPP,
        }
    }
}

/// Posts a list of buffers to receive into.
///
/// # Safety
/// Invariants 1 and 2; the NIC may write the memory of the requests until they complete.
#[inline]
pub unsafe fn ibv_post_recv(qp: *mut ibv_qp, first: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) -> c_int {
    // SAFETY: 1, 2.
    unsafe {
        match (*(*qp).context).ops.post_recv {
            Some(post_recv) => post_recv(qp, first, bad),
            None => libc::EOPNOTSUPP,
        }
    }
}

/// Posts a list of buffers to a shared receive queue.
///
/// # Safety
/// As [`ibv_post_recv`].
#[inline]
pub unsafe fn ibv_post_srq_recv(srq: *mut ibv_srq, first: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) -> c_int {
    // SAFETY: 1, 2.
    unsafe {
        match (*(*srq).context).ops.post_srq_recv {
            Some(post_srq_recv) => post_srq_recv(srq, first, bad),
            None => libc::EOPNOTSUPP,
        }
    }
}

/// A new memory window.
///
/// # Safety
/// Invariant 1.
pub unsafe fn ibv_alloc_mw(pd: *mut ibv_pd, kind: ibv_mw_type) -> *mut ibv_mw {
    // SAFETY: 1.
    unsafe {
        match (*(*pd).context).ops.alloc_mw {
            Some(alloc_mw) => alloc_mw(pd, kind),
            None => {
                *libc::__errno_location() = libc::EOPNOTSUPP;
                null_mut()
            }
        }
    }
}

/// Destroys a memory window.
///
/// # Safety
/// Invariant 1.
pub unsafe extern "C" fn ibv_dealloc_mw(mw: *mut ibv_mw) -> c_int {
    // SAFETY: 1.
    unsafe {
        match (*(*mw).context).ops.dealloc_mw {
            Some(dealloc_mw) => dealloc_mw(mw),
            None => libc::EOPNOTSUPP,
        }
    }
}

/// The state of a port. Old libraries fill a shorter structure, so the rest is zeroed.
///
/// # Safety
/// Invariant 1.
pub unsafe fn ibv_query_port(
    verbs: &Verbs,
    context: *mut ibv_context,
    port: u8,
    attributes: *mut ibv_port_attr,
) -> c_int {
    // SAFETY: 1; the legacy call fills the first fields of the same structure.
    unsafe {
        match extended_op!(context, query_port) {
            Some(query_port) => query_port(context, port, attributes, size_of::<ibv_port_attr>()),
            None => {
                attributes.write_bytes(0, 1);
                (verbs.ibv_query_port)(context, port, attributes.cast())
            }
        }
    }
}

/// The capabilities of the device; without the extended call, only their first part.
///
/// # Safety
/// Invariant 1.
pub unsafe fn ibv_query_device_ex(
    verbs: &Verbs,
    context: *mut ibv_context,
    attributes: *mut ibv_device_attr_ex,
) -> c_int {
    // SAFETY: 1.
    unsafe {
        if let Some(query_device_ex) = extended_op!(context, query_device_ex) {
            let answer = query_device_ex(context, core::ptr::null(), attributes, size_of::<ibv_device_attr_ex>());
            if answer != libc::EOPNOTSUPP && answer != libc::ENOSYS {
                return answer;
            }
        }
        attributes.write_bytes(0, 1);
        (verbs.ibv_query_device)(context, &raw mut (*attributes).orig_attr)
    }
}

/// Reads the device's clock.
///
/// # Safety
/// Invariant 1.
pub unsafe fn ibv_query_rt_values_ex(context: *mut ibv_context, values: *mut ibv_values_ex) -> c_int {
    // SAFETY: 1.
    unsafe {
        match extended_op!(context, query_rt_values) {
            Some(query_rt_values) => query_rt_values(context, values),
            None => libc::EOPNOTSUPP,
        }
    }
}

/// Creates a completion queue with extended options.
///
/// # Safety
/// Invariant 1.
pub unsafe fn ibv_create_cq_ex(context: *mut ibv_context, request: *mut ibv_cq_init_attr_ex) -> *mut ibv_cq_ex {
    // SAFETY: 1.
    unsafe {
        match extended_op!(context, create_cq_ex) {
            Some(create_cq_ex) => create_cq_ex(context, request),
            None => unsupported(),
        }
    }
}

/// Sets the event moderation of a CQ, in completions or microseconds.
///
/// # Safety
/// Invariant 1.
pub unsafe fn ibv_modify_cq(cq: *mut ibv_cq, change: *mut ibv_modify_cq_attr) -> c_int {
    // SAFETY: 1.
    unsafe {
        match extended_op!((*cq).context, modify_cq) {
            Some(modify_cq) => modify_cq(cq, change),
            None => libc::EOPNOTSUPP,
        }
    }
}

/// Creates a queue pair with extended options.
///
/// # Safety
/// Invariant 1.
pub unsafe fn ibv_create_qp_ex(
    verbs: &Verbs,
    context: *mut ibv_context,
    request: *mut ibv_qp_init_attr_ex,
) -> *mut ibv_qp {
    // SAFETY: 1; the plain request is the first part of the extended one.
    unsafe {
        if (*request).comp_mask == IBV_QP_INIT_ATTR_PD {
            return (verbs.ibv_create_qp)((*request).pd, request.cast());
        }
        match extended_op!(context, create_qp_ex) {
            Some(create_qp_ex) => create_qp_ex(context, request),
            None => unsupported(),
        }
    }
}

/// Allocates a thread domain.
///
/// # Safety
/// Invariant 1.
pub unsafe fn ibv_alloc_td(context: *mut ibv_context, request: *mut ibv_td_init_attr) -> *mut ibv_td {
    // SAFETY: 1.
    unsafe {
        match extended_op!(context, alloc_td) {
            Some(alloc_td) => alloc_td(context, request),
            None => unsupported(),
        }
    }
}

/// Frees a thread domain.
///
/// # Safety
/// Invariant 1, for the last time.
pub unsafe extern "C" fn ibv_dealloc_td(td: *mut ibv_td) -> c_int {
    // SAFETY: 1.
    unsafe {
        match extended_op!((*td).context, dealloc_td) {
            Some(dealloc_td) => dealloc_td(td),
            None => libc::EOPNOTSUPP,
        }
    }
}

/// Combines a protection domain with a thread domain. `ibv_dealloc_pd` frees it.
///
/// # Safety
/// Invariant 1.
pub unsafe fn ibv_alloc_parent_domain(
    context: *mut ibv_context,
    request: *mut ibv_parent_domain_init_attr,
) -> *mut ibv_pd {
    // SAFETY: 1.
    unsafe {
        match extended_op!(context, alloc_parent_domain) {
            Some(alloc_parent_domain) => alloc_parent_domain(context, request),
            None => unsupported(),
        }
    }
}

/// Sets the rate limit of a QP.
///
/// # Safety
/// Invariant 1.
pub unsafe fn ibv_modify_qp_rate_limit(qp: *mut ibv_qp, limit: *mut ibv_qp_rate_limit_attr) -> c_int {
    // SAFETY: 1.
    unsafe {
        match extended_op!((*qp).context, modify_qp_rate_limit) {
            Some(modify_qp_rate_limit) => modify_qp_rate_limit(qp, limit),
            None => libc::EOPNOTSUPP,
        }
    }
}

/// Creates a receive work queue.
///
/// # Safety
/// Invariant 1.
pub unsafe fn ibv_create_wq(context: *mut ibv_context, request: *mut ibv_wq_init_attr) -> *mut ibv_wq {
    // SAFETY: 1; this call must initialize the mutex and the condition, as in the header, and no
    // other code uses them yet.
    unsafe {
        let Some(create_wq) = extended_op!(context, create_wq) else { return unsupported() };
        let wq = create_wq(context, request);
        if !wq.is_null() {
            (*wq).wq_context = (*request).wq_context;
            (*wq).events_completed = 0;
            libc::pthread_mutex_init(&raw mut (*wq).mutex, core::ptr::null());
            libc::pthread_cond_init(&raw mut (*wq).cond, core::ptr::null());
        }
        wq
    }
}

/// Moves a work queue to another state.
///
/// # Safety
/// Invariant 1.
pub unsafe fn ibv_modify_wq(wq: *mut ibv_wq, change: *mut ibv_wq_attr) -> c_int {
    // SAFETY: 1.
    unsafe {
        match extended_op!((*wq).context, modify_wq) {
            Some(modify_wq) => modify_wq(wq, change),
            None => libc::EOPNOTSUPP,
        }
    }
}

/// Destroys a work queue.
///
/// # Safety
/// Invariant 1, for the last time.
pub unsafe extern "C" fn ibv_destroy_wq(wq: *mut ibv_wq) -> c_int {
    // SAFETY: 1.
    unsafe {
        match extended_op!((*wq).context, destroy_wq) {
            Some(destroy_wq) => destroy_wq(wq),
            None => libc::EOPNOTSUPP,
        }
    }
}

/// Creates a table that spreads received packets over work queues.
///
/// # Safety
/// Invariant 1.
pub unsafe fn ibv_create_rwq_ind_table(
    context: *mut ibv_context,
    request: *mut ibv_rwq_ind_table_init_attr,
) -> *mut ibv_rwq_ind_table {
    // SAFETY: 1.
    unsafe {
        match extended_op!(context, create_rwq_ind_table) {
            Some(create_rwq_ind_table) => create_rwq_ind_table(context, request),
            None => unsupported(),
        }
    }
}

/// Destroys an indirection table.
///
/// # Safety
/// Invariant 1, for the last time.
pub unsafe extern "C" fn ibv_destroy_rwq_ind_table(table: *mut ibv_rwq_ind_table) -> c_int {
    // SAFETY: 1.
    unsafe {
        match extended_op!((*table).context, destroy_rwq_ind_table) {
            Some(destroy_rwq_ind_table) => destroy_rwq_ind_table(table),
            None => libc::EOPNOTSUPP,
        }
    }
}

/// Steers packets to a QP. `rule` is followed by its specifications.
///
/// # Safety
/// Invariant 1.
pub unsafe fn ibv_create_flow(qp: *mut ibv_qp, rule: *mut ibv_flow_attr) -> *mut ibv_flow {
    // SAFETY: 1.
    unsafe {
        match extended_op!((*qp).context, ibv_create_flow) {
            Some(create_flow) => create_flow(qp, rule),
            None => unsupported(),
        }
    }
}

/// Removes a steering rule.
///
/// # Safety
/// Invariant 1, for the last time.
pub unsafe extern "C" fn ibv_destroy_flow(flow: *mut ibv_flow) -> c_int {
    // SAFETY: 1.
    unsafe {
        match extended_op!((*flow).context, ibv_destroy_flow) {
            Some(destroy_flow) => destroy_flow(flow),
            None => libc::EOPNOTSUPP,
        }
    }
}

/// Nanoseconds of the kernel's clock for a device's timestamp (`mlx5dv_ts_to_ns` of mlx5dv.h). A
/// stamp that is more than half the counter's range ahead counts as an old one, so `clock` must be
/// younger than `max_clock_info_update_nsec`.
///
/// Wraps as the C function does: a device may send any stamp.
pub fn mlx5dv_ts_to_ns(clock: &mlx5dv_clock_info, stamp: u64) -> u64 {
    let scale = |cycles: u64| cycles.wrapping_mul(clock.mult.into());
    let ahead = stamp.wrapping_sub(clock.last_cycles) & clock.mask;
    if ahead > clock.mask / 2 {
        let behind = clock.last_cycles.wrapping_sub(stamp) & clock.mask;
        clock.nsec.wrapping_sub(scale(behind).wrapping_sub(clock.frac).wrapping_shr(clock.shift))
    } else {
        clock.nsec.wrapping_add(scale(ahead).wrapping_add(clock.frac).wrapping_shr(clock.shift))
    }
}

/// The error of an unsupported function that creates objects: null, and the reason in errno.
fn unsupported<T>() -> *mut T {
    // SAFETY: errno is this thread's own.
    unsafe { *libc::__errno_location() = libc::EOPNOTSUPP };
    null_mut()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::{CompletionQueue, CqRequest, QpRequest, QueuePair, WorkQueue, WqOptions, WqRequest, fake};

    #[test]
    fn data_path_goes_through_the_table_of_the_context() {
        let (context, pd) = fake::open();
        let cq = CompletionQueue::create(&context, &CqRequest::new(64)).unwrap();
        let qp = QueuePair::create(&QpRequest::new(&pd, &cq, &cq)).unwrap();
        fake::calls();
        // SAFETY: 1, 2: objects of the fake, which does not read its arguments.
        unsafe {
            let mut first: ibv_send_wr = core::mem::zeroed();
            let mut bad = null_mut();
            assert_eq!(ibv_poll_cq(cq.as_ptr(), 32, null_mut()), 31);
            assert_eq!(ibv_req_notify_cq(cq.as_ptr(), 1), 0);
            assert_eq!(ibv_post_send(qp.as_ptr(), &raw mut first, &raw mut bad), libc::ENOMEM);
            assert_eq!(bad, &raw mut first);
            assert_eq!(ibv_post_recv(qp.as_ptr(), null_mut(), null_mut()), 0);
        }
        assert_eq!(fake::calls(), ["poll_cq", "req_notify_cq 1", "post_send", "post_recv"]);
    }

    #[test]
    fn function_that_the_provider_lacks_is_not_supported() {
        let (context, pd) = fake::open();
        let cq = CompletionQueue::create(&context, &CqRequest::new(64)).unwrap();
        // SAFETY: 1, 2: of the fake.
        unsafe {
            (*context.as_ptr()).ops.poll_cq = None;
            (*verbs_get_ctx(context.as_ptr())).create_wq = None;
            assert_eq!(ibv_poll_cq(cq.as_ptr(), 1, null_mut()), -libc::EOPNOTSUPP);
        }
        let request = WqRequest { pd: &pd, cq: &cq, wr_max: 1, sge_max: 1, options: WqOptions::default() };
        assert!(WorkQueue::create(&request).unwrap_err().is_unsupported());
    }

    #[test]
    fn extended_context_is_around_the_plain_one() {
        let (context, _pd) = fake::open();
        // SAFETY: 1, 3: of the fake.
        unsafe {
            let extended = verbs_get_ctx(context.as_ptr());
            assert_eq!(&raw mut (*extended).context, context.as_ptr());
            assert_eq!((*extended).sz, size_of::<verbs_context>());
        }
        fake::make_plain(&context, true);
        // SAFETY: 1: of the fake.
        assert!(unsafe { verbs_get_ctx(context.as_ptr()) }.is_null());
        fake::make_plain(&context, false);
    }

    #[test]
    fn new_work_queue_has_counted_no_events() {
        let (context, pd) = fake::open();
        let cq = CompletionQueue::create(&context, &CqRequest::new(64)).unwrap();
        let request = WqRequest { pd: &pd, cq: &cq, wr_max: 1, sge_max: 1, options: WqOptions::default() };
        let wq = WorkQueue::create(&request).unwrap();
        // SAFETY: 1: of the fake.
        assert_eq!(unsafe { (*wq.as_ptr()).events_completed }, 0);
    }

    #[test]
    fn stamps_are_converted_forwards_and_backwards_and_over_the_wrap() {
        // 250 MHz: 4 ns per cycle, a counter of 32 bits.
        let clock = |last_cycles, frac| mlx5dv_clock_info {
            nsec: 1_000_000,
            last_cycles,
            frac,
            mult: 4 << 10,
            shift: 10,
            mask: 0xffff_ffff,
        };
        let check = |last_cycles, frac, stamp, expected| {
            assert_eq!(mlx5dv_ts_to_ns(&clock(last_cycles, frac), stamp), expected, "{last_cycles} {frac} {stamp}");
        };
        check(100, 0, 100, 1_000_000);
        check(100, 0, 350, 1_001_000);
        check(350, 0, 100, 999_000);
        check(0xffff_fff0, 0, 0x0a, 1_000_104);
        check(0x0a, 0, 0xffff_fff0, 999_896);
        check(100, 1023, 101, 1_000_004);
        check(100, 1024, 101, 1_000_005);
        // No panic for any content of the device and the page.
        let wild =
            mlx5dv_clock_info { nsec: 0, last_cycles: 1, frac: u64::MAX, mult: u32::MAX, shift: 77, mask: u64::MAX };
        mlx5dv_ts_to_ns(&wild, 0);
        mlx5dv_ts_to_ns(&wild, u64::MAX / 2);
    }
}
