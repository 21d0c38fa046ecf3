//! An open device: its capabilities, its ports, its clock, and its asynchronous events.
//!
//! Invariants:
//! 1. `Inner::handle` is an open context. Child objects hold clones of it, so it is closed after
//!    them.
//! 2. Structures that calls fill are plain C data: zeroes are a valid value of each.
//! 3. An object named by an event is valid until the event is acknowledged: destroying it waits for
//!    that. Each function acknowledges an event before it returns, so no destruction waits for us.
//!    Of a context whose file another process has, this does not hold: `own_objects` reads its
//!    events.

use core::ffi::c_int;
use core::mem::zeroed;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::{Arc, OnceLock};

use super::attributes::{DeviceAttributes, Mlx5Attributes, PortAttributes};
use super::device::Device;
use super::error::VerbsError;
use super::handle::Handle;
use super::own_objects::OwnObjects;
use super::ring_memory::{RingMemory, RingSource};
use crate::bindings::*;
use crate::inline;
use crate::load::RdmaCore;

/// An open device. Cheap to clone; closed when the last clone and the last child object are
/// dropped.
#[derive(Clone, Debug)]
pub struct Context(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    handle: Handle<ibv_context>,
    // After the context, whose rings it has.
    ring_memory: OnceLock<RingSource>,
    /// Where another process has the device's file.
    own_objects: OnceLock<Arc<OwnObjects>>,
    device: Device,
}

impl Context {
    pub(super) fn open(device: &Device) -> Result<Self, VerbsError> {
        let verbs = device.core().verbs();
        // SAFETY: the device is of a living list.
        let raw = unsafe { (verbs.ibv_open_device)(device.as_ptr()) };
        let raw = VerbsError::check_object("ibv_open_device", raw)?;
        // SAFETY: the handle is new, and only the device, the next field, must live longer.
        let handle = unsafe { Handle::new(raw, verbs.ibv_close_device) };
        let context = Self(Arc::new(Inner {
            handle,
            ring_memory: OnceLock::new(),
            own_objects: OnceLock::new(),
            device: device.clone(),
        }));
        context.do_not_block()?;
        Ok(context)
    }

    /// The open device.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// The capabilities of the device.
    ///
    /// # Errors
    /// The device is gone.
    pub fn attributes(&self) -> Result<DeviceAttributes, VerbsError> {
        // SAFETY: 1, 2.
        let (answer, attributes) = unsafe {
            let mut attributes: ibv_device_attr_ex = zeroed();
            (inline::ibv_query_device_ex(self.core().verbs(), self.as_ptr(), &raw mut attributes), attributes)
        };
        VerbsError::check("ibv_query_device_ex", answer)?;
        Ok(DeviceAttributes::of(&attributes))
    }

    /// The further attributes that libmlx5 reports.
    ///
    /// # Errors
    /// The device is not libmlx5's (`is_unsupported`), or is gone.
    pub fn mlx5_attributes(&self) -> Result<Mlx5Attributes, VerbsError> {
        // SAFETY: 1, 2.
        let (answer, attributes) = unsafe {
            let mut attributes: mlx5dv_context = zeroed();
            attributes.comp_mask = Mlx5Attributes::WANTED;
            ((self.core().mlx5().mlx5dv_query_device)(self.as_ptr(), &raw mut attributes), attributes)
        };
        VerbsError::check("mlx5dv_query_device", answer)?;
        Ok(Mlx5Attributes::of(&attributes))
    }

    /// The state of a port. Ports count from 1.
    ///
    /// # Errors
    /// There is no such port, or the device is gone.
    pub fn port(&self, port: u8) -> Result<PortAttributes, VerbsError> {
        // SAFETY: 1, 2.
        let (answer, attributes) = unsafe {
            let mut attributes: ibv_port_attr = zeroed();
            (inline::ibv_query_port(self.core().verbs(), self.as_ptr(), port, &raw mut attributes), attributes)
        };
        VerbsError::check("ibv_query_port", answer)?;
        Ok(PortAttributes::of(&attributes))
    }

    /// The GID at a place of a port's table: the address of packets from there. All zeros where the
    /// place is empty.
    ///
    /// # Errors
    /// There is no such port or place, or the device is gone.
    pub fn gid(&self, port: u8, index: u8) -> Result<[u8; 16], VerbsError> {
        // SAFETY: 1, 2.
        let (answer, gid) = unsafe {
            let mut gid: ibv_gid = zeroed();
            let query = self.core().verbs().ibv_query_gid;
            (query(self.as_ptr(), port, index.into(), &raw mut gid), gid.raw)
        };
        VerbsError::check("ibv_query_gid", answer)?;
        Ok(gid)
    }

    /// The relation of the device's clock to the kernel's, to convert timestamps. Read from memory
    /// that the kernel updates: some tens of nanoseconds, no system call.
    ///
    /// # Errors
    /// The device or its kernel does not provide it.
    pub fn clock_info(&self) -> Result<ClockInfo, VerbsError> {
        // SAFETY: 1, 2.
        let (answer, clock) = unsafe {
            let mut clock: mlx5dv_clock_info = zeroed();
            ((self.core().mlx5().mlx5dv_get_clock_info)(self.as_ptr(), &raw mut clock), clock)
        };
        VerbsError::check("mlx5dv_get_clock_info", answer)?;
        Ok(ClockInfo(clock))
    }

    /// The device's clock now, in its cycles: a read over PCIe, about a microsecond.
    ///
    /// # Errors
    /// The device or its kernel does not expose the clock.
    pub fn device_clock(&self) -> Result<u64, VerbsError> {
        // SAFETY: 1, 2.
        let (answer, values) = unsafe {
            let mut values: ibv_values_ex = zeroed();
            values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
            (inline::ibv_query_rt_values_ex(self.as_ptr(), &raw mut values), values)
        };
        VerbsError::check("ibv_query_rt_values_ex", answer)?;
        // mlx5 returns all 64 bits of the counter in the nanoseconds field.
        Ok(values.raw_clock.tv_nsec.cast_unsigned())
    }

    /// Number of completion vectors: interrupts to distribute completion queues over.
    pub fn vector_count(&self) -> u32 {
        // SAFETY: 1.
        unsafe { (*self.as_ptr()).num_comp_vectors }.try_into().unwrap_or_default()
    }

    /// Has libmlx5 take the memory of rings and doorbell records from `memory`, where another
    /// process finds them. To be called before the first object is made: libmlx5 keeps pages that
    /// it has.
    ///
    /// # Errors
    /// The context has such memory already (`EBUSY`), or is not libmlx5's (`is_unsupported`).
    pub fn place_rings_in(&self, memory: Arc<dyn RingMemory>) -> Result<(), VerbsError> {
        const CALL: &str = "mlx5dv_set_context_attr";
        let source = &self.0.ring_memory;
        source.set(RingSource::new(memory)).map_err(|_| VerbsError::new(CALL, libc::EBUSY))?;
        let mut allocators = source.get().map(RingSource::allocators).ok_or(VerbsError::new(CALL, libc::EINVAL))?;
        let (set, attribute) = (self.core().mlx5().mlx5dv_set_context_attr, &raw mut allocators);
        // SAFETY: 1; libmlx5 copies the attribute, and its source lives as long as the context.
        let answer = unsafe { set(self.as_ptr(), MLX5DV_CTX_ATTR_BUF_ALLOCATORS, attribute.cast()) };
        VerbsError::check(CALL, answer)
    }

    /// Makes the context one whose file another process may have: events of objects that this
    /// process has not made are not believed, and one of its own may be destroyed already. To be
    /// called before the first object is made.
    pub fn share_file(&self) {
        self.0.own_objects.get_or_init(Arc::default);
    }

    /// The open file of the device, if it [may be shared](Self::share_file). Whoever has it can map
    /// the registers of its queues, and make and destroy objects with the rights that the kernel
    /// finds in the calling process.
    pub fn device_file(&self) -> Option<BorrowedFd<'_>> {
        self.own_objects()?;
        // SAFETY: 1: the context owns the descriptor and closes it at its end.
        Some(unsafe { BorrowedFd::borrow_raw((*self.as_ptr()).cmd_fd) })
    }

    pub(super) fn own_objects(&self) -> Option<&Arc<OwnObjects>> {
        self.0.own_objects.get()
    }

    /// Readable when an event is pending. Non-blocking.
    pub fn async_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: 1: the context owns the descriptor and closes it at its end.
        unsafe { BorrowedFd::borrow_raw((*self.as_ptr()).async_fd) }
    }

    /// The next event, if one is pending: a system call.
    ///
    /// # Errors
    /// The device is gone.
    pub fn next_event(&self) -> Result<Option<AsyncEvent>, VerbsError> {
        let verbs = self.core().verbs();
        if let Some(own) = self.own_objects() {
            return own.next_event(self.async_fd(), verbs);
        }
        // SAFETY: 1, 2, 3.
        unsafe {
            let mut event: ibv_async_event = zeroed();
            if (verbs.ibv_get_async_event)(self.as_ptr(), &raw mut event) != 0 {
                let error = VerbsError::last("ibv_get_async_event");
                return if error.errno() == libc::EAGAIN { Ok(None) } else { Err(error) };
            }
            let seen = AsyncEvent { kind: EventKind::of(event.event_type), element: element_of(&event) };
            (verbs.ibv_ack_async_event)(&raw mut event);
            Ok(Some(seen))
        }
    }

    pub(super) fn core(&self) -> &RdmaCore {
        self.0.device.core()
    }

    /// The raw object, for calls of [`crate::inline`]. Valid as long as a clone of this handle is.
    pub fn as_ptr(&self) -> *mut ibv_context {
        self.0.handle.as_ptr()
    }

    /// Makes the event descriptor non-blocking.
    fn do_not_block(&self) -> Result<(), VerbsError> {
        set_nonblocking("ibv_open_device", &self.async_fd())
    }
}

/// Makes reads of a descriptor non-blocking.
pub(super) fn set_nonblocking(call: &'static str, fd: &BorrowedFd<'_>) -> Result<(), VerbsError> {
    // SAFETY: numbers only, and the descriptor is borrowed.
    let answer: c_int = unsafe {
        let flags = libc::fcntl(fd.as_raw_fd(), libc::F_GETFL);
        if flags < 0 { flags } else { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK) }
    };
    if answer < 0 { Err(VerbsError::last(call)) } else { Ok(()) }
}

/// The object of an event, by number: the object itself belongs to its handle.
///
/// # Safety
/// `event` was taken and has not been acknowledged.
unsafe fn element_of(event: &ibv_async_event) -> Element {
    // SAFETY: 3; the kind of event determines which member of the union is set.
    unsafe {
        match event.event_type {
            IBV_EVENT_CQ_ERR => Element::CompletionQueue((*event.element.cq).handle),
            IBV_EVENT_QP_FATAL
            | IBV_EVENT_QP_REQ_ERR
            | IBV_EVENT_QP_ACCESS_ERR
            | IBV_EVENT_COMM_EST
            | IBV_EVENT_SQ_DRAINED
            | IBV_EVENT_PATH_MIG
            | IBV_EVENT_PATH_MIG_ERR
            | IBV_EVENT_QP_LAST_WQE_REACHED => Element::QueuePair((*event.element.qp).qp_num),
            IBV_EVENT_SRQ_ERR | IBV_EVENT_SRQ_LIMIT_REACHED => Element::SharedReceiveQueue((*event.element.srq).handle),
            IBV_EVENT_WQ_FATAL => Element::WorkQueue((*event.element.wq).wq_num),
            IBV_EVENT_PORT_ACTIVE
            | IBV_EVENT_PORT_ERR
            | IBV_EVENT_LID_CHANGE
            | IBV_EVENT_PKEY_CHANGE
            | IBV_EVENT_SM_CHANGE
            | IBV_EVENT_CLIENT_REREGISTER
            | IBV_EVENT_GID_CHANGE => Element::Port(event.element.port_num.try_into().unwrap_or_default()),
            _ => Element::Device,
        }
    }
}

/// An asynchronous event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsyncEvent {
    /// Its kind.
    pub kind: EventKind,
    /// Its object.
    pub element: Element,
}

/// The object of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    /// The device as a whole.
    Device,
    /// A port, from 1.
    Port(u8),
    /// [`super::CompletionQueue::handle`].
    CompletionQueue(u32),
    /// [`super::QueuePair::number`].
    QueuePair(u32),
    /// [`super::WorkQueue::number`].
    WorkQueue(u32),
    /// [`super::SharedReceiveQueue::handle`].
    SharedReceiveQueue(u32),
}

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// A completion queue overran, or the device could not write to it.
    CqError,
    /// A QP is in error and cannot report it by completions.
    QpFatal,
    /// The device refused a WQE.
    QpRequestError,
    /// A WQE named memory that is not registered.
    QpAccessError,
    /// A work queue is in error.
    WqFatal,
    /// The first packet of a connection came while its QP was in state `Rtr`.
    Established,
    /// The last send is done, in state `Sqd`.
    SqDrained,
    /// A QP in error takes no more buffers of its shared receive queue.
    LastWqeReached,
    /// A shared receive queue has fewer buffers than its limit.
    SrqLimitReached,
    /// A shared receive queue is in error.
    SrqError,
    /// The port has a link.
    PortActive,
    /// The port lost its link.
    PortDown,
    /// The device is gone, or has to be reset.
    DeviceFatal,
    /// The port's addresses have changed; irrelevant to raw packets.
    GidChange,
    /// Another kind, by its number in `enum ibv_event_type`.
    Other(u32),
}

impl EventKind {
    pub(super) fn of(kind: ibv_event_type) -> Self {
        match kind {
            IBV_EVENT_CQ_ERR => Self::CqError,
            IBV_EVENT_QP_FATAL => Self::QpFatal,
            IBV_EVENT_QP_REQ_ERR => Self::QpRequestError,
            IBV_EVENT_QP_ACCESS_ERR => Self::QpAccessError,
            IBV_EVENT_WQ_FATAL => Self::WqFatal,
            IBV_EVENT_COMM_EST => Self::Established,
            IBV_EVENT_SQ_DRAINED => Self::SqDrained,
            IBV_EVENT_QP_LAST_WQE_REACHED => Self::LastWqeReached,
            IBV_EVENT_SRQ_LIMIT_REACHED => Self::SrqLimitReached,
            IBV_EVENT_SRQ_ERR => Self::SrqError,
            IBV_EVENT_PORT_ACTIVE => Self::PortActive,
            IBV_EVENT_PORT_ERR => Self::PortDown,
            IBV_EVENT_DEVICE_FATAL => Self::DeviceFatal,
            IBV_EVENT_GID_CHANGE => Self::GidChange,
            other => Self::Other(other),
        }
    }
}

/// The relation of the device's clock to the kernel's at one moment.
#[derive(Clone, Copy, Debug)]
pub struct ClockInfo(mlx5dv_clock_info);

impl ClockInfo {
    /// From raw numbers, for tests of conversions.
    pub const fn new(clock: mlx5dv_clock_info) -> Self {
        Self(clock)
    }

    /// Nanoseconds of the kernel's clock for a timestamp of a CQE. Valid as long as the clock is
    /// younger than [`super::Mlx5Attributes::clock_info_age_ns_max`].
    pub fn to_ns(&self, stamp: u64) -> u64 {
        inline::mlx5dv_ts_to_ns(&self.0, stamp)
    }

    /// The raw numbers.
    pub const fn raw(&self) -> &mlx5dv_clock_info {
        &self.0
    }
}
