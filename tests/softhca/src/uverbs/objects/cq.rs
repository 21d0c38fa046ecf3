//! Completion channels and completion queues.

use super::handles::{Kind, Object};
use crate::hca::{Compression, CqRequest, Errno};
use crate::uverbs::abi::verbs::{
    CreateCompChannel, CreateCompChannelResp, CreateCq, CreateCqResp, DestroyCq, DestroyCqResp, ExCreateCq,
    ExCreateCqResp, ExModifyCq,
};
use crate::uverbs::abi::{Layout, mlx5};
use crate::uverbs::calls::memory::nothing_after;
use crate::uverbs::calls::{Bundle, Call, DRIVER_IN, DRIVER_OUT, Outputs, Reply};
use crate::uverbs::context::{COMPLETION_VECTORS, Context};
use crate::uverbs::{Kernel, errno, refuse};

/// Makes a completion channel.
pub(crate) fn create_comp_channel(
    context: &mut Context,
    kernel: &mut Kernel<'_>,
    call: &Call<'_>,
) -> Result<Reply, Errno> {
    call.request::<CreateCompChannel>()?;
    if context.channels.len() >= CHANNELS_MAX {
        return refuse(libc::EMFILE);
    }
    let descriptor = kernel.process.channel()?;
    context.channels.push(descriptor);
    Ok(Reply::core(&CreateCompChannelResp { fd: descriptor as u32 }))
}

/// Channels of a session; a client has a few.
const CHANNELS_MAX: usize = 4096;

/// IB_UVERBS_CQ_FLAGS_*.
const TIMESTAMPS: u32 = 1 << 0;
const IGNORE_OVERRUN: u32 = 1 << 1;

/// The common request of all three ways to make a CQ.
struct Wanted {
    user_handle: u64,
    /// One less than the ring has.
    cqe: u32,
    vector: u32,
    channel: Option<i32>,
    flags: u32,
}

/// Makes a CQ.
pub(crate) fn create_cq(context: &mut Context, kernel: &mut Kernel<'_>, call: &Call<'_>) -> Result<Reply, Errno> {
    let request: CreateCq = call.request()?;
    let wanted = Wanted {
        user_handle: request.user_handle,
        cqe: request.cqe,
        vector: request.comp_vector,
        channel: channel(request.comp_channel),
        flags: 0,
    };
    let (cq_handle, driver) = create(context, kernel, &wanted, call.driver)?;
    Ok(Reply::both(&CreateCqResp { cq_handle, cqe: request.cqe }, &driver))
}

/// The same with flags.
pub(crate) fn create_cq_ex(context: &mut Context, kernel: &mut Kernel<'_>, call: &Call<'_>) -> Result<Reply, Errno> {
    let request: ExCreateCq = call.request()?;
    if request.comp_mask != 0 || request.reserved != 0 {
        return refuse(libc::EINVAL);
    }
    let wanted = Wanted {
        user_handle: request.user_handle,
        cqe: request.cqe,
        vector: request.comp_vector,
        channel: channel(request.comp_channel),
        flags: request.flags,
    };
    let (cq_handle, driver) = create(context, kernel, &wanted, call.driver)?;
    let base = CreateCqResp { cq_handle, cqe: request.cqe };
    let response_length = call.response_length(ExCreateCqResp::LEN);
    Ok(Reply::both(&ExCreateCqResp { base, comp_mask: 0, response_length }, &driver))
}

/// Attributes of the method that makes a CQ: `uverbs_attrs_create_cq_cmd_attr_ids`.
pub(in crate::uverbs) mod create {
    pub(in crate::uverbs) const HANDLE: u16 = 0;
    pub(in crate::uverbs) const CQE: u16 = 1;
    pub(in crate::uverbs) const USER_HANDLE: u16 = 2;
    pub(in crate::uverbs) const COMP_CHANNEL: u16 = 3;
    pub(in crate::uverbs) const COMP_VECTOR: u16 = 4;
    pub(in crate::uverbs) const FLAGS: u16 = 5;
    pub(in crate::uverbs) const RESP_CQE: u16 = 6;
    pub(in crate::uverbs) const EVENT_FD: u16 = 7;
}

/// The same by method.
pub(crate) fn create_cq_method(
    context: &mut Context,
    kernel: &mut Kernel<'_>,
    call: &Bundle,
) -> Result<Outputs, Errno> {
    context.check_async(call.descriptor(create::EVENT_FD))?;
    let wanted = Wanted {
        user_handle: call.input(create::USER_HANDLE),
        cqe: call.input(create::CQE),
        vector: call.input(create::COMP_VECTOR),
        channel: call.descriptor(create::COMP_CHANNEL),
        flags: call.flags(create::FLAGS, TIMESTAMPS | IGNORE_OVERRUN)?,
    };
    let (handle, driver) = create(context, kernel, &wanted, call.bytes(DRIVER_IN))?;
    Ok(Outputs::new().handle(create::HANDLE, handle).value(create::RESP_CQE, &wanted.cqe).value(DRIVER_OUT, &driver))
}

/// A negative descriptor is none.
fn channel(descriptor: i32) -> Option<i32> {
    (descriptor >= 0).then_some(descriptor)
}

/// The driver's request without its flags: as its first clients sent it.
const DRIVER_LEN_MIN: usize = 22;

/// MLX5_IB_CREATE_CQ_FLAGS_*.
const PAD_128: u16 = 1 << 0;
const UAR_PAGE_INDEX: u16 = 1 << 1;
const REAL_TIME: u16 = 1 << 2;

/// The most entries that a client may request: the number in the device attributes.
const CQE_MAX: u32 = 4_194_303;

fn create(
    context: &mut Context,
    kernel: &mut Kernel<'_>,
    wanted: &Wanted,
    driver: &[u8],
) -> Result<(u32, mlx5::CreateCqResp), Errno> {
    if wanted.vector >= COMPLETION_VECTORS || wanted.cqe == 0 || wanted.cqe > CQE_MAX {
        return refuse(libc::EINVAL);
    }
    if wanted.flags & !(TIMESTAMPS | IGNORE_OVERRUN) != 0 {
        return refuse(libc::EOPNOTSUPP);
    }
    if wanted.channel.is_some_and(|channel| !context.channels.contains(&channel)) {
        return refuse(libc::EBADF);
    }
    if driver.len() < DRIVER_LEN_MIN {
        return refuse(libc::EINVAL);
    }
    nothing_after(driver, mlx5::CreateCq::LEN)?;
    let driver = mlx5::CreateCq::read(driver);
    if driver.flags & !(PAD_128 | UAR_PAGE_INDEX | REAL_TIME) != 0 || driver.reserved0 != 0 || driver.reserved1 != 0 {
        return refuse(libc::EINVAL);
    }
    if driver.flags & UAR_PAGE_INDEX != 0 && !context.owns_uar(driver.uar_page_index.into()) {
        return refuse(libc::EINVAL);
    }
    context.objects.room()?;
    let request = CqRequest {
        entries: (wanted.cqe + 1).next_power_of_two(),
        ring: driver.buf_addr,
        doorbell: driver.db_addr,
        entry_len: driver.cqe_size,
        compression: compression(&driver)?,
        pad_128: driver.flags & PAD_128 != 0,
        real_time: driver.flags & REAL_TIME != 0,
        ignore_overrun: wanted.flags & IGNORE_OVERRUN != 0,
        channel: wanted.channel,
        user_handle: wanted.user_handle,
    };
    let created = kernel.hca.create_cq(&request, kernel.dma)?;
    let object = Object { user_handle: Some(wanted.user_handle), ..Object::new(Kind::Cq, created.handle, []) };
    Ok((context.objects.add(object), mlx5::CreateCqResp { cqn: created.number, reserved: 0 }))
}

/// MLX5_IB_CQE_RES_FORMAT_*.
fn compression(driver: &mlx5::CreateCq) -> Result<Option<Compression>, Errno> {
    if driver.cqe_comp_en == 0 {
        return Ok(None);
    }
    match driver.cqe_comp_res_format {
        1 => Ok(Some(Compression::Hash)),
        2 => Ok(Some(Compression::Checksum)),
        4 => Ok(Some(Compression::ChecksumStride)),
        _ => Err(errno(libc::EINVAL)),
    }
}

/// Destroys a CQ and returns how many events it raised; the client waits until it has acknowledged
/// as many.
pub(crate) fn destroy_cq(context: &mut Context, kernel: &mut Kernel<'_>, call: &Call<'_>) -> Result<Reply, Errno> {
    Ok(Reply::core(&destroy(context, kernel, call.request::<DestroyCq>()?.cq_handle)?))
}

/// The attribute with the answer.
pub(in crate::uverbs) const DESTROY_RESP: u16 = 1;

/// The same by method.
pub(crate) fn destroy_cq_method(
    context: &mut Context,
    kernel: &mut Kernel<'_>,
    call: &Bundle,
) -> Result<Outputs, Errno> {
    let response = destroy(context, kernel, call.wanted_handle(0)?)?;
    Ok(Outputs::new().value(DESTROY_RESP, &response))
}

fn destroy(context: &mut Context, kernel: &mut Kernel<'_>, handle: u32) -> Result<DestroyCqResp, Errno> {
    let destroyed = context.destroy(Kind::Cq, handle, kernel)?;
    Ok(DestroyCqResp {
        comp_events_reported: destroyed.completion_events,
        async_events_reported: destroyed.async_events,
    })
}

/// IB_CQ_MODERATE, the one attribute that may be changed.
const MODERATE: u32 = 1 << 0;

/// Moderates a CQ's events.
pub(crate) fn modify_cq(context: &mut Context, kernel: &mut Kernel<'_>, call: &Call<'_>) -> Result<Reply, Errno> {
    let request: ExModifyCq = call.request()?;
    if request.attr_mask == 0 || request.reserved != 0 {
        return refuse(libc::EINVAL);
    }
    if request.attr_mask & !MODERATE != 0 {
        return refuse(libc::EOPNOTSUPP);
    }
    let cq = context.objects.nic(Kind::Cq, request.cq_handle)?;
    kernel.hca.modify_cq(cq, request.attr.cq_count, request.attr.cq_period)?;
    Ok(Reply::default())
}

impl Context {
    /// A descriptor for asynchronous events that is given must be the context's.
    pub(crate) fn check_async(&self, descriptor: Option<i32>) -> Result<(), Errno> {
        match descriptor {
            Some(descriptor) if self.async_events != Some(descriptor) => refuse(libc::EBADF),
            _ => Ok(()),
        }
    }
}
