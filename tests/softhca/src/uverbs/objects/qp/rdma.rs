//! Making queue pairs of RC, UC and UD.

use super::{Made, Wanted, doorbells, flags, request_with_rings};
use crate::hca::{Errno, QpKind, RqRing, Service, SqRing};
use crate::uverbs::abi::mlx5;
use crate::uverbs::context::Context;
use crate::uverbs::objects::handles::{Kind, Object};
use crate::uverbs::objects::uar::Register;
use crate::uverbs::{Kernel, errno, refuse};

/// IBV_QP_CREATE_BLOCK_SELF_MCAST_LB.
const BLOCK_SELF_MULTICAST: u32 = 1 << 1;

/// Both rings lie in one buffer: the receiving one first, the sending one behind it.
pub(super) fn create(
    context: &mut Context,
    kernel: &mut Kernel<'_>,
    wanted: &Wanted,
    service: Service,
    driver: &[u8],
) -> Result<Made, Errno> {
    // BLOCK_SELF_MCAST_LB has no effect: nothing is looped back.
    if wanted.create_flags & !BLOCK_SELF_MULTICAST != 0 || wanted.table.is_some() {
        return refuse(libc::EINVAL);
    }
    let driver = request_with_rings(driver, flags::RDMA)?;
    let pd = context.objects.nic(Kind::Pd, wanted.pd)?;
    let (Some(send_cq), Some(receive_cq)) = (wanted.send_cq, wanted.receive_cq) else { return refuse(libc::EINVAL) };
    let srq = wanted.srq.map(|srq| context.objects.nic(Kind::Srq, srq)).transpose()?;
    let receive_len = u64::from(driver.rq_wqe_count).checked_shl(driver.rq_wqe_shift).unwrap_or(u64::MAX);
    let ring = driver.buf_addr.checked_add(receive_len).ok_or(errno(libc::EINVAL))?;
    let cqs = [context.objects.nic(Kind::Cq, send_cq)?, context.objects.nic(Kind::Cq, receive_cq)?];
    let receive = (driver.rq_wqe_count > 0 && srq.is_none()).then_some(RqRing {
        ring: driver.buf_addr,
        wqe_count: driver.rq_wqe_count,
        wqe_shift: driver.rq_wqe_shift,
        doorbell: driver.db_addr,
        cq: cqs[1],
        striding: None,
    });
    let (register, uar) = doorbells(context, &driver, true)?;
    let send = SqRing { ring, wqebb_count: driver.sq_wqe_count, doorbell: driver.db_addr + 4, cq: cqs[0], uar };
    let kind = QpKind::Rdma { service, send, receive, srq, receive_cq: cqs[1] };
    let created = kernel.hca.create_qp(wanted.request(pd, kind, driver.uidx)).inspect_err(|_| {
        if let Some(register) = register {
            context.uars.release(register);
        }
    })?;
    let uses: Vec<u32> = [wanted.pd, send_cq, receive_cq].into_iter().chain(wanted.srq).collect();
    let object =
        Object { user_handle: Some(wanted.user_handle), register, ..Object::new(Kind::Qp, created.handle, uses) };
    Ok(Made {
        handle: context.objects.add(object),
        number: created.number,
        driver: mlx5::CreateQpResp {
            bfreg_index: register.map_or(0, Register::number),
            ..mlx5::CreateQpResp::default()
        },
    })
}
