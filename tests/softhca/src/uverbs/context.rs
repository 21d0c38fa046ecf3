//! The state of a session after GET_CONTEXT: objects, doorbell pages, descriptors. Also the
//! response of GET_CONTEXT; mlx5.md 3.5.

use super::abi::Layout;
use super::abi::mlx5::{AllocUcontextReqV2, AllocUcontextResp};
use super::calls::Call;
use super::calls::memory::nothing_after;
use super::objects::{Kind, Objects, REGISTERS_A_PAGE, Uars};
use super::{Kernel, Protocol, refuse};
use crate::hca::{Config, Errno, Event, EventKind, Hca};

/// Completion vectors: any number below is taken, all are the same.
pub(super) const COMPLETION_VECTORS: u32 = 8;

/// The objects made through a session.
#[derive(Debug, Default)]
pub(super) struct Context {
    pub(super) objects: Objects,
    pub(super) uars: Uars,
    /// The client's ends of its completion channels.
    pub(super) channels: Vec<i32>,
    /// The client's end of its asynchronous descriptor.
    pub(super) async_events: Option<i32>,
    /// Bytes of registered memory, which the kernel counts against a limit.
    pub(super) locked_len: u64,
}

/// The driver's part of the GET_CONTEXT response.
pub(super) struct Opening {
    request: AllocUcontextReqV2,
    dynamic: bool,
}

/// The request up to but without `max_cqe_version`: as the first clients of its second version sent
/// it.
const REQUEST_LEN_MIN: usize = 16;

/// MLX5_LIB_CAP_DYN_UAR: the client asks for each doorbell page as it needs it.
const DYNAMIC_UARS: u64 = 1 << 1;

/// The most doorbell registers that a client may ask for at once.
const REGISTERS_MAX: u32 = 512;

/// Doorbell registers of pages that a client maps later, in the older protocol.
const LATER_REGISTERS: u32 = 512;

impl Opening {
    /// Reads the request. A client that wants DevX is refused: it comes back without (trap 4).
    pub(super) fn read(protocol: Protocol, driver: &[u8]) -> Result<Self, Errno> {
        if driver.len() < REQUEST_LEN_MIN {
            return refuse(libc::EINVAL);
        }
        nothing_after(driver, AllocUcontextReqV2::LEN)?;
        let request = AllocUcontextReqV2::read(driver);
        let reserved =
            request.comp_mask != 0 || request.reserved0 != 0 || request.reserved1 != 0 || request.reserved2 != 0;
        if request.flags != 0 || reserved {
            return refuse(libc::EOPNOTSUPP);
        }
        if request.total_num_bfregs == 0 {
            return refuse(libc::EINVAL);
        }
        if request.total_num_bfregs > REGISTERS_MAX {
            return refuse(libc::ENOMEM);
        }
        if request.num_low_latency_bfregs >= request.total_num_bfregs.next_multiple_of(REGISTERS_A_PAGE) {
            return refuse(libc::EINVAL);
        }
        // A kernel that knows `write` alone is older than pages by request.
        let dynamic = protocol == Protocol::Ioctl && request.lib_caps & DYNAMIC_UARS != 0;
        Ok(Self { request, dynamic })
    }

    /// Makes the context and returns the driver's response, within the available room.
    pub(super) fn context(&self, hca: &mut Hca, call: &Call<'_>) -> Result<(Context, Vec<u8>), Errno> {
        let registers = if self.dynamic { 0 } else { self.request.total_num_bfregs.next_multiple_of(REGISTERS_A_PAGE) };
        let context = Context { uars: Uars::new(registers / REGISTERS_A_PAGE, hca)?, ..Context::default() };
        let response = AllocUcontextResp {
            tot_bfregs: if self.dynamic { 0 } else { self.request.total_num_bfregs },
            num_dyn_bfregs: if self.dynamic { 0 } else { LATER_REGISTERS },
            response_length: call.driver_room.min(AllocUcontextResp::LEN) as u32,
            ..response(hca.config())
        };
        Ok((context, response.bytes()))
    }
}

/// The same for all contexts of a NIC.
fn response(config: &Config) -> AllocUcontextResp {
    AllocUcontextResp {
        qp_tab_size: 131_072,
        bf_reg_size: 512,
        cache_line_size: 64,
        max_sq_desc_sz: config.wqe_len_max,
        max_rq_desc_sz: 512,
        max_send_wqebb: 32_768,
        max_recv_wr: 32_768,
        max_srq_recv_wr: 32_768,
        num_ports: 1,
        // The offset of the core clock and the key of the region that swallows writes are there.
        comp_mask: 1 | 2,
        cqe_version: 1,
        // Without the first bit libmlx5 never asks for the driver's capabilities.
        cmds_supp_uhw: 1 | 2,
        eth_min_inline: if config.inline_len_min == 0 { INLINE_NONE } else { INLINE_L2 },
        clock_info_versions: 1,
        log_uar_size: 12,
        num_uars_per_page: 1,
        ..AllocUcontextResp::default()
    }
}

/// MLX5_USER_INLINE_MODE_NONE.
const INLINE_NONE: u8 = 1;

/// MLX5_USER_INLINE_MODE_L2: 18 bytes.
const INLINE_L2: u8 = 2;

/// The results of an object's destruction.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Destroyed {
    /// Completion events that its channel carried.
    pub(super) completion_events: u32,
    /// Asynchronous events of it.
    pub(super) async_events: u32,
}

impl Context {
    /// Destroys an object by its handle. A client waits until it has acknowledged as many events as
    /// it has read, so those that it has not read are taken back and do not count.
    pub(super) fn destroy(&mut self, kind: Kind, handle: u32, kernel: &mut Kernel<'_>) -> Result<Destroyed, Errno> {
        let nic = self.objects.unused(kind, handle)?;
        let user_handle = self.objects.get(kind, handle).and_then(|object| object.user_handle);
        let mut destroyed = destroy(kind, nic, kernel.hca)?;
        if let Some(element) = user_handle {
            let unread = kernel.process.take_back_events(element);
            destroyed.completion_events = destroyed.completion_events.saturating_sub(unread.completion);
            destroyed.async_events = destroyed.async_events.saturating_sub(unread.asynchronous);
        }
        self.forget(handle);
        Ok(destroyed)
    }

    /// Destroys all remaining objects, users before the objects that they use.
    pub(super) fn close(&mut self, hca: &mut Hca) {
        for kind in Kind::TEARDOWN {
            let left: Vec<(u32, u32)> = self
                .objects
                .iter()
                .filter(|(_, object)| object.kind == kind)
                .map(|(handle, object)| (handle, object.nic))
                .collect();
            for (handle, nic) in left {
                // No client is left to get an error, and an object that the NIC does not know is
                // gone already.
                let _ = destroy(kind, nic, hca);
                self.forget(handle);
            }
        }
        self.uars.free(hca);
    }

    /// Whether an event is about an object of this context, or for all contexts.
    pub(super) fn concerns(&self, event: &Event) -> bool {
        let of = |kinds: &[Kind]| {
            let mut objects = self.objects.iter();
            objects.any(|(_, object)| kinds.contains(&object.kind) && object.user_handle == Some(event.element))
        };
        match event.kind {
            EventKind::Completion => event.channel.is_some_and(|channel| self.channels.contains(&channel)),
            EventKind::CqError => of(&[Kind::Cq]),
            EventKind::QpFatal
            | EventKind::QpRequestError
            | EventKind::QpAccessError
            | EventKind::CommunicationEstablished
            | EventKind::LastWqe => of(&[Kind::Qp]),
            EventKind::SrqLimit => of(&[Kind::Srq]),
            EventKind::WqFatal => of(&[Kind::Wq]),
            EventKind::PortActive | EventKind::PortError | EventKind::DeviceFatal => true,
        }
    }

    fn forget(&mut self, handle: u32) {
        let Some(object) = self.objects.remove(handle) else { return };
        self.locked_len = self.locked_len.saturating_sub(object.locked_len);
        if let Some(register) = object.register {
            self.uars.release(register);
        }
    }
}

fn destroy(kind: Kind, nic: u32, hca: &mut Hca) -> Result<Destroyed, Errno> {
    let silent = Destroyed::default();
    match kind {
        Kind::Pd => hca.dealloc_pd(nic).map(|()| silent),
        Kind::Mr => hca.deregister_memory(nic).map(|()| silent),
        Kind::Mw => hca.dealloc_window(nic).map(|()| silent),
        Kind::Cq => hca
            .destroy_cq(nic)
            .map(|events| Destroyed { completion_events: events.completion, async_events: events.asynchronous }),
        Kind::Qp => hca.destroy_qp(nic).map(|events| Destroyed { async_events: events, ..silent }),
        Kind::Wq => hca.destroy_wq(nic).map(|events| Destroyed { async_events: events, ..silent }),
        Kind::Srq => hca.destroy_srq(nic).map(|events| Destroyed { async_events: events, ..silent }),
        Kind::Ah => Ok(silent),
        Kind::Table => hca.destroy_table(nic).map(|()| silent),
        Kind::Flow => hca.destroy_flow(nic).map(|()| silent),
        Kind::Uar => {
            hca.free_uar(nic);
            Ok(silent)
        }
    }
}
