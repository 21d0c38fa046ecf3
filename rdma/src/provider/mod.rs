//! One program over either: the RoCE device of this package, or a NIC through rdma-core. Which of
//! them is chosen by the device that is opened.
//!
//! ```text
//!  program ─▶ Provider ─┬─▶ roce::Device        its worker moves the frames
//!                       └─▶ provider::RdmaCore  libibverbs (feature `rdma-core`)
//! ```
//!
//! Objects, attributes, requests and completions are those of [`crate::roce`]. What differs is in
//! who moves the frames: a [`Device`] is polled by its worker, a NIC by nobody.

#[cfg(feature = "rdma-core")]
mod rdma_core;

#[cfg(feature = "rdma-core")]
pub use rdma_core::{OpenError, RdmaCore};

use crate::roce::{
    Access, CqHandle, Device, DeviceError, ModifyError, Mr, MrHandle, PdHandle, PostError, QpAttributes, QpHandle,
    QpOptions, Region, SendRequest, Sge, WorkCompletion,
};
use crate::wire::qpn::Qpn;

/// The verbs that a program needs: context, protection domain, region, completion queue, queue
/// pair, post and poll. Costs and limits are those of the implementation.
pub trait Provider {
    /// Makes a protection domain.
    ///
    /// # Errors
    /// If the device has no room for it.
    fn create_pd(&mut self) -> Result<PdHandle, DeviceError>;

    /// Registers memory, whose bytes requests name by their addresses in this process.
    ///
    /// # Errors
    /// If the device has no room for it, or a right demands another one.
    fn register(&mut self, pd: PdHandle, region: Region, access: Access) -> Result<Mr, DeviceError>;

    /// Ends a registration.
    ///
    /// # Errors
    /// If there is none, or a NIC refuses: the region is never freed then.
    fn deregister(&mut self, mr: MrHandle) -> Result<(), DeviceError>;

    /// Makes a completion queue of `depth` entries, or more.
    ///
    /// # Errors
    /// If the device has no room for it.
    fn create_cq(&mut self, depth: u32) -> Result<CqHandle, DeviceError>;

    /// Makes a queue pair in the state RESET.
    ///
    /// # Errors
    /// If the device has no room for it, or an object that it uses does not exist.
    fn create_qp(&mut self, options: &QpOptions) -> Result<QpHandle, DeviceError>;

    /// Destroys a queue pair; its requests have no completions.
    ///
    /// # Errors
    /// If there is none.
    fn destroy_qp(&mut self, qp: QpHandle) -> Result<(), DeviceError>;

    /// The number of a queue pair, which its peer needs.
    fn qpn(&self, qp: QpHandle) -> Option<Qpn>;

    /// Sets attributes of a queue pair, and leads it to its next state.
    ///
    /// # Errors
    /// [`ModifyError`]; nothing changed then.
    fn modify_qp(&mut self, qp: QpHandle, attributes: &QpAttributes) -> Result<(), ModifyError>;

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

    /// Takes the oldest completion.
    ///
    /// # Errors
    /// A NIC's queue has failed, or there is none: nothing more completes there.
    fn poll_cq(&mut self, cq: CqHandle) -> Result<Option<WorkCompletion>, DeviceError>;
}

impl Provider for Device {
    fn create_pd(&mut self) -> Result<PdHandle, DeviceError> {
        Self::create_pd(self)
    }

    fn register(&mut self, pd: PdHandle, region: Region, access: Access) -> Result<Mr, DeviceError> {
        Self::register(self, pd, region, access)
    }

    fn deregister(&mut self, mr: MrHandle) -> Result<(), DeviceError> {
        Self::deregister(self, mr).map(drop)
    }

    fn create_cq(&mut self, depth: u32) -> Result<CqHandle, DeviceError> {
        Self::create_cq(self, depth)
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
}
