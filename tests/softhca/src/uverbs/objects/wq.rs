//! Work queues and indirection tables: where frames go that are spread by hash.

use super::handles::{Kind, Object};
use crate::hca::{Errno, RqRing, Striding, WqChange, WqRequest, WqState};
use crate::uverbs::abi::verbs::{
    ExCreateRwqIndTable, ExCreateRwqIndTableResp, ExCreateWq, ExCreateWqResp, ExDestroyRwqIndTable, ExDestroyWq,
    ExDestroyWqResp, ExModifyWq,
};
use crate::uverbs::abi::{Layout, mlx5, read_at};
use crate::uverbs::calls::memory::nothing_after;
use crate::uverbs::calls::{Bundle, Call, DRIVER_IN, DRIVER_OUT, Outputs, Reply};
use crate::uverbs::context::Context;
use crate::uverbs::{Kernel, errno, refuse};

/// IBV_WQT_RQ, the one type.
const RECEIVE: u64 = 0;

/// IBV_WQ_FLAGS_*: CVLAN_STRIPPING, SCATTER_FCS, and PCI_WRITE_END_PADDING, which has no effect
/// that software can see.
const CREATE_FLAGS: u32 = 1 << 0 | 1 << 1 | 1 << 3;

/// The common request of both ways to make a WQ. Handles are those of the session.
struct Wanted {
    user_handle: u64,
    kind: u64,
    pd: u32,
    cq: u32,
    wr_max: u32,
    sge_max: u32,
    create_flags: u32,
}

/// Makes a WQ.
pub(crate) fn create_wq(context: &mut Context, kernel: &mut Kernel<'_>, call: &Call<'_>) -> Result<Reply, Errno> {
    let request: ExCreateWq = call.request()?;
    if request.comp_mask != 0 {
        return refuse(libc::EOPNOTSUPP);
    }
    let wanted = Wanted {
        user_handle: request.user_handle,
        kind: request.wq_type.into(),
        pd: request.pd_handle,
        cq: request.cq_handle,
        wr_max: request.max_wr,
        sge_max: request.max_sge,
        create_flags: request.create_flags,
    };
    let (wq_handle, wqn) = create(context, kernel, &wanted, call.driver)?;
    let response = ExCreateWqResp {
        comp_mask: 0,
        response_length: call.response_length(ExCreateWqResp::LEN),
        wq_handle,
        max_wr: request.max_wr,
        max_sge: request.max_sge,
        wqn,
    };
    Ok(Reply::both(&response, &driver_response(call.driver_room)))
}

/// Attributes of the method that makes a WQ: `uverbs_attrs_create_wq_cmd_attr_ids`.
pub(in crate::uverbs) mod create {
    pub(in crate::uverbs) const HANDLE: u16 = 0;
    pub(in crate::uverbs) const PD_HANDLE: u16 = 1;
    pub(in crate::uverbs) const CQ_HANDLE: u16 = 2;
    pub(in crate::uverbs) const USER_HANDLE: u16 = 3;
    pub(in crate::uverbs) const TYPE: u16 = 4;
    pub(in crate::uverbs) const EVENT_FD: u16 = 5;
    pub(in crate::uverbs) const MAX_WR: u16 = 6;
    pub(in crate::uverbs) const MAX_SGE: u16 = 7;
    pub(in crate::uverbs) const FLAGS: u16 = 8;
    pub(in crate::uverbs) const RESP_MAX_WR: u16 = 9;
    pub(in crate::uverbs) const RESP_MAX_SGE: u16 = 10;
    pub(in crate::uverbs) const RESP_WQ_NUM: u16 = 11;
}

/// The same by method.
pub(crate) fn create_wq_method(
    context: &mut Context,
    kernel: &mut Kernel<'_>,
    call: &Bundle,
) -> Result<Outputs, Errno> {
    context.check_async(call.descriptor(create::EVENT_FD))?;
    let wanted = Wanted {
        user_handle: call.input(create::USER_HANDLE),
        kind: call.input(create::TYPE),
        pd: call.wanted_handle(create::PD_HANDLE)?,
        cq: call.wanted_handle(create::CQ_HANDLE)?,
        wr_max: call.input(create::MAX_WR),
        sge_max: call.input(create::MAX_SGE),
        create_flags: call.flags(create::FLAGS, CREATE_FLAGS)?,
    };
    let (handle, number) = create(context, kernel, &wanted, call.bytes(DRIVER_IN))?;
    Ok(Outputs::new()
        .handle(create::HANDLE, handle)
        .value(create::RESP_MAX_WR, &wanted.wr_max)
        .value(create::RESP_MAX_SGE, &wanted.sge_max)
        .value(create::RESP_WQ_NUM, &number)
        .value(DRIVER_OUT, &driver_response(call.room(DRIVER_OUT))))
}

fn driver_response(room: usize) -> mlx5::CreateWqResp {
    mlx5::CreateWqResp { response_length: room.min(mlx5::CreateWqResp::LEN) as u32, reserved: 0 }
}

/// The driver's request without the fields of striding queues.
const DRIVER_LEN_MIN: usize = 40 - 8;

/// MLX5_IB_CREATE_WQ_STRIDING_RQ.
const STRIDING: u32 = 1 << 0;

/// User indices have 24 bits; the highest says that there is none.
const USER_INDEX_NONE: u32 = 0xff_ffff;

fn create(context: &mut Context, kernel: &mut Kernel<'_>, wanted: &Wanted, driver: &[u8]) -> Result<(u32, u32), Errno> {
    if wanted.kind != RECEIVE || driver.len() < DRIVER_LEN_MIN {
        return refuse(libc::EINVAL);
    }
    if wanted.create_flags & !CREATE_FLAGS != 0 {
        return refuse(libc::EOPNOTSUPP);
    }
    nothing_after(driver, mlx5::CreateWq::LEN)?;
    let driver = mlx5::CreateWq::read(driver);
    if driver.comp_mask & !STRIDING != 0 || driver.flags != 0 {
        return refuse(libc::EOPNOTSUPP);
    }
    if driver.user_index >= USER_INDEX_NONE {
        return refuse(libc::EINVAL);
    }
    context.objects.room()?;
    let request = WqRequest {
        pd: context.objects.nic(Kind::Pd, wanted.pd)?,
        ring: RqRing {
            ring: driver.buf_addr,
            wqe_count: driver.rq_wqe_count,
            wqe_shift: driver.rq_wqe_shift,
            doorbell: driver.db_addr,
            cq: context.objects.nic(Kind::Cq, wanted.cq)?,
            striding: (driver.comp_mask & STRIDING != 0).then_some(Striding {
                stride_len_log: driver.single_stride_log_num_of_bytes,
                strides_log: driver.single_wqe_log_num_of_strides,
                shift_two_bytes: driver.two_byte_shift_en != 0,
            }),
        },
        user_index: driver.user_index,
        user_handle: wanted.user_handle,
        wr_max: wanted.wr_max,
        sge_max: wanted.sge_max,
        create_flags: wanted.create_flags,
    };
    let created = kernel.hca.create_wq(&request)?;
    let uses = [wanted.pd, wanted.cq];
    let object = Object { user_handle: Some(wanted.user_handle), ..Object::new(Kind::Wq, created.handle, uses) };
    Ok((context.objects.add(object), created.number))
}

/// IBV_WQ_ATTR_*.
mod mask {
    pub(super) const STATE: u32 = 1 << 0;
    pub(super) const CURRENT_STATE: u32 = 1 << 1;
    pub(super) const FLAGS: u32 = 1 << 2;
}

/// IBV_WQ_FLAGS_CVLAN_STRIPPING, the one flag that may be changed.
const STRIPPING: u32 = 1 << 0;

/// Changes a WQ.
pub(crate) fn modify_wq(context: &mut Context, kernel: &mut Kernel<'_>, call: &Call<'_>) -> Result<Reply, Errno> {
    let request: ExModifyWq = call.request()?;
    let named = |bit: u32| request.attr_mask & bit != 0;
    if request.attr_mask == 0 || request.attr_mask & !(mask::STATE | mask::CURRENT_STATE | mask::FLAGS) != 0 {
        return refuse(libc::EINVAL);
    }
    if named(mask::FLAGS) && request.flags_mask & !STRIPPING != 0 {
        return refuse(libc::EOPNOTSUPP);
    }
    nothing_after(call.driver, 0)?;
    let changes_stripping = named(mask::FLAGS) && request.flags_mask & STRIPPING != 0;
    let change = WqChange {
        state: named(mask::STATE).then_some(request.wq_state).map(state).transpose()?,
        current_state: named(mask::CURRENT_STATE).then_some(request.curr_wq_state).map(state).transpose()?,
        vlan_stripping: changes_stripping.then_some(request.flags & STRIPPING != 0),
    };
    let wq = context.objects.nic(Kind::Wq, request.wq_handle)?;
    kernel.hca.modify_wq(wq, &change)?;
    Ok(Reply::default())
}

fn state(number: u32) -> Result<WqState, Errno> {
    match number {
        0 => Ok(WqState::Reset),
        1 => Ok(WqState::Ready),
        2 => Ok(WqState::Error),
        _ => Err(errno(libc::EINVAL)),
    }
}

/// Destroys a WQ and says how many events it raised.
pub(crate) fn destroy_wq(context: &mut Context, kernel: &mut Kernel<'_>, call: &Call<'_>) -> Result<Reply, Errno> {
    let request: ExDestroyWq = call.request()?;
    if request.comp_mask != 0 {
        return refuse(libc::EOPNOTSUPP);
    }
    let destroyed = context.destroy(Kind::Wq, request.wq_handle, kernel)?;
    Ok(Reply::core(&ExDestroyWqResp {
        comp_mask: 0,
        response_length: call.response_length(ExDestroyWqResp::LEN),
        events_reported: destroyed.async_events,
        reserved: 0,
    }))
}

/// The attribute with the answer.
pub(in crate::uverbs) const DESTROY_RESP: u16 = 1;

/// The same by method.
pub(crate) fn destroy_wq_method(
    context: &mut Context,
    kernel: &mut Kernel<'_>,
    call: &Bundle,
) -> Result<Outputs, Errno> {
    let destroyed = context.destroy(Kind::Wq, call.wanted_handle(0)?, kernel)?;
    Ok(Outputs::new().value(DESTROY_RESP, &destroyed.async_events))
}

/// The kernel's own bound of a table's size, as a logarithm.
const TABLE_LOG_MAX: u32 = 13;

/// Makes an indirection table.
pub(crate) fn create_table(context: &mut Context, kernel: &mut Kernel<'_>, call: &Call<'_>) -> Result<Reply, Errno> {
    let request = ExCreateRwqIndTable::read(call.core);
    if request.comp_mask != 0 {
        return refuse(libc::EOPNOTSUPP);
    }
    if request.log_ind_tbl_size > TABLE_LOG_MAX {
        return refuse(libc::EINVAL);
    }
    let count = 1 << request.log_ind_tbl_size;
    let end = ExCreateRwqIndTable::LEN + count * u32::LEN;
    if call.core.len() < end {
        return refuse(libc::ENOSPC);
    }
    nothing_after(call.core, end)?;
    nothing_after(call.driver, 0)?;
    let handles: Vec<u32> =
        (0..count).map(|idx| read_at(call.core, ExCreateRwqIndTable::LEN + idx * u32::LEN)).collect();
    let wqs: Result<Vec<u32>, Errno> = handles.iter().map(|handle| context.objects.nic(Kind::Wq, *handle)).collect();
    let wqs = wqs?;
    context.objects.room()?;
    let created = kernel.hca.create_table(&wqs)?;
    let response = ExCreateRwqIndTableResp {
        comp_mask: 0,
        response_length: call.response_length(ExCreateRwqIndTableResp::LEN),
        ind_tbl_handle: context.objects.add(Object::new(Kind::Table, created, handles)),
        ind_tbl_num: created,
    };
    let driver = mlx5::CreateRwqIndTblResp {
        response_length: call.driver_room.min(mlx5::CreateRwqIndTblResp::LEN) as u32,
        reserved: 0,
    };
    Ok(Reply::both(&response, &driver))
}

/// Destroys it.
pub(crate) fn destroy_table(context: &mut Context, kernel: &mut Kernel<'_>, call: &Call<'_>) -> Result<Reply, Errno> {
    let request: ExDestroyRwqIndTable = call.request()?;
    if request.comp_mask != 0 {
        return refuse(libc::EOPNOTSUPP);
    }
    context.destroy(Kind::Table, request.ind_tbl_handle, kernel)?;
    Ok(Reply::default())
}
