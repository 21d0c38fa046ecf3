//! Making queue pairs: of raw packets, either with their own rings or over a table of WQs, and of
//! RDMA; mlx5.md 3.6.

mod rdma;

use crate::hca::{Errno, QpCapabilities, QpKind, QpRequest, RqRing, RssRequest, Service, SqRing};
use crate::uverbs::abi::verbs::{CreateQp, CreateQpResp, ExCreateQp, ExCreateQpResp, QpCap};
use crate::uverbs::abi::{Layout, mlx5};
use crate::uverbs::calls::memory::nothing_after;
use crate::uverbs::calls::{Bundle, Call, DRIVER_IN, DRIVER_OUT, Outputs, Reply};
use crate::uverbs::context::Context;
use crate::uverbs::objects::handles::{Kind, Object};
use crate::uverbs::objects::uar::Register;
use crate::uverbs::{Kernel, errno, refuse};

/// IBV_QPT_*: the types that this NIC has.
mod kind {
    pub(super) const RC: u64 = 2;
    pub(super) const UC: u64 = 3;
    pub(super) const UD: u64 = 4;
    pub(super) const RAW_PACKET: u64 = 8;
}

/// IB_UVERBS_CREATE_QP_MASK_IND_TABLE.
const MASK_TABLE: u32 = 1 << 0;

/// IBV_QP_CREATE_*: BLOCK_SELF_MCAST_LB, SCATTER_FCS, CVLAN_STRIPPING, PCI_WRITE_END_PADDING.
const CREATE_FLAGS: u32 = 1 << 1 | 1 << 8 | 1 << 9 | 1 << 11;

/// By method the wish that every WQE completes is a flag.
const SIGNAL_ALL: u32 = 1 << 12;

/// The common request of all three ways to make a QP. Handles are those of the session.
struct Wanted {
    user_handle: u64,
    kind: u64,
    pd: u32,
    send_cq: Option<u32>,
    receive_cq: Option<u32>,
    table: Option<u32>,
    srq: Option<u32>,
    cap: QpCap,
    create_flags: u32,
    signal_all: bool,
}

/// The response about a QP that was made.
struct Made {
    handle: u32,
    number: u32,
    driver: mlx5::CreateQpResp,
}

/// Makes a QP.
pub(crate) fn create_qp(context: &mut Context, kernel: &mut Kernel<'_>, call: &Call<'_>) -> Result<Reply, Errno> {
    let request: CreateQp = call.request()?;
    let wanted = Wanted {
        user_handle: request.user_handle,
        kind: request.qp_type.into(),
        pd: request.pd_handle,
        send_cq: Some(request.send_cq_handle),
        receive_cq: Some(request.recv_cq_handle),
        table: None,
        srq: (request.is_srq != 0).then_some(request.srq_handle),
        cap: QpCap {
            max_send_wr: request.max_send_wr,
            max_recv_wr: request.max_recv_wr,
            max_send_sge: request.max_send_sge,
            max_recv_sge: request.max_recv_sge,
            max_inline_data: request.max_inline_data,
        },
        create_flags: 0,
        signal_all: request.sq_sig_all != 0,
    };
    let made = create(context, kernel, &wanted, call.driver)?;
    Ok(Reply::both(&made.response(&wanted.cap), &made.driver))
}

/// The same with flags or over a table.
pub(crate) fn create_qp_ex(context: &mut Context, kernel: &mut Kernel<'_>, call: &Call<'_>) -> Result<Reply, Errno> {
    let request: ExCreateQp = call.request()?;
    if request.comp_mask & !MASK_TABLE != 0 || request.reserved != 0 {
        return refuse(libc::EINVAL);
    }
    if request.source_qpn != 0 {
        return refuse(libc::EOPNOTSUPP);
    }
    let has_table = request.comp_mask & MASK_TABLE != 0;
    let wanted = Wanted {
        user_handle: request.user_handle,
        kind: request.qp_type.into(),
        pd: request.pd_handle,
        send_cq: (!has_table).then_some(request.send_cq_handle),
        receive_cq: (!has_table).then_some(request.recv_cq_handle),
        table: has_table.then_some(request.rwq_ind_tbl_handle),
        srq: (request.is_srq != 0).then_some(request.srq_handle),
        cap: QpCap {
            max_send_wr: request.max_send_wr,
            max_recv_wr: request.max_recv_wr,
            max_send_sge: request.max_send_sge,
            max_recv_sge: request.max_recv_sge,
            max_inline_data: request.max_inline_data,
        },
        create_flags: request.create_flags,
        signal_all: request.sq_sig_all != 0,
    };
    let made = create(context, kernel, &wanted, call.driver)?;
    let base = made.response(&wanted.cap);
    let response_length = call.response_length(ExCreateQpResp::LEN);
    Ok(Reply::both(&ExCreateQpResp { base, comp_mask: 0, response_length }, &made.driver))
}

/// Attributes of the method that makes a QP: `uverbs_attrs_create_qp_cmd_attr_ids`.
pub(in crate::uverbs) mod create {
    pub(in crate::uverbs) const HANDLE: u16 = 0;
    pub(in crate::uverbs) const PD_HANDLE: u16 = 2;
    pub(in crate::uverbs) const SRQ_HANDLE: u16 = 3;
    pub(in crate::uverbs) const SEND_CQ_HANDLE: u16 = 4;
    pub(in crate::uverbs) const RECV_CQ_HANDLE: u16 = 5;
    pub(in crate::uverbs) const IND_TABLE_HANDLE: u16 = 6;
    pub(in crate::uverbs) const USER_HANDLE: u16 = 7;
    pub(in crate::uverbs) const CAP: u16 = 8;
    pub(in crate::uverbs) const TYPE: u16 = 9;
    pub(in crate::uverbs) const FLAGS: u16 = 10;
    pub(in crate::uverbs) const EVENT_FD: u16 = 12;
    pub(in crate::uverbs) const RESP_CAP: u16 = 13;
    pub(in crate::uverbs) const RESP_QP_NUM: u16 = 14;
}

/// The same by method.
pub(crate) fn create_qp_method(
    context: &mut Context,
    kernel: &mut Kernel<'_>,
    call: &Bundle,
) -> Result<Outputs, Errno> {
    context.check_async(call.descriptor(create::EVENT_FD))?;
    let flags = call.flags(create::FLAGS, CREATE_FLAGS | SIGNAL_ALL)?;
    let wanted = Wanted {
        user_handle: call.input(create::USER_HANDLE),
        kind: call.input(create::TYPE),
        pd: call.wanted_handle(create::PD_HANDLE)?,
        send_cq: call.handle(create::SEND_CQ_HANDLE),
        receive_cq: call.handle(create::RECV_CQ_HANDLE),
        table: call.handle(create::IND_TABLE_HANDLE),
        srq: call.handle(create::SRQ_HANDLE),
        cap: call.input(create::CAP),
        create_flags: flags & CREATE_FLAGS,
        signal_all: flags & SIGNAL_ALL != 0,
    };
    let made = create(context, kernel, &wanted, call.bytes(DRIVER_IN))?;
    Ok(Outputs::new()
        .handle(create::HANDLE, made.handle)
        .value(create::RESP_CAP, &wanted.cap)
        .value(create::RESP_QP_NUM, &made.number)
        .value(DRIVER_OUT, &made.driver))
}

impl Made {
    /// Limits are returned as they were requested, because libmlx5 knows the capacity of its rings.
    fn response(&self, cap: &QpCap) -> CreateQpResp {
        CreateQpResp {
            qp_handle: self.handle,
            qpn: self.number,
            max_send_wr: cap.max_send_wr,
            max_recv_wr: cap.max_recv_wr,
            max_send_sge: cap.max_send_sge,
            max_recv_sge: cap.max_recv_sge,
            max_inline_data: cap.max_inline_data,
            reserved: 0,
        }
    }
}

fn create(context: &mut Context, kernel: &mut Kernel<'_>, wanted: &Wanted, driver: &[u8]) -> Result<Made, Errno> {
    let service = match wanted.kind {
        kind::RAW_PACKET => None,
        kind::RC => Some(Service::Rc),
        kind::UC => Some(Service::Uc),
        kind::UD => Some(Service::Ud),
        _ => return refuse(libc::EOPNOTSUPP),
    };
    context.objects.room()?;
    if let Some(service) = service {
        return rdma::create(context, kernel, wanted, service, driver);
    }
    if !kernel.process.may_use_raw_packets() {
        return refuse(libc::EPERM);
    }
    if wanted.create_flags & !CREATE_FLAGS != 0 || wanted.srq.is_some() {
        return refuse(libc::EINVAL);
    }
    match wanted.table {
        Some(table) => create_rss(context, kernel, wanted, table, driver),
        None => create_raw(context, kernel, wanted, driver),
    }
}

/// MLX5_QP_FLAG_*.
mod flags {
    pub(super) const SCATTER_CQE: u32 = 1 << 1;
    pub(super) const TUNNEL_OFFLOADS: u32 = 1 << 2;
    pub(super) const BFREG_INDEX: u32 = 1 << 3;
    pub(super) const SELF_LOOPBACK: u32 = 1 << 6 | 1 << 7;
    pub(super) const ALLOW_SCATTER_CQE: u32 = 1 << 8;
    pub(super) const UAR_PAGE_INDEX: u32 = 1 << 10;
    /// The flags that a raw packet QP may have. Scattering data into CQEs is for other types and
    /// may be ignored; frames in tunnels are received like others.
    pub(super) const RAW: u32 =
        SCATTER_CQE | TUNNEL_OFFLOADS | BFREG_INDEX | SELF_LOOPBACK | ALLOW_SCATTER_CQE | UAR_PAGE_INDEX;
    pub(super) const RSS: u32 = TUNNEL_OFFLOADS | SELF_LOOPBACK;
    /// Data may be scattered into CQEs, and need not be.
    pub(super) const RDMA: u32 = SCATTER_CQE | BFREG_INDEX | ALLOW_SCATTER_CQE | UAR_PAGE_INDEX;
}

/// The least length of the driver's request: up to and including the send ring.
const RAW_LEN_MIN: usize = 56 - 8;

/// User indices have 24 bits; the highest says that there is none.
const USER_INDEX_NONE: u32 = 0xff_ffff;

/// MLX5_IB_CREATE_QP_RESP_MASK_*: all four numbers.
const NUMBERS: u32 = 0xf;

/// Only the number of the receiving interface.
const TIR_NUMBER: u32 = 1;

/// The driver's part of a request for a QP with rings of its own, checked.
fn request_with_rings(driver: &[u8], flags: u32) -> Result<mlx5::CreateQp, Errno> {
    if driver.len() < RAW_LEN_MIN {
        return refuse(libc::EINVAL);
    }
    nothing_after(driver, mlx5::CreateQp::LEN)?;
    let driver = mlx5::CreateQp::read(driver);
    if driver.flags & !flags != 0 {
        return refuse(libc::EOPNOTSUPP);
    }
    if driver.uidx >= USER_INDEX_NONE || driver.db_addr % 8 != 0 || driver.db_addr > u64::MAX - 8 {
        return refuse(libc::EINVAL);
    }
    Ok(driver)
}

fn create_raw(context: &mut Context, kernel: &mut Kernel<'_>, wanted: &Wanted, driver: &[u8]) -> Result<Made, Errno> {
    let driver = request_with_rings(driver, flags::RAW)?;
    let pd = context.objects.nic(Kind::Pd, wanted.pd)?;
    let mut uses = vec![wanted.pd];
    let mut cq = |handle: Option<u32>| {
        let handle = handle.ok_or(errno(libc::EINVAL))?;
        uses.push(handle);
        context.objects.nic(Kind::Cq, handle)
    };
    let receive = match driver.rq_wqe_count {
        0 => None,
        wqe_count => Some(RqRing {
            ring: driver.buf_addr,
            wqe_count,
            wqe_shift: driver.rq_wqe_shift,
            doorbell: driver.db_addr,
            cq: cq(wanted.receive_cq)?,
            striding: None,
        }),
    };
    let send_cq = if driver.sq_wqe_count > 0 { Some(cq(wanted.send_cq)?) } else { None };
    let (register, uar) = doorbells(context, &driver, send_cq.is_some())?;
    let send = send_cq.map(|cq| SqRing {
        ring: driver.sq_buf_addr,
        wqebb_count: driver.sq_wqe_count,
        doorbell: driver.db_addr + 4,
        cq,
        uar,
    });
    let request = wanted.request(pd, QpKind::RawPacket { send, receive }, driver.uidx);
    let created = kernel.hca.create_qp(request).inspect_err(|_| {
        if let Some(register) = register {
            context.uars.release(register);
        }
    })?;
    let object =
        Object { user_handle: Some(wanted.user_handle), register, ..Object::new(Kind::Qp, created.handle, uses) };
    Ok(Made {
        handle: context.objects.add(object),
        number: created.number,
        driver: mlx5::CreateQpResp {
            bfreg_index: register.map_or(0, Register::number),
            comp_mask: NUMBERS,
            tirn: created.tir_number,
            tisn: created.tis_number,
            rqn: created.rq_number,
            sqn: created.sq_number,
            ..mlx5::CreateQpResp::default()
        },
    })
}

/// The page that a QP rings, and the register where the session chose it. A QP that does not send
/// has none.
fn doorbells(context: &mut Context, driver: &mlx5::CreateQp, sends: bool) -> Result<(Option<Register>, u32), Errno> {
    match driver.flags {
        chosen if chosen & flags::UAR_PAGE_INDEX != 0 => {
            if context.owns_uar(driver.bfreg_index) {
                Ok((None, driver.bfreg_index))
            } else {
                refuse(libc::EINVAL)
            }
        }
        chosen if chosen & flags::BFREG_INDEX != 0 => Ok((None, context.uars.later(driver.bfreg_index)?)),
        _ if !sends => Ok((None, 0)),
        _ => match context.uars.take() {
            Some((register, page)) => Ok((Some(register), page)),
            None => refuse(libc::EINVAL),
        },
    }
}

fn create_rss(
    context: &mut Context,
    kernel: &mut Kernel<'_>,
    wanted: &Wanted,
    table: u32,
    driver: &[u8],
) -> Result<Made, Errno> {
    // As in kernels before 5.8: special features of rings are requested from the rings.
    if wanted.create_flags != 0 {
        return refuse(libc::EINVAL);
    }
    if wanted.cap.max_recv_wr != 0 || wanted.cap.max_recv_sge != 0 || wanted.cap.max_send_wr != 0 {
        return refuse(libc::EINVAL);
    }
    if driver.len() < mlx5::CreateQpRss::LEN {
        return refuse(libc::EINVAL);
    }
    nothing_after(driver, mlx5::CreateQpRss::LEN)?;
    let driver = mlx5::CreateQpRss::read(driver);
    if driver.comp_mask != 0 || driver.flags & !flags::RSS != 0 || driver.reserved != [0; 6] {
        return refuse(libc::EOPNOTSUPP);
    }
    let Some(key) = driver.rx_hash_key.get(..driver.rx_key_len.into()) else { return refuse(libc::EINVAL) };
    let pd = context.objects.nic(Kind::Pd, wanted.pd)?;
    let rss = RssRequest {
        table: context.objects.nic(Kind::Table, table)?,
        fields: driver.rx_hash_fields_mask,
        function: driver.rx_hash_function,
        key: key.to_vec(),
    };
    let created = kernel.hca.create_qp(wanted.request(pd, QpKind::Rss(rss), 0))?;
    let uses = [wanted.pd, table];
    let object = Object { user_handle: Some(wanted.user_handle), ..Object::new(Kind::Qp, created.handle, uses) };
    Ok(Made {
        handle: context.objects.add(object),
        number: created.number,
        driver: mlx5::CreateQpResp { comp_mask: TIR_NUMBER, tirn: created.tir_number, ..mlx5::CreateQpResp::default() },
    })
}

impl Wanted {
    fn request(&self, pd: u32, kind: QpKind, user_index: u32) -> QpRequest {
        QpRequest {
            pd,
            kind,
            user_handle: self.user_handle,
            user_index,
            capabilities: QpCapabilities {
                send_wr_max: self.cap.max_send_wr,
                receive_wr_max: self.cap.max_recv_wr,
                send_sge_max: self.cap.max_send_sge,
                receive_sge_max: self.cap.max_recv_sge,
                inline_len_max: self.cap.max_inline_data,
            },
            create_flags: self.create_flags,
            signal_all: self.signal_all,
        }
    }
}
