//! Operations on an existing queue pair: modify, query, destroy.

use super::handles::Kind;
use crate::hca::{Errno, QpChange, QpState};
use crate::uverbs::abi::verbs::{DestroyQp, DestroyQpResp, ExModifyQp, ExModifyQpResp, ModifyQp, QueryQp, QueryQpResp};
use crate::uverbs::abi::{Layout, mlx5};
use crate::uverbs::calls::memory::nothing_after;
use crate::uverbs::calls::{Bundle, Call, Outputs, Reply};
use crate::uverbs::context::Context;
use crate::uverbs::{Kernel, errno, refuse};

/// IBV_QP_*: the fields that a change may set.
mod mask {
    pub(super) const STATE: u32 = 1 << 0;
    pub(super) const CURRENT_STATE: u32 = 1 << 1;
    pub(super) const PORT: u32 = 1 << 5;
    pub(super) const RATE_LIMIT: u32 = 1 << 25;
    /// Everything that the command without the rate can carry.
    pub(super) const STANDARD: u32 = (1 << 21) - 1;
}

/// Changes a QP's state.
pub(crate) fn modify_qp(context: &mut Context, kernel: &mut Kernel<'_>, call: &Call<'_>) -> Result<Reply, Errno> {
    let request: ModifyQp = call.request()?;
    if request.attr_mask & !mask::STANDARD != 0 {
        return refuse(libc::EOPNOTSUPP);
    }
    modify(context, kernel, &request, None)?;
    Ok(Reply::default())
}

/// The same, also its rate.
pub(crate) fn modify_qp_ex(context: &mut Context, kernel: &mut Kernel<'_>, call: &Call<'_>) -> Result<Reply, Errno> {
    let request: ExModifyQp = call.request()?;
    if request.base.attr_mask & !(mask::STANDARD | mask::RATE_LIMIT) != 0 || request.reserved != 0 {
        return refuse(libc::EOPNOTSUPP);
    }
    nothing_after(call.driver, mlx5::ModifyQp::LEN)?;
    if mlx5::ModifyQp::read(call.driver).comp_mask != 0 {
        return refuse(libc::EOPNOTSUPP);
    }
    // Bursts are not modelled: frames of a paced QP leave one by one.
    let rate = (request.base.attr_mask & mask::RATE_LIMIT != 0).then_some(request.rate_limit);
    modify(context, kernel, &request.base, rate)?;
    let response_length = call.response_length(ExModifyQpResp::LEN);
    let driver_length = call.driver_room.min(mlx5::ModifyQpResp::LEN) as u32;
    Ok(Reply::both(
        &ExModifyQpResp { comp_mask: 0, response_length },
        &mlx5::ModifyQpResp { response_length: driver_length, ..mlx5::ModifyQpResp::default() },
    ))
}

fn modify(context: &mut Context, kernel: &mut Kernel<'_>, request: &ModifyQp, rate: Option<u32>) -> Result<(), Errno> {
    let named = |bit: u32| request.attr_mask & bit != 0;
    if request.attr_mask & !(mask::STATE | mask::CURRENT_STATE | mask::PORT | mask::RATE_LIMIT) != 0 {
        return refuse(libc::EINVAL);
    }
    let change = QpChange {
        state: named(mask::STATE).then_some(request.qp_state).map(state).transpose()?,
        current_state: named(mask::CURRENT_STATE).then_some(request.cur_qp_state).map(state).transpose()?,
        port: named(mask::PORT).then_some(request.port_num),
        rate_limit: rate,
    };
    let qp = context.objects.nic(Kind::Qp, request.qp_handle)?;
    kernel.hca.modify_qp(qp, &change)
}

fn state(number: u8) -> Result<QpState, Errno> {
    use QpState::{Error, Init, ReadyToReceive, ReadyToSend, Reset, SendQueueDrained, SendQueueError};
    let states = [Reset, Init, ReadyToReceive, ReadyToSend, SendQueueDrained, SendQueueError, Error];
    states.get(usize::from(number)).copied().ok_or(errno(libc::EINVAL))
}

/// Tells a QP's state and limits.
pub(crate) fn query_qp(context: &mut Context, kernel: &mut Kernel<'_>, call: &Call<'_>) -> Result<Reply, Errno> {
    let request: QueryQp = call.request()?;
    let (state, cap) = kernel.hca.query_qp(context.objects.nic(Kind::Qp, request.qp_handle)?)?;
    Ok(Reply::core(&QueryQpResp {
        max_send_wr: cap.send_wr_max,
        max_recv_wr: cap.receive_wr_max,
        max_send_sge: cap.send_sge_max,
        max_recv_sge: cap.receive_sge_max,
        max_inline_data: cap.inline_len_max,
        qp_state: state as u8,
        cur_qp_state: state as u8,
        port_num: 1,
        ..QueryQpResp::default()
    }))
}

/// Destroys a QP and says how many events it raised.
pub(crate) fn destroy_qp(context: &mut Context, kernel: &mut Kernel<'_>, call: &Call<'_>) -> Result<Reply, Errno> {
    let destroyed = context.destroy(Kind::Qp, call.request::<DestroyQp>()?.qp_handle, kernel)?;
    Ok(Reply::core(&DestroyQpResp { events_reported: destroyed.async_events }))
}

/// The attribute with the answer.
pub(in crate::uverbs) const DESTROY_RESP: u16 = 1;

/// The same by method.
pub(crate) fn destroy_qp_method(
    context: &mut Context,
    kernel: &mut Kernel<'_>,
    call: &Bundle,
) -> Result<Outputs, Errno> {
    let destroyed = context.destroy(Kind::Qp, call.wanted_handle(0)?, kernel)?;
    Ok(Outputs::new().value(DESTROY_RESP, &DestroyQpResp { events_reported: destroyed.async_events }))
}
