//! Which methods there are behind `ioctl`, and their attributes; mlx5.md 3.4, the column of
//! protocol B, and `rdma/ib_user_ioctl_cmds.h`, `rdma/mlx5_user_ioctl_cmds.h` for the numbers.

use super::attributes::{Bundle, DRIVER_IN, DRIVER_OUT, Kind, Outputs, Spec};
use crate::hca::Errno;
use crate::uverbs::abi::Layout;
use crate::uverbs::abi::verbs::{DestroyCqResp, DestroyQpResp, DestroySrqResp, QpCap, QueryPortResp};
use crate::uverbs::context::Context;
use crate::uverbs::objects::Kind as Of;
use crate::uverbs::objects::{cq, qp, qp_state, srq, uar, wq};
use crate::uverbs::{Kernel, device, refuse};

/// The implementation of a method.
#[derive(Clone, Copy)]
pub(in crate::uverbs) enum Run {
    /// Takes a command of `write`.
    Tunnel,
    /// Makes the context.
    Open,
    /// Destroys the object of this kind that the first attribute names, and has no answer.
    Destroy(Of),
    /// Works in the context.
    Within(fn(&mut Context, &mut Kernel<'_>, &Bundle) -> Result<Outputs, Errno>),
}

/// A method of an object.
pub(in crate::uverbs) struct Method {
    object: u16,
    number: u16,
    /// Its attributes.
    pub(in crate::uverbs) attributes: &'static [Spec],
    /// The implementation.
    pub(in crate::uverbs) run: Run,
}

/// The method with that number. Where there is none, EPROTONOSUPPORT makes the client try `write`
/// or do without.
pub(in crate::uverbs) fn find(object: u16, number: u16) -> Result<&'static Method, Errno> {
    let method = METHODS.iter().find(|method| (method.object, method.number) == (object, number));
    method.map_or(refuse(libc::EPROTONOSUPPORT), Ok)
}

/// A number of `len` bytes.
const fn number(len: usize) -> Kind {
    Kind::In(len, len)
}

/// Flags: four bytes from older clients, eight from newer ones.
const FLAGS: Kind = Kind::In(4, 8);

/// Any bytes: the function that takes them knows their meaning.
const ANY: Kind = Kind::In(0, usize::MAX);

const MLX5_IN: Spec = Spec::optional(DRIVER_IN, ANY);
const MLX5_OUT: Spec = Spec::optional(DRIVER_OUT, Kind::Out(0));

/// Attributes of INVOKE_WRITE.
pub(in crate::uverbs) mod tunnel {
    pub(in crate::uverbs) const CORE_IN: u16 = 0;
    pub(in crate::uverbs) const CORE_OUT: u16 = 1;
    pub(in crate::uverbs) const WRITE_CMD: u16 = 2;
}

/// Attributes of GET_CONTEXT.
pub(in crate::uverbs) mod open {
    pub(in crate::uverbs) const NUM_COMP_VECTORS: u16 = 0;
    pub(in crate::uverbs) const CORE_SUPPORT: u16 = 1;
}

const fn method(
    object: u16,
    number: u16,
    attributes: &'static [Spec],
    run: fn(&mut Context, &mut Kernel<'_>, &Bundle) -> Result<Outputs, Errno>,
) -> Method {
    Method { object, number, attributes, run: Run::Within(run) }
}

const fn destroy(object: u16, number: u16, attributes: &'static [Spec], kind: Of) -> Method {
    Method { object, number, attributes, run: Run::Destroy(kind) }
}

/// The attribute by which methods that destroy name their object.
const DESTROYED: u16 = 0;

const METHODS: &[Method] = &[
    Method {
        object: 0,
        number: 0,
        attributes: &[
            Spec::optional(tunnel::CORE_IN, ANY),
            Spec::optional(tunnel::CORE_OUT, Kind::Out(0)),
            Spec::wanted(tunnel::WRITE_CMD, number(8)),
            MLX5_IN,
            MLX5_OUT,
        ],
        run: Run::Tunnel,
    },
    method(
        0,
        2,
        &[
            Spec::wanted(device::port::NUMBER, number(1)),
            Spec::wanted(device::port::RESPONSE, Kind::Out(QueryPortResp::LEN + 8)),
        ],
        device::query_port_method,
    ),
    Method {
        object: 0,
        number: 3,
        attributes: &[
            Spec::optional(open::NUM_COMP_VECTORS, Kind::Out(4)),
            Spec::optional(open::CORE_SUPPORT, Kind::Out(8)),
            MLX5_IN,
            MLX5_OUT,
        ],
        run: Run::Open,
    },
    destroy(1, 0, &[Spec::wanted(DESTROYED, Kind::Handle(Of::Pd))], Of::Pd),
    method(
        3,
        0,
        &[
            Spec::wanted(cq::create::HANDLE, Kind::NewHandle),
            Spec::wanted(cq::create::CQE, number(4)),
            Spec::wanted(cq::create::USER_HANDLE, number(8)),
            Spec::optional(cq::create::COMP_CHANNEL, Kind::Descriptor),
            Spec::wanted(cq::create::COMP_VECTOR, number(4)),
            Spec::optional(cq::create::FLAGS, FLAGS),
            Spec::wanted(cq::create::RESP_CQE, Kind::Out(4)),
            Spec::optional(cq::create::EVENT_FD, Kind::Descriptor),
            MLX5_IN,
            MLX5_OUT,
        ],
        cq::create_cq_method,
    ),
    method(
        3,
        1,
        &[Spec::wanted(DESTROYED, Kind::Handle(Of::Cq)), Spec::wanted(cq::DESTROY_RESP, Kind::Out(DestroyCqResp::LEN))],
        cq::destroy_cq_method,
    ),
    method(
        4,
        0,
        &[
            Spec::wanted(qp::create::HANDLE, Kind::NewHandle),
            Spec::optional(qp::create::PD_HANDLE, Kind::Handle(Of::Pd)),
            Spec::optional(qp::create::SRQ_HANDLE, Kind::Handle(Of::Srq)),
            Spec::optional(qp::create::SEND_CQ_HANDLE, Kind::Handle(Of::Cq)),
            Spec::optional(qp::create::RECV_CQ_HANDLE, Kind::Handle(Of::Cq)),
            Spec::optional(qp::create::IND_TABLE_HANDLE, Kind::Handle(Of::Table)),
            Spec::wanted(qp::create::USER_HANDLE, number(8)),
            Spec::wanted(qp::create::CAP, number(QpCap::LEN)),
            Spec::wanted(qp::create::TYPE, number(8)),
            Spec::optional(qp::create::FLAGS, FLAGS),
            Spec::optional(qp::create::EVENT_FD, Kind::Descriptor),
            Spec::wanted(qp::create::RESP_CAP, Kind::Out(QpCap::LEN)),
            Spec::wanted(qp::create::RESP_QP_NUM, Kind::Out(4)),
            MLX5_IN,
            MLX5_OUT,
        ],
        qp::create_qp_method,
    ),
    method(
        4,
        1,
        &[
            Spec::wanted(DESTROYED, Kind::Handle(Of::Qp)),
            Spec::wanted(qp_state::DESTROY_RESP, Kind::Out(DestroyQpResp::LEN)),
        ],
        qp_state::destroy_qp_method,
    ),
    method(
        5,
        0,
        &[
            Spec::wanted(srq::create::HANDLE, Kind::NewHandle),
            Spec::wanted(srq::create::PD_HANDLE, Kind::Handle(Of::Pd)),
            Spec::wanted(srq::create::USER_HANDLE, number(8)),
            Spec::wanted(srq::create::MAX_WR, number(4)),
            Spec::wanted(srq::create::MAX_SGE, number(4)),
            Spec::wanted(srq::create::LIMIT, number(4)),
            Spec::wanted(srq::create::TYPE, number(8)),
            Spec::optional(srq::create::EVENT_FD, Kind::Descriptor),
            Spec::wanted(srq::create::RESP_MAX_WR, Kind::Out(4)),
            Spec::wanted(srq::create::RESP_MAX_SGE, Kind::Out(4)),
            Spec::optional(srq::create::RESP_SRQ_NUM, Kind::Out(4)),
            MLX5_IN,
            MLX5_OUT,
        ],
        srq::create_srq_method,
    ),
    method(
        5,
        1,
        &[
            Spec::wanted(DESTROYED, Kind::Handle(Of::Srq)),
            Spec::wanted(srq::DESTROY_RESP, Kind::Out(DestroySrqResp::LEN)),
        ],
        srq::destroy_srq_method,
    ),
    destroy(6, 0, &[Spec::wanted(DESTROYED, Kind::Handle(Of::Ah))], Of::Ah),
    destroy(7, 1, &[Spec::wanted(DESTROYED, Kind::Handle(Of::Mr))], Of::Mr),
    destroy(8, 0, &[Spec::wanted(DESTROYED, Kind::Handle(Of::Mw))], Of::Mw),
    destroy(9, 0, &[Spec::wanted(DESTROYED, Kind::Handle(Of::Flow))], Of::Flow),
    destroy(0xb, 0, &[Spec::wanted(DESTROYED, Kind::Handle(Of::Table))], Of::Table),
    method(
        0xc,
        0,
        &[
            Spec::wanted(wq::create::HANDLE, Kind::NewHandle),
            Spec::wanted(wq::create::PD_HANDLE, Kind::Handle(Of::Pd)),
            Spec::wanted(wq::create::CQ_HANDLE, Kind::Handle(Of::Cq)),
            Spec::wanted(wq::create::USER_HANDLE, number(8)),
            Spec::wanted(wq::create::TYPE, number(8)),
            Spec::optional(wq::create::EVENT_FD, Kind::Descriptor),
            Spec::wanted(wq::create::MAX_WR, number(4)),
            Spec::wanted(wq::create::MAX_SGE, number(4)),
            Spec::wanted(wq::create::FLAGS, FLAGS),
            Spec::wanted(wq::create::RESP_MAX_WR, Kind::Out(4)),
            Spec::wanted(wq::create::RESP_MAX_SGE, Kind::Out(4)),
            Spec::optional(wq::create::RESP_WQ_NUM, Kind::Out(4)),
            MLX5_IN,
            MLX5_OUT,
        ],
        wq::create_wq_method,
    ),
    method(
        0xc,
        1,
        &[Spec::wanted(DESTROYED, Kind::Handle(Of::Wq)), Spec::wanted(wq::DESTROY_RESP, Kind::Out(4))],
        wq::destroy_wq_method,
    ),
    method(0x10, 0, &[Spec::wanted(0, Kind::NewDescriptor)], device::async_events_method),
    method(0x1000, 0x1000, &[Spec::wanted(0x1000, ANY), Spec::wanted(0x1001, Kind::Out(0))], device::devx_method),
    method(
        0x1008,
        0x1000,
        &[
            Spec::wanted(uar::alloc::HANDLE, Kind::NewHandle),
            Spec::wanted(uar::alloc::TYPE, number(8)),
            Spec::wanted(uar::alloc::MMAP_OFFSET, Kind::Out(8)),
            Spec::wanted(uar::alloc::MMAP_LENGTH, Kind::Out(4)),
            Spec::wanted(uar::alloc::PAGE_ID, Kind::Out(4)),
        ],
        uar::alloc_uar_method,
    ),
    destroy(0x1008, 0x1001, &[Spec::wanted(uar::alloc::HANDLE, Kind::Handle(Of::Uar))], Of::Uar),
];
