//! Operations on an existing queue pair: modify, query, destroy.

use super::ah::{address_vector, dest};
use super::handles::Kind;
use crate::hca::{AccessFlags, AddressVector, Errno, QpAttributes, QpChange, QpState};
use crate::uverbs::abi::verbs::{
    DestroyQp, DestroyQpResp, ExModifyQp, ExModifyQpResp, ModifyQp, QpDest, QueryQp, QueryQpResp,
};
use crate::uverbs::abi::{Layout, mlx5};
use crate::uverbs::calls::memory::nothing_after;
use crate::uverbs::calls::{Bundle, Call, Outputs, Reply};
use crate::uverbs::context::Context;
use crate::uverbs::{Kernel, errno, refuse};

/// IBV_QP_*: the fields that are read here. The NIC knows which a change may set.
mod mask {
    pub(super) const STATE: u32 = 1 << 0;
    pub(super) const CURRENT_STATE: u32 = 1 << 1;
    pub(super) const PORT: u32 = 1 << 5;
    pub(super) const ADDRESS: u32 = 1 << 7;
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
    // Bursts are not modeled: frames of a paced QP leave one by one.
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
    let qp = context.objects.nic(Kind::Qp, request.qp_handle)?;
    let address = if named(mask::ADDRESS) { address_vector(kernel, &request.dest)? } else { AddressVector::default() };
    let change = QpChange {
        state: named(mask::STATE).then_some(request.qp_state).map(state).transpose()?,
        current_state: named(mask::CURRENT_STATE).then_some(request.cur_qp_state).map(state).transpose()?,
        port: named(mask::PORT).then_some(request.port_num),
        rate_limit: rate,
        mask: request.attr_mask,
        attributes: attributes(request, address),
    };
    kernel.hca.modify_qp(qp, &change)
}

fn attributes(request: &ModifyQp, address: AddressVector) -> QpAttributes {
    QpAttributes {
        pkey_index: request.pkey_index,
        access: AccessFlags(request.qp_access_flags),
        qkey: request.qkey,
        address,
        path_mtu: request.path_mtu,
        destination_qp: request.dest_qp_num,
        receive_psn: request.rq_psn,
        send_psn: request.sq_psn,
        read_max: request.max_rd_atomic,
        peer_read_max: request.max_dest_rd_atomic,
        rnr_timer: request.min_rnr_timer,
        timeout: request.timeout,
        retry_count: request.retry_cnt,
        rnr_retry: request.rnr_retry,
    }
}

fn state(number: u8) -> Result<QpState, Errno> {
    use QpState::{Error, Init, ReadyToReceive, ReadyToSend, Reset, SendQueueDrained, SendQueueError};
    let states = [Reset, Init, ReadyToReceive, ReadyToSend, SendQueueDrained, SendQueueError, Error];
    states.get(usize::from(number)).copied().ok_or(errno(libc::EINVAL))
}

/// Tells a QP's state and limits.
pub(crate) fn query_qp(context: &mut Context, kernel: &mut Kernel<'_>, call: &Call<'_>) -> Result<Reply, Errno> {
    let request: QueryQp = call.request()?;
    let (state, cap, attributes) = kernel.hca.query_qp(context.objects.nic(Kind::Qp, request.qp_handle)?)?;
    Ok(Reply::core(&QueryQpResp {
        max_send_wr: cap.send_wr_max,
        max_recv_wr: cap.receive_wr_max,
        max_send_sge: cap.send_sge_max,
        max_recv_sge: cap.receive_sge_max,
        max_inline_data: cap.inline_len_max,
        dest: if attributes.destination_qp > 0 { dest(&attributes.address) } else { QpDest::default() },
        qkey: attributes.qkey,
        rq_psn: attributes.receive_psn,
        sq_psn: attributes.send_psn,
        dest_qp_num: attributes.destination_qp,
        qp_access_flags: attributes.access.0,
        qp_state: state as u8,
        cur_qp_state: state as u8,
        path_mtu: attributes.path_mtu,
        max_rd_atomic: attributes.read_max,
        max_dest_rd_atomic: attributes.peer_read_max,
        min_rnr_timer: attributes.rnr_timer,
        port_num: 1,
        timeout: attributes.timeout,
        retry_cnt: attributes.retry_count,
        rnr_retry: attributes.rnr_retry,
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
