//! Protection domains, memory regions, and windows to them.

use super::handles::{Kind, Object};
use crate::hca::{AccessFlags, Errno, MrRequest};
use crate::uverbs::abi::mlx5;
use crate::uverbs::abi::verbs::{
    AllocMw, AllocMwResp, AllocPd, AllocPdResp, DeallocMw, DeallocPd, DeregMr, RegMr, RegMrResp,
};
use crate::uverbs::calls::memory::is_mapped;
use crate::uverbs::calls::{Call, Reply};
use crate::uverbs::context::Context;
use crate::uverbs::{Kernel, PAGE_LEN, refuse};

/// Makes a protection domain.
pub(crate) fn alloc_pd(context: &mut Context, kernel: &mut Kernel<'_>, call: &Call<'_>) -> Result<Reply, Errno> {
    call.request::<AllocPd>()?;
    context.objects.room()?;
    let nic = kernel.hca.alloc_pd();
    let pd_handle = context.objects.add(Object::new(Kind::Pd, nic, []));
    Ok(Reply::both(&AllocPdResp { pd_handle }, &mlx5::AllocPdResp { pdn: nic + PD_NUMBER_FIRST }))
}

/// Numbers of protection domains begin here: 0 belongs to the firmware.
const PD_NUMBER_FIRST: u32 = 1;

/// Gives it back.
pub(crate) fn dealloc_pd(context: &mut Context, kernel: &mut Kernel<'_>, call: &Call<'_>) -> Result<Reply, Errno> {
    context.destroy(Kind::Pd, call.request::<DeallocPd>()?.pd_handle, kernel)?;
    Ok(Reply::default())
}

/// IBV_ACCESS_*: rights that need LOCAL_WRITE: REMOTE_WRITE and REMOTE_ATOMIC.
const NEED_LOCAL_WRITE: u32 = 1 << 1 | 1 << 3;

const LOCAL_WRITE: u32 = 1 << 0;

/// Known access rights: all up to and including HUGETLB; and the optional ones, which may be
/// ignored.
const KNOWN: u32 = 0xff | OPTIONAL;

/// Needs a NIC that handles page faults.
const ON_DEMAND: u32 = 1 << 6;

/// IBV_ACCESS_OPTIONAL_RANGE: hints, of which one is known.
const OPTIONAL: u32 = 0x3ff0_0000;

const RELAXED_ORDERING: u32 = 1 << 20;

/// Registers memory.
pub(crate) fn reg_mr(context: &mut Context, kernel: &mut Kernel<'_>, call: &Call<'_>) -> Result<Reply, Errno> {
    let request: RegMr = call.request()?;
    let RegMr { start, length, hca_va, access_flags, .. } = request;
    if start % PAGE_LEN != hca_va % PAGE_LEN {
        return refuse(libc::EINVAL);
    }
    let needs_write = access_flags & NEED_LOCAL_WRITE != 0;
    if access_flags & !KNOWN != 0 || needs_write && access_flags & LOCAL_WRITE == 0 {
        return refuse(libc::EINVAL);
    }
    if access_flags & ON_DEMAND != 0 {
        return refuse(libc::EOPNOTSUPP);
    }
    context.objects.room()?;
    let pd = context.objects.nic(Kind::Pd, request.pd_handle)?;
    let locked_len = locked_len(start, length)?;
    let locked = context.locked_len.saturating_add(locked_len);
    if kernel.process.locked_len_max().is_some_and(|max| locked > max) {
        return refuse(libc::ENOMEM);
    }
    is_mapped(kernel.dma, start, length)?;
    let access = AccessFlags(access_flags & (!OPTIONAL | RELAXED_ORDERING));
    let created = kernel.hca.register_memory(&MrRequest { pd, start, len: length, iova: hca_va, access })?;
    context.locked_len = locked;
    let object = Object { locked_len, ..Object::new(Kind::Mr, created.handle, [request.pd_handle]) };
    let response = RegMrResp { mr_handle: context.objects.add(object), lkey: created.lkey, rkey: created.rkey };
    Ok(Reply::core(&response))
}

/// Bytes of the pages that a region touches.
fn locked_len(start: u64, len: u64) -> Result<u64, Errno> {
    let end = start.checked_add(len).and_then(|end| end.checked_next_multiple_of(PAGE_LEN));
    match end {
        Some(end) if len > 0 => Ok(end - start / PAGE_LEN * PAGE_LEN),
        _ => refuse(libc::EINVAL),
    }
}

/// Deregisters it.
pub(crate) fn dereg_mr(context: &mut Context, kernel: &mut Kernel<'_>, call: &Call<'_>) -> Result<Reply, Errno> {
    context.destroy(Kind::Mr, call.request::<DeregMr>()?.mr_handle, kernel)?;
    Ok(Reply::default())
}

/// IB_MW_TYPE_1: the call `ibv_bind_mw` binds it, which is not there.
const TYPE_1: u8 = 1;

/// IB_MW_TYPE_2: a WQE binds it.
const TYPE_2: u8 = 2;

/// Makes a memory window.
pub(crate) fn alloc_mw(context: &mut Context, kernel: &mut Kernel<'_>, call: &Call<'_>) -> Result<Reply, Errno> {
    let request: AllocMw = call.request()?;
    match request.mw_type {
        TYPE_1 => return refuse(libc::EOPNOTSUPP),
        TYPE_2 => {}
        _ => return refuse(libc::EINVAL),
    }
    context.objects.room()?;
    let pd = context.objects.nic(Kind::Pd, request.pd_handle)?;
    let created = kernel.hca.alloc_window(pd)?;
    let object = Object::new(Kind::Mw, created.handle, [request.pd_handle]);
    Ok(Reply::core(&AllocMwResp { mw_handle: context.objects.add(object), rkey: created.rkey }))
}

/// Destroys it.
pub(crate) fn dealloc_mw(context: &mut Context, kernel: &mut Kernel<'_>, call: &Call<'_>) -> Result<Reply, Errno> {
    context.destroy(Kind::Mw, call.request::<DeallocMw>()?.mw_handle, kernel)?;
    Ok(Reply::default())
}
