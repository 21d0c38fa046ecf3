//! Which commands there are, and how long their core parts must be; mlx5.md 3.4. The same table
//! serves `write` and the tunnel of `ioctl`.

use crate::hca::Errno;
use crate::uverbs::abi::Layout;
use crate::uverbs::abi::verbs::*;
use crate::uverbs::context::Context;
use crate::uverbs::objects::{ah, cq, flow, pd, qp, qp_state, srq, wq};
use crate::uverbs::{Kernel, device, refuse};

/// A command without its framing: its request, and the room for a response.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::uverbs) struct Call<'a> {
    /// The core request.
    pub(in crate::uverbs) core: &'a [u8],
    /// The driver's request.
    pub(in crate::uverbs) driver: &'a [u8],
    /// Bytes of room for the core response.
    pub(in crate::uverbs) core_room: usize,
    /// Bytes of room for the driver's response.
    pub(in crate::uverbs) driver_room: usize,
}

impl Call<'_> {
    /// The core request as `T`. Further bytes, of a newer client, must be zero.
    pub(in crate::uverbs) fn request<T: Layout>(&self) -> Result<T, Errno> {
        super::memory::nothing_after(self.core, T::LEN)?;
        Ok(T::read(self.core))
    }

    /// `response_length` of a response of `len` bytes.
    pub(in crate::uverbs) fn response_length(&self, len: usize) -> u32 {
        len.min(self.core_room) as u32
    }
}

/// A response. It is cut off where it does not fit its room.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::uverbs) struct Reply {
    /// The core response.
    pub(in crate::uverbs) core: Vec<u8>,
    /// The driver's response.
    pub(in crate::uverbs) driver: Vec<u8>,
}

impl Reply {
    /// An answer without a driver's part.
    pub(in crate::uverbs) fn core(response: &impl Layout) -> Self {
        Self { core: response.bytes(), driver: Vec::new() }
    }

    /// An answer of both parts.
    pub(in crate::uverbs) fn both(response: &impl Layout, driver: &impl Layout) -> Self {
        Self { core: response.bytes(), driver: driver.bytes() }
    }
}

/// The implementation of a command.
#[derive(Clone, Copy)]
pub(in crate::uverbs) enum Run {
    /// Makes the context.
    Open,
    /// Works in the context.
    Within(fn(&mut Context, &mut Kernel<'_>, &Call<'_>) -> Result<Reply, Errno>),
}

/// A command.
pub(in crate::uverbs) struct Entry {
    /// Number, with the flag of extended commands.
    command: u32,
    /// Bytes that the core request has at least.
    pub(in crate::uverbs) request_len: usize,
    /// Bytes that the core response has at least; 0 where there is none.
    pub(in crate::uverbs) response_len: usize,
    /// For plain commands: the driver's part follows the core request.
    pub(in crate::uverbs) has_driver: bool,
    /// The implementation.
    pub(in crate::uverbs) run: Run,
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "command {:#x}", self.command)
    }
}

/// The flag of extended commands.
const EXTENDED: u32 = 1 << 31;

/// Numbers of commands lie in these bits.
const NUMBERS: u32 = 0xff;

impl Entry {
    /// Whether its frame has the second header.
    pub(in crate::uverbs) fn is_extended(&self) -> bool {
        self.command & EXTENDED != 0
    }

    const fn plain(number: u32, request_len: usize, response_len: usize, has_driver: bool, run: Run) -> Self {
        Self { command: number, request_len, response_len, has_driver, run }
    }

    const fn extended(number: u32, request_len: usize, response_len: usize, run: Run) -> Self {
        Self { command: number | EXTENDED, request_len, response_len, has_driver: true, run }
    }
}

/// The command with this number and flag. EINVAL where it cannot be a command, EOPNOTSUPP where a
/// software ConnectX does not know it.
pub(in crate::uverbs) fn find(command: u32) -> Result<&'static Entry, Errno> {
    if command & !(EXTENDED | NUMBERS) != 0 {
        return refuse(libc::EINVAL);
    }
    COMMANDS.iter().find(|entry| entry.command == command).ok_or(Errno(libc::EOPNOTSUPP))
}

/// In the order of their numbers. Extended commands may be shorter than their structs where the
/// last fields are younger than the command.
const COMMANDS: &[Entry] = &[
    Entry::plain(0, GetContext::LEN, GetContextResp::LEN, true, Run::Open),
    Entry::plain(1, QueryDevice::LEN, QueryDeviceResp::LEN, false, Run::Within(device::query_device)),
    Entry::plain(2, QueryPort::LEN, QueryPortResp::LEN, false, Run::Within(device::query_port)),
    Entry::plain(3, AllocPd::LEN, AllocPdResp::LEN, true, Run::Within(pd::alloc_pd)),
    Entry::plain(4, DeallocPd::LEN, 0, false, Run::Within(pd::dealloc_pd)),
    Entry::plain(5, CreateAh::LEN, CreateAhResp::LEN, true, Run::Within(ah::create_ah)),
    Entry::plain(8, DestroyAh::LEN, 0, false, Run::Within(ah::destroy_ah)),
    Entry::plain(9, RegMr::LEN, RegMrResp::LEN, true, Run::Within(pd::reg_mr)),
    Entry::plain(13, DeregMr::LEN, 0, false, Run::Within(pd::dereg_mr)),
    Entry::plain(14, AllocMw::LEN, AllocMwResp::LEN, true, Run::Within(pd::alloc_mw)),
    Entry::plain(16, DeallocMw::LEN, 0, false, Run::Within(pd::dealloc_mw)),
    Entry::plain(17, CreateCompChannel::LEN, CreateCompChannelResp::LEN, false, Run::Within(cq::create_comp_channel)),
    Entry::plain(18, CreateCq::LEN, CreateCqResp::LEN, true, Run::Within(cq::create_cq)),
    Entry::plain(20, DestroyCq::LEN, DestroyCqResp::LEN, false, Run::Within(cq::destroy_cq)),
    Entry::plain(24, CreateQp::LEN, CreateQpResp::LEN, true, Run::Within(qp::create_qp)),
    Entry::plain(25, QueryQp::LEN, QueryQpResp::LEN, false, Run::Within(qp_state::query_qp)),
    Entry::plain(26, ModifyQp::LEN, 0, true, Run::Within(qp_state::modify_qp)),
    Entry::plain(27, DestroyQp::LEN, DestroyQpResp::LEN, false, Run::Within(qp_state::destroy_qp)),
    Entry::plain(30, AttachMcast::LEN, 0, false, Run::Within(ah::attach_mcast)),
    Entry::plain(31, AttachMcast::LEN, 0, false, Run::Within(ah::detach_mcast)),
    Entry::plain(32, CreateSrq::LEN, CreateSrqResp::LEN, true, Run::Within(srq::create_srq)),
    Entry::plain(33, ModifySrq::LEN, 0, true, Run::Within(srq::modify_srq)),
    Entry::plain(34, QuerySrq::LEN, QuerySrqResp::LEN, false, Run::Within(srq::query_srq)),
    Entry::plain(35, DestroySrq::LEN, DestroySrqResp::LEN, false, Run::Within(srq::destroy_srq)),
    Entry::extended(1, ExQueryDevice::LEN, QueryDeviceResp::LEN + 8, Run::Within(device::query_device_ex)),
    Entry::extended(18, ExCreateCq::LEN, ExCreateCqResp::LEN, Run::Within(cq::create_cq_ex)),
    Entry::extended(24, ExCreateQp::LEN - 12, ExCreateQpResp::LEN, Run::Within(qp::create_qp_ex)),
    Entry::extended(26, ModifyQp::LEN, ExModifyQpResp::LEN, Run::Within(qp_state::modify_qp_ex)),
    Entry::extended(50, CreateFlow::LEN, CreateFlowResp::LEN, Run::Within(flow::create_flow)),
    Entry::extended(51, DestroyFlow::LEN, 0, Run::Within(flow::destroy_flow)),
    Entry::extended(52, ExCreateWq::LEN - 8, ExCreateWqResp::LEN, Run::Within(wq::create_wq)),
    Entry::extended(53, ExModifyWq::LEN - 8, 0, Run::Within(wq::modify_wq)),
    Entry::extended(54, ExDestroyWq::LEN, ExDestroyWqResp::LEN, Run::Within(wq::destroy_wq)),
    Entry::extended(55, ExCreateRwqIndTable::LEN, ExCreateRwqIndTableResp::LEN, Run::Within(wq::create_table)),
    Entry::extended(56, ExDestroyRwqIndTable::LEN, 0, Run::Within(wq::destroy_table)),
    Entry::extended(57, ExModifyCq::LEN, 0, Run::Within(cq::modify_cq)),
];
