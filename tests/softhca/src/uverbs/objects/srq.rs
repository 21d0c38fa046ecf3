//! Shared receive queues.

use super::handles::{Kind, Object};
use crate::hca::{Errno, SrqRequest};
use crate::uverbs::abi::verbs::{
    CreateSrq, CreateSrqResp, DestroySrq, DestroySrqResp, ModifySrq, QuerySrq, QuerySrqResp,
};
use crate::uverbs::abi::{Layout, mlx5};
use crate::uverbs::calls::memory::nothing_after;
use crate::uverbs::calls::{Bundle, Call, DRIVER_IN, DRIVER_OUT, Outputs, Reply};
use crate::uverbs::context::Context;
use crate::uverbs::{Kernel, refuse};

/// The common request of both ways to make one. Handles are those of the session.
struct Wanted {
    user_handle: u64,
    pd: u32,
    wr_max: u32,
    sge_max: u32,
    limit: u32,
}

/// Makes a shared receive queue.
pub(crate) fn create_srq(context: &mut Context, kernel: &mut Kernel<'_>, call: &Call<'_>) -> Result<Reply, Errno> {
    let request: CreateSrq = call.request()?;
    let wanted = Wanted {
        user_handle: request.user_handle,
        pd: request.pd_handle,
        wr_max: request.max_wr,
        sge_max: request.max_sge,
        limit: request.srq_limit,
    };
    let (srq_handle, srqn) = create(context, kernel, &wanted, call.driver)?;
    let response = CreateSrqResp { srq_handle, max_wr: request.max_wr, max_sge: request.max_sge, srqn };
    Ok(Reply::both(&response, &mlx5::CreateSrqResp { srqn, reserved: 0 }))
}

/// Attributes of the method that makes one: `uverbs_attrs_create_srq_cmd_attr_ids`.
pub(in crate::uverbs) mod create {
    pub(in crate::uverbs) const HANDLE: u16 = 0;
    pub(in crate::uverbs) const PD_HANDLE: u16 = 1;
    pub(in crate::uverbs) const USER_HANDLE: u16 = 4;
    pub(in crate::uverbs) const MAX_WR: u16 = 5;
    pub(in crate::uverbs) const MAX_SGE: u16 = 6;
    pub(in crate::uverbs) const LIMIT: u16 = 7;
    pub(in crate::uverbs) const TYPE: u16 = 9;
    pub(in crate::uverbs) const EVENT_FD: u16 = 10;
    pub(in crate::uverbs) const RESP_MAX_WR: u16 = 11;
    pub(in crate::uverbs) const RESP_MAX_SGE: u16 = 12;
    pub(in crate::uverbs) const RESP_SRQ_NUM: u16 = 13;
}

/// IBV_SRQT_BASIC, the one type.
const BASIC: u64 = 0;

/// The same by method.
pub(crate) fn create_srq_method(
    context: &mut Context,
    kernel: &mut Kernel<'_>,
    call: &Bundle,
) -> Result<Outputs, Errno> {
    context.check_async(call.descriptor(create::EVENT_FD))?;
    if call.input::<u64>(create::TYPE) != BASIC {
        return refuse(libc::EOPNOTSUPP);
    }
    let wanted = Wanted {
        user_handle: call.input(create::USER_HANDLE),
        pd: call.wanted_handle(create::PD_HANDLE)?,
        wr_max: call.input(create::MAX_WR),
        sge_max: call.input(create::MAX_SGE),
        limit: call.input(create::LIMIT),
    };
    let (handle, srqn) = create(context, kernel, &wanted, call.bytes(DRIVER_IN))?;
    Ok(Outputs::new()
        .handle(create::HANDLE, handle)
        .value(create::RESP_MAX_WR, &wanted.wr_max)
        .value(create::RESP_MAX_SGE, &wanted.sge_max)
        .value(create::RESP_SRQ_NUM, &srqn)
        .value(DRIVER_OUT, &mlx5::CreateSrqResp { srqn, reserved: 0 }))
}

/// The driver's request up to but without the user index, which only other types have.
const DRIVER_LEN_MIN: usize = 24;

/// Returns the handle and the number.
fn create(context: &mut Context, kernel: &mut Kernel<'_>, wanted: &Wanted, driver: &[u8]) -> Result<(u32, u32), Errno> {
    if driver.len() < DRIVER_LEN_MIN {
        return refuse(libc::EINVAL);
    }
    nothing_after(driver, mlx5::CreateSrq::LEN)?;
    let driver = mlx5::CreateSrq::read(driver);
    if driver.flags != 0 {
        return refuse(libc::EOPNOTSUPP); // signatures
    }
    context.objects.room()?;
    let request = SrqRequest {
        pd: context.objects.nic(Kind::Pd, wanted.pd)?,
        ring: driver.buf_addr,
        doorbell: driver.db_addr,
        wr_max: wanted.wr_max,
        sge_max: wanted.sge_max,
        limit: wanted.limit,
        user_handle: wanted.user_handle,
    };
    let created = kernel.hca.create_srq(&request)?;
    let user_handle = Some(wanted.user_handle);
    let object = Object { user_handle, ..Object::new(Kind::Srq, created.handle, [wanted.pd]) };
    Ok((context.objects.add(object), created.number))
}

/// IBV_SRQ_LIMIT, the one attribute that may be changed.
const LIMIT: u32 = 1 << 1;

/// Sets the limit of a shared receive queue.
pub(crate) fn modify_srq(context: &mut Context, kernel: &mut Kernel<'_>, call: &Call<'_>) -> Result<Reply, Errno> {
    let request: ModifySrq = call.request()?;
    if request.attr_mask & !LIMIT != 0 {
        return refuse(libc::EINVAL); // it keeps its length
    }
    let srq = context.objects.nic(Kind::Srq, request.srq_handle)?;
    if request.attr_mask & LIMIT != 0 {
        kernel.hca.modify_srq(srq, request.srq_limit)?;
    }
    Ok(Reply::default())
}

/// The limits of a shared receive queue.
pub(crate) fn query_srq(context: &mut Context, kernel: &mut Kernel<'_>, call: &Call<'_>) -> Result<Reply, Errno> {
    let request: QuerySrq = call.request()?;
    let (max_wr, max_sge, srq_limit) = kernel.hca.query_srq(context.objects.nic(Kind::Srq, request.srq_handle)?)?;
    Ok(Reply::core(&QuerySrqResp { max_wr, max_sge, srq_limit, reserved: 0 }))
}

/// Destroys a shared receive queue and says how many events it raised.
pub(crate) fn destroy_srq(context: &mut Context, kernel: &mut Kernel<'_>, call: &Call<'_>) -> Result<Reply, Errno> {
    let destroyed = context.destroy(Kind::Srq, call.request::<DestroySrq>()?.srq_handle, kernel)?;
    Ok(Reply::core(&DestroySrqResp { events_reported: destroyed.async_events }))
}

/// The attribute with the answer.
pub(in crate::uverbs) const DESTROY_RESP: u16 = 1;

/// The same by method.
pub(crate) fn destroy_srq_method(
    context: &mut Context,
    kernel: &mut Kernel<'_>,
    call: &Bundle,
) -> Result<Outputs, Errno> {
    let destroyed = context.destroy(Kind::Srq, call.wanted_handle(0)?, kernel)?;
    Ok(Outputs::new().value(DESTROY_RESP, &DestroySrqResp { events_reported: destroyed.async_events }))
}
