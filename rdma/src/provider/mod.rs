//! One program over either: the RoCE device of this package, or a NIC through rdma-core. Which of
//! them is chosen by the device that is opened; `AnyProvider::open` in `port` chooses by its name.
//!
//! ```text
//!  program ─▶ Provider ─┬─▶ roce::Device        its worker moves the frames
//!                       └─▶ provider::RdmaCore  libibverbs (feature `rdma-core`)
//! ```
//!
//! Objects, attributes, requests and completions are those of [`crate::roce`]. What differs is in
//! who moves the frames: a [`Device`] is polled by its worker, a NIC by nobody.

#[cfg_attr(not(feature = "port"), allow(dead_code, unreachable_pub))] // only the framework has mbufs
pub(crate) mod owning;
#[cfg(feature = "rdma-core")]
mod rdma_core;

#[cfg(feature = "rdma-core")]
pub use rdma_core::{OpenError, RdmaCore};

use core::net::Ipv6Addr;

use crate::roce::{
    Access, AhHandle, CqHandle, Device, DeviceError, Event, ModifyError, Mr, MrHandle, Mtu, Mw, MwHandle, Notify, Path,
    PdHandle, PostError, QpAttributes, QpHandle, QpOptions, QpState, Region, SendRequest, Sge, SrqHandle,
    WorkCompletion,
};
use crate::wire::opcode::Transport;
use crate::wire::qpn::Qpn;

/// The most that a device has, for a program that chooses sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProviderLimits {
    /// The largest payload of a packet, on the link as it is.
    pub mtu: Mtu,
    /// Work requests of a send queue or of a receive queue. A NIC may have fewer where requests are
    /// long.
    pub wrs_per_queue: u32,
    /// Entries of a completion queue.
    pub cqes: u32,
    /// READs and atomic operations that a queue pair may have under way.
    pub rd_atomics: u8,
    /// The same of its peer.
    pub dest_rd_atomics: u8,
}

/// The verbs that a program needs: context, protection domain, region, window, completion queue,
/// shared receive queue, address handle, queue pair, post, poll, notifications and events. Costs
/// and limits are those of the implementation.
pub trait Provider {
    /// Makes a protection domain.
    ///
    /// # Errors
    /// If the device has no room for it.
    fn create_pd(&mut self) -> Result<PdHandle, DeviceError>;

    /// Destroys a protection domain.
    ///
    /// # Errors
    /// If there is none, or regions, windows, queues or address handles are in it: EBUSY of
    /// `ibv_dealloc_pd(3)`.
    fn destroy_pd(&mut self, pd: PdHandle) -> Result<(), DeviceError>;

    /// Registers memory, whose bytes requests name by their addresses in this process.
    ///
    /// # Errors
    /// If the device has no room for it, or a right demands another one.
    fn register(&mut self, pd: PdHandle, region: Region, access: Access) -> Result<Mr, DeviceError> {
        let address = region.address();
        self.register_at(pd, region, address, access)
    }

    /// Registers memory of which requests name the first byte by `address`, whatever it is in this
    /// process. Over a NIC both addresses have the same place in a page of 4096 bytes, so that
    /// memory which begins with a page may be named from 0 on.
    ///
    /// # Errors
    /// As of [`register`](Self::register); over a NIC another place in the page.
    fn register_at(&mut self, pd: PdHandle, region: Region, address: u64, access: Access) -> Result<Mr, DeviceError>;

    /// Ends a registration.
    ///
    /// # Errors
    /// If there is none, windows are bound to it, or a NIC refuses: it stays registered then.
    fn deregister(&mut self, mr: MrHandle) -> Result<(), DeviceError>;

    /// Makes a memory window.
    ///
    /// # Errors
    /// If the device has no room for it, or no windows.
    fn create_mw(&mut self, pd: PdHandle) -> Result<Mw, DeviceError>;

    /// Destroys a memory window, bound or not.
    ///
    /// # Errors
    /// If there is none, or a NIC refuses: it stays then.
    fn destroy_mw(&mut self, mw: MwHandle) -> Result<(), DeviceError>;

    /// Makes an address handle: the way to the receivers of datagrams.
    ///
    /// # Errors
    /// If the device has no room for it, or no way there.
    fn create_ah(&mut self, pd: PdHandle, path: &Path) -> Result<AhHandle, DeviceError>;

    /// Destroys an address handle. Requests that name it are complete before.
    ///
    /// # Errors
    /// If there is none.
    fn destroy_ah(&mut self, ah: AhHandle) -> Result<(), DeviceError>;

    /// Makes a shared receive queue of `depth` receives, or more.
    ///
    /// # Errors
    /// If the device has no room for it.
    fn create_srq(&mut self, pd: PdHandle, depth: u32) -> Result<SrqHandle, DeviceError>;

    /// Destroys a shared receive queue; its receives have no completions.
    ///
    /// # Errors
    /// If there is none, or queue pairs use it.
    fn destroy_srq(&mut self, srq: SrqHandle) -> Result<(), DeviceError>;

    /// Asks for one [`Event::SrqLimitReached`] when fewer than `limit` receives are left.
    ///
    /// # Errors
    /// If there is none, or it never has so many receives.
    fn arm_srq(&mut self, srq: SrqHandle, limit: u32) -> Result<(), DeviceError>;

    /// Puts memory into a shared receive queue, for the next message to any of its queue pairs.
    ///
    /// # Errors
    /// [`PostError`]; nothing changed then.
    fn post_srq_recv(&mut self, srq: SrqHandle, wr_id: u64, sges: &[Sge]) -> Result<(), PostError>;

    /// Makes a completion queue of `depth` entries, or more.
    ///
    /// # Errors
    /// If the device has no room for it.
    fn create_cq(&mut self, depth: u32) -> Result<CqHandle, DeviceError>;

    /// Destroys a completion queue, with the completions that nobody has taken.
    ///
    /// # Errors
    /// If there is none, or queue pairs use it: EBUSY of `ibv_destroy_cq(3)`.
    fn destroy_cq(&mut self, cq: CqHandle) -> Result<(), DeviceError>;

    /// Makes a queue pair in the state RESET.
    ///
    /// # Errors
    /// If the device has no room for it, or an object that it uses does not exist.
    fn create_qp(&mut self, options: &QpOptions) -> Result<QpHandle, DeviceError>;

    /// Destroys a queue pair; its requests have no completions, and mbufs of theirs are freed.
    ///
    /// # Errors
    /// If there is none.
    fn destroy_qp(&mut self, qp: QpHandle) -> Result<(), DeviceError>;

    /// The number of a queue pair, which its peer needs.
    fn qpn(&self, qp: QpHandle) -> Option<Qpn>;

    /// The state of a queue pair; `None` of one that there is not. Over a NIC a system call.
    fn qp_state(&self, qp: QpHandle) -> Option<QpState>;

    /// The attributes that a queue pair has now (`ibv_query_qp`): its state, and of the others
    /// those that its service and the steps so far have given it. The rights are the peer's alone.
    /// Packet numbers are those of the next packets; some NICs keep to those that were set. Over a
    /// NIC a system call, and the kernel alone knows the MAC addresses of the path: they are
    /// zeroes, and there is no path where our own address on it is no GID of the port any more.
    ///
    /// # Errors
    /// If there is none, or the NIC is gone.
    fn qp_attributes(&self, qp: QpHandle) -> Result<QpAttributes, DeviceError>;

    /// The most that the device has.
    fn limits(&self) -> ProviderLimits;

    /// Has a queue pair receive the datagrams to a multicast group: an IPv6 address, or one of IPv4
    /// as `::ffff:a.b.c.d`. On a port of wirepath the group is subscribed to beside that.
    ///
    /// # Errors
    /// If the device has no room for it, the queue pair is not one of datagrams, or the address is
    /// no group.
    fn attach_multicast(&mut self, qp: QpHandle, group: Ipv6Addr) -> Result<(), DeviceError>;

    /// Ends that.
    ///
    /// # Errors
    /// If it was not attached.
    fn detach_multicast(&mut self, qp: QpHandle, group: Ipv6Addr) -> Result<(), DeviceError>;

    /// Sets attributes of a queue pair, and leads it to its next state.
    ///
    /// # Errors
    /// [`ModifyError`]; nothing changed then.
    fn modify_qp(&mut self, qp: QpHandle, attributes: &QpAttributes) -> Result<(), ModifyError>;

    /// Leads a new queue pair of this service to RTS, by the steps of [`QpAttributes::steps`].
    ///
    /// # Errors
    /// [`ModifyError`]: the queue pair is not in RESET, or a value is none of the device's.
    fn connect_qp(&mut self, qp: QpHandle, transport: Transport, attributes: &QpAttributes) -> Result<(), ModifyError> {
        attributes.steps(transport).iter().try_for_each(|step| self.modify_qp(qp, step))
    }

    /// Puts a request into a send queue.
    ///
    /// # Errors
    /// [`PostError`]; nothing changed then.
    fn post_send(&mut self, qp: QpHandle, request: &SendRequest<'_>) -> Result<(), PostError>;

    /// Puts memory into a receive queue, for the next message.
    ///
    /// # Errors
    /// [`PostError`]; nothing changed then.
    fn post_recv(&mut self, qp: QpHandle, wr_id: u64, sges: &[Sge]) -> Result<(), PostError>;

    /// Takes the oldest completion. If its request owns an mbuf, that is freed.
    ///
    /// # Errors
    /// A NIC's queue has failed, or there is none: nothing more completes there.
    fn poll_cq(&mut self, cq: CqHandle) -> Result<Option<WorkCompletion>, DeviceError>;

    /// Asks for one notification, which [`next_notification`](Self::next_notification) returns.
    /// Poll once more behind it: a completion that was there already may notify of nothing.
    ///
    /// # Errors
    /// If there is no such queue.
    fn arm_cq(&mut self, cq: CqHandle, notify: Notify) -> Result<(), DeviceError>;

    /// Takes a completion queue that was armed, and has a completion now. Over a NIC a system call.
    ///
    /// # Errors
    /// The NIC is gone.
    fn next_notification(&mut self) -> Result<Option<CqHandle>, DeviceError>;

    /// Takes the oldest asynchronous event. Over a NIC a system call.
    ///
    /// # Errors
    /// The NIC is gone.
    fn next_event(&mut self) -> Result<Option<Event>, DeviceError>;
}

impl Provider for Device {
    fn create_pd(&mut self) -> Result<PdHandle, DeviceError> {
        Self::create_pd(self)
    }

    fn destroy_pd(&mut self, pd: PdHandle) -> Result<(), DeviceError> {
        Self::destroy_pd(self, pd)
    }

    fn register_at(&mut self, pd: PdHandle, region: Region, address: u64, access: Access) -> Result<Mr, DeviceError> {
        Self::register_at(self, pd, region, address, access)
    }

    fn deregister(&mut self, mr: MrHandle) -> Result<(), DeviceError> {
        Self::deregister(self, mr).map(drop)
    }

    fn create_mw(&mut self, pd: PdHandle) -> Result<Mw, DeviceError> {
        Self::create_mw(self, pd)
    }

    fn destroy_mw(&mut self, mw: MwHandle) -> Result<(), DeviceError> {
        Self::destroy_mw(self, mw)
    }

    fn create_ah(&mut self, pd: PdHandle, path: &Path) -> Result<AhHandle, DeviceError> {
        Self::create_ah(self, pd, path)
    }

    fn destroy_ah(&mut self, ah: AhHandle) -> Result<(), DeviceError> {
        Self::destroy_ah(self, ah)
    }

    fn create_srq(&mut self, pd: PdHandle, depth: u32) -> Result<SrqHandle, DeviceError> {
        Self::create_srq(self, pd, depth)
    }

    fn destroy_srq(&mut self, srq: SrqHandle) -> Result<(), DeviceError> {
        Self::destroy_srq(self, srq)
    }

    fn arm_srq(&mut self, srq: SrqHandle, limit: u32) -> Result<(), DeviceError> {
        Self::arm_srq(self, srq, limit)
    }

    #[inline]
    fn post_srq_recv(&mut self, srq: SrqHandle, wr_id: u64, sges: &[Sge]) -> Result<(), PostError> {
        Self::post_srq_recv(self, srq, wr_id, sges)
    }

    fn create_cq(&mut self, depth: u32) -> Result<CqHandle, DeviceError> {
        Self::create_cq(self, depth)
    }

    fn destroy_cq(&mut self, cq: CqHandle) -> Result<(), DeviceError> {
        Self::destroy_cq(self, cq)
    }

    fn create_qp(&mut self, options: &QpOptions) -> Result<QpHandle, DeviceError> {
        Self::create_qp(self, options)
    }

    fn destroy_qp(&mut self, qp: QpHandle) -> Result<(), DeviceError> {
        Self::destroy_qp(self, qp)
    }

    fn qpn(&self, qp: QpHandle) -> Option<Qpn> {
        Self::qpn(self, qp)
    }

    fn qp_state(&self, qp: QpHandle) -> Option<QpState> {
        Self::qp_state(self, qp)
    }

    fn qp_attributes(&self, qp: QpHandle) -> Result<QpAttributes, DeviceError> {
        Self::qp_attributes(self, qp)
    }

    fn limits(&self) -> ProviderLimits {
        let config = self.config();
        ProviderLimits {
            mtu: config.mtu,
            wrs_per_queue: config.wrs_per_queue,
            cqes: config.cqes,
            rd_atomics: config.rd_atomics,
            dest_rd_atomics: config.rd_atomics,
        }
    }

    fn attach_multicast(&mut self, qp: QpHandle, group: Ipv6Addr) -> Result<(), DeviceError> {
        Self::attach_multicast(self, qp, group)
    }

    fn detach_multicast(&mut self, qp: QpHandle, group: Ipv6Addr) -> Result<(), DeviceError> {
        Self::detach_multicast(self, qp, group)
    }

    fn modify_qp(&mut self, qp: QpHandle, attributes: &QpAttributes) -> Result<(), ModifyError> {
        Self::modify_qp(self, qp, attributes)
    }

    #[inline]
    fn post_send(&mut self, qp: QpHandle, request: &SendRequest<'_>) -> Result<(), PostError> {
        Self::post_send(self, qp, request)
    }

    #[inline]
    fn post_recv(&mut self, qp: QpHandle, wr_id: u64, sges: &[Sge]) -> Result<(), PostError> {
        Self::post_recv(self, qp, wr_id, sges)
    }

    #[inline]
    fn poll_cq(&mut self, cq: CqHandle) -> Result<Option<WorkCompletion>, DeviceError> {
        Ok(Self::poll_cq(self, cq))
    }

    #[inline]
    fn arm_cq(&mut self, cq: CqHandle, notify: Notify) -> Result<(), DeviceError> {
        Self::arm_cq(self, cq, notify)
    }

    fn next_notification(&mut self) -> Result<Option<CqHandle>, DeviceError> {
        Ok(Self::next_notification(self))
    }

    fn next_event(&mut self) -> Result<Option<Event>, DeviceError> {
        Ok(Self::next_event(self))
    }
}
